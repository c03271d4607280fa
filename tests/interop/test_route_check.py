"""`ribtide route-check`: agreement of RIB, databases, kernel and chip, the place of differences,
and the scope of a check."""

import contextlib
import itertools
import json
import signal
import subprocess
import threading
import time

import pytest
from harness import Host, Ribtide, binary, blast, wait_for
from harness.config import HEAD, LAB, external
from harness.sonic import Sonic
from harness.speaker import Speaker, prefixes as nlri, raw_update, update
from test_sonic import ROUTER as SONIC_ROUTER, own_routes

SENDER = Host.FEEDS[0]
CONFIG = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + "[fib]\n"
ASIC = CONFIG + LAB
KERNEL = CONFIG + "kernel = { table = 254 }\n"
#: Changes of the tests in the databases stay.
UNREPAIRED = {daemon: ["--reconcile-interval", "0"] for daemon in ("fpmsyncd", "syncd")}
ALL = [f"20.{n // 256}.{n % 256}.0/24" for n in range(1000)]


def look(*args):
    """The exit status and the result."""
    done = subprocess.run([binary(), "route-check", "--json", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def announce(sender, texts, next_hop):
    for start in range(0, len(texts), 100):
        sender.send(update(texts[start:start + 100], [65010], next_hop))


def test_in_one_process(host):
    router = Ribtide(host, ASIC)
    at = ("--socket", router.socket)
    sender = Speaker(host, SENDER, 65010)
    announce(sender, ALL, "10.0.0.5")
    wait_for("they are there", lambda: router.count() == len(ALL), 30)
    status, found = look(*at, "--wait", 30)
    assert (status, found["differing"]) == (0, 0), found
    assert found["checked"] == 0 or found["checked"] >= len(ALL)
    # Of a table that rests nothing is compared; of one that changed, what changed.
    status, found = look(*at)
    assert (status, found["full"], found["checked"]) == (0, False, 0), found
    announce(sender, ALL[:7], "10.0.0.6")
    wait_for("they have the other next hop", lambda: "10.0.0.6" in router.show("fib", ALL[0])[0]["hops"][0], 30)
    seen = [look(*at)[1] for _ in range(3)]
    assert all(not found["full"] and found["checked"] <= 7 for found in seen), seen
    assert look(*at, "--full")[1]["checked"] >= len(ALL)
    # A default route, and whether there is one, by exact look-ups.
    assert look(*at, "--default-route")[0] == 1
    announce(sender, ["0.0.0.0/0"], "10.0.0.5")
    wait_for("the default route forwards", lambda: look(*at, "--default-route")[0] == 0, 30)
    assert look(*at, "--default-route")[1]["default_routes"][0]["next_hops"] == "via 10.0.0.5 dev Ethernet0"
    # What the chip refuses, and why.
    router.text("config", "asic", "refuse", ALL[10])
    announce(sender, [ALL[10]], "10.0.0.7")
    wait_for("it differs", lambda: look(*at, "--wait", 0)[0] == 1, 30)
    status, found = look(*at, "--wait", 1)
    [difference] = found["differences"]
    # orchagent has the route until the chip takes it.
    assert (difference["prefix"], difference["stage"]) == (ALL[10], "orchagent"), difference
    assert difference["rib"] == "via 10.0.0.7 dev Ethernet0" and "refused by the chip" in difference["message"], difference
    router.text("config", "asic", "take", ALL[10])
    wait_for("it is mended", lambda: look(*at)[0] == 0, 60)
    # A chip that stalls: what waits for it is told, and explain names it.
    router.text("config", "asic", "stall")
    announce(sender, [ALL[20]], "10.0.0.6")
    wait_for("it waits", lambda: look(*at, "--wait", 0)[1]["differing"] == 1, 30)
    [difference] = look(*at, "--wait", 0.5)[1]["differences"]
    assert (difference["prefix"], difference["stage"], difference["under_way"]) == (ALL[20], "chip", True), difference
    assert "it is stalled" in router.explain(ALL[20])["conclusion"]
    router.text("config", "asic", "resume")
    assert look(*at, "--wait", 30)[0] == 0
    sender.send(raw_update(withdrawn=nlri(ALL[:500])))
    wait_for("they are gone", lambda: router.count() == len(ALL) - 500 + 1, 30)
    status, found = look(*at, "--full", "--wait", 30)
    assert (status, found["differing"]) == (0, 0), found


def test_the_kernel(host):
    host.lan("lan0", "10.9.0.1/24")
    router = Ribtide(host, KERNEL)
    at = ("--socket", router.socket)
    sender = Speaker(host, SENDER, 65010)
    announce(sender, ALL, "10.9.0.7")
    wait_for("they are there", lambda: router.count() == len(ALL), 30)
    wait_for("all agree", lambda: look(*at, "--full")[0] == 0, 30)
    # A gateway that the kernel refuses: to the RIB manager a neighbour, to the kernel a broadcast address.
    host.ip("route", "add", "broadcast", "10.9.0.77", "dev", "lan0", "table", "local")
    announce(sender, [ALL[0]], "10.9.0.77")
    wait_for("it differs", lambda: look(*at, "--wait", 0)[0] == 1, 30)
    found = look(*at, "--wait", 0, "--full")[1]
    assert {(d["prefix"], d["stage"]) for d in found["differences"]} == {(ALL[0], "kernel")}, found
    router.ends_differing("the kernel refuses a route")


def test_what_only_the_kernel_has(host):
    """A difference without a journal entry is found in as many checks as the kernel table has
    parts, and none of them is full."""
    host.lan("lan0", "10.9.0.1/24")
    router = Ribtide(host, KERNEL)
    at = ("--socket", router.socket, "--wait", 0)
    sender = Speaker(host, SENDER, 65010)
    many = [f"20.{n // 256}.{n % 256}.0/24" for n in range(20_000)]
    announce(sender, many, "10.9.0.7")
    wait_for("they are there", lambda: router.count() == len(many), 60)
    wait_for("all agree", lambda: look(*at, "--full")[0] == 0, 60)
    parts = 2
    seen = [look(*at) for _ in range(2 * parts + 1)]
    assert all(status == 0 and not found["full"] for status, found in seen), seen
    # With a type of service it is no route that ribtide writes, nor one that it finds to take away.
    other = ("20.200.0.0/24", "tos", "0x10", "via", "10.9.0.8", "dev", "lan0", "proto", "186")
    host.ip("route", "add", *other)
    # It may be made where the walk has just been.
    status, found = next(filter(lambda seen: seen[0], (look(*at) for _ in range(2 * parts))), (0, None))
    assert status == 1 and not found["full"] and {d["stage"] for d in found["differences"]} == {"kernel"}, found
    assert look(*at)[0] == 1
    host.ip("route", "del", *other)
    wait_for("all agree again", lambda: look(*at)[0] == 0, 30)
    assert not look(*at)[1]["full"]


def test_type_of_service_route_beside_ours_differs(host):
    """The kernel sends some packets of a prefix elsewhere: it has the prefix twice."""
    host.lan("lan0", "10.9.0.1/24")
    router = Ribtide(host, KERNEL)
    at = ("--socket", router.socket, "--wait", 0)
    sender = Speaker(host, SENDER, 65010)
    announce(sender, ALL[:5], "10.9.0.7")
    wait_for("all agree", lambda: router.count() == 5 and look(*at)[0] == 0, 30)
    other = (ALL[0], "tos", "0x10", "via", "10.9.0.8", "dev", "lan0", "proto", "186", "metric", "20")
    host.ip("route", "add", *other)
    wait_for("it differs", lambda: look(*at)[0] == 1, 30)
    [difference] = look(*at, "--full")[1]["differences"]
    assert (difference["prefix"], difference["stage"]) == (ALL[0], "kernel"), difference
    assert (difference["rib"], difference["found"]) == ("via 10.9.0.7 dev lan0", "several routes"), difference
    host.ip("route", "del", *other)
    wait_for("all agree again", lambda: look(*at)[0] == 0, 30)


def test_off_link_next_hop_of_single_hop_peer_agrees(host):
    """A shorter path with a next hop behind the default route only is unusable for a single-hop
    neighbour. The good path stays, in the kernel too, and all daemons agree."""
    host.lan("lan0", "10.9.0.1/24")
    static = '[[static]]\nprefix = "0.0.0.0/0"\nnext-hop = ["10.9.0.7"]\n'
    router = Ribtide(host, HEAD + external("good", 65010, Host.FEEDS[0], 'import = ["accept"]')
                     + external("bad", 65011, Host.FEEDS[1], 'import = ["accept"]') + "[fib]\nkernel = { table = 254 }\n" + static)
    at = ("--socket", router.socket)
    good, bad = Speaker(host, Host.FEEDS[0], 65010), Speaker(host, Host.FEEDS[1], 65011)
    good.send(update(ALL[:3], [65010, 65020], "10.9.0.7"))
    wait_for("all agree", lambda: router.count() == 3 and look(*at)[0] == 0, 30)
    bad.send(update(ALL[:1], [65011], "192.0.2.9"))
    wait_for("both paths are there", lambda: len(router.show("route", ALL[0])[0]["paths"]) == 2, 30)
    status, found = look(*at, "--wait", 2)
    assert (status, found["differences"]) == (0, []), found
    assert ALL[0] in host.ip("route", "show", "proto", "186")
    [best] = [path for path in router.show("route", ALL[0])[0]["paths"] if path["best"]]
    assert best["next_hop"] == "10.9.0.7", best


def test_the_daemons(host):
    sonic = Sonic(host, flags=UNREPAIRED)
    sonic.set("ROUTE_TABLE", "20.0.0.0/24", protocol="bgp", nexthop="10.2.0.17", ifname="Ethernet4")
    sonic.set("ROUTE_TABLE", "20.0.1.0/24", protocol="bgp", nexthop="10.2.0.18", ifname="Ethernet4")
    at = ("--sonic", "--database-config", sonic.redis.config, "--syncd", host.folder / "syncd.sock")
    wait_for("syncd answers", (host.folder / "syncd.sock").exists, 60)
    wait_for("all agree", lambda: look(*at, "--wait", 1)[1]["routes"].get("APPL_DB") == 2 and look(*at)[0] == 0, 60)
    # A row that was not announced to orchagent, and one of ASIC_DB that is lost.
    sonic.appl.hset("ROUTE_TABLE:20.0.2.0/24", mapping={"protocol": "bgp", "nexthop": "10.2.0.17", "ifname": "Ethernet4"})
    key = next(k for k in sonic.asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*") if "20.0.1.0/24" in k)
    sonic.asic.delete(key)
    status, found = look(*at, "--wait", 0)
    assert status == 1
    assert {d["prefix"] for d in found["differences"]} == {"20.0.1.0/24", "20.0.2.0/24"}, found
    sonic.appl.delete("ROUTE_TABLE:20.0.2.0/24")
    sonic.set("ROUTE_TABLE", "20.0.1.0/24", protocol="bgp", nexthop="10.2.0.17", ifname="Ethernet4")
    wait_for("all agree again", lambda: look(*at, "--wait", 1)[0] == 0, 30)
    # An unresolved next hop, a chip that stalls: rows that do not get there.
    sonic.set("ROUTE_TABLE", "20.0.3.0/24", protocol="bgp", nexthop="10.2.0.99", ifname="Ethernet4")
    wait_for("it differs", lambda: look(*at, "--wait", 0.5)[0] == 1, 30)
    sonic.neighbor("Ethernet4", "10.2.0.99")
    wait_for("it is there", lambda: look(*at)[0] == 0, 30)
    assert look(*at, "--default-route")[0] == 1
    sonic.set("ROUTE_TABLE", "0.0.0.0/0", protocol="bgp", nexthop="10.2.0.17", ifname="Ethernet4")
    wait_for("the default route", lambda: look(*at, "--default-route")[0] == 0, 30)
    # Checks of one process that find nothing changed compare nothing.
    checks = subprocess.Popen([binary(), "route-check", "--json", "--every", "0.5", *map(str, at)], stdout=subprocess.PIPE, text=True)
    try:
        again = [json.loads(line)["full"] for line in itertools.islice(checks.stdout, 5)]
    finally:
        checks.kill()
    assert again[-1] is False, again


def agreed(host, ipv4, ipv6):
    """So many routes down to the daemons' chip, and a function that checks them."""
    sonic = Sonic(host, flags=UNREPAIRED)
    own = own_routes(sonic)
    router = Ribtide(host, SONIC_ROUTER)
    blast(host, ipv4, ipv6)
    count = ipv4 + ipv6 + len(own)
    wait_for("the table is here", lambda: sonic.query("counts")["ipv4_routes"] + sonic.query("counts")["ipv6_routes"] >= count,
             120, alive=sonic.alive())
    at = ("--sonic", "--database-config", sonic.redis.config, "--syncd", host.folder / "syncd.sock", "--wait", 0)
    wait_for("all agree", lambda: look(*at)[0] == 0, 60)
    return sonic, router, at


@pytest.mark.long
def test_the_daemons_a_part_at_a_time(host):
    """One process checks each second: differences are found, though no check reads everything."""
    sonic, router, at = agreed(host, 40_000, 400)
    checks = subprocess.Popen([binary(), "route-check", "--json", "--every", "0.2", *map(str, at)], stdout=subprocess.PIPE, text=True)

    def until(what, so):
        """The checks until one is so, that included."""
        seen = []
        for line in checks.stdout:
            seen.append(json.loads(line))
            if so(seen[-1]):
                return seen
            assert len(seen) < 200, (what, seen[-1])
        raise AssertionError(f"no more checks before: {what}")

    try:
        assert until("the first is of everything", lambda found: True)[0]["full"]
        until("nothing changes, and nothing is compared", lambda found: found["checked"] == 0 and not found["full"])
        key = next(key for key in sonic.asic.scan_iter("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*", 1000) if "10.255" not in key)
        prefix, entry = json.loads(key.split(":", 2)[2])["dest"], sonic.asic.hgetall(key)
        # A lap that ends as the entry comes back has counted one less than the switch has, and everything is compared.
        for change, differing in [(lambda: sonic.asic.delete(key), 1), (lambda: sonic.asic.hset(key, mapping=entry), 0)]:
            change()
            seen = until(f"{differing} differs", lambda found: found["differing"] == differing)
            if differing:
                assert not any(found["full"] for found in seen) and all(found["checked"] < 20_000 for found in seen), seen
            assert [d["prefix"] for d in seen[-1]["differences"]] == [prefix] * differing
        # No key of a database shows a route that only the switch has.
        row = sonic.appl.hgetall(f"ROUTE_TABLE:{prefix}")
        sonic.appl.delete(f"ROUTE_TABLE:{prefix}")
        sonic.asic.delete(key)
        only_chip = lambda found: [(d["prefix"], d["stage"], d["rib"]) for d in found["differences"]] == [(prefix, "chip", "not in ASIC_DB")]
        seen = until("it is found", only_chip)
        assert not any(found["full"] for found in seen), seen
        assert look(*at)[1]["differences"][0]["stage"] == "chip", "and by a look at everything"
        sonic.asic.hset(key, mapping=entry)
        sonic.appl.hset(f"ROUTE_TABLE:{prefix}", mapping=row)
        until("all agree again", lambda found: found["differing"] == 0)
        # The same while routes come and go and nothing ever rests; and nothing else is said to be too much.
        churn = Churn(sonic)
        sonic.appl.delete(f"ROUTE_TABLE:{prefix}")
        sonic.asic.delete(key)
        seen = until("it is found", only_chip_says(prefix))
        assert len(seen) <= 40, len(seen)
        sonic.asic.hset(key, mapping=entry)
        sonic.appl.hset(f"ROUTE_TABLE:{prefix}", mapping=row)
        seen = [*seen, *until("it is not", lambda found: not says(found)), *(until("a look", lambda found: True)[0] for _ in range(20))]
        assert all(says(found) <= {prefix} for found in seen) and not says(seen[-1]), seen
        churn.ends()
        until("all agree at last", lambda found: found["differing"] == 0)
    finally:
        checks.kill()
    assert router.process.poll() is None


class Checks(threading.Thread):
    """Consecutive checks of one process."""

    def __init__(self, *at):
        super().__init__(daemon=True)
        self.process = subprocess.Popen([binary(), "route-check", "--json", *map(str, at)], stdout=subprocess.PIPE, text=True)
        self.seen = []
        self.start()

    def run(self):
        for line in self.process.stdout:
            self.seen.append(json.loads(line))

    def until(self, what, so):
        """The checks from here until one is so, that included."""
        begin = len(self.seen)
        first = lambda: next((n for n, found in enumerate(self.seen) if n >= begin and so(found)), None)
        try:
            wait_for(what, lambda: first() is not None, 90)
        except AssertionError as e:
            raise AssertionError(f"{e}: {self.seen[-3:]}") from None
        return self.seen[begin:first() + 1]

    def next(self, count):
        begin = len(self.seen)
        wait_for("more checks", lambda: len(self.seen) >= begin + count, 90)
        return self.seen[begin:begin + count]


def test_two_checks_run_at_once(host):
    """Each of two checks keeps finding all differences, also surplus entries of the switch,
    which it watches for both."""
    # Two parts: a lap is two checks.
    sonic, router, at = agreed(host, 12_000, 200)
    both = [Checks("--every", "0.2", *at) for _ in range(2)]
    churn = Churn(sonic)
    try:
        for checks in both:
            assert wait_for("a first check", lambda: checks.seen[:1], 90)[0]["full"]
        # Routes under way differ for a moment, and none is surplus.
        for checks in both:
            assert not [found for found in checks.next(6) if says(found)]
        key = next(key for key in sonic.asic.scan_iter("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*", 1000) if "10.255" not in key)
        prefix, entry = json.loads(key.split(":", 2)[2])["dest"], sonic.asic.hgetall(key)
        row = sonic.appl.hgetall(f"ROUTE_TABLE:{prefix}")
        sonic.appl.delete(f"ROUTE_TABLE:{prefix}")
        sonic.asic.delete(key)
        for checks in both:
            checks.until("what only the switch has is found", only_chip_says(prefix))
        for checks in both:
            assert [says(found) for found in checks.next(12)] == [{prefix}] * 12
        # Idle too: the lap in which nothing changes any more comes by it.
        churn.ends()
        for checks in both:
            checks.until("nothing changes", lambda found: found["checked"] == 0 and not found["full"])
            assert [says(found) for found in checks.next(5)] == [{prefix}] * 5
        sonic.asic.hset(key, mapping=entry)
        for checks in both:
            checks.until("its entry has no row", lambda found: [(d["prefix"], d["stage"]) for d in found["differences"]] == [(prefix, "orchagent")])
        sonic.appl.hset(f"ROUTE_TABLE:{prefix}", mapping=row)
        for checks in both:
            checks.until("all agree", lambda found: found["differing"] == 0)
            checks.until("nothing changes", lambda found: found["checked"] == 0 and not found["full"])
            assert checks.next(1)[0]["differing"] == 0
    finally:
        churn.over.set()
        for checks in both:
            checks.process.kill()
    assert router.process.poll() is None


def says(found):
    """The surplus entries of the switch in a result."""
    return {d["prefix"] for d in found["differences"] if d["rib"] == "not in ASIC_DB"}


def only_chip_says(prefix):
    return lambda found: says(found) == {prefix}


class Churn(threading.Thread):
    """Routes that come and go repeatedly, until the end, with none left."""

    def __init__(self, sonic):
        super().__init__(daemon=True)
        self.sonic, self.over = sonic, threading.Event()
        self.start()

    def run(self):
        n = 0
        while not self.over.is_set():
            for m in range(50):
                self.sonic.set("ROUTE_TABLE", f"100.64.{m}.0/24", protocol="bgp", nexthop="193.203.0.5", ifname="Ethernet0")
            # A round that they all live through, then one through which none does.
            time.sleep(0.02 * (n % 4))
            n += 1
            for m in range(50):
                self.sonic.delete("ROUTE_TABLE", f"100.64.{m}.0/24")

    def ends(self):
        self.over.set()
        self.join(30)
        assert not self.is_alive()


ECMP = {"nexthop": "193.203.0.5,193.203.0.6", "ifname": "Ethernet0,Ethernet0"}


def test_next_hops_of_the_daemons_are_compared(host):
    """All keys exist: only the next hops differ."""
    sonic = Sonic(host, vrfs={"Ethernet4": "Vrfred"}, flags=UNREPAIRED)
    at = ("--sonic", "--database-config", sonic.redis.config, "--syncd", host.folder / "syncd.sock", "--wait", 0)
    wait_for("syncd answers", (host.folder / "syncd.sock").exists, 60)
    sonic.set("NEXTHOP_GROUP_TABLE", "7", **ECMP, weight="1,1")
    sonic.set("ROUTE_TABLE", "20.0.0.0/24", protocol="bgp", nexthop="193.203.0.5", ifname="Ethernet0")
    sonic.set("ROUTE_TABLE", "20.0.1.0/24", protocol="bgp", nexthop="193.203.0.6", ifname="Ethernet0")
    sonic.set("ROUTE_TABLE", "20.0.2.0/24", protocol="bgp", nexthop_group="7")
    sonic.set("ROUTE_TABLE", "20.0.3.0/24", protocol="bgp", **ECMP, weight="1,3")
    sonic.set("ROUTE_TABLE", "20.0.4.0/24", protocol="static", blackhole="true")
    sonic.set("ROUTE_TABLE", "193.203.0.0/24", protocol="kernel", nexthop="0.0.0.0", ifname="Ethernet0")
    sonic.set("ROUTE_TABLE", "Vrfred:20.0.0.0/24", protocol="bgp", nexthop="10.2.0.17", ifname="Ethernet4")
    sonic.set("ROUTE_TABLE", "Vrfred:20.0.1.0/24", protocol="bgp", nexthop="10.2.0.18", ifname="Ethernet4")
    # What orchagent leaves alone: the router's own, its management port, and an interface that is none of the switch's.
    for prefix, interface in ("193.203.0.250", "Ethernet0"), ("192.0.2.0/24", "eth0"), ("198.51.100.0/24", "dummy0"):
        sonic.set("ROUTE_TABLE", prefix, protocol="kernel", nexthop="0.0.0.0", ifname=interface)
    wait_for("all agree", lambda: look(*at)[1]["routes"]["APPL_DB"] == 11 and look(*at)[0] == 0, 60)

    def entry(prefix, of_vrf=False):
        default, red = sonic.chip().routers()
        router = red if of_vrf else default
        [key] = [k for k in sonic.asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*") if f'"{prefix}"' in k and router in k]
        return key

    def set_next_hop(key, to):
        """ASIC_DB has another next hop."""
        return [(sonic.asic, key, "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", to)]

    def hop(address):
        [oid] = [oid for oid, fields in sonic.chip().objects["NEXT_HOP"].items() if fields["SAI_NEXT_HOP_ATTR_IP"] == address]
        return oid

    def row(prefix, **fields):
        """APPL_DB has another row, without a notification to orchagent."""
        return [(sonic.appl, f"ROUTE_TABLE:{prefix}", field, value) for field, value in fields.items()]

    member = "ASIC_STATE:SAI_OBJECT_TYPE_NEXT_HOP_GROUP_MEMBER:"
    of_group = {key.split(":", 2)[2] for key in sonic.asic.keys(f"{member}*")
                if sonic.asic.hget(key, "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID")
                == sonic.asic.hget(entry("20.0.2.0/24"), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID")}
    other = [(sonic.asic, member + oid, "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID", hop("193.203.0.9")) for oid in sorted(of_group)[:1]]
    wrong = [
        # What is changed; VRF, prefix and stage of what is found, and two words of what it should and does resolve to.
        (set_next_hop(entry("20.0.0.0/24"), hop("193.203.0.6")), "default", "20.0.0.0/24", "orchagent", "193.203.0.5", "193.203.0.6"),
        (set_next_hop(entry("20.0.0.0/24", True), hop("10.2.0.18")), "Vrfred", "20.0.0.0/24", "orchagent", "10.2.0.17", "10.2.0.18"),
        (set_next_hop(entry("20.0.1.0/24"), "oid:0x4000000000fff"), "default", "20.0.1.0/24", "orchagent", "193.203.0.6", "not there"),
        (set_next_hop(entry("20.0.3.0/24"), hop("193.203.0.5")), "default", "20.0.3.0/24", "orchagent", "193.203.0.6", "193.203.0.5"),
        (set_next_hop(entry("193.203.0.0/24"), hop("193.203.0.5")), "default", "193.203.0.0/24", "orchagent", "dev Ethernet0", "via 193.203.0.5"),
        (set_next_hop(entry("20.0.4.0/24"), hop("193.203.0.5")) + [(sonic.asic, entry("20.0.4.0/24"), "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION",
                                                            "SAI_PACKET_ACTION_FORWARD")],
         "default", "20.0.4.0/24", "orchagent", "drop", "193.203.0.5"),
        (row("20.0.1.0/24", nexthop="193.203.0.9"), "default", "20.0.1.0/24", "orchagent", "193.203.0.9", "193.203.0.6"),
        (row("20.0.1.0/24", ifname="Ethernet4"), "default", "20.0.1.0/24", "orchagent", "Ethernet4", "Ethernet0"),
        (row("20.0.3.0/24", weight="1,1"), "default", "20.0.3.0/24", "orchagent", "193.203.0.6", "weight 3"),
        (row("20.0.2.0/24", nexthop_group="8"), "default", "20.0.2.0/24", "orchagent", "group 8", "193.203.0.5"),
        (other, "default", "20.0.2.0/24", "orchagent", "193.203.0.6", "193.203.0.9"),
        ([(sonic.appl, "NEXTHOP_GROUP_TABLE:7", "nexthop", "193.203.0.5,193.203.0.9")], "default", "20.0.2.0/24", "orchagent",
         "193.203.0.9", "193.203.0.6"),
        # Both databases are wrong alike: only the switch has it right.
        (row("20.0.0.0/24", nexthop="193.203.0.6") + set_next_hop(entry("20.0.0.0/24"), hop("193.203.0.6")), "default", "20.0.0.0/24", "chip",
         "193.203.0.6", "193.203.0.5"),
        (row("Vrfred:20.0.0.0/24", nexthop="10.2.0.18") + set_next_hop(entry("20.0.0.0/24", True), hop("10.2.0.18")), "Vrfred", "20.0.0.0/24",
         "chip", "10.2.0.18", "10.2.0.17"),
    ]
    for changes, *what in wrong:
        before = [(db, key, field, db.hget(key, field)) for db, key, field, _ in changes]
        for db, key, field, value in changes:
            db.hset(key, field, value)
        status, found = look(*at)
        assert status == 1, (changes, found)
        [d] = found["differences"]
        assert [d["vrf"], d["prefix"], d["stage"]] == what[:3] and what[3] in d["rib"] and what[4] in d["found"] and d["message"], (changes, d)
        for db, key, field, value in before:
            db.hset(key, field, value) if value is not None else db.hdel(key, field)
        assert look(*at)[0] == 0, changes
    # In one VRF it is there, in the other it is not.
    sonic.asic.delete(entry("20.0.1.0/24", True))
    [d] = look(*at)[1]["differences"]
    assert (d["vrf"], d["prefix"], d["stage"]) == ("Vrfred", "20.0.1.0/24", "orchagent"), d


def test_what_only_the_switch_has(host):
    """Labels, and routes of a virtual router that ASIC_DB has lost, in full checks and in those
    of a part."""
    sonic = Sonic(host, vrfs={"Ethernet4": "Vrfred"}, flags=UNREPAIRED)
    at = ("--sonic", "--database-config", sonic.redis.config, "--syncd", host.folder / "syncd.sock", "--wait", 0)
    wait_for("syncd answers", (host.folder / "syncd.sock").exists, 60)
    sonic.set("ROUTE_TABLE", "Vrfred:20.0.0.0/24", protocol="bgp", nexthop="10.2.0.17", ifname="Ethernet4")
    for label in "200", "201":
        sonic.set("LABEL_ROUTE_TABLE", label, nexthop="193.203.0.5", ifname="Ethernet0", mpls_pop="1")
    wait_for("all agree", lambda: look(*at)[1]["routes"].get("chip labels") == 2 and look(*at)[0] == 0, 60)
    checks = subprocess.Popen([binary(), "route-check", "--json", "--every", "0.2", *map(str, at)], stdout=subprocess.PIPE, text=True)
    too_much = lambda found: sorted((d["vrf"], d["prefix"], d["stage"]) for d in found["differences"] if d["rib"] == "not in ASIC_DB")

    def until(what):
        """Both kinds of checks say that this is too much, and nothing else."""
        for n, line in enumerate(checks.stdout):
            if too_much(json.loads(line)) == what:
                break
            assert n < 50, line
        status, found = look(*at)
        assert (status, too_much(found)) == (1, what), found

    try:
        assert json.loads(checks.stdout.readline())["differing"] == 0
        sonic.appl.delete("LABEL_ROUTE_TABLE:201")
        [key] = [key for key in sonic.asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_INSEG_ENTRY:*") if '"201"' in key]
        sonic.asic.delete(key)
        until([("labels", "201", "chip")])
        [vid] = sonic.chip().routers()[1:]
        rid = sonic.asic.hget("VIDTORID", vid)
        keys = [key for key in sonic.asic.keys("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*") if vid in key]
        assert keys
        for of_router in keys:
            sonic.asic.delete(of_router)
        sonic.asic.hdel("VIDTORID", vid)
        sonic.asic.hdel("RIDTOVID", rid)
        sonic.appl.delete("ROUTE_TABLE:Vrfred:20.0.0.0/24")
        until(sorted([("labels", "201", "chip"), *((rid, json.loads(key.split(":", 2)[2])["dest"], "chip") for key in keys)]))
    finally:
        checks.kill()


#: Static routes of two VRFs: one next hop, several, IPv6, a blackhole.
ROUTER_OF_SONIC = HEAD + """
[fib]
fpm = ["127.0.0.1:2620"]
fpm-next-hop-groups = %s

[[interface]]
name = "Ethernet0"
addresses = ["193.203.0.250/24", "fd00:193::ff/64"]

[[interface]]
name = "Ethernet4"
addresses = ["10.2.0.1/24"]

[[static]]
prefix = "192.0.2.0/24"
next-hop = ["193.203.0.7"]

[[static]]
prefix = "192.0.3.0/24"
next-hop = ["193.203.0.7", "193.203.0.8"]

[[static]]
prefix = "2001:db8::/32"
next-hop = ["fd00:193::1", "fd00:193::2"]

[[static]]
prefix = "203.0.113.0/24"
blackhole = true

[vrf.Vrfred]
interfaces = ["Ethernet4"]

[[vrf.Vrfred.static]]
prefix = "192.0.2.0/24"
next-hop = ["10.2.0.17", "10.2.0.18"]
"""
STATICS = {"192.0.2.0/24", "192.0.3.0/24", "2001:db8::/32", "203.0.113.0/24", "Vrfred:192.0.2.0/24"}
ALONE = {daemon: ["--reconcile-interval", "0"] for daemon in ("fpmsyncd", "orchagent", "syncd")}
OVER_ZMQ = {"SYSTEM_DEFAULTS|swss_zmq": {"status": "enabled"}}


def fed(host, groups="false", config=None, flags=ALONE):
    """The daemons and a router that feeds them, and how route-check is called for both."""
    sonic = Sonic(host, vrfs={"Ethernet4": "Vrfred"}, flags=flags, config=config)
    host.lan("Vrfred")
    wait_for("syncd answers", (host.folder / "syncd.sock").exists, 60)
    router = Ribtide(host, ROUTER_OF_SONIC % groups)
    daemons = ("--sonic", "--database-config", sonic.redis.config, "--syncd", host.folder / "syncd.sock")
    return sonic, router, daemons, (*daemons, "--socket", router.socket)


@contextlib.contextmanager
def stopped(sonic, daemon):
    """The daemon does nothing meanwhile."""
    process = sonic.processes[daemon].popen
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("groups, config", [("false", None), ("true", None), ("false", OVER_ZMQ)], ids=["inline", "objects", "zmq"])
def test_the_router_and_appl_db(host, groups, config):
    """Another program changes rows of APPL_DB: route-check names each that differs from the RIB manager."""
    sonic, router, daemons, at = fed(host, groups, config)
    wait_for("all agree", lambda: sonic.routes().keys() >= STATICS and look(*at, "--wait", 1)[0] == 0, 60, alive=[router.process, *sonic.alive()])
    status, found = look(*at)
    routes = found["routes"]
    assert (status, found["differing"]) == (0, 0) and "not_compared" not in found, found
    # Connected routes are sent, too.
    assert routes["rib"] == routes["APPL_DB"] == len(sonic.routes()) > len(STATICS), routes

    def differing(*args):
        found = look(*at, "--wait", 0, *args)[1]
        return sorted((d["vrf"], d["prefix"], d["stage"], d["rib"], d["found"]) for d in found["differences"])

    key = lambda name: f"ROUTE_TABLE:{name}"
    ecmp, red = "via 193.203.0.7 dev Ethernet0, via 193.203.0.8 dev Ethernet0", "via 10.2.0.17 dev Ethernet4, via 10.2.0.18 dev Ethernet4"
    ecmp6 = "via fd00:193::1 dev Ethernet0, via fd00:193::2 dev Ethernet0"
    one, other = "via 193.203.0.7 dev Ethernet0", "via 193.203.0.9 dev Ethernet0"
    bgp = {"protocol": "bgp", "nexthop": "193.203.0.9", "ifname": "Ethernet0"}
    weighted = {"nexthop": "193.203.0.7,193.203.0.8", "ifname": "Ethernet0,Ethernet0", "weight": "1,3"}
    checks = [
        # The row, its fields (none: it is deleted), and VRF, prefix, what is wanted and found.
        ("192.0.2.0/24", None, [("default", "192.0.2.0/24", one, "no row")]),
        ("192.0.2.0/24", bgp, [("default", "192.0.2.0/24", one, other)]),
        ("192.0.2.0/24", {"protocol": "static", "blackhole": "true"}, [("default", "192.0.2.0/24", one, "drop")]),
        ("192.0.2.0/24", {"protocol": "static", "nexthop": "193.203.0.7", "ifname": "Ethernet4"},
         [("default", "192.0.2.0/24", one, "via 193.203.0.7 dev Ethernet4")]),
        ("192.0.3.0/24", {"protocol": "static", **weighted},
         [("default", "192.0.3.0/24", ecmp, "via 193.203.0.7 dev Ethernet0 weight 1, via 193.203.0.8 dev Ethernet0 weight 3")]),
        ("192.0.3.0/24", {"protocol": "static", "nexthop_group": "4711"}, [("default", "192.0.3.0/24", ecmp, "group 4711, which is not there")]),
        ("2001:db8::/32", {"protocol": "static", "nexthop": "fd00:193::1", "ifname": "Ethernet0"},
         [("default", "2001:db8::/32", ecmp6, "via fd00:193::1 dev Ethernet0")]),
        ("203.0.113.0/24", None, [("default", "203.0.113.0/24", "drop", "no row")]),
        ("203.0.113.0/24", bgp, [("default", "203.0.113.0/24", "drop", other)]),
        ("Vrfred:192.0.2.0/24", None, [("Vrfred", "192.0.2.0/24", red, "no row")]),
        ("Vrfred:198.51.100.0/24", bgp, [("Vrfred", "198.51.100.0/24", "no route", other)]),
        ("198.51.100.0/24", bgp, [("default", "198.51.100.0/24", "no route", other)]),
    ]
    with stopped(sonic, "fpmsyncd"):
        for name, fields, wanted in checks:
            before = sonic.appl.hgetall(key(name))
            sonic.appl.delete(key(name))
            if fields:
                sonic.appl.hset(key(name), mapping=fields)
            assert differing() == [(vrf, prefix, "fpmsyncd", rib, row) for vrf, prefix, rib, row in wanted], (name, fields)
            sonic.appl.delete(key(name))
            if before:
                sonic.appl.hset(key(name), mapping=before)
            assert look(*at, "--wait", 0)[0] == 0, name
        # Without a protocol it is not fpmsyncd's: only the daemons differ.
        sonic.appl.hset(key("198.51.100.0/24"), mapping={"nexthop": "193.203.0.9", "ifname": "Ethernet0"})
        assert [d[2] for d in differing()] == ["orchagent"]
        sonic.appl.delete(key("198.51.100.0/24"))
        if groups == "true":
            group = sonic.appl.hget(key("192.0.3.0/24"), "nexthop_group")
            sonic.appl.hset(f"NEXTHOP_GROUP_TABLE:{group}", "weight", "1,3")
            assert [d[:3] for d in differing()] == [("default", "192.0.3.0/24", "fpmsyncd")]
            sonic.appl.hset(f"NEXTHOP_GROUP_TABLE:{group}", "weight", "1,1")
        # A route that fpmsyncd does not take from its socket.
        with open(router.config, "a") as config:
            config.write('\n[[static]]\nprefix = "192.0.9.0/24"\nnext-hop = ["193.203.0.7"]\n')
        router.text("reload")
        assert differing() == [("default", "192.0.9.0/24", "fpmsyncd", one, "no row")]
    wait_for("it goes on, and all agree", lambda: look(*at, "--wait", 0)[0] == 0, 30)
    # As text, and what is not compared.
    with stopped(sonic, "fpmsyncd"):
        row = sonic.appl.hgetall(key("192.0.2.0/24"))
        sonic.appl.delete(key("192.0.2.0/24"))
        done = subprocess.run([binary(), "route-check", *map(str, at), "--wait", "0.5"], capture_output=True, text=True, timeout=60)
        lines = done.stdout.splitlines()
        assert done.returncode == 1 and lines[0].startswith("1 route differs (") and f"rib {routes['rib'] + 1}" in lines[0], done.stdout
        assert lines[2].split()[:3] == ["default", "192.0.2.0/24", "fpmsyncd"] and "another program deleted it" in lines[2], done.stdout
        sonic.appl.hset(key("192.0.2.0/24"), mapping=row)
    router.stop()
    status, found = look(*at)
    assert (status, [text.split(":")[0] for text in found["not_compared"]]) == (0, ["the RIB manager with APPL_DB"]), found
    assert "no router answers at" in found["not_compared"][0] and "rib" not in found["routes"], found
    done = subprocess.run([binary(), "route-check", *map(str, at)], capture_output=True, text=True, timeout=60)
    assert "\nNot compared: the RIB manager with APPL_DB: no router answers at" in done.stdout, done.stdout


def test_the_router_and_appl_db_a_part_at_a_time(host):
    """One process checks each second, and the router comes and goes."""
    sonic, router, daemons, at = fed(host)
    wait_for("all agree", lambda: sonic.routes().keys() >= STATICS and look(*at, "--wait", 1)[0] == 0, 60, alive=[router.process, *sonic.alive()])
    checks = Checks("--every", "0.2", "--wait", "0", *at)
    rests = lambda found: found["checked"] == 0 and not found["full"] and not found["differing"]
    names = lambda found: [(d["vrf"], d["prefix"], d["stage"]) for d in found["differences"]]
    key = "ROUTE_TABLE:Vrfred:192.0.2.0/24"
    try:
        checks.until("nothing changes, and nothing is compared", rests)
        row = sonic.appl.hgetall(key)
        sonic.appl.delete(key)
        seen = checks.until("it is found", lambda found: names(found) == [("Vrfred", "192.0.2.0/24", "fpmsyncd")])
        assert not any(found["full"] for found in seen), seen
        sonic.appl.hset(key, mapping=row)
        checks.until("all agree", rests)
        # The databases stay as they are, and the router has another route.
        with stopped(sonic, "fpmsyncd"):
            with open(router.config, "a") as config:
                config.write('\n[[static]]\nprefix = "192.0.9.0/24"\nnext-hop = ["193.203.0.7"]\n')
            router.text("reload")
            seen = checks.until("it is found", lambda found: names(found) == [("default", "192.0.9.0/24", "fpmsyncd")])
            assert not any(found["full"] for found in seen), seen
        checks.until("all agree", rests)
        router.stop()
        checks.until("the router is gone", lambda found: "no router answers" in "".join(found.get("not_compared", [])))
        router.start()
        checks.until("the router is back", lambda found: "not_compared" not in found and rests(found))
    finally:
        checks.process.kill()


def test_the_router_without_appl_db(host):
    flags = ALONE | {"fpmsyncd": [*ALONE["fpmsyncd"], "--appl-db", "off"]}
    sonic, router, daemons, at = fed(host, config=OVER_ZMQ, flags=flags)
    wait_for("the chip has a route", lambda: sonic.route("192.0.2.0/24"), 60, alive=[router.process, *sonic.alive()])
    found = look(*at, "--wait", 0)[1]
    assert found["not_compared"] == ["the RIB manager with APPL_DB: fpmsyncd keeps no APPL_DB (--appl-db off)"], found


def test_a_router_without_fpm_is_not_compared(host):
    sonic = Sonic(host, flags=ALONE)
    wait_for("syncd answers", (host.folder / "syncd.sock").exists, 60)
    router = Ribtide(host, HEAD)
    status, found = look("--sonic", "--database-config", sonic.redis.config, "--socket", router.socket, "--wait", 30)
    assert status == 0 and "it has no FPM client" in found["not_compared"][0], found
