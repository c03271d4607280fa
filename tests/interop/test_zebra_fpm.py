"""FRR's unpatched zebra with its module dplane_fpm_nl drives ribtide's fpmsyncd: bgpd gets a
recorded table, and ASIC_DB has the routes that zebra selects, with and without next-hop group
objects."""

import ipaddress
import json
import os

import pytest
from harness import FEED_ASN, Frr, blast, full_table, need, recorded, wait_for
from harness.peers import FEEDS
from harness.sonic import CONNECTED, PORTS, Sonic

#: As SONiC's supervisor starts it, but for the module, of which SONiC has its own.
ZEBRA_ARGS = ["-A", "127.0.0.1", "-s", "90000000", "-M", "dplane_fpm_nl", "--asic-offload=notify_on_offload"]

ZEBRA = """hostname zebra
fpm address 127.0.0.1
%s
zebra nexthop-group keep 1
"""

#: What of the recorded table bgpd takes, a sixth. Four times as much does not fit into the sockets and buffers between zebra and an
#: fpmsyncd that has no time to read; three threads of zebra 8.4 ask over and over then whether there is room, and take the time that
#: it needs. RIBTIDE_LONG=1 takes it all.
PART = ipaddress.ip_network("0.0.0.0/0" if os.environ.get("RIBTIDE_LONG") else "0.0.0.0/1")

BGPD = f"""hostname bgpd
ip prefix-list part permit {PART} le 32
router bgp 65001
 bgp router-id 10.2.0.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
""" + "".join(f" neighbor {f} remote-as {FEED_ASN}\n neighbor {f} passive\n" for f in FEEDS) \
    + "".join(f" address-family {afi} unicast\n" + "".join(f"  neighbor {f} activate\n" for f in FEEDS) + " exit-address-family\n"
              for afi in ("ipv4", "ipv6")) \
    + f" address-family ipv4 unicast\n  neighbor {FEEDS[0]} prefix-list part in\n exit-address-family\n"

STATIC = """hostname staticd
ip route 198.51.100.0/24 10.2.0.17
ip route 198.18.0.0/24 10.2.0.17
ip route 198.18.0.0/24 10.2.0.18
ip route 203.0.113.0/24 blackhole
ipv6 route 2001:db8:77::/48 fc00:2::11
"""
STATIC_ROUTES = {"198.51.100.0/24": ("10.2.0.17",), "198.18.0.0/24": ("10.2.0.17", "10.2.0.18"), "203.0.113.0/24": ("drop",),
                 "2001:db8:77::/48": ("fc00:2::11",)}


def zebra_table(frr):
    """Prefix → next hops of what zebra has selected, from BGP."""
    routes = {}
    for afi in ("ip", "ipv6"):
        for prefix, entries in json.loads(frr.query(f"show {afi} route bgp json", "zebra")).items():
            for entry in entries:
                if entry.get("selected"):
                    hops = [n for n in entry["nexthops"] if n.get("fib") and "ip" in n]
                    routes[prefix] = tuple(sorted(n["ip"] for n in hops))
    return routes


@pytest.mark.feature("FPM from FRR's zebra to SONiC's fpmsyncd")
@pytest.mark.peers("frr")
@pytest.mark.parametrize("groups", ["no fpm use-next-hop-groups", "fpm use-next-hop-groups"])
def test_zebra_drives_fpmsyncd(host, groups):
    need("/usr/lib/frr/zebra")
    sonic = Sonic(host)
    own = sonic_own(sonic)
    frr = Frr(host, zebra=ZEBRA % groups, zebra_args=ZEBRA_ARGS, bgpd=BGPD, staticd=STATIC)
    alive = [*sonic.alive(), *frr.processes.values()]
    base = own | CONNECTED | STATIC_ROUTES

    def holds(routes, what):
        wait_for(what, lambda: sonic.chip_routes() == len(base | routes), 120, 0.5, alive=alive)
        chip = sonic.chip()
        have, want = chip.routes(), base | routes
        assert [(p, want.get(p), have.get(p)) for p in have.keys() | want.keys() if have.get(p) != want.get(p)][:5] == []
        wait_for("no group is left over", lambda: not sonic.chip().unused(), 20, alive=alive)
        wait_for("no row waits", lambda: sonic.in_flight() == 0, 20, alive=alive)

    holds({}, "static and connected routes are in ASIC_DB")
    if groups.startswith("no") and recorded() is not None:
        # A network that is connected is not BGP's to route.
        full = {p: (r.next_hop,) for p, r in recorded().items() if p not in CONNECTED and ipaddress.ip_network(p).subnet_of(PART)}
        feed, count = full_table(host), len(full)
        assert count > 15_000
    else:
        feed, full, count = blast(host, 10_000, 2_000), None, 12_000
    wait_for("zebra has the table", lambda: selected(frr) == count, 120, 0.5, alive=alive)
    holds(zebra_table(frr) if full is None else full, "the table is in ASIC_DB")
    rows = sonic.routes()
    assert not [k for k in rows if k.startswith("Vrf")]
    shapes = {frozenset(row) for row in rows.values() if row.get("protocol") == "bgp"}
    # zebra names an object for each next hop, and fpmsyncd writes what it stands for: only groups have rows of their own.
    assert all(shape - {"weight"} == {"protocol", "nexthop", "ifname"} for shape in shapes), shapes
    groups_used = {row["nexthop_group"] for row in rows.values() if "nexthop_group" in row}
    assert bool(groups_used) == groups.startswith("fpm"), groups_used
    assert {key.split(":")[1] for key in sonic.appl.keys("NEXTHOP_GROUP_TABLE:*")} >= groups_used

    frr.configure("no ip route 198.51.100.0/24 10.2.0.17")
    base.pop("198.51.100.0/24")
    feed.stop()
    holds({}, "what is withdrawn is gone from ASIC_DB")

    # zebra ends; meanwhile the world changes. It comes back and knows nothing of what it said before.
    six = blast(host, ipv6=2000)
    wait_for("another table is here", lambda: sonic.chip_routes() == len(base) + 2000, 60, alive=alive)
    frr.processes["zebra"].kill()
    six.stop()
    frr.start("zebra")
    alive = [*sonic.alive(), *frr.processes.values()]
    wait_for("staticd is back", lambda: "198.18.0.0/24" in frr.query("show ip route static", "zebra"), 60, alive=alive)
    holds({}, "nothing stale is in ASIC_DB")


def selected(frr):
    """How many routes of bgpd zebra has selected."""
    summaries = [json.loads(frr.query(f"show {afi} route summary json", "zebra")) for afi in ("ip", "ipv6")]
    return sum(r.get("fib", 0) for s in summaries for r in s["routes"] if r["type"] == "ebgp")


def sonic_own(sonic):
    """What the switch holds of its own."""
    sonic.wait_chip(4 + sum(len(p.addresses) for p in PORTS), 60)
    return sonic.chip().routes()
