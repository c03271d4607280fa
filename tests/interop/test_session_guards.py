"""Limits and checks that end, refuse and guard a session: shutdown with its text (RFC 9003), GTSM (RFC 5082), graceful
shutdown (RFC 8326)."""

import socket
import subprocess

import pytest

from harness import FEED_ASN, Bird, Frr, Host, Ribtide, binary, wait_for
from harness.peers import LEFT, RIGHT, bird, frr, ribtide, start, wait_count
from harness.speaker import NOTIFICATION, Speaker, attribute, message, update

LINK = '[bgp.group.link]\ntype = "external"\n'
FEED = Host.FEEDS[0]


def reload(router, text):
    router.config.write_text(text)
    return router.text("reload")


def both(ours, other, up=True):
    """Waits until the IPv4 session to the right is up at both ends, or not."""
    name = "four" if type(other).__name__ == "Bird" else LEFT.four
    wait_for(f"the session is {'up' if up else 'down'}",
             lambda: (ours.established(RIGHT.four), other.established(name)) == (up, up), 60)


#: How the peer shuts down the session with a text.
SHUTDOWN = {
    "bird": lambda other: other.query('disable four "lunch"'),
    "frr": lambda other: other.configure(f"router bgp {RIGHT.asn}", f"neighbor {LEFT.four} shutdown message lunch"),
    "gobgp": lambda other: other.query("neighbor", LEFT.four, "shutdown", "--reason", "lunch"),
}


@pytest.mark.feature("shutdown with a text (RFC 9003)")
@pytest.mark.parametrize("kind", SHUTDOWN)
def test_shutdown_texts_reach_the_other_side(pair, kind):
    ours = Ribtide(pair.a, ribtide(LEFT))
    other = start(kind, pair.b, RIGHT)
    if kind == "frr":
        other.configure(f"router bgp {RIGHT.asn}", "bgp log-neighbor-changes")
    plain = ours.config.read_text()
    both(ours, other)
    assert f"shut down: {RIGHT.four}, {RIGHT.six}" in reload(ours, plain.replace(LINK, LINK + 'shutdown = "back at ten"\n'))
    both(ours, other, up=False)
    assert ours.neighbor(RIGHT.four)["state"] == "Idle (shut down)"
    shown = ours.text("show", "bgp", "neighbor", RIGHT.four)
    assert 'NOTIFICATION sent (cease: administrative shutdown ("back at ten"))' in " ".join(shown.split())
    # GoBGP logs no text at the level of these tests.
    if kind != "gobgp":
        process = other.processes["bgpd"] if kind == "frr" else other.process
        wait_for("the peer logs the text", lambda: process.logged("back at ten"), 20)
    assert f"started: {RIGHT.four}, {RIGHT.six}" in reload(ours, plain)
    both(ours, other)

    SHUTDOWN[kind](other)
    both(ours, other, up=False)
    text = 'cease: administrative shutdown ("lunch")'
    # FRR has N, and ends a session for good with a Hard Reset (RFC 8538), with the reason inside.
    text = f"cease: hard reset ({text})" if kind == "frr" else text
    assert ours.neighbor(RIGHT.four)["last_down"] == f"NOTIFICATION received ({text})"
    assert ours.process.logged("the session is down", RIGHT.four, "lunch")


def test_shutdown_texts_that_are_malformed_are_shown_in_hexadecimal(host):
    ours = Ribtide(host, ribtide(LEFT))
    feed = Speaker(host, FEED, FEED_ASN)
    feed.send(message(NOTIFICATION, b"\6\4\2\xc3\x28"))
    wait_for("the session is down", lambda: not ours.established(FEED), 20)
    text = "NOTIFICATION received (cease: administrative reset (malformed text, in hexadecimal: 02c328))"
    assert ours.neighbor(FEED)["last_down"] == text and ours.process.logged("the session is down", "02c328")


def test_notification_of_a_reset_a_removal_and_a_stop(host):
    ours = Ribtide(host, ribtide(LEFT))
    plain = ours.config.read_text()

    def farewell(action):
        feed = Speaker(host, FEED, FEED_ASN)
        wait_for("the session is up", lambda: ours.established(FEED), 20)
        action()
        got = feed.read()
        while got is not None and got[0] != NOTIFICATION:
            got = feed.read()
        feed.close()
        return got[1]

    text = b"new line card"
    reset = farewell(lambda: ours.text("clear", "bgp", "neighbor", FEED, "--message", text.decode()))
    assert reset == b"\6\4" + bytes([len(text)]) + text
    assert farewell(lambda: reload(ours, plain.replace(f'"{FEED}", ', ""))) == b"\6\3", "peer de-configured"
    reload(ours, plain)
    assert farewell(ours.stop) == b"\6\2", "administrative shutdown"


def guarded(kind, host, passive):
    """BIRD or FRR that demands TTL 255, and waits for the neighbour or connects."""
    if kind == "bird":
        return Bird(host, bird(RIGHT).replace("enable extended", f"ttl security on; {'passive;' * passive} enable extended"))
    lines = "".join(f" neighbor {n} ttl-security hops 1\n" + f" neighbor {n} passive\n" * passive
                    for n in (LEFT.four, LEFT.six))
    last = f" neighbor {LEFT.six} timers connect 1\n"
    return Frr(host, bgpd=frr(RIGHT).replace(last, last + lines))


@pytest.mark.feature("GTSM (RFC 5082)")
@pytest.mark.parametrize("connects", ["ours", "theirs"])
@pytest.mark.parametrize("kind", ["bird", "frr"])
def test_ttl_security_with_others(pair, kind, connects):
    other = guarded(kind, pair.b, passive=connects == "ours")
    settings = "passive = true\n" if connects == "theirs" else ""
    ours = Ribtide(pair.a, ribtide(LEFT, settings + "ttl-security = 1"))
    both(ours, other)
    wait_for("IPv6 too", lambda: ours.established(RIGHT.six), 60)


def listener(host, port, ttl):
    with host.inside():
        heard = socket.socket()
        heard.setsockopt(socket.SOL_IP, socket.IP_TTL, ttl)
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        heard.bind((FEED, port))
        heard.listen()
        return heard


def test_ttl_security_refuses_a_lower_ttl(host):
    feeds = f'type = "external"\npeer-asn = {FEED_ASN}\npassive = true\n'
    ours = Ribtide(host, ribtide(LEFT).replace(feeds, feeds + "ttl-security = 1\n"))
    text = ours.config.read_text().replace("ttl-security = 1\n", "")
    assert feeds in text
    with pytest.raises(AssertionError, match="takes a session"):
        Speaker(host, FEED, FEED_ASN)
    assert ours.process.logged("the neighbor gets no session", FEED, "its SYN came with TTL 64")
    assert ours.show("bgp", "summary")["rejected_by_reason"]["low-ttl"] > 0
    assert 'bgp_refused_connections_total{reason="low-ttl"} 0' not in ours.call("GET", "/metrics")
    reload(ours, text.replace(feeds, feeds + "ttl-security = 192\n"))
    Speaker(host, FEED, FEED_ASN)

    # Where we connect, the kernel discards the SYN-ACK of a far neighbour.
    active = feeds.replace("passive = true\n", "ttl-security = 1\nport = 1790\n")
    far = listener(host.feeds, 1790, 64)
    reload(ours, text.replace(feeds, active))
    waits = ["ss", "-Htn", "state", "syn-recv", "sport", "=", ":1790"]
    wait_for("our SYN is there, and not our ACK", lambda: FEED in host.feeds.run(*waits), 30)
    far.close()
    near = listener(host.feeds, 1790, 255)
    near.settimeout(60)
    assert near.accept()[1][0] == Host.FEED_SIDE


LEAVING = "65535:0"
PREFIX = "192.0.2.0/24"


def static(communities=""):
    """A route of BIRD's own."""
    return f"protocol static {{ ipv4; route {PREFIX} blackhole {{ {communities} }}; }}\n"


@pytest.mark.feature("graceful shutdown (RFC 8326)")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_graceful_shutdown_reaches_others(pair, kind):
    ours = Ribtide(pair.a, ribtide(LEFT))
    other = start(kind, pair.b, RIGHT)
    both(ours, other)
    feed = Speaker(pair.a, FEED, FEED_ASN)
    feed.send(update([PREFIX], [FEED_ASN], "193.203.0.1"))
    route = lambda: other.table().get(PREFIX)
    wait_for("the route is there", lambda: route() and LEAVING not in route().communities, 60)
    plain = ours.config.read_text()
    reload(ours, plain.replace(LINK, LINK + "graceful-shutdown = true\n"))
    wait_for("the route has the community", lambda: LEAVING in route().communities, 60)
    if kind == "frr":
        assert route().local_pref == 0, "FRR is a receiver by default"
    assert "then graceful-shutdown" in ours.text("show", "bgp", "group")
    reload(ours, plain)
    wait_for("and no longer", lambda: LEAVING not in route().communities, 60)
    assert ours.neighbor(RIGHT.four)["flaps"] == 0 and feed.ended() is None


@pytest.mark.feature("graceful shutdown (RFC 8326)")
@pytest.mark.peers("bird")
def test_graceful_shutdown_of_others(pair):
    """An external neighbour's community counts by default; ours for it, on its own routes, does too."""
    ours = Ribtide(pair.a, ribtide(LEFT))
    other = Bird(pair.b, bird(RIGHT) + static("bgp_community.add((65535, 0));"))
    both(ours, other)
    preference = lambda: ours.table()[PREFIX].local_pref
    wait_count(ours, 1, 60)
    assert preference() == 0
    plain = ours.config.read_text()
    reload(ours, plain.replace(LINK, LINK + "graceful-shutdown-receiver = false\n"))
    wait_for("the route has the usual LOCAL_PREF", lambda: preference() == 100, 60)
    reload(ours, plain)
    wait_for("the route has the lowest LOCAL_PREF", lambda: preference() == 0, 60)
    assert ours.neighbor(RIGHT.four)["flaps"] == 0 and other.established("four")


def test_idle_hold_damps_a_neighbour_that_oscillates(host):
    ours = Ribtide(host, ribtide(LEFT))
    for lost in range(1, 4):
        Speaker(host, FEED, FEED_ASN).close()
        wait_for("the session is lost", lambda: ours.neighbor(FEED)["flaps"] == lost, 20)
    neighbor = ours.neighbor(FEED)
    assert (neighbor["state"], neighbor["oscillations"]) == ("Idle (hold)", 3)
    assert "after 3 errors or short sessions in a row" in ours.text("show", "bgp", "neighbor", FEED)
    ours.text("clear", "bgp", "neighbor", FEED)
    assert ours.neighbor(FEED)["state"] == "Active", "an operator ends the hold"


def test_missing_policies_are_warned_of(host):
    """RFC 8212: by `check`, whose status stays 0, in the log of the start and of a reload, and in the summary."""
    silent = ribtide(LEFT).replace('import = ["accept"]\nexport = ["reject"]\n', "", 1)
    path = host.folder / "silent.toml"
    path.write_text(silent)
    done = subprocess.run([binary(), "check", "-c", path], capture_output=True, text=True)
    incoming, outgoing = (f'group "feeds": no route is {way} {FEED}, ' for way in ("accepted from", "sent to"))
    assert done.returncode == 0 and "valid" in done.stdout
    assert [incoming in done.stderr, outgoing in done.stderr, done.stderr.count("warning:")] == [True, True, 2]
    ours = Ribtide(host, silent)
    assert ours.process.logged("WARN", incoming) and ours.process.logged("WARN", outgoing)
    Speaker(host, FEED, FEED_ASN)
    row = next(line for line in ours.text("show", "bgp", "summary").splitlines() if line.startswith(FEED))
    assert row.count("no policy") == 2
    before = len(ours.process.logged("WARN", "no route is sent to"))
    reload(ours, ours.config.read_text().replace('export = ["accept"]\n', "", 1))
    wait_for("the new one alone is in the log", lambda: len(ours.process.logged("WARN", "no route is sent to")) == before + 1, 20)


def related(kind, host, role):
    """BIRD or FRR with this role."""
    if kind == "bird":
        return Bird(host, bird(RIGHT).replace("enable extended", f"local role {role}; enable extended") + static())
    lines = "".join(f" neighbor {n} local-role {role}\n" for n in (LEFT.four, LEFT.six))
    last = f" neighbor {LEFT.six} timers connect 1\n"
    text = frr(RIGHT).replace(last, last + lines)
    return Frr(host, bgpd=text.replace(" address-family ipv4 unicast\n", f" address-family ipv4 unicast\n  network {PREFIX}\n", 1))


@pytest.mark.feature("roles and OTC (RFC 9234)")
@pytest.mark.parametrize("kind", ["bird", "frr"])
def test_roles_of_others(pair, kind):
    """Roles that correspond, strictly; OTC of each side is understood by the other; a role that does not correspond."""
    ours = Ribtide(pair.a, ribtide(LEFT, 'role = "customer"\nrole-strict = true'))
    other = related(kind, pair.b, "provider")
    both(ours, other)
    assert ours.session(RIGHT.four)["peer_role"] == "provider"
    assert "Our role is customer, the peer's is provider" in ours.text("show", "bgp", "neighbor", RIGHT.four)
    wait_count(ours, 1, 60)
    # A marked route goes to no other provider, and one without the mark goes out.
    feed = Speaker(pair.a, FEED, FEED_ASN)
    feed.send(update(["198.51.100.0/24"], [FEED_ASN], "193.203.0.1"))
    feed.send(update(["203.0.113.0/24"], [FEED_ASN], "193.203.0.1", attribute(0xC0, 35, FEED_ASN.to_bytes(4, "big"))))
    wait_for("the route without OTC is there", lambda: "198.51.100.0/24" in other.table(), 60)
    assert "203.0.113.0/24" not in other.table() and "203.0.113.0/24" in ours.table()
    reload(ours, ours.config.read_text().replace('role = "customer"', 'role = "peer"'))
    both(ours, other, up=False)
    wait_for("the mismatch is named", lambda: "role mismatch" in (ours.neighbor(RIGHT.four).get("last_error") or ""), 60)
