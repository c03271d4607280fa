//! Resolves a route's row against the objects of the chip, and decides what to do with the route.
//!
//! [`parsed_row`] turns a row's fields into a [`ParsedRow`], without look-ups. [`Orch::resolve_row`] replaces names by
//! numbers ([`ResolvedRow`], cached by the row's content). [`Orch::resolve_route`] compares that with the objects that
//! exist now and returns a [`RouteDecision`], by the rules of RouteOrch::addRoute (`orchagent/routeorch.cpp`).

use super::groups::GroupKey;
use super::indexes::Meaning;
use super::parsed_row::{self, ParsedRow};
use super::retry_cache::Constraint;
use super::route_table::RouteId;
use super::routes::{Lead, Target};
use super::to_sync::Pending;
use super::{Orch, OrchOut, vrfs};
use crate::row::{RouteRow, Via};
use ribtide_prefix::{AnyPrefix, Map};
use std::sync::Arc;

/// The most resolved rows in the cache. Real tables have some thousand next-hop sets.
const RESOLVED_ROWS_MAX: usize = 65_536;
/// Slots of the cache's first level, which compares addresses and not contents.
const RECENT_ROWS: usize = 256;

/// What to do with a route.
pub(super) enum RouteDecision {
    /// Program it.
    Lead(Lead),
    /// Program this fallback, and wait for the constraint.
    Meanwhile(Lead, Constraint),
    /// Wait for the constraint.
    Wait(Constraint),
    /// Give it up, for this reason.
    Refuse(String),
    /// Remove its entry: the row leads to the router itself or to its management port.
    Local,
    /// Keep the entry as it is: a router interface's subnet covers the destination.
    Covered,
    /// Remove its entry: the row is gone.
    Remove,
    /// There is nothing to do.
    Nothing,
}

/// A [`ParsedRow`] with its names replaced by numbers.
#[derive(Clone)]
pub(super) enum ResolvedRow {
    Refused(Arc<str>),
    Local,
    Blackhole,
    Direct(u32),
    Hop(u32),
    Group(u32),
    Index(u32),
}

/// Resolved rows by the fields that they were resolved from. It must be cleared before a number is used again.
#[derive(Default)]
pub(super) struct ResolvedRowCache {
    by_content: Map<Arc<Via>, ResolvedRow>,
    /// The latest look-ups by the fields' address: routes share their fields, and a content is long to hash.
    recent: Vec<Option<(Arc<Via>, ResolvedRow)>>,
}

impl ResolvedRowCache {
    fn place(via: &Arc<Via>) -> usize {
        Arc::as_ptr(via).addr() / size_of::<Via>() % RECENT_ROWS
    }

    fn get(&mut self, via: &Arc<Via>) -> Option<ResolvedRow> {
        if let Some(Some((same, resolved))) = self.recent.get(ResolvedRowCache::place(via))
            && Arc::ptr_eq(same, via)
        {
            return Some(resolved.clone());
        }
        let resolved = self.by_content.get(via).cloned()?;
        self.note(via, &resolved);
        Some(resolved)
    }

    fn insert(&mut self, via: &Arc<Via>, resolved: &ResolvedRow) {
        if self.by_content.len() >= RESOLVED_ROWS_MAX {
            self.clear();
        }
        self.by_content.insert(via.clone(), resolved.clone());
        self.note(via, resolved);
    }

    fn note(&mut self, via: &Arc<Via>, resolved: &ResolvedRow) {
        self.recent.resize(RECENT_ROWS, None);
        self.recent[ResolvedRowCache::place(via)] = Some((via.clone(), resolved.clone()));
    }

    pub(super) fn clear(&mut self) {
        self.by_content.clear();
        self.recent.clear();
    }
}

impl Orch {
    /// Decides what to do with a route, by its pending change and the objects that exist now.
    pub(super) fn resolve_route(
        &mut self,
        id: RouteId,
        change: &Pending<RouteRow>,
        out: &mut OrchOut,
    ) -> RouteDecision {
        let vrf = self.routes.table.name(id).vrf;
        if self.routes.is_own(id, change) {
            return match self.vrfs.usable(vrf) {
                Some(_) => RouteDecision::Lead(Lead { target: Target::Cpu, index: None }),
                None => RouteDecision::Wait(Constraint::Vrf(vrf)),
            };
        }
        let Some(row) = &change.set else {
            return if change.del { RouteDecision::Remove } else { RouteDecision::Nothing };
        };
        if self.vrfs.usable(vrf).is_none() {
            return RouteDecision::Wait(Constraint::Vrf(vrf));
        }
        if vrf == vrfs::LABELS
            && let Err(why) = parsed_row::parse_pop(&row.via)
        {
            return RouteDecision::Refuse(why);
        }
        let lead = |target, index| RouteDecision::Lead(Lead { target, index });
        match self.resolve_row(&row.via) {
            ResolvedRow::Refused(why) => RouteDecision::Refuse(why.to_string()),
            ResolvedRow::Local => RouteDecision::Local,
            ResolvedRow::Blackhole => lead(Target::Drop, None),
            ResolvedRow::Direct(interface) => self.resolve_direct(id, interface),
            ResolvedRow::Hop(hop) => self.resolve_hop(hop, None, out),
            ResolvedRow::Group(group) => self.resolve_group(id, group, None, out),
            ResolvedRow::Index(index) => match self.indexes.get(index).meaning {
                Meaning::Nothing => RouteDecision::Wait(Constraint::Index(index)),
                Meaning::Hop(hop) => self.resolve_hop(hop, Some(index), out),
                Meaning::Group(group) => self.resolve_group(id, group, Some(index), out),
            },
        }
    }

    fn resolve_direct(&self, id: RouteId, interface: u32) -> RouteDecision {
        let name = self.routes.table.name(id);
        let prefix = name.prefix;
        if name.label().is_none() && !parsed_row::is_global(prefix) {
            return RouteDecision::Refuse("its addresses are only good on a link".into());
        }
        let there = self.interfaces.get(interface);
        let host = AnyPrefix::host(prefix.addr()) == prefix;
        if host && name.label().is_none() && there.subnets().any(|subnet| subnet.contains(prefix.addr())) {
            return RouteDecision::Covered;
        }
        match there.usable() {
            Some(_) => RouteDecision::Lead(Lead { target: Target::Interface(interface), index: None }),
            None => RouteDecision::Wait(Constraint::Interface(interface)),
        }
    }

    fn resolve_hop(&mut self, hop: u32, index: Option<u32>, out: &mut OrchOut) -> RouteDecision {
        if self.hop_usable(hop).is_some() {
            return RouteDecision::Lead(Lead { target: Target::Hop(hop), index });
        }
        self.resolve(hop, out);
        RouteDecision::Wait(Constraint::Hop(hop))
    }

    fn resolve_group(
        &mut self,
        id: RouteId,
        group: u32,
        index: Option<u32>,
        out: &mut OrchOut,
    ) -> RouteDecision {
        if self.groups.ready(group) {
            return RouteDecision::Lead(Lead { target: Target::Group(group), index });
        }
        if self.groups.failed(group) {
            return RouteDecision::Refuse("the chip refused its next-hop group".into());
        }
        // The pin that the wait will hold; without it a new group has no reason to be.
        self.pin_group(group);
        self.step_group(group, out);
        self.hand_over_group(group);
        let constraint = Constraint::Group(group);
        if self.groups.on_its_way(group) {
            return RouteDecision::Wait(constraint);
        }
        let members = self.groups.wanted(group);
        let being_made = members.iter().any(|(hop, _)| self.is_being_made(*hop));
        let all =
            members.iter().all(|(hop, _)| self.hop_resolved(*hop).is_some() || self.is_being_made(*hop));
        if being_made && all {
            self.groups.set_stranding(group, true);
            return RouteDecision::Wait(constraint);
        }
        let usable: Vec<u32> =
            members.iter().map(|(hop, _)| *hop).filter(|hop| self.hop_usable(*hop).is_some()).collect();
        let stays = match self.routes.table.lead(id) {
            Some(Lead { target: Target::Hop(hop), .. }) => usable.contains(&hop).then_some(hop),
            _ => None,
        };
        match stays.or_else(|| self.groups.choose(&usable)) {
            Some(hop) => RouteDecision::Meanwhile(Lead { target: Target::Hop(hop), index }, constraint),
            None => {
                self.groups.set_stranding(group, true);
                RouteDecision::Wait(constraint)
            }
        }
    }

    /// Whether a request for a member of the group is in flight; the group's own request comes after it.
    pub(super) fn is_member_requested(&self, group: u32) -> bool {
        self.groups.wanted(group).iter().any(|(hop, _)| self.neighbors.get(*hop).is_requested())
    }

    /// Parses a row's fields and replaces all names by numbers, which makes unknown objects known.
    pub(super) fn resolve_row(&mut self, via: &Arc<Via>) -> ResolvedRow {
        if let Some(resolved) = self.routes.resolved_rows.get(via) {
            return resolved;
        }
        let resolved = match parsed_row::parse_route(via) {
            ParsedRow::Refused(why) => ResolvedRow::Refused(why.into()),
            ParsedRow::Local => ResolvedRow::Local,
            ParsedRow::Blackhole => ResolvedRow::Blackhole,
            ParsedRow::Direct(name) => ResolvedRow::Direct(self.interfaces.id_of(&name)),
            ParsedRow::Index(name) => ResolvedRow::Index(self.indexes.id_of(&name)),
            ParsedRow::Hops(hops) => {
                let members = self.members_of(&hops);
                match *members {
                    [(hop, _)] => ResolvedRow::Hop(hop),
                    _ => ResolvedRow::Group(self.group_id(GroupKey::Members(members.clone()), members)),
                }
            }
        };
        self.routes.resolved_rows.insert(via, &resolved);
        resolved
    }
}
