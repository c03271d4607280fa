//! The kernel as the chip, in a network namespace of each test. `ip` is the judge of what the kernel has.

mod kernel;
mod namespace;
#[path = "../../../vswitch/tests/conformance/suite/mod.rs"]
mod suite;

use namespace::{PORTS, in_namespace};
use ribtide_kernel_chip::{KernelChip, Settings};
use ribtide_vswitch::{Limits, PortSetup};
use suite::{Bench, Lacks};

/// What the kernel lacks.
const LACKS: Lacks = Lacks { types: &["VIRTUAL_ROUTER", "INSEG_ENTRY"], ipv6_by_ipv4: true };

fn ports() -> Vec<PortSetup> {
    PortSetup::usual().into_iter().take(PORTS.len()).collect()
}

mod conformance {
    use super::*;

    fn each(routes: u32, run: fn(&mut Bench<'_>)) {
        in_namespace(|| {
            let limits = Limits { ipv4_routes: routes, ..Limits::default() };
            let mut chip = KernelChip::open(ports(), Settings::default(), limits).unwrap();
            run(&mut Bench::new(&mut chip).lacking(LACKS));
        });
    }
    suite::conformance!(each);
}
