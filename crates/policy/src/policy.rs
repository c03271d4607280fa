//! A peer's list of policies, compiled: the result for a route, and its reasons.

use crate::graceful_shutdown::{self, GracefulShutdown};
use crate::prefix_set::PrefixSet;
use crate::route::{Changes, Draft, Route};
use crate::statement::{
    Actions, Condition, Definition, Named, PresenceCondition, SetNextHop, Sources, Statement, Then,
};
use ribtide_prefix::{AnyPrefix, BgpFamily, Prefix};
use ribtide_rpki::{PathState, Validity};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The result of a policy for a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PolicyResult {
    /// The route is used, or sent.
    Accept,
    /// The route is neither used nor sent.
    Reject,
}

/// A compiled list of policies. They are tried in order and the first decision wins; later ones see
/// the changes of earlier ones. Equal policies have equal texts, and so equal results.
#[derive(Debug)]
pub struct Policy {
    name: String,
    definitions: Vec<Arc<Definition>>,
    /// The statements of all definitions, in order.
    steps: Vec<Step>,
    /// The prefix sets of its conditions, each once.
    sets: Vec<Arc<Named<PrefixSet>>>,
    end: PolicyResult,
    graceful_shutdown: GracefulShutdown,
    /// The statement that graceful shutdown adds for accepted routes.
    last: Option<(Step, Statement)>,
    /// The result of the list for every route, if it neither tests nor changes routes.
    constant: Option<PolicyResult>,
    /// The result of the list by validation state, if nothing else decides about routes and none is changed.
    by_validity: Option<[PolicyResult; Validity::ALL.len()]>,
    /// Whether any statement tests the validation state, and whether any that of the path.
    tests_validity: bool,
    tests_path: bool,
    hash: u64,
}

/// A statement with its position.
#[derive(Debug)]
pub(crate) struct Step {
    definition: u32,
    statement: u32,
    /// For each prefix condition, the number of its set.
    sets: Vec<u32>,
    /// Where the next definition begins.
    next_policy: u32,
}

impl Policy {
    /// Compiles a peer's list of policies. A route without a decision is rejected at an external
    /// peer and accepted at an internal one; with an empty list, that is every route (RFC 8212).
    pub fn new(definitions: Vec<Arc<Definition>>, external: bool) -> Policy {
        Policy::with_graceful_shutdown(definitions, external, GracefulShutdown::Off)
    }

    /// The same with what graceful shutdown changes of accepted routes (RFC 8326).
    pub fn with_graceful_shutdown(
        definitions: Vec<Arc<Definition>>,
        external: bool,
        graceful_shutdown: GracefulShutdown,
    ) -> Policy {
        let mut name = match definitions.as_slice() {
            [] if external => "none (RFC 8212)".into(),
            [] => "none".into(),
            list => list.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", "),
        };
        if matches!(graceful_shutdown, GracefulShutdown::InitiatorImport | GracefulShutdown::InitiatorExport)
        {
            name = format!("{name}, then {}", graceful_shutdown::NAME);
        }
        let last =
            |statement| (Step { definition: 0, statement: 0, sets: Vec::new(), next_policy: 0 }, statement);
        let mut policy = Policy {
            name,
            definitions,
            steps: Vec::new(),
            sets: Vec::new(),
            end: if external { PolicyResult::Reject } else { PolicyResult::Accept },
            graceful_shutdown,
            last: graceful_shutdown.statement().map(last),
            constant: None,
            by_validity: None,
            tests_validity: false,
            tests_path: false,
            hash: 0,
        };
        let mut hasher = DefaultHasher::new();
        (&policy.definitions, policy.end, graceful_shutdown).hash(&mut hasher);
        policy.hash = hasher.finish();
        for (d, definition) in policy.definitions.iter().enumerate() {
            let next_policy = (policy.steps.len() + definition.statements.len()) as u32;
            for (s, statement) in definition.statements.iter().enumerate() {
                let sets = statement
                    .prefix_conditions
                    .iter()
                    .map(|condition| number(&mut policy.sets, &condition.set));
                let sets = sets.collect();
                policy.steps.push(Step { definition: d as u32, statement: s as u32, sets, next_policy });
            }
        }
        policy.constant = policy.constant_list();
        policy.tests_validity = policy.steps.iter().any(|step| policy.statement(step).validity.is_some());
        policy.tests_path = policy.steps.iter().any(|step| policy.statement(step).path.is_some());
        policy.by_validity = policy.tests_validity.then(|| policy.results_by_validity()).flatten();
        policy
    }

    /// The policy that accepts every route as it is.
    pub fn accept() -> Policy {
        let [accept, _] = Definition::built_in();
        Policy::new(vec![accept.into()], false)
    }

    /// The policy that rejects every route.
    pub fn reject() -> Policy {
        let [_, reject] = Definition::built_in();
        Policy::new(vec![reject.into()], true)
    }

    /// The names of the list.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is no list at an external peer, so that RFC 8212 rejects every route.
    pub fn is_missing(&self) -> bool {
        self.definitions.is_empty() && self.end == PolicyResult::Reject
    }

    /// The result for every route, if the policy neither tests nor changes routes.
    #[inline]
    pub fn constant(&self) -> Option<PolicyResult> {
        self.constant.filter(|result| self.last.is_none() || *result == PolicyResult::Reject)
    }

    /// The result for every prefix with these attributes, if the policy leaves them as they are and tests nothing but
    /// whether they have the community GRACEFUL_SHUTDOWN.
    #[inline]
    pub fn constant_for(&self, attributes: &[u8]) -> Option<PolicyResult> {
        self.constant
            .filter(|result| *result == PolicyResult::Reject || self.graceful_shutdown.spares(attributes))
    }

    fn constant_list(&self) -> Option<PolicyResult> {
        let Some(step) = self.steps.first() else { return Some(self.end) };
        let statement = self.statement(step);
        let plain = statement.conditions.is_empty()
            && step.sets.is_empty()
            && statement.validity.is_none()
            && statement.path.is_none()
            && statement.actions.is_empty();
        match statement.then {
            Then::Accept if plain => Some(PolicyResult::Accept),
            Then::Reject if plain => Some(PolicyResult::Reject),
            _ => None,
        }
    }

    /// The results for prefixes with these attributes by [`Validity`], if the policy leaves routes as they are and tests
    /// nothing but that state, and whether they have the community GRACEFUL_SHUTDOWN.
    #[inline]
    pub fn constant_by_validity(&self, attributes: &[u8]) -> Option<[PolicyResult; Validity::ALL.len()]> {
        self.by_validity.filter(|_| self.graceful_shutdown.spares(attributes))
    }

    fn results_by_validity(&self) -> Option<[PolicyResult; Validity::ALL.len()]> {
        let mut results = [self.end; Validity::ALL.len()];
        for validity in Validity::ALL {
            let mut at = 0;
            while let Some(step) = self.steps.get(at) {
                at += 1;
                let statement = self.statement(step);
                if statement.validity.is_some_and(|condition| condition.0 != validity) {
                    continue;
                }
                let tests_more =
                    !statement.conditions.is_empty() || !step.sets.is_empty() || statement.path.is_some();
                if tests_more || !statement.actions.is_empty() {
                    return None;
                }
                match statement.then {
                    Then::Accept => results[validity as usize] = PolicyResult::Accept,
                    Then::Reject => results[validity as usize] = PolicyResult::Reject,
                    Then::NextStatement => continue,
                    Then::NextPolicy => {
                        at = step.next_policy as usize;
                        continue;
                    }
                }
                break;
            }
        }
        Some(results)
    }

    /// Whether any statement tests the validation state, so that a change of the table of payloads may change
    /// results.
    pub fn tests_validity(&self) -> bool {
        self.tests_validity
    }

    /// The sets whose routes decide about statements, each once.
    pub fn presence_sets(&self) -> Vec<Arc<Named<PrefixSet>>> {
        let mut sets: Vec<Arc<Named<PrefixSet>>> = Vec::new();
        for condition in self.presence_conditions() {
            if !sets.contains(&condition.set) {
                sets.push(condition.set.clone());
            }
        }
        sets
    }

    /// The conditions on the presence of other routes.
    pub fn presence_conditions(&self) -> impl Iterator<Item = &PresenceCondition> {
        let conditions = self.steps.iter().flat_map(|step| &self.statement(step).conditions);
        conditions.filter_map(|condition| match condition {
            Condition::Presence(condition) => Some(condition),
            _ => None,
        })
    }

    /// The policy where `present` says of each of its [presence sets](Policy::presence_sets) whether it
    /// has a route, if that is known.
    pub fn resolve(&self, present: impl Fn(&Named<PrefixSet>) -> Option<bool>) -> Policy {
        let resolve = |condition: &mut Condition| {
            if let Condition::Presence(condition) = condition {
                condition.present = present(&condition.set);
            }
        };
        let definitions = self.definitions.iter().map(|definition| {
            let mut definition = Definition::clone(definition);
            definition.statements.iter_mut().flat_map(|s| &mut s.conditions).for_each(resolve);
            Arc::new(definition)
        });
        let rejects = self.end == PolicyResult::Reject;
        Policy::with_graceful_shutdown(definitions.collect(), rejects, self.graceful_shutdown)
    }

    /// The prefix sets of which one has each prefix whose result a change of presence may change; `None`:
    /// any prefix.
    pub fn presence_scope(&self) -> Option<Vec<Arc<Named<PrefixSet>>>> {
        let is_presence = |condition: &Condition| matches!(condition, Condition::Presence(_));
        let statements = self.steps.iter().map(|step| self.statement(step));
        let statements = statements.filter(|statement| statement.conditions.iter().any(is_presence));
        let set = |statement: &Statement| {
            let condition = statement.prefix_conditions.iter().find(|condition| !condition.invert)?;
            Some(condition.set.clone())
        };
        statements.map(set).collect()
    }

    /// Whether any statement tests the verification state of the path, so that a change of the ASPA records may change
    /// results.
    pub fn tests_path(&self) -> bool {
        self.tests_path
    }

    /// Whether results depend on RPKI data.
    #[inline]
    pub fn tests_rpki(&self) -> bool {
        self.tests_validity || self.tests_path
    }

    /// Whether any statement sets the next hop.
    pub fn changes_next_hop(&self) -> bool {
        self.steps.iter().any(|step| self.statement(step).actions.next_hop.is_some())
    }

    /// Whether any statement sets the next hop to this.
    pub fn sets_next_hop(&self, to: SetNextHop) -> bool {
        self.steps.iter().any(|step| self.statement(step).actions.next_hop == Some(to))
    }

    /// Whether any statement sets the accumulated IGP metric.
    pub fn sets_aigp(&self) -> bool {
        self.steps.iter().any(|step| self.statement(step).actions.aigp.is_some())
    }

    /// Whether any statement sets a source address, which only FIB policy may do.
    pub fn sets_source(&self) -> bool {
        self.steps.iter().any(|step| self.statement(step).actions.source != Sources::default())
    }

    /// The first condition or action that FIB policy does not support, as text. Routes to the FIB
    /// have a prefix and a family, `of_bgp` also the kind of neighbour, and may get a source
    /// address.
    pub fn beyond_fib(&self, of_bgp: bool) -> Option<String> {
        self.steps.iter().map(|step| self.statement(step)).find_map(|statement| {
            let known = |condition: &&Condition| match condition {
                Condition::AfiSafiIn(_) => true,
                Condition::RouteType(_) => of_bgp,
                _ => false,
            };
            let condition = statement.conditions.iter().find(|condition| !known(condition));
            let actions = Actions { source: Sources::default(), ..statement.actions.clone() };
            let action = (!actions.is_empty()).then(|| actions.to_string());
            let validity = statement.validity.map(|validity| validity.to_string());
            let path = statement.path.map(|path| path.to_string());
            condition.map(ToString::to_string).or(validity).or(path).or(action)
        })
    }

    /// The result for a route: its changes, or `None` when it is rejected. Evaluates every
    /// statement; use a [`Memo`](crate::Memo) for repeated evaluation.
    pub fn evaluate<F: BgpFamily>(&self, route: &Route<'_>, prefix: Prefix<F>) -> Option<Changes> {
        let mut validity = None;
        self.run(route, |test| Some(self.holds(test, route, prefix, &mut validity)), |_| {}).flatten()
    }

    /// The result for a route, with a sentence for each tried statement: whether it held, the
    /// reason, and its action.
    pub fn explain(&self, route: &Route<'_>, prefix: AnyPrefix) -> (Option<Changes>, Vec<String>) {
        let (changes, sentences, _) = self.explain_changes(route, prefix);
        (changes, sentences)
    }

    /// The same, and which of the sentences are of statements whose actions were applied: their places.
    pub fn explain_changes(
        &self,
        route: &Route<'_>,
        prefix: AnyPrefix,
    ) -> (Option<Changes>, Vec<String>, Vec<usize>) {
        let (mut sentences, mut applied) = (Vec::new(), Vec::new());
        let mut validity = None;
        let holds = |test| match prefix {
            AnyPrefix::V4(prefix) => Some(self.holds(test, route, prefix, &mut validity)),
            AnyPrefix::V6(prefix) => Some(self.holds(test, route, prefix, &mut validity)),
        };
        let report = |event: Event<'_>| {
            if matches!(event, Event::Held { statement, .. } if !statement.actions.is_empty()) {
                applied.push(sentences.len());
            }
            sentences.push(event.to_string());
        };
        let changes = self.run(route, holds, report).flatten();
        (changes, sentences, applied)
    }

    /// The result of a test on the prefix: of the set of this number, or of [`validity_test`] or [`path_test`].
    /// `validity`: the state of this route and prefix, which the first test of it looks up.
    #[inline]
    pub(crate) fn holds<F: BgpFamily>(
        &self,
        test: u32,
        route: &Route<'_>,
        prefix: Prefix<F>,
        validity: &mut Option<Validity>,
    ) -> bool {
        match self.sets.get(test as usize) {
            Some(set) => set.set().contains(prefix),
            None if test <= PATH_TESTS => route.path_state().is_some_and(|state| path_test(state) == test),
            None => validity_test(*validity.get_or_insert_with(|| route.validity(prefix))) == test,
        }
    }

    /// Whether results depend on the validation state, and on nothing else beside the attributes.
    #[inline]
    pub(crate) fn tests_only_validity(&self) -> bool {
        self.tests_validity && self.sets.is_empty() && !self.tests_path
    }

    /// The result for a prefix of this state, of a policy that [tests nothing else](Policy::tests_only_validity), and
    /// for which states it is the same, by [`Validity`].
    #[inline(never)]
    pub(crate) fn with_validity(
        &self,
        route: &Route<'_>,
        validity: Validity,
    ) -> (Option<Changes>, [bool; Validity::ALL.len()]) {
        let mut same = [true; Validity::ALL.len()];
        let holds = |test| {
            for other in Validity::ALL {
                same[other as usize] &= (test == validity_test(other)) == (test == validity_test(validity));
            }
            Some(test == validity_test(validity))
        };
        let result = self.run(route, holds, |_| {}).flatten();
        (result, same)
    }

    fn statement(&self, step: &Step) -> &Statement {
        &self.definitions[step.definition as usize].statements[step.statement as usize]
    }

    /// Tries the statements. `holds` is the result of a test on the prefix, by number; without it,
    /// the run ends with `None`. Otherwise returns the result of [`Policy::evaluate`].
    pub(crate) fn run<'p>(
        &'p self,
        route: &Route<'_>,
        mut holds: impl FnMut(u32) -> Option<bool>,
        mut report: impl FnMut(Event<'p>),
    ) -> Option<Option<Changes>> {
        let mut draft = Draft::new(route);
        let mut at = 0;
        'steps: while let Some(step) = self.steps.get(at) {
            at += 1;
            let statement = self.statement(step);
            let policy = &self.definitions[step.definition as usize].name;
            if let Some(not) = statement.conditions.iter().find(|condition| !condition.holds(&draft)) {
                report(Event::Passed { policy, step, statement, not });
                continue;
            }
            for (set, condition) in step.sets.iter().zip(&statement.prefix_conditions) {
                // Decided without the prefix, so a set of one family costs the other nothing.
                let held = !condition.set.set().is_empty_for(route.family.afi()) && holds(*set)?;
                if held == condition.invert {
                    report(Event::Passed { policy, step, statement, not: condition });
                    continue 'steps;
                }
            }
            if let Some(validity) = &statement.validity
                && !holds(validity_test(validity.0))?
            {
                report(Event::Passed { policy, step, statement, not: validity });
                continue;
            }
            if let Some(path) = &statement.path
                && !holds(path_test(path.0))?
            {
                report(Event::Passed { policy, step, statement, not: path });
                continue;
            }
            report(Event::Held { policy, step, statement });
            draft.apply(&statement.actions);
            match statement.then {
                Then::Accept => return Some(Some(self.accepted(draft, report))),
                Then::Reject => return Some(None),
                Then::NextStatement => {}
                Then::NextPolicy => at = step.next_policy as usize,
            }
        }
        report(Event::End(self.end));
        Some((self.end == PolicyResult::Accept).then(|| self.accepted(draft, report)))
    }

    /// The changes of an accepted route, after the last statement.
    fn accepted<'p>(&'p self, mut draft: Draft<'_>, mut report: impl FnMut(Event<'p>)) -> Changes {
        // Where it does not hold, it has no part in the result, and an explanation leaves it out.
        if let Some((step, statement)) = &self.last
            && statement.conditions.iter().all(|condition| condition.holds(&draft))
        {
            report(Event::Held { policy: graceful_shutdown::NAME, step, statement });
            draft.apply(&statement.actions);
        }
        draft.changes
    }
}

/// The number of the test for a validation state. The numbers of sets are lower.
fn validity_test(validity: Validity) -> u32 {
    u32::MAX - validity as u32
}

/// The highest number of the test for a verification state.
const PATH_TESTS: u32 = u32::MAX - Validity::ALL.len() as u32;

/// The number of the test for a verification state of the path, below those for validation states.
fn path_test(state: PathState) -> u32 {
    PATH_TESTS - state as u32
}

/// The number of a set in `sets`, which is added if it is new.
fn number(sets: &mut Vec<Arc<Named<PrefixSet>>>, set: &Arc<Named<PrefixSet>>) -> u32 {
    let known = sets.iter().position(|known| Arc::ptr_eq(known, set));
    known.unwrap_or_else(|| {
        sets.push(set.clone());
        sets.len() - 1
    }) as u32
}

/// An event of a statement. Displays as a sentence.
pub(crate) enum Event<'p> {
    /// A condition did not hold.
    Passed { policy: &'p str, step: &'p Step, statement: &'p Statement, not: &'p dyn fmt::Display },
    /// All conditions held.
    Held { policy: &'p str, step: &'p Step, statement: &'p Statement },
    /// No statement decided.
    End(PolicyResult),
}

fn place(f: &mut fmt::Formatter<'_>, policy: &str, step: &Step, statement: &Statement) -> fmt::Result {
    match statement.name.as_str() {
        "" if step.statement == 0 && (policy == "accept" || policy == "reject") => write!(f, "{policy}: "),
        "" => write!(f, "{policy}, statement {}: ", step.statement + 1),
        name => write!(f, "{policy}, statement \"{name}\": "),
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Passed { policy, step, statement, not } => {
                place(f, policy, step, statement)?;
                write!(f, "{not} does not hold")
            }
            Event::Held { policy, step, statement } => {
                place(f, policy, step, statement)?;
                let conditions = statement.conditions.iter().map(ToString::to_string);
                let prefix_conditions = statement.prefix_conditions.iter().map(ToString::to_string);
                let validity = statement.validity.iter().map(ToString::to_string);
                let path = statement.path.iter().map(ToString::to_string);
                let held: Vec<String> =
                    conditions.chain(prefix_conditions).chain(validity).chain(path).collect();
                match held.as_slice() {
                    [] => f.write_str("holds for every route")?,
                    [one] => write!(f, "{one} holds")?,
                    many => write!(f, "{} hold", many.join(", "))?,
                }
                if !statement.actions.is_empty() {
                    write!(f, "; {}", statement.actions)?;
                }
                f.write_str(match statement.then {
                    Then::Accept => "; accepted",
                    Then::Reject => "; rejected",
                    Then::NextStatement => "; next statement",
                    Then::NextPolicy => "; next policy",
                })
            }
            Event::End(PolicyResult::Accept) => {
                f.write_str("no policy decided: accepted, since the peer is internal")
            }
            Event::End(PolicyResult::Reject) => {
                f.write_str("no policy decided: rejected, since the peer is external (RFC 8212)")
            }
        }
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.hash == other.hash
                && self.end == other.end
                && self.graceful_shutdown == other.graceful_shutdown
                && self.definitions == other.definitions)
    }
}

impl Eq for Policy {}

impl Hash for Policy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{Match, PrefixCondition};
    use crate::{Memo, PrefixRange, RouteType, Source};
    use ribtide_prefix::{AfiSafi, V4, V6};
    use ribtide_wire::bgp::NextHop;
    use std::net::Ipv4Addr;

    fn prefix_set(name: &str, ranges: &[&str]) -> Arc<Named<PrefixSet>> {
        Named::new(name, PrefixSet::new(ranges.iter().map(|text| text.parse().unwrap())))
    }

    fn route(attributes: &[u8]) -> Route<'_> {
        let neighbor = Ipv4Addr::new(192, 0, 2, 1);
        let source = Source { neighbor: neighbor.into(), kind: RouteType::External };
        Route {
            attributes,
            next_hop: NextHop::V4(neighbor),
            family: AfiSafi::Ipv4Unicast,
            source,
            validation: None,
        }
    }

    /// Rejects what is tagged 1:666, prefers the customer's own prefixes, and leaves the rest to the end of the list.
    fn customer(ranges: &[&str]) -> Policy {
        let tagged = Named::new("blackhole", ["1:666".parse().unwrap()].into_iter().collect());
        let own = PrefixCondition { set: prefix_set("own", ranges), invert: false };
        let statements = vec![
            Statement {
                name: "tagged".into(),
                conditions: vec![Condition::CommunitySet(tagged, Match::Any)],
                then: Then::Reject,
                ..Statement::default()
            },
            Statement {
                prefix_conditions: vec![own],
                actions: Actions { local_pref: Some(200), ..Actions::default() },
                then: Then::Accept,
                ..Statement::default()
            },
        ];
        Policy::new(vec![Arc::new(Definition { name: "customer".into(), statements })], true)
    }

    /// The last statement acts after the list, whatever the list sets, and only on accepted routes (RFC 8326 section 4).
    #[test]
    fn graceful_shutdown_acts_last_and_on_accepted_routes() {
        let prefix: Prefix<V4> = "192.0.2.0/24".parse().unwrap();
        let [accept, reject] = Definition::built_in().map(Arc::new);
        let prefer = Statement {
            actions: Actions { local_pref: Some(200), ..Actions::default() },
            then: Then::Accept,
            ..Statement::default()
        };
        let prefer = Arc::new(Definition { name: "prefer".into(), statements: vec![prefer] });
        let plain = [0xc0, 8, 4, 0, 1, 0, 2];
        let tagged = [0xc0, 8, 4, 0xff, 0xff, 0, 0];
        let lowest = [0x40, 5, 4, 0, 0, 0, 0];
        let both = [0xc0, 8, 8, 0, 1, 0, 2, 0xff, 0xff, 0, 0];
        let result = |definition: &Arc<Definition>, what, attributes: &[u8]| {
            let policy = Policy::with_graceful_shutdown(vec![definition.clone()], true, what);
            let constant = policy.constant_for(attributes);
            let changes = policy.evaluate(&route(attributes), prefix);
            let unchanged = changes.as_ref().map(Changes::is_empty);
            match constant {
                Some(PolicyResult::Accept) => assert_eq!(unchanged, Some(true)),
                Some(PolicyResult::Reject) => assert_eq!(unchanged, None),
                None => assert_ne!(policy.constant(), Some(PolicyResult::Accept)),
            }
            let mut out = Vec::new();
            changes.map(|changes| changes.write(attributes, &mut out)).map(|()| (out, constant.is_some()))
        };
        let cat = |a: &[u8], b: &[u8]| [a, b].concat();
        use GracefulShutdown::{InitiatorExport, InitiatorImport, Off, Receiver};
        assert_eq!(result(&accept, Off, &tagged), Some((tagged.to_vec(), true)));
        assert_eq!(result(&accept, Receiver, &plain), Some((plain.to_vec(), true)));
        for definition in [&accept, &prefer] {
            assert_eq!(result(definition, Receiver, &tagged), Some((cat(&lowest, &tagged), false)));
            assert_eq!(result(definition, InitiatorImport, &plain), Some((cat(&lowest, &both), false)));
        }
        assert_eq!(result(&accept, InitiatorExport, &plain), Some((both.to_vec(), false)));
        assert_eq!(result(&accept, InitiatorExport, &tagged), Some((tagged.to_vec(), false)), "once");
        for what in [Off, Receiver, InitiatorImport, InitiatorExport] {
            assert_eq!(result(&reject, what, &tagged), None);
        }
        let of = |what| Policy::with_graceful_shutdown(vec![accept.clone()], true, what);
        assert_ne!(of(Off), of(InitiatorExport));
        assert_eq!(of(InitiatorExport).name(), "accept, then graceful-shutdown");
        let (_, tried) = of(Receiver).explain(&route(&tagged), prefix.any());
        assert_eq!(
            tried[1],
            "graceful-shutdown, statement \"receiver\": match-community-set \"graceful-shutdown\" holds; set-local-pref 0; accepted"
        );
    }

    #[test]
    fn the_built_in_ones_and_none() {
        assert_eq!(Policy::accept().constant(), Some(PolicyResult::Accept));
        assert_eq!(Policy::reject().constant(), Some(PolicyResult::Reject));
        assert_eq!(Policy::new(vec![], true).constant(), Some(PolicyResult::Reject));
        assert_eq!(Policy::new(vec![], false).constant(), Some(PolicyResult::Accept));
        assert_eq!(Policy::new(vec![], true).name(), "none (RFC 8212)");
        assert_eq!(customer(&[]).constant(), None);
        let [accept, reject] = Definition::built_in().map(Arc::new);
        let both = Policy::new(vec![accept, reject], true);
        assert_eq!((both.constant(), both.name()), (Some(PolicyResult::Accept), "accept, reject"));
    }

    #[test]
    fn content_makes_policies_equal() {
        assert_eq!(customer(&["10.0.0.0/8", "11.0.0.0/8"]), customer(&["11.0.0.0/8", "10.0.0.0/8"]));
        assert_ne!(customer(&["10.0.0.0/8"]), customer(&["10.0.0.0/8 8..9"]));
        assert_ne!(Policy::new(vec![], true), Policy::new(vec![], false));
    }

    #[test]
    fn every_statement_has_a_reason() {
        let policy = customer(&["10.0.0.0/8 8..24"]);
        let plain = [0x40, 1, 1, 0];
        let (changes, sentences) = policy.explain(&route(&plain), "10.1.0.0/16".parse().unwrap());
        let mut out = Vec::new();
        changes.unwrap().write(&plain, &mut out);
        assert_eq!(out, [0x40, 1, 1, 0, 0x40, 5, 4, 0, 0, 0, 200]);
        assert_eq!(
            sentences,
            [
                "customer, statement \"tagged\": match-community-set \"blackhole\" does not hold",
                "customer, statement 2: match-prefix-set \"own\" holds; set-local-pref 200; accepted"
            ]
        );
        let (changes, sentences) = policy.explain(&route(&plain), "10.1.0.0/25".parse().unwrap());
        assert_eq!(
            (changes, sentences[2].as_str()),
            (None, "no policy decided: rejected, since the peer is external (RFC 8212)")
        );
        let tagged = [0xc0, 8, 4, 0, 1, 0x02, 0x9a];
        let (changes, sentences) = policy.explain(&route(&tagged), "10.1.0.0/16".parse().unwrap());
        let tagged_sentence =
            "customer, statement \"tagged\": match-community-set \"blackhole\" holds; rejected";
        assert_eq!((changes, sentences), (None, vec![tagged_sentence.to_string()]));
    }

    #[test]
    fn conditions_and_actions_of_fib_policy() {
        let source = Sources { v4: Some(Ipv4Addr::new(10, 0, 0, 1)), v6: None };
        let of = |conditions: Vec<Condition>, actions| {
            let statement = Statement { conditions, actions, ..Statement::default() };
            Policy::new(vec![Arc::new(Definition { name: "fib".into(), statements: vec![statement] })], false)
        };
        let policy = of(
            vec![Condition::AfiSafiIn(vec![AfiSafi::Ipv4Unicast])],
            Actions { source, ..Actions::default() },
        );
        assert!(policy.sets_source() && policy.beyond_fib(false).is_none());
        let changes = policy.evaluate(&route(&[]), "10.0.0.0/8".parse::<Prefix<V4>>().unwrap()).unwrap();
        assert_eq!(changes.source(), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert_eq!(
            policy.explain(&route(&[]), "10.0.0.0/8".parse().unwrap()).1[0],
            "fib, statement 1: afi-safi-in ipv4-unicast holds; set-source 10.0.0.1; next statement"
        );
        let everywhere = of(vec![], Actions { source, ..Actions::default() });
        let six = Route { family: AfiSafi::Ipv6Unicast, ..route(&[]) };
        let changes = everywhere.evaluate(&six, "2001:db8::/32".parse::<Prefix<V6>>().unwrap());
        assert!(changes.unwrap().is_empty(), "the other family's");

        let kind = of(vec![Condition::RouteType(RouteType::Internal)], Actions::default());
        assert_eq!(
            (kind.beyond_fib(true), kind.beyond_fib(false).as_deref()),
            (None, Some("route-type internal"))
        );
        let med = of(vec![], Actions { med: Some(crate::Med::Set(1)), source, ..Actions::default() });
        assert_eq!(med.beyond_fib(true).as_deref(), Some("set-med 1"));
        assert!(customer(&[]).beyond_fib(true).unwrap().starts_with("match-community-set"));
        assert!(!customer(&[]).sets_source());
    }

    #[test]
    fn a_prefix_is_looked_up_only_where_it_matters() {
        let policy = customer(&["10.0.0.0/8 8..24"]);
        let (plain, tagged) = ([0x40, 1, 1, 0], [0xc0, 8, 4, 0, 1, 0x02, 0x9a]);
        assert_eq!(
            Memo::new(&policy, &route(&tagged), |_| ()).settled(),
            Some(None),
            "the community decides"
        );
        let six = Route { family: AfiSafi::Ipv6Unicast, ..route(&plain) };
        assert_eq!(Memo::new(&policy, &six, |_| ()).settled(), Some(None), "the set holds no IPv6 prefix");

        let mut made = 0;
        let mut memo = Memo::new(&policy, &route(&plain), |_| 0);
        assert_eq!(memo.settled(), None);
        for (prefix, expected) in
            [("10.0.0.0/8", Some(1)), ("11.0.0.0/8", None), ("10.9.0.0/16", Some(1)), ("12.0.0.0/8", None)]
        {
            let prefix: Prefix<V4> = prefix.parse().unwrap();
            let found = memo.decide(&policy, &route(&plain), prefix, |_| {
                made += 1;
                made
            });
            assert_eq!(found.copied(), expected, "{prefix}");
        }
        assert_eq!(made, 1, "prefixes with equal results share the outcome");
        let six: Prefix<V6> = "2001:db8::/32".parse().unwrap();
        assert_eq!(policy.evaluate(&Route { family: AfiSafi::Ipv6Unicast, ..route(&plain) }, six), None);
    }

    #[test]
    fn a_tree_over_its_limit_starts_again() {
        // Thirteen sets, one for each bit of the address: every address has different results.
        let statements = (0..13u32).map(|bit| {
            let ranges = (0..1u32 << 13).filter(|n| n >> bit & 1 == 1);
            let ranges = ranges.map(|n| PrefixRange::exact(Prefix::<V4>::new(n << 19, 13).any()));
            Statement {
                prefix_conditions: vec![PrefixCondition {
                    set: Named::new(bit.to_string(), PrefixSet::new(ranges)),
                    invert: false,
                }],
                actions: Actions { med: Some(crate::Med::Add(1 << bit)), ..Actions::default() },
                ..Statement::default()
            }
        });
        let definition = Definition { name: "bits".into(), statements: statements.collect() };
        let policy = Policy::new(vec![definition.into()], false);
        let plain = [0x40, 1, 1, 0];
        let mut memo = Memo::new(&policy, &route(&plain), |changes| changes.med());
        let mut made = 0;
        for n in (0..1u32 << 13).chain(0..8) {
            let med = memo.decide(&policy, &route(&plain), Prefix::<V4>::new(n << 19, 13), |changes| {
                made += 1;
                changes.med()
            });
            assert_eq!(med.copied().flatten().unwrap_or(0), n);
        }
        assert_eq!(made, (1 << 13) + 8, "the first were forgotten");
    }
}
