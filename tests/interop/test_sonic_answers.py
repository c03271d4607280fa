"""FIB suppression between SONiC's daemons: orchagent sends responses directly to fpmsyncd, and
publishes them in Redis afterwards. No route is confirmed that the switch does not have, and
every route is confirmed in the end, whichever daemon is killed."""

import contextlib
import json
import re
import signal
import subprocess

import pytest
from harness import Host, Ribtide, binary, fpm, wait_for
from harness.config import HEAD, external
from harness.sonic import CONFIG, Sonic
from harness.speaker import Speaker, prefixes as nlri, raw_update
from test_sonic import connect_fpm, ifindex, own_routes
from test_sonic_warm import COMBINATIONS, Warm
from test_suppression import Receiver, announce, failed

CHANNEL = "APPL_DB_ROUTE_TABLE_RESPONSE_CHANNEL"
STATES = 14
#: A label without a route.
MARK = 99
#: Every other wave ends with a kill, but not the last: who is new must answer, too.
SIZE, WAVES = 2000, 7


def channel(sonic):
    return sonic.setting("fpmsyncd", "responses")["active"]


SENDER, RECEIVER = Host.FEEDS
ROUTER = (HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + external("receiver", 65020, RECEIVER, 'export = ["accept"]')
          + '[fib]\nsuppress-fib-pending = true\nkernel = { table = 100 }\nfpm = ["127.0.0.1:2620"]\n')


def prefix(n):
    return f"20.{n >> 8}.{n & 255}.0/24"


class Daemon:
    """A routing daemon that checks the switch at each reply."""

    def __init__(self, sonic):
        self.sonic, self.port = sonic, ifindex(sonic.host, "Ethernet0")
        self.announced, self.confirmed = {}, set()
        self.connect()

    def connect(self):
        self.client = connect_fpm(self.sonic)
        self.confirmed = set()
        self.send(self.announced)

    def announce(self, routes):
        self.announced |= routes
        self.confirmed -= routes.keys()
        self.send(routes)

    def send(self, routes):
        self.client.send(b"".join(fpm.route(fpm.NEWROUTE, p, f"193.203.0.{hop}", self.port) for p, hop in routes.items()))

    def hear(self):
        """Handles all replies of fpmsyncd, whatever the switch has."""
        # The route of a label is answered at once, and behind what was said before.
        self.client.send(fpm.label_route(fpm.NEWROUTE, MARK, kind=6))
        heard = []
        wait_for("fpmsyncd answers", lambda: heard.extend(self.client.replies(1, 1)) or (heard and heard[-1][0] == MARK), 60, 0, alive=self.sonic.alive())
        return [p for p, *_ in heard[:-1]]

    def listen(self, timeout=0.3):
        replies = self.client.replies(500, timeout)
        told = [p for p, _, _, offloaded in replies if offloaded]
        assert len(told) == len(replies)
        self.look(told)
        return replies

    def look(self, told):
        """Checks that confirmed routes are in the switch."""
        answers = self.sonic.query_all([f"route {p}" for p in told])
        early = [p for p, answer in zip(told, answers) if not answer]
        assert not early, f"confirmed, and not in the switch: {early[:5]}"
        self.confirmed |= set(told)

    def listen_until_all(self, within=60):
        wait_for("everything is confirmed", lambda: self.listen() is not None and self.confirmed == self.announced.keys(), within, 0,
                 alive=self.sonic.alive())


@pytest.mark.parametrize("combination", COMBINATIONS)
@pytest.mark.parametrize("daemon", ["orchagent", "fpmsyncd"])
def test_either_side_is_killed(host, combination, daemon):
    sonic = Sonic(host, suppress=True, flags=COMBINATIONS[combination])
    own = own_routes(sonic)
    wait_for("orchagent answers", lambda: channel(sonic) == "direct", 20)
    router = Daemon(sonic)
    for wave in range(WAVES):
        # New ones, and others by another way.
        router.announce({prefix(n): 1 + wave for n in range(wave * SIZE // 2, wave * SIZE // 2 + SIZE)})
        router.listen()
        if wave % 2:
            sonic.processes[daemon].kill()
            if daemon == "orchagent":
                # A new one describes everything again: what the old one confirmed was true before that. Of what it said fpmsyncd
                # takes all, and then its end.
                sonic.processes.pop(daemon)
                wait_for("fpmsyncd knows", lambda: channel(sonic) != "direct", 20, alive=sonic.alive())
                router.look(router.hear())
            sonic.start(daemon)
            if daemon == "fpmsyncd":
                router.connect()
    router.listen_until_all()
    assert channel(sonic) == "direct"
    sonic.wait_routes("the switch has them all", own | {p: (f"193.203.0.{hop}",) for p, hop in router.announced.items()})
    states = sonic.redis.db(STATES)
    wait_for("APPL_STATE_DB has caught up", lambda: {k.removeprefix("ROUTE_TABLE:") for k in states.keys("ROUTE_TABLE:*")} >= router.announced.keys(), 60)
    # No client waits for an answer to what is gone, and nothing of it stays.
    router.client.send(b"".join(fpm.route(fpm.DELROUTE, p) for p in router.announced))
    # A row sent twice may be answered twice, until fpmsyncd knows that.
    router.hear()
    sonic.wait_routes("all are gone", own)
    wait_for("and nothing is confirmed", lambda: not [k for k in states.keys("ROUTE_TABLE:20.*")], 60)
    # orchagent has answered everything when it answers what comes last.
    router.announced, router.confirmed = {}, set()
    router.announce({prefix(WAVES * SIZE): 7})
    router.listen_until_all()


def test_other_clients_get_publications_as_before(host):
    """A subscriber to SONiC's channel, by name or pattern, gets SONiC's message for each
    response."""
    sonic = Sonic(host, suppress=True)
    own_routes(sonic)
    router = Daemon(sonic)
    states = sonic.redis.db(STATES)
    for subscribe in ("subscribe", "psubscribe"):
        listener = states.pubsub(ignore_subscribe_messages=True)
        getattr(listener, subscribe)(CHANNEL if subscribe == "subscribe" else "APPL_DB_ROUTE*")
        listener.get_message(timeout=1)
        router.announce({prefix(1): 7 if subscribe == "subscribe" else 8})
        router.listen_until_all()
        message = wait_for("a message", lambda: listener.get_message(timeout=0.2), 10)
        assert message["data"] == json.dumps(["SWSS_RC_SUCCESS", prefix(1), "err_str", "SWSS_RC_SUCCESS", "protocol", "bgp"],
                                             separators=(",", ":"))
        assert states.hgetall(f"ROUTE_TABLE:{prefix(1)}") == {"protocol": "bgp"}
        listener.close()


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_what_the_chip_has_waits_for_nothing_else(host, combination):
    """Responses are batched, but present ones do not wait for those of a slow chip."""
    sonic = Sonic(host, suppress=True, flags=COMBINATIONS[combination])
    own_routes(sonic)
    wait_for("orchagent answers", lambda: channel(sonic) == "direct", 20)
    router = Daemon(sonic)
    sonic.query("set bulk-us=2000000")
    # More than one bulk. On a machine that stood still between two of them they look like one.
    for wave in range(5):
        router.announce({prefix(n): 7 for n in range(wave * SIZE, (wave + 1) * SIZE)})
        first = wait_for("some are confirmed", lambda: router.client.replies(SIZE, 0.5), 60, 0, alive=sonic.alive())
        router.look([p for p, *_ in first])
        router.listen_until_all()
        if len(first) < SIZE:
            return
    pytest.fail("all were confirmed at once")


#: More than orchagent takes while the chip stands still.
FILL = 50_000
FORMER = COMBINATIONS | {f"zmq, {kept}": COMBINATIONS["zmq"] | {"fpmsyncd": [*COMBINATIONS["zmq"]["fpmsyncd"], "--appl-db", kept]} for kept in ("in-line", "off")}


@pytest.mark.parametrize("as_before", [False, True], ids=["as the former", "as the chip"])
@pytest.mark.parametrize("combination", FORMER)
def test_what_a_former_fpmsyncd_sent_confirms_nothing(host, combination, as_before):
    """fpmsyncd is killed while its rows wait for a stalled chip: in the state machine, in
    queues, in sockets, in Redis. Its successor confirms nothing until the chip has its own rows."""
    sonic = Sonic(host, suppress=True, flags=FORMER[combination])
    own_routes(sonic)
    wait_for("orchagent answers", lambda: channel(sonic) == "direct", 20)
    router = Daemon(sonic)
    some = {prefix(n): 7 for n in range(SIZE)}
    router.announce(some)
    router.listen_until_all()
    order = lambda what: subprocess.run([binary(), "config", "asic", "--syncd", host.folder / "syncd.sock", what], check=True, capture_output=True)
    order("stall")
    # Routes that are not in the chip take orchagent's places; then others come by another way, and by a third.
    router.send({f"{30 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24": 7 for n in range(FILL)})
    router.send(dict.fromkeys(some, 8))
    router.listen(1)
    router.send(dict.fromkeys(some, 9))
    row = lambda p: sonic.appl.hgetall(f"_ROUTE_TABLE:{p}") or sonic.appl.hgetall(f"ROUTE_TABLE:{p}")
    if "off" not in combination:
        wait_for("all was written", lambda: all(row(p)["nexthop"] == "193.203.0.9" for p in list(some)[::50]), 60)
    router.listen(1)
    sonic.processes["fpmsyncd"].kill()
    sonic.start("fpmsyncd")
    router.announced = dict.fromkeys(some, 7 if as_before else 9)
    router.connect()
    assert router.listen(3) == [], "the chip stands still, and what it has is not the last that was sent"
    order("resume")

    def listen():
        told = [p for p, *_ in router.listen()]
        for p, hop in zip(told, sonic.query_all([f"route {p}" for p in told])):
            assert [h["gateway"] for h in hop["hops"]] == [f"193.203.0.{router.announced[p]}"], p
        return router.confirmed == router.announced.keys()
    wait_for("everything is confirmed", listen, 60, 0, alive=sonic.alive())


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_warm_with_suppression(host, combination):
    """After a warm restart, routes in the switch are confirmed at once without writes; missing
    ones are not."""
    sonic = Warm(host, combination, suppress=True)
    own = own_routes(sonic)
    wait_for("orchagent answers", lambda: channel(sonic) == "direct", 20)
    router = Daemon(sonic)
    router.announce({prefix(n): 7 for n in range(SIZE)})
    router.listen_until_all()
    routes = own | {p: ("193.203.0.7",) for p in router.announced}
    sonic.wait_routes("they are there", routes)
    # A lie, as one that is behind may tell it: its next hop is not its own.
    nowhere = prefix(SIZE)
    router.announce({nowhere: 222})
    states = sonic.redis.db(STATES)
    wait_for("it is asked for", lambda: sonic.in_flight() == 0 and (combination == "zmq" or sonic.appl.exists(f"ROUTE_TABLE:{nowhere}")), 20)
    # Over ZeroMQ APPL_DB is behind, and what it lacks would be written after the restart.
    wait_for("APPL_DB has caught up", lambda: len(sonic.appl.keys("ROUTE_TABLE:20.*")) >= SIZE, 60)
    wait_for("APPL_STATE_DB has caught up", lambda: len(states.keys("ROUTE_TABLE:20.*")) == SIZE, 60)
    states.hset(f"ROUTE_TABLE:{nowhere}", "protocol", "bgp")
    sonic.enable()
    sonic.end("fpmsyncd")
    sonic.start("fpmsyncd")
    del router.announced[nowhere]
    router.connect()
    sonic.state.hset("BGP_STATE_TABLE|IPv4|eoiu", "state", "reached")
    sonic.state.hset("BGP_STATE_TABLE|IPv6|eoiu", "state", "reached")
    router.listen_until_all()
    router.announce({nowhere: 222})
    wait_for("fpmsyncd is reconciled", lambda: sonic.warm_state("bgp") == "reconciled", 40)
    assert {route[0] for key in sonic.heard() if (route := re.search(r"20\.\d+\.\d+\.0/24", key))} == {nowhere}
    assert router.listen(1) == []
    sonic.neighbor("Ethernet0", "193.203.0.222")
    router.listen_until_all()
    sonic.wait_routes("all are there", routes | {nowhere: ("193.203.0.222",)})


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_on_and_off_at_run_time(host, combination):
    """The daemons follow CONFIG_DB. On: a later announcement waits for the chip. Off: waiting
    routes are confirmed at once. Under any number of changes, a route announced while it was on
    is confirmed after the switch has it."""
    sonic = Sonic(host, flags=COMBINATIONS[combination])
    own = own_routes(sonic)
    router = Daemon(sonic)
    order = lambda what: subprocess.run([binary(), "config", "asic", "--syncd", host.folder / "syncd.sock", what], check=True, capture_output=True)

    def obeys(daemon, on):
        wait_for(f"{daemon} obeys", lambda: sonic.setting(daemon, "suppress-fib-pending")["active"] == ("enabled" if on else "disabled"), 20, 0.02)

    def suppress(on, first="fpmsyncd"):
        done = subprocess.run([binary(), "config", "sonic", "suppress-fib-pending", "enable" if on else "disable", "--database-config", sonic.redis.config],
                              check=True, capture_output=True, text=True)
        assert "from now on" in done.stdout, done
        obeys(first, on)

    @contextlib.contextmanager
    def slow(daemon):
        """Gets changes later than the other one."""
        process = sonic.processes[daemon].popen
        process.send_signal(signal.SIGSTOP)
        yield
        process.send_signal(signal.SIGCONT)

    def told(count):
        replies = router.client.replies(count, 60)
        assert len(replies) == count and all(offloaded for *_, offloaded in replies)
        return {p for p, *_ in replies}

    def confirmed():
        """Whether all routes are confirmed, each after the switch had it."""
        router.confirmed = set()
        while router.confirmed != router.announced.keys():
            some = told(1) | {p for p, *_ in router.client.replies(500, 0.01)}
            for p, answer in zip(some, sonic.query_all([f"route {p}" for p in some])):
                assert answer and [h["gateway"] for h in answer["hops"]] == [f"193.203.0.{router.announced[p]}"], (p, answer)
            router.confirmed |= some

    def announce(hop, first, last):
        routes = {prefix(n): hop for n in range(first, last)}
        router.announce(routes)
        return routes.keys()

    order("stall")
    assert told(len(before := announce(7, 0, SIZE))) == before, "it is off, and no client waits"
    suppress(True)
    late = announce(7, SIZE, 2 * SIZE) | announce(8, 0, SIZE // 2)
    # It follows too; and what it was handed while answers were not counted is no answer to what came since.
    wait_for("orchagent answers", lambda: channel(sonic) == "direct", 20)
    assert sonic.setting("orchagent", "suppress-fib-pending")["active"] == "enabled"
    assert router.client.replies(1, 1) == []
    suppress(False)
    assert told(len(late)) == late, "who waited is told at once"
    suppress(True)
    some = announce(9, SIZE // 4, SIZE)
    assert router.client.replies(1, 1) == []
    order("resume")
    router.announced, everything = {p: 9 for p in some}, dict(router.announced)
    confirmed()
    assert router.client.replies(1, 1) == [], "each is told once"
    states = sonic.redis.db(STATES)
    rows = lambda: {k.removeprefix("ROUTE_TABLE:") for k in states.keys("ROUTE_TABLE:20.*")}
    wait_for("APPL_STATE_DB has them all, asked or not", lambda: rows() == everything.keys(), 60)

    for wave, last in enumerate(2 * ["both", "orchagent", "fpmsyncd"]):
        # By another way, while it goes off and on.
        hop = 20 + 2 * wave
        everything |= dict.fromkeys(announce(hop, 0, SIZE), hop)
        suppress(False)
        router.hear()
        assert told(len(now := announce(hop + 1, SIZE, 2 * SIZE))) == now
        everything |= dict.fromkeys(now, hop + 1)
        router.announced = {}
        if last == "orchagent":
            obeys("orchagent", False)
            with slow(last):
                suppress(True)
                announce(hop + 1, SIZE // 2, 2 * SIZE - wave)
                assert router.client.replies(1, 1) == []
        else:
            if last == "fpmsyncd":
                with slow(last):
                    suppress(True, first="orchagent")
                obeys(last, True)
            else:
                suppress(True)
            announce(hop + 1, SIZE // 2, 2 * SIZE - wave)
        everything |= router.announced
        confirmed()
    assert router.client.replies(1, 1) == []
    sonic.wait_routes("the switch has the last of each", own | {p: (f"193.203.0.{hop}",) for p, hop in everything.items()})
    # Nothing of CONFIG_DB is no word about it.
    sonic.redis.db(CONFIG).delete("DEVICE_METADATA|localhost")
    router.announced = {}
    order("stall")
    announce(6, 0, 10)
    assert router.client.replies(1, 3) == []
    order("resume")
    confirmed()


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_session_after_a_burst_writes_nothing(host, combination):
    """Rows of a route coalesce before orchagent takes them, and one response covers several. So
    the next session, without changes, writes nothing."""
    sonic = Warm(host, combination, suppress=True)
    own = own_routes(sonic)
    wait_for("orchagent answers", lambda: channel(sonic) == "direct", 20)
    router = Daemon(sonic)
    orchagent = sonic.processes["orchagent"].popen
    for stopped in (True, False):
        if stopped:
            orchagent.send_signal(signal.SIGSTOP)
        for hop in (7, 8, 9):
            router.announce({prefix(n): hop for n in range(SIZE)})
            row = lambda n: sonic.appl.hgetall(f"_ROUTE_TABLE:{prefix(n)}") or sonic.appl.hgetall(f"ROUTE_TABLE:{prefix(n)}")
            if combination != "zmq":
                wait_for("that is written", lambda: all(row(n).get("nexthop") == f"193.203.0.{hop}" for n in (0, SIZE // 2, SIZE - 1)), 20, 0.01)
        orchagent.send_signal(signal.SIGCONT)
        router.listen_until_all()
        sonic.wait_routes("they are there", own | {p: ("193.203.0.9",) for p in router.announced})
        if combination == "zmq":
            hops = lambda: {p: row.get("nexthop") for p, row in sonic.routes().items()}
            wait_for("APPL_DB has caught up", lambda: hops() == dict.fromkeys(router.announced, "193.203.0.9"), 60)
        for _ in range(2):
            sonic.heard()
            operations = sonic.operations()
            router.client.close()
            router.connect()
            router.listen_until_all()
            assert sonic.heard() == [] and sonic.operations() == operations


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_route_refused_by_the_chip_is_named_and_never_advertised(host, combination):
    """A peer of the router gets no route before the switch has it, and none that the switch
    refuses. The router shows the reason from orchagent."""
    flags = COMBINATIONS[combination] | {"syncd": [*COMBINATIONS[combination].get("syncd", []), "--chip", "fail-rate=0.01", "--chip", "rate=5000"]}
    sonic = Sonic(host, suppress=True, flags=flags)
    own_routes(sonic)
    wait_for("orchagent answers", lambda: channel(sonic) == "direct", 20)
    chip = lambda *order: subprocess.run([binary(), "config", "asic", "--syncd", host.folder / "syncd.sock", *order], check=True, capture_output=True)
    in_the_chip = lambda texts: {p for p, answer in zip(texts, sonic.query_all([f"route {p}" for p in texts])) if answer}
    router = Ribtide(host, ROUTER)
    receiver = Receiver(host, in_the_chip)
    sender = Speaker(host, SENDER, 65010)

    def named(why):
        return {p for p, route in failed(router).items() if route["reason"] == f"the FPM server says: {why}"}
    everything = [prefix(n) for n in range(5000)]
    announce(sender, everything, "193.203.0.7")
    receiver.listen(lambda: len(receiver.table) >= 4900, 120)
    by_chip = "the chip refused it: SAI_STATUS_FAILURE"
    receiver.listen(lambda: set(everything) - receiver.table == named(by_chip), 60)
    refused = named(by_chip)
    assert failed(router).keys() == refused == set(everything) - in_the_chip(everything)
    assert 20 <= len(refused) <= 80 and receiver.ever == set(everything) - refused, "one that failed was told"
    assert by_chip in router.explain(min(refused))["conclusion"], router.explain(min(refused))

    # By another way, with what was refused before among them, while the switch stalls: nothing is told of what it has not confirmed.
    some = sorted(refused)[:10] + sorted(set(everything) - refused)[:100]
    chip("stall")
    sender.send(raw_update(withdrawn=nlri(some)))
    receiver.listen(lambda: not receiver.table & set(some))
    announce(sender, some, "193.203.0.8")
    receiver.quiet()
    assert not receiver.table & set(some)
    chip("resume")
    receiver.listen(lambda: receiver.table == set(everything) - refused and named(by_chip) == refused)
    assert receiver.ever == set(everything) - refused

    # A full table: what comes is refused until there is room.
    chip("set", "ipv4-routes=100")
    more = [prefix(n) for n in range(5000, 5050)]
    announce(sender, more, "193.203.0.7")
    full = "the chip's table of ipv4-unicast routes is full"
    receiver.listen(lambda: named(full) >= set(more))
    assert not receiver.ever & set(more)
    # The causes clear: everything is tried again, and told.
    chip("set", "ipv4-routes=100000", "fail-rate=0")
    receiver.listen(lambda: receiver.table == {*everything, *more}, 120)
    wait_for("nothing fails", lambda: not failed(router), 20)
    assert router.neighbor(RECEIVER)["flaps"] == 0
