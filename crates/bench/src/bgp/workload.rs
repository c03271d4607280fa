//! The workloads: topologies and sequences of phases.

use super::model::{Model, Script, View};
use super::topology::Topology;
use crate::options::name_of;
use ribtide_prefix::{Afi, AfiSafi, Family, V4, V6};
use std::fmt;
use std::ops::Range;

/// A workload, a line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum BgpWorkload {
    /// 10 external peers announce the same 100,000 prefixes, each in its own order; 1 receiver
    Learn,
    /// The same from 10 clients of a route reflector, to 50 other clients
    Reflect,
    /// After reflect: 75% of the 50 clients disconnect and reconnect at the same time
    Flap,
    /// 1 external peer announces 1,000,000 prefixes, for IPv4 in 172,000 attribute sets; 1 receiver
    Single,
    /// 10 external peers announce the same 800,000 prefixes; 10 receivers
    Scale,
    /// After learn: one peer withdraws all its routes
    Withdraw,
    /// After learn with 10 receivers: 20% of the attribute sets change, all peers withdraw 20% of the
    /// prefixes and announce them again, one session ends
    Churn,
    /// 1 client of a route reflector announces 100,000 prefixes to 1,000 other clients
    Receivers,
}

/// Workloads that share a router and its load, so that later phases need no learning of their own.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The name of its first phase.
    pub name: &'static str,
    /// Senders.
    pub senders: u32,
    /// Receivers, without the one that joins late.
    pub receivers: u32,
    /// Prefixes that each sender announces.
    pub prefixes: u32,
    /// Of this family.
    pub family: Afi,
    /// Clients of a route reflector; else external peers.
    pub reflector: bool,
    steps: Vec<(&'static str, Step)>,
}

/// The action of a phase.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    /// All senders announce all.
    Learn,
    /// Three quarters of the receivers drop and return.
    Flap,
    /// The first sender withdraws all.
    WithdrawOne,
    /// Every sender changes one in five of its sets.
    Change,
    /// Every sender withdraws the same fifth of the groups.
    WithdrawFifth,
    /// Every sender announces that fifth again.
    AnnounceFifth,
    /// A sender's session ends.
    Leave,
}

impl fmt::Display for BgpWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

/// The scenarios of `workloads` with routes of `family`. `scale` multiplies the numbers of
/// prefixes, `receivers` that of receivers, down to a useful minimum.
pub fn scenarios(workloads: &[BgpWorkload], family: Afi, scale: f64, receivers: f64) -> Vec<Scenario> {
    let has = |work| workloads.contains(&work);
    let scenario =
        |name, senders, count: u32, prefixes: u32, reflector, steps: &[(&'static str, Step)]| Scenario {
            name,
            senders,
            receivers: if count == 1 { 1 } else { ((f64::from(count) * receivers) as u32).max(4) },
            prefixes: ((f64::from(prefixes) * scale) as u32).max(100),
            family,
            reflector,
            steps: steps.to_vec(),
        };
    let mut found = Vec::new();
    let learn = ("learn", Step::Learn);
    if has(BgpWorkload::Learn) || has(BgpWorkload::Withdraw) {
        let withdraw = ("withdraw", Step::WithdrawOne);
        let steps = if has(BgpWorkload::Withdraw) { vec![learn, withdraw] } else { vec![learn] };
        found.push(scenario("learn", 10, 1, 100_000, false, &steps));
    }
    if has(BgpWorkload::Reflect) || has(BgpWorkload::Flap) {
        let (reflect, flap) = (("reflect", Step::Learn), ("flap", Step::Flap));
        let steps = if has(BgpWorkload::Flap) { vec![reflect, flap] } else { vec![reflect] };
        found.push(scenario("reflect", 10, 50, 100_000, true, &steps));
    }
    if has(BgpWorkload::Single) {
        found.push(scenario("single", 1, 1, 1_000_000, false, &[("single", Step::Learn)]));
    }
    if has(BgpWorkload::Scale) {
        found.push(scenario("scale", 10, 10, 800_000, false, &[("scale", Step::Learn)]));
    }
    if has(BgpWorkload::Churn) {
        let steps = [
            ("churn: learn", Step::Learn),
            ("churn: 20% change", Step::Change),
            ("churn: 20% withdrawn", Step::WithdrawFifth),
            ("churn: announced again", Step::AnnounceFifth),
            ("churn: sender leaves", Step::Leave),
        ];
        found.push(scenario("churn", 10, 10, 100_000, false, &steps));
    }
    if has(BgpWorkload::Receivers) {
        found.push(scenario("receivers", 1, 1000, 100_000, true, &[("receivers", Step::Learn)]));
    }
    found
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario { senders, receivers, prefixes, family, reflector, .. } = self;
        let kind = if *reflector { "clients of a route reflector" } else { "external peers" };
        let many = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(
            f,
            "{} x {prefixes} prefixes of {}, {}, {kind}",
            many(*senders, "sender"),
            AfiSafi::unicast(*family),
            many(*receivers, "receiver")
        )
    }
}

/// A phase, ready to run any number of times.
pub(super) struct Phase {
    /// Its name in the table.
    pub(super) name: &'static str,
    /// The messages of senders, by number.
    pub(super) scripts: Vec<(usize, Script)>,
    /// A sender that leaves.
    pub(super) leaves: Option<usize>,
    /// Receivers that drop and return.
    pub(super) flaps: Range<usize>,
    /// The expected routes of receivers.
    pub(super) view: View,
    /// The router's paths at the end.
    pub(super) paths: usize,
}

/// A scenario with all of its messages.
pub(super) struct Prepared {
    /// What it is.
    pub(super) scenario: Scenario,
    /// Who is there.
    pub(super) topology: Topology,
    /// Sets of attributes that each sender announces.
    pub(super) sets: usize,
    /// The expected routes of receivers before any announcement.
    pub(super) empty: View,
    /// The phases.
    pub(super) phases: Vec<Phase>,
}

/// The sender that leaves, and that withdraws everything.
const UNSTEADY: usize = 0;

impl Prepared {
    /// Encodes all messages of a scenario. `seed` determines the table.
    pub(super) fn new(scenario: Scenario, seed: u64, loopback: bool) -> Prepared {
        match scenario.family {
            Afi::Ipv4 => Prepared::of::<V4>(scenario, seed, loopback),
            Afi::Ipv6 => Prepared::of::<V6>(scenario, seed, loopback),
        }
    }

    fn of<F: Family>(scenario: Scenario, seed: u64, loopback: bool) -> Prepared {
        let Scenario { senders, receivers, reflector, .. } = scenario;
        let topology = Topology::new(F::AFI, senders, receivers, reflector, loopback);
        let mut model = Model::<F>::new(topology.clone(), scenario.prefixes, seed);
        let empty = model.view();
        let receivers = scenario.receivers as usize;
        let phases = scenario.steps.iter().map(|(name, step)| {
            let senders = 0..topology.senders.len();
            let mut phase =
                Phase { name, scripts: Vec::new(), leaves: None, flaps: 0..0, view: empty.clone(), paths: 0 };
            match step {
                Step::Learn => phase.scripts = senders.map(|s| (s, model.announce(s, 0, |_| true))).collect(),
                Step::Change => {
                    let pick = |sender: usize| move |group: usize| (group + sender).is_multiple_of(5);
                    phase.scripts = senders.map(|s| (s, model.announce(s, 1, pick(s)))).collect();
                }
                Step::WithdrawFifth => {
                    phase.scripts =
                        senders.map(|s| (s, model.withdraw(s, |g| g.is_multiple_of(5)))).collect();
                }
                Step::AnnounceFifth => {
                    phase.scripts =
                        senders.map(|s| (s, model.announce(s, 2, |g| g.is_multiple_of(5)))).collect();
                }
                Step::WithdrawOne => phase.scripts = vec![(UNSTEADY, model.withdraw(UNSTEADY, |_| true))],
                Step::Leave => {
                    model.leave(UNSTEADY);
                    phase.leaves = Some(UNSTEADY);
                }
                Step::Flap => phase.flaps = 0..(receivers * 3).div_ceil(4),
            }
            phase.view = model.view();
            phase.paths = model.paths();
            phase
        });
        let phases = phases.collect();
        Prepared { scenario, topology, sets: model.groups(), empty, phases }
    }

    /// The bytes of all receivers in the largest phase, about: routers advertise each prefix about
    /// three times while better paths come from ten senders, with fewer prefixes per message.
    pub(super) fn expected_bytes(&self) -> usize {
        let sent = self.phases.iter().flat_map(|phase| &phase.scripts).map(|(_, script)| script.len()).max();
        sent.unwrap_or(0) * self.topology.receivers.len() * self.topology.senders.len().min(5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_workload_is_a_phase_and_none_is_run_twice() {
        let names = |workloads: &[BgpWorkload]| -> Vec<&str> {
            scenarios(workloads, Afi::Ipv4, 0.001, 0.1)
                .iter()
                .flat_map(|s| s.steps.iter().map(|(name, _)| *name))
                .collect()
        };
        assert_eq!(names(&[BgpWorkload::Learn]), ["learn"]);
        assert_eq!(
            names(&[BgpWorkload::Flap, BgpWorkload::Withdraw]),
            ["learn", "withdraw", "reflect", "flap"]
        );
        let all = names(BgpWorkload::value_variants());
        for &work in BgpWorkload::value_variants() {
            assert!(all.iter().any(|name| name.starts_with(&work.to_string())), "{work}");
        }
    }

    #[test]
    fn each_phase_changes_what_receivers_must_hold_and_flaps_do_not() {
        let workloads = [BgpWorkload::Withdraw, BgpWorkload::Flap, BgpWorkload::Churn];
        for family in [Afi::Ipv4, Afi::Ipv6] {
            let [learn, reflect, churn] = scenarios(&workloads, family, 0.005, 0.1).try_into().unwrap();
            for (scenario, same) in [(learn, false), (churn, false), (reflect, true)] {
                let prepared = Prepared::new(scenario, 1, true);
                let mut before = prepared.phases[0].view.best.clone();
                assert_ne!(before, prepared.empty.best);
                for phase in &prepared.phases[1..] {
                    assert_eq!(phase.view.best == before, same, "{}", phase.name);
                    before = phase.view.best.clone();
                }
            }
        }
    }
}
