"""Routing tables as tests compare them, and where real ones come from."""

import gzip
import os
import pathlib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATA = pathlib.Path(os.environ.get("RIBTIDE_DATA", ROOT.parent / "shared" / "data"))
MRT = DATA / "mrt" / "bview.20020722.2337.gz"


class Route(NamedTuple):
    """What must agree between two speakers, apart from what the session itself changes."""

    as_path: str
    origin: str
    communities: frozenset

    def behind(self, asn):
        """The same route after `asn` has sent it to another AS."""
        return self._replace(as_path=f"{asn} {self.as_path}".strip())


def source():
    """Arguments for the tool that plays the test's table, and the tool's name: a real table, or a generated one."""
    if MRT.exists():
        return ["replay", str(MRT)]
    print(f"{MRT} is absent: a generated table of 100,000 prefixes instead")
    return ["blast", "--ipv4", "100000", "--seed", "7"]


def load_table(peer_address):
    """The table of one peer of the MRT file as an independent decoder printed it, or None where it is absent."""
    expected = DATA / "mrt" / "expected" / (MRT.name + ".bgp.gz")
    if not expected.exists():
        return None
    routes = {}
    with gzip.open(expected, "rt") as text:
        for line in text:
            f = line.rstrip("\n").split("|")
            if f[2] == "B" and f[3] == peer_address:
                communities = frozenset(c for c in f[11].split() if c)
                routes[f[5]] = Route(f[6], f[7].lower(), communities)
    return routes
