//! Ports (`orchagent/portsorch.cpp`): the chip's port of each row, and the gate that holds all
//! other tables until the ports are ready.

use super::bulker::{ObjectReply, Outcome, Requester};
use super::outbox::{Notification, Outbox};
use super::to_sync::ToSync;
use crate::row::{Change, Name, PortKey, PortRow, Row};
use crate::sai::{Attr, Item, ObjectType, Oid, Verb};
use ribtide_prefix::Map;

/// The ports of PORT_TABLE and those of the chip.
#[derive(Default)]
pub(super) struct Ports {
    to_sync: ToSync<PortRow>,
    rows: Map<Name, PortRow>,
    by_lanes: Map<Box<[u32]>, Oid>,
    /// Ports that have an id in the chip.
    ready: Map<Name, Oid>,
    /// Ports with a create request in flight.
    requested: Map<Name, Oid>,
    config_done: Option<u32>,
    init_done: bool,
}

impl Ports {
    /// Takes in a change of PORT_TABLE.
    pub(super) fn add(&mut self, change: Change<PortRow>) {
        self.to_sync.add(change);
    }

    /// Whether all announced ports are in the chip and the host is ready for them. An open gate
    /// stays open.
    pub(super) fn ready(&self) -> bool {
        self.init_done && self.config_done.is_some_and(|count| self.ready.len() >= count as usize)
    }

    /// A port's id in the chip.
    pub(super) fn oid(&self, name: &Name) -> Option<Oid> {
        self.ready.get(name).copied()
    }

    /// Takes in the lanes of a port of the chip.
    pub(super) fn set_lanes(&mut self, mut lanes: Box<[u32]>, port: Oid) {
        lanes.sort_unstable();
        self.by_lanes.insert(lanes, port);
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
        if let Some(up) = row.oper_up {
            outbox.notify(Notification::PortLink(name.clone(), up));
        }
        outbox.back_off.forget(&Requester::Port(name.clone()));
        let known = self.rows.entry(name.clone()).or_default();
        let before = known.clone();
        known.merge(row);
        let now = known.clone();
        if let Some(&oid) = self.ready.get(&name) {
            return set_port(&name, oid, &before, &now, outbox);
        }
        self.create(name, now, outbox);
    }

    /// Finds the chip's port of a row, or requests one.
    fn create(&mut self, name: Name, row: PortRow, outbox: &mut Outbox) {
        if self.requested.contains_key(&name) {
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
        self.requested.insert(name.clone(), oid);
        outbox.bulker.enqueue(Verb::Create, ObjectType::Port, Requester::Port(name), item);
    }

    /// Requests again what the chip refused of a port.
    pub(super) fn retry(&mut self, name: Name, outbox: &mut Outbox) {
        let row = self.rows.get(&name).cloned().unwrap_or_default();
        match self.ready.get(&name) {
            Some(oid) => set_port(&name, *oid, &PortRow::default(), &row, outbox),
            None => self.create(name, row, outbox),
        }
    }

    fn port_ready(&mut self, name: Name, oid: Oid, outbox: &mut Outbox) {
        self.ready.insert(name.clone(), oid);
        let row = self.rows.get(&name).cloned().unwrap_or_default();
        set_port(&name, oid, &PortRow::default(), &row, outbox);
        outbox.notify(Notification::PortReady(name, oid));
    }

    /// Takes in the reply to a request for a port.
    pub(super) fn reply(&mut self, name: &Name, reply: ObjectReply, outbox: &mut Outbox) {
        let requested = self.requested.remove(name);
        match (reply.verb, reply.outcome(), requested) {
            (Verb::Create, Outcome::Done, Some(oid)) => {
                outbox.back_off.forget(&Requester::Port(name.clone()));
                self.port_ready(name.clone(), oid, outbox);
            }
            // Another attribute of the port may be refused.
            (_, Outcome::Done, _) => {}
            _ => {
                let what = reply.item.attrs.first().map_or("", |attr| attr.name());
                let what = format_args!("port {name} ({what})");
                outbox.refused(Requester::Port(name.clone()), &reply, what);
            }
        }
    }
}

/// Requests the attributes that differ between two rows of a port.
fn set_port(name: &Name, oid: Oid, before: &PortRow, now: &PortRow, outbox: &mut Outbox) {
    let changed = [
        now.mtu.filter(|_| now.mtu != before.mtu).map(Attr::PortMtu),
        now.admin_up.filter(|_| now.admin_up != before.admin_up).map(Attr::PortAdminState),
    ];
    for attr in changed.into_iter().flatten() {
        let item = Item::new(oid, [attr]);
        outbox.bulker.enqueue(Verb::Set, ObjectType::Port, Requester::Port(name.clone()), item);
    }
}

fn parse_lanes(text: &str) -> Option<Box<[u32]>> {
    let mut lanes: Box<[u32]> =
        text.split(',').map(|lane| lane.trim().parse().ok()).collect::<Option<_>>()?;
    lanes.sort_unstable();
    Some(lanes)
}
