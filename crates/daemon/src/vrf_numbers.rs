//! The numbers of interfaces and VRFs: those of the kernel, or generated ones.

use ribtide_config::{Config, InterfaceConfig, VrfConfig, VrfSetup};
use ribtide_dataplane::kernel;
use ribtide_rib::{IfIndex, Vrf, VrfId};
use ribtide_runtime::log::target;
use std::collections::BTreeSet;

/// The present numbers of VRFs.
pub(crate) struct VrfNumbers {
    pub(crate) vrfs: Vec<VrfSetup>,
    /// The last assigned number.
    last: VrfId,
    /// Whether interfaces and VRFs have the indices of the system in FPM messages, not generated
    /// ones.
    of_system: bool,
}

impl VrfNumbers {
    /// Numbers the interfaces of a configuration, and no VRF yet.
    pub(crate) fn new(config: &mut Config) -> VrfNumbers {
        let fpm = config.fib.as_ref().is_some_and(|fib| !fib.fpm.is_empty() && fib.kernel.is_none());
        let of_system = fpm && number_as_the_system(&mut config.interfaces);
        VrfNumbers { vrfs: Vec::new(), last: VrfId::DEFAULT, of_system }
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
            config.interfaces.len() as IfIndex + IfIndex::from(id.0)
        };
        Ok(Vrf { id, table: 0, device })
    }
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
