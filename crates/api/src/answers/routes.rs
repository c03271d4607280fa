//! `/v1/routes`: BGP routes of the shards.

use super::filter::{self, Batches};
use super::zones::Zones;
use super::{ApiState, Refusal, RouterState, target};
use crate::request::RouteQuery;
use ribtide_bgp::filter::FilterMemo;
use ribtide_bgp::peer::PeerKind;
use ribtide_bgp::shard::{Part, PathFilter, PathView, RouteView, Shard, Standing};
use ribtide_model::{Forwarding, Held, Path, Route, RoutePage};
use ribtide_policy::PrefixFilter;
use ribtide_prefix::{AnyPrefix, BgpFamily, LOGICAL_SHARDS, Prefix, V4, V6, logical_shard};
use ribtide_rpki::Vrps;
use ribtide_wire::bgp::attribute::{
    Aggregator, Communities, ExtendedCommunities, LargeCommunities, Origin, code, number, router_ids,
};
use ribtide_wire::bgp::{AsPath, NextHop};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// A page, one prefix, or the longest match of an address.
pub(crate) fn routes(router: &ApiState, query: &RouteQuery, limit: usize) -> Result<RoutePage, Refusal> {
    let paths = filter::paths(router, query)?;
    let set = filter::prefixes(query.prefix.as_deref(), query.r#match)?;
    let Some(text) = query.prefix.as_ref().filter(|_| set.is_none()) else {
        return page(router, query, set, paths, limit);
    };
    if query.shard.is_some() {
        let why = "shard: the shard of a prefix is given by its address; leave it out, or add match=longer";
        return Err(Refusal::Bad(why.into()));
    }
    let with = if paths.is_empty() { "" } else { " with such a path" };
    let mut found = lookup(router, target(text)?, &paths)?;
    if query.detail {
        super::tracked::add_resolution(router, found.as_mut_slice())?;
    }
    if let (Some(route), Some(rib)) = (&mut found, &router.rib.get()) {
        route.groups = super::nexthop::of_route(rib, &route.prefix)?;
    }
    let route = found.ok_or_else(|| Refusal::Missing(format!("BGP has no route for {text}{with}")))?;
    Ok(RoutePage { routes: vec![route], next: None })
}

/// The route of exactly this prefix, or of the longest match of this address.
/// Only the paths that fit.
pub(super) fn lookup(
    router: &RouterState,
    what: super::Target,
    filter: &PathFilter,
) -> Result<Option<Route>, Refusal> {
    let prefix = match what {
        super::Target::Prefix(p) => Some(p),
        super::Target::Address(a) => longest_match(router, a)?,
    };
    match prefix {
        None => Ok(None),
        Some(AnyPrefix::V4(p)) => exact(router, p, filter),
        Some(AnyPrefix::V6(p)) => exact(router, p, filter),
    }
}

fn exact<F: BgpFamily>(
    router: &RouterState,
    prefix: Prefix<F>,
    filter: &PathFilter,
) -> Result<Option<Route>, Refusal> {
    let Some(owners) = router.owners() else { return Ok(None) };
    let owners = owners.read();
    let Some((index, shard)) = owners.of(prefix) else { return Ok(None) };
    let filter = filter.clone();
    let found = shard.call(move |s| s.lookup_filtered(prefix, &filter, &mut FilterMemo::default()))?;
    let context = Context::new(router)?;
    Ok(found.map(|view| context.route(index, &view)))
}

fn longest_match(router: &RouterState, address: IpAddr) -> Result<Option<AnyPrefix>, Refusal> {
    let mut best: Option<AnyPrefix> = None;
    let Some(owners) = router.owners() else { return Ok(None) };
    let owners = owners.read();
    for shard in &owners.shards {
        let found = shard.call(move |s: &mut Shard| match address {
            IpAddr::V4(_) => s.longest_match::<V4>(address).map(Prefix::any),
            IpAddr::V6(_) => s.longest_match::<V6>(address).map(Prefix::any),
        })?;
        best = best.into_iter().chain(found).max_by_key(|p| p.len());
    }
    Ok(best)
}

/// The remaining prefixes of a paged read, in order. Prefixes that appear during the read are not
/// in it; removed ones are left out.
#[derive(Default)]
pub(crate) struct Read {
    v4: VecDeque<Prefix<V4>>,
    v6: VecDeque<Prefix<V6>>,
}

impl Read {
    /// All prefixes of all shards, or of `only` one; only those of `set`.
    pub(super) fn begin(
        router: &RouterState,
        only: Option<usize>,
        set: Option<PrefixFilter>,
    ) -> Result<Read, Refusal> {
        Ok(Read { v4: sorted(router, only, set)?, v6: sorted(router, only, set)? })
    }

    /// Removes the next prefixes, at most `limit`.
    pub(super) fn next(&mut self, limit: usize) -> (Vec<Prefix<V4>>, Vec<Prefix<V6>>) {
        let v4: Vec<_> = self.v4.drain(..limit.min(self.v4.len())).collect();
        let left = (limit - v4.len()).min(self.v6.len());
        (v4, self.v6.drain(..left).collect())
    }

    /// Adds prefixes, each once.
    pub(super) fn add(&mut self, prefixes: impl Iterator<Item = AnyPrefix>) {
        fn merge<F: BgpFamily>(all: &mut VecDeque<Prefix<F>>, more: Vec<Prefix<F>>) {
            if !more.is_empty() {
                let mut merged: Vec<Prefix<F>> = all.drain(..).chain(more).collect();
                merged.sort_unstable();
                merged.dedup();
                *all = merged.into();
            }
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        prefixes.for_each(|prefix| match prefix {
            AnyPrefix::V4(prefix) => v4.push(prefix),
            AnyPrefix::V6(prefix) => v6.push(prefix),
        });
        merge(&mut self.v4, v4);
        merge(&mut self.v6, v6);
    }

    /// The number of prefixes that remain.
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Puts the prefixes of [`Read::next`] behind `last` back.
    fn put_back(&mut self, (v4, v6): (Vec<Prefix<V4>>, Vec<Prefix<V6>>), last: Option<AnyPrefix>) {
        let is_read4 = |prefix: &&Prefix<V4>| !matches!(last, Some(AnyPrefix::V4(last)) if **prefix > last);
        let is_read6 = |prefix: &&Prefix<V6>| match last {
            Some(AnyPrefix::V6(last)) => **prefix <= last,
            Some(AnyPrefix::V4(_)) => false,
            None => true,
        };
        v4.iter().rev().take_while(|prefix| !is_read4(prefix)).for_each(|prefix| self.v4.push_front(*prefix));
        v6.iter().rev().take_while(|prefix| !is_read6(prefix)).for_each(|prefix| self.v6.push_front(*prefix));
    }

    /// Whether no prefix remains.
    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// All prefixes of a family, of one shard or all. Each call covers one logical shard, which bounds
/// its time.
fn sorted<F: BgpFamily>(
    router: &RouterState,
    only: Option<usize>,
    set: Option<PrefixFilter>,
) -> Result<VecDeque<Prefix<F>>, Refusal> {
    let mut all = Vec::new();
    if set.is_none() {
        // A list that grows as it is filled is there twice for a moment.
        all.reserve_exact(count::<F>(router, only)?);
    }
    for logical in 0..LOGICAL_SHARDS {
        let Some(owners) = router.owners() else { continue };
        let owners = owners.read();
        for (_, shard) in owners.having(logical).filter(|(index, _)| only.is_none_or(|only| only == *index)) {
            all.extend(shard.call(move |s| match set {
                None => s.prefixes::<F>(logical),
                Some(set) => s.prefixes_in::<F>(logical, set),
            })?);
        }
    }
    all.sort_unstable();
    Ok(all.into())
}

/// The number of prefixes of a family, of one shard or all.
fn count<F: BgpFamily>(router: &RouterState, only: Option<usize>) -> Result<usize, Refusal> {
    let Some(owners) = router.owners() else { return Ok(0) };
    let owners = owners.read();
    let mut count = 0;
    for (_, shard) in owners.shards.iter().enumerate().filter(|(n, _)| only.is_none_or(|only| only == *n)) {
        count += shard.call(|s: &mut Shard| s.loads::<F>().map(|(_, prefixes)| prefixes).sum::<usize>())?;
    }
    Ok(count)
}

fn page(
    router: &ApiState,
    query: &RouteQuery,
    set: Option<PrefixFilter>,
    filter: PathFilter,
    limit: usize,
) -> Result<RoutePage, Refusal> {
    let shards = router.owners().map_or(0, |owners| owners.read().shards.len());
    if let Some(shard) = query.shard.filter(|shard| *shard >= shards) {
        return Err(Refusal::Missing(format!(
            "there is no shard {shard}; there are {shards}, numbered from 0"
        )));
    }
    let of = query.parameters();
    let mut read = match query.cursor.as_deref() {
        None => Read::begin(router, query.shard, set)?,
        Some(cursor) => router.route_reads.take(cursor, &of)?,
    };
    let (mut routes, filter, context) = (Vec::new(), Arc::new(filter), Context::new(router)?);
    let mut batches = Batches::new(limit, filter.is_empty());
    while !read.is_empty()
        && let Some(batch) = batches.next(routes.len())
    {
        let (v4, v6) = read.next(batch);
        routes.extend(take(router, v4.clone(), &filter, &context)?);
        routes.extend(take(router, v6.clone(), &filter, &context)?);
        if routes.len() > limit {
            routes.truncate(limit);
            let last = routes.last().and_then(|route| route.prefix.parse().ok());
            read.put_back((v4, v6), last);
        }
    }
    if query.detail {
        super::tracked::add_resolution(router, &mut routes)?;
    }
    let next = (!read.is_empty()).then(|| router.route_reads.put(&of, read));
    Ok(RoutePage { routes, next })
}

/// The routes of these prefixes, as far as they fit.
fn take<F: BgpFamily>(
    router: &RouterState,
    prefixes: Vec<Prefix<F>>,
    filter: &Arc<PathFilter>,
    context: &Context,
) -> Result<Vec<Route>, Refusal> {
    let (filter, mut memo) = (filter.clone(), FilterMemo::default());
    let fitting = move |shard: &Shard, prefix| shard.lookup_filtered(prefix, &filter, &mut memo);
    let found = each(router, prefixes.into_iter(), fitting)?;
    // Formats on this thread, not on those of the shards.
    Ok(found.iter().map(|(shard, _, view)| context.route(*shard, view)).collect())
}

/// What shards reply about each of these prefixes, with one call to each shard: its number, the prefix and the reply. In the
/// order of the prefixes, without those of which the shard has nothing to say.
pub(super) fn each<F: BgpFamily, R: Send + 'static>(
    router: &RouterState,
    prefixes: impl Iterator<Item = Prefix<F>>,
    query: impl FnMut(&Shard, Prefix<F>) -> Option<R> + Clone + Send + 'static,
) -> Result<Vec<(usize, Prefix<F>, R)>, Refusal> {
    let Some(owners) = router.owners() else { return Ok(Vec::new()) };
    let owners = owners.read();
    let mut requested: Vec<Vec<(usize, Prefix<F>)>> = vec![Vec::new(); owners.shards.len()];
    for (place, prefix) in prefixes.enumerate() {
        if let Some(requested) = owners.of(prefix).and_then(|(index, _)| requested.get_mut(index)) {
            requested.push((place, prefix));
        }
    }
    let mut found = Vec::new();
    for (index, (shard, requested)) in owners.shards.iter().zip(requested).enumerate() {
        if !requested.is_empty() {
            let mut query = query.clone();
            let views = move |s: &mut Shard| -> Vec<_> {
                let of = |(place, prefix): &(usize, Prefix<F>)| Some((*place, *prefix, query(s, *prefix)?));
                requested.iter().filter_map(of).collect()
            };
            let replies = shard.call(views)?.into_iter();
            found.extend(replies.map(|(place, prefix, reply)| (place, (index, prefix, reply))));
        }
    }
    found.sort_unstable_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, reply)| reply).collect())
}

/// How to validate paths.
struct Validation {
    vrps: Arc<Vrps>,
    local_asn: u32,
}

impl Validation {
    /// `None` without origin validation.
    fn new(router: &RouterState) -> Result<Option<Validation>, Refusal> {
        let vrps = super::rpki::vrps(router)?;
        Ok(vrps.map(|vrps| Validation { vrps, local_asn: router.config().asn }))
    }
}

/// What the form of routes depends on, once for a reply.
struct Context {
    zones: Zones,
    validation: Option<Validation>,
    /// The second of the router's clock.
    now: u32,
}

impl Context {
    fn new(router: &RouterState) -> Result<Context, Refusal> {
        let now = router.clock.seconds();
        Ok(Context { zones: Zones::new(router)?, validation: Validation::new(router)?, now })
    }

    fn route<F: BgpFamily>(&self, shard: usize, view: &RouteView<F>) -> Route {
        Route {
            prefix: view.prefix.to_string(),
            logical_shard: logical_shard(view.prefix),
            shard,
            paths: view.paths.iter().map(|path| self.path(view.prefix, path)).collect(),
            held: match view.standing {
                Standing::Advertised => None,
                Standing::Waiting { former: false } => Some(Held::Waiting),
                Standing::Waiting { former: true } => Some(Held::WaitingWithFormer),
                Standing::Blocked => Some(Held::Blocked),
            },
            suppressed_by: view.suppressed_by.iter().map(ToString::to_string).collect(),
            resolution: Vec::new(),
            groups: None,
        }
    }

    fn path<F: BgpFamily>(&self, prefix: Prefix<F>, view: &PathView) -> Path {
        let Context { zones, validation, now } = self;
        let attrs = &view.attrs;
        let value = |code| attrs.value(code).unwrap_or_default();
        let is_originated = matches!(view.peer.kind, PeerKind::Local(_));
        let of_neighbor = (!is_originated).then_some(&view.peer);
        Path {
            neighbor: zones.named(view.peer.address),
            neighbor_asn: of_neighbor.map(|peer| peer.asn),
            neighbor_router_id: of_neighbor.map(|peer| peer.router_id),
            neighbor_kind: of_neighbor.map(|peer| super::bgp::kind(peer.kind).into()),
            path_id: view.path_id,
            age_seconds: age(*now, view.changed),
            originated: match view.peer.kind {
                PeerKind::Local(source) => Some(source.name().into()),
                _ => None,
            },
            stale: view.stale,
            best: view.best,
            lost: view.lost.map(|reason| reason.to_string()),
            forwarding: match view.part {
                Part::Nothing => None,
                Part::Member => Some(Forwarding::Multipath),
                Part::Backup => Some(Forwarding::Backup),
            },
            next_hop: zones.named(attrs.next_hop().addr()),
            link_local: match attrs.next_hop() {
                NextHop::V6 { link_local, .. } => link_local,
                NextHop::V4(_) => None,
            },
            igp_cost: view.cost.ok().filter(|_| !is_originated),
            as_path: AsPath::new(value(code::AS_PATH)).to_string(),
            validation: validation.as_ref().map(|Validation { vrps, local_asn }| {
                super::rpki::state(vrps, prefix.ip(), AsPath::new(value(code::AS_PATH)), *local_asn)
            }),
            origin: match attrs.origin() {
                Origin::Igp => "igp",
                Origin::Egp => "egp",
                Origin::Incomplete => "incomplete",
            }
            .into(),
            local_pref: attrs.local_pref(),
            med: attrs.med(),
            aigp: attrs.aigp(),
            communities: Communities::new(value(code::COMMUNITIES)).iter().map(|c| c.to_string()).collect(),
            large_communities: LargeCommunities::new(value(code::LARGE_COMMUNITIES))
                .iter()
                .map(|c| c.to_string())
                .collect(),
            extended_communities: ExtendedCommunities::new(value(code::EXTENDED_COMMUNITIES))
                .iter()
                .map(|c| c.to_string())
                .collect(),
            aggregator: attrs.value(code::AGGREGATOR).and_then(Aggregator::from_value).map(|a| a.to_string()),
            originator_id: router_ids(value(code::ORIGINATOR_ID)).next(),
            cluster_list: router_ids(value(code::CLUSTER_LIST)).collect(),
            only_to_customer: attrs.value(code::OTC).and_then(number),
            other_attributes: attrs
                .attributes()
                .map(|a| a.code)
                .filter(|code| !SHOWN.contains(code))
                .collect(),
        }
    }
}

/// Seconds since the second `changed`.
pub(super) fn age(now: u32, changed: Option<u32>) -> Option<u64> {
    changed.map(|changed| now.saturating_sub(changed).into())
}

/// Attributes that have fields of their own.
const SHOWN: [u8; 13] = [
    code::ORIGIN,
    code::AS_PATH,
    code::NEXT_HOP,
    code::MED,
    code::LOCAL_PREF,
    code::AGGREGATOR,
    code::COMMUNITIES,
    code::ORIGINATOR_ID,
    code::CLUSTER_LIST,
    code::EXTENDED_COMMUNITIES,
    code::AIGP,
    code::LARGE_COMMUNITIES,
    code::OTC,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_behind_the_last_route_of_a_page_are_read_again() {
        let v4 = |n: u32| Prefix::<V4>::new(n << 24, 8);
        let v6 = |n: u128| Prefix::<V6>::new((n << 112).to_be_bytes(), 16);
        let all = || Read { v4: (1..5).map(v4).collect(), v6: (1..5).map(v6).collect() };
        let left = |taken: usize, last: AnyPrefix| {
            let mut read = all();
            let next = read.next(taken);
            read.put_back(next, Some(last));
            (read.v4.iter().copied().collect::<Vec<_>>(), read.v6.iter().copied().collect::<Vec<_>>())
        };
        assert_eq!(left(3, v4(2).any()), (vec![v4(3), v4(4)], (1..5).map(v6).collect()));
        assert_eq!(left(7, v4(2).any()), (vec![v4(3), v4(4)], (1..5).map(v6).collect()));
        assert_eq!(left(7, v6(2).any()), (vec![], vec![v6(3), v6(4)]));
        assert_eq!(left(8, v6(4).any()), (vec![], vec![]));
    }
}
