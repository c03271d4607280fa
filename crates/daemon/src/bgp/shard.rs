//! The shard threads: each owns one [`Shard`] and hands what it says to the egress workers and the RIB manager.
//!
//! ```text
//! readers ──inbox──► shard ──► egress workers
//!                    ▲   └───► RIB manager
//!                    └─ feedback: dump requests, next-hop states (their senders never wait)
//! ```

use crossbeam_channel::select_biased;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::{EgressIn, Feed, FeedSet, ShardIn};
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::{Effects, Shard, ShardOut, ToEgress};
use ribtide_prefix::Families;
use ribtide_rib::{NextHops, Protocol, ReceivedHop, RibIn, RouteBatch, RouteSet, Source};
use ribtide_runtime::ask::{Asked, Asker, pair};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_runtime::thread::{self, Stop};
use ribtide_wire::bgp::NextHop;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Route batches that may wait at a shard: each is at most one read of one socket.
const INBOX: usize = 128;
/// Requests that may wait at a shard.
const FEEDBACK: usize = 256;
/// Prefixes after which effects are handed on even if more work is at hand: a worker or the RIB should not starve
/// while a shard is busy.
const HAND_ON: usize = 4096;

/// A shard's connections, before it runs.
pub struct ShardBuilder {
    index: u16,
    inbox: (Sender<ShardIn>, Receiver<ShardIn>),
    feedback: (Sender<ShardIn>, Receiver<ShardIn>),
}

/// Where a shard's effects go.
pub struct Outlets {
    /// The egress workers, by number.
    pub workers: Vec<Sender<EgressIn>>,
    /// The RIB manager, where routes are installed.
    pub rib: Option<Sender<RibIn>>,
    /// Told of each session of which nothing is left in the shard.
    pub purged: Box<dyn Fn(PeerId, u32) + Send>,
}

impl ShardBuilder {
    /// Makes the rings of shard thread `index`.
    pub fn new(index: u16, rings: &Rings) -> ShardBuilder {
        ShardBuilder {
            index,
            inbox: rings.bounded(format!("readers to shard {index}"), INBOX),
            feedback: rings.bounded(format!("requests to shard {index}"), FEEDBACK),
        }
    }

    /// For readers.
    pub fn inbox(&self) -> Sender<ShardIn> {
        self.inbox.0.clone()
    }

    /// For workers and the RIB manager, who must not wait when it is full.
    pub fn feedback(&self) -> Sender<ShardIn> {
        self.feedback.0.clone()
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        self,
        options: DecisionOptions,
        outlets: Outlets,
        meters: &Meters,
        stop: Stop,
    ) -> io::Result<Asker<Shard>> {
        let (asker, asked) = pair("shard");
        let stage = Stage {
            shard: Shard::new(options),
            out: ShardOut::default(),
            outlets,
            inbox: self.inbox.1,
            feedback: self.feedback.1,
            meter: meters.meter("shard"),
        };
        thread::spawn(format!("shard-{}", self.index), move || stage.run(&asked, &stop))?;
        Ok(asker)
    }
}

struct Stage {
    shard: Shard,
    out: ShardOut,
    outlets: Outlets,
    inbox: Receiver<ShardIn>,
    feedback: Receiver<ShardIn>,
    meter: Meter,
}

impl Stage {
    fn run(mut self, asked: &Asked<Shard>, stop: &Stop) {
        while !stop.stopped() {
            // While tables are left to walk, the wait is no wait: a step between any two messages.
            let patience = if self.shard.work_left() { Duration::ZERO } else { Duration::from_millis(100) };
            select_biased! {
                recv(self.feedback.raw()) -> message => {
                    if let Ok(message) = message {
                        let message = self.feedback.took(message);
                        self.shard.handle(message, &mut self.out);
                    }
                }
                recv(asked.raw()) -> question => {
                    if let Ok(question) = question {
                        question(&mut self.shard);
                    }
                }
                recv(self.inbox.raw()) -> message => {
                    if let Ok(message) = message {
                        let message = self.inbox.took(message);
                        self.work(message);
                    }
                }
                default(patience) => {}
            }
            if self.shard.work_left() {
                self.shard.step(&mut self.out);
            }
            if !self.out.is_empty() {
                self.hand_on();
            }
        }
    }

    /// Handles a message and those that wait behind it, as far as one hand-over should go.
    fn work(&mut self, first: ShardIn) {
        let begin = Instant::now();
        let mut routes = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            if let ShardIn::Routes(batch) = &message {
                routes += batch.prefixes.v4.len() + batch.prefixes.v6.len();
            }
            self.shard.handle(message, &mut self.out);
            next = if self.out.len() < HAND_ON { self.inbox.try_recv() } else { None };
        }
        self.meter.add(routes, begin);
    }

    fn hand_on(&mut self) {
        let Effects { egress, feed, next_hops, purged } = self.out.take();
        // Sends fail only when the process is stopping; what is lost then is not needed.
        for message in egress {
            match message {
                ToEgress::All(batch) => {
                    let batch = Arc::new(batch);
                    for worker in &self.outlets.workers {
                        let _ = worker.send(EgressIn::Best(batch.clone()));
                    }
                }
                ToEgress::One(worker, message) => {
                    if let Some(worker) = self.outlets.workers.get(worker as usize) {
                        let _ = worker.send(message);
                    }
                }
            }
        }
        if let Some(rib) = &self.outlets.rib {
            for message in to_rib(feed, &next_hops) {
                let _ = rib.send(message);
            }
        }
        for (peer, session) in purged {
            (self.outlets.purged)(peer, session);
        }
    }
}

/// What the RIB manager gets: next hops to watch before the routes that use them.
fn to_rib(feed: Feed, next_hops: &[(IpAddr, bool)]) -> Vec<RibIn> {
    let of = |used: bool| next_hops.iter().filter(|(_, u)| *u == used).map(|(a, _)| *a).collect::<Vec<_>>();
    let (track, untrack) = (of(true), of(false));
    let mut messages = Vec::new();
    if !track.is_empty() {
        messages.push(RibIn::Track(track));
    }
    if !feed.changes.v4.is_empty() || !feed.changes.v6.is_empty() {
        let sets = feed.sets.iter().map(route_set).collect();
        let changes = Families { v4: feed.changes.v4, v6: feed.changes.v6 };
        messages.push(RibIn::Routes(RouteBatch { source: Source::Bgp, sets, changes }));
    }
    if !untrack.is_empty() {
        messages.push(RibIn::Untrack(untrack));
    }
    messages
}

fn route_set(set: &FeedSet) -> RouteSet {
    let hops = set.next_hops.iter().map(|next_hop| {
        ReceivedHop::gateway(match next_hop {
            NextHop::V4(a) => IpAddr::V4(*a),
            // The link-local address alone says nothing without its interface; the global one resolves.
            NextHop::V6 { global, .. } => IpAddr::V6(*global),
        })
    });
    let protocol = if set.kind.internal { Protocol::BgpInternal } else { Protocol::BgpExternal };
    RouteSet {
        next_hops: NextHops::Via(hops.collect()),
        distance: protocol.default_distance(),
        metric: 0,
        allow_recursion: set.kind.recursive,
        protocol,
    }
}
