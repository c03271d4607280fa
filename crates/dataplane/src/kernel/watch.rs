//! What others do to the kernel's routing table: to our routes and next-hop objects, which are put right, and with
//! routes of their own, which next hops may resolve through.
//!
//! A thread of its own, since these notifications may be many and must not crowd out those of interfaces. What our
//! writer does itself, the kernel leaves out of them. When some are lost, everything is compared.

use super::Note;
use super::imported_routes::ImportedRoutes;
use super::vrf::Listed;
use super::{REOPEN, STOP_POLL_INTERVAL};
use ribtide_config::KernelConfig;
use ribtide_netlink::{Socket, overran};
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_rib::{RibIn, Source};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed};
use ribtide_runtime::thread::Stop;
use ribtide_wire::netlink::numbers::{
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_LINK,
    RTNLGRP_NEXTHOP,
};
use ribtide_wire::netlink::{Content, Route, dump_next_hops, dump_table};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long it rests after it had something put right: another program that wants the same routes is not fought more
/// often than that.
const REPAIR_PAUSE: Duration = Duration::from_millis(10);
/// The least time between two words about that.
const SAY_PAUSE: Duration = Duration::from_secs(10);
/// The least time between two comparisons of everything because notifications were lost.
const COMPARE_PAUSE: Duration = Duration::from_secs(1);

/// A route that someone else wrote or deleted where ours are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touched {
    /// Its prefix.
    pub(crate) prefix: AnyPrefix,
    /// Its table.
    pub(crate) table: u32,
    /// Its metric.
    pub(crate) metric: u32,
    /// Whether it is there and bears our mark.
    pub(crate) marked: bool,
}

/// The watching thread.
pub(super) struct Watcher {
    config: KernelConfig,
    monitor: Socket,
    requests: Socket,
    /// The port of the writer's socket; what it does needs no repair.
    writer: Arc<AtomicU32>,
    /// The port that the kernel leaves out.
    left_out: u32,
    /// Others' routes, where they are wanted, of each VRF; the default one is the first.
    learnt: Vec<ImportedRoutes>,
    /// The VRFs beside it, and which of their changes is seen.
    listed: Listed,
    seen: u32,
    /// When it was last said that routes were put right.
    said: Option<Instant>,
    notes: ring::Sender<Note>,
    feedback: ring::Sender<RibIn>,
    stop: Stop,
}

/// What one read of notifications amounts to.
#[derive(Default)]
struct Heard {
    touched: Vec<Touched>,
    /// A next-hop object that may be ours was changed.
    objects: bool,
    /// Addresses that came or went: with the source address of routes the kernel drops them without a word.
    addresses: Vec<IpAddr>,
    /// Others' routes may have gone without a word.
    learn_again: bool,
}

impl Watcher {
    /// Begins to listen.
    ///
    /// # Errors
    /// The system refuses the sockets.
    pub(super) fn new(
        config: KernelConfig,
        listed: Listed,
        writer: Arc<AtomicU32>,
        notes: ring::Sender<Note>,
        feedback: ring::Sender<RibIn>,
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
        let monitor = Socket::monitor(&groups, config.receive_buffer, STOP_POLL_INTERVAL)?;
        let requests = Socket::open()?;
        let learnt = config.import.then(|| ImportedRoutes::new(&config)).into_iter().collect();
        Ok(Watcher {
            listed,
            seen: 0,
            config,
            monitor,
            requests,
            writer,
            left_out: 0,
            learnt,
            said: None,
            notes,
            feedback,
            stop,
        })
    }

    pub(super) fn run(mut self) {
        // It listens already, so nothing that happens during the dump is missed.
        self.place();
        let mut told = self.learn();
        if self.config.import {
            told = told.and_then(|()| self.feedback.send(RibIn::EndOfInitial(Source::Kernel)));
        }
        while told.is_ok() && !self.stop.stopped() {
            told = self.step();
        }
    }

    /// Reads other VRFs, if there are others than were. Whether there are.
    fn place(&mut self) -> bool {
        let Some(vrfs) = self.listed.news(&mut self.seen) else { return false };
        if self.config.import {
            // One that stays knows what it told.
            let mut former = self.learnt.split_off(1);
            for setup in &*vrfs {
                let known = former.iter().position(|learnt| learnt.is_of(setup.vrf));
                let learnt = known.map(|at| former.swap_remove(at));
                self.learnt.push(learnt.unwrap_or_else(|| ImportedRoutes::of(&self.config, setup.vrf)));
            }
        }
        true
    }

    fn step(&mut self) -> Result<(), Closed> {
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
        let (config, learnt) = (&self.config, &mut self.learnt);
        let listened = self.monitor.notified(|port, content| {
            if port != writer {
                heard.take(config, &tables, learnt, &content);
            }
        });
        if let Err(e) = listened {
            if !overran(&e) {
                tracing::warn!(
                    target: target::KERNEL,
                    error = %e,
                    "watching the kernel's routes failed; comparing all of them"
                );
                std::thread::sleep(REOPEN);
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
            if self.said.is_none_or(|said| said.elapsed() > SAY_PAUSE) {
                self.said = Some(Instant::now());
                let prefix = heard.touched[0].prefix;
                tracing::warn!(
                    target: target::KERNEL,
                    %prefix,
                    "another program or the kernel wrote or deleted routes where ribtide's are, such as this one; they are put \
                     right"
                );
            }
            self.notes.send(Note::Routes(heard.touched))?;
            std::thread::sleep(REPAIR_PAUSE);
        }
        if heard.learn_again { self.learn() } else { self.tell() }
    }

    /// Notifications were lost: everything is compared, once those that are still coming have been passed over.
    fn lost(&mut self) -> Result<(), Closed> {
        let until = Instant::now() + COMPARE_PAUSE;
        while Instant::now() < until && !self.stop.stopped() {
            // What they say, the comparison will find.
            let _ = self.monitor.notified(|_, _| {});
        }
        self.notes.send(Note::Lost)?;
        self.learn()
    }

    /// Reads all routes of others and tells what differs. Tries until it succeeds.
    fn learn(&mut self) -> Result<(), Closed> {
        loop {
            let requests = &mut self.requests;
            let read = self.learnt.iter_mut().try_for_each(|learnt| {
                learnt.restart();
                let table = learnt.table();
                // A dump that had to begin again repeats itself, which does no harm here.
                let mut dump = |write: &dyn Fn(&mut Vec<u8>, u32)| {
                    let read = requests.dump(write, |(): &mut (), content| learnt.take(&content));
                    match read {
                        // A kernel without a family, or without the table, has no routes of it.
                        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => Ok(()),
                        other => other,
                    }
                };
                dump(&dump_next_hops)
                    .and_then(|()| dump(&|out, seq| dump_table(out, seq, Afi::Ipv4, table)))
                    .and_then(|()| dump(&|out, seq| dump_table(out, seq, Afi::Ipv6, table)))
            });
            match read {
                Ok(()) => return self.tell(),
                Err(_) if self.stop.stopped() => return Err(Closed),
                Err(e) => {
                    tracing::error!(
                        target: target::KERNEL,
                        error = %e,
                        "the kernel's routes cannot be read; trying again"
                    );
                    std::thread::sleep(REOPEN);
                }
            }
        }
    }

    /// Tells the RIB what is new of others' routes.
    fn tell(&mut self) -> Result<(), Closed> {
        for batch in self.learnt.iter_mut().filter_map(ImportedRoutes::news) {
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
        learnt: &mut [ImportedRoutes],
        content: &Content<'_>,
    ) {
        match content {
            Content::NewRoute(route) => self.route(config, tables, route, true),
            Content::DelRoute(route) => self.route(config, tables, route, false),
            Content::NewNextHop(object) => self.objects |= super::objects::may_be_ours(object.id),
            Content::DelNextHop(id) => self.objects |= super::objects::may_be_ours(*id),
            Content::NewAddress(address) | Content::DelAddress(address) => {
                self.addresses.push(address.local);
            }
            _ => {}
        }
        for learnt in learnt {
            learnt.take(content);
            self.learn_again |= learnt.may_have_lost(content);
        }
    }

    fn route(&mut self, config: &KernelConfig, tables: &[u32], route: &Route<'_>, there: bool) {
        let metric = route.metric.unwrap_or(0);
        let ours = route.protocol == config.protocol;
        if tables.contains(&route.table) && (ours || metric == config.metric) {
            self.touched.push(Touched {
                prefix: route.prefix,
                table: route.table,
                metric,
                marked: there && ours,
            });
        }
    }
}
