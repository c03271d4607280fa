//! Attributes of the objects of the route path: the SAI name and the value type of each, in one
//! table.

use super::{Oid, RawAttr, model};
use crate::row::Mac;
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

/// The attributes of an object; most have one or two.
pub type Attrs = SmallVec<[Attr; 2]>;

/// A value of an attribute, and its text.
pub(crate) trait Value: Sized {
    fn write(&self, out: &mut String);
    fn read(text: &str) -> Option<Self>;
    /// A value that says nothing.
    fn empty() -> Self;
}

macro_rules! value_by_display {
    ($($type:ty = $empty:expr),*) => {$(
        impl Value for $type {
            fn write(&self, out: &mut String) {
                // Writing to a String cannot fail.
                let _ = write!(out, "{self}");
            }
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
            fn empty() -> Self {
                $empty
            }
        }
    )*};
}
value_by_display!(
    u8 = 0,
    u16 = 0,
    u32 = 0,
    u64 = 0,
    bool = false,
    IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    Mac = Mac([0; 6])
);

impl Value for Oid {
    fn write(&self, out: &mut String) {
        self.format(out);
    }
    fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("oid:0x").filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u64::from_str_radix(digits, 16).ok().map(Oid)
    }
    fn empty() -> Self {
        Oid::NULL
    }
}

impl<T: Value> Value for Box<[T]> {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "{}:", self.len());
        if self.is_empty() {
            out.push_str("null");
        }
        for (n, item) in self.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            item.write(out);
        }
    }
    fn read(text: &str) -> Option<Self> {
        let (count, items) = text.split_once(':')?;
        let count: usize = count.parse().ok()?;
        if items == "null" || count == 0 {
            return Some(Box::default());
        }
        let items: Box<[T]> = items.split(',').map(T::read).collect::<Option<_>>()?;
        (items.len() == count).then_some(items)
    }
    fn empty() -> Self {
        Box::default()
    }
}

macro_rules! value_enums {
    ($($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $variant:ident = $name:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type {
            $($(#[$vdoc])* $variant,)*
        }

        impl $type {
            /// SAI's name.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// The value with this name of SAI.
            pub fn from_name(name: &str) -> Option<$type> {
                match name { $($name => Some($type::$variant),)* _ => None }
            }
        }

        impl Value for $type {
            fn write(&self, out: &mut String) {
                out.push_str(self.name());
            }
            fn read(text: &str) -> Option<Self> {
                $type::from_name(text)
            }
            fn empty() -> Self {
                [$($type::$variant),*][0]
            }
        }
    )*};
}

value_enums! {
    /// The action on a packet that matches a route.
    PacketAction {
        /// Drop it.
        Drop = "SAI_PACKET_ACTION_DROP",
        /// Forward it to the next hop.
        Forward = "SAI_PACKET_ACTION_FORWARD",
        /// Send it to the CPU.
        Trap = "SAI_PACKET_ACTION_TRAP",
    }
    /// The type of a next hop.
    NextHopType {
        /// A gateway.
        Ip = "SAI_NEXT_HOP_TYPE_IP",
        /// A gateway, with outgoing labels.
        Mpls = "SAI_NEXT_HOP_TYPE_MPLS",
    }
    /// The label operation of a next hop.
    OutsegType {
        /// Push onto the existing labels, if any.
        Push = "SAI_OUTSEG_TYPE_PUSH",
        /// Swap the incoming label.
        Swap = "SAI_OUTSEG_TYPE_SWAP",
    }
    /// The type of a group.
    GroupType {
        /// By hash, members in any order.
        DynamicUnorderedEcmp = "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP",
        /// By hash, members in the order of their sequence ids.
        DynamicOrderedEcmp = "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_ORDERED_ECMP",
    }
    /// The lower layer of a router interface.
    RifType {
        /// A port.
        Port = "SAI_ROUTER_INTERFACE_TYPE_PORT",
        /// A VLAN.
        Vlan = "SAI_ROUTER_INTERFACE_TYPE_VLAN",
        /// Nothing.
        Loopback = "SAI_ROUTER_INTERFACE_TYPE_LOOPBACK",
        /// A VLAN tag on a port or LAG.
        SubPort = "SAI_ROUTER_INTERFACE_TYPE_SUB_PORT",
    }
    /// The link state of a port.
    OperStatus {
        /// Unknown.
        Unknown = "SAI_PORT_OPER_STATUS_UNKNOWN",
        /// Up.
        Up = "SAI_PORT_OPER_STATUS_UP",
        /// Down.
        Down = "SAI_PORT_OPER_STATUS_DOWN",
        /// In a test.
        Testing = "SAI_PORT_OPER_STATUS_TESTING",
        /// Without its transceiver, or another part.
        NotPresent = "SAI_PORT_OPER_STATUS_NOT_PRESENT",
    }
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $variant:ident($type:ty) = $name:literal $(or $alias:literal)?;)*) => {
        /// An attribute with its value.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Attr {
            $($(#[$doc])* $variant($type),)*
            /// An attribute outside of the route path, passed through as text.
            Other(Box<RawAttr>),
        }

        impl Attr {
            /// The SAI name.
            pub fn name(&self) -> &str {
                match self {
                    $(Attr::$variant(_) => $name,)*
                    Attr::Other(raw) => raw.name(),
                }
            }

            /// Appends the text of the value.
            pub fn write_value(&self, out: &mut String) {
                match self {
                    $(Attr::$variant(value) => value.write(out),)*
                    Attr::Other(raw) => raw.value().write(out),
                }
            }

            /// The attribute of a get. Its placeholder need not be a value: a caller may leave its
            /// memory as it was.
            pub fn placeholder(name: &str, value: &str) -> Attr {
                Attr::read(name, value).unwrap_or_else(|| match name {
                    $($name $(| $alias)? => Attr::$variant(Value::empty()),)*
                    _ => Attr::raw(name, value),
                })
            }

            /// Parses the text of a value; `None` if it is not a value of this attribute. SAI's
            /// header has aliases of some names, which are read and never written. An unknown name
            /// gives [`Attr::Other`].
            pub fn read(name: &str, value: &str) -> Option<Attr> {
                let typed = match name {
                    $($name $(| $alias)? => Value::read(value).map(Attr::$variant),)*
                    _ => return Some(Attr::raw(name, value)),
                };
                // A value of SAI outside of the route path, such as another type of next hop.
                typed.or_else(|| model::is_enum_value(name, value).then(|| Attr::raw(name, value)))
            }
        }
    };
}

attributes! {
    // Names are compared in this order: those that come with each route first.
    /// The action of a route. Default: forward.
    RoutePacketAction(PacketAction) = "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION";
    /// The target of a route: a next hop, a group, a router interface, or the CPU port. Default:
    /// null.
    RouteNextHop(Oid) = "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID";
    /// The action of a label. Default: forward.
    InsegPacketAction(PacketAction) = "SAI_INSEG_ENTRY_ATTR_PACKET_ACTION";
    /// The target of a label: a next hop, a group or a router interface. Default: null.
    InsegNextHop(Oid) = "SAI_INSEG_ENTRY_ATTR_NEXT_HOP_ID";
    /// The number of labels to pop. Default: 0.
    InsegPop(u8) = "SAI_INSEG_ENTRY_ATTR_NUM_OF_POP";
    /// Initializes the chip.
    SwitchInit(bool) = "SAI_SWITCH_ATTR_INIT_SWITCH";
    /// The MAC address of the router.
    SwitchSrcMac(Mac) = "SAI_SWITCH_ATTR_SRC_MAC_ADDRESS";
    /// The default virtual router.
    SwitchDefaultVirtualRouter(Oid) = "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID";
    /// The CPU port.
    SwitchCpuPort(Oid) = "SAI_SWITCH_ATTR_CPU_PORT";
    /// The number of ports. SAI's metadata, from which sairedis takes the names, has no alias.
    SwitchPortNumber(u32) = "SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS" or "SAI_SWITCH_ATTR_PORT_NUMBER";
    /// The ports. A query has as many null ids as its buffer has room.
    SwitchPortList(Box<[Oid]>) = "SAI_SWITCH_ATTR_PORT_LIST";
    /// The maximum number of next-hop groups.
    SwitchEcmpGroups(u32) = "SAI_SWITCH_ATTR_NUMBER_OF_ECMP_GROUPS";
    /// Free IPv4 route entries.
    SwitchAvailableIpv4Route(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV4_ROUTE_ENTRY";
    /// Free IPv6 route entries.
    SwitchAvailableIpv6Route(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV6_ROUTE_ENTRY";
    /// Free IPv4 next hops.
    SwitchAvailableIpv4Nexthop(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV4_NEXTHOP_ENTRY";
    /// Free IPv6 next hops.
    SwitchAvailableIpv6Nexthop(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV6_NEXTHOP_ENTRY";
    /// Free IPv4 neighbours.
    SwitchAvailableIpv4Neighbor(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV4_NEIGHBOR_ENTRY";
    /// Free IPv6 neighbours.
    SwitchAvailableIpv6Neighbor(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV6_NEIGHBOR_ENTRY";
    /// Free next-hop groups.
    SwitchAvailableGroup(u32) = "SAI_SWITCH_ATTR_AVAILABLE_NEXT_HOP_GROUP_ENTRY";
    /// Free group members.
    SwitchAvailableGroupMember(u32) = "SAI_SWITCH_ATTR_AVAILABLE_NEXT_HOP_GROUP_MEMBER_ENTRY";
    /// The lanes of a port.
    PortLanes(Box<[u32]>) = "SAI_PORT_ATTR_HW_LANE_LIST";
    /// Megabits per second.
    PortSpeed(u32) = "SAI_PORT_ATTR_SPEED";
    /// The administrative state of a port.
    PortAdminState(bool) = "SAI_PORT_ATTR_ADMIN_STATE";
    /// MTU in bytes.
    PortMtu(u32) = "SAI_PORT_ATTR_MTU";
    /// The link state. Read only.
    PortOperStatus(OperStatus) = "SAI_PORT_ATTR_OPER_STATUS";
    /// The speed of a link that is up, in megabits per second. Read only.
    PortOperSpeed(u32) = "SAI_PORT_ATTR_OPER_SPEED";
    /// The VLAN of packets that come to a port without a tag.
    PortVlan(u16) = "SAI_PORT_ATTR_PORT_VLAN_ID";
    /// The same of a LAG.
    LagVlan(u16) = "SAI_LAG_ATTR_PORT_VLAN_ID";
    /// The tag protocol of a LAG.
    LagTpid(u16) = "SAI_LAG_ATTR_TPID";
    /// The LAG of a member.
    LagMemberLag(Oid) = "SAI_LAG_MEMBER_ATTR_LAG_ID";
    /// The port of a member of a LAG.
    LagMemberPort(Oid) = "SAI_LAG_MEMBER_ATTR_PORT_ID";
    /// Whether a LAG sends nothing through a member. Default: no.
    LagMemberEgressDisable(bool) = "SAI_LAG_MEMBER_ATTR_EGRESS_DISABLE";
    /// Whether a LAG takes nothing from a member. Default: no.
    LagMemberIngressDisable(bool) = "SAI_LAG_MEMBER_ATTR_INGRESS_DISABLE";
    /// The number of a VLAN.
    VlanId(u16) = "SAI_VLAN_ATTR_VLAN_ID";
    /// The port or LAG of a bridge port.
    BridgePortPort(Oid) = "SAI_BRIDGE_PORT_ATTR_PORT_ID";
    /// The administrative state of a bridge port.
    BridgePortAdminState(bool) = "SAI_BRIDGE_PORT_ATTR_ADMIN_STATE";
    /// The VLAN of a member.
    VlanMemberVlan(Oid) = "SAI_VLAN_MEMBER_ATTR_VLAN_ID";
    /// The bridge port of a member of a VLAN.
    VlanMemberBridgePort(Oid) = "SAI_VLAN_MEMBER_ATTR_BRIDGE_PORT_ID";
    /// Whether a virtual router routes IPv4.
    VirtualRouterV4(bool) = "SAI_VIRTUAL_ROUTER_ATTR_ADMIN_V4_STATE";
    /// Whether a virtual router routes IPv6.
    VirtualRouterV6(bool) = "SAI_VIRTUAL_ROUTER_ATTR_ADMIN_V6_STATE";
    /// The virtual router of a router interface.
    RifVirtualRouter(Oid) = "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID";
    /// The lower layer of a router interface.
    RifKind(RifType) = "SAI_ROUTER_INTERFACE_ATTR_TYPE";
    /// The port or LAG of a router interface.
    RifPort(Oid) = "SAI_ROUTER_INTERFACE_ATTR_PORT_ID";
    /// The VLAN of a router interface.
    RifVlan(Oid) = "SAI_ROUTER_INTERFACE_ATTR_VLAN_ID";
    /// The tag of a sub-port.
    RifOuterVlan(u16) = "SAI_ROUTER_INTERFACE_ATTR_OUTER_VLAN_ID";
    /// The MAC address of a router interface.
    RifSrcMac(Mac) = "SAI_ROUTER_INTERFACE_ATTR_SRC_MAC_ADDRESS";
    /// MTU in bytes.
    RifMtu(u32) = "SAI_ROUTER_INTERFACE_ATTR_MTU";
    /// Whether a router interface routes IPv4.
    RifV4(bool) = "SAI_ROUTER_INTERFACE_ATTR_ADMIN_V4_STATE";
    /// Whether a router interface routes IPv6.
    RifV6(bool) = "SAI_ROUTER_INTERFACE_ATTR_ADMIN_V6_STATE";
    /// Whether a router interface accepts packets with MPLS labels. Default: no.
    RifMpls(bool) = "SAI_ROUTER_INTERFACE_ATTR_ADMIN_MPLS_STATE";
    /// A neighbour's MAC address.
    NeighborMac(Mac) = "SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS";
    /// The neighbour gets no host route.
    NeighborNoHostRoute(bool) = "SAI_NEIGHBOR_ENTRY_ATTR_NO_HOST_ROUTE";
    /// The type of a next hop.
    NextHopKind(NextHopType) = "SAI_NEXT_HOP_ATTR_TYPE";
    /// The gateway of a next hop.
    NextHopIp(IpAddr) = "SAI_NEXT_HOP_ATTR_IP";
    /// The router interface of a next hop.
    NextHopRif(Oid) = "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID";
    /// The labels of a next hop, outermost first.
    NextHopLabels(Box<[u32]>) = "SAI_NEXT_HOP_ATTR_LABELSTACK";
    /// The label operation of a next hop.
    NextHopOutseg(OutsegType) = "SAI_NEXT_HOP_ATTR_OUTSEG_TYPE";
    /// The type of a group.
    GroupKind(GroupType) = "SAI_NEXT_HOP_GROUP_ATTR_TYPE";
    /// The group of a member.
    MemberGroup(Oid) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID";
    /// The next hop of a member.
    MemberNextHop(Oid) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID";
    /// The weight of a member.
    MemberWeight(u32) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_WEIGHT";
    /// The position of a member in an ordered group, from 1.
    MemberSequence(u32) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_SEQUENCE_ID";
    /// Not an attribute of an object: the reply to
    /// [`SaiCall::Available`](super::SaiCall::Available).
    ObjectCount(u64) = "OBJECT_COUNT";
}

impl Attr {
    /// An attribute, or a field of a reply, as text.
    pub fn raw(name: &str, value: &str) -> Attr {
        Attr::Other(Box::new(RawAttr::new(name, value)))
    }

    /// The text of the value.
    pub fn value(&self) -> String {
        let mut out = String::new();
        self.write_value(&mut out);
        out
    }

    /// All object ids in the value, for translation.
    pub fn oids_mut(&mut self) -> &mut [Oid] {
        match self {
            Attr::SwitchDefaultVirtualRouter(oid)
            | Attr::SwitchCpuPort(oid)
            | Attr::RifVirtualRouter(oid)
            | Attr::RifPort(oid)
            | Attr::RifVlan(oid)
            | Attr::LagMemberLag(oid)
            | Attr::LagMemberPort(oid)
            | Attr::BridgePortPort(oid)
            | Attr::VlanMemberVlan(oid)
            | Attr::VlanMemberBridgePort(oid)
            | Attr::NextHopRif(oid)
            | Attr::MemberGroup(oid)
            | Attr::MemberNextHop(oid)
            | Attr::RouteNextHop(oid)
            | Attr::InsegNextHop(oid) => std::slice::from_mut(oid),
            Attr::SwitchPortList(oids) => oids,
            Attr::Other(raw) => raw.oids_mut(),
            _ => &mut [],
        }
    }

    /// Whether SAI allows it at creation only.
    pub fn create_only(&self) -> bool {
        if let Attr::Other(raw) = self {
            return model::is_create_only(raw.name());
        }
        matches!(
            self,
            Attr::SwitchInit(_)
                | Attr::PortLanes(_)
                | Attr::RifVirtualRouter(_)
                | Attr::RifKind(_)
                | Attr::RifPort(_)
                | Attr::RifVlan(_)
                | Attr::RifOuterVlan(_)
                | Attr::LagMemberLag(_)
                | Attr::LagMemberPort(_)
                | Attr::VlanId(_)
                // SAI allows a change. orchagent makes none, because the port distinguishes them.
                | Attr::BridgePortPort(_)
                | Attr::VlanMemberVlan(_)
                | Attr::VlanMemberBridgePort(_)
                | Attr::NextHopKind(_)
                | Attr::NextHopIp(_)
                | Attr::NextHopRif(_)
                | Attr::NextHopLabels(_)
                // SAI allows a change. orchagent makes none, because the attribute distinguishes
                // next hops.
                | Attr::NextHopOutseg(_)
                | Attr::GroupKind(_)
                | Attr::MemberGroup(_)
        )
    }

    /// Whether the text of the value is a list that begins with its length.
    pub fn is_list(&self) -> bool {
        model::is_list(self.name())
    }

    /// Whether both are the same attribute with any values.
    pub fn same_kind(&self, other: &Attr) -> bool {
        match (self, other) {
            (Attr::Other(a), Attr::Other(b)) => a.name() == b.name(),
            // A typed attribute can have a value that is not.
            (Attr::Other(raw), typed) | (typed, Attr::Other(raw)) => raw.name() == typed.name(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = String::new();
        self.write_value(&mut value);
        write!(f, "{}={value}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_small() {
        assert!(size_of::<Attr>() <= 24, "{}", size_of::<Attr>());
    }

    #[test]
    fn an_alias_is_read_and_the_name_written() {
        let attr = Attr::read("SAI_SWITCH_ATTR_PORT_NUMBER", "32").unwrap();
        assert_eq!(attr.to_string(), "SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS=32");
    }

    #[test]
    fn values_are_formatted_as_by_sai() {
        for (name, value) in [
            ("SAI_SWITCH_ATTR_INIT_SWITCH", "true"),
            ("SAI_SWITCH_ATTR_PORT_LIST", "2:oid:0x1000000000002,oid:0x0"),
            ("SAI_SWITCH_ATTR_PORT_LIST", "0:null"),
            ("SAI_PORT_ATTR_HW_LANE_LIST", "4:1,2,3,4"),
            ("SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS", "02:42:AC:11:00:0A"),
            ("SAI_NEXT_HOP_ATTR_IP", "fc00::1"),
            ("SAI_NEXT_HOP_GROUP_ATTR_TYPE", "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP"),
            ("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", "oid:0x40000000005ef"),
            ("SAI_NEXT_HOP_ATTR_LABELSTACK", "2:100,101"),
            ("SAI_NEXT_HOP_ATTR_OUTSEG_TYPE", "SAI_OUTSEG_TYPE_SWAP"),
            ("SAI_INSEG_ENTRY_ATTR_NUM_OF_POP", "1"),
            ("SAI_ACL_TABLE_ATTR_ACL_STAGE", "whatever"),
        ] {
            let attr = Attr::read(name, value).unwrap();
            assert_eq!(attr.to_string(), format!("{name}={value}"));
        }
        for (name, value) in [
            ("SAI_SWITCH_ATTR_INIT_SWITCH", "1"),
            ("SAI_SWITCH_ATTR_PORT_LIST", "3:oid:0x1"),
            ("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", "oid:0x"),
            ("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", "oid:0x+5"),
            ("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "DROP"),
            ("SAI_INSEG_ENTRY_ATTR_NUM_OF_POP", "256"),
        ] {
            assert_eq!(Attr::read(name, value), None, "{name}={value}");
        }
    }
}
