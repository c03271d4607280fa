"""syncd is killed, and the next one finds other rows in ASIC_DB than it had: another program deleted, changed and
added some, or Redis came back with older data. orchagent, which goes on, repairs what syncd lacks, with the object
ids that it has. Redis also comes back with older data while both are away, and while all run."""

import json

import pytest
from harness import fpm, settled, wait_for
from harness.sonic import Sonic, rows
from test_sonic import connect_fpm, ifindex, own_routes
from test_sonic_reconcile import BALANCED, GATEWAYS, ROUTE, SINGLE, agrees, announce

#: syncd writes ASIC_DB in line. Behind, or without it, a syncd that starts asks orchagent to start again.
COMBINATIONS = {
    "redis_sync": {},
    "redis_async": {"syncd": ["-z", "redis_async"], "orchagent": ["-z", "redis_async"]},
    "zmq": {"syncd": ["-z", "zmq_sync"], "orchagent": ["-z", "zmq_async", "-q", "tcp://127.0.0.1", "--route-zmq"],
            "fpmsyncd": ["-q", "tcp://127.0.0.1"]},
}
#: No comparison repairs anything meanwhile.
NEVER = ["--reconcile-interval", "0"]
EVERY = SINGLE + BALANCED


def start(host, combination, suppress=False):
    flags = {name: COMBINATIONS[combination].get(name, []) + NEVER for name in ("syncd", "orchagent", "fpmsyncd")}
    sonic = Sonic(host, flags=flags, suppress=suppress)
    own_routes(sonic)
    client = connect_fpm(sonic)
    announce(sonic, client)
    has(sonic, EVERY)
    return sonic, client


def has(sonic, prefixes):
    wait_for("the chip has all", lambda: all(sonic.query_all([f"route {prefix}" for prefix in prefixes])), 60, alive=sonic.alive())
    wait_for("ASIC_DB has all", lambda: len(sonic.chip().routes()) >= len(prefixes) and not sonic.in_flight(), 60, alive=sonic.alive())


def seen(sonic, prefixes):
    """Where the chip sends packets, what it holds, and the objects of ASIC_DB with their ids."""
    forwards = [answer and answer | {"hops": sorted(answer["hops"], key=str)} for answer in sonic.query_all([f"route {p}" for p in prefixes])]
    # A table that had more rows is larger, and a former run is counted in operations.
    counts = {name: count for name, count in sonic.query("counts").items() if name not in ("bytes", "operations")}
    return forwards, counts, set(rows(sonic.asic, "ASIC_STATE:*"))


def as_before(sonic, before, prefixes, same_ids=True):
    def look():
        now = seen(sonic, prefixes)
        assert [(prefix, a, b) for prefix, a, b in zip(prefixes, before[0], now[0]) if a != b] == []
        assert before[1] == now[1]
        if same_ids:
            assert before[2] ^ now[2] == set()
        assert len(before[2]) == len(now[2])
    settled(look, 60)


@pytest.mark.parametrize("suppress", [False, True], ids=["", "suppressed"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_rows_that_another_program_changes_while_syncd_is_away(host, combination, suppress):
    sonic, client = start(host, combination, suppress)
    extra = ["30.0.0.0/8"]
    before = seen(sonic, EVERY + extra)
    orchagent = sonic.processes["orchagent"]
    sonic.processes["syncd"].kill()
    chip = sonic.chip()
    key = lambda prefix: next(f"ASIC_STATE:{ROUTE}:{name}" for name in chip.objects["ROUTE_ENTRY"] if json.loads(name)["dest"] == prefix)
    for prefix in SINGLE[:20]:
        sonic.asic.delete(key(prefix))
    hops = {sonic.asic.hget(key(prefix), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID") for prefix in SINGLE[20:]}
    for prefix in SINGLE[20:30]:
        other = sorted(hops - {sonic.asic.hget(key(prefix), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID")})[0]
        sonic.asic.hset(key(prefix), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", other)
    sonic.asic.hset(key(SINGLE[30]), "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP")
    sonic.asic.hset(key(SINGLE[31]).replace(SINGLE[31], extra[0]), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", sorted(hops)[0])
    # All that uses these cannot be made either.
    for object_type in ("NEXT_HOP", "NEXT_HOP_GROUP_MEMBER", "NEIGHBOR_ENTRY", "ROUTER_INTERFACE"):
        sonic.asic.delete(f"ASIC_STATE:SAI_OBJECT_TYPE_{object_type}:{sorted(chip.objects[object_type])[0]}")
    sonic.start("syncd")
    as_before(sonic, before, EVERY + extra)
    assert sonic.processes["orchagent"] is orchagent and orchagent.popen.poll() is None
    wait_for("orchagent says so", lambda: "syncd was started again without what was requested" in orchagent.log(), 30)
    agrees(sonic)
    # It goes on.
    client.send(fpm.route(fpm.NEWROUTE, "22.0.0.0/24", GATEWAYS[0], ifindex(host, "Ethernet0")))
    client.send(fpm.route(fpm.DELROUTE, SINGLE[0]))
    wait_for("changes arrive", lambda: [bool(a) for a in sonic.query_all(["route 22.0.0.0/24", f"route {SINGLE[0]}"])] == [True, False], 30, alive=sonic.alive())
    agrees(sonic)


def change(sonic, client):
    """Makes the data of Redis older: routes come, change and go after a copy of it. Returns what is new."""
    port = ifindex(sonic.host, "Ethernet0")
    sonic.redis.db(0).save()
    added = [f"22.0.{n}.0/24" for n in range(20)]
    for prefix in added:
        client.send(fpm.route(fpm.NEWROUTE, prefix, hops=[(gateway, port, ()) for gateway in GATEWAYS[1:4]]))
    for n, prefix in enumerate(SINGLE[:20]):
        client.send(fpm.route(fpm.NEWROUTE, prefix, GATEWAYS[(n + 1) % len(GATEWAYS)], port))
    for prefix in SINGLE[20:40] + BALANCED:
        client.send(fpm.route(fpm.DELROUTE, prefix))
    # One that forwards in the copy drops now.
    client.send(fpm.route(fpm.NEWROUTE, SINGLE[40], action=fpm.BLACKHOLE))
    has(sonic, added)
    wait_for("what is withdrawn is gone", lambda: not any(sonic.query_all([f"route {prefix}" for prefix in SINGLE[20:40] + BALANCED])), 60, alive=sonic.alive())
    wait_for("one drops", lambda: sonic.route(SINGLE[40])["action"] == "drop", 60, alive=sonic.alive())
    wait_for("ASIC_DB has no group of before", lambda: len(sonic.asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_NEXT_HOP_GROUP:*")) == 1, 30, alive=sonic.alive())
    return added


def restart_redis(sonic):
    sonic.redis.process.kill()
    sonic.redis.start()
    sonic.appl, sonic.asic = sonic.redis.db(0), sonic.redis.db(1)


@pytest.mark.parametrize("away", [["syncd"], [], ["orchagent", "syncd"]], ids=["syncd", "none", "both"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_redis_that_comes_back_with_older_data(host, combination, away):
    sonic, client = start(host, combination)
    every = EVERY + change(sonic, client)
    before = seen(sonic, every)
    going_on = [process for name, process in sonic.processes.items() if name not in away]
    for name in away:
        sonic.processes[name].kill()
    restart_redis(sonic)
    for name in reversed(away):
        sonic.start(name)
    # An orchagent that was started again makes objects of its own.
    as_before(sonic, before, every, same_ids="orchagent" not in away)
    for process in going_on:
        assert process.popen.poll() is None, process.log()
    agrees(sonic)
    # It goes on.
    client.send(fpm.route(fpm.DELROUTE, SINGLE[0]))
    wait_for("a change arrives", lambda: not sonic.route(SINGLE[0]), 30, alive=sonic.alive())
    agrees(sonic)


@pytest.mark.parametrize("combination", ["redis_sync", "redis_async"])
def test_redis_that_comes_back_with_requests_of_before(host, combination):
    """syncd carries them out once more, and their replies belong to no request: orchagent describes the switch again."""
    sonic, client = start(host, combination)
    late = "22.0.0.0/24"
    sonic.query("set stall=on")
    client.send(fpm.route(fpm.NEWROUTE, late, GATEWAYS[0], ifindex(host, "Ethernet0")))
    lists = [f"{name}_KEY_VALUE_OP_QUEUE" for name in ("ASIC_STATE", "GETRESPONSE")] + ["RIBTIDE_REQUESTS_OWED"]
    under_way = lambda: sum(map(sonic.asic.llen, lists))
    wait_for("a request is under way", lambda: under_way() > 0, 30, alive=sonic.alive())
    sonic.redis.db(0).save()
    sonic.query("set stall=off")
    has(sonic, [late])
    client.send(fpm.route(fpm.DELROUTE, late))
    wait_for("it is gone", lambda: not sonic.route(late) and under_way() == 0, 30, alive=sonic.alive())
    before, orchagent = seen(sonic, EVERY + [late]), sonic.processes["orchagent"]
    restart_redis(sonic)
    wait_for("orchagent ends", lambda: orchagent.popen.poll() is not None, 60)
    assert "requests to syncd of before" in orchagent.log()
    sonic.start("orchagent")
    as_before(sonic, before, EVERY + [late], same_ids=False)
    agrees(sonic)


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_syncd_that_has_all_is_not_changed(host, combination):
    sonic, _ = start(host, combination)
    before = seen(sonic, EVERY)
    sonic.restart("syncd")
    orchagent = sonic.processes["orchagent"]
    wait_for("it was compared", lambda: "syncd was started again, and has what was requested" in orchagent.log(), 60, alive=sonic.alive())
    as_before(sonic, before, EVERY)
    counts = sonic.query("chip")
    assert counts["failed"] == 0, counts
