//! Changes of ASIC_DB that may wait long, in few bytes: a route of the switch takes five, beside
//! what it shares with the one before it.

use super::AsicChange;
use crate::sai::binary::Before;
use crate::sai::{Attr, Attrs, ObjectId, ObjectType, RouteEntry, SWITCH};

/// Flags of a change: a route's row goes; it is no such route, but the next of those that are kept
/// whole.
const GONE: u8 = 1 << 6;
const WHOLE: u8 = 1 << 7;
/// What a route usually takes.
const USUAL: usize = 6;

/// Changes in their order.
#[derive(Default, Debug)]
pub struct PackedChanges {
    bytes: Vec<u8>,
    whole: Vec<AsicChange>,
    before: Before,
    len: usize,
}

impl PackedChanges {
    /// Makes room for so many routes more.
    pub(super) fn reserve(&mut self, routes: usize) {
        self.bytes.reserve(routes * USUAL);
    }

    /// [`AsicChange::Set`] of these.
    pub(super) fn set(&mut self, object: ObjectType, id: &ObjectId, attrs: &Attrs) {
        match (id, attrs.as_slice()) {
            (ObjectId::Route(RouteEntry { switch: SWITCH, vr, dest }), [Attr::RouteNextHop(to)]) => {
                self.len += 1;
                self.before.write(0, (*vr, *dest), Some(*to), &mut self.bytes);
            }
            _ => self.push(AsicChange::Set(object, *id, attrs.clone())),
        }
    }

    /// [`AsicChange::Remove`] of it.
    pub(super) fn remove(&mut self, object: ObjectType, id: &ObjectId) {
        match id {
            ObjectId::Route(RouteEntry { switch: SWITCH, vr, dest }) => {
                self.len += 1;
                self.before.write(GONE, (*vr, *dest), None, &mut self.bytes);
            }
            _ => self.push(AsicChange::Remove(object, *id)),
        }
    }

    /// Appends a change that is not of a route with one next-hop object.
    pub(super) fn push(&mut self, change: AsicChange) {
        self.len += 1;
        self.bytes.push(WHOLE);
        self.whole.push(change);
    }

    pub(super) fn extend(&mut self, changes: impl IntoIterator<Item = AsicChange>) {
        changes.into_iter().for_each(|change| self.push(change));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each as it was.
    pub fn unpack(self) -> impl Iterator<Item = AsicChange> {
        let PackedChanges { bytes, whole, .. } = self;
        let (mut at, mut whole, mut before) = (0, whole.into_iter(), Before::default());
        std::iter::from_fn(move || {
            let mut rest = bytes.get(at..)?;
            let flags = *rest.first()?;
            if flags & WHOLE != 0 {
                at += 1;
                return whole.next();
            }
            let (entry, to) = before.read(&mut rest)?;
            at = bytes.len() - rest.len();
            let id = ObjectId::Route(entry);
            Some(if flags & GONE != 0 {
                AsicChange::Remove(ObjectType::RouteEntry, id)
            } else {
                AsicChange::Set(ObjectType::RouteEntry, id, Attrs::from_iter([Attr::RouteNextHop(to)]))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sai::{Oid, PacketAction};

    #[test]
    fn what_goes_in_comes_out_and_routes_are_small() {
        let own = RouteEntry { switch: SWITCH, vr: Oid(7), dest: "10.0.0.0/24".parse().unwrap() };
        let other = RouteEntry { switch: Oid(9), ..own };
        let to = |to| Attrs::from_iter([Attr::RouteNextHop(to)]);
        let drops = Attrs::from_iter([Attr::RoutePacketAction(PacketAction::Drop)]);
        let changes = [
            (AsicChange::Set(ObjectType::RouteEntry, own.into(), to(Oid(3))), 1 + 16 + 4),
            (AsicChange::Set(ObjectType::RouteEntry, own.into(), to(Oid(3))), 1 + 4),
            (AsicChange::Set(ObjectType::RouteEntry, own.into(), drops), 1),
            (AsicChange::Set(ObjectType::RouteEntry, own.into(), Attrs::new()), 1),
            (AsicChange::Set(ObjectType::RouteEntry, other.into(), to(Oid(3))), 1),
            (AsicChange::Remove(ObjectType::RouteEntry, own.into()), 1 + 4),
            (AsicChange::Set(ObjectType::RouteEntry, own.into(), to(Oid(4))), 1 + 8 + 4),
            (AsicChange::Remove(ObjectType::NextHop, Oid(3).into()), 1),
            (AsicChange::Map(Oid(1), Oid(2)), 1),
        ];
        let all: Vec<_> = changes.iter().map(|(change, _)| change.clone()).collect();
        let mut packed = PackedChanges::default();
        for change in all.clone() {
            match change {
                AsicChange::Set(object, id, attrs) => packed.set(object, &id, &attrs),
                AsicChange::Remove(object, id) => packed.remove(object, &id),
                other => packed.push(other),
            }
        }
        assert_eq!(packed.bytes.len(), changes.iter().map(|(_, bytes)| bytes).sum::<usize>());
        assert_eq!((packed.len(), packed.is_empty(), packed.whole.len()), (9, false, 5));
        assert_eq!(packed.unpack().collect::<Vec<_>>(), all);
    }
}
