"""How BGP's stages sit on threads changes no result and lets no session expire: threads for everything, for updates
alone, for shards alone, and everything on one thread."""

from harness import Host, Reflector

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
