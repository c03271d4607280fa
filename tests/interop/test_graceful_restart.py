"""Graceful restart of neighbours (RFC 4724, RFC 8538): which routes stay in use, and until when."""

import struct
import time

import pytest
from harness import FEED_ASN, Bird, Frr, Gobgp, Host, Ribtide, wait_for
from harness.netlink import Messages
from harness.peers import LEFT, RIGHT, bird, configured, frr, gobgp, ribtide, wait_count
from harness.speaker import END_OF_RIB, NOTIFICATION, UPDATE, Speaker, message, raw_update, prefixes, update

FEED, OBSERVER = Host.FEEDS[:2]
#: Seconds in which a killed neighbour must be back.
RESTART = 90


def router(host, more=""):
    """The observer among the feeds gets all routes."""
    return Ribtide(host, ribtide(LEFT).replace('export = ["reject"]', 'export = ["accept"]') + more)


def capability(time=RESTART, restarting=False, notification=False, forwarding=None):
    """The graceful restart capability; `forwarding`: F of IPv4, None for a helper without families."""
    head = struct.pack("!H", restarting << 15 | notification << 14 | time)
    families = b"" if forwarding is None else bytes([0, 1, 1, forwarding << 7])
    return bytes([64, len(head + families)]) + head + families


def routes(n, first=0):
    return update([f"203.0.{first + at}.0/24" for at in range(n)], [FEED_ASN], FEED)


def stale(ours, address=FEED):
    return ours.neighbor(address).get("stale")


def withdrawn(observer, within=1.0):
    """The withdrawn IPv4 prefixes of each UPDATE that the observer gets within this time."""
    found, end = [], time.monotonic() + within
    while (left := end - time.monotonic()) > 0:
        try:
            kind, body = observer.read(left)
        except TimeoutError:
            break
        if kind == UPDATE:
            size = struct.unpack("!H", body[:2])[0]
            found.extend([body[2:2 + size]] if size else [])
    return found


def test_helper_capability(host):
    """Without families: we keep the neighbour's routes, and it is not to keep ours. N is set."""
    ours = router(host)
    speaker = Speaker(host, FEED, FEED_ASN)
    assert bytes([64, 2, 0x40, 0]) in speaker.open
    plain = ours.config.read_text()
    ours.config.write_text(plain.replace("[bgp]\n", '[bgp]\ngraceful-restart = { mode = "off" }\n'))
    assert "reset" in ours.text("reload")
    speaker.close()
    assert bytes([64, 2, 0x40, 0]) not in Speaker(host, FEED, FEED_ASN).open


def test_loss_and_return(host):
    """All routes stay; what the new session announces or withdraws counts at once, and the rest goes at
    End-of-RIB. The observer sees nothing but the differences."""
    ours = router(host)
    observer = Speaker(host, OBSERVER, FEED_ASN)
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(forwarding=False))
    speaker.send(routes(5) + END_OF_RIB)
    wait_count(ours, 5)
    withdrawn(observer)
    speaker.close()
    wait_for("the session is lost", lambda: not ours.established(FEED), 20)
    found = stale(ours)
    assert found["paths"] == {"ipv4": 5, "ipv6": 0} and found["restart_seconds_left"] <= RESTART, found
    assert ours.count() == 5 and all(entry["paths"][0]["stale"] for entry in ours.show("route"))
    assert "(stale)" in ours.text("show", "route") and "stale (its neighbour restarts)" in ours.text("explain", "203.0.0.0/24")
    assert "stale paths in use 5 IPv4" in ours.text("show", "bgp", "neighbor", FEED)
    labels = f'neighbor="{FEED}",group="feeds"'
    assert f'ribtide_bgp_neighbor_stale{{{labels},family="ipv4"}} 5\n' in ours.call("GET", "/metrics")
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(restarting=True, forwarding=True))
    wait_for("the session is back", lambda: ours.established(FEED), 20)
    assert stale(ours)["paths"]["ipv4"] == 5 and "restart_seconds_left" not in stale(ours)
    assert withdrawn(observer) == []
    speaker.send(routes(2) + raw_update(prefixes(["203.0.2.0/24"])))
    wait_for("one is withdrawn", lambda: (ours.count(), stale(ours)["paths"]["ipv4"]) == (4, 2), 20)
    assert withdrawn(observer) == [prefixes(["203.0.2.0/24"])]
    speaker.send(END_OF_RIB)
    wait_for("the stale ones are gone", lambda: (ours.count(), stale(ours)) == (2, None), 20)
    assert sorted(b"".join(withdrawn(observer))) == sorted(prefixes(["203.0.3.0/24", "203.0.4.0/24"]))


@pytest.mark.parametrize("forwarding", [None, False])
def test_forwarding_was_not_kept(host, forwarding):
    """A new session without the family, or without F, ends it at once."""
    ours = router(host)
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(forwarding=True))
    speaker.send(routes(5))
    wait_count(ours, 5)
    speaker.close()
    wait_for("the session is lost", lambda: stale(ours), 20)
    Speaker(host, FEED, FEED_ASN, more=capability(forwarding=forwarding))
    wait_count(ours, 0, 20)
    assert stale(ours) is None


@pytest.mark.parametrize("limit", ["restart time", "stale-time", "stale-time of a session"])
def test_time_is_over(host, limit):
    stale_time = 360 if limit == "restart time" else 3
    ours = router(host)
    text = ours.config.read_text()
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(3 if stale_time == 360 else 60, forwarding=True))
    speaker.send(routes(5))
    wait_count(ours, 5)
    # A reload does not end the session, and counts at once.
    ours.config.write_text(text.replace("[bgp]\n", f"[bgp]\ngraceful-restart = {{ stale-time = {stale_time} }}\n"))
    assert "reset" not in ours.text("reload")
    speaker.close()
    begin = time.monotonic()
    wait_for("the session is lost", lambda: stale(ours), 20, 0.05)
    if limit.endswith("session"):
        Speaker(host, FEED, FEED_ASN, more=capability(60, forwarding=True)).send(routes(1))
    left = 1 if limit.endswith("session") else 0
    wait_for("they are removed", lambda: ours.count() == left, 20, 0.05)
    assert 2 < time.monotonic() - begin < 8
    assert ours.process.logged("stale routes are removed", FEED)
    assert ours.neighbor(FEED)["stale_expired"] == 1 and stale(ours) is None


@pytest.mark.parametrize("body, kept", [
    (b"\6\4", False), (b"\6\2", False), (b"N\6\4", True), (b"N\3\1", True), (b"N\6\x09\6\2", False)])
def test_notification(host, body, kept):
    """It ends gracefully only when both have N (RFC 8538), and never as a Hard Reset."""
    ours = router(host)
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(notification=body[:1] == b"N", forwarding=True))
    speaker.send(routes(5))
    wait_count(ours, 5)
    speaker.send(message(NOTIFICATION, body.removeprefix(b"N")))
    wait_for("the session is over", lambda: not ours.established(FEED), 20)
    if kept:
        time.sleep(0.5)
        assert ours.count() == 5 and stale(ours)["paths"]["ipv4"] == 5
    else:
        wait_count(ours, 0, 20)


def test_our_own_ends_are_hard(host):
    """With N, clear and shutdown are Hard Resets with the reason inside, and nothing is retained."""
    ours = router(host)

    def ends(notification, action):
        speaker = Speaker(host, FEED, FEED_ASN, more=capability(notification=notification, forwarding=True))
        speaker.send(routes(5))
        wait_count(ours, 5)
        action()
        while (got := speaker.read()) and got[0] != NOTIFICATION:
            pass
        wait_count(ours, 0, 20)
        assert stale(ours) is None
        return got[1]

    clear = lambda: ours.text("clear", "bgp", "neighbor", FEED)  # noqa: E731
    assert ends(False, clear)[:2] == b"\6\4"
    assert ends(True, clear)[:4] == b"\6\x09\6\4"
    # While the neighbour restarts, a clear ends that.
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(forwarding=True))
    speaker.send(routes(5))
    wait_count(ours, 5)
    speaker.close()
    wait_for("the session is lost", lambda: stale(ours), 20)
    clear()
    wait_count(ours, 0, 20)
    # So does another import policy.
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(forwarding=True))
    speaker.send(routes(5))
    wait_count(ours, 5)
    speaker.close()
    wait_for("the session is lost", lambda: stale(ours), 20)
    ours.config.write_text(ours.config.read_text().replace('import = ["accept"]', 'import = ["reject"]', 1))
    ours.text("reload")
    wait_count(ours, 0, 20)


def test_another_connection(host):
    """The neighbour restarted, and the end of its old connection never came (RFC 4724 section 5)."""
    ours = router(host)
    first = Speaker(host, FEED, FEED_ASN, more=capability(forwarding=True))
    first.send(routes(5))
    wait_count(ours, 5)
    time.sleep(6)
    second = Speaker(host, FEED, FEED_ASN, more=capability(restarting=True, forwarding=True))
    assert ours.count() == 5 and stale(ours)["paths"]["ipv4"] == 5
    assert "it opened another connection" in ours.neighbor(FEED)["last_down"]
    second.send(routes(3) + END_OF_RIB)
    wait_for("its routes are those of the new session", lambda: (ours.count(), stale(ours)) == (3, None), 20)
    first.close()
    time.sleep(0.5)
    assert ours.established(FEED) and ours.neighbor(FEED)["flaps"] == 1


def test_consecutive_restarts_and_max_prefixes(host):
    """The routes of two lost sessions stay (RFC 8538 section 4.1), and a limit counts those of the present one."""
    ours = Ribtide(host, ribtide(LEFT).replace(
        "passive = true\n", 'passive = true\nmax-prefixes = { ipv4-unicast = 5, action = "discard" }\n'))
    for session, (sent, first) in enumerate([(5, 0), (2, 0)]):
        speaker = Speaker(host, FEED, FEED_ASN, more=capability(restarting=session > 0, forwarding=True))
        speaker.send(routes(sent, first))
        wait_for("they came", lambda: ours.neighbor(FEED)["session"]["accepted"]["ipv4"] == sent, 20)
        speaker.close()
        wait_for("the session is lost", lambda: not ours.established(FEED), 20)
    wait_for("those of both sessions stay", lambda: (ours.count(), stale(ours)["paths"]["ipv4"]) == (5, 5), 20)
    assert stale(ours)["sessions"] == 2
    assert "They are of 2 sessions" in ours.text("show", "bgp", "neighbor", FEED)
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(restarting=True, forwarding=True))
    # Six others: the limit permits five of them, beside the five stale ones.
    speaker.send(routes(6, 100))
    wait_for("the limit counts", lambda: (ours.count(), stale(ours)["paths"]["ipv4"]) == (10, 5), 20)
    # Stale ones of both sessions beyond the limit are refused, and so withdrawn.
    speaker.send(routes(1) + routes(1, 4))
    wait_for("refused ones are gone", lambda: (ours.count(), stale(ours)["paths"]["ipv4"]) == (8, 3), 20)
    speaker.send(END_OF_RIB)
    wait_for("the rest is gone", lambda: (ours.count(), stale(ours)) == (5, None), 20)
    assert ours.neighbor(FEED)["session"]["accepted"]["ipv4"] == 5


def test_stale_time_of_each_session(host):
    """After consecutive restarts `stale-time` counts from the loss of the session that announced a route; the second restart
    begins the restart time again for all; and an end that is not graceful removes the routes of both."""
    ours = router(host)
    text = ours.config.read_text()
    ours.config.write_text(text.replace("[bgp]\n", "[bgp]\ngraceful-restart = { stale-time = 8 }\n"))
    ours.text("reload")
    caps = capability(5, restarting=True, forwarding=True)
    speaker = Speaker(host, FEED, FEED_ASN, more=caps)
    speaker.send(routes(5))
    wait_count(ours, 5)
    speaker.close()
    wait_for("the first loss", lambda: stale(ours), 20, 0.05)
    first = time.monotonic()
    time.sleep(3)
    speaker = Speaker(host, FEED, FEED_ASN, more=caps)
    speaker.send(routes(2))
    wait_for("two are fresh", lambda: stale(ours)["paths"]["ipv4"] == 3, 20, 0.05)
    time.sleep(1)
    speaker.close()
    wait_for("the second loss", lambda: stale(ours)["sessions"] == 2, 20, 0.05)
    second = time.monotonic()
    assert stale(ours)["restart_seconds_left"] >= 4 and stale(ours)["stale_seconds_left"] <= 5
    wait_for("those of the first are over", lambda: ours.count() == 2, 20, 0.05)
    assert time.monotonic() - first > 7
    wait_for("the restart time is over", lambda: (ours.count(), stale(ours)) == (0, None), 20, 0.05)
    assert time.monotonic() - second > 4.5
    ours.text("clear", "bgp", "neighbor", FEED)
    for sent in (5, 2):
        speaker = Speaker(host, FEED, FEED_ASN, more=caps)
        speaker.send(routes(sent))
        wait_for("they came", lambda: ours.neighbor(FEED)["session"]["accepted"]["ipv4"] == sent, 20, 0.05)
        if sent == 5:
            speaker.close()
            wait_for("lost", lambda: stale(ours), 20, 0.05)
    assert stale(ours)["paths"]["ipv4"] == 3
    ours.text("clear", "bgp", "neighbor", FEED)
    wait_for("all are gone", lambda: (ours.count(), stale(ours)) == (0, None), 20)


FOUR = [f"198.51.{n}.0/24" for n in range(6)]
SIX = [f"2001:db8:{n}::/48" for n in range(6)]


def other(kind, host, four, six, recovers=False):
    """BIRD with graceful restart that originates these prefixes, or the configuration of such an FRR."""
    if kind == "bird":
        statics = "".join(
            f"protocol static {{ {family}; {' '.join(f'route {prefix} blackhole;' for prefix in of)} }}\n"
            for family, of in (("ipv4", four), ("ipv6", six)))
        restart = f"graceful restart on; graceful restart time {RESTART};"
        return Bird(host, bird(RIGHT).replace("enable extended", f"{restart} enable extended") + statics, recovers)
    networks = [("ipv4", "".join(f"  network {prefix}\n" for prefix in four)), ("ipv6", "".join(f"  network {p}\n" for p in six))]
    text = frr(RIGHT).replace(f" bgp router-id {RIGHT.four}\n", f" bgp router-id {RIGHT.four}\n bgp graceful-restart\n"
                              f" bgp graceful-restart preserve-fw-state\n bgp graceful-restart restart-time {RESTART}\n")
    for family, lines in networks:
        text = text.replace(f" address-family {family} unicast\n", f" address-family {family} unicast\n{lines}")
    return text


@pytest.mark.long
@pytest.mark.feature("graceful restart of the peer (RFC 4724, RFC 8538)")
@pytest.mark.parametrize("kind", ["bird", "frr"])
def test_killed(pair, kind):
    """Its routes stay while it starts again, none is withdrawn, and what it has no more goes at the end; in the
    kernel, too."""
    ours = router(pair.a, "\n[fib]\nsuppress-fib-pending = true\n[fib.kernel]\n")
    observer = Speaker(pair.a, OBSERVER, FEED_ASN)
    first = other(kind, pair.b, FOUR, SIX)
    if kind == "frr":
        first = Frr(pair.b, bgpd=first)
    neighbors = (RIGHT.four, RIGHT.six)
    wait_count(ours, len(FOUR + SIX), 60)
    restarts = [ours.neighbor(n)["session"]["graceful_restart"] for n in neighbors]
    assert [r["families"] for r in restarts] == [["ipv4-unicast"], ["ipv6-unicast"]], restarts
    assert all(r["seconds"] == RESTART for r in restarts)
    withdrawn(observer, 3)
    kernel = Messages(pair.a)
    first.kill()
    wait_for("both sessions are lost", lambda: not any(ours.established(n) for n in neighbors), 20)
    assert [stale(ours, n)["paths"] for n in neighbors] == [{"ipv4": 6, "ipv6": 0}, {"ipv4": 0, "ipv6": 6}]
    assert ours.count() == 12
    if kind == "frr":
        first.texts["bgpd"] = other(kind, pair.b, FOUR[1:], SIX[1:])
        first.start("bgpd")
    else:
        other(kind, pair.b, FOUR[1:], SIX[1:], recovers=True)
    seen = []

    def done():
        seen.extend(withdrawn(observer, 0.2))
        return [stale(ours, n) for n in neighbors] == [None, None]

    wait_for("the stale routes are over", done, 120)
    assert all(ours.established(n) for n in neighbors)
    wait_count(ours, 10, 20)
    seen.extend(withdrawn(observer, 2))
    assert seen == [prefixes(FOUR[:1])]
    counts = kernel.stop()
    assert counts.get("deleted route") == 2 and not counts.get("new route"), (counts, kernel.prefixes)
    assert ours.neighbor(RIGHT.four)["stale_expired"] == 0


@pytest.mark.feature("graceful restart of the peer (RFC 4724, RFC 8538)")
@pytest.mark.peers("gobgp")
def test_killed_without_recovery(pair):
    """GoBGP's routes stay while it is away. It starts as if for the first time, so its new session has no F."""
    ours = router(pair.a)
    restart = f"""  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = {RESTART}
    notification-enabled = true
"""
    text = gobgp(RIGHT).replace("  [neighbors.timers.config]", restart + "  [neighbors.timers.config]")
    text = text.replace("      afi-safi-name = ", "      enabled = true\n      afi-safi-name = ").replace(
        "-unicast\"\n", "-unicast\"\n    [neighbors.afi-safis.mp-graceful-restart.config]\n      enabled = true\n")
    first = Gobgp(pair.b, text)
    first.query("global", "rib", "add", FOUR[0])
    wait_count(ours, 1, 60)
    offered = ours.neighbor(RIGHT.four)["session"]["graceful_restart"]
    assert offered == {"families": ["ipv4-unicast"], "seconds": RESTART, "notification": True}
    first.kill()
    wait_for("the session is lost", lambda: not ours.established(RIGHT.four), 20)
    assert stale(ours, RIGHT.four)["paths"]["ipv4"] == 1 and ours.count() == 1
    Gobgp(pair.b, text)
    wait_for("the session is back", lambda: ours.established(RIGHT.four), 60)
    wait_count(ours, 0, 20)
    assert stale(ours, RIGHT.four) is None


@pytest.mark.feature("graceful restart of the peer (RFC 4724, RFC 8538)")
@pytest.mark.peers("exabgp")
def test_killed_exabgp(pair):
    """ExaBGP says that forwarding lasts: its routes stay while it is away, and one that it has no more goes at End-of-RIB."""
    ours = router(pair.a)
    observer = Speaker(pair.a, OBSERVER, FEED_ASN)
    setting = f"capability {{ graceful-restart {RESTART}; }}\n"
    first = configured("exabgp", pair.b, RIGHT, setting, {prefix: [] for prefix in FOUR})
    wait_count(ours, len(FOUR), 60)
    assert ours.neighbor(RIGHT.four)["session"]["graceful_restart"] == {
        "families": ["ipv4-unicast"], "seconds": RESTART, "notification": False}
    withdrawn(observer)
    first.kill()
    wait_for("the session is lost", lambda: not ours.established(RIGHT.four), 20)
    assert stale(ours, RIGHT.four)["paths"]["ipv4"] == len(FOUR) == ours.count()
    first.received.unlink()
    configured("exabgp", pair.b, RIGHT, setting, {prefix: [] for prefix in FOUR[1:]})
    seen = []

    def over():
        seen.extend(withdrawn(observer, 0.2))
        return ours.established(RIGHT.four) and stale(ours, RIGHT.four) is None

    wait_for("the stale routes are over", over, 60)
    seen.extend(withdrawn(observer, 1))
    assert ours.count() == len(FOUR) - 1 and seen == [prefixes(FOUR[:1])]
    assert ours.neighbor(RIGHT.four)["stale_expired"] == 0
