//! A set of path attributes: one immutable allocation that all paths with these attributes share.
//!
//! The attributes stay in wire form: sending is a copy, and unknown attributes are preserved. The
//! values that rank a path are decoded once; the others are read on demand. There are millions of
//! sets, and memory costs more than content: hence one allocation and an 8-byte handle.

use ribtide_wire::bgp::attribute::{
    Attribute, Attributes, Communities, Community, ExtendedCommunities, ExtendedCommunity, Origin, aigp,
    code, flags, number, router_ids,
};
use ribtide_wire::bgp::{AsPath, NextHop, build};
use std::collections::HashSet;
use std::ffi::c_void;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use triomphe::ThinArc;

/// The handle of shared path attributes: 8 bytes, and a clone is one atomic increment.
///
/// Two sets are equal when their bytes and next hops are; the hash decides nearly every comparison.
#[derive(Clone)]
pub struct AttrSet(ThinArc<Facts, u8>);

/// Decoded values, and the layout of the bytes after them: the head, which is the next hop and perhaps the
/// distance to it, then the attributes.
struct Facts {
    hash: u32,
    neighbor_as: u32,
    /// 0 when absent, as [`Facts::flags`] says.
    local_pref: u32,
    /// 0 when absent, as [`Facts::flags`] says.
    med: u32,
    as_hops: u16,
    cluster_list_len: u16,
    flags: u16,
    head_len: u8,
}

/// The bits of [`Facts::flags`]; the two lowest are ORIGIN.
mod flag {
    pub(super) const ORIGIN: u16 = 0b11;
    pub(super) const LOCAL_PREF: u16 = 1 << 2;
    pub(super) const MED: u16 = 1 << 3;
    pub(super) const NO_EXPORT: u16 = 1 << 4;
    pub(super) const NO_ADVERTISE: u16 = 1 << 5;
    pub(super) const NO_EXPORT_SUBCONFED: u16 = 1 << 6;
    pub(super) const ORIGINATOR_ID: u16 = 1 << 7;
    pub(super) const LLGR_STALE: u16 = 1 << 8;
    pub(super) const NO_LLGR: u16 = 1 << 9;
    pub(super) const AIGP: u16 = 1 << 10;
}

/// Bytes of the distance to the next hop, the last of a head.
const DISTANCE: usize = 4;

impl AttrSet {
    /// A set from attributes in canonical wire form: AS numbers of four bytes, each type once in ascending
    /// order, and neither NEXT_HOP, MP_REACH_NLRI nor MP_UNREACH_NLRI. Their values must have been checked
    /// (RFC 7606); here a value of wrong length counts as absent.
    pub fn new(attributes: &[u8], next_hop: NextHop) -> AttrSet {
        let mut content = Content::default();
        content.begin(next_hop);
        content.bytes.extend_from_slice(attributes);
        AttrSet::of(&content, content.hash())
    }

    /// A set with this content and its hash.
    pub(crate) fn of(content: &Content, hash: u32) -> AttrSet {
        let facts = Facts::read(content.attributes(), content.head_len, hash);
        AttrSet(ThinArc::from_header_and_slice(facts, &content.bytes))
    }

    /// Whether it has this content.
    pub(crate) fn has_content(&self, content: &Content) -> bool {
        self.facts().head_len == content.head_len && self.0.slice == *content.bytes
    }

    fn facts(&self) -> &Facts {
        &self.0.header.header
    }

    fn has(&self, flag: u16) -> bool {
        self.facts().flags & flag != 0
    }

    /// The attributes in wire form, as [`AttrSet::new`] describes it.
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice[usize::from(self.facts().head_len)..]
    }

    /// The attributes one by one.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::new(self.bytes())
    }

    /// The value of the attribute of this type, if there is one.
    pub fn value(&self, code: u8) -> Option<&[u8]> {
        self.attributes().find(|a| a.code == code).map(|a| a.value)
    }

    /// The next hop, from NEXT_HOP or MP_REACH_NLRI.
    pub fn next_hop(&self) -> NextHop {
        read_next_hop(self.head())
    }

    fn head(&self) -> &[u8] {
        &self.0.slice[..usize::from(self.facts().head_len)]
    }

    /// Hash of the content, equal wherever the content is equal within this process. All its bits may be used to
    /// find a place in a table; 32 of them are independent.
    pub fn content_hash(&self) -> u64 {
        spread(self.facts().hash)
    }

    /// ORIGIN.
    pub fn origin(&self) -> Origin {
        match self.facts().flags & flag::ORIGIN {
            0 => Origin::Igp,
            1 => Origin::Egp,
            _ => Origin::Incomplete,
        }
    }

    /// LOCAL_PREF, if present.
    pub fn local_pref(&self) -> Option<u32> {
        self.has(flag::LOCAL_PREF).then_some(self.facts().local_pref)
    }

    /// MULTI_EXIT_DISC, if present.
    pub fn med(&self) -> Option<u32> {
        self.has(flag::MED).then_some(self.facts().med)
    }

    /// Length of AS_PATH as the decision process counts it: an AS_SET is one (RFC 4271 section 9.1.2.2 a),
    /// confederation segments are none (RFC 5065 section 5.3).
    pub fn as_hops(&self) -> u16 {
        self.facts().as_hops
    }

    /// The AS that MED is compared within (`neighborAS` of RFC 4271 section 9.1.2.2 c): the first of AS_PATH.
    /// 0 stands for our own AS: the path is empty or begins with an AS_SET.
    pub fn neighbor_as(&self) -> u32 {
        self.facts().neighbor_as
    }

    /// ORIGINATOR_ID, if present. Searched among the attributes, because only ties need it.
    #[inline]
    pub fn originator_id(&self) -> Option<Ipv4Addr> {
        if self.has(flag::ORIGINATOR_ID) { self.read_originator_id() } else { None }
    }

    #[inline(never)]
    fn read_originator_id(&self) -> Option<Ipv4Addr> {
        router_ids(self.value(code::ORIGINATOR_ID)?).next()
    }

    /// The accumulated IGP metric (RFC 7311), if present. Searched among the attributes, because few paths have it.
    #[inline]
    pub fn aigp(&self) -> Option<u64> {
        if self.has(flag::AIGP) { self.read_aigp() } else { None }
    }

    #[cold]
    fn read_aigp(&self) -> Option<u64> {
        self.value(code::AIGP).and_then(aigp::metric)
    }

    /// Whether it has an accumulated IGP metric.
    #[inline]
    pub fn has_aigp(&self) -> bool {
        self.has(flag::AIGP)
    }

    /// The distance to the next hop, which a speaker that sets itself as the next hop adds to the accumulated IGP metric
    /// (RFC 7311 section 3.4.3), or [`UNKNOWN_DISTANCE`](crate::message::UNKNOWN_DISTANCE). `None`: the route is originated
    /// here, or a policy has set the metric.
    pub fn distance(&self) -> Option<u32> {
        // A next hop alone has 4, 16 or 32 bytes.
        let head = self.head();
        let has = head.len() > DISTANCE && !head.len().is_multiple_of(16);
        head.last_chunk().filter(|_| has).map(|distance| u32::from_be_bytes(*distance))
    }

    /// A set with another distance or none, and else the same. It differs from those of other distances.
    pub fn with_distance(&self, distance: Option<u32>) -> AttrSet {
        let mut content = Content::default();
        content.begin(self.next_hop());
        content.add_distance(distance);
        content.bytes.extend_from_slice(self.bytes());
        AttrSet::of(&content, content.hash())
    }

    /// How many cluster ids CLUSTER_LIST holds; 0 when absent (RFC 4456 section 9).
    pub fn cluster_list_len(&self) -> u16 {
        self.facts().cluster_list_len
    }

    /// The lowest of its link bandwidths, in bytes per second (RFC 10005 has the lowest count); `None` without one.
    pub fn link_bandwidth(&self) -> Option<f32> {
        let communities = ExtendedCommunities::new(self.value(code::EXTENDED_COMMUNITIES)?);
        communities.iter().filter_map(ExtendedCommunity::link_bandwidth).reduce(f32::min)
    }

    /// Whether the community NO_EXPORT is present (RFC 1997).
    pub fn no_export(&self) -> bool {
        self.has(flag::NO_EXPORT)
    }

    /// Whether the community NO_ADVERTISE is present (RFC 1997).
    pub fn no_advertise(&self) -> bool {
        self.has(flag::NO_ADVERTISE)
    }

    /// Whether the community NO_EXPORT_SUBCONFED is present (RFC 1997).
    pub fn no_export_subconfed(&self) -> bool {
        self.has(flag::NO_EXPORT_SUBCONFED)
    }

    /// Whether the community LLGR_STALE is present: a long-lived stale route (RFC 9494 section 3.2).
    #[inline]
    pub fn llgr_stale(&self) -> bool {
        self.has(flag::LLGR_STALE)
    }

    /// Whether the community NO_LLGR is present (RFC 9494 section 3.3).
    pub fn no_llgr(&self) -> bool {
        self.has(flag::NO_LLGR)
    }

    /// The same set with another community.
    pub fn with_community(&self, community: Community) -> AttrSet {
        let mut content = Content::default();
        content.begin(self.next_hop());
        content.add_distance(self.distance());
        let present = self.attributes().find(|attribute| attribute.code == code::COMMUNITIES);
        let (flags, list) =
            present.map_or((flags::OPTIONAL | flags::TRANSITIVE, &[][..]), |a| (a.flags, a.value));
        let list = [list, &community.0.to_be_bytes()].concat();
        content.push(&Attribute { flags, code: code::COMMUNITIES, value: &list });
        let others = self.attributes().filter(|attribute| attribute.code != code::COMMUNITIES);
        others.for_each(|attribute| content.push(&attribute));
        content.sort();
        AttrSet::of(&content, content.hash())
    }

    /// Whether both are the same allocation. Equal sets need not be.
    pub fn ptr_eq(a: &AttrSet, b: &AttrSet) -> bool {
        a.as_ptr() == b.as_ptr()
    }

    /// Names the allocation as long as the handle lives.
    pub fn as_ptr(&self) -> *const c_void {
        self.0.as_ptr()
    }

    /// The number of handles. Where one owner makes all of them, 1 means that no other exists.
    pub fn handles(&self) -> usize {
        ThinArc::strong_count(&self.0)
    }

    /// Bytes of memory it takes, without the allocator's own.
    pub fn memory(&self) -> usize {
        let (count, len) = (size_of::<usize>(), size_of::<usize>());
        (count + size_of::<Facts>() + len + self.0.slice.len()).next_multiple_of(align_of::<usize>())
    }
}

impl Facts {
    fn read(attributes: &[u8], head_len: u8, hash: u32) -> Facts {
        let mut facts = Facts {
            hash,
            neighbor_as: 0,
            local_pref: 0,
            med: 0,
            as_hops: 0,
            cluster_list_len: 0,
            head_len,
            flags: Origin::Incomplete as u16,
        };
        for attribute in Attributes::new(attributes) {
            let value = attribute.value;
            match attribute.code {
                code::ORIGIN => {
                    let origin = Origin::from_value(value).unwrap_or(Origin::Incomplete);
                    facts.flags = facts.flags & !flag::ORIGIN | origin as u16;
                }
                code::AS_PATH => {
                    let path = AsPath::new(value);
                    facts.as_hops = u16::try_from(path.hop_count()).unwrap_or(u16::MAX);
                    facts.neighbor_as = path.neighbor_as().unwrap_or(0);
                }
                code::MED => facts.number(flag::MED, number(value), |facts| &mut facts.med),
                code::LOCAL_PREF => {
                    facts.number(flag::LOCAL_PREF, number(value), |facts| &mut facts.local_pref);
                }
                code::COMMUNITIES => facts.read_communities(Communities::new(value)),
                code::ORIGINATOR_ID => facts.flags |= flag::ORIGINATOR_ID,
                code::AIGP if aigp::metric(value).is_some() => facts.flags |= flag::AIGP,
                code::CLUSTER_LIST => facts.cluster_list_len = router_ids(value).count() as u16,
                _ => {}
            }
        }
        facts
    }

    fn number(&mut self, flag: u16, value: Option<u32>, field: impl FnOnce(&mut Facts) -> &mut u32) {
        if let Some(value) = value {
            self.flags |= flag;
            *field(self) = value;
        }
    }

    fn read_communities(&mut self, communities: Communities<'_>) {
        for community in communities.iter() {
            self.flags |= match community {
                Community::NO_EXPORT => flag::NO_EXPORT,
                Community::NO_ADVERTISE => flag::NO_ADVERTISE,
                Community::NO_EXPORT_SUBCONFED => flag::NO_EXPORT_SUBCONFED,
                Community::LLGR_STALE => flag::LLGR_STALE,
                Community::NO_LLGR => flag::NO_LLGR,
                _ => 0,
            }
        }
    }
}

/// The content of a set, assembled in reused memory, because an equal set usually exists.
#[derive(Default)]
pub(crate) struct Content {
    /// The head, then the attributes.
    bytes: Vec<u8>,
    head_len: u8,
    /// The last attribute's type, and whether the types ascend so far.
    last: u8,
    unordered: bool,
    /// Scratch for [`Content::sort`]: types with their ranges, and the sorted bytes.
    places: Vec<(u8, Range<usize>)>,
    ordered: Vec<u8>,
}

impl Content {
    /// Clears it, but for this next hop.
    #[inline]
    pub(crate) fn begin(&mut self, next_hop: NextHop) {
        self.bytes.clear();
        match next_hop {
            NextHop::V4(addr) => self.bytes.extend_from_slice(&addr.octets()),
            NextHop::V6 { global, link_local } => {
                self.bytes.extend_from_slice(&global.octets());
                self.bytes.extend(link_local.iter().flat_map(Ipv6Addr::octets));
            }
        }
        self.head_len = self.bytes.len() as u8;
        (self.last, self.unordered) = (0, false);
    }

    /// Adds the distance to the next hop, directly after [`Content::begin`].
    fn add_distance(&mut self, distance: Option<u32>) {
        self.bytes.extend(distance.iter().flat_map(|distance| distance.to_be_bytes()));
        self.head_len = self.bytes.len() as u8;
    }

    /// Adds an attribute.
    pub(crate) fn push(&mut self, attribute: &Attribute<'_>) {
        let Attribute { flags, code, value } = *attribute;
        self.unordered |= code < self.last;
        self.last = code;
        if code == code::LARGE_COMMUNITIES
            && let Some(value) = without_repeats(value)
        {
            return build::attribute(&mut self.bytes, flags, code, &value);
        }
        build::attribute(&mut self.bytes, flags, code, value);
    }

    /// Adds attributes in order, each in the form that [`Content::push`] gives it.
    #[inline]
    pub(crate) fn extend(&mut self, attributes: [&[u8]; 2]) {
        attributes.iter().for_each(|bytes| self.bytes.extend_from_slice(bytes));
    }

    /// Sorts the attributes by type; nearly all peers send them sorted.
    #[inline]
    pub(crate) fn sort(&mut self) {
        if self.unordered {
            self.sort_unordered();
        }
    }

    #[cold]
    fn sort_unordered(&mut self) {
        self.places.clear();
        let mut attributes = Attributes::new(&self.bytes[usize::from(self.head_len)..]);
        let mut begin = usize::from(self.head_len);
        while let Some(attribute) = attributes.next() {
            let end = self.bytes.len() - attributes.remainder().len();
            self.places.push((attribute.code, begin..end));
            begin = end;
        }
        self.places.sort_unstable_by_key(|(code, _)| *code);
        self.ordered.clear();
        self.ordered.extend_from_slice(&self.bytes[..usize::from(self.head_len)]);
        for (_, place) in &self.places {
            self.ordered.extend_from_slice(&self.bytes[place.clone()]);
        }
        std::mem::swap(&mut self.bytes, &mut self.ordered);
        self.unordered = false;
    }

    /// Hash of the content: the same in every thread of this process, and not predictable from outside it.
    pub(crate) fn hash(&self) -> u32 {
        let seed = foldhash::SharedSeed::global_random();
        let mut hasher = foldhash::quality::SeedableRandomState::with_seed(0, seed).build_hasher();
        hasher.write(&self.bytes);
        hasher.finish() as u32
    }

    /// The attributes, in wire form.
    pub(crate) fn attributes(&self) -> &[u8] {
        &self.bytes[usize::from(self.head_len)..]
    }
}

/// The next hop that [`Content::begin`] wrote, with or without a distance after it.
fn read_next_hop(bytes: &[u8]) -> NextHop {
    let v6 = |bytes: &[u8; 16]| Ipv6Addr::from(*bytes);
    match bytes.split_first_chunk::<16>() {
        Some((global, local)) => {
            NextHop::V6 { global: v6(global), link_local: local.first_chunk::<16>().map(v6) }
        }
        None => NextHop::V4(bytes.first_chunk::<4>().map_or(Ipv4Addr::UNSPECIFIED, |a| Ipv4Addr::from(*a))),
    }
}

/// A hash of 64 bits from one of 32, such that its high and its low bits serve.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl PartialEq for AttrSet {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.facts(), other.facts());
        AttrSet::ptr_eq(self, other)
            || (a.hash == b.hash && a.head_len == b.head_len && self.0.slice == other.0.slice)
    }
}

impl Eq for AttrSet {}

impl Hash for AttrSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.content_hash());
    }
}

impl fmt::Debug for AttrSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttrSet")
            .field("next_hop", &self.next_hop())
            .field("origin", &self.origin())
            .field("as_hops", &self.as_hops())
            .field("neighbor_as", &self.neighbor_as())
            .field("local_pref", &self.local_pref())
            .field("med", &self.med())
            .field("bytes", &format_args!("{:02x?}", self.bytes()))
            .finish_non_exhaustive()
    }
}

/// Large communities without repetitions, or `None` if there are none: "A receiving speaker MUST
/// silently remove redundant BGP Large Community values" (RFC 8092 section 3).
fn without_repeats(value: &[u8]) -> Option<Vec<u8>> {
    let all = value.as_chunks::<12>().0;
    // Few are compared in pairs; a hostile route may have thousands.
    let repeats = match all.len() {
        0 | 1 => return None,
        2..=16 => all.iter().enumerate().any(|(i, one)| all.iter().take(i).any(|before| before == one)),
        _ => true,
    };
    repeats.then(|| {
        let mut seen = HashSet::with_capacity(all.len());
        all.iter().filter(|one| seen.insert(**one)).flatten().copied().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_communities_are_each_kept_once_in_the_order_received() {
        let large = |ids: &[u8]| -> Vec<u8> { ids.iter().flat_map(|id| [*id; 12]).collect() };
        let pushed = |code, value: &[u8]| {
            let mut content = Content::default();
            content.push(&Attribute { flags: 0xc0, code, value });
            Attributes::new(&content.bytes).next().map(|attribute| attribute.value.to_vec())
        };
        let kept = |ids: &[u8]| pushed(code::LARGE_COMMUNITIES, &large(ids));
        assert_eq!(kept(&[2, 1, 2, 3, 1]), Some(large(&[2, 1, 3])));
        assert_eq!(kept(&[2, 1]), Some(large(&[2, 1])));
        let many: Vec<u8> = (0..200).chain(0..200).collect();
        assert_eq!(kept(&many), Some(large(&many[..200])));
        // Other communities have no such rule.
        assert_eq!(pushed(code::COMMUNITIES, &[1; 8]), Some(vec![1; 8]));
    }

    fn set(bytes: &[u8]) -> AttrSet {
        AttrSet::new(bytes, NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)))
    }

    #[test]
    fn the_facts_are_read() {
        let attrs = set(&[
            0x40, 1, 1, 1, // ORIGIN EGP
            0x40, 2, 22, 3, 1, 0, 0, 0, 7, 2, 2, 0, 0, 0xfd, 0xe9, 0, 0, 0, 9, 1, 1, 0, 0, 0,
            3, // AS_PATH
            0x80, 4, 4, 0, 0, 0, 50, // MED
            0x40, 5, 4, 0, 0, 1, 0, // LOCAL_PREF
            0xc0, 8, 8, 0xff, 0xff, 0xff, 1, 0, 1, 0, 2, // COMMUNITIES
            0x80, 9, 4, 10, 0, 0, 1, // ORIGINATOR_ID
            0x90, 10, 0, 8, 1, 1, 1, 1, 2, 2, 2, 2, // CLUSTER_LIST, extended length
        ]);
        assert_eq!(attrs.origin(), Origin::Egp);
        assert_eq!(attrs.as_hops(), 3, "a sequence of two, a set is one, a confederation none");
        assert_eq!(attrs.neighbor_as(), 0xfde9, "a confederation segment is not the neighbour");
        assert_eq!((attrs.med(), attrs.local_pref()), (Some(50), Some(256)));
        assert_eq!(attrs.originator_id(), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(attrs.cluster_list_len(), 2);
        assert!(attrs.no_export() && !attrs.no_advertise() && !attrs.no_export_subconfed());
        assert_eq!(attrs.attributes().count(), 7);
        assert_eq!(attrs.value(code::ORIGIN), Some(&[1u8][..]));
        assert_eq!(attrs.value(code::NEXT_HOP), None);
    }

    #[test]
    fn a_path_that_begins_with_a_set_has_no_neighbor() {
        let attrs = set(&[0x40, 2, 12, 1, 1, 0, 0, 0, 7, 2, 1, 0, 0, 0, 9]);
        assert_eq!((attrs.neighbor_as(), attrs.as_hops()), (0, 2));
        assert_eq!(set(&[0x40, 2, 0]).neighbor_as(), 0);
    }

    #[test]
    fn equality_is_content() {
        let (a, b) = (set(&[0x40, 1, 1, 0]), set(&[0x40, 1, 1, 0]));
        assert_eq!(a, b);
        assert_eq!(a.content_hash(), b.content_hash());
        assert_ne!(a, set(&[0x40, 1, 1, 1]));
        assert_ne!(a, AttrSet::new(a.bytes(), NextHop::V4(Ipv4Addr::new(192, 0, 2, 2))));
    }

    #[test]
    fn any_next_hop_comes_back() {
        let (global, local) = ("2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap());
        for next_hop in [
            NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)),
            NextHop::V6 { global, link_local: None },
            NextHop::V6 { global, link_local: Some(local) },
        ] {
            let attrs = AttrSet::new(&[0x40, 1, 1, 0], next_hop);
            assert_eq!((attrs.next_hop(), attrs.bytes()), (next_hop, &[0x40, 1, 1, 0][..]));
        }
    }

    #[test]
    fn distance_is_beside_the_next_hop_and_sets_apart() {
        let (global, local) = ("2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap());
        let bytes = [&[0x40, 1, 1, 0, 0x80, 26, 11][..], &aigp::value(9)].concat();
        for next_hop in [
            NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)),
            NextHop::V6 { global, link_local: None },
            NextHop::V6 { global, link_local: Some(local) },
        ] {
            let attrs = AttrSet::new(&bytes, next_hop);
            let far = attrs.with_distance(Some(7));
            assert_eq!((attrs.distance(), far.distance()), (None, Some(7)));
            assert_eq!((far.next_hop(), far.bytes(), far.aigp()), (next_hop, &bytes[..], Some(9)));
            assert!(
                far != attrs && far != attrs.with_distance(Some(8)) && far == attrs.with_distance(Some(7))
            );
            assert_eq!(far.with_distance(None), attrs);
        }
        assert_eq!(set(&[0x40, 1, 1, 0]).aigp(), None);
        assert_eq!(set(&[0x80, 26, 4, 9, 0, 4, 1]).aigp(), None, "an attribute without the AIGP TLV");
    }

    #[test]
    fn a_handle_and_the_facts_are_small() {
        assert_eq!((size_of::<Option<AttrSet>>(), size_of::<Facts>()), (8, 24));
        let one = set(&[0x40, 1, 1, 0]);
        assert_eq!((one.memory(), one.handles()), (48, 1));
        assert!(AttrSet::ptr_eq(&one, &one.clone()));
    }
}
