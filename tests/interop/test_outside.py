"""The rows of docs/trust.md ("When what lies beside misbehaves") in their smallest form. Each test looks at ribtide from outside
alone: at the kernel, Redis, the chip, a BGP neighbour, /proc and the exit status of `route-check`. So each runs with programs
as old as f345019, and fails there:

    RIBTIDE=PROGRAM python3 -m pytest tests/interop/test_outside.py
"""

import contextlib
import functools
import http.client
import json
import signal
import subprocess
import time

import pytest
from harness import CommandFailed, Ribtide, binary, blast, fpm, wait_for
from harness.config import HEAD, external
from harness.host import TIMEOUT_FACTOR
from harness.sonic import PORTS, STATE, Sonic
from harness.speaker import END_OF_RIB, Speaker, prefixes, raw_update, update
from test_idle import assert_at_rest
from test_kernel_repair import ALL, CONFIG, FIRST, RECEIVER, SECOND, announce, by, deaf, routes
from test_privileges import ROUTERS, threads
from test_several_asics import ALL as MANY
from test_several_asics import GATEWAYS, SENDER, Asic, servers
from test_several_asics import ROUTER as SEVERAL
from test_sonic import ROUTER, connect_fpm, ifindex, own_routes
from test_suppression import Receiver


def within(seconds, what, holds, alive=()):
    """As wait_for, by the clock: a row says how long something may take."""
    wait_for(what, holds, seconds / TIMEOUT_FACTOR, 0.2, alive=alive)


@functools.cache
def knows(setting, *command):
    """Whether the program has a setting, or a flag of one of its commands. A test leaves out what the program does not have."""
    command = [*command, "--help"] if command else ["schema"]
    return setting in subprocess.run([binary(), *command], capture_output=True, text=True, check=True).stdout


def reconcile(**seconds):
    """Flags of daemons: how often each compares its copies; 0 is never."""
    return {daemon: ["--reconcile-interval", str(n)] for daemon, n in seconds.items() if knows("--reconcile-interval", daemon)}


def test_redis_that_refuses_writes_for_two_seconds(host):
    sonic = Sonic(host)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    sonic.appl.execute_command("CONFIG", "SET", "maxmemory", "1")
    blast(host, 30_000, 0)
    time.sleep(2)
    sonic.appl.execute_command("CONFIG", "SET", "maxmemory", "0")
    wait_for("the table is here", lambda: router.count() == 30_000, 60, alive=[router.process])
    with contextlib.suppress(AssertionError):
        within(60, "the rows are written", lambda: sonic.route_count() >= 30_000)
    assert sonic.route_count() >= 30_000, f"{sonic.route_count()} of 30,000 rows, 60 s after Redis took writes again"
    wait_for("the chip has them", lambda: sonic.chip_routes() >= 30_000 + len(own), 120, 0.3, alive=sonic.alive())


def restarted(host):
    """A router that was killed with routes in the kernel, and started again. The kernel dataplane has written a route, so it has
    read the kernel's table; the replay has not ended, because a configured neighbour is away."""
    host.feeds.address("feed0", f"{SECOND}/24")
    router = Ribtide(host, CONFIG)
    announce(Speaker(host, FIRST, 65010), 65010, FIRST)
    wait_for("all are in the kernel", lambda: routes(host) == by(FIRST), 30, alive=[router.process])
    router.process.kill()
    router.config.write_text(router.config.read_text() + '[[static]]\nprefix = "192.0.3.0/24"\nblackhole = true\n')
    router.start()
    wait_for("the new static route is there", lambda: host.ip("route", "show", "192.0.3.0/24"), 25, alive=[router.process])
    assert len(kernel(host)) == len(ALL), "the replay has ended"
    return router


def kernel(host):
    """Prefix → gateway of BGP's routes."""
    return {prefix: gateway for prefix, gateway in routes(host).items() if prefix != "192.0.3.0/24"}


def test_routes_that_another_program_deletes_between_a_restart_and_their_announcement(host):
    router = restarted(host)
    host.ip("route", "del", ALL[7], "proto", "bgp")
    receiver = Receiver(host, lambda _: {p for p, gateway in kernel(host).items() if gateway == FIRST})
    sender = Speaker(host, FIRST, 65010)
    announce(sender, 65010, FIRST)
    sender.send(END_OF_RIB)
    receiver.listen(lambda: set(ALL) <= receiver.table)
    assert kernel(host) == by(FIRST)
    router.ends_differing("a neighbour is away")


@pytest.mark.long
def test_restart_while_a_neighbour_is_away(host):
    """Another neighbour than before has the routes."""
    router = restarted(host)
    other = "20.1.0.0/24"
    receiver = Receiver(host, lambda _: {other} | {p for p, gateway in kernel(host).items() if gateway == SECOND})
    sender = Speaker(host, SECOND, 65030)
    announce(sender, 65030, FIRST, [other])
    wait_for("the route is there", lambda: other in kernel(host), 20, alive=[router.process])
    announce(sender, 65030, SECOND)
    sender.send(raw_update(withdrawn=prefixes([other])))
    receiver.listen(lambda: set(ALL) <= receiver.table)
    # Longer than the router waits for the neighbour that is away.
    end, missing = time.monotonic() + 45, {}
    while time.monotonic() < end:
        have = kernel(host)
        missing = {p for p in ALL if have.get(p) != SECOND}
        assert not missing, f"{len(missing)} of {len(ALL)} routes that are advertised are not in the kernel"
        time.sleep(0.5)


@pytest.mark.parametrize("value", ["[]", '["SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION","SAI_PACKET_ACTION_DROP"]'])
def test_bulk_that_claims_more_entries_than_a_machine_has_bytes(host, value):
    sonic = Sonic(host)
    own_routes(sonic)
    syncd = sonic.processes["syncd"]
    sonic.asic.lpush("ASIC_STATE_KEY_VALUE_OP_QUEUE", "SAI_OBJECT_TYPE_ROUTE_ENTRY:99999999999999", value, "Sbulkcreate")
    sonic.asic.publish("ASIC_STATE_CHANNEL@1", "G")
    wait_for("the request is taken", lambda: not sonic.asic.llen("ASIC_STATE_KEY_VALUE_OP_QUEUE"), 20)
    time.sleep(3)
    assert syncd.poll() is None, f"syncd ended with {syncd.poll()}: {syncd.log(500)}"


def test_chip_that_refuses_for_a_second(host):
    """Without FIB suppression, and no row is written again."""
    sonic = Sonic(host)
    own = own_routes(sonic)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    texts = [f"20.{n // 256}.{n % 256}.0/24" for n in range(1000)]

    def send(some, gateway):
        client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, gateway, port) for prefix in some))
    send(texts[:500], "193.203.0.1")
    sonic.wait_routes("the first half is there", own | dict.fromkeys(texts[:500], ("193.203.0.1",)), 60)
    sonic.query("set fail-rate=0.2")
    send(texts[250:], "193.203.0.2")
    time.sleep(1)
    sonic.query("set fail-rate=0")
    want = dict.fromkeys(texts[:250], "193.203.0.1") | dict.fromkeys(texts[250:], "193.203.0.2")

    def wrong():
        entries = sonic.query_all([f"route {prefix}" for prefix in texts])
        have = {prefix: entry["hops"][0]["gateway"] if entry else None for prefix, entry in zip(texts, entries)}
        return {prefix: have[prefix] for prefix in texts if have[prefix] != want[prefix]}
    with contextlib.suppress(AssertionError):
        within(60, "the chip has what the rows say", lambda: not wrong(), sonic.alive())
    left = wrong()
    assert not left, (f"60 s after the chip takes all: {sum(hop is None for hop in left.values())} routes are absent, "
                      f"{sum(hop is not None for hop in left.values())} have the former next hop")


def test_six_thousand_routes_that_another_program_flushes(host):
    host.feeds.address("feed0", f"{SECOND}/24")
    router = Ribtide(host, CONFIG)
    texts = [f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24" for n in range(6000)]
    announce(Speaker(host, FIRST, 65010), 65010, FIRST, texts)
    wait_for("all are in the kernel", lambda: routes(host) == by(FIRST, texts), 60, 0.5, alive=[router.process])
    with contextlib.suppress(CommandFailed):
        # One round: ip reads the table again after it, and fails where the routes are back by then.
        host.ip("-loops", "1", "route", "flush", "root", "16.0.0.0/4", "table", "254", "proto", "bgp")
    begin = time.monotonic()
    with contextlib.suppress(AssertionError):
        within(20, "all are back", lambda: len(routes(host)) == len(texts), [router.process])
    count = len(routes(host))
    assert count == len(texts), f"{count} of {len(texts)} routes are back after {time.monotonic() - begin:.0f} s"


def test_state_db_and_counters_db_that_refuse_writes(host):
    sonic = Sonic(host, state=True)
    own = own_routes(sonic)
    sonic.redis.db(STATE).execute_command("REPLICAOF", "127.0.0.1", "1")
    router = Ribtide(host, ROUTER)
    blast(host, 5_000, 0)
    with contextlib.suppress(AssertionError):
        within(60, "the chip has the table", lambda: sonic.chip_routes() >= 5_000 + len(own), [router.process, *sonic.alive()])
    # Something of each daemon is to be counted.
    time.sleep(15)
    ended = {name: process.log(300) for name, process in sonic.processes.items() if process.poll() is not None}
    assert not ended, f"daemons that ended: {ended}"
    assert sonic.chip_routes() >= 5_000 + len(own)


def test_key_of_another_type_in_appl_db(host):
    sonic = Sonic(host, start=())
    sonic.appl.set("ROUTE_TABLE:20.0.9.0/24", "no hash")
    for name in ("syncd", "orchagent", "fpmsyncd"):
        sonic.start(name)
    with contextlib.suppress(AssertionError):
        within(60, "the chip has routes", lambda: sonic.chip_routes() > 0, sonic.alive())
    ended = {name: process.log(300) for name, process in sonic.processes.items() if process.poll() is not None}
    assert not ended, ended
    assert sonic.chip_routes()


class Copies:
    """The daemons with 100 routes of fpmsyncd's client, and a look at each. They compare their copies each second."""

    def __init__(self, host, seconds=1):
        self.sonic = Sonic(host, flags=reconcile(fpmsyncd=seconds, orchagent=seconds, syncd=seconds))
        self.own = own_routes(self.sonic)
        self.texts = [f"20.0.{n}.0/24" for n in range(100)]
        self.announce()
        self.sonic.wait_chip(len(self.own) + len(self.texts))
        time.sleep(1)

    def announce(self):
        self.client, self.port = connect_fpm(self.sonic), ifindex(self.sonic.host, "Ethernet0")
        self.client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, "193.203.0.1", self.port) for prefix in self.texts))

    def entries(self, *texts):
        """Which of these the chip has."""
        return [bool(entry) for entry in self.sonic.query_all([f"route {prefix}" for prefix in texts])]

    def expect(self, why, look, wanted):
        """Within 60 s."""
        with contextlib.suppress(AssertionError):
            within(60, why, lambda: look() == wanted, self.sonic.alive())
        assert look() == wanted, why


def test_rows_of_appl_db_and_asic_db_that_another_program_deletes(host):
    copies = Copies(host)
    sonic, [first, second] = copies.sonic, copies.texts[:2]
    [row] = [key for key in sonic.asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*") if f'"{second}"' in key]
    sonic.appl.delete(f"ROUTE_TABLE:{first}")
    sonic.asic.delete(row)
    look = lambda: [sonic.appl.exists(f"ROUTE_TABLE:{first}"), sonic.asic.exists(row)]
    copies.expect("the rows are there again, of APPL_DB and of ASIC_DB", look, [1, 1])


def test_deletion_that_redis_loses_before_orchagent_reads_it(host):
    copies = Copies(host)
    sonic, gone = copies.sonic, copies.texts[:3]
    orchagent = sonic.processes["orchagent"].popen
    orchagent.send_signal(signal.SIGSTOP)
    copies.client.send(b"".join(fpm.route(fpm.DELROUTE, prefix) for prefix in gone))
    wait_for("they wait for orchagent", lambda: sonic.appl.smembers("ROUTE_TABLE_KEY_SET") >= set(gone), 60)
    sonic.appl.srem("ROUTE_TABLE_KEY_SET", *gone)
    sonic.appl.srem("ROUTE_TABLE_DEL_SET", *gone)
    sonic.appl.delete(*(f"ROUTE_TABLE:{prefix}" for prefix in gone))
    orchagent.send_signal(signal.SIGCONT)
    copies.expect("the chip has none of the withdrawn routes", lambda: copies.entries(*gone), [False] * 3)


def test_host_route_that_another_program_deletes_with_its_length(host):
    copies = Copies(host)
    copies.client.send(fpm.route(fpm.NEWROUTE, "20.9.0.1/32", "193.203.0.1", copies.port))
    copies.expect("the chip has it", lambda: copies.entries("20.9.0.1/32"), [True])
    copies.sonic.delete("ROUTE_TABLE", "20.9.0.1/32")
    time.sleep(3)
    assert copies.sonic.appl.exists("ROUTE_TABLE:20.9.0.1")
    copies.expect("the chip has the route of the row 20.9.0.1 again", lambda: copies.entries("20.9.0.1/32"), [True])


def test_appl_db_that_is_emptied(host):
    copies = Copies(host)
    sonic = copies.sonic
    sonic.appl.delete(*(f"ROUTE_TABLE:{prefix}" for prefix in copies.texts))
    copies.expect("fpmsyncd has written its rows again", lambda: set(copies.texts) <= sonic.routes().keys(), True)
    assert all(copies.entries(*copies.texts))


def test_row_that_goes_from_appl_db_with_its_route(host):
    """The daemons agree with each other, and not with the router."""
    sonic = Sonic(host, flags=reconcile(fpmsyncd=0, orchagent=0, syncd=0))
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    blast(host, 100, 0)
    wait_for("the chip has the table", lambda: sonic.chip_routes() >= 100 + len(own) and router.count() == 100, 120, alive=sonic.alive())
    time.sleep(2)
    prefix, before = "198.18.0.0/24", sonic.chip_routes()
    sonic.delete("ROUTE_TABLE", prefix)
    sonic.wait_chip(before - 1)
    command = [binary(), "route-check", "--full", "--sonic", "--wait", "1", "--database-config", sonic.redis.config, "--socket", router.socket]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, f"the switch lacks {prefix}: {done.stdout}{done.stderr}"
    router.ends_differing("a row was deleted")


def test_neighbour_that_sends_far_more_than_its_limit(host):
    """Beyond 1,000 prefixes nothing is kept, where the program has a limit."""
    limit = 'max-prefixes = { ipv4-unicast = 1000, action = "discard" }\n' if knows("max-prefixes") else ""
    config = HEAD + external("sender", 65010, FIRST, 'import = ["accept"]\n' + limit)

    def memory():
        with open(f"/proc/{router.process.popen.pid}/status") as status:
            [line] = [line for line in status if line.startswith("VmHWM")]
        return int(line.split()[1]) >> 10
    router = Ribtide(host, config)
    sender = Speaker(host, FIRST, 65010)
    count = lambda session: sum(session["counters"].get(name, 0) for name in ("announced", "beyond_max"))

    def send(first, last):
        texts = [f"{20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24" for n in range(first, last)]
        for start in range(0, len(texts), 500):
            # Other attributes for each message.
            path = [65010, 4_200_000_000 + (first + start) // 500]
            sender.send(update(texts[start:start + 500], path, FIRST))
        wait_for("they are read", lambda: count(router.session(FIRST)) >= last, 120, alive=[router.process])
        time.sleep(1)
        return memory()
    few, many = send(0, 1000), send(1000, 300_000)
    assert many <= few + 12, f"{few} MiB with 1,000 prefixes, {many} MiB with 300,000"


PORT = 8080


class Served(Ribtide):
    """A router whose API listens on TCP too, with a limit of open files."""

    def __init__(self, host, address, descriptors=1024):
        self.address, self.descriptors = address, descriptors
        super().__init__(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]') + external("second", 65030, RECEIVER, ""))

    def start(self):
        self.config.write_text(self.config.read_text() + f'http = "{self.address}:{PORT}"\n')
        self.process = self.host.start(self.name, "prlimit", f"--nofile={self.descriptors}", binary(), "run", "-c", self.config)
        wait_for("it answers", lambda: self.show("bgp", "summary"), 20, alive=[self.process])

    def status(self, client_host, method, path, **headers):
        with client_host.inside():
            client = http.client.HTTPConnection(self.address, PORT, timeout=30)
            client.connect()
        client.request(method, path, b"" if method == "POST" else None, headers)
        return client.getresponse().status


def test_a_hundred_idle_clients_of_the_api(host):
    router = Served(host, "127.0.0.1", 120)
    clients = [host.connect("127.0.0.1", PORT) for _ in range(100)]
    try:
        with contextlib.suppress(AssertionError):
            first = Speaker(host, FIRST, 65010)
            second = Speaker(host, RECEIVER, 65030)
            assert first and second
        done = subprocess.run([binary(), "show", "bgp", "summary", "--json", "--socket", router.socket], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 0, f"the command line: {done.stderr}"
        assert json.loads(done.stdout)["established"] == 2, done.stdout
    finally:
        for client in clients:
            client.close()


def test_page_of_another_site_and_a_foreign_host(host):
    router = Served(host, "127.0.0.1")
    changed = router.status(host, "POST", "/v1/reload", Origin="https://evil.example", **{"Content-Type": "text/plain"})
    assert changed >= 400, f"a page of another site reloads the router: {changed}"
    read = router.status(host, "GET", "/v1/bgp/summary", Host="rebound.example")
    assert read >= 400, f"any Host is taken: {read}"


def test_route_check_and_explain_of_two_asics(host):
    for port in PORTS:
        host.lan(port.name, *port.addresses)
    databases = servers(host, 2)
    # Where the daemons repair their copies, they must not do so here.
    unrepaired = reconcile(fpmsyncd=0, syncd=0)
    asics = [Asic(host, number, databases, more=unrepaired) for number in range(2)]
    alive = [process for asic in asics for process in asic.alive()]
    router = Ribtide(host, SEVERAL)
    Speaker(host, SENDER, 65010).send(update(MANY[:60], [65010], GATEWAYS[0]))
    for asic in asics:
        wait_for("they are there", lambda: set(asic.gateways(MANY[:60])) == {GATEWAYS[0]}, 120, 0.5, alive=alive)
    time.sleep(2)
    [row] = [key for key in asics[1].asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*") if f'"{MANY[0]}"' in key]
    asics[1].asic.delete(row)
    command = [binary(), "route-check", "--full", "--sonic", "--wait", "0", *map(str, asics[0].databases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, f"route-check, with an entry of asic1 deleted: exit status {done.returncode}, {done.stdout}{done.stderr}"
    command = [binary(), "explain", MANY[0], "--sonic", "--json", *map(str, asics[0].databases)]
    conclusion = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120).stdout)["conclusion"]
    assert "ASIC_DB" in conclusion, conclusion
    router.ends_differing("an entry was deleted")


def test_route_check_and_a_wrong_next_hop_in_the_kernel(host):
    """It never says that all agree while another next hop is in the kernel, whether that is repaired or not."""
    host.feeds.address("feed0", f"{SECOND}/24")
    router = Ribtide(host, CONFIG)
    announce(Speaker(host, FIRST, 65010), 65010, FIRST)
    wait_for("all are in the kernel", lambda: routes(host) == by(FIRST), 30, alive=[router.process])
    # Notifications would start a repair at once.
    deaf(router)
    for prefix in ALL[:20]:
        host.ip("route", "replace", prefix, "via", RECEIVER, "proto", "bgp", "metric", "20")
        before = routes(host)[prefix]
        done = subprocess.run([binary(), "route-check", "--full", "--wait", "0", "--socket", router.socket], capture_output=True,
                              text=True, timeout=60)
        wrong = (before, routes(host)[prefix]) == (RECEIVER, RECEIVER)
        assert not (wrong and done.returncode == 0), f"{prefix} goes via {RECEIVER} rather than {FIRST}: {done.stdout}"
    wait_for("the kernel is repaired", lambda: routes(host) == by(FIRST), 60, 0.5, alive=[router.process])


def test_capabilities_of_the_process(host):
    router = Ribtide(host, CONFIG)
    for status in threads(router.process):
        assert int(status["CapEff"], 16) == ROUTERS, f"effective capabilities: {status['CapEff']}"
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), status


@pytest.mark.long
def test_wake_ups_at_rest(host):
    router = Ribtide(host, CONFIG)
    announce(Speaker(host, FIRST, 65010), 65010, FIRST)
    wait_for("all are in the kernel", lambda: routes(host) == by(FIRST), 30, alive=[router.process])
    assert_at_rest({"router": router.process})
