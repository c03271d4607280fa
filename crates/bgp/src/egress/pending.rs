//! The changes that are pending for one cohort's members, of one family.
//!
//! They are the difference between the sent and the current paths. A prefix is pending once,
//! however often its best path changes, so the table bounds the queue. All cohorts of a group have
//! the same current paths, so a prefix that is pending in several of them has the same path.

use super::Flush;
use super::cohort::Cohort;
use super::pack::Packer;
use super::paths::{Handle, Paths};
use crate::message::NONE;
use crate::peer::PeerId;
use ribtide_prefix::{BgpFamily, Map, Prefix, shrink_to_fit};
use ribtide_wire::bgp::message::RefreshKind;
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use std::hash::Hash;

/// The source of the path that was advertised to a cohort's members. All but that source have it: a
/// peer is never sent its own path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct AdvertisedSource(u16);

impl AdvertisedSource {
    /// No path was sent, or a withdrawal.
    pub(super) const NOTHING: AdvertisedSource = AdvertisedSource(u16::MAX);
    /// Members were sent different paths, or some were sent none.
    pub(super) const UNKNOWN: AdvertisedSource = AdvertisedSource(u16::MAX - 1);

    pub(super) fn from(source: PeerId) -> AdvertisedSource {
        // There are fewer peers; a larger number safely becomes unknown.
        u16::try_from(source.0).map_or(AdvertisedSource::UNKNOWN, |source| {
            AdvertisedSource(source).min(AdvertisedSource::UNKNOWN)
        })
    }

    /// The source, if there is one and it is known.
    pub(super) fn source(self) -> Option<PeerId> {
        (self < AdvertisedSource::UNKNOWN).then_some(PeerId(u32::from(self.0)))
    }
}

/// What a path is pending under: its prefix, or with it its path identifier, where members get several paths of a prefix
/// (RFC 7911).
pub(super) trait Key: Nlri + Eq + Ord + Hash {
    /// The key of a path.
    fn of(prefix: Prefix<Self::Family>, path_id: u32) -> Self;
    /// The queue of a cohort for such keys.
    fn queue(cohort: &Cohort) -> &PendingQueue<Self>;
    /// The same, to change.
    fn queue_mut(cohort: &mut Cohort) -> &mut PendingQueue<Self>;
}

impl<F: BgpFamily> Key for Prefix<F> {
    fn of(prefix: Prefix<F>, _: u32) -> Prefix<F> {
        prefix
    }

    fn queue(cohort: &Cohort) -> &PendingQueue<Prefix<F>> {
        cohort.queues.get::<F>()
    }

    fn queue_mut(cohort: &mut Cohort) -> &mut PendingQueue<Prefix<F>> {
        cohort.queues.get_mut::<F>()
    }
}

impl<F: BgpFamily> Key for PathPrefix<F> {
    fn of(prefix: Prefix<F>, path_id: u32) -> PathPrefix<F> {
        PathPrefix { prefix, path_id }
    }

    fn queue(cohort: &Cohort) -> &PendingQueue<PathPrefix<F>> {
        cohort.path_queues.get::<F>()
    }

    fn queue_mut(cohort: &mut Cohort) -> &mut PendingQueue<PathPrefix<F>> {
        cohort.path_queues.get_mut::<F>()
    }
}

/// Runs the same code for both kinds of keys of each family, with the kind as `$key`.
macro_rules! for_each_key {
    ($key:ident => $body:expr) => {
        ribtide_prefix::for_each_bgp_family!(F => {
            {
                type $key = ribtide_prefix::Prefix<F>;
                $body;
            }
            {
                type $key = ribtide_wire::bgp::nlri::PathPrefix<F>;
                $body;
            }
        })
    };
}
pub(super) use for_each_key;

/// A pending prefix.
#[derive(Clone, Copy)]
struct Pending {
    advertised: AdvertisedSource,
    /// The queue's turn when it became pending.
    turn: u16,
    /// The path to send; [`NONE`] for a withdrawal, or nothing where nothing was sent. Held.
    new: Handle,
}

/// The progress of the table for members that join or requested a refresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// They follow changes.
    Live,
    /// They need the table, which is not requested yet.
    Wanted,
    /// The shards have been asked for it with this token. Until all have answered nothing is sent: then it is packed as
    /// well as it can be, and what it says of a prefix cannot be older than what was sent.
    Dumping(u64),
}

/// The marks of a route refresh (RFC 7313).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Marks {
    /// No refresh, or one without marks.
    None,
    /// The begin is to be sent before the table.
    Begin,
    /// The begin is sent. The table is being packed, and changes since the dump wait.
    Table,
    /// These changes are being packed; the end follows.
    End,
}

pub(super) struct PendingQueue<K> {
    pending: Map<K, Pending>,
    /// Rises each time something is removed from `pending`.
    turn: u16,
    /// Announcements before `pending`, removed from it or dumped; no prefix twice. When complete,
    /// sorted by path and packed from the end. Paths are held.
    outgoing: Vec<(Handle, K)>,
    phase: Phase,
    /// Whether the members have everything that is not pending. Between joining and the end of the
    /// dumps they do not: they were sent nothing.
    in_sync: bool,
    /// Whether the members moved here from another group: until the table is dumped, they may have
    /// any path of any prefix.
    moved: bool,
    /// Whether End-of-RIB follows the packed table (RFC 4724 section 2).
    end_of_rib: bool,
    marks: Marks,
    sent: Tally,
}

impl<K: Key> Default for PendingQueue<K> {
    fn default() -> Self {
        PendingQueue {
            pending: Map::default(),
            turn: 0,
            outgoing: Vec::new(),
            phase: Phase::Live,
            in_sync: true,
            moved: false,
            end_of_rib: false,
            marks: Marks::None,
            sent: Tally::default(),
        }
    }
}

/// An emptied map of at least this capacity frees its memory at once if little of it was used, since
/// each flush visits all of it.
const KEEP: usize = 16 * 1024;

impl<K: Key> PendingQueue<K> {
    /// The queue of joining members.
    pub(super) fn joining() -> PendingQueue<K> {
        PendingQueue { phase: Phase::Wanted, in_sync: false, end_of_rib: true, ..PendingQueue::default() }
    }

    /// The queue of a member that moves to another group and needs that group's table.
    pub(super) fn moving(&self) -> PendingQueue<K> {
        if !self.in_sync {
            // It was sent nothing.
            return PendingQueue::joining();
        }
        // Pending prefixes may be in no table any more.
        let waiting = self.pending.keys().chain(self.outgoing.iter().map(|(_, prefix)| prefix));
        PendingQueue {
            pending: waiting
                .map(|prefix| {
                    (*prefix, Pending { advertised: AdvertisedSource::UNKNOWN, turn: 0, new: NONE })
                })
                .collect(),
            phase: Phase::Wanted,
            moved: true,
            end_of_rib: self.end_of_rib,
            // The other group's table is the refreshed one.
            marks: if self.marks == Marks::None { Marks::None } else { Marks::Begin },
            ..PendingQueue::default()
        }
    }

    /// Whether its members moved here from another group, with unknown routes.
    pub(super) fn has_moved(&self) -> bool {
        self.moved
    }

    /// Moved members may have a path of this key, which no table has.
    pub(super) fn may_have(&mut self, key: K) {
        if self.moved {
            let unknown = Pending { advertised: AdvertisedSource::UNKNOWN, turn: self.turn, new: NONE };
            self.pending.entry(key).or_insert(unknown);
        }
    }

    /// Whether members of both queues moved from another group and may wait for the table together.
    pub(super) fn can_wait_with(&self, other: &PendingQueue<K>) -> bool {
        let of = |q: &PendingQueue<K>| (q.phase, q.in_sync, q.moved, q.end_of_rib, q.marks);
        of(self) == of(other) && !matches!(self.phase, Phase::Dumping(_)) && self.outgoing.is_empty()
    }

    /// Merges the queue of a member that has just moved here; it brings no paths.
    pub(super) fn wait_with(&mut self, other: PendingQueue<K>) {
        for (prefix, pending) in other.pending {
            self.pending.entry(prefix).or_insert(pending);
        }
    }

    /// A copy for members that leave the cohort.
    pub(super) fn copy(&self, paths: &mut Paths) -> PendingQueue<K> {
        self.pending.values().for_each(|p| paths.hold(p.new));
        self.outgoing.iter().for_each(|(handle, _)| paths.hold(*handle));
        PendingQueue {
            pending: self.pending.clone(),
            outgoing: self.outgoing.clone(),
            sent: self.sent.clone(),
            ..*self
        }
    }

    /// Drops all pending changes, because no member is left.
    pub(super) fn clear(&mut self, paths: &mut Paths) {
        self.pending.drain().for_each(|(_, p)| paths.release(p.new));
        self.outgoing.drain(..).for_each(|(handle, _)| paths.release(handle));
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the members have the current path of a prefix, or will be sent it whatever happens to it. Without a
    /// complete table they have none.
    pub(super) fn is_settled(&self, key: K) -> bool {
        self.phase == Phase::Live && !self.pending.contains_key(&key)
    }

    /// Whether a table is incomplete: a requested one, or the first.
    pub(super) fn is_joining(&self) -> bool {
        self.phase != Phase::Live || self.end_of_rib
    }

    /// Whether its members joined and were sent nothing, as they wait for the table: then others may join.
    pub(super) fn is_open(&self) -> bool {
        !self.in_sync
    }

    /// Whether it needs changes. A table that is not requested yet will contain them.
    pub(super) fn follows(&self) -> bool {
        self.in_sync || self.phase != Phase::Wanted
    }

    /// The number of pending prefixes.
    pub(super) fn waiting(&self) -> usize {
        self.pending.len() + self.outgoing.len()
    }

    /// Prefixes and End-of-RIB of the next flush.
    pub(super) fn due(&self) -> usize {
        match self.phase {
            Phase::Live => self.waiting() + usize::from(self.end_of_rib || self.marks != Marks::None),
            Phase::Wanted | Phase::Dumping(_) => 0,
        }
    }

    /// Whether a started batch is not completely packed.
    pub(super) fn begun(&self) -> bool {
        self.phase == Phase::Live && !self.outgoing.is_empty()
    }

    /// Whether nothing is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Live && self.due() == 0
    }

    /// Sent prefixes per source.
    pub(super) fn sent(&self) -> &Tally {
        &self.sent
    }

    /// The number of prefixes that `peer` has when all pending changes are sent, or a lower one if it
    /// cannot exceed `enough`. O(pending) near that number, else O(1). It counts no table that is not
    /// complete.
    pub(super) fn prospect(&self, peer: PeerId, enough: u64, paths: &Paths) -> u64 {
        let sent = self.sent.but(peer);
        if self.phase != Phase::Live || sent + self.waiting() as u64 <= enough {
            return sent;
        }
        let gets = |source: Option<PeerId>| i64::from(source.is_some_and(|source| source != peer));
        let outgoing = self.outgoing.iter().map(|(path, _)| gets(paths.source(*path)));
        let pending = self.pending.values().map(|p| gets(paths.source(p.new)) - gets(p.advertised.source()));
        sent.saturating_add_signed(outgoing.chain(pending).sum())
    }

    /// Needs the table again; `marked`: with marks of its begin and end. Not before End-of-RIB, which ends the first table (RFC 7313
    /// section 4).
    pub(super) fn want(&mut self, marked: bool, paths: &mut Paths) {
        if self.phase == Phase::Live {
            self.put_back(paths);
            self.phase = Phase::Wanted;
            if marked && !self.end_of_rib {
                self.marks = Marks::Begin;
            }
        }
    }

    /// Notes the request of the table.
    pub(super) fn dump_requested(&mut self, token: u64) {
        self.phase = Phase::Dumping(token);
    }

    /// The shards have completed the dump.
    pub(super) fn dumped(&mut self, paths: &mut Paths) {
        // Prefixes that changed since their dump are not sent twice, and new members had nothing.
        if !self.pending.is_empty() {
            let (pending, dumped) = (&self.pending, self.outgoing.iter());
            dumped.filter(|(_, p)| pending.contains_key(p)).for_each(|(handle, _)| paths.release(*handle));
            self.outgoing.retain(|(_, prefix)| !pending.contains_key(prefix));
        }
        if !self.in_sync {
            let changed = self.pending.drain().filter(|(_, pending)| pending.new != NONE);
            self.outgoing.extend(changed.map(|(prefix, pending)| (pending.new, prefix)));
        }
        sort(&mut self.outgoing, paths.numbers());
        // A prefix that moved between shards may have been dumped by both.
        self.outgoing.dedup_by(|again, first| {
            let same = again == first;
            if same {
                paths.release(again.0);
            }
            same
        });
        if self.in_sync {
            // It is sent again.
            self.count_outgoing(paths, -1);
        }
        self.phase = Phase::Live;
        self.in_sync = true;
        self.moved = false;
    }

    /// The best path of a prefix changed from `had` to `new`.
    pub(super) fn change(&mut self, prefix: K, advertised: AdvertisedSource, new: Handle, paths: &mut Paths) {
        use hashbrown::hash_map::Entry;
        match self.pending.entry(prefix) {
            Entry::Occupied(mut entry) => {
                let pending = entry.get_mut();
                paths.hold(new);
                paths.release(std::mem::replace(&mut pending.new, new));
                if new == NONE && pending.advertised == AdvertisedSource::NOTHING && self.in_sync {
                    entry.remove();
                }
            }
            Entry::Vacant(entry) => {
                // Where nothing was sent yet, a change replaces the dumped path, also by none.
                let advertised = match (self.in_sync, self.moved) {
                    (false, _) => AdvertisedSource::NOTHING,
                    (true, false) => advertised,
                    (true, true) => AdvertisedSource::UNKNOWN,
                };
                if new != NONE || advertised != AdvertisedSource::NOTHING || !self.in_sync {
                    paths.hold(new);
                    entry.insert(Pending { advertised, turn: self.turn, new });
                }
            }
        }
    }

    /// A dumped best path of a prefix; [`NONE`] when the group does not get it. A pending change is
    /// newer.
    pub(super) fn dump_item(&mut self, prefix: K, new: Handle, paths: &mut Paths) {
        if self.moved {
            // A moved member's entry means only that a withdrawal may be needed.
            paths.hold(new);
            let former = self
                .pending
                .insert(prefix, Pending { advertised: AdvertisedSource::UNKNOWN, turn: self.turn, new });
            return paths.release(former.map_or(NONE, |former| former.new));
        }
        if new != NONE && (self.pending.is_empty() || !self.pending.contains_key(&prefix)) {
            paths.hold(new);
            self.outgoing.push((new, prefix));
        }
    }

    /// Whether both queues' members may share one although they were sent different routes.
    pub(super) fn can_coalesce(&self, other: &PendingQueue<K>) -> bool {
        let settled = |queue: &PendingQueue<K>| {
            queue.in_sync && !queue.moved && !matches!(queue.phase, Phase::Dumping(_))
        };
        settled(self) && settled(other) && self.end_of_rib == other.end_of_rib && self.marks == other.marks
    }

    /// Merges the queue of members at another position: all get what any of them lacks.
    pub(super) fn coalesce(&mut self, mut other: PendingQueue<K>, paths: &mut Paths) {
        self.put_back(paths);
        other.put_back(paths);
        self.count_pending(paths, 1);
        if other.phase == Phase::Wanted {
            self.phase = Phase::Wanted;
        }
        for (prefix, pending) in &mut self.pending {
            let theirs = other.pending.remove(prefix);
            if theirs.is_none_or(|theirs| theirs.advertised != pending.advertised) {
                pending.advertised = AdvertisedSource::UNKNOWN;
            }
            theirs.inspect(|theirs| paths.release(theirs.new));
        }
        let rest = other.pending.into_iter();
        let unsure =
            |(prefix, pending)| (prefix, Pending { advertised: AdvertisedSource::UNKNOWN, ..pending });
        self.pending.extend(rest.map(unsure));
        self.count_pending(paths, -1);
    }

    /// Returns a started batch to `pending`. The end of a refresh must follow it there, too (RFC 7313 section 4).
    fn put_back(&mut self, paths: &mut Paths) {
        if self.marks == Marks::End {
            self.marks = Marks::Table;
        }
        for (handle, prefix) in self.outgoing.drain(..) {
            let entry = self.pending.entry(prefix).and_modify(|newer| {
                newer.advertised = AdvertisedSource::UNKNOWN;
                paths.release(handle);
            });
            entry.or_insert(Pending {
                advertised: AdvertisedSource::UNKNOWN,
                turn: self.turn.wrapping_sub(1),
                new: handle,
            });
        }
    }
}

/// Removal of pending changes.
impl<K: Key> PendingQueue<K> {
    /// Packs about `budget` prefixes, those of one path together.
    pub(super) fn flush(&mut self, what: Flush, packer: &mut Packer<'_>, paths: &mut Paths, budget: usize) {
        if self.phase != Phase::Live {
            return;
        }
        if self.marks == Marks::Begin {
            packer.refresh_mark(<K::Family as BgpFamily>::ID, RefreshKind::Begin);
            self.marks = Marks::Table;
        }
        if self.outgoing.is_empty() && what != Flush::Begun {
            let all = what == Flush::All || self.marks == Marks::Table;
            self.take(all, packer, paths);
            if self.marks == Marks::Table {
                self.marks = Marks::End;
            }
        }
        let mut packed = 0;
        while packed < budget
            && let Some((path, _)) = self.outgoing.last().copied()
        {
            let run = self.outgoing.iter().rev().take_while(|(handle, _)| *handle == path).count();
            let run = self.outgoing.drain(self.outgoing.len() - run..);
            packed += run.len();
            if let Some(source) = paths.source(path) {
                self.sent.add(source, run.len() as i64);
            }
            packer.announce(path, run.as_slice(), paths);
            run.for_each(|(handle, _)| paths.release(handle));
        }
        if self.end_of_rib && self.outgoing.is_empty() {
            self.end_of_rib = false;
            packer.end_of_rib(K::Family::ID);
        }
        if self.marks == Marks::End && self.outgoing.is_empty() {
            self.marks = Marks::None;
            packer.refresh_mark(<K::Family as BgpFamily>::ID, RefreshKind::End);
        }
    }

    /// Shrinks it to its contents. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        shrink_to_fit(&mut self.pending);
        self.outgoing.shrink_to_fit();
    }

    /// Removes from `pending` the changes since the last time, or all: withdrawals are packed,
    /// announcements sorted.
    fn take(&mut self, all: bool, packer: &mut Packer<'_>, paths: &Paths) {
        // For all but a source; for a source alone.
        let mut withdrawn: Vec<(AdvertisedSource, K)> = Vec::new();
        let mut withdrawn_from: Vec<(PeerId, K)> = Vec::new();
        let count = self.pending.len();
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        // Later changes with the path of an older one belong to the same message.
        let mut ripe = vec![false; if all { 0 } else { paths.numbers() }];
        let waited = self.pending.values().filter(|p| !all && p.turn != turn && p.new != NONE);
        waited.for_each(|p| ripe[p.new as usize] = true);
        let ripe = |_: &K, p: &mut Pending| {
            all || p.turn != turn || ripe.get(p.new as usize).is_some_and(|ripe| *ripe)
        };
        for (prefix, Pending { advertised, new, .. }) in self.pending.extract_if(ripe) {
            if let Some(source) = advertised.source() {
                self.sent.add(source, -1);
            }
            let Some(source) = paths.source(new) else {
                withdrawn.push((advertised, prefix));
                continue;
            };
            // The new source is not sent its own path, so the other path must be withdrawn from it.
            if advertised != AdvertisedSource::NOTHING
                && advertised != AdvertisedSource::from(source)
                && packer.reaches(source)
            {
                withdrawn_from.push((source, prefix));
            }
            self.outgoing.push((new, prefix));
        }
        let capacity = self.pending.capacity();
        if self.pending.is_empty() && capacity > KEEP && count < capacity / 8 {
            self.pending = Map::default();
        }
        sort(&mut self.outgoing, paths.numbers());
        withdrawn.sort_unstable();
        for run in withdrawn.chunk_by(|a, b| a.0 == b.0) {
            packer.withdraw(run[0].0.source(), run.iter().map(|w| w.1));
        }
        withdrawn_from.sort_unstable();
        for run in withdrawn_from.chunk_by(|a, b| a.0 == b.0) {
            packer.withdraw_from(run[0].0, run.iter().map(|w| w.1));
        }
    }

    /// Counts announcements as sent, or reverts that.
    fn count_outgoing(&mut self, paths: &Paths, sign: i64) {
        for (path, _) in &self.outgoing {
            if let Some(source) = paths.source(*path) {
                self.sent.add(source, sign);
            }
        }
    }

    /// Counts pending changes as sent, or reverts that.
    fn count_pending(&mut self, paths: &Paths, sign: i64) {
        for Pending { advertised, new, .. } in self.pending.values() {
            if let Some(source) = advertised.source() {
                self.sent.add(source, -sign);
            }
            if let Some(source) = paths.source(*new) {
                self.sent.add(source, sign);
            }
        }
    }
}

/// Sorts by path, then by prefix, so that output does not depend on sharding. Paths have numbers
/// below `numbers`.
fn sort<K: Key>(items: &mut Vec<(Handle, K)>, numbers: usize) {
    if numbers > 4 * items.len() {
        items.sort_unstable();
        return;
    }
    // Counting sort: the count per path, then the first index.
    let mut places = vec![0u32; numbers];
    items.iter().for_each(|(path, _)| places[*path as usize] += 1);
    let mut at = 0;
    for place in &mut places {
        at += std::mem::replace(place, at);
    }
    let mut sorted = items.clone();
    for item in items.iter() {
        let place = &mut places[item.0 as usize];
        sorted[*place as usize] = *item;
        *place += 1;
    }
    sorted.chunk_by_mut(|a, b| a.0 == b.0).for_each(<[_]>::sort_unstable);
    *items = sorted;
}

/// Prefixes by the source of their path.
#[derive(Clone, Default, Debug)]
pub(super) struct Tally {
    of: Vec<u32>,
    total: u64,
}

impl Tally {
    fn add(&mut self, source: PeerId, count: i64) {
        let at = source.0 as usize;
        if at >= self.of.len() {
            self.of.resize(at + 1, 0);
        }
        self.of[at] = (i64::from(self.of[at]) + count) as u32;
        self.total = self.total.wrapping_add_signed(count);
    }

    /// Whether the counts are equal.
    pub(super) fn equals(&self, other: &Tally) -> bool {
        let of = |tally: &Tally, at| tally.of.get(at).copied().unwrap_or(0);
        (0..self.of.len().max(other.of.len())).all(|at| of(self, at) == of(other, at))
    }

    /// Prefixes whose path came from another than `peer`.
    pub(super) fn but(&self, peer: PeerId) -> u64 {
        self.total - u64::from(self.of.get(peer.0 as usize).copied().unwrap_or(0))
    }
}
