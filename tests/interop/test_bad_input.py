"""What a person gets for wrong input: a sentence that says what, where and what to do, and a non-zero exit."""

import struct
import subprocess

import pytest
from harness import Ribtide, binary, wait_for

BASE = '[router]\nasn = 65001\nrouter-id = "10.0.0.1"\n'


def run(host, *args, timeout=60):
    done = subprocess.run(host.args(binary(), *args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    return done.returncode, (done.stdout + done.stderr).strip()


def config(host, text):
    path = host.folder / "bad.toml"
    path.write_text(BASE + text + f'[api]\nsocket = "{host.folder}/bad.sock"\n')
    return path


@pytest.mark.parametrize("text, place, cure", [
    ('[bgp.group.x]\ntype = "external"\nneighbours = ["10.0.0.2"]\n', ":6:1:", "did you mean `neighbors`?"),
    ('[bgp.group.x]\ntype = "external"\nneighbors = ["10.0.0.2"]\n', ":6:14:", "write peer-asn"),
    ('[bgp]\nshards = 0\n', ":5:10:", 'write "auto" or 1 to 64'),
    ('[[static]]\nprefix = "10.0.0.1/8"\nblackhole = true\n', ":5:10:", "write 10.0.0.0/8"),
    ('[bgp\n', ":4:5:", ""),
])
def test_configuration_errors_name_line_column_and_cure(host, text, place, cure):
    path = config(host, text)
    for command in ("check", "run"):
        status, says = run(host, command, "-c", path)
        assert status != 0 and f"{path}{place}" in says and cure in says, says


def test_missing_configuration(host):
    status, says = run(host, "run", "-c", "/nonexistent.toml")
    assert status != 0 and "/nonexistent.toml" in says and len(says.splitlines()) == 1, says


def test_taken_port_is_one_sentence(host):
    path = config(host, '[bgp]\nlisten = ["127.0.0.1:1179"]\n')
    holder = host.start("holder", "python3", "-c",
                        "import socket,time; s=socket.socket(); s.bind(('127.0.0.1',1179)); s.listen(); time.sleep(60)")
    wait_for("the port is taken", lambda: "1179" in host.run("ss", "-ltn"), 10)
    status, says = run(host, "run", "-c", path)
    assert status != 0 and "127.0.0.1:1179" in says and len(says.splitlines()) == 1, says
    holder.stop()


def test_refused_port_is_one_sentence(host):
    status, says = run(host, "blast", "--to", "127.0.0.1:1179", "--ipv4", "10", "--once")
    assert status != 0 and "127.0.0.1:1179" in says and len(says.splitlines()) == 1, says


@pytest.mark.parametrize("daemon", ["fpmsyncd", "orchagent", "syncd"])
def test_absent_redis_is_one_sentence(host, daemon):
    status, says = run(host, daemon)
    assert status != 0 and "redis" in says.lower() and len(says.splitlines()) == 1, says


def test_no_router_is_one_sentence(host):
    status, says = run(host, "show", "bgp", "summary", "--socket", "/nonexistent.sock")
    assert status != 0 and "no router answers at /nonexistent.sock" in says and len(says.splitlines()) == 1, says


def test_missing_capability_is_one_sentence(host):
    """Without the right to change routes, the kernel dataplane cannot work, and says so at the start."""
    path = config(host, '[fib]\nkernel = true\n')
    status, says = without_admin(host, path)
    assert status != 0 and "CAP_NET_ADMIN" in says and len(says.splitlines()) == 1, says


def without_admin(host, path):
    args = host.args("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-all", binary(), "run", "-c", str(path))
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    return done.returncode, (done.stdout + done.stderr).strip()


ROUTER = BASE + """
[bgp]
listen = ["127.0.0.1:1179"]
[bgp.group.any]
type = "external"
import = ["accept"]
dynamic-neighbors = ["127.0.0.0/8"]
"""

MARKER = b"\xff" * 16
OPEN = MARKER + struct.pack("!HBBHHIB", 29, 1, 4, 64999, 90, 0x0A000002, 0)
KEEPALIVE = MARKER + struct.pack("!HB", 19, 4)


def update(body):
    return MARKER + struct.pack("!HB", 19 + len(body), 2) + body


def attributes(*attrs):
    block = b"".join(attrs)
    return struct.pack("!H", 0) + struct.pack("!H", len(block)) + block


GOOD = attributes(b"\x40\x01\x01\x00", b"\x40\x02\x04\x02\x01\xfd\xe7", b"\x40\x03\x04\x0a\x00\x00\x02") + b"\x18\xc0\x00\x02"

MALFORMED = {
    "bad origin": (attributes(b"\x40\x01\x01\x09", b"\x40\x02\x04\x02\x01\xfd\xe7", b"\x40\x03\x04\x0a\x00\x00\x02") + b"\x18\xc0\x00\x02", True),
    "missing next hop": (attributes(b"\x40\x01\x01\x00", b"\x40\x02\x04\x02\x01\xfd\xe7") + b"\x18\xc0\x00\x02", True),
    "attribute overruns the block": (attributes(b"\x40\x01\x01\x00", b"\x40\x02\xff\x02\x01\xfd\xe7") + b"\x18\xc0\x00\x02", True),
    "prefix length 33": (GOOD[:-4] + b"\x21\xc0\x00\x02\x00\x00", False),
    "attribute block longer than the message": (struct.pack("!HH", 0, 500), False),
    "withdrawn longer than the message": (struct.pack("!H", 500), False),
}


def run_peer(host, script):
    """Runs a few lines of Python inside the host's namespace."""
    return host.run("python3", "-c", script, timeout=30)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_updates_never_crash(host, name):
    """Each gets its RFC 7606 outcome: the route is withdrawn and the session stays, or the session ends."""
    body, stays = MALFORMED[name]
    router = Ribtide(host, ROUTER)
    good, bad = update(GOOD), update(body)
    answer = run_peer(host, f"""
import socket, time
s = socket.create_connection(("127.0.0.1", 1179), source_address=("127.0.0.9", 0))
s.sendall({OPEN!r} + {KEEPALIVE!r})
s.settimeout(5)
got = b""
while got.count(bytes([255]) * 16) < 2: got += s.recv(4096)
s.sendall({good!r})
time.sleep(0.5)
s.sendall({bad!r})
time.sleep(0.5)
s.sendall({KEEPALIVE!r})
time.sleep(0.5)
s.setblocking(False)
rest = b""
try:
    while True:
        piece = s.recv(4096)
        if not piece: print("closed"); break
        rest += piece
except BlockingIOError:
    print("open")
except ConnectionResetError:
    print("closed")
print("notification" if b"\\x03" in rest[18:19] else "none")
""").split()
    assert answer[0] == ("open" if stays else "closed"), answer
    router.wait_prefixes(0, timeout=20)
    assert router.process.poll() is None, router.process.log()


def test_garbage_never_crashes(host):
    router = Ribtide(host, ROUTER)
    run_peer(host, """
import random, socket
random.seed(7)
for i in range(300):
    s = socket.create_connection(("127.0.0.1", 1179), source_address=("127.0.0.9", 0))
    try:
        s.sendall(bytes(random.randrange(256) for _ in range(random.randrange(200))))
        if i % 3 == 0: s.sendall(bytes([255]) * 16 + bytes(random.randrange(256) for _ in range(60)))
    except OSError: pass
    s.close()
""")
    assert router.process.poll() is None, router.process.log()
    assert router.show("bgp", "summary")["prefixes"] == {"ipv4": 0, "ipv6": 0}
