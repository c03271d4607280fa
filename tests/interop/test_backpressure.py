"""A chip that stalls under a burst of flapping routes, in every wiring: the burst waits, united per key or in the sender's
socket; memory is bounded by the prefixes; afterwards everybody has the last word on every route, and memory is back.

RIBTIDE_LONG=1 makes it two million changes against a chip that stalls for a minute."""

import json
import os
import subprocess
import threading
import time

import pytest
from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, external
from harness.sonic import Sonic
from harness.speaker import Speaker, prefixes as nlri, raw_update, update

LONG = bool(os.environ.get("RIBTIDE_LONG"))
PREFIXES = 20_000
ROUNDS = 100 if LONG else 6
STALL = 60 if LONG else 4
#: Beyond what it holds of the routes: rings, sockets, and what the allocator keeps for itself.
SLACK = 160 << 20
SENDER = Host.FEEDS[0]
ROUTER = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + "[fib]" + LAB
ALL = [f"{20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24" for n in range(PREFIXES)]
WITHDRAWAL = b"".join(raw_update(withdrawn=nlri(ALL[start:start + 200])) for start in range(0, PREFIXES, 200))


def bursts(gateways):
    """All prefixes through each gateway, as UPDATEs."""
    return [b"".join(update(ALL[start:start + 200], [65010], gateway) for start in range(0, PREFIXES, 200))
            for gateway in gateways]


class Burst(threading.Thread):
    """Everything that flaps, from a thread: whoever is behind may stop reading."""

    def __init__(self, sender, rounds):
        super().__init__(daemon=True)
        self.sender, self.rounds = sender, rounds
        sender.socket.settimeout(None)
        self.start()

    def run(self):
        for n in range(ROUNDS):
            self.sender.send(self.rounds[(n + 1) % 2])

    def ends(self):
        self.join(600)
        assert not self.is_alive()


def memory(process):
    """Resident bytes now."""
    with open(f"/proc/{process.popen.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


class Watch(threading.Thread):
    """The most that processes hold, each for itself."""

    def __init__(self, processes):
        super().__init__(daemon=True)
        self.processes, self.over = processes, threading.Event()
        self.before = {name: memory(p) for name, p in processes.items()}
        self.peak = dict(self.before)
        self.start()

    def run(self):
        while not self.over.wait(0.1):
            for name, process in self.processes.items():
                self.peak[name] = max(self.peak[name], memory(process))

    def bounded(self):
        self.over.set()
        self.join()
        grown = {name: self.peak[name] - self.before[name] for name in self.peak}
        print({name: f"{self.before[name] >> 20} to {self.peak[name] >> 20} MiB" for name in grown})
        assert all(more <= SLACK for more in grown.values()), grown


def agree(*at):
    done = subprocess.run([binary(), "route-check", "--full", "--wait", "60", "--json", *map(str, at)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[:3000] + done.stderr


def test_in_one_process(host):
    router = Ribtide(host, ROUTER)
    sender = Speaker(host, SENDER, 65010)
    rounds = bursts(["10.0.0.5", "10.0.0.6"])
    sender.send(rounds[0])
    wait_for("they are there", lambda: router.count() == PREFIXES, 60)
    agree("--socket", router.socket)
    watch = Watch({"ribtide": router.process})
    router.text("config", "asic", "stall")
    burst = Burst(sender, rounds)
    time.sleep(STALL)
    rings = {ring["name"]: ring for ring in router.show("pipeline")["rings"]}
    assert all(ring["depth"] <= ring["capacity"] for ring in rings.values())
    assert any(ring["full"] or ring["depth"] for ring in rings.values()), rings
    assert router.neighbor(SENDER)["flaps"] == 0
    router.text("config", "asic", "resume")
    burst.ends()
    last = f"10.0.0.{5 + ROUNDS % 2}"
    wait_for("the last word is selected", lambda: last in router.show("fib", ALL[-1])[0]["hops"][0], 120)
    agree("--socket", router.socket)
    addresses = [prefix.replace(".0/24", ".1") for prefix in ALL[::50]]
    answers = json.loads(router.text("show", "asic", *addresses, "--json"))["answers"]
    assert [a["next_hops"] for a in answers] == [[last]] * len(answers)
    watch.bounded()
    sender.send(WITHDRAWAL)
    wait_for("they are gone", lambda: router.count() == 0, 120)
    agree("--socket", router.socket)


WIRINGS = {
    "redis": ({}, {}),
    "redis_async": ({}, {"orchagent": ["-z", "redis_async", "-r", "0"], "syncd": ["-z", "redis_async", "-R"]}),
    "zmq": ({"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}},
            {"orchagent": ["-q", "tcp://127.0.0.1", "-z", "zmq_async", "-r", "0"], "syncd": ["-z", "zmq_sync", "-R"]}),
}


#: BGP into fpmsyncd, beside the daemons. The FPM client reads fpmsyncd's answers, as zebra does.
BEFORE_THEM = ROUTER.replace("virtual-asic = { lab = true }", 'fpm = ["127.0.0.1:2620"]') \
    .replace("Ethernet0", "Ethernet4").replace("10.0.255.254/16", "10.2.0.1/24")
GATEWAYS = ["10.2.0.17", "10.2.0.18"]


@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_daemons(host, wiring):
    """ribtide run, over FPM, and the three daemons: from the chip back to the BGP session."""
    config, flags = WIRINGS[wiring]
    sonic = Sonic(host, config=config, flags=flags)
    router = Ribtide(host, BEFORE_THEM)
    sender = Speaker(host, SENDER, 65010)
    rounds = bursts(GATEWAYS)
    syncd = host.folder / "syncd.sock"
    order = lambda *words: subprocess.run([binary(), "config", "asic", "--syncd", syncd, *words], check=True, capture_output=True)
    routes = lambda: sonic.ask("counts").get("ipv4_routes", 0)
    alive = [*sonic.processes.values(), router.process]
    sender.send(rounds[0])
    wait_for("they are there", lambda: routes() >= PREFIXES, 120, alive=alive)
    watch = Watch({"ribtide": router.process, **sonic.processes})
    order("stall")
    burst = Burst(sender, rounds)
    time.sleep(STALL)
    assert router.neighbor(SENDER)["flaps"] == 0
    order("resume")
    burst.ends()
    last = GATEWAYS[ROUNDS % 2]
    leads = lambda prefix: [hop["gateway"] for hop in (sonic.route(prefix) or {"hops": []})["hops"]]
    wait_for("the last word is in the chip", lambda: all(leads(p) == [last] for p in ALL[::997] + ALL[-1:]), 240, alive=alive)
    at = ("--sonic", "--database-config", sonic.redis.config, "--syncd", syncd)
    agree(*at)
    assert all(leads(prefix) == [last] for prefix in ALL[::50])
    assert router.neighbor(SENDER)["flaps"] == 0
    watch.bounded()
    sender.send(WITHDRAWAL)
    wait_for("they are gone", lambda: routes() < 100, 240, alive=alive)
    agree(*at)
