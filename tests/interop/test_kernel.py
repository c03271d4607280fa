"""The kernel's table in a namespace equals the Loc-RIB, for both families, also after changes, a
link failure, and a crash."""

import json

import pytest
from harness import Host, Messages, Pair, Ribtide, binary, blast, feed_options, full_table, wait_for
from harness.peers import FEEDS, LEFT, wait_count
from harness.table import FEED_ASN

CONFIG = f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]

[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{'", "'.join(FEEDS)}"]

[fib]
kernel = {{ table = 254 }}

[[static]]
prefix = "198.51.100.0/24"
next-hop = ["{Pair.B4}"]

[[static]]
prefix = "198.18.0.0/24"
next-hop = ["{Pair.B4}", "10.255.0.3"]

[[static]]
prefix = "203.0.113.0/24"
blackhole = true

[[static]]
prefix = "2001:db8:77::/48"
next-hop = ["{Pair.B6}"]
"""

#: Prefix → where the kernel sends it, of the static routes.
STATIC = {"198.51.100.0/24": (Pair.B4,), "198.18.0.0/24": (Pair.B4, "10.255.0.3"), "203.0.113.0/24": ("blackhole",),
          "2001:db8:77::/48": (Pair.B6,)}
#: The kernel's own, and so not ours to install, though a neighbour announces it.
CONNECTED = "193.203.0.0/24"


def objects(host):
    """Next-hop objects by id, as `ip` describes them."""
    return {n["id"]: n for n in json.loads(host.ip("-j", "-d", "nexthop", "show"))}


def gateways_of(objects, number):
    """The sorted gateways of a next-hop object, or that it drops. An object created after the
    listing of `objects`, or under change, is unknown."""
    found = objects.get(number, {"gateway": "unknown"})
    if "group" in found:
        return tuple(sorted(g for member in found["group"] for g in gateways_of(objects, member["id"])))
    return ("blackhole",) if "blackhole" in found else (found.get("gateway", "unknown"),)


def kernel_table(host, at_rest=True):
    """The forwarding of each prefix of ribtide's routes in the kernel. All of them use a
    next-hop object; a route of another program under the same number shows its gateway. A dump
    during changes may show a route twice."""
    routes, known = {}, objects(host)
    for family, bits, default in (("-4", "/32", "0.0.0.0/0"), ("-6", "/128", "::/0")):
        for r in json.loads(host.ip("-j", "-d", family, "route", "show", "table", "254", "proto", "bgp")):
            prefix = default if r["dst"] == "default" else r["dst"] if "/" in r["dst"] else r["dst"] + bits
            assert not at_rest or prefix not in routes, f"{prefix} is in the kernel twice"
            routes[prefix] = gateways_of(known, r["nhid"]) if "nhid" in r else (r.get("gateway"),)
    return routes


def kernel_count(host):
    """The number of ribtide's routes in the kernel. Details of a route are on indented lines of
    their own."""
    return sum(not line[:1].isspace() for family in ("-4", "-6")
               for line in host.ip(family, "route", "show", "table", "254", "proto", "bgp").splitlines())


def wanted(router):
    """The expected contents of the kernel: every best path by its next hop, which is a neighbour
    on a link here, and static routes."""
    routes = {p: (r.next_hop,) for p, r in router.table().items() if p != CONNECTED}
    return {**routes, **STATIC}


def in_the_kernel(router, host, prefixes):
    """Waits until the kernel has that many of ribtide's routes, and compares each."""
    wait_for(f"the kernel has {prefixes} routes", lambda: kernel_count(host) == prefixes, 120, 1, alive=[router.process])
    want, have = wanted(router), kernel_table(host)
    assert sorted(want.keys() ^ have.keys())[:5] == []
    assert [(p, want[p], have[p]) for p in want if want[p] != have[p]][:5] == []


def gateways(host):
    """The gateways of ribtide's single next-hop objects."""
    return sorted(n["gateway"] for n in objects(host).values() if "gateway" in n)


@pytest.mark.long
def test_kernel_equals_the_loc_rib(pair):
    a = pair.a
    # Another's route, and another's next-hop object, are none of our business, at no time.
    a.ip("route", "add", "192.0.2.0/24", "via", Pair.B4, "proto", "static")
    a.ip("nexthop", "add", "id", "7", "via", Pair.B4, "dev", "eth0", "proto", "static")
    others = foreign(a)

    router = Ribtide(a, CONFIG)
    in_the_kernel(router, a, len(STATIC))
    feeds = [full_table(a), blast(a)]
    wait_for("the feeds are done", lambda: all(router.session(f) for f in FEEDS), 30, alive=feeds)
    settled(router)
    mine = router.table()
    full = len(mine) - (CONNECTED in mine) + len(STATIC)
    assert full > 100_000
    in_the_kernel(router, a, full)
    states = {(d["name"], d["state"]) for r in router.show("fib") if r["protocol"] != "connected" for d in r["dataplanes"]}
    assert states == {("kernel", "installed")}
    # Routes with one next hop share one object, and the objects of the static group are among them.
    hops = sorted({h for hops in wanted(router).values() for h in hops if h != "blackhole"})
    assert [g for g in gateways(a) if g != Pair.B4] == [h for h in hops if h != Pair.B4]

    # The link of all next hops goes: the kernel drops routes without a word. They come back with the link.
    a.ip("link", "set", "lan0", "down")
    wait_for("routes are gone with their link", lambda: kernel_count(a) == len(STATIC), 60, 0.5, alive=[router.process])
    a.ip("link", "set", "lan0", "up")
    a.address("lan0", "fd00:193::ff/64")
    in_the_kernel(router, a, full)

    # A crash leaves routes in place. The next start adopts those that are right without touching them, repairs what
    # another program broke meanwhile, and removes what is not announced any more.
    router.process.kill()
    ours = [p for p in kernel_table(a) if ":" not in p and p not in STATIC]
    for prefix in ours[:3]:
        a.ip("route", "del", prefix, "proto", "bgp")
    a.ip("route", "replace", ours[3], "via", Pair.B4, "proto", "bgp", "metric", metric(a, ours[3]))
    a.ip("route", "add", "240.1.0.0/16", "via", Pair.B4, "proto", "bgp", "metric", "20")
    messages = Messages(a)
    router.start()
    full_table(a)
    blast(a, ipv6=1000)
    wait_count(router, len(mine) - 19_000)
    in_the_kernel(router, a, full - 19_000)
    messages.stop()
    # Not one message about a route that was right, though the routes were adopted by way of new numbers of groups.
    mended = {prefix.split("/")[0] for prefix in [*ours[:4], "240.1.0.0/16"]}
    assert set(messages.prefixes) == mended, (len(messages.prefixes), messages.counts)
    assert messages.counts["new next hop"] + messages.counts["deleted next hop"] < 50, messages.counts

    # A crash and a start without neighbours: what is left is what the configuration says.
    router.process.kill()
    router.config.write_text(router.config.read_text().replace(f'neighbors = ["{FEEDS[0]}", "{FEEDS[1]}"]', ""))
    router.start()
    wait_for("stale routes are gone", lambda: kernel_table(a, False) == STATIC, 60, 1, alive=[router.process])
    assert foreign(a) == others


def foreign(host):
    """Routes and next-hop objects of other programs."""
    theirs = [n for n in objects(host).values() if n.get("protocol") == "static"]
    return host.ip("route", "show", "proto", "static"), theirs


def metric(host, prefix):
    return json.loads(host.ip("-j", "route", "show", prefix, "proto", "bgp"))[0]["metric"]


def settled(router):
    """Waits until both feeds have sent everything."""
    last = [-1]

    def still():
        last[:], before = [router.count()], last[0]
        return last[0] == before > 100_000
    wait_for("the table has settled", still, 120, 2)


def test_session_loss_empties_the_kernel(pair):
    router = Ribtide(pair.a, CONFIG)
    feed = blast(pair.a)
    wait_count(router, 20_000)
    in_the_kernel(router, pair.a, 20_000 + len(STATIC))
    feed.kill()
    wait_count(router, 0)
    in_the_kernel(router, pair.a, len(STATIC))
    # A stop that was asked for leaves routes where they are, for the next start to adopt.
    assert router.stop() == 0
    assert kernel_table(pair.a) == STATIC


#: Next hops of one group: all but the last on one network, the last on another.
MANY, LAST = [f"10.9.{n // 250}.{n % 250 + 2}" for n in range(511)], "10.8.0.2"
ROUTES = 20_000
MANY_CONFIG = f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]

[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
multihop = 2
passive = true
import = ["accept"]
neighbors = ["{FEEDS[0]}"]

[fib]
kernel = true

[[static]]
prefix = "192.0.2.1/32"
next-hop = {json.dumps([*MANY, LAST])}
"""


def test_a_lost_next_hop_is_a_handful_of_messages_whatever_the_routes(pair):
    """20,000 routes over a group of 512: one of the 512 goes, with its link and without, and comes back."""
    a = pair.a
    a.lan("many0", "10.9.0.1/16")
    a.lan("last0", "10.8.0.1/24")
    router = Ribtide(a, MANY_CONFIG)
    a.feeds.start("feed", binary(), "blast", "--ipv4", ROUTES, "--ipv6", 0, "--next-hops4", "192.0.2.1/32", "--next-hops", 1,
                  *feed_options(0))

    def routes():
        return len(a.ip("route", "show", "proto", "bgp").splitlines())

    def next_hops():
        """The number of next hops in the group of the routes."""
        groups = [n["group"] for n in objects(a).values() if "group" in n]
        return max((len(g) for g in groups), default=0)
    wait_for("all routes are in the kernel", lambda: routes() == ROUTES + 1, 60, 0.5, alive=[router.process])
    wait_for("they share 512 next hops", lambda: next_hops() == 512, 10)

    def told(what, then):
        """The notifications of the kernel while `what` changes the group to `then` next hops."""
        messages = Messages(a)
        what()
        wait_for(f"there are {then} next hops", lambda: next_hops() == then, 20, alive=[router.process])
        counts = messages.stop()
        assert routes() == ROUTES + 1
        return counts, messages.total()

    for what, then in (
        (lambda: a.ip("link", "set", "last0", "down"), 511),
        (lambda: a.ip("link", "set", "last0", "up"), 512),
        # The link stays, and the router alone finds out that the next hop is gone.
        (lambda: a.ip("addr", "del", "10.8.0.1/24", "dev", "last0"), 511),
        (lambda: a.ip("addr", "add", "10.8.0.1/24", "dev", "last0"), 512),
    ):
        counts, total = told(what, then)
        # Routes: the connected ones of the network, which come and go with its address.
        assert total <= 12, counts


#: The neighbours of the test of backup paths: one behind each link.
NEAR, FAR = "10.7.0.2", "10.8.0.2"
BACKUP_CONFIG = f"""
[router]
asn = {LEFT.asn}
router-id = "{LEFT.four}"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]
backup-path = true

[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
multihop = 2
passive = true
import = ["accept"]
neighbors = ["{FEEDS[0]}", "{FEEDS[1]}"]

[fib]
kernel = true
"""


def two_feeds(a, config):
    """A router with two neighbours that advertise the same routes, by one next hop each."""
    a.lan("near0", "10.7.0.1/24")
    a.lan("far0", "10.8.0.1/24")
    router = Ribtide(a, config)
    for n, next_hop in enumerate((NEAR, FAR)):
        a.feeds.start(f"feed{n}", binary(), "blast", "--ipv4", ROUTES, "--ipv6", 0, "--next-hops4", next_hop, "--next-hops", 1,
                      *feed_options(n))
    wait_count(router, ROUTES)
    wait_for("both have said all", lambda: all(len(r["paths"]) == 2 for r in router.show("route")), 60, 1)
    return router


def test_a_backup_path_stands_in_by_one_change_of_a_group(pair):
    """Two neighbours advertise the same 20,000 prefixes. The better one's next hop fails: the
    group of all routes uses the other next hop before any route is written. BGP's routes follow,
    each once."""
    a = pair.a
    router = two_feeds(a, BACKUP_CONFIG)
    prefix = next(iter(router.table()))

    def by(next_hop):
        table = kernel_table(a, False)
        return len(table) == ROUTES and set(table.values()) == {(next_hop,)}
    wait_for("all routes are by the better next hop", lambda: by(NEAR), 60, 0.5, alive=[router.process])
    text = router.text("show", "route", prefix)
    assert f"Backup via {FAR} stands by." in text, text
    shown = router.show("route", prefix)[0]
    assert [p.get("forwarding") for p in shown["paths"]] == [None, "backup"]
    assert shown["groups"]["backup"] == {"hop": f"via {FAR}", "in_use": False}

    messages = Messages(a)
    a.ip("addr", "del", "10.7.0.1/24", "dev", "near0")
    wait_for("all routes are by the other next hop", lambda: by(FAR), 60, 0.5, alive=[router.process])
    counts = messages.stop()
    # The kernel's own: the connected routes of the network that went.
    first = [what for what, prefix in messages.order if prefix is None or not prefix.startswith("10.7.0.")]
    assert "new next hop" in first[:2], first[:10]
    # Of IPv4: what the kernel makes of IPv6 on a new link comes when it likes.
    assert sum(n for prefix, n in messages.prefixes.items() if not prefix.startswith("10.7.")) == ROUTES, counts
    assert counts["new next hop"] + counts.get("deleted next hop", 0) <= 8, counts


def test_equal_paths_share_the_traffic(pair):
    a = pair.a
    two_feeds(a, BACKUP_CONFIG.replace("backup-path = true", "multipath = 4"))
    wait_for("all routes are by both next hops", lambda: set(kernel_table(a, False).values()) == {(NEAR, FAR)}, 60, 0.5)


POLICY = """
[fib.policy]
bgp = ["fib"]

[policy.prefix-set.hidden]
prefixes = [{hidden}]

[[policy.definition.fib.statement]]
conditions.match-prefix-set = "hidden"
actions.policy-result = "reject"

[[policy.definition.fib.statement]]
actions.set-source = "{source}"
"""


def test_a_policy_selects_installed_routes_and_their_source(pair):
    """A policy keeps some routes out of the kernel and gives all others a source address. A
    reload changes only routes with another result."""
    a = pair.a
    a.ip("addr", "add", "10.99.0.1/32", "dev", "lo")
    a.ip("addr", "add", "10.99.0.2/32", "dev", "lo")
    router = Ribtide(a, CONFIG + POLICY.format(hidden='"0.0.0.0/0"', source="10.99.0.1"))
    blast(a, ipv4=5000, ipv6=10)
    wait_count(router, 5010)

    def sources():
        routes = json.loads(a.ip("-j", "-4", "route", "show", "table", "254", "proto", "bgp"))
        return {r["dst"]: r.get("prefsrc") for r in routes if r["dst"] not in {p.removesuffix("/32") for p in STATIC}}
    wait_for("all routes have the source", lambda: list(sources().values()) == ["10.99.0.1"] * 5000, 60, 0.5, alive=[router.process])
    some = sorted(p for p in router.table() if "." in p and p != CONNECTED)[:10]

    def reload(hidden, source):
        api = router.config.read_text()
        api = api[api.index("\n[api]"):]
        router.config.write_text(CONFIG + POLICY.format(hidden=", ".join(f'"{p}"' for p in hidden), source=source) + api)
        return router.text("reload")
    messages = Messages(a)
    assert "another policy" in reload(some, "10.99.0.1")
    wait_for("ten are gone", lambda: len(sources()) == 4990, 20, 0.2, alive=[router.process])
    counts = messages.stop()
    # The kernel has IPv6 routes of its own to tell of.
    told = [(what, prefix) for what, prefix in messages.order if prefix is not None]
    assert counts.keys() <= {"deleted route", "new route"}, counts
    assert len(told) == 10 and {what for what, _ in told} == {"deleted route"}, messages.order
    assert "not installed: fib.policy denies it" in router.text("show", "route", some[0])
    assert "10 selected and not installed" in router.text("show", "route", "summary")
    assert "fib.policy denies it" in router.explain(some[0])["conclusion"]

    messages = Messages(a)
    reload(["0.0.0.0/0"], "10.99.0.2")
    wait_for("all have the other source", lambda: list(sources().values()) == ["10.99.0.2"] * 5000, 20, 0.2, alive=[router.process])
    counts = messages.stop()
    assert (counts["new route"], counts.get("deleted route")) == (5000, None), counts
