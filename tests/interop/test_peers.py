"""BIRD, FRR and GoBGP each peer with ribtide over IPv4 and IPv6. A full table goes in each
direction, and all sides agree on every prefix with its attributes: feed → ribtide → other, and
feed → other → ribtide."""

import json
import signal
import time

import pytest
from harness import (FEED_ASN, NOT_SHOWN, Bird, Frr, Host, Pair, Ribtide, Route, agree, binary, blast, family, feed_options,
                     full_table, recorded, sent, wait_for)
from harness.peers import LEFT, RIGHT, ribtide, start, wait_count
from harness.speaker import Speaker, attribute, communities, update
from harness.table import GENERATED4, GENERATED6

KINDS = ["bird", "frr", "gobgp"]


def up(router, other, kind):
    """Both sessions, as both sides see them."""
    names = {"bird": ["four", "six"]}.get(kind, [LEFT.four, LEFT.six])
    for mine, theirs in zip([RIGHT.four, RIGHT.six], names):
        wait_for(f"{mine} is established", lambda: router.established(mine) and other.established(theirs), 60,
                 alive=[router.process])


def size():
    """How many prefixes both feeds send."""
    four = recorded()
    return (GENERATED4 if four is None else len(four)) + GENERATED6


@pytest.mark.long
@pytest.mark.feature("routes to the peer")
@pytest.mark.parametrize("kind", KINDS)
def test_ribtide_to_other(pair, kind):
    router = Ribtide(pair.a, ribtide(LEFT))
    other = start(kind, pair.b, RIGHT)
    up(router, other, kind)
    feeds = [full_table(pair.a), blast(pair.a)]
    wait_count(router, size())
    mine = router.table()
    if recorded() is not None:
        agree(recorded(), family(mine, six=False), NOT_SHOWN)
    wait_count(other, size())
    theirs = other.table()
    agree(sent(mine, LEFT), theirs, NOT_SHOWN)
    if recorded() is not None:
        agree(sent(recorded(), LEFT), family(theirs, six=False))
    session = router.session(RIGHT.four)
    assert session["four_octet_as"] and session["route_refresh"], session
    assert session["advertised"] == {"ipv4": len(family(mine, six=False)), "ipv6": 0}, session
    # One feed goes, and what it sent with it, and only that.
    feeds[0].stop()
    wait_count(router, GENERATED6)
    wait_count(other, GENERATED6)
    agree(family(theirs, six=True), other.table())
    # ribtide goes without a word: nothing of it stays with its neighbour.
    router.process.kill()
    wait_count(other, 0)


@pytest.mark.feature("routes from the peer")
@pytest.mark.parametrize("kind", KINDS)
def test_other_to_ribtide(pair, kind):
    router = Ribtide(pair.a, ribtide(LEFT))
    other = start(kind, pair.b, RIGHT)
    up(router, other, kind)
    full_table(pair.b)
    six = blast(pair.b)
    wait_count(other, size())
    theirs = other.table()
    if recorded() is not None:
        agree(recorded(), family(theirs, six=False))
    wait_count(router, size())
    agree(sent(theirs, RIGHT), router.table(), NOT_SHOWN)
    six.stop()
    wait_count(router, size() - GENERATED6)
    # The other goes without a word.
    other.kill()
    wait_count(router, 0)


@pytest.mark.feature("hold timer (RFC 4271 section 6.5)")
@pytest.mark.peers("bird")
def test_cut_line(pair):
    """The line is cut, and the hold timer detects it. The line returns, and so does the table."""
    # Else the session would end with the link (test_fallover.py).
    router = Ribtide(pair.a, ribtide(LEFT).replace("[bgp]\n", "[bgp]\nfast-external-fallover = false\n", 1))
    other = start("bird", pair.b, RIGHT)
    up(router, other, "bird")
    blast(pair.b, 5000, 2000)
    wait_count(router, 7000)
    mine = router.table()
    pair.a.ip("link", "set", "eth0", "down")
    wait_for("the hold timer ran out", lambda: "hold" in router.neighbor(RIGHT.four).get("last_down", ""), 60)
    wait_count(router, 0)
    pair.a.ip("link", "set", "eth0", "up")
    # The kernel takes an interface's IPv6 addresses away with its link.
    pair.a.address("eth0", f"{Pair.A6}/64")
    wait_count(router, 7000)
    agree(mine, router.table())
    assert router.neighbor(RIGHT.four)["flaps"] == 1


def test_restart(pair):
    """After a crash and a restart both neighbours have the same routes as before."""
    other = start("bird", pair.b, RIGHT)
    router = Ribtide(pair.a, ribtide(LEFT))
    up(router, other, "bird")
    six = blast(pair.a, ipv6=3000)
    full = 20_000
    blast(pair.b, full, 0)
    wait_count(router, full + 3000)
    wait_count(other, full + 3000)
    mine, theirs = router.table(), other.table()
    router.process.kill()
    wait_count(other, full)
    router.start()
    six.stop()
    blast(pair.a, ipv6=3000)
    wait_count(router, full + 3000)
    wait_count(other, full + 3000)
    agree(mine, router.table())
    agree(theirs, other.table())


@pytest.mark.feature("route refresh (RFC 2918)")
@pytest.mark.peers("bird", "frr")
def test_route_refresh(pair):
    """BIRD and FRR ask for all routes again when their import policy changes, and get them on the same session."""
    router = Ribtide(pair.a, REFRESHED)
    pair.b.ip("addr", "add", "10.255.0.3/24", "dev", "eth0")
    other = Bird(pair.b, BIRD_REFRESH % "none")
    frr = Frr(pair.b, bgpd=FRR_REFRESH, bgpd_args=["-p", "0"])
    full = 20_000
    feed = blast(pair.a, full, 0)
    wait_for("both are here", lambda: router.established(RIGHT.four) and router.established("10.255.0.3"), 60, alive=[feed])
    wait_count(router, full)

    def told(address):
        return lambda: router.session(address)["advertised"]["ipv4"] == full
    for address in (RIGHT.four, "10.255.0.3"):
        wait_for(f"{address} was told everything", told(address), 60)
    assert (other.count(), frr.count()) == (0, 0)
    (pair.b.folder / "bird.conf").write_text(BIRD_REFRESH % "all")
    other.query("configure")
    frr.configure("router bgp 65004", "address-family ipv4 unicast", f"no neighbor {LEFT.four} prefix-list none in")
    frr.query(f"clear bgp ipv4 unicast {LEFT.four} soft in", "bgpd")
    wait_count(other, full)
    wait_count(frr, full)
    mine = router.table()
    agree(sent(mine, LEFT), other.table(), NOT_SHOWN)
    agree(sent(mine, LEFT), frr.table(), NOT_SHOWN)
    assert [router.neighbor(a)["flaps"] for a in (RIGHT.four, "10.255.0.3")] == [0, 0]


REFRESHED = f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bgp.group.feed]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{Host.FEEDS[1]}"]

[bgp.group.others]
type = "external"
export = ["accept"]
connect-retry = 1
neighbor = [
    {{ address = "{RIGHT.four}", peer-asn = {RIGHT.asn} }},
    {{ address = "10.255.0.3", peer-asn = 65004 }},
]
"""

BIRD_REFRESH = f"""
router id {RIGHT.four};
log stderr all;
protocol device {{}}
protocol bgp four {{
    local {RIGHT.four} as {RIGHT.asn};
    neighbor {LEFT.four} as {LEFT.asn};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import %s; export none; }};
}}
"""

FRR_REFRESH = f"""hostname bgpd
ip prefix-list none deny any
router bgp 65004
 bgp router-id 10.255.0.3
 no bgp ebgp-requires-policy
 neighbor {LEFT.four} remote-as {LEFT.asn}
 neighbor {LEFT.four} update-source 10.255.0.3
 neighbor {LEFT.four} timers connect 1
 address-family ipv4 unicast
  neighbor {LEFT.four} prefix-list none in
 exit-address-family
"""


REFLECTOR = f"""
[router]
asn = 65001
router-id = "{Pair.A4}"

[bgp]
listen = ["{Pair.A4}:179"]
cluster-id = "192.0.2.77"

[bgp.group.clients]
type = "internal"
peer-asn = 65001
route-reflector-client = true
import = ["accept"]
export = ["accept"]
connect-retry = 1
neighbors = ["{Pair.B4}", "10.255.0.3"]
"""

BIRD_CLIENT = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
# Next hops resolve in tables of their own, so that the main ones hold what came by BGP and nothing else.
ipv4 table own4; ipv6 table own6;
protocol direct {{ ipv4 {{ table own4; }}; ipv6 {{ table own6; }}; }}
protocol bgp feed {{
    local as 65001; neighbor {Host.FEEDS[1]} as {FEED_ASN}; passive;
    ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }};
}}
protocol bgp reflector {{
    local {Pair.B4} as 65001; neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export all; igp table own4; }};
    ipv6 {{ import all; export all; igp table own6; }};
}}
"""

FRR_CLIENT = f"""hostname bgpd
bgp community-list standard x permit 65001:1
route-map attributes permit 10
 set metric 77
 set community 65001:1 no-export
 set local-preference 250
router bgp 65001
 bgp router-id 10.255.0.3
 no bgp network import-check
 neighbor {Pair.A4} remote-as 65001
 neighbor {Pair.A4} update-source 10.255.0.3
 neighbor {Pair.A4} timers connect 1
 address-family ipv4 unicast
  network 198.51.100.0/24 route-map attributes
 exit-address-family
 address-family ipv6 unicast
  neighbor {Pair.A4} activate
 exit-address-family
"""


@pytest.mark.feature("route reflection (RFC 4456)")
@pytest.mark.peers("bird", "frr")
def test_route_reflection(pair):
    """Two clients in one AS get each other's routes unchanged, with ORIGINATOR_ID and
    CLUSTER_LIST (RFC 4456)."""
    router = Ribtide(pair.a, REFLECTOR)
    pair.b.ip("addr", "add", "10.255.0.3/24", "dev", "eth0")
    bird = Bird(pair.b, BIRD_CLIENT)
    frr = Frr(pair.b, bgpd=FRR_CLIENT, bgpd_args=["-p", "0"])
    for client in (Pair.B4, "10.255.0.3"):
        wait_for(f"{client} is here", lambda: router.established(client), 60, alive=[router.process])
    feed = blast(pair.b, 5000, 2000)
    wait_count(bird, 7001)
    wait_count(frr, 7001)
    theirs = bird.table()
    own = theirs.pop("198.51.100.0/24")
    reflected = {"cluster_list": "192.0.2.77"}
    assert own == Route("", "igp", "10.255.0.3", 77, 250, frozenset({"65001:1", "65535:65281"}), originator="10.255.0.3", **reflected)
    got = frr.table()
    del got["198.51.100.0/24"]
    agree({p: r._replace(originator=Pair.B4, **reflected) for p, r in theirs.items()}, got)
    mine = router.table()
    del mine["198.51.100.0/24"]
    agree(theirs, mine, NOT_SHOWN)
    # No peer gets back its own path.
    assert router.session(Pair.B4)["advertised"] == {"ipv4": 1, "ipv6": 0}
    feed.stop()
    wait_count(frr, 1)
    wait_count(router, 1)


BIRD_OLD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp ribtide {{
    local as 65002; neighbor {Pair.A4} as 65001;
    enable as4 off;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export all; }};
    ipv6 {{ import all; export all; next hop address {Pair.B6}; missing lladdr ignore; }};
}}
protocol bgp feed {{
    local as 65002; neighbor {Host.FEEDS[1]} as {FEED_ASN}; passive; ipv6 {{ import all; export none; }};
}}
"""


@pytest.mark.feature("2-octet AS numbers (RFC 6793)")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("direction", ["out", "in"])
def test_neighbor_without_four_octet_as(pair, direction):
    """AS numbers above 65535 survive a neighbour without 4-octet AS support: AS_TRANS and
    AS4_PATH (RFC 6793)."""
    router = Ribtide(pair.a, ribtide(LEFT).replace(str(RIGHT.asn), "65002").replace('families = ["ipv4-unicast"] ', ""))
    other = Bird(pair.b, BIRD_OLD)
    wait_for("the session is established", lambda: router.established(RIGHT.four), 60, alive=[router.process])
    assert router.session(RIGHT.four)["four_octet_as"] is False
    blast(pair.a if direction == "out" else pair.b, ipv6=3000)
    wait_count(router, 3000)
    wait_count(other, 3000)
    mine, theirs = router.table(), other.table()
    assert any(int(n) > 65535 for r in mine.values() for n in r.as_path.split()), "the table has no large AS number"
    hops = ("next_hop", *NOT_SHOWN)
    if direction == "out":
        agree(sent(mine, LEFT), theirs, hops)
    else:
        agree(sent(theirs, RIGHT._replace(asn=65002)), mine, hops)


@pytest.mark.feature("extended messages (RFC 8654)")
@pytest.mark.parametrize("kind", ["bird", "frr", "exabgp"])
def test_extended_messages_and_attributes_that_ribtide_does_not_know(pair, kind):
    """A message of more than 4,096 bytes is taken and passed on where both sides can (RFC 8654), large communities and
    unknown optional transitive attributes go along, and the latter are marked partial (RFC 4271 section 5)."""
    router = Ribtide(pair.a, ribtide(LEFT))
    other = start(kind, pair.b, RIGHT)
    up(router, other, kind)
    assert router.session(RIGHT.four)["extended_messages"]
    feeder = Speaker(pair.a, Host.FEEDS[0], FEED_ASN, extended=True)
    many = [(65100 + i // 60000, i % 60000) for i in range(1500)]
    block = [communities(many), attribute(0xC0, 32, b"".join(n.to_bytes(4, "big") for n in (4200000000, 7, 9))),
             attribute(0xC0, 250, b"unknown")]
    feeder.send(update(["192.0.2.0/24", "198.51.100.0/24"], [FEED_ASN, 4200000002], "193.203.0.1", *block))
    wait_count(other, 2)
    wanted = Route(f"{LEFT.asn} {FEED_ASN} 4200000002", "igp", LEFT.four, communities=frozenset(f"{a}:{b}" for a, b in many),
                   large_communities=frozenset({"4200000000:7:9"}))
    # BIRD does not print so many communities, but counts them.
    agree({"192.0.2.0/24": wanted, "198.51.100.0/24": wanted}, other.table(), ["communities"] if kind == "bird" else [])
    if kind == "bird":
        assert "2 of 2 routes" in other.query(f"show route where bgp_community.len = {len(many)} count")
        assert "75 6e 6b 6e 6f 77 6e" in other.query("show route all"), other.query("show route all")
    elif kind == "exabgp":
        announced = [m["neighbor"]["message"]["update"] for m in other.messages() if m["type"] == "update"
                     and "announce" in m["neighbor"]["message"].get("update", {})]
        # Optional, transitive and partial.
        assert announced[0]["attribute"]["attribute-0xFA-0xE0"] == "0x" + b"unknown".hex()
    assert router.table()["192.0.2.0/24"] == wanted._replace(as_path=f"{FEED_ASN} 4200000002", next_hop="193.203.0.1")
    feeder.close()
    wait_count(other, 0)


def test_churn(pair):
    """A feed withdraws and announces half of its table repeatedly: in the end both sides hold
    its table."""
    router = Ribtide(pair.a, ribtide(LEFT))
    other = start("bird", pair.b, RIGHT)
    up(router, other, "bird")
    feed = pair.a.feeds.start("churn", binary(), "blast", "--ipv4", 20_000, "--ipv6", 5_000, "--churn", 50, "--churn-rounds", 4,
                              "--next-hops4", "193.203.0.0/25", "--next-hops6", "fd00:193::/120", *feed_options(1))
    wait_for("the feed has sent all", lambda: "churn:" in feed.log(), 60, alive=[feed, router.process])
    wait_count(router, 25_000)
    wait_count(other, 25_000)
    wait_for("both agree", lambda: equal(sent(router.table(), LEFT), other.table()), 60, 1)
    session = router.session(Host.FEEDS[1])
    assert session["counters"]["withdrawn"] == 4 * 12_500 and session["accepted"] == {"ipv4": 20_000, "ipv6": 5_000}


def equal(left, right):
    try:
        agree(left, right, NOT_SHOWN)
    except AssertionError:
        return False
    return True


def test_neighbor_that_does_not_read(pair):
    """A neighbour that stops reading in the middle of a table, until its queue is full, gets all
    routes in the end, and so do all others."""
    receivers, prefixes = ["198.19.0.20", "198.19.0.21"], 500_000
    pair.a.feeds.address("feed0", *(f"{r}/24" for r in receivers))
    router = Ribtide(pair.a, f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bgp.group.feed]
type = "external"
peer-asn = {FEED_ASN}
import = ["accept"]
neighbors = ["{Host.FEEDS[1]}"]

[bgp.group.receivers]
type = "external"
export = ["accept"]
dynamic-neighbors = ["198.19.0.16/28"]
""")

    def sink(address):
        return pair.a.feeds.start(f"sink-{address}", binary(), "sink", "--to", f"{Host.FEED_SIDE}:179", "--from", address,
                                  "--router-id", address, "--asn", RIGHT.asn, "--table", "--until-prefixes", prefixes,
                                  "--until-idle", 1, "--json", "--quiet")
    stopped, other = (sink(r) for r in receivers)
    for receiver in receivers:
        wait_for(f"{receiver} is here", lambda: router.established(receiver), 20, alive=[stopped, other])
    stopped.popen.send_signal(signal.SIGSTOP)
    blast(pair.a, prefixes, 0)
    wait_count(router, prefixes)
    wait_for("its queue is full", lambda: router.session(receivers[0])["write_queue"]["full"], 20, alive=[router.process])
    wait_for("the other has all meanwhile", lambda: other.poll() is not None, 60, alive=[router.process])
    stopped.popen.send_signal(signal.SIGCONT)
    wait_for("both have all", lambda: None not in (stopped.poll(), other.poll()), 60, alive=[router.process])
    reports = [json.loads(s.log(100_000).splitlines()[-1])["receivers"][0] for s in (stopped, other)]
    assert [r["held"] for r in reports] == [prefixes] * 2 and reports[0]["digest"] == reports[1]["digest"], reports


@pytest.mark.feature("TCP-MD5 (RFC 2385)")
@pytest.mark.peers("bird")
def test_tcp_md5(pair):
    """A session with equal keys comes up, and one with different keys does not (RFC 2385)."""
    config = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
template bgp ours {{
    local as {RIGHT.asn}; connect retry time 1; error wait time 1,2; connect delay time 1; password "correct horse";
}}
protocol bgp four from ours {{ neighbor {LEFT.four} as {LEFT.asn}; ipv4 {{ import all; export none; }}; }}
protocol bgp six from ours {{ neighbor {LEFT.six} as {LEFT.asn}; ipv6 {{ import all; export none; }}; }}
"""
    router = Ribtide(pair.a, ribtide(LEFT, 'password = "correct horse"').replace(
        f'address = "{RIGHT.six}",', f'address = "{RIGHT.six}", password = "battery staple",'))
    other = Bird(pair.b, config)
    wait_for("the session is established", lambda: router.established(RIGHT.four) and other.established("four"), 30)
    # As long again as that took, and two attempts of both.
    time.sleep(3)
    assert not router.established(RIGHT.six) and not other.established("six")
