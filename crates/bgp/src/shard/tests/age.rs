//! Ages of paths: what changes a path's time, and what leaves it.

use super::*;
use crate::filter::FilterMemo;

/// The second in which each path of prefix 0 changed, with its peer.
fn changed(bench: &Bench) -> Vec<(u32, Option<u32>)> {
    let view = bench.shard.lookup(prefix(0)).unwrap();
    let mut all: Vec<_> = view.paths.iter().map(|path| (path.peer.id.0, path.changed)).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_path_is_as_old_as_its_last_change_whatever_others_do() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.shard.set_time(10);
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.shard.set_time(20);
    bench.routes(&one, Some(&set(0, 7)), [0]);
    assert_eq!(changed(&bench), [(1, Some(10))], "the same again is no change");
    bench.routes(&two, Some(&set(1, 8)), [0]);
    assert_eq!(changed(&bench), [(1, Some(10)), (2, Some(20))]);
    bench.shard.set_time(30);
    bench.routes(&one, Some(&set(2, 7)), [0]);
    assert_eq!(changed(&bench), [(1, Some(30)), (2, Some(20))], "another attribute is one");
    bench.shard.set_time(40);
    bench.routes(&one, None, [0]);
    assert_eq!(changed(&bench), [(2, Some(20))], "the last path keeps its time");
    bench.routes(&one, Some(&set(0, 7)), [0]);
    assert_eq!(changed(&bench), [(1, Some(40)), (2, Some(20))]);
    bench.shard.set_time(35);
    assert_eq!(changed(&bench), [(1, Some(40)), (2, Some(20))], "time does not go back");
}

#[test]
fn ages_survive_days_in_any_steps() {
    for step in [1, 100, 3000, 9000, 50_000] {
        let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
        bench.shard.set_time(1000);
        bench.routes(&one, Some(&set(0, 7)), 0..40);
        bench.routes(&two, Some(&set(1, 8)), 0..20);
        let mut now = 1000;
        while now < 200_000 {
            now += step;
            bench.shard.set_time(now);
            for n in 0..40 {
                let view = bench.shard.lookup(prefix(n)).unwrap();
                assert_eq!(view.paths.len(), if n < 20 { 2 } else { 1 });
                for path in &view.paths {
                    let at = path.changed.unwrap();
                    let exact = now - 1000 < 3 * 3600;
                    assert!(
                        at == 1000 || (!exact && at < 1000 && at + 512 > 1000),
                        "{at} at {now} by {step}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_filter_selects_by_the_time_of_change() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.shard.set_time(10);
    bench.routes(&one, Some(&set(0, 7)), [0, 1]);
    bench.shard.set_time(20);
    bench.routes(&two, Some(&set(1, 8)), [0]);
    let fitting = |span, n| {
        let filter = PathFilter { changed: Some(span), ..PathFilter::default() };
        let view = bench.shard.lookup_filtered(prefix(n), &filter, &mut FilterMemo::default());
        view.map_or(Vec::new(), |view| view.paths.iter().map(|path| path.peer.id.0).collect::<Vec<_>>())
    };
    assert_eq!((fitting((15, 99), 0), fitting((15, 99), 1)), (vec![2], vec![]));
    assert_eq!((fitting((0, 10), 0), fitting((0, 10), 1)), (vec![1], vec![1]));
    assert_eq!(fitting((0, 99), 0).len(), 2);
}

#[test]
fn an_only_path_that_waits_for_dataplanes_has_no_age_until_it_is_confirmed() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.handle(ShardIn::Suppress(true));
    bench.shard.set_time(10);
    bench.routes(&one, Some(&set(0, 7)), [0]);
    assert_eq!(changed(&bench), [(1, None)]);
    bench.out.take();
    let fence = bench.shard.fence().unwrap();
    bench.shard.set_time(12);
    bench.handle(ShardIn::Confirmed(Confirmation { fence, blocked: vec![] }));
    bench.finish();
    assert_eq!(changed(&bench), [(1, Some(12))]);
    // With a second path both have their times, whether or not the prefix waits.
    bench.shard.set_time(20);
    bench.routes(&two, Some(&set(0, 8)), [0]);
    bench.routes(&one, None, [0]);
    bench.routes(&one, Some(&set(1, 7)), [0]);
    assert_eq!(changed(&bench).len(), 2);
    assert!(changed(&bench).iter().all(|(_, at)| *at == Some(20)));
}

#[test]
fn a_path_moves_to_another_shard_with_its_time() {
    let seed = HashSeed::random();
    let shard = || Shard::new(DecisionOptions::default()).with_seed(&seed);
    let mut from = Bench { shard: shard(), out: ShardOut::default() };
    let mut to = Bench { shard: shard(), out: ShardOut::default() };
    for n in [1, 2] {
        from.handle(ShardIn::PeerUp(peer(n, 1)));
        to.handle(ShardIn::PeerUp(peer(n, 1)));
    }
    from.shard.set_time(100);
    from.routes(&peer(1, 1), Some(&set(0, 7)), [0, 1]);
    from.shard.set_time(20_000);
    from.routes(&peer(2, 1), Some(&set(1, 8)), [0]);
    for n in [0, 1] {
        let logical = logical_shard(prefix(n));
        let moved = from.shard.extract(logical, Cut::START, 100, &mut from.out);
        to.shard.adopt(moved, &mut to.out);
    }
    let [(1, Some(old)), (2, Some(20_000))] = changed(&to)[..] else { panic!("{:?}", changed(&to)) };
    assert!(old <= 100 && old + 512 > 100);
    let single = to.shard.lookup(prefix(1)).unwrap().paths[0].changed.unwrap();
    assert_eq!(single, old);
}

#[test]
fn bytes_of_a_path() {
    let per_path = |peers: u32| {
        let mut bench = Bench::new();
        (3..=peers).for_each(|n| bench.handle(ShardIn::PeerUp(peer(n, 1))));
        for n in 1..=peers {
            bench.routes(&peer(n, 1), Some(&set(0, 7)), 0..100_000);
        }
        let counts = bench.shard.counts();
        counts.memory as f64 / counts.families[AfiSafi::Ipv4Unicast].paths as f64
    };
    // Two and a half bytes more for each of several paths, none for an only one (ADR 58).
    let (one, ten) = (per_path(1), per_path(10));
    println!("{one:.1} bytes a path of one, {ten:.1} of ten");
    assert!(one < 27.0 && ten < 13.5, "{one} {ten}");
}
