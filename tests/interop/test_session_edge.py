"""Input of a neighbour that ribtide must not pass on: attribute flags that RFC 4271 forbids,
martians, malformed attributes of others, paths that begin with another AS, Prefix-SIDs. OpenBGPD, FRR, BIRD
and GoBGP behind ribtide keep their sessions, and have the expected routes."""

import contextlib
import struct

import pytest
from harness import FEED_ASN, Host, Ribtide, wait_for
from harness.peers import LEFT, RIGHT, configured, ribtide, start, wait_count
from harness.speaker import ROUTE_REFRESH, UPDATE, Speaker, attribute, block, prefixes, raw_update, update

GATEWAY = "193.203.0.1"
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


@pytest.mark.feature("malformed attributes are not sent on (RFC 7606)")
@pytest.mark.peers("frr")
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
        feed.send(update([*martians, PREFIX, "10.0.0.0/8", "0.0.0.0/0"], [FEED_ASN], GATEWAY))
        wait_count(ours, 3, 20)
        assert not set(martians) & ours.table().keys()
        assert counters(ours)["martians"] == len(martians)
        assert feed.ended() is None


def test_martians_are_taken_where_the_list_is_empty(host):
    ours = router(host, bgp="martians = []")
    with fed(host) as feed:
        feed.send(update(["127.0.0.0/24", "239.0.0.0/8"], [FEED_ASN], GATEWAY))
        wait_count(ours, 2, 20)


#: Flags, code, a value that its RFC calls malformed, and whether the route stays.
MALFORMED = {
    "otc of three bytes": (0xC0, 35, b"\0\0\1", False),
    "pmsi tunnel of four bytes": (0xC0, 22, b"\0\6\0\0", False),
    # RFC 9012 section 11: from an external peer it is not used, and so not checked.
    "tunnel encapsulation with a sub-tlv beyond its tlv": (0xC0, 23, b"\0\x08\0\6\6\5\x0a\0\0\1", True),
    "ipv6 extended communities of 19 bytes in an attribute set": (0xC0, 128, bytes(4) + attribute(0xC0, 25, bytes(19)), False),
    "aigp with the transitive flag": (0xC0, 26, b"\1\0\x0b" + bytes(8), True),
    "prefix sid with a short label index": (0xC0, 40, b"\1\0\6" + bytes(6), True),
    "bfd discriminator of four bytes": (0xC0, 38, bytes(4), True),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_attributes_that_only_others_use(pair, name):
    flags, code, value, stays = MALFORMED[name]
    ours = router(pair.a, feeds="prefix-sid = true")
    with fed(pair.a) as feed:
        feed.send(update([PREFIX, "198.51.100.0/24"], [FEED_ASN], GATEWAY))
        wait_count(ours, 2, 20)
        feed.send(update([PREFIX], [FEED_ASN], GATEWAY, attribute(flags, code, value)))
        wait_count(ours, 2 if stays else 1, 20)
        wait_for("it is counted", lambda: counters(ours)["discarded_attributes" if stays else "treated_as_withdraw"] == 1, 20)
        assert feed.ended() is None


def test_unwanted_attributes_are_discarded_or_withdraw(host):
    ours = router(host, feeds='discard-attributes = ["communities"]\ntreat-as-withdraw = [99]')
    with fed(host) as feed:
        feed.send(update([PREFIX], [FEED_ASN], GATEWAY, attribute(0xC0, 8, b"\0\1\0\2")))
        feed.send(update(["198.51.100.0/24"], [FEED_ASN], GATEWAY, attribute(0xC0, 99, b"x")))
        wait_for("both came", lambda: counters(ours)["treated_as_withdraw"] == 1, 20)
        wait_count(ours, 1, 20)
        assert not ours.table()[PREFIX].communities and counters(ours)["discarded_attributes"] == 1


def test_first_as_is_enforced_but_for_route_servers(host):
    ours = router(host)
    with fed(host) as feed:
        feed.send(raw_update(b"", block([64999, FEED_ASN], GATEWAY), prefixes([PREFIX])))
        feed.send(update(["198.51.100.0/24"], [FEED_ASN], GATEWAY))
        wait_count(ours, 1, 20)
        assert counters(ours)["first_as"] == 1 and "peer's AS" in counters(ours)["last_reason"]
        lenient = f"peer-asn = {FEED_ASN}\nenforce-first-as = false\n"
        ours.config.write_text(ours.config.read_text().replace(f"peer-asn = {FEED_ASN}\n", lenient))
        ours.text("reload")
        # Without route refresh only another session brings what was refused.
        wait_for("the session ends", lambda: feed.ended(5) is not None, 20)
    with fed(host) as feed:
        feed.send(raw_update(b"", block([64999, FEED_ASN], GATEWAY), prefixes([PREFIX])))
        wait_count(ours, 1, 20)


@pytest.mark.feature("policy changes without a reset")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_reload_acts_on_routes_that_are_there(pair, kind):
    """A neighbour that knows route refresh sends its routes again, in the same session (RFC 2918)."""
    ours = router(pair.a)
    other = configured(kind, pair.b, RIGHT, routes={PREFIX: ["65001:1:2"]})
    wait_count(ours, 1, 60)
    head = '[bgp]\nlisten = ["[::]:179"]\n'
    link = '[bgp.group.link]\ntype = "external"\n'
    plain = ours.config.read_text()
    assert head in plain and link in plain

    def reload(text):
        ours.config.write_text(text)
        return ours.text("reload")

    def large():
        return {prefix: route.large_communities for prefix, route in ours.table().items()}

    def becomes(text, table):
        said = reload(text)
        wait_for(f"the table is {table}", lambda: large() == table, 20)
        assert "refreshed: " in said and RIGHT.four in said, said

    with_it = {PREFIX: frozenset({"65001:1:2"})}
    assert large() == with_it
    becomes(plain.replace(link, link + 'discard-attributes = ["large-communities"]\n'), {PREFIX: frozenset()})
    becomes(plain.replace(link, link + "treat-as-withdraw = [32]\n"), {})
    becomes(plain, with_it)
    becomes(plain.replace(head, head + f'martians = ["{PREFIX}"]\n'), {})
    becomes(plain, with_it)
    assert ours.neighbor(RIGHT.four)["flaps"] == 0 and other.established("four" if kind == "bird" else LEFT.four)
    assert ours.session(RIGHT.four)["counters"]["martians"] == 1


SR_DOMAIN = """
[router]
asn = 65001
router-id = "198.19.0.1"

[bgp]
listen = ["[::]:179"]

[bgp.group.source]
type = "external"
peer-asn = {source_asn}
passive = true
import = ["accept"]
neighbors = ["{source}"]

[bgp.group.external]
type = "external"
peer-asn = {external_asn}
passive = true
import = ["accept"]
export = ["accept"]
neighbors = ["{external}"]

[bgp.group.internal]
type = "internal"
passive = true
neighbors = ["{internal}"]
"""


class Listener:
    """A session whose routes are kept: of each prefix its attributes, as {code: (flags, value)}."""

    def __init__(self, host, address, asn):
        self.speaker, self.routes = Speaker(host, address, asn, refresh=True), {}

    def read(self):
        with contextlib.suppress(TimeoutError):
            while True:
                got = self.speaker.read(0.1)
                assert got is not None, "the router has closed the session"
                if got[0] == UPDATE:
                    self.update(got[1])

    def update(self, body):
        withdrawn = struct.unpack_from("!H", body)[0]
        length = struct.unpack_from("!H", body, 2 + withdrawn)[0]
        at, end = 4 + withdrawn, 4 + withdrawn + length
        attributes = {}
        for prefix in nlri(body[2:2 + withdrawn]):
            self.routes.pop(prefix, None)
        while at < end:
            flags, code = body[at], body[at + 1]
            size, head = (struct.unpack_from("!H", body, at + 2)[0], 4) if flags & 0x10 else (body[at + 2], 3)
            attributes[code] = flags & 0xE0, body[at + head:at + head + size]
            at += head + size
        self.routes.update(dict.fromkeys(nlri(body[end:]), attributes))

    def sids(self):
        """Of each prefix its Prefix-SID with the flags, or None."""
        self.read()
        return {prefix: attributes.get(40) for prefix, attributes in self.routes.items()}


def nlri(field):
    """The prefixes of /24 in a field."""
    assert all(field[at] == 24 for at in range(0, len(field), 4)), field
    return [f"{field[at]}.{field[at + 1]}.{field[at + 2]}.0/24" for at in range(1, len(field), 4)]


def test_prefix_sids_stay_in_the_sr_domain(host):
    """RFC 8669 sections 4 and 5: from an external neighbour the attribute is discarded, and none gets it, but for those
    that the configuration has inside the domain; internal ones have it. A reload changes that in the same sessions."""
    source, external, internal = (f"198.19.0.{n}" for n in (10, 11, 12))
    host.feeds.address("feed0", *(f"{a}/24" for a in (source, external, internal)))

    ours = Ribtide(host, SR_DOMAIN.format(source=source, source_asn=FEED_ASN, external=external, external_asn=64801, internal=internal))
    plain = ours.config.read_text()
    feed, beyond, within = Speaker(host, source, FEED_ASN, refresh=True), Listener(host, external, 64801), Listener(host, internal, 65001)
    sid, stays = tlv(1, bytes(6) + b"\x09"), attribute(0xC0, 99, b"x")

    def announce(*more):
        for prefix in (PREFIX, "198.51.100.0/24", *more):
            feed.send(update([prefix], [FEED_ASN], GATEWAY, attribute(0xC0, 40, sid), stays))

    def reload(*in_domain, changed):
        text = plain
        for address in in_domain:
            neighbors = f'neighbors = ["{address}"]'
            text = text.replace(neighbors, f"prefix-sid = true\n{neighbors}")
        ours.config.write_text(text)
        said = ours.text("reload")
        assert f"refreshed: {changed}" in said, said

    def asked(speaker):
        kind = speaker.read()[0]
        while kind != ROUTE_REFRESH:
            kind = speaker.read()[0]

    def becomes(listener, sid, *more):
        due = dict.fromkeys((PREFIX, "198.51.100.0/24", *more), sid)
        wait_for(f"the Prefix-SIDs are {due}", lambda: listener.sids() == due, 20, alive=[ours.process])
        assert all(attributes[99] == (0xE0, b"x") for attributes in listener.routes.values())

    # Unrecognized here, so it is passed on with the partial bit (RFC 4271 section 5).
    passed = (0xE0, sid)
    announce()
    becomes(beyond, None)
    becomes(within, None)
    of_source = ours.session(source)["counters"]
    assert of_source["discarded_attributes"] == 2
    assert "PREFIX_SID came from an external peer" in of_source["last_reason"], of_source

    reload(source, changed=source)
    asked(feed)
    announce()
    becomes(within, passed)
    # Later bytes came with those before them.
    announce("203.0.113.0/24")
    becomes(within, passed, "203.0.113.0/24")
    becomes(beyond, None, "203.0.113.0/24")
    assert ours.session(source)["counters"]["discarded_attributes"] == 2

    reload(source, external, changed=external)
    becomes(beyond, passed, "203.0.113.0/24")
    becomes(within, passed, "203.0.113.0/24")

    # From that neighbour it is accepted too.
    beyond.speaker.send(update(["192.0.1.0/24"], [64801], GATEWAY, attribute(0xC0, 40, sid), stays))
    becomes(within, passed, "203.0.113.0/24", "192.0.1.0/24")

    reload(source, changed=external)
    becomes(beyond, None, "203.0.113.0/24")
    reload(changed=source)
    asked(feed)
    announce("203.0.113.0/24")
    wait_for("the internal neighbour has those of the source no longer",
             lambda: within.sids() == {"192.0.1.0/24": passed, **dict.fromkeys((PREFIX, "198.51.100.0/24", "203.0.113.0/24"))}, 20)
    assert [ours.neighbor(address)["flaps"] for address in (source, external, internal)] == [0, 0, 0]


def tlv(kind, value, size="!BH"):
    return struct.pack(size, kind, len(value)) + value


#: A source address that BFD packets come from (RFC 9026), a tunnel endpoint (RFC 9012), one hop of a service function path
#: (RFC 9015), an SRv6 SID (RFC 9252).
SOURCE = tlv(1, bytes([192, 0, 2, 1]), "!BB")
ENDPOINT = tlv(6, bytes(4) + b"\0\1" + bytes([198, 18, 0, 1]), "!BB")
HOP = tlv(2, b"\xff" + tlv(1, b"\0\1" + bytes(8)))
SID = tlv(5, b"\0" + tlv(1, bytes(21)))
#: BGPsec_PATH of one hop (RFC 8205): a Secure_Path, and a Signature_Block with one signature.
BGPSEC = b"\0\x08\1\0" + FEED_ASN.to_bytes(4, "big") + b"\0\x1b\1" + bytes(20) + b"\0\2ok"
AIGP = b"\1\0\x0b" + bytes(7) + b"\1"

#: Of each code of IANA's registry a value that its RFC allows, and its flags. Routes with it are due, with every setting of
#: the Partial bit.
WELL_FORMED = {
    4: (0x80, bytes(4)), 5: (0x40, bytes(4)), 6: (0x40, b""), 7: (0xC0, b"\0\0\xfd\xea\xc6\x12\0\1"), 8: (0xC0, b"\xfd\xe9\0\1"),
    9: (0x80, b"\xc6\x12\0\1"), 10: (0x80, b"\xc6\x12\0\1"), 11: (0xC0, b"x"), 12: (0x80, b"x"), 13: (0x80, b"x"),
    16: (0xC0, b"\0\2\xfd\xe9\0\0\0\1"), 17: (0xC0, b"\2\1\0\0\xfd\xea"), 18: (0xC0, b"\0\0\xfd\xea\xc6\x12\0\1"), 19: (0xC0, b"x"),
    20: (0xC0, b"x"), 21: (0xC0, b"x"), 22: (0xC0, bytes([0, 6, 0, 0, 16, 198, 18, 0, 1])), 23: (0xC0, tlv(8, ENDPOINT, "!HH")),
    24: (0x80, bytes(36)), 25: (0xC0, b"\0\2" + bytes(18)), 26: (0x80, AIGP), 27: (0xC0, bytes([198, 18, 0, 1, 0, 0, 16])), 28: (0xC0, b""),
    29: (0x80, tlv(1024, b"\0", "!HH")), 30: (0xC0, b"x"), 31: (0xC0, b"x"), 32: (0xC0, bytes([0, 0, 253, 233, 0, 0, 0, 1, 0, 0, 0, 2])),
    33: (0x80, BGPSEC), 34: (0xC0, b"x"), 35: (0xC0, FEED_ASN.to_bytes(4, "big")), 37: (0xC0, HOP),
    38: (0xC0, b"\1\0\0\0\7" + SOURCE), 39: (0xC0, b"x"), 40: (0xC0, tlv(1, bytes(7))), 41: (0xC0, tlv(1, b"\0", "!HH")), 42: (0xC0, b"x"),
    99: (0xC0, b"x"), 128: (0xC0, b"\0\0\xfd\xe9" + attribute(0x40, 1, b"\0") + attribute(0xC0, 8, bytes(4))), 129: (0xC0, b"x"), 255: (0xC0, b"x"),
}
#: More values that are right: code, flags, value.
ODD = [
    (22, 0xC0, bytes(5)), (23, 0xC0, tlv(4711, b"", "!HH")), (28, 0xC0, b"x"),
    (32, 0xC0, bytes([0, 0, 253, 233, 0, 0, 0, 1, 0, 0, 0, 2] * 2)), (37, 0xC0, tlv(1, bytes(12)) + tlv(77, b"") + HOP), (40, 0xC0, SID),
    (40, 0xC0, tlv(1, bytes(7)) + tlv(3, bytes(8))), (40, 0xC0, tlv(99, b"x")), (99, 0xC0, b""), (99, 0x80, b"x"), (99, 0xC0, bytes(300)),
    (128, 0xC0, bytes(4)), (8, 0xC0, bytes(4) * 200),
]
#: What is right, and what FRR 8.4 takes for malformed: a tunnel type of RFC 8556, and a sub-TLV with two bytes of length
#: (RFC 9012 section 2). It withdraws the route then, or resets an internal session.
NOT_FOR_FRR = [(22, 0xC0, bytes([0, 11, 0, 0, 16, 1, 2])), (23, 0xC0, tlv(4711, tlv(200, b"\0x"), "!HH"))]
#: What is right, and what ExaBGP 4.2 ends the session for: it decodes each Prefix-SID, an SRv6 service and an unknown TLV wrongly.
NOT_FOR_EXABGP = [(40, 0xC0, SID), (40, 0xC0, tlv(99, b"x"))]
#: Code, flags, a value that its RFC calls malformed; the attribute goes, the route stays.
DISCARDED = [
    (5, 0x40, b"x"), (6, 0x40, b"x"), (23, 0xC0, b""), (23, 0xC0, tlv(8, ENDPOINT, "!HH")[:-1]), (23, 0xC0, tlv(8, ENDPOINT[:-1], "!HH")), (7, 0xC0, bytes(6)), (7, 0xC0, bytes(8)), (9, 0x80, b"x"), (10, 0x80, b"x"), (17, 0xC0, b"x"), (18, 0xC0, b"x"),
    (26, 0x80, b"x"), (26, 0x80, b""), (26, 0xC0, AIGP), (29, 0x80, b"x"), (29, 0x80, b""), (38, 0xC0, bytes(5)), (38, 0xC0, bytes(5) + tlv(9, bytes(4), "!BB")),
    (40, 0xC0, b""), (40, 0xC0, b"x"), (40, 0xC0, tlv(1, bytes(6))), (40, 0xC0, tlv(3, bytes(2))), (40, 0xC0, tlv(1, bytes(7))[:-1]),
]
#: The same, and the route goes with it: by value, and by flags.
WITHDRAWN = [
    # RFC 10039 section 4 withdraws with D_PATH whatever is not of IPVPN or EVPN.
    (36, 0xC0, b"\1" + bytes(6) + b"\x46"), (36, 0xC0, b"x"), (36, 0x80, b"\1" + bytes(7)),
    (4, 0x80, b"x"), (8, 0xC0, b"xxx"), (8, 0xC0, b""), (16, 0xC0, b"x"), (22, 0xC0, b"xx"), (22, 0xC0, bytes([0, 6, 0, 0, 16, 1])), (22, 0xC0, bytes(6)), (22, 0xC0, bytes([0, 50, 0, 0, 0])),
    (24, 0x80, b"x"), (25, 0xC0, bytes(19)),
    (27, 0xC0, b"x"), (27, 0xC0, bytes([224, 0, 0, 1, 0, 0, 16])), (32, 0xC0, bytes(11)), (33, 0x80, BGPSEC[:-1]), (35, 0xC0, bytes(3)), (37, 0xC0, b""),
    (37, 0xC0, tlv(1, bytes(12))), (37, 0xC0, tlv(2, b"\xff")), (37, 0xC0, HOP[:-1]), (40, 0xC0, tlv(5, b"")), (40, 0xC0, SID[:-1]), (128, 0xC0, bytes(3)),
    (128, 0xC0, bytes(4) + attribute(0x80, 15, b"\0\1\1")), (128, 0xC0, bytes(4) + attribute(0x40, 1, b"\7")),
    *((code, flags ^ 0x40, value) for code, (flags, value) in WELL_FORMED.items()
      if code in (4, 5, 6, 7, 8, 9, 10, 16, 17, 18, 22, 23, 24, 25, 27, 29, 32, 33, 35, 37, 38, 40, 128)),
]


def cases(kind):
    """The UPDATE of each prefix, and whether a peer of that kind must get the route."""
    said = {}

    def say(due, *more, origin=attribute(0x40, 1, b"\0"), path=attribute(0x40, 2, PATH[3:]), hop=attribute(0x40, 3, NEXT_HOP[3:])):
        prefix = f"20.{len(said) // 256}.{len(said) % 256}.0/24"
        said[prefix] = raw_update(b"", origin + path + hop + b"".join(more), prefixes([prefix])), due

    def change(attribute, flags):
        return bytes([flags]) + attribute[1:]

    for code, (flags, value) in WELL_FORMED.items():
        for more in (0, 0x20, 0x0F, 0x10):
            # The same with two bytes of length.
            value_there = struct.pack("!BBH", flags | more, code, len(value)) + value if more == 0x10 else attribute(flags | more, code, value)
            say(True, value_there)
        # RFC 7606 section 3 (g): the first counts.
        say(True, attribute(flags, code, value), attribute(flags, code, b"another"))
    odd = [one for one in ODD if kind != "exabgp" or one not in NOT_FOR_EXABGP]
    for code, flags, value in odd + (NOT_FOR_FRR if kind != "frr" else []):
        say(True, attribute(flags, code, value))
        say(True, attribute(flags | 0x20, code, value))
    for code, flags, value in DISCARDED:
        say(True, attribute(flags, code, value))
        say(True, attribute(flags | 0x20, code, value))
    for code, flags, value in WITHDRAWN:
        say(False, attribute(flags, code, value))
        say(False, attribute(flags | 0x20, code, value))
    origin, path, hop = attribute(0x40, 1, b"\2"), attribute(0x40, 2, PATH[3:]), attribute(0x40, 3, NEXT_HOP[3:])
    for flags in (0x60, 0x4F):
        say(True, origin=change(origin, flags))
        say(True, path=change(path, flags))
        say(True, hop=change(hop, flags))
    for flags in (0x00, 0x80, 0xC0):
        say(False, origin=change(origin, flags))
        say(False, path=change(path, flags))
        say(False, hop=change(hop, flags))
    for wrong in (b"", b"\3", b"\0\0"):
        say(False, origin=attribute(0x40, 1, wrong))
    good = PATH[3:]
    say(True, path=attribute(0x40, 2, good + b"\1\2" + bytes([0, 0, 253, 234, 0, 0, 253, 235])))
    for wrong in (b"", good[:-1], good + b"\2\0", good + b"\7\1\0\0\0\1", good + b"\2\1\0\0\0\0", good + b"\3\1\0\0\0\1", good + b"\2"):
        say(False, path=attribute(0x40, 2, wrong))
    for wrong in ([], [193, 203, 0], [0, 0, 0, 0], [0, 1, 2, 3], [224, 0, 0, 1], [240, 0, 0, 1], [255, 255, 255, 255]):
        say(False, hop=attribute(0x40, 3, bytes(wrong)))
    for missing in ("origin", "path", "hop"):
        say(False, **{missing: b""})
    # Attributes in another order, and one that does not end (RFC 7606 section 4).
    said_in_order = f"20.{len(said) // 256}.{len(said) % 256}.0/24"
    said[said_in_order] = raw_update(b"", attribute(0xC0, 99, b"x") + hop + path + origin, prefixes([said_in_order])), True
    say(False, b"\xc0\x63\x09x")
    say(False, b"\xc0\x63")
    return said


def inside(text):
    """The same with feeds inside the SR domain: their Prefix-SIDs are judged, and go on."""
    return text.replace(f"peer-asn = {FEED_ASN}\n", f"peer-asn = {FEED_ASN}\nprefix-sid = true\n")


def internal(side):
    """The configuration of a router with an internal neighbour."""
    return ribtide(side).replace(f'type = "external"\npeer-asn = {side.peer_asn}\n', 'type = "internal"\n')


@pytest.mark.feature("malformed attributes are not sent on (RFC 7606)")
@pytest.mark.parametrize("way", ["external", "internal"])
@pytest.mark.parametrize("kind", ["openbgpd", "frr", "bird", "gobgp", "exabgp"])
def test_lagging_peers_keep_their_session_and_get_their_routes(pair, kind, way):
    left = LEFT if way == "external" else LEFT._replace(peer_asn=LEFT.asn)
    ours = Ribtide(pair.a, inside(ribtide(left, "prefix-sid = true") if way == "external" else internal(left)))
    other = start(kind, pair.b, left.other())
    wait_for("the session is established", lambda: ours.established(RIGHT.four), 60, alive=[ours.process])
    with fed(pair.a) as feed:
        before = sessions(ours)
        said = cases(kind)
        for message, _ in said.values():
            feed.send(message)
        last = "30.0.0.0/24"
        feed.send(update([last], [FEED_ASN], GATEWAY))
        due = {prefix for prefix, (_, is_due) in said.items() if is_due} | {last}
        wait_for("the last route is there", lambda: last in ours.table(), 30)
        missing, over = due - ours.table().keys(), ours.table().keys() - due
        assert (messages(said, missing), messages(said, over)) == ([], [])
        wait_for(f"{kind} has the last route", lambda: last in other.table(), 30)
        missing, over = due - other.table().keys(), other.table().keys() - due
        assert (messages(said, missing), messages(said, over)) == ([], [])
        assert feed.ended() is None
        assert sessions(ours) == before


def messages(said, prefixes):
    return [(prefix, said[prefix][0].hex()) for prefix in sorted(prefixes)]


def sessions(ours):
    """How often the session with the neighbour was lost, and the NOTIFICATIONs in it."""
    neighbor = ours.neighbor(RIGHT.four)
    return neighbor["flaps"], neighbor["session"]["messages_received"]["notification"]
