//! The Linux kernel as a dataplane, through netlink and next-hop objects.
//!
//! It has three threads. `kernel-links` watches interfaces and addresses for the RIB manager and
//! the session thread of BGP. `kernel-fib` writes routes; there is one writer, because the routing
//! lock of the kernel makes a second one useless (measured: equal rate at twice the CPU).
//! `kernel-routes` watches changes of other programs: to routes of ribtide, which the writer then
//! repairs, and to their own routes, which the RIB manager imports.
//!
//! ribtide owns routes of the configured table with the configured protocol number, and next-hop
//! objects with that number. The default is 186 (bgp). If another BGP daemon writes to the same
//! kernel, give ribtide a number of its own, such as 114, and name it in `/etc/iproute2/rt_protos`.
//! The metric distinguishes its routes from others of the same prefix; the kernel allows one route
//! per prefix and metric.

mod desired_state;
pub mod flush;
mod imported_routes;
mod installed;
mod interface_list;
mod interfaces;
mod links;
pub mod machine;
mod on_link;
mod routes;
mod system;
mod vrf;
mod watch;
mod writer;

#[cfg(test)]
mod tests;

use super::InterfaceNews;
use super::{RepairCounters, RibChannel};
pub use flush::Scope;
pub use installed::{
    Forwarding, Installed, Walk, has_next_hop_objects, installed, installed_families, next_hop_objects,
    routes_of_others,
};
pub use interface_list::{InterfaceList, ListedInterface, ListedInterfaces};
pub use links::InterfaceWatch;
use on_link::{MissingSubnets, OnLinkRoutes};
use ribtide_config::{DEFAULT_VRF, KernelConfig, VrfSetup};
use ribtide_netlink::Socket;
use ribtide_rib::IfIndex;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread;
use ribtide_wire::netlink::{Content, dump_links};
use routes::{InterfaceChange, Kernel};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::Duration;
pub use system::{SimulatedClock, System};
use vrf::Listed;
use vrf::find as find_vrf;
pub use vrf::numbers as vrf_numbers;
use watch::Touched;
use writer::Writer;

/// The niceness advantage of the writer over other threads except BFD. It has the most work for
/// each route, on one thread. Otherwise the producers of routes would take its core until queues
/// are full, and then leave theirs idle.
const WRITER_PRIORITY: u8 = 19;
/// Pause before a failed socket is opened again.
const REOPEN: Duration = Duration::from_secs(1);
/// Notes of watchers in the queue of the writer at most.
const NOTES: usize = 256;

/// The indices of the interfaces of this system, by name.
///
/// # Errors
/// The kernel does not reply.
pub fn interface_numbers() -> io::Result<BTreeMap<String, IfIndex>> {
    Socket::open()?.dump(dump_links, |all: &mut BTreeMap<String, IfIndex>, content| {
        if let Content::NewLink(link) = content {
            all.insert(link.name.to_owned(), link.index);
        }
    })
}

/// A note of a watcher to the writer.
enum Note {
    /// An interface changed.
    Interface(InterfaceChange),
    /// Notifications were lost, or the kernel may have dropped routes without one: anything may
    /// have changed.
    Lost,
    /// Addresses were added or removed.
    Addresses(Vec<IpAddr>),
    /// Another program changed next-hop objects that may belong to ribtide.
    NextHops,
    /// Another program wrote or deleted routes in tables of ribtide.
    Routes {
        touched: Vec<Touched>,
        /// The watcher counts these tokens: without any, the writer has handled all such notes.
        _unhandled: Arc<()>,
    },
    /// The list of VRFs changed.
    Vrfs,
}

/// The stages of the kernel dataplane, which are a thread each.
struct Stages {
    writer: Writer,
    routes: watch::Watcher,
    links: links::Watcher,
    handle: KernelHandle,
}

impl Stages {
    /// Opens every socket. `config.table` is final; `vrf`: the index of the device of the default
    /// VRF, if any.
    fn open(
        system: &System,
        config: KernelConfig,
        vrf: Option<IfIndex>,
        vrfs: &[VrfSetup],
        channel: RibChannel,
        sessions: Option<ring::Sender<InterfaceNews>>,
        rings: &Rings,
    ) -> io::Result<Stages> {
        let listed = Listed::default();
        listed.set(vrfs);
        let kernel = Kernel::open(system, config.clone(), &listed.numbers())?;
        if !config.compat_mode {
            leave_compat_mode();
        }
        let (notes, noted) = rings.bounded("kernel watchers to kernel FIB", NOTES);
        let writing_port = Arc::new(AtomicU32::new(kernel.port()));
        let repairs = kernel.repairs.counters.clone();
        let missing = MissingSubnets::default();
        let routes = watch::Watcher::new(
            system,
            config.clone(),
            listed.clone(),
            (writing_port.clone(), repairs.clone()),
            (notes.clone(), channel.rib.feedback.clone()),
            OnLinkRoutes::new(missing.clone()),
            channel.stop.clone(),
        )
        .map_err(cannot)?;
        let outputs =
            links::Outputs { notes: Some(notes.clone()), rib: Some(channel.rib.failures.clone()), sessions };
        let links = links::Watcher::new(system, vrf, listed.clone(), Some(missing), outputs, &channel.stop)
            .map_err(cannot)?;
        let handle = KernelHandle {
            config: Arc::new(config.clone()),
            repairs,
            interfaces: links.list(),
            listed: listed.clone(),
            notes,
        };
        let writer = Writer::new(system, kernel, config, listed, channel, noted, writing_port);
        Ok(Stages { writer, routes, links, handle })
    }
}

fn cannot(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("the kernel dataplane cannot start: {e}"))
}

/// The table of the default VRF, and the index of its device, if it has one.
///
/// # Errors
/// A sentence: there is no such device (`InvalidInput`).
fn find_table(config: &KernelConfig) -> io::Result<(u32, Option<IfIndex>)> {
    let Some(name) = &config.vrf else { return Ok((config.table, None)) };
    let found = vrf::find(name).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    Ok((found.1, Some(found.0)))
}

/// Whether a kernel dataplane with the settings `new` takes over the routes of this one: it has their table, protocol and
/// metric.
///
/// # Errors
/// A sentence: the VRF of the new settings has no device (`InvalidInput`).
pub fn takes_over(running: &KernelConfig, new: &KernelConfig) -> io::Result<bool> {
    let key = (find_table(new)?.0, new.protocol, new.metric);
    Ok(key == (running.table, running.protocol, running.metric))
}

/// Starts the kernel dataplane in the network namespace of the calling thread.
///
/// It tells the RIB manager every interface, then [`ribtide_rib::RibIn::EndOfInitial`] of connected routes, then
/// [`ribtide_rib::RibIn::DataplaneUp`]. `sessions`: BGP's session thread, which is told of interfaces too.
///
/// # Errors
/// A sentence that says what is missing and what to do: a capability (`PermissionDenied`), next-hop objects
/// (`Unsupported`), the VRF of the configuration (`InvalidInput`), or a thread.
pub fn start(
    mut config: KernelConfig,
    vrfs: &[VrfSetup],
    channel: RibChannel,
    sessions: Option<ring::Sender<InterfaceNews>>,
    rings: &Rings,
) -> io::Result<(KernelHandle, [JoinHandle<()>; 3])> {
    let (table, vrf) = find_table(&config)?;
    config.table = table;
    let id = channel.id;
    let Stages { writer, routes, links, handle } =
        Stages::open(&System::default(), config, vrf, vrfs, channel, sessions, rings)?;
    let links = thread::spawn("kernel-links", move || links.run(Some(id))).map_err(cannot)?;
    let routes = thread::spawn("kernel-routes", move || routes.run()).map_err(cannot)?;
    let writer = thread::spawn_urgent("kernel-fib", WRITER_PRIORITY, move || writer.run()).map_err(cannot)?;
    Ok((handle, [links, routes, writer]))
}

/// The handle of the running dataplane.
#[derive(Clone)]
pub struct KernelHandle {
    /// Its settings, with the table of its VRF.
    pub config: Arc<KernelConfig>,
    /// Counters of its comparison with the kernel.
    pub repairs: Arc<RepairCounters>,
    /// The interfaces of the kernel.
    pub interfaces: InterfaceList,
    listed: Listed,
    notes: ring::Sender<Note>,
}

impl KernelHandle {
    /// Its scope.
    pub fn scope(&self) -> Scope {
        let vrfs = self.listed.get();
        let others = vrfs.iter().map(|setup| (setup.vrf.table, setup.name.clone()));
        let default = (self.config.table, DEFAULT_VRF.to_owned());
        Scope { protocol: self.config.protocol, tables: std::iter::once(default).chain(others).collect() }
    }

    /// Sets the other VRFs. The RIB manager must know them before it gets their interfaces and
    /// routes.
    pub fn set_vrfs(&self, vrfs: &[VrfSetup]) {
        self.listed.set(vrfs);
        // It is closed only when the process is stopping.
        let _ = self.notes.send(Note::Vrfs);
    }
}

/// Leaves the compatibility mode of next-hop objects, and logs that.
fn leave_compat_mode() {
    match ribtide_netlink::leave_compat_mode() {
        Ok(false) => {}
        Ok(true) => tracing::info!(
            target: target::KERNEL,
            "net.ipv4.nexthop_compat_mode is now 0 (it was 1), so that a change of a next hop is one message of the kernel \
             whatever the number of its routes; `ip route` shows such routes by nhid. fib.kernel.compat-mode = true \
             leaves it alone"
        ),
        Err(e) => tracing::warn!(
            target: target::KERNEL,
            error = %e,
            "net.ipv4.nexthop_compat_mode cannot be set to 0: every change of a next hop will cost the kernel time for each \
             of its routes; set it before the start (sysctl), or fib.kernel.compat-mode = true accepts it"
        ),
    }
}
