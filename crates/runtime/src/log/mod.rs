//! The log: events of `tracing`, one line each on standard error, where service managers collect them.
//!
//! An event has a level, a target (the stage, one of [`target::ALL`]), a sentence and fields. The caller formats its line and
//! puts it into a bounded queue; a thread writes the queue to standard error. When the reader of standard error stands
//! still, the queue fills, and lines are dropped and counted. No stage ever waits for the log. A cause that repeats is limited
//! and counted before that ([`limit`]).
//!
//! journald reads the `<N>` prefix of a line as its priority (sd-daemon(3)), so it needs no protocol of its own.

mod format;
mod limit;
mod queue;
mod recent;
mod settings;
pub mod target;

pub use format::{write_message, write_value};
pub use recent::RecentEvent;
pub use settings::{Format, Levels, LogSettings};

use format::Lines;
use limit::Limit;
use queue::{Item, Queue};
use recent::Recent;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::time::Duration;
use tracing::Subscriber;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

/// The environment variable whose levels count in place of the configured ones.
pub const VARIABLE: &str = "RIBTIDE_LOG";

/// Lines that may wait to be written: some 600 kB.
const QUEUE_LINES: usize = 4096;
/// How long the end of a process waits until the queue is written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The log of this process, once it is started.
struct Running {
    queue: Queue,
    lines: Lines,
    recent: Recent,
    limit: Limit,
    filter: reload::Handle<Targets, Registry>,
    /// The levels of [`VARIABLE`], which no reload changes.
    forced: Option<Levels>,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

/// Why the log cannot start. Displays as a sentence.
#[derive(Debug)]
pub enum StartError {
    /// [`VARIABLE`] is not understood: why.
    Variable(String),
    /// The system gives no thread.
    Thread(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Variable(e) => f.write_str(e),
            StartError::Thread(e) => {
                write!(
                    f,
                    "the system gives no thread for the log: {e}; raise the limit of processes (ulimit -u)"
                )
            }
        }
    }
}

impl std::error::Error for StartError {}

/// Starts the log of this process. Until then events go nowhere. A process that ends calls [`flush`].
///
/// # Errors
/// When [`VARIABLE`] is not understood, or the system gives no thread.
pub fn start(settings: &LogSettings) -> Result<(), StartError> {
    let forced = forced()?;
    let levels = forced.as_ref().unwrap_or(&settings.levels);
    let lines = Lines::new(settings.format, is_journal());
    let (queue, items) = Queue::new(QUEUE_LINES);
    let limit = Limit::default();
    queue.spawn_writer(items, limit.clone(), std::io::stderr()).map_err(StartError::Thread)?;
    let (filter, handle) = reload::Layer::new(levels.0.clone());
    let recent = Recent::default();
    let subscriber = subscriber(filter, limit.clone(), lines.clone(), queue.clone(), recent.clone());
    // It fails only where another subscriber is there, and then so is its log.
    let _ = tracing::subscriber::set_global_default(subscriber);
    let _ = RUNNING.set(Running { queue, lines, recent, limit, filter: handle, forced });
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let at = panic.location().map(ToString::to_string);
        let payload = panic.payload();
        let literal = payload.downcast_ref::<&str>().copied();
        let reason = literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        tracing::error!(
            target: target::PROCESS,
            thread = thread.name(),
            at,
            "a thread panicked: {}",
            reason.unwrap_or("no reason")
        );
        // The process may end with it.
        flush();
    }));
    Ok(())
}

/// Changes the levels and the format of the running log. Levels of [`VARIABLE`] stay.
pub fn reconfigure(settings: &LogSettings) {
    let Some(running) = RUNNING.get() else { return };
    running.lines.set(settings.format);
    let levels = running.forced.as_ref().unwrap_or(&settings.levels);
    // It fails only after the subscriber is gone, which is global.
    let _ = running.filter.reload(levels.0.clone());
}

/// The number of lines that were dropped since the start, because the queue was full.
pub fn dropped() -> u64 {
    RUNNING.get().map_or(0, |running| running.queue.dropped())
}

/// The latest events, with a higher number than `after`, in order. Levels apply to them as to lines.
pub fn recent(after: u64) -> Vec<RecentEvent> {
    RUNNING.get().map_or(Vec::new(), |running| running.recent.after(after))
}

/// The number of the latest event; 0 before the first.
pub fn last_number() -> u64 {
    RUNNING.get().map_or(0, |running| running.recent.count())
}

/// Waits until the lines of earlier events are written, for [`FLUSH_TIMEOUT`] at most.
pub fn flush() {
    if let Some(running) = RUNNING.get() {
        running.limit.report(None);
        running.queue.flush(FLUSH_TIMEOUT);
    }
}

/// Writes the lines that `filter` lets pass into `queue`, and keeps their events in `recent`.
fn subscriber(
    filter: impl Layer<Registry> + Send + Sync,
    limit: Limit,
    lines: Lines,
    queue: Queue,
    recent: Recent,
) -> impl Subscriber + Send + Sync {
    let fields = fmt::format::debug_fn(format::write_field).delimited(" ");
    // Errors of the log itself are not printed either: standard error may block.
    let layer =
        fmt::layer().fmt_fields(fields).event_format(lines).with_writer(queue).log_internal_errors(false);
    let layer = layer.with_filter(limit.of_lines());
    let kept = fmt::layer().event_format(format::json()).with_writer(recent).log_internal_errors(false);
    Registry::default().with(filter).with(limit).with(layer).with(kept)
}

/// Runs `body` and returns the lines of its events on this thread, for tests.
pub fn capture(settings: &LogSettings, body: impl FnOnce()) -> String {
    let (queue, items) = Queue::new(QUEUE_LINES);
    let lines = Lines::new(settings.format, false);
    tracing::subscriber::with_default(
        subscriber(settings.levels.0.clone(), Limit::default(), lines, queue, Recent::default()),
        body,
    );
    let line = |item| match item {
        Item::Line(line) => String::from_utf8_lossy(&line).into_owned(),
        Item::Flush(_) => String::new(),
    };
    items.try_iter().map(line).collect()
}

/// The levels of [`VARIABLE`]; `None` where it is not set or empty.
fn forced() -> Result<Option<Levels>, StartError> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    let refused = |e| StartError::Variable(format!("the environment variable {VARIABLE}=\"{text}\": {e}"));
    text.parse().map(Some).map_err(refused)
}

/// Whether journald reads standard error: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}
