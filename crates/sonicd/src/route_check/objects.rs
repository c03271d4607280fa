//! The contents of ASIC_DB: entries of routes and labels, and their objects.

use super::Error;
use super::forwarding::{Dest, Forwarding, NextHop};
use super::page::Connections;
use super::rows::Dependencies;
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_swss::row::{LabelOp, LabelStack, Name};
use ribtide_swss::sai::{
    Attr, InsegEntry, ObjectId, ObjectType, Oid, OutsegType, PacketAction, RouteEntry, SWITCH, text,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(super) const ASIC_STATE: &str = "ASIC_STATE";

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Entry {
    action: PacketAction,
    to: Oid,
    /// The number of labels to pop; `None` of a route.
    pub(super) pop: Option<u8>,
}

impl Entry {
    fn of(mut values: impl Iterator<Item = Attr>, is_label: bool) -> Entry {
        let entry = Entry { action: PacketAction::Forward, to: Oid::NULL, pop: is_label.then_some(0) };
        values.by_ref().fold(entry, |entry, attr| match attr {
            Attr::RoutePacketAction(action) | Attr::InsegPacketAction(action) => Entry { action, ..entry },
            Attr::RouteNextHop(to) | Attr::InsegNextHop(to) => Entry { to, ..entry },
            Attr::InsegPop(pop) => Entry { pop: Some(pop), ..entry },
            _ => entry,
        })
    }

    /// Whether it forwards packets.
    pub(super) fn forwards(&self) -> bool {
        self.action == PacketAction::Forward && !self.to.is_null()
    }
}

/// A next hop.
struct Hop {
    ip: Option<IpAddr>,
    rif: Oid,
    labels: Option<LabelStack>,
}

/// The numbered objects of ASIC_DB.
#[derive(Default)]
pub(super) struct Objects {
    /// The default virtual router.
    pub(super) router: Oid,
    cpu: Oid,
    /// Virtual routers with their ids in the switch.
    pub(super) routers: BTreeMap<Oid, Oid>,
    hops: Map<Oid, Hop>,
    groups: Set<Oid>,
    members: Map<Oid, Vec<(Oid, u32)>>,
    /// Router interfaces with their virtual router, and their name if known.
    rifs: Map<Oid, (Oid, Option<Name>)>,
}

impl Objects {
    /// The own objects of the switch that routes use.
    pub(super) fn switch(asic: &mut Connections) -> Result<Objects, Error> {
        let mut all = Objects::default();
        for (name, value) in asic.query(&["HGETALL", "HIDDEN"])?.into_pairs() {
            match Attr::read(&name, &value) {
                Some(Attr::SwitchDefaultVirtualRouter(oid)) => all.router = oid,
                Some(Attr::SwitchCpuPort(oid)) => all.cpu = oid,
                _ => {}
            }
        }
        Ok(all)
    }

    /// Reads all objects. SONiC writes the names of router interfaces into COUNTERS_DB; without
    /// that, neighbours in APPL_DB that are next hops on an interface identify it.
    pub(super) fn read(
        asic: &mut Connections,
        counters: &mut ribtide_tables::Connection,
        dependencies: &Dependencies,
    ) -> Result<Objects, Error> {
        let mut all = Objects::switch(asic)?;
        let table = asic.key(ASIC_STATE, "");
        let (mut ids, mut keys) = (Vec::new(), Vec::new());
        for (vid, rid) in asic.query(&["HGETALL", "VIDTORID"])?.into_pairs() {
            let Some(oid) = text::read_oid(&vid) else { continue };
            match oid.object_type() {
                Some(ObjectType::VirtualRouter) => {
                    all.routers.insert(oid, text::read_oid(&rid).unwrap_or_default());
                }
                Some(
                    object @ (ObjectType::NextHop
                    | ObjectType::NextHopGroup
                    | ObjectType::NextHopGroupMember
                    | ObjectType::RouterInterface),
                ) => {
                    let mut key = table.clone();
                    text::write_row_key(object, &ObjectId::Oid(oid), &mut key);
                    ids.push((object, oid));
                    keys.push(key);
                }
                _ => {}
            }
        }
        let rows = asic.replies("HGETALL", &keys)?;
        for ((object, oid), row) in ids.into_iter().zip(rows) {
            let row = row.into_pairs();
            if !row.is_empty() {
                let attrs =
                    row.iter().filter_map(|(name, value)| text::read_field(name, value).ok().flatten());
                all.object(object, oid, attrs.collect());
            }
        }
        let names = counters.query(&["HGETALL", "COUNTERS_RIF_NAME_MAP"])?.into_pairs();
        all.name(&names, dependencies);
        Ok(all)
    }

    fn object(&mut self, object: ObjectType, oid: Oid, attrs: Vec<Attr>) {
        let (mut ip, mut to, mut group, mut weight, mut router) = (None, Oid::NULL, Oid::NULL, 0, Oid::NULL);
        let (mut labels, mut op) = (None, LabelOp::Push);
        for attr in attrs {
            match attr {
                Attr::NextHopIp(gateway) => ip = Some(gateway),
                Attr::NextHopRif(oid) | Attr::MemberNextHop(oid) => to = oid,
                Attr::MemberGroup(oid) => group = oid,
                Attr::MemberWeight(share) => weight = share,
                Attr::RifVirtualRouter(oid) => router = oid,
                Attr::NextHopLabels(stack) => labels = Some(stack),
                Attr::NextHopOutseg(OutsegType::Swap) => op = LabelOp::Swap,
                _ => {}
            }
        }
        match object {
            ObjectType::NextHop => {
                let labels = labels.map(|labels| LabelStack { op, labels: labels.iter().copied().collect() });
                self.hops.insert(oid, Hop { ip, rif: to, labels });
            }
            ObjectType::NextHopGroup => drop(self.groups.insert(oid)),
            ObjectType::NextHopGroupMember => self.members.entry(group).or_default().push((to, weight)),
            _ => drop(self.rifs.insert(oid, (router, None))),
        }
    }

    /// Sets the names of router interfaces.
    fn name(&mut self, names: &[(String, String)], dependencies: &Dependencies) {
        for (name, oid) in names {
            if let Some((_, place)) = text::read_oid(oid).and_then(|oid| self.rifs.get_mut(&oid)) {
                *place = Some(name.as_str().into());
            }
        }
        let mut votes: Map<Oid, BTreeMap<&Name, usize>> = Map::default();
        for hop in self.hops.values() {
            let neighbor = hop.ip.and_then(|ip| dependencies.neighbors.get(&ip)?.as_ref());
            if let Some(name) = neighbor {
                *votes.entry(hop.rif).or_default().entry(name).or_default() += 1;
            }
        }
        for (rif, (_, place)) in &mut self.rifs {
            // The majority decides, so a next hop on the wrong interface is still found.
            let most = votes.get(rif).into_iter().flatten().max_by_key(|(_, votes)| **votes);
            *place = place.take().or_else(|| most.map(|(name, _)| (*name).clone()));
        }
    }

    /// The virtual routers of VRFs by their interfaces.
    pub(super) fn routers_by_interface<'a>(
        &'a self,
        dependencies: &'a Dependencies,
    ) -> impl Iterator<Item = (&'a Name, Oid)> {
        self.rifs.values().filter_map(|(router, name)| Some((dependencies.vrf_of(name.as_ref()?)?, *router)))
    }

    /// The forwarding of an entry.
    ///
    /// # Errors
    /// A sentence: an object is missing.
    pub(super) fn forwarding(&self, entry: Entry) -> Result<Forwarding, String> {
        match entry.action {
            PacketAction::Drop => return Ok(Forwarding::Drop),
            PacketAction::Trap => return Ok(Forwarding::Cpu),
            PacketAction::Forward if entry.to.is_null() => return Ok(Forwarding::Drop),
            PacketAction::Forward if entry.to == self.cpu => return Ok(Forwarding::Cpu),
            PacketAction::Forward => {}
        }
        if let Some((_, name)) = self.rifs.get(&entry.to) {
            let hop = NextHop { gateway: None, interface: name.clone(), labels: None, weight: 1 };
            return Ok(Forwarding::through(vec![hop]));
        }
        let members = match self.members.get(&entry.to) {
            _ if !self.groups.contains(&entry.to) => &[(entry.to, 1)][..],
            members => members.map_or(&[][..], Vec::as_slice),
        };
        let hop = |(oid, weight): &(Oid, u32)| {
            let absent = || format!("its entry resolves to {oid}, which ASIC_DB does not have");
            let hop = self.hops.get(oid).ok_or_else(absent)?;
            let interface = self.rifs.get(&hop.rif).and_then(|(_, name)| name.clone());
            Ok(NextHop { gateway: hop.ip, interface, labels: hop.labels.clone(), weight: *weight })
        };
        members.iter().map(hop).collect::<Result<_, String>>().map(Forwarding::through)
    }

    /// A pattern that matches the keys of all entries, and few others.
    pub(super) fn pattern(table: &str) -> String {
        format!("{table}*_ENTRY:*")
    }

    /// The prefixes of keys of entries.
    pub(super) fn tables(table: &str) -> [String; 2] {
        [ObjectType::RouteEntry, ObjectType::InsegEntry].map(|object| format!("{table}{}:", object.name()))
    }

    /// The id of the entry with this key.
    pub(super) fn id(table: &str, key: &str) -> Option<ObjectId> {
        key.strip_prefix(table).and_then(|name| text::read_row_key(name).ok()).map(|(_, id)| id)
    }

    /// The key of the entry of this id.
    pub(super) fn key(asic: &Connections, id: &ObjectId) -> String {
        let mut key = asic.key(ASIC_STATE, "");
        let object = match id {
            ObjectId::Inseg(_) => ObjectType::InsegEntry,
            _ => ObjectType::RouteEntry,
        };
        text::write_row_key(object, id, &mut key);
        key
    }

    /// The entries of these ids.
    pub(super) fn entries_of(asic: &mut Connections, ids: &[ObjectId]) -> Result<Vec<Option<Entry>>, Error> {
        let keys: Vec<String> = ids.iter().map(|id| Objects::key(asic, id)).collect();
        let replies = asic.replies("HGETALL", &keys)?;
        let is_label = |id: &ObjectId| matches!(id, ObjectId::Inseg(_));
        Ok(ids.iter().zip(replies).map(|(id, reply)| entry(&reply.into_pairs(), is_label(id))).collect())
    }

    /// The virtual router that has most of these routes.
    pub(super) fn router_with(
        asic: &mut Connections,
        routers: &[Oid],
        sample: &[AnyPrefix],
    ) -> Result<Option<Oid>, Error> {
        let mut most = (0, None);
        for vr in routers {
            let id = |dest: &AnyPrefix| ObjectId::from(RouteEntry { switch: SWITCH, vr: *vr, dest: *dest });
            let ids: Vec<ObjectId> = sample.iter().map(id).collect();
            let there = Objects::entries_of(asic, &ids)?.into_iter().flatten().count();
            if there > most.0 {
                most = (there, Some(*vr));
            }
        }
        Ok(most.1)
    }
}

/// The id of the entry of a destination in the virtual router of its VRF.
pub(super) fn id(dest: Dest, vr: Oid) -> ObjectId {
    match dest {
        Dest::Route(_, dest) => RouteEntry { switch: SWITCH, vr, dest }.into(),
        Dest::Label(label) => InsegEntry { switch: SWITCH, label }.into(),
    }
}

/// Parses the fields of an entry of a route or a label; `None` without any. An entry always has a field: `NULL` without
/// attributes.
pub(super) fn entry(fields: &[(String, String)], is_label: bool) -> Option<Entry> {
    let attrs = fields.iter().filter_map(|(name, value)| text::read_field(name, value).ok().flatten());
    (!fields.is_empty()).then(|| Entry::of(attrs, is_label))
}
