"""A subnet of an interface is connected while the kernel has a route to it: not with an address that has `noprefixroute`,
nor after another program deleted the route."""

import json
import subprocess

import pytest
from harness import Ribtide, binary, wait_for
from harness.peers import FEEDS
from harness.speaker import Speaker, update
from test_kernel import kernel_table
from test_next_hops import INTERNAL, KERNEL, LOCAL_PREF, ROUTER, Observer

PREFIX = "20.0.0.0/24"
#: The own address, its subnet, and a next hop there.
OWN, SUBNET, NEAR = "10.7.0.1", "10.7.0.0/24", "10.7.0.2"
OWN6, SUBNET6 = "fd07::1", "fd07::/64"


class Bed:
    def __init__(self, host, *, noprefixroute=False, before=()):
        self.host = host
        host.lan("near0")
        host.ip("link", "set", "near0", "up")
        flags = ["noprefixroute"] if noprefixroute else []
        host.ip("addr", "add", f"{OWN}/24", "dev", "near0", *flags)
        host.ip("-6", "addr", "add", f"{OWN6}/64", "dev", "near0", "nodad", *flags)
        for command in before:
            host.ip(*command)
        self.router = Ribtide(host, ROUTER + INTERNAL.format(FEEDS[0]) + KERNEL.replace('fpm = ["127.0.0.1:2620"]\n', ""))
        self.observer = Observer(host)
        self.feed = Speaker(host, FEEDS[0], 65001)
        self.feed.send(update([PREFIX], [65300], NEAR, LOCAL_PREF))
        wait_for("the path is there", lambda: self.router.count() == 1, 20, alive=[self.router.process])

    def connected(self):
        """The connected subnets of `near0` by `show fib`."""
        return {route["prefix"] for route in self.router.show("fib", "--protocol", "connected")} & {SUBNET, SUBNET6}

    def expect(self, connected):
        """The subnets are connected or not, and the route by a next hop there is in use or not, everywhere."""
        subnets = {SUBNET, SUBNET6} if connected else set()
        wait_for(f"connected: {subnets}", lambda: self.connected() == subnets, 20, 0.2, alive=[self.router.process])
        wait_for("the kernel follows", lambda: (PREFIX in kernel_table(self.host, False)) == connected, 20, 0.2)
        wait_for("the observer follows", lambda: (PREFIX in self.observer.read(0.3).table) == connected, 20)
        explained = self.router.explain(PREFIX)
        assert (f"next hop {NEAR} does not resolve" in json.dumps(explained)) != connected, explained
        done = subprocess.run([binary(), "route-check", "--full", "--wait", "10", "--socket", self.router.socket], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


def test_address_with_noprefixroute_makes_no_connected_route_until_another_program_adds_one(host):
    bed = Bed(host, noprefixroute=True)
    bed.expect(connected=False)
    # As NetworkManager adds it, and as an administrator does.
    host.ip("route", "add", SUBNET, "dev", "near0", "proto", "kernel", "scope", "link", "src", OWN)
    host.ip("-6", "route", "add", SUBNET6, "dev", "near0")
    bed.expect(connected=True)
    host.ip("route", "del", SUBNET, "dev", "near0")
    host.ip("-6", "route", "del", SUBNET6, "dev", "near0")
    bed.expect(connected=False)


@pytest.mark.parametrize("when", ["before the start", "while it runs"])
def test_connected_route_that_another_program_deletes_resolves_nothing(host, when):
    away = [["route", "del", SUBNET, "dev", "near0"], ["-6", "route", "del", SUBNET6, "dev", "near0"]]
    bed = Bed(host, before=away if when == "before the start" else ())
    if when != "before the start":
        bed.expect(connected=True)
        for command in away:
            host.ip(*command)
    bed.expect(connected=False)
    host.ip("route", "add", SUBNET, "dev", "near0", "scope", "link")
    host.ip("-6", "route", "add", SUBNET6, "dev", "near0")
    bed.expect(connected=True)


def test_connected_route_that_another_program_replaces_resolves_on_the_link_of_the_other(host):
    """The subnet is connected on its own link no more; a next hop there is reached as the kernel reaches it."""
    bed = Bed(host)
    bed.expect(connected=True)
    host.lan("away0")
    host.ip("link", "set", "away0", "up")

    def link():
        return json.loads(host.ip("-j", "route", "get", "20.0.0.1"))[0]["dev"]

    assert link() == "near0"
    host.ip("route", "replace", SUBNET, "dev", "away0")
    # Of IPv6 a route is replaced by one of its metric.
    host.ip("-6", "route", "replace", SUBNET6, "dev", "away0", "metric", "256")
    wait_for("neither subnet is connected", lambda: not bed.connected(), 20, 0.2, alive=[bed.router.process])
    wait_for("the kernel follows", lambda: link() == "away0", 20, 0.2)
    assert "away0" in json.dumps(bed.router.show("fib", PREFIX))
    host.ip("route", "replace", SUBNET, "dev", "near0", "scope", "link")
    host.ip("-6", "route", "replace", SUBNET6, "dev", "near0", "metric", "256")
    bed.expect(connected=True)
    assert link() == "near0"


def test_link_that_comes_back_withdraws_no_connected_route(host):
    """The kernel makes its routes again after it told of the link: no subnet is without route in between."""
    bed = Bed(host)
    bed.expect(connected=True)
    for _ in range(3):
        host.ip("link", "set", "near0", "down")
        wait_for("the route is gone", lambda: PREFIX not in kernel_table(host, False), 20, 0.1)
        bed.observer.read(0.3)
        before = dict(bed.observer.withdrawn)
        host.ip("link", "set", "near0", "up")
        host.ip("-6", "addr", "add", f"{OWN6}/64", "dev", "near0", "nodad")
        bed.expect(connected=True)
        assert bed.observer.read().withdrawn == before


def test_address_of_several_that_is_promoted_keeps_its_connected_route(host):
    """The kernel deletes the subnet's route, and adds it again with the other address as source."""
    bed = Bed(host)
    host.run("sysctl", "-qw", "net.ipv4.conf.near0.promote_secondaries=1")
    host.ip("addr", "add", "10.7.0.9/24", "dev", "near0")
    bed.expect(connected=True)
    bed.observer.read()
    withdrawn = dict(bed.observer.withdrawn)
    host.ip("addr", "del", f"{OWN}/24", "dev", "near0")
    bed.observer.read()
    assert bed.observer.withdrawn == withdrawn
    bed.expect(connected=True)


def test_no_next_hop_resolves_on_a_loopback_interface(host):
    """All addresses of a subnet there are the host's; the subnet itself stays a connected route."""
    host.ip("addr", "add", "10.5.4.1/24", "dev", "lo")
    host.ip("-6", "addr", "add", "fd05:4::1/64", "dev", "lo", "nodad")
    bed = Bed(host)
    bed.expect(connected=True)
    bed.feed.send(update(["70.0.4.0/24"], [65300], "10.5.4.9", LOCAL_PREF))
    wait_for("the path is there", lambda: bed.router.count() == 2, 20, alive=[bed.router.process])
    bed.observer.read()
    assert "it is an address of this router" in json.dumps(bed.router.explain("70.0.4.0/24"))
    assert "70.0.4.0/24" not in bed.observer.table and "70.0.4.0/24" not in kernel_table(host, False)
    assert [route["protocol"] for route in bed.router.show("fib", "10.5.4.0/24")] == ["connected"]
    host.ip("addr", "del", "10.5.4.1/24", "dev", "lo")
    host.ip("addr", "add", "10.5.4.1/24", "dev", "near0")
    wait_for("it is advertised", lambda: "70.0.4.0/24" in bed.observer.read(0.3).table, 20)
