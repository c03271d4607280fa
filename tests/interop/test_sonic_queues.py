"""`ribtide show pipeline --sonic` shows the queues of rows and requests: behind a stalled chip
each queue fills up to its bound, and all are empty after the stall."""

import contextlib
import json
import subprocess
import threading
import time

import pytest
from harness import binary, fpm, settled, wait_for
from harness.sonic import Sonic
from test_sonic import connect_fpm, ifindex, own_routes

#: SONiC's usual combination, the quickest through Redis, and the quickest of all: flags, and how many requests may be under way.
COMBINATIONS = {
    "redis_sync": ({}, 1),
    "redis_async": ({"orchagent": ["-z", "redis_async", "-r", "0"], "syncd": ["-z", "redis_async"], "fpmsyncd": []}, 8),
    "zmq": ({"orchagent": ["-q", "tcp://127.0.0.1", "--route-zmq", "-z", "zmq_async", "-r", "0"],
             "syncd": ["-z", "zmq_sync"], "fpmsyncd": ["-q", "tcp://127.0.0.1"]}, 8),
}
#: Of the combinations through Redis; over ZeroMQ what orchagent holds, what the window holds, and what fpmsyncd keeps before it stops reading.
ROUTES = {"zmq": 250_000}
ROWS, KEYS, CHANGED = 50_000, 10_000, 50_000


def shown(sonic, *more):
    """The values of each queue of each daemon."""
    said = subprocess.run([binary(), "show", "pipeline", "--sonic", "--database-config", sonic.redis.config, *more],
                          capture_output=True, text=True, check=True).stdout
    if not more:
        return said
    return {daemon["daemon"]: {queue.pop("name"): queue for queue in daemon["queues"]} for daemon in json.loads(said)}


def prefix(n):
    return f"{20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24"


def read(connection):
    with contextlib.suppress(OSError):
        while connection.recv(1 << 20):
            pass


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_chip_that_stalls(host, combination):
    flags, window = COMBINATIONS[combination]
    sonic = Sonic(host, flags=flags)
    alive = sonic.alive()
    count = ROUTES.get(combination, 120_000)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    look = lambda: shown(sonic, "--json")
    depths = lambda: {(daemon, name): queue["depth"] for daemon, queues in look().items() for name, queue in queues.items() if queue["depth"]}

    def stand(where, within=20):
        def look_there():
            now = depths()
            assert now == where
        settled(look_there, within)

    client.send(fpm.route(fpm.NEWROUTE, prefix(0), "193.203.0.1", port))
    wait_for("a route goes through", lambda: sonic.route(prefix(0)), 60, alive=alive)
    stand({})

    # No host is at this address.
    client.send(fpm.route(fpm.NEWROUTE, "9.9.9.0/24", "193.203.0.200", port))
    waits = ("orchagent", "routes in the retry cache")
    stand({waits: 1})

    subprocess.run([binary(), "config", "asic", "--syncd", host.folder / "syncd.sock", "stall"], check=True, capture_output=True)
    burst = b"".join(fpm.route(fpm.NEWROUTE, prefix(n), "193.203.0.2", port) for n in range(count))
    client.socket.settimeout(None)
    sender = threading.Thread(target=client.send, args=(burst,), daemon=True)
    sender.start()
    # Replies without a reader would stand, too.
    threading.Thread(target=read, args=(client.socket,), daemon=True).start()

    def is_full():
        now = look()
        for daemon, name, bound in full:
            queue = now[daemon][name]
            assert queue["bound"] == bound and min(queue["depth"], queue["peak"]) >= bound, (name, now)

    full = [("orchagent", "requests in flight to syncd", window), ("orchagent", "rows in m_toSync", ROWS)]
    if combination == "zmq":
        full += [("fpmsyncd", "ROUTE_TABLE messages without an acknowledgement", 64),
                 ("fpmsyncd", "pending row changes", CHANGED), ("fpmsyncd", "FPM frames to fpmsyncd", 16)]
    else:
        full += [("fpmsyncd", "keys in ROUTE_TABLE_KEY_SET", KEYS)]
    settled(is_full, 60)

    def stands_before_the_chip():
        # What is under way.
        queue = look()["syncd"]["orchagent to syncd"]
        assert (queue["depth"], queue["bound"]) == (window, 64)
    settled(stands_before_the_chip, 20)
    text = shown(sonic)
    line = next(line for line in text.splitlines() if "rows in m_toSync" in line)
    assert line.split()[:1] + line.split()[4:5] == ["orchagent", "50,000"], line

    subprocess.run([binary(), "config", "asic", "--syncd", host.folder / "syncd.sock", "resume"], check=True, capture_output=True)
    sender.join(120)
    assert not sender.is_alive()
    wait_for("the chip has them all", lambda: sonic.query("counts")["ipv4_routes"] >= count, 240, 0.5, alive=alive)
    stand({waits: 1}, 60)
    sonic.neighbor("Ethernet0", "193.203.0.200")
    stand({})


def test_a_server_that_lost_everything_gets_it_again(host):
    sonic = Sonic(host)
    # An orchagent that has a request under way would end with Redis.
    own_routes(sonic)

    def at_rest():
        now = shown(sonic, "--json")
        return all(now.values()) and not any(queue["depth"] for queues in now.values() for queue in queues.values()) and now
    # Shown levels are up to a second old, and a machine that has much to do makes that more: so twice.
    wait_for("all three say that nothing waits", at_rest, 20, 1.5)
    time.sleep(3)
    before = wait_for("and still do", at_rest, 20, 1.5)
    sonic.redis.process.kill()
    sonic.redis.start()

    def again():
        for name, process in list(sonic.processes.items()):
            # orchagent ends when it finds that ASIC_DB lost its counter of objects; its supervisor starts it.
            if process.poll() is not None:
                sonic.start(name)
        now = shown(sonic, "--json")
        missing = {daemon: before[daemon].keys() - now[daemon].keys() for daemon in before}
        assert not any(missing.values()), missing
    settled(again, 30)
