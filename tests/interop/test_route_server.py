"""Route servers (RFC 7947): ribtide, FRR and BIRD in the same place pass the routes of their clients on, and a client of
each kind takes them from ribtide."""

import pytest

from harness import Bird, Exabgp, Frr, Gobgp, Host, Openbgpd, Pair, Ribtide, wait_for
from harness.peers import Side, exabgp, openbgpd
from harness.speaker import Speaker, attribute, communities, update

#: The AS of the route server, of the client that sends, and of the one that receives.
SERVER, SENDER, RECEIVER = 65001, 64600, 65020
FEED, OTHER_FEED = Host.FEEDS
PREFIX = "198.51.100.0/24"
NO_EXPORT = (0xffff, 0xff01)
#: Link bandwidth of AS 64600, which is not transitive (RFC 4360 section 6).
NON_TRANSITIVE = attribute(0xC0, 16, bytes.fromhex("4004fc5800000000"))


def ribtide_config(client="route-server-client = true\nrole = \"rs\""):
    return f"""
[router]
asn = {SERVER}
router-id = "{Pair.A4}"

[bgp]
listen = ["[::]:179"]

[bgp.group.clients]
type = "external"
families = ["ipv4-unicast"]
import = ["accept"]
export = ["accept"]
connect-retry = 1
{client}
neighbor = [
    {{ address = "{FEED}", peer-asn = {SENDER}, passive = true }},
    {{ address = "{Pair.B4}", peer-asn = {RECEIVER} }},
]

[bgp.group.others]
type = "external"
families = ["ipv4-unicast"]
import = ["accept"]
export = ["accept"]
passive = true
neighbor = [{{ address = "{OTHER_FEED}", peer-asn = 64700 }}]
"""


def frr_server():
    return f"""hostname bgpd
router bgp {SERVER}
 bgp router-id {Pair.A4}
 no bgp ebgp-requires-policy
 neighbor {Pair.B4} remote-as {RECEIVER}
 neighbor {Pair.B4} timers connect 1
 neighbor {FEED} remote-as {SENDER}
 neighbor {FEED} passive
 address-family ipv4 unicast
  neighbor {Pair.B4} route-server-client
  neighbor {FEED} route-server-client
 exit-address-family
"""


def bird_server():
    def client(name, address, asn, more):
        return f"""
protocol bgp {name} {{
    local as {SERVER};
    neighbor {address} as {asn};
    {more} rs client; interpret communities off;
    ipv4 {{ import all; export all; }};
}}
"""
    return f"router id {Pair.A4};\nlog stderr all;\nprotocol device {{}}\n" \
        + client("sender", FEED, SENDER, "passive;") \
        + client("receiver", Pair.B4, RECEIVER, "connect retry time 1; error wait time 1,2; connect delay time 1;")


def bird_client(role=""):
    return f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol static {{ ipv4; route 203.0.113.0/24 blackhole; }}
protocol bgp server {{
    local {Pair.B4} as {RECEIVER};
    neighbor {Pair.A4} as {SERVER};
    {role} enforce first as off; interpret communities off;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export all; gateway recursive; }};
}}
"""


def frr_client():
    return f"""hostname bgpd
router bgp {RECEIVER}
 bgp router-id {Pair.B4}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor {Pair.A4} remote-as {SERVER}
 neighbor {Pair.A4} timers connect 1
 no neighbor {Pair.A4} enforce-first-as
 neighbor {Pair.A4} disable-connected-check
 address-family ipv4 unicast
  network 203.0.113.0/24
 exit-address-family
"""


def gobgp_client():
    return f"""
[global.config]
  as = {RECEIVER}
  router-id = "{Pair.B4}"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{Pair.A4}"
    peer-as = {SERVER}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
"""


def client_of_kind(kind, host):
    """A client of the route server."""
    side = Side(RECEIVER, Pair.B4, Pair.B6, SERVER, Pair.A4, Pair.A6)
    return {"bird": lambda: Bird(host, bird_client()), "frr": lambda: Frr(host, bgpd=frr_client()),
            "gobgp": lambda: Gobgp(host, gobgp_client()), "openbgpd": lambda: Openbgpd(host, openbgpd(side, "enforce neighbor-as no")),
            "exabgp": lambda: Exabgp(host, exabgp(side))}[kind]()


def sender(host):
    feed = Speaker(host, FEED, SENDER)
    feed.send(update([PREFIX], [SENDER, 9], FEED, attribute(0x80, 4, b"\0\0\0\7"), communities([NO_EXPORT, (64600, 1)]),
                     NON_TRANSITIVE))
    return feed


def transparent(client):
    """The client shows the route as its sender sent it."""
    wait_for("the route is there", lambda: PREFIX in client.table(), 40)
    route = client.table()[PREFIX]
    assert (route.as_path, route.next_hop, route.med) == ("64600 9", FEED, 7)
    assert route.communities == {"65535:65281", "64600:1"}


@pytest.mark.feature("route server (RFC 7947)")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("kind", ["ribtide", "frr", "bird"])
def test_route_between_clients_is_unchanged(pair, kind):
    if kind == "ribtide":
        server = Ribtide(pair.a, ribtide_config())
    else:
        server = Frr(pair.a, bgpd=frr_server()) if kind == "frr" else Bird(pair.a, bird_server())
    # BIRD 2.0.12 has no roles where its server is no ribtide.
    client = Bird(pair.b, bird_client("local role rs_client;" if kind == "ribtide" else ""))
    sender(pair.a)
    transparent(client)
    wait_for("the server has the client's route", lambda: "203.0.113.0/24" in server.table(), 30)
    # BIRD removes extended communities that are not transitive, unlike section 2.2.4.
    assert ("(unknown 0x4004, 64600, 0)" in client.query(f"show route {PREFIX} all")) == (kind != "bird")


@pytest.mark.feature("route server (RFC 7947)")
@pytest.mark.parametrize("kind", ["frr", "gobgp", "openbgpd", "exabgp"])
def test_clients_of_other_kinds_take_the_routes(pair, kind):
    Ribtide(pair.a, ribtide_config("route-server-client = true"))
    client = client_of_kind(kind, pair.b)
    sender(pair.a)
    transparent(client)


def test_route_of_another_source_has_our_as_and_ours_to_another_too(pair):
    """A neighbour that is no client, in both directions."""
    ours = Ribtide(pair.a, ribtide_config())
    client = Bird(pair.b, bird_client())
    other = Speaker(pair.a, OTHER_FEED, 64700)
    other.send(update(["192.0.2.0/24"], [64700], OTHER_FEED, attribute(0x80, 4, b"\0\0\0\7")))
    wait_for("the route is there", lambda: "192.0.2.0/24" in client.table(), 30)
    route = client.table()["192.0.2.0/24"]
    assert (route.as_path, route.next_hop, route.med) == ("65001 64700", Pair.A4, 0)
    assert ours.neighbor(Pair.B4)["kind"] == "rs-client"


@pytest.mark.feature("route server (RFC 7947)")
@pytest.mark.peers("bird")
def test_ribtide_is_a_client(pair):
    """Of BIRD: the role alone turns off the check of the first AS."""
    server = bird_server().replace("rs client;", "rs client; local role rs_server;")
    Bird(pair.a, server)
    config = f"""
[router]
asn = {RECEIVER}
router-id = "{Pair.B4}"

[bgp.group.server]
type = "external"
peer-asn = {SERVER}
families = ["ipv4-unicast"]
role = "rs-client"
import = ["accept"]
export = ["accept"]
connect-retry = 1
neighbors = ["{Pair.A4}"]
"""
    client = Ribtide(pair.b, config)
    feed = Speaker(pair.a, FEED, SENDER)
    feed.send(update([PREFIX], [SENDER, 9], FEED))
    wait_for("the route is there", lambda: PREFIX in client.table(), 40)
    assert client.table()[PREFIX].as_path == "64600 9" and client.session(Pair.A4)["peer_role"] == "rs"
