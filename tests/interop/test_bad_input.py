"""Invalid input. A user gets a sentence that says what is wrong, where and what to do, and a
non-zero exit. A neighbour gets the RFC 7606 outcome, from a router that stays up."""

import contextlib
import json
import random
import re
import struct
import subprocess
import tomllib

import pytest
from harness import FEED_ASN, Ribtide, binary, feed_options, wait_for
from harness.ribtide import ROOT
from harness.peers import FEEDS, LEFT, ribtide, wait_count
from harness.speaker import MARKER, UPDATE, Speaker, attribute, block, message, prefixes, raw_update, update

BASE = '[router]\nasn = 65001\nrouter-id = "10.0.0.1"\n'


def run(host, *args, timeout=60):
    """The exit status and the output."""
    done = subprocess.run(host.args(*args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    return done.returncode, (done.stdout + done.stderr).strip()


def one_sentence(outcome, *parts):
    """Checks a failure with one line that has all of `parts`."""
    status, says = outcome
    assert status not in (0, 101, 134, -6, -11) and len(says.splitlines()) == 1 and all(p in says for p in parts), (status, says)
    assert "panicked" not in says and "Error {" not in says and "Os {" not in says, says


def config(host, text):
    path = host.folder / "bad.toml"
    path.write_text(BASE + text + f'[api]\nsocket = "{host.folder}/bad.sock"\n')
    return path


@pytest.mark.parametrize("text, place, cure", [
    ('[bgp.group.x]\ntype = "external"\nneighbours = ["10.0.0.2"]\n', ":6:1:", "did you mean `neighbors`?"),
    ('[bgp.group.x]\ntype = "external"\nneighbors = ["10.0.0.2"]\n', ":6:14:", "write peer-asn"),
    ('[bgp]\nshards = 0\n', ":5:10:", 'write "auto", "off" or 1 to 64'),
    ('[[static]]\nprefix = "10.0.0.1/8"\nblackhole = true\n', ":5:10:", "write 10.0.0.0/8"),
    ('[fib]\nkernel = { table = 255 }\n', ":5:20:", "write 254"),
    ('[bgp\n', ":4:5:", ""),
])
def test_configuration_errors_name_line_column_and_cure(host, text, place, cure):
    path = config(host, text)
    for command in ("check", "run"):
        status, says = run(host, binary(), command, "-c", path)
        assert status != 0 and f"{path}{place}" in says and cure in says, says


def test_a_good_configuration_passes_the_check(host):
    status, says = run(host, binary(), "check", "-c", config(host, '[bgp]\nlisten = ["127.0.0.1:1179"]\n'))
    assert status == 0 and "valid" in says, says


def test_cpus_that_this_machine_lacks_fail_the_check_as_they_fail_the_start(host):
    path = config(host, '[bgp]\nlisten = ["127.0.0.1:1179"]\ncpus = "1000"\n')
    for command in ("check", "run"):
        status, says = run(host, binary(), command, "-c", path)
        assert status != 0 and "bgp.cpus cannot be obeyed" in says and "1000" in says, (command, says)


def test_schema_and_check_agree_on_the_shape_of_a_configuration(host):
    jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is not installed (scripts/setup test installs it)")
    status, says = run(host, binary(), "schema")
    assert status == 0
    schema = jsonschema.Draft202012Validator(json.loads(says))
    schema.check_schema(schema.schema)
    # The documentation's examples are right for both.
    shown = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/configuration.md").read_text(), re.M | re.S)
    shown += ['[bgp]\nshards = 3\nupdate-threads = "off"\n', '[fib]\nkernel = { table = 100, source = ["10.0.0.1"] }\n',
              '[fib]\nvirtual-asic = { lab = true, chip = { rate = 1000, fail-rate = 0.01 } }\n']
    assert len(shown) > 6
    for text in shown:
        schema.validate(tomllib.loads(BASE + text))
    for text in ('[bgp.group.x]\ntype = "external"\nneighbours = []\n', "[bgp]\nmultipath = true\n", '[fib]\nkernel = "yes"\n',
                 '[[static]]\nblackhole = true\n', '[bgp.group.x]\ntype = "between"\n', '[policy.definition.p]\nstatements = []\n'):
        assert not schema.is_valid(tomllib.loads(BASE + text)), text
        assert run(host, binary(), "check", "-c", config(host, text))[0] != 0, text


def test_missing_configuration(host):
    one_sentence(run(host, binary(), "run", "-c", "/nonexistent.toml"), "/nonexistent.toml")


def test_taken_port(host):
    path = config(host, '[bgp]\nlisten = ["127.0.0.1:1179"]\n')
    with host.inside():
        import socket
        holder = socket.create_server(("127.0.0.1", 1179))
    with holder:
        one_sentence(run(host, binary(), "run", "-c", path), "127.0.0.1:1179")


@pytest.mark.parametrize("tool", [["blast", "--ipv4", "10", "--once"], ["sink", "--until-prefixes", "1"]])
def test_refused_port(host, tool):
    one_sentence(run(host, binary(), *tool, "--to", "127.0.0.1:1179"), "127.0.0.1:1179")


def test_missing_file_to_replay(host):
    one_sentence(run(host, binary(), "replay", "/nonexistent.mrt"), "/nonexistent.mrt")


@pytest.mark.parametrize("daemon, flags", [("fpmsyncd", []), ("orchagent", ["-s"]), ("syncd", ["-s"])])
def test_absent_redis(host, daemon, flags):
    databases = host.folder / "database_config.json"
    databases.write_text(f"""{{
        "INSTANCES": {{"redis": {{"hostname": "127.0.0.1", "port": 6379, "unix_socket_path": "{host.folder}/redis.sock"}}}},
        "DATABASES": {{{", ".join(f'"{n}": {{"id": {i}, "separator": "{s}", "instance": "redis"}}' for n, i, s in [
            ("APPL_DB", 0, ":"), ("ASIC_DB", 1, ":"), ("COUNTERS_DB", 2, ":"), ("CONFIG_DB", 4, "|"), ("STATE_DB", 6, "|"),
            ("APPL_STATE_DB", 14, ":")])}}},
        "VERSION": "1.0"}}""")
    one_sentence(run(host, binary(), daemon, *flags, "--database-config", databases), "Redis")


def test_no_router(host):
    one_sentence(run(host, binary(), "show", "bgp", "summary", "--socket", "/nonexistent.sock"),
                 "no router answers at /nonexistent.sock")


def test_missing_capability(host):
    """Without the capability to change routes the kernel dataplane refuses to start with a
    sentence."""
    path = config(host, '[fib]\nkernel = true\n')
    one_sentence(run(host, "setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-all", binary(), "run", "-c", path),
                 "CAP_NET_ADMIN")


def test_a_port_below_1024_without_the_capability_for_it(host):
    path = config(host, '[bgp]\nlisten = ["127.0.0.1:179"]\n')
    (host.folder / "bad.sock").unlink(missing_ok=True)
    host.run("sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=1024")
    one_sentence(run(host, "setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-all", binary(), "run", "-c", path),
                 "127.0.0.1:179")


# A neighbour sends the rest. Type, flags and length of each attribute are RFC 4271's unless they are the fault.

HOP = "193.203.0.1"
GOOD = block([FEED_ASN], HOP)
ORIGIN, PATH, NEXT_HOP = attribute(0x40, 1, b"\0"), attribute(0x40, 2, b"\x02\x01" + FEED_ASN.to_bytes(4, "big")), \
    attribute(0x40, 3, bytes([193, 203, 0, 1]))
NLRI = prefixes(["192.0.2.0/24"])

#: The UPDATE, and the session's end as (code, subcode), or None where the route counts as withdrawn (RFC 7606) and the
#: session stays.
MALFORMED = {
    "undefined origin": (raw_update(b"", attribute(0x40, 1, b"\x09") + PATH + NEXT_HOP, NLRI), None),
    "origin of two bytes": (raw_update(b"", attribute(0x40, 1, b"\0\0") + PATH + NEXT_HOP, NLRI), None),
    "origin with the optional flag": (raw_update(b"", attribute(0xC0, 1, b"\0") + PATH + NEXT_HOP, NLRI), None),
    "no next hop": (raw_update(b"", ORIGIN + PATH, NLRI), None),
    "next hop of three bytes": (raw_update(b"", ORIGIN + PATH + attribute(0x40, 3, b"\x0a\0\0"), NLRI), None),
    "path segment beyond its attribute": (raw_update(b"", ORIGIN + attribute(0x40, 2, b"\x02\x05\0\0\0\1") + NEXT_HOP, NLRI), None),
    "attribute beyond the block": (raw_update(b"", ORIGIN + PATH + NEXT_HOP + b"\xc0\x08\xff\0", NLRI), None),
    "communities of five bytes": (raw_update(b"", GOOD + attribute(0xC0, 8, b"\0\1\0\2\3"), NLRI), None),
    "prefix of 33 bits": (raw_update(b"", GOOD, b"\x21\xc0\0\2\0\0"), (3, 10)),
    "prefix beyond the message": (raw_update(b"", GOOD, b"\x20\xc0\0"), (3, 10)),
    "attribute block beyond the message": (message(UPDATE, struct.pack("!HH", 0, 500)), (3, 1)),
    "withdrawn routes beyond the message": (message(UPDATE, struct.pack("!HH", 500, 0)), (3, 1)),
    "unknown well-known attribute": (raw_update(b"", GOOD + attribute(0x40, 99, b"x"), NLRI), (3, 2)),
    "NEXT_HOP twice is kept once": (raw_update(b"", GOOD + NEXT_HOP, NLRI), "kept"),
    "message of an unknown type": (message(77), (1, 3)),
    "message too short": (MARKER + struct.pack("!HB", 18, 4), (1, 2)),
    "message too long": (MARKER + struct.pack("!HB", 65000, 2), (1, 2)),
    "broken marker": (b"\0" * 16 + struct.pack("!HB", 19, 4), (1, 1)),
}


@pytest.fixture
def router(host):
    # Any neighbour of the feeds' link may come: one that made an error is not welcome again at once.
    return Ribtide(host, ribtide(LEFT).replace(f'neighbors = ["{FEEDS[0]}", "{FEEDS[1]}"]', 'dynamic-neighbors = ["198.19.0.0/24"]'))


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_messages(router, name):
    data, outcome = MALFORMED[name]
    with established(router) as speaker:
        speaker.send(update(["192.0.2.0/24"], [FEED_ASN], HOP))
        wait_count(router, 1, 20)
        speaker.send(data)
        if outcome in (None, "kept"):
            assert speaker.ended() is None
            wait_count(router, 1 if outcome else 0, 20)
            # The session works as before.
            speaker.send(update(["198.51.100.0/24", "192.0.2.0/24"], [FEED_ASN], HOP))
            wait_count(router, 2, 20)
        else:
            assert speaker.ended(5) == outcome
    wait_count(router, 0, 20)
    assert router.process.poll() is None, router.process.log()


@contextlib.contextmanager
def established(router, source=FEEDS[0]):
    """A session, which is gone afterwards."""
    speaker = Speaker(router.host, source, FEED_ASN)
    try:
        yield speaker
    finally:
        speaker.close()
        wait_for("the neighbour is gone", lambda: not any(n.get("session") for n in router.show("bgp", "summary")["neighbors"]),
                 20, alive=[router.process])


def test_file_to_replay_that_is_no_mrt(router):
    path = router.host.folder / "table.mrt"
    path.write_bytes(random.Random(7).randbytes(4000))
    one_sentence(run(router.host.feeds, binary(), "replay", path, *feed_options(0)), str(path))


def test_garbage(router):
    """Bytes without sense, before and after OPEN, and connections that end in the middle."""
    rng = random.Random(7)
    for i in range(200):
        connection = router.host.feeds.connect(router.host.FEED_SIDE, 179, FEEDS[0])
        try:
            connection.sendall(rng.randbytes(rng.randrange(200)))
            if i % 3 == 0:
                connection.sendall(MARKER + rng.randbytes(60))
        except OSError:
            pass  # The router may have hung up by now.
        connection.close()
    sources = [f"198.19.0.{16 + i}" for i in range(30)]
    router.host.feeds.address("feed0", *(f"{source}/24" for source in sources))
    for i, source in enumerate(sources):
        body = bytearray(block([FEED_ASN, 65001 + i, 7], HOP, attribute(0xC0, 8, rng.randbytes(8))))
        for _ in range(1 + i % 4):
            body[rng.randrange(len(body))] = rng.randrange(256)
        with established(router, source) as speaker:
            speaker.send(raw_update(b"", bytes(body), NLRI))
            speaker.send(message(UPDATE, rng.randbytes(rng.randrange(80))))
    assert router.process.poll() is None, router.process.log()
    wait_count(router, 0, 20)
