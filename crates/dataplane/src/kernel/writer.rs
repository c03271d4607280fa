//! The thread `kernel-fib`, which writes routes: what it does next, and what it waits for.
//!
//! [`Writer::turn`] does not wait, and takes the time from its [`System`], so the simulator runs it
//! as it is.

use super::super::RibChannel;
use super::routes::Kernel;
use super::system::System;
use super::vrf::Listed;
use super::{NOTES, Note, REOPEN};
use crossbeam_channel::Select;
use ribtide_config::KernelConfig;
use ribtide_rib::RibIn;
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Silence after which assumed state of the kernel is verified.
const KERNEL_QUIET_TIME: Duration = Duration::from_millis(20);
/// The longest delay of that by batches.
const DOUBT: Duration = Duration::from_millis(500);
/// The comparison of the kernel with the desired state takes at most one in this many parts of a
/// CPU: 2% (ADR 25).
const COMPARE_SHARE: u32 = 50;
/// The same in the first round after a replay that found own routes, which ends their adoption, and
/// for the rest of a round that has found a difference.
const URGENT_COMPARE_SHARE: u32 = 2;
/// The longest time for which batches delay the next page of the comparison. They do not delay the
/// pages of [`URGENT_COMPARE_SHARE`].
const COMPARE_DELAY_MAX: Duration = Duration::from_secs(2);
/// Routes that the comparison reads before batches go on: some 10 ms.
pub(super) const COMPARE_PAGE: usize = 8192;
/// The minimum interval of rounds of the comparison.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// Writes routes.
pub(super) struct Writer {
    system: System,
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
    /// Whether the kernel was quiet for as long as the last wait.
    quiet: bool,
    /// After a failure of the socket, when it is opened again.
    reopen_at: Option<Instant>,
    /// When the comparison goes on.
    compare_at: Instant,
    /// The start of its round.
    round_begin: Option<Instant>,
    /// Its present share of time: one in this many parts.
    compare_share: u32,
    /// Routes of one page of it; 0 without comparison.
    compare_page: usize,
}

/// Why the work does not go on.
enum Failure {
    Closed(Closed),
    Socket(io::Error),
}

impl From<Closed> for Failure {
    fn from(closed: Closed) -> Failure {
        Failure::Closed(closed)
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Socket(e)
    }
}

impl Writer {
    pub(super) fn new(
        system: &System,
        kernel: Kernel,
        config: KernelConfig,
        listed: Listed,
        channel: RibChannel,
        noted: ring::Receiver<Note>,
        writing_port: Arc<AtomicU32>,
    ) -> Writer {
        Writer {
            system: system.clone(),
            kernel,
            config,
            listed,
            channel,
            noted,
            writing_port,
            replayed: false,
            holding: false,
            quiet: false,
            reopen_at: None,
            compare_at: system.now(),
            round_begin: None,
            compare_share: COMPARE_SHARE,
            compare_page: COMPARE_PAGE,
        }
    }

    pub(super) fn run(mut self) -> Result<Infallible, Closed> {
        loop {
            self.channel.stop.running()?;
            if !self.turn()? {
                self.wait();
            }
        }
    }

    /// Does the next work. Returns whether there was some.
    ///
    /// # Errors
    /// The RIB manager has stopped.
    pub(super) fn turn(&mut self) -> Result<bool, Closed> {
        if let Some(at) = self.reopen_at {
            return self.reopen(at);
        }
        match self.work() {
            Ok(worked) => Ok(worked),
            Err(Failure::Closed(closed)) => Err(closed),
            Err(Failure::Socket(e)) => self.fail(&e).map(|()| true),
        }
    }

    fn work(&mut self) -> Result<bool, Failure> {
        if std::mem::take(&mut self.quiet) || self.kernel.doubts_for(DOUBT) {
            self.kernel.verify()?;
            self.report();
        }
        self.notes()?;
        let delay = if self.compare_share == COMPARE_SHARE { COMPARE_DELAY_MAX } else { Duration::ZERO };
        let overdue = self.compare_if_due(delay)?;
        let Some(batch) = self.channel.try_next()? else {
            let compared = overdue || self.compare_if_due(Duration::ZERO)?;
            return Ok(compared && self.round_begin.is_some());
        };
        // A batch caused by an interface change follows the note of that change.
        self.notes()?;
        let begin = self.system.now();
        self.replayed |= batch.start_of_replay;
        if self.replayed {
            self.kernel.confirms = self.channel.rib.confirms.load(Relaxed);
            self.kernel.apply(&batch)?;
        }
        if batch.end_of_replay && self.kernel.has_found_routes() {
            // Adopted routes are compared at once. Without any, the kernel has acknowledged each.
            (self.compare_at, self.compare_share) = (self.system.now(), URGENT_COMPARE_SHARE);
        }
        self.channel.meter.add(batch.route_count(), begin);
        // The RIB manager must know it before the acknowledgement.
        self.report_holding()?;
        let ack = self.kernel.results.ack(self.channel.id, batch.seq);
        self.channel.rib.feedback.send(RibIn::Ack(ack))?;
        Ok(true)
    }

    /// Waits for work.
    fn wait(&mut self) {
        let mut select = Select::new();
        self.channel.watch(&mut select);
        let until = |at: Instant| at.saturating_duration_since(self.system.now());
        let timeout = match self.reopen_at {
            Some(at) => until(at),
            None => {
                self.noted.watch(&mut select);
                let doubts = self.kernel.doubts_for(Duration::ZERO);
                let quiet = if doubts { KERNEL_QUIET_TIME } else { idle::until_idle() };
                if self.replayed { quiet.min(until(self.compare_at)) } else { quiet }
            }
        };
        let timed_out = select.ready_timeout(timeout).is_err();
        self.quiet = timed_out;
        if idle::on_wait(timed_out) {
            idle::trim(&mut self.kernel);
        }
    }

    /// Compares a page that has been due for `delay`. Returns whether one was.
    fn compare_if_due(&mut self, delay: Duration) -> io::Result<bool> {
        let due = self.replayed && self.compare_page > 0 && self.system.now() >= self.compare_at + delay;
        if due {
            self.compare()?;
        }
        Ok(due)
    }

    /// Compares the next routes of the kernel with the desired state, and sets the time of the next
    /// ones so that the comparison has no more than its share of time.
    fn compare(&mut self) -> io::Result<()> {
        let (begin, cpu_before) = (self.system.now(), self.system.cpu_time());
        let round_begin = *self.round_begin.get_or_insert(begin);
        let repairs = self.kernel.repairs.total();
        let ended = self.kernel.compare(self.compare_page)?;
        if self.kernel.repairs.total() != repairs {
            self.compare_share = URGENT_COMPARE_SHARE;
        }
        self.report();
        // Its CPU time counts, because other threads may have the CPU meanwhile; but batches get at
        // least half of the time.
        let cpu = self.system.cpu_time().saturating_sub(cpu_before);
        let elapsed = self.system.now().saturating_duration_since(begin);
        self.compare_at = begin + (cpu * self.compare_share).max(elapsed * URGENT_COMPARE_SHARE);
        if ended {
            self.compare_at = self.compare_at.max(round_begin + ROUND_INTERVAL);
            (self.round_begin, self.compare_share) = (None, COMPARE_SHARE);
        }
        Ok(())
    }

    /// Handles all waiting notes. The watchers end with the process.
    fn notes(&mut self) -> Result<(), Failure> {
        while let Some(note) = self.noted.next_now()? {
            self.noted(&note)?;
        }
        Ok(())
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
            Note::Routes { touched, .. } => self.kernel.touched(touched)?,
            Note::Vrfs => self.listed.numbers().into_iter().try_for_each(|vrf| self.kernel.know(vrf))?,
        }
        self.report();
        Ok(())
    }

    fn log_repairs(&mut self) {
        // The watcher logs what it repairs of imported routes.
        let Some(([missing, other_next_hops, unexpected, next_hop_objects, _], prefix)) =
            self.kernel.repairs.take_unlogged()
        else {
            return;
        };
        tracing::warn!(
            target: target::KERNEL,
            missing,
            other_next_hops,
            unexpected,
            next_hop_objects,
            prefix,
            "routes or next-hop objects in the kernel were not as ribtide wrote them, because another program or the kernel \
             changed them; repaired"
        );
    }

    /// Reports changed results of routes that no batch contains.
    fn report(&mut self) {
        self.log_repairs();
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
    fn fail(&mut self, e: &io::Error) -> Result<(), Closed> {
        tracing::error!(
            target: target::KERNEL,
            error = %e,
            "writing to the kernel's routing table failed; comparing all of it and trying again"
        );
        self.channel.rib.feedback.send(RibIn::DataplaneDown(self.channel.id))?;
        (self.replayed, self.holding, self.round_begin) = (false, false, None);
        self.channel.restart();
        self.reopen_at = Some(self.system.now() + REOPEN);
        Ok(())
    }

    /// Opens a socket when it is time. Returns whether it did.
    fn reopen(&mut self, at: Instant) -> Result<bool, Closed> {
        // A dataplane that is down gets no batches; those in the queue are dropped.
        while self.channel.try_next()?.is_some() {}
        if self.system.now() < at {
            return Ok(false);
        }
        match Kernel::open(&self.system, self.config.clone(), &self.listed.numbers()) {
            Ok(kernel) => {
                self.writing_port.store(kernel.port(), Relaxed);
                let repairs = std::mem::take(&mut self.kernel.repairs);
                self.kernel = kernel;
                self.kernel.repairs = repairs;
                self.reopen_at = None;
                self.channel.rib.feedback.send(RibIn::DataplaneUp(self.channel.id))?;
                Ok(true)
            }
            Err(e) => {
                tracing::error!(
                    target: target::KERNEL,
                    error = %e,
                    "the kernel's routing table cannot be opened; trying again"
                );
                self.reopen_at = Some(self.system.now() + REOPEN);
                Ok(false)
            }
        }
    }

    /// For the simulator: whether the queue of notes is half full.
    pub(super) fn has_many_notes(&self) -> bool {
        self.noted.len() > NOTES / 2
    }

    /// For the simulator: whether no note waits, nothing is assumed, and the socket is open.
    pub(super) fn is_informed(&self) -> bool {
        self.noted.is_empty() && self.reopen_at.is_none() && !self.kernel.doubts_for(Duration::ZERO)
    }

    /// For the simulator: the kernel was quiet for as long as a wait takes.
    pub(super) fn set_quiet(&mut self) {
        self.quiet = true;
    }

    /// For the simulator: the pages of the comparison have so many routes. With 0 there is none.
    pub(super) fn set_compare_page(&mut self, routes: usize) {
        self.compare_page = routes;
    }
}
