"""VRFs through FPM: the router with SONiC's daemons as processes. The daemons know VRFs by name,
FPM by the indices of their devices. The kernel need not support VRFs: any device of that name
has an index."""

import time

import pytest
from harness import Ribtide, wait_for
from harness.sonic import Sonic

CONFIG = """
[router]
asn = 65001
router-id = "10.0.255.254"

[bgp]
listen = ["127.0.0.1:179"]

[fib]
fpm = ["127.0.0.1:2620"]
suppress-fib-pending = true
%s

[[interface]]
name = "Ethernet0"
addresses = ["193.203.0.250/24"]

[[interface]]
name = "Ethernet4"
addresses = ["10.2.0.1/24"]

[[static]]
prefix = "192.0.2.0/24"
next-hop = ["193.203.0.7"]

[vrf.Vrfred]
interfaces = ["Ethernet4"]

[[vrf.Vrfred.static]]
prefix = "192.0.2.0/24"
next-hop = ["10.2.0.17", "10.2.0.18"]

[[vrf.Vrfred.static]]
prefix = "198.51.100.0/24"
next-hop = ["10.2.0.18"]
"""


def rows(sonic):
    """ROUTE_TABLE without what is connected: key → next hops."""
    found = {}
    for key, row in sonic.routes().items():
        # A row that replaced one of another form names its empty fields too.
        if row.get("nexthop_group"):
            row = sonic.appl.hgetall(f"NEXTHOP_GROUP_TABLE:{row['nexthop_group']}")
        # A row that goes while it is read is empty.
        if row.get("nexthop", "::") not in ("0.0.0.0", "::"):
            found[key] = tuple(sorted(row["nexthop"].split(",")))
    return found


def red(sonic):
    """What the chip has of the static routes in the other virtual router."""
    chip = sonic.chip()
    default, *others = chip.routers()
    found = {}
    for other in others:
        found |= {p: to for p, to in chip.routes(other).items() if p in ("192.0.2.0/24", "198.51.100.0/24")}
    return chip.routes(default).get("192.0.2.0/24"), found


WANTED = {"192.0.2.0/24": ("193.203.0.7",), "Vrfred:192.0.2.0/24": ("10.2.0.17", "10.2.0.18"),
          "Vrfred:198.51.100.0/24": ("10.2.0.18",)}
IN_CHIP = (("193.203.0.7",), {"192.0.2.0/24": ("10.2.0.17", "10.2.0.18"), "198.51.100.0/24": ("10.2.0.18",)})


def settled(sonic, router, what):
    """Waits until the condition holds and stays so, because it may also hold before a change
    begins."""
    def once():
        try:
            return rows(sonic) == WANTED and red(sonic) == IN_CHIP
        except (AssertionError, ValueError, KeyError):
            return False  # A moment in the middle of a change, or before there is a switch.

    def holds():
        if not once():
            return False
        time.sleep(1)
        return once()
    try:
        wait_for(what, holds, 60, alive=[router.process, *sonic.alive()])
    except AssertionError as late:
        assert (rows(sonic), red(sonic)) == (WANTED, IN_CHIP), late
        raise


@pytest.mark.parametrize("groups", ["false", "true"])
def test_vrfs_through_fpm(host, groups):
    sonic = Sonic(host, suppress=True, vrfs={"Ethernet4": "Vrfred"})
    host.lan("Vrfred")
    router = Ribtide(host, CONFIG % f"fpm-next-hop-groups = {groups}")
    settled(sonic, router, "both VRFs' routes are in the chip")

    def states():
        fib = [r for vrf in ("default", "Vrfred") for r in router.show("fib", "--vrf", vrf) if r["protocol"] == "static"]
        return sorted((r["prefix"], d["state"]) for r in fib for d in r["dataplanes"])
    # Each is confirmed in its VRF, by the number of its device.
    in_place = sorted((key.removeprefix("Vrfred:"), "installed") for key in WANTED)
    wait_for("each route is confirmed", lambda: states() == in_place, 20, alive=[router.process])
    assert router.show("fpm")["clients"][0]["offload_failed"] == 0

    # fpmsyncd restarts: everything is sent again, and nothing is left over or lost.
    sonic.restart("fpmsyncd")
    wait_for("the router has connected again", lambda: router.show("fpm")["clients"][0]["connects"] == 2, alive=[router.process])
    settled(sonic, router, "the routes are as before")

    # The VRF's device is made again: another number, the same name. The new one's routes are not taken for the old one's.
    def number():
        return int(host.run("cat", "/sys/class/net/Vrfred/ifindex", mounts=True))
    before = number()
    host.ip("link", "del", "Vrfred")
    host.lan("Vrfred")
    assert number() != before
    said = router.text("reload")
    assert "VRFs added: Vrfred" in said and "VRFs removed: Vrfred" in said, said
    settled(sonic, router, "the routes are as before")

    # It goes, and takes its routes along.
    router.config.write_text(router.config.read_text().split("[vrf.Vrfred]")[0] + f'[api]\nsocket = "{router.socket}"\n')
    router.text("reload")
    wait_for("the VRF's routes are gone", lambda: rows(sonic).keys() == {"192.0.2.0/24"}, alive=[router.process])
    wait_for("the chip's too", lambda: red(sonic) == (("193.203.0.7",), {}), alive=sonic.alive())
