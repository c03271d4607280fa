//! `/v1/routes`: BGP routes of the shards.

use super::zones::Zones;
use super::{ApiState, Refusal, RouterState, target};
use crate::request::RouteQuery;
use ribtide_bgp::message::Prefixes;
use ribtide_bgp::peer::PeerKind;
use ribtide_bgp::shard::{Part, PathView, RouteView, Shard, Standing};
use ribtide_model::{Forwarding, Held, Path, Route, RoutePage};
use ribtide_prefix::{
    Afi, AfiSafi, BgpFamilies, BgpFamily, FamilySet, LOGICAL_SHARDS, Prefix, any_bgp_family,
    for_each_bgp_family, logical_shard, per_bgp_family,
};
use ribtide_rpki::Vrps;
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::{Communities, ExtendedCommunities, LargeCommunities, Origin, code};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// A page, one prefix, or the longest match of an address.
pub(crate) fn routes(router: &ApiState, query: &RouteQuery, limit: usize) -> Result<RoutePage, Refusal> {
    let families = families(query.family.as_deref())?;
    let Some(text) = &query.prefix else { return page(router, query, families, limit) };
    let target = target(text)?;
    let family = family_of(families, target.afi())?;
    let mut found = lookup(router, target, family)?;
    if let (Some(route), Some(rib), true) = (&mut found, &router.rib, family.is_installed()) {
        route.groups = super::nexthop::of_route(rib, &route.prefix)?;
    }
    let route = found.ok_or_else(|| Refusal::Missing(format!("BGP has no route for {text}")))?;
    Ok(RoutePage { routes: vec![route], next: None })
}

/// The families that a query names; IPv4 and IPv6 unicast without one.
pub(crate) fn families(name: Option<&str>) -> Result<FamilySet, Refusal> {
    let Some(name) = name else { return Ok(FamilySet::UNICAST) };
    let known = AfiSafi::from_name(name).map(|family| FamilySet::of(&[family]));
    known.ok_or_else(|| {
        let names = AfiSafi::ALL.map(AfiSafi::name).join(", ");
        Refusal::Bad(format!("\"{name}\" is no family; write one of {names}"))
    })
}

/// The one of these families that has prefixes of this address family.
pub(super) fn family_of(families: FamilySet, afi: Afi) -> Result<AfiSafi, Refusal> {
    let found = families.iter().find(|family| family.afi() == afi);
    found.ok_or_else(|| {
        let names: Vec<&str> = families.iter().map(AfiSafi::name).collect();
        Refusal::Bad(format!("the prefix is none of {}", names.join(", ")))
    })
}

/// The route of exactly this prefix, or of the longest match of this address, in a family.
pub(super) fn lookup(
    router: &RouterState,
    what: super::Target,
    family: AfiSafi,
) -> Result<Option<Route>, Refusal> {
    let mut found = None;
    for_each_bgp_family!(F => if F::ID == family {
        let prefix = match what {
            super::Target::Prefix(p) => Prefix::<F>::from_any(p),
            super::Target::Address(a) => longest_match(router, a)?,
        };
        if let Some(prefix) = prefix {
            found = exact::<F>(router, prefix)?;
        }
    });
    Ok(found)
}

fn exact<F: BgpFamily>(router: &RouterState, prefix: Prefix<F>) -> Result<Option<Route>, Refusal> {
    let Some(owners) = router.owners() else { return Ok(None) };
    let Some((index, shard)) = owners.of(prefix) else { return Ok(None) };
    let found = shard.call(move |s| s.lookup(prefix))?;
    let validation = Validation::new(router)?;
    let zones = Zones::new(router)?;
    Ok(found.map(|view| route(index, &view, &zones, validation.as_ref())))
}

fn longest_match<F: BgpFamily>(router: &RouterState, address: IpAddr) -> Result<Option<Prefix<F>>, Refusal> {
    let mut best: Option<Prefix<F>> = None;
    let Some(owners) = router.owners() else { return Ok(None) };
    for shard in &owners.shards {
        let found = shard.call(move |s: &mut Shard| s.longest_match::<F>(address))?;
        best = best.into_iter().chain(found).max_by_key(|p| p.len());
    }
    Ok(best)
}

/// The remaining prefixes of a paged read, in order. Prefixes that appear during the read are not
/// in it; removed ones are left out.
#[derive(Default)]
pub(crate) struct Read(BgpFamilies<Remaining>);

per_bgp_family!(struct Remaining<F> = VecDeque<Prefix<F>>);

impl Read {
    /// All prefixes of these families of all shards, or of `only` one.
    pub(super) fn begin(
        router: &RouterState,
        families: FamilySet,
        only: Option<usize>,
    ) -> Result<Read, Refusal> {
        let mut read = Read::default();
        for_each_bgp_family!(F => if families.has(F::ID) {
            *read.0.get_mut::<F>() = sorted::<F>(router, only)?;
        });
        Ok(read)
    }

    /// Removes the next prefixes, at most `limit`.
    pub(super) fn next(&mut self, limit: usize) -> BgpFamilies<Prefixes> {
        let (mut page, mut left) = (BgpFamilies::default(), limit);
        for_each_bgp_family!(F => {
            let remaining = self.0.get_mut::<F>();
            let taken: Vec<Prefix<F>> = remaining.drain(..left.min(remaining.len())).collect();
            left -= taken.len();
            *page.get_mut::<F>() = taken;
        });
        debug_assert!(left <= limit);
        page
    }

    /// Whether no prefix remains.
    pub(super) fn is_empty(&self) -> bool {
        !any_bgp_family!(F => !self.0.get::<F>().is_empty())
    }
}

/// All prefixes of a family, of one shard or all. Each call covers one logical shard, which bounds
/// its time.
fn sorted<F: BgpFamily>(router: &RouterState, only: Option<usize>) -> Result<VecDeque<Prefix<F>>, Refusal> {
    let mut all = Vec::new();
    for logical in 0..LOGICAL_SHARDS {
        let Some(owners) = router.owners() else { continue };
        for (_, shard) in owners.having(logical).filter(|(index, _)| only.is_none_or(|only| only == *index)) {
            all.extend(shard.call(move |s| s.prefixes::<F>(logical))?);
        }
    }
    all.sort_unstable();
    Ok(all.into())
}

fn page(
    router: &ApiState,
    query: &RouteQuery,
    families: FamilySet,
    limit: usize,
) -> Result<RoutePage, Refusal> {
    let shards = router.owners().map_or(0, |owners| owners.shards.len());
    if let Some(shard) = query.shard.filter(|shard| *shard >= shards) {
        return Err(Refusal::Missing(format!(
            "there is no shard {shard}; there are {shards}, numbered from 0"
        )));
    }
    let mut read = match query.cursor.as_deref() {
        None => Read::begin(router, families, query.shard)?,
        Some(cursor) => router.route_reads.take(cursor)?,
    };
    let (mut prefixes, mut routes) = (read.next(limit), Vec::new());
    for_each_bgp_family!(F => routes.extend(take::<F>(router, std::mem::take(prefixes.get_mut::<F>()))?));
    let next = (!read.is_empty()).then(|| router.route_reads.put(read));
    Ok(RoutePage { routes, next })
}

/// The routes of these prefixes.
fn take<F: BgpFamily>(router: &RouterState, prefixes: Vec<Prefix<F>>) -> Result<Vec<Route>, Refusal> {
    let found = each(router, prefixes.into_iter(), |shard, prefix| shard.lookup(prefix))?;
    // Formats on this thread, not on those of the shards.
    let validation = Validation::new(router)?;
    let zones = Zones::new(router)?;
    Ok(found.iter().map(|(shard, _, view)| route(*shard, view, &zones, validation.as_ref())).collect())
}

/// What shards reply about each of these prefixes, with one call to each shard: its number, the prefix and the reply. In the
/// order of the prefixes, without those of which the shard has nothing to say.
pub(super) fn each<F: BgpFamily, R: Send + 'static>(
    router: &RouterState,
    prefixes: impl Iterator<Item = Prefix<F>>,
    query: fn(&Shard, Prefix<F>) -> Option<R>,
) -> Result<Vec<(usize, Prefix<F>, R)>, Refusal> {
    let Some(owners) = router.owners() else { return Ok(Vec::new()) };
    let mut requested: Vec<Vec<(usize, Prefix<F>)>> = vec![Vec::new(); owners.shards.len()];
    for (place, prefix) in prefixes.enumerate() {
        if let Some(requested) = owners.of(prefix).and_then(|(index, _)| requested.get_mut(index)) {
            requested.push((place, prefix));
        }
    }
    let mut found = Vec::new();
    for (index, (shard, requested)) in owners.shards.iter().zip(requested).enumerate() {
        if !requested.is_empty() {
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

fn route<F: BgpFamily>(
    shard: usize,
    view: &RouteView<F>,
    zones: &Zones,
    validation: Option<&Validation>,
) -> Route {
    Route {
        prefix: view.prefix.to_string(),
        logical_shard: logical_shard(view.prefix),
        shard,
        paths: view.paths.iter().map(|path_view| path(view.prefix, path_view, zones, validation)).collect(),
        held: match view.standing {
            Standing::Advertised => None,
            Standing::Waiting { former: false } => Some(Held::Waiting),
            Standing::Waiting { former: true } => Some(Held::WaitingWithFormer),
            Standing::Blocked => Some(Held::Blocked),
        },
        suppressed_by: view.suppressed_by.iter().map(ToString::to_string).collect(),
        groups: None,
    }
}

fn path<F: BgpFamily>(
    prefix: Prefix<F>,
    view: &PathView,
    zones: &Zones,
    validation: Option<&Validation>,
) -> Path {
    let attrs = &view.attrs;
    let value = |code| attrs.value(code).unwrap_or_default();
    Path {
        neighbor: zones.named(view.peer.address),
        path_id: view.path_id,
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
        as_path: AsPath::new(value(code::AS_PATH)).to_string(),
        validation: validation.map(|Validation { vrps, local_asn }| {
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
        communities: Communities::new(value(code::COMMUNITIES)).iter().map(|c| c.to_string()).collect(),
        large_communities: LargeCommunities::new(value(code::LARGE_COMMUNITIES))
            .iter()
            .map(|c| c.to_string())
            .collect(),
        extended_communities: ExtendedCommunities::new(value(code::EXTENDED_COMMUNITIES))
            .iter()
            .map(|c| c.to_string())
            .collect(),
    }
}
