//! The thread `kernel-links`, which watches interfaces and addresses for the writer of routes, the
//! RIB manager, and the session thread of BGP. For the latter two it also runs without a kernel
//! dataplane.

use super::super::{InterfaceLine, InterfaceNews, InterfaceState};
use super::interface_list::InterfaceList;
use super::interfaces::{Interfaces, News};
use super::on_link::{self, MissingSubnets};
use super::system::System;
use super::vrf::Listed;
use super::{InterfaceChange, Note, REOPEN};
use ribtide_config::VrfSetup;
use ribtide_netlink::{Socket, overran};
use ribtide_rib::{DataplaneId, IfIndex, RibIn, Source, VrfId};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{Closed, Sender};
use ribtide_runtime::thread::{self, Stop};
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_runtime::watchdog::PeerWait;
use ribtide_wire::netlink::numbers::{RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK};
use ribtide_wire::netlink::{dump_addresses, dump_links};
use std::convert::Infallible;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

/// The receive buffer for notifications, in bytes.
const BUFFER: u32 = 8 * 1024 * 1024;

/// The consumers of interface changes.
pub(super) struct Outputs {
    /// The writer of routes.
    pub(super) notes: Option<Sender<Note>>,
    /// The RIB manager's urgent queue, which overtakes routes.
    pub(super) rib: Option<Sender<RibIn>>,
    /// The session thread of BGP. It waits for no other thread, so blocking on it delays the others
    /// by one of its turns at most.
    pub(super) sessions: Option<Sender<InterfaceNews>>,
}

/// A watch of interfaces without a kernel dataplane.
pub struct InterfaceWatch {
    /// The interfaces of the kernel.
    pub interfaces: InterfaceList,
    listed: Listed,
    stop: Stop,
    thread: JoinHandle<()>,
}

impl InterfaceWatch {
    /// Watches the interfaces of the network namespace of the calling thread for a RIB manager
    /// without kernel dataplane, and for the session thread of BGP.
    ///
    /// # Errors
    /// The kernel refuses the socket or the thread.
    pub fn start(
        vrfs: &[VrfSetup],
        rib: Option<Sender<RibIn>>,
        sessions: Option<Sender<InterfaceNews>>,
        stop: &Stop,
    ) -> io::Result<InterfaceWatch> {
        let listed = Listed::default();
        listed.set(vrfs);
        let (outputs, stop) = (Outputs { notes: None, rib, sessions }, stop.part());
        let watcher = Watcher::new(&System::default(), None, listed.clone(), None, outputs, &stop)?;
        let interfaces = watcher.list();
        let thread = thread::spawn("kernel-links", move || watcher.run(None))?;
        Ok(InterfaceWatch { interfaces, listed, stop, thread })
    }

    /// Ends it. Nothing comes of it afterwards.
    pub fn end(self) {
        self.stop.stop();
        // A thread that panicked has ended the process.
        let _ = self.thread.join();
    }

    /// Sets the other VRFs.
    pub fn set_vrfs(&self, vrfs: &[VrfSetup]) {
        self.listed.set(vrfs);
    }
}

/// The watching thread.
pub(super) struct Watcher {
    system: System,
    monitor: Socket,
    /// Ends its wait at the stop, and after a change of the list of VRFs.
    wait: WaitFd,
    requests: Socket,
    interfaces: Interfaces,
    listed: Listed,
    /// The last seen change of the list of VRFs.
    seen: u32,
    /// Subnets without a route in the kernel, and the last seen change of that list; only with a kernel dataplane.
    missing: Option<(MissingSubnets, u32)>,
    outputs: Outputs,
    /// Whether the changes are the initial state and no events.
    initial: bool,
    /// For the watchdog: they cannot be read.
    unread: PeerWait,
    stop: Stop,
}

impl Watcher {
    /// Starts to listen. `vrf`: the index of the device of the default VRF, if any.
    ///
    /// # Errors
    /// The kernel refuses the sockets.
    pub(super) fn new(
        system: &System,
        vrf: Option<IfIndex>,
        listed: Listed,
        missing: Option<MissingSubnets>,
        outputs: Outputs,
        stop: &Stop,
    ) -> io::Result<Watcher> {
        let groups = [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR];
        let wait = WaitFd::new(stop)?;
        listed.wake(wait.waker());
        if let Some(missing) = &missing {
            missing.wake(wait.waker());
        }
        Ok(Watcher {
            monitor: system.sockets.monitor(&groups, BUFFER)?,
            wait,
            requests: system.sockets.open()?,
            system: system.clone(),
            interfaces: Interfaces::of(vrf, listed.get()),
            listed,
            seen: 0,
            missing: missing.map(|missing| (missing, 0)),
            outputs,
            initial: true,
            unread: PeerWait::new("the kernel's interfaces".into()),
            stop: stop.clone(),
        })
    }

    /// The list of interfaces for the API.
    pub(super) fn list(&self) -> InterfaceList {
        self.interfaces.list()
    }

    /// `dataplane` is up once the RIB manager has the interfaces.
    ///
    /// # Errors
    /// The stop, or the end of the RIB manager or of the writer.
    pub(super) fn run(mut self, dataplane: Option<DataplaneId>) -> Result<Infallible, Closed> {
        self.begin(dataplane)?;
        loop {
            self.stop.running()?;
            self.step()?;
        }
    }

    /// Sends the initial interfaces.
    pub(super) fn begin(&mut self, dataplane: Option<DataplaneId>) -> Result<(), Closed> {
        self.find_missing()?;
        // The subscription precedes the dump, so nothing is missed.
        self.dump()?;
        self.initial = false;
        let Some(rib) = &self.outputs.rib else { return Ok(()) };
        rib.send(RibIn::EndOfInitial(Source::Connected))?;
        dataplane.map_or(Ok(()), |id| rib.send(RibIn::DataplaneUp(id)))
    }

    /// Reads which subnets have no route at the start. The thread `kernel-routes` finds later changes.
    fn find_missing(&mut self) -> Result<(), Closed> {
        let Some((missing, seen)) = &mut self.missing else { return Ok(()) };
        loop {
            match on_link::without_route(&mut self.requests) {
                Ok(found) => break missing.set(found),
                Err(e) => {
                    self.stop.running()?;
                    self.unread.begin();
                    tracing::error!(
                        target: target::KERNEL,
                        error = %e,
                        "the kernel's routes to the subnets of interfaces cannot be read; trying again"
                    );
                    self.system.sleep(REOPEN);
                }
            }
        }
        self.unread.end();
        if let Some(found) = missing.news(seen) {
            self.interfaces.set_missing(found);
        }
        Ok(())
    }

    /// Waits for notifications and handles them.
    pub(super) fn step(&mut self) -> Result<(), Closed> {
        let interfaces = &mut self.interfaces;
        let heard = self.monitor.notified(&self.wait, Duration::MAX, |_, content| interfaces.take(&content));
        // Their changes end the wait.
        if let Some((missing, seen)) = &mut self.missing
            && let Some(found) = missing.news(seen)
        {
            interfaces.set_missing(found);
        }
        if let Some(vrfs) = self.listed.news(&mut self.seen) {
            interfaces.set_vrfs(vrfs);
        }
        match heard {
            Ok(()) => self.notify(),
            Err(e) => {
                if !overran(&e) {
                    tracing::warn!(
                        target: target::KERNEL,
                        error = %e,
                        "watching the kernel's interfaces failed; reading all of them again"
                    );
                    self.system.sleep(REOPEN);
                }
                let lost = self.outputs.notes.as_ref().map_or(Ok(()), |notes| notes.send(Note::Lost));
                lost.and_then(|()| self.dump())
            }
        }
    }

    /// Dumps all interfaces and addresses and sends the differences. Repeats until it succeeds.
    fn dump(&mut self) -> Result<(), Closed> {
        loop {
            self.interfaces.restart();
            // A restarted dump repeats messages, which does no harm here.
            let interfaces = &mut self.interfaces;
            let read =
                self.requests.dump(dump_links, |(): &mut (), content| interfaces.take(&content)).and_then(
                    |()| self.requests.dump(dump_addresses, |(): &mut (), content| interfaces.take(&content)),
                );
            match read {
                Ok(()) => {
                    self.unread.end();
                    return self.notify();
                }
                Err(e) => {
                    self.stop.running()?;
                    self.unread.begin();
                    tracing::error!(
                        target: target::KERNEL,
                        error = %e,
                        "the kernel's interfaces cannot be read; trying again"
                    );
                    self.system.sleep(REOPEN);
                }
            }
        }
    }

    /// Sends changes, to the writer first, so that it has them before the resulting FIB batches.
    fn notify(&mut self) -> Result<(), Closed> {
        let Outputs { notes, rib, sessions } = &self.outputs;
        for (news, line) in self.interfaces.news() {
            let (change, state, message) = match news {
                News::Changed { event, addresses, link_local, came_up } => {
                    let change = InterfaceChange { ifindex: event.index, up: event.up, came_up };
                    let of_default = event.vrf == VrfId::DEFAULT;
                    let (addresses, link_local) =
                        if of_default { (addresses, link_local) } else { (Vec::new(), Vec::new()) };
                    let (name, up) = (event.name.clone(), event.up);
                    // Another watch has told the receiver the earlier state.
                    let fell = came_up && !self.initial;
                    let state = InterfaceState { name, up, fell, addresses, link_local };
                    (change, Some(state), RibIn::Interface(event))
                }
                News::Removed(ifindex) => {
                    let change = InterfaceChange { ifindex, up: false, came_up: false };
                    (change, None, RibIn::InterfaceRemoved(ifindex))
                }
            };
            if let Some(notes) = notes {
                notes.send(Note::Interface(change))?;
            }
            if let Some(rib) = rib {
                rib.send(message)?;
            }
            let line = line.filter(|_| !self.initial);
            match sessions {
                Some(sessions) => {
                    // The receiver is gone only when the process is stopping; routes must not wait
                    // for that.
                    let _ = sessions.send(InterfaceNews { index: change.ifindex, state, line });
                }
                None => {
                    if let Some(InterfaceLine { interface, sentence }) = line {
                        tracing::info!(target: target::KERNEL, interface, "{sentence}");
                    }
                }
            }
        }
        Ok(())
    }
}
