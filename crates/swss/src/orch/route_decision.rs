//! Resolves a route's row against the objects of the chip, and decides what to do with the route.
//!
//! [`parsed_row`] turns a row's fields into a [`ParsedRow`], without look-ups.
//! [`Objects::resolve_row`] replaces names by numbers ([`ResolvedRow`], cached by the row's
//! content). [`Objects::resolve_route`] compares that with the objects that exist now and returns a
//! [`RouteDecision`], by the rules of RouteOrch::addRoute (`orchagent/routeorch.cpp`).

use super::next_hop_groups::{GroupKey, NextHops, Unready, members_of};
use super::nhg_table::Meaning;
use super::objects::Objects;
use crate::orch::next_hop_ref::{NextHopRef, Target};
use crate::orch::outbox::Outbox;
use crate::orch::parsed_row::{self, ParsedRow};
use crate::orch::routes::{Constraint, LABELS_VRF, RouteName};
use crate::orch::to_sync::Pending;
use crate::row::{RouteRow, Via};
use ribtide_prefix::{AnyPrefix, Map};
use std::sync::Arc;

/// The most resolved rows in the cache. Real tables have some thousand next-hop sets.
const RESOLVED_ROWS_MAX: usize = 65_536;
/// Slots of the cache's first level, which compares addresses and not contents.
const RECENT_ROWS: usize = 256;

/// What to do with a route.
pub(in crate::orch) enum RouteDecision {
    /// Program it.
    Program(NextHopRef),
    /// Program this temporary next hop, and wait for the constraint.
    ProgramTemporary(NextHopRef, Constraint),
    /// Wait for the constraint.
    Wait(Constraint),
    /// Refuse it, for this reason.
    Refuse(String),
    /// Remove its entry: the row's next hop is the router itself or its management port.
    Local,
    /// Keep the entry as it is: a router interface's subnet covers the destination.
    Covered,
    /// Remove its entry: the row was deleted.
    Remove,
    /// There is nothing to do.
    Nothing,
}

/// A [`ParsedRow`] with its names replaced by numbers.
#[derive(Clone)]
enum ResolvedRow {
    Refused(Arc<str>),
    Local,
    Blackhole,
    Direct(u32),
    NextHop(u32),
    Group(u32),
    Index(u32),
}

/// Resolved rows by the fields that they were resolved from. Clear it before a number is used
/// again.
#[derive(Default)]
pub(super) struct ResolvedRowCache {
    by_content: Map<Arc<Via>, ResolvedRow>,
    /// The latest look-ups by the fields' address: routes share their fields, and a content is long
    /// to hash.
    recent: Vec<Option<(Arc<Via>, ResolvedRow)>>,
}

impl ResolvedRowCache {
    fn slot(via: &Arc<Via>) -> usize {
        Arc::as_ptr(via).addr() / size_of::<Via>() % RECENT_ROWS
    }

    fn get(&mut self, via: &Arc<Via>) -> Option<ResolvedRow> {
        if let Some(Some((same, resolved))) = self.recent.get(ResolvedRowCache::slot(via))
            && Arc::ptr_eq(same, via)
        {
            return Some(resolved.clone());
        }
        let resolved = self.by_content.get(via).cloned()?;
        self.set_recent(via, &resolved);
        Some(resolved)
    }

    fn insert(&mut self, via: &Arc<Via>, resolved: &ResolvedRow) {
        if self.by_content.len() >= RESOLVED_ROWS_MAX {
            self.clear();
        }
        self.by_content.insert(via.clone(), resolved.clone());
        self.set_recent(via, resolved);
    }

    fn set_recent(&mut self, via: &Arc<Via>, resolved: &ResolvedRow) {
        self.recent.resize(RECENT_ROWS, None);
        self.recent[ResolvedRowCache::slot(via)] = Some((via.clone(), resolved.clone()));
    }

    pub(super) fn clear(&mut self) {
        self.by_content.clear();
        self.recent.clear();
    }
}

impl Objects {
    /// Decides what to do with a route, by its pending change and the objects that exist now.
    /// `current`: what the chip's entry resolves to.
    pub(in crate::orch) fn resolve_route(
        &mut self,
        name: RouteName,
        change: &Pending<RouteRow>,
        current: Option<NextHopRef>,
        outbox: &mut Outbox,
    ) -> RouteDecision {
        let Some(row) = &change.set else {
            return if change.del { RouteDecision::Remove } else { RouteDecision::Nothing };
        };
        if self.vrfs.usable(name.vrf).is_none() {
            return RouteDecision::Wait(Constraint::Vrf(name.vrf));
        }
        if name.vrf == LABELS_VRF
            && let Err(why) = parsed_row::parse_pop(&row.via)
        {
            return RouteDecision::Refuse(why);
        }
        match self.resolve_row(&row.via, outbox) {
            ResolvedRow::Refused(why) => RouteDecision::Refuse(why.to_string()),
            ResolvedRow::Local => RouteDecision::Local,
            ResolvedRow::Blackhole => {
                RouteDecision::Program(NextHopRef { target: Target::Drop, index: None })
            }
            ResolvedRow::Direct(interface) => self.resolve_direct(name, interface),
            ResolvedRow::NextHop(hop) => self.resolve_next_hop(hop, None, outbox),
            ResolvedRow::Group(group) => self.resolve_group(group, None, current, outbox),
            ResolvedRow::Index(index) => match self.nhg_table.meaning(index) {
                Meaning::Nothing => RouteDecision::Wait(Constraint::Index(index)),
                Meaning::NextHop(hop) => self.resolve_next_hop(hop, Some(index), outbox),
                Meaning::Group(group) => self.resolve_group(group, Some(index), current, outbox),
            },
        }
    }

    fn resolve_direct(&self, name: RouteName, interface: u32) -> RouteDecision {
        let prefix = name.prefix;
        if name.label().is_none() && !parsed_row::is_global(prefix) {
            return RouteDecision::Refuse("its addresses are only good on a link".into());
        }
        let host = AnyPrefix::host(prefix.addr()) == prefix;
        if host && name.label().is_none() && self.interfaces.covers(interface, prefix.addr()) {
            return RouteDecision::Covered;
        }
        match self.interfaces.usable(interface) {
            Some(_) => {
                RouteDecision::Program(NextHopRef { target: Target::Interface(interface), index: None })
            }
            None => RouteDecision::Wait(Constraint::Interface(interface)),
        }
    }

    fn resolve_next_hop(&mut self, hop: u32, index: Option<u32>, outbox: &mut Outbox) -> RouteDecision {
        if self.neighbors.usable(hop, &self.interfaces).is_some() {
            return RouteDecision::Program(NextHopRef { target: Target::NextHop(hop), index });
        }
        self.neighbors.resolve(hop, &self.interfaces, outbox);
        RouteDecision::Wait(Constraint::NextHop(hop))
    }

    fn resolve_group(
        &mut self,
        group: u32,
        index: Option<u32>,
        current: Option<NextHopRef>,
        outbox: &mut Outbox,
    ) -> RouteDecision {
        if self.groups.ready(group) {
            return RouteDecision::Program(NextHopRef { target: Target::Group(group), index });
        }
        let hops = &mut NextHops { neighbors: &mut self.neighbors, interfaces: &self.interfaces };
        let constraint = Constraint::Group(group);
        let usable = match self.groups.request(group, hops, outbox) {
            Unready::OnItsWay | Unready::MembersRequested => return RouteDecision::Wait(constraint),
            Unready::Waiting(usable) => usable,
        };
        let current = match current.map(|current| current.target) {
            Some(Target::NextHop(hop)) => Some(hop),
            // The group changes: its former members carry the route better than one of the new.
            Some(Target::Group(current)) if current == group => return RouteDecision::Wait(constraint),
            _ => None,
        };
        match self.groups.temporary(group, &usable, current) {
            Some(hop) => {
                let temporary = NextHopRef { target: Target::NextHop(hop), index };
                RouteDecision::ProgramTemporary(temporary, constraint)
            }
            None => RouteDecision::Wait(constraint),
        }
    }

    /// Whether the reference is what the row asks for.
    pub(in crate::orch) fn is_as_row(
        &mut self,
        NextHopRef { target, index }: NextHopRef,
        row: &RouteRow,
        outbox: &mut Outbox,
    ) -> bool {
        match (self.resolve_row(&row.via, outbox), index) {
            (ResolvedRow::Blackhole, None) => target == Target::Drop,
            (ResolvedRow::Direct(interface), None) => target == Target::Interface(interface),
            (ResolvedRow::NextHop(hop), None) => target == Target::NextHop(hop),
            (ResolvedRow::Group(group), None) => target == Target::Group(group),
            (ResolvedRow::Index(named), Some(index)) => named == index,
            _ => false,
        }
    }

    /// Parses a row's fields and replaces all names by numbers. Unknown objects get numbers.
    fn resolve_row(&mut self, via: &Arc<Via>, outbox: &mut Outbox) -> ResolvedRow {
        if let Some(resolved) = self.resolved_rows.get(via) {
            return resolved;
        }
        let resolved = match parsed_row::parse_route(via) {
            ParsedRow::Refused(why) => ResolvedRow::Refused(why.into()),
            ParsedRow::Local => ResolvedRow::Local,
            ParsedRow::Blackhole => ResolvedRow::Blackhole,
            ParsedRow::Direct(name) => ResolvedRow::Direct(self.interfaces.id_of(&name)),
            ParsedRow::Index(name) => ResolvedRow::Index(self.nhg_table.id_of(&name)),
            ParsedRow::Hops(hops) => {
                let members = members_of(&hops, &mut self.neighbors, &mut self.interfaces);
                match *members {
                    [(hop, _)] => ResolvedRow::NextHop(hop),
                    _ => {
                        let key = GroupKey::Members(members.clone());
                        ResolvedRow::Group(self.groups.id_of(key, &members, &mut self.neighbors, outbox))
                    }
                }
            }
        };
        self.resolved_rows.insert(via, &resolved);
        resolved
    }
}
