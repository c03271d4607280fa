"""orchagent at the replies that SONiC's own syncd gave (sairedis eb21195c, virtual switch BCM56850), recorded in
`../shared/data/sonic`: it asks for nothing by a name that syncd's metadata does not have, and understands each reply."""

import gzip
import json
import threading

import pytest
from harness import wait_for, zmq
from harness.sonic import Sonic
from harness.table import DATA

FOLDER = DATA / "sonic" / "our-orchagent-at-real-syncd"
QUEUE, REPLIES, SWITCH = "ASIC_STATE_KEY_VALUE_OP_QUEUE", "GETRESPONSE_KEY_VALUE_OP_QUEUE", "SAI_OBJECT_TYPE_SWITCH"
#: A second recording has this name in a reply, so that the orchagent of that day went on. syncd itself never writes it.
ALIAS, NAME = "SAI_SWITCH_ATTR_PORT_NUMBER", "SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is absent")


def recorded():
    """The requests until the view is applied, each with its reply."""
    with gzip.open(FOLDER / "start-and-feed.renamed-reply.jsonl.gz", "rt") as lines:
        entries = [json.loads(line.replace(ALIAS, NAME)) for line in lines]
    exchanges, request = [], None
    for entry in entries:
        if entry.get("q") == "req":
            request = entry["key"], entry["val"], entry["op"]
        elif entry.get("q") == "rep":
            exchanges.append((request, (entry["key"], entry["val"], entry["op"])))
            if request[0] == "APPLY_VIEW":
                return exchanges
    raise AssertionError("the recording has no APPLY_VIEW")


def is_switch_create(request):
    return request[0].startswith(f"{SWITCH}:") and request[2] == "Screate"


def attributes(request):
    """The names and values of a request. Pointers to handlers differ from process to process, and are only null or not."""
    values = json.loads(request[1])
    pairs = dict(zip(values[::2], values[1::2]))
    assert not any(name.endswith("_NOTIFY") and int(value, 16) == 0 for name, value in pairs.items()), request
    return {name: "pointer" if name.endswith("_NOTIFY") else value for name, value in pairs.items()}


def of_sonic(orchagent="real-orchagent-start-and-feed"):
    """What SONiC's orchagent asks first: it creates the switch with the notifications that it wants."""
    with gzip.open(DATA / "sonic" / orchagent / "redis-channel.jsonl.gz", "rt") as lines:
        entries = (json.loads(line) for line in lines)
        return next(request for entry in entries if entry["q"] == "req" and is_switch_create(request := (entry["key"], entry["val"], entry["op"])))


def test_the_name_is_what_syncd_answered():
    with gzip.open(FOLDER / "start.unpatched.crash.jsonl.gz", "rt") as lines:
        replies = [entry["val"] for entry in map(json.loads, lines) if entry["q"] == "rep"]
    assert any(NAME in reply for reply in replies) and not any(ALIAS in reply for reply in replies)


class RecordedSyncd:
    """Takes requests from ASIC_DB and gives the recorded reply to each, until the view is applied: the ports after that are
    those of the recording."""

    def __init__(self, asic):
        self.asic, self.exchanges, self.requests, self.unknown = asic, dict(recorded()), [], None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop.is_set() and not self.is_done():
            # A request is three elements, which one command of the producer adds.
            if self.asic.llen(QUEUE) < 3:
                self.stop.wait(0.01)
                continue
            request = tuple(self.asic.rpop(QUEUE) for _ in range(3))
            self.requests.append(request)
            # That recording is of an orchagent that wanted no notifications.
            known = [one for one in self.exchanges if is_switch_create(one)] if is_switch_create(request) else [request]
            if (reply := self.exchanges.get(known[0])) is None:
                self.unknown = request
                return
            self.asic.lpush(REPLIES, *reply)
            self.asic.publish("GETRESPONSE_CHANNEL@1", "G")

    def is_done(self):
        return self.unknown is not None or bool(self.requests) and self.requests[-1][0] == "APPLY_VIEW"

    def close(self):
        self.stop.set()
        self.thread.join()


def test_start_of_orchagent_at_recorded_replies(host):
    sonic = Sonic(host, start=[])
    syncd = RecordedSyncd(sonic.asic)
    try:
        sonic.start("orchagent")
        wait_for("the view is applied, or a request has no recorded reply", syncd.is_done, 30, alive=sonic.alive())
        assert syncd.unknown is None, f"SONiC's syncd was never asked {syncd.unknown}"
        others = lambda requests: [request for request in requests if not is_switch_create(request)]
        assert others(syncd.requests) == others(request for request, _ in recorded())
        [create] = [request for request in syncd.requests if is_switch_create(request)]
        assert list(attributes(create)) == list(attributes(of_sonic())) and attributes(create) == attributes(of_sonic())
        assert not any("0:null" in value for _, value, _ in syncd.requests)
    finally:
        syncd.close()


#: SONiC's orchagent at SONiC's syncd: its start, its ports and interfaces, the feed, and what failed and came back.
LIFE = DATA / "sonic" / "real-orchagent-start-and-feed" / "redis-channel.jsonl.gz"
DUMPS = DATA / "sonic" / "all-real-dumps" / "per-phase-raw.json.gz"
#: Attributes whose values differ from the recorded ones. docs/sonic.md has the reasons.
VALUES_DIFFER = {"SAI_PORT_ATTR_OPER_SPEED"}


def life():
    """Every request of SONiC's orchagent, each with the reply of SONiC's syncd."""
    with gzip.open(LIFE, "rt") as lines:
        messages = [json.loads(line) for line in lines]
    exchanges, request = [], None
    for message in messages:
        if message["q"] == "req":
            request = message["key"], message["val"], message["op"]
        elif message["q"] == "rep":
            exchanges.append((request, (message["key"], message["val"], message["op"])))
    return exchanges


def fields(text):
    """A list of fields and values; values that differ by name are left out."""
    parts = json.loads(text)
    if isinstance(parts, dict):
        return []
    return [(name, None if name in VALUES_DIFFER else value) for name, value in zip(parts[::2], parts[1::2])]


class RecordedOrchagent:
    """Sends the recorded requests over Redis, and compares each reply with the recorded one."""

    def __init__(self, sonic):
        self.sonic, self.asic, self.different = sonic, sonic.asic, []

    def reply(self, request):
        self.asic.lpush(QUEUE, *request)
        self.asic.publish("ASIC_STATE_CHANNEL@1", "G")
        key = self.asic.brpop(REPLIES, timeout=20)
        assert key, f"syncd does not answer {request}"
        return key[1], self.asic.rpop(REPLIES), self.asic.rpop(REPLIES)

    def ask(self, exchanges):
        for request, (status, values, op) in exchanges:
            ours = self.reply(request)
            if (ours[0], fields(ours[1]), ours[2]) != (status, fields(values), op):
                self.different.append((request, ours, (status, values, op)))


class RecordedZmqOrchagent(RecordedOrchagent):
    """The same over ZeroMQ."""

    def __init__(self, sonic, socket):
        super().__init__(sonic)
        self.socket = socket

    def reply(self, request):
        key, value, op = request
        values = json.loads(value)
        self.socket.send(json.dumps([key, op[1:], *(values if isinstance(values, list) else [])]).encode())
        status, op, *values = json.loads(self.socket.recv())
        return status, json.dumps(values), f"S{op}"


def syncd_of_sonics_size(host, *flags):
    """syncd alone, with the 32 ports and the table sizes of SONiC's virtual switch."""
    sonic = Sonic(host, neighbors=False, start=[], flags={"syncd": ["--chip", "groups=512", *flags]})
    lanes = (",".join(str(4 * n + lane) for lane in range(1, 5)) for n in range(32))
    (host.folder / "lanemap.ini").write_text("".join(f"eth{n}:{of}\n" for n, of in enumerate(lanes, 1)))
    sonic.start("syncd")
    wait_for("syncd listens", lambda: (host.folder / "syncd.sock").exists(), 20, alive=sonic.alive())
    return sonic


def asic_rows(asic):
    """The rows of ASIC_DB without the filler, which says nothing beside other fields."""
    rows = {key: asic.hgetall(key) for key in asic.scan_iter("ASIC_STATE:*", count=1000)}
    return {key: {name: value for name, value in row.items() if name != "NULL"} for key, row in rows.items()}


def recorded_rows():
    """The rows of SONiC's ASIC_DB at the end of the same life."""
    with gzip.open(DUMPS, "rt") as file:
        last = json.load(file)[-1]
    assert last["phase"] == "neigh-back"
    rows = {key: row for key, row in last["ASIC_DB"].items() if key.startswith("ASIC_STATE:")}
    return {key: {name: value for name, value in row.items() if name != "NULL"} for key, row in rows.items()}


@pytest.mark.skipif(not LIFE.exists(), reason=f"{LIFE} is absent")
@pytest.mark.parametrize("asic_db", ["in-line", "behind"])
def test_life_of_sonics_orchagent_over_redis(host, asic_db):
    sonic = syncd_of_sonics_size(host, "--asic-db", asic_db)
    orchagent = RecordedOrchagent(sonic)
    orchagent.ask(life())
    assert orchagent.different == []
    wait_for("ASIC_DB is SONiC's", lambda: asic_rows(sonic.asic) == recorded_rows(), 20, alive=sonic.alive())


@pytest.mark.skipif(not LIFE.exists(), reason=f"{LIFE} is absent")
def test_life_of_sonics_orchagent_over_zeromq(host):
    sonic = syncd_of_sonics_size(host, "-z", "zmq_sync")
    with zmq.stock(host, "REQ", connect="5555") as socket:
        orchagent = RecordedZmqOrchagent(sonic, socket)
        orchagent.ask(life())
    assert orchagent.different == []
    assert asic_rows(sonic.asic) == recorded_rows()


@pytest.mark.skipif(not LIFE.exists(), reason=f"{LIFE} is absent")
@pytest.mark.parametrize("after", ["APPLY_VIEW", "interfaces", "feed"])
def test_syncd_killed_in_the_life_of_sonics_orchagent(host, after):
    """The next syncd has the switch with all of its objects, also those that are no part of the route path: it answers on
    as if nothing had happened."""
    sonic = syncd_of_sonics_size(host)
    orchagent, exchanges = RecordedOrchagent(sonic), life()
    at = {
        "APPLY_VIEW": next(n for n, (request, _) in enumerate(exchanges) if request[0] == "APPLY_VIEW") + 1,
        "interfaces": 1050,
        "feed": 1200,
    }[after]
    orchagent.ask(exchanges[:at])
    assert orchagent.different == []
    before, vids = asic_rows(sonic.asic), set(sonic.asic.hkeys("VIDTORID"))
    (host.folder / "syncd.sock").unlink(missing_ok=True)
    sonic.restart("syncd")
    wait_for("syncd listens", lambda: (host.folder / "syncd.sock").exists(), 20, alive=sonic.alive())
    assert asic_rows(sonic.asic) == before and set(sonic.asic.hkeys("VIDTORID")) == vids
    orchagent.ask(exchanges[at:])
    assert orchagent.different == []
    assert asic_rows(sonic.asic) == recorded_rows()


def test_entries_and_objects_of_any_type(host):
    """What the recording lacks: entries of the FDB and their flush, counters, and names that SAI does not have."""
    sonic = syncd_of_sonics_size(host)
    orchagent = RecordedOrchagent(sonic)
    switch, success = "oid:0x21000000000000", "SAI_STATUS_SUCCESS"

    def ask(op, key, *values):
        return orchagent.reply((key, json.dumps(values) if values or op[0] == "S" else "{}", op))

    def create(kind, index, number, **attributes):
        oid = f"oid:0x{number:x}{index:012x}"
        values = [part for name, value in attributes.items() for part in (f"SAI_{kind}_ATTR_{name}", value)]
        assert ask("Screate", f"SAI_OBJECT_TYPE_{kind}:{oid}", *values)[0] == success, (kind, attributes)
        return oid

    assert ask("Snotify", "INIT_VIEW")[0] == success
    assert ask("Screate", f"SAI_OBJECT_TYPE_SWITCH:{switch}", "SAI_SWITCH_ATTR_INIT_SWITCH", "true")[0] == success
    assert ask("Snotify", "APPLY_VIEW")[0] == success
    vlan = create("VLAN", 0xA00001, 0x26, VLAN_ID="100")
    again = ask("Screate", "SAI_OBJECT_TYPE_VLAN:oid:0x26000000a00009", "SAI_VLAN_ATTR_VLAN_ID", "100")
    assert again[0] == "SAI_STATUS_ITEM_ALREADY_EXISTS"
    bridge = json.loads(ask("Sget", f"SAI_OBJECT_TYPE_SWITCH:{switch}", "SAI_SWITCH_ATTR_DEFAULT_1Q_BRIDGE_ID", "oid:0x0")[1])[1]
    lag = create("LAG", 0xA00002, 0x2)
    member = create("LAG_MEMBER", 0xA00003, 0x1B, LAG_ID=lag, PORT_ID="oid:0x1000000000002")
    bridge_port = create("BRIDGE_PORT", 0xA00004, 0x3A, TYPE="SAI_BRIDGE_PORT_TYPE_PORT", PORT_ID=lag, BRIDGE_ID=bridge)
    create("VLAN_MEMBER", 0xA00005, 0x27, VLAN_ID=vlan, BRIDGE_PORT_ID=bridge_port)
    assert ask("Dremove", f"SAI_OBJECT_TYPE_VLAN:{vlan}")[0] == "SAI_STATUS_OBJECT_IN_USE"
    assert ask("Dremove", f"SAI_OBJECT_TYPE_LAG:{lag}")[0] == "SAI_STATUS_OBJECT_IN_USE"
    assert ask("Sget", f"SAI_OBJECT_TYPE_LAG:{lag}", "SAI_LAG_ATTR_PORT_LIST", "4:oid:0x0,oid:0x0,oid:0x0,oid:0x0")[1] == \
        json.dumps(["SAI_LAG_ATTR_PORT_LIST", f"1:{member}"], separators=(",", ":"))
    small = ask("Sget", f"SAI_OBJECT_TYPE_SWITCH:{switch}", "SAI_SWITCH_ATTR_PORT_LIST", "1:oid:0x0")
    assert small[:2] == ("SAI_STATUS_BUFFER_OVERFLOW", '["SAI_SWITCH_ATTR_PORT_LIST","32"]')

    def fdb(mac):
        return f'{{"bvid":"{vlan}","mac":"02:00:00:00:00:{mac}","switch_id":"{switch}"}}'

    entry = ["SAI_FDB_ENTRY_ATTR_TYPE", "SAI_FDB_ENTRY_TYPE_STATIC", "SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", bridge_port]
    assert ask("Screate", f"SAI_OBJECT_TYPE_FDB_ENTRY:{fdb('01')}", *entry)[0] == success
    learnt = f"SAI_FDB_ENTRY_ATTR_TYPE=SAI_FDB_ENTRY_TYPE_DYNAMIC|SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID={bridge_port}"
    bulk = ask("Sbulkcreate", "SAI_OBJECT_TYPE_FDB_ENTRY:2", fdb("02"), learnt, fdb("02"), learnt)
    assert bulk[0] == "SAI_STATUS_FAILURE" and json.loads(bulk[1])[::2] == [success, "SAI_STATUS_ITEM_ALREADY_EXISTS"]
    assert ask("Dremove", f"SAI_OBJECT_TYPE_BRIDGE_PORT:{bridge_port}")[0] == "SAI_STATUS_OBJECT_IN_USE"
    key = f"SAI_OBJECT_TYPE_FDB_ENTRY:{fdb('01')}"
    assert ask("Sget", key, "SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", "oid:0x0")[1] == \
        json.dumps(["SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", bridge_port], separators=(",", ":"))
    rows = asic_rows(sonic.asic)
    assert rows[f"ASIC_STATE:{key}"] == dict(zip(entry[::2], entry[1::2]))
    sonic.restart("syncd")
    assert ask("Sget", key, "SAI_FDB_ENTRY_ATTR_TYPE", "SAI_FDB_ENTRY_TYPE_DYNAMIC")[1] == \
        '["SAI_FDB_ENTRY_ATTR_TYPE","SAI_FDB_ENTRY_TYPE_STATIC"]'
    assert asic_rows(sonic.asic) == rows
    flush = ask("Sflush", f"SAI_OBJECT_TYPE_FDB_FLUSH:{switch}", "SAI_FDB_FLUSH_ATTR_BRIDGE_PORT_ID", bridge_port)
    assert flush == (success, "[]", "Sflushresponse")
    wait_for("the row of the learnt entry is gone", lambda: f"ASIC_STATE:SAI_OBJECT_TYPE_FDB_ENTRY:{fdb('02')}" not in asic_rows(sonic.asic), 5)
    assert f"ASIC_STATE:{key}" in asic_rows(sonic.asic)
    stats = ask("Sget_stats", "SAI_OBJECT_TYPE_PORT:oid:0x1000000000002", "SAI_PORT_STAT_IF_IN_OCTETS", "")
    assert stats == (success, '["SAI_PORT_STAT_IF_IN_OCTETS","0"]', "Sgetresponse")
    # Names that SAI does not have are refused, and the next request is answered.
    assert ask("Screate", "SAI_OBJECT_TYPE_BANANA:oid:0x1", "SAI_BANANA_ATTR_X", "1")[0] == "SAI_STATUS_NOT_SUPPORTED"
    assert ask("Screate", "SAI_OBJECT_TYPE_POLICER:oid:0x12000000a00007", "SAI_POLICER_ATTR_NONE", "1")[0] == "SAI_STATUS_INVALID_PARAMETER"
    assert ask("Screate", "SAI_OBJECT_TYPE_POLICER:oid:0x12000000a00007")[0] == "SAI_STATUS_MANDATORY_ATTRIBUTE_MISSING"
    assert ask("Sattribute_capability_query", switch, "OBJECT_TYPE", "SAI_OBJECT_TYPE_PORT", "ATTR_ID", "SAI_PORT_ATTR_NONE")[0] == "SAI_STATUS_INVALID_PARAMETER"
    assert ask("Sget", f"SAI_OBJECT_TYPE_VLAN:{vlan}", "SAI_VLAN_ATTR_VLAN_ID", "0")[1] == '["SAI_VLAN_ATTR_VLAN_ID","100"]'
