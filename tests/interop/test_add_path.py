"""Add-path (RFC 7911) beside BIRD, FRR and GoBGP: the other has routes of four external speakers and
sends all paths in one internal session. ribtide has exactly those, after random histories."""

import random

import pytest
from harness import Bird, Frr, Gobgp, Host, Openbgpd, Pair, Ribtide, wait_for
from harness.peers import Side, openbgpd
from harness.speaker import KEEPALIVE, Speaker, attribute, message, prefixes, raw_update, update

ASN = 65001
#: The speakers' addresses on the feeds' link, each with an AS of its own. Next hops are their addresses.
SOURCES = {f"198.19.0.{n}": 65100 + n for n in (11, 12, 13, 14)}
PREFIXES = [f"10.{n}.0.0/16" for n in range(12)]

BIRD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp four {{
    local as {ASN};
    neighbor {Pair.A4} as {ASN};
    rr client;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import none; export all; add paths tx; }};
}}
""" + "".join(f"""
protocol bgp source{n} {{
    local as {ASN};
    neighbor {address} as {asn};
    passive;
    ipv4 {{ import all; export none; }};
}}
""" for n, (address, asn) in enumerate(SOURCES.items()))

FRR = f"""hostname bgpd
ip prefix-list none deny any
router bgp {ASN}
 bgp router-id {Pair.B4}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor {Pair.A4} remote-as {ASN}
 neighbor {Pair.A4} timers connect 1
""" + "".join(f" neighbor {address} remote-as {asn}\n neighbor {address} passive\n" for address, asn in SOURCES.items()) + f"""
 address-family ipv4 unicast
  neighbor {Pair.A4} addpath-tx-all-paths
""" + "".join(f"  neighbor {address} prefix-list none out\n" for address in SOURCES) + " exit-address-family\n"

GOBGP = f"""
[global.config]
  as = {ASN}
  router-id = "{Pair.B4}"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{Pair.A4}"
    peer-as = {ASN}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
    [neighbors.afi-safis.add-paths.config]
      send-max = 16
""" + "".join(f"""
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {asn}
  [neighbors.transport.config]
    passive-mode = true
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
""" for address, asn in SOURCES.items())


def ribtide(add_path="add-path = { receive = true }"):
    return f"""
[router]
asn = {ASN}
router-id = "{Pair.A4}"

[bgp]
listen = ["[::]:179"]

[bgp.group.inside]
type = "internal"
connect-retry = 1
families = ["ipv4-unicast"]
{add_path}
neighbors = ["{Pair.B4}"]
"""


def start(kind, host):
    if kind == "bird":
        return Bird(host, BIRD)
    if kind == "frr":
        return Frr(host, bgpd=FRR)
    return Gobgp(host, GOBGP)


def paths(router):
    """Prefix → next hops of its paths, sorted."""
    return {route["prefix"]: sorted(path["next_hop"] for path in route["paths"]) for route in router.show("route")}


class History:
    """What the speakers have announced."""

    def __init__(self, host, seed):
        for address in SOURCES:
            host.feeds.address("feed0", f"{address}/24")
        self.host, self.random = host, random.Random(seed)
        # GoBGP ends a session without a hold time at its first message.
        self.speakers = {address: Speaker(host, address, asn, hold=90) for address, asn in SOURCES.items()}
        self.table = {}

    def announce(self, source, prefix):
        # Another MED or AS path for the same prefix replaces the path.
        path = [SOURCES[source]] * self.random.randint(1, 3)
        med = attribute(0x80, 4, self.random.randint(0, 9).to_bytes(4, "big"))
        self.speakers[source].send(update([prefix], path, source, med))
        self.table.setdefault(prefix, set()).add(source)

    def withdraw(self, source, prefix):
        self.speakers[source].send(raw_update(withdrawn=prefixes([prefix])))
        self.table.get(prefix, set()).discard(source)

    def go_on(self, steps):
        for _ in range(steps):
            change = self.announce if self.random.random() < 0.6 else self.withdraw
            change(self.random.choice(list(SOURCES)), self.random.choice(PREFIXES))

    def expected(self):
        for speaker in self.speakers.values():
            speaker.send(message(KEEPALIVE))
        return {prefix: sorted(sources) for prefix, sources in self.table.items() if sources}


@pytest.mark.long
@pytest.mark.feature("several paths of a prefix, received (RFC 7911)")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_all_paths_of_another(pair, kind):
    router = Ribtide(pair.a, ribtide())
    start(kind, pair.b)
    wait_for("the session", lambda: router.established(Pair.B4), 60, alive=[router.process])
    assert router.session(Pair.B4)["add_path_receive"] == ["ipv4-unicast"]
    history = History(pair.b, kind)

    def same():
        wait_for("ribtide has exactly the paths", lambda: paths(router) == history.expected(), 30, 0.2)

    for _ in range(8):
        history.go_on(60)
        same()
    # All paths are of one session, and only their identifiers tell them apart.
    several = max(router.show("route"), key=lambda route: len(route["paths"]))
    assert len(several["paths"]) > 1, several
    assert {path["neighbor"] for path in several["paths"]} == {Pair.B4}
    ids = [path["path_id"] for path in several["paths"]]
    assert len(set(ids)) == len(ids)
    assert [path["best"] for path in several["paths"]].count(True) == 1
    assert f"{Pair.B4} (path {ids[0]})" in router.text("show", "route", several["prefix"])
    assert f"from {Pair.B4} (path {ids[1]})" in router.text("explain", several["prefix"])
    assert router.session(Pair.B4)["accepted"]["ipv4"] == sum(map(len, history.expected().values()))
    # A source goes, with all of its paths and no other.
    gone = next(iter(SOURCES))
    history.speakers.pop(gone).close()
    for sources in history.table.values():
        sources.discard(gone)
    same()
    # The session ends and begins again.
    router.text("clear", "bgp", "neighbor", Pair.B4)
    wait_for("the session is back", lambda: router.established(Pair.B4), 60)
    same()
    # Routes that are sent again on request change nothing.
    router.text("clear", "bgp", "neighbor", Pair.B4, "soft")
    same()


@pytest.mark.feature("several paths of a prefix, received (RFC 7911)")
@pytest.mark.peers("bird")
def test_reload_and_maximum(pair):
    """Without add-path there is one path for each prefix; a reload makes a new session with all. The
    maximum of prefixes counts paths."""
    router = Ribtide(pair.a, ribtide(""))
    Bird(pair.b, BIRD)
    wait_for("the session", lambda: router.established(Pair.B4), 60, alive=[router.process])
    history = History(pair.b, "reload")
    for source in SOURCES:
        for prefix in PREFIXES:
            history.announce(source, prefix)
    wait_for("one path for each", lambda: [len(hops) for hops in paths(router).values()] == [1] * len(PREFIXES), 30)
    assert "add_path_receive" not in router.session(Pair.B4)
    assert all("path_id" not in path for route in router.show("route") for path in route["paths"])

    def reload(more):
        router.config.write_text(ribtide(more) + f'\n[api]\nsocket = "{router.socket}"\n')
        router.text("reload")

    reload("add-path = { receive = true }")
    wait_for("all paths", lambda: paths(router) == history.expected(), 30)
    all_paths = len(SOURCES) * len(PREFIXES)
    reload(f'add-path = {{ receive = true }}\nmax-prefixes = {{ ipv4-unicast = {all_paths}, action = "restart" }}')
    wait_for("all paths again", lambda: paths(router) == history.expected(), 30)
    def counted():
        [limit] = router.neighbor(Pair.B4)["max_prefixes"]
        return limit["count"], limit["max"], limit["exceeded"]

    wait_for("all paths are counted", lambda: counted() == (all_paths, all_paths, 0), 30)
    # A path that replaces another is no further one.
    for source in SOURCES:
        history.announce(source, PREFIXES[0])
    history.withdraw(next(iter(SOURCES)), PREFIXES[1])
    wait_for("one less", lambda: paths(router) == history.expected(), 30)
    assert counted()[0] == all_paths - 1
    history.announce(next(iter(SOURCES)), PREFIXES[1])
    history.announce(next(iter(SOURCES)), "10.200.0.0/16")
    wait_for("the limit ended the session", lambda: router.neighbor(Pair.B4)["state"] == "Idle (maximum prefixes)", 30)


@pytest.mark.feature("several paths of a prefix, received (RFC 7911)")
@pytest.mark.peers("openbgpd")
def test_paths_of_openbgpd(pair):
    """They come and go one by one; a path identifier is used again for another path."""
    sources = "".join(f"neighbor {address} {{\n  remote-as {asn}\n  passive\n  export none\n}}\n" for address, asn in SOURCES.items())
    text = openbgpd(Side(ASN, Pair.B4, Pair.B6, ASN, Pair.A4, Pair.A6), "announce add-path send all", sources)
    feeds = text[text.index('group "feeds"'):text.index("allow from any")]
    router = Ribtide(pair.a, ribtide())
    Openbgpd(pair.b, f"listen on {Host.FEED_SIDE}\n" + text.replace(feeds, ""))
    wait_for("the session", lambda: router.established(Pair.B4), 30, alive=[router.process])
    assert router.session(Pair.B4)["add_path_receive"] == ["ipv4-unicast"]
    history = History(pair.b, "openbgpd")
    for source in SOURCES:
        for prefix in PREFIXES:
            history.announce(source, prefix)
    wait_for("all paths", lambda: paths(router) == history.expected(), 30)
    for _ in range(3):
        history.go_on(40)
        wait_for("exactly the paths", lambda: paths(router) == history.expected(), 30, 0.2)


BIRD_SIX = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp six {{
    local as {ASN};
    neighbor {Pair.A6} as {ASN};
    rr client;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv6 {{ import none; export all; next hop keep; add paths tx; }};
}}
""" + "".join(f"""
protocol static static{n} {{
    ipv6;
    route fd00:1::/48 via fd00:193::{n};
    route fd00:{n}0::/32 via fd00:193::{n};
}}
""" for n in (1, 2, 3))


@pytest.mark.feature("several paths of a prefix, received (RFC 7911)")
@pytest.mark.peers("bird")
def test_ipv6(pair):
    """Path identifiers in MP_REACH_NLRI and MP_UNREACH_NLRI."""
    config = ribtide().replace("ipv4-unicast", "ipv6-unicast").replace(Pair.B4, Pair.B6)
    router = Ribtide(pair.a, config)
    other = Bird(pair.b, BIRD_SIX)
    wait_for("the session", lambda: router.established(Pair.B6), 60, alive=[router.process])
    assert router.session(Pair.B6)["add_path_receive"] == ["ipv6-unicast"]
    for up in [(1, 2, 3), (1, 3), (3,), (), (2,), (1, 2, 3)]:
        for n in (1, 2, 3):
            other.query(f"{'enable' if n in up else 'disable'} static{n}")
        expected = {f"fd00:{n}0::/32": [f"fd00:193::{n}"] for n in up}
        if up:
            expected["fd00:1::/48"] = [f"fd00:193::{n}" for n in up]
        wait_for(f"the paths of {up}", lambda: paths(router) == expected, 30, 0.2)
