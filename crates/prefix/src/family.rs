//! Address families as types, and containers that hold one value for each.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address family identifier, as IANA numbers it (RFC 4760 section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum Afi {
    /// IPv4.
    Ipv4 = 1,
    /// IPv6.
    Ipv6 = 2,
}

impl Afi {
    /// The family of an IANA number that ribtide carries, or `None`.
    pub fn from_u16(n: u16) -> Option<Afi> {
        match n {
            1 => Some(Afi::Ipv4),
            2 => Some(Afi::Ipv6),
            _ => None,
        }
    }

    /// The name used in configuration, output and metrics: `ipv4-unicast` or `ipv6-unicast`.
    pub fn unicast_name(self) -> &'static str {
        match self {
            Afi::Ipv4 => "ipv4-unicast",
            Afi::Ipv6 => "ipv6-unicast",
        }
    }
}

/// Some of the families, as those of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FamilySet {
    /// IPv4 unicast.
    pub ipv4: bool,
    /// IPv6 unicast.
    pub ipv6: bool,
}

impl FamilySet {
    /// Every family.
    pub const ALL: FamilySet = FamilySet { ipv4: true, ipv6: true };

    /// Whether `afi` unicast is in the set.
    pub fn has(self, afi: Afi) -> bool {
        match afi {
            Afi::Ipv4 => self.ipv4,
            Afi::Ipv6 => self.ipv6,
        }
    }

    /// Adds `afi`, or removes it.
    pub fn set(&mut self, afi: Afi, has: bool) {
        match afi {
            Afi::Ipv4 => self.ipv4 = has,
            Afi::Ipv6 => self.ipv6 = has,
        }
    }

    /// The set and `afi` unicast.
    #[must_use]
    pub fn with(mut self, afi: Afi) -> FamilySet {
        self.set(afi, true);
        self
    }

    /// The set without `afi` unicast.
    #[must_use]
    pub fn without(mut self, afi: Afi) -> FamilySet {
        self.set(afi, false);
        self
    }

    /// The families of this one alone.
    #[must_use]
    pub fn but(self, other: FamilySet) -> FamilySet {
        FamilySet { ipv4: self.ipv4 && !other.ipv4, ipv6: self.ipv6 && !other.ipv6 }
    }

    /// The families in both.
    #[must_use]
    pub fn and(self, other: FamilySet) -> FamilySet {
        FamilySet { ipv4: self.ipv4 && other.ipv4, ipv6: self.ipv6 && other.ipv6 }
    }

    /// Whether no family is in it.
    pub fn is_empty(self) -> bool {
        self == FamilySet::default()
    }
}

/// Subsequent address family identifier (RFC 4760 section 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Safi {
    /// Unicast forwarding.
    Unicast = 1,
}

/// The bits of an address, compared and hashed as in the network's order.
pub trait Bits: Copy + Eq + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// The address as a number, left-aligned in 128 bits: the first bit of the address is bit 127.
    fn left(self) -> u128;
    /// The reverse of [`Bits::left`]; bits beyond the family's width are dropped.
    fn from_left(n: u128) -> Self;
    /// The first `len` bits, zeroes after them; all bits when there are no more than `len`.
    fn leading(self, len: u8) -> Self;
}

impl Bits for u32 {
    #[inline]
    fn left(self) -> u128 {
        u128::from(self) << 96
    }
    #[inline]
    fn from_left(n: u128) -> u32 {
        (n >> 96) as u32
    }
    #[inline]
    fn leading(self, len: u8) -> u32 {
        self & (u64::MAX << (32 - len.min(32))) as u32
    }
}

// Sixteen bytes without alignment: a prefix and a 32-bit handle fit 24 bytes, not 48.
impl Bits for [u8; 16] {
    #[inline]
    fn left(self) -> u128 {
        u128::from_be_bytes(self)
    }
    #[inline]
    fn from_left(n: u128) -> [u8; 16] {
        n.to_be_bytes()
    }
    #[inline]
    fn leading(self, len: u8) -> [u8; 16] {
        Self::from_left(self.left() & u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0))
    }
}

/// An address family. The two implementations are [`V4`] and [`V6`].
pub trait Family: Copy + Eq + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// The address as stored in a prefix.
    type Bits: Bits;
    /// IANA's number for the family.
    const AFI: Afi;
    /// Width of an address in bits; also the longest prefix length.
    const WIDTH: u8;

    /// The member of `f` that belongs to this family.
    fn of<S: PerFamily>(f: &Families<S>) -> &S::Of<Self>;
    /// The member of `f` that belongs to this family, to change.
    fn of_mut<S: PerFamily>(f: &mut Families<S>) -> &mut S::Of<Self>;
    /// The address of these bits.
    fn addr(bits: Self::Bits) -> IpAddr;
    /// The bits of `addr`, or `None` when it is of the other family.
    fn bits(addr: IpAddr) -> Option<Self::Bits>;
}

/// IPv4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct V4;
/// IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct V6;

impl Family for V4 {
    type Bits = u32;
    const AFI: Afi = Afi::Ipv4;
    const WIDTH: u8 = 32;

    fn of<S: PerFamily>(f: &Families<S>) -> &S::Of<V4> {
        &f.v4
    }
    fn of_mut<S: PerFamily>(f: &mut Families<S>) -> &mut S::Of<V4> {
        &mut f.v4
    }
    fn addr(bits: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(bits))
    }
    fn bits(addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(a) => Some(a.into()),
            IpAddr::V6(_) => None,
        }
    }
}

impl Family for V6 {
    type Bits = [u8; 16];
    const AFI: Afi = Afi::Ipv6;
    const WIDTH: u8 = 128;

    fn of<S: PerFamily>(f: &Families<S>) -> &S::Of<V6> {
        &f.v6
    }
    fn of_mut<S: PerFamily>(f: &mut Families<S>) -> &mut S::Of<V6> {
        &mut f.v6
    }
    fn addr(bits: [u8; 16]) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(bits))
    }
    fn bits(addr: IpAddr) -> Option<[u8; 16]> {
        match addr {
            IpAddr::V4(_) => None,
            IpAddr::V6(a) => Some(a.octets()),
        }
    }
}

/// A shape: a type that exists once per family.
///
/// ```
/// use ribtide_prefix::{Families, Prefix, V4, per_family};
/// per_family!(struct Lists<F> = Vec<Prefix<F>>);
/// let mut lists: Families<Lists> = Families::default();
/// lists.get_mut::<V4>().push("10.0.0.0/8".parse().unwrap());
/// assert!(lists.v6.is_empty());
/// ```
pub trait PerFamily {
    /// The type for family `F`.
    type Of<F: Family>;
}

/// One value of shape `S` for each family.
pub struct Families<S: PerFamily> {
    /// The IPv4 value.
    pub v4: S::Of<V4>,
    /// The IPv6 value.
    pub v6: S::Of<V6>,
}

impl<S: PerFamily> Families<S> {
    /// The value of family `F`.
    pub fn get<F: Family>(&self) -> &S::Of<F> {
        F::of(self)
    }

    /// The value of family `F`, to change.
    pub fn get_mut<F: Family>(&mut self) -> &mut S::Of<F> {
        F::of_mut(self)
    }
}

impl<S: PerFamily> Default for Families<S>
where
    S::Of<V4>: Default,
    S::Of<V6>: Default,
{
    fn default() -> Self {
        Families { v4: Default::default(), v6: Default::default() }
    }
}

impl<S: PerFamily> Clone for Families<S>
where
    S::Of<V4>: Clone,
    S::Of<V6>: Clone,
{
    fn clone(&self) -> Self {
        Families { v4: self.v4.clone(), v6: self.v6.clone() }
    }
}

impl<S: PerFamily> Debug for Families<S>
where
    S::Of<V4>: Debug,
    S::Of<V6>: Debug,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Families").field("v4", &self.v4).field("v6", &self.v6).finish()
    }
}

/// Declares a shape: `per_family!(struct Lists<F> = Vec<Prefix<F>>);`
#[macro_export]
macro_rules! per_family {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$f:ident> = $of:ty $(;)?) => {
        $(#[$meta])*
        $vis struct $name;
        impl $crate::PerFamily for $name {
            type Of<$f: $crate::Family> = $of;
        }
    };
}

/// Runs the same generic code for each family: `for_each_family!(F => self.purge::<F>(peer));`
#[macro_export]
macro_rules! for_each_family {
    ($f:ident => $body:expr) => {{
        {
            type $f = $crate::V4;
            $body;
        }
        {
            type $f = $crate::V6;
            $body;
        }
    }};
}
