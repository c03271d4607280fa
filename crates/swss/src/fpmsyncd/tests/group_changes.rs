//! FIB suppression of routes whose group gets other next hops: their rows stay the same, and confirm
//! nothing.

use super::*;

const KEY: &str = "10.1.0.0/16";
const ROW: &str = "ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop_group=9";

fn group_row(gateways: &str) -> String {
    let each = |text: &str| vec![text; gateways.split(',').count()].join(",");
    format!("NEXTHOP_GROUP_TABLE:9 SET nexthop={gateways} ifname={} weight={}", each("Ethernet0"), each("1"))
}

impl Bench {
    /// Announces group 9 with these next hops.
    fn group_of(&mut self, gateways: &[&str]) {
        let members: Vec<(u32, u16)> = (1..).zip(gateways).map(|(id, _)| (id, 1)).collect();
        (1..).zip(gateways).for_each(|(id, gateway)| self.hop(id, gateway, 7));
        self.group(9, &members);
    }

    fn answer(&mut self) {
        self.machine.confirm_all(None, "bgp", std::iter::once(prefix(KEY)), &mut self.out);
    }

    /// Whether the client was notified that the chip has the route.
    fn is_offloaded(&mut self) -> bool {
        let offloads = std::mem::take(&mut self.out.offloads);
        assert!(offloads.iter().all(|offload| offload.prefix == prefix(KEY) && offload.refused.is_none()));
        !offloads.is_empty()
    }
}

fn suppressing() -> Bench {
    Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() })
}

/// A session in which a route over a group was confirmed.
fn confirmed(gateways: &[&str]) -> Bench {
    let mut bench = suppressing();
    bench.group_of(gateways);
    bench.by_id(KEY, 9);
    assert_eq!(bench.take(), [group_row(&gateways.join(",")), ROW.to_owned()]);
    bench.answer();
    assert!(bench.is_offloaded());
    bench
}

/// The session after the start of a new process, which found the route in the chip. `queued`:
/// orchagent had not taken the group's row.
fn found(gateway: &str, queued: bool) -> Bench {
    let mut bench = suppressing();
    bench.machine.session_down();
    let via = Arc::new(Via::hops([(gateway.parse().unwrap(), "Ethernet0", 1)].into_iter(), true));
    bench.machine.known_group(&"9".into(), NextHopGroupRow { via }, queued);
    let row = RouteRow { protocol: Some("bgp".into()), via: Arc::new(Via::group("9")) };
    bench.machine.known_route(RouteRow::parse_key(KEY).unwrap(), &row, false);
    bench.machine.in_chip(None, std::iter::once(prefix(KEY)), true);
    bench.machine.all_said();
    bench.machine.session_up();
    bench
}

/// The chip confirms the row that was written once more.
fn needs_an_answer(mut bench: Bench, written: &[String]) {
    assert!(!bench.is_offloaded());
    assert_eq!(bench.take(), written);
    assert!(!bench.is_offloaded());
    bench.answer();
    assert!(bench.is_offloaded());
}

#[test]
fn group_with_other_next_hops_in_a_new_session_confirms_no_route() {
    let mut again = confirmed(&["10.0.0.1"]);
    again.reconnect();
    for mut bench in [again, found("10.0.0.1", false)] {
        bench.group_of(&["10.0.0.2"]);
        bench.by_id(KEY, 9);
        needs_an_answer(bench, &[group_row("10.0.0.2"), ROW.into()]);
    }
}

#[test]
fn group_with_other_next_hops_in_a_session_without_the_route_confirms_no_route() {
    let mut bench = confirmed(&["10.0.0.1"]);
    bench.reconnect();
    bench.group_of(&["10.0.0.2"]);
    assert_eq!(bench.take(), [group_row("10.0.0.2")]);
    bench.reconnect();
    bench.group_of(&["10.0.0.2"]);
    bench.by_id(KEY, 9);
    needs_an_answer(bench, &[ROW.into()]);
}

#[test]
fn group_that_changed_after_its_route_confirms_no_route_in_the_next_session() {
    let mut bench = confirmed(&["10.0.0.1"]);
    bench.group_of(&["10.0.0.2"]);
    assert_eq!(bench.take(), [group_row("10.0.0.2")]);
    bench.reconnect();
    bench.group_of(&["10.0.0.2"]);
    bench.by_id(KEY, 9);
    needs_an_answer(bench, &[ROW.into()]);
}

#[test]
fn group_that_orchagent_had_not_taken_at_the_start_confirms_no_route() {
    let mut bench = found("10.0.0.1", true);
    bench.group_of(&["10.0.0.1"]);
    bench.by_id(KEY, 9);
    needs_an_answer(bench, &[ROW.into()]);
}

#[test]
fn group_with_the_same_next_hops_in_a_new_session_confirms_its_route_at_once() {
    let mut again = confirmed(&["10.0.0.1"]);
    again.reconnect();
    for mut bench in [again, found("10.0.0.1", false)] {
        bench.group_of(&["10.0.0.1"]);
        bench.by_id(KEY, 9);
        assert!(bench.is_offloaded() && bench.take().is_empty());
        // And in the one after it.
        bench.reconnect();
        bench.group_of(&["10.0.0.1"]);
        bench.by_id(KEY, 9);
        assert!(bench.is_offloaded() && bench.take().is_empty());
    }
    let mut bench = confirmed(&["10.0.0.1", "10.0.0.2"]);
    bench.reconnect();
    bench.group_of(&["10.0.0.2", "10.0.0.1"]);
    bench.by_id(KEY, 9);
    assert!(bench.is_offloaded(), "the order of next hops does not matter");
}

#[test]
fn route_before_its_group_in_a_new_session_is_confirmed_by_an_answer_alone() {
    for gateway in ["10.0.0.1", "10.0.0.2"] {
        let mut bench = confirmed(&["10.0.0.1"]);
        bench.reconnect();
        bench.by_id(KEY, 9);
        assert!(bench.take().is_empty() && !bench.is_offloaded());
        bench.group_of(&[gateway]);
        let group = (gateway != "10.0.0.1").then(|| group_row(gateway));
        let written: Vec<String> = group.into_iter().chain([ROW.into()]).collect();
        needs_an_answer(bench, &written);
    }
}

#[test]
fn answer_to_a_row_of_before_its_group_changed_confirms_no_later_announcement() {
    let mut bench = suppressing();
    bench.group_of(&["10.0.0.1"]);
    bench.by_id(KEY, 9);
    assert_eq!(bench.take(), [group_row("10.0.0.1"), ROW.to_owned()]);
    bench.group_of(&["10.0.0.2"]);
    bench.by_id(KEY, 9);
    bench.answer();
    needs_an_answer(bench, &[group_row("10.0.0.2"), ROW.into()]);
}
