"""Other programs change ribtide's routes and next-hop objects in the kernel: after a restart, in
great number, and without a notification. The kernel's table is whole again, and nothing is
advertised that the kernel does not forward."""

import contextlib
import ctypes
import json
import os
import re
import socket
import subprocess

import pytest
from harness import CommandFailed, Host, Ribtide, wait_for
from harness.config import HEAD, external
from harness.netlink import GROUPS, SOL_NETLINK
from harness.speaker import END_OF_RIB, Speaker, prefixes, raw_update, update
from test_suppression import Receiver

FIRST, RECEIVER = Host.FEEDS
SECOND = "198.19.0.4"
CONFIG = (HEAD + external("first", 65010, FIRST, 'import = ["accept"]')
          + external("second", 65030, SECOND, 'import = ["accept"]')
          + external("receiver", 65020, RECEIVER, 'export = ["accept"]')
          + "[fib]\nsuppress-fib-pending = true\nkernel = { table = 254 }\n"
          + '[[static]]\nprefix = "192.0.2.0/24"\nblackhole = true\n')
ALL = [f"20.0.{n}.0/24" for n in range(100)]


def routes(host):
    """Prefix → gateway of ribtide's IPv4 routes in the kernel, those of BGP."""
    objects = {n["id"]: n for n in json.loads(host.ip("-j", "nexthop", "show"))}

    def gateway(route):
        if "nhid" not in route:
            return route.get("gateway")
        group = objects.get(route["nhid"], {}).get("group", [{"id": 0}])
        return objects.get(group[0]["id"], {}).get("gateway")
    shown = json.loads(host.ip("-j", "-4", "route", "show", "table", "254", "proto", "bgp"))
    return {r["dst"]: gateway(r) for r in shown if r["dst"] != "192.0.2.0/24"}


def by(gateway, texts=ALL):
    return dict.fromkeys(texts, gateway)


def announce(sender, asn, next_hop, texts=ALL):
    for start in range(0, len(texts), 500):
        sender.send(update(texts[start:start + 500], [asn], next_hop))


def restarted(host):
    """A router that was killed with routes in the kernel, and started again, once the kernel dataplane
    has read the kernel's table. The replay has not ended, because a configured neighbour is away."""
    host.feeds.address("feed0", f"{SECOND}/24")
    router = Ribtide(host, CONFIG)
    announce(Speaker(host, FIRST, 65010), 65010, FIRST)
    wait_for("all are in the kernel", lambda: routes(host) == by(FIRST), 30, alive=[router.process])
    router.process.kill()
    router.start()
    wait_for("the static route is adopted", lambda: any(d["state"] == "installed" for r in router.show("fib", "192.0.2.0/24")
                                                        for d in r["dataplanes"]), 25, alive=[router.process])
    assert len(routes(host)) == len(ALL), "the replay has ended"
    return router


@pytest.mark.parametrize("broken", [
    ("route", "flush", "root", "16.0.0.0/4", "table", "254", "proto", "bgp"),
    ("nexthop", "flush"),
    ("route", "del", ALL[7], "proto", "bgp"),
    ("route", "replace", ALL[7], "via", RECEIVER, "proto", "bgp", "metric", "20"),
], ids=" ".join)
def test_found_routes_changed_before_their_announcement_are_written(host, broken):
    router = restarted(host)
    host.ip(*broken)
    # With its next-hop object, the static route goes too; by then the other changes are noticed.
    wait_for("the static route is there", lambda: host.ip("route", "show", "192.0.2.0/24"), 20, alive=[router.process])
    receiver = Receiver(host, lambda _: {p for p, gateway in routes(host).items() if gateway == FIRST})
    sender = Speaker(host, FIRST, 65010)
    announce(sender, 65010, FIRST)
    sender.send(END_OF_RIB)
    receiver.listen(lambda: set(ALL) <= receiver.table)
    assert routes(host) == by(FIRST)


def test_held_routes_are_neither_confirmed_nor_lost_while_a_neighbour_is_away(host):
    """After a crash another neighbour than before has the routes, and the former next hop is used
    by one route for a moment."""
    router = restarted(host)
    # By way of the former next hop, which has an object in the kernel.
    other = "20.1.0.0/24"
    receiver = Receiver(host, lambda _: {other} | {p for p, gateway in routes(host).items() if gateway == SECOND})
    sender = Speaker(host, SECOND, 65030)
    announce(sender, 65030, FIRST, [other])
    wait_for("the route is there", lambda: other in routes(host), 20, alive=[router.process])
    announce(sender, 65030, SECOND)
    sender.send(raw_update(withdrawn=prefixes([other])))
    receiver.listen(lambda: set(ALL) <= receiver.table)
    wait_for("the withdrawn route is gone", lambda: other not in routes(host), 20, alive=[router.process])
    assert routes(host) == by(SECOND)
    # Until the neighbour that is away counts as lost, and after that.
    wait_for("the kernel was compared after the replay", lambda: metrics(router)["compare_rounds_total"] > 0, 60, 0.5)
    assert routes(host) == by(SECOND)


def metrics(router):
    """The kernel's metrics of ribtide: name without `ribtide_kernel_`, and label → value."""
    text = router.call("GET", "/metrics")
    found = re.findall(r'^ribtide_kernel_(\w+)(?:\{difference="([\w-]+)"\})? ([\d.e+-]+)$', text, re.MULTILINE)
    return {label or name: float(value) for name, label, value in found}


def whole_table(host, count):
    host.feeds.address("feed0", f"{SECOND}/24")
    router = Ribtide(host, CONFIG)
    texts = [f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24" for n in range(count)]
    sender = Speaker(host, FIRST, 65010)
    announce(sender, 65010, FIRST, texts)
    wait_for("all are in the kernel", lambda: routes(host) == by(FIRST, texts), 60, 0.5, alive=[router.process])
    return router, texts


def test_many_flushed_routes_are_repaired_in_batches(host):
    router, texts = whole_table(host, 20_000)
    with contextlib.suppress(CommandFailed):
        # One round: ip reads the table again after it, and fails where the routes are back by then.
        host.ip("-loops", "1", "route", "flush", "root", "16.0.0.0/4", "table", "254", "proto", "bgp")
    # One by one, with a pause after each, it took four minutes.
    wait_for("all are back", lambda: len(routes(host)) == len(texts), 20, 0.5, alive=[router.process])
    wait_for("the repair is logged", lambda: router.process.logged("repaired", "missing="), 20)
    assert metrics(router)["missing"] >= len(texts)


def deaf(router):
    """ribtide gets no notification about routes and next hops any more: its subscriptions are
    cancelled through a copy of its socket's descriptor."""
    pid = router.process.popen.pid
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    done = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
        except FileNotFoundError:
            # Closed since the list was read.
            continue
        number = libc.syscall(438, pidfd, int(name), 0)  # pidfd_getfd
        assert number >= 0, os.strerror(ctypes.get_errno())
        with socket.socket(fileno=number) as copy:
            if copy.family == socket.AF_NETLINK:
                for group in GROUPS.values():
                    copy.setsockopt(SOL_NETLINK, 2, group)  # NETLINK_DROP_MEMBERSHIP
                done += 1
    os.close(pidfd)
    assert done, "it has no netlink socket"


def test_changes_without_a_notification_are_repaired(host):
    router, texts = whole_table(host, 1000)
    before = metrics(router)
    deaf(router)
    host.ip("route", "del", texts[1], "proto", "bgp")
    host.ip("route", "replace", texts[2], "via", RECEIVER, "proto", "bgp", "metric", "20")
    host.ip("route", "replace", texts[3], "via", RECEIVER, "proto", "static", "metric", "20")
    host.ip("route", "add", "20.77.0.0/24", "via", RECEIVER, "proto", "bgp", "metric", "20")
    host.ip("nexthop", "add", "id", "77", "via", RECEIVER, "dev", "feed0", "proto", "bgp")
    wait_for("the table is whole", lambda: routes(host) == by(FIRST, texts), 60, 0.5, alive=[router.process])
    after = metrics(router)
    repaired = {kind: after[kind] - before[kind] for kind in ("missing", "other-next-hops", "unexpected", "next-hop-object")}
    assert repaired == {"missing": 1, "other-next-hops": 2, "unexpected": 1, "next-hop-object": 1}
    # A wrong gateway in a next-hop object changes all of its routes.
    [single] = [n for n in json.loads(host.ip("-j", "nexthop", "show")) if n.get("gateway") == FIRST]
    host.ip("nexthop", "replace", "id", single["id"], "via", RECEIVER, "dev", "feed0", "proto", "bgp")
    assert routes(host) == by(RECEIVER, texts)
    wait_for("the object is as it was", lambda: routes(host) == by(FIRST, texts), 60, 0.5, alive=[router.process])
    assert metrics(router)["next-hop-object"] == after["next-hop-object"] + 1
    assert router.process.logged("repaired", "other_next_hops=")


def selected(router, prefix):
    """The protocol and the next hops of the route that `show fib` names."""
    [route] = [route for route in router.show("fib", prefix) if route["prefix"] == prefix]
    return route["protocol"], {word for hop in route["hops"] for word in hop.split() if re.fullmatch(r"[0-9a-f]*[.:][0-9a-f.:]*", word)}


def forwards(host, address):
    """The gateway by which the kernel sends packets to an address; None without a route."""
    try:
        return json.loads(host.ip("-j", "route", "get", address))[0].get("gateway")
    except CommandFailed:
        return None


def agree(host, router, prefix, protocol, gateway):
    """Waits until the router names this route, and the kernel forwards by it."""
    address = prefix.split("/")[0]
    wait_for(f"{prefix} is {protocol}'s by {gateway}, and the kernel forwards so",
             lambda: forwards(host, address) == gateway and selected(router, prefix) == (protocol, {gateway}),
             30, 0.2, alive=[router.process])


def small_table(host):
    host.feeds.address("feed0", f"{SECOND}/24")
    router = Ribtide(host, CONFIG)
    sender = Speaker(host, FIRST, 65010)
    announce(sender, 65010, FIRST, ALL[:3])
    wait_for("all are in the kernel", lambda: routes(host) == by(FIRST, ALL[:3]), 30, alive=[router.process])
    return router, sender


def test_a_route_that_another_program_put_in_the_place_of_ours_is_replaced_and_not_imported(host):
    """The kernel has one route of a prefix and metric, and names none that ribtide replaces."""
    router, sender = small_table(host)
    for _ in range(20):
        host.ip("route", "replace", ALL[0], "via", RECEIVER, "metric", "20", "proto", "static")
    agree(host, router, ALL[0], "ebgp", FIRST)
    # Nothing of BGP's: then it counts, and goes on counting.
    host.ip("route", "add", "20.9.0.0/24", "via", RECEIVER, "metric", "20", "proto", "static")
    agree(host, router, "20.9.0.0/24", "kernel", RECEIVER)
    announce(sender, 65010, FIRST, ["20.9.0.0/24"])
    agree(host, router, "20.9.0.0/24", "kernel", RECEIVER)
    # With ribtide's number it is no other program's any more.
    host.ip("route", "replace", "20.9.0.0/24", "via", SECOND, "metric", "20", "proto", "bgp")
    agree(host, router, "20.9.0.0/24", "ebgp", FIRST)


def test_the_next_hop_objects_of_another_program_are_left_alone(host):
    """It takes ids that ribtide used before, or will use next."""
    router, sender = small_table(host)
    ours = [n["id"] for n in json.loads(host.ip("-j", "nexthop", "show")) if n.get("protocol") == "bgp"]
    announce(sender, 65010, SECOND, ["20.9.0.0/24"])
    agree(host, router, "20.9.0.0/24", "ebgp", SECOND)
    sender.send(raw_update(withdrawn=prefixes(["20.9.0.0/24"])))

    def present():
        return {n["id"] for n in json.loads(host.ip("-j", "nexthop", "show"))}
    wait_for("the objects of the withdrawn route are gone", lambda: present() == set(ours), 30, 0.2, alive=[router.process])
    theirs = [n for n in range(min(ours), max(ours) + 8) if n not in ours]
    for number in theirs:
        host.ip("nexthop", "add", "id", str(number), "via", RECEIVER, "dev", "feed0", "proto", "zebra")
    announce(sender, 65010, SECOND, ["20.9.0.0/24"])
    agree(host, router, "20.9.0.0/24", "ebgp", SECOND)
    left = {n["id"]: (n["protocol"], n["gateway"]) for n in json.loads(host.ip("-j", "nexthop", "show")) if n["id"] in theirs}
    assert left == dict.fromkeys(theirs, ("zebra", RECEIVER))
    # One that ribtide uses is taken over: its routes move to another, and the object stays.
    used = next(n["id"] for n in json.loads(host.ip("-j", "nexthop", "show")) if n.get("gateway") == FIRST)
    host.ip("nexthop", "replace", "id", str(used), "via", RECEIVER, "dev", "feed0", "proto", "zebra")
    agree(host, router, ALL[0], "ebgp", FIRST)
    [taken] = [n for n in json.loads(host.ip("-j", "nexthop", "show")) if n["id"] == used]
    assert (taken["protocol"], taken["gateway"]) == ("zebra", RECEIVER)


def test_routes_for_some_packets_only_do_not_count_as_the_route_of_a_prefix(host):
    router, _ = small_table(host)
    host.ip("route", "add", ALL[0], "tos", "0x10", "via", RECEIVER, "proto", "static")
    host.ip("route", "add", "throw", ALL[1], "metric", "1")
    wait_for("the route that ends the look-up counts", lambda: selected(router, ALL[1])[0] == "kernel", 30, 0.2)
    assert forwards(host, ALL[1].split("/")[0]) is None
    agree(host, router, ALL[0], "ebgp", FIRST)
    host.ip("route", "del", "throw", ALL[1], "metric", "1")
    agree(host, router, ALL[1], "ebgp", FIRST)


def test_of_several_routes_of_a_prefix_and_metric_the_first_counts(host):
    router, _ = small_table(host)
    host.ip("route", "add", ALL[0], "via", RECEIVER, "proto", "static")
    host.ip("route", "append", ALL[0], "via", FIRST, "proto", "static")
    host.ip("route", "append", ALL[0], "via", SECOND, "proto", "dhcp")
    agree(host, router, ALL[0], "kernel", RECEIVER)
    host.ip("route", "del", ALL[0], "via", RECEIVER)
    agree(host, router, ALL[0], "kernel", FIRST)
    host.ip("route", "del", ALL[0], "via", FIRST, "proto", "static")
    agree(host, router, ALL[0], "kernel", SECOND)
    host.ip("route", "del", ALL[0], "via", SECOND, "proto", "dhcp")
    agree(host, router, ALL[0], "ebgp", FIRST)


def test_an_ipv6_route_that_loses_one_of_its_next_hops_stays(host):
    router, _ = small_table(host)
    host.ip("-6", "addr", "add", "fd00::1/64", "dev", "feed0", "nodad")
    prefix = "2001:db8:77::/48"
    host.ip("-6", "route", "add", prefix, "metric", "3", "proto", "static", "nexthop", "via", "fd00::2", "dev", "feed0",
            "nexthop", "via", "fd00::3", "dev", "feed0")
    wait_for("both count", lambda: selected(router, prefix) == ("kernel", {"fd00::2", "fd00::3"}), 30, 0.2)
    host.ip("-6", "route", "del", prefix, "via", "fd00::2", "dev", "feed0", "metric", "3")
    wait_for("the other counts", lambda: selected(router, prefix) == ("kernel", {"fd00::3"}), 30, 0.2)
    host.ip("-6", "route", "del", prefix)
    wait_for("the route is gone", lambda: prefix not in router.text("show", "fib"), 30, 0.2)


def test_imported_routes_that_go_without_a_notification_are_noticed(host):
    router, _ = small_table(host)
    host.ip("nexthop", "add", "id", "7", "via", RECEIVER, "dev", "feed0")
    host.ip("route", "add", ALL[0], "nhid", "7", "proto", "static")
    agree(host, router, ALL[0], "kernel", RECEIVER)
    deaf(router)
    host.ip("route", "del", ALL[0], "proto", "static")
    agree(host, router, ALL[0], "ebgp", FIRST)
    assert metrics(router)["imported"] == 1



def test_a_restart_with_another_protocol_number_leaves_no_route_of_the_run_before(host):
    """They are no routes of another program, by which it would forward for ever."""
    text = CONFIG.replace("suppress-fib-pending = true\n", "").replace("table = 254 }", "table = 254, protocol = 77, import = true }")
    router = Ribtide(host, text)
    first = Speaker(host, FIRST, 65010)
    announce(first, 65010, FIRST, ALL[:10])

    def there(protocol):
        return {r["dst"] for r in json.loads(host.ip("-j", "-4", "route", "show", "table", "254", "proto", protocol))} & set(ALL)

    wait_for("the routes", lambda: len(there("77")) == 10, alive=[router.process])
    router.stop()
    first.close()
    assert len(there("77")) == 10, "a stop keeps them"
    router.config.write_text(router.config.read_text().replace("protocol = 77", "protocol = 78"))
    router.start()
    wait_for("they are gone", lambda: not there("77"), 20, alive=[router.process])
    first = Speaker(host, FIRST, 65010)
    announce(first, 65010, FIRST, ALL[5:10])
    first.send(END_OF_RIB)
    wait_for("those that came again", lambda: there("78") == set(ALL[5:10]), alive=[router.process])
    router.assert_agrees()
