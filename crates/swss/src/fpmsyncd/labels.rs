//! MPLS labels: the routes of labels, which are rows of `LABEL_ROUTE_TABLE`, and labels that IP
//! routes put on.
//!
//! Routes of labels are few, so each remembers its row. They are answered at once, whether or not
//! routes are; SONiC's own answers nothing about them later. In a warm start it would write them
//! into `ROUTE_TABLE`; here they are a table of their own all along. Labels that IP routes put on
//! it drops; here they are in the route's row.

use super::source::{RawHop, SourceId, State, What, Written};
use super::{Cause, FpmEvent, FpmOut, Fpmsyncd};
use crate::row::{Change, Field, LabelKey, LabelOp, LabelRouteRow, LabelStack, Via};
use ribtide_prefix::Map;
use ribtide_wire::netlink::{Hops, LabelRoute, Message, NextHops, RouteKind};
use std::sync::Arc;

/// One next hop as announced, with its labels.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LabelledHop {
    pub(super) hop: RawHop,
    labels: Option<LabelStack>,
}

/// A label's route.
#[derive(Default)]
struct Entry {
    /// What it was announced with; empty when it drops, is known from before, or is gone.
    hops: Box<[LabelledHop]>,
    wanted: Option<Written>,
    /// As APPL_DB has it.
    written: Option<Written>,
    epoch: u16,
    changed: bool,
}

impl Entry {
    fn is_nothing(&self) -> bool {
        self.wanted.is_none() && self.hops.is_empty() && !self.changed
    }
}

/// The routes of all labels.
#[derive(Default)]
pub(super) struct Labels {
    routes: Map<u32, Entry>,
    changed: Vec<u32>,
}

impl Labels {
    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(super) fn changed_len(&self) -> usize {
        self.changed.len()
    }

    /// Every label.
    pub(super) fn keys(&self) -> impl Iterator<Item = LabelKey> {
        self.routes.keys().map(|label| LabelKey::Label(*label))
    }

    /// The row of a label that was announced since the start and whose change is handed over.
    pub(super) fn settled(&self, label: u32) -> Option<&Written> {
        let entry = self.routes.get(&label).filter(|entry| !entry.changed && entry.epoch != 0)?;
        entry.written.as_ref()
    }

    /// The labels that a session did not announce and that have a row.
    pub(super) fn stale(&self, epoch: u16) -> Vec<u32> {
        let stale = self.routes.iter().filter(|(_, entry)| entry.epoch != epoch && entry.wanted.is_some());
        stale.map(|(label, _)| *label).collect()
    }

    /// The epochs start over.
    pub(super) fn forget_epochs(&mut self) {
        self.routes.values_mut().for_each(|entry| entry.epoch = 0);
    }

    fn want(&mut self, label: u32, wanted: Option<Written>) {
        let entry = self.routes.entry(label).or_default();
        entry.wanted = wanted;
        if !std::mem::replace(&mut entry.changed, true) {
            self.changed.push(label);
        }
    }
}

impl Fpmsyncd {
    pub(super) fn new_label(
        &mut self,
        route: &LabelRoute<'_>,
        message: Option<&Message<'_>>,
        out: &mut FpmOut,
    ) {
        self.counters.announced += 1;
        // Explicit null is not routed by.
        if route.label == 0 {
            return self.counters.ignored += 1;
        }
        self.counters.confirmed += 1;
        let form = self.announced_form(message, false, out);
        out.label_offloads.push(super::LabelOffload {
            label: route.label,
            table: route.table,
            protocol: route.protocol,
            form,
        });
        let (hops, state) = match self.label_state(route) {
            Ok(announced) => announced,
            Err(why) => {
                // It replaces what the label had, but for one of another table.
                if !matches!(why, Cause::LabelTable(_)) {
                    self.withdraw_label(route.label);
                }
                return self.refuse_label(route.label, why, out);
            }
        };
        let epoch = self.session.epoch;
        let entry = self.labels.routes.entry(route.label).or_default();
        let replayed = entry.epoch != epoch;
        if replayed || entry.wanted.is_none() {
            self.session.progress(self.now_ms, replayed && entry.wanted.is_some());
        }
        (entry.hops, entry.epoch) = (hops, epoch);
        let wanted = match state {
            State::Row(via) => Some(Written { via, protocol: route.protocol }),
            State::Nothing | State::Waiting => None,
        };
        let same = match (&entry.wanted, &wanted) {
            (Some(old), Some(new)) => {
                let there = old.via == new.via || (replayed && old.via.same_hops(&new.via));
                there && old.protocol == new.protocol
            }
            (old, new) => old.is_none() && new.is_none(),
        };
        match same {
            true => self.counters.unchanged += 1,
            false => self.labels.want(route.label, wanted),
        }
    }

    pub(super) fn del_label(&mut self, route: &LabelRoute<'_>, out: &mut FpmOut) {
        self.counters.withdrawn += 1;
        match self.label_table(route.table) {
            Ok(()) => self.withdraw_label(route.label),
            Err(why) => self.refuse_label(route.label, why, out),
        }
    }

    /// Next hops of a route to IPv4 or IPv6 destinations, or of a label's.
    fn labelled(&self, hops: Hops<'_>, op: LabelOp, ipv4: bool) -> Box<[LabelledHop]> {
        let labelled = hops.labelled().map(|(hop, labels)| LabelledHop {
            hop: self.raw_hop(hop, ipv4),
            labels: (!labels.is_empty()).then(|| LabelStack { op, labels: labels.collect() }),
        });
        labelled.collect()
    }

    fn refuse_label(&mut self, label: u32, why: Cause, out: &mut FpmOut) {
        self.counters.refused += 1;
        if self.logged.insert(why.clone()) {
            out.events.push(FpmEvent::Label(label, why));
        }
    }

    pub(super) fn withdraw_label(&mut self, label: u32) {
        let entry = self.labels.routes.get_mut(&label);
        let had = entry.and_then(|entry| {
            entry.hops = Box::default();
            entry.wanted.take()
        });
        match had {
            Some(_) => self.labels.want(label, None),
            None => {
                self.counters.unchanged += 1;
                self.forget_label(label);
            }
        }
    }

    /// The next hops of a label's route, and its row; or why it is not carried.
    fn label_state(&self, route: &LabelRoute<'_>) -> Result<(Box<[LabelledHop]>, State), Cause> {
        self.label_table(route.table)?;
        let hops = match (route.kind, route.next_hops) {
            (RouteKind::Blackhole, _) => {
                return Ok((Box::default(), State::Row(Arc::new(Via::blackhole()))));
            }
            (RouteKind::Unicast, NextHops::Inline(hops)) => self.labelled(hops, LabelOp::Swap, true),
            (RouteKind::Unicast, NextHops::None) => return Err(Cause::NoNextHops),
            (RouteKind::Unicast, NextHops::Id(id)) => return Err(Cause::LabelById(id)),
            _ => return Err(Cause::Kind("other than unicast and blackhole")),
        };
        let state = self.state_of_label(&hops);
        Ok((hops, state))
    }

    /// The row of a label's next hops. Shares are named where they are not equal.
    fn state_of_label(&self, hops: &[LabelledHop]) -> State {
        let uneven = hops.windows(2).any(|pair| pair[0].hop.weight != pair[1].hop.weight);
        match self.state_of_labelled(hops, uneven) {
            State::Row(via) => {
                let mut via = Arc::unwrap_or_clone(via);
                via.put(Field::MplsPop, "1");
                State::Row(Arc::new(via))
            }
            other => other,
        }
    }

    /// The row of next hops with labels.
    pub(super) fn state_of_labelled(&self, hops: &[LabelledHop], weights: bool) -> State {
        if let [only] = hops
            && self.is_management(only.hop.ifindex)
        {
            return State::Nothing;
        }
        let named = hops
            .iter()
            .map(|LabelledHop { hop, .. }| (hop.gateway, self.ifname(hop.ifindex), u32::from(hop.weight)));
        let labels: Vec<Option<LabelStack>> = hops.iter().map(|hop| hop.labels.clone()).collect();
        State::Row(Arc::new(Via::hops(named, weights).with_labels(&labels)))
    }

    /// The state of an IP route's next hops, some of which put labels on.
    pub(super) fn state_of_pushing(&self, hops: Hops<'_>, ipv4: bool) -> State {
        self.state_of_labelled(&self.labelled(hops, LabelOp::Push, ipv4), true)
    }

    /// The source of an IP route's next hops, some of which put labels on.
    pub(super) fn pushing_source(&mut self, hops: Hops<'_>, ipv4: bool) -> SourceId {
        let hops = self.labelled(hops, LabelOp::Push, ipv4);
        if let Some(id) = self.sources.find_labelled(&hops) {
            return id;
        }
        let state = self.state_of_labelled(&hops, true);
        self.sources.insert(What::Labelled(hops), state)
    }

    /// An interface has another name: rows of labels that name it follow.
    pub(super) fn labels_follow(&mut self, ifindex: u32) {
        let by = |entry: &Entry| entry.hops.iter().any(|hop| hop.hop.ifindex == ifindex);
        let found = self.labels.routes.iter().filter(|(_, entry)| by(entry));
        let mut found: Vec<(u32, State, u8)> = found
            .map(|(label, entry)| {
                let protocol = entry.wanted.as_ref().map_or(0, |wanted| wanted.protocol);
                (*label, self.state_of_label(&entry.hops), protocol)
            })
            .collect();
        found.sort_unstable_by_key(|(label, ..)| *label);
        for (label, state, protocol) in found {
            let wanted = match state {
                State::Row(via) => Some(Written { via, protocol }),
                State::Nothing | State::Waiting => None,
            };
            self.labels.want(label, wanted);
        }
    }

    /// Hands over the labels that changed.
    pub(super) fn take_labels(&mut self, out: &mut FpmOut) {
        for label in std::mem::take(&mut self.labels.changed) {
            let Some(entry) = self.labels.routes.get_mut(&label) else { continue };
            entry.changed = false;
            let old = std::mem::replace(&mut entry.written, entry.wanted.clone());
            let key = LabelKey::Label(label);
            match (old, &entry.wanted) {
                (old, Some(new)) if old.as_ref() != Some(new) => {
                    let old_via = old.map(|old| old.via);
                    let reshaped = old_via.as_ref().is_some_and(|old| !old.same_shape(&new.via));
                    let name = self.config.protocols.name(new.protocol).clone();
                    let row = LabelRouteRow {
                        protocol: Some(name),
                        via: without_weights(old_via.as_deref(), &new.via),
                    };
                    out.labels.push(Change { key, row: Some(row), reshaped });
                }
                (Some(_), None) => out.labels.push(Change::del(key)),
                _ => {
                    self.counters.unchanged += 1;
                    self.forget_label(label);
                    continue;
                }
            }
            self.counters.written += 1;
            self.forget_label(label);
        }
    }

    /// Forgets a label of which there is nothing to know: one through the management is remembered,
    /// for the interface may be called otherwise.
    fn forget_label(&mut self, label: u32) {
        if self.labels.routes.get(&label).is_some_and(Entry::is_nothing) {
            self.labels.routes.remove(&label);
        }
    }

    /// Appends every label's row, for a reader that may not have it.
    pub fn label_rows(&self, out: &mut Vec<Change<LabelRouteRow>>) {
        let before = out.len();
        for (label, entry) in &self.labels.routes {
            out.extend(entry.written.as_ref().map(|row| {
                let name = self.config.protocols.name(row.protocol).clone();
                let row = LabelRouteRow { protocol: Some(name), via: row.via.clone() };
                Change { key: LabelKey::Label(*label), row: Some(row), reshaped: true }
            }));
        }
        out[before..].sort_unstable_by_key(|change| change.key);
    }

    /// Whether APPL_DB shall have a row of this label.
    pub(super) fn has_label_row(&self, key: &LabelKey) -> bool {
        let LabelKey::Label(label) = key else { return false };
        self.labels.routes.get(label).is_some_and(|entry| entry.wanted.is_some())
    }

    /// [`Fpmsyncd::delete_surplus_route`], for a label.
    pub fn delete_surplus_label(&self, key: LabelKey, out: &mut FpmOut) {
        if !self.has_label_row(&key) {
            out.labels.push(Change::del(key));
        }
    }

    /// Takes in a row of `LABEL_ROUTE_TABLE` that APPL_DB has from before; see
    /// [`Fpmsyncd::known_route`].
    pub fn known_label(&mut self, key: LabelKey, row: LabelRouteRow) {
        let LabelKey::Label(label) = key else { return };
        self.session.stale(self.now_ms);
        let protocol = row.protocol.as_deref().and_then(|name| self.config.protocols.number(name));
        let known = Written { via: row.via, protocol: protocol.unwrap_or(0) };
        self.labels.routes.entry(label).or_insert_with(|| Entry {
            wanted: Some(known.clone()),
            written: Some(known),
            ..Entry::default()
        });
    }

    /// Labels are of no VRF.
    fn label_table(&self, table: u32) -> Result<(), Cause> {
        if table == 0 || self.is_main_table(table) { Ok(()) } else { Err(Cause::LabelTable(table)) }
    }
}

/// The row's next hops, with an empty weight where the row before had one: messages of SONiC's fpmsyncd have no weight, so a consumer
/// that has not taken the row before would keep it.
fn without_weights(old: Option<&Via>, new: &Arc<Via>) -> Arc<Via> {
    let had = old.is_some_and(|old| !old.get(Field::Weight).is_empty());
    if !had || !new.get(Field::Weight).is_empty() {
        return new.clone();
    }
    let mut via = Via::clone(new);
    via.put(Field::Weight, "");
    Arc::new(via)
}
