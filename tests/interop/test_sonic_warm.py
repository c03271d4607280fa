"""Warm restarts of SONiC's daemons: without a change nothing is written and the switch gets no
request; otherwise exactly the changes. Redis's notifications count writes, and the switch counts
requests."""

import json
import signal
import time

import pytest
from harness import FEED_ASN, Ribtide, blast, fpm, settled, wait_for
from harness.peers import FEEDS
from harness.sonic import APPL, ASIC, CONFIG, STATE, Sonic
from harness.speaker import END_OF_RIB, Speaker, prefixes, raw_update, update
from test_sonic import TWO_FEEDS, check, connect_fpm, ifindex, own_routes

COMBINATIONS = {
    "redis_sync": {},
    "redis_async": {"syncd": ["-z", "redis_async", "-R"], "orchagent": ["-z", "redis_async", "-R", "-A"]},
    "zmq": {"syncd": ["-z", "zmq_sync"], "orchagent": ["-z", "zmq_async", "-q", "tcp://127.0.0.1", "--route-zmq"],
            "fpmsyncd": ["-q", "tcp://127.0.0.1"]},
}
QUEUED = {"ROUTE_TABLE_KEY_SET", "ROUTE_TABLE_DEL_SET"}
#: What travels, and says how far it is, rather than what is kept.
QUEUES = ("ASIC_STATE_KEY_VALUE_OP_QUEUE", "GETRESPONSE_KEY_VALUE_OP_QUEUE", "RIBTIDE_REQUESTS_OWED", "RIBTIDE_IN_VIEW", "RIBTIDE_SYNCD_RUN")

#: The channel that says how far one has heard.
HERE = "TEST_HERE"


class Warm(Sonic):
    """The daemons, allowed to start warm from the second time on."""

    def __init__(self, host, combination, **kw):
        super().__init__(host, flags=COMBINATIONS[combination], **kw)
        with open(host.folder / "sai.profile", "a") as profile:
            profile.write(f"SAI_WARM_BOOT_WRITE_FILE={host.folder}/switch\nSAI_WARM_BOOT_READ_FILE={host.folder}/switch\n")
        # syncd read its profile before it named the file.
        for name in self.processes:
            self.processes[name].kill()
        self.redis.process.kill()
        self.redis.start()
        self.configure()
        for name in list(self.processes):
            self.start(name)
        self.everything_else()
        self.state = self.redis.db(STATE)
        self.listener = self.redis.db(APPL).pubsub()
        self.listener.psubscribe(f"__keyspace@{APPL}__:*", f"__keyspace@{ASIC}__:*", "RESTARTCHECKREPLY", HERE)

    def enable(self):
        self.state.hset("WARM_RESTART_ENABLE_TABLE|system", "enable", "true")
        self.heard()

    def heard(self):
        """Keys of APPL_DB and ASIC_DB written since the last call, and responses."""
        keys = []
        # What is late, and then up to here.
        time.sleep(0.3)
        self.redis.db(APPL).publish(HERE, "")
        while message := self.listener.get_message(timeout=60):
            if message["type"] != "pmessage":
                continue
            key = message["channel"].split("__:", 1)[-1]
            if key == HERE:
                return keys
            if key == "RESTARTCHECKREPLY":
                keys.append(json.loads(message["data"])[1])
            elif key not in QUEUES:
                keys.append(key)
        raise AssertionError("Redis says nothing")

    def warm_state(self, app):
        return self.state.hget(f"WARM_RESTART_TABLE|{app}", "state")

    def asked_to_stop(self, **values):
        """SONiC's orchagent_restart_check."""
        flags = [text for pair in values.items() for text in pair]
        self.redis.db(APPL).publish("RESTARTCHECK", json.dumps(["orchagent", "orchagent", *flags]))
        return wait_for("orchagent answers", lambda: [a for a in self.heard() if a in ("READY", "NOT_READY")], 10, 0.05)

    def end(self, name):
        if name == "orchagent":
            # A network of an interface that is no port waits for ever.
            assert self.asked_to_stop(SkipPendingTaskCheck="true") == ["READY"]
            self.processes[name].kill()
        elif name == "syncd":
            self.redis.db(ASIC).publish("RESTARTQUERY", '["WARM","WARM"]')
            wait_for("syncd ends", lambda: self.processes[name].poll() == 0, 20)
        else:
            self.processes[name].kill()

    def end_all(self, names):
        """Ends the daemons in SONiC's order: the client before the server."""
        # Without asking for a stand-still syncd may go alone, while idle.
        for name in names:
            self.end(name)

    def again(self, names):
        for app in ("bgp", "orchagent", "syncd"):
            self.state.hset(f"WARM_RESTART_TABLE|{app}", "state", "-")
        for name in names:
            self.start(name)
        for name in names:
            app = "bgp" if name == "fpmsyncd" else name
            wait_for(f"{name} is reconciled", lambda: self.warm_state(app) == "reconciled", 40, alive=self.alive())

    def written(self):
        """Keys written since the last call, except routes that have a row and are not in the
        switch: networks of interfaces that are no ports. With FIB suppression a new fpmsyncd
        sends those again, because they are not confirmed."""
        host = lambda key: key if "/" in key else f"{key}/{128 if ':' in key else 32}"
        keys = [(key, key.split("ROUTE_TABLE:")[-1]) for key in self.heard()]
        rows = [key for key in {key for _, key in keys} if key in self.routes()]
        waiting = {key for key, route in zip(rows, self.query_all([f"route {host(key)}" for key in rows])) if not route}
        keys = [key for key, route in keys if route not in waiting]
        return [] if waiting and set(keys) <= QUEUED else keys

    def operations(self):
        return self.query("counts")["operations"]


#: Each alone, all together, in the order in which they end; they start in the other one.
RESTARTS = [["fpmsyncd"], ["orchagent"], ["syncd"], ["fpmsyncd", "orchagent", "syncd"]]


@pytest.mark.parametrize("suppress", [False, True], ids=["", "suppressed"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_warm(host, combination, suppress):
    sonic = Warm(host, combination, suppress=suppress)
    own = own_routes(sonic)
    router = Ribtide(host, TWO_FEEDS.replace("[fib]\n", "[fib]\nsuppress-fib-pending = true\n") if suppress else TWO_FEEDS)
    appl_db = "behind" if combination == "zmq" else "in-line"
    check(sonic, router, own, appl_db)
    blast(host, 3000, 300)
    wait_for("the table is here", lambda: router.count() == 3300, 60, alive=[router.process])
    feed = Speaker(host, FEEDS[0], FEED_ASN)
    feed.send(update(["192.0.2.0/24", "0.0.0.0/0"], [FEED_ASN, 7], "193.203.0.33") + END_OF_RIB)
    wait_for("so are two more", lambda: router.count() == 3302, 30)
    check(sonic, router, own, appl_db)
    sonic.enable()
    for names in RESTARTS:
        before = sonic.operations()
        sonic.end_all(names)
        sonic.again(names[::-1])
        assert (sonic.written() if suppress else sonic.heard()) == [], names
        # A new syncd counts from 0.
        assert sonic.operations() - (0 if "syncd" in names else before) == 0, names
        check(sonic, router, own, appl_db)
    # The world changes while they are away.
    for n, names in enumerate(RESTARTS):
        before = 0 if "syncd" in names else sonic.operations()
        sonic.end_all(names)
        feed.send(update([f"192.0.{n + 3}.0/24"], [FEED_ASN, 7], "193.203.0.34"))
        feed.send(raw_update(prefixes([f"192.0.{n + 2}.0/24"])))
        wait_for("the router knows", lambda: f"192.0.{n + 3}.0/24" in router.table() and f"192.0.{n + 2}.0/24" not in router.table(), 30)
        sonic.again(names[::-1])
        wait_for("the change is made", lambda: sonic.route(f"192.0.{n + 3}.0/24") and not sonic.route(f"192.0.{n + 2}.0/24"), 30, alive=sonic.alive())
        # ASIC_DB says so a moment after the switch does.
        settled(lambda: check(sonic, router, own, appl_db), 30, 0.1)
        # One more, one less, and nothing else.
        written = {key.split("dest\":\"")[-1].split('"')[0].split("ROUTE_TABLE:")[-1] for key in (sonic.written() if suppress else sonic.heard())}
        written -= QUEUED
        assert written == {f"192.0.{n + 2}.0/24", f"192.0.{n + 3}.0/24"}, names
        assert sonic.operations() - before == 2, names
    # A default route that is there stays there all the time.
    assert sonic.state.hget("ROUTE_TABLE|0.0.0.0/0", "state") == "ok"


@pytest.mark.parametrize("combination", ["redis_sync", "redis_async"])
def test_fpmsyncd_beside_an_orchagent_that_stands_still(host, combination):
    """fpmsyncd waits for a late snapshot of the chip: until then it writes nothing. It does not
    wait for an orchagent that ended."""
    sonic = Warm(host, combination, suppress=True)
    own = own_routes(sonic)
    router = Ribtide(host, TWO_FEEDS.replace("[fib]\n", "[fib]\nsuppress-fib-pending = true\n"))
    check(sonic, router, own)
    feed = Speaker(host, FEEDS[0], FEED_ASN)
    feed.send(update([f"20.0.{n}.0/24" for n in range(100)], [FEED_ASN, 7], "193.203.0.33"))
    wait_for("the table is here", lambda: router.count() == 100, 30)
    check(sonic, router, own)
    sonic.enable()
    orchagent = sonic.processes["orchagent"].popen
    before = sonic.operations()
    for change in (False, True):
        orchagent.send_signal(signal.SIGSTOP)
        sonic.end("fpmsyncd")
        sonic.again(["fpmsyncd"])
        if change:
            feed.send(update(["20.0.7.0/24"], [FEED_ASN, 7], "193.203.0.34"))
        # Longer than for one that is not there.
        time.sleep(6)
        assert sonic.heard() == []
        orchagent.send_signal(signal.SIGCONT)
        wait_for("it is heard", lambda: sonic.setting("fpmsyncd", "responses")["active"] == "direct", 30)
        settled(lambda: check(sonic, router, own), 30, 0.1)
        written = {key.split("dest\":\"")[-1].split('"')[0].split("ROUTE_TABLE:")[-1] for key in sonic.written()}
        assert written - QUEUED == ({"20.0.7.0/24"} if change else set())
        assert sonic.operations() - before == change
    orchagent.send_signal(signal.SIGSTOP)
    sonic.end("fpmsyncd")
    sonic.again(["fpmsyncd"])
    feed.send(update(["20.0.7.0/24"], [FEED_ASN, 7], "193.203.0.35"))
    time.sleep(6)
    assert sonic.heard() == []
    sonic.processes["orchagent"].kill()
    row = lambda: sonic.appl.hget("_ROUTE_TABLE:20.0.7.0/24", "nexthop")
    wait_for("the row is written for the next daemon", lambda: row() == "193.203.0.35", 20)
    sonic.again(["orchagent"])
    settled(lambda: check(sonic, router, own), 30, 0.1)


@pytest.mark.parametrize("mode", ["redis_sync", "redis_async"])
def test_whether_orchagent_may_stop(host, mode):
    """A waiting task prevents the stop, unless the request ignores it. orchagent stops only on
    request, and then takes no row from APPL_DB, prefetched or not."""
    sonic = Warm(host, mode)
    own = own_routes(sonic)
    sonic.enable()
    assert sonic.asked_to_stop(NoFreeze="true") == ["READY"]
    sonic.set("ROUTE_TABLE", "192.0.2.0/24", protocol="bgp", nexthop="193.203.0.200", ifname="Ethernet0")
    wait_for("the route waits", lambda: sonic.appl.exists("_NEIGH_RESOLVE_TABLE:Ethernet0:193.203.0.200"), 20)
    assert sonic.asked_to_stop() == ["NOT_READY"]
    assert sonic.asked_to_stop(NoFreeze="true", SkipPendingTaskCheck="true") == ["READY"]
    sonic.neighbor("Ethernet0", "193.203.0.200")
    sonic.wait_routes("it goes on", own | {"192.0.2.0/24": ("193.203.0.200",)})
    assert sonic.asked_to_stop() == ["READY"]
    sonic.set("ROUTE_TABLE", "192.0.3.0/24", protocol="bgp", nexthop="193.203.0.1", ifname="Ethernet0")
    assert sonic.heard() and sonic.chip().routes() == own | {"192.0.2.0/24": ("193.203.0.200",)}
    assert sonic.appl.smembers("ROUTE_TABLE_KEY_SET") == {"192.0.3.0/24"}
    sonic.processes["orchagent"].kill()
    sonic.again(["orchagent"])
    sonic.wait_routes("what it did not take waits for it", own | {"192.0.2.0/24": ("193.203.0.200",), "192.0.3.0/24": ("193.203.0.1",)})


def test_a_routing_daemon_that_starts_again(host):
    """Rows from zebra are held back until BGP has marked its end, or the timer has expired:
    APPL_DB gets only the difference."""
    sonic = Warm(host, "redis_sync")
    own = own_routes(sonic)
    sonic.redis.db(CONFIG).hset("WARM_RESTART|bgp", mapping={"bgp_timer": "12", "eoiu_hold": "3"})
    sonic.restart("fpmsyncd")
    port = ifindex(host, "Ethernet0")
    def announce(client, hops):
        client.send(b"".join(fpm.route(fpm.NEWROUTE, f"10.0.{n}.0/24", f"193.203.0.{hop}", port) for n, hop in hops.items()))
    def next_hops(hops):
        return {f"10.0.{n}.0/24": (f"193.203.0.{hop}",) for n, hop in hops.items()}
    hops = {n: 7 for n in range(50)}
    client = connect_fpm(sonic)
    announce(client, hops)
    sonic.wait_routes("all are there", own | next_hops(hops))
    sonic.enable()
    for mark in (True, False):
        client.close()
        client = connect_fpm(sonic)
        wait_for("it is held back", lambda: sonic.warm_state("bgp") == "restored", 10)
        # On the way there routes resolve elsewhere, and some are late.
        announce(client, dict.fromkeys(list(hops)[:40], 9))
        announce(client, hops)
        if mark:
            for family in ("IPv4", "IPv6"):
                sonic.state.hset(f"BGP_STATE_TABLE|{family}|eoiu", "state", "reached")
        else:
            sonic.state.delete("BGP_STATE_TABLE|IPv4|eoiu")
        assert sonic.heard() == [] and sonic.warm_state("bgp") == "restored"
        wait_for("it is over", lambda: sonic.warm_state("bgp") == "reconciled", 20)
        assert sonic.heard() == []
        assert sonic.chip().routes() == own | next_hops(hops)
    # Routes that are not announced again go, and new ones come.
    client.close()
    client = connect_fpm(sonic)
    del hops[0]
    hops[99] = 8
    announce(client, hops)
    for family in ("IPv4", "IPv6"):
        sonic.state.hset(f"BGP_STATE_TABLE|{family}|eoiu", "state", "reached")
    sonic.wait_routes("the difference is made", own | next_hops(hops))
    written = {key for key in sonic.heard() if key.startswith("ROUTE_TABLE:")}
    assert written == {"ROUTE_TABLE:10.0.0.0/24", "ROUTE_TABLE:10.0.99.0/24"}


def test_nothing_is_swept_before_the_end_of_the_clients_replay(host):
    """fpmsyncd takes silence for the end of a replay, except while it was stopped itself, or if
    the client marks the end."""
    sonic = Warm(host, "redis_sync")
    sonic.flags["fpmsyncd"] += ["--quiet", "2"]
    sonic.restart("fpmsyncd")
    own, port = own_routes(sonic), ifindex(host, "Ethernet0")
    prefixes = [f"11.{n >> 8}.{n & 255}.0/24" for n in range(12_000)]
    frames = [fpm.route(fpm.NEWROUTE, prefix, "193.203.0.7", port) for prefix in prefixes]
    routes = own | dict.fromkeys(prefixes, ("193.203.0.7",))
    client = connect_fpm(sonic)
    client.send(b"".join(frames))
    sonic.wait_routes("all are there", routes)
    sonic.heard()
    client.close()
    client = connect_fpm(sonic)
    client.send(b"".join(frames[:100]))
    assert len(client.replies(100)) == 100
    fpmsyncd = sonic.processes["fpmsyncd"].popen
    fpmsyncd.send_signal(signal.SIGSTOP)
    # More than one read takes.
    client.send(b"".join(frames[100:]))
    time.sleep(4)
    fpmsyncd.send_signal(signal.SIGCONT)
    assert len(client.replies(11_900)) == 11_900
    time.sleep(4)
    assert sonic.heard() == []
    client.close()
    client = connect_fpm(sonic)
    client.send(fpm.BEGIN + b"".join(frames[:100]))
    time.sleep(4)
    assert sonic.heard() == []
    client.send(b"".join(frames[100:-1]) + fpm.END)
    del routes[prefixes[-1]]
    sonic.wait_routes("what was not announced is gone", routes)
    assert {key for key in sonic.heard() if key.startswith("ROUTE_TABLE:")} == {f"ROUTE_TABLE:{prefixes[-1]}"}
    client.close()
    client = connect_fpm(sonic)
    client.send(b"".join(frames[:100]))
    sonic.wait_routes("silence is the end where nothing marks it", own | {prefix: routes[prefix] for prefix in prefixes[:100]})
