"""BMP (RFC 7854, RFC 8671, RFC 9069): the tables that a station makes of ribtide's messages are those of the router, of
its neighbours, and of FRR's bgpd, which gets the same UPDATEs and has a BMP of its own."""

import ipaddress
import json
import random
import socket

import pytest
from harness import Frr, Gobgp, Host, Ribtide, settled, wait_for
from harness.speaker import (END_OF_RIB, KEEPALIVE, NOTIFICATION, UPDATE, Speaker, attribute, block, message, prefixes, raw_update,
                             update)
from harness.station import Station
from harness import wire

ASN = 65001
#: Two external neighbours, and one that only receives.
FIRST, SECOND, RECEIVER = (f"198.19.0.{n}" for n in (11, 12, 13))
ASNS = {FIRST: 65101, SECOND: 65102, RECEIVER: 65103}
ALL = ["adj-rib-in-pre-policy", "adj-rib-in-post-policy", "adj-rib-out-post-policy", "loc-rib"]
PREFIXES = [f"10.{n}.0.0/16" for n in range(40)]
PORT = 5000


def station(port=PORT, views=ALL, more=""):
    return f"""
[bmp.station.s{port}]
address = "127.0.0.1"
port = {port}
retry-interval = 1
views = {json.dumps(views)}
{more}
"""


def config(stations, more="", shards=2):
    """The first neighbour's routes are kept before policy, which rejects some and changes others."""
    return f"""
[router]
asn = {ASN}
router-id = "{Host.FEED_SIDE}"
[bgp]
listen = ["{Host.FEED_SIDE}:179"]
shards = {shards}
[bgp.group.first]
type = "external"
peer-asn = {ASNS[FIRST]}
passive = true
families = ["ipv4-unicast"]
keep-received = true
import = ["odd"]
export = ["reject"]
neighbors = ["{FIRST}"]
[bgp.group.second]
type = "external"
peer-asn = {ASNS[SECOND]}
passive = true
families = ["ipv4-unicast"]
add-path = {{ receive = true }}
import = ["accept"]
export = ["reject"]
neighbors = ["{SECOND}"]
[bgp.group.receiver]
type = "external"
peer-asn = {ASNS[RECEIVER]}
passive = true
families = ["ipv4-unicast"]
import = ["reject"]
export = ["some"]
neighbors = ["{RECEIVER}"]
[policy.prefix-set.rejected]
prefixes = ["10.1.0.0/16", "10.3.0.0/16", "10.5.0.0/16"]
[[policy.definition.odd.statement]]
conditions.match-prefix-set = "rejected"
actions.policy-result = "reject"
[[policy.definition.odd.statement]]
actions.set-local-pref = 200
actions.set-med = 77
actions.policy-result = "accept"
[policy.prefix-set.secret]
prefixes = ["10.7.0.0/16", "10.8.0.0/16"]
[[policy.definition.some.statement]]
conditions.match-prefix-set = "secret"
actions.policy-result = "reject"
[[policy.definition.some.statement]]
actions.policy-result = "accept"
{stations}
{more}
"""


def addresses(host):
    for address in ASNS:
        host.feeds.address("feed0", f"{address}/24")


class Sender:
    """A neighbour with a table of its own: (prefix, path identifier) → attributes."""

    def __init__(self, host, address, seed, path_ids=False, hold=0):
        # RFC 7911 section 4: it sends several paths.
        more = bytes([69, 4, 0, 1, 1, 2]) if path_ids else b""
        self.speaker = Speaker(host, address, ASNS[address], more=more, hold=hold)
        self.address, self.random, self.path_ids, self.table = address, random.Random(seed), path_ids, {}

    def history(self, changes):
        out = b""
        for _ in range(changes):
            route = (self.random.choice(PREFIXES), self.random.randrange(3) if self.path_ids else None)
            one = (b"" if route[1] is None else route[1].to_bytes(4, "big")) + prefixes([route[0]])
            if route in self.table and self.random.random() < 0.4:
                out += raw_update(withdrawn=one)
                del self.table[route]
            else:
                path = [ASNS[self.address], *(self.random.randrange(64512, 64600) for _ in range(self.random.randrange(3)))]
                med = attribute(0x80, 4, self.random.randrange(4).to_bytes(4, "big"))
                out += raw_update(b"", block(path, self.address, med), one)
                self.table[route] = wire.decode(raw_update(b"", block(path, self.address, med), one)[19:], {1} if self.path_ids else ())[2]
        self.speaker.send(out)


def received(speaker, table):
    """Applies what a speaker was sent to a table, as far as there is something."""
    while True:
        try:
            got = speaker.read(0.2)
        except (TimeoutError, socket.timeout):
            return table
        assert got is not None
        if got[0] == UPDATE:
            wire.apply(table, got[1])


def loc_rib(router):
    """Prefix → (AS path, next hop, MED, LOCAL_PREF) of the best paths."""
    return {p: (r.as_path, r.next_hop, r.med, r.local_pref) for p, r in router.table().items()}


def of_station(table):
    """The same of a station's table."""
    number = lambda at, code, default: int.from_bytes(at[code], "big") if code in at else default
    return {prefix: (wire.as_path(at.get(2, b"")), at["next-hop"], number(at, 4, 0), number(at, 5, 100))
            for (prefix, _), at in table.items()}


def settle(station, router, first, second, receiver, out):
    """All views are what they must be."""
    def look():
        session = station.session
        if session.table("pre", FIRST) != first.table or session.tables["pre"].keys() - {FIRST}:
            return "pre"
        accepted = {route: {**at, 4: (77).to_bytes(4, "big"), 5: (200).to_bytes(4, "big")} for route, at in first.table.items()
                    if route[0] not in REJECTED}
        if session.table("post", FIRST) != accepted or session.table("post", SECOND) != second.table:
            return "post"
        if of_station(session.table("loc-rib")) != loc_rib(router):
            return "loc-rib"
        if session.table("out-post", RECEIVER) != received(receiver, out):
            return "out"
        return None
    wait_for(f"the views of the station on port {station.port} agree", lambda: look() is None, 30)


@pytest.mark.parametrize("shards", [2, '"off"'])
def test_every_view_of_early_and_late_stations_is_right(host, shards):
    """Random histories of two neighbours, one with path identifiers; a station from the start, one that comes in the
    middle, and one whose connection breaks: all have the same tables, and those are the router's and the neighbours'."""
    addresses(host)
    early, late = Station(host, PORT), None
    router = Ribtide(host, config(station() + station(PORT + 1), shards=shards))
    first, second = Sender(host, FIRST, 1), Sender(host, SECOND, 2, path_ids=True)
    receiver, out = Speaker(host, RECEIVER, ASNS[RECEIVER]), {}
    wait_for("the early station is there", lambda: early.session.information)
    for turn in range(6):
        first.history(60)
        second.history(60)
        if turn == 2:
            late = Station(host, PORT + 1)
        if turn == 4:
            early.close()
            early = Station(host, PORT)
        settle(early, router, first, second, receiver, out)
    settle(late, router, first, second, receiver, out)
    for session in (early.session, late.session):
        assert session.up.keys() == {"", FIRST, SECOND, RECEIVER}
        assert session.information[1].startswith(b"ribtide ") and session.information[2]
        # RFC 9069 section 5.2: the name of the table.
        assert session.up[""]["type"] == 3 and session.up[""]["information"] == {3: b"global"}
        up = session.up[FIRST]
        assert (up["type"], up["local"], up["ports"][0]) == (0, Host.FEED_SIDE, 179)
        # The OPENs are those that were sent (the speaker's has its AS and identifier) and received.
        assert up["received"][1:3] == ASNS[FIRST].to_bytes(2, "big") and up["received"][5:9] == socket.inet_aton(FIRST)
        assert up["sent"] == first.speaker.open
    wait_for("all tables are complete", lambda: all(
        late.ended(view, address) for view, address in
        [("pre", FIRST), ("post", FIRST), ("post", SECOND), ("out-post", RECEIVER), ("loc-rib", "")]))
    stations = {s["name"]: s for s in router.show("bmp")["stations"]}
    assert [s["state"] for s in stations.values()] == ["up", "up"] and stations["s5000"]["connects"] == 2
    assert stations["s5000"]["views"] == ALL and stations["s5001"]["dumps"] == 1


def test_the_loc_rib_has_what_an_aggregate_suppresses(host):
    """RFC 9069: the Loc-RIB is what the decision process selected, whether it is sent or not. Contributors of a summary-only
    aggregate are in it at an early and a late station, with each change, and the receiver gets the aggregate alone, with the Adj-RIB-Out
    of the stations. A reload that ends the suppression tells stations of no best path."""
    addresses(host)
    aggregate = '[[bgp.aggregate]]\nprefix = "10.0.0.0/8"\nsummary-only = true\n'
    text = lambda more: config(station() + station(PORT + 1), more)
    early = Station(host, PORT)
    router = Ribtide(host, text(aggregate))
    first, receiver, out = Sender(host, FIRST, 1), Speaker(host, RECEIVER, ASNS[RECEIVER]), {}
    wait_for("the early station is there", lambda: early.session.information)
    contributors = lambda table: {prefix for prefix, _ in table} - {"10.0.0.0/8"}
    sent = lambda: {prefix for prefix, _ in received(receiver, out)}
    def agree(*stations):
        accepted = {prefix for prefix, _ in first.table} - set(REJECTED)
        def look():
            tables, own = [of.session for of in stations], {p: best for p, best in loc_rib(router).items() if p in accepted}
            return all(contributors(of.table("loc-rib")) == accepted == own.keys() and own.items() <= of_station(of.table("loc-rib")).items()
                       for of in tables) and all(of.table("out-post", RECEIVER) == received(receiver, out) for of in tables)
        wait_for("the stations agree", look, 30)
    for _ in range(3):
        first.history(60)
        agree(early)
        assert sent() == {"10.0.0.0/8"}
    late = Station(host, PORT + 1)
    wait_for("the late station has its tables", lambda: late.ended("loc-rib"))
    agree(early, late)
    first.history(60)
    agree(early, late)
    before = [len([m for m in of.session.messages if m[0] == 0 and m[2] == ""]) for of in (early, late)]
    router.config.write_text(text("") + f'\n[api]\nsocket = "{router.socket}"\n')
    router.text("reload")
    wait_for("the receiver has the contributors", lambda: sent() and "10.0.0.0/8" not in sent())
    wait_for("the aggregate is gone at the stations", lambda: all(
        ("10.0.0.0/8", None) not in of.session.table("loc-rib") for of in (early, late)))
    agree(early, late)
    after = [len([m for m in of.session.messages if m[0] == 0 and m[2] == ""]) for of in (early, late)]
    assert [b - a for a, b in zip(before, after)] == [1, 1], "the withdrawal of the aggregate"


def test_sessions_end_with_their_reason(host):
    """NOTIFICATIONs of both sides with their data, and a lost connection."""
    addresses(host)
    collector = Station(host, PORT)
    router = Ribtide(host, config(station(views=["adj-rib-in-post-policy"])))
    speaker = Speaker(host, FIRST, ASNS[FIRST])
    speaker.send(update(["10.2.0.0/16"], [ASNS[FIRST]], FIRST))
    wait_for("the route", lambda: collector.session.table("post", FIRST))
    speaker.send(message(NOTIFICATION, bytes([6, 4]) + b"bye"))
    wait_for("the end", lambda: len(collector.session.down) == 1)
    address, reason, data = collector.session.down[0]
    assert (address, reason, data) == (FIRST, 3, message(NOTIFICATION, bytes([6, 4]) + b"bye"))
    speaker = Speaker(host, FIRST, ASNS[FIRST])
    wait_for("it is back", lambda: FIRST in collector.session.up)
    speaker.socket.close()
    wait_for("the end", lambda: len(collector.session.down) == 2)
    assert collector.session.down[1][1:] == (4, b"")
    speaker = Speaker(host, FIRST, ASNS[FIRST])
    wait_for("it is back", lambda: FIRST in collector.session.up)
    router.text("clear", "bgp", "neighbor", FIRST)
    wait_for("the end", lambda: len(collector.session.down) == 3)
    reason, data = collector.session.down[2][1:]
    assert reason == 1 and data[18:21] == bytes([NOTIFICATION, 6, 4])
    # A malformed UPDATE that closes the session.
    speaker = Speaker(host, FIRST, ASNS[FIRST])
    wait_for("it is back", lambda: FIRST in collector.session.up)
    speaker.send(message(UPDATE, b"\xff\xff\0\0"))
    wait_for("the end", lambda: len(collector.session.down) == 4)
    reason, data = collector.session.down[3][1:]
    assert reason == 1 and data[18:21] == bytes([NOTIFICATION, 3, 1])


def test_a_malformed_update_is_a_withdrawal_for_the_station(host):
    """RFC 7606: the routes of an UPDATE with a malformed attribute count as withdrawn, and so the station's."""
    addresses(host)
    collector = Station(host, PORT)
    Ribtide(host, config(station()))
    speaker = Speaker(host, FIRST, ASNS[FIRST])
    speaker.send(update(["10.2.0.0/16", "10.4.0.0/16"], [ASNS[FIRST]], FIRST))
    routes = lambda view: {prefix for prefix, _ in collector.session.table(view, FIRST)}
    wait_for("the routes", lambda: routes("pre") == routes("post") == {"10.2.0.0/16", "10.4.0.0/16"})
    # ORIGIN has a wrong length.
    broken = attribute(0x40, 1, b"\0\0") + block([ASNS[FIRST]], FIRST)[4:]
    speaker.send(raw_update(b"", broken, prefixes(["10.4.0.0/16"])))
    wait_for("it is withdrawn", lambda: routes("pre") == routes("post") == {"10.2.0.0/16"})
    assert collector.error is None


def test_statistics_are_the_counters_of_the_router(host):
    addresses(host)
    collector = Station(host, PORT)
    Ribtide(host, config(station(more="statistics-interval = 1")))
    speaker = Speaker(host, FIRST, ASNS[FIRST])
    Speaker(host, RECEIVER, ASNS[RECEIVER])
    speaker.send(update(["10.1.0.0/16", "10.2.0.0/16", "10.4.0.0/16"], [ASNS[FIRST]], FIRST)
                 + update(["10.9.0.0/16"], [ASNS[FIRST], ASN], FIRST))
    def arrived():
        first, out = (collector.session.statistics.get(address, {}) for address in (FIRST, RECEIVER))
        loc = collector.session.statistics.get("", {})
        return first.get(7) == 3 and out.get(15) == 2 and loc.get(8) == 2 and (first, out, loc)
    first, out, loc = wait_for("the statistics", arrived)
    # Rejected by policy, AS loops; routes of the family.
    assert (first[0], first[4], first[(9, 1, 1)], first[11]) == (1, 1, 3, 0)
    assert out[(17, 1, 1)] == 2 and loc[(10, 1, 1)] == 2 and loc[(10, 2, 1)] == 0


def test_a_slow_station_gets_whole_tables_and_stops_nothing(host):
    """A station reads nothing while far more than its queue holds changes: BGP goes on, the session ends with a
    Termination, and the next one has the tables."""
    host.small_sockets()
    addresses(host)
    collector, other = Station(host, PORT, keep_messages=False), Station(host, PORT + 1, keep_messages=False)
    router = Ribtide(host, config(station(views=["loc-rib"], more="queue-mib = 1")
                                  + station(PORT + 1, ["loc-rib"])))
    speaker = Speaker(host, SECOND, ASNS[SECOND])
    wait_for("the stations are there", lambda: collector.session.information and other.session.information)
    collector.pause()
    many = [str(net) for net in ipaddress.ip_network("20.0.0.0/8").subnets(new_prefix=20)]
    state = lambda: {s["name"]: s for s in router.show("bmp")["stations"]}
    turns = 0
    while state()["s5000"]["overflows"] == 0:
        turns += 1
        med = attribute(0x80, 4, turns.to_bytes(4, "big"))
        # An UPDATE for each prefix.
        speaker.send(b"".join(update([prefix], [ASNS[SECOND]], SECOND, med) for prefix in many))
        med_of = lambda at: int.from_bytes(at[4], "big")
        # Nothing waits for the station: the router and the other station have every route.
        wait_for("all routes", lambda: len(other.session.table("loc-rib")) == len(many)
                 and all(med_of(at) == turns for at in list(other.session.table("loc-rib").values())))
        assert turns < 100
    collector.resume()
    wait_for("the tables are whole", lambda: collector.session.table("loc-rib") == other.session.table("loc-rib"))
    wait_for("the first session is over", lambda: collector.sessions[0].over)
    assert len(collector.sessions) > 1 and collector.sessions[0].termination in (None, {0: b"more waits for the station than its queue holds", 1: b"\0\2"})
    assert state()["s5000"]["overflows"] >= 1 and state()["s5001"]["overflows"] == 0
    metrics = router.call("GET", "/metrics")
    assert 'ribtide_bmp_station_overflows_total{station="s5000"} ' in metrics


def test_stations_come_go_and_change_on_reload(host):
    addresses(host)
    first, second = Station(host, PORT), Station(host, PORT + 1)
    router = Ribtide(host, config(station(views=["loc-rib"])))
    speaker = Speaker(host, SECOND, ASNS[SECOND])
    speaker.send(update(["10.2.0.0/16"], [ASNS[SECOND]], SECOND) + END_OF_RIB)
    wait_for("the route", lambda: first.session.table("loc-rib"))
    def reload(stations):
        router.config.write_text(config(stations) + f'\n[api]\nsocket = "{router.socket}"\n')
        return router.text("reload")
    assert "there are other BMP stations" in reload(station(views=["loc-rib"]) + station(PORT + 1, ["adj-rib-in-post-policy"]))
    wait_for("the added station", lambda: second.session.table("post", SECOND))
    assert len(first.sessions) == 1, "the other one keeps its session"
    assert "nothing has changed" in reload(station(views=["loc-rib"]) + station(PORT + 1, ["adj-rib-in-post-policy"]))
    # Other views are another session.
    reload(station(views=["loc-rib", "adj-rib-in-post-policy"]))
    wait_for("the other views", lambda: len(first.sessions) == 2 and first.session.table("post", SECOND) and first.session.table("loc-rib"))
    wait_for("the removed one is told", lambda: second.sessions[0].over)
    # Permanently closed; for the changed one: administratively.
    assert second.sessions[0].termination[1] == b"\0\4" and len(second.sessions) == 1
    assert first.sessions[0].termination[1] == b"\0\0"
    # keep-received changes what the view before policy has: the station begins again.
    reload(station(views=["adj-rib-in-pre-policy"]))
    wait_for("the view before policy", lambda: len(first.sessions) == 3 and ("pre", FIRST, 1) not in first.session.ends)
    assert router.stop() == 0
    wait_for("the stop", lambda: first.session.over)
    assert first.session.termination[1] == b"\0\0" and first.error is None and second.error is None


@pytest.mark.parametrize("shards", [2, '"off"'])
def test_bmp_begins_and_ends_by_reload(host, shards):
    """A router without a [bmp] table gets one: the station has the tables of the sessions that last, and all later changes,
    those of new shards too. Without the table the station is told, and no neighbour notices. Twice."""
    addresses(host)
    router = Ribtide(host, config("", shards=shards))
    first, second = Sender(host, FIRST, 1), Sender(host, SECOND, 2, path_ids=True)
    receiver, out = Speaker(host, RECEIVER, ASNS[RECEIVER]), {}
    def reload(stations, shards=shards):
        router.config.write_text(config(stations, shards=shards) + f'\n[api]\nsocket = "{router.socket}"\n')
        return router.text("reload")
    for _ in range(2):
        first.history(60)
        second.history(60)
        of_start = Station(host, PORT)
        assert "settings: bmp" in reload(station())
        settle(of_start, router, first, second, receiver, out)
        if shards == 2:
            assert "bgp.shards" in reload(station(), shards=3)
        first.history(60)
        second.history(60)
        settle(of_start, router, first, second, receiver, out)
        if shards == 2:
            reload(station())
        assert "settings: bmp" in reload("")
        wait_for("the station is told", lambda: of_start.session.over)
        assert of_start.session.termination[1] == b"\0\4" and of_start.error is None
        of_start.close()
        # Nothing is left of it: neither a thread nor a queue.
        assert "bmp" not in {thread["name"] for thread in router.show("threads")["threads"]}
        assert not [ring for ring in router.show("pipeline")["rings"] if "BMP" in ring["name"]]
    assert all(router.neighbor(address)["flaps"] == 0 for address in ASNS)


FRR_PORT = 5005
REJECTED = ("10.1.0.0/16", "10.3.0.0/16", "10.5.0.0/16")


def frr():
    neighbors = "".join(
        f" neighbor {address} remote-as {ASNS[address]}\n neighbor {address} passive\n" for address in (FIRST, SECOND))
    return f"""hostname bgpd
ip prefix-list rejected permit 10.1.0.0/16
ip prefix-list rejected permit 10.3.0.0/16
ip prefix-list rejected permit 10.5.0.0/16
route-map odd deny 10
 match ip address prefix-list rejected
route-map odd permit 20
 set local-preference 200
 set metric 77
route-map none deny 10
router bgp {ASN}
 bgp router-id {Host.FEED_SIDE}
 no bgp ebgp-requires-policy
 no bgp network import-check
{neighbors}
 address-family ipv4 unicast
  neighbor {FIRST} soft-reconfiguration inbound
  neighbor {FIRST} route-map odd in
  neighbor {FIRST} route-map none out
  neighbor {SECOND} soft-reconfiguration inbound
  neighbor {SECOND} route-map none out
 exit-address-family
 bmp targets all
  bmp stats interval 1000
  bmp monitor ipv4 unicast pre-policy
  bmp monitor ipv4 unicast post-policy
  bmp connect 127.0.0.1 port {FRR_PORT} min-retry 100 max-retry 500
"""


def comparable(at):
    """Attributes that two implementations must agree on: FRR makes its messages again, as it would send them. So it puts
    its own AS before the path of an external neighbour, where no received path has it, and has no LOCAL_PREF there."""
    path = at[2]
    if path[2:6] == ASN.to_bytes(4, "big"):
        at = {**at, 2: bytes([path[0], path[1] - 1]) + path[6:]}
    return {code: value for code, value in at.items() if code in (1, 2, 4, 8, 32, "next-hop")}


def _empty(differences):
    assert not differences, str(differences)[:2000]


@pytest.mark.feature("BMP (RFC 7854, RFC 8671, RFC 9069)")
@pytest.mark.peers("frr")
def test_a_station_has_the_same_tables_of_frr(pair):
    """The same UPDATEs go to FRR's bgpd and to ribtide, each with a station: the Adj-RIBs-In before and after policy
    are equal, and so are the facts of Peer Up and Peer Down."""
    hosts = (pair.a, pair.b)
    for host in hosts:
        addresses(host)
    ours, theirs = Station(pair.a, PORT), Station(pair.b, FRR_PORT, strict=False)
    text = config(station(views=ALL[:2])).replace('neighbors = ["198.19.0.12"]', 'keep-received = true\nneighbors = ["198.19.0.12"]')
    router = Ribtide(pair.a, text.replace("add-path = { receive = true }\n", ""))
    other = Frr(pair.b, bgpd=frr(), bgpd_args=("-M", "bmp"))
    senders = [[Sender(host, FIRST, 11), Sender(host, SECOND, 12)] for host in hosts]
    wait_for("the stations are there", lambda: ours.session.information and theirs.session.information)
    def differences():
        """Each as view, neighbour, route, and the attributes of both. Of a route that its policy rejects FRR 8 sends nothing
        before policy, but in its first dump of the table, if another neighbour has a route of that prefix; and then it never
        sends the withdrawal. So these routes before policy are compared with the sender alone (`complete`)."""
        views = [{(view, address, route): comparable(at) for view in ("pre", "post") for address in (FIRST, SECOND)
                  for route, at in session.table(view, address).items()} for session in (ours.session, theirs.session)]
        return {key: (views[0].get(key), views[1].get(key)) for key in views[0].keys() | views[1].keys()
                if views[0].get(key) != views[1].get(key) and not (key[:2] == ("pre", FIRST) and key[2][0] in REJECTED)}
    for turn in range(4):
        for of_host in senders:
            for sender in of_host:
                sender.history(60)
        assert senders[0][0].table == senders[1][0].table
        def complete():
            """Before either has read the UPDATEs, both have the same tables, too."""
            for sender in senders[0]:
                has, sent = ours.session.table("pre", sender.address).keys(), sender.table.keys()
                assert has == sent, (turn, sender.address, sorted(map(str, has ^ sent)))
        settled(complete, 20)
        settled(lambda: _empty(differences()))
        assert ours.session.table("post", FIRST) != ours.session.table("pre", FIRST)
    ups = [{address: (up["received"], up["ports"][0], up["local"]) for address, up in s.session.up.items()} for s in (ours, theirs)]
    assert ups[0] == ups[1]
    for of_host in senders:
        of_host[0].speaker.send(message(NOTIFICATION, bytes([6, 4])))
    wait_for("the ends", lambda: ours.session.down and theirs.session.down)
    assert ours.session.down == theirs.session.down == [(FIRST, 3, message(NOTIFICATION, bytes([6, 4])))]


def gobgp():
    neighbors = "".join(f"""
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {ASNS[address]}
  [neighbors.transport.config]
    passive-mode = true
""" for address in (FIRST, SECOND))
    return f"""
[global.config]
  as = {ASN}
  router-id = "{Host.FEED_SIDE}"
{neighbors}
[[bmp-servers]]
  [bmp-servers.config]
    address = "127.0.0.1"
    port = {FRR_PORT}
    route-monitoring-policy = "pre-policy"
"""


@pytest.mark.feature("BMP (RFC 7854, RFC 8671, RFC 9069)")
@pytest.mark.peers("gobgp")
def test_a_station_has_the_same_tables_of_gobgp(pair):
    """The same UPDATEs go to GoBGP and to ribtide, each with a station: the Adj-RIBs-In before policy are equal."""
    hosts = (pair.a, pair.b)
    for host in hosts:
        addresses(host)
    ours, theirs = Station(pair.a, PORT), Station(pair.b, FRR_PORT, strict=False)
    text = config(station(views=ALL[:1])).replace('neighbors = ["198.19.0.12"]', 'keep-received = true\nneighbors = ["198.19.0.12"]')
    Ribtide(pair.a, text.replace("add-path = { receive = true }\n", ""))
    Gobgp(pair.b, gobgp())
    # GoBGP ends a session without a hold time at its first message.
    senders = [[Sender(host, FIRST, 11, hold=90), Sender(host, SECOND, 12, hold=90)] for host in hosts]
    wait_for("the stations are there", lambda: ours.session and theirs.session and ours.session.information and theirs.session.information)

    def same():
        for sender in senders[0]:
            tables = [{route: comparable(at) for route, at in station.session.table("pre", sender.address).items()} for station in (ours, theirs)]
            assert tables[0].keys() == sender.table.keys()
            assert tables[0] == tables[1]
    for _ in range(3):
        for of_host in senders:
            for sender in of_host:
                sender.history(60)
        settled(same, 20)
