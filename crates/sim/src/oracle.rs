//! BGP as simple as possible. It shares only the types of settings and results with the tested
//! code: attributes are fields and not bytes, and everything is recomputed.

use crate::history::{Announcement, CLUSTER_ID, Event, LOCAL_ASN, ROUTER_ID, default_source, originated};
use crate::policy::{accepts, plainly};
use ribtide_bgp::decision::{DecisionOptions, Reason};
use ribtide_bgp::message::{NextHopState, TrackedNextHop};
use ribtide_bgp::peer::{EgressSettings, NextHopRule, PathSelection, PeerId, PeerInfo, PeerKind};
use ribtide_policy::{Policy, PolicyResult};
use ribtide_prefix::zone::zone_of;
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix};
use ribtide_wire::bgp::NextHop;
use ribtide_wire::bgp::attribute::Origin;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Communities of RFC 9494.
const LLGR_STALE: u32 = 0xffff_0006;
const NO_EXPORT: u32 = 0xffff_ff01;
const NO_EXPORT_SUBCONFED: u32 = 0xffff_ff03;
const NO_LLGR: u32 = 0xffff_0007;

/// A path that a peer advertised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learned {
    /// The peer's index in the history.
    pub peer: usize,
    /// The family of its prefix.
    pub family: AfiSafi,
    /// Its path identifier; `None` where the peer sends none.
    pub path_id: Option<u32>,
    /// The session in which the peer announced it last.
    pub session: u32,
    /// Its attributes.
    pub with: Announcement,
}

/// The usable paths of prefixes; see [`Oracle::ranking`].
pub type Ranking = BTreeMap<AnyPrefix, Vec<(Learned, bool)>>;

/// What names a retained path: its prefix, its peer and its path identifier.
pub type Stale = (AnyPrefix, usize, Option<u32>);

/// Paths of a peer that did not come again in a refresh: prefix and path identifier.
type Unrefreshed = BTreeSet<(AnyPrefix, Option<u32>)>;

/// The naive router.
#[derive(Clone)]
pub struct Oracle {
    options: DecisionOptions,
    peers: Vec<PeerInfo>,
    imports: Vec<Arc<Policy>>,
    up: Vec<bool>,
    /// Paths from the oldest to the newest.
    paths: BTreeMap<AnyPrefix, Vec<Learned>>,
    /// Retained paths.
    stale: BTreeSet<Stale>,
    /// The sessions that each peer had.
    sessions: Vec<u32>,
    /// Of each refresh under way, the paths that did not come again.
    unrefreshed: BTreeMap<(usize, AfiSafi), Unrefreshed>,
    next_hops: BTreeMap<IpAddr, NextHopState>,
    /// Whether the set that export depends on has a route, if that is known.
    pub present: Option<bool>,
}

impl Oracle {
    /// A router without sessions.
    pub fn new(options: DecisionOptions, peers: Vec<PeerInfo>, imports: Vec<Arc<Policy>>) -> Oracle {
        let up = vec![false; peers.len()];
        let (paths, stale, next_hops) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let unrefreshed = BTreeMap::new();
        let (sessions, present) = (vec![0; peers.len()], None);
        Oracle { options, peers, imports, up, paths, stale, sessions, unrefreshed, next_hops, present }
    }

    /// Applies an event.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Up(peer, path_ids) => {
                self.unrefreshed.retain(|(of, _), _| of != peer);
                self.up[*peer] = true;
                self.sessions[*peer] += 1;
                self.peers[*peer].path_ids = *path_ids;
            }
            Event::Down(peer) => {
                self.up[*peer] = false;
                self.remove(*peer, |_, _| true);
            }
            Event::Lose(peer, families) => {
                self.up[*peer] = false;
                // Those of earlier sessions stay, too (RFC 8538 section 4.1).
                self.remove(*peer, |prefix, _| !families.has(AfiSafi::unicast(prefix.afi())));
                for (prefix, paths) in &self.paths {
                    let of_peer = paths.iter().filter(|path| path.peer == *peer);
                    self.stale.extend(of_peer.map(|path| (*prefix, *peer, path.path_id)));
                }
            }
            Event::LongLived(peer, family) => {
                let stale = self.stale.clone();
                let is_stale = |prefix: AnyPrefix, id| {
                    AfiSafi::unicast(prefix.afi()) == *family && stale.contains(&(prefix, *peer, id))
                };
                if !self.peers[*peer].long_lived {
                    return;
                }
                for (prefix, paths) in &mut self.paths {
                    let has = |path: &Learned, community| path.with.communities.contains(&community);
                    let is_new = |path: &Learned| {
                        path.peer == *peer && is_stale(*prefix, path.path_id) && !has(path, LLGR_STALE)
                    };
                    paths.retain(|path| {
                        let is_gone = is_new(path) && has(path, NO_LLGR);
                        if is_gone {
                            self.stale.remove(&(*prefix, *peer, path.path_id));
                        }
                        !is_gone
                    });
                    let marked = paths.iter_mut().filter(|path| is_new(path));
                    marked.for_each(|path| path.with.communities.push(LLGR_STALE));
                }
            }
            Event::Sweep(peer, family) => {
                let stale = self.stale.clone();
                self.remove(*peer, |prefix, id| {
                    AfiSafi::unicast(prefix.afi()) == *family && stale.contains(&(prefix, *peer, id))
                });
            }
            Event::Announce(peer, with, prefixes) => {
                for prefix in self.carried(*peer, &prefixes.list) {
                    self.stale.remove(&(prefix, *peer, prefixes.path_id));
                    self.refreshed(*peer, prefix, prefixes.path_id);
                    let with = self.kept(*peer, with);
                    let with = Some(with).filter(|with| !is_loop(with));
                    let with =
                        with.and_then(|with| self.apply_policy(&self.imports[*peer], *peer, &with, prefix));
                    let learned = with.map(|(with, _)| Learned {
                        peer: *peer,
                        family: AfiSafi::unicast(prefix.afi()),
                        path_id: prefixes.path_id,
                        session: self.sessions[*peer],
                        with,
                    });
                    let paths = self.paths.entry(prefix).or_default();
                    let is_same = |path: &&mut Learned, new: &Learned| {
                        Learned { session: new.session, ..(**path).clone() } == *new
                    };
                    if let Some(new) = &learned
                        && let Some(path) = paths.iter_mut().find(|path| is_same(path, new))
                    {
                        // It is as old as before.
                        path.session = new.session;
                        continue;
                    }
                    paths.retain(|path| (path.peer, path.path_id) != (*peer, prefixes.path_id));
                    paths.extend(learned);
                }
            }
            Event::Withdraw(peer, prefixes) => {
                for prefix in self.carried(*peer, &prefixes.list) {
                    self.stale.remove(&(prefix, *peer, prefixes.path_id));
                    self.refreshed(*peer, prefix, prefixes.path_id);
                    let paths = self.paths.entry(prefix).or_default();
                    paths.retain(|path| (path.peer, path.path_id) != (*peer, prefixes.path_id));
                }
            }
            Event::NextHop(addr, state) => {
                self.next_hops.insert(*addr, *state);
            }
            Event::Configure(peer, add_path, export, own_best) => {
                let egress = &mut self.peers[*peer].egress;
                (egress.add_path, egress.export) = (*add_path, export.clone());
                egress.client = own_best.then_some(PeerId(*peer as u32));
            }
            Event::BeginRefresh(peer, family) => {
                let of = |(prefix, paths): (&AnyPrefix, &Vec<Learned>)| {
                    let ids = paths.iter().filter(|path| path.peer == *peer).map(|path| path.path_id);
                    ids.map(|id| (*prefix, id)).collect::<Vec<_>>()
                };
                let of_family =
                    self.paths.iter().filter(|(prefix, _)| AfiSafi::unicast(prefix.afi()) == *family);
                let mut left: BTreeSet<_> = of_family.flat_map(of).collect();
                left.retain(|(prefix, id)| !self.stale.contains(&(*prefix, *peer, *id)));
                self.unrefreshed.insert((*peer, *family), left);
            }
            Event::EndRefresh(peer, family) => {
                let left = self.unrefreshed.remove(&(*peer, *family)).unwrap_or_default();
                self.remove(*peer, |prefix, id| left.contains(&(prefix, id)));
            }
            Event::Refresh(..) | Event::Dump(_) => {}
        }
        self.paths.retain(|_, paths| !paths.is_empty());
    }

    /// A path came again, or was withdrawn.
    fn refreshed(&mut self, peer: usize, prefix: AnyPrefix, path_id: Option<u32>) {
        if let Some(left) = self.unrefreshed.get_mut(&(peer, AfiSafi::unicast(prefix.afi()))) {
            left.remove(&(prefix, path_id));
        }
    }

    /// Removes paths of a peer.
    fn remove(&mut self, peer: usize, is_gone: impl Fn(AnyPrefix, Option<u32>) -> bool) {
        for (prefix, paths) in &mut self.paths {
            paths.retain(|path| path.peer != peer || !is_gone(*prefix, path.path_id));
        }
        self.stale.retain(|(prefix, of, id)| *of != peer || !is_gone(*prefix, *id));
    }

    /// Selects by other options from now on.
    pub fn set_options(&mut self, options: DecisionOptions) {
        self.options = options;
    }

    /// Retained paths.
    pub fn stale(&self) -> &BTreeSet<Stale> {
        &self.stale
    }

    /// Whether a session of the peer is up.
    pub fn is_up(&self, peer: usize) -> bool {
        self.up[peer]
    }

    /// All paths, from the oldest to the newest.
    pub fn paths(&self) -> &BTreeMap<AnyPrefix, Vec<Learned>> {
        &self.paths
    }

    /// The best path of every prefix that has one.
    pub fn loc_rib(&self) -> BTreeMap<AnyPrefix, Learned> {
        let best = |(prefix, paths): (&AnyPrefix, &Vec<Learned>)| {
            self.best(paths).map(|best| (*prefix, paths[best].clone()))
        };
        self.paths.iter().filter_map(best).collect()
    }

    /// The next hops that paths use, for each kind of path.
    pub fn next_hops(&self) -> BTreeSet<TrackedNextHop> {
        // The next hop of an originated path is this router.
        let tracked = |path: &&Learned| !self.peers[path.peer].kind.is_local();
        let recursive = |path: &Learned| self.peers[path.peer].feed_kind().recursive;
        let next_hop = |path: &Learned| TrackedNextHop {
            address: path.with.next_hop.addr(),
            recursive: recursive(path),
            exclude: None,
        };
        self.paths.values().flatten().filter(tracked).map(next_hop).collect()
    }

    /// The path that the RIB manager gets: the best one, or without one the path that would be best
    /// if all next hops were reachable at equal cost.
    pub fn selected(&self, prefix: AnyPrefix) -> Option<Learned> {
        let paths = self.paths.get(&prefix)?;
        let blind = Oracle { next_hops: BTreeMap::new(), paths: BTreeMap::new(), ..self.clone() };
        let selected = self.best(paths).or_else(|| blind.best(paths))?;
        Some(paths[selected].clone())
    }

    /// The usable paths of every prefix from the best on, each with whether only tie-breaking rules separate it from the
    /// best.
    pub fn ranking(&self) -> Ranking {
        let empty = Oracle { paths: BTreeMap::new(), stale: BTreeSet::new(), ..self.clone() };
        // The best of the others is compared among all, whatever the option says of the first.
        let options = DecisionOptions { deterministic_med: true, ..self.options };
        let succession = Oracle { options, ..empty };
        let ranked = |(prefix, paths): (&AnyPrefix, &Vec<Learned>)| {
            let mut left = paths.clone();
            let first = left.remove(self.best(paths)?);
            let mut ranked = vec![(first.clone(), true)];
            while let Some(next) = succession.best(&left) {
                let next = left.remove(next);
                let equal = self.is_equal(&first, &next, paths);
                ranked.push((next, equal));
            }
            Some((*prefix, ranked))
        };
        self.paths.iter().filter_map(ranked).collect()
    }

    /// The routes for a peer with an established session, as they arrive there: without path identifiers at most one of a
    /// prefix.
    pub fn adj_rib_out(&self, to: usize, ranking: &Ranking) -> BTreeMap<AnyPrefix, Vec<Announcement>> {
        let EgressSettings { add_path, client, .. } = &self.peers[to].egress;
        let mut out = BTreeMap::new();
        for (prefix, ranked) in ranking.iter().filter(|(prefix, _)| self.carries(to, **prefix)) {
            let selection = add_path.of(AfiSafi::unicast(prefix.afi()));
            let considered = match (selection, client) {
                (None, None) => &ranked[..1],
                _ => ranked,
            };
            // A path of a peer counts for the members of its group, to which it belongs.
            let counts = |path: &Learned| client.is_none() || path.peer != to;
            let sent = considered.iter().filter(|(path, _)| counts(path));
            let sent =
                sent.filter_map(|(path, equal)| Some((path, *equal, self.sent_to_group(path, to, *prefix)?)));
            let selected: Vec<(&Learned, Announcement)> = match selection {
                None => sent.take(1).map(|(path, _, with)| (path, with)).collect(),
                Some(PathSelection::All) => sent.map(|(path, _, with)| (path, with)).collect(),
                Some(PathSelection::Best(count)) => {
                    sent.take(usize::from(count.get())).map(|(path, _, with)| (path, with)).collect()
                }
                Some(PathSelection::Ecmp) => {
                    sent.filter(|(_, equal, _)| *equal).map(|(path, _, with)| (path, with)).collect()
                }
                Some(PathSelection::PerAs) => {
                    let mut seen = BTreeSet::new();
                    let first = sent.filter(|(path, ..)| seen.insert(neighbor(&path.with)));
                    first.map(|(path, _, with)| (path, with)).collect()
                }
            };
            let others: Vec<Announcement> =
                selected.into_iter().filter(|(path, _)| path.peer != to).map(|(_, with)| with).collect();
            if !others.is_empty() {
                out.insert(*prefix, others);
            }
        }
        let own = self.peers[to].egress.default_originate.as_ref();
        if own.is_some_and(|own| own.condition.is_none() || self.present == Some(true)) {
            for (family, prefix) in [(AfiSafi::Ipv4Unicast, "0.0.0.0/0"), (AfiSafi::Ipv6Unicast, "::/0")] {
                let prefix = prefix.parse().expect("a prefix");
                let with = originated(Origin::Igp, family);
                if self.carries(to, prefix)
                    && let Some(with) = self.as_sent(&default_source(), with, to, prefix, false)
                {
                    out.insert(prefix, vec![with]);
                }
            }
        }
        out
    }

    /// A path as members of a peer's update group get it, if they do.
    fn sent_to_group(&self, path: &Learned, to: usize, prefix: AnyPrefix) -> Option<Announcement> {
        if !self.may_send(path, to) {
            return None;
        }
        let (with, med_set) = self.apply_policy(&self.peers[to].egress.export, to, &path.with, prefix)?;
        self.as_sent(&self.peers[path.peer], with, to, prefix, med_set)
    }

    /// The result of a peer's policy for a route, and whether it set the MED.
    fn apply_policy(
        &self,
        policy: &Policy,
        peer: usize,
        with: &Announcement,
        prefix: AnyPrefix,
    ) -> Option<(Announcement, bool)> {
        match policy.constant() {
            Some(PolicyResult::Accept) => Some((with.clone(), false)),
            Some(PolicyResult::Reject) => None,
            None if !policy.presence_sets().is_empty() => {
                accepts(policy.name(), self.present, prefix).then(|| (with.clone(), false))
            }
            None => plainly(!self.peers[peer].kind.is_internal(), with, prefix),
        }
    }

    fn carries(&self, peer: usize, prefix: AnyPrefix) -> bool {
        self.peers[peer].families.has(AfiSafi::unicast(prefix.afi()))
    }

    fn carried(&self, peer: usize, prefixes: &[AnyPrefix]) -> Vec<AnyPrefix> {
        prefixes.iter().copied().filter(|prefix| self.carries(peer, *prefix)).collect()
    }

    /// The attributes that count: external peers may not send all of them.
    fn kept(&self, peer: usize, with: &Announcement) -> Announcement {
        let mut with = with.clone();
        // The link of the session is that of its next hops.
        if let Some(zone) = zone_of(self.peers[peer].address) {
            with.next_hop = with.next_hop.on_link(zone);
        }
        if self.peers[peer].kind.is_external() {
            with.local_pref = None;
            with.originator = None;
            with.clusters.clear();
        }
        with
    }

    fn cost(&self, path: &Learned) -> Option<u32> {
        match self.next_hops.get(&path.with.next_hop.addr()) {
            None => Some(0),
            Some(state) => state.cost(),
        }
    }

    fn best(&self, paths: &[Learned]) -> Option<usize> {
        self.reasons(paths).iter().position(Option::is_none)
    }

    /// The next hops of a prefix with their shares, and the backup path. Without a best path, the
    /// next hop of the selected one.
    pub fn forwarding(&self, prefix: AnyPrefix) -> Option<(BTreeMap<IpAddr, u16>, Option<Learned>)> {
        let mut left = self.paths.get(&prefix)?.clone();
        // Most originated paths forward nothing; others are alone.
        let selected = self.selected(prefix)?;
        if let PeerKind::Local(source) = self.peers[selected.peer].kind {
            let next_hop = selected.with.next_hop.addr();
            return source.feeds().then(|| (BTreeMap::from([(next_hop, 1)]), None));
        }
        let Some(best) = self.best(&left).map(|best| left[best].clone()) else {
            let selected = self.selected(prefix)?;
            return Some((BTreeMap::from([(selected.with.next_hop.addr(), 1)]), None));
        };
        let mut equal: Vec<Learned> =
            left.iter().filter(|path| self.is_equal(&best, path, &left)).cloned().collect();
        let bandwidth = |path: &Learned| path.with.bandwidths.iter().min().copied();
        let mut next_hops = BTreeMap::from([(best.with.next_hop.addr(), bandwidth(&best))]);
        while next_hops.len() < usize::from(self.options.maximum_paths)
            && let Some(next) = self.best(&equal)
        {
            let path = equal.remove(next);
            next_hops.entry(path.with.next_hop.addr()).or_insert(bandwidth(&path));
        }
        left.retain(|path| !next_hops.contains_key(&path.with.next_hop.addr()));
        let backup = self.best(&left).filter(|_| self.options.backup_path);
        Some((self.shares(next_hops), backup.map(|backup| left[backup].clone())))
    }

    /// RFC 10005: shares in proportion, in parts of at most 256, when every path has a bandwidth.
    fn shares(&self, bandwidths: BTreeMap<IpAddr, Option<u16>>) -> BTreeMap<IpAddr, u16> {
        let largest = bandwidths.values().flatten().copied().max().unwrap_or(0);
        let all = bandwidths.values().all(Option::is_some);
        if !self.options.link_bandwidth || !all || largest == 0 {
            return bandwidths.into_keys().map(|addr| (addr, 1)).collect();
        }
        let parts = |of: Option<u16>| {
            ((2 * 256 * u32::from(of.unwrap_or(0)) + u32::from(largest)) / (2 * u32::from(largest))).max(1)
        };
        let parts: BTreeMap<IpAddr, u32> =
            bandwidths.into_iter().map(|(addr, of)| (addr, parts(of))).collect();
        let factor =
            (1..=256).rev().find(|factor| parts.values().all(|part| part % factor == 0)).unwrap_or(1);
        parts.into_iter().map(|(addr, part)| (addr, (part / factor) as u16)).collect()
    }

    /// Whether a path equals the best of `all`: only tie-breaking rules separate the two, and no
    /// other path has a lower MED.
    fn is_equal(&self, best: &Learned, path: &Learned, all: &[Learned]) -> bool {
        let mut pair = [None, None];
        self.eliminate(&[best.clone(), path.clone()], &mut pair);
        let mut among_all: Vec<Option<Reason>> =
            all.iter().map(|path| self.cost(path).is_none().then_some(Reason::NextHopUnreachable)).collect();
        self.eliminate(all, &mut among_all);
        let lost = all.iter().position(|other| other == path).and_then(|at| among_all[at]);
        let same_kind = self.peers[best.peer].feed_kind() == self.peers[path.peer].feed_kind();
        self.cost(path).is_some()
            && pair.into_iter().flatten().all(|why| why > Reason::IgpCost)
            && lost != Some(Reason::Med)
            && same_kind
            && (self.options.multipath_relax || neighbor(&best.with) == neighbor(&path.with))
    }

    /// For each path of a prefix, the rule by which it lost; `None` for the best.
    pub fn reasons(&self, paths: &[Learned]) -> Vec<Option<Reason>> {
        let unreachable = |path| self.cost(path).is_none().then_some(Reason::NextHopUnreachable);
        let mut lost: Vec<Option<Reason>> = paths.iter().map(unreachable).collect();
        if self.options.deterministic_med {
            self.eliminate(paths, &mut lost);
            return lost;
        }
        // Two at a time: the winner so far, and the next.
        let mut left: Option<usize> = None;
        for next in 0..paths.len() {
            if lost[next].is_some() {
                continue;
            }
            if let Some(left) = left {
                let pair = [paths[left].clone(), paths[next].clone()];
                let mut outcome = [None, None];
                self.eliminate(&pair, &mut outcome);
                [lost[left], lost[next]] = outcome;
            }
            if lost[next].is_none() {
                left = Some(next);
            }
        }
        lost
    }

    /// RFC 4271 section 9.1.2.2 and RFC 4456 section 9: one rule after the other removes paths, until one is left.
    fn eliminate(&self, paths: &[Learned], lost: &mut [Option<Reason>]) {
        let peer = |path: &Learned| &self.peers[path.peer];
        let external = |path: &Learned| peer(path).kind.is_external();
        lowest(paths, lost, Reason::Originated, |path| !peer(path).kind.is_local());
        let originated = |path: &&Learned| self.cost(path).is_some() && peer(path).kind.is_local();
        if paths.iter().any(|path| originated(&path)) {
            lowest(paths, lost, Reason::RouterId, |path| peer(path).router_id);
            return lowest(paths, lost, Reason::PeerAddress, |path| peer(path).address);
        }
        lowest(paths, lost, Reason::LongLivedStale, |path| self.is_least_preferred(path));
        lowest(paths, lost, Reason::LocalPref, |path| Reverse(path.with.local_pref.unwrap_or(100)));
        lowest(paths, lost, Reason::AsPathLength, |path| hops(&path.with));
        lowest(paths, lost, Reason::Origin, |path| path.with.origin);
        let considered: Vec<&Learned> =
            paths.iter().zip(&*lost).filter(|(_, lost)| lost.is_none()).map(|(path, _)| path).collect();
        for (path, lost) in paths.iter().zip(&mut *lost).filter(|(_, lost)| lost.is_none()) {
            let beaten = |other: &&Learned| {
                let comparable = neighbor(&other.with) == neighbor(&path.with);
                (self.options.always_compare_med || comparable) && self.med(other) < self.med(path)
            };
            if considered.iter().any(beaten) {
                *lost = Some(Reason::Med);
            }
        }
        lowest(paths, lost, Reason::ExternalOverInternal, |path| !external(path));
        lowest(paths, lost, Reason::IgpCost, |path| self.cost(path));
        let mut older = false;
        for (path, lost) in paths.iter().zip(&mut *lost).filter(|(_, lost)| lost.is_none()) {
            if self.options.prefer_oldest && external(path) && std::mem::replace(&mut older, true) {
                *lost = Some(Reason::OldestPath);
            }
        }
        lowest(paths, lost, Reason::RouterId, |path| path.with.originator.unwrap_or(peer(path).router_id));
        lowest(paths, lost, Reason::ClusterListLength, |path| path.with.clusters.len());
        lowest(paths, lost, Reason::PeerAddress, |path| peer(path).address);
        // Of a session without path identifiers and one with them, the path of the later one.
        lowest(paths, lost, Reason::PathId, |path| (path.path_id.unwrap_or(0), Reverse(path.session)));
    }

    fn med(&self, path: &Learned) -> u32 {
        path.with.med.unwrap_or(if self.options.med_missing_as_worst { u32::MAX } else { 0 })
    }

    /// RFC 9494 sections 4.3 and 4.4.
    fn is_least_preferred(&self, path: &Learned) -> bool {
        self.peers[path.peer].long_lived && path.with.communities.contains(&LLGR_STALE)
    }

    /// RFC 4271 section 9.2, RFC 4456 section 6, RFC 1997, RFC 9494 sections 4.3 and 4.6.
    fn may_send(&self, path: &Learned, to: usize) -> bool {
        let egress = &self.peers[to].egress;
        if self.is_least_preferred(path) && !egress.long_lived && !egress.long_lived_partial {
            return false;
        }
        let (from, to_kind) = (self.peers[path.peer].kind, self.peers[to].kind);
        let reflected = from == PeerKind::Client || to_kind == PeerKind::Client;
        let internal_to_internal = from.is_internal() && to_kind.is_internal();
        let no_export = path.with.communities.contains(&NO_EXPORT)
            || path.with.communities.contains(&NO_EXPORT_SUBCONFED);
        let no_advertise = path.with.communities.contains(&0xffff_ff02);
        // RFC 7947 section 2.2.4.
        let transparent = is_transparent(from, to_kind);
        (!internal_to_internal || reflected)
            && (transparent || !(no_advertise || (no_export && to_kind.is_external())))
    }

    /// The attributes as sent to a peer; `None` without a next hop to send.
    fn as_sent(
        &self,
        from: &PeerInfo,
        with: Announcement,
        to: usize,
        prefix: AnyPrefix,
        med_set: bool,
    ) -> Option<Announcement> {
        let to = &self.peers[to];
        let mut with = with;
        // RFC 7947 section 2.2.
        if is_transparent(from.kind, to.kind) {
            with.local_pref = None;
            with.originator = None;
            with.clusters.clear();
            let passed_on = passed_on(to, AfiSafi::unicast(prefix.afi()), with.next_hop)?;
            // The clients share a link, unless the session is one over a link of its own.
            if zone_of(from.address).is_some() {
                with.next_hop = passed_on;
            }
            return Some(with);
        }
        if to.kind.is_external() {
            match with.path.first_mut() {
                Some((true, asns)) => asns.insert(0, LOCAL_ASN),
                _ => with.path.insert(0, (true, vec![LOCAL_ASN])),
            }
            with.local_pref = None;
            with.originator = None;
            with.clusters.clear();
            with.med = with.med.filter(|_| med_set || from.kind.is_local());
        } else {
            with.local_pref.get_or_insert(100);
            if from.kind.is_internal() {
                with.originator.get_or_insert(from.router_id);
                with.clusters.insert(0, CLUSTER_ID);
            }
        }
        // RFC 9494 section 4.6.
        if to.egress.long_lived_partial && from.long_lived && with.communities.contains(&LLGR_STALE) {
            with.local_pref = Some(0);
            if !with.communities.iter().any(|community| [NO_EXPORT, NO_EXPORT_SUBCONFED].contains(community))
            {
                with.communities.push(NO_EXPORT);
            }
        }
        // No other peer reaches an address that is valid on our link alone.
        let on_our_link =
            matches!(with.next_hop, NextHop::V6 { global, .. } if zone_of(global.into()).is_some());
        let replaced =
            matches!(to.egress.next_hop, NextHopRule::Own { .. }) || from.kind.is_local() || on_our_link;
        with.next_hop = match replaced {
            true => own(to, AfiSafi::unicast(prefix.afi()))?,
            false => passed_on(to, AfiSafi::unicast(prefix.afi()), with.next_hop)?,
        };
        Some(with)
    }
}

/// Our address in NEXT_HOP, as a peer gets it (RFC 2545 section 3, RFC 8950).
fn own(to: &PeerInfo, family: AfiSafi) -> Option<NextHop> {
    let (NextHopRule::Own { v4, v6 } | NextHopRule::KeepUnlessOwn { v4, v6 }) = to.egress.next_hop else {
        return None;
    };
    let six = match (v6, to.egress.link_local) {
        (None, None) => None,
        (Some(global), None) => Some(NextHop::V6 { global, link_local: None }),
        (None, Some(local)) => Some(NextHop::from_v6(local, None)),
        (Some(global), Some(local)) => Some(NextHop::from_v6(global, Some(local))),
    };
    match (family.afi(), v4, to.egress.extended_next_hop) {
        (Afi::Ipv6, _, _) | (Afi::Ipv4, None, true) => six,
        (Afi::Ipv4, v4, _) => v4.map(NextHop::V4),
    }
}

/// A next hop as it is passed on: a link-local address is valid on its own link only (RFC 2545 section 3), and an IPv6 next
/// hop of an IPv4 route needs the receiver's consent (RFC 8950 section 4).
fn passed_on(to: &PeerInfo, family: AfiSafi, next_hop: NextHop) -> Option<NextHop> {
    match (family.afi(), next_hop) {
        (Afi::Ipv4, NextHop::V4(_)) => Some(next_hop),
        (Afi::Ipv4, NextHop::V6 { .. }) if !to.egress.extended_next_hop => None,
        (_, NextHop::V6 { global, .. }) if global.is_unicast_link_local() => None,
        (_, NextHop::V6 { global, .. }) => Some(NextHop::V6 { global, link_local: None }),
        (Afi::Ipv6, NextHop::V4(_)) => None,
    }
}

/// Whether a route of such a peer passes a route server unchanged to such another.
fn is_transparent(from: PeerKind, to: PeerKind) -> bool {
    from == PeerKind::RouteServerClient && to == PeerKind::RouteServerClient
}

/// Removes the remaining paths without the lowest `key`.
fn lowest<K: Ord>(paths: &[Learned], lost: &mut [Option<Reason>], why: Reason, key: impl Fn(&Learned) -> K) {
    let left = || paths.iter().enumerate();
    let Some(lowest) = left().filter(|(i, _)| lost[*i].is_none()).map(|(_, path)| key(path)).min() else {
        return;
    };
    let removed: Vec<usize> =
        left().filter(|(i, path)| lost[*i].is_none() && key(path) != lowest).map(|(i, _)| i).collect();
    removed.into_iter().for_each(|i| lost[i] = Some(why));
}

fn hops(with: &Announcement) -> usize {
    with.path.iter().map(|(sequence, asns)| if *sequence { asns.len() } else { 1 }).sum()
}

fn neighbor(with: &Announcement) -> Option<u32> {
    match with.path.first()? {
        (true, asns) => asns.first().copied(),
        (false, _) => None,
    }
}

fn is_loop(with: &Announcement) -> bool {
    let own: Ipv4Addr = ROUTER_ID;
    with.path.iter().any(|(_, asns)| asns.contains(&LOCAL_ASN))
        || with.originator == Some(own)
        || with.clusters.contains(&CLUSTER_ID)
}
