//! Next-hop objects: single next hops are written into the routes that name them, groups are rows of their own.
//!
//! SONiC's own ignores an object that changes, keeps objects over sessions, cuts a group off at an unknown member,
//! and leaves rows of groups that no route named. Here a change is a change, ids live for a session, a group waits
//! for its members, and rows go with their group.

use super::event::Cause;
use super::routes::no_gateway;
use super::source::{SourceId, State, What};
use super::{FpmEvent, FpmOut, Fpmsyncd};
use crate::row::{Change, Field, Name, NextHopGroupRow, Row, Via};
use ribtide_prefix::{Map, Set};
use ribtide_wire::fpm::compare;
use ribtide_wire::netlink::{Forward, Member, NextHop};
use std::net::IpAddr;
use std::sync::Arc;

/// What an object is.
#[derive(Clone, PartialEq, Debug)]
enum Object {
    NextHop {
        gateway: IpAddr,
        ifindex: u32,
    },
    Blackhole,
    /// Members in order, and whether the group has its row.
    Group(Vec<Member>, bool),
}

/// What a next-hop object gives the routes of an SRv6 VPN.
pub(super) enum Filler<'a> {
    /// It, or a member of it, is not known.
    Unknown,
    Blackhole,
    /// Its interface is the switch's management.
    Management,
    Group,
    /// The interface of a single next hop.
    Interface(&'a str),
}

/// A group's row.
#[derive(Default, Debug)]
struct GroupRow {
    /// As it should be.
    wanted: Option<Arc<Via>>,
    /// As APPL_DB has it.
    written: Option<Arc<Via>>,
    epoch: u16,
    /// The session in which its next hops became others, 0 for before the first one; `None`: they
    /// did not, as far as is known.
    next_hops_changed: Option<u16>,
    changed: bool,
}

/// All objects.
#[derive(Default)]
pub(super) struct Objects {
    /// Those of the session.
    map: Map<u32, Object>,
    /// The groups that name an object.
    member_of: Map<u32, Set<u32>>,
    /// Rows by id, those from before the session included.
    rows: Map<u32, GroupRow>,
    changed: Vec<u32>,
}

impl Objects {
    pub(super) fn changed_len(&self) -> usize {
        self.changed.len()
    }

    /// The keys of all rows.
    pub(super) fn keys(&self) -> impl Iterator<Item = Name> {
        self.rows.keys().map(|id| id.to_string().into())
    }

    /// The row of a group that was announced since the start and whose change is handed over.
    pub(super) fn settled(&self, id: u32) -> Option<&Arc<Via>> {
        let row = self.rows.get(&id).filter(|row| !row.changed && row.epoch != 0)?;
        row.written.as_ref()
    }

    /// The fingerprint of an object of the session.
    pub(super) fn fingerprint(&self, id: u32) -> Option<u64> {
        Some(match self.map.get(&id)? {
            Object::NextHop { gateway, ifindex } => compare::single(*gateway, *ifindex),
            Object::Blackhole => compare::BLACKHOLE,
            Object::Group(members, _) => {
                compare::members(members.iter().map(|member| (member.id, member.weight)))
            }
        })
    }

    /// The objects of the session from an id on, with their fingerprints.
    pub(super) fn fingerprints_from(&self, id: u32) -> impl Iterator<Item = (u32, u64)> {
        let mut ids: Vec<u32> = self.map.keys().copied().filter(|key| *key >= id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| Some((id, self.fingerprint(id)?)))
    }

    /// Ids mean something else from now on.
    pub(super) fn new_session(&mut self) {
        self.map.clear();
        self.member_of.clear();
    }

    /// Takes in a row that APPL_DB has. `queued`: orchagent has not taken it yet.
    pub(super) fn known(&mut self, id: u32, via: Arc<Via>, queued: bool) {
        self.rows.entry(id).or_insert(GroupRow {
            wanted: Some(via.clone()),
            written: Some(via),
            epoch: 0,
            next_hops_changed: queued.then_some(0),
            changed: false,
        });
    }

    /// Whether a row names a group whose next hops changed in this session or later. The chip may
    /// have the route with the former ones, though its row is the same.
    pub(super) fn group_changed_since(&self, via: &Via, since: u16) -> bool {
        let row = via.get(Field::NexthopGroup).parse().ok().and_then(|id: u32| self.rows.get(&id));
        row.and_then(|row| row.next_hops_changed).is_some_and(|changed| changed >= since)
    }

    fn want(&mut self, id: u32, wanted: Option<Arc<Via>>, epoch: u16) {
        let row = self.rows.entry(id).or_default();
        if let (Some(old), Some(new)) = (row.wanted.as_ref().or(row.written.as_ref()), &wanted)
            && old != new
            && !old.same_hops(new)
        {
            row.next_hops_changed = Some(epoch);
        }
        row.wanted = wanted;
        row.epoch = epoch;
        if !std::mem::replace(&mut row.changed, true) {
            self.changed.push(id);
        }
    }

    /// The groups that a session did not announce and that have a row.
    pub(super) fn stale(&self, epoch: u16) -> Vec<u32> {
        let stale = self.rows.iter().filter(|(_, row)| row.epoch != epoch && row.wanted.is_some());
        stale.map(|(id, _)| *id).collect()
    }

    /// The epochs start over.
    pub(super) fn forget_epochs(&mut self) {
        for row in self.rows.values_mut() {
            row.epoch = 0;
            row.next_hops_changed = row.next_hops_changed.map(|_| 0);
        }
    }
}

impl Fpmsyncd {
    pub(super) fn new_object(&mut self, object: &NextHop<'_>, out: &mut FpmOut) {
        self.counters.objects += 1;
        let id = object.id;
        let is_single = matches!(object.forward, Forward::Via(..) | Forward::Blackhole(_));
        if self.config.as_sonic.next_hop_change && is_single && self.objects.map.contains_key(&id) {
            return;
        }
        let new = match object.forward {
            Forward::Via(afi, via) => Object::NextHop {
                gateway: via.gateway.unwrap_or(no_gateway(afi == ribtide_prefix::Afi::Ipv4)),
                ifindex: via.ifindex,
            },
            Forward::Blackhole(_) => Object::Blackhole,
            Forward::Group(members) => Object::Group(members.collect(), false),
            Forward::Other => {
                self.counters.refused += 1;
                self.del_object(id);
                return out.events.push(FpmEvent::Object(id, Cause::Unknown));
            }
        };
        let same = match (self.objects.map.get(&id), &new) {
            (Some(Object::Group(old, _)), Object::Group(new, _)) => old == new,
            (old, new) => old == Some(new),
        };
        if same {
            return;
        }
        self.forget_members(id);
        let mut members = Vec::new();
        if let Object::Group(new, _) = &new {
            members = new.iter().map(|member| member.id).collect();
        } else if self
            .objects
            .rows
            .get(&id)
            .is_some_and(|row| row.wanted.is_some() && row.epoch == self.session.epoch)
        {
            // It was a group.
            self.delete_group(id);
        }
        self.objects.map.insert(id, new);
        for member in &members {
            self.objects.member_of.entry(*member).or_default().insert(id);
        }
        if let Some(missing) = members.iter().find(|member| !self.is_way(**member)) {
            out.events.push(FpmEvent::Object(id, Cause::Waits(*missing)));
        }
        self.object_changed(id);
    }

    pub(super) fn del_object(&mut self, id: u32) {
        self.counters.objects += 1;
        self.forget_members(id);
        if let Some(Object::Group(..)) = self.objects.map.remove(&id) {
            self.delete_group(id);
        }
        self.sources.detach(id);
    }

    /// Deletes a group's row, and rows that name it and are only kept until something else comes.
    pub(super) fn delete_group(&mut self, id: u32) {
        self.objects.want(id, None, self.session.epoch);
        let index = id.to_string();
        for (source, at) in self.sources.waiting_with(|via| via.get(Field::NexthopGroup) == index) {
            self.touch(at, false);
            self.sources.keep_nothing(source, at);
        }
    }

    fn forget_members(&mut self, id: u32) {
        let Some(Object::Group(members, _)) = self.objects.map.get(&id) else { return };
        for member in members {
            if let Some(groups) = self.objects.member_of.get_mut(&member.id) {
                groups.remove(&id);
                if groups.is_empty() {
                    self.objects.member_of.remove(&member.id);
                }
            }
        }
    }

    fn is_way(&self, id: u32) -> bool {
        matches!(self.objects.map.get(&id), Some(Object::NextHop { .. }))
    }

    /// Brings rows in line with an object and with the groups that name it.
    fn object_changed(&mut self, id: u32) {
        let mut groups: Vec<u32> = self.objects.member_of.get(&id).into_iter().flatten().copied().collect();
        groups.sort_unstable();
        groups.push(id);
        for id in &groups {
            self.write_group(*id);
        }
        let states =
            groups.iter().filter_map(|id| Some((self.sources.find_object(*id)?, self.state_of_object(*id))));
        let states = states.filter(|(_, state)| *state != State::Waiting).collect();
        self.replace(states);
        groups.into_iter().for_each(|id| self.vpn_object_changed(id));
    }

    /// Writes a group's row, if all its members are known. Until then it keeps the row that it has.
    pub(super) fn write_group(&mut self, id: u32) {
        let Some(Object::Group(members, _)) = self.objects.map.get(&id) else { return };
        let hops: Option<Vec<_>> = members
            .iter()
            .map(|member| match self.objects.map.get(&member.id) {
                Some(Object::NextHop { gateway, ifindex }) => {
                    Some((*gateway, self.ifname(*ifindex), u32::from(member.weight)))
                }
                _ => None,
            })
            .collect();
        let Some(hops) = hops.filter(|hops| !hops.is_empty()) else { return };
        let mut via = Via::hops(hops.into_iter(), true);
        if let Some(sources) = self.segment_sources(id) {
            via.put(Field::SegSrc, &sources);
        }
        let via = Arc::new(via);
        self.objects.want(id, Some(via), self.session.epoch);
        if let Some(Object::Group(_, written)) = self.objects.map.get_mut(&id) {
            *written = true;
        }
    }

    /// What a route has that names an object.
    pub(super) fn state_of_object(&self, id: u32) -> State {
        match self.objects.map.get(&id) {
            None | Some(Object::Group(_, false)) => State::Waiting,
            Some(Object::Group(_, true)) => State::Row(Arc::new(Via::group(&id.to_string()))),
            Some(Object::Blackhole) => State::Row(Arc::new(Via::blackhole())),
            Some(Object::NextHop { ifindex, .. }) if self.is_management(*ifindex) => State::Nothing,
            Some(Object::NextHop { gateway, ifindex }) => {
                let hop = (*gateway, self.ifname(*ifindex), 1);
                State::Row(Arc::new(Via::hops(std::iter::once(hop), false)))
            }
        }
    }

    /// What an object gives the routes of an SRv6 VPN.
    pub(super) fn object_filler(&self, id: u32) -> Filler<'_> {
        match self.objects.map.get(&id) {
            None | Some(Object::Group(_, false)) => Filler::Unknown,
            Some(Object::Group(_, true)) => Filler::Group,
            Some(Object::Blackhole) => Filler::Blackhole,
            Some(Object::NextHop { ifindex, .. }) if self.is_management(*ifindex) => Filler::Management,
            Some(Object::NextHop { ifindex, .. }) => Filler::Interface(self.ifname(*ifindex)),
        }
    }

    /// The source of routes that name an object.
    pub(super) fn object_source(&mut self, id: u32) -> SourceId {
        if let Some(source) = self.sources.find_object(id) {
            return source;
        }
        let state = self.state_of_object(id);
        self.sources.insert(What::Object(id), state)
    }

    /// An interface has another name: rows that name it follow.
    pub(super) fn link_changed(&mut self, ifindex: u32) {
        let hops = self.sources.hops_by(ifindex);
        let states = hops.into_iter().map(|(source, hops)| (source, self.state_of_hops(&hops)));
        let labelled = self.sources.labelled_by(ifindex);
        let labelled = labelled.iter().map(|(source, hops)| (*source, self.state_of_labelled(hops, true)));
        let others = self.sources.others_by(ifindex).into_iter();
        let others = others.map(|source| (source, self.state_of(self.sources.what(source))));
        let others = others.filter(|(_, state)| *state != State::Waiting);
        let states = states.chain(labelled).chain(others).collect();
        self.replace(states);
        self.labels_follow(ifindex);
        self.pic_contexts_follow(ifindex);
        let next_hops = self.objects.map.iter().filter(|(_, object)| match object {
            Object::NextHop { ifindex: by, .. } => *by == ifindex,
            _ => false,
        });
        let mut next_hops: Vec<u32> = next_hops.map(|(id, _)| *id).collect();
        next_hops.sort_unstable();
        next_hops.into_iter().for_each(|id| self.object_changed(id));
    }

    /// Hands over the groups that changed: what routes may name goes before them, what is gone after them.
    pub(super) fn take_groups(&mut self, out: &mut FpmOut) {
        for id in std::mem::take(&mut self.objects.changed) {
            let Some(row) = self.objects.rows.get_mut(&id) else { continue };
            row.changed = false;
            let key = id.to_string().into();
            let old = std::mem::replace(&mut row.written, row.wanted.clone());
            match (old, &row.wanted) {
                (old, Some(new)) if old.as_ref() != Some(new) => {
                    let reshaped = old.is_some_and(|old| !old.same_shape(new));
                    let row = Some(NextHopGroupRow { via: new.clone() });
                    out.groups.push(Change { key, row, reshaped });
                }
                (Some(_), None) => out.old_groups.push(Change::del(key)),
                _ => {
                    self.counters.unchanged += 1;
                    continue;
                }
            }
            self.counters.written += 1;
            if row.wanted.is_none() {
                self.objects.rows.remove(&id);
            }
        }
    }

    /// Hands over every group's row.
    pub(super) fn groups_again(&mut self, out: &mut FpmOut) {
        let mut rows: Vec<_> =
            self.objects.rows.iter().filter_map(|(id, row)| Some((*id, row.written.clone()?))).collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        for (id, via) in rows {
            self.counters.written += 1;
            out.groups.push(Change {
                key: id.to_string().into(),
                row: Some(NextHopGroupRow { via }),
                reshaped: true,
            });
        }
    }

    /// Whether APPL_DB shall have a row of this index; indexes that are not numbers are another program's.
    pub(super) fn has_group_row(&self, key: &<NextHopGroupRow as Row>::Key) -> bool {
        key.parse::<u32>()
            .map_or(true, |id| self.objects.rows.get(&id).is_some_and(|row| row.wanted.is_some()))
    }

    /// [`Fpmsyncd::delete_surplus_route`], for a group.
    pub fn delete_surplus_group(&self, key: <NextHopGroupRow as Row>::Key, out: &mut FpmOut) {
        if !self.has_group_row(&key) {
            out.old_groups.push(Change::del(key));
        }
    }

    /// Takes in a row of `NEXTHOP_GROUP_TABLE` that APPL_DB has from before; see [`Fpmsyncd::known_route`]. Indexes
    /// that are not numbers are another program's.
    pub fn known_group(&mut self, key: &<NextHopGroupRow as Row>::Key, row: NextHopGroupRow, queued: bool) {
        if let Ok(id) = key.parse() {
            self.objects.known(id, row.via, queued);
            self.session.stale(self.now_ms);
        }
    }
}
