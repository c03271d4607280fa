//! The SAI schema of attributes: a request that breaks it is refused before the chip gets it.
//!
//! SONiC's orchagent checks every request with all attributes of all objects in its memory
//! (saimeta). ribtide's orchagent makes no such request, and another client of syncd may have no
//! check. So syncd checks all requests, with compiled-in rules and without state: existence and
//! references are known to syncd and the chip.

use super::{Attr, Item, NextHopType, ObjectId, ObjectType, Oid, RawAttr, RifType, Status, Verb, model};

/// Which requests are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Validation {
    /// All.
    #[default]
    All,
    /// Single requests. Bulks, which carry routes, are not checked.
    Single,
    /// None.
    Off,
}

impl Validation {
    /// Whether a request is checked.
    pub fn covers(self, bulk: bool) -> bool {
        match self {
            Validation::All => true,
            Validation::Single => !bulk,
            Validation::Off => false,
        }
    }
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The status of the reply.
    pub status: Status,
    /// The rule, as the end of a sentence about the object.
    pub why: String,
}

type Rule = Result<(), Violation>;

fn broken(status: Status, why: impl Into<String>) -> Rule {
    Err(Violation { status, why: why.into() })
}

/// Checks one object of a request.
///
/// # Errors
/// The first broken rule.
pub fn check(verb: Verb, object: ObjectType, item: &Item) -> Rule {
    key(object, &item.id)?;
    check_attrs(verb, object, &item.attrs)
}

/// Checks the attributes of one object of a request.
///
/// # Errors
/// The first broken rule.
pub fn check_attrs(verb: Verb, object: ObjectType, attrs: &[Attr]) -> Rule {
    match (verb, attrs.len()) {
        (Verb::Remove, 0) | (Verb::Set, 1) | (Verb::Create, _) => {}
        (Verb::Remove, _) => return broken(Status::InvalidParameter, "is removed with attributes"),
        (Verb::Set, n) => return broken(Status::InvalidParameter, format!("has {n} attributes set at once")),
    }
    for (n, attr) in attrs.iter().enumerate() {
        let wrong = |what: &str| broken(Status::InvalidParameter, format!("{what} {}", attr.name()));
        if !belongs(attr, object) {
            return wrong("has no attribute");
        }
        if twice(attrs, n) {
            return wrong("is given twice");
        }
        if read_only(attr) {
            return wrong("is given, which is read only,");
        }
        if verb == Verb::Set && attr.create_only() {
            return wrong("exists, so no request can change its");
        }
        refers(attr)?;
    }
    if verb == Verb::Create { complete(object, attrs) } else { Ok(()) }
}

/// The key has the form of its type, and refers to objects of the right types.
fn key(object: ObjectType, id: &ObjectId) -> Rule {
    let fits = match (object, id) {
        (ObjectType::RouteEntry, ObjectId::Route(entry)) => {
            is(entry.switch, &[ObjectType::Switch]) && is(entry.vr, &[ObjectType::VirtualRouter])
        }
        (ObjectType::NeighborEntry, ObjectId::Neighbor(entry)) => {
            is(entry.switch, &[ObjectType::Switch]) && is(entry.rif, &[ObjectType::RouterInterface])
        }
        (ObjectType::InsegEntry, ObjectId::Inseg(entry)) => is(entry.switch, &[ObjectType::Switch]),
        (ObjectType::RouteEntry | ObjectType::NeighborEntry | ObjectType::InsegEntry, _) => false,
        (_, ObjectId::Oid(oid)) => is(*oid, &[object]),
        // An entry type without a rule here.
        _ => object.is_entry(),
    };
    if fits { Ok(()) } else { broken(Status::InvalidObjectType, "has a key of objects of other types") }
}

/// Whether a VID has one of these types.
fn is(oid: Oid, types: &[ObjectType]) -> bool {
    types.iter().any(|of| oid.is_of(*of))
}

/// The name of an attribute begins with that of its object: `SAI_NEXT_HOP_ATTR_IP`,
/// `SAI_OBJECT_TYPE_NEXT_HOP`.
fn belongs(attr: &Attr, object: ObjectType) -> bool {
    if let Attr::Other(raw) = attr {
        return model::is_attribute_of(raw.name(), object.number());
    }
    let owner = object.name().strip_prefix("SAI_OBJECT_TYPE_").unwrap_or_default();
    let rest = attr.name().strip_prefix("SAI_").and_then(|name| name.strip_prefix(owner));
    rest.is_some_and(|rest| rest.starts_with("_ATTR_"))
}

/// Whether no two objects of a type have the same value of the attribute and of its other such ones.
pub fn is_key(attr: &Attr) -> bool {
    model::is_key(attr.name())
}

/// Whether only the chip sets the attribute.
pub fn is_read_only(attr: &Attr) -> bool {
    read_only(attr)
}

/// Attributes that only the chip sets.
fn read_only(attr: &Attr) -> bool {
    if let Attr::Other(raw) = attr {
        return model::is_read_only(raw.name());
    }
    matches!(
        attr,
        Attr::PortOperStatus(_)
            | Attr::PortOperSpeed(_)
            | Attr::SwitchDefaultVirtualRouter(_)
            | Attr::SwitchCpuPort(_)
            | Attr::SwitchPortNumber(_)
            | Attr::SwitchPortList(_)
            | Attr::SwitchEcmpGroups(_)
            | Attr::SwitchAvailableIpv4Route(_)
            | Attr::SwitchAvailableIpv6Route(_)
            | Attr::SwitchAvailableIpv4Nexthop(_)
            | Attr::SwitchAvailableIpv6Nexthop(_)
            | Attr::SwitchAvailableIpv4Neighbor(_)
            | Attr::SwitchAvailableIpv6Neighbor(_)
            | Attr::SwitchAvailableGroup(_)
            | Attr::SwitchAvailableGroupMember(_)
    )
}

/// An attribute refers only to objects of allowed types.
fn refers(attr: &Attr) -> Rule {
    use ObjectType as T;
    let (oid, types, null): (Oid, &[ObjectType], bool) = match attr {
        Attr::RifVirtualRouter(oid) => (*oid, &[T::VirtualRouter], false),
        Attr::RifPort(oid) | Attr::BridgePortPort(oid) => (*oid, &[T::Port, T::Lag], false),
        Attr::RifVlan(oid) | Attr::VlanMemberVlan(oid) => (*oid, &[T::Vlan], false),
        Attr::LagMemberLag(oid) => (*oid, &[T::Lag], false),
        Attr::LagMemberPort(oid) => (*oid, &[T::Port], false),
        Attr::VlanMemberBridgePort(oid) => (*oid, &[T::BridgePort], false),
        Attr::NextHopRif(oid) => (*oid, &[T::RouterInterface], false),
        Attr::MemberGroup(oid) => (*oid, &[T::NextHopGroup], false),
        Attr::MemberNextHop(oid) => (*oid, &[T::NextHop], false),
        Attr::RouteNextHop(oid) | Attr::InsegNextHop(oid) => {
            (*oid, &[T::NextHop, T::NextHopGroup, T::RouterInterface, T::Port], true)
        }
        Attr::Other(raw) => return refers_raw(raw),
        _ => return Ok(()),
    };
    if oid.is_null() && !null {
        return broken(Status::InvalidParameter, format!("names no object as its {}", attr.name()));
    }
    if !oid.is_null() && !is(oid, types) && !names_other(attr, oid, types) {
        return broken(
            Status::InvalidObjectType,
            format!("names {oid}, of another type, as its {}", attr.name()),
        );
    }
    Ok(())
}

/// Whether an attribute may name an object of a type that is not typed, such as a LAG or a VLAN.
fn names_other(attr: &Attr, oid: Oid, types: &[ObjectType]) -> bool {
    let object = oid.object_type().filter(|object| !types.contains(object));
    object.is_some_and(|object| model::may_name(attr.name(), object.number()))
}

/// The same for an attribute whose value is text.
fn refers_raw(raw: &RawAttr) -> Rule {
    for oid in raw.value().oids() {
        let allowed = match oid.object_type() {
            _ if oid.is_null() => true,
            Some(object) => model::may_name(raw.name(), object.number()),
            None => false,
        };
        if !allowed {
            return broken(
                Status::InvalidObjectType,
                format!("names {oid}, of another type, as its {}", raw.name()),
            );
        }
    }
    let is_null = raw.value().oids() == [Oid::NULL] && raw.value().is_single();
    if is_null && !model::allows_null(raw.name()) {
        return broken(Status::InvalidParameter, format!("names no object as its {}", raw.name()));
    }
    Ok(())
}

/// Whether attribute `n` repeats an earlier one.
pub fn twice(attrs: &[Attr], n: usize) -> bool {
    attrs[..n].iter().any(|other| other.same_kind(&attrs[n]))
}

/// Checks that a create has the mandatory attributes, conditional ones too.
///
/// # Errors
/// [`Status::MandatoryAttributeMissing`] with the missing attribute.
pub fn complete(object: ObjectType, attrs: &[Attr]) -> Result<(), Violation> {
    if !object.is_typed() || attrs.iter().any(|attr| matches!(attr, Attr::Other(_))) {
        return match model::missing(object.number(), attrs) {
            None => Ok(()),
            Some(name) => broken(Status::MandatoryAttributeMissing, format!("is to be made without {name}")),
        };
    }
    let has = |wanted: fn(&Attr) -> bool| attrs.iter().any(wanted);
    let needs: &[(bool, &str)] = match object {
        ObjectType::Switch => {
            &[(has(|a| matches!(a, Attr::SwitchInit(true))), "SAI_SWITCH_ATTR_INIT_SWITCH")]
        }
        ObjectType::Port => &[
            (has(|a| matches!(a, Attr::PortLanes(_))), "SAI_PORT_ATTR_HW_LANE_LIST"),
            (has(|a| matches!(a, Attr::PortSpeed(_))), "SAI_PORT_ATTR_SPEED"),
        ],
        ObjectType::RouterInterface => &[
            (has(|a| matches!(a, Attr::RifVirtualRouter(_))), "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID"),
            (has(|a| matches!(a, Attr::RifKind(_))), "SAI_ROUTER_INTERFACE_ATTR_TYPE"),
            (
                has(|a| matches!(a, Attr::RifPort(_)))
                    || !has(|a| matches!(a, Attr::RifKind(RifType::Port | RifType::SubPort))),
                "SAI_ROUTER_INTERFACE_ATTR_PORT_ID",
            ),
            (
                has(|a| matches!(a, Attr::RifVlan(_))) || !has(|a| matches!(a, Attr::RifKind(RifType::Vlan))),
                "SAI_ROUTER_INTERFACE_ATTR_VLAN_ID",
            ),
            (
                has(|a| matches!(a, Attr::RifOuterVlan(_)))
                    || !has(|a| matches!(a, Attr::RifKind(RifType::SubPort))),
                "SAI_ROUTER_INTERFACE_ATTR_OUTER_VLAN_ID",
            ),
        ],
        ObjectType::LagMember => &[
            (has(|a| matches!(a, Attr::LagMemberLag(_))), "SAI_LAG_MEMBER_ATTR_LAG_ID"),
            (has(|a| matches!(a, Attr::LagMemberPort(_))), "SAI_LAG_MEMBER_ATTR_PORT_ID"),
        ],
        ObjectType::Vlan => &[(has(|a| matches!(a, Attr::VlanId(_))), "SAI_VLAN_ATTR_VLAN_ID")],
        ObjectType::VlanMember => &[
            (has(|a| matches!(a, Attr::VlanMemberVlan(_))), "SAI_VLAN_MEMBER_ATTR_VLAN_ID"),
            (has(|a| matches!(a, Attr::VlanMemberBridgePort(_))), "SAI_VLAN_MEMBER_ATTR_BRIDGE_PORT_ID"),
        ],
        ObjectType::NeighborEntry => {
            &[(has(|a| matches!(a, Attr::NeighborMac(_))), "SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS")]
        }
        ObjectType::NextHop => &[
            (has(|a| matches!(a, Attr::NextHopKind(_))), "SAI_NEXT_HOP_ATTR_TYPE"),
            (has(|a| matches!(a, Attr::NextHopIp(_))), "SAI_NEXT_HOP_ATTR_IP"),
            (has(|a| matches!(a, Attr::NextHopRif(_))), "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID"),
            (
                has(|a| matches!(a, Attr::NextHopLabels(_)))
                    || !has(|a| matches!(a, Attr::NextHopKind(NextHopType::Mpls))),
                "SAI_NEXT_HOP_ATTR_LABELSTACK",
            ),
        ],
        ObjectType::NextHopGroup => {
            &[(has(|a| matches!(a, Attr::GroupKind(_))), "SAI_NEXT_HOP_GROUP_ATTR_TYPE")]
        }
        ObjectType::NextHopGroupMember => &[
            (has(|a| matches!(a, Attr::MemberGroup(_))), "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID"),
            (has(|a| matches!(a, Attr::MemberNextHop(_))), "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID"),
        ],
        _ => &[],
    };
    match needs.iter().find(|(there, _)| !there) {
        None => Ok(()),
        Some((_, name)) => broken(Status::MandatoryAttributeMissing, format!("is to be made without {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GroupType, InsegEntry, PacketAction, RouteEntry, SWITCH};
    use super::*;

    const VR: Oid = Oid::vid(ObjectType::VirtualRouter, 1);
    const RIF: Oid = Oid::vid(ObjectType::RouterInterface, 2);
    const HOP: Oid = Oid::vid(ObjectType::NextHop, 3);
    const GROUP: Oid = Oid::vid(ObjectType::NextHopGroup, 4);
    const MEMBER: Oid = Oid::vid(ObjectType::NextHopGroupMember, 5);

    fn route(vr: Oid, attrs: &[Attr]) -> Item {
        Item::new(RouteEntry { switch: SWITCH, vr, dest: "10.0.0.0/8".parse().unwrap() }, attrs.to_vec())
    }

    fn said(verb: Verb, object: ObjectType, item: &Item) -> (Status, String) {
        let Violation { status, why } = check(verb, object, item).unwrap_err();
        (status, why)
    }

    #[test]
    fn schema_accepts_requests_of_orchagent() {
        let ip = Attr::NextHopIp("10.0.0.1".parse().unwrap());
        let hop = Item::new(HOP, [Attr::NextHopKind(NextHopType::Ip), ip, Attr::NextHopRif(RIF)]);
        assert_eq!(check(Verb::Create, ObjectType::NextHop, &hop), Ok(()));
        let group = Item::new(GROUP, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        assert_eq!(check(Verb::Create, ObjectType::NextHopGroup, &group), Ok(()));
        let member = Item::new(MEMBER, [Attr::MemberGroup(GROUP), Attr::MemberNextHop(HOP)]);
        assert_eq!(check(Verb::Create, ObjectType::NextHopGroupMember, &member), Ok(()));
        for to in [HOP, GROUP, RIF, Oid::NULL] {
            let route = route(VR, &[Attr::RouteNextHop(to)]);
            assert_eq!(check(Verb::Create, ObjectType::RouteEntry, &route), Ok(()));
            assert_eq!(check(Verb::Set, ObjectType::RouteEntry, &route), Ok(()));
        }
        let label = |attr| Item::new(InsegEntry { switch: SWITCH, label: 200 }, [attr]);
        for attr in [Attr::InsegNextHop(GROUP), Attr::InsegPop(1)] {
            assert_eq!(check(Verb::Set, ObjectType::InsegEntry, &label(attr)), Ok(()));
        }
        assert!(check(Verb::Set, ObjectType::InsegEntry, &label(Attr::InsegNextHop(VR))).is_err());
        assert!(check(Verb::Set, ObjectType::RouteEntry, &label(Attr::RouteNextHop(HOP))).is_err());
        assert_eq!(check(Verb::Create, ObjectType::RouteEntry, &route(VR, &[])), Ok(()));
        assert_eq!(check(Verb::Remove, ObjectType::RouteEntry, &route(VR, &[])), Ok(()));
        // The check of an unknown attribute is that of its name.
        let port = Oid::vid(ObjectType::Port, 7).to_string();
        let other = [
            ("SAI_HOSTIF_ATTR_TYPE", "SAI_HOSTIF_TYPE_NETDEV"),
            ("SAI_HOSTIF_ATTR_OBJ_ID", &port),
            ("SAI_HOSTIF_ATTR_NAME", "oid:0x7"),
        ]
        .map(|(name, value)| Attr::read(name, value).unwrap());
        let hostif = Item::new(Oid::vid(ObjectType::Hostif, 6), other.clone());
        assert_eq!(check(Verb::Create, ObjectType::Hostif, &hostif), Ok(()));
        // SAI's table says what is mandatory, under its conditions, and what may be named.
        let lacks = Item::new(Oid::vid(ObjectType::Hostif, 6), other[..1].to_vec());
        let (status, why) = said(Verb::Create, ObjectType::Hostif, &lacks);
        assert_eq!(status, Status::MandatoryAttributeMissing);
        assert!(why.contains("SAI_HOSTIF_ATTR_OBJ_ID") || why.contains("SAI_HOSTIF_ATTR_NAME"), "{why}");
        let hop = Attr::raw("SAI_HOSTIF_ATTR_OBJ_ID", &HOP.to_string());
        let wrong = Item::new(Oid::vid(ObjectType::Hostif, 6), [hop]);
        assert_eq!(said(Verb::Set, ObjectType::Hostif, &wrong).0, Status::InvalidParameter);
        assert_eq!(said(Verb::Create, ObjectType::Hostif, &wrong).0, Status::InvalidObjectType);
        let vlan = ObjectType::from_name("SAI_OBJECT_TYPE_VLAN").unwrap();
        let members = Item::new(Oid::vid(vlan, 8), [Attr::raw("SAI_VLAN_ATTR_MEMBER_LIST", "0:null")]);
        assert_eq!(said(Verb::Set, vlan, &members).0, Status::InvalidParameter);
        let rif = [
            Attr::RifVirtualRouter(VR),
            Attr::read("SAI_ROUTER_INTERFACE_ATTR_TYPE", "SAI_ROUTER_INTERFACE_TYPE_SUB_PORT").unwrap(),
            Attr::RifPort(Oid::vid(ObjectType::from_name("SAI_OBJECT_TYPE_LAG").unwrap(), 9)),
            Attr::raw("SAI_ROUTER_INTERFACE_ATTR_OUTER_VLAN_ID", "10"),
        ];
        let item = |attrs: &[Attr]| Item::new(RIF, attrs.to_vec());
        assert_eq!(check(Verb::Create, ObjectType::RouterInterface, &item(&rif)), Ok(()));
        assert!(check(Verb::Create, ObjectType::RouterInterface, &item(&rif[..3])).is_err());
    }

    #[test]
    fn schema_refuses_with_the_broken_rule() {
        let (create, set) = (Verb::Create, Verb::Set);
        let drop = Attr::RoutePacketAction(PacketAction::Drop);
        let cases = [
            (
                create,
                ObjectType::RouteEntry,
                route(HOP, &[]),
                Status::InvalidObjectType,
                "has a key of objects",
            ),
            (
                create,
                ObjectType::RouteEntry,
                Item::bare(HOP),
                Status::InvalidObjectType,
                "has a key of objects",
            ),
            (
                create,
                ObjectType::NextHop,
                Item::bare(GROUP),
                Status::InvalidObjectType,
                "has a key of objects",
            ),
            (
                create,
                ObjectType::RouteEntry,
                route(VR, &[drop.clone(), drop.clone()]),
                Status::InvalidParameter,
                "is given twice SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION",
            ),
            (
                create,
                ObjectType::RouteEntry,
                route(VR, &[Attr::RouteNextHop(MEMBER)]),
                Status::InvalidObjectType,
                "names oid:0x2d000000000005, of another type, as its SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID",
            ),
            (
                create,
                ObjectType::RouteEntry,
                route(VR, &[Attr::NextHopRif(RIF)]),
                Status::InvalidParameter,
                "has no attribute SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID",
            ),
            (
                create,
                ObjectType::NextHop,
                Item::new(HOP, [Attr::NextHopKind(NextHopType::Ip), Attr::NextHopRif(RIF)]),
                Status::MandatoryAttributeMissing,
                "is to be made without SAI_NEXT_HOP_ATTR_IP",
            ),
            (
                create,
                ObjectType::NextHopGroupMember,
                Item::new(MEMBER, [Attr::MemberGroup(Oid::NULL)]),
                Status::InvalidParameter,
                "names no object as its SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID",
            ),
            (
                set,
                ObjectType::NextHop,
                Item::new(HOP, [Attr::NextHopRif(RIF)]),
                Status::InvalidParameter,
                "exists, so no request can change its SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID",
            ),
            (
                set,
                ObjectType::RouteEntry,
                route(VR, &[]),
                Status::InvalidParameter,
                "has 0 attributes set at once",
            ),
            (
                Verb::Remove,
                ObjectType::RouteEntry,
                route(VR, &[drop]),
                Status::InvalidParameter,
                "is removed with attributes",
            ),
            (
                set,
                ObjectType::Switch,
                Item::new(SWITCH, [Attr::SwitchPortNumber(3)]),
                Status::InvalidParameter,
                "is given, which is read only, SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS",
            ),
        ];
        for (verb, object, item, status, why) in cases {
            let (was, said) = said(verb, object, &item);
            assert_eq!(was, status, "{item:?}");
            assert!(said.starts_with(why), "{said}");
        }
    }
}
