"""One router that feeds the daemons of two ASICs over TCP. Each is a namespace of SONiC with its
own servers, from database_global.json. One of them stalls: the other is not affected, and the
first gets the last state of every route when it continues."""

import copy
import json
import signal
import subprocess
import time

from harness import TIMEOUT_FACTOR, Host, Ribtide, binary, wait_for
from harness.config import HEAD, external
from harness.sonic import APPL, ASIC, CONFIG, FLAGS, PORTS, Sonic
from harness.speaker import Speaker, update

PREFIXES = 20_000
ALL = [f"{20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24" for n in range(PREFIXES)]
GATEWAYS = ["10.2.0.17", "10.2.0.18"]
SENDER = Host.FEEDS[0]
#: Ethernet4 is the kernel's, so that its number is the same in every namespace.
ROUTER = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + """
[fib]
fpm = ["127.0.0.1:2620", "127.0.0.1:2621"]

[[interface]]
name = "Ethernet4"
addresses = ["10.2.0.1/24"]
"""


class Asic(Sonic):
    """The daemons of one namespace of SONiC's, with FIB suppression or without; they and commands about them find its databases by
    NAMESPACE_ID. `more`: flags of daemons."""

    def __init__(self, host, number, databases, listen=None, suppress=False, more=None):
        import redis
        self.host = copy.copy(host)
        self.host.folder = host.folder / f"asic{number}"
        self.host.folder.mkdir()
        self.processes, self.vrfs = {}, {}
        socket = databases / f"asic{number}" / "redis.sock"
        self.appl, self.asic = (redis.Redis(unix_socket_path=str(socket), db=db, decode_responses=True) for db in (APPL, ASIC))
        self.syncd = self.host.folder / "syncd.sock"
        (self.host.folder / "sai.profile").write_text(f"SAI_VS_INTERFACE_LANE_MAP_FILE={self.host.folder}/lanemap.ini\n")
        (self.host.folder / "lanemap.ini").write_text("".join(f"eth{n + 1}:{p.lanes}\n" for n, p in enumerate(PORTS)))
        self.of_it = {"NAMESPACE_ID": str(number)}
        self.databases = ["--database-config", databases / "database_global.json"]
        flags = {"syncd": ["-u", "-s", "-l", "-p", self.host.folder / "sai.profile", "--query-socket", self.syncd],
                 "orchagent": ["-d", self.host.folder, "-b", "1024", "-s", "-m", "02:00:00:00:00:01"],
                 "fpmsyncd": ["--listen", listen or f"127.0.0.1:{2620 + number}"]}
        for name in flags:
            flags[name] += (more or {}).get(name, [])
        if suppress:
            redis.Redis(unix_socket_path=str(socket), db=CONFIG).hset("DEVICE_METADATA|localhost", "suppress-fib-pending", "enabled")
            flags["orchagent"].append("-F")
        run = lambda name: host.start(f"{name}{number}", "env", *(f"{k}={v}" for k, v in self.of_it.items()),
                                      binary(), name, *flags[name], *self.databases)
        for name in flags:
            self.processes[name] = run(name)
        self.restart_syncd = lambda: self.processes.update(syncd=run("syncd"))
        self.everything_else()

    def gateways(self, prefixes):
        """The only next hop of each in the switch, or None."""
        answers = self.query_all([f"route {prefix}" for prefix in prefixes])
        hops = [answer["hops"] if answer else [] for answer in answers]
        return [hops[0]["gateway"] if len(hops) == 1 else None for hops in hops]

    def has(self, gateway):
        """Whether the switch sends every route to this gateway."""
        return set(self.gateways(ALL[::97] + ALL[-1:])) == {gateway}

    def agrees(self):
        self.host.run("env", *(f"{k}={v}" for k, v in self.of_it.items()), binary(), "route-check", "--full", "--wait", 60 * TIMEOUT_FACTOR,
                      "--sonic", *self.databases, "--syncd", self.syncd, timeout=600)


def servers(host, asics):
    """Servers for so many ASICs of the host; the folder of their sockets."""
    databases = host.folder / "databases"
    redis = host.start("redis", binary(), "redis", "up", "--dir", databases, "--asics", asics)
    wait_for("the servers run", lambda: "ready" in redis.log(), 20, alive=[redis])
    return databases


def test_one_of_two_stands_still(host):
    for port in PORTS:
        host.lan(port.name, *port.addresses)
    host.small_sockets()
    databases = servers(host, 2)
    asics = [Asic(host, number, databases) for number in range(2)]
    alive = [process for asic in asics for process in asic.alive()]
    router = Ribtide(host, ROUTER)
    sender = Speaker(host, SENDER, 65010)
    rounds = [[update(ALL[start:start + 200], [65010], gateway) for start in range(0, PREFIXES, 200)] for gateway in GATEWAYS]
    sender.send(b"".join(rounds[0]))
    for asic in asics:
        wait_for("they are there", lambda: asic.has(GATEWAYS[0]), 120, 0.5, alive=alive)
    still = asics[1].processes["fpmsyncd"].popen
    still.send_signal(signal.SIGSTOP)
    behind = lambda: {d["name"]: d.get("lagging_by") for d in json.loads(router.text("show", "route", "summary", "--json"))["main"]["dataplanes"]}
    sent = 0
    # Until sockets and the ring before them are full it is only slow. The ring counts batches: they are to be many.
    while behind()["fpm-1"] is None or sent % 2 == 0:
        sent += 1
        for changes in rounds[sent % 2]:
            sender.send(changes)
            time.sleep(0.0005)
        wait_for("the other one has them", lambda: asics[0].has(GATEWAYS[sent % 2]), 120, 0.5, alive=alive)
        assert sent < 400
    assert behind()["fpm-0"] is None
    assert not asics[1].has(GATEWAYS[1])
    asics[0].agrees()
    still.send_signal(signal.SIGCONT)
    wait_for("it has the last word too", lambda: asics[1].has(GATEWAYS[1]), 120, 0.5, alive=alive)
    wait_for("no dataplane lags", lambda: behind() == {"fpm-0": None, "fpm-1": None}, 60)
    for asic in asics:
        asic.agrees()
    shown = host.run(binary(), "show", "pipeline", "--sonic", "--json", *asics[0].databases)
    assert {(daemon["asic"], daemon["daemon"]) for daemon in json.loads(shown) if daemon["queues"]} \
        == {(f"asic{number}", daemon) for number in range(2) for daemon in FLAGS}
    # A record is 10,000 routes or more.
    shown = json.loads(host.run(binary(), "show", "performance", "--sonic", "--json", *asics[0].databases))
    stages = {stage["stage"] for stage in shown if stage["records"]}
    assert {f"asic{number}/{stage}" for number in range(2) for stage in ("fpmsyncd/READ", "orchagent/DRAIN", "syncd/SAI")} <= stages, stages
    one = host.run(binary(), "show", "performance", "asic1/syncd/SAI", "--sonic", "--json", *asics[0].databases)
    assert all(json.loads(line)["Tasks"] >= 10_000 for line in one.splitlines()) and one
    # Its host answered all the time: no daemon took it for gone.
    assert [client["connects"] for client in router.show("fpm")["clients"]] == [1, 1]


def test_route_check_and_explain_look_at_every_asic(host):
    """A row of one ASIC is deleted and one is changed, in its databases. Nothing repairs them here."""
    for port in PORTS:
        host.lan(port.name, *port.addresses)
    databases = servers(host, 2)
    unrepaired = {daemon: ["--reconcile-interval", "0"] for daemon in ("fpmsyncd", "syncd")}
    asics = [Asic(host, number, databases, more=unrepaired) for number in range(2)]
    alive = [process for asic in asics for process in asic.alive()]
    Ribtide(host, ROUTER)
    sender = Speaker(host, SENDER, 65010)
    some = ALL[:50]
    sender.send(update(some, [65010], GATEWAYS[0]) + update(ALL[50:60], [65010], GATEWAYS[1]))
    for asic in asics:
        wait_for("they are there", lambda: set(asic.gateways(ALL[:60])) == set(GATEWAYS), 120, 0.5, alive=alive)

    def ask(*command):
        """Of the whole box: the exit status and the answer."""
        done = subprocess.run([binary(), *map(str, command), "--sonic", "--json", *asics[0].databases],
                              capture_output=True, text=True, timeout=120)
        return done.returncode, json.loads(done.stdout)

    sockets = [flag for number, asic in enumerate(asics) for flag in ("--syncd", f"asic{number}={asic.syncd}")]
    check = lambda *more: ask("route-check", "--full", *sockets, *more)
    status, found = check("--wait", 30)
    assert (status, found["differing"]) == (0, 0), found
    assert {f"asic{number} {stage}" for number in range(2) for stage in ("APPL_DB", "ASIC_DB", "chip")} <= found["routes"].keys()
    through = "asic0, asic1: the route is all the way through"
    assert ask("explain", some[0])[1]["conclusion"] == through

    entry = lambda prefix: next(key for key in asics[1].asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*") if f'"{prefix}"' in key)
    asics[1].asic.delete(entry(some[0]))
    asics[1].asic.hset(entry(some[1]), mapping=asics[1].asic.hgetall(entry(ALL[50])))
    status, found = check("--wait", 0)
    assert status == 1 and {(d["prefix"], d["stage"]) for d in found["differences"]} \
        == {(prefix, "asic1 orchagent") for prefix in some[:2]}, found
    status, found = ask("explain", some[0])
    assert found["conclusion"].startswith("asic1: the route is in asic1 virtual switch, and not in asic1 ASIC_DB"), found
    assert found["conclusion"].endswith("asic0: the route is all the way through"), found
    # A socket without a name is of no ASIC.
    refused = subprocess.run([binary(), "route-check", "--sonic", "--syncd", "/s", *map(str, asics[0].databases)],
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "asic0=/s" in refused.stderr, refused.stderr


def test_an_asic_whose_syncd_finds_other_rows_is_repaired(host):
    """Rows of one ASIC are deleted and changed while its syncd is away: its orchagent repairs it, and the other ASIC has
    nothing to do."""
    for port in PORTS:
        host.lan(port.name, *port.addresses)
    databases = servers(host, 2)
    unrepaired = {daemon: ["--reconcile-interval", "0"] for daemon in FLAGS}
    asics = [Asic(host, number, databases, more=unrepaired) for number in range(2)]
    alive = [process for asic in asics for process in asic.alive()]
    Ribtide(host, ROUTER)
    sender = Speaker(host, SENDER, 65010)
    sender.send(update(ALL[:50], [65010], GATEWAYS[0]) + update(ALL[50:60], [65010], GATEWAYS[1]))
    hops = [GATEWAYS[0]] * 50 + [GATEWAYS[1]] * 10
    for asic in asics:
        wait_for("they are there", lambda: asic.gateways(ALL[:60]) == hops, 120, 0.5, alive=alive)
        wait_for("ASIC_DB has them", lambda: asic.chip_routes() >= 60, 60, alive=alive)
    asic, other = asics[1], asics[0]
    objects = set(asic.asic.keys("ASIC_STATE:*"))
    key = lambda prefix: next(key for key in objects if f'"{prefix}"' in key)
    asic.processes["syncd"].kill()
    for prefix in ALL[:10]:
        asic.asic.delete(key(prefix))
    for prefix in ALL[10:20]:
        asic.asic.hset(key(prefix), mapping=asic.asic.hgetall(key(ALL[50])))
    asic.restart_syncd()
    orchagent = asic.processes["orchagent"]
    wait_for("orchagent says so", lambda: "syncd was started again without what was requested" in orchagent.log(1 << 16), 60,
             alive=[orchagent, asic.processes["syncd"]])
    assert asic.gateways(ALL[:60]) == hops and set(asic.asic.keys("ASIC_STATE:*")) == objects
    asic.agrees()
    assert "was started again" not in other.processes["orchagent"].log(1 << 16)
    other.agrees()
