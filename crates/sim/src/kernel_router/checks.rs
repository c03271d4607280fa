//! What must hold on the way, and in the end.

use super::{DATAPLANE, METRIC, PROTOCOL, Router, TABLE, source_address};
use crate::kernel::{ObjectContent, RouteEntry, RouteForward, State};
use ribtide_prefix::{Afi, AnyPrefix, for_each_family};
use ribtide_rib::{FibAck, FibBatch, FibGroup, FibHop, GroupId, InstallStatus, Protocol};
use ribtide_wire::netlink::Via;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// A hop: gateway, interface and weight, which is 1 for a single hop.
type KernelHop = (Option<IpAddr>, u32, u16);

/// What the RIB manager sent to the dataplane, as far as that has acknowledged it.
#[derive(Clone, Default)]
pub(super) struct Sent {
    groups: BTreeMap<GroupId, FibGroup>,
    routes: BTreeMap<AnyPrefix, GroupId>,
    failed: BTreeSet<AnyPrefix>,
    unacknowledged: VecDeque<Arc<FibBatch>>,
    /// A replay was sent since the dataplane is up.
    expects_batches: bool,
    /// A replay has begun since the dataplane is up.
    replayed: bool,
    /// A replay is under way.
    pub(super) replaying: bool,
    /// Found routes are held back.
    pub(super) holding: bool,
    /// Something changed the kernel that the writer may not know yet.
    pub(super) disturbed: bool,
}

impl Sent {
    /// Notes a batch that goes to the dataplane. Until a replay, the dataplane ignores them.
    pub(super) fn push(&mut self, batch: Arc<FibBatch>) {
        self.expects_batches |= batch.start_of_replay;
        if self.expects_batches {
            self.unacknowledged.push_back(batch);
        }
    }

    /// The dataplane is down, or up with an unknown state.
    pub(super) fn forget(&mut self) {
        *self = Sent { disturbed: self.disturbed, ..Sent::default() };
    }

    /// Notes an acknowledgement. Returns whether it finished batches.
    pub(super) fn acknowledged(&mut self, ack: &FibAck) -> bool {
        let mut finished = false;
        while self.unacknowledged.front().is_some_and(|batch| batch.seq <= ack.seq)
            && let Some(batch) = self.unacknowledged.pop_front()
        {
            self.note(&batch);
            finished = true;
        }
        for at in &ack.installed {
            self.failed.remove(&at.prefix);
        }
        self.failed.extend(ack.failed.iter().map(|(at, _)| at.prefix));
        finished
    }

    fn note(&mut self, batch: &FibBatch) {
        if batch.start_of_replay {
            self.groups.clear();
            self.routes.clear();
            self.failed.clear();
            (self.replayed, self.replaying) = (true, true);
        }
        self.groups.extend(batch.groups.iter().map(|op| (op.id, op.content.clone())));
        for_each_family!(F => for route in batch.routes.get::<F>() {
            let prefix = route.prefix.any();
            match route.group.filter(|_| is_ours(route.protocol)) {
                Some(group) => self.routes.insert(prefix, group),
                None => self.routes.remove(&prefix),
            };
            if !batch.again {
                self.failed.remove(&prefix);
            }
        });
        batch.after.iter().for_each(|group| drop(self.groups.remove(group)));
        if batch.end_of_replay {
            self.replaying = false;
        }
    }

    /// What a prefix must do, if it is a route.
    fn content(&self, prefix: AnyPrefix) -> Option<&FibGroup> {
        self.groups.get(self.routes.get(&prefix)?)
    }
}

/// Whether ribtide writes routes of this protocol to the kernel.
fn is_ours(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Connected | Protocol::Kernel)
}

/// What the kernel does with packets.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Drop,
    Hops(BTreeSet<KernelHop>),
    Other(RouteEntry),
}

fn own(entry: &RouteEntry) -> bool {
    entry.protocol == PROTOCOL
}

/// Whether the kernel would make an object of this hop now.
fn is_accepted(state: &State, hop: &FibHop) -> bool {
    let via = Via { gateway: hop.gateway, ifindex: hop.interface, onlink: hop.onlink };
    state.accepts(&via)
}

fn hop_of(state: &State, id: u32, weight: u16) -> Option<KernelHop> {
    match &state.objects().get(&id)?.content {
        ObjectContent::Via(_, via) => Some((via.gateway, via.ifindex, weight)),
        _ => None,
    }
}

/// What ribtide's route of a prefix does.
fn found(state: &State, prefix: AnyPrefix) -> Option<Found> {
    let mut routes = state.routes(prefix.afi(), TABLE).filter(|(at, _)| *at == prefix);
    let (_, entry) = routes.find(|(_, entry)| own(entry) && entry.metric == METRIC)?;
    let other = || Found::Other(entry.clone());
    let RouteForward::Object(id) = entry.forward else { return Some(other()) };
    Some(match state.objects().get(&id).map(|object| &object.content) {
        Some(ObjectContent::Group(members)) if state.drops(id) => {
            debug_assert_eq!(members.len(), 1);
            Found::Drop
        }
        Some(ObjectContent::Group(members)) => {
            let weight = |weight| if members.len() == 1 { 1 } else { weight };
            let hops: Option<BTreeSet<KernelHop>> =
                members.iter().map(|member| hop_of(state, member.id, weight(member.weight))).collect();
            hops.map_or_else(other, Found::Hops)
        }
        _ => other(),
    })
}

/// Whether the kernel does with a prefix what a group says, as far as it accepts the hops. `all`: by
/// every hop that it accepts, in their shares; else by some of the group's.
fn is_as_wanted(state: &State, prefix: AnyPrefix, content: &FibGroup, all: bool) -> Result<(), String> {
    let found = found(state, prefix);
    let right = match (content, &found) {
        (FibGroup::Unresolved, None) | (FibGroup::Blackhole, Some(Found::Drop)) => true,
        (FibGroup::Hops(hops), None) => !hops.iter().any(|hop| is_accepted(state, hop)),
        (FibGroup::Hops(hops), Some(Found::Hops(found))) => {
            let accepted: BTreeSet<_> = hops
                .iter()
                .filter(|hop| is_accepted(state, hop))
                .map(|hop| (hop.gateway, hop.interface))
                .collect();
            let share = |hop: &FibHop| {
                let weight = if found.len() == 1 { 1 } else { hop.weight };
                (hop.gateway, hop.interface, weight)
            };
            let wanted: BTreeSet<KernelHop> = hops.iter().map(share).collect();
            let names: BTreeSet<_> = found.iter().map(|(gateway, ifindex, _)| (*gateway, *ifindex)).collect();
            let wanted_names: BTreeSet<_> = hops.iter().map(|hop| (hop.gateway, hop.interface)).collect();
            match all {
                true => found.is_subset(&wanted) && accepted.is_subset(&names),
                false => names.is_subset(&wanted_names),
            }
        }
        _ => false,
    };
    if right { Ok(()) } else { Err(format!("the kernel has {found:?} for {content:?}")) }
}

impl Router<'_> {
    /// Checks that the kernel has what is acknowledged.
    pub(super) fn check_installed(&self) -> Result<(), String> {
        let Sent { routes, failed, replayed, holding, disturbed, .. } = &self.sent;
        if !replayed || *holding || *disturbed {
            return Ok(());
        }
        let state = &*self.kernel.state();
        for prefix in routes.keys().filter(|prefix| !failed.contains(prefix)) {
            let Some(content) = self.sent.content(*prefix) else { continue };
            if let Err(why) = is_as_wanted(state, *prefix, content, false) {
                return Err(format!("{prefix} is acknowledged before its time: {why}"));
            }
        }
        Ok(())
    }

    /// Checks that no route went with a next-hop object that ribtide deleted, unless the RIB manager
    /// wanted that. `before`: what was acknowledged before.
    pub(super) fn check_deletions(&self, before: &Sent, faulty: bool) -> Result<(), String> {
        let state = &*self.kernel.state();
        if faulty || self.sent.disturbed {
            return Ok(());
        }
        let forwards = |content: Option<&FibGroup>| match content {
            Some(FibGroup::Hops(hops)) => hops.iter().any(|hop| is_accepted(state, hop)),
            Some(FibGroup::Blackhole) => true,
            Some(FibGroup::Unresolved) | None => false,
        };
        for (prefix, entry, _) in state.taken_along.iter().filter(|(_, entry, _)| own(entry)) {
            // The former route of a failed one does not go where the RIB manager wants it to.
            if entry.metric != METRIC || self.sent.failed.contains(prefix) {
                continue;
            }
            if forwards(before.content(*prefix)) && forwards(self.sent.content(*prefix)) {
                return Err(format!("{prefix} went with an object that ribtide deleted: {entry:?}"));
            }
        }
        Ok(())
    }

    /// Checks that ribtide changed nothing of another program.
    pub(super) fn check_foreign(&self) -> Result<(), String> {
        match self.kernel.state().foreign_changes.first() {
            Some(change) => Err(format!("ribtide changed what is not its own: {change}")),
            None => Ok(()),
        }
    }

    /// The first difference between stages.
    pub(super) fn disagreement(&self) -> Option<String> {
        let selected = self.process.routing.selected();
        let state = &*self.kernel.state();
        for (prefix, info) in selected.iter().filter(|(_, info)| is_ours(info.protocol)) {
            let sourceless = self.is_sourceless(state, prefix.afi());
            let found = found(state, *prefix);
            if sourceless && found.is_none() {
                continue;
            }
            if let Err(why) = is_as_wanted(state, *prefix, &info.content, true) {
                return Some(format!("{prefix}: {why}"));
            }
            let status = self.process.routing.rib.status(*prefix);
            let confirmed = matches!(&status[..], [(DATAPLANE, InstallStatus::Installed)]);
            // Another program's route in its place, with the right next hops, has failed.
            if found.is_some() && confirmed == sourceless {
                return Some(format!("{prefix} is in the kernel, and its status is {status:?}"));
            }
        }
        for (prefix, _) in selected.iter().filter(|(_, info)| info.protocol == Protocol::Kernel) {
            if !state.routes(prefix.afi(), TABLE).any(|(at, entry)| at == *prefix && !own(entry)) {
                return Some(format!("{prefix} is selected as the kernel's, which does not have it"));
            }
        }
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            for (prefix, entry) in state.routes(afi, TABLE).filter(|(_, entry)| own(entry)) {
                let wanted = selected.get(&prefix).is_some_and(|info| is_ours(info.protocol));
                if !wanted || entry.metric != METRIC {
                    return Some(format!("{prefix} is in the kernel, and no protocol has it: {entry:?}"));
                }
                // Without that address the kernel takes no route that replaces one without source.
                let missing = self.is_sourceless(state, afi);
                let source = (self.script.source && afi == Afi::Ipv4 && !missing).then(source_address);
                if entry.source != source {
                    return Some(format!("{prefix} has the source address {:?}", entry.source));
                }
            }
        }
        self.surplus_object(state)
    }

    /// Whether no interface has the source address of own routes, so that the kernel refuses them.
    fn is_sourceless(&self, state: &State, afi: Afi) -> bool {
        let mut links = state.links().values().filter(|link| link.up);
        self.script.source
            && afi == Afi::Ipv4
            && !links.any(|link| link.addresses.iter().any(|(address, _)| *address == source_address()))
    }

    /// A next-hop object in the kernel that no group of the RIB manager has.
    fn surplus_object(&self, state: &State) -> Option<String> {
        let groups = &self.sent.groups;
        let hops = groups.values().flat_map(|content| match content {
            FibGroup::Hops(hops) => &hops[..],
            FibGroup::Blackhole | FibGroup::Unresolved => &[],
        });
        let hops: BTreeSet<_> = hops.map(|hop| (hop.gateway, hop.interface, hop.onlink)).collect();
        let (mut seen, mut blackholes, mut in_kernel) = (BTreeSet::new(), 0, 0);
        for (id, object) in state.objects().iter().filter(|(_, object)| object.protocol == PROTOCOL) {
            let is_wanted = match &object.content {
                ObjectContent::Group(_) => {
                    in_kernel += 1;
                    in_kernel <= groups.len()
                }
                ObjectContent::Blackhole(_) => {
                    blackholes += 1;
                    blackholes == 1 && groups.values().any(|content| *content == FibGroup::Blackhole)
                }
                ObjectContent::Via(_, via) => {
                    let name = (via.gateway, via.ifindex, via.onlink);
                    hops.contains(&name) && seen.insert(name)
                }
            };
            if !is_wanted {
                return Some(format!(
                    "next-hop object {id} is in the kernel, and nothing uses it: {object:?}"
                ));
            }
        }
        None
    }
}
