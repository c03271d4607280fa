//! Object types, and the id or key of an object.

use super::model;
use crate::format;
use ribtide_prefix::AnyPrefix;
use std::fmt;
use std::net::IpAddr;

macro_rules! object_types {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $entry:literal;)*) => {
        #[expect(non_upper_case_globals, reason = "the types are matched like variants of an enum")]
        impl ObjectType {
            $($(#[$doc])* pub const $variant: ObjectType = ObjectType($number);)*

            /// The types with typed attributes: those of the route path.
            pub const ALL: &[ObjectType] = &[$(ObjectType::$variant,)*];

            /// The type with this SAI name.
            pub fn from_name(name: &str) -> Option<ObjectType> {
                match name {
                    $($name => Some(ObjectType::$variant),)*
                    _ => model::object_number(name).map(ObjectType),
                }
            }

            /// SAI's name, such as `SAI_OBJECT_TYPE_ROUTE_ENTRY`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ObjectType::$variant => $name,)*
                    ObjectType(other) => model::object_name(other).unwrap_or("SAI_OBJECT_TYPE_NULL"),
                }
            }

            /// Short name.
            fn short(self) -> &'static str {
                match self {
                    $(ObjectType::$variant => stringify!($variant),)*
                    other => other.name().trim_start_matches("SAI_OBJECT_TYPE_"),
                }
            }

            /// Whether a key identifies it, not a number of the chip.
            pub fn is_entry(self) -> bool {
                match self {
                    $(ObjectType::$variant => $entry,)*
                    ObjectType(other) => model::is_entry(other),
                }
            }
        }
    };
}

/// The type of an object, with the number of SAI (`saitypes.h`). Every type of SAI's headers can be
/// one; [`ObjectType::ALL`] have typed attributes, and those of the others are text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectType(u32);

object_types! {
    /// A port.
    Port = 1, "SAI_OBJECT_TYPE_PORT", false;
    /// A link aggregation group.
    Lag = 2, "SAI_OBJECT_TYPE_LAG", false;
    /// A routing table.
    VirtualRouter = 3, "SAI_OBJECT_TYPE_VIRTUAL_ROUTER", false;
    /// A gateway on a router interface.
    NextHop = 4, "SAI_OBJECT_TYPE_NEXT_HOP", false;
    /// An ECMP group.
    NextHopGroup = 5, "SAI_OBJECT_TYPE_NEXT_HOP_GROUP", false;
    /// A router interface.
    RouterInterface = 6, "SAI_OBJECT_TYPE_ROUTER_INTERFACE", false;
    /// The netdevice of a port on the host.
    Hostif = 13, "SAI_OBJECT_TYPE_HOSTIF", false;
    /// A port of a LAG.
    LagMember = 27, "SAI_OBJECT_TYPE_LAG_MEMBER", false;
    /// The chip.
    Switch = 33, "SAI_OBJECT_TYPE_SWITCH", false;
    /// A neighbour with its MAC address.
    NeighborEntry = 36, "SAI_OBJECT_TYPE_NEIGHBOR_ENTRY", true;
    /// A route.
    RouteEntry = 37, "SAI_OBJECT_TYPE_ROUTE_ENTRY", true;
    /// A VLAN.
    Vlan = 38, "SAI_OBJECT_TYPE_VLAN", false;
    /// A bridge port in a VLAN.
    VlanMember = 39, "SAI_OBJECT_TYPE_VLAN_MEMBER", false;
    /// A port or LAG as a port of the bridge of all VLANs.
    BridgePort = 58, "SAI_OBJECT_TYPE_BRIDGE_PORT", false;
    /// An MPLS incoming segment.
    InsegEntry = 63, "SAI_OBJECT_TYPE_INSEG_ENTRY", true;
    /// A member of a next-hop group.
    NextHopGroupMember = 45, "SAI_OBJECT_TYPE_NEXT_HOP_GROUP_MEMBER", false;
}

/// The numbers of SAI's extensions (`SAI_OBJECT_TYPE_EXTENSIONS_RANGE_START`) begin here.
const EXTENSIONS: u32 = 0x2000_0000;
/// The bit of a VID whose type is one of the extensions.
const EXTENSION_FLAG: u64 = 1 << 39;

impl ObjectType {
    /// The type with this SAI number.
    pub fn from_number(number: u32) -> Option<ObjectType> {
        let object = ObjectType(number);
        (ObjectType::ALL.contains(&object) || model::object_name(number).is_some()).then_some(object)
    }

    /// SAI's number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether it has typed attributes, or a typed key.
    pub fn is_typed(self) -> bool {
        ObjectType::ALL.contains(&self)
    }
}

impl fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

/// An object id: of orchagent (VID) or of the chip (RID), depending on context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Oid(pub u64);

/// The VID of the switch: index 0.
pub const SWITCH: Oid = Oid::vid(ObjectType::Switch, 0);

impl Oid {
    /// `SAI_NULL_OBJECT_ID`.
    pub const NULL: Oid = Oid(0);

    /// The VID of switch 0 in context 0: the type in bits 48 to 55, the index in bits 0 to 38.
    pub const fn vid(object: ObjectType, index: u64) -> Oid {
        let (number, flag) = match object.0 < EXTENSIONS {
            true => (object.0, 0),
            false => (object.0 - EXTENSIONS, EXTENSION_FLAG),
        };
        Oid((number as u64 & 0xff) << 48 | flag | (index & ((1 << 39) - 1)))
    }

    /// Whether it is the null id.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The type in a VID; `None` for numbers that SAI does not have, as in most RIDs.
    pub fn object_type(self) -> Option<ObjectType> {
        ObjectType::from_number(self.type_number())
    }

    /// Whether a VID has this type.
    pub fn is_of(self, object: ObjectType) -> bool {
        self.type_number() == object.0
    }

    const fn type_number(self) -> u32 {
        let number = (self.0 >> 48 & 0xff) as u32;
        if self.0 & EXTENSION_FLAG == 0 { number } else { number + EXTENSIONS }
    }

    /// Appends its text, such as `oid:0x21000000000000`.
    pub fn format(self, out: &mut String) {
        out.push_str("oid:0x");
        format::hex(self.0, out);
    }

    /// The index in a VID.
    pub fn index(self) -> u64 {
        self.0 & ((1 << 39) - 1)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oid:{:#x}", self.0)
    }
}

/// The key of a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouteEntry {
    /// The switch.
    pub switch: Oid,
    /// The virtual router.
    pub vr: Oid,
    /// The destination.
    pub dest: AnyPrefix,
}

/// The key of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NeighborEntry {
    /// The switch.
    pub switch: Oid,
    /// The router interface.
    pub rif: Oid,
    /// The address.
    pub ip: IpAddr,
}

/// The key of an MPLS incoming segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InsegEntry {
    /// The switch.
    pub switch: Oid,
    /// The label.
    pub label: u32,
}

/// The id or key of an object. The type of an [`ObjectId::Oid`] is given beside it where needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectId {
    /// A numbered object.
    Oid(Oid),
    /// A route.
    Route(RouteEntry),
    /// A neighbour.
    Neighbor(NeighborEntry),
    /// A label.
    Inseg(InsegEntry),
}

impl ObjectId {
    /// The number, if the object has one.
    pub fn oid(&self) -> Option<Oid> {
        match self {
            ObjectId::Oid(oid) => Some(*oid),
            _ => None,
        }
    }

    /// All object ids in it, for translation.
    pub fn oids_mut(&mut self) -> impl Iterator<Item = &mut Oid> {
        let (a, b) = match self {
            ObjectId::Oid(oid) => (oid, None),
            ObjectId::Route(entry) => (&mut entry.switch, Some(&mut entry.vr)),
            ObjectId::Neighbor(entry) => (&mut entry.switch, Some(&mut entry.rif)),
            ObjectId::Inseg(entry) => (&mut entry.switch, None),
        };
        std::iter::once(a).chain(b)
    }
}

impl From<Oid> for ObjectId {
    fn from(oid: Oid) -> ObjectId {
        ObjectId::Oid(oid)
    }
}

impl From<RouteEntry> for ObjectId {
    fn from(entry: RouteEntry) -> ObjectId {
        ObjectId::Route(entry)
    }
}

impl From<NeighborEntry> for ObjectId {
    fn from(entry: NeighborEntry) -> ObjectId {
        ObjectId::Neighbor(entry)
    }
}

impl From<InsegEntry> for ObjectId {
    fn from(entry: InsegEntry) -> ObjectId {
        ObjectId::Inseg(entry)
    }
}
