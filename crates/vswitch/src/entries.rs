//! Entries whose key is not typed, such as those of the FDB: kept with their attributes, and with
//! references to what they name.

use crate::switch::VirtualSwitch;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::text::read_oid;
use ribtide_swss::sai::{Attr, Attrs, ObjectType, Oid, RawText, Status, Verb, schema};

/// The type of entries of the FDB.
const FDB_ENTRY: &str = "SAI_OBJECT_TYPE_FDB_ENTRY";

/// Free entries of a type, whatever is used: those of SONiC's virtual switch
/// (`vslib/VirtualSwitchSaiInterface.cpp`).
pub(crate) fn available(object: ObjectType) -> Option<u64> {
    Some(match object.name() {
        "SAI_OBJECT_TYPE_DEBUG_COUNTER" => 3,
        "SAI_OBJECT_TYPE_NEXT_HOP_GROUP_MAP" => 512,
        "SAI_OBJECT_TYPE_MY_SID_ENTRY" => 0,
        "SAI_OBJECT_TYPE_VNET"
        | "SAI_OBJECT_TYPE_ENI"
        | "SAI_OBJECT_TYPE_ENI_ETHER_ADDRESS_MAP_ENTRY"
        | "SAI_OBJECT_TYPE_INBOUND_ROUTING_ENTRY"
        | "SAI_OBJECT_TYPE_OUTBOUND_ROUTING_ENTRY"
        | "SAI_OBJECT_TYPE_PA_VALIDATION_ENTRY"
        | "SAI_OBJECT_TYPE_OUTBOUND_CA_TO_PA_ENTRY"
        | "SAI_OBJECT_TYPE_DASH_ACL_GROUP"
        | "SAI_OBJECT_TYPE_DASH_ACL_RULE" => 100_000,
        _ => return None,
    })
}

/// The objects that an attribute names.
fn named(attrs: &[Attr]) -> Vec<Oid> {
    attrs.iter().flat_map(|attr| attr.clone().oids_mut().to_vec()).collect()
}

impl VirtualSwitch {
    /// Creates, sets or removes an entry.
    pub(crate) fn raw_entry(
        &mut self,
        verb: Verb,
        object: ObjectType,
        key: &RawText,
        attrs: &[Attr],
    ) -> Result<(), Status> {
        if !key.oids().iter().chain(&named(attrs)).all(|oid| self.objects.exists(*oid)) {
            return Err(Status::InvalidObjectId);
        }
        let entry = (object, key.clone());
        let learned = if object.name() == FDB_ENTRY { self.learned_at(key) } else { None };
        match (verb, self.entries.contains_key(&entry)) {
            (Verb::Set, false) if learned.is_some() => {
                self.keep_learned(learned, &entry);
                return self.raw_entry(verb, object, key, attrs);
            }
            (Verb::Remove, false) if learned.is_some() => self.replace_learned(learned, key),
            (Verb::Create, true) => return Err(Status::ItemAlreadyExists),
            (Verb::Set | Verb::Remove, false) => return Err(Status::ItemNotFound),
            (Verb::Create, false) if object.name() == FDB_ENTRY && self.free_fdb_entries() == 0 => {
                return Err(Status::TableFull);
            }
            (Verb::Create, false) => {
                schema::complete(object, attrs).map_err(|broken| broken.status)?;
                self.refer_all(key.oids().iter().copied().chain(named(attrs)), 1);
                self.fdb_entries += u32::from(object.name() == FDB_ENTRY);
                self.entries.insert(entry, attrs.iter().cloned().collect());
                self.replace_learned(learned, key);
            }
            (Verb::Set, true) => {
                if attrs.iter().any(Attr::create_only) {
                    return Err(Status::InvalidParameter);
                }
                self.refer_all(named(attrs), 1);
                let stored = self.entries.entry(entry).or_default();
                let mut replaced = Attrs::new();
                for attr in attrs {
                    if let Some(at) = stored.iter().position(|old| old.same_kind(attr)) {
                        replaced.push(stored.remove(at));
                    }
                    stored.push(attr.clone());
                }
                self.refer_all(named(&replaced), -1);
            }
            (Verb::Remove, true) => self.drop_entry(&entry),
        }
        Ok(())
    }

    /// Adds an entry that the switch learned, with its references.
    pub(crate) fn add_learned(&mut self, entry: (ObjectType, RawText), attrs: Attrs) {
        self.refer_all(entry.1.oids().iter().copied().chain(named(&attrs)), 1);
        self.fdb_entries += 1;
        self.entries.insert(entry, attrs);
    }

    /// Free entries of the FDB.
    pub(crate) fn free_fdb_entries(&self) -> u32 {
        self.behavior().limits.fdb_entries.saturating_sub(self.fdb_entries)
    }

    /// The port or LAG of an address in a VLAN, by its FDB entry.
    pub(crate) fn fdb_port(&self, vlan: Oid, address: Mac) -> Option<Oid> {
        let (address, fdb) = (format!("\"{address}\""), ObjectType::from_name("SAI_OBJECT_TYPE_FDB_ENTRY")?);
        let mut entries = self.entries.iter().filter(|((object, _), _)| *object == fdb);
        let (_, attrs) = entries.find(|((_, key), _)| {
            let mut text = String::new();
            key.write(&mut text);
            key.oids().contains(&vlan) && text.contains(&address)
        })?;
        let bridge_port = attrs.iter().find(|attr| attr.name() == "SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID")?;
        let bridge_port = *bridge_port.clone().oids_mut().first()?;
        self.objects
            .find(bridge_port, |a| if let Attr::BridgePortPort(port) = a { Some(*port) } else { None })
    }

    /// Forgets the addresses that were learned behind a bridge port and in a VLAN; of `None`, behind all, or in all.
    fn forget_learned(&mut self, bridge_port: Option<Oid>, vlan: Option<Oid>) {
        let lower = bridge_port.map(|port| {
            self.objects.find(port, |a| if let Attr::BridgePortPort(lower) = a { Some(*lower) } else { None })
        });
        let id = vlan
            .map(|vlan| self.objects.find(vlan, |a| if let Attr::VlanId(id) = a { Some(*id) } else { None }));
        self.packets.forget_learned(lower, id);
    }

    pub(crate) fn drop_entry(&mut self, entry: &(ObjectType, RawText)) {
        let Some(attrs) = self.entries.remove(entry) else { return };
        self.fdb_entries -= u32::from(entry.0.name() == FDB_ENTRY);
        self.refer_all(entry.1.oids().iter().copied().chain(named(&attrs)), -1);
    }

    /// Counts references; the switch needs none.
    fn refer_all(&mut self, oids: impl IntoIterator<Item = Oid>, by: i32) {
        let switch = self.switch_oid();
        for oid in oids.into_iter().filter(|oid| Some(*oid) != switch) {
            self.objects.refer(oid, by);
        }
    }

    /// Removes the entries of the FDB that the attributes of a flush select: those that were learned,
    /// unless they say which (`SAI_FDB_FLUSH_ATTR_ENTRY_TYPE`).
    pub(crate) fn flush_fdb(&mut self, attrs: &[Attr]) {
        let given = |name: &str| attrs.iter().find(|attr| attr.name() == name).map(Attr::value);
        let kind = given("SAI_FDB_FLUSH_ATTR_ENTRY_TYPE");
        let kind = match kind.as_deref() {
            Some("SAI_FDB_FLUSH_ENTRY_TYPE_ALL") => None,
            Some("SAI_FDB_FLUSH_ENTRY_TYPE_STATIC") => Some("SAI_FDB_ENTRY_TYPE_STATIC"),
            _ => Some("SAI_FDB_ENTRY_TYPE_DYNAMIC"),
        };
        // Null is every port, or every VLAN.
        let named = |name| given(name).filter(|oid| *oid != Oid::NULL.to_string());
        let port = named("SAI_FDB_FLUSH_ATTR_BRIDGE_PORT_ID");
        let bv = named("SAI_FDB_FLUSH_ATTR_BV_ID");
        let selected = |((object, key), attrs): &(&(ObjectType, RawText), &Attrs)| {
            let has =
                |name: &str, value: &str| attrs.iter().any(|of| of.name() == name && of.value() == value);
            object.name() == "SAI_OBJECT_TYPE_FDB_ENTRY"
                && kind.is_none_or(|kind| has("SAI_FDB_ENTRY_ATTR_TYPE", kind))
                && port.as_ref().is_none_or(|port| has("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", port))
                && bv.as_ref().is_none_or(|bv| key.oids().iter().any(|oid| oid.to_string() == *bv))
        };
        let gone: Vec<(ObjectType, RawText)> =
            self.entries.iter().filter(selected).map(|(entry, _)| entry.clone()).collect();
        for entry in gone {
            self.drop_entry(&entry);
        }
        if kind != Some("SAI_FDB_ENTRY_TYPE_STATIC") {
            let (port, bv) = (port.as_deref().and_then(read_oid), bv.as_deref().and_then(read_oid));
            self.forget_learned(port, bv);
            self.report_flush(port, bv);
        }
    }
}
