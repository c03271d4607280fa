"""Lists of any length cost the router and the command a bounded memory: a page is there at a time."""

import json
import subprocess
import time

import pytest
from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD

#: What a read holds of each IPv4 prefix for its time: the list of prefixes that are still to come.
PREFIX = 8
#: Pages: one as structs, one as text, and what allocators of several threads keep of those before.
PAGES = 10 << 20
#: The command: a page of text, and its items. It is of the whole list, not of its part.
COMMAND = 8 << 20

CONFIG = HEAD + f"""[bgp.group.feed]
type = "external"
peer-asn = 65010
passive = true
import = ["accept"]
neighbors = ["{Host.FEEDS[0]}"]
"""


def anonymous(pid):
    """Bytes of anonymous memory of a process; 0: it has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon")), 0)
    except OSError:
        return 0


def read(router):
    """`show route --json` as a program reads it: the number of lines, the first one, and how much the memory of the
    router grew, and of the command was, at most."""
    before = anonymous(router.process.popen.pid)
    command = subprocess.Popen([binary(), "show", "route", "--json", "--socket", router.socket], stdout=subprocess.PIPE)
    lines, first, peak, own, looked = 0, None, before, 0, 0
    for line in command.stdout:
        first = first or json.loads(line)
        lines += 1
        if time.monotonic() - looked > 0.01:
            looked = time.monotonic()
            peak, own = max(peak, anonymous(router.process.popen.pid)), max(own, anonymous(command.pid))
    assert command.wait() == 0
    return lines, first, peak - before, own


def compare(host, many):
    router = Ribtide(host, CONFIG)
    host.feeds.start("blast", binary(), "blast", "--ipv4", many, "--next-hops4", "193.203.0.16/28", "--to", f"{Host.FEED_SIDE}:179",
                     "--from", Host.FEEDS[0], "--asn", 65010, "--wait", 30, "--quiet", "--router-id", Host.FEEDS[0])
    wait_for("the table is there", lambda: router.count() >= many, 300, alive=[router.process])
    # The second read finds what the first has left.
    for _ in range(2):
        lines, first, grown, own = read(router)
        print(f"{many} routes: the router {grown / 1e6:.1f} MB more, the command {own / 1e6:.1f} MB")
        assert lines == many and first["paths"][0]["best"]
        assert grown < PREFIX * many + PAGES and own < COMMAND, (grown, own)


def test_list_of_100_000_routes_takes_bounded_memory(host):
    compare(host, 100_000)


@pytest.mark.long
@pytest.mark.alone
def test_list_of_1_000_000_routes_takes_under_20_mb(host):
    compare(host, 1_000_000)
