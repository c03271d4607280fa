//! Other programs of the host, and faults.

use super::{Fault, LINKS, LOOPBACK, METRIC, PROTOCOL, Router, TABLE, addresses, source_address};
use crate::kernel::{ObjectContent, RouteForward, State};
use crate::router::trace;
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_rib::{NextHops as RibHops, RouteBatch};
use ribtide_wire::netlink::numbers::{NLM_F_CREATE, NLM_F_REPLACE, RTPROT_STATIC};
use ribtide_wire::netlink::{
    Forward, Hop, Hops, Member, Members, NextHop, NextHops, Route, RouteKind, Via, write_next_hop_delete,
};
use std::net::IpAddr;

/// The protocol number of a program that interferes with ribtide's routes.
const OTHER_PROTOCOL: u8 = 16;
const SET: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// What other programs have of their own, which ribtide must leave alone.
pub(super) struct Others;

/// A route of another program.
fn route(prefix: AnyPrefix, protocol: u8, metric: Option<u32>, next_hops: NextHops<'_>) -> Route<'_> {
    let mut route = Route::new(prefix, TABLE, protocol, next_hops);
    route.metric = metric;
    if matches!(next_hops, NextHops::None) {
        route.kind = RouteKind::Blackhole;
    }
    route
}

fn set(route: &Route<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    route.write_new(&mut out, SET, 0).expect("a short route");
    out
}

/// The deletion of a route, whatever it does.
fn unset(mut route: Route<'_>) -> Vec<u8> {
    (route.kind, route.scope) = (RouteKind::Other(0), 255);
    let mut out = Vec::new();
    route.write_delete(&mut out, 0, 0).expect("a short route");
    out
}

fn set_object(id: u32, protocol: u8, forward: Forward<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    NextHop { id, protocol, forward }.write_new(&mut out, SET, 0).expect("a short object");
    out
}

fn on_link(link: u32) -> Hop {
    Hop { via: Via { gateway: None, ifindex: link, onlink: false }, weight: 1 }
}

impl Others {
    /// A program has an object and two routes from the start.
    pub(super) fn begin(state: &mut State) {
        let object = set_object(5, OTHER_PROTOCOL, Forward::Blackhole(Afi::Ipv4));
        state.by_others(&object);
        for (prefix, next_hops) in [("203.0.113.0/24", NextHops::None), ("203.0.113.128/25", NextHops::Id(5))]
        {
            let prefix = prefix.parse().expect("a prefix");
            state.by_others(&set(&route(prefix, OTHER_PROTOCOL, Some(5), next_hops)));
        }
    }

    /// A program changes its routes.
    pub(super) fn routes(state: &mut State, batch: &RouteBatch) {
        let v4 = batch.changes.v4.iter().map(|(prefix, set)| (AnyPrefix::V4(*prefix), *set));
        let v6 = batch.changes.v6.iter().map(|(prefix, set)| (AnyPrefix::V6(*prefix), *set));
        for (prefix, number) in v4.chain(v6) {
            let hop = match batch.sets.get(number as usize).map(|set| &set.next_hops) {
                None => {
                    // By its protocol, so no other route is meant.
                    state.by_others(&unset(route(prefix, RTPROT_STATIC, None, NextHops::None)));
                    continue;
                }
                Some(RibHops::Blackhole | RibHops::Unreachable) => None,
                Some(RibHops::Via(hops)) => hops.first().map(|hop| {
                    let ifindex = hop.interface.unwrap_or(1);
                    Hop { via: Via { gateway: hop.gateway, ifindex, onlink: false }, weight: 1 }
                }),
            };
            let next_hops = hop
                .as_ref()
                .map_or(NextHops::None, |hop| NextHops::Inline(Hops::from(std::slice::from_ref(hop))));
            state.by_others(&set(&route(prefix, RTPROT_STATIC, None, next_hops)));
        }
    }

    /// Deliberate: the program under test deletes a route of another one.
    pub(super) fn lose_route(state: &mut State) {
        let prefix = "203.0.113.0/24".parse().expect("a prefix");
        state.by_program(&unset(route(prefix, OTHER_PROTOCOL, Some(5), NextHops::None)));
    }
}

impl Router<'_> {
    /// A fault happens.
    pub(super) fn fault(&mut self, fault: Fault) {
        trace(|| format!("{fault:?}"));
        let state = &mut *self.kernel.state();
        let mut own_routes = Vec::new();
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            let own = state.routes(afi, TABLE).filter(|(_, entry)| entry.protocol == PROTOCOL);
            own_routes.extend(own.map(|(prefix, entry)| (prefix, entry.clone())));
        }
        let own_object = |object: &crate::kernel::Object| object.protocol == PROTOCOL;
        let own_objects: Vec<u32> =
            state.objects().iter().filter(|(_, object)| own_object(object)).map(|(id, _)| *id).collect();
        let nth_route = |n: usize| (!own_routes.is_empty()).then(|| own_routes[n % own_routes.len()].clone());
        let nth_object = |n: usize| (!own_objects.is_empty()).then(|| own_objects[n % own_objects.len()]);
        let changed = |kind, refused: Option<Vec<i32>>| refused.filter(Vec::is_empty).map(|_| kind);
        let kind = match fault {
            Fault::Refuses(refusal) => {
                state.faults.refuse(refusal);
                return;
            }
            Fault::RepliesLost(count) => return state.faults.lost_replies += count,
            Fault::SendsFail(count) => return state.faults.refused_sends += count,
            Fault::SocketFails => return state.faults.broken_sockets += 1,
            Fault::DumpsInterrupted(count) => return state.faults.interrupted_dumps += count,
            Fault::DumpsRefused(count) => return state.faults.refused_dumps += count,
            Fault::Restart => return,
            Fault::NotificationsLost => state.lose_notifications().then_some("notifications lost"),
            Fault::RouteDeleted(n) => {
                let gone = nth_route(n).map(|(prefix, entry)| {
                    state.by_others(&unset(route(prefix, PROTOCOL, Some(entry.metric), NextHops::None)))
                });
                changed("route deleted by another program", gone)
            }
            Fault::RouteReplaced(n) => {
                let hop = on_link(1 + (n as u32) % LINKS);
                let hops = NextHops::Inline(Hops::from(std::slice::from_ref(&hop)));
                let replaced = nth_route(n).map(|(prefix, entry)| {
                    state.by_others(&set(&route(prefix, OTHER_PROTOCOL, Some(entry.metric), hops)))
                });
                changed("route replaced by another program", replaced)
            }
            Fault::RouteMoved(n, m) => {
                let moved = nth_route(n).zip(nth_object(m)).map(|((prefix, entry), id)| {
                    state.by_others(&set(&route(prefix, PROTOCOL, Some(entry.metric), NextHops::Id(id))))
                });
                changed("route moved by another program", moved)
            }
            Fault::MarkedRoute(n, form) => {
                let fresh = ["198.18.0.0/15", "2001:db8:4242::/48"][n % 2].parse().expect("a prefix");
                let prefix = if n.is_multiple_of(3) {
                    nth_route(n).map_or(fresh, |(prefix, _)| prefix)
                } else {
                    fresh
                };
                let hop = on_link(1 + (n as u32) % LINKS);
                let hops = NextHops::Inline(Hops::from(std::slice::from_ref(&hop)));
                let (next_hops, metric) = match form % 5 {
                    0 => (hops, METRIC),
                    1 => (hops, 77),
                    2 => (NextHops::None, 77),
                    3 => (nth_object(n).map_or(NextHops::None, NextHops::Id), 77),
                    _ => (NextHops::None, METRIC),
                };
                let mut marked = route(prefix, PROTOCOL, Some(metric), next_hops);
                if form % 7 == 0 {
                    marked.scope = 253;
                }
                changed("route with ribtide's number added", Some(state.by_others(&set(&marked))))
            }
            Fault::ObjectDeleted(n) => {
                let mut out = Vec::new();
                nth_object(n).into_iter().for_each(|id| write_next_hop_delete(&mut out, id, 0, 0));
                let deleted = (!out.is_empty()).then(|| state.by_others(&out));
                changed("next-hop object deleted by another program", deleted)
            }
            Fault::ObjectReplaced(n, m) => {
                let replaced = nth_object(n).map(|id| {
                    let single = own_objects.iter().copied().find(|other| {
                        *other != id
                            && (*other as usize) % 3 == m % 3
                            && !matches!(state.objects()[other].content, ObjectContent::Group(_))
                    });
                    let bytes = match &state.objects()[&id].content {
                        ObjectContent::Group(members) => {
                            let member = single.map_or(members[0].id, |id| id);
                            let members = [Member { id: member, weight: 1 + (m % 3) as u16 }];
                            set_object(id, PROTOCOL, Forward::Group(Members::from(&members[..])))
                        }
                        _ => {
                            let link = 1 + (m as u32) % LINKS;
                            let gateway: IpAddr = [10, 0, link as u8, 99].into();
                            let via = Via { gateway: Some(gateway), ifindex: link, onlink: false };
                            set_object(id, PROTOCOL, Forward::via(via))
                        }
                    };
                    state.by_others(&bytes)
                });
                changed("next-hop object changed by another program", replaced)
            }
            Fault::RoutesFlushed => {
                for (prefix, entry) in &own_routes {
                    state.by_others(&unset(route(*prefix, PROTOCOL, Some(entry.metric), NextHops::None)));
                }
                (!own_routes.is_empty()).then_some("routes flushed")
            }
            Fault::ObjectsFlushed => {
                let all: Vec<u32> = state.objects().keys().copied().collect();
                for id in &all {
                    let mut out = Vec::new();
                    write_next_hop_delete(&mut out, *id, 0, 0);
                    state.by_others(&out);
                }
                (!all.is_empty()).then_some("next-hop objects flushed")
            }
            Fault::Address(n) => {
                let link = 1 + (n as u32) % LINKS;
                toggle(state, link, addresses(link)[n / 3 % 2]);
                Some("address changed")
            }
            Fault::SourceAddress => {
                toggle(state, LOOPBACK, (source_address(), 32));
                Some("source address changed")
            }
            Fault::LinkFlaps(link) => {
                let up = state.links()[&link].is_operative();
                if up {
                    state.set_carrier(link, false);
                    state.set_carrier(link, true);
                }
                up.then_some("link flaps")
            }
        };
        if let Some(kind) = kind {
            self.sent.disturbed = true;
            *self.coverage.entry(kind).or_default() += 1;
        }
    }

    /// Deliberate: an object that routes use is deleted on behalf of ribtide.
    pub(super) fn delete_object_in_use(&mut self) {
        let state = &mut *self.kernel.state();
        let own = state.routes(Afi::Ipv4, TABLE).filter(|(_, entry)| entry.protocol == PROTOCOL);
        let used = own.filter_map(|(_, entry)| match entry.forward {
            RouteForward::Object(id) => Some(id),
            _ => None,
        });
        if let Some(id) = used.last() {
            let mut out = Vec::new();
            write_next_hop_delete(&mut out, id, 0, 0);
            state.by_program(&out);
        }
    }
}

/// Removes an address, or adds it.
fn toggle(state: &mut State, link: u32, (address, len): (IpAddr, u8)) {
    match state.links()[&link].addresses.iter().any(|(own, _)| *own == address) {
        true => state.delete_address(link, address),
        false => state.add_address(link, address, len),
    }
}
