//! Attributes of the route path's objects: SAI's name and the value's type of each, in one table.

use super::{ObjectType, Oid};
use crate::row::{Mac, Name};
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::net::IpAddr;

/// The attributes of one object. Most have one or two.
pub type Attrs = SmallVec<[Attr; 2]>;

/// A value of an attribute, and its text.
pub(crate) trait Value: Sized {
    fn write(&self, out: &mut String);
    fn read(text: &str) -> Option<Self>;
}

macro_rules! value_by_display {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn write(&self, out: &mut String) {
                // Writing to a String cannot fail.
                let _ = write!(out, "{self}");
            }
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}
value_by_display!(u8, u32, u64, bool, IpAddr, Mac);

impl Value for Oid {
    fn write(&self, out: &mut String) {
        self.format(out);
    }
    fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("oid:0x").filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u64::from_str_radix(digits, 16).ok().map(Oid)
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
}

macro_rules! value_enums {
    ($($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $variant:ident = $name:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type {
            $($(#[$vdoc])* $variant,)*
        }

        impl Value for $type {
            fn write(&self, out: &mut String) {
                out.push_str(match self { $($type::$variant => $name,)* });
            }
            fn read(text: &str) -> Option<Self> {
                match text { $($name => Some($type::$variant),)* _ => None }
            }
        }
    )*};
}

value_enums! {
    /// What happens to a packet that matches a route.
    PacketAction {
        /// It is dropped.
        Drop = "SAI_PACKET_ACTION_DROP",
        /// It goes to the next hop.
        Forward = "SAI_PACKET_ACTION_FORWARD",
        /// It goes to the CPU.
        Trap = "SAI_PACKET_ACTION_TRAP",
    }
    /// What a next hop is.
    NextHopType {
        /// A gateway's address.
        Ip = "SAI_NEXT_HOP_TYPE_IP",
        /// A gateway's address, and labels on the way to it.
        Mpls = "SAI_NEXT_HOP_TYPE_MPLS",
    }
    /// How a next hop puts labels on.
    OutsegType {
        /// On a packet that had none, or whose labels stay.
        Push = "SAI_OUTSEG_TYPE_PUSH",
        /// In place of the label with which it arrived.
        Swap = "SAI_OUTSEG_TYPE_SWAP",
    }
    /// How a group chooses among its members.
    GroupType {
        /// By hash, members in any order.
        DynamicUnorderedEcmp = "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP",
        /// By hash, members in the order of their sequence ids.
        DynamicOrderedEcmp = "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_ORDERED_ECMP",
    }
    /// What a router interface sits on.
    RifType {
        /// A port.
        Port = "SAI_ROUTER_INTERFACE_TYPE_PORT",
        /// A VLAN.
        Vlan = "SAI_ROUTER_INTERFACE_TYPE_VLAN",
        /// Nothing.
        Loopback = "SAI_ROUTER_INTERFACE_TYPE_LOOPBACK",
    }
    /// A port's link.
    OperStatus {
        /// Not known.
        Unknown = "SAI_PORT_OPER_STATUS_UNKNOWN",
        /// Up.
        Up = "SAI_PORT_OPER_STATUS_UP",
        /// Down.
        Down = "SAI_PORT_OPER_STATUS_DOWN",
    }
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $variant:ident($type:ty) = $name:literal;)*) => {
        /// An attribute with its value.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Attr {
            $($(#[$doc])* $variant($type),)*
            /// An attribute outside of the route path: name and value as text, passed through.
            Other(Box<(Name, Name)>),
        }

        impl Attr {
            /// SAI's name.
            pub fn name(&self) -> &str {
                match self {
                    $(Attr::$variant(_) => $name,)*
                    Attr::Other(text) => &text.0,
                }
            }

            /// Appends the value's text.
            pub fn write_value(&self, out: &mut String) {
                match self {
                    $(Attr::$variant(value) => value.write(out),)*
                    Attr::Other(text) => out.push_str(&text.1),
                }
            }

            /// The attribute of a name and a value's text; `None` when the text is not a value of this name.
            /// A name that the route path does not use gives [`Attr::Other`].
            pub fn read(name: &str, value: &str) -> Option<Attr> {
                match name {
                    $($name => Value::read(value).map(Attr::$variant),)*
                    _ => Some(Attr::Other(Box::new((name.into(), value.into())))),
                }
            }
        }
    };
}

attributes! {
    /// The chip is started by this.
    SwitchInit(bool) = "SAI_SWITCH_ATTR_INIT_SWITCH";
    /// The router's MAC address.
    SwitchSrcMac(Mac) = "SAI_SWITCH_ATTR_SRC_MAC_ADDRESS";
    /// The virtual router that is always there.
    SwitchDefaultVirtualRouter(Oid) = "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID";
    /// The port towards the CPU.
    SwitchCpuPort(Oid) = "SAI_SWITCH_ATTR_CPU_PORT";
    /// How many ports there are.
    SwitchPortNumber(u32) = "SAI_SWITCH_ATTR_PORT_NUMBER";
    /// The ports. In a question, as many null ids as there is room for.
    SwitchPortList(Box<[Oid]>) = "SAI_SWITCH_ATTR_PORT_LIST";
    /// How many next-hop groups the chip holds.
    SwitchEcmpGroups(u32) = "SAI_SWITCH_ATTR_NUMBER_OF_ECMP_GROUPS";
    /// How many more IPv4 routes fit.
    SwitchAvailableIpv4Route(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV4_ROUTE_ENTRY";
    /// How many more IPv6 routes fit.
    SwitchAvailableIpv6Route(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV6_ROUTE_ENTRY";
    /// How many more IPv4 next hops fit.
    SwitchAvailableIpv4Nexthop(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV4_NEXTHOP_ENTRY";
    /// How many more IPv6 next hops fit.
    SwitchAvailableIpv6Nexthop(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV6_NEXTHOP_ENTRY";
    /// How many more IPv4 neighbours fit.
    SwitchAvailableIpv4Neighbor(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV4_NEIGHBOR_ENTRY";
    /// How many more IPv6 neighbours fit.
    SwitchAvailableIpv6Neighbor(u32) = "SAI_SWITCH_ATTR_AVAILABLE_IPV6_NEIGHBOR_ENTRY";
    /// How many more next-hop groups fit.
    SwitchAvailableGroup(u32) = "SAI_SWITCH_ATTR_AVAILABLE_NEXT_HOP_GROUP_ENTRY";
    /// How many more group members fit.
    SwitchAvailableGroupMember(u32) = "SAI_SWITCH_ATTR_AVAILABLE_NEXT_HOP_GROUP_MEMBER_ENTRY";
    /// The chip's lanes that a port uses.
    PortLanes(Box<[u32]>) = "SAI_PORT_ATTR_HW_LANE_LIST";
    /// Megabits per second.
    PortSpeed(u32) = "SAI_PORT_ATTR_SPEED";
    /// Whether the port is wanted up.
    PortAdminState(bool) = "SAI_PORT_ATTR_ADMIN_STATE";
    /// Bytes.
    PortMtu(u32) = "SAI_PORT_ATTR_MTU";
    /// The link. Read only.
    PortOperStatus(OperStatus) = "SAI_PORT_ATTR_OPER_STATUS";
    /// Whether a virtual router routes IPv4.
    VirtualRouterV4(bool) = "SAI_VIRTUAL_ROUTER_ATTR_ADMIN_V4_STATE";
    /// Whether a virtual router routes IPv6.
    VirtualRouterV6(bool) = "SAI_VIRTUAL_ROUTER_ATTR_ADMIN_V6_STATE";
    /// A router interface's virtual router.
    RifVirtualRouter(Oid) = "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID";
    /// What a router interface sits on.
    RifKind(RifType) = "SAI_ROUTER_INTERFACE_ATTR_TYPE";
    /// A router interface's port.
    RifPort(Oid) = "SAI_ROUTER_INTERFACE_ATTR_PORT_ID";
    /// A router interface's MAC address.
    RifSrcMac(Mac) = "SAI_ROUTER_INTERFACE_ATTR_SRC_MAC_ADDRESS";
    /// Bytes.
    RifMtu(u32) = "SAI_ROUTER_INTERFACE_ATTR_MTU";
    /// Whether a router interface routes IPv4.
    RifV4(bool) = "SAI_ROUTER_INTERFACE_ATTR_ADMIN_V4_STATE";
    /// Whether a router interface routes IPv6.
    RifV6(bool) = "SAI_ROUTER_INTERFACE_ATTR_ADMIN_V6_STATE";
    /// Whether a router interface takes packets with MPLS labels. It does not when not given.
    RifMpls(bool) = "SAI_ROUTER_INTERFACE_ATTR_ADMIN_MPLS_STATE";
    /// A neighbour's MAC address.
    NeighborMac(Mac) = "SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS";
    /// The neighbour gets no host route.
    NeighborNoHostRoute(bool) = "SAI_NEIGHBOR_ENTRY_ATTR_NO_HOST_ROUTE";
    /// What a next hop is.
    NextHopKind(NextHopType) = "SAI_NEXT_HOP_ATTR_TYPE";
    /// A next hop's gateway.
    NextHopIp(IpAddr) = "SAI_NEXT_HOP_ATTR_IP";
    /// A next hop's router interface.
    NextHopRif(Oid) = "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID";
    /// A next hop's labels, outermost first.
    NextHopLabels(Box<[u32]>) = "SAI_NEXT_HOP_ATTR_LABELSTACK";
    /// How a next hop puts its labels on.
    NextHopOutseg(OutsegType) = "SAI_NEXT_HOP_ATTR_OUTSEG_TYPE";
    /// How a group chooses.
    GroupKind(GroupType) = "SAI_NEXT_HOP_GROUP_ATTR_TYPE";
    /// A member's group.
    MemberGroup(Oid) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID";
    /// A member's next hop.
    MemberNextHop(Oid) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID";
    /// A member's share.
    MemberWeight(u32) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_WEIGHT";
    /// A member's place, from 1, in an ordered group.
    MemberSequence(u32) = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_SEQUENCE_ID";
    /// What a route does. Forward when not given.
    RoutePacketAction(PacketAction) = "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION";
    /// Where a route leads: a next hop, a group, a router interface, or the CPU port. Null when not given.
    RouteNextHop(Oid) = "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID";
    /// What a label's entry does. Forward when not given.
    InsegPacketAction(PacketAction) = "SAI_INSEG_ENTRY_ATTR_PACKET_ACTION";
    /// Where a label's entry leads: a next hop, a group or a router interface. Null when not given.
    InsegNextHop(Oid) = "SAI_INSEG_ENTRY_ATTR_NEXT_HOP_ID";
    /// How many labels a label's entry takes off. One when not given.
    InsegPop(u8) = "SAI_INSEG_ENTRY_ATTR_NUM_OF_POP";
    /// Of no object: the answer to [`SaiCall::Available`](super::SaiCall::Available).
    ObjectCount(u64) = "OBJECT_COUNT";
}

impl Attr {
    /// Every object number in the value, to translate.
    pub fn oids_mut(&mut self) -> &mut [Oid] {
        match self {
            Attr::SwitchDefaultVirtualRouter(oid)
            | Attr::SwitchCpuPort(oid)
            | Attr::RifVirtualRouter(oid)
            | Attr::RifPort(oid)
            | Attr::NextHopRif(oid)
            | Attr::MemberGroup(oid)
            | Attr::MemberNextHop(oid)
            | Attr::RouteNextHop(oid)
            | Attr::InsegNextHop(oid) => std::slice::from_mut(oid),
            Attr::SwitchPortList(oids) => oids,
            _ => &mut [],
        }
    }

    /// The type of the objects that a switch's read-only attribute names: those that the chip has of its own.
    pub fn discovers(&self) -> Option<ObjectType> {
        match self {
            Attr::SwitchDefaultVirtualRouter(_) => Some(ObjectType::VirtualRouter),
            Attr::SwitchCpuPort(_) | Attr::SwitchPortList(_) => Some(ObjectType::Port),
            _ => None,
        }
    }

    /// Whether SAI lets it be given at creation only.
    pub fn create_only(&self) -> bool {
        matches!(
            self,
            Attr::SwitchInit(_)
                | Attr::PortLanes(_)
                | Attr::RifVirtualRouter(_)
                | Attr::RifKind(_)
                | Attr::RifPort(_)
                | Attr::NextHopKind(_)
                | Attr::NextHopIp(_)
                | Attr::NextHopRif(_)
                | Attr::NextHopLabels(_)
                // SAI lets it be changed; orchagent never does, and it tells one next hop from another.
                | Attr::NextHopOutseg(_)
                | Attr::GroupKind(_)
                | Attr::MemberGroup(_)
        )
    }

    /// Whether both are the same attribute, whatever the values.
    pub fn same_kind(&self, other: &Attr) -> bool {
        match (self, other) {
            (Attr::Other(a), Attr::Other(b)) => a.0 == b.0,
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
