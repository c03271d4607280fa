//! The links of the ports: the state that each has, and reports of changes.
//!
//! A port is up when it is enabled and its link is there. Links are outside of the chip: they stay
//! as they are when the switch is created again.

use crate::VirtualSwitch;
use ribtide_prefix::{Map, Set};
use ribtide_swss::Name;
use ribtide_swss::sai::notification::{PORT_STATE_CHANGE_NOTIFY, PortState};
use ribtide_swss::sai::{Attr, Oid, OperStatus};

/// The links.
#[derive(Default)]
pub(crate) struct Links {
    /// The ports, by name, whose link was taken away.
    down: Set<Name>,
    /// The ports, by name, whose device has no carrier.
    no_carrier: Set<Name>,
    /// The state that was reported last of each port; down without any.
    reported: Map<Oid, OperStatus>,
    /// Whether a state may differ from the reported one.
    pub(crate) changed: bool,
    /// Whether the next reports are of all ports.
    all: bool,
}

impl Links {
    /// The links of the next switch of the same chip.
    pub(crate) fn after(&mut self) -> Links {
        let (down, no_carrier) = (std::mem::take(&mut self.down), std::mem::take(&mut self.no_carrier));
        Links { down, no_carrier, ..Links::default() }
    }
}

/// A port, for look-ups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortLink {
    /// Its name.
    pub name: Name,
    /// Whether it is enabled.
    pub admin_up: bool,
    /// Whether its link is there.
    pub link: bool,
}

impl VirtualSwitch {
    /// Takes the link of a port away, or gives it back: a fault on demand.
    ///
    /// # Errors
    /// A sentence when no port has this name.
    pub fn set_link(&mut self, name: &str, up: bool) -> Result<(), String> {
        if !self.has_port(name) {
            return Err(format!("the switch has no port {name}"));
        }
        match up {
            true => self.links.down.remove(name),
            false => self.links.down.insert(name.into()),
        };
        self.links.changed = true;
        self.packets.link_changed();
        Ok(())
    }

    /// Takes in whether the device of a port has a carrier. Without a device each port has one.
    pub fn set_carrier(&mut self, name: &str, up: bool) {
        self.links.changed |= match up {
            true => self.links.no_carrier.remove(name),
            false => self.links.no_carrier.insert(name.into()),
        };
        self.packets.link_changed();
    }

    fn has_link(&self, name: &str) -> bool {
        !self.links.down.contains(name) && !self.links.no_carrier.contains(name)
    }

    /// The ports by name, without the CPU's.
    pub fn ports(&self) -> Vec<PortLink> {
        let port = |oid: Oid| {
            let name = self.port_names.get(&oid).cloned().unwrap_or_default();
            PortLink { admin_up: self.is_enabled(oid), link: self.has_link(&name), name }
        };
        let mut ports: Vec<PortLink> = self.front_ports().map(port).collect();
        ports.sort_unstable_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        ports
    }

    fn is_enabled(&self, port: Oid) -> bool {
        let enabled = |attr: &Attr| if let Attr::PortAdminState(up) = attr { Some(*up) } else { None };
        self.objects.find(port, enabled).unwrap_or(false)
    }

    /// The link state of a port.
    pub(crate) fn oper_status(&self, port: Oid) -> OperStatus {
        let has_link = self.port_names.get(&port).is_none_or(|name| self.has_link(name));
        if self.is_enabled(port) && has_link { OperStatus::Up } else { OperStatus::Down }
    }

    /// Whether the switch was created by a client that wants reports of link states.
    fn reports_links(&self) -> bool {
        let Some(started) = &self.started else { return false };
        let pointer = |attr: &Attr| match attr {
            Attr::Other(raw) if raw.name() == PORT_STATE_CHANGE_NOTIFY => {
                Some(raw.value().to_string() != "0x0")
            }
            _ => None,
        };
        self.objects.find(started.switch, pointer).unwrap_or(false)
    }

    /// The link states that changed since the last call; see [`ribtide_swss::sai::Sai::port_states`].
    pub(crate) fn take_port_states(&mut self) -> Vec<PortState> {
        if !std::mem::take(&mut self.links.changed) {
            return Vec::new();
        }
        if !self.reports_links() {
            // The next client reads them.
            return Vec::new();
        }
        let all = std::mem::take(&mut self.links.all);
        let mut states: Vec<PortState> =
            self.front_ports().map(|port| PortState { port, status: self.oper_status(port) }).collect();
        let reported = &mut self.links.reported;
        states.retain(|PortState { port, status }| {
            reported.insert(*port, *status).unwrap_or(OperStatus::Down) != *status || all
        });
        states.sort_unstable_by_key(|state| state.port);
        states
    }

    /// See [`ribtide_swss::sai::Sai::report_all_ports`].
    pub(crate) fn report_all(&mut self) {
        (self.links.changed, self.links.all) = (true, true);
    }
}
