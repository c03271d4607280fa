//! Rows for ribtide's orchagent, made of messages between SONiC's orchagent and syncd.
//!
//! ribtide's orchagent knows ports, VRFs, interfaces and neighbours by rows, as alone. SONiC's
//! orchagent has taken those rows out of APPL_DB, and its requests have their content.

use super::learned::{Learned, Lesson};
use super::own::StandsFor;
use super::{Beside, BesideEvent, BesideOut, LearnedRow};
use crate::row::{Change, IntfKey, IntfRow, Mac, Name, NeighKey, NeighRow, PortKey, PortRow, VrfRow};
use crate::sai::notification::read_port_state_change;
use crate::sai::{Oid, OperStatus};
use ribtide_prefix::{AnyPrefix, Map, Set};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The MAC address in rows of neighbours. ribtide programs no neighbour, and only needs to know
/// that one is resolved.
const RESOLVED: Mac = Mac([0x02, 0, 0, 0, 0, 1]);
/// The interface that holds the own addresses of the default VRF: a loopback needs no port.
const OWN_ADDRESSES: &str = "Loopback";

/// The rows that ribtide's orchagent has.
#[derive(Default, Debug)]
pub(super) struct Announced {
    begun: bool,
    /// Interfaces that have a port of their own, with the lane that stands for it.
    lanes: Map<Name, u32>,
    by_lane: Vec<Name>,
    vrfs: Set<Name>,
    /// VRFs whose virtual router ribtide's orchagent has not created: a request does not name the
    /// VRF, so one row goes at a time.
    waiting_vrfs: VecDeque<Name>,
    pub(super) next_vrf: Option<Name>,
    interfaces: Map<Name, Option<Name>>,
    next_hops: Set<(Name, IpAddr)>,
    own: Set<(Option<Name>, AnyPrefix)>,
    /// Link states by port.
    links: Map<Oid, bool>,
    /// Link states by name, of LAGs.
    links_by_name: Map<Name, bool>,
}

impl Announced {
    /// Whether the link state of a port is known.
    pub(super) fn has_link(&self, port: Oid, name: &Name) -> bool {
        self.links.contains_key(&port) || self.links_by_name.contains_key(name)
    }

    /// The interface whose port has this lane.
    pub(super) fn interface_of_lane(&self, lane: u32) -> Option<Name> {
        self.by_lane.get(lane.checked_sub(1)? as usize).cloned()
    }
}

fn own_interface(vrf: &Option<Name>) -> Name {
    match vrf {
        None => OWN_ADDRESSES.into(),
        Some(vrf) => format!("{OWN_ADDRESSES}-{vrf}").into(),
    }
}

impl Beside {
    /// Takes in lessons of messages.
    pub(super) fn take_lessons(&mut self, lessons: Vec<Lesson>, out: &mut BesideOut) {
        for lesson in lessons {
            match lesson {
                Lesson::Interface(oid) => {
                    self.announce_interface(oid, out);
                    self.refresh_interface(oid, out);
                }
                Lesson::NextHop(oid) => {
                    self.announce_next_hop(oid, out);
                    self.refresh_next_hop(oid, out);
                }
                Lesson::InterfaceGone(name) => {
                    self.retract_interface(&name, out);
                    self.refresh(&StandsFor::Interface(name), out);
                }
                Lesson::NextHopGone(name, ip) => {
                    self.retract_next_hop(&name, ip, out);
                    self.refresh(&StandsFor::NextHop(name, ip), out);
                }
                Lesson::OwnAddress(router, prefix, there) => self.announce_own(router, prefix, there, out),
                Lesson::Link(port, up) => self.link_state(port, up, out),
                Lesson::Named(lower) => {
                    self.note_carried_names();
                    let interfaces: Vec<Oid> = self.learned.interfaces_on(lower).collect();
                    for interface in interfaces {
                        self.announce_interface(interface, out);
                        self.refresh_interface(interface, out);
                        let hops: Vec<Oid> = self.learned.next_hops_on(interface).collect();
                        for hop in hops {
                            self.announce_next_hop(hop, out);
                            self.refresh_next_hop(hop, out);
                        }
                    }
                }
            }
        }
    }

    /// Brings the rows into agreement with everything that was learned, after a view or new names.
    pub(super) fn announce_all(&mut self, out: &mut BesideOut) {
        self.renamed = false;
        self.note_carried_names();
        let interfaces: Vec<Oid> = self.learned.interfaces.keys().copied().collect();
        let hops: Vec<Oid> = self.learned.next_hops.keys().copied().collect();
        let Announced { next_hops, interfaces: known, .. } = &self.announced;
        let there = |learned: &Learned, name: &str, ip: IpAddr| {
            learned.interface(name).is_some_and(|interface| learned.next_hop(interface, ip).is_some())
        };
        let carried = |name: &Name, ip: IpAddr| {
            let stand_in = self.own.find(&StandsFor::NextHop(name.clone(), ip));
            let real = stand_in.and_then(|oid| self.own.stand_in(oid)?.real);
            real.is_some_and(|real| self.learned.next_hops.get(&real).is_some_and(|hop| hop.carried))
        };
        let gone_hops: Vec<(Name, IpAddr)> = next_hops
            .iter()
            .filter(|(name, ip)| !there(&self.learned, name, *ip) && !carried(name, *ip))
            .cloned()
            .collect();
        let gone: Vec<Name> =
            known.keys().filter(|name| self.learned.interface(name).is_none()).cloned().collect();
        gone_hops.into_iter().for_each(|(name, ip)| self.retract_next_hop(&name, ip, out));
        gone.into_iter().for_each(|name| self.retract_interface(&name, out));
        interfaces.into_iter().for_each(|oid| self.announce_interface(oid, out));
        hops.into_iter().for_each(|oid| self.announce_next_hop(oid, out));

        let own: Vec<(Oid, AnyPrefix)> = self.learned.own_addresses().collect();
        let named: Set<(Option<Name>, AnyPrefix)> = own
            .iter()
            .filter_map(|(router, prefix)| self.learned.vrf(*router).map(|vrf| (vrf, *prefix)))
            .collect();
        let gone: Vec<_> = self.announced.own.iter().filter(|key| !named.contains(*key)).cloned().collect();
        gone.into_iter().for_each(|(vrf, prefix)| self.retract_own(vrf, prefix, out));
        own.into_iter().for_each(|(router, prefix)| self.announce_own(router, prefix, true, out));
        self.refresh_all(out);
    }

    /// Sends the rows of a router interface that has a name and a VRF.
    fn announce_interface(&mut self, oid: Oid, out: &mut BesideOut) {
        let Some(interface) = self.learned.interfaces.get(&oid) else { return };
        // SONiC's orchagent has loopbacks of its own, which carry no route.
        if interface.lower.is_null() {
            return;
        }
        let (lower, router) = (interface.lower, interface.virtual_router);
        let (Some(name), Some(vrf)) = (self.learned.interface_name(oid), self.learned.vrf(router)) else {
            return;
        };
        self.begin_rows(out);
        if let Some(vrf) = &vrf {
            self.announce_vrf(vrf, out);
        }
        let announced = &mut self.announced;
        if !announced.lanes.contains_key(&name) {
            announced.by_lane.push(name.clone());
            let lane = announced.by_lane.len() as u32;
            announced.lanes.insert(name.clone(), lane);
            let by_name = self.learned.lower(lower).and_then(|lower| announced.links_by_name.get(lower));
            let oper_up = announced.links.get(&lower).or(by_name).copied();
            let row = PortRow { lanes: Some(lane.to_string().into()), oper_up, ..PortRow::default() };
            out.rows.push(LearnedRow::Port(Change::set(PortKey::Port(name.clone()), row)));
        }
        if announced.interfaces.get(&name) == Some(&vrf) {
            return;
        }
        announced.interfaces.insert(name.clone(), vrf.clone());
        // The default VRF is written, since a row merges into the former one.
        let row = IntfRow { vrf_name: Some(vrf.unwrap_or_else(|| "".into())), ..IntfRow::default() };
        out.rows.push(LearnedRow::Interface(Change::set(IntfKey::Interface(name), row)));
    }

    fn announce_vrf(&mut self, vrf: &Name, out: &mut BesideOut) {
        if self.announced.vrfs.insert(vrf.clone()) {
            self.announced.waiting_vrfs.push_back(vrf.clone());
            self.announce_next_vrf(out);
        }
    }

    /// Sends the row of the next VRF, if none is on its way.
    pub(super) fn announce_next_vrf(&mut self, out: &mut BesideOut) {
        let announced = &mut self.announced;
        if announced.next_vrf.is_none()
            && let Some(vrf) = announced.waiting_vrfs.pop_front()
        {
            announced.next_vrf = Some(vrf.clone());
            out.rows.push(LearnedRow::Vrf(Change::set(vrf, VrfRow::default())));
        }
    }

    /// The rows that open ribtide's orchagent for others.
    fn begin_rows(&mut self, out: &mut BesideOut) {
        if std::mem::replace(&mut self.announced.begun, true) {
            return;
        }
        let done = PortRow { count: Some(0), ..PortRow::default() };
        out.rows.push(LearnedRow::Port(Change::set(PortKey::ConfigDone, done)));
        out.rows.push(LearnedRow::Port(Change::set(PortKey::InitDone, PortRow::default())));
    }

    fn announce_next_hop(&mut self, oid: Oid, out: &mut BesideOut) {
        let Some((ifname, ip)) = self.learned.next_hop_name(oid) else { return };
        if self.announced.next_hops.insert((ifname.clone(), ip)) {
            let row = NeighRow { mac: Some(RESOLVED), ipv6: ip.is_ipv6() };
            out.rows.push(LearnedRow::Neighbor(Change::set(NeighKey { ifname, ip }, row)));
        }
    }

    /// Takes back the row of a next hop, so that routes and groups release it.
    pub(super) fn retract_next_hop(&mut self, name: &Name, ip: IpAddr, out: &mut BesideOut) {
        if self.announced.next_hops.remove(&(name.clone(), ip)) {
            out.rows.push(LearnedRow::Neighbor(Change::del(NeighKey { ifname: name.clone(), ip })));
        }
    }

    /// Takes back the row of a router interface.
    pub(super) fn retract_interface(&mut self, name: &Name, out: &mut BesideOut) {
        if self.announced.interfaces.remove(name).is_some() {
            out.rows.push(LearnedRow::Interface(Change::del(IntfKey::Interface(name.clone()))));
        }
    }

    /// Takes back the row of a VRF.
    pub(super) fn retract_vrf(&mut self, name: &Name, out: &mut BesideOut) {
        if self.announced.vrfs.remove(name) {
            self.announced.waiting_vrfs.retain(|other| other != name);
            out.rows.push(LearnedRow::Vrf(Change::del(name.clone())));
        }
    }

    /// Sends a row again that was taken back, since its object stays.
    pub(super) fn announce_again(&mut self, what: &StandsFor, out: &mut BesideOut) {
        match what {
            StandsFor::Interface(name) => {
                if let Some(oid) = self.learned.interface(name) {
                    self.announce_interface(oid, out);
                }
            }
            StandsFor::NextHop(name, ip) => {
                let hop = self.learned.interface(name).and_then(|oid| self.learned.next_hop(oid, *ip));
                if let Some(oid) = hop {
                    self.announce_next_hop(oid, out);
                }
            }
            StandsFor::Router(name) => {
                if self.learned.router(&Some(name.clone())).is_some() {
                    self.announce_vrf(&name.clone(), out);
                }
            }
            StandsFor::Lower(_) => {}
        }
    }

    /// Sends the row of an own address, or takes it back. A destination of many addresses that SONiC's
    /// orchagent sends to the CPU (fe80::/10) is no address of an interface, and has no row.
    fn announce_own(&mut self, router: Oid, prefix: AnyPrefix, there: bool, out: &mut BesideOut) {
        if !prefix.is_host() {
            return;
        }
        let Some(vrf) = self.learned.vrf(router) else { return };
        match there {
            true => {
                self.begin_rows(out);
                if let Some(vrf) = &vrf {
                    self.announce_vrf(vrf, out);
                }
                if self.announced.own.insert((vrf.clone(), prefix)) {
                    let name = own_interface(&vrf);
                    if let Some(vrf) = vrf {
                        let row = IntfRow { vrf_name: Some(vrf), ..IntfRow::default() };
                        let key = IntfKey::Interface(name.clone());
                        out.rows.push(LearnedRow::Interface(Change::set(key, row)));
                    }
                    let key = IntfKey::Address(name, prefix.addr(), prefix.len());
                    out.rows.push(LearnedRow::Interface(Change::set(key, IntfRow::default())));
                }
            }
            false => self.retract_own(vrf, prefix, out),
        }
    }

    fn retract_own(&mut self, vrf: Option<Name>, prefix: AnyPrefix, out: &mut BesideOut) {
        if self.announced.own.remove(&(vrf.clone(), prefix)) {
            let key = IntfKey::Address(own_interface(&vrf), prefix.addr(), prefix.len());
            out.rows.push(LearnedRow::Interface(Change::del(key)));
        }
    }

    /// Takes in the link states of a notification.
    pub(super) fn link_states(&mut self, text: &str, out: &mut BesideOut) {
        match read_port_state_change(text) {
            Some(Ok(states)) => {
                for state in states {
                    self.link_state(state.port, state.status == OperStatus::Up, out);
                }
            }
            Some(Err(why)) => out.events.push(BesideEvent::UnreadableLinks(why.to_string())),
            None => {}
        }
    }

    fn link_state(&mut self, port: Oid, up: bool, out: &mut BesideOut) {
        if self.announced.links.insert(port, up) != Some(up) {
            self.announce_links(port, up, out);
        }
    }

    /// Takes in the link state of a port or LAG by name (`oper_status` of PORT_TABLE and LAG_TABLE).
    pub fn link(&mut self, lower: &str, up: bool, out: &mut BesideOut) {
        if self.announced.links_by_name.insert(lower.into(), up) != Some(up)
            && let Some(lower) = self.learned.lower_of_name(lower)
        {
            self.announce_links(lower, up, out);
        }
    }

    /// Sends the link state of every interface above a port or LAG.
    fn announce_links(&mut self, lower: Oid, up: bool, out: &mut BesideOut) {
        for oid in self.learned.interfaces_on(lower) {
            let known = self.learned.interface_name(oid);
            if let Some(name) = known.filter(|name| self.announced.lanes.contains_key(name)) {
                let row = PortRow { oper_up: Some(up), ..PortRow::default() };
                out.rows.push(LearnedRow::Port(Change::set(PortKey::Port(name), row)));
            }
        }
    }
}
