//! Replay, acknowledgements, and the state of a route in each dataplane.

use crate::common::*;
use ribtide_prefix::{AnyPrefix, Families, Prefix};
use ribtide_rib::*;
use std::collections::{BTreeMap, BTreeSet};

const BGP: Protocol = Protocol::BgpInternal;

fn ack(dataplane: DataplaneId, seq: u64) -> RibIn {
    RibIn::Ack(FibAck { dataplane, seq, failed: Vec::new(), installed: Vec::new() })
}

fn fail(dataplane: DataplaneId, seq: u64, prefix: &str, reason: &str) -> RibIn {
    RibIn::Ack(FibAck {
        dataplane,
        seq,
        failed: vec![(pfx(prefix).into(), reason.into())],
        installed: Vec::new(),
    })
}

fn mend(dataplane: DataplaneId, prefix: &str) -> RibIn {
    RibIn::Ack(FibAck { dataplane, seq: 0, failed: Vec::new(), installed: vec![pfx(prefix).into()] })
}

/// A RIB with dataplane 0 up and everything acknowledged.
fn settled(events: Vec<RibIn>) -> Rib {
    let mut rib = Rib::new(RibConfig::default());
    rib.handle([interface(1, true, &["10.0.0.1/24"])]);
    rib.handle(events);
    let out = rib.handle([RibIn::DataplaneUp(0)]);
    rib.handle([ack(0, out.replay.last().unwrap().1.seq)]);
    rib
}

fn status(rib: &Rib, prefix: &str) -> InstallStatus {
    rib.status(pfx(prefix))[0].1.clone()
}

#[test]
fn a_route_is_pending_until_its_batch_is_acknowledged() {
    let mut rib = settled(vec![announce("20.0.0.0/8", BGP, &[gw("10.0.0.2")])]);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Installed);
    let first = rib.handle([announce("21.0.0.0/8", BGP, &[gw("10.0.0.2")])]).fib.unwrap();
    let second = rib.handle([announce("22.0.0.0/8", BGP, &[gw("10.0.0.2")])]).fib.unwrap();
    assert_eq!(rib.dataplanes().next().unwrap().outstanding, 2);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Installed);
    assert_eq!(status(&rib, "21.0.0.0/8"), InstallStatus::Pending);
    rib.handle([ack(0, first.seq)]);
    assert_eq!(status(&rib, "21.0.0.0/8"), InstallStatus::Installed);
    assert_eq!(status(&rib, "22.0.0.0/8"), InstallStatus::Pending);
    rib.handle([ack(0, second.seq)]);
    assert_eq!(status(&rib, "22.0.0.0/8"), InstallStatus::Installed);
    assert_eq!(rib.dataplanes().next().unwrap().outstanding, 0);
}

#[test]
fn a_failure_is_kept_with_its_reason_until_the_route_changes() {
    let mut rib = settled(vec![]);
    let seq = rib.handle([announce("20.0.0.0/8", BGP, &[gw("10.0.0.2")])]).fib.unwrap().seq;
    rib.handle([fail(0, seq, "20.0.0.0/8", "the table is full")]);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Failed("the table is full".into()));
    assert_eq!(rib.failed(0).collect::<Vec<_>>(), [(pfx("20.0.0.0/8"), "the table is full")]);
    assert_eq!(rib.explain(pfx("20.0.0.0/8")).unwrap().dataplanes, rib.status(pfx("20.0.0.0/8")));
    let next = rib.handle([announce("20.0.0.0/8", BGP, &[gw("10.0.0.3")])]).fib.unwrap().seq;
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Pending);
    rib.handle([ack(0, next)]);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Installed);
}

#[test]
fn the_failure_of_a_superseded_change_is_ignored() {
    let mut rib = settled(vec![]);
    let old = rib.handle([announce("20.0.0.0/8", BGP, &[gw("10.0.0.2")])]).fib.unwrap().seq;
    let new = rib.handle([announce("20.0.0.0/8", BGP, &[gw("10.0.0.3")])]).fib.unwrap().seq;
    rib.handle([fail(0, old, "20.0.0.0/8", "the gateway is invalid")]);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Pending);
    rib.handle([ack(0, new)]);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Installed);
}

#[test]
fn a_failure_is_taken_back_when_the_dataplane_has_the_route_after_all() {
    let mut rib = settled(vec![]);
    let seq = rib.handle([announce("20.0.0.0/8", BGP, &[gw("10.0.0.2")])]).fib.unwrap().seq;
    rib.handle([fail(0, seq, "20.0.0.0/8", "its link is down")]);
    let out = rib.handle([mend(0, "20.0.0.0/8")]);
    assert!(out.fib.is_none() && out.replay.is_empty());
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Installed);
    assert_eq!(rib.failed(0).count(), 0);
    // Of a change that is under way it says nothing.
    let next = rib.handle([announce("20.0.0.0/8", BGP, &[gw("10.0.0.3")])]).fib.unwrap().seq;
    rib.handle([mend(0, "20.0.0.0/8")]);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Pending);
    rib.handle([fail(0, next, "20.0.0.0/8", "its link is down")]);
    assert_eq!(status(&rib, "20.0.0.0/8"), InstallStatus::Failed("its link is down".into()));
}

#[test]
fn each_dataplane_has_its_own_state() {
    let mut rib = settled(vec![]);
    let page = rib.handle([RibIn::DataplaneUp(3)]).replay.last().unwrap().1.seq;
    rib.handle([ack(3, page)]);
    let seq = rib.handle([announce("20.0.0.0/8", BGP, &[gw("10.0.0.2")])]).fib.unwrap().seq;
    rib.handle([ack(3, seq)]);
    let want = vec![(0, InstallStatus::Pending), (3, InstallStatus::Installed)];
    assert_eq!(rib.status(pfx("20.0.0.0/8")), want);
    rib.handle([RibIn::DataplaneDown(0)]);
    assert_eq!(rib.status(pfx("20.0.0.0/8")), want[1..]);
}

/// 50,000 routes over two groups.
fn many() -> Vec<RibIn> {
    let mut changes: Families<RouteChanges> = Families::default();
    for n in 0..50_000u32 {
        changes.v4.push((Prefix::new(0x6440_0000 + (n << 4), 28), n % 2));
    }
    let sets = vec![set(BGP, &[gw("10.0.0.2")]), set(BGP, &[gw("10.0.0.3")])];
    vec![
        interface(1, true, &["10.0.0.1/24"]),
        RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Bgp, sets, changes }),
    ]
}

#[test]
fn a_replay_is_paged_follows_acknowledgements_and_lets_live_changes_through() {
    let mut live = Bench::with(many());
    let mut late = Model::leftover();
    let deliver = |out: RibOut, late: &mut Model| {
        out.fib.iter().for_each(|batch| late.apply(batch));
        for (_, page) in &out.replay {
            assert!(page.route_count() <= PAGE);
            late.apply(page);
        }
        out.replay.len()
    };
    let out = live.handle(vec![RibIn::DataplaneUp(1)]);
    assert!(out.replay[0].1.start_of_replay);
    let sent = deliver(out, &mut late);
    assert!(sent > 1 && !late.finished);
    // Without acknowledgement no further page comes, but changes do: of routes sent and not yet sent, of both groups.
    let out = live.handle(vec![
        withdraw("100.64.0.0/28", Source::Bgp),
        withdraw("100.70.0.0/28", Source::Bgp),
        announce("100.65.0.0/28", BGP, &[gw("10.0.0.9")]),
        announce("99.0.0.0/8", BGP, &[gw("10.0.0.9")]),
    ]);
    assert!(out.replay.is_empty());
    deliver(out, &mut late);
    let mut rounds = 0;
    while !late.finished {
        let out = live.handle(vec![ack(1, late.seq)]);
        assert!(deliver(out, &mut late) > 0, "an acknowledgement brings the next page");
        rounds += 1;
        assert!(rounds < 50);
    }
    assert_eq!(late.fib(), live.model.fib());
    assert_eq!(late.groups, live.model.groups);
}

#[test]
fn a_replay_ends_only_when_the_sources_have_announced_everything() {
    let config = RibConfig { initial_sources: vec![Source::Static, Source::Bgp], ..RibConfig::default() };
    let mut rib = Rib::new(config);
    let mut model = Model::leftover();
    let mut deliver = |rib: &mut Rib, events: Vec<RibIn>| {
        let out = rib.handle(events);
        out.fib.iter().for_each(|batch| model.apply(batch));
        out.replay.iter().for_each(|(_, page)| model.apply(page));
        (model.finished, model.routes.contains_key(&pfx("99.0.0.0/8")), model.seq)
    };
    let (finished, kept, seq) =
        deliver(&mut rib, vec![RibIn::DataplaneUp(0), RibIn::EndOfInitial(Source::Static)]);
    assert!(!finished && kept, "what was there before stays");
    deliver(&mut rib, vec![ack(0, seq)]);
    let (_, kept, seq) = deliver(&mut rib, vec![interface(1, true, &["10.0.0.1/24"])]);
    assert!(kept);
    deliver(&mut rib, vec![ack(0, seq)]);
    assert_eq!(status(&rib, "10.0.0.0/24"), InstallStatus::Installed, "no need to wait for the end");
    assert!(!rib.dataplanes().next().unwrap().replayed);
    let (finished, kept, _) = deliver(&mut rib, vec![RibIn::EndOfInitial(Source::Bgp)]);
    assert!(finished && !kept, "and goes now");
    assert!(rib.dataplanes().next().unwrap().replayed);
}

#[test]
fn an_empty_rib_replays_a_start_and_an_end() {
    let mut rib = Rib::new(RibConfig::default());
    let out = rib.handle([RibIn::DataplaneUp(0)]);
    let marks: Vec<(bool, bool)> =
        out.replay.iter().map(|(_, p)| (p.start_of_replay, p.end_of_replay)).collect();
    assert_eq!(marks, [(true, false), (false, true)]);
}

#[test]
fn retries_go_through_all_failed_routes_a_page_at_a_time() {
    let mut rib = settled(Vec::new());
    let prefix = |n: usize| format!("20.{}.{}.0/24", n / 256, n % 256);
    let seq = rib.handle((0..PAGE + 10).map(|n| bgp(&prefix(n), "10.0.0.2"))).fib.unwrap().seq;
    let refuse = |rib: &mut Rib, seq, prefixes: &BTreeSet<AnyPrefix>| {
        let failed = prefixes.iter().map(|prefix| ((*prefix).into(), "the table is full".into())).collect();
        rib.handle([RibIn::Ack(FibAck { dataplane: 0, seq, failed, installed: Vec::new() })]);
    };
    let all: BTreeSet<AnyPrefix> = (0..PAGE + 10).map(|n| pfx(&prefix(n))).collect();
    refuse(&mut rib, seq, &all);
    let mut tried = BTreeSet::new();
    for _ in 0..2 {
        let out = rib.handle([RibIn::Retry(0)]);
        let [(0, page)] = &out.replay[..] else { panic!("{out:?}") };
        let mut routes = page.routes.v4.iter().map(|route| route.prefix.any()).collect();
        refuse(&mut rib, page.seq, &routes);
        tried.append(&mut routes);
    }
    assert!(tried == all, "{} of {}", tried.len(), all.len());
}

// ---- a lagging dataplane

fn lag(rib: &Rib, id: DataplaneId) -> Option<usize> {
    rib.dataplane(id).unwrap().lag
}

/// A RIB with two dataplanes, both up, and everything acknowledged.
fn two(events: Vec<RibIn>) -> Rib {
    let mut rib = settled(events);
    let out = rib.handle([RibIn::DataplaneUp(1)]);
    rib.handle([ack(1, out.replay.last().unwrap().1.seq)]);
    rib
}

fn bgp(prefix: &str, gateway: &str) -> RibIn {
    announce(prefix, BGP, &[gw(gateway)])
}

#[test]
fn a_lagging_dataplane_gets_each_dirty_prefix_once_when_little_is_outstanding() {
    let mut rib = two(vec![bgp("20.0.0.0/8", "10.0.0.2"), bgp("21.0.0.0/8", "10.0.0.2")]);
    let full: Vec<u64> =
        (3..9).map(|n| rib.handle([bgp("22.0.0.0/8", &format!("10.0.0.{n}"))]).fib.unwrap().seq).collect();
    let out = rib.handle([RibIn::Lagging(1), bgp("20.0.0.0/8", "10.0.0.3"), bgp("30.0.0.0/8", "10.0.0.3")]);
    assert_eq!((out.lagging, out.replay.len(), out.fib.unwrap().routes.v4.len()), (vec![1], 0, 2));
    rib.handle([withdraw("21.0.0.0/8", Source::Bgp), bgp("31.0.0.0/8", "10.0.0.3")]);
    // Added and withdrawn: the dataplane never gets it.
    rib.handle([withdraw("31.0.0.0/8", Source::Bgp)]);
    rib.handle([bgp("20.0.0.0/8", "10.0.0.4")]);
    assert_eq!((lag(&rib, 0), lag(&rib, 1)), (None, Some(3)));
    assert_eq!(rib.status(pfx("20.0.0.0/8"))[1].1, InstallStatus::Pending);
    assert_eq!(rib.status(pfx("22.0.0.0/8"))[1].1, InstallStatus::Pending);
    assert!(rib.handle([ack(1, full[1])]).replay.is_empty());
    let out = rib.handle([ack(1, full[2])]);
    let [(1, page)] = &out.replay[..] else { panic!("{out:?}") };
    let mut routes: Vec<_> =
        page.routes.v4.iter().map(|r| (r.prefix.to_string(), r.group.is_some())).collect();
    routes.sort();
    let named = |prefix: &str, there| (prefix.to_string(), there);
    assert_eq!(routes, [named("20.0.0.0/8", true), named("21.0.0.0/8", false), named("30.0.0.0/8", true)]);
    assert_eq!(lag(&rib, 1), None);
    // It no longer lags and gets live changes.
    let out = rib.handle([bgp("32.0.0.0/8", "10.0.0.4")]);
    assert!(out.lagging.is_empty() && out.replay.is_empty());
    // A failure of what came late counts as any other, also while later batches are under way.
    assert_eq!(rib.status(pfx("20.0.0.0/8"))[1].1, InstallStatus::Pending);
    rib.handle([fail(1, page.seq, "20.0.0.0/8", "the table is full")]);
    assert_eq!(rib.status(pfx("20.0.0.0/8"))[1].1, InstallStatus::Failed("the table is full".into()));
    assert_eq!(rib.status(pfx("30.0.0.0/8"))[1].1, InstallStatus::Installed);
}

#[test]
fn the_number_of_a_group_that_a_dataplane_still_has_is_not_reused() {
    let mut rib = two(vec![bgp("20.0.0.0/8", "10.0.0.2")]);
    let under_way: Vec<u64> =
        (3..9).map(|n| rib.handle([bgp("22.0.0.0/8", &format!("10.0.0.{n}"))]).fib.unwrap().seq).collect();
    rib.handle([RibIn::Lagging(1)]);
    let out = rib.handle([bgp("20.0.0.0/8", "10.0.0.20")]);
    let [former] = out.fib.unwrap().after[..] else { panic!("a group goes") };
    let groups = |out: &RibOut| out.fib.as_ref().unwrap().groups.iter().map(|op| op.id).collect::<Vec<_>>();
    let out = rib.handle([bgp("24.0.0.0/8", "10.0.0.21"), bgp("25.0.0.0/8", "10.0.0.22")]);
    assert!(!groups(&out).contains(&former), "{out:?}");
    let out = rib.handle([ack(1, *under_way.last().unwrap())]);
    let [(1, page)] = &out.replay[..] else { panic!("{out:?}") };
    assert_eq!(page.after, [former]);
    assert_eq!(page.groups.len(), 3);
    let out = rib.handle([bgp("26.0.0.0/8", "10.0.0.23")]);
    assert_eq!(groups(&out), [former]);
}

#[test]
fn lagging_dataplane_gets_the_new_next_hops_of_a_group_whose_routes_stay() {
    let second = || interface(2, true, &["10.0.2.1/24"]);
    let both = announce("20.0.0.0/8", BGP, &[gw("10.0.0.2"), gw("10.0.2.2")]);
    let mut rib = two(vec![second(), both]);
    let under_way: Vec<u64> =
        (3..9).map(|n| rib.handle([bgp("22.0.0.0/8", &format!("10.0.0.{n}"))]).fib.unwrap().seq).collect();
    rib.handle([RibIn::Lagging(1)]);
    rib.handle([interface(2, false, &["10.0.2.1/24"])]);
    let out = rib.handle([ack(1, *under_way.last().unwrap())]);
    let [(1, page)] = &out.replay[..] else { panic!("{out:?}") };
    let left = FibGroup::Hops(vec![hop("10.0.0.2", 1)]);
    assert!(page.groups.iter().any(|op| op.content == left), "{:?}", page.groups);
    assert!(page.routes.v4.iter().all(|route| route.prefix.any() != pfx("20.0.0.0/8")));
}

#[test]
fn lagging_dataplane_deletes_a_group_after_the_last_page_of_routes_that_used_it() {
    let mut rib = settled(many());
    let mut pages: Vec<FibBatch> = Vec::new();
    let mut out = rib.handle([RibIn::DataplaneUp(1)]);
    while !out.replay.is_empty() {
        pages.extend(out.replay.drain(..).map(|(_, page)| page));
        out = rib.handle([ack(1, pages.last().unwrap().seq)]);
    }
    let under_way: Vec<u64> =
        (3..9).map(|n| rib.handle([bgp("9.0.0.0/8", &format!("10.0.0.{n}"))]).fib.unwrap().seq).collect();
    rib.handle([RibIn::Lagging(1)]);
    let RibIn::Routes(mut batch) = many().remove(1) else { panic!("routes") };
    batch.sets = vec![set(BGP, &[gw("10.0.0.30")]), set(BGP, &[gw("10.0.0.31")])];
    let gone = rib.handle([RibIn::Routes(batch)]).fib.unwrap().after.clone();
    assert!(!gone.is_empty(), "the former groups go");
    let mut out = rib.handle([ack(1, *under_way.last().unwrap())]);
    let first = pages.len();
    while !out.replay.is_empty() {
        pages.extend(out.replay.drain(..).map(|(_, page)| page));
        out = rib.handle([ack(1, pages.last().unwrap().seq)]);
    }
    assert!(pages.len() > first + 2, "the routes take several pages");
    let mut groups = BTreeMap::new();
    for page in &pages {
        groups.extend(page.routes.v4.iter().map(|route| (route.prefix, route.group)));
        for deleted in &page.after {
            let user = groups.iter().find(|(_, group)| **group == Some(*deleted));
            assert_eq!(user, None, "a route uses a group when it is deleted");
        }
    }
    assert!(gone.iter().all(|group| pages[first..].iter().any(|page| page.after.contains(group))));
}

#[test]
fn prefixes_that_keep_changing_delay_no_other_prefix_and_no_confirmation() {
    let config = RibConfig { dataplanes: vec![1], ..RibConfig::default() };
    let mut rib = Rib::new(config);
    rib.handle([RibIn::Suppress(true), interface(1, true, &["10.0.0.1/24"])]);
    let up = rib.handle([RibIn::DataplaneUp(1)]).replay.last().unwrap().1.seq;
    rib.handle([ack(1, up)]);
    let prefix = |n: usize| format!("{}.{}.{}.0/24", 20 + n / 65536, n / 256 % 256, n % 256);
    let mut sent: Vec<u64> =
        (2..8).map(|n| rib.handle([bgp("9.0.0.0/8", &format!("10.0.0.{n}"))]).fib.unwrap().seq).collect();
    rib.handle([RibIn::Lagging(1)]);
    let announced = (0..3 * PAGE).map(|n| bgp(&prefix(n), "10.0.0.2"));
    rib.handle(announced.chain([RibIn::Confirm(FeedFence { announcer: 0, seq: 7 })]));
    let mut resolutions = Vec::new();
    // The prefixes before the fence, and of which of them each page has a route.
    let before: BTreeSet<AnyPrefix> = (0..3 * PAGE).map(|n| pfx(&prefix(n))).collect();
    let (mut pages, mut done) = (BTreeMap::new(), BTreeSet::new());
    for round in 0..20 {
        // Others change between any two of its answers, more than a page each time.
        let gateway = ["10.0.0.2", "10.0.0.3"][round % 2];
        let out = rib.handle((3 * PAGE..5 * PAGE).map(|n| bgp(&prefix(n), gateway)));
        assert!(out.replay.is_empty());
        let acknowledged = sent.remove(0);
        done.append(&mut pages.remove(&acknowledged).unwrap_or_default());
        let out = rib.handle([ack(1, acknowledged)]);
        for (_, page) in &out.replay {
            sent.push(page.seq);
            let routes = page.routes.v4.iter().map(|route| route.prefix.any());
            pages.insert(page.seq, routes.filter(|prefix| before.contains(prefix)).collect::<BTreeSet<_>>());
        }
        assert!(out.confirmed.is_empty() || done == before, "confirmed while {} are there", done.len());
        resolutions.extend(out.confirmed);
        assert!(lag(&rib, 1).is_some_and(|n| n > 0), "it never has everything");
    }
    assert_eq!(resolutions, [FeedFence { announcer: 0, seq: 7 }]);
}
