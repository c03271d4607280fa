"""`ribtide route-check`: whether RIB, databases, kernel and chip agree, what differs and where, and how much is compared."""

import json
import subprocess

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, external
from harness.sonic import Sonic
from harness.speaker import Speaker, prefixes as nlri, raw_update, update

SENDER = Host.FEEDS[0]
CONFIG = HEAD + external("sender", 65010, SENDER, 'import = ["accept"]') + "[fib]\n"
ASIC = CONFIG + LAB
KERNEL = CONFIG + "kernel = { table = 254 }\n"
ALL = [f"20.{n // 256}.{n % 256}.0/24" for n in range(1000)]


def look(*args):
    """Exit status and what was found."""
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
    wait_for("they lead there", lambda: "10.0.0.6" in router.show("fib", ALL[0])[0]["hops"][0], 30)
    seen = [look(*at)[1] for _ in range(3)]
    assert all(not found["full"] and found["checked"] <= 7 for found in seen), seen
    assert look(*at, "--full")[1]["checked"] >= len(ALL)
    # A default route, and whether there is one, by exact look-ups.
    assert look(*at, "--default-route")[0] == 1
    announce(sender, ["0.0.0.0/0"], "10.0.0.5")
    wait_for("the default route forwards", lambda: look(*at, "--default-route")[0] == 0, 30)
    assert look(*at, "--default-route")[1]["default_routes"][0]["leads"] == "via 10.0.0.5 dev Ethernet0"
    # What the chip refuses, and why.
    router.text("config", "asic", "refuse", ALL[10])
    announce(sender, [ALL[10]], "10.0.0.7")
    wait_for("it differs", lambda: look(*at, "--wait", 0)[0] == 1, 30)
    status, found = look(*at, "--wait", 1)
    [difference] = found["differences"]
    assert (difference["prefix"], difference["stage"]) == (ALL[10], "chip"), difference
    assert difference["rib"] == "via 10.0.0.7 dev Ethernet0" and difference["says"], difference
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
    # One that is told to the kernel and refused by it: to the RIB manager a neighbour, to the kernel the broadcast address.
    announce(sender, [ALL[0]], "10.9.0.255")
    wait_for("it differs", lambda: look(*at, "--wait", 0)[0] == 1, 30)
    found = look(*at, "--wait", 0, "--full")[1]
    assert {(d["prefix"], d["stage"]) for d in found["differences"]} == {(ALL[0], "kernel")}, found


def test_the_daemons(host):
    sonic = Sonic(host)
    sonic.set("ROUTE_TABLE", "20.0.0.0/24", protocol="bgp", nexthop="10.2.0.17", ifname="Ethernet4")
    sonic.set("ROUTE_TABLE", "20.0.1.0/24", protocol="bgp", nexthop="10.2.0.18", ifname="Ethernet4")
    at = ("--sonic", "--database-config", sonic.redis.config, "--syncd", host.folder / "syncd.sock")
    wait_for("syncd answers", (host.folder / "syncd.sock").exists, 60)
    wait_for("all agree", lambda: look(*at, "--wait", 1)[1]["routes"].get("APPL_DB") == 2 and look(*at)[0] == 0, 60)
    # A row that nobody announced to orchagent, and one of ASIC_DB that is lost.
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
    assert look(*at, "--wait", 0.5)[0] == 1
    sonic.neighbor("Ethernet4", "10.2.0.99")
    wait_for("it is there", lambda: look(*at)[0] == 0, 30)
    assert look(*at, "--default-route")[0] == 1
    sonic.set("ROUTE_TABLE", "0.0.0.0/0", protocol="bgp", nexthop="10.2.0.17", ifname="Ethernet4")
    wait_for("the default route", lambda: look(*at, "--default-route")[0] == 0, 30)
    # Looks of one process that find nothing changed compare nothing.
    again = subprocess.run(["timeout", "4", binary(), "route-check", "--json", "--every", "0.5", *map(str, at)],
                           capture_output=True, text=True).stdout.splitlines()
    assert [json.loads(line)["full"] for line in again][-1] is False, again
