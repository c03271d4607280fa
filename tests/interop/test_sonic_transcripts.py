"""orchagent at the replies that SONiC's own syncd gave (sairedis eb21195c, virtual switch BCM56850), recorded in
`../shared/data/sonic`: it asks for nothing by a name that syncd's metadata does not have, and understands each reply."""

import gzip
import json
import threading

import pytest
from harness import wait_for
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
