//! The table of validated ROA payloads, and the validation of a route (RFC 6811 section 2).
//!
//! A table never changes: readers share it, and a new one replaces it. A family's payloads are a
//! sorted array in which a prefix comes directly before what it covers. Each entry has the number of
//! the next shorter prefix that covers it, so one search finds all payloads that cover a route: an
//! index by leading bits leaves a few neighbours to search. That is 17 bytes for an IPv4 payload and
//! 29 for an IPv6 one, without a pointer.

use crate::aspa::Aspas;
use ribtide_prefix::{
    AnyPrefix, Bits, Families, Family, PREFETCH_BATCH, Prefix, for_each_family, per_family, prefetch,
};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::rtr::Payload;
use std::fmt;
use std::sync::Arc;

/// A validated ROA payload of one family. The order is that of [`Prefix`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vrp<F: Family> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// The longest permitted length.
    pub max_len: u8,
    /// The AS that may originate it; 0: none.
    pub asn: u32,
}

impl<F: Family> Vrp<F> {
    /// The form that carries its family as a value.
    pub fn payload(self) -> Payload {
        Payload { prefix: self.prefix.any(), max_len: self.max_len, asn: self.asn }
    }
}

per_family! {
    /// Payloads of a family.
    #[derive(Debug)]
    pub struct VrpList<F> = Vec<Vrp<F>>;
}

per_family! {
    /// Prefixes of a family: routes at or below them are concerned. Sorted, and none covers another.
    #[derive(Debug)]
    pub struct ChangedPrefixes<F> = Vec<Prefix<F>>;
}

/// The validation state of a route (RFC 6811 section 2). Displays as in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Validity {
    /// A payload covers the prefix and matches its length and its origin AS.
    Valid,
    /// Payloads cover the prefix, and none matches.
    Invalid,
    /// No payload covers the prefix.
    NotFound,
}

impl Validity {
    /// All states.
    pub const ALL: [Validity; 3] = [Validity::Valid, Validity::Invalid, Validity::NotFound];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Validity::Valid => "valid",
            Validity::Invalid => "invalid",
            Validity::NotFound => "not-found",
        }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The origin AS of a route; `None` (NONE in RFC 6811) when its AS_PATH ends in an AS_SET.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin(pub Option<u32>);

impl Origin {
    /// The origin of a route in a router of AS `local_asn`, which counts as the origin where the path is
    /// empty or ends within the own confederation (RFC 6811 section 2).
    pub fn of(path: AsPath<'_>, local_asn: u32) -> Origin {
        match path.segments().last() {
            None => Origin(Some(local_asn)),
            Some(last) if last.kind.is_confed() => Origin(Some(local_asn)),
            Some(_) => Origin(path.origin_as()),
        }
    }
}

/// No covering entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<F: Family> {
    bits: F::Bits,
    asn: u32,
    /// The last entry of the longest shorter prefix that covers this one, or [`NONE`].
    covering: u32,
    len: u8,
    max_len: u8,
    /// Whether the entry before has the same prefix.
    repeats: bool,
}

impl<F: Family> Entry<F> {
    fn prefix(&self) -> Prefix<F> {
        Prefix::new(self.bits, self.len)
    }

    #[inline]
    fn covers(&self, prefix: Prefix<F>) -> bool {
        self.len <= prefix.len() && prefix.bits().leading(self.len) == self.bits
    }

    fn vrp(&self) -> Vrp<F> {
        Vrp { prefix: self.prefix(), max_len: self.max_len, asn: self.asn }
    }
}

/// The payloads of a family.
#[derive(Debug)]
struct Table<F: Family> {
    entries: Box<[Entry<F>]>,
    index: Index,
}

impl<F: Family> Default for Table<F> {
    fn default() -> Self {
        Table { entries: Box::default(), index: Index::default() }
    }
}

/// Where entries with the same leading bits are.
#[derive(Debug, Default)]
struct Index {
    /// The entries before each bucket, and all of them at last; empty without entries.
    starts: Box<[u32]>,
    /// The number of the first bucket: its leading bits.
    first: u64,
    /// The bits of an address, of the first 64, that do not choose a bucket.
    shift: u32,
}

/// Entries for each bucket, on average of the space between the first and the last entry.
const BUCKET: usize = 4;

/// The first 64 bits of an address.
#[inline]
fn leading_bits<B: Bits>(bits: B) -> u64 {
    (bits.left() >> 64) as u64
}

impl Index {
    fn new<F: Family>(entries: &[Entry<F>]) -> Index {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Index::default() };
        let (low, high) = (leading_bits(first.bits), leading_bits(last.bits));
        let most = entries.len().div_ceil(BUCKET) as u64;
        let shift = (0..64).find(|shift| (high >> shift) - (low >> shift) < most).unwrap_or(63);
        let mut index = Index { starts: Box::default(), first: low >> shift, shift };
        let mut starts = Vec::with_capacity((high >> shift) as usize - index.first as usize + 2);
        for (at, entry) in entries.iter().enumerate() {
            let bucket = index.bucket(entry.bits).unwrap_or_default();
            starts.extend(std::iter::repeat_n(at as u32, (bucket + 1).saturating_sub(starts.len())));
        }
        starts.push(entries.len() as u32);
        index.starts = starts.into();
        index
    }

    /// The bucket of an address; `None`: it is before the first.
    #[inline]
    fn bucket<B: Bits>(&self, bits: B) -> Option<usize> {
        (leading_bits(bits) >> self.shift).checked_sub(self.first).map(|bucket| bucket as usize)
    }
}

impl<F: Family> Table<F> {
    /// The entries between which the place of these bits is.
    #[inline]
    fn bucket(&self, bits: F::Bits) -> (usize, usize) {
        let Index { starts, .. } = &self.index;
        let Some(bucket) = self.index.bucket(bits) else { return (0, 0) };
        match starts.get(bucket..).and_then(|starts| starts.first_chunk()) {
            Some([from, to]) => (*from as usize, *to as usize),
            None => (self.entries.len(), self.entries.len()),
        }
    }

    /// The number of entries whose prefix is not after this one.
    #[inline]
    fn not_after(&self, prefix: Prefix<F>) -> usize {
        let (from, to) = self.bucket(prefix.bits());
        let bucket = self.entries.get(from..to).unwrap_or_default();
        let (bits, len) = (prefix.bits(), prefix.len());
        // No branch depends on an entry: it would be mispredicted half of the time.
        from + bucket
            .partition_point(|entry| (entry.bits < bits) | ((entry.bits == bits) & (entry.len <= len)))
    }

    /// Reads the memory that look-ups of these prefixes need. Each loop has little but reads that do not depend on each
    /// other, so that a core waits for many of them at the same time.
    fn prefetch(&self, prefixes: &[Prefix<F>]) {
        for some in prefixes.chunks(PREFETCH_BATCH) {
            let mut buckets = [(0, 0); PREFETCH_BATCH];
            for (bucket, prefix) in buckets.iter_mut().zip(some) {
                *bucket = self.bucket(prefix.bits());
            }
            let mut read = 0;
            for (from, to) in buckets.iter().take(some.len()) {
                // The entry before a bucket often covers it. Most buckets have no line of the cache between these.
                for at in [from.wrapping_sub(1), from.midpoint(*to), to.wrapping_sub(1)] {
                    read |= self.entries.get(at).map_or(0, |entry| entry.len);
                }
            }
            prefetch(read);
        }
    }

    /// The validation state of a route.
    #[inline]
    fn validate(&self, prefix: Prefix<F>, origin: Origin) -> Validity {
        let mut state = Validity::NotFound;
        let mut at = self.not_after(prefix).wrapping_sub(1);
        // "No route can be Matched by a VRP whose ASN is zero" (RFC 6811 section 2).
        let origin = origin.0.unwrap_or(0);
        while let Some(entry) = self.entries.get(at) {
            let covers = entry.covers(prefix);
            if covers & (prefix.len() <= entry.max_len) & (entry.asn == origin) & (origin != 0) {
                return Validity::Valid;
            }
            // What covers the route is this entry or covers this entry.
            (state, at) = match covers {
                true if entry.repeats => (Validity::Invalid, at - 1),
                true => (Validity::Invalid, entry.covering as usize),
                false => (state, entry.covering as usize),
            };
        }
        state
    }

    /// The payloads that cover a prefix, from the longest to the shortest.
    #[inline]
    fn covering(&self, prefix: Prefix<F>) -> Covering<'_, F> {
        let at = self.not_after(prefix).checked_sub(1).unwrap_or(NONE as usize);
        let mut covering = Covering { entries: &self.entries, at };
        // The payloads that cover it are this entry or among those that cover this entry.
        while let Some(entry) = covering.entry()
            && !entry.covers(prefix)
        {
            covering.at = entry.covering as usize;
        }
        covering
    }
}

per_family! {
    #[derive(Debug)]
    struct Tables<F> = Table<F>;
}

/// The payloads and ASPA records in use, each once. Immutable.
#[derive(Debug, Default)]
pub struct Vrps(Families<Tables>, Arc<Aspas>);

impl Vrps {
    /// A table of these payloads, in any order and with repetitions. O(n log n).
    pub fn new(lists: Families<VrpList>) -> Vrps {
        let Families { v4, v6 } = lists;
        Vrps(Families { v4: Table::new(v4), v6: Table::new(v6) }, Arc::default())
    }

    /// The same payloads with these ASPA records.
    pub fn with_aspas(self, aspas: Aspas) -> Vrps {
        Vrps(self.0, Arc::new(aspas))
    }

    /// The same payloads and records; equal ASPA records are those of `other`, so that [`Vrps::has_same_aspas`] shows it.
    pub fn sharing_aspas(self, other: &Vrps) -> Vrps {
        match self.1 == other.1 {
            true => Vrps(self.0, other.1.clone()),
            false => self,
        }
    }

    /// The ASPA records.
    pub fn aspas(&self) -> &Aspas {
        &self.1
    }

    /// Whether both have the same ASPA records, if one was made by [`Vrps::sharing_aspas`] of the other.
    pub fn has_same_aspas(&self, other: &Vrps) -> bool {
        Arc::ptr_eq(&self.1, &other.1)
    }

    /// The number of payloads of a family.
    pub fn len<F: Family>(&self) -> usize {
        self.0.get::<F>().entries.len()
    }

    /// Whether there is no payload.
    pub fn is_empty(&self) -> bool {
        self.0.v4.entries.is_empty() && self.0.v6.entries.is_empty()
    }

    /// The payloads of a family, sorted.
    pub fn iter<F: Family>(&self) -> impl Iterator<Item = Vrp<F>> + '_ {
        self.0.get::<F>().entries.iter().map(Entry::vrp)
    }

    /// The payloads of a family after this one, sorted; all for `None`. For pages.
    pub fn after<F: Family>(&self, last: Option<Vrp<F>>) -> impl Iterator<Item = Vrp<F>> + '_ {
        let entries = &self.0.get::<F>().entries;
        let from = last.map_or(0, |last| entries.partition_point(|entry| entry.vrp() <= last));
        entries[from..].iter().map(Entry::vrp)
    }

    /// The payloads that cover a prefix, from the longest to the shortest.
    pub fn covering<F: Family>(&self, prefix: Prefix<F>) -> Covering<'_, F> {
        self.0.get::<F>().covering(prefix)
    }

    /// Reads the memory that [`Vrps::validate`] needs, for prefixes that follow soon.
    pub fn prefetch<F: Family>(&self, prefixes: &[Prefix<F>]) {
        self.0.get::<F>().prefetch(prefixes);
    }

    /// The validation state of a route.
    pub fn validate<F: Family>(&self, prefix: Prefix<F>, origin: Origin) -> Validity {
        self.0.get::<F>().validate(prefix, origin)
    }

    /// As [`Vrps::validate`], for either family.
    pub fn validate_any(&self, prefix: AnyPrefix, origin: Origin) -> Validity {
        match prefix {
            AnyPrefix::V4(prefix) => self.validate(prefix, origin),
            AnyPrefix::V6(prefix) => self.validate(prefix, origin),
        }
    }

    /// The payloads that cover a prefix of either family, from the longest to the shortest.
    pub fn covering_any(&self, prefix: AnyPrefix) -> Vec<Payload> {
        match prefix {
            AnyPrefix::V4(prefix) => self.covering(prefix).map(Vrp::payload).collect(),
            AnyPrefix::V6(prefix) => self.covering(prefix).map(Vrp::payload).collect(),
        }
    }

    /// The prefixes whose payloads differ from those of `other`. A route that is not at or below one
    /// of them has the same state in both. O(n).
    pub fn changes_from(&self, other: &Vrps) -> Families<ChangedPrefixes> {
        let mut changed: Families<ChangedPrefixes> = Families::default();
        for_each_family!(F => *changed.get_mut::<F>() = changes(other.0.get::<F>(), self.0.get::<F>()));
        changed
    }
}

impl<F: Family> Table<F> {
    fn new(mut vrps: Vec<Vrp<F>>) -> Table<F> {
        vrps.sort_unstable();
        vrps.dedup();
        let mut entries: Box<[Entry<F>]> = vrps
            .into_iter()
            .map(|Vrp { prefix, max_len, asn }| Entry {
                bits: prefix.bits(),
                asn,
                covering: NONE,
                len: prefix.len(),
                max_len,
                repeats: false,
            })
            .collect();
        // The last entries of the prefixes that cover the present one, the shortest first.
        let mut open: Vec<u32> = Vec::new();
        let mut begin = 0;
        while let Some(first) = entries.get(begin) {
            let prefix = first.prefix();
            while let Some(last) = open.last()
                && !entries[*last as usize].prefix().covers(prefix)
            {
                open.pop();
            }
            let covering = open.last().copied().unwrap_or(NONE);
            let mut end = begin;
            while let Some(entry) = entries.get_mut(end)
                && entry.prefix() == prefix
            {
                entry.covering = covering;
                entry.repeats = end > begin;
                end += 1;
            }
            open.push((end - 1) as u32);
            begin = end;
        }
        Table { index: Index::new(&entries), entries }
    }
}

/// The prefixes whose payloads differ.
fn changes<F: Family>(old: &Table<F>, new: &Table<F>) -> Vec<Prefix<F>> {
    let mut changed: Vec<Prefix<F>> = Vec::new();
    let (mut olds, mut news) =
        (old.entries.iter().map(Entry::vrp).peekable(), new.entries.iter().map(Entry::vrp).peekable());
    loop {
        let vrp = match (olds.peek(), news.peek()) {
            (Some(a), Some(b)) if a == b => {
                olds.next();
                news.next();
                continue;
            }
            (Some(a), Some(b)) if a < b => olds.next(),
            (Some(_), None) => olds.next(),
            (_, Some(_)) => news.next(),
            (None, None) => return changed,
        };
        let Some(Vrp { prefix, .. }) = vrp else { return changed };
        // Sorted, so what covers it came before.
        if changed.last().is_none_or(|last| !last.covers(prefix)) {
            changed.push(prefix);
        }
    }
}

/// The payloads that cover a prefix, from the longest to the shortest.
#[derive(Clone, Debug)]
pub struct Covering<'a, F: Family> {
    entries: &'a [Entry<F>],
    at: usize,
}

impl<F: Family> Covering<'_, F> {
    fn entry(&self) -> Option<&Entry<F>> {
        self.entries.get(self.at)
    }
}

impl<F: Family> Iterator for Covering<'_, F> {
    type Item = Vrp<F>;

    fn next(&mut self) -> Option<Vrp<F>> {
        let entry = *self.entry()?;
        self.at = if entry.repeats { self.at - 1 } else { entry.covering as usize };
        Some(entry.vrp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ribtide_prefix::{Rng, V4, V6};

    fn table(vrps: &[(&str, u8, u32)]) -> Vrps {
        let mut lists: Families<VrpList> = Families::default();
        for (prefix, max_len, asn) in vrps {
            let (max_len, asn) = (*max_len, *asn);
            match prefix.parse().unwrap() {
                AnyPrefix::V4(prefix) => lists.v4.push(Vrp { prefix, max_len, asn }),
                AnyPrefix::V6(prefix) => lists.v6.push(Vrp { prefix, max_len, asn }),
            }
        }
        Vrps::new(lists)
    }

    fn state(vrps: &Vrps, prefix: &str, origin: Option<u32>) -> Validity {
        vrps.validate_any(prefix.parse().unwrap(), Origin(origin))
    }

    /// The sentences of RFC 6811 section 2, one by one.
    #[test]
    fn validity_is_that_of_the_rfc() {
        let vrps = table(&[
            ("10.0.0.0/8", 16, 1),
            ("10.1.0.0/16", 16, 2),
            ("10.1.0.0/16", 24, 3),
            ("192.0.2.0/24", 24, 0),
            ("2001:db8::/32", 48, 1),
        ]);
        for (prefix, origin, expected) in [
            ("10.0.0.0/8", Some(1), Validity::Valid),
            ("10.0.0.0/8", Some(2), Validity::Invalid),
            ("10.2.0.0/16", Some(1), Validity::Valid),
            ("10.2.0.0/17", Some(1), Validity::Invalid),
            ("10.1.0.0/16", Some(1), Validity::Valid),
            ("10.1.0.0/16", Some(2), Validity::Valid),
            ("10.1.1.0/24", Some(2), Validity::Invalid),
            ("10.1.1.0/24", Some(3), Validity::Valid),
            ("10.1.1.0/25", Some(3), Validity::Invalid),
            ("10.0.0.0/7", Some(1), Validity::NotFound),
            ("11.0.0.0/8", Some(1), Validity::NotFound),
            // NONE matches nothing, but is covered; AS 0 permits none, not even itself.
            ("10.0.0.0/8", None, Validity::Invalid),
            ("11.0.0.0/8", None, Validity::NotFound),
            ("192.0.2.0/24", Some(0), Validity::Invalid),
            ("192.0.2.0/24", Some(7), Validity::Invalid),
            ("2001:db8:1::/48", Some(1), Validity::Valid),
            ("2001:db8:1::/49", Some(1), Validity::Invalid),
            ("2001:db9::/32", Some(1), Validity::NotFound),
        ] {
            assert_eq!(state(&vrps, prefix, origin), expected, "{prefix} {origin:?}");
        }
        assert_eq!((vrps.len::<V4>(), vrps.len::<V6>()), (4, 1));
        assert_eq!((size_of::<Entry<V4>>(), size_of::<Entry<V6>>()), (16, 28));
    }

    #[test]
    fn origin_is_that_of_the_last_segment() {
        let of = |value: &[u8]| Origin::of(AsPath::new(value), 9).0;
        assert_eq!(of(&[]), Some(9), "empty");
        assert_eq!(of(&[2, 2, 0, 0, 0, 1, 0, 0, 0, 2]), Some(2), "AS_SEQUENCE");
        assert_eq!(of(&[2, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 2]), None, "AS_SET");
        assert_eq!(of(&[2, 1, 0, 0, 0, 1, 3, 1, 0, 0, 0, 2]), Some(9), "AS_CONFED_SEQUENCE");
        assert_eq!(of(&[4, 1, 0, 0, 0, 2]), Some(9), "AS_CONFED_SET");
        assert_eq!(of(&[3, 1, 0, 0, 0, 2, 2, 1, 0, 0, 0, 1]), Some(1), "after a confederation");
    }

    fn vrps(n: usize) -> impl Strategy<Value = Vec<Vrp<V4>>> {
        let vrp = (any::<u8>(), 4u8..=12, 0u8..4, 0u32..4).prop_map(|(top, len, more, asn)| Vrp {
            prefix: Prefix::new(u32::from(top) << 24 | 0x0030_0000 & (u32::from(top) << 20), len),
            max_len: len + more,
            asn,
        });
        prop::collection::vec(vrp, 0..n)
    }

    fn table_v4(v4: Vec<Vrp<V4>>) -> Vrps {
        Vrps::new(Families { v4, v6: Vec::new() })
    }

    /// RFC 6811's pseudocode, over a list.
    fn oracle(vrps: &[Vrp<V4>], prefix: Prefix<V4>, origin: Origin) -> Validity {
        let covers = |vrp: &&Vrp<V4>| vrp.prefix.covers(prefix);
        let matches =
            |vrp: &Vrp<V4>| prefix.len() <= vrp.max_len && vrp.asn != 0 && Some(vrp.asn) == origin.0;
        let covering: Vec<&Vrp<V4>> = vrps.iter().filter(covers).collect();
        match covering.iter().any(|vrp| matches(vrp)) {
            true => Validity::Valid,
            false if covering.is_empty() => Validity::NotFound,
            false => Validity::Invalid,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn validity_equals_that_of_a_list(list in vrps(60), routes in prop::collection::vec((any::<u16>(), 2u8..=16, 0u32..5), 1..60)) {
            let vrps = table_v4(list.clone());
            for (top, len, asn) in routes {
                let (prefix, origin) = (Prefix::new(u32::from(top) << 16, len), Origin(Some(asn).filter(|asn| *asn < 4)));
                prop_assert_eq!(vrps.validate(prefix, origin), oracle(&list, prefix, origin));
                let covering: Vec<Vrp<V4>> = vrps.covering(prefix).collect();
                prop_assert!(covering.is_sorted_by(|a, b| a.prefix.len() >= b.prefix.len()));
                let mut expected: Vec<Vrp<V4>> = list.iter().copied().filter(|vrp| vrp.prefix.covers(prefix)).collect();
                expected.sort_unstable();
                expected.dedup();
                let mut covering = covering;
                covering.sort_unstable();
                prop_assert_eq!(covering, expected);
            }
        }

        /// No route outside of the changed prefixes has another state.
        #[test]
        fn changes_name_every_route_with_another_state(old in vrps(40), new in vrps(40), keep in 0usize..40) {
            let mut after: Vec<Vrp<V4>> = old.iter().copied().take(keep).collect();
            after.extend(new);
            let (before, after) = (table_v4(old), table_v4(after));
            let changed = after.changes_from(&before).v4;
            prop_assert!(changed.is_sorted());
            for top in 0..=u16::MAX {
                if top & 0x0f0f != 0 { continue; }
                for len in [4, 8, 12, 16] {
                    let prefix: Prefix<V4> = Prefix::new(u32::from(top) << 16, len);
                    let concerned = changed.iter().any(|changed| changed.covers(prefix));
                    for asn in 0..4 {
                        let origin = Origin(Some(asn));
                        prop_assert!(concerned || before.validate(prefix, origin) == after.validate(prefix, origin));
                    }
                }
            }
            prop_assert!(after.changes_from(&after).v4.is_empty());
        }
    }

    /// The index finds the place that a search of all entries finds.
    fn places<F: Family>(entries: &[Vrp<F>], queries: impl Iterator<Item = Prefix<F>>) {
        let table = Table::new(entries.to_vec());
        let queries: Vec<_> = queries.collect();
        // It reads memory, and nothing beyond it.
        table.prefetch(&queries);
        for query in queries {
            let place = table.entries.partition_point(|entry| entry.prefix() <= query);
            assert_eq!(table.not_after(query), place, "{query:?} of {}", entries.len());
        }
    }

    #[test]
    fn index_finds_the_place_of_any_prefix() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let count = [0, 1, 2, 9, 300, 5000][seed as usize % 6];
            // Sparse, dense in a corner, and all in one bucket.
            let spread = [0, 8, 20, 44][seed as usize / 6 % 4];
            let mut bits = |len: u8| Prefix::<V4>::new((rng.next_u64() >> spread) as u32, len).bits();
            let prefixes: Vec<Prefix<V4>> =
                (0..count).map(|n| Prefix::new(bits(32), 8 + (n % 25) as u8)).collect();
            let entries: Vec<_> =
                prefixes.iter().map(|prefix| Vrp { prefix: *prefix, max_len: 32, asn: 1 }).collect();
            let others: Vec<_> = (0..500).map(|n| Prefix::new(bits(32), (n % 33) as u8)).collect();
            let ends = [Prefix::default_route(), Prefix::new(u32::MAX, 32), Prefix::new(0, 32)];
            places(&entries, prefixes.iter().copied().chain(others).chain(ends));
            let wide = |prefix: &Prefix<V4>| {
                let bits = 0x2a_u128 << 120 | prefix.bits().left() >> 16;
                Prefix::<V6>::new(bits.to_be_bytes(), prefix.len() + 32)
            };
            let prefixes: Vec<_> = prefixes.iter().map(wide).collect();
            let entries: Vec<_> =
                prefixes.iter().map(|prefix| Vrp { prefix: *prefix, max_len: 128, asn: 1 }).collect();
            let ends = [Prefix::default_route(), Prefix::new([0xff; 16], 128)];
            places(&entries, prefixes.iter().copied().chain(ends));
        }
    }

    #[test]
    fn pages_continue_after_the_last() {
        let vrps = table(&[("10.0.0.0/8", 8, 1), ("10.0.0.0/8", 8, 2), ("11.0.0.0/8", 9, 1)]);
        let all: Vec<Vrp<V4>> = vrps.iter().collect();
        assert_eq!(vrps.after(None).collect::<Vec<_>>(), all);
        assert_eq!(vrps.after(Some(all[0])).collect::<Vec<_>>(), all[1..]);
        assert_eq!(vrps.after(Some(all[2])).count(), 0);
    }
}
