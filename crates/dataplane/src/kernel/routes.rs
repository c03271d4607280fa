//! The routes of the kernel: writes batches, adopts routes found at the start, and repairs what the
//! kernel loses.

mod compare;

use super::super::install_results::InstallResults;
use super::desired_state::{DesiredState, of_the_kernel, wanted};
use super::system::System;
use super::watch::Touched;
use crate::repairs::{Difference, Repairs};
use compare::Comparison;
use ribtide_config::KernelConfig;
use ribtide_netlink::{Objects, ROUTER_IDS, Refusal, SingleContent, Socket, overran};
use ribtide_prefix::{Afi, Families, Family, Map, PerFamily, Prefix, Set, for_each_family};
use ribtide_rib::{FibBatch, FibGroup, FibRoute, GroupId, Vrf, VrfId, VrfPrefix};
use ribtide_runtime::idle::ShrinkToFit;
use ribtide_wire::netlink::numbers::{
    NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RTM_F_CLONED, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
    RTNLGRP_NEXTHOP,
};
use ribtide_wire::netlink::{Content, NextHops, Route, Via, dump_routes, write_next_hop_delete};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The flags of additions: whatever route is there is replaced.
const WRITE: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// Repetitions of a repair during which the socket overran.
const REPAIR_TRIES: usize = 3;

/// Found routes of one family.
#[derive(Default)]
struct Table<F: Family> {
    /// Own routes in the kernel that were not requested yet, by prefix and metric: the kernel id of
    /// their group, 0 without one.
    found: Map<(Prefix<F>, u32), u32>,
    /// Their source addresses, where these differ from the configured one.
    found_sources: Map<(Prefix<F>, u32), Option<IpAddr>>,
}

/// The routes of a dump.
type Found<F> = (Map<(Prefix<F>, u32), u32>, Map<(Prefix<F>, u32), Option<IpAddr>>);

impl<F: Family> Table<F> {
    /// Removes a found route. Returns the id of its group, or 0 if that or its source address is
    /// wrong.
    fn take_found(
        &mut self,
        key: (Prefix<F>, u32),
        configured: Option<IpAddr>,
        source: Option<IpAddr>,
    ) -> Option<u32> {
        if self.found.is_empty() {
            return None;
        }
        let id = self.found.remove(&key)?;
        let found = self.found_sources.remove(&key).unwrap_or(configured);
        Some(if found == source { id } else { 0 })
    }
}

struct Tables;
impl PerFamily for Tables {
    type Of<F: Family> = Table<F>;
}

/// Prefixes that a batch deletes and the kernel does not have.
struct Gone;
impl PerFamily for Gone {
    type Of<F: Family> = Set<Prefix<F>>;
}

/// The routes of a VRF.
struct InVrf {
    /// The number of its table.
    table: u32,
    routes: Families<Tables>,
}

/// A change of the table of the kernel.
#[derive(Clone, Copy)]
struct Change<F: Family> {
    prefix: Prefix<F>,
    metric: u32,
    /// The group of the route, or `None` for a deletion.
    group: Option<GroupId>,
}

/// A change of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceChange {
    /// Its index.
    pub(crate) ifindex: u32,
    /// Whether it is up with carrier.
    pub(crate) up: bool,
    /// Whether it was down before, even for a moment.
    pub(crate) came_up: bool,
}

/// Own routes and next-hop objects in the tables of all VRFs. Routes with the configured protocol
/// number in those tables, and next-hop objects with that number, belong to ribtide: no other
/// program may use the number there.
pub(crate) struct Kernel {
    system: System,
    socket: Socket,
    config: KernelConfig,
    objects: Objects,
    /// Source addresses of groups, from a policy.
    sources: Map<GroupId, IpAddr>,
    vrfs: BTreeMap<VrfId, InVrf>,
    wanted: DesiredState,
    /// Whether a replay is under way, so routes that it does not contain may not be removed yet.
    replaying: bool,
    /// Whether found routes stay unchanged until the replay ends: earlier changes of it are not
    /// final, and would move packets away and back.
    holding: bool,
    /// Whether a found route was held back.
    held: bool,
    /// Whether the last replay found own routes in the kernel.
    found_routes: bool,
    /// Notifications since before found routes were read, until the replay ends.
    since_found: Option<Socket>,
    /// Whether the batch adopted found routes.
    adopted: bool,
    /// Whether acknowledgements confirm routes to neighbours. Then no route is held back.
    pub(crate) confirms: bool,
    /// Since when some state of the kernel is assumed and not verified.
    doubt: Option<Instant>,
    comparison: Comparison,
    /// Repaired differences.
    pub(super) repairs: Repairs,
    /// The results of routes, for acknowledgements.
    pub(crate) results: InstallResults,
}

impl ShrinkToFit for Kernel {
    fn shrink_to_fit(&mut self) {
        self.wanted.shrink_to_fit();
    }
}

impl Kernel {
    /// Opens the kernel, by default in the network namespace of the calling thread, and checks the
    /// permissions.
    ///
    /// # Errors
    /// A sentence that says what is missing and what to do: a capability (`PermissionDenied`), next-hop objects
    /// (`Unsupported`) or a socket.
    pub(crate) fn open(system: &System, config: KernelConfig, vrfs: &[Vrf]) -> io::Result<Kernel> {
        let cannot = |e: io::Error| {
            io::Error::new(e.kind(), format!("the kernel's routing socket (netlink) cannot be used: {e}"))
        };
        let mut socket = system.sockets.open().map_err(cannot)?;
        let mut answer = None;
        // Object 0 cannot exist, so this changes nothing, and fails without the permission.
        socket
            .request(
                &[()],
                |(), out, seq| write_next_hop_delete(out, 0, 0, seq),
                |_, refusal| answer = Some(refusal),
            )
            .map_err(cannot)?;
        match answer.map(|r| r.errno) {
            Some(libc::EPERM | libc::EACCES) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "installing routes into the kernel needs the capability CAP_NET_ADMIN; run as root, give the binary the \
                 capability (setcap cap_net_admin+ep), or set fib.kernel = false",
            )),
            Some(libc::EOPNOTSUPP) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel has no next-hop objects, which need Linux 5.3 or later; set fib.kernel = false",
            )),
            _ => Ok(Kernel {
                vrfs: std::iter::once((VrfId::DEFAULT, config.table))
                    .chain(vrfs.iter().map(|vrf| (vrf.id, vrf.table)))
                    .map(|(id, table)| (id, InVrf { table, routes: Families::default() }))
                    .collect(),
                system: system.clone(),
                socket,
                objects: Objects::new(config.protocol, ROUTER_IDS),
                config,
                sources: Map::default(),
                wanted: DesiredState::default(),
                replaying: true,
                holding: false,
                held: false,
                found_routes: false,
                since_found: None,
                adopted: false,
                confirms: false,
                doubt: None,
                comparison: Comparison::default(),
                repairs: Repairs::default(),
                results: InstallResults::default(),
            }),
        }
    }

    /// Shrinks the receive buffer to a few replies.
    #[cfg(test)]
    pub(crate) fn make_overrun_likely(&self) {
        self.socket.shrink().unwrap();
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn apply(&mut self, batch: &Arc<FibBatch>) -> io::Result<()> {
        if batch.start_of_replay {
            self.restart()?;
        }
        if self.confirms {
            self.release()?;
        }
        self.know(batch.vrf)?;
        for op in &batch.groups {
            match op.source {
                Some(source) => self.sources.insert(op.id, source),
                None => self.sources.remove(&op.id),
            };
            match &op.content {
                // The kernel deletes its routes with it, so less specific routes forward.
                FibGroup::Unresolved => self.objects.set_group(op.id.0, std::iter::empty()),
                FibGroup::Blackhole => {
                    self.objects.set_group(op.id.0, [(SingleContent::Blackhole, 1)].into_iter())
                }
                FibGroup::Hops(hops) => {
                    let ways = hops.iter().map(|hop| {
                        let via = Via { gateway: hop.gateway, ifindex: hop.interface, onlink: hop.onlink };
                        (SingleContent::Via(via), hop.weight)
                    });
                    self.objects.set_group(op.id.0, ways);
                }
            }
        }
        if batch.again {
            self.objects.mark_incomplete();
        }
        let converged = self.converge();
        let gone = self.gone(batch);
        self.wanted.note(batch);
        let tainted = self.comparison.is_tainted();
        match converged.and_then(|_| self.write_batch(batch, &gone)) {
            Ok(()) => self.comparison.wrote(batch, tainted),
            // Replies were lost. A comparison finds the rest.
            Err(e) if overran(&e) => self.repair()?,
            Err(e) => return Err(e),
        }
        for group in &batch.after {
            self.objects.delete_group(group.0);
            self.sources.remove(group);
        }
        self.objects.delete_unused(&mut self.socket)?;
        if self.objects.take_undeleted() {
            self.repair()?;
        }
        if std::mem::take(&mut self.adopted) {
            self.confirm_adopted()?;
        }
        if batch.end_of_replay {
            self.since_found = None;
            (self.replaying, self.holding, self.held, self.objects.keep) = (false, false, false, false);
            self.sweep_all()?;
            self.objects.sweep(&mut self.socket)?;
            self.objects.delete_unused(&mut self.socket)?;
        }
        Ok(())
    }

    /// Handles all that other programs did to found routes until now, before adopted ones count as installed: the
    /// watcher's notes of it may still be under way.
    fn confirm_adopted(&mut self) -> io::Result<()> {
        let Some(monitor) = &mut self.since_found else { return Ok(()) };
        let (mut touched, mut objects) = (Vec::new(), false);
        let (config, tables) = (&self.config, self.vrfs.values().map(|vrf| vrf.table).collect::<Vec<_>>());
        let read = monitor.notified_now(|_, content| match content {
            Content::NewRoute(route) => touched.extend(Touched::of(&route, true, config, &tables)),
            Content::DelRoute(route) => touched.extend(Touched::of(&route, false, config, &tables)),
            Content::NewNextHop(object) => objects |= ROUTER_IDS.contain(object.id),
            Content::DelNextHop(id) => objects |= ROUTER_IDS.contain(id),
            _ => {}
        });
        match read {
            Err(e) if overran(&e) => return self.repair(),
            other => other?,
        }
        if objects {
            self.objects_changed()?;
        }
        if !touched.is_empty() {
            // The watcher's note counts them.
            for vrf in self.ids() {
                self.touched_in(vrf, &touched, false)?;
            }
        }
        Ok(())
    }

    fn write_batch(&mut self, batch: &FibBatch, gone: &Families<Gone>) -> io::Result<()> {
        for_each_family!(F => self.apply_routes::<F>(batch.vrf.id, batch.routes.get::<F>(), gone.get::<F>())?);
        Ok(())
    }

    /// The deletions of a batch without a route in the kernel: it was deleted with its group, or
    /// never written by ribtide. Call it before the batch is noted. It needs lookups, so it runs
    /// only if the kernel lacks a group, and for routes that the kernel has itself.
    fn gone(&mut self, batch: &FibBatch) -> Families<Gone> {
        let mut gone = Families::<Gone>::default();
        for_each_family!(F => {
            let mut deletions = batch.routes.get::<F>().iter().filter(|route| wanted(route).is_none()).peekable();
            if deletions.peek().is_some() {
                let lacking = self.objects.lacking();
                let mut doubtful = deletions.filter(|route| lacking || of_the_kernel(route.protocol)).peekable();
                if doubtful.peek().is_some() {
                    let (table, objects) = (self.wanted.table(), &self.objects);
                    let group = |prefix| table.group::<F>(batch.vrf.id, prefix);
                    let there = |prefix| group(prefix).is_some_and(|group| objects.live_id(group.0).is_some());
                    *gone.get_mut::<F>() = doubtful.map(|route| route.prefix).filter(|prefix| !there(*prefix)).collect();
                }
            }
        });
        gone
    }

    /// Adds a VRF, if it is new. Own routes in its table are leftovers, unless a replay decides
    /// that.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn know(&mut self, vrf: Vrf) -> io::Result<()> {
        let known = self.vrfs.get(&vrf.id).is_some_and(|known| known.table == vrf.table);
        if known || vrf.id == VrfId::DEFAULT {
            return Ok(());
        }
        self.vrfs.insert(vrf.id, InVrf { table: vrf.table, routes: Families::default() });
        self.wanted.forget(vrf.id);
        for_each_family!(F => {
            let (found, found_sources) = self.dump::<F>(vrf.id)?;
            *self.table::<F>(vrf.id) = Table { found, found_sources };
            if !self.replaying {
                self.sweep::<F>(vrf.id)?;
            }
        });
        Ok(())
    }

    fn sweep_all(&mut self) -> io::Result<()> {
        for vrf in self.ids() {
            for_each_family!(F => self.sweep::<F>(vrf)?);
        }
        Ok(())
    }

    fn ids(&self) -> Vec<VrfId> {
        self.vrfs.keys().copied().collect()
    }

    /// The routes of a known VRF.
    fn table<F: Family>(&mut self, vrf: VrfId) -> &mut Table<F> {
        let table = self.config.table;
        let new = || InVrf { table, routes: Families::default() };
        self.vrfs.entry(vrf).or_insert_with(new).routes.get_mut::<F>()
    }

    /// Handles a change of an interface: the kernel may have removed objects and routes that used
    /// it, and may accept what it refused before.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn interface_changed(&mut self, change: &InterfaceChange) -> io::Result<()> {
        let InterfaceChange { ifindex, up, came_up } = *change;
        // Found routes may use any interface.
        if !self.replaying && !self.objects.uses(ifindex) {
            return Ok(());
        }
        if !up {
            // Found routes may be gone with the interface.
            self.release()?;
            // The effect in the kernel is known, and the reaction of the RIB must not wait. A lost
            // group took its routes along; before one of them counts as deleted, the kernel is
            // verified.
            if self.objects.lose_interface(ifindex) || self.replaying {
                self.objects.check(&mut self.socket)?;
                return self.forget_lost();
            }
            self.doubt();
            return Ok(());
        }
        if came_up {
            self.objects.check(&mut self.socket)?;
        } else {
            self.objects.mark_incomplete_through(ifindex);
        }
        self.converge_or_repair()
    }

    /// Handles added or removed addresses. The kernel may have dropped routes that use one as
    /// source.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn addresses_changed(&mut self, addresses: &[IpAddr]) -> io::Result<()> {
        let configured = [self.config.source4.map(IpAddr::V4), self.config.source6.map(IpAddr::V6)];
        let used = |address: &IpAddr| {
            configured.contains(&Some(*address)) || self.sources.values().any(|source| source == address)
        };
        if addresses.iter().any(used) { self.repair() } else { Ok(()) }
    }

    /// Notes that next-hop objects may differ from the assumption; [`Kernel::verify`] checks them.
    pub(crate) fn doubt(&mut self) {
        self.doubt.get_or_insert_with(|| self.system.now());
    }

    /// Handles next-hop objects that another program changed. A found route must not count as
    /// installed when its object is gone, so during a replay they are verified at once.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn objects_changed(&mut self) -> io::Result<()> {
        self.doubt();
        if self.replaying { self.verify() } else { Ok(()) }
    }

    /// Whether a verification is due after `time`.
    pub(crate) fn doubts_for(&self, time: Duration) -> bool {
        self.doubt.is_some_and(|since| self.system.now().saturating_duration_since(since) >= time)
    }

    /// Verifies assumed next-hop objects and repairs differences.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn verify(&mut self) -> io::Result<()> {
        if self.doubt.take().is_none() {
            return Ok(());
        }
        match self.check_objects() {
            Err(e) if overran(&e) => self.repair(),
            other => other,
        }
    }

    /// Compares next-hop objects, and repairs them and their routes.
    fn check_objects(&mut self) -> io::Result<()> {
        self.objects.check(&mut self.socket)?;
        let before = self.objects.accepted;
        let routes = self.converge()?;
        self.repairs.note(Difference::NextHopObject, (self.objects.accepted - before) as usize, None);
        self.repairs.note(Difference::Missing, routes, None);
        Ok(())
    }

    /// Whether the last replay found own routes, some of which it may have adopted without a write.
    pub(crate) fn has_found_routes(&self) -> bool {
        self.found_routes
    }

    /// Whether a route is held back, so that the kernel does not forward as the RIB requests.
    pub(crate) fn is_holding(&self) -> bool {
        self.held
    }

    /// Writes routes that were held back, and holds none back until the next replay.
    fn release(&mut self) -> io::Result<()> {
        self.held = false;
        if std::mem::take(&mut self.holding) {
            for vrf in self.ids() {
                for_each_family!(F => self.let_go::<F>(vrf)?);
            }
        }
        Ok(())
    }

    /// Found routes whose next-hop object has left the kernel are gone with it, or will be: they
    /// count as wrong. Those that the RIB requested with another group are written.
    fn forget_lost(&mut self) -> io::Result<()> {
        let Some(there) = self.objects.take_lasting() else { return Ok(()) };
        let ours = self.config.metric;
        for vrf in self.ids() {
            for_each_family!(F => {
                let Kernel { vrfs, wanted, .. } = self;
                let Some(table) = vrfs.get_mut(&vrf).map(|vrf| vrf.routes.get_mut::<F>()) else { continue };
                let wanted = wanted.table();
                let mut held: Vec<Change<F>> = Vec::new();
                table.found.retain(|(prefix, metric), id| {
                    if *id == 0 || there.contains(id) {
                        return true;
                    }
                    *id = 0;
                    let group = wanted.group(vrf, *prefix).filter(|_| *metric == ours);
                    held.extend(group.map(|_| Change { prefix: *prefix, metric: ours, group }));
                    group.is_none()
                });
                self.write(vrf, &held)?;
            });
        }
        Ok(())
    }

    /// Repairs routes that another program wrote or deleted.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn touched(&mut self, touched: &[Touched]) -> io::Result<()> {
        for vrf in self.ids() {
            self.touched_in(vrf, touched, true)?;
        }
        Ok(())
    }

    /// Repairs the routes of a VRF. `is_counted`: among the repairs.
    fn touched_in(&mut self, vrf: VrfId, touched: &[Touched], is_counted: bool) -> io::Result<()> {
        let at = self.vrfs.get(&vrf).map_or(0, |vrf| vrf.table);
        for_each_family!(F => {
            let mut changes: Vec<Change<F>> = Vec::new();
            // Additions of missing routes, of others, and removals.
            let mut counts = [0_usize; 3];
            for Touched { prefix, metric, there, marked, .. } in touched.iter().filter(|touched| touched.table == at) {
                let Some(prefix) = Prefix::<F>::from_addr(prefix.addr(), prefix.len()) else { continue };
                let ours = *metric == self.config.metric;
                // A route that was found is no longer there.
                let was_found = self.replaying && self.table::<F>(vrf).found.remove(&(prefix, *metric)).is_some();
                let want = self.wanted.table().group(vrf, prefix).filter(|_| ours);
                match want {
                    // No result was noted of a route that was held back.
                    Some(group) if was_found => changes.push(Change { prefix, metric: *metric, group: Some(group) }),
                    // Without its group the route cannot be written; it follows the group.
                    Some(group) if self.objects.live_id(group.0).is_some() => {
                        counts[usize::from(*there)] += 1;
                        changes.push(Change { prefix, metric: *metric, group: Some(group) });
                    }
                    Some(_) => {}
                    // An own route that was not requested is removed after the replay.
                    None if *marked && self.replaying => {
                        self.table::<F>(vrf).found.insert((prefix, *metric), 0);
                    }
                    None if *marked => {
                        counts[2] += 1;
                        changes.push(Change { prefix, metric: *metric, group: None });
                    }
                    None => {}
                }
            }
            let example = changes.first().map(|change| change.prefix.any());
            let differences = [Difference::Missing, Difference::OtherNextHops, Difference::Unexpected];
            for (difference, count) in differences.into_iter().zip(counts).filter(|_| is_counted) {
                self.repairs.note(difference, count, example);
            }
            changes.sort_unstable_by_key(|change| (change.prefix, change.metric));
            changes.dedup_by_key(|change| (change.prefix, change.metric));
            match self.write(vrf, &changes) {
                Err(e) if overran(&e) => self.repair()?,
                other => other?,
            }
        });
        Ok(())
    }

    /// The port id of the socket that writes.
    pub(crate) fn port(&self) -> u32 {
        self.socket.port()
    }

    fn converge_or_repair(&mut self) -> io::Result<()> {
        match self.converge() {
            Err(e) if overran(&e) => self.repair(),
            other => other.map(drop),
        }
    }

    /// Compares the kernel with the desired state and repairs every difference.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn repair(&mut self) -> io::Result<()> {
        for _ in 1..REPAIR_TRIES {
            match self.try_repair() {
                Err(e) if overran(&e) => {}
                other => return other,
            }
        }
        self.try_repair()
    }

    fn try_repair(&mut self) -> io::Result<()> {
        let metric = self.config.metric;
        self.objects.check(&mut self.socket)?;
        let accepted = self.objects.accepted;
        // All routes are compared, so neither returned nor refused groups matter.
        self.objects.converge(&mut self.socket)?;
        self.objects.take_refused();
        self.objects.take_lasting();
        self.held = false;
        let objects = (self.objects.accepted - accepted) as usize;
        self.repairs.note(Difference::NextHopObject, objects, None);
        for vrf in self.ids() {
            for_each_family!(F => {
                let (found, found_sources) = self.dump::<F>(vrf)?;
                let mut there = Table::<F> { found, found_sources };
                let mut changes: Vec<Change<F>> = Vec::new();
                let (mut missing, mut differing) = (0, 0);
                let Kernel { vrfs, wanted, objects, results, sources, config, .. } = self;
                let Some(table) = vrfs.get_mut(&vrf).map(|vrf| vrf.routes.get_mut::<F>()) else { continue };
                let configured = source::<F>(vrf, config);
                for (prefix, group) in wanted.table().routes::<F>(vrf) {
                    let source = sources.get(&group).copied().or(configured);
                    let id = there.take_found((prefix, metric), configured, source);
                    let live = objects.live_id(group.0);
                    if id.is_some() && id == live {
                        results.installed(VrfPrefix { vrf, prefix: prefix.any() });
                    } else {
                        missing += usize::from(id.is_none() && live.is_some());
                        differing += usize::from(id.is_some() && live.is_some());
                        changes.push(Change { prefix, metric, group: Some(group) });
                    }
                }
                *table = there;
                if !self.replaying {
                    let example = changes.first().map(|change| change.prefix.any());
                    self.repairs.note(Difference::Missing, missing, example);
                    self.repairs.note(Difference::OtherNextHops, differing, example);
                }
                self.write(vrf, &changes)?;
                if !self.replaying {
                    let unexpected = self.sweep::<F>(vrf)?;
                    self.repairs.note(Difference::Unexpected, unexpected, None);
                }
            });
        }
        if !self.replaying {
            self.objects.sweep(&mut self.socket)?;
        }
        Ok(())
    }

    /// Starts over with a dump of the kernel. Nothing is removed; correct routes are adopted.
    fn restart(&mut self) -> io::Result<()> {
        self.objects = Objects::new(self.config.protocol, ROUTER_IDS);
        self.objects.check(&mut self.socket)?;
        self.objects.take_lasting();
        self.objects.keep = true;
        (self.replaying, self.holding, self.held) = (true, true, false);
        self.comparison.restart();
        self.results = InstallResults::default();
        self.sources.clear();
        self.wanted = DesiredState::default();
        self.found_routes = false;
        // The subscription precedes the dump, so nothing is missed.
        let groups = [RTNLGRP_NEXTHOP, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE];
        let mut monitor = self.system.sockets.monitor(&groups, self.config.receive_buffer)?;
        monitor.leave_out(self.socket.port())?;
        self.since_found = Some(monitor);
        for vrf in self.ids() {
            for_each_family!(F => {
                let (found, found_sources) = self.dump::<F>(vrf)?;
                self.found_routes |= !found.is_empty();
                *self.table::<F>(vrf) = Table { found, found_sources };
            });
        }
        if !self.found_routes {
            self.since_found = None;
        }
        Ok(())
    }

    /// Own routes in the table of a VRF.
    fn dump<F: Family>(&mut self, vrf: VrfId) -> io::Result<Found<F>> {
        let Some(table) = self.vrfs.get(&vrf).map(|vrf| vrf.table) else { return Ok(Found::<F>::default()) };
        let (protocol, source) = (self.config.protocol, source::<F>(vrf, &self.config));
        let routes = self.socket.dump(
            |out, seq| dump_routes(out, seq, F::AFI, table, protocol),
            |(all, sources): &mut Found<F>, content| {
                let Content::NewRoute(route) = content else { return };
                if route.table != table || !is_written(&route, protocol) {
                    return;
                }
                let Some(prefix) = Prefix::<F>::from_addr(route.prefix.addr(), route.prefix.len()) else {
                    return;
                };
                let id = match route.next_hops {
                    NextHops::Id(id) => id,
                    _ => 0,
                };
                let key = (prefix, route.metric.unwrap_or(0));
                all.insert(key, id);
                if route.prefsrc != source {
                    sources.insert(key, route.prefsrc);
                }
            },
        );
        match routes {
            // The kernel has no table without routes.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Found::<F>::default()),
            other => other,
        }
    }

    /// Makes found routes equal to the desired state: writes routes that were held back, and
    /// removes others. Returns how many it removed.
    fn sweep<F: Family>(&mut self, vrf: VrfId) -> io::Result<usize> {
        self.let_go::<F>(vrf)?;
        let table = self.table::<F>(vrf);
        table.found_sources = Map::default();
        let found = std::mem::take(&mut table.found);
        let stale: Vec<Change<F>> =
            found.into_keys().map(|(prefix, metric)| Change { prefix, metric, group: None }).collect();
        self.try_write(vrf, &stale, WRITE)?;
        Ok(stale.len())
    }

    /// Writes routes that were held back.
    fn let_go<F: Family>(&mut self, vrf: VrfId) -> io::Result<()> {
        let ours = self.config.metric;
        let mut held: Vec<Change<F>> = Vec::new();
        let mut found = std::mem::take(&mut self.table::<F>(vrf).found);
        let wanted = self.wanted.table();
        found.retain(|(prefix, metric), _| match wanted.group(vrf, *prefix).filter(|_| *metric == ours) {
            Some(group) => {
                held.push(Change { prefix: *prefix, metric: ours, group: Some(group) });
                false
            }
            None => true,
        });
        self.table::<F>(vrf).found = found;
        self.write(vrf, &held)
    }

    /// Writes dirty groups, and again the routes of those that the kernel had lost. Returns how many
    /// routes.
    fn converge(&mut self) -> io::Result<usize> {
        let back: Set<u32> = self.objects.converge(&mut self.socket)?.into_iter().collect();
        self.forget_lost()?;
        self.note_refused();
        let mut count = 0;
        if back.is_empty() {
            return Ok(count);
        }
        let metric = self.config.metric;
        for vrf in self.ids() {
            for_each_family!(F => {
                let lost: Vec<Change<F>> = self.wanted.table().routes::<F>(vrf)
                    .filter(|(_, group)| back.contains(&group.0))
                    .map(|(prefix, group)| Change { prefix, metric, group: Some(group) })
                    .collect();
                count += lost.len();
                self.try_write(vrf, &lost, WRITE)?;
            });
        }
        Ok(count)
    }

    /// Notes the routes of groups that the kernel refused as failed.
    fn note_refused(&mut self) {
        let refused = self.objects.take_refused();
        if refused.is_empty() {
            return;
        }
        let Kernel { wanted, objects, results, vrfs, .. } = self;
        for vrf in vrfs.keys().copied() {
            for_each_family!(F => for (prefix, group) in wanted.table().routes::<F>(vrf) {
                if refused.contains(&group.0)
                    && let Some(Refusal { text, .. }) = objects.refusal(group.0)
                {
                    let route = VrfPrefix { vrf, prefix: prefix.any() };
                    results.refused(route, format!("the kernel refused it: {text}"));
                }
            });
        }
    }

    /// Writes the routes of one family in a batch, except deletions of `gone` ones.
    fn apply_routes<F: Family>(
        &mut self,
        vrf: VrfId,
        routes: &[FibRoute<F>],
        gone: &Set<Prefix<F>>,
    ) -> io::Result<()> {
        let metric = self.config.metric;
        let configured = source::<F>(vrf, &self.config);
        let mut changes: Vec<Change<F>> = Vec::with_capacity(routes.len());
        let Kernel { vrfs, objects, results, sources, .. } = self;
        let Some(table) = vrfs.get_mut(&vrf).map(|vrf| vrf.routes.get_mut::<F>()) else { return Ok(()) };
        for route in routes {
            let group = wanted(route);
            let source = group.and_then(|group| sources.get(&group).copied()).or(configured);
            let found = table.take_found((route.prefix, metric), configured, source);
            if let Some(group) = group.filter(|_| self.replaying) {
                objects.bind(group.0, found);
            }
            let right = match group {
                Some(group) => found.is_some() && found == objects.live_id(group.0),
                None => found.is_none() && gone.contains(&route.prefix),
            };
            self.adopted |= right && group.is_some();
            if let Some(id) = found.filter(|id| self.holding && !right && *id != 0) {
                table.found.insert((route.prefix, metric), id);
                self.held = true;
            } else if !right {
                changes.push(Change { prefix: route.prefix, metric, group });
            } else if group.is_none() {
                // An earlier failure has no meaning after the deletion.
                results.installed(VrfPrefix { vrf, prefix: route.prefix.any() });
            }
        }
        self.write(vrf, &changes)
    }

    /// Writes changes. If the kernel turns out to have lost a group, repairs that and repeats.
    fn write<F: Family>(&mut self, vrf: VrfId, changes: &[Change<F>]) -> io::Result<()> {
        self.write_with(vrf, changes, WRITE).map(drop)
    }

    /// As [`Kernel::write`], with these flags for additions. Returns the additions that
    /// `NLM_F_EXCL` prevented.
    fn write_with<F: Family>(
        &mut self,
        vrf: VrfId,
        changes: &[Change<F>],
        flags: u16,
    ) -> io::Result<Vec<Change<F>>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let (refused, prevented): (Vec<_>, Vec<_>) = self
            .try_write(vrf, changes, flags)?
            .into_iter()
            .partition(|(_, refusal)| !is_prevented(refusal, flags));
        let lost = refused.iter().any(|(index, refusal)| {
            matches!(refusal.errno, libc::EINVAL | libc::ENOENT)
                && changes[*index].group.is_some_and(|g| self.objects.live_id(g.0).is_some())
        });
        if lost {
            self.objects.check(&mut self.socket)?;
            self.converge()?;
            let left: Vec<Change<F>> = refused.iter().map(|(index, _)| changes[*index]).collect();
            self.try_write(vrf, &left, WRITE)?;
        }
        Ok(prevented.into_iter().map(|(index, _)| changes[index]).collect())
    }

    /// [`Kernel::send`], and notes the results.
    fn try_write<F: Family>(
        &mut self,
        vrf: VrfId,
        changes: &[Change<F>],
        flags: u16,
    ) -> io::Result<Vec<(usize, Refusal)>> {
        self.comparison.wrote_others();
        let refused = self.send(vrf, changes, flags)?;
        // A route with another metric is a leftover, and not a result of its prefix.
        let ours = |change: &&Change<F>| change.metric == self.config.metric;
        for change in changes.iter().filter(ours) {
            self.results.installed(VrfPrefix { vrf, prefix: change.prefix.any() });
        }
        for (index, refusal) in refused.iter().filter(|(_, refusal)| !is_prevented(refusal, flags)) {
            if let Some(change) = Some(&changes[*index]).filter(ours) {
                let why = format!("the kernel refused it: {}", refusal.text);
                self.results.refused(VrfPrefix { vrf, prefix: change.prefix.any() }, why);
            }
        }
        Ok(refused)
    }

    /// Writes changes, and returns which were refused and why. A route whose group the kernel does not have is
    /// deleted, so that packets do not go where the RIB no longer sends them, and counts as refused, unless the group is to
    /// are unresolved.
    fn send<F: Family>(
        &mut self,
        vrf: VrfId,
        changes: &[Change<F>],
        flags: u16,
    ) -> io::Result<Vec<(usize, Refusal)>> {
        let Some(table) = self.vrfs.get(&vrf).map(|vrf| vrf.table) else { return Ok(Vec::new()) };
        let (protocol, configured) = (self.config.protocol, source::<F>(vrf, &self.config));
        let sources = &self.sources;
        let id = |change: &Change<F>| change.group.and_then(|group| self.objects.live_id(group.0));
        let changes: Vec<(&Change<F>, Option<u32>)> = changes.iter().map(|c| (c, id(c))).collect();
        let mut refused = Vec::new();
        self.socket.request(
            &changes,
            |(change, id), out, seq| {
                let prefix = change.prefix.any();
                let metric = Some(change.metric);
                let written = if let Some(id) = *id {
                    let of_group = if sources.is_empty() { None } else { change.group };
                    let prefsrc = of_group.and_then(|group| sources.get(&group).copied()).or(configured);
                    let route = Route::new(prefix, table, protocol, NextHops::Id(id));
                    Route { metric, prefsrc, ..route }.write_new(out, flags, seq)
                } else {
                    Route { metric, ..Route::deletion(prefix, table, protocol) }.write_delete(out, 0, seq)
                };
                debug_assert!(written.is_ok(), "a route by next-hop object has a fixed size");
            },
            |index, refusal| {
                // A deletion that finds no route is a success.
                if changes[index].1.is_some() || !matches!(refusal.errno, libc::ESRCH | libc::ENOENT) {
                    refused.push((index, refusal));
                }
            },
        )?;
        for (index, (change, id)) in changes.iter().enumerate() {
            if let (Some(group), None) = (change.group, id) {
                refused.extend(self.objects.refusal(group.0).map(|refusal| (index, refusal)));
            }
        }
        Ok(refused)
    }
}

/// Whether ribtide may have written a route of its tables: not one for a type of service.
fn is_written(route: &Route<'_>, protocol: u8) -> bool {
    route.protocol == protocol && route.tos == 0 && route.flags & RTM_F_CLONED == 0
}

/// Whether a route was not added because the kernel has one of its prefix and metric.
fn is_prevented(refusal: &Refusal, flags: u16) -> bool {
    refusal.errno == libc::EEXIST && flags & NLM_F_EXCL != 0
}

/// The source address of own routes of a family. The configured one applies to the default VRF, and
/// is never that of another.
fn source<F: Family>(vrf: VrfId, config: &KernelConfig) -> Option<IpAddr> {
    if vrf != VrfId::DEFAULT {
        return None;
    }
    match F::AFI {
        Afi::Ipv4 => config.source4.map(IpAddr::V4),
        Afi::Ipv6 => config.source6.map(IpAddr::V6),
    }
}
