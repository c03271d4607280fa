"""BFD with BIRD and FRR's bfdd. Sessions come up with the negotiated intervals. Silence on a link
that stays up is detected: next hops avoid the neighbour, BGP ends with Cease, BFD Down, and
everything returns.

Intervals are long, because other programs share the machine. No test depends on the detection
time, but BGP's hold time is far longer."""

import json
import re

import pytest

from harness import Bird, Frr, Host, Pair, Ribtide, wait_for
from harness.peers import LEFT, RIGHT

#: Where the middle's cables end.
A_END, B_END = "a0", "b0"
#: A gateway that is on a link and has no BFD.
OTHER = "193.203.0.9"
FAR_A, FAR_B = "10.99.0.1", "10.99.0.2"
LINK_A, LINK_B = "fe80::1", "fe80::2"

CONFIG = f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bfd]
min-tx = 200
min-rx = 250
multiplier = 5

[bgp]
listen = ["{Pair.A4}:179", "[{Pair.A6}]:179", "{FAR_A}:179"]

[bgp.group.peers]
type = "external"
peer-asn = {RIGHT.asn}
import = ["accept"]
connect-retry = 1
bfd = true
neighbors = ["{Pair.B4}", "{Pair.B6}"]

[fib]
kernel = {{ table = 254 }}

[[static]]
prefix = "198.51.100.0/24"
next-hop = ["{Pair.B4}"]
backup = ["{OTHER}"]
bfd = true
"""


class Middle:
    """Two hosts on the ports of a switch: the link at the far end stays up when the near one is
    unplugged."""

    def __init__(self, folder):
        self.a, self.b, self.switch = Host(folder, "a", feeds=False), Host(folder, "b", feeds=False), Host(folder, "m", feeds=False)
        self.switch.ip("link", "add", "br0", "type", "bridge")
        self.switch.ip("link", "set", "br0", "up")
        for host, end in ((self.a, A_END), (self.b, B_END)):
            host.ip("link", "add", "eth0", "type", "veth", "peer", "name", end, "netns", self.switch.name)
            self.switch.ip("link", "set", end, "up")
            self.plug(end)
        for host, four, six, far, link in ((self.a, Pair.A4, Pair.A6, FAR_A, LINK_A), (self.b, Pair.B4, Pair.B6, FAR_B, LINK_B)):
            host.ip("link", "set", "eth0", "addrgenmode", "none")
            host.address("eth0", f"{four}/24", f"{six}/64", f"{link}/64")
            host.address("lo", f"{far}/32")
            host.lan("lan0", "193.203.0.250/24", "fd00:193::ff/64")
        self.a.ip("route", "add", FAR_B, "via", Pair.B4)
        self.b.ip("route", "add", FAR_A, "via", Pair.A4)

    def plug(self, end=B_END):
        self.switch.ip("link", "set", end, "master", "br0")

    def unplug(self, end=B_END):
        self.switch.ip("link", "set", end, "nomaster")

    def close(self):
        for host in (self.a, self.b, self.switch):
            host.close()


@pytest.fixture
def middle(folder):
    middle = Middle(folder)
    yield middle
    middle.close()


def bfd(router, peer):
    """The session with `peer`."""
    return next(s for s in router.show("bfd")["sessions"] if s["peer"] == peer)


def up(router, *peers):
    wait_for(f"BFD is up with {', '.join(peers)}", lambda: all(bfd(router, p)["state"] == "Up" for p in peers), 60,
             alive=[router.process])


def down(router, peer):
    """Waits for the session to be down, and returns it."""
    wait_for(f"BFD is down with {peer}", lambda: bfd(router, peer)["state"] != "Up", 30, alive=[router.process])
    return bfd(router, peer)


def wait_next_hop(host, gateway, prefix="198.51.100.0/24"):
    wait_for(f"{prefix} resolves to {gateway}", lambda: host.gateways(prefix) == set(gateway.split(",") if gateway else []), 30)


def established(router, *peers):
    wait_for(f"sessions with {', '.join(peers)}", lambda: all(router.established(p) for p in peers), 90, alive=[router.process])


def bird_config(local, more=""):
    return f"""
router id {RIGHT.four};
log stderr all;
protocol device {{}}
protocol bfd watch {{
    interface "eth0" {{ interval 300 ms; idle tx interval 1 s; multiplier 4; }};
    multihop {{ interval 300 ms; idle tx interval 1 s; multiplier 4; }};
    neighbor {local} dev "eth0";
}}
template bgp ours {{
    local as {RIGHT.asn};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    bfd on;
}}
protocol bgp four from ours {{ neighbor {LEFT.four} as {LEFT.asn}; ipv4 {{ import none; export none; }}; }}
protocol bgp six from ours {{ neighbor {LEFT.six} as {LEFT.asn}; ipv6 {{ import none; export none; }}; }}
{more}
"""


@pytest.mark.feature("BFD (RFC 5880, RFC 5882)")
@pytest.mark.peers("bird")
def test_bird(middle):
    a, b = middle.a, middle.b
    neighbor = LINK_B
    config = CONFIG + f"""
[[static]]
prefix = "2001:db8:77::/48"
next-hop = ["{neighbor}"]
interface = "eth0"
bfd = true

[bgp.group.far]
type = "external"
peer-asn = {RIGHT.asn}
multihop = 3
local-address = "{FAR_A}"
import = ["accept"]
connect-retry = 1
bfd = true
neighbors = ["{FAR_B}"]
"""
    far = f"""protocol bgp far from ours {{
    multihop; source address {FAR_B}; neighbor {FAR_A} as {LEFT.asn}; ipv4 {{ import none; export none; }};
}}"""
    peers = [Pair.B4, Pair.B6, neighbor, FAR_B]
    router = Ribtide(a, config)
    # Before there is a peer, nothing is held against the way to it.
    wait_next_hop(a, Pair.B4)
    bird = Bird(b, bird_config(LINK_A, far))
    up(router, *peers)
    established(router, Pair.B4, Pair.B6, FAR_B)
    # What both can do: we send as slowly as BIRD receives, and it as slowly as it wants to.
    wait_for("intervals are agreed on", lambda: bfd(router, Pair.B4)["tx_ms"] == 300 and bfd(router, Pair.B4)["detection_ms"] == 1200, 20)
    listed = bird.query("show bfd sessions")
    ours = next(line for line in listed.splitlines() if line.startswith(Pair.A4))
    assert ours.split()[1:3] == ["eth0", "Up"] and ours.split()[-2:] == ["0.300", "1.500"], listed
    assert bfd(router, FAR_B)["multihop"] and bfd(router, neighbor)["interface"] == "eth0"

    # Silence on a link that is up.
    middle.unplug()
    for peer in peers:
        session = down(router, peer)
        assert session["diagnostic"] == "detection time expired" and not session["usable"], session
    wait_next_hop(a, OTHER)
    wait_for("the IPv6 route is gone", lambda: "2001:db8:77" not in a.ip("-6", "route", "show"), 30)
    assert json.loads(a.ip("-j", "link", "show", "eth0"))[0]["operstate"] == "UP"
    for peer in (Pair.B4, Pair.B6, FAR_B):
        wait_for(f"no session with {peer}", lambda: router.neighbor(peer)["state"] == "Idle (BFD down)", 30)
        assert "BFD" in router.neighbor(peer)["last_error"]
    assert "BFD declared it down" in json.dumps(router.show("nexthop-group"))
    middle.plug()
    up(router, *peers)
    established(router, Pair.B4, Pair.B6, FAR_B)
    wait_next_hop(a, Pair.B4)

    # Its death is a failure.
    bird.kill()
    assert not down(router, Pair.B4)["usable"]
    wait_next_hop(a, OTHER)
    bird = Bird(b, bird_config(LINK_A, far))
    up(router, *peers)
    established(router, Pair.B4, Pair.B6, FAR_B)
    wait_next_hop(a, Pair.B4)
    down_line = (" WARN bfd: the session is down", f"neighbor={Pair.B4}", "nothing came for 1200 ms, the detection time")
    wait_for("the end of the session is logged", lambda: router.process.logged(*down_line))

    # Another configuration: who stays does not notice.
    flaps = {p: bfd(router, p)["flaps"] for p in peers}
    text = router.config.read_text()
    router.config.write_text(text.replace(f'["{Pair.B4}", "{Pair.B6}"]', f'["{Pair.B4}", "{Pair.B4[:-1]}7"]')
                             .replace("multihop = 3", "multihop = 3\n").replace("bfd = true\nneighbors = [\"10.99", "bfd = { min-tx = 400, min-rx = 400 }\nneighbors = [\"10.99"))
    said = router.text("reload")
    assert f"BFD added: {Pair.B4[:-1]}7" in said and f"BFD removed: {Pair.B6}" in said and f"BFD changed: {FAR_B}" in said, said
    wait_for("slower", lambda: bfd(router, FAR_B)["tx_ms"] == 400, 20)
    for peer in (Pair.B4, neighbor, FAR_B):
        session = bfd(router, peer)
        assert (session["state"], session["flaps"]) == ("Up", flaps[peer]), session
    assert router.established(Pair.B4) and router.established(FAR_B)
    # A session that is shut down signals that this is no failure.
    router.stop()
    wait_for("BIRD has no session", lambda: " Up " not in bird.query("show bfd sessions"), 30)
    assert not re.search(r"bfd.*detect", bird.process.log(20_000), re.I)


def frr(b, local):
    """FRR with sessions that bgpd requests, and one of bfdd's own."""
    bgpd = f"""hostname bgpd
router bgp {RIGHT.asn}
 bgp router-id {RIGHT.four}
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor {LEFT.four} remote-as {LEFT.asn}
 neighbor {LEFT.four} timers connect 1
 neighbor {LEFT.four} bfd profile slow
 neighbor {LEFT.six} remote-as {LEFT.asn}
 neighbor {LEFT.six} timers connect 1
 neighbor {LEFT.six} bfd profile slow
 address-family ipv4 unicast
  neighbor {LEFT.four} activate
 exit-address-family
 address-family ipv6 unicast
  neighbor {LEFT.six} activate
 exit-address-family
"""
    bfdd = f"""bfd
 profile slow
  detect-multiplier 4
  receive-interval 300
  transmit-interval 300
 exit
 peer {local} local-address {LINK_B} interface eth0
  profile slow
 exit
exit
"""
    return Frr(b, bgpd=bgpd, bfdd=bfdd)


@pytest.mark.feature("BFD (RFC 5880, RFC 5882)")
@pytest.mark.peers("frr")
def test_frr(middle):
    a, b = middle.a, middle.b
    neighbor = LINK_B
    peers = [Pair.B4, Pair.B6, neighbor]
    router = Ribtide(a, CONFIG.replace("bfd = true\nneighbors", "bfd = { strict = true }\nneighbors") + f"""
[[static]]
prefix = "2001:db8:77::/48"
next-hop = ["{neighbor}"]
interface = "eth0"
bfd = true
""")
    # Strict: no session before BFD is up.
    assert router.neighbor(Pair.B4)["state"] == "Idle (BFD down)"
    peer = frr(b, LINK_A)
    up(router, *peers)
    established(router, Pair.B4, Pair.B6)
    wait_for("intervals are agreed on", lambda: bfd(router, Pair.B4)["tx_ms"] == 300 and bfd(router, Pair.B4)["detection_ms"] == 1200, 20)
    theirs = next(s for s in json.loads(peer.query("show bfd peers json", "bfdd")) if s["peer"] == Pair.A4)
    assert theirs["status"] == "up" and theirs["remote-detect-multiplier"] == 5, theirs
    assert theirs["remote-transmit-interval"] == 200 and theirs["remote-receive-interval"] == 250, theirs

    # An operator who takes BFD alone down says so, and that is no failure: nothing changes but the session.
    watched = f"peer {LINK_A} local-address {LINK_B} interface eth0"
    peer.configure("bfd", watched, "shutdown")
    session = down(router, neighbor)
    assert session["diagnostic"] == "neighbor signaled down" and session["usable"], session
    assert "2001:db8:77" in a.ip("-6", "route", "show")
    log = router.process.log(100_000)
    assert "an operator of the neighbour has taken it down, which is no failure" in log, log
    peer.configure("bfd", watched, "no shutdown")
    up(router, neighbor)

    # bfdd dies alone: bgpd is told why its session ends, over the session.
    peer.processes["bfdd"].kill()
    assert down(router, Pair.B4)["diagnostic"] == "detection time expired"
    wait_next_hop(a, OTHER)
    told = wait_for("bgpd is told", lambda: json.loads(peer.query(f"show bgp neighbors {Pair.A4} json", "bgpd"))[Pair.A4]
                    .get("lastErrorCodeSubcode"), 30)
    assert told == "060A", told
    assert router.neighbor(Pair.B4)["state"] == "Idle (BFD down)"
    peer.start("bfdd")
    up(router, *peers)
    established(router, Pair.B4, Pair.B6)
    wait_next_hop(a, Pair.B4)

    # The neighbour's link goes, ours stays up.
    b.ip("link", "set", "eth0", "down")
    assert not down(router, Pair.B4)["usable"]
    wait_next_hop(a, OTHER)
    b.ip("link", "set", "eth0", "up")
    b.address("eth0", f"{Pair.B6}/64", f"{LINK_B}/64")
    up(router, Pair.B4, Pair.B6)
    established(router, Pair.B4, Pair.B6)
    wait_next_hop(a, Pair.B4)

    # The neighbour's address goes.
    b.ip("addr", "del", f"{Pair.B4}/24", "dev", "eth0")
    down(router, Pair.B4)
    wait_next_hop(a, OTHER)
    assert bfd(router, Pair.B6)["state"] == "Up"
    b.address("eth0", f"{Pair.B4}/24")
    up(router, Pair.B4)
    established(router, Pair.B4)
    wait_next_hop(a, Pair.B4)
    metrics = router.show("bfd")
    assert all(s["received"] > 0 and s["sent"] > 0 for s in metrics["sessions"] if s["peer"] != OTHER)
