"""A route reflector with clients that send and receive."""

import json

from .host import Host, wait_for
from .ribtide import Ribtide, binary

ASN = 65001
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
    """A route reflector with sending and receiving clients, all in one AS."""

    def __init__(self, host, shards, updates, senders, receivers, hold=90):
        self.host, self.senders, self.receivers, self.hold = host, senders, receivers, hold
        clients = [f"198.19.0.{n}" for n in range(10, 10 + senders + receivers)]
        host.feeds.address("feed0", *(f"{a}/24" for a in clients))
        self.clients = clients
        self.router = Ribtide(host, CONFIG.format(asn=ASN, own=Host.FEED_SIDE, shards=shards, updates=updates, hold=hold))

    def tool(self, name, first, *options):
        return self.host.feeds.start(name, binary(), name, "--to", f"{Host.FEED_SIDE}:179", "--wait", 30, "--quiet", "--json",
                                     "--asn", ASN, "--hold-time", self.hold, "--from", first, "--router-id", first, *options)

    def sink(self, *options, first=0, receivers=None, table=True):
        """Receivers, by default all; else so many from the one of this number. Without a table they only count."""
        kept = ["--table"] if table else []
        return self.tool("sink", self.clients[self.senders + first], "--receivers", receivers or self.receivers, *kept, *options)

    def blast(self, *options):
        return self.tool("blast", self.clients[0], "--senders", self.senders, *options)

    def steady(self, *options):
        """One more sender, which is the host's usual feed."""
        return self.tool("blast", Host.FEEDS[0], *options)

    def tables(self, sink, timeout):
        """What each receiver held in the end: how many routes, and their digest."""
        wait_for("the receivers have ended", lambda: sink.poll() is not None, timeout, 0.2, alive=[self.router.process])
        assert sink.poll() == 0, sink.log()
        return [(r["held"], r["digest"]) for r in json.loads(sink.log(1_000_000).splitlines()[-1])["receivers"]]

    def lost(self, clients=None):
        """Clients (default: all) that have no session or lost one, with the reason."""
        known = {n["address"]: n for n in self.router.show("bgp", "summary")["neighbors"]}
        whole = {a for a, n in known.items() if n.get("session") and not n["flaps"]}
        return {a: known.get(a, {}).get("last_error") for a in clients or self.clients if a not in whole}

    def threads(self, kind):
        """How many threads of a kind it has."""
        return sum(t["name"].startswith(f"{kind}-") for t in self.router.show("pipeline")["threads"])
