//! BGP and the RIB manager as one loop. Shards feed routes, the RIB manager resolves next hops, and
//! the results change the usable paths and so the fed routes. A seed decides which stage runs next.
//!
//! When all stages are idle, their states must agree, after at most [`Feedback::most`] changes
//! since the last event:
//!
//! - A route that a peer was sent is BGP's candidate in the RIB manager, with the shard's next hops, and
//!   resolves; or another protocol's route is selected.
//! - So is every best path, and BGP has a path for every candidate.
//! - With FIB suppression, a route that a peer was sent is in the dataplane.
//! - The dataplane has the selected routes.

use crate::network::{Event, Network};
use crate::routing::Routing;
pub use crate::routing::Setup;
use ribtide_bgp::peer::PeerId;
use ribtide_prefix::{AnyPrefix, Rng, for_each_family};
use ribtide_rib::{DataplaneId, FibAck, FibBatch, FibGroup, GroupId, MAX_LEVEL, RibIn};
use ribtide_wire::bgp::NextHop;
use std::collections::{BTreeMap, VecDeque};

/// The time to wait for delayed notifications, in milliseconds: several times the longest delay
/// (ADR 20). Paths that depend on each other without a stable state change for ever at that rate.
const DELAY_MAX_MS: u64 = 600_000;
/// The longest hold of a loss, in milliseconds (ADR 20, section 6).
const HOLD_MAX_MS: u64 = 250;
/// The one dataplane.
const DATAPLANE: DataplaneId = 0;

/// The final state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The routes that each peer was sent.
    pub advertised: BTreeMap<PeerId, BTreeMap<AnyPrefix, (Vec<u8>, NextHop)>>,
    /// Whether the RIB manager delayed notifications of flapping next hops.
    pub damped: bool,
    /// The dataplane's routes.
    pub forwarded: BTreeMap<AnyPrefix, FibGroup>,
}

/// The running stages.
pub struct Feedback<'n> {
    network: &'n Network,
    setup: Setup,
    rng: Rng,
    routing: Routing<'n>,
    damped: bool,
    dataplane: Dataplane,
    /// Routes and groups sent to the dataplane since the last event.
    changes: usize,
    /// Events since all stages were idle.
    events: usize,
}

/// A dataplane that applies its batches late.
#[derive(Default)]
struct Dataplane {
    queue: VecDeque<FibBatch>,
    groups: BTreeMap<GroupId, FibGroup>,
    routes: BTreeMap<AnyPrefix, GroupId>,
}

impl Dataplane {
    fn apply(&mut self, batch: FibBatch) {
        self.groups.extend(batch.groups.into_iter().map(|op| (op.id, op.content)));
        for_each_family!(F => for route in batch.routes.get::<F>() {
            match route.group {
                Some(group) => self.routes.insert(route.prefix.any(), group),
                None => self.routes.remove(&route.prefix.any()),
            };
        });
        assert!(self.routes.values().all(|group| self.groups.contains_key(group)), "a route by no group");
        for group in batch.after {
            assert!(self.routes.values().all(|used| *used != group), "{group:?} goes and is used");
            self.groups.remove(&group);
        }
    }

    fn forwarding(&self) -> BTreeMap<AnyPrefix, FibGroup> {
        self.routes.iter().map(|(prefix, group)| (*prefix, self.groups[group].clone())).collect()
    }
}

impl<'n> Feedback<'n> {
    /// A run of `network`.
    pub fn new(network: &'n Network, setup: Setup, rng: Rng) -> Feedback<'n> {
        let mut routing = Routing::new(network, setup, DATAPLANE);
        routing.inbox.push_front(RibIn::DataplaneUp(DATAPLANE));
        let dataplane = Dataplane::default();
        Feedback { network, setup, rng, routing, damped: false, dataplane, changes: 0, events: 0 }
    }

    /// The changes that one undamped event may cause, at most: notifications of next hops, and
    /// routes and groups of the dataplane. Each prefix and next hop may change twice per level of
    /// recursion.
    pub fn most(&self) -> usize {
        2 * self.network.size * usize::from(MAX_LEVEL)
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Outcome {
        for event in &self.network.events {
            self.happen(event);
            if self.setup.calm || self.rng.one_in(10) {
                self.settle();
            }
            while self.rng.one_in(2) {
                self.advance();
            }
        }
        self.settle();
        let (advertised, forwarded) = (self.routing.egress.advertised(), self.dataplane.forwarding());
        Outcome { advertised, damped: self.damped, forwarded }
    }

    fn happen(&mut self, event: &Event) {
        self.events += 1;
        (self.changes, self.routing.notified) = (0, 0);
        self.routing.happen(event);
    }

    /// Runs one step of one stage.
    fn advance(&mut self) {
        let Feedback { routing, rng, .. } = self;
        match rng.index(5) {
            0 => routing.export(rng),
            1 => routing.resolve(rng),
            2 => self.forward(),
            3 => routing.answer(rng),
            _ => routing.decide(rng),
        }
        for batch in self.routing.fib.drain(..) {
            self.changes += batch.route_count() + batch.groups.len();
            self.dataplane.queue.push_back(batch);
        }
    }

    /// The dataplane applies a batch.
    fn forward(&mut self) {
        let Some(batch) = self.dataplane.queue.pop_front() else { return };
        let seq = batch.seq;
        self.dataplane.apply(batch);
        let ack = FibAck { dataplane: DATAPLANE, seq, failed: Vec::new(), installed: Vec::new() };
        self.routing.inbox.push_back(RibIn::Ack(ack));
    }

    fn is_busy(&self) -> bool {
        self.routing.is_busy() || !self.dataplane.queue.is_empty()
    }

    /// Runs all stages until they are idle, and checks that their states agree.
    fn settle(&mut self) {
        let (most, since) = (self.most() * (self.events + 1), self.routing.time);
        loop {
            while self.is_busy() {
                (0..20).for_each(|_| self.advance());
                self.routing.egress.unblock();
                // Feedback through BGP's choice among several paths: each next hop changes 4 times at once, then back and
                // forth after each of 7 delays (ADR 20, section 6).
                let most = if self.damped { most * (4 + 2 * 7) } else { most };
                let changes = self.changes + self.routing.notified;
                assert!(
                    changes <= most,
                    "{changes} changes since the last event, and there is still something to do: no rest comes"
                );
            }
            let delayed = self.routing.rib.delayed_next_hops() > 0;
            // Until a held loss is due, BGP may still have the answer of before.
            let limit = (since + DELAY_MAX_MS).max(self.routing.time + HOLD_MAX_MS);
            if !self.routing.wait(limit) {
                break;
            }
            self.damped |= delayed;
        }
        self.events = 0;
        self.routing.compare();
        let selected: BTreeMap<AnyPrefix, FibGroup> =
            self.routing.selected().into_iter().map(|(prefix, info)| (prefix, info.content)).collect();
        assert_eq!(self.dataplane.forwarding(), selected, "what the dataplane does");
    }
}
