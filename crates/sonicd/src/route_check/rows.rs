//! The contents of APPL_DB: rows of routes and labels, and what these depend on.

use super::Error;
use super::forwarding::{Dest, Forwarding, NextHop};
use super::page::{Connections, Hashes, What};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_swss::Row;
use ribtide_swss::orch::parsed_row::{self, ParsedRow};
use ribtide_swss::row::{
    Field, Hop, IntfKey, IntfRow, LabelKey, LabelRouteRow, Name, NeighRow, NextHopGroupRow, RouteKey,
    RouteRow, Via, VrfRow,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The expected forwarding of a row.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expected {
    Forwarding(Forwarding),
    /// The interface itself.
    Direct(Name),
    /// The group of this index in NEXTHOP_GROUP_TABLE.
    Group(Name),
    /// Nothing in the switch: a route to the router itself, or to its management port.
    Local,
    /// Refused by orchagent, with the reason.
    Refused(String),
    /// Tunnels and the like, which are not compared.
    Unread,
}

/// What a row says, before the rules of orchagent.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Written {
    Forwarding(Forwarding),
    /// The group of this index in NEXTHOP_GROUP_TABLE.
    Group(Name),
    /// The text that is no next hop.
    Unreadable(String),
}

impl Written {
    fn of(via: &Via) -> Written {
        let index = via.get(Field::NexthopGroup);
        match via.parse_hops() {
            _ if via.is_blackhole() => Written::Forwarding(Forwarding::Drop),
            _ if !index.is_empty() => Written::Group(index.into()),
            Ok(hops) => Written::Forwarding(through(next_hops(&hops))),
            Err(why) => Written::Unreadable(why.what),
        }
    }
}

/// A distinct row, without its key.
pub(super) struct Meaning {
    pub(super) expected: Expected,
    /// The number of labels to pop.
    pub(super) pop: u8,
    pub(super) written: Written,
    /// Whether it names a protocol, as each row of fpmsyncd does.
    pub(super) has_protocol: bool,
}

impl Expected {
    fn of(via: &Via) -> Expected {
        match parsed_row::parse_route(via) {
            ParsedRow::Blackhole => Expected::Forwarding(Forwarding::Drop),
            ParsedRow::Direct(name) => Expected::Direct(name),
            ParsedRow::Hops(hops) => Expected::Forwarding(through(next_hops(&hops))),
            ParsedRow::Index(name) => Expected::Group(name),
            ParsedRow::Local => Expected::Local,
            ParsedRow::Refused(_) if parsed_row::unsupported(via).is_some() => Expected::Unread,
            ParsedRow::Refused(why) => Expected::Refused(why),
        }
    }
}

fn next_hops(hops: &[Hop]) -> Vec<NextHop> {
    let next_hop = |hop: &Hop| NextHop {
        gateway: Some(parsed_row::gateway(hop)).filter(|ip| !ip.is_unspecified()),
        interface: Some(hop.ifname.clone()),
        labels: hop.labels.clone(),
        weight: hop.weight,
    };
    hops.iter().map(next_hop).collect()
}

/// Each next hop once, as in orchagent, with its smallest weight.
pub(super) fn through(mut hops: Vec<NextHop>) -> Forwarding {
    hops.sort_unstable();
    hops.dedup_by(|b, a| (a.gateway, &a.interface, &a.labels) == (b.gateway, &b.interface, &b.labels));
    Forwarding::through(hops)
}

/// Distinct rows.
#[derive(Default)]
pub(super) struct ExpectedSet {
    /// Without and with a protocol.
    numbers: [Map<Via, u32>; 2],
    pub(super) all: Vec<Meaning>,
}

impl ExpectedSet {
    fn number(&mut self, via: &Via, has_protocol: bool) -> u32 {
        let numbers = &mut self.numbers[usize::from(has_protocol)];
        if let Some(number) = numbers.get(via) {
            return *number;
        }
        let number = self.all.len() as u32;
        let (expected, pop) = match parsed_row::parse_pop(via) {
            Ok(pop) => (Expected::of(via), pop),
            Err(why) => (Expected::Refused(why), 1),
        };
        self.all.push(Meaning { expected, pop, written: Written::of(via), has_protocol });
        numbers.insert(via.clone(), number);
        number
    }
}

/// An interface of INTF_TABLE.
#[derive(Default)]
struct Interface {
    vrf: Option<Name>,
    addresses: Vec<(IpAddr, u8)>,
}

/// What routes depend on.
#[derive(Default)]
pub(super) struct Dependencies {
    interfaces: Map<Name, Interface>,
    groups: Map<Name, (Expected, Written)>,
    /// The interface of each neighbour; `None` if it has several.
    pub(super) neighbors: Map<IpAddr, Option<Name>>,
    /// The VRFs beside the default one.
    pub(super) vrfs: BTreeSet<Name>,
}

impl Dependencies {
    /// Reads these tables.
    pub(super) fn read(appl: &mut Connections) -> Result<Dependencies, Error> {
        let mut dependencies = Dependencies::default();
        let tables = [IntfRow::TABLE, VrfRow::TABLE, NeighRow::TABLE, NextHopGroupRow::TABLE];
        let tables = tables.map(|table| appl.key(table, ""));
        let [interfaces, vrfs, neighbors, groups] = &tables;
        // Few tables match this pattern, and no table of routes.
        appl.scan_rare("[IVN]*_TABLE:*", &tables, |name, fields| {
            if let Some((key, row)) = row::<IntfRow>(name, interfaces, fields) {
                let interface = dependencies.interfaces.entry(key.ifname().clone()).or_default();
                match key {
                    IntfKey::Interface(_) => {
                        interface.vrf = row.vrf_name.filter(|name| !name.is_empty());
                        dependencies.vrfs.extend(interface.vrf.clone());
                    }
                    IntfKey::Address(_, ip, len) => interface.addresses.push((ip, len)),
                }
            } else if let Some((name, _)) = row::<VrfRow>(name, vrfs, fields) {
                dependencies.vrfs.insert(name);
            } else if let Some((key, _)) = row::<NeighRow>(name, neighbors, fields) {
                let at = dependencies.neighbors.entry(key.ip).or_insert_with(|| Some(key.ifname.clone()));
                if at.as_ref() != Some(&key.ifname) {
                    *at = None;
                }
            } else if let Some((name, row)) = row::<NextHopGroupRow>(name, groups, fields) {
                dependencies.add_group(name, &row.via);
            }
        })?;
        Ok(dependencies)
    }

    pub(super) fn add_group(&mut self, name: Name, via: &Via) {
        let expected = match parsed_row::parse_group(via) {
            Ok(hops) => Expected::Forwarding(through(next_hops(&hops))),
            Err(_) if parsed_row::unsupported(via).is_some() => Expected::Unread,
            Err(why) => Expected::Refused(why),
        };
        self.groups.insert(name, (expected, Written::of(via)));
    }

    /// The VRF of an interface, unless it is the default one.
    pub(super) fn vrf_of(&self, interface: &str) -> Option<&Name> {
        self.interfaces.get(interface)?.vrf.as_ref()
    }

    /// The content of a group, if it exists.
    pub(super) fn group(&self, index: &str) -> Option<&Expected> {
        self.groups.get(index).map(|(expected, _)| expected)
    }

    /// The content of a group's row, if it exists.
    pub(super) fn written_group(&self, index: &str) -> Option<&Written> {
        self.groups.get(index).map(|(_, written)| written)
    }

    /// Whether it is an address of the router.
    pub(super) fn owns(&self, vrf: Option<&Name>, prefix: AnyPrefix) -> bool {
        let mut in_vrf = self.interfaces.values().filter(|interface| interface.vrf.as_ref() == vrf);
        in_vrf.any(|interface| interface.addresses.iter().any(|(ip, _)| AnyPrefix::host(*ip) == prefix))
    }

    /// Whether orchagent ignores the row of a route to an interface: no interface of the switch, a
    /// link-local prefix, or a subnet of the interface itself.
    pub(super) fn leaves_alone(&self, interface: &str, prefix: AnyPrefix) -> bool {
        let Some(interface) = self.interfaces.get(interface) else { return true };
        let host = AnyPrefix::host(prefix.addr()) == prefix;
        let mut networks = interface.addresses.iter().filter_map(|(ip, len)| AnyPrefix::from_addr(*ip, *len));
        !parsed_row::is_global(prefix) || host && networks.any(|network| network.contains(prefix.addr()))
    }
}

/// A row of the table with this prefix. Fields that the route path does not use are ignored.
fn row<R: Row>(name: &str, table: &str, fields: &[(String, String)]) -> Option<(R::Key, R)> {
    let mut pairs = fields.iter().map(|(field, value)| (field.as_str(), value.as_str()));
    Some((R::parse_key(name.strip_prefix(table)?).ok()?, R::from_fields(&mut pairs).ok()?))
}

/// Numbers of VRFs; the default one is 0.
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

    /// `None`: the default one.
    pub(super) fn name(&self, number: u32) -> Option<&Name> {
        self.0.get(number as usize)?.as_ref()
    }

    pub(super) fn shown(&self, number: u32) -> String {
        self.name(number).map_or("default", |name| name).to_owned()
    }
}

/// Rows of routes and labels.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) vrfs: Vrfs,
    pub(super) expected_set: ExpectedSet,
    /// Raw keys that libnl would format differently.
    raw_keys: Map<Dest, Name>,
}

impl Rows {
    /// Drops the expected forwardings.
    pub(super) fn without_expected(self) -> Rows {
        Rows { expected_set: ExpectedSet::default(), ..self }
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

    /// The key of the row of a destination.
    pub(super) fn key(&self, appl: &Connections, dest: Dest) -> String {
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

    /// The index of the expected forwarding of a row; `None` without a row.
    pub(super) fn expected_index(&mut self, dest: Dest, fields: &[(String, String)]) -> Option<u32> {
        let mut pairs = fields.iter().map(|(field, value)| (field.as_str(), value.as_str()));
        let (via, protocol) = match dest {
            _ if fields.is_empty() => return None,
            Dest::Route(..) => {
                let row = RouteRow::from_fields(&mut pairs).ok()?;
                (row.via, row.protocol)
            }
            Dest::Label(_) => {
                let row = LabelRouteRow::from_fields(&mut pairs).ok()?;
                (row.via, row.protocol)
            }
        };
        let has_protocol = protocol.is_some_and(|protocol| !protocol.is_empty());
        Some(self.expected_set.number(&via, has_protocol))
    }

    /// A pattern that matches the keys of all rows, and of some pending ones.
    pub(super) const PATTERN: &str = "*ROUTE_TABLE:*";

    /// The prefixes of keys of rows.
    pub(super) fn tables(appl: &Connections) -> [String; 2] {
        [RouteRow::TABLE, LabelRouteRow::TABLE].map(|table| appl.key(table, ""))
    }

    /// The destination of the row with this key.
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
        appl: &mut Connections,
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

    /// Destinations that wait for orchagent.
    pub(super) fn queued(&mut self, appl: &mut Connections) -> Result<Set<Dest>, Error> {
        let keys = appl.query(&["SMEMBERS", "ROUTE_TABLE_KEY_SET"])?.into_texts();
        let mut queued: Set<Dest> = keys.iter().filter_map(|key| self.dest(key)).collect();
        let keys = appl.query(&["SMEMBERS", "LABEL_ROUTE_TABLE_KEY_SET"])?.into_texts();
        queued.extend(keys.iter().filter_map(|key| Rows::label(key)));
        Ok(queued)
    }
}
