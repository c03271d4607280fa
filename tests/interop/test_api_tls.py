"""TLS of the API on TCP: Python's ssl and curl are the clients, openssl makes the certificates."""

import json
import ssl
import subprocess
import tarfile

import pytest

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD
from harness.terminal import Terminal

PORT = 8443
ADDRESS = Host.FEED_SIDE
TOKEN = "0123456789abcdef0123456789abcdef"
READ_TOKEN = "fedcba9876543210fedcba9876543210"
READS = f"Authorization: Bearer {READ_TOKEN}"


class Authority:
    """A CA, and certificates of it."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.ca = folder / f"{name}.pem"
        self.run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / f"{name}.key", "-out", self.ca, "-days", "30",
                 "-subj", f"/CN={name}")

    def run(self, *args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)

    def issue(self, name, alternative):
        """The files of a certificate and of its key."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        self.run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        self.run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / f"{self.name}.key", "-CAcreateserial",
                 "-days", "30", "-out", certificate, "-extfile", extensions)
        return certificate, key


class Bench:
    def __init__(self, host, folder):
        self.host, self.folder = host, folder
        self.authority = Authority(folder, "authority")
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self.read_token = folder / "read-token"
        self.read_token.write_text(READ_TOKEN)
        self.read_token.chmod(0o600)
        certificate, key = self.authority.issue("first", f"IP:{ADDRESS}")
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.use(certificate, key)
        self.router = Ribtide(host, HEAD)
        self.base = self.router.config.read_text()
        self.configure()

    def use(self, certificate, key):
        self.certificate.write_bytes(certificate.read_bytes())
        self.key.write_bytes(key.read_bytes())
        self.key.chmod(0o600)

    def configure(self, more=""):
        self.router.config.write_text(self.base + f'http = "{ADDRESS}:{PORT}"\ntoken-file = "{self.token}"\n'
                                      f'read-token-file = "{self.read_token}"\n'
                                      f'tls-certificate = "{self.certificate}"\ntls-key = "{self.key}"\n{more}')
        return self.router.text("reload")

    def exchange(self, request, context, authorization=READS, name=f"{ADDRESS}:{PORT}"):
        """The head and the body of the reply, by Python's ssl, and the certificate of the router."""
        request += f"\r\n{authorization}" if authorization else ""
        plain = self.host.feeds.connect(ADDRESS, PORT, Host.FEEDS[0])
        with context.wrap_socket(plain, server_hostname=ADDRESS) as stream:
            stream.sendall(f"{request}\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            reply = b""
            while piece := stream.recv(65536):
                reply += piece
            certificate = stream.getpeercert()
        head, _, body = reply.decode().partition("\r\n\r\n")
        return head, body, certificate

    def context(self):
        return ssl.create_default_context(cafile=self.authority.ca)

    def command(self, *args):
        """A command of ribtide on another host, about this router."""
        return [binary(), *args, "--api", f"https://{ADDRESS}:{PORT}", "--ca", self.authority.ca]

    def ribtide(self, *args, token=None):
        return self.host.feeds.run(*self.command(*args), "--token-file", token or self.read_token)


@pytest.fixture
def bench(host, folder):
    return Bench(host, folder)


def test_clients_read_and_change_with_tls_and_the_token(bench):
    head, body, certificate = bench.exchange("GET /v1/bgp/summary HTTP/1.1", bench.context())
    assert head.startswith("HTTP/1.1 200") and json.loads(body)["asn"] == 65001
    assert certificate["subjectAltName"] == (("IP Address", ADDRESS),)
    # A client that does not trust the CA ends the handshake; one without TLS gets no reply.
    with pytest.raises(ssl.SSLCertVerificationError):
        bench.exchange("GET / HTTP/1.1", ssl.create_default_context())
    plain = bench.host.feeds.connect(ADDRESS, PORT, Host.FEEDS[0])
    plain.sendall(b"GET /v1/bgp/summary HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"HTTP" not in plain.recv(4096)
    plain.close()
    # Another host reads with one of the tokens, and changes with that for changes. The files of the page are no secret.
    for path in ("/v1/bgp/summary", "/metrics", "/v1/log", "/v1/openapi.json"):
        for token in (None, "Authorization: Bearer 00000000000000000000000000000000"):
            head, body, _ = bench.exchange(f"GET {path} HTTP/1.1", bench.context(), token)
            assert head.startswith("HTTP/1.1 401") and "api.read-token-file or api.token-file" in body, (path, head, body)
        for token in (READS, f"Authorization: Bearer {TOKEN}"):
            assert bench.exchange(f"GET {path} HTTP/1.1", bench.context(), token)[0].startswith("HTTP/1.1 200"), path
    assert bench.exchange("GET / HTTP/1.1", bench.context(), None)[0].startswith("HTTP/1.1 200")
    post = "POST /v1/reload HTTP/1.1\r\nContent-Length: 0"
    assert bench.exchange(post, bench.context(), None)[0].startswith("HTTP/1.1 401")
    head, body, _ = bench.exchange(post, bench.context())
    assert head.startswith("HTTP/1.1 403") and "only reads" in body, body
    head, body, _ = bench.exchange(post, bench.context(), f"Authorization: Bearer {TOKEN}")
    assert head.startswith("HTTP/1.1 200"), body
    curl = bench.host.feeds.run("curl", "-s", "--cacert", bench.authority.ca, "-H", READS, f"https://{ADDRESS}:{PORT}/v1/bgp/summary")
    assert json.loads(curl)["asn"] == 65001
    # ribtide itself, on another host.
    shown = bench.ribtide("show", "bgp", "summary", "--json")
    assert json.loads(shown)["asn"] == 65001
    said = bench.ribtide("reload", token=bench.token)
    assert "is in force" in said or "nothing has changed" in said


def test_support_and_top_ask_a_router_on_another_host(bench):
    bundle = bench.folder / "bundle.tar.gz"
    said = bench.ribtide("support", bundle)
    assert "written, without passwords and keys" in said, said
    with tarfile.open(bundle) as archive:
        files = {member.name.removeprefix("ribtide-support/"): archive.extractfile(member).read() for member in archive}
    assert json.loads(files["api/bgp-summary.json"])["asn"] == 65001 and b"ribtide_" in files["metrics.txt"]
    # This router has no FIB, which is no matter of the token.
    assert b"TCP" not in files["errors.txt"] and b"token" not in files["errors.txt"], files["errors.txt"]
    # Nothing of the host of the command, which is not that of the router.
    assert "ribtide.toml" not in files and not any(name.startswith("system/") for name in files)
    configuration = files["api/configuration.json"].decode()
    assert TOKEN not in configuration and READ_TOKEN not in configuration and "read-token-file" in configuration
    terminal = Terminal(bench.folder, "ip", "netns", "exec", bench.host.feeds.name, *bench.command("top"),
                        "--token-file", bench.read_token)
    try:
        wait_for("top shows the router", lambda: "AS 65001" in terminal.screen(), 20, alive=[bench.router.process])
    finally:
        terminal.close()
    refused = subprocess.run(["ip", "netns", "exec", bench.host.feeds.name, *bench.command("support", bench.folder / "other")],
                             capture_output=True, text=True)
    assert refused.returncode == 0 and "could not be read, errors.txt in it names them" in refused.stdout, refused


def test_foreign_host_is_refused_on_every_address(bench):
    bench.configure('http-hosts = ["router1.example.net"]\n')
    request = lambda name: bench.exchange("GET /v1/bgp/summary HTTP/1.1", bench.context(), name=name)[:2]  # noqa: E731
    for name in (ADDRESS, f"{ADDRESS}:{PORT}", "router1.example.net:80"):
        assert request(name)[0].startswith("HTTP/1.1 200"), name
    for name in ("rebound.example", f"rebound.example:{PORT}", "localhost", "127.0.0.1"):
        head, body = request(name)
        assert head.startswith("HTTP/1.1 421") and name in body and "api.http-hosts" in body, (head, body)


def test_another_certificate_is_served_after_a_reload(bench):
    certificate, key = bench.authority.issue("second", f"IP:{ADDRESS},DNS:router.example.net")
    bench.use(certificate, key)
    serial = bench.exchange("GET /v1/bgp/summary HTTP/1.1", bench.context())[2]["serialNumber"]
    text = bench.router.text("reload")
    assert "api.tls-certificate" in text, text
    after = bench.exchange("GET /v1/bgp/summary HTTP/1.1", bench.context())[2]
    assert after["serialNumber"] != serial and ("DNS", "router.example.net") in after["subjectAltName"]
    # A key of another certificate is refused, and the present one stays.
    bench.key.write_bytes(bench.authority.issue("third", f"IP:{ADDRESS}")[1].read_bytes())
    refused = subprocess.run([binary(), "reload", "--socket", bench.router.socket], capture_output=True, text=True)
    assert refused.returncode == 1 and "cannot be used together" in refused.stderr, refused.stderr
    assert bench.exchange("GET /v1/bgp/summary HTTP/1.1", bench.context())[2]["serialNumber"] == after["serialNumber"]
    # Without TLS this address is refused, and a loopback address is not.
    bench.router.config.write_text(bench.base + f'http = "{ADDRESS}:{PORT}"\n')
    refused = subprocess.run([binary(), "reload", "--socket", bench.router.socket], capture_output=True, text=True)
    assert refused.returncode == 1 and "write tls-certificate, tls-key, and token-file" in refused.stderr, refused.stderr
    assert bench.exchange("GET /v1/bgp/summary HTTP/1.1", bench.context())[0].startswith("HTTP/1.1 200")
    bench.router.config.write_text(bench.base + f'http = "127.0.0.1:{PORT}"\n')
    bench.router.text("reload")
    curl = bench.host.run("curl", "-s", f"http://127.0.0.1:{PORT}/v1/bgp/summary")
    assert json.loads(curl)["asn"] == 65001


def test_clients_need_a_certificate_where_a_ca_is_configured(bench):
    clients = Authority(bench.folder, "clients")
    bench.configure(f'tls-client-ca = "{clients.ca}"\n')

    def refused():
        try:
            return not bench.exchange("GET /v1/bgp/summary HTTP/1.1", bench.context())[0]
        except (ssl.SSLError, ConnectionResetError):
            return True
    wait_for("a client without a certificate is refused", refused, 10)
    context = bench.context()
    context.load_cert_chain(*clients.issue("client", "DNS:client.example.net"))
    # A certificate is enough for what needs no token on this host.
    assert bench.exchange("GET /v1/bgp/summary HTTP/1.1", context, None)[0].startswith("HTTP/1.1 200")
    assert bench.exchange("GET /v1/log HTTP/1.1", context, None)[0].startswith("HTTP/1.1 401")
    context = bench.context()
    context.load_cert_chain(*bench.authority.issue("other", "DNS:client.example.net"))
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        assert bench.exchange("GET /v1/bgp/summary HTTP/1.1", context)[0]
        raise ConnectionResetError


def test_wrong_files_are_refused_with_their_place(bench):
    def check(lines):
        path = bench.folder / "wrong.toml"
        path.write_text(bench.base + lines)
        return subprocess.run([binary(), "check", "-c", path], capture_output=True, text=True)
    http = f'http = "{ADDRESS}:{PORT}"\n'
    pair = f'tls-certificate = "{bench.certificate}"\ntls-key = "{bench.key}"\n'
    for lines, why in [
        (pair, "set api.http"),
        (http + f'tls-certificate = "{bench.certificate}"\n', "takes both tls-certificate and tls-key"),
        (http + pair.replace("tls.crt", "none.crt"), "cannot read"),
        (http + pair.replace(str(bench.certificate), str(bench.token)), "no certificate in PEM form"),
        (http + pair + f'tls-client-ca = "{bench.token}"\n', "no certificate in PEM form"),
    ]:
        done = check(lines)
        assert done.returncode == 1 and why in done.stderr, (lines, done.stderr)
    bench.key.chmod(0o644)
    assert "is no secret" in check(http + pair).stderr
    bench.key.chmod(0o600)
    done = check(http + f'token-file = "{bench.token}"\n')
    assert done.returncode == 1 and "has no TLS: write tls-certificate and tls-key" in done.stderr
    done = check(http + pair)
    assert done.returncode == 1 and "admits every client: write token-file or read-token-file" in done.stderr
    done = check(http + f'token-file = "{bench.token}"\n' + pair)
    assert done.returncode == 0 and "TLS" not in done.stderr
