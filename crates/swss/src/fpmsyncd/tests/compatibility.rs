//! Faults of SONiC's fpmsyncd, on request.

use super::*;

/// Both ways: what `--as-sonic` repeats, and what it does without.
#[test]
fn as_sonic_repeats_four_faults() {
    for as_sonic in [AsSonic::default(), AsSonic::ALL] {
        let mut bench = Bench::with(FpmConfig { as_sonic, ..FpmConfig::default() });
        let ours = as_sonic == AsSonic::default();
        bench.route_in(0, "10.1.0.0/16", &[("10.0.0.1", 7, 1), ("10.0.1.1", 8, 2), ("10.0.1.2", 8, 3)]);
        assert!(bench.take()[0].ends_with(if ours { " weight=1,2,3" } else { " weight=1,1,2" }));
        bench.route_in(254, "10.2.0.0/16", &[("10.0.0.1", 7, 1)]);
        assert_eq!(bench.take().len(), usize::from(ours));
        let via = out("10.0.0.1", 7);
        let hops: [(Hop, &[u32]); 1] = [(Hop { via, weight: 1 }, &[100])];
        let next_hops = NextHops::Inline(Hops::from(&hops[..]));
        bench.send(Content::NewRoute(Route::new(prefix("10.3.0.0/16"), 0, 186, next_hops)));
        assert_eq!(bench.take().len(), usize::from(ours));
        bench.hop(5, "10.0.0.1", 7);
        bench.by_id("10.4.0.0/16", 5);
        assert_eq!(bench.take().len(), 1);
        bench.hop(5, "10.0.0.2", 7);
        assert_eq!(bench.take().len(), usize::from(ours));
        assert_eq!(bench.row("10.4.0.0/16").contains("10.0.0.2"), ours);
    }
}
