//! What one receiver holds: a number for each prefix. A thousand receivers of a full table fit a small machine so.

use super::super::model::{NO_PATH, PathNumber, UNKNOWN, View, fingerprint};
use super::Received;
use ribtide_prefix::{Families, Family, HashBuilder, Map, PerFamily, Prefix, Set, for_each_family};
use ribtide_wire::bgp::Update;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What receivers on one thread share: how they are judged, and attributes they have seen.
pub(super) struct Judge {
    pub(super) view: View,
    /// Hash of the attributes as they came → the path. Each set is looked at once for all receivers.
    seen: Map<u64, PathNumber>,
    hash: HashBuilder,
}

impl Judge {
    pub(super) fn new(view: View) -> Judge {
        Judge { view, seen: Map::default(), hash: HashBuilder::default() }
    }

    /// Takes another view. Attributes that no sender had sent may have been sent by now.
    pub(super) fn replace(&mut self, view: View) {
        self.view = view;
        self.seen.retain(|_, path| *path != UNKNOWN);
    }

    fn path<F: Family>(&mut self, update: &Update<'_>) -> PathNumber {
        let key = self.hash.hash_one((update.attribute_key(), update.next_hop::<F>()));
        let path = || self.view.known.get(&fingerprint::<F>(update)).copied();
        *self.seen.entry(key).or_insert_with(|| path().unwrap_or(UNKNOWN))
    }
}

/// The routes that a receiver holds.
#[derive(Default)]
pub(super) struct Routes {
    paths: Vec<PathNumber>,
    right: u64,
    /// Prefixes that no sender announced.
    strange: Families<Strange>,
}

struct Strange;
impl PerFamily for Strange {
    type Of<F: Family> = Set<Prefix<F>>;
}

impl Routes {
    pub(super) fn new(view: &View) -> Routes {
        let mut routes = Routes { paths: vec![NO_PATH; view.best.len()], ..Routes::default() };
        routes.judge(view);
        routes
    }

    /// Counts again what is right.
    pub(super) fn judge(&mut self, view: &View) {
        self.right = self.paths.iter().zip(&*view.best).filter(|(have, best)| have == best).count() as u64;
    }

    /// Does what an UPDATE says, and returns how many prefixes it announced and withdrew.
    pub(super) fn apply(&mut self, update: &Update<'_>, judge: &mut Judge) -> (u64, u64) {
        let (mut announced, mut withdrawn) = (0, 0);
        for_each_family!(F => {
            for prefix in update.withdrawn::<F>() {
                withdrawn += 1;
                self.set(prefix, NO_PATH, &judge.view);
            }
            let mut prefixes = update.announced::<F>().peekable();
            if prefixes.peek().is_some() {
                let path = judge.path::<F>(update);
                for prefix in prefixes {
                    announced += 1;
                    self.set(prefix, path, &judge.view);
                }
            }
        });
        (announced, withdrawn)
    }

    #[inline]
    fn set<F: Family>(&mut self, prefix: Prefix<F>, path: PathNumber, view: &View) {
        let Some(position) = view.positions.get::<F>().get(&prefix) else {
            let strange = self.strange.get_mut::<F>();
            if path == NO_PATH {
                strange.remove(&prefix)
            } else {
                strange.insert(prefix)
            };
            return;
        };
        let (have, best) = (&mut self.paths[*position as usize], view.best[*position as usize]);
        self.right = self.right + u64::from(path == best) - u64::from(*have == best);
        *have = path;
    }

    /// Whether exactly the best table is held.
    pub(super) fn all_right(&self) -> bool {
        self.right == self.paths.len() as u64 && self.strange() == 0
    }

    pub(super) fn copy(&self) -> (Vec<PathNumber>, usize) {
        (self.paths.clone(), self.strange())
    }

    fn strange(&self) -> usize {
        self.strange.v4.len() + self.strange.v6.len()
    }
}

/// What a receiver shows to the outside while it works.
#[derive(Debug, Default)]
pub(super) struct Counters {
    updates: AtomicU64,
    announced: AtomicU64,
    withdrawn: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds since [`EPOCH`]; 0: never.
    right_since: AtomicU64,
    last: AtomicU64,
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn to_number(at: Instant) -> u64 {
    at.saturating_duration_since(*EPOCH).as_nanos() as u64 + 1
}

fn to_instant(number: u64) -> Option<Instant> {
    Some(*EPOCH + Duration::from_nanos(number.checked_sub(1)?))
}

impl Counters {
    /// Counts what came at `at`.
    pub(super) fn add(&self, received: Received, at: Instant) {
        self.updates.fetch_add(received.updates, Relaxed);
        self.announced.fetch_add(received.announced, Relaxed);
        self.withdrawn.fetch_add(received.withdrawn, Relaxed);
        self.bytes.fetch_add(received.bytes, Relaxed);
        self.last.store(to_number(at), Relaxed);
    }

    /// Says what is held at `at`.
    pub(super) fn show(&self, routes: &Routes, at: Instant) {
        match (routes.all_right(), self.right_since.load(Relaxed)) {
            (true, 0) => self.right_since.store(to_number(at), Relaxed),
            (false, 1..) => self.right_since.store(0, Relaxed),
            _ => {}
        }
    }

    /// Forgets when all became right: something else is, from now on.
    pub(super) fn start_again(&self, routes: Option<&Routes>) {
        self.right_since.store(0, Relaxed);
        if let Some(routes) = routes {
            self.show(routes, Instant::now());
        }
    }

    pub(super) fn right_since(&self) -> Option<Instant> {
        to_instant(self.right_since.load(Relaxed))
    }

    pub(super) fn last(&self) -> Option<Instant> {
        to_instant(self.last.load(Relaxed))
    }

    pub(super) fn received(&self) -> Received {
        Received {
            updates: self.updates.load(Relaxed),
            announced: self.announced.load(Relaxed),
            withdrawn: self.withdrawn.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::model::Model;
    use super::super::super::topology::Topology;
    use super::*;
    use ribtide_prefix::{V4, V6};
    use ribtide_wire::bgp::message::{HEADER_LEN, MAX_LEN, frame};
    use ribtide_wire::bgp::update::{UpdateContext, parse};
    use ribtide_wire::bgp::{NextHop, build};
    use std::net::IpAddr;

    fn apply(routes: &mut Routes, judge: &mut Judge, mut messages: &[u8]) {
        while let Some(found) = frame(messages, MAX_LEN).unwrap() {
            let context = UpdateContext { four_octet_as: true, external: false };
            routes.apply(&parse(found.body, &context).unwrap(), judge);
            assert_eq!(found.body.len() + HEADER_LEN, found.total_len);
            messages = &messages[found.total_len..];
        }
    }

    #[test]
    fn only_the_best_table_is_right_and_nothing_beside_it() {
        only_the_best::<V4>();
        only_the_best::<V6>();
    }

    fn only_the_best<F: Family>() {
        // What a sender says is what a receiver must hold but for the marks of the reflector, so it is all wrong.
        let mut model = Model::<F>::new(Topology::new(F::AFI, 1, 1, true, true), 200, 1);
        let mut judge = Judge::new(model.view());
        let mut routes = Routes::new(&judge.view);
        assert!(routes.all_right(), "nothing was said yet");
        let script = model.announce(0, 0, |_| true);
        judge.replace(model.view());
        routes.judge(&judge.view);
        apply(&mut routes, &mut judge, &script);
        assert!(!routes.all_right());
        assert!(routes.copy().0.iter().all(|path| *path == UNKNOWN));

        // With the marks, all is right.
        let reflected = model.passed_on(0, |_| true);
        apply(&mut routes, &mut judge, &reflected);
        assert!(routes.all_right());

        // One more prefix of either family, and it is not, until it is gone.
        one_more::<V4>(&mut routes, &mut judge, "10.1.2.0/24", "10.0.0.1");
        one_more::<V6>(&mut routes, &mut judge, "fd01::/48", "fd00::1");

        // Nor is a table that stays when the routes change, or go.
        let _ = model.announce(0, 1, |group| group == 0);
        judge.replace(model.view());
        routes.judge(&judge.view);
        assert!(!routes.all_right());
        apply(&mut routes, &mut judge, &model.passed_on(0, |group| group == 0));
        assert!(routes.all_right());
        let withdrawn = model.withdraw(0, |_| true);
        judge.replace(model.view());
        routes.judge(&judge.view);
        assert!(!routes.all_right());
        apply(&mut routes, &mut judge, &withdrawn);
        assert!(routes.all_right() && routes.copy() == (vec![NO_PATH; 200], 0));
    }

    fn one_more<F: Family>(routes: &mut Routes, judge: &mut Judge, prefix: &str, next_hop: &str) {
        let strange: Prefix<F> = prefix.parse().unwrap();
        let next_hop = NextHop::from(next_hop.parse::<IpAddr>().unwrap());
        let mut more = Vec::new();
        build::UpdatePacker::new(&[0x40, 1, 1, 0, 0x40, 2, 0], next_hop, MAX_LEN)
            .announce([strange], &mut more)
            .unwrap();
        apply(routes, judge, &more);
        assert!(!routes.all_right());
        let mut gone = Vec::new();
        build::withdraw([strange], MAX_LEN, &mut gone);
        apply(routes, judge, &gone);
        assert!(routes.all_right());
    }
}
