"""A Redis that works and refuses writes: its memory is full, it is a replica, or its disk is. Routes wait for it, or go on without it."""

import time

import pytest
from harness import Ribtide, blast, wait_for
from harness.sonic import STATE, Sonic
from test_sonic import ROUTER, check, own_routes

#: What makes a server refuse writes, and what makes it take them again.
REFUSALS = {
    "OOM": (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
    "READONLY": (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("transport", ["redis", "zmq"])
def test_writes_that_are_refused_for_a_time(host, transport, refusal):
    """In the middle of a table, and again in the middle of its withdrawal."""
    flags = {"fpmsyncd": ["-q", "tcp://127.0.0.1"], "orchagent": ["--route-zmq", "-q", "tcp://127.0.0.1"]} if transport == "zmq" else {}
    sonic = Sonic(host, flags=flags)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    refuse, allow = REFUSALS[refusal]
    appl_db = "behind" if transport == "zmq" else "in-line"

    def refused(during, seconds=2):
        sonic.appl.execute_command(*refuse)
        result = during()
        time.sleep(seconds)
        sonic.appl.execute_command(*allow)
        return result
    feed = refused(lambda: blast(host, 30_000, 0))
    wait_for("the table is here", lambda: router.count() == 30_000, 60, alive=[router.process])
    check(sonic, router, own, appl_db)
    refused(feed.kill)
    wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
    check(sonic, router, own, appl_db)
    assert any("Redis refuses commands" in sonic.processes[name].log() for name in ("fpmsyncd", "orchagent", "syncd"))


def test_bookkeeping_that_is_refused_for_good(host):
    """STATE_DB and COUNTERS_DB take nothing, before the daemons start and after: routes go on, and the rows come when they may."""
    sonic = Sonic(host, state=True, start=())
    sonic.redis.db(STATE).execute_command("REPLICAOF", "127.0.0.1", "1")
    for name in ("syncd", "orchagent", "fpmsyncd"):
        sonic.start(name)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    blast(host, 5_000, 500)
    wait_for("the table is here", lambda: router.count() == 5_500, 60, alive=[router.process])
    check(sonic, router, own)
    assert all(process.poll() is None for process in sonic.alive())
    sonic.redis.db(STATE).execute_command("REPLICAOF", "NO", "ONE")
    wait_for("each daemon shows its settings",
             lambda: all(sonic.setting(name, "multi-db")["active"] for name in ("syncd", "orchagent", "fpmsyncd")), 20)
    wait_for("the counters are there", lambda: int(sonic.redis.db(2).hget("CRM:STATS", "crm_stats_ipv4_route_used") or 0) > 5_000, 20)
