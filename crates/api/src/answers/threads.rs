//! `/v1/pipeline` and `/v1/threads`: stages, the queues between them, and the threads that run them.

use super::{Refusal, RouterState};
use ribtide_model::{Gauge, Health, Pipeline, Ring, Stage, Stall, Thread, Threads};
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::gauge::Depth;
use ribtide_runtime::ring::Reading;
use ribtide_runtime::{registry, thread};
use std::io;
use std::time::{Duration, Instant};

/// The time over which present load is measured.
const WINDOW: Duration = Duration::from_millis(500);

/// `/v1/pipeline`.
pub fn pipeline(router: &RouterState) -> Result<Pipeline, Refusal> {
    let stages = router.meters.read().into_iter().map(|m| Stage {
        name: m.name,
        routes: m.routes,
        batches: m.batches,
        busy_seconds: m.busy.as_secs_f64(),
        first_seconds: m.span.map(|(first, _)| first.as_secs_f64()),
        last_seconds: m.span.map(|(_, last)| last.as_secs_f64()),
    });
    let peak = ribtide_runtime::thread::peak_memory().map_err(unread)?;
    Ok(Pipeline {
        stages: stages.collect(),
        rings: rings(router),
        gauges: gauges(router),
        threads: used()?,
        peak_memory_bytes: peak,
    })
}

/// `/v1/health`.
pub(crate) fn health(router: &RouterState) -> Health {
    let stalls = router.watchdog.look(Instant::now()).into_iter().map(Stall::from).collect();
    let faults = super::rpki::faults(router).into_iter().chain(super::monitoring::faults(router)).collect();
    Health::with(stalls, faults)
}

/// `/v1/threads`. Takes as long as the window.
pub(crate) fn threads(router: &RouterState) -> Result<Threads, Refusal> {
    let before = used()?;
    let begin = Instant::now();
    std::thread::sleep(WINDOW);
    let mut threads = used()?;
    let window_seconds = begin.elapsed().as_secs_f64();
    for thread in &mut threads {
        let then = before.iter().find(|b| b.name == thread.name).map_or(0.0, |b| b.cpu_seconds);
        thread.cpu_percent = Some(100.0 * (thread.cpu_seconds - then).max(0.0) / window_seconds);
    }
    threads.sort_by(|a, b| b.cpu_percent.unwrap_or(0.0).total_cmp(&a.cpu_percent.unwrap_or(0.0)));
    let cpus = Cpus::allowed().map_err(unread)?;
    Ok(Threads { window_seconds, cpus: cpus.len(), threads, rings: rings(router) })
}

/// Every queue.
pub(super) fn rings(router: &RouterState) -> Vec<Ring> {
    let ring = |r: Reading| Ring {
        name: r.name,
        capacity: r.capacity,
        depth: r.depth,
        peak: r.peak,
        sent: r.sent,
        full: r.full,
    };
    router.rings.read().into_iter().map(ring).collect()
}

/// The gauges of queues that are no rings.
fn gauges(router: &RouterState) -> Vec<Gauge> {
    let gauge = |Depth { name, bound, depth, peak, full }: Depth| Gauge { name, bound, depth, peak, full };
    router.rings.gauges().into_iter().map(gauge).collect()
}

/// Every thread with its CPU time since the start, largest first.
pub(crate) fn used() -> Result<Vec<Thread>, Refusal> {
    // This thread is not pinned, so its set is that of the process.
    let process = Cpus::allowed().map_err(unread)?;
    let mut threads: Vec<Thread> = Vec::new();
    for thread in thread::list().map_err(unread)? {
        let new = described(&thread, &process);
        match threads.iter_mut().find(|known| known.name == new.name) {
            Some(known) => add(known, &new),
            None => threads.push(new),
        }
    }
    threads.sort_by(|a, b| b.cpu_seconds.total_cmp(&a.cpu_seconds));
    Ok(threads)
}

fn described(t: &thread::Thread, process: &Cpus) -> Thread {
    let known = |name: &str| {
        let role = |name: &str| registry::router_thread(name).map(|kind| kind.does);
        // A thread name has 15 bytes, so a virtual ASIC with a name shortens that of its stage.
        let stage = |name: &str| {
            let (_, stage) = name.split_once('-').filter(|(_, stage)| stage.len() > 1)?;
            ["fpmsyncd", "orchagent", "syncd"].into_iter().find(|whole| whole.starts_with(stage))
        };
        role(name).or_else(|| role(&format!("sonic-{}", stage(name)?)))
    };
    Thread {
        name: t.name.clone(),
        role: known(t.role())
            .unwrap_or(if t.is_main() { "main: starts, waits for signals" } else { "" })
            .into(),
        count: 1,
        cpu_seconds: t.cpu_seconds(),
        user_seconds: t.user_seconds,
        system_seconds: t.system_seconds,
        waited_seconds: t.schedule.map(|(_, waited)| waited),
        cpu_percent: None,
        cpus: t.cpus.as_ref().map_or_else(String::new, Cpus::to_string),
        pinned: t.cpus.as_ref().is_some_and(|cpus| cpus != process),
    }
}

/// Threads of a pool have one name and are summed.
fn add(known: &mut Thread, more: &Thread) {
    known.count += more.count;
    known.cpu_seconds += more.cpu_seconds;
    known.user_seconds += more.user_seconds;
    known.system_seconds += more.system_seconds;
    known.waited_seconds = known.waited_seconds.zip(more.waited_seconds).map(|(a, b)| a + b);
}

fn unread(e: io::Error) -> Refusal {
    Refusal::Busy(format!("cannot read /proc: {e}; is it mounted?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_told_of_together_and_a_number_changes_no_role() {
        let process: Cpus = "0-1".parse().unwrap();
        let of = |name: &str, cpus: &str| {
            let thread = thread::Thread {
                id: 1,
                name: name.into(),
                cpus: cpus.parse().ok(),
                user_seconds: 2.0,
                system_seconds: 0.5,
                schedule: Some((2.625, 0.25)),
            };
            described(&thread, &process)
        };
        let mut pool = of("api-query", "0-1");
        add(&mut pool, &of("api-query", "0-1"));
        assert_eq!(
            (pool.count, pool.cpu_seconds, pool.user_seconds, pool.waited_seconds),
            (2, 5.25, 4.0, Some(0.5))
        );
        assert!(!pool.pinned && pool.role.starts_with("management API"));
        let shard = of("shard-12", "1");
        assert!(shard.pinned && shard.cpus == "1" && shard.role.contains("RIB shard"));
        assert_eq!(of("unknown", "0-1").role, "");
    }
}
