//! After any sequence of events the incremental state equals what an oracle works out from scratch, what the
//! dataplane was told adds up to it, and a replay gives the same again; whatever the mode of the cache, and when it changes.

use crate::common::oracle::Oracle;
use crate::common::*;
use proptest::prelude::*;
use ribtide_prefix::AnyPrefix;
use ribtide_rib::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Prefixes that nest in each other and hold the gateways below.
const PREFIXES: [&str; 18] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.1.0/24",
    "10.1.1.1/32",
    "10.1.1.2/32",
    "10.2.0.0/16",
    "10.2.0.1/32",
    "20.0.0.0/8",
    "20.1.0.0/16",
    "20.1.1.1/32",
    "20.2.0.0/16",
    "30.0.0.0/8",
    "::/0",
    "2001:db8::/32",
    "2001:db8:1::/48",
    "2001:db8:1::1/128",
    "2001:db8:2::/48",
];

const GATEWAYS: [&str; 11] = [
    "10.1.1.1",
    "10.1.1.2",
    "10.1.2.1",
    "10.2.0.1",
    "20.1.1.1",
    "20.2.0.1",
    "30.0.0.1",
    "99.0.0.1",
    "2001:db8:1::1",
    "2001:db8:2::1",
    "2001:db8::9",
];

const ADDRESSES: [(&str, u8); 7] = [
    ("10.1.1.9", 24),
    ("10.1.1.2", 24),
    ("10.2.0.9", 16),
    ("20.2.0.9", 24),
    ("20.1.1.1", 32),
    ("2001:db8:1::2", 48),
    ("2001:db8::9", 64),
];

#[derive(Clone, Debug)]
enum Event {
    Announce(AnyPrefix, RouteSet),
    Withdraw(AnyPrefix, Source),
    Interface(InterfaceEvent),
    Gone(IfIndex),
    Gateway(GatewayEvent),
    /// The cache works otherwise.
    Mode(CacheMode),
    /// The route-maps are others.
    Maps(Maps),
    /// Next hops resolve otherwise.
    Settings(ResolutionSettings),
    /// The second dataplane comes up.
    Up,
    /// It says what failed and what no longer does, and may acknowledge everything that it got.
    Ack {
        all: bool,
        failed: Option<AnyPrefix>,
        installed: Option<AnyPrefix>,
    },
}

fn prefix() -> impl Strategy<Value = AnyPrefix> {
    prop::sample::select(&PREFIXES[..]).prop_map(pfx)
}

fn received() -> impl Strategy<Value = ReceivedHop> {
    let gateway = prop::option::weighted(0.9, prop::sample::select(&GATEWAYS[..]).prop_map(ip));
    let interface = prop::option::weighted(0.2, 1..5u32);
    (gateway, interface, 0..4u16, prop::bool::weighted(0.1)).prop_map(
        |(gateway, interface, weight, onlink)| ReceivedHop {
            gateway,
            interface,
            weight,
            onlink: onlink && gateway.is_some(),
        },
    )
}

fn route_set() -> impl Strategy<Value = RouteSet> {
    let next_hops = prop_oneof![
        1 => Just(NextHops::Blackhole),
        1 => Just(NextHops::Unreachable),
        12 => prop::collection::vec(received(), 0..4).prop_map(NextHops::Via),
    ];
    let protocol = prop::sample::select(&Protocol::ALL[1..]);
    let distance = prop::option::weighted(0.2, prop::sample::select(&[0u8, 1, 20, 255][..]));
    let backup = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(received(), 1..3)];
    let track = prop_oneof![
        4 => Just(None),
        1 => (1..5u32).prop_map(|i| Some(Track::Interface(i))),
        1 => prefix().prop_map(|p| Some(Track::Prefix(p))),
        1 => prop::sample::select(&GATEWAYS[..]).prop_map(|a| Some(Track::Address(ip(a)))),
    ];
    let recursion = || prop::bool::weighted(0.8);
    (next_hops, backup, track, protocol, distance, 0..3u32, recursion(), recursion()).prop_map(
        |(next_hops, backup, track, protocol, distance, metric, allow_recursion, backup_recursion)| {
            RouteSet {
                next_hops,
                backup,
                backup_recursion,
                track,
                distance: distance.unwrap_or(protocol.default_distance()),
                metric,
                allow_recursion,
                protocol,
            }
        },
    )
}

fn maps() -> impl Strategy<Value = Maps> {
    let action =
        prop_oneof![Just(TestAction::Deny), Just(TestAction::Permit), (1..3u8).prop_map(TestAction::Source)];
    let protocol = prop::sample::select(&Protocol::ALL[..]);
    prop::collection::vec((protocol, prop::option::of(prefix()), action), 0..6).prop_map(Maps)
}

fn mode() -> impl Strategy<Value = CacheMode> {
    prop::sample::select(&CacheMode::ALL[..])
}

fn settings() -> impl Strategy<Value = ResolutionSettings> {
    let max_ecmp = prop::sample::select(&[1u16, 2, 128][..]);
    (any::<bool>(), max_ecmp, any::<bool>()).prop_map(|(resolve_via_default, max_ecmp, underlay_weights)| {
        ResolutionSettings { resolve_via_default, max_ecmp, underlay_weights }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let addresses = prop::collection::vec(prop::sample::select(&ADDRESSES[..]), 0..4);
    let states = (prop::bool::weighted(0.8), prop::bool::weighted(0.1));
    let interface = (1..4u32, states, addresses).prop_map(|(index, (up, loopback), addresses)| {
        let addresses = addresses.iter().map(|(a, len)| on_subnet(a, *len)).collect();
        Event::Interface(InterfaceEvent {
            vrf: VrfId::DEFAULT,
            index,
            name: format!("eth{index}"),
            up,
            loopback,
            addresses,
        })
    });
    let gateway = (
        prop::sample::select(&GATEWAYS[..]),
        prop::option::weighted(0.5, 1..4u32),
        prop::bool::weighted(0.4),
    );
    let gateway = gateway.prop_map(|(address, interface, usable)| {
        Event::Gateway(GatewayEvent { address: ip(address), interface, usable })
    });
    let some = || prop::option::of(prefix());
    let ack = (prop::bool::weighted(0.7), some(), some()).prop_map(|(all, failed, installed)| Event::Ack {
        all,
        failed,
        installed,
    });
    let source = prop::sample::select(&[Source::Bgp, Source::Static, Source::Kernel][..]);
    prop_oneof![
        10 => (prefix(), route_set()).prop_map(|(p, s)| Event::Announce(p, s)),
        4 => (prefix(), source).prop_map(|(p, s)| Event::Withdraw(p, s)),
        4 => interface,
        1 => (1..4u32).prop_map(Event::Gone),
        4 => gateway,
        1 => Just(Event::Up),
        1 => mode().prop_map(Event::Mode),
        1 => maps().prop_map(Event::Maps),
        1 => settings().prop_map(Event::Settings),
        4 => ack,
    ]
}

fn oracle_takes(oracle: &mut Oracle, event: &Event) {
    match event.clone() {
        Event::Announce(prefix, set) => {
            oracle.announce(prefix, set);
        }
        Event::Withdraw(prefix, source) => {
            oracle.routes.retain(|(p, s, _), _| (*p, *s) != (prefix, source));
        }
        Event::Interface(state) => {
            oracle.interfaces.insert(state.index, state);
        }
        Event::Gone(index) => {
            oracle.interfaces.remove(&index);
        }
        Event::Gateway(GatewayEvent { address, interface, usable }) => {
            if usable {
                oracle.unusable.remove(&(address, interface));
            } else {
                oracle.unusable.insert((address, interface));
            }
        }
        Event::Settings(by) => {
            let ResolutionSettings { resolve_via_default, max_ecmp, underlay_weights } = by;
            let former = std::mem::take(&mut oracle.config);
            oracle.config = RibConfig { resolve_via_default, max_ecmp, underlay_weights, ..former };
        }
        Event::Up | Event::Ack { .. } | Event::Mode(_) | Event::Maps(_) => {}
    }
}

fn rib_takes(event: Event, seq: u64) -> RibIn {
    match event {
        Event::Mode(_) | Event::Maps(_) | Event::Settings(_) => RibIn::Untrack(Vec::new()),
        Event::Announce(prefix, set) => route(prefix, set.protocol.source(), Some(set)),
        Event::Withdraw(prefix, source) => route(prefix, source, None),
        Event::Interface(state) => RibIn::Interface(state),
        Event::Gone(index) => RibIn::InterfaceRemoved(index),
        Event::Gateway(event) => RibIn::Gateway(event),
        Event::Up => RibIn::DataplaneUp(1),
        Event::Ack { all, failed, installed } => RibIn::Ack(FibAck {
            dataplane: 1,
            seq: if all { seq } else { 0 },
            failed: failed.into_iter().map(|prefix| (prefix.into(), "no room".into())).collect(),
            installed: installed.map(Into::into).into_iter().collect(),
        }),
    }
}

/// The expected state of the second dataplane.
#[derive(Default)]
struct DataplaneModel {
    up: bool,
    /// Batches that it has not acknowledged.
    outstanding: BTreeSet<u64>,
    /// The batch that changed a prefix last.
    changed: BTreeMap<AnyPrefix, u64>,
    failed: BTreeSet<AnyPrefix>,
}

impl DataplaneModel {
    fn take(&mut self, event: &Event, seq: u64) {
        match event {
            Event::Up => {
                *self = DataplaneModel {
                    up: true,
                    changed: std::mem::take(&mut self.changed),
                    ..DataplaneModel::default()
                };
            }
            Event::Ack { all, failed, installed } if self.up => {
                self.outstanding.retain(|sent| !all || *sent > seq);
                installed.iter().for_each(|prefix| {
                    self.failed.remove(prefix);
                });
                let superseded =
                    |prefix| self.changed.get(prefix).is_some_and(|n| self.outstanding.contains(n));
                self.failed.extend(failed.iter().filter(|prefix| !superseded(prefix)));
            }
            _ => {}
        }
    }

    fn sent(&mut self, out: &RibOut) {
        fn prefixes(batch: &FibBatch) -> impl Iterator<Item = AnyPrefix> {
            let v4 = batch.routes.v4.iter().map(|r| r.prefix.any());
            v4.chain(batch.routes.v6.iter().map(|r| r.prefix.any()))
        }
        let begins = out.replay.iter().any(|(_, page)| page.start_of_replay);
        for batch in
            out.fib.iter().filter(|_| self.up && !begins).chain(out.replay.iter().map(|(_, page)| page))
        {
            self.outstanding.insert(batch.seq);
            prefixes(batch).for_each(|prefix| {
                self.failed.remove(&prefix);
            });
        }
        let changed = out.fib.iter().flat_map(|batch| prefixes(batch).map(|prefix| (prefix, batch.seq)));
        self.changed.extend(changed);
    }
}

/// Hands out a batch as the daemon does: live changes to both dataplanes, then pages to the second.
fn deliver(out: &RibOut, first: &mut Model, second: &mut Model) {
    if let Some(batch) = &out.fib {
        first.apply(batch);
        second.apply(batch);
    }
    for (id, page) in &out.replay {
        assert_eq!(*id, 1);
        second.apply(page);
    }
}

/// Lets it do what it left for later.
fn drain(rib: &mut Rib, first: &mut Model, second: &mut Model, model: &mut DataplaneModel) {
    while rib.has_more() {
        let out = rib.handle([]);
        deliver(&out, first, second);
        model.sent(&out);
        assert!(out.next_hops.is_empty(), "next hops are notified at once");
    }
}

/// The answer without the mark that the route may have no other next hop, which the oracle does not
/// know.
fn with_others(state: Reachability) -> Reachability {
    match state {
        Reachability::ReachableAlone { cost, partial } => Reachability::Reachable { cost, partial },
        state => state,
    }
}

fn check(config: RibConfig, patient: bool, batches: Vec<Vec<Event>>) {
    let mut rib = Rib::new(config.clone());
    let mut oracle = Oracle { config, ..Oracle::default() };
    let (mut first, mut second) = (Model::new(), Model::leftover());
    first.repeats = true;
    second.repeats = true;
    let mut model = DataplaneModel::default();
    let mut maps = Maps::default();
    let mut notified: BTreeMap<TrackedNextHop, Reachability> = BTreeMap::new();
    let tracked: Vec<TrackedNextHop> = GATEWAYS.iter().flat_map(|a| [recursive(a), on_link(a)]).collect();
    for (address, state) in rib.handle([RibIn::Track(tracked.clone())]).next_hops {
        notified.insert(address, state);
    }
    // Next hops of the paths of one prefix, which are registered when the RIB manager says so.
    let mut of_paths: BTreeSet<TrackedNextHop> = BTreeSet::new();
    let mut to_register: Vec<TrackedNextHop> = Vec::new();
    let mut turns = 0;
    for batch in batches {
        batch.iter().for_each(|event| oracle_takes(&mut oracle, event));
        batch.iter().for_each(|event| model.take(event, second.seq));
        for event in &batch {
            match event {
                Event::Mode(mode) => rib.set_cache_mode(*mode),
                Event::Settings(by) => rib.set_resolution(*by),
                Event::Maps(now) => {
                    maps = now.clone();
                    rib.set_route_maps(Arc::new(now.clone()));
                }
                _ => {}
            }
        }
        let mut events: Vec<RibIn> = batch.into_iter().map(|event| rib_takes(event, second.seq)).collect();
        to_register.retain(|next_hop| of_paths.insert(*next_hop));
        events.extend((!to_register.is_empty()).then(|| RibIn::Track(std::mem::take(&mut to_register))));
        // Interfaces and gateways that resolve take the urgent queue.
        let fails =
            |e: &&RibIn| matches!(e, RibIn::Interface(_) | RibIn::InterfaceRemoved(_) | RibIn::Gateway(_));
        let urgent = events.iter().take_while(fails);
        let rest = events.split_off(urgent.count());
        for op in rib.urgent(events) {
            for model in [&mut first, &mut second] {
                if let Some(content) = model.groups.get_mut(&op.op.id) {
                    *content = op.op.content.clone();
                }
            }
        }
        let out = rib.handle(rest);
        deliver(&out, &mut first, &mut second);
        model.sent(&out);
        for (address, state) in out.next_hops {
            assert_ne!(
                notified.insert(address, state),
                Some(state),
                "{address:?} is notified of changes only"
            );
        }
        assert!(out.per_prefix.iter().all(|next_hop| !of_paths.contains(next_hop)), "it is registered");
        to_register.extend(out.per_prefix);
        let evaluation = oracle.evaluate(&tracked);
        for address in &tracked {
            assert_eq!(notified[address], evaluation.notified(*address), "{address:?}");
        }
        for next_hop in &of_paths {
            let (state, expected) = (notified[next_hop], oracle.notified_for_path(*next_hop));
            assert_eq!(with_others(state), expected, "{next_hop:?}");
            // Reachable without the mark: no route of the path's prefix changes the answer.
            let plain = TrackedNextHop { exclude: None, ..*next_hop };
            let outside = next_hop.exclude.is_some_and(|prefix| !prefix.contains(next_hop.address));
            if outside
                && matches!(state, Reachability::Reachable { .. })
                && let Some(plain) = notified.get(&plain)
            {
                assert_eq!(*plain, state, "{next_hop:?} is not marked");
            }
        }
        // Whatever depends on BGP's own route of a prefix is found. One of them at a time, for the oracle is slow.
        let bgp =
            oracle.routes.keys().filter(|(_, source, _)| *source == Source::Bgp).map(|(prefix, ..)| *prefix);
        let all: Vec<TrackedNextHop> = bgp
            .flat_map(|prefix| {
                GATEWAYS.iter().map(move |a| TrackedNextHop { exclude: Some(prefix), ..recursive(a) })
            })
            .collect();
        turns += 7;
        if let Some(next_hop) = all.get(turns % all.len().max(1))
            && !of_paths.contains(next_hop)
            && !to_register.contains(next_hop)
            // Paths whose next hop lies inside their prefix ask with the prefix anyway.
            && next_hop.exclude.is_some_and(|prefix| !prefix.contains(next_hop.address))
        {
            let plain = TrackedNextHop { exclude: None, ..*next_hop };
            assert_eq!(
                notified[&plain],
                oracle.notified_for_path(*next_hop),
                "{next_hop:?} depends on its route"
            );
        }
        let mut expected = evaluation.fib();
        let selected: BTreeMap<AnyPrefix, Protocol> =
            expected.iter().map(|(prefix, (protocol, _))| (*prefix, *protocol)).collect();
        expected.retain(|prefix, (protocol, _)| !maps.of(*protocol, *prefix).deny);
        if patient {
            drain(&mut rib, &mut first, &mut second, &mut model);
        } else if rib.has_more() {
            // Some routes still wait for their turn. What does not resolve forwards nothing, and what
            // a route-map denies forwards by the former route at most.
            for (prefix, (protocol, _)) in first.fib() {
                let denied = !expected.contains_key(&prefix) && selected.get(&prefix) == Some(&protocol);
                assert!(selected.contains_key(&prefix) && !denied, "{prefix} by {protocol}");
            }
            continue;
        }
        let sources =
            expected.iter().map(|(prefix, (protocol, _))| (*prefix, maps.of(*protocol, *prefix).source));
        assert_eq!(first.sources(), sources.collect(), "routes have the source addresses that they should");
        let denied: u64 = rib.totals().iter().map(|t| t.denied).sum();
        assert_eq!(
            denied,
            (selected.len() - expected.len()) as u64,
            "what is kept out of the FIB is counted"
        );
        assert_eq!(first.fib(), expected, "the incremental state equals the one from scratch");
        assert_eq!(first.fib().len(), first.routes.len(), "nothing that is unresolved is left");
        for prefix in expected.keys() {
            let failed = rib.failed(1).any(|(failed, _)| failed == *prefix);
            assert_eq!(
                failed,
                model.failed.contains(prefix),
                "{prefix}: exactly the failed prefixes are reported"
            );
        }
        let mut cursor = rib.cursor();
        let mut read = BTreeMap::new();
        while !cursor.is_done() {
            read.extend(rib.page(&mut cursor, 3).into_iter().map(|r| (r.prefix, (r.protocol, r.content))));
        }
        assert_eq!(read, expected, "a paged read shows the same");
        let totals: u64 = rib.totals().iter().map(|t| t.installed).sum();
        assert_eq!(totals, expected.len() as u64);
    }
    let out = rib.handle([RibIn::DataplaneUp(1)]);
    deliver(&out, &mut first, &mut second);
    drain(&mut rib, &mut first, &mut second, &mut model);
    let mut expected = oracle.fib();
    expected.retain(|prefix, (protocol, _)| !maps.of(*protocol, *prefix).deny);
    assert_eq!(first.fib(), expected, "in the end nothing is left over");
    for _ in 0..3 {
        let ack = FibAck { dataplane: 1, seq: second.seq, failed: Vec::new(), installed: Vec::new() };
        let out = rib.handle([RibIn::Ack(ack)]);
        deliver(&out, &mut first, &mut second);
    }
    assert!(second.finished);
    assert_eq!(second.fib(), first.fib(), "a replay gives the same");
    assert_eq!(second.groups, first.groups, "and leaves no group over");

    // Everything goes: nothing may be left.
    let routes: Vec<RibIn> =
        oracle.routes.keys().map(|(prefix, source, _)| route(*prefix, *source, None)).collect();
    let interfaces = oracle.interfaces.keys().map(|index| RibIn::InterfaceRemoved(*index));
    let out = rib.handle(
        routes
            .into_iter()
            .chain(interfaces)
            .chain([RibIn::Untrack(tracked), RibIn::Untrack(of_paths.into_iter().collect())]),
    );
    deliver(&out, &mut first, &mut second);
    drain(&mut rib, &mut first, &mut second, &mut model);
    assert!(first.routes.is_empty() && first.groups.is_empty());
    assert_eq!(rib.group_count(), 0);
    assert!(rib.totals().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1500), ..ProptestConfig::default() })]

    #[test]
    fn incremental_equals_from_scratch(
        batches in prop::collection::vec(prop::collection::vec(event(), 1..6), 1..24),
        resolve_via_default in any::<bool>(),
        underlay_weights in any::<bool>(),
        cache in mode(),
        max_ecmp in prop::sample::select(&[2u16, 128][..]),
        turn in prop::sample::select(&[1usize, 3, 2048][..]),
        patient in any::<bool>(),
    ) {
        let rest = RibConfig { damping: false, ..RibConfig::default() };
        check(RibConfig { resolve_via_default, underlay_weights, cache, max_ecmp, turn, ..rest }, patient, batches);
    }
}
