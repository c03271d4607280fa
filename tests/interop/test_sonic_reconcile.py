"""Another program changes APPL_DB, ASIC_DB and the chip, or APPL_DB loses what orchagent has not taken:
the daemons repair it, count it, and log it. Rows under way are no differences."""

import json
import signal
import subprocess

import pytest
from harness import Host, Ribtide, binary, fpm, settled, wait_for
from harness.config import HEAD, external
from harness.sonic import STATE, WITH_DATABASES, Sonic, rows
from harness.speaker import Speaker, update
from test_sonic import connect_fpm, ifindex, own_routes
from test_sonic_warm import COMBINATIONS

#: All of the tables in a second.
EVERY = ["--reconcile-interval", "1"]
GATEWAYS = [f"193.203.0.{n}" for n in range(1, 5)]
SINGLE = [f"20.0.{n}.0/24" for n in range(200)]
BALANCED = [f"21.0.{n}.0/24" for n in range(20)]
ROUTE = "SAI_OBJECT_TYPE_ROUTE_ENTRY"
DROPS = "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP"


def start(host, combination, **more):
    """The daemons, which compare all the time."""
    flags = {name: COMBINATIONS[combination].get(name, []) + EVERY for name in ("syncd", "orchagent", "fpmsyncd")}
    sonic = Sonic(host, flags=flags, **more)
    own_routes(sonic)
    return sonic


def counts(sonic):
    """Table → what was compared, repaired and refused, of all daemons."""
    state = sonic.redis.db(STATE)
    of = [state.hgetall(f"RIBTIDE_RECONCILE|{daemon}") for daemon in ("fpmsyncd", "orchagent", "syncd")]
    return {table: json.loads(text) for fields in of for table, text in fields.items()}


def repaired(sonic):
    return {table: count["repaired"] for table, count in counts(sonic).items() if count["repaired"]}


def counted(sonic, wanted):
    """Waits until exactly these are counted as repaired."""
    def look():
        assert repaired(sonic) == wanted
    settled(look, 30)


def announce(sonic, client):
    port = ifindex(sonic.host, "Ethernet0")
    for n, prefix in enumerate(SINGLE):
        client.send(fpm.route(fpm.NEWROUTE, prefix, GATEWAYS[n % len(GATEWAYS)], port))
    for prefix in BALANCED:
        client.send(fpm.route(fpm.NEWROUTE, prefix, hops=[(gateway, port, ()) for gateway in GATEWAYS[:2]]))


def rid(sonic, vid):
    return sonic.asic.hget("VIDTORID", vid)


def entry(prefix):
    """The key of a route in the chip, in its default virtual router."""
    return f'{ROUTE}:{{"dest":"{prefix}","switch_id":"oid:0x0","vr":"oid:0x0"}}'


def keep(sonic, prefixes):
    """The databases' rows, and where the chip sends packets."""
    # A member that is made again is the last of its group.
    forwards = [answer and answer | {"hops": sorted(answer["hops"], key=str)} for answer in sonic.query_all([f"route {p}" for p in prefixes])]
    # A row that is written again names what it does not have.
    routes = {key: {k: v for k, v in row.items() if v and (k, v) != ("blackhole", "false")} for key, row in rows(sonic.appl, "ROUTE_TABLE:*").items()}
    return (routes, rows(sonic.asic, "ASIC_STATE:*"),
            forwards, sonic.query("counts")["groups"])


def agrees(sonic):
    done = subprocess.run([binary(), "route-check", "--sonic", "--full", "--wait", "30", "--database-config", sonic.redis.config,
                           "--syncd", sonic.host.folder / "syncd.sock"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("suppress", [False, True], ids=["", "suppressed"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_foreign_changes_are_repaired(host, combination, suppress):
    sonic = start(host, combination, suppress=suppress)
    client = connect_fpm(sonic)
    announce(sonic, client)
    every = SINGLE + BALANCED
    wait_for("the chip has all", lambda: all(sonic.query_all([f"route {prefix}" for prefix in every])), 60, alive=sonic.alive())
    wait_for("APPL_DB has all", lambda: sonic.route_count() == len(every), 60, alive=sonic.alive())
    # ASIC_DB may be a write-behind copy.
    wait_for("ASIC_DB has all", lambda: len(sonic.chip().routes()) >= len(every) and not sonic.in_flight(), 60, alive=sonic.alive())
    extra = ["30.0.0.0/8"]
    before = keep(sonic, every + extra)
    assert repaired(sonic) == {}

    # APPL_DB.
    for prefix in SINGLE[:5]:
        sonic.appl.delete(f"ROUTE_TABLE:{prefix}")
    for prefix in SINGLE[5:10]:
        sonic.appl.hset(f"ROUTE_TABLE:{prefix}", "nexthop", "193.203.0.99")
    # ASIC_DB.
    chip = sonic.chip()
    key = lambda prefix: next(f"ASIC_STATE:{ROUTE}:{name}" for name in chip.objects["ROUTE_ENTRY"] if json.loads(name)["dest"] == prefix)
    for prefix in SINGLE[10:15]:
        sonic.asic.delete(key(prefix))
    for prefix in SINGLE[15:20]:
        sonic.asic.hset(key(prefix), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", "oid:0x4000000009999")
    hop = next(iter(chip.objects["NEXT_HOP"]))
    sonic.asic.delete(f"ASIC_STATE:SAI_OBJECT_TYPE_NEXT_HOP:{hop}")
    sonic.asic.hset(key(SINGLE[20]).replace(SINGLE[20], "77.0.0.0/8"), "NULL", "NULL")
    # The chip: routes, a member of a group, a neighbour.
    for prefix in SINGLE[30:35]:
        sonic.query(f"alter remove {entry(prefix)}")
    for prefix in SINGLE[35:40]:
        sonic.query(f"alter set {entry(prefix)} {DROPS}")
    sonic.query(f"alter create {entry(extra[0])} {DROPS}")
    member = next(iter(chip.objects["NEXT_HOP_GROUP_MEMBER"]))
    sonic.query(f"alter remove SAI_OBJECT_TYPE_NEXT_HOP_GROUP_MEMBER:{rid(sonic, member)}")
    neighbor = json.loads(next(iter(chip.objects["NEIGHBOR_ENTRY"])))
    neighbor["rif"] = rid(sonic, neighbor["rif"])
    of_neighbor = json.dumps(neighbor, separators=(",", ":"))
    sonic.query(f"alter set SAI_OBJECT_TYPE_NEIGHBOR_ENTRY:{of_neighbor} SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS=02:00:00:00:00:99")

    def as_before():
        now = keep(sonic, every + extra)
        for was, found in zip(before, now):
            if isinstance(was, dict):
                assert {key: (was.get(key), found.get(key)) for key in was.keys() | found.keys() if was.get(key) != found.get(key)} == {}
            else:
                assert was == found
    settled(as_before, 120)
    wanted = {"APPL_DB ROUTE_TABLE": 10, "ASIC_DB ASIC_STATE": 12, f"chip {ROUTE}": 11,
              "chip SAI_OBJECT_TYPE_NEXT_HOP_GROUP_MEMBER": 1, "chip SAI_OBJECT_TYPE_NEIGHBOR_ENTRY": 1}
    counted(sonic, wanted)
    assert all(count["compared"] > 0 and count["failed"] == 0 for count in counts(sonic).values()), counts(sonic)
    agrees(sonic)
    # Of each round some are logged.
    assert "another program" in sonic.processes["syncd"].log()
    assert "another program deleted it" in sonic.processes["fpmsyncd"].log()
    # They are shown, too.
    shown = json.loads(subprocess.run([binary(), "show", "pipeline", "--sonic", "--json", "--database-config", sonic.redis.config],
                                      capture_output=True, text=True, check=True).stdout)
    assert {daemon["daemon"]: daemon["reconciled"] for daemon in shown}["syncd"][f"chip {ROUTE}"]["repaired"] == 11


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_rows_under_way_are_no_differences(host, combination):
    """Routes change all the time while they are compared: nothing is repaired."""
    sonic = start(host, combination)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    compared = lambda table: counts(sonic).get(table, {"compared": 0})["compared"]
    tables, turn = ["APPL_DB ROUTE_TABLE", "ASIC_DB ASIC_STATE", f"chip {ROUTE}"], 0
    assert sonic.setting("orchagent", "--reconcile-interval")["active"] == "1"
    # Over ZeroMQ APPL_DB is a copy of the routes, and orchagent compares groups alone.
    if combination != "zmq":
        tables.append("orchagent ROUTE_TABLE")
    while not all(compared(table) > 3 * len(SINGLE) for table in tables):
        turn += 1
        assert turn < 20_000 and all(process.popen.poll() is None for process in sonic.alive())
        for n, prefix in enumerate(SINGLE):
            if (n + turn) % 7 == 0:
                client.send(fpm.route(fpm.DELROUTE, prefix))
            else:
                client.send(fpm.route(fpm.NEWROUTE, prefix, GATEWAYS[(n + turn) % len(GATEWAYS)], port))
        # fpmsyncd ends the session of a client that reads no reply.
        client.replies(2 * len(SINGLE), 0.001)
    assert repaired(sonic) == {}, counts(sonic)
    assert "another program" not in sonic.processes["syncd"].log() + sonic.processes["fpmsyncd"].log()
    assert "orchagent did not have it" not in sonic.processes["orchagent"].log()


def test_repairs_of_many_are_counted_and_logged_in_part(host):
    sonic = start(host, "redis_sync")
    client = connect_fpm(sonic)
    announce(sonic, client)
    every = SINGLE + BALANCED
    wait_for("APPL_DB has all", lambda: sonic.route_count() == len(every), 60, alive=sonic.alive())
    wait_for("all was compared", lambda: counts(sonic).get("APPL_DB ROUTE_TABLE"), 60, alive=sonic.alive())
    sonic.appl.delete(*(f"ROUTE_TABLE:{prefix}" for prefix in every))
    wait_for("they are there again", lambda: sonic.route_count() == len(every), 60, alive=sonic.alive())
    counted(sonic, {"APPL_DB ROUTE_TABLE": len(every)})
    wait_for("the round is over", lambda: "more was repaired" in sonic.processes["fpmsyncd"].log(), 30)
    assert 10 <= sonic.processes["fpmsyncd"].log().count("another program deleted it") <= 20
    agrees(sonic)


def test_a_deletion_that_orchagent_takes_is_repaired(host):
    """As SONiC's tables delete: orchagent removes the route from the chip, too."""
    sonic = start(host, "redis_sync")
    client = connect_fpm(sonic)
    announce(sonic, client)
    wait_for("the chip has it", lambda: sonic.route(SINGLE[0]), 60, alive=sonic.alive())
    before = sonic.route(SINGLE[0])
    sonic.delete("ROUTE_TABLE", SINGLE[0])
    wait_for("it was repaired", lambda: repaired(sonic).get("APPL_DB ROUTE_TABLE") == 1, 60, alive=sonic.alive())
    wait_for("the chip has it again", lambda: sonic.route(SINGLE[0]) == before, 60, alive=sonic.alive())
    agrees(sonic)


OVER_REDIS = ["redis_sync", "redis_async"]


@pytest.mark.parametrize("combination", OVER_REDIS)
def test_a_deletion_that_redis_loses_is_repaired(host, combination):
    """orchagent is its only reader, and has not read it: no row and no message says that the route is gone."""
    sonic = start(host, combination)
    client = connect_fpm(sonic)
    announce(sonic, client)
    every = SINGLE + BALANCED
    wait_for("the chip has all", lambda: all(sonic.query_all([f"route {prefix}" for prefix in every])), 60, alive=sonic.alive())
    gone = {SINGLE[0], SINGLE[1], BALANCED[0]}
    orchagent = sonic.processes["orchagent"].popen
    orchagent.send_signal(signal.SIGSTOP)
    # Read at once, and so in one flush: while orchagent has a backlog, fpmsyncd holds the next one back.
    fpmsyncd = sonic.processes["fpmsyncd"].popen
    fpmsyncd.send_signal(signal.SIGSTOP)
    client.send(b"".join(fpm.route(fpm.DELROUTE, prefix) for prefix in gone))
    fpmsyncd.send_signal(signal.SIGCONT)
    wait_for("they wait for orchagent", lambda: sonic.appl.smembers("ROUTE_TABLE_KEY_SET") >= gone, 60)
    sonic.appl.srem("ROUTE_TABLE_KEY_SET", *gone)
    sonic.appl.srem("ROUTE_TABLE_DEL_SET", *gone)
    sonic.appl.delete(*(f"ROUTE_TABLE:{prefix}" for prefix in gone))
    orchagent.send_signal(signal.SIGCONT)
    wait_for("the chip has none of them", lambda: not any(sonic.query_all([f"route {prefix}" for prefix in gone])), 60, alive=sonic.alive())
    counted(sonic, {"orchagent ROUTE_TABLE": len(gone)})
    assert all(sonic.query_all([f"route {prefix}" for prefix in every if prefix not in gone]))
    assert "APPL_DB and fpmsyncd do not have it" in sonic.processes["orchagent"].log()
    agrees(sonic)


@pytest.mark.parametrize("combination", OVER_REDIS)
def test_a_host_route_that_is_deleted_with_its_length_is_repaired(host, combination):
    """To orchagent it is the same route. The row without the length stays in APPL_DB, and agrees with fpmsyncd."""
    sonic = start(host, combination)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    hosts = {"20.9.0.1": "32", "2001:db8::9": "128"}
    for address, length in hosts.items():
        gateway = GATEWAYS[0] if length == "32" else "fd00:193::1"
        client.send(fpm.route(fpm.NEWROUTE, f"{address}/{length}", gateway, port))
    prefixes = [f"{address}/{length}" for address, length in hosts.items()]
    routes = lambda: sonic.query_all([f"route {prefix}" for prefix in prefixes])
    wait_for("the chip has them", lambda: all(routes()), 60, alive=sonic.alive())
    before = routes()
    for prefix in prefixes:
        sonic.delete("ROUTE_TABLE", prefix)
    counted(sonic, {"orchagent ROUTE_TABLE": len(prefixes)})
    wait_for("the chip has them again", lambda: routes() == before, 60, alive=sonic.alive())
    assert sonic.routes().keys() == hosts.keys()
    assert "orchagent did not have it" in sonic.processes["orchagent"].log()
    agrees(sonic)


def test_an_appl_db_without_rows_withdraws_no_route(host):
    """Neither while fpmsyncd has not written them again, nor while it has just started and knows none."""
    flags = {"syncd": EVERY, "orchagent": EVERY, "fpmsyncd": ["--reconcile-interval", "0"]}
    sonic = Sonic(host, flags=flags)
    own_routes(sonic)
    client = connect_fpm(sonic)
    announce(sonic, client)
    every = SINGLE + BALANCED
    chip = lambda: sonic.query_all([f"route {prefix}" for prefix in every])
    wait_for("the chip has all", lambda: all(chip()), 60, alive=sonic.alive())
    before = chip()
    compared = lambda: counts(sonic).get("orchagent ROUTE_TABLE", {"compared": 0})["compared"]

    def stays():
        until = compared() + 3 * len(every)
        wait_for("orchagent compared them several times", lambda: compared() > until, 60, alive=[sonic.processes["orchagent"]])
        assert chip() == before and repaired(sonic) == {}
    sonic.appl.delete(*(f"ROUTE_TABLE:{prefix}" for prefix in every))
    stays()
    client.close()
    sonic.processes["fpmsyncd"].kill()
    stays()
    sonic.start("fpmsyncd")
    stays()
    assert sonic.route_count() == 0
    # Routes that are not announced again go after the replay, and not before.
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    for n, prefix in list(enumerate(SINGLE))[1:]:
        client.send(fpm.route(fpm.NEWROUTE, prefix, GATEWAYS[n % len(GATEWAYS)], port))
    wait_for("the chip has what is announced", lambda: [bool(route) for route in chip()] == [False] + [True] * (len(SINGLE) - 1) + [False] * len(BALANCED),
             120, alive=sonic.alive())
    counted(sonic, {"orchagent ROUTE_TABLE": 1 + len(BALANCED)})
    assert chip()[1:len(SINGLE)] == before[1:len(SINGLE)]
    agrees(sonic)


SENDER = Host.FEEDS[0]
ONE_PROCESS = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + """
[fib]
virtual-asic = { lab = true, reconcile-interval = 1 }

[[interface]]
name = "Ethernet0"
addresses = ["10.0.255.254/16"]
"""


def test_in_one_process(host):
    router = Ribtide(host, ONE_PROCESS)
    sender = Speaker(host, SENDER, 65010)
    sender.send(update(SINGLE[:100], [65010], "10.0.0.5") + update(SINGLE[100:], [65010], "10.0.0.6"))
    wait_for("the chip has all", lambda: router.count() == len(SINGLE), 60)
    addresses = [prefix.split("/")[0] for prefix in SINGLE[:20] + ["30.0.0.0/8"]]
    chip = lambda: router.call("POST", "/v1/asic/lookup", {"addresses": addresses})
    router.assert_agrees()
    before = chip()
    changes = [f"remove {entry(prefix)}" for prefix in SINGLE[:5]] + [f"set {entry(prefix)} {DROPS}" for prefix in SINGLE[5:10]]
    router.call("POST", "/v1/asic/faults", {"alter": [*changes, f"create {entry('30.0.0.0/8')} {DROPS}"]})
    wait_for("all is as before", lambda: chip() == before, 60)
    sample = f'ribtide_asic_reconcile_repaired_total{{asic="virtual-asic",table="{ROUTE}"}} 11'
    wait_for("they are counted", lambda: sample in router.call("GET", "/metrics"), 30)
    assert "another program" in router.process.log()

    # Routes change all the time: nothing more is repaired.
    compared = lambda: next(float(line.split()[-1]) for line in router.call("GET", "/metrics").splitlines()
                            if line.startswith(f'ribtide_asic_reconcile_compared_total{{asic="virtual-asic",table="{ROUTE}"}}'))
    until, turn = compared() + 3 * len(SINGLE), 0
    while compared() < until:
        turn += 1
        sender.send(update(SINGLE, [65010], f"10.0.0.{5 + turn % 9}"))
    assert sample in router.call("GET", "/metrics")
    router.assert_agrees()


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_asic_db_that_another_program_empties_is_written_again(host, combination):
    """With the maps of object ids, and all else that a restarted syncd needs."""
    sonic = start(host, combination)
    client = connect_fpm(sonic)
    announce(sonic, client)
    wait_for("the chip has all", lambda: all(sonic.query_all([f"route {prefix}" for prefix in SINGLE])), 60, alive=sonic.alive())
    wait_for("ASIC_DB has all", lambda: len(sonic.chip().routes()) >= len(SINGLE) and not sonic.in_flight(), 60, alive=sonic.alive())

    def objects():
        # A row that once had no attributes keeps its filler.
        found = rows(sonic.asic, "ASIC_STATE:*")
        return {key: {name: value for name, value in row.items() if name != "NULL"} for key, row in found.items()}

    def seen():
        # orchagent's numbers go on where the ids of present objects end.
        return {name: sonic.asic.hgetall(name) for name in ("VIDTORID", "RIDTOVID", "HIDDEN", "COLDVIDS")} | {
            "rows": objects(), "markers": sorted(sonic.asic.keys("RIBTIDE_*"))}
    before = seen()
    sonic.asic.flushdb()

    def as_before():
        now = seen()
        changed = [(name, {key: (before[name].get(key), now[name].get(key)) for key in before[name].keys() | now[name].keys()
                           if before[name].get(key) != now[name].get(key)}) for name in before if name != "markers" and before[name] != now[name]]
        assert changed == []
        assert now["markers"] == before["markers"]
    settled(as_before, 60)
    # New objects get numbers of their own.
    for n in range(20):
        client.send(fpm.route(fpm.NEWROUTE, f"22.0.{n}.0/24", GATEWAYS[n % 4], ifindex(host, "Ethernet0")))
    wait_for("the chip has the new routes", lambda: all(sonic.query_all([f"route 22.0.{n}.0/24" for n in range(20)])), 60, alive=sonic.alive())
    agrees(sonic)


#: The number of APPL_STATE_DB.
APPL_STATE = 14


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_appl_state_db_that_another_program_empties_is_written_again(host, combination):
    """With FIB suppression its rows are what other programs see of the chip, one for each confirmed route."""
    sonic = start(host, combination, suppress=True)
    client = connect_fpm(sonic)
    announce(sonic, client)
    responses = sonic.redis.db(APPL_STATE)
    every = SINGLE + BALANCED

    def seen():
        return {key: responses.hgetall(key) for key in responses.keys("ROUTE_TABLE:*")}
    wait_for("each route has its response", lambda: {f"ROUTE_TABLE:{prefix}" for prefix in every} <= seen().keys(), 60, alive=sonic.alive())
    before = seen()

    def as_before():
        now = seen()
        assert {key: (before.get(key), now.get(key)) for key in before.keys() | now.keys() if before.get(key) != now.get(key)} == {}
    responses.flushdb()
    settled(as_before, 60)
    # Some rows go, and one comes that no route has.
    for prefix in SINGLE[:5]:
        responses.delete(f"ROUTE_TABLE:{prefix}")
    responses.hset("ROUTE_TABLE:99.0.0.0/8", "protocol", "bgp")
    settled(as_before, 60)
    def counted():
        found = counts(sonic)["APPL_STATE_DB ROUTE_TABLE"]
        return (found["repaired"], found["failed"]) == (len(before) + 6, 0)
    wait_for("the repairs are counted", counted, 30, alive=sonic.alive())
    # The routes themselves are not touched, and later responses go on.
    assert repaired(sonic).keys() == {"APPL_STATE_DB ROUTE_TABLE"}
    client.send(fpm.route(fpm.NEWROUTE, "22.0.0.0/24", GATEWAYS[0], ifindex(host, "Ethernet0")))
    wait_for("a new route has its response", lambda: "ROUTE_TABLE:22.0.0.0/24" in seen(), 30, alive=sonic.alive())
    agrees(sonic)


def test_state_db_that_another_program_empties_is_written_again(host):
    """Each daemon looks every half minute whether its rows are there."""
    sonic = start(host, "redis_async")
    client = connect_fpm(sonic)
    announce(sonic, client)
    state = sonic.redis.db(STATE)
    wait_for("the chip has all", lambda: all(sonic.query_all([f"route {prefix}" for prefix in SINGLE])), 60, alive=sonic.alive())

    def seen():
        return {key for key in state.keys("*") if not key.startswith("RIBTIDE_EXPLAIN")}
    wait_for("they have rows", lambda: {f"RIBTIDE_RECONCILE|{name}" for name in ("fpmsyncd", "orchagent", "syncd")} <= seen(), 30)
    before = seen()
    state.flushdb()

    def as_before():
        assert before - seen() == set()
    settled(as_before, 90)


@pytest.mark.parametrize("name", ["syncd", "orchagent", "fpmsyncd"])
def test_a_second_daemon_on_the_same_databases_refuses_to_start(host, name):
    """Two would take each other's rows and replies. The query socket and the FPM port, which one of
    them also has, are of its own here."""
    sonic = Sonic(host)
    own_routes(sonic)
    client = connect_fpm(sonic)
    port = ifindex(host, "Ethernet0")
    flags = {"syncd": ["--query-socket", str(host.folder / "second.sock")], "fpmsyncd": ["--listen", "127.0.0.1:12620"]}
    usual = [flag.format(folder=host.folder) for flag in sonic.flags[name] if "syncd.sock" not in flag and flag != "--query-socket"]
    second = host.start(f"second-{name}", "sh", "-c", WITH_DATABASES, "sh", sonic.redis.config,
                        host.folder / name, *usual, *flags.get(name, []), cwd=host.folder)
    wait_for("the second one has ended", lambda: second.poll() is not None, 30)
    assert second.poll() == 4
    assert second.logged(f"another {name} works on")
    for n in range(50):
        client.send(fpm.route(fpm.NEWROUTE, f"20.0.{n}.0/24", "193.203.0.1", port))
    wait_for("the chip has all", lambda: all(sonic.query_all([f"route 20.0.{n}.0/24" for n in range(50)])), 60, alive=sonic.alive())
