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

/// syncd with a virtual router.
struct WithRouter(Syncd<Yes>, Oid);

impl WithRouter {
    fn new() -> WithRouter {
        let vr = Oid::vid(ObjectType::VirtualRouter, 1);
        let mut made = WithRouter(Syncd::new(Yes, Box::new(VidCounter::default())), vr);
        made.bulk(Verb::Create, ObjectType::Switch, vec![Item::new(SWITCH, [Attr::SwitchInit(true)])]);
        made.bulk(Verb::Create, ObjectType::VirtualRouter, vec![Item::bare(vr)]);
        made
    }

    fn bulk(&mut self, verb: Verb, object: ObjectType, items: Vec<Item>) {
        let mut out = SyncdOut::default();
        let call = SaiCall::Bulk { verb, object, items, mode: ErrorMode::IgnoreError };
        self.0.handle(SaiRequest { id: 1, call }, &mut out);
        assert_eq!(out.replies.pop().unwrap().status, Status::Success);
    }

    fn entry(&self, dest: AnyPrefix) -> RouteEntry {
        RouteEntry { switch: SWITCH, vr: self.1, dest }
    }

    fn create(&mut self, routes: impl Iterator<Item = AnyPrefix>) {
        let drops = |dest| Item::new(self.entry(dest), [Attr::RoutePacketAction(PacketAction::Drop)]);
        let items = routes.map(drops).collect();
        self.bulk(Verb::Create, ObjectType::RouteEntry, items);
    }

    fn remove(&mut self, routes: impl Iterator<Item = AnyPrefix>) {
        let items = routes.map(|dest| Item::bare(self.entry(dest))).collect();
        self.bulk(Verb::Remove, ObjectType::RouteEntry, items);
    }
}

fn in_syncd<F: Family>() -> f64 {
    let mut syncd = WithRouter::new();
    syncd.create(prefixes::<F>());
    syncd.0.table_size() as f64 / ROUTES as f64
}

fn syncd_fits<F: Family>() {
    let stay = ROUTES as usize * 2 / 5;
    let mut syncd = WithRouter::new();
    syncd.create(prefixes::<F>().take(stay));
    let before = syncd.0.table_size();
    syncd.create(prefixes::<F>().skip(stay));
    let full = syncd.0.table_size();
    syncd.remove(prefixes::<F>().skip(stay));
    assert_eq!(syncd.0.table_size(), full, "nothing else would do it");
    syncd.0.shrink_to_fit();
    assert_eq!(syncd.0.table_size(), before);
    assert!(full > before * 3 / 2 && syncd.0.len() >= stay);
}

#[test]
fn what_stays_of_many_routes_in_syncd_takes_as_much_as_it_needs() {
    syncd_fits::<V4>();
    syncd_fits::<V6>();
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
