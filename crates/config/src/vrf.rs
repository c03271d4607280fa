//! VRFs beside the default one.

use super::FibPolicy;
use super::check::{Checker, InterfaceConfig};
use super::diagnosis::key;
use super::fib::FibConfig;
use super::file;
use super::statics::{Place, StaticRoute};
use ribtide_rib::Vrf;
use ribtide_settings::DEFAULT_VRF;
use ribtide_wire::netlink::numbers::{RT_TABLE_DEFAULT, RT_TABLE_LOCAL};
use std::collections::BTreeMap;

/// How many VRFs there may be beside the default one.
const MOST: usize = 255;

/// A `[vrf.NAME]` table.
#[derive(Clone, PartialEq, Debug)]
pub struct VrfConfig {
    /// The kernel's table; none: that of its VRF device.
    pub table: Option<u32>,
    /// The interfaces that are in it, by name; none: the members of the kernel's VRF device.
    pub interfaces: Option<Vec<String>>,
    /// Its static routes.
    pub statics: Vec<StaticRoute>,
    /// What becomes of its routes on their way to the FIB.
    pub policy: FibPolicy,
}

/// A VRF beside the default one, with its numbers, as the RIB manager and dataplanes take it.
#[derive(Clone, PartialEq, Debug)]
pub struct VrfSetup {
    /// Its name.
    pub name: String,
    /// Its numbers.
    pub vrf: Vrf,
    /// The interfaces that are in it, by name; none: the kernel says it.
    pub interfaces: Option<Vec<String>>,
    /// Its static routes.
    pub statics: Vec<StaticRoute>,
    /// What becomes of its routes on their way to the FIB.
    pub policy: FibPolicy,
}

impl Checker {
    pub(super) fn vrfs(
        &mut self,
        files: &BTreeMap<String, file::Vrf>,
        fib: Option<&FibConfig>,
        interfaces: &[InterfaceConfig],
    ) -> BTreeMap<String, VrfConfig> {
        if fib.is_none() && !files.is_empty() {
            self.problem(
                key!["vrf"],
                "without a [fib] table no route is installed, and a VRF does nothing; add [fib]",
            );
        }
        if files.len() > MOST {
            self.problem(
                key!["vrf"],
                format!("{} VRFs are more than the {MOST} that there may be", files.len()),
            );
        }
        let kernel = fib.and_then(|fib| fib.kernel.as_ref());
        let sonic = fib.is_some_and(|fib| !fib.fpm.is_empty() || !fib.asics.is_empty());
        let mut tables: BTreeMap<u32, &str> = BTreeMap::new();
        let mut members: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, file) in files {
            let file::Vrf { table, interfaces: listed, .. } = file;
            let at = name.as_str();
            if name.is_empty()
                || name.len() > 15
                || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
            {
                let message = format!(
                    "\"{name}\" is no VRF's name; write 1 to 15 characters without spaces, slashes and colons"
                );
                self.problem(key!["vrf", at], message);
            } else if name == DEFAULT_VRF {
                let message = "the default VRF is always there: its routes are [[static]] tables, its table is fib.kernel.table";
                self.problem(key!["vrf", at], message);
            } else if sonic && !name.starts_with("Vrf") {
                let message = format!(
                    "SONiC takes only VRFs whose names begin with Vrf, and fib.fpm and fib.virtual-asic are SONiC's: write \
                     [vrf.Vrf{name}]"
                );
                self.problem(key!["vrf", at], message);
            }
            if let (Some(table), Some(kernel)) = (table, kernel) {
                let of_default = kernel.vrf.is_none() && *table == kernel.table;
                if *table == 0
                    || (u32::from(RT_TABLE_DEFAULT)..=u32::from(RT_TABLE_LOCAL)).contains(table)
                    || of_default
                {
                    let message = format!(
                        "table {table} is not free for a VRF; write a number of its own, such as 100"
                    );
                    self.problem(key!["vrf", at, "table"], message);
                }
                if let Some(other) = tables.insert(*table, at) {
                    let message =
                        format!("table {table} is VRF {other}'s already; write a number of its own");
                    self.problem(key!["vrf", at, "table"], message);
                }
            } else if table.is_some() && kernel.is_none() {
                let message =
                    "table is the kernel's, and fib.kernel is off: remove it, or switch fib.kernel on";
                self.problem(key!["vrf", at, "table"], message);
            }
            if kernel.is_some_and(|kernel| kernel.vrf.as_deref() == Some(at)) {
                let message = format!(
                    "fib.kernel.vrf says that {name} is the default VRF; it cannot be another one too"
                );
                self.problem(key!["vrf", at], message);
            }
            for (i, interface) in listed.iter().flatten().enumerate() {
                if kernel.is_none() && !interfaces.iter().any(|known| known.name == *interface) {
                    let message = format!(
                        "there is no [[interface]] named \"{interface}\"; add one, or write another name"
                    );
                    self.problem(key!["vrf", at, "interfaces", i], message);
                }
                if let Some(other) = members.insert(interface, at) {
                    let message =
                        format!("{interface} is in VRF {other} already; an interface is in one VRF");
                    self.problem(key!["vrf", at, "interfaces", i], message);
                }
            }
        }
        let made = files.iter().map(|(name, file)| {
            let outside =
                members.iter().filter(|(_, vrf)| *vrf != name).map(|(interface, _)| (*interface).to_owned());
            let outside = outside.collect::<Vec<String>>();
            let place = match (&file.interfaces, kernel) {
                (None, Some(_)) => Place { known: None, outside },
                (listed, _) => Place { known: Some(listed.clone().unwrap_or_default()), outside },
            };
            let statics = self.statics(key!["vrf", name.as_str(), "static"], &file.statics, &place);
            for (i, _) in file.statics.iter().enumerate().filter(|(_, route)| route.bfd.is_some()) {
                self.problem(
                    key!["vrf", name.as_str(), "static", i, "bfd"],
                    "BFD is the default VRF's alone; remove bfd, or track the interface",
                );
            }
            let policy = self.vrf_policy(name, file);
            let file::Vrf { table, interfaces, .. } = file;
            (name.clone(), VrfConfig { table: *table, interfaces: interfaces.clone(), statics, policy })
        });
        made.collect()
    }

    fn vrf_policy(&mut self, name: &str, file: &file::Vrf) -> FibPolicy {
        if file.policy.bgp.is_some() {
            self.problem(
                key!["vrf", name, "policy", "bgp"],
                "BGP's routes are in the default VRF alone; write bgp in [fib.policy], or remove it",
            );
        }
        let (source4, source6) = self.sources(key!["vrf", name, "source"], &file.source);
        FibPolicy { source4, source6, ..self.fib_policy(key!["vrf", name, "policy"], &file.policy) }
    }
}
