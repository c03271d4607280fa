//! What is said of a route that is asked about, at each step of its way.

use super::*;

#[test]
fn what_a_route_waits_for_is_said() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    let messages = |bench: &Bench| {
        let state = bench.machine.explain(None, prefix("10.1.0.0/16"))?;
        let waiting = state.waiting.map_or_else(String::new, |waiting| waiting.to_string());
        Some((state.row.is_some(), waiting, state.confirmed))
    };
    let turn = "its change is not handed over yet";
    let gets = "still to come, or was refused or coalesced with a later one, and gets none";
    let answer = format!("one of the rows handed over has no answer: it is {gets}");
    assert_eq!(messages(&bench), None);
    bench.by_id("10.1.0.0/16", 9);
    let object = "next-hop object 9, which it resolves to, was not announced";
    assert_eq!(messages(&bench), Some((false, object.into(), false)));
    bench.take();
    assert_eq!(messages(&bench), Some((false, object.into(), false)));
    bench.hop(9, "10.0.0.1", 7);
    assert_eq!(messages(&bench), Some((true, turn.into(), false)));
    bench.take();
    assert_eq!((messages(&bench), bench.machine.awaiting()), (Some((true, answer, false)), 1));
    // Refused, and announced otherwise until as many are unanswered as are counted.
    let answers = |many: &str| {
        Some((true, format!("{many} of the rows handed over have no answer: each is {gets}"), false))
    };
    for (n, many) in (2..9).zip(["2", "3", "4", "5", "6", "7 or more", "7 or more"]) {
        bench.hop(9, &format!("10.0.0.{n}"), 7);
        bench.take();
        assert_eq!(messages(&bench), answers(many));
    }
    bench.machine.recount([]);
    bench.machine.all_said();
    bench.take();
    let key = RouteRow::parse_key("10.1.0.0/16").unwrap();
    bench.machine.confirm(&RouteResponse::success(key, Some("bgp".into())), &mut bench.out);
    assert_eq!((messages(&bench), bench.machine.awaiting()), (Some((true, String::new(), true)), 0));
    bench.del("10.1.0.0/16");
    assert_eq!(messages(&bench), Some((false, turn.into(), false)));
    bench.take();
    assert_eq!(messages(&bench), None);
    assert_eq!(bench.machine.explain(Some("Vrfred"), prefix("10.1.0.0/16")), None);
}
