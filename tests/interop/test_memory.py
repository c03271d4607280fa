"""Memory after many routes came and went: what is not in use is given back to the system."""

import os
import time

import pytest
from harness import Host, Ribtide, binary, wait_for
from harness.sonic import Sonic
from test_backpressure import BEFORE_THEM, ROUTER, SENDER, WIRINGS, memory

MANY = int(os.environ.get("MEMORY_ROUTES", 200_000))
#: Beyond a tenth of a process that holds next to nothing: pages of which a little is in use, of each thread.
SLACK = 6 << 20


def come_and_go(host, router, many, there, gone):
    """So many routes of a session, and their withdrawal."""
    feed = host.feeds.start("blast", binary(), "blast", "--ipv4", many, "--seed", many, "--next-hops4", "193.203.0.16/28",
                            "--to", f"{Host.FEED_SIDE}:179", "--from", SENDER, "--asn", 65010, "--wait", 30, "--quiet",
                            "--router-id", SENDER)
    wait_for(f"{many} routes are there", lambda: router.count() == many and there(many), 120, alive=[router.process])
    feed.stop()
    wait_for("they are gone", lambda: router.count() == 0 and gone(), 120, alive=[router.process])


def compare(host, router, processes, there, gone):
    # Once, so that code and buffers that are always needed are there.
    come_and_go(host, router, 1000, there, gone)
    time.sleep(5)
    before = {name: memory(process) for name, process in processes.items()}
    for _ in range(2):
        come_and_go(host, router, MANY, there, gone)
        back = lambda: all(memory(process) <= before[name] * 1.1 + SLACK for name, process in processes.items())
        try:
            wait_for("memory is given back", back, 60)
        finally:
            print({name: f"{before[name] >> 20} to {memory(process) >> 20} MiB" for name, process in processes.items()})


def test_in_one_process(host):
    """Through the virtual ASIC."""
    config = ROUTER.replace("10.0.255.254/16", "193.203.0.250/24")
    router = Ribtide(host, config)
    routes = lambda: router.show("asic")["entries"]["ipv4-routes"]
    compare(host, router, {"ribtide": router.process}, lambda many: routes() >= many, lambda: routes() < 100)


@pytest.mark.parametrize("wiring", ["redis_async", "zmq"])
def test_the_daemons(host, wiring):
    config, flags = WIRINGS[wiring]
    sonic = Sonic(host, config=config, flags=flags)
    router = Ribtide(host, BEFORE_THEM.replace("Ethernet4", "Ethernet0").replace("10.2.0.1/24", "193.203.0.250/24"))
    routes = lambda: sonic.ask("counts").get("ipv4_routes", 0)
    compare(host, router, {"ribtide": router.process, **sonic.processes}, lambda many: routes() >= many, lambda: routes() < 100)


def test_bgp_alone(host):
    """A route reflector: nothing is installed."""
    router = Ribtide(host, ROUTER.split("[fib]")[0])
    compare(host, router, {"ribtide": router.process}, lambda many: True, lambda: True)
