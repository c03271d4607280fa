"""Sessions over link-local addresses, and IPv4 over links that have no IPv4 address."""

import ipaddress
import json
import socket
import struct

import pytest

from harness import Bird, Frr, Gobgp, Host, Ribtide, wait_for
from harness.config import HEAD, external
from harness.sonic import Sonic
from harness.speaker import Speaker, attribute, raw_update

#: The networks that each host announces, and an address in each.
LEFT4, LEFT6, LEFT = "198.51.100.0/24", "2001:db8:51::/48", ("198.51.100.1", "2001:db8:51::1")
RIGHT4, RIGHT6, RIGHT = "203.0.113.0/24", "2001:db8:113::/48", ("203.0.113.1", "2001:db8:113::1")

OURS = """
[router]
asn = {asn}
router-id = "{router_id}"

[bgp]
multipath = 4

[bgp.originate]
networks = [{networks}]

[bgp.group.fabric]
type = "external"
peer-asn = "external"
interfaces = ["swp*"]
import = ["accept"]
export = ["accept"]
connect-retry = 1
hold-time = {hold}
{more}

[fib]
kernel = true
"""


def ours(asn, router_id, networks, hold=90, more=""):
    return OURS.format(asn=asn, router_id=router_id, networks=", ".join(f'"{n}"' for n in networks), hold=hold, more=more)


class Fabric:
    """Two hosts with links that have link-local addresses alone. A host's own networks are on its loopback."""

    def __init__(self, folder, links=1):
        self.folder = folder
        self.left, self.right = Host(folder, "left", feeds=False), Host(folder, "right", feeds=False)
        for n in range(1, links + 1):
            self.link(n)
        for host, addresses in ((self.left, LEFT), (self.right, RIGHT)):
            host.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
            host.ip("addr", "add", f"{addresses[0]}/24", "dev", "lo")
            host.ip("addr", "add", f"{addresses[1]}/48", "dev", "lo", "nodad")

    def link(self, n, left="swp", right="swp"):
        """A link without duplicate address detection, so that its link-local addresses can be used at once."""
        for host in (self.left, self.right):
            host.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        self.left.ip("link", "add", f"{left}{n}", "type", "veth", "peer", "name", f"{right}{n}", "netns", self.right.name)
        self.left.ip("link", "set", f"{left}{n}", "up")
        self.right.ip("link", "set", f"{right}{n}", "up")

    def link_local(self, host, interface):
        found = json.loads(host.ip("-j", "-6", "addr", "show", "dev", interface, "scope", "link"))
        return next(a["local"] for i in found for a in i.get("addr_info", []) if "local" in a)

    def ping(self):
        """Packets of both families go from end to end and back."""
        for family, near, far in zip((socket.AF_INET, socket.AF_INET6), LEFT, RIGHT):
            with self.left.inside():
                client = socket.socket(family, socket.SOCK_DGRAM)
            with self.right.inside():
                server = socket.socket(family, socket.SOCK_DGRAM)
            with client, server:
                for end, address in ((client, near), (server, far)):
                    end.settimeout(1)
                    end.bind((address, 0))
                client.sendto(b"there", server.getsockname())
                received, source = server.recvfrom(9)
                assert (received, source[0]) == (b"there", near)
                server.sendto(b"back", source)
                assert client.recvfrom(9)[0] == b"back"
        return True

    def close(self):
        self.left.close()
        self.right.close()


@pytest.fixture
def fabric(folder):
    made = []

    def make(links=1):
        made.append(Fabric(folder, links))
        return made[-1]

    yield make
    for one in made:
        one.close()


def session(router, interface):
    return router.session(interface)


def up(router, interface):
    return wait_for(f"{router.name} has a session on {interface}", lambda: session(router, interface), alive=[router.process])


def gateways(host, prefix):
    """The interfaces and gateways of a route in the kernel, by next-hop objects too."""
    objects = {n["id"]: n for n in json.loads(host.ip("-j", "nexthop", "show"))}
    found = set()
    for route in json.loads(host.ip("-j", "-6" if ":" in prefix else "-4", "route", "show", prefix)):
        hop = objects.get(route.get("nhid"), route)
        hops = [objects.get(m["id"], {}) for m in hop["group"]] if "group" in hop else hop.get("nexthops", [hop])
        found |= {(h.get("dev"), h.get("via", {}).get("host", h.get("gateway"))) for h in hops}
    return found


@pytest.mark.feature("unnumbered sessions by interface, IPv4 routes with IPv6 next hops (RFC 8950)")
@pytest.mark.peers("frr")
def test_unnumbered_session_with_frr_forwards_ipv4_over_links_without_ipv4(fabric):
    two = fabric()
    router = Ribtide(two.left, ours(65001, "10.0.0.1", [LEFT4, LEFT6]))
    frr = Frr(two.right, zebra="hostname zebra\n", staticd="hostname staticd\n", bgpd=f"""hostname bgpd
router bgp 65002
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor swp1 interface remote-as external
 neighbor swp1 timers connect 1
 address-family ipv4 unicast
  network {RIGHT4}
 exit-address-family
 address-family ipv6 unicast
  network {RIGHT6}
  neighbor swp1 activate
 exit-address-family
""")
    assert up(router, "swp1")["extended_next_hop"]
    far = two.link_local(two.right, "swp1")
    neighbor = router.neighbor("swp1")
    assert neighbor["address"] == f"{far}%swp1" and neighbor["asn"] == 65002
    assert router.neighbor(f"{far}%swp1")["address"] == neighbor["address"]
    wait_for("packets are forwarded", two.ping)
    [route] = router.show("route", RIGHT4)
    assert route["paths"][0]["next_hop"] == f"{far}%swp1"
    assert gateways(two.left, RIGHT4) == {("swp1", far)}
    assert gateways(two.right, LEFT4) == {("swp1", two.link_local(two.left, "swp1"))}
    assert "all the way through" in router.text("explain", RIGHT4)
    # FRR sends what it is sent: the capability, and one next hop for both families.
    state = json.loads(frr.query("show bgp neighbors swp1 json", "bgpd"))["swp1"]
    assert state["neighborCapabilities"]["extendedNexthop"] == "advertisedAndReceived"

    # The neighbour's new address is followed: FRR's advertisements come from it.
    two.right.ip("link", "set", "swp1", "down")
    wait_for("the session ends with the link", lambda: not session(router, "swp1"))
    two.right.ip("link", "set", "swp1", "address", "02:00:00:00:09:09")
    two.right.ip("link", "set", "swp1", "up")
    other = wait_for("the interface has another address", lambda: two.link_local(two.right, "swp1"))
    assert other != far
    wait_for("the neighbour has its new address", lambda: router.neighbor("swp1")["address"] == f"{other}%swp1")
    wait_for("packets are forwarded", two.ping)
    assert gateways(two.left, RIGHT4) == {("swp1", other)}


@pytest.mark.feature("unnumbered sessions by interface, IPv4 routes with IPv6 next hops (RFC 8950)")
@pytest.mark.peers("bird")
def test_unnumbered_session_with_bird_that_knows_our_address(fabric):
    two = fabric()
    router = Ribtide(two.left, ours(65001, "10.0.0.1", [LEFT4, LEFT6]))
    near = two.link_local(two.left, "swp1")
    # BIRD advertises no router here: its connection tells its address.
    Bird(two.right, f"""
router id 10.0.0.2;
log stderr all;
protocol device {{}}
protocol kernel {{ ipv4 {{ export all; import none; }}; }}
protocol kernel {{ ipv6 {{ export all; import none; }}; }}
protocol static four {{ ipv4; route {RIGHT4} via "lo"; }}
protocol static six {{ ipv6; route {RIGHT6} via "lo"; }}
protocol bgp ours {{
    local as 65002;
    neighbor {near}%swp1 as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export where proto = "four"; extended next hop on; }};
    ipv6 {{ import all; export where proto = "six"; }};
}}
""")
    assert up(router, "swp1")["extended_next_hop"]
    wait_for("packets are forwarded", two.ping)
    far = two.link_local(two.right, "swp1")
    assert router.neighbor("swp1")["address"] == f"{far}%swp1"
    assert gateways(two.left, RIGHT4) == {("swp1", far)}


@pytest.mark.parametrize("first", [b"", bytes(16)], ids=["alone", "after an unspecified address"])
def test_lone_link_local_next_hop_in_a_session_over_ipv4(host, first):
    """It is on the link of the session (RFC 2545 section 3): FRR and BIRD install such routes, and BIRD sends some behind `::`."""
    router = Ribtide(host, HEAD + external("feeds", 65010, Host.FEEDS[0], 'import = ["accept"]') + "[fib]\nkernel = true\n")
    speaker = Speaker(host, Host.FEEDS[0], 65010, more=bytes([1, 4, 0, 2, 0, 1]))
    next_hop = first + ipaddress.ip_address("fe80::9").packed
    network = ipaddress.ip_network(RIGHT6)
    nlri = bytes([network.prefixlen]) + network.network_address.packed[:6]
    reach = struct.pack("!HBB", 2, 1, len(next_hop)) + next_hop + b"\0" + nlri
    path = struct.pack("!BBI", 2, 1, 65010)
    speaker.send(raw_update(b"", attribute(0x40, 1, b"\0") + attribute(0x40, 2, path) + attribute(0x80, 14, reach)))
    wait_for("the kernel has the route", lambda: gateways(host, RIGHT6) == {("feed0", "fe80::9")}, 30, alive=[router.process])
    router.assert_agrees()


@pytest.mark.feature("unnumbered sessions by interface, IPv4 routes with IPv6 next hops (RFC 8950)")
@pytest.mark.peers("gobgp")
def test_unnumbered_session_with_gobgp_that_learns_our_address(fabric):
    two = fabric()
    router = Ribtide(two.left, ours(65001, "10.0.0.1", [LEFT4, LEFT6]))
    near = two.link_local(two.left, "swp1")
    # GoBGP reads our address from its kernel, which has it from our advertisements.
    wait_for("the kernel of the other side knows our address",
             lambda: near in two.right.ip("-6", "neigh", "show", "dev", "swp1"))
    gobgp = Gobgp(two.right, f"""
[global.config]
as = 65002
router-id = "10.0.0.2"

[[neighbors]]
[neighbors.config]
neighbor-interface = "swp1"
peer-as = 65001
[neighbors.timers.config]
connect-retry = 5
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv4-unicast"
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv6-unicast"
""")
    assert up(router, "swp1")["extended_next_hop"]
    far = two.link_local(two.right, "swp1")
    gobgp.query("global", "rib", "add", RIGHT4, "-a", "ipv4")
    gobgp.query("global", "rib", "add", RIGHT6, "-a", "ipv6")
    wait_for("its route is installed", lambda: gateways(two.left, RIGHT4) == {("swp1", far)})
    wait_for("it has ours", lambda: {LEFT4, LEFT6} <= set(gobgp.table()))
    # GoBGP forwards nothing itself.
    for version, prefix in (("-4", LEFT4), ("-6", LEFT6)):
        family = [] if version == "-6" else ["inet6"]
        two.right.ip(version, "route", "add", prefix, "via", *family, near, "dev", "swp1")
    wait_for("packets are forwarded", two.ping)


def test_unnumbered_sessions_over_several_links_between_two_of_us(fabric):
    two = fabric(links=2)
    # Switches have one MAC address for all ports, and so the same link-local address on each.
    for n in (1, 2):
        for host, mac in ((two.left, "02:00:00:00:00:01"), (two.right, "02:00:00:00:00:02")):
            host.ip("link", "set", f"swp{n}", "down")
            host.ip("link", "set", f"swp{n}", "address", mac)
        two.left.ip("link", "set", f"swp{n}", "up")
        two.right.ip("link", "set", f"swp{n}", "up")
    far = "fe80::ff:fe00:2"
    left = Ribtide(two.left, ours(65001, "10.0.0.1", [LEFT4, LEFT6], hold=3600), name="left")
    right = Ribtide(two.right, ours(65002, "10.0.0.2", [RIGHT4, RIGHT6], hold=3600), name="right")
    for router in (left, right):
        up(router, "swp1")
        up(router, "swp2")
    assert {n["address"] for n in left.show("bgp", "neighbor")} == {f"{far}%swp1", f"{far}%swp2"}
    both = {("swp1", far), ("swp2", far)}
    wait_for("both links share the traffic", lambda: gateways(two.left, RIGHT4) == both)
    wait_for("packets are forwarded", two.ping)
    assert 'neighbor="fe80::ff:fe00:2%swp1"' in left.call("GET", "/metrics")

    # A link fails: the group shrinks, and no packet waits for a hold timer of an hour.
    two.right.ip("link", "set", "swp1", "down")
    wait_for("the session ends with its link", lambda: not session(left, "swp1") and session(left, "swp2"))
    wait_for("the other link has the traffic", lambda: gateways(two.left, RIGHT4) == {("swp2", far)})
    wait_for("packets are forwarded", two.ping)
    two.right.ip("link", "set", "swp1", "up")
    up(left, "swp1")
    wait_for("both links share the traffic", lambda: gateways(two.left, RIGHT4) == both)

    # One interface loses its IPv6 addresses. The other one has the same link-local address.
    two.left.run("sysctl", "-qw", "net.ipv6.conf.swp1.disable_ipv6=1")
    wait_for("the session ends with its address", lambda: not session(left, "swp1") and session(left, "swp2"))
    wait_for("the other link has the traffic", lambda: gateways(two.left, RIGHT4) == {("swp2", far)})
    two.left.run("sysctl", "-qw", "net.ipv6.conf.swp1.disable_ipv6=0")
    up(left, "swp1")
    wait_for("both links share the traffic", lambda: gateways(two.left, RIGHT4) == both)

    # The interface is made again, with another number.
    before = json.loads(two.left.ip("-j", "link", "show", "swp1"))[0]["ifindex"]
    two.left.ip("link", "del", "swp1")
    wait_for("the neighbour is gone with its interface", lambda: len(left.show("bgp", "neighbor")) == 1)
    two.link(1)
    assert json.loads(two.left.ip("-j", "link", "show", "swp1"))[0]["ifindex"] != before
    up(left, "swp1")
    wait_for("both links share the traffic", lambda: len(gateways(two.left, RIGHT4)) == 2)
    wait_for("packets are forwarded", two.ping)

    # A restart finds its routes in the kernel, and they forward meanwhile.
    left.process.kill()
    kept = gateways(two.left, RIGHT4)
    assert len(kept) == 2
    left.start()
    up(left, "swp1")
    up(left, "swp2")
    wait_for("both links share the traffic", lambda: gateways(two.left, RIGHT4) == kept)

    # By reload: one interface fewer, which the other side notices.
    text = left.config.read_text()
    left.config.write_text(text.replace('interfaces = ["swp*"]', 'interfaces = ["swp2", "swp9"]'))
    left.text("reload")
    wait_for("one neighbour is left", lambda: len(left.show("bgp", "neighbor")) == 1)
    assert session(left, "swp2")
    waiting = left.show("bgp", "summary")["waiting_interfaces"]
    assert [(w["interface"], w["reason"]) for w in waiting] == [("swp9", "there is no such interface")]
    wait_for("the other link has the traffic", lambda: {i for i, _ in gateways(two.left, RIGHT4)} == {"swp2"})
    left.config.write_text(text)
    left.text("reload")
    up(left, "swp1")
    left.text("clear", "bgp", "neighbor", "swp1")
    up(left, "swp1")


@pytest.mark.feature("unnumbered sessions by interface, IPv4 routes with IPv6 next hops (RFC 8950)")
@pytest.mark.peers("frr")
def test_unnumbered_session_of_a_virtual_asic_resolves_over_its_port(folder):
    switch, spine = Host(folder, "switch", feeds=False), Host(folder, "spine", feeds=False)
    try:
        for host in (switch, spine):
            host.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        switch.ip("link", "add", "Ethernet0", "type", "veth", "peer", "name", "swp1", "netns", spine.name)
        switch.ip("link", "set", "Ethernet0", "up")
        spine.ip("link", "set", "swp1", "up")
        config = ours(65001, "10.0.0.1", [LEFT4]).replace("swp*", "Ethernet*")
        router = Ribtide(switch, config.replace("kernel = true", "virtual-asic = { lab = true }") + """
[[interface]]
name = "Ethernet4"
addresses = ["10.4.0.1/24"]

[[interface]]
name = "Ethernet0"
addresses = ["10.0.0.1/24"]
""")
        Frr(spine, bgpd=f"""hostname bgpd
router bgp 65002
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor swp1 interface remote-as external
 neighbor swp1 timers connect 1
 address-family ipv4 unicast
  network {RIGHT4}
 exit-address-family
""")
        up(router, "Ethernet0")
        found = json.loads(spine.ip("-j", "-6", "addr", "show", "dev", "swp1", "scope", "link"))
        far = next(a["local"] for i in found for a in i.get("addr_info", []) if "local" in a)

        def lookup():
            [answer] = router.show("asic", RIGHT[0])["lookups"]
            return (answer.get("prefix"), answer.get("next_hops")) == (RIGHT4, [far])

        wait_for("the chip forwards to the neighbour", lookup)
        [route] = router.show("fib", RIGHT4)
        assert route["hops"] == [f"via {far} dev Ethernet0"]
        assert router.neighbor("Ethernet0")["address"] == f"{far}%Ethernet0"
    finally:
        switch.close()
        spine.close()


@pytest.mark.feature("unnumbered sessions by interface, IPv4 routes with IPv6 next hops (RFC 8950)")
@pytest.mark.peers("frr")
def test_unnumbered_session_on_a_sonic_switch_has_rows_with_the_link_local_address(folder):
    switch, spine = Host(folder, "switch", feeds=False), Host(folder, "spine", feeds=False)
    try:
        sonic = Sonic(switch, neighbors=False)
        switch.ip("link", "set", "Ethernet0-end", "netns", spine.name)
        spine.ip("link", "set", "Ethernet0-end", "name", "swp1")
        spine.ip("link", "set", "swp1", "up")
        router = Ribtide(switch, ours(65001, "10.0.0.1", [LEFT4]).replace("swp*", "Ethernet0").replace(
            "kernel = true", 'kernel = { table = 100 }\nfpm = ["127.0.0.1:2620"]'))
        Frr(spine, bgpd=f"""hostname bgpd
router bgp 65002
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor swp1 interface remote-as external
 neighbor swp1 timers connect 1
 address-family ipv4 unicast
  network {RIGHT4}
 exit-address-family
 address-family ipv6 unicast
  network {RIGHT6}
  neighbor swp1 activate
 exit-address-family
""")
        up(router, "Ethernet0")
        far = router.neighbor("Ethernet0")["address"].split("%")[0]
        sonic.neighbor("Ethernet0", far)
        for prefix in (RIGHT4, RIGHT6):
            row = wait_for("the row is there", lambda: sonic.appl.hgetall(f"ROUTE_TABLE:{prefix}"), alive=sonic.alive())
            assert (row["nexthop"], row["ifname"], row["protocol"]) == (far, "Ethernet0", "bgp"), row
            wait_for("the chip forwards to the neighbour", lambda: sonic.chip().routes().get(prefix) == (far,), alive=sonic.alive())
    finally:
        switch.close()
        spine.close()
