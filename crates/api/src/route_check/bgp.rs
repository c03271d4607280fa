//! BGP against the RIB manager: the RIB manager must be able to forward what BGP takes for
//! reachable and so advertises.
//!
//! For each prefix of the Loc-RIB the RIB manager must have the candidate of BGP with exactly the
//! next hops of BGP's feed. If there is a best path, one of them must resolve. The selection of
//! another protocol is no difference. With `fib.suppress-fib-pending`, an advertised best path must
//! be installed, and an installed one advertised. For each candidate of the RIB manager BGP must
//! have a path.
//!
//! A next hop that resolves and is not used yet is no difference: damping may delay its
//! notification.
//!
//! Neither side has a journal of its changes. So a check compares what differed before, what
//! changed in the FIB, and the next part of the Loc-RIB. It scans the candidates if their number
//! differs from that of BGP's prefixes.

use super::super::state::RouterState;
use super::PAGE;
use ribtide_bgp::message::FeedSet;
use ribtide_bgp::shard::{FedView, Shard, Standing};
use ribtide_bgpd::shard::route_set;
use ribtide_model::Difference;
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{
    AnyPrefix, FamilySet, LOGICAL_SHARDS, LogicalShard, Map, Prefix, Set, for_each_bgp_family,
};
use ribtide_rib::{
    Announced, GroupId, InstallStatus, NextHops, Outcome, ReceivedHop, RouteSet, Source, VrfId, VrfPrefix,
};
use ribtide_ribd::{RibHandle, RibStage};
use ribtide_runtime::call::NoReply;
use std::net::IpAddr;

/// Places of the tables of the RIB manager in one query.
const PLACES: usize = 8 * PAGE;

/// The state between two checks.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Prefixes that differed.
    open: Set<AnyPrefix>,
    /// The logical shards that the scan of the Loc-RIB has visited, a bit each.
    visited: u64,
    /// Prefixes of visited shards that are not compared yet.
    left: Vec<AnyPrefix>,
    /// The place of the scan of candidates.
    place: usize,
}

/// The result of a check.
#[derive(Default)]
pub(super) struct Found {
    /// Prefixes compared.
    pub(super) compared: u64,
    /// The number of best paths; `None` without BGP.
    pub(super) best: Option<u64>,
    /// The differing prefixes.
    pub(super) differences: Vec<Difference>,
}

/// Compares what differed before, `changed`, and a part of the rest with `part` routes;
/// [`usize::MAX`] means everything.
pub(super) fn check(
    router: &RouterState,
    state: &mut State,
    changed: &[VrfPrefix],
    part: usize,
) -> Result<Found, NoReply> {
    let rib = router.rib.get();
    let (Some(rib), Some(_)) = (&rib, router.bgp.get()) else { return Ok(Found::default()) };
    let all = part == usize::MAX;
    // BGP runs in the default VRF only.
    let changed = changed.iter().filter(|route| route.vrf == VrfId::DEFAULT).map(|route| route.prefix);
    let mut prefixes: Vec<AnyPrefix> = if all { Vec::new() } else { changed.collect() };
    prefixes.extend(state.open.iter());
    if all {
        (state.visited, state.left, state.place) = (0, Vec::new(), 0);
    }
    prefixes.extend(walk_on(router, state, part)?);
    let (held, best) = counts(router)?;
    let candidates = rib.handle.call(|stage| {
        let totals = stage.rib.default_vrf().totals();
        let of_bgp = totals.iter().filter(|total| total.protocol.source() == Source::Bgp);
        of_bgp.map(|total| total.candidates).sum::<u64>()
    })?;
    if all || held != candidates {
        prefixes.extend(candidates_from(rib, state, part)?);
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    let mut found = Found { compared: prefixes.len() as u64, best: Some(best), differences: Vec::new() };
    state.open.clear();
    for page in prefixes.chunks(PAGE) {
        for (prefix, difference) in differing(router, rib, page)? {
            state.open.insert(prefix);
            found.differences.push(difference);
        }
    }
    Ok(found)
}

/// The number of prefixes of BGP, and of best paths.
fn counts(router: &RouterState) -> Result<(u64, u64), NoReply> {
    let (mut held, mut best) = (0, 0);
    let Some(owners) = router.owners() else { return Ok((0, 0)) };
    for shard in &owners.read().shards {
        let counts = shard.call(|shard| shard.counts())?;
        for family in FamilySet::UNICAST.iter() {
            held += counts.families[family].prefixes as u64;
            best += counts.families[family].best as u64;
        }
    }
    Ok((held, best))
}

/// The next `limit` prefixes of the Loc-RIB, of both families. A round ends when every logical
/// shard was visited. A shard copies the prefixes of as many whole logical shards as needed.
fn walk_on(router: &RouterState, state: &mut State, limit: usize) -> Result<Vec<AnyPrefix>, NoReply> {
    if let Some(owners) = router.owners() {
        let owners = owners.read();
        for (index, shard) in owners.shards.iter().enumerate() {
            // A logical shard that moves is visited after the move.
            let is_moving = |logical| owners.split.as_ref().is_some_and(|split| split.logical == logical);
            let is_left = |logical: &LogicalShard| {
                usize::from(owners.map[usize::from(*logical)]) == index
                    && state.visited & 1 << *logical == 0
                    && !is_moving(*logical)
            };
            let logical: Vec<LogicalShard> = (0..LOGICAL_SHARDS).filter(is_left).collect();
            if logical.is_empty() || state.left.len() >= limit {
                continue;
            }
            let room = limit - state.left.len();
            let (visited, prefixes) = shard.call(move |shard| prefixes(shard, &logical, room))?;
            state.visited |= visited;
            state.left.extend(prefixes);
        }
    }
    if state.visited == u64::MAX && state.left.len() <= limit {
        state.visited = 0;
    }
    let rest = state.left.split_off(limit.min(state.left.len()));
    Ok(std::mem::replace(&mut state.left, rest))
}

/// The prefixes of logical shards, until there are `room` or more, and the visited shards, a bit
/// each.
fn prefixes(shard: &Shard, logical: &[LogicalShard], room: usize) -> (u64, Vec<AnyPrefix>) {
    let (mut visited, mut found) = (0, Vec::new());
    for logical in logical {
        if found.len() >= room {
            break;
        }
        visited |= 1 << *logical;
        for_each_bgp_family!(F => found.extend(shard.prefixes::<F>(*logical).into_iter().map(Prefix::any)));
    }
    (visited, found)
}

/// The prefixes of BGP's candidates in about the next `limit` places of the tables of the RIB
/// manager.
fn candidates_from(rib: &RibHandle, state: &mut State, limit: usize) -> Result<Vec<AnyPrefix>, NoReply> {
    let (mut all, mut seen) = (Vec::new(), 0);
    while seen < limit {
        let place = state.place;
        let (page, next) = rib
            .handle
            .call(move |stage| stage.rib.default_vrf().announced_from(Source::Bgp, place, PLACES))?;
        all.extend(page);
        seen += PLACES;
        state.place = next.unwrap_or(0);
        if next.is_none() {
            break;
        }
    }
    Ok(all)
}

/// The next hops of a route that discards, as text.
const DISCARD: &str = "discard";

/// The difference of a prefix.
enum Wrong {
    /// BGP has a path, and the RIB manager no candidate.
    Missing,
    /// The candidate of the RIB manager has these next hops instead.
    Others(String),
    /// There is a best path, and none of its next hops resolves, for this reason.
    Unresolved(String),
    /// The best path is advertised, and this dataplane does not have it, for this reason.
    NotInPlace(String, String),
    /// The route is installed and not advertised.
    HeldBack,
    /// The RIB manager has a candidate with these next hops, and BGP no path.
    Stale(String),
}

/// The prefixes of `page` that differ.
fn differing(
    router: &RouterState,
    rib: &RibHandle,
    page: &[AnyPrefix],
) -> Result<Vec<(AnyPrefix, Difference)>, NoReply> {
    let views: Vec<(AnyPrefix, Option<FedView>)> = page.iter().copied().zip(views(router, page)?).collect();
    let (views, wrong) = rib.handle.call(move |stage| {
        let mut comparison = Comparison::default();
        let wrong: Vec<Option<Wrong>> =
            views.iter().map(|(prefix, view)| comparison.wrong(stage, *prefix, view.as_ref())).collect();
        (views, wrong)
    })?;
    let reported = views.into_iter().zip(wrong).filter_map(|((prefix, view), wrong)| {
        wrong.map(|wrong| (prefix, difference(prefix, view.as_ref(), wrong)))
    });
    Ok(reported.collect())
}

/// The feed of each prefix of `page`.
fn views(router: &RouterState, page: &[AnyPrefix]) -> Result<Vec<Option<FedView>>, NoReply> {
    let mut views = vec![None; page.len()];
    let Some(owners) = router.owners() else { return Ok(views) };
    let owners = owners.read();
    let mut of_shard: Vec<Vec<(usize, AnyPrefix)>> = vec![Vec::new(); owners.shards.len()];
    for (place, prefix) in page.iter().enumerate() {
        let owner = match prefix {
            AnyPrefix::V4(prefix) => owners.of(*prefix),
            AnyPrefix::V6(prefix) => owners.of(*prefix),
        };
        if let Some(of_shard) = owner.and_then(|(index, _)| of_shard.get_mut(index)) {
            of_shard.push((place, *prefix));
        }
    }
    for (shard, of_shard) in owners.shards.iter().zip(of_shard).filter(|(_, of_shard)| !of_shard.is_empty()) {
        let answers = shard.call(move |shard| {
            of_shard.iter().map(|(place, prefix)| (*place, shard.fed_of(*prefix))).collect::<Vec<_>>()
        })?;
        answers.into_iter().for_each(|(place, view)| views[place] = view);
    }
    Ok(views)
}

/// Compares the prefixes of a page. Each pair of a next-hop set and a group is compared once.
#[derive(Default)]
struct Comparison {
    /// Numbers of next-hop sets.
    numbers: Map<FeedSet, usize>,
    sets: Vec<RouteSet>,
    /// For each set and group: whether the group is that of the set, and if so, why none of its
    /// next hops resolves.
    known: Map<(usize, GroupId), Option<Result<(), String>>>,
}

impl Comparison {
    fn wrong(&mut self, stage: &RibStage, prefix: AnyPrefix, view: Option<&FedView>) -> Option<Wrong> {
        let announced = stage.rib.default_vrf().announced(prefix, Source::Bgp);
        match (view, announced) {
            (None, None) => None,
            (None, Some(announced)) => Some(Wrong::Stale(received(stage, announced.group))),
            (Some(_), None) => Some(Wrong::Missing),
            (Some(view), Some(announced)) => self.compare(stage, prefix, view, announced),
        }
    }

    fn compare(
        &mut self,
        stage: &RibStage,
        prefix: AnyPrefix,
        view: &FedView,
        announced: Announced,
    ) -> Option<Wrong> {
        let rib = stage.rib.default_vrf();
        let Comparison { numbers, sets, known } = self;
        let number = *numbers.entry(view.set.clone()).or_insert_with(|| {
            sets.push(route_set(&view.set));
            sets.len() - 1
        });
        let set = &sets[number];
        let group = announced.group;
        let as_given = known
            .entry((number, group))
            .or_insert_with(|| rib.is_group_of(group, set).then(|| resolves(stage, group, set)));
        match as_given {
            Some(_) if announced.protocol == set.protocol && !view.best => None,
            Some(Ok(())) if announced.protocol == set.protocol => in_place(stage, prefix, view.standing),
            Some(Err(why)) if announced.protocol == set.protocol => Some(Wrong::Unresolved(why.clone())),
            _ => Some(Wrong::Others(received(stage, group))),
        }
    }
}

/// Whether a next hop of a group resolves, or why none does. `set` is the content of the group.
fn resolves(stage: &RibStage, group: GroupId, set: &RouteSet) -> Result<(), String> {
    let hops = stage.rib.default_vrf().received_hops(group);
    if !matches!(set.next_hops, NextHops::Via(_)) || hops.iter().any(|hop| hop.outcome.is_resolved()) {
        return Ok(());
    }
    let why = hops.iter().filter_map(|hop| match &hop.outcome {
        Outcome::Unresolved(why) => Some(format!("next hop {} does not resolve: {why}", text(&hop.received))),
        _ => None,
    });
    Err(why.collect::<Vec<_>>().join("; "))
}

/// With FIB suppression: advertised routes must be installed, and installed ones advertised.
fn in_place(stage: &RibStage, prefix: AnyPrefix, standing: Standing) -> Option<Wrong> {
    let rib = stage.rib.default_vrf();
    if !rib.suppresses() {
        return None;
    }
    let states = stage.install_statuses(rib, prefix);
    let missing = states.iter().find_map(|(name, status)| match status {
        InstallStatus::Installed => None,
        InstallStatus::Pending => Some((name.clone(), "sent, not yet confirmed".to_owned())),
        InstallStatus::Failed(why) => Some((name.clone(), why.clone())),
    });
    match (standing, missing) {
        (Standing::Advertised, Some((name, why))) => Some(Wrong::NotInPlace(name, why)),
        (Standing::Advertised, None) if states.is_empty() && rib.lookup(prefix).is_none() => {
            Some(Wrong::NotInPlace("rib".into(), "no route of the prefix is installed".into()))
        }
        // Dataplanes that are down confirm nothing.
        (Standing::Waiting { .. } | Standing::Blocked, None) if states.len() == stage.planes().count() => {
            Some(Wrong::HeldBack)
        }
        _ => None,
    }
}

/// The received next hops of a group.
fn received(stage: &RibStage, group: GroupId) -> String {
    let hops = stage.rib.default_vrf().received_hops(group);
    let via = |address: String| format!("via {address}");
    if hops.is_empty() {
        return DISCARD.into();
    }
    hops.iter().map(|hop| via(text(&hop.received))).collect::<Vec<_>>().join(", ")
}

fn text(hop: &ReceivedHop) -> String {
    hop.gateway.map_or_else(|| "of an interface".to_owned(), |gateway| gateway.to_string())
}

fn difference(prefix: AnyPrefix, view: Option<&FedView>, wrong: Wrong) -> Difference {
    let via = |(address, _): &(IpAddr, u16)| match address.is_unspecified() {
        true => DISCARD.into(),
        false => format!("via {}", split_zone(*address).0),
    };
    let expected = view.map(|view| view.set.next_hops.iter().map(via).collect::<Vec<_>>().join(", "));
    let best = view.map_or_else(String::new, |view| {
        let standing = match view.standing {
            _ if !view.best => "its next hop cannot be reached, says BGP",
            Standing::Advertised => "advertised as export policies say",
            Standing::Waiting { former: false } | Standing::Blocked => "not advertised before the FIB has it",
            Standing::Waiting { former: true } => "the former one stays advertised until the FIB has it",
        };
        let which = if view.best { "best path" } else { "path" };
        format!("{which} from {} ({standing})", split_zone(view.neighbor).0)
    });
    let (stage, found, message) = match wrong {
        Wrong::Missing => {
            ("rib".into(), "absent".into(), format!("{best}: the RIB manager has no route of BGP"))
        }
        Wrong::Others(hops) => {
            ("rib".into(), hops, format!("{best}: the RIB manager has other next hops of BGP"))
        }
        Wrong::Unresolved(why) => ("rib".into(), "unresolved".into(), format!("{best}: {why}")),
        Wrong::NotInPlace(stage, why) => (stage, "not in place".into(), format!("{best}: {why}")),
        Wrong::HeldBack => {
            ("bgp".into(), "not advertised".into(), format!("{best}: every dataplane has confirmed it"))
        }
        Wrong::Stale(hops) => ("rib".into(), hops, "BGP has no path for it".into()),
    };
    Difference {
        vrf: "default".into(),
        prefix: prefix.to_string(),
        neighbor: view.map(|view| split_zone(view.neighbor).0.into()),
        stage,
        rib: expected.unwrap_or_else(|| "absent".into()),
        found,
        message,
        // A change may be under way, because the two sides are not read at the same instant.
        under_way: true,
    }
}
