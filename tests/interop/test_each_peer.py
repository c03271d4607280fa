"""What ribtide does for a neighbour, beside each kind that no other test of the feature has: each looks at what the neighbour holds,
shows or sends. docs/interop.md says which kind lacks which feature, and features.py why."""

import json
import re
import signal
import subprocess

import pytest

from harness import FEED_ASN, Host, Ribtide, Route, agree, settled, wait_for
from harness.peers import KINDS, LEFT, RIGHT, configured, ribtide, start, wait_count
from harness.speaker import Speaker, communities, prefixes, raw_update, update
from test_aggregates import MORE, OTHER, SETS, statements
from test_check_diff import changes, predicted
from test_session_guards import LINK, both, reload
from test_views import advertised

FEED = Host.FEEDS[0]
GATEWAY = "193.203.0.1"


def gets(peer, *expected):
    """Waits until the peer has these prefixes."""
    wait_for(f"the peer has {sorted(expected)}", lambda: peer.table().keys() == set(expected), 30)


def fed(host, *routes):
    """A feed that has announced routes."""
    feed = Speaker(host, FEED, FEED_ASN)
    feed.send(update(routes, [FEED_ASN], GATEWAY))
    return feed


def notifications(kind, other):
    """The NOTIFICATIONs of the IPv4 session as the peer shows or logs them."""
    if kind == "frr":
        return json.loads(other.query(f"show bgp neighbors {LEFT.four} json", "bgpd"))[LEFT.four].get("lastNotificationReason", "")
    if kind == "exabgp":
        reasons = [m["neighbor"] for m in other.messages() if m["type"] == "state"]
        return "\n".join(of.get("reason", "") for of in reasons if of["address"]["peer"] == LEFT.four)
    return "\n".join(other.process.logged("Peer Down" if kind == "gobgp" else "received notification", LEFT.four))


AGGREGATE = '[[bgp.aggregate]]\nprefix = "10.1.0.0/16"\nsummary-only = true\n'
ONE = """
[policy.prefix-set.one]
prefixes = ["10.1.0.0/24"]
[[policy.definition.one.statement]]
conditions.match-prefix-set = "one"
actions.set-med = 7
actions.policy-result = "accept"
"""


@pytest.mark.feature("aggregates (RFC 4271 section 9.2.2.2)")
@pytest.mark.feature("unsuppress")
@pytest.mark.feature("default-originate")
@pytest.mark.feature("conditional advertisement")
@pytest.mark.parametrize("kind", ["gobgp", "openbgpd", "exabgp"])
def test_routes_that_depend_on_others(pair, kind):
    """An aggregate in place of its contributors, one contributor beside it, a default route and other routes under a condition."""
    ours, other = Ribtide(pair.a, ribtide(LEFT)), start(kind, pair.b, RIGHT)
    plain = ours.config.read_text()
    feed = fed(pair.a, *MORE, *OTHER)
    gets(other, *MORE, *OTHER)
    reload(ours, plain + AGGREGATE)
    gets(other, "10.1.0.0/16", *OTHER)
    aggregate = Route(str(LEFT.asn), "igp", LEFT.four, aggregator=f"{LEFT.asn} {LEFT.four}", atomic=True)
    assert other.table()["10.1.0.0/16"] == aggregate
    reload(ours, plain.replace(LINK, LINK + 'unsuppress = ["one"]\n') + AGGREGATE + ONE)
    gets(other, "10.1.0.0/16", "10.1.0.0/24", *OTHER)
    assert other.table()["10.1.0.0/24"] == Route(f"{LEFT.asn} {FEED_ASN}", "igp", LEFT.four, med=7)
    reload(ours, plain.replace(LINK, LINK + 'default-originate = { routes-exist = "upstream" }\n') + SETS)
    # OpenBGPD has a session for IPv4 alone here.
    gets(other, *MORE, *OTHER, "0.0.0.0/0", *["::/0"] * (kind != "openbgpd"))
    assert other.table()["0.0.0.0/0"] == Route(str(LEFT.asn), "igp", LEFT.four)
    feed.send(raw_update(prefixes(OTHER)))
    gets(other, *MORE)
    at = plain.index('export = ["accept"]')
    reload(ours, plain[:at] + plain[at:].replace('export = ["accept"]', 'export = ["link"]', 1) + statements("routes-exist"))
    gets(other, *MORE)
    feed.send(update(OTHER, [FEED_ASN], GATEWAY))
    gets(other, *OTHER)
    assert ours.neighbor(RIGHT.four)["flaps"] == 0


POLICY = """
[policy.community-set.secret]
members = ["64500:666"]
[policy.community-set.customer]
members = ["64500:1"]
[policy.prefix-set.far]
prefixes = ["20.1.0.0/16 16..32"]

[[policy.definition.in.statement]]
name = "no secrets"
conditions.match-community-set = "secret"
actions.policy-result = "reject"
[[policy.definition.in.statement]]
conditions.match-community-set = "customer"
actions.set-local-pref = 200
actions.set-community.add = ["65001:100", "65001:1:2"]
[[policy.definition.in.statement]]
actions.policy-result = "accept"

[[policy.definition.out.statement]]
conditions.match-community-set = "secret"
actions.policy-result = "reject"
[[policy.definition.out.statement]]
conditions.match-prefix-set = "far"
actions.set-as-path-prepend = { asn = 65009, repeat-n = 2 }
actions.set-community.add = ["65001:77", "65001:7:8"]
[[policy.definition.out.statement]]
actions.set-med = 30
actions.policy-result = "accept"
"""


@pytest.mark.feature("communities by policy (RFC 1997, RFC 8092)")
@pytest.mark.feature("rejected routes as a view")
@pytest.mark.feature("what a reload would change, before it does")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bird"])
def test_policies_their_views_and_a_prediction(pair, kind):
    """Import and export by the communities of routes; the view of what import rejects; what a reload predicts, and does."""
    text = ribtide(LEFT, "keep-received = true")
    at = text.index("[bgp.group.link]")
    text = text[:at] + text[at:].replace('["accept"]', '["in"]', 1).replace('["accept"]', '["out"]', 1) + POLICY
    ours = Ribtide(pair.a, text)
    other = configured(kind, pair.b, RIGHT, routes={
        "192.0.2.0/24": ["64500:1", "64500:9"], "198.51.100.0/24": ["64500:666"], "203.0.113.0/24": ["70000:2:3"]})
    wait_count(ours, 2)
    theirs = {
        "192.0.2.0/24": Route(str(RIGHT.asn), "igp", RIGHT.four, 0, 200, frozenset({"64500:1", "64500:9", "65001:100"}),
                              frozenset({"65001:1:2"})),
        "203.0.113.0/24": Route(str(RIGHT.asn), "igp", RIGHT.four, large_communities=frozenset({"70000:2:3"})),
    }
    agree({prefix: route._replace(med=0, origin="igp") for prefix, route in ours.table().items()}, theirs)

    def view(which):
        lines = ours.text("show", "bgp", "neighbor", RIGHT.four, which, "--json").splitlines()
        return {route["prefix"]: route for route in map(json.loads, lines)}
    assert {prefix: route["decision"] for prefix, route in view("filtered").items()} == {
        "198.51.100.0/24": 'in, statement "no secrets": match-community-set "secret" holds; rejected'}

    feed = Speaker(pair.a, FEED, FEED_ASN)
    feed.send(update(["20.1.1.0/24", "20.2.0.0/16"], [FEED_ASN, 7], GATEWAY, communities([(64500, 1)])))
    feed.send(update(["20.3.0.0/16"], [FEED_ASN], GATEWAY, communities([(64500, 666)])))
    near = Route(f"{LEFT.asn} {FEED_ASN} 7", "igp", LEFT.four, 30, communities=frozenset({"64500:1"}))
    far = near._replace(as_path=f"{LEFT.asn} 65009 65009 {FEED_ASN} 7", communities=frozenset({"64500:1", "65001:77"}),
                        large_communities=frozenset({"65001:7:8"}))
    mine = {"20.1.1.0/24": far, "20.2.0.0/16": near}

    def held():
        """The peer's routes of us, which are those of the view."""
        table = {prefix: route for prefix, route in other.table().items() if prefix.startswith("20.")}
        agree(table, advertised(ours))
        return table
    settled(lambda: agree(held(), mine))
    wait_for("the third is here too", lambda: "20.3.0.0/16" in ours.table(), 60)

    wanted = ours.config.read_text().replace('["64500:666"]', '["64500:9", "64500:666"]').replace("set-med = 30", "set-med = 31")
    wanted = wanted.replace('["20.1.0.0/16 16..32"]', '["20.9.0.0/16"]').replace(
        'conditions.match-community-set = "secret"\nactions.policy-result = "reject"\n[[policy.definition.out', "[[policy.definition.out")
    wanted = wanted.replace('[[policy.definition.out.statement]]\n[[policy.definition.out', "[[policy.definition.out")
    status, prediction = predicted(ours, wanted, pair.a.folder)
    assert status == 2
    [row] = [row for row in prediction["routes"] if row["neighbor"] == RIGHT.four]
    before = held()
    reload(ours, wanted)
    after = {**{prefix: near._replace(med=31) for prefix in mine},
             "20.3.0.0/16": Route(f"{LEFT.asn} {FEED_ASN}", "igp", LEFT.four, 31, communities=frozenset({"64500:666"}))}
    settled(lambda: agree(held(), after))
    names = [set(row["advertised"].get(f"{change}_examples", [])) for change in ("appear", "vanish", "changed")]
    assert names == list(changes(before, held())) == [{"20.3.0.0/16"}, set(), set(mine)]
    assert set(ours.table()) - set(after) == {"203.0.113.0/24"} == set(theirs) - set(row["received"]["refused_examples"])
    assert set(view("filtered")) == {"192.0.2.0/24", "198.51.100.0/24"} and ours.neighbor(RIGHT.four)["flaps"] == 0


@pytest.mark.feature("originated routes")
@pytest.mark.feature("routes by API")
@pytest.mark.feature("maximum prefixes to the peer")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bird"])
def test_own_routes_and_how_many_the_peer_may_have(pair, kind):
    """Networks, static routes and routes of a client of the API; the limit ends the session before the peer has too many."""
    originate = '[bgp.originate]\nnetworks = ["192.0.2.0/24"]\nstatic = ["accept"]\napi = ["accept"]\n'
    static = '[[static]]\nprefix = "203.0.113.0/24"\nblackhole = true\n'
    ours = Ribtide(pair.a, ribtide(LEFT) + originate + static + "[fib]\n[fib.kernel]\n")
    other = start(kind, pair.b, RIGHT)
    network, more = Route(str(LEFT.asn), "igp", LEFT.four), Route(str(LEFT.asn), "incomplete", LEFT.four)
    table = {"192.0.2.0/24": network, "203.0.113.0/24": more}
    gets(other, *table)
    ours.text("route", "add", "198.51.100.0/24", RIGHT.four, "--med", "50", "--community", "65001:7")
    gets(other, *table, "198.51.100.0/24")
    agree(other.table(), {**table, "198.51.100.0/24": more._replace(med=50, communities=frozenset({"65001:7"}))})
    ours.text("route", "delete", "198.51.100.0/24")
    gets(other, *table)
    reload(ours, ours.config.read_text().replace(LINK, LINK + "max-prefixes-out = { ipv4-unicast = 2, idle-time = 60 }\n"))
    both(ours, other)
    gets(other, *table)
    ours.text("route", "add", "198.51.100.0/24", RIGHT.four)
    wait_for("the limit ends the session", lambda: ours.neighbor(RIGHT.four)["state"] == "Idle (maximum prefixes out)", 20)
    both(ours, other, up=False)
    # ExaBGP 4.2 cannot decode a NOTIFICATION with a text, and ends its session all the same.
    shown = {"frr": "Cease/Administrative Reset", "gobgp": "subcode 4(administrative reset)",
             "openbgpd": "Cease, administrative reset", "exabgp": 'message of type "3"'}[kind]
    wait_for("the peer shows the NOTIFICATION", lambda: shown in notifications(kind, other), 5)
    assert not other.table()


def signal_all(host, number):
    """A signal to every process in the host."""
    pids = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True).stdout.split()
    subprocess.run(["kill", f"-{number.name[3:]}", *pids], check=True)


@pytest.mark.feature("hold timer (RFC 4271 section 6.5)")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bird"])
def test_peer_that_stands_still(pair, kind):
    """It says nothing for the hold time: its routes are gone, it gets a NOTIFICATION, and its session and routes come back."""
    ours = Ribtide(pair.a, ribtide(LEFT).replace("hold-time = 6", "hold-time = 3"))
    other = configured(kind, pair.b, RIGHT, routes={"192.0.2.0/24": []})
    wait_count(ours, 1)
    wait_for("the hold time is agreed", lambda: (ours.session(RIGHT.four) or {}).get("hold_time") == 3, 10)
    signal_all(pair.b, signal.SIGSTOP)
    try:
        wait_for("the hold timer ran out", lambda: "hold" in ours.neighbor(RIGHT.four).get("last_down", ""), 20)
        wait_count(ours, 0, 10)
    finally:
        signal_all(pair.b, signal.SIGCONT)
    # GoBGP's own hold timer runs out too while it stands still, and may come first.
    shown = {"frr": "Hold Timer Expired", "gobgp": "hold.timer.expired", "openbgpd": "HoldTimer expired", "exabgp": "\\(4,0\\)"}[kind]
    wait_for("the peer shows the NOTIFICATION", lambda: re.search(shown, notifications(kind, other)), 5)
    wait_count(ours, 1, 30)


#: How the key of TCP-MD5 is set.
PASSWORD = {"frr": "password {}", "gobgp": '    auth-password = "{}"'}


@pytest.mark.feature("TCP-MD5 (RFC 2385)")
@pytest.mark.parametrize("kind", PASSWORD)
def test_tcp_md5(pair, kind):
    """A session with the right key comes up, for IPv4; one with a wrong key, for IPv6, does not."""
    ours = Ribtide(pair.a, ribtide(LEFT, 'password = "right"').replace(
        f'address = "{RIGHT.six}",', f'address = "{RIGHT.six}", password = "wrong",'))
    other = configured(kind, pair.b, RIGHT, PASSWORD[kind].format("right"), {"192.0.2.0/24": []})
    wait_count(ours, 1)
    fed(pair.a, *OTHER, "198.51.100.0/24")
    wait_for("the peer has our route", lambda: "198.51.100.0/24" in other.table(), 20)
    assert not ours.established(RIGHT.six) and not other.established(LEFT.six)


@pytest.mark.feature("GTSM (RFC 5082)")
@pytest.mark.peers("gobgp")
def test_ttl_security(pair):
    """GoBGP demands TTL 255, and gets it; without it there is no session."""
    setting = "  [neighbors.ttl-security.config]\n    enabled = true\n    ttl-min = 255"
    ours = Ribtide(pair.a, ribtide(LEFT, "ttl-security = 1"))
    other = configured("gobgp", pair.b, RIGHT, setting, {"192.0.2.0/24": []})
    fed(pair.a, "198.51.100.0/24")
    gets(other, "192.0.2.0/24", "198.51.100.0/24")
    wait_count(ours, 2)
    reload(ours, ours.config.read_text().replace("ttl-security = 1", ""))
    wait_for("the session is lost", lambda: not other.established(LEFT.four) and not ours.established(RIGHT.four), 30)
    gets(other, "192.0.2.0/24")
    reload(ours, ours.config.read_text().replace(LINK, LINK + "ttl-security = 1\n"))
    gets(other, "192.0.2.0/24", "198.51.100.0/24")


@pytest.mark.feature("2-octet AS numbers (RFC 6793)")
@pytest.mark.peers("frr")
def test_peer_without_capabilities(pair):
    """FRR that sends no capabilities has AS_TRANS in AS_PATH and the AS numbers in AS4_PATH, in both directions."""
    ours = Ribtide(pair.a, ribtide(LEFT._replace(peer_asn=65010)))
    other = configured("frr", pair.b, RIGHT._replace(asn=65010), "dont-capability-negotiate")
    wait_for("the session is up", lambda: ours.established(RIGHT.four), 30)
    assert ours.session(RIGHT.four)["four_octet_as"] is False
    feed = Speaker(pair.a, FEED, FEED_ASN)
    feed.send(update(["20.0.0.0/24"], [FEED_ASN, 4200000001, 7, 70000], GATEWAY))
    gets(other, "20.0.0.0/24")
    # FRR knows the numbers of AS4_PATH of neighbours that have no capability for them either.
    assert other.table()["20.0.0.0/24"].as_path == f"{LEFT.asn} {FEED_ASN} 23456 7 23456"
    theirs = Speaker(pair.b, FEED, FEED_ASN)
    theirs.send(update(["20.0.1.0/24"], [FEED_ASN, 4200000001, 8], GATEWAY))
    wait_count(ours, 2)
    assert ours.table()["20.0.1.0/24"].as_path == f"65010 {FEED_ASN} 4200000001 8"
