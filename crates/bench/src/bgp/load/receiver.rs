//! The routes of one receiver: a number per prefix, so that a thousand receivers of a full table
//! fit a small machine.

use super::super::model::{NO_PATH, PathNumber, UNKNOWN_PATH, View, fingerprint};
use super::Received;
use ribtide_prefix::{Families, Family, HashBuilder, Map, Prefix, Set, for_each_family, per_family};
use ribtide_wire::bgp::Update;
use std::hash::BuildHasher;
use std::time::Instant;

/// Shared by the receivers of one thread: the expected routes, and known attributes.
pub(super) struct PathChecker {
    pub(super) view: View,
    /// Hash of received attributes → path. Each set is compared once for all receivers.
    seen: Map<u64, PathNumber>,
    hash: HashBuilder,
}

impl PathChecker {
    pub(super) fn new(view: View) -> PathChecker {
        PathChecker { view, seen: Map::default(), hash: HashBuilder::default() }
    }

    /// Replaces the view. Unknown attributes may be known now.
    pub(super) fn replace(&mut self, view: View) {
        self.view = view;
        self.seen.retain(|_, path| *path != UNKNOWN_PATH);
    }

    fn path<F: Family>(&mut self, update: &Update<'_>) -> PathNumber {
        let key = self.hash.hash_one((update.attribute_key(), update.next_hop::<F>()));
        let path = || self.view.known.get(&fingerprint::<F>(update)).copied();
        *self.seen.entry(key).or_insert_with(|| path().unwrap_or(UNKNOWN_PATH))
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

per_family!(struct Strange<F> = Set<Prefix<F>>);

impl Routes {
    pub(super) fn new(view: &View) -> Routes {
        let mut routes = Routes { paths: vec![NO_PATH; view.best.len()], ..Routes::default() };
        routes.recount(view);
        routes
    }

    /// Counts the correct routes again.
    pub(super) fn recount(&mut self, view: &View) {
        self.right = self.paths.iter().zip(&*view.best).filter(|(have, best)| have == best).count() as u64;
    }

    /// Applies an UPDATE; returns the numbers of announced and withdrawn prefixes.
    pub(super) fn apply(&mut self, update: &Update<'_>, checker: &mut PathChecker) -> (u64, u64) {
        let (mut announced, mut withdrawn) = (0, 0);
        for_each_family!(F => {
            for prefix in update.withdrawn::<F>() {
                withdrawn += 1;
                self.set(prefix, NO_PATH, &checker.view);
            }
            let mut prefixes = update.announced::<F>().peekable();
            if prefixes.peek().is_some() {
                let path = checker.path::<F>(update);
                for prefix in prefixes {
                    announced += 1;
                    self.set(prefix, path, &checker.view);
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

/// The state of a receiver that other threads read.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) received: Received,
    /// When the receiver came to hold exactly the best table.
    pub(super) right_since: Option<Instant>,
    /// When the last UPDATE came.
    pub(super) last: Option<Instant>,
}

impl Counters {
    /// Adds messages that came at `at`.
    pub(super) fn add(&mut self, received: Received, at: Instant) {
        self.received += received;
        self.last = Some(at);
    }

    /// Publishes the routes held at `at`.
    pub(super) fn show(&mut self, routes: &Routes, at: Instant) {
        self.right_since = routes.all_right().then(|| self.right_since.unwrap_or(at));
    }

    /// Resets the time of completion, for new expected routes.
    pub(super) fn start_again(&mut self, routes: Option<&Routes>) {
        self.right_since = None;
        if let Some(routes) = routes {
            self.show(routes, Instant::now());
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

    fn apply(routes: &mut Routes, checker: &mut PathChecker, mut messages: &[u8]) {
        while let Some(found) = frame(messages, MAX_LEN).unwrap() {
            let context = UpdateContext::new(true, false);
            routes.apply(&parse(found.body, &context).unwrap(), checker);
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
        // A sender's routes lack the attributes that a reflector adds, so all are wrong.
        let mut model = Model::<F>::new(Topology::new(F::AFI, 1, 1, true, true), 200, 1);
        let mut checker = PathChecker::new(model.view());
        let mut routes = Routes::new(&checker.view);
        assert!(routes.all_right(), "nothing was said yet");
        let script = model.announce(0, 0, |_| true);
        checker.replace(model.view());
        routes.recount(&checker.view);
        apply(&mut routes, &mut checker, &script);
        assert!(!routes.all_right());
        assert!(routes.copy().0.iter().all(|path| *path == UNKNOWN_PATH));

        // With those attributes, all are correct.
        let reflected = model.passed_on(0, |_| true);
        apply(&mut routes, &mut checker, &reflected);
        assert!(routes.all_right());

        // One more prefix of either family makes the table wrong until it is withdrawn.
        one_more::<V4>(&mut routes, &mut checker, "10.1.2.0/24", "10.0.0.1");
        one_more::<V6>(&mut routes, &mut checker, "fd01::/48", "fd00::1");

        // So does an old table after the routes change or are withdrawn.
        let _ = model.announce(0, 1, |group| group == 0);
        checker.replace(model.view());
        routes.recount(&checker.view);
        assert!(!routes.all_right());
        apply(&mut routes, &mut checker, &model.passed_on(0, |group| group == 0));
        assert!(routes.all_right());
        let withdrawn = model.withdraw(0, |_| true);
        checker.replace(model.view());
        routes.recount(&checker.view);
        assert!(!routes.all_right());
        apply(&mut routes, &mut checker, &withdrawn);
        assert!(routes.all_right() && routes.copy() == (vec![NO_PATH; 200], 0));
    }

    fn one_more<F: Family>(routes: &mut Routes, checker: &mut PathChecker, prefix: &str, next_hop: &str) {
        let strange: Prefix<F> = prefix.parse().unwrap();
        let next_hop = NextHop::from(next_hop.parse::<IpAddr>().unwrap());
        let mut more = Vec::new();
        build::UpdatePacker::new(&[0x40, 1, 1, 0, 0x40, 2, 0], next_hop, MAX_LEN)
            .announce([strange], &mut more)
            .unwrap();
        apply(routes, checker, &more);
        assert!(!routes.all_right());
        let mut gone = Vec::new();
        build::withdraw([strange], MAX_LEN, &mut gone);
        apply(routes, checker, &gone);
        assert!(routes.all_right());
    }
}
