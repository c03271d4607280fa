//! Bytes as SONiC's own test has them, frames with several messages, and streams that are not FPM.

use super::*;
use crate::netlink::{Forward, Hop, Hops, Member, Members, RouteKind, Via};
use proptest::prelude::*;

/// One route as FRR sends it: 1.1.1.0/24 by 172.30.56.166 on interface 6, metric 20.
#[cfg(target_endian = "little")]
#[rustfmt::skip]
const ROUTE: [u8; 64] = [
    1, 1, 0, 0x40,
    60, 0, 0, 0, 24, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0,
    2, 24, 0, 0, 254, 2, 0, 1, 0, 0, 0, 0,
    8, 0, 1, 0, 1, 1, 1, 0,
    8, 0, 6, 0, 20, 0, 0, 0,
    8, 0, 5, 0, 172, 30, 56, 166,
    8, 0, 4, 0, 6, 0, 0, 0,
];

#[cfg(target_endian = "little")]
#[test]
fn the_golden_route_both_ways() {
    let via = Via { gateway: Some("172.30.56.166".parse().unwrap()), ifindex: 6, onlink: false };
    let hops = [Hop { via, weight: 1 }];
    let expect = Route {
        metric: Some(20),
        ..Route::new("1.1.1.0/24".parse().unwrap(), 254, 2, NextHops::Inline(Hops::from(&hops[..])))
    };
    let read = frame(&ROUTE).unwrap().unwrap();
    assert_eq!(read.len, 64);
    assert_eq!(read.messages().collect::<Vec<_>>(), [Ok(Content::NewRoute(expect))]);
    let mut out = Vec::new();
    write_route(&mut out, &expect).unwrap();
    assert_eq!(out, ROUTE);
}

#[cfg(target_endian = "little")]
#[test]
#[rustfmt::skip]
fn the_golden_group_and_offload_reply() {
    let mut out = Vec::new();
    let members = [Member { id: 3, weight: 1 }, Member { id: 4, weight: 2 }];
    let forward = Forward::Group(Members::from(&members[..]));
    write_next_hop(&mut out, &NextHop { id: 9, protocol: 186, forward }).unwrap();
    assert_eq!(out, [
        1, 1, 0, 56,
        52, 0, 0, 0, 104, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 186, 0, 0, 0, 0, 0,
        8, 0, 1, 0, 9, 0, 0, 0,
        20, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0,
    ]);
    out.clear();
    write_offload_reply(&mut out, "10.0.0.0/8".parse().unwrap(), 0, 186, true);
    assert_eq!(out, [
        1, 1, 0, 40,
        36, 0, 0, 0, 24, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0,
        2, 8, 0, 0, 0, 186, 0, 1, 0, 0x40, 0, 0,
        8, 0, 1, 0, 10, 0, 0, 0,
    ]);
    let reply = frame(&out).unwrap().unwrap().messages().next().unwrap().unwrap();
    assert!(matches!(reply, Content::NewRoute(r) if r.offloaded() && !r.offload_failed()));
}

#[test]
fn a_refusal_has_a_reason_unless_that_is_too_long() {
    let long = "x".repeat(256);
    for (why, read) in [("the table is full", Some("the table is full")), ("", Some("")), (&*long, None)] {
        let mut out = Vec::new();
        write_refusal(&mut out, "2001:db8::/32".parse().unwrap(), 7, 186, why);
        let whole = frame(&out).unwrap().unwrap();
        assert_eq!(whole.len, out.len());
        let Some(Ok(Content::NewRoute(reply))) = whole.messages().next() else { panic!("no route") };
        assert!(reply.offload_failed() && !reply.offloaded());
        assert_eq!((reply.prefix.to_string().as_str(), reply.table, reply.why), ("2001:db8::/32", 7, read));
    }
}

#[cfg(target_endian = "little")]
#[test]
#[rustfmt::skip]
fn the_golden_label_route_and_its_reply() {
    let mut out = Vec::new();
    let via = Via { gateway: Some("10.0.0.1".parse().unwrap()), ifindex: 7, onlink: false };
    let hops: [(Hop, &[u32]); 1] = [(Hop { via, weight: 1 }, &[201, 3001])];
    write_label_route(&mut out, &LabelRoute::new(200, 186, NextHops::Inline(Hops::from(&hops[..])))).unwrap();
    assert_eq!(out, [
        1, 1, 0, 72,
        68, 0, 0, 0, 24, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0,
        28, 20, 0, 0, 0, 186, 0, 1, 0, 0, 0, 0,
        8, 0, 1, 0, 0, 0x0c, 0x81, 0,
        12, 0, 19, 0, 0, 0x0c, 0x90, 0, 0, 0xbb, 0x91, 0,
        10, 0, 18, 0, 2, 0, 10, 0, 0, 1, 0, 0,
        8, 0, 4, 0, 7, 0, 0, 0,
    ]);
    out.clear();
    write_label_offload_reply(&mut out, 200, 0, 186);
    assert_eq!(out, [
        1, 1, 0, 40,
        36, 0, 0, 0, 24, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0,
        28, 20, 0, 0, 0, 186, 0, 1, 0, 0x40, 0, 0,
        8, 0, 1, 0, 0, 0x0c, 0x81, 0,
    ]);
    out.clear();
    write_delete_label(&mut out, 200, 186);
    let gone = frame(&out).unwrap().unwrap().messages().next().unwrap().unwrap();
    assert!(matches!(gone, Content::DelLabelRoute(r) if r.label == 200));
}

#[test]
fn a_delete_and_an_add_in_one_frame() {
    let prefix = "2001:db8::/32".parse().unwrap();
    let mut blackhole = Route::new(prefix, 0, 4, NextHops::None);
    blackhole.kind = RouteKind::Blackhole;
    let mut out = Vec::new();
    write_frame(&mut out, |out| {
        Route::new(prefix, 0, 4, NextHops::None).write_delete(out, 0, 0)?;
        blackhole.write_new(out, 0, 0)
    })
    .unwrap();
    write_delete(&mut out, prefix, 0, 4);
    write_delete_next_hop(&mut out, 77);
    let mut rest = &out[..];
    let mut all = Vec::new();
    while let Some(f) = frame(rest).unwrap() {
        all.extend(f.messages().map(|m| m.unwrap()));
        rest = &rest[f.len..];
    }
    assert!(rest.is_empty());
    assert!(
        matches!(&all[..], [Content::DelRoute(_), Content::NewRoute(new), Content::DelRoute(del), Content::DelNextHop(77)]
        if *new == blackhole && del.prefix == prefix)
    );
}

#[test]
fn what_is_not_fpm_and_what_is_not_complete() {
    assert_eq!(frame(&[1, 1, 0]), Ok(None));
    assert_eq!(frame(&[1, 1, 0, 8, 0]), Ok(None));
    assert_eq!(frame(&[1, 0, 0, 8]), Err(FpmError::Type));
    assert_eq!(frame(&[1, 1, 0, 0]), Err(FpmError::Length(0)));
    assert_eq!(frame(&[1, 1, 0, 7]), Err(FpmError::Length(7)));
    // The version is not looked at; a protobuf frame is skipped.
    assert_eq!(frame(&[9, 2, 0, 8, 1, 2, 3, 4]), Ok(Some(Frame { len: 8, body: &[] })));
    // Longer than SONiC's own takes, still legal.
    let long = [&[1, 1, 0xff, 0xfc][..], &[0; 65_528]].concat();
    assert_eq!(frame(&long).unwrap().unwrap().len, 65_532);
}

#[test]
fn a_frame_that_sonic_would_choke_on_is_not_written() {
    let via = Via { gateway: Some("2001:db8::1".parse().unwrap()), ifindex: 1, onlink: false };
    let mut out = vec![0xaa];
    for (hops, fits) in [(512, true), (700, false)] {
        let hops = vec![Hop { via, weight: 1 }; hops];
        let route = Route::new("::/0".parse().unwrap(), 0, 186, NextHops::Inline(Hops::from(&hops[..])));
        assert_eq!(write_route(&mut out, &route).is_ok(), fits);
    }
    assert_eq!(frame(&out[1..]).unwrap().unwrap().len, out.len() - 1);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Some(f)) = frame(&bytes) {
            f.messages().for_each(drop);
        }
    }
}
