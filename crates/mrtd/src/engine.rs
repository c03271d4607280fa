//! The state of the thread: the file of updates, and the dump of the table that is under way.

use super::file::PendingFile;
use super::table::{TableDump, Totals};
use super::{Collector, name, updates};
use crossbeam_channel::Select;
use ribtide_bgp::peer::PeerId;
use ribtide_bgpd::Stages;
use ribtide_bgpd::monitor::{Feed, MonitorIn, Received, SessionNews, SessionUp, Wanted};
use ribtide_config::{MrtConfig, MrtFiles};
use ribtide_runtime::log::target;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Messages that are taken in a turn.
const TAKE: usize = 64;
/// Seconds until a file is tried again after an error, unless the next one begins earlier.
const RETRY_INTERVAL: u64 = 30;

/// Which series of files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Series {
    /// Dumps of the table.
    Table,
    /// Updates.
    Updates,
}

impl Series {
    /// Its name in output and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Series::Table => "table",
            Series::Updates => "updates",
        }
    }
}

/// The thread's state.
pub struct Engine {
    feed: Feed,
    stages: Stages,
    collector: Collector,
    table: Option<Files>,
    updates: Option<Files>,
    /// The dump under way.
    dump: Option<TableDump>,
    /// The established sessions, by peer.
    sessions: BTreeMap<PeerId, Arc<SessionUp>>,
    /// News that happened after messages that are not taken yet.
    held: Option<SessionNews>,
    /// Scratch memory for records.
    records: Vec<u8>,
    totals: Totals,
    lost_logged: u64,
}

/// A series of files.
struct Files {
    series: Series,
    settings: MrtFiles,
    current: Option<PendingFile>,
    /// When the next file begins, in seconds since 1970.
    next: u64,
    /// The number of complete files.
    files: u64,
    /// Bytes of records in complete files.
    bytes: u64,
    records: u64,
    /// Records that were dropped because of an error.
    dropped: u64,
    failures: u64,
    last: Option<(PathBuf, u64)>,
    fault: Option<(String, u64)>,
}

/// A reload's changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Whether dumps of the table have other settings.
    pub table: bool,
    /// Whether updates have.
    pub updates: bool,
}

/// A series of files, for a person or a metrics scraper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeriesView {
    /// Which.
    pub series: Series,
    /// Its settings.
    pub settings: MrtFiles,
    /// Whether a file is being written.
    pub writing: bool,
    /// When the next file begins, in seconds since 1970.
    pub next: u64,
    /// Complete files since the start.
    pub files: u64,
    /// Bytes of records in them, before compression.
    pub bytes: u64,
    /// Records since the start: paths of dumps, or messages.
    pub records: u64,
    /// Records that were dropped, because of an error or of a full queue.
    pub dropped: u64,
    /// Files that failed.
    pub failures: u64,
    /// The last complete file, and when it was completed.
    pub last: Option<(PathBuf, u64)>,
    /// The error of the last file, and since when there is one; `None`: it is complete, or has none so far.
    pub fault: Option<(String, u64)>,
}

/// The files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Those that are configured.
    pub series: Vec<SeriesView>,
}

/// When a session came or went.
fn time_of(news: &SessionNews) -> SystemTime {
    match news {
        SessionNews::Up(up) => up.at,
        SessionNews::Down { at, .. } => *at,
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Engine {
    pub(super) fn new(feed: Feed, stages: Stages, collector: Collector) -> Engine {
        Engine {
            feed,
            stages,
            collector,
            table: None,
            updates: None,
            dump: None,
            sessions: BTreeMap::new(),
            held: None,
            records: Vec::new(),
            totals: Totals::default(),
            lost_logged: 0,
        }
    }

    /// Applies other settings. A series whose settings stay continues its file.
    pub fn configure(&mut self, config: &MrtConfig) -> Changes {
        let MrtConfig { table, updates } = config;
        let other = |files: &Option<Files>, settings: &Option<MrtFiles>| {
            files.as_ref().map(|files| &files.settings) != settings.as_ref()
        };
        let changes = Changes { table: other(&self.table, table), updates: other(&self.updates, updates) };
        if changes.table {
            self.dump = None;
            if let Some(file) = self.table.take().and_then(|files| files.current) {
                file.abandon();
            }
            // The first dump is at the next multiple of the interval: routes have arrived by then.
            self.table = table.as_ref().map(|settings| Files::new(Series::Table, settings));
        }
        if changes.updates {
            if let Some(mut files) = self.updates.take() {
                files.finish();
            }
            self.updates = updates.as_ref().map(|settings| Files::new(Series::Updates, settings));
            if let Some(files) = &mut self.updates {
                files.next = 0;
            }
        }
        let wanted = if self.updates.is_some() { Wanted::ALL_RECEIVED } else { Wanted::default() };
        self.feed.want(wanted);
        changes
    }

    /// The files.
    pub fn view(&self) -> View {
        let view = |files: &Files| {
            let lost = if files.series == Series::Updates { self.feed.lost() } else { 0 };
            SeriesView {
                series: files.series,
                settings: files.settings.clone(),
                writing: files.current.is_some(),
                next: files.next,
                files: files.files,
                bytes: files.bytes,
                records: files.records,
                dropped: files.dropped + lost,
                failures: files.failures,
                last: files.last.clone(),
                fault: files.fault.clone(),
            }
        };
        View { series: [&self.table, &self.updates].into_iter().flatten().map(view).collect() }
    }

    /// Learns the sessions that there are already.
    pub(super) fn begin(&mut self) {
        // A stage that has stopped ends the process.
        if let Ok(sessions) = self.stages.sessions.wait(|sessions| sessions.monitored()) {
            self.sessions.extend(sessions.into_iter().map(|up| (up.info.id, up)));
        }
    }

    /// Makes `select` ready when there is a message.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.feed.data.watch(select);
        self.feed.sessions.watch(select);
    }

    /// The time until something is due.
    pub(super) fn timeout(&self) -> Duration {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let next = [&self.table, &self.updates].into_iter().flatten().map(|files| files.next).min();
        next.map_or(Duration::MAX, |next| Duration::from_secs(next).saturating_sub(now))
    }

    /// Takes messages, begins and completes files, and dumps a page. Returns whether there is more to do at once.
    pub(super) fn turn(&mut self) -> bool {
        let now = now();
        if let Some(files) = self.updates.as_mut().filter(|files| files.next <= now) {
            files.finish();
            files.begin(now);
        }
        let more = (0..TAKE).all(|_| self.take());
        if !more && let Some(files) = &mut self.updates {
            files.flush();
        }
        self.report_lost();
        if self.table.as_ref().is_some_and(|files| files.next <= now) {
            self.begin_dump(now);
        }
        self.dump_page();
        more || self.dump.is_some()
    }

    fn report_lost(&mut self) {
        let lost = self.feed.lost();
        if lost > self.lost_logged {
            tracing::warn!(
                target: target::MRT,
                messages = lost - self.lost_logged,
                "received messages are missing in the MRT file of updates: the disk was slower than the neighbours, and \
                 routing does not wait for it"
            );
            self.lost_logged = lost;
        }
    }

    /// Takes a message, or news of a session, in the order in which they happened. Returns whether there was one.
    fn take(&mut self) -> bool {
        // News first: what a session's reader sent before its end is in the queue of messages then.
        self.held = self.held.take().or_else(|| self.feed.sessions.try_recv());
        let Some(message) = self.feed.data.try_recv() else {
            let news = self.held.take();
            news.iter().for_each(|news| self.news(news));
            return news.is_some();
        };
        // Readers send nothing else to this thread.
        let MonitorIn::Received(received) = message else { return true };
        // The session of the message is known then, or its start was lost.
        while let Some(news) = self.held.take().or_else(|| self.feed.sessions.try_recv()) {
            if time_of(&news) > received.at {
                self.held = Some(news);
                break;
            }
            self.news(&news);
        }
        self.message(&received);
        true
    }

    fn news(&mut self, news: &SessionNews) {
        let (up, is_up) = match news {
            SessionNews::Up(up) => (up, true),
            SessionNews::Down { up, .. } => (up, false),
        };
        match is_up {
            true => drop(self.sessions.insert(up.info.id, up.clone())),
            false => drop(self.sessions.remove(&up.info.id)),
        }
        if let Some(files) = &mut self.updates {
            self.records.clear();
            updates::state(up, is_up, time_of(news), &mut self.records);
            files.write(&self.records, 1);
        }
    }

    fn message(&mut self, received: &Received) {
        let Some(files) = &mut self.updates else { return };
        let info = &received.info;
        let session = self.sessions.get(&info.id).filter(|up| up.info.session == info.session);
        self.records.clear();
        let count = updates::received(received, session.map(|up| up.local), &mut self.records);
        files.write(&self.records, count);
    }

    fn begin_dump(&mut self, now: u64) {
        let Some(files) = &mut self.table else { return };
        if self.dump.take().is_some() {
            files.fail(&io::Error::other("the dump took longer than the interval of dumps"), now);
        }
        files.begin(now);
        if files.current.is_none() {
            return;
        }
        self.records.clear();
        match TableDump::new(self.stages.clone(), self.collector, now as u32, &mut self.records) {
            Ok(dump) => {
                files.write(&self.records, 0);
                (self.dump, self.totals) = (Some(dump), Totals::default());
            }
            Err(e) => files.fail(&io::Error::other(e.to_string()), now),
        }
    }

    fn dump_page(&mut self) {
        let (Some(dump), Some(files)) = (&mut self.dump, &mut self.table) else { return };
        if files.current.is_none() {
            self.dump = None;
            return;
        }
        self.records.clear();
        match dump.page(&mut self.records) {
            Ok(more) => {
                let totals = dump.totals();
                files.write(&self.records, totals.paths - self.totals.paths);
                self.totals = totals;
                if !more {
                    self.dump = None;
                    files.finish();
                }
            }
            Err(e) => {
                self.dump = None;
                files.fail(&io::Error::other(e.to_string()), now());
            }
        }
    }

    /// The process stops: the file of updates is completed, and a dump under way removed.
    pub(super) fn end(&mut self) {
        while self.take() {}
        if let Some(files) = &mut self.updates {
            files.finish();
        }
        if let Some(file) = self.table.as_mut().and_then(|files| files.current.take()) {
            file.abandon();
        }
    }
}

impl Files {
    fn new(series: Series, settings: &MrtFiles) -> Files {
        Files {
            series,
            settings: settings.clone(),
            current: None,
            next: after(now(), settings.interval),
            files: 0,
            bytes: 0,
            records: 0,
            dropped: 0,
            failures: 0,
            last: None,
            fault: None,
        }
    }

    /// Begins a file.
    fn begin(&mut self, now: u64) {
        self.next = after(now, self.settings.interval);
        match PendingFile::create(&name::format(&self.settings.file, now), self.settings.gzip) {
            Ok(file) => self.current = Some(file),
            Err(e) => self.fail(&e, now),
        }
    }

    /// Writes this many records, or drops them.
    fn write(&mut self, bytes: &[u8], records: u64) {
        let Some(file) = &mut self.current else {
            self.dropped += records;
            return;
        };
        match file.write(bytes) {
            Ok(()) => self.records += records,
            Err(e) => {
                self.dropped += records;
                self.fail(&e, now());
            }
        }
    }

    fn flush(&mut self) {
        if let Some(Err(e)) = self.current.as_mut().map(PendingFile::flush) {
            self.fail(&e, now());
        }
    }

    /// Completes the file, if there is one.
    fn finish(&mut self) {
        let Some(file) = self.current.take() else { return };
        let bytes = file.len();
        match file.finish() {
            Ok(path) => {
                self.files += 1;
                self.bytes += bytes;
                tracing::info!(target: target::MRT, file = %path.display(), bytes, "an MRT file is complete");
                if self.fault.take().is_some() {
                    tracing::info!(target: target::MRT, series = self.series.name(), "MRT files are written again");
                }
                self.last = Some((path, now()));
            }
            Err(e) => self.fail(&e, now()),
        }
    }

    /// The file cannot be written.
    fn fail(&mut self, error: &io::Error, now: u64) {
        if let Some(file) = self.current.take() {
            file.abandon();
        }
        self.failures += 1;
        // A dump is not repeated before the next one is due: it would be as large.
        if self.series == Series::Updates {
            self.next = self.next.min(now + RETRY_INTERVAL);
        }
        let error = error.to_string();
        if self.fault.as_ref().is_none_or(|(known, _)| *known != error) {
            tracing::error!(
                target: target::MRT,
                series = self.series.name(),
                error,
                "an MRT file could not be written and is removed; routing goes on, and the file is tried again"
            );
        }
        let since = self.fault.as_ref().map_or(now, |(_, since)| *since);
        self.fault = Some((error, since));
    }
}

/// The next multiple of an interval after this time.
fn after(now: u64, interval: Duration) -> u64 {
    let interval = interval.as_secs().max(1);
    (now / interval + 1) * interval
}
