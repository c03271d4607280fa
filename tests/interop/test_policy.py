"""Import and export policy with BIRD: accepted and advertised routes, with all attributes."""

import pytest

from harness import FEED_ASN, Bird, Host, Pair, Ribtide, Route, agree, wait_for
from harness.peers import wait_count
from harness.speaker import Speaker, attribute, communities, prefixes, raw_update, update

CUSTOMER = 65002

POLICY = f"""
[router]
asn = 65001
router-id = "{Pair.A4}"

[policy.prefix-set.bogons]
prefixes = ["0.0.0.0/0", "10.0.0.0/8 8..32"]

[policy.prefix-set.customer]
file = "customer.txt"

[policy.community-set.ours]
members = ["65001:*", "65001:*:*"]

[policy.as-path-set.through-666]
contains = [666]

[[policy.definition.bogons.statement]]
conditions.match-prefix-set = "bogons"
actions.policy-result = "reject"

[[policy.definition.customer-in.statement]]
name = "only we give our communities"
actions.set-community.remove-set = "ours"

[[policy.definition.customer-in.statement]]
conditions.match-as-path-set = "through-666"
actions.policy-result = "reject"

[[policy.definition.customer-in.statement]]
conditions.match-prefix-set = "customer"
actions.set-local-pref = 200
actions.set-med = "+5"
actions.set-community.add = ["65001:100", "65001:1:2"]
actions.policy-result = "accept"

[policy.prefix-set.far]
prefixes = ["172.16.0.0/12 12..24"]

[policy.community-set.keep]
members = ["64500:1"]

[[policy.definition.customer-out.statement]]
name = "far away"
conditions.match-prefix-set = "far"
actions.set-as-path-prepend = {{ asn = 65009, repeat-n = 2 }}
actions.set-next-hop = "10.255.0.77"

[[policy.definition.customer-out.statement]]
conditions.match-community-set = "keep"
actions.set-med = 50
actions.set-community.replace = ["no-export"]
actions.policy-result = "accept"

[bgp]
listen = ["[::]:179"]

[bgp.group.feed]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{Host.FEEDS[0]}"]

[bgp.group.customer]
type = "external"
peer-asn = {CUSTOMER}
connect-retry = 1
import = ["bogons", "customer-in"]
export = ["customer-out"]
neighbors = ["{Pair.B4}"]
"""

BIRD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol static {{
    ipv4;
    route 203.0.113.0/24 blackhole {{ bgp_community.add((65002,1)); bgp_community.add((65001,666)); bgp_large_community.add((65001,9,9)); }};
    route 203.0.113.0/25 blackhole;
    route 198.51.100.0/23 blackhole;
    route 198.51.100.0/24 blackhole {{ bgp_path.prepend(666); }};
    route 10.1.0.0/16 blackhole;
    route 192.0.2.0/24 blackhole;
}}
protocol bgp ribtide {{
    local {Pair.B4} as {CUSTOMER};
    neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export filter {{ if source != RTS_STATIC then reject; if net ~ [203.0.113.0/24] then bgp_med = 7; accept; }}; }};
}}
"""


def holds(bird, table):
    """Waits until BIRD has these routes, and compares them."""
    wait_for(f"BIRD has {sorted(table)}", lambda: bird.table().keys() == table.keys(), 30)
    agree(table, bird.table())


@pytest.mark.feature("communities by policy (RFC 1997, RFC 8092)")
@pytest.mark.peers("bird")
def test_import_and_export(pair):
    (pair.a.folder / "customer.txt").write_text("# as registered\n203.0.113.0/24\n198.51.100.0/22 22..24\n")
    router = Ribtide(pair.a, POLICY)
    bird = Bird(pair.b, BIRD)
    wait_for("the session is established", lambda: router.established(Pair.B4), 60, alive=[router.process])
    # Taken: what is registered and came not through AS 666, with our marks and none that only look like ours.
    taken = {"local_pref": 200, "large_communities": frozenset({"65001:1:2"})}
    theirs = {
        "203.0.113.0/24": Route("65002", "igp", Pair.B4, 12, communities=frozenset({"65002:1", "65001:100"}), **taken),
        "198.51.100.0/23": Route("65002", "igp", Pair.B4, 5, communities=frozenset({"65001:100"}), **taken),
    }
    wait_count(router, 2)
    agree(theirs, router.table())

    feed = Speaker(pair.a, Host.FEEDS[0], FEED_ASN)
    marks = [communities([(64500, 1), (64500, 2)]), attribute(0x80, 4, (9).to_bytes(4, "big"))]
    # One message, of which each prefix goes its own way.
    feed.send(update(["172.16.0.0/16", "172.17.0.0/25", "192.88.99.0/24"], [FEED_ASN, 64999], Host.FEEDS[0], *marks))
    feed.send(update(["172.18.0.0/16", "192.88.98.0/24"], [FEED_ASN], Host.FEEDS[0]))
    wait_count(router, 7)
    given = {"med": 50, "communities": frozenset({"65535:65281"})}
    far = Route(f"65001 65009 65009 {FEED_ASN} 64999", "igp", "10.255.0.77", **given)
    near = Route(f"65001 {FEED_ASN} 64999", "igp", Pair.A4, **given)
    holds(bird, {"172.16.0.0/16": far, "172.17.0.0/25": near, "192.88.99.0/24": near})
    assert router.session(Pair.B4)["advertised"]["ipv4"] == 3
    messages = router.explain("172.18.0.0/16")["stages"][0]["messages"]
    at = messages.index("customer-out, statement \"far away\": match-prefix-set \"far\" holds; "
                    "set-next-hop 10.255.0.77, set-as-path-prepend 2 times 65009; next statement")
    assert messages[at - 1].endswith("(1 member): not sent")
    assert messages[at + 1] == "customer-out, statement 2: match-community-set \"keep\" does not hold"
    assert messages[at + 2] == "no policy decided: rejected, since the peer is external (RFC 8212)"

    # A route is withdrawn when the policy rejects its new state, and advertised when it accepts that.
    feed.send(update(["172.16.0.0/16"], [FEED_ASN, 64999], Host.FEEDS[0]))
    feed.send(update(["192.88.98.0/24"], [FEED_ASN, 64999], Host.FEEDS[0], *marks))
    feed.send(raw_update(prefixes(["172.17.0.0/25"])))
    holds(bird, {"192.88.98.0/24": near, "192.88.99.0/24": near})
    assert router.session(Pair.B4)["advertised"]["ipv4"] == 2
