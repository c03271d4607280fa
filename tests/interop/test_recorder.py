"""The flight recorder of a neighbour: `show bgp neighbor X messages` and `dump messages`, read by bgpdump."""

import json
import shutil
import subprocess
import tarfile

import pytest

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, external
from harness.peers import wait_count
from harness.speaker import END_OF_RIB, Speaker, attribute, block, message, prefixes, raw_update, update

FIRST, SECOND = Host.FEEDS
CONFIG = HEAD + external("first", 65010, FIRST, 'import = ["accept"]\nexport = ["accept"]') \
    + external("second", 65011, SECOND, 'import = ["accept"]\nexport = ["accept"]')
KEEPALIVE = 4


@pytest.fixture
def router(host):
    return Ribtide(host, CONFIG)


def recorded(router, neighbor=FIRST):
    return router.show("bgp", "neighbor", neighbor, "messages")


def shown(messages):
    """Direction, kind and summary of each."""
    return [(m["direction"], m["kind"], m["summary"]) for m in messages]


def dump(host, router, path):
    """The records of a file, as bgpdump prints them."""
    subprocess.run([binary(), "dump", "messages", FIRST, str(path), "--socket", str(router.socket)], check=True, stdout=subprocess.PIPE)
    text = subprocess.run(["bgpdump", "-m", str(path)], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return [line.split("|") for line in text.splitlines()]


def test_what_was_exchanged_before_the_last_loss_survives_it(host, router, folder):
    second = Speaker(host, SECOND, 65011)
    second.send(update(["20.9.0.0/16"], [65011, 64911], "10.0.0.6") + END_OF_RIB)
    speaker = Speaker(host, FIRST, 65010)
    good = update(["20.1.0.0/16", "20.2.0.0/16", "20.3.0.0/16"], [65010, 64900], "10.0.0.5")
    speaker.send(good + message(KEEPALIVE))
    wait_count(router, 4)
    wait_for("the route of the other is sent", lambda: any(m[1] == "UPDATE" and "20.9.0.0/16" in m[2] for m in shown(recorded(router)["messages"])))
    reply = recorded(router)
    messages = shown(reply["messages"])
    assert [m[:2] for m in messages if m[1] == "OPEN"] == [("received", "OPEN"), ("sent", "OPEN")] or \
        [m[:2] for m in messages if m[1] == "OPEN"] == [("sent", "OPEN"), ("received", "OPEN")], messages
    assert ("received", "UPDATE", "announces 20.1.0.0/16 20.2.0.0/16 and 1 more by 10.0.0.5, AS path 65010 64900") in messages
    assert any(m[0] == "sent" and "announces 20.9.0.0/16" in m[2] and "AS path 65001 65011 64911" in m[2] for m in messages), messages
    assert "KEEPALIVE" not in {m[1] for m in messages} and "lost" not in reply
    by_bytes = {m["bytes"]: m for m in reply["messages"]}
    assert by_bytes[good.hex()]["length"] == len(good)
    # An ORIGIN twice as long is treated as a withdrawal; prefixes that end in the middle close the session.
    malformed = raw_update(b"", block([65010], "10.0.0.5"), bytes([24, 20, 1]))
    speaker.send(malformed)
    assert speaker.ended(10) == (3, 10)
    lost = wait_for("the session is lost", lambda: recorded(router).get("lost"))
    lost = wait_for("its reader has given back what it recorded", lambda: (r := recorded(router)["lost"]) and
                    any(m["bytes"] == malformed.hex() for m in r["messages"]) and r)
    messages = shown(lost["messages"])
    assert messages[-1][:2] == ("sent", "NOTIFICATION") and "invalid network field" in messages[-1][2], messages
    assert messages[-2][:2] == ("received", "UPDATE") and messages[-2][2].startswith("malformed: UPDATE message error"), messages
    assert good.hex() in {m["bytes"] for m in lost["messages"]}
    assert (lost["session"]["peer_asn"], lost["session"]["local_asn"]) == (65010, 65001)
    # Another session, and a whole table of it, do not push them out.
    speaker = Speaker(host, FIRST, 65010)
    for n in range(200):
        speaker.send(update([f"21.{n}.{k}.0/24" for k in range(100)], [65010, 63000 + n], "10.0.0.5"))
    wait_count(router, 1 + 200 * 100)
    reply = recorded(router)
    assert shown(reply["lost"]["messages"]) == messages
    updates = [m for m in reply["messages"] if (m["direction"], m["kind"]) == ("received", "UPDATE")]
    assert updates and updates[-1]["summary"].endswith(f"AS path 65010 {63000 + 199}")
    assert sum(m["length"] for m in updates) <= reply["recorder_bytes"] == 8192
    text = router.text("show", "bgp", "neighbor", FIRST, "messages")
    assert "Before the session was lost" in text and "The present session:" in text
    assert all(len(line) <= 80 for line in text.splitlines()), text
    detail = router.show("bgp", "neighbor", FIRST)
    assert (detail["last_down_by"], detail["last_notification"]["direction"], detail["last_notification"]["code"]) == ("local", "sent", 3)


@pytest.mark.skipif(not shutil.which("bgpdump"), reason="bgpdump is missing")
def test_dump_of_messages_is_read_by_bgpdump(host, router, folder):
    second = Speaker(host, SECOND, 65011)
    second.send(update(["20.9.0.0/16"], [65011], "10.0.0.6"))
    speaker = Speaker(host, FIRST, 65010)
    speaker.send(update(["20.1.0.0/16"], [65010, 64900], "10.0.0.5"))
    speaker.send(raw_update(withdrawn=prefixes(["20.1.0.0/16"])))
    wait_count(router, 1)
    wait_for("the route of the other is sent", lambda: any("20.9.0.0/16" in m["summary"] for m in recorded(router)["messages"]))
    path = folder / "messages.mrt"
    routes = [line for line in dump(host, router, path) if line[2] in "AW"]
    of = lambda kind, action: [(line[3], line[5]) for line in routes if (line[0], line[2]) == (kind, action)]  # noqa: E731
    assert of("BGP4MP_ET", "A") == [(FIRST, "20.1.0.0/16")] and of("BGP4MP_ET", "W") == [(FIRST, "20.1.0.0/16")]
    assert (FIRST, "20.9.0.0/16") in of("BGP4MP_ET_LOCAL", "A"), routes
    speaker.close()
    wait_for("the session is lost", lambda: recorded(router).get("lost"))
    states = wait_for("both states", lambda: [line[5:7] for line in dump(host, router, path) if line[2] == "STATE"])
    assert states == [["5", "6"], ["6", "1"]], states


def test_recorder_obeys_its_setting_by_reload(host):
    router = Ribtide(host, CONFIG.replace("[bgp]\n", "[bgp]\nrecorder-bytes = 0\n"))
    speaker = Speaker(host, FIRST, 65010)
    speaker.send(update(["20.1.0.0/16"], [65010], "10.0.0.5"))
    wait_count(router, 1)
    reply = recorded(router)
    assert reply["messages"] == [] and reply["recorder_bytes"] == 0
    assert "bgp.recorder-bytes is 0" in router.text("show", "bgp", "neighbor", FIRST, "messages")
    router.config.write_text(router.config.read_text().replace("recorder-bytes = 0\n", ""))
    router.text("reload")
    speaker.send(update(["20.2.0.0/16"], [65010], "10.0.0.5"))
    wait_count(router, 2)
    wait_for("it is recorded", lambda: [m["summary"] for m in recorded(router)["messages"]] == ["announces 20.2.0.0/16 by 10.0.0.5, AS path 65010"])
    assert not speaker.ended(0.5)


def test_bundle_of_support_has_the_messages(host, router, folder):
    speaker = Speaker(host, FIRST, 65010)
    speaker.send(update(["20.1.0.0/16"], [65010], "10.0.0.5"))
    wait_count(router, 1)
    bundle = folder / "bundle.tar.gz"
    subprocess.run([binary(), "support", str(bundle), "--socket", str(router.socket), "-c", str(router.config)], check=True,
                   stdout=subprocess.PIPE)
    with tarfile.open(bundle) as archive:
        text = archive.extractfile(f"ribtide-support/messages/{FIRST}.json").read()
    assert any("20.1.0.0/16" in m["summary"] for m in json.loads(text)["messages"])


def test_malformed_attribute_is_named_with_its_bytes(host, router):
    """The data of a NOTIFICATION is decoded where its meaning is known."""
    speaker = Speaker(host, FIRST, 65010)
    # An unknown well-known attribute.
    speaker.send(raw_update(b"", attribute(0x40, 99, b"\1\2") + block([65010], "10.0.0.5"), prefixes(["20.1.0.0/16"])))
    assert speaker.ended(10) == (3, 2)
    last = wait_for("it is known", lambda: router.show("bgp", "neighbor", FIRST).get("last_notification"))
    assert "attribute 99 with flags 40 and value 0102" in last["text"], last
