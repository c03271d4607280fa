//! A route takes no more memory than DESIGN section 8 allows, at the worst filling of the table.

use crate::common::*;
use ribtide_prefix::{Bits, Families, Family, Prefix, V4, V6};
use ribtide_rib::*;

/// One more route than fits before the hash table doubles: the most room per route.
const ROUTES: u64 = (7 << 17) / 8 + 1;

fn bytes_per_route<F: Family>() -> f64 {
    let mut rib = Rib::new(RibConfig::default());
    rib.handle([interface(1, true, &["10.0.0.1/24"])]);
    let empty = rib.table_size();
    let mut changes: Families<RouteChanges> = Families::default();
    for n in 0..ROUTES {
        let bits = F::Bits::from_left(u128::from(n + (1 << 20)) << (128 - 24));
        changes.get_mut::<F>().push((Prefix::new(bits, 24), 0));
    }
    let sets = vec![set(Protocol::BgpInternal, &[gw("10.0.0.2")])];
    let out =
        rib.handle([RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Bgp, sets, changes })]);
    assert_eq!(out.fib.unwrap().route_count() as u64, ROUTES);
    (rib.table_size() - empty) as f64 / ROUTES as f64
}

#[test]
fn a_route_with_one_candidate_takes_at_most_100_bytes() {
    let (v4, v6) = (bytes_per_route::<V4>(), bytes_per_route::<V6>());
    println!("at worst {v4:.1} bytes per IPv4 route and {v6:.1} per IPv6 route");
    assert!(v4 < 68.0 && v6 < 95.0, "the figures in the documentation of Route are wrong: {v4} and {v6}");
}
