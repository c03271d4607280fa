//! Progress: a bar on a terminal, else a line every few seconds. On standard error, so that the
//! report can be piped.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Progress towards a number of prefixes, counted by any number of threads.
pub(crate) struct Progress {
    done: AtomicU64,
    total: u64,
    started: Instant,
    show: Show,
}

enum Show {
    Nothing,
    Bar(ProgressBar),
    Lines { what: &'static str, next: Mutex<Instant> },
}

const EVERY: Duration = Duration::from_secs(2);

impl Progress {
    /// Progress of `what` (a participle: "sent") towards `total` prefixes; zero when that is not known.
    pub(crate) fn new(what: &'static str, total: u64, quiet: bool) -> Progress {
        let show = if quiet {
            Show::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(
                (total > 0).then_some(total),
                ProgressDrawTarget::stderr_with_hz(10),
            );
            let template = if total > 0 {
                "{bar:40} {human_pos} of {human_len} prefixes {msg}, {per_sec}, {eta} left"
            } else {
                "{spinner} {human_pos} prefixes {msg}, {per_sec}"
            };
            bar.set_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar.set_message(what);
            Show::Bar(bar)
        } else {
            Show::Lines { what, next: Mutex::new(Instant::now() + EVERY) }
        };
        Progress { done: AtomicU64::new(0), total, started: Instant::now(), show }
    }

    /// Counts `n` more.
    pub(crate) fn add(&self, n: u64) {
        let done = self.done.fetch_add(n, Relaxed) + n;
        match &self.show {
            Show::Nothing => {}
            Show::Bar(bar) => bar.set_position(done),
            Show::Lines { what, next } => {
                let Ok(mut next) = next.try_lock() else { return };
                if Instant::now() >= *next {
                    *next = Instant::now() + EVERY;
                    let rate = done as f64 / self.started.elapsed().as_secs_f64();
                    let of = if self.total == 0 { String::new() } else { format!(" of {}", self.total) };
                    // A closed standard error does not stop the work.
                    let _ = writeln!(std::io::stderr(), "{done}{of} prefixes {what}, {rate:.0}/s");
                }
            }
        }
    }

    /// How many were counted.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}
