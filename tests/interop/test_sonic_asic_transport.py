"""orchagent and syncd in each of their modes: ribtide's together, and each with a plain client
of Redis or a plain socket of libzmq."""

import json
import re
import signal
import time

import pytest
from harness import FEED_ASN, Ribtide, blast, fpm, settled, wait_for, zmq
from harness.peers import FEEDS
from harness.sonic import CONNECTED, STATE, Sonic
from harness.speaker import Speaker, update
from test_sonic import ROUTER, STATIC, check, connect_fpm, ifindex, own_routes
from test_sonic_campaign import Supervisor

SWITCH = "oid:0x21000000000000"


def sonic_in(host, mode, asic_db="in-line", start=("syncd", "orchagent", "fpmsyncd")):
    flags = {"orchagent": ["-z", mode], "syncd": ["-z", mode, "--asic-db", asic_db]}
    return Sonic(host, flags=flags, start=start)


@pytest.mark.parametrize("mode", ["redis_async", "zmq_sync", "zmq_async"])
def test_a_burst_and_crashes(host, mode):
    """Routes change while one of them is stopped, and while one is down."""
    sonic = sonic_in(host, mode)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    check(sonic, router, own)
    assert sonic.setting("orchagent", "synchronous_mode")["active"] == mode
    for daemon in ("orchagent", "syncd"):
        # Bulks are under way, and none is lost.
        sonic.processes["syncd"].popen.send_signal(signal.SIGSTOP)
        feed = blast(host, 20_000, 2_000)
        wait_for("the table is here", lambda: router.count() == 22_000, 60, alive=[router.process])
        sonic.processes["syncd"].popen.send_signal(signal.SIGCONT)
        check(sonic, router, own)
        sonic.processes[daemon].kill()
        feed.kill()
        wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
        sonic.start(daemon)
        check(sonic, router, own)


@pytest.mark.parametrize("mode", ["redis_sync", "redis_async", "zmq_sync", "zmq_async"])
def test_a_syncd_that_is_killed_under_load(host, mode):
    """The next syncd handles the requests without reply, and orchagent continues."""
    sonic = Sonic(host, flags={"orchagent": ["-z", mode], "syncd": ["-z", mode, "--chip", "rate=5000"]})
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    feed = blast(host, 6_000, 300)
    for more in (1_000, 2_500, 4_000):
        wait_for(f"{more} routes are in the chip", lambda: sonic.chip_routes() > len(own) + more, 30, 0.02, alive=sonic.alive())
        sonic.restart("syncd")
    check(sonic, router, own)
    feed.kill()
    for fewer in (4_000, 2_000):
        wait_for(f"{fewer} routes are left", lambda: sonic.chip_routes() < len(own) + fewer, 30, 0.02, alive=sonic.alive())
        sonic.restart("syncd")
    wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
    check(sonic, router, own)
    assert not sonic.asic.exists("RIBTIDE_REQUESTS_OWED")


def test_a_syncd_that_is_killed_while_the_switch_is_described(host):
    """Only the killed syncd had the view, so orchagent is asked to restart, and only then."""
    sonic = sonic_in(host, "redis_sync", start=["syncd"])
    queue = Queue(sonic)
    def asked_to_end():
        hears = sonic.asic.pubsub(ignore_subscribe_messages=True)
        hears.subscribe("NOTIFICATIONS")
        hears.get_message(timeout=5)
        # Its log goes on in the same file. A syncd that is killed before it says so leaves the question to the next one.
        starts = lambda: sonic.processes["syncd"].log(1 << 20).count("syncd has started")
        before = starts()
        sonic.restart("syncd")
        wait_for("syncd started", lambda: starts() > before, 20, alive=sonic.alive())
        heard = hears.get_message(timeout=1)
        return heard is not None and "switch_shutdown_request" in heard["data"]
    for _ in range(2):
        queue.send("INIT_VIEW", "[]", "Snotify")
        assert queue.reply() == ("SAI_STATUS_SUCCESS", "[]", "Snotify")
        queue.send(f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}", '["SAI_SWITCH_ATTR_INIT_SWITCH","true"]', "Screate")
        assert queue.reply()[0] == "SAI_STATUS_SUCCESS"
        described = sonic.asic.exists("RIBTIDE_IN_VIEW")
        # Every syncd asks, until an orchagent begins another view.
        assert asked_to_end() == bool(described)
        assert asked_to_end() == bool(described)
    # The first view was of a switch that had nothing, and was carried out as it came.
    assert described


@pytest.mark.parametrize("mode", ["redis_sync", "redis_async"])
def test_an_orchagent_that_is_killed_in_the_last_step_of_its_view(host, mode):
    """syncd replies to that step while the next orchagent waits for the reply to its first step,
    which differs."""
    sonic = Sonic(host, suppress=True, flags={"orchagent": ["-z", mode], "syncd": ["-z", mode]})
    own, port = own_routes(sonic), ifindex(host, "Ethernet0")
    prefixes = [f"20.0.{n}.0/24" for n in range(200)]
    client = connect_fpm(sonic)
    client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, "193.203.0.7", port) for prefix in prefixes))
    sonic.wait_routes("they are there", own | dict.fromkeys(prefixes, ("193.203.0.7",)))
    steps = lambda: [text for text in sonic.asic.lrange("RIBTIDE_REQUESTS_OWED", 0, -1) if text.endswith("_VIEW")]
    # The last step takes them out of a switch that takes its time.
    sonic.query("set rate=100")
    sonic.restart("orchagent")
    wait_for("the last step is begun", lambda: steps() == ["APPLY_VIEW"], 20, 0.01, alive=sonic.alive())
    sonic.query("set stall=on")
    sonic.restart("orchagent")
    wait_for("another begins", lambda: steps() == ["INIT_VIEW", "APPLY_VIEW"], 20, 0.01, alive=sonic.alive())
    sonic.query("set stall=off rate=0")
    wait_for("both are answered", lambda: "INIT_VIEW" not in steps(), 20, 0.01)
    sonic.wait_routes("they are there again", own | dict.fromkeys(prefixes, ("193.203.0.7",)))
    assert sonic.setting("orchagent", "synchronous_mode")["active"] == mode


@pytest.mark.parametrize("mode", ["redis_async", "zmq_async"])
@pytest.mark.parametrize("asic_db, then", [("behind", "behind"), ("off", "off"), ("behind", "in-line")])
def test_a_syncd_whose_rows_are_not_exact(host, mode, asic_db, then):
    """It asks orchagent to describe everything again: SONiC's orchagent exits, and its
    supervisor restarts it."""
    sonic = sonic_in(host, mode, asic_db)
    router = Ribtide(host, ROUTER)
    feed = blast(host, 2_000, 200)
    wait_for("the table is here", lambda: router.count() == 2_200, 60, alive=[router.process])
    own = 4 + 4  # Default and link-local routes, and the addresses of two ports.
    whole = 2_200 + own + len(CONNECTED) + len(STATIC)
    def in_chip():
        counts = sonic.query("counts")
        return counts["ipv4_routes"] + counts["ipv6_routes"]
    wait_for("the chip has them", lambda: in_chip() == whole, 60, alive=sonic.alive())
    sonic.processes["syncd"].kill()
    sonic.flags["syncd"][-1] = then
    sonic.start("syncd")
    ended = sonic.processes["orchagent"]
    wait_for("orchagent ends", lambda: ended.poll() is not None, 20)
    assert "describes the switch again" in ended.log()
    sonic.start("orchagent")
    wait_for("the chip has them again", lambda: in_chip() == whole, 60, alive=sonic.alive())
    if asic_db == "behind":
        wait_for("so has ASIC_DB", lambda: sonic.chip_routes() == whole, 30)
        assert len(sonic.chip().routes()) == whole
    else:
        assert sonic.chip_routes() == 0
    feed.kill()
    wait_for("all but a few are gone", lambda: in_chip() < 50, 60, alive=sonic.alive())


@pytest.mark.parametrize("asic_db, together", [("off", False), ("off", True), ("behind", True), ("in-line", True)])
def test_a_redis_that_loses_the_marks_of_a_syncd(host, asic_db, together):
    """Only these keys tell a later process that orchagent assumes more than the next syncd has."""
    sonic = sonic_in(host, "zmq_async", asic_db)
    router = Ribtide(host, ROUTER)
    blast(host, 2_000, 0)
    in_chip = lambda: sonic.query("counts")["ipv4_routes"]
    wait_for("the table is here", lambda: router.count() == 2_000, 60, alive=[router.process])

    def all_of_it():
        """The number of routes, with the router's own, when it grows no more."""
        count = in_chip()
        time.sleep(0.5)
        return count > 2_000 and in_chip() == count and count

    whole = wait_for("the chip has it", all_of_it, 60, alive=sonic.alive())
    if together:
        sonic.processes["syncd"].kill()
    sonic.redis.process.kill()
    sonic.redis.start()
    if not together:
        markers = ("RIBTIDE_SYNCD_RAN", "RIBTIDE_SYNCD_SINCE")
        wait_for("the marker keys are there again", lambda: sonic.asic.exists(*markers) == 2, 30, 0.01, alive=sonic.alive())
        sonic.processes["syncd"].kill()
    sonic.start("syncd")
    ended = sonic.processes["orchagent"]
    wait_for("orchagent ends", lambda: ended.poll() is not None, 20)
    assert "describes the switch again" in ended.log()
    sonic.start("orchagent")
    sonic.everything_else()
    wait_for("the chip has it again", lambda: in_chip() == whole, 60, alive=sonic.alive())


def test_syncd_for_a_plain_socket(host):
    """libsairedis over ZeroMQ: one array of strings each way, operations without a letter before them."""
    sonic_in(host, "zmq_sync", start=["syncd"])
    with zmq.stock(host, "REQ", connect=zmq.REQUESTS) as socket:
        def query(*parts):
            socket.send(json.dumps(parts, separators=(",", ":")).encode())
            return socket.recv()
        assert query("INIT_VIEW", "notify") == b'["SAI_STATUS_SUCCESS","notify"]'
        switch = f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}"
        assert query(switch, "create", "SAI_SWITCH_ATTR_INIT_SWITCH", "true") == b'["SAI_STATUS_SUCCESS","getresponse"]'
        status, op, name, router = json.loads(query(switch, "get", "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "oid:0x0"))
        assert (status, op, name) == ("SAI_STATUS_SUCCESS", "getresponse", "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID")
        assert query("APPLY_VIEW", "notify") == b'["SAI_STATUS_SUCCESS","notify"]'
        entry = f'{{"dest":"10.1.0.0/16","switch_id":"{SWITCH}","vr":"{router}"}}'
        made = query("SAI_OBJECT_TYPE_ROUTE_ENTRY:1", "bulkcreate", entry, "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP")
        assert made == b'["SAI_STATUS_SUCCESS","getresponse","SAI_STATUS_SUCCESS",""]'
        again = query("SAI_OBJECT_TYPE_ROUTE_ENTRY:1", "bulkcreate", entry, "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP")
        assert again == b'["SAI_STATUS_FAILURE","getresponse","SAI_STATUS_ITEM_ALREADY_EXISTS",""]'
        left = json.loads(query(SWITCH, "object_type_get_availability_query", "OBJECT_TYPE", "SAI_OBJECT_TYPE_INSEG_ENTRY"))
        assert left == ["SAI_STATUS_SUCCESS", "object_type_get_availability_response", "OBJECT_COUNT", "1048576"]
        of_port = "OBJECT_TYPE", "SAI_OBJECT_TYPE_PORT", "ATTR_ID", "SAI_PORT_ATTR_FEC_MODE"
        status, op, *fields = json.loads(query(SWITCH, "attribute_capability_query", *of_port))
        assert (status, op) == ("SAI_STATUS_SUCCESS", "attribute_capability_response")
        assert fields[-6:] == ["CREATE_IMPLEMENTED", "true", "SET_IMPLEMENTED", "true", "GET_IMPLEMENTED", "true"]
        # Unreadable requests are answered too: the client waits, and passes over what is not called as it expects.
        status, op, *_ = json.loads(query(SWITCH, "attribute_capability_query", "OBJECT_TYPE", "SAI_OBJECT_TYPE_BANANA", "ATTR_ID", "0"))
        assert status != "SAI_STATUS_SUCCESS" and op == "attribute_capability_response"
        assert json.loads(query(f"SAI_OBJECT_TYPE_FDB_FLUSH:{SWITCH}", "flush")) == ["SAI_STATUS_SUCCESS", "flushresponse"]
        socket.send(b"banana")
        assert json.loads(socket.recv())[0] == "SAI_STATUS_NOT_SUPPORTED"
        # A key that claims more objects than a machine has bytes costs no memory.
        assert json.loads(query("SAI_OBJECT_TYPE_ROUTE_ENTRY:99999999999999", "bulkcreate"))[0] == "SAI_STATUS_NOT_SUPPORTED"
        assert query("SAI_OBJECT_TYPE_ROUTE_ENTRY:1", "bulkremove", entry, "") == b'["SAI_STATUS_SUCCESS","getresponse","SAI_STATUS_SUCCESS",""]'


def test_counters_are_polled_as_a_client_sets_them(host):
    """SONiC's flex counters: rows of COUNTERS_DB, the script of a group, and the settings for a syncd that goes on."""
    sonic = sonic_in(host, "zmq_sync", start=["syncd"])
    counters, flex = sonic.redis.db(2), sonic.redis.db(5)
    # As SONiC's: the objects are the keys; then the database's number, the table, and the interval.
    script = counters.script_load("redis.call('SET', 'RATES:' .. KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])")
    with zmq.stock(host, "REQ", connect=zmq.REQUESTS) as socket:
        def done(*parts):
            socket.send(json.dumps(parts, separators=(",", ":")).encode())
            status, *rest = json.loads(socket.recv())
            assert status == "SAI_STATUS_SUCCESS", (parts, status)
            return rest
        switch = f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}"
        done("INIT_VIEW", "notify")
        done(switch, "create", "SAI_SWITCH_ATTR_INIT_SWITCH", "true")
        ports = done(switch, "get", "SAI_SWITCH_ATTR_PORT_LIST", "32:" + ",".join(["oid:0x0"] * 32))[2].split(":", 1)[1].split(",")
        group = "PORT_STAT_COUNTER"
        done(group, "set_counter_group", "POLL_INTERVAL", "100", "STATS_MODE", "STATS_MODE_READ", "FLEX_COUNTER_STATUS", "disable")
        done(group, "set_counter_group", "PORT_PLUGIN_LIST", script)
        names = ["SAI_PORT_STAT_IF_IN_OCTETS", "SAI_PORT_STAT_IF_OUT_UCAST_PKTS"]
        for port in ports[:2]:
            done(f"{group}:{port}", "start_poll", "PORT_COUNTER_ID_LIST", ",".join(names))
        done("APPLY_VIEW", "notify")
        time.sleep(0.5)
        assert counters.keys("COUNTERS:oid:*") == [], "the group is disabled"
        done(group, "set_counter_group", "FLEX_COUNTER_STATUS", "enable")
    rows = [f"COUNTERS:{port}" for port in ports[:2]]
    polled = lambda: [counters.hgetall(row) for row in rows] == [dict.fromkeys(names, "0")] * 2
    wait_for("both ports are polled", polled, 20, alive=sonic.alive())
    wait_for("the script ran", lambda: counters.get(f"RATES:{ports[0]}") == "2 COUNTERS 100", 20, alive=sonic.alive())
    assert flex.hgetall(f"FLEX_COUNTER_TABLE:{group}:{ports[1]}") == {"PORT_COUNTER_ID_LIST": ",".join(names)}
    assert flex.hget(f"FLEX_COUNTER_GROUP_TABLE:{group}", "FLEX_COUNTER_STATUS") == "enable"
    sonic.processes["syncd"].kill()
    counters.delete(*rows)
    sonic.start("syncd")
    wait_for("polling goes on", polled, 20, alive=sonic.alive())


def test_orchagent_for_a_plain_socket(host):
    """The requests of orchagent to a syncd that handles one at a time."""
    sonic = sonic_in(host, "zmq_sync", start=["orchagent"])
    with zmq.stock(host, "REP", bind=zmq.REQUESTS) as socket:
        assert socket.recv() == b'["INIT_VIEW","notify"]'
        socket.send(b'["SAI_STATUS_SUCCESS","notify"]')
        key, op, *fields = json.loads(socket.recv())
        assert (key, op) == (f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}", "create")
        attributes = dict(zip(fields[::2], fields[1::2]))
        assert attributes["SAI_SWITCH_ATTR_INIT_SWITCH"] == "true"
        assert attributes["SAI_SWITCH_ATTR_SRC_MAC_ADDRESS"] == "02:00:00:00:00:01"
        assert "SAI_SWITCH_ATTR_PORT_STATE_CHANGE_NOTIFY" in attributes
        socket.send(b'["SAI_STATUS_FAILURE","getresponse"]')
        process = sonic.processes["orchagent"]
        wait_for("it ends", lambda: process.poll() is not None, 20)
        assert "syncd did not make the switch: SAI_STATUS_FAILURE" in process.log()


class Queue:
    """libsairedis' end of ASIC_DB's queues."""

    def __init__(self, sonic):
        self.redis = sonic.asic

    def send(self, key, value, op):
        self.redis.lpush("ASIC_STATE_KEY_VALUE_OP_QUEUE", key, value, op)
        self.redis.publish("ASIC_STATE_CHANNEL@1", "G")

    def reply(self):
        """The next reply, if one comes soon."""
        def three():
            return self.redis.llen("GETRESPONSE_KEY_VALUE_OP_QUEUE") >= 3
        try:
            wait_for("a reply", three, 2, 0.02)
        except AssertionError:
            return None
        return tuple(self.redis.rpop("GETRESPONSE_KEY_VALUE_OP_QUEUE") for _ in range(3))


def test_syncd_for_a_client_that_waits_for_nothing(host):
    """redis_async as in SONiC's orchagent: only view steps and queries get replies. ribtide's
    orchagent requests more."""
    sonic = sonic_in(host, "redis_async", start=["syncd"])
    queue = Queue(sonic)
    switch = f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}"
    queue.send("INIT_VIEW", "[]", "Snotify")
    assert queue.reply() == ("SAI_STATUS_SUCCESS", "[]", "Snotify")
    queue.send(switch, '["SAI_SWITCH_ATTR_INIT_SWITCH","true"]', "Screate")
    assert queue.reply() is None
    queue.send(switch, '["SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID","oid:0x0"]', "Sget")
    assert queue.reply()[0] == "SAI_STATUS_SUCCESS"
    queue.send(SWITCH, '["OBJECT_TYPE","SAI_OBJECT_TYPE_PORT","ATTR_ID","SAI_PORT_ATTR_FEC_MODE"]', "Sattribute_capability_query")
    status, _, op = queue.reply()
    assert (status, op) == ("SAI_STATUS_SUCCESS", "Sattribute_capability_response")
    queue.send("SAI_OBJECT_TYPE_HASH:oid:0x1c000000000abc", "[]", "Screate")
    assert queue.reply() is None
    assert sonic.setting("syncd", "synchronous_mode")["active"] == "redis_async, and no request is answered"
    queue.send("INIT_VIEW", '["RIBTIDE_ANSWERS","7"]', "Snotify")
    assert queue.reply() == ("SAI_STATUS_SUCCESS", '["RIBTIDE_ANSWERS","7"]', "Snotify")
    queue.send(switch, '["SAI_SWITCH_ATTR_INIT_SWITCH","true"]', "Screate")
    assert queue.reply()[2] == "Sgetresponse"
    assert sonic.setting("syncd", "synchronous_mode")["active"] == "redis_async"


def test_orchagent_beside_a_syncd_that_answers_nothing(host):
    """SONiC's syncd in redis_async: orchagent assumes success, and shows that. The previous
    syncd on this ASIC_DB was ribtide's, which left the key that it replies."""
    sonic = sonic_in(host, "redis_async", start=[])
    sonic.asic.set("RIBTIDE_ANSWERS", "1")
    sonic.start("orchagent")
    taken = wait_for("orchagent begins a view", lambda: sonic.asic.lrange("ASIC_STATE_KEY_VALUE_OP_QUEUE", 0, -1), 20, alive=sonic.alive())
    key, value, op = taken[::-1][:3]
    assert (key, op) == ("INIT_VIEW", "Snotify") and re.fullmatch(r'\["RIBTIDE_ANSWERS","\d+"\]', value), value
    assert sonic.setting("orchagent", "synchronous_mode")["active"] == "redis_async"
    sonic.asic.lpush("GETRESPONSE_KEY_VALUE_OP_QUEUE", "SAI_STATUS_SUCCESS", "[]", "Snotify")
    sonic.asic.publish("GETRESPONSE_CHANNEL@1", "G")
    wait_for("it says so", lambda: "believed" in sonic.setting("orchagent", "synchronous_mode")["active"], 20, alive=sonic.alive())


def test_failure_without_notification(host):
    """A client without replies assumes success: syncd exits, and ASIC_DB has the contents of the
    switch."""
    sonic = sonic_in(host, "redis_async", start=["syncd"])
    queue = Queue(sonic)
    switch = f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}"
    queue.send("INIT_VIEW", "[]", "Snotify")
    queue.send(switch, '["SAI_SWITCH_ATTR_INIT_SWITCH","true"]', "Screate")
    queue.send("APPLY_VIEW", "[]", "Snotify")
    assert queue.reply() == queue.reply() == ("SAI_STATUS_SUCCESS", "[]", "Snotify")
    router = sonic.asic.hget("HIDDEN", "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID")
    def route(prefix):
        entry = json.dumps({"dest": prefix, "switch_id": SWITCH, "vr": router}, separators=(",", ":"))
        queue.send(f"SAI_OBJECT_TYPE_ROUTE_ENTRY:{entry}", '["SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION","SAI_PACKET_ACTION_DROP"]', "Screate")
    route("10.1.0.0/16")
    wait_for("it is there", lambda: sonic.chip_routes() == 1, 10, alive=sonic.alive())
    # The second is there already.
    route("10.2.0.0/16")
    route("10.1.0.0/16")
    process = sonic.processes["syncd"]
    wait_for("syncd ends", lambda: process.poll() is not None, 10)
    assert "in redis_async, where orchagent cannot be told" in process.log()
    sonic.start("syncd")
    counts = wait_for("it is back", lambda: (counts := sonic.query("counts")).get("ipv4_routes") and counts, 20, alive=sonic.alive())
    assert counts["ipv4_routes"] == sonic.chip_routes() == 2


def test_replies_go_on_after_a_redis_that_lost_everything_and_another_syncd(host):
    """In `redis_async` a key of ASIC_DB tells the next syncd that orchagent waits for replies. A syncd that
    outlives its Redis writes the key again."""
    sonic = sonic_in(host, "redis_async")
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    feed = blast(host, 500, 50)
    wait_for("the table is here", lambda: router.count() == 550, 60, alive=[router.process])
    check(sonic, router, own)
    syncd, orchagent = sonic.processes["syncd"], sonic.processes["orchagent"]
    supervisor = Supervisor(sonic)
    try:
        with supervisor.lock:
            sonic.redis.process.kill()
            sonic.redis.start()
        sonic.everything_else()
        wait_for("orchagent was started again", lambda: sonic.processes["orchagent"] is not orchagent, 30)
        settled(lambda: check(sonic, router, own, "rewritten"))
        assert sonic.processes["syncd"] is syncd
        wait_for("the key is there again", lambda: sonic.asic.exists("RIBTIDE_ANSWERS"), 10)
        syncd.kill()
        wait_for("syncd was started again", lambda: sonic.processes["syncd"] is not syncd, 30)
        feed.kill()
        wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
        settled(lambda: check(sonic, router, own, "rewritten"))
    finally:
        supervisor.close()


@pytest.mark.parametrize("mode", ["redis_sync", "redis_async", "zmq_sync"])
def test_a_redis_that_loses_everything(host, mode):
    """A process that cannot know what was executed exits; restarted with the rest of SONiC, they
    make all tables equal."""
    sonic = sonic_in(host, mode)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    feed = blast(host, 3_000, 300)
    wait_for("the table is here", lambda: router.count() == 3_300, 60, alive=[router.process])
    wait_for("routes are in the chip", lambda: sonic.chip_routes() > 3_300, 60)
    sonic.redis.process.kill()
    sonic.redis.start()
    for daemon in ("syncd", "orchagent"):
        sonic.processes[daemon].kill()
    for daemon in ("syncd", "orchagent"):
        sonic.start(daemon)
    sonic.everything_else()
    check(sonic, router, own, "rewritten")
    feed.kill()
    wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
    check(sonic, router, own, "rewritten")


def test_rows_of_no_route_follow_a_redis_of_before(host):
    """Rows for SNMP, CRM and capabilities: orchagent survives, and none of them changes."""
    sonic = sonic_in(host, "zmq_async")
    router = Ribtide(host, ROUTER)
    state, counters = sonic.redis.db(STATE), sonic.redis.db(2)
    default = lambda: state.hget("ROUTE_TABLE|0.0.0.0/0", "state")
    speaker = Speaker(host, FEEDS[1], FEED_ASN)
    speaker.send(update(["0.0.0.0/0"], [FEED_ASN, 7], "193.203.0.33"))
    wait_for("there is a default route", lambda: default() == "ok", 30, alive=sonic.alive())
    sonic.redis.db(0).save()
    speaker.close()
    wait_for("there is none", lambda: default() == "na", 30, alive=sonic.alive())
    for dump in (True, False):
        if not dump:
            (host.folder / "dump.rdb").unlink()
        sonic.redis.process.kill()
        sonic.redis.start()
        whole = lambda: (default() == "na" and state.exists("SWITCH_CAPABILITY|switch") and counters.exists("CRM:STATS"))
        wait_for("they are as they were", whole, 30, alive=[sonic.processes["orchagent"], router.process])
