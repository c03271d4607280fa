"""The whole path in one process: the virtual ASIC always forwards by the Loc-RIB, and holds no
route of a sender that is gone."""

import ipaddress
import json

from harness import Host, Ribtide, binary, wait_for

CONFIG = f"""
[router]
asn = 65001
router-id = "10.0.255.254"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]
shards = 3

[bgp.group.feeds]
type = "external"
import = ["accept"]
dynamic-neighbors = ["198.19.0.0/24"]

[fib]
virtual-asic = {{ lab = true }}

[[interface]]
name = "Ethernet0"
addresses = ["10.0.255.254/16", "2001:db8::ffff:ffff:ffff:ffff/64"]
"""

SENDERS = 3


def blast(host, *more):
    held = host.feeds.ip("-4", "addr", "show", "dev", "feed0")
    for address in (f"198.19.0.{16 + n}/24" for n in range(SENDERS)):
        if address not in held:
            host.feeds.address("feed0", address)
    return host.feeds.start("blast", binary(), "blast", "--to", f"{Host.FEED_SIDE}:179", "--from", "198.19.0.16",
                            "--senders", SENDERS, "--asn-per-sender", "--ipv4", 20_000, "--ipv6", 5_000, "--quiet",
                            *more)


def best(router):
    """Prefix → next hop of each best path."""
    routes = {}
    for entry in router.show("route"):
        chosen = [p["next_hop"] for p in entry["paths"] if p["best"]]
        assert len(chosen) == 1, entry
        routes[entry["prefix"]] = chosen[0]
    return routes


def agree(router):
    """Checks that Loc-RIB, RIB manager and chip agree; returns the number of routes."""
    routes = best(router)
    fib = {r["prefix"]: r for r in router.show("fib") if r["protocol"] != "connected"}
    assert fib.keys() == routes.keys()
    for prefix, next_hop in routes.items():
        assert fib[prefix]["hops"] == [f"via {next_hop} dev Ethernet0"], fib[prefix]
        assert [d["state"] for d in fib[prefix]["dataplanes"]] == ["installed"], fib[prefix]
    # An address of each prefix, in the chip: the longest match of the Loc-RIB decides where it goes.
    networks = {number(ipaddress.ip_network(prefix)): prefix for prefix in routes}
    addresses = [str(ipaddress.ip_network(prefix)[-1]) for prefix in routes]
    answers = []
    for start in range(0, len(addresses), 500):
        answers += json.loads(router.text("show", "asic", *addresses[start:start + 500], "--json"))["lookups"]
    for address, answer in zip(addresses, answers):
        expected = longest_match(networks, ipaddress.ip_address(address))
        assert (answer["prefix"], answer["action"], answer["next_hops"]) == (expected, "forward", [routes[expected]])
    return len(routes)


def number(network):
    """A network as numbers, which are compared in a tenth of the time: its family, how many bits are any, and the others."""
    rest = network.max_prefixlen - network.prefixlen
    return network.version, rest, int(network.network_address) >> rest


def longest_match(networks, address):
    bits = int(address)
    for rest in range(address.max_prefixlen + 1):
        if prefix := networks.get((address.version, rest, bits >> rest)):
            return prefix
    raise AssertionError(f"no prefix holds {address}")


def settled(router):
    """Waits until every queue is empty and every stage has stopped counting."""
    last = []

    def still():
        pipeline = router.show("pipeline")
        now = [s["routes"] for s in pipeline["stages"]] + [r["depth"] for r in pipeline["rings"]]
        same = last == [now] and not any(r["depth"] for r in pipeline["rings"])
        last[:] = [now]
        return same
    wait_for("the pipeline is idle", still, 60, 0.5, alive=[router.process])


def test_the_chip_follows_every_change(host):
    router = Ribtide(host, CONFIG)
    feed = blast(host, "--churn", 30, "--churn-rounds", 4)
    wait_for("every prefix is there", lambda: router.count() == 25_000, 60, alive=[router.process, feed])
    settled(router)
    assert agree(router) == 25_000

    prefix = next(iter(best(router)))
    assert [s["state"] for s in router.explain(prefix)["stages"]] == ["passed"] * 6

    feed.kill()
    wait_for("their routes are gone", lambda: router.count() == 0, 60, alive=[router.process])
    settled(router)
    assert agree(router) == 0
    pieces = router.explain(prefix)["stages"]
    assert {s["state"] for s in pieces} <= {"absent"}, pieces


def test_a_sender_that_dies_in_the_middle_leaves_nothing(host):
    router = Ribtide(host, CONFIG)
    for _ in range(3):
        feed = blast(host, "--churn", 50, "--churn-rounds", 50)
        wait_for("routes come in", lambda: router.count() > 1_000, 60, alive=[router.process])
        feed.kill()
        wait_for("their routes are gone", lambda: router.count() == 0, 60, alive=[router.process])
        settled(router)
        assert agree(router) == 0
