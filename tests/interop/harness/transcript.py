"""The recording of SONiC's own daemons (`../shared/data/sonic/all-real-dumps`): FPM messages, and the databases after each
phase."""

import contextlib
import gzip
import json

from .host import Host
from .table import DATA

FOLDER = DATA / "sonic" / "all-real-dumps"
#: The interfaces of the recording by their indexes.
LINKS = {3: "Ethernet0", 5: "Ethernet4", 7: "Ethernet8", 9: "Ethernet12", 11: "Ethernet16", 19: "Vrf1", 21: "Loopback0"}


def recorded(name):
    with gzip.open(FOLDER / f"{name}.json.gz", "rt") as f:
        return json.load(f)


@contextlib.contextmanager
def recorded_host(folder):
    """A host that has the recording's interfaces, with other ends of no use."""
    host = Host(folder, "recorded", feeds=False)
    try:
        for index, name in LINKS.items():
            host.ip("link", "add", name, "index", index, "type", "veth", "peer", "name", f"peer{index}", "index", 1000 + index)
        yield host
    finally:
        host.close()
