"""What ends, refuses and guards a session: shutdown with its text (RFC 9003)."""

import pytest

from harness import FEED_ASN, Host, Ribtide, wait_for
from harness.peers import LEFT, RIGHT, ribtide, start
from harness.speaker import NOTIFICATION, Speaker, message

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
    "gobgp": lambda other: other.query("neighbor", LEFT.four, "shutdown", "lunch"),
}


@pytest.mark.parametrize("kind", SHUTDOWN)
def test_shutdown_texts_reach_the_other_side(pair, kind):
    ours = Ribtide(pair.a, ribtide(LEFT))
    other = start(kind, pair.b, RIGHT)
    plain = ours.config.read_text()
    both(ours, other)
    assert f"shut down: {RIGHT.four}, {RIGHT.six}" in reload(ours, plain.replace(LINK, LINK + 'shutdown = "back at ten"\n'))
    both(ours, other, up=False)
    assert ours.neighbor(RIGHT.four)["state"] == "Idle (shut down)"
    shown = ours.text("show", "bgp", "neighbor", RIGHT.four)
    assert 'NOTIFICATION sent (cease: administrative shutdown ("back at ten"))' in shown
    process = other.processes["bgpd"] if kind == "frr" else other.process
    # GoBGP logs what it receives at a lower level.
    if kind != "gobgp":
        wait_for("the peer tells its operator", lambda: process.logged("back at ten"), 20)
    assert f"started: {RIGHT.four}, {RIGHT.six}" in reload(ours, plain)
    both(ours, other)

    SHUTDOWN[kind](other)
    both(ours, other, up=False)
    text = 'NOTIFICATION received (cease: administrative shutdown ("lunch"))'
    assert ours.neighbor(RIGHT.four)["last_down"] == text
    assert ours.process.logged("the session is down", RIGHT.four, "lunch")


def test_shutdown_texts_that_are_malformed_are_shown_in_hexadecimal(host):
    ours = Ribtide(host, ribtide(LEFT))
    feed = Speaker(host, FEED, FEED_ASN)
    feed.send(message(NOTIFICATION, b"\6\4\2\xc3\x28"))
    wait_for("the session is down", lambda: not ours.established(FEED), 20)
    text = "NOTIFICATION received (cease: administrative reset (malformed text, in hexadecimal: 02c328))"
    assert ours.neighbor(FEED)["last_down"] == text and ours.process.logged("the session is down", "02c328")


def test_notification_tells_a_reset_a_removal_and_a_stop(host):
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
