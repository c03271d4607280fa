//! FIB batches as FPM frames, and what routes the server was told, so that it can be told what changed.

use super::super::announce::{Announcer, Style, destination, protocol_number};
use super::super::verdicts::Verdicts;
use ribtide_prefix::{Families, Family, Map, PerFamily, Prefix, Set, for_each_family};
use ribtide_rib::{FibBatch, FibRoute, GroupId, IfIndex, Protocol, Vrf, VrfId, VrfPrefix};
use ribtide_runtime::log::log;
use ribtide_wire::fpm;
use ribtide_wire::netlink::numbers::RT_TABLE_MAIN;
use ribtide_wire::netlink::{Content, Route, TooLong};
use std::collections::BTreeMap;
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

/// The routes of a VRF that the server has.
#[derive(Default)]
struct InVrf {
    /// What the server knows the VRF by.
    device: IfIndex,
    routes: Families<Sents>,
}

/// The routes that the server has, for the writer, who tells them, and the reader, who hears what became of them. Neither
/// holds the lock while it waits for the server.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<BTreeMap<VrfId, InVrf>>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<VrfId, InVrf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The route that this reply is about, if it is as it was told last. A reply about one that was replaced since, deleted,
    /// or never told says nothing about what is wanted now. One that names no next hops is taken to mean the last ones.
    pub(super) fn matches(&self, reply: &Route<'_>) -> Option<VrfPrefix> {
        let told = self.lock();
        // A server may say the default VRF by the number of its kernel's table.
        let main =
            reply.table == u32::from(RT_TABLE_MAIN) && told.values().all(|vrf| vrf.device != reply.table);
        let device = if main { 0 } else { reply.table };
        let (vrf, InVrf { routes, .. }) = told.iter().find(|(_, vrf)| vrf.device == device)?;
        let mut matches = false;
        for_each_family!(F => if let Some(prefix) = Prefix::<F>::from_addr(reply.prefix.addr(), reply.prefix.len()) {
            let replied = destination(&reply.next_hops);
            matches |= routes.get::<F>().get(&prefix).is_some_and(|sent| {
                protocol_number(sent.protocol) == reply.protocol && [0, sent.destination].contains(&replied)
            });
        });
        matches.then_some(VrfPrefix { vrf: *vrf, prefix: reply.prefix })
    }
}

/// What the server was told, over all connections to it.
pub(super) struct Encoder {
    announcer: Announcer,
    routes: Told,
    /// Routes told before the replay that is running; those that it does not name are deleted at its end.
    before: BTreeMap<VrfId, InVrf>,
    out: Vec<u8>,
    done: Done,
}

impl Encoder {
    pub(super) fn new(style: Style) -> Self {
        Encoder {
            announcer: Announcer::new(style),
            routes: Told::default(),
            before: BTreeMap::new(),
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
            self.route(batch.vrf, route, verdicts, flush);
        });
        let out = &mut self.out;
        self.announcer.delete_groups(batch, &mut |object| write_object(out, object, flush));
        self.announcer.retire(&mut |object| write_object(out, object, flush));
        if batch.end_of_replay {
            for_each_family!(F => self.delete_unnamed::<F>(verdicts, flush));
            let out = &mut self.out;
            self.announcer.delete_stale(&mut |object| write_object(out, object, flush));
            fpm::write_end_of_replay(out);
        }
        flush(&mut self.out);
        self.done
    }

    /// A replay begins: everything is told again, and what was told before is remembered until its end.
    fn restart(&mut self) {
        for (id, InVrf { device, mut routes }) in std::mem::take(&mut *self.routes.lock()) {
            let before = self.before.entry(id).or_default();
            before.device = device;
            for_each_family!(F => before.routes.get_mut::<F>().extend(routes.get_mut::<F>().drain()));
        }
        self.announcer.begin_again();
    }

    fn route<F: Family>(
        &mut self,
        vrf: Vrf,
        route: &FibRoute<F>,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        let before = self.before.get_mut(&vrf.id).map(|before| before.routes.get_mut::<F>());
        let mut told = before.and_then(|before| before.remove(&route.prefix));
        if route.group.is_none() {
            let mut routes = self.routes.lock();
            let now =
                routes.get_mut(&vrf.id).and_then(|told| told.routes.get_mut::<F>().remove(&route.prefix));
            drop(routes);
            told = now.or(told);
            // What was never told need not be deleted.
            let Some(told) = told else { return };
            return self.write(vrf, &FibRoute { protocol: told.protocol, ..*route }, verdicts, flush);
        }
        self.write(vrf, route, verdicts, flush);
    }

    fn write<F: Family>(
        &mut self,
        vrf: Vrf,
        route: &FibRoute<F>,
        verdicts: &mut Verdicts,
        flush: &mut impl FnMut(&mut Vec<u8>),
    ) {
        let at = VrfPrefix { vrf: vrf.id, prefix: route.prefix.any() };
        let content = self.announcer.route(vrf.device, route).map_err(str::to_owned);
        if let (Ok(Content::NewRoute(told)), Some(group)) = (&content, route.group) {
            let sent = Sent { group, protocol: route.protocol, destination: destination(&told.next_hops) };
            let mut routes = self.routes.lock();
            let told = routes.entry(vrf.id).or_default();
            told.device = vrf.device;
            told.routes.get_mut::<F>().insert(route.prefix, sent);
        }
        match content.and_then(|content| write(&mut self.out, &content).map_err(|e| e.to_string())) {
            Ok(()) => {
                let done = if route.group.is_some() { &mut self.done.routes } else { &mut self.done.deletes };
                *done += 1;
                verdicts.installed(at);
            }
            Err(why) => verdicts.refused(at, why),
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
        let mut again: Vec<(Vrf, FibRoute<F>)> = Vec::new();
        for (id, InVrf { device, routes }) in &*self.routes.lock() {
            let vrf = Vrf { id: *id, table: 0, device: *device };
            again.extend(routes.get::<F>().iter().filter(|(_, sent)| concerned(sent)).map(
                |(prefix, sent)| {
                    (vrf, FibRoute { prefix: *prefix, group: Some(sent.group), protocol: sent.protocol })
                },
            ));
        }
        for (vrf, route) in &again {
            self.write(*vrf, route, verdicts, flush);
        }
    }

    /// Deletes what the server was told before the replay and the replay did not name.
    fn delete_unnamed<F: Family>(&mut self, verdicts: &mut Verdicts, flush: &mut impl FnMut(&mut Vec<u8>)) {
        let mut stale: Vec<(Vrf, FibRoute<F>)> = Vec::new();
        for (id, InVrf { device, routes }) in &mut self.before {
            let vrf = Vrf { id: *id, table: 0, device: *device };
            stale.extend(
                routes
                    .get_mut::<F>()
                    .drain()
                    .map(|(prefix, Sent { protocol, .. })| (vrf, FibRoute { prefix, group: None, protocol })),
            );
        }
        for (vrf, route) in &stale {
            self.write(*vrf, route, verdicts, flush);
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
