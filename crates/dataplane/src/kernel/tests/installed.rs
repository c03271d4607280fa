//! What is read of the kernel for a comparison is what it forwards by.

use super::*;

/// What each of our routes does, by what is read.
fn forwarding() -> BTreeMap<AnyPrefix, Forwarding> {
    let objects = next_hop_objects().unwrap();
    installed(&config())
        .unwrap()
        .iter()
        .map(|(prefix, found)| (*prefix, found.forwarding(&objects)))
        .collect()
}

#[test]
fn installed_routes_read_as_their_groups_until_others_change_them() {
    in_namespace("installed::installed_routes_read_as_their_groups_until_others_change_them", || {
        let mut kernel = open();
        let groups = [
            (1, vec![hop("10.0.0.2", "v0", 7)]),
            (2, vec![hop("10.0.1.2", "v1", 300), hop("10.0.0.2", "v0", 100)]),
            (3, vec![]),
            (4, vec![hop("2001:db8::2", "v0", 1), hop("", "v1", 2)]),
        ];
        let routes = [
            ("192.0.2.0/24", 1),
            ("198.51.100.0/24", 2),
            ("203.0.113.0/24", 3),
            ("100.64.0.0/10", 4),
            ("2001:db8:aaaa::/48", 4),
            ("2001:db8:bbbb::/48", 3),
        ];
        let batch = groups.iter().fold(Batch::start(), |batch, (id, hops)| batch.group(*id, hops));
        let batch = routes.iter().fold(batch, |batch, (prefix, group)| batch.route(prefix, Some(*group)));
        batch.end().apply(&mut kernel);
        let wanted = |group: u32| {
            let hops = groups.iter().find(|(id, _)| *id == group).map(|(_, hops)| hops.clone()).unwrap();
            let group = if hops.is_empty() { FibGroup::Blackhole } else { FibGroup::Hops(hops) };
            Forwarding::expected(&group).unwrap()
        };
        let all: BTreeMap<AnyPrefix, Forwarding> =
            routes.iter().map(|(prefix, group)| (prefix.parse().unwrap(), wanted(*group))).collect();
        assert_eq!(forwarding(), all);
        let mut walk = Walk::default();
        let (found, ended) = walk.step(&config(), 100).unwrap();
        assert_eq!((found.len(), ended), (routes.len(), true));

        // Others change the gateway of an object, the weight of a member, and a route: the prefixes stay.
        let differ = |expected: &[&str]| {
            let found = forwarding();
            assert_eq!(found.len(), all.len());
            let differ = found.iter().filter(|(prefix, does)| all[*prefix] != **does);
            let mut expected: Vec<AnyPrefix> = expected.iter().map(|text| text.parse().unwrap()).collect();
            expected.sort_unstable();
            assert_eq!(differ.map(|(prefix, _)| *prefix).collect::<Vec<_>>(), expected);
        };
        let objects = json("nexthop show");
        let single = |gateway: &str| {
            objects.iter().find(|o| o["gateway"] == gateway).and_then(|o| o["id"].as_u64()).unwrap()
        };
        let (first, second) = (single("10.0.0.2"), single("10.0.1.2"));
        ip(&format!("nexthop replace id {first} via 10.0.0.9 dev v0 proto bgp"));
        differ(&["192.0.2.0/24", "198.51.100.0/24"]);
        ip(&format!("nexthop replace id {first} via 10.0.0.2 dev v0 proto bgp"));
        differ(&[]);
        let group = objects.iter().find(|o| {
            o["group"].as_array().is_some_and(|g| g.len() == 2 && g.iter().any(|m| m["id"] == second))
        });
        let group = group.and_then(|o| o["id"].as_u64()).unwrap();
        ip(&format!("nexthop replace id {group} group {first},5/{second},256 proto bgp"));
        differ(&["198.51.100.0/24"]);
        ip("route replace 192.0.2.0/24 via 10.0.0.3 dev v0 proto bgp table 1000 metric 20");
        differ(&["192.0.2.0/24", "198.51.100.0/24"]);
        ip("route add 203.0.113.0/24 via 10.0.0.3 proto bgp table 1000 metric 77");
        differ(&["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"]);
    });
}
