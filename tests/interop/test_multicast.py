"""IPv4 and IPv6 multicast (SAFI 2 of RFC 4760) beside BIRD, FRR and GoBGP: routes pass through ribtide and the other
in both directions, are none of unicast, and never reach the kernel."""

import ipaddress
import json
import random
import struct

import pytest
from harness import Bird, Frr, Gobgp, Pair, Ribtide, wait_for
from harness.speaker import KEEPALIVE, UPDATE, Speaker, attribute, message, prefixes, raw_update, update

LEFT, RIGHT = 65001, 65002
#: The AS of the feed of ribtide, and that of the other.
FEED_LEFT, FEED_RIGHT = 65100, 65200
#: IPv4 and IPv6 multicast, as capabilities.
MULTICAST = bytes([1, 4, 0, 1, 0, 2]) + bytes([1, 4, 0, 2, 0, 2])
FEED_ADDRESS = "198.19.0.2"
HOPS = {4: "193.203.0.7", 6: "fd00:193::7"}

BIRD = f"""
router id {Pair.B4};
log stderr all;
ipv4 table mcast4;
ipv6 table mcast6;
protocol device {{}}
protocol bgp four {{
    local as {RIGHT};
    neighbor {Pair.A4} as {LEFT};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    graceful restart on;
    ipv4 {{ import all; export all; }};
    ipv4 multicast {{ table mcast4; import all; export all; add paths rx; }};
}}
protocol bgp six {{
    local as {RIGHT};
    neighbor {Pair.A6} as {LEFT};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv6 multicast {{ table mcast6; import all; export all; }};
}}
protocol bgp feed {{
    local as {RIGHT};
    neighbor {FEED_ADDRESS} as {FEED_RIGHT};
    passive;
    ipv4 {{ import all; export all; }};
    ipv4 multicast {{ table mcast4; import all; export all; }};
    ipv6 multicast {{ table mcast6; import all; export none; }};
}}
"""

FRR = f"""hostname bgpd
ip prefix-list none deny any
router bgp {RIGHT}
 bgp router-id {Pair.B4}
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp network import-check
 neighbor {Pair.A4} remote-as {LEFT}
 neighbor {Pair.A4} timers connect 1
 neighbor {Pair.A6} remote-as {LEFT}
 neighbor {Pair.A6} timers connect 1
 neighbor {FEED_ADDRESS} remote-as {FEED_RIGHT}
 neighbor {FEED_ADDRESS} passive
 neighbor {FEED_ADDRESS} disable-connected-check
 address-family ipv4 unicast
  neighbor {Pair.A4} activate
  neighbor {FEED_ADDRESS} activate
 exit-address-family
 address-family ipv4 multicast
  neighbor {Pair.A4} activate
  neighbor {FEED_ADDRESS} activate
 exit-address-family
 address-family ipv6 multicast
  neighbor {Pair.A6} activate
  neighbor {FEED_ADDRESS} activate
 exit-address-family
"""


def gobgp_neighbor(address, asn, families, passive):
    return f"""
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {asn}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.transport.config]
    passive-mode = {passive}
""" + "".join(f"""  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "{family}"
""" for family in families)


GOBGP = f"""
[global.config]
  as = {RIGHT}
  router-id = "{Pair.B4}"
""" + gobgp_neighbor(Pair.A4, LEFT, ["ipv4-unicast", "ipv4-multicast"], "false") \
    + gobgp_neighbor(Pair.A6, LEFT, ["ipv6-multicast"], "false") \
    + gobgp_neighbor(FEED_ADDRESS, FEED_RIGHT, ["ipv4-unicast", "ipv4-multicast", "ipv6-multicast"], "true")


def ribtide(more=""):
    return f"""
[router]
asn = {LEFT}
router-id = "{Pair.A4}"

[fib.kernel]

[bgp]
listen = ["[::]:179"]

[bgp.group.feeds]
type = "external"
peer-asn = {FEED_LEFT}
passive = true
import = ["accept"]
export = ["accept"]
families = ["ipv4-unicast", "ipv4-multicast", "ipv6-multicast"]
neighbors = ["{FEED_ADDRESS}"]

[bgp.group.link]
type = "external"
peer-asn = {RIGHT}
import = ["accept"]
export = ["accept"]
connect-retry = 1
{more}
neighbor = [
    {{ address = "{Pair.B4}", families = ["ipv4-unicast", "ipv4-multicast"] }},
    {{ address = "{Pair.B6}", families = ["ipv6-multicast"] }},
]
"""


def start(kind, host):
    if kind == "bird":
        return Bird(host, BIRD)
    if kind == "frr":
        return Frr(host, bgpd=FRR)
    return Gobgp(host, GOBGP)


def announcement(prefix, asn, med):
    """An UPDATE with a multicast route."""
    version = ipaddress.ip_network(prefix).version
    hop = ipaddress.ip_address(HOPS[version]).packed
    family = struct.pack("!HB", 1 if version == 4 else 2, 2)
    path = struct.pack("!BBI", 2, 1, asn)
    return raw_update(attributes=attribute(0x80, 14, family + bytes([len(hop)]) + hop + b"\0" + prefixes([prefix]))
                      + attribute(0x40, 1, b"\0") + attribute(0x40, 2, path) + attribute(0x80, 4, med.to_bytes(4, "big")))


def withdrawal(prefix):
    family = struct.pack("!HB", 1 if ipaddress.ip_network(prefix).version == 4 else 2, 2)
    return raw_update(attributes=attribute(0x80, 15, family + prefixes([prefix])))


def nlri(data):
    """The IPv4 prefixes of a field."""
    found = []
    while data:
        size = (data[0] + 7) // 8
        found.append(str(ipaddress.ip_network((data[1:1 + size].ljust(4, b"\0"), data[0]))))
        data = data[1 + size:]
    return found


class Receiver:
    """The IPv4 routes that a router has sent to a speaker, of unicast and of multicast."""

    def __init__(self, speaker):
        self.speaker, self.tables, self.ends = speaker, {1: set(), 2: set()}, set()

    def read(self):
        self.speaker.send(message(KEEPALIVE))
        while True:
            try:
                got = self.speaker.read(0.2)
            except TimeoutError:
                return self.tables
            assert got, "the router has ended the session"
            if got[0] == UPDATE:
                self.update(got[1])

    def update(self, body):
        size = struct.unpack("!H", body[:2])[0]
        withdrawn, rest = body[2:2 + size], body[2 + size:]
        size = struct.unpack("!H", rest[:2])[0]
        attributes, announced = rest[2:2 + size], rest[2 + size:]
        self.tables[1] -= set(nlri(withdrawn))
        self.tables[1] |= set(nlri(announced))
        while attributes:
            wide = attributes[0] & 0x10
            size = struct.unpack("!H", attributes[2:4])[0] if wide else attributes[2]
            value, attributes_code = attributes[3 + bool(wide):][:size], attributes[1]
            attributes = attributes[3 + bool(wide) + size:]
            if attributes_code in (14, 15) and value[:2] == b"\0\1":
                if attributes_code == 14:
                    hop = value[3]
                    assert hop == 4, "an IPv4 next hop"
                    self.tables[value[2]] |= set(nlri(value[4 + hop + 1:]))
                else:
                    self.tables[value[2]] -= set(nlri(value[3:]))
                    if len(value) == 3:
                        self.ends.add(value[2])


def own(router, family):
    """The prefixes of a family in the Loc-RIB."""
    return {route["prefix"] for route in router.show("route", "--family", family)}


def in_other(kind, other):
    """The IPv6 multicast prefixes that the other has."""
    if kind == "bird":
        return {line.split()[0] for line in other.query("show route table mcast6").splitlines() if line.startswith("2001:")}
    return set(json.loads(other.query("show bgp ipv6 multicast json", "bgpd")).get("routes", {}))


@pytest.mark.feature("IPv4 and IPv6 multicast (RFC 4760)")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_routes_of_multicast_pass(pair, kind):
    router, other = Ribtide(pair.a, ribtide()), start(kind, pair.b)
    for neighbor in (Pair.B4, Pair.B6):
        wait_for(f"the session with {neighbor}", lambda n=neighbor: router.established(n), 60, alive=[router.process])
    assert router.session(Pair.B4)["families"] == ["ipv4-unicast", "ipv4-multicast"]
    assert router.session(Pair.B6)["families"] == ["ipv6-multicast"]
    ours = Speaker(pair.a, FEED_ADDRESS, FEED_LEFT, hold=90, more=MULTICAST)
    theirs = Speaker(pair.b, FEED_ADDRESS, FEED_RIGHT, hold=90, more=MULTICAST)
    behind_us, behind_them = Receiver(ours), Receiver(theirs)

    # Random histories in both directions at once, with disjoint prefixes.
    rng = random.Random(kind)
    pool = {ours: [f"10.{n}.0.0/16" for n in range(20)] + [f"2001:db8:{n:x}::/48" for n in range(1, 12)],
            theirs: [f"10.{n}.0.0/16" for n in range(100, 120)] + [f"2001:db8:{n:x}::/48" for n in range(0x100, 0x10c)]}
    there = {ours: set(), theirs: set()}
    # A route of unicast for a prefix that multicast has too.
    ours.send(update(["10.3.0.0/16", "172.16.0.0/16"], [FEED_LEFT], FEED_ADDRESS))

    def four(speaker):
        return {prefix for prefix in there[speaker] if ":" not in prefix}

    def six(speaker):
        return {prefix for prefix in there[speaker] if ":" in prefix}

    for _ in range(6):
        for speaker in (ours, theirs):
            for _ in range(25):
                prefix = rng.choice(pool[speaker])
                if rng.random() < 0.65:
                    speaker.send(announcement(prefix, FEED_LEFT if speaker is ours else FEED_RIGHT, rng.randint(0, 9)))
                    there[speaker].add(prefix)
                else:
                    speaker.send(withdrawal(prefix))
                    there[speaker].discard(prefix)
        wait_for("ribtide has the IPv4 routes", lambda: own(router, "ipv4-multicast") == four(ours) | four(theirs), 30, 0.2)
        wait_for("ribtide has the IPv6 routes", lambda: own(router, "ipv6-multicast") == six(ours) | six(theirs), 30, 0.2)
        wait_for("the other sends ours on", lambda: behind_them.read()[2] >= four(ours) and not behind_them.tables[2] & (set(pool[ours]) - four(ours)), 30, 0.2)
        wait_for("ribtide sends theirs on", lambda: behind_us.read()[2] >= four(theirs) and not behind_us.tables[2] & (set(pool[theirs]) - four(theirs)), 30, 0.2)
        if kind != "gobgp":
            wait_for("the other has the IPv6 routes", lambda: in_other(kind, other) == six(ours) | six(theirs), 30, 0.2)

    # Unicast is apart from it, here, there and in the kernel.
    assert own(router, "ipv4-unicast") == {"10.3.0.0/16", "172.16.0.0/16"}
    assert behind_them.tables[1] == {"10.3.0.0/16", "172.16.0.0/16"}
    assert {route["prefix"] for route in router.show("route")} == {"10.3.0.0/16", "172.16.0.0/16"}
    kernel = pair.a.run("ip", "route", "show", "proto", "bgp")
    assert sorted(line.split()[0] for line in kernel.splitlines() if not line.startswith("\t")) == ["10.3.0.0/16", "172.16.0.0/16"], kernel
    assert not pair.a.run("ip", "-6", "route", "show", "proto", "bgp")
    summary = router.show("bgp", "summary")["prefixes"]
    assert (summary["ipv4"], summary["ipv4_multicast"]) == (2, len(four(ours) | four(theirs)))
    assert (summary["ipv6"], summary["ipv6_multicast"]) == (0, len(six(ours) | six(theirs)))
    assert 2 in behind_us.ends, "End-of-RIB of multicast"

    # What the neighbour is sent, and what is sent again on request.
    lines = router.text("show", "bgp", "neighbor", Pair.B4, "advertised", "--family", "ipv4-multicast", "--json").splitlines()
    sent = {json.loads(line)["prefix"] for line in lines}
    assert sent >= four(ours), sent
    router.text("clear", "bgp", "neighbor", "all", "soft")
    wait_for("all of it again", lambda: own(router, "ipv4-multicast") == four(ours) | four(theirs), 30, 0.2)
    # Sessions end and begin again.
    router.text("clear", "bgp", "neighbor", Pair.B4)
    wait_for("the session is back", lambda: router.established(Pair.B4), 60)
    wait_for("and its routes", lambda: own(router, "ipv4-multicast") == four(ours) | four(theirs), 30, 0.2)
    # One side loses a family's routes with its feed.
    theirs.close()
    wait_for("only ours", lambda: own(router, "ipv4-multicast") == four(ours), 60, 0.2)
