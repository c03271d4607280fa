//! Ports, interfaces, addresses and neighbours of the switch, and their change while routes flow.
//!
//! A port is never removed, because SONiC's orchagent removes none. An interface that comes back gets the lanes, and so the port,
//! that it had.

use super::{InProcess, SPEED, lanes, neighbor};
use ribtide_config::InterfaceConfig;
use ribtide_runtime::call::NoReply;
use ribtide_swss::Change;
use ribtide_swss::orch::Orch;
use ribtide_swss::row::{IntfKey, IntfRow, Mac, Name, NeighKey, NeighRow, PortKey, PortRow};
use ribtide_vswitch::PortSetup;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The interfaces. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Interfaces(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    configured: Vec<InterfaceConfig>,
    /// The interface of each port that was ever made; the place gives the lanes.
    ports: Vec<Name>,
}

impl Interfaces {
    /// Those of the start, each with a port.
    pub(super) fn new(configured: &[InterfaceConfig]) -> Interfaces {
        let ports = configured.iter().map(|interface| interface.name.as_str().into()).collect();
        Interfaces(Arc::new(Mutex::new(State { configured: configured.to_vec(), ports })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<Name> {
        self.lock().configured.iter().map(|interface| interface.name.as_str().into()).collect()
    }
}

/// The port of an interface in the switch.
pub(super) fn port_setup(at: usize, name: &str) -> PortSetup {
    PortSetup { name: name.into(), lanes: lanes(at), speed: SPEED }
}

/// Sends orchagent the row of a port, as SONiC's portsyncd would.
pub(super) fn port(orch: &mut Orch, at: usize, name: &Name) {
    orch.port(Change::set(PortKey::Port(name.clone()), PortRow::up(&lanes(at), SPEED)));
}

/// Sends orchagent the addresses and neighbours of an interface, as far as they differ from the `former` ones.
pub(super) fn describe(orch: &mut Orch, former: Option<&InterfaceConfig>, now: &InterfaceConfig) {
    let name: Name = now.name.as_str().into();
    let (addresses, neighbors) =
        former.map_or((&[][..], &[][..]), |former| (&former.addresses, &former.neighbors));
    for (address, len) in now.addresses.iter().filter(|address| !addresses.contains(address)) {
        let row =
            IntfRow { scope: Some("global".into()), ipv6: Some(address.is_ipv6()), ..IntfRow::default() };
        orch.interface(Change::set(IntfKey::Address(name.clone(), *address, *len), row));
    }
    for (address, len) in addresses.iter().filter(|address| !now.addresses.contains(address)) {
        orch.interface(Change::del(IntfKey::Address(name.clone(), *address, *len)));
    }
    for (ip, mac) in now.neighbors.iter().filter(|neighbor| !neighbors.contains(neighbor)) {
        orch.neighbor(neighbor(NeighKey { ifname: name.clone(), ip: *ip }, Mac(*mac)));
    }
    for (ip, _) in neighbors.iter().filter(|(ip, _)| now.neighbors.iter().all(|(other, _)| other != ip)) {
        orch.neighbor(no_neighbor(NeighKey { ifname: name.clone(), ip: *ip }));
    }
}

/// Deletes the rows of an interface, and of all neighbours on it.
fn withdraw(orch: &mut Orch, gone: &InterfaceConfig) {
    let name: Name = gone.name.as_str().into();
    for ip in orch.neighbors_on(&name) {
        orch.neighbor(no_neighbor(NeighKey { ifname: name.clone(), ip }));
    }
    for (address, len) in &gone.addresses {
        orch.interface(Change::del(IntfKey::Address(name.clone(), *address, *len)));
    }
    orch.interface(Change::del(IntfKey::Interface(name)));
}

fn no_neighbor(key: NeighKey) -> Change<NeighRow> {
    Change::del(key)
}

impl InProcess {
    /// Adds interfaces, and changes the addresses and neighbours of others. Call it before the RIB manager has them, and
    /// [`InProcess::set_vrfs`] after it.
    ///
    /// # Errors
    /// A stage has stopped or is too busy.
    pub fn set_interfaces(&self, interfaces: &[InterfaceConfig]) -> Result<(), NoReply> {
        let mut state = self.interfaces.lock();
        let mut made = Vec::new();
        for interface in interfaces {
            let name: Name = interface.name.as_str().into();
            if !state.ports.contains(&name) {
                made.push((state.ports.len(), name.clone()));
                state.ports.push(name);
            }
        }
        let setups: Vec<_> = made.iter().map(|(at, name)| port_setup(*at, name)).collect();
        self.syncd.call(move |stage| {
            setups.into_iter().for_each(|port| stage.syncd.chip_mut().expect_port(port));
        })?;
        let links: Vec<_> = interfaces.iter().map(|i| (i.index, i.name.clone())).collect();
        self.fpmsyncd.call(move |fpm| {
            links.iter().for_each(|(index, name)| fpm.machine.link(*index, name, &mut fpm.out));
        })?;
        let former = state.configured.clone();
        let now = interfaces.to_vec();
        // Removed ones stay until the RIB manager has none of their routes.
        state.configured.retain(|known| interfaces.iter().all(|new| new.name != known.name));
        state.configured.extend(now.iter().cloned());
        self.orchagent.call(move |stage| {
            made.iter().for_each(|(at, name)| port(&mut stage.orch, *at, name));
            for interface in &now {
                let former = former.iter().find(|former| former.name == interface.name);
                describe(&mut stage.orch, former, interface);
            }
        })
    }

    /// Removes all other interfaces. Call it after the RIB manager has forgotten them.
    ///
    /// # Errors
    /// The stage has stopped or is too busy.
    pub fn drop_other_interfaces(&self, interfaces: &[InterfaceConfig]) -> Result<(), NoReply> {
        let mut state = self.interfaces.lock();
        let stays = |known: &InterfaceConfig| interfaces.iter().any(|new| new.name == known.name);
        let (configured, gone) = std::mem::take(&mut state.configured).into_iter().partition(stays);
        state.configured = configured;
        let gone: Vec<InterfaceConfig> = gone;
        self.orchagent.call(move |stage| gone.iter().for_each(|gone| withdraw(&mut stage.orch, gone)))
    }
}
