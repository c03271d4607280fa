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
