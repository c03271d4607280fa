//! The advertised routes of the senders, and the expected routes of every receiver: the oracle of
//! the BGP suite. It shares only the codec with the router, and applies RFC 4271 section 9.1.2.2.

use super::topology::{ASN, Topology};
use crate::AddressPool;
use crate::expected::Rank;
use crate::table::{FeedOptions, Path, Table, TableOptions};
use ribtide_prefix::{Afi, AnyPrefix, Families, Family, Map, Prefix, per_family};
use ribtide_wire::bgp::attribute::{AsPath, Attributes, SegmentKind, code, number};
use ribtide_wire::bgp::{NextHop, Update, build, message};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The number of an announced path, which stands for its attributes at receivers. 0: no path.
pub(super) type PathNumber = u32;
/// No path: the prefix is unreachable.
pub(super) const NO_PATH: PathNumber = 0;
/// A path that no sender ever announced.
pub(super) const UNKNOWN_PATH: PathNumber = PathNumber::MAX;

/// Messages for one session, ready to be written.
pub(super) type Script = Arc<[u8]>;

/// IPv4 prefixes per set of attributes, on average. IPv6 has the ratio of the internet's table,
/// 1.7.
const IPV4_PER_SET: f64 = 5.85;

per_family! {
    /// The index of each prefix in [`View::best`]: the shape of [`View::positions`].
    pub(super) struct Positions<F> = Map<Prefix<F>, u32>;
}

/// The senders' current routes, all of one family.
pub(super) struct Model<F> {
    topology: Topology,
    table: Table,
    positions: Arc<Families<Positions>>,
    /// The current route of each group, per sender.
    advertised: Vec<Vec<Advertised>>,
    /// Attributes at receivers → path.
    known: Arc<Map<u64, PathNumber>>,
    next: PathNumber,
    family: PhantomData<F>,
}

/// A sender's route of a group.
#[derive(Clone, Copy)]
struct Advertised {
    path: PathNumber,
    hops: u16,
    origin: u8,
}

const NOTHING: Advertised = Advertised { path: NO_PATH, hops: 0, origin: 0 };

/// The expected routes of receivers.
#[derive(Clone)]
pub(super) struct View {
    /// The index of each prefix in `best`; prefixes of the other family have none.
    pub(super) positions: Arc<Families<Positions>>,
    /// The expected path of each prefix.
    pub(super) best: Arc<[PathNumber]>,
    /// Fingerprints of the attributes of all paths that were ever announced.
    pub(super) known: Arc<Map<u64, PathNumber>>,
    /// Receivers are in the router's AS.
    pub(super) internal: bool,
}

impl<F: Family> Model<F> {
    /// Senders without routes, and a table of `prefixes`.
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
        let advertised = vec![vec![NOTHING; table.group_count::<F>()]; topology.senders.len()];
        let positions = Arc::new(positions);
        Model { topology, table, positions, advertised, known: Arc::default(), next: 1, family: PhantomData }
    }

    /// Groups of prefixes with equal attributes.
    pub(super) fn groups(&self) -> usize {
        self.table.group_count::<F>()
    }

    /// The router's paths: one for each prefix and sender that announces it.
    pub(super) fn paths(&self) -> usize {
        let of = |advertised: &Vec<Advertised>| {
            advertised
                .iter()
                .enumerate()
                .filter(|(_, s)| s.path != NO_PATH)
                .map(|(g, _)| self.group(g).len())
                .sum::<usize>()
        };
        self.advertised.iter().map(of).sum()
    }

    fn group(&self, group: usize) -> &[Prefix<F>] {
        self.table.group::<F>(group)
    }

    /// A sender's view of the table.
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

    /// Encodes a sender's announcement of the groups that `which` selects, in its own order.
    /// Another `version` has other attributes.
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
            // Equal attributes of two groups are one path, because receivers cannot tell them
            // apart.
            let number = *known.entry(fingerprint).or_insert_with(|| {
                self.next += 1;
                self.next - 1
            });
            self.advertised[sender][group] =
                Advertised { path: number, hops: path.as_path.len() as u16, origin: path.origin as u8 };
        }
        out.into()
    }

    /// Encodes a sender's withdrawal of the groups that `which` selects.
    pub(super) fn withdraw(&mut self, sender: usize, which: impl Fn(usize) -> bool) -> Script {
        let mut out = Vec::new();
        for group in (0..self.groups()).filter(|group| which(*group)) {
            build::withdraw(self.group(group).iter().copied(), message::MAX_LEN, &mut out);
            self.advertised[sender][group] = NOTHING;
        }
        out.into()
    }

    /// Ends a sender's session.
    pub(super) fn leave(&mut self, sender: usize) {
        self.advertised[sender].fill(NOTHING);
    }

    /// The best path of a group.
    fn best(&self, group: usize) -> PathNumber {
        let offers = self
            .advertised
            .iter()
            .zip(&self.topology.senders)
            .map(|(advertised, sender)| (advertised[group], sender));
        let rank = |(advertised, sender): &(Advertised, &super::topology::Neighbor)| Rank {
            hops: advertised.hops.into(),
            origin: advertised.origin,
            router_id: sender.address,
            address: IpAddr::V4(sender.address),
        };
        offers
            .filter(|(advertised, _)| advertised.path != NO_PATH)
            .min_by_key(rank)
            .map_or(NO_PATH, |(advertised, _)| advertised.path)
    }

    /// The expected routes of receivers.
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

/// Attributes at a receiver, in comparable form.
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

/// The fingerprint of the attributes of an UPDATE's prefixes of family `F`: a key of
/// [`View::known`].
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

/// A sender's path at receivers. Paths of external peers get the router's AS and its next hop (RFC
/// 4271 section 5.1); paths of clients get only the reflector's attributes (RFC 4456 section 8).
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
    /// The messages of a router with this sender alone.
    pub(super) fn passed_on(&self, sender: usize, which: impl Fn(usize) -> bool) -> Vec<u8> {
        let (mut out, mut path) = (Vec::new(), Path::default());
        for group in (0..self.groups()).filter(|group| which(*group)) {
            let version = u32::from(self.advertised[sender][group].path > self.groups() as u32);
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
                model.advertised[s].iter().map(|advertised| advertised.path).collect()
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
        let advertised = model.announce(0, 0, |group| group == 0);
        let view = model.view();
        let context = UpdateContext::new(true, !reflector);
        let path = |messages: &[u8]| {
            let update = parse(&messages[message::HEADER_LEN..], &context).unwrap();
            view.known.get(&fingerprint::<F>(&update)).copied()
        };
        assert_eq!(path(&advertised), None);
        assert_eq!(path(&model.passed_on(0, |group| group == 0)), Some(model.advertised[0][0].path));
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
