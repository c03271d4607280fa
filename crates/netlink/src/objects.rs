//! Next-hop objects in the kernel: single objects, one for each next hop, and groups that refer to
//! them.
//!
//! Every group of the caller is a group object in the kernel, also a group of one member, because the
//! kernel cannot turn a single object into a group. So a group keeps its id whatever its members,
//! and a change of members is one message for any number of routes. One that becomes unresolved is
//! deleted behind the routes of its batch, and gets another id.
//!
//! The kernel removes objects without a notification when their interface goes down, and with the
//! last member the group and all of its routes. So the contents of the kernel are an assumption
//! here (`live`), which is verified by a dump when a request fails unexpectedly and after an
//! interface changed.
//!
//! The deletion of an unused single object also removes it from all groups. Groups are written only
//! to add members or change weights.

use crate::{Refusal, Socket};
use ribtide_prefix::{Afi, Map, Set};
use ribtide_wire::netlink::numbers::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use ribtide_wire::netlink::scale_weight;
use ribtide_wire::netlink::{
    Content, Forward, Member, Members, NextHop, TooLong, Via, dump_next_hops, write_next_hop_delete,
};
use std::io;
use std::ops::Range;

/// Makes the kernel send one notification for a changed next-hop object, and not one for each of
/// its routes. For a million routes the latter takes it 12 seconds, in which no other program can
/// change routes. Returns whether that was new.
///
/// # Errors
/// The system's: no permission, or a kernel before Linux 5.8, which has no other mode.
pub fn leave_compat_mode() -> io::Result<bool> {
    const SWITCH: &str = "/proc/sys/net/ipv4/nexthop_compat_mode";
    if std::fs::read_to_string(SWITCH)?.trim() == "0" {
        return Ok(false);
    }
    std::fs::write(SWITCH, "0").map(|()| true)
}

/// The ids of one program's objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ids {
    /// Objects that it may have made, also in earlier versions.
    pub range: Range<u32>,
    /// The first id that it assigns.
    pub first: u32,
}

/// The ids of the router's objects. Those of earlier versions begin at the start of the range. Other
/// programs count from 1, and FRR's EVPN multihoming from `1 << 28` and `2 << 28`.
pub const ROUTER_IDS: Ids = Ids { range: 0x2000_0000..0x8000_0000, first: 0x6000_0000 };
/// The ids of syncd's objects where the kernel is its chip.
pub const CHIP_IDS: Ids = Ids { range: 0x8000_0000..0xc000_0000, first: 0x8000_0000 };

impl Ids {
    /// Whether the program may have made the object of this id.
    pub fn contain(&self, id: u32) -> bool {
        self.range.contains(&id)
    }
}

/// The content of a next-hop object that is no group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SingleContent {
    /// Drops packets.
    Blackhole,
    /// Sends them to a gateway or onto an interface.
    Via(Via),
}

impl SingleContent {
    fn forward(self) -> Forward<'static> {
        match self {
            // IPv4 routes can use objects of family IPv6 and not the other way round.
            SingleContent::Blackhole => Forward::Blackhole(Afi::Ipv6),
            SingleContent::Via(via) => Forward::via(via),
        }
    }

    /// The content of a single object of the kernel; `None` for groups and unsupported kinds.
    fn of(forward: &Forward<'_>) -> Option<SingleContent> {
        let way = match forward {
            Forward::Blackhole(_) => SingleContent::Blackhole,
            Forward::Via(_, via) => SingleContent::Via(*via),
            Forward::Group(_) | Forward::Other => return None,
        };
        (way.forward() == *forward).then_some(way)
    }
}

/// A single object.
struct Single {
    id: u32,
    /// The number of groups that use it.
    users: u32,
    /// Whether the kernel is assumed to have it.
    live: bool,
    /// Whether the kernel has it with other content, because another program changed it.
    changed: bool,
    refusal: Option<Refusal>,
}

/// A group object.
struct Group {
    id: u32,
    /// The requested members, each once.
    want: Vec<(SingleContent, u16)>,
    /// The assumed members in the kernel, by id; empty if it does not have the group.
    live: Vec<Member>,
    /// Whether an earlier run created it, so found routes may use it.
    found: bool,
    /// Whether no route can use it yet.
    fresh: bool,
    /// Whether routes use its id, which must not change any more.
    bound: bool,
    refusal: Option<Refusal>,
}

/// Found objects with the protocol number of ribtide that are not adopted yet.
#[derive(Default)]
struct Found {
    singles: Map<SingleContent, u32>,
    /// By members, which several groups may have in common.
    groups: Map<Vec<Member>, Vec<u32>>,
    /// Objects of a kind or content that ribtide does not create.
    strays: Vec<u32>,
    /// All used ids.
    taken: Set<u32>,
}

/// The state of all objects.
pub struct Objects {
    protocol: u8,
    /// The ids that it assigns.
    ids: Ids,
    singles: Map<SingleContent, Single>,
    groups: Map<u32, Group>,
    /// Groups (by number of the caller) whose members may differ from the requested ones.
    dirty: Vec<u32>,
    /// Kernel ids of groups to delete once no route uses them, and of objects whose deletion the
    /// kernel refused.
    doomed: Vec<u32>,
    /// Of these, groups that have become unresolved since [`Objects::take_undeleted`]: their routes go
    /// with them.
    emptied: Vec<u32>,
    /// Single objects that may be unused.
    idle: Vec<SingleContent>,
    found: Found,
    /// Whether no group of an earlier run and no single object may leave the kernel, because found
    /// routes may use it that the caller has not requested yet.
    pub keep: bool,
    /// Whether groups may have left the kernel since [`Objects::take_lasting`].
    lost: bool,
    /// Kernel ids of groups created since then, while `keep` is set: a found route with such an id
    /// went with the former group.
    created: Set<u32>,
    /// Groups (by number of the caller) whose routes may be in the kernel, and which it refused since
    /// [`Objects::take_refused`].
    refused: Vec<u32>,
    /// Objects that the kernel accepted.
    pub accepted: u64,
    /// Greater than all ids ever assigned or adopted.
    next_id: u32,
    /// Free ids that were used before.
    free: Vec<u32>,
}

impl Objects {
    /// Objects of this protocol number, none so far. No other program assigns these ids.
    pub fn new(protocol: u8, ids: Ids) -> Self {
        Objects {
            protocol,
            next_id: ids.first,
            ids,
            singles: Map::default(),
            groups: Map::default(),
            dirty: Vec::new(),
            doomed: Vec::new(),
            emptied: Vec::new(),
            idle: Vec::new(),
            found: Found::default(),
            keep: false,
            lost: false,
            created: Set::default(),
            refused: Vec::new(),
            accepted: 0,
            free: Vec::new(),
        }
    }

    /// The kernel id of a group of the caller, if the kernel has it.
    pub fn live_id(&self, group: u32) -> Option<u32> {
        self.groups.get(&group).filter(|g| !g.live.is_empty()).map(|g| g.id)
    }

    /// Whether the group with this kernel id drops packets.
    pub fn is_blackhole(&self, id: u32) -> bool {
        let drops = |g: &Group| g.want.iter().all(|(way, _)| *way == SingleContent::Blackhole);
        self.groups.values().any(|g| g.id == id && drops(g))
    }

    /// Whether the kernel lacks a group of the caller.
    pub fn lacking(&self) -> bool {
        self.groups.values().any(|g| g.live.is_empty())
    }

    /// Why the kernel does not have a group of the caller; `None` for an unresolved group, which it
    /// must not have.
    pub fn refusal(&self, group: u32) -> Option<Refusal> {
        let Some(g) = self.groups.get(&group) else {
            return Some(Refusal {
                errno: libc::ENOENT,
                text: format!("next-hop group {group} was never announced"),
            });
        };
        if g.want.is_empty() {
            return None;
        }
        let of_members = || g.want.iter().find_map(|(way, _)| self.singles.get(way)?.refusal.clone());
        Some(g.refusal.clone().or_else(of_members).unwrap_or(Refusal {
            errno: libc::ENETUNREACH,
            text: "the next-hop group has no next hop".into(),
        }))
    }

    /// Sets the members of a group of the caller; none for an unresolved one. Equal next hops are
    /// merged, with their weights added.
    pub fn set_group(&mut self, group: u32, members: impl Iterator<Item = (SingleContent, u16)>) {
        let mut want: Vec<(SingleContent, u16)> = Vec::with_capacity(members.size_hint().0);
        for (way, weight) in members {
            match want.iter_mut().find(|(w, _)| *w == way) {
                Some((_, sum)) => *sum = sum.saturating_add(weight),
                None => want.push((way, weight)),
            }
        }
        // The kernel accepts a blackhole only as the sole member, and one usable next hop has
        // priority.
        if want.len() > 1 {
            want.retain(|(way, _)| *way != SingleContent::Blackhole);
        }
        scale_weights(&mut want);
        for (way, _) in &want {
            self.use_single(*way);
        }
        let group_id = match self.groups.get_mut(&group) {
            Some(old) => {
                let before = std::mem::replace(&mut old.want, want);
                old.refusal = None;
                self.release(before);
                self.dirty.push(group);
                return;
            }
            None => self.adopt_group(&want),
        };
        let found = group_id.is_some();
        let (id, live) = group_id.unwrap_or_else(|| (self.new_id(), Vec::new()));
        self.groups.insert(group, Group { id, want, live, found, fresh: true, bound: false, refusal: None });
        self.dirty.push(group);
    }

    /// Removes a group. It leaves the kernel at the next [`delete_unused`](Self::delete_unused). With
    /// `keep`, one of an earlier run counts as found again.
    pub fn delete_group(&mut self, group: u32) {
        if let Some(g) = self.groups.remove(&group) {
            self.release(g.want);
            match self.keep && g.found {
                true if g.live.is_empty() => self.found.strays.push(g.id),
                true => self.found.groups.entry(g.live).or_default().push(g.id),
                false => self.doomed.push(g.id),
            }
        }
    }

    /// The ids of the groups that the kernel has, and has had since the last call; `None` if no group
    /// may have left it, or without `keep`.
    pub fn take_lasting(&mut self) -> Option<Set<u32>> {
        let created = std::mem::take(&mut self.created);
        if !std::mem::take(&mut self.lost) || !self.keep {
            return None;
        }
        let live = self.groups.values().filter(|g| !g.live.is_empty()).map(|g| g.id);
        let all = live.chain(self.found.groups.values().flatten().copied());
        Some(all.filter(|id| !created.contains(id)).collect())
    }

    fn use_single(&mut self, way: SingleContent) {
        if let Some(single) = self.singles.get_mut(&way) {
            single.users += 1;
            return;
        }
        let (id, live) = match self.found.singles.remove(&way) {
            Some(id) => (self.adopt(id), true),
            None => (self.new_id(), false),
        };
        self.singles.insert(way, Single { id, users: 1, live, changed: false, refusal: None });
    }

    fn release(&mut self, want: Vec<(SingleContent, u16)>) {
        for (way, _) in want {
            if let Some(single) = self.singles.get_mut(&way) {
                single.users -= 1;
                if single.users == 0 {
                    self.idle.push(way);
                }
            }
        }
    }

    /// A group in the kernel with exactly these members. A member that is still missing there would
    /// be added to a group that found routes use.
    fn adopt_group(&mut self, want: &[(SingleContent, u16)]) -> Option<(u32, Vec<Member>)> {
        let members = self.members(want);
        if members.len() < want.len() {
            return None;
        }
        let id = self.found.groups.get_mut(&members)?.pop()?;
        Some((self.adopt(id), members))
    }

    /// A route of a group is about to be compared with its kernel route, which uses the object
    /// `found`, or to be written. The first such route decides which of several equal objects
    /// belongs to the group, so that the others fit, too.
    pub fn bind(&mut self, group: u32, found: Option<u32>) {
        let Some(this) = self.groups.get_mut(&group).filter(|g| !g.bound) else { return };
        this.bound = true;
        let Some(wanted) = found.filter(|id| *id != this.id && !this.live.is_empty()) else { return };
        let (mine, mine_found, live) = (this.id, this.found, this.live.clone());
        let mut wanted_found = true;
        if let Some(spare) =
            self.found.groups.get_mut(&live).and_then(|ids| ids.iter_mut().find(|id| **id == wanted))
        {
            *spare = mine;
        } else if let Some(other) =
            self.groups.values_mut().find(|g| g.id == wanted && !g.bound && g.live == live)
        {
            other.id = mine;
            wanted_found = std::mem::replace(&mut other.found, mine_found);
        } else {
            return;
        }
        self.adopt(wanted);
        if let Some(this) = self.groups.get_mut(&group) {
            (this.id, this.found) = (wanted, wanted_found);
        }
    }

    /// The members that the kernel can have now, by id.
    fn members(&self, want: &[(SingleContent, u16)]) -> Vec<Member> {
        let mut members: Vec<Member> = want
            .iter()
            .filter_map(|(way, weight)| {
                let single = self.singles.get(way).filter(|s| s.live)?;
                Some(Member { id: single.id, weight: *weight })
            })
            .collect();
        members.sort_unstable_by_key(|m| m.id);
        members
    }

    /// An id of an earlier run is not reused while it is in use, even if the kernel has lost its
    /// object.
    fn adopt(&mut self, id: u32) -> u32 {
        self.next_id = self.next_id.max(id + 1);
        id
    }

    /// An id that no object had at the last dump.
    fn new_id(&mut self) -> u32 {
        while let Some(id) = self.free.pop() {
            if !self.found.taken.contains(&id) {
                return id;
            }
        }
        while self.found.taken.contains(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Reads a dump of the kernel. Differing groups become dirty; unused objects wait for adoption
    /// or deletion.
    pub fn check(&mut self, socket: &mut Socket) -> io::Result<()> {
        let protocol = self.protocol;
        #[derive(Default)]
        struct Dump {
            singles: Map<u32, Option<SingleContent>>,
            groups: Map<u32, Vec<Member>>,
            taken: Set<u32>,
        }
        let mut dump: Dump = socket.dump(dump_next_hops, |dump: &mut Dump, content| {
            let Content::NewNextHop(object) = content else { return };
            dump.taken.insert(object.id);
            if object.protocol != protocol {
                return;
            }
            if let Forward::Group(members) = object.forward {
                let mut members: Vec<Member> = members.collect();
                members.sort_unstable_by_key(|m| m.id);
                dump.groups.insert(object.id, members);
            } else {
                dump.singles.insert(object.id, SingleContent::of(&object.forward));
            }
        })?;
        let mut moved: Vec<SingleContent> = Vec::new();
        for (way, single) in &mut self.singles {
            // One of other content is no leftover: its id is in use.
            let there = dump.singles.remove(&single.id);
            single.live = there == Some(Some(*way));
            single.changed = there.is_some() && !single.live;
            moved.extend((there.is_none() && dump.taken.contains(&single.id)).then_some(*way));
        }
        self.lost = true;
        let mut moved_groups: Vec<u32> = Vec::new();
        for (key, group) in &mut self.groups {
            let there = dump.groups.remove(&group.id);
            moved_groups.extend((there.is_none() && dump.taken.contains(&group.id)).then_some(*key));
            group.live = there.unwrap_or_default();
        }
        // Objects to delete are still deleted, so they cannot be adopted. But not what another
        // program has under their ids.
        self.doomed.retain(|id| {
            let ours = dump.groups.remove(id).is_some() | dump.singles.remove(id).is_some();
            ours || !dump.taken.contains(id)
        });
        self.found = Found { taken: dump.taken, ..Found::default() };
        // Another program has these ids.
        for way in moved {
            let id = self.new_id();
            if let Some(single) = self.singles.get_mut(&way) {
                single.id = id;
            }
        }
        for key in moved_groups {
            let id = self.new_id();
            if let Some(group) = self.groups.get_mut(&key) {
                (group.id, group.found) = (id, false);
            }
        }
        for (id, way) in dump.singles {
            match way {
                Some(way)
                    if self.ids.contain(id)
                        && !self.singles.contains_key(&way)
                        && !self.found.singles.contains_key(&way) =>
                {
                    self.found.singles.insert(way, id);
                }
                _ => self.found.strays.push(id),
            }
        }
        for (id, members) in dump.groups {
            if !self.ids.contain(id) {
                self.found.strays.push(id);
            } else {
                self.found.groups.entry(members).or_default().push(id);
            }
        }
        self.dirty.extend(self.groups.keys());
        Ok(())
    }

    /// Writes all dirty groups, as far as the kernel accepts them. Returns groups (by id of the
    /// RIB) that the kernel had lost or refused before and has now: their routes must be written
    /// again.
    pub fn converge(&mut self, socket: &mut Socket) -> io::Result<Vec<u32>> {
        let mut back = Vec::new();
        let mut checked = false;
        loop {
            let mut dirty = std::mem::take(&mut self.dirty);
            dirty.sort_unstable();
            dirty.dedup();
            let mut surprises = self.write_singles(socket, &dirty)?;
            surprises |= self.write_groups(socket, &dirty, &mut back)?;
            if !surprises || checked {
                for group in dirty {
                    if let Some(group) = self.groups.get_mut(&group) {
                        group.fresh = false;
                    }
                }
                return Ok(back);
            }
            // The kernel had removed something: verify, and do the rest.
            self.check(socket)?;
            checked = true;
        }
    }

    /// Groups (by number of the caller) that the kernel refused and does not have now. Their routes have
    /// failed, though no batch names them.
    pub fn take_refused(&mut self) -> Set<u32> {
        let refused = std::mem::take(&mut self.refused);
        refused.into_iter().filter(|group| self.live_id(*group).is_none()).collect()
    }

    /// Creates the missing single objects of these groups. Returns whether the kernel has another
    /// object under one of their ids.
    fn write_singles(&mut self, socket: &mut Socket, dirty: &[u32]) -> io::Result<bool> {
        let mut missing: Vec<(u32, SingleContent, u16)> = Vec::new();
        for group in dirty.iter().filter_map(|g| self.groups.get(g)) {
            for (way, _) in &group.want {
                if let Some(single) = self.singles.get_mut(way).filter(|s| !s.live) {
                    // Assumed until refused, which also prevents a second request.
                    single.live = true;
                    single.refusal = None;
                    missing.push((single.id, *way, creation(single.changed)));
                }
            }
        }
        let protocol = self.protocol;
        let (mut refused, mut surprises) = (0, false);
        let singles = &mut self.singles;
        socket.request(
            &missing,
            |(id, way, flags), out, seq| {
                let object = NextHop { id: *id, protocol, forward: way.forward() };
                infallible(object.write_new(out, *flags, seq));
            },
            |index, refusal| {
                refused += 1;
                surprises |= refusal.errno == libc::EEXIST;
                if let Some(single) = missing.get(index).and_then(|(_, way, _)| singles.get_mut(way)) {
                    single.live = false;
                    single.refusal = Some(refusal);
                }
            },
        )?;
        self.accepted += (missing.len() - refused) as u64;
        Ok(surprises)
    }

    /// Writes the changed groups. Returns whether the kernel refused one unexpectedly.
    fn write_groups(&mut self, socket: &mut Socket, dirty: &[u32], back: &mut Vec<u32>) -> io::Result<bool> {
        struct Change {
            group: u32,
            id: u32,
            members: Vec<Member>,
            flags: u16,
        }
        let mut changes: Vec<Change> = Vec::new();
        let mut shrinks: Vec<(u32, Vec<Member>)> = Vec::new();
        let unused = if self.keep { Set::default() } else { self.unused() };
        for &key in dirty {
            let Some(group) = self.groups.get(&key) else { continue };
            let members = self.members(&group.want);
            if members == group.live {
                // The group went with its link, and the kernel refuses its next hops since then.
                let is_lost = members.is_empty() && !group.want.is_empty() && !group.fresh;
                if is_lost && group.refusal.is_none() {
                    let refusal = self.refusal(key);
                    self.refused.push(key);
                    if let Some(group) = self.groups.get_mut(&key) {
                        group.refusal = refusal;
                    }
                }
                continue;
            }
            if members.is_empty() && group.want.is_empty() {
                // The kernel drops its routes with it. First the batch moves those that go elsewhere.
                self.lost = true;
                let new = self.new_id();
                if let Some(group) = self.groups.get_mut(&key) {
                    let id = std::mem::replace(&mut group.id, new);
                    self.doomed.push(id);
                    self.emptied.push(id);
                    (group.live, group.found) = (Vec::new(), false);
                }
            } else if members.is_empty() {
                // Without members the old forwarding would be wrong. The kernel drops its routes
                // with it.
                self.delete_objects(socket, &[group.id])?;
                self.lost = true;
                if let Some(group) = self.groups.get_mut(&key) {
                    group.live.clear();
                    self.refused.extend(Some(key).filter(|_| !group.fresh));
                }
            } else if members == without(&group.live, &unused) {
                shrinks.push((key, members));
            } else {
                // An existing group is only replaced: created again unnoticed, it would have lost
                // its routes.
                let flags = if group.live.is_empty() { creation(false) } else { NLM_F_REPLACE };
                changes.push(Change { group: key, id: group.id, members, flags });
            }
        }
        let mut refused: Map<usize, Refusal> = Map::default();
        let protocol = self.protocol;
        socket.request(
            &changes,
            |change, out, seq| {
                let forward = Forward::Group(Members::from(&change.members[..]));
                let object = NextHop { id: change.id, protocol, forward };
                if object.write_new(out, change.flags, seq).is_err() {
                    // A group of more than 8,190 members is sent without members, which the kernel
                    // refuses with an error.
                    let forward = Forward::Group(Members::from(&[][..]));
                    infallible(NextHop { forward, ..object }.write_new(out, change.flags, seq));
                }
            },
            |index, refusal| {
                refused.insert(index, refusal);
            },
        )?;
        let mut surprises = !refused.is_empty();
        for (index, change) in changes.into_iter().enumerate() {
            let Some(group) = self.groups.get_mut(&change.group) else { continue };
            match refused.remove(&index) {
                None => {
                    if group.live.is_empty() && self.keep {
                        self.created.insert(change.id);
                    }
                    if group.live.is_empty() && !group.fresh {
                        back.push(change.group);
                    }
                    group.live = change.members;
                    group.refusal = None;
                    self.accepted += 1;
                }
                Some(refusal) => {
                    group.live.clear();
                    group.refusal = Some(refusal);
                    self.refused.extend(Some(change.group).filter(|_| !group.fresh));
                }
            }
        }
        if !shrinks.is_empty() {
            // No group uses these any more. One that stays is a member still.
            surprises |= !self.delete_idle(socket)?;
            for (key, members) in shrinks {
                if let Some(group) = self.groups.get_mut(&key) {
                    group.live = members;
                }
            }
        }
        Ok(surprises)
    }

    /// The ids of unused single objects.
    fn unused(&self) -> Set<u32> {
        let single = |way| self.singles.get(way).filter(|s| s.users == 0);
        self.idle.iter().filter_map(single).map(|s| s.id).collect()
    }

    /// Deletes unused single objects, which also removes them from groups. Returns whether all are
    /// gone.
    fn delete_idle(&mut self, socket: &mut Socket) -> io::Result<bool> {
        let mut ids = Vec::new();
        for way in std::mem::take(&mut self.idle) {
            if let Some(single) = self.singles.get(&way).filter(|s| s.users == 0) {
                ids.push(single.id);
                self.singles.remove(&way);
            }
        }
        self.free_objects(socket, &ids)
    }

    /// Deletes objects and frees the ids of those that are gone: the kernel cannot turn a single
    /// object into a group, nor a group into a single object. Returns whether all are gone.
    fn free_objects(&mut self, socket: &mut Socket, ids: &[u32]) -> io::Result<bool> {
        let left = self.delete_objects(socket, ids)?;
        self.free.extend(ids.iter().filter(|id| !left.contains(id)));
        self.doomed.extend(&left);
        Ok(left.is_empty())
    }

    /// Deletes unused objects; with `keep` only groups of this run, because found groups may have any
    /// single object. Routes that use them must be gone or changed before.
    pub fn delete_unused(&mut self, socket: &mut Socket) -> io::Result<()> {
        let groups = std::mem::take(&mut self.doomed);
        self.free_objects(socket, &groups)?;
        if self.keep { Ok(()) } else { self.delete_idle(socket).map(drop) }
    }

    /// Whether the kernel refused to delete a group that became unresolved, so routes by it stay.
    pub fn take_undeleted(&mut self) -> bool {
        std::mem::take(&mut self.emptied).iter().any(|id| self.doomed.contains(id))
    }

    /// Deletes found objects that were not adopted.
    pub fn sweep(&mut self, socket: &mut Socket) -> io::Result<usize> {
        let found = std::mem::take(&mut self.found);
        // Groups first: a group that loses its last member is deleted by the kernel, and then not
        // found.
        let mut ids: Vec<u32> = found.groups.into_values().flatten().collect();
        ids.extend(found.strays);
        ids.extend(found.singles.into_values());
        self.found.taken = found.taken;
        self.delete_objects(socket, &ids)?;
        Ok(ids.len())
    }

    /// Marks groups dirty that lack a member on `ifindex`.
    pub fn mark_incomplete_through(&mut self, ifindex: u32) {
        let singles = &self.singles;
        let lacks = |(way, _): &(SingleContent, u16)| {
            matches!(way, SingleContent::Via(via) if via.ifindex == ifindex)
                && singles.get(way).is_some_and(|s| !s.live)
        };
        self.dirty.extend(self.groups.iter().filter(|(_, g)| g.want.iter().any(lacks)).map(|(key, _)| *key));
    }

    /// The interface is down, so the kernel has removed its objects from all groups. Returns
    /// whether a group lost its last member.
    pub fn lose_interface(&mut self, ifindex: u32) -> bool {
        let mut gone: Set<u32> = Set::default();
        for (way, single) in &mut self.singles {
            if matches!(way, SingleContent::Via(via) if via.ifindex == ifindex) {
                single.live = false;
                gone.insert(single.id);
            }
        }
        let mut lost = false;
        for group in self.groups.values_mut().filter(|g| !g.live.is_empty()) {
            group.live.retain(|member| !gone.contains(&member.id));
            lost |= group.live.is_empty();
        }
        self.lost |= lost;
        lost
    }

    /// Marks groups dirty that lack a member.
    pub fn mark_incomplete(&mut self) {
        let lacking = self.groups.iter().filter(|(_, g)| g.live.len() < g.want.len());
        self.dirty.extend(lacking.map(|(key, _)| *key));
    }

    /// Whether a requested next hop is on `ifindex`.
    pub fn uses(&self, ifindex: u32) -> bool {
        self.singles.keys().any(|way| matches!(way, SingleContent::Via(via) if via.ifindex == ifindex))
    }

    /// Returns the ids that the kernel keeps.
    fn delete_objects(&self, socket: &mut Socket, ids: &[u32]) -> io::Result<Vec<u32>> {
        let mut left = Vec::new();
        let refused = |index: usize, refusal: Refusal| {
            if refusal.errno != libc::ENOENT {
                left.extend(ids.get(index));
            }
        };
        socket.request(ids, |id, out, seq| write_next_hop_delete(out, *id, 0, seq), refused)?;
        Ok(left)
    }
}

/// The flags of a new object. One of the same id is replaced only if it is ribtide's and was changed.
fn creation(changed: bool) -> u16 {
    if changed { NLM_F_CREATE | NLM_F_REPLACE } else { NLM_F_CREATE | NLM_F_EXCL }
}

/// The members outside of `gone`.
fn without(members: &[Member], gone: &Set<u32>) -> Vec<Member> {
    members.iter().filter(|m| !gone.contains(&m.id)).copied().collect()
}

/// Limits weights to the range of all kernels (before 6.12, up to 256). A single next hop has
/// weight 1.
fn scale_weights(want: &mut [(SingleContent, u16)]) {
    let alone = want.len() == 1;
    let largest = want.iter().map(|(_, weight)| *weight).max().unwrap_or(1);
    for (_, weight) in want {
        *weight = if alone { 1 } else { scale_weight(*weight, largest) };
    }
}

/// A single object or an empty group always fits.
fn infallible(written: Result<(), TooLong>) {
    debug_assert!(written.is_ok());
}
