//! What rows look like in the database, and what comes back.

use super::*;
use proptest::prelude::*;
use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

fn pairs<R: Row>(row: &R, all: bool) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut put = |field: &str, value: &str| out.push((field.to_string(), value.to_string()));
    if all {
        row.all_fields(&mut put)
    } else {
        row.fields(&mut put)
    }
    out
}

fn joined<R: Row>(row: &R, all: bool) -> String {
    pairs(row, all).iter().map(|(f, v)| format!("{f}={v}")).collect::<Vec<_>>().join(" ")
}

fn read<R: Row>(text: &str) -> R {
    R::from_fields(&mut text.split(' ').filter_map(|pair| pair.split_once('='))).unwrap()
}

fn key<R: Row>(text: &str) -> R::Key {
    let key = R::parse_key(text).unwrap();
    let mut again = String::new();
    R::key_text(&key, &mut again);
    assert_eq!(again, text);
    key
}

fn via(hops: &[(&str, &str, u32)]) -> Via {
    Via::hops(hops.iter().map(|(ip, ifname, w)| (ip.parse::<IpAddr>().unwrap(), *ifname, *w)), true)
}

#[test]
fn a_route_has_only_what_it_says_in_redis_and_everything_over_zmq() {
    let row = RouteRow { protocol: Some("bgp".into()), via: Arc::new(via(&[("10.0.0.1", "Ethernet0", 1)])) };
    assert_eq!(joined(&row, false), "protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1");
    assert_eq!(
        joined(&row, true),
        "protocol=bgp blackhole=false nexthop=10.0.0.1 ifname=Ethernet0 nexthop_group= mpls_nh= weight=1 \
         vni_label= router_mac= segment= seg_src="
    );
    let drop = RouteRow { protocol: Some("static".into()), via: Arc::new(Via::blackhole()) };
    assert_eq!(joined(&drop, false), "protocol=static blackhole=true");
    let empty = RouteRow { protocol: None, via: Arc::new(Via::default()) };
    assert_eq!(joined(&empty, false), "NULL=NULL");
}

#[test]
fn what_is_packed_comes_out_as_it_went_in() {
    let row =
        |nexthop| RouteRow { protocol: Some("bgp".into()), via: Arc::new(via(&[(nexthop, "Ethernet0", 1)])) };
    let mut changes = Vec::new();
    for (n, text) in [
        "0.0.0.0/0",
        "10.0.0.0/9",
        "10.0.0.1",
        "::/0",
        "fc00:1::/65",
        "fc00:1::1",
        "Vrf1:10.0.0.0/8",
        "10.0.0.1/8",
        "resync",
        "resync:10.0.0.0/8",
    ]
    .into_iter()
    .enumerate()
    {
        let change = Change::set(
            RouteRow::parse_key(text).unwrap(),
            row(if n % 2 == 0 { "10.0.0.1" } else { "fc00::1" }),
        );
        changes.extend([
            Change { reshaped: true, ..change.clone() },
            change.clone(),
            Change::del(change.key),
        ]);
    }
    let packed: Packed<RouteRow> = changes.iter().collect();
    let mut back = Vec::new();
    packed.unpack(&mut back);
    assert_eq!(back, changes);
    // Of the tables that do not say how their keys pack, each is kept whole.
    let port = [Change::del(PortKey::Port("Ethernet0".into())), Change::del(PortKey::ConfigDone)];
    let mut back: Vec<Change<PortRow>> = Vec::new();
    port.iter().collect::<Packed<PortRow>>().unpack(&mut back);
    assert_eq!(back, port);
}

#[test]
fn route_key_with_unusual_format_is_kept_as_raw_key() {
    for text in
        ["10.0.0.0/24", "10.0.0.1", "fc00:1::/64", "fc00:1::1", "0.0.0.0/0", "::/0", "Vrf1:10.0.0.0/8"]
    {
        assert!(matches!(key::<RouteRow>(text), RouteKey::Route { raw_key: None, .. }), "{text}");
    }
    for text in ["10.0.0.1/32", "Vrf1:fc00::1/128", "10.0.0.1/8", "FC00::/8"] {
        assert!(matches!(key::<RouteRow>(text), RouteKey::Route { raw_key: Some(_), .. }), "{text}");
    }
    assert_eq!(key::<RouteRow>("resync"), RouteKey::Resync);
    for text in ["resync:10.0.0.0/24", "resync:fc00:1::1", "resync:Vrf1:10.0.0.0/8"] {
        assert!(matches!(key::<RouteRow>(text), RouteKey::Resent { .. }), "{text}");
    }
    for text in [
        "resync:",
        "resync:resync",
        "resync:banana",
        "",
        "banana",
        "10.0.0.0/33",
        "Vrf1:",
        "10.0.0.0/-1",
        "Vrf1:10.0.0.0/8:1",
    ] {
        assert!(RouteRow::parse_key(text).is_err(), "{text}");
    }
}

#[test]
fn interface_and_neighbour_keys() {
    assert_eq!(key::<IntfRow>("Ethernet0"), IntfKey::Interface("Ethernet0".into()));
    let address = IntfKey::Address("Ethernet0".into(), "10.0.0.1".parse().unwrap(), 31);
    assert_eq!(key::<IntfRow>("Ethernet0:10.0.0.1/31"), address);
    let address = IntfKey::Address("Ethernet0".into(), "fc00::1".parse().unwrap(), 64);
    assert_eq!(key::<IntfRow>("Ethernet0:fc00::1/64"), address);
    assert_eq!(key::<NeighRow>("Ethernet0:fc00::2").ip, "fc00::2".parse::<IpAddr>().unwrap());
    assert_eq!(key::<PortRow>("PortConfigDone"), PortKey::ConfigDone);
    assert!(IntfRow::parse_key("Ethernet0:banana").is_err());
    assert!(NeighRow::parse_key("Ethernet0").is_err());
}

#[test]
fn other_tables_round_trip() {
    let text = "lanes=1,2,3,4 speed=100000 alias=fortyGigE0/0 index=0 mtu=9100 admin_status=up";
    assert_eq!(joined(&read::<PortRow>(text), false), text);
    assert_eq!(joined(&read::<IntfRow>("scope=global family=IPv4"), false), "scope=global family=IPv4");
    assert_eq!(joined(&read::<IntfRow>("NULL=NULL"), false), "NULL=NULL");
    assert_eq!(
        joined(&read::<NeighRow>("neigh=02:aa:00:00:00:01 family=IPv4"), false),
        "neigh=02:aa:00:00:00:01 family=IPv4"
    );
    assert_eq!(joined(&read::<DefaultRouteRow>("state=ok"), false), "state=ok");
    assert_eq!(joined(&NeighResolveRow, false), "mac=00:00:00:00:00:00");
    assert!(NeighRow::from_fields(&mut [("neigh", "banana")].into_iter()).is_err());
}

#[test]
fn merge_of_a_partial_row_keeps_pending_fields_and_a_complete_row_replaces_them() {
    let mut pending: RouteRow = read("protocol=bgp nexthop_group=5");
    pending.merge(read("nexthop=10.0.0.1 ifname=Ethernet0"));
    assert_eq!(joined(&pending, false), "protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 nexthop_group=5");
    // Explicit empty fields, as over ZeroMQ, make the later row stand alone.
    let ours = RouteRow { protocol: Some("bgp".into()), via: Arc::new(via(&[("10.0.0.2", "Ethernet4", 1)])) };
    let mut explicit =
        RouteRow::from_fields(&mut pairs(&ours, true).iter().map(|(f, v)| (&**f, &**v))).unwrap();
    assert_eq!(explicit, ours);
    let mut both = pending.clone();
    both.merge(explicit.clone());
    assert_eq!(both, ours);
    // In memory there is no text: the row knows that it is complete.
    pending.merge(ours.clone());
    assert_eq!(pending, ours);
    explicit.merge(read("nexthop="));
    assert_eq!(joined(&explicit, false), "protocol=bgp ifname=Ethernet4 weight=1");
}

#[test]
fn hops_follow_the_interface_list() {
    let hops = |text: &str| read::<RouteRow>(text).via.parse_hops();
    let two = hops("nexthop=10.0.0.1 ifname=Ethernet0,Ethernet4 weight=1,2,3").unwrap();
    assert_eq!(two.len(), 2);
    assert_eq!(two[1], Hop { gateway: None, ifname: "Ethernet4".into(), weight: 0, labels: None });
    let weighted = hops("nexthop=10.0.0.1,10.0.0.5 ifname=Ethernet0,Ethernet4 weight=3,4").unwrap();
    assert_eq!(weighted[1].weight, 4);
    assert!(hops("nexthop=10.0.0.1").unwrap().is_empty());
    assert!(hops("nexthop=banana ifname=Ethernet0").is_err());
    assert!(hops("nexthop=10.0.0.1 ifname=Ethernet0 weight=x").is_err());
}

#[test]
fn labels_follow_the_interface_list_too() {
    let row = read::<RouteRow>(
        "nexthop=10.0.0.1,10.0.0.5 ifname=Ethernet0,Ethernet4 mpls_nh=push100/101,na weight=1,1",
    );
    let hops = row.via.parse_hops().unwrap();
    let stack = LabelStack { op: LabelOp::Push, labels: [100, 101].into() };
    assert_eq!((hops[0].labels.clone(), hops[1].labels.clone()), (Some(stack.clone()), None));
    let gateways = ["10.0.0.1", "10.0.0.5"].map(|ip| ip.parse().unwrap());
    let again =
        Via::hops(gateways.into_iter().zip(["Ethernet0", "Ethernet4"]).map(|(ip, by)| (ip, by, 1)), true);
    assert_eq!(again.clone().with_labels(&[Some(stack), None]), *row.via);
    assert_eq!(again.clone().with_labels(&[None, None]), again);
    // As SONiC's, whose messages say nothing of a field of another table.
    assert_eq!(joined(&read::<RouteRow>("ifname=Ethernet0 mpls_pop=1"), false), "ifname=Ethernet0");
    for labels in ["push", "push1/", "swap1048576", "pull1", "push+1", "na,na", "push1,push2,push3", "push-1"]
    {
        let row = read::<RouteRow>(&format!("ifname=Ethernet0 mpls_nh={labels}"));
        assert!(row.via.parse_hops().is_err(), "{labels}");
    }
}

#[test]
fn label_routes_round_trip_and_never_say_an_empty_pop() {
    let text = "protocol=ldp nexthop=10.0.0.1 ifname=Ethernet0 mpls_nh=swap201 mpls_pop=1";
    let row = read::<LabelRouteRow>(text);
    assert_eq!(joined(&row, false), text);
    assert!(joined(&row, true).ends_with(" mpls_pop=1"));
    let drops = read::<LabelRouteRow>("blackhole=true mpls_pop=");
    assert_eq!(joined(&drops, false), "blackhole=true");
    assert!(!joined(&drops, true).contains("mpls_pop"));
    assert_eq!(key::<LabelRouteRow>("1048575"), LabelKey::Label(1_048_575));
    assert_eq!(key::<LabelRouteRow>("resync"), LabelKey::Resync);
    for bad in ["", "1048576", "-1", "+1", "ten", "10.0.0.0/8", "Vrf1:100"] {
        assert!(LabelRouteRow::parse_key(bad).is_err(), "{bad}");
    }
    let mut pending = read::<LabelRouteRow>("protocol=ldp mpls_pop=2 nexthop_group=5");
    pending.merge(row.clone());
    assert_eq!(joined(&pending, false), text.replace(" mpls_nh", " nexthop_group=5 mpls_nh"));
}

#[test]
fn responses_are_the_messages_of_the_channel() {
    let set = RouteResponse::success(key::<RouteRow>("10.0.0.0/24"), Some("bgp".into()));
    assert_eq!(
        set.message(),
        r#"["SWSS_RC_SUCCESS","10.0.0.0/24","err_str","SWSS_RC_SUCCESS","protocol","bgp"]"#
    );
    let del = RouteResponse::success(key::<RouteRow>("10.0.0.1/32"), None);
    assert_eq!(del.message(), r#"["SWSS_RC_SUCCESS","10.0.0.1/32","err_str","SWSS_RC_SUCCESS"]"#);
    for response in [set, del] {
        assert_eq!(RouteResponse::parse(&response.message()).unwrap(), response);
    }
    assert!(RouteResponse::parse("[]").is_err());
    assert!(RouteResponse::parse("banana").is_err());
}

proptest! {
    /// Texts that are nearly prefixes.
    #[test]
    fn key_in_another_format_is_recognised_as_by_parsing(
        near in "[0-9]{1,3}([.][0-9]{1,3}){2,4}(/[0-9]{0,3})?",
        low in "(0|1|10|255|01|256)([.](0|1|128|255|00)){3}(/(0|1|8|9|24|31|32|33|08))?",
        of: (IpAddr, u8),
        before in prop_oneof![Just(""), Just("Vrf1:"), Just("resync:"), Just(" ")],
    ) {
        let prefix = AnyPrefix::from_addr(of.0, of.1 % if of.0.is_ipv4() { 33 } else { 129 }).unwrap();
        let mut canonical = String::new();
        RouteKey::new(None, prefix).write(&mut canonical);
        for text in [near, low, prefix.to_string(), canonical] {
            for text in [format!("{before}{text}"), text] {
                let parsed = matches!(RouteKey::parse(&text), Ok(RouteKey::Route { raw_key: Some(_), .. }));
                prop_assert_eq!(RouteKey::is_other_format(&text), parsed, "{}", text);
            }
        }
    }

    #[test]
    fn no_text_panics(text in "[ -~]{0,24}") {
        let _ = RouteRow::parse_key(&text);
        let _ = IntfRow::parse_key(&text);
        let _ = NeighRow::parse_key(&text);
        let _ = PortRow::from_fields(&mut [("speed", &*text), ("mtu", &*text)].into_iter());
        let _ = NeighRow::from_fields(&mut [("neigh", &*text)].into_iter());
        let fields = [("nexthop", &*text), ("ifname", &*text), ("weight", &*text)];
        let _ = RouteRow::from_fields(&mut fields.into_iter()).unwrap().via.parse_hops();
        let _ = RouteResponse::parse(&text);
        let _ = LabelRouteRow::parse_key(&text);
        let _ = LabelStack::parse(&text);
    }
}
