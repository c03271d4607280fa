//! The FDB: entries that a flush removes, and those that the chip learns and forgets by itself.
//!
//! ASIC_DB has what SONiC's syncd would write: rows of a flush go with the reply (`processFlushEvent` of
//! `syncd/RedisClient.cpp`), and learned entries come and go with their notifications
//! (`redisPutFdbEntryToAsicView` of `syncd/NotificationProcessor.cpp`).

use super::entries::in_numbers;
use super::{Syncd, SyncdOut};
use crate::sai::fdb_queue::member;
use crate::sai::notification::{FdbChange, FdbEvent};
use crate::sai::{Attr, Attrs, ObjectType, RawText, Sai, Verb};

const FDB_ENTRY: &str = "SAI_OBJECT_TYPE_FDB_ENTRY";
const TYPE: &str = "SAI_FDB_ENTRY_ATTR_TYPE";
const BRIDGE_PORT: &str = "SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID";
const DYNAMIC: &str = "SAI_FDB_ENTRY_TYPE_DYNAMIC";
const STATIC: &str = "SAI_FDB_ENTRY_TYPE_STATIC";

/// Which entries a flush removes, in VIDs.
pub(super) struct Flush {
    /// The type of the entries; `None`: both.
    kind: Option<&'static str>,
    bridge_port: Option<String>,
    /// The VLAN or bridge.
    bv: Option<String>,
}

impl Flush {
    /// Those of a request: the learned ones, unless it says which (`SAI_FDB_FLUSH_ATTR_ENTRY_TYPE`).
    pub(super) fn of_request(attrs: &[Attr]) -> Flush {
        let given = |name: &str| attrs.iter().find(|attr| attr.name() == name).map(Attr::value);
        let kind = match given("SAI_FDB_FLUSH_ATTR_ENTRY_TYPE").as_deref() {
            Some("SAI_FDB_FLUSH_ENTRY_TYPE_ALL") => None,
            Some("SAI_FDB_FLUSH_ENTRY_TYPE_STATIC") => Some(STATIC),
            _ => Some(DYNAMIC),
        };
        let named = |name| given(name).filter(|oid| oid != NULL);
        Flush {
            kind,
            bridge_port: named("SAI_FDB_FLUSH_ATTR_BRIDGE_PORT_ID"),
            bv: named("SAI_FDB_FLUSH_ATTR_BV_ID"),
        }
    }

    /// Those of a notification without a MAC address: one event for all entries of a port, of a VLAN, or of both.
    fn of_event(event: &FdbEvent) -> Flush {
        let given = |name: &str| event.attrs.iter().find(|attr| attr.name() == name).map(Attr::value);
        let named = |oid: Option<String>| oid.filter(|oid| oid != NULL);
        let kind = match given(TYPE).as_deref() {
            Some(STATIC) => STATIC,
            _ => DYNAMIC,
        };
        Flush {
            kind: Some(kind),
            bridge_port: named(given(BRIDGE_PORT)),
            bv: named(member(&event.key, "bvid")),
        }
    }

    fn selects(&self, key: &RawText, attrs: &[Attr]) -> bool {
        let has = |name: &str, value: &str| attrs.iter().any(|of| of.name() == name && of.value() == value);
        self.kind.is_none_or(|kind| has(TYPE, kind))
            && self.bridge_port.as_ref().is_none_or(|port| has(BRIDGE_PORT, port))
            && self.bv.as_ref().is_none_or(|bv| member(key, "bvid").as_ref() == Some(bv))
    }
}

const NULL: &str = "oid:0x0";

impl<S: Sai> Syncd<S> {
    /// Takes in that a flush removed entries.
    pub(super) fn forget_flushed(&mut self, flush: &Flush, out: &mut SyncdOut) {
        let of = ObjectType::from_name(FDB_ENTRY);
        let selected = self
            .store
            .entries()
            .iter()
            .filter(|((object, key), attrs)| Some(*object) == of && flush.selects(key, attrs))
            .map(|(entry, _)| entry.clone());
        let mut gone: Vec<(ObjectType, RawText)> = selected.collect();
        gone.sort_unstable();
        for entry in gone {
            self.record_entry(Verb::Remove, entry, Attrs::new(), out);
        }
    }

    /// The changes of the FDB that the chip made by itself since the last call, in VIDs, with their rows. A change
    /// that names an object which orchagent never heard of is none.
    pub fn fdb_events(&mut self, out: &mut SyncdOut) -> Vec<FdbEvent> {
        let events = self.chip.fdb_events();
        let mut passed = Vec::with_capacity(events.len());
        for event in events {
            let vid_of = |rid| self.vid(rid);
            let key = in_numbers(&event.key, &vid_of);
            let Some((key, attrs)) = key.zip(super::view::translated(&event.attrs, &vid_of)) else {
                continue;
            };
            let event = FdbEvent { key, attrs, ..event };
            self.record_fdb_event(&event, out);
            passed.push(event);
        }
        passed
    }

    fn record_fdb_event(&mut self, event: &FdbEvent, out: &mut SyncdOut) {
        let Some(object) = ObjectType::from_name(FDB_ENTRY) else { return };
        let entry = (object, event.key.clone());
        // As SONiC's syncd: an entry of no VLAN or switch has no row.
        let is_whole =
            ["bvid", "switch_id"].iter().all(|name| member(&event.key, name).as_deref() != Some(NULL));
        let row = self.store.entries().get(&entry);
        let has = |name: &str| row.is_some_and(|attrs| attrs.iter().any(|attr| attr.name() == name));
        // orchagent made it, or made it so. The chip may have sent the event before.
        let is_static = row.is_some_and(|row| row.iter().any(|a| a.name() == TYPE && a.value() == STATIC));
        match event.change {
            FdbChange::Aged if is_static => {}
            FdbChange::Learned if is_static && has(BRIDGE_PORT) => {}
            FdbChange::Flushed if member(&event.key, "mac").as_deref() == Some("00:00:00:00:00:00") => {
                self.forget_flushed(&Flush::of_event(event), out);
            }
            FdbChange::Aged | FdbChange::Flushed => {
                if self.store.entries().contains_key(&entry) {
                    self.record_entry(Verb::Remove, entry, Attrs::new(), out);
                }
            }
            FdbChange::Learned | FdbChange::Moved if !is_whole => {}
            FdbChange::Learned | FdbChange::Moved => {
                let mut attrs: Attrs =
                    event.attrs.iter().filter(|attr| attr.name() != TYPE).cloned().collect();
                // The event does not have it.
                attrs.push(Attr::raw(TYPE, if is_static { STATIC } else { DYNAMIC }));
                let verb = match self.store.entries().contains_key(&entry) {
                    true => Verb::Set,
                    false => Verb::Create,
                };
                self.record_entry(verb, entry, attrs, out);
            }
        }
    }
}
