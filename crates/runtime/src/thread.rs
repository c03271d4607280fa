//! Named threads.

pub use crate::stop::{Stop, StopHook, StopSignal};

use crate::cpu::Cpus;
use crate::ring::Closed;
use rustix::process::{Pid, getpriority_process, nice, setpriority_process};
use std::convert::Infallible;
use std::io;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

/// The niceness of the highest priority (setpriority(2)).
const HIGHEST_PRIORITY: i32 = -20;

/// Why a thread ended. It is made only of what shows that its owner notices the end, so a thread that
/// ends silently does not compile:
///
/// * [`Closed`]: the other end of its queue is gone, or [`Stop::running`] found the stop;
/// * [`Ended::at_stop`]: the stop, which is checked;
/// * `end_with` of [`crate::ring::Sender`] and [`crate::oneshot::Sender`]: its owner has its error;
/// * [`Ended::done`]: the work that it was started for has an end;
/// * [`Infallible`]: it never ends.
#[must_use]
#[derive(Debug)]
pub struct Ended {
    /// Whether the thread was to go on.
    is_early: bool,
}

impl Ended {
    /// The stop ended it. Without the stop, the end is a failure of the thread.
    pub fn at_stop(stop: &Stop) -> Ended {
        Ended { is_early: !stop.has_begun() }
    }

    /// The work that it was started for is done: one connection, one wait, or what its owner called it
    /// back from. Not for a thread that serves a queue, or looks for something in intervals: such a one
    /// has no last piece of work.
    pub fn done() -> Ended {
        Ended { is_early: false }
    }
}

impl From<Closed> for Ended {
    fn from(_: Closed) -> Ended {
        Ended::done()
    }
}

impl From<Infallible> for Ended {
    fn from(never: Infallible) -> Ended {
        match never {}
    }
}

/// Of a body that goes on until a `?`.
impl<E: Into<Ended>> From<Result<Infallible, E>> for Ended {
    fn from(result: Result<Infallible, E>) -> Ended {
        let Err(e) = result;
        e.into()
    }
}

/// Starts a thread under `name` (at most 15 bytes show in `top`), which returns why it ended.
///
/// A panic ends the process, and so does an end before the stop ([`Ended::at_stop`]), because a missing
/// stage would leave its neighbours waiting for ever. A service manager restarts a process that ended,
/// but does not notice a lost stage.
///
/// # Errors
/// When the system cannot create a thread.
pub fn spawn<R: Into<Ended>>(
    name: impl Into<String>,
    body: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    spawn_urgent(name, 0, body)
}

/// As [`spawn`], with a priority that is higher by so many steps of niceness, at most 20, where the
/// process may (CAP_SYS_NICE) or the caller is the thread of [`hold_priority`]. 20 steps put the
/// thread before all others; 10 steps give it ten times the CPU share of a normal thread.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_urgent<R: Into<Ended>>(
    name: impl Into<String>,
    steps: u8,
    body: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    std::thread::Builder::new().name(name.clone()).spawn(move || {
        // Without the permission, it keeps the normal priority.
        let _ = match NORMAL_NICENESS.get() {
            Some(normal) => setpriority_process(None, normal - i32::from(steps)),
            None if steps > 0 => nice(-i32::from(steps)).map(drop),
            None => Ok(()),
        };
        let why = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body().into())) {
            Err(_) => "the thread failed",
            Ok(Ended { is_early: true }) => "the thread ended before the stop",
            Ok(Ended { is_early: false }) => return,
        };
        end_process(&name, why)
    })
}

/// The task of an event loop with the rule of [`spawn`]: its failure ends the process, and it returns why
/// it ended.
pub async fn task<R: Into<Ended>>(name: &'static str, body: impl Future<Output = R>) {
    let failure = FailureOfTask(name);
    if body.await.into().is_early {
        end_process(failure.0, "the task ended before the stop");
    }
}

/// Ends the process if it is dropped by a panic.
struct FailureOfTask(&'static str);

impl Drop for FailureOfTask {
    fn drop(&mut self) {
        if std::thread::panicking() {
            end_process(self.0, "the task failed");
        }
    }
}

fn end_process(name: &str, why: &str) -> ! {
    tracing::error!(
        target: crate::log::target::PROCESS,
        thread = name,
        "{why}; stopping the process so that no route is silently lost"
    );
    crate::log::flush();
    std::process::abort();
}

/// The kernel's id of the calling thread.
pub fn id() -> u32 {
    thread_local! {
        static ID: u32 = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    }
    ID.with(|id| *id)
}

/// The niceness of threads, while [`hold_priority`] gives another to the thread that spawns them.
static NORMAL_NICENESS: OnceLock<i32> = OnceLock::new();

/// Gives the calling thread the highest priority, where the process may, for a process that is
/// about to give up CAP_SYS_NICE. A new thread inherits the priority of its spawner, and may lower
/// it without a permission: so [`spawn_urgent`] works on this thread from then on. Called before
/// other threads exist, and until [`release_priority`] the thread only starts others.
pub fn hold_priority() {
    // Without the permission, `spawn_urgent` has none either.
    if let Ok(normal) = getpriority_process(None)
        && setpriority_process(None, HIGHEST_PRIORITY).is_ok()
    {
        let _ = NORMAL_NICENESS.set(normal);
    }
}

/// Gives the thread of [`hold_priority`] a normal priority for good.
pub fn release_priority() {
    if let Some(normal) = NORMAL_NICENESS.get() {
        // Less priority is always permitted.
        let _ = setpriority_process(None, *normal);
    }
}

/// A thread of this process.
#[derive(Clone, PartialEq, Debug)]
pub struct Thread {
    /// The kernel's thread id.
    pub id: u32,
    /// Its name, such as `shard-3`.
    pub name: String,
    /// The CPUs that it may use.
    pub cpus: Option<Cpus>,
    /// CPU seconds outside the kernel.
    pub user_seconds: f64,
    /// CPU seconds inside the kernel, mostly on sockets.
    pub system_seconds: f64,
    /// All CPU seconds, to the nanosecond, and the seconds in which it was runnable without a CPU;
    /// `None` where the kernel does not count them.
    pub schedule: Option<(f64, f64)>,
}

impl Thread {
    /// Its task: its name without its number.
    pub fn role(&self) -> &str {
        match self.name.rsplit_once('-') {
            Some((role, number)) if number.bytes().all(|b| b.is_ascii_digit()) => role,
            _ => &self.name,
        }
    }

    /// Whether it is the main thread, which has the program's name.
    pub fn is_main(&self) -> bool {
        self.id == std::process::id()
    }

    /// All its CPU seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.schedule.map_or(self.user_seconds + self.system_seconds, |(ran, _)| ran)
    }
}

/// The CPU time of the calling thread.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Every thread of this process, oldest first.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn list() -> io::Result<Vec<Thread>> {
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut threads = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        // A thread may end between the listing and the reading.
        let Ok(stat) = std::fs::read_to_string(path.join("stat")) else { continue };
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else { continue };
        let fields: Vec<&str> = stat[close + 1..].split_whitespace().collect();
        // proc(5): utime and stime are fields 14 and 15, counted from the pid.
        let seconds = |i: usize| {
            fields.get(i).and_then(|t| t.parse::<u64>().ok()).unwrap_or(0) as f64 / ticks_per_second
        };
        let id = stat[..open].trim().parse().unwrap_or(0);
        threads.push(Thread {
            id,
            name: stat[open + 1..close].into(),
            // `status` has them too, but the kernel takes longer for that file than for all others.
            cpus: i32::try_from(id)
                .ok()
                .and_then(Pid::from_raw)
                .and_then(|id| Cpus::of_thread(Some(id)).ok()),
            user_seconds: seconds(11),
            system_seconds: seconds(12),
            // A kernel without CONFIG_SCHED_INFO has no such file.
            schedule: std::fs::read_to_string(path.join("schedstat")).ok().and_then(|text| schedule(&text)),
        });
    }
    threads.sort_by_key(|thread| thread.id);
    Ok(threads)
}

/// Nanoseconds on a CPU and in a run queue, as in the kernel's `sched-stats` document.
fn schedule(text: &str) -> Option<(f64, f64)> {
    let mut numbers = text.split_whitespace().map(|n| n.parse::<u64>().ok());
    let mut seconds = || Some(numbers.next()?? as f64 / 1e9);
    Some((seconds()?, seconds()?))
}

/// The peak resident memory of this process, in bytes.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn peak_memory() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    kib.map(|k| k * 1024).ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_thread_has_its_priority_from_one_that_holds_it() {
        let body = || {
            let normal = getpriority_process(None).unwrap();
            hold_priority();
            if getpriority_process(None).unwrap() != HIGHEST_PRIORITY {
                // Without the permission nothing changes.
                return;
            }
            let niceness_of = |steps| {
                let (tx, rx) = std::sync::mpsc::sync_channel(1);
                let measure = move || {
                    tx.send(getpriority_process(None).unwrap()).unwrap();
                    Ended::done()
                };
                spawn_urgent("urgent", steps, measure).unwrap().join().unwrap();
                rx.recv().unwrap()
            };
            assert_eq!([niceness_of(0), niceness_of(5)], [normal, normal - 5]);
            release_priority();
            assert_eq!(getpriority_process(None).unwrap(), normal);
        };
        std::thread::spawn(body).join().unwrap();
    }

    /// The test of this name in a process of its own: its exit status, and the last line that it wrote.
    fn ended_process(test: &str) -> (std::process::ExitStatus, String) {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        let name = format!("thread::tests::{test}");
        let process = process.args(["--exact", &name, "--ignored", "--nocapture"]).output().unwrap();
        let text = String::from_utf8_lossy(&process.stderr);
        (process.status, text.lines().last().unwrap_or_default().into())
    }

    #[test]
    fn thread_or_task_that_ends_before_the_stop_or_fails_ends_the_process() {
        let deaths = [
            ("process_with_an_early_end", "the thread ended before the stop"),
            ("process_with_a_failure", "the thread failed"),
            ("process_with_an_early_end_of_a_task", "the task ended before the stop"),
            ("process_with_a_failure_of_a_task", "the task failed"),
        ];
        for (test, why) in deaths {
            let (status, last) = ended_process(test);
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGABRT), "{last}");
            assert!(["ERROR", why, "thread=stage-1"].iter().all(|part| last.contains(part)), "{last}");
        }
    }

    // Without the end of the process these end well, and so with another status.

    #[test]
    #[ignore = "a process of thread_or_task_that_ends_before_the_stop_or_fails_ends_the_process"]
    fn process_with_an_early_end() {
        crate::log::start(&crate::log::LogSettings::default()).unwrap();
        let stop = Stop::default();
        let _ = spawn("stage-1", move || Ended::at_stop(&stop)).unwrap().join();
    }

    #[test]
    #[ignore = "a process of thread_or_task_that_ends_before_the_stop_or_fails_ends_the_process"]
    fn process_with_a_failure() {
        crate::log::start(&crate::log::LogSettings::default()).unwrap();
        let _ = spawn("stage-1", || -> Ended { panic!("a failure") }).unwrap().join();
    }

    /// Polls a task that never waits.
    fn poll(task: impl Future<Output = ()>) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // As an event loop does, which goes on after the panic of a task.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = std::pin::pin!(task).poll(&mut context);
        }));
    }

    #[test]
    #[ignore = "a process of thread_or_task_that_ends_before_the_stop_or_fails_ends_the_process"]
    fn process_with_an_early_end_of_a_task() {
        crate::log::start(&crate::log::LogSettings::default()).unwrap();
        poll(task("stage-1", async { Ended::at_stop(&Stop::default()) }));
    }

    #[test]
    #[ignore = "a process of thread_or_task_that_ends_before_the_stop_or_fails_ends_the_process"]
    fn process_with_a_failure_of_a_task() {
        crate::log::start(&crate::log::LogSettings::default()).unwrap();
        poll(task("stage-1", async {
            if true {
                panic!("a failure");
            }
            Ended::done()
        }));
    }

    #[test]
    fn task_that_is_done_ends_nothing_else() {
        poll(task("connection", async { Ended::done() }));
    }

    #[test]
    fn thread_that_its_owner_ends_ends_nothing_else() {
        let stop = Stop::default();
        let (early, rings) = (Ended::at_stop(&stop), crate::ring::Rings::default());
        assert!(early.is_early);
        stop.stop();
        assert!(!Ended::at_stop(&stop).is_early);
        let (tx, rx) = rings.bounded("test to a thread", 1);
        let serve = move || -> Result<Infallible, Closed> {
            loop {
                rx.recv()?;
            }
        };
        let thread = spawn("serves", serve).unwrap();
        tx.send(1).unwrap();
        drop(tx);
        thread.join().unwrap();
        let (failing, failed) = crate::oneshot::pair();
        spawn("fails", move || failing.end_with("it broke")).unwrap().join().unwrap();
        assert_eq!(failed.try_recv(), Some("it broke"));
        let (results, result) = rings.bounded("a thread to test", 1);
        spawn("fails", move || results.end_with("it broke")).unwrap().join().unwrap();
        assert_eq!(result.try_recv(), Some("it broke"));
    }

    #[test]
    fn threads_are_listed_by_name_with_what_they_do_and_where() {
        let (stop, wait) = std::sync::mpsc::sync_channel::<()>(1);
        let one = Cpus::allowed().unwrap().one(0);
        let pin = one.clone();
        let body = move || {
            pin.pin().unwrap();
            wait.recv().unwrap_or_default();
            Ended::done()
        };
        let thread = spawn("a (b) c-12", body).unwrap();
        let found = loop {
            let found = list().unwrap().into_iter().find(|t| t.name == "a (b) c-12");
            match found {
                Some(found) if found.cpus.as_ref() == Some(&one) => break found,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(found.role(), "a (b) c");
        assert!(found.id > 0);
        assert_eq!(schedule("2811000000 90000000 17\n"), Some((2.811, 0.09)));
        let sum = Thread { user_seconds: 1.5, system_seconds: 0.25, schedule: None, ..found.clone() };
        assert_eq!((sum.cpu_seconds(), schedule("7")), (1.75, None));
        assert_eq!(Thread { schedule: Some((1.8, 0.0)), ..sum }.cpu_seconds(), 1.8);
        drop(stop);
        thread.join().unwrap();
        let named = |name: &str| Thread { name: name.into(), ..found.clone() };
        assert_eq!((named("sessions").role(), named("kernel-fib").role()), ("sessions", "kernel-fib"));
    }
}
