//! fpmsyncd (`fpmsyncd/routesync.cpp` of sonic-swss): from FPM messages of a routing daemon to the
//! rows of APPL_DB.
//!
//! One machine. Messages go in; between two [`Fpmsyncd::take`]s all changes of a route coalesce,
//! and what comes out is the difference between what APPL_DB has and what it should have: groups,
//! then routes, then groups that no route names any more. A route whose next-hop object is unknown
//! keeps the row that it has until the object comes. After a reconnect, routes that no client
//! announces again are deleted once the replay is over.
//!
//! Where SONiC's fpmsyncd loses routes, this one differs; a comment at each place gives the reason.

mod compare;
mod compatibility;
mod event;
pub mod explain;
mod labels;
mod objects;
mod overlay;
mod protocols;
mod reconcile;
mod replies;
mod resend;
mod responses;
mod resync_state;
mod routes;
mod rows;
mod session;
mod source;
mod srv6;
mod stage;
mod suppression;
mod table;
#[cfg(test)]
mod tests;
mod vnets;
mod vpn_rows;
mod vrf_numbers;

use crate::row::{Change, LabelRouteRow, Name, NextHopGroupRow, RouteRow, VpnChange};
pub use compatibility::AsSonic;
pub use event::{Cause, FpmCounters, FpmEvent};
use labels::Labels;
use objects::Objects;
pub use protocols::Protocols;
pub use reconcile::{FoundRow, ProducerRow, RowCursor, RowName, TableKey, WantedRow};
pub use replies::{LabelOffload, Offload, ReplyForm};
pub use resend::{Resend, ResendKind};
pub use resync_state::ResyncState;
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_wire::fpm::Frame;
use ribtide_wire::fpm::compare::Compare;
use ribtide_wire::netlink::{Content, Message};
pub use routes::MANAGEMENT;
pub use rows::Rows;
use session::Session;
use source::{Sources, Written};
use srv6::PicContexts;
use stage::Owed;
use table::RouteTable;
use vpn_rows::VpnRows;
use vrf_numbers::VrfNumbers;

/// The longest time between two reads from a client, in milliseconds. Time beyond it counts as not
/// listened: the process was stopped, or busy.
pub const LISTENING_MS: u64 = 500;

/// A route: number of its VRF, and destination.
type RouteRef = (u32, AnyPrefix);

/// fpmsyncd's settings.
#[derive(Clone, Debug)]
pub struct FpmConfig {
    /// A route counts as offloaded when the chip confirmed it, rather than at once
    /// (`suppress-fib-pending`).
    pub suppress: bool,
    /// The replay of a session is over after so many milliseconds in which fpmsyncd listened and no
    /// missing route was announced. 0 for never.
    pub quiet_ms: u64,
    /// The replay is also over after so many milliseconds without an announcement of a route from
    /// before the session.
    pub replay_limit_ms: u64,
    /// Names of route protocols.
    pub protocols: Protocols,
    /// Where it does as SONiC's fpmsyncd does although that is a fault.
    pub as_sonic: AsSonic,
}

impl Default for FpmConfig {
    fn default() -> Self {
        FpmConfig {
            suppress: false,
            quiet_ms: 10_000,
            replay_limit_ms: 120_000,
            protocols: Protocols::default(),
            as_sonic: AsSonic::default(),
        }
    }
}

/// The outputs of [`Fpmsyncd`]: append-only; the caller carries them out and empties them. Write
/// `groups` and `vpn_rows`, then `routes`, `queries` and `labels`, then `old_groups` and `old_vpn_rows`.
#[derive(Default, Debug)]
pub struct FpmOut {
    /// Groups that routes may name from now on. Filled by [`Fpmsyncd::take`].
    pub groups: Vec<Change<NextHopGroupRow>>,
    /// Routes. Filled by [`Fpmsyncd::take`].
    pub routes: Vec<Change<RouteRow>>,
    /// Routes whose rows APPL_DB has already. They are sent to orchagent once more for its answer.
    /// Filled by [`Fpmsyncd::take`].
    pub queries: Vec<Change<RouteRow>>,
    /// Routes of labels. Filled by [`Fpmsyncd::take`].
    pub labels: Vec<Change<LabelRouteRow>>,
    /// Groups that are gone. Filled by [`Fpmsyncd::take`].
    pub old_groups: Vec<Change<NextHopGroupRow>>,
    /// Rows of the tables of VPNs, which routes may name from now on. Filled by [`Fpmsyncd::take`].
    pub vpn_rows: Vec<VpnChange>,
    /// Rows of these tables that are gone. Filled by [`Fpmsyncd::take`].
    pub old_vpn_rows: Vec<VpnChange>,
    /// To the routing daemon.
    pub offloads: Vec<Offload>,
    /// To the routing daemon, about labels.
    pub label_offloads: Vec<LabelOffload>,
    /// Frames of replies that repeat what was announced ([`ReplyForm::Announced`]).
    pub replies: Vec<u8>,
    /// To the routing daemon, if it is ribtide's: whether it is notified of routes when the chip
    /// has them, or at once.
    pub in_chip: Option<bool>,
    /// Frames to the routing daemon, if it is ribtide's: the offer to compare this machine's table with
    /// what it sent, and the replies to its queries.
    pub comparison: Vec<u8>,
    /// To the log.
    pub events: Vec<FpmEvent>,
}

impl FpmOut {
    /// Shrinks every buffer to its contents.
    pub fn shrink_to_fit(&mut self) {
        self.groups.shrink_to_fit();
        self.routes.shrink_to_fit();
        self.queries.shrink_to_fit();
        self.labels.shrink_to_fit();
        self.old_groups.shrink_to_fit();
        self.vpn_rows.shrink_to_fit();
        self.old_vpn_rows.shrink_to_fit();
        self.offloads.shrink_to_fit();
        self.label_offloads.shrink_to_fit();
        self.replies.shrink_to_fit();
        self.comparison.shrink_to_fit();
        self.events.shrink_to_fit();
    }
}

/// One VRF's routes.
struct Vrf {
    name: Option<Name>,
    /// It is a VNET.
    is_vnet: bool,
    /// The number that the routing daemon used for it last.
    table: u32,
    routes: RouteTable,
}

/// An interface.
struct Link {
    name: Name,
    /// It exists. One that does not is remembered, so that routes of its table can still be
    /// withdrawn.
    present: bool,
}

/// A route whose change is not taken yet.
struct Changed {
    at: RouteRef,
    /// What APPL_DB has of it.
    written: Option<Written>,
}

/// fpmsyncd.
pub struct Fpmsyncd {
    config: FpmConfig,
    links: Map<u32, Link>,
    vrfs: Vec<Vrf>,
    vrf_ids: Map<Name, u32>,
    numbers: VrfNumbers,
    sources: Sources,
    objects: Objects,
    labels: Labels,
    pic_contexts: PicContexts,
    vpn_rows: VpnRows,
    changed: Vec<Changed>,
    owed: Owed,
    /// How many routes wait for an answer.
    awaiting: usize,
    session: Session,
    counters: FpmCounters,
    /// Reasons that were given in this session: each is given once.
    logged: Set<Cause>,
    /// Rows that a comparison of APPL_DB suspects, and that were not handed over since.
    watched: Set<TableKey>,
    now_ms: u64,
}

impl Fpmsyncd {
    /// A machine that knows nothing.
    pub fn new(config: FpmConfig) -> Self {
        let default = Vrf { name: None, is_vnet: false, table: 0, routes: RouteTable::default() };
        Fpmsyncd {
            config,
            links: Map::default(),
            vrfs: vec![default],
            vrf_ids: Map::default(),
            numbers: VrfNumbers::default(),
            sources: Sources::default(),
            objects: Objects::default(),
            labels: Labels::default(),
            pic_contexts: PicContexts::default(),
            vpn_rows: VpnRows::default(),
            changed: Vec::new(),
            owed: Owed::default(),
            awaiting: 0,
            session: Session::default(),
            counters: FpmCounters::default(),
            logged: Set::default(),
            watched: Set::default(),
            now_ms: 0,
        }
    }

    /// Shrinks every table of routes to its contents. O(capacity): call it only when the stage is
    /// idle.
    pub fn shrink_to_fit(&mut self) {
        self.vrfs.iter_mut().for_each(|vrf| vrf.routes.shrink_to_fit());
        self.changed.shrink_to_fit();
    }

    /// Takes in that the interface of this index exists under this name. Rows that name it follow,
    /// and the routes of its table that came before the name.
    pub fn link(&mut self, ifindex: u32, name: &str, out: &mut FpmOut) {
        let same = self.links.get(&ifindex).is_some_and(|link| link.present && &*link.name == name);
        if !same && !name.is_empty() {
            self.links.insert(ifindex, Link { name: name.into(), present: true });
            self.link_changed(ifindex);
            self.release(ifindex, out);
        }
    }

    /// Takes in that the interface of this index is gone. Rows that name it stay until they are
    /// announced again.
    pub fn link_gone(&mut self, ifindex: u32) {
        if let Some(link) = self.links.get_mut(&ifindex) {
            link.present = false;
        }
    }

    /// Takes in a frame with all its messages.
    pub fn frame(&mut self, frame: &Frame<'_>, out: &mut FpmOut) {
        for message in frame.raw() {
            match message.and_then(|message| Ok((Content::decode(&message)?, message))) {
                Ok((content, message)) => self.received(&content, Some(&message), out),
                Err(e) => {
                    self.counters.malformed += 1;
                    out.events.push(FpmEvent::Malformed(e.to_string()));
                }
            }
        }
    }

    /// Takes in one message of a caller in the same process.
    pub fn message(&mut self, content: &Content<'_>, out: &mut FpmOut) {
        self.received(content, None, out);
    }

    /// Takes in one message, and its bytes if it came over FPM.
    fn received(&mut self, content: &Content<'_>, message: Option<&Message<'_>>, out: &mut FpmOut) {
        match content {
            Content::NewRoute(route) => self.new_route(route, message, out),
            Content::DelRoute(route) => self.del_route(route, out),
            Content::NewLabelRoute(route) => self.new_label(route, message, out),
            Content::DelLabelRoute(route) => self.del_label(route, out),
            Content::NewNextHop(object) => self.new_object(object, out),
            Content::DelNextHop(id) => self.del_object(*id),
            Content::NewVpnRoute(route) => self.new_route(route, message, out),
            Content::DelVpnRoute(route) => self.del_route(route, out),
            Content::NewLocalSid(sid) => self.new_local_sid(sid, out),
            Content::DelLocalSid(sid) => self.del_local_sid(sid),
            Content::NewPicContext(context) => self.new_pic_context(context, out),
            Content::DelPicContext(id) => self.del_pic_context(*id),
            Content::Multipart { ack } => self.set_client(*ack, out),
            Content::Done(_) => self.end_of_replay(out),
            _ => match message.map(Compare::decode) {
                Some(Ok(Some(Compare::Query(seq, query)))) => self.compare_query(seq, &query, out),
                _ => self.counters.ignored += 1,
            },
        }
    }

    /// Takes in the time, in milliseconds from any start; call it before the messages that came by
    /// then. `listened`: since the latest call the caller read from the client, at least every
    /// [`LISTENING_MS`].
    pub fn tick(&mut self, now_ms: u64, listened: bool) {
        let passed = now_ms.saturating_sub(self.now_ms);
        let heard = if listened { passed.min(LISTENING_MS) } else { 0 };
        self.session.miss(passed - heard);
        self.now_ms = now_ms;
        self.owed.tick(now_ms);
    }

    /// Ends a replay that has been silent for long enough. The caller must have passed all messages
    /// that came by the time of the latest [`Fpmsyncd::tick`]. `waits`: some are not passed yet.
    pub fn look(&mut self, waits: bool, out: &mut FpmOut) {
        if self.replay_over(waits) {
            self.end_of_replay(out);
        }
    }

    /// How many rows [`Fpmsyncd::take`] would look at.
    pub fn pending(&self) -> usize {
        self.changed.len()
            + self.objects.changed_len()
            + self.labels.changed_len()
            + self.vpn_rows.changed_len()
            + self.sources.changed_segments()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> FpmCounters {
        self.counters
    }

    /// How many routes there are, of labels too, and those included that wait for a next-hop
    /// object.
    pub fn len(&self) -> usize {
        self.vrfs.iter().map(|vrf| vrf.routes.len()).sum::<usize>() + self.labels.len()
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the tables of routes take: at most 38 per IPv4 route and 50 per IPv6 route, when
    /// they just grew; and a piece of each family beyond that.
    pub fn table_size(&self) -> usize {
        self.vrfs.iter().map(|vrf| vrf.routes.allocation_size()).sum()
    }

    /// How many routes were handed over, as they are now, without an answer of orchagent to each of
    /// their rows. Only with FIB suppression. One of which a row was refused is among them until it
    /// goes, or answers are counted again.
    pub fn awaiting(&self) -> usize {
        self.awaiting
    }

    /// How many routes wait for a next-hop object, or for the name of their VRF's interface.
    pub fn waiting(&self) -> usize {
        self.sources.waiting_len() + self.numbers.held_len()
    }
}
