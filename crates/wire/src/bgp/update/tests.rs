//! One test per rule of RFC 7606 and its relatives; what any bytes may do is in `../tests.rs`.

use super::*;
use crate::bgp::attribute::{Aggregator, AsPath};
use crate::bgp::build;

const EXTERNAL: UpdateContext = UpdateContext { four_octet_as: true, external: true };
const INTERNAL: UpdateContext = UpdateContext { four_octet_as: true, external: false };
const OLD: UpdateContext = UpdateContext { four_octet_as: false, external: true };

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

fn texts<F: Family>(prefixes: Prefixes<'_, F>) -> Vec<String> {
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
