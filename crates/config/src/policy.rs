//! The `[policy]` tables: names are found, texts are read, and a peer's list becomes a compiled policy.

mod no_effect;

use super::FibPolicy;
use super::check::Checker;
use super::diagnosis::{Step, key, nearest};
use super::{file, list_file};
use no_effect::{DEFINITION, Used};
use ribtide_policy::{
    Actions, AsPathSet, ChangeCommunities, CommunitySet, Condition, Definition, GracefulShutdown, Match, Med,
    Named, Numbers, PathCondition, Policy, PrefixCondition, PrefixRange, PrefixSet, Prepend,
    PresenceCondition, SetNextHop, Sources, Statement, Then, ValidityCondition,
};
use ribtide_prefix::{AfiSafi, AnyPrefix};
use ribtide_rpki::{PathState, Validity};
use ribtide_wire::bgp::attribute::Origin;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// What the `[policy]` tables define, by name.
#[derive(Default)]
pub(super) struct Policies {
    prefix_sets: BTreeMap<String, Arc<Named<PrefixSet>>>,
    neighbor_sets: BTreeMap<String, Arc<Named<PrefixSet>>>,
    community_sets: BTreeMap<String, Arc<Named<CommunitySet>>>,
    as_path_sets: BTreeMap<String, Arc<Named<AsPathSet>>>,
    definitions: BTreeMap<String, Arc<Definition>>,
    /// What is used of these.
    used: Used,
    /// Lists that were compiled already: peers with the same list share it.
    compiled: Vec<(Vec<String>, bool, GracefulShutdown, Arc<Policy>)>,
}

/// The direction of routes that a list of policies is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    Import,
    Export,
}

impl Checker {
    /// Reads the tables; from then on lists can be compiled.
    pub(super) fn policies(&mut self, file: &file::Policy, local_asn: u32, folder: &Path) {
        for (name, set) in &file.prefix_set {
            let set = Named::new(name, self.prefix_set(name, set, folder));
            self.policies.prefix_sets.insert(name.clone(), set);
        }
        for (name, set) in &file.neighbor_set {
            let set =
                self.addresses(key!["policy", "neighbor-set", name.as_str(), "addresses"], &set.addresses);
            self.policies.neighbor_sets.insert(name.clone(), Named::new(name, set));
        }
        for (name, set) in &file.community_set {
            let set = self.each(key!["policy", "community-set", name.as_str(), "members"], &set.members);
            self.policies.community_sets.insert(name.clone(), Named::new(name, set));
        }
        for (name, set) in &file.as_path_set {
            let at = key!["policy", "as-path-set", name.as_str()];
            let mut origin = self.amounts(&under(at, "origin"), &set.origin);
            origin.extend(self.origin_file(at, set.origin_file.as_deref(), folder));
            let read = AsPathSet {
                origin: origin.into_iter().collect(),
                neighbor: self.amounts(&under(at, "neighbor"), &set.neighbor).into_iter().collect(),
                contains: self.amounts(&under(at, "contains"), &set.contains).into_iter().collect(),
                regex: self.each(&under(at, "regex"), &set.regex),
            };
            let empty = [&set.origin, &set.neighbor, &set.contains].iter().all(|list| list.is_empty());
            if empty && set.regex.is_empty() && set.origin_file.is_none() {
                self.problem(
                    at,
                    "this set holds no path; write origin, origin-file, neighbor, contains or regex",
                );
            }
            self.policies.as_path_sets.insert(name.clone(), Named::new(name, read));
        }
        for built_in in Definition::built_in() {
            self.policies.definitions.insert(built_in.name.clone(), built_in.into());
        }
        for (name, definition) in &file.definition {
            let at: &[Step] = key!["policy", "definition", name.as_str()];
            if self.policies.definitions.contains_key(name) {
                self.problem(at, format!("\"{name}\" is a built-in policy; write another name"));
            }
            if definition.statement.is_empty() {
                let write = format!("[[policy.definition.{name}.statement]]");
                self.problem(at, format!("this policy has no statement; write at least one {write} table"));
            }
            let statements = definition.statement.iter().enumerate();
            let statements = statements
                .map(|(i, s)| self.statement(&[at, key!["statement", i]].concat(), s, local_asn))
                .collect();
            let definition = Definition { name: name.clone(), statements };
            self.policies.definitions.insert(name.clone(), definition.into());
        }
    }

    /// Warns of what the tables define without effect, when all lists are compiled.
    pub(super) fn policies_without_effect(&mut self, file: &file::File) {
        let groups = file.bgp.iter().flat_map(|bgp| bgp.group.values());
        let lists = groups.flat_map(|group| [&group.import, &group.export, &group.unsuppress]);
        self.unused_and_unreachable(&file.policy, lists.flatten().flatten());
    }

    /// Compiles a peer's list; without one, RFC 8212 or its opposite for internal peers.
    pub(super) fn policy(
        &mut self,
        direction: Direction,
        names: Option<&[String]>,
        external: bool,
        graceful_shutdown: GracefulShutdown,
        place: &[Step],
    ) -> Arc<Policy> {
        if names.is_some_and(<[String]>::is_empty) {
            self.problem(
                place,
                "the list of policies is empty; write [\"accept\"] or [\"reject\"], or leave it out",
            );
        }
        let policy = self.compile(names.unwrap_or_default(), external, graceful_shutdown, place);
        if policy.sets_source() {
            self.problem(
                place,
                "a policy of this list has set-source, which means something only where routes are installed; use it in \
                 [fib.policy] or [vrf.NAME.policy]",
            );
        }
        for (tests, name, state) in
            [(policy.tests_validity(), "rpki", "not-found"), (policy.tests_path(), "aspa", "unknown")]
        {
            let message = match direction {
                _ if !tests => continue,
                Direction::Import if self.validates => continue,
                Direction::Import => format!(
                    "a policy of this list tests {name}, and there is no [rpki] table, so every route would be {state}; add one",
                ),
                Direction::Export => format!(
                    "a policy of this list tests {name}, which works in import of neighbours only; set a community there, and \
                     match that here",
                ),
            };
            self.problem(place, message);
        }
        if direction == Direction::Import && !policy.presence_sets().is_empty() {
            self.problem(
                place,
                "a policy of this list has routes-exist or routes-absent, which work in export of neighbours only; use it there",
            );
        }
        if direction == Direction::Import && policy.sets_next_hop(SetNextHop::Own) {
            self.problem(
                place,
                "a policy of this list sets the next hop to \"self\", which means something only where routes are sent; \
                 use it in export, or write \"peer-address\" or an address there",
            );
        }
        if direction == Direction::Export && policy.sets_next_hop(SetNextHop::Peer) {
            self.problem(
                place,
                "a policy of this list sets the next hop to \"peer-address\", which means something only where routes come \
                 from; use it in import, or write \"self\" or an address there",
            );
        }
        policy
    }

    /// Compiles the lists for routes of a VRF on their way to the FIB, which are at `at`.
    pub(super) fn fib_policy(&mut self, at: &[Step], file: &file::FibPolicy) -> FibPolicy {
        let file::FibPolicy { connected, statics, kernel, bgp } = file;
        FibPolicy {
            connected: self.of_fib(at, "connected", connected),
            statics: self.of_fib(at, "static", statics),
            kernel: self.of_fib(at, "kernel", kernel),
            bgp: self.of_fib(at, "bgp", bgp),
            source4: None,
            source6: None,
        }
    }

    fn of_fib(&mut self, at: &[Step], protocol: &str, names: &Option<Vec<String>>) -> Option<Arc<Policy>> {
        let place = &[at, key![protocol]].concat();
        let policy = self.compile(names.as_ref()?, false, GracefulShutdown::Off, place);
        if let Some(what) = policy.beyond_fib(protocol == "bgp") {
            let message = format!(
                "a policy of this list has {what}, which is not for routes on their way to the FIB: there, conditions are \
                 match-prefix-set, afi-safi-in and (for bgp) route-type, actions set-source and policy-result"
            );
            self.problem(place, message);
        }
        Some(policy)
    }

    /// The policy of a list of names. Where it does not decide, routes of `external` peers are rejected, and others
    /// accepted.
    fn compile(
        &mut self,
        names: &[String],
        external: bool,
        graceful_shutdown: GracefulShutdown,
        place: &[Step],
    ) -> Arc<Policy> {
        self.unreachable_policy(names, place);
        let compiled = self
            .policies
            .compiled
            .iter()
            .find(|(n, e, g, _)| n == names && (*e, *g) == (external, graceful_shutdown));
        if let Some((.., policy)) = compiled {
            return policy.clone();
        }
        let mut definitions = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let found =
                find(&self.policies.definitions, name, "policy", "[[policy.definition.NAME.statement]]");
            self.policies.used.insert((DEFINITION, name.clone()));
            definitions.extend(self.or_problem(&[place, key![i]].concat(), found));
        }
        let policy = Policy::with_graceful_shutdown(definitions, external, graceful_shutdown);
        let policy = Arc::new(policy);
        self.policies.compiled.push((names.to_vec(), external, graceful_shutdown, policy.clone()));
        policy
    }

    fn prefix_set(&mut self, name: &str, set: &file::PrefixSet, folder: &Path) -> PrefixSet {
        let at = key!["policy", "prefix-set", name];
        if set.prefixes.is_none() && set.file.is_none() {
            self.problem(at, "this set is not given; write prefixes = [\"192.0.2.0/24\"] or file = \"PATH\"");
        }
        let mut ranges: Vec<PrefixRange> =
            self.each(&under(at, "prefixes"), set.prefixes.as_deref().unwrap_or_default());
        if let Some(path) = &set.file {
            let path = folder.join(path);
            match list_file::prefixes(&path) {
                Ok(read) => ranges.extend(read),
                Err(message) => self.problem(&under(at, "file"), message),
            }
            self.files.push(path);
        }
        PrefixSet::new(ranges)
    }

    /// The ASes in the file of an AS path set.
    fn origin_file(&mut self, at: &[Step], file: Option<&Path>, folder: &Path) -> Vec<Numbers> {
        let Some(path) = file.map(|file| folder.join(file)) else { return Vec::new() };
        let read = self.or_problem(&under(at, "origin-file"), list_file::asns(&path));
        self.files.push(path);
        read.unwrap_or_default()
    }

    fn statement(&mut self, at: &[Step], file: &file::Statement, local_asn: u32) -> Statement {
        let (conditions, prefix_conditions) = self.conditions(&under(at, "conditions"), &file.conditions);
        Statement {
            name: file.name.clone(),
            conditions,
            prefix_conditions,
            validity: file.conditions.rpki.map(|name| ValidityCondition(validity(name))),
            path: file.conditions.aspa.map(|name| PathCondition(path_state(name))),
            actions: self.actions(&under(at, "actions"), &file.actions, local_asn),
            then: match file.actions.policy_result {
                Some(file::PolicyResult::Accept) => Then::Accept,
                Some(file::PolicyResult::Reject) => Then::Reject,
                Some(file::PolicyResult::NextStatement) | None => Then::NextStatement,
                Some(file::PolicyResult::NextPolicy) => Then::NextPolicy,
            },
        }
    }

    fn conditions(&mut self, at: &[Step], file: &file::Conditions) -> (Vec<Condition>, Vec<PrefixCondition>) {
        let file::Conditions {
            match_prefix_set,
            match_neighbor_set,
            match_community_set,
            match_as_path_set,
            next_hop_in,
            afi_safi_in,
            origin_eq,
            route_type,
            as_path_length,
            med,
            local_pref,
            routes_exist,
            routes_absent,
            // They need the prefix, or the table of records, too.
            rpki: _,
            aspa: _,
        } = file;
        let mut all = Vec::new();
        // The cheap ones first: the first that does not hold ends the statement.
        all.extend(
            afi_safi_in
                .as_ref()
                .map(|list| Condition::AfiSafiIn(list.iter().copied().map(afi_safi).collect())),
        );
        all.extend(route_type.map(|kind| Condition::RouteType(kind.into())));
        all.extend(origin_eq.map(|name| Condition::OriginEq(origin(name))));
        type Make = fn(Numbers) -> Condition;
        for (name, amount, make) in [
            ("local-pref", local_pref, Condition::LocalPref as Make),
            ("med", med, Condition::Med as Make),
            ("as-path-length", as_path_length, Condition::AsPathLength as Make),
        ] {
            let numbers = amount.as_ref().map(|amount| self.amount(&under(at, name), amount));
            all.extend(numbers.flatten().map(make));
        }
        for (key, name, absent) in
            [("routes-exist", routes_exist, false), ("routes-absent", routes_absent, true)]
        {
            let Some(name) = name else { continue };
            let set = self.prefix_set_named(name, &under(at, key));
            all.extend(set.map(|set| Condition::Presence(PresenceCondition { set, absent, present: None })));
        }
        if let Some((set, how)) = self.named(at, "neighbor-set", match_neighbor_set, |p| &p.neighbor_sets) {
            all.push(Condition::NeighborSet(set, how));
        }
        if let Some(list) = next_hop_in {
            let set = self.addresses(&under(at, "next-hop-in"), list);
            all.push(Condition::NextHopIn(Named::new(list.join(" "), set)));
        }
        if let Some((set, how)) = self.named(at, "community-set", match_community_set, |p| &p.community_sets)
        {
            all.push(Condition::CommunitySet(set, how));
        }
        if let Some((set, how)) = self.named(at, "as-path-set", match_as_path_set, |p| &p.as_path_sets) {
            all.push(Condition::AsPathSet(set, how));
        }
        let prefix = self.named(at, "prefix-set", match_prefix_set, |p| &p.prefix_sets);
        let prefix = prefix.map(|(set, how)| PrefixCondition { set, invert: how == Match::Invert });
        (all, prefix.into_iter().collect())
    }

    /// The prefix set of this name.
    pub(super) fn prefix_set_named(&mut self, name: &str, at: &[Step]) -> Option<Arc<Named<PrefixSet>>> {
        let write = format!("[policy.prefix-set.{name}]");
        let found = find(&self.policies.prefix_sets, name, "prefix-set", &write);
        self.policies.used.insert(("prefix-set", name.into()));
        self.or_problem(at, found)
    }

    /// The set that a `match-…-set` condition names, and how to compare with it.
    fn named<T>(
        &mut self,
        at: &[Step],
        kind: &'static str,
        file: &Option<file::MatchSet>,
        sets: impl Fn(&Policies) -> &BTreeMap<String, Arc<T>>,
    ) -> Option<(Arc<T>, Match)> {
        let at = under(at, &format!("match-{kind}"));
        let (name, options) = match file.as_ref()? {
            file::MatchSet::Name(name) => (name, None),
            file::MatchSet::Table(table) => (&table.set, table.match_set_options),
        };
        let how = match options {
            None | Some(file::MatchOptions::Any) => Match::Any,
            Some(file::MatchOptions::All) => Match::All,
            Some(file::MatchOptions::Invert) => Match::Invert,
        };
        if how == Match::All && kind != "community-set" {
            let message = format!(
                "a route has one of these only, so that it cannot be all of a {kind}; write any or invert"
            );
            self.problem(&under(&at, "match-set-options"), message);
        }
        let found = find(sets(&self.policies), name, kind, &format!("[policy.{kind}.{name}]"));
        self.policies.used.insert((kind, name.clone()));
        self.or_problem(&at, found).map(|set| (set, how))
    }

    fn actions(&mut self, at: &[Step], file: &file::Actions, local_asn: u32) -> Actions {
        let med = file.set_med.as_ref().and_then(|med| match med {
            file::SetMed::Number(n) => Some(Med::Set(*n)),
            file::SetMed::Change(text) => {
                let number = |rest: &str| {
                    rest.bytes().all(|b| b.is_ascii_digit()).then(|| rest.parse().ok()).flatten()
                };
                let more = text.strip_prefix('+').and_then(number).map(Med::Add);
                let change = more.or_else(|| text.strip_prefix('-').and_then(number).map(Med::Subtract));
                if change.is_none() {
                    let message = format!(
                        "\"{text}\" is no MED; write a number, or \"+10\" or \"-10\" for so much more or less"
                    );
                    self.problem(&under(at, "set-med"), message);
                }
                change
            }
        });
        let next_hop = file.set_next_hop.as_deref().and_then(|text| match text {
            "self" => Some(SetNextHop::Own),
            "peer-address" => Some(SetNextHop::Peer),
            text => {
                let address = text.parse().ok().filter(|a: &IpAddr| !a.is_unspecified() && !a.is_multicast());
                if address.is_none() {
                    let message = format!("\"{text}\" is no next hop; write an address, \"self\" (in export) or \"peer-address\" (in import)");
                    self.problem(&under(at, "set-next-hop"), message);
                }
                address.map(SetNextHop::Address)
            }
        });
        let prepend = file.set_as_path_prepend.as_ref().map(|prepend| {
            let count = prepend.repeat_n.unwrap_or(1);
            let asn = prepend.asn.unwrap_or(local_asn);
            let at = under(at, "set-as-path-prepend");
            if count == 0 {
                self.problem(
                    &under(&at, "repeat-n"),
                    "repeat-n is how often the AS is put before the path, 1 to 255",
                );
            }
            if asn == 0 {
                self.problem(
                    &under(&at, "asn"),
                    "AS 0 is reserved (RFC 7607); write another, or leave it out for ours",
                );
            }
            Prepend { asn, count }
        });
        let addresses = match &file.set_source {
            None => &[][..],
            Some(file::SetSource::One(address)) => std::slice::from_ref(address),
            Some(file::SetSource::Some(list)) => list,
        };
        let (v4, v6) = self.sources(&under(at, "set-source"), addresses);
        Actions {
            source: Sources { v4, v6 },
            origin: file.set_route_origin.map(origin),
            local_pref: file.set_local_pref,
            med,
            aigp: file.set_aigp,
            next_hop,
            prepend,
            communities: self.change_communities(&under(at, "set-community"), &file.set_community),
        }
    }

    fn change_communities(&mut self, at: &[Step], file: &file::SetCommunity) -> ChangeCommunities {
        let file::SetCommunity { replace, remove, remove_set, add } = file;
        if replace.is_some() && (!remove.is_empty() || remove_set.is_some() || !add.is_empty()) {
            let message = "replace takes all communities away and puts its own; write it alone, or remove and add without it";
            self.problem(&under(at, "replace"), message);
        }
        let mut removed = Vec::new();
        if !remove.is_empty() {
            let set: CommunitySet = self.each(&under(at, "remove"), remove);
            removed.push(Named::new(remove.join(" "), set));
        }
        if let Some(name) = remove_set {
            let found = find(
                &self.policies.community_sets,
                name,
                "community-set",
                &format!("[policy.community-set.{name}]"),
            );
            removed.extend(self.or_problem(&under(at, "remove-set"), found));
            self.policies.used.insert(("community-set", name.clone()));
        }
        let (name, add) = if let Some(replace) = replace { ("replace", replace) } else { ("add", add) };
        ChangeCommunities {
            remove_all: replace.is_some(),
            remove: removed,
            add: self.each(&under(at, name), add),
        }
    }

    fn or_problem<T>(&mut self, at: &[Step], found: Result<T, String>) -> Option<T> {
        found.map_err(|message| self.problem(at, message)).ok()
    }

    /// The texts of a list, each read by itself.
    fn each<T: FromStr<Err = String>, C: FromIterator<T>>(&mut self, at: &[Step], texts: &[String]) -> C {
        let read = |(i, text): (usize, &String)| self.or_problem(&[at, key![i]].concat(), text.parse());
        texts.iter().enumerate().filter_map(read).collect()
    }

    fn amounts(&mut self, at: &[Step], amounts: &[file::Amount]) -> Vec<Numbers> {
        let read = |(i, amount)| self.amount(&[at, key![i]].concat(), amount);
        amounts.iter().enumerate().filter_map(read).collect()
    }

    fn amount(&mut self, at: &[Step], amount: &file::Amount) -> Option<Numbers> {
        match amount {
            file::Amount::Number(n) => Some(Numbers::one(*n)),
            file::Amount::Range(text) => self.or_problem(at, text.parse()),
        }
    }

    /// Addresses and ranges of addresses, as the set of all hosts in them.
    fn addresses(&mut self, at: &[Step], texts: &[String]) -> PrefixSet {
        let hosts = |text: &str| {
            let prefix: AnyPrefix = text.parse().ok()?;
            let width = AnyPrefix::host(prefix.addr()).len();
            PrefixRange::new(prefix, prefix.len(), width)
        };
        let mut ranges = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let message = || {
                format!(
                    "\"{text}\" is no address; write one such as 192.0.2.1, or a range such as 192.0.2.0/24"
                )
            };
            ranges.extend(self.or_problem(&[at, key![i]].concat(), hosts(text).ok_or_else(message)));
        }
        PrefixSet::new(ranges)
    }
}

fn under(at: &[Step], name: &str) -> Vec<Step> {
    [at, key![name]].concat()
}

/// What has this name, or a sentence with the name that was probably meant.
fn find<T: Clone>(known: &BTreeMap<String, T>, name: &str, kind: &str, write: &str) -> Result<T, String> {
    known.get(name).cloned().ok_or_else(|| match nearest(name, known.keys().map(String::as_str)) {
        Some(meant) => format!("there is no {kind} \"{name}\"; did you mean \"{meant}\"?"),
        None => format!("there is no {kind} \"{name}\"; define it with {write}"),
    })
}

pub(crate) fn afi_safi(name: file::FamilyName) -> AfiSafi {
    match name {
        file::FamilyName::Ipv4Unicast => AfiSafi::Ipv4Unicast,
        file::FamilyName::Ipv6Unicast => AfiSafi::Ipv6Unicast,
    }
}

fn validity(name: file::ValidityName) -> Validity {
    match name {
        file::ValidityName::Valid => Validity::Valid,
        file::ValidityName::Invalid => Validity::Invalid,
        file::ValidityName::NotFound => Validity::NotFound,
    }
}

fn path_state(name: file::PathStateName) -> PathState {
    match name {
        file::PathStateName::Valid => PathState::Valid,
        file::PathStateName::Invalid => PathState::Invalid,
        file::PathStateName::Unknown => PathState::Unknown,
    }
}

fn origin(name: file::OriginName) -> Origin {
    match name {
        file::OriginName::Igp => Origin::Igp,
        file::OriginName::Egp => Origin::Egp,
        file::OriginName::Incomplete => Origin::Incomplete,
    }
}

#[cfg(test)]
mod tests;
