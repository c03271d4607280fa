"""What a neighbour is sent (the Adj-RIB-Out), and what import policy rejects of a neighbour's routes: the views are
compared with the tables of the five others."""

import json
import random
import subprocess

import pytest

from harness import Bird, Exabgp, Frr, Gobgp, Host, Openbgpd, Pair, Ribtide, Route, agree, binary, settled, wait_for
from harness.config import HEAD, LAB, external
from harness.peers import KINDS, Side, exabgp, openbgpd, wait_count
from harness.speaker import Speaker, attribute, communities, prefixes, raw_update, update
from harness.table import as_path

FIRST, SECOND = Host.FEEDS
PEER = 65002

POLICY = """
[policy.prefix-set.hidden]
prefixes = ["20.7.0.0/16 16..32"]
[policy.prefix-set.far]
prefixes = ["20.1.0.0/16 16..32"]
[policy.community-set.secret]
members = ["64500:666"]

[[policy.definition.out.statement]]
name = "hidden"
conditions.match-prefix-set = "hidden"
actions.policy-result = "reject"
[[policy.definition.out.statement]]
name = "secret"
conditions.match-community-set = "secret"
actions.policy-result = "reject"
[[policy.definition.out.statement]]
name = "far"
conditions.match-prefix-set = "far"
actions.set-as-path-prepend = { asn = 65009, repeat-n = 2 }
actions.set-next-hop = "10.255.0.77"
actions.set-community.add = ["65001:1", "65001:1:2"]
[[policy.definition.out.statement]]
actions.set-med = 30
actions.policy-result = "accept"

[[policy.definition.in.statement]]
name = "no secrets"
conditions.match-community-set = "secret"
actions.policy-result = "reject"
"""


def config(link, feeds='import = ["accept"]', more=POLICY):
    """Two external feeds, and the neighbour whose views are tested."""
    return f"""
[router]
asn = 65001
router-id = "{Pair.A4}"
[bgp]
listen = ["[::]:179"]
shards = 3
{external("first", 65010, FIRST, feeds)}
{external("second", 65011, SECOND, 'import = ["accept"]')}
[bgp.group.link]
connect-retry = 1
families = ["ipv4-unicast"]
{link}
neighbors = ["{Pair.B4}"]
{more}
"""


def bird(asn):
    return f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp up {{
    local {Pair.B4} as {asn};
    neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    enforce first as off; interpret communities off;
    ipv4 {{ import all; export none; gateway recursive; }};
}}
"""


def frr(asn):
    return f"""hostname bgpd
router bgp {asn}
 bgp router-id {Pair.B4}
 no bgp ebgp-requires-policy
 neighbor {Pair.A4} remote-as 65001
 neighbor {Pair.A4} timers connect 1
 no neighbor {Pair.A4} enforce-first-as
 neighbor {Pair.A4} disable-connected-check
"""


def gobgp(asn):
    return f"""
[global.config]
  as = {asn}
  router-id = "{Pair.B4}"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{Pair.A4}"
    peer-as = 65001
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
"""


def start(kind, host, asn=PEER):
    side = Side(asn, Pair.B4, Pair.B6, 65001, Pair.A4, Pair.A6)
    return {"bird": lambda: Bird(host, bird(asn)), "frr": lambda: Frr(host, bgpd=frr(asn)), "gobgp": lambda: Gobgp(host, gobgp(asn)),
            "openbgpd": lambda: Openbgpd(host, openbgpd(side, "enforce neighbor-as no")),
            "exabgp": lambda: Exabgp(host, exabgp(side))}[kind]()


def listed(router, which, *args):
    lines = router.text("show", "bgp", "neighbor", Pair.B4 if which == "advertised" else FIRST, which, *args, "--json")
    return [json.loads(line) for line in lines.splitlines()]


def route_of(sent):
    """A sent path as the tests compare them."""
    return Route(as_path(sent["as_path"]), sent["origin"], sent["next_hop"], sent.get("med", 0), sent.get("local_pref", 100),
                 frozenset(Frr.KNOWN.get(c, c) for c in sent.get("communities", [])), frozenset(sent.get("large_communities", [])), sent.get("aggregator", ""),
                 False, sent.get("originator_id", ""), " ".join(sent.get("cluster_list", [])))


def advertised(router):
    """Prefix → Route of the Adj-RIB-Out of the neighbour."""
    routes = listed(router, "advertised")
    assert all("reasons" not in route for route in routes)
    return {route["prefix"]: route_of(route["sent"]) for route in routes}


def refused(router, prefix):
    """The reasons for which the neighbour is not sent a prefix."""
    [route] = listed(router, "advertised", prefix)
    assert "sent" not in route, route
    return route["reasons"]


#: Not every daemon's JSON has these.
NOT_READ = ("atomic", "originator", "cluster_list")


def holds(router, peer, count=None, ignore=NOT_READ):
    """Waits until the peer has as many routes as the view, and compares them."""
    def equal():
        view, table = advertised(router), peer.table()
        return view.keys() == table.keys() and (count is None or len(view) == count)
    wait_for("the peer has what the view has", equal, 60)
    # An UPDATE may still be on its way.
    settled(lambda: agree(advertised(router), peer.table(), ignore=ignore), 20)


def announcement(rng, numbers, source, asn):
    """Random routes of a feed: paths, MED and communities."""
    messages = b""
    for n in numbers:
        path = [asn, *(rng.choice([64900, 64901, 4200000007]) for _ in range(rng.randrange(4)))]
        more = []
        if rng.random() < 0.5:
            more.append(attribute(0x80, 4, rng.randrange(100).to_bytes(4, "big")))
        if rng.random() < 0.5:
            more.append(communities([(64500, rng.choice([1, 2, 666])), (64501, n)]))
        messages += update([f"20.{n % 9}.{n}.0/24"], path, source, *more)
    return messages


@pytest.mark.feature("the Adj-RIB-Out as a view")
@pytest.mark.parametrize("kind", KINDS)
def test_advertised_is_what_the_peer_holds(pair, kind):
    """Through an export policy that rejects and changes routes, after every change of routes and of the policy."""
    rng = random.Random(kind)
    link = f'type = "external"\npeer-asn = {PEER}\nimport = ["accept"]\nexport = ["out"]\n'
    router = Ribtide(pair.a, config(link))
    peer = start(kind, pair.b)
    wait_for("the session is established", lambda: router.established(Pair.B4), 60, alive=[router.process])
    feeds = {FIRST: (Speaker(pair.a, FIRST, 65010), 65010), SECOND: (Speaker(pair.a, SECOND, 65011), 65011)}
    for turn in range(4):
        for source, (speaker, asn) in feeds.items():
            if turn:
                gone = [f"20.{n % 9}.{n}.0/24" for n in rng.sample(range(200), 60)]
                speaker.send(raw_update(prefixes(gone)))
            speaker.send(announcement(rng, rng.sample(range(200), 100), source, asn))
            speaker.send(update([f"30.{turn}.0.0/24"], [asn], source))
        wait_for("the last routes", lambda: f"30.{turn}.0.0/24" in advertised(router))
        holds(router, peer)
    everything = router.count()
    view = advertised(router)
    assert 0 < len(view) < everything and any(route.large_communities for route in view.values())
    assert router.session(Pair.B4)["advertised"]["ipv4"] == len(view)
    # Every other prefix has its reason.
    rest = [route for route in listed(router, "advertised", "--all") if "sent" not in route]
    assert len(rest) == everything - len(view)
    for route in rest:
        hidden = route["prefix"].startswith("20.7.")
        assert route["reasons"][-1] == (
            'out, statement "hidden": match-prefix-set "hidden" holds; rejected' if hidden
            else 'out, statement "secret": match-community-set "secret" holds; rejected')
    # Another policy: the view and the peer change alike, and the session lasts.
    flaps = router.neighbor(Pair.B4)["flaps"]
    router.config.write_text(router.config.read_text().replace('["20.7.0.0/16 16..32"]', '["20.3.0.0/16 16..32"]'))
    router.text("reload")
    wait_for("the new policy is in force", lambda: not any(p.startswith("20.3.") for p in peer.table()))
    holds(router, peer)
    assert router.neighbor(Pair.B4)["flaps"] == flaps
    text = router.text("show", "bgp", "neighbor", Pair.B4, "advertised")
    assert text.splitlines()[0].split()[:2] == ["Prefix", "Next"] and text.count("\n*  ") == len(advertised(router))


@pytest.mark.feature("the Adj-RIB-Out as a view")
@pytest.mark.feature("route reflection (RFC 4456)")
@pytest.mark.parametrize("kind", KINDS)
def test_advertised_of_a_reflector_client(pair, kind):
    """Reflected routes keep next hop and LOCAL_PREF, and have ORIGINATOR_ID and CLUSTER_LIST."""
    link = 'type = "internal"\npeer-asn = 65001\nroute-reflector-client = true\n'
    internal = f"""
[bgp.group.inside]
type = "internal"
peer-asn = 65001
passive = true
neighbors = ["{FIRST}"]
"""
    text = config(link, more="").replace(external("first", 65010, FIRST, 'import = ["accept"]'), internal)
    router = Ribtide(pair.a, text)
    peer = start(kind, pair.b, 65001)
    wait_for("the session is established", lambda: router.established(Pair.B4), 60, alive=[router.process])
    speaker = Speaker(pair.a, FIRST, 65001)
    local_pref = attribute(0x40, 5, (170).to_bytes(4, "big"))
    speaker.send(update(["20.1.1.0/24", "20.1.2.0/24"], [64999], FIRST, local_pref))
    Speaker(pair.a, SECOND, 65011).send(update(["20.2.0.0/16"], [65011], SECOND))
    wait_count(router, 3)
    holds(router, peer, 3, ignore=("atomic",))
    view = advertised(router)
    assert view["20.1.1.0/24"].originator == FIRST and view["20.1.1.0/24"].cluster_list == Pair.A4
    assert view["20.1.1.0/24"].local_pref == 170 and view["20.1.1.0/24"].next_hop == FIRST
    assert view["20.2.0.0/16"].originator == ""


@pytest.mark.feature("the Adj-RIB-Out as a view")
@pytest.mark.peers("bird")
def test_advertised_of_a_route_server_client(pair):
    """Routes of a client are sent as they came, and routes of other neighbours as to any external one."""
    link = f'type = "external"\npeer-asn = {PEER}\nimport = ["accept"]\nexport = ["accept"]\nroute-server-client = true\n'
    text = config(link, 'import = ["accept"]\nroute-server-client = true', more="")
    router = Ribtide(pair.a, text)
    peer = Bird(pair.b, bird(PEER))
    wait_for("the session is established", lambda: router.established(Pair.B4), 60, alive=[router.process])
    no_export = communities([(0xffff, 0xff01)])
    Speaker(pair.a, FIRST, 65010).send(update(["20.1.0.0/16"], [65010], FIRST, no_export))
    second = Speaker(pair.a, SECOND, 65011)
    second.send(update(["20.2.0.0/16"], [65011], SECOND))
    second.send(update(["20.3.0.0/16"], [65011], SECOND, no_export))
    wait_count(router, 3)
    holds(router, peer, 2)
    assert advertised(router)["20.1.0.0/16"].as_path == "65010" and advertised(router)["20.1.0.0/16"].next_hop == FIRST
    assert refused(router, "20.3.0.0/16") == ["not sent: it has the community no-export, and the peer is external"]


@pytest.mark.feature("the Adj-RIB-Out as a view")
@pytest.mark.peers("bird")
def test_reasons_why_a_route_is_not_sent(pair):
    """RFC 8212, split horizon, no such route, no session; as list and in `explain --to`."""
    link = f'type = "external"\npeer-asn = {PEER}\nimport = ["accept"]\n'
    router = Ribtide(pair.a, config(link))
    bird_text = bird(PEER).replace("export none", "export all") + "protocol static { ipv4; route 192.0.2.0/24 blackhole; }\n"
    peer = Bird(pair.b, bird_text)
    Speaker(pair.a, FIRST, 65010).send(update(["20.1.0.0/16"], [65010], FIRST))
    wait_for("both routes", lambda: set(router.table()) == {"20.1.0.0/16", "192.0.2.0/24"}, 60, alive=[router.process])
    assert advertised(router) == {} == peer.table()
    assert refused(router, "20.1.0.0/16") == ["no policy decided: rejected, since the peer is external (RFC 8212)"]
    assert refused(router, "192.0.2.0/24") == ["not sent: it came from this peer"]
    answer = json.loads(router.text("explain", "20.1.0.0/16", "--to", Pair.B4, "--json"))
    assert answer["stages"][-1] == {"stage": f"to {Pair.B4}", "state": "stopped",
                                    "messages": ["no policy decided: rejected, since the peer is external (RFC 8212)"]}
    router.config.write_text(router.config.read_text().replace('import = ["accept"]\n\nneighbors', 'import = ["accept"]\nexport = ["accept"]\nneighbors'))
    router.text("reload")
    wait_for("the peer has it", lambda: set(peer.table()) == {"20.1.0.0/16"})
    holds(router, peer, 1)
    stage = json.loads(router.text("explain", "20.1.0.0/16", "--to", Pair.B4, "--json"))["stages"][-1]
    assert stage["state"] == "passed"
    assert stage["messages"][0] == f'sent with next hop {Pair.A4}, AS path "65001 65010"'

    def sentence(*args):
        done = subprocess.run([binary(), *args, "--socket", router.socket], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        return done.stderr
    assert "BGP has no route for 20.9.0.0/16" in sentence("show", "bgp", "neighbor", Pair.B4, "advertised", "20.9.0.0/16")
    assert "there is no neighbour 192.0.2.99" in sentence("show", "bgp", "neighbor", "192.0.2.99", "advertised")
    assert f"the session with {SECOND} is not established" in sentence("show", "bgp", "neighbor", SECOND, "advertised")
    stage = json.loads(router.text("explain", "20.1.0.0/16", "--to", SECOND, "--json"))["stages"][-1]
    assert stage["state"] == "stopped" and "is not established" in stage["messages"][0]


def test_a_suppressed_route_is_not_in_the_view(host):
    """Routes that the FIB lacks are not advertised, and the view says so; a route that the FIB has is."""
    text = (HEAD + external("first", 65010, FIRST, 'import = ["accept"]')
            + external("second", 65011, SECOND, 'export = ["accept"]') + "[fib]\nsuppress-fib-pending = true\n" + LAB)
    router = Ribtide(host, text)
    router.text("config", "asic", "refuse", "20.1.0.0/16")
    Speaker(host, SECOND, 65011)
    Speaker(host, FIRST, 65010).send(update(["20.1.0.0/16", "20.2.0.0/16"], [65010], "10.0.0.5"))

    def view(*args):
        lines = router.text("show", "bgp", "neighbor", SECOND, "advertised", *args, "--json").splitlines()
        return {route["prefix"]: route for route in map(json.loads, lines)}
    wait_for("the other one is advertised", lambda: "20.2.0.0/16" in view())
    wait_for("the chip has refused", lambda: "the FIB does not have it" in view("--all")["20.1.0.0/16"]["reasons"][-1])
    assert set(view()) == {"20.2.0.0/16"} and "sent" not in view("20.1.0.0/16")["20.1.0.0/16"]
    router.text("config", "asic", "take", "20.1.0.0/16")
    wait_for("it is advertised", lambda: "20.1.0.0/16" in view(), 60)


@pytest.mark.feature("rejected routes as a view")
@pytest.mark.peers("bird")
def test_filtered_has_rejected_routes_and_the_statement(pair):
    link = f'type = "external"\npeer-asn = {PEER}\nexport = ["accept"]\n'
    router = Ribtide(pair.a, config(link, 'import = ["in", "accept"]'))
    peer = Bird(pair.b, bird(PEER))
    speaker = Speaker(pair.a, FIRST, 65010, refresh=True)
    speaker.send(update(["20.1.0.0/16", "20.2.0.0/16"], [65010], FIRST, communities([(64500, 666)])))
    speaker.send(update(["20.3.0.0/16"], [65010], FIRST))
    wait_for("the peer has the other one", lambda: set(peer.table()) == {"20.3.0.0/16"}, 60, alive=[router.process])
    done = subprocess.run([binary(), "show", "bgp", "neighbor", FIRST, "filtered", "--socket", router.socket], capture_output=True, text=True)
    assert done.returncode == 1 and "set keep-received = true for it and reload" in done.stderr
    text = router.config.read_text()
    router.config.write_text(text.replace('import = ["in", "accept"]', 'import = ["in", "accept"]\nkeep-received = true'))
    router.text("reload")
    # Kept are routes that come from now on.
    speaker.send(update(["20.1.0.0/16", "20.2.0.0/16"], [65010], FIRST, communities([(64500, 666)])))
    speaker.send(update(["20.3.0.0/16"], [65010], FIRST))
    wait_for("both are rejected", lambda: {r["prefix"] for r in listed(router, "filtered")} == {"20.1.0.0/16", "20.2.0.0/16"})
    wait_for("all are kept", lambda: len(listed(router, "received")) == 3)
    assert {r["decision"] for r in listed(router, "filtered")} == {'in, statement "no secrets": match-community-set "secret" holds; rejected'}
    assert [r["prefix"] for r in listed(router, "filtered", "20.2.0.0/16")] == ["20.2.0.0/16"]
    assert listed(router, "filtered", "20.3.0.0/16") == []
    assert [r["accepted"] for r in listed(router, "received", "20.3.0.0/16")] == [True]
