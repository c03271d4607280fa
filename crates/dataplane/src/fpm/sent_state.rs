//! What routes an FPM server was told, and which of its replies are about what it was told last.
//!
//! A reply names a prefix, a table and a protocol, and from SONiC's server no next hops: by its content, the reply about a
//! route that was replaced since is the same as the one about its replacement. What tells them apart is order. A server
//! works on the messages about one prefix in their order, and replies at most once for each; it may leave
//! replies out, because it coalesced a change with the next one before the chip saw either, or because what failed is not
//! answered. So the k-th reply is about the k-th message *or a later one*, and where n messages
//! may still be answered that say something else than the last did, the next n replies prove nothing, whatever they
//! are about, and the one after them proves that what was told last is in place. That is never too early. It may never come, where
//! the server coalesced changes; then the same is asked again ([`super::replies`]), which brings one more reply.
//!
//! That the hardware refused a route is no reply in this count: its server may have the route in place later after all, without a
//! further message, and replies then.
//!
//! Replies outlive the connection, since they come from behind the server: so do these counts. They do not
//! outlive [`FORGOTTEN`]: what was left out is not missed for ever.
//!
//! A server that writes rows of its own accord, as one does when Redis was lost or what a next-hop object stands for changed, has one
//! more answer under way, about a row that it was told long ago. Ours keeps such answers to itself
//! (`ribtide_swss::fpmsyncd`); of SONiC's one that comes after the route changed passes for the new row's, and is early by as
//! long as the chip still takes.
//!
//! Why not hold a change back until the one before is answered: what is not answered would then keep a prefix on a way
//! that is lost, for the sake of who is told about it.

use super::super::announce::{destination, protocol_number, variant};
use ribtide_prefix::{
    AnyPrefix, Families, Family, Map, PerFamily, Prefix, for_each_family, shrink_if_sparse, shrink_to_fit,
};
use ribtide_rib::{FibRoute, GroupId, IfIndex, Protocol, Vrf, VrfId, VrfPrefix};
use ribtide_wire::netlink::Route;
use ribtide_wire::netlink::numbers::RT_TABLE_MAIN;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An answer that takes longer than this since the prefix was last told something is not expected any more.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(600);

/// Messages about a prefix that may still be answered. More than the type can count are counted as so many.
#[derive(Clone, Copy, Default)]
struct Unanswered {
    /// That said something else than the last one.
    superseded: u16,
    /// That said what the last one said.
    current: u16,
    /// When something was said last, in seconds of [`Books`].
    at: u32,
}

impl Unanswered {
    /// Something is said now, `again` or for the first time.
    fn say(&mut self, again: bool, now: u32) {
        self.age(now);
        if !again {
            self.supersede();
        }
        self.current = self.current.saturating_add(1);
        self.at = now;
    }

    /// What was said last is not what is wanted any more.
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

    /// A reply came that says that the route is in place. Whether it must be about what was said last.
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
    /// The replay that is on, or was last, named it.
    named: bool,
    /// What is wanted was said. Not so where it does not fit into a message.
    said: bool,
    /// What it was told the route leads to: [`destination`].
    destination: u32,
    /// [`variant`] of it.
    variant: u32,
    unanswered: Unanswered,
}

struct Sents;
impl PerFamily for Sents {
    type Of<F: Family> = Map<Prefix<F>, Sent>;
}

/// The routes of a VRF that the server has.
#[derive(Default)]
struct InVrf {
    /// What the server knows the VRF by.
    device: IfIndex,
    routes: Families<Sents>,
}

struct Books {
    vrfs: BTreeMap<VrfId, InVrf>,
    /// Deleted routes about which a reply may still come, and the number of the device of each's VRF: a reply says no more.
    gone: Map<(IfIndex, AnyPrefix), Unanswered>,
    /// At so many, `gone` is looked through for those of which no reply is expected any more.
    crowd: usize,
    started: Instant,
    /// Seconds since then.
    now: u32,
}

/// What a reply means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// It is about this route, as it was told last.
    Now(VrfPrefix),
    /// It may be about this route as it was before; of how it was told last a reply may still come, or not.
    Unsure(VrfPrefix),
    /// It says nothing about what is wanted: the route was replaced, deleted or never told.
    Nothing,
}

/// The fewest deleted routes that are worth looking through.
const CROWD: usize = 1024;

/// The routes that the server has, for the writer, who tells them, and the reader, who hears what became of them. Neither
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
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the time.
    pub(super) fn tick(&self, now: Instant) {
        let mut books = self.lock();
        let seconds = now.saturating_duration_since(books.started).as_secs();
        books.now = u32::try_from(seconds).unwrap_or(u32::MAX);
    }

    /// Shrinks every table to its contents. O(capacity). Who wants the books meanwhile waits.
    pub(super) fn shrink_to_fit(&self) {
        let mut books = self.lock();
        for InVrf { routes, .. } in books.vrfs.values_mut() {
            for_each_family!(F => shrink_to_fit(routes.get_mut::<F>()));
        }
        shrink_to_fit(&mut books.gone);
    }

    /// A replay begins: everything is told again.
    pub(super) fn begin_again(&self) {
        for InVrf { routes, .. } in self.lock().vrfs.values_mut() {
            for_each_family!(F => routes.get_mut::<F>().values_mut().for_each(|sent| sent.named = false));
        }
    }

    /// Takes in that a route is told; before it is with the server.
    pub(super) fn say<F: Family>(&self, vrf: Vrf, route: &FibRoute<F>, group: GroupId, told: &Route<'_>) {
        let mut books = self.lock();
        let now = books.now;
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
            destination: destination(&told.next_hops),
            variant: variant(told),
            unanswered: gone.unwrap_or_default(),
        };
        let slot = in_vrf.routes.get_mut::<F>().entry(route.prefix).or_insert(Sent { said: false, ..sent });
        let again = slot.said && slot.says_as(&sent);
        let mut unanswered = slot.unanswered;
        unanswered.say(again, now);
        *slot = Sent { unanswered, ..sent };
    }

    /// Takes in that a route could not be told. The server has what it had.
    pub(super) fn cannot_say<F: Family>(&self, vrf: Vrf, prefix: Prefix<F>, group: GroupId) {
        let mut books = self.lock();
        let routes = books.vrfs.get_mut(&vrf.id).map(|vrf| vrf.routes.get_mut::<F>());
        if let Some(sent) = routes.and_then(|routes| routes.get_mut(&prefix)) {
            sent.unanswered.supersede();
            (sent.group, sent.said, sent.named) = (group, false, true);
        }
    }

    /// Takes in that a route is deleted. Gives what it was, if the server has it.
    pub(super) fn delete<F: Family>(&self, vrf: VrfId, prefix: Prefix<F>) -> Option<Sent> {
        let mut books = self.lock();
        let InVrf { device, routes } = books.vrfs.get_mut(&vrf)?;
        let of_family = routes.get_mut::<F>();
        let (device, sent) = (*device, of_family.remove(&prefix)?);
        shrink_if_sparse(of_family);
        if routes.v4.is_empty() && routes.v6.is_empty() {
            // The number of its device may be another VRF's soon.
            books.vrfs.remove(&vrf);
        }
        let mut unanswered = sent.unanswered;
        // A deletion has no answer.
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

    /// The routes that `wanted` says, and that the server was told since the last [`SentState::begin_again`]; or, with
    /// `named` false, that it was not.
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

    /// A route that was told in this replay and of which a reply could come.
    pub(super) fn open<F: Family>(&self, vrf: VrfId, prefix: Prefix<F>) -> Option<(Vrf, Sent)> {
        let books = self.lock();
        let InVrf { device, routes } = books.vrfs.get(&vrf)?;
        let sent = routes.get::<F>().get(&prefix).filter(|sent| sent.named && sent.said)?;
        Some((Vrf { id: vrf, table: 0, device: *device }, *sent))
    }

    /// What a reply means.
    pub(super) fn reply(&self, reply: &Route<'_>) -> Meaning {
        let mut books = self.lock();
        let Books { vrfs, gone, .. } = &mut *books;
        // A server may say the default VRF by the number of its kernel's table.
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

    /// How many deleted routes a reply may still come about.
    #[cfg(test)]
    pub(super) fn gone(&self) -> usize {
        self.lock().gone.len()
    }
}

impl Sent {
    /// Whether the server is told the same by both.
    fn says_as(&self, other: &Sent) -> bool {
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
