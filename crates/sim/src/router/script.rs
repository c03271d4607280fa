//! What happens in a run, drawn from a seed before it begins. A shorter script of the same seed is
//! the numbers of the actions that stay.

use super::Router;
use super::chip::Refusal;
use super::orchagent::SyncdStart;
use crate::campaign;
use crate::history::options;
use crate::network::{Choice, Network};
use crate::routing::Setup;
use ribtide_prefix::Rng;
use ribtide_rib::CacheMode;
use ribtide_swss::sai::{ObjectType, Status, Verb};
use std::net::IpAddr;

/// One action.
#[derive(Clone, Debug)]
pub enum Action {
    /// An event of the network, by its number.
    Event(usize),
    /// A stage works, with choices of this seed.
    Step(Stage, u64),
    /// A fault.
    Fault(Fault, u64),
    /// Milliseconds pass.
    Pass(u64),
    /// All stages become idle, and are compared.
    Settle,
}

/// A stage of the router, or one outside of it.
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
    /// The FPM client.
    Client,
    /// fpmsyncd, reading.
    Server,
    /// fpmsyncd, writing.
    Flush,
    /// orchagent.
    Orchagent,
    /// syncd and the chip.
    Syncd,
    /// A reply of syncd to orchagent.
    Reply,
    /// A message of orchagent to fpmsyncd.
    Response,
    /// The kernel resolves a neighbour.
    Kernel,
    /// fpmsyncd connects to orchagent over ZeroMQ.
    Connect,
    /// fpmsyncd's writer of APPL_DB, with routes over ZeroMQ.
    WriteBehind,
}

impl Stage {
    /// All with routes through Redis.
    pub const ALL: [Stage; 12] = [
        Stage::Shards,
        Stage::Egress,
        Stage::Rib,
        Stage::Feedback,
        Stage::Client,
        Stage::Server,
        Stage::Flush,
        Stage::Orchagent,
        Stage::Syncd,
        Stage::Reply,
        Stage::Response,
        Stage::Kernel,
    ];
    /// Those beside them with routes over ZeroMQ.
    pub const ZMQ: [Stage; 2] = [Stage::Connect, Stage::WriteBehind];
}

/// A fault outside of the router's stages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// The chip has no room, or refuses for another reason.
    ChipRefuses(Refusal),
    /// The chip answers a request twice.
    AnswersTwice,
    /// A reply of the chip overtakes earlier ones.
    AnswersLate,
    /// Replies are lost with the connection of orchagent and syncd.
    RepliesLost,
    /// syncd ends and starts again.
    SyncdRestarts(SyncdStart),
    /// orchagent is killed.
    OrchagentKilled,
    /// fpmsyncd is killed.
    FpmsyncdKilled,
    /// The connection of the FPM client breaks.
    FpmDisconnected,
    /// fpmsyncd loses so many frames of routes, next-hop objects or queries.
    FramesLost(u32),
    /// Redis refuses so many writes.
    RedisRefuses(u32),
    /// Redis loses all, or APPL_DB alone, or another program empties APPL_DB. After a loss fpmsyncd
    /// writes everything again at once. Without the other databases orchagent and syncd start again.
    RedisLost,
    /// The connection for responses breaks.
    ResponsesLost,
    /// The kernel loses a neighbour, by its number.
    NeighborLost(usize),
    /// The chip loses a route, by its number.
    ChipLosesRoute(usize),
    /// The link of a member of the LAG, by its number, goes down or up.
    MemberLink(usize, bool),
    /// The subscription to link states breaks, and those on their way are lost.
    ReportsLost,
    /// The ZeroMQ connection breaks, perhaps with messages in flight.
    ZmqDisconnected,
    /// So many attempts to connect over ZeroMQ fail.
    ZmqRefuses(u32),
}

/// The kinds of faults, for the coverage.
const KINDS: &[&str] = &[
    "chip full",
    "chip refuses",
    "chip answers twice",
    "chip answers out of order",
    "replies lost, requests come again",
    "syncd restarts, chip lost",
    "syncd restarts, chip kept",
    "syncd restarts, rows of ASIC_DB lost",
    "syncd restarts, ASIC_DB older",
    "orchagent killed, starts cold",
    "orchagent killed, starts warm",
    "fpmsyncd killed",
    "FPM connection breaks",
    "Redis refuses writes",
    "Redis loses its data",
    "Redis loses APPL_DB alone",
    "another program empties APPL_DB",
    "responses lost",
    "neighbour lost",
    "chip loses a route",
    "link of a LAG's member changes",
    "link states lost",
    "ZeroMQ connection breaks",
    "ZeroMQ connection breaks, messages lost",
    "ZeroMQ connection refused",
    "orchagent killed, ZeroMQ messages lost",
    "fpmsyncd killed, ZeroMQ messages lost",
    "fpmsyncd killed, APPL_DB behind",
    "frame lost at the FPM server",
];

/// A deliberate fault of the router itself, which a run must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// fpmsyncd loses deletions of routes.
    LostWithdrawal,
    /// Routes are confirmed when their rows are written.
    EarlyAcknowledgement,
    /// The chip keeps routes that it reports as removed.
    KeptRoute,
    /// The chip keeps the next hops of routes that it reports as changed.
    FormerNextHop,
    /// fpmsyncd deletes groups that routes name.
    GroupDeletedInUse,
    /// Replies of syncd are lost, and nothing asks again.
    LostReply,
    /// The chip reports success of what it refused.
    SwallowedError,
    /// fpmsyncd sends nothing again on a new ZeroMQ connection.
    NoResend,
    /// Link states are lost, and orchagent does not read them.
    LostReport,
    /// orchagent does not compare a syncd that was started again.
    TrustedSyncd,
}

/// When APPL_DB gets routes that go over ZeroMQ (`fpmsyncd --appl-db`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Never.
    Off,
    /// From a thread of its own.
    Behind,
    /// Before orchagent.
    InLine,
}

/// A run: all of it follows from the seed.
pub struct Script {
    /// The seed.
    pub seed: u64,
    /// The network.
    pub network: Network,
    /// Settings of BGP and the RIB manager.
    pub setup: Setup,
    /// Whether the FPM client sends next-hop objects.
    pub next_hop_groups: bool,
    /// Requests in flight to syncd at most.
    pub window: usize,
    /// Whether routes go to orchagent over ZeroMQ, and when APPL_DB gets them then.
    pub zmq: Option<Persistence>,
    /// What happens.
    pub actions: Vec<Action>,
}

/// Gateways that the links have.
pub(crate) const GATEWAYS: [(&str, &str); 6] = [
    ("eth1", "10.0.1.20"),
    ("eth1", "10.0.1.21"),
    ("eth2", "10.0.2.20"),
    ("eth3", "10.0.3.20"),
    ("eth1", "2001:db8:1::20"),
    ("eth2", "2001:db8:2::20"),
];

pub(crate) fn gateway(number: usize) -> (&'static str, IpAddr) {
    let (interface, address) = GATEWAYS[number % GATEWAYS.len()];
    (interface, address.parse().expect("an address"))
}

impl campaign::Script for Script {
    const OPTION: &'static str = "--script";
    const KINDS: &'static [&'static str] = KINDS;
    type Break = Break;
    type Router<'s> = Router<'s>;

    fn new(seed: u64) -> Script {
        let rng = &mut Rng::of_purpose(seed, &[22]);
        let options = options(rng, false);
        let choice = if rng.one_in(3) { Choice::Plain } else { Choice::Any };
        let length = 8 + rng.index(24);
        let network = Network::new(rng, options, choice, length);
        let setup = Setup {
            shards: [1, 2, 3][rng.index(3)],
            workers: 1 + rng.index(2) as u16,
            cache: [CacheMode::Dependency, CacheMode::Epoch, CacheMode::Off][rng.index(3)],
            suppress: !rng.one_in(4),
            calm: false,
        };
        let (next_hop_groups, window) = (rng.one_in(2), 1 + rng.index(super::orchagent::WINDOW));
        // Of so many actions one is a fault.
        let faults = [0, 12, 25, 60][rng.index(4)];
        let mut actions = Vec::new();
        for event in 0..network.events.len() {
            actions.push(Action::Event(event));
            while !rng.one_in(30) {
                let action = match rng.index(40) {
                    0 => Action::Pass([10, 100, 1000, 4000][rng.index(4)]),
                    _ if faults > 0 && rng.one_in(faults) => Action::Fault(fault(rng), rng.next_u64()),
                    _ => Action::Step(*rng.pick(&Stage::ALL), rng.next_u64()),
                };
                actions.push(action);
            }
            if rng.one_in(25) {
                actions.push(Action::Settle);
            }
        }
        let zmq = over_zmq(seed, faults, &mut actions);
        change_rows(seed, &mut actions);
        lose_frames(seed, faults, &mut actions);
        Script { seed, network, setup, next_hop_groups, window, zmq, actions }
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

/// Routes of one script in three go over ZeroMQ, with actions between the others. Other scripts are
/// the same with and without this function.
fn over_zmq(seed: u64, faults: usize, actions: &mut Vec<Action>) -> Option<Persistence> {
    let rng = &mut Rng::of_purpose(seed, &[27]);
    if !rng.one_in(3) {
        return None;
    }
    let keeps = [Persistence::Off, Persistence::Behind, Persistence::InLine][rng.index(3)];
    let others = std::mem::take(actions);
    for action in others {
        actions.push(action);
        if faults > 0 && rng.one_in(2 * faults) {
            let fault = match rng.index(4) {
                0 => Fault::ZmqRefuses(1 + rng.index(4) as u32),
                _ => Fault::ZmqDisconnected,
            };
            actions.push(Action::Fault(fault, rng.next_u64()));
        }
        if rng.one_in(6) {
            actions.push(Action::Step(*rng.pick(&Stage::ZMQ), rng.next_u64()));
        }
    }
    Some(keeps)
}

/// Of the restarts of syncd with another chip, two in three find other rows than it had. Other scripts
/// are the same with and without this function.
fn change_rows(seed: u64, actions: &mut [Action]) {
    let rng = &mut Rng::of_purpose(seed, &[28]);
    for action in actions {
        if let Action::Fault(Fault::SyncdRestarts(how @ SyncdStart::ChipLost), _) = action {
            *how = *rng.pick(&[SyncdStart::ChipLost, SyncdStart::RowsLost, SyncdStart::RowsOlder]);
        }
    }
}

/// Of the scripts with faults one in four loses frames. Other scripts are the same with and without this
/// function.
fn lose_frames(seed: u64, faults: usize, actions: &mut Vec<Action>) {
    let rng = &mut Rng::of_purpose(seed, &[29]);
    if faults == 0 || !rng.one_in(4) {
        return;
    }
    let others = std::mem::take(actions);
    for action in others {
        actions.push(action);
        if rng.one_in(3 * faults) {
            let fault = Fault::FramesLost(1 + rng.index(3) as u32);
            actions.push(Action::Fault(fault, rng.next_u64()));
        }
    }
}

fn fault(rng: &mut Rng) -> Fault {
    match rng.index(17) {
        0 | 1 => Fault::ChipRefuses(refusal(rng)),
        2 => Fault::AnswersTwice,
        3 => Fault::AnswersLate,
        4 => Fault::RepliesLost,
        5 => Fault::SyncdRestarts(*rng.pick(&[SyncdStart::ChipLost, SyncdStart::ChipKept])),
        6 => Fault::OrchagentKilled,
        7 => Fault::FpmsyncdKilled,
        8 => Fault::FpmDisconnected,
        9 => Fault::RedisRefuses(1 + rng.index(8) as u32),
        10 => Fault::RedisLost,
        11 => Fault::ResponsesLost,
        12 => Fault::NeighborLost(rng.index(GATEWAYS.len())),
        13 | 14 => Fault::MemberLink(rng.index(2), rng.one_in(2)),
        15 => Fault::ReportsLost,
        _ => Fault::ChipLosesRoute(rng.index(64)),
    }
}

fn refusal(rng: &mut Rng) -> Refusal {
    let objects = [
        (ObjectType::RouteEntry, Verb::Create),
        (ObjectType::RouteEntry, Verb::Create),
        (ObjectType::RouteEntry, Verb::Set),
        (ObjectType::NextHopGroup, Verb::Create),
        (ObjectType::NextHopGroupMember, Verb::Create),
        (ObjectType::NeighborEntry, Verb::Create),
        (ObjectType::NextHop, Verb::Create),
    ];
    let (object, verb) = *rng.pick(&objects);
    let status =
        if rng.one_in(2) { *rng.pick(&[Status::Failure, Status::ObjectInUse]) } else { Status::TableFull };
    Refusal { object, verb, status, count: 1 + rng.index(6) as u32 }
}
