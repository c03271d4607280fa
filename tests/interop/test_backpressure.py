"""Back-pressure of a stalled chip while routes flap, in every transport. Changes coalesce by key
until every stage is full; then BGP is not read. The prefixes bound the memory. Afterwards every
stage has the last state of every route, and memory returns.

RIBTIDE_LONG=1 adds a minute of stall and more routes."""

import contextlib
import json
import os
import subprocess
import threading
import time

import pytest
from harness import TIMEOUT_FACTOR, Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, external
from harness.sonic import Sonic
from harness.speaker import KEEPALIVE, Speaker, block, message, raw_update

LONG = bool(os.environ.get("RIBTIDE_LONG"))
#: Some times what may wait in Redis.
PREFIXES = 200_000 if LONG else 60_000
#: How long the chip goes on to stall when BGP has been stopped.
STALL = 60 if LONG else 1
#: Beyond what it holds of the routes: rings, sockets, and what the allocator keeps for itself.
SLACK = (160 if LONG else 64) << 20
#: Keys that fpmsyncd lets wait in Redis for an orchagent that stands still, and rows that it writes at once: batches of a thousand
#: until there are ten thousand.
KEYS = 10_000 + 11_000
SENDER = Host.FEEDS[0]
ROUTER = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + "[fib]" + LAB
ALL = [f"{20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24" for n in range(PREFIXES)]
#: NLRI of an UPDATE each.
NLRI = [b"".join(bytes([24, 20 + (n >> 16), n >> 8 & 255, n & 255]) for n in range(start, start + 200)) for start in range(0, PREFIXES, 200)]
WITHDRAWAL = b"".join(raw_update(withdrawn=nlri) for nlri in NLRI)


class Flaps(threading.Thread):
    """Moves all routes between two gateways, in turns, until its end; then KEEPALIVEs. One
    UPDATE at a time, for many batches instead of a few large ones."""

    def __init__(self, sender, gateways):
        super().__init__(daemon=True)
        self.sender, self.gateways, self.last, self.sent = sender, gateways, None, 0
        self.over, self.ended, self.lock = threading.Event(), threading.Event(), threading.Lock()
        self.start()

    def run(self):
        while not self.over.is_set():
            self.gateways.reverse()
            self.last = self.gateways[0]
            for update in announcement(self.last):
                self.sender.send(update)
                self.sent += 1
                time.sleep(0.0005)
        self.ended.set()
        # Until the session is gone with the router, at the end of the test.
        with contextlib.suppress(OSError):
            while True:
                self.send(message(KEEPALIVE))
                time.sleep(10)

    def send(self, data):
        with self.lock:
            self.sender.send(data)

    def ends(self):
        """Ends with a complete round; returns its gateway."""
        self.over.set()
        assert self.ended.wait(600) and self.is_alive()
        return self.last


def announcement(gateway):
    """All prefixes, as UPDATEs."""
    attributes = block([65010], gateway)
    return [raw_update(b"", attributes, nlri) for nlri in NLRI]


def memory(process):
    """Resident bytes now, without the pages of the program's file, which come and go with what it ran last."""
    with open(f"/proc/{process.popen.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


class Watch(threading.Thread):
    """The peak memory of each process, and the number of keys in Redis."""

    def __init__(self, processes, keys):
        super().__init__(daemon=True)
        self.processes, self.keys, self.over = processes, keys, threading.Event()
        self.before = {name: memory(p) for name, p in processes.items()}
        self.peak, self.most = dict(self.before), 0
        self.start()

    def run(self):
        while not self.over.wait(0.1):
            self.most = max(self.most, self.keys())
            for name, process in self.processes.items():
                self.peak[name] = max(self.peak[name], memory(process))

    def bounded(self):
        self.over.set()
        self.join()
        grown = {name: self.peak[name] - self.before[name] for name in self.peak}
        print({name: f"{self.before[name] >> 20} to {self.peak[name] >> 20} MiB" for name in grown}, self.most, "keys")
        assert all(more <= SLACK for more in grown.values()), grown


def stands_still(look, span=2):
    """Waits until the result of `look` is stable, and returns it."""
    found = [look()]

    def same():
        time.sleep(span)
        found.append(look())
        return found[-1] == found[-2]

    wait_for("nothing changes any more", same, 120)
    return found[-1]


class InOneProcess:
    """BGP, the RIB and the virtual switch, with the route path in memory between them."""

    gateways = ["10.0.0.5", "10.0.0.6"]

    def __init__(self, host):
        self.router = Ribtide(host, ROUTER)
        self.processes = {"ribtide": self.router.process}
        self.at = ("--socket", self.router.socket)

    def order(self, *words):
        self.router.text("config", "asic", *words)

    def count(self):
        return json.loads(self.router.text("show", "asic", "--json"))["entries"]["ipv4-routes"]

    def keys(self):
        return 0

    def next_hops(self, prefixes):
        addresses = [prefix.replace(".0/24", ".1") for prefix in prefixes]
        answers = json.loads(self.router.text("show", "asic", *addresses, "--json"))["lookups"]
        return {hop for answer in answers for hop in answer.get("next_hops", ["nowhere"])}


#: CONFIG_DB, and flags of the daemons.
COMBINATIONS = {
    "redis": ({}, {}),
    "redis_ring": ({}, {"orchagent": ["-R", "-r", "0"], "fpmsyncd": ["--stable-table"]}),
    "redis_async": ({}, {"orchagent": ["-z", "redis_async", "-r", "0"], "syncd": ["-z", "redis_async", "-R"]}),
    "zmq": ({"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}},
            {"orchagent": ["-q", "tcp://127.0.0.1", "-z", "zmq_async", "-r", "0"], "syncd": ["-z", "zmq_sync", "-R"]}),
}
#: BGP into fpmsyncd, beside the daemons. The FPM client reads fpmsyncd's answers, as zebra does.
BEFORE_THEM = ROUTER.replace("virtual-asic = { lab = true }", 'fpm = ["127.0.0.1:2620"]') \
    .replace("Ethernet0", "Ethernet4").replace("10.0.255.254/16", "10.2.0.1/24")


class Daemons:
    """ribtide run, over FPM, and the three daemons: from the chip back to the BGP session."""

    gateways = ["10.2.0.17", "10.2.0.18"]

    def __init__(self, host, combination):
        config, flags = COMBINATIONS[combination]
        self.sonic = Sonic(host, config=config, flags=flags)
        self.router = Ribtide(host, BEFORE_THEM)
        self.syncd = host.folder / "syncd.sock"
        self.processes = {"ribtide": self.router.process, **self.sonic.processes}
        self.at = ("--sonic", "--database-config", self.sonic.redis.config, "--syncd", self.syncd)

    def order(self, *words):
        subprocess.run([binary(), "config", "asic", "--syncd", self.syncd, *words], check=True, capture_output=True)

    def count(self):
        return self.sonic.query("counts")["ipv4_routes"]

    def keys(self):
        return self.sonic.appl.scard("ROUTE_TABLE_KEY_SET")

    def next_hops(self, prefixes):
        answers = self.sonic.query_all(f"route {prefix}" for prefix in prefixes)
        return {hop["gateway"] for answer in answers for hop in (answer or {"hops": [{"gateway": "nowhere"}]})["hops"]}


def begin(host, combination):
    """A path with all routes in the chip, and their sender."""
    host.small_sockets()
    path = InOneProcess(host) if combination == "memory" else Daemons(host, combination)
    sender = Speaker(host, SENDER, 65010, hold=90)
    sender.send(b"".join(announcement(path.gateways[0])))
    wait_for("they are there", lambda: path.count() >= PREFIXES, 120, alive=path.processes.values())
    return path, sender


def stall(path, sender):
    """Stalls the chip until BGP is not read; the sender continues."""
    path.order("stall")
    flaps = Flaps(sender, list(path.gateways))
    stands_still(lambda: flaps.sent)
    time.sleep(STALL)
    assert flaps.is_alive()
    return flaps


def the_last_word(path, last):
    """The last state is in the chip, and all stages agree."""
    alive = path.processes.values()
    wait_for("the last word is in the chip", lambda: path.next_hops(ALL[::997] + ALL[-1:]) == {last}, 240, alive=alive)
    agree(*path.at)
    assert path.next_hops(ALL[::50]) == {last}
    assert path.router.neighbor(SENDER)["flaps"] == 0


def agree(*at):
    done = subprocess.run([binary(), "route-check", "--full", "--wait", str(60 * TIMEOUT_FACTOR), "--json", *map(str, at)],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[:3000] + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("combination", ["memory", *COMBINATIONS])
def test_a_chip_that_stalls_stops_bgp(host, combination):
    path, sender = begin(host, combination)
    watch = Watch(path.processes, path.keys)
    flaps = stall(path, sender)
    rings = {ring["name"]: ring for ring in path.router.show("pipeline")["rings"]}
    assert all(ring["depth"] <= ring["capacity"] for ring in rings.values())
    assert any(ring["full"] for ring in rings.values()), rings
    if combination == "redis":
        # Answers are counted from now on: but for that nothing is written out of its turn.
        subprocess.run([binary(), "config", "sonic", "suppress-fib-pending", "enable", "--database-config", path.sonic.redis.config],
                       check=True, capture_output=True)
        wait_for("fpmsyncd obeys", lambda: path.sonic.setting("fpmsyncd", "suppress-fib-pending")["active"] == "enabled", 20)
    # Questions are answered all the same, whatever waits for room.
    assert path.router.count() == PREFIXES and path.router.established(SENDER)
    assert path.router.show("route", ALL[0]) and path.router.explain(ALL[-1])["stages"] and path.router.text("show", "route", "summary")
    path.order("resume")
    the_last_word(path, flaps.ends())
    watch.bounded()
    assert (10_000 < watch.most <= KEYS) == combination.startswith("redis"), watch.most
    flaps.send(WITHDRAWAL)
    wait_for("they are gone", lambda: path.count() < 100, 240, alive=path.processes.values())
    agree(*path.at)


@pytest.mark.long
def test_absent_orchagent_stops_no_daemon(host):
    """orchagent ends while all stages wait for it, and BGP is read again. Its successor starts
    with the contents of APPL_DB."""
    path, sender = begin(host, "redis")
    flaps = stall(path, sender)
    assert path.keys() <= KEYS
    path.sonic.processes.pop("orchagent").kill()
    last = flaps.ends()
    wait_for("APPL_DB has all of it", lambda: stands_still(path.keys) == PREFIXES, alive=path.sonic.alive())
    path.order("resume")
    path.sonic.start("orchagent")
    path.processes |= path.sonic.processes
    the_last_word(path, last)
