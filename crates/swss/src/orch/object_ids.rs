//! Object ids: new virtual ids (VIDs) from the counter that orchagent shares with syncd, and those
//! of the previous run at a warm start.

use super::previous_ids::{PreviousIds, RifPlace};
use crate::row::Name;
use crate::sai::{Attr, ObjectType, Oid, VidSource};
use ribtide_prefix::Map;
use std::ops::Range;

/// How many ids are taken from the source at a time.
const VID_BLOCK: u64 = 1024;

/// The source of object ids.
pub(super) struct ObjectIds {
    vids: Box<dyn VidSource>,
    block: Range<u64>,
    /// The object ids of the previous run, during a warm start.
    previous: Option<PreviousIds>,
    /// What interfaces in pending rows of INTF_TABLE lie on in each VRF, during a warm start.
    ports_of_vrf: Map<Name, Vec<RifPlace>>,
}

impl ObjectIds {
    pub(super) fn new(vids: Box<dyn VidSource>) -> ObjectIds {
        ObjectIds { vids, block: 0..0, previous: None, ports_of_vrf: Map::default() }
    }

    /// A new id.
    ///
    /// # Errors
    /// Why the source has none, as it says.
    pub(super) fn new_id(&mut self, object: ObjectType) -> Result<Oid, String> {
        if self.block.is_empty() {
            self.block = self.vids.take(VID_BLOCK)?;
        }
        Ok(self.block.next().map_or(Oid::NULL, |index| Oid::vid(object, index)))
    }

    /// Begins a warm start.
    pub(super) fn restore(&mut self, previous: PreviousIds) {
        self.previous = Some(previous.complete());
    }

    /// Whether a warm start goes on, in which objects get their previous ids.
    pub(super) fn is_restoring(&self) -> bool {
        self.previous.is_some()
    }

    /// Drops the previous ids, and returns whether there were any.
    pub(super) fn end_restore(&mut self) -> bool {
        self.ports_of_vrf = Map::default();
        self.previous.take().is_some()
    }

    /// Notes what the interfaces of each VRF lie on, by which [`ObjectIds::previous_router`] recognises
    /// its virtual router.
    pub(super) fn set_ports_of_vrfs(&mut self, ports: Map<Name, Vec<RifPlace>>) {
        self.ports_of_vrf = ports;
    }

    /// Whether an index was a group in the previous run. Then it stays a group, even with one next
    /// hop.
    pub(super) fn was_group(&self, index: &Name) -> bool {
        self.previous.as_ref().is_some_and(|ids| ids.has_index(index))
    }

    /// The previous id of an object with these attributes.
    pub(super) fn previous(&mut self, object: ObjectType, attrs: &[Attr]) -> Option<Oid> {
        self.previous.as_mut()?.object_of(object, attrs)
    }

    /// The previous id of a LAG with these ports.
    pub(super) fn previous_lag(&mut self, ports: &[Oid]) -> Option<Oid> {
        self.previous.as_mut()?.lag(ports)
    }

    /// The previous id of a VRF's virtual router.
    pub(super) fn previous_router(&mut self, vrf: &Option<Name>) -> Option<Oid> {
        let ports = vrf.as_ref().and_then(|name| self.ports_of_vrf.get(name));
        self.previous.as_mut()?.router(ports.map_or(&[], Vec::as_slice))
    }

    /// The previous id of a group with these next hops, or of this index.
    pub(super) fn previous_group(
        &mut self,
        hops: impl Iterator<Item = (Oid, u32)>,
        index: Option<&Name>,
    ) -> Option<Oid> {
        let previous = self.previous.as_mut()?;
        let mut hops: Vec<(Oid, u32)> = hops.collect();
        hops.sort_unstable();
        previous.group(&hops, index)
    }
}
