//! What is installed leaves the kernel.

use super::*;
use crate::kernel::flush::{self, Scope};

#[test]
fn flush_removes_our_routes_and_objects_and_no_others() {
    in_namespace("flush::flush_removes_our_routes_and_objects_and_no_others", || {
        let mut kernel = Kernel::open(&System::default(), config(), &[]).unwrap();
        let mut batch = Batch::start().group(1, &[hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", 1)]);
        for n in 0..200 {
            batch = batch.route(&format!("192.0.2.{n}/32"), Some(1));
        }
        batch = batch.group(2, &[hop("2001:db8:0::2", "v0", 1)]);
        batch.route("2001:db8:7::/48", Some(2)).end().apply(&mut kernel);
        // Of another number, and of ours in a table that is not: with its object, which stays.
        ip("route add 198.51.100.0/24 via 10.0.0.3 proto static table 1000");
        ip("nexthop add id 7 via 10.0.0.9 dev v0 proto bgp");
        ip("nexthop add id 8 group 7 proto bgp");
        ip("route add 203.0.113.0/24 nhid 8 proto bgp table 2000");
        let scope = Scope { protocol: 186, tables: vec![(1000, "default".into())] };
        let (before, objects) = (table(), json("nexthop show").len());
        let late = flush::flush(&scope, false, Some(Instant::now())).unwrap();
        assert_eq!((late.routes(), late.left, table()), (0, 201, before.clone()), "there was no time");
        assert_eq!(late.in_use, 7, "the routes that are left use them");
        assert!(late.to_string().ends_with("; 201 could not be removed, or not in time"), "{late}");
        let dry = flush::flush(&scope, true, None).unwrap();
        assert_eq!((dry.routes(), dry.next_hop_groups, dry.next_hops), (201, 2, 3));
        assert_eq!((dry.in_use, dry.left, table()), (2, 0, before));
        assert_eq!(json("nexthop show").len(), objects);
        let done = flush::flush(&scope, false, None).unwrap();
        assert_eq!(done, flush::Flushed { dry_run: false, ..dry });
        assert_eq!(table(), expect(&[("198.51.100.0/24", &["10.0.0.3 v0 1"])]));
        assert_eq!((table_of(2000).len(), json("nexthop show").len()), (1, 2));
        let nothing = flush::flush(&scope, false, None).unwrap();
        assert_eq!((nothing.routes(), nothing.next_hops, nothing.left), (0, 0, 0));
    });
}
