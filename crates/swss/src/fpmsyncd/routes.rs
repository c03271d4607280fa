//! Routes: which row each has, and the changes that were not taken yet.

use super::overlay::is_overlay;
use super::responses::Places;
use super::source::{RawHop, SourceId, State, What, Written};
use super::stage::Stage;
use super::table::Entry;
use super::vnets::{VNET, is_vnet};
use super::{Cause, Changed, FpmEvent, FpmOut, Fpmsyncd, RouteRef, Vrf};
use crate::row::{Change, Name, RouteKey, RouteRow, Via};
use ribtide_prefix::{AnyPrefix, Map, PREFETCH_BATCH, Set};
use ribtide_wire::netlink::numbers::{
    LWTUNNEL_ENCAP_MPLS, NH_ENCAP_SRV6_ROUTE, RT_TABLE_DEFAULT, RT_TABLE_LOCAL, RT_TABLE_MAIN,
};
use ribtide_wire::netlink::{Hop, Hops, Message, NextHops, Route, RouteKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Interfaces of the switch's own management: a route to one next hop there has no row.
pub const MANAGEMENT: [&str; 3] = ["eth0", "docker0", "eth1-midplane"];
/// What stands for an interface that is not known.
const UNKNOWN: &str = "unknown";

/// A route as fpmsyncd has it, for tests.
#[cfg(test)]
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RouteView {
    /// Its row; `None` when APPL_DB has, or gets, none.
    pub(super) row: Option<RouteRow>,
    /// The next-hop object that it waits for; until then it keeps `row`.
    pub(super) waits_for: Option<u32>,
    /// The row's change is not taken yet.
    pub(super) pending: bool,
    /// The chip confirmed it, and it is sure which row. Only with FIB suppression.
    pub(super) confirmed: bool,
    /// It was announced in the session that is on, or was on last; else it is left over from
    /// before.
    pub(super) announced: bool,
}

/// What a missing gateway is written as.
pub(super) fn no_gateway(ipv4: bool) -> IpAddr {
    if ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// What the rows of one hand-over share, apart from what the machine keeps: who gets the rows
/// counts references on another processor, and two that count the same ones wait for each other at
/// every row.
#[derive(Default)]
pub(super) struct Copies {
    /// With whether a row names a protocol.
    vias: Map<usize, (Arc<Via>, bool)>,
    protocols: Map<u8, Name>,
}

impl Copies {
    pub(super) fn row(&mut self, via: &Arc<Via>, name: &Name, protocol: u8) -> RouteRow {
        let shared = || (Arc::new(Via::clone(via)), via.has_protocol());
        let (same, has_protocol) = self.vias.entry(Arc::as_ptr(via).addr()).or_insert_with(shared);
        let name = self.protocols.entry(protocol).or_insert_with(|| Name::from(&**name));
        RouteRow { protocol: has_protocol.then(|| name.clone()), via: same.clone() }
    }
}

impl Fpmsyncd {
    pub(super) fn new_route(&mut self, route: &Route<'_>, message: Option<&Message<'_>>, out: &mut FpmOut) {
        self.counters.announced += 1;
        self.numbers.drop_held(route.table, route.prefix);
        self.route_announced(route, message, out);
    }

    /// Takes in a route that is announced, now or when its VRF had no name yet.
    pub(super) fn route_announced(
        &mut self,
        route: &Route<'_>,
        message: Option<&Message<'_>>,
        out: &mut FpmOut,
    ) {
        let vrf = match self.vrf_of(route.table, true) {
            Ok(vrf) => vrf,
            Err(why @ Some(Cause::UnknownVrf(_))) => {
                let why = self.hold(route, message).err().or(why);
                return self.refuse(route.prefix, why, out);
            }
            Err(why) => return self.refuse(route.prefix, why, out),
        };
        self.numbered(vrf, route.table, route.prefix);
        let at = (vrf, route.prefix);
        if !self.suppresses_in(vrf) {
            // At once, also for what will be ignored: the daemon waits for it.
            match route.encap {
                // SONiC's sends no reply to these.
                NH_ENCAP_SRV6_ROUTE => self.offload(at, route.protocol, None, out),
                encap => {
                    let form = self.announced_form(message, encap != 0, out);
                    self.reply(at, route.protocol, None, form, out);
                }
            }
        }
        let source = match self.vrfs[vrf as usize].is_vnet {
            true => self.vnet_source(route),
            false => self.source_of(route),
        };
        let source = match source {
            Ok(source) => source,
            Err(why) => {
                // It replaces what the prefix had.
                self.withdraw(at);
                return self.refuse(route.prefix, Some(why), out);
            }
        };
        if let Some(why) = self.awaited(source)
            && self.logged.insert(why.clone())
        {
            out.events.push(FpmEvent::Route(route.prefix, why));
        }
        self.announce(at, source, route.protocol, out);
    }

    pub(super) fn del_route(&mut self, route: &Route<'_>, out: &mut FpmOut) {
        self.counters.withdrawn += 1;
        self.numbers.drop_held(route.table, route.prefix);
        match self.vrf_of(route.table, false) {
            Ok(vrf) if self.withdraws(vrf, route.table, route.prefix) => self.withdraw((vrf, route.prefix)),
            Ok(_) => self.counters.unchanged += 1,
            Err(why) => self.refuse(route.prefix, why, out),
        }
    }

    /// Whether a route drops packets; the error is why the chip does not carry it.
    pub(super) fn carried(&self, route: &Route<'_>) -> Result<bool, Cause> {
        let unsupported = |kind| Err(Cause::Kind(kind));
        match route.kind {
            RouteKind::Blackhole => Ok(true),
            RouteKind::Unicast => match route.encap {
                0 => Ok(false),
                LWTUNNEL_ENCAP_MPLS if !self.config.as_sonic.mpls_push => Ok(false),
                NH_ENCAP_SRV6_ROUTE => Ok(false),
                encap if is_overlay(encap) => Ok(false),
                other => Err(Cause::Encapsulated(other)),
            },
            RouteKind::Local => unsupported("local"),
            RouteKind::Broadcast => unsupported("broadcast"),
            RouteKind::Multicast => unsupported("multicast"),
            RouteKind::Unreachable => unsupported("unreachable"),
            RouteKind::Prohibit => unsupported("prohibit"),
            RouteKind::Other(_) => unsupported("other"),
        }
    }

    /// Counts a route that is not carried, and logs each reason once. A route without a reason is
    /// only counted.
    fn refuse(&mut self, prefix: AnyPrefix, why: Option<Cause>, out: &mut FpmOut) {
        let Some(why) = why else { return self.counters.ignored += 1 };
        self.counters.refused += 1;
        if self.logged.insert(why.clone()) {
            out.events.push(FpmEvent::Route(prefix, why));
        }
    }

    /// The number of a table's VRF.
    fn vrf_of(&mut self, table: u32, present: bool) -> Result<u32, Option<Cause>> {
        Ok(self.vrf_name(table, present)?.map_or(0, |name| self.vrf_named(&name)))
    }

    /// The name of a table's VRF or VNET; the default one has none. Unlike in SONiC a kernel's number for
    /// the main table is the default VRF's too, and for a withdrawal the name counts that the
    /// interface had.
    pub(super) fn vrf_name(&self, table: u32, present: bool) -> Result<Option<Name>, Option<Cause>> {
        if table == 0 {
            return Ok(None);
        }
        let link = self.links.get(&table).filter(|link| link.present || !present);
        let name = link
            .map(|link| &link.name)
            .filter(|name| ["Vrf", VNET, "mgmt"].iter().any(|prefix| name.starts_with(prefix)));
        match name {
            Some(name) if name.starts_with("mgmt") => Err(None),
            Some(name) => Ok(Some(name.clone())),
            None if self.is_main_table(table) => Ok(None),
            None => Err(Some(Cause::UnknownVrf(table))),
        }
    }

    /// Whether a table is one of the kernel's that is no VRF's.
    pub(super) fn is_main_table(&self, table: u32) -> bool {
        let main = [RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL].map(u32::from);
        main.contains(&table) && !self.config.as_sonic.main_table
    }

    /// The number of a VRF, which is made when it is new.
    pub(super) fn vrf_named(&mut self, name: &Name) -> u32 {
        if let Some(id) = self.vrf_ids.get(name) {
            return *id;
        }
        let id = self.vrfs.len() as u32;
        self.vrfs.push(Vrf {
            name: Some(name.clone()),
            is_vnet: is_vnet(name),
            table: 0,
            routes: Default::default(),
        });
        self.vrf_ids.insert(name.clone(), id);
        id
    }

    pub(super) fn find_vrf(&self, name: Option<&str>) -> Option<u32> {
        name.map_or(Some(0), |name| self.vrf_ids.get(name).copied())
    }

    /// The source of a route's next hops, or why the route is not carried. A new source has no user
    /// yet.
    fn source_of(&mut self, route: &Route<'_>) -> Result<SourceId, Cause> {
        if self.carried(route)? {
            return Ok(self.sources.fixed(&Arc::new(Via::blackhole())));
        }
        match route.next_hops {
            _ if route.encap == NH_ENCAP_SRV6_ROUTE => self.srv6_source(route),
            _ if is_overlay(route.encap) => self.overlay_source(route),
            NextHops::Id(id) => Ok(self.object_source(id)),
            NextHops::Inline(hops) if route.encap != 0 => {
                Ok(self.pushing_source(hops, route.prefix.addr().is_ipv4()))
            }
            NextHops::Inline(hops) => Ok(self.hops_source(hops, route.prefix.addr().is_ipv4())),
            NextHops::None => Err(Cause::NoNextHops),
        }
    }

    /// The source of this kind, which is made when it is new.
    pub(super) fn other_source(&mut self, what: What) -> SourceId {
        match self.sources.find_other(&what) {
            Some(id) => id,
            None => {
                let state = self.state_of(&what);
                self.sources.insert(what, state)
            }
        }
    }

    /// What a source gives its routes, as things are now.
    pub(super) fn state_of(&self, what: &What) -> State {
        match what {
            What::Fixed(via) => State::Row(via.clone()),
            What::Hops(hops) => self.state_of_hops(hops),
            What::Labelled(hops) => self.state_of_labelled(hops, true),
            What::Object(id) => self.state_of_object(*id),
            What::Overlay(hops) => self.state_of_overlay(hops),
            What::Segment(sid, source) => Self::state_of_segment(sid, *source),
            What::Vpn(pic_context, next_hop) => self.state_of_vpn(*pic_context, *next_hop),
            What::Vnet(hops) => self.state_of_vnet(hops),
        }
    }

    /// What a source waits for, if it waits.
    pub(super) fn awaited(&self, id: SourceId) -> Option<Cause> {
        if *self.sources.state(id) != State::Waiting {
            return None;
        }
        Some(match self.sources.what(id) {
            What::Object(object) => Cause::Waits(*object),
            What::Vpn(pic_context, next_hop) => Cause::Waits(self.missing_object(*pic_context, *next_hop)),
            What::Overlay(hops) => {
                let unnamed = hops.iter().find(|hop| !self.links.contains_key(&hop.ifindex));
                Cause::WaitsForInterface(unnamed.map_or(0, |hop| hop.ifindex))
            }
            _ => Cause::NoNextHops,
        })
    }

    /// Whether routes of a VRF count as offloaded only when the chip confirmed them.
    pub(super) fn suppresses_in(&self, vrf: u32) -> bool {
        self.config.suppress && !self.vrfs[vrf as usize].is_vnet
    }

    fn hops_source(&mut self, hops: Hops<'_>, ipv4: bool) -> SourceId {
        let hops: smallvec::SmallVec<[RawHop; 8]> = hops.map(|hop| self.raw_hop(hop, ipv4)).collect();
        if let Some(id) = self.sources.find_hops(&hops) {
            return id;
        }
        let state = self.state_of_hops(&hops);
        self.sources.insert(What::Hops(hops.into_boxed_slice()), state)
    }

    /// A next hop of a route to IPv4 or IPv6 destinations.
    pub(super) fn raw_hop(&self, hop: Hop, ipv4: bool) -> RawHop {
        RawHop::new(Hop { weight: self.config.as_sonic.weight(hop.weight), ..hop }, ipv4)
    }

    /// The row of next hops that a route carries itself: weights are always named.
    pub(super) fn state_of_hops(&self, hops: &[RawHop]) -> State {
        if let [hop] = hops
            && self.is_management(hop.ifindex)
        {
            return State::Nothing;
        }
        let named = hops.iter().map(|hop| (hop.gateway, self.ifname(hop.ifindex), u32::from(hop.weight)));
        State::Row(Arc::new(Via::hops(named, true)))
    }

    pub(super) fn ifname(&self, ifindex: u32) -> &str {
        self.links.get(&ifindex).map_or(UNKNOWN, |link| &link.name)
    }

    pub(super) fn is_management(&self, ifindex: u32) -> bool {
        MANAGEMENT.contains(&self.ifname(ifindex))
    }

    pub(super) fn entry(&self, at: RouteRef) -> Option<&Entry> {
        self.vrfs.get(at.0 as usize)?.routes.get(at.1)
    }

    /// The row that a route has now: its next hops, and its protocol.
    fn row_ref(&self, at: RouteRef, entry: &Entry) -> Option<(&Arc<Via>, u8)> {
        let source = entry.source?;
        match self.sources.state(source) {
            State::Row(via) => Some((via, entry.protocol)),
            State::Nothing => None,
            State::Waiting => self.sources.had(source, &at).map(|had| (&had.via, had.protocol)),
        }
    }

    pub(super) fn row_of(&self, at: RouteRef, entry: &Entry) -> Option<Written> {
        self.row_ref(at, entry).map(|(via, protocol)| Written { via: via.clone(), protocol })
    }

    /// Stores what APPL_DB has of a route before it changes: the route is announced or withdrawn
    /// (`announced`), its next-hop object changes, or its row is written again. The row must still
    /// be the old one.
    pub(super) fn touch(&mut self, at: RouteRef, announced: bool) {
        let (stage, written) = match self.entry(at) {
            Some(entry) if entry.stage.is_changed() => (entry.stage, None),
            Some(entry) => (entry.stage, Some(self.row_of(at, entry))),
            None => (self.owed.came(at), Some(None)),
        };
        let entry = self.vrfs[at.0 as usize].routes.entry(at.1);
        entry.stage.set(stage.changed(announced), &mut self.awaiting);
        self.changed.extend(written.map(|written| Changed { at, written }));
    }

    fn announce(&mut self, at: RouteRef, source: SourceId, protocol: u8, out: &mut FpmOut) {
        let epoch = self.session.epoch;
        let old = self.entry(at).copied();
        let renewed = old.is_some_and(|entry| entry.source.is_some() && entry.epoch != epoch);
        if renewed || old.is_none_or(|entry| entry.source.is_none()) {
            self.session.progress(self.now_ms, renewed);
        }
        let waits = *self.sources.state(source) == State::Waiting;
        // The row of a route is looked up only where it matters: counting a reference costs more
        // than all of the rest.
        let had = old.filter(|old| old.source.is_some()).and_then(|old| self.row_of(at, &old));
        let (same, has_row) = match (self.sources.state(source), &had) {
            (State::Waiting, had) => (true, had.is_some()),
            (State::Nothing, had) => (had.is_none(), false),
            (State::Row(via), Some(had)) => {
                // A routing daemon that started again may name next hops in another order.
                let replayed = old.is_some_and(|old| old.epoch != epoch);
                let there = had.via == *via || (replayed && had.via.same_hops(via));
                // Rows of VNETs name no protocol.
                let is_vnet = self.vrfs[at.0 as usize].is_vnet;
                (there && (is_vnet || had.has_protocol_of(protocol)), true)
            }
            (State::Row(_), None) => (false, true),
        };
        // With FIB suppression a row that was not confirmed is written again: the answer to it may
        // be lost. So is one that the same session announces again, because it may not know which
        // row an answer was about; and one whose group has other next hops than when the chip had
        // it, since a routing daemon uses ids again.
        let found = old.is_some_and(|entry| {
            let changed = |had: &Written| self.objects.group_changed_since(&had.via, entry.epoch);
            entry.stage.is_confirmed() && entry.epoch != epoch && !had.as_ref().is_some_and(changed)
        });
        // The content of its future object is not known.
        let (confirmed, awaits_object) = (found && !waits, waits && (found || !has_row));
        let suppress = self.suppresses_in(at.0);
        if !same || (suppress && has_row && !confirmed && !awaits_object) {
            self.touch(at, true);
        } else {
            self.counters.unchanged += 1;
            if confirmed {
                self.offload(at, protocol, None, out);
            }
        }
        self.sources.join(source, at, had.filter(|_| waits));
        let entry = self.vrfs[at.0 as usize].routes.entry(at.1);
        if suppress && awaits_object {
            // There is nothing to hand over until the object comes.
            entry.stage.set(entry.stage.announced(true), &mut self.awaiting);
        }
        let old = entry.source.replace(source);
        entry.protocol = protocol;
        entry.epoch = epoch;
        if let Some(old) = old {
            self.leave(old, source, at);
        }
    }

    /// Counts a route off its old source. When that is the new one too, the route joined it twice.
    fn leave(&mut self, old: SourceId, new: SourceId, at: RouteRef) {
        if old == new {
            self.sources.unjoin(old);
        } else {
            self.sources.leave(old, at);
        }
    }

    pub(super) fn withdraw(&mut self, at: RouteRef) {
        let Some(Entry { source: Some(source), .. }) = self.entry(at).copied() else {
            self.counters.unchanged += 1;
            return;
        };
        self.touch(at, true);
        self.sources.leave(source, at);
        self.vrfs[at.0 as usize].routes.entry(at.1).source = None;
    }

    /// Gives sources other rows, and their routes with them.
    pub(super) fn replace(&mut self, mut states: Vec<(SourceId, State)>) {
        states.retain(|(id, state)| self.sources.state(*id) != state);
        let mut scanned: Set<SourceId> = Set::default();
        for (id, _) in &states {
            if *self.sources.state(*id) == State::Waiting {
                self.sources.waiting(*id).into_iter().for_each(|at| self.touch(at, false));
            } else if self.sources.users(*id) > 0 {
                scanned.insert(*id);
            }
        }
        if !scanned.is_empty() {
            let mut found: Vec<RouteRef> = Vec::new();
            for (vrf, of) in (0..).zip(&self.vrfs) {
                of.routes.for_each(|prefix, entry| {
                    if entry.source.is_some_and(|source| scanned.contains(&source)) {
                        found.push((vrf, prefix));
                    }
                });
            }
            found.into_iter().for_each(|at| self.touch(at, false));
        }
        for (id, state) in states {
            self.sources.set_state(id, state);
        }
    }

    /// Hands over what changed since the last time. A row that is again as it was is left out.
    pub fn take(&mut self, out: &mut FpmOut) {
        self.take_groups(out);
        self.take_labels(out);
        self.take_vpn_rows(out);
        let mut copies = Copies::default();
        let mut prefetched = 0;
        let mut places = Places::new().into_iter();
        let mut changed = std::mem::take(&mut self.changed).into_iter();
        while let Some(Changed { at: (vrf, prefix), written }) = changed.next() {
            if let Some(at) = places.next() {
                self.vrfs[vrf as usize].routes.expect(prefix, at);
            }
            if prefetched == 0 {
                let rest = changed.as_slice();
                let next = rest.get(..PREFETCH_BATCH).unwrap_or(rest);
                let routes = |vrf: u32| &self.vrfs[vrf as usize].routes;
                if next.last().is_some_and(|last| !routes(last.at.0).is_nth(last.at.1, next.len() + 1)) {
                    let guessed: Places =
                        next.iter().map(|next| routes(next.at.0).guess(next.at.1)).collect();
                    next.iter()
                        .zip(&guessed)
                        .for_each(|(next, at)| routes(next.at.0).prefetch(next.at.1, *at));
                    places = guessed.into_iter();
                }
                prefetched = PREFETCH_BATCH;
            }
            prefetched -= 1;
            let suppress = self.suppresses_in(vrf);
            let of = &self.vrfs[vrf as usize];
            let is_vnet = of.is_vnet;
            let entry = of.routes.get(prefix);
            let stage = entry.map_or(Stage::NEW, |entry| entry.stage);
            let row = entry.and_then(|entry| self.row_ref((vrf, prefix), entry));
            let key = || RouteKey::new(of.name.clone(), prefix);
            let same = match (&written, row) {
                (Some(old), Some((via, protocol))) => {
                    old.via == *via && (is_vnet || old.has_protocol_of(protocol))
                }
                _ => false,
            };
            let vnet = is_vnet.then(|| {
                let new = row.filter(|_| !same).map(|(via, _)| &**via);
                let old = written.as_ref().filter(|_| !same).map(|old| &*old.via);
                Self::vnet_changes(of.name.as_deref().unwrap_or_default(), prefix, old, new)
            });
            let is_in_chip = |via: &Via| {
                let since = entry.map_or(0, |entry| entry.epoch);
                stage.was_confirmed() && !self.objects.group_changed_since(via, since)
            };
            let change = match (written, row) {
                (None, None) => None,
                (Some(_), None) => Some(Change::del(key())),
                (Some(_), Some((via, _))) if same && (!suppress || is_in_chip(via)) => None,
                (old, Some((via, protocol))) => {
                    let reshaped = old.is_some_and(|old| !old.via.same_shape(via));
                    let row = copies.row(via, self.config.protocols.name(protocol), protocol);
                    Some(Change { key: key(), row: Some(row), reshaped })
                }
            };
            let at = (vrf, prefix);
            let answered = change.is_none() && row.is_some() && stage.was_confirmed() && stage.is_announced();
            let protocol = row.map(|(_, protocol)| protocol);
            let is_row = change.as_ref().is_some_and(|change| change.row.is_some());
            let stage = match suppress && is_row {
                true => self.owed.wrote(at, stage.unconfirmed(), stage.is_announced()),
                false => stage.unchanged(),
            };
            let routes = &mut self.vrfs[vrf as usize].routes;
            let entry = routes.entry(prefix);
            let gone = entry.source.is_none();
            entry.stage.set(if gone { Stage::NEW } else { stage }, &mut self.awaiting);
            if gone {
                routes.remove(prefix);
                if suppress {
                    self.owed.deleted(at, stage);
                }
            }
            if let Some(protocol) = protocol.filter(|_| answered && self.session.up) {
                self.offload(at, protocol, None, out);
            }
            match change {
                Some(_) if is_vnet => {
                    let (gone, new) = vnet.unwrap_or_default();
                    self.counters.written += 1;
                    out.old_vpn_rows.extend(gone);
                    out.vpn_rows.extend(new);
                }
                Some(change) => {
                    self.counters.written += 1;
                    if same { &mut out.queries } else { &mut out.routes }.push(change);
                }
                None => self.counters.unchanged += 1,
            }
        }
        self.end_watches(out);
    }

    pub(super) fn route_row(&self, row: Written) -> RouteRow {
        let protocol = row.via.has_protocol().then(|| self.config.protocols.name(row.protocol).clone());
        RouteRow { protocol, via: row.via }
    }

    /// [`Fpmsyncd::take`], and every row but those of routes again: APPL_DB may have lost some. Of
    /// routes, [`Fpmsyncd::resend_all`].
    pub fn write_again(&mut self, out: &mut FpmOut) {
        self.take(out);
        let before = out.labels.len();
        self.label_rows(&mut out.labels);
        self.counters.written += (out.labels.len() - before) as u64;
        self.groups_again(out);
        self.vpn_rows_again(out);
    }

    /// Whether APPL_DB shall have a row of this key.
    pub fn has_row(&self, key: &RouteKey) -> bool {
        let RouteKey::Route { vrf, prefix, raw_key: None } = key else { return false };
        let at = self.find_vrf(vrf.as_deref()).map(|vrf| (vrf, *prefix));
        at.is_some_and(|at| self.entry(at).is_some_and(|entry| self.row_ref(at, entry).is_some()))
    }

    /// Deletes this row of APPL_DB unless it shall be there. A Redis that was lost may come back with
    /// old data, and so with rows of withdrawn routes.
    pub fn delete_surplus_route(&self, key: RouteKey, out: &mut FpmOut) {
        if !self.has_row(&key) {
            out.routes.push(Change::del(key));
        }
    }

    /// [`Fpmsyncd::awaiting`], counted.
    #[cfg(test)]
    pub(super) fn count_awaiting(&self) -> usize {
        let mut count = 0;
        self.vrfs
            .iter()
            .for_each(|of| of.routes.for_each(|_, e| count += usize::from(e.stage.awaits_answer())));
        count
    }

    /// What is known of a route.
    #[cfg(test)]
    pub(super) fn lookup(&self, vrf: Option<&Name>, prefix: AnyPrefix) -> Option<RouteView> {
        let at = (self.find_vrf(vrf.map(|vrf| &**vrf))?, prefix);
        let entry = self.entry(at)?;
        Some(RouteView {
            row: self.row_of(at, entry).map(|row| self.route_row(row)),
            waits_for: entry.source.and_then(|source| match self.awaited(source)? {
                Cause::Waits(id) => Some(id),
                _ => None,
            }),
            pending: entry.stage.is_changed(),
            confirmed: entry.stage.is_confirmed(),
            announced: entry.source.is_some() && entry.epoch != 0 && entry.epoch == self.session.epoch,
        })
    }
}
