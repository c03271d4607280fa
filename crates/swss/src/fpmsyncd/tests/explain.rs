//! What is said of a route that is asked about, at each step of its way.

use super::*;

#[test]
fn what_a_route_waits_for_is_said() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    let says = |bench: &Bench| {
        let state = bench.machine.explain(None, prefix("10.1.0.0/16"))?;
        let waiting = state.waiting.map_or_else(String::new, |waiting| waiting.to_string());
        Some((state.row.is_some(), waiting, state.confirmed))
    };
    let (turn, answer) = ("its change is not handed over yet", "orchagent has not answered each row of it");
    assert_eq!(says(&bench), None);
    bench.by_id("10.1.0.0/16", 9);
    let object = "next-hop object 9, which it leads to, was not announced";
    assert_eq!(says(&bench), Some((false, object.into(), false)));
    bench.take();
    assert_eq!(says(&bench), Some((false, object.into(), false)));
    bench.way(9, "10.0.0.1", 7);
    assert_eq!(says(&bench), Some((true, turn.into(), false)));
    bench.take();
    assert_eq!(says(&bench), Some((true, answer.into(), false)));
    let key = RouteRow::parse_key("10.1.0.0/16").unwrap();
    bench.machine.confirm(&RouteResponse::success(key, Some("bgp".into())), &mut bench.out);
    assert_eq!(says(&bench), Some((true, String::new(), true)));
    bench.del("10.1.0.0/16");
    assert_eq!(says(&bench), Some((false, turn.into(), false)));
    bench.take();
    assert_eq!(says(&bench), None);
    assert_eq!(bench.machine.explain(Some("Vrfred"), prefix("10.1.0.0/16")), None);
}
