//! What a policy says of all routes with one attribute set, remembered.
//!
//! As far as the attributes decide, the answer is the same for every prefix. Where statements look at prefixes, what is
//! left is a tree of questions "is the prefix in this set?" whose leaves are outcomes. It grows as prefixes come: one
//! that takes a way which none took before runs the policy once, all others only look up sets.

use crate::policy::Policy;
use crate::route::{Changes, Route};
use ribtide_prefix::{Family, Prefix};

/// What a policy says of the routes of one attribute set and source. `T` is what the holder makes of a route that is
/// accepted: usually a handle of the changed attributes.
///
/// The policy and the route must be the same at every call.
#[derive(Debug)]
pub struct Memo<T>(State<T>);

#[derive(Debug)]
enum State<T> {
    /// The same for every prefix; `None`: rejected.
    Settled(Option<T>),
    Open(Box<Tree<T>>),
}

#[derive(Debug)]
struct Tree<T> {
    questions: Vec<Question>,
    outcomes: Vec<Option<T>>,
}

/// Whether the prefix is in a set of the policy, and where each answer leads.
#[derive(Debug)]
struct Question {
    set: u32,
    /// If not, if so.
    next: [Next; 2],
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Unknown,
    Question(u32),
    Outcome(u32),
}

impl<T> Tree<T> {
    /// Questions beyond which a tree is started over. Only statements that look at prefixes and do not decide let it grow
    /// beyond their number.
    const MAX_QUESTIONS: usize = 4096;
}

impl<T> Memo<T> {
    /// Asks the policy as far as the attributes decide. `make` is given the changes if the route is accepted.
    pub fn new(policy: &Policy, route: &Route<'_>, make: impl FnOnce(Changes) -> T) -> Memo<T> {
        Memo(match policy.run(route, |_| None, |_| {}) {
            Some(outcome) => State::Settled(outcome.map(make)),
            None => State::Open(Box::new(Tree { questions: Vec::new(), outcomes: Vec::new() })),
        })
    }

    /// The answer, when it is the same for every prefix: what was made of the route, or `None` inside when it is rejected.
    #[inline]
    pub fn settled(&self) -> Option<Option<&T>> {
        match &self.0 {
            State::Settled(outcome) => Some(outcome.as_ref()),
            State::Open(_) => None,
        }
    }

    /// The answer for a prefix: what was made of the route, or `None` when it is rejected. `make` is called if none took
    /// the same way before.
    #[inline]
    pub fn decide<F: Family>(
        &mut self,
        policy: &Policy,
        route: &Route<'_>,
        prefix: Prefix<F>,
        make: impl FnOnce(Changes) -> T,
    ) -> Option<&mut T> {
        match &mut self.0 {
            State::Settled(outcome) => outcome.as_mut(),
            State::Open(tree) => {
                let outcome = match tree.find(policy, prefix) {
                    Some(outcome) => outcome,
                    None => tree.learn(policy, route, prefix, make),
                };
                tree.outcomes[outcome as usize].as_mut()
            }
        }
    }
}

impl<T> Tree<T> {
    /// The outcome that the prefix's answers lead to, if some prefix gave them before.
    #[inline]
    fn find<F: Family>(&self, policy: &Policy, prefix: Prefix<F>) -> Option<u32> {
        let mut question = self.questions.first()?;
        loop {
            match question.next[usize::from(policy.holds(question.set, prefix))] {
                Next::Unknown => return None,
                Next::Question(at) => question = &self.questions[at as usize],
                Next::Outcome(outcome) => return Some(outcome),
            }
        }
    }

    /// Runs the policy for the prefix, and remembers its answers and their outcome.
    #[cold]
    fn learn<F: Family>(
        &mut self,
        policy: &Policy,
        route: &Route<'_>,
        prefix: Prefix<F>,
        make: impl FnOnce(Changes) -> T,
    ) -> u32 {
        if self.questions.len() >= Self::MAX_QUESTIONS {
            *self = Tree { questions: Vec::new(), outcomes: Vec::new() };
        }
        // Each set is asked about once, however many statements name it.
        let mut answers: Vec<(u32, bool)> = Vec::new();
        let holds = |set| {
            let known = answers.iter().find(|(asked, _)| *asked == set).map(|(_, answer)| *answer);
            Some(known.unwrap_or_else(|| {
                let answer = policy.holds(set, prefix);
                answers.push((set, answer));
                answer
            }))
        };
        let outcome = policy.run(route, holds, |_| {}).flatten();
        self.outcomes.push(outcome.map(make));
        let outcome = (self.outcomes.len() - 1) as u32;
        let mut from: Option<(usize, bool)> = None;
        for (set, answer) in answers {
            let known = match from {
                None if self.questions.is_empty() => None,
                None => Some(0),
                Some((at, answer)) => match self.questions[at].next[usize::from(answer)] {
                    Next::Question(next) => Some(next as usize),
                    _ => None,
                },
            };
            let at = known.unwrap_or_else(|| {
                self.questions.push(Question { set, next: [Next::Unknown; 2] });
                let at = self.questions.len() - 1;
                self.link(from, Next::Question(at as u32));
                at
            });
            from = Some((at, answer));
        }
        self.link(from, Next::Outcome(outcome));
        outcome
    }

    fn link(&mut self, from: Option<(usize, bool)>, to: Next) {
        if let Some((at, answer)) = from {
            self.questions[at].next[usize::from(answer)] = to;
        }
    }
}
