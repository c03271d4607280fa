//! One RIB that feeds several virtual ASICs, one of which stands still: the others do not notice, and it has all of it when
//! it goes on.

use crate::eventually;
use ribtide_asic::InProcess;
use ribtide_config::{FibPolicy, InterfaceConfig, VirtualAsicConfig};
use ribtide_prefix::{Families, Prefix, V4};
use ribtide_rib::{
    NONE, NextHops, Protocol, ReceivedHop, RibConfig, RibIn, RouteBatch, RouteSet, Source, VrfId,
};
use ribtide_ribd::{RibBuilder, RibHandle, RibSetup, VrfsSetup};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::{self, Stop};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Routes that come together.
const TOGETHER: u32 = 2048;
const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// A RIB manager and its ASICs, which number as dataplanes as they stand here.
struct Several {
    rib: RibHandle,
    asics: Vec<InProcess>,
    /// What a chip has without a route.
    empty: usize,
    stop: Stop,
}

impl Drop for Several {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Several {
    fn new(count: usize) -> Several {
        let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
        let neighbors = GATEWAYS.map(|gateway| (gateway.into(), [2, 0, 0, 0, 0, gateway.octets()[3]]));
        let address = (IpAddr::from([10, 0, 0, 254]), 24);
        let interfaces = [InterfaceConfig {
            index: 1,
            name: "Ethernet0".into(),
            addresses: vec![address],
            neighbors: neighbors.to_vec(),
        }];
        let mut builder = RibBuilder::new(&rings);
        let asics = (0..count).map(|n| {
            let name = format!("asic{n}");
            let (rings_of, meters) = (rings.of(&name), meters.of(&name));
            let port = builder.plug(&name, &rings, meters.meter("fpmsyncd"), &stop);
            let config = VirtualAsicConfig::default();
            ribtide_asic::start(&name, port, &interfaces, &[], config, &rings_of, &meters).unwrap()
        });
        let asics: Vec<InProcess> = asics.collect();
        let setup = RibSetup {
            config: RibConfig::default(),
            vrfs: VrfsSetup { interfaces: interfaces.to_vec(), ..VrfsSetup::default() },
            shards: Vec::new(),
            suppress: false,
            policy: FibPolicy::default(),
            redistribution: Default::default(),
            clock: Clock::default(),
        };
        let rib = builder.start(setup, &meters, stop.clone()).unwrap();
        let mut several = Several { rib, asics, empty: 0, stop };
        eventually("every ASIC has its interfaces", || {
            (several.settled().iter().filter(|done| **done).count() == count).then_some(())
        });
        several.empty = several.routes(0);
        several
    }

    /// Announces the first so many host routes by a gateway, or withdraws them.
    fn announce(&self, routes: u32, gateway: Option<usize>) {
        let set = gateway.map(|gateway| RouteSet {
            next_hops: NextHops::Via(vec![ReceivedHop::gateway(GATEWAYS[gateway].into())]),
            backup: Vec::new(),
            backup_recursion: false,
            track: None,
            distance: 20,
            metric: 0,
            allow_recursion: false,
            protocol: Protocol::BgpExternal,
        });
        let which = if set.is_some() { 0 } else { NONE };
        for first in (0..routes).step_by(TOGETHER as usize) {
            let mut changes = Families::default();
            let numbers = first..(first + TOGETHER).min(routes);
            changes.v4 = numbers.map(|n| (Prefix::<V4>::new(0x1400_0000 + n, 32), which)).collect();
            let batch = RouteBatch {
                vrf: VrfId::DEFAULT,
                source: Source::Bgp,
                sets: set.iter().cloned().collect(),
                changes,
            };
            self.rib.inbox.send(RibIn::Routes(batch)).unwrap();
        }
    }

    /// Of each dataplane that is up: whether it has confirmed all that there is.
    fn settled(&self) -> Vec<bool> {
        let settled = |d: ribtide_rib::DataplaneInfo| d.replayed && d.outstanding == 0 && d.lag.is_none();
        self.rib.handle.call(move |stage| stage.rib.dataplanes().map(settled).collect()).unwrap()
    }

    /// How many routes each is still to be told of, if it is behind.
    fn lag(&self) -> Vec<Option<usize>> {
        self.rib.handle.call(|stage| stage.rib.dataplanes().map(|d| d.lag).collect()).unwrap()
    }

    fn routes(&self, asic: usize) -> usize {
        self.asics[asic].counts().unwrap().ipv4_routes - self.empty
    }

    /// Waits until some ASICs have this many routes and have confirmed all they were told.
    fn wait(&self, asics: std::ops::Range<usize>, routes: u32) {
        let begin = Instant::now();
        while !(self.rib.inbox.is_empty()
            && self.settled()[asics.clone()].iter().all(|done| *done)
            && asics.clone().all(|asic| self.routes(asic) == routes as usize))
        {
            assert!(begin.elapsed() < Duration::from_secs(600), "they do not get there");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn stall(&self, asics: std::ops::Range<usize>, how: &str) {
        for asic in asics {
            self.asics[asic].behave(vec![("stall".into(), how.into())]).unwrap().unwrap();
        }
    }

    /// Whether an ASIC forwards each of the first so many routes by this gateway.
    fn forwards(&self, asic: usize, routes: u32, gateway: usize) -> bool {
        let addresses: Vec<IpAddr> = (0..routes).map(|n| Ipv4Addr::from(0x1400_0000 + n).into()).collect();
        let found = self.asics[asic].lookup(VrfId::DEFAULT, &addresses).unwrap();
        found.iter().all(|forward| forward.as_ref().is_some_and(|f| f.reaches(GATEWAYS[gateway].into())))
    }
}

#[test]
fn one_or_two_asics_of_four_stand_still_and_the_others_do_not_notice() {
    const ROUTES: u32 = 20_000;
    for at_work in [3, 2] {
        let several = Several::new(4);
        let (others, stalled) = (0..at_work, at_work..4);
        let all_behind = vec![Some(ROUTES as usize); stalled.len()];
        several.announce(ROUTES, Some(0));
        several.wait(0..4, ROUTES);
        several.stall(stalled.clone(), "on");
        // Every route changes again and again, until the rings to those that stand still are full, and on.
        let (mut last, mut changes) = (0, 0);
        while several.lag()[stalled.clone()] != all_behind {
            last = 1 - last;
            several.announce(ROUTES, Some(last));
            several.wait(others.clone(), ROUTES);
            changes += 1;
            assert!(changes < 200, "they are never behind");
        }
        assert!(others.clone().all(|asic| several.forwards(asic, ROUTES, last)));
        // Each prefix is noted once, however often it changes.
        several.announce(ROUTES, Some(1 - last));
        several.announce(ROUTES, Some(last));
        several.wait(others.clone(), ROUTES);
        assert_eq!(several.lag()[stalled.clone()], all_behind);
        // Half of them go: they are told once that they are gone, and nothing of what was between.
        several.announce(ROUTES / 2, None);
        several.wait(others, ROUTES / 2);
        several.stall(stalled, "off");
        several.wait(0..4, ROUTES / 2);
        several.announce(ROUTES, Some(last));
        several.wait(0..4, ROUTES);
        assert!((0..4).all(|asic| several.forwards(asic, ROUTES, last)));
    }
}

/// What a chip that stands still costs three others: docs/perf/2026-11-multi-asic.md.
#[test]
#[ignore = "measures; in release mode, with --nocapture"]
fn measure_four_asics() {
    const ROUTES: u32 = 300_000;
    const ROUNDS: usize = 9;
    /// How many there are, how many of them are waited for, and whether the others stand still.
    const CASES: [(&str, usize, usize, bool); 5] = [
        ("three ASICs", 3, 3, false),
        ("four", 4, 3, false),
        ("four, one stalled: the other three", 4, 3, true),
        ("two ASICs", 2, 2, false),
        ("four, two stalled: the other two", 4, 2, true),
    ];
    let mut times = CASES.map(|_| (Vec::new(), Vec::new()));
    let mut caught_up = Vec::new();
    let memory = || thread::peak_memory().unwrap() as f64 / f64::from(1 << 20);
    for _ in 0..ROUNDS {
        // In each case all routes come, then all change.
        for ((_, asics, waited, stalls), (loaded, changed)) in CASES.into_iter().zip(&mut times) {
            let several = Several::new(asics);
            let stalled = if stalls { waited..asics } else { 0..0 };
            several.stall(stalled.clone(), "on");
            for (gateway, times) in [loaded, changed].into_iter().enumerate() {
                let begin = Instant::now();
                several.announce(ROUTES, Some(gateway));
                several.wait(0..waited, ROUTES);
                times.push(begin.elapsed().as_secs_f64());
            }
            if stalls {
                let begin = Instant::now();
                several.stall(stalled, "off");
                several.wait(0..asics, ROUTES);
                caught_up.push(begin.elapsed().as_secs_f64());
                assert!((0..asics).all(|asic| several.forwards(asic, ROUTES, 1)));
            }
        }
        println!("{:.0} MiB at most so far", memory());
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2], values[0], values[values.len() - 1])
    };
    for ((name, ..), (loaded, changed)) in CASES.iter().zip(&mut times) {
        println!("{name}: {:.3?} s to load, {:.3?} s to change", median(loaded), median(changed));
    }
    println!("those that stood still have everything {:.3?} s after they go on", median(&mut caught_up));
}
