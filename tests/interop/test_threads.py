"""The placement of BGP's stages on threads changes no result and lets no session expire: threads
for everything, for updates alone, for shards alone, and one thread."""

import time

import pytest
from harness import Host, Reflector, wait_for

THREADS = {
    "threads": ("3", "2"),
    "update-threads": ('"off"', "2"),
    "shards": ("3", '"off"'),
    "one-thread": ('"off"', '"off"'),
}


def table_of(folder, shards, updates):
    """What the receivers of a reflector with these threads hold after announcements and churn."""
    host = Host(folder, "h")
    try:
        reflector = Reflector(host, shards, updates, senders=4, receivers=3)
        sink = reflector.sink("--until-prefixes", 20000, "--until-idle", 3)
        reflector.blast("--ipv4", 15000, "--ipv6", 5000, "--churn", 20, "--churn-rounds", 3)
        tables = reflector.tables(sink, 120)
        rings = {r["name"] for r in reflector.router.show("pipeline")["rings"]}
        assert {"readers to shard 0", "shards to worker 0", "workers to sessions", "requests to shard 0"} <= rings
        names = {t["name"] for t in reflector.router.show("pipeline")["threads"]}
        assert ("shard-0" in names, "reader-0" in names, "egress-0" in names) == (
            shards != '"off"', shards != '"off"', updates != '"off"')
        return tables
    finally:
        host.close()


def test_the_threads_change_no_result(folder):
    tables = {name: table_of(folder / name, *threads) for name, threads in THREADS.items()}
    assert tables["threads"][0][0] == 20000
    # Every receiver, whatever the threads, holds the same.
    assert len({table for held in tables.values() for table in held}) == 1, tables


#: What stays when the load is gone.
STEADY = ["--ipv4", 30000, "--ipv6", 10000, "--seed", 11]


def calm_table(folder):
    """What a receiver holds of the steady sender where nothing else happens."""
    host = Host(folder, "h")
    try:
        reflector = Reflector(host, 1, 1, senders=0, receivers=1)
        sink = reflector.sink("--until-prefixes", 40000, "--until-idle", 2)
        reflector.steady(*STEADY)
        return reflector.tables(sink, 120)[0]
    finally:
        host.close()


@pytest.mark.alone
@pytest.mark.parametrize("threads", [('"auto"', '"auto"'), ('"off"', '"off"')], ids=["auto", "one-thread"])
def test_no_session_expires_under_full_load(folder, threads):
    """Ten senders change a fifth of 200,000 prefixes repeatedly, for twenty receivers, with a
    hold time of 3 s: a router that always lags loses no session, and in the end its receivers
    have the right tables."""
    calm = calm_table(folder / "calm")
    assert calm[0] == 40000
    host = Host(folder, "h")
    try:
        # To keep a table costs a receiver more than the router spends on it: most do not, so that the router is the
        # one that has most to do.
        reflector = Reflector(host, *threads, senders=10, receivers=20, hold=3)
        sink = reflector.sink("--until-prefixes", 40000, "--until-idle", 8, receivers=2)
        others = reflector.sink(first=2, receivers=18, table=False)
        steady = reflector.steady(*STEADY)
        # More rounds than there is time for: it changes routes for as long as the test lets it.
        load = reflector.blast("--ipv4", 200000, "--churn", 20, "--churn-rounds", 10000)
        tools, count = [reflector.router.process, steady, load, sink, others], 1 + 10 + 20

        def all_here():
            summary = reflector.router.show("bgp", "summary")["neighbors"]
            return len(summary) == count and not reflector.lost()
        wait_for("all sessions are established", all_here, 60, alive=tools)
        end = time.monotonic() + 18
        while time.monotonic() < end:
            assert not reflector.lost()
            assert all(tool.poll() is None for tool in tools), "it should go on until it is stopped"
            time.sleep(1)

        def all_told():
            return all(n["session"]["sent"]["updates"] for n in reflector.router.show("bgp", "summary")["neighbors"])
        wait_for("every receiver got an UPDATE, also those that came under load", all_told, 60, alive=tools)
        load.stop()
        wait_for("the load is gone", lambda: len(reflector.router.show("bgp", "summary")["neighbors"]) == 21, 60, alive=tools[:2])
        assert not reflector.lost(reflector.clients[10:])
        assert set(reflector.tables(sink, 120)) == {calm}
    finally:
        host.close()
