"""The soak's network: a router, SONiC's daemons over Redis, senders, an observer; and the senders' own
truth."""

import contextlib
import ipaddress
import socket
import threading
import time
from collections import defaultdict

from harness import FEED_ASN, Bird, Host, Ribtide, binary, wait_for
from harness.sonic import CONNECTED, Sonic
from harness.speaker import END_OF_RIB, ROUTE_REFRESH, Speaker, block, prefixes, raw_update
from test_sonic import own_routes
from test_sonic_campaign import COMBINATIONS

US = 65001
GATEWAYS = {"Ethernet0": [f"193.203.0.{n}" for n in range(1, 61)], "Ethernet4": ["10.2.0.17", "10.2.0.18"]}
#: Addresses and AS numbers of the two senders whose tables change, and the feed's.
A, B, FEED = (Host.FEEDS[0], 65010), ("198.19.0.4", 65020), (Host.FEEDS[1], FEED_ASN)
OBSERVER, ROUTER4, ROUTER6, OBSERVER4, OBSERVER6 = 65100, "10.255.0.1", "fd00:255::1", "10.255.0.2", "fd00:255::2"
FEED_TABLE = ["--next-hops4", "193.203.0.0/25", "--next-hops6", "fd00:193::/120"]
#: Static routes: what forwards them.
STATIC = {"203.0.113.0/24": (), "198.18.0.0/24": ("10.2.0.17", "193.203.0.1"), "198.18.1.0/24": ("10.2.0.17", "193.203.0.1"),
          "198.51.100.7/32": ("193.203.0.2",), "2001:db8:77::1/128": ("fd00:193::5",)}
#: Ranges that some configurations reject.
REJECTED_IN, REJECTED_OUT = ipaddress.ip_network("10.128.0.0/13"), ipaddress.ip_network("10.144.0.0/13")

CONFIG = """
[router]
asn = {us}
router-id = "10.2.0.1"

[bgp]
listen = ["[::]:179"]
multipath = 4
multipath-relax = true
shards = 2

[policy.prefix-set.in]
prefixes = ["{rejected_in} 13..32"]

[policy.prefix-set.out]
prefixes = ["{rejected_out} 13..32"]

[[policy.definition.some-in.statement]]
conditions.match-prefix-set = "in"
actions.policy-result = "reject"

[[policy.definition.some-out.statement]]
conditions.match-prefix-set = "out"
actions.policy-result = "reject"

[[policy.definition.longer.statement]]
actions.set-as-path-prepend = {{ asn = {us}, repeat-n = 2 }}

[bgp.group.a]
type = "external"
peer-asn = {a[1]}
passive = true
import = [{a_import}"accept"]
neighbors = ["{a[0]}"]
{b_group}
[bgp.group.feed]
type = "external"
peer-asn = {feed[1]}
passive = true
import = ["accept"]
neighbors = ["{feed[0]}"]

[bgp.group.observer]
type = "external"
peer-asn = {observer}
connect-retry = 1
export = [{export}"accept"]
neighbor = [
    {{ address = "{observer4}", families = ["ipv4-unicast"]{text} }},
    {{ address = "{observer6}", families = ["ipv6-unicast"] }},
]

[fib]
kernel = {{ table = 100 }}
fpm = ["127.0.0.1:2620"]
suppress-fib-pending = {suppress}
""" + "".join(f"""
[[static]]
prefix = "{prefix}"
""" + (f"next-hop = {list(hops)}\n" if hops else "blackhole = true\n") for prefix, hops in STATIC.items()).replace("'", '"').replace("{", "{{").replace("}", "}}")

B_GROUP = f"""
[bgp.group.b]
type = "external"
peer-asn = {B[1]}
passive = true
import = ["accept"]
neighbors = ["{B[0]}"]
"""

BIRD = f"""
router id {OBSERVER4};
log stderr all;
protocol device {{}}
template bgp ours {{ local as {OBSERVER}; connect retry time 1; error wait time 1,2; connect delay time 1; enable extended messages; }}
protocol bgp four from ours {{ neighbor {ROUTER4} as {US}; ipv4 {{ import all; export none; }}; }}
protocol bgp six from ours {{ neighbor {ROUTER6} as {US}; ipv6 {{ import all; export none; }}; }}
"""

REFERENCE = f"""
router id {Host.FEED_SIDE};
log stderr all;
protocol device {{}}
protocol bgp feed {{ local as {US}; neighbor {FEED[0]} as {FEED_ASN}; passive; ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}
"""


def blast(host, size, seed):
    return host.feeds.start("blast", binary(), "blast", "--ipv4", size, "--ipv6", size // 10, "--seed", seed, *FEED_TABLE,
                            "--to", f"{Host.FEED_SIDE}:179", "--from", FEED[0], "--asn", FEED_ASN, "--wait", 60, "--quiet",
                            "--router-id", FEED[0])


def reference(folder, size, seeds):
    """Seed → prefix → (AS path, next hop) of the feed's table, as BIRD reads it from the same sender,
    without ribtide's router."""
    tables = {}
    for seed in seeds:
        host = Host(folder, f"reference-{seed}")
        try:
            host.lan("lan0", "193.203.0.250/24", "fd00:193::ff/64")
            bird = Bird(host, REFERENCE)
            feed = blast(host, size, seed)
            count = size + size // 10
            wait_for("BIRD has the feed's table", lambda: bird.count() == count, 60, 0.5, alive=[feed])
            tables[seed] = {p: (tuple(r.as_path.split()), r.next_hop) for p, r in bird.table().items()}
        finally:
            host.close()
    return tables


class Sender:
    """A session whose table is kept here: the truth."""

    def __init__(self, host, peer):
        self.host, (self.address, self.asn) = host, peer
        #: Prefix → (AS path, next hop).
        self.routes = {}
        self.speaker, self.lock = None, threading.RLock()

    @property
    def up(self):
        return self.speaker is not None

    def connect(self):
        self.close()
        speaker = Speaker(self.host, self.address, self.asn, refresh=True)
        self.host.sessions.remove(speaker)
        self.speaker = speaker
        threading.Thread(target=self.read, args=(speaker,), daemon=True).start()
        self.send_all()

    def read(self, speaker):
        """Reads to the session's end, and sends the table when the router asks for it (RFC 2918)."""
        with contextlib.suppress(OSError):
            while True:
                try:
                    got = speaker.read(600)
                except TimeoutError:
                    continue
                if got is None:
                    break
                if got[0] == ROUTE_REFRESH and self.speaker is speaker:
                    self.send_all()

    def close(self):
        if self.speaker is not None:
            speaker, self.speaker = self.speaker, None
            with contextlib.suppress(OSError):
                speaker.socket.shutdown(socket.SHUT_RDWR)
            speaker.close()

    def send(self, data):
        # A session that the router has ended is opened again by the round.
        with contextlib.suppress(OSError):
            if self.speaker is not None:
                self.speaker.send(data)

    def send_all(self):
        with self.lock:
            self.announce(self.routes)
            self.send(END_OF_RIB)

    def announce(self, routes):
        with self.lock:
            self.routes.update(routes)
            of = defaultdict(list)
            for prefix, route in routes.items():
                of[route].append(prefix)
            out = []
            for (path, hop), texts in of.items():
                out += [raw_update(b"", block([int(n) for n in path], hop), prefixes(texts[n:n + 500])) for n in range(0, len(texts), 500)]
            self.send(b"".join(out))

    def withdraw(self, texts):
        with self.lock:
            texts = [text for text in texts if self.routes.pop(text, None)]
            self.send(b"".join(raw_update(withdrawn=prefixes(texts[n:n + 500])) for n in range(0, len(texts), 500)))


class World:
    """Everything that runs."""

    def __init__(self, folder, transport, suppress, routes, seeds):
        self.transport, self.suppress = transport, suppress
        flags, self.appl_db, self.asic_db = COMBINATIONS[transport]
        assert "off" not in (self.appl_db, self.asic_db), "a copy that is not kept cannot be compared"
        every = ["--reconcile-interval", "5"]
        flags = {name: [*flags.get(name, []), *(every if name != "orchagent" else [])] for name in ("syncd", "orchagent", "fpmsyncd")}
        self.feed_size = routes // 4
        self.tables = reference(folder, self.feed_size, seeds)
        self.feed_seed, self.feed_up = seeds[0], True
        self.host, self.observer_host = Host(folder, "h"), Host(folder, "observer", feeds=False)
        try:
            self.start(routes, flags)
        except BaseException:
            self.host.close()
            self.observer_host.close()
            raise

    def start(self, routes, flags):
        self.host.join(self.observer_host, "eth0")
        self.host.address("eth0", f"{ROUTER4}/24", f"{ROUTER6}/64")
        self.observer_host.address("eth0", f"{OBSERVER4}/24", f"{OBSERVER6}/64")
        self.host.feeds.address("feed0", f"{B[0]}/24")
        self.sonic = Sonic(self.host, flags=flags, suppress=self.suppress)
        self.own = own_routes(self.sonic)
        self.down, self.policy = set(), {}
        self.router = Ribtide(self.host, self.config())
        self.a, self.b = Sender(self.host, A), Sender(self.host, B)
        self.observer = Bird(self.observer_host, BIRD)
        self.feed = None
        # Where the feed's tables have no prefix of the same name.
        taken = set().union(*self.tables.values()) | STATIC.keys()
        pool = [f"10.{128 + n // 256}.{n % 256}.0/24" for n in range(routes // 2)] + [f"100.64.{n // 256}.{n % 256}/32" for n in range(routes // 40)]
        self.pool = [prefix for prefix in pool if prefix not in taken]

    def config(self):
        p = self.policy
        return CONFIG.format(us=US, a=A, feed=FEED, observer=OBSERVER, observer4=OBSERVER4, observer6=OBSERVER6, rejected_in=REJECTED_IN,
                             rejected_out=REJECTED_OUT, suppress=str(self.suppress).lower(), a_import='"some-in", ' if p.get("in") else "",
                             b_group="" if p.get("without b") else B_GROUP, text=', description = "another"' if p.get("text") else "",
                             export=('"some-out", ' if p.get("out") else "") + ('"longer", ' if p.get("longer") else ""))

    def write_config(self):
        self.router.config.write_text(self.config() + f'\n[api]\nsocket = "{self.router.socket}"\n')

    def reload(self, **policy):
        self.policy = policy
        self.write_config()
        return self.router.text("reload", "--json")

    def start_feed(self, seed=None):
        self.stop_feed()
        self.feed_seed = self.feed_seed if seed is None else seed
        self.feed = blast(self.host, self.feed_size, self.feed_seed)
        self.feed_up = True

    def stop_feed(self):
        if self.feed is not None:
            self.feed.kill()
        self.feed_up = False

    def connect_all(self):
        for sender in (self.a, self.b):
            sender.connect()
        self.start_feed()

    def restart_router(self):
        self.router.process.kill()
        time.sleep(0.2)
        self.router.start()
        self.connect_all()

    # The truth.

    def resolves(self, hop):
        interface = "Ethernet4" if hop.startswith("10.2.0.") else "Ethernet0"
        return interface not in self.down

    def best(self):
        """Prefix → (set of possible AS paths, next hops) of BGP."""
        sources = []
        if self.a.up:
            of_a = self.a.routes
            if self.policy.get("in"):
                of_a = {p: r for p, r in of_a.items() if not inside(p, REJECTED_IN)}
            sources.append(of_a)
        if self.b.up and not self.policy.get("without b"):
            sources.append(self.b.routes)
        if self.feed_up:
            sources.append(self.tables[self.feed_seed])
        best = {}
        for source in sources:
            for prefix, (path, hop) in source.items():
                if not self.resolves(hop):
                    continue
                had = best.get(prefix)
                if had is None or len(path) < had[2]:
                    best[prefix] = ({path}, {hop}, len(path))
                elif len(path) == had[2]:
                    had[0].add(path)
                    had[1].add(hop)
        return {prefix: (paths, hops) for prefix, (paths, hops, _) in best.items()}

    def expected(self):
        """What forwards (prefix → next hops, () drops), and what the observer may have (prefix → AS paths)."""
        best = self.best()
        forwards = {prefix: tuple(sorted(hops)) for prefix, (_, hops) in best.items()}
        for prefix, hops in STATIC.items():
            some = tuple(sorted(hop for hop in hops if self.resolves(hop)))
            if some or not hops:
                forwards[prefix] = some
        ours = (str(US),) * (3 if self.policy.get("longer") else 1)
        told = {prefix: {" ".join(ours + path) for path in paths} for prefix, (paths, _) in best.items()
                if not (self.policy.get("out") and inside(prefix, REJECTED_OUT))}
        return forwards, told

    def connected(self):
        return {prefix: where for prefix, where in CONNECTED.items()
                if ("Ethernet4" if prefix.startswith(("10.2.", "fc00:2")) else "Ethernet0") not in self.down}

    def processes(self):
        return {"ribtide": self.router.process, **self.sonic.processes, "redis": self.sonic.redis.process, "bird": self.observer.process}

    def close(self):
        for sender in (self.a, self.b):
            sender.close()
        self.host.close()
        self.observer_host.close()


def inside(prefix, network):
    if ":" in prefix:
        return False
    return ipaddress.ip_network(prefix).subnet_of(network)
