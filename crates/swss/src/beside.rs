//! Mode `beside`: SONiC's orchagent behind ribtide's, which is the only client of syncd.
//!
//! SONiC's orchagent, the *client* here, is connected to ribtide as if ribtide were syncd. Its
//! requests, the replies, and notifications pass as opaque text. From these messages ribtide's
//! orchagent ([`crate::orch::Orch`]) learns interfaces, neighbours, VRFs, own addresses and link
//! states, as rows; it programs routes and groups by them, as alone. [ADR
//! 48](../../../docs/adr/0048-sonics-orchagent-behind-ribtides.md) lists every request that does
//! not simply pass.
//!
//! | part | owns |
//! | --- | --- |
//! | [`Beside`] | the order of requests to syncd: those of ribtide's program, the client's, orchagent's |
//! | `message` | the text of messages |
//! | `learned` | state learned from messages, in the object ids of one view |
//! | `client` | requests of the client that do not simply pass |
//! | `requests` | requests of ribtide's orchagent: those that are only stand-ins, and the others |
//! | `own` | stand-ins, and what ribtide has put into the chip |
//! | `leftovers` | what an earlier run of ribtide left in the chip, until rows ask for it or it goes |
//! | `view` | INIT_VIEW and APPLY_VIEW: ribtide's routes are put into the client's view |
//! | `rows` | rows for ribtide's orchagent |

mod client;
mod learned;
mod leftovers;
mod message;
mod own;
mod requests;
mod rows;
mod view;

use crate::row::{Change, IntfRow, Name, NeighRow, PortRow, VrfRow};
use crate::sai::text::Message;
use crate::sai::{ObjectType, Oid, SaiCall, SaiReply, SaiRequest, Status, Verb, VidSource};
use client::Client;
use learned::Learned;
use leftovers::Leftovers;
pub use message::from_zmq;
use own::Own;
use requests::SentOwn;
use ribtide_prefix::{AnyPrefix, Map, Set};
use rows::Announced;
use std::collections::VecDeque;
use std::ops::Range;
use view::Effect;

/// The objects of one of ribtide's bulks in its program at most: a request of the client waits for
/// one bulk.
const BULK_MAX: usize = 1000;

/// A row for ribtide's orchagent, made of messages between SONiC's and syncd.
#[derive(Clone, Debug)]
pub enum LearnedRow {
    /// A port, LAG, VLAN or sub-interface, and the state of its link.
    Port(Change<PortRow>),
    /// A VRF.
    Vrf(Change<VrfRow>),
    /// A router interface, or an own address.
    Interface(Change<IntfRow>),
    /// A neighbour with its next hop.
    Neighbor(Change<NeighRow>),
}

/// An event for the log. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BesideEvent {
    /// The client began a view, or applied it: the routes and labels of ribtide in it, and those
    /// that wait for an interface or next hop of the view.
    View {
        /// Entries that were put into the view.
        entries: usize,
        /// Entries that wait until their next hop is there again.
        suspended: usize,
    },
    /// The client's removal of an object is refused with SAI_STATUS_OBJECT_IN_USE, since routes
    /// use the object. The client tries again.
    InUse(String),
    /// syncd refused a request with which ribtide made room for the client, or put its routes in
    /// again: the request, and the status.
    Failed(String, Status),
    /// A notification of link states cannot be read, for this reason: the states may be old.
    UnreadableLinks(String),
    /// The counter of object ids gave none: nothing can go on.
    Fatal(String),
}

impl std::fmt::Display for BesideEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BesideEvent::View { entries, suspended } => {
                write!(
                    f,
                    "SONiC's orchagent describes the switch again: {entries} routes and labels of ribtide are in its view"
                )?;
                match suspended {
                    0 => Ok(()),
                    _ => write!(f, ", and {suspended} wait until their next hops are there again"),
                }
            }
            BesideEvent::InUse(what) => {
                write!(f, "SONiC's orchagent may not remove {what} while routes use it; it tries again")
            }
            BesideEvent::Failed(what, status) => write!(f, "syncd refused {what}: {}", status.name()),
            BesideEvent::UnreadableLinks(why) => {
                write!(f, "a notification of link states by syncd cannot be read, so they may be old: {why}")
            }
            BesideEvent::Fatal(what) => f.write_str(what),
        }
    }
}

/// A part of the client's view in progress. A run that ends in the middle of a view leaves them to the
/// next one, since syncd reads no view out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ViewRecord {
    /// The client begins a view: what was recorded before is void.
    Begun {
        /// The default virtual router.
        default_router: Oid,
        /// The CPU port.
        cpu_port: Oid,
    },
    /// A request of the client in the view, and the reply of syncd.
    Passed(Message, Message),
    /// There is no view in progress any more.
    Ended,
}

/// The outputs of [`Beside`]: append-only; the caller carries them out and empties them.
#[derive(Default, Debug)]
pub struct BesideOut {
    /// To a record that outlives the process, before any request and any reply to the client.
    pub view: Vec<ViewRecord>,
    /// To syncd, in order.
    pub requests: Vec<Message>,
    /// To the client, each with the number of its request.
    pub to_client: Vec<(u64, Message)>,
    /// To ribtide's orchagent.
    pub replies: Vec<SaiReply>,
    /// To ribtide's orchagent.
    pub rows: Vec<LearnedRow>,
    /// To the log.
    pub events: Vec<BesideEvent>,
}

/// A request at syncd.
#[derive(Debug)]
enum Sent {
    /// One of the client.
    Client,
    /// One of ribtide's orchagent.
    Own(SentOwn),
    /// One of the program.
    Program(Effect),
}

/// A request of ribtide that goes before all others.
#[derive(Debug)]
struct Step {
    message: Message,
    effect: Effect,
}

/// The requests of both orchagents on their way to one syncd.
///
/// Pass input to the method of its source, and then call [`Beside::run`], which returns when
/// nothing can go on without further input.
pub struct Beside {
    vids: Box<dyn VidSource>,
    learned: Learned,
    /// What the view in progress contains.
    view: Option<Learned>,
    /// Whether the client has applied a view: until then ribtide's orchagent waits.
    described: bool,
    own: Own,
    announced: Announced,
    /// Routes and labels that SONiC's RouteOrch programs: their rows were sent to it.
    routeorch_routes: Set<(Option<Name>, AnyPrefix)>,
    routeorch_labels: Set<u32>,
    /// Requests of ribtide's orchagent that wait.
    requests: VecDeque<SaiRequest>,
    /// Whether ribtide's orchagent has ended its own start.
    started: bool,
    /// Requests of the client that wait, each with its number.
    waiting: VecDeque<(u64, Message)>,
    client: Option<Client>,
    program: VecDeque<Step>,
    sent: VecDeque<Sent>,
    /// Removals that were refused: the stand-in, and when the client last tried.
    refused: Map<Oid, u64>,
    leftovers: Leftovers,
    /// The same in the object ids of the view that the client is about to apply.
    leftovers_in_view: Leftovers,
    /// When the client applied a view that lacks objects which ribtide carried over.
    carried_since: Option<u64>,
    /// Whether objects got names that rows do not have yet.
    renamed: bool,
    now_ms: u64,
    /// The highest object id that ribtide's orchagent created: it takes them in blocks, and uses them up.
    highest_id: u64,
    /// Requests of ribtide's orchagent at syncd at most.
    window: usize,
}

/// The ids of objects that a request creates.
fn created_ids(request: &SaiRequest) -> impl Iterator<Item = Oid> + '_ {
    let items = match &request.call {
        SaiCall::One { verb: Verb::Create, item, .. } => std::slice::from_ref(item),
        SaiCall::Bulk { verb: Verb::Create, items, .. } => items.as_slice(),
        _ => &[],
    };
    items.iter().filter_map(|item| item.id.oid())
}

impl Beside {
    /// A machine that knows nothing. `vids` is the counter of ASIC_DB. At most `window` requests of
    /// ribtide's orchagent are at syncd at a time.
    pub fn new(vids: Box<dyn VidSource>, window: usize) -> Beside {
        Beside {
            vids,
            learned: Learned::default(),
            view: None,
            described: false,
            own: Own::default(),
            announced: Announced::default(),
            routeorch_routes: Set::default(),
            routeorch_labels: Set::default(),
            requests: VecDeque::new(),
            started: false,
            waiting: VecDeque::new(),
            client: None,
            program: VecDeque::new(),
            sent: VecDeque::new(),
            refused: Map::default(),
            leftovers: Leftovers::default(),
            leftovers_in_view: Leftovers::default(),
            carried_since: None,
            renamed: false,
            now_ms: 0,
            highest_id: 0,
            window: window.max(1),
        }
    }

    /// Takes in a request of the client. The reply has the same number.
    pub fn client(&mut self, number: u64, message: Message) {
        self.waiting.push_back((number, message));
    }

    /// Takes in a request of ribtide's orchagent.
    pub fn request(&mut self, request: SaiRequest) {
        self.requests.push_back(request);
    }

    /// Takes in the reply to the oldest request at syncd. Returns whether there was one.
    pub fn reply(&mut self, reply: Message, out: &mut BesideOut) -> bool {
        match self.sent.pop_front() {
            None => return false,
            Some(Sent::Client) => self.client_reply(reply, out),
            Some(Sent::Own(sent)) => self.own_reply(sent, &reply, out),
            Some(Sent::Program(effect)) => self.program_reply(effect, &reply, out),
        }
        true
    }

    /// Takes in a notification of syncd: only link states concern routes. The text is that of the
    /// channel, or of the ZeroMQ message.
    pub fn notification(&mut self, text: &str, out: &mut BesideOut) {
        self.link_states(text, out);
    }

    /// Records whether SONiC's RouteOrch programs a destination (`by_routeorch`). Call it before the
    /// row is sent to RouteOrch.
    pub fn set_routeorch_route(&mut self, vrf: Option<Name>, prefix: AnyPrefix, by_routeorch: bool) {
        match by_routeorch {
            true => drop(self.routeorch_routes.insert((vrf, prefix))),
            false => drop(self.routeorch_routes.remove(&(vrf, prefix))),
        }
    }

    /// The same for a label.
    pub fn set_routeorch_label(&mut self, label: u32, by_routeorch: bool) {
        match by_routeorch {
            true => drop(self.routeorch_labels.insert(label)),
            false => drop(self.routeorch_labels.remove(&label)),
        }
    }

    /// Whether names are missing: [`Beside::name`] and [`Beside::name_router`] supply them.
    pub fn needs_names(&self) -> bool {
        let learned = self.view.as_ref().unwrap_or(&self.learned);
        learned.has_unnamed() || !learned.interfaces_of_unnamed_routers().is_empty()
    }

    /// Router interfaces whose VRF is not known: INTF_TABLE has it, and a call of
    /// [`Beside::name_router`] tells it.
    pub fn interfaces_without_vrf(&self) -> Vec<Name> {
        self.view.as_ref().unwrap_or(&self.learned).interfaces_of_unnamed_routers()
    }

    /// Takes in the name of an object: a LAG (COUNTERS_LAG_NAME_MAP) or a router interface
    /// (COUNTERS_RIF_NAME_MAP). Rows follow with the next call of [`Beside::run`], or of
    /// [`Beside::found_all`].
    pub fn name(&mut self, oid: Oid, name: &str) {
        let learned = self.view.as_mut().unwrap_or(&mut self.learned);
        self.renamed |= learned.name(oid, name) && self.view.is_none();
    }

    /// Takes in the VRF of a router interface, as [`Beside::name`].
    pub fn name_router(&mut self, interface: &str, vrf: &str) {
        let learned = self.view.as_mut().unwrap_or(&mut self.learned);
        let Some(oid) = learned.interface(interface) else { return };
        let Some(router) = learned.interfaces.get(&oid).map(|interface| interface.virtual_router) else {
            return;
        };
        self.renamed |= learned.name_router(router, vrf) && self.view.is_none();
    }

    /// Takes in the records of a view that was in progress when the last run ended ([`BesideOut::view`]).
    /// Call it after [`Beside::found_all`].
    pub fn found_view(&mut self, records: impl IntoIterator<Item = ViewRecord>) {
        for record in records {
            match record {
                ViewRecord::Begun { .. } => self.view = Some(self.learned.next_view()),
                ViewRecord::Passed(request, reply) => {
                    if let Some(view) = &mut self.view {
                        view.learn(&request, &reply, &mut Vec::new());
                    }
                }
                ViewRecord::Ended => self.view = None,
            }
        }
    }

    /// Takes in the time, in milliseconds from any start.
    pub fn tick(&mut self, now_ms: u64, out: &mut BesideOut) {
        self.now_ms = now_ms;
        self.look_at_refusals(out);
        self.look_at_carried(out);
        self.look_at_leftovers(out);
    }

    /// Which of these ranges of object ids no object of ribtide has, nor will have: a record of the ids
    /// that ribtide took needs them no longer. O(objects of ribtide · log).
    pub fn unused_ids(&self, ranges: &[Range<u64>]) -> Vec<bool> {
        let own = &self.own;
        let made = own.groups.keys().chain(own.members.keys()).chain(own.labelled.keys());
        let made = made.filter_map(|oid| own.translate(*oid));
        let left = self.leftovers.objects().chain(self.leftovers_in_view.objects());
        let carried = [Some(&self.learned), self.view.as_ref()].into_iter().flatten().flat_map(|learned| {
            let interfaces = learned.interfaces.iter().filter(|(_, interface)| interface.carried);
            let hops = learned.next_hops.iter().filter(|(_, hop)| hop.carried);
            interfaces.map(|(oid, _)| *oid).chain(hops.map(|(oid, _)| *oid))
        });
        let waiting = self.requests.iter().flat_map(created_ids);
        let mut used: Vec<u64> = made.chain(left).chain(carried).chain(waiting).map(Oid::index).collect();
        used.push(self.highest_id);
        used.sort_unstable();
        let is_unused = |range: &Range<u64>| {
            let at = used.partition_point(|index| *index < range.start);
            used.get(at).is_none_or(|index| *index >= range.end)
        };
        ranges.iter().map(is_unused).collect()
    }

    /// Whether the machine needs the time soon: a removal waits, or what was carried over.
    pub fn waits(&self) -> bool {
        self.client.as_ref().is_some_and(Client::waits_for_release)
            || !self.refused.is_empty()
            || self.carried_since.is_some()
            || self.leftovers.wait()
    }

    /// The names of LAGs with a router interface: their link states are in LAG_TABLE.
    pub fn lags(&self) -> Vec<Name> {
        self.learned.lags().collect()
    }

    /// The names of ports below router interfaces whose link state no notification had: PORT_TABLE
    /// has it, once SONiC's orchagent has looked.
    pub fn ports_without_link(&self) -> Vec<Name> {
        self.learned
            .ports()
            .filter(|(oid, name)| !self.announced.has_link(*oid, name))
            .map(|(_, name)| name)
            .collect()
    }

    /// Whether there are LAGs.
    pub fn has_lags(&self) -> bool {
        self.learned.lags().next().is_some()
    }

    /// Sends what can be sent: the program, then the client's request, then one of ribtide's
    /// orchagent, whose bulks are bounded by its own setting.
    pub fn run(&mut self, out: &mut BesideOut) {
        if self.renamed && self.view.is_none() {
            self.announce_all(out);
        }
        loop {
            // The program depends on replies to earlier requests of it only by their order.
            if self.sent.len() < self.window
                && let Some(Step { message, effect }) = self.program.pop_front()
            {
                self.sent.push_back(Sent::Program(effect));
                out.requests.push(message);
                continue;
            }
            if !self.program.is_empty() {
                return;
            }
            if self.sent.is_empty() && self.advance_client(out) {
                continue;
            }
            let waits = self.client.as_ref().is_some_and(|client| !client.waits_for_release());
            if waits || (self.client.is_none() && !self.waiting.is_empty()) {
                // "Its requests go first": nothing of ribtide is sent before one that waits.
                return;
            }
            if self.sent.len() >= self.window || !self.may_program() {
                return;
            }
            let Some(request) = self.requests.pop_front() else { return };
            self.own_request(request, out);
        }
    }

    /// Whether ribtide's orchagent may program: the client has described the switch, and describes
    /// nothing now.
    fn may_program(&self) -> bool {
        self.described && self.view.is_none()
    }

    /// New object ids of this type; none when the counter gives none, which ends the process.
    fn new_oids(&mut self, object: ObjectType, count: usize, out: &mut BesideOut) -> Vec<Oid> {
        if count == 0 {
            return Vec::new();
        }
        match self.vids.take(count as u64) {
            Ok(range) => range.map(|index| Oid::vid(object, index)).collect(),
            Err(why) => {
                out.events.push(BesideEvent::Fatal(why));
                vec![Oid::NULL; count]
            }
        }
    }
}
