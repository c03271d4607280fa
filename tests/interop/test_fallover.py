"""Fast external fallover, and a router without dataplane: the effect of interfaces on sessions
and on the RIB."""

import subprocess

import pytest

from harness import Bird, Pair, Ribtide, binary, wait_for
from harness.peers import LEFT, RIGHT

#: A neighbour behind another one: on no link of ours.
FAR_A, FAR_B = "10.99.0.1", "10.99.0.2"
#: Long against anything that these tests wait for, so that nothing of it is found out by silence.
HOLD = 3600
ROUTE4, ROUTE6 = "198.51.100.0/24", "2001:db8:51::/48"

CONFIG = f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bgp]
listen = ["0.0.0.0:179", "[::]:179"]
{{bgp}}

[bgp.group.near]
type = "external"
peer-asn = {RIGHT.asn}
import = ["accept"]
export = ["accept"]
connect-retry = 1
hold-time = {HOLD}
neighbors = ["{Pair.B4}", "{Pair.B6}"]

[bgp.group.far]
type = "external"
peer-asn = {RIGHT.asn}
import = ["accept"]
multihop = 8
hold-time = {HOLD}
connect-retry = 1
neighbors = [{{far}}]

{{fib}}
"""

BIRD = f"""
router id {RIGHT.four};
log stderr all;
protocol device {{}}
protocol static four {{ ipv4; route {ROUTE4} blackhole; }}
protocol static six {{ ipv6; route {ROUTE6} blackhole; }}
template bgp ours {{
    local as {RIGHT.asn};
    hold time {HOLD};
    connect retry time 1; error wait time 1,2; connect delay time 1;
}}
protocol bgp b4 from ours {{
    neighbor {Pair.A4} as {LEFT.asn};
    ipv4 {{ import all; export where proto = "four"; next hop self; }};
}}
protocol bgp b6 from ours {{
    neighbor {Pair.A6} as {LEFT.asn};
    ipv6 {{ import all; export where proto = "six"; next hop self; }};
}}
protocol bgp far from ours {{
    neighbor {FAR_A} as {LEFT.asn};
    source address {FAR_B};
    multihop 8;
    ipv4 {{ import all; export where proto = "four"; }};
}}
"""


class Link:
    """The two hosts, with a second cable over which the multihop session goes."""

    def __init__(self, folder):
        self.pair = Pair(folder)
        self.a, self.b = self.pair.a, self.pair.b
        self.a.join(self.b, "back")
        for host, four, other, far, other_far in ((self.a, "10.98.0.1", "10.98.0.2", FAR_A, FAR_B),
                                                  (self.b, "10.98.0.2", "10.98.0.1", FAR_B, FAR_A)):
            host.address("back", f"{four}/24")
            host.address("lo", f"{far}/32")
            host.ip("route", "add", other_far, "via", other)

    def close(self):
        self.pair.close()


@pytest.fixture
def link(folder):
    link = Link(folder)
    yield link
    link.close()


def start(link, bgp="", far=f'"{FAR_B}"', fib="[fib]\nkernel = { table = 254 }"):
    router = Ribtide(link.a, CONFIG.format(bgp=bgp, far=far, fib=fib))
    Bird(link.b, BIRD)
    up(router, Pair.B4, Pair.B6, *([FAR_B] if far else []))
    return router


def up(router, *addresses):
    wait_for(f"the sessions with {', '.join(addresses)} are up",
             lambda: all(router.neighbor(a)["state"] == "Established" for a in addresses), 60, alive=[router.process])


def ended(router, *addresses):
    """Waits for the end of the sessions. The hold time is an hour, so it is not the cause."""
    wait_for(f"the sessions with {', '.join(addresses)} end",
             lambda: all(router.neighbor(a)["state"] == "Idle (interface down)" for a in addresses), 20,
             alive=[router.process])


def gone(router, prefix):
    """Waits for a prefix to leave the Loc-RIB."""
    wait_for(f"{prefix} is gone", lambda: prefix not in prefixes(router), 20, alive=[router.process])


def prefixes(router):
    return set(router.table())


def interface(link):
    """The name of the link's interface at the router."""
    return "eth0"


FIBS = {"kernel": "[fib]\nkernel = { table = 254 }", "none": ""}


@pytest.mark.parametrize("fib", FIBS)
def test_interface_down_ends_the_single_hop_session_at_once(link, fib):
    router = start(link, fib=FIBS[fib])
    wait_for("the routes are there", lambda: {ROUTE4, ROUTE6} <= prefixes(router), alive=[router.process])
    name = interface(link)
    # By an administrator: IPv6 addresses go with it.
    link.a.ip("link", "set", name, "down")
    ended(router, Pair.B4, Pair.B6)
    gone(router, ROUTE6)
    assert router.neighbor(FAR_B)["state"] == "Established", "a multihop neighbour is behind no interface"
    assert name in router.neighbor(Pair.B4)["last_error"]
    link.a.ip("link", "set", name, "up")
    link.a.ip("addr", "replace", f"{Pair.A6}/64", "dev", name, "nodad")
    up(router, Pair.B4, Pair.B6)
    # The cable: the other end goes down.
    link.b.ip("link", "set", name, "down")
    ended(router, Pair.B4)
    link.b.ip("link", "set", name, "up")
    link.b.ip("addr", "replace", f"{Pair.B6}/64", "dev", name, "nodad")
    up(router, Pair.B4, Pair.B6)
    # Our address alone.
    link.a.ip("addr", "del", f"{Pair.A4}/24", "dev", name)
    ended(router, Pair.B4)
    assert router.neighbor(Pair.B6)["state"] == "Established"
    link.a.ip("addr", "add", f"{Pair.A4}/24", "dev", name)
    up(router, Pair.B4)
    # The interface itself.
    link.a.ip("link", "del", name)
    ended(router, Pair.B4, Pair.B6)
    assert router.neighbor(FAR_B)["state"] == "Established" and router.neighbor(FAR_B)["flaps"] == 0
    for sentence, fields in (("the interface is down", f'sessions_ended="{Pair.B4}, {Pair.B6}"'),
                             ("the interface is up", ""),
                             (f"addresses of the interface changed: {Pair.A4}/24 removed", f"sessions_ended={Pair.B4}"),
                             (f"addresses of the interface changed: {Pair.A4}/24 added", f"sessions_released={Pair.B4}"),
                             ("the interface is gone", "")):
        parts = (" INFO bgp::session: ", sentence, f"interface={name}", fields)
        wait_for(f"{parts} are in the log", lambda: router.process.logged(*parts))


def test_fast_external_fallover_off_keeps_the_session_and_reload_switches_it_on(link):
    router = start(link, bgp="fast-external-fallover = false", far="", fib="")
    name = interface(link)
    link.a.ip("link", "set", name, "down")
    wait_for("the event is in the log", lambda: router.process.logged("the interface is down", f"interface={name}"))
    assert router.neighbor(Pair.B4)["state"] == "Established"
    text = router.config.read_text().replace("fast-external-fallover = false", "fast-external-fallover = true")
    router.config.write_text(text)
    router.text("reload")
    ended(router, Pair.B4)


def test_fib_without_dataplane_keeps_a_rib_and_rests(link):
    """On f345019 its thread spins, replies to no call and takes no route."""
    router = start(link, far="", fib="[fib]\n")
    wait_for("the routes are there", lambda: {ROUTE4, ROUTE6} <= prefixes(router), 20, alive=[router.process])
    fib = {r["prefix"]: r for r in router.show("fib")}
    assert {ROUTE4, ROUTE6} <= set(fib), "resolved over the kernel's interfaces"
    assert link.a.ip("route", "show", ROUTE4) == "", "and installed nowhere"

    def used():
        return next(t["cpu_seconds"] for t in router.show("threads")["threads"] if t["name"] == "rib")

    before = used()
    # An idle thread uses next to nothing of any span; what spins uses all of it.
    subprocess.run(["sleep", "3"], check=True)
    assert used() - before < 1
    checked = subprocess.run([binary(), "check", "-c", router.config], capture_output=True, text=True)
    assert checked.returncode == 0 and "warning: [fib] names no dataplane" in checked.stderr
    assert "nothing is installed" in router.process.log(100_000)
    link.a.ip("link", "set", interface(link), "down")
    ended(router, Pair.B4)
    gone(router, ROUTE4)


@pytest.mark.parametrize("ours, theirs", [("10.97.0.1", "10.97.0.2"), ("2001:db8:97::1", "2001:db8:97::2")])
def test_neighbor_behind_a_point_to_point_address_is_on_the_link(folder, ours, theirs):
    """The kernel connects the peer's prefix, which does not hold our own address."""
    pair = Pair(folder)
    try:
        bits, route = (128, ROUTE6) if ":" in ours else (32, ROUTE4)
        for host, own, peer in ((pair.a, ours, theirs), (pair.b, theirs, ours)):
            host.ip("addr", "flush", "dev", "eth0", "scope", "global")
            host.ip("addr", "add", own, "peer", f"{peer}/{bits}", "dev", "eth0", *(["nodad"] if bits == 128 else []))
        config = CONFIG.format(bgp="", far="", fib=FIBS["kernel"])
        near = f'neighbors = ["{Pair.B4}", "{Pair.B6}"]'
        router = Ribtide(pair.a, config.replace(near, f'neighbors = ["{theirs}"]'))
        family = "ipv6" if bits == 128 else "ipv4"
        Bird(pair.b, f"""
router id {RIGHT.four};
protocol device {{}}
protocol static {{ {family}; route {route} blackhole; }}
protocol bgp {{
    local {theirs} as {RIGHT.asn};
    neighbor {ours} as {LEFT.asn};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    {family} {{ import all; export where source = RTS_STATIC; next hop self; }};
}}
""")
        up(router, theirs)
        wait_for("its route is installed", lambda: theirs in pair.a.ip("route", "get", route.replace("0/24", "1").replace("::/48", "::1")),
                 alive=[router.process])
        shown = {r["prefix"]: r for r in router.show("fib")}
        assert shown[route]["hops"] == [f"via {theirs} dev eth0"]
        assert shown[f"{theirs}/{bits}"]["protocol"] == "connected" and f"{ours}/{bits}" in shown
        router.assert_agrees()
        pair.a.ip("addr", "del", ours, "peer", f"{theirs}/{bits}", "dev", "eth0")
        ended(router, theirs)
        removed = f"addresses of the interface changed: {ours} peer {theirs}/{bits} removed"
        assert router.process.logged(removed, "interface=eth0", "sessions_ended=", theirs), router.process.log(100_000)
    finally:
        pair.close()
