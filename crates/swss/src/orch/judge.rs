//! Judging a route: what its row comes to, given what there is now.

use super::groups::GroupKey;
use super::indexes::Meaning;
use super::pending::Pending;
use super::plan::{self, Plan};
use super::routes::{Cause, Lead, Target};
use super::table::RouteId;
use super::{Orch, OrchOut, vrfs};
use crate::row::{RouteRow, Via};
use ribtide_prefix::{AnyPrefix, Map};
use std::sync::Arc;

/// How many parsed rows are kept. Real tables have some thousand next-hop sets.
const PLANS: usize = 65_536;
/// Of these, how many are found without a look at their content.
const LATELY: usize = 256;

/// What a row comes to, given what there is.
pub(super) enum Verdict {
    Lead(Lead),
    /// Lead there until what it waits for happens.
    Meanwhile(Lead, Cause),
    Wait(Cause),
    Refuse(String),
    /// Not for the chip; what the chip has goes.
    Local,
    /// Not for the chip; what the chip has stays.
    Covered,
    Remove,
    Nothing,
}

/// A plan with its names looked up.
#[derive(Clone)]
pub(super) enum Bound {
    Refused(Arc<str>),
    Local,
    Blackhole,
    Direct(u32),
    Hop(u32),
    Group(u32),
    Index(u32),
}

/// Rows parsed and looked up.
#[derive(Default)]
pub(super) struct Plans {
    by_content: Map<Arc<Via>, Bound>,
    /// What was asked for lately, by where it stands in memory: many rows share one, and its content is long.
    lately: Vec<Option<(Arc<Via>, Bound)>>,
}

impl Plans {
    fn place(via: &Arc<Via>) -> usize {
        Arc::as_ptr(via).addr() / size_of::<Via>() % LATELY
    }

    fn get(&mut self, via: &Arc<Via>) -> Option<Bound> {
        if let Some(Some((same, bound))) = self.lately.get(Plans::place(via))
            && Arc::ptr_eq(same, via)
        {
            return Some(bound.clone());
        }
        let bound = self.by_content.get(via).cloned()?;
        self.note(via, &bound);
        Some(bound)
    }

    fn insert(&mut self, via: &Arc<Via>, bound: &Bound) {
        if self.by_content.len() >= PLANS {
            self.clear();
        }
        self.by_content.insert(via.clone(), bound.clone());
        self.note(via, bound);
    }

    fn note(&mut self, via: &Arc<Via>, bound: &Bound) {
        self.lately.resize(LATELY, None);
        self.lately[Plans::place(via)] = Some((via.clone(), bound.clone()));
    }

    pub(super) fn clear(&mut self) {
        self.by_content.clear();
        self.lately.clear();
    }
}

impl Orch {
    /// What a task comes to, given what there is.
    pub(super) fn judge(&mut self, id: RouteId, change: &Pending<RouteRow>, out: &mut OrchOut) -> Verdict {
        let vrf = self.routes.table.name(id).vrf;
        if self.routes.is_own(id, change) {
            return match self.vrfs.usable(vrf) {
                Some(_) => Verdict::Lead(Lead { target: Target::Cpu, index: None }),
                None => Verdict::Wait(Cause::Vrf(vrf)),
            };
        }
        let Some(row) = &change.set else {
            return if change.del { Verdict::Remove } else { Verdict::Nothing };
        };
        if self.vrfs.usable(vrf).is_none() {
            return Verdict::Wait(Cause::Vrf(vrf));
        }
        if vrf == vrfs::LABELS
            && let Err(why) = plan::pop(&row.via)
        {
            return Verdict::Refuse(why);
        }
        let lead = |target, index| Verdict::Lead(Lead { target, index });
        match self.bind(&row.via) {
            Bound::Refused(why) => Verdict::Refuse(why.to_string()),
            Bound::Local => Verdict::Local,
            Bound::Blackhole => lead(Target::Drop, None),
            Bound::Direct(interface) => self.judge_direct(id, interface),
            Bound::Hop(hop) => self.judge_hop(hop, None, out),
            Bound::Group(group) => self.judge_group(id, group, None, out),
            Bound::Index(index) => match self.indexes.get(index).meaning {
                Meaning::Nothing => Verdict::Wait(Cause::Index(index)),
                Meaning::Hop(hop) => self.judge_hop(hop, Some(index), out),
                Meaning::Group(group) => self.judge_group(id, group, Some(index), out),
            },
        }
    }

    fn judge_direct(&self, id: RouteId, interface: u32) -> Verdict {
        let name = self.routes.table.name(id);
        let prefix = name.prefix;
        if name.label().is_none() && !plan::is_global(prefix) {
            return Verdict::Refuse("its addresses are only good on a link".into());
        }
        let there = self.interfaces.get(interface);
        let host = AnyPrefix::host(prefix.addr()) == prefix;
        if host && name.label().is_none() && there.subnets().any(|subnet| subnet.contains(prefix.addr())) {
            return Verdict::Covered;
        }
        match there.usable() {
            Some(_) => Verdict::Lead(Lead { target: Target::Interface(interface), index: None }),
            None => Verdict::Wait(Cause::Interface(interface)),
        }
    }

    fn judge_hop(&mut self, hop: u32, index: Option<u32>, out: &mut OrchOut) -> Verdict {
        if self.hop_usable(hop).is_some() {
            return Verdict::Lead(Lead { target: Target::Hop(hop), index });
        }
        self.resolve(hop, out);
        Verdict::Wait(Cause::Hop(hop))
    }

    fn judge_group(&mut self, id: RouteId, group: u32, index: Option<u32>, out: &mut OrchOut) -> Verdict {
        if self.groups.ready(group) {
            return Verdict::Lead(Lead { target: Target::Group(group), index });
        }
        if self.groups.failed(group) {
            return Verdict::Refuse("the chip refused its next-hop group".into());
        }
        // The pin that the wait will hold; without it a new group has no reason to be.
        self.pin_group(group);
        self.step_group(group, out);
        self.hand_over_group(group);
        let cause = Cause::Group(group);
        if self.groups.on_its_way(group) {
            return Verdict::Wait(cause);
        }
        let members = self.groups.wanted(group);
        let being_made = members.iter().any(|(hop, _)| self.is_being_made(*hop));
        let all =
            members.iter().all(|(hop, _)| self.hop_resolved(*hop).is_some() || self.is_being_made(*hop));
        if being_made && all {
            self.groups.set_stranding(group, true);
            return Verdict::Wait(cause);
        }
        let usable: Vec<u32> =
            members.iter().map(|(hop, _)| *hop).filter(|hop| self.hop_usable(*hop).is_some()).collect();
        let stays = match self.routes.table.lead(id) {
            Some(Lead { target: Target::Hop(hop), .. }) => usable.contains(&hop).then_some(hop),
            _ => None,
        };
        match stays.or_else(|| self.groups.choose(&usable)) {
            Some(hop) => Verdict::Meanwhile(Lead { target: Target::Hop(hop), index }, cause),
            None => {
                self.groups.set_stranding(group, true);
                Verdict::Wait(cause)
            }
        }
    }

    /// Whether the chip was asked for a member of a group, which comes before the group.
    pub(super) fn is_member_asked_for(&self, group: u32) -> bool {
        self.groups.wanted(group).iter().any(|(hop, _)| self.neighbors.get(*hop).is_asked_for())
    }

    /// The plan of a row's fields with all names looked up.
    pub(super) fn bind(&mut self, via: &Arc<Via>) -> Bound {
        if let Some(bound) = self.routes.plans.get(via) {
            return bound;
        }
        let bound = match plan::of_route(via) {
            Plan::Refused(why) => Bound::Refused(why.into()),
            Plan::Local => Bound::Local,
            Plan::Blackhole => Bound::Blackhole,
            Plan::Direct(name) => Bound::Direct(self.interfaces.id_of(&name)),
            Plan::Index(name) => Bound::Index(self.indexes.id_of(&name)),
            Plan::Hops(hops) => {
                let members = self.members_of(&hops);
                match *members {
                    [(hop, _)] => Bound::Hop(hop),
                    _ => Bound::Group(self.group_id(GroupKey::Members(members.clone()), members)),
                }
            }
        };
        self.routes.plans.insert(via, &bound);
        bound
    }
}
