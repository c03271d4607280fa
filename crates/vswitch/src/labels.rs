//! Forwarding of packets with an MPLS label (SAI `saimpls.h`): a table of exact matches. An entry
//! has the number of labels to pop, and a target as routes have.

use crate::audit::EntryKey;
use crate::dir24::Target;
use crate::forwarding::ForwardHop;
use crate::switch::VirtualSwitch;
use ribtide_swss::sai::{Attr, InsegEntry, PacketAction, Status, Verb};

/// A label's entry.
#[derive(Clone, Copy)]
pub(crate) struct LabelEntry {
    pub(crate) target: Target,
    pub(crate) pop: u8,
}

/// The forwarding of a label.
#[derive(Clone, PartialEq, Debug)]
pub struct LabelForward {
    /// The label.
    pub label: u32,
    /// Labels to pop.
    pub pop: u8,
    /// Its action.
    pub action: PacketAction,
    /// The outgoing hops, several with ECMP. Empty when packets are not forwarded.
    pub hops: Vec<ForwardHop>,
}

impl VirtualSwitch {
    /// The forwarding of packets with the outermost label `label`; `None` without an entry.
    pub fn label(&self, label: u32) -> Option<LabelForward> {
        let entry = self.labels.get(&label)?;
        let action = self.targets.action(entry.target);
        Some(LabelForward { label, pop: entry.pop, action: action.packet, hops: self.hops(action) })
    }

    pub(crate) fn inseg(&mut self, verb: Verb, entry: &InsegEntry, attrs: &[Attr]) -> Result<(), Status> {
        self.touch(EntryKey::Label(entry.label));
        let old = self.labels.get(&entry.label).copied();
        match (verb, old) {
            (Verb::Create, Some(_)) => return Err(Status::ItemAlreadyExists),
            (Verb::Create, None) if self.labels.len() >= self.behavior().limits.labels as usize => {
                return Err(Status::TableFull);
            }
            (Verb::Set | Verb::Remove, None) => return Err(Status::ItemNotFound),
            (Verb::Remove, Some(old)) => {
                self.labels.remove(&entry.label);
                self.release(Some(old.target));
                return Ok(());
            }
            _ => {}
        }
        let mut pop = old.map_or(0, |old| old.pop);
        let mut action = self.action_of(old.map(|old| old.target));
        for attr in attrs {
            match attr {
                Attr::InsegPacketAction(packet) => action.packet = *packet,
                Attr::InsegNextHop(oid) => action.to = self.target_object(*oid)?,
                Attr::InsegPop(count) => pop = *count,
                _ => return Err(Status::NotSupported),
            }
        }
        let target = self.acquire(action)?;
        self.labels.insert(entry.label, LabelEntry { target, pop });
        self.release(old.map(|old| old.target));
        Ok(())
    }

    pub(crate) fn inseg_value(&self, entry: &InsegEntry, attr: &mut Attr) -> Result<(), Status> {
        let LabelEntry { target, pop } = self.labels.get(&entry.label).ok_or(Status::ItemNotFound)?;
        let action = self.targets.action(*target);
        match attr {
            Attr::InsegPacketAction(value) => *value = action.packet,
            Attr::InsegNextHop(value) => *value = action.to,
            Attr::InsegPop(value) => *value = *pop,
            _ => return Err(Status::NotSupported),
        }
        Ok(())
    }
}
