//! Changes of other programs in the routing table of the kernel: to routes and next-hop objects of
//! ribtide, which the writer repairs, and to other routes, which next hops may resolve through.
//!
//! It has a thread of its own, because these notifications may be many and must not delay those of
//! interfaces. The kernel leaves out changes of the writer. When notifications are lost, everything
//! is compared. Imported routes are read again in rounds too, since some go without a notification.

use super::Note;
use super::REOPEN;
use super::imported_routes::ImportedRoutes;
use super::on_link::OnLinkRoutes;
use super::system::System;
use super::vrf::Listed;
use crate::repairs::{Difference, LOG_INTERVAL, RepairCounters};
use ribtide_config::KernelConfig;
use ribtide_netlink::{ROUTER_IDS, Socket, overran};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{RibIn, Source};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_runtime::watchdog::PeerWait;
use ribtide_wire::netlink::numbers::{
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_LINK,
    RTNLGRP_NEXTHOP,
};
use ribtide_wire::netlink::{Content, Route};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pause after a repair: the most frequent reaction to a program that writes the same routes.
const REPAIR_PAUSE: Duration = Duration::from_millis(10);
/// Reactions without a pause. A route that was found at the start, and that another program deletes,
/// counts as installed until the writer is notified.
const REPAIRS_AT_ONCE: u32 = 20;
/// Without changes for this time, reactions count from zero again.
const REPAIRS_QUIET: Duration = Duration::from_secs(1);
/// The minimum interval of complete comparisons after lost notifications.
const COMPARE_PAUSE: Duration = Duration::from_secs(1);

/// The writer has repaired its routes within this time, in most cases.
const VERIFY_PAUSE: Duration = Duration::from_millis(20);
/// Within this time the RIB manager's answer to an imported route is in the kernel.
const VERIFY_AGAIN: Duration = Duration::from_secs(1);
/// The minimum interval of rounds over imported routes.
const ROUND_PAUSE: Duration = Duration::from_secs(10);
/// A round waits so many times the CPU time that the former one took: 1% of a CPU.
const ROUND_SHARE: u32 = 100;
/// The same while routes in the place of ribtide's come.
const URGENT_SHARE: u32 = 10;

/// A route that another program wrote or deleted in a table of ribtide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touched {
    /// Its prefix.
    pub(crate) prefix: AnyPrefix,
    /// Its table.
    pub(crate) table: u32,
    /// Its metric.
    pub(crate) metric: u32,
    /// Whether it exists.
    pub(crate) there: bool,
    /// Whether it exists and has the protocol number of ribtide.
    pub(crate) marked: bool,
}

impl Touched {
    /// A route that was written (`there`) or deleted, if it may be in the place of one of ribtide's in these tables.
    pub(super) fn of(
        route: &Route<'_>,
        there: bool,
        config: &KernelConfig,
        tables: &[u32],
    ) -> Option<Touched> {
        let metric = route.metric.unwrap_or(0);
        let ours = route.protocol == config.protocol;
        // ribtide has no route for a type of service.
        let is_concerned =
            tables.contains(&route.table) && route.tos == 0 && (ours || metric == config.metric);
        is_concerned.then_some(Touched {
            prefix: route.prefix,
            table: route.table,
            metric,
            there,
            marked: there && ours,
        })
    }
}

/// The watching thread.
pub(super) struct Watcher {
    system: System,
    config: KernelConfig,
    monitor: Socket,
    /// Ends its wait at the stop, and after a change of the list of VRFs.
    wait: WaitFd,
    requests: Socket,
    /// The port id of the writer, whose changes need no repair.
    writer: Arc<AtomicU32>,
    /// The port id that the kernel leaves out.
    left_out: u32,
    /// Imported routes of each VRF, if requested; the default one is the first.
    imported: Vec<ImportedRoutes>,
    /// The other VRFs, and the last seen change of the list.
    listed: Listed,
    seen: u32,
    /// Routes to the subnets of interfaces.
    on_link: OnLinkRoutes,
    /// Reactions since the last quiet time, and when the last one was.
    repairs_of_late: (u32, Option<Instant>),
    /// The tokens of notes that the writer has not handled, beside this one.
    unhandled: Arc<()>,
    /// When imported routes are read again, and whether that is soon repeated.
    verify_at: Option<Instant>,
    verify_again: bool,
    /// Since when imported routes wait for that.
    unverified_since: Option<Instant>,
    /// The CPU time that it took last.
    verify_cost: Duration,
    /// For the watchdog: routes cannot be read.
    unread: PeerWait,
    repairs: Arc<RepairCounters>,
    /// When differences were logged.
    logged: Option<Instant>,
    notes: ring::Sender<Note>,
    feedback: ring::Sender<RibIn>,
    stop: Stop,
}

/// The result of a read of notifications.
#[derive(Default)]
struct Heard {
    touched: Vec<Touched>,
    /// Whether a next-hop object of ribtide may have changed.
    objects: bool,
    /// Added or removed addresses: the kernel drops routes that use one as source without a
    /// notification.
    addresses: Vec<IpAddr>,
    /// Whether a route of another program was notified.
    imported: bool,
    /// Whether imported routes may be gone without a notification.
    import_again: bool,
    /// Whether a subnet of an interface may have lost its route, or have it again.
    on_link: bool,
}

impl Watcher {
    /// Starts to listen.
    ///
    /// # Errors
    /// The kernel refuses the sockets.
    pub(super) fn new(
        system: &System,
        config: KernelConfig,
        listed: Listed,
        (writer, repairs): (Arc<AtomicU32>, Arc<RepairCounters>),
        (notes, feedback): (ring::Sender<Note>, ring::Sender<RibIn>),
        on_link: OnLinkRoutes,
        stop: Stop,
    ) -> io::Result<Watcher> {
        let groups = [
            RTNLGRP_NEXTHOP,
            RTNLGRP_IPV4_ROUTE,
            RTNLGRP_IPV6_ROUTE,
            RTNLGRP_LINK,
            RTNLGRP_IPV4_IFADDR,
            RTNLGRP_IPV6_IFADDR,
        ];
        let monitor = system.sockets.monitor(&groups, config.receive_buffer)?;
        let wait = WaitFd::new(&stop)?;
        listed.wake(wait.waker());
        let requests = system.sockets.open()?;
        let imported = config.import.then(|| ImportedRoutes::new(&config)).into_iter().collect();
        Ok(Watcher {
            system: system.clone(),
            listed,
            seen: 0,
            config,
            monitor,
            wait,
            requests,
            writer,
            left_out: 0,
            imported,
            on_link,
            repairs_of_late: (0, None),
            unhandled: Arc::new(()),
            verify_at: None,
            verify_again: false,
            unverified_since: None,
            verify_cost: Duration::ZERO,
            unread: PeerWait::new("the kernel's routes".into()),
            repairs,
            logged: None,
            notes,
            feedback,
            stop,
        })
    }

    pub(super) fn run(mut self) -> Result<Infallible, Closed> {
        self.begin()?;
        loop {
            self.stop.running()?;
            self.step()?;
        }
    }

    /// Sends the initial imported routes.
    pub(super) fn begin(&mut self) -> Result<(), Closed> {
        // The subscription precedes the dump, so nothing is missed.
        self.place();
        self.on_link.doubt(self.system.now());
        self.learn()?;
        if self.config.import { self.feedback.send(RibIn::EndOfInitial(Source::Kernel)) } else { Ok(()) }
    }

    /// Reads a changed list of VRFs. Returns whether it changed.
    fn place(&mut self) -> bool {
        let Some(vrfs) = self.listed.news(&mut self.seen) else { return false };
        if self.config.import {
            // A VRF that stays keeps its state.
            let mut former = self.imported.split_off(1);
            for setup in &*vrfs {
                let known = former.iter().position(|imported| imported.is_of(setup.vrf));
                let imported = known.map(|at| former.swap_remove(at));
                self.imported.push(imported.unwrap_or_else(|| ImportedRoutes::of(&self.config, setup.vrf)));
            }
        }
        true
    }

    /// Waits for notifications and handles them.
    pub(super) fn step(&mut self) -> Result<(), Closed> {
        if self.place() {
            self.learn()?;
        }
        let writer = self.writer.load(Relaxed);
        if writer != self.left_out && self.monitor.leave_out(writer).is_ok() {
            self.left_out = writer;
        }
        let mut heard = Heard::default();
        let tables: Vec<u32> =
            self.listed.numbers().iter().map(|vrf| vrf.table).chain([self.config.table]).collect();
        let (config, imported, writer) = (&self.config, &mut self.imported, &self.writer);
        let on_link = &mut self.on_link;
        let due = [self.verify_at, on_link.read_at()].into_iter().flatten().min();
        let timeout = self.system.until(due);
        let listened = self.monitor.notified(&self.wait, timeout, |port, content| {
            // The writer may have opened another socket during the wait.
            if port != writer.load(Relaxed) {
                heard.take(config, &tables, imported, &content);
                heard.on_link |= on_link.notified(&content);
            }
        });
        if let Err(e) = listened {
            if !overran(&e) {
                tracing::warn!(
                    target: target::KERNEL,
                    error = %e,
                    "watching the kernel's routes failed; comparing all of them"
                );
                self.system.sleep(REOPEN);
            }
            return self.lost();
        }
        if !heard.addresses.is_empty() {
            self.notes.send(Note::Addresses(heard.addresses))?;
        }
        if heard.objects {
            self.notes.send(Note::NextHops)?;
        }
        if !heard.touched.is_empty() {
            let _unhandled = self.unhandled.clone();
            self.notes.send(Note::Routes { touched: heard.touched, _unhandled })?;
            self.pause();
        }
        if heard.on_link {
            self.on_link.doubt(self.system.now());
        }
        self.read_on_link();
        if heard.import_again {
            self.learn()?;
        }
        self.plan(heard.imported);
        if self.verify_at.is_none_or(|at| at > self.system.now()) {
            return self.notify();
        }
        if self.imported.iter().any(ImportedRoutes::is_unordered) {
            return self.learn();
        }
        self.verify();
        self.notify()
    }

    /// Reads the routes to the subnets of interfaces, if it is time.
    fn read_on_link(&mut self) {
        if self.on_link.read_at().is_none_or(|at| at > self.system.now()) {
            return;
        }
        let system = &self.system;
        if let Err(e) = self.on_link.read(&mut self.requests, || system.now(), || system.cpu_time()) {
            tracing::warn!(
                target: target::KERNEL,
                error = %e,
                "the kernel's routes to the subnets of interfaces cannot be read; trying again"
            );
            self.on_link.doubt(self.system.now() + REOPEN);
        }
    }

    /// Pauses after a reaction, unless there were few of late.
    fn pause(&mut self) {
        let now = self.system.now();
        let (count, last) = self.repairs_of_late;
        let is_quiet = last.is_none_or(|last| now.saturating_duration_since(last) >= REPAIRS_QUIET);
        let count = if is_quiet { 1 } else { count + 1 };
        self.repairs_of_late = (count, Some(now));
        if count > REPAIRS_AT_ONCE {
            self.system.sleep(REPAIR_PAUSE);
        }
    }

    /// Plans when imported routes are read again. `changed`: one has changed. While routes come into
    /// the place of ribtide's, that waits for the end of them, as it waits for the writer.
    fn plan(&mut self, changed: bool) {
        let now = self.system.now();
        let waits_for_it = |imported: &ImportedRoutes| imported.is_unverified() || imported.is_unordered();
        if !self.imported.iter().any(waits_for_it) {
            if changed && self.verify_at.is_none() {
                self.verify_at = Some(now + ROUND_PAUSE);
            }
            self.unverified_since = None;
            return;
        }
        self.verify_again = true;
        let since = *self.unverified_since.get_or_insert(now);
        let is_due = self.verify_at.is_some_and(|at| at <= now);
        let waits = changed || !is_due || Arc::strong_count(&self.unhandled) > 1;
        if waits && now.saturating_duration_since(since) < VERIFY_AGAIN {
            let pause = VERIFY_PAUSE.max(self.verify_cost * URGENT_SHARE);
            if changed || is_due || self.verify_at.is_none_or(|at| at > now + pause) {
                self.verify_at = Some(now + pause);
            }
        }
    }

    /// Reads imported routes again, and plans the next time.
    fn verify(&mut self) {
        let before = self.system.cpu_time();
        let requests = &mut self.requests;
        let read = self
            .imported
            .iter_mut()
            .try_fold(0, |differing, imported| imported.verify(requests).map(|count| differing + count));
        self.verify_cost = self.system.cpu_time().saturating_sub(before);
        let pause = match read {
            Err(e) => {
                tracing::warn!(
                    target: target::KERNEL,
                    error = %e,
                    "the kernel's routes of other programs cannot be read; trying again"
                );
                REOPEN
            }
            Ok(differing) => {
                self.unverified_since = None;
                self.note_differing(differing);
                if std::mem::take(&mut self.verify_again) {
                    VERIFY_AGAIN.max(self.verify_cost * URGENT_SHARE)
                } else {
                    ROUND_PAUSE.max(self.verify_cost * ROUND_SHARE)
                }
            }
        };
        let has_routes = self.verify_again || self.imported.iter().any(|imported| !imported.is_empty());
        self.verify_at = has_routes.then(|| self.system.now() + pause);
    }

    /// Counts imported routes that were not as they were known.
    fn note_differing(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.repairs.note(Difference::Imported, count);
        let now = self.system.now();
        if self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_INTERVAL) {
            self.logged = Some(now);
            tracing::info!(
                target: target::KERNEL,
                routes = count,
                "routes of other programs had changed in the kernel, without a notification until now; read again"
            );
        }
    }

    /// Notifications were lost: everything is compared, after the remaining ones are discarded.
    fn lost(&mut self) -> Result<(), Closed> {
        let until = self.system.now() + COMPARE_PAUSE;
        while let left = until.saturating_duration_since(self.system.now())
            && !left.is_zero()
            && !self.stop.stopped()
        {
            // The comparison covers them.
            let _ = self.monitor.notified(&self.wait, left, |_, _| {});
        }
        self.notes.send(Note::Lost)?;
        self.on_link.doubt(self.system.now());
        self.read_on_link();
        self.learn()
    }

    /// Dumps all imported routes and sends the differences. Repeats until it succeeds.
    fn learn(&mut self) -> Result<(), Closed> {
        let before = self.system.cpu_time();
        loop {
            let requests = &mut self.requests;
            match self.imported.iter_mut().try_for_each(|imported| imported.read_all(requests)) {
                Ok(()) => break,
                Err(e) => {
                    self.stop.running()?;
                    self.unread.begin();
                    tracing::error!(
                        target: target::KERNEL,
                        error = %e,
                        "the kernel's routes cannot be read; trying again"
                    );
                    self.system.sleep(REOPEN);
                }
            }
        }
        self.unread.end();
        self.verify_cost = self.system.cpu_time().saturating_sub(before);
        (self.unverified_since, self.verify_again) = (None, false);
        let has_routes = self.imported.iter().any(|imported| !imported.is_empty());
        let pause = VERIFY_AGAIN.max(self.verify_cost * URGENT_SHARE);
        self.verify_at = has_routes.then(|| self.system.now() + pause);
        self.notify()
    }

    /// Sends changes of imported routes to the RIB.
    fn notify(&mut self) -> Result<(), Closed> {
        for batch in self.imported.iter_mut().filter_map(ImportedRoutes::news) {
            self.feedback.send(RibIn::Routes(batch))?;
        }
        Ok(())
    }
}

impl Heard {
    fn take(
        &mut self,
        config: &KernelConfig,
        tables: &[u32],
        imported: &mut [ImportedRoutes],
        content: &Content<'_>,
    ) {
        match content {
            Content::NewRoute(route) => self.route(config, tables, route, true),
            Content::DelRoute(route) => self.route(config, tables, route, false),
            Content::NewNextHop(object) => self.objects |= ROUTER_IDS.contain(object.id),
            Content::DelNextHop(id) => self.objects |= ROUTER_IDS.contain(*id),
            Content::NewAddress(address) | Content::DelAddress(address) => {
                self.addresses.push(address.local);
            }
            _ => {}
        }
        for imported in imported {
            self.imported |= imported.notified(content);
            self.import_again |= imported.may_have_lost(content);
        }
    }

    fn route(&mut self, config: &KernelConfig, tables: &[u32], route: &Route<'_>, there: bool) {
        self.touched.extend(Touched::of(route, there, config, tables));
    }
}
