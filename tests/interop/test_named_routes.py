"""OpenBGPD and ExaBGP beside ribtide: routes that their files name, with attributes of every kind, and how sessions end.
OpenBGPD has IPv4 alone here (harness/peers.py says why)."""

import re

import pytest

from harness import NOT_SHOWN, Exabgp, Openbgpd, Ribtide, Route, agree, blast, sent, wait_for
from harness.peers import LEFT, RIGHT, exabgp, openbgpd, ribtide, start, wait_count
from harness.table import family

LINK = '[bgp.group.link]\ntype = "external"\n'
KINDS = ["openbgpd", "exabgp"]
NETWORKS = f"""
network 192.0.2.0/24 set {{ metric 7 community 65001:1 community 65001:2 large-community 70000:2:3 }}
network 198.51.100.0/25 set {{ origin egp nexthop 10.255.0.77 }}
network 203.0.113.1/32 set {{ origin incomplete community GRACEFUL_SHUTDOWN }}
"""
FOUR = """static {
    route 192.0.2.0/24 next-hop self med 7 community [ 65001:1 65001:2 ] large-community [ 70000:2:3 ];
    route 198.51.100.0/25 next-hop 10.255.0.77 origin egp;
    route 203.0.113.1/32 next-hop self origin incomplete community [ 65535:0 ];
}"""
SIX = f"static {{ route 2001:db8:1::/48 next-hop self as-path [ {RIGHT.asn} 70000 7 7 ]; }}"


def expected(asn=RIGHT.asn):
    """What ribtide makes of the IPv4 routes."""
    return {
        "192.0.2.0/24": Route(str(asn), "igp", RIGHT.four, 7, 100, frozenset({"65001:1", "65001:2"}), frozenset({"70000:2:3"})),
        "198.51.100.0/25": Route(str(asn), "egp", "10.255.0.77"),
        "203.0.113.1/32": Route(str(asn), "incomplete", RIGHT.four, 0, 0, frozenset({"graceful-shutdown"})),
    }


def peer(kind, host, side=RIGHT, four="", six=""):
    """It sends the routes; `four` and `six` belong to its neighbors."""
    if kind == "openbgpd":
        return Openbgpd(host, openbgpd(side, four, NETWORKS))
    return Exabgp(host, exabgp(side, four + FOUR, six + SIX))


def established(ours, other, up=True):
    for mine, theirs in [(RIGHT.four, LEFT.four)] + [(RIGHT.six, LEFT.six)] * isinstance(other, Exabgp):
        wait_for(f"the session with {mine} is {'up' if up else 'down'}",
                 lambda: (ours.established(mine), other.established(theirs)) == (up, up), 60)


@pytest.mark.feature("routes to the peer")
@pytest.mark.parametrize("kind", KINDS)
def test_routes_to_the_peer(pair, kind):
    ours, other = Ribtide(pair.a, ribtide(LEFT)), start(kind, pair.b, RIGHT)
    established(ours, other)
    count = 300 + 200 * (kind == "exabgp")
    feed = blast(pair.a, 300, 200)
    wait_count(ours, 500)
    wait_count(other, count)
    agree({p: r for p, r in sent(ours.table(), LEFT).items() if kind == "exabgp" or ":" not in p}, other.table(), NOT_SHOWN)
    feed.stop()
    wait_count(other, 0)


@pytest.mark.feature("routes from the peer")
@pytest.mark.parametrize("kind", KINDS)
def test_routes_from_the_peer(pair, kind):
    ours, other = Ribtide(pair.a, ribtide(LEFT)), peer(kind, pair.b)
    established(ours, other)
    six = {"2001:db8:1::/48": Route(f"{RIGHT.asn} 70000 7 7", "igp", RIGHT.six)} if kind == "exabgp" else {}
    wait_count(ours, 3 + len(six))
    agree(expected() | six, ours.table(), NOT_SHOWN)
    other.kill()
    wait_count(ours, 0)


@pytest.mark.feature("shutdown with a text (RFC 9003)")
@pytest.mark.parametrize("kind", KINDS)
def test_shutdown(pair, kind):
    ours, other = Ribtide(pair.a, ribtide(LEFT)), start(kind, pair.b, RIGHT)
    established(ours, other)
    plain = ours.config.read_text()
    ours.config.write_text(plain.replace(LINK, LINK + 'shutdown = "back at ten"\n'))
    ours.text("reload")
    established(ours, other, up=False)
    # ExaBGP 4.2 does not show NOTIFICATIONs that it receives.
    if kind == "openbgpd":
        wait_for("OpenBGPD has the text", lambda: "back at ten" in other.query("show", "neighbor", LEFT.four), 20)
    ours.config.write_text(plain)
    ours.text("reload")
    established(ours, other)


@pytest.mark.feature("maximum prefixes (RFC 4486)")
@pytest.mark.parametrize("kind", KINDS)
def test_max_prefixes(pair, kind):
    ours = Ribtide(pair.a, ribtide(LEFT, "max-prefixes = { ipv4-unicast = 2 }"))
    other = peer(kind, pair.b)
    wait_for("the limit ends the IPv4 session", lambda: "prefixes" in ours.neighbor(RIGHT.four).get("last_down", ""), 60)
    wait_for("the peer's too", lambda: not other.established(LEFT.four), 60)
    if kind == "exabgp":
        wait_for("IPv6 is there", lambda: set(ours.table()) == {"2001:db8:1::/48"}, 60)
        assert not family(ours.table(), six=False)


@pytest.mark.feature("TCP-MD5 (RFC 2385)")
@pytest.mark.parametrize("kind", KINDS)
def test_tcp_md5(pair, kind):
    ours = Ribtide(pair.a, ribtide(LEFT, 'password = "right"'))
    key = {"openbgpd": "tcp md5sig password {}", "exabgp": 'md5-password "{}";'}[kind]
    other = peer(kind, pair.b, four=key.format("right"), six=key.format("wrong"))
    wait_count(ours, 3)
    assert other.established(LEFT.four) and not ours.established(RIGHT.six)


@pytest.mark.feature("GTSM (RFC 5082)")
@pytest.mark.parametrize("kind", KINDS)
def test_ttl_security(pair, kind):
    ours = Ribtide(pair.a, ribtide(LEFT, "ttl-security = 1"))
    setting = {"openbgpd": "ttl-security yes", "exabgp": "outgoing-ttl 255; incoming-ttl 255;"}[kind]
    peer(kind, pair.b, four=setting, six=setting)
    wait_for("the IPv4 routes are there", lambda: set(expected()) <= set(ours.table()), 60)


@pytest.mark.feature("2-octet AS numbers (RFC 6793)")
@pytest.mark.parametrize("kind", KINDS)
def test_two_octet_as(pair, kind):
    """The peer knows AS numbers of two octets alone: larger ones go by AS4_PATH."""
    ours = Ribtide(pair.a, ribtide(LEFT._replace(peer_asn=65010)))
    old = {"openbgpd": "announce as-4byte no", "exabgp": "capability { asn4 disable; }"}[kind]
    other = peer(kind, pair.b, RIGHT._replace(asn=65010), old, old)
    wait_for("the IPv4 routes are there", lambda: set(expected()) <= set(ours.table()), 60)
    assert not ours.session(RIGHT.four)["four_octet_as"]
    agree(expected(65010), family(ours.table(), six=False), NOT_SHOWN)
    blast(pair.a, 300, 0)
    wait_count(other, 300)
    mine = sent({p: r for p, r in ours.table().items() if p not in expected() and ":" not in p}, LEFT)
    assert any(int(asn) > 65535 for route in mine.values() for asn in re.findall(r"\d+", route.as_path))
    agree(mine, other.table(), NOT_SHOWN)


@pytest.mark.feature("graceful shutdown (RFC 8326)")
@pytest.mark.parametrize("kind", KINDS)
def test_graceful_shutdown(pair, kind):
    ours, other = Ribtide(pair.a, ribtide(LEFT, "graceful-shutdown = true")), start(kind, pair.b, RIGHT)
    blast(pair.a, 3, 0)
    wait_count(other, 3)
    assert all("65535:0" in route.communities for route in other.table().values())


@pytest.mark.feature("roles and OTC (RFC 9234)")
@pytest.mark.peers("openbgpd")
def test_roles(pair):
    """OpenBGPD is our customer: our role is provider, and OTC goes with what it gets."""
    ours = Ribtide(pair.a, ribtide(LEFT, 'role = "provider"'))
    other = Openbgpd(pair.b, openbgpd(RIGHT, "announce policy customer"))
    wait_for("the session is up", lambda: ours.established(RIGHT.four), 60)
    assert "provider" in ours.text("show", "bgp", "neighbor", RIGHT.four)
    blast(pair.a, 3, 0)
    wait_count(other, 3)
    assert other.query("show", "rib", "selected", "detail").count("OTC: 65001") == 3
