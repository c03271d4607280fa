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
mod interfaces;
mod links;
mod objects;
mod repairs;
mod routes;
mod vrf;
mod watch;

#[cfg(test)]
mod tests;

use super::InterfaceNews;
use super::RibChannel;
use crossbeam_channel::Select;
use flush::Scope;
pub use installed::{Forwarding, Installed, Walk, installed, next_hop_objects};
pub use links::InterfaceWatch;
pub use repairs::{Difference, RepairCounters};
use ribtide_config::{DEFAULT_VRF, KernelConfig, VrfSetup};
use ribtide_netlink::Socket;
use ribtide_rib::{IfIndex, RibIn};
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Ends};
use ribtide_wire::netlink::{Content, dump_links};
use routes::{InterfaceChange, Kernel};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vrf::Listed;
use vrf::find as find_vrf;
pub use vrf::numbers as vrf_numbers;
use watch::Touched;

/// The niceness advantage of the writer over other threads except BFD. It has the most work for
/// each route, on one thread. Otherwise the producers of routes would take its core until queues
/// are full, and then leave theirs idle.
const WRITER_PRIORITY: u8 = 19;
/// Silence after which assumed state of the kernel is verified.
const KERNEL_QUIET_TIME: Duration = Duration::from_millis(20);
/// The longest delay of that by batches.
const DOUBT: Duration = Duration::from_millis(500);
/// Pause before a failed socket is opened again.
const REOPEN: Duration = Duration::from_secs(1);
/// The comparison of the kernel with the desired state takes at most one in this many parts of a
/// CPU: 2% (ADR 25).
const COMPARE_SHARE: u32 = 50;
/// The same in the first round after a replay that found own routes, which ends their adoption, and
/// for the rest of a round that has found a difference.
const URGENT_COMPARE_SHARE: u32 = 2;
/// Routes that the comparison reads before batches go on: some 10 ms.
const COMPARE_PAGE: usize = 8192;
/// The minimum interval of rounds of the comparison.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);
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
    Routes(Vec<Touched>),
    /// The list of VRFs changed.
    Vrfs,
}

/// Starts the kernel dataplane in the network namespace of the calling thread.
///
/// It tells the RIB manager every interface, then [`RibIn::EndOfInitial`] of connected routes, then
/// [`RibIn::DataplaneUp`]. `sessions`: BGP's session thread, which is told of interfaces too.
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
    let vrf = match &config.vrf {
        Some(name) => {
            let (ifindex, table) =
                vrf::find(name).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
            config.table = table;
            Some(ifindex)
        }
        None => None,
    };
    let listed = Listed::default();
    listed.set(vrfs);
    let kernel = Kernel::open(config.clone(), &listed.numbers())?;
    if !config.compat_mode {
        leave_compat_mode();
    }
    let cannot = |e: io::Error| io::Error::new(e.kind(), format!("the kernel dataplane cannot start: {e}"));
    let (notes, noted) = rings.bounded("kernel watchers to kernel FIB", NOTES);
    let writing_port = Arc::new(AtomicU32::new(kernel.port()));
    let handle = KernelHandle {
        config: Arc::new(config.clone()),
        repairs: kernel.repairs.counters.clone(),
        listed: listed.clone(),
        notes: notes.clone(),
    };
    let routes = watch::Watcher::new(
        config.clone(),
        listed.clone(),
        writing_port.clone(),
        notes.clone(),
        channel.rib.feedback.clone(),
        channel.stop.clone(),
    )
    .map_err(cannot)?;
    let links =
        links::Outputs { notes: Some(notes.clone()), rib: Some(channel.rib.failures.clone()), sessions };
    let watcher =
        links::watch(vrf, listed.clone(), links, Some(channel.id), &channel.stop).map_err(cannot)?;
    let routes = thread::spawn("kernel-routes", Ends::WithOwner, move || routes.run()).map_err(cannot)?;
    let writer = Writer {
        kernel,
        config,
        listed: listed.clone(),
        channel,
        noted,
        writing_port,
        replayed: false,
        holding: false,
        compare_at: Instant::now(),
        round_begin: None,
        compare_share: COMPARE_SHARE,
    };
    let writer = thread::spawn_urgent("kernel-fib", WRITER_PRIORITY, Ends::WithOwner, move || writer.run())
        .map_err(cannot)?;
    Ok((handle, [watcher, routes, writer]))
}

/// The handle of the running dataplane.
#[derive(Clone)]
pub struct KernelHandle {
    /// Its settings, with the table of its VRF.
    pub config: Arc<KernelConfig>,
    /// Counters of its comparison with the kernel.
    pub repairs: Arc<RepairCounters>,
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

/// Makes the kernel send one notification for a changed next-hop object, and not one for each of
/// its routes. For a million routes the latter takes it 12 seconds, in which no other program can
/// change routes.
fn leave_compat_mode() {
    const SWITCH: &str = "/proc/sys/net/ipv4/nexthop_compat_mode";
    let done = match std::fs::read_to_string(SWITCH) {
        Ok(now) if now.trim() == "0" => return,
        Ok(_) => std::fs::write(SWITCH, "0"),
        // Before Linux 5.8 there is no other mode.
        Err(e) => Err(e),
    };
    match done {
        Ok(()) => tracing::info!(
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

/// Writes routes.
struct Writer {
    kernel: Kernel,
    config: KernelConfig,
    listed: Listed,
    channel: RibChannel,
    noted: ring::Receiver<Note>,
    /// The port id of the socket that writes, for the watcher of routes.
    writing_port: Arc<AtomicU32>,
    /// Whether a replay has begun since the socket was opened. Earlier batches refer to unknown
    /// state.
    replayed: bool,
    /// Whether the RIB manager knows that found routes are held back.
    holding: bool,
    /// When the comparison goes on.
    compare_at: Instant,
    /// The start of its round.
    round_begin: Option<Instant>,
    /// Its present share of time: one in this many parts.
    compare_share: u32,
}

impl Writer {
    fn run(mut self) {
        while !self.channel.stop.stopped() {
            match self.step() {
                Ok(Ok(())) => {}
                Ok(Err(Closed)) => return,
                Err(e) => {
                    if self.reopen(&e).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Does the next work, or waits for it.
    fn step(&mut self) -> io::Result<Result<(), Closed>> {
        if self.kernel.doubts_for(DOUBT) {
            self.kernel.verify()?;
            self.report();
        }
        if self.notes()?.is_err() {
            return Ok(Err(Closed));
        }
        if self.replayed && Instant::now() >= self.compare_at {
            self.compare()?;
        }
        match self.channel.try_next() {
            Ok(Some(batch)) => {
                // A batch caused by an interface change follows the note of that change.
                if self.notes()?.is_err() {
                    return Ok(Err(Closed));
                }
                let begin = Instant::now();
                self.replayed |= batch.start_of_replay;
                if self.replayed {
                    self.kernel.confirms = self.channel.rib.confirms.load(Relaxed);
                    self.kernel.apply(&batch)?;
                }
                if batch.end_of_replay && self.kernel.has_found_routes() {
                    // Adopted routes are compared at once. Without any, the kernel has acknowledged each.
                    (self.compare_at, self.compare_share) = (Instant::now(), URGENT_COMPARE_SHARE);
                }
                self.channel.meter.add(batch.route_count(), begin);
                // The RIB manager must know it before the acknowledgement.
                if self.report_holding().is_err() {
                    return Ok(Err(Closed));
                }
                let ack = self.kernel.results.ack(self.channel.id, batch.seq);
                return Ok(self.channel.rib.feedback.send(RibIn::Ack(ack)));
            }
            Ok(None) => {}
            Err(Closed) => return Ok(Err(Closed)),
        }
        let mut select = Select::new();
        self.noted.watch(&mut select);
        self.channel.watch(&mut select);
        let quiet =
            if self.kernel.doubts_for(Duration::ZERO) { KERNEL_QUIET_TIME } else { idle::until_idle() };
        let quiet = match self.replayed {
            true => quiet.min(self.compare_at.saturating_duration_since(Instant::now())),
            false => quiet,
        };
        let timed_out = select.ready_timeout(quiet).is_err();
        if timed_out {
            self.kernel.verify()?;
            self.report();
        }
        if idle::on_wait(timed_out) {
            idle::trim(&mut self.kernel);
        }
        Ok(Ok(()))
    }

    /// Compares the next routes of the kernel with the desired state, and sets the time of the next
    /// ones so that the comparison has no more than its share of time.
    fn compare(&mut self) -> io::Result<()> {
        let (begin, cpu_before) = (Instant::now(), thread::cpu_time());
        let round_begin = *self.round_begin.get_or_insert(begin);
        let repairs = self.kernel.repairs.total();
        let ended = self.kernel.compare(COMPARE_PAGE)?;
        if self.kernel.repairs.total() != repairs {
            self.compare_share = URGENT_COMPARE_SHARE;
        }
        self.report();
        // Its CPU time counts, because other threads may have the CPU meanwhile; but batches get at
        // least half of the time.
        let cpu = thread::cpu_time().saturating_sub(cpu_before);
        self.compare_at = begin + (cpu * self.compare_share).max(begin.elapsed() * URGENT_COMPARE_SHARE);
        if ended {
            self.compare_at = self.compare_at.max(round_begin + ROUND_INTERVAL);
            (self.round_begin, self.compare_share) = (None, COMPARE_SHARE);
        }
        Ok(())
    }

    /// Handles all waiting notes. The watchers end with the process.
    fn notes(&mut self) -> io::Result<Result<(), Closed>> {
        loop {
            match self.noted.next_now() {
                Ok(Some(note)) => self.noted(&note)?,
                Ok(None) => return Ok(Ok(())),
                Err(Closed) => return Ok(Err(Closed)),
            }
        }
    }

    fn noted(&mut self, note: &Note) -> io::Result<()> {
        if !self.replayed && !matches!(note, Note::Vrfs) {
            return Ok(());
        }
        match note {
            Note::Interface(change) => self.kernel.interface_changed(change)?,
            Note::Lost => self.kernel.repair()?,
            Note::Addresses(addresses) => self.kernel.addresses_changed(addresses)?,
            Note::NextHops => self.kernel.objects_changed()?,
            Note::Routes(touched) => self.kernel.touched(touched)?,
            Note::Vrfs => self.listed.numbers().into_iter().try_for_each(|vrf| self.kernel.know(vrf))?,
        }
        self.report();
        Ok(())
    }

    /// Reports changed results of routes that no batch contains.
    fn report(&mut self) {
        self.kernel.repairs.log();
        // If the RIB is gone, the next batch shows it.
        let _ = self.report_holding();
        if let Some(ack) = self.kernel.results.news(self.channel.id) {
            // If the RIB is gone, the next batch shows it.
            let _ = self.channel.rib.feedback.send(RibIn::Ack(ack));
        }
    }

    /// Reports whether found routes are held back, if that changed.
    fn report_holding(&mut self) -> Result<(), Closed> {
        let holding = self.kernel.is_holding();
        if std::mem::replace(&mut self.holding, holding) == holding {
            return Ok(());
        }
        self.channel.rib.feedback.send(RibIn::Holding(self.channel.id, holding))
    }

    /// Starts over after a failure of the socket; the RIB sends a replay.
    fn reopen(&mut self, e: &io::Error) -> Result<(), Closed> {
        tracing::error!(
            target: target::KERNEL,
            error = %e,
            "writing to the kernel's routing table failed; comparing all of it and trying again"
        );
        self.channel.rib.feedback.send(RibIn::DataplaneDown(self.channel.id))?;
        (self.replayed, self.holding, self.round_begin) = (false, false, None);
        self.channel.restart();
        loop {
            let again = Instant::now() + REOPEN;
            while let Some(left) = again.checked_duration_since(Instant::now()) {
                // A dataplane that is down gets no batches; those in the queue are dropped.
                self.channel.next(left)?;
                if self.channel.stop.stopped() {
                    return Err(Closed);
                }
            }
            match Kernel::open(self.config.clone(), &self.listed.numbers()) {
                Ok(kernel) => {
                    self.writing_port.store(kernel.port(), Relaxed);
                    let repairs = std::mem::take(&mut self.kernel.repairs);
                    self.kernel = kernel;
                    self.kernel.repairs = repairs;
                    return self.channel.rib.feedback.send(RibIn::DataplaneUp(self.channel.id));
                }
                Err(_) if self.channel.stop.stopped() => return Err(Closed),
                Err(e) => tracing::error!(
                    target: target::KERNEL,
                    error = %e,
                    "the kernel's routing table cannot be opened; trying again"
                ),
            }
        }
    }
}
