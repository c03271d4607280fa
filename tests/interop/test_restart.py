"""ribtide restarts (RFC 4724 section 4.1): killed or stopped under load, beside BIRD, FRR and GoBGP. No packet is lost, no
neighbour withdraws anything, and what is gone afterwards leaves when all have sent End-of-RIB, not before."""

import re
import struct
import sys
import time

import pytest
from harness import FEED_ASN, Bird, Frr, Gobgp, Host, Pair, Ribtide, wait_for
from harness.peers import LEFT, RIGHT, bird, frr, gobgp, ribtide, start, wait_count
from harness.speaker import END_OF_RIB, NOTIFICATION, UPDATE, Speaker, update
from test_graceful_restart import capability, withdrawn

FEED, OTHER = Host.FEEDS
#: Seconds in which ribtide must be back, and for which it waits for its neighbours.
RESTART, DEFERRAL = 120, 100
#: The AS behind the neighbour.
BEHIND = 64999
#: A host behind the feed, and the prefix that goes over a restart.
TARGET, GONE = "20.0.0.1", "20.0.1.0/24"
ALL = [f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24" for n in range(4000)]


def config(on_stop="keep", feeds=(FEED,)):
    text = ribtide(LEFT).replace('", "'.join(Host.FEEDS), '", "'.join(feeds))
    restart = f'graceful-restart = {{ mode = "restart", restart-time = {RESTART}, selection-deferral-time = {DEFERRAL} }}'
    return text.replace("[bgp]\n", f"[bgp]\n{restart}\n") + f'\n[fib]\non-stop = "{on_stop}"\n[fib.kernel]\n'


def other(kind, host):
    """A neighbour that retains ribtide's routes, and sends its own feeds all routes."""
    if kind == "bird":
        text = bird(RIGHT).replace("enable extended", "graceful restart on; enable extended")
        text = text.replace("import all; export none;", "import none; export all;")
        return Bird(host, text.replace(f"as {FEED_ASN}", f"as {BEHIND}"))
    if kind == "frr":
        text = frr(RIGHT).replace(f" bgp router-id {RIGHT.four}\n", f" bgp router-id {RIGHT.four}\n bgp graceful-restart\n")
        text = re.sub(r"  neighbor \S+ prefix-list none out\n", "", text)
        return Frr(host, bgpd=text.replace(f"remote-as {FEED_ASN}", f"remote-as {BEHIND}"))
    restart = """  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 120
"""
    text = gobgp(RIGHT).replace("  [neighbors.timers.config]", restart + "  [neighbors.timers.config]")
    # Without a hold time it takes no time to write, either, and fails.
    text = text.replace("    connect-retry = 1\n", "    connect-retry = 1\n    hold-time = 600\n")
    text = text.replace('export-policy-list = ["not-to-feeds"]\n', "").replace(f"peer-as = {FEED_ASN}", f"peer-as = {BEHIND}")
    return Gobgp(host, text.replace('-unicast"\n', '-unicast"\n    [neighbors.afi-safis.mp-graceful-restart.config]\n'
                                    "      enabled = true\n"))


def feed(host, texts=ALL, source=FEED, restarting=False, end=True):
    """A neighbour with these routes that helps ribtide, and is helped."""
    speaker = Speaker(host, source, FEED_ASN, more=capability(120, restarting, forwarding=True))
    for start in range(0, len(texts), 500):
        speaker.send(update(texts[start:start + 500], [FEED_ASN], source))
    if end:
        speaker.send(END_OF_RIB)
    return speaker


def restart_bits(speaker):
    """R, the restart time, and F of IPv4 and IPv6 in the OPEN of ribtide."""
    found = re.search(rb"\x40\x0a(..)\x00\x01\x01(.)\x00\x02\x01(.)", speaker.open, re.DOTALL)
    assert found, speaker.open.hex()
    head = struct.unpack("!H", found[1])[0]
    assert head & 0x4000, "N"
    return head >> 15, head & 0x0fff, found[2][0] >> 7, found[3][0] >> 7


def in_kernel(host):
    return host.ip("-4", "route", "show", "proto", "bgp").count("nhid")


#: Sends numbered packets, one every two milliseconds, until SIGTERM; then prints how many.
SENDER = """
import signal, socket, sys, time
on = [True]
signal.signal(signal.SIGTERM, lambda *_: on.clear())
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
while on:
    out.sendto(b"%d" % n, (sys.argv[1], 9))
    n += 1
    time.sleep(0.002)
print("sent", n)
"""
#: Notes their numbers until SIGTERM; then prints those that did not come, up to the last that came.
RECEIVER = """
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
into.bind((sys.argv[1], 9))
print("ready", flush=True)
seen = set()
try:
    while True:
        seen.add(int(into.recv(100)))
except SystemExit:
    last = max(seen, default=-1)
    print("received", last + 1, "missing", sorted(set(range(last + 1)) - seen))
"""


class Traffic:
    """Packets from the neighbour's host through ribtide's to a host behind the feed, for as long as the test likes."""

    def __init__(self, pair):
        pair.a.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        behind = pair.a.feeds
        behind.address("lo", f"{TARGET}/32")
        behind.ip("route", "add", "default", "via", Host.FEED_SIDE)
        pair.b.ip("route", "add", "20.0.0.0/24", "via", Pair.A4)
        self.receiver = behind.start("receiver", sys.executable, "-c", RECEIVER, TARGET)
        wait_for("the receiver listens", lambda: "ready" in self.receiver.log(), 20)
        self.sender = pair.b.start("sender", sys.executable, "-c", SENDER, TARGET)

    def lost(self):
        """Ends it. Returns how many packets were sent, and the numbers of those that were lost."""
        self.sender.stop()
        sent = int(re.search(r"sent (\d+)", self.sender.log())[1])
        time.sleep(0.5)
        self.receiver.stop()
        received, missing = re.search(r"received (\d+) missing \[(.*)\]", self.receiver.log(1 << 24)).groups()
        assert sent > 500
        return sent, [n for n in missing.split(", ") if n] + ["the last ones"] * (int(received) != sent)


def deferring(router):
    return router.show("bgp", "summary").get("restart")


@pytest.mark.feature("graceful restart of ribtide (RFC 4724, RFC 8538)")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_restart(pair, kind, end):
    """Everything goes on while it is away and comes back: packets, routes at the neighbour and behind it, and routes in the
    kernel. Only when the feed has sent all routes does the one leave that it has no more, everywhere."""
    router = Ribtide(pair.a, config())
    source = feed(pair.a)
    assert restart_bits(source) == (0, RESTART, 0, 0), "a first start"
    neighbor = other(kind, pair.b)
    wait_count(neighbor, len(ALL), 60)
    wait_for("all are in the kernel", lambda: in_kernel(pair.a) == len(ALL), 60)
    observer = Speaker(pair.b, Host.FEEDS[0], BEHIND, hold=600)
    # FRR waits for a second, so that more routes share a message.
    wait_for("all routes came behind it", lambda: sum(map(len, updates(observer))) > 4 * len(ALL), 60)
    session = router.session(RIGHT.four)
    assert session["retains_ours_seconds"] == RESTART and session["graceful_restart"]
    traffic = Traffic(pair)
    wait_for("initial routes are over", lambda: (pair.a.folder / "ribtide.run").exists(), 60)
    if end == "killed":
        router.process.kill()
    else:
        assert router.stop() == 0
        assert drained(source) != NOTIFICATION, "the connection just ends"
    time.sleep(1)
    assert (neighbor.count(), in_kernel(pair.a)) == (len(ALL), len(ALL))
    router.start()
    assert deferring(router)["awaited"] >= 1
    left = [text for text in ALL if text != GONE]
    source = feed(pair.a, left, end=False)
    assert restart_bits(source) == (1, RESTART, 1, 0)
    wait_for("the session is back", lambda: router.established(RIGHT.four), 60)
    wait_count(router, len(left), 60)
    # Nothing happens before the feed has sent all its routes.
    wait_for("only the feed is awaited", lambda: deferring(router)["awaited"] == 1, 60)
    time.sleep(1)
    assert "nothing is advertised until 1 more neighbour has sent all routes" in router.text("show", "bgp", "summary")
    assert "ribtide_bgp_restarting 1\n" in router.call("GET", "/metrics")
    assert router.session(RIGHT.four)["sent"]["messages"] == 0
    assert (neighbor.count(), in_kernel(pair.a)) == (len(ALL), len(ALL))
    assert withdrawn(observer, 0.5) == []
    source.send(END_OF_RIB)
    wait_for("the restart is over", lambda: deferring(router) is None, 60)
    wait_count(neighbor, len(left), 60)
    wait_for("the kernel is as the routes are", lambda: in_kernel(pair.a) == len(left), 60)
    gone = wait_for("the one route is withdrawn behind the neighbour", lambda: withdrawn(observer, 0.5), 60)
    assert gone == [bytes([24, 20, 0, 1])]
    sent, lost = traffic.lost()
    assert lost == [], f"of {sent} packets"
    assert router.process.logged("this is a restart", "forwarding_kept=ipv4") and router.process.logged("the restart is over")
    assert "ribtide_bgp_restarting 0\n" in router.call("GET", "/metrics")
    # A later session is no part of the restart, and forwarding lasted all the time.
    source.close()
    wait_for("the session is over", lambda: not router.established(FEED), 20)
    assert restart_bits(feed(pair.a, left)) == (0, RESTART, 1, 1)
    assert router.count() == len(left)


@pytest.mark.feature("graceful restart of ribtide (RFC 4724, RFC 8538)")
@pytest.mark.peers("openbgpd")
def test_restart_beside_openbgpd(pair):
    """It retains our routes while we are away, and loses the one that the feed has no more when we send End-of-RIB."""
    # OpenBGPD has no session for IPv6 here, which would be waited for.
    text = re.sub(rf".*{RIGHT.six}.*\n", "", config())
    router = Ribtide(pair.a, text)
    few = ALL[:20]
    source = feed(pair.a, few)
    neighbor = start("openbgpd", pair.b, RIGHT)
    wait_count(neighbor, len(few), 60)
    wait_for("initial routes are over", lambda: (pair.a.folder / "ribtide.run").exists(), 60)
    router.process.kill()
    wait_for("it has lost the session", lambda: not neighbor.established(LEFT.four), 20)
    assert neighbor.count() == len(few)
    router.start()
    source = feed(pair.a, [text for text in few if text != GONE], end=False)
    wait_for("the session is back", lambda: router.established(RIGHT.four), 60)
    time.sleep(1)
    assert neighbor.count() == len(few), "before our End-of-RIB"
    source.send(END_OF_RIB)
    wait_count(neighbor, len(few) - 1, 30)
    assert GONE not in neighbor.table()


def updates(observer):
    """The UPDATEs up to a pause of three seconds."""
    found = []
    while True:
        try:
            found.append(observer.read(3)[1])
        except TimeoutError:
            return found


def drained(speaker):
    """The type of the last message before the end of a connection."""
    last = None
    while (got := speaker.read(10)) is not None:
        last = got[0]
    return last


def test_stop_that_withdraws(pair):
    """With on-stop = "remove" neighbours hear of a stop that is for good, and the next start is a first one."""
    router = Ribtide(pair.a, config("remove"))
    source = feed(pair.a)
    neighbor = other("bird", pair.b)
    wait_count(neighbor, len(ALL), 60)
    wait_for("initial routes are over", lambda: (pair.a.folder / "ribtide.run").exists(), 60)
    assert router.stop() == 0
    while (got := source.read(10))[0] != NOTIFICATION:
        pass
    # Without N of the speaker, a Cease as it is; BIRD knows no N either.
    assert got[1][:2] == b"\6\2"
    wait_count(neighbor, 0, 20)
    assert in_kernel(pair.a) == 0 and not (pair.a.folder / "ribtide.run").exists()
    router.start()
    assert restart_bits(feed(pair.a)) == (0, RESTART, 0, 0)
    assert deferring(router) is None
    wait_count(neighbor, len(ALL), 60)


def test_forwarding_that_was_lost_is_not_claimed(host):
    """Without own routes in the kernel, after a reboot or a flush, F is 0 though ribtide ran before."""
    router = Ribtide(host, config().split("[bgp.group.link]")[0] + "[fib.kernel]\n")
    feed(host)
    wait_for("all are in the kernel", lambda: in_kernel(host) == len(ALL), 60)
    wait_for("initial routes are over", lambda: (host.folder / "ribtide.run").exists(), 60)
    router.process.kill()
    host.ip("route", "flush", "proto", "bgp")
    router.start()
    speaker = feed(host, ALL[:5])
    assert restart_bits(speaker) == (1, RESTART, 0, 0)
    wait_for("the kernel follows", lambda: in_kernel(host) == 5, 60)
    # Another boot of the system: nothing is left, and this is a first start.
    router.process.kill()
    host.ip("route", "flush", "proto", "bgp")
    (host.folder / "ribtide.run").write_text("another boot\n")
    router.start()
    assert restart_bits(feed(host, ALL[:5])) == (0, RESTART, 0, 0)


def test_both_restart_and_neighbours_that_do_not_help(host):
    """A neighbour that has restarted too is not awaited before routes are advertised, but before the kernel loses its routes; one
    without graceful restart is awaited, as its routes are forwarded by; one that is away ends with the timer."""
    third = "198.19.0.4"
    host.feeds.address("feed0", f"{third}/24")
    text = config(feeds=(FEED, OTHER, third)).split("[bgp.group.link]")[0]
    text = text.replace(f"selection-deferral-time = {DEFERRAL}", "selection-deferral-time = 20")
    router = Ribtide(host, text.replace('export = ["reject"]', 'export = ["accept"]') + "[fib.kernel]\n")
    first, second, plain = ALL[:10], ALL[10:20], ALL[20:30]

    def plain_feed():
        speaker = Speaker(host, third, FEED_ASN)
        speaker.send(update(plain, [FEED_ASN], third))
        return speaker

    speakers = [feed(host, first), feed(host, second, OTHER), plain_feed()]
    wait_for("all are in the kernel", lambda: in_kernel(host) == 30, 60)
    wait_for("initial routes are over", lambda: (host.folder / "ribtide.run").exists(), 60)
    router.process.kill()
    router.start()
    # It restarts as well, and waits for End-of-RIB of no neighbour that does.
    speakers = [feed(host, first, restarting=True, end=False), feed(host, second, OTHER), plain_feed()]
    wait_for("only the plain one is awaited", lambda: deferring(router)["awaited"] == 1, 15)
    assert withdrawn(speakers[1], 1) == [] and in_kernel(host) == 30
    # The plain one sends its first End-of-RIB.
    speakers[2].send(END_OF_RIB)
    wait_for("routes are advertised", lambda: deferring(router) is None, 15)
    assert in_kernel(host) == 30, "those of the first are awaited still"
    speakers[0].send(END_OF_RIB)
    wait_for("all are through", lambda: router.process.logged("the restart is over"), 20)
    assert in_kernel(host) == 30
    # The third one does not come back; its routes go when the time is over.
    router.process.kill()
    router.start()
    speakers = [feed(host, first), feed(host, second, OTHER)]
    wait_for("both are there", lambda: (deferring(router) or {}).get("awaited") == 1, 20)
    assert in_kernel(host) == 30
    wait_for("the timer is over", lambda: deferring(router) is None, 40)
    wait_for("its routes leave the kernel", lambda: in_kernel(host) == 20, 40)
    assert router.process.logged("the restart is over", "without_end_of_rib=1")


def test_killed_again_while_it_waits(host):
    """Consecutive restarts: the routes of the run before the last stay until the last has all."""
    router = Ribtide(host, config().split("[bgp.group.link]")[0] + "[fib.kernel]\n")
    feed(host)
    wait_for("all are in the kernel", lambda: in_kernel(host) == len(ALL), 60)
    wait_for("initial routes are over", lambda: (host.folder / "ribtide.run").exists(), 60)
    for _ in range(2):
        router.process.kill()
        router.start()
        speaker = feed(host, ALL[:100], end=False)
        assert restart_bits(speaker) == (1, RESTART, 1, 0)
        wait_count(router, 100, 60)
        assert in_kernel(host) == len(ALL)
    speaker.send(END_OF_RIB)
    wait_for("the rest is gone", lambda: in_kernel(host) == 100, 60)


def test_reflector_without_fib(host):
    """A router that forwards nothing itself restarts as one whose forwarding lasted; a stop says nothing to helpers."""
    text = config(feeds=(FEED, OTHER)).split("[bgp.group.link]")[0].replace('export = ["reject"]', 'export = ["accept"]')
    router = Ribtide(host, text)
    speaker, second = feed(host, ALL[:10]), feed(host, [], OTHER)
    assert restart_bits(speaker) == (0, RESTART, 0, 0)
    wait_for("initial routes are over", lambda: (host.folder / "ribtide.run").exists(), 60)
    assert router.stop() == 0
    assert drained(second) in (UPDATE, None), "no NOTIFICATION"
    router.start()
    second = feed(host, [], OTHER)
    assert restart_bits(second) == (1, RESTART, 1, 1)
    assert withdrawn(second, 1) == []
    feed(host, ALL[:10])
    wait_for("it is over", lambda: deferring(router) is None, 20)


def test_settings(host):
    """restart-time reaches the next session without a reset of this one; another mode needs a new session."""
    router = Ribtide(host, config().split("[bgp.group.link]")[0])
    speaker = feed(host, ALL[:5])
    text = router.config.read_text()
    router.config.write_text(text.replace(f"restart-time = {RESTART}", "restart-time = 77"))
    assert "reset" not in router.text("reload")
    speaker.close()
    assert restart_bits(feed(host, ALL[:5]))[1] == 77
    router.config.write_text(text.replace('mode = "restart"', 'mode = "helper"'))
    assert "reset" in router.text("reload")
    helper = Speaker(host, FEED, FEED_ASN, more=capability(120, forwarding=True))
    assert bytes([64, 2, 0x40, 0]) in helper.open
