"""Work that waits without progress is degraded, by name, and it is not once it goes on."""

import json
import re
import signal
import socket
import subprocess

from harness import Host, Ribtide, binary, blast, wait_for
from harness.sonic import Sonic
from test_sonic import ROUTER

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
