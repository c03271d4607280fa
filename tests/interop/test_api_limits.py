"""The API under clients that idle, and under pages of a browser: BGP and the command line go on, and a page of another
site neither reads nor changes the router."""

import contextlib
import http.client
import json
import pathlib
import socket
import subprocess
import time

import pytest
from harness import FEED_ASN, TIMEOUT_FACTOR, Host, Ribtide, binary, wait_for
from harness.config import HEAD
from harness.peers import FEEDS
from harness.speaker import Speaker, update

PORT = 8080
#: The limit of open files, and more idle connections than would fit.
DESCRIPTORS, IDLE = 120, 100
CONFIG = HEAD + f"""
[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{FEEDS[0]}", "{FEEDS[1]}"]
"""


class Served(Ribtide):
    """A router whose API listens on TCP too, with more settings of `[api]`, and a limit of open files."""

    def __init__(self, host, address, api="", descriptors=None):
        self.address, self.descriptors = address, descriptors
        self.api = f'http = "{address}:{PORT}"\n{api}'
        super().__init__(host, CONFIG)

    def start(self):
        self.config.write_text(self.config.read_text() + self.api)
        limit = ["prlimit", f"--nofile={self.descriptors}"] if self.descriptors else []
        self.process = self.host.start(self.name, *limit, binary(), "run", "-c", self.config)
        wait_for(f"{self.name} answers", lambda: self.show("bgp", "summary"), 20, alive=[self.process])

    def request(self, client_host, method="GET", path="/v1/bgp/summary", body=None, **headers):
        """Status and JSON of a reply to a request from inside `client_host`, with exactly these headers."""
        with client_host.inside():
            client = http.client.HTTPConnection(self.address, PORT, timeout=30)
            client.connect()
        client.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        body = b"" if body is None else json.dumps(body).encode()
        if method == "POST":
            headers = {"content_length": len(body), "content_type": "application/json"} | headers
        for name, value in headers.items():
            client.putheader(name.replace("_", "-"), value)
        client.endheaders(body)
        reply = client.getresponse()
        return reply.status, json.loads(reply.read())


def idle_on_tcp(router):
    return [router.host.connect(router.address, PORT) for _ in range(IDLE)]


def idle_on_unix(router):
    return [unix_client(router) for _ in range(IDLE)]


@pytest.mark.parametrize("idle", [idle_on_tcp, idle_on_unix])
def test_idle_clients_leave_room_for_sessions_and_the_command_line(host, idle):
    router = Served(host, "127.0.0.1", descriptors=DESCRIPTORS)
    clients = idle(router)
    with Session(host, FEEDS[0]) as first, Session(host, FEEDS[1]):
        first.send(update(["192.0.2.0/24"], [FEED_ASN], FEEDS[0]))
        wait_for("the route is there", lambda: router.count() == 1, 20, alive=[router.process])
        assert router.show("bgp", "summary")["established"] == 2
        # A client of the listener that the idle ones fill is served too.
        assert router.request(host, host="127.0.0.1")[0] == 200
    for client in clients:
        client.close()


class Session(Speaker):
    """A session that ends with its block."""

    def __init__(self, host, source):
        super().__init__(host, source, FEED_ASN)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def test_commands_go_on_without_file_descriptors(host):
    """The limit falls below what is open, so the kernel gives the process no further descriptor of its own."""
    router = Served(host, "127.0.0.1")
    used = sorted(int(entry.name) for entry in pathlib.Path(f"/proc/{router.process.popen.pid}/fd").iterdir())
    subprocess.run(["prlimit", "--pid", str(router.process.popen.pid), f"--nofile={max(used) + 1}"], check=True)
    # What is free below the limit goes to clients that stay, and those of the reserve to two more.
    free = max(used) + 1 - len(used)
    stay = [unix_client(router) for _ in range(free + 2)]
    for client in stay:
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
    begin = time.monotonic()
    refused = subprocess.run([binary(), "show", "bgp", "summary", "--socket", router.socket], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "no file descriptors left" in refused.stderr, refused.stderr
    assert time.monotonic() - begin < 5 * TIMEOUT_FACTOR
    stay.pop().close()
    # One of the reserve is free again.
    for _ in range(5):
        wait_for("a command has its answer", lambda: answered(router), 10, alive=[router.process])
    for client in stay:
        client.close()
    wait_for("the last command has its answer", lambda: answered(router), 10, alive=[router.process])


def answered(router):
    """Whether a command has its answer. The connection of the one before may still have the last descriptor."""
    with contextlib.suppress(subprocess.CalledProcessError):
        return router.show("bgp", "summary")
    return None


def unix_client(router):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(str(router.socket))
    return client


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: 127", b"POST /v1/reload HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_client_that_sends_no_request_is_disconnected(host, sent):
    router = Served(host, "127.0.0.1")
    client = host.connect("127.0.0.1", PORT, timeout=120)
    client.sendall(sent)
    # The end comes, rather than a timeout.
    assert client.recv(1 << 16) == b"" or client.recv(1 << 16) == b""
    client.close()
    assert router.show("bgp", "summary")


def test_request_whose_body_does_not_come_is_refused(host):
    router = Served(host, "127.0.0.1", "")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(120)
        client.connect(str(router.socket))
        client.sendall(b"POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 400 ")


def test_page_of_another_site_neither_reads_nor_changes(host):
    token = host.folder / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    router = Served(host, "127.0.0.1", f'token-file = "{token}"\n')
    send = {"authorization": "Bearer 0123456789abcdef", "host": f"127.0.0.1:{PORT}"}
    assert router.request(host, "POST", "/v1/reload", **send)[0] == 200
    for page in ({"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"}, {"origin": "null"}):
        for method, path in (("GET", "/v1/bgp/summary"), ("GET", "/v1/route-check"), ("POST", "/v1/reload")):
            status, reply = router.request(host, method, path, **send, **page)
            assert status == 403 and "a page of" in reply["error"], (page, method, reply)
    # The names of an address of the listener are not taken for a change either.
    status, reply = router.request(host, "POST", "/v1/reload", **(send | {"host": "rebound.example"}))
    assert status == 421, reply
