"""What the operator sees: filters of lists of routes beside FRR's, the configuration in force, the log, and outputs that
end early."""

import tomllib
import ipaddress
import json
import random
import re
import select
import subprocess
import time

import pytest

from harness import Frr, Host, Pair, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, external
from harness.peers import wait_count
from harness.speaker import Speaker, attribute, communities, update
from harness.unix_http import UnixHttp
from test_views import start

FIRST, SECOND = Host.FEEDS
PEER = 65002


def large(*values):
    """LARGE_COMMUNITY (RFC 8092)."""
    return attribute(0xc0, 32, b"".join(n.to_bytes(4, "big") for value in values for n in value))


def extended(*targets):
    """EXTENDED COMMUNITIES: route targets of two-octet ASes."""
    return attribute(0xc0, 16, b"".join(b"\0\2" + asn.to_bytes(2, "big") + n.to_bytes(4, "big") for asn, n in targets))


def feed(rng, source, asn, count=300):
    """Random routes: nested prefixes, paths, and communities of all kinds."""
    messages = b""
    for n in range(count):
        prefix = ipaddress.ip_network((0x14000000 + (rng.randrange(64) << 18) + (rng.randrange(64) << 10), 32)).supernet(
            new_prefix=rng.choice([12, 14, 16, 18, 20, 22]))
        path = [asn, *(rng.choice([64900, 64901, 649, 4200000007]) for _ in range(rng.randrange(4)))]
        more = [communities([(64500, rng.choice([1, 2, 666])), (64501, n % 7)])] if rng.random() < 0.6 else []
        more += [extended((64500, n % 3))] if rng.random() < 0.4 else []
        more += [large((64500, 1, n % 5))] if rng.random() < 0.4 else []
        messages += update([str(prefix)], path, source, *more)
    return messages


def config(more="", keep=""):
    return f"""
[router]
asn = 65001
router-id = "{Pair.A4}"
[bgp]
listen = ["[::]:179"]
shards = 3
{external("first", 65010, FIRST, 'import = ["accept"]' + keep)}
{external("second", 65011, SECOND, 'import = ["accept"]')}
[bgp.group.link]
connect-retry = 1
type = "external"
peer-asn = {PEER}
import = ["accept"]
export = ["accept"]
families = ["ipv4-unicast"]
neighbors = ["{Pair.B4}"]
{more}
"""


FRR = f"""hostname bgpd
router bgp {PEER}
 bgp router-id {Pair.B4}
 no bgp ebgp-requires-policy
 neighbor {Pair.A4} remote-as 65001
 neighbor {Pair.A4} timers connect 1
 no neighbor {Pair.A4} enforce-first-as
 neighbor {Pair.A4} disable-connected-check
"""


def refused(router, *args):
    """The sentence with which `ribtide ARGS` ends."""
    done = subprocess.run([binary(), *args, "--socket", router.socket], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and not done.stdout, done
    return done.stderr


def lines(router, *args):
    return [json.loads(line) for line in router.text(*args, "--json").splitlines()]


@pytest.mark.feature("filters of lists of routes")
@pytest.mark.peers("frr")
def test_filters_select_what_frr_selects(pair):
    rng = random.Random(25)
    router = Ribtide(pair.a, config())
    peer = Frr(pair.b, bgpd=FRR)
    wait_for("the session is established", lambda: router.established(Pair.B4), 60, alive=[router.process])
    Speaker(pair.a, FIRST, 65010).send(feed(rng, FIRST, 65010) + update(["30.0.0.0/16"], [65010], FIRST))
    Speaker(pair.a, SECOND, 65011).send(feed(rng, SECOND, 65011) + update(["30.1.0.0/16"], [65011], SECOND))
    wait_for("both feeds are there", lambda: {"30.0.0.0/16", "30.1.0.0/16"} <= set(router.table()), 60)
    everything = router.count()
    wait_for("FRR has everything", lambda: peer.count() == everything, 60)

    def ours(*options):
        """The prefixes whose best path fits."""
        routes = lines(router, "show", "route", *options, "--state", "best")
        assert all(len(route["paths"]) == 1 and route["paths"][0]["best"] for route in routes)
        prefixes = [route["prefix"] for route in routes]
        assert prefixes == sorted(prefixes, key=ipaddress.ip_network)
        return set(prefixes)

    def frr(command):
        return set(json.loads(peer.query(f"show bgp ipv4 unicast {command} json", "bgpd")).get("routes", {}))
    for options, command in [
        (["20.0.0.0/12", "--longer"], "20.0.0.0/12 longer-prefixes"),
        (["20.64.0.0/14", "--longer-prefixes"], "20.64.0.0/14 longer-prefixes"),
        (["--community", "64500:1"], "community 64500:1"),
        (["--community", "64500:1:2"], "large-community 64500:1:2"),
        (["--as-path", "_64900_"], "regexp _64900_"),
        (["--as-path", "^65010 649$"], "regexp ^65001_65010_649$"),
        (["--origin-as", "64901"], "regexp _64901$"),
    ]:
        selected = ours(*options)
        assert selected == frr(command) and 0 < len(selected) < everything, options
    with_both = frr("community 64500:2") & frr("community 64501:3")
    assert ours("--community", "64500:2", "--community", "64501:3") == with_both != set()
    # FRR has no list of what contains a prefix: by the meaning of containing.
    inside = ipaddress.ip_network("20.20.0.0/22")
    contains = {p for p in router.table() if inside.subnet_of(ipaddress.ip_network(p))}
    assert ours(str(inside), "--shorter") == contains and ours("20.20.0.0", "--shorter") >= contains
    # Conditions narrow each other, and a filter that nothing fits gives nothing.
    both = ours("--community", "64500:1", "--as-path", "_64900_")
    assert both == ours("--community", "64500:1") & ours("--as-path", "_64900_") and both
    assert ours("--community", "64500:1", "--community", "64500:3") == set()
    # Paths, not only best ones: by neighbour, next hop, extended community and state.
    whole = lines(router, "show", "route")
    paths = [(route["prefix"], path) for route in whole for path in route["paths"]]

    def text(path):
        # The age differs between two readings.
        return json.dumps({name: value for name, value in path.items() if name != "age_seconds"}, sort_keys=True)

    def of(*options):
        return sorted((r["prefix"], text(p)) for r in lines(router, "show", "bgp", "route", *options) for p in r["paths"])

    def by(fits):
        return sorted((prefix, text(path)) for prefix, path in paths if fits(path))
    assert of("--neighbor", SECOND) == by(lambda p: p["neighbor"] == SECOND) != []
    assert of("--next-hop", FIRST) == by(lambda p: p["next_hop"] == FIRST) != []
    assert of("--state", "not-best") == by(lambda p: not p["best"]) != []
    assert of("--community", "rt:64500:2") == by(lambda p: "rt:64500:2" in p.get("extended_communities", [])) != []
    assert of("--community", "64501:*") == by(lambda p: any(c.startswith("64501:") for c in p.get("communities", []))) != []
    assert of("--origin-as", "64900-64901") == by(lambda p: p["as_path"].split()[-1] in ("64900", "64901")) != []
    # Advertised: the attributes as sent, with our own AS.
    sent = lines(router, "show", "bgp", "neighbor", Pair.B4, "advertised", "--as-path", "^65001 65011", "--community", "64500:2")
    assert {r["prefix"] for r in sent} == frr("regexp ^65001_65011_") & frr("community 64500:2") != set()
    assert {r["prefix"] for r in lines(router, "show", "bgp", "neighbor", Pair.B4, "advertised", "20.0.0.0/12", "--longer")} == frr("20.0.0.0/12 longer-prefixes")
    # What a caller misspells is refused, with the field and the remedy.
    assert "--state" not in refused(router, "show", "route", "--state", "bst")
    assert "write one of best, not-best" in refused(router, "show", "route", "--state", "bst")
    assert "community: \"65001\" is no community" in refused(router, "show", "route", "--community", "65001")
    assert "as-path: \"(1\" is no AS path expression" in refused(router, "show", "route", "--as-path", "(1")
    assert "origin-as: \"AS1\" is no number" in refused(router, "show", "route", "--origin-as", "AS1")
    assert "next-hop: \"eth0\" is no address" in refused(router, "show", "route", "--next-hop", "eth0")
    assert "there is no neighbour 192.0.2.99" in refused(router, "show", "route", "--neighbor", "192.0.2.99")
    assert "[rpki]" in refused(router, "show", "route", "--state", "valid")
    assert "has bits set beyond its length" in refused(router, "show", "route", "20.0.0.1/8", "--longer")


#: Of each filter of ours: the words of BIRD, OpenBGPD and GoBGP for the same; GoBGP's command filters by prefix alone.
SAME_FILTERS = [
    (["20.0.0.0/12", "--longer"], "net ~ [20.0.0.0/12+]", ["20.0.0.0/12", "all"], ["20.0.0.0/12", "longer-prefixes"]),
    (["--community", "64500:1"], "bgp_community ~ [(64500,1)]", ["community", "64500:1"], None),
    (["--community", "64500:1:2"], "bgp_large_community ~ [(64500,1,2)]", ["large-community", "64500:1:2"], None),
    (["--as-path", "_64900_"], "bgp_path ~ [= * 64900 * =]", ["as", "64900"], None),
    (["--origin-as", "64901"], "bgp_path.last = 64901", ["source-as", "64901"], None),
]


@pytest.mark.feature("filters of lists of routes")
@pytest.mark.parametrize("kind", ["bird", "gobgp", "openbgpd"])
def test_filters_select_what_others_select(pair, kind):
    rng = random.Random(26)
    router = Ribtide(pair.a, config())
    peer = start(kind, pair.b)
    for source, asn in ((FIRST, 65010), (SECOND, 65011)):
        Speaker(pair.a, source, asn).send(feed(rng, source, asn, 150) + update([f"30.0.{asn % 256}.0/24"], [asn], source))
    wait_for("both feeds are there", lambda: {f"30.0.{asn % 256}.0/24" for asn in (65010, 65011)} <= set(router.table()), 60)
    everything = router.count()
    wait_for("the peer has everything", lambda: peer.count() == everything, 60)
    for options, *words in SAME_FILTERS:
        of_kind = dict(zip(("bird", "openbgpd", "gobgp"), words))[kind]
        if kind == "bird":
            theirs = set(re.findall(r"^(\d\S+/\d+)", peer.query(f"show route where {of_kind}"), re.MULTILINE))
        elif kind == "openbgpd":
            theirs = {at["prefix"] for at in json.loads(peer.query("-j", "show", "rib", "selected", *of_kind)).get("rib", [])}
        elif of_kind is None:
            continue
        else:
            theirs = set(json.loads(peer.query("global", "rib", *of_kind, "-a", "ipv4", "-j")))
        mine = {route["prefix"] for route in lines(router, "show", "route", *options, "--state", "best")}
        assert mine == theirs and 0 < len(mine) < everything, options


def test_received_routes_are_filtered_before_the_policy_runs(pair):
    rng = random.Random(7)
    policy = '''
[policy.community-set.secret]
members = ["64500:666"]
[[policy.definition.in.statement]]
conditions.match-community-set = "secret"
actions.policy-result = "reject"
'''
    text = config(policy, "\nkeep-received = true").replace('import = ["accept"]\nkeep', 'import = ["in", "accept"]\nkeep')
    router = Ribtide(pair.a, text)
    Speaker(pair.a, FIRST, 65010).send(feed(rng, FIRST, 65010, 3000) + update(["30.0.0.0/16"], [65010], FIRST))
    wait_for("the feed is there", lambda: "30.0.0.0/16" in router.table(), 60, alive=[router.process])

    def received(*options, which="received"):
        return [r["prefix"] for r in lines(router, "show", "bgp", "neighbor", FIRST, which, *options)]
    whole = lines(router, "show", "bgp", "neighbor", FIRST, "received")
    assert len(whole) > 1000
    rejected = [r["prefix"] for r in whole if not r["accepted"]]
    assert received("--state", "rejected") == received(which="filtered") == received("--community", "64500:666") == rejected != []
    assert received("--state", "accepted") == [r["prefix"] for r in whole if r["accepted"]]
    inside = [r["prefix"] for r in whole if ipaddress.ip_network(r["prefix"]).subnet_of(ipaddress.ip_network("20.0.0.0/9"))]
    assert received("20.0.0.0/9", "--longer") == inside != []
    ends = [r["prefix"] for r in whole if r["as_path"].split()[-1] == "649" and not r["accepted"]]
    assert received("--origin-as", "649", which="filtered") == ends != []
    assert "write one of accepted, rejected" in refused(router, "show", "bgp", "neighbor", FIRST, "received", "--state", "best")


def test_selected_routes_are_filtered_by_dataplane_state(host):
    text = (HEAD + external("first", 65010, FIRST, 'import = ["accept"]') + "[fib]" + LAB
            + '[[static]]\nprefix = "20.9.0.0/16"\nnext-hop = ["10.0.0.77"]\n')
    router = Ribtide(host, text)
    router.text("config", "asic", "refuse", "20.1.0.0/16")
    Speaker(host, FIRST, 65010).send(update(["20.1.0.0/16", "20.1.2.0/24", "20.2.0.0/16"], [65010], "10.0.0.5"))
    wait_for("the chip has refused one", lambda: [r["prefix"] for r in router.show("fib", "--state", "failed")] == ["20.1.0.0/16"], 60)
    router.ends_differing("the chip refuses a route")

    def fib(*options):
        return {r["prefix"] for r in router.show("fib", *options)}
    assert fib("--protocol", "ebgp") == {"20.1.0.0/16", "20.1.2.0/24", "20.2.0.0/16"}
    assert fib("--protocol", "static") == {"20.9.0.0/16"} == fib("--next-hop", "10.0.0.77")
    assert fib("20.1.0.0/16", "--longer") == {"20.1.0.0/16", "20.1.2.0/24"} == fib("20.1.2.9", "--shorter")
    assert fib("20.0.0.0/8", "--longer", "--state", "installed", "--protocol", "ebgp") == {"20.1.2.0/24", "20.2.0.0/16"}
    assert "write one of connected, static, ebgp, ibgp, kernel" in refused(router, "show", "fib", "--protocol", "bgp")
    assert "write one of installed, pending, failed" in refused(router, "show", "fib", "--state", "up")
    assert fib("--age-under", "1h") == fib() and not fib("--age-over", "1h")
    assert "age-over: \"old\" is no duration" in refused(router, "show", "fib", "--age-over", "old")

    def failed(*options):
        return [(r["prefix"], r["dataplane"]) for r in lines(router, "show", "route", "failed", *options)]
    [(prefix, plane)] = failed()
    assert prefix == "20.1.0.0/16" and failed(prefix) == failed("20.0.0.0/8", "--longer") == failed("--dataplane", plane) == failed("--vrf", "default") == failed()
    assert failed("20.0.0.0/8") == failed("20.2.0.0/16", "--longer") == []
    assert f"there is no dataplane none; there are: {plane}" in refused(router, "show", "route", "failed", "--dataplane", "none")
    assert "there is no VRF red" in refused(router, "show", "route", "failed", "--vrf", "red")


def test_neighbours_are_filtered_by_state(host):
    text = HEAD + external("first", 65010, FIRST, 'import = ["accept"]') + external("second", 65011, SECOND, 'import = ["accept"]')
    router = Ribtide(host, text)
    first = Speaker(host, FIRST, 65010)
    wait_for("the session is established", lambda: router.established(FIRST), 60, alive=[router.process])

    def neighbors(*options):
        every = [n["address"] for n in router.show("bgp", "neighbor", *options)]
        summary = router.show("bgp", "summary", *options)
        assert [n["address"] for n in summary["neighbors"]] == every and summary["neighbor_count"] == 2
        return every
    assert neighbors("--state", "up") == neighbors("--state", "established") == [FIRST]
    assert neighbors("--state", "down") == [SECOND]
    assert neighbors("--state", "opensent") == [] and SECOND not in router.text("show", "bgp", "summary", "--state", "up")
    assert "write one of up, down, idle" in refused(router, "show", "bgp", "summary", "--state", "Up")
    assert "--state is for all neighbours" in refused(router, "show", "bgp", "neighbor", FIRST, "--state", "up")
    assert router.show("bfd", "--state", "up")["sessions"] == []
    assert "write one of up, down, init, admin-down" in refused(router, "show", "bfd", "--state", "upp")
    first.close()


def test_received_routes_have_their_attributes_and_refused_ones_the_statement(host):
    policy = """
[[policy.definition.in.statement]]
name = "no customers"
conditions.origin-eq = "igp"
conditions.as-path-length = 2
actions.policy-result = "reject"
[[policy.definition.in.statement]]
actions = { set-local-pref = 300, policy-result = "accept" }
"""
    text = HEAD + external("first", 65010, FIRST, 'import = ["in"]\nkeep-received = true')
    router = Ribtide(host, text + policy)
    more = [attribute(0x80, 4, b"\0\0\0\7"), communities([(64500, 7)]), extended((64500, 1)), large((64500, 1, 2)),
            attribute(0xc0, 7, b"\0\0\xfd\xf2\xc0\0\2\1"), attribute(0xc0, 99, b"x")]
    speaker = Speaker(host, FIRST, 65010)
    speaker.send(update(["20.1.0.0/16"], [65010], FIRST, *more) + update(["20.2.0.0/16"], [65010, 65012], FIRST, *more))
    wait_for("the accepted one is there", lambda: set(router.table()) == {"20.1.0.0/16"}, 60, alive=[router.process])

    def received(which, *options):
        return lines(router, "show", "bgp", "neighbor", FIRST, which, *options)
    wait_for("both are kept", lambda: len(received("received")) == 2, 60)
    accepted, refused_one = received("received")
    assert received("filtered") == [refused_one] and accepted["accepted"] and not refused_one["accepted"]
    for route in (accepted, refused_one):
        # As received: what policy sets is in `show route`.
        assert route["communities"] == ["64500:7"] and route["large_communities"] == ["64500:1:2"] and route["extended_communities"] == ["rt:64500:1"]
        assert (route["med"], route["origin"], route["aggregator"], route["other_attributes"]) == (7, "igp", "65010 192.0.2.1", [99])
        assert "local_pref" not in route and route["next_hop"] == FIRST
    assert "no customers" in refused_one["decision"] and "age_seconds" in accepted and "age_seconds" not in refused_one
    table = router.text("show", "bgp", "neighbor", FIRST, "filtered")
    assert "64500:7 64500:1:2 rt:64500:1" in table and 'statement "no customers"' in table
    detail = router.text("show", "bgp", "neighbor", FIRST, "received", "--detail")
    for line in ["Accepted: no", "MED: 7", "Communities: 64500:7", "Large communities: 64500:1:2", "Extended communities: rt:64500:1",
                 "Aggregator: 65010 192.0.2.1", "Origin: igp", "AS path: 65010 65012", "Other attributes, by code: 99"]:
        assert line in detail, (line, detail)
    assert received("received", "--detail") == [accepted, refused_one]


def test_the_configuration_in_force_has_no_secrets(host):
    text = (HEAD + external("first", 65010, FIRST, 'import = ["accept"]\npassword = "hunter2"   # since May, before: hunter1')
            + "[fib]" + LAB)
    router = Ribtide(host, text)
    given = tomllib.loads(router.config.read_text())
    given["bgp"]["group"]["first"]["password"] = "********"
    shown = router.text("show", "configuration")
    assert shown.splitlines()[0] == f"# {router.config}" and "hunter" not in shown
    assert tomllib.loads(shown) == given
    # It is what is in force, not what the file has by now.
    router.config.write_text(router.config.read_text() + '\n[log]\nlevel = "debug"\n')
    assert tomllib.loads(router.text("show", "configuration")) == given
    router.text("config", "fib", "nexthop-cache", "epoch")
    router.text("config", "bgp", "shards", "2")
    assert router.show("configuration")["changed"]["fib.nexthop-cache"] == '"epoch"'
    router.text("reload")
    assert tomllib.loads(router.text("show", "configuration")) == given | {"log": {"level": "debug"}}
    assert "changed" not in router.show("configuration")


def test_the_log_and_its_events_are_read_from_the_router(host):
    router = Ribtide(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]'))
    monitor = subprocess.Popen([binary(), "monitor", "--target", "bgp", "--json", "--socket", router.socket], stdout=subprocess.PIPE, text=True)
    speaker = Speaker(host, FIRST, 65010)
    event = None
    for _ in range(30):
        # An event before the monitor's first request is none of its.
        wait_for("the session is established", lambda: router.established(FIRST), 60, alive=[router.process])
        router.text("clear", "bgp", "neighbor", FIRST)
        if select.select([monitor.stdout], [], [], 2)[0]:
            event = json.loads(monitor.stdout.readline())
            break
        speaker = Speaker(host, FIRST, 65010)
    monitor.kill()
    monitor.wait()
    assert event["target"].startswith("bgp::session") and event["fields"]["neighbor"] == FIRST, event
    del speaker
    logged = lines(router, "show", "log", "--neighbor", FIRST)
    assert any(e["number"] == event["number"] for e in logged)
    worse = lines(router, "show", "log", "--neighbor", FIRST, "--level", "warn")
    assert worse == [e for e in logged if e["level"] in ("WARN", "ERROR")] != []
    text = router.text("show", "log", "--target", "bgp", "-n", "1")
    assert len(text.splitlines()) == 1 and f"neighbor={FIRST}" in text
    assert "write one of error, warn" in refused(router, "show", "log", "--level", "wran")


def test_watch_prints_a_prefix_again_when_it_changes(host):
    router = Ribtide(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]'))
    speaker = Speaker(host, FIRST, 65010)
    wait_for("the session is established", lambda: router.established(FIRST), 60, alive=[router.process])
    watch = subprocess.Popen([binary(), "watch", "20.1.0.0/16", "--changes", "1", "--interval", "0.1", "--json", "--socket", router.socket],
                             stdout=subprocess.PIPE, text=True)
    before = json.loads(watch.stdout.readline())
    assert before["conclusion"] == "nothing is known of 20.1.0.0/16"
    speaker.send(update(["20.1.0.0/16"], [65010], FIRST))
    after = json.loads(watch.stdout.readline())
    assert "from " + FIRST in " ".join(after["stages"][0]["messages"])
    assert watch.wait(30) == 0


@pytest.mark.parametrize("args", [("show", "route"), ("show", "route", "--json"), ("show", "bgp", "neighbor"), ("show", "log"),
                                  ("show", "configuration"), ("schema",), ("explain", "20.1.0.0/16")])
def test_a_reader_that_ends_early_is_told_nothing(host, args):
    router = Ribtide(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]'))
    speaker = Speaker(host, FIRST, 65010)
    speaker.send(b"".join(update([f"20.{n >> 8}.{n & 255}.0/24"], [65010], FIRST) for n in range(3000)))
    wait_count(router, 3000)
    socket = ("--socket", str(router.socket)) if args[0] != "schema" else ()
    command = subprocess.Popen([binary(), *args, *socket], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    command.stdout.readline()
    command.stdout.close()
    # What fits the pipe is written before the reader ends; else the status is that of a program which SIGPIPE ends.
    assert command.wait(60) in (0, 141) and command.stderr.read() == ""
    if args[:2] == ("show", "route"):
        assert command.returncode == 141


@pytest.mark.parametrize("args", [("watch", "20.1.0.0/16", "--interval", "0.1"), ("monitor",)])
def test_a_command_that_waits_ends_with_its_reader(host, args):
    """Nothing changes, so nothing is written that would fail."""
    router = Ribtide(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]'))
    command = subprocess.Popen([binary(), *args, "--socket", str(router.socket)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if args[0] == "watch":
        command.stdout.readline()
    command.stdout.close()
    assert command.wait(30) == 141 and command.stderr.read() == ""


def test_tables_fit_the_columns_and_lose_nothing(host):
    router = Ribtide(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]') + "[fib]" + LAB)
    path = [65010, *range(4200000000, 4200000012)]
    Speaker(host, FIRST, 65010).send(update(["20.1.0.0/16", "20.123.128.0/17"], path, "10.0.0.5"))
    wait_count(router, 2)

    def shown(columns, *args):
        environment = {"PATH": "/usr/bin:/bin"} | ({"COLUMNS": str(columns)} if columns else {})
        return subprocess.run([binary(), *args, "--socket", router.socket], check=True, capture_output=True, text=True, timeout=60,
                              env=environment).stdout
    for command in [("show", "route"), ("show", "bgp", "summary"), ("show", "fib"), ("show", "pipeline"), ("show", "threads"),
                    ("show", "nexthop-group"), ("show", "route", "rib-sharding"), ("show", "asic")]:
        narrow, wide = shown(80, *command), shown(400, *command)
        rows = [line for line in narrow.splitlines() if "  " in line.strip()]
        assert all(len(line) <= 80 for line in rows), (command, max(rows, key=len))
        assert rows, (command, narrow)
        if command[1:] in (("route",), ("fib",)):
            words = [set(text.replace(",", " ").split()) - {f"{n}s" for n in range(100)} for text in (wide, narrow)]
            assert words[0] == words[1] - ({"AS", "path", "Dataplanes"} - words[0]), command
    # Each route is one line where standard output is no terminal, for grep and awk.
    assert [line.count("4200000011") for line in shown(None, "show", "route").splitlines()] == [0, 1, 1]
    assert "4200000011" in shown(80, "show", "route") and max(map(len, shown(80, "show", "route").splitlines())) <= 80


def test_ages_of_routes_and_filters_by_them(host):
    """A path is as old as its last change; the same announcement again is none. By the clock of the test."""
    text = HEAD + external("first", 65010, FIRST, 'import = ["accept"]\nkeep-received = true') + external(
        "second", 65011, SECOND, 'import = ["accept"]\nexport = ["accept"]')
    router = Ribtide(host, text)
    first, second = Speaker(host, FIRST, 65010), Speaker(host, SECOND, 65011)
    began = time.monotonic()
    first.send(update(["20.1.0.0/16", "20.2.0.0/16", "20.3.0.0/16"], [65010], FIRST))
    second.send(update(["20.1.0.0/16"], [65011, 65012], SECOND))
    wait_for("both feeds are there", lambda: sum(len(r["paths"]) for r in lines(router, "show", "route")) == 4, 60)

    def ages(*options):
        return {(r["prefix"], p["neighbor"]): p["age_seconds"] for r in lines(router, "show", "route", *options) for p in r["paths"]}
    wait_for("time goes on", lambda: min(ages().values()) >= 8, 30)
    first.send(update(["20.2.0.0/16"], [65010], FIRST) + update(["20.3.0.0/16"], [65010, 65013], FIRST))
    wait_for("one has changed", lambda: lines(router, "show", "route", "20.3.0.0/16")[0]["paths"][0]["as_path"] == "65010 65013", 30)
    # So much older than what has changed that reading takes less.
    between = ages()["20.2.0.0/16", FIRST]
    assert set(ages("--age-under", f"{between}s")) == {("20.3.0.0/16", FIRST)}
    between = ages()["20.2.0.0/16", FIRST]
    old = ages("--age-over", str(between))
    assert set(old) == {("20.1.0.0/16", FIRST), ("20.1.0.0/16", SECOND), ("20.2.0.0/16", FIRST)}
    assert all(between <= age <= time.monotonic() - began + 1 for age in old.values())
    assert not ages("--age-over", "1d") and len(ages("--age-under", "1d")) == 4
    # The same filter in what a neighbour sent, and in what one is sent.
    for which in ("received", "advertised"):
        neighbor = FIRST if which == "received" else SECOND
        of = lambda *options: [r["prefix"] for r in lines(router, "show", "bgp", "neighbor", neighbor, which, *options)]  # noqa: E731,B023
        between = ages()["20.2.0.0/16", FIRST]
        whole = lines(router, "show", "bgp", "neighbor", neighbor, which)
        assert of("--age-over", f"{between}s") == [r["prefix"] for r in whole if r["prefix"] != "20.3.0.0/16"] != [], (which, between, whole)
        assert of("--age-under", "2h") == of()
    text = router.text("show", "route", "20.1.0.0/16", "--detail")
    assert f"Path from {FIRST}, external AS 65010, router ID {FIRST}" in text and "Age: " in text and "AS path: 65011 65012" in text
    assert "age-over: \"old\" is no duration" in refused(router, "show", "route", "--age-over", "old")


def test_detail_has_every_attribute_of_a_path(host):
    router = Ribtide(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]') + "[fib]" + LAB)
    more = [communities([(64500, 7)]), extended((64500, 1)), large((64500, 1, 2)), attribute(0xc0, 7, b"\0\0\xfd\xf2\xc0\0\2\1"),
            attribute(0xc0, 99, b"x")]
    Speaker(host, FIRST, 65010).send(update(["20.1.0.0/16"], [65010, 65012], "10.0.0.5", *more))
    wait_count(router, 1)
    text = router.text("show", "route", "20.1.0.0/16", "--detail")
    for line in ["State: best", "Next hop: 10.0.0.5, interior cost 0", "AS path: 65010 65012", "Origin: igp", "Communities: 64500:7",
                 "Large communities: 64500:1:2", "Extended communities: rt:64500:1", "Aggregator: 65010 192.0.2.1",
                 "Other attributes, by code: 99", "Next hop 10.0.0.5 (on-link) resolved through 10.0.0.0/"]:
        assert line in text, (line, text)
    [route] = lines(router, "show", "route", "--detail")
    assert route["resolution"][0]["address"] == "10.0.0.5" and route["resolution"][0]["resolved"]
    [path] = route["paths"]
    assert (path["neighbor_asn"], path["neighbor_router_id"], path["neighbor_kind"], path["other_attributes"]) == (65010, FIRST, "external", [99])


def test_a_cursor_belongs_to_its_list_and_its_parameters(host):
    router = Ribtide(host, HEAD + external("first", 65010, FIRST, 'import = ["accept"]\nkeep-received = true\nexport = ["accept"]'))
    Speaker(host, FIRST, 65010).send(b"".join(update([f"20.{n}.0.0/16"], [65010], FIRST) for n in range(200)))
    wait_count(router, 200)

    def get(path):
        connection = UnixHttp(router.socket)
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    status, page = get("/v1/routes?limit=3&age-under=1d")
    assert status == 200 and len(page["routes"]) == 3
    cursor = page["next"]
    for wrong, why in [(f"/v1/bgp/neighbors/{FIRST}/advertised?cursor={cursor}", "and this is \"advertised\""),
                       (f"/v1/bgp/neighbors/{FIRST}/received?cursor={cursor}", "is none of this list"),
                       (f"/v1/routes?cursor={cursor}", "of a read with other parameters"),
                       (f"/v1/routes?cursor={cursor}&age-under=1d&shard=0", "of a read with other parameters")]:
        status, reply = get(wrong)
        assert status == 400 and why in reply["error"], (wrong, reply)
    # A selective filter with a small limit finds all, in order, and misses none behind the end of a page.
    seen, cursor = page["routes"], cursor
    while cursor:
        status, page = get(f"/v1/routes?limit=7&age-under=1d&cursor={cursor}")
        assert status == 200 and len(page["routes"]) <= 7, page
        seen, cursor = seen + page["routes"], page.get("next")
    prefixes = [r["prefix"] for r in seen]
    assert len(prefixes) == 200 and prefixes == sorted(prefixes, key=ipaddress.ip_network)
    assert get("/v1/routes?limit=1&match=shorter&prefix=20.199.0.0&age-under=1d")[1]["routes"][0]["prefix"] == "20.199.0.0/16"
