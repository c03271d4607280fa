//! Prefixes as BGP and MRT write them: a length in bits, then as many bytes as it needs (RFC 4271 section 4.3).
//!
//! In a session with add-path a path identifier of four bytes comes before the length (RFC 7911 section 3).

use ribtide_prefix::{BgpFamily, Bits, Prefix};
use std::marker::PhantomData;

/// What an UPDATE announces or withdraws: a prefix, or a prefix with a path identifier.
pub trait Nlri: Copy {
    /// The family of its prefix.
    type Family: BgpFamily;
    /// Bytes of the longest encoding.
    const MAX_LEN: usize;
    /// Whether it has a path identifier.
    const HAS_PATH_ID: bool;
    /// The one at the start of `buf` and what follows it; `None` when it is too long for the family or cut
    /// short.
    fn decode(buf: &[u8]) -> Option<(Self, &[u8])>;
    /// Appends its encoding.
    fn encode(self, out: &mut Vec<u8>);
    /// Its prefix.
    fn prefix(self) -> Prefix<Self::Family>;
    /// Its path identifier; 0 without one.
    fn path_id(self) -> u32;
}

impl<F: BgpFamily> Nlri for Prefix<F> {
    type Family = F;
    const MAX_LEN: usize = max_len::<F>();
    const HAS_PATH_ID: bool = false;

    #[inline]
    fn decode(buf: &[u8]) -> Option<(Prefix<F>, &[u8])> {
        decode(buf)
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    #[inline]
    fn prefix(self) -> Prefix<F> {
        self
    }

    #[inline]
    fn path_id(self) -> u32 {
        0
    }
}

/// A prefix with its path identifier (RFC 7911 section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathPrefix<F: BgpFamily> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// Tells the paths of the prefix apart; any number, chosen by the sender.
    pub path_id: u32,
}

/// Bytes of a path identifier.
const PATH_ID_LEN: usize = 4;

impl<F: BgpFamily> Nlri for PathPrefix<F> {
    type Family = F;
    const MAX_LEN: usize = PATH_ID_LEN + max_len::<F>();
    const HAS_PATH_ID: bool = true;

    #[inline]
    fn decode(buf: &[u8]) -> Option<(PathPrefix<F>, &[u8])> {
        let (id, rest) = buf.split_first_chunk::<PATH_ID_LEN>()?;
        let (prefix, rest) = decode(rest)?;
        Some((PathPrefix { prefix, path_id: u32::from_be_bytes(*id) }, rest))
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.path_id.to_be_bytes());
        encode(self.prefix, out);
    }

    #[inline]
    fn prefix(self) -> Prefix<F> {
        self.prefix
    }

    #[inline]
    fn path_id(self) -> u32 {
        self.path_id
    }
}

/// Bytes that a prefix of `bits` bits takes after its length.
#[inline]
fn byte_len(bits: u8) -> usize {
    usize::from(bits).div_ceil(8)
}

/// The longest encoding of a prefix of family `F`, in binary.
pub const fn max_len<F: BgpFamily>() -> usize {
    1 + F::WIDTH as usize / 8
}

/// Appends `prefix`.
#[inline]
pub fn encode<F: BgpFamily>(prefix: Prefix<F>, out: &mut Vec<u8>) {
    out.push(prefix.len());
    let bits = prefix.bits().left().to_be_bytes();
    out.extend_from_slice(bits.get(..byte_len(prefix.len())).unwrap_or(&bits));
}

/// The prefix at the start of `buf` and what follows it; `None` when it is too long for the family or cut
/// short. Bits beyond the length have no meaning and are cleared.
#[inline]
pub fn decode<F: BgpFamily>(buf: &[u8]) -> Option<(Prefix<F>, &[u8])> {
    let (&len, rest) = buf.split_first()?;
    if len > F::WIDTH {
        return None;
    }
    let (own, after) = rest.split_at_checked(byte_len(len))?;
    // Bits read beyond the prefix are cleared with its host bits, so whole words are read where they exist:
    // that avoids a copy of variable length.
    let bits = if F::WIDTH <= 32 {
        match rest.first_chunk::<4>() {
            Some(word) => u128::from(u32::from_be_bytes(*word)) << 96,
            None => left_aligned(own),
        }
    } else {
        match rest.first_chunk::<16>() {
            Some(word) => u128::from_be_bytes(*word),
            None => left_aligned(own),
        }
    };
    Some((Prefix::new(F::Bits::from_left(bits), len), after))
}

/// At most 16 bytes as the leading bits of a number.
#[inline]
fn left_aligned(bytes: &[u8]) -> u128 {
    bytes.iter().zip((0..16).rev()).fold(0, |bits, (byte, place)| bits | u128::from(*byte) << (8 * place))
}

/// Whether `field` holds prefixes of family `F` and nothing else (RFC 7606 section 5.3).
#[inline]
pub fn is_valid<F: BgpFamily>(mut field: &[u8]) -> bool {
    while let Some((&len, rest)) = field.split_first() {
        match rest.get(byte_len(len)..) {
            Some(after) if len <= F::WIDTH => field = after,
            _ => return false,
        }
    }
    true
}

/// The same of a field whose prefixes have path identifiers, if `path_ids`.
#[inline]
pub(super) fn is_valid_field<F: BgpFamily>(field: &[u8], path_ids: bool) -> bool {
    if path_ids { is_valid_with_path_ids::<F>(field) } else { is_valid::<F>(field) }
}

/// Whether `field` holds prefixes of family `F` with path identifiers and nothing else.
#[cold]
#[inline(never)]
pub fn is_valid_with_path_ids<F: BgpFamily>(mut field: &[u8]) -> bool {
    while !field.is_empty() {
        let Some((_, rest)) = PathPrefix::<F>::decode(field) else { return false };
        field = rest;
    }
    true
}

/// The prefixes of up to four fields, one after the other. Fields that did not pass [`is_valid`] end at their
/// first fault.
pub type Prefixes<'a, F> = Nlris<'a, Prefix<F>>;

/// The same with path identifiers.
pub type PathPrefixes<'a, F> = Nlris<'a, PathPrefix<F>>;

/// The NLRI of up to four fields, one after the other.
#[derive(Clone, Debug)]
pub struct Nlris<'a, N> {
    current: &'a [u8],
    more: [&'a [u8]; 3],
    nlri: PhantomData<N>,
}

impl<'a, N: Nlri> Nlris<'a, N> {
    /// The NLRI of one field.
    pub fn new(field: &'a [u8]) -> Self {
        Nlris::chain([field, &[], &[], &[]])
    }

    pub(super) fn chain([current, more @ ..]: [&'a [u8]; 4]) -> Self {
        Nlris { current, more, nlri: PhantomData }
    }

    /// The bytes of the fields that are left, in order.
    #[inline]
    pub fn fields(&self) -> [&'a [u8]; 4] {
        let [next, after, last] = self.more;
        [self.current, next, after, last]
    }

    /// Whether all fields are empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let [next, after, last] = self.more;
        self.current.is_empty() && next.is_empty() && after.is_empty() && last.is_empty()
    }
}

impl<N: Nlri> Iterator for Nlris<'_, N> {
    type Item = N;

    #[inline]
    fn next(&mut self) -> Option<N> {
        loop {
            if let Some((nlri, rest)) = N::decode(self.current) {
                self.current = rest;
                return Some(nlri);
            }
            let [next, after, last] = self.more;
            if next.is_empty() && after.is_empty() && last.is_empty() {
                self.current = &[];
                return None;
            }
            self.current = next;
            self.more = [after, last, &[]];
        }
    }

    // Most callers fold: so the field is not checked for every prefix.
    #[inline]
    fn fold<B, G: FnMut(B, N) -> B>(self, init: B, mut f: G) -> B {
        let mut result = fold_field(self.current, init, &mut f);
        let [next, after, last] = self.more;
        // Most messages have one field.
        if !(next.is_empty() && after.is_empty() && last.is_empty()) {
            for field in self.more {
                result = fold_field(field, result, &mut f);
            }
        }
        result
    }
}

#[inline(always)]
fn fold_field<N: Nlri, B>(mut field: &[u8], init: B, f: &mut impl FnMut(B, N) -> B) -> B {
    let mut result = init;
    while let Some((nlri, rest)) = N::decode(field) {
        field = rest;
        result = f(result, nlri);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ribtide_prefix::{V4, V6};

    #[test]
    fn host_bits_on_the_wire_are_cleared() {
        let (prefix, rest) = decode::<V4>(&[20, 10, 1, 255, 8, 11]).unwrap();
        assert_eq!(prefix.to_string(), "10.1.240.0/20");
        assert_eq!(rest, [8, 11]);
        assert_eq!(decode::<V4>(&[20, 10, 1, 255]).unwrap().0, prefix);
    }

    #[test]
    fn what_is_not_a_prefix() {
        assert!(decode::<V4>(&[33, 1, 2, 3, 4, 5]).is_none());
        assert!(decode::<V4>(&[24, 1, 2]).is_none());
        assert!(decode::<V6>(&[129; 20]).is_none());
        assert!(decode::<V6>(&[]).is_none());
        assert!(is_valid::<V4>(&[]) && is_valid::<V4>(&[0, 32, 1, 2, 3, 4, 1, 128]));
        assert!(!is_valid::<V4>(&[0, 33, 1, 2, 3, 4, 5]));
        assert!(!is_valid::<V4>(&[8, 1, 24, 1, 2]));
        assert!(is_valid::<V6>(&[33, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn fields_follow_each_other() {
        let chained: Vec<_> =
            Prefixes::<V4>::chain([&[], &[8, 10], &[], &[0, 8, 11]]).map(|p| p.to_string()).collect();
        assert_eq!(chained, ["10.0.0.0/8", "0.0.0.0/0", "11.0.0.0/8"]);
        let mut one_by_one = Vec::new();
        for prefix in Prefixes::<V4>::chain([&[], &[8, 10], &[], &[0, 8, 11]]) {
            one_by_one.push(prefix.to_string());
        }
        assert_eq!(one_by_one, chained);
        assert_eq!(Prefixes::<V4>::chain([&[8, 10], &[], &[], &[]]).count(), 1);
    }

    #[test]
    fn path_identifier_comes_before_the_length() {
        let field = [0, 0, 1, 2, 8, 10, 0xff, 0xff, 0xff, 0xff, 0];
        assert!(is_valid_with_path_ids::<V4>(&field));
        for cut in [1, 3, 4, 5, 7, 10] {
            assert!(!is_valid_with_path_ids::<V4>(&field[..cut]), "{cut}");
        }
        assert!(is_valid_with_path_ids::<V4>(&field[..6]) && is_valid_with_path_ids::<V4>(&[]));
        assert!(!is_valid_with_path_ids::<V4>(&[0, 0, 0, 1, 33, 1, 2, 3, 4, 5]));
        let paths = PathPrefixes::<V4>::chain([&[], &field, &[], &field]);
        let named: Vec<_> = paths.map(|path| (path.prefix.to_string(), path.path_id)).collect();
        assert_eq!(named[..2], [("10.0.0.0/8".to_string(), 0x102), ("0.0.0.0/0".to_string(), u32::MAX)]);
        assert_eq!(named[..2], named[2..]);
    }

    fn round_trip<F: BgpFamily>(prefixes: &[Prefix<F>]) {
        let (mut field, mut with_ids) = (Vec::new(), Vec::new());
        let path = |(n, prefix): (usize, &Prefix<F>)| PathPrefix {
            prefix: *prefix,
            path_id: (n as u32).wrapping_mul(0x9e37_79b9),
        };
        let paths: Vec<PathPrefix<F>> = prefixes.iter().enumerate().map(path).collect();
        for (prefix, path) in prefixes.iter().zip(&paths) {
            let (before, before_with) = (field.len(), with_ids.len());
            Nlri::encode(*prefix, &mut field);
            path.encode(&mut with_ids);
            assert!(field.len() - before <= <Prefix<F> as Nlri>::MAX_LEN);
            assert_eq!(with_ids.len() - before_with, field.len() - before + 4);
        }
        assert!(is_valid::<F>(&field) && is_valid_with_path_ids::<F>(&with_ids));
        assert_eq!(Prefixes::<F>::new(&field).collect::<Vec<_>>(), prefixes);
        let read = || PathPrefixes::<F>::chain([&[], &with_ids, &[], &[]]);
        assert_eq!(read().collect::<Vec<_>>(), paths);
        let mut one_by_one = Vec::new();
        for path in read() {
            one_by_one.push(path);
        }
        assert_eq!(one_by_one, paths);
    }

    proptest! {
        #[test]
        fn prefixes_round_trip(raw in prop::collection::vec((any::<u128>(), 0u8..=128), 0..20)) {
            round_trip::<V6>(&raw.iter().map(|(b, l)| Prefix::new(b.to_be_bytes(), *l)).collect::<Vec<_>>());
            round_trip::<V4>(&raw.iter().map(|(b, l)| Prefix::new(*b as u32, *l % 33)).collect::<Vec<_>>());
        }

        #[test]
        fn any_field_is_valid_exactly_when_all_of_it_decodes(
            field in prop::collection::vec(prop_oneof![0u8..40, any::<u8>()], 0..60),
        ) {
            fn decodes<F: BgpFamily>(mut field: &[u8]) -> bool {
                while let Some((_, rest)) = decode::<F>(field) {
                    field = rest;
                }
                field.is_empty()
            }
            prop_assert_eq!(is_valid::<V4>(&field), decodes::<V4>(&field));
            prop_assert_eq!(is_valid::<V6>(&field), decodes::<V6>(&field));
        }
    }
}
