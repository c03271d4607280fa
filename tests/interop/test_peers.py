"""BIRD, FRR and GoBGP each peer with ribtide, both ways, over IPv4 and IPv6, and all sides agree on every prefix and
its attributes: the table goes feed → ribtide → other, and feed → other → ribtide."""

import pytest
from harness import Bird, Frr, Gobgp, Pair, Ribtide, binary, load_table, source, wait_for
from harness.table import Route

US, OTHER, FEED = 65001, 65002, 65010
#: The peer of the MRT file whose table is the largest: the one that `replay` picks.
FULL_FEED = "193.0.0.56"

RIBTIDE = f"""
[router]
asn = {US}
router-id = "10.255.0.1"

[bgp]
listen = ["[::]:179"]

[bgp.group.feed]
type = "external"
peer-asn = {FEED}
passive = true
import = ["accept"]
export = ["reject"]
neighbors = ["127.0.0.2"]

[bgp.group.other]
type = "external"
peer-asn = {OTHER}
import = ["accept"]
export = ["accept"]
connect-retry = 1
neighbors = ["{Pair.B4}", "{Pair.B6}"]
"""

BIRD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
template bgp us {{
    local as {OTHER};
    ipv4 {{ import all; export all; }};
    ipv6 {{ import all; export all; }};
    connect retry time 1; error wait time 1,2; connect delay time 1;
}}
protocol bgp ribtide4 from us {{ neighbor {Pair.A4} as {US}; }}
protocol bgp ribtide6 from us {{ neighbor {Pair.A6} as {US}; }}
protocol bgp feed {{
    local 127.0.0.1 as {OTHER};
    neighbor 127.0.0.2 as {FEED};
    multihop; passive;
    ipv4 {{ import all; export none; }};
    ipv6 {{ import all; export none; }};
}}
"""

FRR_ZEBRA = "hostname zebra\n"
FRR_BGPD = f"""hostname bgpd
router bgp {OTHER}
 bgp router-id {Pair.B4}
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp network import-check
 neighbor {Pair.A4} remote-as {US}
 neighbor {Pair.A4} timers connect 1
 neighbor {Pair.A6} remote-as {US}
 neighbor {Pair.A6} timers connect 1
 neighbor 127.0.0.2 remote-as {FEED}
 neighbor 127.0.0.2 passive
 neighbor 127.0.0.2 ebgp-multihop 2
 neighbor 127.0.0.2 disable-connected-check
 address-family ipv4 unicast
  neighbor {Pair.A4} activate
  neighbor {Pair.A6} activate
  neighbor 127.0.0.2 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor {Pair.A4} activate
  neighbor {Pair.A6} activate
  neighbor 127.0.0.2 activate
 exit-address-family
"""

GOBGP = f"""
[global.config]
  as = {OTHER}
  router-id = "{Pair.B4}"
""" + "".join(f"""
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {asn}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.transport.config]
    passive-mode = {passive}
  [neighbors.ebgp-multihop.config]
    enabled = {multihop}
    multihop-ttl = 2
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv6-unicast"
""" for address, asn, passive, multihop in [
    (Pair.A4, US, "false", "false"), (Pair.A6, US, "false", "false"), ("127.0.0.2", FEED, "true", "true")])


class Other:
    """One of the three, behind the same questions."""

    def __init__(self, kind, host):
        self.kind = kind
        if kind == "bird":
            self.daemon = Bird(host, BIRD)
        elif kind == "frr":
            self.daemon = Frr(host, FRR_ZEBRA, FRR_BGPD)
        else:
            self.daemon = Gobgp(host, GOBGP)

    def table(self):
        if self.kind == "bird":
            return {**self.daemon.table("ribtide4"), **self.daemon.table("ribtide6"), **self.daemon.table("feed")}
        if self.kind == "frr":
            return {**self.daemon.bgp_table("ipv4"), **self.daemon.bgp_table("ipv6")}
        return {**self.daemon.table("ipv4"), **self.daemon.table("ipv6")}


def feed(host, next_hop, to="127.0.0.1:179"):
    """Plays the table and stays."""
    return host.start("feed", binary(), *source(), "--to", to, "--from", "127.0.0.2", "--asn", str(FEED), "--wait", "30",
                      "--next-hop", next_hop, "--quiet")


def held(router):
    """Prefix → Route of ribtide's best paths."""
    routes = {}
    for entry in router.show("route"):
        best = [p for p in entry["paths"] if p["best"]]
        assert len(best) == 1, entry
        p = best[0]
        routes[entry["prefix"]] = Route(p["as_path"], p["origin"], frozenset(p.get("communities", [])))
    return routes


def differences(left, right, limit=5):
    """What a person needs to see of two tables that should be equal."""
    missing = sorted(left.keys() - right.keys())
    extra = sorted(right.keys() - left.keys())
    other = [p for p in left.keys() & right.keys() if left[p] != right[p]]
    if not (missing or extra or other):
        return None
    shown = [f"{p}: {left[p]} != {right[p]}" for p in other[:limit]]
    return f"missing {len(missing)} {missing[:limit]}, extra {len(extra)} {extra[:limit]}, different {len(other)} {shown}"


def prefixes_sent():
    """What the feed will announce, as another decoder sees it; None for a generated table."""
    table = load_table(FULL_FEED)
    return None if table is None else {p: r.behind(FEED) if not r.as_path.startswith(str(FEED)) else r for p, r in table.items()}


@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_ribtide_to_other(pair, kind):
    router = Ribtide(pair.a, RIBTIDE)
    other = Other(kind, pair.b)
    router.wait_established(Pair.B4)
    router.wait_established(Pair.B6)
    feed(pair.a, Pair.A4)
    expected = prefixes_sent()
    if expected is not None:
        router.wait_prefixes(len(expected))
    settled(router)
    mine = held(router)
    if expected is not None:
        assert differences(expected, mine) is None
    theirs = {p: r.behind(US) for p, r in mine.items()}
    wait_for(f"{kind} holds what ribtide sent", lambda: len(other.table()) == len(theirs), 120, 1)
    assert differences(theirs, other.table()) is None
    # Everything goes when the feed goes: nothing stale on either side.
    pair.a.processes[-1].stop()
    router.wait_prefixes(0)
    wait_for(f"{kind} holds nothing", lambda: not other.table(), 60, 1)


@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_other_to_ribtide(pair, kind):
    router = Ribtide(pair.a, RIBTIDE)
    other = Other(kind, pair.b)
    router.wait_established(Pair.B4)
    router.wait_established(Pair.B6)
    feed(pair.b, Pair.B4)
    expected = prefixes_sent()
    if expected is not None:
        router.wait_prefixes(len(expected))
    settled(router)
    theirs = other.table()
    assert len(theirs) > 50_000
    if expected is not None:
        assert differences(expected, theirs) is None
    mine = held(router)
    assert differences({p: r.behind(OTHER) for p, r in theirs.items()}, mine) is None
    # The session goes, and with it all that came over it.
    pair.b.ip("link", "set", "eth0", "down")
    if kind == "bird":
        other.daemon.process.kill()
    elif kind == "frr":
        other.daemon.processes[-1].kill()
    else:
        other.daemon.process.kill()
    pair.a.ip("link", "set", "eth0", "down")
    router.wait_prefixes(0, timeout=120)


def settled(router):
    """Waits until the number of prefixes has stopped changing and is not zero."""
    last = [0]

    def still():
        now = sum(router.show("bgp", "summary")["prefixes"].values())
        same = now == last[0] and now > 0
        last[0] = now
        return same
    wait_for("the table has settled", still, 180, 2.0)
