//! Which VRF SONiC's names mean. SONiC's tables name VRFs, the RIB manager numbers them.

use ribtide_rib::VrfId;
use ribtide_swss::row::Name;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The VRFs beside the default one, which has no name here. Clones are of the same list; routes of the default VRF never
/// wait for it.
#[derive(Clone, Default, Debug)]
pub(super) struct VrfNames(Arc<RwLock<BTreeMap<VrfId, Name>>>);

impl VrfNames {
    /// From now on there are these.
    pub(super) fn set(&self, names: BTreeMap<VrfId, Name>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// All of them.
    pub(super) fn all(&self) -> BTreeMap<VrfId, Name> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The VRF of a name, if there is one.
    pub(super) fn id(&self, name: Option<&Name>) -> Option<VrfId> {
        let Some(name) = name else { return Some(VrfId::DEFAULT) };
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    /// The name of a VRF; `None` for the default one, and for one that is gone, of which nothing is known any more.
    pub(super) fn name(&self, id: VrfId) -> Option<Name> {
        if id == VrfId::DEFAULT {
            return None;
        }
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}
