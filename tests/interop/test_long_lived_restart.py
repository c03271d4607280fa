"""Long-lived graceful restart (RFC 9494): routes of a neighbour that is away for longer than a restart takes stay as a last
resort, and reach only neighbours that know what they are."""

import struct
import time

import pytest
from harness import FEED_ASN, Bird, Frr, Gobgp, Host, Ribtide, settled, wait_for
from harness.peers import KINDS, LEFT, RIGHT, bird, frr, gobgp, ribtide, start, wait_count
from harness.speaker import END_OF_RIB, UPDATE, Speaker, communities, prefixes, update
from test_graceful_restart import capability, stale, withdrawn

FEED, OTHER = Host.FEEDS
THIRD, FOURTH = "198.19.0.4", "198.19.0.5"
LLGR_STALE, NO_LLGR = (65535, 6), (65535, 7)
STALE_COMMUNITY = struct.pack("!HH", *LLGR_STALE)


def long_lived(seconds=None, forwarding=True):
    """The capability: of a helper, or for IPv4."""
    family = b"" if seconds is None else bytes([0, 1, 1, forwarding << 7]) + seconds.to_bytes(3, "big")
    return bytes([71, len(family)]) + family


def router(host, seconds=600, more=()):
    """Neighbours at four addresses, which get all routes."""
    host.feeds.address("feed0", f"{THIRD}/24", f"{FOURTH}/24")
    text = ribtide(LEFT).replace('", "'.join(Host.FEEDS), '", "'.join((FEED, OTHER, THIRD, FOURTH)))
    text = text.replace("[bgp]\n", f"[bgp]\ngraceful-restart = {{ long-lived-stale-time = {seconds} }}\n")
    return Ribtide(host, text.replace('export = ["reject"]', 'export = ["accept"]'))


def restarting(host, seconds, restart=1, forwarding=True, again=False):
    caps = capability(restart, restarting=again, forwarding=forwarding) + long_lived(seconds, forwarding)
    return Speaker(host, FEED, FEED_ASN, more=caps)


def routes(n, *more, first=0, path=(FEED_ASN,)):
    return update([f"203.0.{first + at}.0/24" for at in range(n)], list(path), FEED, *more)


def announced(observer, within=2.0):
    """The UPDATEs with routes that come within this time: their attributes and prefixes."""
    found = []
    while True:
        try:
            got = observer.read(within)
        except TimeoutError:
            return found
        if got is None:
            return found
        kind, body = got
        if kind == UPDATE and len(body) > 4:
            at = 2 + struct.unpack("!H", body[:2])[0]
            size = struct.unpack("!H", body[at:at + 2])[0]
            if body[at + 2 + size:]:
                found.append((body[at + 2:at + 2 + size], body[at + 2 + size:]))


def test_stale_routes_become_a_last_resort(host):
    """After the restart time: LLGR_STALE, no NO_LLGR, less preferred than any other, withdrawn from who does not know of it."""
    ours = router(host)
    plain = Speaker(host, OTHER, FEED_ASN)
    aware = Speaker(host, THIRD, FEED_ASN, more=capability() + long_lived())
    assert long_lived() in aware.open and long_lived() not in capability()
    speaker = restarting(host, 3600)
    speaker.send(routes(3) + routes(2, communities([NO_LLGR]), first=10) + END_OF_RIB)
    wait_count(ours, 5)
    assert ours.session(FEED)["long_lived_seconds"] == {"ipv4-unicast": 600}, "at most ours"
    fourth = Speaker(host, FOURTH, FEED_ASN)
    fourth.send(update(["203.0.0.0/24"], [FEED_ASN, 65010, 65011, 65012], FOURTH))
    wait_for("the longer path is there", lambda: len(ours.explain("203.0.0.0/24")) and
             ours.session(FOURTH)["accepted"]["ipv4"] == 1, 20)
    announced(plain), announced(aware)
    speaker.close()
    wait_for("they are long-lived stale", lambda: (stale(ours) or {}).get("long_lived") == ["ipv4-unicast"], 20)
    wait_count(ours, 3, 20)
    assert stale(ours)["paths"]["ipv4"] == 3 and stale(ours)["restart_seconds_left"] > 500
    assert ours.process.logged("long-lived stale", FEED)
    best = {entry["prefix"]: next(p for p in entry["paths"] if p["best"]) for entry in ours.show("route")}
    assert best["203.0.0.0/24"]["next_hop"] == FOURTH, "a path that is not stale wins, though longer"
    assert best["203.0.1.0/24"]["communities"] == ["llgr-stale"] and best["203.0.1.0/24"]["stale"]
    assert "long-lived stale" in ours.text("explain", "203.0.0.0/24")
    assert "Long-lived stale, and the last choice: ipv4-unicast" in ours.text("show", "bgp", "neighbor", FEED)
    gone = sorted(f"203.0.{n}.0/24" for n in (1, 2, 10, 11))
    assert sorted(b"".join(withdrawn(plain, 2))) == sorted(prefixes(gone))
    with_community = [nlri for attributes, nlri in announced(aware) if STALE_COMMUNITY in attributes]
    assert sorted(b"".join(with_community)) == sorted(prefixes(["203.0.1.0/24", "203.0.2.0/24"]))
    # It comes back: what it announces is as before, and the rest goes at End-of-RIB.
    speaker = restarting(host, 3600, again=True)
    speaker.send(routes(2))
    wait_for("they are taken over", lambda: stale(ours)["paths"]["ipv4"] == 1, 20)
    assert "restart_seconds_left" not in stale(ours)
    assert any(STALE_COMMUNITY not in attributes for attributes, _ in announced(plain))
    speaker.send(END_OF_RIB)
    wait_for("the rest is gone", lambda: (ours.count(), stale(ours)) == (2, None), 20)


def test_the_time_of_long_lived_routes_ends(host):
    ours = router(host, 3)
    speaker = restarting(host, 3600)
    speaker.send(routes(3) + END_OF_RIB)
    wait_count(ours, 3)
    speaker.close()
    wait_for("they are long-lived stale", lambda: (stale(ours) or {}).get("long_lived"), 20, 0.05)
    assert ours.count() == 3
    wait_count(ours, 0, 20)
    assert stale(ours) is None and ours.neighbor(FEED)["stale_expired"] == 1
    # A family of this capability alone is long-lived stale at once, and the time goes on in the next session.
    ours.text("clear", "bgp", "neighbor", FEED)
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(0) + long_lived(3600))
    speaker.send(routes(3) + END_OF_RIB)
    wait_count(ours, 3)
    speaker.close()
    wait_for("they are long-lived stale", lambda: (stale(ours) or {}).get("long_lived"), 20, 0.05)
    speaker = Speaker(host, FEED, FEED_ASN, more=capability(0) + long_lived(3600))
    speaker.send(routes(1))
    wait_count(ours, 1, 20)


@pytest.mark.parametrize("again", ["without F", "without F of the other", "without the capability", "without the family"])
def test_a_neighbour_that_has_lost_its_routes(host, again):
    ours = router(host)
    speaker = restarting(host, 3600)
    speaker.send(routes(3) + END_OF_RIB)
    wait_count(ours, 3)
    speaker.close()
    wait_for("they are long-lived stale", lambda: (stale(ours) or {}).get("long_lived"), 20)
    caps = {"without F": long_lived(3600, False), "without the capability": b"", "without the family": long_lived()}
    restart = capability(1, restarting=True, forwarding=again != "without F of the other")
    Speaker(host, FEED, FEED_ASN, more=restart + caps.get(again, long_lived(3600)))
    wait_count(ours, 0, 20)


def test_consecutive_restarts(host):
    """A session that is lost before End-of-RIB leaves long-lived stale routes where they are, and their time as it is: the
    routes of that session get what is left of it (RFC 9494 section 4.2)."""
    ours = router(host, 12)
    caps = lambda seconds: capability(seconds, restarting=True, forwarding=True) + long_lived(3600)  # noqa: E731
    speaker = Speaker(host, FEED, FEED_ASN, more=caps(1))
    speaker.send(routes(5))
    wait_count(ours, 5)
    speaker.close()
    wait_for("they are long-lived stale", lambda: (stale(ours) or {}).get("long_lived"), 20, 0.05)
    begin = time.monotonic()
    time.sleep(3)
    # Longer than the looks at them take on a loaded machine.
    speaker = Speaker(host, FEED, FEED_ASN, more=caps(4))
    speaker.send(routes(2))
    wait_for("two are fresh", lambda: stale(ours)["paths"]["ipv4"] == 3, 20, 0.05)
    speaker.close()
    wait_for("the second loss", lambda: stale(ours)["sessions"] == 2, 20, 0.05)
    marked = [entry["prefix"] for entry in ours.show("route") if "llgr-stale" in entry["paths"][0].get("communities", [])]
    assert len(marked) == 3, "those of the second session wait for the restart time first"

    def all_are_marked():
        paths = [entry["paths"][0] for entry in ours.show("route")]
        return len(paths) == 5 and all("llgr-stale" in path.get("communities", []) for path in paths)

    wait_for("all are long-lived stale", all_are_marked, 20, 0.05)
    assert stale(ours)["restart_seconds_left"] < 9
    wait_for("all are over", lambda: (ours.count(), stale(ours)) == (0, None), 20, 0.05)
    assert time.monotonic() - begin > 11


def test_settings(host):
    """Off without a time: the capability is neither sent nor obeyed, and the community of others means nothing."""
    ours = router(host, 0)
    speaker = restarting(host, 3600)
    assert long_lived() not in speaker.open
    speaker.send(routes(3, communities([LLGR_STALE])))
    plain = Speaker(host, OTHER, FEED_ASN)
    assert len(b"".join(nlri for _, nlri in announced(plain))) == 12
    speaker.close()
    wait_count(ours, 0, 20)
    text = ours.config.read_text().replace("[bgp]\ngraceful-restart = { ", '[bgp]\ngraceful-restart = { mode = "restart", ')
    ours.config.write_text(text.replace("stale-time = 0", "stale-time = 70000"))
    assert "reset" in ours.text("reload")
    # Nothing was forwarded before this run, so F is 0.
    families = b"".join(bytes([0, afi, 1, 0]) + (70000).to_bytes(3) for afi in (1, 2))
    assert bytes([71, 14]) + families in Speaker(host, FEED, FEED_ASN).open


def other(kind, host, nets):
    """A neighbour with these routes, whose restart takes three seconds, and whose routes may stay for an hour."""
    if kind == "bird":
        restart = "graceful restart on; graceful restart time 3; long lived graceful restart on; long lived stale time 3600;"
        statics = " ".join(f"route {prefix} blackhole;" for prefix in nets)
        text = bird(RIGHT).replace("enable extended", f"{restart} enable extended")
        return lambda **kw: Bird(host, text + f"protocol static {{ ipv4; {statics} }}\n", **kw)
    if kind == "frr":
        restart = (" bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n bgp graceful-restart restart-time 3\n"
                   " bgp long-lived-graceful-restart stale-time 3600\n")
        lines = "".join(f"  network {prefix}\n" for prefix in nets)
        text = frr(RIGHT).replace(f" bgp router-id {RIGHT.four}\n", f" bgp router-id {RIGHT.four}\n{restart}")
        return lambda: Frr(host, bgpd=text.replace(" address-family ipv4 unicast\n", f" address-family ipv4 unicast\n{lines}"))
    restart = """  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 3
    long-lived-enabled = true
"""
    family = """
    [neighbors.afi-safis.mp-graceful-restart.config]
      enabled = true
    [neighbors.afi-safis.long-lived-graceful-restart.config]
      enabled = true
      restart-time = 3600
"""
    text = gobgp(RIGHT).replace("  [neighbors.timers.config]", restart + "  [neighbors.timers.config]")
    text = text.replace('-unicast"\n', f'-unicast"{family}')

    def start():
        speaker = Gobgp(host, text)
        for prefix in nets:
            speaker.query("global", "rib", "add", prefix)
        return speaker
    return start


@pytest.mark.feature("long-lived graceful restart of the peer (RFC 9494)")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_killed_for_longer(pair, kind):
    """Its routes outlast its restart time, as the last choice."""
    text = ribtide(LEFT).replace("[bgp]\n", "[bgp]\ngraceful-restart = { long-lived-stale-time = 600 }\n")
    ours = Ribtide(pair.a, text.replace('export = ["reject"]', 'export = ["accept"]'))
    plain = Speaker(pair.a, FEED, FEED_ASN)
    aware = Speaker(pair.a, OTHER, FEED_ASN, more=capability() + long_lived())
    nets = [f"198.51.{n}.0/24" for n in range(5)]
    start = other(kind, pair.b, nets)
    first = start()
    wait_count(ours, len(nets), 60)
    assert ours.session(RIGHT.four)["long_lived_seconds"] == {"ipv4-unicast": 600}
    announced(plain), announced(aware)
    first.kill()
    wait_for("they are long-lived stale", lambda: (stale(ours, RIGHT.four) or {}).get("long_lived") == ["ipv4-unicast"], 30)
    assert ours.count() == len(nets)
    assert sorted(b"".join(withdrawn(plain, 2))) == sorted(prefixes(nets))
    with_community = [nlri for attributes, nlri in announced(aware) if STALE_COMMUNITY in attributes]
    assert sorted(b"".join(with_community)) == sorted(prefixes(nets))


@pytest.mark.feature("long-lived graceful restart of the peer (RFC 9494)")
@pytest.mark.parametrize("kind", ["bird", "gobgp"])
def test_each_family_has_its_time(pair, kind):
    """RFC 9494 section 5: routes of IPv4 go with the restart time where IPv6 alone has a time, and stay where IPv4 has one."""
    base = ribtide(LEFT)

    def config(times):
        return base.replace("[bgp]\n", f'[bgp]\ngraceful-restart = {{ mode = "restart", long-lived-stale-time = {times} }}\n')

    ours = Ribtide(pair.a, config("{ ipv6-unicast = 600 }"))
    nets = [f"198.51.{n}.0/24" for n in range(5)]
    start = other(kind, pair.b, nets)
    first = start()
    wait_count(ours, len(nets), 60)
    assert ours.session(RIGHT.four).get("long_lived_seconds", {}) == {}
    first.kill()
    wait_for("they are stale", lambda: (stale(ours, RIGHT.four) or {}).get("paths", {}).get("ipv4") == len(nets), 20, 0.05)
    assert "long_lived" not in stale(ours, RIGHT.four) or not stale(ours, RIGHT.four)["long_lived"]
    wait_count(ours, 0, 30)
    ours.config.write_text(ours.config.read_text().replace("{ ipv6-unicast = 600 }", "{ ipv4-unicast = 70000, ipv6-unicast = 5 }"))
    assert "reset" in ours.text("reload")
    # Each family that has a time, with its own.
    sent = Speaker(pair.a, FEED, FEED_ASN).open
    head = sent.index(bytes([71, 14, 0, 1, 1]))
    assert (sent[head + 6:head + 9], sent[head + 9:head + 12], sent[head + 13:head + 16]) == (
        (70000).to_bytes(3), bytes([0, 2, 1]), (5).to_bytes(3))
    second = start()
    wait_count(ours, len(nets), 60)
    assert ours.session(RIGHT.four)["long_lived_seconds"] == {"ipv4-unicast": 3600}
    second.kill()
    wait_for("they are long-lived stale", lambda: (stale(ours, RIGHT.four) or {}).get("long_lived") == ["ipv4-unicast"], 30)
    assert ours.count() == len(nets)


@pytest.mark.feature("partial deployment of long-lived graceful restart (RFC 9494 section 4.6)")
@pytest.mark.parametrize("kind", KINDS)
def test_partial_deployment(pair, kind):
    """An internal neighbour without the capability gets long-lived stale routes with NO_EXPORT and a LOCAL_PREF of 0, and as they
    were before and after (RFC 9494 section 4.6). Without the setting it gets none."""
    inside = LEFT._replace(peer_asn=LEFT.asn)
    text = ribtide(inside, "next-hop-self = true").replace('type = "external"\npeer-asn = 65001', 'type = "internal"\npeer-asn = 65001')
    assert 'type = "internal"' in text
    text = text.replace('export = ["reject"]', 'export = ["accept"]')
    text = text.replace("[bgp]\n", "[bgp]\ngraceful-restart = { long-lived-stale-time = 600, long-lived-partial-deployment = true }\n")
    ours = Ribtide(pair.a, text)
    # These two send the capability unless they are told not to.
    plain_bird = bird(inside.other()).replace("enable extended", "graceful restart off; long lived graceful restart off; enable extended")
    timers = f" neighbor {LEFT.four} timers connect 1\n"
    plain_frr = frr(inside.other()).replace(timers, f"{timers} neighbor {LEFT.four} graceful-restart-disable\n")
    there = {"bird": lambda: Bird(pair.b, plain_bird), "frr": lambda: Frr(pair.b, bgpd=plain_frr),
             "gobgp": lambda: Gobgp(pair.b, gobgp(inside.other()))}.get(kind, lambda: start(kind, pair.b, inside.other()))()
    nets = ["203.0.0.0/24", "203.0.1.0/24"]

    def seen():
        table = there.table()
        names = {"llgrStale": "65535:6", "llgr-stale": "65535:6"}
        of = lambda route: (route.local_pref, frozenset(names.get(one, one) for one in route.communities))
        return {of(table[net]) for net in nets if net in table}

    speaker = restarting(pair.a, 3600)
    speaker.send(routes(2, communities([(65000, 7)])) + END_OF_RIB)
    fresh, marked = (100, frozenset({"65000:7"})), (0, frozenset({"65000:7", "65535:6", "65535:65281"}))
    wait_for("it has them", lambda: seen() == {fresh}, 60)
    speaker.close()
    def last_choice():
        assert seen() == {marked}, seen()
    settled(last_choice, 30)
    speaker = restarting(pair.a, 3600, again=True)
    speaker.send(routes(2, communities([(65000, 7)])) + END_OF_RIB)
    wait_for("they are as before", lambda: seen() == {fresh}, 30)
    ours.config.write_text(ours.config.read_text().replace(", long-lived-partial-deployment = true", ""))
    ours.text("reload")
    speaker.close()
    wait_for("it has none", lambda: seen() == set(), 30)
