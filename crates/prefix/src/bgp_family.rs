//! The families of BGP: an address family and a subsequent one, (AFI, SAFI) (RFC 4760).
//!
//! `bgp_families!` has the only list of them. From it come [`AfiSafi`] and its names, [`FamilySet`],
//! [`BgpFamilies`] and [`for_each_bgp_family!`](crate::for_each_bgp_family). Where a further family makes a
//! difference, a `match` without it does not compile.

use crate::{Afi, Bits, Family, V4, V6};
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Index, IndexMut};

/// Subsequent address family identifier, as IANA numbers it (RFC 4760 section 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Safi {
    /// Unicast forwarding.
    Unicast = 1,
}

/// A family of BGP as a type. `Prefix<F>` is the key of its NLRI: as each family has its own, no
/// route gets into the tables of another family. Other differences are a `match` of
/// [`BgpFamily::ID`].
pub trait BgpFamily: Copy + Eq + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// The bits of a key, as stored in a prefix.
    type Bits: Bits;
    /// The family as a value.
    const ID: AfiSafi;
    /// IANA's number for the address family of its prefixes.
    const AFI: Afi = Self::ID.afi();
    /// Width of a key in bits; also the longest prefix length.
    const WIDTH: u8;
    /// The address family of its prefixes, which policies and the RIB manager know.
    type Address: Family<Bits = Self::Bits>;

    /// The member of `f` that belongs to this family.
    fn member<S: PerBgpFamily>(f: &BgpFamilies<S>) -> &S::Of<Self>;
    /// The member of `f` that belongs to this family, to change.
    fn member_mut<S: PerBgpFamily>(f: &mut BgpFamilies<S>) -> &mut S::Of<Self>;

    /// The address of these bits.
    #[inline]
    fn addr(bits: Self::Bits) -> IpAddr {
        match Self::AFI {
            Afi::Ipv4 => IpAddr::V4(Ipv4Addr::from(u32::from_left(bits.left()))),
            Afi::Ipv6 => IpAddr::V6(Ipv6Addr::from(bits.left())),
        }
    }

    /// The bits of `addr`, or `None` when it is of the other address family.
    #[inline]
    fn bits(addr: IpAddr) -> Option<Self::Bits> {
        match (Self::AFI, addr) {
            (Afi::Ipv4, IpAddr::V4(a)) => Some(Self::Bits::from_left(u32::from(a).left())),
            (Afi::Ipv6, IpAddr::V6(a)) => Some(Self::Bits::from_left(a.into())),
            _ => None,
        }
    }
}

/// A shape: a type that exists once per BGP family.
///
/// ```
/// use ribtide_prefix::{BgpFamilies, Prefix, V4, per_bgp_family};
/// per_bgp_family!(struct Lists<F> = Vec<Prefix<F>>);
/// let mut lists: BgpFamilies<Lists> = BgpFamilies::default();
/// lists.get_mut::<V4>().push("10.0.0.0/8".parse().unwrap());
/// assert!(lists.v6.is_empty());
/// ```
pub trait PerBgpFamily {
    /// The type for family `F`.
    type Of<F: BgpFamily>;
}

/// Everything that follows from the list of families.
macro_rules! bgp_families {
    ($d:tt $($(#[$doc:meta])* $family:ident = $type:ident($bits:ty, $width:literal), $field:ident, $address:ident, $afi:ident, $safi:ident, $name:literal;)+) => {
        /// A family of BGP: an AFI and a SAFI that ribtide carries.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum AfiSafi {
            $($(#[$doc])* $family,)+
        }

        impl AfiSafi {
            /// Every family.
            pub const ALL: [AfiSafi; AfiSafi::COUNT] = [$(AfiSafi::$family),+];
            /// How many families there are.
            pub const COUNT: usize = [$($name),+].len();

            /// Its address family.
            #[inline]
            pub const fn afi(self) -> Afi {
                match self {
                    $(AfiSafi::$family => Afi::$afi,)+
                }
            }

            /// Its subsequent address family.
            #[inline]
            pub const fn safi(self) -> Safi {
                match self {
                    $(AfiSafi::$family => Safi::$safi,)+
                }
            }

            /// The name in configuration, output and metrics, as `ipv4-unicast`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(AfiSafi::$family => $name,)+
                }
            }
        }

        /// One value of shape `S` for each family.
        pub struct BgpFamilies<S: PerBgpFamily> {
            $($(#[$doc])* pub $field: S::Of<$type>,)+
        }

        impl<S: PerBgpFamily> Default for BgpFamilies<S>
        where
            $(S::Of<$type>: Default,)+
        {
            fn default() -> Self {
                BgpFamilies { $($field: Default::default(),)+ }
            }
        }

        impl<S: PerBgpFamily> Clone for BgpFamilies<S>
        where
            $(S::Of<$type>: Clone,)+
        {
            fn clone(&self) -> Self {
                BgpFamilies { $($field: self.$field.clone(),)+ }
            }
        }

        impl<S: PerBgpFamily> Debug for BgpFamilies<S>
        where
            $(S::Of<$type>: Debug,)+
        {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("BgpFamilies")$(.field(stringify!($field), &self.$field))+.finish()
            }
        }

        $(
            impl BgpFamily for $type {
                type Bits = $bits;
                const ID: AfiSafi = AfiSafi::$family;
                const WIDTH: u8 = $width;
                type Address = $address;

                #[inline]
                fn member<S: PerBgpFamily>(f: &BgpFamilies<S>) -> &S::Of<$type> {
                    &f.$field
                }
                #[inline]
                fn member_mut<S: PerBgpFamily>(f: &mut BgpFamilies<S>) -> &mut S::Of<$type> {
                    &mut f.$field
                }
            }
        )+

        /// Whether a condition holds for any BGP family: `any_bgp_family!(F => !self.lists.get::<F>().is_empty())`.
        #[macro_export]
        macro_rules! any_bgp_family {
            ($d f:ident => $d holds:expr) => {
                false $(|| {
                    type $d f = $d crate::$type;
                    $d holds
                })+
            };
        }

        /// The sum of an expression over all BGP families: `sum_bgp_families!(F => self.lists.get::<F>().len())`.
        #[macro_export]
        macro_rules! sum_bgp_families {
            ($d f:ident => $d count:expr) => {
                0 $(+ {
                    type $d f = $d crate::$type;
                    $d count
                })+
            };
        }

        /// Runs the same generic code for each BGP family:
        /// `for_each_bgp_family!(F => self.purge::<F>(peer));`
        #[macro_export]
        macro_rules! for_each_bgp_family {
            ($d f:ident => $d body:expr) => {{
                $({
                    type $d f = $d crate::$type;
                    $d body;
                })+
            }};
        }
    };
}

bgp_families! { $
    /// IPv4 unicast.
    Ipv4Unicast = V4(u32, 32), v4, V4, Ipv4, Unicast, "ipv4-unicast";
    /// IPv6 unicast.
    Ipv6Unicast = V6([u8; 16], 128), v6, V6, Ipv6, Unicast, "ipv6-unicast";
}

impl AfiSafi {
    /// The family with these numbers of IANA; `None`: ribtide does not carry it.
    pub fn from_codes(afi: u16, safi: u8) -> Option<AfiSafi> {
        AfiSafi::ALL.into_iter().find(|family| family.codes() == (afi, safi))
    }

    /// IANA's numbers of its AFI and SAFI.
    pub const fn codes(self) -> (u16, u8) {
        (self.afi() as u16, self.safi() as u8)
    }

    /// AFI and SAFI as most messages have them: two bytes and one (RFC 4760 section 3).
    pub const fn to_bytes(self) -> [u8; 3] {
        let (afi, safi) = self.codes();
        let [high, low] = afi.to_be_bytes();
        [high, low, safi]
    }

    /// The reverse of [`AfiSafi::to_bytes`]; `None`: ribtide does not carry the family.
    #[inline]
    pub fn from_bytes([high, low, safi]: [u8; 3]) -> Option<AfiSafi> {
        AfiSafi::from_codes(u16::from_be_bytes([high, low]), safi)
    }

    /// The family after it in [`AfiSafi::ALL`].
    pub fn next(self) -> Option<AfiSafi> {
        AfiSafi::ALL.get(self as usize + 1).copied()
    }

    /// Unicast of an address family.
    pub const fn unicast(afi: Afi) -> AfiSafi {
        match afi {
            Afi::Ipv4 => AfiSafi::Ipv4Unicast,
            Afi::Ipv6 => AfiSafi::Ipv6Unicast,
        }
    }
}

impl fmt::Display for AfiSafi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<S: PerBgpFamily> BgpFamilies<S> {
    /// The value of family `F`.
    #[inline]
    pub fn get<F: BgpFamily>(&self) -> &S::Of<F> {
        F::member(self)
    }

    /// The value of family `F`, to change.
    #[inline]
    pub fn get_mut<F: BgpFamily>(&mut self) -> &mut S::Of<F> {
        F::member_mut(self)
    }
}

/// A value for each family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByFamily<T>([T; AfiSafi::COUNT]);

impl<T> ByFamily<T> {
    /// Of each family the value that `of` returns.
    pub fn new(of: impl FnMut(AfiSafi) -> T) -> ByFamily<T> {
        ByFamily(AfiSafi::ALL.map(of))
    }

    /// The families and their values, in the order of [`AfiSafi::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (AfiSafi, &T)> {
        AfiSafi::ALL.into_iter().zip(&self.0)
    }

    /// The value of one family; every other family has the default.
    #[must_use]
    pub fn only(family: AfiSafi, value: T) -> ByFamily<T>
    where
        T: Default,
    {
        let mut values = ByFamily::new(|_| T::default());
        values[family] = value;
        values
    }
}

impl<T> ByFamily<Option<T>> {
    /// Whether no family has a value.
    pub fn is_none(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl<T> Index<AfiSafi> for ByFamily<T> {
    type Output = T;

    #[inline]
    fn index(&self, family: AfiSafi) -> &T {
        &self.0[family as usize]
    }
}

impl<T> IndexMut<AfiSafi> for ByFamily<T> {
    #[inline]
    fn index_mut(&mut self, family: AfiSafi) -> &mut T {
        &mut self.0[family as usize]
    }
}

/// Some of the families, as those of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FamilySet {
    /// A bit for each family.
    bits: u8,
}

impl FamilySet {
    /// Every family.
    pub const ALL: FamilySet = FamilySet::of(&AfiSafi::ALL);
    /// IPv4 unicast and IPv6 unicast: the families whose routes are installed.
    pub const UNICAST: FamilySet = FamilySet::of(&[AfiSafi::Ipv4Unicast, AfiSafi::Ipv6Unicast]);
    /// IPv4 unicast alone.
    pub const IPV4_UNICAST: FamilySet = FamilySet::of(&[AfiSafi::Ipv4Unicast]);
    /// IPv6 unicast alone.
    pub const IPV6_UNICAST: FamilySet = FamilySet::of(&[AfiSafi::Ipv6Unicast]);
    /// No family.
    pub const NONE: FamilySet = FamilySet::of(&[]);

    /// The set of these families.
    pub const fn of(families: &[AfiSafi]) -> FamilySet {
        let (mut bits, mut rest) = (0, families);
        while let [first, after @ ..] = rest {
            bits |= 1 << *first as u8;
            rest = after;
        }
        FamilySet { bits }
    }

    /// Whether `family` is in the set.
    #[inline]
    pub const fn has(self, family: AfiSafi) -> bool {
        self.bits & 1 << family as u8 != 0
    }

    /// Adds `family`, or removes it.
    pub fn set(&mut self, family: AfiSafi, has: bool) {
        *self = if has { self.with(family) } else { self.without(family) };
    }

    /// The set and `family`.
    #[must_use]
    pub fn with(self, family: AfiSafi) -> FamilySet {
        FamilySet { bits: self.bits | FamilySet::of(&[family]).bits }
    }

    /// The set without `family`.
    #[must_use]
    pub fn without(self, family: AfiSafi) -> FamilySet {
        self.but(FamilySet::of(&[family]))
    }

    /// The families of this one alone.
    #[must_use]
    pub fn but(self, other: FamilySet) -> FamilySet {
        FamilySet { bits: self.bits & !other.bits }
    }

    /// The families in both.
    #[must_use]
    pub fn and(self, other: FamilySet) -> FamilySet {
        FamilySet { bits: self.bits & other.bits }
    }

    /// The families in either.
    #[must_use]
    pub const fn or(self, other: FamilySet) -> FamilySet {
        FamilySet { bits: self.bits | other.bits }
    }

    /// Whether no family is in it.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Its families, in the order of [`AfiSafi::ALL`].
    pub fn iter(self) -> impl Iterator<Item = AfiSafi> {
        AfiSafi::ALL.into_iter().filter(move |family| self.has(*family))
    }
}

impl FromIterator<AfiSafi> for FamilySet {
    fn from_iter<I: IntoIterator<Item = AfiSafi>>(families: I) -> FamilySet {
        families.into_iter().fold(FamilySet::NONE, FamilySet::with)
    }
}

impl Debug for FamilySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Declares a shape of BGP families: `per_bgp_family!(struct Lists<F> = Vec<Prefix<F>>);`
#[macro_export]
macro_rules! per_bgp_family {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$f:ident> = $of:ty $(;)?) => {
        $(#[$meta])*
        $vis struct $name;
        impl $crate::PerBgpFamily for $name {
            type Of<$f: $crate::BgpFamily> = $of;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix;

    #[test]
    fn numbers_and_bytes_name_the_family_they_came_from() {
        for family in AfiSafi::ALL {
            let (afi, safi) = family.codes();
            assert_eq!(AfiSafi::from_codes(afi, safi), Some(family));
            assert_eq!(AfiSafi::from_bytes(family.to_bytes()), Some(family));
        }
        assert_eq!(AfiSafi::Ipv6Unicast.to_bytes(), [0, 2, 1]);
        assert_eq!(AfiSafi::from_codes(1, 128), None);
        assert_eq!(AfiSafi::from_codes(3, 1), None);
    }

    #[test]
    fn each_type_has_the_numbers_of_its_value() {
        let mut seen = Vec::new();
        for_each_bgp_family!(F => {
            assert_eq!(<<F as BgpFamily>::Address as BgpFamily>::AFI, F::AFI);
            assert_eq!(<<F as BgpFamily>::Address as BgpFamily>::WIDTH, F::WIDTH);
            seen.push(F::ID);
        });
        assert_eq!(seen, AfiSafi::ALL);
    }

    #[test]
    fn set_operations_are_those_of_a_model() {
        let sets = || (0..1 << AfiSafi::COUNT).map(|bits| FamilySet { bits });
        for a in sets() {
            assert_eq!(a.iter().collect::<FamilySet>(), a);
            assert_eq!(a.is_empty(), a.iter().next().is_none());
            for family in AfiSafi::ALL {
                assert!(a.with(family).has(family) && !a.without(family).has(family));
                for other in AfiSafi::ALL.into_iter().filter(|other| *other != family) {
                    assert_eq!(a.with(family).has(other), a.has(other));
                    assert_eq!(a.without(family).has(other), a.has(other));
                }
            }
            for b in sets() {
                for family in AfiSafi::ALL {
                    assert_eq!(a.and(b).has(family), a.has(family) && b.has(family));
                    assert_eq!(a.but(b).has(family), a.has(family) && !b.has(family));
                    assert_eq!(a.or(b).has(family), a.has(family) || b.has(family));
                }
            }
        }
        assert_eq!(format!("{:?}", FamilySet::IPV6_UNICAST), "{Ipv6Unicast}");
        assert!(FamilySet::NONE.is_empty() && FamilySet::ALL.iter().count() == AfiSafi::COUNT);
    }

    #[test]
    fn prefix_and_its_ip_prefix_are_each_others() {
        let prefix: Prefix<V6> = "2001:db8::/32".parse().unwrap();
        assert_eq!(Prefix::<V6>::from_ip(prefix.ip()), prefix);
    }
}
