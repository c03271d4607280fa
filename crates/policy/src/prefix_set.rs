//! Prefix sets: a million ranges of prefixes, and whether a prefix is in one of them.
//!
//! Entries of one prefix are hashed. Entries with a range of lengths are folded: each gets the set
//! of lengths that it and all covering entries allow. Then only the longest covering entry must be
//! found, and its lengths decide. In the order of address and length, it is the last entry not
//! greater than the prefix, or a parent of that. Parents are linked, and a small index by the first
//! bits leaves few entries to search.

use ribtide_prefix::{
    Afi, AnyPrefix, BgpFamily, Bits, Families, Family, Map, Prefix, Set, V4, V6, for_each_family, per_family,
};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

/// Prefixes that one prefix covers, of some lengths: an entry of a prefix set.
///
/// The text is that of OpenConfig: `10.0.0.0/8 exact` or simply `10.0.0.0/8`, and `10.0.0.0/8 16..24`. That of prefix lists
/// is read too: `10.0.0.0/8 ge 16 le 24`, with one bound or both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PrefixRange {
    prefix: AnyPrefix,
    shortest: u8,
    longest: u8,
}

impl PrefixRange {
    /// The prefixes inside `prefix` with lengths from `shortest` to `longest`. `None` unless the
    /// prefix's own length, `shortest`, `longest` and the family's width ascend.
    pub fn new(prefix: AnyPrefix, shortest: u8, longest: u8) -> Option<PrefixRange> {
        let ascend = [prefix.len(), shortest, longest, width(prefix)].is_sorted();
        ascend.then_some(PrefixRange { prefix, shortest, longest })
    }

    /// That prefix alone.
    pub fn exact(prefix: AnyPrefix) -> PrefixRange {
        PrefixRange { prefix, shortest: prefix.len(), longest: prefix.len() }
    }

    /// The prefix that covers the others.
    pub fn prefix(&self) -> AnyPrefix {
        self.prefix
    }
}

fn width(prefix: AnyPrefix) -> u8 {
    match prefix {
        AnyPrefix::V4(_) => V4::WIDTH,
        AnyPrefix::V6(_) => V6::WIDTH,
    }
}

impl FromStr for PrefixRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (prefix, lengths) = match text.trim().split_once(char::is_whitespace) {
            Some((prefix, lengths)) => (prefix, lengths.trim()),
            None => (text.trim(), "exact"),
        };
        let prefix: AnyPrefix =
            prefix.parse().map_err(|e: ribtide_prefix::ParsePrefixError| e.to_string())?;
        if lengths == "exact" {
            return Ok(PrefixRange::exact(prefix));
        }
        let range = match lengths.split_once("..") {
            Some((shortest, longest)) => shortest.parse().ok().zip(longest.parse().ok()),
            None => bounds(lengths, prefix),
        };
        range.and_then(|(shortest, longest)| PrefixRange::new(prefix, shortest, longest)).ok_or_else(|| {
            format!(
                "\"{lengths}\" are no lengths inside {prefix}; write exact, or the shortest and the longest, from {} to {}, \
                 such as {prefix} {}..{}",
                prefix.len(),
                width(prefix),
                prefix.len(),
                width(prefix),
            )
        })
    }
}

/// The lengths of `ge 16`, `le 24` or `ge 16 le 24`.
fn bounds(text: &str, prefix: AnyPrefix) -> Option<(u8, u8)> {
    let mut words = text.split_whitespace();
    let (first, length, rest) = (words.next()?, words.next()?, words.next());
    let length = length.parse().ok();
    match (first, rest) {
        ("le", None) => Some((prefix.len(), length?)),
        ("ge", None) => Some((length?, width(prefix))),
        ("ge", Some("le")) => {
            let longest = words.next()?.parse().ok();
            words.next().is_none().then_some((length?, longest?))
        }
        _ => None,
    }
}

impl fmt::Display for PrefixRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix.fmt(f)?;
        if (self.shortest, self.longest) != (self.prefix.len(), self.prefix.len()) {
            write!(f, " {}..{}", self.shortest, self.longest)?;
        }
        Ok(())
    }
}

/// A set of prefixes, given as ranges, of both families.
#[derive(Clone, Debug, Default)]
pub struct PrefixSet {
    families: Families<Shape>,
}

per_family! {
    #[derive(Clone, Copy, Debug)]
    struct Shape<F> = OfFamily<F>;
}

/// The entries of one family.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OfFamily<F: Family> {
    /// Prefixes without a range of lengths.
    single: Set<Prefix<F>>,
    ranges: Ranges<F>,
}

impl PrefixSet {
    /// The union of `ranges`, in any order and with any repetitions.
    pub fn new(ranges: impl IntoIterator<Item = PrefixRange>) -> PrefixSet {
        let mut unsorted: Families<Unsorted> = Families::default();
        for PrefixRange { prefix, shortest, longest } in ranges {
            match prefix {
                AnyPrefix::V4(p) => unsorted.v4.push((p, shortest, longest)),
                AnyPrefix::V6(p) => unsorted.v6.push((p, shortest, longest)),
            }
        }
        let mut set = PrefixSet::default();
        for_each_family!(F => *set.families.get_mut::<F>() = OfFamily::new(unsorted.get::<F>()));
        set
    }

    /// Whether some range holds `prefix`, of whatever SAFI.
    #[inline]
    pub fn contains<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        let OfFamily { single, ranges } = self.families.get::<F::Address>();
        let prefix = prefix.ip();
        (!single.is_empty() && single.contains(&prefix)) || ranges.hold(prefix)
    }

    /// The number of stored entries, without those that others include.
    pub fn len(&self) -> usize {
        let mut len = 0;
        for_each_family!(F => {
            let OfFamily { single, ranges } = self.families.get::<F>();
            len += single.len() + ranges.prefixes.len();
        });
        len
    }

    /// Whether it holds no prefix at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it holds no prefix of this family.
    pub fn is_empty_for(&self, afi: Afi) -> bool {
        match afi {
            Afi::Ipv4 => self.families.v4.is_empty(),
            Afi::Ipv6 => self.families.v6.is_empty(),
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let mut memory = size_of::<Self>();
        for_each_family!(F => {
            let OfFamily { single, ranges } = self.families.get::<F>();
            memory += single.allocation_size() + ranges.memory();
        });
        memory
    }
}

impl PartialEq for PrefixSet {
    fn eq(&self, other: &Self) -> bool {
        self.families.v4 == other.families.v4 && self.families.v6 == other.families.v6
    }
}

impl Eq for PrefixSet {}

impl Hash for PrefixSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for_each_family!(F => {
            let OfFamily { single, ranges } = self.families.get::<F>();
            // The hash is independent of the order.
            let one = |prefix: &Prefix<F>| {
                let mut hasher = DefaultHasher::new();
                prefix.hash(&mut hasher);
                hasher.finish()
            };
            state.write_u64(single.iter().map(one).fold(0, u64::wrapping_add));
            (&ranges.prefixes, &ranges.links, &ranges.lengths).hash(state);
        });
    }
}

per_family! {
    /// Ranges of lengths by family, to be sorted.
    struct Unsorted<F> = Vec<Entry<F>>;
}

/// A prefix with the shortest and longest length allowed.
type Entry<F> = (Prefix<F>, u8, u8);

impl<F: Family> Default for OfFamily<F> {
    fn default() -> Self {
        OfFamily { single: Set::default(), ranges: Ranges::default() }
    }
}

impl<F: Family> OfFamily<F> {
    fn new(entries: &[Entry<F>]) -> OfFamily<F> {
        let is_single = |(prefix, _, longest): &Entry<F>| *longest == prefix.len();
        let ranges = Ranges::new(entries.iter().filter(|entry| !is_single(entry)).copied().collect());
        let single = entries.iter().filter(|entry| is_single(entry)).map(|(prefix, _, _)| *prefix);
        let mut single: Set<Prefix<F>> = single.filter(|prefix| !ranges.hold(*prefix)).collect();
        single.shrink_to_fit();
        OfFamily { single, ranges }
    }

    fn is_empty(&self) -> bool {
        self.single.is_empty() && self.ranges.prefixes.is_empty()
    }
}

/// Ranges of lengths, in the order of their prefixes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ranges<F: Family> {
    prefixes: Vec<Prefix<F>>,
    links: Vec<Link>,
    /// The length sets that the links name.
    lengths: Vec<Lengths>,
    /// For each value of the first bits, the first entry with it; one more element ends it. 2^bits
    /// + 1 elements.
    index: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Link {
    /// The longest other entry that covers this one, or [`NONE`].
    parent: u32,
    /// Index in [`Ranges::lengths`] of the lengths that this entry and its covering entries allow.
    lengths: u32,
}

const NONE: u32 = u32::MAX;

/// Prefix lengths, 0 to 128, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Lengths([u64; 3]);

impl Lengths {
    fn range(shortest: u8, longest: u8) -> Lengths {
        let mut lengths = Lengths::default();
        (shortest..=longest).for_each(|len| lengths.0[usize::from(len / 64)] |= 1 << (len % 64));
        lengths
    }

    #[inline]
    fn has(&self, len: u8) -> bool {
        self.0[usize::from(len / 64)] >> (len % 64) & 1 == 1
    }

    fn or(self, other: Lengths) -> Lengths {
        Lengths(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    fn and(self, other: Lengths) -> Lengths {
        Lengths(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl<F: Family> Default for Ranges<F> {
    fn default() -> Self {
        Ranges { prefixes: Vec::new(), links: Vec::new(), lengths: Vec::new(), index: Vec::new() }
    }
}

impl<F: Family> Ranges<F> {
    fn new(mut entries: Vec<Entry<F>>) -> Ranges<F> {
        let mut ranges = Ranges::default();
        if entries.is_empty() {
            return ranges;
        }
        entries.sort_unstable();
        let mut places: Map<Lengths, u32> = Map::default();
        // The entries that cover the current one, each with its allowed lengths.
        let mut around: Vec<(u32, Prefix<F>, Lengths)> = Vec::new();
        for same in entries.chunk_by(|a, b| a.0 == b.0) {
            let prefix = same[0].0;
            while around.pop_if(|(_, outer, _)| !outer.covers(prefix)).is_some() {}
            let inside = Lengths::range(prefix.len(), F::WIDTH);
            let inherited = around.last().map_or(Lengths::default(), |(_, _, allowed)| allowed.and(inside));
            let own = same.iter().map(|(_, shortest, longest)| Lengths::range(*shortest, *longest));
            let allowed = own.fold(inherited, Lengths::or);
            if allowed == inherited {
                continue;
            }
            let place = *places.entry(allowed).or_insert_with(|| {
                ranges.lengths.push(allowed);
                (ranges.lengths.len() - 1) as u32
            });
            let parent = around.last().map_or(NONE, |(at, _, _)| *at);
            around.push((ranges.prefixes.len() as u32, prefix, allowed));
            ranges.prefixes.push(prefix);
            ranges.links.push(Link { parent, lengths: place });
        }
        ranges.prefixes.shrink_to_fit();
        ranges.links.shrink_to_fit();
        // 16 entries a place on average, and at most 2^16 places: the index stays small beside the entries.
        let bits = (ranges.prefixes.len() / 16).max(2).ilog2().min(16);
        let mut at = 0;
        for place in 0..=1 << bits {
            at += ranges.prefixes[at..].iter().take_while(|p| first_bits(**p, bits) < place).count();
            ranges.index.push(at as u32);
        }
        ranges
    }

    #[inline]
    fn hold(&self, prefix: Prefix<F>) -> bool {
        let Some(bits) = self.index.len().checked_ilog2() else { return false };
        let place = first_bits(prefix, bits) as usize;
        let (from, to) = (self.index[place] as usize, self.index[place + 1] as usize);
        let mut at = from + self.prefixes[from..to].partition_point(|p| *p <= prefix);
        if at == 0 {
            return false;
        }
        at -= 1;
        while !self.prefixes[at].covers(prefix) {
            match self.links[at].parent {
                NONE => return false,
                parent => at = parent as usize,
            }
        }
        self.lengths[self.links[at].lengths as usize].has(prefix.len())
    }

    fn memory(&self) -> usize {
        self.prefixes.capacity() * size_of::<Prefix<F>>()
            + self.links.capacity() * size_of::<Link>()
            + self.lengths.capacity() * size_of::<Lengths>()
            + self.index.capacity() * size_of::<u32>()
    }
}

/// The first `bits` bits of the address, 1 to 32, as a number.
#[inline]
fn first_bits<F: Family>(prefix: Prefix<F>, bits: u32) -> u32 {
    ((prefix.bits().left() >> 96) as u32) >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(ranges: &[&str]) -> PrefixSet {
        PrefixSet::new(ranges.iter().map(|text| text.parse().unwrap()))
    }

    fn has(set: &PrefixSet, prefix: &str) -> bool {
        match prefix.parse().unwrap() {
            AnyPrefix::V4(p) => set.contains(p),
            AnyPrefix::V6(p) => set.contains(p),
        }
    }

    #[test]
    fn ranges_of_lengths() {
        let set = set(&[
            "10.0.0.0/8 16..24",
            "192.0.2.0/24",
            "10.1.0.0/16 exact",
            "10.1.2.0/23 30..32",
            "2001:db8::/32 48..48",
        ]);
        for inside in [
            "10.0.0.0/16",
            "10.255.255.0/24",
            "192.0.2.0/24",
            "10.1.0.0/16",
            "10.1.2.0/24",
            "10.1.3.4/30",
            "2001:db8:1::/48",
        ] {
            assert!(has(&set, inside), "{inside}");
        }
        for outside in [
            "10.0.0.0/8",
            "10.0.0.0/15",
            "10.0.0.0/25",
            "11.0.0.0/16",
            "192.0.2.0/25",
            "192.0.0.0/16",
            "10.1.2.0/29",
            "0.0.0.0/0",
            "2001:db8::/32",
            "::/0",
        ] {
            assert!(!has(&set, outside), "{outside}");
        }
        assert_eq!(set.len(), 4, "10.1.0.0/16 is in the first range already");
    }

    #[test]
    fn the_default_route_and_nothing() {
        assert!(!has(&PrefixSet::default(), "0.0.0.0/0") && PrefixSet::default().is_empty());
        let all = set(&["0.0.0.0/0 0..32"]);
        assert!(has(&all, "0.0.0.0/0") && has(&all, "203.0.113.7/32") && !has(&all, "::/0"));
        let default = set(&["0.0.0.0/0", "::/0 128..128"]);
        assert!(has(&default, "0.0.0.0/0") && !has(&default, "10.0.0.0/8"));
        assert!(!has(&default, "::/0") && has(&default, "2001:db8::1/128"));
    }

    #[test]
    fn texts_round_trip_and_errors_give_the_correct_form() {
        for (text, same) in [
            ("10.0.0.0/8 le 24", "10.0.0.0/8 8..24"),
            ("10.0.0.0/8  ge 16", "10.0.0.0/8 16..32"),
            ("2001:db8::/32 ge 40 le 48", "2001:db8::/32 40..48"),
        ] {
            assert_eq!(text.parse::<PrefixRange>().unwrap().to_string(), same);
        }
        for wrong in
            ["ge", "ge 7", "le 33", "ge 16 le", "ge 24 le 16", "le 24 ge 16", "ge 16 le 24 x", "eq 16"]
        {
            assert!(format!("10.0.0.0/8 {wrong}").parse::<PrefixRange>().is_err(), "{wrong}");
        }
        for text in ["10.0.0.0/8", "10.0.0.0/8 16..24", "::/0 0..128", "10.0.0.0/8 9..9"] {
            assert_eq!(text.parse::<PrefixRange>().unwrap().to_string(), text);
        }
        assert_eq!(" 10.0.0.0/8 \t exact ".parse::<PrefixRange>().unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(
            "10.0.0.0/8 7..24".parse::<PrefixRange>().unwrap_err(),
            "\"7..24\" are no lengths inside 10.0.0.0/8; write exact, or the shortest and the longest, from 8 to 32, such as \
             10.0.0.0/8 8..32"
        );
        for wrong in
            ["10.0.0.0/8 24..16", "10.0.0.0/8 lt 24", "10.0.0.0/8 8..33", "10.0.0.1/8", "", "10.0.0.0/8 16"]
        {
            assert!(wrong.parse::<PrefixRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn equality_does_not_see_the_order() {
        assert_eq!(set(&["10.0.0.0/8", "11.0.0.0/8", "10.0.0.0/8"]), set(&["11.0.0.0/8", "10.0.0.0/8"]));
        assert_ne!(set(&["10.0.0.0/8"]), set(&["10.0.0.0/8 8..9"]));
        assert_ne!(set(&["0.0.0.0/0"]), set(&["::/0"]));
    }

    /// Prefixes that often cover each other, in a few corners of the address space.
    fn prefix<F: Family>() -> impl Strategy<Value = Prefix<F>> {
        let corner = prop_oneof![Just(0u128), Just(u128::MAX), Just(0x2001_0db8 << 96), any::<u128>()];
        (corner, 0..16u128, 0..=F::WIDTH).prop_map(|(corner, low, len)| {
            let low = low << (128 - u32::from(len)).saturating_sub(2).min(124);
            Prefix::new(F::Bits::from_left(corner ^ low), len)
        })
    }

    fn range<F: Family>() -> impl Strategy<Value = (Prefix<F>, u8, u8)> {
        (prefix::<F>(), any::<u8>(), any::<u8>()).prop_map(|(prefix, a, b)| {
            let span = F::WIDTH - prefix.len() + 1;
            let (a, b) = (prefix.len() + a % span, prefix.len() + b % span);
            (prefix, a.min(b), a.max(b))
        })
    }

    fn as_naive<F: Family>(
        ranges: &[(Prefix<F>, u8, u8)],
        probes: &[Prefix<F>],
    ) -> Result<(), TestCaseError> {
        let set = PrefixSet::new(ranges.iter().map(|(p, a, b)| PrefixRange::new(p.any(), *a, *b).unwrap()));
        // Shortened members of the set are tested too, because random prefixes seldom hit it.
        let near = ranges.iter().flat_map(|(p, a, b)| {
            [p.truncate(p.len() / 2), *p, Prefix::new(p.bits(), *a), Prefix::new(p.bits(), *b)]
        });
        for prefix in probes.iter().copied().chain(near) {
            let naive = ranges.iter().any(|(p, a, b)| p.covers(prefix) && (*a..=*b).contains(&prefix.len()));
            prop_assert_eq!(set.contains(prefix), naive, "{} in {:?}", prefix, ranges);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_set_is_its_list(
            four in prop::collection::vec(range::<V4>(), 0..40),
            probes_four in prop::collection::vec(prefix::<V4>(), 0..40),
            six in prop::collection::vec(range::<V6>(), 0..40),
            probes_six in prop::collection::vec(prefix::<V6>(), 0..40),
        ) {
            as_naive(&four, &probes_four)?;
            as_naive(&six, &probes_six)?;
        }

        // Enough of them that the index has many places.
        #[test]
        fn a_large_set_is_its_list(ranges in prop::collection::vec((any::<u32>(), 8..=32u8), 600..700)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(bits, len)| (Prefix::<V4>::new(bits, len), len, len)).collect();
            as_naive(&ranges, &[])?;
        }
    }
}
