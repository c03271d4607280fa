//! Changes of best paths, kept for clients of `/v1/events`.
//!
//! While a client wants them, and a while after the last one, a thread takes them from the shards and keeps the latest.
//! Each has a number, and a lost one has, too: so a client sees from the numbers how many it has missed. Nothing here
//! stops a shard: what finds no room is counted.

mod stream;

pub(crate) use stream::{Streams, response};

use super::state::ApiState;
use ribtide_bgp::message::{BestBatch, BestPath, NONE};
use ribtide_bgp::peer::{PeerId, PeerInfo, PeerKind};
use ribtide_bgpd::Bgp;
use ribtide_model::{EventPath, RouteEvent, ZonedAddress};
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AfiSafi, AnyPrefix, BgpFamily, for_each_bgp_family};
use ribtide_runtime::date;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ended};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::code;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Events that are kept, at most.
const EVENTS_MAX: usize = 65_536;
/// Bytes of their data, at most.
const BYTES_MAX: usize = 16 << 20;
/// How long changes are taken after the last client left, so that it can resume.
const LINGER: Duration = Duration::from_secs(60);
/// The longest wait for a batch of a shard.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long the names of peers count as known.
const NAMES_AGE: Duration = Duration::from_secs(1);
/// Peers whose names are kept, those of ended sessions too.
const PEERS_MAX: usize = 65_536;

/// The kept changes, and the thread that takes them.
#[derive(Default)]
pub(crate) struct RouteEvents(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Counts recordings since the start: between two of them changes are missing, without a number.
    recording: u64,
    /// The thread runs.
    is_running: bool,
    clients: usize,
    /// Since when there is no client.
    idle_since: Option<Instant>,
    /// The number of the last event, lost ones included.
    last: u64,
    bytes: usize,
    events: VecDeque<Arc<KeptEvent>>,
}

/// A change.
pub(crate) struct KeptEvent {
    /// Its number, from 1 in this recording.
    pub(crate) number: u64,
    pub(crate) prefix: AnyPrefix,
    pub(crate) family: AfiSafi,
    /// The neighbours of the former and the new path.
    pub(crate) neighbors: [Option<IpAddr>; 2],
    /// A [`RouteEvent`] as JSON.
    pub(crate) data: Box<str>,
}

/// A client: while it exists, changes are taken.
pub(crate) struct Client(Arc<ApiState>);

impl Drop for Client {
    fn drop(&mut self) {
        let mut kept = self.0.route_events.kept();
        kept.clients -= 1;
        if kept.clients == 0 {
            kept.idle_since = Some(Instant::now());
        }
    }
}

impl RouteEvents {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recording, and the number of its last event.
    pub(crate) fn position(&self) -> (u64, u64) {
        let kept = self.kept();
        (kept.recording, kept.last)
    }

    /// At most `limit` events after this one, in order, and the number of the last that was looked at. The first number may be
    /// higher than the next one: those between are lost.
    pub(crate) fn after(&self, after: u64, limit: usize) -> (Vec<Arc<KeptEvent>>, u64) {
        let kept = self.kept();
        let from = kept.events.partition_point(|event| event.number <= after);
        let events: Vec<_> = kept.events.iter().skip(from).take(limit).cloned().collect();
        let is_all = from + events.len() == kept.events.len();
        let last = if is_all { kept.last } else { events.last().map_or(after, |event| event.number) };
        (events, last)
    }
}

impl Kept {
    fn push(&mut self, event: KeptEvent) {
        self.bytes += event.data.len();
        self.events.push_back(Arc::new(event));
        while (self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX)
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.data.len();
        }
    }
}

/// Takes changes from now on, until a while after the last client is dropped.
pub(crate) fn subscribe(state: &Arc<ApiState>) -> Client {
    let mut kept = state.route_events.kept();
    kept.clients += 1;
    kept.idle_since = None;
    if !kept.is_running {
        *kept = Kept {
            recording: kept.recording + 1,
            clients: kept.clients,
            is_running: true,
            ..Kept::default()
        };
        let of_thread = state.clone();
        if let Err(error) = thread::spawn("api-events", move || record(&of_thread)) {
            kept.is_running = false;
            tracing::warn!(target: target::API, %error, "no event of a route is sent: the system gives no thread");
        }
    }
    drop(kept);
    Client(state.clone())
}

/// The body of the thread. Where it ends, the next client starts another one.
fn record(state: &ApiState) -> Ended {
    let mut names = Names::default();
    loop {
        let Some(bgp) = state.bgp.get() else {
            std::thread::sleep(POLL_INTERVAL);
            if ends(state) {
                return Ended::done();
            }
            continue;
        };
        let changes = bgp.best_changes.lock().unwrap_or_else(PoisonError::into_inner);
        // What an earlier recording left.
        while changes.batches.try_recv().is_some() {}
        changes.take_lost();
        changes.want(true);
        let is_present = || state.bgp.get().is_some_and(|present| Arc::ptr_eq(&present, &bgp));
        while is_present() {
            match changes.batches.recv_timeout(POLL_INTERVAL) {
                Ok(Some(batch)) => keep(state, &bgp, &batch, &mut names),
                Ok(None) => {}
                Err(_) => break,
            }
            let lost = changes.take_lost();
            if lost > 0 {
                state.route_events.kept().last += lost;
            }
            if changes.batches.is_empty() && ends(state) {
                changes.want(false);
                return Ended::done();
            }
        }
        changes.want(false);
    }
}

/// Whether the recording ends now.
fn ends(state: &ApiState) -> bool {
    let mut kept = state.route_events.kept();
    if kept.clients > 0 || kept.idle_since.is_some_and(|since| since.elapsed() < LINGER) {
        return false;
    }
    kept.is_running = false;
    kept.events = VecDeque::new();
    kept.bytes = 0;
    true
}

fn keep(state: &ApiState, bgp: &Bgp, batch: &BestBatch, names: &mut Names) {
    let timestamp = date::rfc3339(SystemTime::now());
    let of = |index: u32| (index != NONE).then(|| batch.paths.get(index as usize)).flatten();
    let mut events = Vec::new();
    for_each_bgp_family!(F => for change in batch.changes.get::<F>() {
        let (from, to) = (of(change.old), of(change.new));
        let paths = [from, to].map(|path| path.map(|path| names.shown(bgp, path)));
        let neighbors = [0, 1].map(|at| Some(paths[at].as_ref()?.neighbor.as_ref()?.address));
        let [from, to] = paths;
        let (prefix, family) = (change.prefix.to_string(), F::ID.to_string());
        let event = RouteEvent { timestamp: timestamp.clone(), prefix, family, from, to };
        let data = serde_json::to_string(&event).unwrap_or_default().into();
        events.push((change.prefix.any(), F::ID, neighbors, data));
    });
    let mut kept = state.route_events.kept();
    for (prefix, family, neighbors, data) in events {
        kept.last += 1;
        let number = kept.last;
        kept.push(KeptEvent { number, prefix, family, neighbors, data });
    }
}

/// The peers of paths, as shards know them.
#[derive(Default)]
struct Names {
    /// `None`: no shard knows it. A peer whose session has ended stays, since its paths end after it.
    peers: BTreeMap<PeerId, Option<Arc<PeerInfo>>>,
    zones: BTreeMap<u32, String>,
    known_at: Option<Instant>,
}

impl Names {
    fn shown(&mut self, bgp: &Bgp, path: &BestPath) -> EventPath {
        let is_old = self.known_at.is_none_or(|at| at.elapsed() >= NAMES_AGE);
        if is_old {
            self.peers.retain(|_, peer| peer.is_some());
        }
        if is_old || !self.peers.contains_key(&path.source) {
            self.learn(bgp);
            self.peers.entry(path.source).or_default();
        }
        let attrs = &path.attrs;
        let peer = self.peers.get(&path.source).and_then(Option::as_ref);
        let originated = peer.and_then(|peer| match peer.kind {
            PeerKind::Local(source) => Some(source.name().to_owned()),
            _ => None,
        });
        let neighbor = peer.filter(|_| originated.is_none()).map(|peer| self.named(peer.address));
        let next_hop = self.named(attrs.next_hop().addr());
        let as_path = AsPath::new(attrs.value(code::AS_PATH).unwrap_or_default()).to_string();
        EventPath { neighbor, originated, next_hop, as_path }
    }

    fn learn(&mut self, bgp: &Bgp) {
        self.known_at = Some(Instant::now());
        // Each shard hears of a session by itself: the one that sent the path knows its peer, another may not yet.
        let shards = bgp.owners.read().shards.clone();
        // A stage that does not reply has ended, and this run of BGP with it.
        for sources in shards.iter().filter_map(|shard| shard.call(|shard| shard.sources()).ok()) {
            // Dynamic neighbours come and go.
            if self.peers.len() >= PEERS_MAX {
                self.peers.clear();
            }
            self.peers.extend(sources.into_iter().map(|peer| (peer.id, Some(peer))));
        }
        self.zones = bgp.sessions.call(|sessions| sessions.zone_names()).unwrap_or_default();
    }

    fn named(&self, address: IpAddr) -> ZonedAddress {
        let (address, zone) = split_zone(address);
        let name = |zone: u32| self.zones.get(&zone).cloned().unwrap_or_else(|| zone.to_string());
        ZonedAddress { address, zone: zone.map(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, length: usize) -> KeptEvent {
        let prefix = "10.0.0.0/8".parse().unwrap();
        let data = "x".repeat(length).into();
        KeptEvent { number, prefix, family: AfiSafi::Ipv4Unicast, neighbors: [None; 2], data }
    }

    #[test]
    fn kept_events_are_bounded_and_a_gap_is_seen_from_the_numbers() {
        let events = RouteEvents::default();
        let push = |number, length| {
            let mut kept = events.kept();
            kept.last = number;
            kept.push(event(number, length));
        };
        (1..=3).for_each(|number| push(number, 1));
        let numbers = |after, limit| {
            let (found, last) = events.after(after, limit);
            (found.iter().map(|event| event.number).collect::<Vec<_>>(), last)
        };
        assert_eq!(numbers(0, 2), (vec![1, 2], 2));
        assert_eq!(numbers(2, 2), (vec![3], 3));
        assert_eq!(numbers(3, 2), (vec![], 3));
        // 4 to 9 were lost on their way.
        events.kept().last = 9;
        assert_eq!(numbers(3, 2), (vec![], 9));
        push(10, 1);
        assert_eq!(numbers(3, 2), (vec![10], 10));
        push(11, BYTES_MAX);
        assert_eq!(numbers(0, 9), (vec![11], 11));
        (12..12 + EVENTS_MAX as u64).for_each(|number| push(number, 0));
        assert_eq!(events.after(0, 1).0[0].number, 12);
    }
}
