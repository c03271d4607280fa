//! The cost of shrinking a table after a burst, compared with filling it.
//!
//! ```text
//! cargo test --release -p ribtide-prefix --test shrink_cost -- --ignored --nocapture
//! ```

use ribtide_prefix::{Prefix, PrefixTable, V4};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

#[test]
#[ignore = "a measurement"]
fn shrink_cost() {
    for stay in [300_000, 800_000, 1_700_000] {
        let prefix = |n: u32| {
            let address = IpAddr::V4(Ipv4Addr::from_bits(n.wrapping_mul(0x9e37_79b9)));
            Prefix::<V4>::host(address).expect("an IPv4 address")
        };
        // A route of the RIB is 20 bytes.
        let mut table = PrefixTable::<V4, [u32; 5]>::default();
        let begin = Instant::now();
        for n in 0..2 * stay {
            table.insert(prefix(n), [n; 5]);
        }
        let filled = begin.elapsed();
        for n in stay..2 * stay {
            table.remove(prefix(n));
        }
        let begin = Instant::now();
        table.shrink_to_fit();
        println!("{stay} of {}: filled in {filled:?}, made to fit in {:?}", 2 * stay, begin.elapsed());
        assert_eq!(table.len(), stay as usize);
    }
}
