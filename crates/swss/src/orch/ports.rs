//! Ports: finding each in the chip, and the gate that holds all else until they are there.

use super::requests::{Requester, outcome};
use super::to_sync::ToSync;
use super::{Orch, OrchOut};
use crate::row::{Name, PortKey, PortRow, Row};
use crate::sai::{Attr, Item, ObjectType, Oid, Status, Verb};
use ribtide_prefix::Map;

/// The ports that rows name, and those that the chip has.
#[derive(Default)]
pub(super) struct Ports {
    pub(super) changes: ToSync<PortRow>,
    rows: Map<Name, PortRow>,
    by_lanes: Map<Box<[u32]>, Oid>,
    /// Ports that have their number in the chip.
    found: Map<Name, Oid>,
    /// Ports that the chip was asked to make.
    asked: Map<Name, Oid>,
    config_done: Option<u32>,
    init_done: bool,
}

impl Ports {
    /// Whether all announced ports are there and the host is ready for them. Once open, the gate stays open.
    pub(super) fn ready(&self) -> bool {
        self.init_done && self.config_done.is_some_and(|count| self.found.len() >= count as usize)
    }

    /// A port's number in the chip.
    pub(super) fn oid(&self, name: &Name) -> Option<Oid> {
        self.found.get(name).copied()
    }

    /// Takes in which lanes a port of the chip has.
    pub(super) fn found(&mut self, mut lanes: Box<[u32]>, port: Oid) {
        lanes.sort_unstable();
        self.by_lanes.insert(lanes, port);
    }
}

fn parse_lanes(text: &str) -> Option<Box<[u32]>> {
    let mut lanes: Box<[u32]> =
        text.split(',').map(|lane| lane.trim().parse().ok()).collect::<Option<_>>()?;
    lanes.sort_unstable();
    Some(lanes)
}

impl Orch {
    pub(super) fn sync_ports(&mut self, out: &mut OrchOut) {
        for (key, pending) in self.ports.changes.take() {
            match (key, pending.set) {
                (PortKey::ConfigDone, Some(row)) => self.ports.config_done = Some(row.count.unwrap_or(0)),
                (PortKey::InitDone, Some(_)) => self.ports.init_done = true,
                (PortKey::Port(name), Some(row)) => self.sync_port(name, row, out),
                (PortKey::Port(name), None) => {
                    out.refused(
                        format_args!("the removal of port {name}"),
                        "ports are made once, at the start",
                    );
                }
                // The marker keys stay.
                (_, None) => {}
            }
        }
    }

    fn sync_port(&mut self, name: Name, row: PortRow, out: &mut OrchOut) {
        if let Some(up) = row.oper_up {
            let id = self.interfaces.id_of(&name);
            self.set_link(id, up, out);
        }
        let known = self.ports.rows.entry(name.clone()).or_default();
        let before = known.clone();
        known.merge(row);
        let now = known.clone();
        if let Some(&oid) = self.ports.found.get(&name) {
            return self.set_port(&name, oid, &before, &now);
        }
        if self.ports.asked.contains_key(&name) {
            return;
        }
        let Some(text) = &now.lanes else { return };
        let Some(lanes) = parse_lanes(text) else {
            out.refused(format_args!("port {name}"), format!("its lanes \"{text}\" are not numbers"));
            return;
        };
        if let Some(oid) = self.ports.by_lanes.get(&lanes).copied() {
            self.port_found(name, oid, out);
            return;
        }
        let speed = now.speed.map(Attr::PortSpeed);
        let attrs: Vec<Attr> = std::iter::once(Attr::PortLanes(lanes)).chain(speed).collect();
        let oid = self.number(ObjectType::Port, &attrs, out);
        let item = Item::new(oid, attrs);
        self.ports.asked.insert(name.clone(), oid);
        self.requests.enqueue(Verb::Create, ObjectType::Port, Requester::Port(name), item);
    }

    fn port_found(&mut self, name: Name, oid: Oid, out: &mut OrchOut) {
        self.ports.found.insert(name.clone(), oid);
        let row = self.ports.rows.get(&name).cloned().unwrap_or_default();
        self.set_port(&name, oid, &PortRow::default(), &row);
        let id = self.interfaces.id_of(&name);
        self.interfaces.get_mut(id).port = Some(oid);
        self.step_interface(id, out);
    }

    /// Asks for what a row says otherwise than before.
    fn set_port(&mut self, name: &Name, oid: Oid, before: &PortRow, now: &PortRow) {
        let changed = [
            now.mtu.filter(|_| now.mtu != before.mtu).map(Attr::PortMtu),
            now.admin_up.filter(|_| now.admin_up != before.admin_up).map(Attr::PortAdminState),
        ];
        for attr in changed.into_iter().flatten() {
            let item = Item::new(oid, [attr]);
            self.requests.enqueue(Verb::Set, ObjectType::Port, Requester::Port(name.clone()), item);
        }
    }

    pub(super) fn port_reply(
        &mut self,
        name: &Name,
        verb: Verb,
        item: Item,
        status: Status,
        out: &mut OrchOut,
    ) {
        let asked = self.ports.asked.remove(name);
        match (verb, outcome(verb, status), asked) {
            (Verb::Create, super::requests::Outcome::Done, Some(oid)) => {
                self.port_found(name.clone(), oid, out)
            }
            (_, super::requests::Outcome::Done, _) => {}
            _ => {
                let what = item.attrs.first().map_or("", |attr| attr.name());
                out.failed(format_args!("port {name} ({what})"), status);
            }
        }
    }
}
