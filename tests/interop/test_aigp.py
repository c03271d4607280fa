"""The accumulated IGP metric (RFC 7311): ribtide and BIRD in the same place, as AS 65001 with an internal neighbour, two
external ones inside the AIGP domain and one outside. Both must send the same."""

import struct

import pytest

from harness import Bird, Exabgp, Host, Pair, Ribtide, wait_for
from harness.host import TIMEOUT_FACTOR
from harness.peers import Side, configured, exabgp
from harness.speaker import UPDATE, Speaker, attribute, prefixes, raw_update, update
from harness.wire import apply, as_path

OURS, INSIDE, RECEIVER_ASN, OUTSIDE = 65001, 65010, 65030, 65020
INTERNAL, EXTERNAL = Host.FEEDS
RECEIVER, OTHER = "198.19.0.4", "198.19.0.5"
#: A next hop that is one route away.
FAR = "10.9.9.9"
AIGP, LOCAL_PREF = 26, attribute(0x40, 5, (100).to_bytes(4, "big"))
PREFIX, PLAIN, OWN, RECURSIVE = "20.0.0.0/24", "20.0.1.0/24", "20.0.2.0/24", "20.0.3.0/24"
#: A route of BGP by which next hops resolve.
THROUGH = "10.8.8.0/24"


#: Settings of the receiver.
INTO_DOMAIN = 'aigp = true\nexport = ["out"]'


def metric(value, more=b""):
    return attribute(0x80, AIGP, b"\1\0\x0b" + value.to_bytes(8, "big") + more)


def group(name, asn, address, more):
    kind = f'type = "external"\npeer-asn = {asn}' if asn != OURS else 'type = "internal"'
    return f'\n[bgp.group.{name}]\n{kind}\npassive = true\nimport = ["accept"]\nneighbors = ["{address}"]\n{more}\n'


RIBTIDE = f"""
[router]
asn = {OURS}
router-id = "10.0.255.254"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]
{group("internal", OURS, INTERNAL, "")}
{group("inside", INSIDE, EXTERNAL, "aigp = true")}
{group("outside", OUTSIDE, OTHER, "")}
{group("receiver", RECEIVER_ASN, RECEIVER, INTO_DOMAIN)}

[policy.prefix-set.own]
prefixes = ["{OWN}"]

[[policy.definition.out.statement]]
conditions.match-prefix-set = "own"
actions.set-aigp = 77
actions.policy-result = "accept"

[[policy.definition.out.statement]]
actions.policy-result = "accept"

[fib]
kernel = {{ table = 254 }}
"""


def bird_group(name, asn, address, aigp, export="none", gateway="recursive"):
    return f"""
protocol bgp to_{name} {{
    local {Host.FEED_SIDE} as {OURS};
    neighbor {address} as {asn};
    passive;
    # Without "self" it keeps a next hop on the link to the receiver (RFC 4271 section 5.1.3, third party), and its metric.
    ipv4 {{ import all; export {export}; aigp {aigp}; gateway {gateway}; next hop self; }};
}}
"""


BIRD = f"""
router id 10.0.255.254;
log stderr all;
protocol device {{}}
protocol direct {{ ipv4; }}
protocol kernel {{
    learn;
    scan time 1;
    ipv4 {{ import filter {{ igp_metric = krt_metric; accept; }}; export none; }};
}}
{bird_group("internal", OURS, INTERNAL, "on")}
{bird_group("inside", INSIDE, EXTERNAL, "on", gateway="direct")}
{bird_group("outside", OUTSIDE, OTHER, "off")}
{bird_group("receiver", RECEIVER_ASN, RECEIVER, "on", "where source = RTS_BGP")}
"""


def distance(host, metric, verb="replace"):
    host.ip("route", verb, "10.9.9.0/24", "via", INTERNAL, "metric", str(metric))


@pytest.mark.feature("AIGP (RFC 7311)")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("kind", ["ribtide", "bird"])
def test_metric_is_accumulated_decides_and_stays_in_its_domain(host, kind):
    host.feeds.address("feed0", f"{RECEIVER}/24", f"{OTHER}/24")
    distance(host, 50)
    router = Ribtide(host, RIBTIDE) if kind == "ribtide" else Bird(host, BIRD)
    internal, external = Speaker(host, INTERNAL, OURS), Speaker(host, EXTERNAL, INSIDE)
    outside, receiver = Speaker(host, OTHER, OUTSIDE), Speaker(host, RECEIVER, RECEIVER_ASN, refresh=True)
    table = {}

    def sent(prefix):
        """The path and the metric that the receiver has."""
        attributes = table.get((prefix, None))
        if attributes is None:
            return None
        value = attributes.get(AIGP)
        assert value is None or value[:3] == b"\1\0\x0b", value
        return as_path(attributes[2]).removeprefix(f"{OURS} "), value and struct.unpack("!Q", value[3:11])[0]

    def expect(prefix, *wanted):
        def holds():
            while True:
                try:
                    kind, body = receiver.read(0.1)
                except TimeoutError:
                    return sent(prefix) == wanted
                if kind == UPDATE:
                    apply(table, body)
        try:
            wait_for("the receiver has it", holds, 20 / TIMEOUT_FACTOR, alive=[router.process])
        except AssertionError:
            assert sent(prefix) == wanted
            raise

    # A long path with a metric of 100, 50 away, before a short one without.
    external.send(update([PREFIX], [INSIDE], EXTERNAL))
    expect(PREFIX, str(INSIDE), None)
    internal.send(update([PREFIX], [65100, 65101, 65102], FAR, LOCAL_PREF, metric(100)))
    expect(PREFIX, "65100 65101 65102", 150)
    # 140 and a neighbour on the link: 140 is less than 150. The added distance is not 0 (section 3.4.3).
    external.send(update([PREFIX], [INSIDE], EXTERNAL, metric(140)))
    expect(PREFIX, str(INSIDE), 141)
    external.send(update([PREFIX], [INSIDE], EXTERNAL, metric(160)))
    expect(PREFIX, "65100 65101 65102", 150)
    # The distance changes, and nothing in BGP.
    distance(host, 55, "add")
    distance(host, 50, "del")
    expect(PREFIX, "65100 65101 65102", 155)
    distance(host, 70, "add")
    distance(host, 55, "del")
    expect(PREFIX, str(INSIDE), 161)
    external.send(raw_update(withdrawn=prefixes([PREFIX])))
    expect(PREFIX, "65100 65101 65102", 170)
    # LOCAL_PREF counts before.
    internal.send(update([PREFIX], [65100], FAR, attribute(0x40, 5, (90).to_bytes(4, "big")), metric(1)))
    external.send(update([PREFIX], [INSIDE, 7, 8], EXTERNAL, metric(1000)))
    expect(PREFIX, f"{INSIDE} 7 8", 1001)
    # From outside of the domain it is ignored (section 3.3), also where it would win.
    outside.send(update([PLAIN, PREFIX], [OUTSIDE], OTHER, metric(5)))
    expect(PLAIN, str(OUTSIDE), None)
    expect(PREFIX, f"{INSIDE} 7 8", 1001)
    # The next hop resolves through a route of BGP, whose metric counts (sections 3.4.3 and 4.2). BIRD takes a link for 1 here too.
    link = 0 if kind == "ribtide" else 1
    external.send(update([THROUGH], [INSIDE], EXTERNAL, metric(40)))
    internal.send(update([RECURSIVE], [65100], "10.8.8.8", LOCAL_PREF, metric(100)))
    expect(RECURSIVE, "65100", 140 + link)
    external.send(update([THROUGH], [INSIDE], EXTERNAL, metric(60)))
    expect(RECURSIVE, "65100", 160 + link)
    # It is compared with a path on the link, whose metric is between that and the one without.
    external.send(update([RECURSIVE], [INSIDE], EXTERNAL, metric(150)))
    expect(RECURSIVE, str(INSIDE), 151)
    external.send(update([THROUGH], [INSIDE], EXTERNAL, metric(40)))
    expect(RECURSIVE, "65100", 140 + link)
    external.send(raw_update(withdrawn=prefixes([RECURSIVE])))
    # Without a metric of that route none is passed on. BIRD passes the highest number on, which receivers discard (section 3.2).
    external.send(update([THROUGH], [INSIDE], EXTERNAL))
    expect(RECURSIVE, "65100", None if kind == "ribtide" else 2**64 - 1)
    external.send(update([THROUGH], [INSIDE], EXTERNAL, metric(1)))
    expect(RECURSIVE, "65100", 101 + link)
    if kind == "ribtide":
        # The metric of a policy is sent as it is, also in place of a received one. BIRD 2.0.12 cannot set it.
        external.send(update([OWN], [INSIDE], EXTERNAL, metric(9)))
        expect(OWN, str(INSIDE), 77)
        shown = {p["neighbor"]: p for entry in router.show("route", PREFIX) for p in entry["paths"]}
        assert (shown[EXTERNAL]["aigp"], shown[INTERNAL]["aigp"]) == (1000, 1)
        assert "aigp" not in shown[OTHER] and "AIGP" in shown[OTHER]["lost"], shown
        # Another setting reaches both directions without another session.
        text = router.config.read_text()
        router.config.write_text(text.replace('aigp = true\nexport', 'aigp = false\nexport'))
        router.text("reload")
        expect(PREFIX, f"{INSIDE} 7 8", None)
        router.config.write_text(text)
        router.text("reload")
        expect(PREFIX, f"{INSIDE} 7 8", 1001)


def router_with_a_metric(host, kind="external", asn=INSIDE):
    """ribtide with a network that has a metric, and a neighbour inside of the domain."""
    return Ribtide(host, f"""
[router]
asn = {OURS}
router-id = "{Pair.A4}"

[bgp]
listen = ["[::]:179"]

[bgp.originate]
networks = ["{OWN}"]
network-policy = ["metric"]

[[policy.definition.metric.statement]]
actions.set-aigp = 10
actions.policy-result = "accept"

[bgp.group.link]
type = "{kind}"
peer-asn = {asn}
{"aigp = true" if kind == "external" else ""}
connect-retry = 1
families = ["ipv4-unicast"]
import = ["accept"]
export = ["accept"]
neighbors = ["{Pair.B4}"]
""")


@pytest.mark.feature("AIGP (RFC 7311)")
@pytest.mark.peers("bird")
def test_metric_through_bird(pair):
    """ribtide's own network with a metric, BIRD as the next AS of the domain, and back what BIRD accumulates."""
    ours = router_with_a_metric(pair.a)
    bird = Bird(pair.b, f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol static {{ ipv4; route {PREFIX} blackhole {{ igp_metric = 7; }}; }}
protocol bgp ours {{
    local {Pair.B4} as {INSIDE};
    neighbor {Pair.A4} as {OURS};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export all; aigp originate; }};
}}
""")
    wait_for("BIRD has the metric", lambda: "BGP.aigp: 10" in bird.query(f"show route {OWN} all"), 20, alive=[ours.process])
    wait_for("ribtide has BIRD's", lambda: [p.get("aigp") for r in ours.show("route", PREFIX) for p in r["paths"]] == [7], 20,
             alive=[ours.process])


@pytest.mark.feature("AIGP (RFC 7311)")
@pytest.mark.parametrize("kind", ["gobgp", "exabgp"])
def test_metric_to_and_from_others(pair, kind):
    """They accumulate nothing: GoBGP shows the metric of our network, which ExaBGP 4.2 does not print, and both send that of their route."""
    ours = router_with_a_metric(pair.a, "internal", OURS)
    side = Side(OURS, Pair.B4, Pair.B6, OURS, Pair.A4, Pair.A6)
    if kind == "gobgp":
        other = configured("gobgp", pair.b, side)
        other.query("global", "rib", "add", "-a", "ipv4", PREFIX, "aigp", "metric", "7")
        wait_for("it has the metric", lambda: "{Metric: 10}" in other.query("global", "rib", OWN), 20, alive=[ours.process])
    else:
        Exabgp(pair.b, exabgp(side, f"static {{ route {PREFIX} next-hop self aigp 7; }}"))
    wait_for("ribtide has its", lambda: [p.get("aigp") for r in ours.show("route", PREFIX) for p in r["paths"]] == [7], 20,
             alive=[ours.process])
