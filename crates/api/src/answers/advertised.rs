//! `/v1/bgp/neighbors/ADDRESS/advertised`: the Adj-RIB-Out of a neighbour, and why a route is not in it.

use super::bgp::{bgp, no_neighbor};
use super::routes::{self, Read};
use super::{ApiState, Refusal, RouterState};
use crate::request::AdvertisedQuery;
use ribtide_bgp::egress::Advertised;
use ribtide_bgp::message::BestPath;
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::{AdvertisedView, Standing};
use ribtide_bgpd::Bgp;
use ribtide_bgpd::egress::WorkerPort;
use ribtide_bgpd::session::{NeighborView, UpView};
use ribtide_model::{AdvertisedPage, AdvertisedRoute, ExplainStage, SentPath, StageState};
use ribtide_prefix::{AnyPrefix, Family, ParsePrefixError, Prefix};
use ribtide_wire::bgp::attribute::{
    Aggregator, Attributes, Communities, ExtendedCommunities, LargeCommunities, Origin, code, number,
    router_ids,
};
use ribtide_wire::bgp::{AsPath, NextHop};
use std::net::IpAddr;

/// The text of an address in a URL.
pub(super) fn address(text: &str) -> Result<IpAddr, Refusal> {
    text.parse().map_err(|_| Refusal::Bad(format!("\"{text}\" is no address; write one such as 192.0.2.1")))
}

/// The established session with a neighbour.
pub(super) fn session(bgp: &Bgp, address: IpAddr) -> Result<(NeighborView, UpView), Refusal> {
    let view = bgp.sessions.call(move |s| s.neighbor(address))?;
    let mut view = view.ok_or_else(|| no_neighbor(address))?;
    let up = view.up.take().ok_or_else(|| ended(address))?;
    Ok((view, up))
}

fn ended(address: IpAddr) -> Refusal {
    Refusal::Missing(format!("the session with {address} is not established, so it has no routes"))
}

/// A neighbour with a session, and the worker that has its update group.
struct Member<'a> {
    router: &'a RouterState,
    address: IpAddr,
    id: PeerId,
    worker: &'a WorkerPort,
}

impl<'a> Member<'a> {
    fn new(router: &'a RouterState, address: IpAddr) -> Result<Member<'a>, Refusal> {
        let bgp = bgp(router)?;
        let (view, up) = session(bgp, address)?;
        let worker = bgp.workers.get(up.worker).ok_or_else(|| ended(address))?;
        Ok(Member { router, address, id: view.id, worker })
    }

    /// The prefixes that wait to be sent to it, and whether it waits for a table.
    fn progress(&self) -> Result<(u64, bool), Refusal> {
        let id = self.id;
        let member = self.worker.call(move |w| w.member(id))?.ok_or_else(|| ended(self.address))?;
        Ok((member.waiting as u64, member.joining))
    }

    /// The routes of these prefixes; only those that are sent, or `all`.
    fn routes<F: Family>(
        &self,
        prefixes: impl Iterator<Item = Prefix<F>>,
        all: bool,
    ) -> Result<Vec<AdvertisedRoute>, Refusal> {
        let id = self.id;
        let views = routes::each(self.router, prefixes, |shard, prefix| shard.advertised(prefix))?;
        let page = views.iter().filter_map(|(_, prefix, view)| Some((*prefix, view.path.clone()?)));
        let page: Vec<(Prefix<F>, BestPath)> = page.collect();
        let sent = self.worker.call(move |w| w.adj_rib_out(id, &page))?;
        let mut sent = sent.ok_or_else(|| ended(self.address))?.into_iter();
        let mut found = Vec::new();
        for (_, prefix, view) in views {
            let path = view.path.as_ref().and_then(|_| sent.next().flatten());
            if path.is_some() || all {
                let reasons = if path.is_some() { Vec::new() } else { self.reasons(prefix, &view)? };
                found.push(AdvertisedRoute {
                    prefix: prefix.to_string(),
                    sent: path.map(|path| sent_path(&path)),
                    reasons,
                });
            }
        }
        Ok(found)
    }

    /// The route of one prefix, with reasons; `None` if BGP does not have it.
    fn route(&self, prefix: AnyPrefix) -> Result<Option<AdvertisedRoute>, Refusal> {
        match prefix {
            AnyPrefix::V4(prefix) => self.route_of(prefix),
            AnyPrefix::V6(prefix) => self.route_of(prefix),
        }
    }

    fn route_of<F: Family>(&self, prefix: Prefix<F>) -> Result<Option<AdvertisedRoute>, Refusal> {
        let views =
            routes::each(self.router, std::iter::once(prefix), |shard, prefix| shard.advertised(prefix))?;
        let Some((_, _, view)) = views.into_iter().next() else { return Ok(None) };
        let mut route = self.routes(std::iter::once(prefix), true)?.pop();
        if let Some(route) = &mut route {
            route.reasons = self.reasons(prefix, &view)?;
        }
        Ok(route)
    }

    /// Why the neighbour is sent a prefix as it is, or not at all.
    fn reasons<F: Family>(&self, prefix: Prefix<F>, view: &AdvertisedView) -> Result<Vec<String>, Refusal> {
        let id = self.id;
        let Some(path) = view.path.clone().or(view.best.clone()) else {
            return Ok(vec!["not sent: it has no usable path".into()]);
        };
        let mut reasons = self.worker.call(move |w| w.advertised(id, prefix.any(), &path).1)?;
        reasons.extend(standing(view).map(str::to_owned));
        Ok(reasons)
    }
}

/// What FIB suppression does to a route.
fn standing(view: &AdvertisedView) -> Option<&'static str> {
    match view.standing {
        Standing::Advertised => None,
        Standing::Waiting { former: false } => {
            Some("not sent yet: it waits for confirmation by the FIB (suppress-fib-pending)")
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
    let member = Member::new(router, address(text)?)?;
    let (waiting, joining) = member.progress()?;
    if let Some(text) = &query.prefix {
        let prefix = text.parse().map_err(|e: ParsePrefixError| Refusal::Bad(e.to_string()))?;
        let route = member.route(prefix)?;
        let route = route.ok_or_else(|| Refusal::Missing(format!("BGP has no route for {text}")))?;
        return Ok(AdvertisedPage { routes: vec![route], waiting, joining, next: None });
    }
    let mut read = match query.cursor.as_deref() {
        None => Read::begin(router, None)?,
        Some(cursor) => router.route_reads.take(cursor)?,
    };
    let (v4, v6) = read.next(limit);
    let mut routes = member.routes(v4.into_iter(), query.all)?;
    routes.extend(member.routes(v6.into_iter(), query.all)?);
    let next = (!read.is_empty()).then(|| router.route_reads.put(read));
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
    if let Err(Refusal::Missing(why)) = session(bgp, to) {
        return Ok(ExplainStage::new(name, StageState::Stopped, vec![why]));
    }
    let member = Member::new(router, to)?;
    let Some(route) = member.route(prefix)? else {
        let nothing = "not sent: BGP has no route of this prefix";
        return Ok(ExplainStage::new(name, StageState::Absent, vec![nothing.into()]));
    };
    let (waiting, joining) = member.progress()?;
    let mut messages = route.reasons;
    let mut state = StageState::Stopped;
    if let Some(sent) = &route.sent {
        state = StageState::Passed;
        messages.insert(0, in_words(sent));
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

/// A sent path, as a sentence.
fn in_words(sent: &SentPath) -> String {
    let mut text = format!("sent with next hop {}, AS path \"{}\"", sent.next_hop, sent.as_path);
    let mut more = |name: &str, value: Option<String>| {
        text.extend(value.map(|value| format!(", {name} {value}")));
    };
    more("LOCAL_PREF", sent.local_pref.map(|n| n.to_string()));
    more("MED", sent.med.map(|n| n.to_string()));
    for (name, list) in [
        ("communities", &sent.communities),
        ("large communities", &sent.large_communities),
        ("extended communities", &sent.extended_communities),
    ] {
        more(name, (!list.is_empty()).then(|| list.join(" ")));
    }
    text
}

/// Attributes in wire form as the API has them.
fn sent_path(path: &Advertised) -> SentPath {
    let (next_hop, link_local) = match path.next_hop {
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
        communities: Vec::new(),
        large_communities: Vec::new(),
        extended_communities: Vec::new(),
        aggregator: None,
        originator_id: None,
        cluster_list: Vec::new(),
        only_to_customer: None,
        other_attributes: Vec::new(),
    };
    for a in Attributes::new(&path.attributes) {
        match a.code {
            code::ORIGIN => {
                sent.origin = Origin::from_value(a.value).map_or(String::new(), |o| o.to_string())
            }
            code::AS_PATH => sent.as_path = AsPath::new(a.value).to_string(),
            code::MED => sent.med = number(a.value),
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
        build::list(&mut attributes, 0xc0, code::OTC, &[0, 0, 0, 9]);
        build::list(&mut attributes, 0xc0, 99, &[1]);
        let next_hop = NextHop::V4("192.0.2.1".parse().unwrap());
        let sent = sent_path(&Advertised { attributes, next_hop });
        assert_eq!((sent.origin.as_str(), sent.as_path.as_str()), ("egp", "65001 4200000001"));
        assert_eq!((sent.med, sent.local_pref, sent.only_to_customer), (Some(7), Some(200), Some(9)));
        assert_eq!(sent.other_attributes, [99]);
        assert_eq!(
            in_words(&sent),
            "sent with next hop 192.0.2.1, AS path \"65001 4200000001\", LOCAL_PREF 200, MED 7, communities 1:2"
        );
    }
}
