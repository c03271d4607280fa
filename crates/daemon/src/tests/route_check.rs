//! A whole router whose shards and RIB manager are told different things: what a look says of it.

use crate::router::Router;
use ribtide_api::RouterState;
use ribtide_api::route_check::{State, check};
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::message::{NextHopState, RouteOp, ShardIn, TrackedNextHop, UpdateBatch};
use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use ribtide_bgp::shard::{Shard, ShardOut};
use ribtide_config as config;
use ribtide_model::{Difference, RouteCheck};
use ribtide_policy::Policy;
use ribtide_prefix::{AfiSafi, BgpFamilies, Families, Prefix, V4};
use ribtide_rib::{NONE, NextHops, Protocol, ReceivedHop, RibIn, RouteBatch, RouteSet, VrfId};
use ribtide_wire::bgp::NextHop;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Routes of a part.
const PART: usize = 64;

/// Where the one peer is.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

struct Bench {
    router: Router,
    state: Arc<RouterState>,
    check: Mutex<State>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            r#"
[router]
asn = 65001
router-id = "10.0.255.254"
[bgp]
listen = ["127.0.0.1:0"]
shards = 3
[fib]
virtual-asic = {{ lab = true }}
[[interface]]
name = "Ethernet0"
addresses = ["10.0.255.254/16"]
[api]
socket = "{}"
"#,
            folder.path().join("api.sock").display()
        );
        let router = Router::start(config::parse(&text).unwrap(), None, None).unwrap();
        let state = router.state().clone();
        let families = FamilySet::IPV4_UNICAST;
        let peer = Arc::new(PeerInfo {
            id: PeerId(0),
            session: 1,
            address: PEER.into(),
            asn: 65010,
            router_id: PEER,
            kind: PeerKind::External,
            multihop: false,
            link: None,
            families,
            path_ids: FamilySet::NONE,
            long_lived: false,
            egress: EgressSettings::new(
                PeerKind::External,
                65001,
                PEER,
                families,
                Arc::new(Policy::accept()),
            ),
        });
        for shard in &state.owners().unwrap().read().shards {
            let peer = peer.clone();
            shard.call(move |s| s.handle(ShardIn::PeerUp(peer), &mut ShardOut::default())).unwrap();
        }
        Bench { router, state, check: Mutex::new(State::with_parts_of(PART)), _folder: folder }
    }

    /// A shard's path of a prefix, without any message about it.
    fn in_bgp(&self, prefix: Prefix<V4>, next_hop_of: Option<Ipv4Addr>) {
        let owners = self.state.owners().unwrap();
        let owners = owners.read();
        let (_, shard) = owners.of(prefix).unwrap();
        let attrs = next_hop_of.map(|hop| AttrSet::new(&[0x40, 1, 1, 0, 0x40, 2, 0], NextHop::V4(hop)));
        let ops = vec![RouteOp { attrs, path_id: 0, family: AfiSafi::Ipv4Unicast, count: 1 }];
        let prefixes = BgpFamilies { v4: vec![prefix], ..BgpFamilies::default() };
        let batch = UpdateBatch { peer: PeerId(0), session: 1, ops, prefixes };
        // BGP takes it for reachable, whatever the RIB manager finds.
        let state = NextHopState::Reachable { cost: 0, partial: false };
        let next_hop =
            |hop: Ipv4Addr| TrackedNextHop { address: hop.into(), recursive: false, exclude: None };
        let said = ShardIn::NextHops(next_hop_of.map(|hop| (next_hop(hop), state)).into_iter().collect());
        let what = move |shard: &mut Shard| {
            let mut out = ShardOut::default();
            shard.handle(ShardIn::Routes(batch), &mut out);
            shard.handle(said, &mut out);
            while shard.work_left() {
                shard.step(&mut out);
            }
        };
        shard.call(what).unwrap();
    }

    /// The RIB manager's candidate of a prefix, without a word of it to a shard.
    fn in_rib(&self, prefix: Prefix<V4>, protocol: Protocol, next_hop: Option<Ipv4Addr>) {
        let set = |hop: Ipv4Addr| RouteSet {
            next_hops: NextHops::Via(vec![ReceivedHop::gateway(hop.into())]),
            backup: Vec::new(),
            backup_recursion: false,
            track: None,
            distance: protocol.default_distance(),
            metric: 0,
            allow_recursion: protocol == Protocol::Static,
            protocol,
        };
        let index = if next_hop.is_some() { 0 } else { NONE };
        let batch = RouteBatch {
            vrf: VrfId::DEFAULT,
            source: protocol.source(),
            sets: next_hop.map(set).into_iter().collect(),
            changes: Families { v4: vec![(prefix, index)], v6: vec![] },
        };
        self.state.rib.get().unwrap().inbox.send(RibIn::Routes(batch)).unwrap();
    }

    fn in_both(&self, prefix: Prefix<V4>, next_hop: Option<Ipv4Addr>) {
        self.in_bgp(prefix, next_hop);
        self.in_rib(prefix, Protocol::BgpExternal, next_hop);
    }

    /// Looks until what it finds is `wanted`: prefix, stage, wanted, found, neighbour, and a part of why. The limit only ends a
    /// test that fails.
    fn finds(&self, full: bool, wanted: &[(&str, &str, &str, &str, bool, &str)]) -> RouteCheck {
        let begin = Instant::now();
        loop {
            let found = check(&self.state, &self.check, full).unwrap();
            let is = |(d, w): (&Difference, &(&str, &str, &str, &str, bool, &str))| {
                let neighbor = w.4.then_some(IpAddr::from(PEER));
                (&*d.prefix, &*d.stage, &*d.rib, &*d.found, d.neighbor.as_ref().map(|a| a.address))
                    == (w.0, w.1, w.2, w.3, neighbor)
                    && d.message.contains(w.5)
            };
            let same =
                found.differences.len() == wanted.len() && found.differences.iter().zip(wanted).all(is);
            if same && found.differing == wanted.len() as u64 {
                return found;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{found:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.router.shut_down();
    }
}

fn nth(n: u32) -> Prefix<V4> {
    Prefix::new(0x1400_0000 | n << 8, 24)
}

#[test]
fn best_path_that_rib_cannot_use_is_told_with_its_reason() {
    let bench = Bench::new();
    let (near, far) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 9));
    bench.in_rib(Prefix::default_route(), Protocol::Static, Some(Ipv4Addr::new(10, 0, 0, 5)));
    bench.in_both(nth(0), Some(near));
    bench.finds(true, &[]);
    // The peer is one hop away, and its next hop is not on the link: the default route does not help.
    bench.in_both(nth(1), Some(far));
    // The RIB manager was never told, was told something else, and was told of what is gone.
    bench.in_bgp(nth(2), Some(near));
    bench.in_bgp(nth(3), Some(near));
    bench.in_rib(nth(3), Protocol::BgpExternal, Some(Ipv4Addr::new(10, 0, 0, 3)));
    bench.in_rib(nth(4), Protocol::BgpExternal, Some(near));
    // Another protocol's route is selected: BGP's could be used nevertheless.
    bench.in_both(nth(5), Some(near));
    bench.in_rib(nth(5), Protocol::Static, Some(Ipv4Addr::new(10, 0, 0, 5)));
    // Or could not, which is a difference although packets are forwarded.
    bench.in_both(nth(6), Some(far));
    bench.in_rib(nth(6), Protocol::Static, Some(Ipv4Addr::new(10, 0, 0, 5)));
    let off_link =
        "best path from 10.0.0.2 (advertised as export policies say): next hop 192.0.2.9 does not resolve:";
    let wrong = [
        ("20.0.1.0/24", "rib", "via 192.0.2.9", "unresolved", true, off_link),
        ("20.0.2.0/24", "rib", "via 10.0.0.2", "absent", true, "the RIB manager has no route of BGP"),
        (
            "20.0.3.0/24",
            "rib",
            "via 10.0.0.2",
            "via 10.0.0.3",
            true,
            "the RIB manager has other next hops of BGP",
        ),
        ("20.0.4.0/24", "rib", "absent", "via 10.0.0.2", false, "BGP has no path for it"),
        ("20.0.6.0/24", "rib", "via 192.0.2.9", "unresolved", true, off_link),
    ];
    bench.finds(true, &wrong);
    let found = bench.finds(false, &wrong);
    assert!(!found.full && found.under_way == 5, "{found:?}");
    for (n, hop) in [(1, None), (2, Some(near)), (3, Some(near)), (4, None), (6, None)] {
        bench.in_both(nth(n), hop);
    }
    let found = bench.finds(false, &[]);
    assert_eq!(found.routes["bgp"], 4);
}

#[test]
fn looks_go_through_loc_rib_in_parts() {
    let bench = Bench::new();
    let near = Some(Ipv4Addr::new(10, 0, 0, 2));
    // Blocks of their own, so that each shard has some.
    let all: Vec<Prefix<V4>> = (0..300).map(|n| nth(64 * n)).collect();
    all.iter().for_each(|prefix| bench.in_both(*prefix, near));
    bench.finds(true, &[]);
    bench.finds(false, &[]);
    let parts = all.len().div_ceil(PART);
    assert!(parts > 3);
    // Neither is sent to a dataplane: as many best paths as candidates, and the FIB is as it was.
    bench.in_bgp(all[7], Some(Ipv4Addr::new(10, 0, 0, 9)));
    let mut looks = 0;
    let found = loop {
        looks += 1;
        let found = check(&bench.state, &bench.check, false).unwrap();
        assert!(!found.full && found.best_paths_checked <= PART as u64 + 1, "{found:?}");
        if found.differing > 0 {
            break found;
        }
        assert!(looks <= 2 * parts, "not within two rounds");
    };
    assert_eq!(found.differences[0].prefix, all[7].to_string());
    // It stays told at each look until it is over.
    let again = check(&bench.state, &bench.check, false).unwrap();
    assert_eq!(again.differing, 1);
    bench.in_bgp(all[7], near);
    // Their number tells that there is one without a path.
    bench.in_bgp(all[8], None);
    let text = all[8].to_string();
    bench.finds(false, &[(&text, "rib", "absent", "via 10.0.0.2", false, "no path")]);
}
