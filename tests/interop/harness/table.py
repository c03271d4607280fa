"""Routing tables for comparison, and the sources of real ones."""

import functools
import gzip
import os
import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATA = pathlib.Path(os.environ.get("RIBTIDE_DATA", ROOT.parent / "shared" / "data"))
MRT = DATA / "mrt" / "bview.20020722.2337.gz"
#: The AS whose table is the largest in that file: the one that `replay` picks. Feeds speak as it, so that the
#: recorded paths are what it would send.
FEED_ASN = 1853
FEED_PEER = "193.203.0.1"
#: How many prefixes the feeds send: IPv4 where the recorded table is absent, and IPv6.
GENERATED4, GENERATED6 = 110_000, 20_000


class Route(NamedTuple):
    """The attributes that two speakers must agree on."""

    as_path: str
    origin: str
    next_hop: str = ""
    med: int = 0
    local_pref: int = 100
    communities: frozenset = frozenset()
    large_communities: frozenset = frozenset()
    #: AGGREGATOR as "ASN address", and ATOMIC_AGGREGATE.
    aggregator: str = ""
    atomic: bool = False
    #: Of reflected routes (RFC 4456).
    originator: str = ""
    cluster_list: str = ""

    def sent_by(self, asn, next_hop):
        """The same route after `asn` has sent it to another AS: MED is for neighbours only (RFC 4271 section 5.1.4)."""
        return self._replace(as_path=f"{asn} {self.as_path}".strip(), next_hop=next_hop, med=0)


#: What `ribtide show route` does not print.
NOT_SHOWN = ("aggregator", "atomic", "originator", "cluster_list")


@functools.cache
def as_path(text):
    """An AS path in one format: the members of a set once each, in ascending order."""
    text = re.sub(r"\s*,\s*", ",", text.strip())
    return re.sub(r"\{([^}]*)\}", lambda m: "{" + ",".join(sorted(set(re.split(r"[ ,]+", m[1].strip())), key=int)) + "}", text)


def agree(left, right, ignore=()):
    """Fails with the differences, unless two tables are equal except for some fields."""
    if left == right:
        return
    def seen(route):
        return route._replace(**{f: Route._field_defaults[f] for f in ignore})
    missing = sorted(left.keys() - right.keys())
    extra = sorted(right.keys() - left.keys())
    other = sorted(p for p in left.keys() & right.keys() if seen(left[p]) != seen(right[p]))
    if not (missing or extra or other):
        return
    lines = [f"missing {len(missing)} {missing[:5]}, extra {len(extra)} {extra[:5]}, different {len(other)}"]
    for p in other[:5]:
        fields = [f for f in Route._fields if f not in ignore and getattr(left[p], f) != getattr(right[p], f)]
        lines += [f"  {p} {f}: {getattr(left[p], f)!r:.300} != {getattr(right[p], f)!r:.300}" for f in fields]
    raise AssertionError("\n".join(lines))


def sent(table, side):
    """What a neighbour should hold of a table that `side` sends it over its two sessions."""
    return {p: r.sent_by(side.asn, side.six if ":" in p else side.four) for p, r in table.items()}


def family(table, six):
    """The part of a table that is of one family."""
    return {p: r for p, r in table.items() if (":" in p) == six}


@functools.cache
def recorded():
    """The table that `replay` plays, as an independent decoder printed it, or None where it is absent. To be read only."""
    expected = MRT.parent / "expected" / (MRT.name + ".bgp.gz")
    if not (expected.exists() and MRT.exists()):
        return None
    routes = {}
    with gzip.open(expected, "rt") as text:
        for line in text:
            f = line.rstrip("\n").split("|")
            if f[2] == "B" and f[3] == FEED_PEER:
                # An AGGREGATOR of AS 0 is malformed and is discarded (RFC 7607, RFC 7606 section 7.7).
                aggregator = "" if f[13].startswith("0 ") else f[13]
                routes[f[5]] = Route(as_path(f[6]), f[7].lower(), f[8], int(f[10]), communities=frozenset(f[11].split()),
                                     aggregator=aggregator, atomic=f[12] == "AG")
    return routes
