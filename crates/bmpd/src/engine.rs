//! The state of the thread: the sessions of BGP, and the stations.

use super::dump::{Dump, Progress};
use super::station::{Station, StationView};
use super::{Router, encode, statistics};
use mio::{Events, Poll};
use ribtide_bgp::egress::Write;
use ribtide_bgp::peer::{FamilySet, PeerId, PeerInfo};
use ribtide_bgpd::Stages;
use ribtide_bgpd::monitor::{Feed, MonitorIn, SessionNews, SessionUp, Wanted};
use ribtide_config::{BmpConfig, BmpStation, BmpViews};
use ribtide_runtime::clock::{Clock, Millis};
use ribtide_wire::bmp::{Timestamp, build, flags, information, termination};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Messages of stages that are taken before sockets have their turn.
const TAKE: usize = 64;
/// Waiting bytes of a station above which no page is requested for it.
const PAGE_THRESHOLD: usize = 1 << 20;
/// Poll interval while routes move between shards.
const MOVE_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long stations may take to accept a Termination at the stop.
const FAREWELL: Duration = Duration::from_millis(100);

/// Why a station's session ends for good.
const NOT_CONFIGURED: &str = "the station is no longer configured";

/// The thread's state.
pub struct Engine {
    poll: Poll,
    clock: Clock,
    feed: Feed,
    stages: Stages,
    router: Router,
    initiation: Arc<[u8]>,
    stations: Vec<Station>,
    /// The established sessions, by peer.
    sessions: BTreeMap<PeerId, Arc<SessionUp>>,
    next_token: usize,
    last_page: u64,
    /// Pages could not be requested because routes move.
    is_held: bool,
}

/// A reload's changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Added stations.
    pub added: usize,
    /// Removed stations.
    pub removed: usize,
    /// Stations with other settings.
    pub changed: usize,
}

impl Engine {
    pub(super) fn new(poll: Poll, feed: Feed, stages: Stages, router: Router, clock: Clock) -> Engine {
        Engine {
            poll,
            clock,
            feed,
            stages,
            router,
            initiation: Arc::from([]),
            stations: Vec::new(),
            sessions: BTreeMap::new(),
            next_token: 0,
            last_page: 0,
            is_held: false,
        }
    }

    /// Applies other stations. One whose address, views and local address stay keeps its session.
    pub fn configure(&mut self, config: &BmpConfig) -> Changes {
        let now = self.clock.now();
        let mut changes = Changes::default();
        let initiation = initiation(config);
        let same_router = *initiation == *self.initiation;
        self.initiation = initiation;
        let mut former = std::mem::take(&mut self.stations);
        for settings in &config.stations {
            let Some(at) = former.iter().position(|station| station.settings.name == settings.name) else {
                changes.added += 1;
                self.next_token += 1;
                self.stations.push(Station::new(settings.clone(), self.next_token, now));
                continue;
            };
            let mut station = former.swap_remove(at);
            let BmpStation {
                name: _,
                address,
                local_address,
                views,
                statistics_interval,
                retry_interval,
                queue,
            } = settings;
            let old = &station.settings;
            let same_session = same_router
                && (*address, *local_address, *views) == (old.address, old.local_address, old.views);
            let same_rest = (*statistics_interval, *retry_interval, *queue)
                == (old.statistics_interval, old.retry_interval, old.queue);
            changes.changed += usize::from(!(same_session && same_rest));
            if *statistics_interval != old.statistics_interval && station.is_up() {
                station.statistics_at = statistics::next(*statistics_interval, now);
            }
            station.settings = settings.clone();
            if !same_session {
                station.restart("the configuration has changed", now);
            }
            self.stations.push(station);
        }
        changes.removed = former.len();
        for mut station in former {
            station.terminate(termination::PERMANENT, NOT_CONFIGURED);
        }
        self.want();
        changes
    }

    /// Removes every station with a Termination.
    pub fn remove_stations(&mut self) {
        for mut station in self.stations.drain(..) {
            station.terminate(termination::PERMANENT, NOT_CONFIGURED);
        }
        self.want();
    }

    /// The stations, in the order of their names.
    pub fn view(&self) -> Vec<StationView> {
        let now = self.clock.now();
        self.stations.iter().map(|station| station.view(now)).collect()
    }

    /// Learns the sessions that there are already.
    pub(super) fn begin(&mut self) {
        // A stage that has stopped ends the process.
        if let Ok(sessions) = self.stages.sessions.wait(|sessions| sessions.monitored()) {
            sessions.into_iter().for_each(|up| self.up(up));
        }
    }

    /// Sets what stages send: what the stations with sessions get.
    fn want(&mut self) {
        let mut wanted = Wanted::default();
        for station in self.stations.iter().filter(|station| station.is_up()) {
            let BmpViews { pre_policy, post_policy, adj_rib_out, loc_rib } = station.settings.views;
            for (view, what) in [
                (pre_policy, Wanted::RECEIVED),
                (post_policy, Wanted::ACCEPTED),
                (adj_rib_out, Wanted::SENT),
                (loc_rib, Wanted::BEST),
            ] {
                wanted = if view { wanted.and(what) } else { wanted };
            }
        }
        self.feed.want(wanted);
    }

    /// Waits for a message, a socket, a call, or the time of the next step.
    pub(super) fn wait(&mut self, events: &mut Events) {
        let now = self.clock.now();
        let timeout = if !self.feed.data.is_empty() || !self.feed.sessions.is_empty() || self.can_dump() {
            Some(if self.is_held { MOVE_POLL_INTERVAL } else { Duration::ZERO })
        } else {
            let due = self.stations.iter().filter_map(Station::due).min();
            // The clock counts whole milliseconds.
            due.map(|due| Duration::from_millis(due.saturating_sub(now) + 1))
        };
        if let Err(error) = self.poll.poll(events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            panic!("the BMP thread cannot wait for its sockets: {error}");
        }
    }

    /// Whether a page can be requested.
    fn can_dump(&self) -> bool {
        let can = |station: &Station| {
            station.queued() < PAGE_THRESHOLD && station.dump.as_ref().is_some_and(|dump| !dump.is_waiting())
        };
        self.stations.iter().any(can)
    }

    /// The connection of this token is ready.
    pub(super) fn ready(&mut self, token: usize) {
        let now = self.clock.now();
        let Some(at) = self.stations.iter().position(|station| station.token == token) else { return };
        let begun = self.stations[at].ready(now);
        if begun {
            self.start(at, now);
        }
    }

    /// A session with a station begins: it gets the sessions of BGP at once, and then the tables.
    fn start(&mut self, at: usize, now: Millis) {
        // Stages send changes before they send the pages that are requested from now on.
        self.want();
        self.take_sessions();
        let station = &mut self.stations[at];
        station.push(&self.initiation, now);
        let views = station.settings.views;
        let mut peers = Vec::new();
        if views.loc_rib {
            encode::loc_rib_up(self.router, encode::timestamp(SystemTime::now()), &mut peers);
        }
        if has_peers(views) {
            self.sessions.values().for_each(|up| encode::peer_up(up, &mut peers));
        }
        station.push(&peers.into(), now);
        station.dump = Some(Dump::new(views, self.sessions.values()));
        station.statistics_at = statistics::next(station.settings.statistics_interval, now);
    }

    /// Takes messages of stages.
    pub(super) fn take(&mut self) {
        self.take_sessions();
        for _ in 0..TAKE {
            let Some(message) = self.feed.data.try_recv() else { return };
            // The session of the message is known then, or it has ended.
            self.take_sessions();
            self.message(message);
        }
    }

    fn take_sessions(&mut self) {
        while let Some(news) = self.feed.sessions.try_recv() {
            match news {
                SessionNews::Up(up) => self.up(up),
                SessionNews::Down { up, cause, at } => {
                    let info = &up.info;
                    if self.sessions.get(&info.id).is_none_or(|known| known.info.session != info.session) {
                        continue;
                    }
                    self.sessions.remove(&info.id);
                    let mut messages = Vec::new();
                    encode::peer_down(info, &cause, at, &mut messages);
                    self.broadcast(messages, has_peers);
                }
            }
        }
    }

    /// A session is established, unless that is known.
    fn up(&mut self, up: Arc<SessionUp>) {
        let info = &up.info;
        if self.sessions.get(&info.id).is_some_and(|known| known.info.session >= info.session) {
            return;
        }
        let mut messages = Vec::new();
        encode::peer_up(&up, &mut messages);
        self.broadcast(messages, has_peers);
        // The peer has no routes yet. Later UPDATEs, in both directions, have markers of their own.
        let mut end = Vec::new();
        encode::end(&encode::peer(info, flags::POST_POLICY, Timestamp::default()), info.families, &mut end);
        let end: Arc<[u8]> = end.into();
        let now = self.clock.now();
        for station in &mut self.stations {
            if station.settings.views.post_policy && station.dump.is_none() {
                station.push(&end, now);
            }
        }
        self.sessions.insert(info.id, up);
    }

    /// Sends messages to the stations with such views.
    fn broadcast(&mut self, messages: Vec<u8>, has: impl Fn(BmpViews) -> bool) {
        let (messages, now): (Arc<[u8]>, _) = (messages.into(), self.clock.now());
        for station in self.stations.iter_mut().filter(|station| has(station.settings.views)) {
            station.push(&messages, now);
        }
    }

    /// The facts of a session, while it lasts.
    fn info(&self, peer: PeerId, session: u32) -> Option<Arc<PeerInfo>> {
        let up = self.sessions.get(&peer).filter(|up| up.info.session == session)?;
        Some(up.info.clone())
    }

    fn message(&mut self, message: MonitorIn) {
        let time = encode::timestamp(SystemTime::now());
        let mut out = Vec::new();
        match message {
            MonitorIn::Received(received) => {
                if self.info(received.info.id, received.info.session).is_some() {
                    encode::received(&received, &mut out);
                    self.broadcast(out, |views| views.pre_policy);
                }
            }
            MonitorIn::Accepted(batch) => {
                if let Some(info) = self.info(batch.peer, batch.session) {
                    encode::accepted(&info, &batch, time, &mut out);
                    self.broadcast(out, |views| views.post_policy);
                }
            }
            MonitorIn::Best(batch) => {
                encode::best(self.router, &batch, time, &mut out);
                self.broadcast(out, |views| views.loc_rib);
            }
            MonitorIn::Sent(writes) => {
                self.sent(&writes, time, &mut out);
                self.broadcast(out, |views| views.adj_rib_out);
            }
            MonitorIn::KeptChanged => {
                let now = self.clock.now();
                for station in self.stations.iter_mut().filter(|station| station.settings.views.pre_policy) {
                    if station.is_up() {
                        station.restart("keep-received of a neighbour has changed", now);
                    }
                }
                self.want();
            }
            MonitorIn::Kept(page) => {
                if let Some(info) = self.info(page.info.id, page.info.session) {
                    encode::kept(&info, &page.routes, &mut out);
                }
                self.page(page.token, out);
            }
            MonitorIn::Page(page) => {
                let time = Timestamp::default();
                for batch in &page.accepted {
                    if let Some(info) = self.info(batch.peer, batch.session) {
                        encode::accepted(&info, batch, time, &mut out);
                    }
                }
                if let Some(best) = &page.best {
                    encode::best(self.router, best, time, &mut out);
                }
                self.page(page.token, out);
            }
            MonitorIn::Mirrored(page) => {
                self.sent(&page.writes, Timestamp::default(), &mut out);
                self.page(page.token, out);
            }
        }
    }

    /// Messages of a page, for the station that requested it.
    fn page(&mut self, token: u64, mut messages: Vec<u8>) {
        let now = self.clock.now();
        for station in &mut self.stations {
            if let Some(mut end) = station.dump.as_mut().and_then(|dump| dump.take(token)) {
                messages.append(&mut end);
                return station.push(&messages.into(), now);
            }
        }
    }

    fn sent(&self, writes: &[Write], time: Timestamp, out: &mut Vec<u8>) {
        for write in writes {
            for receiver in write.receivers() {
                if let Some(info) = self.info(receiver.peer, receiver.session) {
                    encode::sent(&info, &write.chunk, time, out);
                }
            }
        }
    }

    /// Does what is due: connects, requests pages, and sends statistics.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        self.is_held = false;
        for at in 0..self.stations.len() {
            self.stations[at].tick(&self.poll, now);
            self.dump(at, now);
            if self.stations[at].statistics_at.is_some_and(|due| due <= now) {
                self.statistics(at, now);
            }
        }
    }

    /// Requests the next page for a station, or ends its dump.
    fn dump(&mut self, at: usize, now: Millis) {
        let station = &mut self.stations[at];
        if station.queued() >= PAGE_THRESHOLD {
            return;
        }
        let views = station.settings.views;
        let Some(dump) = station.dump.as_mut().filter(|dump| !dump.is_waiting()) else { return };
        self.last_page += 1;
        let mut end = Vec::new();
        match dump.go_on(&self.stages, views, self.last_page) {
            Progress::Waiting => {
                self.is_held |= !dump.is_waiting();
                return;
            }
            Progress::KeptEnd(up) => {
                // The marker is behind the last page, which is on its way.
                let info = &up.info;
                encode::end(&encode::peer(info, 0, Timestamp::default()), info.families, &mut end);
                return dump.end_with(end);
            }
            Progress::End => {}
        }
        for up in self.sessions.values() {
            let info = &up.info;
            let views = [
                (views.post_policy, flags::POST_POLICY),
                (views.adj_rib_out, flags::POST_POLICY | flags::ADJ_RIB_OUT),
            ];
            for (_, flags) in views.into_iter().filter(|(has, _)| *has) {
                encode::end(&encode::peer(info, flags, Timestamp::default()), info.families, &mut end);
            }
        }
        if views.loc_rib {
            let header = encode::loc_rib(self.router, Timestamp::default());
            encode::end(&header, FamilySet::ALL, &mut end);
        }
        station.push(&end.into(), now);
        station.dumped();
    }

    fn statistics(&mut self, at: usize, now: Millis) {
        let views = self.stations[at].settings.views;
        let reports = statistics::reports(&self.stages, self.router, self.sessions.values(), views);
        let station = &mut self.stations[at];
        station.push(&reports.into(), now);
        station.statistics_at = statistics::next(station.settings.statistics_interval, now);
    }

    /// Sends what sockets take, and adapts what stages send to the sessions that are left.
    pub(super) fn send(&mut self) {
        let now = self.clock.now();
        self.stations.iter_mut().for_each(|station| station.send(now));
        self.want();
    }

    /// The process stops: every station gets a Termination.
    pub(super) fn end(&mut self) {
        for station in &mut self.stations {
            station.terminate(termination::ADMINISTRATIVE, "the router stops");
        }
        let waits = |stations: &[Station]| stations.iter().any(|s| s.is_up() && s.queued() > 0);
        let deadline = self.clock.now() + FAREWELL.as_millis() as Millis;
        while waits(&self.stations) && self.clock.now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            self.send();
        }
    }
}

/// Whether stations with these views get the sessions of neighbours.
fn has_peers(views: BmpViews) -> bool {
    views.pre_policy || views.post_policy || views.adj_rib_out
}

fn initiation(config: &BmpConfig) -> Arc<[u8]> {
    let host = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim_end().to_owned()
    };
    let name = config.system_name.clone().unwrap_or_else(host);
    let version = || concat!("ribtide ", env!("CARGO_PKG_VERSION")).to_owned();
    let description = config.system_description.clone().unwrap_or_else(version);
    let information =
        [(information::SYS_DESCR, description.as_bytes()), (information::SYS_NAME, name.as_bytes())];
    let mut message = Vec::new();
    build::initiation(&mut message, &information);
    message.into()
}
