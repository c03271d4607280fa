"""Connections between hosts, and a line that is cut until both ends detect it: FPM to the
daemons of an ASIC on another host; ZeroMQ and Redis between daemons of one ASIC on two hosts."""

import json
import re
import struct

import pytest
from harness import Host, Ribtide, binary, blast, settled, wait_for
from harness.config import HEAD, external
from harness.sonic import PORTS, Sonic
from harness.speaker import Speaker, prefixes as nlri, raw_update, update
from test_several_asics import Asic, servers
from test_sonic import ROUTER as SONIC_ROUTER, check, own_routes
from test_suppression import Receiver

HERE, THERE = "10.255.1.1", "10.255.1.2"
LINE = "midplane"
SENDER, RECEIVER = Host.FEEDS
ALL = [f"20.{n >> 8}.{n & 255}.0/24" for n in range(4000)]
#: Another one in each round, so that a chip says how far it is.
GATEWAYS = PORTS[0].neighbors[:100]
FIRST_ASN = 64512
ROUTER = (HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + external("receiver", 65020, RECEIVER, 'export = ["accept"]')
          + f"""
[fib]
suppress-fib-pending = true
fpm = ["127.0.0.1:2620", "{THERE}:2620"]

[[interface]]
name = "Ethernet0"
addresses = ["193.203.0.250/24"]
""")


class Told(Receiver):
    """A neighbour that checks all chips at each UPDATE. The end of an AS path identifies the
    round."""

    def __init__(self, host, asics):
        super().__init__(host, self.in_all)
        self.asics, self.round, self.of = asics, None, {}

    def take(self, body):
        self.round = round_of(body)
        super().take(body)

    def in_all(self, told):
        """Those that each chip sends where this round says, or a later one."""
        self.of.update(dict.fromkeys(told, self.round))
        there = set(told)
        for asic in self.asics:
            there -= {prefix for prefix, gateway in zip(told, asic.gateways(told)) if gateway not in GATEWAYS[self.round:]}
        return there

    def has(self, prefixes, number):
        """Whether exactly these were advertised last, in that round."""
        return self.table == set(prefixes) and {self.of[prefix] for prefix in prefixes} == {number}


def round_of(body):
    """The round of an UPDATE, from the last AS of its path, or None for a withdrawal."""
    at = 2 + struct.unpack("!H", body[:2])[0]
    end = at + 2 + struct.unpack("!H", body[at:at + 2])[0]
    at += 2
    while at < end:
        size, value = (struct.unpack("!H", body[at + 2:at + 4])[0], at + 4) if body[at] & 0x10 else (body[at + 2], at + 3)
        if body[at + 1] == 2:
            return int.from_bytes(body[value + size - 4:value + size]) - FIRST_ASN
        at = value + size
    return None


def announce(prefixes, number):
    return b"".join(update(prefixes[start:start + 200], [65010, FIRST_ASN + number], GATEWAYS[number])
                    for start in range(0, len(prefixes), 200))


@pytest.fixture
def there(folder):
    """Another host."""
    there = Host(folder, "there", feeds=False)
    yield there
    there.close()


def test_the_line_to_the_other_host_is_cut(host, there):
    """The daemons and databases of two ASICs: one on the host of the router, one on another
    host. The line to it stalls and is then cut. The local ASIC is not affected, and the other
    gets the last state when it is back. BGP never advertises a route that one of the two does
    not forward."""
    for port in PORTS:
        host.lan(port.name, *port.addresses)
    host.join(there, LINE)
    host.address(LINE, f"{HERE}/24")
    there.address(LINE, f"{THERE}/24")
    for port in PORTS:
        there.lan(port.name, *port.addresses)
    # FPM says numbers of interfaces.
    assert len({json.loads(h.ip("-j", "link", "show", "Ethernet0"))[0]["ifindex"] for h in (host, there)}) == 1
    near, far = (Asic(h, 0, servers(h, 1), f"{address}:2620", suppress=True) for h, address in ((host, "127.0.0.1"), (there, THERE)))
    alive = near.alive() + far.alive()
    router = Ribtide(host, ROUTER)
    clients = lambda what: [client[what] for client in router.show("fpm")["clients"]]
    receiver = Told(host, [near, far])
    sender = Speaker(host, SENDER, 65010)
    arrives = lambda asic, prefixes, number: wait_for(f"round {number} is in the chip", lambda: set(asic.gateways(prefixes)) == {
        GATEWAYS[number]}, 60, 0.2, alive=alive)

    sender.send(announce(ALL, 0))
    receiver.listen(lambda: receiver.has(ALL, 0), 120)

    # The line stands still in the middle of a change: TCP goes on by itself afterwards.
    half = len(ALL) // 2
    sender.send(announce(ALL[:half], 1))
    there.ip("link", "set", LINE, "down")
    sender.send(announce(ALL[half:], 1))
    arrives(near, ALL, 1)
    receiver.quiet(5)
    assert {receiver.of[prefix] for prefix in ALL[half:]} == {0}
    there.ip("link", "set", LINE, "up")
    receiver.listen(lambda: receiver.has(ALL, 1), 120)
    assert clients("connects") == [1, 1]

    # It is cut, and no word says so.
    there.ip("link", "set", LINE, "down")
    number = 1
    while clients("connected") == [True, True]:
        number += 1
        sender.send(announce(ALL, number))
        arrives(near, ALL, number)
        receiver.quiet(1)
    assert clients("connected") == [True, False]
    wait_for("the other side notices", lambda: far.processes["fpmsyncd"].logged("the FPM session ended", f"client={HERE}"), 60, alive=alive)
    number += 1
    left = ALL[100:]
    sender.send(raw_update(withdrawn=nlri(ALL[:100])) + announce(left, number))
    arrives(near, left, number)
    receiver.quiet(2)
    assert max(receiver.of.values()) == 1, "told of what the other host has not heard of"
    assert set(far.gateways(ALL)) == {GATEWAYS[1]}
    there.ip("link", "set", LINE, "up")
    arrives(far, left, number)
    receiver.listen(lambda: receiver.has(left, number), 120)
    for asic in (near, far):
        wait_for("what is withdrawn is gone", lambda: set(asic.gateways(ALL[:100])) == {None}, 30, 0.2, alive=alive)
        asic.agrees()
    assert clients("connects") == [1, 2]


def test_a_line_between_the_daemons_is_cut(host, there):
    """orchagent and the databases are on another host than fpmsyncd and syncd: routes and
    requests go over ZeroMQ, all else through Redis. The line is cut under load, without a TCP
    reset."""
    for port in PORTS:
        host.lan(port.name, *port.addresses)
    host.join(there, LINE)
    host.address(LINE, f"{HERE}/24")
    there.address(LINE, f"{THERE}/24")
    orchagent = ["-q", f"tcp://{THERE}", "-z", "zmq_async", "--zmq-syncd", f"tcp://{HERE}:5555"]
    sonic = Sonic(there, suppress=True, config={"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}}, flags={"orchagent": orchagent},
                  start=["orchagent"], redis=THERE)
    config = json.loads(sonic.redis.config.read_text())
    del config["INSTANCES"]["redis"]["unix_socket_path"]
    databases = host.folder / "database_config.json"
    databases.write_text(json.dumps(config))
    for name, flags in {
            "syncd": ["-z", "zmq_async", "--zmq-requests", f"tcp://{HERE}:5555", "--chip", "rate=3000", "--asic-db", "behind"],
            "fpmsyncd": ["-q", f"tcp://{THERE}"]}.items():
        usual = [flag.format(folder=there.folder) for flag in sonic.flags[name]]
        sonic.processes[name] = host.start(name, binary(), name, *usual, *flags, "--database-config", databases)
    own = own_routes(sonic)
    router = Ribtide(host, SONIC_ROUTER)
    feed = blast(host, 6_000, 300)
    wait_for("some routes are in the chip", lambda: sonic.query("counts").get("ipv4_routes", 0) > len(own) + 1_000, 60, 0.02,
             alive=sonic.alive())
    there.ip("link", "set", LINE, "down")
    feed.kill()
    blast(host, 3_000, 300, seed=8)
    gone = "the other host acknowledged nothing for 30 s"
    for daemon, what in [("fpmsyncd", f"messages no longer reach the endpoint channel=ROUTE_TABLE endpoint=tcp://{THERE}:8100 reason=.*{gone}"),
                         ("fpmsyncd", f"Redis for .* at {THERE}:6379 broke .{gone}.*; waiting for it to come back"),
                         ("fpmsyncd", f"Redis for APPL_STATE_DB at {THERE}:6379 broke .*; listening again when it is back"),
                         ("syncd", fr"the connection ended peer={THERE}:\d+ channel=requests error=.*{gone}"),
                         ("orchagent", fr"the connection ended peer={HERE}:\d+ channel=ROUTE_TABLE"),
                         ("orchagent", f"(?s)the connection to syncd is lost.*waiting for syncd endpoint=tcp://{HERE}:5555")]:
        wait_for(f"{daemon} says that {what}", lambda: re.search(what, sonic.processes[daemon].log(10_000)), 60, alive=sonic.alive())
    there.ip("link", "set", LINE, "up")
    want = settled(lambda: check(sonic, router, own, "rewritten"), 60)
    for prefix, answer in zip(want, sonic.query_all([f"route {prefix}" for prefix in want])):
        hops = tuple(sorted(hop["gateway"] for hop in answer["hops"] if hop["gateway"]))
        hops = hops or {"drop": ("drop",), "forward": ("interface",)}[answer["action"]]
        assert hops == want[prefix], answer
    assert all(process.poll() is None for process in sonic.alive())
