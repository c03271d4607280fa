"""TLS of the API on TCP: Python's ssl and curl are the clients, openssl makes the certificates."""

import json
import ssl
import subprocess

import pytest

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD

PORT = 8443
ADDRESS = Host.FEED_SIDE
TOKEN = "0123456789abcdef0123456789abcdef"


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
                                      f'tls-certificate = "{self.certificate}"\ntls-key = "{self.key}"\n{more}')
        return self.router.text("reload")

    def exchange(self, request, context):
        """The head and the body of the reply, by Python's ssl, and the certificate of the router."""
        plain = self.host.feeds.connect(ADDRESS, PORT, Host.FEEDS[0])
        with context.wrap_socket(plain, server_hostname=ADDRESS) as stream:
            stream.sendall(f"{request}\r\nHost: {ADDRESS}:{PORT}\r\nConnection: close\r\n\r\n".encode())
            reply = b""
            while piece := stream.recv(65536):
                reply += piece
            certificate = stream.getpeercert()
        head, _, body = reply.decode().partition("\r\n\r\n")
        return head, body, certificate

    def context(self):
        return ssl.create_default_context(cafile=self.authority.ca)

    def ribtide(self, *args, ca=None, expect=0):
        done = self.host.feeds.run(binary(), *args, "--api", f"https://{ADDRESS}:{PORT}", "--ca", ca or self.authority.ca)
        return done


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
    # Names, tokens and pages are checked as without TLS.
    assert bench.exchange("POST /v1/reload HTTP/1.1\r\nContent-Length: 0", bench.context())[0].startswith("HTTP/1.1 401")
    head, body, _ = bench.exchange(f"POST /v1/reload HTTP/1.1\r\nContent-Length: 0\r\nAuthorization: Bearer {TOKEN}", bench.context())
    assert head.startswith("HTTP/1.1 200"), body
    assert bench.exchange("GET /v1/log HTTP/1.1", bench.context())[0].startswith("HTTP/1.1 401")
    curl = bench.host.feeds.run("curl", "-s", "--cacert", bench.authority.ca, f"https://{ADDRESS}:{PORT}/v1/bgp/summary")
    assert json.loads(curl)["asn"] == 65001
    # ribtide itself, on another host.
    shown = bench.ribtide("show", "bgp", "summary", "--json")
    assert json.loads(shown)["asn"] == 65001
    assert "is in force" in bench.ribtide("reload", "--token-file", bench.token) or "nothing has changed" in bench.ribtide(
        "reload", "--token-file", bench.token)


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
    # Without TLS from now on, and back.
    bench.router.config.write_text(bench.base + f'http = "{ADDRESS}:{PORT}"\n')
    bench.router.text("reload")
    curl = bench.host.feeds.run("curl", "-s", f"http://{ADDRESS}:{PORT}/v1/bgp/summary")
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
    assert bench.exchange("GET /v1/bgp/summary HTTP/1.1", context)[0].startswith("HTTP/1.1 200")
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
    assert done.returncode == 0 and "no TLS: the token goes over the network in clear" in done.stderr
    done = check(http + f'token-file = "{bench.token}"\n' + pair)
    assert done.returncode == 0 and "TLS" not in done.stderr
