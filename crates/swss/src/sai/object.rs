//! Which object: its type, and the number or the key that identifies it.

use crate::format;
use ribtide_prefix::AnyPrefix;
use std::fmt;
use std::net::IpAddr;

macro_rules! object_types {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $entry:literal;)*) => {
        /// The type of an object, with SAI's number.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum ObjectType {
            $($(#[$doc])* $variant = $number,)*
        }

        impl ObjectType {
            /// Every type of the route path.
            pub const ALL: &[ObjectType] = &[$(ObjectType::$variant,)*];

            /// SAI's name, such as `SAI_OBJECT_TYPE_ROUTE_ENTRY`.
            pub fn name(self) -> &'static str {
                match self { $(ObjectType::$variant => $name,)* }
            }

            /// Whether a key identifies it, rather than a number that the chip gave.
            pub fn is_entry(self) -> bool {
                match self { $(ObjectType::$variant => $entry,)* }
            }
        }
    };
}

object_types! {
    /// A port.
    Port = 1, "SAI_OBJECT_TYPE_PORT", false;
    /// A routing table.
    VirtualRouter = 3, "SAI_OBJECT_TYPE_VIRTUAL_ROUTER", false;
    /// A gateway on a router interface.
    NextHop = 4, "SAI_OBJECT_TYPE_NEXT_HOP", false;
    /// A set of next hops to spread over.
    NextHopGroup = 5, "SAI_OBJECT_TYPE_NEXT_HOP_GROUP", false;
    /// Where a port routes.
    RouterInterface = 6, "SAI_OBJECT_TYPE_ROUTER_INTERFACE", false;
    /// A port's netdevice on the host.
    Hostif = 13, "SAI_OBJECT_TYPE_HOSTIF", false;
    /// The chip.
    Switch = 33, "SAI_OBJECT_TYPE_SWITCH", false;
    /// A neighbour's MAC address.
    NeighborEntry = 36, "SAI_OBJECT_TYPE_NEIGHBOR_ENTRY", true;
    /// A route.
    RouteEntry = 37, "SAI_OBJECT_TYPE_ROUTE_ENTRY", true;
    /// What becomes of packets with a label.
    InsegEntry = 63, "SAI_OBJECT_TYPE_INSEG_ENTRY", true;
    /// A next hop's place in a group.
    NextHopGroupMember = 45, "SAI_OBJECT_TYPE_NEXT_HOP_GROUP_MEMBER", false;
}

impl ObjectType {
    /// The type of a SAI name.
    pub fn from_name(name: &str) -> Option<ObjectType> {
        ObjectType::ALL.iter().copied().find(|t| t.name() == name)
    }
}

/// The number of an object: orchagent's own (VID) or the chip's (RID), by where it stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Oid(pub u64);

/// The switch as orchagent names it: index 0.
pub const SWITCH: Oid = Oid::vid(ObjectType::Switch, 0);

impl Oid {
    /// No object.
    pub const NULL: Oid = Oid(0);

    /// The VID of switch 0 in context 0: the type in bits 48 to 55, the index in bits 0 to 38.
    pub const fn vid(object: ObjectType, index: u64) -> Oid {
        Oid((object as u64) << 48 | (index & ((1 << 39) - 1)))
    }

    /// Whether it names no object.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The type in a VID; `None` for types outside of the route path, and for most RIDs.
    pub fn object_type(self) -> Option<ObjectType> {
        let number = (self.0 >> 48 & 0xff) as u8;
        ObjectType::ALL.iter().copied().find(|t| *t as u8 == number)
    }

    /// Appends its text.
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

/// The key of a label's entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InsegEntry {
    /// The switch.
    pub switch: Oid,
    /// The label.
    pub label: u32,
}

/// What identifies an object. The type of an [`ObjectId::Oid`] stands beside it where it is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectId {
    /// A number.
    Oid(Oid),
    /// A route's key.
    Route(RouteEntry),
    /// A neighbour's key.
    Neighbor(NeighborEntry),
    /// A label's key.
    Inseg(InsegEntry),
}

impl ObjectId {
    /// The number, of an object that has one.
    pub fn oid(&self) -> Option<Oid> {
        match self {
            ObjectId::Oid(oid) => Some(*oid),
            _ => None,
        }
    }

    /// Every number in it, to translate.
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
