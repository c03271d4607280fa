"""How BGP's stages sit on threads changes no result and lets no session expire: threads for everything, for updates
alone, for shards alone, and everything on one thread."""

import json

import pytest
from harness import Host, Ribtide, binary, wait_for

ASN = 65001
THREADS = {
    "threads": ("3", "2"),
    "update-threads": ('"off"', "2"),
    "shards": ("3", '"off"'),
    "one-thread": ('"off"', '"off"'),
}
CONFIG = """
[router]
asn = {asn}
router-id = "{own}"

[bgp]
listen = ["{own}:179"]
shards = {shards}
update-threads = {updates}

[bgp.group.clients]
type = "internal"
route-reflector-client = true
passive = true
hold-time = {hold}
dynamic-neighbors = ["198.19.0.0/24"]
"""


class Reflector:
    """A route reflector, and clients that send and clients that receive; all of one AS."""

    def __init__(self, host, shards, updates, senders, receivers, hold=90):
        self.host, self.senders, self.receivers, self.hold = host, senders, receivers, hold
        clients = [f"198.19.0.{n}" for n in range(10, 10 + senders + receivers)]
        host.feeds.address("feed0", *(f"{a}/24" for a in clients))
        self.first_sender, self.first_receiver = clients[0], clients[senders]
        self.router = Ribtide(host, CONFIG.format(asn=ASN, own=Host.FEED_SIDE, shards=shards, updates=updates, hold=hold))

    def tool(self, name, first, *options):
        return self.host.feeds.start(name, binary(), name, "--to", f"{Host.FEED_SIDE}:179", "--wait", 30, "--quiet", "--json",
                                     "--asn", ASN, "--hold-time", self.hold, "--from", first, "--router-id", first, *options)

    def sink(self, *options):
        return self.tool("sink", self.first_receiver, "--receivers", self.receivers, "--table", *options)

    def blast(self, *options):
        return self.tool("blast", self.first_sender, "--senders", self.senders, *options)

    def tables(self, sink, timeout):
        """What each receiver held in the end: how many routes, and their digest."""
        wait_for("the receivers have ended", lambda: sink.poll() is not None, timeout, 0.2, alive=[self.router.process])
        assert sink.poll() == 0, sink.log()
        return [(r["held"], r["digest"]) for r in json.loads(sink.log(1_000_000).splitlines()[-1])["receivers"]]

    def lost(self):
        """Sessions that are not there or were lost, by address, and why."""
        summary = self.router.show("bgp", "summary")["neighbors"]
        lost = {n["address"]: n.get("last_error") for n in summary if n["flaps"] or not n.get("session")}
        assert len(summary) == self.senders + self.receivers, summary
        return lost


def table_of(folder, shards, updates):
    """What the receivers of a reflector with these threads hold after announcements and churn."""
    host = Host(folder, "h")
    try:
        reflector = Reflector(host, shards, updates, senders=4, receivers=3)
        sink = reflector.sink("--until-prefixes", 20000, "--until-idle", 3)
        reflector.blast("--ipv4", 15000, "--ipv6", 5000, "--churn", 20, "--churn-rounds", 3)
        tables = reflector.tables(sink, 120)
        rings = {r["name"] for r in reflector.router.show("pipeline")["rings"]}
        assert {"readers to shard 0", "shards to worker 0", "workers to sessions", "requests to shard 0"} <= rings
        names = {t["name"] for t in reflector.router.show("pipeline")["threads"]}
        assert ("shard-0" in names, "reader-0" in names, "egress-0" in names) == (
            shards != '"off"', shards != '"off"', updates != '"off"')
        return tables
    finally:
        host.close()


def test_the_threads_change_no_result(folder):
    tables = {name: table_of(folder / name, *threads) for name, threads in THREADS.items()}
    assert tables["threads"][0][0] == 20000
    # Every receiver, whatever the threads, holds the same.
    assert len({table for held in tables.values() for table in held}) == 1, tables
