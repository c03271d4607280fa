"""Mode `beside`: SONiC's orchagent behind ribtide's. SONiC's orchagent is played by requests that a real one sent
(`../shared/data/sonic`), or that a test writes; syncd by a model of its views and references, or by ribtide's."""

import contextlib
import gzip
import json
import threading
import time

import pytest
from harness import wait_for, zmq
from harness.sonic import ASIC, Sonic
from harness.table import DATA

FOLDER = DATA / "sonic"
SWITCH, ROUTER, CPU = "oid:0x21000000000000", "oid:0x3000000000022", "oid:0x1000000000001"
SWITCH_KEY = f"SAI_OBJECT_TYPE_SWITCH:{SWITCH}"
RIF, NEXT_HOP, ROUTE = (f"SAI_OBJECT_TYPE_{name}" for name in ("ROUTER_INTERFACE", "NEXT_HOP", "ROUTE_ENTRY"))
SUCCESS = "SAI_STATUS_SUCCESS"
#: Where SONiC's orchagent is connected (its context_config.json), where it hears notifications, and where its RouteOrch
#: takes rows.
REQUESTS, NOTIFICATIONS, ROWS = 5565, 5566, 8300
ENABLED = {"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}}

recorded = pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is absent")


def route_key(dest):
    return json.dumps({"dest": dest, "switch_id": SWITCH, "vr": ROUTER}, separators=(",", ":"))


class Objects:
    """syncd's objects, with references and views; each object is also a row of ASIC_DB."""

    #: Types whose ids are checked.
    CHECKED = {"4": "NEXT_HOP", "5": "NEXT_HOP_GROUP", "6": "ROUTER_INTERFACE", "2d": "NEXT_HOP_GROUP_MEMBER"}
    GETS = {"SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID": ROUTER, "SAI_SWITCH_ATTR_CPU_PORT": CPU,
            "SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS": "32", "SAI_SWITCH_ATTR_NUMBER_OF_ECMP_GROUPS": "512"}

    def __init__(self, asic):
        self.asic, self.objects, self.view, self.requests, self.wrong = asic, {}, None, [], []

    def missing(self, objects, key, fields):
        for value in [*fields.values(), *key.split('"')]:
            if not value.startswith("oid:0x"):
                continue
            kind = self.CHECKED.get(f"{int(value[4:], 16) >> 48:x}")
            if kind and f"SAI_OBJECT_TYPE_{kind}:{value}" not in objects:
                return value
        return None

    def execute(self, message):
        key, op, *rest = message
        self.requests.append(message)
        pairs = list(zip(rest[::2], rest[1::2]))
        if op == "notify":
            if key == "INIT_VIEW":
                self.view = {}
            else:
                for name, fields in self.view.items():
                    if value := self.missing(self.view, name, fields):
                        self.wrong.append(f"the view has {name} with {value}, which it does not have")
                for gone in set(self.objects) - set(self.view):
                    self.asic.delete(f"ASIC_STATE:{gone}")
                self.objects, self.view = self.view, None
                for name, fields in self.objects.items():
                    self.store(name, fields)
            return [SUCCESS, "notify"]
        if op == "get":
            return [SUCCESS, "getresponse", *(text for name, value in pairs for text in (name, self.GETS.get(name, value)))]
        if op.startswith("bulk") and op != "bulkget":
            kind = key.rsplit(":", 1)[0]
            statuses = []
            for name, joined in pairs:
                fields = dict(part.split("=", 1) for part in joined.split("|") if part)
                statuses.append(self.one(op[4:], f"{kind}:{name}", fields))
            whole = SUCCESS if set(statuses) == {SUCCESS} else "SAI_STATUS_FAILURE"
            return [whole, "getresponse", *(text for status in statuses for text in (status, ""))]
        if op in ("create", "set", "remove"):
            return [self.one(op, key, dict(pairs)), "getresponse"]
        return [SUCCESS, op.replace("_query", "_response") if op.endswith("_query") else "getresponse"]

    def store(self, key, fields):
        self.asic.hset(f"ASIC_STATE:{key}", mapping=fields or {"NULL": "NULL"})

    def one(self, op, key, fields):
        objects = self.objects if self.view is None else self.view
        if op in ("create", "set") and self.view is None and self.missing(objects, key, fields):
            return "SAI_STATUS_INVALID_PARAMETER"
        entry = "_ENTRY:" in key
        if op == "create":
            if key in objects:
                return "SAI_STATUS_ITEM_ALREADY_EXISTS"
            objects[key] = dict(fields)
        elif op == "set":
            if key not in objects:
                return "SAI_STATUS_ITEM_NOT_FOUND" if entry and self.view is None else SUCCESS
            objects[key].update(fields)
        else:
            oid = key.split(":", 1)[1]
            if oid.startswith("oid:") and any(other != key and (oid in fields.values() or f'"{oid}"' in other)
                                              for other, fields in objects.items()):
                return "SAI_STATUS_OBJECT_IN_USE"
            if objects.pop(key, None) is None and entry:
                return "SAI_STATUS_ITEM_NOT_FOUND"
            if self.view is None:
                self.asic.delete(f"ASIC_STATE:{key}")
            return SUCCESS
        if self.view is None:
            self.store(key, objects[key])
        return SUCCESS

    def routes(self):
        """The target of each destination."""
        found = {}
        for key, fields in list(self.objects.items()):
            if key.startswith(ROUTE):
                drops = fields.get("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "").endswith("DROP")
                target = "drop" if drops else fields.get("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID")
                found[json.loads(key.split(":", 1)[1])["dest"]] = target
        return found

    def of(self, kind):
        return [fields for key, fields in list(self.objects.items()) if key.startswith(f"SAI_OBJECT_TYPE_{kind}:")]


class Syncd:
    """A syncd on zmq_sync. `answer` replies to a message."""

    def __init__(self, host, answer):
        self.host, self.answer = host, answer
        self.stop, self.notifications = threading.Event(), []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with zmq.stock(self.host, "REP", bind=5555) as socket, zmq.stock(self.host, "PUSH", connect=5556) as push:
            while not self.stop.is_set():
                while self.notifications:
                    push.send_string(self.notifications.pop(0))
                if socket.poll(50):
                    socket.send_string(self.answer(socket.recv_string()))

    def end(self):
        self.stop.set()
        self.thread.join()


@contextlib.contextmanager
def syncd_of(host, answer):
    syncd = Syncd(host, answer)
    try:
        yield syncd
    finally:
        syncd.end()


def dumps(message):
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


class Client:
    """SONiC's orchagent on zmq_sync."""

    def __init__(self, socket):
        self.socket = socket

    def ask(self, key, op, *fields):
        self.socket.send_string(dumps([key, op, *fields]))
        return json.loads(self.socket.recv_string())

    def done(self, key, op, *fields):
        reply = self.ask(key, op, *fields)
        assert reply[0] == SUCCESS, (key, op, reply)

    def describe(self):
        """A cold start, as far as it concerns routes."""
        self.done("INIT_VIEW", "notify")
        self.done(SWITCH_KEY, "create", "SAI_SWITCH_ATTR_INIT_SWITCH", "true")
        self.done(SWITCH_KEY, "get", "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "oid:0x0")
        self.done(SWITCH_KEY, "get", "SAI_SWITCH_ATTR_CPU_PORT", "oid:0x0")
        for dest in ("0.0.0.0/0", "::/0"):
            self.done(f"{ROUTE}:{route_key(dest)}", "create", "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP")
        self.done("APPLY_VIEW", "notify")

    def interfaces(self, run=1, number=2, first=0):
        """Ethernet*n* with the neighbour 10.0.*n*.2, in the ids of a run."""
        for n in range(first, number):
            port, rif, hop = f"oid:0x1{n + 2:012x}", rif_id(n, run), hop_id(n, run)
            self.done(f"SAI_OBJECT_TYPE_HOSTIF:oid:0xd{run:04x}{n:08x}", "create", "SAI_HOSTIF_ATTR_OBJ_ID", port,
                      "SAI_HOSTIF_ATTR_NAME", f"Ethernet{n}")
            self.done(f"{RIF}:{rif}", "create", "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID", ROUTER,
                      "SAI_ROUTER_INTERFACE_ATTR_TYPE", "SAI_ROUTER_INTERFACE_TYPE_PORT", "SAI_ROUTER_INTERFACE_ATTR_PORT_ID", port)
            neighbor = dumps({"ip": f"10.0.{n}.2", "rif": rif, "switch_id": SWITCH})
            self.done(f"SAI_OBJECT_TYPE_NEIGHBOR_ENTRY:{neighbor}", "create", "SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS", "02:00:00:00:00:02")
            self.done(f"{NEXT_HOP}:{hop}", "create", "SAI_NEXT_HOP_ATTR_TYPE", "SAI_NEXT_HOP_TYPE_IP", "SAI_NEXT_HOP_ATTR_IP",
                      f"10.0.{n}.2", "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID", rif)


def rif_id(n, run=1):
    return f"oid:0x6{run:04x}{n:08x}"


def hop_id(n, run=1):
    return f"oid:0x4{run:04x}{n:08x}"


def via(*ports):
    return zmq.row(protocol="bgp", nexthop=",".join(f"10.0.{n}.2" for n in ports), ifname=",".join(f"Ethernet{n}" for n in ports))


def beside(host, mode="zmq_sync", client="zmq_sync", start=True, config=ENABLED, **more):
    flags = ["-z", mode, "--beside", client, "-F"]
    sonic = Sonic(host, neighbors=False, start=(), config=config, flags={"orchagent": flags}, **more)
    if start:
        sonic.start("orchagent")
    return sonic


class World:
    """ribtide's orchagent between a client and a model of syncd."""

    def __init__(self, host, stack, config=ENABLED):
        self.host, self.sonic = host, beside(host, config=config)
        self.objects = Objects(self.sonic.redis.db(ASIC))
        self.syncd = stack.enter_context(syncd_of(host, lambda text: dumps(self.objects.execute(json.loads(text)))))
        self.stack = stack
        self.client = self.connect()
        self.rows = stack.enter_context(zmq.stock(host, "PUSH", connect=8100))

    def connect(self):
        return Client(self.stack.enter_context(zmq.stock(self.host, "REQ", connect=REQUESTS)))

    def send(self, *changes):
        self.rows.send(zmq.message("ROUTE_TABLE", *changes))

    def wait(self, what, dest, target):
        wait_for(f"{what}: {dest} goes to {target}", lambda: self.objects.routes().get(dest) == target, 20, alive=self.sonic.alive())


@pytest.fixture
def world(host):
    with contextlib.ExitStack() as stack:
        yield World(host, stack)


@recorded
def test_a_recorded_start_and_feed_pass_byte_for_byte(host):
    """Every request of a real orchagent reaches syncd as it is, but for RouteOrch's routes, and so does every reply."""
    with gzip.open(FOLDER / "zmq-passthrough" / "proxy.jsonl.gz", "rt") as lines:
        entries = [entry for entry in map(json.loads, lines) if entry["q"] == "orch"]
    pairs = [(entry["m"], entry["r"]) for entry in entries if len(entry["m"]) < 20_000 > len(entry["r"])]
    came = []

    def answer(text):
        came.append(text)
        return pairs[position[0]][1] if pairs[position[0]][0] == text else dumps(own(text))

    def own(text):
        # ribtide's orchagent begins when the view is applied.
        key, op, *fields = json.loads(text)
        if op != "get" or not key.startswith(SWITCH_KEY):
            return ["SAI_STATUS_NOT_SUPPORTED", op.replace("_query", "_response") if op.endswith("_query") else "getresponse"]
        return [SUCCESS, "getresponse", *(value for name, old in zip(fields[::2], fields[1::2]) for value in (name, Objects.GETS.get(name, old)))]

    position = [0]
    with contextlib.ExitStack() as stack:
        sonic = beside(host)
        stack.enter_context(syncd_of(host, answer))
        socket = stack.enter_context(zmq.stock(host, "REQ", connect=REQUESTS))
        swallowed = 0
        for position[0], (request, reply) in enumerate(pairs):
            before = len(came)
            socket.send_string(request)
            assert socket.recv_string() == reply, request
            key, op, *_ = json.loads(request)
            if op.startswith("bulk") and key.split(":")[0] in (ROUTE, "SAI_OBJECT_TYPE_INSEG_ENTRY"):
                assert request not in came[before:]
                swallowed += 1
            else:
                assert request in came[before:], request
        assert len(pairs) > 1200 and swallowed > 10
        assert all(process.popen.poll() is None for process in sonic.alive())


def test_routes_go_by_the_objects_of_the_client(world):
    hears = world.sonic.redis.db(14).pubsub(ignore_subscribe_messages=True)
    hears.subscribe("APPL_DB_ROUTE_TABLE_RESPONSE_CHANNEL")
    world.send(("20.0.0.0/24", via(0)))
    world.client.describe()
    world.client.interfaces()
    world.wait("a row from before the start", "20.0.0.0/24", hop_id(0))
    world.send(("20.0.1.0/24", via(0, 1)), ("0.0.0.0/0", via(1)))
    world.wait("the default route is set", "0.0.0.0/0", hop_id(1))
    members = {fields["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID"] for fields in world.objects.of("NEXT_HOP_GROUP_MEMBER")}
    assert members == {hop_id(0), hop_id(1)}
    # The port's state, from syncd's notification; and the client hears it too.
    state = dumps([{"port_id": "oid:0x1000000000003", "port_state": "SAI_PORT_OPER_STATUS_DOWN", "port_error_status": "SAI_PORT_ERROR_STATUS_CLEAR"}])
    with zmq.stock(world.host, "PULL", bind=NOTIFICATIONS) as pull:
        notification = dumps(["port_state_change", state])
        # A notification without a client is dropped; this one connects within a second.
        def heard():
            world.syncd.notifications.append(notification)
            return pull.poll(500)
        wait_for("the client hears it", heard, 20)
        assert pull.recv_string() == notification
    wait_for("one member is left", lambda: len(world.objects.of("NEXT_HOP_GROUP_MEMBER")) == 1, 20)
    confirmed = set()

    def all_confirmed():
        while message := hears.get_message(timeout=0.1):
            confirmed.add(json.loads(message["data"])[1])
        return {"20.0.0.0/24", "20.0.1.0/24", "0.0.0.0/0"} <= confirmed

    wait_for("each row has its response", all_confirmed, 20)


def test_a_restarted_client_leaves_the_routes_in_place(world):
    """Cold: its view has no interface. Nothing that ribtide carried over stays afterwards."""
    world.client.describe()
    world.client.interfaces()
    many = {f"100.{n // 256}.{n % 256}.0/24": via(n % 2) for n in range(1000)}
    world.send(*many.items(), ("20.0.1.0/24", via(0, 1)))
    dests = {*many, "20.0.1.0/24", "0.0.0.0/0", "::/0"}
    wait_for("all are there", lambda: set(world.objects.routes()) == dests, 20, alive=world.sonic.alive())
    second = world.connect()
    second.describe()
    assert set(world.objects.routes()) == dests and not world.objects.wrong, world.objects.wrong
    second.interfaces(run=2)
    moved = lambda: all(target == hop_id(int(dest.split(".")[2]) % 2, 2) for dest, target in world.objects.routes().items() if dest in many)
    wait_for("all are on the new next hops", moved, 20, alive=world.sonic.alive())
    wait_for("nothing else is left", lambda: (len(world.objects.of("NEXT_HOP")), len(world.objects.of("ROUTER_INTERFACE"))) == (2, 2), 20)
    assert len(world.objects.of("NEXT_HOP_GROUP_MEMBER")) == 2


def test_a_restarted_ribtide_learns_again_from_asic_db(world):
    world.client.describe()
    world.client.interfaces()
    world.send(("20.0.0.0/24", via(0)))
    world.send(("20.0.1.0/24", via(0, 1)))
    world.wait("before", "20.0.0.0/24", hop_id(0))
    wait_for("a group", lambda: len(world.objects.of("NEXT_HOP_GROUP_MEMBER")) == 2, 20)
    world.sonic.processes["orchagent"].kill()
    for index in range(1 << 20, (1 << 20) + 500):
        world.sonic.asic.rpush("RIBTIDE_VIDS", f"{index}-{index}")
    world.sonic.start("orchagent")
    wait_for("ids of objects that are gone are forgotten", lambda: 0 < world.sonic.asic.llen("RIBTIDE_VIDS") < 10, 20, alive=world.sonic.alive())
    again = world.connect()
    world.client = again
    world.send(("20.0.2.0/24", via(1)), ("20.0.0.0/24", via(1)))
    world.wait("after", "20.0.2.0/24", hop_id(1))
    world.wait("after", "20.0.0.0/24", hop_id(1))
    # The client goes on where it was.
    again.done("SAI_OBJECT_TYPE_VLAN:oid:0x26000000000999", "create", "SAI_VLAN_ATTR_VLAN_ID", "7")


def test_a_ribtide_that_ends_in_a_view_leaves_its_routes_in_it(world):
    """The client goes on with its view. Rows come only afterwards."""
    world.client.describe()
    world.client.interfaces()
    many = {f"100.{n // 256}.{n % 256}.0/24": via(n % 2) for n in range(1000)}
    rows = [*many.items(), ("20.0.1.0/24", via(0, 1)), ("0.0.0.0/0", via(1))]
    world.send(*rows)
    dests = {*many, "20.0.1.0/24", "0.0.0.0/0", "::/0"}
    wait_for("all are there", lambda: set(world.objects.routes()) == dests, 20, alive=world.sonic.alive())
    world.wait("the default route", "0.0.0.0/0", hop_id(1))
    client = world.connect()
    client.done("INIT_VIEW", "notify")
    client.done(SWITCH_KEY, "create", "SAI_SWITCH_ATTR_INIT_SWITCH", "true")
    client.done(SWITCH_KEY, "get", "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "oid:0x0")
    assert world.sonic.asic.llen("RIBTIDE_VIEW") == 2
    world.sonic.restart("orchagent")
    client = world.connect()
    client.interfaces(run=2, number=1)
    for dest in ("0.0.0.0/0", "::/0"):
        client.done(f"{ROUTE}:{route_key(dest)}", "create", "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP")
    client.done("APPLY_VIEW", "notify")
    targets = world.objects.routes()
    assert set(targets) == dests and not world.objects.wrong, world.objects.wrong
    assert targets["100.0.0.0/24"] == hop_id(0, 2) and targets["100.0.1.0/24"] == targets["0.0.0.0/0"] != hop_id(1)
    assert len(world.objects.of("NEXT_HOP_GROUP_MEMBER")) == 2
    assert world.sonic.asic.exists("RIBTIDE_VIEW") == 0
    client.interfaces(run=2, first=1)
    world.wait("the client's own", "100.0.1.0/24", hop_id(1, 2))
    world.rows = world.stack.enter_context(zmq.stock(world.host, "PUSH", connect=8100))
    world.send(("20.0.7.0/24", via(1)), *rows)
    world.wait("rows go on", "20.0.7.0/24", hop_id(1, 2))
    wait_for("nothing was carried over for good", lambda: (len(world.objects.of("NEXT_HOP")), len(world.objects.of("ROUTER_INTERFACE"))) == (2, 2), 20)


def test_rows_that_routeorch_makes_go_on_to_it(world):
    evpn = zmq.row(protocol="bgp", nexthop="10.9.9.9", ifname="Vlan100", vni_label="1000", router_mac="02:00:00:00:00:09")
    with zmq.stock(world.host, "PULL", bind=ROWS) as rows:
        world.client.describe()
        world.client.interfaces()
        world.send(("20.0.0.0/24", via(0)), ("30.0.0.0/24", evpn))
        db, table, changes = zmq.parse(rows.recv())
        assert (db, table, changes[0][0]) == ("APPL_DB", "ROUTE_TABLE", "30.0.0.0/24")
        assert dict(changes[0][1])["vni_label"] == "1000" and len(changes) == 1
        ours, theirs = route_key("20.0.0.0/24"), route_key("30.0.0.0/24")
        target = f"SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={hop_id(1)}"
        reply = world.client.ask(f"{ROUTE}:2", "bulkcreate", ours, target, theirs, target)
        assert reply == [SUCCESS, "getresponse", SUCCESS, "", SUCCESS, ""]
        world.wait("RouteOrch made it", "30.0.0.0/24", hop_id(1))
        world.wait("ribtide made it", "20.0.0.0/24", hop_id(0))
        # It becomes a plain row: RouteOrch deletes its own, which is ribtide's by then.
        world.send(("30.0.0.0/24", via(0)))
        assert zmq.parse(rows.recv())[2] == [("30.0.0.0/24", [])]
        world.wait("ribtide takes it", "30.0.0.0/24", hop_id(0))
        world.client.done(f"{ROUTE}:1", "bulkremove", theirs, "")
        world.wait("and keeps it", "30.0.0.0/24", hop_id(0))


#: Rows that RouteOrch makes, by what they ask for.
OF_ROUTEORCH = {
    "srv6": {"nexthop": "fc00:9::1", "ifname": "unknown", "segment": "sid-list-1", "seg_src": "fc00:8::1"},
    "srv6-vpn": {"nexthop": "fc00:9::1", "vpn_sid": "fc00:7::1", "seg_src": "fc00:8::1"},
    "pic": {"nexthop_group": "301", "pic_context_id": "302"},
    "index": {"protocol": "bgp", "nexthop_group": "301"},
}


@pytest.mark.parametrize("name", OF_ROUTEORCH)
def test_each_kind_of_row_of_routeorch_goes_on_to_it(world, name):
    """Its row is whole, and no other row is with it; its route passes, and ribtide's own is not touched."""
    asked = OF_ROUTEORCH[name]
    with zmq.stock(world.host, "PULL", bind=ROWS) as rows:
        world.client.describe()
        world.client.interfaces()
        world.send(("20.0.0.0/24", via(0)), ("30.0.0.0/24", zmq.row() | asked))
        _, table, [(key, fields)] = zmq.parse(rows.recv())
        assert (table, key) == ("ROUTE_TABLE", "30.0.0.0/24")
        assert {field: value for field, value in fields if value not in ("", "false")} == asked
        target = f"SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={hop_id(1)}"
        reply = world.client.ask(f"{ROUTE}:1", "bulkcreate", route_key("30.0.0.0/24"), target)
        assert reply == [SUCCESS, "getresponse", SUCCESS, ""]
        world.wait("RouteOrch made it", "30.0.0.0/24", hop_id(1))
        world.wait("ribtide made it", "20.0.0.0/24", hop_id(0))


def test_prefixes_of_fine_grained_ecmp_go_on_to_routeorch(host):
    """FG_NHG_PREFIX of CONFIG_DB names them. The same row of another prefix is ribtide's."""
    with contextlib.ExitStack() as stack, zmq.stock(host, "PULL", bind=ROWS) as rows:
        world = World(host, stack, ENABLED | {"FG_NHG_PREFIX|30.0.0.0/24": {"FG_NHG": "fgnhg_v4"}})
        world.client.describe()
        world.client.interfaces()
        world.send(("30.0.0.0/24", via(0, 1)), ("20.0.0.0/24", via(0)))
        _, _, [(key, fields)] = zmq.parse(rows.recv())
        assert key == "30.0.0.0/24" and dict(fields)["nexthop"] == "10.0.0.2,10.0.1.2"
        world.wait("ribtide made it", "20.0.0.0/24", hop_id(0))
        assert "30.0.0.0/24" not in world.objects.routes()


def test_a_next_hop_in_use_is_refused_until_its_route_goes(world):
    world.client.describe()
    world.client.interfaces()
    world.send(("20.0.0.0/24", via(0)))
    world.wait("before", "20.0.0.0/24", hop_id(0))
    begin = time.monotonic()
    assert world.client.ask(f"{NEXT_HOP}:{hop_id(0)}", "remove") == ["SAI_STATUS_OBJECT_IN_USE", "getresponse"]
    assert time.monotonic() - begin < 5
    world.send(("20.0.0.0/24", {}))
    wait_for("the route is gone", lambda: "20.0.0.0/24" not in world.objects.routes(), 20)
    wait_for("and then the next hop", lambda: world.client.ask(f"{NEXT_HOP}:{hop_id(0)}", "remove")[0] == SUCCESS, 20)


class RedisClient(Client):
    """SONiC's orchagent on redis_sync, in a database of its own (dbAsic of its context_config.json)."""

    def __init__(self, db):
        self.db = db

    def ask(self, key, op, *fields):
        value, letter = ("{}", "D") if op == "remove" else (dumps(fields), "S")
        p = self.db.pipeline(transaction=True)
        p.lpush("ASIC_STATE_KEY_VALUE_OP_QUEUE", key, value, letter + op)
        p.publish("ASIC_STATE_CHANNEL@15", "G")
        p.execute()
        replies = "GETRESPONSE_KEY_VALUE_OP_QUEUE"
        wait_for(f"a reply to {op} {key}", lambda: self.db.llen(replies) >= 3, 20, 0.002)
        status, value, op = (self.db.rpop(replies) for _ in range(3))
        return [status, op[1:], *json.loads(value)]


def test_a_client_over_redis_and_syncd_over_zmq(host):
    """Form 3: two clients of one queue cannot work, so SONiC's orchagent has a database of its own."""
    with contextlib.ExitStack() as stack:
        sonic = beside(host, client="redis_sync", start=False)
        config = json.loads(sonic.redis.config.read_text())
        asic = config["DATABASES"]["ASIC_DB"]
        config["DATABASES"]["BESIDE_ASIC_DB"] = asic | {"id": 15}
        sonic.redis.config.write_text(json.dumps(config))
        sonic.start("orchagent")
        objects = Objects(sonic.redis.db(ASIC))
        stack.enter_context(syncd_of(host, lambda text: dumps(objects.execute(json.loads(text)))))
        own = sonic.redis.db(15)
        wait_for("the counter of ids is raised", lambda: int(own.get("VIDCOUNTER") or 0) >= 1 << 36, 20, alive=sonic.alive())
        client = RedisClient(own)
        client.describe()
        client.interfaces()
        rows = stack.enter_context(zmq.stock(host, "PUSH", connect=8100))
        rows.send(zmq.message("ROUTE_TABLE", ("20.0.0.0/24", via(0))))
        wait_for("the route is there", lambda: objects.routes().get("20.0.0.0/24") == hop_id(0), 20, alive=sonic.alive())
        client.describe()
        assert "20.0.0.0/24" in objects.routes() and not objects.wrong


@pytest.mark.parametrize("config, sentence", [
    ({"MUX_CABLE|Ethernet0": {"state": "auto"}, **ENABLED}, "Dual-ToR mux"),
    ({}, "swss_zmq"),
])
def test_what_cannot_work_beside_is_refused(host, config, sentence):
    sonic = beside(host, config=config)
    process = sonic.processes["orchagent"]
    wait_for("it ends", lambda: process.popen.poll() is not None, 20)
    assert process.popen.poll() != 0 and sentence in process.log(1 << 16)


class AtRibtidesSyncd:
    """Both orchagents at ribtide's syncd and virtual switch. `mode`: the transport towards syncd."""

    def __init__(self, host, stack, mode):
        self.host, self.stack, self.sonic = host, stack, beside(host, mode=mode, start=False)
        self.sonic.flags["syncd"] += ["-z", mode, "--reconcile-interval", "0"]
        self.sonic.start("syncd")
        self.sonic.start("orchagent")
        self.describe()
        self.interfaces(1)
        self.rows = stack.enter_context(zmq.stock(host, "PUSH", connect=8100))

    def describe(self):
        """SONiC's orchagent starts."""
        self.client = client = Client(self.stack.enter_context(zmq.stock(self.host, "REQ", connect=REQUESTS)))
        client.done("INIT_VIEW", "notify")
        client.done(SWITCH_KEY, "create", "SAI_SWITCH_ATTR_INIT_SWITCH", "true", "SAI_SWITCH_ATTR_SRC_MAC_ADDRESS", "02:00:00:00:00:01")
        get = lambda name, value: client.ask(SWITCH_KEY, "get", name, value)[3]
        self.router = get("SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "oid:0x0")
        get("SAI_SWITCH_ATTR_CPU_PORT", "oid:0x0")
        count = int(get("SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS", "0"))
        self.ports = get("SAI_SWITCH_ATTR_PORT_LIST", f"{count}:" + ",".join(["oid:0x0"] * count)).split(":", 1)[1].split(",")
        for dest in ("0.0.0.0/0", "::/0"):
            key = route_key(dest).replace(ROUTER, self.router)
            client.done(f"{ROUTE}:{key}", "create", "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP")
        client.done("APPLY_VIEW", "notify")

    def interfaces(self, run):
        """Two, each with a neighbour, in the ids of a run."""
        for n in range(2):
            name = f"Ethernet{n * 4}"
            self.client.done(f"SAI_OBJECT_TYPE_HOSTIF:oid:0xd{run:04x}{n:08x}", "create", "SAI_HOSTIF_ATTR_TYPE", "SAI_HOSTIF_TYPE_NETDEV",
                             "SAI_HOSTIF_ATTR_OBJ_ID", self.ports[n], "SAI_HOSTIF_ATTR_NAME", name)
            self.client.done(f"{RIF}:{rif_id(n, run)}", "create", "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID", self.router,
                             "SAI_ROUTER_INTERFACE_ATTR_TYPE", "SAI_ROUTER_INTERFACE_TYPE_PORT", "SAI_ROUTER_INTERFACE_ATTR_PORT_ID",
                             self.ports[n], "SAI_ROUTER_INTERFACE_ATTR_MTU", "9100")
            neighbor = dumps({"ip": f"10.0.{n}.2", "rif": rif_id(n, run), "switch_id": SWITCH})
            self.client.done(f"SAI_OBJECT_TYPE_NEIGHBOR_ENTRY:{neighbor}", "create", "SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS",
                             "02:00:00:00:00:02")
            self.client.done(f"{NEXT_HOP}:{hop_id(n, run)}", "create", "SAI_NEXT_HOP_ATTR_TYPE", "SAI_NEXT_HOP_TYPE_IP", "SAI_NEXT_HOP_ATTR_IP",
                             f"10.0.{n}.2", "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID", rif_id(n, run))

    def send(self, *changes):
        """Rows of routes: (destination, numbers of the interfaces that it goes to)."""
        row = lambda to: zmq.row(protocol="bgp", nexthop=",".join(f"10.0.{n}.2" for n in to), ifname=",".join(f"Ethernet{n * 4}" for n in to))
        self.rows.send(zmq.message("ROUTE_TABLE", *((dest, row(to)) for dest, to in changes)))

    def wait(self, count):
        wait_for("all are in the chip", lambda: self.sonic.chip_routes() >= count, 60, 0.05, alive=self.sonic.alive())


@pytest.mark.parametrize("mode", ["zmq_sync", "redis_sync"])
def test_a_restarted_client_at_ribtides_syncd(host, mode):
    """The same with the virtual switch as the chip: its syncd compares views by content."""
    with contextlib.ExitStack() as stack:
        world = AtRibtidesSyncd(host, stack, mode)
        sonic = world.sonic
        changes = [(f"100.{n // 256}.{n % 256}.0/24", [n % 2]) for n in range(5000)] + [("101.0.0.0/24", [0, 1])]
        begin = time.monotonic()
        world.send(*changes)
        world.wait(5003)
        print(f"5,001 routes in {time.monotonic() - begin:.2f} s")
        lookup = lambda: [sonic.lookup(f"100.0.{n}.1") for n in (0, 1)] + [sonic.lookup("101.0.0.1")]
        before = lookup()
        world.describe()
        assert lookup() == before and sonic.chip_routes() >= 5003
        world.interfaces(2)
        wait_for("one next hop for each neighbour is left", lambda: len(sonic.asic.keys(f"ASIC_STATE:{NEXT_HOP}:*")) == 2, 30, alive=sonic.alive())
        assert sonic.chip_routes() >= 5003


@pytest.mark.parametrize("mode", ["zmq_sync", "redis_sync"])
def test_rows_that_are_lost_while_ribtides_syncd_is_away(host, mode):
    """ribtide's orchagent reads its routes and groups back, in the ids of the view; the rest is the client's, and stays."""
    with contextlib.ExitStack() as stack:
        world = AtRibtidesSyncd(host, stack, mode)
        sonic = world.sonic
        dests = [f"100.0.{n}.0/24" for n in range(40)]
        world.send(*((dest, [n % 2]) for n, dest in enumerate(dests)), ("101.0.0.0/24", [0, 1]))
        world.wait(43)
        look = lambda: [{**answer, "hops": sorted(answer["hops"], key=str)} for answer in sonic.query_all([f"route {d}" for d in [*dests, "101.0.0.0/24"]])
                        if answer]
        before, objects = look(), set(sonic.asic.keys("ASIC_STATE:*"))
        assert len(before) == 41
        sonic.processes["syncd"].kill()
        key = lambda dest: next(key for key in objects if f'"{dest}"' in key)
        for dest in dests[:10]:
            sonic.asic.delete(key(dest))
        for n, dest in enumerate(dests[10:20]):
            sonic.asic.hset(key(dest), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", hop_id(1 - n % 2))
        sonic.asic.delete(next(key for key in objects if "NEXT_HOP_GROUP_MEMBER" in key))
        sonic.start("syncd")
        orchagent = sonic.processes["orchagent"]
        wait_for("orchagent says so", lambda: "syncd was started again without what was requested" in orchagent.log(1 << 16), 60,
                 alive=sonic.alive())
        assert look() == before and set(sonic.asic.keys("ASIC_STATE:*")) == objects
        # The client goes on.
        world.describe()
        world.interfaces(2)
        assert look() == before
