//! What fpmsyncd and syncd remember of a route, at the worst filling of the tables.

use ribtide_prefix::{AnyPrefix, Bits, Family, Prefix, V4, V6};
use ribtide_swss::fpmsyncd::{FpmConfig, FpmOut, Fpmsyncd};
use ribtide_swss::sai::{
    Attr, ErrorMode, Item, ObjectId, ObjectType, Oid, PacketAction, RouteEntry, SWITCH, Sai, SaiCall,
    SaiRequest, Status, Verb, VidCounter,
};
use ribtide_swss::syncd::{Syncd, SyncdOut};
use ribtide_wire::netlink::{Content, Hop, Hops, NextHops, Route, Via};

/// One more route than fits before the hash table doubles: the most room per route.
const ROUTES: u64 = (7 << 17) / 8 + 1;

fn prefixes<F: Family>() -> impl Iterator<Item = AnyPrefix> {
    let bits = |n: u64| F::Bits::from_left(u128::from(n + (1 << 20)) << (128 - 24));
    (0..ROUTES).map(move |n| Prefix::<F>::new(bits(n), 24).any())
}

fn in_fpmsyncd<F: Family>() -> f64 {
    let mut machine = Fpmsyncd::new(FpmConfig::default());
    let mut out = FpmOut::default();
    machine.session_up();
    for (n, prefix) in prefixes::<F>().enumerate() {
        let gateway = [10, 0, 0, (n % 200) as u8].into();
        let hops = [Hop { via: Via { gateway: Some(gateway), ifindex: 7, onlink: false }, weight: 1 }];
        let route = Route::new(prefix, 0, 186, NextHops::Inline(Hops::from(&hops[..])));
        machine.message(&Content::NewRoute(route), &mut out);
    }
    machine.take(&mut out);
    assert_eq!((out.routes.len() as u64, machine.len() as u64), (ROUTES, ROUTES));
    machine.table_size() as f64 / ROUTES as f64
}

/// A chip that takes everything.
struct Yes;

impl Sai for Yes {
    fn bulk(&mut self, _: Verb, _: ObjectType, items: &mut [Item], _: ErrorMode, statuses: &mut Vec<Status>) {
        for item in items {
            if let ObjectId::Oid(oid) = &mut item.id {
                *oid = Oid(1 << 63 | 1);
            }
            statuses.push(Status::Success);
        }
    }

    fn get(&mut self, _: ObjectType, _: &ObjectId, _: &mut [Attr]) -> Result<(), Status> {
        Err(Status::NotImplemented)
    }
}

fn in_syncd<F: Family>() -> f64 {
    let mut syncd = Syncd::new(Yes, Box::new(VidCounter::default()));
    let mut out = SyncdOut::default();
    let mut create = |object, items| {
        let call = SaiCall::Bulk { verb: Verb::Create, object, items, mode: ErrorMode::IgnoreError };
        syncd.handle(SaiRequest { id: 1, call }, &mut out);
        assert_eq!(out.replies.pop().unwrap().status, Status::Success);
    };
    create(ObjectType::Switch, vec![Item::new(SWITCH, [Attr::SwitchInit(true)])]);
    let vr = Oid::vid(ObjectType::VirtualRouter, 1);
    create(ObjectType::VirtualRouter, vec![Item::bare(vr)]);
    let route = |dest| {
        let entry = RouteEntry { switch: SWITCH, vr, dest };
        Item::new(entry, [Attr::RoutePacketAction(PacketAction::Drop)])
    };
    create(ObjectType::RouteEntry, prefixes::<F>().map(route).collect());
    syncd.table_size() as f64 / ROUTES as f64
}

#[test]
fn a_route_is_small() {
    let fpmsyncd = [in_fpmsyncd::<V4>(), in_fpmsyncd::<V6>()];
    let syncd = [in_syncd::<V4>(), in_syncd::<V6>()];
    println!("at worst {fpmsyncd:.1?} bytes per IPv4 and IPv6 route in fpmsyncd, {syncd:.1?} in syncd");
    assert!(
        fpmsyncd[0] <= 39.0 && fpmsyncd[1] <= 67.0,
        "the documentation of Fpmsyncd is wrong: {fpmsyncd:?}"
    );
    assert!(syncd[0] <= 30.0 && syncd[1] <= 58.0, "the documentation of Syncd is wrong: {syncd:?}");
}
