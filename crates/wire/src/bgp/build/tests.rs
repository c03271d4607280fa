//! Written messages read back equal.

use super::*;
use crate::bgp::NextHop;
use crate::bgp::attribute::{Attribute, Attributes};
use crate::bgp::message::{MAX_EXTENDED_LEN, MAX_LEN, MessageType, frame};
use crate::bgp::nlri::PathPrefix;
use crate::bgp::update::{Disposition, Update, UpdateContext, parse};
use proptest::prelude::*;
use ribtide_prefix::{AfiSafi, BgpFamily, FamilySet, Prefix, V4, V4Multicast, V6, V6Multicast};

const CONTEXT: UpdateContext = UpdateContext::new(true, false);

/// A path value.
fn path(segments: &[(u8, &[u32])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, asns) in segments {
        out.extend_from_slice(&[*kind, asns.len() as u8]);
        asns.iter().for_each(|a| out.extend_from_slice(&a.to_be_bytes()));
    }
    out
}

/// A block of attributes of some length.
fn block() -> Vec<u8> {
    let mut out = Vec::new();
    origin(&mut out, Origin::Igp);
    as_path(&mut out, AsPath::new(&path(&[(2, &[65001, 70000])])));
    med(&mut out, 5);
    local_pref(&mut out, 100);
    list(&mut out, 0, code::COMMUNITIES, &[0xfd, 0xe9, 0, 1]);
    out
}

/// Calls `each` for every UPDATE in `stream` and returns how many there are.
fn for_each_update(mut stream: &[u8], max_len: usize, mut each: impl FnMut(Update<'_>)) -> usize {
    let mut count = 0;
    while !stream.is_empty() {
        let message = frame(stream, max_len).unwrap().unwrap();
        assert_eq!(message.kind, MessageType::Update);
        each(parse(message.body, &CONTEXT).unwrap());
        stream = &stream[message.total_len..];
        count += 1;
    }
    count
}

fn round_trip<F: BgpFamily>(prefixes: &[Prefix<F>], next_hop: NextHop, max_len: usize) {
    let attributes = block();
    let packer = UpdatePacker::new(&attributes, next_hop, max_len);
    let mut out = b"before".to_vec();
    let messages = packer.announce(prefixes.iter().copied(), &mut out).unwrap();
    let mut announced = Vec::new();
    let read = for_each_update(&out[6..], max_len, |update| {
        assert_eq!(update.disposition(), Disposition::Normal);
        assert!(update.attributes().eq(Attributes::new(&attributes)));
        assert_eq!(update.next_hop::<F>(), Some(next_hop));
        assert_eq!(update.withdrawn::<F>().count(), 0);
        announced.extend(update.announced::<F>());
    });
    assert_eq!((read, announced.as_slice()), (messages, prefixes));

    out.clear();
    let messages = withdraw(prefixes.iter().copied(), max_len, &mut out);
    let mut withdrawn = Vec::new();
    let read = for_each_update(&out, max_len, |update| {
        assert_eq!(update.disposition(), Disposition::Normal);
        assert_eq!(update.announced::<F>().count(), 0);
        withdrawn.extend(update.withdrawn::<F>());
    });
    assert_eq!((read, withdrawn.as_slice()), (messages, prefixes));
}

fn v6(text: &str) -> NextHop {
    NextHop::V6 { global: text.parse().unwrap(), link_local: None }
}

#[test]
fn messages_are_filled_to_the_limit() {
    let prefixes: Vec<Prefix<V4>> = (0..10_000u32).map(|i| Prefix::new(i << 8, 24)).collect();
    for max_len in [MAX_LEN, MAX_EXTENDED_LEN] {
        let attributes = block();
        let packer = UpdatePacker::new(&attributes, NextHop::V4([10, 0, 0, 1].into()), max_len);
        let mut out = Vec::new();
        let messages = packer.announce(prefixes.iter().copied(), &mut out).unwrap();
        let room = max_len - 23 - attributes.len() - 7;
        // Room for the longest prefix is kept, of which a /24 leaves one byte.
        assert_eq!(messages, prefixes.len().div_ceil((room - 1) / 4));
    }
}

#[test]
fn next_hop_is_in_its_place_and_mp_reach_first() {
    let attributes = block();
    let order = |next_hop| {
        let mut out = Vec::new();
        let packer = UpdatePacker::new(&attributes, next_hop, MAX_LEN);
        assert_eq!(packer.announce([Prefix::<V4>::default_route()], &mut out), Ok(1));
        let mut codes = Vec::new();
        for_each_update(&out, MAX_LEN, |update| {
            codes.extend(Attributes::new(update.raw_attributes()).map(|a| a.code));
        });
        codes
    };
    assert_eq!(order(NextHop::V4([10, 0, 0, 1].into())), [1, 2, 3, 4, 5, 8]);
    assert_eq!(order(v6("2001:db8::1")), [14, 1, 2, 4, 5, 8]);
}

#[test]
fn ipv6_over_ipv4_is_mapped() {
    let attributes = block();
    let packer = UpdatePacker::new(&attributes, NextHop::V4([10, 0, 0, 1].into()), MAX_LEN);
    let mut out = Vec::new();
    packer.announce([Prefix::<V6>::default_route()], &mut out).unwrap();
    for_each_update(&out, MAX_LEN, |update| {
        assert_eq!(update.next_hop::<V6>(), Some(v6("::ffff:10.0.0.1")));
    });
}

#[test]
fn attributes_that_leave_no_room_are_refused() {
    let mut attributes = block();
    list(&mut attributes, 0, code::COMMUNITIES, &[1; 4060]);
    for next_hop in [NextHop::V4([10, 0, 0, 1].into()), v6("2001:db8::1")] {
        let packer = UpdatePacker::new(&attributes, next_hop, MAX_LEN);
        let mut out = Vec::new();
        let error = packer.announce([Prefix::<V4>::default_route()], &mut out).unwrap_err();
        assert_eq!((error.len, out.len()), (attributes.len(), 0));
        assert!(error.to_string().starts_with("4102 bytes of attributes leave no room"), "{error}");
        let packer = UpdatePacker::new(&attributes, next_hop, MAX_EXTENDED_LEN);
        assert_eq!(packer.announce([Prefix::<V4>::default_route()], &mut out), Ok(1));
    }
    let huge = vec![0; 65_500];
    let packer = UpdatePacker::new(&huge, v6("2001:db8::1"), usize::MAX);
    assert!(packer.announce([Prefix::<V6>::default_route()], &mut Vec::new()).is_err());
}

#[test]
fn empty_input_makes_no_message() {
    let mut out = Vec::new();
    let packer = UpdatePacker::new(&[], v6("2001:db8::1"), MAX_LEN);
    assert_eq!(packer.announce::<Prefix<V6>>([], &mut out), Ok(0));
    assert_eq!(withdraw::<Prefix<V4>>([], MAX_LEN, &mut out), 0);
    assert!(out.is_empty());
}

#[test]
fn end_of_rib_reads_as_such() {
    for family in AfiSafi::ALL {
        let mut out = Vec::new();
        end_of_rib(family, &mut out);
        assert_eq!(for_each_update(&out, MAX_LEN, |u| assert_eq!(u.end_of_rib(), Some(family))), 1);
    }
}

#[test]
fn prepending_extends_the_first_sequence_while_it_fits() {
    let one = path(&[(2, &[65001]), (1, &[5])]);
    assert_eq!(AsPath::new(&prepend(AsPath::new(&one), 70000, 2)).to_string(), "70000 70000 65001 {5}");
    assert_eq!(prepend(AsPath::new(&one), 70000, 1)[1], 2, "in one segment");
    assert_eq!(prepend(AsPath::new(&one), 1, 0), one);
    assert_eq!(AsPath::new(&prepend(AsPath::default(), 1, 3)).to_string(), "1 1 1");
    let set = path(&[(1, &[5])]);
    assert_eq!(AsPath::new(&prepend(AsPath::new(&set), 1, 1)).to_string(), "1 {5}");
    let full = path(&[(2, &[9; 255])]);
    let longer = prepend(AsPath::new(&full), 1, 1);
    let longer = AsPath::new(&longer);
    assert_eq!((longer.hop_count(), longer.segments().count(), longer.first_as()), (256, 2, Some(1)));
}

#[test]
fn old_peers_get_as_trans_and_the_rest_beside_it() {
    let value = path(&[(3, &[64512]), (2, &[65001, 70000])]);
    let mut out = Vec::new();
    as_path_two_octet(&mut out, AsPath::new(&value));
    aggregator_two_octet(&mut out, flags::PARTIAL, Aggregator { asn: 70000, router_id: [1, 1, 1, 1].into() });
    as4_path(&mut out, AsPath::new(&value));
    as4_aggregator(&mut out, Aggregator { asn: 70000, router_id: [1, 1, 1, 1].into() });
    let attributes: Vec<Attribute<'_>> = Attributes::new(&out).collect();
    assert_eq!(attributes[0].value, [3, 1, 0xfc, 0, 2, 2, 0xfd, 0xe9, 0x5b, 0xa0]);
    assert_eq!((attributes[1].flags, attributes[1].value), (0xe0, &[0x5b, 0xa0, 1, 1, 1, 1][..]));
    assert_eq!(attributes[2].code, code::AS4_PATH);
    assert_eq!(AsPath::new(attributes[2].value).to_string(), "65001 70000");
    assert_eq!(Aggregator::from_value(attributes[3].value).unwrap().asn, 70000);

    out.clear();
    as4_path(&mut out, AsPath::new(&path(&[(2, &[65001])])));
    as4_aggregator(&mut out, Aggregator { asn: 65001, router_id: [1, 1, 1, 1].into() });
    assert!(out.is_empty(), "not where it is not needed");
}

#[test]
fn every_writer_makes_what_the_parser_accepts() {
    let id = [9, 9, 9, 9].into();
    let mut attributes = block();
    known(&mut attributes, code::ATOMIC_AGGREGATE, &[]);
    aggregator(&mut attributes, 0, Aggregator { asn: 65001, router_id: id });
    originator_id(&mut attributes, id);
    cluster_list(&mut attributes, id, &[8, 8, 8, 8]);
    list(&mut attributes, 0, code::EXTENDED_COMMUNITIES, &[0; 8]);
    list(&mut attributes, 0, code::LARGE_COMMUNITIES, &[0; 12]);
    list(&mut attributes, 0, code::LARGE_COMMUNITIES, &[]);
    list(&mut attributes, 0, code::IPV6_EXTENDED_COMMUNITIES, &[0; 20]);
    let packer = UpdatePacker::new(&attributes, NextHop::V4(id), MAX_LEN);
    let mut out = Vec::new();
    packer.announce([Prefix::<V4>::default_route()], &mut out).unwrap();
    for_each_update(&out, MAX_LEN, |update| {
        assert_eq!((update.disposition(), update.discarded()), (Disposition::Normal, &[][..]));
        assert!(update.attributes().eq(Attributes::new(&attributes)));
    });
}

#[test]
fn a_value_takes_the_length_it_needs() {
    for (len, header) in [(255, 3), (256, 4), (65_535, 4)] {
        let mut out = Vec::new();
        attribute(&mut out, 0xd0, 99, &vec![1; len]);
        assert_eq!(out.len(), len + header);
        let (read, rest) = Attribute::split_first(&out).unwrap();
        assert_eq!((read.code, read.value.len(), rest.len()), (99, len, 0));
    }
}

proptest! {
    #[test]
    fn prefixes_survive_packing(
        raw in prop::collection::vec((any::<u128>(), 0u8..=128), 0..600),
        max_len in prop_oneof![Just(MAX_LEN), Just(MAX_EXTENDED_LEN), 200usize..600],
        local in any::<bool>(),
    ) {
        let link_local = local.then(|| "fe80::1".parse().unwrap());
        let six = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local };
        let v6: Vec<Prefix<V6>> = raw.iter().map(|(b, l)| Prefix::new(b.to_be_bytes(), *l)).collect();
        let v4: Vec<Prefix<V4>> = raw.iter().map(|(b, l)| Prefix::new(*b as u32, *l % 33)).collect();
        round_trip(&v6, six, max_len);
        round_trip(&v4, six, max_len);
        round_trip(&v4, NextHop::V4([192, 0, 2, 1].into()), max_len);
        let multicast: Vec<_> = v4.iter().map(|prefix| Prefix::<V4Multicast>::from_ip(*prefix)).collect();
        round_trip(&multicast, NextHop::V4([192, 0, 2, 1].into()), max_len);
        let multicast: Vec<_> = v6.iter().map(|prefix| Prefix::<V6Multicast>::from_ip(*prefix)).collect();
        round_trip(&multicast, six, max_len);
    }

    #[test]
    fn path_identifiers_are_read_back(
        paths in prop::collection::vec((any::<u128>(), 0u8..=128, any::<u32>()), 0..400),
        max_len in 300usize..2000,
    ) {
        fn both_ways<F: BgpFamily>(paths: &[PathPrefix<F>], next_hop: NextHop, max_len: usize) {
            let attributes = block();
            let mut out = Vec::new();
            UpdatePacker::new(&attributes, next_hop, max_len).announce(paths.iter().copied(), &mut out).unwrap();
            let context = UpdateContext { path_ids: FamilySet::ALL, ..CONTEXT };
            let read = |out: &[u8], what: fn(&Update<'_>) -> Vec<PathPrefix<F>>| {
                let (mut stream, mut read) = (out, Vec::new());
                while let Some(message) = frame(stream, max_len).unwrap() {
                    read.extend(what(&parse(message.body, &context).unwrap()));
                    stream = &stream[message.total_len..];
                }
                read
            };
            assert_eq!(read(&out, |update| update.announced_nlri().collect()), paths);
            out.clear();
            withdraw(paths.iter().copied(), max_len, &mut out);
            assert_eq!(read(&out, |update| update.withdrawn_nlri().collect()), paths);
        }
        let v4: Vec<PathPrefix<V4>> = paths
            .iter()
            .map(|(bits, len, path_id)| PathPrefix { prefix: Prefix::new(*bits as u32, len % 33), path_id: *path_id })
            .collect();
        let v6: Vec<PathPrefix<V6>> = paths
            .iter()
            .map(|(bits, len, path_id)| PathPrefix { prefix: Prefix::new(bits.to_be_bytes(), *len), path_id: *path_id })
            .collect();
        let six = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
        both_ways(&v4, NextHop::V4([192, 0, 2, 1].into()), max_len);
        let multicast = |path: &PathPrefix<V4>| PathPrefix::<V4Multicast> {
            prefix: Prefix::from_ip(path.prefix),
            path_id: path.path_id,
        };
        let multicast: Vec<_> = v4.iter().map(multicast).collect();
        both_ways(&multicast, NextHop::V4([192, 0, 2, 1].into()), max_len);
        both_ways(&v4, six, max_len);
        both_ways(&v6, six, max_len);
    }

    #[test]
    fn an_old_peer_gives_back_the_path_it_was_given(
        segments in prop::collection::vec((1u8..=2, prop::collection::vec(1u32..100_000, 1..20)), 0..5),
    ) {
        let mut value = Vec::new();
        for (kind, asns) in &segments {
            let bytes: Vec<u8> = asns.iter().flat_map(|a| a.to_be_bytes()).collect();
            let kind = if *kind == 1 { SegmentKind::Set } else { SegmentKind::Sequence };
            join_segment(&mut value, kind, &bytes);
        }
        let mut attributes = Vec::new();
        origin(&mut attributes, Origin::Igp);
        as_path_two_octet(&mut attributes, AsPath::new(&value));
        as4_path(&mut attributes, AsPath::new(&value));
        let packer = UpdatePacker::new(&attributes, NextHop::V4([10, 0, 0, 1].into()), MAX_LEN);
        let mut out = Vec::new();
        packer.announce([Prefix::<V4>::default_route()], &mut out).unwrap();
        let old = UpdateContext::new(false, true);
        let update = parse(&out[19..], &old).unwrap();
        prop_assert_eq!(update.disposition(), Disposition::Normal);
        let read: Vec<_> = update.attributes().collect();
        prop_assert_eq!(read.len(), 2);
        prop_assert_eq!(read[1].value, value.as_slice());
    }
}

/// RFC 5065 section 4.1: a member AS joins the first AS_CONFED_SEQUENCE, or begins one.
#[test]
fn member_as_is_prepended_to_the_first_confederation_sequence() {
    let of = |path: &[u8]| AsPath::new(&prepend_member(AsPath::new(path), 65001)).to_string();
    assert_eq!(of(&[]), "(65001)");
    assert_eq!(of(&[2, 1, 0, 0, 0, 7]), "(65001) 7");
    assert_eq!(of(&[3, 1, 0, 0, 0, 9, 2, 1, 0, 0, 0, 7]), "(65001 9) 7");
    assert_eq!(of(&[4, 1, 0, 0, 0, 9, 1, 1, 0, 0, 0, 7]), "(65001) [9] {7}");
    let mut full = vec![3, 255];
    (0..255).for_each(|_| full.extend_from_slice(&9u32.to_be_bytes()));
    let longer = prepend_member(AsPath::new(&full), 65001);
    assert_eq!(longer[..8], [3, 1, 0, 0, 0xfd, 0xe9, 3, 255]);
    // Other AS numbers are behind those of the confederation.
    let path = prepend(AsPath::new(&[3, 1, 0, 0, 0, 9, 2, 1, 0, 0, 0, 7]), 8, 2);
    assert_eq!(AsPath::new(&path).to_string(), "(9) 8 8 7");
}
