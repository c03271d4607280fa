//! One test per rule of RFC 7606 and related RFCs; arbitrary bytes are tested in `../tests.rs`.

use super::*;
use crate::bgp::attribute::{Aggregator, AsPath};
use crate::bgp::build;
use crate::bgp::nlri::{PathPrefix, PathPrefixes};

const EXTERNAL: UpdateContext = UpdateContext::new(true, true);
/// An external peer inside the SR domain.
const SR_DOMAIN: UpdateContext = UpdateContext { prefix_sid: true, aigp: true, ..EXTERNAL };
const INTERNAL: UpdateContext = UpdateContext::new(true, false);
const OLD: UpdateContext = UpdateContext::new(false, true);

/// An attribute as bytes.
fn attr(flags: u8, code: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    build::attribute(&mut out, flags, code, value);
    out
}

fn origin() -> Vec<u8> {
    attr(0x40, 1, &[0])
}

fn as_path() -> Vec<u8> {
    attr(0x40, 2, &[2, 2, 0, 0, 0xfd, 0xe9, 0, 1, 0, 0])
}

fn next_hop() -> Vec<u8> {
    attr(0x40, 3, &[10, 0, 0, 1])
}

fn reach_v6() -> Vec<u8> {
    let mut value = vec![0, 2, 1, 16];
    value.extend_from_slice(&"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    value.extend_from_slice(&[0, 32, 0x20, 1, 0xd, 0xb8]);
    attr(0x80, 14, &value)
}

/// The body of an UPDATE.
fn body(withdrawn: &[u8], attributes: &[Vec<u8>], nlri: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    let mut out = Vec::new();
    out.extend_from_slice(&(withdrawn.len() as u16).to_be_bytes());
    out.extend_from_slice(withdrawn);
    out.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
    out.extend_from_slice(&attributes);
    out.extend_from_slice(nlri);
    out
}

/// A route to 10.0.0.0/8 with the mandatory attributes and `more`.
fn route_with(more: &[Vec<u8>]) -> Vec<u8> {
    body(&[], &[&[origin(), as_path(), next_hop()], more].concat(), &[8, 10])
}

fn texts<F: BgpFamily>(prefixes: Prefixes<'_, F>) -> Vec<String> {
    prefixes.map(|p| p.to_string()).collect()
}

fn codes(update: &Update<'_>) -> Vec<u8> {
    update.attributes().map(|a| a.code).collect()
}

/// Asserts that the routes are withdrawn because of this fault.
#[track_caller]
fn withdraws(body: &[u8], ctx: &UpdateContext, code: u8, kind: FaultKind) {
    let update = parse(body, ctx).unwrap();
    assert_eq!(update.disposition(), Disposition::TreatAsWithdraw { reason: Fault { code, kind } });
    assert_eq!(update.announced::<V4>().count() + update.announced::<V6>().count(), 0);
    assert!(update.withdrawn::<V4>().count() + update.withdrawn::<V6>().count() > 0);
    assert_eq!(update.attributes().count(), 0);
}

/// Asserts that the routes stay and one attribute goes.
#[track_caller]
fn discards(body: &[u8], ctx: &UpdateContext, code: u8, kind: FaultKind) {
    let update = parse(body, ctx).unwrap();
    assert_eq!(update.disposition(), Disposition::Normal);
    let faults: Vec<_> = update.discarded().iter().map(|d| d.fault).collect();
    assert_eq!(faults, [Fault { code, kind }]);
    assert_eq!(update.announced::<V4>().count(), 1);
}

/// Asserts that the routes stay and so do all attributes.
#[track_caller]
fn keeps(body: &[u8], ctx: &UpdateContext) {
    let update = parse(body, ctx).unwrap();
    assert_eq!((update.disposition(), update.discarded()), (Disposition::Normal, &[][..]));
}

/// Asserts that the session is reset with this subcode.
#[track_caller]
fn resets(body: &[u8], ctx: &UpdateContext, subcode: u8) -> Vec<u8> {
    let notification = parse(body, ctx).unwrap_err();
    assert_eq!((notification.code, notification.subcode), (3, subcode), "{notification}");
    notification.data
}

#[test]
fn a_plain_announcement() {
    let body = body(
        &[16, 192, 168],
        &[origin(), as_path(), next_hop(), attr(0x80, 4, &[0, 0, 0, 7])],
        &[8, 10, 20, 172, 16, 255],
    );
    let update = parse(&body, &EXTERNAL).unwrap();
    assert_eq!(update.disposition(), Disposition::Normal);
    assert_eq!(texts(update.announced::<V4>()), ["10.0.0.0/8", "172.16.240.0/20"]);
    assert_eq!(texts(update.withdrawn::<V4>()), ["192.168.0.0/16"]);
    assert_eq!(update.announced::<V6>().count() + update.withdrawn::<V6>().count(), 0);
    assert_eq!(update.next_hop::<V4>(), Some(NextHop::V4([10, 0, 0, 1].into())));
    assert_eq!(update.next_hop::<V6>(), None);
    assert_eq!(codes(&update), [1, 2, 4]);
    assert_eq!(update.raw_attributes().len(), 4 + 13 + 7 + 7);
    assert_eq!(update.end_of_rib(), None);
}

#[test]
fn a_plain_announcement_of_ipv6() {
    let unreach = attr(0x80, 15, &[0, 2, 1, 16, 0x20, 2]);
    let body = body(&[], &[reach_v6(), origin(), unreach.clone(), as_path(), attr(0x40, 5, &[0; 4])], &[]);
    let update = parse(&body, &INTERNAL).unwrap();
    assert_eq!(update.disposition(), Disposition::Normal);
    assert_eq!(texts(update.announced::<V6>()), ["2001:db8::/32"]);
    assert_eq!(texts(update.withdrawn::<V6>()), ["2002::/16"]);
    assert_eq!(update.announced::<V4>().count() + update.withdrawn::<V4>().count(), 0);
    assert_eq!(update.next_hop::<V6>().unwrap().to_string(), "2001:db8::1");
    assert_eq!(codes(&update), [1, 2, 5]);
    let [first, second, third] = update.attribute_key();
    assert_eq!(
        (first, second, third),
        (&[][..], &origin()[..], &[as_path(), attr(0x40, 5, &[0; 4])].concat()[..])
    );
}

#[test]
fn peek_finds_what_is_announced_and_takes_any_bytes() {
    let peek = |body: &[u8]| peek_announced(body).map(|(family, field)| (family, field.to_vec()));
    let v4 = body(&[8, 10], &[origin(), as_path(), next_hop()], &[8, 11, 8, 12]);
    assert_eq!(peek(&v4), Some((AfiSafi::Ipv4Unicast, vec![8, 11, 8, 12])));
    let v6 = body(&[], &[origin(), as_path(), reach_v6()], &[]);
    let update = parse(&v6, &EXTERNAL).unwrap();
    let (family, field) = peek(&v6).unwrap();
    let seen: Vec<_> = Prefixes::<V6>::new(&field).collect();
    assert_eq!((family, seen), (AfiSafi::Ipv6Unicast, update.announced::<V6>().collect::<Vec<_>>()));
    assert_eq!(peek(&body(&[8, 10], &[], &[])), None);
    (0..v6.len()).for_each(|end| drop(peek(&v6[..end])));
}

#[test]
fn lengths_that_do_not_add_up_reset() {
    for body in [&[][..], &[0], &[0, 1], &[0, 0], &[0, 0, 0], &[0, 0, 0, 1], &[0, 2, 8, 10, 0]] {
        resets(body, &EXTERNAL, 1);
    }
}

#[test]
fn prefixes_that_cannot_be_read_reset() {
    let attributes = [origin(), as_path(), next_hop()];
    resets(&body(&[], &attributes, &[33, 1, 2, 3, 4, 5]), &EXTERNAL, 10);
    resets(&body(&[], &attributes, &[24, 1, 2]), &EXTERNAL, 10);
    resets(&body(&[24, 1, 2], &attributes, &[8, 10]), &EXTERNAL, 10);
    resets(&body(&[], &[attr(0x80, 15, &[0, 2, 1, 129])], &[]), &EXTERNAL, 9);
    resets(&body(&[], &[attr(0x80, 15, &[0, 1, 1, 33, 1, 2, 3, 4, 5])], &[]), &EXTERNAL, 9);
}

#[test]
fn path_identifiers_are_read_in_the_families_that_have_them() {
    let ctx = UpdateContext { path_ids: FamilySet::IPV4_UNICAST, ..EXTERNAL };
    let classic =
        body(&[0, 0, 0, 7, 8, 11], &[origin(), as_path(), next_hop(), reach_v6()], &[0, 0, 0, 9, 8, 10]);
    let update = parse(&classic, &ctx).unwrap();
    let paths = |paths: PathPrefixes<'_, V4>| paths.map(|p| p.path_id).collect::<Vec<_>>();
    assert_eq!((paths(update.withdrawn_nlri()), paths(update.announced_nlri())), (vec![7], vec![9]));
    let prefix = |path: PathPrefix<V4>| path.prefix.to_string();
    assert_eq!(update.announced_nlri().map(prefix).collect::<Vec<_>>(), ["10.0.0.0/8"]);
    assert_eq!(
        update.announced::<V4>().count() + update.withdrawn::<V4>().count(),
        0,
        "read as what they are not"
    );
    assert_eq!(texts(update.announced::<V6>()), ["2001:db8::/32"]);
    assert_eq!(update.announced_nlri::<PathPrefix<V6>>().count(), 0);
    // Withdrawn by RFC 7606, routes keep their identifiers.
    let unusable = body(&[0, 0, 0, 7, 8, 11], &[as_path(), next_hop()], &[0, 0, 0, 9, 8, 10]);
    let update = parse(&unusable, &ctx).unwrap();
    assert_eq!((paths(update.withdrawn_nlri()), paths(update.announced_nlri())), (vec![7, 9], vec![]));
}

#[test]
fn path_identifiers_that_were_not_negotiated_or_are_missing_reset() {
    let ctx = UpdateContext { path_ids: FamilySet::UNICAST, ..EXTERNAL };
    let plain = body(&[], &[origin(), as_path(), next_hop()], &[32, 10, 0, 0, 1]);
    assert!(parse(&plain, &EXTERNAL).is_ok());
    resets(&plain, &ctx, 10);
    resets(&body(&[0, 0, 0, 1], &[], &[]), &ctx, 10);
    resets(&body(&[0, 0, 0, 1, 24, 10, 0], &[], &[]), &ctx, 10);
    resets(&body(&[], &[origin(), as_path(), reach_v6()], &[]), &ctx, 9);
    let unreach = |nlri: &[u8]| body(&[], &[attr(0x80, 15, &[&[0, 2, 1], nlri].concat())], &[]);
    resets(&unreach(&[0, 0, 0, 1]), &ctx, 9);
    let update = unreach(&[0, 0, 0, 1, 16, 0x20, 1]);
    let withdrawn: Vec<PathPrefix<V6>> = parse(&update, &ctx).unwrap().withdrawn_nlri().collect();
    assert_eq!((withdrawn[0].prefix.to_string(), withdrawn[0].path_id), ("2001::/16".to_string(), 1));
    // End-of-RIB has no prefix (RFC 4724 section 2).
    assert_eq!(parse(&unreach(&[]), &ctx).unwrap().end_of_rib(), Some(AfiSafi::Ipv6Unicast));
}

#[test]
fn mp_reach_that_cannot_be_located_resets() {
    let wrong: [&[u8]; 6] = [
        &[0, 2, 1, 16],
        &[0, 2],
        &[0, 1, 1, 0],
        &[0, 2, 1, 4, 10, 0, 0, 1, 0],
        &[0, 1, 1, 5, 10, 0, 0, 1, 0, 0],
        &[0, 1, 133, 9, 0],
    ];
    for value in wrong {
        let mp = attr(0x80, 14, value);
        assert_eq!(resets(&body(&[], &[mp.clone(), origin(), as_path()], &[]), &EXTERNAL, 9), mp);
    }
    resets(&body(&[], &[attr(0x80, 15, &[0, 2])], &[]), &EXTERNAL, 9);
}

#[test]
fn flags_of_mp_attributes_reset() {
    let mut reach = reach_v6();
    reach[0] = 0xc0;
    resets(&body(&[], &[reach, origin(), as_path()], &[]), &EXTERNAL, 4);
    resets(&body(&[], &[attr(0x40, 15, &[0, 2, 1])], &[]), &EXTERNAL, 4);
}

#[test]
fn mp_attributes_twice_reset() {
    resets(&body(&[], &[reach_v6(), origin(), as_path(), reach_v6()], &[]), &EXTERNAL, 1);
    let unreach = attr(0x80, 15, &[0, 2, 1]);
    resets(&body(&[], &[unreach.clone(), unreach], &[]), &EXTERNAL, 1);
}

#[test]
fn another_attribute_twice_is_discarded() {
    let update_body = route_with(&[attr(0x80, 4, &[0, 0, 0, 1]), attr(0x80, 4, &[0, 0, 0, 2])]);
    discards(&update_body, &EXTERNAL, 4, FaultKind::Duplicate);
    let update = parse(&update_body, &EXTERNAL).unwrap();
    let meds: Vec<_> = update.attributes().filter(|a| a.code == 4).map(|a| a.value).collect();
    assert_eq!(meds, [[0, 0, 0, 1]], "the first stays");
    // Also when the second is malformed, and when the type is not known.
    discards(&route_with(&[attr(0x40, 1, &[9])]), &EXTERNAL, 1, FaultKind::Duplicate);
    discards(&route_with(&[attr(0xc0, 99, &[1]), attr(0xc0, 99, &[2])]), &EXTERNAL, 99, FaultKind::Duplicate);
}

#[test]
fn an_unknown_well_known_attribute_resets() {
    let unknown = attr(0x40, 99, &[1]);
    assert_eq!(resets(&route_with(std::slice::from_ref(&unknown)), &EXTERNAL, 2), unknown);
}

#[test]
fn unknown_optional_attributes_pass_if_transitive_and_are_marked_partial() {
    let body = route_with(&[attr(0xc0, 99, &[1]), attr(0x80, 97, &[1]), attr(0xff, 98, &[2; 300])]);
    let update = parse(&body, &EXTERNAL).unwrap();
    assert_eq!((update.disposition(), update.discarded()), (Disposition::Normal, &[][..]));
    let unknown: Vec<_> = update.attributes().skip(2).map(|a| (a.flags, a.code, a.value.len())).collect();
    assert_eq!(unknown, [(0xe0, 99, 1), (0xe0, 98, 300)]);
}

#[test]
fn wrong_flags_withdraw() {
    for (flags, code, value) in [
        (0xc0, 1, &[0][..]),
        (0x80, 2, &[]),
        (0x00, 3, &[10, 0, 0, 1]),
        (0xc0, 4, &[0; 4]),
        (0xc0, 5, &[0; 4]),
        (0x80, 8, &[0; 4]),
        (0xc0, 9, &[0; 4]),
        (0xc0, 10, &[0; 4]),
        (0x80, 16, &[0; 8]),
        (0x40, 32, &[0; 12]),
    ] {
        let mut attributes = vec![attr(flags, code, value)];
        attributes.extend([origin(), as_path(), next_hop()].into_iter().filter(|a| a[1] != code));
        withdraws(&body(&[], &attributes, &[8, 10]), &INTERNAL, code, FaultKind::Flags);
    }
}

#[test]
fn partial_bit_where_it_must_be_zero_is_no_fault_and_is_cleared() {
    // RFC 7606 section 3 (c) names the other two bits; RFC 4271 section 4.3.
    let body = body(
        &[],
        &[
            attr(0x6f, 1, &[0]),
            attr(0x60, 2, &[2, 1, 0, 0, 0xfd, 0xe9]),
            next_hop(),
            attr(0xa0, 4, &[0; 4]),
            attr(0x60, 6, &[]),
            attr(0xe0, 8, &[0; 4]),
        ],
        &[8, 10],
    );
    keeps(&body, &INTERNAL);
    let update = parse(&body, &INTERNAL).unwrap();
    let flags: Vec<_> = update.attributes().map(|a| (a.code, a.flags)).collect();
    assert_eq!(flags, [(1, 0x40), (2, 0x40), (4, 0x80), (6, 0x40), (8, 0xe0)]);
}

/// AIGP with a metric of 1.
const AIGP: [u8; 11] = [1, 0, 11, 0, 0, 0, 0, 0, 0, 0, 1];

#[test]
fn attributes_that_only_others_use_are_checked_by_their_rfcs() {
    use FaultKind::{Flags, Length, Value};
    for (flags, code, value) in [
        (0xc0, 22, &[0, 6, 0, 0, 0, 10, 0, 0, 1][..]),
        (0xc0, 22, &[0, 0, 0, 0, 0]),
        (0xc0, 22, &[0, 2, 0, 0, 0, 6, 0, 1, 4, 10, 0, 0, 1, 0, 2, 7, 7]),
        (0xc0, 22, &[0, 11, 0, 0, 0, 1, 2]),
        (0x80, 24, &[0; 36]),
        (0x80, 26, &AIGP),
        (0xc0, 27, &[10, 0, 0, 1, 0, 0, 16]),
        (0x80, 29, &[1, 2, 0, 1, 9]),
        (0xc0, 37, &[2, 0, 4, 255, 1, 0, 0]),
        (0xc0, 41, &[0, 1, 0, 3, 9, 9, 9, 0x12, 0x34, 0, 0]),
        (0xc0, 37, &[&[1, 0, 12][..], &[0; 12], &[9, 0, 0], &[2, 0, 5, 255, 1, 0, 1, 7]].concat()),
        (0xc0, 38, &[1, 0, 0, 0, 7, 1, 4, 10, 0, 0, 1]),
        (0xc0, 38, &[1, 0, 0, 0, 7, 9, 1, 1, 1, 4, 10, 0, 0, 1]),
        (0xc0, 40, &[1, 0, 7, 0, 0, 0, 0, 0, 0, 9]),
        (0xc0, 40, &[3, 0, 8, 0, 0, 0, 1, 2, 3, 4, 5]),
        (0xc0, 40, &[5, 0, 1, 0]),
        (0xc0, 40, &[&[5, 0, 25, 0, 1, 0, 21][..], &[0; 21]].concat()),
        (0xc0, 40, &[9, 0, 0]),
    ] {
        keeps(&route_with(&[attr(flags, code, value)]), &SR_DOMAIN);
        // Those that are transitive go on as what they are here: unrecognized. AIGP is ours (RFC 7311).
        let body = route_with(&[attr(flags, code, value)]);
        let update = parse(&body, &SR_DOMAIN).unwrap();
        let on = update.attributes().find(|a| a.code == code).map(|a| a.flags);
        let expected = if code == 26 { Some(0x80) } else { (flags == 0xc0).then_some(0xe0) };
        assert_eq!(on, expected, "{code}");
    }
    // RFC 7311 section 3.3: of a session without AIGP it is not kept, internal or not.
    for ctx in [EXTERNAL, INTERNAL] {
        discards(&route_with(&[attr(0x80, 26, &AIGP)]), &ctx, 26, FaultKind::External);
    }
    // OTC is ours too (RFC 9234), and goes on unchanged.
    let body = route_with(&[attr(0xc0, 35, &[0, 0, 0xfd, 0xe9])]);
    let otc = parse(&body, &EXTERNAL).unwrap().attributes().find(|a| a.code == 35).map(|a| a.flags);
    assert_eq!(otc, Some(0xc0));
    for (flags, code, value, kind) in [
        (0xc0, 22, &[0, 6, 0, 0][..], Length),
        (0xc0, 22, &[0, 6, 0, 0, 0, 10, 0, 0], Length),
        (0x80, 22, &[0, 0, 0, 0, 0], Flags),
        // RFC 6514 section 5: "an undefined tunnel type".
        (0xc0, 22, &[0, 50, 0, 0, 0], Length),
        (0xc0, 22, &[0, 127, 0, 0, 0], Length),
        // "No tunnel information" with some, and mLDP of the wrong FEC type or with a cut opaque value.
        (0xc0, 22, &[0, 0, 0, 0, 0, 1], Length),
        (0xc0, 22, &[0, 2, 0, 0, 0, 7, 0, 1, 4, 10, 0, 0, 1, 0, 0], Length),
        (0xc0, 22, &[0, 7, 0, 0, 0, 7, 0, 1, 4, 10, 0, 0, 1, 0, 1], Length),
        (0xc0, 24, &[], Flags),
        (0x80, 24, &[], Length),
        (0x80, 24, &[0; 35], Length),
        // Both bits: RFC 7311 section 3.2 discards for the transitive one, RFC 7606 section 3 (c) withdraws for the other.
        (0x40, 26, &AIGP, Flags),
        (0xc0, 27, &[10, 0, 0, 1, 0, 0], Length),
        // RFC 6514 section 8: "does not contain a unicast address".
        (0xc0, 27, &[224, 0, 0, 1, 0, 0, 16], Length),
        (0x80, 33, &[0, 2], Length),
        (0xc0, 35, &[0, 0, 1], Length),
        (0x80, 35, &[0, 0, 0, 1], Flags),
        (0x40, 35, &[0, 0, 0, 1], Flags),
        // RFC 9015 section 3.2.1, errors 2, 6, 7 (with and without a service index), 4, and an Association TLV too short.
        (0x80, 37, &[2, 0, 4, 255, 1, 0, 0], Flags),
        (0xc0, 37, &[9, 0, 0], Length),
        (0xc0, 37, &[2, 0, 1, 255], Length),
        (0xc0, 37, &[2, 0, 0], Length),
        (0xc0, 37, &[2, 0, 9, 255, 1, 0, 0], Length),
        (0xc0, 37, &[1, 0, 1, 0, 2, 0, 4, 255, 1, 0, 0], Length),
        (0xc0, 37, &[], Length),
        (0x80, 38, &[1, 0, 0, 0, 7, 1, 4, 10, 0, 0, 1], Flags),
        (0x80, 40, &[1, 0, 7, 0, 0, 0, 0, 0, 0, 9], Flags),
        // RFC 9252 section 7, also behind what RFC 8669 discards: an SRv6 Service TLV without its first byte, longer
        // than the attribute, with a sub-TLV too long, a SID of 20 bytes, and a sub-sub-TLV too long.
        (0xc0, 40, &[5, 0, 0], Length),
        (0xc0, 40, &[6, 0, 2, 0], Length),
        (0xc0, 40, &[1, 0, 1, 0, 5, 0, 4, 0, 9, 0, 1], Length),
        (0xc0, 40, &[&[5, 0, 24, 0, 1, 0, 20][..], &[0; 20]].concat(), Length),
        (0xc0, 40, &[&[5, 0, 28, 0, 1, 0, 24][..], &[0; 21], &[1, 0, 1]].concat(), Length),
    ] {
        withdraws(&route_with(&[attr(flags, code, value)]), &SR_DOMAIN, code, kind);
    }
    for (flags, code, value, kind) in [
        (0x80, 26, &[1, 0, 10, 0, 0, 0, 0, 0, 0, 1][..], Length),
        (0x80, 26, &[], Length),
        // RFC 7311 section 3.2: "the maximum value".
        (0x80, 26, &[9, 0, 3, 1, 0, 11, 255, 255, 255, 255, 255, 255, 255, 255], Value),
        (0xc0, 26, &AIGP, Flags),
        (0x80, 29, &[1, 2, 0, 9, 9], Length),
        (0x80, 29, &[], Length),
        (0xc0, 38, &[1, 0, 0, 0], Length),
        // RFC 9026 section 3.1.6: "smaller than 11", and "does not include the Source IP Address TLV".
        (0xc0, 38, &[1, 0, 0, 0, 7], Length),
        (0xc0, 38, &[1, 0, 0, 0, 7, 9, 4, 10, 0, 0, 1], Length),
        (0xc0, 38, &[1, 0, 0, 0, 7, 1, 5, 10, 0, 0, 1, 2], Length),
        (0xc0, 40, &[1, 0, 6, 0, 0, 0, 0, 0, 0], Length),
        (0xc0, 40, &[1, 0, 8, 0], Length),
        (0xc0, 40, &[3, 0, 2, 0, 0], Length),
    ] {
        discards(&route_with(&[attr(flags, code, value)]), &SR_DOMAIN, code, kind);
    }
}

#[test]
fn bgpsec_path_has_a_signature_for_each_hop() {
    let segment = [1, 0, 0, 0, 0xfd, 0xe9];
    let signature = [&[7; 20][..], &[0, 2, 9, 9]].concat();
    let block = [&[0, 3 + 24, 1][..], &signature].concat();
    let right = [&[0, 8][..], &segment, &block].concat();
    keeps(&route_with(&[attr(0x80, 33, &right)]), &EXTERNAL);
    keeps(&route_with(&[attr(0x80, 33, &[&right[..], &block].concat())]), &EXTERNAL);
    for wrong in [&right[..8], &right[..right.len() - 1], &[&right[..], &block, &block].concat()] {
        withdraws(&route_with(&[attr(0x80, 33, wrong)]), &EXTERNAL, 33, FaultKind::Length);
    }
}

#[test]
fn unwanted_attributes_are_left_out_or_take_their_routes_along() {
    let mut filter = AttributeFilter::default();
    filter.discard.insert(code::COMMUNITIES);
    filter.withdraw.insert(code::OTC);
    let otc = attr(0xc0, 35, &[0, 0, 0, 1]);
    // Malformed or not.
    for communities in [attr(0xc0, 8, &[0; 4]), attr(0xc0, 8, &[0; 3])] {
        let body = route_with(&[communities]);
        let update = parse_filtered(&body, &EXTERNAL, Some(&filter)).unwrap();
        assert_eq!((update.disposition(), codes(&update)), (Disposition::Normal, vec![1, 2]));
        assert_eq!(update.discarded()[0].fault, Fault { code: 8, kind: FaultKind::Unwanted });
    }
    let body = route_with(std::slice::from_ref(&otc));
    let update = parse_filtered(&body, &EXTERNAL, Some(&filter)).unwrap();
    let reason = Fault { code: 35, kind: FaultKind::Unwanted };
    assert_eq!(update.disposition(), Disposition::TreatAsWithdraw { reason });
    keeps(&body, &EXTERNAL);
    // Without routes there is nothing to withdraw, and no reason for a reset.
    let body = super::tests::body(&[8, 11], &[otc], &[]);
    assert_eq!(parse_filtered(&body, &EXTERNAL, Some(&filter)).unwrap().withdrawn::<V4>().count(), 1);
}

#[test]
fn wrong_flags_of_aggregates_withdraw() {
    // RFC 7606 section 3 (c); 3 (f), 7.6 and 7.7 discard for a wrong length.
    withdraws(&route_with(&[attr(0xc0, 6, &[])]), &EXTERNAL, 6, FaultKind::Flags);
    withdraws(&route_with(&[attr(0x80, 7, &[0, 0, 0, 1, 1, 1, 1, 1])]), &EXTERNAL, 7, FaultKind::Flags);
}

#[test]
fn empty_values_are_malformed_but_of_as_path_and_atomic_aggregate() {
    // RFC 7606 section 4.
    for code in (1..=255).filter(|code| !matches!(*code, 2 | 3 | 6 | 14 | 15)) {
        let Some(flags) = Some(rule(code)).filter(|rule| rule.checked).map(|rule| rule.flags) else {
            keeps(&route_with(&[attr(0xc0, code, &[])]), &INTERNAL);
            continue;
        };
        let more = Some(attr(flags, code, &[])).filter(|_| code != code::ORIGIN);
        let origin = if code == code::ORIGIN { attr(0x40, 1, &[]) } else { origin() };
        let body = body(&[], &[vec![origin, as_path(), next_hop()], Vec::from_iter(more)].concat(), &[8, 10]);
        let update = parse(&body, &INTERNAL).unwrap();
        let discarded = update.discarded().iter().any(|discarded| discarded.fault.code == code);
        assert!(discarded || update.disposition() != Disposition::Normal, "{code}");
    }
}

#[test]
fn attr_set_holds_what_an_internal_route_may_have() {
    // RFC 6368 section 5; RFC 7606 section 7.16.
    let set =
        |attributes: &[Vec<u8>]| attr(0xc0, 128, &[&[0, 0, 0xfd, 0xe9][..], &attributes.concat()].concat());
    let inside =
        [origin(), as_path(), attr(0x40, 5, &[0; 4]), attr(0x80, 9, &[1; 4]), attr(0xc0, 8, &[0; 4])];
    keeps(&route_with(&[set(&[])]), &EXTERNAL);
    keeps(&route_with(&[set(&inside)]), &EXTERNAL);
    keeps(&route_with(&[set(&[set(&inside)])]), &EXTERNAL);
    // "SHOULD be ignored", and an unknown one.
    keeps(&route_with(&[set(&[attr(0x40, 3, &[1]), attr(0xc0, 99, &[])])]), &EXTERNAL);
    for wrong in [
        reach_v6(),
        attr(0x80, 15, &[0, 2, 1]),
        attr(0x40, 1, &[3]),
        attr(0xc0, 1, &[0]),
        attr(0x40, 2, &[2, 1, 0, 1]),
        attr(0xc0, 7, &[0, 1, 1, 1, 1, 1]),
        attr(0x40, 99, &[]),
        set(&[attr(0xc0, 8, &[0; 3])]),
        vec![0x40, 1],
    ] {
        withdraws(&route_with(&[set(&[origin(), wrong])]), &EXTERNAL, 128, FaultKind::Value);
    }
    withdraws(&route_with(&[attr(0xc0, 128, &[0; 3])]), &EXTERNAL, 128, FaultKind::Length);
    let nested = |depth| (1..depth).fold(set(&[]), |inner, _| set(&[inner]));
    keeps(&route_with(&[nested(8)]), &EXTERNAL);
    withdraws(&route_with(&[nested(9)]), &EXTERNAL, 128, FaultKind::Value);
}

#[test]
fn origin_rules() {
    for (value, kind) in
        [(&[3][..], FaultKind::Value), (&[], FaultKind::Length), (&[0, 0], FaultKind::Length)]
    {
        let body = body(&[], &[attr(0x40, 1, value), as_path(), next_hop()], &[8, 10]);
        withdraws(&body, &EXTERNAL, 1, kind);
    }
}

#[test]
fn as_path_rules() {
    let with = |value: &[u8]| body(&[], &[origin(), attr(0x40, 2, value), next_hop()], &[8, 10]);
    for wrong in [
        &[5, 1, 0, 0, 0, 1][..],
        &[2, 2, 0, 0, 0, 1],
        &[2, 1, 0, 0, 0, 1, 2],
        &[2, 0],
        &[2, 1, 0, 0, 0, 0],
        &[3, 1, 0, 0, 0, 1],
    ] {
        withdraws(&with(wrong), &EXTERNAL, 2, FaultKind::Value);
    }
    keeps(&with(&[]), &INTERNAL);
    // RFC 5065 section 5: only inside of a confederation.
    withdraws(&with(&[3, 1, 0, 0, 0, 1]), &INTERNAL, 2, FaultKind::Value);
    keeps(&with(&[3, 1, 0, 0, 0, 1]), &UpdateContext { confederation: true, ..INTERNAL });
    // The same bytes are a path for one kind of session and none for the other.
    withdraws(&with(&[2, 1, 0, 1]), &EXTERNAL, 2, FaultKind::Value);
    keeps(&with(&[2, 1, 0, 1]), &OLD);
}

#[test]
fn next_hop_rules() {
    let with = |value: &[u8]| body(&[], &[origin(), as_path(), attr(0x40, 3, value)], &[8, 10]);
    for wrong in [&[][..], &[10, 0, 0], &[0; 16]] {
        withdraws(&with(wrong), &EXTERNAL, 3, FaultKind::Length);
    }
    // RFC 4271 section 6.3: "a valid IP host address".
    for wrong in [[0, 0, 0, 0], [0, 1, 2, 3], [224, 0, 0, 5], [240, 0, 0, 1], [255, 255, 255, 255]] {
        withdraws(&with(&wrong), &EXTERNAL, 3, FaultKind::Value);
    }
    // Beside MP_REACH_NLRI alone its value means nothing.
    keeps(&body(&[], &[reach_v6(), origin(), as_path(), attr(0x40, 3, &[0; 4])], &[]), &EXTERNAL);
    let mut unspecified = reach_v6();
    unspecified[7..23].fill(0);
    withdraws(&body(&[], &[unspecified, origin(), as_path()], &[]), &EXTERNAL, 14, FaultKind::Value);
}

#[test]
fn numbers_and_lists_of_wrong_length_withdraw() {
    for (flags, code, wrong) in [
        (0x80, 4, &[0, 3, 5, 8][..]),
        (0x40, 5, &[0, 3, 5]),
        (0xc0, 8, &[0, 3, 6]),
        (0x80, 9, &[0, 3, 5, 8]),
        (0x80, 10, &[0, 3, 6]),
        (0xc0, 16, &[0, 4, 12]),
        (0xc0, 25, &[0, 8, 30]),
        (0xc0, 32, &[0, 4, 8, 16]),
        (0xc0, 128, &[0, 3]),
    ] {
        for len in wrong {
            let body = route_with(&[attr(flags, code, &vec![0; *len])]);
            withdraws(&body, &INTERNAL, code, FaultKind::Length);
        }
    }
    let inner = [&[0, 0, 0xfd, 0xe9][..], &origin()].concat();
    for (flags, code, right) in [
        (0x80, 4, vec![0; 4]),
        (0x40, 5, vec![0; 4]),
        (0xc0, 8, vec![0; 8]),
        (0x80, 9, vec![0; 4]),
        (0x80, 10, vec![0; 8]),
        (0xc0, 16, vec![0; 16]),
        (0xc0, 25, vec![0; 20]),
        (0xc0, 32, vec![0; 24]),
        (0xc0, 128, inner),
    ] {
        keeps(&route_with(&[attr(flags, code, &right)]), &INTERNAL);
    }
}

#[test]
fn internal_attributes_from_external_peers_are_discarded_however_malformed() {
    for (flags, code) in [(0x40, 5), (0x80, 9), (0x80, 10), (0xc0, 23)] {
        for len in [4, 3] {
            let body = route_with(&[attr(flags, code, &vec![0; len])]);
            discards(&body, &EXTERNAL, code, FaultKind::External);
            assert_eq!(codes(&parse(&body, &EXTERNAL).unwrap()), [1, 2]);
        }
    }
}

#[test]
fn prefix_sid_from_outside_the_sr_domain_is_discarded_however_malformed() {
    let label_index = [1, 0, 7, 0, 0, 0, 0, 0, 0, 9];
    let malformed_service = [5, 0, 0];
    for value in [&label_index[..], &label_index[..9], &malformed_service, &[]] {
        let body = route_with(&[attr(0xc0, 40, value), attr(0xc0, 99, &[1])]);
        discards(&body, &EXTERNAL, 40, FaultKind::External);
        let update = parse(&body, &EXTERNAL).unwrap();
        assert_eq!(codes(&update), [1, 2, 99]);
        let fault = update.discarded()[0].fault.to_string();
        assert_eq!(fault, "PREFIX_SID came from an external peer without prefix-sid = true");
    }
    let body = route_with(&[attr(0xc0, 40, &label_index)]);
    for accepted in [SR_DOMAIN, INTERNAL, UpdateContext { prefix_sid: true, ..INTERNAL }] {
        keeps(&body, &accepted);
        assert_eq!(codes(&parse(&body, &accepted).unwrap()), [1, 2, 40]);
    }
    // The others of an external peer inside the domain stay out of scope.
    for (flags, code) in [(0x40, 5), (0xc0, 23)] {
        discards(&route_with(&[attr(flags, code, &[0; 4])]), &SR_DOMAIN, code, FaultKind::External);
    }
    // A filter comes first: `treat-as-withdraw` is obeyed for what would be discarded.
    let mut filter = AttributeFilter::default();
    filter.withdraw.insert(40);
    let update = parse_filtered(&body, &EXTERNAL, Some(&filter)).unwrap();
    assert_eq!(update.withdrawn::<V4>().count(), 1);
}

#[test]
fn tunnels_of_internal_peers_are_checked() {
    for right in [&[0, 8, 0, 6, 6, 4, 10, 0, 0, 1][..], &[0, 8, 0, 4, 128, 0, 1, 7]] {
        keeps(&route_with(&[attr(0xc0, 23, right)]), &INTERNAL);
    }
    // A sub-TLV beyond its TLV, and a TLV beyond the attribute; RFC 9012 section 13: "does not have any valid TLVs".
    for wrong in [&[0, 8, 0, 6, 6, 5, 10, 0, 0, 1][..], &[0, 8, 0, 7, 6, 4, 10, 0, 0, 1], &[]] {
        withdraws(&route_with(&[attr(0xc0, 23, wrong)]), &INTERNAL, 23, FaultKind::Length);
    }
    // Or "it does not have the transitive bit set".
    withdraws(&route_with(&[attr(0x80, 23, &[0, 8, 0, 0])]), &INTERNAL, 23, FaultKind::Flags);
}

#[test]
fn aggregator_rules() {
    let right = [0, 0, 0xfd, 0xe9, 1, 1, 1, 1];
    keeps(&route_with(&[attr(0xc0, 7, &right)]), &EXTERNAL);
    discards(&route_with(&[attr(0xc0, 7, &right[..6])]), &EXTERNAL, 7, FaultKind::Length);
    discards(&route_with(&[attr(0xc0, 7, &[0, 0, 0, 0, 1, 1, 1, 1])]), &EXTERNAL, 7, FaultKind::Value);
    discards(&route_with(&[attr(0x40, 6, &[0])]), &EXTERNAL, 6, FaultKind::Length);
    keeps(&route_with(&[attr(0x40, 6, &[])]), &EXTERNAL);
    discards(&old_route(&[], &[attr(0xc0, 7, &right)]), &OLD, 7, FaultKind::Length);
}

#[test]
fn missing_mandatory_attributes_withdraw() {
    for missing in [1, 2, 3] {
        let attributes: Vec<_> =
            [origin(), as_path(), next_hop()].into_iter().filter(|a| a[1] != missing).collect();
        withdraws(&body(&[], &attributes, &[8, 10]), &EXTERNAL, missing, FaultKind::Missing);
    }
    withdraws(&body(&[], &[], &[8, 10]), &EXTERNAL, 1, FaultKind::Missing);
    withdraws(&body(&[], &[reach_v6(), origin()], &[]), &EXTERNAL, 2, FaultKind::Missing);
    keeps(&body(&[], &[reach_v6(), origin(), as_path()], &[]), &EXTERNAL);
}

#[test]
fn d_path_withdraws_unicast_routes_and_resets_no_session() {
    // RFC 10039 section 4: a segment of two domains, one of one.
    let right =
        [&[2][..], &[0, 0, 0xfd, 0xe8, 0, 1, 70], &[0, 0, 0xfd, 0xe9, 0, 1, 128], &[1], &[0; 7]].concat();
    withdraws(&route_with(&[attr(0xc0, 36, &right)]), &EXTERNAL, 36, FaultKind::Family);
    keeps(&body(&[8, 10], &[attr(0xc0, 36, &right)], &[]), &EXTERNAL);
    for wrong in [&right[..0], &right[..1], &right[..14], &right[..22], &[0], &[1, 0, 0, 0, 0, 0, 0, 0, 0]] {
        withdraws(&route_with(&[attr(0xc0, 36, wrong)]), &EXTERNAL, 36, FaultKind::Length);
    }
    let mut filter = AttributeFilter::default();
    filter.discard.insert(36);
    let body = route_with(&[attr(0xc0, 36, &right)]);
    let update = parse_filtered(&body, &EXTERNAL, Some(&filter)).unwrap();
    assert_eq!((update.disposition(), codes(&update)), (Disposition::Normal, vec![1, 2]));
}

#[test]
fn attributes_that_overrun_withdraw_what_can_be_located() {
    for tail in [&[0xc0u8, 8, 5, 0][..], &[0xd0, 8, 0], &[0xc0], &[0xd0, 8, 1, 0, 0]] {
        let body = route_with(&[tail.to_vec()]);
        let update = parse(&body, &EXTERNAL).unwrap();
        let Disposition::TreatAsWithdraw { reason } = update.disposition() else { panic!("{update:?}") };
        assert_eq!(reason.kind, FaultKind::Overrun);
        assert_eq!(texts(update.withdrawn::<V4>()), ["10.0.0.0/8"]);
    }
    let body = body(&[], &[reach_v6(), origin(), vec![0x40, 2, 9]], &[]);
    assert_eq!(texts(parse(&body, &EXTERNAL).unwrap().withdrawn::<V6>()), ["2001:db8::/32"]);
}

#[test]
fn a_serious_fault_without_routes_resets() {
    // RFC 7606 section 5.2: the prefixes may be hidden in the malformed part.
    let malformed = attr(0xc0, 8, &[0; 3]);
    assert_eq!(resets(&body(&[], std::slice::from_ref(&malformed), &[]), &EXTERNAL, 5), malformed);
    resets(&body(&[8, 10], &[attr(0x40, 1, &[7])], &[]), &EXTERNAL, 6);
    resets(&body(&[], &[vec![0x40, 2, 9]], &[]), &EXTERNAL, 1);
    resets(&body(&[], &[attr(0x40, 2, &[9, 9])], &[]), &EXTERNAL, 11);
    resets(&body(&[], &[attr(0x40, 3, &[9, 9])], &[]), &EXTERNAL, 5);
    // A fault that only discards does not.
    keeps(&body(&[8, 10], &[origin()], &[]), &EXTERNAL);
    assert!(parse(&body(&[8, 10], &[attr(0x40, 6, &[1])], &[]), &EXTERNAL).is_ok());
}

#[test]
fn the_strongest_outcome_wins() {
    let med = attr(0x80, 4, &[0]);
    withdraws(&route_with(&[attr(0x40, 6, &[1]), med.clone()]), &EXTERNAL, 4, FaultKind::Length);
    resets(&route_with(&[med, attr(0x80, 15, &[0, 2])]), &EXTERNAL, 9);
}

#[test]
fn treat_as_withdraw_takes_all_families() {
    let body = body(
        &[8, 11],
        &[reach_v6(), attr(0x80, 15, &[0, 2, 1, 16, 0x20, 2]), attr(0x40, 1, &[9]), as_path(), next_hop()],
        &[8, 10],
    );
    let update = parse(&body, &EXTERNAL).unwrap();
    assert_eq!(texts(update.withdrawn::<V4>()), ["11.0.0.0/8", "10.0.0.0/8"]);
    assert_eq!(texts(update.withdrawn::<V6>()), ["2002::/16", "2001:db8::/32"]);
    assert_eq!(update.announced::<V4>().count() + update.announced::<V6>().count(), 0);
}

#[test]
fn ipv4_in_mp_reach() {
    let mp = |next_hop: [u8; 4]| attr(0x80, 14, &[&[0, 1, 1, 4], &next_hop[..], &[0, 8, 20]].concat());
    let alone = body(&[], &[mp([10, 0, 0, 9]), origin(), as_path()], &[]);
    let update = parse(&alone, &EXTERNAL).unwrap();
    assert_eq!(texts(update.announced::<V4>()), ["20.0.0.0/8"]);
    assert_eq!(update.next_hop::<V4>(), Some(NextHop::V4([10, 0, 0, 9].into())));
    // In both fields at once: fine as long as there is one next hop to give.
    let both = body(&[], &[mp([10, 0, 0, 1]), origin(), as_path(), next_hop()], &[8, 10]);
    assert_eq!(texts(parse(&both, &EXTERNAL).unwrap().announced::<V4>()), ["10.0.0.0/8", "20.0.0.0/8"]);
    let conflict = body(&[], &[mp([10, 0, 0, 9]), origin(), as_path(), next_hop()], &[8, 10]);
    withdraws(&conflict, &EXTERNAL, 14, FaultKind::Conflict);
}

#[test]
fn other_families_are_passed_over() {
    let flow = attr(0x80, 14, &[0, 1, 133, 0, 0, 1, 2, 3]);
    let update_body = body(&[8, 10], &[flow, origin(), as_path()], &[]);
    let update = parse(&update_body, &EXTERNAL).unwrap();
    assert_eq!(update.announced::<V4>().count(), 0);
    assert_eq!(update.withdrawn::<V4>().count(), 1);
    assert_eq!(update.next_hop::<V4>(), None);
    let end = body(&[], &[attr(0x80, 15, &[0, 1, 128])], &[]);
    assert_eq!(parse(&end, &EXTERNAL).unwrap().end_of_rib(), None);
}

#[test]
fn end_of_rib_has_no_other_content() {
    let end = |body: &[u8]| parse(body, &EXTERNAL).unwrap().end_of_rib();
    assert_eq!(end(&[0, 0, 0, 0]), Some(AfiSafi::Ipv4Unicast));
    assert_eq!(end(&body(&[], &[attr(0x80, 15, &[0, 2, 1])], &[])), Some(AfiSafi::Ipv6Unicast));
    assert_eq!(end(&body(&[], &[attr(0x80, 15, &[0, 1, 1])], &[])), Some(AfiSafi::Ipv4Unicast));
    assert_eq!(end(&body(&[], &[attr(0x80, 15, &[0, 2, 1, 0])], &[])), None);
    assert_eq!(end(&body(&[8, 10], &[attr(0x80, 15, &[0, 2, 1])], &[])), None);
    assert_eq!(end(&body(&[], &[attr(0x80, 15, &[0, 2, 1]), origin()], &[])), None);
    assert_eq!(end(&body(&[], &[origin()], &[])), None);
    assert_eq!(end(&body(&[8, 10], &[], &[])), None);
}

#[test]
fn faults_are_sentences() {
    for (code, kind, expected) in [
        (1, FaultKind::Missing, "ORIGIN is missing"),
        (8, FaultKind::Length, "COMMUNITIES has a wrong length"),
        (5, FaultKind::External, "LOCAL_PREF came from an external peer"),
        (99, FaultKind::Duplicate, "attribute 99 appears more than once"),
    ] {
        assert_eq!(Fault { code, kind }.to_string(), expected);
    }
}

/// A route of a two-octet peer: AS_PATH with this value, and `more`.
fn old_route(path: &[u8], more: &[Vec<u8>]) -> Vec<u8> {
    body(&[], &[&[origin(), attr(0x40, 2, path), next_hop()], more].concat(), &[8, 10])
}

/// The AS_PATH as text and the AGGREGATOR that an old peer's route comes to have.
fn merged(body: &[u8]) -> (String, Option<Aggregator>) {
    let update = parse(body, &OLD).unwrap();
    assert_eq!(update.disposition(), Disposition::Normal);
    let mut path = String::new();
    let mut aggregator = None;
    for attribute in update.attributes() {
        match attribute.code {
            code::AS_PATH => path = AsPath::new(attribute.value).to_string(),
            code::AGGREGATOR => aggregator = Some(Aggregator::from_value(attribute.value).unwrap()),
            code::AS4_PATH | code::AS4_AGGREGATOR => panic!("left in"),
            _ => {}
        }
    }
    (path, aggregator)
}

/// AS4_PATH as an attribute.
fn as4(kind: u8, asns: &[u32]) -> Vec<u8> {
    let mut value = vec![kind, asns.len() as u8];
    asns.iter().for_each(|a| value.extend_from_slice(&a.to_be_bytes()));
    attr(0xc0, 17, &value)
}

#[test]
fn old_peers_paths_are_merged() {
    // 65001 23456 3, of which the last two ASes wrote AS4_PATH 70000 3.
    let path = [2, 3, 0xfd, 0xe9, 0x5b, 0xa0, 0, 3];
    assert_eq!(merged(&old_route(&path, &[])).0, "65001 23456 3");
    assert_eq!(merged(&old_route(&path, &[as4(2, &[70000, 3])])).0, "65001 70000 3");
    assert_eq!(merged(&old_route(&path, &[as4(2, &[65001, 70000, 3])])).0, "65001 70000 3");
    // Longer than AS_PATH: not to be believed.
    assert_eq!(merged(&old_route(&path, &[as4(2, &[1, 2, 70000, 3])])).0, "65001 23456 3");
    // A set counts one.
    let set = [2, 1, 0xfd, 0xe9, 1, 2, 0x5b, 0xa0, 0, 3];
    assert_eq!(merged(&old_route(&set, &[as4(1, &[70000, 3])])).0, "65001 {70000,3}");
    // The leading confederation segments of a peer inside stay.
    let internal = UpdateContext { external: false, confederation: true, ..OLD };
    let confed = old_route(&[3, 1, 0xfc, 0, 2, 1, 0x5b, 0xa0], &[as4(2, &[70000])]);
    let update = parse(&confed, &internal).unwrap();
    let path = update.attributes().find(|a| a.code == 2).unwrap();
    assert_eq!(AsPath::new(path.value).to_string(), "(64512) 70000");
}

#[test]
fn old_peers_malformed_paths_are_discarded() {
    let path = [2, 1, 0x5b, 0xa0];
    for wrong in [&[][..], &[2, 2, 0, 1, 0x11, 0x70], &[2, 0], &[9, 1, 0, 0, 0, 1], &[2, 1, 0, 0, 0, 0]] {
        let body = old_route(&path, &[attr(0xc0, 17, wrong)]);
        discards(&body, &OLD, 17, FaultKind::Value);
        assert_eq!(merged(&body).0, "23456");
    }
    discards(&old_route(&path, &[attr(0xc0, 18, &[0; 6])]), &OLD, 18, FaultKind::Length);
    discards(&route_with(&[as4(2, &[70000])]), &EXTERNAL, 17, FaultKind::FourOctet);
    discards(&route_with(&[attr(0xc0, 18, &[1; 8])]), &EXTERNAL, 18, FaultKind::FourOctet);
}

#[test]
fn old_peers_aggregators_are_merged() {
    let path = [2, 2, 0xfd, 0xe9, 0x5b, 0xa0];
    let as4_aggregator = attr(0xc0, 18, &[0, 1, 0x11, 0x70, 2, 2, 2, 2]);
    let trans = attr(0xc0, 7, &[0x5b, 0xa0, 1, 1, 1, 1]);
    let plain = attr(0xc0, 7, &[0xfd, 0xe9, 1, 1, 1, 1]);
    let of = |more: &[Vec<u8>]| {
        let (path, aggregator) = merged(&old_route(&path, more));
        (path, aggregator.map(|a| a.to_string()).unwrap_or_default())
    };
    assert_eq!(of(std::slice::from_ref(&plain)).1, "65001 1.1.1.1");
    assert_eq!(of(std::slice::from_ref(&trans)).1, "23456 1.1.1.1");
    assert_eq!(
        of(&[trans, as4(2, &[70000]), as4_aggregator.clone()]),
        ("65001 70000".into(), "70000 2.2.2.2".into())
    );
    // Aggregated on the way by a router that knows nothing of AS4 attributes: both are stale.
    assert_eq!(
        of(&[plain, as4(2, &[70000]), as4_aggregator.clone()]),
        ("65001 23456".into(), "65001 1.1.1.1".into())
    );
    assert_eq!(of(&[as4_aggregator]).1, "", "not without an AGGREGATOR");
}
