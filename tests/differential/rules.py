"""Every difference that is allowed, each as one named rule with its clause of an RFC or the documented behaviour behind it.

A rule is about one rival and looks at the world of the history, at the prefix, and at what both have. A difference that no
rule explains is a failure. `explain` names the first rule that applies.
"""

import functools
import itertools
from typing import NamedTuple

from world import ASN, PEERS, PREPENDED, ROUTER, World, interface, ip, net

RULES = []


class Rule(NamedTuple):
    name: str
    rival: str
    source: str
    reason: str
    applies: object


def rule(name, rival, source):
    """Adds a rule; its docstring is the reason, as README.md shows it."""
    def add(function):
        RULES.append(Rule(name, rival, source, " ".join(function.__doc__.split()), function))
        return function
    return add


class Difference(NamedTuple):
    """One prefix of one view ("kernel", "external", "internal") where ribtide and a rival differ. None: there is none."""

    rival: str
    view: str
    prefix: str
    ours: object
    theirs: object
    #: Recursive or not, prefixes that the rival advertises as ribtide does and has not in its kernel.
    uninstalled: frozenset = frozenset()
    #: Whether the kernels of both have another program's route of the prefix.
    others: bool = False


class Change(NamedTuple):
    """One prefix of one view that ribtide changed more often than its rivals, and than it had to, after one event."""

    view: str
    prefix: str
    old: object
    new: object
    count: int
    #: What an observer was told, in order.
    values: list
    event: dict


class Facts:
    """What rules ask about a world. `former` are the facts after each event before, made once for a history."""

    def __init__(self, world: World, profile, former=()):
        self.world, self.profile, self.former = world, profile, list(former)
        self.reached = {}

    @functools.cached_property
    def connected(self):
        return self.world.connected()

    @functools.cached_property
    def known(self):
        return {p: net(p) for p in self.world.prefixes()}

    def on_link(self, address):
        """Whether a link that is up has a subnet with this address."""
        address = ip(address)
        return any(address in network for network, _, _ in self.connected)

    def own(self, address):
        """Whether it is an address of the router, or was one, be its link up or down."""
        return any(address == mine.split("/")[0] for f in (self, *self.former)
                   for addresses in f.world.addresses.values() for mine in addresses)

    def covering(self, address):
        """Prefixes of routes that hold an address, longest first, as far as they count: not behind a subnet of a link."""
        a = ip(address)
        depth = max((network.prefixlen for network, _, _ in self.connected if a in network), default=-1)
        found = [p for p, n in self.known.items() if a in n and n.prefixlen > depth]
        return sorted(found, key=lambda p: -self.known[p].prefixlen)

    def hops(self, prefix):
        """(origin, kind, next hop) of each next hop of each candidate of a prefix."""
        return [(origin, kind, hop) for origin, kind, hops in self.world.candidates(prefix) for hop in hops]

    def points_at(self, prefix):
        """Prefixes by which next hops of this one may resolve."""
        return {q for _, kind, hop in self.hops(prefix) if kind != "single" for q in self.covering(hop)}

    def reach(self, prefix):
        """The prefix and all that its next hops resolve to, however far."""
        if prefix not in self.reached:
            seen, todo = {prefix}, [prefix]
            while todo:
                for q in self.points_at(todo.pop()) - seen:
                    seen.add(q)
                    todo.append(q)
            self.reached[prefix] = seen
        return self.reached[prefix]

    def circular(self, prefix):
        """Whether it resolves back to itself."""
        return any(prefix in self.reach(q) for q in self.points_at(prefix))

    def of_bgp(self, prefix):
        """Whether BGP has a path of it, or had before the last event."""
        return any(f.bgp_paths(prefix) for f in (self, *self.former[-1:]))

    def bgp_paths(self, prefix):
        """How many paths BGP has of a prefix."""
        return sum(origin not in ("static", "kernel") for origin, _, _ in self.world.candidates(prefix))

    def mutual(self, prefix):
        """Whether it resolves to a circle, and on the way to a prefix of which BGP has several paths to choose from."""
        return self.some(prefix, self.circular) and self.some(
            prefix, lambda q: self.bgp_paths(q) > 1)

    def lost_covers(self, prefix):
        """Whether a next hop that it resolves to lies in a prefix whose kernel route went with its link."""
        lost = [net(p) for p in self.world.lost]
        return any(ip(hop) in n for q in self.reach(prefix) for _, _, hop in self.hops(q) for n in lost)

    def some(self, prefix, what):
        """Whether something holds of the prefix or of what it resolves to."""
        return any(what(q) for q in self.reach(prefix))

    def recursive(self, prefix):
        """Whether a next hop of a candidate resolves through a route."""
        return any(kind != "single" and self.covering(hop) for _, kind, hop in self.hops(prefix))


def explain(difference: Difference, facts: Facts):
    """The name of the first rule that allows a difference, or None."""
    for r in RULES:
        if r.rival == difference.rival and r.applies(difference, facts):
            return r.name
    return None


def allow(change: Change, facts: Facts):
    """The name of the first rule that allows ribtide more changes, or None."""
    return next((r.name for r in RULES if r.rival == "changes" and r.applies(change, facts)), None)


# How often ribtide changes its mind.

def announced(path):
    """The path as the peer announced it: an observer's has this router's AS and what policies prepend before it."""
    return list(itertools.dropwhile(lambda asn: asn in (ASN, PREPENDED), path))


#: The most changes of a prefix within the time that a step may take: a next hop changes 4 times at once, then at the damped rate.
MUTUAL = 12


@rule("changes-by-way-of-a-valid-path", "changes", "RFC 4271 section 9.1; ADR 20 section 1")
def by_way_of_a_valid_path(c, facts):
    """One event reaches BGP in parts: an UPDATE before the answer to its next hop, the end of a session before the loss of next hops on
    the same link. In between ribtide advertises, once, another path that its peer announces, or withdraws where an observer does not get
    that one. A path that the event itself announces and ribtide then withdraws is no such path."""
    if c.view == "kernel" or c.count != 2:
        return False
    own = c.event.get("path") if c.event["do"] == "announce" and c.event["prefix"] == c.prefix else None
    said = [said[c.prefix]["path"] for f in (facts, *facts.former[-1:]) for said in f.world.says.values() if c.prefix in said]
    if c.values[0] is None:
        return own is not None and len(said) > 1 and c.new is not None
    told = announced(c.values[0][0])
    return any(told[-len(path):] == path for path in said) and not (own and c.new is None and told == own)


@rule("changes-unseen-by-external-peers", "changes", "RFC 4271 section 4.3: an UPDATE may repeat a route")
def unseen_by_external_peers(c, facts):
    """The best path gets another next hop, or moves to another peer that announces the same AS path. An external peer hears the
    same of both. ribtide keeps no copy of sent routes, and sends it once more. FRR and BIRD compare."""
    if c.view != "external" or c.old != c.new or c.count != 1:
        return False
    own = c.event["do"] == "announce" and c.event["prefix"] == c.prefix
    paths = [[said[c.prefix]["path"] for said in f.world.says.values() if c.prefix in said] for f in (facts, *facts.former[-1:])]
    like = [path for path in paths[0] if any(said.count(path) > 1 for said in paths) or own and path == c.event["path"]]
    return any(list(c.new[0])[-len(path):] == path for path in like)


@rule("changes-of-another-attribute", "changes", "RFC 4271 sections 5.1.4 and 5.1.5; section 4.3: an UPDATE may repeat a route")
def of_another_attribute(c, facts):
    """An import policy sets the MED to what its absence means, 0, or another LOCAL_PREF, or does so no more. Internal peers are told;
    external ones, which get no LOCAL_PREF, get the same UPDATE again."""
    if c.view == "kernel" or c.event["do"] != "policy" or c.count != 1 or c.old != c.new:
        return False
    set_by = set(c.event["policy"]).union(*(f.world.policies[c.event["peer"]] for f in facts.former[-1:]))
    return "med" in set_by or c.view == "external" and "local_pref" in set_by


@rule("changes-hidden-by-export-policy", "changes", "RFC 4271 section 4.3: an UPDATE may repeat a route")
def hidden_by_export_policy(c, facts):
    """A peer's import policy sets another LOCAL_PREF or MED, and the observer's export policy sets its own in place of it. ribtide, which
    keeps no copy of what it has sent, sends the same route once more."""
    if c.view == "kernel" or c.event["do"] != "policy" or c.event["peer"] == c.view or c.count != 1 or c.old != c.new:
        return False
    imported = set(c.event["policy"]).union(*(f.world.policies[c.event["peer"]] for f in facts.former[-1:]))
    return bool({"local_pref", "med"} & imported & set(facts.world.policies[c.view]))


@rule("changes-after-export-policy", "changes", "docs/configuration.md, Policy; RFC 4271 section 4.3: an UPDATE may repeat a route or a withdrawal")
def after_export_policy(c, facts):
    """An observer's export policy became another. ribtide sends it the table once, and withdraws all that it should not have any more, be it
    that it was not advertised before."""
    return c.event["do"] == "policy" and c.event["peer"] == c.view and c.count == 1 and c.old == c.new


@rule("changes-of-a-link-in-parts", "changes", "RFC 4271 section 9.1.2.1; ADR 20 section 1")
def of_a_link_in_parts(c, facts):
    """A link goes down: another program's kernel route by it is no longer used, before the sessions on it end. In between ribtide installs
    the prefix's static route, whose next hop resolves by what a peer on that link had announced. FRR and BIRD keep the kernel route."""
    if c.view != "kernel" or c.count != 2 or c.old != c.new or c.event["do"] != "link" or c.event["up"] or not facts.former:
        return False
    before = facts.former[-1].world
    ended = any(said and before.session(name) and not facts.world.session(name) for name, said in before.says.items())
    by_link = any(link == c.event["link"] for _, link in facts.world.kernel.get(c.prefix, {}).get("via", ()))
    return ended and by_link and c.prefix in facts.world.statics


@rule("changes-of-mutual-choices", "changes", "RFC 4264; ADR 20 section 6")
def mutual_choices(c, facts):
    """Prefixes resolve to each other, and BGP has several paths of one: each choice changes the other's next hops. ribtide tries both, and
    damps that; FRR and BIRD do not look at the next hops again."""
    return c.count <= MUTUAL and facts.mutual(c.prefix)


@rule("changes-of-a-kernel-route-in-parts", "changes", "RFC 4271 section 9.1.2.1: a route whose next hop is not resolvable is not used")
def of_a_kernel_route_in_parts(c, facts):
    """Another program's kernel route is replaced: the harness takes the former one out before it puts the next one in. In between ribtide
    withdraws what resolves by it. FRR and BIRD do not look in between."""
    if c.view == "kernel" or c.event["do"] != "kernel" or not c.event["via"] or c.count > 2 or c.old != c.new or not facts.former:
        return False
    replaced = c.event["prefix"] in facts.former[-1].world.kernel
    return replaced and c.event["prefix"] in facts.reach(c.prefix)


@rule("changes-after-a-circle", "changes", "RFC 4271 section 9.1.2.1: mutually recursive routes are not resolvable; ADR 20 section 4")
def after_a_circle(c, facts):
    """A path whose next hop resolved through the prefix itself could not be chosen. An event takes the path that was chosen and the circle
    with it: ribtide withdraws the prefix, and advertises the other path once its next hop is resolved. FRR and BIRD had not left it out."""
    if c.view == "kernel" or c.count != 2 or c.values[0] is not None or not facts.former:
        return False
    if c.old is None or c.new is None:
        return False
    circle = [any(c.prefix in f.reach(q) for q in f.points_at(c.prefix) - {c.prefix}) for f in (facts.former[-1], facts)]
    return circle == [True, False]


# Both.

def third_party(d, facts):
    """The next hop of an external route is on the subnet of the external peer that it is advertised to. RFC 4271 section
    5.1.3 lets a speaker leave it (\"third party\", MAY); ribtide always puts its own address there."""
    return d.view == "external" and None not in (d.ours, d.theirs) and d.ours[0] == d.theirs[0] \
        and d.ours[1] == ROUTER and d.theirs[1] != ROUTER and facts.on_link(d.theirs[1])


for rival in ("frr", "bird"):
    rule(f"{rival}-third-party-next-hop", rival, "RFC 4271 section 5.1.3")(third_party)


def dead_kernel_route(d, facts):
    """Another program's kernel route by a link without carrier. The kernel keeps it (`linkdown`); BIRD takes it as it is, and bgpd
    still advertises what resolves by it, which zebra refuses. ribtide uses it only while its link is up."""
    def dead(q):
        return q in facts.world.kernel and any(not facts.world.up(link) for _, link in facts.world.kernel[q]["via"])
    return facts.some(d.prefix, dead)


def multihop_apart(d, facts):
    """A single-hop and a multihop external path are equal but for that. ribtide shares traffic among paths of one kind
    only (docs/configuration.md, Equal paths); FRR and BIRD mix them. RFC 4271 leaves multipath open."""
    def both(q):
        kinds = {kind for _, kind, _ in facts.world.candidates(q)}
        return "single" in kinds and "multihop" in kinds
    return d.view == "kernel" and facts.profile["multipath"] > 1 and None not in (d.ours, d.theirs) \
        and {hop[:2] for hop in d.ours[1]} < {hop[:2] for hop in d.theirs[1]} and facts.some(d.prefix, both)


for rival in ("frr", "bird"):
    rule(f"{rival}-multihop-apart", rival, "docs/configuration.md, Equal paths and backup paths")(multihop_apart)


for rival in ("frr", "bird"):
    rule(f"{rival}-dead-kernel-route", rival, "RFC 4271 section 9.1.2.1; ip-sysctl, ignore_routes_with_linkdown")(dead_kernel_route)


# FRR.

@rule("frr-circle", "frr", "RFC 4271 section 9.1.2.1; ADR 20 section 4")
def frr_circle(d, facts):
    """A next hop resolves back to its own prefix. zebra keeps the answer that it had before the circle closed, or takes the
    less specific route, by the order of events; ribtide's answer depends on what is there alone."""
    return facts.some(d.prefix, facts.circular)


@rule("frr-single-hop-off-link", "frr", "RFC 4271 sections 5.1.3 and 9.1.2")
def frr_single_hop_off_link(d, facts):
    """A single-hop external path whose next hop is on no link, but behind a route. bgpd takes it for reachable, chooses and
    advertises it; zebra then refuses it (inactive). ribtide passes it over."""
    return facts.some(d.prefix, lambda q: any(kind == "single" and not facts.on_link(hop) and facts.covering(hop)
                                              for _, kind, hop in facts.hops(q)))


@rule("frr-kernel-route-lost", "frr", "rtnetlink: the kernel names no IPv4 routes that go with a link")
def frr_kernel_route_lost(d, facts):
    """Another program's kernel route went with its link. The kernel sends no message about it, and zebra takes the route
    for present when the link is back; ribtide reads the table again."""
    return facts.some(d.prefix, lambda q: q in facts.world.lost) or facts.lost_covers(d.prefix)


@rule("frr-next-hop-twice", "frr", "ADR 20 section 3; no RFC")
def frr_way_twice(d, facts):
    """Two next hops resolve to the same next hop on a link: zebra installs it twice, which doubles its weight. ribtide has each once."""
    return d.view == "kernel" and None not in (d.ours, d.theirs) and d.ours[0] == d.theirs[0] \
        and {hop[:2] for hop in d.ours[1]} == {hop[:2] for hop in d.theirs[1]} and any(hop[2] > 1 for hop in d.theirs[1])


@rule("frr-next-hop-not-returned", "frr", "FRR 8.4, observed; RFC 4271 section 9.1.2.1")
def frr_way_not_returned(d, facts):
    """A link came back, and zebra leaves it out of a route of several next hops, or of one that resolves through such a route."""
    if d.view != "kernel" or None in (d.ours, d.theirs):
        return False
    missing = {hop[1] for hop in d.ours[1]} - {hop[1] for hop in d.theirs[1]}
    return {hop[:2] for hop in d.theirs[1]} < {hop[:2] for hop in d.ours[1]} \
        and all(any(not f.world.up(link) for f in facts.former) for link in missing if link in facts.world.admin)


@rule("frr-next-hop-still-by-less-specific", "frr", "FRR 8.4, observed; RFC 4271 section 9.1.2.1")
def frr_still_by_less_specific(d, facts):
    """A link came back, and zebra still resolves a next hop on it by the less specific route that it took while the link was down. ribtide
    resolves it on the link again."""
    if d.view != "kernel" or None in (d.ours, d.theirs):
        return False
    ours, theirs = ({hop[:2] for hop in side[1]} for side in (d.ours, d.theirs))
    taken = set()
    for gateway, link in ours - theirs:
        without = [f for f in facts.former if link in f.world.admin and not f.world.up(link)]
        if not without:
            return False
        taken |= {hop for f in without for q in f.covering(gateway) for r in f.reach(q) for _, _, hop in f.hops(r)}
    return bool(ours - theirs) and bool(theirs - ours) and all(gateway in taken for gateway, _ in theirs - ours)


@rule("frr-multihop-next-hop-alone", "frr", "`frr-multihop-apart` and `frr-next-hop-not-returned` at once")
def frr_multihop_way_alone(d, facts):
    """A single-hop path and an equal multihop one. FRR has a next hop of the multihop path more; and a link came back, and zebra leaves out a next hop
    by it. ribtide has the best path's next hops alone."""
    if d.view != "kernel" or None in (d.ours, d.theirs) or facts.profile["multipath"] == 1:
        return False
    ours, theirs = ({hop[:2] for hop in side[1]} for side in (d.ours, d.theirs))
    multihop = {hop for q in facts.reach(d.prefix) if {"single", "multihop"} <= {kind for _, kind, _ in facts.hops(q)}
                for _, kind, hop in facts.hops(q) if kind == "multihop"}
    returned = all(link in facts.world.admin and any(not f.world.up(link) for f in facts.former) for _, link in ours - theirs)
    return bool(ours - theirs) and returned and bool(theirs - ours) and all(gateway in multihop for gateway, _ in theirs - ours)


@rule("frr-one-tracked-next-hop", "frr", "zebra's `show ip nht`: one entry for an address; RFC 4271 section 5.1.3")
def frr_one_tracked(d, facts):
    """The same address is a single-hop external peer, or was next hop of its path. zebra tracks an address once for all clients, then as one
    that must be connected, and other routes by it keep an answer that is no longer right. A static route with that next hop and a recursive
    one loses the recursive one."""
    single = {p.address for p in PEERS.values() if p.kind == "single"} | {route["next_hop"] for f in (*facts.former, facts) for name, said in f.world.says.items()
              if PEERS[name].kind == "single" for route in said.values()}

    def loses(q):
        vias = [route.get("via", []) for route in facts.world.statics.get(q, [])]
        return any(single & set(via) and any(facts.covering(a) for a in via) for via in vias)
    return facts.some(d.prefix, lambda q: loses(q) or any(kind != "single" and hop in single and facts.covering(hop)
                                                          for _, kind, hop in facts.hops(q)))


@rule("frr-blackhole-next-hop", "frr", "FRR 8.4, observed; ADR 20 section 3")
def frr_blackhole_way(d, facts):
    """A next hop resolves through several next hops of which one is a blackhole: zebra then resolves nothing by them. ribtide takes the
    next hops that resolve."""
    return facts.some(d.prefix, lambda q: any(route.get("blackhole") for route in facts.world.statics.get(q, [])))


@rule("frr-own-address-at-receipt", "frr", "RFC 4271 sections 5.1.3 and 9.1.2")
def frr_own_address(d, facts):
    """A next hop is or was one of the router's own addresses. bgpd decides about that when the UPDATE arrives, and not again
    when the address or its link goes; ribtide decides by what is there."""
    return facts.some(d.prefix, lambda q: any(facts.own(hop) for _, _, hop in facts.hops(q)))


@rule("frr-static-partly-resolved", "frr", "FRR 8.4, observed; RFC 4271 section 9.1.2.1")
def frr_static_partly_resolved(d, facts):
    """A static route has several next hops, of which one is unresolved, or was when the route came. By timing zebra leaves the whole route
    out and keeps another one of the prefix, or goes on without the next hop; ribtide drops the next hop while it is unresolved."""
    usable = (lambda q: True) if facts.profile["resolve_via_default"] else (lambda q: q != "0.0.0.0/0")

    def part(f, q):
        return any(len(route.get("via", [])) > 1 and any(not f.on_link(a) and not any(map(usable, f.covering(a))) for a in route["via"])
                   for route in f.world.statics.get(q, []))
    return facts.some(d.prefix, lambda q: any(part(f, q) for f in (facts, *facts.former)))


@rule("frr-removed-route-left", "frr", "FRR 8.4, observed; RFC 4271 section 9.1.2")
def frr_removed_route_left(d, facts):
    """A route was removed, or lost the subnet of its next hop, while another one of the prefix did not resolve: zebra leaves it in the
    kernel."""
    if d.view != "kernel" or d.ours is not None or d.theirs[0] != "router":
        return False
    if d.prefix not in facts.world.statics and any(d.prefix in f.world.statics for f in facts.former):
        return True
    left = {gateway for gateway, _, _ in d.theirs[1]}
    now = {hop for _, _, hop in facts.hops(d.prefix)}
    removed = not left & now
    unresolved = len(facts.world.candidates(d.prefix)) > 1 and not any(facts.on_link(hop) or facts.covering(hop) for hop in now)
    return bool(now) and (removed or unresolved) and any(left <= {hop for _, _, hop in f.hops(d.prefix)} for f in facts.former)


@rule("frr-route-lost-with-link", "frr", "FRR 8.4, observed; rtnetlink: the kernel names no IPv4 routes that go with a link")
def frr_route_lost(d, facts):
    """A link was taken down by its administrator and is up again: the kernel removed the routes by it without a word, and zebra, which
    hears of both at once, does not install them again."""
    return d.view == "kernel" and d.theirs is None and d.ours[0] == "router" and all(
        link in facts.world.admin and any(not f.world.admin[link] for f in facts.former) for _, link, _ in d.ours[1])


@rule("frr-advertised-not-installed", "frr", "RFC 4271 section 9.1.3: what is advertised is what is used")
def frr_advertised_not_installed(d, facts):
    """FRR advertises the same path as ribtide, and zebra has not installed it: a recursive route that did not resolve when it came. FRR
    contradicts itself, and is no judge of the kernel's route of this prefix, nor of what resolves to it and whether that is advertised; BIRD and the
    invariant are."""
    through = facts.reach(d.prefix) if d.view == "kernel" else facts.reach(d.prefix) - {d.prefix}
    return d.ours is not None and (d.view != "kernel" or d.ours[0] == "router") \
        and any(q in d.uninstalled and facts.recursive(q) for q in through)


@rule("frr-shorter-match-after-policy", "frr", "FRR 8.4, observed; RFC 4271 section 9.1.2.1: the longest match")
def frr_shorter_match(d, facts):
    """An import policy changed, and bgpd announced the peer's routes again. While the route by which a next hop resolves was replaced, zebra
    resolved the next hop by a less specific one, and keeps that; ribtide takes the longest match."""
    if d.view != "kernel" or None in (d.ours, d.theirs) or d.theirs[0] != "router":
        return False
    changed = {peer for f in facts.former for peer, policy in f.world.policies.items() if policy != facts.world.policies[peer]}
    theirs = {gateway for gateway, _, _ in d.theirs[1]}

    def shorter(hop):
        longest, *others = facts.covering(hop) or [None]
        return any(origin in changed for origin, _, _ in facts.hops(longest)) and any(theirs <= {h for _, _, h in facts.hops(q)} for q in others)
    return any(kind != "single" and shorter(hop) for q in facts.reach(d.prefix) for _, kind, hop in facts.hops(q) if facts.covering(hop))


@rule("frr-kernel-route-back", "frr", "rtnetlink: the kernel names no route whose link lost its carrier or has it again")
def frr_kernel_route_back(d, facts):
    """Another program's kernel route by a link that lost its carrier and has it again. The kernel sends no message about the route, and
    zebra goes on without it; ribtide looks at the link."""
    return facts.some(d.prefix, lambda q: q in facts.world.kernel and any(
        facts.world.up(link) and any(not f.world.up(link) for f in facts.former) for _, link in facts.world.kernel[q]["via"]))


@rule("frr-med-as-cost", "frr", "RFC 4271 section 9.1.2.2 e: a MED is no cost of a next hop; ADR 20 section 1, ADR 42")
def frr_med_as_cost(d, facts):
    """BGP has several paths of a prefix, and a next hop of one resolves through another BGP route, whose MED a policy sets. zebra has the MED
    as that route's metric, and bgpd takes it for the cost of the next hop. In ribtide that is the cost of the route's own next hop and its
    AIGP, which no world has."""
    def by_med(q):
        return any("med" in facts.world.policies.get(origin, ()) for origin, _, _ in facts.hops(q))
    return facts.some(d.prefix, lambda q: facts.bgp_paths(q) > 1 and any(by_med(r) for r in facts.reach(q) - {q}))


# BIRD.

@rule("bird-dead-next-hop-left", "bird", "BIRD 2.0, observed; RFC 4271 section 9.1.2.1")
def bird_dead_way_left(d, facts):
    """BIRD leaves a route of several next hops in the kernel with a next hop on a link that was taken down. The other next hops are the same."""
    if d.view != "kernel" or None in (d.ours, d.theirs):
        return False
    more = {hop[:2] for hop in d.theirs[1]} - {hop[:2] for hop in d.ours[1]}
    return bool(more) and {hop[:2] for hop in d.ours[1]} < {hop[:2] for hop in d.theirs[1]} \
        and all(link in facts.world.admin and not facts.world.up(link) for _, link in more)


@rule("bird-own-address", "bird", "RFC 4271 section 5.1.3: a speaker installs no route with itself as the next hop")
def bird_own_address(d, facts):
    """A next hop is one of the router's own addresses: BIRD takes it for a gateway on that link."""
    return facts.some(d.prefix, lambda q: any(facts.own(hop) for _, _, hop in facts.hops(q)))


@rule("bird-recursive-through-recursive", "bird", "BIRD user's guide, protocol bgp, `gateway recursive`; static, `recursive`")
def bird_recursive(d, facts):
    """BIRD resolves no next hop by a prefix that has a recursive route, be its next hop on a link or not, nor looks again when a
    recursive route that was not the best goes. RFC 4271 section 5.1.3 has the router look the next hop up until the address is
    on a link, which ribtide and FRR do."""
    def recursive(q):
        return any(kind in ("multihop", "internal", "client") or kind == "static" and not all(a.startswith("10.") for a in hops)
                   for f in (facts, *facts.former) for _, kind, hops in f.world.candidates(q))
    return facts.some(d.prefix, lambda q: any(recursive(r) for r in facts.points_at(q)))


@rule("bird-one-next-hop-of-several", "bird", "BIRD user's guide, protocol kernel, `merge paths`")
def bird_one_way(d, facts):
    """A next hop resolves through a prefix that BGP has by several equal paths. BIRD merges paths on the way to the kernel only, so
    its recursive routes have the next hop of the best path alone; ribtide and FRR take all."""
    return d.view == "kernel" and facts.profile["multipath"] > 1 and None not in (d.ours, d.theirs) \
        and {hop[:2] for hop in d.theirs[1]} < {hop[:2] for hop in d.ours[1]} \
        and facts.some(d.prefix, lambda q: any(sum(origin not in ("static", "kernel") for origin, _, _ in facts.world.candidates(r)) > 1
                                               for r in facts.points_at(q)))


@rule("bird-next-hop-on-dead-link", "bird", "BIRD 2.0, observed; RFC 4271 section 9.1.2.1")
def bird_dead_link(d, facts):
    """A next hop lies in the subnet of a link that is down. BIRD keeps it on that link, or unreachable; ribtide and FRR take a
    less specific route, if there is one."""
    dead = [interface(a).network for link, addresses in facts.world.addresses.items()
            if not facts.world.up(link) for a in addresses]
    return facts.some(d.prefix, lambda q: any(ip(hop) in n for _, _, hop in facts.hops(q) for n in dead))


@rule("bird-kernel-next-hop-marked-dead", "bird", "BIRD 2.0, observed; ADR 20 section 1")
def bird_kernel_marked_dead(d, facts):
    """Another program's kernel route has several next hops, and the last address of one's link was removed: the kernel keeps the route and marks
    that next hop as dead. BIRD leaves it out of what resolves through the route. ribtide and FRR use it while its link is up."""
    if d.view != "kernel" or None in (d.ours, d.theirs):
        return False
    missing = {hop[:2] for hop in d.ours[1]} - {hop[:2] for hop in d.theirs[1]}
    marked = [facts.world.installed[q] for q in facts.reach(d.prefix) if q in facts.world.installed]
    dead = {(gateway, link) for event, links in marked for gateway, link in event["via"] if link in links and facts.world.up(link)}
    return bool(missing) and {hop[:2] for hop in d.theirs[1]} < {hop[:2] for hop in d.ours[1]} and missing <= dead


@rule("bird-static-next-hops", "bird", "BIRD user's guide, protocol static: `via` wants a neighbour, `recursive` is one address")
def bird_static_ways(d, facts):
    """A static route with several next hops that are not all on links: BIRD cannot be configured so, and leaves some out."""
    def left_out(q):
        hops = [route["via"] for route in facts.world.statics.get(q, []) if "via" in route]
        return any(any(not facts.on_link(a) for a in via if a.startswith("10.")) or
                   (len(via) > 1 and not all(a.startswith("10.") for a in via)) for via in hops)
    return facts.some(d.prefix, left_out)


@rule("bird-unreachable-preferred", "bird", "BIRD user's guide, `preference`; `recursive`")
def bird_unreachable_preferred(d, facts):
    """A recursive route that does not resolve is an unreachable route of full preference in BIRD; ribtide and FRR take the next
    candidate, of another protocol or distance."""
    def hidden(q):
        candidates = facts.world.candidates(q)
        return len(candidates) > 1 and any(
            kind in ("multihop", "internal", "client") or not hop.startswith("10.")
            for _, kind, hops in candidates for hop in hops if kind != "single" and not facts.on_link(hop))
    return facts.some(d.prefix, hidden)


@rule("bird-direct-at-receipt", "bird", "BIRD user's guide, protocol bgp, `gateway direct`")
def bird_direct(d, facts):
    """With `gateway direct`, BIRD decides when an UPDATE arrives whether its next hop is on a link, and not again when links or
    addresses change. ribtide and FRR track the next hop (RFC 4271 section 9.1.2.1)."""
    def changed(q):
        return any(kind == "single" and any(f.on_link(hop) != facts.on_link(hop) for f in facts.former)
                   for _, kind, hop in facts.hops(q))
    return facts.some(d.prefix, changed)


@rule("bird-one-table", "bird", "BIRD user's guide, routes and preference: a channel exports the best route of the table")
def bird_one_table(d, facts):
    """Another protocol's route of this prefix is preferred. BIRD's channels export the best route of the table only;
    ribtide and FRR advertise BGP's best path, for the prefix is forwarded (RFC 4271 section 9.1.3)."""
    return d.view != "kernel" and (d.prefix in facts.world.statics or d.prefix in facts.world.kernel or d.others)


@rule("bird-resolves-via-default", "bird", "BIRD has no option as zebra's `ip nht resolve-via-default`")
def bird_default(d, facts):
    """With resolve-via-default off, BIRD still resolves by the default route."""
    return not facts.profile["resolve_via_default"] and facts.some(d.prefix, lambda q: "0.0.0.0/0" in facts.points_at(q))


def table():
    """The rules as docs/trust.md has them. Rules of several programs with one reason share a row."""
    rows = {}
    for r in RULES:
        rows.setdefault((r.source, r.reason), []).append(f"`{r.name}`")
    lines = ["| rule | source | what differs |", "| --- | --- | --- |"]
    return "\n".join(lines + [f"| {', '.join(names)} | {source} | {reason} |" for (source, reason), names in rows.items()]) + "\n"
