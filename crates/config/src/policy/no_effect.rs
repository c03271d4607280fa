//! Policies, statements and sets without effect. They are valid, and probably not intended, so they are warnings.

use super::Policies;
use crate::check::Checker;
use crate::diagnosis::{Step, key};
use crate::file;
use ribtide_policy::{AsPathSet, Definition, Statement, Then};
use std::collections::BTreeSet;

/// The kind of policies; those of sets are `prefix-set` and so on, as their tables are called.
pub(super) const DEFINITION: &str = "definition";

/// Names that lists of policies, conditions or actions use, with the kind of each.
pub(super) type Used = BTreeSet<(&'static str, String)>;

impl Checker {
    /// Warns of what `file` defines and nothing uses, of sets without members, and of statements that no route reaches.
    /// It comes after all lists are compiled. `listed`: the lists of groups, which may have no neighbour yet.
    pub(super) fn unused_and_unreachable<'l>(
        &mut self,
        file: &file::Policy,
        listed: impl Iterator<Item = &'l String>,
    ) {
        self.policies.used.extend(listed.map(|name| (DEFINITION, name.clone())));
        for name in file.definition.keys() {
            self.unused(
                DEFINITION,
                name,
                "no list of a neighbour, a group or [fib.policy] names this policy",
            );
            self.unreachable_statement(name);
        }
        let Policies { prefix_sets, neighbor_sets, community_sets, as_path_sets, .. } = &self.policies;
        let mut sets: Vec<(&'static str, String, bool)> = Vec::new();
        sets.extend(prefix_sets.iter().map(|(name, s)| ("prefix-set", name.clone(), s.set().is_empty())));
        sets.extend(neighbor_sets.iter().map(|(name, s)| ("neighbor-set", name.clone(), s.set().is_empty())));
        sets.extend(
            community_sets.iter().map(|(name, s)| ("community-set", name.clone(), s.set().is_empty())),
        );
        let no_path = AsPathSet::default();
        sets.extend(as_path_sets.iter().map(|(name, s)| ("as-path-set", name.clone(), *s.set() == no_path)));
        for (kind, name, is_empty) in sets {
            let is_used = !self.unused(kind, &name, "no condition and no action of a policy names this set");
            if is_used && is_empty {
                let message = "this set has no members: a condition with it holds for no route, and with invert for every \
                               route; add members, or remove the condition";
                self.warn(key!["policy", kind, name.as_str()], message);
            }
        }
    }

    /// Warns where nothing uses the name. Returns whether it does.
    fn unused(&mut self, kind: &'static str, name: &str, why: &str) -> bool {
        let is_unused = !self.policies.used.contains(&(kind, name.to_owned()));
        if is_unused {
            self.warn(key!["policy", kind, name], format!("{why}; name it there, or remove it"));
        }
        is_unused
    }

    /// Warns of the first statement of a policy that no route reaches.
    fn unreachable_statement(&mut self, name: &str) {
        let Some(definition) = self.policies.definitions.get(name).cloned() else { return };
        let ends = |s: &Statement| is_unconditional(s) && s.then != Then::NextStatement;
        let Some(at) = definition.statements.iter().position(ends) else { return };
        let behind = definition.statements.len() - at - 1;
        if behind == 0 {
            return;
        }
        let what = match definition.statements[at].then {
            Then::Accept => "accepts every route",
            Then::Reject => "rejects every route",
            Then::NextStatement | Then::NextPolicy => "passes every route to the next policy",
        };
        let called = |at: usize| match definition.statements[at].name.as_str() {
            "" => format!("statement {}", at + 1),
            name => format!("statement \"{name}\""),
        };
        let more = match behind {
            1 => String::new(),
            2 => ", nor is the one behind it".into(),
            more => format!(", nor are the {} behind it", more - 1),
        };
        let message = format!(
            "{} is never tried{more}: {} before it has no condition and {what}; put it before that one, or remove it",
            called(at + 1),
            called(at)
        );
        self.warn(key!["policy", DEFINITION, name, "statement", at + 1], message);
    }

    /// Warns of the first policy of a list that no route reaches.
    pub(super) fn unreachable_policy(&mut self, names: &[String], place: &[Step]) {
        let decides = |name: &String| self.policies.definitions.get(name).is_some_and(|d| is_final(d));
        let Some(at) = names.iter().position(decides) else { return };
        let Some(next) = names.get(at + 1) else { return };
        let message = format!(
            "\"{next}\" is never tried: \"{}\" before it decides on every route; put it before that one, or remove it",
            names[at]
        );
        self.warn(&[place, key![at + 1]].concat(), message);
    }
}

/// Whether a statement holds for every route.
fn is_unconditional(statement: &Statement) -> bool {
    let Statement { conditions, prefix_conditions, validity, path, .. } = statement;
    conditions.is_empty() && prefix_conditions.is_empty() && validity.is_none() && path.is_none()
}

/// Whether a policy accepts or rejects every route, so that none reaches the next one of a list.
fn is_final(definition: &Definition) -> bool {
    for statement in &definition.statements {
        match statement.then {
            Then::NextPolicy => return false,
            Then::Accept | Then::Reject if is_unconditional(statement) => return true,
            Then::Accept | Then::Reject | Then::NextStatement => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::parse;

    const BASE: &str = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp.group.g]\ntype = \"internal\"\n\
                        neighbors = [\"192.0.2.1\"]\n";

    /// The warnings about a text behind two lines of `[router]` and four of a group: places and sentences.
    fn warnings(text: &str) -> Vec<(Option<(usize, usize)>, String)> {
        let config = parse(&format!("{BASE}{text}")).unwrap_or_else(|e| panic!("{e:?}"));
        config.warnings().into_iter().map(|warning| (warning.place, warning.message)).collect()
    }

    /// The one warning, which begins so.
    fn warned(text: &str, line: usize, begins: &str) {
        match &warnings(text)[..] {
            [(Some((at, _)), message)] => {
                assert!(*at == line && message.starts_with(begins), "{at}: {message}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn policies_and_sets_that_are_used_have_no_warning() {
        let text = "import = [\"p\", \"accept\"]\n\
                    [policy.prefix-set.s]\nprefixes = [\"10.0.0.0/8\"]\n\
                    [policy.community-set.c]\nmembers = [\"65001:1\"]\n\
                    [[policy.definition.p.statement]]\n\
                    conditions.match-prefix-set = \"s\"\nactions.policy-result = \"next-policy\"\n\
                    [[policy.definition.p.statement]]\n\
                    actions = { set-community = { remove-set = \"c\" }, policy-result = \"accept\" }\n";
        assert_eq!(warnings(text), []);
        // A group without neighbours is prepared for some.
        let prepared = "[bgp.group.later]\ntype = \"internal\"\nexport = [\"p\"]\n\
                        [[policy.definition.p.statement]]\nactions.policy-result = \"reject\"\n";
        assert_eq!(warnings(prepared), []);
    }

    #[test]
    fn unused_policies_and_sets_are_warned_of() {
        warned(
            "[[policy.definition.p.statement]]\nactions.policy-result = \"accept\"\n",
            7,
            "no list of a neighbour, a group or [fib.policy] names this policy",
        );
        for (kind, lines) in [
            ("prefix-set", "prefixes = [\"10.0.0.0/8\"]"),
            ("neighbor-set", "addresses = [\"192.0.2.1\"]"),
            ("community-set", "members = [\"65001:1\"]"),
            ("as-path-set", "origin = [65010]"),
        ] {
            warned(
                &format!("[policy.{kind}.s]\n{lines}\n"),
                7,
                "no condition and no action of a policy names this set",
            );
        }
    }

    #[test]
    fn empty_sets_are_warned_of() {
        for (kind, lines) in [
            ("prefix-set", "prefixes = []"),
            ("neighbor-set", "addresses = []"),
            ("community-set", "members = []"),
        ] {
            let text = format!(
                "import = [\"p\"]\n[policy.{kind}.s]\n{lines}\n[[policy.definition.p.statement]]\n\
                 conditions.match-{kind} = \"s\"\nactions.policy-result = \"accept\"\n"
            );
            warned(&text, 8, "this set has no members");
        }
    }

    #[test]
    fn statements_that_no_route_reaches_are_warned_of() {
        let policy = |first: &str| {
            format!(
                "import = [\"p\"]\n[[policy.definition.p.statement]]\nname = \"one\"\n{first}\n\
                 [[policy.definition.p.statement]]\nactions.policy-result = \"reject\"\n\
                 [[policy.definition.p.statement]]\nactions.policy-result = \"accept\"\n"
            )
        };
        let all = "statement 2 is never tried, nor is the one behind it: statement \"one\" before it has no condition and accepts \
                   every route";
        // The last statement is behind the second one, and named with the first.
        warned(&policy("actions.policy-result = \"accept\""), 11, all);
        let condition = "conditions.origin-eq = \"igp\"\nactions.policy-result = \"accept\"";
        warned(
            &policy(condition),
            14,
            "statement 3 is never tried: statement 2 before it has no condition and rejects",
        );
        let passes = "actions.policy-result = \"next-policy\"";
        warned(
            &policy(passes),
            11,
            "statement 2 is never tried, nor is the one behind it: statement \"one\" before it has no \
                                    condition and passes every route to the next policy",
        );
    }

    #[test]
    fn policies_of_a_list_that_no_route_reaches_are_warned_of() {
        warned(
            "import = [\"reject\", \"accept\"]\n",
            7,
            "\"accept\" is never tried: \"reject\" before it decides on every",
        );
        let list = |actions: &str| {
            format!("import = [\"p\", \"accept\"]\n[[policy.definition.p.statement]]\n{actions}\n")
        };
        assert_eq!(warnings(&list("actions.set-med = 7")), []);
        assert_eq!(warnings(&list("conditions.origin-eq = \"igp\"\nactions.policy-result = \"accept\"")), []);
        warned(
            &list("actions.policy-result = \"accept\""),
            7,
            "\"accept\" is never tried: \"p\" before it decides",
        );
    }

    #[test]
    fn many_warnings_are_named_in_part() {
        let sets = (0..30).map(|n| format!("[policy.prefix-set.s{n}]\nprefixes = [\"10.{n}.0.0/16\"]\n"));
        let all = warnings(&sets.collect::<String>());
        assert_eq!(all.len(), 21);
        assert_eq!(all[20], (None, "10 more policies, statements and sets have no effect".into()));
    }
}
