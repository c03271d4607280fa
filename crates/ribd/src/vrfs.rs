//! VRFs of the configuration: their numbers, and how they come and go while the router runs.

use super::RibStage;
use super::policy::CompiledFibPolicy;
use super::statics::Statics;
use ribtide_config::{Config, DEFAULT_VRF, FibPolicy, InterfaceConfig, StaticRoute, VrfSetup};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{IfIndex, InterfaceEvent, Rib, RibIn, VrfId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the configuration says of VRFs and their routes.
#[derive(Clone, Default, Debug)]
pub struct VrfsSetup {
    /// The default VRF's static routes.
    pub statics: Vec<StaticRoute>,
    /// The other VRFs.
    pub vrfs: Vec<VrfSetup>,
    /// The interfaces that no kernel tells of.
    pub interfaces: Vec<InterfaceConfig>,
    /// Whether a kernel tells of all others.
    pub of_kernel: bool,
}

impl VrfsSetup {
    /// Of a configuration, whose VRFs have these numbers.
    pub fn new(config: &Config, vrfs: Vec<VrfSetup>) -> VrfsSetup {
        VrfsSetup {
            statics: config.statics.clone(),
            vrfs,
            interfaces: config.interfaces.clone(),
            of_kernel: config.uses_kernel_interfaces(),
        }
    }
}

/// What a change of VRFs did, by name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VrfsChanged {
    /// New ones, and those that are other ones now under the same name.
    pub added: Vec<String>,
    /// Those that are gone, and those that are other ones now.
    pub removed: Vec<String>,
    /// Those that have other static routes now.
    pub statics: Vec<String>,
    /// Those whose routes go to the FIB by another policy now, or with another source address.
    pub policies: Vec<String>,
}

/// What the configuration's interfaces look like to the RIB: up, for ever.
pub(super) fn config_interfaces(setup: &VrfsSetup) -> impl Iterator<Item = InterfaceEvent> {
    setup.interfaces.iter().map(|c| {
        let vrf = setup.vrfs.iter().find(|vrf| vrf.interfaces.iter().flatten().any(|name| *name == c.name));
        InterfaceEvent {
            vrf: vrf.map_or(VrfId::DEFAULT, |vrf| vrf.vrf.id),
            index: c.index,
            name: c.name.clone(),
            up: true,
            loopback: false,
            addresses: c
                .addresses
                .iter()
                .filter_map(|(a, len)| Some((*a, AnyPrefix::from_addr(*a, *len)?)))
                .collect(),
        }
    })
}

/// What the RIB manager's thread keeps of a VRF beside its RIB.
pub(super) struct VrfEntry {
    pub(super) name: String,
    pub(super) statics: Statics,
    /// The default VRF's is not here: it comes over another channel.
    policy: FibPolicy,
}

impl VrfEntry {
    /// Without routes yet.
    pub(super) fn new(name: String, id: VrfId) -> VrfEntry {
        VrfEntry { name, statics: Statics::new(id, Vec::new()), policy: FibPolicy::default() }
    }
}

impl RibStage {
    /// The VRF of a name; without a name, the default one.
    pub fn vrf_named(&self, name: Option<&str>) -> Option<VrfId> {
        let name = name.unwrap_or(DEFAULT_VRF);
        self.vrf_entries.iter().find(|(_, entry)| entry.name == name).map(|(id, _)| *id)
    }

    /// The name of a VRF; of one that is gone, its number.
    pub fn vrf_name(&self, id: VrfId) -> String {
        self.vrf_entries.get(&id).map_or_else(|| format!("vrf{}", id.0), |entry| entry.name.clone())
    }

    /// Every VRF with its name, the default one first.
    pub fn vrfs(&self) -> impl Iterator<Item = (&str, &Rib)> {
        self.vrf_entries.iter().filter_map(|(id, entry)| Some((entry.name.as_str(), self.rib.get(*id)?)))
    }

    /// Replaces the VRFs with their static routes and interfaces. Equal ones stay as they are.
    pub(super) fn set_vrfs(&mut self, setup: VrfsSetup) -> VrfsChanged {
        let mut changed = VrfsChanged::default();
        let mut messages = Vec::new();
        // SONiC knows VRFs by name, and would take the end of one for its namesake's. So that comes
        // first.
        let namesake = |name: &str, id: VrfId| setup.vrfs.iter().any(|s| s.name == name && s.vrf.id != id);
        let replaced = self.vrf_entries.iter().filter(|(id, entry)| namesake(&entry.name, **id));
        let replaced: Vec<VrfId> = replaced.map(|(id, _)| *id).collect();
        self.drop_vrfs(replaced, &mut changed);
        for VrfSetup { name, vrf, .. } in &setup.vrfs {
            if !self.vrf_entries.contains_key(&vrf.id) {
                self.rib.add(*vrf);
                changed.added.push(name.clone());
                self.vrf_entries.insert(vrf.id, VrfEntry::new(name.clone(), vrf.id));
            }
        }
        for VrfSetup { vrf, policy, .. } in &setup.vrfs {
            let Some(entry) = self.vrf_entries.get_mut(&vrf.id).filter(|entry| entry.policy != *policy)
            else {
                continue;
            };
            entry.policy = policy.clone();
            self.rib.set_route_maps(vrf.id, Arc::new(CompiledFibPolicy::new(policy.clone())));
            changed.policies.extend(Some(entry.name.clone()).filter(|name| !changed.added.contains(name)));
        }
        let others = setup.vrfs.iter().map(|setup| (setup.vrf.id, &setup.statics));
        for (id, statics) in std::iter::once((VrfId::DEFAULT, &setup.statics)).chain(others) {
            let Some(entry) = self.vrf_entries.get_mut(&id) else { continue };
            if let Some(routes) = entry.statics.replace(statics.clone()) {
                messages.push(routes);
                changed.statics.extend(Some(entry.name.clone()).filter(|name| !changed.added.contains(name)));
            }
        }
        let numbers: BTreeSet<IfIndex> = setup.interfaces.iter().map(|interface| interface.index).collect();
        let former = std::mem::replace(&mut self.configured, numbers);
        let gone: Vec<IfIndex> = match setup.of_kernel {
            true => former.difference(&self.configured).copied().collect(),
            // Those of a kernel too, if it told of some before.
            false => self.rib.interfaces().filter(|index| !self.configured.contains(index)).collect(),
        };
        messages.extend(gone.into_iter().map(RibIn::InterfaceRemoved));
        messages.extend(config_interfaces(&setup).map(RibIn::Interface));
        self.handle(messages);
        let gone = |id: &VrfId| *id != VrfId::DEFAULT && !setup.vrfs.iter().any(|vrf| vrf.vrf.id == *id);
        let gone: Vec<VrfId> = self.vrf_entries.keys().filter(|id| gone(id)).copied().collect();
        self.drop_vrfs(gone, &mut changed);
        changed
    }

    fn drop_vrfs(&mut self, gone: Vec<VrfId>, changed: &mut VrfsChanged) {
        for id in gone {
            changed.removed.extend(self.vrf_entries.remove(&id).map(|entry| entry.name));
            let out = self.rib.remove(id);
            self.send(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_rib::Vrf;

    #[test]
    fn configured_interface_is_in_the_vrf_that_names_it() {
        let interface = |index: u32| InterfaceConfig {
            index,
            name: format!("eth{index}"),
            addresses: vec![([10, 0, index as u8, 1].into(), 24)],
            neighbors: Vec::new(),
        };
        let vrf = VrfSetup {
            name: "Vrf-a".into(),
            vrf: Vrf { id: VrfId(7), table: 0, device: 9 },
            interfaces: Some(vec!["eth2".into()]),
            statics: Vec::new(),
            policy: FibPolicy::default(),
        };
        let setup = VrfsSetup {
            vrfs: vec![vrf],
            interfaces: vec![interface(1), interface(2)],
            ..VrfsSetup::default()
        };
        let events: Vec<InterfaceEvent> = config_interfaces(&setup).collect();
        let vrfs: Vec<(&str, VrfId)> = events.iter().map(|event| (&*event.name, event.vrf)).collect();
        assert_eq!(vrfs, [("eth1", VrfId::DEFAULT), ("eth2", VrfId(7))]);
        assert_eq!(
            events[1].addresses,
            [([10, 0, 2, 1].into(), AnyPrefix::from_addr([10, 0, 2, 1].into(), 24).unwrap())]
        );
    }
}
