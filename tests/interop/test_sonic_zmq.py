"""SONiC's daemons with ZeroMQ between them: ribtide's together, and each with a plain socket of
libzmq."""

import signal

import pytest
from harness import Ribtide, blast, fpm, wait_for, zmq
from harness.sonic import CONFIG, Sonic
from test_sonic import ROUTER, check, connect_fpm, ifindex, own_routes


def zmq_sonic(host, appl_db="behind", start=("syncd", "orchagent", "fpmsyncd")):
    """SONiC's setting for it, and SONiC's flags."""
    flags = {"orchagent": ["-q", "tcp://127.0.0.1"], "fpmsyncd": ["--appl-db", appl_db]}
    return Sonic(host, config={"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}}, flags=flags, start=start)


def drained(socket, until):
    """Rows as a consumer of SONiC's would have them in the end."""
    rows = {}
    while not until(rows):
        db, table, changes = zmq.parse(socket.recv())
        assert (db, table) == ("APPL_DB", "ROUTE_TABLE")
        for key, fields in changes:
            if fields:
                assert [name for name, _ in fields] == zmq.FIELDS
                rows[key] = dict(fields)
            else:
                rows.pop(key, None)
    return rows


def test_fpmsyncd_to_a_plain_socket(host):
    """A consumer that does not acknowledge gets SONiC's layout, byte for byte: every field, and a count of 0 deletes."""
    sonic = zmq_sonic(host, start=["fpmsyncd"])
    client = connect_fpm(sonic)
    port = ifindex(host, "Ethernet0")
    with zmq.stock(host, "PULL", bind=zmq.TABLES) as socket:
        wait_for("fpmsyncd is connected", lambda: sonic.setting("fpmsyncd", "swss_zmq")["active"] == "not acknowledged", 20)
        client.send(fpm.route(fpm.NEWROUTE, "10.0.0.0/24", "193.203.0.7", port))
        wanted = zmq.row(protocol="bgp", nexthop="193.203.0.7", ifname="Ethernet0", weight="1")
        assert socket.recv() == zmq.message("ROUTE_TABLE", ("10.0.0.0/24", wanted))
        wait_for("APPL_DB has it", lambda: sonic.routes() == {"10.0.0.0/24": {k: v for k, v in wanted.items() if v and v != "false"}}, 10)
        client.send(fpm.route(fpm.DELROUTE, "10.0.0.0/24"))
        gone = socket.recv()
        assert gone == zmq.message("ROUTE_TABLE", ("10.0.0.0/24", {})) and len(gone) == 70
        wait_for("APPL_DB has not", lambda: sonic.route_count() == 0, 10)
        client.send(b"".join(fpm.route(fpm.NEWROUTE, f"10.{n >> 8}.{n & 255}.0/24", "193.203.0.7", port) for n in range(3000)))
        assert len(drained(socket, lambda rows: len(rows) == 3000)) == 3000
    # It went away, which is noticed with nothing to say, and comes back as one that knows nothing: it is told everything.
    wait_for("it is noticed", lambda: sonic.setting("fpmsyncd", "swss_zmq")["active"] == "disabled", 20)
    client.send(fpm.route(fpm.DELROUTE, "10.0.0.0/24"))
    with zmq.stock(host, "PULL", bind=zmq.TABLES) as socket:
        rows = drained(socket, lambda rows: len(rows) == 2999)
        assert "10.0.0.0/24" not in rows
    assert sonic.in_flight() == 0


def test_orchagent_from_a_plain_socket(host):
    """A producer of SONiC's: one route a message or many, other tables, and bytes that are no message."""
    sonic = zmq_sonic(host, start=["syncd", "orchagent"])
    own = own_routes(sonic)
    row = zmq.row(protocol="bgp", nexthop="193.203.0.7", ifname="Ethernet0")
    many = {f"192.0.{n}.0/24": row for n in range(200)}
    with zmq.stock(host, "PUSH", connect=zmq.TABLES) as socket:
        for garbage in (b"", b"\0" * 7, b"\xff" * 64, zmq.message("ROUTE_TABLE", ("192.0.2.0/24", row))[:-3], zmq.message("BANANA", ("x", row)),
                        zmq.message("ROUTE_TABLE", ("banana", row)), b"\x02" + b"\0" * 7 + b"\xff" * 20):
            socket.send(garbage)
        for change in many.items():
            socket.send(zmq.message("ROUTE_TABLE", change))
        sonic.wait_routes("one by one", own | dict.fromkeys(many, ("193.203.0.7",)))
        moved = dict.fromkeys(list(many)[:100], zmq.row(protocol="bgp", nexthop="193.203.0.8", ifname="Ethernet0"))
        rest = dict.fromkeys(list(many)[100:], {})
        socket.send(zmq.message("ROUTE_TABLE", *moved.items(), *rest.items()))
        sonic.wait_routes("all at once", own | dict.fromkeys(moved, ("193.203.0.8",)))
        # SONiC's resync takes away routes beyond those sent in it.
        socket.send(zmq.message("ROUTE_TABLE", ("resync", {"nexthop": "0.0.0.0"})))
        socket.send(zmq.message("ROUTE_TABLE", ("192.0.0.0/24", row)))
        socket.send(zmq.message("ROUTE_TABLE", ("resync", {})))
        sonic.wait_routes("one", own | {"192.0.0.0/24": ("193.203.0.7",)})


@pytest.mark.parametrize("appl_db", ["off", "behind", "in-line"])
def test_a_burst_while_orchagent_sleeps(host, appl_db):
    """SONiC's own loses routes here. No route may be lost or stale. The burst exceeds the socket
    buffers."""
    host.small_sockets()
    sonic = zmq_sonic(host, appl_db)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    check(sonic, router, own, appl_db=appl_db)
    sonic.processes["orchagent"].popen.send_signal(signal.SIGSTOP)
    feed = blast(host, 30_000, 2_000)
    wait_for("the table is here", lambda: router.count() == 32_000, 60, alive=[router.process])
    sonic.processes["orchagent"].popen.send_signal(signal.SIGCONT)
    check(sonic, router, own, appl_db=appl_db)
    sonic.processes["orchagent"].popen.send_signal(signal.SIGSTOP)
    feed.kill()
    wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
    sonic.processes["orchagent"].popen.send_signal(signal.SIGCONT)
    check(sonic, router, own, appl_db=appl_db)


@pytest.mark.parametrize("appl_db", ["off", "behind", "in-line"])
@pytest.mark.parametrize("daemon", ["fpmsyncd", "orchagent", "syncd", "ribtide"])
def test_a_crash_leaves_nothing_stale(host, daemon, appl_db):
    """Routes change while one of the four is down: afterwards all tables are correct."""
    sonic = zmq_sonic(host, appl_db)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    first = blast(host, 5000, 500)
    wait_for("the table is here", lambda: router.count() == 5500, 60, alive=[router.process])
    check(sonic, router, own, appl_db=appl_db)
    if daemon == "ribtide":
        router.process.kill()
        router.start()
    else:
        sonic.processes[daemon].kill()
        first.kill()
        wait_for("the feed is gone", lambda: router.count() == 0, 30)
    blast(host, 3000, 300, seed=8)
    wait_for("another table is here", lambda: router.count() == 3300, 60, alive=[router.process])
    if daemon != "ribtide":
        sonic.start(daemon)
    check(sonic, router, own, appl_db=appl_db)


def test_without_zmq_routes_pass_through_the_database(host):
    """A combination that would lose every route is refused with one sentence."""
    sonic = Sonic(host, start=["syncd", "orchagent"])
    sonic.flags["fpmsyncd"] = ["--appl-db", "off"]
    sonic.start("fpmsyncd")
    process = sonic.processes["fpmsyncd"]
    wait_for("it ends", lambda: process.poll() is not None, 10)
    assert "--appl-db off would lose every route" in process.log()
