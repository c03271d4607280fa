"""AS numbers in paths: ribtide and FRR in the same place with corresponding settings must show the same paths to
their neighbour, BIRD, and in their own table."""

import pytest

from harness import Bird, Frr, Host, Pair, Ribtide, wait_for
from harness.peers import Side, configured
from harness.speaker import Speaker, attribute, update

#: Our AS, our other one, the neighbour's, and that of a feed.
OURS, OTHER, THEIRS, FEED_AS = 65001, 65010, 65020, 64600
FEED = Host.FEEDS[0]


def ribtide_config(settings, kind="external", asn=THEIRS):
    return f"""
[router]
asn = {OURS}
router-id = "{Pair.A4}"

[bgp]
listen = ["[::]:179"]

[bgp.group.feed]
type = "external"
peer-asn = {FEED_AS}
passive = true
import = ["accept"]
export = ["reject"]
neighbors = ["{FEED}"]

[bgp.group.link]
type = "{kind}"
peer-asn = {asn}
families = ["ipv4-unicast"]
import = ["accept"]
export = ["accept"]
connect-retry = 1
{settings}
neighbors = ["{Pair.B4}"]
"""


def frr_config(settings):
    lines = "".join(f" neighbor {Pair.B4} {line}\n" for line in settings)
    return f"""hostname bgpd
ip prefix-list none deny any
router bgp {OURS}
 bgp router-id {Pair.A4}
 no bgp ebgp-requires-policy
 neighbor {Pair.B4} remote-as {THEIRS}
 neighbor {Pair.B4} timers connect 1
 neighbor {FEED} remote-as {FEED_AS}
 neighbor {FEED} passive
{lines} address-family ipv4 unicast
  neighbor {FEED} prefix-list none out
 exit-address-family
"""


def bird_config(ours, paths, asn=THEIRS):
    """A neighbour that shows paths with its own AS too, and announces these behind its own AS."""
    routes = "".join(
        f'    route {prefix} blackhole {{ bgp_path = +empty+; {"".join(f"bgp_path.prepend({a});" for a in reversed(path))} }};\n'
        for prefix, path in paths.items())
    return f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol static {{
    ipv4;
{routes}}}
protocol bgp peer {{
    local {Pair.B4} as {asn};
    neighbor {Pair.A4} as {ours};
    allow local as 10;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export all; next hop self; }};
}}
"""


def numbered(base, paths):
    return {f"{base}.{n}.0/24": path for n, path in enumerate(paths)}


def paths_of(speaker, base):
    return {prefix: route.as_path for prefix, route in speaker.table().items() if prefix.startswith(base)}


def shows(speaker, base, expected):
    """Waits until the speaker has these paths; `None` is a prefix that it has not."""
    table = {prefix: path for prefix, path in numbered(base, expected).items() if path is not None}
    wait_for(f"{type(speaker).__name__} shows {table}", lambda: paths_of(speaker, base) == table, 30)


#: Of each case: the settings, the AS that the neighbour knows us by, paths of the feed with what the neighbour sees, paths
#: of the neighbour with what we see.
CASES = {
    "none": (
        "", [], OURS,
        {(9,): "65001 64600 9"},
        {(7,): "65020 7", (7, OURS): None, (OTHER,): "65020 65010"}),
    "local-as": (
        f"local-as = {OTHER}", [f"local-as {OTHER}"], OTHER,
        {(9,): "65010 65001 64600 9"},
        {(7,): "65010 65020 7", (7, OURS): None, (OTHER, 7): None}),
    "no-prepend": (
        f"local-as = {{ asn = {OTHER}, prepend = false }}", [f"local-as {OTHER} no-prepend"], OTHER,
        {(9,): "65010 65001 64600 9"},
        {(7,): "65020 7", (7, OURS): None, (OTHER, 7): None}),
    "replace-as": (
        f"local-as = {{ asn = {OTHER}, prepend = false, replace = true }}", [f"local-as {OTHER} no-prepend replace-as"], OTHER,
        {(9,): "65010 64600 9"},
        {(7,): "65020 7", (7, OURS): None, (OTHER, 7): None}),
    "allowas-in": (
        "allowas-in = 2", ["allowas-in 2"], OURS,
        {(9,): "65001 64600 9"},
        {(OURS,): "65020 65001", (OURS, 7, OURS): "65020 65001 7 65001", (OURS, OURS, OURS): None}),
    "as-override": (
        "as-override = true", ["as-override"], OURS,
        {(THEIRS, 9, THEIRS): "65001 64600 65001 9 65001", (9,): "65001 64600 9"},
        {(7,): "65020 7"}),
    "remove-private-as": (
        "remove-private-as = true", ["remove-private-AS"], OURS,
        # FRR 8.4 takes 65535 for private, too, which RFC 7300 reserves.
        {(64512, 65534, 4200000000, 4294967294): "65001", (9, 64513): "65001 64600 9 64513"},
        {(64512,): "65020 64512"}),
    "remove-private-as-replace": (
        "remove-private-as = { replace = true }", ["remove-private-AS replace-AS"], OURS,
        {(64512,): "65001 65001 65001", (9, 64513): "65001 64600 9 64513"},
        {}),
    "remove-private-as-all": (
        "remove-private-as = { all = true }", ["remove-private-AS all"], OURS,
        {(64512, 9, 64513): "65001 9", (THEIRS, 9): "65001 65020 9"},
        {}),
    "remove-private-as-all-replace": (
        "remove-private-as = { all = true, replace = true }", ["remove-private-AS all replace-AS"], OURS,
        {(64512, 9, THEIRS): "65001 65001 65001 9 65020"},
        {}),
}


@pytest.mark.feature("local-as, allowas-in, as-override, remove-private-as")
@pytest.mark.peers("bird", "frr")
@pytest.mark.parametrize("kind", ["ribtide", "frr"])
@pytest.mark.parametrize("case", CASES)
def test_paths_are_those_of_frr(pair, case, kind):
    settings, lines, known_as, sent, received = CASES[case]
    ours = Ribtide(pair.a, ribtide_config(settings)) if kind == "ribtide" else Frr(pair.a, bgpd=frr_config(lines))
    bird = Bird(pair.b, bird_config(known_as, numbered("203.0", received)))
    feed = Speaker(pair.a, FEED, FEED_AS)
    for prefix, path in numbered("198.51", sent).items():
        feed.send(update([prefix], [FEED_AS, *path], FEED))
    shows(bird, "198.51", sent.values())
    shows(ours, "203.0", received.values())


@pytest.mark.feature("local-as, allowas-in, as-override, remove-private-as")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("known_as", [OURS, OTHER])
def test_dual_local_as_is_either_for_the_neighbour(pair, known_as):
    """BIRD refuses the first OPEN with Bad Peer AS where it knows us by our other AS (RFC 7705 section 4.2)."""
    ours = Ribtide(pair.a, ribtide_config(f"local-as = {{ asn = {OTHER}, dual = true }}"))
    bird = Bird(pair.b, bird_config(known_as, numbered("203.0", [(7,)])))
    feed = Speaker(pair.a, FEED, FEED_AS)
    feed.send(update(["198.51.0.0/24"], [FEED_AS, 9], FEED))
    prepended = "" if known_as == OURS else f"{OTHER} "
    shows(ours, "203.0", [f"{prepended}65020 7"])
    shows(bird, "198.51", [f"{prepended}65001 64600 9"])
    assert ours.session(Pair.B4)["local_asn"] == known_as
    shown = ours.text("show", "bgp", "neighbor", Pair.B4)
    assert f"AS numbers: local-as {OTHER} (prepend true, replace false, dual true)" in shown and f", AS {known_as}," in shown


@pytest.mark.feature("local-as, allowas-in, as-override, remove-private-as")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("known_as", [OURS, OTHER])
def test_local_as_of_an_internal_neighbour_is_either(pair, known_as):
    """A neighbour that is in our other AS still, and one that is in ours already, are both internal."""
    ours = Ribtide(pair.a, ribtide_config(f"local-as = {OTHER}", "internal", OURS))
    bird = Bird(pair.b, bird_config(known_as, numbered("203.0", [(7,)]), known_as))
    feed = Speaker(pair.a, FEED, FEED_AS)
    feed.send(update(["198.51.0.0/24"], [FEED_AS, 9], FEED, attribute(0x80, 4, b"\0\0\0\7")))
    shows(ours, "203.0", ["7"])
    shows(bird, "198.51", ["64600 9"])
    route = bird.table()["198.51.0.0/24"]
    assert (route.next_hop, route.med, route.local_pref) == (FEED, 7, 100)
    assert ours.neighbor(Pair.B4)["kind"] == "internal"


@pytest.mark.feature("local-as, allowas-in, as-override, remove-private-as")
@pytest.mark.peers("bird")
def test_as_numbers_obey_a_reload(pair):
    ours = Ribtide(pair.a, ribtide_config("# rules"))
    bird = Bird(pair.b, bird_config(OURS, numbered("203.0", [(7, OURS)])))
    feed = Speaker(pair.a, FEED, FEED_AS)
    feed.send(update(["198.51.0.0/24"], [FEED_AS, 9, THEIRS], FEED))
    shows(bird, "198.51", ["65001 64600 9 65020"])
    shows(ours, "203.0", [None])
    text = ours.config.read_text()
    rules = "allowas-in = 1\nas-override = true\nremove-private-as = { all = true }"
    for config, sent, received in [(text.replace("# rules", rules), "65001 9 65001", "65020 7 65001"),
                                   (text, "65001 64600 9 65020", None)]:
        ours.config.write_text(config)
        assert f"refreshed: {Pair.B4}" in ours.text("reload")
        shows(bird, "198.51", [sent])
        shows(ours, "203.0", [received])
    assert ours.neighbor(Pair.B4)["flaps"] == 0


#: How a neighbour is told to take paths with its own AS; ExaBGP takes every path.
OWN_AS = {"gobgp": "  [neighbors.as-path-options.config]\n    allow-own-as = 10", "openbgpd": "enforce local-as no", "exabgp": ""}


@pytest.mark.feature("local-as, allowas-in, as-override, remove-private-as")
@pytest.mark.parametrize("kind", OWN_AS)
@pytest.mark.parametrize("local_as", [False, True])
def test_paths_that_other_kinds_get(pair, kind, local_as):
    """Each rule after the other by reload, with our AS or another one; and the check of the first AS in the other direction."""
    known_as = OTHER if local_as else OURS
    settings = f"local-as = {{ asn = {OTHER}, prepend = true, replace = true }}\n" if local_as else ""
    ours = Ribtide(pair.a, ribtide_config(f"{settings}# rules"))
    side = Side(THEIRS, Pair.B4, Pair.B6, known_as, Pair.A4, Pair.A6)
    other = configured(kind, pair.b, side, OWN_AS[kind], {"203.0.0.0/24": []})
    feed = Speaker(pair.a, FEED, FEED_AS)
    feed.send(update(["198.51.0.0/24"], [FEED_AS, 9, THEIRS], FEED))
    shows(ours, "203.0", [f"{OTHER} {THEIRS}" if local_as else f"{THEIRS}"])
    shows(other, "198.51", [f"{known_as} {FEED_AS} 9 {THEIRS}"])
    text = ours.config.read_text()
    for rules, path in [("as-override = true", f"{FEED_AS} 9 {OURS}"), ("remove-private-as = { all = true }", f"9 {THEIRS}"),
                        ("remove-private-as = { all = true, replace = true }", f"{OURS} 9 {THEIRS}")]:
        ours.config.write_text(text.replace("# rules", rules))
        assert f"refreshed: {Pair.B4}" in ours.text("reload")
        shows(other, "198.51", [f"{known_as} {path.replace(str(OURS), str(known_as))}"])
    assert ours.neighbor(Pair.B4)["flaps"] == 0
