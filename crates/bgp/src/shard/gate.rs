//! FIB suppression: a best path is sent to the egress workers after the FIB has it, and not before.
//!
//! ```text
//! change of best path ──► Feed, fence n ──► RIB manager, dataplanes
//!        │ waits for n                              │
//!        ▼                                          ▼
//! egress workers ◄── sent ── Confirmation { fence n, blocked prefixes }
//! ```
//!
//! A route's gate holds its state in the table slot: the tag of a route that waits stands where the [stamp](super::age)
//! of its only path stands else. So suppression takes no memory for routes that do not wait, and none where it is off. The rules:
//!
//! - **Only changed next hops wait**, because only they change what is forwarded. Another AS path by
//!   the same next hops is advertised at once, unless the prefix waits already.
//! - **The former path stays advertised while its successor waits**, because it is what the FIB
//!   forwards by. A map beside the table holds the former path for that time.
//! - **A withdrawal is sent at once.** It needs no confirmation.
//! - **An originated path waits, too**, though it has no feed: its route, if it has one, is in a batch
//!   before the fence.
//! - **A confirmation names a fence, not a path.** A change waits for the next fence. A prefix that
//!   changes again waits for the later fence, so the earlier one does not confirm it.
//! - **An unresolved next hop keeps the former advertisement**, with suppression and without. When a
//!   path moves to a next hop whose state the RIB manager has not reported, the prefix stays
//!   advertised as it was until the report arrives.
//! - **Blocked prefixes are exceptions**: the FIB does not have them, because a dataplane refused them
//!   or no next hop resolves. An advertised path is withdrawn when its prefix becomes blocked, and
//!   advertised when the block ends.
//!
//! - **All paths of a prefix wait together**, where workers get more than the best ([`super::ranked`]).
//!
//! At most [`FENCES_MAX`] fences are unconfirmed. Later changes share the next fence, which lists a
//! prefix once. So a dataplane that stands still costs memory by prefix, not by change.

use super::paths::Path;
use super::query::Standing;
use super::route::{self, Route};
use super::{Core, GROUP, Shard, ShardOut, Spot, Tables};
use crate::message::{Confirmation, NONE};
use ribtide_prefix::{
    AnyPrefix, BgpFamilies, BgpFamily, Map, Prefix, any_bgp_family, for_each_bgp_family, logical_shard,
    per_bgp_family,
};
use std::collections::VecDeque;

/// Unconfirmed fences at most. Later changes wait for the next one.
const FENCES_MAX: usize = if cfg!(test) { 3 } else { 256 };
/// Confirmed prefixes that one step handles.
const STEP: usize = 2048;

/// The suppression state of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gate(u16);

/// The route waits for the fence whose low bits are [`TAG`].
const WAITS: u16 = 0x8000;
/// A path other than the best one is advertised.
const ADVERTISED: u16 = 0x4000;
/// The FIB does not have the prefix.
const BLOCKED: u16 = 0x2000;
const TAG: u16 = 0x1fff;

impl Gate {
    /// The best path is advertised.
    pub(super) const OPEN: Gate = Gate(0);
    /// It has no eligible path, a next hop awaits its first answer, and the former path stays advertised.
    pub(super) const HELD: Gate = Gate(ADVERTISED);

    /// Whether it waits for a fence.
    #[inline]
    pub(super) fn is_waiting(self) -> bool {
        self.0 & WAITS != 0
    }

    /// From its [flags](Gate::flags) and the tag, which counts only if they say that it waits.
    #[inline]
    pub(super) fn of_parts(flags: u8, tag: u16) -> Gate {
        let flags = u16::from(flags) << 8;
        Gate(if flags & WAITS == 0 { flags } else { flags | tag })
    }

    /// Its flags, in the three highest bits.
    #[inline]
    pub(super) const fn flags(self) -> u8 {
        (self.0 >> 8) as u8 & 0xe0
    }

    /// The tag of the fence that it waits for, if it does.
    pub(super) fn tag(self) -> Option<u16> {
        self.is_waiting().then_some(self.0 & TAG)
    }

    /// Whether a path other than the best one is advertised.
    pub(super) fn advertises_former(self) -> bool {
        self.0 & ADVERTISED != 0
    }

    fn is_blocked(self) -> bool {
        self.0 & BLOCKED != 0
    }

    /// Waits for `fence` instead of an earlier one. A blocked prefix stays blocked.
    fn wait(self, fence: u64, advertised: bool) -> Gate {
        Gate(WAITS | if advertised { ADVERTISED } else { 0 } | self.0 & BLOCKED | fence as u16 & TAG)
    }

    /// Whether it waits for `fence`. Fewer fences are unconfirmed than there are tags.
    fn waits_for(self, fence: u64) -> bool {
        self.is_waiting() && self.0 & TAG == fence as u16 & TAG
    }

    /// The fence was confirmed, or suppression is off.
    fn confirmed(self) -> Gate {
        Gate(self.0 & BLOCKED)
    }

    /// The prefix became blocked, so nothing is advertised, or unblocked.
    fn blocked(self, blocked: bool) -> Gate {
        match blocked {
            true => Gate(self.0 & !ADVERTISED | BLOCKED),
            false => Gate(self.0 & !BLOCKED),
        }
    }
}

/// The suppression state of a shard.
pub(super) struct Gates {
    /// Whether FIB suppression is on.
    on: bool,
    /// The fence that changes wait for now.
    fence: u64,
    /// Prefixes that changed since the last fence.
    fed: BgpFamilies<Fed>,
    /// Prefixes of each unconfirmed fence, oldest first.
    fenced: VecDeque<(u64, BgpFamilies<Fed>)>,
    /// The last confirmed fence.
    confirmed: u64,
    /// Advertised paths of prefixes whose best path is another.
    advertised: BgpFamilies<Advertised>,
    waiting: usize,
    blocked: usize,
}

per_bgp_family! {
    /// Prefixes that waited for a fence; they may wait for a later one by now.
    struct Fed<F> = Vec<Prefix<F>>;
}

per_bgp_family!(struct Advertised<F> = Map<Prefix<F>, Path>);

impl Default for Gates {
    fn default() -> Gates {
        Gates {
            on: false,
            // 0 means none.
            fence: 1,
            fed: BgpFamilies::default(),
            fenced: VecDeque::new(),
            confirmed: 0,
            advertised: BgpFamilies::default(),
            waiting: 0,
            blocked: 0,
        }
    }
}

impl Gates {
    /// Prefixes that wait for confirmation, and blocked prefixes.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.waiting, self.blocked)
    }

    /// Whether FIB suppression is on.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether a fence is confirmed whose prefixes have not been handled.
    pub(super) fn any_confirmed(&self) -> bool {
        self.fenced.front().is_some_and(|(fence, _)| *fence <= self.confirmed)
    }

    /// Counts a changed gate.
    fn count(&mut self, before: Gate, after: Gate) {
        self.waiting += usize::from(after.is_waiting());
        self.waiting -= usize::from(before.is_waiting());
        self.blocked += usize::from(after.is_blocked());
        self.blocked -= usize::from(before.is_blocked());
    }

    /// The change of `prefix` that is fed now needs confirmation.
    fn wait<F: BgpFamily>(&mut self, prefix: Prefix<F>, before: Gate, advertised: bool) -> Gate {
        let after = before.wait(self.fence, advertised);
        if !before.waits_for(self.fence) {
            self.fed.get_mut::<F>().push(prefix);
        }
        self.count(before, after);
        after
    }

    fn has_no_change(&self) -> bool {
        !any_bgp_family!(F => !self.fed.get::<F>().is_empty())
    }
}

impl Shard {
    /// Whether [`Shard::fence`] would return a number.
    pub fn fence_due(&self) -> bool {
        !self.core.gates.has_no_change() && self.core.gates.fenced.len() < FENCES_MAX
    }

    /// Returns the fence after what was fed so far, or `None` if nothing needs one. Call it after
    /// [`ShardOut::take`]. The caller sends the number to the RIB manager after the feed; a
    /// [`Confirmation`] returns it.
    pub fn fence(&mut self) -> Option<u64> {
        if !self.fence_due() {
            return None;
        }
        let gates = &mut self.core.gates;
        let fence = gates.fence;
        gates.fenced.push_back((fence, std::mem::take(&mut gates.fed)));
        gates.fence += 1;
        Some(fence)
    }

    /// Turns suppression on or off. Advertised paths stay advertised.
    pub(super) fn suppress(&mut self, on: bool, out: &mut ShardOut) {
        if self.core.gates.on == on {
            return;
        }
        // Fences of an earlier period are never confirmed, so their routes open first.
        while on && self.work.is_opening() {
            self.step(out);
        }
        let gates = &mut self.core.gates;
        gates.on = on;
        if !on {
            gates.fed = BgpFamilies::default();
            gates.fenced.clear();
            // Confirmations under way name earlier fences.
            gates.fence += 1;
            self.work.open();
        }
    }

    /// Dataplanes have everything before the fence, except blocked prefixes.
    pub(super) fn confirmed(&mut self, news: &Confirmation, out: &mut ShardOut) {
        if !self.core.gates.on {
            return;
        }
        self.core.gates.confirmed = self.core.gates.confirmed.max(news.fence);
        for (prefix, blocked) in &news.blocked {
            match prefix {
                AnyPrefix::V4(prefix) => self.block(*prefix, *blocked, out),
                AnyPrefix::V6(prefix) => self.block(*prefix, *blocked, out),
            }
        }
    }

    fn block<F: BgpFamily>(&mut self, prefix: Prefix<F>, blocked: bool, out: &mut ShardOut) {
        let Shard { tables, core, .. } = self;
        let table = &mut tables.get_mut::<F>()[usize::from(logical_shard(prefix))];
        // The prefix may belong to another shard, which gets the same message.
        let Some(at) = table.find(route::hash(prefix, &core.seed), |route| route.is(prefix)) else { return };
        let route = table.get_mut(at);
        let Some(best) = core.best_of(route) else { return };
        let (before, after) = (route.gate(), route.gate().blocked(blocked));
        if before == after {
            return;
        }
        match blocked {
            true => core.resend(prefix, before, Some(best), None, out),
            false if after == Gate::OPEN => core.advertise(prefix, None, Some(best), out),
            false => {}
        }
        core.gates.count(before, after);
        route.set_gate(after, core.stamp());
        core.ranked.note(prefix);
    }

    /// Advertises some of the confirmed prefixes, at most [`STEP`].
    pub(super) fn advertise_confirmed(&mut self, out: &mut ShardOut) {
        let Shard { tables, core, .. } = self;
        let mut left = STEP;
        while left > 0 && core.gates.any_confirmed() {
            let Some((fence, mut fed)) = core.gates.fenced.pop_front() else { return };
            for_each_bgp_family!(F => {
                let fed = fed.get_mut::<F>();
                let some = fed.split_off(fed.len().saturating_sub(left));
                left -= some.len();
                some.chunks(GROUP).for_each(|some| core.open::<F>(tables, some, fence, out));
            });
            if any_bgp_family!(F => !fed.get::<F>().is_empty()) {
                core.gates.fenced.push_front((fence, fed));
            }
        }
    }
}

impl Core {
    /// Opens the gates of those prefixes, at most [`GROUP`], that wait for `fence` and for no later
    /// one.
    fn open<F: BgpFamily>(
        &mut self,
        tables: &mut BgpFamilies<Tables>,
        prefixes: &[Prefix<F>],
        fence: u64,
        out: &mut ShardOut,
    ) {
        let tables = tables.get_mut::<F>();
        let mut spots = [Spot::default(); GROUP];
        self.prefetch(tables, prefixes, None, true, &mut spots);
        for spot in &spots[..prefixes.len()] {
            let table = &mut tables[usize::from(spot.logical)];
            if spot.at != NONE && table.get(spot.at as usize).gate().waits_for(fence) {
                let route = table.get_mut(spot.at as usize);
                self.opened(route, route.gate().confirmed(), out);
            }
        }
    }

    /// A gate opens by a step. The best path is advertised if the gate is open then.
    fn opened<F: BgpFamily>(&mut self, route: &mut Route<F>, after: Gate, out: &mut ShardOut) {
        let mut after = after;
        if after == Gate::OPEN && route.gate().advertises_former() && self.waits_for_report(route) {
            after = Gate::HELD;
        } else if after == Gate::OPEN {
            let best = self.best_of(route);
            self.resend(route.prefix(), route.gate(), best, best, out);
        }
        self.gates.count(route.gate(), after);
        route.set_gate(after, self.stamp());
        self.ranked.note(route.prefix());
    }

    /// Advertises the best path of a route in any state.
    pub(super) fn open_gate<F: BgpFamily>(&mut self, route: &mut Route<F>, out: &mut ShardOut) {
        if route.gate() != Gate::OPEN {
            self.opened(route, Gate::OPEN, out);
        }
    }

    /// Whether a route has no best path and may get one when the RIB manager reports a next hop.
    pub(super) fn waits_for_report<F: BgpFamily>(&self, route: &Route<F>) -> bool {
        !route.is_usable() && self.has_unknown(route)
    }

    /// Returns the new gate of a route that [waits for a report](Core::waits_for_report). `old` was
    /// its best path.
    pub(super) fn holds<F: BgpFamily>(&mut self, prefix: Prefix<F>, gate: Gate, old: Option<Path>) -> Gate {
        match old {
            Some(old) if gate == Gate::OPEN => {
                self.hold_advertised(prefix, old);
                Gate::HELD
            }
            // Nothing is advertised. A later best path is fed again and waits for its own fence.
            _ if gate.is_blocked() => {
                self.gates.count(gate, Gate::OPEN);
                Gate::OPEN
            }
            _ => gate,
        }
    }

    /// Returns the new gate of a prefix whose best path changed and that is not open, or has to
    /// wait now. `fed`: the RIB manager got a change.
    pub(super) fn passes<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        gate: Gate,
        [old, new]: [Option<Path>; 2],
        fed: bool,
        out: &mut ShardOut,
    ) -> Gate {
        if new.is_none() || !self.gates.on {
            self.resend(prefix, gate, old, new, out);
            self.gates.count(gate, Gate::OPEN);
            return Gate::OPEN;
        }
        if !fed {
            return gate;
        }
        if let Some(old) = old.filter(|_| gate == Gate::OPEN) {
            self.hold_advertised(prefix, old);
        }
        let advertised = gate.advertises_former() || (gate == Gate::OPEN && old.is_some());
        self.gates.wait(prefix, gate, advertised)
    }

    /// Sets the gate of an adopted route that waited in another shard. `advertised`: the map has
    /// its advertised path.
    pub(super) fn waits_here<F: BgpFamily>(
        &mut self,
        route: &mut Route<F>,
        advertised: bool,
        out: &mut ShardOut,
    ) {
        let prefix = route.prefix();
        self.ranked.note(prefix);
        let Some(best) = self.best_of(route) else {
            if advertised && self.has_unknown(route) {
                route.set_gate(Gate::HELD, self.stamp());
            } else {
                self.resend(prefix, Gate::OPEN.wait(0, advertised), None, None, out);
            }
            return;
        };
        if !self.gates.on {
            self.resend(prefix, Gate::OPEN.wait(0, advertised), None, Some(best), out);
            return;
        }
        self.feed_again(route, best, out);
        route.set_gate(self.gates.wait(prefix, Gate::OPEN, advertised), self.stamp());
    }

    /// Takes a route out of the counts, because it moves to another shard. Returns `None` if its
    /// best path is advertised, else the advertised path. The path of an ended session is withdrawn
    /// instead.
    pub(super) fn waits_elsewhere<F: BgpFamily>(
        &mut self,
        route: &Route<F>,
        out: &mut ShardOut,
    ) -> Option<Option<Path>> {
        if route.gate() == Gate::OPEN {
            return None;
        }
        self.gates.count(route.gate(), Gate::OPEN);
        let advertised = self.advertised(route);
        if advertised.is_some_and(|advertised| !self.sessions.get(advertised.session).up) {
            self.resend(route.prefix(), route.gate(), None, None, out);
            return Some(None);
        }
        Some(advertised)
    }

    /// The advertised path of a route.
    #[inline]
    pub(super) fn advertised<F: BgpFamily>(&self, route: &Route<F>) -> Option<Path> {
        match route.is_open() {
            true => self.best_of(route),
            false => self.advertised_behind(route),
        }
    }

    /// The advertised path of a route whose gate is not open.
    #[cold]
    #[inline(never)]
    fn advertised_behind<F: BgpFamily>(&self, route: &Route<F>) -> Option<Path> {
        let former = route.gate().advertises_former();
        former.then(|| self.gates.advertised.get::<F>().get(&route.prefix()).copied())?
    }

    /// Whether the best path of a route is advertised.
    pub(super) fn standing<F: BgpFamily>(&self, route: &Route<F>) -> Standing {
        match route.gate() {
            Gate::OPEN => Standing::Advertised,
            gate if gate.is_blocked() => Standing::Blocked,
            gate => Standing::Waiting { former: gate.advertises_former() },
        }
    }

    /// Advertises `new` in place of the advertised path: `best` if the gate is open.
    fn resend<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        gate: Gate,
        best: Option<Path>,
        new: Option<Path>,
        out: &mut ShardOut,
    ) {
        let advertised = match gate {
            Gate::OPEN => best,
            gate if gate.advertises_former() => self.gates.advertised.get_mut::<F>().remove(&prefix),
            _ => None,
        };
        self.advertise(prefix, advertised, new, out);
        if let Some(advertised) = advertised.filter(|_| gate.advertises_former()) {
            self.release_advertised(advertised);
        }
    }

    /// Notes `path` as the advertised path of `prefix`, though another is best. It keeps its
    /// attributes and session.
    pub(super) fn hold_advertised<F: BgpFamily>(&mut self, prefix: Prefix<F>, path: Path) {
        self.attrs.hold(path.attrs);
        self.sessions.hold(path.session);
        self.gates.advertised.get_mut::<F>().insert(prefix, path);
    }

    /// Releases the attributes and session of a path after [`Core::hold_advertised`].
    pub(super) fn release_advertised(&mut self, path: Path) {
        self.attrs.release_ref(path.attrs);
        self.sessions.release_ref(path.session);
    }

    /// Removes the note of the advertised path; the caller releases it.
    pub(super) fn take_advertised<F: BgpFamily>(&mut self, prefix: Prefix<F>) -> Option<Path> {
        self.gates.advertised.get_mut::<F>().remove(&prefix)
    }
}
