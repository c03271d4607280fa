//! Ports (`orchagent/portsorch.cpp`): the chip's port of each row, its link state, and the gate that
//! holds all other tables until the ports are ready.
//!
//! The chip's link state counts, which it reports itself (`port_state_change`) and which is read once
//! a port has its administrative state, and again after notifications may have been lost. Until it is
//! known, `oper_status` of PORT_TABLE counts; a port without either is up.

mod lags_and_vlans;

use super::bulker::{Context, ObjectReply, Outcome, Requester};
use super::outbox::{Notification, Outbox};
use super::to_sync::ToSync;
use crate::row::{Change, Name, PortKey, PortRow, Row};
use crate::sai::notification::PortState;
use crate::sai::{Attr, Item, ObjectType, Oid, OperStatus, SaiCall, SaiReply, Verb};
pub(super) use lags_and_vlans::PortObject;
use lags_and_vlans::PortObjects;
use ribtide_prefix::Map;

/// A report of a port's link state, for PORT_TABLE of APPL_DB and of STATE_DB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// The port.
    pub name: Name,
    /// Its link state.
    pub status: OperStatus,
    /// How often the link state has changed, if this is a change; `None` when PORT_TABLE had none.
    pub flap_count: Option<u64>,
}

impl PortReport {
    /// The value of `oper_status` (`oper_status_strings`, `orchagent/portsorch.h`).
    pub fn oper_status(&self) -> &'static str {
        match self.status {
            OperStatus::Unknown => "unknown",
            OperStatus::Up => "up",
            OperStatus::Down => "down",
            OperStatus::Testing => "testing",
            OperStatus::NotPresent => "not present",
        }
    }
}

/// What lies under a router interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lower {
    /// A port or a LAG.
    Port(Oid),
    /// A VLAN.
    Vlan(Oid),
}

/// A port of PORT_TABLE.
#[derive(Default)]
struct Port {
    row: PortRow,
    /// Its id in the chip.
    oid: Option<Oid>,
    /// Its id in a create request in flight.
    requested: Option<Oid>,
    /// Its link state, by the chip.
    status: Option<OperStatus>,
    /// The link state in PORT_TABLE.
    written: Option<OperStatus>,
    flap_count: u64,
    /// Reads of the link state that are in flight or wait for one; a notification that comes
    /// meanwhile may be newer, so the reply to the first of two counts for nothing.
    read: Read,
    /// Router interfaces on it.
    rifs: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Read {
    #[default]
    None,
    InFlight,
    /// In flight, and its reply may be older than what is known.
    Outdated,
}

impl Port {
    fn is_up(&self) -> bool {
        match self.status {
            Some(status) => status == OperStatus::Up,
            None => self.row.oper_up.unwrap_or(true),
        }
    }
}

/// The ports of PORT_TABLE and those of the chip.
#[derive(Default)]
pub(super) struct Ports {
    to_sync: ToSync<PortRow>,
    ports: Map<Name, Port>,
    by_oid: Map<Oid, Name>,
    by_lanes: Map<Box<[u32]>, Oid>,
    /// How many ports have an id in the chip.
    ready: u32,
    config_done: Option<u32>,
    init_done: bool,
    /// LAGs, VLANs, their members, and bridge ports.
    objects: PortObjects,
    /// [`super::OrchConfig::reports_ports`].
    reports: bool,
    /// [`super::OrchConfig::host_interfaces`].
    host_interfaces: bool,
}

impl Ports {
    pub(super) fn new(reports: bool, host_interfaces: bool) -> Ports {
        Ports { reports, host_interfaces, ..Ports::default() }
    }

    /// Takes in a change of PORT_TABLE.
    pub(super) fn add(&mut self, change: Change<PortRow>) {
        self.to_sync.add(change);
    }

    /// Whether all announced ports are in the chip and the host is ready for them. An open gate
    /// stays open.
    pub(super) fn ready(&self) -> bool {
        self.init_done && self.config_done.is_some_and(|count| self.ready >= count)
    }

    /// Takes in the lanes of a port of the chip.
    pub(super) fn set_lanes(&mut self, mut lanes: Box<[u32]>, port: Oid) {
        lanes.sort_unstable();
        self.by_lanes.insert(lanes, port);
    }

    /// What a router interface on this port, LAG or VLAN lies on, if new ones may be made on it.
    pub(super) fn lower(&self, name: &Name) -> Option<Lower> {
        match self.ports.get(name) {
            Some(port) => port.oid.map(Lower::Port),
            None => self.objects.lower(name),
        }
    }

    /// The same, with an id that is only requested yet.
    pub(super) fn expected_oid(&self, name: &Name) -> Option<Oid> {
        match self.ports.get(name) {
            Some(port) => port.oid.or(port.requested),
            None => self.objects.expected_oid(name),
        }
    }

    /// The MTU of router interfaces on a port, LAG or VLAN.
    pub(super) fn mtu(&self, name: &Name) -> Option<u32> {
        match self.ports.get(name) {
            Some(port) => port.row.mtu,
            None => self.objects.mtu(name),
        }
    }

    /// Counts a router interface on a port, LAG or VLAN.
    pub(super) fn hold(&mut self, name: &Name) {
        match self.ports.get_mut(name) {
            Some(port) => port.rifs += 1,
            None => self.objects.hold(name),
        }
    }

    /// Counts a router interface less.
    pub(super) fn release(&mut self, name: &Name, outbox: &mut Outbox) {
        match self.ports.get_mut(name) {
            Some(port) => port.rifs -= 1,
            None => self.objects.release(name),
        }
        self.step_on(name, outbox);
    }

    /// Handles the changes of PORT_TABLE.
    pub(super) fn sync(&mut self, outbox: &mut Outbox) {
        for (key, pending) in self.to_sync.take() {
            match (key, pending.set) {
                (PortKey::ConfigDone, Some(row)) => self.config_done = Some(row.count.unwrap_or(0)),
                (PortKey::InitDone, Some(_)) => self.init_done = true,
                (PortKey::Port(name), Some(row)) => self.sync_port(name, row, outbox),
                (PortKey::Port(name), None) => {
                    outbox.out.refused(
                        format_args!("the removal of port {name}"),
                        "ports are made once, at the start",
                    );
                }
                // A deletion of a marker key does not close the gate.
                (_, None) => {}
            }
        }
    }

    fn sync_port(&mut self, name: Name, row: PortRow, outbox: &mut Outbox) {
        outbox.back_off.forget(&Requester::Port(name.clone()));
        let port = self.ports.entry(name.clone()).or_default();
        let before = port.row.clone();
        let status = row.oper_up.map(|up| if up { OperStatus::Up } else { OperStatus::Down });
        port.written = status.or(port.written);
        port.flap_count = row.flap_count.unwrap_or(port.flap_count);
        let mtu_changes = row.mtu.is_some_and(|mtu| before.mtu != Some(mtu));
        port.row.merge(row);
        let now = port.row.clone();
        if status.is_some() && port.status.is_none() {
            let up = port.is_up();
            self.link_changed(&name, up, outbox);
        }
        if mtu_changes {
            outbox.notify(Notification::LowerChanged(name.clone()));
        }
        match self.ports.get(&name).and_then(|port| port.oid) {
            Some(oid) => drop(set_port(&name, oid, &before, &now, outbox)),
            None => self.create(name, now, outbox),
        }
    }

    /// Finds the chip's port of a row, or requests one.
    fn create(&mut self, name: Name, row: PortRow, outbox: &mut Outbox) {
        let port = self.ports.entry(name.clone()).or_default();
        if port.requested.is_some() {
            return;
        }
        let Some(text) = &row.lanes else { return };
        let Some(lanes) = parse_lanes(text) else {
            outbox.out.refused(format_args!("port {name}"), format!("its lanes \"{text}\" are not numbers"));
            return;
        };
        if let Some(oid) = self.by_lanes.get(&lanes).copied() {
            self.port_ready(name, oid, outbox);
            return;
        }
        let speed = row.speed.map(Attr::PortSpeed);
        let attrs: Vec<Attr> = std::iter::once(Attr::PortLanes(lanes)).chain(speed).collect();
        let oid = outbox.object_id(ObjectType::Port, &attrs);
        let item = Item::new(oid, attrs);
        port.requested = Some(oid);
        outbox.bulker.enqueue(Verb::Create, ObjectType::Port, Requester::Port(name), item);
    }

    /// Requests again what the chip refused of a port.
    pub(super) fn retry(&mut self, name: Name, outbox: &mut Outbox) {
        let port = self.ports.entry(name.clone()).or_default();
        let row = port.row.clone();
        match port.oid {
            Some(oid) => {
                set_port(&name, oid, &PortRow::default(), &row, outbox);
                self.set_vlan(&name, oid, outbox);
            }
            None => self.create(name, row, outbox),
        }
    }

    fn port_ready(&mut self, name: Name, oid: Oid, outbox: &mut Outbox) {
        let port = self.ports.entry(name.clone()).or_default();
        self.ready += u32::from(port.oid.replace(oid).is_none());
        let row = port.row.clone();
        self.by_oid.insert(oid, name.clone());
        if port.written.is_none() && self.reports {
            port.written = Some(OperStatus::Down);
            let report = PortReport { name: name.clone(), status: OperStatus::Down, flap_count: None };
            outbox.out.port_reports.push(report);
        }
        let sets_admin_state = set_port(&name, oid, &PortRow::default(), &row, outbox);
        outbox.notify(Notification::LowerReady(name.clone()));
        self.step_on(&name, outbox);
        self.want_host_interface(&name, outbox);
        // Else when the chip has it, since links follow it.
        if !sets_admin_state {
            self.read_status(&name, outbox);
        }
    }

    /// Takes in the reply to a request for a port.
    pub(super) fn reply(&mut self, name: &Name, reply: ObjectReply, outbox: &mut Outbox) {
        let port = self.ports.entry(name.clone()).or_default();
        let requested = port.requested.take();
        match (reply.verb, reply.outcome(), requested) {
            (Verb::Create, Outcome::Done, Some(oid)) => {
                outbox.back_off.forget(&Requester::Port(name.clone()));
                self.port_ready(name.clone(), oid, outbox);
            }
            // Another attribute of the port may be refused.
            (_, Outcome::Done, _) => {
                if reply.item.attrs.iter().any(|attr| matches!(attr, Attr::PortAdminState(_))) {
                    self.read_status(name, outbox);
                }
            }
            _ => {
                let what = reply.item.attrs.first().map_or("", |attr| attr.name());
                let what = format_args!("port {name} ({what})");
                outbox.refused(Requester::Port(name.clone()), &reply, what);
            }
        }
    }

    /// Reads the link state of a port, if no read is in flight.
    fn read_status(&mut self, name: &Name, outbox: &mut Outbox) {
        let Some(port) = self.ports.get_mut(name).filter(|_| self.reports) else { return };
        let Some(oid) = port.oid else { return };
        let in_flight = port.read != Read::None;
        port.read = if in_flight { Read::Outdated } else { Read::InFlight };
        if !in_flight {
            let attrs = vec![Attr::PortOperStatus(OperStatus::Unknown)];
            let call = SaiCall::Get { object: ObjectType::Port, id: oid.into(), attrs };
            outbox.bulker.call(call, Context::PortStatus(name.clone()));
        }
    }

    /// Reads the link states of all ports: notifications may have been lost.
    pub(super) fn read_all(&mut self, outbox: &mut Outbox) {
        let names: Vec<Name> = self.ports.keys().cloned().collect();
        names.iter().for_each(|name| self.read_status(name, outbox));
    }

    /// Takes in the reply to a read of a port's link state. A chip that does not know it leaves it
    /// as it is.
    pub(super) fn status_reply(&mut self, name: &Name, reply: &SaiReply, outbox: &mut Outbox) {
        let Some(port) = self.ports.get_mut(name) else { return };
        let read = std::mem::take(&mut port.read);
        if read == Read::Outdated {
            return self.read_status(name, outbox);
        }
        let status = reply.values.iter().find_map(|value| match value {
            Attr::PortOperStatus(status) if reply.status.is_success() => Some(*status),
            _ => None,
        });
        if let Some(status) = status {
            self.set_status(name.clone(), status, outbox);
        }
    }

    /// Takes in a notification of link states. A port that no row names is none of orchagent's.
    pub(super) fn states(&mut self, states: &[PortState], outbox: &mut Outbox) {
        for PortState { port, status } in states {
            let Some(name) = self.by_oid.get(port).cloned() else { continue };
            if let Some(port) = self.ports.get_mut(&name)
                && port.read == Read::InFlight
            {
                port.read = Read::Outdated;
            }
            self.set_status(name, *status, outbox);
        }
    }

    fn set_status(&mut self, name: Name, status: OperStatus, outbox: &mut Outbox) {
        let Some(port) = self.ports.get_mut(&name) else { return };
        let was_up = port.is_up();
        let before = port.status.replace(status);
        if port.written.replace(status) != Some(status) {
            port.flap_count += 1;
            let flap_count = Some(port.flap_count);
            outbox.out.port_reports.push(PortReport { name: name.clone(), status, flap_count });
        }
        let up = port.is_up();
        if up && let Some(oid) = port.oid.filter(|_| before != Some(status)) {
            let attrs = vec![Attr::PortOperSpeed(0)];
            let call = SaiCall::Get { object: ObjectType::Port, id: oid.into(), attrs };
            outbox.bulker.call(call, Context::PortSpeed(name.clone()));
        }
        if up != was_up {
            self.link_changed(&name, up, outbox);
        }
    }

    /// A port's link went up or down: so may the LAG that it is in.
    fn link_changed(&mut self, name: &Name, up: bool, outbox: &mut Outbox) {
        outbox.notify(Notification::Link(name.clone(), up));
        for lag in self.objects.lags_of(name) {
            self.notify_lag(&lag, outbox);
        }
    }
}

/// Requests the attributes that differ between two rows of a port. Returns whether the administrative
/// state is among them.
fn set_port(name: &Name, oid: Oid, before: &PortRow, now: &PortRow, outbox: &mut Outbox) -> bool {
    let admin_state = now.admin_up.filter(|_| now.admin_up != before.admin_up);
    let changed =
        [now.mtu.filter(|_| now.mtu != before.mtu).map(Attr::PortMtu), admin_state.map(Attr::PortAdminState)];
    for attr in changed.into_iter().flatten() {
        let item = Item::new(oid, [attr]);
        outbox.bulker.enqueue(Verb::Set, ObjectType::Port, Requester::Port(name.clone()), item);
    }
    admin_state.is_some()
}

fn parse_lanes(text: &str) -> Option<Box<[u32]>> {
    let mut lanes: Box<[u32]> =
        text.split(',').map(|lane| lane.trim().parse().ok()).collect::<Option<_>>()?;
    lanes.sort_unstable();
    Some(lanes)
}
