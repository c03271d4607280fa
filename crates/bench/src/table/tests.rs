//! The shape is the internet's, and the same seed makes the same table.

use super::*;
use crate::pool::AddressPool;
use ribtide_prefix::{PrefixTable, Set, V4, V6};

fn table(ipv4: u32, ipv6: u32) -> Table {
    Table::new(&TableOptions { ipv4, ipv6, ..TableOptions::default() })
}

fn feed_options(sender: u32) -> FeedOptions {
    let pool = |text: &str| AddressPool::new(text.parse().unwrap());
    FeedOptions {
        sender,
        asn: Some(65_100 + sender),
        order: u64::from(sender),
        next_hops: Families { v4: pool("10.0.0.0/16"), v6: pool("2001:db8::/64") },
        next_hop_count: 16,
        shortest_of: None,
        version: 0,
    }
}

fn check_shape<F: Family>(table: &Table, count: usize, per_set: f64, covered: std::ops::Range<f64>) {
    let prefixes = table.prefixes::<F>();
    assert_eq!(prefixes.len(), count);
    assert_eq!(prefixes.iter().collect::<Set<_>>().len(), count, "a prefix is there twice");
    let shape = Shape::of::<F>();
    assert!(prefixes.iter().all(|p| shape.admits(*p)));

    let total: u32 = shape.lengths.iter().map(|(_, share)| share).sum();
    for (len, share) in shape.lengths {
        let expected = count as f64 * f64::from(*share) / f64::from(total);
        let found = prefixes.iter().filter(|p| p.len() == *len).count() as f64;
        // The shortest lengths pass their excess to the next.
        if *len >= 16 {
            assert!(
                (found - expected).abs() <= 0.1 * expected + 20.0,
                "/{len}: {found}, expected {expected}"
            );
        }
    }

    let mean = count as f64 / table.group_count::<F>() as f64;
    assert!((mean / per_set - 1.0).abs() < 0.05, "{mean} prefixes a group, asked {per_set}");

    let mut trie = PrefixTable::<F, ()>::default();
    for prefix in prefixes {
        trie.insert(*prefix, ());
    }
    let nested = prefixes.iter().filter(|p| trie.matches(p.addr()).any(|(q, ())| q.len() < p.len())).count();
    let nested = nested as f64 / count as f64;
    assert!(covered.contains(&nested), "{nested} of the prefixes lie inside another");
}

#[test]
fn lengths_groups_and_nesting_are_the_internets() {
    let table = table(300_000, 80_000);
    check_shape::<V4>(&table, 300_000, 4.0, 0.4..0.6);
    check_shape::<V6>(&table, 80_000, 1.7, 0.45..0.65);
}

#[test]
fn no_prefix_touches_what_is_not_public() {
    let table = table(200_000, 50_000);
    let kept_out = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "224.0.0.0/3",
    ];
    for text in kept_out {
        let block: Prefix<V4> = text.parse().unwrap();
        assert!(!table.prefixes::<V4>().iter().any(|p| p.covers(block) || block.covers(*p)), "{text}");
    }
    let global: Prefix<V6> = "2000::/3".parse().unwrap();
    let documentation: Prefix<V6> = "2001:db8::/32".parse().unwrap();
    for prefix in table.prefixes::<V6>() {
        assert!(global.covers(*prefix) && !prefix.covers(documentation) && !documentation.covers(*prefix));
    }
}

#[test]
fn tables_of_any_size_have_exactly_as_many_prefixes_as_asked() {
    for count in [0, 1, 2, 7, 1000] {
        let table = table(count, count);
        assert_eq!((table.count::<V4>(), table.count::<V6>()), (count as usize, count as usize));
        let grouped: usize = (0..table.group_count::<V6>()).map(|g| table.group::<V6>(g).len()).sum();
        assert_eq!(grouped, count as usize);
        assert!(table.group::<V4>(table.group_count::<V4>()).is_empty());
    }
}

#[test]
fn a_seed_names_a_table() {
    let (one, same) = (table(2000, 500), table(2000, 500));
    assert_eq!(one.prefixes::<V4>(), same.prefixes::<V4>());
    assert_eq!(one.prefixes::<V6>(), same.prefixes::<V6>());
    let other = Table::new(&TableOptions { seed: 2, ipv4: 2000, ipv6: 500, ..TableOptions::default() });
    assert_ne!(one.prefixes::<V4>(), other.prefixes::<V4>());
}

/// Prefixes, orders and attributes of the table of seed 1, in bytes: measurements and captures
/// refer to tables by seed.
#[test]
fn table_of_seed_1_never_changes() {
    let table = Table::new(&TableOptions { seed: 1, ipv4: 30_000, ipv6: 8_000, ..TableOptions::default() });
    let mut bytes = Vec::new();
    for options in [feed_options(0), feed_options(3), FeedOptions { version: 1, ..feed_options(1) }] {
        let feed = table.feed(options);
        append_feed::<V4>(&feed, &mut bytes);
        append_feed::<V6>(&feed, &mut bytes);
    }
    let mut crc = flate2::Crc::new();
    crc.update(&bytes);
    assert_eq!((bytes.len(), crc.sum()), (3_884_022, 2_642_141_177));
}

/// Appends every group that `feed` sends: its prefixes, next hop and attributes.
fn append_feed<F: Family>(feed: &Feed<'_>, bytes: &mut Vec<u8>) {
    let mut path = Path::default();
    for (group, prefixes) in feed.groups::<F>() {
        feed.path::<F>(group, &mut path);
        bytes.extend(format!("{prefixes:?} {}\n", path.next_hop).as_bytes());
        path.encode(bytes);
    }
}

#[test]
fn senders_announce_the_same_groups_in_other_orders_over_other_paths() {
    let table = table(20_000, 0);
    let (one, two) = (table.feed(feed_options(1)), table.feed(feed_options(2)));
    let order = |feed: &Feed<'_>| feed.groups::<V4>().map(|(g, _)| g).collect::<Vec<_>>();
    let (a, b) = (order(&one), order(&two));
    assert_ne!(a, b);
    assert_eq!(a.iter().collect::<Set<_>>(), b.iter().collect::<Set<_>>());

    let (mut p, mut q) = (Path::default(), Path::default());
    let (mut shorter, mut longer, mut next_hops) = (0, 0, Set::default());
    for group in 0..table.group_count::<V4>() {
        one.path::<V4>(group, &mut p);
        two.path::<V4>(group, &mut q);
        assert_eq!((p.as_path[0], q.as_path[0]), (65_101, 65_102));
        assert_eq!((p.as_path.last(), p.origin), (q.as_path.last(), q.origin));
        shorter += usize::from(p.as_path.len() < q.as_path.len());
        longer += usize::from(p.as_path.len() > q.as_path.len());
        next_hops.insert(p.next_hop);
    }
    let fair = table.group_count::<V4>() / 5;
    assert!(shorter > fair && longer > fair, "best paths hardly differ: {shorter} shorter, {longer} longer");
    assert_eq!(next_hops.len(), 16);
}

#[test]
fn paths_are_as_long_and_as_tagged_as_the_internets() {
    let table = table(100_000, 0);
    let feed = table.feed(feed_options(0));
    let groups = table.group_count::<V4>();
    let (mut path, mut hops, mut tagged, mut sets) = (Path::default(), 0, 0, Set::default());
    for group in 0..groups {
        feed.path::<V4>(group, &mut path);
        hops += path.as_path.len();
        if !path.communities.is_empty() {
            tagged += 1;
            assert!((1..=6).contains(&path.communities.len()));
        }
        sets.insert((path.as_path.clone(), path.communities.clone(), path.next_hop));
    }
    let mean = hops as f64 / groups as f64;
    assert!((3.8..5.6).contains(&mean), "{mean} hops");
    let tagged = tagged as f64 / groups as f64;
    assert!((0.50..0.77).contains(&tagged), "{tagged} with communities");
    // Two groups that share a set by chance would make sets larger than was asked.
    assert!(sets.len() * 1000 > groups * 995, "{} sets for {groups} groups", sets.len());
}

#[test]
fn within_the_own_as_the_path_starts_elsewhere_and_has_a_preference() {
    let table = table(10, 0);
    let feed = table.feed(FeedOptions { asn: None, ..feed_options(0) });
    let mut path = Path::default();
    feed.path::<V4>(0, &mut path);
    assert_eq!(path.local_pref, Some(100));
    assert!(!path.as_path.contains(&65_100));
}

#[test]
fn a_table_without_a_shape() {
    let table =
        Table::new(&TableOptions { ipv4: MAX_PREFIXES, ipv6: 3, uniform: true, ..TableOptions::default() });
    let last = table.prefixes::<V4>().last().unwrap();
    assert_eq!((table.count::<V4>(), last.to_string()), (4_000_000, "72.8.255.0/24".into()));
    assert!(table.prefixes::<V4>().iter().all(|p| Shape::of::<V4>().admits(*p)));
    assert_eq!(
        table.group::<V6>(0).iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["2a00::/48", "2a00:0:1::/48", "2a00:0:2::/48"]
    );
    assert_eq!((table.group_count::<V4>(), table.group_count::<V6>()), (1, 1));
    let none = Table::new(&TableOptions { ipv4: 1, ipv6: 0, uniform: true, ..TableOptions::default() });
    assert_eq!(none.group_count::<V6>(), 0);
}
