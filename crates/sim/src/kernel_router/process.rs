//! One process of the router, and what its neighbours announce to the next one.

use super::{DATAPLANE, METRIC, PROTOCOL, Script, TABLE};
use crate::history::Announcement;
use crate::kernel::Kernel;
use crate::network::Event;
use crate::routing::Routing;
use ribtide_config::KernelConfig;
use ribtide_dataplane::kernel::machine::KernelMachine;
use ribtide_dataplane::kernel::{SimulatedClock, System};
use ribtide_dataplane::{BATCHES, DataplaneSink, FAILURES, FEEDBACK, RibChannel, ToRib};
use ribtide_prefix::{AnyPrefix, Families};
use ribtide_rib::{FibBatch, GatewayEvent, NONE, RibIn, RouteBatch, Source};
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Receiver, Rings};
use ribtide_runtime::thread::Stop;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The clock of a simulated kernel.
pub(super) struct Clock {
    pub(super) base: Instant,
    pub(super) kernel: Kernel,
}

impl SimulatedClock for Clock {
    fn now(&self) -> Instant {
        self.base + Duration::from_millis(self.kernel.state().now_ms())
    }

    fn sleep(&self, time: Duration) {
        self.kernel.state().pass(time.as_millis() as u64);
    }
}

/// A process.
pub(super) struct Process<'n> {
    pub(super) routing: Routing<'n>,
    pub(super) machine: KernelMachine,
    sink: DataplaneSink,
    feedback: Receiver<RibIn>,
    failures: Receiver<RibIn>,
    /// Initial sources whose end is not announced yet.
    initial: Vec<Source>,
}

impl<'n> Process<'n> {
    /// Starts one. `repairs`: whether it compares the kernel with its desired state.
    pub(super) fn start(script: &'n Script, system: &System, repairs: bool) -> Process<'n> {
        let initial = vec![Source::Static, Source::Bgp];
        let imported = script.import.then_some(Source::Kernel);
        let sources: Vec<Source> = initial.iter().copied().chain(imported).collect();
        let routing = Routing::starting(&script.network, script.setup, DATAPLANE, &sources);
        let config = KernelConfig {
            table: TABLE,
            protocol: PROTOCOL,
            metric: METRIC,
            // The switch is the real kernel's.
            compat_mode: true,
            source4: script.source.then_some([10, 7, 7, 7].into()),
            import: script.import,
            ..KernelConfig::default()
        };
        loop {
            let rings = Rings::default();
            let (to_feedback, feedback) = rings.bounded("feedback", FEEDBACK);
            let (to_failures, failures) = rings.bounded("failures", FAILURES);
            let confirms = Arc::new(script.setup.suppress.into());
            let rib = ToRib { feedback: to_feedback, failures: to_failures, confirms };
            let (stop, meter) = (Stop::default(), Meters::default().meter("kernel"));
            let (channel, sink) = RibChannel::new(DATAPLANE, "kernel", &rings, rib, meter, stop);
            // A process that cannot start is started again.
            if let Ok(mut machine) = KernelMachine::open(system, config.clone(), channel, &rings) {
                machine.set_compare_page(if repairs { script.compare_page } else { 0 });
                machine.begin().expect("the RIB manager runs");
                return Process { routing, machine, sink, feedback, failures, initial };
            }
        }
    }

    /// The sources have announced their initial routes.
    pub(super) fn end_initial(&mut self) {
        self.routing.inbox.extend(self.initial.drain(..).map(RibIn::EndOfInitial));
    }

    /// Whether the queue of the writer is full.
    pub(super) fn is_full(&self) -> bool {
        !self.routing.fib.is_empty() || self.sink.batches.len() >= BATCHES
    }

    /// Moves batches into the queue of the writer, and returns them.
    pub(super) fn send(&mut self) -> Vec<Arc<FibBatch>> {
        let mut sent = Vec::new();
        while self.sink.batches.len() < BATCHES
            && let Some(batch) = self.routing.fib.pop_front().map(Arc::new)
        {
            assert!(self.sink.batches.try_send(batch.clone()).is_ok(), "there is room");
            sent.push(batch);
        }
        sent
    }

    /// The messages of the dataplane.
    pub(super) fn receive(&mut self) -> Vec<RibIn> {
        let failures = std::iter::from_fn(|| self.failures.try_recv());
        failures.chain(std::iter::from_fn(|| self.feedback.try_recv())).collect()
    }

    /// A watcher reads, unless it would wait for the writer.
    pub(super) fn watch_routes(&mut self) {
        if !self.machine.is_behind() {
            self.machine.watch_routes().expect("the RIB manager runs");
        }
    }

    /// A watcher reads, unless it would wait for the writer.
    pub(super) fn watch_links(&mut self) {
        if !self.machine.is_behind() {
            self.machine.watch_links().expect("the RIB manager runs");
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.routing.fib.is_empty()
            && self.sink.batches.is_empty()
            && self.feedback.is_empty()
            && self.failures.is_empty()
            && self.machine.is_informed()
    }
}

/// What neighbours and the configuration say, for a process that starts.
pub(super) struct Neighbours {
    up: Vec<bool>,
    announced: Vec<BTreeMap<AnyPrefix, Announcement>>,
    statics: BTreeMap<AnyPrefix, RouteBatch>,
    gateways: BTreeMap<IpAddr, GatewayEvent>,
}

impl Neighbours {
    pub(super) fn new(peers: usize) -> Neighbours {
        Neighbours {
            up: vec![false; peers],
            announced: vec![BTreeMap::new(); peers],
            statics: BTreeMap::new(),
            gateways: BTreeMap::new(),
        }
    }

    /// Notes an event.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Up(peer) => self.up[*peer] = true,
            // A process that starts has no routes of an earlier session.
            Event::Down(peer) | Event::Lose(peer) => {
                self.up[*peer] = false;
                self.announced[*peer].clear();
            }
            Event::Announce(peer, with, prefixes) => {
                self.announced[*peer].extend(prefixes.iter().map(|prefix| (*prefix, with.clone())));
            }
            Event::Withdraw(peer, prefixes) => {
                prefixes.iter().for_each(|prefix| drop(self.announced[*peer].remove(prefix)));
            }
            Event::Network(RibIn::Routes(batch)) => {
                let Families { v4, v6 } = &batch.changes;
                let v4 = v4.iter().map(|(prefix, set)| (AnyPrefix::V4(*prefix), *set));
                let v6 = v6.iter().map(|(prefix, set)| (AnyPrefix::V6(*prefix), *set));
                for (prefix, set) in v4.chain(v6) {
                    match set {
                        NONE => self.statics.remove(&prefix),
                        _ => self.statics.insert(prefix, batch.clone()),
                    };
                }
            }
            Event::Network(RibIn::Gateway(gateway)) => {
                self.gateways.insert(gateway.address, *gateway);
            }
            Event::Sweep(_) | Event::Network(_) => {}
        }
    }

    /// Announces all of it.
    pub(super) fn announce(&self, routing: &mut Routing<'_>) {
        for batch in self.statics.values() {
            routing.happen(&Event::Network(RibIn::Routes(batch.clone())));
        }
        for gateway in self.gateways.values() {
            routing.happen(&Event::Network(RibIn::Gateway(*gateway)));
        }
        for (peer, announced) in self.announced.iter().enumerate().filter(|(peer, _)| self.up[*peer]) {
            routing.happen(&Event::Up(peer));
            for (prefix, with) in announced {
                routing.happen(&Event::Announce(peer, with.clone(), vec![*prefix]));
            }
        }
    }
}
