//! The routes sent to an FPM server, and the replies that are about the last message of a route.
//!
//! A reply names a prefix, a table and a protocol, and from SONiC's server no next hops. So replies
//! about a route and about its replacement look the same. Only the order distinguishes them. A
//! server handles the messages of a prefix in order, and replies at most once for each. It may
//! leave out replies, because it coalesced two changes, or because it does not reply to failures.
//! So the k-th reply is about the k-th message *or a later one*. If n messages with other content
//! may still have replies, the next n replies prove nothing, and the one after them proves that the
//! last message is in place. That is never too early. It may never come if the server coalesced
//! changes; then the route is sent again ([`super::replies`]), which brings one more reply.
//!
//! A refusal does not count as a reply: the server may program the route later without another
//! message, and reply then.
//!
//! Replies come from behind the server, so they and these counts outlive a connection. The counts
//! expire after [`FORGOTTEN`], because a missing reply never comes.
//!
//! A server may write a row of its own accord, when Redis was lost or a next-hop object changed.
//! Then one more reply is under way, about an old row. ribtide's fpmsyncd does not forward such
//! replies (`ribtide_swss::fpmsyncd`). With SONiC's, such a reply after a change of the route
//! passes for that of the new row, and is early by the time that the chip still takes.
//!
//! Rejected alternative: hold back a change until the reply to the one before. A missing reply
//! would keep a prefix on a failed next hop.

use super::super::announcer::{destination, protocol_number, variant};
use ribtide_prefix::{
    AnyPrefix, Families, Family, Map, Prefix, for_each_family, per_family, shrink_if_sparse, shrink_to_fit,
};
use ribtide_rib::{FibRoute, GroupId, IfIndex, Protocol, Vrf, VrfId, VrfPrefix};
use ribtide_wire::netlink::Route;
use ribtide_wire::netlink::numbers::RT_TABLE_MAIN;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A reply later than this after the last message of the prefix is not expected.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(600);

/// Messages of a prefix that may have replies. Counts saturate.
#[derive(Clone, Copy, Default)]
struct Unanswered {
    /// Messages with other content than the last one.
    superseded: u16,
    /// Messages with the content of the last one.
    current: u16,
    /// Time of the last message, in seconds of [`Books`].
    at: u32,
}

impl Unanswered {
    /// Notes a message, `again` or for the first time.
    fn note_sent(&mut self, again: bool, now: u32) {
        self.age(now);
        if !again {
            self.supersede();
        }
        self.current = self.current.saturating_add(1);
        self.at = now;
    }

    /// The last message is obsolete.
    fn supersede(&mut self) {
        self.superseded = self.superseded.saturating_add(self.current);
        self.current = 0;
    }

    fn age(&mut self, now: u32) {
        if self.is_old(now) {
            *self = Unanswered::default();
        }
    }

    fn is_old(&self, now: u32) -> bool {
        u64::from(now.saturating_sub(self.at)) >= FORGOTTEN.as_secs()
    }

    /// Notes a reply. Returns whether it must be about the last message.
    fn reply(&mut self) -> bool {
        if self.superseded > 0 {
            self.superseded -= 1;
            return false;
        }
        self.current = self.current.saturating_sub(1);
        true
    }

    fn is_nothing(&self) -> bool {
        self.superseded == 0 && self.current == 0
    }
}

/// A route that the server has.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) group: GroupId,
    pub(super) protocol: Protocol,
    /// Whether the last replay contained it.
    named: bool,
    /// Whether the present state was sent. Not if it does not fit into a message.
    said: bool,
    /// The [`destination`] of the last message.
    destination: u32,
    /// Its [`variant`], and that of the group that it names.
    variant: u32,
    unanswered: Unanswered,
    /// The last round of the comparison that saw it at the server, or that began before it was sent.
    round: u8,
}

per_family!(struct Sents<F> = Map<Prefix<F>, Sent>);

/// The routes of a VRF that the server has.
#[derive(Default)]
struct InVrf {
    /// The device index of the VRF.
    device: IfIndex,
    routes: Families<Sents>,
}

struct Books {
    vrfs: BTreeMap<VrfId, InVrf>,
    /// Deleted routes that may have replies, by the device of the VRF, which is all that a reply
    /// has.
    gone: Map<(IfIndex, AnyPrefix), Unanswered>,
    /// At this size, expired entries of `gone` are removed.
    crowd: usize,
    started: Instant,
    /// Seconds since then.
    now: u32,
    /// The round of the comparison.
    round: u8,
    /// Routes that it has not seen.
    unseen: usize,
}

/// What a comparison needs of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// The server should not have it.
    Nothing,
    /// It is not known what the server has: the present state could not be sent.
    Anything,
    /// It should have a route of this device, group and protocol.
    Route(IfIndex, GroupId, Protocol),
}

/// The meaning of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// It is about the last message of this route.
    Now(VrfPrefix),
    /// It may be about an earlier message of this route; the last one may have a reply later, or
    /// not.
    Unsure(VrfPrefix),
    /// It has no meaning: the route was replaced, deleted or never sent.
    Nothing,
}

/// The minimum size for a removal of expired entries.
const CROWD: usize = 1024;

/// The sent routes, shared by the writer, which sends, and the reader, which gets replies. Neither
/// holds the lock while it waits for the server.
#[derive(Clone)]
pub(super) struct SentState(Arc<Mutex<Books>>);

impl SentState {
    pub(super) fn new(now: Instant) -> SentState {
        SentState(Arc::new(Mutex::new(Books {
            vrfs: BTreeMap::new(),
            gone: Map::default(),
            crowd: CROWD,
            started: now,
            now: 0,
            round: 0,
            unseen: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time.
    pub(super) fn tick(&self, now: Instant) {
        let mut books = self.lock();
        let seconds = now.saturating_duration_since(books.started).as_secs();
        books.now = u32::try_from(seconds).unwrap_or(u32::MAX);
    }

    /// Shrinks every table to its contents. O(capacity); callers wait for the lock.
    pub(super) fn shrink_to_fit(&self) {
        let mut books = self.lock();
        for InVrf { routes, .. } in books.vrfs.values_mut() {
            for_each_family!(F => shrink_to_fit(routes.get_mut::<F>()));
        }
        shrink_to_fit(&mut books.gone);
    }

    /// Starts a replay.
    pub(super) fn begin_again(&self) {
        for InVrf { routes, .. } in self.lock().vrfs.values_mut() {
            for_each_family!(F => routes.get_mut::<F>().values_mut().for_each(|sent| sent.named = false));
        }
    }

    /// Notes a route before it is sent. `of_group`: [`Announcer::variant`] of its group. A reply to a
    /// message that was sent before its group changed proves nothing.
    ///
    /// [`Announcer::variant`]: super::super::announcer::Announcer::variant
    pub(super) fn note_sent<F: Family>(
        &self,
        vrf: Vrf,
        route: &FibRoute<F>,
        group: GroupId,
        message: &Route<'_>,
        of_group: u32,
    ) {
        let mut books = self.lock();
        let (now, round) = (books.now, books.round);
        let gone = match books.gone.is_empty() {
            true => None,
            false => books.gone.remove(&(vrf.device, route.prefix.any())),
        };
        let in_vrf = books.vrfs.entry(vrf.id).or_default();
        in_vrf.device = vrf.device;
        let sent = Sent {
            group,
            protocol: route.protocol,
            named: true,
            said: true,
            destination: destination(&message.next_hops),
            variant: variant(message).wrapping_add(of_group),
            unanswered: gone.unwrap_or_default(),
            round,
        };
        let slot = in_vrf.routes.get_mut::<F>().entry(route.prefix).or_insert(Sent { said: false, ..sent });
        let again = slot.said && slot.is_equal(&sent);
        let (mut unanswered, round) = (slot.unanswered, slot.round);
        unanswered.note_sent(again, now);
        *slot = Sent { unanswered, round, ..sent };
    }

    /// Notes that a route could not be sent. The server has its former state.
    pub(super) fn cannot_say<F: Family>(&self, vrf: Vrf, prefix: Prefix<F>, group: GroupId) {
        let mut books = self.lock();
        let routes = books.vrfs.get_mut(&vrf.id).map(|vrf| vrf.routes.get_mut::<F>());
        if let Some(sent) = routes.and_then(|routes| routes.get_mut(&prefix)) {
            sent.unanswered.supersede();
            (sent.group, sent.said, sent.named) = (group, false, true);
        }
    }

    /// Notes a deletion. Returns the former route, if the server has it.
    pub(super) fn delete<F: Family>(&self, vrf: VrfId, prefix: Prefix<F>) -> Option<Sent> {
        let mut books = self.lock();
        let InVrf { device, routes } = books.vrfs.get_mut(&vrf)?;
        let of_family = routes.get_mut::<F>();
        let (device, sent) = (*device, of_family.remove(&prefix)?);
        shrink_if_sparse(of_family);
        if routes.v4.is_empty() && routes.v6.is_empty() {
            // Another VRF may get its device index.
            books.vrfs.remove(&vrf);
        }
        if sent.round != books.round {
            books.unseen = books.unseen.saturating_sub(1);
        }
        let mut unanswered = sent.unanswered;
        // A deletion has no reply.
        unanswered.supersede();
        if !unanswered.is_nothing() {
            if books.gone.len() >= books.crowd {
                let now = books.now;
                books.gone.retain(|_, unanswered| !unanswered.is_old(now));
                shrink_if_sparse(&mut books.gone);
                books.crowd = CROWD.max(2 * books.gone.len());
            }
            books.gone.insert((device, prefix.any()), unanswered);
        }
        Some(sent)
    }

    /// The routes that `wanted` accepts and that were sent since the last
    /// [`SentState::begin_again`], or, with `named` false, were not.
    pub(super) fn routes<F: Family>(
        &self,
        named: bool,
        wanted: impl Fn(&Sent) -> bool,
    ) -> Vec<(Vrf, Prefix<F>, Sent)> {
        let mut found = Vec::new();
        for (id, InVrf { device, routes }) in &self.lock().vrfs {
            let vrf = Vrf { id: *id, table: 0, device: *device };
            let of_vrf = routes.get::<F>().iter().filter(|(_, sent)| sent.named == named && wanted(sent));
            found.extend(of_vrf.map(|(prefix, sent)| (vrf, *prefix, *sent)));
        }
        found
    }

    /// A route of this replay that could have a reply.
    pub(super) fn open<F: Family>(&self, vrf: VrfId, prefix: Prefix<F>) -> Option<(Vrf, Sent)> {
        let books = self.lock();
        let InVrf { device, routes } = books.vrfs.get(&vrf)?;
        let sent = routes.get::<F>().get(&prefix).filter(|sent| sent.named && sent.said)?;
        Some((Vrf { id: vrf, table: 0, device: *device }, *sent))
    }

    /// Starts a round of the comparison, which has seen no route.
    pub(super) fn begin_round(&self) {
        let mut books = self.lock();
        books.round = books.round.wrapping_add(1);
        books.unseen = books.vrfs.values().map(|of| of.routes.v4.len() + of.routes.v6.len()).sum();
    }

    /// What the server should have of each of these routes (device and prefix). `see`: the round has
    /// seen them at the server.
    pub(super) fn wanted(
        &self,
        routes: impl Iterator<Item = (IfIndex, AnyPrefix)>,
        see: bool,
    ) -> Vec<Wanted> {
        let mut books = self.lock();
        let Books { vrfs, round, unseen, .. } = &mut *books;
        // Routes of one VRF are together.
        let mut last: Option<(IfIndex, VrfId)> = None;
        routes
            .map(|(device, prefix)| {
                if last.is_none_or(|(of, _)| of != device) {
                    let mut of_device = vrfs.iter().filter(|(_, vrf)| vrf.device == device);
                    last = of_device.next().map(|(id, _)| (device, *id));
                }
                let of_vrf = last.and_then(|(_, vrf)| vrfs.get_mut(&vrf));
                let sent = of_vrf.and_then(|InVrf { routes, .. }| match prefix {
                    AnyPrefix::V4(prefix) => routes.v4.get_mut(&prefix),
                    AnyPrefix::V6(prefix) => routes.v6.get_mut(&prefix),
                });
                let Some(sent) = sent else { return Wanted::Nothing };
                if see && std::mem::replace(&mut sent.round, *round) != *round {
                    *unseen = unseen.saturating_sub(1);
                }
                match sent.said {
                    true => Wanted::Route(device, sent.group, sent.protocol),
                    false => Wanted::Anything,
                }
            })
            .collect()
    }

    /// The routes that the round has not seen. O(routes), unless there is none.
    pub(super) fn unseen(&self) -> Vec<(IfIndex, AnyPrefix)> {
        let books = self.lock();
        let mut found = Vec::new();
        if books.unseen > 0 {
            for InVrf { device, routes } in books.vrfs.values() {
                for_each_family!(F => {
                    let unseen = routes.get::<F>().iter().filter(|(_, sent)| sent.round != books.round);
                    found.extend(unseen.map(|(prefix, _)| (*device, prefix.any())));
                });
            }
        }
        found
    }

    /// The VRF of a device that has routes.
    pub(super) fn vrf(&self, device: IfIndex) -> Option<VrfId> {
        let books = self.lock();
        let mut of_device = books.vrfs.iter().filter(|(_, vrf)| vrf.device == device);
        of_device.next().map(|(id, _)| *id)
    }

    /// The meaning of a reply.
    pub(super) fn reply(&self, reply: &Route<'_>) -> Meaning {
        let mut books = self.lock();
        let Books { vrfs, gone, .. } = &mut *books;
        // A server may give the default VRF as the number of its kernel table.
        let main =
            reply.table == u32::from(RT_TABLE_MAIN) && vrfs.values().all(|vrf| vrf.device != reply.table);
        let device = if main { 0 } else { reply.table };
        for (id, InVrf { routes, .. }) in vrfs.iter_mut().filter(|(_, vrf)| vrf.device == device) {
            for_each_family!(F => if let Some(prefix) = Prefix::<F>::from_addr(reply.prefix.addr(), reply.prefix.len())
                && let Some(sent) = routes.get_mut::<F>().get_mut(&prefix)
            {
                return sent.reply(VrfPrefix { vrf: *id, prefix: reply.prefix }, reply);
            });
        }
        if let Some(unanswered) = gone.get_mut(&(device, reply.prefix)) {
            if !reply.offload_failed() {
                unanswered.reply();
            }
            if unanswered.is_nothing() {
                gone.remove(&(device, reply.prefix));
                shrink_if_sparse(gone);
            }
        }
        Meaning::Nothing
    }

    /// The number of deleted routes that may have replies.
    #[cfg(test)]
    pub(super) fn gone(&self) -> usize {
        self.lock().gone.len()
    }
}

impl Sent {
    /// Whether both have the same message.
    fn is_equal(&self, other: &Sent) -> bool {
        (self.destination, self.variant) == (other.destination, other.variant)
            && protocol_number(self.protocol) == protocol_number(other.protocol)
    }

    fn reply(&mut self, at: VrfPrefix, reply: &Route<'_>) -> Meaning {
        let last = match reply.offload_failed() {
            true => self.unanswered.superseded == 0,
            false => self.unanswered.reply(),
        };
        if !self.named || !self.said {
            return Meaning::Nothing;
        }
        let same = protocol_number(self.protocol) == reply.protocol
            && [0, self.destination].contains(&destination(&reply.next_hops));
        match (last, same) {
            (true, true) => Meaning::Now(at),
            (true, false) => Meaning::Nothing,
            (false, _) => Meaning::Unsure(at),
        }
    }
}
