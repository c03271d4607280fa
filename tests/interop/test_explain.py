"""`explain`: the statements that change a path, the steps of a next hop's resolution, times, and conclusions."""

import json

from harness import Host, Ribtide, wait_for
from harness.config import HEAD, LAB
from harness.speaker import Speaker, attribute, communities, update

FIRST, SECOND = Host.FEEDS
#: LOCAL_PREF, which an internal neighbour must send (RFC 4271 section 5.1.5).
PREFERENCE = attribute(0x40, 5, b"\0\0\0\x64")

CONFIG = HEAD + f"""
[bgp.group.inside]
type = "internal"
passive = true
keep-received = true
import = ["in"]
neighbors = ["{FIRST}"]
[bgp.group.outside]
type = "external"
peer-asn = 65011
passive = true
import = ["accept"]
neighbors = ["{SECOND}"]
[policy.community-set.marked]
members = ["65001:7"]
[[policy.definition.in.statement]]
name = "marked"
conditions.match-community-set = "marked"
actions.set-local-pref = 300
actions.policy-result = "next-statement"
[[policy.definition.in.statement]]
name = "rest"
actions.policy-result = "accept"
[[static]]
prefix = "20.9.0.0/16"
next-hop = ["10.0.0.77"]
[[static]]
prefix = "20.8.0.0/16"
next-hop = ["192.0.2.99"]
[fib]
""" + LAB.removeprefix("[fib]")


def stages(router, prefix):
    reply = router.explain(prefix)
    return {stage["stage"]: stage for stage in reply["stages"]}, reply["conclusion"]


def test_explain_names_what_changed_a_path_and_each_step_of_its_next_hop(host):
    router = Ribtide(host, CONFIG)
    inside, outside = Speaker(host, FIRST, 65001), Speaker(host, SECOND, 65011)
    inside.send(update(["20.1.0.0/16"], [64900], "20.9.1.1", PREFERENCE, communities([(65001, 7)]))
                + update(["20.2.0.0/16"], [64900], "20.9.1.1", PREFERENCE) + update(["20.3.0.0/16"], [64900], "20.7.1.1", PREFERENCE))
    outside.send(update(["20.1.0.0/16"], [65011], "10.0.0.6"))
    wait_for("both paths are there", lambda: sum(len(r["paths"]) for r in router.show("route")) == 4, 15)
    wait_for("it is in the chip", lambda: "all the way through" in router.explain("20.1.0.0/16")["conclusion"], 15)
    found, conclusion = stages(router, "20.1.0.0/16")
    said = found["bgp"]["messages"]
    [by] = [message for message in said if "import policy changed the path" in message]
    assert 'statement "marked"' in by and "set-local-pref 300" in by, said
    # The path that it is about follows.
    assert FIRST in said[said.index(by) + 1] and "best" in said[said.index(by) + 1]
    assert any(SECOND in message and "lower local preference" in message for message in said), said
    # Each step, down to the interface.
    rib = found["rib"]["messages"]
    assert "next hop 20.9.1.1 resolves through 20.9.0.0/16" in rib, rib
    steps = [message for message in rib if " is a " in message]
    assert steps[0].startswith("20.9.0.0/16 is a static route by 10.0.0.77, which resolves through 10.0.0.0/")
    assert steps[1].split(" is a ")[1].startswith("connected route on "), steps
    assert conclusion == "the route is all the way through: virtual switch has it"
    # Times, where they are known; they go on, and `watch` does not take that for a change.
    for name in ("bgp", "rib"):
        before = found[name]["seconds"]
        wait_for(f"time goes on at {name}", lambda: stages(router, "20.1.0.0/16")[0][name]["seconds"] > before, 20)  # noqa: B023
    # No statement changed the other.
    assert not [m for m in stages(router, "20.2.0.0/16")[0]["bgp"]["messages"] if "changed it" in m]


def test_conclusions_are_right_for_every_kind_of_route(host):
    router = Ribtide(host, CONFIG)
    inside = Speaker(host, FIRST, 65001)
    inside.send(update(["20.3.0.0/16"], [64900], "20.7.1.1", PREFERENCE) + update(["20.2.0.0/16"], [64900], "20.9.1.1", PREFERENCE))
    wait_for("the paths are there", lambda: len(router.show("route")) == 2, 15)
    wait_for("one is in the chip", lambda: "all the way" in router.explain("20.2.0.0/16")["conclusion"], 15)
    assert router.explain("20.9.0.0/16")["conclusion"] == "the static route is all the way through: virtual switch has it"
    assert router.explain("20.8.0.0/16")["conclusion"].startswith("the static route ends at rib: next hop 192.0.2.99 does not resolve")
    assert router.explain("20.3.0.0/16")["conclusion"].startswith("the route ends at ")
    assert "unreachable" in " ".join(stages(router, "20.3.0.0/16")[0]["bgp"]["messages"])
    [connected] = [r["prefix"] for r in router.show("fib", "--protocol", "connected") if r["prefix"].startswith("10.0.0.")]
    assert router.explain(connected)["conclusion"].startswith("the connected route is all the way through")
    assert router.explain("20.250.0.0/16")["conclusion"] == "nothing is known of 20.250.0.0/16"


SEVERAL = HEAD + f"""
[bgp.group.inside]
type = "internal"
passive = true
import = ["accept"]
export = ["accept"]
neighbors = ["{FIRST}"]
[bgp.originate]
networks = ["203.0.113.0/24"]
require-route = true
[[bgp.aggregate]]
prefix = "20.0.0.0/8"
summary-only = true
[[static]]
prefix = "20.9.0.0/16"
next-hop = ["10.0.0.77"]
[[static]]
prefix = "30.9.0.0/16"
blackhole = true
[vrf.Vrfred]
interfaces = ["Ethernet4"]
[[vrf.Vrfred.static]]
prefix = "192.0.2.0/24"
next-hop = ["10.2.0.17"]
[[vrf.Vrfred.static]]
prefix = "198.51.100.0/24"
next-hop = ["10.3.0.18"]
[fib]
suppress-fib-pending = true
%s
[fib.asic.asic0]
lab = true
[fib.asic.asic1]
lab = true
[[interface]]
name = "Ethernet0"
addresses = ["10.0.255.254/16"]
[[interface]]
name = "Ethernet4"
addresses = ["10.2.0.1/24"]
"""
BOTH = "asic0 virtual switch and asic1 virtual switch have it"


def test_conclusions_about_vrfs_several_asics_and_what_waits(host):
    """Two ASICs, and an FPM server that is not there: it confirms nothing, so with FIB suppression nothing is advertised."""
    router = Ribtide(host, SEVERAL % 'fpm = ["127.0.0.1:9"]')
    inside = Speaker(host, FIRST, 65001)
    inside.send(update(["20.1.0.0/16"], [64900], "20.9.1.1", PREFERENCE))
    concluded = lambda *what: router.explain(*what)["conclusion"]  # noqa: E731
    absent = "waits at fpm: not connected to 127.0.0.1:9"
    wait_for("the route is in both chips",
             lambda: sum(s["state"] == "passed" and "virtual switch" in s["stage"] for s in router.explain("20.1.0.0/16")["stages"]) == 2, 15)
    assert concluded("20.1.0.0/16") == f"the route {absent}"
    assert "not advertised yet: waits for confirmation by fpm" in stages(router, "20.1.0.0/16")[0]["bgp"]["messages"]
    # The reason that lasts, and not the one that passes.
    to = json.loads(router.text("explain", "20.1.0.0/16", "--to", FIRST, "--json"))["conclusion"]
    assert to.endswith(f"to {FIRST}: not sent: it came from this peer"), to
    # Without that server the route is all the way through, in each VRF.
    router.config.write_text(router.config.read_text().replace('fpm = ["127.0.0.1:9"]', ""))
    router.text("reload")
    wait_for("it is advertised", lambda: concluded("20.1.0.0/16").startswith("the route is all the way through"), 15)
    assert concluded("20.1.0.0/16").startswith(f"the route is all the way through: {BOTH}; the aggregate")
    for prefix in ("20.9.0.0/16", "30.9.0.0/16"):
        discards = "; packets to it are discarded" if prefix == "30.9.0.0/16" else ""
        assert concluded(prefix) == f"the static route is all the way through: {BOTH}{discards}"
    assert concluded("10.0.0.0/16") == f"the connected route is all the way through: {BOTH}"
    red = lambda prefix: json.loads(router.text("explain", prefix, "--vrf", "Vrfred", "--json"))["conclusion"]  # noqa: E731
    assert red("192.0.2.0/24") == red("192.0.2.9") == f"the static route is all the way through: {BOTH}"
    assert red("10.2.0.0/24") == f"the connected route is all the way through: {BOTH}"
    assert red("198.51.100.0/24") == "the static route ends at rib: next hop 10.3.0.18 does not resolve: no route holds it"
    assert red("20.1.0.0/16") == "nothing is known of 20.1.0.0/16"
    # A prefix that only another VRF has, and one that none has.
    hint = "in the default VRF; VRF Vrfred has a route: `ribtide explain {0} --vrf Vrfred`"
    for what in ("192.0.2.0/24", "192.0.2.9"):
        assert concluded(what) == f"nothing is known of {what} " + hint.format(what)
    assert concluded("203.0.114.0/24") == "nothing is known of 203.0.114.0/24"
    # What the configuration originates, but not now.
    assert "require-route is on" in concluded("203.0.113.0/24")
    inside.close()
    wait_for("the aggregate has no contributor", lambda: "it has no contributor" in concluded("20.0.0.0/8"), 15)
