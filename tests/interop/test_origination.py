"""Routes that the router originates, as BIRD over an external and FRR over an internal session get them."""

import re

import pytest

from harness import Bird, Frr, Pair, Ribtide, Route, agree, wait_for

ROUTER = f"""
[router]
asn = 65001
router-id = "{Pair.A4}"

[fib]
suppress-fib-pending = true

[fib.kernel]

[[static]]
prefix = "198.51.100.0/24"
next-hop = ["{Pair.B4}"]

[[static]]
prefix = "203.0.113.0/24"
blackhole = true

[bgp]
listen = ["[::]:179"]

[bgp.originate]
{{originate}}

[policy.prefix-set.shared]
prefixes = ["10.255.0.0/24"]

[[policy.definition.some-connected.statement]]
conditions.match-prefix-set = "shared"
actions.set-med = 70
actions.set-community.add = ["65001:1"]
actions.policy-result = "accept"

[bgp.group.peer]
type = "{{kind}}"
peer-asn = {{asn}}
connect-retry = 1
import = ["accept"]
export = ["accept"]
neighbors = ["{Pair.B4}"]
"""


def router(pair, kind, asn, originate):
    return Ribtide(pair.a, ROUTER.format(kind=kind, asn=asn, originate=originate))


def reload(ribtide, before, after):
    text = ribtide.config.read_text()
    assert before in text
    ribtide.config.write_text(text.replace(before, after))
    assert "other routes are originated" in ribtide.text("reload")


def bird(pair):
    return Bird(pair.b, f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp ribtide {{
    local {Pair.B4} as 65002;
    neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export none; }};
}}
""")


def holds(peer, table):
    wait_for(f"the peer has {sorted(table)}", lambda: peer.table().keys() == table.keys(), 30)
    agree(table, peer.table())


@pytest.mark.feature("originated routes")
@pytest.mark.peers("bird")
def test_external_peer_gets_networks_and_redistributed_routes(pair):
    ribtide = router(pair, "external", 65002, 'networks = ["192.0.2.0/24"]\nstatic = ["accept"]\nconnected = ["some-connected"]\nkernel = ["accept"]')
    peer = bird(pair)
    pair.a.run("ip", "route", "add", "100.64.0.0/10", "via", Pair.B4)
    network = Route("65001", "igp", Pair.A4)
    other = Route("65001", "incomplete", Pair.A4)
    connected = other._replace(med=70, communities=frozenset({"65001:1"}))
    everything = {"192.0.2.0/24": network, "198.51.100.0/24": other, "203.0.113.0/24": other, "100.64.0.0/10": other,
                  "10.255.0.0/24": connected}
    holds(peer, everything)
    bgp = ribtide.explain("192.0.2.0/24")["stages"][0]
    assert bgp["state"] == "passed" and "originated here (network)" in " ".join(bgp["messages"]), bgp
    assert re.search(r"\* +198.51.100.0/24 +self +\(static\)", ribtide.text("show", "route")), ribtide.text("show", "route")

    # A kernel route goes, a static route loses its link, and both come back.
    pair.a.run("ip", "route", "del", "100.64.0.0/10")
    holds(peer, {prefix: route for prefix, route in everything.items() if prefix != "100.64.0.0/10"})
    pair.a.run("ip", "route", "add", "100.64.0.0/10", "via", Pair.B4)
    holds(peer, everything)

    # Reloads touch the routes that they name and no session.
    reload(ribtide, 'static = ["accept"]\n', "")
    holds(peer, {p: r for p, r in everything.items() if p not in ("198.51.100.0/24", "203.0.113.0/24")})
    reload(ribtide, 'kernel = ["accept"]', 'static = ["accept"]')
    holds(peer, {p: r for p, r in everything.items() if p != "100.64.0.0/10"})
    reload(ribtide, "actions.set-med = 70", "actions.set-med = 71")
    holds(peer, {p: (r._replace(med=71) if r.med else r) for p, r in everything.items() if p != "100.64.0.0/10"})
    assert ribtide.neighbor(Pair.B4)["flaps"] == 0


@pytest.mark.feature("originated routes")
@pytest.mark.peers("bird")
def test_network_that_needs_a_route_comes_and_goes_with_it(pair):
    ribtide = router(pair, "external", 65002, 'networks = ["100.64.0.0/10", "203.0.113.0/24"]\nrequire-route = true')
    peer = bird(pair)
    network = Route("65001", "igp", Pair.A4)
    holds(peer, {"203.0.113.0/24": network})
    pair.a.run("ip", "route", "add", "100.64.0.0/10", "via", Pair.B4)
    holds(peer, {"203.0.113.0/24": network, "100.64.0.0/10": network})
    pair.a.run("ip", "route", "del", "100.64.0.0/10")
    holds(peer, {"203.0.113.0/24": network})
    reload(ribtide, "require-route = true", "")
    holds(peer, {"203.0.113.0/24": network, "100.64.0.0/10": network})


@pytest.mark.feature("originated routes")
@pytest.mark.peers("frr")
def test_internal_peer_gets_our_address_as_next_hop(pair):
    router(pair, "internal", 65001, 'networks = ["192.0.2.0/24"]\nstatic = ["accept"]')
    peer = Frr(pair.b, f"""hostname bgpd
router bgp 65001
 bgp router-id {Pair.B4}
 neighbor {Pair.A4} remote-as 65001
 neighbor {Pair.A4} timers connect 1
""")
    network = Route("", "igp", Pair.A4)
    other = Route("", "incomplete", Pair.A4)
    holds(peer, {"192.0.2.0/24": network, "198.51.100.0/24": other, "203.0.113.0/24": other})
