"""ribtide is killed and started again under a full table, beside BIRD, FRR and GoBGP at once: packets go on in both directions,
no surviving route is withdrawn behind any of them or leaves the kernel, and what the sender has no more leaves everywhere.

RESTART_ROUTES is the number of routes. With `-s` the test prints its times, for docs/trust.md."""

import collections
import gzip
import json
import os
import random
import socket
import sys
import threading
import time

import pytest
from harness import FEED_ASN, Bird, Frr, Gobgp, Host, Messages, Ribtide, wait_for
from harness.netlink import destination
from harness.speaker import END_OF_RIB, KEEPALIVE, UPDATE, Speaker, block, communities, message, raw_update
from harness.table import DATA
from test_graceful_restart import capability

ROUTES = int(os.environ.get("RESTART_ROUTES", "20000"))
FEED = Host.FEEDS[0]
#: Our AS, and that of the observers behind the receivers.
OURS, BEHIND = 65001, 64999
#: Of a hundred routes the sender has one no more when it comes back.
GONE_EVERY = 100
#: Addresses to which packets go, each in another prefix that survives.
TARGETS = 500


class Receiver:
    """A neighbour of the router, on a link of its own, with a host behind it: `four` of `ours`, and 10.1.`number`.0/24."""

    def __init__(self, kind, number, router_host, folder):
        self.kind, self.number, self.asn = kind, number, 65100 + number
        self.ours, self.four = f"10.255.{number}.1", f"10.255.{number}.2"
        self.network, self.end = f"10.1.{number}.0/24", f"10.1.{number}.2"
        self.host = Host(folder, kind)
        router_host.join(self.host, f"eth{number}")
        router_host.address(f"eth{number}", f"{self.ours}/24")
        self.host.address(f"eth{number}", f"{self.four}/24")
        self.host.address("feed0", f"10.1.{number}.1/24")
        self.host.feeds.address("feed0", f"{self.end}/24")
        self.host.feeds.ip("route", "add", "default", "via", f"10.1.{number}.1")
        self.host.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.daemon = None

    def start(self):
        self.daemon = getattr(self, self.kind)()

    def count(self):
        """How many of the sender's routes it has."""
        # It has its own network, and those of the others.
        return self.daemon.count() - 3

    def bird(self):
        """BIRD forwards by its routes: it has them in its kernel."""
        return Bird(self.host, f"""
router id {self.four};
log stderr all;
protocol device {{}}
protocol kernel {{ scan time 3600; ipv4 {{ import none; export where source = RTS_BGP; }}; }}
protocol static {{ ipv4; route {self.network} via "feed0"; }}
protocol bgp ours {{
    local as {self.asn};
    neighbor {self.ours} as {OURS};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    graceful restart on;
    ipv4 {{ import all; export where source = RTS_STATIC; }};
}}
protocol bgp observer {{
    local as {self.asn};
    neighbor {FEED} as {BEHIND};
    passive;
    ipv4 {{ import none; export where source = RTS_BGP; }};
}}
""")

    def frr(self):
        """FRR too."""
        return Frr(self.host, bgpd=f"""hostname bgpd
ip prefix-list own permit {self.network}
router bgp {self.asn}
 bgp router-id {self.four}
 bgp graceful-restart
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp network import-check
 neighbor {self.ours} remote-as {OURS}
 neighbor {self.ours} timers connect 1
 neighbor {FEED} remote-as {BEHIND}
 neighbor {FEED} passive
 address-family ipv4 unicast
  network {self.network}
  neighbor {self.ours} activate
  neighbor {self.ours} prefix-list own out
  neighbor {FEED} activate
 exit-address-family
""")

    def gobgp(self):
        """GoBGP has no routes in a kernel, so its host has a default route."""
        self.host.ip("route", "add", "default", "via", self.ours)
        def neighbor(address, asn, passive, more=""):
            return f"""
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {asn}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.transport.config]
    passive-mode = {passive}
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
{more}"""
        restart = """    [neighbors.afi-safis.mp-graceful-restart.config]
      enabled = true
  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 120
"""
        daemon = Gobgp(self.host, f'[global.config]\n  as = {self.asn}\n  router-id = "{self.four}"\n'
                       + neighbor(self.ours, OURS, "false", restart) + neighbor(FEED, BEHIND, "true"))
        daemon.query("global", "rib", "add", self.network, "-a", "ipv4")
        return daemon


def config(receivers, suppress):
    neighbors = "".join(f'    {{ address = "{r.four}", peer-asn = {r.asn} }},\n' for r in receivers)
    return f"""
[router]
asn = {OURS}
router-id = "10.255.0.1"

[bgp]
listen = ["[::]:179"]
# Below FRR's stalepath-time, which is 360 s. A machine that others use too may take more than the default.
graceful-restart = {{ mode = "restart", selection-deferral-time = 300 }}

[bgp.group.sender]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
export = ["reject"]
neighbors = ["{FEED}"]

[bgp.group.receivers]
type = "external"
families = ["ipv4-unicast"]
import = ["accept"]
export = ["accept"]
connect-retry = 1
neighbor = [
{neighbors}]

[fib]
suppress-fib-pending = {str(suppress).lower()}
[fib.kernel]
"""


def wire(text):
    """A prefix as NLRI."""
    address, _, length = text.partition("/")
    return bytes([int(length)]) + socket.inet_aton(address)[:(int(length) + 7) // 8]


def all_prefixes(count):
    """That many IPv4 prefixes in ascending order: those of the default-free zone, then /24s of space that they leave free; or /24s
    alone where that list is absent."""
    file, found = DATA / "dfz-prefixes-2024-01.txt.gz", []
    if file.exists():
        with gzip.open(file, "rt") as lines:
            found = [line.strip() for line in lines if ":" not in line]
        if count < len(found):
            return [found[n * len(found) // count] for n in range(count)]
    free = (f"{a}.{b}.{c}.0/24" for a in range(20, 224) for b in range(256) for c in range(256) if a != 127)
    known = set(found)
    for text in free:
        if len(found) >= count:
            break
        if text not in known:
            found.append(text)
    assert len(found) == count
    return sorted(found, key=lambda text: (socket.inet_aton(text.partition("/")[0]), int(text.partition("/")[2])))


def messages(prefixes, without=frozenset()):
    """UPDATEs of these prefixes, six with the same attributes on average, and End-of-RIB. The attributes of a prefix are the same
    whatever `without` leaves out."""
    numbers, at, out = random.Random(1), 0, []
    while at < len(prefixes):
        size = numbers.randint(1, 11)
        path = [FEED_ASN] + [numbers.randint(1000, 60000) for _ in range(numbers.randint(1, 5))]
        more = [communities([(path[1], numbers.randint(1, 999)) for _ in range(numbers.randint(1, 5))])] if numbers.random() < 0.6 else []
        nlri = b"".join(one for one in prefixes[at:at + size] if one not in without)
        if nlri:
            out.append(raw_update(b"", block(path, FEED, *more), nlri))
        at += size
    return b"".join(out) + END_OF_RIB


class Observer(threading.Thread):
    """Behind a receiver: what that has, by what it sends. `withdrawn` and `announced` count since `mark`, by prefix."""

    def __init__(self, host):
        super().__init__(daemon=True)
        self.speaker = Speaker(host, FEED, BEHIND, hold=180)
        self.table, self.running, self.last, self.error = set(), True, time.monotonic(), None
        self.mark()
        self.start()

    def mark(self):
        self.withdrawn, self.announced = collections.Counter(), collections.Counter()

    def run(self):
        kept = time.monotonic()
        while self.running:
            if time.monotonic() - kept > 20:
                self.speaker.send(message(KEEPALIVE))
                kept = time.monotonic()
            try:
                got = self.speaker.read(1)
            except TimeoutError:
                continue
            if got is None or got[0] not in (UPDATE, KEEPALIVE):
                self.error = got or "the connection has ended"
                return
            if got[0] == UPDATE:
                self.take(got[1])

    def take(self, body):
        size = int.from_bytes(body[:2], "big")
        attributes = 4 + size + int.from_bytes(body[2 + size:4 + size], "big")
        gone, new = list(split(body[2:2 + size])), list(split(body[attributes:]))
        self.withdrawn.update(gone)
        self.announced.update(new)
        self.table.difference_update(gone)
        self.table.update(new)
        self.last = time.monotonic()

    def stop(self):
        self.running = False
        self.join()


def split(nlri):
    at = 0
    while at < len(nlri):
        end = at + 1 + (nlri[at] + 7) // 8
        yield nlri[at:end]
        at = end


class Deletions(Messages):
    """Which IPv4 routes the kernel says are deleted, as NLRI."""

    def __init__(self, host):
        self.deleted = collections.Counter()
        super().__init__(host)

    def take(self, data):
        super().take(data)
        at = 0
        while at + 16 <= len(data):
            length, kind = int.from_bytes(data[at:at + 4], "little"), int.from_bytes(data[at + 4:at + 6], "little")
            if kind == 25 and data[at + 16] == socket.AF_INET:
                address = destination(data[at + 28:at + length])
                self.deleted[wire(f"{'0.0.0.0' if address == 'default' else address}/{data[at + 17]}")] += 1
            at += (length + 3) & ~3


#: Sends numbered packets to one address after another, one every two milliseconds, until SIGTERM; prints how many, and those
#: that were not answered: number, address, and when they were sent.
SENDER = """
import json, signal, socket, sys, time
on = [True]
signal.signal(signal.SIGTERM, lambda *_: on.clear())
targets = open(sys.argv[1]).read().split()
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
out.setblocking(False)
waiting, n = {}, 0
def replies():
    try:
        while True:
            waiting.pop(int(out.recv(100)), None)
    except BlockingIOError:
        pass
while on:
    waiting[n] = time.monotonic()
    out.sendto(b"%d" % n, (targets[n % len(targets)], 9))
    n += 1
    replies()
    time.sleep(0.002)
end = time.monotonic() + 10
while waiting and time.monotonic() < end:
    time.sleep(0.1)
    replies()
print(json.dumps({"sent": n, "lost": [[n, targets[n % len(targets)], at] for n, at in waiting.items()]}))
"""
#: The address of those who answer, which the hosts behind receivers do not have too.
ANSWERS = "192.0.2.53"
#: Answers each packet, and counts those of each sender. At SIGTERM it prints the counts.
ECHO = """
import collections, json, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
both = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
both.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
both.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
both.bind(("0.0.0.0", 9))
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.bind((sys.argv[1], 0))
print("ready", flush=True)
counts = collections.Counter()
try:
    while True:
        data, source = both.recvfrom(100)
        out.sendto(data, source)
        counts[source[0]] += 1
except SystemExit:
    print(json.dumps(counts))
"""


class Traffic:
    """Packets from the host behind each receiver, by the receiver's routes and ribtide's, to the sender's host, and back."""

    def __init__(self, host, receivers, targets):
        host.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        feeds = host.feeds
        feeds.ip("route", "add", "default", "via", Host.FEED_SIDE)
        feeds.address("lo", f"{ANSWERS}/32")
        # Every packet that the router sends here has arrived, whatever its address.
        feeds.ip("route", "add", "local", "default", "dev", "lo", "table", "100")
        feeds.ip("rule", "add", "iif", "feed0", "lookup", "100")
        self.dropped = dropped()
        self.echo = feeds.start("echo", sys.executable, "-c", ECHO, ANSWERS)
        wait_for("packets are answered", lambda: "ready" in self.echo.log(), 20)
        self.senders = {}
        for r in receivers:
            file = r.host.folder / "targets"
            file.write_text("\n".join(targets))
            self.senders[r] = r.host.feeds.start("traffic", sys.executable, "-c", SENDER, file)

    def end(self):
        """(sent, lost) for each kind of receiver. A packet that the machine itself had no room for, which a full backlog of a CPU
        is, is not told apart: the assertion names them."""
        for process in self.senders.values():
            process.popen.terminate()
        found = {}
        for receiver, process in self.senders.items():
            process.stop(timeout=60)
            result = json.loads(process.log(1 << 24))
            assert result["sent"] > 500
            found[receiver.kind] = result["sent"], result["lost"]
        self.echo.stop()
        counts = json.loads(self.echo.log(1 << 16).split("ready")[1])
        seen = [f"{kind}: {len(lost)} of {sent} lost, {counts.get(r.end)} arrived, {lost[:1]} to {lost[-1:]}"
                for (kind, (sent, lost)), r in zip(found.items(), self.senders)]
        if any(lost for _, lost in found.values()):
            raise AssertionError(f"{'; '.join(seen)}; dropped from the backlogs of CPUs: {dropped() - self.dropped}")
        return {kind: sent for kind, (sent, _) in found.items()}


def dropped():
    """Packets of the whole machine that a full backlog of a CPU dropped."""
    with open("/proc/net/softnet_stat") as lines:
        return sum(int(line.split()[1], 16) for line in lines)


def installed(host):
    """How many of the sender's routes the kernel has."""
    return int(host.run("sh", "-c", "ip -4 route show proto bgp | grep -vc ^10[.]1[.]", timeout=300))


def addresses(prefixes, gone):
    """An address in each of some prefixes; its longest match is none of those that go."""
    found = []
    for one in random.Random(2).sample(sorted(prefixes), min(len(prefixes), 4 * TARGETS)):
        address = int.from_bytes(one[1:].ljust(4, b"\0"), "big") + (one[0] < 31)
        covers = {bytes([n]) + (address >> (32 - n) << (32 - n)).to_bytes(4, "big")[:(n + 7) // 8] for n in range(8, 33)}
        if not covers & gone:
            found.append(socket.inet_ntoa(address.to_bytes(4, "big")))
    return found[:TARGETS]


@pytest.fixture
def world(folder):
    """The router's host, and the receivers."""
    host, receivers = Host(folder, "ribtide"), []
    try:
        for number, kind in enumerate(("bird", "frr", "gobgp"), 1):
            receivers.append(Receiver(kind, number, host, folder))
            receivers[-1].start()
        yield host, receivers
    finally:
        for r in receivers:
            r.host.close()
        host.close()


@pytest.mark.alone
@pytest.mark.feature("graceful restart of ribtide (RFC 4724, RFC 8538)")
@pytest.mark.peers("bird", "frr", "gobgp")
@pytest.mark.parametrize("suppress", [False, True], ids=["", "suppressed"])
def test_killed_under_a_full_table(world, suppress):
    host, receivers = world
    prefixes = [wire(text) for text in all_prefixes(ROUTES)]
    everything, gone = set(prefixes), set(prefixes[50::GONE_EVERY])
    left = everything - gone
    first, again = messages(prefixes), messages(prefixes, gone)
    #: A second for each 5,000 routes is far more than this takes.
    timeout = 30 + ROUTES / 5_000
    times = {}

    def note(what):
        times[what] = round(time.monotonic() - since, 2)

    def everywhere(what, count):
        """Waits until each receiver, and the kernel, has so many of the sender's routes."""
        wanted = {r.kind: r.count for r in receivers} | {"kernel": lambda: installed(host)}
        seen = {}
        def there():
            for name, number in list(wanted.items()):
                seen[name] = number()
                if seen[name] == count:
                    note(f"{what}: {name}")
                    del wanted[name]
            return not wanted
        try:
            wait_for(f"{count} routes are everywhere", there, timeout, 0.5, alive=[router.process])
        except AssertionError as error:
            raise AssertionError(f"routes: {seen}") from error

    since = time.monotonic()
    router = Ribtide(host, config(receivers, suppress))
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(120, forwarding=True))
    speaker.send(first)
    everywhere("all routes", len(everything))
    wait_for("initial routes are over", lambda: (host.folder / "ribtide.run").exists(), timeout)
    observers = {r.kind: Observer(r.host) for r in receivers}

    def see(wanted):
        for kind, observer in observers.items():
            assert observer.error is None, (kind, observer.error)
            if len(observer.table) - len(wanted) not in (2, 3):
                return False
        return True

    wait_for("the observers have all", lambda: see(everything), timeout)
    for r in receivers:
        session = router.session(r.four)
        assert session["retains_ours_seconds"] == 120, r.kind
        assert host.gateways(r.network) == {r.four}, r.kind
    traffic = Traffic(host, receivers, addresses(left, gone))
    time.sleep(3)
    kernel = Deletions(host)
    for observer in observers.values():
        observer.mark()

    # It is killed, and starts again.
    router.process.kill()
    since, loaded = time.monotonic(), dict(times)
    times.clear()
    time.sleep(1)
    router.start()
    note("the router answers")
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(120, forwarding=True))
    note("the sender's session")
    sending = threading.Thread(target=speaker.send, args=(again,))
    sending.start()
    waiting = {r.four: r.kind for r in receivers}

    def sessions():
        for four in [four for four in waiting if router.established(four)]:
            note(f"session: {waiting.pop(four)}")
        return not waiting

    wait_for("the receivers are back", sessions, 60, alive=[router.process])
    sending.join()
    note("the sender has sent End-of-RIB")
    wait_for("the restart is over", lambda: router.process.logged("the restart is over"), timeout, alive=[router.process])
    note("the restart is over")
    everywhere("swept", len(left))
    wait_for("the observers have what is left", lambda: see(left), timeout)
    note("swept: behind the receivers")
    assert not router.process.logged("the restart is over")[0].count("without_end_of_rib=1")
    # Nothing comes late.
    time.sleep(5)
    assert see(left)
    sent = traffic.end()
    kernel.stop()
    strays = {}
    for kind, observer in observers.items():
        observer.stop()
        own = {wire(r.network) for r in receivers}
        assert observer.table - own == left, kind
        strays[kind] = len(observer.withdrawn.keys() - gone), sum(observer.announced.values())
        assert set(observer.withdrawn) == gone, (kind, strays[kind])
    assert set(kernel.deleted) == gone, len(kernel.deleted)
    print(json.dumps({"routes": ROUTES, "gone": len(gone), "suppressed": suppress, "packets sent, of which 0 were lost": sent,
                      "sent again behind the receivers": {kind: again for kind, (_, again) in strays.items()},
                      "kernel messages": dict(kernel.counts), "seconds after the first start": loaded, "seconds after the kill": times}, indent=1))
