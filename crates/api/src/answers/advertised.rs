//! `/v1/bgp/neighbors/ADDRESS/advertised`: the Adj-RIB-Out of a neighbour, and why a route is not in it.

use super::bgp::{bgp, neighbor_named};
use super::filter;
use super::routes::{self, Read};
use super::{ApiState, Refusal, RouterState};
use crate::request::AdvertisedQuery;
use ribtide_bgp::egress::{Advertised, AdvertisedPath};
use ribtide_bgp::message::{BestPath, RankedBatch};
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::{AdvertisedView, Standing};
use ribtide_bgpd::Bgp;
use ribtide_bgpd::egress::WorkerPort;
use ribtide_bgpd::session::{NeighborView, UpView};
use ribtide_model::{AdvertisedPage, AdvertisedRoute, ExplainStage, SentPath, StageState};
use ribtide_policy::AttributeFilter;
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AnyPrefix, BgpFamily, ParsePrefixError, Prefix, V4, V6};
use ribtide_wire::bgp::attribute::{
    Aggregator, Attributes, Communities, ExtendedCommunities, LargeCommunities, Origin, aigp, code, number,
    router_ids,
};
use ribtide_wire::bgp::{AsPath, NextHop};
use std::net::IpAddr;

/// The established session with a neighbour: by its address, or its interface.
pub(super) fn session(bgp: &Bgp, name: &str) -> Result<(NeighborView, UpView), Refusal> {
    let mut view = neighbor_named(bgp, name)?;
    let up = view.up.take().ok_or_else(|| ended(name))?;
    Ok((view, up))
}

fn ended(name: &str) -> Refusal {
    Refusal::Missing(format!("the session with {name} is not established, so it has no routes"))
}

/// Conditions on what is sent: on the attributes as sent, and on when the best path changed.
#[derive(Default)]
struct Conditions {
    attributes: AttributeFilter,
    changed: Option<(u32, u32)>,
}

impl Conditions {
    fn is_empty(&self) -> bool {
        self.attributes.is_empty() && self.changed.is_none()
    }
}

/// A neighbour with a session, and the worker that has its update group.
struct Member<'a> {
    router: &'a RouterState,
    name: &'a str,
    id: PeerId,
    worker: WorkerPort,
}

impl<'a> Member<'a> {
    fn new(router: &'a RouterState, name: &'a str) -> Result<Member<'a>, Refusal> {
        let bgp = bgp(router)?;
        let (view, up) = session(&bgp, name)?;
        let worker = bgp.workers.get(up.worker).ok_or_else(|| ended(name))?;
        Ok(Member { router, name, id: view.id, worker })
    }

    /// The second of the router's clock.
    fn now(&self) -> u32 {
        self.router.clock.seconds()
    }

    /// The prefixes that wait to be sent to it, and whether it waits for a table.
    fn progress(&self) -> Result<(u64, bool), Refusal> {
        let id = self.id;
        let member = self.worker.call(move |w| w.member(id))?.ok_or_else(|| ended(self.name))?;
        Ok((member.waiting as u64, member.joining))
    }

    /// Its own default route, if it is sent one.
    fn own_default<F: BgpFamily>(&self) -> Result<Option<AdvertisedPath>, Refusal> {
        let id = self.id;
        Ok(self.worker.call(move |w| w.own_default::<F>(id))?)
    }

    /// Its own default route, if it is sent one and BGP has none.
    fn own_default_alone<F: BgpFamily>(
        &self,
        conditions: &Conditions,
    ) -> Result<Option<AdvertisedRoute>, Refusal> {
        let prefix = Prefix::<F>::default_route();
        // It has no age.
        let fits = |own: &AdvertisedPath| conditions.changed.is_none() && is_sent_so(own, conditions);
        let Some(own) = self.own_default::<F>()?.filter(fits) else {
            return Ok(None);
        };
        let of_bgp =
            routes::each(self.router, std::iter::once(prefix), |shard, prefix| shard.advertised(prefix))?;
        Ok(of_bgp.is_empty().then(|| AdvertisedRoute {
            prefix: prefix.to_string(),
            path_id: own.id,
            sent: Some(sent_path(&own.form)),
            age_seconds: None,
            reasons: vec![OWN_DEFAULT.into()],
        }))
    }

    /// What it is sent of these prefixes, as far as BGP has them.
    fn exports<F: BgpFamily>(
        &self,
        prefixes: impl Iterator<Item = Prefix<F>>,
    ) -> Result<Vec<Exported<F>>, Refusal> {
        let mut exported = self.exports_of_bgp(prefixes)?;
        if let Some(default) = exported.iter_mut().find(|exported| exported.prefix.len() == 0)
            && let Some(own) = self.own_default::<F>()?
        {
            default.sent = vec![own];
        }
        Ok(exported)
    }

    fn exports_of_bgp<F: BgpFamily>(
        &self,
        prefixes: impl Iterator<Item = Prefix<F>>,
    ) -> Result<Vec<Exported<F>>, Refusal> {
        let (id, ended) = (self.id, || ended(self.name));
        if self.worker.call(move |w| w.member_takes_ranked(id, F::ID))?.ok_or_else(ended)? {
            let views = routes::each(self.router, prefixes, |shard, prefix| {
                Some((shard.advertised(prefix)?, shard.ranked_of(prefix)))
            })?;
            let mut page = RankedBatch::default();
            views.iter().for_each(|(_, _, (_, ranked))| page.append(ranked));
            let sent = self.worker.call(move |w| w.ranked_adj_rib_out::<F>(id, &page))?;
            let views = views.into_iter().zip(sent.ok_or_else(ended)?);
            let exported = views.map(|((_, prefix, (view, ranked)), sent)| Exported {
                prefix,
                view,
                ranked: Some(ranked),
                sent,
            });
            return Ok(exported.collect());
        }
        let views = routes::each(self.router, prefixes, |shard, prefix| shard.advertised(prefix))?;
        let page = views.iter().filter_map(|(_, prefix, view)| Some((*prefix, view.path.clone()?)));
        let page: Vec<(Prefix<F>, BestPath)> = page.collect();
        let sent = self.worker.call(move |w| w.adj_rib_out(id, &page))?;
        let mut sent = sent.ok_or_else(ended)?.into_iter();
        let exported = views.into_iter().map(|(_, prefix, view)| {
            let form = view.path.as_ref().and_then(|_| sent.next().flatten());
            let sent = form.into_iter().map(|form| AdvertisedPath { id: None, form }).collect();
            Exported { prefix, view, ranked: None, sent }
        });
        Ok(exported.collect())
    }

    /// The routes of these prefixes; only those that are sent, or `all`.
    fn routes<F: BgpFamily>(
        &self,
        prefixes: impl Iterator<Item = Prefix<F>>,
        all: bool,
        conditions: &Conditions,
    ) -> Result<Vec<AdvertisedRoute>, Refusal> {
        let mut found = Vec::new();
        let exported = self.exports(prefixes)?.into_iter();
        for exported in exported.filter_map(|exported| exported.fitting(conditions)) {
            if !exported.sent.is_empty() {
                found.append(&mut exported.routes(self.now()));
            } else if all {
                found.append(&mut self.explained(exported)?);
            }
        }
        Ok(found)
    }

    /// The routes of one prefix, with reasons at the first; empty if BGP does not have it.
    fn of_prefix(&self, prefix: AnyPrefix, conditions: &Conditions) -> Result<Vec<AdvertisedRoute>, Refusal> {
        match prefix {
            AnyPrefix::V4(prefix) => self.of_one(prefix, conditions),
            AnyPrefix::V6(prefix) => self.of_one(prefix, conditions),
        }
    }

    fn of_one<F: BgpFamily>(
        &self,
        prefix: Prefix<F>,
        conditions: &Conditions,
    ) -> Result<Vec<AdvertisedRoute>, Refusal> {
        match self.exports(std::iter::once(prefix))?.pop() {
            Some(exported) => {
                exported.fitting(conditions).map_or(Ok(Vec::new()), |exported| self.explained(exported))
            }
            None if prefix.len() == 0 => Ok(self.own_default_alone::<F>(conditions)?.into_iter().collect()),
            None => Ok(Vec::new()),
        }
    }

    /// The routes of a prefix, the first with reasons; one if nothing is sent.
    fn explained<F: BgpFamily>(&self, exported: Exported<F>) -> Result<Vec<AdvertisedRoute>, Refusal> {
        let mut routes = exported.routes(self.now());
        let age_seconds = routes::age(self.now(), exported.view.changed);
        let prefix = exported.prefix.to_string();
        let reasons = self.reasons(exported)?;
        match routes.first_mut() {
            Some(first) => first.reasons = reasons,
            None => routes.push(AdvertisedRoute { prefix, path_id: None, sent: None, age_seconds, reasons }),
        }
        Ok(routes)
    }

    /// Why the neighbour is sent a prefix as it is, or not at all.
    fn reasons<F: BgpFamily>(&self, exported: Exported<F>) -> Result<Vec<String>, Refusal> {
        let (id, prefix, view) = (self.id, exported.prefix, exported.view);
        let no_path = || vec!["not sent: it has no usable path".into()];
        if !view.suppressed_by.is_empty() && exported.sent.is_empty() {
            let by: Vec<String> = view.suppressed_by.iter().map(ToString::to_string).collect();
            return Ok(vec![format!("not sent: suppressed by the aggregate {}", by.join(", "))]);
        }
        let several = exported.ranked.is_some();
        let mut reasons = match (exported.ranked, view.path.clone().or(view.best.clone())) {
            (_, None) => return Ok(no_path()),
            // Without any, FIB suppression is the reason.
            (Some(ranked), _) => self.worker.call(move |w| w.ranked_reasons(id, prefix, &ranked))?,
            (None, Some(path)) => self.worker.call(move |w| w.advertised(id, prefix, &path).1)?,
        };
        reasons.extend(standing(&view, several).map(str::to_owned));
        Ok(reasons)
    }
}

/// Why a neighbour is sent a default route that BGP does not have.
const OWN_DEFAULT: &str = "its own default route (default-originate)";

/// A prefix, and what a neighbour is sent of it.
struct Exported<F: BgpFamily> {
    prefix: Prefix<F>,
    view: AdvertisedView,
    /// The paths among which the neighbour's update group selects, if it does.
    ranked: Option<RankedBatch>,
    sent: Vec<AdvertisedPath>,
}

/// Whether the attributes of a sent path fit.
fn is_sent_so(path: &AdvertisedPath, Conditions { attributes, .. }: &Conditions) -> bool {
    attributes.fits(&path.form.attributes, split_zone(path.form.next_hop.addr()).0)
}

impl<F: BgpFamily> Exported<F> {
    /// The same with the sent paths that fit, as sent; of a prefix that is not sent, if its best path does.
    fn fitting(mut self, conditions: &Conditions) -> Option<Self> {
        if conditions.is_empty() {
            return Some(self);
        }
        if !filter::is_of_time(conditions.changed, self.view.changed) {
            return None;
        }
        if self.sent.is_empty() {
            let best = self.view.best.as_ref()?;
            return conditions
                .attributes
                .fits(best.attrs.bytes(), split_zone(best.attrs.next_hop().addr()).0)
                .then_some(self);
        }
        self.sent.retain(|path| is_sent_so(path, conditions));
        (!self.sent.is_empty()).then_some(self)
    }

    /// The sent paths, at the second `now`.
    fn routes(&self, now: u32) -> Vec<AdvertisedRoute> {
        let age_seconds = routes::age(now, self.view.changed);
        let route = |path: &AdvertisedPath| AdvertisedRoute {
            prefix: self.prefix.to_string(),
            path_id: path.id,
            sent: Some(sent_path(&path.form)),
            age_seconds,
            reasons: Vec::new(),
        };
        self.sent.iter().map(route).collect()
    }
}

/// What FIB suppression does to a route, of which the neighbour may be sent `several` paths.
fn standing(view: &AdvertisedView, several: bool) -> Option<&'static str> {
    match view.standing {
        Standing::Advertised => None,
        Standing::Waiting { former: false } => {
            Some("not sent yet: it waits for confirmation by the FIB (suppress-fib-pending)")
        }
        Standing::Waiting { former: true } if several => {
            Some("these are the former paths; the new best one waits for confirmation by the FIB")
        }
        Standing::Waiting { former: true } => {
            Some("this is the former best path; its successor waits for confirmation by the FIB")
        }
        Standing::Blocked => Some("not sent: suppress-fib-pending is on, and the FIB does not have it"),
    }
}

/// A page of the Adj-RIB-Out of a neighbour, or one prefix with the reasons.
pub(crate) fn advertised(
    router: &ApiState,
    text: &str,
    query: &AdvertisedQuery,
    limit: usize,
) -> Result<AdvertisedPage, Refusal> {
    let member = Member::new(router, text)?;
    let (waiting, joining) = member.progress()?;
    let set = filter::prefixes(query.prefix.as_deref(), query.r#match)?;
    let (attributes, changed) = filter::advertised(router, query)?;
    let conditions = Conditions { attributes, changed };
    if let Some(text) = query.prefix.as_ref().filter(|_| set.is_none()) {
        let prefix = text.parse().map_err(|e: ParsePrefixError| Refusal::Bad(e.to_string()))?;
        let routes = member.of_prefix(prefix, &conditions)?;
        if routes.is_empty() {
            let with = if conditions.is_empty() { "" } else { " with such a path" };
            return Err(Refusal::Missing(format!("BGP has no route for {text}{with}")));
        }
        return Ok(AdvertisedPage { routes, waiting, joining, next: None });
    }
    let mut routes = Vec::new();
    if query.cursor.is_none() {
        let all_prefixes = |route: &AdvertisedRoute| {
            set.is_none_or(|set| route.prefix.parse().is_ok_and(|prefix| set.has_any(prefix)))
        };
        let own =
            [member.own_default_alone::<V4>(&conditions)?, member.own_default_alone::<V6>(&conditions)?];
        routes.extend(own.into_iter().flatten().filter(all_prefixes));
    }
    let of = format!("{text} {}", query.parameters());
    let mut read = match query.cursor.as_deref() {
        None => Read::begin(router, None, set)?,
        Some(cursor) => router.advertised_reads.take(cursor, &of)?,
    };
    // The export policy runs for each prefix that is looked at, so a page looks at no more than its limit.
    let (v4, v6) = read.next(limit);
    routes.extend(member.routes(v4.into_iter(), query.all, &conditions)?);
    routes.extend(member.routes(v6.into_iter(), query.all, &conditions)?);
    let next = (!read.is_empty()).then(|| router.advertised_reads.put(&of, read));
    Ok(AdvertisedPage { routes, waiting, joining, next })
}

/// The state of a prefix towards a neighbour, for `explain --to`.
pub(super) fn explain_to(
    router: &RouterState,
    prefix: AnyPrefix,
    to: IpAddr,
) -> Result<ExplainStage, Refusal> {
    let name = format!("to {to}");
    let bgp = bgp(router)?;
    let neighbor = to.to_string();
    if let Err(Refusal::Missing(why)) = session(&bgp, &neighbor) {
        return Ok(ExplainStage::new(name, StageState::Stopped, vec![why]));
    }
    let member = Member::new(router, &neighbor)?;
    let mut routes = member.of_prefix(prefix, &Conditions::default())?;
    let Some(first) = routes.first_mut() else {
        let nothing = "not sent: BGP has no route of this prefix";
        return Ok(ExplainStage::new(name, StageState::Absent, vec![nothing.into()]));
    };
    let (waiting, joining) = member.progress()?;
    let reasons = std::mem::take(&mut first.reasons);
    let sent = routes.iter().filter_map(|route| Some(in_words(route.path_id, route.sent.as_ref()?)));
    let mut messages: Vec<String> = sent.collect();
    let is_sent = !messages.is_empty();
    messages.extend(reasons);
    let mut state = StageState::Stopped;
    if is_sent {
        state = StageState::Passed;
        if joining {
            state = StageState::Waiting;
            messages.push("the neighbour waits for a whole table, which this route is part of".into());
        } else if waiting > 0 {
            messages
                .push(format!("{waiting} prefixes wait to be sent to the neighbour; it may be one of them"));
        }
    }
    Ok(ExplainStage::new(name, state, messages))
}

/// A path sent with this identifier or without, as a sentence.
fn in_words(id: Option<u32>, sent: &SentPath) -> String {
    let id = id.map_or(String::new(), |id| format!("identifier {id}, "));
    let mut text = format!("sent with {id}next hop {}, AS path \"{}\"", sent.next_hop, sent.as_path);
    let mut more = |name: &str, value: Option<String>| {
        text.extend(value.map(|value| format!(", {name} {value}")));
    };
    more("LOCAL_PREF", sent.local_pref.map(|n| n.to_string()));
    more("MED", sent.med.map(|n| n.to_string()));
    more("AIGP", sent.aigp.map(|n| n.to_string()));
    for (name, list) in [
        ("communities", &sent.communities),
        ("large communities", &sent.large_communities),
        ("extended communities", &sent.extended_communities),
    ] {
        more(name, (!list.is_empty()).then(|| list.join(" ")));
    }
    text
}

/// A path as sent, as the API has it.
fn sent_path(path: &Advertised) -> SentPath {
    of_wire(&path.attributes, path.next_hop)
}

/// Attributes in wire form as the API has them.
pub(super) fn of_wire(attributes: &[u8], next_hop: NextHop) -> SentPath {
    let (next_hop, link_local) = match next_hop {
        NextHop::V4(address) => (IpAddr::V4(address), None),
        NextHop::V6 { global, link_local } => (IpAddr::V6(global), link_local),
    };
    let mut sent = SentPath {
        next_hop,
        link_local,
        as_path: String::new(),
        origin: String::new(),
        local_pref: None,
        med: None,
        aigp: None,
        communities: Vec::new(),
        large_communities: Vec::new(),
        extended_communities: Vec::new(),
        aggregator: None,
        originator_id: None,
        cluster_list: Vec::new(),
        only_to_customer: None,
        other_attributes: Vec::new(),
    };
    for a in Attributes::new(attributes) {
        match a.code {
            code::ORIGIN => {
                sent.origin = Origin::from_value(a.value).map_or(String::new(), |o| o.to_string())
            }
            code::AS_PATH => sent.as_path = AsPath::new(a.value).to_string(),
            code::MED => sent.med = number(a.value),
            code::AIGP => sent.aigp = aigp::metric(a.value),
            code::LOCAL_PREF => sent.local_pref = number(a.value),
            code::AGGREGATOR => sent.aggregator = Aggregator::from_value(a.value).map(|a| a.to_string()),
            code::COMMUNITIES => {
                sent.communities = Communities::new(a.value).iter().map(|c| c.to_string()).collect();
            }
            code::LARGE_COMMUNITIES => {
                sent.large_communities =
                    LargeCommunities::new(a.value).iter().map(|c| c.to_string()).collect();
            }
            code::EXTENDED_COMMUNITIES => {
                sent.extended_communities =
                    ExtendedCommunities::new(a.value).iter().map(|c| c.to_string()).collect();
            }
            code::ORIGINATOR_ID => sent.originator_id = router_ids(a.value).next(),
            code::CLUSTER_LIST => sent.cluster_list = router_ids(a.value).collect(),
            code::OTC => sent.only_to_customer = number(a.value),
            other => sent.other_attributes.push(other),
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::build;

    #[test]
    fn every_attribute_of_a_sent_path_is_shown_or_named() {
        let mut attributes = Vec::new();
        build::origin(&mut attributes, Origin::Egp);
        build::as_path(&mut attributes, AsPath::new(&[2, 2, 0, 0, 0xfd, 0xe9, 0xfa, 0x56, 0xea, 1]));
        build::med(&mut attributes, 7);
        build::local_pref(&mut attributes, 200);
        build::list(&mut attributes, 0xc0, code::COMMUNITIES, &[0, 1, 0, 2]);
        build::attribute(&mut attributes, 0x80, code::AIGP, &aigp::value(120));
        build::list(&mut attributes, 0xc0, code::OTC, &[0, 0, 0, 9]);
        build::list(&mut attributes, 0xc0, 99, &[1]);
        let next_hop = NextHop::V4("192.0.2.1".parse().unwrap());
        let sent = sent_path(&Advertised { attributes, next_hop });
        assert_eq!((sent.origin.as_str(), sent.as_path.as_str()), ("egp", "65001 4200000001"));
        assert_eq!((sent.med, sent.local_pref, sent.only_to_customer), (Some(7), Some(200), Some(9)));
        assert_eq!(sent.other_attributes, [99]);
        assert_eq!(
            in_words(None, &sent),
            "sent with next hop 192.0.2.1, AS path \"65001 4200000001\", LOCAL_PREF 200, MED 7, AIGP 120, communities 1:2"
        );
        assert!(in_words(Some(7), &sent).starts_with("sent with identifier 7, next hop 192.0.2.1, AS path"));
    }
}
