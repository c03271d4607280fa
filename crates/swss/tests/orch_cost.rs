//! The instructions that orchagent executes for routes in bulk. Run under callgrind:
//!
//! ```text
//! cargo test --release -p ribtide-swss --test orch_cost --no-run
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/deps/orch_cost-* --ignored
//! ```

use ribtide_prefix::{AnyPrefix, PREFETCH_BATCH};
use ribtide_swss::orch::{Orch, OrchConfig, OrchOut};
use ribtide_swss::row::{
    Change, IntfKey, IntfRow, NeighKey, NeighRow, PortKey, PortRow, RouteKey, RouteRow, Row,
};
use ribtide_swss::sai::{Attr, ObjectType, Oid, SaiCall, SaiReply, Status, VidCounter};
use std::net::{IpAddr, Ipv4Addr};

const ROUTES: u32 = 100_000;
const GROUPS: u32 = 1_000;
const NEIGHBORS: u32 = 64;

fn parse<R: Row>(fields: &[(&str, &str)]) -> R {
    R::from_fields(&mut fields.iter().copied()).expect("the fields are the table's")
}

/// The reply of a chip that has room for everything.
fn reply(id: u64, call: SaiCall) -> SaiReply {
    let success = SaiReply::one(id, Status::Success);
    match call {
        SaiCall::Bulk { items, .. } => SaiReply::bulk(id, vec![Status::Success; items.len()]),
        SaiCall::Get { attrs, .. } => {
            let value = |attr| match attr {
                Attr::SwitchDefaultVirtualRouter(_) => {
                    Attr::SwitchDefaultVirtualRouter(Oid::vid(ObjectType::VirtualRouter, 1 << 30))
                }
                Attr::SwitchCpuPort(_) => Attr::SwitchCpuPort(Oid::vid(ObjectType::Port, 1 << 30)),
                Attr::SwitchEcmpGroups(_) => Attr::SwitchEcmpGroups(4 * GROUPS),
                other => other,
            };
            SaiReply { values: attrs.into_iter().map(value).collect(), ..success }
        }
        _ => success,
    }
}

fn settle(orch: &mut Orch, out: &mut OrchOut) {
    loop {
        orch.run(out);
        if out.requests.is_empty() {
            break;
        }
        for request in std::mem::take(&mut out.requests) {
            orch.reply(reply(request.id, request.call), out);
        }
    }
    assert!(orch.idle());
}

fn gateway(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0002 + n % NEIGHBORS).into()
}

/// An orchagent with one interface and its neighbours.
fn started(out: &mut OrchOut) -> Orch {
    let config = OrchConfig { responses: true, window: 2, ..OrchConfig::default() };
    let mut orch = Orch::new(config, Box::new(VidCounter::default()));
    orch.port(Change::set(
        PortKey::Port("Ethernet0".into()),
        parse(&[("lanes", "0"), ("oper_status", "up")]),
    ));
    orch.port(Change::set(PortKey::ConfigDone, parse(&[("count", "1")])));
    orch.port(Change::set(PortKey::InitDone, PortRow::default()));
    orch.interface(Change::set(IntfKey::Interface("Ethernet0".into()), IntfRow::default()));
    for n in 0..NEIGHBORS {
        let key = NeighKey { ifname: "Ethernet0".into(), ip: gateway(n) };
        orch.neighbor(Change::set(key, parse::<NeighRow>(&[("neigh", &format!("02:00:00:00:00:{n:02x}"))])));
    }
    settle(&mut orch, out);
    orch
}

/// The rows of `GROUPS` groups of four next hops; `set` chooses among sets of groups without a common one.
fn groups(set: u32) -> Vec<RouteRow> {
    let row = |n: u32| {
        let first = n % NEIGHBORS;
        let weights = (n / NEIGHBORS + 1 + set * GROUPS, first + 1);
        let hops = [0, 1, 2, 3].map(|k| gateway(first + k).to_string()).join(",");
        parse(&[
            ("nexthop", hops.as_str()),
            ("ifname", "Ethernet0,Ethernet0,Ethernet0,Ethernet0"),
            ("weight", &format!("{},{},1,1", weights.0, weights.1)),
            ("protocol", "bgp"),
        ])
    };
    (0..GROUPS).map(row).collect()
}

fn changes(row: impl Fn(u32) -> Option<RouteRow>) -> Vec<Change<RouteRow>> {
    let change = |n: u32| {
        let prefix = AnyPrefix::from_addr(Ipv4Addr::from_bits(0x1400_0000 + (n << 8)).into(), 24);
        let key = RouteKey::new(None, prefix.expect("24 bits are a length of IPv4"));
        Change { key, row: row(n), reshaped: false }
    };
    (0..ROUTES).map(change).collect()
}

#[inline(never)]
fn measured(orch: &mut Orch, batches: &mut [Vec<Change<RouteRow>>], out: &mut OrchOut) {
    for (n, batch) in batches.iter_mut().enumerate() {
        orch.batch(n as u64, batch.len());
        for changes in batch.chunks_mut(64 * PREFETCH_BATCH) {
            orch.routes(changes);
            orch.run(out);
        }
        settle(orch, out);
    }
}

#[test]
#[ignore = "counts instructions under callgrind"]
fn orch_routes_in_bulk_add_change_remove() {
    let mut out = OrchOut::default();
    let mut orch = started(&mut out);
    let (old, new) = (groups(0), groups(1));
    let of = |rows: &[RouteRow], n: u32| Some(rows[(n % GROUPS) as usize].clone());
    let mut batches = [changes(|n| of(&old, n)), changes(|n| of(&new, n))];
    measured(&mut orch, &mut batches, &mut out);
    assert_eq!(orch.routes_in_chip(), ROUTES as usize + 2, "and two link-local ones");
    assert_eq!(orch.crm().nexthop_group.used, GROUPS);
    measured(&mut orch, &mut [changes(|_| None)], &mut out);
    assert_eq!((orch.routes_in_chip(), orch.crm().nexthop_group.used), (2, 0));
    assert_eq!(out.responses.len(), 3 * ROUTES as usize);
    assert_eq!(out.events, []);
}
