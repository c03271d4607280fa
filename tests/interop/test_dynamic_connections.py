"""Connections from the ranges of `dynamic-neighbors`, whose neighbours are not known by name."""

import pathlib
import subprocess

from harness import Host, Ribtide, wait_for
from harness.config import HEAD, external
from harness.speaker import Speaker


def test_idle_connections_from_a_range_leave_descriptors_for_others(host):
    """Who connects from a range is not known by name: such connections without a session take a quarter of the descriptors."""
    router = Ribtide(host, HEAD + external("named", 65010, Host.FEEDS[0], 'import = ["accept"]') + """
[bgp.group.range]
type = "external"
peer-asn = "external"
passive = true
import = ["accept"]
dynamic-neighbors = ["198.19.0.128/25"]
""")
    pid = str(router.process.popen.pid)
    subprocess.run(["prlimit", "--pid", pid, "--nofile=160"], check=True)
    addresses = [f"198.19.0.{n}" for n in range(128, 250)]
    for address in addresses:
        host.feeds.address("feed0", f"{address}/24")
    idle = [host.feeds.connect(host.FEED_SIDE, 179, address) for address in addresses]
    wait_for("those beyond a quarter are refused", lambda: sum(n["state"] != "established" for n in router.show("bgp", "neighbor")) == 41,
             30, 0.2, alive=[router.process])
    # Those that were refused linger for a second.
    wait_for("most descriptors are free", lambda: len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())) < 120, 20, 0.2)
    Speaker(host, Host.FEEDS[0], 65010)
    # One of the range gets a session as soon as one that waits had its time.
    host.feeds.address("feed0", "198.19.0.251/24")
    Speaker(host, "198.19.0.251", 65011)
    for one in idle:
        one.close()
