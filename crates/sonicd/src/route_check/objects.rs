//! What ASIC_DB says that the switch was told: entries of routes and labels, and the objects that these lead to.

use super::Error;
use super::leads::{Dest, Leads, Way};
use super::page::Lanes;
use super::rows::Ground;
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_swss::row::{LabelOp, LabelStack, Name};
use ribtide_swss::sai::{
    Attr, InsegEntry, ObjectId, ObjectType, Oid, OutsegType, PacketAction, RouteEntry, SWITCH, text,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(super) const ASIC_STATE: &str = "ASIC_STATE";

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Entry {
    action: PacketAction,
    to: Oid,
    /// How many labels are taken off.
    pub(super) pop: u8,
}

impl Entry {
    fn of(mut values: impl Iterator<Item = Attr>) -> Entry {
        let entry = Entry { action: PacketAction::Forward, to: Oid::NULL, pop: 1 };
        values.by_ref().fold(entry, |entry, attr| match attr {
            Attr::RoutePacketAction(action) | Attr::InsegPacketAction(action) => Entry { action, ..entry },
            Attr::RouteNextHop(to) | Attr::InsegNextHop(to) => Entry { to, ..entry },
            Attr::InsegPop(pop) => Entry { pop, ..entry },
            _ => entry,
        })
    }

    /// Whether packets go anywhere.
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

/// The objects of ASIC_DB that have numbers.
#[derive(Default)]
pub(super) struct Objects {
    /// The default virtual router.
    pub(super) router: Oid,
    cpu: Oid,
    /// Virtual routers, and the switch's own numbers of them.
    pub(super) routers: BTreeMap<Oid, Oid>,
    hops: Map<Oid, Hop>,
    groups: Set<Oid>,
    members: Map<Oid, Vec<(Oid, u32)>>,
    /// Router interfaces: the virtual router of each, and its name where that is known.
    rifs: Map<Oid, (Oid, Option<Name>)>,
}

impl Objects {
    /// Those of the switch's own that routes are about, and no others.
    pub(super) fn switch(asic: &mut Lanes) -> Result<Objects, Error> {
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

    /// Reads them. SONiC says in COUNTERS_DB what router interfaces are called; where it does not, the neighbours of `ground`
    /// that are next hops on one tell.
    pub(super) fn read(
        asic: &mut Lanes,
        counters: &mut ribtide_tables::Connection,
        ground: &Ground,
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
        all.name(&names, ground);
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

    /// Says what router interfaces are called.
    fn name(&mut self, names: &[(String, String)], ground: &Ground) {
        for (name, oid) in names {
            if let Some((_, place)) = text::read_oid(oid).and_then(|oid| self.rifs.get_mut(&oid)) {
                *place = Some(name.as_str().into());
            }
        }
        let mut votes: Map<Oid, BTreeMap<&Name, usize>> = Map::default();
        for hop in self.hops.values() {
            let neighbor = hop.ip.and_then(|ip| ground.neighbors.get(&ip)?.as_ref());
            if let Some(name) = neighbor {
                *votes.entry(hop.rif).or_default().entry(name).or_default() += 1;
            }
        }
        for (rif, (_, place)) in &mut self.rifs {
            // Most agree: one next hop that is on the wrong interface is not to hide itself.
            let most = votes.get(rif).into_iter().flatten().max_by_key(|(_, votes)| **votes);
            *place = place.take().or_else(|| most.map(|(name, _)| (*name).clone()));
        }
    }

    /// The virtual router of a VRF that an interface of a known name is in.
    pub(super) fn routers_by_interface<'a>(
        &'a self,
        ground: &'a Ground,
    ) -> impl Iterator<Item = (&'a Name, Oid)> {
        self.rifs.values().filter_map(|(router, name)| Some((ground.vrf_of(name.as_ref()?)?, *router)))
    }

    /// Where an entry leads.
    ///
    /// # Errors
    /// A sentence: to something that is not there.
    pub(super) fn leads(&self, entry: Entry) -> Result<Leads, String> {
        match entry.action {
            PacketAction::Drop => return Ok(Leads::Drop),
            PacketAction::Trap => return Ok(Leads::Cpu),
            PacketAction::Forward if entry.to.is_null() => return Ok(Leads::Drop),
            PacketAction::Forward if entry.to == self.cpu => return Ok(Leads::Cpu),
            PacketAction::Forward => {}
        }
        if let Some((_, name)) = self.rifs.get(&entry.to) {
            let way = Way { gateway: None, interface: name.clone(), labels: None, weight: 1 };
            return Ok(Leads::through(vec![way]));
        }
        let members = match self.members.get(&entry.to) {
            _ if !self.groups.contains(&entry.to) => &[(entry.to, 1)][..],
            members => members.map_or(&[][..], Vec::as_slice),
        };
        let way = |(oid, weight): &(Oid, u32)| {
            let absent = || format!("its entry leads to {oid}, which ASIC_DB does not have");
            let hop = self.hops.get(oid).ok_or_else(absent)?;
            let interface = self.rifs.get(&hop.rif).and_then(|(_, name)| name.clone());
            Ok(Way { gateway: hop.ip, interface, labels: hop.labels.clone(), weight: *weight })
        };
        members.iter().map(way).collect::<Result<_, String>>().map(Leads::through)
    }

    /// What matches the keys of all entries, and of few others.
    pub(super) fn pattern(table: &str) -> String {
        format!("{table}*_ENTRY:*")
    }

    /// What the keys of entries begin with.
    pub(super) fn tables(table: &str) -> [String; 2] {
        [ObjectType::RouteEntry, ObjectType::InsegEntry].map(|object| format!("{table}{}:", object.name()))
    }

    /// What the entry of this key is of.
    pub(super) fn id(table: &str, key: &str) -> Option<ObjectId> {
        key.strip_prefix(table).and_then(|name| text::read_row_key(name).ok()).map(|(_, id)| id)
    }

    /// The key of the entry of this.
    pub(super) fn key(asic: &Lanes, id: &ObjectId) -> String {
        let mut key = asic.key(ASIC_STATE, "");
        let object = match id {
            ObjectId::Inseg(_) => ObjectType::InsegEntry,
            _ => ObjectType::RouteEntry,
        };
        text::write_row_key(object, id, &mut key);
        key
    }

    /// The entries of these.
    pub(super) fn entries_of(asic: &mut Lanes, ids: &[ObjectId]) -> Result<Vec<Option<Entry>>, Error> {
        let keys: Vec<String> = ids.iter().map(|id| Objects::key(asic, id)).collect();
        let replies = asic.replies("HGETALL", &keys)?;
        Ok(replies.into_iter().map(|reply| entry(&reply.into_pairs())).collect())
    }

    /// Which of the virtual routers has most of these routes, if one has any.
    pub(super) fn router_with(
        asic: &mut Lanes,
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

/// What identifies the entry of this in the virtual router, which is that of its VRF.
pub(super) fn id(dest: Dest, vr: Oid) -> ObjectId {
    match dest {
        Dest::Route(_, dest) => RouteEntry { switch: SWITCH, vr, dest }.into(),
        Dest::Label(label) => InsegEntry { switch: SWITCH, label }.into(),
    }
}

/// What the fields of an entry say; none: it is not there. An entry has a field in any case: `NULL` where it says nothing.
pub(super) fn entry(fields: &[(String, String)]) -> Option<Entry> {
    let attrs = fields.iter().filter_map(|(name, value)| text::read_field(name, value).ok().flatten());
    (!fields.is_empty()).then(|| Entry::of(attrs))
}
