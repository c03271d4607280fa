//! What the senders have said, and what every receiver must hold because of it: the oracle of the BGP suite. It shares
//! nothing with the router but the codec, and judges by RFC 4271 section 9.1.2.2 alone.

use super::topology::{ASN, Topology};
use crate::AddressPool;
use crate::expected::Rank;
use crate::table::{FeedOptions, Path, Table, TableOptions};
use ribtide_prefix::{Afi, AnyPrefix, Families, Family, Map, PerFamily, Prefix};
use ribtide_wire::bgp::attribute::{AsPath, Attributes, SegmentKind, code, number};
use ribtide_wire::bgp::{NextHop, Update, build, message};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The number of a path that a sender announced: which attributes its receivers get. 0: no path.
pub(super) type PathNumber = u32;
/// A prefix is not reachable.
pub(super) const NO_PATH: PathNumber = 0;
/// A path that no sender ever announced.
pub(super) const UNKNOWN: PathNumber = PathNumber::MAX;

/// Messages for one session, ready to be written.
pub(super) type Script = Arc<[u8]>;

/// IPv4 prefixes that share one set of attributes, on average. Of IPv6 prefixes as many do as in the internet's table, 1.7.
const IPV4_PER_SET: f64 = 5.85;

/// Where each prefix stands in [`View::best`]: the shape of [`View::positions`].
pub(super) struct Positions;
impl PerFamily for Positions {
    type Of<F: Family> = Map<Prefix<F>, u32>;
}

/// The senders' routes as they are now, all of one family.
pub(super) struct Model<F> {
    topology: Topology,
    table: Table,
    positions: Arc<Families<Positions>>,
    /// For each sender, what it says of each group now.
    said: Vec<Vec<Said>>,
    /// Attributes as receivers get them → the path.
    known: Arc<Map<u64, PathNumber>>,
    next: PathNumber,
    family: PhantomData<F>,
}

/// What a sender says of a group.
#[derive(Clone, Copy)]
struct Said {
    path: PathNumber,
    hops: u16,
    origin: u8,
}

const NOTHING: Said = Said { path: NO_PATH, hops: 0, origin: 0 };

/// What receivers are judged by.
#[derive(Clone)]
pub(super) struct View {
    /// Where each prefix stands in `best`; no prefix of the other family stands there.
    pub(super) positions: Arc<Families<Positions>>,
    /// The path that a receiver must hold for each prefix.
    pub(super) best: Arc<[PathNumber]>,
    /// Fingerprints of the attributes of all paths that were ever announced.
    pub(super) known: Arc<Map<u64, PathNumber>>,
    /// Receivers are in the router's AS.
    pub(super) internal: bool,
}

impl<F: Family> Model<F> {
    /// Senders that have said nothing yet about a table of `prefixes`.
    pub(super) fn new(topology: Topology, prefixes: u32, seed: u64) -> Self {
        let of = |afi| if F::AFI == afi { prefixes } else { 0 };
        let options = TableOptions {
            seed,
            ipv4: of(Afi::Ipv4),
            ipv6: of(Afi::Ipv6),
            ipv4_per_set: IPV4_PER_SET,
            ..TableOptions::default()
        };
        let table = Table::new(&options);
        let mut positions = Families::<Positions>::default();
        *positions.get_mut::<F>() = (0..).zip(table.prefixes::<F>()).map(|(i, p)| (*p, i)).collect();
        let said = vec![vec![NOTHING; table.group_count::<F>()]; topology.senders.len()];
        let positions = Arc::new(positions);
        Model { topology, table, positions, said, known: Arc::default(), next: 1, family: PhantomData }
    }

    /// Groups of prefixes with equal attributes.
    pub(super) fn groups(&self) -> usize {
        self.table.group_count::<F>()
    }

    /// Paths that the router has now: one for each prefix and sender that announces it.
    pub(super) fn paths(&self) -> usize {
        let of = |said: &Vec<Said>| {
            said.iter()
                .enumerate()
                .filter(|(_, s)| s.path != NO_PATH)
                .map(|(g, _)| self.group(g).len())
                .sum::<usize>()
        };
        self.said.iter().map(of).sum()
    }

    fn group(&self, group: usize) -> &[Prefix<F>] {
        self.table.group::<F>(group)
    }

    /// How a sender sees the table.
    fn feed(&self, sender: usize, version: u32) -> FeedOptions {
        let neighbor = self.topology.senders[sender];
        let own = AddressPool::new(AnyPrefix::host(self.topology.next_hop(neighbor.address)));
        FeedOptions {
            sender: sender as u32,
            asn: (!self.topology.reflector).then_some(neighbor.asn),
            order: sender as u64 + 1,
            next_hops: Families { v4: own, v6: own },
            next_hop_count: 1,
            shortest_of: Some(self.topology.senders.len() as u32),
            version,
        }
    }

    /// The messages with which a sender announces the groups that `which` picks, in an order of its own. Another
    /// `version` has other attributes.
    pub(super) fn announce(&mut self, sender: usize, version: u32, which: impl Fn(usize) -> bool) -> Script {
        let neighbor = self.topology.senders[sender];
        let feed = self.table.feed(self.feed(sender, version));
        let known = Arc::make_mut(&mut self.known);
        let (mut out, mut path, mut block) = (Vec::new(), Path::default(), Vec::new());
        for (group, prefixes) in feed.groups::<F>().filter(|(group, _)| which(*group)) {
            feed.path::<F>(group, &mut path);
            block.clear();
            path.encode(&mut block);
            let packer = build::UpdatePacker::new(&block, path.next_hop.into(), message::MAX_LEN);
            packer.announce(prefixes.iter().copied(), &mut out).expect("made-up attributes are short");
            let fingerprint = passed_on(&self.topology, neighbor.address, &path).fingerprint();
            // Equal attributes of two groups are one path: receivers cannot tell them apart.
            let number = *known.entry(fingerprint).or_insert_with(|| {
                self.next += 1;
                self.next - 1
            });
            self.said[sender][group] =
                Said { path: number, hops: path.as_path.len() as u16, origin: path.origin as u8 };
        }
        out.into()
    }

    /// The messages with which a sender withdraws the groups that `which` picks.
    pub(super) fn withdraw(&mut self, sender: usize, which: impl Fn(usize) -> bool) -> Script {
        let mut out = Vec::new();
        for group in (0..self.groups()).filter(|group| which(*group)) {
            build::withdraw(self.group(group).iter().copied(), message::MAX_LEN, &mut out);
            self.said[sender][group] = NOTHING;
        }
        out.into()
    }

    /// A sender's session ends.
    pub(super) fn leave(&mut self, sender: usize) {
        self.said[sender].fill(NOTHING);
    }

    /// The best path of a group among all that are announced now.
    fn best(&self, group: usize) -> PathNumber {
        let offers = self.said.iter().zip(&self.topology.senders).map(|(said, sender)| (said[group], sender));
        let rank = |(said, sender): &(Said, &super::topology::Neighbor)| Rank {
            hops: said.hops.into(),
            origin: said.origin,
            router_id: sender.address,
            address: IpAddr::V4(sender.address),
        };
        offers
            .filter(|(said, _)| said.path != NO_PATH)
            .min_by_key(rank)
            .map_or(NO_PATH, |(said, _)| said.path)
    }

    /// What receivers must hold now.
    pub(super) fn view(&self) -> View {
        let best = (0..self.groups()).flat_map(|g| std::iter::repeat_n(self.best(g), self.group(g).len()));
        View {
            positions: Arc::clone(&self.positions),
            best: best.collect(),
            known: Arc::clone(&self.known),
            internal: self.topology.reflector,
        }
    }
}

/// Attributes as a receiver sees them, in a form that compares.
#[derive(Hash)]
struct Seen<'a> {
    origin: Option<&'a [u8]>,
    as_path: Option<&'a [u8]>,
    /// A link-local address beside it is not known here (RFC 2545 section 3).
    next_hop: Option<IpAddr>,
    /// Absent and 0 mean the same (RFC 4271 section 9.1.2.2 c).
    med: u32,
    local_pref: Option<&'a [u8]>,
    communities: Vec<[u8; 4]>,
    originator: Option<&'a [u8]>,
    clusters: Option<&'a [u8]>,
    /// Codes of attributes that no sender sent.
    others: Vec<u8>,
}

impl<'a> Seen<'a> {
    fn new(
        attributes: impl Iterator<Item = ribtide_wire::bgp::Attribute<'a>>,
        next_hop: Option<NextHop>,
    ) -> Self {
        let mut seen = Seen {
            origin: None,
            as_path: None,
            next_hop: next_hop.map(NextHop::addr),
            med: 0,
            local_pref: None,
            communities: Vec::new(),
            originator: None,
            clusters: None,
            others: Vec::new(),
        };
        for attribute in attributes {
            let value = attribute.value;
            match attribute.code {
                code::ORIGIN => seen.origin = Some(value),
                code::AS_PATH => seen.as_path = Some(value),
                code::MED => seen.med = number(value).unwrap_or(0),
                code::LOCAL_PREF => seen.local_pref = Some(value),
                code::COMMUNITIES => {
                    seen.communities = value.as_chunks().0.to_vec();
                    seen.communities.sort_unstable();
                }
                code::ORIGINATOR_ID => seen.originator = Some(value),
                code::CLUSTER_LIST => seen.clusters = Some(value),
                other => seen.others.push(other),
            }
        }
        seen
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// The fingerprint of what an UPDATE announces its prefixes of family `F` with: a key of [`View::known`].
pub(super) fn fingerprint<F: Family>(update: &Update<'_>) -> u64 {
    Seen::new(update.attributes(), update.next_hop::<F>()).fingerprint()
}

/// Attributes that the router must pass on.
struct PassedOn {
    block: Vec<u8>,
    next_hop: NextHop,
}

impl PassedOn {
    fn fingerprint(&self) -> u64 {
        Seen::new(Attributes::new(&self.block), Some(self.next_hop)).fingerprint()
    }
}

/// What receivers get of a sender's path: from external peers with the router's AS in front and itself as next hop
/// (RFC 4271 section 5.1), from clients as it is, with the marks of the reflector (RFC 4456 section 8).
fn passed_on(topology: &Topology, sender: Ipv4Addr, path: &Path) -> PassedOn {
    let mut block = Vec::new();
    if topology.reflector {
        path.encode(&mut block);
        build::originator_id(&mut block, sender);
        build::cluster_list(&mut block, topology.router, &[]);
        return PassedOn { block, next_hop: path.next_hop.into() };
    }
    let mut value = vec![SegmentKind::Sequence as u8, path.as_path.len() as u8];
    path.as_path.iter().for_each(|asn| value.extend(asn.to_be_bytes()));
    let as_path = build::prepend(AsPath::new(&value), ASN, 1);
    build::origin(&mut block, path.origin);
    build::as_path(&mut block, AsPath::new(&as_path));
    let communities: Vec<u8> = path.communities.iter().flat_map(|c| c.to_be_bytes()).collect();
    build::list(&mut block, 0, code::COMMUNITIES, &communities);
    PassedOn { block, next_hop: topology.next_hop(topology.router).into() }
}

#[cfg(test)]
impl<F: Family> Model<F> {
    /// The messages of a router that knows no other sender.
    pub(super) fn passed_on(&self, sender: usize, which: impl Fn(usize) -> bool) -> Vec<u8> {
        let (mut out, mut path) = (Vec::new(), Path::default());
        for group in (0..self.groups()).filter(|group| which(*group)) {
            let version = u32::from(self.said[sender][group].path > self.groups() as u32);
            self.table.feed(self.feed(sender, version)).path::<F>(group, &mut path);
            let passed = passed_on(&self.topology, self.topology.senders[sender].address, &path);
            build::UpdatePacker::new(&passed.block, passed.next_hop, message::MAX_LEN)
                .announce(self.group(group).iter().copied(), &mut out)
                .unwrap();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::{Set, V4, V6, for_each_family};
    use ribtide_wire::bgp::update::{UpdateContext, parse};

    fn model<F: Family>(senders: u32, reflector: bool, prefixes: u32) -> Model<F> {
        Model::new(Topology::new(F::AFI, senders, 1, reflector, true), prefixes, 1)
    }

    #[test]
    fn tables_have_as_many_sets_as_the_internet_and_every_sender_has_best_paths() {
        check_table::<V4>(16_500..17_600);
        check_table::<V6>(57_000..61_000);
    }

    fn check_table<F: Family>(groups: std::ops::Range<usize>) {
        let mut model = model::<F>(10, false, 100_000);
        assert!(groups.contains(&model.groups()), "{}", model.groups());
        let owners: Vec<Set<PathNumber>> = (0..10)
            .map(|s| {
                model.announce(s, 0, |_| true);
                model.said[s].iter().map(|said| said.path).collect()
            })
            .collect();
        let view = model.view();
        assert_eq!(model.paths(), 1_000_000);
        for (sender, paths) in owners.iter().enumerate() {
            let won = view.best.iter().filter(|best| paths.contains(*best)).count();
            assert!((7_000..14_000).contains(&won), "sender {sender} has {won} best paths");
        }
    }

    #[test]
    fn a_path_is_known_by_what_the_router_passes_on() {
        for reflector in [false, true] {
            for_each_family!(F => check_path::<F>(reflector));
        }
    }

    fn check_path<F: Family>(reflector: bool) {
        let mut model = model::<F>(2, reflector, 50);
        let said = model.announce(0, 0, |group| group == 0);
        let view = model.view();
        let context = UpdateContext { four_octet_as: true, external: !reflector };
        let path = |messages: &[u8]| {
            let update = parse(&messages[message::HEADER_LEN..], &context).unwrap();
            view.known.get(&fingerprint::<F>(&update)).copied()
        };
        assert_eq!(path(&said), None);
        assert_eq!(path(&model.passed_on(0, |group| group == 0)), Some(model.said[0][0].path));
    }

    #[test]
    fn withdrawn_and_left_paths_are_no_receivers_best() {
        let mut model = model::<V4>(2, false, 1000);
        model.announce(0, 0, |_| true);
        model.announce(1, 0, |_| true);
        let all = model.view();
        model.withdraw(0, |_| true);
        let one = model.view();
        assert!(one.best.iter().all(|p| *p != NO_PATH) && one.best != all.best);
        model.announce(0, 0, |_| true);
        assert_eq!(model.view().best, all.best, "the same attributes are the same path");
        model.announce(0, 1, |_| true);
        assert_ne!(model.view().best, all.best);
        model.leave(0);
        assert_eq!(model.view().best, one.best);
        model.withdraw(1, |g| g == 0);
        assert_eq!(model.view().best.iter().filter(|p| **p == NO_PATH).count(), model.group(0).len());
    }
}
