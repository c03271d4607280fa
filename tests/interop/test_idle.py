"""At rest nothing moves: a router and SONiC's daemons with an established session and a table wake
up fewer than five times a second, all threads of a process together."""

import contextlib
import os
import pathlib
import time

import pytest
from harness import Host, Ribtide, blast, wait_for
from harness.sonic import Sonic
from test_asic import CONFIG as ASIC
from test_asic import SENDERS, blast as senders
from test_kernel import CONFIG as KERNEL
from test_sonic import ROUTER

#: Wake-ups a second of one process at most.
BOUND = 5
#: Seconds of a measurement, measurements of which the best counts, and seconds for the last work to end before them: threads
#: free memory when they become idle, at intervals that double.
SPAN, TRIES, SETTLING = 10, 3, 20
ROUTES = 2000

pytestmark = pytest.mark.long


def pid_of(process):
    """The process that `ip netns exec`, and perhaps a shell, became."""
    return process.popen.pid


def switches(pid):
    """Voluntary context switches of each thread: how often it slept."""
    counts = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            counts[int(task.name), lines["Name"]] = int(lines["voluntary_ctxt_switches"])
    return counts


def assert_at_rest(processes):
    time.sleep(SETTLING)
    least = {}
    for _ in range(TRIES):
        before = {name: switches(pid_of(process)) for name, process in processes.items()}
        begin = time.monotonic()
        time.sleep(SPAN)
        after = {name: switches(pid_of(process)) for name, process in processes.items()}
        span = time.monotonic() - begin
        for name, counts in after.items():
            rates = {thread: (count - before[name].get(thread, 0)) / span for thread, count in counts.items()}
            by_thread = sorted(((round(rate, 1), thread[1]) for thread, rate in rates.items() if rate), reverse=True)
            least[name] = min(least.get(name, (float("inf"), [])), (round(sum(rates.values()), 1), by_thread))
        print({name: total for name, (total, _) in least.items()}, least)
        if all(total < BOUND for total, _ in least.values()):
            return
    raise AssertionError(least)


@pytest.mark.parametrize("threads", ["auto", "off"])
def test_router_with_the_kernel_at_rest(host, threads):
    host.lan("lan0", "193.203.0.250/24")
    config = KERNEL.replace("[bgp]\n", f'[bgp]\nshards = "{threads}"\nupdate-threads = "{threads}"\n')
    router = Ribtide(host, config)
    blast(host, ROUTES, ROUTES)
    wait_for("the routes are there", lambda: router.count() == 2 * ROUTES, 60, alive=[router.process])
    assert_at_rest({"router": router.process})


def test_router_with_the_virtual_asic_at_rest(host):
    host.feeds.address("feed0", *(f"198.19.0.{16 + n}/24" for n in range(SENDERS)))
    router = Ribtide(host, ASIC)
    senders(host)
    wait_for("the routes are there", lambda: router.count() >= 25_000, 60, alive=[router.process])
    assert_at_rest({"router": router.process})


@pytest.mark.parametrize("over, suppress", [("redis", False), ("redis", True), ("zmq", True)])
def test_sonic_daemons_and_the_router_before_them_at_rest(host, over, suppress):
    sonic = Sonic(host, suppress=suppress) if over == "redis" else Sonic(
        host, suppress=suppress, config={"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}},
        flags={"orchagent": ["-q", "tcp://127.0.0.1", "-z", "zmq_sync"], "fpmsyncd": ["--appl-db", "behind"], "syncd": ["-z", "zmq_sync"]})
    router = Ribtide(host, ROUTER)
    blast(host, ROUTES, ROUTES)
    wait_for("the chip has the routes", lambda: sonic.chip_routes() > 2 * ROUTES, 120, alive=[router.process, *sonic.alive()])
    assert_at_rest({"router": router.process, **sonic.processes})
