//! Route watches: what a shard reports of them, and what aggregates suppress.

use super::*;
use crate::message::BestBatch;
use crate::peer::LocalSource;
use crate::watch::{Presence, Suppression, Watch, WatchId, WatchNews, WatchSet, WatchedRoutes};
use ribtide_policy::{Named, PrefixRange, PrefixSet};
use ribtide_prefix::LOGICAL_SHARDS;
use ribtide_wire::bgp::attribute::Origin;

const ID: WatchId = WatchId(7);

/// A watch of the routes inside 0.0.0.0/8, where [`prefix`] puts the first 1024.
fn aggregate(generation: u32, suppression: Option<bool>) -> ShardIn {
    marking(generation, suppression, false)
}

/// The same; `unsuppresses`: workers get suppressed paths, marked.
fn marking(generation: u32, suppression: Option<bool>, unsuppresses: bool) -> ShardIn {
    let routes = WatchedRoutes::MoreSpecific("0.0.0.0/8".parse().unwrap());
    let suppression = suppression.map(|advertised| Suppression { policy: None, advertised });
    let watches = vec![Watch { id: ID, routes, suppression }];
    ShardIn::Watch(Arc::new(WatchSet { generation, unsuppresses, watches }))
}

/// The news, as the last presence of the watch and the last complete generation.
fn news(effects: &Effects) -> (Option<Presence>, Option<u32>) {
    let last = |news: &WatchNews| news.changed.last().map(|(id, presence)| (*id, *presence));
    let changed = effects.watched.iter().rev().find_map(last);
    assert!(changed.is_none_or(|(id, _)| id == ID));
    let complete = effects.watched.iter().rev().find_map(|news| news.complete);
    (changed.map(|(_, presence)| presence), complete)
}

/// The changes that workers and stations get, as former and new sources.
fn told(effects: &Effects, tells: fn(&ToEgress) -> Option<&BestBatch>) -> Vec<(Option<u32>, Option<u32>)> {
    let of_batch = |batch: &BestBatch| -> Vec<_> {
        let source = |index: u32| (index != NONE).then(|| batch.paths[index as usize].source.0);
        batch.changes.v4.iter().map(|change| (source(change.old), source(change.new))).collect()
    };
    effects.egress.iter().filter_map(tells).flat_map(of_batch).collect()
}

fn of_workers(effects: &Effects) -> Vec<(Option<u32>, Option<u32>)> {
    told(effects, |effect| match effect {
        ToEgress::All(batch) | ToEgress::Workers(batch) => Some(batch),
        _ => None,
    })
}

fn of_stations(effects: &Effects) -> Vec<(Option<u32>, Option<u32>)> {
    told(effects, |effect| match effect {
        ToEgress::All(batch) | ToEgress::Stations(batch) => Some(batch),
        _ => None,
    })
}

#[test]
fn watch_reports_only_when_its_presence_changes() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.routes(&one, Some(&set(0, 7)), [0, 5000]);
    bench.out.take();
    bench.handle(aggregate(1, None));
    let effects = bench.finish();
    assert_eq!(news(&effects), (Some(Some(Origin::Igp)), Some(1)), "what was there before it");
    assert!(effects.egress.is_empty(), "nothing is suppressed");
    bench.routes(&two, Some(&set(0, 8)), [1, 2, 3]);
    assert_eq!(news(&bench.finish()), (None, None), "more of the same");
    bench.routes(&one, Some(&set(2, 7)), [4]);
    assert_eq!(news(&bench.finish()).0, Some(Some(Origin::Incomplete)), "RFC 4271 section 9.2.2.2");
    assert_eq!(bench.shard.watched(), [(ID, 5)], "without the prefix outside");
    bench.routes(&one, None, [4]);
    assert_eq!(news(&bench.finish()).0, Some(Some(Origin::Igp)));
    bench.routes(&two, None, [1, 2, 3]);
    bench.routes(&one, None, [0]);
    assert_eq!(news(&bench.finish()).0, Some(None));
    assert_eq!(bench.shard.watched(), [(ID, 0)]);
}

#[test]
fn suppressed_contributors_are_not_sent_and_come_back() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.handle(aggregate(1, Some(true)));
    bench.routes(&one, Some(&set(0, 7)), [0, 1, 5000]);
    let effects = bench.finish();
    assert_eq!(of_workers(&effects), [(None, Some(1))], "the one outside");
    // RFC 9069 section 1.1: the Loc-RIB has what the decision process selected, sent or not.
    assert_eq!(of_stations(&effects), [(None, Some(1)); 3]);
    // Another best path is as suppressed, and so is its end.
    bench.routes(&two, Some(&set(1, 8)), [0]);
    bench.routes(&one, None, [0]);
    bench.routes(&two, None, [0]);
    let effects = bench.finish();
    assert_eq!(of_workers(&effects), []);
    assert_eq!(of_stations(&effects), [(Some(1), Some(2)), (Some(2), None)]);
    let mut pages = [0, 0];
    for logical in 0..LOGICAL_SHARDS {
        let views = PageViews { accepted: false, best: true, loc_rib: true, ranked: false };
        let page = bench.shard.monitor_page::<V4>(logical, 0, usize::MAX, views);
        pages[0] += page.best.changes.v4.len();
        pages[1] += page.loc_rib.unwrap().changes.v4.len();
    }
    assert_eq!(pages, [1, 2], "of workers, and of stations");
    let view = bench.shard.lookup(prefix(1)).unwrap();
    assert_eq!(view.suppressed_by, ["0.0.0.0/8".parse().unwrap()]);
    bench.handle(ShardIn::Dump(DumpRequest {
        worker: 3,
        token: 9,
        family: AfiSafi::Ipv4Unicast,
        scope: DumpScope::default(),
        ranked: false,
    }));
    let effects = bench.finish();
    let dumped = effects.egress.iter().map(|effect| match effect {
        ToEgress::One(3, EgressIn::Dump { batch, .. }) => batch.changes.v4.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(dumped.sum::<usize>(), 1, "the one outside");
    bench.handle(aggregate(2, None));
    let effects = bench.finish();
    assert_eq!(of_workers(&effects), [(None, Some(1))], "no longer suppressed");
    assert_eq!(of_stations(&effects), []);
    bench.handle(ShardIn::Watch(Arc::default()));
    assert!(bench.finish().egress.is_empty());
    assert!(bench.shard.watched().is_empty());
}

/// The changes that workers get, each side as its source and whether it is marked.
fn marked(effects: &Effects) -> Vec<[Option<(u32, bool)>; 2]> {
    let batches = effects.egress.iter().filter_map(|effect| match effect {
        ToEgress::All(batch) | ToEgress::Workers(batch) => Some(batch),
        _ => None,
    });
    let of_batch = |batch: &BestBatch| -> Vec<_> {
        let path = |index: u32| {
            (index != NONE).then(|| {
                let path = &batch.paths[index as usize];
                (path.source.0, path.suppressed)
            })
        };
        batch.changes.v4.iter().map(|change| [path(change.old), path(change.new)]).collect()
    };
    batches.flat_map(of_batch).collect()
}

#[test]
fn suppressed_paths_are_marked_for_workers_while_a_peer_may_get_them() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.handle(marking(1, Some(true), true));
    bench.routes(&one, Some(&set(1, 7)), [0, 5000]);
    let effects = bench.finish();
    assert_eq!(marked(&effects), [[None, Some((1, true))], [None, Some((1, false))]]);
    assert_eq!(of_stations(&effects), [(None, Some(1)); 2]);
    bench.routes(&two, Some(&set(0, 8)), [0]);
    assert_eq!(marked(&bench.finish()), [[Some((1, true)), Some((2, true))]]);
    bench.handle(ShardIn::Dump(DumpRequest {
        worker: 3,
        token: 9,
        family: AfiSafi::Ipv4Unicast,
        scope: DumpScope::default(),
        ranked: false,
    }));
    let mut dumped = Vec::new();
    for effect in bench.finish().egress {
        let ToEgress::One(3, EgressIn::Dump { batch, .. }) = effect else { panic!("{effect:?}") };
        dumped.extend(batch.changes.v4.iter().map(|change| {
            let path = &batch.paths[change.new as usize];
            (path.source.0, path.suppressed)
        }));
    }
    dumped.sort_unstable();
    assert_eq!(dumped, [(1, false), (2, true)]);
    let view = bench.shard.advertised(prefix(0)).unwrap();
    assert!(view.path.unwrap().suppressed && !view.suppressed_by.is_empty());
    // No peer may get them any more, then some may again, then the aggregate suppresses nothing.
    bench.handle(marking(2, Some(true), false));
    assert_eq!(marked(&bench.finish()), [[Some((2, true)), None]]);
    bench.handle(marking(3, Some(true), true));
    assert_eq!(marked(&bench.finish()), [[None, Some((2, true))]]);
    bench.handle(marking(4, None, true));
    let effects = bench.finish();
    assert_eq!(marked(&effects), [[Some((2, true)), Some((2, false))]]);
    assert_eq!(of_stations(&effects), []);
    bench.handle(marking(5, Some(true), true));
    assert_eq!(marked(&bench.finish()), [[Some((2, false)), Some((2, true))]]);
    bench.routes(&two, None, [0]);
    assert_eq!(marked(&bench.finish()), [[Some((2, true)), Some((1, true))]]);
    bench.routes(&one, None, [0]);
    assert_eq!(marked(&bench.finish()), [[Some((1, true)), None]]);
}

/// What peers have stays until the aggregate is there, and what they do not have is not sent.
#[test]
fn contributors_that_were_advertised_stay_until_the_suppression_covers_them() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.routes(&one, Some(&set(1, 7)), [0, 1]);
    bench.out.take();
    bench.handle(aggregate(1, Some(false)));
    assert!(bench.finish().egress.is_empty());
    bench.routes(&one, Some(&set(1, 7)), [2]);
    assert_eq!(of_workers(&bench.finish()), [], "a new one");
    bench.routes(&two, Some(&set(0, 8)), [0, 2]);
    assert_eq!(of_workers(&bench.finish()), [(Some(1), Some(2))], "another path of the advertised one");
    bench.handle(aggregate(2, Some(true)));
    let mut withdrawn = of_workers(&bench.finish());
    withdrawn.sort_unstable();
    assert_eq!(withdrawn, [(Some(1), None), (Some(2), None)]);
}

#[test]
fn aggregates_contribute_to_no_other_and_are_not_suppressed() {
    let mut bench = Bench::new();
    let source =
        Arc::new(PeerInfo { kind: PeerKind::Local(LocalSource::Aggregate), ..(*peer(9, 1)).clone() });
    bench.handle(ShardIn::PeerUp(source.clone()));
    bench.handle(aggregate(1, Some(true)));
    bench.finish();
    let own = AttrSet::new(&[0x40, 1, 1, 0, 0x40, 2, 0], NextHop::V4(Ipv4Addr::UNSPECIFIED));
    bench.routes(&source, Some(&own), [0]);
    let effects = bench.finish();
    assert_eq!((sources(&effects), news(&effects).0), (vec![(None, Some(9))], None));
    // Its discard goes to the RIB manager.
    let discard = (Ipv4Addr::UNSPECIFIED.into(), 1);
    assert_eq!(effects.feed.sets[0].next_hops[..], [discard]);
    assert!(effects.feed.sets[0].kind.internal && effects.next_hops.is_empty());
}

#[test]
fn members_of_sets_with_a_policy_are_those_that_it_accepts() {
    let mut bench = Bench::new();
    let set_of = PrefixSet::new([PrefixRange::exact(prefix(0).any()), PrefixRange::exact(prefix(1).any())]);
    let watch = |policy| {
        let routes = WatchedRoutes::In(Named::new("two", set_of.clone()), Some(Arc::new(policy)));
        WatchSet {
            generation: 1,
            unsuppresses: false,
            watches: vec![Watch { id: ID, routes, suppression: None }],
        }
    };
    bench.handle(ShardIn::Watch(Arc::new(watch(ribtide_policy::Policy::reject()))));
    bench.routes(&peer(1, 1), Some(&set(0, 7)), [0, 1, 2]);
    assert_eq!(news(&bench.finish()).0, None);
    bench.handle(ShardIn::Watch(Arc::new(watch(ribtide_policy::Policy::accept()))));
    assert_eq!(news(&bench.finish()).0, Some(Some(Origin::Igp)));
    assert_eq!(bench.shard.watched(), [(ID, 2)]);
}

/// The watch has members in one of both shards at any time, and the session thread hears so.
#[test]
fn members_that_move_are_reported_by_the_new_owner_first() {
    let seed = HashSeed::fixed();
    let mut benches = [0, 1].map(|_| {
        let mut bench = Bench::new();
        bench.shard = Shard::new(DecisionOptions::default()).with_seed(&seed);
        bench.handle(ShardIn::PeerUp(peer(1, 1)));
        bench.handle(aggregate(1, Some(true)));
        bench
    });
    let [giver, taker] = &mut benches;
    giver.routes(&peer(1, 1), Some(&set(0, 7)), [0]);
    assert_eq!(news(&giver.finish()).0, Some(Some(Origin::Igp)));
    taker.finish();
    let moved = giver.shard.extract(logical_shard(prefix(0)), Cut::START, usize::MAX, &mut giver.out);
    assert!(moved.is_watched());
    assert_eq!(news(&giver.finish()).0, None, "held back");
    taker.shard.adopt(moved, &mut taker.out);
    let effects = taker.finish();
    assert_eq!((news(&effects).0, effects.egress.len()), (Some(Some(Origin::Igp)), 0), "still suppressed");
    giver.shard.release_watch_news(&mut giver.out);
    assert_eq!(news(&giver.finish()).0, Some(None));
}
