//! The Linux kernel as a dataplane, through netlink and next-hop objects.
//!
//! Four threads. `kernel-links` watches interfaces and addresses and tells the RIB manager. `kernel-fib` writes
//! routes: one writer, since the kernel's routing lock makes a second one useless (measured: equal rate at twice
//! the CPU). `kernel-routes` watches what others do: to our routes, which the writer then puts right, and with their
//! own, which the RIB manager learns. `kernel-wanted` keeps the table of what is wanted.
//!
//! What is ours: routes of the configured table with the configured protocol number, and next-hop objects with that
//! number. 186 (bgp) is the default; where another BGP daemon writes to the same kernel, give ribtide a number of
//! its own, such as 114, and name it in `/etc/iproute2/rt_protos`. A route differs from others' of the same prefix
//! by its metric; the kernel lets one route per prefix and metric be.

mod installed;
mod interfaces;
mod learnt;
mod objects;
mod routes;
pub(crate) mod socket;
mod vrf;
mod wanted;
mod watch;

#[cfg(test)]
mod tests;

use super::Port;
use crate::config::KernelConfig;
use crate::rib::VrfSetup;
use crossbeam_channel::{Select, TryRecvError};
pub(crate) use installed::{Forwarding, Installed, Walk, installed, next_hop_objects};
use interfaces::{Interfaces, News};
use ribtide_rib::{IfIndex, RibIn, Source};
use ribtide_runtime::log::log;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Stop};
use ribtide_wire::netlink::numbers::{RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK};
use ribtide_wire::netlink::{Content, dump_addresses, dump_links};
use routes::{InterfaceChange, Kernel};
use socket::{Socket, overran};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vrf::Listed;
pub(crate) use vrf::numbers as vrf_numbers;
use watch::Touched;

/// How often a waiting thread looks whether it shall stop.
const STOP_POLL: Duration = Duration::from_millis(200);
/// How much the writer is preferred to other threads, in steps of niceness: to all but BFD's. It has the most to do for each
/// route, and nobody can share it; those that bring the routes would take its core until rings are full, and then leave
/// theirs idle.
const AHEAD: u8 = 19;
/// How long nothing must have come before what was believed of the kernel is looked up.
const QUIET: Duration = Duration::from_millis(20);
/// How long batches may keep it waiting.
const DOUBT: Duration = Duration::from_millis(500);
/// Pause before the kernel's socket is opened again after it failed.
const REOPEN: Duration = Duration::from_secs(1);
/// Notes of the watchers that may wait for the writer.
const NOTES: usize = 256;
/// How much of what interfaces do may wait for its watcher, in bytes.
const LINKS_BUFFER: u32 = 8 * 1024 * 1024;

/// The numbers of this system's interfaces, by name.
///
/// # Errors
/// The kernel does not tell.
pub(crate) fn interface_numbers() -> io::Result<BTreeMap<String, IfIndex>> {
    Socket::open()?.dump(dump_links, |all: &mut BTreeMap<String, IfIndex>, content| {
        if let Content::NewLink(link) = content {
            all.insert(link.name.to_owned(), link.index);
        }
    })
}

/// What the watchers tell the writer.
enum Note {
    /// This interface changed.
    Interface(InterfaceChange),
    /// Notifications about interfaces or routes were lost, or the kernel may have dropped routes without a word: anything
    /// may have changed.
    Lost,
    /// These addresses came or went.
    Addresses(Vec<IpAddr>),
    /// Someone changed next-hop objects that may be ours.
    NextHops,
    /// Someone wrote or deleted routes where ours are.
    Routes(Vec<Touched>),
    /// There are other VRFs than before.
    Vrfs,
}

/// Starts the kernel dataplane in the network namespace of the calling thread.
///
/// It tells the RIB manager every interface, then [`RibIn::EndOfInitial`] of connected routes, then
/// [`RibIn::DataplaneUp`].
///
/// # Errors
/// A sentence that says what is missing (a capability, next-hop objects) and what to do.
pub fn start(
    mut config: KernelConfig,
    vrfs: &[VrfSetup],
    port: Port,
    rings: &Rings,
) -> Result<(KernelHandle, [JoinHandle<()>; 3]), String> {
    let vrf = match &config.vrf {
        Some(name) => {
            let (ifindex, table) = vrf::find(name)?;
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
    let cannot = |e: io::Error| format!("the kernel dataplane cannot start: {e}");
    let monitor =
        Socket::monitor(&[RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR], LINKS_BUFFER, STOP_POLL)
            .map_err(cannot)?;
    let requests = Socket::open().map_err(cannot)?;
    let (notes, noted) = rings.bounded("kernel watchers to kernel FIB", NOTES);
    let writing_port = Arc::new(AtomicU32::new(kernel.port()));
    let handle =
        KernelHandle { config: Arc::new(config.clone()), listed: listed.clone(), notes: notes.clone() };
    let routes = watch::Watcher::new(
        config.clone(),
        listed.clone(),
        writing_port.clone(),
        notes.clone(),
        port.rib.feedback.clone(),
        port.stop.clone(),
    )
    .map_err(cannot)?;
    let watcher = Watcher {
        monitor,
        requests,
        interfaces: Interfaces::of(vrf, vrfs.into()),
        listed: listed.clone(),
        seen: 0,
        notes: notes.clone(),
        rib: port.rib.failures.clone(),
        stop: port.stop.clone(),
    };
    let id = port.id;
    let watcher = thread::spawn("kernel-links", move || watcher.run(id)).map_err(cannot)?;
    let routes = thread::spawn("kernel-routes", move || routes.run()).map_err(cannot)?;
    let writer =
        Writer { kernel, config, listed: listed.clone(), port, noted, writing_port, replayed: false };
    let writer = thread::spawn("kernel-fib", move || writer.run()).map_err(cannot)?;
    Ok((handle, [watcher, routes, writer]))
}

/// The running dataplane.
#[derive(Clone)]
pub struct KernelHandle {
    /// What it works by: with the table that its VRF has.
    pub(crate) config: Arc<KernelConfig>,
    listed: Listed,
    notes: ring::Sender<Note>,
}

impl KernelHandle {
    /// From now on there are these VRFs beside the default one. The RIB manager is told of their interfaces and routes, so it
    /// has to know them before.
    pub(crate) fn set_vrfs(&self, vrfs: &[VrfSetup]) {
        self.listed.set(vrfs);
        // Closed only when the process is stopping.
        let _ = self.notes.send(Note::Vrfs);
    }
}

/// Has the kernel say that a next-hop object changed in one message, and not by another about every route that uses
/// it, with all of its next hops: for a million routes that takes it 12 seconds, in which it does nothing else for
/// anyone who routes.
fn leave_compat_mode() {
    const SWITCH: &str = "/proc/sys/net/ipv4/nexthop_compat_mode";
    let done = match std::fs::read_to_string(SWITCH) {
        Ok(now) if now.trim() == "0" => return,
        Ok(_) => std::fs::write(SWITCH, "0"),
        // Before Linux 5.8 there is no other mode.
        Err(e) => Err(e),
    };
    match done {
        Ok(()) => log(
            "ribtide",
            "net.ipv4.nexthop_compat_mode is now 0 (it was 1), so that a change of a next hop is one message of the kernel \
             whatever the number of its routes; `ip route` shows such routes by nhid. fib.kernel.compat-mode = true \
             leaves it alone",
        ),
        Err(e) => log(
            "ribtide",
            &format!(
                "net.ipv4.nexthop_compat_mode cannot be set to 0 ({e}): every change of a next hop will cost the kernel time \
                 for each of its routes; set it before the start (sysctl), or fib.kernel.compat-mode = true accepts it"
            ),
        ),
    }
}

/// Watches interfaces.
struct Watcher {
    monitor: Socket,
    requests: Socket,
    interfaces: Interfaces,
    listed: Listed,
    /// Which change of the list is seen.
    seen: u32,
    notes: ring::Sender<Note>,
    /// The lane for failures, so that they overtake; and for what may not overtake them.
    rib: ring::Sender<RibIn>,
    stop: Stop,
}

impl Watcher {
    fn run(mut self, id: u8) {
        // The monitor listens already, so nothing that happens during the dump is missed.
        let initial = self.dump().and_then(|()| {
            self.rib.send(RibIn::EndOfInitial(Source::Connected))?;
            self.rib.send(RibIn::DataplaneUp(id))
        });
        if initial.is_err() {
            return;
        }
        while !self.stop.stopped() {
            let interfaces = &mut self.interfaces;
            if let Some(vrfs) = self.listed.news(&mut self.seen) {
                interfaces.set_vrfs(vrfs);
            }
            let told = match self.monitor.notified(|_, content| interfaces.take(&content)) {
                Ok(()) => self.tell(),
                Err(e) => {
                    if !overran(&e) {
                        log(
                            "ribtide",
                            &format!(
                                "watching the kernel's interfaces failed ({e}); reading all of them again"
                            ),
                        );
                        std::thread::sleep(REOPEN);
                    }
                    self.notes.send(Note::Lost).and_then(|()| self.dump())
                }
            };
            if told.is_err() {
                return;
            }
        }
    }

    /// Reads all interfaces and addresses and tells what differs. Tries until it succeeds.
    fn dump(&mut self) -> Result<(), Closed> {
        loop {
            self.interfaces.restart();
            // A dump that had to begin again repeats itself, which does no harm here.
            let interfaces = &mut self.interfaces;
            let read =
                self.requests.dump(dump_links, |(): &mut (), content| interfaces.take(&content)).and_then(
                    |()| self.requests.dump(dump_addresses, |(): &mut (), content| interfaces.take(&content)),
                );
            match read {
                Ok(()) => return self.tell(),
                Err(_) if self.stop.stopped() => return Err(Closed),
                Err(e) => {
                    log("ribtide", &format!("the kernel's interfaces cannot be read ({e}); trying again"));
                    std::thread::sleep(REOPEN);
                }
            }
        }
    }

    /// Tells the writer first: when what the RIB makes of the news reaches it, it knows already.
    fn tell(&mut self) -> Result<(), Closed> {
        for news in self.interfaces.news() {
            match news {
                News::Changed { event, came_up } => {
                    let change = InterfaceChange { ifindex: event.index, up: event.up, came_up };
                    self.notes.send(Note::Interface(change))?;
                    self.rib.send(RibIn::Interface(event))?;
                }
                News::Removed(ifindex) => {
                    let change = InterfaceChange { ifindex, up: false, came_up: false };
                    self.notes.send(Note::Interface(change))?;
                    self.rib.send(RibIn::InterfaceRemoved(ifindex))?;
                }
            }
        }
        Ok(())
    }
}

/// Writes routes.
struct Writer {
    kernel: Kernel,
    config: KernelConfig,
    listed: Listed,
    port: Port,
    noted: ring::Receiver<Note>,
    /// Where the watcher of routes reads the number of the kernel's socket.
    writing_port: Arc<AtomicU32>,
    /// Whether a replay has begun since the socket was opened. Before that, batches have nothing to build on.
    replayed: bool,
}

impl Writer {
    fn run(mut self) {
        thread::hurry(AHEAD);
        while !self.port.stop.stopped() {
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

    /// Does what is there to do, or waits a while for it.
    fn step(&mut self) -> io::Result<Result<(), Closed>> {
        if self.kernel.doubts_for(DOUBT) {
            self.kernel.verify()?;
            self.report();
        }
        if self.notes()?.is_err() {
            return Ok(Err(Closed));
        }
        match self.port.try_next() {
            Ok(Some(batch)) => {
                // What the RIB made of a change of an interface comes after the note of it.
                if self.notes()?.is_err() {
                    return Ok(Err(Closed));
                }
                let begin = Instant::now();
                self.replayed |= batch.start_of_replay;
                if self.replayed {
                    self.kernel.apply(&batch)?;
                }
                self.port.meter.add(batch.route_count(), begin);
                let ack = self.kernel.verdicts.ack(self.port.id, batch.seq);
                return Ok(self.port.rib.feedback.send(RibIn::Ack(ack)));
            }
            Ok(None) => {}
            Err(Closed) => return Ok(Err(Closed)),
        }
        let mut select = Select::new();
        select.recv(self.noted.raw());
        self.port.watch(&mut select);
        let quiet = if self.kernel.doubts_for(Duration::ZERO) { QUIET } else { STOP_POLL };
        if select.ready_timeout(quiet).is_err() {
            self.kernel.verify()?;
            self.report();
        }
        Ok(Ok(()))
    }

    /// Takes all notes that wait. The watchers end only with the process.
    fn notes(&mut self) -> io::Result<Result<(), Closed>> {
        loop {
            match self.noted.raw().try_recv() {
                Ok(note) => {
                    let note = self.noted.took(note);
                    self.noted(&note)?;
                }
                Err(TryRecvError::Empty) => return Ok(Ok(())),
                Err(TryRecvError::Disconnected) => return Ok(Err(Closed)),
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
            Note::NextHops => self.kernel.doubt(),
            Note::Routes(touched) => self.kernel.touched(touched)?,
            Note::Vrfs => self.listed.numbers().into_iter().try_for_each(|vrf| self.kernel.know(vrf))?,
        }
        self.report();
        Ok(())
    }

    /// Says what became of routes that no batch asked for.
    fn report(&mut self) {
        if let Some(ack) = self.kernel.verdicts.news(self.port.id) {
            // When the RIB is gone, the next batch will show it.
            let _ = self.port.rib.feedback.send(RibIn::Ack(ack));
        }
    }

    /// Starts again after the socket failed; the RIB tells all again.
    fn reopen(&mut self, e: &io::Error) -> Result<(), Closed> {
        log(
            "ribtide",
            &format!(
                "writing to the kernel's routing table failed ({e}); comparing all of it and trying again"
            ),
        );
        self.port.rib.feedback.send(RibIn::DataplaneDown(self.port.id))?;
        self.replayed = false;
        self.port.restart();
        loop {
            let again = Instant::now() + REOPEN;
            while let Some(left) = again.checked_duration_since(Instant::now()) {
                // Nothing is expected from a dataplane that is down; what was under way is dropped.
                self.port.next(left)?;
            }
            match Kernel::open(self.config.clone(), &self.listed.numbers()) {
                Ok(kernel) => {
                    self.writing_port.store(kernel.port(), Relaxed);
                    self.kernel = kernel;
                    return self.port.rib.feedback.send(RibIn::DataplaneUp(self.port.id));
                }
                Err(_) if self.port.stop.stopped() => return Err(Closed),
                Err(why) => log("ribtide", &why),
            }
        }
    }
}
