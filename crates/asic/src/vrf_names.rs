//! Names of VRFs. The tables of SONiC have names, the RIB manager has numbers.

use ribtide_rib::VrfId;
use ribtide_swss::row::Name;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The other VRFs; the default one has no name here. Clones share the list, and routes of the
/// default VRF never wait for it.
#[derive(Clone, Default, Debug)]
pub(super) struct VrfNames(Arc<RwLock<BTreeMap<VrfId, Name>>>);

impl VrfNames {
    /// Sets the list.
    pub(super) fn set(&self, names: BTreeMap<VrfId, Name>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The list.
    pub(super) fn all(&self) -> BTreeMap<VrfId, Name> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The VRF of a name, if there is one.
    pub(super) fn id(&self, name: Option<&Name>) -> Option<VrfId> {
        let Some(name) = name else { return Some(VrfId::DEFAULT) };
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    /// The name of a VRF; `None` for the default one, and for a removed one.
    pub(super) fn name(&self, id: VrfId) -> Option<Name> {
        if id == VrfId::DEFAULT {
            return None;
        }
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}
