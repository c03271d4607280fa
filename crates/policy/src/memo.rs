//! Memo: the results of a policy for all routes with one attribute set.
//!
//! Where only attributes decide, the result is the same for every prefix. Where only the validation
//! state of the prefix decides beside them, it is one for each state. Where statements test
//! prefixes, the rest is a tree of tests "is the prefix in this set?" or "is this its validation
//! state?" with outcomes as leaves, so it also holds for another table of payloads. The
//! tree grows on demand: a prefix with new results runs the policy once, and all others only look
//! up sets.

use crate::policy::Policy;
use crate::route::{Changes, Route};
use ribtide_prefix::{BgpFamily, Prefix};
use ribtide_rpki::Validity;

/// The results of a policy for one attribute set and source. `T` is the caller's value for an
/// accepted route, usually a handle of the changed attributes.
///
/// Every call must pass the same policy and route, but for the table in [`Route::validation`].
#[derive(Debug)]
pub struct Memo<T>(State<T>);

#[derive(Debug)]
enum State<T> {
    /// The same for every prefix; `None`: rejected.
    Settled(Option<T>),
    /// By the validation state of the prefix.
    ByValidity(ByValidity<T>),
    Open(Box<Tree<T>>),
}

#[derive(Debug)]
struct ByValidity<T> {
    /// The number of the outcome of each state; [`UNKNOWN`]: not evaluated yet.
    numbers: [u8; Validity::ALL.len()],
    /// At most one for each state; `None`: rejected.
    outcomes: [Option<T>; Validity::ALL.len()],
}

const UNKNOWN: u8 = u8::MAX;

#[derive(Debug)]
struct Tree<T> {
    tests: Vec<PrefixTest>,
    outcomes: Vec<Option<T>>,
}

/// A test on the prefix, as [`Policy::holds`] numbers them, and the next node for each result.
#[derive(Debug)]
struct PrefixTest {
    number: u32,
    /// Next for false, next for true.
    next: [Next; 2],
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Unvisited,
    PrefixTest(u32),
    Outcome(u32),
}

impl<T> Tree<T> {
    /// Tests at which a tree starts again. It grows beyond the number of statements only through
    /// statements that test prefixes and do not decide.
    const MAX_TESTS: usize = 4096;
}

impl<T> Memo<T> {
    /// Evaluates the policy as far as the attributes decide. `make` gets the changes of an accepted
    /// route.
    pub fn new(policy: &Policy, route: &Route<'_>, make: impl FnOnce(Changes) -> T) -> Memo<T> {
        // The first prefix shows whether attributes decide: to run the policy for that alone costs as much as that prefix.
        if policy.tests_only_validity() {
            let numbers = [UNKNOWN; Validity::ALL.len()];
            return Memo(State::ByValidity(ByValidity { numbers, outcomes: Default::default() }));
        }
        Memo(match policy.run(route, |_| None, |_| {}) {
            Some(outcome) => State::Settled(outcome.map(make)),
            None => State::Open(Box::new(Tree { tests: Vec::new(), outcomes: Vec::new() })),
        })
    }

    /// The result, when it is the same for every prefix: the made value, or an inner `None` for a
    /// rejected route.
    #[inline]
    pub fn settled(&self) -> Option<Option<&T>> {
        match &self.0 {
            State::Settled(outcome) => Some(outcome.as_ref()),
            State::ByValidity(_) | State::Open(_) => None,
        }
    }

    /// The result for a prefix: the made value, or `None` for a rejected route. `make` is called
    /// when no earlier prefix had the same results.
    #[inline]
    pub fn decide<F: BgpFamily>(
        &mut self,
        policy: &Policy,
        route: &Route<'_>,
        prefix: Prefix<F>,
        make: impl FnOnce(Changes) -> T,
    ) -> Option<&mut T> {
        match self.0 {
            State::Settled(ref mut outcome) => outcome.as_mut(),
            State::ByValidity(_) => self.of_validity(policy, route, route.validity(prefix), make),
            State::Open(ref mut tree) => {
                let outcome = match tree.find(policy, route, prefix) {
                    Some(outcome) => outcome,
                    None => tree.learn(policy, route, prefix, make),
                };
                tree.outcomes[outcome as usize].as_mut()
            }
        }
    }

    /// Whether the validation state of the prefix decides, and nothing else of it: then [`Memo::of_validity`] has the results.
    #[inline]
    pub fn is_by_validity(&self) -> bool {
        matches!(self.0, State::ByValidity(_))
    }

    /// The result for a prefix of this state, as [`Memo::decide`]; `None` where other tests of prefixes decide.
    #[inline]
    pub fn of_validity(
        &mut self,
        policy: &Policy,
        route: &Route<'_>,
        validity: Validity,
        make: impl FnOnce(Changes) -> T,
    ) -> Option<&mut T> {
        let state = validity as usize;
        if let State::ByValidity(ByValidity { numbers, outcomes }) = &mut self.0
            && numbers[state] == UNKNOWN
        {
            let (changes, same) = policy.with_validity(route, validity);
            let outcome = changes.map(make);
            if same.iter().all(|same| *same) {
                self.0 = State::Settled(outcome);
            } else {
                numbers
                    .iter_mut()
                    .zip(same)
                    .filter(|(_, same)| *same)
                    .for_each(|(number, _)| *number = state as u8);
                outcomes[state] = outcome;
            }
        }
        match &mut self.0 {
            State::Settled(outcome) => outcome.as_mut(),
            State::ByValidity(ByValidity { numbers, outcomes }) => {
                outcomes[usize::from(numbers[state])].as_mut()
            }
            State::Open(_) => None,
        }
    }
}

impl<T> Tree<T> {
    /// The outcome for the prefix's results, if an earlier prefix had them.
    #[inline]
    fn find<F: BgpFamily>(&self, policy: &Policy, route: &Route<'_>, prefix: Prefix<F>) -> Option<u32> {
        let mut test = self.tests.first()?;
        let mut validity = None;
        loop {
            match test.next[usize::from(policy.holds(test.number, route, prefix, &mut validity))] {
                Next::Unvisited => return None,
                Next::PrefixTest(at) => test = &self.tests[at as usize],
                Next::Outcome(outcome) => return Some(outcome),
            }
        }
    }

    /// Runs the policy for the prefix and stores its results and their outcome.
    #[cold]
    fn learn<F: BgpFamily>(
        &mut self,
        policy: &Policy,
        route: &Route<'_>,
        prefix: Prefix<F>,
        make: impl FnOnce(Changes) -> T,
    ) -> u32 {
        if self.tests.len() >= Self::MAX_TESTS {
            *self = Tree { tests: Vec::new(), outcomes: Vec::new() };
        }
        // Each test is made once, also when several statements have it.
        let mut results: Vec<(u32, bool)> = Vec::new();
        let mut validity = None;
        let holds = |test| {
            let known = results.iter().find(|(tested, _)| *tested == test).map(|(_, result)| *result);
            Some(known.unwrap_or_else(|| {
                let result = policy.holds(test, route, prefix, &mut validity);
                results.push((test, result));
                result
            }))
        };
        let outcome = policy.run(route, holds, |_| {}).flatten();
        self.outcomes.push(outcome.map(make));
        let outcome = (self.outcomes.len() - 1) as u32;
        let mut from: Option<(usize, bool)> = None;
        for (test, result) in results {
            let known = match from {
                None if self.tests.is_empty() => None,
                None => Some(0),
                Some((at, result)) => match self.tests[at].next[usize::from(result)] {
                    Next::PrefixTest(next) => Some(next as usize),
                    _ => None,
                },
            };
            let at = known.unwrap_or_else(|| {
                self.tests.push(PrefixTest { number: test, next: [Next::Unvisited; 2] });
                let at = self.tests.len() - 1;
                self.link(from, Next::PrefixTest(at as u32));
                at
            });
            from = Some((at, result));
        }
        self.link(from, Next::Outcome(outcome));
        outcome
    }

    fn link(&mut self, from: Option<(usize, bool)>, to: Next) {
        if let Some((at, result)) = from {
            self.tests[at].next[usize::from(result)] = to;
        }
    }
}
