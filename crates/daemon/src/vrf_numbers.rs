//! The numbers of interfaces and VRFs: those of the kernel, or generated ones.

use ribtide_config::{Config, InterfaceConfig, VrfConfig, VrfSetup};
use ribtide_dataplane::kernel;
use ribtide_rib::{IfIndex, Vrf, VrfId};
use ribtide_runtime::log::target;
use std::collections::{BTreeMap, BTreeSet};

/// VRFs beside the default one, at most.
const VRFS_MAX: IfIndex = u8::MAX as IfIndex;

/// The present numbers of VRFs and of configured interfaces.
pub(crate) struct VrfNumbers {
    pub(crate) vrfs: Vec<VrfSetup>,
    /// The last assigned number.
    last: VrfId,
    /// Whether interfaces and VRFs have the indices of the system in FPM messages, not generated
    /// ones.
    of_system: bool,
    /// The generated number of each interface that there ever was. Dataplanes may still have routes over one that is gone.
    interfaces: BTreeMap<String, IfIndex>,
    /// The number of interfaces at the start, which have the first numbers. Those of VRFs follow, and then those of later
    /// interfaces.
    first: IfIndex,
    /// Whether there was an FPM client without a kernel dataplane, for which these numbers were chosen.
    for_fpm: bool,
}

impl VrfNumbers {
    /// Numbers the interfaces of a configuration, and no VRF yet.
    pub(crate) fn new(config: &mut Config) -> VrfNumbers {
        let for_fpm = is_for_fpm(config);
        let of_system = for_fpm && number_as_the_system(&mut config.interfaces);
        let interfaces: BTreeMap<String, IfIndex> =
            config.interfaces.iter().map(|interface| (interface.name.clone(), interface.index)).collect();
        let first = config.interfaces.len() as IfIndex;
        VrfNumbers { vrfs: Vec::new(), last: VrfId::DEFAULT, of_system, interfaces, first, for_fpm }
    }

    /// Numbers the interfaces of another configuration. One that was there before keeps its number.
    ///
    /// # Errors
    /// A sentence: over FPM the system's numbers are used, and the system has no such interface, or the interfaces have others
    /// already.
    pub(crate) fn number_interfaces(&mut self, config: &mut Config) -> Result<(), String> {
        if is_for_fpm(config) && !self.for_fpm {
            if !self.interfaces.is_empty() && has_all(&config.interfaces) {
                return Err(
                    "fib.fpm is new, its servers know interfaces by the numbers of the system, and the [[interface]] tables have \
                     had others since the start; restart the router"
                        .to_owned(),
                );
            }
            self.of_system = self.interfaces.is_empty() && number_as_the_system(&mut config.interfaces);
            self.for_fpm = true;
        }
        if self.of_system {
            let numbers = kernel::interface_numbers().unwrap_or_default();
            return config.interfaces.iter_mut().try_for_each(|interface| {
                interface.index = *numbers.get(&interface.name).ok_or_else(|| {
                    format!(
                        "this system has no interface {}, and over FPM interfaces go by the numbers of the system; make one",
                        interface.name
                    )
                })?;
                Ok(())
            });
        }
        for interface in &mut config.interfaces {
            let next = self.interfaces.values().copied().max().unwrap_or(0).max(self.first + VRFS_MAX) + 1;
            interface.index = *self.interfaces.entry(interface.name.clone()).or_insert(next);
        }
        Ok(())
    }

    /// Numbers the VRFs of a configuration. An unchanged one keeps its number. The number of a
    /// removed one is reused as late as possible, and never while it is one of `leaving`: a
    /// dataplane still has it, and would take messages about the old one for the new one.
    ///
    /// # Errors
    /// A sentence: the kernel lacks what a VRF needs, or there are too many.
    pub(crate) fn number(
        &mut self,
        config: &Config,
        leaving: impl IntoIterator<Item = VrfId>,
    ) -> Result<Vec<VrfSetup>, String> {
        let mut taken: BTreeSet<VrfId> = self.vrfs.iter().map(|known| known.vrf.id).collect();
        taken.extend(leaving);
        let mut all = Vec::new();
        for (name, requested) in &config.vrfs {
            let known = self.vrfs.iter().find(|known| known.name == *name).map(|known| known.vrf);
            let same = match known {
                Some(known) => {
                    Some(self.numbers(config, name, requested, known.id)?).filter(|vrf| *vrf == known)
                }
                None => None,
            };
            let vrf = match same {
                Some(vrf) => vrf,
                None => {
                    let mut free = (1..=u8::MAX).map(|step| VrfId(self.last.0.wrapping_add(step)));
                    let id = free.find(|id| *id != VrfId::DEFAULT && !taken.contains(id));
                    let id = id.ok_or(
                        "too many VRFs come and go at once, or a dataplane that stands still has too many yet that are gone; \
                         remove some first, then add the others",
                    )?;
                    taken.insert(id);
                    self.last = id;
                    self.numbers(config, name, requested, id)?
                }
            };
            let VrfConfig { table: _, interfaces, statics, policy } = requested.clone();
            all.push(VrfSetup { name: name.clone(), vrf, interfaces, statics, policy });
        }
        Ok(all)
    }

    /// The index of the VRF in dataplanes.
    fn numbers(&self, config: &Config, name: &str, requested: &VrfConfig, id: VrfId) -> Result<Vrf, String> {
        let fib = config.fib.as_ref();
        if fib.is_some_and(|fib| fib.kernel.is_some()) {
            let by_number = fib.is_some_and(|fib| !fib.fpm.is_empty());
            return kernel::vrf_numbers(name, requested, by_number).map(|(table, device)| Vrf {
                id,
                table,
                device,
            });
        }
        let device = if self.of_system {
            let numbers = kernel::interface_numbers().unwrap_or_default();
            *numbers.get(name).ok_or_else(|| {
                format!("this system has no interface {name}, and over FPM VRFs go by the numbers of its interfaces; make one")
            })?
        } else {
            // After the interfaces.
            self.first + IfIndex::from(id.0)
        };
        Ok(Vrf { id, table: 0, device })
    }
}

/// Whether numbers of configured interfaces go to FPM servers.
fn is_for_fpm(config: &Config) -> bool {
    config.fib.as_ref().is_some_and(|fib| !fib.fpm.is_empty() && fib.kernel.is_none())
}

/// Whether the system has all of these interfaces.
fn has_all(interfaces: &[InterfaceConfig]) -> bool {
    let numbers = kernel::interface_numbers().unwrap_or_default();
    interfaces.iter().all(|interface| numbers.contains_key(&interface.name))
}

/// FPM carries indices of interfaces and VRFs, and its server resolves them in the system. If the
/// system has all interfaces, its indices are used; a mixture with generated ones could confuse two
/// interfaces. Returns whether it has all.
fn number_as_the_system(interfaces: &mut [InterfaceConfig]) -> bool {
    let numbers = kernel::interface_numbers().unwrap_or_default();
    let mut names = interfaces.iter().map(|interface| &interface.name);
    let Some(missing) = names.find(|name| !numbers.contains_key(*name)) else {
        interfaces.iter_mut().for_each(|i| i.index = numbers[&i.name]);
        return true;
    };
    tracing::warn!(
        target: target::FPM,
        interface = missing,
        "this system has no such interface: over FPM, interfaces are numbered from 1 in the order of their [[interface]] \
         tables, and VRFs after them"
    );
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vrfs: &[&str]) -> Config {
        let vrfs: String = vrfs.iter().map(|name| format!("[vrf.{name}]\ninterfaces = []\n")).collect();
        let text = format!("[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[fib]\n{vrfs}");
        ribtide_config::parse(&text).unwrap()
    }

    #[test]
    fn interface_keeps_its_number_and_a_new_one_gets_one_that_no_vrf_has() {
        let config = |names: &[&str]| {
            let tables: String =
                names.iter().map(|name| format!("[[interface]]\nname = \"{name}\"\n")).collect();
            let text = format!(
                "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[fib]\n{tables}[vrf.Vrf-a]\ninterfaces = []\n"
            );
            ribtide_config::parse(&text).unwrap()
        };
        let mut numbers = VrfNumbers::new(&mut config(&["e1", "e2"]));
        numbers.vrfs = numbers.number(&config(&["e1", "e2"]), []).unwrap();
        let first = numbers.vrfs[0].vrf;
        assert_eq!(first.device, 3);
        let mut number = |names: &[&str]| {
            let mut config = config(names);
            numbers.number_interfaces(&mut config).unwrap();
            assert_eq!(numbers.number(&config, []).unwrap()[0].vrf, first, "the VRF is the same");
            config.interfaces.iter().map(|interface| interface.index).collect::<Vec<_>>()
        };
        assert_eq!(number(&["e0", "e2", "e1"]), [258, 2, 1]);
        assert_eq!(number(&["e3"]), [259]);
        assert_eq!(number(&["e0", "e4", "e1"]), [258, 260, 1]);
    }

    #[test]
    fn number_that_a_dataplane_still_has_is_not_given_out() {
        let mut numbers = VrfNumbers::new(&mut config(&[]));
        let mut number = |vrfs: &[&str], leaving: &[u8]| {
            numbers.vrfs = numbers.number(&config(vrfs), leaving.iter().map(|id| VrfId(*id))).unwrap();
            numbers.vrfs.iter().map(|setup| setup.vrf.id.0).collect::<Vec<u8>>()
        };
        assert_eq!(number(&["Vrf-a", "Vrf-b"], &[]), [1, 2]);
        assert_eq!(number(&["Vrf-b"], &[]), [2]);
        // Numbers wrap around, past those in use and those still leaving.
        for n in 3..=255 {
            assert_eq!(number(&["Vrf-b", &format!("Vrf-x{n}")], &[1]), [2, n]);
        }
        assert_eq!(number(&["Vrf-b", "Vrf-c"], &[1, 3]), [2, 4]);
        assert_eq!(number(&["Vrf-b"], &[]), [2]);
        let all: Vec<u8> = (0..=255).filter(|n| *n != 2).collect();
        let refused = numbers.number(&config(&["Vrf-b", "Vrf-d"]), all.into_iter().map(VrfId)).unwrap_err();
        assert!(refused.contains("stands still"), "{refused}");
    }
}
