"""Confederations (RFC 5065): ribtide, FRR and BIRD in the same place, as member 65001 of the confederation 100, with a
neighbour in member 65002 and one outside."""

import struct

import pytest

from harness import Bird, Frr, Gobgp, Host, Pair, Ribtide, wait_for
from harness.speaker import UPDATE, Speaker, attribute, communities, raw_update, update

IDENTIFIER, OURS, MEMBER, OTHER_MEMBER, OUTSIDE = 100, 65001, 65002, 65003, 64600
FEED, OTHER_FEED = Host.FEEDS
NO_EXPORT, NO_EXPORT_SUBCONFED = (0xffff, 0xff01), (0xffff, 0xff03)
SEQUENCE, CONFED_SEQUENCE = 2, 3


def ribtide_config():
    return f"""
[router]
asn = {OURS}
router-id = "{Pair.A4}"

[bgp]
listen = ["[::]:179"]

[bgp.confederation]
identifier = {IDENTIFIER}
members = [{MEMBER}, {OTHER_MEMBER}]

[bgp.group.members]
type = "confederation"
families = ["ipv4-unicast"]
connect-retry = 1
neighbor = [
    {{ address = "{Pair.B4}", peer-asn = {MEMBER} }},
    {{ address = "{OTHER_FEED}", peer-asn = {OTHER_MEMBER}, passive = true }},
]

[bgp.group.outside]
type = "external"
peer-asn = {OUTSIDE}
families = ["ipv4-unicast"]
passive = true
import = ["accept"]
export = ["accept"]
neighbors = ["{FEED}"]
"""


def frr_config(asn, router_id, other, more=""):
    return f"""hostname bgpd
router bgp {asn}
 bgp router-id {router_id}
 bgp confederation identifier {IDENTIFIER}
 bgp confederation peers {MEMBER if asn == OURS else OURS} {OTHER_MEMBER}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor {other} remote-as {MEMBER if asn == OURS else OURS}
 neighbor {other} timers connect 1
 neighbor {other} disable-connected-check
{more}"""


def bird_config(asn, router_id, other, more=""):
    return f"""
router id {router_id};
log stderr all;
protocol device {{}}
protocol bgp inside {{
    local {router_id} as {asn};
    neighbor {other} as {MEMBER if asn == OURS else OURS};
    confederation {IDENTIFIER};
    confederation member yes;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export all; gateway recursive; }};
}}
{more}"""


def ours(kind, host):
    if kind == "ribtide":
        return Ribtide(host, ribtide_config())
    if kind == "frr":
        outside = f" neighbor {FEED} remote-as {OUTSIDE}\n neighbor {FEED} passive\n"
        return Frr(host, bgpd=frr_config(OURS, Pair.A4, Pair.B4, outside))
    return Bird(host, bird_config(OURS, Pair.A4, Pair.B4, f"""
protocol bgp outside {{
    local as {OURS};
    neighbor {FEED} as {OUTSIDE};
    confederation {IDENTIFIER};
    passive;
    ipv4 {{ import all; export all; }};
}}
"""))


#: The routes of the neighbour in member 65002: one of its own, one of AS 7 behind it, one that may not leave, a loop.
ROUTES = {"203.0.0.0/24": ([], ""), "203.0.1.0/24": ([7], ""), "203.0.2.0/24": ([], "65535,65281"),
          "203.0.3.0/24": ([IDENTIFIER], "")}


def gobgp_member(host):
    speaker = Gobgp(host, f"""
[global.config]
  as = {MEMBER}
  router-id = "{Pair.B4}"
[global.confederation.config]
  enabled = true
  identifier = {IDENTIFIER}
  member-as-list = [{OURS}, {OTHER_MEMBER}]
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{Pair.A4}"
    peer-as = {OURS}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
""")
    for prefix, (path, marks) in ROUTES.items():
        more = [*(["aspath", " ".join(map(str, path))] if path else []), *(["community", "no-export"] if marks else [])]
        speaker.query("global", "rib", "add", "-a", "ipv4", prefix, *more, "local-pref", "150", "med", "5")
    return speaker


def member(kind, host):
    if kind == "gobgp":
        return gobgp_member(host)
    if kind == "frr":
        networks = "".join(f"  network {prefix} route-map r{n}\n" for n, prefix in enumerate(ROUTES))
        maps = "".join(f"route-map r{n} permit 10\n set local-preference 150\n set metric 5\n"
                       + "".join(f" set as-path prepend {a}\n" for a in path) + (" set community no-export\n" if c else "")
                       for n, (path, c) in enumerate(ROUTES.values()))
        text = frr_config(MEMBER, Pair.B4, Pair.A4, " address-family ipv4 unicast\n" + networks + " exit-address-family\n")
        return Frr(host, bgpd=text + maps)
    routes = "".join(
        f"    route {prefix} blackhole {{ bgp_local_pref = 150; bgp_med = 5; bgp_path = +empty+; "
        + "".join(f"bgp_path.prepend({a}); " for a in path) + (f"bgp_community.add(({c})); " if c else "") + "};\n"
        for prefix, (path, c) in ROUTES.items())
    return Bird(host, bird_config(MEMBER, Pair.B4, Pair.A4, f"protocol static {{\n    ipv4;\n{routes}}}\n"))


def routes_of(speaker, base):
    return {prefix: (route.as_path, route.local_pref, route.med, route.next_hop)
            for prefix, route in speaker.table().items() if prefix.startswith(base)}


def path_of(body):
    """AS_PATH of an UPDATE as segments, and its other attributes by code; None without routes."""
    withdrawn = struct.unpack("!H", body[:2])[0]
    size = struct.unpack("!H", body[2 + withdrawn:4 + withdrawn])[0]
    block, found = body[4 + withdrawn:4 + withdrawn + size], {}
    while block:
        flags, code = block[:2]
        length, start = (struct.unpack("!H", block[2:4])[0], 4) if flags & 0x10 else (block[2], 3)
        found[code], block = block[start:start + length], block[start + length:]
    path, rest = [], found.pop(2, b"")
    while rest:
        kind, count = rest[:2]
        path.append((kind, list(struct.unpack(f"!{count}I", rest[2:2 + 4 * count]))))
        rest = rest[2 + 4 * count:]
    return path, found, body[4 + withdrawn + size:]


def heard(feed, prefixes):
    """What the speaker outside gets, until it has these prefixes: prefix → (path, attributes)."""
    got = {}
    while not prefixes <= got.keys():
        message = feed.read(30)
        assert message is not None
        if message[0] != UPDATE:
            continue
        path, attributes, nlri = path_of(message[1])
        while nlri:
            size = (nlri[0] + 7) // 8
            address = ".".join(str(b) for b in nlri[1:1 + size].ljust(4, b"\0"))
            got[f"{address}/{nlri[0]}"] = (path, attributes)
            nlri = nlri[1 + size:]
    return got


@pytest.mark.feature("confederations (RFC 5065)")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("kind", ["ribtide", "frr", "bird"])
def test_paths_inside_and_outside(pair, kind):
    router, bird = ours(kind, pair.a), member("bird", pair.b)
    expect(pair, router, bird)


@pytest.mark.feature("confederations (RFC 5065)")
@pytest.mark.parametrize("kind", ["frr", "gobgp"])
def test_another_member(pair, kind):
    # GoBGP sends other members no LOCAL_PREF.
    expect(pair, ours("ribtide", pair.a), member(kind, pair.b), 100 if kind == "gobgp" else 150)


def expect(pair, router, other, preference=150):
    feed = Speaker(pair.a, FEED, OUTSIDE)
    med = attribute(0x80, 4, b"\0\0\0\7")
    feed.send(update(["198.51.0.0/24"], [OUTSIDE, 9], FEED, med))
    feed.send(update(["198.51.1.0/24"], [OUTSIDE, 9], FEED, med, communities([NO_EXPORT])))
    feed.send(update(["198.51.2.0/24"], [OUTSIDE, 9], FEED, med, communities([NO_EXPORT_SUBCONFED])))
    feed.send(update(["198.51.3.0/24"], [OUTSIDE, IDENTIFIER], FEED, med))
    inside = {f"198.51.{n}.0/24": ("(65001) 64600 9", 100, 7, FEED) for n in (0, 1)}
    wait_for("the other member has the routes", lambda: len(routes_of(other, "198.51")) == 2, 40)
    assert routes_of(other, "198.51") == inside
    known = {"203.0.0.0/24": "(65002)", "203.0.1.0/24": "(65002) 7", "203.0.2.0/24": "(65002)"}
    expected = {prefix: (path, preference, 5, Pair.B4) for prefix, path in known.items()}
    if isinstance(router, Bird):
        # BIRD 2.0.12 takes the identifier for no loop in a path from inside.
        expected["203.0.3.0/24"] = ("(65002) 100", 150, 5, Pair.B4)
    wait_for("its routes are there", lambda: len(routes_of(router, "203.0")) == len(expected), 40)
    assert routes_of(router, "203.0") == expected
    got = heard(feed, {"203.0.0.0/24", "203.0.1.0/24"})
    paths = {prefix: path for prefix, (path, _) in got.items() if prefix in known or prefix == "203.0.2.0/24"}
    assert paths == {"203.0.0.0/24": [(SEQUENCE, [100])], "203.0.1.0/24": [(SEQUENCE, [100, 7])]}
    for _, attributes in got.values():
        assert 5 not in attributes and 4 not in attributes, "neither LOCAL_PREF nor MED leaves"


def test_malformed_paths_are_refused(pair):
    router = Ribtide(pair.a, ribtide_config())

    def announce(speaker, prefix, path):
        value = b"".join(struct.pack("!BB", kind, len(asns)) + b"".join(struct.pack("!I", a) for a in asns)
                         for kind, asns in path)
        hop = attribute(0x40, 3, bytes(map(int, FEED.split("."))))
        local_pref = attribute(0x40, 5, b"\0\0\0\x64")
        number = prefix.split("/")[0].split(".")[:3]
        speaker.send(raw_update(b"", attribute(0x40, 1, b"\0") + attribute(0x40, 2, value) + hop + local_pref,
                                b"\x18" + bytes(map(int, number))))

    inside, outside = Speaker(pair.a, OTHER_FEED, OTHER_MEMBER), Speaker(pair.a, FEED, OUTSIDE)
    announce(inside, "203.0.0.0/24", [(CONFED_SEQUENCE, [OTHER_MEMBER]), (SEQUENCE, [7])])
    announce(inside, "203.0.1.0/24", [(SEQUENCE, [OTHER_MEMBER, 7])])
    announce(inside, "203.0.2.0/24", [(CONFED_SEQUENCE, [OTHER_MEMBER, OURS])])
    announce(outside, "203.0.3.0/24", [(CONFED_SEQUENCE, [OUTSIDE]), (SEQUENCE, [7])])
    announce(outside, "203.0.4.0/24", [(SEQUENCE, [OUTSIDE, 7])])
    wait_for("two are there", lambda: router.table().keys() == {"203.0.0.0/24", "203.0.4.0/24"}, 20)
    counters = router.session(OTHER_FEED)["counters"]
    assert (counters["first_as"], counters["loops"]) == (1, 1)
    assert router.session(FEED)["counters"]["treated_as_withdraw"] == 1
    assert router.neighbor(OTHER_FEED)["kind"] == "confederation"
