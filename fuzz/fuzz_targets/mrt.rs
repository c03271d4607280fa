//! A file of a route collector.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_wire::mrt::{self, Body};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((record, taken))) = mrt::read_record(rest) {
        assert!(taken > 0 && taken <= rest.len());
        rest = &rest[taken..];
        match record.body() {
            Ok(Body::PeerIndexTable(table)) => table.peers().for_each(drop),
            Ok(Body::Rib(rib)) => {
                for entry in rib.entries().flatten() {
                    let _ = mrt::rib_next_hop(entry.attributes);
                }
            }
            Ok(_) => {}
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
});
