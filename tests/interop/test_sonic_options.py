"""Options of SONiC's daemons, each by what it changes: requests and their order, rows, threads, files."""

import json
import pathlib
import re

import pytest
from harness import wait_for, zmq
from harness.sonic import STATE, Sonic
from test_sonic import connect_fpm, ifindex
from test_sonic_knobs import ZMQ, frames, queues
from test_sonic_transcripts import RecordedOrchagent, syncd_of_sonics_size

ROUTE, SWITCH = "SAI_OBJECT_TYPE_ROUTE_ENTRY", "oid:0x21000000000000"
SUCCESS, INVALID, NOT_SUPPORTED = (f"SAI_STATUS_{name}" for name in ("SUCCESS", "INVALID_PARAMETER", "NOT_SUPPORTED"))


def with_orchagent(*words, zmq=False):
    """The flags of the daemons with more for orchagent."""
    if not zmq:
        return {"orchagent": list(words)}
    return ZMQ | {"orchagent": [*(word for word in ZMQ["orchagent"] if word not in ("-r", "0")), *words]}


def threads(process):
    """The names of a daemon's threads."""
    return {path.read_text().strip() for path in pathlib.Path(f"/proc/{process.popen.pid}/task").glob("*/comm")}


def bulks(sonic):
    """The destinations of each bulk of new routes, in order, from orchagent's recording."""
    lines = (sonic.host.folder / "sairedis.rec").read_text().splitlines()
    return [re.findall(r'"dest":"([^"]+)"', line) for line in lines if f"|C|{ROUTE}||" in line]


@pytest.mark.parametrize("size", [100, 700])
def test_k_bounds_the_routes_of_a_bulk(host, size):
    sonic = Sonic(host, flags=with_orchagent("-k", str(size)))
    client = connect_fpm(sonic)
    client.send(frames(ifindex(host, "Ethernet0"), 0, 5000))
    wait_for("the chip has them", lambda: sum(map(len, bulks(sonic))) >= 5000, 60, alive=sonic.alive())
    assert max(map(len, bulks(sonic))) == size
    client.close()


@pytest.mark.parametrize("sort", ["true", "false"])
def test_sort_routes_decides_on_the_order_of_a_bulk(host, sort):
    """Over ZeroMQ rows come in the order in which they were sent: here the descending one. Rows that wait for their next
    hop are in the order of the table when it comes, so it is usable before."""
    sonic = Sonic(host, start=["syncd", "orchagent"], flags=with_orchagent("--sort-routes", sort, zmq=True))
    dests = [f"20.0.{n}.0/24" for n in reversed(range(200))]
    with zmq.stock(host, "PUSH", connect=zmq.TABLES) as rows:
        row = zmq.row(protocol="bgp", nexthop="193.203.0.7", ifname="Ethernet0")
        rows.send(zmq.message("ROUTE_TABLE", ("21.0.0.0/24", row)))
        first = lambda: sonic.route("21.0.0.0/24")
        assert wait_for("the next hop is usable", first, 60, alive=sonic.alive())["hops"][0]["gateway"] == "193.203.0.7"
        rows.send(zmq.message("ROUTE_TABLE", *((dest, row) for dest in dests)))
        sent = lambda: [dest for bulk in bulks(sonic) for dest in bulk if dest in set(dests)]
        wait_for("all are requested", lambda: len(sent()) == len(dests), 60, alive=sonic.alive())
    assert sent() == (dests if sort == "false" else dests[::-1])


@pytest.mark.parametrize("single", [False, True])
def test_single_groups_makes_a_group_of_one_next_hop(host, single):
    sonic = Sonic(host, start=["syncd", "orchagent"], flags=with_orchagent(*["--single-groups"] * single))
    sonic.set("NEXTHOP_GROUP_TABLE", "7", nexthop="193.203.0.7", ifname="Ethernet0")
    sonic.set("ROUTE_TABLE", "20.0.0.0/24", protocol="bgp", nexthop_group="7")
    wait_for("the chip has the route", lambda: sonic.route("20.0.0.0/24"), 60, alive=sonic.alive())
    objects = sonic.chip().objects
    assert len(objects["NEXT_HOP_GROUP"]) == len(objects["NEXT_HOP_GROUP_MEMBER"]) == single


@pytest.mark.parametrize("ring", [False, True])
def test_ring_prefetches_rows_while_orchagent_waits_for_the_chip(host, ring):
    """Its queue fills up behind a chip that stands still, and the rows of it are in APPL_DB's key set no more."""
    sonic = Sonic(host, flags=with_orchagent(*["-R"] * ring))
    client = connect_fpm(sonic)
    sonic.query("set stall=on")
    client.send(frames(ifindex(host, "Ethernet0"), 0, 60_000))
    taken = ("orchagent", "ROUTE_TABLE taken consumer")
    held = lambda: queues(sonic)[("orchagent", "rows in m_toSync")]
    wait_for("orchagent is full", lambda: held()["depth"] >= held()["bound"], 60, alive=sonic.alive())
    if ring:
        wait_for("rows are prefetched", lambda: queues(sonic)[taken]["depth"] > 0, 20, alive=sonic.alive())
    assert (taken in queues(sonic)) == ring and ("ring" in threads(sonic.processes["orchagent"])) == ring
    sonic.query("set stall=off")
    wait_for("the chip has all", lambda: sonic.query("counts")["ipv4_routes"] >= 60_000, 120, alive=sonic.alive())
    client.close()


@pytest.mark.parametrize("thread", [False, True])
def test_a_records_on_a_thread_of_its_own(host, thread):
    """The recording is the same; the thread and its queue are there with -A alone."""
    sonic = Sonic(host, start=["syncd", "orchagent"], flags=with_orchagent(*["-A"] * thread))
    sonic.set("ROUTE_TABLE", "20.0.0.0/24", protocol="bgp", nexthop="193.203.0.7", ifname="Ethernet0")
    rows = host.folder / "swss.rec"
    wait_for("the row is recorded", lambda: "ROUTE_TABLE:20.0.0.0/24|SET|" in rows.read_text(), 60, alive=sonic.alive())
    wait_for("so is the request", lambda: any("20.0.0.0/24" in bulk for bulk in bulks(sonic)), 60, alive=sonic.alive())
    assert ("recorder" in threads(sonic.processes["orchagent"])) == thread
    writes = lambda: [name for daemon, name in queues(sonic) if daemon == "orchagent" and name.startswith("to ") and ".rec" in name]
    wait_for("the queues are published", lambda: len(writes()) == 2 * thread, 20, alive=sonic.alive())


def test_zmq_notifications_is_where_orchagent_hears_of_links(host):
    """A program in place of SONiC's syncd says that a link is down. orchagent reads all links when it connects, and the chip
    says that they are up; so the program repeats it until it is heard."""
    sonic = Sonic(host, start=["syncd", "orchagent"], flags={
        "syncd": ["-z", "zmq_sync"], "orchagent": ["-z", "zmq_sync", "--zmq-notifications", "tcp://127.0.0.1:5777"]})
    state = lambda name: sonic.appl.hget(f"PORT_TABLE:{name}", "oper_status")
    names = ("Ethernet0", "Ethernet4")
    wait_for("the ports are up", lambda: [state(name) for name in names] == ["up", "up"], 60, alive=sonic.alive())
    of_ports = lambda: [fields["SAI_ROUTER_INTERFACE_ATTR_PORT_ID"] for fields in sonic.chip().objects["ROUTER_INTERFACE"].values()]
    [port, _] = wait_for("both have router interfaces", lambda: len(of_ports()) == 2 and of_ports(), 60, alive=sonic.alive())
    down = [{"port_id": port, "port_state": "SAI_PORT_OPER_STATUS_DOWN",
             "port_error_status": "SAI_PORT_ERROR_STATUS_CLEAR"}]
    compact = lambda value: json.dumps(value, separators=(",", ":"))
    with zmq.stock(host, "PUSH", connect=5777) as push:
        def is_heard():
            push.send_string(compact(["port_state_change", compact(down)]))
            return sorted(state(name) for name in names) == ["down", "up"]
        wait_for("one port is down", is_heard, 20, 0.2, alive=sonic.alive())


def test_warm_timer_bounds_the_wait_for_fpmsyncd(host):
    """Over ZeroMQ a warm start waits for the routes of fpmsyncd, which is not there. After the timer those of APPL_DB are all."""
    sonic = Sonic(host, flags=with_orchagent("--warm-timer", "3600", zmq=True))
    client = connect_fpm(sonic)
    client.send(frames(ifindex(host, "Ethernet0"), 0, 100))
    wait_for("the chip has them", lambda: sonic.query("counts")["ipv4_routes"] >= 100, 60, alive=sonic.alive())
    wait_for("APPL_DB has them", lambda: sonic.route_count() == 100, 60, alive=sonic.alive())
    database = sonic.redis.db(STATE)
    database.hset("WARM_RESTART_ENABLE_TABLE|system", "enable", "true")
    for name in ("fpmsyncd", "orchagent"):
        sonic.processes[name].kill()
        del sonic.processes[name]
    state = lambda: database.hget("WARM_RESTART_TABLE|orchagent", "state")
    in_view = lambda: sonic.asic.exists("RIBTIDE_IN_VIEW")
    sonic.start("orchagent")
    wait_for("orchagent describes its view", lambda: state() == "restored" and in_view(), 60, alive=sonic.alive())
    flags = sonic.flags["orchagent"]
    flags[flags.index("3600")] = "1"
    sonic.processes["orchagent"].kill()
    sonic.start("orchagent")
    wait_for("its view is applied", lambda: state() == "reconciled" and not in_view(), 60, alive=sonic.alive())
    assert sonic.query("counts")["ipv4_routes"] >= 100


@pytest.mark.parametrize("validation, alone, bulk", [("all", False, False), ("single", False, True), ("off", True, True)])
def test_validation_selects_the_requests_that_the_schema_is_held_against(host, validation, alone, bulk):
    """A route with an attribute of another object. The virtual switch itself has another status for that."""
    sonic = syncd_of_sonics_size(host, "--validation", validation)
    client = RecordedOrchagent(sonic)

    def ask(op, key, *values):
        return client.reply((key, json.dumps(values), op))

    assert ask("Snotify", "INIT_VIEW")[0] == SUCCESS
    assert ask("Screate", f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}", "SAI_SWITCH_ATTR_INIT_SWITCH", "true")[0] == SUCCESS
    router = json.loads(ask("Sget", f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}", "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "oid:0x0")[1])[1]
    assert ask("Snotify", "APPLY_VIEW")[0] == SUCCESS
    entry = lambda n: f'{{"dest":"20.0.{n}.0/24","switch_id":"{SWITCH}","vr":"{router}"}}'
    wrong = ("SAI_NEXT_HOP_ATTR_IP", "10.0.0.1")
    assert ask("Screate", f"{ROUTE}:{entry(1)}", *wrong)[0] == (NOT_SUPPORTED if alone else INVALID)
    drop = "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP"
    statuses = json.loads(ask("Sbulkcreate", f"{ROUTE}:2", entry(2), "=".join(wrong), entry(3), drop)[1])[::2]
    assert statuses == [NOT_SUPPORTED if bulk else INVALID, SUCCESS]
    assert ("refused" in sonic.processes["syncd"].log(1 << 16)) == (validation != "off")
