//! The whole router on SONiC's path, in one thread: BGP, the RIB manager, the FPM client, fpmsyncd,
//! orchagent, syncd and the virtual switch, each the machine of the product, against a simulated
//! clock, kernel, Redis, connections and chip that fail.
//!
//! A seed draws a [`Script`]: the network's events, which stage works next, and faults. The
//! senders' own tables are the truth. Checked on the way: no acknowledgement before the chip has the
//! route, no advertisement before its confirmation, no queue beyond its bound, no group removed in
//! use. Checked when the faults have stopped: after a bounded number of steps every stage agrees.
//!
//! `docs/adr/0026` says what is outside of the simulation.

mod chip;
mod database;
mod fpm;
mod orchagent;
mod script;
mod zmq;

pub use chip::{Chip, Refusal};
pub use orchagent::SyncdStart;
pub use script::{Action, Break, Fault, Persistence, Script, Stage};

use crate::campaign::{self, Coverage};
use crate::network::Event;
use crate::routing::Routing;
use fpm::{BATCHES, Client, ClientNews, Server};
use orchagent::{ApplDb, Orchagent};
use ribtide_prefix::{AnyPrefix, Rng, for_each_family};
use ribtide_rib::{
    DataplaneId, FibAck, FibBatch, FibGroup, GroupId, InstallStatus, Protocol, RibIn, VrfPrefix,
};
use ribtide_swss::row::NeighKey;
use ribtide_swss::sai::{PacketAction, Status};
use ribtide_vswitch::Forward;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::OnceLock;

const DATAPLANE: DataplaneId = 0;
/// Simulated milliseconds after which all stages agree once the faults have stopped: several times
/// the longest timer that they wait for, which is the damping of next hops.
const SETTLE_MS: u64 = 900_000;
/// A pause in which the FPM client sends a route with an unclear reply again.
const MOMENT_MS: u64 = 1000;
/// The longest pause at the end of a run. A pause grows while nothing is due.
const PAUSE_MAX_MS: u64 = 60_000;
/// A pause has grown beyond this after some moments without a change.
const QUIET_MS: u64 = 5 * MOMENT_MS;
/// Steps of all stages without a pass of time after which they are idle.
const STEPS_MAX: usize = 20_000;
/// Milliseconds between two attempts of the RIB manager at failed routes.
const RETRY_MS: u64 = 1000;

/// Milliseconds between two comparisons of the chip with syncd's table: the default of
/// `--reconcile-interval`.
const RECONCILE_MS: u64 = 60_000;
/// The same for APPL_DB. Often, so that many changes are under way while it is compared.
const COMPARE_MS: u64 = 1000;

/// Prints what happens between the stages when `RIBTIDE_TRACE` is set.
pub(crate) fn trace(what: impl FnOnce() -> String) {
    static ON: OnceLock<bool> = OnceLock::new();
    if *ON.get_or_init(|| std::env::var_os("RIBTIDE_TRACE").is_some()) {
        eprintln!("{}", what());
    }
}

/// A running router.
pub struct Router<'s> {
    script: &'s Script,
    routing: Routing<'s>,
    client: Client,
    server: Server,
    appl: ApplDb,
    orchagent: Orchagent,
    now_ms: u64,
    retried_ms: u64,
    sent: Sent,
    coverage: Coverage,
    /// Whether the chip may lack what it had, because of a restart that empties it.
    disturbed: bool,
    /// Another program, or the chip itself, changed the chip since it was compared.
    foreign_change: bool,
    /// Another program, or an older Redis, changed rows of ASIC_DB since they were compared.
    rows_changed: bool,
    reconciled_ms: u64,
    /// APPL_DB lost changes that orchagent did not take.
    appl_db_lost: bool,
    compared_ms: u64,
    /// fpmsyncd lost a frame: the rounds of the comparison of its table by then. Until another complete
    /// round its table may differ.
    frame_lost: Option<u64>,
    /// Whether a frame was lost in this run.
    has_lost_frames: bool,
}

/// What the RIB manager sent to the dataplane.
#[derive(Default)]
struct Sent {
    /// The content of each group, and the batch that changed it.
    groups: BTreeMap<GroupId, (FibGroup, u64)>,
    /// Of each route the batch that changed it, and its group.
    routes: BTreeMap<AnyPrefix, (u64, GroupId)>,
    failed: BTreeSet<AnyPrefix>,
    /// The last acknowledged batch.
    acknowledged: u64,
    /// The first batch of the replay; before one, the RIB manager counts no acknowledgement.
    replay: Option<u64>,
}

impl Sent {
    fn note(&mut self, batch: &FibBatch) {
        if batch.start_of_replay {
            *self = Sent { replay: Some(batch.seq), ..Sent::default() };
        }
        for op in &batch.groups {
            self.groups.insert(op.id, (op.content.clone(), batch.seq));
        }
        for_each_family!(F => for route in batch.routes.get::<F>() {
            let prefix = route.prefix.any();
            // The kernel and the RIB manager make the others.
            let ours = !matches!(route.protocol, Protocol::Connected | Protocol::Kernel);
            match route.group.filter(|_| ours) {
                Some(group) => self.routes.insert(prefix, (batch.seq, group)),
                None => self.routes.remove(&prefix),
            };
            if !batch.again {
                self.failed.remove(&prefix);
            }
        });
    }
}

impl<'s> campaign::Router<'s> for Router<'s> {
    type Script = Script;

    fn new(script: &'s Script) -> Router<'s> {
        let suppress = script.setup.suppress;
        let mut orchagent = Orchagent::new(suppress, script.window, script.zmq.is_some());
        let mut appl = ApplDb::default();
        Router {
            script,
            routing: Routing::new(&script.network, script.setup, DATAPLANE),
            client: Client::new(DATAPLANE, script.next_hop_groups, suppress),
            server: Server::new(suppress, script.zmq, &mut appl, &mut orchagent),
            appl,
            orchagent,
            now_ms: 0,
            retried_ms: 0,
            sent: Sent::default(),
            coverage: Coverage::new(),
            disturbed: false,
            foreign_change: false,
            rows_changed: false,
            reconciled_ms: 0,
            appl_db_lost: false,
            compared_ms: 0,
            frame_lost: None,
            has_lost_frames: false,
        }
    }

    fn sabotage(&mut self, what: Break) {
        match what {
            Break::LostWithdrawal => self.server.loses_deletions = true,
            Break::EarlyAcknowledgement => self.server.confirms_early = true,
            Break::KeptRoute => self.orchagent.chip().keeps_routes = true,
            Break::FormerNextHop => self.orchagent.chip().keeps_next_hops = true,
            Break::GroupDeletedInUse => self.server.deletes_groups = true,
            Break::LostReply => self.orchagent.loses_replies = true,
            Break::SwallowedError => self.orchagent.chip().lies = true,
            Break::NoResend => self.server.resends_nothing = true,
            Break::LostReport => self.orchagent.loses_reports = true,
            Break::TrustedSyncd => self.orchagent.trusts_syncd = true,
        }
    }

    fn act(&mut self, number: usize) -> Result<(), String> {
        match &self.script.actions[number] {
            Action::Event(number) => self.event(&self.script.network.events[*number]),
            Action::Step(stage, seed) => drop(self.step(*stage, &mut Rng::new(*seed))),
            Action::Fault(fault, seed) => self.fault(*fault, &mut Rng::new(*seed)),
            Action::Pass(ms) => return self.pass(*ms),
            Action::Settle => return self.settle(),
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        self.orchagent.chip().accept_all();
        (self.server.refused_writes, self.server.lost_frames) = (0, 0);
        self.orchagent.zmq.iter_mut().for_each(|zmq| zmq.refuses = 0);
        let end = self.now_ms + SETTLE_MS;
        let rng = &mut Rng::new(self.script.seed);
        let mut pause = MOMENT_MS;
        loop {
            let mut steps = 0;
            while !self.is_idle() && steps < STEPS_MAX {
                let of_zmq = Stage::ZMQ.into_iter().filter(|_| self.script.zmq.is_some());
                for stage in Stage::ALL.into_iter().chain(of_zmq) {
                    self.step(stage, rng);
                }
                self.routing.egress.unblock();
                steps += Stage::ALL.len();
                // Without a connection the client waits for its time, and rounds in which all others are idle do nothing.
                if steps.is_multiple_of(200 * Stage::ALL.len()) || self.only_client_waits() {
                    self.pass(100)?;
                }
            }
            let why = if self.is_idle() {
                match self.disagreement() {
                    // Delayed notifications of flapping next hops.
                    None if self.routing.rib.next_due().is_some_and(|due| due <= end) => {
                        let due = self.routing.rib.next_due().unwrap_or(end);
                        self.pass(due.saturating_sub(self.now_ms))?;
                        continue;
                    }
                    None if !self.compare_appl_db()? || !self.reconcile()? => continue,
                    None if self.awaits_comparison() && self.now_ms < end + SETTLE_MS => {
                        self.pass(MOMENT_MS)?;
                        continue;
                    }
                    None if self.awaits_comparison() => return Err("fpmsyncd is not compared".into()),
                    None => {
                        self.frame_lost = None;
                        let repaired = self.client.compared().1;
                        if repaired > 0 && !self.has_lost_frames {
                            return Err(format!("{repaired} repairs at fpmsyncd, which lost no frame"));
                        }
                        self.disturbed = false;
                        self.appl_db_lost = false;
                        self.routing.compare();
                        return Ok(());
                    }
                    Some(found) => found,
                }
            } else {
                format!("a stage still works after {steps} steps: {}", self.busy())
            };
            let is_quiet = pause > QUIET_MS;
            if self.now_ms >= end && (is_quiet || self.now_ms >= end + SETTLE_MS) {
                return Err(why);
            }
            // Next hops in a circle change for ever, at the damped rate. The routes that change with them are confirmed
            // some moments later. A jump over the next change would count as silence, and start its back-off again.
            let left = self.routing.rib.next_due().map_or(u64::MAX, |due| due.saturating_sub(self.now_ms));
            if left > MOMENT_MS {
                self.pass(pause.min(left - 1))?;
                pause = (pause * 5 / 4).min(PAUSE_MAX_MS);
            } else {
                self.pass(left.max(1))?;
                pause = MOMENT_MS;
            }
        }
    }

    fn coverage(&self) -> Coverage {
        self.coverage.clone()
    }

    fn handled(&self) -> u64 {
        self.orchagent.handled
    }
}

impl Router<'_> {
    fn event(&mut self, event: &Event) {
        // A shortened script may have lost the event before.
        let (peer, needs) = match event {
            Event::Up(peer) => (*peer, false),
            Event::Down(peer) | Event::Lose(peer) => (*peer, true),
            Event::Announce(peer, ..) | Event::Withdraw(peer, _) => (*peer, true),
            Event::Sweep(_) | Event::Network(_) => (usize::MAX, false),
        };
        if self.routing.is_up(peer) != needs {
            return;
        }
        trace(|| format!("{event:?}"));
        self.routing.happen(event);
        if let Event::Network(RibIn::Interface(interface)) = event {
            self.orchagent.link(&interface.name, interface.up);
        }
    }

    /// fpmsyncd lost a frame.
    fn lost_frame(&mut self) {
        self.frame_lost = Some(self.client.compared().0);
        (self.disturbed, self.has_lost_frames) = (true, true);
        self.count(Some("frame lost at the FPM server"));
    }

    /// Whether fpmsyncd lost a frame since the start of the last complete comparison of its table.
    fn awaits_comparison(&self) -> bool {
        // The first round may have begun before.
        self.frame_lost.is_some_and(|rounds| self.client.compared().0 < rounds + 2)
    }

    /// A stage works. Returns whether it had work.
    fn step(&mut self, stage: Stage, rng: &mut Rng) -> bool {
        let Router { routing, client, server, appl, orchagent, now_ms, .. } = self;
        let worked = match stage {
            Stage::Shards => {
                routing.decide(rng);
                false
            }
            Stage::Egress => {
                routing.export(rng);
                false
            }
            // It takes nothing while a dataplane has no room.
            Stage::Rib if client.queue.len() >= BATCHES => false,
            Stage::Rib => {
                routing.resolve(rng);
                false
            }
            Stage::Feedback => {
                routing.answer(rng);
                false
            }
            Stage::Client => {
                let news = client.step(*now_ms, server, rng);
                news.into_iter().for_each(|news| self.news(news));
                false
            }
            Stage::Server => {
                server.step(*now_ms, client, appl, orchagent, rng);
                if std::mem::take(&mut server.has_lost) {
                    self.lost_frame();
                }
                false
            }
            Stage::Flush => server.flush(appl, orchagent, client),
            Stage::Orchagent => {
                orchagent.run(appl, rng);
                false
            }
            Stage::Syncd => orchagent.handle(),
            Stage::Reply => orchagent.reply(0),
            Stage::Response => server.respond(client, orchagent),
            Stage::Kernel => orchagent.resolve(rng),
            Stage::Connect => {
                let is_refused = !orchagent.accept();
                self.count(is_refused.then_some("ZeroMQ connection refused"));
                false
            }
            Stage::WriteBehind => {
                server.write_behind(appl, rng);
                false
            }
        };
        while let Some(batch) = self.routing.fib.pop_front() {
            trace(|| format!("to the FPM client: {batch:?}"));
            self.sent.note(&batch);
            self.client.queue.push_back(batch);
        }
        // A turn of the RIB manager may have several batches, which wait for room in the router.
        assert!(self.client.queue.len() <= 2 * BATCHES, "the queue of the FPM client is beyond its bound");
        worked
    }

    fn news(&mut self, news: ClientNews) {
        let event = match news {
            ClientNews::Up => {
                self.sent.replay = None;
                RibIn::DataplaneUp(DATAPLANE)
            }
            ClientNews::Down => RibIn::DataplaneDown(DATAPLANE),
            ClientNews::Ack(ack) => {
                trace(|| format!("from the FPM client: {ack:?}"));
                self.check_ack(&ack);
                RibIn::Ack(ack)
            }
        };
        self.routing.inbox.push_back(event);
    }

    /// Checks that the chip has what an acknowledgement confirms.
    fn check_ack(&mut self, ack: &FibAck) {
        for VrfPrefix { prefix, .. } in &ack.installed {
            self.sent.failed.remove(prefix);
        }
        self.sent.failed.extend(ack.failed.iter().map(|(at, _)| at.prefix));
        let acknowledged = self.sent.acknowledged;
        self.sent.acknowledged = acknowledged.max(ack.seq);
        if !self.script.setup.suppress
            || self.disturbed
            || self.sent.replay.is_none_or(|first| ack.seq < first)
        {
            return;
        }
        for (prefix, (seq, group)) in &self.sent.routes {
            let Some((content, changed)) = self.sent.groups.get(group) else { continue };
            // Earlier acknowledgements were checked: since then a neighbour may have come back that the chip refuses.
            // And no batch waits for a group that changed after its routes.
            let is_new = *seq > acknowledged && *seq <= ack.seq;
            if !is_new || changed > seq || self.sent.failed.contains(prefix) {
                continue;
            }
            if let Err(why) = self.is_forwarded(*prefix, content, false) {
                panic!("{prefix} of batch {seq} is acknowledged before its time: {why}");
            }
        }
    }

    /// Whether the chip does with a prefix what a group says, as far as links and neighbours allow.
    /// `all`: by every hop that can forward; else by some, since a neighbour may just have come.
    fn is_forwarded(&self, prefix: AnyPrefix, content: &FibGroup, all: bool) -> Result<(), String> {
        let forward = self.orchagent.forward(prefix);
        let fail = |forward: Option<Forward>| {
            Err(format!("the chip has {forward:?} for {content:?}; {}", self.orchagent.explain(prefix)))
        };
        match content {
            FibGroup::Unresolved => Ok(()),
            FibGroup::Blackhole => match &forward {
                Some(Forward { action: PacketAction::Drop, .. }) => Ok(()),
                _ => fail(forward),
            },
            FibGroup::Hops(hops) => {
                let name = |index: u32| format!("eth{index}");
                let wanted = hops.iter().map(|hop| (name(hop.interface), hop.gateway));
                let wanted: BTreeSet<(String, Option<IpAddr>)> = wanted.collect();
                let usable: BTreeSet<_> = wanted
                    .iter()
                    .filter(|(name, gateway)| self.orchagent.is_usable(name, *gateway))
                    .cloned()
                    .collect();
                if usable.is_empty() {
                    return Ok(());
                }
                let Some(found) = &forward else { return fail(forward) };
                let found: BTreeSet<_> =
                    found.hops.iter().map(|hop| (hop.port.to_string(), hop.gateway)).collect();
                match !found.is_empty() && found.is_subset(&wanted) && (!all || usable.is_subset(&found)) {
                    true => Ok(()),
                    false => fail(forward),
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) -> Result<(), String> {
        self.now_ms += ms;
        self.routing.time = self.routing.time.max(self.now_ms);
        self.routing.wait(self.now_ms);
        self.orchagent.tick(self.now_ms);
        if self.now_ms - self.retried_ms >= RETRY_MS {
            self.retried_ms = self.now_ms;
            self.routing.inbox.push_back(RibIn::Retry(DATAPLANE));
        }
        if self.now_ms - self.reconciled_ms >= RECONCILE_MS {
            self.reconciled_ms = self.now_ms;
            self.reconcile()?;
        }
        if self.now_ms - self.compared_ms >= COMPARE_MS {
            self.compared_ms = self.now_ms;
            self.compare_appl_db()?;
        }
        Ok(())
    }

    /// fpmsyncd compares APPL_DB with its rows, and orchagent what it has with APPL_DB. Only what a
    /// lost APPL_DB had may differ. Returns whether nothing did.
    fn compare_appl_db(&mut self) -> Result<bool, String> {
        let Router { server, appl, orchagent, .. } = self;
        let written = server.reconcile(appl);
        if !written.is_empty() && !self.appl_db_lost {
            return Err(format!("APPL_DB has not what fpmsyncd handed over: {written:?}"));
        }
        let repaired = orchagent.reconcile_appl_db(appl, |found| server.compare_found(found));
        if !repaired.is_empty() && !self.appl_db_lost {
            return Err(format!("orchagent has not what it took from APPL_DB: {repaired:?}"));
        }
        Ok(repaired.is_empty() && written.is_empty())
    }

    /// syncd compares the chip and ASIC_DB with its table. Only what something else changed may
    /// differ. Returns whether nothing did.
    fn reconcile(&mut self) -> Result<bool, String> {
        let Some(repairs) = self.orchagent.reconcile() else { return Ok(true) };
        if !repairs.is_empty() && !self.foreign_change {
            return Err(format!("the chip is not as syncd requested: {repairs:?}"));
        }
        if self.foreign_change || std::mem::take(&mut self.rows_changed) {
            self.orchagent.reconcile_asic_db();
        }
        self.foreign_change = repairs.iter().any(|repair| !repair.status.is_success());
        Ok(repairs.is_empty())
    }

    fn fault(&mut self, fault: Fault, rng: &mut Rng) {
        let Router { client, server, appl, orchagent, now_ms, .. } = self;
        trace(|| format!("{fault:?}"));
        let kind = match fault {
            Fault::ChipRefuses(refusal) => {
                orchagent.chip().refuse(refusal);
                let full = refusal.status == Status::TableFull;
                Some(if full { "chip full" } else { "chip refuses" })
            }
            Fault::AnswersTwice => orchagent.answer_twice().then_some("chip answers twice"),
            Fault::AnswersLate => {
                let several = orchagent.replies() > 1;
                let at = rng.index(orchagent.replies().max(1));
                orchagent.reply(at);
                several.then_some("chip answers out of order")
            }
            Fault::RepliesLost => orchagent.lose_replies().then_some("replies lost, requests come again"),
            Fault::SyncdRestarts(how) => {
                let restarted = orchagent.restart_syncd(how, rng);
                let kind = match how {
                    SyncdStart::ChipLost => "syncd restarts, chip lost",
                    SyncdStart::ChipKept => "syncd restarts, chip kept",
                    SyncdStart::RowsLost => "syncd restarts, rows of ASIC_DB lost",
                    SyncdStart::RowsOlder => "syncd restarts, ASIC_DB older",
                };
                let other_rows = restarted && matches!(how, SyncdStart::RowsLost | SyncdStart::RowsOlder);
                self.disturbed |= other_rows;
                self.rows_changed |= other_rows;
                restarted.then_some(kind)
            }
            Fault::OrchagentKilled => {
                let lost = orchagent.kill_orchagent();
                self.count((lost > 0).then_some("orchagent killed, ZeroMQ messages lost"));
                self.disturbed = true;
                let Router { appl, orchagent, script, .. } = self;
                // A warm start needs APPL_DB.
                match rng.one_in(2) && script.zmq != Some(Persistence::Off) {
                    true => orchagent.start_orchagent_warm(appl).then_some("orchagent killed, starts warm"),
                    false => orchagent.start_orchagent(appl).then_some("orchagent killed, starts cold"),
                }
            }
            Fault::FpmsyncdKilled => {
                if let Some(news) = client.disconnect(*now_ms, server, rng) {
                    self.news(news);
                }
                let Router { server, appl, orchagent, .. } = self;
                let (is_behind, lost) = server.kill(orchagent, rng);
                server.start(appl, orchagent);
                self.count(is_behind.then_some("fpmsyncd killed, APPL_DB behind"));
                self.count((lost > 0).then_some("fpmsyncd killed, ZeroMQ messages lost"));
                Some("fpmsyncd killed")
            }
            Fault::FpmDisconnected => client.disconnect(*now_ms, server, rng).map(|news| {
                self.news(news);
                "FPM connection breaks"
            }),
            Fault::FramesLost(count) => {
                server.lost_frames = count;
                None
            }
            Fault::RedisRefuses(count) => {
                server.refused_writes = count;
                Some("Redis refuses writes")
            }
            Fault::RedisLost => {
                appl.groups.clear();
                appl.routes.clear();
                match rng.index(3) {
                    0 => {
                        orchagent.lose_redis();
                        self.disturbed = true;
                        server.write_again(appl, orchagent);
                        Some("Redis loses its data")
                    }
                    1 => {
                        self.appl_db_lost = true;
                        orchagent.lose_rows();
                        server.write_again(appl, orchagent);
                        Some("Redis loses APPL_DB alone")
                    }
                    _ => {
                        self.appl_db_lost = true;
                        orchagent.lose_rows();
                        Some("another program empties APPL_DB")
                    }
                }
            }
            Fault::ResponsesLost => {
                let was = orchagent.is_subscribed();
                orchagent.unsubscribe();
                was.then_some("responses lost")
            }
            Fault::NeighborLost(number) => {
                let (ifname, ip) = script::gateway(number);
                let key = NeighKey { ifname: ifname.into(), ip };
                let known = orchagent.neighbors.contains_key(&key);
                if known {
                    orchagent.neighbor(key, false);
                }
                known.then_some("neighbour lost")
            }
            Fault::ChipLosesRoute(number) => {
                let routes: Vec<AnyPrefix> = self.sent.routes.keys().copied().collect();
                let lost = !routes.is_empty() && self.orchagent.lose_route(routes[number % routes.len()]);
                self.disturbed |= lost;
                self.foreign_change |= lost;
                lost.then_some("chip loses a route")
            }
            Fault::MemberLink(member, up) => {
                orchagent.member_link(member, up).then_some("link of a LAG's member changes")
            }
            Fault::ReportsLost => orchagent.lose_reports().then_some("link states lost"),
            Fault::ZmqDisconnected => {
                let lost = orchagent.zmq.as_mut().and_then(|zmq| zmq.disconnect(rng));
                lost.map(|lost| match lost {
                    0 => "ZeroMQ connection breaks",
                    _ => "ZeroMQ connection breaks, messages lost",
                })
            }
            Fault::ZmqRefuses(count) => {
                orchagent.zmq.iter_mut().for_each(|zmq| zmq.refuses = count);
                None
            }
        };
        self.count(kind);
    }

    /// Counts a fault that took effect.
    fn count(&mut self, kind: Option<&'static str>) {
        if let Some(kind) = kind {
            *self.coverage.entry(kind).or_default() += 1;
        }
    }

    fn is_idle(&self) -> bool {
        self.client.is_idle() && self.others_are_idle()
    }

    /// Whether all stages but the FPM client are idle.
    fn others_are_idle(&self) -> bool {
        !self.routing.is_busy() && self.server.is_idle(&self.orchagent) && self.orchagent.is_idle(&self.appl)
    }

    /// Whether the time has to pass before a stage has work.
    fn only_client_waits(&self) -> bool {
        self.client.waits_for_time(self.now_ms) && self.others_are_idle()
    }

    fn busy(&self) -> String {
        format!(
            "routing {}, FPM client {}, fpmsyncd {}, orchagent {} (in flight {:?})",
            self.routing.is_busy(),
            !self.client.is_idle(),
            !self.server.is_idle(&self.orchagent),
            !self.orchagent.is_idle(&self.appl),
            self.orchagent.depths()
        )
    }

    /// The first difference between stages.
    fn disagreement(&self) -> Option<String> {
        let selected = self.routing.selected();
        let ours = |protocol| !matches!(protocol, Protocol::Connected | Protocol::Kernel);
        for (prefix, info) in selected.iter().filter(|(_, info)| ours(info.protocol)) {
            if let Err(why) = self.is_forwarded(*prefix, &info.content, true) {
                return Some(format!("{prefix}: {why}"));
            }
            let status = self.routing.rib.status(*prefix);
            if self.script.setup.suppress && !matches!(&status[..], [(DATAPLANE, InstallStatus::Installed)]) {
                return Some(format!("{prefix} is in the chip and not confirmed: {status:?}"));
            }
        }
        let own = |prefix: &AnyPrefix| {
            prefix.len() == 0
                || prefix.to_string().starts_with("fe80:")
                || GROUND.iter().any(|ground| ground.parse() == Ok(*prefix))
        };
        let surplus = |prefix: &AnyPrefix| !own(prefix) && !selected.contains_key(prefix);
        if let Some(prefix) = self.orchagent.prefixes().into_iter().find(surplus) {
            return Some(format!("{prefix} is in the chip, and no protocol has it"));
        }
        // Of the routes of interfaces, the chip has its own addresses in any case.
        let addresses = GROUND
            .iter()
            .filter_map(|prefix| prefix.parse().ok())
            .filter(|prefix: &AnyPrefix| *prefix == AnyPrefix::host(prefix.addr()));
        let connected = selected.iter().filter(|(_, info)| !ours(info.protocol)).map(|(prefix, _)| *prefix);
        let in_chip = self.orchagent.prefixes();
        if let Some(prefix) = addresses.chain(connected).find(|prefix: &AnyPrefix| !in_chip.contains(prefix))
        {
            return Some(format!("the chip lacks {prefix}, which is of an interface"));
        }
        let objectless = self.server.waiting();
        if objectless > 0 {
            return Some(format!("fpmsyncd waits for {objectless} next-hop objects"));
        }
        self.server
            .check_rows(&self.appl)
            .and_then(|()| self.orchagent.check_groups(&self.appl))
            .and_then(|()| self.orchagent.check_asic_db())
            .err()
    }
}

/// What the chip has of its interfaces.
const GROUND: [&str; 12] = [
    "10.0.1.0/24",
    "10.0.2.0/24",
    "10.0.3.0/24",
    "10.0.1.1/32",
    "10.0.2.1/32",
    "10.0.3.1/32",
    "2001:db8:1::/64",
    "2001:db8:2::/64",
    "2001:db8:3::/64",
    "2001:db8:1::1/128",
    "2001:db8:2::1/128",
    "2001:db8:3::1/128",
];
