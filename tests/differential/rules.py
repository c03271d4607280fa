"""Every difference that is allowed, each as one named rule with its clause of an RFC or the documented behaviour behind it.

A rule is about one rival and looks at the world of the history, at the prefix, and at what both have. A difference that no
rule explains is a failure. `explain` names the first rule that applies.
"""

import ipaddress
from typing import NamedTuple

from world import PEERS, World, net

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


class Facts:
    """What rules ask about a world, computed once for each step. `former` are the worlds after the steps before."""

    def __init__(self, world: World, profile, former=()):
        self.world, self.profile, self.former = world, profile, list(former)
        self.connected = world.connected()
        self.known = {p: net(p) for p in world.prefixes()}
        self.reached = {}

    def on_link(self, address):
        """Whether a link that is up has a subnet with this address."""
        address = ipaddress.IPv4Address(address)
        return any(address in network for network, _, _ in self.connected)

    def own(self, address):
        return any(str(mine) == address for _, mine, _ in self.connected)

    def covering(self, address):
        """Prefixes of routes that hold an address, longest first, as far as they count: not behind a subnet of a link."""
        a = ipaddress.IPv4Address(address)
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
        """The prefix and all that its next hops lead to, however far."""
        if prefix not in self.reached:
            seen, todo = {prefix}, [prefix]
            while todo:
                for q in self.points_at(todo.pop()) - seen:
                    seen.add(q)
                    todo.append(q)
            self.reached[prefix] = seen
        return self.reached[prefix]

    def circular(self, prefix):
        """Whether it leads back to itself."""
        return any(prefix in self.reach(q) for q in self.points_at(prefix))

    def some(self, prefix, what):
        """Whether something holds of the prefix or of what it leads to."""
        return any(what(q) for q in self.reach(prefix))

    def recursive(self, prefix):
        """Whether a next hop of a candidate leads through a route."""
        return any(kind != "single" and self.covering(hop) for _, kind, hop in self.hops(prefix))


def explain(difference: Difference, facts: Facts):
    """The name of the first rule that allows a difference, or None."""
    for r in RULES:
        if r.rival == difference.rival and r.applies(difference, facts):
            return r.name
    return None


# FRR.

@rule("frr-circle", "frr", "RFC 4271 section 9.1.2.1; ADR 20 section 4")
def frr_circle(d, facts):
    """A next hop leads back to its own prefix. zebra keeps the answer that it had before the circle closed, or takes the
    less specific route, by the order of events; ribtide's answer depends on what is there alone."""
    return facts.some(d.prefix, facts.circular)


@rule("frr-single-hop-off-link", "frr", "RFC 4271 sections 5.1.3 and 9.1.2")
def frr_single_hop_off_link(d, facts):
    """A single-hop external path whose next hop is on no link, but behind a route. bgpd takes it for reachable, chooses and
    advertises it; zebra then refuses it (inactive). ribtide passes it over."""
    return facts.some(d.prefix, lambda q: any(kind == "single" and not facts.on_link(hop) and facts.covering(hop)
                                              for _, kind, hop in facts.hops(q)))


# BIRD.

@rule("bird-recursive-through-recursive", "bird", "BIRD user's guide, protocol bgp, `gateway recursive`; static, `recursive`")
def bird_recursive(d, facts):
    """BIRD resolves no next hop by a route whose own next hop is recursive: it is unreachable. RFC 4271 section 5.1.3 has
    the router look the next hop up until the address is on a link, which ribtide and FRR do."""
    return facts.some(d.prefix, lambda q: any(facts.recursive(r) for r in facts.points_at(q)))


@rule("bird-static-several", "bird", "BIRD user's guide, protocol static: `via` wants a neighbour, `recursive` is one address")
def bird_static_several(d, facts):
    """Several next hops of a static route that are not all on links: BIRD cannot be configured so, and has the first alone."""
    return facts.some(d.prefix, lambda q: any(len(route.get("via", [])) > 1 and not all(a.startswith("10.") for a in route["via"])
                                              for route in facts.world.statics.get(q, [])))


@rule("bird-one-table", "bird", "BIRD user's guide, routes and preference: a channel exports the best route of the table")
def bird_one_table(d, facts):
    """Another protocol's route of this prefix is preferred. BIRD's channels export the best route of the table only;
    ribtide and FRR advertise BGP's best path, for the prefix is forwarded (RFC 4271 section 9.1.3)."""
    return d.view != "kernel" and (d.prefix in facts.world.statics or d.prefix in facts.world.kernel)


@rule("bird-resolves-via-default", "bird", "BIRD has no option as zebra's `ip nht resolve-via-default`")
def bird_default(d, facts):
    """With resolve-via-default off, BIRD still resolves by the default route."""
    return not facts.profile["resolve_via_default"] and facts.some(d.prefix, lambda q: "0.0.0.0/0" in facts.points_at(q))
