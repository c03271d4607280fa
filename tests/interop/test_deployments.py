"""The configurations of docs/deployments, as they are printed there, beside BIRD and FRR."""

import json
import pathlib
import re

import pytest

from harness import Bird, Frr, Host, Ribtide, wait_for
from test_rpki import Stayrtr

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "deployments"


def printed(title):
    """The configuration on the page of this title."""
    page = FOLDER / f"{title.lower().replace(' ', '-')}.md"
    return re.search(r"^```toml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def hosts(folder):
    """Makes hosts by name."""
    made = []

    def make(*names):
        made.extend(Host(folder, name, feeds=False) for name in names)
        return made[-len(names):]

    yield make
    for host in reversed(made):
        host.close()


def bird(router_id, protocols, routes=()):
    """BIRD with protocols, and static routes that it announces."""
    static = "".join(f"    route {route};\n" for route in routes)
    return f"""
router id {router_id};
log stderr all;
protocol device {{}}
protocol bfd {{}}
protocol static {{
    ipv4;
{static}}}
template bgp fast {{ connect retry time 1; error wait time 1,2; connect delay time 1; }}
{protocols}"""


def frr(asn, router_id, neighbor, neighbor_asn, networks, more=""):
    """FRR's bgpd with one neighbor; `more` has further lines of it."""
    return f"""hostname bgpd
router bgp {asn}
 bgp router-id {router_id}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor {neighbor} remote-as {neighbor_asn}
 neighbor {neighbor} timers connect 1
{more} address-family ipv4 unicast
{"".join(f"  network {network}" + chr(10) for network in networks)} exit-address-family
"""


@pytest.mark.feature("deployments: peering edge, route reflector")
@pytest.mark.peers("bird", "frr")
def test_peering_edge_and_route_reflector(hosts):
    edge, transit, customer, reflector, inside = hosts("edge", "transit", "customer", "reflector", "inside")
    edge.join(transit, "up0")
    edge.join(customer, "down0")
    edge.join(reflector, "core0")
    reflector.join(inside, "core1")
    edge.address("up0", "192.0.2.0/31")
    transit.address("up0", "192.0.2.1/31")
    edge.address("down0", "192.0.2.4/31")
    customer.address("down0", "192.0.2.5/31")
    edge.address("core0", "10.0.0.1/16")
    reflector.address("core0", "10.0.1.1/16")
    reflector.address("core1", "10.0.1.1/32")
    reflector.ip("route", "add", "10.0.0.2/32", "dev", "core1")
    inside.address("core1", "10.0.0.2/32")
    inside.ip("route", "add", "10.0.0.0/16", "dev", "core1")

    ours = Ribtide(edge, printed("Peering edge"))
    middle = Ribtide(reflector, printed("Route reflector"))
    # Bogons, a prefix that is too long, and a community that is for us alone to set.
    provider = Bird(transit, bird("192.0.2.1", """
protocol bgp ours from fast {
    local 192.0.2.1 as 64496; neighbor 192.0.2.0 as 64500; ttl security on; local role provider;
    ipv4 { import all; export all; };
}""", ["8.8.8.0/24 blackhole", "1.1.1.0/24 blackhole { bgp_community.add((64500, 200)); }", "0.0.0.0/0 blackhole",
       "10.9.0.0/16 blackhole", "8.8.8.128/25 blackhole"]))
    user = Frr(customer, bgpd=frr(64510, "192.0.2.5", "192.0.2.4", 64500, ["203.0.113.0/24", "203.0.114.0/24"],
                                  " neighbor 192.0.2.4 local-role customer\n"))
    client = Bird(inside, bird("10.0.0.2", """
protocol bgp ours from fast {
    local 10.0.0.2 as 64500; neighbor 10.0.1.1 as 64500;
    ipv4 { import all; export none; };
}"""))
    wait_for("the client has all", lambda: client.count() == 4, 60)
    inside_table, outside = client.table(), {"8.8.8.0/24", "1.1.1.0/24"}
    assert set(inside_table) == outside | {"203.0.113.0/24", "198.51.100.0/24"}
    for prefix in outside:
        assert inside_table[prefix].communities == {"64500:100"} and inside_table[prefix].local_pref == 100
    assert inside_table["203.0.113.0/24"].communities == {"64500:200"} and inside_table["203.0.113.0/24"].local_pref == 200
    assert {route.next_hop for route in inside_table.values()} == {"10.0.0.1"}
    wait_for("the provider has ours and the customer's",
             lambda: {p: r.as_path for p, r in provider.table().items()} == {"198.51.100.0/24": "64500", "203.0.113.0/24": "64500 64510"}, 60)
    wait_for("the customer has all but its own",
             lambda: set(user.table()) - {"203.0.113.0/24", "203.0.114.0/24"} == outside | {"198.51.100.0/24"}, 60)
    assert edge.gateways("8.8.8.0/24") == {"192.0.2.1"} and edge.gateways("203.0.113.0/24") == {"192.0.2.5"}
    assert "blackhole" in edge.ip("route", "show", "198.51.100.0/24")
    assert ours.neighbor("192.0.2.5")["session"]["counters"]["rejected"] == 1
    assert all(group["configured"] == ["clients"] for group in middle.show("bgp", "group"))


@pytest.mark.feature("deployments: route server")
@pytest.mark.peers("bird", "frr")
def test_route_server(hosts):
    server, one, two = hosts("server", "one", "two")
    for member, link, address in ((one, "lan1", "203.0.113.11"), (two, "lan2", "203.0.113.12")):
        server.join(member, link)
        server.address(link, "203.0.113.1/32")
        server.ip("route", "add", f"{address}/32", "dev", link)
        member.address(link, f"{address}/24")
    irr = server.folder / "irr"
    irr.mkdir()
    (irr / "AS64811.prefixes").write_text("# bgpq4 -A\n192.0.2.0/24 24..25\n198.18.1.0/24 24..24\n")
    (irr / "AS64811.json").write_text('{"NN": [\n  64811\n]}\n')
    Stayrtr(server, [("192.0.2.0/24", 24, 64811)])
    ours = Ribtide(server, printed("Route server"))
    wait_for("the payload of the cache", lambda: [c["records"]["ipv4"] for c in ours.show("rpki", "caches")["caches"]] == [1], 60)
    # Its own; another member's; too long for the RPKI; of an AS that is not in its AS-SET.
    first = Bird(one, bird("203.0.113.11", """
protocol bgp ours from fast {
    local 203.0.113.11 as 64811; neighbor 203.0.113.1 as 64700; local role rs_client; enforce first as off;
    ipv4 { import all; export filter { bgp_med = 7; accept; }; };
}""", ["192.0.2.0/24 blackhole { bgp_community.add((64700, 1)); }", "198.51.100.0/24 blackhole", "192.0.2.128/25 blackhole",
       "198.18.1.0/24 blackhole { bgp_path.prepend(65009); }"]))
    second = Frr(two, bgpd=frr(64812, "203.0.113.12", "203.0.113.1", 64700, ["198.51.100.16/28", "10.0.0.0/8"],
                               " neighbor 203.0.113.1 local-role rs-client\n no neighbor 203.0.113.1 enforce-first-as\n"))
    wait_for("FRR has BIRD's route", lambda: second.table().get("192.0.2.0/24"), 60)
    route = second.table()["192.0.2.0/24"]
    assert (route.as_path, route.next_hop, route.med, route.communities) == ("64811", "203.0.113.11", 7, {"64700:1"})
    wait_for("BIRD has FRR's route", lambda: first.table().get("198.51.100.16/28"), 60)
    route = first.table()["198.51.100.16/28"]
    assert (route.as_path, route.next_hop) == ("64812", "203.0.113.12")
    assert set(ours.table()) == {"192.0.2.0/24", "198.51.100.16/28"}, "neither takes the other's prefixes"
    assert ours.neighbor("203.0.113.11")["session"]["counters"]["rejected"] == 3
    assert ours.neighbor("203.0.113.12")["session"]["counters"]["rejected"] == 1
    # The AS-SET has another member now.
    (irr / "AS64811.json").write_text('{"NN": [\n  64811,65009\n]}\n')
    ours.text("reload")
    wait_for("FRR has the route of the new AS", lambda: "198.18.1.0/24" in second.table(), 60)
    assert second.table()["198.18.1.0/24"].as_path == "64811 65009"


def spines(hosts, asn, leaf, one, two, networks):
    """FRR behind one link and BIRD behind another, external, and both with BFD; `one` and `two` are our addresses and theirs."""
    first, second = hosts("first", "second")
    for host, link, (mine, theirs) in ((first, "link1", one), (second, "link2", two)):
        leaf.join(host, link)
        leaf.address(link, f"{mine}/31")
        host.address(link, f"{theirs}/31")
    frr_side = Frr(first, bfdd="", bgpd=frr(asn, one[1], one[0], "external", networks, f" neighbor {one[0]} bfd\n bgp bestpath as-path multipath-relax\n"))
    routes = [f"{network} blackhole" for network in networks]
    bird_side = Bird(second, bird(two[1], f"""
protocol bgp ours from fast {{
    local {two[1]} as {asn + 1}; neighbor {two[0]} external; bfd on;
    ipv4 {{ import all; export all; }};
}}""", routes))
    return frr_side, bird_side


@pytest.mark.feature("deployments: leaf, host")
@pytest.mark.peers("bird", "frr")
def test_leaf(hosts):
    (leaf,) = hosts("leaf")
    leaf.lan("hosts0", "10.10.1.1/24")
    ours = Ribtide(leaf, printed("Leaf"))
    one, two = spines(hosts, 4200000001, leaf, ("10.2.1.1", "10.2.1.0"), ("10.2.2.1", "10.2.2.0"), ["10.10.2.0/24", "0.0.0.0/0"])
    wait_for("both spines share the traffic", lambda: leaf.gateways("10.10.2.0/24") == {"10.2.1.0", "10.2.2.0"}, 60)
    for spine in (one, two):
        wait_for("the spine has the hosts' subnet, and nothing else",
                 lambda: {p: r.as_path for p, r in spine.table().items() if r.as_path} == {"10.10.1.0/24": "4200000101"}, 60)
    for neighbor in ("10.2.1.0", "10.2.2.0"):
        wait_for("BFD is up", lambda: any(s["peer"] == neighbor and s["state"] == "Up" for s in ours.show("bfd")["sessions"]), 60)
    # A spine that stands still, while its link stays up.
    for process in one.processes.values():
        process.popen.send_signal(19)
    wait_for("the silent spine is gone", lambda: leaf.gateways("10.10.2.0/24") == {"10.2.2.0"}, 2)
    for process in one.processes.values():
        process.popen.send_signal(18)
    wait_for("it is back", lambda: leaf.gateways("10.10.2.0/24") == {"10.2.1.0", "10.2.2.0"}, 60)


@pytest.mark.feature("deployments: unnumbered leaf")
@pytest.mark.peers("frr")
def test_unnumbered_leaf(hosts):
    leaf, one, two, server = hosts("leaf", "one", "two", "server")
    for host, ours, theirs in ((one, "uplink1", "leaf0"), (two, "uplink2", "leaf0"), (server, "port7", "eth0")):
        leaf.ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", host.name)
        leaf.ip("link", "set", ours, "up")
        host.ip("link", "set", theirs, "up")
    leaf.address("lo", "10.30.0.1/32")
    router = Ribtide(leaf, printed("Unnumbered leaf"))
    spines = [Frr(host, bfdd="", bgpd=frr(asn, router_id, "leaf0", "external", ["0.0.0.0/0", "10.32.0.0/24"], " neighbor leaf0 bfd\n")
                  .replace("neighbor leaf0 remote-as external", "neighbor leaf0 interface remote-as external"))
              for host, asn, router_id in ((one, 4200000311, "10.30.0.11"), (two, 4200000312, "10.30.0.12"))]
    service = "10.31.0.5/32"
    Ribtide(server, printed("Host").replace('neighbors = ["10.3.1.0", "10.3.2.0"]', 'interfaces = ["eth0"]').replace("10.20.0.1/32", service))
    server.address("lo", service)
    wait_for("three neighbours have sessions", lambda: router.show("bgp", "summary")["established"] == 3, 60)

    def dev(host, prefix):
        objects = {n["id"]: n for n in json.loads(host.ip("-j", "nexthop", "show"))}
        found = set()
        for route in json.loads(host.ip("-j", "route", "show", prefix)):
            hop = objects.get(route.get("nhid"), route)
            found |= {h.get("dev") for h in ([objects.get(m["id"], {}) for m in hop["group"]] if "group" in hop else [hop])}
        return found

    wait_for("both spines share the traffic", lambda: dev(leaf, "10.32.0.0/24") == {"uplink1", "uplink2"}, 60)
    wait_for("the host's service has its port", lambda: dev(leaf, service) == {"port7"}, 60)
    wait_for("the host has a default route", lambda: dev(server, "default") == {"eth0"}, 60)
    assert {p["prefix"] for p in router.show("route")} == {"0.0.0.0/0", "10.32.0.0/24", service, "10.30.0.1/32"}
    for spine in spines:
        wait_for("the spine has the host's service", lambda: service in json.loads(spine.query("show bgp ipv4 unicast json", "bgpd"))["routes"], 60)
    wait_for("BFD is up with both", lambda: [s["state"] for s in router.show("bfd")["sessions"]] == ["Up", "Up"], 60)
    # A spine that stands still, while its link stays up.
    for process in spines[0].processes.values():
        process.popen.send_signal(19)
    wait_for("the silent spine is gone", lambda: dev(leaf, "10.32.0.0/24") == {"uplink2"}, 2)
    for process in spines[0].processes.values():
        process.popen.send_signal(18)
    wait_for("it is back", lambda: dev(leaf, "10.32.0.0/24") == {"uplink1", "uplink2"}, 60)


@pytest.mark.feature("deployments: leaf, host")
@pytest.mark.peers("bird", "frr")
def test_host(hosts):
    (server,) = hosts("server")
    server.address("lo", "10.20.0.1/32")
    ours = Ribtide(server, printed("Host"))
    leaves = spines(hosts, 4200000101, server, ("10.3.1.1", "10.3.1.0"), ("10.3.2.1", "10.3.2.0"), ["10.10.2.0/24", "0.0.0.0/0"])
    wait_for("both leaves share the traffic", lambda: server.gateways("0.0.0.0/0") == {"10.3.1.0", "10.3.2.0"}, 60)
    assert set(ours.table()) == {"0.0.0.0/0", "10.20.0.1/32"}
    for leaf in leaves:
        wait_for("the leaf has the service address", lambda: leaf.table()["10.20.0.1/32"].as_path == "4200000201", 60)
    ours.config.write_text(ours.config.read_text().replace("[bgp.group.leaves]\n", "[bgp.group.leaves]\ngraceful-shutdown = true\n"))
    ours.text("reload")
    for leaf in leaves:
        wait_for("the community is there", lambda: "65535:0" in leaf.table()["10.20.0.1/32"].communities, 60)
    assert server.gateways("0.0.0.0/0"), "the default route stays"
