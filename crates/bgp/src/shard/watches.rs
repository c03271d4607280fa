//! Route watches in a shard: which advertised prefixes are members of which watch, and which of them an
//! aggregate suppresses.
//!
//! Members stand in a map, so that a prefix counts once however often it changes, is scanned or moves
//! to another shard. The map has members alone: prefixes in no watch cost a lookup for each length of
//! the watched prefixes, and nothing while there is no watch.

use super::effects::Audience;
use super::paths::Path;
use super::route::Route;
use super::{Core, Shard, ShardOut};
use crate::message::NONE;
use crate::peer::{LocalSource, PeerInfo, PeerKind};
use crate::watch::{Presence, Suppression, WatchId, WatchNews, WatchSet, WatchedRoutes};
use ribtide_policy::Route as PolicyRoute;
use ribtide_prefix::{
    AnyPrefix, BgpFamilies, BgpFamily, Map, Prefix, Set, any_bgp_family, for_each_bgp_family, per_bgp_family,
    shrink_to_fit, sum_bgp_families,
};
use ribtide_wire::bgp::attribute::Origin;
use smallvec::SmallVec;
use std::sync::Arc;

/// Indices of watches in their set, ascending.
type Matched = SmallVec<[u32; 2]>;

/// The watches of a shard.
#[derive(Default)]
pub(super) struct Watches {
    set: Arc<WatchSet>,
    aggregates: BgpFamilies<Aggregates>,
    /// Indices of the watches that have a prefix set.
    in_sets: Vec<u32>,
    members: BgpFamilies<Members>,
    lists: Lists,
    states: Map<WatchId, State>,
    /// Watches whose counts changed since the last news.
    changed: Set<WatchId>,
    /// The generation whose scan is complete, until the next news.
    complete: Option<u32>,
    /// Whether members moved to a shard that has not reported them yet.
    held: bool,
}

per_bgp_family! {
    /// Watched prefixes with the index of their watch, and their lengths.
    struct Aggregates<F> = OfFamily<F>;
}

per_bgp_family!(struct Members<F> = Map<Prefix<F>, Member>);

struct OfFamily<F: BgpFamily> {
    by_prefix: Map<Prefix<F>, u32>,
    lengths: Vec<u8>,
}

impl<F: BgpFamily> Default for OfFamily<F> {
    fn default() -> Self {
        OfFamily { by_prefix: Map::default(), lengths: Vec::new() }
    }
}

/// A prefix in a watch.
#[derive(Clone, Copy)]
struct Member {
    /// Its watches, in [`Lists`].
    list: u32,
    origin: Origin,
    /// What egress workers have of its path.
    sight: Sight,
}

/// What egress workers have of the path of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sight {
    /// The path.
    Shown,
    /// The path, marked as suppressed by an aggregate.
    Marked,
    /// Nothing: an aggregate suppresses it.
    Hidden,
}

impl Sight {
    fn is_suppressed(self) -> bool {
        self != Sight::Shown
    }
}

/// The members of a watch.
#[derive(Default)]
struct State {
    /// By ORIGIN.
    counts: [u32; 3],
    /// In the last news.
    reported: Presence,
}

impl State {
    fn presence(&self) -> Presence {
        [Origin::Incomplete, Origin::Egp, Origin::Igp]
            .into_iter()
            .find(|origin| self.counts[*origin as usize] > 0)
    }
}

/// Lists of watches, each once, with the number of their members.
#[derive(Default)]
struct Lists {
    lists: Vec<(Arc<[WatchId]>, u32)>,
    numbers: Map<Arc<[WatchId]>, u32>,
    unused: Vec<u32>,
}

impl Lists {
    fn acquire(&mut self, ids: Arc<[WatchId]>) -> u32 {
        if let Some(number) = self.numbers.get(&ids) {
            self.lists[*number as usize].1 += 1;
            return *number;
        }
        let list = (ids.clone(), 1);
        let number = match self.unused.pop() {
            Some(number) => {
                self.lists[number as usize] = list;
                number
            }
            None => {
                self.lists.push(list);
                self.lists.len() as u32 - 1
            }
        };
        self.numbers.insert(ids, number);
        number
    }

    /// Removes a member; returns the list.
    fn release(&mut self, number: u32) -> Arc<[WatchId]> {
        let (ids, members) = &mut self.lists[number as usize];
        *members -= 1;
        let ids = ids.clone();
        if *members == 0 {
            self.numbers.remove(&ids);
            self.unused.push(number);
        }
        ids
    }
}

/// A member of watches that moves to another shard.
#[derive(Clone, Debug)]
pub(super) struct MovedMember {
    watches: Arc<[WatchId]>,
    origin: Origin,
    sight: Sight,
}

/// What workers have of the path of a prefix, before a change and after it, where there is one.
struct Visible {
    before: Sight,
    after: Sight,
}

impl Watches {
    fn new(set: Arc<WatchSet>) -> Watches {
        let mut watches = Watches::default();
        watches.replace(set);
        watches
    }

    fn replace(&mut self, set: Arc<WatchSet>) {
        self.aggregates = BgpFamilies::default();
        self.in_sets = Vec::new();
        for (at, watch) in (0..).zip(&set.watches) {
            match &watch.routes {
                WatchedRoutes::MoreSpecific(AnyPrefix::V4(prefix)) => self.aggregates.v4.add(*prefix, at),
                WatchedRoutes::MoreSpecific(AnyPrefix::V6(prefix)) => self.aggregates.v6.add(*prefix, at),
                WatchedRoutes::In(..) => self.in_sets.push(at),
            }
        }
        let stays = |id: &WatchId| set.watches.iter().any(|watch| watch.id == *id);
        self.states.retain(|id, _| stays(id));
        self.changed.retain(stays);
        self.set = set;
    }

    /// The watches of a path, by index, and whether an aggregate suppresses it. `fresh`: nothing was
    /// advertised before, or it was suppressed.
    fn matches<F: BgpFamily>(&self, prefix: Prefix<F>, path: &Candidate<'_>, fresh: bool) -> (Matched, bool) {
        let mut matched = Matched::new();
        let mut suppressed = false;
        let aggregates = self.aggregates.get::<F>();
        let contributes = path.source.kind != PeerKind::Local(LocalSource::Aggregate);
        let lengths = aggregates.lengths.iter().take_while(|len| contributes && **len < prefix.len());
        for len in lengths {
            let Some(at) = aggregates.by_prefix.get(&prefix.truncate(*len)) else { continue };
            matched.push(*at);
            if let Some(suppression) = &self.set.watches[*at as usize].suppression {
                suppressed |= suppression.takes(prefix, path, fresh);
            }
        }
        for at in &self.in_sets {
            if let WatchedRoutes::In(set, policy) = &self.set.watches[*at as usize].routes
                && set.set().contains(prefix)
                && policy.as_ref().is_none_or(|policy| policy.evaluate(&path.route::<F>(), prefix).is_some())
            {
                matched.push(*at);
            }
        }
        (matched, suppressed)
    }

    /// Notes the path of a prefix that workers would get without suppression. `had`: whether they would
    /// have got one before.
    fn note<F: BgpFamily>(&mut self, prefix: Prefix<F>, had: bool, path: Option<&Candidate<'_>>) -> Visible {
        let former = self.members.get::<F>().get(&prefix).copied();
        let before = former.map_or(Sight::Shown, |member| member.sight);
        let Some(path) = path else {
            self.remove(prefix);
            return Visible { before, after: Sight::Shown };
        };
        let (matched, suppressed) = self.matches(prefix, path, !had || before.is_suppressed());
        let after = match (suppressed, self.set.unsuppresses) {
            (false, _) => Sight::Shown,
            (true, true) => Sight::Marked,
            (true, false) => Sight::Hidden,
        };
        let visible = Visible { before, after };
        if matched.is_empty() {
            self.remove(prefix);
            return visible;
        }
        let ids = || matched.iter().map(|at| self.set.watches[*at as usize].id);
        let same = |member: &Member| {
            member.origin == path.origin && self.lists.lists[member.list as usize].0.iter().copied().eq(ids())
        };
        if former.as_ref().is_some_and(same) {
            if after != before
                && let Some(member) = self.members.get_mut::<F>().get_mut(&prefix)
            {
                member.sight = after;
            }
            return visible;
        }
        let watches = ids().collect();
        self.remove(prefix);
        self.insert(prefix, MovedMember { watches, origin: path.origin, sight: after });
        visible
    }

    fn insert<F: BgpFamily>(&mut self, prefix: Prefix<F>, member: MovedMember) {
        let MovedMember { watches, origin, sight } = member;
        for id in &*watches {
            self.states.entry(*id).or_default().counts[origin as usize] += 1;
            self.changed.insert(*id);
        }
        let list = self.lists.acquire(watches);
        self.members.get_mut::<F>().insert(prefix, Member { list, origin, sight });
    }

    fn remove<F: BgpFamily>(&mut self, prefix: Prefix<F>) -> Option<MovedMember> {
        let Member { list, origin, sight } = self.members.get_mut::<F>().remove(&prefix)?;
        let watches = self.lists.release(list);
        for id in &*watches {
            // A watch of an earlier set has no state.
            if let Some(state) = self.states.get_mut(id) {
                state.counts[origin as usize] -= 1;
                self.changed.insert(*id);
            }
        }
        Some(MovedMember { watches, origin, sight })
    }

    fn sight<F: BgpFamily>(&self, prefix: Prefix<F>) -> Sight {
        self.members.get::<F>().get(&prefix).map_or(Sight::Shown, |member| member.sight)
    }

    /// Whether no watch is left, and no member of an earlier one.
    fn is_over(&self) -> bool {
        self.set.watches.is_empty() && !any_bgp_family!(F => !self.members.get::<F>().is_empty())
    }

    fn news(&mut self) -> WatchNews {
        let mut changed = Vec::new();
        let mut later = Set::default();
        for id in std::mem::take(&mut self.changed) {
            let Some(state) = self.states.get_mut(&id) else { continue };
            let presence = state.presence();
            if presence == state.reported {
                continue;
            }
            if self.held && presence < state.reported {
                later.insert(id);
                continue;
            }
            state.reported = presence;
            changed.push((id, presence));
        }
        self.changed = later;
        changed.sort_unstable_by_key(|(id, _)| *id);
        WatchNews { changed, complete: self.complete.take() }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        for_each_bgp_family!(F => shrink_to_fit(self.members.get_mut::<F>()));
    }

    fn memory(&self) -> usize {
        sum_bgp_families!(F => self.members.get::<F>().allocation_size())
    }
}

impl<F: BgpFamily> OfFamily<F> {
    fn add(&mut self, prefix: Prefix<F>, at: u32) {
        self.by_prefix.insert(prefix, at);
        if let Err(place) = self.lengths.binary_search(&prefix.len()) {
            self.lengths.insert(place, prefix.len());
        }
    }
}

/// A path that workers may get.
struct Candidate<'a> {
    attributes: &'a [u8],
    next_hop: ribtide_wire::bgp::NextHop,
    origin: Origin,
    source: &'a PeerInfo,
}

impl Candidate<'_> {
    fn route<F: BgpFamily>(&self) -> PolicyRoute<'_> {
        PolicyRoute {
            attributes: self.attributes,
            next_hop: self.next_hop,
            family: F::ID,
            source: self.source.source(),
            validation: None,
        }
    }
}

impl Suppression {
    fn takes<F: BgpFamily>(&self, prefix: Prefix<F>, path: &Candidate<'_>, fresh: bool) -> bool {
        (fresh || self.advertised)
            && self.policy.as_ref().is_none_or(|policy| policy.evaluate(&path.route::<F>(), prefix).is_some())
    }
}

impl Shard {
    /// Watches other routes. All prefixes are scanned for it.
    pub(super) fn watch(&mut self, set: Arc<WatchSet>) {
        match &mut self.core.watches {
            Some(watches) => watches.replace(set),
            None if set.watches.is_empty() => return,
            none => *none = Some(Box::new(Watches::new(set))),
        }
        self.work.watch();
    }

    /// Reports what this shard has less since [`Shard::extract`], after the new owner reported what it
    /// has more. So no watch is without members in between.
    pub fn release_watch_news(&mut self, out: &mut ShardOut) {
        if let Some(watches) = &mut self.core.watches {
            watches.held = false;
        }
        self.core.report_watches(out);
    }

    /// Members of each watch in this shard.
    pub fn watched(&self) -> Vec<(WatchId, u32)> {
        let states = self.core.watches.iter().flat_map(|watches| &watches.states);
        let mut counts: Vec<_> = states.map(|(id, state)| (*id, state.counts.iter().sum())).collect();
        counts.sort_unstable();
        counts
    }
}

impl Core {
    /// Sends a change of the advertised path to workers, with regard to suppression by aggregates.
    #[cold]
    #[inline(never)]
    pub(super) fn advertise_watched<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        [old, new]: [Option<Path>; 2],
        out: &mut ShardOut,
    ) {
        let visible = self.note_watched(prefix, old.is_some(), new);
        self.ranked.note(prefix);
        let is_shown = |path: Option<Path>, sight| path.is_none() || sight == Sight::Shown;
        if is_shown(old, visible.before) && is_shown(new, visible.after) {
            return self.send_best(Audience::All, prefix, old, new, out);
        }
        self.send_sights(prefix, [(old, visible.before), (new, visible.after)], out);
        self.send_best(Audience::Stations, prefix, old, new, out);
    }

    fn note_watched<F: BgpFamily>(&mut self, prefix: Prefix<F>, had: bool, path: Option<Path>) -> Visible {
        let Core { watches, attrs, sessions, .. } = self;
        let Some(watches) = watches else { return Visible { before: Sight::Shown, after: Sight::Shown } };
        let candidate = path.map(|path| {
            let set = attrs.get(path.attrs);
            let source = &*sessions.get(path.session).info;
            Candidate { attributes: set.bytes(), next_hop: set.next_hop(), origin: set.origin(), source }
        });
        watches.note(prefix, had, candidate.as_ref())
    }

    /// Looks at a prefix for a new set of watches.
    pub(super) fn watch_again<F: BgpFamily>(&mut self, route: &Route<F>, out: &mut ShardOut) {
        let Some(path) = self.advertised(route) else { return };
        let visible = self.note_watched(route.prefix(), true, Some(path));
        if visible.before != visible.after {
            self.ranked.note(route.prefix());
            let path = Some(path);
            self.send_sights(route.prefix(), [(path, visible.before), (path, visible.after)], out);
        }
    }

    /// Sends workers a change of what they have of a prefix: the path before and after it.
    fn send_sights<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        sights: [(Option<Path>, Sight); 2],
        out: &mut ShardOut,
    ) {
        let [old, new] = sights.map(|(path, sight)| path.filter(|_| sight != Sight::Hidden));
        let [was_marked, is_marked] = sights.map(|(path, sight)| path.is_some() && sight == Sight::Marked);
        match (old, new) {
            (None, None) => {}
            _ if !was_marked && !is_marked => self.send_best(Audience::Workers, prefix, old, new, out),
            _ => {
                let mut index = |path, marked| self.index_marked(Audience::Workers, path, marked, out);
                let (before, after) = (index(old, was_marked), index(new, is_marked));
                match self.renewed(old, new) {
                    Some(true) if was_marked == is_marked => {}
                    // As in `send_best`.
                    Some(false) => {
                        out.change(Audience::Workers, prefix, before, NONE);
                        out.change(Audience::Workers, prefix, NONE, after);
                    }
                    _ => out.change(Audience::Workers, prefix, before, after),
                }
            }
        }
    }

    /// The scan for a set of watches is complete.
    pub(super) fn watched_all(&mut self) {
        if let Some(watches) = &mut self.watches {
            watches.complete = Some(watches.set.generation);
        }
    }

    /// Whether an aggregate suppresses a prefix.
    #[inline]
    pub(super) fn is_suppressed<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        self.sight(prefix).is_suppressed()
    }

    /// What workers have of a prefix with an advertised path.
    #[inline]
    pub(super) fn sight<F: BgpFamily>(&self, prefix: Prefix<F>) -> Sight {
        self.watches.as_ref().map_or(Sight::Shown, |watches| watches.sight(prefix))
    }

    /// The aggregates that have a prefix as a member that they suppress.
    pub(super) fn suppressed_by<F: BgpFamily>(&self, prefix: Prefix<F>) -> Vec<AnyPrefix> {
        let Some(watches) = self.watches.as_ref().filter(|watches| watches.sight(prefix).is_suppressed())
        else {
            return Vec::new();
        };
        let aggregates = watches.aggregates.get::<F>();
        let covering =
            aggregates.lengths.iter().filter(|len| **len < prefix.len()).map(|len| prefix.truncate(*len));
        let suppresses = |prefix: &Prefix<F>| {
            let at = aggregates.by_prefix.get(prefix);
            at.is_some_and(|at| watches.set.watches[*at as usize].suppression.is_some())
        };
        covering.filter(suppresses).map(Prefix::any).collect()
    }

    /// Appends news of watches.
    pub(super) fn report_watches(&mut self, out: &mut ShardOut) {
        let Some(watches) = &mut self.watches else { return };
        if !watches.changed.is_empty() || watches.complete.is_some() {
            out.watched(watches.news());
        }
        if watches.is_over() {
            self.watches = None;
        }
    }

    /// Removes a prefix that moves to another shard from its watches.
    pub(super) fn unwatch<F: BgpFamily>(&mut self, prefix: Prefix<F>) -> Option<MovedMember> {
        let watches = self.watches.as_mut()?;
        let member = watches.remove(prefix)?;
        watches.held = true;
        Some(member)
    }

    /// Adds a prefix that moved here from another shard to its watches.
    pub(super) fn adopt_watched<F: BgpFamily>(&mut self, prefix: Prefix<F>, member: MovedMember) {
        self.watches.get_or_insert_default().insert(prefix, member);
    }

    /// Bytes of memory of watches.
    pub(super) fn watch_memory(&self) -> usize {
        self.watches.as_ref().map_or(0, |watches| watches.memory())
    }
}
