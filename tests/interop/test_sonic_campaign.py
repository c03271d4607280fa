"""Faults at random moments under load, in each transport of SONiC's daemons. After each round the
routes of the router, of APPL_DB, of ASIC_DB and of the virtual switch are compared one by one: none
may be lost or stale, and `ribtide route-check` must agree. With FIB suppression all routes must be
confirmed. A lost route is one of the load that the switch does not have.

Some rounds of fixed seeds are a test. `make campaign` (CAMPAIGN_ROUNDS, CAMPAIGN_SEED) runs
hundreds."""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest
from harness import TIMEOUT_FACTOR, CommandFailed, Ribtide, binary, blast, settled, wait_for
from harness.sonic import CONFIG, Sonic
from test_sonic import TWO_FEEDS, check_rows, own_routes, selected

ROUNDS = int(os.environ.get("CAMPAIGN_ROUNDS", "2"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "1"))
DAEMONS = ("fpmsyncd", "orchagent", "syncd")


def zmq(appl_db, asic_db, mode="zmq_async"):
    return {"syncd": ["-z", mode, "--asic-db", asic_db], "orchagent": ["-z", mode, "-q", "tcp://127.0.0.1", "--route-zmq"],
            "fpmsyncd": ["-q", "tcp://127.0.0.1", "--appl-db", appl_db]}


#: Name → flags, and how APPL_DB and ASIC_DB are kept.
COMBINATIONS = {
    "redis-sync": ({"orchagent": ["-R"]}, "in-line", "in-line"),
    "redis-async": ({"syncd": ["-z", "redis_async"], "orchagent": ["-z", "redis_async", "-R", "-A"]}, "in-line", "in-line"),
    "redis-async-behind": ({"syncd": ["-z", "redis_async", "-R"], "orchagent": ["-z", "redis_async"]}, "in-line", "behind"),
    "zmq-in-line": (zmq("in-line", "in-line"), "in-line", "in-line"),
    "zmq-behind": (zmq("behind", "behind"), "behind", "behind"),
    "zmq-off": (zmq("off", "off"), "off", "off"),
    "zmq-redis": (zmq("behind", "in-line", "redis_sync"), "behind", "in-line"),
}
#: Those whose short run is part of every test run, and whether with FIB suppression.
SHORT = (("redis-async", False), ("zmq-behind", True))


class Supervisor:
    """Restarts processes that ended, like SONiC's supervisor."""

    def __init__(self, sonic):
        self.sonic, self.ended = sonic, threading.Event()
        self.lock = threading.RLock()
        self.started = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended.wait(0.2):
            with self.lock:
                for name in DAEMONS:
                    if self.sonic.processes[name].poll() is not None and self.sonic.redis.process.poll() is None:
                        self.started += 1
                        self.sonic.start(name)

    def close(self):
        self.ended.set()
        self.thread.join()


class Campaign:
    def __init__(self, host, combination, seed, suppress=False):
        flags, self.appl_db, self.asic_db = COMBINATIONS[combination]
        self.host, self.random = host, random.Random(f"{combination} {seed}")
        self.sonic = Sonic(host, flags=flags, suppress=suppress)
        self.own = own_routes(self.sonic) if self.asic_db != "off" else None
        self.router = Ribtide(host, TWO_FEEDS.replace("[fib]", f"[fib]\nsuppress-fib-pending = {str(suppress).lower()}"))
        self.feed = None
        self.combination, self.suppress = combination + (" suppress" if suppress else ""), suppress
        self.told = []
        self.losses = 0

    def load(self):
        """Replaces the present table, or announces the first."""
        self.size = (self.random.randrange(500, 4000), self.random.randrange(50, 400))
        self.seed = self.random.randrange(1 << 30)
        self.announce()

    def announce(self):
        if self.feed is not None:
            self.feed.kill()
        self.feed = blast(self.host, *self.size, seed=self.seed)

    # Faults. Each is over when it returns; who ended is started by the supervisor.

    def kill(self, name):
        with self.supervisor.lock:
            self.sonic.processes[name].kill()
            time.sleep(self.random.choice((0, self.random.uniform(0, 2))))

    def stall(self, name):
        self.stop_for(name, self.random.uniform(0.2, 3))

    def stall_long(self, name):
        """Longer than the silence that ends a replay, which is 10 s."""
        self.stop_for(name, 12)

    def stop_for(self, name, seconds):
        others = {"redis": self.sonic.redis.process, "ribtide": self.router.process}
        process = others.get(name) or self.sonic.processes[name]
        process.popen.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.popen.send_signal(signal.SIGCONT)

    def disconnect(self, kind):
        self.sonic.appl.execute_command("CLIENT", "KILL", "TYPE", kind)

    def cut(self, _):
        """Breaks FPM's connection at a random moment, if the kernel supports it."""
        with contextlib.suppress(CommandFailed):
            self.host.run("ss", "-K", "dport", "=", "2620")

    def chip(self, what):
        """Stalls the switch for a while, or fills its tables."""
        order, back = {"stalls": ("stall=on", "stall=off"), "is full": ("ipv4-routes=300 ipv6-routes=30", "ipv4-routes=4194304 ipv6-routes=2097152")}[what]
        # One that is started meanwhile has the usual settings.
        with contextlib.suppress(OSError, ValueError):
            self.sonic.query(f"set {order}")
        time.sleep(self.random.uniform(0.5, 4))
        with contextlib.suppress(OSError, ValueError):
            self.sonic.query(f"set {back}")

    def restart_router(self, _):
        self.router.process.kill()
        self.router.start()
        # A client whose session is gone announces everything again.
        self.announce()

    def restart_redis(self, how, meanwhile=None):
        """Runs `meanwhile` between the snapshot that Redis returns with and its end."""
        with self.supervisor.lock:
            redis = self.sonic.redis
            config = {key: redis.db(CONFIG).hgetall(key) for key in redis.db(CONFIG).keys()}
            if how == "its data of before":
                redis.db(0).save()
                meanwhile() if meanwhile else time.sleep(self.random.uniform(0, 1))
            elif how == "its data":
                # Every write is on the disk before it is answered.
                redis.db(0).config_set("appendonly", "yes")
                redis.db(0).config_set("appendfsync", "always")
                wait_for("the file is written", lambda: redis.db(0).info("persistence")["aof_rewrite_in_progress"] == 0
                         and redis.db(0).info("persistence")["aof_rewrite_scheduled"] == 0, 10)
                time.sleep(self.random.uniform(0, 1))
            redis.process.kill()
            if how == "nothing":
                time.sleep(self.random.uniform(0, 1))
            redis.start(append=how == "its data")
            redis.db(0).config_set("appendonly", "no")
            for file in [*self.host.folder.glob("dump.rdb"), *self.host.folder.glob("appendonlydir/*")]:
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()
            for key, fields in config.items():
                redis.db(CONFIG).hset(key, mapping=fields)
        if how != "its data":
            self.sonic.everything_else()

    def faults(self):
        """The faults with their frequencies; slow ones are rare."""
        usual = ([(self.kill, name) for name in DAEMONS] + [(self.stall, name) for name in (*DAEMONS, "redis")]
                + [(self.disconnect, kind) for kind in ("normal", "pubsub")] + [(self.restart_router, "")]
                + [(self.restart_redis, how) for how in ("its data", "its data of before", "nothing")]
                + [(self.cut, "")] + [(self.chip, what) for what in ("stalls", "is full")])
        seldom = [(self.stall_long, name) for name in ("fpmsyncd", "orchagent", "ribtide")]
        return usual + seldom, [4] * len(usual) + [1] * len(seldom)

    def round(self):
        faults = self.random.choices(*self.faults(), k=self.random.choice((1, 1, 2, 3)))
        self.told.append([(fault.__name__, what) for fault, what in faults])
        print(f"{self.combination} round {len(self.told)}: {self.told[-1]}", flush=True)
        self.load()
        for fault, what in faults:
            time.sleep(self.random.uniform(0, 1.5))
            fault(what)

    def in_chip(self):
        counts = self.sonic.query("counts")
        return counts["ipv4_routes"] + counts["ipv6_routes"]

    def check(self):
        """Every route of the load is in the router, and what the router has is everywhere, and nothing else."""
        sent = sum(self.size)
        wait_for("the table is here", lambda: self.router.count() == sent, 60, alive=[self.router.process, self.feed])
        if self.asic_db == "off":
            # Default and link-local routes, and the addresses of two ports.
            want = selected(self.router)
            wait_for("the chip has as many", lambda: self.in_chip() == len(want) + 8, 60, 0.5)
            right = settled(lambda: self.check_chip(want))
            assert self.sonic.chip_routes() == 0
        else:
            # A daemon that notices late describes everything again, so both hold in the end and not one after the other.
            right = settled(lambda: self.check_chip(self.agree()))
        if self.suppress:
            wait_for("everything is confirmed", lambda: self.unconfirmed() == (0, 0), 60, 0.5, alive=[self.router.process])
        self.losses += sent - len(right & self.router.table().keys())
        assert self.losses == 0
        self.route_check("--socket", self.router.socket)
        # It compares databases: where one is kept.
        if "off" not in (self.appl_db, self.asic_db):
            self.route_check("--sonic", "--database-config", self.sonic.redis.config, "--syncd", self.host.folder / "syncd.sock")

    def route_check(self, *of):
        done = subprocess.run([binary(), "route-check", "--full", "--wait", str(30 * TIMEOUT_FACTOR), *map(str, of)],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (of, done.stdout[:3000], done.stderr)

    def unconfirmed(self):
        """The number of routes without a response, and of failed ones."""
        summary = json.loads(self.router.text("show", "route", "summary", "--json"))
        return summary["bgp"]["waiting"], summary["bgp"]["blocked"]

    def agree(self):
        """Checks that the databases have all routes of the router that the switch must have."""
        want = selected(self.router)
        whole = self.own | want
        have = self.sonic.chip().routes()
        wrong = [(p, whole.get(p), have.get(p)) for p in whole.keys() | have.keys() if whole.get(p) != have.get(p)]
        assert not wrong, (len(wrong), sorted(wrong, key=str)[:5])
        assert self.sonic.chip().unused() == []
        if self.appl_db == "off":
            assert self.sonic.route_count() == 0
        else:
            check_rows(self.sonic, self.router, want, "rewritten")
        assert self.sonic.in_flight() == 0
        return have

    def check_chip(self, want):
        """Checks every route in the virtual switch."""
        answers = self.sonic.query_all(f"route {prefix}" for prefix in want)
        for prefix, answer in zip(want, answers):
            assert answer, f"{prefix} is not in the switch"
            hops = tuple(sorted(h["gateway"] for h in answer["hops"] if h["gateway"]))
            port = {h["port"] for h in answer["hops"] if not h["gateway"]}
            where = {("drop", ()): ("drop",), ("forward", ()): ("cpu",) if port == {"CPU"} else ("interface",)}.get((answer["action"], hops), hops)
            assert where == want[prefix], (answer, want[prefix])
        return want.keys()

    def run(self, rounds):
        self.supervisor = Supervisor(self.sonic)
        try:
            for _ in range(rounds):
                self.round()
                self.check()
        except BaseException:
            print(f"{self.combination} failed in round {len(self.told)}, losses {self.losses}: {self.told}", flush=True)
            raise
        finally:
            self.supervisor.close()
        print(f"{self.combination}: {rounds} rounds, {self.supervisor.started} daemons started again, losses {self.losses}", flush=True)


@pytest.mark.long
@pytest.mark.parametrize("combination,suppress", itertools.product(COMBINATIONS, (False, True)) if "CAMPAIGN_ROUNDS" in os.environ else SHORT)
def test_campaign(host, combination, suppress):
    Campaign(host, combination, SEED, suppress).run(ROUNDS)


@pytest.mark.long
@pytest.mark.parametrize("combination", ["redis-sync", "redis-async", "zmq-redis"])
def test_redis_comes_back(host, combination):
    """Redis returns with its data, with old data, and without data."""
    campaign = Campaign(host, combination, 0)
    campaign.supervisor = Supervisor(campaign.sonic)

    def replace():
        campaign.load()
        campaign.check()

    try:
        for how in ("its data", "its data of before", "nothing"):
            campaign.load()
            if how == "its data of before":
                campaign.check()
            campaign.restart_redis(how, replace)
            campaign.check()
    finally:
        campaign.supervisor.close()
