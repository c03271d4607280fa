//! FIB suppression: best paths are told to the egress workers when they are forwarded, and not before.
//!
//! ```text
//! change of best path ──► Feed, mark n ──► RIB manager, dataplanes
//!        │ waits for n                              │
//!        ▼                                          ▼
//! egress workers ◄── told ── Confirmation { up to n, but for these }
//! ```
//!
//! What a route waits for stands in its own slot of the table, in bytes that were unused, so that suppression takes no
//! memory for what waits for nothing, and none at all where it is off. The rules:
//!
//! - **Only other next hops wait**, as only they change what is forwarded. Another AS path by the same ones is told at
//!   once, unless the prefix waits already.
//! - **What was told stays told while its successor waits**: forwarding goes by the former route until the new one is
//!   there. That is the one thing kept beside the slots: the former path, for as long as that lasts.
//! - **No best path any more is told at once.** Nothing is asked to confirm a withdrawal.
//! - **A confirmation is of a number**, not of a path. Changes that are fed carry the number of the mark that will end
//!   them; a prefix that changed again waits for the later mark, so a confirmation of the earlier one says nothing of it.
//! - **An unresolved next hop keeps the former advertisement**, with suppression and without. When a path moves to a next hop
//!   that the RIB manager has not answered yet, the prefix stays advertised as it was until the answer arrives.
//! - **Blocked prefixes are exceptions**: the FIB does not have them, because a dataplane refused them or nothing
//!   resolves. They are withdrawn if they were told, and told when it is over.
//!
//! There are at most [`MARKS`] unanswered marks; what is fed meanwhile shares the next one, in which a prefix is
//! listed once. So a dataplane that stands still costs memory by the number of prefixes, and not by the number of changes.

use super::paths::Path;
use super::query::Standing;
use super::route::{self, Route};
use super::{Core, GROUP, Shard, ShardOut, Spot, Tables};
use crate::message::{Confirmation, NONE};
use ribtide_prefix::{AnyPrefix, Families, Family, Map, PerFamily, Prefix, for_each_family, logical_shard};
use std::collections::VecDeque;

/// Marks without an answer; what is fed beyond waits for the next.
const MARKS: usize = if cfg!(test) { 3 } else { 256 };
/// Prefixes that one step tells.
const STEP: usize = 2048;

/// What a route waits for, in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gate(u16);

/// It waits for the mark whose number ends with the tag.
const WAITS: u16 = 0x8000;
/// Meanwhile another path than the best one is told.
const ADVERTISED: u16 = 0x4000;
/// The FIB does not have the prefix.
const BLOCKED: u16 = 0x2000;
const TAG: u16 = 0x1fff;

impl Gate {
    /// Nothing: its best path is told.
    pub(super) const OPEN: Gate = Gate(0);
    /// It has no eligible path, a next hop awaits its first answer, and the former path stays advertised.
    const HELD: Gate = Gate(ADVERTISED);

    /// Whether the former path stays advertised because the next hop of its successor awaits its first answer.
    pub(super) fn is_held(self) -> bool {
        self == Gate::HELD
    }

    fn is_waiting(self) -> bool {
        self.0 & WAITS != 0
    }

    fn has_told(self) -> bool {
        self.0 & ADVERTISED != 0
    }

    fn is_blocked(self) -> bool {
        self.0 & BLOCKED != 0
    }

    /// It waits for this mark and no earlier one, and is blocked if it was.
    fn wait(self, mark: u64, told: bool) -> Gate {
        Gate(WAITS | if told { ADVERTISED } else { 0 } | self.0 & BLOCKED | mark as u16 & TAG)
    }

    /// Whether it waits for the mark of this number. Fewer marks than there are tags wait at a time.
    fn waits_for(self, mark: u64) -> bool {
        self.is_waiting() && self.0 & TAG == mark as u16 & TAG
    }

    /// The mark has been answered, or need not be.
    fn confirmed(self) -> Gate {
        Gate(self.0 & BLOCKED)
    }

    /// It is blocked from now on, and nothing is told; or no longer.
    fn blocked(self, blocked: bool) -> Gate {
        match blocked {
            true => Gate(self.0 & !ADVERTISED | BLOCKED),
            false => Gate(self.0 & !BLOCKED),
        }
    }
}

/// What all gates of a shard have in common.
pub(super) struct Gates {
    /// Whether other next hops wait.
    on: bool,
    /// The number of the mark that what is fed now waits for.
    mark: u64,
    /// What was fed since the last mark.
    fed: Families<Fed>,
    /// What marks without an answer ended, oldest first.
    marked: VecDeque<(u64, Families<Fed>)>,
    /// The last mark that was answered.
    confirmed: u64,
    /// What is told of prefixes whose best path is another.
    told: Families<Told>,
    waiting: usize,
    blocked: usize,
}

/// Prefixes that wait for a mark; they may wait for a later one by now.
struct Fed;
impl PerFamily for Fed {
    type Of<F: Family> = Vec<Prefix<F>>;
}

struct Told;
impl PerFamily for Told {
    type Of<F: Family> = Map<Prefix<F>, Path>;
}

impl Default for Gates {
    fn default() -> Gates {
        Gates {
            on: false,
            // 0 is no mark's number.
            mark: 1,
            fed: Families::default(),
            marked: VecDeque::new(),
            confirmed: 0,
            told: Families::default(),
            waiting: 0,
            blocked: 0,
        }
    }
}

impl Gates {
    /// How many prefixes wait for an answer, and how many are blocked.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.waiting, self.blocked)
    }

    /// Whether other next hops wait.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether prefixes can be told.
    pub(super) fn any_confirmed(&self) -> bool {
        self.marked.front().is_some_and(|(mark, _)| *mark <= self.confirmed)
    }

    /// A route waits for something else.
    fn count(&mut self, before: Gate, after: Gate) {
        self.waiting += usize::from(after.is_waiting());
        self.waiting -= usize::from(before.is_waiting());
        self.blocked += usize::from(after.is_blocked());
        self.blocked -= usize::from(before.is_blocked());
    }

    /// What is fed of `prefix` now is to be confirmed.
    fn wait<F: Family>(&mut self, prefix: Prefix<F>, before: Gate, told: bool) -> Gate {
        let after = before.wait(self.mark, told);
        if !before.waits_for(self.mark) {
            self.fed.get_mut::<F>().push(prefix);
        }
        self.count(before, after);
        after
    }

    fn is_marked(&self) -> bool {
        self.fed.v4.is_empty() && self.fed.v6.is_empty()
    }
}

impl Shard {
    /// Whether [`Shard::mark`] has something to say.
    pub fn mark_due(&self) -> bool {
        !self.core.gates.is_marked() && self.core.gates.marked.len() < MARKS
    }

    /// Ends what was fed so far. To be called after [`ShardOut::take`]; the number goes to the RIB manager behind the
    /// feed, and comes back in a [`Confirmation`]. Nothing when there is nothing to confirm.
    pub fn mark(&mut self) -> Option<u64> {
        if !self.mark_due() {
            return None;
        }
        let gates = &mut self.core.gates;
        let mark = gates.mark;
        gates.marked.push_back((mark, std::mem::take(&mut gates.fed)));
        gates.mark += 1;
        Some(mark)
    }

    /// From now on best paths wait, or no longer. What was told stays told.
    pub(super) fn suppress(&mut self, on: bool, out: &mut ShardOut) {
        if self.core.gates.on == on {
            return;
        }
        // What waits from before would never be answered.
        while on && self.work.is_opening() {
            self.step(out);
        }
        let gates = &mut self.core.gates;
        gates.on = on;
        if !on {
            gates.fed = Families::default();
            gates.marked.clear();
            // Answers that are on their way are of earlier marks.
            gates.mark += 1;
            self.work.open();
        }
    }

    /// Dataplanes have what was fed up to a mark, but for what is blocked.
    pub(super) fn confirmed(&mut self, news: &Confirmation, out: &mut ShardOut) {
        if !self.core.gates.on {
            return;
        }
        self.core.gates.confirmed = self.core.gates.confirmed.max(news.mark);
        for (prefix, blocked) in &news.blocked {
            match prefix {
                AnyPrefix::V4(prefix) => self.block(*prefix, *blocked, out),
                AnyPrefix::V6(prefix) => self.block(*prefix, *blocked, out),
            }
        }
    }

    fn block<F: Family>(&mut self, prefix: Prefix<F>, blocked: bool, out: &mut ShardOut) {
        let Shard { tables, core, .. } = self;
        let table = &mut tables.get_mut::<F>()[usize::from(logical_shard(prefix))];
        // Of a prefix that is not here another shard is told the same.
        let Some(at) = table.find(route::hash(prefix, &core.seed), |route| route.is(prefix)) else { return };
        let route = table.get_mut(at);
        let Some(best) = core.best_of(route) else { return };
        let (before, after) = (route.gate, route.gate.blocked(blocked));
        if before == after {
            return;
        }
        match blocked {
            true => core.resend(prefix, before, Some(best), None, out),
            false if after == Gate::OPEN => core.tell(prefix, None, Some(best), out),
            false => {}
        }
        core.gates.count(before, after);
        route.gate = after;
    }

    /// Tells some of what is confirmed.
    pub(super) fn tell_confirmed(&mut self, out: &mut ShardOut) {
        let Shard { tables, core, .. } = self;
        let mut left = STEP;
        while left > 0 && core.gates.any_confirmed() {
            let Some((mark, mut fed)) = core.gates.marked.pop_front() else { return };
            for_each_family!(F => {
                let fed = fed.get_mut::<F>();
                let some = fed.split_off(fed.len().saturating_sub(left));
                left -= some.len();
                some.chunks(GROUP).for_each(|some| core.open::<F>(tables, some, mark, out));
            });
            if !fed.v4.is_empty() || !fed.v6.is_empty() {
                core.gates.marked.push_front((mark, fed));
            }
        }
    }
}

impl Core {
    /// Opens the gates of those prefixes, at most [`GROUP`], that wait for `mark` and for none after it.
    fn open<F: Family>(
        &mut self,
        tables: &mut Families<Tables>,
        prefixes: &[Prefix<F>],
        mark: u64,
        out: &mut ShardOut,
    ) {
        let tables = tables.get_mut::<F>();
        let mut spots = [Spot::default(); GROUP];
        self.prefetch(tables, prefixes, None, &mut spots);
        for spot in &spots[..prefixes.len()] {
            let table = &mut tables[usize::from(spot.logical)];
            if spot.at != NONE && table.get(spot.at as usize).gate.waits_for(mark) {
                let route = table.get_mut(spot.at as usize);
                self.opened(route, route.gate.confirmed(), out);
            }
        }
    }

    /// A route waits for less than before: if that is nothing, its best path is told.
    fn opened<F: Family>(&mut self, route: &mut Route<F>, after: Gate, out: &mut ShardOut) {
        let mut after = after;
        if after == Gate::OPEN && route.gate.has_told() && self.waits_for_answer(route) {
            after = Gate::HELD;
        } else if after == Gate::OPEN {
            let best = self.best_of(route);
            self.resend(route.prefix(), route.gate, best, best, out);
        }
        self.gates.count(route.gate, after);
        route.gate = after;
    }

    /// Tells the best path of a route, whatever it waits for.
    pub(super) fn open_gate<F: Family>(&mut self, route: &mut Route<F>, out: &mut ShardOut) {
        if route.gate != Gate::OPEN {
            self.opened(route, Gate::OPEN, out);
        }
    }

    /// Whether a route has no best path, and may have one when the RIB manager has said what a next hop is.
    pub(super) fn waits_for_answer<F: Family>(&self, route: &Route<F>) -> bool {
        !route.is_usable() && self.has_unknown(route)
    }

    /// A route that [waits for an answer](Core::waits_for_answer) had `old` as its best path. Says what its gate is then.
    pub(super) fn holds<F: Family>(&mut self, prefix: Prefix<F>, gate: Gate, old: Option<Path>) -> Gate {
        match old {
            Some(old) if gate == Gate::OPEN => {
                self.hold_told(prefix, old);
                Gate::HELD
            }
            // Nothing is advertised. A later best path is fed again, and its mark is confirmed or the prefix blocked then.
            _ if gate.is_blocked() => {
                self.gates.count(gate, Gate::OPEN);
                Gate::OPEN
            }
            _ => gate,
        }
    }

    /// The best path of `prefix` is another, which the RIB manager sees if it was `fed`. Says what its gate is then.
    pub(super) fn passes<F: Family>(
        &mut self,
        prefix: Prefix<F>,
        gate: Gate,
        [old, new]: [Option<Path>; 2],
        fed: bool,
        out: &mut ShardOut,
    ) -> Gate {
        if gate == Gate::OPEN && !(self.gates.on && fed && new.is_some()) {
            self.tell(prefix, old, new, out);
            return Gate::OPEN;
        }
        if new.is_none() || !self.gates.on {
            self.resend(prefix, gate, old, new, out);
            self.gates.count(gate, Gate::OPEN);
            return Gate::OPEN;
        }
        if !fed {
            return gate;
        }
        if let Some(old) = old.filter(|_| gate == Gate::OPEN) {
            self.hold_told(prefix, old);
        }
        let told = gate.has_told() || (gate == Gate::OPEN && old.is_some());
        self.gates.wait(prefix, gate, told)
    }

    /// A route comes in that waited elsewhere. `told` is what is told of it; it must be held.
    pub(super) fn waits_here<F: Family>(&mut self, route: &mut Route<F>, told: bool, out: &mut ShardOut) {
        let prefix = route.prefix();
        let Some(best) = self.best_of(route) else {
            if told && self.has_unknown(route) {
                route.gate = Gate::HELD;
            } else {
                self.resend(prefix, Gate::OPEN.wait(0, told), None, None, out);
            }
            return;
        };
        if !self.gates.on {
            self.resend(prefix, Gate::OPEN.wait(0, told), None, Some(best), out);
            return;
        }
        self.feed_anew(route, best, out);
        route.gate = self.gates.wait(prefix, Gate::OPEN, told);
    }

    /// A route that goes to another shard: what is told of it if that is not its best path, or `None` if it is. A path
    /// of a session that has ended stays behind, withdrawn.
    pub(super) fn waits_elsewhere<F: Family>(
        &mut self,
        route: &Route<F>,
        out: &mut ShardOut,
    ) -> Option<Option<Path>> {
        if route.gate == Gate::OPEN {
            return None;
        }
        self.gates.count(route.gate, Gate::OPEN);
        let told = self.told(route);
        if told.is_some_and(|told| !self.sessions.get(told.session).up) {
            self.resend(route.prefix(), route.gate, None, None, out);
            return Some(None);
        }
        Some(told)
    }

    /// What is told of a route.
    pub(super) fn told<F: Family>(&self, route: &Route<F>) -> Option<Path> {
        match route.gate {
            Gate::OPEN => self.best_of(route),
            gate if gate.has_told() => self.gates.told.get::<F>().get(&route.prefix()).copied(),
            _ => None,
        }
    }

    /// How a route stands with its followers.
    pub(super) fn standing<F: Family>(&self, route: &Route<F>) -> Standing {
        match route.gate {
            Gate::OPEN => Standing::Told,
            gate if gate.is_blocked() => Standing::Blocked,
            gate => Standing::Waiting { former: gate.has_told() },
        }
    }

    /// Tells `new` in the place of whatever is told of a prefix: its best path, which is `best`, if its gate is open.
    fn resend<F: Family>(
        &mut self,
        prefix: Prefix<F>,
        gate: Gate,
        best: Option<Path>,
        new: Option<Path>,
        out: &mut ShardOut,
    ) {
        let told = match gate {
            Gate::OPEN => best,
            gate if gate.has_told() => self.gates.told.get_mut::<F>().remove(&prefix),
            _ => None,
        };
        self.tell(prefix, told, new, out);
        if let Some(told) = told.filter(|_| gate.has_told()) {
            self.let_go_told(told);
        }
    }

    /// `path` is told of `prefix` from now on though it may be its best path no longer.
    pub(super) fn hold_told<F: Family>(&mut self, prefix: Prefix<F>, path: Path) {
        self.attrs.hold(path.attrs);
        self.sessions.hold(path.session);
        self.gates.told.get_mut::<F>().insert(prefix, path);
    }

    /// Undoes what [`Core::hold_told`] holds.
    pub(super) fn let_go_told(&mut self, path: Path) {
        self.attrs.let_go(path.attrs);
        self.sessions.let_go(path.session);
    }

    /// Takes what is told of a prefix out of the books; it is still held.
    pub(super) fn take_told<F: Family>(&mut self, prefix: Prefix<F>) -> Option<Path> {
        self.gates.told.get_mut::<F>().remove(&prefix)
    }
}
