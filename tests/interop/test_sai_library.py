"""syncd with a SAI library behind SAI's C ABI: the one of crates/sai-library/tests/library, which keeps objects in memory,
compiled here."""

import pathlib
import shutil
import struct
import subprocess

import pytest
from harness import fpm, wait_for
from harness.host import CommandFailed
from harness.sonic import WITH_DATABASES, Sonic
from test_sonic import connect_fpm, ifindex, own_routes

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "crates/sai-library/tests/library"
#: sai_object_type_t
NEXT_HOP, NEXT_HOP_GROUP, ROUTE_ENTRY, GROUP_MEMBER = 4, 5, 37, 45

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


def compiled(folder, *flags, name="libsai.so"):
    """The library; its version is that of ribtide's table."""
    header = (LIBRARY.parents[1].parent / "sai/src/table.txt").read_text().split("\ns\t")[1].split("\t")
    major, minor, revision = map(int, header[:3])
    version = [] if any(flag.startswith("-DVERSION") for flag in flags) else [f"-DVERSION={10_000 * major + 100 * minor + revision}"]
    path = folder / name
    subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", path, "-I", LIBRARY, *version, *flags,
                    LIBRARY / "memory.c"], check=True)
    return path


def with_library(host, mode="redis_sync", **profile):
    """The three daemons; syncd has the library instead of the virtual switch."""
    sonic = Sonic(host, start=[], flags={"orchagent": ["-z", mode], "syncd": ["-z", mode]})
    profile = {"MEMORY_PORTS": 8, "MEMORY_COUNTS": host.folder / "counts", **profile}
    (host.folder / "sai.profile").write_text("".join(f"{key}={value}\n" for key, value in profile.items()))
    flags = sonic.flags["syncd"]
    at = flags.index("--query-socket")
    sonic.flags["syncd"] = [*flags[:at], *flags[at + 2:], "--sai-library", str(compiled(host.folder))]
    for name in ("syncd", "orchagent", "fpmsyncd"):
        sonic.start(name)
    return sonic


def counts(host):
    """The library's objects by type."""
    return struct.unpack("=256Q", (host.folder / "counts").read_bytes())


@pytest.mark.parametrize("mode", ["redis_sync", "redis_async", "zmq_sync"])
def test_routes_and_groups_reach_a_library_and_leave_it(host, mode):
    sonic = with_library(host, mode)
    own = own_routes(sonic)
    assert counts(host)[ROUTE_ENTRY] == len(own)
    assert sonic.setting("syncd", "--sai-library")["active"].endswith("/libsai.so")
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    plain = [f"20.0.{n}.0/24" for n in range(200)] + ["2001:db8::/32"]
    gateway = lambda prefix: "fd00:193::7" if ":" in prefix else "193.203.0.7"
    client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, gateway(prefix), port) for prefix in plain))
    wanted = own | {prefix: (gateway(prefix),) for prefix in plain}
    sonic.wait_routes("routes", wanted)
    assert counts(host)[ROUTE_ENTRY] == len(wanted)

    # Two groups, and a change from one to the other.
    hops = lambda *numbers: [(f"193.203.0.{n}", port, ()) for n in numbers]
    groups = [f"30.0.{n}.0/24" for n in range(50)]
    client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, hops=hops(1, 2, 3)) for prefix in groups))
    two = wanted | dict.fromkeys(groups, ("193.203.0.1", "193.203.0.2", "193.203.0.3"))
    sonic.wait_routes("routes with a group", two)
    assert counts(host)[NEXT_HOP_GROUP] == 1 and counts(host)[GROUP_MEMBER] == 3
    client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, hops=hops(2, 4)) for prefix in groups))
    sonic.wait_routes("another group", wanted | dict.fromkeys(groups, ("193.203.0.2", "193.203.0.4")))
    wait_for("the first group is gone", lambda: counts(host)[NEXT_HOP_GROUP] == 1 and counts(host)[GROUP_MEMBER] == 2, 10)

    client.send(b"".join(fpm.route(fpm.DELROUTE, prefix) for prefix in plain + groups))
    sonic.wait_routes("none", own)
    wait_for("no group is left", lambda: counts(host)[NEXT_HOP_GROUP] == counts(host)[GROUP_MEMBER] == 0, 10)
    assert counts(host)[ROUTE_ENTRY] == len(own)


def test_syncd_makes_the_objects_in_a_library_again(host):
    sonic = with_library(host)
    own = own_routes(sonic)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    plain = {f"20.0.{n}.0/24": ("193.203.0.7",) for n in range(200)}
    client.send(b"".join(fpm.route(fpm.NEWROUTE, prefix, "193.203.0.7", port) for prefix in plain))
    sonic.wait_routes("routes", own | plain)
    before = counts(host)
    sonic.restart("syncd")
    wait_for("the objects are there again", lambda: counts(host) == before, 20, alive=sonic.alive())
    client.send(fpm.route(fpm.DELROUTE, "20.0.7.0/24"))
    plain.pop("20.0.7.0/24")
    sonic.wait_routes("one is gone", own | plain)
    assert counts(host)[ROUTE_ENTRY] == len(own) + len(plain)


def test_full_table_of_a_library_is_a_refusal_of_each_further_route(host):
    sonic = with_library(host, MEMORY_ROUTES=30)
    own = own_routes(sonic)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    client.send(b"".join(fpm.route(fpm.NEWROUTE, f"20.0.{n}.0/24", "193.203.0.7", port) for n in range(100)))
    wait_for("the table is full", lambda: counts(host)[ROUTE_ENTRY] == 30, 20, alive=sonic.alive())
    sonic.wait_chip(30)
    assert len(sonic.chip().routes()) == 30 > len(own)
    # Room makes way for a route that was refused.
    gone = next(prefix for prefix in sonic.chip().routes() if prefix.startswith("20."))
    client.send(fpm.route(fpm.DELROUTE, gone))
    wait_for("another takes the place", lambda: gone not in sonic.chip().routes() and sonic.chip_routes() == 30, 30, alive=sonic.alive())


@pytest.mark.parametrize("flags, profile, sentence", [
    (["-DVERSION=11601"], {}, "implements SAI 1.16.1, and ribtide calls libraries of SAI 1."),
    (["-DWITHOUT_CAPABILITY"], {}, "has no function sai_query_attribute_capability"),
    ([], {"MEMORY_REFUSE": 1}, "refuses to initialize: sai_api_initialize returns SAI_STATUS_FAILURE"),
    (None, {}, "cannot be loaded: "),
])
def test_syncd_ends_with_a_sentence_when_a_library_does_not_work(host, flags, profile, sentence):
    sonic = Sonic(host, start=[], neighbors=False)
    path = host.folder / "absent.so" if flags is None else compiled(host.folder, *flags, name="other.so")
    (host.folder / "sai.profile").write_text("".join(f"{key}={value}\n" for key, value in profile.items()))
    with pytest.raises(CommandFailed) as ended:
        host.run("sh", "-c", WITH_DATABASES, "sh", sonic.redis.config, host.folder / "syncd", "-s", "-p",
                 host.folder / "sai.profile", "--sai-library", path, mounts=True)
    assert f"the SAI library {path} {sentence}" in str(ended.value)
