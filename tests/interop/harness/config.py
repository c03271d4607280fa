"""Parts of configurations that several tests use."""

from .host import Host

#: AS 65001, where the feeds reach it.
HEAD = f"""
[router]
asn = 65001
router-id = "10.0.255.254"

[bgp]
listen = ["{Host.FEED_SIDE}:179"]
"""
#: `[fib]`'s line for the virtual ASIC, and the interface behind which every gateway of the tests is.
LAB = """
virtual-asic = { lab = true }

[[interface]]
name = "Ethernet0"
addresses = ["10.0.255.254/16"]
"""


def external(name, asn, neighbor, policy):
    """A group with one external neighbour, which connects. `policy` accepts routes."""
    return f"""
[bgp.group.{name}]
type = "external"
peer-asn = {asn}
passive = true
{policy}
neighbors = ["{neighbor}"]
"""


def stations(folder):
    """An RPKI cache and a BMP station, which need not be there, an MRT file in the folder, and an FPM server."""
    return f"""
[[rpki.cache]]
address = "127.0.0.1"
port = 8282

[bmp.station.lab]
address = "127.0.0.1"
port = 5000
views = ["loc-rib"]

[mrt.updates]
file = "{folder}/updates.%s"

[fib]
fpm = ["127.0.0.1:2620"]
"""
