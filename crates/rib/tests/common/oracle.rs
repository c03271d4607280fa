//! The expected FIB and the expected answers to BGP, from the text of `docs/adr/0020-next-hop-resolution.md` alone. Every
//! call evaluates everything from scratch: all candidates, all groups, all queries, and the graph that they form.
//!
//! Written without knowledge of the resolver. Numbers of sections below are those of the ADR. Where it leaves a choice, the
//! comment says "reading".

use super::*;

/// The most recursive look-ups of a chain (section 4, last paragraph).
const MAX_LOOK_UPS: usize = 16;

/// Whether a group counts as evaluated only when all of its queries are answered, also those that make no difference any
/// more: of backup members while a member resolves, of the condition while no member does. Section 4 leaves it open (reading).
const GROUP_WAITS_FOR_ALL: bool = false;

/// The last routes of sources and states of interfaces.
#[derive(Default, Clone, Debug)]
pub struct Oracle {
    pub config: RibConfig,
    /// By prefix and source; static ones by distance too.
    pub routes: BTreeMap<(AnyPrefix, Source, u8), RouteSet>,
    pub interfaces: BTreeMap<IfIndex, InterfaceEvent>,
    /// Gateways that BFD declared down.
    pub unusable: BTreeSet<(IpAddr, Option<IfIndex>)>,
}

/// Section 1: a query, and the kind of the route that needs it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Query {
    /// Is the address in a connected prefix, on this interface if one is named?
    OnLink { address: IpAddr, interface: Option<IfIndex> },
    /// By the longest match. `own` is the prefix of the route itself, where it holds the address (section 2, rule 3);
    /// other routes share the query of BGP.
    Recursive { address: IpAddr, interface: Option<IfIndex>, own: Option<AnyPrefix> },
    /// Is the interface up?
    AsGiven { gateway: Option<IpAddr>, interface: Option<IfIndex>, onlink: bool },
    /// [`Track::Prefix`]: does a route for exactly this prefix resolve? `own`: it is the route's own prefix.
    Exactly { prefix: AnyPrefix, own: bool },
}

/// An outgoing hop. `weight` is that of the underlying route, if it came from one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hop {
    gateway: Option<IpAddr>,
    interface: IfIndex,
    onlink: bool,
    weight: Option<u16>,
}

/// Why a query is unresolved, as far as tests check it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    Circle,
    TooDeep,
    OwnAddress,
    GatewayDown,
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    /// Without hops, it is a blackhole.
    Resolved {
        hops: Vec<Hop>,
        way: Way,
        level: usize,
    },
    Unresolved(Reason),
}

/// Section 3, the next hops of a route. Routes with the same queries and weights share one group (ADR 6).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Group {
    blackhole: bool,
    /// Section 2, rule 5: no query resolves by it.
    unreachable: bool,
    /// In the order (gateway, interface), with the weight of each.
    members: Vec<(Query, u16)>,
    backup: Vec<(Query, u16)>,
    condition: Option<Query>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Content {
    fib: FibGroup,
    way: Way,
    level: usize,
}

/// How far it is, and whether a route of BGP without AIGP on the way hides a part (RFC 7311 sections 3.4.3, 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Way {
    cost: u32,
    partial: bool,
}

impl Way {
    /// The way of a route with this metric, whose next hops are so far away.
    fn of(candidate: &Candidate, next_hops: Way) -> Way {
        if candidate.protocol.source() != Source::Bgp {
            return Way { cost: candidate.metric, ..next_hops };
        }
        let cost = (u64::from(candidate.metric) + u64::from(next_hops.cost)).min(u64::from(u32::MAX)) as u32;
        Way { cost, partial: next_hops.partial || candidate.metric == 0 }
    }

    /// The way of several members.
    fn of_all(ways: Vec<Way>) -> Way {
        let cost = ways.iter().map(|way| way.cost).min().unwrap_or_default();
        Way { cost, partial: ways.iter().any(|way| way.partial) }
    }
}

/// A candidate of a prefix.
struct Candidate {
    protocol: Protocol,
    distance: u8,
    metric: u32,
    /// Of a connected one: the interfaces that have the subnet.
    connected: Option<Vec<IfIndex>>,
    group: Group,
}

/// A case that a history contains, so that a test can check its generator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Case {
    /// A route whose own prefix was passed over (section 2, rule 3).
    SelfReference,
    /// A group of which one member resolves and another does not.
    PartialFailure,
    /// A group that stands on its backup members.
    OnBackup,
    /// A group with more hops than `max-ecmp`.
    Cut,
    /// A query that would be answered at a level beyond the limit.
    TooDeep,
    /// A circle (section 4) in which a group is decided by its support from outside.
    CircleWithSupport,
    /// A circle in which none is.
    CircleWithoutSupport,
    /// Two circles at the same time.
    TwoCircles,
    /// A further evaluation found circles after circles were handled.
    CircleAfterCircle,
    /// A backup member in a circle.
    CircleThroughBackup,
    /// A tracked condition in a circle.
    CircleThroughCondition,
    /// A query that names an interface in a circle.
    CircleTiedToInterface,
    /// A query that passed over the group that blocked it and found a less specific route.
    PassedOver,
}

/// The state of one evaluation: what is evaluated so far.
#[derive(Clone)]
struct Evaluated {
    answers: BTreeMap<Query, Answer>,
    /// `None`: the group is evaluated not to resolve.
    groups: BTreeMap<Group, Option<Content>>,
    /// The groups that each query passes over because of a circle (section 4.2).
    passed: BTreeSet<(Query, Group)>,
}

/// How far a walk came.
enum Walk {
    Answered(Answer),
    /// By this candidate of this prefix.
    Blocked(AnyPrefix, usize),
}

/// A node of the graph of section 4.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Query(Query),
    Group(Group),
}

/// Everything that one evaluation finds out.
pub struct Evaluation {
    table: BTreeMap<AnyPrefix, Vec<Candidate>>,
    /// Section 2.1: the router's addresses, on interfaces in whatever state.
    own: BTreeSet<AnyPrefix>,
    evaluated: Evaluated,
    pub cases: BTreeSet<Case>,
}

impl Oracle {
    pub fn announce(&mut self, prefix: AnyPrefix, set: RouteSet) {
        let source = set.protocol.source();
        let distance = if source == Source::Static { set.distance } else { 0 };
        self.routes.insert((prefix, source, distance), set);
    }

    fn is_up(&self, interface: Option<IfIndex>) -> Option<IfIndex> {
        interface.filter(|i| self.interfaces.get(i).is_some_and(|state| state.up))
    }

    /// Subnets and own addresses of interfaces that are up. Link-local ones are every interface's own and no routes.
    fn connected(&self) -> BTreeMap<AnyPrefix, BTreeSet<IfIndex>> {
        let mut all: BTreeMap<AnyPrefix, BTreeSet<IfIndex>> = BTreeMap::new();
        for state in self.interfaces.values().filter(|state| state.up) {
            for (address, subnet) in state.addresses.iter().filter(|(address, _)| !is_link_local(*address)) {
                all.entry(*subnet).or_default().insert(state.index);
                all.entry(AnyPrefix::host(*address)).or_default().insert(state.index);
            }
        }
        all
    }

    /// Section 2: the candidates of every prefix in the order of selection (distance, metric, protocol; distance 255 never).
    fn table(&self) -> BTreeMap<AnyPrefix, Vec<Candidate>> {
        let mut table: BTreeMap<AnyPrefix, Vec<Candidate>> = BTreeMap::new();
        for ((prefix, ..), set) in self.routes.iter().filter(|(_, set)| set.distance != 255) {
            table.entry(*prefix).or_default().push(Candidate {
                protocol: set.protocol,
                distance: set.distance,
                metric: set.metric,
                connected: None,
                group: group_of(*prefix, set),
            });
        }
        for (prefix, interfaces) in self.connected() {
            let hops: Vec<ReceivedHop> = interfaces.iter().map(|i| dev(*i)).collect();
            table.entry(prefix).or_default().push(Candidate {
                protocol: Protocol::Connected,
                distance: 0,
                metric: 0,
                connected: Some(interfaces.into_iter().collect()),
                group: group_of(prefix, &set(Protocol::Connected, &hops)),
            });
        }
        for candidates in table.values_mut() {
            candidates.sort_by_key(|c| (c.distance, c.metric, c.protocol));
        }
        table
    }

    /// Answers all queries of all candidates, and those that BGP registered.
    pub fn evaluate(&self, tracked: &[TrackedNextHop]) -> Evaluation {
        let table = self.table();
        let groups: BTreeSet<Group> = table.values().flatten().map(|c| c.group.clone()).collect();
        let mut queries: BTreeSet<Query> = groups.iter().flat_map(queries_of).collect();
        queries.extend(tracked.iter().map(|next_hop| query_of_bgp(*next_hop)));
        let evaluated =
            Evaluated { answers: BTreeMap::new(), groups: BTreeMap::new(), passed: BTreeSet::new() };
        let all = self.interfaces.values().flat_map(|state| &state.addresses);
        let own = all.map(|(address, _)| AnyPrefix::host(*address));
        let loopbacks = self.interfaces.values().filter(|state| state.loopback);
        let subnets = loopbacks.flat_map(|state| &state.addresses).map(|(_, subnet)| *subnet);
        let own = own.chain(subnets).collect();
        let mut evaluation = Evaluation { table, own, evaluated, cases: BTreeSet::new() };
        evaluation.run(self, &groups, &queries);
        evaluation
    }

    /// Section 5: the same where BGP's route of the prefix is by this next hop alone, for a path that BGP has not chosen.
    fn assuming(&self, next_hop: TrackedNextHop) -> Oracle {
        let mut assuming = self.clone();
        let route = next_hop.exclude.map(|prefix| (prefix, Source::Bgp, 0));
        if let Some(set) = route.and_then(|route| assuming.routes.get_mut(&route)) {
            set.next_hops = NextHops::Via(vec![ReceivedHop::gateway(next_hop.address)]);
            (set.backup, set.backup_recursion, set.track) = (Vec::new(), false, None);
            set.allow_recursion = true;
        }
        assuming
    }

    /// The notification of a next hop that BGP registered for the paths of a prefix.
    pub fn notified_for_path(&self, next_hop: TrackedNextHop) -> Reachability {
        self.assuming(next_hop).evaluate(&[next_hop]).notified(next_hop)
    }

    /// The FIB that should be: of each prefix the first candidate that resolves.
    pub fn fib(&self) -> BTreeMap<AnyPrefix, (Protocol, FibGroup)> {
        self.evaluate(&[]).fib()
    }

    /// Section 3, last sentence: the hops to a gateway that BFD declared down are dropped.
    fn without_unusable(&self, address: IpAddr, answer: Answer) -> Answer {
        let Answer::Resolved { mut hops, way, level } = answer else { return answer };
        let blackhole = hops.is_empty();
        hops.retain(|hop| {
            hop.gateway != Some(address) || !self.unusable.contains(&(address, Some(hop.interface)))
        });
        if self.unusable.contains(&(address, None)) || (hops.is_empty() && !blackhole) {
            return Answer::Unresolved(Reason::GatewayDown);
        }
        Answer::Resolved { hops, way, level }
    }
}

impl Evaluation {
    /// What the dataplanes have.
    pub fn fib(&self) -> BTreeMap<AnyPrefix, (Protocol, FibGroup)> {
        let mut fib = BTreeMap::new();
        for (prefix, candidates) in &self.table {
            let resolved = |c: &Candidate| Some((c.protocol, self.evaluated.groups[&c.group].clone()?.fib));
            if let Some(route) = candidates.iter().find_map(resolved) {
                fib.insert(*prefix, route);
            }
        }
        fib
    }

    /// The notification of a next hop: RFC 4271 sections 9.1.2.1 and 9.1.2.2 e.
    pub fn notified(&self, next_hop: TrackedNextHop) -> Reachability {
        match self.evaluated.answers[&query_of_bgp(next_hop)] {
            Answer::Resolved { way: Way { cost, partial }, .. } => Reachability::Reachable { cost, partial },
            Answer::Unresolved(_) => Reachability::Unreachable,
        }
    }

    /// Why a next hop of BGP is unreachable.
    pub fn reason(&self, next_hop: TrackedNextHop) -> Option<Reason> {
        match self.evaluated.answers[&query_of_bgp(next_hop)] {
            Answer::Resolved { .. } => None,
            Answer::Unresolved(reason) => Some(reason),
        }
    }

    /// Section 4: evaluate, then circles, and again.
    fn run(&mut self, oracle: &Oracle, groups: &BTreeSet<Group>, queries: &BTreeSet<Query>) {
        for turn in 0.. {
            self.evaluate_all(oracle, groups, queries);
            let open: BTreeSet<Query> =
                queries.iter().filter(|q| !self.evaluated.answers.contains_key(q)).copied().collect();
            if open.is_empty() {
                break;
            }
            let circles = self.circles(oracle, groups, &open);
            assert!(!circles.is_empty(), "each query that remains is blocked");
            self.cases.extend((turn > 0).then_some(Case::CircleAfterCircle));
            self.cases.extend((circles.len() > 1).then_some(Case::TwoCircles));
            // Independently: each circle starts from what was evaluated before any of them.
            let before = self.evaluated.clone();
            let mut after = before.clone();
            for circle in circles {
                self.evaluated = before.clone();
                self.note_circle(&circle);
                self.circle(oracle, &circle);
                after.answers.append(&mut self.evaluated.answers);
                after.groups.append(&mut self.evaluated.groups);
                after.passed.append(&mut self.evaluated.passed);
            }
            self.evaluated = after;
        }
        assert!(groups.iter().all(|group| self.evaluated.groups.contains_key(group)));
        for group in groups {
            self.note_group(oracle, group);
        }
    }

    /// Section 4, first paragraph: "Evaluate all queries whose walk meets only evaluated groups, until none is left."
    fn evaluate_all(&mut self, oracle: &Oracle, groups: &BTreeSet<Group>, queries: &BTreeSet<Query>) {
        loop {
            let before = (self.evaluated.answers.len(), self.evaluated.groups.len());
            for group in groups {
                if !self.evaluated.groups.contains_key(group)
                    && let Some(content) = self.determined(oracle, group)
                {
                    self.evaluated.groups.insert(group.clone(), content);
                }
            }
            for query in queries {
                self.try_answer(oracle, *query);
            }
            if before == (self.evaluated.answers.len(), self.evaluated.groups.len()) {
                return;
            }
        }
    }

    /// Answers a query if its walk meets only evaluated groups.
    fn try_answer(&mut self, oracle: &Oracle, query: Query) {
        if !self.evaluated.answers.contains_key(&query)
            && let Walk::Answered(answer) = self.walk(oracle, query)
        {
            self.evaluated.answers.insert(query, answer);
        }
    }

    /// The strongly connected components of what is open that point at nothing outside themselves.
    fn circles(
        &self,
        oracle: &Oracle,
        groups: &BTreeSet<Group>,
        open: &BTreeSet<Query>,
    ) -> Vec<BTreeSet<Node>> {
        let mut edges: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
        for query in open {
            let Walk::Blocked(prefix, nth) = self.walk(oracle, *query) else {
                panic!("evaluated to the end");
            };
            let group = self.table[&prefix][nth].group.clone();
            edges.insert(Node::Query(*query), vec![Node::Group(group)]);
        }
        for group in groups.iter().filter(|group| !self.evaluated.groups.contains_key(group)) {
            let queries = queries_of(group).into_iter().filter(|query| open.contains(query));
            edges.insert(Node::Group(group.clone()), queries.map(Node::Query).collect());
        }
        let reached: BTreeMap<&Node, BTreeSet<&Node>> =
            edges.keys().map(|node| (node, reachable(&edges, node))).collect();
        let mut circles: Vec<BTreeSet<Node>> = Vec::new();
        for node in edges.keys() {
            let component: BTreeSet<&Node> =
                reached[node].iter().copied().filter(|other| reached[other].contains(node)).collect();
            // All that is reached from here is in the same component: it points at nothing else.
            if !component.is_empty() && component == reached[node] {
                let circle: BTreeSet<Node> = component.into_iter().cloned().collect();
                if !circles.contains(&circle) {
                    circles.push(circle);
                }
            }
        }
        circles
    }

    /// Section 4, "For each circle, independently".
    fn circle(&mut self, oracle: &Oracle, circle: &BTreeSet<Node>) {
        let groups =
            || circle.iter().filter_map(|node| if let Node::Group(g) = node { Some(g) } else { None });
        let queries =
            || circle.iter().filter_map(|node| if let Node::Query(q) = node { Some(*q) } else { None });

        // 1. Support from outside: every group that resolves by the members evaluated so far, all at once.
        let mut decided: BTreeMap<Group, Option<Content>> = BTreeMap::new();
        for group in groups() {
            if let Some(content) = self.by_evaluated_members(oracle, group) {
                decided.insert(group.clone(), Some(content));
            }
        }
        if !decided.is_empty() {
            self.cases.insert(Case::CircleWithSupport);
            self.evaluated.groups.append(&mut decided);
            return;
        }
        self.cases.insert(Case::CircleWithoutSupport);

        // 2. No support: the queries pass over what blocks them, all at once.
        let blocked: Vec<(Query, Group)> = queries()
            .filter_map(|query| match self.walk(oracle, query) {
                Walk::Blocked(prefix, nth) => Some((query, self.table[&prefix][nth].group.clone())),
                Walk::Answered(_) => None,
            })
            .collect();
        self.evaluated.passed.extend(blocked);
    }

    /// The answer of a query, or the group that blocks it.
    fn walk(&self, oracle: &Oracle, query: Query) -> Walk {
        match query {
            Query::AsGiven { gateway, interface, onlink } => {
                Walk::Answered(as_given(oracle, gateway, interface, onlink))
            }
            Query::OnLink { address, .. } if is_link_local(address) => {
                Walk::Answered(Answer::Unresolved(Reason::Other))
            }
            Query::OnLink { address, interface } => {
                let answer = self.on_link(address, interface);
                Walk::Answered(oracle.without_unusable(address, answer))
            }
            Query::Recursive { address, interface, own } => {
                match self.longest_match(oracle, query, address, interface, own) {
                    Walk::Answered(answer) => Walk::Answered(oracle.without_unusable(address, answer)),
                    blocked => blocked,
                }
            }
            Query::Exactly { prefix, own } => self.exactly(query, prefix, own),
        }
    }

    /// Prefixes that hold an address, from the longest to the shortest.
    fn covering(&self, address: IpAddr) -> Vec<(AnyPrefix, &[Candidate])> {
        let mut covering: Vec<(AnyPrefix, &[Candidate])> =
            self.table.iter().filter(|(p, _)| p.contains(address)).map(|(p, c)| (*p, &c[..])).collect();
        covering.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        covering
    }

    /// Section 1, kind "on link": a connected prefix that holds the address, whatever is more specific.
    fn on_link(&self, address: IpAddr, interface: Option<IfIndex>) -> Answer {
        if self.own.iter().any(|own| own.contains(address)) {
            return Answer::Unresolved(Reason::OwnAddress);
        }
        for (prefix, candidates) in self.covering(address) {
            for interfaces in candidates.iter().filter_map(|c| c.connected.as_ref()) {
                if let Some(answer) = connected_subnet(prefix, address, interface, interfaces) {
                    return answer;
                }
            }
        }
        Answer::Unresolved(Reason::Other)
    }

    /// Section 2.
    fn longest_match(
        &self,
        oracle: &Oracle,
        query: Query,
        address: IpAddr,
        interface: Option<IfIndex>,
        own: Option<AnyPrefix>,
    ) -> Walk {
        let mut reason = Reason::Other;
        // Rule 1.
        if self.own.iter().any(|own| own.contains(address)) {
            return Walk::Answered(Answer::Unresolved(Reason::OwnAddress));
        }
        for (prefix, candidates) in self.covering(address) {
            // Rule 6.
            if prefix.len() == 0 && !oracle.config.resolve_via_default {
                continue;
            }
            for (nth, candidate) in candidates.iter().enumerate() {
                if let Some(interfaces) = &candidate.connected {
                    // Rule 2.
                    match connected_subnet(prefix, address, interface, interfaces) {
                        Some(answer) => return Walk::Answered(answer),
                        None => break,
                    }
                }
                // Rule 3.
                if own == Some(prefix) {
                    continue;
                }
                // Section 4.2.
                if self.evaluated.passed.contains(&(query, candidate.group.clone())) {
                    reason = Reason::Circle;
                    continue;
                }
                let content = match self.evaluated.groups.get(&candidate.group) {
                    None => return Walk::Blocked(prefix, nth),
                    // Rule 4.
                    Some(None) => continue,
                    Some(Some(content)) => content,
                };
                let of_bgp = candidate.protocol.source() == Source::Bgp && candidate.group.blackhole;
                if of_bgp || candidate.group.unreachable {
                    return Walk::Answered(Answer::Unresolved(Reason::Other));
                }
                // Rule 5.
                let hops: Vec<Hop> = match &content.fib {
                    FibGroup::Hops(hops) => hops
                        .iter()
                        .filter(|hop| interface.is_none_or(|named| named == hop.interface))
                        .map(|hop| Hop {
                            gateway: Some(hop.gateway.unwrap_or(address)),
                            interface: hop.interface,
                            onlink: hop.onlink || hop.gateway.is_none(),
                            weight: Some(hop.weight),
                        })
                        .collect(),
                    _ => Vec::new(),
                };
                let blackhole = content.fib == FibGroup::Blackhole && interface.is_none();
                if hops.is_empty() && !blackhole {
                    break;
                }
                return Walk::Answered(answered(hops, Way::of(candidate, content.way), content.level));
            }
        }
        // Rule 7.
        Walk::Answered(Answer::Unresolved(reason))
    }

    /// [`Track::Prefix`], by the same rules at one prefix.
    fn exactly(&self, query: Query, prefix: AnyPrefix, own: bool) -> Walk {
        let mut reason = Reason::Other;
        let candidates = self.table.get(&prefix).filter(|_| !own);
        for (nth, candidate) in candidates.into_iter().flatten().enumerate() {
            if self.evaluated.passed.contains(&(query, candidate.group.clone())) {
                reason = Reason::Circle;
                continue;
            }
            match self.evaluated.groups.get(&candidate.group) {
                None => return Walk::Blocked(prefix, nth),
                Some(None) => continue,
                Some(Some(content)) => {
                    return Walk::Answered(answered(
                        Vec::new(),
                        Way::of(candidate, content.way),
                        content.level,
                    ));
                }
            }
        }
        Walk::Answered(Answer::Unresolved(reason))
    }

    /// Section 3, when what is evaluated settles it: whatever is still open makes no difference.
    fn determined(&self, oracle: &Oracle, group: &Group) -> Option<Option<Content>> {
        let open = |members: &[(Query, u16)]| {
            members.iter().any(|(query, _)| !self.evaluated.answers.contains_key(query))
        };
        let condition = group.condition.is_some_and(|c| !self.evaluated.answers.contains_key(&c));
        if GROUP_WAITS_FOR_ALL && (open(&group.members) || open(&group.backup) || condition) {
            return None;
        }
        if self.holds(group) == Some(false) {
            return Some(None);
        }
        if open(&group.members) {
            return None;
        }
        let content = match self.of_members(oracle, group) {
            Some(content) => Some(content),
            None if open(&group.backup) => return None,
            None => self.hops_of(oracle, &group.backup),
        };
        match content {
            None => Some(None),
            Some(content) => self.holds(group).map(|_| Some(content)),
        }
    }

    /// Section 4.1: what the group resolves to by the members evaluated so far; the others are dropped from it.
    fn by_evaluated_members(&self, oracle: &Oracle, group: &Group) -> Option<Content> {
        if self.holds(group) != Some(true) {
            return None;
        }
        self.of_members(oracle, group).or_else(|| self.hops_of(oracle, &group.backup))
    }

    /// Whether the tracked condition holds, where that is evaluated.
    fn holds(&self, group: &Group) -> Option<bool> {
        let Some(condition) = group.condition else { return Some(true) };
        let answer = self.evaluated.answers.get(&condition)?;
        Some(matches!(answer, Answer::Resolved { .. }))
    }

    /// What the group's members resolve to, without the backup ones.
    fn of_members(&self, oracle: &Oracle, group: &Group) -> Option<Content> {
        if group.blackhole || group.unreachable {
            return Some(Content { fib: FibGroup::Blackhole, way: Way::default(), level: 0 });
        }
        self.hops_of(oracle, &group.members)
    }

    /// Section 3: the hops of the members that are evaluated and resolved.
    fn hops_of(&self, oracle: &Oracle, members: &[(Query, u16)]) -> Option<Content> {
        let mut hops: Vec<FibHop> = Vec::new();
        let (mut level_of_hops, mut of_blackholes) = (0, None);
        let (mut to_hops, mut to_blackholes) = (Vec::new(), Vec::new());
        for (query, weight) in members {
            let Some(Answer::Resolved { hops: of_member, way, level }) = self.evaluated.answers.get(query)
            else {
                continue;
            };
            if of_member.is_empty() {
                of_blackholes = of_blackholes.max(Some(*level));
                to_blackholes.push(*way);
            } else {
                level_of_hops = level_of_hops.max(*level);
                to_hops.push(*way);
            }
            for hop in of_member {
                let (gateway, interface) = (hop.gateway, hop.interface);
                if hops.iter().any(|hop| (hop.gateway, hop.interface) == (gateway, interface)) {
                    continue;
                }
                let underlay = hop.weight.filter(|_| oracle.config.underlay_weights);
                let weight = underlay.unwrap_or((*weight).max(1));
                hops.push(FibHop { gateway, interface, weight, onlink: hop.onlink });
            }
        }
        if hops.is_empty() {
            let way = Way::of_all(to_blackholes);
            return of_blackholes.map(|level| Content { fib: FibGroup::Blackhole, way, level });
        }
        let hops = spread(hops, usize::from(oracle.config.max_ecmp));
        Some(Content { fib: FibGroup::Hops(hops), way: Way::of_all(to_hops), level: level_of_hops })
    }

    fn note_circle(&mut self, circle: &BTreeSet<Node>) {
        let inside = |query: &Query| circle.contains(&Node::Query(*query));
        for node in circle {
            match node {
                Node::Group(group) => {
                    let backup = group.backup.iter().any(|(query, _)| inside(query));
                    self.cases.extend(backup.then_some(Case::CircleThroughBackup));
                    let condition = group.condition.as_ref().is_some_and(inside);
                    self.cases.extend(condition.then_some(Case::CircleThroughCondition));
                }
                Node::Query(Query::Recursive { interface: Some(_), .. }) => {
                    self.cases.insert(Case::CircleTiedToInterface);
                }
                Node::Query(_) => {}
            }
        }
    }

    fn note_group(&mut self, oracle: &Oracle, group: &Group) {
        let resolved =
            |(query, _): &&(Query, u16)| matches!(self.evaluated.answers[query], Answer::Resolved { .. });
        let count = group.members.iter().filter(resolved).count();
        let mut cases = Vec::new();
        if count > 0 && count < group.members.len() {
            cases.push(Case::PartialFailure);
        }
        if self.evaluated.groups[group].is_some() && count == 0 && !group.blackhole && !group.unreachable {
            cases.push(Case::OnBackup);
        }
        let most = usize::from(oracle.config.max_ecmp);
        let uncut =
            Oracle { config: RibConfig { max_ecmp: u16::MAX, ..oracle.config.clone() }, ..Oracle::default() };
        if let Some(Content { fib: FibGroup::Hops(hops), .. }) = self.of_members(&uncut, group)
            && hops.len() > most
        {
            cases.push(Case::Cut);
        }
        for query in queries_of(group) {
            match (query, &self.evaluated.answers[&query]) {
                (_, Answer::Unresolved(Reason::TooDeep)) => cases.push(Case::TooDeep),
                (Query::Recursive { address, own: Some(own), .. }, _)
                    if self.covering(address).iter().any(|(p, c)| *p == own && c[0].connected.is_none()) =>
                {
                    cases.push(Case::SelfReference);
                }
                _ => {}
            }
            let passed = self.evaluated.passed.iter().any(|(of, ..)| *of == query);
            if passed && matches!(self.evaluated.answers[&query], Answer::Resolved { .. }) {
                cases.push(Case::PassedOver);
            }
        }
        self.cases.extend(cases);
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// All nodes that a path of at least one edge resolves to.
fn reachable<'a>(edges: &'a BTreeMap<Node, Vec<Node>>, from: &Node) -> BTreeSet<&'a Node> {
    let mut reached: BTreeSet<&Node> = BTreeSet::new();
    let mut left: Vec<&Node> = edges[from].iter().collect();
    while let Some(node) = left.pop() {
        if reached.insert(node) {
            left.extend(&edges[node]);
        }
    }
    reached
}

/// Section 4, last paragraph: the level of an answer, and what is too deep.
fn answered(hops: Vec<Hop>, way: Way, level_of_group: usize) -> Answer {
    let level = level_of_group + 1;
    if level > MAX_LOOK_UPS {
        return Answer::Unresolved(Reason::TooDeep);
    }
    Answer::Resolved { hops, way, level }
}

/// Section 2, rule 2. Of several interfaces with the subnet, the lowest number (reading).
fn connected_subnet(
    subnet: AnyPrefix,
    address: IpAddr,
    named: Option<IfIndex>,
    interfaces: &[IfIndex],
) -> Option<Answer> {
    let interface = *interfaces.iter().filter(|i| named.is_none_or(|named| named == **i)).min()?;
    if matches!(subnet, AnyPrefix::V4(subnet) if subnet.len() <= 30 && subnet.last_addr() == address) {
        return Some(Answer::Unresolved(Reason::Other));
    }
    let hop = Hop { gateway: Some(address), interface, onlink: false, weight: None };
    Some(answered(vec![hop], Way::default(), 0))
}

/// Section 1, kind "as given": the interface exists and is up. It takes no look-up.
fn as_given(oracle: &Oracle, gateway: Option<IpAddr>, interface: Option<IfIndex>, onlink: bool) -> Answer {
    let Some(interface) = oracle.is_up(interface) else {
        return Answer::Unresolved(Reason::Other);
    };
    let hop = Hop { gateway, interface, onlink, weight: None };
    let answer = Answer::Resolved { hops: vec![hop], way: Way::default(), level: 0 };
    match gateway {
        Some(address) => oracle.without_unusable(address, answer),
        None => answer,
    }
}

/// Section 3: beyond the limit, the first hop of each interface, then the second of each, and so on; those of one turn in
/// the order (gateway, interface) (reading).
fn spread(mut hops: Vec<FibHop>, most: usize) -> Vec<FibHop> {
    hops.sort_by_key(|hop| (hop.gateway, hop.interface));
    let mut kept: Vec<FibHop> = Vec::new();
    let mut left = hops;
    while kept.len() < most && !left.is_empty() {
        let mut seen: BTreeSet<IfIndex> = BTreeSet::new();
        let (turn, rest): (Vec<FibHop>, Vec<FibHop>) =
            left.into_iter().partition(|hop| seen.insert(hop.interface));
        kept.extend(turn.into_iter().take(most - kept.len()));
        left = rest;
    }
    kept.sort_by_key(|hop| (hop.gateway, hop.interface));
    kept
}

/// Section 1: the query of a route's next hop. Routes of others in the kernel come with `onlink`.
fn query_of_hop(prefix: AnyPrefix, recursion: bool, hop: &ReceivedHop) -> Query {
    let ReceivedHop { gateway, interface, onlink, .. } = *hop;
    match gateway {
        Some(address) if !onlink && !is_link_local(address) => {
            if recursion {
                let own = Some(prefix).filter(|prefix| prefix.contains(address));
                Query::Recursive { address, interface, own }
            } else {
                Query::OnLink { address, interface }
            }
        }
        _ => Query::AsGiven { gateway, interface, onlink },
    }
}

/// Section 1: the query of a next hop that BGP registered.
fn query_of_bgp(TrackedNextHop { address, recursive, exclude }: TrackedNextHop) -> Query {
    match recursive {
        _ if is_link_local(address) => {
            Query::AsGiven { gateway: Some(address), interface: None, onlink: false }
        }
        true => {
            let own = exclude.filter(|prefix| prefix.contains(address));
            Query::Recursive { address, interface: None, own }
        }
        false => Query::OnLink { address, interface: None },
    }
}

/// The queries of a group.
fn queries_of(group: &Group) -> Vec<Query> {
    let members = group.members.iter().chain(&group.backup).map(|(query, _)| *query);
    members.chain(group.condition).collect()
}

/// The group of a route.
fn group_of(prefix: AnyPrefix, set: &RouteSet) -> Group {
    let members = |hops: &[ReceivedHop], recursion: bool| {
        let mut hops = hops.to_vec();
        hops.sort_by_key(|hop| (hop.gateway, hop.interface, hop.onlink));
        hops.dedup_by_key(|hop| (hop.gateway, hop.interface, hop.onlink));
        hops.iter().map(|hop| (query_of_hop(prefix, recursion, hop), hop.weight.max(1))).collect()
    };
    let condition = set.track.map(|track| match track {
        Track::Interface(interface) => {
            Query::AsGiven { gateway: None, interface: Some(interface), onlink: false }
        }
        Track::Address(address) => {
            let own = Some(prefix).filter(|prefix| prefix.contains(address));
            Query::Recursive { address, interface: None, own }
        }
        Track::Prefix(tracked) => Query::Exactly { prefix: tracked, own: tracked == prefix },
    });
    Group {
        blackhole: set.next_hops == NextHops::Blackhole,
        unreachable: set.next_hops == NextHops::Unreachable,
        members: match &set.next_hops {
            NextHops::Via(hops) => members(hops, set.allow_recursion),
            NextHops::Blackhole | NextHops::Unreachable => Vec::new(),
        },
        backup: members(&set.backup, set.backup_recursion),
        condition,
    }
}
