//! One workload with one cache mode in a process of its own: decoding and the RIB manager on one
//! thread, without a dataplane. It prints its figures on standard output.

use super::decoder;
use super::report::Figures;
use super::workload::{INSTALL, Input, Phase, Scale};
use crate::Error;
use crate::harness::program::{clock, own_resident};
use nix::time::ClockId;
use ribtide_rib::{CacheMode, FibGroup, Rib, RibConfig, RibIn, RibOut};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Runs the workload; a wrong result is in the figures and no panic.
///
/// # Errors
/// The encoded messages cannot be read: a fault of this program.
pub(super) fn run(mode: CacheMode, scale: Scale) -> Result<Vec<Figures>, Error> {
    let turn = scale.turn as usize;
    let mut rib = Rib::new(RibConfig { cache: mode, turn, ..RibConfig::default() });
    rib.set_clock(cpu);
    rib.handle(scale.setup());
    scale.phases().iter().map(|phase| one(&mut rib, mode, &scale, phase)).collect()
}

fn one(rib: &mut Rib, mode: CacheMode, scale: &Scale, phase: &Phase) -> Result<Figures, Error> {
    let input = (phase.input)(scale);
    let before = rib.cache_counters();
    if phase.name == INSTALL {
        settle();
    }
    let resident = own_resident();
    let (mut groups, mut routes, mut decoding) = (0, 0, 0);
    let mut count = |out: RibOut| {
        if let Some(fib) = &out.fib {
            groups += fib.groups.len() + fib.after.len();
            routes += fib.route_count();
        }
    };
    let (mut urgent, mut at_once, mut turn) = (0, 0, 0);
    let begin = cpu();
    // The input exists before and after, so it does not count as memory.
    match &input {
        Input::Events(lots) => {
            // As in the daemon: interfaces take the urgent queue, and routes come in turns.
            for events in lots {
                let operations = if events.iter().all(|event| matches!(event, RibIn::Interface(_))) {
                    let operations = rib.urgent(events.iter().cloned()).len();
                    if operations > 0 {
                        at_once = cpu() - begin;
                    }
                    count(turned(rib, &mut turn, []));
                    operations
                } else {
                    count(turned(rib, &mut turn, events.iter().cloned()));
                    0
                };
                if operations == 0 {
                    at_once = cpu() - begin;
                }
                urgent += operations;
            }
            while rib.has_more() {
                count(turned(rib, &mut turn, []));
            }
        }
        Input::Messages(batches) => {
            for bytes in batches {
                let begin = cpu();
                let batch = decoder::batch(bytes, mode).map_err(|e| Error::Options(e.to_string()))?;
                decoding += cpu() - begin;
                count(rib.handle([RibIn::Routes(batch)]));
            }
        }
    }
    let total = cpu() - begin;
    if phase.name == INSTALL {
        settle();
    }
    let after = rib.cache_counters();
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    Ok(Figures {
        phase: phase.name.into(),
        cpu_s: seconds(total),
        at_once_s: seconds(at_once),
        turn_s: seconds(turn),
        decode_s: seconds(decoding),
        resolution_s: seconds(after.nanoseconds - before.nanoseconds),
        routes: scale.routes,
        group_operations: (groups + urgent) as u64,
        route_operations: routes as u64,
        lookups: after.lookups - before.lookups,
        resolutions: after.resolutions - before.resolutions,
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        table_bytes: rib.table_size() as u64,
        grown_bytes: own_resident().saturating_sub(resident),
        fib: fingerprint(rib),
        wrong: wrong(rib, scale, phase),
    })
}

/// [`Rib::handle`]; raises `longest` to its time.
fn turned(rib: &mut Rib, longest: &mut u64, events: impl IntoIterator<Item = RibIn>) -> RibOut {
    let begin = cpu();
    let out = rib.handle(events);
    *longest = (*longest).max(cpu() - begin);
    out
}

/// Lets the allocator return freed memory of the growing tables, which it does with a delay.
fn settle() {
    for _ in 0..25 {
        std::thread::sleep(Duration::from_millis(20));
        drop(std::hint::black_box(vec![1u8; 1 << 20]));
    }
}

/// CPU time of this thread in nanoseconds.
fn cpu() -> u64 {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID).as_nanos() as u64
}

/// Checks the FIB against the workload.
fn wrong(rib: &Rib, scale: &Scale, phase: &Phase) -> Option<String> {
    let routes = (0..scale.routes).filter_map(|n| rib.lookup(scale.prefix(n).any()));
    let hops_of = |content: &FibGroup| match content {
        FibGroup::Hops(hops) => hops.len(),
        FibGroup::Blackhole | FibGroup::Unresolved => 0,
    };
    let (mut installed, mut strange) = (0, 0);
    for route in routes {
        installed += 1;
        strange += u32::from(hops_of(&route.content) != phase.hops);
    }
    (installed != phase.installed || strange > 0).then(|| {
        format!(
            "{installed} routes are installed and should be {}; {strange} of them have not {} next hops",
            phase.installed, phase.hops
        )
    })
}

/// A hash of the FIB.
fn fingerprint(rib: &Rib) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut read = rib.cursor();
    read.sort();
    while !read.is_done() {
        for route in rib.page(&mut read, 1000) {
            (route.prefix, route.protocol, route.content).hash(&mut hasher);
        }
    }
    hasher.finish()
}
