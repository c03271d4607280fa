"""Enhanced route refresh (RFC 7313): the begin and end of a refresh are marked, in both directions, and what does not come
between them is gone."""

import contextlib
import json
import re
import struct

import pytest
from harness import FEED_ASN, Host, Ribtide, wait_for
from harness.peers import LEFT, RIGHT, configured, ribtide, wait_count
from harness.speaker import END_OF_RIB, NOTIFICATION, ROUTE_REFRESH, UPDATE, Speaker, message, raw_update, prefixes
from test_graceful_restart import capability, routes

FEED, OBSERVER = Host.FEEDS
REQUEST, BEGIN, END = range(3)
ENHANCED = bytes([70, 0])


def mark(kind, afi=1, more=b""):
    return message(ROUTE_REFRESH, struct.pack("!HBB", afi, kind, 1) + more)


def router(host, more=""):
    text = ribtide(LEFT).replace('export = ["reject"]', f'export = ["accept"]\n{more}')
    return Ribtide(host, text)


def feed(host, more=ENHANCED, **kw):
    return Speaker(host, FEED, FEED_ASN, refresh=True, more=more, **kw)


@pytest.mark.parametrize("keeps", ["", "keep-received = true", 'max-prefixes = { ipv4-unicast = 100, action = "discard" }'])
def test_what_a_refresh_leaves_out_is_removed(host, keeps):
    """Also where the reader keeps routes or counts prefixes, in one segment, and while shards come and go."""
    ours = router(host, keeps)
    speaker = feed(host)
    assert ENHANCED in speaker.open
    speaker.send(routes(9) + END_OF_RIB)
    wait_count(ours, 9)
    # 0 and 1 come again, 2 with other attributes, 3 is withdrawn; 20 is new, and 21 again gone.
    speaker.send(mark(BEGIN) + routes(2) + routes(1, 2) + raw_update(prefixes(["203.0.3.0/24"])) + routes(2, 20)
                 + raw_update(prefixes(["203.0.21.0/24"])) + mark(END) + routes(1, 30))
    left = {f"203.0.{n}.0/24" for n in (0, 1, 2, 20, 30)}
    wait_for("the rest is gone", lambda: set(ours.table()) == left, 20)
    session = ours.session(FEED)
    assert session["accepted"]["ipv4"] == 5
    if "keep" in keeps:
        assert session["received"]["ipv4"] == 5
    if "max" in keeps:
        assert ours.neighbor(FEED)["max_prefixes"][0]["count"] == 5
    # An end alone removes nothing, and a begin starts over.
    speaker.send(mark(END) + mark(BEGIN) + routes(1) + mark(BEGIN))
    for shards in (1, 4, 2):
        ours.text("config", "bgp", "shards", shards)
        speaker.send(routes(1, shards - 1))
    assert ours.count() == 6
    speaker.send(mark(END))
    left = {f"203.0.{n}.0/24" for n in (0, 3, 1)}
    wait_for("only those since the last begin stay", lambda: set(ours.table()) == left, 20)


def test_marks_that_do_not_count(host):
    """Of the other family, before End-of-RIB of a neighbour with graceful restart, and without the capability."""
    ours = router(host)
    speaker = feed(host, ENHANCED + capability(60, forwarding=True))
    speaker.send(routes(5) + mark(BEGIN) + mark(END) + mark(BEGIN, 2) + mark(END, 2) + mark(BEGIN, 25) + mark(END, 25) + routes(1, 9))
    wait_count(ours, 6)
    assert len(ours.process.logged("a message of the neighbor is ignored", "before End-of-RIB")) == 1
    speaker.send(END_OF_RIB + mark(BEGIN) + routes(2) + mark(END))
    wait_count(ours, 2)
    speaker.close()
    ours.text("clear", "bgp", "neighbor", FEED)
    speaker = feed(host, b"")
    # A reserved byte, and more bytes than there should be.
    speaker.send(routes(5) + END_OF_RIB + mark(BEGIN) + mark(BEGIN, more=b"1") + mark(END) + routes(1, 9))
    wait_count(ours, 6)


def test_malformed_marks(host):
    """A wrong length is an error of its own (section 5); an unknown subtype is ignored."""
    ours = router(host)
    speaker = feed(host)
    speaker.send(routes(5) + END_OF_RIB + mark(9) + mark(255, more=b"12") + routes(1, 9))
    wait_count(ours, 6)
    # Once a session: a peer may send more of them than a log holds.
    assert len(ours.process.logged("a message of the neighbor is ignored", "unknown subtype")) == 1
    bad = mark(BEGIN, more=b"\0")
    speaker.send(bad)
    while (got := speaker.read())[0] != NOTIFICATION:
        pass
    assert got[1] == b"\7\1" + bad


def test_a_refresh_without_end_has_a_time(host):
    ours = Ribtide(host, ribtide(LEFT).replace("[bgp]\n", "[bgp]\ngraceful-restart = { stale-time = 2 }\n"))
    speaker = feed(host)
    speaker.send(routes(5) + END_OF_RIB + mark(BEGIN) + routes(2))
    wait_count(ours, 2, 20)
    assert ours.established(FEED)
    speaker.send(routes(5) + mark(END))
    wait_count(ours, 5, 20)


def test_a_refresh_of_ours_is_marked(host):
    """Begin, all routes, end; for a request and for `clear … soft`; and not before End-of-RIB, nor without the capability."""
    ours = router(host)
    sender = feed(host)
    sender.send(routes(20) + END_OF_RIB)
    wait_count(ours, 20)

    def until(speaker, last):
        """What comes up to a message: marks as numbers, and the prefixes of UPDATEs together."""
        seen = []
        while True:
            kind, body = speaker.read()
            if kind == ROUTE_REFRESH:
                seen.append(body[2])
            elif kind == UPDATE and len(body) > 4:
                seen.append("routes") if seen[-1:] != ["routes"] else None
            elif kind == UPDATE:
                seen.append("end of RIB")
            if seen[-1:] == [last]:
                return seen

    def refreshed(speaker):
        """A refresh came, which may have started over for another request. The own request of `clear … soft` comes from
        another thread than the refresh, so it may be anywhere."""
        seen = "".join("R" if kind == "routes" else "BE"[kind - 1] for kind in until(speaker, END) if kind != REQUEST)
        assert re.fullmatch("(BR*)*BR+E", seen), seen

    observer = Speaker(host, OBSERVER, FEED_ASN, refresh=True, more=ENHANCED)
    # The request comes while the first table is on its way, or after it.
    observer.send(mark(REQUEST))
    assert until(observer, "end of RIB") == ["routes", "end of RIB"]
    observer.send(mark(REQUEST))
    refreshed(observer)
    # One refresh answers both requests if it had not begun before the second.
    with contextlib.suppress(TimeoutError):
        observer.peek(2)
        refreshed(observer)
    ours.text("clear", "bgp", "neighbor", OBSERVER, "soft")
    refreshed(observer)
    observer.close()
    plain = Speaker(host, OBSERVER, FEED_ASN, refresh=True)
    assert until(plain, "end of RIB") == ["routes", "end of RIB"]
    plain.send(mark(REQUEST))
    assert until(plain, "routes") == ["routes"]


#: How a neighbour is told to request our routes. GoBGP 3.10 evaluates the routes that it has again, and requests none.
REQUESTS = {
    "bird": lambda other: other.query("reload in four"),
    "frr": lambda other: other.query("clear bgp ipv4 unicast * soft in", "bgpd"),
    "openbgpd": lambda other: other.query("neighbor", LEFT.four, "refresh"),
    "exabgp": lambda other: other.command("announce route-refresh ipv4 unicast"),
}


@pytest.mark.feature("enhanced route refresh (RFC 7313)")
@pytest.mark.parametrize("kind", ["bird", "frr"])
def test_both_ways(pair, kind):
    """The other side refreshes its routes of ours, and sends its own again, with marks: nothing is lost or left."""
    ours = Ribtide(pair.a, ribtide(LEFT))
    speaker = Speaker(pair.a, FEED, FEED_ASN)
    speaker.send(routes(50) + END_OF_RIB)
    other = configured(kind, pair.b, RIGHT, routes={f"198.51.{n}.0/24": [] for n in range(20)})
    wait_count(ours, 70, 60)
    theirs = 70
    wait_count(other, theirs, 60)
    assert ours.session(RIGHT.four)["enhanced_route_refresh"]

    def refreshes():
        return ours.session(RIGHT.four)["messages_received"]["route_refresh"]

    before = refreshes()
    ours.text("clear", "bgp", "neighbor", RIGHT.four, "soft")
    wait_for("begin and end came", lambda: refreshes() == before + 2, 20)
    wait_for("nothing is lost", lambda: ours.count() == 70, 10)
    # Its own request; what it then has is what was sent between the marks.
    sent = ours.session(RIGHT.four)["sent"]["announced"]
    REQUESTS[kind](other)
    wait_for("all were sent again", lambda: ours.session(RIGHT.four)["sent"]["announced"] >= sent + 50, 20)
    wait_count(other, theirs, 20)
    speaker.send(raw_update(prefixes([f"203.0.{n}.0/24" for n in range(10)])))
    wait_count(other, theirs - 10, 20)
    assert ours.neighbor(RIGHT.four)["flaps"] == 0 and ours.established(RIGHT.four)


@pytest.mark.feature("route refresh (RFC 2918)")
@pytest.mark.parametrize("kind", ["gobgp", "openbgpd", pytest.param("exabgp", marks=pytest.mark.feature("enhanced route refresh (RFC 7313)"))])
def test_requests_in_one_direction(pair, kind):
    """OpenBGPD and ExaBGP request our routes, ExaBGP with marks. We request those of GoBGP. What comes again is there once."""
    ours = Ribtide(pair.a, ribtide(LEFT))
    speaker = Speaker(pair.a, FEED, FEED_ASN)
    speaker.send(routes(50) + END_OF_RIB)
    # ExaBGP offers route refresh where it is told to.
    setting = "capability { route-refresh enable; }\n" if kind == "exabgp" else ""
    other = configured(kind, pair.b, RIGHT, setting, {"198.51.100.0/24": []})
    wait_count(ours, 51)
    theirs = 50 + (kind == "gobgp")
    wait_count(other, theirs)
    before = ours.session(RIGHT.four)
    now = lambda: ours.session(RIGHT.four)  # noqa: E731
    if kind == "gobgp":
        ours.text("clear", "bgp", "neighbor", RIGHT.four, "soft")
        wait_for("its route came again", lambda: now()["counters"]["announced"] == before["counters"]["announced"] + 1, 20)
        assert json.loads(other.query("neighbor", LEFT.four, "-j"))["state"]["messages"]["received"]["refresh"] == 1
    else:
        REQUESTS[kind](other)
        wait_for("all were sent again", lambda: now()["sent"]["announced"] == before["sent"]["announced"] + 50, 20)
    if kind == "openbgpd":
        def refreshed():
            count = json.loads(other.query("-j", "show", "neighbor", LEFT.four))["neighbors"][0]["stats"]
            return count["route-refresh"]["sent"]["request"] == 1 and count["update"]["received"]["updates"] >= 2
        wait_for("it has them again", refreshed, 20)
        # Version 7.7 takes a family that was negotiated for one that was not (openbgpd-portable issue 46), and answers nothing.
        ours.text("clear", "bgp", "neighbor", RIGHT.four, "soft")
        wait_for("it refuses our request", lambda: other.process.logged("AID IPv4 unicast not negotiated"), 20)
    elif kind == "exabgp":
        # Version 4.2 ends its session at a request (issue 1237), and so ours is not tested.
        wait_for("its routes are between begin and end", lambda: other.refreshes() == ["begin", "end"], 20)
    assert (ours.count(), other.count()) == (51, theirs) and ours.neighbor(RIGHT.four)["flaps"] == 0
