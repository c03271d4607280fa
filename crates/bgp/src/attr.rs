//! A set of path attributes as the router keeps it: one immutable allocation that every path with these
//! attributes shares.
//!
//! The attributes stay in wire form, so that sending them on is a copy and nothing is lost of what we do not
//! understand. What the decision process and the policies ask for is read once, when the set is made.

use ribtide_wire::bgp::attribute::{Attributes, Communities, Community, Origin, code, number, router_ids};
use ribtide_wire::bgp::{AsPath, NextHop};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::Ipv4Addr;

/// Path attributes shared by all paths that were announced with them. Always behind an `Arc`.
///
/// Two sets are equal when their bytes and next hops are; the hash decides nearly every comparison.
pub struct AttrSet {
    bytes: Box<[u8]>,
    hash: u64,
    next_hop: NextHop,
    local_pref: Option<u32>,
    med: Option<u32>,
    originator_id: Option<Ipv4Addr>,
    neighbor_as: u32,
    as_hops: u16,
    cluster_list_len: u16,
    origin: Origin,
    no_export: bool,
    no_advertise: bool,
    no_export_subconfed: bool,
}

impl AttrSet {
    /// A set from attributes in canonical wire form: AS numbers of four octets, each type once in ascending
    /// order, and neither NEXT_HOP, MP_REACH_NLRI nor MP_UNREACH_NLRI. Their values must have been checked
    /// (RFC 7606); here a value of wrong length counts as absent.
    pub fn new(bytes: Box<[u8]>, next_hop: NextHop) -> AttrSet {
        let mut set = AttrSet {
            hash: content_hash(&bytes, &next_hop),
            bytes: Box::default(),
            next_hop,
            local_pref: None,
            med: None,
            originator_id: None,
            neighbor_as: 0,
            as_hops: 0,
            cluster_list_len: 0,
            origin: Origin::Incomplete,
            no_export: false,
            no_advertise: false,
            no_export_subconfed: false,
        };
        for attribute in Attributes::new(&bytes) {
            let value = attribute.value;
            match attribute.code {
                code::ORIGIN => set.origin = Origin::from_value(value).unwrap_or(Origin::Incomplete),
                code::AS_PATH => set.read_as_path(AsPath::new(value)),
                code::MED => set.med = number(value),
                code::LOCAL_PREF => set.local_pref = number(value),
                code::COMMUNITIES => set.read_communities(Communities::new(value)),
                code::ORIGINATOR_ID => set.originator_id = router_ids(value).next(),
                code::CLUSTER_LIST => set.cluster_list_len = router_ids(value).count() as u16,
                _ => {}
            }
        }
        set.bytes = bytes;
        set
    }

    /// The attributes in wire form, as [`AttrSet::new`] describes it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The attributes one by one.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::new(&self.bytes)
    }

    /// The value of the attribute of this type, if there is one.
    pub fn value(&self, code: u8) -> Option<&[u8]> {
        self.attributes().find(|a| a.code == code).map(|a| a.value)
    }

    /// The next hop, from NEXT_HOP or MP_REACH_NLRI.
    pub fn next_hop(&self) -> NextHop {
        self.next_hop
    }

    /// Hash of the content, equal wherever the content is equal within this process.
    pub fn content_hash(&self) -> u64 {
        self.hash
    }

    /// ORIGIN.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// LOCAL_PREF, if present.
    pub fn local_pref(&self) -> Option<u32> {
        self.local_pref
    }

    /// MULTI_EXIT_DISC, if present.
    pub fn med(&self) -> Option<u32> {
        self.med
    }

    /// Length of AS_PATH as the decision process counts it: an AS_SET is one (RFC 4271 section 9.1.2.2 a),
    /// confederation segments are none (RFC 5065 section 5.3).
    pub fn as_hops(&self) -> u16 {
        self.as_hops
    }

    /// The AS that MED is compared within (`neighborAS` of RFC 4271 section 9.1.2.2 c): the first of AS_PATH.
    /// 0 stands for our own AS: the path is empty or begins with an AS_SET.
    pub fn neighbor_as(&self) -> u32 {
        self.neighbor_as
    }

    /// ORIGINATOR_ID, if present.
    pub fn originator_id(&self) -> Option<Ipv4Addr> {
        self.originator_id
    }

    /// How many cluster ids CLUSTER_LIST holds; 0 when absent (RFC 4456 section 9).
    pub fn cluster_list_len(&self) -> u16 {
        self.cluster_list_len
    }

    /// Whether the community NO_EXPORT is present (RFC 1997).
    pub fn no_export(&self) -> bool {
        self.no_export
    }

    /// Whether the community NO_ADVERTISE is present (RFC 1997).
    pub fn no_advertise(&self) -> bool {
        self.no_advertise
    }

    /// Whether the community NO_EXPORT_SUBCONFED is present (RFC 1997).
    pub fn no_export_subconfed(&self) -> bool {
        self.no_export_subconfed
    }

    /// Bytes of memory it takes, without the allocator's own.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }

    fn read_as_path(&mut self, path: AsPath<'_>) {
        self.as_hops = u16::try_from(path.hop_count()).unwrap_or(u16::MAX);
        self.neighbor_as = path.neighbor_as().unwrap_or(0);
    }

    fn read_communities(&mut self, communities: Communities<'_>) {
        for community in communities.iter() {
            match community {
                Community::NO_EXPORT => self.no_export = true,
                Community::NO_ADVERTISE => self.no_advertise = true,
                Community::NO_EXPORT_SUBCONFED => self.no_export_subconfed = true,
                _ => {}
            }
        }
    }
}

/// The same in every thread of this process, and not predictable from outside it.
fn content_hash(bytes: &[u8], next_hop: &NextHop) -> u64 {
    let seed = foldhash::SharedSeed::global_random();
    let mut hasher = foldhash::quality::SeedableRandomState::with_seed(0, seed).build_hasher();
    hasher.write(bytes);
    next_hop.hash(&mut hasher);
    hasher.finish()
}

impl PartialEq for AttrSet {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && (std::ptr::eq(self, other) || (self.next_hop == other.next_hop && self.bytes == other.bytes))
    }
}

impl Eq for AttrSet {}

impl Hash for AttrSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for AttrSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttrSet")
            .field("next_hop", &self.next_hop)
            .field("origin", &self.origin)
            .field("as_hops", &self.as_hops)
            .field("neighbor_as", &self.neighbor_as)
            .field("local_pref", &self.local_pref)
            .field("med", &self.med)
            .field("bytes", &format_args!("{:02x?}", self.bytes))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bytes: &[u8]) -> AttrSet {
        AttrSet::new(bytes.into(), NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)))
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
        assert_ne!(a, AttrSet::new(a.bytes().into(), NextHop::V4(Ipv4Addr::new(192, 0, 2, 2))));
    }
}
