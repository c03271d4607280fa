"""`ribtide route-check`: agreement of RIB, databases, kernel and chip, the place of differences,
and the scope of a check."""

import itertools
import json
import subprocess
import threading
import time

from harness import Host, Ribtide, binary, blast, wait_for
from harness.config import HEAD, LAB, external
from harness.sonic import Sonic
from harness.speaker import Speaker, prefixes as nlri, raw_update, update
from test_sonic import ROUTER as SONIC_ROUTER, own_routes

SENDER = Host.FEEDS[0]
CONFIG = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + "[fib]\n"
ASIC = CONFIG + LAB
KERNEL = CONFIG + "kernel = { table = 254 }\n"
#: What the tests change in the databases stays.
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
        # What only the switch has no key of a database tells.
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
        # What is under way differs for a moment, and nothing is too much.
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
