//! Arbitrary bytes are refused or parsed, never panic, and never violate an invariant of the views.

mod exabgp;
mod vectors;

use super::attribute::{Attributes, code};
use super::message::{MAX_EXTENDED_LEN, RouteRefresh, frame};
use super::nlri::Prefixes;
use super::update::{UpdateContext, parse};
use super::{AsPath, Notification, Open, build, invariants};
use proptest::prelude::*;
use ribtide_prefix::{AfiSafi, FamilySet, V4, V6};

/// Prefixes of up to `width` bits, as on the wire; one in a hundred cannot be.
fn plausible_prefixes(width: u8) -> impl Strategy<Value = Vec<u8>> {
    let one = (0u8..=width, any::<[u8; 16]>(), 0u8..100).prop_map(move |(len, bits, wrong)| {
        let bytes = usize::from(len).div_ceil(8);
        let len = if wrong == 0 { width + 1 } else { len };
        [&[len], &bits[..bytes]].concat()
    });
    prop::collection::vec(one, 0..5).prop_map(|prefixes| prefixes.concat())
}

/// The value of MP_REACH_NLRI or MP_UNREACH_NLRI.
fn plausible_mp(code: u8) -> impl Strategy<Value = Vec<u8>> {
    let families = prop_oneof![Just((1u8, 32u8)), Just((2, 128)), Just((2, 128)), Just((3, 32))];
    let next_hops = prop_oneof![Just(4usize), Just(16), Just(16), Just(32)];
    (families, next_hops).prop_flat_map(move |((afi, width), len)| {
        plausible_prefixes(width).prop_map(move |nlri| {
            let next_hop = [&[len as u8], &vec![0x20; len][..], &[0]].concat();
            let next_hop = if code == code::MP_REACH_NLRI { next_hop } else { Vec::new() };
            [&[0, afi, 1], &next_hop[..], &nlri].concat()
        })
    })
}

/// An AS_PATH with AS numbers of `width` bytes.
fn plausible_path(width: usize) -> impl Strategy<Value = Vec<u8>> {
    let asns = prop::collection::vec(prop_oneof![1u32..4, Just(23456), Just(70000)], 1..6);
    prop::collection::vec((1u8..5, asns), 0..4).prop_map(move |segments| {
        let mut out = Vec::new();
        for (kind, asns) in segments {
            out.extend_from_slice(&[kind, asns.len() as u8]);
            asns.iter().for_each(|asn| out.extend_from_slice(&asn.to_be_bytes()[4 - width..]));
        }
        out
    })
}

/// An attribute that is mostly right, so that tests get beyond the first check.
fn plausible_attribute(code: u8) -> BoxedStrategy<Vec<u8>> {
    let numbers = |bytes: usize| (1usize..4).prop_map(move |n| vec![1; n * bytes]).boxed();
    let right = match code {
        code::ORIGIN => (0u8..3).prop_map(|origin| vec![origin]).boxed(),
        code::AS_PATH => prop_oneof![plausible_path(4), plausible_path(2)].boxed(),
        code::AS4_PATH => plausible_path(4).boxed(),
        code::MP_REACH_NLRI | code::MP_UNREACH_NLRI => plausible_mp(code).boxed(),
        code::ATOMIC_AGGREGATE => Just(Vec::new()).boxed(),
        code::AGGREGATOR => {
            prop_oneof![Just(vec![0, 1, 1, 1, 1, 1]), Just(vec![0x5b, 0xa0, 1, 1, 1, 1]), numbers(8)].boxed()
        }
        code::AS4_AGGREGATOR => Just(vec![1; 8]).boxed(),
        code::EXTENDED_COMMUNITIES => numbers(8),
        code::LARGE_COMMUNITIES => numbers(12),
        code::COMMUNITIES | code::CLUSTER_LIST => numbers(4),
        _ => Just(vec![10, 0, 0, 1]).boxed(),
    };
    let any_value = prop::collection::vec(any::<u8>(), 0..30);
    (prop_oneof![30 => right, 1 => any_value], any::<u8>(), 0u8..40)
        .prop_map(move |(value, noise, right)| {
            let flags = match super::attribute::expected_flags(code) {
                // Partial is no fault where it must not be; what is kept has it no more (`invariants`).
                Some(flags) if right > 0 => flags | noise & 0x20,
                None if right > 0 => 0xc0,
                _ => noise,
            };
            let mut out = Vec::new();
            build::attribute(&mut out, flags, code, &value);
            out
        })
        .boxed()
}

fn plausible_body() -> impl Strategy<Value = Vec<u8>> {
    let code = prop_oneof![10 => 3u8..19, 4 => 14u8..16, 1 => Just(25), 1 => Just(26), 1 => Just(32), 1 => 22u8..41, 1 => any::<u8>()];
    let mandatory =
        (plausible_attribute(1), plausible_attribute(2), prop::option::weighted(0.8, plausible_attribute(3)));
    let more = prop::collection::vec(code.prop_flat_map(plausible_attribute), 0..6);
    let attributes = (mandatory, more).prop_map(|((origin, path, next_hop), more)| {
        [origin, path, next_hop.unwrap_or_default(), more.concat()].concat()
    });
    (plausible_prefixes(32), attributes, plausible_prefixes(32), 0u8..30).prop_map(
        |(withdrawn, attributes, nlri, cut)| {
            let mut out = Vec::new();
            out.extend_from_slice(&(withdrawn.len() as u16).to_be_bytes());
            out.extend_from_slice(&withdrawn);
            // Sometimes the last byte of the attributes falls to the prefixes.
            let len = attributes.len() - usize::from(cut == 0);
            out.extend_from_slice(&(len as u16).to_be_bytes());
            out.extend_from_slice(&attributes);
            out.extend_from_slice(&nlri);
            out
        },
    )
}

fn family_set(has: [bool; AfiSafi::COUNT]) -> FamilySet {
    AfiSafi::ALL.into_iter().zip(has).filter_map(|(family, has)| has.then_some(family)).collect()
}

fn contexts() -> impl Strategy<Value = UpdateContext> {
    let path_ids = any::<[bool; AfiSafi::COUNT]>().prop_map(family_set);
    (any::<bool>(), any::<bool>(), any::<bool>(), path_ids).prop_map(
        |(four_octet_as, external, prefix_sid, path_ids)| UpdateContext {
            four_octet_as,
            external,
            prefix_sid,
            confederation: !external,
            path_ids,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_is_framed_or_refused(
        marker in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut stream = if marker { vec![0xff; 16] } else { Vec::new() };
        stream.extend_from_slice(&bytes);
        if let Ok(Some(frame)) = frame(&stream, MAX_EXTENDED_LEN) {
            prop_assert_eq!(frame.body.len() + 19, frame.total_len);
        }
    }

    #[test]
    fn any_open_is_read_or_refused(
        fixed in any::<bool>(),
        bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..40),
    ) {
        let mut body = if fixed { vec![4, 0, 1, 0, 90, 1, 1, 1, 1, bytes.len() as u8] } else { Vec::new() };
        body.extend_from_slice(&bytes);
        if let Ok(open) = Open::parse(&body) {
            prop_assert!(open.asn() != 0 && !open.router_id.is_unspecified());
            prop_assert!(open.capabilities().count() <= bytes.len());
        }
    }

    #[test]
    fn any_small_message_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = RouteRefresh::parse(&bytes);
        prop_assert!(!Notification::parse(&bytes).to_string().is_empty());
    }

    #[test]
    fn any_update_has_an_outcome(
        body in prop::collection::vec(prop_oneof![0u8..40, any::<u8>()], 0..120),
        ctx in contexts(),
    ) {
        if let Ok(update) = parse(&body, &ctx) {
            invariants::check(&update, &ctx);
        }
    }

    #[test]
    fn plausible_updates_have_an_outcome(body in plausible_body(), ctx in contexts()) {
        match parse(&body, &ctx) {
            Ok(update) => invariants::check(&update, &ctx),
            Err(notification) => prop_assert_eq!(notification.code, 3),
        }
    }

    #[test]
    fn any_attribute_value_can_be_viewed(value in prop::collection::vec(any::<u8>(), 0..60)) {
        use super::attribute::{Communities, ExtendedCommunities, LargeCommunities};
        let path = AsPath::new(&value);
        let _ = (path.to_string(), path.hop_count(), path.first_as(), path.neighbor_as(), path.origin_as());
        prop_assert!(path.asns().all(|asn| path.contains(asn)));
        let _ = build::prepend(path, 1, 3);
        let _ = Communities::new(&value).to_string();
        let _ = LargeCommunities::new(&value).to_string();
        let _ = ExtendedCommunities::new(&value).to_string();
        for attribute in Attributes::new(&value) {
            let _ = super::attribute::Aggregator::from_value(attribute.value);
        }
        prop_assert!(Prefixes::<V6>::new(&value).count() <= value.len());
        prop_assert!(Prefixes::<V4>::new(&value).count() <= value.len());
    }
}
