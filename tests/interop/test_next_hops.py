"""One answer about a next hop: use by BGP, installation and advertisement follow from it, also
for routes in a circle (docs/adr/0020-next-hop-resolution.md). Each test fails with a router
whose BGP and RIB manager resolve separately."""

import contextlib
import ipaddress
import json
import re
import socket
import struct
import threading
import time

import pytest
from harness import FEED_ASN, TIMEOUT_FACTOR, Host, Messages, Ribtide, fpm, wait_for
from harness.peers import FEEDS
from harness.speaker import UPDATE, Speaker, attribute, block, prefixes, raw_update, update
from test_kernel import kernel_table

OBSERVER = "198.19.0.4"
NEAR, FAR = "10.7.0.2", "10.8.0.2"
#: How long nothing more may happen, in seconds.
QUIET = 2.0

ROUTER = f"""
[router]
asn = 65001
router-id = "10.0.0.1"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]

[bgp.group.observers]
type = "external"
peer-asn = 65099
passive = true
export = ["accept"]
neighbors = ["{OBSERVER}"]
"""

INTERNAL = """
[bgp.group.internal]
type = "internal"
passive = true
import = ["accept"]
neighbors = ["{}"]
"""

EXTERNAL = """
[bgp.group.external{}]
type = "external"
peer-asn = {}
passive = true
import = ["accept"]
neighbors = ["{}"]
{}
"""

KERNEL = """
[fib]
kernel = true
fpm = ["127.0.0.1:2620"]
"""

ASIC = f"""
[fib]
virtual-asic = {{ lab = true }}

[[interface]]
name = "Ethernet4"
addresses = ["10.8.0.1/24"]

[[interface]]
name = "Ethernet8"
addresses = ["{Host.FEED_SIDE}/24"]
"""

ASIC_NEAR = """
[[interface]]
name = "Ethernet0"
addresses = ["10.7.0.1/24"]
"""

#: A next hop that is on no link: an external neighbour announces how to reach it.
ELSEWHERE = "10.77.0.2"


def static(prefix, *gateways):
    return f'\n[[static]]\nprefix = "{prefix}"\nnext-hop = {json.dumps(gateways)}\n'


LOCAL_PREF = attribute(0x40, 5, (100).to_bytes(4, "big"))


def split(nlri):
    """Prefixes of NLRI."""
    while nlri:
        size = (nlri[0] + 7) // 8
        yield f"{ipaddress.ip_address(nlri[1:1 + size].ljust(4, bytes(1)))}/{nlri[0]}"
        nlri = nlri[1 + size:]


#: linux/rtnetlink.h
RTA_DST, RTA_GATEWAY, RTA_MULTIPATH, RTPROT_KERNEL = 1, 5, 9, 2


def attributes(data):
    """Number → value of netlink attributes."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack("=HH", data[:4])
        found[kind] = data[4:length]
        data = data[(length + 3) & ~3:]
    return found


class Observer:
    """A neighbour that counts announcements and withdrawals of each prefix."""

    def __init__(self, host):
        if OBSERVER not in host.feeds.ip("-4", "addr", "show", "dev", "feed0"):
            host.feeds.address("feed0", f"{OBSERVER}/24")
        self.speaker = Speaker(host, OBSERVER, 65099)
        self.announced, self.withdrawn, self.table = {}, {}, set()

    def read(self, quiet=QUIET):
        """Takes everything until nothing has come for a while; itself. Fails where something comes without end."""
        end = time.monotonic() + 20 * TIMEOUT_FACTOR
        while True:
            assert time.monotonic() < end, \
                f"the router goes on sending: {sum(self.announced.values())} announced, {sum(self.withdrawn.values())} withdrawn"
            try:
                kind, body = self.speaker.read(quiet)
            except TimeoutError:
                return self
            if kind != UPDATE:
                continue
            size, = struct.unpack("!H", body[:2])
            attributes, = struct.unpack("!H", body[2 + size:4 + size])
            for prefix in split(body[2:2 + size]):
                self.withdrawn[prefix] = self.withdrawn.get(prefix, 0) + 1
                self.table.discard(prefix)
            for prefix in split(body[4 + size + attributes:]):
                self.announced[prefix] = self.announced.get(prefix, 0) + 1
                self.table.add(prefix)


class FpmServer:
    """Takes FPM connections in a host: the gateways of our routes, and how often each prefix was named. Routes of the kernel and of other
    programs come with the protocol "kernel"."""

    def __init__(self, host):
        self.routes, self.table = {}, {}
        with host.inside():
            self.listener = socket.create_server(("127.0.0.1", 2620))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.take, args=[connection], daemon=True).start()

    def take(self, connection):
        buffer = b""
        with contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                buffer += piece
                while len(buffer) >= 4 and len(buffer) >= (size := struct.unpack("!H", buffer[2:4])[0]):
                    frame, buffer = buffer[4:size], buffer[size:]
                    while len(frame) >= 16:
                        length, kind = struct.unpack("=IH", frame[:6])
                        if kind in (fpm.NEWROUTE, fpm.DELROUTE):
                            self.note(kind, frame[16:length])
                        frame = frame[(length + 3) & ~3:]

    def note(self, kind, route):
        family, bits = route[0], route[1]
        said = attributes(route[12:])
        address = said.get(RTA_DST, bytes(4 if family == 2 else 16))
        prefix = f"{ipaddress.ip_address(address)}/{bits}"
        self.routes[prefix] = self.routes.get(prefix, 0) + 1
        hops, listed = [said], said.get(RTA_MULTIPATH, b"")
        while listed:
            size, = struct.unpack("=H", listed[:2])
            hops.append(attributes(listed[8:size]))
            listed = listed[(size + 3) & ~3:]
        gateways = [str(ipaddress.ip_address(hop[RTA_GATEWAY])) for hop in hops if RTA_GATEWAY in hop]
        if kind == fpm.NEWROUTE and gateways and route[5] != RTPROT_KERNEL:
            self.table[prefix] = tuple(sorted(gateways))
        else:
            self.table.pop(prefix, None)

    def close(self):
        self.listener.close()


@pytest.fixture(params=["kernel", "asic"])
def plane(request):
    return request.param


class Bed:
    """A router with two links, near and far, and actions on them."""

    def __init__(self, host, plane, config, fib=""):
        self.host, self.plane = host, plane
        self.fpm = None
        text = ROUTER + config
        if plane == "kernel":
            host.lan("near0", "10.7.0.1/24")
            host.lan("far0", "10.8.0.1/24")
            self.fpm = FpmServer(host)
            text += KERNEL.rstrip() + f"\n{fib}\n"
        else:
            text += ASIC.replace("\n\n[[", f"\n{fib}\n\n[[", 1) + ASIC_NEAR
        self.router = Ribtide(host, text)

    def installed(self):
        """The gateways of each prefix outside of connected subnets."""
        if self.plane == "kernel":
            found = {p: tuple(sorted(via)) for p, via in kernel_table(self.host, False).items()}
            heard = dict(self.fpm.table)
            return found if found == heard else {p: {"kernel": found.get(p), "FPM": heard.get(p)} for p in found.keys() | heard.keys()}
        found = {}
        for route in self.router.show("fib"):
            if route["protocol"] != "connected":
                found[route["prefix"]] = tuple(sorted(hop.split()[1] for hop in route["hops"]))
        # The chip follows the RIB manager: while they differ, what is installed is neither's.
        for prefix in list(found) if len(found) < 50 else []:
            shown = self.router.show("asic", str(ipaddress.ip_network(prefix)[9]))["lookups"][0]
            # A default route that drops is in SONiC's chip from the start, and names no next hops.
            in_chip = tuple(sorted(shown.get("next_hops", ()))) if shown.get("prefix") == prefix else None
            if in_chip != found[prefix]:
                found[prefix] = {"RIB": found[prefix], "chip": in_chip}
        return found

    def wait_installed(self, expected):
        """Waits until exactly this is installed."""
        wait_for(f"{expected} is installed", lambda: self.installed() == expected, 20, 0.2,
                 alive=[self.router.process])

    def agrees(self):
        self.router.text("route-check")

    def close(self):
        if self.fpm is not None:
            self.fpm.close()


@pytest.fixture
def bed(host, plane):
    beds = []

    def make(config, fib=""):
        beds.append(Bed(host, plane, config, fib))
        return beds[0]
    yield make
    for each in beds:
        each.close()


@pytest.mark.parametrize("plane, lost", [("kernel", "link"), ("kernel", "link of another's route"), ("kernel", "route"), ("asic", "route")],
                         indirect=["plane"])
def test_one_of_two_links_lost_keeps_all_that_resolves_by_the_other(bed, host, lost):
    """The next hop that is lost (with its link, or with the route to it) is then covered by the default route, which
    resolves through that very prefix."""
    of_link, by_another = lost != "route", lost == "link of another's route"
    near, way = (NEAR, NEAR) if of_link else (ELSEWHERE, FEEDS[1])
    bed = bed(INTERNAL.format(FEEDS[0]) + EXTERNAL.format("", FEED_ASN, FEEDS[1], "")
              + ("" if by_another else static("192.0.2.0/24", near, FAR)))
    if by_another:
        host.ip("route", "add", "192.0.2.0/24", "nexthop", "via", NEAR, "dev", "near0", "nexthop", "via", FAR, "dev", "far0")
    observer = Observer(host)
    feed, underlay = Speaker(host, FEEDS[0], 65001), Speaker(host, FEEDS[1], FEED_ASN)
    many = [f"20.{n // 250}.{n % 250}.0/24" for n in range(900)]
    feed.send(update(["0.0.0.0/0", *many[:400]], [65300], "192.0.2.1", LOCAL_PREF))
    feed.send(update(many[400:], [65300], "192.0.2.1", LOCAL_PREF))
    underlay.send(update(["10.77.0.0/24"], [FEED_ASN], FEEDS[1]))
    everything = ["0.0.0.0/0", *many, *([] if by_another else ["192.0.2.0/24"])]
    bed.wait_installed({**dict.fromkeys(everything, tuple(sorted((way, FAR)))), "10.77.0.0/24": (FEEDS[1],)})
    wait_for("all is advertised", lambda: len(observer.read(0.5).table) >= 902, 20)
    before = dict(observer.announced)
    messages = Messages(host) if bed.plane == "kernel" else None
    if bed.fpm:
        bed.fpm.routes.clear()
    if of_link:
        host.ip("link", "set", "near0", "down")
    else:
        underlay.send(raw_update(prefixes(["10.77.0.0/24"])))
    wait_for("all resolve by the other next hop", lambda: {p: v for p, v in bed.installed().items() if p != "10.77.0.0/24"}
             == dict.fromkeys(everything, (FAR,)), 20, 0.2, alive=[bed.router.process])
    observer.read()
    assert observer.withdrawn == ({} if of_link else {"10.77.0.0/24": 1}), "no other change is advertised"
    assert observer.announced == before
    if messages is not None:
        messages.stop()
        assert set(messages.prefixes) & {p.split("/")[0] for p in many} == set(), "groups change, and no route"
        assert messages.prefixes["default"] == messages.prefixes["192.0.2.0"] == 0, messages.prefixes
    if bed.fpm:
        # Without group objects each route has its next hops inline: each is sent once.
        assert {p: n for p, n in bed.fpm.routes.items() if p in everything} == dict.fromkeys(everything, 1)
        assert len(bed.fpm.routes) <= len(everything) + 4, bed.fpm.routes.keys() - set(everything)
    bed.agrees()


def test_two_routes_each_by_the_other_stay_as_they_are(bed, host):
    """A neighbour announces two prefixes, each by a next hop in the other, over a default route."""
    bed = bed(EXTERNAL.format("", FEED_ASN, FEEDS[0], "multihop = 2") + static("0.0.0.0/0", NEAR))
    observer = Observer(host)
    feed = Speaker(host, FEEDS[0], FEED_ASN)
    feed.send(update(["20.0.1.0/24"], [FEED_ASN], "30.0.0.1"))
    feed.send(update(["30.0.0.0/24"], [FEED_ASN], "20.0.1.1"))
    # Both resolve as the default route does: neither answers for the other.
    bed.wait_installed({"0.0.0.0/0": (NEAR,), "20.0.1.0/24": (NEAR,), "30.0.0.0/24": (NEAR,)})
    observer.read()
    generation = bed.router.show("nexthop-group")["cache"]["generation"]
    messages = Messages(host) if bed.plane == "kernel" else None
    observer.read()
    assert bed.router.show("nexthop-group")["cache"]["generation"] == generation, "nothing happens any more"
    assert observer.table == {"20.0.1.0/24", "30.0.0.0/24"}
    assert max(observer.announced.values()) == 1 and observer.withdrawn == {}, (observer.announced, observer.withdrawn)
    if messages is not None:
        messages.stop()
        assert messages.prefixes == {}
    bed.agrees()


@pytest.mark.parametrize("covering", ["0.0.0.0/0", "172.16.0.0/12"])
def test_path_whose_next_hop_is_off_the_link_is_not_used(bed, host, covering):
    """Single-hop external sessions: a static route alone covers the better path's next hop."""
    bed = bed("".join(EXTERNAL.format(n, FEED_ASN, FEEDS[n], "") for n in (0, 1)) + static(covering, NEAR))
    observer = Observer(host)
    good, bad = (Speaker(host, feed, FEED_ASN) for feed in FEEDS)
    good.send(update(["20.0.1.0/24"], [FEED_ASN, 65300], FEEDS[0]))
    bed.wait_installed({covering: (NEAR,), "20.0.1.0/24": (FEEDS[0],)})
    wait_for("it is advertised", lambda: observer.read(0.5).table, 20)
    bad.send(update(["20.0.1.0/24", "20.0.2.0/24"], [FEED_ASN], "172.16.0.1"))
    observer.read()
    bed.wait_installed({covering: (NEAR,), "20.0.1.0/24": (FEEDS[0],)})
    assert (observer.announced, observer.withdrawn) == ({"20.0.1.0/24": 1}, {}), "also not for a moment"
    shown = {n["address"]: n for n in bed.router.show("bgp", "nexthop")["next_hops"]}
    assert shown["172.16.0.1"]["reachable"] is False and shown["172.16.0.1"]["kind"] == "on-link", shown
    assert "connected subnet" in shown["172.16.0.1"]["unresolved"]
    bed.agrees()
    good.send(raw_update(prefixes(["20.0.1.0/24"])))
    bed.wait_installed({covering: (NEAR,)})
    observer.read()
    assert observer.table == set() and observer.withdrawn == {"20.0.1.0/24": 1}
    bed.agrees()


def test_route_does_not_resolve_its_own_next_hop(bed, host):
    """The shorter path of the default route has a next hop that the default route alone holds (RFC 4271 section 9.1.2.1)."""
    bed = bed("".join(EXTERNAL.format(n, FEED_ASN, FEEDS[n], "multihop = 2") for n in (0, 1)))
    observer = Observer(host)
    good, bad = (Speaker(host, feed, FEED_ASN) for feed in FEEDS)
    good.send(update(["0.0.0.0/0"], [FEED_ASN, 65300, 65301], NEAR))
    bed.wait_installed({"0.0.0.0/0": (NEAR,)})
    wait_for("it is advertised", lambda: observer.read(0.5).table, 20)
    bad.send(update(["0.0.0.0/0"], [FEED_ASN], "30.0.9.1"))
    bad.send(update(["20.0.0.0/16"], [FEED_ASN], "30.0.9.1"))
    bed.wait_installed({"0.0.0.0/0": (NEAR,), "20.0.0.0/16": (NEAR,)})
    observer.read()
    assert (observer.announced, observer.withdrawn) == ({"0.0.0.0/0": 1, "20.0.0.0/16": 1}, {})
    bed.agrees()


def test_next_hop_that_becomes_reachable_brings_its_routes(bed, host):
    """A route is advertised when its next hop resolves, and not before."""
    bed = bed(INTERNAL.format(FEEDS[0]) + EXTERNAL.format("", FEED_ASN, FEEDS[1], ""))
    observer = Observer(host)
    feed, underlay = Speaker(host, FEEDS[0], 65001), Speaker(host, FEEDS[1], FEED_ASN)
    feed.send(update(["20.0.1.0/24"], [65300], "192.0.2.1", LOCAL_PREF))
    observer.read()
    assert observer.announced == {} and bed.installed() == {}
    underlay.send(update(["192.0.2.0/24"], [FEED_ASN], FEEDS[1]))
    bed.wait_installed({"192.0.2.0/24": (FEEDS[1],), "20.0.1.0/24": (FEEDS[1],)})
    wait_for("both are advertised", lambda: len(observer.read(0.5).table) == 2, 20)
    observer.read()
    assert observer.announced == {"192.0.2.0/24": 1, "20.0.1.0/24": 1}
    underlay.close()
    bed.wait_installed({})
    wait_for("both are withdrawn", lambda: observer.read(0.5).table == set(), 20)


@pytest.mark.parametrize("plane", ["kernel"], indirect=True)
def test_routes_of_others_are_taken_as_they_are(bed, host):
    """The kernel forwards an imported route by its interface, whatever other routes contain the
    gateway."""
    bed = bed(static(f"{NEAR}/32", FAR) + static("20.0.1.0/24", "203.0.113.9"))
    host.ip("route", "add", "203.0.113.0/24", "via", NEAR, "dev", "near0")
    bed.wait_installed({f"{NEAR}/32": (FAR,), "20.0.1.0/24": (NEAR,)})
    shown = {r["prefix"]: r["hops"] for r in bed.router.show("fib")}
    assert shown["203.0.113.0/24"] == [f"via {NEAR} dev near0"], shown
    # The kernel keeps its route when the address goes that made the gateway's subnet, as long as the interface is up.
    host.ip("addr", "add", "10.17.0.1/24", "dev", "near0")
    host.ip("addr", "del", "10.7.0.1/24", "dev", "near0")
    assert NEAR in host.ip("route", "show", "203.0.113.0/24")
    time.sleep(QUIET)
    bed.wait_installed({f"{NEAR}/32": (FAR,), "20.0.1.0/24": (NEAR,)})
    shown = {r["prefix"]: r["hops"] for r in bed.router.show("fib")}
    assert shown["203.0.113.0/24"] == [f"via {NEAR} dev near0"], shown
    host.ip("link", "set", "near0", "down")
    bed.wait_installed({f"{NEAR}/32": (FAR,)})


@pytest.mark.parametrize("plane", ["kernel"], indirect=True)
def test_route_of_others_lost_with_its_link_is_replaced_by_the_one_of_the_next_metric(bed, host):
    """The kernel sends no notification about a route that it drops with a link, and forwards by
    the other one."""
    bed = bed(INTERNAL.format(FEEDS[0]))
    observer, feed = Observer(host), Speaker(host, FEEDS[0], 65001)
    host.ip("route", "add", "203.0.113.0/24", "via", NEAR, "dev", "near0", "metric", "10")
    host.ip("route", "add", "203.0.113.0/24", "via", FAR, "dev", "far0", "metric", "20")
    feed.send(update(["20.0.1.0/24"], [65300], "203.0.113.9", LOCAL_PREF))
    bed.wait_installed({"20.0.1.0/24": (NEAR,)})
    wait_for("it is advertised", lambda: observer.read(0.5).table, 20)
    host.ip("link", "set", "near0", "down")
    bed.wait_installed({"20.0.1.0/24": (FAR,)})
    observer.read()
    assert (observer.announced, observer.withdrawn) == ({"20.0.1.0/24": 1}, {}), "it is not advertised"
    host.ip("link", "set", "far0", "down")
    bed.wait_installed({})
    wait_for("it is withdrawn", lambda: not observer.read(0.5).table, 20)


@pytest.mark.parametrize("plane", ["kernel"], indirect=True)
def test_default_route_that_moves_to_another_peer_withdraws_nothing_that_resolves_by_it(bed, host):
    """Internal routes resolve through a default route of BGP, whose best path is lost with its
    next hop."""
    bed = bed("".join(INTERNAL.format(feed).replace("internal]", f"internal{n}]") for n, feed in enumerate(FEEDS[:2]))
              + static("198.51.100.1/32", NEAR) + static("198.51.100.2/32", FAR))
    observer = Observer(host)
    first, second = (Speaker(host, feed, 65001) for feed in FEEDS[:2])
    many = [f"20.0.{n}.0/24" for n in range(200)]
    first.send(update(["0.0.0.0/0"], [65300], "198.51.100.1", LOCAL_PREF))
    first.send(update(many, [65300], "192.0.2.1", LOCAL_PREF))
    second.send(update(["0.0.0.0/0"], [65300, 65301], "198.51.100.2", LOCAL_PREF))
    statics = {"198.51.100.1/32": (NEAR,), "198.51.100.2/32": (FAR,)}
    bed.wait_installed({**statics, **dict.fromkeys(["0.0.0.0/0", *many], (NEAR,))})
    wait_for("all is advertised", lambda: len(observer.read(0.5).table) == 201, 20)
    before = dict(observer.announced)
    host.ip("link", "set", "near0", "down")
    # The first static route's gateway is behind the default route now.
    bed.wait_installed({**dict.fromkeys(statics, (FAR,)), **dict.fromkeys(["0.0.0.0/0", *many], (FAR,))})
    observer.read()
    assert observer.withdrawn == {}, "nothing is out of reach but for the moment of the choice"
    assert {p: n for p, n in observer.announced.items() if p != "0.0.0.0/0"} \
        == {p: n for p, n in before.items() if p != "0.0.0.0/0"}
    bed.agrees()


def test_max_ecmp_keeps_next_hops_on_every_link(bed):
    next_hops = [NEAR, "10.7.0.3", FAR, "10.8.0.3"]
    bed = bed(static("20.0.1.0/24", *next_hops), "max-ecmp = 2")
    bed.wait_installed({"20.0.1.0/24": (NEAR, FAR)})
    assert "fib.max-ecmp leaves 2 resolved next hops out" in bed.router.text("explain", "20.0.1.0/24")


def test_flapping_next_hop_is_delayed_and_shown(bed, host):
    """Damping delays the reports of a flapping next hop as reachable, more each time."""
    bed = bed(INTERNAL.format(FEEDS[0]) + EXTERNAL.format("", FEED_ASN, FEEDS[1], ""))
    observer = Observer(host)
    feed, underlay = Speaker(host, FEEDS[0], 65001), Speaker(host, FEEDS[1], FEED_ASN)
    feed.send(update(["20.0.1.0/24"], [65300], "192.0.2.1", LOCAL_PREF))
    # The last delay is 16 s, and 64 s after some more.
    for _ in range(6):
        underlay.send(update(["192.0.2.0/24"], [FEED_ASN], FEEDS[1]))
        time.sleep(0.02)
        underlay.send(raw_update(prefixes(["192.0.2.0/24"])))
        time.sleep(0.02)
    underlay.send(update(["192.0.2.0/24"], [FEED_ASN], FEEDS[1]))

    def is_delayed():
        shown = {n["address"]: n for n in bed.router.show("bgp", "nexthop")["next_hops"]}
        return shown["192.0.2.1"].get("delayed_ms", 0) > 0
    was_delayed, explained, delayed = is_delayed(), bed.router.text("explain", "20.0.1.0/24"), is_delayed()
    assert "next hop 192.0.2.1 changed often, so BGP hears of it later" in explained or not (was_delayed and delayed), explained
    # Without another path the conclusion says what the route waits for, since when, and how often it changed.
    concluded = re.search(r"waits at bgp: next hop 192\.0\.2\.1 resolves again, and BGP uses it if it stays so for \d+ s: "
                          r"it changed \d+ times, and was lost \d+ s ago", explained)
    assert concluded or not (was_delayed and delayed), explained
    wait_for("it is advertised in the end", lambda: "20.0.1.0/24" in observer.read(0.5).table, 30)
    assert observer.announced["20.0.1.0/24"] <= 4, observer.announced
    if observer.announced["20.0.1.0/24"] >= 3:
        # A line for each delay that is longer than the one before, from 1 s to 16 s.
        said = bed.router.process.log(50_000).count("changed often: good news")
        assert 1 <= said <= 5, bed.router.process.log()
