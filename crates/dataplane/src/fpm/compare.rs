//! The continuous comparison of the server's table with what was sent ([ADR 74]).
//!
//! Only servers of ribtide can be compared. Rounds read the server's next-hop objects and routes, a
//! page at a time. A page is older than what was sent since, so an entry of it that differs is only
//! suspect: the client queries suspects by their keys. The server handles a query in the order of the
//! stream, so the reply is about exactly what was sent before the query. The client takes what it had
//! sent then, and repairs what differs, unless it has changed since.
//!
//! At the end of a round, routes that it has not seen are suspects, too: they are missing, or the
//! server moved them to an earlier page.
//!
//! [ADR 74]: ../../../../docs/adr/0074-comparison-with-the-fpm-server.md

use super::super::install_results::InstallResults;
use super::super::repairs::{Difference, RepairCounters, Repairs};
use super::encode::{Done, Encoder, Expected};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_runtime::log::target;
use ribtide_wire::fpm::compare::{Compare, Entry, KEYS_MAX, Key, Query, Reply, VERSION, write_query};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The CPU time of a step, multiplied by this, is the rest after it: at most 2% of a CPU. The server
/// needs a fraction of that for a page (ADR 74).
const CPU_REST_FACTOR: u32 = 49;
/// The longest rest between two steps.
const REST_MAX: Duration = Duration::from_secs(1);
/// After so long without a reply the round is given up: the reply was lost, or the server is busy.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Repairs that are remembered until the next round, to notice that the server does not take them.
const REMEMBERED_MAX: usize = 10_000;

/// What the server sent of the comparison, between the thread that reads and the one that compares.
#[derive(Default, Debug)]
pub(super) struct FromServer {
    is_offered: bool,
    reply: Option<Reply>,
}

impl FromServer {
    /// Notes a message of the server.
    pub(super) fn note(&mut self, message: Compare) {
        match message {
            Compare::Offer(version) => self.is_offered |= version == VERSION,
            Compare::Reply(reply) => self.reply = Some(reply),
            Compare::Query(..) => {}
        }
    }
}

/// Counters that other threads read.
#[derive(Default, Debug)]
pub(super) struct ComparisonCounters {
    /// Whether the server of the present connection can be compared.
    pub(super) is_on: AtomicBool,
    pub(super) repairs: Arc<RepairCounters>,
    /// Differences that were there again after their repair.
    pub(super) failed: AtomicU64,
}

/// A query without a reply.
struct PendingQuery {
    seq: u32,
    since: Instant,
    /// Its keys, and what the server should have of each; none for a page.
    keys: Vec<(Key, Expected)>,
}

/// What a round does next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Reads the page of this position.
    Page(u64),
    /// Queries the routes that no page had.
    Unseen,
    /// Queries the surplus objects.
    Surplus,
    End,
}

struct Round {
    begin: Instant,
    step: Step,
    /// To be queried by key.
    suspects: Vec<Key>,
    /// The objects of the pages so far; `None` when all are read.
    objects: Option<Set<u32>>,
    /// Objects that the server should not have. A route that still names one is repaired before they
    /// are deleted.
    surplus: Vec<Key>,
    repaired: Map<Key, Expected>,
    failed: u64,
}

/// The comparison with the server of one connection after the other.
pub(super) struct Comparison {
    server: Option<SocketAddr>,
    interval: Duration,
    from_server: FromServer,
    /// Everything was sent, so the server should have it.
    is_replayed: bool,
    seq: u32,
    pending: Option<PendingQuery>,
    /// When the next step, or the next round, is due.
    due: Instant,
    /// The round under way.
    round: Option<Round>,
    /// The repairs of the last round.
    former: Map<Key, Expected>,
    /// Whether differences that stay were logged in this connection.
    is_failure_logged: bool,
    counters: Arc<ComparisonCounters>,
    repairs: Repairs,
}

impl Comparison {
    /// A comparison in rounds of `interval`; zero for never. `server` is for the log.
    pub(super) fn new(
        server: Option<SocketAddr>,
        interval: Duration,
        counters: Arc<ComparisonCounters>,
        now: Instant,
    ) -> Comparison {
        let repairs = Repairs::new(counters.repairs.clone());
        Comparison {
            server,
            interval,
            from_server: FromServer::default(),
            is_replayed: false,
            seq: 0,
            pending: None,
            due: now,
            round: None,
            former: Map::default(),
            is_failure_logged: false,
            counters,
            repairs,
        }
    }

    /// A connection begins or ends.
    pub(super) fn reset(&mut self) {
        self.from_server = FromServer::default();
        self.is_replayed = false;
        self.former = Map::default();
        self.is_failure_logged = false;
        self.counters.is_on.store(false, Relaxed);
        (self.pending, self.round) = (None, None);
    }

    /// Takes over what the server sent.
    pub(super) fn receive(&mut self, from_server: &mut FromServer) {
        self.from_server.is_offered |= std::mem::take(&mut from_server.is_offered);
        self.from_server.reply = from_server.reply.take().or(self.from_server.reply.take());
        self.counters.is_on.store(self.is_on(), Relaxed);
    }

    /// Sets the time of a round; zero for never.
    pub(super) fn set_interval(&mut self, interval: Duration, now: Instant) {
        if std::mem::replace(&mut self.interval, interval) != interval {
            self.give_up(now);
        }
    }

    /// A batch was sent.
    pub(super) fn sent(&mut self, start_of_replay: bool, end_of_replay: bool, now: Instant) {
        if start_of_replay {
            self.is_replayed = false;
        }
        if end_of_replay {
            self.is_replayed = true;
        }
        if start_of_replay || end_of_replay {
            self.give_up(now);
        }
    }

    /// What it found and repaired.
    pub(super) fn repairs(&self) -> &RepairCounters {
        &self.counters.repairs
    }

    fn is_on(&self) -> bool {
        self.from_server.is_offered && !self.interval.is_zero()
    }

    /// The time until [`Comparison::step`] has something to do, if nothing is received before.
    pub(super) fn next_due(&self, now: Instant) -> Duration {
        if !self.is_on() || !self.is_replayed {
            return Duration::MAX;
        }
        let due = self.pending.as_ref().map_or(self.due, |query| query.since + REPLY_TIMEOUT);
        due.saturating_duration_since(now)
    }

    /// Whether [`Comparison::step`] has something to do now.
    pub(super) fn has_work(&self, now: Instant) -> bool {
        self.from_server.reply.is_some() || self.next_due(now).is_zero()
    }

    /// Ends the round under way.
    fn give_up(&mut self, now: Instant) {
        (self.pending, self.round) = (None, None);
        self.due = now + self.interval;
    }

    /// Takes in a reply, or sends the next query when it is due. Returns what it sent for repairs.
    pub(super) fn step(
        &mut self,
        now: Instant,
        encoder: &mut Encoder,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) -> Done {
        let mut done = Done::default();
        if !self.is_on() || !self.is_replayed {
            self.from_server.reply = None;
            return done;
        }
        let reply = self.from_server.reply.take();
        let reply = reply.filter(|reply| self.pending.as_ref().is_some_and(|query| query.seq == reply.seq));
        match (reply, self.pending.take()) {
            (Some(reply), Some(query)) if reply.ready => match query.keys.is_empty() {
                true => self.page(&reply, encoder),
                false => done = self.repair(&reply, query.keys, encoder, results, flush),
            },
            // The server's replay is not over.
            (Some(_), _) => self.give_up(now),
            (None, Some(query)) if now.saturating_duration_since(query.since) >= REPLY_TIMEOUT => {
                self.give_up(now);
            }
            (None, query) => self.pending = query,
        }
        if self.pending.is_none() && self.due <= now {
            self.send_query(now, encoder, flush);
        }
        self.log();
        done
    }

    /// Rests after a step that took this CPU time.
    pub(super) fn rest(&mut self, cpu: Duration, now: Instant) {
        if self.round.is_some() {
            self.due = now + (cpu * CPU_REST_FACTOR).min(REST_MAX);
        }
    }

    /// Takes in a page.
    fn page(&mut self, reply: &Reply, encoder: &mut Encoder) {
        let Some(round) = &mut self.round else { return };
        let keys: Vec<Key> = reply.entries.iter().map(|entry| entry.key).collect();
        let expected = encoder.expected(&keys, true);
        let mut routes = 0;
        for (Entry { key, content }, expected) in reply.entries.iter().zip(expected) {
            match key {
                Key::Route(..) => routes += 1,
                Key::Object(id) => drop(round.objects.as_mut().map(|objects| objects.insert(*id))),
            }
            match (key, expected) {
                (Key::Object(_), Expected::Nothing) => round.surplus.push(*key),
                _ if is_same(expected, Some(*content)) => {}
                _ => round.suspects.push(*key),
            }
        }
        self.repairs.compared(routes);
        if routes > 0 || reply.next.is_none() {
            // Objects come first, and a route that names one should find it.
            if let Some(seen) = round.objects.take() {
                let missing = encoder.objects().filter(|id| !seen.contains(id));
                round.suspects.extend(missing.map(Key::Object));
            }
        }
        round.step = reply.next.map_or(Step::Unseen, Step::Page);
    }

    /// Repairs what differs.
    fn repair(
        &mut self,
        reply: &Reply,
        keys: Vec<(Key, Expected)>,
        encoder: &mut Encoder,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) -> Done {
        let Some(round) = &mut self.round else { return Done::default() };
        let mut found = reply.entries.iter().peekable();
        let mut differing = Vec::new();
        for (key, expected) in keys {
            let found = found.next_if(|entry| entry.key == key).map(|entry| entry.content);
            if !is_same(expected, found) {
                differing.push((key, expected, found.is_some()));
            }
        }
        if differing.is_empty() {
            return Done::default();
        }
        // What changed since the query was sent again then.
        let keys: Vec<Key> = differing.iter().map(|(key, ..)| *key).collect();
        let mut is_unchanged = encoder.expected(&keys, false).into_iter();
        differing.retain(|(_, expected, _)| is_unchanged.next() == Some(*expected));
        for (key, expected, is_there) in &differing {
            let (difference, prefix) = match (key, expected) {
                (Key::Object(_), _) => (Difference::NextHopObject, None),
                (Key::Route(_, prefix), Expected::Nothing) => (Difference::Unexpected, Some(*prefix)),
                (Key::Route(_, prefix), _) if *is_there => (Difference::OtherNextHops, Some(*prefix)),
                (Key::Route(_, prefix), _) => (Difference::Missing, Some(*prefix)),
            };
            match self.former.get(key) == Some(expected) {
                // Nothing else writes this table, so the server did not take the repair.
                true => round.failed += 1,
                false => self.repairs.note(difference, 1, prefix),
            }
            if round.repaired.len() < REMEMBERED_MAX {
                round.repaired.insert(*key, *expected);
            }
        }
        let mut keys: Vec<_> = differing.into_iter().map(|(key, expected, _)| (key, expected)).collect();
        encoder.repair(&mut keys, results, flush)
    }

    /// Sends the next query of the round, or ends it.
    fn send_query(&mut self, now: Instant, encoder: &mut Encoder, flush: &mut impl FnMut(&mut Vec<u8>)) {
        let round = self.round.get_or_insert_with(|| {
            encoder.begin_round();
            Round {
                begin: now,
                step: Step::Page(0),
                suspects: Vec::new(),
                objects: Some(Set::default()),
                surplus: Vec::new(),
                repaired: Map::default(),
                failed: 0,
            }
        });
        let (query, keys) = loop {
            if !round.suspects.is_empty() {
                let keys = round.suspects.split_off(round.suspects.len().saturating_sub(KEYS_MAX));
                let expected = encoder.expected(&keys, false);
                let mut keys: Vec<_> = keys.into_iter().zip(expected).collect();
                // A route that no page had, and that was deleted since, is nowhere.
                let is_unseen = round.step == Step::Surplus;
                let is_query = |expected| match expected {
                    Expected::Anything => false,
                    Expected::Nothing => !is_unseen,
                    Expected::Content(_) => true,
                };
                keys.retain(|(_, expected)| is_query(*expected));
                if !keys.is_empty() {
                    break (Query::Keys(keys.iter().map(|(key, _)| *key).collect()), keys);
                }
                continue;
            }
            match round.step {
                Step::Page(from) => break (Query::Page(from), Vec::new()),
                Step::Unseen => (round.suspects, round.step) = (encoder.unseen(), Step::Surplus),
                Step::Surplus => {
                    (round.suspects, round.step) = (std::mem::take(&mut round.surplus), Step::End);
                }
                Step::End => return self.end(now),
            }
        };
        self.seq = self.seq.wrapping_add(1);
        let mut bytes = Vec::new();
        write_query(&mut bytes, self.seq, &query);
        flush(&mut bytes);
        self.pending = Some(PendingQuery { seq: self.seq, since: now, keys });
    }

    /// Ends the round.
    fn end(&mut self, now: Instant) {
        let Some(round) = self.round.take() else { return };
        self.due = (round.begin + self.interval).max(now);
        self.former = round.repaired;
        self.repairs.round(now.saturating_duration_since(round.begin));
        self.counters.failed.fetch_add(round.failed, Relaxed);
        if round.failed > 0 && !std::mem::replace(&mut self.is_failure_logged, true) {
            let example = self.former.keys().find_map(|key| match key {
                Key::Route(_, prefix) => Some(*prefix),
                Key::Object(_) => None,
            });
            tracing::error!(
                target: target::FPM,
                server = self.server.map(tracing::field::display),
                count = round.failed,
                prefix = example.map(|prefix: AnyPrefix| tracing::field::display(prefix)),
                "the FPM server still does not have routes or next-hop objects as they were sent to it again; see its log"
            );
        }
    }

    fn log(&mut self) {
        let Some(([missing, other_next_hops, unexpected, next_hop_objects, _], prefix)) =
            self.repairs.take_unlogged()
        else {
            return;
        };
        tracing::warn!(
            target: target::FPM,
            server = self.server.map(tracing::field::display),
            missing,
            other_next_hops,
            unexpected,
            next_hop_objects,
            prefix,
            "routes or next-hop objects at the FPM server were not as ribtide sent them; repaired"
        );
    }
}

/// Whether a server has what it should have. `found` is the entry's content, if there is an entry and if
/// the server compares its content.
fn is_same(expected: Expected, found: Option<Option<u64>>) -> bool {
    match (expected, found) {
        (Expected::Anything, _) | (Expected::Nothing, None) | (Expected::Content(_), Some(None)) => true,
        (Expected::Content(expected), Some(Some(found))) => expected == found,
        (Expected::Nothing, Some(_)) | (Expected::Content(_), None) => false,
    }
}

#[cfg(test)]
mod tests;
