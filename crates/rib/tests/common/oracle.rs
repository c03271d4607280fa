//! The expected FIB and the expected answers to BGP, from the text of `docs/adr/0020-next-hop-resolution.md` alone. Every
//! call evaluates everything from scratch: all candidates, all groups, all questions, and the graph that they form.
//!
//! Written without knowledge of the resolver. Numbers of sections below are those of the ADR. Where it leaves a choice, the
//! comment says "reading".

use super::*;

/// The most recursive look-ups of a chain (section 4, last paragraph).
const MAX_LOOK_UPS: usize = 16;

/// Whether a group counts as known only when all of its questions are answered, also those that make no difference any
/// more: of backup members while a member resolves, of the condition while no member does. Section 4 does not say (reading).
const GROUP_WAITS_FOR_ALL: bool = false;

/// What sources and interfaces said last.
#[derive(Default, Clone, Debug)]
pub struct Oracle {
    pub config: RibConfig,
    /// By prefix and source; static ones by distance too.
    pub routes: BTreeMap<(AnyPrefix, Source, u8), RouteSet>,
    pub interfaces: BTreeMap<IfIndex, InterfaceEvent>,
    /// What packets do not reach.
    pub unusable: BTreeSet<(IpAddr, Option<IfIndex>)>,
}

/// Section 1: what is asked, and the kind of route that asks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Question {
    /// Is the address in a connected prefix, on this interface if one is named?
    OnLink { address: IpAddr, interface: Option<IfIndex> },
    /// By the longest match. `own` is the prefix of the asking route, where it holds the address (section 2, rule 3): a
    /// route elsewhere asks the same as BGP does.
    Recursive { address: IpAddr, interface: Option<IfIndex>, own: Option<AnyPrefix> },
    /// Is the interface up?
    AsGiven { gateway: Option<IpAddr>, interface: Option<IfIndex>, onlink: bool },
    /// [`Track::Prefix`]: does a route for exactly this prefix resolve? `own`: it is the asking route's.
    Exactly { prefix: AnyPrefix, own: bool },
}

/// A way out. `weight` is that of the route that it came from, where it came from one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Way {
    gateway: Option<IpAddr>,
    interface: IfIndex,
    onlink: bool,
    weight: Option<u16>,
}

/// Why a question is unresolved, as far as tests ask.
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
    /// Without ways, it is a blackhole.
    Resolved {
        ways: Vec<Way>,
        cost: u32,
        level: usize,
    },
    Unresolved(Reason),
}

/// Section 3, the next hops of a route. Routes with the same questions and weights share one group (ADR 6).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Group {
    blackhole: bool,
    /// In the order (gateway, interface), with the weight of each.
    members: Vec<(Question, u16)>,
    backup: Vec<(Question, u16)>,
    condition: Option<Question>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Content {
    fib: FibGroup,
    level: usize,
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

/// What a history met, so that a test can say that its generator reaches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Case {
    /// A route whose own prefix was passed over (section 2, rule 3).
    SelfReference,
    /// A group of which one member resolves and another does not.
    PartialFailure,
    /// A group that stands on its backup members.
    OnBackup,
    /// A group with more ways than `max-ecmp`.
    Cut,
    /// A question that would be answered at a level beyond the limit.
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
    /// A question that names an interface in a circle.
    CircleTiedToInterface,
    /// A question that passed over the group that blocked it and found a less specific route.
    PassedOver,
}

/// The state of one evaluation: what is known so far.
#[derive(Clone)]
struct Known {
    answers: BTreeMap<Question, Answer>,
    /// `None`: the group is known not to resolve.
    groups: BTreeMap<Group, Option<Content>>,
    /// The groups that each question passes over because of a circle (section 4.2).
    passed: BTreeSet<(Question, Group)>,
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
    Question(Question),
    Group(Group),
}

/// Everything that one evaluation finds out.
pub struct Evaluation {
    table: BTreeMap<AnyPrefix, Vec<Candidate>>,
    /// Section 2.1: the router's addresses, on interfaces in whatever state.
    own: BTreeSet<IpAddr>,
    known: Known,
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
            for (address, len) in state.addresses.iter().filter(|(address, _)| !is_link_local(*address)) {
                all.entry(AnyPrefix::from_addr(*address, *len).unwrap()).or_default().insert(state.index);
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

    /// Answers all questions of all candidates, and those that BGP registered.
    pub fn evaluate(&self, tracked: &[TrackedNextHop]) -> Evaluation {
        let table = self.table();
        let groups: BTreeSet<Group> = table.values().flatten().map(|c| c.group.clone()).collect();
        let mut questions: BTreeSet<Question> = groups.iter().flat_map(asked_by).collect();
        questions.extend(tracked.iter().map(|next_hop| asked_by_bgp(*next_hop)));
        let known = Known { answers: BTreeMap::new(), groups: BTreeMap::new(), passed: BTreeSet::new() };
        let all = self.interfaces.values().flat_map(|state| &state.addresses);
        let own = all.map(|(address, _)| *address).collect();
        let mut evaluation = Evaluation { table, own, known, cases: BTreeSet::new() };
        evaluation.run(self, &groups, &questions);
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

    /// What BGP is told of a next hop that it registered for the paths of a prefix.
    pub fn told_of_path(&self, next_hop: TrackedNextHop) -> Reachability {
        self.assuming(next_hop).evaluate(&[next_hop]).told(next_hop)
    }

    /// The FIB that should be: of each prefix the first candidate that resolves.
    pub fn fib(&self) -> BTreeMap<AnyPrefix, (Protocol, FibGroup)> {
        self.evaluate(&[]).fib()
    }

    /// Section 3, last sentence: the ways to a gateway that BFD declared down are dropped.
    fn without_unusable(&self, address: IpAddr, answer: Answer) -> Answer {
        let Answer::Resolved { mut ways, cost, level } = answer else { return answer };
        let blackhole = ways.is_empty();
        ways.retain(|way| {
            way.gateway != Some(address) || !self.unusable.contains(&(address, Some(way.interface)))
        });
        if self.unusable.contains(&(address, None)) || (ways.is_empty() && !blackhole) {
            return Answer::Unresolved(Reason::GatewayDown);
        }
        Answer::Resolved { ways, cost, level }
    }
}

impl Evaluation {
    /// What the dataplanes have.
    pub fn fib(&self) -> BTreeMap<AnyPrefix, (Protocol, FibGroup)> {
        let mut fib = BTreeMap::new();
        for (prefix, candidates) in &self.table {
            let resolved = |c: &Candidate| Some((c.protocol, self.known.groups[&c.group].clone()?.fib));
            if let Some(route) = candidates.iter().find_map(resolved) {
                fib.insert(*prefix, route);
            }
        }
        fib
    }

    /// What BGP is told of a next hop: RFC 4271 sections 9.1.2.1 and 9.1.2.2 e.
    pub fn told(&self, next_hop: TrackedNextHop) -> Reachability {
        match self.known.answers[&asked_by_bgp(next_hop)] {
            Answer::Resolved { cost, .. } => Reachability::Reachable { cost },
            Answer::Unresolved(_) => Reachability::Unreachable,
        }
    }

    /// Why a next hop of BGP is unreachable.
    pub fn reason(&self, next_hop: TrackedNextHop) -> Option<Reason> {
        match self.known.answers[&asked_by_bgp(next_hop)] {
            Answer::Resolved { .. } => None,
            Answer::Unresolved(reason) => Some(reason),
        }
    }

    /// Section 4: evaluate, then circles, and again.
    fn run(&mut self, oracle: &Oracle, groups: &BTreeSet<Group>, questions: &BTreeSet<Question>) {
        for turn in 0.. {
            self.evaluate_all(oracle, groups, questions);
            let open: BTreeSet<Question> =
                questions.iter().filter(|q| !self.known.answers.contains_key(q)).copied().collect();
            if open.is_empty() {
                break;
            }
            let circles = self.circles(oracle, groups, &open);
            assert!(!circles.is_empty(), "each question that remains is blocked");
            self.cases.extend((turn > 0).then_some(Case::CircleAfterCircle));
            self.cases.extend((circles.len() > 1).then_some(Case::TwoCircles));
            // Independently: each circle starts from what was known before any of them.
            let before = self.known.clone();
            let mut after = before.clone();
            for circle in circles {
                self.known = before.clone();
                self.note_circle(&circle);
                self.circle(oracle, &circle);
                after.answers.append(&mut self.known.answers);
                after.groups.append(&mut self.known.groups);
                after.passed.append(&mut self.known.passed);
            }
            self.known = after;
        }
        assert!(groups.iter().all(|group| self.known.groups.contains_key(group)));
        for group in groups {
            self.note_group(oracle, group);
        }
    }

    /// Section 4, first paragraph: "Evaluate all questions whose walk meets only known groups, until none is left."
    fn evaluate_all(&mut self, oracle: &Oracle, groups: &BTreeSet<Group>, questions: &BTreeSet<Question>) {
        loop {
            let before = (self.known.answers.len(), self.known.groups.len());
            for group in groups {
                if !self.known.groups.contains_key(group)
                    && let Some(content) = self.determined(oracle, group)
                {
                    self.known.groups.insert(group.clone(), content);
                }
            }
            for question in questions {
                self.try_answer(oracle, *question);
            }
            if before == (self.known.answers.len(), self.known.groups.len()) {
                return;
            }
        }
    }

    /// Answers a question if its walk meets only known groups.
    fn try_answer(&mut self, oracle: &Oracle, question: Question) {
        if !self.known.answers.contains_key(&question)
            && let Walk::Answered(answer) = self.walk(oracle, question)
        {
            self.known.answers.insert(question, answer);
        }
    }

    /// The strongly connected components of what is open that point at nothing outside themselves.
    fn circles(
        &self,
        oracle: &Oracle,
        groups: &BTreeSet<Group>,
        open: &BTreeSet<Question>,
    ) -> Vec<BTreeSet<Node>> {
        let mut edges: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
        for question in open {
            let Walk::Blocked(prefix, nth) = self.walk(oracle, *question) else {
                panic!("evaluated to the end");
            };
            let group = self.table[&prefix][nth].group.clone();
            edges.insert(Node::Question(*question), vec![Node::Group(group)]);
        }
        for group in groups.iter().filter(|group| !self.known.groups.contains_key(group)) {
            let asked = asked_by(group).into_iter().filter(|question| open.contains(question));
            edges.insert(Node::Group(group.clone()), asked.map(Node::Question).collect());
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
        let questions =
            || circle.iter().filter_map(|node| if let Node::Question(q) = node { Some(*q) } else { None });

        // 1. Support from outside: every group that resolves by the members known so far, all at once.
        let mut decided: BTreeMap<Group, Option<Content>> = BTreeMap::new();
        for group in groups() {
            if let Some(content) = self.by_known_members(oracle, group) {
                decided.insert(group.clone(), Some(content));
            }
        }
        if !decided.is_empty() {
            self.cases.insert(Case::CircleWithSupport);
            self.known.groups.append(&mut decided);
            return;
        }
        self.cases.insert(Case::CircleWithoutSupport);

        // 2. No support: the questions pass over what blocks them, all at once.
        let blocked: Vec<(Question, Group)> = questions()
            .filter_map(|question| match self.walk(oracle, question) {
                Walk::Blocked(prefix, nth) => Some((question, self.table[&prefix][nth].group.clone())),
                Walk::Answered(_) => None,
            })
            .collect();
        self.known.passed.extend(blocked);
    }

    /// What a question is answered, or what blocks it.
    fn walk(&self, oracle: &Oracle, question: Question) -> Walk {
        match question {
            Question::AsGiven { gateway, interface, onlink } => {
                Walk::Answered(as_given(oracle, gateway, interface, onlink))
            }
            Question::OnLink { address, .. } if is_link_local(address) => {
                Walk::Answered(Answer::Unresolved(Reason::Other))
            }
            Question::OnLink { address, interface } => {
                let answer = self.on_link(address, interface);
                Walk::Answered(oracle.without_unusable(address, answer))
            }
            Question::Recursive { address, interface, own } => {
                match self.longest_match(oracle, question, address, interface, own) {
                    Walk::Answered(answer) => Walk::Answered(oracle.without_unusable(address, answer)),
                    blocked => blocked,
                }
            }
            Question::Exactly { prefix, own } => self.exactly(question, prefix, own),
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
        if self.own.contains(&address) {
            return Answer::Unresolved(Reason::OwnAddress);
        }
        for (_, candidates) in self.covering(address) {
            for interfaces in candidates.iter().filter_map(|c| c.connected.as_ref()) {
                if let Some(answer) = connected_subnet(address, interface, interfaces) {
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
        question: Question,
        address: IpAddr,
        interface: Option<IfIndex>,
        own: Option<AnyPrefix>,
    ) -> Walk {
        let mut reason = Reason::Other;
        // Rule 1.
        if self.own.contains(&address) {
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
                    match connected_subnet(address, interface, interfaces) {
                        Some(answer) => return Walk::Answered(answer),
                        None => break,
                    }
                }
                // Rule 3.
                if own == Some(prefix) {
                    continue;
                }
                // Section 4.2.
                if self.known.passed.contains(&(question, candidate.group.clone())) {
                    reason = Reason::Circle;
                    continue;
                }
                let content = match self.known.groups.get(&candidate.group) {
                    None => return Walk::Blocked(prefix, nth),
                    // Rule 4.
                    Some(None) => continue,
                    Some(Some(content)) => content,
                };
                // Rule 5.
                let ways: Vec<Way> = match &content.fib {
                    FibGroup::Hops(hops) => hops
                        .iter()
                        .filter(|hop| interface.is_none_or(|named| named == hop.interface))
                        .map(|hop| Way {
                            gateway: Some(hop.gateway.unwrap_or(address)),
                            interface: hop.interface,
                            onlink: hop.onlink || hop.gateway.is_none(),
                            weight: Some(hop.weight),
                        })
                        .collect(),
                    _ => Vec::new(),
                };
                let blackhole = content.fib == FibGroup::Blackhole && interface.is_none();
                if ways.is_empty() && !blackhole {
                    break;
                }
                return Walk::Answered(answered(ways, candidate.metric, content.level));
            }
        }
        // Rule 7.
        Walk::Answered(Answer::Unresolved(reason))
    }

    /// [`Track::Prefix`], by the same rules at one prefix.
    fn exactly(&self, question: Question, prefix: AnyPrefix, own: bool) -> Walk {
        let mut reason = Reason::Other;
        let candidates = self.table.get(&prefix).filter(|_| !own);
        for (nth, candidate) in candidates.into_iter().flatten().enumerate() {
            if self.known.passed.contains(&(question, candidate.group.clone())) {
                reason = Reason::Circle;
                continue;
            }
            match self.known.groups.get(&candidate.group) {
                None => return Walk::Blocked(prefix, nth),
                Some(None) => continue,
                Some(Some(content)) => {
                    return Walk::Answered(answered(Vec::new(), candidate.metric, content.level));
                }
            }
        }
        Walk::Answered(Answer::Unresolved(reason))
    }

    /// Section 3, when what is known settles it: whatever is still open makes no difference.
    fn determined(&self, oracle: &Oracle, group: &Group) -> Option<Option<Content>> {
        let open = |members: &[(Question, u16)]| {
            members.iter().any(|(question, _)| !self.known.answers.contains_key(question))
        };
        let condition = group.condition.is_some_and(|c| !self.known.answers.contains_key(&c));
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
            None => self.ways_of(oracle, &group.backup),
        };
        match content {
            None => Some(None),
            Some(content) => self.holds(group).map(|_| Some(content)),
        }
    }

    /// Section 4.1: what the group resolves to by the members known so far; the others are dropped from it.
    fn by_known_members(&self, oracle: &Oracle, group: &Group) -> Option<Content> {
        if self.holds(group) != Some(true) {
            return None;
        }
        self.of_members(oracle, group).or_else(|| self.ways_of(oracle, &group.backup))
    }

    /// Whether the tracked condition holds, where that is known.
    fn holds(&self, group: &Group) -> Option<bool> {
        let Some(condition) = group.condition else { return Some(true) };
        let answer = self.known.answers.get(&condition)?;
        Some(matches!(answer, Answer::Resolved { .. }))
    }

    /// What the group's members lead to without the backup ones.
    fn of_members(&self, oracle: &Oracle, group: &Group) -> Option<Content> {
        if group.blackhole {
            return Some(Content { fib: FibGroup::Blackhole, level: 0 });
        }
        self.ways_of(oracle, &group.members)
    }

    /// Section 3: the ways of the members that are known and resolved.
    fn ways_of(&self, oracle: &Oracle, members: &[(Question, u16)]) -> Option<Content> {
        let mut hops: Vec<FibHop> = Vec::new();
        let (mut of_ways, mut of_blackholes) = (0, None);
        for (question, weight) in members {
            let Some(Answer::Resolved { ways, level, .. }) = self.known.answers.get(question) else {
                continue;
            };
            if ways.is_empty() {
                of_blackholes = of_blackholes.max(Some(*level));
            } else {
                of_ways = of_ways.max(*level);
            }
            for way in ways {
                let (gateway, interface) = (way.gateway, way.interface);
                if hops.iter().any(|hop| (hop.gateway, hop.interface) == (gateway, interface)) {
                    continue;
                }
                let underlay = way.weight.filter(|_| oracle.config.underlay_weights);
                let weight = underlay.unwrap_or((*weight).max(1));
                hops.push(FibHop { gateway, interface, weight, onlink: way.onlink });
            }
        }
        if hops.is_empty() {
            return of_blackholes.map(|level| Content { fib: FibGroup::Blackhole, level });
        }
        let hops = spread(hops, usize::from(oracle.config.max_ecmp));
        Some(Content { fib: FibGroup::Hops(hops), level: of_ways })
    }

    fn note_circle(&mut self, circle: &BTreeSet<Node>) {
        let inside = |question: &Question| circle.contains(&Node::Question(*question));
        for node in circle {
            match node {
                Node::Group(group) => {
                    let backup = group.backup.iter().any(|(question, _)| inside(question));
                    self.cases.extend(backup.then_some(Case::CircleThroughBackup));
                    let condition = group.condition.as_ref().is_some_and(inside);
                    self.cases.extend(condition.then_some(Case::CircleThroughCondition));
                }
                Node::Question(Question::Recursive { interface: Some(_), .. }) => {
                    self.cases.insert(Case::CircleTiedToInterface);
                }
                Node::Question(_) => {}
            }
        }
    }

    fn note_group(&mut self, oracle: &Oracle, group: &Group) {
        let resolved = |(question, _): &&(Question, u16)| {
            matches!(self.known.answers[question], Answer::Resolved { .. })
        };
        let count = group.members.iter().filter(resolved).count();
        let mut cases = Vec::new();
        if count > 0 && count < group.members.len() {
            cases.push(Case::PartialFailure);
        }
        if self.known.groups[group].is_some() && count == 0 && !group.blackhole {
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
        for question in asked_by(group) {
            match (question, &self.known.answers[&question]) {
                (_, Answer::Unresolved(Reason::TooDeep)) => cases.push(Case::TooDeep),
                (Question::Recursive { address, own: Some(own), .. }, _)
                    if self.covering(address).iter().any(|(p, c)| *p == own && c[0].connected.is_none()) =>
                {
                    cases.push(Case::SelfReference);
                }
                _ => {}
            }
            let passed = self.known.passed.iter().any(|(of, ..)| *of == question);
            if passed && matches!(self.known.answers[&question], Answer::Resolved { .. }) {
                cases.push(Case::PassedOver);
            }
        }
        self.cases.extend(cases);
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// All nodes that a path of at least one edge leads to.
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
fn answered(ways: Vec<Way>, cost: u32, level_of_group: usize) -> Answer {
    let level = level_of_group + 1;
    if level > MAX_LOOK_UPS {
        return Answer::Unresolved(Reason::TooDeep);
    }
    Answer::Resolved { ways, cost, level }
}

/// Section 2, rule 2. Of several interfaces with the subnet, the lowest number (reading).
fn connected_subnet(address: IpAddr, named: Option<IfIndex>, interfaces: &[IfIndex]) -> Option<Answer> {
    let interface = *interfaces.iter().filter(|i| named.is_none_or(|named| named == **i)).min()?;
    let way = Way { gateway: Some(address), interface, onlink: false, weight: None };
    Some(answered(vec![way], 0, 0))
}

/// Section 1, kind "as given": the interface exists and is up. It takes no look-up.
fn as_given(oracle: &Oracle, gateway: Option<IpAddr>, interface: Option<IfIndex>, onlink: bool) -> Answer {
    let Some(interface) = oracle.is_up(interface) else {
        return Answer::Unresolved(Reason::Other);
    };
    let way = Way { gateway, interface, onlink, weight: None };
    let answer = Answer::Resolved { ways: vec![way], cost: 0, level: 0 };
    match gateway {
        Some(address) => oracle.without_unusable(address, answer),
        None => answer,
    }
}

/// Section 3: beyond the limit, the first way of each interface, then the second of each, and so on; those of one turn in
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

/// Section 1: what a next hop of a route asks. Routes of others in the kernel come with `onlink`.
fn asked_by_hop(prefix: AnyPrefix, recursion: bool, hop: &ReceivedHop) -> Question {
    let ReceivedHop { gateway, interface, onlink, .. } = *hop;
    match gateway {
        Some(address) if !onlink && !is_link_local(address) => {
            if recursion {
                let own = Some(prefix).filter(|prefix| prefix.contains(address));
                Question::Recursive { address, interface, own }
            } else {
                Question::OnLink { address, interface }
            }
        }
        _ => Question::AsGiven { gateway, interface, onlink },
    }
}

/// Section 1: what a next hop that BGP registered asks.
fn asked_by_bgp(TrackedNextHop { address, recursive, exclude }: TrackedNextHop) -> Question {
    match recursive {
        _ if is_link_local(address) => {
            Question::AsGiven { gateway: Some(address), interface: None, onlink: false }
        }
        true => {
            let own = exclude.filter(|prefix| prefix.contains(address));
            Question::Recursive { address, interface: None, own }
        }
        false => Question::OnLink { address, interface: None },
    }
}

/// All that a group asks.
fn asked_by(group: &Group) -> Vec<Question> {
    let members = group.members.iter().chain(&group.backup).map(|(question, _)| *question);
    members.chain(group.condition).collect()
}

/// The group of a route.
fn group_of(prefix: AnyPrefix, set: &RouteSet) -> Group {
    let members = |hops: &[ReceivedHop], recursion: bool| {
        let mut hops = hops.to_vec();
        hops.sort_by_key(|hop| (hop.gateway, hop.interface, hop.onlink));
        hops.dedup_by_key(|hop| (hop.gateway, hop.interface, hop.onlink));
        hops.iter().map(|hop| (asked_by_hop(prefix, recursion, hop), hop.weight.max(1))).collect()
    };
    let condition = set.track.map(|track| match track {
        Track::Interface(interface) => {
            Question::AsGiven { gateway: None, interface: Some(interface), onlink: false }
        }
        Track::Address(address) => {
            let own = Some(prefix).filter(|prefix| prefix.contains(address));
            Question::Recursive { address, interface: None, own }
        }
        Track::Prefix(tracked) => Question::Exactly { prefix: tracked, own: tracked == prefix },
    });
    Group {
        blackhole: set.next_hops == NextHops::Blackhole,
        members: match &set.next_hops {
            NextHops::Via(hops) => members(hops, set.allow_recursion),
            NextHops::Blackhole => Vec::new(),
        },
        backup: members(&set.backup, set.backup_recursion),
        condition,
    }
}
