"""The kernel's table in a namespace equals the Loc-RIB, for both families, also after changes, after the link went and
came, and after a crash."""

import json

from harness import Host, Pair, Ribtide, blast, full_table, wait_for
from harness.peers import FEEDS, LEFT, wait_count
from harness.table import FEED_ASN

CONFIG = f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]

[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{'", "'.join(FEEDS)}"]

[fib]
kernel = {{ table = 254 }}

[[static]]
prefix = "198.51.100.0/24"
next-hop = ["{Pair.B4}"]

[[static]]
prefix = "198.18.0.0/24"
next-hop = ["{Pair.B4}", "10.255.0.3"]

[[static]]
prefix = "203.0.113.0/24"
blackhole = true

[[static]]
prefix = "2001:db8:77::/48"
next-hop = ["{Pair.B6}"]
"""

#: Prefix → where the kernel sends it, of the static routes.
STATIC = {"198.51.100.0/24": (Pair.B4,), "198.18.0.0/24": (Pair.B4, "10.255.0.3"), "203.0.113.0/24": ("blackhole",),
          "2001:db8:77::/48": (Pair.B6,)}
#: The kernel's own, and so not ours to install, though a neighbour announces it.
CONNECTED = "193.203.0.0/24"


def kernel_table(host):
    """Prefix → where to, of our routes in the kernel."""
    routes = {}
    for family, bits, default in (("-4", "/32", "0.0.0.0/0"), ("-6", "/128", "::/0")):
        for r in json.loads(host.ip("-j", "-d", family, "route", "show", "table", "254", "proto", "bgp")):
            prefix = default if r["dst"] == "default" else r["dst"] if "/" in r["dst"] else r["dst"] + bits
            assert prefix not in routes, f"{prefix} is in the kernel twice"
            hops = (r["gateway"],) if "gateway" in r else tuple(sorted(n["gateway"] for n in r.get("nexthops", [])))
            # IPv6 blackholes are on lo, IPv4 ones nowhere.
            routes[prefix] = ("blackhole",) if r.get("type") == "blackhole" else hops
    return routes


def wanted(router):
    """What the kernel should hold: every best path by its next hop, which is a neighbour on a link here, and statics."""
    routes = {p: (r.next_hop,) for p, r in router.table().items() if p != CONNECTED}
    return {**routes, **STATIC}


def in_the_kernel(router, host, prefixes):
    """Waits until the kernel has that many routes of ours, and compares each."""
    wait_for(f"the kernel has {prefixes} routes", lambda: len(kernel_table(host)) == prefixes, 120, 1, alive=[router.process])
    want, have = wanted(router), kernel_table(host)
    assert sorted(want.keys() ^ have.keys())[:5] == []
    assert [(p, want[p], have[p]) for p in want if want[p] != have[p]][:5] == []


def gateways(host):
    """Next-hop objects of ours as gateway lists: one for each object, groups not among them."""
    return sorted(n["gateway"] for n in json.loads(host.ip("-j", "-d", "nexthop", "show")) if "gateway" in n)


def test_kernel_equals_the_loc_rib(pair):
    a = pair.a
    # Another's route, and another's next-hop object, are none of our business, at no time.
    a.ip("route", "add", "192.0.2.0/24", "via", Pair.B4, "proto", "static")
    a.ip("nexthop", "add", "id", "7", "via", Pair.B4, "dev", "eth0", "proto", "static")
    others = foreign(a)

    router = Ribtide(a, CONFIG)
    in_the_kernel(router, a, len(STATIC))
    feeds = [full_table(a), blast(a)]
    wait_for("the feeds are done", lambda: all(router.session(f) for f in FEEDS), 30, alive=feeds)
    settled(router)
    mine = router.table()
    full = len(mine) - (CONNECTED in mine) + len(STATIC)
    assert full > 100_000
    in_the_kernel(router, a, full)
    states = {(d["name"], d["state"]) for r in router.show("fib") if r["protocol"] != "connected" for d in r["dataplanes"]}
    assert states == {("kernel", "installed")}
    # Routes with one next hop share one object, and the objects of the static group are among them.
    hops = sorted({h for hops in wanted(router).values() for h in hops if h != "blackhole"})
    assert [g for g in gateways(a) if g != Pair.B4] == [h for h in hops if h != Pair.B4]

    # The link of all next hops goes: the kernel drops routes without a word. They come back with the link.
    a.ip("link", "set", "lan0", "down")
    wait_for("routes are gone with their link", lambda: len(kernel_table(a)) == len(STATIC), 60, 0.5, alive=[router.process])
    a.ip("link", "set", "lan0", "up")
    a.address("lan0", "fd00:193::ff/64")
    in_the_kernel(router, a, full)

    # A crash leaves routes in place. The next start adopts those that are right without touching them, repairs what
    # somebody broke meanwhile, and removes what nobody announces any more.
    router.process.kill()
    ours = [p for p in kernel_table(a) if ":" not in p and p not in STATIC]
    for prefix in ours[:3]:
        a.ip("route", "del", prefix, "proto", "bgp")
    a.ip("route", "replace", ours[3], "via", Pair.B4, "proto", "bgp", "metric", metric(a, ours[3]))
    a.ip("route", "add", "240.1.0.0/16", "via", Pair.B4, "proto", "bgp", "metric", "20")
    monitor = a.start("monitor", "ip", "-4", "monitor", "route")
    router.start()
    full_table(a)
    blast(a, ipv6=1000)
    wait_count(router, len(mine) - 19_000)
    in_the_kernel(router, a, full - 19_000)
    monitor.stop()
    touched = [line for line in monitor.path.read_text().splitlines() if "proto bgp" in line]
    deleted = [line.split()[1] for line in touched if line.startswith("Deleted")]
    assert len(touched) < 50, (len(touched), touched[:5])
    assert "240.1.0.0/16" in deleted and set(deleted) <= {"240.1.0.0/16", ours[3]}

    # A crash and a start without neighbours: what is left is what the configuration says.
    router.process.kill()
    router.config.write_text(router.config.read_text().replace(f'neighbors = ["{FEEDS[0]}", "{FEEDS[1]}"]', ""))
    router.start()
    wait_for("stale routes are gone", lambda: kernel_table(a) == STATIC, 60, 1, alive=[router.process])
    assert foreign(a) == others


def foreign(host):
    """Routes and next-hop objects of others."""
    objects = [n for n in json.loads(host.ip("-j", "-d", "nexthop", "show")) if n.get("protocol") == "static"]
    return host.ip("route", "show", "proto", "static"), objects


def metric(host, prefix):
    return json.loads(host.ip("-j", "route", "show", prefix, "proto", "bgp"))[0]["metric"]


def settled(router):
    """Both feeds have sent all they have."""
    last = [-1]

    def still():
        last[:], before = [router.count()], last[0]
        return last[0] == before > 100_000
    wait_for("the table has settled", still, 120, 2)


def test_session_loss_empties_the_kernel(pair):
    router = Ribtide(pair.a, CONFIG)
    feed = blast(pair.a)
    wait_count(router, 20_000)
    in_the_kernel(router, pair.a, 20_000 + len(STATIC))
    feed.kill()
    wait_count(router, 0)
    in_the_kernel(router, pair.a, len(STATIC))
    # A stop that was asked for leaves routes where they are, for the next start to adopt.
    assert router.stop() == 0
    assert kernel_table(pair.a) == STATIC
