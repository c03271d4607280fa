//! The workloads: the initial state, and the messages or events of each phase.

use super::decoder::route_set;
use crate::options::name_of;
use ribtide_prefix::{AnyPrefix, Families, Prefix, V4};
use ribtide_rib::{
    InterfaceEvent, NONE, NextHops, Protocol, ReceivedHop, RibIn, RouteBatch, RouteSet, Source, VrfId,
};
use ribtide_wire::netlink::numbers::NLM_F_CREATE;
use ribtide_wire::netlink::{self, Hop, Route, Via};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum NexthopWorkload {
    /// 10,000 routes with 512 next hops each, half of them on each of two links
    Ecmp,
    /// 1,000,000 routes with one next hop, which resolves through a static route over two links
    Single,
}

/// Bytes of one batch, at most: a socket's read under load.
const BYTES: usize = 1 << 20;

/// The input of a phase.
pub(super) enum Input {
    /// Encoded routes, a batch each.
    Messages(Vec<Vec<u8>>),
    /// Other events in groups; a group comes when the urgent part of the one before is done.
    Events(Vec<Vec<RibIn>>),
}

/// A phase of a workload, and the expected result.
pub(super) struct Phase {
    pub(super) name: &'static str,
    /// Routes of the workload that are in the FIB afterwards.
    pub(super) installed: u32,
    /// Next hops of each route.
    pub(super) hops: usize,
    /// Makes the input.
    pub(super) input: fn(&Scale) -> Input,
}

/// The size of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    pub(super) work: NexthopWorkload,
    pub(super) routes: u32,
    /// Next hops of each route.
    pub(super) hops: u16,
    /// Routes of one turn, at most.
    pub(super) turn: u32,
}

impl NexthopWorkload {
    /// The whole workload or the `factor`th part, in turns of so many routes.
    pub(super) fn scale(self, factor: f64, turn: u32) -> Scale {
        let (routes, hops) = match self {
            NexthopWorkload::Ecmp => (10_000.0, 512.0),
            NexthopWorkload::Single => (1_000_000.0, 1.0),
        };
        let hops = if self == NexthopWorkload::Ecmp {
            (hops * factor.min(1.0)).max(4.0) as u16 / 2 * 2
        } else {
            hops as u16
        };
        Scale { work: self, routes: (routes * factor).max(10.0) as u32, hops, turn }
    }
}

impl fmt::Display for NexthopWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

/// The two links, by number.
const LINKS: [u8; 2] = [1, 2];
/// The next hop of [`NexthopWorkload::Single`], and the static route to it.
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

impl Scale {
    /// Links, and for [`NexthopWorkload::Single`] the static route.
    pub(super) fn setup(&self) -> Vec<RibIn> {
        let mut setup: Vec<RibIn> = LINKS.iter().map(|n| link(*n, true)).collect();
        if self.work == NexthopWorkload::Single {
            let (prefix, neighbors) = self.far();
            let hops = neighbors.map(|neighbor| ReceivedHop::gateway(neighbor.into()));
            setup.push(fixed(prefix, Some(hops.into())));
        }
        setup
    }

    pub(super) fn phases(&self) -> Vec<Phase> {
        let Scale { routes, hops, .. } = *self;
        let all = usize::from(hops);
        let phase = |name, installed, hops, input| Phase { name, installed, hops, input };
        match self.work {
            NexthopWorkload::Ecmp => vec![
                phase(INSTALL, routes, all, |s| s.announced(0)),
                phase(CHURN, routes, all, |s| s.announced(1)),
                phase("a next hop moves", routes, all, |s| Input::Events(vec![vec![s.moved()]])),
                phase(LINK_DOWN, routes, all / 2 + 1, |_| Input::Events(vec![vec![link(1, false)]])),
                phase(LINK_UP, routes, all, |_| Input::Events(vec![vec![link(1, true)]])),
                phase(WITHDRAW, 0, 0, |s| s.withdrawn()),
            ],
            NexthopWorkload::Single => vec![
                phase(INSTALL, routes, 2, |s| s.announced(0)),
                phase("a next hop moves", routes, 1, |s| Input::Events(vec![vec![s.moved()]])),
                phase("and back", routes, 2, |_| Input::Events(vec![vec![fixed(network(FAR, 32), None)]])),
                phase(LINK_DOWN, routes, 1, |_| Input::Events(vec![vec![link(1, false)]])),
                phase(LINK_UP, routes, 2, |_| Input::Events(vec![vec![link(1, true)]])),
                phase(ALL_DOWN, 0, 0, |_| Input::Events(vec![links(false)])),
                phase(ALL_UP, routes, 2, |_| Input::Events(vec![links(true)])),
                phase(FLAP, routes, 2, |_| Input::Events(vec![links(false), links(true)])),
                phase(WITHDRAW, 0, 0, |s| s.withdrawn()),
            ],
        }
    }

    /// The prefix of a route.
    pub(super) fn prefix(&self, n: u32) -> Prefix<V4> {
        Prefix::new(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + n, 32)
    }

    /// The address of a next hop: in an ECMP set, half of them on each link. Another `version`
    /// differs in the last one.
    pub(super) fn hop(&self, n: u16, version: u16) -> Ipv4Addr {
        match self.work {
            NexthopWorkload::Single => FAR,
            NexthopWorkload::Ecmp => {
                let half = self.hops / 2;
                let extra = if n + 1 == self.hops { version } else { 0 };
                neighbor(LINKS[usize::from(n / half)], n % half + extra)
            }
        }
    }

    /// The static route to the next hop of [`NexthopWorkload::Single`], and its next hops.
    pub(super) fn far(&self) -> (Prefix<V4>, [Ipv4Addr; 2]) {
        (network(FAR, 24), LINKS.map(|n| neighbor(n, 0)))
    }

    /// Every route, announced with all next hops.
    fn announced(&self, version: u16) -> Input {
        let via = |n| Via { gateway: Some(self.hop(n, version).into()), ifindex: 0, onlink: false };
        let hops: Vec<Hop> = (0..self.hops).map(|n| Hop { via: via(n), weight: 1 }).collect();
        self.messages(|prefix, out| {
            let route = Route::new(prefix, 254, 186, netlink::NextHops::Inline(hops[..].into()));
            route.write_new(out, NLM_F_CREATE, 0).expect("512 next hops fit a message");
        })
    }

    fn withdrawn(&self) -> Input {
        self.messages(|prefix, out| {
            let route = Route::new(prefix, 254, 186, netlink::NextHops::None);
            route.write_delete(out, 0, 0).expect("a deletion fits a message");
        })
    }

    fn messages(&self, write: impl Fn(AnyPrefix, &mut Vec<u8>)) -> Input {
        let mut batches = vec![Vec::new()];
        let mut together = 0;
        for n in 0..self.routes {
            if together == self.turn || batches.last().is_some_and(|bytes| bytes.len() > BYTES) {
                batches.push(Vec::new());
                together = 0;
            }
            together += 1;
            if let Some(bytes) = batches.last_mut() {
                write(self.prefix(n).any(), bytes);
            }
        }
        Input::Messages(batches)
    }

    /// A more specific route to one of the next hops, through a neighbour on the other link.
    fn moved(&self) -> RibIn {
        let hop = self.hop(0, 0);
        fixed(network(hop, 32), Some(vec![ReceivedHop::gateway(neighbor(LINKS[1], 5000).into())]))
    }
}

pub(super) const INSTALL: &str = "install";
pub(super) const CHURN: &str = "churn: another set";
pub(super) const LINK_DOWN: &str = "link down";
pub(super) const LINK_UP: &str = "link up";
pub(super) const ALL_DOWN: &str = "both links down";
pub(super) const ALL_UP: &str = "both links up";
pub(super) const FLAP: &str = "both links down and at once up";
pub(super) const WITHDRAW: &str = "withdraw";

/// A neighbour on a link.
fn neighbor(link: u8, n: u16) -> Ipv4Addr {
    let [high, low] = (n + 256).to_be_bytes();
    Ipv4Addr::new(10, link, high, low)
}

fn links(up: bool) -> Vec<RibIn> {
    LINKS.iter().map(|n| link(*n, up)).collect()
}

fn link(n: u8, up: bool) -> RibIn {
    let subnet = AnyPrefix::V4(Prefix::new(Ipv4Addr::new(10, n, 0, 0).into(), 16));
    let addresses = vec![(IpAddr::from([10, n, 0, 1]), subnet)];
    RibIn::Interface(InterfaceEvent {
        vrf: VrfId::DEFAULT,
        index: n.into(),
        name: format!("link{n}"),
        up,
        loopback: false,
        addresses,
    })
}

/// The prefix of this length that holds an address.
fn network(address: Ipv4Addr, len: u8) -> Prefix<V4> {
    Prefix::new(u32::from(address), len)
}

/// A static route, or its withdrawal.
fn fixed(prefix: Prefix<V4>, hops: Option<Vec<ReceivedHop>>) -> RibIn {
    let sets: Vec<RouteSet> = hops
        .into_iter()
        .map(|hops| RouteSet {
            distance: Protocol::Static.default_distance(),
            protocol: Protocol::Static,
            ..route_set(NextHops::Via(hops), None)
        })
        .collect();
    let set = if sets.is_empty() { NONE } else { 0 };
    let changes = Families { v4: vec![(prefix, set)], v6: Vec::new() };
    RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Static, sets, changes })
}
