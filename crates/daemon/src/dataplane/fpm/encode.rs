//! FIB batches as FPM frames, and what routes the server was told, so that it can be told what changed.

use super::super::announce::{Announcer, DEFAULT_VRF, Style, destination, protocol_number};
use super::super::verdicts::Verdicts;
use ribtide_prefix::{Families, Family, Map, PerFamily, Prefix, Set, for_each_family};
use ribtide_rib::{FibBatch, FibRoute, GroupId, Protocol};
use ribtide_runtime::log::log;
use ribtide_wire::fpm;
use ribtide_wire::netlink::numbers::RT_TABLE_MAIN;
use ribtide_wire::netlink::{Content, Route, TooLong};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes collected before they are written.
const FLUSH: usize = 256 * 1024;

/// A route that the server has.
#[derive(Clone, Copy)]
struct Sent {
    group: GroupId,
    protocol: Protocol,
    /// What it was told the route leads to: [`destination`].
    destination: u32,
}

struct Sents;
impl PerFamily for Sents {
    type Of<F: Family> = Map<Prefix<F>, Sent>;
}

/// How much one call sent.
#[derive(Default, Clone, Copy)]
pub(super) struct Done {
    pub(super) routes: u64,
    pub(super) deletes: u64,
}

/// The routes that the server has, for the writer, who tells them, and the reader, who hears what became of them. Neither
/// holds the lock while it waits for the server.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<Families<Sents>>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, Families<Sents>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this reply is about the route as it was told last. One about a route that was replaced since, deleted, or
    /// never told says nothing about what is wanted now. A reply that names no next hops is taken to mean the last ones.
    pub(super) fn matches(&self, reply: &Route<'_>) -> bool {
        if ![DEFAULT_VRF, RT_TABLE_MAIN.into()].contains(&reply.table) {
            return false;
        }
        let told = self.lock();
        let mut matches = false;
        for_each_family!(F => if let Some(prefix) = Prefix::<F>::from_addr(reply.prefix.addr(), reply.prefix.len()) {
            let replied = destination(&reply.next_hops);
            matches |= told.get::<F>().get(&prefix).is_some_and(|sent| {
                protocol_number(sent.protocol) == reply.protocol && [0, sent.destination].contains(&replied)
            });
        });
        matches
    }
}

/// What the server was told, over all connections to it.
pub(super) struct Encoder {
    announcer: Announcer,
    routes: Told,
    /// Routes told before the replay that is running; those that it does not name are deleted at its end.
    before: Families<Sents>,
    out: Vec<u8>,
    done: Done,
}

impl Encoder {
    pub(super) fn new(style: Style) -> Self {
        Encoder {
            announcer: Announcer::new(style),
            routes: Told::default(),
            before: Families::default(),
            out: Vec::new(),
            done: Done::default(),
        }
    }

    /// The routes told.
    pub(super) fn told(&self) -> Told {
        self.routes.clone()
    }

    /// Writes a batch. `flush` takes the bytes away and is called at least once.
    pub(super) fn handle(
        &mut self,
        batch: &FibBatch,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) -> Done {
        self.done = Done::default();
        if batch.start_of_replay {
            self.restart();
        }
        let out = &mut self.out;
        let turned = self.announcer.groups(batch, &mut |object| write_object(out, object, flush));
        if !turned.is_empty() {
            for_each_family!(F => self.send_again::<F>(&turned, verdicts, flush));
        }
        for_each_family!(F => for route in batch.routes.get::<F>() {
            self.route(route, verdicts, flush);
        });
        let out = &mut self.out;
        self.announcer.delete_groups(batch, &mut |object| write_object(out, object, flush));
        self.announcer.retire(&mut |object| write_object(out, object, flush));
        if batch.end_of_replay {
            for_each_family!(F => self.delete_unnamed::<F>(verdicts, flush));
            let out = &mut self.out;
            self.announcer.delete_stale(&mut |object| write_object(out, object, flush));
        }
        flush(&mut self.out);
        self.done
    }

    /// A replay begins: everything is told again, and what was told before is remembered until its end.
    fn restart(&mut self) {
        for_each_family!(F => {
            let told = std::mem::take(self.routes.lock().get_mut::<F>());
            self.before.get_mut::<F>().extend(told);
        });
        self.announcer.begin_again();
    }

    fn route<F: Family>(
        &mut self,
        route: &FibRoute<F>,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        let before = self.before.get_mut::<F>();
        let mut told = if before.is_empty() { None } else { before.remove(&route.prefix) };
        if route.group.is_none() {
            told = self.routes.lock().get_mut::<F>().remove(&route.prefix).or(told);
            // What was never told need not be deleted.
            let Some(told) = told else { return };
            return self.write(&FibRoute { protocol: told.protocol, ..*route }, verdicts, flush);
        }
        self.write(route, verdicts, flush);
    }

    fn write<F: Family>(
        &mut self,
        route: &FibRoute<F>,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        let prefix = route.prefix.any();
        let content = self.announcer.route(route).map_err(str::to_owned);
        if let (Ok(Content::NewRoute(told)), Some(group)) = (&content, route.group) {
            let sent = Sent { group, protocol: route.protocol, destination: destination(&told.next_hops) };
            self.routes.lock().get_mut::<F>().insert(route.prefix, sent);
        }
        match content.and_then(|content| write(&mut self.out, &content).map_err(|e| e.to_string())) {
            Ok(()) => {
                let done = if route.group.is_some() { &mut self.done.routes } else { &mut self.done.deletes };
                *done += 1;
                verdicts.installed(prefix);
            }
            Err(why) => verdicts.refused(prefix, why),
        }
        flush_when_full(&mut self.out, flush);
    }

    /// Writes the routes of groups that turned.
    fn send_again<F: Family>(
        &mut self,
        turned: &Set<GroupId>,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        let concerned = |sent: &Sent| turned.contains(&sent.group);
        let again: Vec<FibRoute<F>> = self
            .routes
            .lock()
            .get::<F>()
            .iter()
            .filter(|(_, sent)| concerned(sent))
            .map(|(prefix, sent)| FibRoute {
                prefix: *prefix,
                group: Some(sent.group),
                protocol: sent.protocol,
            })
            .collect();
        for route in &again {
            self.write(route, verdicts, flush);
        }
    }

    /// Deletes what the server was told before the replay and the replay did not name.
    fn delete_unnamed<F: Family>(&mut self, verdicts: &mut Verdicts, flush: &mut impl FnMut(&mut Vec<u8>)) {
        for (prefix, Sent { protocol, .. }) in std::mem::take(self.before.get_mut::<F>()) {
            self.write(&FibRoute { prefix, group: None, protocol }, verdicts, flush);
        }
    }
}

/// Appends what the server is to be told.
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
    // Over 2,000 members, more than any configured limit: the server refuses its routes, not knowing it.
    if let (Err(_), Content::NewNextHop(group)) = (write(out, object), object) {
        log("ribtide", &format!("next-hop group {} has too many members for an FPM frame", group.id));
    }
    flush_when_full(out, flush);
}

fn flush_when_full(out: &mut Vec<u8>, flush: &mut impl FnMut(&mut Vec<u8>)) {
    if out.len() >= FLUSH {
        flush(out);
    }
}
