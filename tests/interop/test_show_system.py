"""`show interface`, `show vrf`, `show static` and `show version` beside what the kernel says."""

import ipaddress
import json
import os
import subprocess

import pytest
from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, external
from harness.speaker import Speaker

FIRST = Host.FEEDS[0]

CONFIG = HEAD + external("feed", 65010, FIRST, 'import = ["accept"]') + """
[bgp.group.near]
type = "external"
peer-asn = 65011
bfd = true
passive = true
neighbors = ["10.7.0.2"]
[fib]
kernel = true
[[static]]
prefix = "20.1.0.0/16"
next-hop = ["10.7.0.9"]
[[static]]
prefix = "20.1.0.0/16"
next-hop = ["10.7.0.10"]
distance = 200
[[static]]
prefix = "20.2.0.0/16"
next-hop = ["172.31.0.1"]
[[static]]
prefix = "20.3.0.0/16"
interface = "later0"
[[static]]
prefix = "20.4.0.0/16"
blackhole = true
[vrf.blue]
table = 100
interfaces = ["blue0"]
[[vrf.blue.static]]
prefix = "20.1.0.0/16"
next-hop = ["10.8.0.9"]
"""


@pytest.fixture
def router(host):
    for name, address in [("near0", "10.7.0.1/24"), ("blue0", "10.8.0.1/24"), ("wide0", "fd07::1/64")]:
        host.lan(name)
        host.ip("link", "set", name, "up")
        host.ip("addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
    host.lan("off0")
    host.ip("link", "set", "off0", "down")
    host.ip("addr", "add", "10.9.0.1", "peer", "10.9.0.2", "dev", "off0")
    return Ribtide(host, CONFIG)


def of_kernel(host):
    """Name → (index, administrative state, carrier, addresses with subnets) by `ip`; tentative addresses are not used yet."""
    found = {}
    for link in json.loads(host.ip("-j", "addr")):
        usable = [a for a in link["addr_info"] if not (a.get("tentative") or a.get("dadfailed"))]
        # Of a point-to-point link the subnet is the peer's.
        subnet = lambda a: str(ipaddress.ip_network(f"{a.get('address', a['local'])}/{a['prefixlen']}", strict=False))  # noqa: E731
        addresses = sorted((a["local"], subnet(a)) for a in usable)
        found[link["ifname"]] = (link["ifindex"], "UP" in link["flags"], "LOWER_UP" in link["flags"], addresses)
    return found


def of_router(router):
    """The same by ribtide."""
    return {one["name"]: (one["index"], one["admin_up"], one["carrier"],
                          sorted((a["address"], a["subnet"]) for a in one["addresses"]))
            for one in router.show("interface")["interfaces"] if one["source"] == "kernel"}


def refused(router, *args):
    """What a command says that fails."""
    done = subprocess.run([binary(), *args, "--socket", router.socket], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and not done.stdout, done
    return done.stderr


def one(router, name):
    [found] = router.show("interface", name)["interfaces"]
    return found


def test_interfaces_are_those_of_the_kernel_and_follow_it(host, router):
    same = lambda: of_router(router) == of_kernel(host)  # noqa: E731
    wait_for("the interfaces are the kernel's", same, 20, alive=[router.process])
    assert of_router(router)["off0"][1:] == (False, False, [("10.9.0.1", "10.9.0.2/32")])
    assert one(router, "near0")["kind"] == "veth" and one(router, "near0")["mtu"] == 1500
    host.ip("link", "set", "near0", "down")
    host.ip("addr", "add", "10.7.1.1/25", "dev", "wide0")
    host.ip("link", "set", "off0", "name", "renamed0")
    host.lan("later0")
    host.ip("link", "del", "blue0")
    wait_for("the list follows the kernel", same, 20, alive=[router.process])
    assert not one(router, "near0")["admin_up"] and "renamed0" in of_router(router)
    assert "there is no interface off0" in refused(router, "show", "interface", "off0")


def test_interface_has_its_vrf_sessions_and_missing_subnets(host, router):
    Speaker(host, FIRST, 65010)
    wait_for("the session is up", lambda: router.established(FIRST), 20, alive=[router.process])
    vrfs = {name: one(router, name).get("vrf") for name in ("near0", "blue0", "lo")}
    assert vrfs == {"near0": "default", "blue0": "blue", "lo": "default"}
    near = one(router, "near0")
    assert [n["neighbor"] for n in near["neighbors"]] == ["10.7.0.2"] and near["neighbors"][0]["state"] != "Established"
    assert [n["neighbor"] for n in near["bfd"]] == ["10.7.0.2"]
    established = [(i["name"], n["neighbor"]) for i in router.show("interface")["interfaces"] for n in i["neighbors"]
                   if n["state"] == "Established"]
    assert [neighbor for _, neighbor in established] == [FIRST]
    host.ip("route", "del", "10.7.0.0/24", "dev", "near0")
    missing = lambda: [a["subnet"] for a in one(router, "near0")["addresses"] if a["route_missing"]]  # noqa: E731
    wait_for("the subnet is missing", lambda: missing() == ["10.7.0.0/24"], 20, alive=[router.process])
    assert "the kernel has no route to 1 subnet by it" in router.text("show", "interface")
    host.ip("route", "add", "10.7.0.0/24", "dev", "near0", "scope", "link")
    wait_for("the subnet is back", lambda: missing() == [], 20, alive=[router.process])


def test_static_routes_say_whether_they_are_used_and_why_not(host, router):
    def routes():
        return {(r["vrf"], r["prefix"], r["distance"]): r for r in router.show("static")["routes"]}

    in_kernel = lambda: {r["dst"] for r in json.loads(host.ip("-j", "route", "show", "table", "all"))}  # noqa: E731
    wait_for("they are in the kernel", lambda: {"20.1.0.0/16", "20.4.0.0/16"} <= in_kernel(), 20, alive=[router.process])
    found = routes()
    assert {key: r["selected"] for key, r in found.items()} == {
        ("default", "20.1.0.0/16", 1): True, ("default", "20.1.0.0/16", 200): False, ("default", "20.2.0.0/16", 1): False,
        ("default", "20.3.0.0/16", 1): False, ("default", "20.4.0.0/16", 1): True, ("blue", "20.1.0.0/16", 1): True}
    assert "lower distance 1" in found["default", "20.1.0.0/16", 200]["reason"]
    assert "none of its next hops resolves" in found["default", "20.2.0.0/16", 1]["reason"]
    assert "unresolved" in found["default", "20.2.0.0/16", 1]["next_hops"][0]
    assert found["default", "20.3.0.0/16", 1]["reason"] == "it waits until there is an interface later0"
    assert found["default", "20.3.0.0/16", 1]["next_hops"] == [{"interface": "later0"}]
    assert found["default", "20.4.0.0/16", 1]["blackhole"]
    assert [r["prefix"] for r in router.show("static", "--vrf", "blue")["routes"]] == ["20.1.0.0/16"]
    assert "there is no VRF green" in refused(router, "show", "static", "--vrf", "green")
    host.lan("later0")
    host.ip("link", "set", "later0", "up")
    wait_for("the awaited interface is there", lambda: routes()["default", "20.3.0.0/16", 1]["selected"], 20)
    host.ip("link", "set", "near0", "down")
    wait_for("the routes over it are not used", lambda: not routes()["default", "20.1.0.0/16", 1]["selected"], 20)
    assert "does not resolve" in router.text("show", "static")


def test_vrfs_have_tables_interfaces_and_counts(host, router):
    wait_for("the routes are counted", lambda: router.show("vrf")["vrfs"][1]["protocols"], 20, alive=[router.process])
    default, blue = router.show("vrf")["vrfs"]
    assert (default["name"], default["table"], default["bgp"], default["static_routes"]) == ("default", 254, True, 5)
    assert (blue["name"], blue["table"], blue["bgp"], blue["interfaces"], blue["static_routes"]) == ("blue", 100, False, ["blue0"], 1)
    assert {"near0", "wide0", "lo"} <= set(default["interfaces"]) and "blue0" not in default["interfaces"]
    summary = json.loads(router.call("GET", "/v1/routes/summary"))
    assert default["protocols"] == summary["main"]["protocols"] and blue["protocols"] == summary["vrfs"][0]["protocols"]


def test_version_names_the_program_and_the_kernel(host, router):
    found = router.show("version")
    assert found["version"] in router.text("--version") and found["pid"] == router.process.popen.pid
    assert (found["kernel"], found["target"]) == (os.uname().release, f"{os.uname().machine}-linux")
    # The kernel dataplane runs, so the kernel has them.
    assert found["kernel_features"]["next_hop_objects"] is True
    # There is no VRF device here, so the kernel can only say that it has none.
    assert found["kernel_features"].get("vrf") is (None if os.path.exists("/proc/sys/net/ipv4/tcp_l3mdev_accept") else False)
    assert {"tcp_md5", "tcp_ao"} <= found["kernel_features"].keys()
    assert f"Kernel {os.uname().release}" in router.text("show", "version")


def test_configured_interfaces_are_listed_as_such(host):
    router = Ribtide(host, HEAD + external("feed", 65010, FIRST, "") + "[fib]" + LAB)
    [port] = [i for i in router.show("interface")["interfaces"] if i["source"] == "configuration"]
    assert (port["name"], port["admin_up"], port["vrf"]) == ("Ethernet0", True, "default")
    assert port["addresses"] == [{"address": "10.0.255.254", "subnet": "10.0.0.0/16", "route_missing": False}]
    assert "of the configuration, always up" in router.text("show", "interface", "Ethernet0")
