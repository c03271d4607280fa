"""MPLS labels through SONiC's three daemons, with a plain FPM client, and plain clients of Redis
and ZeroMQ."""

import pytest
from harness import fpm, wait_for, zmq
from harness.sonic import Sonic, rows
from test_route_check import look
from test_sonic import connect_fpm, ifindex, own_routes

LABELS = {
    200: [("193.203.0.7", "Ethernet0", [201])],
    300: [("193.203.0.7", "Ethernet0", [])],
    400: [("193.203.0.7", "Ethernet0", [401, 402]), ("10.2.0.17", "Ethernet4", [])],
    1048575: [("fc00:2::11", "Ethernet4", [16])],
}


def start(host, over, **more):
    """With ZeroMQ between fpmsyncd and orchagent, or without."""
    flags = {"fpmsyncd": ["--quiet", "2"]}
    if over == "zmq":
        flags = {"orchagent": ["-q", "tcp://127.0.0.1"], "fpmsyncd": ["--quiet", "2", "--appl-db", "in-line"]}
        more["config"] = {"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}}
    return Sonic(host, flags=flags, **more)


def frame(host, label, hops):
    return fpm.label_route(fpm.NEWROUTE, label, [(gateway, ifindex(host, by), labels) for gateway, by, labels in hops])


def label_rows(sonic):
    """The fields with a value of each label."""
    said = rows(sonic.appl, "LABEL_ROUTE_TABLE:*")
    return {int(key.split(":")[1]): {f: v for f, v in row.items() if v and (f, v) != ("blackhole", "false")} for key, row in said.items()}


def wanted(labels):
    """The expected contents of APPL_DB and ASIC_DB for these labels."""
    table, entries = {}, {}
    for label, hops in labels.items():
        stacks = ["swap" + "/".join(map(str, stack)) if stack else "na" for _, _, stack in hops]
        table[label] = {"protocol": "bgp", "nexthop": ",".join(h[0] for h in hops), "ifname": ",".join(h[1] for h in hops), "mpls_pop": "1"}
        if set(stacks) != {"na"}:
            table[label]["mpls_nh"] = ",".join(stacks)
        names = [address if stack == "na" else f"{stack}@{address}" for stack, (address, _, _) in zip(stacks, hops)]
        entries[label] = (tuple(sorted(names)), "1")
    return table, entries


def holds(sonic, what, labels):
    table, entries = wanted(labels)
    wait_for(what, lambda: (label_rows(sonic), sonic.chip().labels()) == (table, entries), 30, alive=sonic.alive())
    assert sonic.chip().unused() == []
    assert count_in_flight(sonic) == 0


def count_in_flight(sonic):
    return sonic.appl.scard("LABEL_ROUTE_TABLE_KEY_SET") + len(rows(sonic.appl, "_LABEL_ROUTE_TABLE:*"))


@pytest.mark.parametrize("over", ["redis", "zmq"])
def test_labels_through_all_stages(host, over):
    sonic = start(host, over, suppress=True)
    own = own_routes(sonic)
    client = connect_fpm(sonic)
    client.send(b"".join(frame(host, label, hops) for label, hops in LABELS.items()))
    # Also with FIB suppression they are answered at once.
    assert client.replies(len(LABELS)) == [(label, 0, 186, True) for label in LABELS]
    holds(sonic, "they are there", LABELS)
    # As packets see it.
    swap, multi = sonic.query("label 200"), sonic.query("label 400")
    assert (swap["pop"], swap["action"]) == (1, "forward")
    assert [(h["gateway"], h["labels"]) for h in swap["hops"]] == [("193.203.0.7", "swap201")], swap
    assert sorted((h["gateway"], h.get("labels")) for h in multi["hops"]) == [("10.2.0.17", None), ("193.203.0.7", "swap401/402")]
    assert sonic.query("label 777") is None
    # IP routes put labels on, and share groups with others.
    push = [("193.203.0.7", ifindex(host, "Ethernet0"), [100, 101]), ("10.2.0.17", ifindex(host, "Ethernet4"), [])]
    client.send(fpm.route(fpm.NEWROUTE, "192.0.2.0/24", table=0, hops=push[:1]) + fpm.route(fpm.NEWROUTE, "192.0.3.0/24", table=0, hops=push))
    sonic.wait_routes("labels are put on", own | {"192.0.2.0/24": ("push100/101@193.203.0.7",),
                                                  "192.0.3.0/24": ("10.2.0.17", "push100/101@193.203.0.7")})
    assert sonic.routes()["192.0.3.0/24"]["mpls_nh"] == "push100/101,na"
    assert [h["labels"] for h in sonic.lookup("192.0.2.1")["hops"]] == ["push100/101"]
    # A check finds all of it.
    status, found = look("--sonic", "--database-config", sonic.redis.config, "--syncd", host.folder / "syncd.sock", "--wait", 10)
    assert status == 0, found
    assert found["routes"]["APPL_DB labels"] == found["routes"]["ASIC_DB labels"] == found["routes"]["chip labels"] == len(LABELS)
    # Changes: another operation, no label any more, one next hop less, a blackhole; and what is not carried.
    left = {200: [("193.203.0.8", "Ethernet0", [])], 300: [("193.203.0.7", "Ethernet0", [301])], 400: LABELS[400][:1]}
    client.send(b"".join(frame(host, label, hops) for label, hops in left.items()))
    client.send(fpm.label_route(fpm.DELROUTE, 1048575) + fpm.label_route(fpm.NEWROUTE, 500, kind=6) + frame(host, 0, LABELS[300]))
    blackhole = lambda: (label_rows(sonic).get(500), sonic.chip().labels().get(500)) == ({"protocol": "bgp", "blackhole": "true"}, (("drop",), "1"))
    wait_for("one drops", blackhole, 30)
    assert sonic.query("label 500")["action"] == "drop"
    client.send(fpm.label_route(fpm.DELROUTE, 500))
    holds(sonic, "the others changed", left)
    # Next hops with labels go with the last that resolves to them; those of neighbours stay.
    client.send(fpm.route(fpm.DELROUTE, "192.0.2.0/24", table=0) + fpm.route(fpm.DELROUTE, "192.0.3.0/24", table=0))
    sonic.wait_routes("as before", own)
    labelled = [hop for hop in sonic.chip().objects["NEXT_HOP"].values() if hop["SAI_NEXT_HOP_ATTR_TYPE"] == "SAI_NEXT_HOP_TYPE_MPLS"]
    assert sorted(hop["SAI_NEXT_HOP_ATTR_LABELSTACK"] for hop in labelled) == ["1:301", "2:401,402"]
    # A daemon that crashes finds or makes it so again, and has the changes meanwhile.
    for daemon, by in (("orchagent", "193.203.0.9"), ("syncd", "193.203.0.10")):
        sonic.processes[daemon].kill()
        left[200] = [(by, "Ethernet0", [202])]
        client.send(frame(host, 200, left[200]))
        sonic.start(daemon)
        holds(sonic, f"{daemon} was started again", left)
    sonic.restart("fpmsyncd")
    client = connect_fpm(sonic)
    client.send(frame(host, 200, left[200]))
    # Labels that are not announced again go once the replay is silent.
    holds(sonic, "fpmsyncd was started again", {200: left[200]})


def test_a_label_waits_for_its_neighbour(host):
    sonic = start(host, "redis", neighbors=False)
    own = own_routes(sonic)
    sonic.set("LABEL_ROUTE_TABLE", "200", nexthop="193.203.0.7", ifname="Ethernet0", mpls_nh="swap201", mpls_pop="1")
    sonic.set("ROUTE_TABLE", "192.0.2.0/24", nexthop="193.203.0.7", ifname="Ethernet0", mpls_nh="push201")
    wait_for("it is asked for", lambda: rows(sonic.appl, "NEIGH_RESOLVE_TABLE:*") or rows(sonic.appl, "_NEIGH_RESOLVE_TABLE:*"), 20)
    assert sonic.chip().labels() == {} and sonic.chip().routes() == own
    sonic.neighbor("Ethernet0", "193.203.0.7")
    wait_for("it is there", lambda: sonic.chip().labels() == {200: (("swap201@193.203.0.7",), "1")}, 20)
    sonic.wait_routes("and the route", own | {"192.0.2.0/24": ("push201@193.203.0.7",)})
    # Impossible rows are passed over, and those after them are not.
    for key, fields in {"Vrf1:100": {}, "1048576": {}, "16": {"mpls_pop": "many"}, "17": {"mpls_nh": "pull3"}}.items():
        sonic.set("LABEL_ROUTE_TABLE", key, **{"nexthop": "193.203.0.7", "ifname": "Ethernet0", **fields})
    sonic.set("LABEL_ROUTE_TABLE", "18", nexthop="193.203.0.7", ifname="Ethernet0", mpls_pop="2")
    wait_for("the last is there", lambda: sonic.chip().labels().get(18) == (("193.203.0.7",), "2"), 20, alive=sonic.alive())
    assert set(sonic.chip().labels()) == {18, 200}


def test_labels_of_a_plain_socket(host):
    """SONiC's own fpmsyncd sends both tables over one connection, with every field of a row,
    including an empty mpls_pop."""
    flags = {"orchagent": ["-q", "tcp://127.0.0.1"]}
    sonic = Sonic(host, config={"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}}, flags=flags, start=["syncd", "orchagent"])
    own = own_routes(sonic)
    row = {"protocol": "196", "blackhole": "false", "nexthop": "193.203.0.7", "ifname": "Ethernet0", "mpls_nh": "swap201", "mpls_pop": "1"}
    drops = {name: "" for name in row} | {"protocol": "196", "blackhole": "true"}
    with zmq.stock(host, "PUSH", connect=zmq.TABLES) as socket:
        socket.send(zmq.message("LABEL_ROUTE_TABLE", ("200", row), ("banana", row), ("300", drops)))
        socket.send(zmq.message("ROUTE_TABLE", ("192.0.2.0/24", zmq.row(nexthop="193.203.0.7", ifname="Ethernet0"))))
        sonic.wait_routes("the route", own | {"192.0.2.0/24": ("193.203.0.7",)})
        wait_for("the labels", lambda: sonic.chip().labels() == {200: (("swap201@193.203.0.7",), "1"), 300: (("drop",), "1")}, 20)
        # Its resync is of its own table.
        socket.send(zmq.message("LABEL_ROUTE_TABLE", ("resync", {"nexthop": "0.0.0.0"})))
        socket.send(zmq.message("LABEL_ROUTE_TABLE", ("300", row)))
        socket.send(zmq.message("LABEL_ROUTE_TABLE", ("resync", {})))
        wait_for("one", lambda: sonic.chip().labels() == {300: (("swap201@193.203.0.7",), "1")}, 20, alive=sonic.alive())
        assert sonic.chip().routes() == own | {"192.0.2.0/24": ("193.203.0.7",)}
