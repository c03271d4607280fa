"""A chip that refuses some entries for a time: afterwards it has every entry as its row asks, without FIB suppression too,
and without a row that is written again."""

import json
import re

import pytest
from harness import Host, Ribtide, fpm, settled, wait_for
from harness.config import HEAD, LAB, external
from harness.sonic import STATE, Sonic
from harness.speaker import Speaker, raw_update, update
from harness.speaker import prefixes as nlri
from test_sonic import connect_fpm, ifindex, own_routes
from test_sonic_explain import Explained
from test_sonic_warm import COMBINATIONS

SENDER = Host.FEEDS[0]
WAITING = "requests that the chip refused, to be sent again"
PREFIXES = [f"20.{n // 256}.{n % 256}.0/24" for n in range(1000)]
#: The chip refuses the routes of a fifth of all destinations, and the second of each bulk of anything.
REFUSES, ACCEPTS = "fail-rate=0.2 fail-entry=2".split(), "fail-rate=0 fail-entry=0".split()
REASON = r"it is refused by the chip \(SAI_STATUS_FAILURE\), retried in \d+ s"


def test_one_process(host):
    router = Ribtide(host, HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + "[fib]" + LAB)
    sender = Speaker(host, SENDER, 65010)

    def gateways(prefixes):
        addresses = [prefix.split("/")[0] for prefix in prefixes]
        found = {}
        for start in range(0, len(addresses), 200):
            for answer in json.loads(router.text("show", "asic", *addresses[start:start + 200], "--json"))["lookups"]:
                found[answer.get("prefix")] = answer.get("next_hops", [])
        return {prefix: found.get(prefix, []) for prefix in prefixes}

    def waiting():
        gauges = json.loads(router.text("show", "pipeline", "--json"))["gauges"]
        return next(gauge["depth"] for gauge in gauges if gauge["name"] == WAITING)

    def announce(gateway, first, last):
        for start in range(first, last, 100):
            sender.send(update(PREFIXES[start:start + 100], [65010], gateway))

    announce("10.0.0.5", 0, 500)
    wait_for("the first half is there", lambda: set(map(tuple, gateways(PREFIXES[:500]).values())) == {("10.0.0.5",)}, 30)
    router.text("config", "asic", "set", *REFUSES)
    # Entries that are new, that change, and that go.
    announce("10.0.0.6", 250, 1000)
    sender.send(raw_update(withdrawn=nlri(PREFIXES[:100])))
    def refused():
        have = gateways(PREFIXES[250:])
        assert ["10.0.0.6"] in have.values() and ["10.0.0.5"] in have.values() and [] in have.values()
        assert waiting() > 100
    settled(refused, 30, 0.2)
    def named():
        missing = next(prefix for prefix, hops in gateways(PREFIXES[500:]).items() if not hops)
        stages = {stage["stage"]: stage["messages"] for stage in router.explain(missing)["stages"]}
        assert re.fullmatch(REASON, stages["orchagent"][-1]), stages
    settled(named, 30, 0.2)
    router.text("config", "asic", "set", *ACCEPTS)
    want = dict.fromkeys(PREFIXES[:100], []) | dict.fromkeys(PREFIXES[100:250], ["10.0.0.5"]) | dict.fromkeys(PREFIXES[250:], ["10.0.0.6"])
    def done():
        have = gateways(PREFIXES)
        assert have == want, [(p, have[p], want[p]) for p in PREFIXES if have[p] != want[p]][:5]
    settled(done, 90, 0.5)
    assert waiting() == 0


@pytest.mark.parametrize("suppress", [False, True], ids=["advertised", "suppressed"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_daemons(host, combination, suppress):
    sonic = Sonic(host, suppress=suppress, flags=COMBINATIONS[combination])
    own = own_routes(sonic)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    both = [("193.203.0.1", port, ()), ("193.203.0.2", port, ())]

    def announce(prefixes, gateway=None, hops=()):
        client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, gateway, port if gateway else 0, hops=hops) for prefix in prefixes))

    def waiting():
        return json.loads(sonic.redis.db(STATE).hget("RIBTIDE_QUEUES|orchagent", WAITING) or '{"depth": 0}')["depth"]

    announce(PREFIXES[:500], "193.203.0.1")
    first = own | dict.fromkeys(PREFIXES[:500], ("193.203.0.1",))
    sonic.wait_routes("the first half is there", first, 60)
    if combination == "zmq":
        # fpmsyncd sends every row again, once: that would be a second try of each.
        wait_for("every row was sent again", lambda: "ROUTE_TABLE:resync|DEL" in (host.folder / "swss.rec").read_text(), 30, alive=sonic.alive())
    sonic.query(f"set {' '.join(REFUSES)}")
    # New entries, entries with another next hop, and a group whose second member is refused.
    announce(PREFIXES[250:750], "193.203.0.2")
    announce(PREFIXES[750:], hops=both)
    wait_for("the chip refuses some", lambda: waiting() > 50, 30, alive=sonic.alive())
    new = PREFIXES[500:750]
    def named():
        missing = [prefix for prefix, entry in zip(new, sonic.query_all([f"route {p}" for p in new])) if not entry]
        now = Explained(sonic, missing[0])
        assert re.fullmatch("the route ends at orchagent: " + REASON, now.conclusion), now.messages
    settled(named, 30, 0.2)
    sonic.query(f"set {' '.join(ACCEPTS)}")
    want = (own | dict.fromkeys(PREFIXES[:250], ("193.203.0.1",)) | dict.fromkeys(PREFIXES[250:750], ("193.203.0.2",))
            | dict.fromkeys(PREFIXES[750:], ("193.203.0.1", "193.203.0.2")))
    sonic.wait_routes("every route is there", want, 120)
    wait_for("nothing waits", lambda: waiting() == 0, 30, alive=sonic.alive())
