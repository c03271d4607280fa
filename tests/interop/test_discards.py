"""Routes of other programs that do not forward: `unreachable`, `prohibit`, `throw` and `blackhole`. No next hop resolves by
one of the first three, and no prefix that one of them holds is advertised as if it were forwarded."""

import pytest
from harness import Host, Ribtide, wait_for
from harness.config import HEAD, external
from harness.speaker import END_OF_RIB, Speaker, update
from test_kernel_repair import routes
from test_suppression import RECEIVER, Receiver

FIRST = Host.FEEDS[0]
SECOND = "198.19.0.4"
CONFIG = (HEAD + external("first", 65010, FIRST, 'import = ["accept"]\nmultihop = 2')
          + external("second", 65030, SECOND, 'import = ["accept"]\nmultihop = 2')
          + external("receiver", 65020, RECEIVER, 'export = ["accept"]')
          + "[fib]\nsuppress-fib-pending = true\nkernel = { table = 254 }\n")
PREFIX = "20.0.0.0/24"


@pytest.mark.parametrize("kind", ["unreachable", "prohibit", "throw"])
def test_lost_next_hop_over_a_default_that_does_not_forward_is_noticed(host, kind):
    """Such a default is a usual safety net."""
    host.feeds.address("feed0", f"{SECOND}/24")
    host.ip("route", "add", kind, "default", "metric", "8192")
    host.ip("route", "add", "63.0.0.0/24", "via", FIRST)
    router = Ribtide(host, CONFIG)
    first, second = Speaker(host, FIRST, 65010), Speaker(host, SECOND, 65030)
    first.send(update([PREFIX], [65010], "63.0.0.1") + END_OF_RIB)
    second.send(update([PREFIX], [65030, 65031], SECOND) + END_OF_RIB)
    wait_for("the shorter path is used", lambda: routes(host) == {PREFIX: FIRST}, 30, 0.2, alive=[router.process])
    host.ip("route", "del", "63.0.0.0/24")
    wait_for("the other path is used", lambda: routes(host) == {PREFIX: SECOND}, 30, 0.2, alive=[router.process])
    assert "does not forward" in router.text("show", "bgp", "nexthop")


@pytest.mark.parametrize("kind", ["unreachable", "prohibit", "throw", "blackhole"])
def test_prefix_that_another_program_discards_is_not_advertised(host, kind):
    router = Ribtide(host, CONFIG)
    first = Speaker(host, FIRST, 65010)
    receiver = Receiver(host, lambda told: set(told) & set(routes(host)))
    first.send(update([PREFIX], [65010], FIRST) + END_OF_RIB)
    receiver.listen(lambda: receiver.table == {PREFIX})
    host.ip("route", "add", kind, PREFIX)
    receiver.listen(lambda: not receiver.table)
    conclusion = router.text("explain", PREFIX).strip().splitlines()[-1]
    assert "packets to it are discarded" in conclusion, conclusion
    host.ip("route", "del", kind, PREFIX)
    receiver.listen(lambda: receiver.table == {PREFIX})
    wait_for("BGP's route is in the kernel", lambda: routes(host) == {PREFIX: FIRST}, 30, 0.2, alive=[router.process])
