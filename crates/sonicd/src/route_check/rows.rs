//! What APPL_DB asks for: its rows of routes and labels, and what these stand on.

use super::Error;
use super::leads::{Dest, Leads, Way};
use super::page::{Hashes, Lanes, What};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_swss::Row;
use ribtide_swss::orch::parsed_row::{self, ParsedRow};
use ribtide_swss::row::{
    Hop, IntfKey, IntfRow, LabelKey, LabelRouteRow, Name, NeighRow, NextHopGroupRow, RouteKey, RouteRow, Via,
    VrfRow,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What a row asks for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Wanted {
    Leads(Leads),
    /// An interface alone.
    Direct(Name),
    /// What NEXTHOP_GROUP_TABLE has at this index.
    Group(Name),
    /// Nothing of the switch: it leads to the router itself, or to its management port.
    Local,
    /// What orchagent does not take: why.
    Refused(String),
    /// Of tunnels and the like: not compared.
    Unread,
}

impl Wanted {
    fn of(via: &Via) -> Wanted {
        match parsed_row::parse_route(via) {
            ParsedRow::Blackhole => Wanted::Leads(Leads::Drop),
            ParsedRow::Direct(name) => Wanted::Direct(name),
            ParsedRow::Hops(hops) => Wanted::Leads(through(&hops)),
            ParsedRow::Index(name) => Wanted::Group(name),
            ParsedRow::Local => Wanted::Local,
            ParsedRow::Refused(_) if parsed_row::unsupported(via).is_some() => Wanted::Unread,
            ParsedRow::Refused(why) => Wanted::Refused(why),
        }
    }
}

/// Each next hop once, as orchagent has it, with the least of its weights.
fn through(hops: &[Hop]) -> Leads {
    let mut ways: Vec<Way> = (hops.iter())
        .map(|hop| Way {
            gateway: Some(parsed_row::gateway(hop)).filter(|ip| !ip.is_unspecified()),
            interface: Some(hop.ifname.clone()),
            labels: hop.labels.clone(),
            weight: hop.weight,
        })
        .collect();
    ways.sort_unstable();
    ways.dedup_by(|b, a| (a.gateway, &a.interface, &a.labels) == (b.gateway, &b.interface, &b.labels));
    Leads::through(ways)
}

/// What rows ask for, each kind once, and how many labels are taken off.
#[derive(Default)]
pub(super) struct Wishes {
    numbers: Map<Via, u32>,
    pub(super) all: Vec<(Wanted, u8)>,
}

impl Wishes {
    fn number(&mut self, via: &Via) -> u32 {
        if let Some(number) = self.numbers.get(via) {
            return *number;
        }
        let number = self.all.len() as u32;
        let wish = match parsed_row::parse_pop(via) {
            Ok(pop) => (Wanted::of(via), pop),
            Err(why) => (Wanted::Refused(why), 1),
        };
        self.all.push(wish);
        self.numbers.insert(via.clone(), number);
        number
    }
}

/// An interface of INTF_TABLE.
#[derive(Default)]
struct Interface {
    vrf: Option<Name>,
    addresses: Vec<(IpAddr, u8)>,
}

/// What routes stand on.
#[derive(Default)]
pub(super) struct Ground {
    interfaces: Map<Name, Interface>,
    groups: Map<Name, Wanted>,
    /// The interface of each neighbour; none: it has several.
    pub(super) neighbors: Map<IpAddr, Option<Name>>,
    /// Each VRF that there is beside the default one.
    pub(super) vrfs: BTreeSet<Name>,
}

impl Ground {
    /// Reads it.
    pub(super) fn read(appl: &mut Lanes) -> Result<Ground, Error> {
        let mut ground = Ground::default();
        let tables = [IntfRow::TABLE, VrfRow::TABLE, NeighRow::TABLE, NextHopGroupRow::TABLE];
        let tables = tables.map(|table| appl.key(table, ""));
        let [interfaces, vrfs, neighbors, groups] = &tables;
        // Of all tables few are called so, and no table of routes.
        appl.few("[IVN]*_TABLE:*", &tables, |name, fields| {
            if let Some((key, row)) = row::<IntfRow>(name, interfaces, fields) {
                let interface = ground.interfaces.entry(key.ifname().clone()).or_default();
                match key {
                    IntfKey::Interface(_) => {
                        interface.vrf = row.vrf_name.filter(|name| !name.is_empty());
                        ground.vrfs.extend(interface.vrf.clone());
                    }
                    IntfKey::Address(_, ip, len) => interface.addresses.push((ip, len)),
                }
            } else if let Some((name, _)) = row::<VrfRow>(name, vrfs, fields) {
                ground.vrfs.insert(name);
            } else if let Some((key, _)) = row::<NeighRow>(name, neighbors, fields) {
                let at = ground.neighbors.entry(key.ip).or_insert_with(|| Some(key.ifname.clone()));
                if at.as_ref() != Some(&key.ifname) {
                    *at = None;
                }
            } else if let Some((name, row)) = row::<NextHopGroupRow>(name, groups, fields) {
                let wanted = match parsed_row::parse_group(&row.via) {
                    Ok(hops) => Wanted::Leads(through(&hops)),
                    Err(_) if parsed_row::unsupported(&row.via).is_some() => Wanted::Unread,
                    Err(why) => Wanted::Refused(why),
                };
                ground.groups.insert(name, wanted);
            }
        })?;
        Ok(ground)
    }

    /// The VRF of an interface, where it is not the default one.
    pub(super) fn vrf_of(&self, interface: &str) -> Option<&Name> {
        self.interfaces.get(interface)?.vrf.as_ref()
    }

    /// What a group is made of, if it is there.
    pub(super) fn group(&self, index: &str) -> Option<&Wanted> {
        self.groups.get(index)
    }

    /// Whether this is an address of the router.
    pub(super) fn owns(&self, vrf: Option<&Name>, prefix: AnyPrefix) -> bool {
        let mut in_vrf = self.interfaces.values().filter(|interface| interface.vrf.as_ref() == vrf);
        in_vrf.any(|interface| interface.addresses.iter().any(|(ip, _)| AnyPrefix::host(*ip) == prefix))
    }

    /// Whether orchagent leaves the row of a route to an interface alone: no interface of the switch, addresses that are good
    /// on a link only, or an address of a network that the interface has anyway.
    pub(super) fn leaves_alone(&self, interface: &str, prefix: AnyPrefix) -> bool {
        let Some(interface) = self.interfaces.get(interface) else { return true };
        let host = AnyPrefix::host(prefix.addr()) == prefix;
        let mut networks = interface.addresses.iter().filter_map(|(ip, len)| AnyPrefix::from_addr(*ip, *len));
        !parsed_row::is_global(prefix) || host && networks.any(|network| network.contains(prefix.addr()))
    }
}

/// A row of the table whose keys begin so. What SONiC's tables have beside what the route path reads of them is passed over.
fn row<R: Row>(name: &str, table: &str, fields: &[(String, String)]) -> Option<(R::Key, R)> {
    let mut pairs = fields.iter().map(|(field, value)| (field.as_str(), value.as_str()));
    Some((R::parse_key(name.strip_prefix(table)?).ok()?, R::from_fields(&mut pairs).ok()?))
}

/// Names of VRFs, numbered; the default one is 0.
pub(super) struct Vrfs(Vec<Option<Name>>);

impl Default for Vrfs {
    fn default() -> Vrfs {
        Vrfs(vec![None])
    }
}

impl Vrfs {
    pub(super) fn number(&mut self, name: Option<&Name>) -> u32 {
        let at = self.0.iter().position(|known| known.as_ref() == name);
        at.unwrap_or_else(|| {
            self.0.push(name.cloned());
            self.0.len() - 1
        }) as u32
    }

    /// None: the default one.
    pub(super) fn name(&self, number: u32) -> Option<&Name> {
        self.0.get(number as usize)?.as_ref()
    }

    pub(super) fn shown(&self, number: u32) -> String {
        self.name(number).map_or("default", |name| name).to_owned()
    }
}

/// Rows of routes and labels, read.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) vrfs: Vrfs,
    pub(super) wishes: Wishes,
    /// Raw keys: those whose text is not libnl's.
    raw_keys: Map<Dest, Name>,
}

impl Rows {
    /// Without what rows ask for.
    pub(super) fn without_wishes(self) -> Rows {
        Rows { wishes: Wishes::default(), ..self }
    }

    pub(super) fn dest(&mut self, key: &str) -> Option<Dest> {
        let Ok(RouteKey::Route { vrf, prefix, raw_key }) = RouteRow::parse_key(key) else { return None };
        let dest = Dest::Route(self.vrfs.number(vrf.as_ref()), prefix);
        match raw_key {
            Some(raw_key) => drop(self.raw_keys.insert(dest, raw_key)),
            None => drop(self.raw_keys.remove(&dest)),
        }
        Some(dest)
    }

    pub(super) fn label(key: &str) -> Option<Dest> {
        match LabelRouteRow::parse_key(key) {
            Ok(LabelKey::Label(label)) => Some(Dest::Label(label)),
            _ => None,
        }
    }

    /// The key of a row of this.
    pub(super) fn key(&self, appl: &Lanes, dest: Dest) -> String {
        let table = if matches!(dest, Dest::Label(_)) { LabelRouteRow::TABLE } else { RouteRow::TABLE };
        let mut key = appl.key(table, "");
        match (dest, self.raw_keys.get(&dest)) {
            (_, Some(raw_key)) => key.push_str(raw_key),
            (Dest::Label(label), _) => LabelRouteRow::key_text(&LabelKey::Label(label), &mut key),
            (Dest::Route(vrf, prefix), _) => {
                RouteRow::key_text(&RouteKey::new(self.vrfs.name(vrf).cloned(), prefix), &mut key);
            }
        }
        key
    }

    /// The number of what a row asks for; none: there is no row.
    pub(super) fn wish(&mut self, dest: Dest, fields: &[(String, String)]) -> Option<u32> {
        let mut pairs = fields.iter().map(|(field, value)| (field.as_str(), value.as_str()));
        let via = match dest {
            _ if fields.is_empty() => return None,
            Dest::Route(..) => RouteRow::from_fields(&mut pairs).ok()?.via,
            Dest::Label(_) => LabelRouteRow::from_fields(&mut pairs).ok()?.via,
        };
        Some(self.wishes.number(&via))
    }

    /// What matches the keys of all rows, and of some of what waits to be one.
    pub(super) const PATTERN: &str = "*ROUTE_TABLE:*";

    /// What the keys of rows begin with.
    pub(super) fn tables(appl: &Lanes) -> [String; 2] {
        [RouteRow::TABLE, LabelRouteRow::TABLE].map(|table| appl.key(table, ""))
    }

    /// Whose row has this key.
    pub(super) fn of(&mut self, [routes, labels]: &[String; 2], key: &str) -> Option<Dest> {
        match (key.strip_prefix(&**routes), key.strip_prefix(&**labels)) {
            (Some(name), _) => self.dest(name),
            (None, Some(name)) => Rows::label(name),
            (None, None) => None,
        }
    }

    /// Some routes of a VRF.
    pub(super) fn sample(
        &mut self,
        appl: &mut Lanes,
        vrf: u32,
        at_most: usize,
    ) -> Result<Vec<AnyPrefix>, Error> {
        let Some(name) = self.vrfs.name(vrf).cloned() else { return Ok(Vec::new()) };
        let (table, of_vrf) = (appl.key(RouteRow::TABLE, ""), appl.key(RouteRow::TABLE, &format!("{name}:")));
        let tables = std::slice::from_ref(&of_vrf);
        let mut hashes = Hashes::begin(appl, &format!("{of_vrf}*"), tables, What::Name);
        let mut sample = Vec::new();
        loop {
            let more = hashes.step(|key, _| {
                if let Some(Dest::Route(of, prefix)) =
                    key.strip_prefix(&table).and_then(|name| self.dest(name))
                    && of == vrf
                {
                    sample.push(prefix);
                }
            })?;
            if !more || sample.len() >= at_most {
                return Ok(sample);
            }
        }
    }

    /// What waits for orchagent to take it.
    pub(super) fn queued(&mut self, appl: &mut Lanes) -> Result<Set<Dest>, Error> {
        let keys = appl.query(&["SMEMBERS", "ROUTE_TABLE_KEY_SET"])?.into_texts();
        let mut queued: Set<Dest> = keys.iter().filter_map(|key| self.dest(key)).collect();
        let keys = appl.query(&["SMEMBERS", "LABEL_ROUTE_TABLE_KEY_SET"])?.into_texts();
        queued.extend(keys.iter().filter_map(|key| Rows::label(key)));
        Ok(queued)
    }
}
