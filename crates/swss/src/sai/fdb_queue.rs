//! Changes of the FDB that wait for a receiver: one for each address at most, so that a slow receiver
//! keeps no more of them than the tables had addresses, and none is lost.

use super::RawText;
use super::notification::{FdbChange, FdbEvent};
use crate::json;
use ribtide_prefix::Map;
use std::collections::BTreeMap;

const NULL: &str = "oid:0x0";
const NO_ADDRESS: &str = "00:00:00:00:00:00";
const TYPE: &str = "SAI_FDB_ENTRY_ATTR_TYPE";
const BRIDGE_PORT: &str = "SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID";
const STATIC: &str = "SAI_FDB_ENTRY_TYPE_STATIC";

/// A member of the key of an entry.
pub(crate) fn member(key: &RawText, name: &str) -> Option<String> {
    let text = key.to_string();
    let members = json::read_object(&text)?;
    members.into_iter().find(|(of, _)| of == name).map(|(_, value)| value.into_owned())
}

/// A change that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Waiting {
    event: FdbEvent,
    /// The VLAN or bridge, and the bridge port; of a flush `None` where it is for any.
    bv: Option<String>,
    port: Option<String>,
    /// Whether it is a flush of many entries, and of static ones.
    flush: Option<bool>,
}

impl Waiting {
    fn of(event: FdbEvent) -> Waiting {
        let given = |name: &str| event.attrs.iter().find(|attr| attr.name() == name).map(|attr| attr.value());
        let named = |oid: Option<String>| oid.filter(|oid| oid != NULL);
        let is_flush = event.change == FdbChange::Flushed
            && member(&event.key, "mac").is_none_or(|address| address == NO_ADDRESS);
        Waiting {
            bv: named(member(&event.key, "bvid")),
            port: named(given(BRIDGE_PORT)),
            flush: is_flush.then(|| given(TYPE).as_deref() == Some(STATIC)),
            event,
        }
    }

    /// Whether a flush of its VLAN and port is one of this flush's, too.
    fn covers(&self, other: &Waiting) -> bool {
        let any_or_same = |one: &Option<String>, other: &Option<String>| one.is_none() || one == other;
        any_or_same(&self.bv, &other.bv) && any_or_same(&self.port, &other.port)
    }
}

/// Changes of the FDB in an order that gives a receiver the same entries as all changes would.
///
/// A later change of an address replaces the one that waits. An address that was learned and forgotten
/// meanwhile is none. A flush of many entries removes the changes that it makes void.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FdbQueue {
    waiting: BTreeMap<u64, Waiting>,
    /// The place of the change of each address, by the key of its entry.
    places: Map<RawText, u64>,
    next: u64,
}

impl FdbQueue {
    /// The number of changes that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the changes, in order.
    pub fn take(&mut self) -> Vec<FdbEvent> {
        self.places.clear();
        std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.event).collect()
    }

    /// Adds a change. O(log), of a flush O(changes that wait).
    pub fn push(&mut self, event: FdbEvent) {
        use FdbChange::{Aged, Flushed, Learned, Moved};
        let mut new = Waiting::of(event);
        if let Some(of_static) = new.flush {
            self.flush(&new, of_static);
            return self.append(new);
        }
        let former = self.places.remove(&new.event.key).and_then(|place| self.waiting.remove(&place));
        new.event.change = match (former.map(|former| former.event.change), new.event.change) {
            // The receiver has not heard of it.
            (Some(Learned), Aged | Flushed) => return,
            (Some(Learned), Learned | Moved) => Learned,
            // It has an entry, perhaps of another port.
            (Some(_), Learned | Moved) => Moved,
            (_, change) => change,
        };
        self.append(new);
    }

    /// Removes the change of the entry with this key, which a client has made or removed.
    pub fn forget(&mut self, key: &RawText) {
        if let Some(place) = self.places.remove(key) {
            self.waiting.remove(&place);
        }
    }

    fn append(&mut self, new: Waiting) {
        self.next += 1;
        if new.flush.is_none() {
            self.places.insert(new.event.key.clone(), self.next);
        }
        self.waiting.insert(self.next, new);
    }

    /// Takes in that entries of a VLAN and port were flushed, where `None` is any.
    fn flush(&mut self, flush: &Waiting, of_static: bool) {
        let places = &mut self.places;
        self.waiting.retain(|_, of| {
            if !flush.covers(of) {
                return true;
            }
            let goes = match (of.flush, of.event.change) {
                (Some(also_static), _) => also_static == of_static,
                // What the chip learned or moved is not static.
                (None, FdbChange::Learned) => !of_static,
                // The receiver may have it at another port, which the flush does not name.
                (None, FdbChange::Moved) if !of_static && flush.port.is_some() => {
                    of.event.change = FdbChange::Flushed;
                    false
                }
                (None, FdbChange::Moved) => !of_static,
                (None, FdbChange::Aged | FdbChange::Flushed) => !of_static && flush.port.is_none(),
            };
            if goes && of.flush.is_none() {
                places.remove(&of.event.key);
            }
            !goes
        });
    }
}

impl Extend<FdbEvent> for FdbQueue {
    fn extend<I: IntoIterator<Item = FdbEvent>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sai::{Attr, Attrs};
    use proptest::prelude::*;

    const PORTS: [&str; 3] = ["oid:0x3a000000000001", "oid:0x3a000000000002", "oid:0x3a000000000003"];
    const VLANS: [&str; 2] = ["oid:0x26000000000001", "oid:0x26000000000002"];

    fn event(change: FdbChange, vlan: Option<&str>, address: u8, port: Option<&str>) -> FdbEvent {
        let (bvid, mac) = (vlan.unwrap_or(NULL), format!("00:00:00:00:00:{address:02x}"));
        let key = format!(r#"{{"bvid":"{bvid}","mac":"{mac}","switch_id":"oid:0x21000000000000"}}"#);
        let attrs: Attrs = [Attr::raw(BRIDGE_PORT, port.unwrap_or(NULL))].into_iter().collect();
        FdbEvent { change, key: RawText::read(&key), attrs }
    }

    /// The entries of a receiver: the port of each address in a VLAN.
    #[derive(Clone, PartialEq, Eq, Default, Debug)]
    struct Table(BTreeMap<(String, String), String>);

    impl Table {
        fn apply(&mut self, event: &FdbEvent) {
            let of = |name| member(&event.key, name).unwrap();
            let (key, port) = ((of("bvid"), of("mac")), event.attrs[0].value());
            match event.change {
                FdbChange::Learned | FdbChange::Moved => drop(self.0.insert(key, port)),
                FdbChange::Flushed if key.1 == NO_ADDRESS => self.0.retain(|(vlan, _), at| {
                    !((key.0 == NULL || *vlan == key.0) && (port == NULL || *at == port))
                }),
                FdbChange::Aged | FdbChange::Flushed => drop(self.0.remove(&key)),
            }
        }
    }

    proptest! {
        /// Whatever a chip does, and whenever the receiver takes the changes, it ends with the chip's entries,
        /// and no more changes wait than there were addresses here and there.
        #[test]
        fn receiver_has_the_entries_of_the_chip(
            steps in proptest::collection::vec((0u8..8, 0usize..2, 1u8..6, 0usize..3, 0u8..8), 0..80),
        ) {
            let (mut chip, mut receiver, mut queue) = (Table::default(), Table::default(), FdbQueue::default());
            for (kind, vlan, address, port, takes) in steps {
                let (vlan, port) = (VLANS[vlan], PORTS[port]);
                let key = (vlan.to_owned(), format!("00:00:00:00:00:{address:02x}"));
                let event = match (kind, chip.0.get(&key)) {
                    (0, _) => event(FdbChange::Flushed, Some(vlan), 0, None),
                    (1, _) => event(FdbChange::Flushed, None, 0, Some(port)),
                    (2, _) => event(FdbChange::Flushed, Some(vlan), 0, Some(port)),
                    (3, _) if address == 1 => event(FdbChange::Flushed, None, 0, None),
                    (_, None) => event(FdbChange::Learned, Some(vlan), address, Some(port)),
                    (4, Some(at)) => event(FdbChange::Aged, Some(vlan), address, Some(at)),
                    (5, Some(at)) => event(FdbChange::Flushed, Some(vlan), address, Some(at)),
                    (_, Some(_)) => event(FdbChange::Moved, Some(vlan), address, Some(port)),
                };
                chip.apply(&event);
                queue.push(event);
                let of_addresses = queue.waiting.values().filter(|waiting| waiting.flush.is_none()).count();
                prop_assert!(of_addresses <= chip.0.len() + receiver.0.len());
                // A flush for each VLAN and port, for any of them, and for all.
                prop_assert!(queue.len() <= of_addresses + (VLANS.len() + 1) * (PORTS.len() + 1));
                if takes == 0 {
                    queue.take().iter().for_each(|event| receiver.apply(event));
                    prop_assert_eq!(&receiver, &chip);
                }
            }
            queue.take().iter().for_each(|event| receiver.apply(event));
            prop_assert_eq!(receiver, chip);
        }
    }

    #[test]
    fn more_addresses_than_a_queue_of_events_held_are_all_there() {
        let mut queue = FdbQueue::default();
        let mut keys: Vec<RawText> = Vec::new();
        for n in 0..70_000u32 {
            let key = format!(
                r#"{{"bvid":"{}","mac":"02:00:{:02x}:{:02x}:{:02x}:00","switch_id":"oid:0x21000000000000"}}"#,
                VLANS[0],
                n >> 16 & 255,
                n >> 8 & 255,
                n & 255
            );
            keys.push(RawText::read(&key));
            let event = event(FdbChange::Learned, None, 1, Some(PORTS[0]));
            queue.push(FdbEvent { key: keys[n as usize].clone(), ..event });
        }
        assert_eq!(queue.len(), 70_000);
        assert!(queue.take().iter().map(|event| &event.key).eq(&keys), "in the order in which they came");
        assert!(queue.is_empty());
    }
}
