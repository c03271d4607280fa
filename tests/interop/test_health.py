"""Work that waits without progress is degraded, by name, and it is not once it goes on."""

import ctypes
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest
from harness import Host, Ribtide, binary, blast, wait_for
from harness.sonic import Sonic
from test_sonic import ROUTER

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
#: waitpid(2): of a thread, which no signal announces.
WALL = 0x40000000
#: The exit status of a process that a stall of its own ended.
STALLED = 9
FPM = ("127.0.0.1", 2620)
WAITING = f"""
[router]
asn = 65001
router-id = "10.0.0.1"
stall-timeout = 2

[bgp]
listen = ["{Host.FEED_SIDE}:179"]

[fib]
kernel = {{ table = 100 }}
fpm = ["127.0.0.1:2620"]
"""


def health(*args):
    """The exit status of `ribtide show health`, and what it prints as JSON."""
    done = subprocess.run([binary(), "show", "health", "--json", *map(str, args)], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def metric(router, name):
    return dict(re.findall(rf"^ribtide_{name}(\{{.*\}})? (\S+)$", router.call("GET", "/metrics"), re.M))


def test_fpm_server_that_is_not_there_is_named_until_it_is(host):
    router = Ribtide(host, WAITING)
    assert health("--socket", router.socket)[:2] == (0, {"state": "ok", "stalls": []})
    status, found, why = wait_for("it is degraded", lambda: (now := health("--socket", router.socket))[0] and now, 30,
                                  alive=[router.process])
    [stall] = found["stalls"]
    assert (status, found["state"], stall["what"], stall["thread"]) == (1, "degraded", "FPM server 127.0.0.1:2620", "fpm")
    assert stall["seconds"] >= 2 and "no progress at FPM server 127.0.0.1:2620" in why
    assert metric(router, "degraded") == {"": "1"}
    assert float(metric(router, "stalled_seconds")['{queue="FPM server 127.0.0.1:2620"}']) >= 2
    wait_for("it is logged", lambda: router.process.logged("work waits without progress", "FPM server"), 20)
    with host.inside():
        server = socket.create_server(FPM)
    with server:
        connection, _ = server.accept()
        with connection:
            wait_for("it goes on", lambda: health("--socket", router.socket)[0] == 0, 30, alive=[router.process])
            wait_for("that is logged", lambda: router.process.logged("work goes on", "FPM server"), 20)
    assert metric(router, "degraded") == {"": "0"} and not metric(router, "stalled_seconds")


def test_redis_that_stands_still_is_named_until_it_goes_on(host):
    stall = ["--stall-timeout", "2"]
    sonic = Sonic(host, flags=dict.fromkeys(("syncd", "orchagent", "fpmsyncd"), stall))
    router = Ribtide(host, ROUTER)
    wait_for("the routes of before are there", lambda: sonic.route_count() > 0, 60, alive=[router.process, *sonic.alive()])
    of_daemons = lambda: health("--sonic", "--database-config", sonic.redis.config)
    assert of_daemons()[:2] == (0, {name: {"state": "ok", "stalls": []} for name in ("fpmsyncd", "orchagent", "syncd")})
    sonic.redis.process.popen.send_signal(signal.SIGSTOP)
    try:
        blast(host, 2000, 200)
        fpmsyncd = sonic.processes["fpmsyncd"]
        wait_for("fpmsyncd names it", lambda: fpmsyncd.logged("WARN", "work waits without progress", "Redis for APPL_DB"), 60,
                 alive=sonic.alive())
    finally:
        sonic.redis.process.popen.send_signal(signal.SIGCONT)
    wait_for("it goes on", lambda: fpmsyncd.logged("work goes on", "Redis for APPL_DB"), 60, alive=sonic.alive())
    wait_for("no daemon is degraded", lambda: of_daemons()[0] == 0, 60, alive=sonic.alive())
    wait_for("the routes arrive", lambda: sonic.chip_routes() > 2200, 120, alive=[router.process, *sonic.alive()])


def with_exit(config):
    """The configuration of a router that a stall of 2 s ends."""
    return config.replace("[bgp]", "stall-timeout = 1\nstall-exit = 2\n\n[bgp]", 1)


class StoppedThread:
    """A thread of a process that stands still, as a debugger stops it, while the others go on."""

    def __init__(self, process, name):
        tasks = pathlib.Path(f"/proc/{process.popen.pid}/task").iterdir()
        [self.id] = [int(task.name) for task in tasks if (task / "comm").read_text().strip() == name]
        for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
            self.trace(request)
        assert os.WIFSTOPPED(os.waitpid(self.id, WALL)[1])

    def trace(self, request):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        if libc.ptrace(request, self.id, None, None) == -1:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {self.id}")

    def reap(self):
        """Waits for the end of the thread. Until then its process does not end."""
        os.waitpid(self.id, WALL)


def test_thread_that_stands_still_ends_its_process_with_stall_exit(host):
    router = Ribtide(host, with_exit(ROUTER.replace('fpm = ["127.0.0.1:2620"]', "")))
    feed = blast(host, 2000, 200)
    wait_for("the routes arrive", lambda: router.count() >= 2000, 60, alive=[router.process])
    rib = StoppedThread(router.process, "rib")
    # Withdrawals that no thread takes.
    feed.stop()
    rib.reap()
    assert router.process.popen.wait(60) == STALLED
    [line] = router.process.logged("ERROR", "work waits without progress for too long")
    assert '"shards to RIB"' in line and "thread=rib" in line
    router.start()


def test_peer_that_is_away_ends_no_process_with_stall_exit(host):
    router = Ribtide(host, with_exit(ROUTER))
    blast(host, 2000, 200)
    stalls = lambda: health("--socket", router.socket)[1]["stalls"]
    # Longer than the time of the exit and an interval of looks.
    wait_for("the server is away for long", lambda: any(stall["seconds"] >= 5 for stall in stalls()), 60, alive=[router.process])
    assert {stall["what"] for stall in stalls()} >= {"FPM server 127.0.0.1:2620"}
    assert not router.process.logged("too long")
    router.ends_differing("the server is away")


@pytest.mark.long
def test_sonic_daemons_with_stall_exit_outlive_their_peers(host):
    # A low-priority writer may wait for seconds where other tests have the CPUs.
    stall = ["--stall-timeout", "3", "--stall-exit", "9"]
    sonic = Sonic(host, flags=dict.fromkeys(("syncd", "orchagent", "fpmsyncd"), stall))
    router = Ribtide(host, ROUTER)
    wait_for("the routes of before are there", lambda: sonic.route_count() > 0, 60, alive=[router.process, *sonic.alive()])
    syncd = sonic.processes["syncd"]
    syncd.popen.send_signal(signal.SIGSTOP)
    try:
        # More than wait in orchagent, so queues before it fill too.
        blast(host, 80_000, 200)
        stalls = lambda: health("--sonic", "--database-config", sonic.redis.config)[1]["orchagent"]["stalls"]
        # Longer than the time of the exit and an interval of looks.
        wait_for("syncd stands still for long", lambda: any(stall["seconds"] >= 12 for stall in stalls()), 60, alive=sonic.alive())
    finally:
        syncd.popen.send_signal(signal.SIGCONT)
    wait_for("the routes arrive", lambda: sonic.chip_routes() > 80_200, 120, alive=[router.process, *sonic.alive()])
    assert not any(daemon.logged("too long") for daemon in sonic.processes.values())


def test_stage_that_stands_still_without_a_queue_is_named_by_its_queries(host):
    router = Ribtide(host, WAITING.replace('fpm = ["127.0.0.1:2620"]', "") + "\n[bfd]\n")
    show = [binary(), "show", "bfd", "--socket", router.socket]
    # The first query makes its thread known.
    assert subprocess.run(show, capture_output=True).returncode == 0
    bfd = StoppedThread(router.process, "bfd")
    try:
        query = subprocess.Popen(show, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stalls = lambda: health("--socket", router.socket)[1]["stalls"]
        found = wait_for("it is named", lambda: [s for s in stalls() if s["what"] == "queries to BFD"], 30, alive=[router.process])
        assert found[0]["thread"] == "bfd" and found[0]["depth"] >= 1
        assert '{queue="queries to BFD"}' in metric(router, "stalled_seconds")
        wait_for("it is logged", lambda: router.process.logged("WARN", "work waits without progress", "queries to BFD", "thread=bfd"), 20)
    finally:
        bfd.trace(PTRACE_DETACH)
    query.wait(60)
    wait_for("it goes on", lambda: health("--socket", router.socket)[0] == 0, 30, alive=[router.process])
