"""What the comparison of SONiC's databases costs at rest: rounds of each table, and the CPU time of its daemon. The
figures of ADR 24: `RECONCILE_ROUTES=400000 scripts/test interop -s -k test_reconcile_cost`."""

import os
import time

from harness import fpm, wait_for
from test_sonic import connect_fpm, ifindex
from test_sonic_reconcile import GATEWAYS, counts, start

ROUTES = int(os.environ.get("RECONCILE_ROUTES", "2000"))
#: Rounds that are measured, at least.
ROUNDS = 3
TABLES = {"fpmsyncd": "APPL_DB ROUTE_TABLE", "orchagent": "orchagent ROUTE_TABLE", "syncd": "ASIC_DB ASIC_STATE"}


def cpu(pid):
    """The CPU seconds of a process."""
    ran = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
            ran += int(f.read().split()[0])
    return ran / 1e9


def test_each_database_is_compared_in_rounds(host):
    sonic = start(host, "redis_async")
    client = connect_fpm(sonic)
    port = ifindex(host, "Ethernet0")
    before = sonic.route_count()
    prefixes = (f"{20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24" for n in range(ROUTES))
    client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, GATEWAYS[n % len(GATEWAYS)], port) for n, prefix in enumerate(prefixes)))
    wait_for("the chip has the routes", lambda: sonic.route_count() >= before + ROUTES, 300, alive=sonic.alive())

    def sample(daemon):
        now = counts(sonic).get(TABLES[daemon], {"compared": 0})
        return now["compared"], time.monotonic(), cpu(sonic.processes[daemon].popen.pid)

    # Counts are written at the end of a round. The first end may be of a round that began before the last route came.
    changes = {daemon: [sample(daemon)] for daemon in TABLES}
    deadline = time.monotonic() + 900
    while any(len(seen) < 2 + ROUNDS for seen in changes.values()):
        assert time.monotonic() < deadline, {daemon: len(seen) for daemon, seen in changes.items()}
        time.sleep(0.2)
        for daemon, seen in changes.items():
            now = sample(daemon)
            if now[0] != seen[-1][0]:
                seen.append(now)
    for daemon, seen in changes.items():
        rows, seconds, used = (b - a for a, b in zip(seen[1], seen[-1], strict=True))
        assert rows >= ROUNDS * ROUTES, TABLES[daemon]
        print(f"{TABLES[daemon]}: {rows:,} rows in {seconds:.1f} s, {used:.2f} s of {daemon}'s CPU time: "
              f"{used / seconds:.1%} of a CPU; a million rows in {seconds / rows * 1e6:.0f} s")
    assert not any(count["repaired"] or count["failed"] for count in counts(sonic).values())
