"""`/v1/events`, read by a client that is made from the OpenAPI document, and `ribtide monitor`."""

import json
import select
import socket
import subprocess

import pytest

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, external
from harness.peers import wait_count
from harness.speaker import Speaker, prefixes, raw_update, update

pytest.importorskip("jsonschema", reason="python3-jsonschema is missing")
from harness.openapi import ApiError, Client  # noqa: E402

FIRST, SECOND = Host.FEEDS
CONFIG = HEAD + external("first", 65010, FIRST, 'import = ["accept"]') + external("second", 65011, SECOND, 'import = ["accept"]')


@pytest.fixture
def router(host):
    return Ribtide(host, CONFIG)


def route(event):
    """A route event as the prefix and the neighbours before and after."""
    kind, _, data = event
    assert kind == "route", event
    return data["prefix"], data.get("from", {}).get("neighbor"), data.get("to", {}).get("neighbor")


def begun(events):
    """Reads the id with which a stream begins."""
    kind, number, _ = next(events)
    assert kind is None
    return number


def test_routes_come_as_they_change_and_as_a_client_filters_them(host, router):
    api = Client(router.socket)
    events, inside, of_second = api.events(kind="route"), api.events(kind="route", prefix="20.1.0.0/16", match="longer"), \
        api.events(kind="route", neighbor=SECOND)
    for stream in (events, inside, of_second):
        begun(stream)
    # Changes are taken from now on.
    first, second = Speaker(host, FIRST, 65010), Speaker(host, SECOND, 65011)
    first.send(update(["20.1.0.0/16"], [65010, 64900], "10.0.0.5"))
    assert route(next(events)) == ("20.1.0.0/16", None, FIRST)
    second.send(update(["20.1.0.0/16"], [65011], "10.0.0.6"))
    kind, _, data = changed = next(events)
    assert route(changed) == ("20.1.0.0/16", FIRST, SECOND)
    assert (data["to"]["next_hop"], data["to"]["as_path"], data["from"]["as_path"]) == ("10.0.0.6", "65011", "65010 64900")
    assert data["family"] == "ipv4-unicast"
    first.send(update(["20.2.0.0/16", "20.1.128.0/17"], [65010], "10.0.0.5"))
    assert {route(next(events)) for _ in range(2)} == {("20.2.0.0/16", None, FIRST), ("20.1.128.0/17", None, FIRST)}
    second.send(raw_update(prefixes(["20.1.0.0/16"])))
    assert route(next(events)) == ("20.1.0.0/16", SECOND, FIRST)
    assert [route(next(inside)) for _ in range(4)] == [
        ("20.1.0.0/16", None, FIRST), ("20.1.0.0/16", FIRST, SECOND), ("20.1.128.0/17", None, FIRST), ("20.1.0.0/16", SECOND, FIRST)]
    assert [route(next(of_second)) for _ in range(2)] == [("20.1.0.0/16", FIRST, SECOND), ("20.1.0.0/16", SECOND, FIRST)]
    # A session that ends takes its routes along.
    first.close()
    gone = {route(next(events)) for _ in range(3)}
    assert gone == {(prefix, FIRST, None) for prefix in ("20.1.0.0/16", "20.2.0.0/16", "20.1.128.0/17")}
    for wrong, why in [({"kind": "routes"}, "session,repair"), ({"family": "ipv6"}, "ipv6-unicast"), ({"match": "longer"}, "needs a prefix"),
                       ({"neighbor": "banana"}, "banana"), ({"prefix": "x"}, "prefix"), ({"level": "wran"}, "error, warn")]:
        with pytest.raises(ApiError) as refused:
            next(api.events(**wrong))
        assert refused.value.status == 400 and why in refused.value.sentence


def test_route_events_follow_a_prefix_that_an_aggregate_suppresses(host):
    """Its best path changes while it is suppressed, and a client sees it: the state that it has is that of `show route`."""
    router = Ribtide(host, CONFIG + '[[bgp.aggregate]]\nprefix = "20.0.0.0/8"\nsummary-only = true\n')
    events = Client(router.socket).events(kind="route", prefix="20.1.0.0/16", match="exact")
    begun(events)
    first, second = Speaker(host, FIRST, 65010), Speaker(host, SECOND, 65011)
    first.send(update(["20.1.0.0/16"], [65010, 64900], "10.0.0.5"))
    assert route(next(events)) == ("20.1.0.0/16", None, FIRST)
    assert router.show("route", "20.1.0.0/16")[0]["suppressed_by"] == ["20.0.0.0/8"]
    second.send(update(["20.1.0.0/16"], [65011], "10.0.0.6"))
    assert route(next(events)) == ("20.1.0.0/16", FIRST, SECOND)
    second.send(raw_update(prefixes(["20.1.0.0/16"])))
    assert route(next(events)) == ("20.1.0.0/16", SECOND, FIRST)
    first.send(raw_update(prefixes(["20.1.0.0/16"])))
    assert route(next(events)) == ("20.1.0.0/16", FIRST, None)


def test_sessions_and_changes_come_and_a_client_resumes(host, router):
    api = Client(router.socket)
    events = api.events()
    begun(events)
    speaker = Speaker(host, FIRST, 65010)
    kind, last, data = next(events)
    assert (kind, data["target"], data["fields"]["neighbor"]) == ("session", "bgp::session", FIRST)
    events.close()
    # While it is away: an event of the log, and one of a route.
    speaker.send(update(["20.1.0.0/16"], [65010], "10.0.0.5"))
    wait_count(router, 1)
    router.text("reload")
    seen = []
    for event in api.events(last=last):
        seen += [event] if event[0] else []
        if {kind for kind, *_ in seen} >= {"route", "configuration"}:
            break
    assert "lost" not in {kind for kind, *_ in seen}, seen
    assert [route(event) for event in seen if event[0] == "route"] == [("20.1.0.0/16", None, FIRST)]
    assert any("nothing has changed" in data["message"] for kind, _, data in seen if kind == "configuration")
    # After a restart nothing of before is known.
    router.stop()
    router.start()
    stream = api.events(last=last)
    begun(stream)
    lost = [next(stream) for _ in range(2)]
    assert None not in [data for *_, data in lost], lost
    assert {(kind, data["of"], data.get("events")) for kind, _, data in lost} == {("lost", "log", None), ("lost", "route", None)}
    with pytest.raises(ApiError) as refused:
        next(api.events(last="banana"))
    assert refused.value.status == 400 and "Last-Event-ID" in refused.value.sentence


def test_a_client_that_does_not_read_loses_events_with_their_number_and_stops_no_route(host, router):
    """It reads again after more changes than are kept: what it got, and what it is told to have lost, are all of them."""
    speaker = Speaker(host, FIRST, 65010)
    slow = socket.socket(socket.AF_UNIX)
    slow.connect(str(router.socket))
    slow.settimeout(60)
    slow.sendall(b"GET /v1/events?kind=route HTTP/1.1\r\nHost: ribtide\r\n\r\n")
    reader = slow.makefile("rb")
    while not reader.readline().startswith(b"id: "):
        pass
    all_prefixes = [f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24" for n in range(100_000)]
    rounds = 3
    for turn in range(rounds):
        for at in range(0, len(all_prefixes), 500):
            speaker.send(update(all_prefixes[at:at + 500], [65010, 64900 + turn], "10.0.0.5"))
    # The routes are there although the client takes none of its events.
    wait_for("all routes of the last round", lambda: router.show("route", "21.134.159.0/24")[0]["paths"][0]["as_path"].startswith(
        f"65010 {64900 + rounds - 1}"), 60)
    assert router.count() == len(all_prefixes)
    got, lost, lines = 0, 0, {}
    while got + lost < rounds * len(all_prefixes):
        line = reader.readline().decode().rstrip("\r\n")
        name, _, value = line.partition(": ")
        if name in ("event", "data"):
            lines[name] = value
        if line == "" and "data" in lines:
            if lines["event"] == "lost":
                lost += json.loads(lines["data"])["events"]
            else:
                got += 1
            lines = {}
    assert got + lost == rounds * len(all_prefixes) and lost > 0, (got, lost)
    slow.close()


def test_streams_are_limited_and_leave_room_for_other_requests(host, router):
    api = Client(router.socket)
    streams = []
    for _ in range(16):
        streams.append(api.events(kind="session"))
        begun(streams[-1])
    with pytest.raises(ApiError) as refused:
        next(api.events())
    assert refused.value.status == 503
    assert api.get_v1_bgp_summary()
    streams.pop().close()

    def free():
        try:
            stream = api.events(kind="session")
            begun(stream)
            stream.close()
            return True
        except ApiError:
            return False
    wait_for("a place is free again", free, 20)


def test_monitor_prints_routes(host, router):
    monitor = subprocess.Popen([binary(), "monitor", "--routes", "--prefix", "20.1.0.0/16", "--longer", "--socket", router.socket],
                               stdout=subprocess.PIPE, text=True)
    try:
        speaker = Speaker(host, FIRST, 65010)
        line = ""
        for turn in range(60):
            # A change before the monitor's request is none of its.
            speaker.send(update(["20.1.7.0/24", "20.9.0.0/16"], [65010, 64900 + turn], "10.0.0.5"))
            if select.select([monitor.stdout], [], [], 0.5)[0]:
                line = monitor.stdout.readline()
                break
        assert f' ROUTE 20.1.7.0/24: {FIRST} via 10.0.0.5 path "65010 649' in line, line
    finally:
        monitor.kill()
        monitor.wait()
