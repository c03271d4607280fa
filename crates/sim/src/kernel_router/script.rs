//! What happens in a run, drawn from a seed before it begins.

use super::Router;
use crate::campaign;
use crate::history::options;
use crate::kernel::faults::{Refusal, Request};
use crate::network::{Choice, Network};
use crate::routing::Setup;
use ribtide_prefix::Rng;
use ribtide_rib::CacheMode;

/// One action.
#[derive(Clone, Debug)]
pub enum Action {
    /// An event of the network, by its number.
    Event(usize),
    /// A stage works, with choices of this seed.
    Step(Stage, u64),
    /// A fault.
    Fault(Fault),
    /// Milliseconds pass.
    Pass(u64),
    /// The sources have announced their initial routes, so a replay may end.
    Initial,
    /// All stages become idle, and are compared.
    Settle,
}

/// A stage of the router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// BGP's shards.
    Shards,
    /// Egress workers.
    Egress,
    /// The RIB manager.
    Rib,
    /// Notifications of the RIB manager to the shards.
    Feedback,
    /// The writer of routes (`kernel-fib`).
    Writer,
    /// The watcher of routes (`kernel-routes`).
    RouteWatcher,
    /// The watcher of interfaces (`kernel-links`).
    LinkWatcher,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 7] = [
        Stage::Shards,
        Stage::Egress,
        Stage::Rib,
        Stage::Feedback,
        Stage::Writer,
        Stage::RouteWatcher,
        Stage::LinkWatcher,
    ];
}

/// A fault outside of the router's stages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// The kernel refuses requests.
    Refuses(Refusal),
    /// The replies to so many system calls are lost.
    RepliesLost(u32),
    /// So many system calls send nothing.
    SendsFail(u32),
    /// The socket of a request fails.
    SocketFails,
    /// So many dumps are inconsistent.
    DumpsInterrupted(u32),
    /// So many dumps end with an error.
    DumpsRefused(u32),
    /// Notifications are lost.
    NotificationsLost,
    /// Another program deletes a route of ribtide.
    RouteDeleted(usize),
    /// Another program puts its route in the place of one of ribtide.
    RouteReplaced(usize),
    /// Another program lets a route of ribtide use another next-hop object.
    RouteMoved(usize, usize),
    /// Another program adds a route with the protocol number of ribtide, in a form of this number.
    MarkedRoute(usize, usize),
    /// Another program deletes a next-hop object of ribtide.
    ObjectDeleted(usize),
    /// Another program changes a next-hop object of ribtide.
    ObjectReplaced(usize, usize),
    /// Another program deletes all routes of the table.
    RoutesFlushed,
    /// Another program deletes all next-hop objects.
    ObjectsFlushed,
    /// An address of a link is removed, or is back.
    Address(usize),
    /// The source address is removed, or is back.
    SourceAddress,
    /// The link loses its carrier and has it again, before any stage reads a notification.
    LinkFlaps(u32),
    /// The router is killed and starts again.
    Restart,
}

/// The kinds of faults, for the coverage.
const KINDS: &[&str] = &[
    "route refused: no memory",
    "route refused: EINVAL",
    "route refused: EBUSY",
    "deletion of a route refused",
    "next-hop object refused: no memory",
    "next-hop object refused: EINVAL",
    "next-hop object refused: EBUSY",
    "deletion of a next-hop object refused",
    "replies lost",
    "request not sent",
    "socket fails",
    "dump inconsistent",
    "dump refused",
    "notifications lost",
    "route deleted by another program",
    "route replaced by another program",
    "route moved by another program",
    "route with ribtide's number added",
    "next-hop object deleted by another program",
    "next-hop object changed by another program",
    "routes flushed",
    "next-hop objects flushed",
    "address changed",
    "source address changed",
    "link flaps",
    "router killed",
];

/// A deliberate fault of the router or its kernel, which a run must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// Batches are acknowledged when they are sent to the writer.
    EarlyAcknowledgement,
    /// Additions of routes succeed and change nothing.
    LostRoute,
    /// Deletions of routes succeed and change nothing.
    KeptRoute,
    /// Changes of next-hop objects succeed and change nothing.
    FormerNextHop,
    /// Deletions of next-hop objects succeed and change nothing.
    KeptObject,
    /// A next-hop object is deleted while routes use it.
    ObjectDeletedInUse,
    /// Failures are left out of acknowledgements.
    SwallowedFailure,
    /// A foreign route is deleted.
    ForeignRouteDeleted,
    /// Notes of interfaces reach the RIB manager alone, and rounds of the comparison find nothing.
    NoRepair,
}

impl Break {
    /// All of them.
    pub const ALL: [Break; 9] = [
        Break::EarlyAcknowledgement,
        Break::LostRoute,
        Break::KeptRoute,
        Break::FormerNextHop,
        Break::KeptObject,
        Break::ObjectDeletedInUse,
        Break::SwallowedFailure,
        Break::ForeignRouteDeleted,
        Break::NoRepair,
    ];
}

/// A run: all of it follows from the seed.
pub struct Script {
    /// The seed.
    pub seed: u64,
    /// The network.
    pub network: Network,
    /// Settings of BGP and the RIB manager.
    pub setup: Setup,
    /// Whether routes of other programs are imported.
    pub import: bool,
    /// Whether own routes have a source address.
    pub source: bool,
    /// Messages of one buffer of a dump.
    pub dump_page: usize,
    /// Routes of one page of the comparison.
    pub compare_page: usize,
    /// What happens.
    pub actions: Vec<Action>,
}

impl campaign::Script for Script {
    const OPTION: &'static str = "--kernel --script";
    const KINDS: &'static [&'static str] = KINDS;
    type Break = Break;
    type Router<'s> = Router<'s>;

    fn new(seed: u64) -> Script {
        let rng = &mut Rng::of_purpose(seed, &[26]);
        let options = options(rng, false);
        let choice = if rng.one_in(3) { Choice::Plain } else { Choice::Any };
        let length = 8 + rng.index(24);
        let network = Network::new(rng, options, choice, length);
        let setup = Setup {
            shards: [1, 2][rng.index(2)],
            workers: 1,
            cache: [CacheMode::Dependency, CacheMode::Epoch, CacheMode::Off][rng.index(3)],
            suppress: !rng.one_in(3),
            calm: false,
        };
        let (import, source) = (rng.one_in(2), rng.one_in(3));
        let (dump_page, compare_page) = (1 + rng.index(6), 1 + rng.index(12));
        // Of so many actions one is a fault.
        let faults = [0, 12, 25, 60][rng.index(4)];
        let mut actions = Vec::new();
        for event in 0..network.events.len() {
            actions.push(Action::Event(event));
            while !rng.one_in(30) {
                let action = match rng.index(40) {
                    0 => Action::Pass([1, 20, 100, 1000, 10_000][rng.index(5)]),
                    1 if rng.one_in(4) => Action::Initial,
                    _ if faults > 0 && rng.one_in(faults) => Action::Fault(fault(rng)),
                    _ => Action::Step(*rng.pick(&Stage::ALL), rng.next_u64()),
                };
                actions.push(action);
            }
            if rng.one_in(12) {
                actions.push(Action::Settle);
            }
        }
        Script { seed, network, setup, import, source, dump_page, compare_page, actions }
    }

    fn actions(&self) -> usize {
        self.actions.len()
    }

    fn show(&self, number: usize) -> String {
        match &self.actions[number] {
            Action::Event(event) => self.network.events[*event].to_string(),
            action => format!("{action:?}"),
        }
    }
}

fn fault(rng: &mut Rng) -> Fault {
    let some = |rng: &mut Rng| 1 + rng.index(3) as u32;
    let number = |rng: &mut Rng| rng.index(64);
    match rng.index(26) {
        0..6 => Fault::Refuses(Refusal {
            request: *rng.pick(&Request::ALL),
            errno: *rng.pick(&[libc::ENOMEM, libc::EINVAL, libc::ENOBUFS, libc::EBUSY]),
            after: rng.index(4) as u32,
            count: 1 + rng.index(5) as u32,
        }),
        6 | 7 => Fault::RepliesLost(some(rng)),
        8 => Fault::SendsFail(some(rng)),
        9 => Fault::SocketFails,
        10 => Fault::DumpsInterrupted(some(rng)),
        11 => Fault::DumpsRefused(some(rng)),
        12 => Fault::NotificationsLost,
        13 => Fault::RouteDeleted(number(rng)),
        14 => Fault::RouteReplaced(number(rng)),
        15 => Fault::RouteMoved(number(rng), number(rng)),
        16 => Fault::MarkedRoute(number(rng), number(rng)),
        17 => Fault::ObjectDeleted(number(rng)),
        18 => Fault::ObjectReplaced(number(rng), number(rng)),
        19 => Fault::RoutesFlushed,
        20 => Fault::ObjectsFlushed,
        21 => Fault::Address(number(rng)),
        22 => Fault::SourceAddress,
        23 => Fault::LinkFlaps(1 + rng.index(3) as u32),
        _ => Fault::Restart,
    }
}
