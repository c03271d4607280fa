//! Confirmation: an announcer gets it when all dataplanes have the prefix, and not before.

use crate::common::*;
use proptest::prelude::*;
use ribtide_prefix::AnyPrefix;
use ribtide_rib::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const BGP: Protocol = Protocol::BgpInternal;

fn ack(dataplane: DataplaneId, seq: u64, failed: &[&str], installed: &[&str]) -> RibIn {
    let failed = failed.iter().map(|p| (pfx(p).into(), "no room".into())).collect();
    RibIn::Ack(FibAck {
        dataplane,
        seq,
        failed,
        installed: installed.iter().map(|p| pfx(p).into()).collect(),
    })
}

fn fence(seq: u64) -> RibIn {
    RibIn::Confirm(FeedFence { announcer: 0, seq })
}

/// A RIB that confirms, with an interface, and with these dataplanes up.
fn confirming(dataplanes: &[DataplaneId]) -> Rib {
    let mut rib = Rib::new(RibConfig { dataplanes: dataplanes.to_vec(), ..RibConfig::default() });
    rib.handle([RibIn::Suppress(true), interface(1, true, &["10.0.0.1/24"])]);
    for id in dataplanes {
        let out = rib.handle([RibIn::DataplaneUp(*id)]);
        rib.handle([ack(*id, out.replay.last().unwrap().1.seq, &[], &[])]);
    }
    rib
}

fn bgp(prefix: &str, gateway: &str) -> RibIn {
    announce(prefix, BGP, &[gw(gateway)])
}

/// The last fence of announcer 0, and the changed blocks.
fn reported(out: &RibOut) -> (Option<u64>, Vec<(String, bool)>) {
    let blocked = out.blocked.iter().map(|(prefix, blocked)| (prefix.to_string(), *blocked));
    (out.confirmed.first().map(|last| last.seq), blocked.collect())
}

fn blocked(prefix: &str, blocked: bool) -> Vec<(String, bool)> {
    vec![(prefix.into(), blocked)]
}

#[test]
fn a_fence_is_returned_when_every_dataplane_is_done() {
    let mut rib = confirming(&[0, 1]);
    let seq = rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)]).fib.unwrap().seq;
    let next = rib.handle([bgp("21.0.0.0/8", "10.0.0.2"), fence(2)]).fib.unwrap().seq;
    assert_eq!(reported(&rib.handle([ack(0, next, &[], &[])])), (None, vec![]));
    assert_eq!(reported(&rib.handle([ack(1, seq, &[], &[])])), (Some(1), vec![]));
    assert_eq!(reported(&rib.handle([ack(1, next, &[], &[])])), (Some(2), vec![]));
}

#[test]
fn without_dataplanes_all_is_confirmed_at_once_and_a_lost_one_confirms_nothing() {
    let mut rib = confirming(&[]);
    assert_eq!(reported(&rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)])), (Some(1), vec![]));
    let mut rib = confirming(&[4]);
    rib.handle([RibIn::DataplaneDown(4)]);
    assert_eq!(reported(&rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)])), (None, vec![]));
    let out = rib.handle([RibIn::DataplaneUp(4)]);
    assert_eq!(reported(&out), (None, vec![]));
    assert_eq!(
        reported(&rib.handle([ack(4, out.replay.last().unwrap().1.seq, &[], &[])])),
        (Some(1), vec![])
    );
}

#[test]
fn added_dataplane_confirms_after_its_replay_and_a_removed_one_holds_up_nothing() {
    let mut rib = confirming(&[0]);
    let seq = rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)]).fib.unwrap().seq;
    assert_eq!(reported(&rib.handle([ack(0, seq, &[], &[])])), (Some(1), vec![]));
    // It must confirm before it is up.
    rib.set_dataplanes(&[0, 1]);
    assert_eq!(reported(&rib.handle([])), (None, vec![]), "what was confirmed stays so");
    let seq = rib.handle([bgp("21.0.0.0/8", "10.0.0.2"), fence(2)]).fib.unwrap().seq;
    assert_eq!(reported(&rib.handle([ack(0, seq, &[], &[])])), (None, vec![]));
    let pages = rib.handle([RibIn::DataplaneUp(1)]).replay;
    assert_eq!(pages.iter().map(|(_, page)| page.route_count()).sum::<usize>(), 4, "and the interface's two");
    assert_eq!(reported(&rib.handle([ack(1, pages.last().unwrap().1.seq, &[], &[])])), (Some(2), vec![]));
    // What it fails is blocked as long as it is there.
    let failed = ["22.0.0.0/8"];
    let seq = rib.handle([bgp(failed[0], "10.0.0.2"), fence(3)]).fib.unwrap().seq;
    rib.handle([ack(0, seq, &[], &[])]);
    assert_eq!(reported(&rib.handle([ack(1, seq, &failed, &[])])), (Some(3), blocked(failed[0], true)));
    let seq = rib.handle([bgp("23.0.0.0/8", "10.0.0.2"), fence(4)]).fib.unwrap().seq;
    assert_eq!(reported(&rib.handle([ack(0, seq, &[], &[])])), (None, vec![]));
    rib.set_dataplanes(&[0]);
    assert_eq!(reported(&rib.handle([])), (Some(4), blocked(failed[0], false)));
    assert_eq!(rib.dataplanes().map(|dataplane| dataplane.id).collect::<Vec<_>>(), [0]);
    assert_eq!(reported(&rib.handle([ack(1, seq, &failed, &[])])), (None, vec![]), "too late");
}

#[test]
fn dataplane_that_holds_routes_back_confirms_nothing_until_it_writes_them() {
    let mut rib = Rib::new(RibConfig { dataplanes: vec![4], ..RibConfig::default() });
    rib.handle([RibIn::Suppress(true), interface(1, true, &["10.0.0.1/24"])]);
    rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)]);
    let page = rib.handle([RibIn::DataplaneUp(4)]).replay.last().unwrap().1.seq;
    let prefix = pfx("20.0.0.0/8");
    let status = |rib: &Rib| rib.status(prefix).remove(0).1;
    assert_eq!(reported(&rib.handle([RibIn::Holding(4, true), ack(4, page, &[], &[])])), (None, vec![]));
    assert_eq!(status(&rib), InstallStatus::Pending);
    assert_eq!(reported(&rib.handle([RibIn::Holding(4, false)])), (Some(1), vec![]));
    assert_eq!(status(&rib), InstallStatus::Installed);
    // A new replay holds nothing back unless it says so.
    rib.handle([RibIn::Holding(4, true), RibIn::DataplaneDown(4)]);
    let page = rib.handle([RibIn::DataplaneUp(4)]).replay.last().unwrap().1.seq;
    rib.handle([ack(4, page, &[], &[])]);
    assert_eq!(status(&rib), InstallStatus::Installed);
}

#[test]
fn a_change_that_keeps_the_fib_is_confirmed_with_earlier_changes() {
    let mut rib = confirming(&[0]);
    let seq = rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)]).fib.unwrap().seq;
    let out = rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(2)]);
    assert!(out.fib.is_none());
    assert_eq!(reported(&out), (None, vec![]));
    assert_eq!(reported(&rib.handle([ack(0, seq, &[], &[])])), (Some(2), vec![]));
    // Another protocol's route wins: the prefix is forwarded, so BGP's path may be advertised.
    let seq = rib.handle([announce("22.0.0.0/8", Protocol::Static, &[dev(1)])]).fib.unwrap().seq;
    rib.handle([ack(0, seq, &[], &[])]);
    assert_eq!(reported(&rib.handle([bgp("22.0.0.0/8", "10.0.0.2"), fence(3)])), (Some(3), vec![]));
}

#[test]
fn a_failure_is_an_exception_and_is_reported_again_with_each_announcement() {
    let mut rib = confirming(&[0]);
    let seq = rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)]).fib.unwrap().seq;
    let failed = ["20.0.0.0/8"];
    assert_eq!(reported(&rib.handle([ack(0, seq, &failed, &[])])), (Some(1), blocked(failed[0], true)));
    // The same again, from another announcer perhaps.
    assert_eq!(
        reported(&rib.handle([bgp(failed[0], "10.0.0.2"), fence(2)])),
        (Some(2), blocked(failed[0], true))
    );
    // Something else: until it is known what became of that, nothing has changed.
    let out = rib.handle([bgp(failed[0], "10.0.0.3"), fence(3)]);
    assert_eq!(reported(&out), (None, blocked(failed[0], true)));
    let seq = out.fib.unwrap().seq;
    assert_eq!(reported(&rib.handle([ack(0, seq, &[], &[])])), (Some(3), blocked(failed[0], false)));
    // It fails later, and is mended.
    assert_eq!(reported(&rib.handle([ack(0, 0, &failed, &[])])), (None, blocked(failed[0], true)));
    assert_eq!(reported(&rib.handle([ack(0, 0, &[], &failed)])), (None, blocked(failed[0], false)));
    // It fails, and is withdrawn: the next announcement starts over.
    rib.handle([ack(0, 0, &failed, &[])]);
    let out = rib.handle([withdraw(failed[0], Source::Bgp), fence(4)]);
    assert_eq!(reported(&out), (None, blocked(failed[0], false)));
    let seq = out.fib.unwrap().seq;
    assert_eq!(reported(&rib.handle([ack(0, seq, &[], &[])])), (Some(4), vec![]));
    assert_eq!(rib.blocked_count(), 0);
}

#[test]
fn a_failure_is_not_over_while_another_dataplane_is_not_done() {
    let mut rib = confirming(&[0, 1]);
    let seq = rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)]).fib.unwrap().seq;
    let failed = ["20.0.0.0/8"];
    assert_eq!(reported(&rib.handle([ack(0, seq, &failed, &[])])), (None, blocked(failed[0], true)));
    assert_eq!(reported(&rib.handle([ack(0, 0, &[], &failed)])), (None, vec![]));
    assert_eq!(reported(&rib.handle([ack(1, seq, &[], &[])])), (Some(1), blocked(failed[0], false)));
}

/// Another program's route takes the place of BGP's. Where it forwards, the prefix is forwarded all the same.
#[test]
fn prefix_that_another_protocol_discards_is_blocked_while_bgp_would_forward_it() {
    let kernel = |next_hops| {
        let set = RouteSet { next_hops, ..set(Protocol::Kernel, &[]) };
        route(pfx("20.0.0.0/8"), Source::Kernel, Some(set))
    };
    for discard in [NextHops::Unreachable, NextHops::Blackhole] {
        let mut rib = confirming(&[0]);
        let acked = |rib: &mut Rib, events: Vec<RibIn>| {
            let out = rib.handle(events);
            let mut all = reported(&out);
            if let Some(fib) = out.fib {
                let (confirmed, blocked) = reported(&rib.handle([ack(0, fib.seq, &[], &[])]));
                all = (confirmed.or(all.0), [all.1, blocked].concat());
            }
            all
        };
        let last = |reported: (Option<u64>, Vec<(String, bool)>)| reported.1.last().unwrap().1;
        // The discard is there first.
        assert_eq!(acked(&mut rib, vec![kernel(discard.clone())]), (None, vec![]));
        let events = vec![bgp("20.0.0.0/8", "10.0.0.2"), fence(1)];
        assert_eq!(acked(&mut rib, events), (Some(1), blocked("20.0.0.0/8", true)));
        // It forwards now, then is a discard again, then gone.
        let forwards = kernel(NextHops::Via(vec![gw("10.0.0.3")]));
        assert!(!last(acked(&mut rib, vec![forwards])));
        assert!(last(acked(&mut rib, vec![kernel(discard.clone())])));
        let gone = vec![withdraw("20.0.0.0/8", Source::Kernel)];
        assert!(!last(acked(&mut rib, gone)));
        // The discard comes second; BGP's own discard, such as an aggregate's, is no difference.
        assert!(last(acked(&mut rib, vec![kernel(discard.clone())])));
        let aggregate = RouteSet { next_hops: NextHops::Blackhole, ..set(BGP, &[]) };
        let events = vec![route(pfx("20.0.0.0/8"), Source::Bgp, Some(aggregate)), fence(2)];
        let (confirmed, changed) = acked(&mut rib, events);
        assert_eq!((confirmed, changed.last().cloned()), (Some(2), Some(("20.0.0.0/8".into(), false))));
        // Switched off and on.
        rib.handle([RibIn::Suppress(false), bgp("20.0.0.0/8", "10.0.0.2")]);
        let out = rib.handle([RibIn::Suppress(true)]);
        assert_eq!(reported(&out).1, blocked("20.0.0.0/8", true));
    }
}

#[test]
fn unresolved_prefix_is_blocked() {
    let mut rib = confirming(&[0]);
    let out = rib.handle([bgp("20.0.0.0/8", "99.0.0.1"), fence(1)]);
    assert!(out.fib.is_none());
    assert_eq!(reported(&out), (Some(1), blocked("20.0.0.0/8", true)));
    let out = rib.handle([announce("99.0.0.0/8", Protocol::Static, &[dev(1)])]);
    assert_eq!(reported(&out), (None, vec![]));
    let seq = out.fib.unwrap().seq;
    assert_eq!(reported(&rib.handle([ack(0, seq, &[], &[])])), (None, blocked("20.0.0.0/8", false)));
    let out = rib.handle([withdraw("99.0.0.0/8", Source::Static)]);
    assert_eq!(reported(&out), (None, blocked("20.0.0.0/8", true)));
}

#[test]
fn a_retry_goes_to_its_dataplane_and_failure_lasts_until_it_succeeds() {
    let mut rib = confirming(&[0, 1]);
    rib.set_time(17);
    let seq = rib.handle([bgp("20.0.0.0/8", "10.0.0.2"), fence(1)]).fib.unwrap().seq;
    rib.handle([ack(1, seq, &["20.0.0.0/8"], &[]), ack(0, seq, &[], &[])]);
    rib.set_time(18);
    let again = |rib: &mut Rib| {
        let out = rib.handle([RibIn::Retry(0), RibIn::Retry(1)]);
        let [(1, page)] = &out.replay[..] else { panic!("to the one that failed it: {out:?}") };
        assert_eq!((page.routes.v4.len(), reported(&out)), (1, (None, vec![])));
        page.seq
    };
    let seq = again(&mut rib);
    assert_eq!(reported(&rib.handle([ack(1, seq, &["20.0.0.0/8"], &[])])), (None, vec![]));
    let mut cursor = rib.failed_cursor();
    cursor.sort();
    let failed = rib.failed_page(&mut cursor, 10);
    assert!(cursor.is_done());
    let reason = String::from("no room");
    assert_eq!(failed, [FailedRoute { prefix: pfx("20.0.0.0/8"), dataplane: 1, reason, since: 17 }]);
    let seq = again(&mut rib);
    let out = rib.handle([ack(1, seq, &[], &["20.0.0.0/8"])]);
    assert_eq!(reported(&out), (None, blocked("20.0.0.0/8", false)));
    assert!(rib.handle([RibIn::Retry(1)]).replay.is_empty());
}

#[test]
fn suppression_reports_missing_prefixes_when_on_and_nothing_when_off() {
    let mut rib = confirming(&[0]);
    assert_eq!(reported(&rib.handle([RibIn::Suppress(false)])), (None, vec![]));
    let out = rib.handle([bgp("20.0.0.0/8", "99.0.0.1"), bgp("21.0.0.0/8", "10.0.0.2"), fence(1)]);
    assert_eq!(reported(&out), (None, vec![]));
    let out = rib.handle([ack(0, out.fib.unwrap().seq, &["21.0.0.0/8"], &[])]);
    assert_eq!(reported(&out), (None, vec![]));
    let mut reported = reported(&rib.handle([RibIn::Suppress(true)]));
    reported.1.sort();
    assert_eq!(reported, (None, vec![("20.0.0.0/8".into(), true), ("21.0.0.0/8".into(), true)]));
}

// ---- against a naive model

const PREFIXES: [&str; 6] =
    ["20.0.0.0/8", "20.1.0.0/16", "21.0.0.0/8", "22.0.0.0/8", "2001:db8:1::/48", "2001:db8:2::/48"];
const GATEWAYS: [&str; 5] = ["10.0.0.2", "10.0.0.3", "10.1.0.1", "20.1.0.1", "99.0.0.1"];

#[derive(Clone, Debug)]
enum Event {
    /// BGP announces it by this gateway, or withdraws it.
    Bgp(usize, Option<usize>),
    /// BGP announces it again as it is, on the other announcer: it has moved.
    Move(usize),
    /// A static route comes or goes.
    Static(usize, Option<usize>),
    /// The second interface rises or falls.
    Link(bool),
    /// The same in the urgent queue, before anything else is done about it.
    Fail(bool),
    /// The RIB manager reselects more routes.
    Reselect,
    /// A dataplane finishes some batches, and fails some prefixes of them.
    Finish {
        plane: usize,
        batches: usize,
        failed: Vec<usize>,
    },
    /// A dataplane loses an installed route, or installs a failed one.
    LateOutcome {
        plane: usize,
        prefix: usize,
        fails: bool,
    },
    Up(usize),
    Down(usize),
    /// The RIB manager no longer waits for it.
    Lagging(usize),
    Retry(usize),
}

/// A dataplane: its queued batches, and its state.
#[derive(Default)]
struct Plane {
    up: bool,
    /// Whether its replay has begun: earlier batches build on state that it does not have.
    began: bool,
    waiting: VecDeque<Arc<FibBatch>>,
    urgent: Vec<UrgentOp>,
    urgent_queue: UrgentQueue,
    groups: BTreeMap<GroupId, FibGroup>,
    /// What it did last about a prefix.
    done: BTreeMap<AnyPrefix, Done>,
    failed: BTreeSet<AnyPrefix>,
}

/// With which batch something was done about a prefix, by which group it is routed since, and whether that failed.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    seq: u64,
    group: Option<GroupId>,
    fails: bool,
}

impl Plane {
    /// Whether it forwards by its route for a prefix.
    fn has(&self, prefix: AnyPrefix) -> bool {
        let done = self.done.get(&prefix).filter(|done| !done.fails);
        let content = done.and_then(|done| self.groups.get(&done.group?));
        content.is_some_and(|content| *content != FibGroup::Unresolved)
    }

    /// The next thing to do, what is urgent first.
    fn next(&mut self) -> Option<Arc<FibBatch>> {
        let ops = std::mem::take(&mut self.urgent);
        if let Some(now) = self.urgent_queue.urgent(&ops) {
            self.groups.extend(now.groups.into_iter().map(|op| (op.id, op.content)));
        }
        let batch = self.waiting.pop_front()?;
        let batch = self.urgent_queue.in_order(batch);
        self.began |= batch.start_of_replay;
        self.groups.extend(batch.groups.iter().map(|op| (op.id, op.content.clone())));
        Some(batch)
    }

    /// Deletes groups: no route has them.
    fn delete(&mut self, groups: &[GroupId]) {
        for group in groups.iter().filter(|_| self.began) {
            let user = self.done.iter().find(|(_, done)| done.group == Some(*group));
            assert!(user.is_none(), "{group:?} goes and {user:?} has it");
            assert!(self.groups.remove(group).is_some(), "{group:?} goes and was never there");
        }
    }
}

/// An announcer: the naive version of a BGP shard's confirmations.
#[derive(Default)]
struct Announcer {
    seqs: [u64; 2],
    /// The announcer of each prefix, the mark that it waits for, and the batch that the RIB made of its last announcement.
    waits: BTreeMap<AnyPrefix, (u32, u64)>,
    announcer: BTreeMap<AnyPrefix, u32>,
    blocked: BTreeSet<AnyPrefix>,
    announced: BTreeMap<AnyPrefix, usize>,
    advertised: BTreeSet<AnyPrefix>,
}

struct Check {
    rib: Rib,
    planes: [Plane; 2],
    bgp: Announcer,
    /// The last batch for all that named a prefix.
    changed: BTreeMap<AnyPrefix, u64>,
    /// Of each prefix that waits: the batch that must be done.
    needs: BTreeMap<AnyPrefix, u64>,
}

fn prefixes(batch: &FibBatch) -> Vec<(AnyPrefix, Option<GroupId>)> {
    let v4 = batch.routes.v4.iter().map(|r| (r.prefix.any(), r.group));
    v4.chain(batch.routes.v6.iter().map(|r| (r.prefix.any(), r.group))).collect()
}

impl Check {
    fn new(turn: usize) -> Check {
        let config = RibConfig { dataplanes: vec![0, 1], turn, ..RibConfig::default() };
        let mut check = Check {
            rib: Rib::new(config),
            planes: Default::default(),
            bgp: Announcer::default(),
            changed: BTreeMap::new(),
            needs: BTreeMap::new(),
        };
        check.handle(vec![RibIn::Suppress(true), interface(1, true, &["10.0.0.1/24", "2001:db8::1/64"])]);
        check.handle(vec![interface(2, true, &["10.1.0.9/24"])]);
        check
    }

    fn handle(&mut self, events: Vec<RibIn>) {
        let out = self.rib.handle(events);
        if let Some(batch) = &out.fib {
            for (prefix, _) in prefixes(batch) {
                self.changed.insert(prefix, batch.seq);
            }
            let batch = Arc::new(batch.clone());
            let gets = |id: &usize| !out.lagging.contains(&(*id as u8));
            (0..2).filter(gets).for_each(|id| {
                if self.planes[id].up {
                    self.planes[id].waiting.push_back(batch.clone());
                }
            });
        }
        for (id, page) in out.replay {
            self.planes[usize::from(id)].waiting.push_back(Arc::new(page));
        }
        for prefix in self.bgp.waits.keys() {
            self.needs.entry(*prefix).or_insert(self.changed.get(prefix).copied().unwrap_or(0));
        }
        for (prefix, blocked) in out.blocked {
            if blocked && self.bgp.announced.contains_key(&prefix) {
                self.bgp.blocked.insert(prefix);
                self.bgp.advertised.remove(&prefix);
            } else if !blocked && self.bgp.blocked.remove(&prefix) && !self.bgp.waits.contains_key(&prefix) {
                self.advertise(prefix);
            }
        }
        for fence in out.confirmed {
            let ready = |wait: &(u32, u64)| wait.0 == fence.announcer && wait.1 <= fence.seq;
            let ready: Vec<AnyPrefix> =
                self.bgp.waits.iter().filter(|(_, wait)| ready(wait)).map(|(prefix, _)| *prefix).collect();
            for prefix in ready {
                self.bgp.waits.remove(&prefix);
                if !self.bgp.blocked.contains(&prefix) {
                    self.advertise(prefix);
                }
            }
        }
        // What a dataplane is known to have failed is not advertised.
        for prefix in &self.bgp.advertised {
            let failed = (0..2).any(|id| self.rib.failed(id).any(|(failed, _)| failed == *prefix));
            assert!(!failed, "{prefix} is advertised and has failed");
            // A route that lost its next hop is withdrawn in a later turn.
            assert!(
                self.rib.lookup(*prefix).is_some() || self.rib.has_more(),
                "{prefix} is advertised and is unresolved"
            );
        }
    }

    fn advertise(&mut self, prefix: AnyPrefix) {
        let needs = self.needs.remove(&prefix).unwrap_or(0);
        for plane in &self.planes {
            let (done, has) = (plane.done.get(&prefix).map_or(0, |done| done.seq), plane.has(prefix));
            assert!(
                plane.up && has && done >= needs,
                "{prefix} is confirmed too early: {done} of {needs}, {has}"
            );
            assert!(!plane.failed.contains(&prefix), "{prefix} is confirmed and failed");
        }
        assert!(self.rib.lookup(prefix).is_some(), "{prefix} is confirmed and is unresolved");
        self.bgp.advertised.insert(prefix);
    }

    fn feed(&mut self, prefix: AnyPrefix, gateway: Option<usize>) {
        let announcer = *self.bgp.announcer.entry(prefix).or_insert(0);
        self.bgp.seqs[announcer as usize] += 1;
        let seq = self.bgp.seqs[announcer as usize];
        self.bgp.blocked.remove(&prefix);
        self.needs.remove(&prefix);
        let set = gateway.map(|g| set(BGP, &[gw(GATEWAYS[g])]));
        match gateway {
            Some(gateway) => {
                self.bgp.announced.insert(prefix, gateway);
                self.bgp.waits.insert(prefix, (announcer, seq));
            }
            None => {
                self.bgp.announced.remove(&prefix);
                self.bgp.waits.remove(&prefix);
                self.bgp.advertised.remove(&prefix);
            }
        }
        self.handle(vec![route(prefix, Source::Bgp, set), RibIn::Confirm(FeedFence { announcer, seq })]);
    }

    fn finish(&mut self, id: usize, batches: usize, failed: &[AnyPrefix]) {
        let plane = &mut self.planes[id];
        let mut ack = FibAck { dataplane: id as u8, seq: 0, failed: vec![], installed: vec![] };
        let mut outcomes = BTreeMap::new();
        for _ in 0..batches {
            let Some(batch) = plane.next() else { break };
            ack.seq = batch.seq;
            for (prefix, group) in prefixes(&batch) {
                let fails = group.is_some() && failed.contains(&prefix);
                let has_group = group.is_none_or(|group| plane.groups.contains_key(&group));
                assert!(
                    has_group || !plane.began,
                    "{prefix} uses {group:?}, which dataplane {id} does not have"
                );
                plane.done.insert(prefix, Done { seq: batch.seq, group, fails });
                outcomes.insert(prefix, fails);
            }
            plane.delete(&batch.after);
        }
        for (prefix, fails) in outcomes {
            if fails {
                plane.failed.insert(prefix);
                ack.failed.push((prefix.into(), "no room".into()));
            } else if plane.failed.remove(&prefix) {
                ack.installed.push(prefix.into());
            }
        }
        if ack.seq > 0 {
            self.handle(vec![RibIn::Ack(ack)]);
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Bgp(prefix, gateway) => self.feed(pfx(PREFIXES[*prefix]), *gateway),
            Event::Move(prefix) => {
                let prefix = pfx(PREFIXES[*prefix]);
                if let Some(gateway) = self.bgp.announced.get(&prefix).copied() {
                    let announcer = self.bgp.announcer.entry(prefix).or_insert(0);
                    *announcer = 1 - *announcer;
                    // What was advertised needs no answer.
                    if !self.bgp.advertised.contains(&prefix) {
                        self.feed(prefix, Some(gateway));
                    }
                }
            }
            Event::Static(prefix, gateway) => {
                let set = gateway.map(|g| set(Protocol::Static, &[gw(GATEWAYS[g])]));
                self.handle(vec![route(pfx(PREFIXES[*prefix]), Source::Static, set)]);
            }
            Event::Link(up) => self.handle(vec![interface(2, *up, &["10.1.0.9/24"])]),
            Event::Fail(up) => {
                let urgent = self.rib.urgent([interface(2, *up, &["10.1.0.9/24"])]);
                self.planes.iter_mut().filter(|p| p.up).for_each(|p| p.urgent.extend(urgent.clone()));
            }
            Event::Reselect => self.handle(vec![]),
            Event::Finish { plane, batches, failed } => {
                let failed: Vec<AnyPrefix> = failed.iter().map(|n| pfx(PREFIXES[*n])).collect();
                self.finish(*plane, *batches, &failed);
            }
            Event::LateOutcome { plane: id, prefix, fails } => {
                let (prefix, plane) = (pfx(PREFIXES[*prefix]), &mut self.planes[*id]);
                let Some(done) = plane.done.get_mut(&prefix).filter(|_| plane.up) else { return };
                let mut ack = FibAck { dataplane: *id as u8, seq: 0, failed: vec![], installed: vec![] };
                match fails {
                    true if done.group.is_some() && !done.fails => {
                        done.fails = true;
                        plane.failed.insert(prefix);
                        ack.failed.push((prefix.into(), "it is gone".into()));
                    }
                    false if plane.failed.remove(&prefix) => {
                        done.fails = false;
                        ack.installed.push(prefix.into());
                    }
                    _ => return,
                }
                self.handle(vec![RibIn::Ack(ack)]);
            }
            Event::Up(id) => {
                self.planes[*id] = Plane { up: true, ..Plane::default() };
                self.handle(vec![RibIn::DataplaneUp(*id as u8)]);
            }
            Event::Down(id) => {
                self.planes[*id] = Plane::default();
                self.handle(vec![RibIn::DataplaneDown(*id as u8)]);
            }
            Event::Lagging(id) => self.handle(vec![RibIn::Lagging(*id as u8)]),
            Event::Retry(id) => self.handle(vec![RibIn::Retry(*id as u8)]),
        }
    }

    /// All dataplanes come up and apply all batches without failure: then exactly the FIB's routes are advertised.
    fn settle(mut self) {
        self.handle(vec![]);
        while self.rib.has_more() {
            self.handle(vec![]);
        }
        for id in 0..2 {
            if !self.planes[id].up {
                self.happen(&Event::Up(id));
            }
            while !self.planes[id].waiting.is_empty() {
                self.finish(id, usize::MAX, &[]);
            }
            self.handle(vec![RibIn::Retry(id as u8)]);
            self.finish(id, usize::MAX, &[]);
        }
        let in_fib = |prefix: &&AnyPrefix| self.rib.lookup(**prefix).is_some();
        let expected: BTreeSet<AnyPrefix> = self.bgp.announced.keys().filter(in_fib).copied().collect();
        assert_eq!(self.bgp.advertised, expected);
        assert!(self.rib.blocked().all(|prefix| self.rib.lookup(prefix).is_none()));
        assert_eq!(self.rib.fences(), 0);
        assert!(self.rib.dataplanes().all(|d| d.outstanding == 0 && d.lag.is_none()));
        for plane in &self.planes {
            let routes = plane.done.iter().filter_map(|(prefix, done)| Some((*prefix, done.group?)));
            let has: BTreeMap<AnyPrefix, &FibGroup> =
                routes.map(|(prefix, group)| (prefix, &plane.groups[&group])).collect();
            let routes = self.rib_routes();
            let wanted = routes.iter().map(|(prefix, content)| (*prefix, content)).collect();
            assert_eq!(has, wanted);
        }
    }

    /// The expected FIB.
    fn rib_routes(&self) -> BTreeMap<AnyPrefix, FibGroup> {
        let (mut cursor, mut routes) = (self.rib.cursor(), BTreeMap::new());
        while !cursor.is_done() {
            routes.extend(
                self.rib.page(&mut cursor, 100).into_iter().map(|route| (route.prefix, route.content)),
            );
        }
        routes
    }
}

fn event() -> impl Strategy<Value = Event> {
    let (prefix, gateway) = (0..PREFIXES.len(), 0..GATEWAYS.len());
    let some = prop::collection::vec(0..PREFIXES.len(), 0..2);
    prop_oneof![
        8 => (prefix.clone(), prop::option::weighted(0.8, gateway.clone())).prop_map(|(p, g)| Event::Bgp(p, g)),
        2 => prefix.clone().prop_map(Event::Move),
        2 => (prefix.clone(), prop::option::of(gateway)).prop_map(|(p, g)| Event::Static(p, g)),
        2 => any::<bool>().prop_map(Event::Link),
        3 => any::<bool>().prop_map(Event::Fail),
        2 => Just(Event::Reselect),
        8 => (0..2usize, 1..4usize, some).prop_map(|(plane, batches, failed)| Event::Finish { plane, batches, failed }),
        2 => (0..2usize, prefix, any::<bool>()).prop_map(|(plane, prefix, fails)| Event::LateOutcome { plane, prefix, fails }),
        1 => (0..2usize).prop_map(Event::Up),
        1 => (0..2usize).prop_map(Event::Down),
        3 => (0..2usize).prop_map(Event::Lagging),
        1 => (0..2usize).prop_map(Event::Retry),
    ]
}

fn play(events: &[Event], turn: usize) {
    let mut check = Check::new(turn);
    (0..2).for_each(|id| check.happen(&Event::Up(id)));
    events.iter().for_each(|event| check.happen(event));
    check.settle();
}

#[test]
fn a_blocked_prefix_whose_group_comes_back_waits_for_the_batch_that_brings_it() {
    use Event::*;
    let finish = |plane, batches| Finish { plane, batches, failed: vec![] };
    let events = [
        finish(1, 2),
        Reselect,
        finish(0, 1),
        Bgp(2, Some(3)),
        Bgp(1, Some(2)),
        finish(0, 2),
        finish(1, 1),
        Fail(false),
        finish(1, 1),
        Link(true),
    ];
    play(&events, 1);
}

#[test]
fn a_prefix_that_is_tried_again_waits_for_the_batch_that_brings_its_group_back() {
    use Event::*;
    let finish = |plane, batches, failed| Finish { plane, batches, failed };
    let events = [
        Bgp(0, Some(2)),
        Up(0),
        finish(1, 1, vec![]),
        Bgp(1, None),
        finish(0, 2, vec![0]),
        finish(1, 3, vec![]),
        finish(0, 1, vec![]),
        Retry(0),
        Fail(false),
        Link(true),
        finish(0, 1, vec![]),
    ];
    play(&events, 1);
}

#[test]
fn failure_is_sent_at_once_while_the_group_is_unresolved() {
    use Event::*;
    let finish = |plane, batches| Finish { plane, batches, failed: vec![] };
    let events = [
        Bgp(4, Some(0)),
        finish(0, 4),
        finish(1, 4),
        Bgp(0, Some(2)),
        Bgp(4, Some(2)),
        Bgp(0, Some(2)),
        finish(1, 2),
        Fail(false),
        LateOutcome { plane: 1, prefix: 4, fails: true },
    ];
    play(&events, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_route_is_confirmed_when_it_is_installed_and_not_before(
        events in prop::collection::vec(event(), 1..60),
        turn in prop::sample::select(&[1usize, 2048][..]),
    ) {
        play(&events, turn);
    }
}
