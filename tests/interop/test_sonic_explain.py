"""`ribtide explain PREFIX --sonic` queries SONiC's daemons, each a process, and the databases
between them: the stage at which a route waits, and the reason."""

import json
import re
import struct
import subprocess

import pytest
from harness import Host, Ribtide, binary, fpm, settled, wait_for
from harness.config import HEAD, external
from harness.sonic import STATE, Sonic
from harness.speaker import Speaker, update
from test_sonic import connect_fpm, ifindex, own_routes
from test_sonic_warm import COMBINATIONS

STAGES = ["fpmsyncd", "APPL_DB", "orchagent", "ASIC_DB", "virtual switch"]
STALLED = "the route waits at virtual switch: it is stalled until a command resumes it"


class Explained:
    """The states of a route in the daemons, and in a router if there is one."""

    def __init__(self, sonic, prefix, *more):
        said = json.loads(subprocess.run([binary(), "explain", prefix, "--sonic", "--database-config", sonic.redis.config, "--json", *more],
                                         capture_output=True, text=True, check=True).stdout)
        self.conclusion = said["conclusion"]
        self.order = [stage["stage"] for stage in said["stages"]]
        self.states = {stage["stage"]: stage["state"] for stage in said["stages"]}
        self.messages = {stage["stage"]: stage["messages"] for stage in said["stages"]}


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_where_a_route_waits(host, combination):
    sonic = Sonic(host, suppress=True, flags=COMBINATIONS[combination])
    own = own_routes(sonic)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    announce = lambda prefix, gateway="193.203.0.1": client.send(fpm.route(fpm.NEWROUTE, prefix, gateway, port))

    def concludes(prefix, sentence, **states):
        def look():
            now = Explained(sonic, prefix)
            assert now.order == STAGES
            assert now.conclusion == sentence, now.messages
            assert {stage: now.states[stage] for stage in states} == states, now.messages
        settled(look, 20, 0.2)

    def unanswered(count):
        """Checks that so many routes wait for a response."""
        def look():
            queues = json.loads(sonic.redis.db(STATE).hget("RIBTIDE_QUEUES|fpmsyncd", "routes without a response"))
            assert queues["depth"] == count
        settled(look, 20, 0.2)

    through = "the route is all the way through: virtual switch has it"
    announce("20.0.0.0/24")
    concludes("20.0.0.0/24", through, **dict.fromkeys(STAGES, "passed"))
    # The virtual switch may be seen to have the route before the confirmation has come back to fpmsyncd.
    def confirmed():
        assert Explained(sonic, "20.0.0.0/24").messages["fpmsyncd"][-1] == "orchagent confirmed it"
    settled(confirmed, 20, 0.2)
    concludes("99.0.0.0/24", "nothing is known of 99.0.0.0/24", **dict.fromkeys(STAGES, "absent"))

    # No host is at this address.
    announce("21.0.0.0/24", "193.203.0.200")
    concludes("21.0.0.0/24", "the route ends at orchagent: next hop 193.203.0.200 on Ethernet0 is not resolved",
              fpmsyncd="passed", APPL_DB="passed", ASIC_DB="absent")
    sonic.neighbor("Ethernet0", "193.203.0.200")
    concludes("21.0.0.0/24", through)

    # The chip refuses it, and takes it later.
    sonic.query("refuse 22.0.0.0/24")
    announce("22.0.0.0/24")
    def refused():
        now = Explained(sonic, "22.0.0.0/24")
        sentence = r"the route ends at orchagent: it is refused by the chip \(SAI_STATUS_FAILURE\), retried in \d+ s"
        assert re.fullmatch(sentence, now.conclusion) and now.states["ASIC_DB"] == "absent", now.messages
    settled(refused, 20, 0.2)
    announce("22.0.0.0/24", "193.203.0.2")
    settled(refused, 20, 0.2)
    sonic.query("take 22.0.0.0/24")
    concludes("22.0.0.0/24", through)
    # To the first row no answer came, and none does.
    assert Explained(sonic, "22.0.0.0/24").messages["fpmsyncd"][-1] == ("one of the rows handed over has no answer: it is still to come, or was refused "
                                                                    "or coalesced with a later one, and gets none")

    # The chip is full, until there is room.
    sonic.query(f"set ipv4-routes={sonic.query('counts')['ipv4_routes']}")
    announce("23.0.0.0/24")
    concludes("23.0.0.0/24", "the route ends at orchagent: the chip's table of ipv4-unicast routes is full", ASIC_DB="absent")
    client.send(fpm.route(fpm.DELROUTE, "22.0.0.0/24"))
    concludes("23.0.0.0/24", through)
    concludes("22.0.0.0/24", "nothing is known of 22.0.0.0/24")
    sonic.query("set ipv4-routes=1000000")

    # It names a next-hop object that was not announced.
    body = struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, 186, 0, 1, 0) + fpm.attribute(1, bytes([24, 0, 0, 0]))
    client.send(fpm.framed(fpm.NEWROUTE, body + fpm.attribute(30, struct.pack("=I", 77))))
    concludes("24.0.0.0/24", "the route waits at fpmsyncd: next-hop object 77, which it resolves to, was not announced", orchagent="absent")

    # A chip that stands still, and what the daemons say meanwhile; a withdrawal waits for it as well.
    sonic.query("set stall=on")
    announce("25.0.0.0/24")
    concludes("25.0.0.0/24", STALLED, ASIC_DB="absent")
    unanswered(1)
    client.send(fpm.route(fpm.DELROUTE, "20.0.0.0/24"))
    concludes("20.0.0.0/24", STALLED, ASIC_DB="passed")
    sonic.query("set stall=off")
    concludes("25.0.0.0/24", through)
    concludes("20.0.0.0/24", "nothing is known of 20.0.0.0/24")
    unanswered(0)
    concludes("10.2.0.1/32", through, fpmsyncd="absent", APPL_DB="absent")
    assert "10.2.0.1/32" in own

    # A daemon that does not run is named.
    sonic.processes["fpmsyncd"].kill()
    now = Explained(sonic, "25.0.0.0/24")
    assert now.states["fpmsyncd"] == "off" and now.messages["fpmsyncd"] == ["does not run on these databases, or is not ribtide's"]
    assert now.states["orchagent"] == now.states["virtual switch"] == "passed"


SENDER = Host.FEEDS[0]
ROUTER = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + """
[fib]
fpm = ["127.0.0.1:2620"]

[[interface]]
name = "Ethernet4"
addresses = ["10.2.0.1/24"]
"""


def test_from_the_bgp_session_to_the_chip(host):
    sonic = Sonic(host)
    own_routes(sonic)
    router = Ribtide(host, ROUTER)
    sender = Speaker(host, SENDER, 65010)
    sender.send(update(["20.0.0.0/24"], [65010], "10.2.0.17"))
    wait_for("the chip has it", lambda: sonic.route("20.0.0.0/24"), 60, alive=sonic.alive())

    def through():
        now = Explained(sonic, "20.0.0.0/24", "--socket", router.socket)
        assert now.order[:2] == ["bgp", "rib"] and now.order[-5:] == STAGES and set(now.states.values()) == {"passed"}, now.messages
        assert now.conclusion == "the route is all the way through: virtual switch has it"
    settled(through, 20)
    # An address has its longest match there, too.
    assert Explained(sonic, "20.0.0.9", "--socket", router.socket).conclusion == Explained(sonic, "20.0.0.0/24").conclusion
    sonic.query("set stall=on")
    sender.send(update(["21.0.0.0/24"], [65010], "10.2.0.18"))

    def stalled():
        now = Explained(sonic, "21.0.0.0/24", "--socket", router.socket)
        assert now.conclusion == STALLED, now.messages
    settled(stalled, 20)
