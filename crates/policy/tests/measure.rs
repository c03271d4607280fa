//! Figures for `docs/perf/`, printed without a threshold: `cargo test --release -p ribtide-policy
//! --test measure -- --ignored --nocapture`.

use ribtide_policy::{
    Actions, Condition, Definition, Match, Memo, Named, Policy, PrefixCondition, PrefixRange, PrefixSet,
    Route, RouteType, Source, Statement, Then,
};
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix, Family, Prefix, V4, for_each_family};
use ribtide_wire::bgp::NextHop;
use std::hint::black_box;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

/// The prefixes of the default-free zone, of both families, as text; `None` where the data is absent.
fn table() -> Option<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = std::env::var_os("RIBTIDE_DATA").map_or(root.join("../shared/data"), PathBuf::from);
    let file = std::fs::File::open(data.join("dfz-prefixes-2024-01.txt.gz")).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).ok()?;
    Some(text)
}

/// An order without locality, the same at every run.
fn shuffled<T>(items: &mut [T]) {
    let mut n = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..items.len()).rev() {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(i, (n >> 33) as usize % (i + 1));
    }
}

/// Nanoseconds of CPU time of this thread, so that other programs do not count.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has schedstat");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number is first")
}

/// Ten rounds of `work` on `count` items, five times: the clock above moves in steps of some milliseconds.
fn each(what: &str, count: usize, mut work: impl FnMut()) {
    let mut runs: Vec<f64> = (0..5)
        .map(|_| {
            let start = cpu();
            (0..10).for_each(|_| work());
            (cpu() - start) as f64 / (10 * count) as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{what}: {:.1} ns each ({:.1} to {:.1} over 5 runs)", runs[2], runs[0], runs[4]);
}

fn of_family<F: Family>(text: &str) -> Vec<Prefix<F>> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn measure_lookups<F: Family>(set: &PrefixSet, text: &str) {
    let inside = of_family::<F>(text);
    let mut random = inside.clone();
    shuffled(&mut random);
    // The upper half of each: mostly not in the set, and beside or inside an entry.
    let outside: Vec<Prefix<F>> = random
        .iter()
        .map(|p| Prefix::from_addr(p.last_addr(), (p.len() + 1).min(F::WIDTH)).unwrap())
        .collect();
    for (what, probes) in
        [("in it, in order", &inside), ("in it, at random", &random), ("beside it, at random", &outside)]
    {
        let found = probes.iter().filter(|p| set.contains(**p)).count();
        each(&format!("{} {} {what} ({found} found)", probes.len(), F::ID.name()), probes.len(), || {
            probes.iter().for_each(|p| _ = black_box(set.contains(*p)));
        });
    }
}

/// Look-ups that a profiler counts: `valgrind --tool=callgrind --toggle-collect=*profiled_lookups*`.
#[inline(never)]
fn profiled_lookups(set: &PrefixSet, probes: &[Prefix<V4>]) -> usize {
    probes.iter().filter(|prefix| set.contains(**prefix)).count()
}

/// 100,000 look-ups in a set of 200,000 prefixes, and in one of a million, for a count of instructions.
#[test]
#[ignore = "for a profiler"]
fn instructions_of_lookups() {
    let Some(text) = table() else { return println!("skipped: shared/data is absent") };
    let entries: usize = std::env::var("ENTRIES").map_or(200_000, |n| n.parse().expect("a number"));
    let widest = std::env::var("WIDEST").is_ok();
    let range = |line: &str| {
        let prefix: AnyPrefix = line.parse().expect("a prefix");
        let longest = if prefix.afi() == Afi::Ipv4 { 24 } else { 48 };
        let longest = if widest { prefix.len().max(longest) } else { prefix.len() };
        PrefixRange::new(prefix, prefix.len(), longest).expect("ascending lengths")
    };
    let set = PrefixSet::new(text.lines().take(entries).map(range));
    let mut probes = of_family::<V4>(&text);
    shuffled(&mut probes);
    probes.truncate(100_000);
    println!("{} of {} found in {}", profiled_lookups(&set, &probes), probes.len(), set.len());
}

#[test]
#[ignore = "prints figures; run it in a release build"]
fn prefix_set_of_a_million() {
    let Some(text) = table() else { return println!("skipped: shared/data is absent") };
    let start = cpu();
    let exact: Vec<PrefixRange> = text.lines().map(|line| line.parse().unwrap()).collect();
    println!("{} lines: {} ms to parse", exact.len(), (cpu() - start) / 1_000_000);
    let wider = |prefix: AnyPrefix| {
        let longest = if prefix.afi() == Afi::Ipv4 { 24 } else { 48 };
        PrefixRange::new(prefix, prefix.len(), prefix.len().max(longest)).unwrap()
    };
    let wider = text.lines().map(|line| wider(line.parse().unwrap())).collect();
    for (what, ranges) in [("each prefix exactly", &exact), ("each up to /24 or /48", &wider)] {
        let start = cpu();
        let set = PrefixSet::new(ranges.iter().copied());
        println!("{what}: {} ms to build", (cpu() - start) / 1_000_000);
        println!("{} entries kept, {:.1} bytes each", set.len(), set.memory() as f64 / set.len() as f64);
        for_each_family!(F => measure_lookups::<F>(&set, &text));
    }

    let set = PrefixSet::new(exact);
    let set = Named::new("all", set);
    let blackhole = Named::new("blackhole", ["65001:666".parse().unwrap()].into_iter().collect());
    let statement = |conditions, prefix_conditions, local_pref, then| Statement {
        name: String::new(),
        conditions,
        prefix_conditions,
        validity: None,
        path: None,
        actions: Actions { local_pref, ..Actions::default() },
        then,
    };
    let mut random = of_family::<V4>(&text);
    shuffled(&mut random);
    let attributes = [0x40, 1, 1, 0, 0xc0, 8, 4, 0, 1, 0, 1];
    let neighbor = Ipv4Addr::new(192, 0, 2, 1);
    let source = Source { neighbor: neighbor.into(), kind: RouteType::External };
    let route = Route {
        attributes: &attributes,
        next_hop: NextHop::V4(neighbor),
        family: AfiSafi::Ipv4Unicast,
        source,
        validation: None,
    };
    for (what, prefix_conditions) in [
        ("attributes decide", vec![]),
        ("a prefix set decides", vec![PrefixCondition { set, invert: false }]),
    ] {
        let statements = vec![
            statement(
                vec![Condition::CommunitySet(blackhole.clone(), Match::Any)],
                vec![],
                None,
                Then::Reject,
            ),
            statement(vec![], prefix_conditions, Some(200), Then::Accept),
        ];
        let policy = Policy::new(vec![Arc::new(Definition { name: "p".into(), statements })], true);
        let mut memo = Memo::new(&policy, &route, |_| 1u32);
        each(&format!("{what}, memoised, at random"), random.len(), || {
            random.iter().for_each(|p| _ = black_box(memo.decide(&policy, &route, *p, |_| 1)));
        });
        each(&format!("{what}, evaluated again, at random"), random.len(), || {
            random.iter().for_each(|p| _ = black_box(policy.evaluate(&route, *p)));
        });
    }
}
