//! What one sender says about a table: paths, next hops and the order of its announcements.

use super::Table;
use crate::pool::AddressPool;
use ribtide_prefix::{Families, Family, Prefix, Rng, per_family};
use ribtide_wire::bgp::attribute::{AsPath, Origin, SegmentKind, code};
use ribtide_wire::bgp::build;
use std::net::IpAddr;

/// Who the sender is, as far as its announcements show it.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// Number of the sender. Two senders of one table give different paths to the same prefix.
    pub sender: u32,
    /// The sender's AS, first in every path; `None` towards a peer of its own AS (iBGP), which also gets LOCAL_PREF.
    pub asn: Option<u32>,
    /// Names the order in which groups are announced.
    pub order: u64,
    /// Where next hops of IPv4 and of IPv6 routes are taken from.
    pub next_hops: Families<Pools>,
    /// How many next hops are used.
    pub next_hop_count: u32,
    /// The number of senders among which the shortest paths are distributed: each group has one at
    /// one sender, selected by a hash. `None`: lengths are random, and many are equal.
    pub shortest_of: Option<u32>,
    /// Another number is another path to the same origin: for a second announcement of a group.
    pub version: u32,
}

per_family! {
    /// The shape of [`FeedOptions::next_hops`].
    pub struct Pools<F> = AddressPool;
}

/// The attributes of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH, one sequence, nearest first.
    pub as_path: Vec<u32>,
    /// Next hop.
    pub next_hop: IpAddr,
    /// LOCAL_PREF, on iBGP sessions.
    pub local_pref: Option<u32>,
    /// COMMUNITIES, ascending.
    pub communities: Vec<u32>,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            origin: Origin::Igp,
            as_path: Vec::new(),
            next_hop: IpAddr::from([0; 4]),
            local_pref: None,
            communities: Vec::new(),
        }
    }
}

impl Path {
    /// Appends the attributes as in an UPDATE, all but the next hop.
    pub fn encode(&self, block: &mut Vec<u8>) {
        build::origin(block, self.origin);
        let mut value = vec![SegmentKind::Sequence as u8, self.as_path.len() as u8];
        self.as_path.iter().for_each(|asn| value.extend(asn.to_be_bytes()));
        build::as_path(block, AsPath::new(&value));
        if let Some(preference) = self.local_pref {
            build::local_pref(block, preference);
        }
        value.clear();
        self.communities.iter().for_each(|community| value.extend(community.to_be_bytes()));
        build::list(block, 0, code::COMMUNITIES, &value);
    }
}

/// One sender's view of a table.
pub struct Feed<'a> {
    table: &'a Table,
    options: FeedOptions,
}

/// ASes with transit traffic; a quarter of all paths goes through a few of them.
const TRANSITS: u64 = 400;
/// Origin ASes.
const ORIGINS: u64 = 76_000;
/// Share of paths with communities.
const WITH_COMMUNITIES: f64 = 0.64;
/// Share of groups whose origin prepends its AS.
const PREPENDING: f64 = 0.1;
/// Hops of a path and their shares in percent: 4.4 on average, and prepending adds 0.2.
const HOPS: [(usize, u64); 6] = [(2, 3), (3, 20), (4, 35), (5, 25), (6, 12), (7, 5)];

impl<'a> Feed<'a> {
    pub(super) fn new(table: &'a Table, options: FeedOptions) -> Self {
        Feed { table, options }
    }

    /// Every group of family `F` in this sender's order: its number, for [`Feed::path`], and its prefixes.
    pub fn groups<F: Family>(&self) -> impl ExactSizeIterator<Item = (usize, &'a [Prefix<F>])> + use<'a, F> {
        let mut order: Vec<u32> = (0..self.table.group_count::<F>() as u32).collect();
        Rng::of_purpose(self.options.order, &[3, F::AFI as u64]).shuffle(&mut order);
        let table = self.table;
        order.into_iter().map(move |group| (group as usize, table.group::<F>(group as usize)))
    }

    /// Writes the attributes of `group` into `path`, whose memory is reused.
    pub fn path<F: Family>(&self, group: usize, path: &mut Path) {
        let FeedOptions { sender, asn, next_hops, next_hop_count, shortest_of, version, .. } = &self.options;
        let id = [F::AFI as u64, group as u64];
        // The origin's values are equal at every sender; the path to it is the sender's own.
        let mut origin = Rng::of_purpose(self.table.seed, &[4, id[0], id[1]]);
        let purpose = [5, id[0], id[1], u64::from(*sender), u64::from(*version)];
        // Numbers of a seed never change, and the first version had no number.
        let purpose = if *version == 0 { &purpose[..4] } else { &purpose[..] };
        let mut path_rng = Rng::of_purpose(self.table.seed, purpose);

        path.origin = if origin.chance(0.93) { Origin::Igp } else { Origin::Incomplete };
        let origin_asn = as_number(origin.below(ORIGINS));
        let longer = [0, 0, 1][path_rng.below(3) as usize];
        let shorter = match shortest_of {
            None => [0, 0, 1][path_rng.below(3) as usize],
            Some(senders) => {
                let mut deal = Rng::of_purpose(self.table.seed, &[7, id[0], id[1]]);
                let shortest = deal.below(u64::from(*senders).max(1)) == u64::from(*sender);
                // A path that is announced later is the shortest in half of the cases.
                2 * usize::from(shortest && (*version == 0 || path_rng.below(2) == 0))
            }
        };
        let hops = pick_hops(&mut origin) + longer - shorter;
        path.as_path.clear();
        path.as_path.extend(asn);
        while path.as_path.len() + 1 < hops.max(2) {
            // The smaller of two is a low number more often: some transits are larger than others.
            let transit = as_number(ORIGINS + path_rng.below(TRANSITS).min(path_rng.below(TRANSITS)));
            if !path.as_path.contains(&transit) {
                path.as_path.push(transit);
            }
        }
        let times = if origin.chance(PREPENDING) { 2 + origin.below(3) as usize } else { 1 };
        path.as_path.extend(std::iter::repeat_n(origin_asn, times));

        path.communities.clear();
        if origin.chance(WITH_COMMUNITIES) {
            let tagging = path.as_path[path.as_path.len() / 2] & 0xffff;
            for _ in 0..3 + origin.below(4) {
                path.communities.push(tagging << 16 | (path_rng.below(6000) as u32 + 1));
            }
            path.communities.sort_unstable();
            path.communities.dedup();
        }

        path.next_hop = next_hops.get::<F>().addr(path_rng.below(u64::from(*next_hop_count).max(1)));
        path.local_pref = asn.is_none().then_some(100);
    }
}

fn pick_hops(rng: &mut Rng) -> usize {
    let mut at = rng.below(100);
    for (hops, share) in HOPS {
        match at.checked_sub(share) {
            Some(rest) => at = rest,
            None => return hops,
        }
    }
    4
}

/// The number of the `n`th AS: public, four bytes for a little over half of them, as today.
fn as_number(n: u64) -> u32 {
    let mut rng = Rng::of_purpose(0, &[6, n]);
    if rng.chance(0.45) {
        // 23456 is AS_TRANS.
        match 1 + rng.below(64_495) as u32 {
            23_456 => 64_495,
            asn => asn,
        }
    } else {
        131_072 + rng.below(270_000) as u32
    }
}
