//! Learned addresses: where each was seen last and when, their age, and the changes that orchagent is notified of.
//!
//! The time is the caller's ([`VirtualSwitch::tick`]).

use super::Packets;
use crate::switch::VirtualSwitch;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::notification::{FdbChange, FdbEvent};
use ribtide_swss::sai::{Attr, ObjectType, Oid, RawText};

/// Learned addresses at most, as SONiC's virtual switch has entries of its FDB. Frames to others flood.
const LEARNED_MAX: usize = 800;
/// The interval of looks for addresses that are too old.
const AGING_INTERVAL_MS: u64 = 1000;
const AGING_TIME: &str = "SAI_SWITCH_ATTR_FDB_AGING_TIME";
const NOTIFY: &str = "SAI_SWITCH_ATTR_FDB_EVENT_NOTIFY";
const FDB_ENTRY: &str = "SAI_OBJECT_TYPE_FDB_ENTRY";
const TYPE: &str = "SAI_FDB_ENTRY_ATTR_TYPE";
const DYNAMIC: &str = "SAI_FDB_ENTRY_TYPE_DYNAMIC";
const BRIDGE_PORT: &str = "SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID";

/// A learned address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Learned {
    /// The port or LAG behind which it is.
    pub(super) lower: Oid,
    /// Its VLAN and bridge port.
    vlan: Oid,
    bridge_port: Oid,
    seen_ms: u64,
}

impl Packets {
    /// Forgets learned addresses: those behind `lower`, of the VLAN `id`; of `None` all. One that does not exist has none.
    pub(crate) fn forget_learned(&mut self, lower: Option<Option<Oid>>, id: Option<Option<u16>>) {
        self.learned.retain(|(vlan, _), learned| {
            let selected = lower.is_none_or(|lower| lower == Some(learned.lower))
                && id.is_none_or(|id| id == Some(*vlan));
            !selected
        });
    }
}

impl VirtualSwitch {
    /// Takes in the time, in milliseconds from any start, and forgets addresses that no frame came from for
    /// the aging time of the switch (`SAI_SWITCH_ATTR_FDB_AGING_TIME`; 0, the default of SAI: never; IEEE
    /// 802.1Q, 8.8.3). Returns when to call it again, if any may get too old.
    pub fn tick(&mut self, now_ms: u64) -> Option<u64> {
        self.packets.now_ms = now_ms;
        let age_ms = self.aging_ms()?;
        if now_ms >= self.packets.next_aging_ms {
            self.packets.next_aging_ms = now_ms + AGING_INTERVAL_MS;
            self.age(now_ms.saturating_sub(age_ms), now_ms);
        }
        let any = !self.packets.learned.is_empty() || !self.packets.dynamic_seen.is_empty();
        any.then_some(self.packets.next_aging_ms)
    }

    fn aging_ms(&self) -> Option<u64> {
        let switch = self.switch_oid()?;
        let age = self.objects.find(switch, |attr| (attr.name() == AGING_TIME).then(|| attr.value()))?;
        age.parse::<u64>().ok().filter(|seconds| *seconds > 0).map(|seconds| seconds * 1000)
    }

    /// Forgets what was seen last before `oldest_ms`, or then.
    fn age(&mut self, oldest_ms: u64, now_ms: u64) {
        let old = |(_, learned): &(&(u16, Mac), &Learned)| learned.seen_ms <= oldest_ms;
        let mut gone: Vec<_> = self.packets.learned.iter().filter(old).map(|(key, of)| (*key, *of)).collect();
        gone.sort_unstable_by_key(|(key, _)| *key);
        for ((id, address), learned) in gone {
            self.packets.learned.remove(&(id, address));
            self.report(FdbChange::Aged, address, learned);
        }
        // Those that a client made, such as a syncd that makes the entries of its ASIC_DB again.
        let Some(fdb) = ObjectType::from_name(FDB_ENTRY) else { return };
        let is_dynamic = |attr: &Attr| attr.name() == TYPE && attr.value() == DYNAMIC;
        let entries =
            self.entries.iter().filter(|((object, _), attrs)| *object == fdb && attrs.iter().any(is_dynamic));
        let entries: Vec<_> = entries.map(|(entry, attrs)| (entry.clone(), attrs.clone())).collect();
        let seen = std::mem::take(&mut self.packets.dynamic_seen);
        for (entry, attrs) in entries {
            let since = seen.get(&entry.1).copied().unwrap_or(now_ms);
            if since > oldest_ms {
                self.packets.dynamic_seen.insert(entry.1, since);
                continue;
            }
            self.drop_entry(&entry);
            let attrs = attrs.iter().filter(|attr| attr.name() == BRIDGE_PORT).cloned().collect();
            self.push_fdb(FdbEvent { change: FdbChange::Aged, key: entry.1, attrs });
        }
    }

    /// Takes in a frame of an address in a VLAN, that came by a port or LAG with this bridge port.
    pub(super) fn learn(&mut self, (id, vlan): (u16, Oid), address: Mac, (lower, bridge_port): (Oid, Oid)) {
        if address.0[0] & 1 == 1 {
            return;
        }
        let now = Learned { lower, vlan, bridge_port, seen_ms: self.packets.now_ms };
        let former = match self.packets.learned.get_mut(&(id, address)) {
            Some(former) => {
                let was = std::mem::replace(former, now);
                Some(was.bridge_port)
            }
            None => {
                if self.packets.learned.len() >= LEARNED_MAX {
                    return;
                }
                let made = self.take_dynamic(vlan, address);
                if made.is_none() && self.fdb_port(vlan, address).is_some() {
                    // A static entry stays as it is.
                    return;
                }
                self.packets.learned.insert((id, address), now);
                made
            }
        };
        match former {
            None => self.report(FdbChange::Learned, address, now),
            Some(port) if port != bridge_port => self.report(FdbChange::Moved, address, now),
            Some(_) => {}
        }
    }

    /// Takes a dynamic entry that a client made out, since a frame came from its address. Returns its bridge port.
    fn take_dynamic(&mut self, vlan: Oid, address: Mac) -> Option<Oid> {
        if self.entries.is_empty() {
            return None;
        }
        let entry = (ObjectType::from_name(FDB_ENTRY)?, self.fdb_key(vlan, &address.to_string())?);
        let attrs = self.entries.get(&entry)?;
        if !attrs.iter().any(|attr| attr.name() == TYPE && attr.value() == DYNAMIC) {
            return None;
        }
        let port = attrs.iter().find(|attr| attr.name() == BRIDGE_PORT)?.clone().oids_mut().first().copied();
        self.drop_entry(&entry);
        self.packets.dynamic_seen.remove(&entry.1);
        port
    }

    /// The learned address that an entry's key names.
    pub(crate) fn learned_at(&self, key: &RawText) -> Option<(u16, Mac)> {
        if self.packets.learned.is_empty() {
            return None;
        }
        let text = key.to_string();
        let mut learned =
            self.packets.learned.iter().filter(|(_, learned)| key.oids().contains(&learned.vlan));
        learned.find(|((_, mac), _)| text.contains(&mac.to_string())).map(|(at, _)| *at)
    }

    /// A client made or removed the entry of a learned address, so the switch forgets what it learned. The client
    /// hears of none of that, since an event would be about the client's entry.
    pub(crate) fn replace_learned(&mut self, learned: Option<(u16, Mac)>, key: &RawText) {
        if let Some(learned) = learned {
            self.packets.learned.remove(&learned);
        }
        self.packets.fdb.forget(key);
    }

    /// A client sets attributes of the entry of a learned address: from now on it is as one that a client made.
    pub(crate) fn keep_learned(&mut self, learned: Option<(u16, Mac)>, entry: &(ObjectType, RawText)) {
        let Some(learned) = learned.and_then(|at| self.packets.learned.remove(&at)) else { return };
        let port = Attr::raw(BRIDGE_PORT, &learned.bridge_port.to_string());
        self.add_learned(entry.clone(), [Attr::raw(TYPE, DYNAMIC), port].into_iter().collect());
        self.packets.dynamic_seen.insert(entry.1.clone(), learned.seen_ms);
    }

    fn fdb_key(&self, vlan: Oid, address: &str) -> Option<RawText> {
        let switch = self.switch_oid()?;
        Some(RawText::read(&format!(r#"{{"bvid":"{vlan}","mac":"{address}","switch_id":"{switch}"}}"#)))
    }

    fn report(&mut self, change: FdbChange, address: Mac, learned: Learned) {
        let Some(key) = self.fdb_key(learned.vlan, &address.to_string()) else { return };
        let attrs = [Attr::raw(BRIDGE_PORT, &learned.bridge_port.to_string())].into_iter().collect();
        self.push_fdb(FdbEvent { change, key, attrs });
    }

    /// Reports that entries of a bridge port and a VLAN were flushed, of `None` of all, in one event.
    pub(crate) fn report_flush(&mut self, bridge_port: Option<Oid>, vlan: Option<Oid>) {
        let Some(key) = self.fdb_key(vlan.unwrap_or_default(), "00:00:00:00:00:00") else { return };
        let port = Attr::raw(BRIDGE_PORT, &bridge_port.unwrap_or_default().to_string());
        let attrs = [Attr::raw(TYPE, DYNAMIC), port].into_iter().collect();
        self.push_fdb(FdbEvent { change: FdbChange::Flushed, key, attrs });
    }

    /// Queues a change, if the client of the switch has subscribed to such.
    fn push_fdb(&mut self, event: FdbEvent) {
        let Some(switch) = self.switch_oid() else { return };
        let wants = self.objects.find(switch, |attr| (attr.name() == NOTIFY).then(|| attr.value()));
        if wants.is_some_and(|pointer| pointer != "0x0") {
            self.packets.fdb.push(event);
        }
    }
}
