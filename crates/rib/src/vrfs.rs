//! VRFs: each is a [`Rib`] with routes, groups and interfaces of its own. [`Vrfs`] holds them all
//! before the same dataplanes.
//!
//! A dataplane gets one numbered sequence of batches, each of one VRF. So every [`Rib`] finds its
//! own part in an acknowledgement, and urgent operations have one order. A replay begins with the
//! default VRF, covers all VRFs, and ends when none has unsent routes. Group numbers contain the
//! VRF, because dataplanes have no other key.
//!
//! BGP announces and registers in the default VRF.

use crate::cache::CacheMode;
use crate::fib_policy::RouteMaps;
use crate::message::{
    DataplaneId, FibAck, GroupId, IfIndex, InterfaceEvent, RibIn, RibOut, Source, UrgentOp, Vrf, VrfId,
};
use crate::query::{DataplaneInfo, GroupInfo};
use crate::redistribution::Redistribution;
use crate::rib::Rib;
use crate::{ResolutionSettings, RibConfig};
use ribtide_prefix::{Map, Set};
use std::collections::BTreeMap;
use std::sync::Arc;

impl VrfId {
    /// Group numbers of the VRF begin above it. Each VRF but the default one has room for four
    /// million, all below half of the 32-bit range.
    pub(crate) fn groups(self) -> u32 {
        match self {
            VrfId::DEFAULT => 0,
            VrfId(n) => (1 << 30) + (u32::from(n) << GROUP_BITS),
        }
    }
}

/// Bits of a group's number below the VRF.
const GROUP_BITS: u32 = 22;

/// The RIB manager of every VRF.
pub struct Vrfs {
    default: Rib,
    others: BTreeMap<VrfId, Rib>,
    /// Removed VRFs that some dataplane still has.
    leaving: Vec<Rib>,
    /// The configuration of a new VRF.
    config: RibConfig,
    clock: Option<fn() -> u64>,
    now: u64,
    /// The VRF of each interface.
    places: Map<IfIndex, VrfId>,
    /// Dataplanes that are up.
    up: Set<DataplaneId>,
    /// Number of the latest batch of all.
    seq: u64,
}

impl Vrfs {
    /// The default VRF alone, without routes.
    pub fn new(config: RibConfig) -> Vrfs {
        let config = RibConfig { vrf: Vrf::default(), ..config };
        Vrfs {
            default: Rib::new(config.clone()),
            others: BTreeMap::new(),
            leaving: Vec::new(),
            config,
            clock: None,
            now: 0,
            places: Map::default(),
            up: Set::default(),
            seq: 0,
        }
    }

    /// Adds a VRF, before its first event.
    ///
    /// # Panics
    /// When a VRF with this number exists.
    pub fn add(&mut self, vrf: Vrf) {
        let mut rib = Rib::new(RibConfig { vrf, ..self.config.clone() });
        self.clock.into_iter().for_each(|clock| rib.set_clock(clock));
        rib.set_time(self.now);
        // It has nothing to send yet.
        let mut nothing = RibOut::default();
        rib.update(self.up.iter().map(|id| RibIn::DataplaneUp(*id)), &mut nothing);
        rib.catch_up(&mut nothing);
        let before = self.others.insert(vrf.id, rib);
        assert!(vrf.id != VrfId::DEFAULT && before.is_none(), "{} is there already", vrf.id.0);
    }

    /// Removes a VRF with its routes and interfaces. The caller applies the returned changes.
    pub fn remove(&mut self, id: VrfId) -> RibOut {
        let Some(mut rib) = self.others.remove(&id) else { return RibOut::default() };
        self.places.retain(|_, place| *place != id);
        rib.clear();
        let out = numbered(&mut self.seq, &mut rib, |rib, out| rib.update([], out));
        self.leaving.push(rib);
        self.leaving.retain(is_owed);
        out
    }

    /// Removed VRFs that some dataplane still has, because it has not acknowledged the deletion of
    /// their routes. Their numbers must not be reused until then.
    pub fn leaving(&self) -> impl Iterator<Item = VrfId> {
        self.leaving.iter().map(|rib| rib.vrf.id)
    }

    /// A VRF, if it is there.
    pub fn get(&self, id: VrfId) -> Option<&Rib> {
        if id == VrfId::DEFAULT { Some(&self.default) } else { self.others.get(&id) }
    }

    /// The default VRF.
    pub fn default_vrf(&self) -> &Rib {
        &self.default
    }

    /// All VRFs, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = (VrfId, &Rib)> {
        let others = self.others.iter().map(|(id, rib)| (*id, rib));
        std::iter::once((VrfId::DEFAULT, &self.default)).chain(others)
    }

    /// A group of any VRF, with that VRF.
    pub fn group(&self, id: GroupId) -> Option<(VrfId, GroupInfo)> {
        self.iter().find_map(|(vrf, rib)| Some((vrf, rib.group(id)?)))
    }

    /// An interface of any VRF, if it exists.
    pub fn interface(&self, index: IfIndex) -> Option<&InterfaceEvent> {
        self.get(*self.places.get(&index)?)?.interface(index)
    }

    /// Applies events in order and returns the effects of each VRF, in order, with ends of replays
    /// last. Events of an unknown VRF are ignored.
    ///
    /// # Panics
    /// As [`Rib::handle`].
    pub fn handle(&mut self, events: impl IntoIterator<Item = RibIn>) -> Vec<RibOut> {
        let (events, mut others) = self.sort(events);
        let Vrfs { default, others: ribs, seq, .. } = self;
        let mut outs: Vec<RibOut> = Vec::with_capacity(2 * ribs.len() + 3);
        // Changes precede all replays: replays begin together, and changes build on earlier state.
        outs.push(numbered(seq, default, |rib, out| rib.update(events, out)));
        for (id, rib) in ribs.iter_mut() {
            let events = others.remove(id).unwrap_or_default();
            outs.push(numbered(seq, rib, |rib, out| rib.update(events, out)));
        }
        self.catch_up(&mut outs);
        outs
    }

    /// As [`Vrfs::handle`], for events of dataplanes. It does not reselect routes, so its output is
    /// bounded by what dataplanes acknowledged.
    ///
    /// # Panics
    /// As [`Rib::handle`].
    pub fn feedback(&mut self, events: impl IntoIterator<Item = RibIn>) -> Vec<RibOut> {
        let (events, others) = self.sort(events);
        self.default.take(events);
        for (id, events) in others {
            if let Some(rib) = self.others.get_mut(&id) {
                rib.take(events);
            }
        }
        let mut outs = Vec::new();
        self.catch_up(&mut outs);
        outs
    }

    /// Pages for single dataplanes, and confirmations.
    fn catch_up(&mut self, outs: &mut Vec<RibOut>) {
        let Vrfs { default, others, leaving, seq, .. } = self;
        let any_lagging =
            std::iter::once(&*default).chain(others.values()).chain(&*leaving).any(Rib::is_any_lagging);
        let mut of_all: Map<DataplaneId, usize> = Map::default();
        if any_lagging {
            let ribs = std::iter::once(&*default).chain(others.values()).chain(&*leaving);
            ribs.flat_map(Rib::outstanding)
                .for_each(|(id, batches)| *of_all.entry(id).or_default() += batches);
        }
        for rib in std::iter::once(&mut *default).chain(others.values_mut()).chain(leaving.iter_mut()) {
            rib.outstanding_of_all(&of_all);
            let out = numbered(seq, rib, Rib::catch_up);
            if any_lagging {
                out.replay.iter().for_each(|(id, _)| *of_all.entry(*id).or_default() += 1);
            }
            outs.push(out);
        }
        let sent_all = |id| others.values().all(|rib| rib.has_sent_all(id));
        outs.push(numbered(seq, default, |rib, out| rib.end_replays(out, sent_all)));
        leaving.retain(is_owed);
    }

    /// [`Rib::urgent`], of each VRF.
    ///
    /// # Panics
    /// As [`Rib::handle`].
    pub fn urgent(&mut self, events: impl IntoIterator<Item = RibIn>) -> Vec<UrgentOp> {
        let (default, others) = self.sort(events);
        self.default.seq = self.seq;
        let mut ops = self.default.urgent(default);
        for (id, events) in others {
            if let Some(rib) = self.others.get_mut(&id) {
                rib.seq = self.seq;
                ops.extend(rib.urgent(events));
            }
        }
        ops
    }

    /// Sorts events by VRF: those of the default VRF, and the others.
    fn sort(&mut self, events: impl IntoIterator<Item = RibIn>) -> (Vec<RibIn>, BTreeMap<VrfId, Vec<RibIn>>) {
        let mut default = Vec::new();
        let mut others: BTreeMap<VrfId, Vec<RibIn>> = BTreeMap::new();
        for event in events {
            let mut put = |id, event| match id {
                VrfId::DEFAULT => default.push(event),
                _ => others.entry(id).or_default().push(event),
            };
            match event {
                RibIn::Routes(batch) => put(batch.vrf, RibIn::Routes(batch)),
                RibIn::Interface(state) => {
                    let (index, vrf) = (state.index, state.vrf);
                    if let Some(before) = self.places.insert(index, vrf).filter(|before| *before != vrf) {
                        put(before, RibIn::InterfaceRemoved(index));
                    }
                    put(vrf, RibIn::Interface(state));
                }
                RibIn::InterfaceRemoved(index) => {
                    if let Some(vrf) = self.places.remove(&index) {
                        put(vrf, RibIn::InterfaceRemoved(index));
                    }
                }
                RibIn::Gateway(gateway) => {
                    // A gateway without an interface belongs to the default VRF.
                    let place = gateway.interface.and_then(|index| self.places.get(&index));
                    put(place.copied().unwrap_or_default(), RibIn::Gateway(gateway));
                }
                RibIn::Ack(ack) => {
                    for id in self.others.keys() {
                        put(*id, RibIn::Ack(part(&ack, *id)));
                    }
                    self.leaving.iter_mut().for_each(|rib| rib.take([RibIn::Ack(ack.clone())]));
                    default.push(RibIn::Ack(ack));
                }
                RibIn::DataplaneUp(_)
                | RibIn::DataplaneDown(_)
                | RibIn::Lagging(_)
                | RibIn::Holding(..)
                | RibIn::Retry(_) => {
                    match event {
                        RibIn::DataplaneUp(id) => _ = self.up.insert(id),
                        RibIn::DataplaneDown(id) => _ = self.up.remove(&id),
                        _ => {}
                    }
                    self.others.keys().for_each(|id| put(*id, event.clone()));
                    self.leaving.iter_mut().for_each(|rib| rib.take([event.clone()]));
                    default.push(event);
                }
                RibIn::EndOfInitial(_)
                | RibIn::Track(_)
                | RibIn::Untrack(_)
                | RibIn::Confirm(_)
                | RibIn::Suppress(_) => default.push(event),
            }
        }
        (default, others)
    }

    /// As [`Rib::has_more`], of any VRF.
    pub fn has_more(&self) -> bool {
        self.iter().any(|(_, rib)| rib.has_more())
    }

    /// As [`Rib::shrink_to_fit`], of each VRF.
    pub fn shrink_to_fit(&mut self) {
        self.each(Rib::shrink_to_fit);
    }

    /// The state of each dataplane that is up, summed over all VRFs.
    pub fn dataplanes(&self) -> impl Iterator<Item = DataplaneInfo> {
        self.default.dataplanes().map(|mut of_all| {
            let others = self.others.values().chain(&self.leaving);
            for other in others.flat_map(|rib| rib.dataplane(of_all.id)) {
                of_all.outstanding += other.outstanding;
                of_all.failed += other.failed;
                of_all.lag = of_all.lag.map_or(other.lag, |of_all| Some(of_all + other.lag.unwrap_or(0)));
            }
            of_all
        })
    }

    /// As [`Rib::set_dataplanes`], in each VRF.
    pub fn set_dataplanes(&mut self, planes: &[DataplaneId]) {
        self.config.dataplanes = planes.to_vec();
        self.up.retain(|id| planes.contains(id));
        self.leaving.iter_mut().for_each(|rib| rib.set_dataplanes(planes));
        self.leaving.retain(is_owed);
        self.each(|rib| rib.set_dataplanes(planes));
    }

    /// As [`Rib::forget_source`], in each VRF.
    pub fn forget_source(&mut self, source: Source) {
        self.each(|rib| rib.forget_source(source));
    }

    /// The numbers of all interfaces.
    pub fn interfaces(&self) -> impl Iterator<Item = IfIndex> {
        self.places.keys().copied()
    }

    /// Changes the mode of the resolution cache of each VRF from the next batch on; the results are
    /// the same.
    pub fn set_cache_mode(&mut self, mode: CacheMode) {
        self.config.cache = mode;
        self.each(|rib| rib.set_cache_mode(mode));
    }

    /// As [`Rib::set_resolution`], in each VRF.
    pub fn set_resolution(&mut self, by: ResolutionSettings) {
        self.config.resolve_by(by);
        self.each(|rib| rib.set_resolution(by));
    }

    /// As [`Rib::set_clock`], in each VRF.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.clock = Some(clock);
        self.each(|rib| rib.set_clock(clock));
    }

    /// As [`Rib::set_time`], in each VRF.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
        self.each(|rib| rib.set_time(now));
    }

    /// As [`Rib::next_due`], of all VRFs.
    pub fn next_due(&self) -> Option<u64> {
        self.iter().filter_map(|(_, rib)| rib.next_due()).min()
    }

    /// As [`Rib::set_route_maps`], in one VRF, if it is there.
    pub fn set_route_maps(&mut self, vrf: VrfId, maps: Arc<dyn RouteMaps>) {
        let rib = if vrf == VrfId::DEFAULT { Some(&mut self.default) } else { self.others.get_mut(&vrf) };
        rib.into_iter().for_each(|rib| rib.set_route_maps(maps.clone()));
    }

    /// Sets the routes of the default VRF that BGP originates; see [`Rib::set_redistribution`].
    pub fn set_redistribution(&mut self, wanted: Redistribution) {
        self.default.set_redistribution(wanted);
    }

    fn each(&mut self, does: impl FnMut(&mut Rib)) {
        std::iter::once(&mut self.default).chain(self.others.values_mut()).for_each(does);
    }
}

/// Whether `rib` still has batches for a dataplane, or awaits an acknowledgement.
fn is_owed(rib: &Rib) -> bool {
    rib.is_any_lagging() || rib.outstanding().any(|(_, batches)| batches > 0)
}

/// The output of `rib` for the call `does`, its batches numbered after `seq`.
fn numbered(seq: &mut u64, rib: &mut Rib, does: impl FnOnce(&mut Rib, &mut RibOut)) -> RibOut {
    let mut out = RibOut::default();
    rib.seq = *seq;
    does(rib, &mut out);
    *seq = rib.seq;
    out
}

/// The part of an acknowledgement that concerns a VRF.
fn part(ack: &FibAck, vrf: VrfId) -> FibAck {
    FibAck {
        dataplane: ack.dataplane,
        seq: ack.seq,
        failed: ack.failed.iter().filter(|(at, _)| at.vrf == vrf).cloned().collect(),
        installed: ack.installed.iter().filter(|at| at.vrf == vrf).copied().collect(),
    }
}
