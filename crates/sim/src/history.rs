//! Random histories with frequent conflicts: few peers, few prefixes, equal attributes, loops, and
//! sessions and next hops that change.

use crate::policy::{conditional, divided, switch};
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::NextHopState;
use ribtide_bgp::peer::{
    DefaultOriginate, EgressSettings, FamilySet, LocalSource, NextHopRule, PathSelection, PeerId, PeerInfo,
    PeerKind, SentPaths,
};
use ribtide_policy::Policy;
use ribtide_prefix::zone::{with_zone, zone_of};
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix, BgpFamily, Bits, ByFamily, Prefix, Rng, V4, V6};
use ribtide_wire::bgp::attribute::{AsPath, Community, Origin, SegmentKind, code};
use ribtide_wire::bgp::build::{self, UpdatePacker};
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use ribtide_wire::bgp::{NextHop, message};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

/// Our AS.
pub const LOCAL_ASN: u32 = 65000;
/// Our BGP identifier.
pub const ROUTER_ID: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Our cluster.
pub const CLUSTER_ID: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The longest message of every session.
pub const MAX_MESSAGE: u16 = 4096;

/// The attributes of an announcement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Announcement {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH: sequences (`true`) and sets.
    pub path: Vec<(bool, Vec<u32>)>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// COMMUNITIES.
    pub communities: Vec<u32>,
    /// ORIGINATOR_ID.
    pub originator: Option<Ipv4Addr>,
    /// CLUSTER_LIST.
    pub clusters: Vec<Ipv4Addr>,
    /// Link bandwidths (RFC 10005), transitive, in bytes per second.
    pub bandwidths: Vec<u16>,
    /// The next hop.
    pub next_hop: NextHop,
}

impl Announcement {
    /// The attributes in canonical wire form, without the next hop.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        build::origin(&mut out, self.origin);
        let mut path = Vec::new();
        for (sequence, asns) in &self.path {
            let kind = if *sequence { SegmentKind::Sequence } else { SegmentKind::Set };
            path.extend_from_slice(&[kind as u8, asns.len() as u8]);
            asns.iter().for_each(|asn| path.extend_from_slice(&asn.to_be_bytes()));
        }
        build::as_path(&mut out, AsPath::new(&path));
        if let Some(med) = self.med {
            build::med(&mut out, med);
        }
        if let Some(preference) = self.local_pref {
            build::local_pref(&mut out, preference);
        }
        let communities: Vec<u8> = self.communities.iter().flat_map(|c| c.to_be_bytes()).collect();
        build::list(&mut out, 0, code::COMMUNITIES, &communities);
        if let Some(originator) = self.originator {
            build::originator_id(&mut out, originator);
        }
        if let Some((first, rest)) = self.clusters.split_first() {
            let rest: Vec<u8> = rest.iter().flat_map(|cluster| cluster.octets()).collect();
            build::cluster_list(&mut out, *first, &rest);
        }
        let bandwidth = |bandwidth: &u16| {
            let [a, b, c, d] = f32::from(*bandwidth).to_be_bytes();
            [0x00, 0x04, 0xfd, 0xe9, a, b, c, d]
        };
        let bandwidths: Vec<u8> = self.bandwidths.iter().flat_map(bandwidth).collect();
        build::list(&mut out, 0, code::EXTENDED_COMMUNITIES, &bandwidths);
        out
    }
}

/// Prefixes of one family in an UPDATE.
#[derive(Clone, Debug)]
pub struct Prefixes {
    /// The prefixes, each once.
    pub list: Vec<AnyPrefix>,
    /// Their path identifier, where the peer sends one (RFC 7911).
    pub path_id: Option<u32>,
}

/// An event of a history.
#[derive(Clone, Debug)]
pub enum Event {
    /// A session of the peer is established, with path identifiers in these families (RFC 7911).
    Up(usize, FamilySet),
    /// The session ends.
    Down(usize),
    /// The session is lost, and the routes of these families are retained (RFC 4724).
    Lose(usize, FamilySet),
    /// Retained routes of a family are long-lived stale from now on (RFC 9494).
    LongLived(usize, AfiSafi),
    /// Retained routes of a family that were not announced again are removed: End-of-RIB, or a timer.
    Sweep(usize, AfiSafi),
    /// The peer announces prefixes of one family.
    Announce(usize, Announcement, Prefixes),
    /// The peer withdraws prefixes of one family.
    Withdraw(usize, Prefixes),
    /// A next hop changes.
    NextHop(IpAddr, NextHopState),
    /// The peer requests a family again (RFC 2918).
    Refresh(usize, AfiSafi),
    /// The peer begins to send its routes of a family again (RFC 7313).
    BeginRefresh(usize, AfiSafi),
    /// That has ended: routes that it has not sent again are removed.
    EndRefresh(usize, AfiSafi),
    /// A client dumps the best paths of a family.
    Dump(AfiSafi),
    /// The router is configured to send the peer other routes: a selection of paths for each family that has several, an
    /// export policy, and whether the peer gets a best path of its own.
    Configure(usize, SentPaths, Arc<Policy>, bool),
}

/// The setup and events of a run.
pub struct History {
    /// Settings of the router.
    pub options: DecisionOptions,
    /// The peers, as in their first session.
    pub peers: Vec<PeerInfo>,
    /// Their import policies.
    pub imports: Vec<Arc<Policy>>,
    /// The prefixes that events name.
    pub prefixes: Vec<AnyPrefix>,
    /// The events, in order.
    pub events: Vec<Event>,
}

impl History {
    /// A random history of `length` events.
    pub fn new(rng: &mut Rng, options: DecisionOptions, length: usize) -> History {
        let count = 2 + rng.index(7);
        let mut peers: Vec<PeerInfo> = (0..count).map(|n| peer(rng, n)).collect();
        let first = peers.clone();
        let import = |peer: &PeerInfo| match peer.kind.is_local() {
            true => Arc::new(Policy::accept()),
            false => policy(rng, !peer.kind.is_internal()),
        };
        let imports = peers.iter().map(import).collect();
        // In half of the histories a logical shard has several prefixes.
        let place = if rng.one_in(2) { scattered::<V4> } else { together::<V4> };
        let mut prefixes: Vec<AnyPrefix> = (0..8).map(|n| AnyPrefix::V4(place(rng, n))).collect();
        let place = if rng.one_in(2) { scattered::<V6> } else { together::<V6> };
        prefixes.extend((0..4).map(|n| AnyPrefix::V6(place(rng, n))));
        if rng.one_in(2) {
            prefixes.push(Prefix::<V4>::default_route().any());
        }
        // In half of the histories all paths are equal up to MED.
        let alike = rng.one_in(2);
        let announcements: Vec<Announcement> = (0..10).map(|_| announcement(rng, alike)).collect();
        let mut up = vec![false; count];
        // The families with retained routes.
        let mut retained = vec![FamilySet::NONE; count];
        let mut events = Vec::new();
        while events.len() < length {
            let who = rng.index(count);
            let event = match rng.index(22) {
                0 if up[who] && !peers[who].kind.is_local() && rng.one_in(2) => {
                    let ipv4 = !rng.one_in(4);
                    Event::Lose(who, unicast(ipv4, !ipv4 || rng.one_in(2)))
                }
                0 if up[who] => Event::Down(who),
                0..=2 if !retained[who].is_empty() && !up[who] && rng.one_in(2) => {
                    Event::LongLived(who, afi(rng))
                }
                0..=4 if !retained[who].is_empty() && rng.one_in(2) => Event::Sweep(who, afi(rng)),
                _ if !up[who] => {
                    if rng.one_in(3) && !peers[who].kind.is_local() {
                        peers[who].path_ids = path_ids(rng);
                    }
                    Event::Up(who, peers[who].path_ids)
                }
                1 => Event::NextHop(next_hop(rng, AfiSafi::Ipv4Unicast).addr(), state(rng)),
                2 => Event::NextHop(next_hop(rng, AfiSafi::Ipv6Unicast).addr(), state(rng)),
                3 => Event::Dump(afi(rng)),
                4 if !peers[who].kind.is_local() => Event::Refresh(who, afi(rng)),
                5 if rng.one_in(4) && !peers[who].kind.is_local() => {
                    let EgressSettings { kind, add_path, ref default_originate, .. } = peers[who].egress;
                    let again = |rng: &mut Rng, sent: Option<_>| sent.map(|_| selection(rng));
                    let sent = SentPaths(ByFamily::new(|family| again(rng, add_path.of(family))));
                    let several = sent != SentPaths::default();
                    let is_own =
                        kind == PeerKind::RouteServerClient && default_originate.is_none() && rng.one_in(2);
                    let export = match !several && !is_own && rng.one_in(2) {
                        true => conditional(rng.one_in(3), rng.one_in(2)),
                        false => policy(rng, kind.is_external()),
                    };
                    Event::Configure(who, sent, export, is_own)
                }
                20 if !peers[who].kind.is_local() => Event::BeginRefresh(who, afi(rng)),
                21 if !peers[who].kind.is_local() => Event::EndRefresh(who, afi(rng)),
                5..=8 => Event::Withdraw(who, some(rng, &prefixes, &peers[who])),
                _ => {
                    let prefixes = some(rng, &prefixes, &peers[who]);
                    let family = AfiSafi::unicast(prefixes.list[0].afi());
                    let mut with = rng.pick(&announcements).clone();
                    with.next_hop = next_hop(rng, family);
                    if peers[who].kind.is_local() {
                        with = originated(with.origin, family);
                    }
                    if peers[who].kind.is_internal() {
                        with.local_pref.get_or_insert(100);
                    }
                    Event::Announce(who, with, prefixes)
                }
            };
            match event {
                Event::Up(who, _) => up[who] = true,
                Event::Down(who) => (up[who], retained[who]) = (false, FamilySet::NONE),
                Event::Lose(who, families) => (up[who], retained[who]) = (false, families),
                Event::Sweep(who, family) => retained[who] = retained[who].without(family),
                _ => {}
            }
            events.push(event);
        }
        History { options, peers: first, imports, prefixes, events }
    }
}

/// Random options; in ordered histories the order of arrival may count.
pub fn options(rng: &mut Rng, ordered: bool) -> DecisionOptions {
    DecisionOptions {
        always_compare_med: rng.one_in(3),
        deterministic_med: !ordered || rng.one_in(2),
        prefer_oldest: ordered && rng.one_in(2),
        med_missing_as_worst: rng.one_in(3),
        maximum_paths: [1, 1, 2, 4][rng.index(4)],
        multipath_relax: rng.one_in(2),
        link_bandwidth: rng.one_in(2),
        backup_path: rng.one_in(2),
    }
}

fn peer(rng: &mut Rng, n: usize) -> PeerInfo {
    use PeerKind::{Client, External, Internal, RouteServerClient};
    let kind = *rng.pick(&[External, External, RouteServerClient, RouteServerClient, Internal, Client]);
    let kind = if rng.one_in(10) { PeerKind::Local(*rng.pick(&LocalSource::ALL)) } else { kind };
    let families = unicast(true, !rng.one_in(4) || kind.is_local());
    let byte = n as u8 + 1;
    let address = match rng.index(6) {
        0 | 1 => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(byte))),
        // A session over link-local addresses: each on a link of its own, all with the same address.
        2 if !kind.is_local() => IpAddr::V6(with_zone(LINK_LOCAL, u32::from(byte))),
        _ => IpAddr::V4(Ipv4Addr::new(192, 0, 2, byte)),
    };
    let link = zone_of(address).is_some();
    let extended_next_hop = !kind.is_local() && rng.one_in(if link { 1 } else { 3 });
    let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 200);
    let own = NextHopRule::Own {
        v4: Some(Ipv4Addr::new(192, 0, 2, 200)).filter(|_| !extended_next_hop),
        v6: Some(global).filter(|_| !link || rng.one_in(2)),
    };
    let next_hop = match own {
        own if kind.is_external() => own,
        NextHopRule::Own { v4, v6 } if rng.one_in(2) => NextHopRule::KeepUnlessOwn { v4, v6 },
        _ => NextHopRule::Keep,
    };
    let add_path = SentPaths(ByFamily::new(|_| rng.maybe(3, selection)));
    let add_path = if kind.is_local() { SentPaths::default() } else { add_path.within(families) };
    let own_best = kind == RouteServerClient && rng.one_in(3);
    let export = match !kind.is_local() && rng.one_in(4) {
        true => conditional(rng.one_in(3), rng.one_in(2)),
        false => policy(rng, kind.is_external()),
    };
    let default_originate = (!kind.is_local() && rng.one_in(4)).then(|| {
        let attrs = |family| {
            let with = originated(Origin::Igp, family);
            AttrSet::new(&with.bytes(), with.next_hop)
        };
        DefaultOriginate {
            condition: rng.one_in(2).then(switch),
            source: DEFAULT_SOURCE,
            v4: Some(attrs(AfiSafi::Ipv4Unicast)),
            v6: Some(attrs(AfiSafi::Ipv6Unicast)),
        }
    });
    let path_ids = if kind.is_local() { FamilySet::NONE } else { path_ids(rng) };
    let long_lived = !kind.is_local() && rng.one_in(2);
    let mut info = PeerInfo {
        id: PeerId(n as u32),
        session: 0,
        address,
        asn: if kind.is_external() { 64500 + rng.index(3) as u32 } else { LOCAL_ASN },
        // A small range, so that later rules decide too.
        router_id: Ipv4Addr::new(10, 1, 0, rng.index(4) as u8),
        kind,
        multihop: kind.is_external() && rng.one_in(3),
        link: None,
        families,
        path_ids,
        long_lived,
        egress: EgressSettings {
            cluster_id: CLUSTER_ID,
            max_message: MAX_MESSAGE,
            long_lived: long_lived && rng.one_in(2),
            next_hop,
            link_local: link.then_some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 200)),
            extended_next_hop,
            default_originate,
            add_path,
            client: own_best.then_some(PeerId(n as u32)),
            ..EgressSettings::new(kind, LOCAL_ASN, ROUTER_ID, families, export)
        },
    };
    info.egress.long_lived_partial = !info.egress.long_lived && kind.is_inside() && n % 2 == 1;
    info
}

/// The number of the source of peers' own default routes.
const DEFAULT_SOURCE: PeerId = PeerId(900);

/// The source of peers' own default routes.
pub fn default_source() -> PeerInfo {
    let kind = PeerKind::Local(LocalSource::Default);
    let (families, export) = (FamilySet::ALL, Arc::new(Policy::accept()));
    PeerInfo {
        id: DEFAULT_SOURCE,
        session: 0,
        address: Ipv4Addr::UNSPECIFIED.into(),
        asn: LOCAL_ASN,
        router_id: ROUTER_ID,
        kind,
        multihop: false,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings::new(kind, LOCAL_ASN, ROUTER_ID, families, export),
    }
}

/// A selection of paths.
fn selection(rng: &mut Rng) -> PathSelection {
    match rng.index(5) {
        0 => PathSelection::Ecmp,
        1 => PathSelection::PerAs,
        2 => PathSelection::Best(NonZeroU16::MIN.saturating_add(rng.index(3) as u16)),
        _ => PathSelection::All,
    }
}

/// The families of a session with path identifiers.
fn unicast(ipv4: bool, ipv6: bool) -> FamilySet {
    let mut families = FamilySet::NONE;
    families.set(AfiSafi::Ipv4Unicast, ipv4);
    families.set(AfiSafi::Ipv6Unicast, ipv6);
    families
}

fn path_ids(rng: &mut Rng) -> FamilySet {
    match rng.one_in(3) {
        true => unicast(true, rng.one_in(2)),
        false => FamilySet::NONE,
    }
}

fn policy(rng: &mut Rng, external: bool) -> Arc<Policy> {
    match rng.index(8) {
        0 => Arc::new(Policy::reject()),
        1..=3 => divided(external),
        _ => Arc::new(Policy::accept()),
    }
}

/// A prefix in a block of its own, so that prefixes are spread over shards; some cover others.
fn scattered<F: BgpFamily>(rng: &mut Rng, n: u32) -> Prefix<F> {
    let bits = u128::from(n / 2 * 37 + 0x2a) << 120
        | u128::from(n % 2 * 0x51) << 100
        | u128::from(rng.next_u64()) << 20;
    Prefix::new(F::Bits::from_left(bits), *rng.pick(&[8, 16, 20, 24, F::WIDTH]))
}

/// A prefix in a block with three others, so that a few logical shards have them all.
fn together<F: BgpFamily>(rng: &mut Rng, n: u32) -> Prefix<F> {
    let block = if F::WIDTH == 32 { 18 } else { 32 };
    let bits = u128::from(n / 4 * 37 + 0x2a) << 120 | u128::from(n % 4) << (126 - block);
    Prefix::new(F::Bits::from_left(bits), *rng.pick(&[block + 2, block + 6, F::WIDTH]))
}

fn announcement(rng: &mut Rng, alike: bool) -> Announcement {
    let first = 64500 + rng.index(3) as u32;
    let mut path = vec![(true, vec![first])];
    match rng.index(10) {
        _ if alike => {}
        0 => path.clear(),
        1 => path = vec![(false, vec![first, 64600])],
        2 => path[0].1.push(LOCAL_ASN),
        3 => path.push((false, vec![64600, 64601, 64602])),
        4..=6 => path[0].1.push(64600),
        _ => {}
    }
    Announcement {
        origin: match rng.index(5) {
            0 if !alike => Origin::Egp,
            1 if !alike => Origin::Incomplete,
            _ => Origin::Igp,
        },
        path,
        med: rng.maybe(2, |rng| rng.index(3) as u32),
        local_pref: rng.maybe(4, |rng| 99 + rng.index(3) as u32).filter(|_| !alike),
        communities: match rng.index(8) {
            6 => vec![Community::LLGR_STALE.0],
            7 => vec![Community::NO_LLGR.0, 0xfde8_0001],
            0 => vec![Community::NO_EXPORT.0],
            1 => vec![Community::NO_ADVERTISE.0],
            2 => vec![0xfde8_0001],
            _ => vec![],
        },
        originator: rng
            .maybe(4, |rng| Ipv4Addr::new(10, 1, 0, rng.index(3) as u8))
            .or_else(|| rng.maybe(20, |_| ROUTER_ID)),
        clusters: (0..rng.index(3))
            .map(|_| if rng.one_in(20) { CLUSTER_ID } else { Ipv4Addr::new(10, 2, 0, rng.index(3) as u8) })
            .collect(),
        bandwidths: match rng.index(6) {
            0 => vec![],
            1 => vec![0],
            2 => vec![3, 1 + rng.index(3) as u16],
            _ => vec![1 + rng.index(3) as u16],
        },
        next_hop: next_hop(rng, AfiSafi::Ipv4Unicast),
    }
}

/// The attributes of an originated path.
pub fn originated(origin: Origin, family: AfiSafi) -> Announcement {
    Announcement {
        origin,
        path: Vec::new(),
        med: None,
        local_pref: None,
        communities: Vec::new(),
        originator: None,
        clusters: Vec::new(),
        bandwidths: Vec::new(),
        next_hop: match family.afi() {
            Afi::Ipv4 => NextHop::V4(Ipv4Addr::UNSPECIFIED),
            Afi::Ipv6 => NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: None },
        },
    }
}

/// The link-local address of every neighbour on a link.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// IPv4 routes may have IPv6 next hops (RFC 8950).
fn next_hop(rng: &mut Rng, family: AfiSafi) -> NextHop {
    let byte = rng.index(4) as u8 + 100;
    match family.afi() {
        Afi::Ipv4 if !rng.one_in(5) => NextHop::V4(Ipv4Addr::new(192, 0, 2, byte)),
        Afi::Ipv4 | Afi::Ipv6 if rng.one_in(6) => NextHop::from_v6(LINK_LOCAL, None),
        Afi::Ipv4 | Afi::Ipv6 => {
            let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(byte));
            NextHop::V6 { global, link_local: rng.maybe(2, |_| LINK_LOCAL) }
        }
    }
}

fn afi(rng: &mut Rng) -> AfiSafi {
    if rng.one_in(2) { AfiSafi::Ipv4Unicast } else { AfiSafi::Ipv6Unicast }
}

fn state(rng: &mut Rng) -> NextHopState {
    match rng.index(4) {
        0 => NextHopState::Unreachable,
        n => NextHopState::Reachable { cost: n as u32 - 1, partial: false },
    }
}

/// Some prefixes of one family.
fn some(rng: &mut Rng, prefixes: &[AnyPrefix], from: &PeerInfo) -> Prefixes {
    let family = AfiSafi::unicast(rng.pick(prefixes).afi());
    let of_family: Vec<AnyPrefix> =
        prefixes.iter().copied().filter(|prefix| AfiSafi::unicast(prefix.afi()) == family).collect();
    let mut some: Vec<AnyPrefix> = (0..=rng.index(4)).map(|_| *rng.pick(&of_family)).collect();
    some.sort_unstable();
    some.dedup();
    let path_id = from.path_ids.has(family).then(|| *rng.pick(&[0, 1, 2, 0xdead_beef]));
    Prefixes { list: some, path_id }
}

/// The UPDATEs of a change, without message headers.
pub fn updates(with: Option<&Announcement>, prefixes: &Prefixes) -> Vec<Vec<u8>> {
    fn write<N: Nlri>(with: Option<&Announcement>, routes: impl Iterator<Item = N>) -> Vec<u8> {
        let mut out = Vec::new();
        match with {
            Some(with) => {
                let bytes = with.bytes();
                let packer = UpdatePacker::new(&bytes, with.next_hop, usize::from(MAX_MESSAGE));
                packer.announce(routes, &mut out).expect("attributes of this history are short");
            }
            None => {
                build::withdraw(routes, usize::from(MAX_MESSAGE), &mut out);
            }
        }
        out
    }
    fn of<F: BgpFamily>(with: Option<&Announcement>, prefixes: &Prefixes) -> Vec<u8> {
        let of_family = |prefix: &AnyPrefix| Prefix::<F>::from_addr(prefix.addr(), prefix.len());
        let list = prefixes.list.iter().filter_map(of_family);
        match prefixes.path_id {
            Some(path_id) => write(with, list.map(|prefix| PathPrefix { prefix, path_id })),
            None => write(with, list),
        }
    }
    let mut stream = of::<V4>(with, prefixes);
    stream.extend(of::<V6>(with, prefixes));
    bodies(&stream)
}

/// Cuts a stream of messages and drops their headers.
pub fn bodies(stream: &[u8]) -> Vec<Vec<u8>> {
    messages(stream).into_iter().map(|(_, body)| body).collect()
}

/// Cuts a stream of messages into types and bodies.
pub fn messages(mut stream: &[u8]) -> Vec<(message::MessageType, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Ok(Some(frame)) = message::frame(stream, usize::from(MAX_MESSAGE)) {
        messages.push((frame.kind, frame.body.to_vec()));
        stream = &stream[frame.total_len..];
    }
    assert!(stream.is_empty(), "the builder writes whole messages");
    messages
}
