"""The kernel's table in a namespace equals the Loc-RIB, also after changes, after a restart, and after the link went."""

import json

from harness import Pair, Ribtide, binary, source, wait_for

CONFIG = """
[router]
asn = 65001
router-id = "10.255.0.1"

[bgp]
listen = ["127.0.0.1:179"]

[bgp.group.feed]
type = "external"
peer-asn = 65010
passive = true
import = ["accept"]
neighbors = ["127.0.0.2"]
multihop = 2

[fib]
kernel = { table = 254 }

[[static]]
prefix = "198.51.100.0/24"
next-hop = ["10.255.0.2"]

[[static]]
prefix = "203.0.113.0/24"
blackhole = true
"""


def kernel_table(host, family="-4"):
    """Prefix → gateway of our routes in the kernel."""
    routes = {}
    for r in json.loads(host.ip("-j", "-d", family, "route", "show", "table", "254", "proto", "bgp")):
        dst = r["dst"] if "/" in r["dst"] or r["dst"] == "default" else r["dst"] + ("/32" if family == "-4" else "/128")
        dst = {"default": "0.0.0.0/0" if family == "-4" else "::/0"}.get(dst, dst)
        routes[dst] = "blackhole" if r.get("type") == "blackhole" else r.get("gateway", r.get("dev"))
    return routes


def asked(router):
    """Prefix → gateway of what the RIB manager selected, less what the kernel makes itself."""
    routes = {}
    for r in router.show("fib"):
        if r["protocol"] != "connected":
            states = {d["name"]: d["state"] for d in r["dataplanes"]}
            assert states == {"kernel": "installed"}, r
            routes[r["prefix"]] = r["hops"][0].split()[-3] if " dev " in r["hops"][0] and "via" in r["hops"][0] else r["hops"][0]
    return routes


def feed(host, *more):
    return host.start("feed", binary(), *source(), "--to", "127.0.0.1:179", "--from", "127.0.0.2", "--asn", "65010",
                      "--wait", "30", "--next-hop", "10.255.0.2", "--quiet", *more)


def agree(router, host, at_least=0):
    def equal():
        want = {p: g for p, g in asked(router).items() if ":" not in p}
        have = kernel_table(host)
        return len(want) >= at_least and want == have
    wait_for("the kernel's table equals the RIB's", equal, 120, 1.0, alive=[router.process])


def test_kernel_equals_the_loc_rib(pair):
    router = Ribtide(pair.a, CONFIG)
    agree(router, pair.a, 2)
    assert kernel_table(pair.a) == {"198.51.100.0/24": "10.255.0.2", "203.0.113.0/24": "blackhole"}
    process = feed(pair.a)
    agree(router, pair.a, 50_000)
    full = kernel_table(pair.a)
    # One next-hop object for all of them.
    assert len([n for n in json.loads(pair.a.ip("-j", "nexthop", "show")) if n.get("gateway") == "10.255.0.2"]) == 1

    # Somebody else's route is none of our business.
    pair.a.ip("route", "add", "192.0.2.0/24", "via", "10.255.0.2", "proto", "static")

    # The link goes: the kernel drops routes without a word, and gets them back with the link.
    pair.a.ip("link", "set", "eth0", "down")
    wait_for("routes are gone with their link", lambda: len(kernel_table(pair.a)) <= 1, 60)
    pair.a.ip("link", "set", "eth0", "up")
    agree(router, pair.a, len(full))

    # A crash leaves routes in place; the next start adopts them and removes what has become stale.
    process.stop()
    router.process.kill()
    router.start()
    agree(router, pair.a, 2)
    assert kernel_table(pair.a) == {"198.51.100.0/24": "10.255.0.2", "203.0.113.0/24": "blackhole"}
    # The link's own down and up took the other's route, as the kernel does; what matters is that it is not ours.
    assert all(n.get("protocol") in (None, "bgp") for n in json.loads(pair.a.ip("-j", "-d", "nexthop", "show")))


def test_session_loss_empties_the_kernel(pair):
    router = Ribtide(pair.a, CONFIG)
    process = feed(pair.a)
    agree(router, pair.a, 50_000)
    process.kill()
    agree(router, pair.a, 2)
    wait_for("only static routes are left", lambda: len(kernel_table(pair.a)) == 2, 60)
