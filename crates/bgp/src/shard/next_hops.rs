//! The next hops of a shard's paths, with the state that the RIB manager reported for each kind of
//! path.
//!
//! Paths of single-hop external sessions need their next hop on link, other paths do not (RFC 4271
//! section 5.1.3). So an address has two states. A shard registers an address for a kind while a
//! path of that kind uses it.
//!
//! A next hop inside the prefix of its path has an entry of its own, because that prefix must not
//! resolve it. So has a next hop that depends on the prefix through other routes, once the RIB
//! manager reports that.

use crate::decision::Reason;
use crate::message::{NextHopState, TrackedNextHop};
use ribtide_prefix::{AnyPrefix, BgpFamily, ByFamily, Map};
use std::net::IpAddr;

/// Next hops by number.
pub(super) struct NextHops {
    entries: Vec<Hop>,
    unused: Vec<u32>,
    by_address: Map<(IpAddr, Option<AnyPrefix>), u32>,
    /// The prefixes of entries, by address, where the address lies outside of the prefix: it depends
    /// on the prefix through other routes.
    outside: Map<IpAddr, Vec<AnyPrefix>>,
    /// The state of a next hop without report: `None` with a RIB manager, else reachable.
    assumed: Option<NextHopState>,
    /// Whether the RIB manager gets routes, so that a next hop inside the prefix of its path needs an entry of its own.
    separates: bool,
    /// Used next hops that are unreachable or unknown.
    unusable: usize,
    /// Used next hops that are not reachable at cost 0.
    uneven: usize,
    /// The entry that was acquired last. Most sets of a session have its next hop.
    last: u32,
    /// Next hops whose use may have changed since [`NextHops::uses`].
    touched: Vec<u32>,
}

struct Hop {
    address: IpAddr,
    /// The prefix of all its paths, if the address lies inside that prefix or depends on it.
    exclude: Option<AnyPrefix>,
    /// For paths that need it on link, and for the others.
    kinds: [Kind; 2],
    /// Attribute sets with this next hop.
    sets: u32,
    touched: bool,
    /// Prefixes whose paths have a separate entry for this address, because its state depends on
    /// their routes. The RIB manager reports a prefix only while that entry is not registered, so
    /// a new entry without a prefix takes over those that exist.
    apart: Vec<AnyPrefix>,
}

#[derive(Clone, Copy)]
struct Kind {
    /// The last report.
    state: Option<NextHopState>,
    /// Paths with this next hop, IPv4 and IPv6.
    paths: ByFamily<u32>,
    /// Whether it is registered with the RIB manager.
    registered: bool,
}

impl Kind {
    fn is_used(&self) -> bool {
        self.paths != ByFamily::default()
    }

    fn is_usable(&self) -> bool {
        self.state.and_then(NextHopState::cost).is_some()
    }

    /// Whether it is used and unusable.
    fn hides(&self) -> bool {
        self.is_used() && !self.is_usable()
    }

    /// Whether it is used and not reachable at cost 0.
    fn is_uneven(&self) -> bool {
        self.is_used() && !matches!(self.state, Some(NextHopState::Reachable { cost: 0, .. }))
    }
}

/// The effect of a report on the paths of a next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The state is unchanged.
    Same,
    /// The first state.
    First,
    /// Another state.
    Other,
    /// Another distance at the same cost: only accumulated IGP metrics that are sent change.
    Distance,
}

impl NextHops {
    /// An empty table. `tracks`: next hops are unknown until the RIB manager reports them.
    pub(super) fn new(tracks: bool) -> NextHops {
        NextHops {
            entries: Vec::new(),
            unused: Vec::new(),
            by_address: Map::default(),
            outside: Map::default(),
            assumed: (!tracks).then_some(REACHABLE),
            separates: tracks,
            unusable: 0,
            uneven: 0,
            last: 0,
            touched: Vec::new(),
        }
    }

    /// Stores a report of the RIB manager.
    pub(super) fn report(&mut self, next_hop: TrackedNextHop, state: NextHopState) -> News {
        let Some(id) = self.by_address.get(&(next_hop.address, next_hop.exclude)) else { return News::Same };
        let kind = &mut self.entries[*id as usize].kinds[usize::from(next_hop.recursive)];
        if !kind.is_used() || kind.state == Some(state) {
            return News::Same;
        }
        let before = *kind;
        let former = kind.state.replace(state);
        let after = *kind;
        self.count(before, after);
        match former {
            None => News::First,
            Some(former) if former.is_as_near(state) => News::Distance,
            Some(_) => News::Other,
        }
    }

    /// Stores the state that another shard had, for paths that are about to arrive. A state that
    /// exists here has priority, since the RIB manager reports the same to all shards.
    pub(super) fn learn(&mut self, next_hop: TrackedNextHop, state: Option<NextHopState>) -> News {
        let id = self.find(next_hop.address, next_hop.exclude);
        let kind = &mut self.entries[id as usize].kinds[usize::from(next_hop.recursive)];
        match (kind.is_used(), kind.state, state) {
            (true, Some(_), None) => News::Other,
            (true, Some(here), Some(there)) if here != there => News::Other,
            (true, Some(_), _) | (_, _, None) => News::Same,
            (true, None, Some(state)) => self.report(next_hop, state),
            (false, _, Some(state)) => {
                kind.state = Some(state);
                News::Same
            }
        }
    }

    /// The states of a next hop for each kind of path that uses it.
    pub(super) fn known(&self, id: u32) -> impl Iterator<Item = (TrackedNextHop, Option<NextHopState>)> {
        let Hop { address, exclude, kinds, .. } = &self.entries[id as usize];
        [false, true].into_iter().filter_map(move |recursive| {
            let kind = &kinds[usize::from(recursive)];
            let next_hop = TrackedNextHop { address: *address, recursive, exclude: *exclude };
            kind.is_used().then_some((next_hop, kind.state))
        })
    }

    /// Interior cost to a next hop, or why it cannot be used.
    #[inline]
    pub(super) fn cost(&self, id: u32, recursive: bool) -> Result<u32, Reason> {
        let state = self.entries[id as usize].kinds[usize::from(recursive)].state;
        state.ok_or(Reason::NextHopUnknown)?.cost().ok_or(Reason::NextHopUnreachable)
    }

    /// The distance to an address of no prefix's own; `None`: it is not known, or cannot be used.
    pub(super) fn distance_to(&self, address: IpAddr, recursive: bool) -> Option<u32> {
        let id = self.by_address.get(&(address, None))?;
        self.distance(*id, recursive)
    }

    /// The distance to a next hop; `None`: it is not known, or cannot be used.
    pub(super) fn distance(&self, id: u32, recursive: bool) -> Option<u32> {
        self.entries[id as usize].kinds[usize::from(recursive)].state?.distance()
    }

    /// Interior cost to the next hop that a path of this prefix would have, or why it could not be used; `None`: no path
    /// of the shard has it.
    pub(super) fn cost_of_other(
        &self,
        address: IpAddr,
        prefix: AnyPrefix,
        recursive: bool,
    ) -> Option<Result<u32, Reason>> {
        let id = self.by_address.get(&(address, Some(prefix))).or(self.by_address.get(&(address, None)))?;
        let kind = &self.entries[*id as usize].kinds[usize::from(recursive)];
        kind.is_used().then(|| self.cost(*id, recursive))
    }

    /// Whether a next hop is reachable only for a route that has no other next hop.
    pub(super) fn is_alone(&self, id: u32, recursive: bool) -> bool {
        let state = self.entries[id as usize].kinds[usize::from(recursive)].state;
        matches!(state, Some(NextHopState::ReachableAlone { .. }))
    }

    /// Separates the paths of a prefix from an address: they get an entry of their own.
    pub(super) fn set_apart(&mut self, address: IpAddr, prefix: AnyPrefix) {
        if let Some(id) = self.by_address.get(&(address, None)) {
            let apart = &mut self.entries[*id as usize].apart;
            if !apart.contains(&prefix) {
                apart.push(prefix);
            }
        }
    }

    /// Prefixes whose paths have a separate entry for this address.
    pub(super) fn apart(&self, id: u32) -> &[AnyPrefix] {
        &self.entries[id as usize].apart
    }

    pub(super) fn address(&self, id: u32) -> IpAddr {
        self.entries[id as usize].address
    }

    /// Next hops of attribute sets.
    pub(super) fn in_use(&self) -> usize {
        self.entries.iter().filter(|hop| hop.sets > 0).count()
    }

    /// Whether all used next hops are reachable.
    #[inline]
    pub(super) fn all_reachable(&self) -> bool {
        self.unusable == 0
    }

    /// Whether all used next hops are reachable at cost 0, as without a RIB manager. Then selection
    /// ignores costs.
    #[inline]
    pub(super) fn all_at_cost_0(&self) -> bool {
        self.uneven == 0
    }

    /// Paths of a family whose next hop is unusable.
    pub(super) fn hidden<F: BgpFamily>(&self) -> usize {
        let hide = self.entries.iter().flat_map(|hop| &hop.kinds).filter(|kind| kind.hides());
        hide.map(|kind| kind.paths[F::ID] as usize).sum()
    }

    /// The prefix of all its paths, if the address lies inside it.
    pub(super) fn exclude(&self, id: u32) -> Option<AnyPrefix> {
        self.entries[id as usize].exclude
    }

    /// Whether next hops inside the prefixes of their paths have entries of their own.
    pub(super) fn separates(&self) -> bool {
        self.separates
    }

    /// A RIB manager gets the routes from now on. It reports no state yet.
    pub(super) fn separate(&mut self) {
        self.separates = true;
    }

    /// The RIB manager reports states from now on. Used next hops are registered by the next [`NextHops::uses`], and keep
    /// their state until the first report of another. O(next hops).
    pub(super) fn begin_tracking(&mut self) {
        (self.assumed, self.separates) = (None, true);
        for id in 0..self.entries.len() {
            let hop = &mut self.entries[id];
            for kind in &mut hop.kinds {
                // An earlier RIB manager may have known it.
                kind.registered = false;
                if !kind.is_used() {
                    kind.state = assumed(None, hop.address);
                }
            }
            if hop.sets > 0 {
                self.touch(id as u32);
            }
        }
    }

    /// No RIB manager reports any more: each next hop is reachable at cost 0. Returns whether the state of a used one
    /// changed. O(next hops).
    pub(super) fn end_tracking(&mut self) -> bool {
        (self.assumed, self.separates) = (Some(REACHABLE), false);
        let mut changed = false;
        for kind in self.entries.iter_mut().flat_map(|hop| &mut hop.kinds) {
            changed |= kind.is_used() && kind.state != Some(REACHABLE);
            kind.state = Some(REACHABLE);
        }
        (self.unusable, self.uneven) = (0, 0);
        changed
    }

    /// The number of an address, with one more attribute set. `exclude`: the prefix that contains
    /// it.
    pub(super) fn acquire(&mut self, address: IpAddr, exclude: Option<AnyPrefix>) -> u32 {
        if let Some(hop) = self.entries.get_mut(self.last as usize)
            && hop.sets > 0
            && (hop.address, hop.exclude) == (address, exclude)
        {
            hop.sets += 1;
            return self.last;
        }
        let id = self.find(address, exclude);
        self.entries[id as usize].sets += 1;
        self.last = id;
        id
    }

    /// Undoes one [`NextHops::acquire`].
    pub(super) fn release_ref(&mut self, id: u32) {
        self.entries[id as usize].sets -= 1;
        self.touch(id);
    }

    /// Counts `count` more paths.
    pub(super) fn retain<F: BgpFamily>(&mut self, id: u32, recursive: bool, count: u32) {
        let kind = &mut self.entries[id as usize].kinds[usize::from(recursive)];
        let before = *kind;
        kind.paths[F::ID] += count;
        if !before.is_used() && count > 0 {
            let after = *kind;
            self.count(before, after);
            self.touch(id);
        }
    }

    /// Counts `count` new paths, one of which was counted before.
    pub(super) fn announced<F: BgpFamily>(&mut self, id: u32, recursive: bool, count: u32) {
        match count {
            0 => self.release::<F>(id, recursive, 1),
            _ => self.entries[id as usize].kinds[usize::from(recursive)].paths[F::ID] += count - 1,
        }
    }

    /// Counts `count` fewer paths.
    pub(super) fn release<F: BgpFamily>(&mut self, id: u32, recursive: bool, count: u32) {
        let kind = &mut self.entries[id as usize].kinds[usize::from(recursive)];
        kind.paths[F::ID] -= count;
        if !kind.is_used() {
            let after = *kind;
            let before = Kind { paths: ByFamily::new(|_| count), ..after };
            self.count(before, after);
            self.touch(id);
        }
    }

    /// Appends the next hops that came into use (`true`) or went out of use (`false`) since the
    /// last call. Removes the state of those out of use, because the RIB manager reports no more
    /// changes of them.
    pub(super) fn uses(&mut self, out: &mut Vec<(TrackedNextHop, bool)>) {
        for id in std::mem::take(&mut self.touched) {
            let hop = &mut self.entries[id as usize];
            hop.touched = false;
            let (address, exclude) = (hop.address, hop.exclude);
            for (recursive, kind) in [false, true].into_iter().zip(&mut hop.kinds) {
                let used = kind.is_used();
                if used != kind.registered && !is_own(address) {
                    kind.registered = used;
                    out.push((TrackedNextHop { address, recursive, exclude }, used));
                }
                if !used {
                    kind.state = assumed(self.assumed, address);
                }
            }
            if !hop.kinds[1].is_used() && exclude.is_none() {
                hop.apart = existing(&self.outside, address);
            }
            if hop.sets == 0 {
                self.by_address.remove(&(address, exclude));
                self.unused.push(id);
                if let (Some(prefix), Some(outside)) = (exclude, self.outside.get_mut(&address)) {
                    outside.retain(|other| *other != prefix);
                    if outside.is_empty() {
                        self.outside.remove(&address);
                    }
                }
            }
        }
    }

    /// Counts a changed entry.
    fn count(&mut self, before: Kind, after: Kind) {
        self.unusable = self.unusable + usize::from(after.hides()) - usize::from(before.hides());
        self.uneven = self.uneven + usize::from(after.is_uneven()) - usize::from(before.is_uneven());
    }

    fn touch(&mut self, id: u32) {
        if !std::mem::replace(&mut self.entries[id as usize].touched, true) {
            self.touched.push(id);
        }
    }

    fn find(&mut self, address: IpAddr, exclude: Option<AnyPrefix>) -> u32 {
        if let Some(id) = self.by_address.get(&(address, exclude)) {
            return *id;
        }
        let state = assumed(self.assumed, address);
        let kind = Kind { state, paths: ByFamily::default(), registered: false };
        let apart = match exclude {
            None => existing(&self.outside, address),
            Some(prefix) => {
                if !prefix.contains(address) {
                    self.set_apart(address, prefix);
                    self.outside.entry(address).or_default().push(prefix);
                }
                Vec::new()
            }
        };
        let hop = Hop { address, exclude, kinds: [kind; 2], sets: 0, touched: false, apart };
        let id = match self.unused.pop() {
            Some(id) => {
                self.entries[id as usize] = hop;
                id
            }
            None => {
                self.entries.push(hop);
                (self.entries.len() - 1) as u32
            }
        };
        self.by_address.insert((address, exclude), id);
        id
    }
}

/// The state of every next hop without a RIB manager.
const REACHABLE: NextHopState = NextHopState::Reachable { cost: 0, partial: false };

/// Whether it stands for this router: the next hop of originated routes, which peers cannot announce
/// (RFC 4271 section 6.3).
fn is_own(address: IpAddr) -> bool {
    address.is_unspecified()
}

/// The state of a next hop before a report. The RIB manager reports none of this router's own.
fn assumed(of_others: Option<NextHopState>, address: IpAddr) -> Option<NextHopState> {
    if is_own(address) { Some(REACHABLE) } else { of_others }
}

/// The prefixes outside of which an address lies and that have an entry with it.
fn existing(outside: &Map<IpAddr, Vec<AnyPrefix>>, address: IpAddr) -> Vec<AnyPrefix> {
    outside.get(&address).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::{V4, V6};

    const FAR: NextHopState = NextHopState::Reachable { cost: 7, partial: false };

    fn next_hop(recursive: bool) -> TrackedNextHop {
        TrackedNextHop { address: "192.0.2.1".parse().unwrap(), recursive, exclude: None }
    }

    fn uses(hops: &mut NextHops) -> Vec<(TrackedNextHop, bool)> {
        let mut out = Vec::new();
        hops.uses(&mut out);
        out
    }

    #[test]
    fn each_kind_of_path_registers_and_has_a_state_of_its_own() {
        let mut hops = NextHops::new(true);
        let id = hops.acquire(next_hop(true).address, None);
        assert_eq!(uses(&mut hops), [], "no path yet");
        hops.retain::<V4>(id, true, 2);
        hops.retain::<V6>(id, false, 1);
        assert_eq!(uses(&mut hops), [(next_hop(false), true), (next_hop(true), true)]);
        assert_eq!(hops.report(next_hop(true), FAR), News::First);
        assert_eq!((hops.cost(id, true), hops.cost(id, false)), (Ok(7), Err(Reason::NextHopUnknown)));
        assert_eq!((hops.hidden::<V4>(), hops.hidden::<V6>(), hops.all_reachable()), (0, 1, false));
        assert_eq!(hops.report(next_hop(false), NextHopState::Unreachable), News::First);
        assert_eq!(hops.report(next_hop(false), NextHopState::Unreachable), News::Same);
        assert_eq!(hops.report(next_hop(false), FAR), News::Other);
        let partial = NextHopState::Reachable { cost: 7, partial: true };
        assert_eq!(hops.report(next_hop(false), partial), News::Distance);
        assert_eq!(hops.report(next_hop(false), FAR), News::Distance);
        assert!(hops.all_reachable());
        hops.release::<V6>(id, false, 1);
        assert_eq!(uses(&mut hops), [(next_hop(false), false)]);
        assert_eq!(hops.report(next_hop(false), FAR), News::Same, "no path has it");
    }

    #[test]
    fn state_is_forgotten_when_the_last_path_goes_and_not_when_another_takes_its_place() {
        let mut hops = NextHops::new(true);
        let id = hops.acquire(next_hop(true).address, None);
        hops.retain::<V4>(id, true, 1);
        uses(&mut hops);
        hops.report(next_hop(true), FAR);
        hops.release::<V4>(id, true, 1);
        hops.retain::<V4>(id, true, 1);
        assert_eq!((uses(&mut hops), hops.cost(id, true)), (vec![], Ok(7)));
        hops.release::<V4>(id, true, 1);
        assert_eq!(uses(&mut hops), [(next_hop(true), false)]);
        hops.retain::<V4>(id, true, 1);
        assert_eq!(uses(&mut hops), [(next_hop(true), true)]);
        assert_eq!((hops.cost(id, true), hops.all_reachable()), (Err(Reason::NextHopUnknown), false));
        hops.release::<V4>(id, true, 1);
        hops.release_ref(id);
        uses(&mut hops);
        assert!(hops.by_address.is_empty() && hops.all_reachable());
    }

    #[test]
    fn without_a_rib_manager_every_next_hop_is_reachable() {
        let mut hops = NextHops::new(false);
        let id = hops.acquire(next_hop(true).address, None);
        hops.retain::<V4>(id, true, 1);
        assert_eq!((hops.cost(id, true), hops.all_reachable()), (Ok(0), true));
    }

    #[test]
    fn states_that_come_with_paths_count_where_nothing_is_known() {
        let mut hops = NextHops::new(true);
        assert_eq!(hops.learn(next_hop(true), Some(FAR)), News::Same);
        let id = hops.acquire(next_hop(true).address, None);
        hops.retain::<V4>(id, true, 1);
        assert_eq!((hops.cost(id, true), hops.all_reachable()), (Ok(7), true));
        assert_eq!(
            hops.learn(next_hop(true), None),
            News::Other,
            "paths that were hidden there are not here"
        );
        assert_eq!(hops.learn(next_hop(true), Some(NextHopState::Unreachable)), News::Other);
        assert_eq!(hops.cost(id, true), Ok(7));
        hops.retain::<V4>(id, false, 1);
        assert_eq!(hops.learn(next_hop(false), Some(FAR)), News::First);
        assert!(hops.all_reachable());
    }

    #[test]
    fn prefixes_apart_are_known_again_when_the_address_comes_back_into_use() {
        let mut hops = NextHops::new(true);
        let address = next_hop(true).address;
        let prefix: AnyPrefix = "198.51.100.0/24".parse().unwrap();
        let plain = hops.acquire(address, None);
        hops.retain::<V4>(plain, true, 1);
        hops.set_apart(address, prefix);
        assert_eq!(hops.apart(plain), [prefix]);
        // The only path moves to an entry of its own.
        let own = hops.acquire(address, Some(prefix));
        hops.retain::<V4>(own, true, 1);
        hops.release::<V4>(plain, true, 1);
        hops.release_ref(plain);
        uses(&mut hops);
        // The path of another prefix has this next hop. No report follows, because the own entry is registered.
        let plain = hops.acquire(address, None);
        hops.retain::<V4>(plain, true, 1);
        uses(&mut hops);
        assert_eq!(hops.apart(plain), [prefix]);
        hops.release::<V4>(own, true, 1);
        hops.release_ref(own);
        hops.release::<V4>(plain, true, 1);
        uses(&mut hops);
        uses(&mut hops);
        hops.release_ref(plain);
        uses(&mut hops);
        assert!(hops.by_address.is_empty() && hops.outside.is_empty());
    }

    #[test]
    fn prefix_inside_of_which_an_address_lies_is_not_apart() {
        let mut hops = NextHops::new(true);
        let address = next_hop(true).address;
        let plain = hops.acquire(address, None);
        hops.acquire(address, Some("192.0.2.0/24".parse().unwrap()));
        assert!(hops.apart(plain).is_empty() && hops.outside.is_empty());
    }
}
