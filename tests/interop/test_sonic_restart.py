"""ribtide is killed in front of SONiC's daemons (RFC 4724 section 4.1 over FPM): it restarts gracefully, and no route that it has
still is deleted or written on the way to the chip. Redis's notifications count writes, and the switch counts requests."""

import re
import time

import pytest
from harness import FEED_ASN, Ribtide, settled, wait_for
from harness.peers import FEEDS, wait_count
from harness.sonic import PORTS, STATE
from harness.speaker import END_OF_RIB, Speaker, update
from test_graceful_restart import capability, withdrawn
from test_restart import deferring, restart_bits
from test_sonic import ROUTER, TWO_FEEDS, check, own_routes
from test_sonic_warm import COMBINATIONS, Warm

SENDER, OTHER = FEEDS
#: Over each restart one route goes, one moves to another next hop, and one comes.
ROUTES = {f"20.{n // 256}.{n % 256}.0/24": 1 + n % 90 for n in range(4000)}
GONE, MOVED, NEW = "20.0.1.0/24", "20.0.2.0/24", "21.0.0.0/24"
#: Beside those: the keys of queues between the daemons.
QUEUED = {"ROUTE_TABLE_KEY_SET", "ROUTE_TABLE_DEL_SET"}


def config(suppress):
    """A router with a chip alone, which advertises its routes to the other feed."""
    text = TWO_FEEDS.replace("[bgp]\n", '[bgp]\ngraceful-restart = { mode = "restart" }\n')
    text = text.replace('import = ["accept"]\n', 'import = ["accept"]\nexport = ["accept"]\n')
    ports = "".join(f'[[interface]]\nname = "{p.name}"\naddresses = {p.addresses}\n'.replace("'", '"') for p in PORTS)
    return text.replace("kernel = { table = 100 }\n", f"suppress-fib-pending = {str(suppress).lower()}\n") + ports


def feed(host, routes, source=SENDER, end=True):
    speaker = Speaker(host, source, FEED_ASN, more=capability(120, forwarding=True))
    by_hop = {}
    for prefix, hop in routes.items():
        by_hop.setdefault(hop, []).append(prefix)
    for hop, texts in by_hop.items():
        for at in range(0, len(texts), 500):
            speaker.send(update(texts[at:at + 500], [FEED_ASN, 7], f"193.203.0.{hop}"))
    if end:
        speaker.send(END_OF_RIB)
    return speaker


def prefixes(keys):
    """The prefixes of keys of ROUTE_TABLE and of route entries; of other keys they are as they are."""
    found = set()
    for key in keys:
        entry = re.search(r'"dest":"([^"]*)"', key)
        found.add(entry[1] if entry else key.split("ROUTE_TABLE:")[-1])
    return found - QUEUED


@pytest.mark.parametrize("suppress", [False, True], ids=["", "suppressed"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_killed_router_deletes_what_is_gone_and_nothing_else(host, combination, warm, suppress):
    """`warm`: SONiC's tables enable warm restart of fpmsyncd, which then holds back changes, too."""
    sonic = Warm(host, combination, suppress=suppress)
    appl_db = "behind" if combination == "zmq" else "in-line"
    own = own_routes(sonic)
    if warm:
        sonic.enable()
    router = Ribtide(host, config(suppress))
    routes = dict(ROUTES)
    source, observer = feed(host, routes), feed(host, {}, OTHER)
    assert restart_bits(source) == (0, 120, 0, 0), "a first start"
    wait_count(router, len(routes), 60)
    check(sonic, router, own, appl_db)
    wait_for("initial routes are over", lambda: (host.folder / "ribtide.run").exists(), 60)
    for number, twice in enumerate((False, True)):
        sonic.heard()
        before = sonic.operations()
        router.process.kill()
        # fpmsyncd notices that its client is away.
        time.sleep(1)
        if number == 0:
            gone, moved, new = GONE, MOVED, NEW
        else:
            gone, moved, new = "20.1.1.0/24", "20.1.2.0/24", "21.0.1.0/24"
        del routes[gone]
        routes[new] = 7
        router.start()
        if twice:
            # Killed again in the middle of the first routes, which are some of those that there are.
            feed(host, {prefix: routes[prefix] for prefix in list(routes)[:1000]}, end=False)
            wait_count(router, 1000, 60)
            router.process.kill()
            router.start()
        # The other feed is there, and has sent all of its routes, before the first route comes.
        observer = feed(host, {}, OTHER)
        source = feed(host, {prefix: hop for prefix, hop in routes.items() if prefix not in (moved, new)}, end=False)
        assert restart_bits(source) == (1, 120, 1, 1), "the chip has kept its routes"
        wait_count(router, len(routes) - 2, 60)
        wait_for("only the sender is awaited", lambda: deferring(router)["awaited"] == 1, 60)
        time.sleep(2)
        # Nothing is written before the sender has sent all.
        assert prefixes(sonic.heard()) == set() and sonic.operations() == before
        assert gone in sonic.chip().routes() and moved in sonic.chip().routes()
        assert withdrawn(observer, 0.5) == []
        routes[moved] = 91
        source.send(b"".join(update([p], [FEED_ASN, 7], f"193.203.0.{routes[p]}") for p in (moved, new)) + END_OF_RIB)
        wait_for("the restart is over", lambda: deferring(router) is None, 60)
        wait_count(router, len(routes), 60)
        settled(lambda: check(sonic, router, own, appl_db), 30, 0.1)
        assert prefixes(sonic.heard()) == {gone, moved, new}
        assert sonic.operations() - before == 3
    if warm:
        assert sonic.warm_state("bgp") == "reconciled"
