"""Whole parts of the router come and go by reload: interfaces of the configuration, and dataplanes. Sessions last, and other
dataplanes have what they had."""

import ipaddress
import json
import socket
import subprocess
import threading

import pytest

from harness import Bird, Host, Pair, Ribtide, binary, wait_for
from harness.fpm import Server
from harness.netlink import Messages
from harness.speaker import Speaker, block, prefixes, raw_update

FEED, OTHER = Host.FEEDS
PREFIXES = [f"20.{n >> 8}.{n & 255}.0/24" for n in range(2000)]


def config(fib, tables="", bgp=""):
    return f"""
[router]
asn = 65001
router-id = "10.0.255.254"
[bgp]
listen = ["{Host.FEED_SIDE}:179"]
{bgp}
[bgp.group.feeds]
type = "external"
passive = true
import = ["accept"]
export = ["reject"]
neighbor = [
    {{ address = "{FEED}", peer-asn = 65010, multihop = 8 }},
    {{ address = "{OTHER}", peer-asn = 65011, export = ["accept"] }},
]
[fib]
{fib}
{tables}
"""


def interface(name, *addresses, neighbors=""):
    return f'[[interface]]\nname = "{name}"\naddresses = {json.dumps(addresses)}\n{neighbors}'


def reload(router, text):
    router.config.write_text(text + f'\n[api]\nsocket = "{router.socket}"\n')
    return router.text("reload")


def announce(feed, texts, gateway, path=(65010, 7)):
    for start in range(0, len(texts), 500):
        feed.send(raw_update(b"", block(list(path), gateway), prefixes(texts[start:start + 500])))


def chip(router, *addresses):
    """What the chip does with packets: (action, next hops, interfaces) by address."""
    answers = json.loads(router.text("show", "asic", *addresses, "--json"))["lookups"]
    return [(answer["action"], answer.get("next_hops", [])) for answer in answers]


def lasts(router):
    assert [router.neighbor(address)["flaps"] for address in (FEED, OTHER)] == [0, 0]


def test_interfaces_of_a_virtual_asic_come_and_go(host):
    """A second port, other addresses, a neighbour: the chip has routes over them as soon as they are there, and none when they are
    gone; routes over the first port never leave the chip."""
    asic = "virtual-asic = { lab = true }\n"
    first, second = interface("Ethernet0", "10.0.255.254/16"), interface("Ethernet4", "11.0.255.254/16")
    router = Ribtide(host, config(asic, first))
    feeds = [Speaker(host, FEED, 65010), Speaker(host, OTHER, 65011)]
    announce(feeds[0], PREFIXES, "10.0.0.1")
    announce(feeds[0], ["30.0.0.0/8"], "11.0.0.1")
    wait_for("the routes over the first port", lambda: chip(router, "20.0.0.1", "20.7.207.1") == [("forward", ["10.0.0.1"])] * 2)
    assert chip(router, "30.0.0.1")[0][0] != "forward"
    # Before the first table: its number is not its place.
    static = '[[static]]\nprefix = "40.0.0.0/8"\nnext-hop = ["11.0.0.9"]\ninterface = "Ethernet4"\n'
    assert "settings: interface" in reload(router, config(asic, second + first + static))
    wait_for("the route over the second", lambda: chip(router, "30.0.0.1", "40.0.0.1") == [("forward", ["11.0.0.1"]), ("forward", ["11.0.0.9"])])
    assert chip(router, "20.0.0.1", "20.7.207.1") == [("forward", ["10.0.0.1"])] * 2
    fib = {route["prefix"]: route["hops"] for route in router.show("fib")}
    assert fib["30.0.0.0/8"] == ["via 11.0.0.1 dev Ethernet4"] and fib["20.0.0.0/24"] == ["via 10.0.0.1 dev Ethernet0"]
    router.assert_agrees()
    # Another address of a port: only what resolved over it changes.
    reload(router, config(asic, interface("Ethernet4", "12.0.255.254/16") + first))
    wait_for("the subnet is gone", lambda: chip(router, "30.0.0.1")[0][0] != "forward")
    reload(router, config(asic, first + second))
    wait_for("it is back", lambda: chip(router, "30.0.0.1") == [("forward", ["11.0.0.1"])])
    reload(router, config(asic, first))
    wait_for("the port is gone", lambda: chip(router, "30.0.0.1")[0][0] != "forward")
    assert not [route for route in router.show("fib") if "Ethernet4" in json.dumps(route)]
    assert chip(router, "20.0.0.1", "20.7.207.1") == [("forward", ["10.0.0.1"])] * 2
    router.assert_agrees()
    # The same name again has its port again.
    reload(router, config(asic, first + second))
    wait_for("it is back", lambda: chip(router, "30.0.0.1") == [("forward", ["11.0.0.1"])])
    router.assert_agrees()
    assert "nothing has changed" in reload(router, config(asic, first + second))
    lasts(router)


BIRD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp up {{
    local {Pair.B4} as 65001;
    neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export none; gateway recursive; }};
}}
"""


class Bench:
    """A router with a feed, BIRD as an internal neighbour that must not notice anything, and a table of routes."""

    def __init__(self, pair, fib, routes=PREFIXES, **parts):
        self.host, self.socket = pair.a, None
        self.router = Ribtide(pair.a, self.config(fib, **parts))
        self.bird = Bird(pair.b, BIRD)
        self.feed = Speaker(pair.a, FEED, 65010)
        announce(self.feed, routes, FEED)
        wait_for("BIRD has all", lambda: len(self.bird.table()) == len(routes), 60, alive=[self.router.process])

    @staticmethod
    def config(fib, tables="", more=""):
        return f"""
[router]
asn = 65001
router-id = "{Pair.A4}"
[bgp]
listen = ["[::]:179"]
{more}
[bgp.group.feeds]
type = "external"
passive = true
import = ["accept"]
export = ["reject"]
neighbor = [{{ address = "{FEED}", peer-asn = 65010 }}]
[bgp.group.link]
type = "internal"
peer-asn = 65001
connect-retry = 1
families = ["ipv4-unicast"]
neighbors = ["{Pair.B4}"]
[fib]
{fib}
{tables}
"""

    def reload(self, fib, **parts):
        return reload(self.router, self.config(fib, **parts))

    def kernel(self, *filters):
        """The kernel's routes of BGP."""
        shown = self.host.ip("-j", "route", "show", "table", "all", "proto", "bgp", *filters)
        return {route["dst"] for route in json.loads(shown or "[]")}

    def lasts(self):
        """No session has ended, and nothing is advertised differently."""
        assert [self.router.neighbor(address)["flaps"] for address in (FEED, Pair.B4)] == [0, 0]
        assert len(self.bird.table()) == len(PREFIXES)


def test_the_kernel_dataplane_comes_changes_and_goes(pair):
    """A router without dataplanes gets the kernel: it has all routes. With other settings it starts again and takes its routes over:
    the kernel names none of them. With another metric the former ones go. Without it none is left but those of others."""
    pair.a.ip("route", "add", "172.30.0.0/16", "via", FEED, "proto", "static")
    bench = Bench(pair, "")
    assert bench.kernel() == set()
    assert "settings: fib.kernel" in bench.reload("kernel = true\n")
    wait_for("the kernel has all", lambda: bench.kernel() == set(PREFIXES), alive=[bench.router.process])
    fib = {route["prefix"]: route["protocol"] for route in bench.router.show("fib")}
    assert fib["172.30.0.0/16"] == "kernel", "it is imported"
    bench.router.assert_agrees()
    heard = Messages(pair.a)
    assert "settings: fib.kernel" in bench.reload("kernel = { import = false }\n")
    wait_for("nothing is imported", lambda: "172.30.0.0/16" not in {route["prefix"] for route in bench.router.show("fib")})
    announce(bench.feed, ["21.0.0.0/8"], FEED)
    wait_for("a later route is there", lambda: "21.0.0.0/8" in bench.kernel())
    bench.feed.send(raw_update(withdrawn=prefixes(["21.0.0.0/8"])))
    wait_for("and goes", lambda: bench.kernel() == set(PREFIXES))
    bench.router.assert_agrees()
    heard.stop()
    assert set(heard.prefixes) <= {"21.0.0.0"}, "the routes were taken over"
    bench.reload("kernel = { import = false, metric = 33 }\n")
    wait_for("all have the metric", lambda: bench.kernel("metric", "33") == set(PREFIXES) and not bench.kernel("metric", "20"))
    bench.router.assert_agrees()
    bench.reload("")
    wait_for("none is left", lambda: bench.kernel() == set())
    assert "172.30.0.0/16" in pair.a.ip("route", "show")
    assert not [t for t in bench.router.show("threads")["threads"] if t["name"] in ("kernel-fib", "kernel-routes")]
    assert not pair.a.ip("nexthop", "show", "proto", "186").strip()
    bench.lasts()
    # Next hops resolve over the kernel's interfaces as before.
    announce(bench.feed, ["21.0.0.0/8"], FEED)
    wait_for("a later route is resolved", lambda: "21.0.0.0/8" in {route["prefix"] for route in bench.router.show("fib")})
    bench.reload("kernel = true\n")
    wait_for("the kernel has all again", lambda: bench.kernel() == {*PREFIXES, "21.0.0.0/8"})
    assert [bench.router.neighbor(address)["flaps"] for address in (FEED, Pair.B4)] == [0, 0]


def test_fpm_servers_come_and_go_beside_the_kernel(pair):
    """A second server gets everything, and a removed one is told to delete everything; the first server and the kernel notice
    nothing. Next-hop groups take a new connection of each server, and no deletion."""
    first = Server(pair.a)
    bench = Bench(pair, 'kernel = true\nfpm = ["127.0.0.1:2620"]\n')
    wait_for("the server has all", lambda: set(first.routes) >= set(PREFIXES))
    wait_for("the kernel too", lambda: bench.kernel() == set(PREFIXES))
    all_routes, heard = set(first.routes), Messages(pair.a)
    second = Server(pair.a, 2621)
    assert "settings: fib.fpm" in bench.reload('kernel = true\nfpm = ["127.0.0.1:2620", "127.0.0.1:2621"]\n')
    wait_for("the second has all", lambda: set(second.routes) == all_routes)
    assert [client["name"] for client in bench.router.show("fpm")["clients"]] == ["fpm", "fpm-0"]
    announce(bench.feed, ["21.0.0.0/8"], FEED)
    for server in (first, second):
        wait_for("both have a later route", lambda: set(server.routes) == {*all_routes, "21.0.0.0/8"})
    bench.feed.send(raw_update(withdrawn=prefixes(["21.0.0.0/8"])))
    for server in (first, second):
        wait_for("and it goes", lambda: set(server.routes) == all_routes)
    groups = "fpm-next-hop-groups = true\n"
    bench.reload('kernel = true\nfpm = ["127.0.0.1:2620", "127.0.0.1:2621"]\n' + groups)
    for server in (first, second):
        wait_for("routes refer to groups", lambda: server.connections == 2 and set(server.routes) == all_routes
                 and all(server.routes[prefix] is not None for prefix in PREFIXES))
    bench.reload('kernel = true\nfpm = ["127.0.0.1:2621"]\n' + groups)
    wait_for("the removed one has nothing", lambda: first.routes == {})
    assert set(second.routes) == all_routes and second.connections == 2
    # A server that is there again gets all again.
    wait_for("it is added again", lambda: "settings: fib.fpm" in
             bench.reload('kernel = true\nfpm = ["127.0.0.1:2621", "127.0.0.1:2620"]\n' + groups))
    wait_for("it has all again", lambda: set(first.routes) == all_routes)
    assert first.error is None and second.error is None
    heard.stop()
    assert set(heard.prefixes) <= {"21.0.0.0"}, "the kernel's routes are as they were"
    bench.lasts()


def test_confirmations_wait_for_an_added_dataplane_and_not_for_a_removed_one(pair):
    """With FIB suppression, a server that is added and confirms nothing holds back later routes and no earlier one. As soon as it is
    removed they are advertised."""
    suppress = "suppress-fib-pending = true\n"
    bench = Bench(pair, "kernel = true\n" + suppress)
    server = Server(pair.a)
    bench.reload('kernel = true\nfpm = ["127.0.0.1:2620"]\n' + suppress)
    wait_for("the server has all", lambda: set(server.routes) >= set(PREFIXES))
    announce(bench.feed, ["21.0.0.0/8"], FEED)
    wait_for("the server has the later route", lambda: "21.0.0.0/8" in server.routes and "21.0.0.0/8" in bench.kernel())
    bench.lasts()
    bench.reload("kernel = true\n" + suppress)
    wait_for("it is advertised", lambda: "21.0.0.0/8" in bench.bird.table())
    assert set(bench.bird.table()) == {*PREFIXES, "21.0.0.0/8"}
    assert [bench.router.neighbor(address)["flaps"] for address in (FEED, Pair.B4)] == [0, 0]


def test_interface_tables_take_the_place_of_the_kernels_interfaces(pair):
    """The kernel dataplane goes, and a table describes an interface as the kernel has it: the FPM server is told of no change of the
    routes over it, and of the end of the connected routes over others. And the other way round."""
    server = Server(pair.a)
    fpm = 'fpm = ["127.0.0.1:2620"]\n'
    bench = Bench(pair, "kernel = true\n" + fpm)
    wait_for("the server has all", lambda: set(server.routes) >= set(PREFIXES) and bench.kernel() == set(PREFIXES))
    with_kernel, link = set(server.routes), f"{Pair.A4.rsplit('.', 1)[0]}.0/24"
    assert link in with_kernel
    table = interface("feed0", f"{Host.FEED_SIDE}/24")
    server.deleted.clear()
    assert "settings: fib.kernel, interface" in bench.reload(fpm, tables=table)
    wait_for("only the subnets of the table are left", lambda: link not in server.routes and bench.kernel() == set())
    assert set(server.routes) >= set(PREFIXES) and not set(server.deleted) & set(PREFIXES)
    announce(bench.feed, ["21.0.0.0/8"], FEED)
    wait_for("a later route is there", lambda: "21.0.0.0/8" in server.routes)
    server.deleted.clear()
    bench.reload("kernel = true\n" + fpm)
    wait_for("all is as it was", lambda: set(server.routes) == {*with_kernel, "21.0.0.0/8"} and bench.kernel() == {*PREFIXES, "21.0.0.0/8"})
    assert server.deleted == [] and server.connections == 1 and server.error is None
    assert [bench.router.neighbor(address)["flaps"] for address in (FEED, Pair.B4)] == [0, 0]


def test_a_dataplane_that_cannot_start_leaves_all_as_it_was(pair):
    """A kernel dataplane in a VRF without a device is refused with a sentence; the FPM server that the same file adds has gone again,
    and what ran goes on."""
    first = Server(pair.a)
    bench = Bench(pair, 'fpm = ["127.0.0.1:2620"]\n', tables=interface("feed0", f"{Host.FEED_SIDE}/24"))
    wait_for("the server has all", lambda: set(first.routes) >= set(PREFIXES))
    before, former = bench.router.config.read_text(), set(first.routes)
    bench.router.config.write_text(bench.config('kernel = { vrf = "nowhere" }\nfpm = ["127.0.0.1:2620", "127.0.0.1:2621"]\n')
                                   + f'\n[api]\nsocket = "{bench.router.socket}"\n')
    done = subprocess.run([binary(), "reload", "--socket", bench.router.socket], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "nothing is reloaded" in done.stderr and "nowhere" in done.stderr, done.stderr
    assert [client["server"] for client in bench.router.show("fpm")["clients"]] == ["127.0.0.1:2620"]
    bench.router.config.write_text(before)
    assert "nothing has changed" in bench.router.text("reload")
    announce(bench.feed, ["21.0.0.0/8"], FEED)
    wait_for("a later route is there", lambda: set(first.routes) == {*former, "21.0.0.0/8"})
    assert first.connections == 1


def test_threads_move_to_other_cpus_and_update_threads_come_and_go(pair):
    """bgp.cpus binds the threads that run, and lets them go; more update threads get new sessions, and those in excess end. No
    session ends, and no route changes."""
    bench = Bench(pair, "", more="shards = 2\nupdate-threads = 1")
    def threads():
        return {t["name"]: t["cpus"] for t in bench.router.show("threads")["threads"]
                if t["name"].split("-")[0] in ("reader", "shard", "egress", "sessions", "writer")}
    anywhere = threads()["sessions"]
    assert "settings: bgp.cpus" in bench.reload("", more='shards = 2\nupdate-threads = 1\ncpus = "0"')
    assert set(threads().values()) == {"0"}, threads()
    assert "settings: bgp.update-threads" in bench.reload("", more='shards = 2\nupdate-threads = 3\ncpus = "0"')
    assert set(threads()) >= {"egress-0", "egress-1", "egress-2", "writer-0", "writer-1"} and set(threads().values()) == {"0"}
    assert "settings: bgp.update-threads, bgp.cpus" in bench.reload("", more="shards = 2\nupdate-threads = 1")
    wait_for("the threads in excess have ended", lambda: set(threads()) == {"reader-0", "shard-0", "shard-1", "egress-0", "sessions"})
    assert set(threads().values()) == {anywhere}
    announce(bench.feed, ["21.0.0.0/8"], FEED)
    wait_for("a later route is there", lambda: "21.0.0.0/8" in bench.bird.table())
    bench.feed.send(raw_update(withdrawn=prefixes(["21.0.0.0/8"])))
    wait_for("and goes", lambda: "21.0.0.0/8" not in bench.bird.table())
    bench.lasts()


def test_bgp_begins_and_ends_while_static_routes_last(pair):
    """A router without BGP gets a [bgp] table: sessions, routes in the kernel and at BIRD, origin validation and BMP-like tables with
    it. Without it neighbours get Cease, Peer De-configured, and only static routes are left in the kernel. Twice."""
    static = f'[[static]]\nprefix = "30.0.0.0/8"\nnext-hop = ["{FEED}"]\n'
    without = f"""
[router]
asn = 65001
router-id = "{Pair.A4}"
[fib]
kernel = true
suppress-fib-pending = true
{static}
"""
    with_bgp = Bench.config("kernel = true\nsuppress-fib-pending = true\n", static, "shards = 2") + '\n[rpki]\nslurm = "slurm.json"\n'
    (pair.a.folder / "slurm.json").write_text(json.dumps({
        "slurmVersion": 1, "validationOutputFilters": {"prefixFilters": [], "bgpsecFilters": []},
        "locallyAddedAssertions": {"prefixAssertions": [{"asn": 7, "prefix": PREFIXES[0]}], "bgpsecAssertions": []}}))
    router, bird = Ribtide(pair.a, with_bgp), Bird(pair.b, BIRD)
    reload(router, without)
    def kernel(protocol):
        return {route["dst"] for route in json.loads(pair.a.ip("-j", "route", "show", "proto", protocol) or "[]")}
    # All of ribtide's routes have its protocol number.
    wait_for("the static route is there", lambda: kernel("bgp") == {"30.0.0.0/8"})
    heard = Messages(pair.a)
    for _ in range(2):
        assert "bgp" in reload(router, with_bgp)
        feed = Speaker(pair.a, FEED, 65010)
        announce(feed, PREFIXES, FEED)
        wait_for("the kernel has all", lambda: kernel("bgp") == {"30.0.0.0/8", *PREFIXES}, alive=[router.process])
        wait_for("BIRD has all", lambda: set(bird.table()) == set(PREFIXES))
        wait_for("its origin is validated", lambda: router.show("route", PREFIXES[0])[0]["paths"][0].get("validation") == "valid")
        router.assert_agrees()
        assert "bgp" in reload(router, without)
        assert feed.ended() == (6, 3), "Cease, Peer De-configured"
        wait_for("only the static route is left", lambda: kernel("bgp") == {"30.0.0.0/8"})
        wait_for("BIRD has none", lambda: not bird.table())
        threads = {t["name"].split("-")[0] for t in router.show("threads")["threads"]}
        assert not threads & {"reader", "shard", "egress", "sessions", "rpki"}, threads
    assert heard.prefixes["30.0.0.0"] == 0, "the static route was not touched"
    heard.stop()
    assert "nothing has changed" in reload(router, without)


class Changes(threading.Thread):
    """Reads the UPDATEs that a speaker gets: prefixes announced and withdrawn, in order."""

    def __init__(self, speaker):
        super().__init__(daemon=True)
        self.speaker, self.announced, self.withdrawn, self.ended = speaker, [], [], False
        self.start()

    def run(self):
        while True:
            try:
                got = self.speaker.read(600)
            except OSError:
                return
            if got is None or got[0] == 3:
                self.ended = True
                return
            if got[0] == 2:
                body = got[1]
                gone = int.from_bytes(body[:2], "big")
                attributes = int.from_bytes(body[2 + gone:4 + gone], "big")
                self.withdrawn += self.texts(body[2:2 + gone])
                self.announced += self.texts(body[4 + gone + attributes:])

    @staticmethod
    def texts(nlri):
        at, found = 0, []
        while at < len(nlri):
            size = (nlri[at] + 7) // 8
            found.append(f"{ipaddress.IPv4Address(nlri[at + 1:at + 1 + size].ljust(4, bytes(1)))}/{nlri[at]}")
            at += 1 + size
        return found

    def take(self):
        """What came since the last call."""
        taken = sorted(self.announced), sorted(self.withdrawn)
        self.announced, self.withdrawn = [], []
        return taken


def fib_config(fib, tables="", more=""):
    """A router with a multihop feed, a receiver, BIRD, and this table, if any."""
    text = Bench.config(fib or "", tables, more).replace(
        f'neighbor = [{{ address = "{FEED}", peer-asn = 65010 }}]',
        f'neighbor = [{{ address = "{FEED}", peer-asn = 65010, multihop = 8 }}, {{ address = "{OTHER}", peer-asn = 65011, export = ["accept"] }}]')
    return text if fib else text.split("[fib]")[0]


#: Routes with a next hop that nothing resolves, with one that another of the routes resolves, and with one inside of their prefix.
NOWHERE, THROUGH_BGP, INSIDE = "22.0.0.0/8", "23.0.0.0/8", "198.19.0.0/16"


@pytest.mark.parametrize("threads", ["shards = 2", 'shards = "off"'])
def test_fib_begins_and_ends_while_sessions_last(pair, threads):
    """A router without a RIB gets a [fib] table with the kernel, and loses it, twice. No session ends. Neighbours hear only of the
    route whose next hop does not resolve: it goes with the table, and comes back without. The kernel has all others, or none."""
    static = f'[[static]]\nprefix = "30.0.0.0/8"\nnext-hop = ["{FEED}"]\n'
    with_fib, without = fib_config("kernel = true\n", static, threads), fib_config(None, more=threads)
    router, bird = Ribtide(pair.a, without), Bird(pair.b, BIRD)
    feed, receiver = Speaker(pair.a, FEED, 65010), Speaker(pair.a, OTHER, 65011)
    changes = Changes(receiver)
    everything = {*PREFIXES, NOWHERE, THROUGH_BGP, INSIDE}
    announce(feed, PREFIXES, FEED)
    for prefix, gateway in ((NOWHERE, "192.0.2.77"), (THROUGH_BGP, "20.0.5.9"), (INSIDE, FEED)):
        announce(feed, [prefix], gateway)
    def kernel():
        return {route["dst"] for route in json.loads(pair.a.ip("-j", "route", "show", "proto", "bgp") or "[]")}
    def since():
        return [line.split()[:6] for line in bird.query("show protocols").splitlines() if " BGP " in line]
    wait_for("BIRD has all", lambda: set(bird.table()) == everything, alive=[router.process])
    wait_for("the receiver too", lambda: set(changes.announced) == everything)
    began = since()
    assert len(began) == 1
    changes.take()
    for _ in range(2):
        assert "settings: fib" in reload(router, with_fib)
        wait_for("the kernel has all that resolve", lambda: kernel() == {*everything, "30.0.0.0/8"} - {NOWHERE}, alive=[router.process])
        wait_for("BIRD has them", lambda: set(bird.table()) == everything - {NOWHERE}, alive=[router.process])
        router.assert_agrees()
        assert changes.take() == ([], [NOWHERE])
        # A resize gives new shards the RIB manager too.
        if threads == "shards = 2":
            router.text("config", "bgp", "shards", "5")
            router.assert_agrees()
        announce(feed, ["24.0.0.0/8"], FEED)
        wait_for("a later route is there", lambda: "24.0.0.0/8" in kernel() and "24.0.0.0/8" in bird.table())
        feed.send(raw_update(withdrawn=prefixes(["24.0.0.0/8"])))
        wait_for("and goes", lambda: "24.0.0.0/8" not in kernel() and "24.0.0.0/8" not in bird.table())
        wait_for("everywhere", lambda: changes.withdrawn)
        changes.take()
        assert "settings: fib" in reload(router, without)
        wait_for("the kernel has none", lambda: kernel() == set())
        wait_for("BIRD has all", lambda: set(bird.table()) == everything)
        wait_for("the receiver too", lambda: changes.announced)
        assert changes.take() == ([NOWHERE], [])
        assert "rib" not in {t["name"] for t in router.show("threads")["threads"]}
    assert "nothing has changed" in reload(router, without)
    assert since() == began and not changes.ended
    assert [router.neighbor(peer)["flaps"] for peer in (FEED, OTHER, Pair.B4)] == [0, 0, 0]


def test_suppression_begins_and_ends_with_the_table(pair):
    """A [fib] table with FIB suppression and a server that confirms nothing: what is advertised stays so, a later route waits, and a
    prefix that the kernel refuses is withdrawn. Without the table all is advertised."""
    server = Server(pair.a)
    fib = 'kernel = true\nfpm = ["127.0.0.1:2620"]\nsuppress-fib-pending = true\n'
    router, bird = Ribtide(pair.a, fib_config(None)), Bird(pair.b, BIRD)
    feed = Speaker(pair.a, FEED, 65010)
    announce(feed, PREFIXES, FEED)
    wait_for("BIRD has all", lambda: set(bird.table()) == set(PREFIXES), alive=[router.process])
    for later in ("21.0.0.0/8", "24.0.0.0/8"):
        assert "settings: fib" in reload(router, fib_config(fib))
        wait_for("the server has all", lambda: set(server.routes) >= set(PREFIXES))
        announce(feed, [later], FEED)
        wait_for("the server has the later route", lambda: later in server.routes)
        wait_for("it waits", lambda: json.loads(router.text("show", "route", "summary", "--json"))["bgp"]["waiting"] == 1)
        assert later not in bird.table() and set(bird.table()) >= set(PREFIXES)
        assert "settings: fib" in reload(router, fib_config(None))
        wait_for("it is advertised", lambda: later in bird.table(), alive=[router.process])
        wait_for("the server has lost all", lambda: not set(server.routes) & set(PREFIXES))
    assert set(bird.table()) == {*PREFIXES, "21.0.0.0/8", "24.0.0.0/8"}
    assert [router.neighbor(address)["flaps"] for address in (FEED, Pair.B4)] == [0, 0]


def test_redistribution_begins_and_ends_with_the_table(pair):
    """Static routes that are redistributed come with the table, and neighbours lose them with it, while sessions last."""
    static = f'[[static]]\nprefix = "30.0.0.0/8"\nnext-hop = ["{FEED}"]\n'
    with_fib = fib_config("kernel = true\n", static, 'originate = { static = ["accept"] }\n')
    router, bird = Ribtide(pair.a, fib_config(None)), Bird(pair.b, BIRD)
    feed = Speaker(pair.a, FEED, 65010)
    announce(feed, PREFIXES, FEED)
    wait_for("BIRD has all", lambda: set(bird.table()) == set(PREFIXES), alive=[router.process])
    for _ in range(2):
        assert "fib" in reload(router, with_fib)
        wait_for("BIRD has the static route", lambda: set(bird.table()) == {*PREFIXES, "30.0.0.0/8"}, alive=[router.process])
        assert "fib" in reload(router, fib_config(None))
        wait_for("BIRD has lost it", lambda: set(bird.table()) == set(PREFIXES), alive=[router.process])
    assert [router.neighbor(address)["flaps"] for address in (FEED, Pair.B4)] == [0, 0]


def test_fib_that_begins_with_an_address_that_cannot_be_bound_leaves_all_as_it_was(pair):
    """An address that another program has, or that is not of this machine, is refused: no RIB manager is left, every session goes on,
    and later reloads work."""
    with_fib, without = fib_config("kernel = true\n"), fib_config(None)
    router, bird = Ribtide(pair.a, without), Bird(pair.b, BIRD)
    feed = Speaker(pair.a, FEED, 65010)
    announce(feed, PREFIXES, FEED)
    wait_for("BIRD has all", lambda: set(bird.table()) == set(PREFIXES), 60, alive=[router.process])
    with pair.a.inside():
        other = socket.create_server(("127.0.0.1", 1179))
    def listening(text, *more):
        return text.replace('listen = ["[::]:179"]', f"listen = {json.dumps(['[::]:179', *more])}")
    for address, why in (("127.0.0.1:1179", "stop what listens there"), ("192.0.2.1:1179", "set bgp.listen to an address of this machine")):
        for text in (listening(with_fib, address), listening(without, address)):
            router.config.write_text(text + f'\n[api]\nsocket = "{router.socket}"\n')
            done = subprocess.run([binary(), "reload", "--socket", router.socket], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and why in done.stderr, done.stderr
    other.close()
    assert "settings: bgp.listen, fib" in reload(router, listening(with_fib, "127.0.0.1:1179"))
    pair.a.connect("127.0.0.1", 1179).close()
    router.assert_agrees()
    assert [router.neighbor(peer)["flaps"] for peer in (FEED, Pair.B4)] == [0, 0]
    assert set(bird.table()) == set(PREFIXES)
