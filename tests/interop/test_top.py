"""`ribtide top` in a terminal of 80 columns, which is tmux's."""

import shutil
import subprocess

import pytest
from harness import FEED_ASN, Ribtide, binary, wait_for
from harness.config import HEAD, LAB
from harness.peers import FEEDS
from harness.ribtide import feed_options
from harness.terminal import Terminal

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")

ROUTES = 20_000
CONFIG = HEAD + f"""
[fib]
{LAB}
[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{FEEDS[0]}"]
"""


def test_top_shows_stages_details_and_a_prefix(host):
    router = Ribtide(host, CONFIG)
    feed = host.feeds.start("blast", binary(), "blast", "--ipv4", ROUTES, "--next-hops4", "10.0.0.0/28", *feed_options(0))
    wait_for("the chip has the routes", lambda: len(router.show("fib")) > ROUTES, 60, alive=[router.process, feed])
    terminal = Terminal(host.folder, binary(), "top", "--socket", router.socket)
    try:
        def sees(what):
            return wait_for(f"the terminal shows {what}", lambda: what in terminal.screen() and terminal.screen(), 20,
                            alive=[router.process])
        screen = sees("AS 65001")
        for stage in ("reader", "shard", "rib", "syncd"):
            line = next(line for line in screen.splitlines() if line.startswith(f"{stage} "))
            assert int(line[:54].split()[-1].replace(",", "")) >= ROUTES, line
        assert "healthy" in screen and FEEDS[0] in screen
        for key, expected in (("2", "to external peers"), ("3", "shard-0"), ("4", "10.0.0."), ("5", "readers to shard 0"), ("6", "Waited"),
                              ("7", "kroutes/s")):
            terminal.keys(key)
            sees(expected)
        terminal.keys("5")
        sees("readers to shard 0")
        terminal.keys("PageDown")
        sees("shards to RIB")
        prefix = next(route["prefix"] for route in router.show("fib") if route["protocol"] == "ebgp")
        terminal.keys("/")
        sees("Enter explains")
        terminal.keys("-l", prefix)
        terminal.keys("Enter")
        assert f"explain {prefix}" in sees("=> ")
        # A router that ends is a sentence on the screen; one that is back is seen again.
        router.process.kill()
        wait_for("the terminal says why", lambda: "no router answers at" in terminal.screen(), 20)
        router.start()
        sees("healthy")
        terminal.keys("q")
        sees("ended with 0")
    finally:
        terminal.close()


def test_top_without_a_terminal_or_a_router_is_a_sentence(tmp_path):
    piped = subprocess.run([binary(), "top"], capture_output=True, text=True, timeout=60)
    assert piped.returncode == 1 and "needs a terminal" in piped.stderr
    terminal = Terminal(tmp_path, binary(), "top", "--socket", tmp_path / "none.sock")
    try:
        wait_for("the error is shown", lambda: "no router answers at" in terminal.screen() and "ended with 1" in terminal.screen(), 20)
    finally:
        terminal.close()
