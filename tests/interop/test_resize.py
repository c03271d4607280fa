"""A change of the number of shards, and a reload, in a running router: unrelated sessions
continue."""

import contextlib
import json
import signal
import subprocess

import pytest
from harness import Host, Reflector, binary, wait_for

SENDERS, EARLY, LATE = 4, 2, 2
TABLE = ("--ipv4", 15000, "--ipv6", 5000)
# Enough that the load outlasts the resizes; where there are none, some. The table is the same in the end.
ROUNDS, SOME = 300, 20
ENDS = ("--until-prefixes", 20000, "--until-idle", 8)


def tables(folder, shards, resizes=()):
    """The final tables of all receivers after these resizes under load; late receivers come
    after the first."""
    host = Host(folder, "h")
    try:
        reflector = Reflector(host, shards, 2, SENDERS, EARLY + LATE)
        sinks = [reflector.sink(*ENDS, receivers=EARLY)]
        blast = reflector.blast(*TABLE, "--churn", 30, "--churn-rounds", ROUNDS if resizes else SOME)
        wait_for("routes flow", lambda: reflector.router.count() > 1000)
        sinks += [] if resizes else [reflector.sink(*ENDS, first=EARLY, receivers=LATE)]
        for number in resizes:
            before = received(reflector)
            answer = json.loads(reflector.router.text("config", "bgp", "shards", number, "--json"))
            assert answer["to"] == number and answer["prefixes"] > 0, answer
            assert answer["stops"] > 1 and 0 < answer["longest_stop_seconds"] < answer["paused_seconds"], answer
            over = [answer[f"stops_over_{ms}_ms"] for ms in (10, 25, 50)]
            assert over == sorted(over, reverse=True) and over[0] <= answer["stops"] > answer["stops_without_move"], answer
            # A prefix moves with all its paths, so a stop may end with those of one more.
            assert 0 < answer["most_paths_in_a_stop"] <= (1 << 15) + SENDERS, answer
            assert reflector.threads("shard") == number
            if len(sinks) == 1:
                sinks.append(reflector.sink(*ENDS, first=EARLY, receivers=LATE))
            wait_for("UPDATEs are still coming", lambda: received(reflector) > before, alive=[blast])
        wait_for("all are up", lambda: reflector.lost() == {}, alive=[blast])
        return [table for sink in sinks for table in reflector.tables(sink, 180)]
    finally:
        host.close()


def received(reflector):
    """UPDATEs from all senders so far."""
    return sum(reflector.router.session(a)["counters"]["updates"] for a in reflector.clients[:SENDERS])


@pytest.mark.long
def test_shards_come_and_go_under_load(folder):
    still = tables(folder / "still", 2)
    assert len(still) == EARLY + LATE and still[0][0] == 20000
    resized = tables(folder / "resized", 1, (4, 2))
    assert set(resized) == set(still), (resized, still)


#: Enough that a resize takes seconds.
LARGE = ("--ipv4", 380000, "--ipv6", 20000)


@contextlib.contextmanager
def resizing(reflector, number):
    """A running `ribtide config bgp shards` that does not end at once."""
    args = [binary(), "config", "bgp", "shards", str(number), "--json", "--socket", str(reflector.router.socket)]
    before = reflector.threads("shard")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as resize:
        try:
            wait_for("new shards have started", lambda: reflector.threads("shard") != before, every=0.01)
            yield resize
        finally:
            resize.kill()


def test_resize_session_ends_meanwhile_and_second_resize_is_refused(folder):
    host = Host(folder, "h")
    try:
        reflector = Reflector(host, 1, 1, SENDERS, 0)
        router = reflector.router
        steady = reflector.steady("--ipv4", 5000, "--seed", 77)
        wait_for("the steady routes are there", lambda: router.count() == 5000, alive=[steady])
        blast = reflector.blast(*LARGE)
        wait_for("all are there", lambda: router.count() > 400000, alive=[blast])
        with resizing(reflector, 3) as resize:
            assert "just being resized" in refusal(reflector, "config", "bgp", "shards", 2, "--socket", router.socket)
            blast.kill()
            out, error = resize.communicate(timeout=300)
        assert resize.returncode == 0, error
        answer = json.loads(out)
        assert (answer["from"], answer["to"]) == (1, 3) and answer["most_paths_in_a_stop"] <= 1 << 15, answer
        wait_for("routes of the sessions that ended are gone", lambda: router.count() == 5000, alive=[steady])
        assert reflector.lost([Host.FEEDS[0]]) == {} and reflector.threads("shard") == 3
    finally:
        host.close()


def test_resize_router_is_stopped_meanwhile_and_ends(folder):
    host = Host(folder, "h")
    try:
        reflector = Reflector(host, 1, 1, SENDERS, 0)
        blast = reflector.blast(*LARGE)
        wait_for("all are there", lambda: reflector.router.count() >= 400000, alive=[blast])
        with resizing(reflector, 4) as resize:
            reflector.router.process.popen.send_signal(signal.SIGTERM)
            wait_for("the router has ended", lambda: reflector.router.process.poll() is not None, 20)
            out, error = resize.communicate(timeout=60)
        assert reflector.router.process.poll() == 0, reflector.router.process.log()
        assert "panicked" not in reflector.router.process.log(1_000_000)
        # It ended as asked before it was stopped, or says that it did not.
        assert json.loads(out)["to"] == 4 if resize.returncode == 0 else error, (out, error)
    finally:
        host.close()


def refusal(reflector, *args):
    done = subprocess.run([binary(), *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and done.stdout == "", done
    return done.stderr


def test_a_reload_touches_only_what_changed(folder):
    host = Host(folder, "h")
    try:
        reflector = Reflector(host, 1, 1, senders=2, receivers=1)
        router = reflector.router
        sink = reflector.sink()
        blast = reflector.blast("--ipv4", 2000)
        wait_for("all are up", lambda: router.count() == 2000 and reflector.lost() == {}, alive=[sink, blast])
        first = router.config.read_text()

        def reload(text):
            router.config.write_text(text)
            return json.loads(router.text("reload", "--json"))

        assert reload(first) == {"file": str(router.config), "added": [], "removed": [], "reset": [], "refreshed": []}
        second = first.replace("shards = 1", "shards = 3") + """
[bgp.group.others]
type = "external"
peer-asn = 65009
[[bgp.group.others.neighbor]]
address = "198.19.0.200"
description = "none"
"""
        answer = reload(second)
        assert (answer["shards"]["to"], answer["added"], answer["reset"]) == (3, ["198.19.0.200"], []), answer
        assert reflector.threads("shard") == 3 and router.neighbor("198.19.0.200")["description"] == "none"
        assert reload(second.replace("none", "some"))["refreshed"] == ["198.19.0.200"]
        assert reload(second.replace("peer-asn = 65009", "peer-asn = 65010"))["reset"] == ["198.19.0.200"]

        # What cannot be, changes nothing: whatever else the file says.
        router.config.write_text(first.replace("shards = 1", "shards = 0"))
        assert refusal(reflector, "reload", "--socket", router.socket) == refusal(reflector, "check", "-c", router.config)
        router.config.write_text(first.replace("asn = 65001", "asn = 65002").replace("shards = 1", "shards = 2"))
        assert "router.asn cannot change while the router runs" in refusal(reflector, "reload", "--socket", router.socket)
        assert reflector.threads("shard") == 3

        router.config.write_text(first)
        router.process.popen.send_signal(signal.SIGHUP)
        wait_for("the hangup is obeyed", lambda: reflector.threads("shard") == 1, alive=[router.process])
        wait_for("the answer is logged", lambda: "removed: 198.19.0.200" in router.process.log())
        assert reflector.lost() == {} and router.count() == 2000
    finally:
        host.close()
