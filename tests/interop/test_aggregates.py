"""Routes that depend on others: aggregates, default routes of neighbours, conditional advertisement. ribtide and FRR stand in
the same place, with corresponding settings and the same feed; their neighbour, BIRD, must get the same routes."""

import json
import re

import pytest

from harness import Bird, Frr, Host, Pair, Ribtide, wait_for
from harness.speaker import Speaker, prefixes, raw_update, update

OURS, THEIRS, FEED_AS = 65001, 65002, 64600
FEED = Host.FEEDS[0]

MORE = ["10.1.0.0/24", "10.1.1.0/24"]
OTHER = ["192.0.2.0/24"]


def ribtide_config(link="", rest="", fib=""):
    return f"""
[router]
asn = {OURS}
router-id = "{Pair.A4}"
{fib}
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
type = "external"
peer-asn = {THEIRS}
families = ["ipv4-unicast"]
import = ["accept"]
export = ["{'link' if 'definition.link' in rest else 'accept'}"]
connect-retry = 1
{link}
neighbors = ["{Pair.B4}"]
{rest}
"""


def frr_config(link=(), rest=(), lists=""):
    return f"""hostname bgpd
ip prefix-list none deny any
{lists}
router bgp {OURS}
 bgp router-id {Pair.A4}
 no bgp ebgp-requires-policy
 bgp conditional-advertisement timer 5
 neighbor {Pair.B4} remote-as {THEIRS}
 neighbor {Pair.B4} timers connect 1
 neighbor {FEED} remote-as {FEED_AS}
 neighbor {FEED} passive
 address-family ipv4 unicast
  neighbor {FEED} prefix-list none out
{"".join(f"  neighbor {Pair.B4} {line}{chr(10)}" for line in link)}{"".join(f"  {line}{chr(10)}" for line in rest)} exit-address-family
"""


def bird(pair):
    return Bird(pair.b, f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp peer {{
    local {Pair.B4} as {THEIRS};
    neighbor {Pair.A4} as {OURS};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export none; }};
}}
""")


def announce(feed, *routes):
    feed.send(update(routes, [FEED_AS], FEED))


def withdraw(feed, *routes):
    feed.send(raw_update(prefixes(routes)))


def gets(peer, *expected):
    wait_for(f"BIRD has {sorted(expected)}", lambda: peer.table().keys() == set(expected), 60)


PREFIX_LISTS = """ip prefix-list upstream permit 192.0.2.0/24
ip prefix-list some permit 10.1.0.0/16 ge 24
route-map upstream permit 10
 match ip address prefix-list upstream
route-map some permit 10
 match ip address prefix-list some
"""

SETS = """
[policy.prefix-set.upstream]
prefixes = ["192.0.2.0/24"]
[policy.prefix-set.some]
prefixes = ["10.1.0.0/16 24..32"]
"""


def statements(condition):
    return SETS + f"""
[[policy.definition.link.statement]]
conditions.match-prefix-set = "some"
conditions.{condition} = "upstream"
actions.policy-result = "reject"
[[policy.definition.link.statement]]
actions.policy-result = "accept"
"""


def ours(pair, kind, ribtide, frr):
    return Ribtide(pair.a, ribtide_config(**ribtide)) if kind == "ribtide" else Frr(pair.a, bgpd=frr_config(**frr))


@pytest.mark.feature("aggregates (RFC 4271 section 9.2.2.2)")
@pytest.mark.peers("bird", "frr")
@pytest.mark.parametrize("kind", ["ribtide", "frr"])
@pytest.mark.parametrize("only", [True, False])
def test_aggregates_are_those_of_frr(pair, kind, only):
    ours(pair, kind,
         {"rest": f'[[bgp.aggregate]]\nprefix = "10.1.0.0/16"\nsummary-only = {"true" if only else "false"}\n'},
         {"rest": [f"aggregate-address 10.1.0.0/16{' summary-only' if only else ''}"]})
    peer, feed = bird(pair), Speaker(pair.a, FEED, FEED_AS)
    seen = [] if only else MORE
    announce(feed, *OTHER)
    gets(peer, *OTHER)
    announce(feed, *MORE)
    gets(peer, "10.1.0.0/16", *OTHER, *seen)
    aggregate = peer.table()["10.1.0.0/16"]
    assert aggregate.as_path == str(OURS) and aggregate.atomic and aggregate.aggregator == f"{OURS} {Pair.A4}", aggregate
    assert aggregate.origin == "igp" and aggregate.next_hop == Pair.A4, aggregate
    withdraw(feed, MORE[0])
    gets(peer, "10.1.0.0/16", *OTHER, *seen[1:])
    withdraw(feed, MORE[1])
    gets(peer, *OTHER)


@pytest.mark.feature("unsuppress")
@pytest.mark.peers("bird", "frr")
@pytest.mark.parametrize("kind", ["ribtide", "frr"])
def test_unsuppressed_contributors_are_those_of_frr(pair, kind):
    """Of the contributors that an aggregate suppresses, a neighbour gets those that its policy accepts, with what that sets."""
    one = "10.1.0.0/24"
    policy = f"""
[[bgp.aggregate]]
prefix = "10.1.0.0/16"
summary-only = true
[policy.prefix-set.one]
prefixes = ["{one}"]
[[policy.definition.one.statement]]
conditions.match-prefix-set = "one"
actions.set-med = 7
actions.policy-result = "accept"
"""
    ours(pair, kind, {"link": 'unsuppress = ["one"]', "rest": policy},
         {"link": ["unsuppress-map one"], "rest": ["aggregate-address 10.1.0.0/16 summary-only"],
          "lists": f"ip prefix-list one permit {one}\nroute-map one permit 10\n match ip address prefix-list one\n set metric 7\n"})
    peer, feed = bird(pair), Speaker(pair.a, FEED, FEED_AS)
    announce(feed, *OTHER, *MORE)
    gets(peer, "10.1.0.0/16", one, *OTHER)
    assert peer.table()[one].med == 7 and peer.table()[one].as_path == f"{OURS} {FEED_AS}"
    withdraw(feed, one)
    gets(peer, "10.1.0.0/16", *OTHER)
    announce(feed, one)
    gets(peer, "10.1.0.0/16", one, *OTHER)
    withdraw(feed, *MORE)
    gets(peer, *OTHER)


@pytest.mark.parametrize("shards", [1, 3])
def test_unsuppress_changes_by_reload(pair, shards):
    """It comes and goes for one of two neighbours while their sessions last, with an aggregate that comes and goes, too."""
    second = Host.FEEDS[1]
    other = f"""
[bgp.group.other]
type = "external"
peer-asn = {FEED_AS}
passive = true
import = ["reject"]
export = ["accept"]
neighbors = ["{second}"]
"""
    aggregate = '[[bgp.aggregate]]\nprefix = "10.1.0.0/16"\nsummary-only = true\n'
    threads = f'[bgp]\nshards = {shards}\nupdate-threads = 2\n'
    def text(link="", rest=aggregate):
        return ribtide_config(link, rest + other).replace("[bgp]\n", threads, 1)
    router = Ribtide(pair.a, text())
    api = f'\n[api]\nsocket = "{router.socket}"\n'
    def reload(*args, **more):
        router.config.write_text(text(*args, **more) + api)
        return router.text("reload")
    def sent(address):
        lines = router.text("show", "bgp", "neighbor", address, "advertised", "--json").splitlines()
        return {route["prefix"] for route in map(json.loads, lines)}
    peer, feed, _ = bird(pair), Speaker(pair.a, FEED, FEED_AS), Speaker(pair.a, second, FEED_AS)
    announce(feed, *OTHER, *MORE)
    gets(peer, "10.1.0.0/16", *OTHER)
    assert "reset" not in reload('unsuppress = ["accept"]')
    gets(peer, "10.1.0.0/16", *OTHER, *MORE)
    assert sent(Pair.B4) == {"10.1.0.0/16", *OTHER, *MORE}
    assert sent(second) == {"10.1.0.0/16", *OTHER}
    assert any("suppresses it, but for peers with unsuppress" in message
               for message in router.explain(MORE[0])["stages"][0]["messages"])
    router.text("config", "bgp", "shards", shards + 1)
    gets(peer, "10.1.0.0/16", *OTHER, *MORE)
    withdraw(feed, MORE[0])
    gets(peer, "10.1.0.0/16", *OTHER, MORE[1])
    announce(feed, MORE[0])
    gets(peer, "10.1.0.0/16", *OTHER, *MORE)
    reload('unsuppress = ["accept"]', rest="")
    gets(peer, *OTHER, *MORE)
    reload('unsuppress = ["accept"]')
    gets(peer, "10.1.0.0/16", *OTHER, *MORE)
    wait_for("the other has the aggregate alone", lambda: sent(second) == {"10.1.0.0/16", *OTHER})
    reload()
    gets(peer, "10.1.0.0/16", *OTHER)
    for address in (Pair.B4, second):
        assert router.neighbor(address)["flaps"] == 0


@pytest.mark.feature("default-originate")
@pytest.mark.peers("bird", "frr")
@pytest.mark.parametrize("kind", ["ribtide", "frr"])
@pytest.mark.parametrize("conditional", [True, False])
def test_default_routes_are_those_of_frr(pair, kind, conditional):
    setting = '{ routes-exist = "upstream" }' if conditional else "true"
    ours(pair, kind,
         {"link": f"default-originate = {setting}", "rest": SETS},
         {"link": ["default-originate" + (" route-map upstream" if conditional else "")], "lists": PREFIX_LISTS})
    peer, feed = bird(pair), Speaker(pair.a, FEED, FEED_AS)
    always = [] if conditional else ["0.0.0.0/0"]
    announce(feed, *MORE)
    gets(peer, *MORE, *always)
    announce(feed, *OTHER)
    gets(peer, *MORE, *OTHER, "0.0.0.0/0")
    default = peer.table()["0.0.0.0/0"]
    assert (default.as_path, default.origin, default.next_hop) == (str(OURS), "igp", Pair.A4), default
    withdraw(feed, *OTHER)
    gets(peer, *MORE, *always)


@pytest.mark.feature("conditional advertisement")
@pytest.mark.peers("bird", "frr")
@pytest.mark.parametrize("kind", ["ribtide", "frr"])
@pytest.mark.parametrize("exists", [True, False])
def test_conditional_advertisement_is_that_of_frr(pair, kind, exists):
    """Routes of `some` are sent while there is a route of `upstream` (exist-map), or none (non-exist-map)."""
    ours(pair, kind,
         {"rest": statements("routes-absent" if exists else "routes-exist")},
         {"link": [f"advertise-map some {'exist' if exists else 'non-exist'}-map upstream"], "lists": PREFIX_LISTS})
    peer, feed = bird(pair), Speaker(pair.a, FEED, FEED_AS)
    other = "198.51.100.0/24"
    announce(feed, *MORE, other)
    gets(peer, other, *([] if exists else MORE))
    announce(feed, *OTHER)
    gets(peer, other, *OTHER, *(MORE if exists else []))
    withdraw(feed, *OTHER)
    gets(peer, other, *([] if exists else MORE))


@pytest.mark.feature("aggregates (RFC 4271 section 9.2.2.2)")
@pytest.mark.peers("bird")
def test_aggregate_discards_what_nothing_else_forwards(pair):
    """The kernel has a blackhole for it, the peer gets it after that, and a reload takes it away."""
    fib = "[fib]\nsuppress-fib-pending = true\n[fib.kernel]\n"
    table = '[[bgp.aggregate]]\nprefix = "10.1.0.0/16"\nsummary-only = true\n'
    ribtide = Ribtide(pair.a, ribtide_config(rest=table, fib=fib).replace('import = ["accept"]\nexport = ["reject"]', 'multihop = 2\nimport = ["accept"]\nexport = ["reject"]'))
    pair.a.run("ip", "route", "add", "10.9.0.0/24", "via", Pair.B4)
    peer, feed = bird(pair), Speaker(pair.a, FEED, FEED_AS)
    feed.send(update(MORE, [FEED_AS], "10.9.0.1"))
    gets(peer, "10.1.0.0/16")
    shown = pair.a.run("ip", "route", "show", "10.1.0.0/16")
    assert "blackhole" in shown, shown
    explained = ribtide.explain(MORE[0])
    assert any("the aggregate 10.1.0.0/16 suppresses it" in line for line in explained["stages"][0]["messages"]), explained
    assert re.search(r"10.1.0.0/16 +yes +2 +all", ribtide.text("show", "bgp", "aggregate")), ribtide.text("show", "bgp", "aggregate")
    assert re.search(r"\* +10.1.0.0/16 +self +\(aggregate\)", ribtide.text("show", "route")), ribtide.text("show", "route")
    ribtide.assert_agrees()
    # A next hop that only the aggregate holds is no way to anywhere.
    feed.send(update(["203.0.113.0/24"], [FEED_AS], "10.1.200.1"))
    why = lambda: "BGP originates holds it" in str(ribtide.explain("203.0.113.0/24"))
    wait_for("the next hop is unresolved", why, 30)
    text = ribtide.config.read_text()
    ribtide.config.write_text(text.replace(table, ""))
    assert "other routes are originated" in ribtide.text("reload")
    gets(peer, *MORE)
    wait_for("no blackhole", lambda: "blackhole" not in pair.a.run("ip", "route", "show", "10.1.0.0/16"), 30)
