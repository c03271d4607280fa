"""Maximum prefixes beside BIRD, FRR and GoBGP: the NOTIFICATION, how long the session stays
down, and what a neighbour that sends far too much costs."""

import json
import os
import re
import time

import pytest
from harness import FEED_ASN, Bird, Host, Ribtide, binary, blast, wait_for
from harness.peers import LEFT, RIGHT, bird, ribtide, start, wait_count

MAX = 1000
#: Seconds.
IDLE = 8
#: What the neighbour with action = "discard" sends. 2,000,000 by hand.
MANY = int(os.environ.get("MAX_PREFIXES_ROUTES", 200_000))
#: Memory that MANY routes may need beyond 1,000: full queues, and caches of a fixed size.
SLACK = 12 << 20


def last_error(kind, other):
    """The last error of the IPv4 session as the neighbour shows it."""
    if kind == "bird":
        return re.search(r"Last error: +(.*)", other.query("show protocols all four"))[1]
    if kind == "frr":
        return json.loads(other.query(f"show bgp neighbors {LEFT.four} json", "bgpd"))[LEFT.four]["lastNotificationReason"]
    return "\n".join(other.process.logged("notification")[-1:])


#: "Cease, Maximum Number of Prefixes Reached", in the words of each.
REACHED = {
    "bird": "Received: Maximum number of prefixes reached",
    "frr": "Cease/Maximum Number of Prefixes Reached",
    "gobgp": "maximum number of prefixes reached",
}


@pytest.mark.feature("maximum prefixes (RFC 4486)")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_restart(pair, kind):
    """A neighbour that has 2,000 prefixes for us gets a NOTIFICATION with the limit of 1,000, and stays
    down for the idle time; its IPv6 session is not concerned. Within the limit it has its session again."""
    router = Ribtide(pair.a, ribtide(LEFT, f"max-prefixes = {{ ipv4-unicast = {MAX}, idle-time = {IDLE} }}"))
    other = start(kind, pair.b, RIGHT)
    wait_for("both sessions", lambda: router.established(RIGHT.four) and router.established(RIGHT.six), 60)
    flaps = router.neighbor(RIGHT.six)["flaps"]
    few = blast(pair.b, MAX, 0)
    wait_count(router, MAX)
    few.stop()
    wait_count(router, 0)
    much = blast(pair.b, 2 * MAX, 500)
    wait_for("the limit ended the session", lambda: router.neighbor(RIGHT.four)["state"] == "Idle (maximum prefixes)", 60, 0.1)
    begin = time.monotonic()
    neighbor = router.neighbor(RIGHT.four)
    assert f"maximum number of prefixes reached ({MAX} of ipv4-unicast)" in neighbor["last_down"], neighbor
    [limit] = neighbor["max_prefixes"]
    assert (limit["max"], limit["exceeded"], limit["action"]) == (MAX, 1, "restart") and "count" not in limit
    assert 0 < neighbor["idle_seconds_left"] <= IDLE
    wait_for("the neighbour shows the NOTIFICATION", lambda: REACHED[kind].lower() in last_error(kind, other).lower(), 10)
    wait_count(router, 500)
    # Its attempts to connect are refused.
    while time.monotonic() < begin + IDLE - 2:
        assert router.neighbor(RIGHT.four)["state"] == "Idle (maximum prefixes)"
        time.sleep(0.5)
    assert router.established(RIGHT.six) and router.neighbor(RIGHT.six)["flaps"] == flaps, router.neighbor(RIGHT.six)
    near, over = (router.process.logged(text, f"neighbor={RIGHT.four}", f"max={MAX}") for text in
                  ("comes near its maximum of prefixes", "exceeds its maximum of prefixes"))
    assert len(near) >= 1 and len(over) >= 1 and "action=restart" in over[0]
    much.stop()
    blast(pair.b, MAX - 100, 0)
    wait_for("the session is back", lambda: router.established(RIGHT.four), 60)
    wait_count(router, MAX - 100)
    [limit] = router.neighbor(RIGHT.four)["max_prefixes"]
    assert limit["count"] == MAX - 100
    labels = f'neighbor="{RIGHT.four}",group="link",direction="received",family="ipv4"'
    metrics = router.call("GET", "/metrics")
    assert f"ribtide_bgp_neighbor_max_prefixes{{{labels}}} {MAX}\n" in metrics
    assert f"ribtide_bgp_neighbor_max_prefixes_used{{{labels}}} {MAX - 100}\n" in metrics
    assert f"ribtide_bgp_neighbor_max_prefixes_exceeded_total{{{labels}}} {limit['exceeded']}\n" in metrics


@pytest.mark.feature("maximum prefixes (RFC 4486)")
@pytest.mark.peers("bird")
def test_restart_without_idle_time(pair):
    """Only `ribtide clear bgp neighbor` brings the session back."""
    router = Ribtide(pair.a, ribtide(LEFT, f"max-prefixes = {{ ipv4-unicast = {MAX}, idle-time = 0 }}"))
    Bird(pair.b, bird(RIGHT))
    much = blast(pair.b, 2 * MAX, 0)
    held = lambda: router.neighbor(RIGHT.four)["state"] == "Idle (maximum prefixes)"
    wait_for("the limit ended the session", held, 60, 0.1)
    assert f"until `ribtide clear bgp neighbor {RIGHT.four}`" in router.text("show", "bgp", "neighbor", RIGHT.four)
    much.stop()
    time.sleep(3)
    assert held() and "idle_seconds_left" not in router.neighbor(RIGHT.four)
    router.text("clear", "bgp", "neighbor", RIGHT.four)
    wait_for("the session is back", lambda: router.established(RIGHT.four), 30)


@pytest.mark.feature("maximum prefixes to the peer")
@pytest.mark.peers("bird")
def test_sent(pair):
    """BIRD never has more than it may be sent: its session ends before, with our reason."""
    router = Ribtide(pair.a, ribtide(LEFT, f"max-prefixes-out = {{ ipv4-unicast = {MAX}, idle-time = 4 }}"))
    other = Bird(pair.b, bird(RIGHT))
    wait_for("both sessions", lambda: router.established(RIGHT.four) and router.established(RIGHT.six), 60)
    few = blast(pair.a, MAX, 0)
    wait_count(other, MAX)
    few.stop()
    wait_count(other, 0)
    much = blast(pair.a, 2 * MAX, 500)
    wait_for("the limit ended the session", lambda: router.neighbor(RIGHT.four)["state"] == "Idle (maximum prefixes out)", 60, 0.1)
    assert "Administrative reset" in last_error("bird", other), last_error("bird", other)
    assert f"more than {MAX} ipv4-unicast prefixes to send" in router.neighbor(RIGHT.four)["last_down"]
    assert router.process.logged("would be sent more than its maximum of prefixes", f"neighbor={RIGHT.four}")
    wait_count(other, 500)
    much.stop()
    blast(pair.a, MAX - 100, 0)
    wait_for("the session is back", lambda: router.established(RIGHT.four), 60)
    wait_count(other, MAX - 100)


def memory(process, what):
    with open(f"/proc/{process.popen.pid}/status") as status:
        return int(re.search(rf"{what}:\s+(\d+) kB", status.read())[1]) << 10


def discarding(host, many):
    """A router beside which one neighbour may have 1,000 prefixes and sends `many`, while another
    has a table; its peak memory."""
    sender, steady = Host.FEEDS
    name = f"ribtide{many}"
    router = Ribtide(host, f"""
[router]
asn = 65001
router-id = "10.0.255.254"
[bgp]
listen = ["{Host.FEED_SIDE}:179"]
shards = 2
update-threads = 1
[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbor = [
    {{ address = "{sender}", max-prefixes = {{ ipv4-unicast = {MAX}, action = "discard" }} }},
    {{ address = "{steady}" }},
]
""", name)

    def feed(source, prefixes, seed):
        return host.feeds.start(f"blast-{source}-{prefixes}", binary(), "blast", "--ipv4", prefixes, "--seed", seed,
                                "--to", f"{Host.FEED_SIDE}:179", "--from", source, "--asn", FEED_ASN, "--wait", 30, "--quiet",
                                "--router-id", source)

    feeds = [feed(steady, 5000, 3)]
    wait_count(router, 5000)
    feeds.append(feed(sender, many, 4))
    session = lambda: router.session(sender) or {"counters": {"announced": 0, "beyond_max": 0}}
    read = lambda: session()["counters"]["announced"] + session()["counters"]["beyond_max"] >= many
    wait_for(f"{many} prefixes are read", read, 600, alive=[router.process])
    wait_for("the limit", lambda: session()["accepted"]["ipv4"] == MAX, 60)
    assert session()["counters"]["beyond_max"] == many - MAX
    assert router.session(steady)["accepted"]["ipv4"] == 5000
    assert router.neighbor(sender)["max_prefixes"][0]["count"] == MAX
    assert router.neighbor(sender)["flaps"] == router.neighbor(steady)["flaps"] == 0
    peak = memory(router.process, "VmHWM")
    # The session is as usable as another: what goes makes room for what comes again.
    feeds[1].stop()
    wait_for("its routes are gone", lambda: not router.session(sender), 60)
    wait_count(router, 5000)
    assert router.stop() == 0
    [process.stop() for process in feeds]
    return peak


def test_discard(host):
    few, many = discarding(host, MAX), discarding(host, MANY)
    print(f"peak memory: {few / 2**20:.1f} MiB with {MAX} prefixes, {many / 2**20:.1f} MiB with {MANY}")
    assert many <= few + SLACK, (few, many)
