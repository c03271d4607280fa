"""The third judge: what ribtide has to have, worked out from the world alone by ADR 20 and RFC 4271.

The text of docs/adr/0020-next-hop-resolution.md (sections in brackets below), of docs/configuration.md and of RFC 4271 is all that
its author read. It is slow and plain on purpose. Left out is what no history has: weights, backup next hops, conditions, BFD, more
next hops than `max-ecmp`, and VRFs.
"""

import functools
from typing import NamedTuple

from prng import Random
from world import ASN, LINKS, PEERS, PREPENDED, ROUTER, interface, ip, net

DEFAULT = "0.0.0.0/0"
BLACKHOLE = ("blackhole", "")
#: [4] The longest chain of look-ups.
DEPTH = 16
#: docs/configuration.md: the order of protocols. RFC 4271 leaves it open; these are FRR's.
DISTANCE = {"kernel": 0, "external": 20, "internal": 200}
#: docs/configuration.md, fib.kernel: the metric of ribtide's routes. A route of others with a lower one hides them in the kernel.
METRIC = 20
#: Passes over all choices in which each sees the last pass alone; after these each sees those before it. After so many in all there
#: is no stable state. The number of random beginnings from which that is tried.
TOGETHER, PASSES, BEGINNINGS = 3, 40, 64


class Path(NamedTuple):
    """A path that BGP has of a prefix, after import policy."""

    peer: str
    kind: str
    as_path: tuple
    next_hop: str
    local_pref: int
    med: int

    @property
    def external(self):
        return self.kind in ("single", "multihop")

    @property
    def member(self):
        """[1] Its next hop and the kind of its query."""
        return self.next_hop, "link" if self.kind == "single" else "recursive"


class Candidate(NamedTuple):
    """A route of one protocol for one prefix: [3] the group of its members, or `given`, next hops that are as given [1]."""

    distance: int
    metric: int
    origin: str
    members: tuple = ()
    given: frozenset = frozenset()


class Answer(NamedTuple):
    """Resolved next hops (gateway, interface); none: unresolved."""

    hops: frozenset = frozenset()
    level: int = 0
    cost: int = 0


UNRESOLVED = Answer()


def paths(world):
    """Prefix → its paths: of sessions that are there, with what the checks of attributes and import policy make of them."""
    found = {}
    for name, said in world.says.items():
        peer, policy = PEERS[name], world.policies[name]
        if not world.session(name):
            continue
        for prefix, event in said.items():
            if world.refuses(name, prefix) or ASN in event["path"]:  # RFC 4271 section 9.1.2: a loop.
                continue
            if peer.asn != ASN and event["path"][:1] != [peer.asn]:  # `enforce-first-as`.
                continue
            as_path = (PREPENDED,) * policy.get("prepend", 0) + tuple(event["path"])
            local_pref = policy.get("local_pref", event.get("local_pref", 100) if peer.asn == ASN else 100)
            found.setdefault(prefix, []).append(Path(name, peer.kind, as_path, event["next_hop"], local_pref, policy.get("med", 0)))
    return found


def decide(costs):
    """RFC 4271 section 9.1.2.2 over {path: interior cost}: the best path, and in its order those that are equal to it by
    docs/configuration.md, Equal paths."""
    def least(left, key):
        low = min(map(key, left))
        return [p for p in left if key(p) == low]

    left = least(list(costs), lambda p: -p.local_pref)
    left = least(left, lambda p: len(p.as_path))
    # c) MED, among paths of one neighbouring AS, which is the first of AS_PATH.
    left = [p for p in left if not any(q.as_path[:1] == p.as_path[:1] and q.med < p.med for q in left)]
    left = least(left, lambda p: not p.external)
    left = least(left, lambda p: costs[p])
    left.sort(key=lambda p: int(ip(PEERS[p.peer].address)))  # Their BGP identifiers are their addresses.
    best = left[0]
    return [p for p in left if p.external == best.external and (p.kind == "multihop") == (best.kind == "multihop")]


def group(equal, most):
    """The first next hops of equal paths, each once."""
    return tuple(dict.fromkeys(p.member for p in equal))[:most]


class Links:
    """Interfaces and their addresses."""

    def __init__(self, world):
        self.own = {ROUTER} | {str(interface(a).ip) for link in LINKS for a in world.addresses[link]}
        self.connected = [(network, link) for network, _, link in world.connected()]

    def covering(self, address):
        """[2] rule 2: the longest connected subnet with an address, and the interface of the lowest number that has it."""
        found = [(network, link) for network, link in self.connected if ip(address) in network]
        return max(found, key=lambda f: (f[0].prefixlen, [-ord(c) for c in f[1]]), default=(None, None))


class Answers:
    """The answers of one table, prefix → candidates in the order of selection. A query is (address, kind, the prefix of the route
    itself where that covers the address). A group is (its queries, next hops as given): routes with equal ones have one group."""

    def __init__(self, links, table, via_default):
        self.links, self.table, self.via_default = links, table, via_default
        self.known, self.walks, self.nets = {}, {}, {prefix: net(prefix) for prefix in table}

    def query(self, member, prefix):
        address, kind = member
        return (address, kind, prefix if ip(address) in net(prefix) else None)

    def resolve(self, member, prefix):
        """The answer to the next hop of a route of a prefix."""
        return self.solve(self.query(member, prefix))

    def group(self, prefix, candidate):
        return frozenset(self.query(member, prefix) for member in candidate.members), candidate.given

    def of_route(self, prefix, candidate):
        return self.solve(self.group(prefix, candidate))

    def walk(self, query):
        """[2] The candidates on the way, from the longest match: (group, metric, prefix). And the answer of the link at its end."""
        if query not in self.walks:
            self.walks[query] = self.make_walk(*query)
        return self.walks[query]

    def make_walk(self, address, kind, own_prefix):
        if address in self.links.own:
            return [], UNRESOLVED
        subnet, link = self.links.covering(address)
        end, length = UNRESOLVED, -1
        if subnet:
            length = subnet.prefixlen
            # RFC 1122 section 3.2.1.3: no host has the broadcast address.
            if length > 30 or ip(address) != subnet.broadcast_address:
                end = Answer(frozenset({(address, link)}), 1, 0)
        if kind == "link":
            return [], end
        covering = [p for p, n in self.nets.items() if n.prefixlen > length and ip(address) in n and p != own_prefix
                    and (p != DEFAULT or self.via_default)]
        covering.sort(key=lambda p: -self.nets[p].prefixlen)
        return [(self.group(p, candidate), candidate.metric, p) for p in covering for candidate in self.table[p]], end

    def points_at(self, node):
        """All that its answer may depend on: groups of a query's walk, queries of a group's members."""
        return [group for group, _, _ in self.walk(node)[0]] if len(node) == 3 else node[0]

    def reach(self, node):
        seen, todo = {node}, [node]
        while todo:
            for other in self.points_at(todo.pop()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen

    def visited(self, node):
        """Prefixes by whose routes it may resolve."""
        return {prefix for other in self.reach(node) if len(other) == 3 for _, _, prefix in self.walk(other)[0]}

    def solve(self, node):
        if node not in self.known:
            self.evaluate({n for n in self.reach(node) if n not in self.known})
        return self.known[node]

    def evaluate(self, unknown):
        """[4] Answers to all of these: by what is known, and where nothing more is, one step in each circle."""
        passed = {node: set() for node in unknown}
        while unknown:
            blocked = {}
            while True:
                found = {}
                for node in unknown:
                    answer, blocked[node] = self.walked(node, passed[node]) if len(node) == 3 else self.joined(node)
                    if answer is not None:
                        found[node] = answer
                if not found:
                    break
                self.known.update(found)
                unknown = unknown - found.keys()
            reach = {}
            for node in unknown:
                seen, todo = {node}, [node]
                while todo:
                    for other in blocked[todo.pop()]:
                        if other not in seen:
                            seen.add(other)
                            todo.append(other)
                reach[node] = seen
            for circle in {frozenset(r) for r in reach.values() if all(reach[other] == r for other in r)}:
                groups = {node: self.join(node) for node in circle if len(node) == 2}
                supported = {node: answer for node, answer in groups.items() if answer.hops}
                if supported:
                    self.known.update(supported)
                else:
                    for node in circle - groups.keys():
                        passed[node] |= set(blocked[node])
            unknown = {node for node in unknown if node not in self.known}

    def walked(self, query, passed):
        """[2] The answer to a query and what blocks it; one of the two."""
        candidates, end = self.walk(query)
        for group, metric, _ in candidates:
            if group in passed:
                continue
            if group not in self.known:
                return None, [group]
            answer = self.known[group]
            if answer.hops:
                return (Answer(answer.hops, answer.level + 1, metric) if answer.level < DEPTH else UNRESOLVED), []
        return end, []

    def joined(self, group):
        """[3] The answer of a group, or the queries that it waits for."""
        waits = [query for query in group[0] if query not in self.known]
        return (None, waits) if waits else (self.join(group), [])

    def join(self, group):
        """[3] The resolved next hops of all members that are known; a blackhole counts when there is no other."""
        queries, given = group
        answers = [Answer(given, 1), *(self.known.get(query, UNRESOLVED) for query in queries)]
        hops = frozenset().union(*(answer.hops for answer in answers))
        hops = hops - {BLACKHOLE} or hops
        return Answer(hops, max((answer.level for answer in answers if answer.hops & hops), default=0))


class Model:
    def __init__(self, world, profile):
        self.world, self.profile, self.links, self.paths = world, profile, Links(world), paths(world)
        self.fixed = {prefix: self.others(prefix) for prefix in {*world.statics, *world.installed}}

    def others(self, prefix):
        """Candidates of a prefix but for BGP's."""
        found = [Candidate(route["distance"], 0, "static", given=frozenset({BLACKHOLE})) if route.get("blackhole") else
                 Candidate(route["distance"], 0, "static", tuple((a, "recursive") for a in route["via"]))
                 for route in self.world.statics.get(prefix, [])]
        if prefix in self.world.installed:
            event, _ = self.world.installed[prefix]
            # [1] As given: the interface is up. The kernel's own mark that a next hop is dead counts for the kernel alone.
            hops = frozenset((gateway, link) for gateway, link in event["via"] if self.world.up(link))
            found.append(Candidate(DISTANCE["kernel"], event.get("metric", 0), "kernel", given=hops))
        return found

    def candidate(self, prefix, fed):
        """BGP's route of a prefix, by these next hops."""
        external = fed[0].external
        return Candidate(DISTANCE["external" if external else "internal"], 0, "bgp", group(fed, self.profile["multipath"]))

    def table(self, fed):
        table = {prefix: list(candidates) for prefix, candidates in self.fixed.items()}
        for prefix, equal in fed.items():
            table.setdefault(prefix, []).append(self.candidate(prefix, equal))
        return {prefix: sorted(candidates, key=lambda c: c[:3]) for prefix, candidates in table.items()}

    def answers(self, fed):
        return Answers(self.links, self.table(fed), self.profile["resolve_via_default"])

    def choose(self, prefix, fed, answers):
        """[5] (what BGP feeds of a prefix, whether that is eligible), where of the other prefixes it feeds `fed`."""
        costs = {}
        for path in self.paths[prefix]:
            # As if BGP's route of the prefix had this next hop alone, where that matters.
            visited = answers.visited(answers.query(path.member, prefix))
            table = self.answers({**fed, prefix: [path]}) if prefix in visited else answers
            answer = table.resolve(path.member, prefix)
            if answer.hops:
                costs[path] = answer.cost
        if costs:
            return decide(costs), True
        return decide({path: 0 for path in self.paths[prefix]})[:1], False

    def settle(self, fed):
        """(what BGP feeds, which prefixes are eligible, whether no choice changes another any more)."""
        for number in range(PASSES):
            changed, eligible = False, {}
            answers = self.answers(fed)
            new = dict(fed)
            for prefix in sorted(self.paths):
                now, eligible[prefix] = self.choose(prefix, fed, answers)
                if now != fed[prefix]:
                    changed = True
                    new[prefix] = now
                    if number >= TOGETHER:
                        fed = dict(new)
                        answers = self.answers(fed)
            if not changed:
                return fed, eligible, True
            fed = new
        return fed, eligible, False

    def first(self):
        return {prefix: decide({path: 0 for path in found})[:1] for prefix, found in self.paths.items()}

    @functools.cached_property
    def reached(self):
        """Prefix → prefixes that its routes may resolve by, whatever BGP chooses."""
        every = dict(self.fixed)
        for prefix, found in self.paths.items():
            every[prefix] = every.get(prefix, []) + [Candidate(0, 0, "bgp", tuple({path.member for path in found}))]
        answers = Answers(self.links, every, self.profile["resolve_via_default"])
        return {prefix: set().union(*(answers.visited(answers.group(prefix, candidate)) for candidate in candidates))
                for prefix, candidates in every.items()}

    @functools.cached_property
    def mutual(self):
        """[6] Prefixes that have several paths and resolve to another such prefix which resolves to them: what BGP chooses of one may
        decide about the other."""
        several = [prefix for prefix, found in self.paths.items() if len({path.member for path in found}) > 1]
        return {p for p in several if any(q != p and q in self.reached[p] and p in self.reached[q] for q in several)}

    def depends(self, prefix):
        """Whether a prefix resolves to choices that depend on each other, so that its state need not be the only stable one."""
        return bool(self.mutual & (self.reached.get(prefix, set()) | {prefix}))

    def states(self, had):
        """(state, whether it is stable). Where no choices depend on each other there is one. Else ribtide has to have one of several:
        those that choices resolve to which began as ribtide's, by what observers were told, or anyhow."""
        first, mutual, seen = self.first(), sorted(self.mutual), []
        random = Random(0)
        beginnings = [{}, {prefix: self.seen(prefix, had) or first[prefix] for prefix in mutual}]
        beginnings += [{prefix: [random.choice(self.paths[prefix])] for prefix in mutual} for _ in range(BEGINNINGS)] if mutual else []
        for beginning in beginnings:
            fed, eligible, stable = self.settle({**first, **beginning})
            if (fed, eligible) not in seen:
                seen.append((fed, eligible))
                yield self.state(fed, eligible), stable

    def seen(self, prefix, had):
        """The path of a prefix that is what observers were told."""
        return [path for path in self.paths[prefix]
                if all(prefix not in had[view] or had[view][prefix] == self.told(view, {prefix: path}).get(prefix) for view in PEERS if view in had)
                and any(prefix in had[view] for view in PEERS if view in had)][:1]

    def state(self, fed, eligible):
        """The kernel's table and what observers are told, as `Router.state` has them."""
        answers, kernel = self.answers(fed), {}
        for prefix, candidates in answers.table.items():
            used = next(((c, hops) for c in candidates if (hops := answers.of_route(prefix, c).hops)), None)
            event = self.world.installed.get(prefix, (None,))[0]
            if event and (not used or used[0].origin == "kernel" or event.get("metric", 0) < METRIC):
                kernel[prefix] = ("others", frozenset((gateway, link, 1) for gateway, link in event["via"]))
            elif used:
                kernel[prefix] = ("router", frozenset((*hop, 1) for hop in used[1]))
        best = {prefix: equal[0] for prefix, equal in fed.items() if eligible[prefix]}
        return {"kernel": kernel, "external": self.told("external", best), "internal": self.told("internal", best)}

    def told(self, observer, best):
        """RFC 4271 sections 5.1 and 9.1.3, RFC 4456 section 6: the best paths as a peer gets them."""
        peer, policy = PEERS[observer], self.world.policies[observer]
        before, table = (PREPENDED,) * policy.get("prepend", 0), {}
        for prefix, path in best.items():
            if self.world.refuses(observer, prefix) or path.kind == "internal" and peer.kind == "internal":
                continue
            if peer.asn == ASN:
                table[prefix] = (before + path.as_path, path.next_hop, policy.get("local_pref", path.local_pref))
            else:
                table[prefix] = ((ASN, *before, *path.as_path), ROUTER, None)
        return table


class Comparison(NamedTuple):
    #: [(view, prefix, what ribtide has, what it has to have)]
    wrong: list
    #: Routes of each view that were compared; those of them that depend on mutual choices, which may have several stable states;
    #: and those that were not compared, as none was found.
    routes: int
    mutual: int
    excluded: int


def judge(state, world, profile):
    """Compares ribtide's state with the stable one; where there are several, with the nearest."""
    model = Model(world, profile)
    nearest = None
    for expected, stable in model.states(state):
        keys = sorted((view, prefix) for view in expected for prefix in expected[view].keys() | state[view].keys())
        mutual = {key for key in keys if model.depends(key[1])}
        wrong = [key for key in keys if state[key[0]].get(key[1]) != expected[key[0]].get(key[1])]
        excluded = set() if stable else mutual
        found = Comparison([(view, prefix, state[view].get(prefix), expected[view].get(prefix)) for view, prefix in wrong
                         if (view, prefix) not in excluded], len(keys), len(mutual), len(excluded))
        if nearest is None or (found.excluded, len(found.wrong)) < (nearest.excluded, len(nearest.wrong)):
            nearest = found
        # Another state is of use only where this one differs in what depends on such choices, or is not stable.
        if stable and not mutual.intersection(wrong):
            break
    return nearest
