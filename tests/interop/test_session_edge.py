"""What a neighbour may say and we must not repeat: flags that RFC 4271 forbids, prefixes that are no destination,
malformed attributes of others, paths that begin with another AS. FRR, behind us, keeps its session."""

import contextlib

import pytest
from harness import FEED_ASN, Host, Ribtide, wait_for
from harness.peers import LEFT, RIGHT, ribtide, start, wait_count
from harness.speaker import Speaker, attribute, block, prefixes, raw_update, update

HOP = "193.203.0.1"
PREFIX = "192.0.2.0/24"
PATH = attribute(0x60, 2, b"\x02\x01" + FEED_ASN.to_bytes(4, "big"))
NEXT_HOP = attribute(0x60, 3, bytes([193, 203, 0, 1]))


def router(host, feeds="", bgp=""):
    text = ribtide(LEFT).replace('listen = ["[::]:179"]', f'listen = ["[::]:179"]\n{bgp}')
    return Ribtide(host, text.replace(f"peer-asn = {FEED_ASN}\n", f"peer-asn = {FEED_ASN}\n{feeds}\n"))


@contextlib.contextmanager
def fed(host):
    speaker = Speaker(host, Host.FEEDS[0], FEED_ASN)
    try:
        yield speaker
    finally:
        speaker.close()


def counters(ours):
    return ours.session(Host.FEEDS[0])["counters"]


def test_partial_bit_of_well_known_attributes_is_not_sent_on(pair):
    ours = router(pair.a)
    other = start("frr", pair.b, RIGHT)
    wait_for("the session is established", lambda: ours.established(RIGHT.four), 60, alive=[ours.process])
    with fed(pair.a) as feed:
        attributes = attribute(0x60, 1, b"\0") + PATH + NEXT_HOP + attribute(0x60, 6, b"")
        feed.send(raw_update(b"", attributes, prefixes([PREFIX])))
        wait_count(ours, 1, 20)
        wait_count(other, 1, 20)
        assert ours.established(RIGHT.four) and ours.session(RIGHT.four)["messages_received"]["notification"] == 0
        assert feed.ended() is None


def test_martians_are_refused_and_counted(pair):
    martians = ["127.0.0.0/24", "224.0.1.0/24", "239.0.0.0/8", "0.1.0.0/16", "240.0.0.0/8"]
    ours = router(pair.a)
    with fed(pair.a) as feed:
        feed.send(update([*martians, PREFIX, "10.0.0.0/8", "0.0.0.0/0"], [FEED_ASN], HOP))
        wait_count(ours, 3, 20)
        assert not set(martians) & ours.table().keys()
        assert counters(ours)["martians"] == len(martians)
        assert feed.ended() is None


def test_martians_are_taken_where_the_list_is_empty(host):
    ours = router(host, bgp="martians = []")
    with fed(host) as feed:
        feed.send(update(["127.0.0.0/24", "239.0.0.0/8"], [FEED_ASN], HOP))
        wait_count(ours, 2, 20)


#: Flags, code, a value that its RFC calls malformed, and whether the route stays.
MALFORMED = {
    "otc of three octets": (0xC0, 35, b"\0\0\1", False),
    "pmsi tunnel of four octets": (0xC0, 22, b"\0\6\0\0", False),
    "tunnel encapsulation with a sub-tlv beyond its tlv": (0xC0, 23, b"\0\x08\0\6\6\5\x0a\0\0\1", False),
    "ipv6 extended communities of 19 octets": (0xC0, 25, bytes(19), False),
    "aigp with the transitive flag": (0xC0, 26, b"\1\0\x0b" + bytes(8), True),
    "prefix sid with a short label index": (0xC0, 40, b"\1\0\6" + bytes(6), True),
    "bfd discriminator of four octets": (0xC0, 38, bytes(4), True),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_attributes_that_only_others_use(pair, name):
    flags, code, value, stays = MALFORMED[name]
    ours = router(pair.a)
    with fed(pair.a) as feed:
        feed.send(update([PREFIX, "198.51.100.0/24"], [FEED_ASN], HOP))
        wait_count(ours, 2, 20)
        feed.send(update([PREFIX], [FEED_ASN], HOP, attribute(flags, code, value)))
        wait_count(ours, 2 if stays else 1, 20)
        wait_for("it is counted", lambda: counters(ours)["discarded_attributes" if stays else "treated_as_withdraw"] == 1, 20)
        assert feed.ended() is None


def test_unwanted_attributes_are_discarded_or_withdraw(host):
    ours = router(host, feeds='discard-attributes = ["communities"]\ntreat-as-withdraw = [99]')
    with fed(host) as feed:
        feed.send(update([PREFIX], [FEED_ASN], HOP, attribute(0xC0, 8, b"\0\1\0\2")))
        feed.send(update(["198.51.100.0/24"], [FEED_ASN], HOP, attribute(0xC0, 99, b"x")))
        wait_for("both came", lambda: counters(ours)["treated_as_withdraw"] == 1, 20)
        wait_count(ours, 1, 20)
        assert not ours.table()[PREFIX].communities and counters(ours)["discarded_attributes"] == 1


def test_first_as_is_enforced_but_for_route_servers(host):
    ours = router(host)
    with fed(host) as feed:
        feed.send(raw_update(b"", block([64999, FEED_ASN], HOP), prefixes([PREFIX])))
        feed.send(update(["198.51.100.0/24"], [FEED_ASN], HOP))
        wait_count(ours, 1, 20)
        assert counters(ours)["first_as"] == 1 and "peer's AS" in counters(ours)["last_reason"]
        lenient = f"peer-asn = {FEED_ASN}\nenforce-first-as = false\n"
        ours.config.write_text(ours.config.read_text().replace(f"peer-asn = {FEED_ASN}\n", lenient))
        ours.text("reload")
        # Without route refresh only another session brings what was refused.
        wait_for("the session ends", lambda: feed.ended(5) is not None, 20)
    with fed(host) as feed:
        feed.send(raw_update(b"", block([64999, FEED_ASN], HOP), prefixes([PREFIX])))
        wait_count(ours, 1, 20)
