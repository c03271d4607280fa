//! FIB batches as FPM frames.

use super::super::announcer::{Announcer, Style, protocol_number};
use super::super::install_results::InstallResults;
use super::sent_state::{Sent, SentState, Wanted};
use ribtide_prefix::{AnyPrefix, Family, Map, Prefix, Set, for_each_family};
use ribtide_rib::{FibBatch, FibRoute, GroupId, Vrf, VrfPrefix};
use ribtide_runtime::log::target;
use ribtide_wire::fpm;
use ribtide_wire::fpm::compare::{self, Key};
use ribtide_wire::netlink::numbers::RTPROT_BGP;
use ribtide_wire::netlink::{Content, TooLong};
use std::time::Instant;

/// Bytes collected for one write.
const FLUSH: usize = 256 * 1024;

/// What one call sent.
#[derive(Default, Clone, Copy)]
pub(super) struct Done {
    pub(super) routes: u64,
    pub(super) deletes: u64,
}

/// What a server should have of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// No such entry.
    Nothing,
    /// What is not known: the present state could not be sent.
    Anything,
    /// An entry with this fingerprint.
    Content(u64),
}

/// The state of the server over all connections.
pub(super) struct Encoder {
    announcer: Announcer,
    routes: SentState,
    out: Vec<u8>,
    done: Done,
}

impl Encoder {
    pub(super) fn new(style: Style, now: Instant) -> Self {
        Encoder {
            announcer: Announcer::new(style),
            routes: SentState::new(now),
            out: Vec::new(),
            done: Done::default(),
        }
    }

    /// Refers to next hops in another way from the next replay on.
    pub(super) fn set_style(&mut self, style: Style) {
        self.announcer.set_style(style);
    }

    /// The sent routes.
    pub(super) fn sent_state(&self) -> SentState {
        self.routes.clone()
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        self.out.shrink_to_fit();
        self.routes.shrink_to_fit();
    }

    /// Encodes a batch. Calls `flush` with the bytes at least once.
    pub(super) fn handle(
        &mut self,
        batch: &FibBatch,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) -> Done {
        self.done = Done::default();
        if batch.start_of_replay {
            self.routes.begin_again();
            self.announcer.begin_again();
        }
        let out = &mut self.out;
        let turned = self.announcer.groups(batch, &mut |object| write_object(out, object, flush));
        if !turned.is_empty() {
            for_each_family!(F => self.send_again::<F>(&turned, results, flush));
        }
        for_each_family!(F => for route in batch.routes.get::<F>() {
            self.route(batch.vrf, route, results, flush);
        });
        let out = &mut self.out;
        self.announcer.delete_groups(batch, &mut |object| write_object(out, object, flush));
        self.announcer.retire(&mut |object| write_object(out, object, flush));
        if batch.end_of_replay {
            for_each_family!(F => self.delete_unnamed::<F>(results, flush));
            let out = &mut self.out;
            self.announcer.delete_stale(&mut |object| write_object(out, object, flush));
            fpm::write_end_of_replay(out);
        }
        flush(&mut self.out);
        self.done
    }

    /// The objects that the server should have.
    pub(super) fn objects(&self) -> impl Iterator<Item = u32> {
        self.announcer.objects()
    }

    /// What the server should have of these keys, in their order. `see`: a page of the server has them.
    pub(super) fn expected(&mut self, keys: &[Key], see: bool) -> Vec<Expected> {
        let of_route = |key: &Key| match key {
            Key::Route(table, prefix) => Some((*table, *prefix)),
            Key::Object(_) => None,
        };
        let mut routes = self.routes.wanted(keys.iter().filter_map(of_route), see).into_iter();
        // Neighbouring routes often have one group.
        let mut next_hops: Map<(GroupId, bool), Option<u64>> = Map::default();
        let announcer = &mut self.announcer;
        let expected = |key: &Key| {
            let prefix = match key {
                Key::Object(id) => {
                    let mut expected = Expected::Nothing;
                    announcer.object(*id, &mut |object| {
                        expected = Expected::Content(compare::object(&object.forward));
                    });
                    return expected;
                }
                Key::Route(_, prefix) => *prefix,
            };
            let (device, group, protocol) = match routes.next() {
                Some(Wanted::Route(device, group, protocol)) => (device, group, protocol),
                Some(Wanted::Anything) => return Expected::Anything,
                Some(Wanted::Nothing) | None => return Expected::Nothing,
            };
            let of_group = next_hops.entry((group, prefix.addr().is_ipv4())).or_insert_with(|| {
                let message = match prefix {
                    AnyPrefix::V4(prefix) => {
                        announcer.route(device, &FibRoute { prefix, group: Some(group), protocol })
                    }
                    AnyPrefix::V6(prefix) => {
                        announcer.route(device, &FibRoute { prefix, group: Some(group), protocol })
                    }
                };
                match message {
                    Ok(Content::NewRoute(message)) => Some(compare::next_hops_of(&message)),
                    _ => None,
                }
            });
            // A group that was never announced has no route that was sent.
            of_group.map_or(Expected::Anything, |next_hops| {
                Expected::Content(compare::route(protocol_number(protocol), next_hops))
            })
        };
        keys.iter().map(expected).collect()
    }

    /// Starts a round of the comparison.
    pub(super) fn begin_round(&mut self) {
        self.routes.begin_round();
    }

    /// The routes that no [`Encoder::expected`] of the round has seen.
    pub(super) fn unseen(&self) -> Vec<Key> {
        self.routes.unseen().into_iter().map(|(device, prefix)| Key::Route(device, prefix)).collect()
    }

    /// Sends again what the server should have of these keys, and deletes what it should not have.
    pub(super) fn repair(
        &mut self,
        keys: &mut [(Key, Expected)],
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) -> Done {
        // Single objects before groups, and both before the routes that name them; deletions in the
        // opposite order. Single objects have the higher ids.
        keys.sort_unstable_by_key(|(key, expected)| match (key, expected) {
            (Key::Object(id), Expected::Nothing) => (3, *id),
            (Key::Route(..), Expected::Nothing) => (2, 0),
            (Key::Route(..), _) => (1, 0),
            (Key::Object(id), _) => (0, u32::MAX - id),
        });
        self.done = Done::default();
        for (key, expected) in keys {
            let out = &mut self.out;
            match (*key, *expected == Expected::Nothing) {
                (Key::Object(id), true) => write_object(out, &Content::DelNextHop(id), flush),
                (Key::Object(id), false) => {
                    self.announcer
                        .object(id, &mut |object| write_object(out, &Content::NewNextHop(*object), flush));
                }
                (Key::Route(table, prefix), true) => {
                    fpm::write_delete(out, prefix, table, RTPROT_BGP);
                    self.done.deletes += 1;
                    flush_when_full(out, flush);
                }
                (Key::Route(table, prefix), false) => {
                    let Some(vrf) = self.routes.vrf(table) else { continue };
                    self.send_once_more(VrfPrefix { vrf, prefix }, results, flush);
                }
            }
        }
        flush(&mut self.out);
        self.done
    }

    /// Sends unchanged routes again, so that the server replies once more.
    pub(super) fn resend(
        &mut self,
        routes: &[VrfPrefix],
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) -> Done {
        self.done = Done::default();
        for route in routes {
            self.send_once_more(*route, results, flush);
        }
        flush(&mut self.out);
        self.done
    }

    fn send_once_more(
        &mut self,
        VrfPrefix { vrf, prefix }: VrfPrefix,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        match prefix {
            AnyPrefix::V4(prefix) => self.again(self.routes.open(vrf, prefix), prefix, results, flush),
            AnyPrefix::V6(prefix) => self.again(self.routes.open(vrf, prefix), prefix, results, flush),
        }
    }

    fn again<F: Family>(
        &mut self,
        open: Option<(Vrf, Sent)>,
        prefix: Prefix<F>,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        if let Some((vrf, Sent { group, protocol, .. })) = open {
            self.write(vrf, &FibRoute { prefix, group: Some(group), protocol }, results, flush);
        }
    }

    fn route<F: Family>(
        &mut self,
        vrf: Vrf,
        route: &FibRoute<F>,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        if route.group.is_some() {
            return self.write(vrf, route, results, flush);
        }
        // A route that was never sent needs no deletion.
        if let Some(Sent { protocol, .. }) = self.routes.delete(vrf.id, route.prefix) {
            self.write(vrf, &FibRoute { protocol, ..*route }, results, flush);
        }
    }

    fn write<F: Family>(
        &mut self,
        vrf: Vrf,
        route: &FibRoute<F>,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        let at = VrfPrefix { vrf: vrf.id, prefix: route.prefix.any() };
        let of_group = route.group.map_or(0, |group| self.announcer.variant(group));
        let content = self.announcer.route(vrf.device, route).map_err(str::to_owned);
        let written = content.and_then(|content| {
            write(&mut self.out, &content).map_err(|e| e.to_string())?;
            if let (Content::NewRoute(message), Some(group)) = (&content, route.group) {
                self.routes.note_sent(vrf, route, group, message, of_group);
            }
            Ok(())
        });
        match written {
            Ok(()) => {
                let done = if route.group.is_some() { &mut self.done.routes } else { &mut self.done.deletes };
                *done += 1;
                results.installed(at);
            }
            Err(why) => {
                if let Some(group) = route.group {
                    self.routes.cannot_say(vrf, route.prefix, group);
                }
                results.refused(at, why);
            }
        }
        flush_when_full(&mut self.out, flush);
    }

    /// Encodes the routes of changed groups.
    fn send_again<F: Family>(
        &mut self,
        turned: &Set<GroupId>,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        for (vrf, prefix, sent) in self.routes.routes::<F>(true, |sent| turned.contains(&sent.group)) {
            let route = FibRoute { prefix, group: Some(sent.group), protocol: sent.protocol };
            self.write(vrf, &route, results, flush);
        }
    }

    /// Deletes routes that the server had before the replay and that the replay does not have.
    fn delete_unnamed<F: Family>(
        &mut self,
        results: &mut InstallResults,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        for (vrf, prefix, sent) in self.routes.routes::<F>(false, |_| true) {
            self.route(vrf, &FibRoute { prefix, group: None, protocol: sent.protocol }, results, flush);
        }
    }
}

/// Appends a message.
fn write(out: &mut Vec<u8>, content: &Content<'_>) -> Result<(), TooLong> {
    match content {
        Content::NewRoute(route) => fpm::write_route(out, route)?,
        Content::DelRoute(route) => fpm::write_delete(out, route.prefix, route.table, route.protocol),
        Content::NewNextHop(object) => fpm::write_next_hop(out, object)?,
        Content::DelNextHop(id) => fpm::write_delete_next_hop(out, *id),
        other => unreachable!("{other:?} is never announced"),
    }
    Ok(())
}

fn write_object(out: &mut Vec<u8>, object: &Content<'_>, flush: &mut impl FnMut(&mut Vec<u8>)) {
    // A group of more than 2,000 members exceeds every configured limit. The server does not know
    // it and refuses its routes.
    if let (Err(_), Content::NewNextHop(group)) = (write(out, object), object) {
        tracing::error!(
            target: target::FPM,
            group = group.id,
            "the next-hop group has too many members for an FPM frame"
        );
    }
    flush_when_full(out, flush);
}

fn flush_when_full(out: &mut Vec<u8>, flush: &mut impl FnMut(&mut Vec<u8>)) {
    if out.len() >= FLUSH {
        flush(out);
    }
}
