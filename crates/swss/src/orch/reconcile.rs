//! Comparison of orchagent's routes, labels and next-hop groups with the rows of APPL_DB, which are
//! its only source when they come through Redis. Groups always do.
//!
//! A caller reads APPL_DB in rounds: it passes the keys of other formats ([`is_other_format`],
//! [`Orch::rows_not_held`]), reads the rows of pages of what orchagent has ([`Orch::held_rows`]),
//! passes the keys that are in no page, and registers what differs ([`Orch::watch_rows`]). Then it
//! reads these rows again, and [`Orch::repair_rows`] decides:
//!
//! - A row that orchagent does not have, or has with other next hops, is given to it.
//! - A route without a row is removed only if fpmsyncd says that it does not have the row either.
//!   An APPL_DB that lost its data has no rows, and fpmsyncd writes them again.
//! - A row that fpmsyncd has otherwise is left alone: another program changed it in APPL_DB, and
//!   fpmsyncd writes it again.
//! - A row that came in between ends the watch: it is newer than what was read.
//!
//! A key has several formats: `10.0.0.1` and `10.0.0.1/32` are the same route to orchagent. fpmsyncd
//! and the kernel write the first, libnl's. A route agrees with APPL_DB when one of its rows says
//! the same. When none does, it gets the row in libnl's format if there is one, else another.
//!
//! Rows that orchagent refuses, or cannot read, are no difference: it would refuse them again.

use super::Orch;
use super::nhg_table::Meaning;
use super::objects::Objects;
use super::parsed_row::{self, ParsedRow};
use super::routes::RouteName;
use crate::fpmsyncd::{FoundRow, ProducerRow};
use crate::row::{
    Change, Hop, LabelKey, LabelRouteRow, LabelStack, Name, NextHopGroupRow, RouteKey, RouteRow, Row,
    RowName, Via,
};
use crate::syncd::Difference;
use ribtide_prefix::{AnyPrefix, Map};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// What orchagent has of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum HeldRow {
    /// No row: none came, or it was deleted.
    Nothing,
    /// Not known: its change waits for its turn or for the chip's reply, or an own address of the
    /// router came after it.
    UnderWay,
    /// A row that orchagent refused.
    Refused,
    /// A row whose route waits in the retry cache, or that an own address of the router masks.
    Waiting(Arc<Via>),
    /// A row that needs no entry in the chip.
    WithoutEntry,
    /// A row whose entry is in the chip.
    Programmed {
        /// Its next hops.
        next_hops: HeldNextHops,
        /// Of a label, how many labels its entry pops.
        pop: Option<u8>,
    },
}

/// The next hops of a row that orchagent programmed.
#[derive(Clone, PartialEq, Debug)]
pub enum HeldNextHops {
    /// The entry drops.
    Drop,
    /// An interface alone.
    Interface(Name),
    /// Next hops.
    Hops(Arc<[Hop]>),
    /// An index of NEXTHOP_GROUP_TABLE.
    Index(Name),
}

/// A next hop in the order of orchagent's groups.
type Member = (Name, IpAddr, Option<LabelStack>, u32);

/// The members that next hops are: each once. The weight of a single one has no effect.
fn members(hops: &[Hop]) -> Vec<Member> {
    let member = |hop: &Hop| (hop.ifname.clone(), parsed_row::gateway(hop), hop.labels.clone(), hop.weight);
    let mut members: Vec<Member> = hops.iter().map(member).collect();
    members.sort();
    members.dedup_by(|a, b| (&a.0, &a.1, &a.2) == (&b.0, &b.1, &b.2));
    if let [(.., weight)] = members.as_mut_slice() {
        *weight = 0;
    }
    members
}

/// A row as it was read.
struct ReadRow {
    parsed: ParsedRow,
    pop: Option<u8>,
}

impl ReadRow {
    fn of_route(via: &Via) -> ReadRow {
        ReadRow { parsed: parsed_row::parse_route(via), pop: None }
    }

    fn of_label(via: &Via) -> ReadRow {
        match parsed_row::parse_pop(via) {
            Ok(pop) => ReadRow { parsed: parsed_row::parse_route(via), pop: Some(pop) },
            Err(why) => ReadRow { parsed: ParsedRow::Refused(why), pop: None },
        }
    }

    fn of_via(name: &RowName, via: &Via) -> ReadRow {
        match name {
            RowName::Route(_) => ReadRow::of_route(via),
            RowName::Label(_) => ReadRow::of_label(via),
            RowName::Group(_) => ReadRow {
                parsed: parsed_row::parse_group(via).map_or_else(ParsedRow::Refused, ParsedRow::Hops),
                pop: None,
            },
        }
    }

    /// `None` for fields that are no row of the table.
    fn new<T: AsRef<str>>(name: &RowName, fields: &[(T, T)]) -> Option<ReadRow> {
        let mut row = ReadRow::of_via(name, &*via(name, fields)?);
        if let (RowName::Route(RouteKey::Route { prefix, .. }), ParsedRow::Direct(_)) = (name, &row.parsed)
            && !parsed_row::is_global(*prefix)
        {
            row.parsed = ParsedRow::Refused("its addresses are only good on a link".into());
        }
        Some(row)
    }

    fn is_refused(&self) -> bool {
        matches!(self.parsed, ParsedRow::Refused(_))
    }

    /// Whether both program the same.
    fn is_as(&self, other: &ReadRow) -> bool {
        let same = match (&self.parsed, &other.parsed) {
            (ParsedRow::Hops(ours), ParsedRow::Hops(theirs)) => members(ours) == members(theirs),
            (ours, theirs) => ours == theirs,
        };
        same && self.pop == other.pop
    }
}

/// The next-hop fields of a row; `None` for fields that are no row of the table.
fn via<T: AsRef<str>>(name: &RowName, fields: &[(T, T)]) -> Option<Arc<Via>> {
    let pairs = &mut fields.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
    match name {
        RowName::Route(_) => RouteRow::from_fields(pairs).ok().map(|row| row.via),
        RowName::Label(_) => LabelRouteRow::from_fields(pairs).ok().map(|row| row.via),
        RowName::Group(_) => NextHopGroupRow::from_fields(pairs).ok().map(|row| row.via),
    }
}

impl HeldRow {
    /// Whether it is known, and a row.
    pub(super) fn is_row(&self) -> bool {
        !matches!(self, HeldRow::Nothing | HeldRow::UnderWay)
    }

    /// Whether [`HeldRow::is_as`] says the same of both, of any fields.
    pub fn compares_as(&self, name: &RowName, other: &HeldRow, name_of_other: &RowName) -> bool {
        let kind = |name: &RowName| match name {
            RowName::Route(RouteKey::Route { prefix, .. }) => (0, parsed_row::is_global(*prefix)),
            RowName::Route(_) => (1, false),
            RowName::Label(_) => (2, false),
            RowName::Group(_) => (3, false),
        };
        kind(name) == kind(name_of_other) && self == other
    }

    /// Whether a row that has these fields, none without a row, needs no change of orchagent.
    pub fn is_as<T: AsRef<str>>(&self, name: &RowName, fields: &[(T, T)]) -> bool {
        if *self == HeldRow::UnderWay {
            return true;
        }
        if fields.is_empty() {
            return *self == HeldRow::Nothing;
        }
        let Some(row) = ReadRow::new(name, fields).filter(|row| !row.is_refused()) else { return true };
        match self {
            HeldRow::UnderWay => true,
            HeldRow::Nothing | HeldRow::Refused => false,
            HeldRow::Waiting(via) => ReadRow::of_via(name, via).is_as(&row),
            HeldRow::WithoutEntry => matches!(row.parsed, ParsedRow::Local | ParsedRow::Direct(_)),
            HeldRow::Programmed { next_hops, pop } => {
                *pop == row.pop
                    && match (next_hops, &row.parsed) {
                        (HeldNextHops::Drop, ParsedRow::Blackhole) => true,
                        (HeldNextHops::Interface(ours), ParsedRow::Direct(theirs))
                        | (HeldNextHops::Index(ours), ParsedRow::Index(theirs)) => ours == theirs,
                        (HeldNextHops::Hops(ours), ParsedRow::Hops(theirs)) => {
                            members(ours) == members(theirs)
                        }
                        _ => false,
                    }
            }
        }
    }
}

/// A position among the rows that orchagent has; the default is the beginning.
#[derive(Clone, Copy, Default, Debug)]
pub struct HeldCursor(u32);

/// The next hops and groups of a page, which many routes share.
#[derive(Default)]
pub(super) struct PageHops {
    groups: Map<u32, Arc<[Hop]>>,
    hops: Map<u32, Arc<[Hop]>>,
}

impl PageHops {
    /// The next hops of a group.
    pub(super) fn of_group(&mut self, group: u32, objects: &Objects) -> Arc<[Hop]> {
        self.groups.entry(group).or_insert_with(|| objects.held_group_hops(group)).clone()
    }

    /// A single next hop.
    pub(super) fn single(&mut self, hop: u32, objects: &Objects) -> Arc<[Hop]> {
        self.hops.entry(hop).or_insert_with(|| objects.held_hop(hop)).clone()
    }
}

/// What a comparison knows between two calls.
#[derive(Default)]
pub(super) struct Comparison {
    /// The suspects of which no change came, and how many keys are read of each.
    watched: Map<RowName, usize>,
    /// Keys of routes that are not in libnl's format, by that format, of this round.
    other_formats: Map<RowName, BTreeSet<Name>>,
}

impl Comparison {
    /// Ends the watch of a row that came.
    pub(super) fn end_watch(&mut self, name: impl FnOnce() -> RowName) {
        if !self.watched.is_empty() {
            self.watched.remove(&name());
        }
    }
}

/// The row of a route by its key in libnl's format.
pub(super) fn canonical(key: &RouteKey) -> RowName {
    RowName::Route(match key {
        RouteKey::Route { vrf, prefix, .. } => RouteKey::new(vrf.clone(), *prefix),
        other => other.clone(),
    })
}

/// The same of any row.
fn canonical_name(name: &RowName) -> RowName {
    match name {
        RowName::Route(key) => canonical(key),
        other => other.clone(),
    }
}

/// Whether a key of a table of APPL_DB is one that [`Orch::rows_not_held`] must know before rows are
/// compared: it is not in libnl's format, so no page of orchagent's rows has it.
pub fn is_other_format(table: &str, key: &str) -> bool {
    table == RouteRow::TABLE && RouteKey::is_other_format(key)
}

/// The rows of which fpmsyncd is asked: it has keys in libnl's format only.
pub fn producer_rows(found: &[FoundRow]) -> Vec<FoundRow> {
    let is_canonical = |(name, _): &&FoundRow| canonical_name(name) == *name;
    found.iter().filter(is_canonical).cloned().collect()
}

/// The key of a host route with its length, as other programs write it.
fn with_length(vrf: Option<&Name>, prefix: AnyPrefix) -> Option<Name> {
    (AnyPrefix::host(prefix.addr()) == prefix).then(|| match vrf {
        Some(vrf) => format!("{vrf}:{}/{}", prefix.addr(), prefix.len()).into(),
        None => format!("{}/{}", prefix.addr(), prefix.len()).into(),
    })
}

impl Objects {
    /// A single next hop as a row names it.
    fn held_hop(&self, hop: u32) -> Arc<[Hop]> {
        [self.neighbors.hop(hop, 0, &self.interfaces)].into()
    }

    /// The next hops that a group shall have, as a row names them.
    fn held_group_hops(&self, group: u32) -> Arc<[Hop]> {
        let hop = |(hop, weight): &(u32, u32)| self.neighbors.hop(*hop, *weight, &self.interfaces);
        self.groups.wanted(group).iter().map(hop).collect()
    }

    /// What orchagent has of a row of NEXTHOP_GROUP_TABLE.
    fn held_group(&self, name: &Name) -> HeldRow {
        if self.nhg_table.is_pending(name) {
            return HeldRow::UnderWay;
        }
        let hops = match self.nhg_table.meaning_of_row(name) {
            Meaning::Nothing => return HeldRow::Nothing,
            Meaning::NextHop(hop) => self.held_hop(hop),
            Meaning::Group(group) => self.held_group_hops(group),
        };
        HeldRow::Programmed { next_hops: HeldNextHops::Hops(hops), pop: None }
    }

    /// Whether a subnet of the row's interface covers the route, which therefore keeps the entry
    /// that it has.
    fn is_covered(&self, name: &RowName, row: &ReadRow) -> bool {
        let (RowName::Route(RouteKey::Route { prefix, .. }), ParsedRow::Direct(ifname)) = (name, &row.parsed)
        else {
            return false;
        };
        AnyPrefix::host(prefix.addr()) == *prefix
            && self.interfaces.find(ifname).is_some_and(|id| self.interfaces.covers(id, prefix.addr()))
    }
}

impl Orch {
    /// Begins a round. Returns whether orchagent can be compared now: not before its ports are
    /// ready, nor while a warm start describes a view.
    pub fn begin_comparison(&mut self) -> bool {
        self.comparison = Comparison::default();
        self.is_comparable()
    }

    fn is_comparable(&self) -> bool {
        self.ready() && !self.restoring()
    }

    /// Of keys of one table of APPL_DB, the rows that orchagent does not have. Notes keys that are
    /// not in libnl's format.
    pub fn rows_not_held(&mut self, table: &str, keys: &[String]) -> Vec<RowName> {
        let mut missing = Vec::new();
        if !self.is_comparable() {
            return missing;
        }
        for name in keys.iter().filter_map(|key| RowName::parse(table, key)) {
            if let RowName::Route(RouteKey::Route { raw_key: Some(raw_key), .. }) = &name {
                let keys = self.comparison.other_formats.entry(canonical_name(&name)).or_default();
                keys.insert(raw_key.clone());
            }
            if self.held_row(&name) == HeldRow::Nothing {
                missing.push(canonical_name(&name));
            }
        }
        missing
    }

    /// What orchagent has of rows, from a position on, of about `count` routes, and the next
    /// position. Rows that are under way are left out. `None` while orchagent cannot be compared.
    #[expect(clippy::type_complexity, reason = "a page and its end")]
    pub fn held_rows(
        &self,
        HeldCursor(from): HeldCursor,
        count: usize,
    ) -> Option<(Vec<(RowName, HeldRow)>, Option<HeldCursor>)> {
        if !self.is_comparable() {
            return None;
        }
        let (mut rows, mut hops) = (Vec::with_capacity(count), PageHops::default());
        let end = from.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        for at in from..end {
            let Some(row) = self.routes.held_at(at, &self.objects, &mut hops) else {
                // Groups are few.
                rows.extend(self.held_groups()?);
                return Some((rows, None));
            };
            rows.extend(row);
        }
        Some((rows, Some(HeldCursor(end))))
    }

    /// The routes that are confirmed, from a position on, of about `count` routes, and the next position: those that
    /// APPL_STATE_DB has. `None` while orchagent cannot be compared.
    pub fn confirmed_rows(
        &self,
        HeldCursor(from): HeldCursor,
        count: usize,
    ) -> Option<(Vec<RowName>, Option<HeldCursor>)> {
        if !self.is_comparable() {
            return None;
        }
        let mut keys = Vec::with_capacity(count);
        let end = from.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        for at in from..end {
            let Some(key) = self.routes.confirmed_at(at, &self.objects) else { return Some((keys, None)) };
            keys.extend(key.map(RowName::Route));
        }
        Some((keys, Some(HeldCursor(end))))
    }

    /// Whether APPL_STATE_DB should have a row of a route. `None`: it may have one or not, since a response is
    /// outstanding or the route failed.
    pub fn is_confirmed(&self, name: &RowName) -> Option<bool> {
        let RowName::Route(RouteKey::Route { vrf, prefix, .. }) = name else { return None };
        let Some(vrf) = self.objects.vrfs.find(vrf) else { return Some(false) };
        self.routes.is_confirmed_of(RouteName { vrf, prefix: *prefix }, &self.objects)
    }

    /// Watches the responses to these routes, in place of other rows: a row that comes ends the watch.
    pub fn watch_responses(&mut self, names: &[RowName]) {
        self.comparison.watched = names.iter().map(|name| (name.clone(), 1)).collect();
    }

    /// Whether [`Orch::watch_responses`] watches a route and none of its rows has come since.
    pub fn is_watched(&self, name: &RowName) -> bool {
        self.comparison.watched.contains_key(name)
    }

    /// What orchagent has of the rows of NEXTHOP_GROUP_TABLE alone, which come through APPL_DB whatever
    /// routes do. `None` while orchagent cannot be compared.
    pub fn held_groups(&self) -> Option<Vec<(RowName, HeldRow)>> {
        let of = |name: &Name| (RowName::Group(name.clone()), self.objects.held_group(name));
        let rows = self.objects.nhg_table.names().map(of).filter(|(_, held)| held.is_row());
        self.is_comparable().then(|| rows.collect())
    }

    /// What orchagent has of a row, whatever the format of its key.
    pub fn held_row(&self, name: &RowName) -> HeldRow {
        match name {
            RowName::Route(RouteKey::Route { vrf, prefix, .. }) => {
                let vrf = self.objects.vrfs.find(vrf);
                vrf.map_or(HeldRow::Nothing, |vrf| {
                    self.routes.held_of(RouteName { vrf, prefix: *prefix }, &self.objects)
                })
            }
            RowName::Label(LabelKey::Label(label)) => {
                self.routes.held_of(RouteName::of_label(*label), &self.objects)
            }
            RowName::Group(name) => self.objects.held_group(name),
            // Not rows.
            RowName::Route(_) | RowName::Label(_) => HeldRow::UnderWay,
        }
    }

    /// Watches these rows, in place of others: a row that comes ends its watch. Returns all keys to
    /// read: of a route also those in other formats.
    pub fn watch_rows(&mut self, names: &[RowName]) -> Vec<RowName> {
        let (mut watched, mut keys) = (Map::<RowName, usize>::default(), Vec::new());
        for name in names {
            // A scan may pass a key twice, and a route has several.
            if watched.contains_key(name) {
                continue;
            }
            let before = keys.len();
            keys.push(name.clone());
            if let RowName::Route(RouteKey::Route { vrf, prefix, .. }) = name {
                let known = self.comparison.other_formats.get(name);
                let mut others: BTreeSet<Name> = known.cloned().unwrap_or_default();
                others.extend(with_length(vrf.as_ref(), *prefix));
                keys.extend(others.into_iter().map(|raw_key| {
                    RowName::Route(RouteKey::Route {
                        vrf: vrf.clone(),
                        prefix: *prefix,
                        raw_key: Some(raw_key),
                    })
                }));
            }
            watched.insert(name.clone(), keys.len() - before);
        }
        self.comparison.watched = watched;
        keys
    }

    /// Gives orchagent what was found of watched rows, where that differs from what it has, and
    /// returns the rows that differed. Every key of [`Orch::watch_rows`] whose row is not under way
    /// must be in `found`. `producer`: what fpmsyncd has of the rows, as far as it is known.
    pub fn repair_rows(
        &mut self,
        found: Vec<FoundRow>,
        producer: &[(RowName, ProducerRow)],
    ) -> Vec<(RowName, Difference)> {
        let producer: Map<&RowName, ProducerRow> = producer.iter().map(|(name, row)| (name, *row)).collect();
        let mut repaired = Vec::new();
        let mut found = found.into_iter().peekable();
        while let Some((key, fields)) = found.next() {
            let name = canonical_name(&key);
            let mut rows = vec![(key, fields)];
            while let Some(more) = found.next_if(|(key, _)| canonical_name(key) == name) {
                rows.push(more);
            }
            // A key that is missing is under way.
            let is_complete = self.comparison.watched.remove(&name) == Some(rows.len());
            if is_complete && self.is_comparable() {
                let difference = self.repair_row(&name, rows, producer.get(&name).copied());
                repaired.extend(difference.map(|difference| (name, difference)));
            }
        }
        repaired
    }

    fn repair_row(
        &mut self,
        name: &RowName,
        rows: Vec<FoundRow>,
        producer: Option<ProducerRow>,
    ) -> Option<Difference> {
        let held = self.held_row(name);
        let mut rows = rows.into_iter().filter(|(_, fields)| !fields.is_empty()).peekable();
        if producer == Some(ProducerRow::Other) {
            return None;
        }
        if rows.peek().is_none() {
            let is_deleted = producer == Some(ProducerRow::Absent) && !held.is_as::<&str>(name, &[]);
            return is_deleted.then(|| {
                self.add_missed(name, None);
                Difference::Surplus
            });
        }
        let rows: Vec<_> = rows.collect();
        let agrees = |(_, fields): &FoundRow| {
            held.is_as(name, fields)
                || ReadRow::new(name, fields).is_some_and(|row| self.objects.is_covered(name, &row))
                    && held != HeldRow::Nothing
        };
        if rows.iter().any(agrees) {
            return None;
        }
        // The key in libnl's format comes first.
        let (key, fields) = rows.into_iter().next()?;
        let via = via(name, &fields)?;
        self.add_missed(&key, Some((protocol(&fields), via)));
        Some(if held == HeldRow::Nothing { Difference::Missing } else { Difference::Changed })
    }

    /// Takes in a row as if it had come now.
    fn add_missed(&mut self, key: &RowName, row: Option<(Option<Name>, Arc<Via>)>) {
        let route = |(protocol, via)| RouteRow { protocol, via };
        match key {
            RowName::Route(RouteKey::Route { vrf, prefix, raw_key }) => {
                self.routes.add_missed(vrf, *prefix, row.map(route), raw_key.clone(), &mut self.objects);
            }
            RowName::Label(LabelKey::Label(label)) => self.routes.add_missed_label(*label, row.map(route)),
            RowName::Group(name) => {
                let row = row.map(|(_, via)| NextHopGroupRow { via });
                self.objects.nhg_table.add(Change { key: name.clone(), row, reshaped: true });
            }
            RowName::Route(_) | RowName::Label(_) => {}
        }
    }
}

/// The protocol of a row, which orchagent only echoes.
fn protocol(fields: &[(String, String)]) -> Option<Name> {
    fields.iter().find(|(name, _)| name == "protocol").map(|(_, protocol)| protocol.as_str().into())
}
