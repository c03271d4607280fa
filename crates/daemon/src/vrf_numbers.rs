//! The numbers that interfaces and VRFs have: the kernel's, or ones made up where it has none.

use crate::config::{Config, InterfaceConfig, VrfConfig};
use crate::dataplane::kernel;
use crate::rib::VrfSetup;
use ribtide_rib::{IfIndex, Vrf, VrfId};
use ribtide_runtime::log::log;
use std::collections::BTreeSet;

/// The VRFs as they are numbered now.
pub(crate) struct VrfNumbers {
    pub(crate) vrfs: Vec<VrfSetup>,
    /// The number that was given last.
    last: VrfId,
    /// Over FPM, interfaces and VRFs have the system's numbers, and not made-up ones.
    of_system: bool,
}

impl VrfNumbers {
    /// Numbers the interfaces of a configuration, and no VRF yet.
    pub(crate) fn new(config: &mut Config) -> VrfNumbers {
        let fpm = config.fib.as_ref().is_some_and(|fib| !fib.fpm.is_empty() && fib.kernel.is_none());
        let of_system = fpm && number_as_the_system(&mut config.interfaces);
        VrfNumbers { vrfs: Vec::new(), last: VrfId::DEFAULT, of_system }
    }

    /// Numbers the VRFs of a configuration. One that was there and is the same keeps its number; that of one that is gone
    /// rests as long as it can, so that nothing that is still under way is taken for its successor's.
    ///
    /// # Errors
    /// A sentence: the kernel does not have what a VRF needs, or there are too many.
    pub(crate) fn number(&mut self, config: &Config) -> Result<Vec<VrfSetup>, String> {
        let mut taken: BTreeSet<VrfId> = self.vrfs.iter().map(|known| known.vrf.id).collect();
        let mut all = Vec::new();
        for (name, wanted) in &config.vrfs {
            let known = self.vrfs.iter().find(|known| known.name == *name).map(|known| known.vrf);
            let same = match known {
                Some(known) => {
                    Some(self.numbers(config, name, wanted, known.id)?).filter(|vrf| *vrf == known)
                }
                None => None,
            };
            let vrf = match same {
                Some(vrf) => vrf,
                None => {
                    let mut free = (1..=u8::MAX).map(|step| VrfId(self.last.0.wrapping_add(step)));
                    let id = free.find(|id| *id != VrfId::DEFAULT && !taken.contains(id));
                    let id = id
                        .ok_or("too many VRFs come and go at once; remove some first, then add the others")?;
                    taken.insert(id);
                    self.last = id;
                    self.numbers(config, name, wanted, id)?
                }
            };
            let VrfConfig { interfaces, statics, .. } = wanted.clone();
            all.push(VrfSetup { name: name.clone(), vrf, interfaces, statics });
        }
        Ok(all)
    }

    /// What the VRF is called in dataplanes.
    fn numbers(&self, config: &Config, name: &str, wanted: &VrfConfig, id: VrfId) -> Result<Vrf, String> {
        let fib = config.fib.as_ref();
        if fib.is_some_and(|fib| fib.kernel.is_some()) {
            let by_number = fib.is_some_and(|fib| !fib.fpm.is_empty());
            return kernel::vrf_numbers(name, wanted, by_number).map(|(table, device)| Vrf {
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

/// FPM says interfaces and VRFs by number, and its server asks the system for their names. Where the system has all of the
/// interfaces, its numbers are theirs; a mixture with numbers of our own could name one interface for another. Whether it has them.
fn number_as_the_system(interfaces: &mut [InterfaceConfig]) -> bool {
    let numbers = kernel::interface_numbers().unwrap_or_default();
    let mut names = interfaces.iter().map(|interface| &interface.name);
    let Some(missing) = names.find(|name| !numbers.contains_key(*name)) else {
        interfaces.iter_mut().for_each(|i| i.index = numbers[&i.name]);
        return true;
    };
    log(
        "ribtide",
        &format!(
            "this system has no interface {missing}: over FPM, interfaces are numbered from 1 in the order of their \
             [[interface]] tables, and VRFs after them"
        ),
    );
    false
}
