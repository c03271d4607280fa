"""ribtide's syncd, orchagent and fpmsyncd as three processes over Redis, each with SONiC's name
and flags. A plain Redis client writes the rows of SONiC's other daemons and reads the rows for
SONiC's tools."""

import json
import random
import signal
import subprocess

import pytest
from harness import FEED_ASN, Host, Ribtide, binary, blast, fpm, settled, wait_for
from harness.peers import FEEDS
from harness.sonic import CONNECTED, PORTS, STATE, Sonic
from harness.speaker import Speaker, prefixes, raw_update, update

#: All its neighbours are there once `blast` is, so that a replay to fpmsyncd is over when everything was announced.
ROUTER = f"""
[router]
asn = 65001
router-id = "10.2.0.1"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]

[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{FEEDS[1]}"]

[fib]
kernel = {{ table = 100 }}
fpm = ["127.0.0.1:2620"]

[[static]]
prefix = "203.0.113.0/24"
blackhole = true

[[static]]
prefix = "198.18.0.0/24"
next-hop = ["10.2.0.17", "193.203.0.1"]

[[static]]
prefix = "198.18.1.0/24"
next-hop = ["10.2.0.17", "193.203.0.1"]

[[static]]
prefix = "198.51.100.7/32"
next-hop = ["10.2.0.18"]

[[static]]
prefix = "2001:db8:77::1/128"
next-hop = ["fc00:2::11"]
"""

#: A second neighbour. Where it is down it is waited for, for half a minute from the start, until a replay is over.
TWO_FEEDS = ROUTER.replace(f'["{FEEDS[1]}"]', f'["{FEEDS[0]}", "{FEEDS[1]}"]')

STATIC = {"203.0.113.0/24": ("drop",), "198.18.0.0/24": ("10.2.0.17", "193.203.0.1"), "198.18.1.0/24": ("10.2.0.17", "193.203.0.1"),
          "198.51.100.7/32": ("10.2.0.18",), "2001:db8:77::1/128": ("fc00:2::11",)}


@pytest.fixture
def sonic(host):
    return Sonic(host)


def own_routes(sonic):
    """The initial routes of a switch: dropping default routes, link-local addresses, and its own
    addresses, which go to the CPU."""
    sonic.wait_chip(4 + sum(len(p.addresses) for p in PORTS), 60)
    own = sonic.chip().routes()
    link_local = [p for p in own if p.startswith("fe80::") and p.endswith("/128")]
    wanted = {"0.0.0.0/0": ("drop",), "::/0": ("drop",), "fe80::/10": ("cpu",), **{p: ("cpu",) for p in link_local}}
    for port in PORTS:
        for address in port.addresses:
            wanted[address.split("/")[0] + ("/128" if ":" in address else "/32")] = ("cpu",)
    assert own == wanted and len(link_local) == 1
    return own


def selected(router):
    """The next hops of each route that the chip must have: best paths, static and connected
    routes."""
    return {**{p: (r.next_hop,) for p, r in router.table().items()}, **STATIC, **CONNECTED}


def appl_key(prefix):
    """SONiC's fpmsyncd writes host routes without a length."""
    return prefix.removesuffix("/32") if "." in prefix else prefix.removesuffix("/128")


def check(sonic, router, own, appl_db="in-line"):
    """APPL_DB and ASIC_DB hold the selected routes of the router, in SONiC's format, and nothing
    else. APPL_DB may lag, or be off, if it is not the transport to orchagent; rows that were
    written again have empty fields."""
    # At the beginning next hops wait for interfaces.
    wait_for("every prefix has a best path", lambda: all(any(p["best"] for p in e["paths"]) for e in router.show("route")), 30, 0.3)
    want = selected(router)
    whole = own | want
    wait_for("ASIC_DB has every route", lambda: sonic.chip_routes() == len(whole), 120, 0.3, alive=[router.process, *sonic.alive()])
    # A daemon that lost its state reports existing routes again.
    wait_for("nothing is on the way", lambda: sonic.in_flight() == 0, 30, alive=sonic.alive())
    chip = sonic.chip()
    have = chip.routes()
    wrong = [(p, whole.get(p), have.get(p)) for p in whole.keys() | have.keys() if whole.get(p) != have.get(p)]
    assert not wrong, (len(wrong), sorted(wrong, key=str)[:5])
    assert chip.unused() == []
    if appl_db == "behind":
        settled(lambda: check_rows(sonic, router, want), 30, 0.1)
    elif appl_db == "off":
        assert sonic.route_count() == 0
    else:
        check_rows(sonic, router, want, appl_db)
    return want


def check_rows(sonic, router, want, appl_db="behind"):
    """APPL_DB has a row for each route, in the contract's format, and no other."""
    rows = sonic.routes()
    if appl_db == "rewritten":
        said = [(key, [(f, v) for f, v in row.items() if v and (f, v) != ("blackhole", "false")]) for key, row in rows.items()]
        rows = {key: dict(fields) for key, fields in said}
    assert {key for key, row in rows.items() if row["protocol"] == "bgp"} == {appl_key(p) for p in router.table()}
    assert {key for key, row in rows.items() if row["protocol"] == "static"} == {appl_key(p) for p in STATIC}
    # What is left is connected; also networks of interfaces that are no ports, which orchagent leaves alone.
    left = [row for key, row in rows.items() if row["protocol"] not in ("bgp", "static")]
    assert all(row["nexthop"] in ("0.0.0.0", "::") and row["protocol"] == "kernel" for row in left), left
    interface = {n: port.name for port in PORTS for n in port.neighbors}
    groups = sonic.groups()
    for prefix, hops in want.items():
        row = rows[appl_key(prefix)]
        if group := row.pop("nexthop_group", None):
            row |= groups[group]
        assert row.keys() <= {"protocol", "nexthop", "ifname", "weight", "blackhole"}, (prefix, row)
        if hops == ("drop",):
            assert row["blackhole"] == "true" and "nexthop" not in row, (prefix, row)
        elif hops != ("interface",):
            pairs = zip(row["nexthop"].split(","), row["ifname"].split(","), row["weight"].split(","))
            assert sorted(pairs) == sorted((h, interface[h], "1") for h in hops), (prefix, row)


def test_a_route_through_all_stages(sonic):
    own = own_routes(sonic)
    router = Ribtide(sonic.host, TWO_FEEDS)
    check(sonic, router, own)
    first = blast(sonic.host, 20_000, 2_000)
    wait_for("the table is here", lambda: router.count() == 22_000, 60, alive=[router.process])
    want = check(sonic, router, own)
    [client] = router.show("fpm")["clients"]
    assert client["connected"] and client["connects"] == 1 and client["offload_failed"] == 0
    wait_for("fpmsyncd took every route", lambda: router.show("fpm")["clients"][0]["offloaded"] >= len(want), 30)
    # The tables are not only written: the switch does with packets what they say.
    for prefix in random.Random(7).sample(sorted(want), 300) + list(STATIC):
        answer = sonic.route(prefix)
        hops = tuple(sorted(h["gateway"] for h in answer["hops"] if h["gateway"]))
        assert {("drop", ()): ("drop",), ("forward", ()): ("interface",)}.get((answer["action"], hops), hops) == want[prefix], answer
        assert sonic.lookup(prefix.split("/")[0])["action"] == answer["action"]
    # A default route replaces the one that drops, and goes back to dropping; SONiC never removes it.
    second = Speaker(sonic.host, FEEDS[0], FEED_ASN)
    second.send(update(["0.0.0.0/0", "192.0.2.1/32"], [FEED_ASN, 7], "193.203.0.33"))
    wait_for("both came", lambda: router.count() == 22_002, 30)
    want = check(sonic, router, own)
    assert want["0.0.0.0/0"] == ("193.203.0.33",)
    assert sonic.redis.db(STATE).hget("ROUTE_TABLE|0.0.0.0/0", "state") == "ok"
    second.send(update(["192.0.2.1/32"], [FEED_ASN, 7], "193.203.0.34"))
    wait_for("it moved", lambda: router.table()["192.0.2.1/32"].next_hop == "193.203.0.34", 30)
    wait_for("its row moved", lambda: sonic.routes()["192.0.2.1"]["nexthop"] == "193.203.0.34", 30)
    check(sonic, router, own)
    # A withdrawal, a session that ends and a session that is lost leave nothing.
    second.send(raw_update(prefixes(["192.0.2.1/32"])))
    wait_for("it is withdrawn", lambda: router.count() == 22_001, 30)
    check(sonic, router, own)
    second.close()
    wait_for("the second feed is gone", lambda: router.count() == 22_000, 30)
    check(sonic, router, own)
    assert sonic.redis.db(STATE).hget("ROUTE_TABLE|0.0.0.0/0", "state") == "na"
    first.kill()
    wait_for("the first is gone", lambda: router.count() == 0, 30)
    check(sonic, router, own)


def test_interfaces_from_the_configuration(sonic):
    """Without a kernel dataplane, the interfaces come from the configuration, and fpmsyncd still
    knows their names."""
    own = own_routes(sonic)
    tables = "".join(f'[[interface]]\nname = "{p.name}"\naddresses = {json.dumps(p.addresses)}\n' for p in PORTS)
    router = Ribtide(sonic.host, ROUTER.replace("kernel = { table = 100 }\n", "") + tables)
    check(sonic, router, own)


@pytest.mark.parametrize("daemon", ["fpmsyncd", "orchagent", "syncd", "ribtide"])
def test_a_crash_leaves_nothing_stale(sonic, daemon):
    """Routes change while one of the four is down: afterwards all tables are correct."""
    own = own_routes(sonic)
    # A router that starts again while one of its neighbours is down does not wait for it for ever.
    router = Ribtide(sonic.host, TWO_FEEDS if daemon == "ribtide" else ROUTER)
    first = blast(sonic.host, 5000, 500)
    wait_for("the table is here", lambda: router.count() == 5500, 60, alive=[router.process])
    check(sonic, router, own)
    if daemon == "ribtide":
        router.process.kill()
        router.start()
    else:
        sonic.processes[daemon].kill()
        first.kill()
        wait_for("the feed is gone", lambda: router.count() == 0, 30)
    blast(sonic.host, 3000, 300, seed=8)
    wait_for("another table is here", lambda: router.count() == 3300, 60, alive=[router.process])
    if daemon != "ribtide":
        sonic.start(daemon)
    check(sonic, router, own)


def test_routes_wait_for_their_neighbours(host):
    """A route with an unresolved next hop requests its resolution, waits, and is programmed
    afterwards; then it waits again."""
    sonic = Sonic(host, neighbors=False)
    own = own_routes(sonic)
    sonic.set("ROUTE_TABLE", "192.0.2.0/24", protocol="bgp", nexthop="193.203.0.5", ifname="Ethernet0")
    sonic.set("ROUTE_TABLE", "192.0.3.0/24", protocol="bgp", nexthop="193.203.0.5,10.2.0.17", ifname="Ethernet0,Ethernet4")
    wait_for("the neighbour is asked for", lambda: sonic.appl.exists("_NEIGH_RESOLVE_TABLE:Ethernet0:193.203.0.5")
             or sonic.appl.sismember("NEIGH_RESOLVE_TABLE_KEY_SET", "Ethernet0:193.203.0.5"), 30, alive=sonic.alive())
    assert sonic.chip().routes() == own
    sonic.neighbor("Ethernet0", "193.203.0.5")
    sonic.neighbor("Ethernet4", "10.2.0.17")
    both = {"192.0.2.0/24": ("193.203.0.5",), "192.0.3.0/24": ("10.2.0.17", "193.203.0.5")}
    sonic.wait_routes("both are programmed", own | both)
    # SONiC's two shapes of one row, one after the other, faster than orchagent looks.
    sonic.processes["orchagent"].popen.send_signal(signal.SIGSTOP)
    sonic.set("NEXTHOP_GROUP_TABLE", "7", nexthop="193.203.0.5,10.2.0.17", ifname="Ethernet0,Ethernet4", weight="1,1")
    sonic.set("ROUTE_TABLE", "192.0.2.0/24", protocol="bgp", nexthop_group="7", nexthop="", ifname="")
    sonic.delete("ROUTE_TABLE", "192.0.3.0/24")
    sonic.processes["orchagent"].popen.send_signal(signal.SIGCONT)
    moved = {"192.0.2.0/24": ("10.2.0.17", "193.203.0.5")}
    sonic.wait_routes("the route uses the group", own | moved)
    sonic.delete("ROUTE_TABLE", "192.0.2.0/24")
    sonic.delete("NEXTHOP_GROUP_TABLE", "7")
    sonic.wait_routes("all is gone", own)


def test_fpm_garbage_ends_the_session_and_nothing_else(sonic):
    for data in (b"\x01\x01\x00\x02", b"\x01\x01\x00\x10" + b"\xff" * 12, b"\x01\x01\x80\x00" + b"x" * 100, b"\x01"):
        def open_fpm():
            return sonic.host.connect("127.0.0.1", 2620)
        connection = wait_for("fpmsyncd listens", open_fpm, 20, alive=sonic.alive())
        connection.sendall(data)
        connection.close()
    own = own_routes(sonic)
    router = Ribtide(sonic.host, ROUTER)
    check(sonic, router, own)


def connect_fpm(sonic):
    return wait_for("fpmsyncd listens", lambda: fpm.Client(sonic.host), 20, alive=sonic.alive())


def ifindex(host, interface):
    return json.loads(host.ip("-j", "link", "show", interface))[0]["ifindex"]


def test_fpm_as_zebra_speaks_it(sonic):
    """Several messages at once and one in pieces; stock zebra's table numbers for the default VRF; a reply to each."""
    own = own_routes(sonic)
    client = connect_fpm(sonic)
    port = ifindex(sonic.host, "Ethernet0")
    frames = b"".join(fpm.route(fpm.NEWROUTE, f"192.0.{n}.0/24", "193.203.0.7", port, table)
                      for n, table in enumerate((0, 254, 253, 255)))
    frames += fpm.route(fpm.NEWROUTE, "2001:db8::/32", "fd00:193::7", port)
    for n in range(0, len(frames), 7):
        client.send(frames[n:n + 7])
    wanted = [("192.0.0.0/24", 0), ("192.0.1.0/24", 254), ("192.0.2.0/24", 253), ("192.0.3.0/24", 255), ("2001:db8::/32", 254)]
    assert client.replies(5) == [(p, table, 186, True) for p, table in wanted]
    four = {p: ("193.203.0.7",) for p, _ in wanted if ":" not in p}
    sonic.wait_routes("five routes", own | four | {"2001:db8::/32": ("fd00:193::7",)})
    # A table that belongs to no interface is not of this switch.
    client.send(fpm.route(fpm.NEWROUTE, "198.51.100.0/24", "193.203.0.7", port, 77))
    client.send(b"".join(fpm.route(fpm.DELROUTE, p, table=table) for p, table in wanted))
    sonic.wait_routes("none", own)
    assert sonic.route_count() == 0
    client.close()


def test_fib_suppression(host):
    """With suppress-fib-pending zebra gets the confirmation of a route when the chip has it, and
    not before."""
    sonic = Sonic(host, suppress=True)
    own = own_routes(sonic)
    client = connect_fpm(sonic)
    sonic.processes["orchagent"].popen.send_signal(signal.SIGSTOP)
    client.send(fpm.route(fpm.NEWROUTE, "192.0.2.0/24", "193.203.0.7", ifindex(host, "Ethernet0")))
    assert client.replies(1, timeout=1) == []
    sonic.processes["orchagent"].popen.send_signal(signal.SIGCONT)
    assert client.replies(1) == [("192.0.2.0/24", 254, 186, True)]
    assert sonic.chip().routes() == own | {"192.0.2.0/24": ("193.203.0.7",)}
    client.close()


def test_performance_timers(host):
    """SONiC's PerformanceTimer in each daemon: stored, logged on request, and absent when off."""
    sonic = Sonic(host, flags={"orchagent": ["--performance", "log"], "syncd": ["--performance", "off"]})
    own = own_routes(sonic)
    client = connect_fpm(sonic)
    port = ifindex(host, "Ethernet0")
    client.send(b"".join(fpm.route(fpm.NEWROUTE, f"11.{n >> 8}.{n & 255}.0/24", "193.203.0.7", port) for n in range(25_000)))
    sonic.wait_chip(len(own) + 25_000)

    def stages():
        shown = subprocess.run([binary(), "show", "performance", "--sonic", "--database-config", sonic.redis.config, "--json"],
                               capture_output=True, text=True, check=True)
        return {stage["stage"]: stage["records"] for stage in json.loads(shown.stdout)}

    names = ["fpmsyncd/FLUSH", "fpmsyncd/READ", "orchagent/ADD_TO_SYNC", "orchagent/DRAIN", "orchagent/POPS"]
    # A record wants a millisecond of work too, which READ and ADD_TO_SYNC may not have had yet.
    wait_for("orchagent and fpmsyncd have records", lambda: {"fpmsyncd/FLUSH", "orchagent/DRAIN", "orchagent/POPS"} <= stages().keys(), 20)
    shown = stages()
    assert set(shown) <= set(names), shown.keys()
    for record in shown["orchagent/DRAIN"]:
        assert list(record) == ["API", "RPS[k]", "Tasks", "Total[ms]", "busy[ms]", "idle[ms]", "m_gaps", "m_incs", "m_intervals"]
        assert record["API"] == "DRAIN" and record["Tasks"] >= 10_000 and record["Total[ms]"] == record["busy[ms]"] + record["idle[ms]"]
    def logged():
        records = [json.loads(line.split(" INFO orchagent: ")[1]) for line in (host.folder / "orchagent.log").read_text().splitlines()
                   if ' INFO orchagent: {"API"' in line]
        return [record for record in records if record["API"] == "DRAIN"]

    def equal():
        # A record may come between the two readings, and is logged by another thread.
        assert logged() == stages()["orchagent/DRAIN"]
    settled(equal, 20)
    assert '{"API"' not in (host.folder / "fpmsyncd.log").read_text() + (host.folder / "syncd.log").read_text()
    assert sonic.setting("syncd", "performance")["active"] == "off"
    one = subprocess.run([binary(), "show", "performance", "orchagent/DRAIN", "--sonic", "--database-config", sonic.redis.config],
                         capture_output=True, text=True, check=True)
    assert one.stdout.startswith("orchagent/DRAIN: "), one.stdout
    client.close()


def bench(folder, *words):
    """A suite of the bench: its runs and their sums. The bench counts every database itself."""
    report = folder / "report.json"
    done = subprocess.run([binary(), "bench", "run", *words, "--runs", "1", "--json", report], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(report.read_text())
    assert all(run["figures"]["wall_s"] > 0 for run in report["runs"])
    return {summary["combination"]: summary for summary in report["summary"]}, done.stdout


def test_every_combination_of_the_bench(folder):
    """Each combination of the three, on Redis servers that ribtide starts, one or several."""
    assert len(bench(folder, "route-download", "--routes", "3000")[0]) == 16
    columns = ",".join(f"column-{n}" for n in range(10))
    assert len(bench(folder, "route-download", "--routes", "3000", "--family", "both", "--next-hops", "2", "--dut", columns)[0]) == 10


def test_the_other_suites_of_the_bench(folder):
    """Both workloads of the transports, timers of a loading, and reactions under load."""
    assert len(bench(folder, "transport", "--percent", "5")[0]) == 14
    summary, text = bench(folder, "loading", "--routes", "40000")
    assert summary["after"]["timers"]["orchagent/DRAIN"]["tasks"] >= 10_000
    assert summary["after"]["timers"]["orchagent/DRAIN"]["line"] in text
    summary, _ = bench(folder, "batch-sizes", "--routes", "60000", "--sizes", "128:1000,1024:1000")
    assert all(s["route_ms"]["median"] > 0 and s["link_ms"]["median"] > 0 for s in summary.values())
