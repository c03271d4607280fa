//! FIB batches as FPM frames, and what the server was told, so that it can be told what changed.
//!
//! The default VRF is table 0: SONiC takes the number for a VRF's interface index, not for a kernel table. A route
//! carries the protocol's own number as zebra sends it, since `fpmsyncd` shows it by name.

use super::super::fit_weight;
use super::super::verdicts::Verdicts;
use crate::sonic::announce::protocol_number;
use ribtide_prefix::{Families, Family, Map, PerFamily, Prefix, Set, for_each_family};
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, Protocol};
use ribtide_runtime::log::log;
use ribtide_wire::fpm;
use ribtide_wire::netlink::numbers::RTPROT_BGP;
use ribtide_wire::netlink::{
    Forward, Hop, Hops, Member, Members, NextHop, NextHops, Route, RouteKind, TooLong, Via,
};
use std::net::IpAddr;

/// Bytes collected before they are written.
const FLUSH: usize = 256 * 1024;
/// The table number of the default VRF.
const DEFAULT_VRF: u32 = 0;
/// Ids of single next-hop objects have this bit; groups have the RIB's numbers, which count from 1.
const SINGLE: u32 = 1 << 31;

/// A route that the server has.
#[derive(Clone, Copy)]
struct Sent {
    group: GroupId,
    protocol: Protocol,
}

struct Sents;
impl PerFamily for Sents {
    type Of<F: Family> = Map<Prefix<F>, Sent>;
}

/// How much one call sent.
#[derive(Default, Clone, Copy)]
pub(super) struct Done {
    pub(super) routes: u64,
    pub(super) deletes: u64,
}

/// A single next-hop object that the server has.
struct Single {
    id: u32,
    users: u32,
}

/// What the server was told, over all connections to it.
pub(super) struct Encoder {
    next_hop_groups: bool,
    groups: Map<GroupId, FibGroup>,
    routes: Families<Sents>,
    /// Routes told before the replay that is running; those that it does not name are deleted at its end.
    before: Families<Sents>,
    singles: Map<Via, Single>,
    /// Objects told before the replay that is running.
    objects_before: Set<u32>,
    /// Objects that nothing names any more once this batch is told.
    retired: Set<u32>,
    out: Vec<u8>,
    done: Done,
    // Kept for their allocation.
    hops: Vec<Hop>,
    members: Vec<Member>,
}

impl Encoder {
    pub(super) fn new(next_hop_groups: bool) -> Self {
        Encoder {
            next_hop_groups,
            groups: Map::default(),
            routes: Families::default(),
            before: Families::default(),
            singles: Map::default(),
            objects_before: Set::default(),
            retired: Set::default(),
            out: Vec::new(),
            done: Done::default(),
            hops: Vec::new(),
            members: Vec::new(),
        }
    }

    /// Writes a batch. `flush` takes the bytes away and is called at least once.
    pub(super) fn handle(
        &mut self,
        batch: &FibBatch,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) -> Done {
        self.done = Done::default();
        if batch.start_of_replay {
            self.restart();
        }
        let mut changed = Set::default();
        for op in &batch.groups {
            let by_object = |content| self.next_hop_groups && has_object(content);
            let rewrite = self.groups.get(&op.id).is_some_and(|before| {
                *before != op.content && !(by_object(before) && by_object(&op.content))
            });
            if rewrite {
                changed.insert(op.id);
            }
            self.set_group(op.id, &op.content);
            self.flush_when_full(flush);
        }
        if !changed.is_empty() {
            for_each_family!(F => self.send_again::<F>(&changed, verdicts, flush));
        }
        for_each_family!(F => for route in batch.routes.get::<F>() {
            self.route(route, verdicts);
            self.flush_when_full(flush);
        });
        for group in &batch.after {
            self.delete_group(*group);
        }
        for id in self.retired.drain() {
            fpm::write_delete_next_hop(&mut self.out, id);
        }
        if batch.end_of_replay {
            for_each_family!(F => self.delete_unnamed::<F>(flush));
            for id in std::mem::take(&mut self.objects_before) {
                fpm::write_delete_next_hop(&mut self.out, id);
            }
        }
        flush(&mut self.out);
        self.done
    }

    /// A replay begins: everything is told again, and what was told before is remembered until its end.
    fn restart(&mut self) {
        for_each_family!(F => {
            let told = std::mem::take(self.routes.get_mut::<F>());
            self.before.get_mut::<F>().extend(told);
        });
        let groups = std::mem::take(&mut self.groups);
        if self.next_hop_groups {
            let objects = groups.iter().filter(|(_, content)| has_object(content)).map(|(id, _)| id.0);
            self.objects_before.extend(objects);
            self.objects_before.extend(self.singles.drain().map(|(_, single)| single.id));
        }
    }

    fn set_group(&mut self, group: GroupId, content: &FibGroup) {
        if !self.next_hop_groups {
            self.groups.insert(group, content.clone());
            return;
        }
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        if let FibGroup::Hops(hops) = content {
            let largest = largest_weight(hops);
            for hop in hops {
                let id = self.use_single(via(hop));
                members.push(Member { id, weight: fit_weight(hop.weight, largest) });
            }
        }
        if has_object(content) {
            self.objects_before.remove(&group.0);
            self.retired.remove(&group.0);
            let forward = Forward::Group(Members::from(&members[..]));
            let object = NextHop { id: group.0, protocol: RTPROT_BGP, forward };
            // Over 2,000 members, more than any configured limit: the server refuses its routes, not knowing it.
            if fpm::write_next_hop(&mut self.out, &object).is_err() {
                log("ribtide", &format!("next-hop group {} has too many members for an FPM frame", group.0));
            }
        }
        self.members = members;
        if let Some(before) = self.groups.insert(group, content.clone()) {
            if has_object(&before) && !has_object(content) {
                self.retired.insert(group.0);
            }
            self.release(&before);
        }
    }

    fn delete_group(&mut self, group: GroupId) {
        let Some(content) = self.groups.remove(&group) else { return };
        if !self.next_hop_groups {
            return;
        }
        if has_object(&content) {
            // Before its members, which are retired.
            fpm::write_delete_next_hop(&mut self.out, group.0);
        }
        self.release(&content);
    }

    /// The id of the single object for this way, which the server is told now unless it was.
    fn use_single(&mut self, via: Via) -> u32 {
        if let Some(single) = self.singles.get_mut(&via) {
            single.users += 1;
            return single.id;
        }
        // SONiC's server never forgets a single object and never changes it, over all connections: so an id must
        // always mean the same way, also after a restart of either side. It is made from the way itself.
        let mut id = SINGLE | fingerprint(&via);
        while self.singles.values().any(|s| s.id == id) {
            id = SINGLE | id.wrapping_add(1);
        }
        self.objects_before.remove(&id);
        self.retired.remove(&id);
        let written = fpm::write_next_hop(
            &mut self.out,
            &NextHop { id, protocol: RTPROT_BGP, forward: Forward::via(via) },
        );
        debug_assert!(written.is_ok(), "a single object has a fixed size");
        self.singles.insert(via, Single { id, users: 1 });
        id
    }

    fn release(&mut self, content: &FibGroup) {
        let FibGroup::Hops(hops) = content else { return };
        for hop in hops {
            let via = via(hop);
            let Some(single) = self.singles.get_mut(&via) else { continue };
            single.users -= 1;
            if single.users == 0 {
                self.retired.insert(single.id);
                self.singles.remove(&via);
            }
        }
    }

    fn route<F: Family>(&mut self, route: &FibRoute<F>, verdicts: &mut Verdicts) {
        let before = self.before.get_mut::<F>();
        let mut told = if before.is_empty() { None } else { before.remove(&route.prefix) };
        let sent = self.routes.get_mut::<F>();
        match route.group {
            Some(group) => {
                let now = Sent { group, protocol: route.protocol };
                sent.insert(route.prefix, now);
                self.write(route.prefix, now, verdicts);
            }
            None => {
                told = sent.remove(&route.prefix).or(told);
                if let Some(told) = told {
                    self.write_delete(route.prefix, told);
                }
            }
        }
    }

    fn write<F: Family>(&mut self, prefix: Prefix<F>, sent: Sent, verdicts: &mut Verdicts) {
        let number = protocol_number(sent.protocol);
        let content = self.groups.get(&sent.group);
        let mut route = Route::new(prefix.any(), DEFAULT_VRF, number, NextHops::None);
        let written = match content {
            None => Err("its next-hop group was never announced".to_owned()),
            Some(FibGroup::Blackhole) => {
                route.kind = RouteKind::Blackhole;
                fpm::write_route(&mut self.out, &route).map_err(|e| e.to_string())
            }
            Some(content @ FibGroup::Hops(hops)) if self.next_hop_groups => {
                let direct =
                    hops.first().filter(|_| !has_object(content)).and_then(|hop| self.singles.get(&via(hop)));
                route.next_hops = NextHops::Id(direct.map_or(sent.group.0, |single| single.id));
                fpm::write_route(&mut self.out, &route).map_err(|e| e.to_string())
            }
            Some(FibGroup::Hops(hops)) => {
                let largest = largest_weight(hops);
                self.hops.clear();
                self.hops.extend(
                    hops.iter().map(|hop| Hop { via: via(hop), weight: fit_weight(hop.weight, largest) }),
                );
                route.next_hops = NextHops::Inline(Hops::from(&self.hops[..]));
                fpm::write_route(&mut self.out, &route).map_err(|e: TooLong| e.to_string())
            }
        };
        match written {
            Ok(()) => {
                self.done.routes += 1;
                verdicts.installed(prefix.any());
            }
            Err(why) => verdicts.refused(prefix.any(), why),
        }
    }

    fn write_delete<F: Family>(&mut self, prefix: Prefix<F>, told: Sent) {
        fpm::write_delete(&mut self.out, prefix.any(), DEFAULT_VRF, protocol_number(told.protocol));
        self.done.deletes += 1;
    }

    /// Writes the routes of groups that changed.
    fn send_again<F: Family>(
        &mut self,
        changed: &Set<GroupId>,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        let sent = std::mem::take(self.routes.get_mut::<F>());
        for (prefix, sent) in sent.iter().filter(|(_, sent)| changed.contains(&sent.group)) {
            self.write(*prefix, *sent, verdicts);
            self.flush_when_full(flush);
        }
        *self.routes.get_mut::<F>() = sent;
    }

    /// Deletes what the server was told before the replay and the replay did not name.
    fn delete_unnamed<F: Family>(&mut self, flush: &mut impl FnMut(&mut Vec<u8>)) {
        for (prefix, told) in std::mem::take(self.before.get_mut::<F>()) {
            self.write_delete(prefix, told);
            self.flush_when_full(flush);
        }
    }

    fn flush_when_full(&mut self, flush: &mut impl FnMut(&mut Vec<u8>)) {
        if self.out.len() >= FLUSH {
            flush(&mut self.out);
        }
    }
}

fn via(hop: &FibHop) -> Via {
    Via { gateway: hop.gateway, ifindex: hop.interface, onlink: hop.onlink }
}

fn largest_weight(hops: &[FibHop]) -> u16 {
    hops.iter().map(|hop| hop.weight).max().unwrap_or(1)
}

/// Whether a group is an object of its own. A blackhole is written into its routes, and an interface without a
/// gateway is named by its single object: SONiC makes no group of it.
fn has_object(content: &FibGroup) -> bool {
    match content {
        FibGroup::Blackhole => false,
        FibGroup::Hops(hops) => !matches!(&hops[..], [FibHop { gateway: None, .. }]),
    }
}

/// A number that depends on the way alone, equal in every run (FNV-1a).
fn fingerprint(via: &Via) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    match via.gateway {
        Some(IpAddr::V4(a)) => add(&a.octets()),
        Some(IpAddr::V6(a)) => add(&a.octets()),
        None => {}
    }
    add(&via.ifindex.to_be_bytes());
    add(&[u8::from(via.onlink)]);
    hash
}
