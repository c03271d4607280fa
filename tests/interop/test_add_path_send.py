"""Add-path (RFC 7911) to BIRD, FRR, GoBGP and ribtide, and a best path for each client of a route server
(RFC 7947): the other holds exactly the paths that the selection and the policy allow, after random histories."""

import json
import re

import pytest
from harness import Bird, Exabgp, Frr, Gobgp, Openbgpd, Pair, Ribtide, wait_for
from harness.peers import KINDS, Side, exabgp, openbgpd
from harness.speaker import Speaker, communities, prefixes, raw_update, update
from test_add_path import ASN, PREFIXES, SOURCES, History, paths
from test_route_server import RECEIVER, SERVER, client_of_kind


def router(add_path, more="", export='export = ["accept"]'):
    """A reflector of four external speakers' routes for one internal client."""
    sources = "".join(f'    {{ address = "{address}", peer-asn = {asn} }},\n' for address, asn in SOURCES.items())
    return f"""
[router]
asn = {ASN}
router-id = "{Pair.A4}"

[bgp]
listen = ["[::]:179"]

[bgp.group.sources]
type = "external"
passive = true
families = ["ipv4-unicast"]
import = ["accept"]
export = ["reject"]
neighbor = [
{sources}]

[bgp.group.inside]
type = "internal"
route-reflector-client = true
connect-retry = 1
families = ["ipv4-unicast"]
{export}
{add_path}
neighbors = ["{Pair.B4}"]
{more}
"""


BIRD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp four {{
    local as {ASN};
    neighbor {Pair.A4} as {ASN};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export none; add paths rx; }};
}}
"""

FRR = f"""hostname bgpd
ip prefix-list none deny any
router bgp {ASN}
 bgp router-id {Pair.B4}
 neighbor {Pair.A4} remote-as {ASN}
 neighbor {Pair.A4} timers connect 1
 address-family ipv4 unicast
  neighbor {Pair.A4} prefix-list none out
 exit-address-family
"""

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
      receive = true
"""

INSIDE = Side(ASN, Pair.B4, Pair.B6, ASN, Pair.A4, Pair.A6)

RIBTIDE = f"""
[router]
asn = {ASN}
router-id = "{Pair.B4}"

[bgp.group.inside]
type = "internal"
connect-retry = 1
families = ["ipv4-unicast"]
export = ["reject"]
add-path = {{ receive = true }}
neighbors = ["{Pair.A4}"]
"""


class Receiver:
    """One of the six, with the paths that it holds: prefix → next hops, sorted."""

    def __init__(self, kind, host, plain=False):
        self.kind = kind
        if kind == "bird":
            self.daemon = Bird(host, BIRD.replace("add paths rx;", "") if plain else BIRD)
        elif kind == "frr":
            self.daemon = Frr(host, bgpd=FRR)
        elif kind == "gobgp":
            self.daemon = Gobgp(host, GOBGP)
        elif kind == "openbgpd":
            self.daemon = Openbgpd(host, openbgpd(INSIDE, "announce add-path recv yes"))
        elif kind == "exabgp":
            self.daemon = Exabgp(host, exabgp(INSIDE, "capability { add-path receive; }"))
        else:
            self.daemon = Ribtide(host, RIBTIDE, "receiver")

    def paths(self):
        found = {}
        if self.kind == "bird":
            prefix = None
            for line in self.daemon.query("show route all").splitlines():
                if start := re.match(r"(\d\S+/\d+) ", line):
                    prefix = start[1]
                elif hop := re.match(r"\tBGP.next_hop: (\S+)", line):
                    found.setdefault(prefix, []).append(hop[1])
        elif self.kind == "frr":
            routes = json.loads(self.daemon.query("show bgp ipv4 unicast json", "bgpd")).get("routes", {})
            found = {prefix: [path["nexthops"][0]["ip"] for path in of] for prefix, of in routes.items()}
        elif self.kind == "gobgp":
            routes = json.loads(self.daemon.query("global", "rib", "-a", "ipv4", "-j") or "{}")
            found = {prefix: [next(a["nexthop"] for a in path["attrs"] if a["type"] == 3) for path in of]
                     for prefix, of in routes.items()}
        elif self.kind == "openbgpd":
            for path in json.loads(self.daemon.query("-j", "show", "rib", "detail")).get("rib", []):
                found.setdefault(path["prefix"], []).append(path["exit_nexthop"])
        elif self.kind == "exabgp":
            for (_, prefix, _), route in self.daemon.paths().items():
                found.setdefault(prefix, []).append(route.next_hop)
        else:
            return paths(self.daemon)
        return {prefix: sorted(hops) for prefix, hops in found.items()}


def viewed(ours):
    """Prefix → next hops in the Adj-RIB-Out of the receiver, sorted, and its identifiers."""
    lines = ours.text("show", "bgp", "neighbor", Pair.B4, "advertised", "--json").splitlines()
    hops, ids = {}, {}
    for route in map(json.loads, lines):
        hops.setdefault(route["prefix"], []).append(route["sent"]["next_hop"])
        ids.setdefault(route["prefix"], []).append(route.get("path_id"))
    return {prefix: sorted(of) for prefix, of in hops.items()}, ids


def start(pair, kind, add_path='add-path = { send = "all" }', **named):
    ours = Ribtide(pair.a, router(add_path, **named))
    receiver = Receiver(kind, pair.b)
    wait_for("the session", lambda: ours.established(Pair.B4), 60, alive=[ours.process])
    return ours, receiver


def reload(ours, text):
    ours.config.write_text(f'{text}\n[api]\nsocket = "{ours.socket}"\n')
    return ours.text("reload")


@pytest.mark.long
@pytest.mark.feature("several paths of a prefix, sent (RFC 7911)")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_all_paths_to_another(pair, kind):
    all_paths_to(pair, kind)


@pytest.mark.long
def test_all_paths_to_ribtide(pair):
    all_paths_to(pair, "ribtide")


def all_paths_to(pair, kind):
    ours, receiver = start(pair, kind)
    assert ours.session(Pair.B4)["add_path_send"] == [{"family": "ipv4-unicast", "paths": "all"}]
    assert "are sent (add-path) in ipv4-unicast: all" in ours.text("show", "bgp", "neighbor", Pair.B4)
    history = History(pair.a, f"send {kind}")

    def same():
        wait_for("the receiver has exactly the paths", lambda: receiver.paths() == history.expected(), 60, 0.3)
        wait_for("so has the view", lambda: viewed(ours)[0] == history.expected(), 30, 0.3)
        ids = viewed(ours)[1]
        assert all(None not in of and len(set(of)) == len(of) for of in ids.values()), ids

    for _ in range(8):
        history.go_on(60)
        same()
    advertised = ours.session(Pair.B4)["advertised"]["ipv4"]
    assert advertised == sum(map(len, history.expected().values()))
    several = max(ours.show("route"), key=lambda route: len(route["paths"]))
    assert len(several["paths"]) > 1, several
    assert ours.text("explain", several["prefix"]).count(", identifier ") == len(several["paths"])
    # The view names each path, as text and in the explanation.
    text = ours.text("show", "bgp", "neighbor", Pair.B4, "advertised", several["prefix"])
    assert text.count(f"*  {several['prefix']} (path ") == len(several["paths"]), text
    assert len(re.findall(r", identifier \d+: sent$", text, re.M)) == len(several["paths"]), text
    stage = json.loads(ours.text("explain", several["prefix"], "--to", Pair.B4, "--json"))["stages"][-1]
    assert stage["state"] == "passed"
    assert len([m for m in stage["messages"] if m.startswith("sent with identifier ")]) == len(several["paths"]), stage
    # A source goes, with all of its paths and no other, and comes back.
    gone = next(iter(SOURCES))
    history.speakers.pop(gone).close()
    for sources in history.table.values():
        sources.discard(gone)
    same()
    history.speakers[gone] = Speaker(pair.a, gone, SOURCES[gone], hold=90)
    history.go_on(60)
    same()
    # The session ends and begins again.
    ours.text("clear", "bgp", "neighbor", Pair.B4)
    wait_for("the session is back", lambda: ours.established(Pair.B4), 60)
    same()
    history.go_on(60)
    same()
    # More shards, with routes on their way.
    ours.text("config", "bgp", "shards", "3")
    history.go_on(60)
    same()


@pytest.mark.feature("several paths of a prefix, sent (RFC 7911)")
@pytest.mark.parametrize("kind", ["bird", "openbgpd", "exabgp"])
def test_selections_change_while_the_session_lasts(pair, kind):
    """Each selection after each other, and the policy, by reload. The other holds the paths that they leave."""
    ours, receiver = start(pair, kind)
    history = History(pair.a, "selections")
    # The path lengths rise with the address, but for a pair that is equal.
    lengths = dict(zip(SOURCES, (1, 1, 2, 3)))
    for source, asn in SOURCES.items():
        history.speakers[source].send(
            update(PREFIXES, [asn] * lengths[source], source, communities([(64600, int(source.split(".")[-1]))])))
    first, second, third, fourth = SOURCES
    text = router('add-path = { send = "all" }')

    def hold(*sources):
        expected = {prefix: sorted(sources) for prefix in PREFIXES} if sources else {}
        wait_for(f"paths of {sources}", lambda: receiver.paths() == expected, 30, 0.3)
        assert viewed(ours)[0] == expected

    hold(first, second, third, fourth)
    since = ours.neighbor(Pair.B4)["state_seconds"]
    for send, sources in [("1", (first,)), ('"per-as"', (first, second, third, fourth)), ("3", (first, second, third)),
                          ('"ecmp"', (first,)), ('"all"', (first, second, third, fourth)), ("2", (first, second))]:
        answer = reload(ours, router(f"add-path = {{ send = {send} }}"))
        assert "reset" not in answer, answer
        hold(*sources)
    policy = """
[policy.community-set.second]
members = ["64600:12"]
[[policy.definition.not-second.statement]]
conditions.match-community-set = "second"
actions.policy-result = "reject"
[[policy.definition.not-second.statement]]
actions.policy-result = "accept"
"""
    # A path that the policy refuses is withdrawn, and hides none.
    reload(ours, router("add-path = { send = 2 }", policy, 'export = ["not-second"]'))
    hold(first, third)
    history.speakers[first].send(raw_update(withdrawn=prefixes(PREFIXES)))
    hold(third, fourth)
    assert ours.established(Pair.B4) and ours.neighbor(Pair.B4)["state_seconds"] >= since
    if kind == "openbgpd":
        # After a session that another ended it waits for 30 seconds.
        return
    # Without it a new session has the best path alone.
    assert "reset" in reload(ours, router(""))
    wait_for("the session is back", lambda: ours.established(Pair.B4), 60)
    hold(second)
    assert "add_path_send" not in ours.session(Pair.B4)
    reload(ours, text)
    wait_for("the session is back", lambda: ours.established(Pair.B4), 60)
    hold(second, third, fourth)


def test_without_the_capability_the_best_path_alone(pair):
    ours = Ribtide(pair.a, router('add-path = { send = "all" }'))
    receiver = Receiver("bird", pair.b, plain=True)
    wait_for("the session", lambda: ours.established(Pair.B4), 60, alive=[ours.process])
    assert "add_path_send" not in ours.session(Pair.B4)
    history = History(pair.a, "plain")
    for source, asn in SOURCES.items():
        history.speakers[source].send(update(PREFIXES, [asn], source))
    wait_for("one path for each", lambda: [len(hops) for hops in receiver.paths().values()] == [1] * len(PREFIXES), 30)


@pytest.mark.feature("several paths of a prefix, received (RFC 7911)")
@pytest.mark.peers("exabgp")
def test_many_paths_of_exabgp(pair):
    """ExaBGP's paths, each with an identifier, are passed on to GoBGP by ribtide."""
    routes = "".join(f"    route 10.{prefix}.0.0/16 next-hop 198.19.0.{path} path-information 0.0.{path}.1;\n"
                     for prefix in range(5) for path in range(1, 41))
    feeder = f"""
neighbor {Pair.A4} {{
    router-id {Pair.B4};
    local-address {Pair.B4};
    local-as {ASN};
    peer-as {ASN};
    family {{ ipv4 unicast; }}
    capability {{ add-path send; }}
    api {{ processes [write]; receive {{ parsed; update; }} neighbor-changes; }}
    static {{
{routes}    }}
}}
"""
    config = router('add-path = { receive = true }')
    ours = Ribtide(pair.a, config)
    Exabgp(pair.b, feeder)
    wait_for("the session", lambda: ours.established(Pair.B4), 60, alive=[ours.process])
    expected = {f"10.{prefix}.0.0/16": sorted(f"198.19.0.{path}" for path in range(1, 41)) for prefix in range(5)}
    wait_for("all paths", lambda: paths(ours) == expected, 30)


def sender(pair, statics, recovers=False):
    """BIRD with graceful restart, which sends the paths of these static routes."""
    text = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp four {{
    local as {ASN};
    neighbor {Pair.A4} as {ASN};
    rr client;
    graceful restart on; graceful restart time 90;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import none; export all; next hop keep; add paths tx; }};
}}
""" + "".join(f"""
protocol static static{n} {{
    ipv4;
    route 10.0.0.0/16 via 10.255.0.{100 + n};
    route 10.{n}.0.0/16 via 10.255.0.{100 + n};
}}
""" for n in statics)
    return Bird(pair.b, text, recovers)


def test_graceful_restart_and_kept_routes(pair):
    """Stale paths are those of their identifiers: they stay while BIRD is killed and starts again with fewer, and are sent on
    meanwhile. Kept routes show each path, and another import policy needs none again."""
    policy = """
[policy.prefix-set.shared]
prefixes = ["10.0.0.0/16"]
[[policy.definition.shared.statement]]
conditions.match-prefix-set = "shared"
actions.policy-result = "accept"
[[policy.definition.shared.statement]]
actions.policy-result = "reject"
"""
    text = router("add-path = { receive = true }\nkeep-received = true\ngraceful-restart = { mode = \"helper\" }")
    ours = Ribtide(pair.a, text)
    first = sender(pair, (1, 2, 3))
    hops = [f"10.255.0.{100 + n}" for n in (1, 2, 3)]
    everything = {"10.0.0.0/16": hops} | {f"10.{n}.0.0/16": [hops[n - 1]] for n in (1, 2, 3)}
    wait_for("all paths", lambda: paths(ours) == everything, 60, alive=[ours.process])

    def received():
        lines = ours.text("show", "bgp", "neighbor", Pair.B4, "received", "--json").splitlines()
        return sorted((route["prefix"], route["path_id"]) for route in map(json.loads, lines))

    before = received()
    assert len(before) == 6 and len(set(before)) == 6, before
    # Another policy is evaluated with the kept routes.
    shared = text.replace('export = ["accept"]\nadd-path', 'import = ["shared"]\nexport = ["accept"]\nadd-path') + policy
    reload(ours, shared)
    wait_for("the shared prefix alone", lambda: paths(ours) == {"10.0.0.0/16": hops}, 30)
    assert received() == before
    reload(ours, text)
    wait_for("all paths again", lambda: paths(ours) == everything, 30)
    first.kill()
    wait_for("the session is lost", lambda: not ours.established(Pair.B4), 30)
    assert paths(ours) == everything
    assert ours.neighbor(Pair.B4)["stale"]["paths"]["ipv4"] == 6
    sender(pair, (1, 3), recovers=True)
    left = {"10.0.0.0/16": [hops[0], hops[2]], "10.1.0.0/16": [hops[0]], "10.3.0.0/16": [hops[2]]}
    wait_for("the paths that are left", lambda: (paths(ours), ours.neighbor(Pair.B4).get("stale")) == (left, None), 120)
    assert len(received()) == 4


#: A route server with three clients; the policy keeps the first one's marked routes from the others.
def route_server(option):
    return f"""
[router]
asn = {SERVER}
router-id = "{Pair.A4}"

[bgp]
listen = ["[::]:179"]

[bgp.group.clients]
type = "external"
route-server-client = true
families = ["ipv4-unicast"]
import = ["accept"]
connect-retry = 1
{option}
neighbor = [
    {{ address = "198.19.0.11", peer-asn = 65111, passive = true, export = ["accept"] }},
    {{ address = "198.19.0.12", peer-asn = 65112, passive = true, export = ["accept"] }},
    {{ address = "{Pair.B4}", peer-asn = {RECEIVER}, export = ["marked"] }},
]

[policy.community-set.mark]
members = ["64600:1"]
[[policy.definition.marked.statement]]
conditions.match-community-set = "mark"
actions.policy-result = "reject"
[[policy.definition.marked.statement]]
actions.policy-result = "accept"
"""


@pytest.mark.feature("best path for each client of a route server (RFC 7947)")
@pytest.mark.parametrize("kind", KINDS)
def test_best_path_for_each_client(pair, kind):
    ours = Ribtide(pair.a, route_server("best-path-per-client = true"))
    client = client_of_kind(kind, pair.b)
    for address in ("198.19.0.11", "198.19.0.12"):
        pair.a.feeds.address("feed0", f"{address}/24")
    one, two = Speaker(pair.a, "198.19.0.11", 65111), Speaker(pair.a, "198.19.0.12", 65112)
    mark, prefix = communities([(64600, 1)]), "192.0.2.0/24"

    def holds(hop):
        wait_for(f"the client's path is by {hop}",
                 lambda: (client.table().get(prefix) or type("", (), {"next_hop": None})).next_hop == hop, 40, 0.3)
        assert viewed(ours) == (({prefix: [hop]}, {prefix: [None]}) if hop else ({}, {}))

    two.send(update([prefix], [65112, 65112], "198.19.0.12"))
    holds("198.19.0.12")
    # A better path that the client may not have hides nothing.
    one.send(update([prefix], [65111], "198.19.0.11", mark))
    # FRR may send the route back.
    wait_for("both are there", lambda: {"198.19.0.11", "198.19.0.12"} <= {p["neighbor"] for p in ours.show("route", prefix)[0]["paths"]}, 20)
    holds("198.19.0.12")
    # Now it may have it, and then not again.
    one.send(update([prefix], [65111], "198.19.0.11"))
    holds("198.19.0.11")
    one.send(update([prefix], [65111], "198.19.0.11", mark))
    holds("198.19.0.12")
    assert "best path for this client alone" in ours.text("show", "bgp", "group")
    # Without the option, the best path hides the other; by reload, while the session lasts.
    assert "reset" not in reload(ours, route_server(""))
    holds(None)
    assert "reset" not in reload(ours, route_server("best-path-per-client = true"))
    holds("198.19.0.12")
    one.send(raw_update(withdrawn=prefixes([prefix])))
    holds("198.19.0.12")
    two.send(raw_update(withdrawn=prefixes([prefix])))
    holds(None)


CONDITIONAL = """
[policy.prefix-set.switch]
prefixes = ["10.0.0.0/16"]
[policy.prefix-set.half]
prefixes = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16", "10.5.0.0/16"]
[[policy.definition.backup.statement]]
conditions.routes-exist = "switch"
conditions.match-prefix-set = "half"
actions.policy-result = "reject"
[[policy.definition.backup.statement]]
actions.policy-result = "accept"
"""


@pytest.mark.long
@pytest.mark.feature("several paths of a prefix, sent (RFC 7911)")
@pytest.mark.feature("conditional advertisement")
@pytest.mark.feature("default-originate")
@pytest.mark.parametrize("kind", ["bird", "frr", "gobgp"])
def test_conditions_and_an_own_default_route_beside_several_paths(pair, kind):
    """A route comes and goes, by which half of the prefixes is withheld with all of their paths, and the receiver gets a default
    route of its own in place of all paths of the table's. So it is after each of random histories, and for a new session."""
    export = 'export = ["backup"]\ndefault-originate = { routes-exist = "switch" }'
    ours, receiver = start(pair, kind, more=CONDITIONAL, export=export)
    history = History(pair.a, f"conditional {kind}")
    switch, half, default = PREFIXES[0], PREFIXES[1:6], "0.0.0.0/0"

    def expected():
        table = history.expected()
        if switch in table:
            table = {prefix: hops for prefix, hops in table.items() if prefix not in half}
            table[default] = [Pair.A4]
        return table

    def same():
        wait_for("the receiver has exactly the paths", lambda: receiver.paths() == expected(), 60, 0.3)
        wait_for("so has the view", lambda: viewed(ours)[0] == expected(), 30, 0.3)

    first, second, *_ = SOURCES
    for prefix in (*half, default):
        for source in (first, second):
            history.announce(source, prefix)
    same()
    for turn in range(3):
        # The last route of the switch goes, and the first comes: everything else stays as it is.
        for change in (history.announce, history.withdraw, history.announce):
            change(first, switch)
            for source in SOURCES if change == history.withdraw else ():
                history.withdraw(source, switch)
            same()
        assert viewed(ours)[1][default] == [1]
        history.go_on(40)
        same()
        (history.withdraw if turn == 1 else history.announce)(second, default)
        history.go_on(40)
        same()
    ours.text("clear", "bgp", "neighbor", Pair.B4)
    wait_for("the session is back", lambda: ours.established(Pair.B4), 60)
    same()
    # By reload, while the session lasts.
    assert "reset" not in reload(ours, router('add-path = { send = "all" }'))
    wait_for("the table alone", lambda: receiver.paths() == history.expected(), 60, 0.3)
    reload(ours, router('add-path = { send = "all" }', CONDITIONAL, export))
    same()
