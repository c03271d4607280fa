"""Memory after many routes came and went: unused memory returns to the system."""

import os
import time

import pytest
from harness import Host, Ribtide, binary, wait_for
from harness.sonic import Sonic
from test_backpressure import BEFORE_THEM, COMBINATIONS, ROUTER, SENDER, memory

MANY = int(os.environ.get("MEMORY_ROUTES", 80_000))
#: Enough to fill every buffer of a fixed size before memory is read.
WARM_UP = min(20_000, MANY)
#: A table that stays, as a router has it.
TABLE = int(os.environ.get("MEMORY_TABLE", 120_000))
#: Beyond a tenth of a process that holds next to nothing: pages of which a little is in use, of each thread. 0.8 was the most while idle
#: (docs/perf/2026-11-memory.md).
SLACK = 3 << 19
#: For figures: so many seconds after each withdrawal, rather than until memory is back.
REST = float(os.environ.get("MEMORY_REST", 0))
STAYS = Host.FEEDS[1]


def announce(host, source, many):
    return host.feeds.start(f"blast-{source}", binary(), "blast", "--ipv4", many, "--seed", many, "--next-hops4", "193.203.0.16/28",
                            "--to", f"{Host.FEED_SIDE}:179", "--from", source, "--asn", 65010, "--wait", 30, "--quiet",
                            "--router-id", source)


def come_and_go(host, router, many, beside, routes):
    """Announces and withdraws so many routes of a session, `beside` others. `routes`: the routes
    in the chip."""
    feed = announce(host, SENDER, many)
    # Few of them are the others' too.
    there = lambda: router.count() > beside + many * 0.9 and routes() >= router.count()
    wait_for(f"{many} routes are there", there, 120, alive=[router.process])
    feed.stop()
    gone = lambda: router.count() == beside and routes() < beside + 100
    wait_for("they are gone", gone, 120, alive=[router.process])


def at_rest(processes):
    """The memory of each idle process, after write-behind queues and grown tables have shrunk:
    it has changed by 2% and 128 KiB at most for ten seconds."""
    seen = []

    def rests():
        time.sleep(1)
        seen.append({name: memory(process) for name, process in processes.items()})
        last = seen[-11:]
        return len(last) == 11 and all(max(many) <= min(many) * 1.02 + (128 << 10) for many in ([look[name] for look in last] for name in processes))

    wait_for("memory changes no more", rests, 120)
    return seen[-1]


def compare(host, router, processes, routes, table):
    """Memory after two bursts is within a tenth of that before: beside `table` routes that stay,
    or with none."""
    beside, slack = 0, SLACK
    if table:
        announce(host, STAYS, table)
        wait_for(f"{table} routes are there", lambda: router.count() == table and routes() >= table, 120, alive=[router.process])
        beside, slack = table, 0
    # Once, so that code and buffers that are always needed are there.
    come_and_go(host, router, WARM_UP, beside, routes)
    before = at_rest(processes)
    for _ in range(2):
        come_and_go(host, router, MANY, beside, routes)
        time.sleep(REST)
        back = lambda: all(memory(process) <= before[name] * 1.1 + slack for name, process in processes.items())
        try:
            wait_for("memory is given back", back, 60)
        finally:
            for name, process in processes.items():
                start, now = before[name] / 2**20, memory(process) / 2**20
                print(f"{name}: {start:.2f} to {now:.2f} MiB, {now - start * 1.1:+.2f} beyond a tenth")


def both(config):
    """A configuration with a second neighbour, whose table stays."""
    return config.replace(f'neighbors = ["{SENDER}"]', f'neighbors = ["{SENDER}", "{STAYS}"]')


@pytest.mark.long
@pytest.mark.parametrize("table", [0, TABLE], ids=["empty", "table"])
def test_in_one_process(host, table):
    """Through the virtual ASIC."""
    router = Ribtide(host, both(ROUTER.replace("10.0.255.254/16", "193.203.0.250/24")))
    routes = lambda: router.show("asic")["entries"]["ipv4-routes"]
    compare(host, router, {"ribtide": router.process}, routes, table)


@pytest.mark.long
@pytest.mark.parametrize("table", [0, TABLE], ids=["empty", "table"])
@pytest.mark.parametrize("combination", ["redis_async", "zmq"])
def test_the_daemons(host, combination, table):
    config, flags = COMBINATIONS[combination]
    sonic = Sonic(host, config=config, flags=flags)
    router = Ribtide(host, both(BEFORE_THEM.replace("Ethernet4", "Ethernet0").replace("10.2.0.1/24", "193.203.0.250/24")))
    routes = lambda: sonic.query("counts").get("ipv4_routes", 0)
    compare(host, router, {"ribtide": router.process, **sonic.processes}, routes, table)


@pytest.mark.long
def test_bgp_alone(host):
    """A route reflector: nothing is installed."""
    router = Ribtide(host, both(ROUTER.split("[fib]")[0]))
    compare(host, router, {"ribtide": router.process}, router.count, 0)
