//! LAGs, VLANs, their members, and bridge ports (`addLag`, `addVlan`, `addLagMember`, `addBridgePort`
//! and `addVlanMember` of `orchagent/portsorch.cpp`).
//!
//! All are alike: an object is wanted or not, it lies on other objects, which it holds while it is in
//! the chip, and it leaves when nothing lies on it. So rows may come and go in any order. A port has
//! one use at a time: a router interface, a LAG, or VLANs; the next one waits for the end of the one
//! before.

use super::{Lower, Ports};
use crate::orch::bulker::{ObjectReply, Outcome, Requester};
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::to_sync::ToSync;
use crate::row::{
    Change, LagMemberRow, LagRow, Mac, MemberKey, Name, Row, TaggingMode, VLAN_MAX, VlanMemberRow, VlanRow,
};
use crate::sai::{Attr, Item, ObjectType, Oid, Verb};
use ribtide_prefix::Map;
use std::collections::{BTreeMap, BTreeSet};

/// The VLAN of a port that is in none (`DEFAULT_PORT_VLAN_ID`, `orchagent/port.h`).
const DEFAULT_VLAN: u16 = 1;
/// The tag protocol of a new LAG (`DEFAULT_TPID`, `orchagent/port.h`).
const DEFAULT_TPID: u16 = 0x8100;

/// Which object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::orch) enum PortObject {
    Lag(Name),
    LagMember(MemberKey),
    Vlan(Name),
    /// Of a port or LAG.
    BridgePort(Name),
    VlanMember(MemberKey),
    /// Of a port, LAG or VLAN.
    HostInterface(Name),
}

impl PortObject {
    fn object_type(&self) -> ObjectType {
        match self {
            PortObject::Lag(_) => ObjectType::Lag,
            PortObject::LagMember(_) => ObjectType::LagMember,
            PortObject::Vlan(_) => ObjectType::Vlan,
            PortObject::BridgePort(_) => ObjectType::BridgePort,
            PortObject::VlanMember(_) => ObjectType::VlanMember,
            PortObject::HostInterface(_) => ObjectType::Hostif,
        }
    }
}

impl std::fmt::Display for PortObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PortObject::Lag(name) | PortObject::Vlan(name) => f.write_str(name),
            PortObject::LagMember(MemberKey { group, member })
            | PortObject::VlanMember(MemberKey { group, member }) => write!(f, "{member} in {group}"),
            PortObject::BridgePort(name) => write!(f, "the bridge port of {name}"),
            PortObject::HostInterface(name) => write!(f, "the host interface of {name}"),
        }
    }
}

/// The state of one object.
#[derive(Default)]
struct State {
    /// The tables want it.
    wanted: bool,
    /// Its id in the chip.
    oid: Option<Oid>,
    /// Its id in a create request in flight.
    requested: Option<Oid>,
    /// A create or remove request is in flight.
    busy: bool,
    /// Objects and router interfaces that lie on it.
    users: u32,
    /// Router interfaces among them.
    rifs: u32,
    /// The latest values sent of the attributes that may change.
    sent: Vec<Attr>,
}

/// All of them, and their rows.
#[derive(Default)]
pub(super) struct PortObjects {
    lag_changes: ToSync<LagRow>,
    lag_member_changes: ToSync<LagMemberRow>,
    vlan_changes: ToSync<VlanRow>,
    vlan_member_changes: ToSync<VlanMemberRow>,
    lags: Map<Name, LagRow>,
    lag_members: BTreeMap<MemberKey, LagMemberRow>,
    vlans: Map<Name, VlanRow>,
    vlan_members: BTreeMap<MemberKey, VlanMemberRow>,
    states: Map<PortObject, State>,
    /// The LAGs and VLANs that rows, or objects in the chip, put a port or LAG in.
    groups_of: Map<Name, BTreeSet<PortObject>>,
    /// The latest VLAN sent of each port, where it is not the default.
    port_vlans: Map<Name, u16>,
}

impl PortObjects {
    fn state(&self, object: &PortObject) -> Option<&State> {
        self.states.get(object)
    }

    /// Its id, if new objects may lie on it.
    fn usable(&self, object: &PortObject) -> Option<Oid> {
        self.state(object).filter(|state| state.wanted && !state.busy)?.oid
    }

    /// The object behind the name of an interface.
    fn of_name(name: &Name) -> PortObject {
        if name.starts_with("Vlan") { PortObject::Vlan(name.clone()) } else { PortObject::Lag(name.clone()) }
    }

    pub(super) fn lower(&self, name: &Name) -> Option<Lower> {
        let object = PortObjects::of_name(name);
        let oid = self.usable(&object)?;
        Some(if matches!(object, PortObject::Vlan(_)) { Lower::Vlan(oid) } else { Lower::Port(oid) })
    }

    pub(super) fn expected_oid(&self, name: &Name) -> Option<Oid> {
        let state = self.state(&PortObjects::of_name(name))?;
        state.oid.or(state.requested)
    }

    pub(super) fn mtu(&self, name: &Name) -> Option<u32> {
        match self.vlans.get(name) {
            Some(row) => row.mtu,
            None => self.lags.get(name)?.mtu,
        }
    }

    pub(super) fn hold(&mut self, name: &Name) {
        let state = self.states.entry(PortObjects::of_name(name)).or_default();
        state.users += 1;
        state.rifs += 1;
    }

    pub(super) fn release(&mut self, name: &Name) {
        if let Some(state) = self.states.get_mut(&PortObjects::of_name(name)) {
            state.users -= 1;
            state.rifs -= 1;
        }
    }

    /// The LAGs that a port is in, by their rows.
    pub(super) fn lags_of(&self, port: &Name) -> Vec<Name> {
        let groups = self.groups_of.get(port).into_iter().flatten();
        let lag = |group: &PortObject| match group {
            PortObject::LagMember(key) if self.lag_members.contains_key(key) => Some(key.group.clone()),
            _ => None,
        };
        groups.filter_map(lag).collect()
    }

    /// The members of a LAG or VLAN: those with a row.
    fn members<'a, R>(
        rows: &'a BTreeMap<MemberKey, R>,
        group: &'a Name,
    ) -> impl Iterator<Item = (&'a MemberKey, &'a R)> {
        let first = MemberKey { group: group.clone(), member: "".into() };
        rows.range(first..).take_while(move |(key, _)| key.group == *group)
    }

    /// Whether the chip has, or was asked for, another use of a port or LAG than `object`.
    fn has_other_use(&self, name: &Name, object: &PortObject) -> bool {
        let in_chip = |of: &PortObject| {
            of != object && self.state(of).is_some_and(|state| state.oid.is_some() || state.busy)
        };
        let lags = self.groups_of.get(name).into_iter().flatten();
        lags.filter(|of| matches!(of, PortObject::LagMember(_))).any(in_chip)
            || in_chip(&PortObject::BridgePort(name.clone()))
    }
}

/// The number in the name of a VLAN.
fn vlan_id(name: &str) -> Option<u16> {
    name.strip_prefix("Vlan")?.parse().ok().filter(|id| (1..=VLAN_MAX).contains(id))
}

fn sai_tagging(mode: TaggingMode) -> Attr {
    let value = match mode {
        TaggingMode::Untagged => "SAI_VLAN_TAGGING_MODE_UNTAGGED",
        TaggingMode::Tagged => "SAI_VLAN_TAGGING_MODE_TAGGED",
        TaggingMode::PriorityTagged => "SAI_VLAN_TAGGING_MODE_PRIORITY_TAGGED",
    };
    Attr::raw("SAI_VLAN_MEMBER_ATTR_VLAN_TAGGING_MODE", value)
}

impl Ports {
    /// Takes in a change of LAG_TABLE.
    pub(in crate::orch) fn add_lag(&mut self, change: Change<LagRow>) {
        self.objects.lag_changes.add(change);
    }

    /// Takes in a change of LAG_MEMBER_TABLE.
    pub(in crate::orch) fn add_lag_member(&mut self, change: Change<LagMemberRow>) {
        self.objects.lag_member_changes.add(change);
    }

    /// Takes in a change of VLAN_TABLE.
    pub(in crate::orch) fn add_vlan(&mut self, change: Change<VlanRow>) {
        self.objects.vlan_changes.add(change);
    }

    /// Takes in a change of VLAN_MEMBER_TABLE.
    pub(in crate::orch) fn add_vlan_member(&mut self, change: Change<VlanMemberRow>) {
        self.objects.vlan_member_changes.add(change);
    }

    /// Changes of these four tables that were not handled yet.
    pub(in crate::orch) fn pending_objects_len(&self) -> usize {
        let PortObjects { lag_changes, lag_member_changes, vlan_changes, vlan_member_changes, .. } =
            &self.objects;
        lag_changes.len() + lag_member_changes.len() + vlan_changes.len() + vlan_member_changes.len()
    }

    /// Who requests the object behind the name of an interface.
    pub(in crate::orch) fn requester_of(&self, name: &Name) -> Requester {
        match self.ports.contains_key(name) {
            true => Requester::Port(name.clone()),
            false => Requester::PortObject(PortObjects::of_name(name)),
        }
    }

    /// The MAC address of router interfaces on a VLAN.
    pub(in crate::orch) fn mac(&self, name: &Name) -> Option<Mac> {
        self.objects.vlans.get(name)?.mac.filter(|mac| *mac != Mac::default())
    }

    /// Handles the changes of LAG_TABLE, LAG_MEMBER_TABLE, VLAN_TABLE and VLAN_MEMBER_TABLE.
    pub(in crate::orch) fn sync_objects(&mut self, outbox: &mut Outbox) {
        // All rows are known before the first step: a warm start recognises a LAG by its members.
        let mut changed: Vec<PortObject> = Vec::new();
        for (name, pending) in self.objects.lag_changes.take() {
            let before = self.mtu(&name);
            if pending.replaces {
                self.objects.lags.remove(&name);
            }
            if let Some(row) = pending.set {
                self.objects.lags.entry(name.clone()).or_default().merge(row);
            }
            self.notify_lag(&name, outbox);
            if self.mtu(&name) != before {
                outbox.notify(Notification::LowerChanged(name.clone()));
            }
            changed.extend([PortObject::Lag(name.clone()), PortObject::HostInterface(name)]);
        }
        for (key, pending) in self.objects.lag_member_changes.take() {
            match pending.set {
                Some(row) => drop(self.objects.lag_members.insert(key.clone(), row)),
                None => drop(self.objects.lag_members.remove(&key)),
            }
            self.join(&key.member, PortObject::LagMember(key.clone()));
            self.notify_lag(&key.group, outbox);
            changed.push(PortObject::LagMember(key));
        }
        for (name, pending) in self.objects.vlan_changes.take() {
            if pending.set.is_some() && vlan_id(&name).is_none() {
                let why = format!("its name is not Vlan and a number from 1 to {VLAN_MAX}");
                outbox.out.refused(format_args!("VLAN {name}"), why);
                continue;
            }
            let before = (self.mtu(&name), self.mac(&name));
            if pending.replaces {
                self.objects.vlans.remove(&name);
            }
            if let Some(row) = pending.set {
                self.objects.vlans.entry(name.clone()).or_default().merge(row);
            }
            if (self.mtu(&name), self.mac(&name)) != before {
                outbox.notify(Notification::LowerChanged(name.clone()));
            }
            changed.extend([PortObject::Vlan(name.clone()), PortObject::HostInterface(name)]);
        }
        for (key, pending) in self.objects.vlan_member_changes.take() {
            match pending.set {
                Some(row) => drop(self.objects.vlan_members.insert(key.clone(), row)),
                None => drop(self.objects.vlan_members.remove(&key)),
            }
            self.join(&key.member, PortObject::VlanMember(key.clone()));
            changed.push(PortObject::BridgePort(key.member.clone()));
            changed.push(PortObject::VlanMember(key));
        }
        for object in changed {
            let wanted = self.is_wanted(&object);
            outbox.back_off.forget(&Requester::PortObject(object.clone()));
            let state = self.objects.states.entry(object.clone()).or_default();
            let usable = state.wanted && !state.busy && state.oid.is_some();
            state.wanted = wanted;
            // A row may come back while the chip still has its object.
            if wanted && !usable {
                self.notify_usable(&object, outbox);
            }
            self.step_object(&object, outbox);
            self.step_around(&object, outbox);
        }
    }

    /// Notes that rows put a port or LAG in a LAG or VLAN.
    fn join(&mut self, member: &Name, object: PortObject) {
        self.objects.groups_of.entry(member.clone()).or_default().insert(object);
    }

    fn is_wanted(&self, object: &PortObject) -> bool {
        let PortObjects { lags, lag_members, vlans, vlan_members, groups_of, .. } = &self.objects;
        match object {
            PortObject::Lag(name) => lags.contains_key(name),
            PortObject::LagMember(key) => lag_members.contains_key(key),
            PortObject::Vlan(name) => vlans.contains_key(name),
            PortObject::VlanMember(key) => vlan_members.contains_key(key),
            PortObject::HostInterface(name) => {
                let exists = lags.contains_key(name) || vlans.contains_key(name);
                self.host_interfaces && (exists || self.ports.contains_key(name))
            }
            PortObject::BridgePort(name) => {
                groups_of.get(name).into_iter().flatten().any(
                    |group| matches!(group, PortObject::VlanMember(key) if vlan_members.contains_key(key)),
                )
            }
        }
    }

    /// Announces whether a LAG is up: the team device says so, and of its members, if it has any,
    /// one is selected and its link is up. So a lost link counts before the team device has noticed.
    pub(super) fn notify_lag(&self, name: &Name, outbox: &mut Outbox) {
        let says_up = self.objects.lags.get(name).and_then(|row| row.oper_up).unwrap_or(true);
        let mut members = PortObjects::members(&self.objects.lag_members, name).peekable();
        let has_link = members.peek().is_none()
            || members
                .any(|(key, row)| row.enabled && self.ports.get(&key.member).is_none_or(super::Port::is_up));
        outbox.notify(Notification::Link(name.clone(), says_up && has_link));
    }

    fn notify_usable(&self, object: &PortObject, outbox: &mut Outbox) {
        if let PortObject::Lag(name) | PortObject::Vlan(name) = object
            && self.objects.usable(object).is_some()
        {
            outbox.notify(Notification::LowerReady(name.clone()));
        }
    }

    /// The id of a port or LAG that a bridge port or a member of a LAG may lie on.
    fn port_oid(&self, name: &Name) -> Option<Oid> {
        match self.lower(name)? {
            Lower::Port(oid) => Some(oid),
            Lower::Vlan(_) => None,
        }
    }

    /// Router interfaces on a port or LAG.
    fn rifs_on(&self, name: &Name) -> u32 {
        match self.ports.get(name) {
            Some(port) => port.rifs,
            None => self.objects.state(&PortObjects::of_name(name)).map_or(0, |state| state.rifs),
        }
    }

    /// The attributes with which an object is created, once all that it lies on is usable, and the
    /// port has no other use.
    fn attrs_of(&self, object: &PortObject) -> Option<Vec<Attr>> {
        let objects = &self.objects;
        Some(match object {
            PortObject::Lag(_) => Vec::new(),
            PortObject::LagMember(key) => {
                let lag = objects.usable(&PortObject::Lag(key.group.clone()))?;
                let port = self.ports.get(&key.member)?;
                if port.rifs > 0 || objects.has_other_use(&key.member, object) {
                    return None;
                }
                let mut attrs = vec![Attr::LagMemberLag(lag), Attr::LagMemberPort(port.oid?)];
                if !objects.lag_members.get(key)?.enabled {
                    attrs.push(Attr::LagMemberEgressDisable(true));
                    attrs.push(Attr::LagMemberIngressDisable(true));
                }
                attrs
            }
            PortObject::Vlan(name) => vec![Attr::VlanId(vlan_id(name)?)],
            PortObject::BridgePort(name) => {
                let port = self.port_oid(name)?;
                if self.rifs_on(name) > 0 || objects.has_other_use(name, object) {
                    return None;
                }
                vec![
                    Attr::raw("SAI_BRIDGE_PORT_ATTR_TYPE", "SAI_BRIDGE_PORT_TYPE_PORT"),
                    Attr::BridgePortPort(port),
                    Attr::BridgePortAdminState(true),
                    Attr::raw(
                        "SAI_BRIDGE_PORT_ATTR_FDB_LEARNING_MODE",
                        "SAI_BRIDGE_PORT_FDB_LEARNING_MODE_HW",
                    ),
                ]
            }
            // What SONiC's `addHostIntfs` creates for a port.
            PortObject::HostInterface(name) => {
                let (Lower::Port(oid) | Lower::Vlan(oid)) = self.lower(name)?;
                vec![
                    Attr::raw("SAI_HOSTIF_ATTR_TYPE", "SAI_HOSTIF_TYPE_NETDEV"),
                    Attr::raw("SAI_HOSTIF_ATTR_OBJ_ID", &oid.to_string()),
                    Attr::raw("SAI_HOSTIF_ATTR_NAME", name),
                ]
            }
            PortObject::VlanMember(key) => vec![
                Attr::VlanMemberVlan(objects.usable(&PortObject::Vlan(key.group.clone()))?),
                Attr::VlanMemberBridgePort(objects.usable(&PortObject::BridgePort(key.member.clone()))?),
                sai_tagging(objects.vlan_members.get(key)?.tagging),
            ],
        })
    }

    /// The values that the tables want of the attributes that may change, in the order in which
    /// SONiC's orchagent sets them.
    fn changeable(&self, object: &PortObject) -> Vec<Attr> {
        let objects = &self.objects;
        match object {
            PortObject::LagMember(key) => match objects.lag_members.get(key) {
                // A member is enabled to receive before it is enabled to send; see `doLagMemberTask`.
                Some(LagMemberRow { enabled: true }) => {
                    vec![Attr::LagMemberIngressDisable(false), Attr::LagMemberEgressDisable(false)]
                }
                _ => vec![Attr::LagMemberEgressDisable(true), Attr::LagMemberIngressDisable(true)],
            },
            PortObject::Lag(name) => {
                let tpid = objects.lags.get(name).and_then(|row| row.tpid).unwrap_or(DEFAULT_TPID);
                vec![Attr::LagTpid(tpid), Attr::LagVlan(self.vlan_of(name))]
            }
            PortObject::VlanMember(key) => {
                objects.vlan_members.get(key).map(|row| sai_tagging(row.tagging)).into_iter().collect()
            }
            PortObject::BridgePort(_) | PortObject::Vlan(_) | PortObject::HostInterface(_) => Vec::new(),
        }
    }

    /// What the chip has of these attributes in an object that was created with `attrs`.
    fn initial(object: &PortObject, attrs: &[Attr]) -> Vec<Attr> {
        match object {
            PortObject::LagMember(_) => {
                let disabled = attrs.contains(&Attr::LagMemberEgressDisable(true));
                vec![Attr::LagMemberEgressDisable(disabled), Attr::LagMemberIngressDisable(disabled)]
            }
            PortObject::Lag(_) => vec![Attr::LagTpid(DEFAULT_TPID), Attr::LagVlan(DEFAULT_VLAN)],
            PortObject::VlanMember(_) => attrs.last().cloned().into_iter().collect(),
            PortObject::BridgePort(_) => vec![Attr::BridgePortAdminState(true)],
            PortObject::Vlan(_) | PortObject::HostInterface(_) => Vec::new(),
        }
    }

    /// The VLAN of packets that come without a tag: the one that the port is an untagged member of.
    fn vlan_of(&self, name: &Name) -> u16 {
        let groups = self.objects.groups_of.get(name).into_iter().flatten();
        let untagged = |group: &PortObject| match group {
            PortObject::VlanMember(key)
                if self.objects.state(group).is_some_and(|state| state.wanted && state.oid.is_some())
                    && self.objects.vlan_members.get(key)?.tagging == TaggingMode::Untagged =>
            {
                vlan_id(&key.group)
            }
            _ => None,
        };
        groups.filter_map(untagged).next().unwrap_or(DEFAULT_VLAN)
    }

    /// Sets the VLAN of a port's untagged packets, if it changed.
    pub(super) fn set_vlan(&mut self, name: &Name, oid: Oid, outbox: &mut Outbox) {
        let vlan = self.vlan_of(name);
        let sent = self.objects.port_vlans.get(name).copied().unwrap_or(DEFAULT_VLAN);
        if vlan == sent {
            return;
        }
        match vlan {
            DEFAULT_VLAN => drop(self.objects.port_vlans.remove(name)),
            _ => drop(self.objects.port_vlans.insert(name.clone(), vlan)),
        }
        let item = Item::new(oid, [Attr::PortVlan(vlan)]);
        outbox.bulker.enqueue(Verb::Set, ObjectType::Port, Requester::Port(name.clone()), item);
    }

    /// What an object lies on, other than ports.
    fn below(object: &PortObject) -> [Option<PortObject>; 2] {
        match object {
            PortObject::Lag(_) | PortObject::Vlan(_) => [None, None],
            PortObject::LagMember(key) => [Some(PortObject::Lag(key.group.clone())), None],
            PortObject::BridgePort(name) => [Some(PortObject::Lag(name.clone())), None],
            PortObject::HostInterface(name) => [Some(PortObjects::of_name(name)), None],
            PortObject::VlanMember(key) => {
                [Some(PortObject::Vlan(key.group.clone())), Some(PortObject::BridgePort(key.member.clone()))]
            }
        }
    }

    /// Counts an object, or one less, on what it lies on.
    fn count_below(&mut self, object: &PortObject, change: i32) {
        for below in Ports::below(object).into_iter().flatten() {
            // A bridge port may be that of a port, which is no object of these.
            if let Some(state) = self.objects.states.get_mut(&below) {
                state.users = state.users.saturating_add_signed(change);
            }
        }
    }

    /// Requests the next change that brings an object closer to its row.
    pub(in crate::orch) fn step_object(&mut self, object: &PortObject, outbox: &mut Outbox) {
        let Some(state) = self.objects.states.get(object) else { return };
        let requester = Requester::PortObject(object.clone());
        if state.busy || outbox.back_off.holds(&requester) {
            return;
        }
        let kind = object.object_type();
        match (state.oid, state.wanted) {
            (None, true) => {
                let Some(attrs) = self.attrs_of(object) else { return };
                let oid = match object {
                    PortObject::Lag(name) => outbox.lag_id(&self.ports_of_lag(name)),
                    _ => outbox.object_id(kind, &attrs),
                };
                self.count_below(object, 1);
                if let Some(state) = self.objects.states.get_mut(object) {
                    (state.busy, state.requested) = (true, Some(oid));
                    state.sent = Ports::initial(object, &attrs);
                }
                outbox.bulker.enqueue(Verb::Create, kind, requester, Item::new(oid, attrs));
            }
            (Some(oid), false) if state.users == 0 => {
                if let PortObject::Lag(name) | PortObject::Vlan(name) = object {
                    outbox.notify(Notification::LowerGone(name.clone()));
                }
                let Some(state) = self.objects.states.get_mut(object) else { return };
                // A bridge port is taken down before it is removed, as by SONiC's orchagent.
                if state.sent.contains(&Attr::BridgePortAdminState(true)) {
                    let down = Attr::BridgePortAdminState(false);
                    state.sent = vec![down.clone()];
                    outbox.bulker.enqueue(Verb::Set, kind, requester.clone(), Item::new(oid, [down]));
                }
                state.busy = true;
                outbox.bulker.enqueue(Verb::Remove, kind, requester, Item::bare(oid));
            }
            (Some(oid), true) => {
                let mut wanted = self.changeable(object);
                if matches!(object, PortObject::BridgePort(_)) {
                    wanted.push(Attr::BridgePortAdminState(true));
                }
                let Some(state) = self.objects.states.get_mut(object) else { return };
                for attr in wanted {
                    if state.sent.contains(&attr) {
                        continue;
                    }
                    state.sent.retain(|sent| !sent.same_kind(&attr));
                    state.sent.push(attr.clone());
                    outbox.bulker.enqueue(Verb::Set, kind, requester.clone(), Item::new(oid, [attr]));
                }
            }
            (Some(_), false) => {}
            (None, false) => self.forget(object),
        }
    }

    /// The ports of a LAG's rows.
    fn ports_of_lag(&self, name: &Name) -> Vec<Oid> {
        let members = PortObjects::members(&self.objects.lag_members, name);
        members.filter_map(|(key, _)| self.ports.get(&key.member)?.oid).collect()
    }

    /// Forgets an object that is neither in a table nor in the chip.
    fn forget(&mut self, object: &PortObject) {
        if self.objects.states.get(object).is_none_or(|state| state.users > 0) {
            return;
        }
        self.objects.states.remove(object);
        if let PortObject::LagMember(key) | PortObject::VlanMember(key) = object
            && let Some(groups) = self.objects.groups_of.get_mut(&key.member)
        {
            groups.remove(object);
            if groups.is_empty() {
                self.objects.groups_of.remove(&key.member);
            }
        }
    }

    /// Takes in the reply to a request for one of these objects.
    pub(in crate::orch) fn object_reply(
        &mut self,
        object: &PortObject,
        reply: ObjectReply,
        outbox: &mut Outbox,
    ) {
        let requester = Requester::PortObject(object.clone());
        let (verb, outcome) = (reply.verb, reply.outcome());
        let Some(state) = self.objects.states.get_mut(object) else { return };
        if verb == Verb::Set {
            if outcome != Outcome::Done
                && let Some(attr) = reply.item.attrs.first()
            {
                // A later value may be on its way.
                state.sent.retain(|sent| sent != attr);
                let what = format_args!("{} of {object}", attr.name());
                outbox.refused(requester, &reply, what);
            }
            return;
        }
        state.busy = false;
        state.requested = None;
        let is_there = match (verb, outcome) {
            (Verb::Create, Outcome::Done) => {
                state.oid = reply.oid();
                true
            }
            (Verb::Create, _) => {
                outbox.refused(requester.clone(), &reply, object);
                false
            }
            (_, Outcome::Done) => {
                state.oid = None;
                outbox.room_freed();
                false
            }
            _ => {
                outbox.refused(requester.clone(), &reply, format_args!("the removal of {object}"));
                self.notify_usable(object, outbox);
                return;
            }
        };
        if outcome == Outcome::Done {
            outbox.back_off.forget(&requester);
        }
        if !is_there {
            self.count_below(object, -1);
        }
        self.notify_usable(object, outbox);
        self.step_object(object, outbox);
        self.step_around(object, outbox);
    }

    /// Steps what lies on an object that came or went, and what it lay on.
    fn step_around(&mut self, object: &PortObject, outbox: &mut Outbox) {
        match object {
            PortObject::Lag(name) => {
                self.step_members(name, outbox);
                self.step_object(&PortObject::BridgePort(name.clone()), outbox);
                self.step_object(&PortObject::HostInterface(name.clone()), outbox);
            }
            PortObject::Vlan(name) => {
                self.step_members(name, outbox);
                self.step_object(&PortObject::HostInterface(name.clone()), outbox);
            }
            PortObject::HostInterface(name) => self.step_object(&PortObjects::of_name(name), outbox),
            PortObject::LagMember(key) => {
                self.step_object(&PortObject::Lag(key.group.clone()), outbox);
                self.step_on(&key.member, outbox);
            }
            PortObject::BridgePort(name) => {
                self.step_object(&PortObject::Lag(name.clone()), outbox);
                self.step_on(name, outbox);
            }
            PortObject::VlanMember(key) => {
                match self.ports.get(&key.member).and_then(|port| port.oid) {
                    Some(oid) => self.set_vlan(&key.member, oid, outbox),
                    None => self.step_object(&PortObject::Lag(key.member.clone()), outbox),
                }
                self.step_object(&PortObject::BridgePort(key.member.clone()), outbox);
                self.step_object(&PortObject::Vlan(key.group.clone()), outbox);
            }
        }
    }

    /// Requests the host interface of a port that is in the chip, where each port has one.
    pub(super) fn want_host_interface(&mut self, name: &Name, outbox: &mut Outbox) {
        let object = PortObject::HostInterface(name.clone());
        if self.is_wanted(&object) {
            self.objects.states.entry(object.clone()).or_default().wanted = true;
            self.step_object(&object, outbox);
        }
    }

    /// Steps the members of a LAG or VLAN that rows have.
    fn step_members(&mut self, group: &Name, outbox: &mut Outbox) {
        let in_lag: Vec<MemberKey> =
            PortObjects::members(&self.objects.lag_members, group).map(|(key, _)| key.clone()).collect();
        let in_vlan: Vec<MemberKey> =
            PortObjects::members(&self.objects.vlan_members, group).map(|(key, _)| key.clone()).collect();
        in_lag.into_iter().for_each(|key| self.step_object(&PortObject::LagMember(key), outbox));
        in_vlan.into_iter().for_each(|key| self.step_object(&PortObject::VlanMember(key), outbox));
    }

    /// Steps what may lie on a port or LAG: it came, or one of its uses ended.
    pub(super) fn step_on(&mut self, name: &Name, outbox: &mut Outbox) {
        let groups: Vec<PortObject> =
            self.objects.groups_of.get(name).into_iter().flatten().cloned().collect();
        if !self.ports.contains_key(name) {
            self.step_object(&PortObjects::of_name(name), outbox);
        }
        self.step_object(&PortObject::BridgePort(name.clone()), outbox);
        groups.iter().for_each(|object| self.step_object(object, outbox));
    }
}
