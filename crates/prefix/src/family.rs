//! Address families as types, and containers that hold one value for each.
//!
//! These are the families of addresses, of the kernel and of the RIB. Those of BGP are in `bgp_family.rs`.

use crate::BgpFamily;
use std::fmt::Debug;
use std::hash::Hash;

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

/// An address family, as the kernel, the RIB manager and policies know it. The two implementations are [`V4`]
/// and [`V6`]. In BGP it is the family of its unicast routes.
pub trait Family: BgpFamily<Address = Self> {
    /// The member of `f` that belongs to this family.
    fn of<S: PerFamily>(f: &Families<S>) -> &S::Of<Self>;
    /// The member of `f` that belongs to this family, to change.
    fn of_mut<S: PerFamily>(f: &mut Families<S>) -> &mut S::Of<Self>;
}

/// IPv4, and in BGP IPv4 unicast.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct V4;
/// IPv6, and in BGP IPv6 unicast.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct V6;

impl Family for V4 {
    fn of<S: PerFamily>(f: &Families<S>) -> &S::Of<V4> {
        &f.v4
    }
    fn of_mut<S: PerFamily>(f: &mut Families<S>) -> &mut S::Of<V4> {
        &mut f.v4
    }
}

impl Family for V6 {
    fn of<S: PerFamily>(f: &Families<S>) -> &S::Of<V6> {
        &f.v6
    }
    fn of_mut<S: PerFamily>(f: &mut Families<S>) -> &mut S::Of<V6> {
        &mut f.v6
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
        // For `F::AFI` and `F::WIDTH`.
        #[allow(unused_imports)]
        use $crate::BgpFamily as _;
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
