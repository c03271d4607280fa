"""A Redis that works and refuses writes: its memory is full, it is a replica, or its disk is. Routes wait for it, or go on without it.
And keys that hold something else than a row."""

import json
import time

import pytest
from harness import Ribtide, blast, fpm, settled, wait_for
from harness.sonic import APPL, ASIC, CONFIG, FLAGS, STATE, Sonic
from test_sonic import ROUTER, check, connect_fpm, ifindex, own_routes
from test_sonic_warm import COMBINATIONS

#: What makes a server refuse writes, and what makes it take them again.
REFUSALS = {
    "OOM": (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
    "READONLY": (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("transport", ["redis", "zmq"])
def test_writes_that_are_refused_for_a_time(host, transport, refusal):
    """In the middle of a table, and again in the middle of its withdrawal."""
    flags = {"fpmsyncd": ["-q", "tcp://127.0.0.1"], "orchagent": ["--route-zmq", "-q", "tcp://127.0.0.1"]} if transport == "zmq" else {}
    sonic = Sonic(host, flags=flags)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    refuse, allow = REFUSALS[refusal]
    appl_db = "behind" if transport == "zmq" else "in-line"

    def refused(during, seconds=2):
        sonic.appl.execute_command(*refuse)
        result = during()
        time.sleep(seconds)
        sonic.appl.execute_command(*allow)
        return result
    feed = refused(lambda: blast(host, 30_000, 0))
    wait_for("the table is here", lambda: router.count() == 30_000, 60, alive=[router.process])
    check(sonic, router, own, appl_db)
    refused(feed.kill)
    wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
    check(sonic, router, own, appl_db)
    assert any("Redis refuses commands" in sonic.processes[name].log() for name in ("fpmsyncd", "orchagent", "syncd"))


def test_bookkeeping_that_is_refused_for_good(host):
    """STATE_DB and COUNTERS_DB take nothing, before the daemons start and after: routes go on, and the rows come when they may."""
    sonic = Sonic(host, state=True, start=())
    sonic.redis.db(STATE).execute_command("REPLICAOF", "127.0.0.1", "1")
    for name in ("syncd", "orchagent", "fpmsyncd"):
        sonic.start(name)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    blast(host, 5_000, 500)
    wait_for("the table is here", lambda: router.count() == 5_500, 60, alive=[router.process])
    check(sonic, router, own)
    assert all(process.poll() is None for process in sonic.alive())
    sonic.redis.db(STATE).execute_command("REPLICAOF", "NO", "ONE")
    wait_for("each daemon shows its settings",
             lambda: all(sonic.setting(name, "multi-db")["active"] for name in ("syncd", "orchagent", "fpmsyncd")), 20)
    wait_for("the counters are there", lambda: int(sonic.redis.db(2).hget("CRM:STATS", "crm_stats_ipv4_route_used") or 0) > 5_000, 20)


#: Keys that hold no hash, by database; and one that is no key of its table. Some are read, some are written.
WRONG = {
    APPL: ["ROUTE_TABLE:20.0.1.0/24", "ROUTE_TABLE:20.0.9.0/24", "_ROUTE_TABLE:20.0.2.0/24", "NEIGH_TABLE:Ethernet0:193.203.0.200",
           "NEXTHOP_GROUP_TABLE:7", "LABEL_ROUTE_TABLE:100", "INTF_TABLE:Ethernet8", "PORT_TABLE:Ethernet8", "VRF_TABLE:Vrf9",
           "ROUTE_TABLE_DEL_SET", "LABEL_ROUTE_TABLE_KEY_SET"],
    ASIC: ['ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:{"dest":"20.0.9.0/24","switch_id":"oid:0x21000000000000","vr":"oid:0x3000000000001"}',
           "ASIC_STATE:SAI_OBJECT_TYPE_NEXT_HOP:oid:0x4000000000999", "VIDTORID"],
    CONFIG: ["DEVICE_METADATA|localhost", "SYSTEM_DEFAULTS|swss_zmq", "WARM_RESTART|bgp"],
    STATE: ["SWITCH_CAPABILITY|switch", "ROUTE_TABLE|0.0.0.0/0", "RIBTIDE_QUEUES|orchagent", "WARM_RESTART_ENABLE_TABLE|swss"],
}


@pytest.mark.parametrize("combination", ["redis_sync", "zmq"])
def test_keys_of_another_type(host, combination):
    """They stop no daemon, neither at its start nor later: they are named, passed over, and read again when they are written again."""
    sonic = Sonic(host, start=(), flags=COMBINATIONS[combination])

    def spoil(database, key):
        sonic.redis.db(database).delete(key)
        sonic.redis.db(database).set(key, "no hash")
    for database, keys in WRONG.items():
        for key in keys:
            spoil(database, key)
    sonic.appl.hset("ROUTE_TABLE:no prefix", mapping={"nexthop": "193.203.0.1", "ifname": "Ethernet0"})
    for name in FLAGS:
        sonic.start(name)
    own = own_routes(sonic)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    announce = lambda *prefixes, gateway="193.203.0.1": client.send(
        b"".join(fpm.route(fpm.NEWROUTE, prefix, gateway, port) for prefix in prefixes))
    others = [f"20.1.{n}.0/24" for n in range(100)]
    announce("20.0.1.0/24", "20.0.2.0/24", *others)
    want = own | dict.fromkeys(["20.0.1.0/24", "20.0.2.0/24", *others], ("193.203.0.1",))
    sonic.wait_routes("every route is there", want)
    log = lambda: "".join(process.log() for process in sonic.alive())
    for key in ("ROUTE_TABLE:20.0.9.0/24", "NEIGH_TABLE:Ethernet0:193.203.0.200", "ROUTE_TABLE:no prefix", "SYSTEM_DEFAULTS|swss_zmq"):
        assert key in log(), log()
    def counted():
        assert sonic.redis.db(STATE).type("RIBTIDE_QUEUES|orchagent") == "hash"
        assert json.loads(sonic.redis.db(STATE).hget("RIBTIDE_QUEUES|orchagent", "unreadable keys of Redis") or '{"depth": 0}')["depth"] > 5
    settled(counted, 20)

    # Written again they are rows as any other.
    announce("20.0.9.0/24", gateway="193.203.0.200")
    sonic.neighbor("Ethernet0", "193.203.0.200")
    want["20.0.9.0/24"] = ("193.203.0.200",)
    sonic.wait_routes("the row is read", want)
    assert sonic.redis.db(STATE).hgetall("SWITCH_CAPABILITY|switch")["MAX_NEXTHOP_GROUP_COUNT"]

    # While the daemons run.
    for database, key in ((APPL, "ROUTE_TABLE:20.0.1.0/24"), (APPL, "ROUTE_TABLE_KEY_SET"), (APPL, "NEIGH_TABLE:Ethernet0:193.203.0.200"),
                          (STATE, "RIBTIDE_QUEUES|orchagent")):
        spoil(database, key)
    announce("20.0.1.0/24", "20.0.3.0/24", gateway="193.203.0.2")
    wait_for("the chip has it", lambda: all((entry := sonic.route(p)) and entry["hops"][0]["gateway"] == "193.203.0.2" for p in ("20.0.1.0/24", "20.0.3.0/24")), 60,
             alive=sonic.alive())
    # A start beside such a row; the others are there.
    sonic.restart("orchagent")
    wait_for("orchagent is back", lambda: all(sonic.route(p) for p in want if p.startswith("20.1.")), 60, alive=sonic.alive())
