"""AS paths verified with ASPA records (draft-ietf-sidrops-aspa-verification) from a cache of RTR version 2
(draft-ietf-sidrops-8210bis), which the test plays; the expected states are worked out here, by the draft's text."""

import contextlib
import ipaddress
import json
import random
import socket
import struct
import subprocess
import threading

import pytest
from harness import FEED_ASN, Host, Ribtide, binary, wait_for
from harness.speaker import Speaker, block, prefixes, raw_update
from test_rpki import Stayrtr, payloads

RTR = 8282
#: As rpki-client wrote them for StayRTR 0.5.
AUTHORIZATIONS = {
    "ipv4": [{"customer_asid": 65010, "providers": [65002, 65001]}, {"customer_asid": 65011, "providers": [65001]}],
    "ipv6": [{"customer_asid": 65010, "providers": [65001, 65003]}],
}
FEED = Host.FEEDS[0]


class Cache:
    """An RTR cache of versions up to `version`. It answers a Reset Query with all records, and a Serial Query of an older
    serial number with Cache Reset."""

    def __init__(self, host, aspas, version=2):
        self.aspas, self.version, self.serial, self.versions = aspas, version, 1, []
        self.clients = []
        with host.inside():
            self.listener = socket.create_server(("127.0.0.1", RTR))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.clients.append(client)
            threading.Thread(target=self.serve, args=[client], daemon=True).start()

    def serve(self, client):
        try:
            while True:
                version, kind, _, length = struct.unpack("!BBHI", self.read(client, 8))
                body = self.read(client, length - 8)
                if kind == 10:
                    return
                self.versions.append(version)
                if version > self.version:
                    report = struct.pack("!II", 0, 0)
                    client.sendall(struct.pack("!BBHI", self.version, 10, 4, 8 + len(report)) + report)
                    return client.close()
                if kind == 1 and struct.unpack("!I", body)[0] != self.serial:
                    client.sendall(struct.pack("!BBHI", version, 8, 0, 8))
                    continue
                answer = struct.pack("!BBHI", version, 3, 7, 8)
                if kind == 2:
                    answer += self.records(version)
                end = struct.pack("!I", self.serial) + (struct.pack("!III", 3600, 600, 7200) if version else b"")
                client.sendall(answer + struct.pack("!BBHI", version, 7, 7, 8 + len(end)) + end)
        except OSError:
            pass

    def records(self, version):
        payload = struct.pack("!BBBB4sI", 1, 8, 8, 0, ipaddress.ip_address("203.0.0.0").packed, 64500)
        records = struct.pack("!BBHI", version, 4, 0, 20) + payload
        for customer, providers in sorted(self.aspas.items()) if version > 1 else []:
            numbers = struct.pack(f"!{1 + len(providers)}I", customer, *sorted(providers))
            records += struct.pack("!BBBBI", version, 11, 1, 0, 8 + len(numbers)) + numbers
        return records

    @staticmethod
    def read(client, size):
        data = b""
        while len(data) < size:
            piece = client.recv(size - len(data))
            if not piece:
                raise OSError("closed")
            data += piece
        return data

    def update(self, aspas):
        """Other records, and a Serial Notify about them."""
        self.aspas, self.serial = aspas, self.serial + 1
        for client in self.clients:
            try:
                client.sendall(struct.pack("!BBHII", self.version, 0, 7, 12, self.serial))
            except OSError:
                pass

    def close(self):
        # Without shutdown a socket stays open while a thread waits for it.
        for waiting in [self.listener, *self.clients]:
            with contextlib.suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)
            waiting.close()


def state(aspas, path, first, downstream):
    """The state of a path, its neighbour first, as sections 5.4 and 5.5 say; positions count from 1 at the origin."""
    if path[0] != first:
        return "invalid"
    hops = [asn for n, asn in enumerate(reversed(path)) if n == 0 or asn != path[len(path) - n]]

    def authorized(customer, provider):
        if customer not in aspas:
            return "no attestation"
        return "provider" if provider in aspas[customer] and provider else "not provider"

    count = len(hops)
    up = [authorized(hops[i], hops[i + 1]) for i in range(count - 1)]
    if not downstream:
        return "invalid" if "not provider" in up else "unknown" if "no attestation" in up else "valid"
    if count <= 2:
        return "valid"
    down = [authorized(hops[i + 1], hops[i]) for i in reversed(range(count - 1))]

    def ramp(words, breaks):
        return next((i + 1 for i, word in enumerate(words) if word in breaks), count)
    if ramp(up, ["not provider"]) + ramp(down, ["not provider"]) < count:
        return "invalid"
    maybe = ["not provider", "no attestation"]
    return "unknown" if ramp(up, maybe) + ramp(down, maybe) < count else "valid"


def config(role, caches=f'[[rpki.cache]]\naddress = "127.0.0.1"\nport = {RTR}\n'):
    return f"""
[router]
asn = 65001
router-id = "10.255.0.1"
[bgp]
listen = ["[::]:179"]
{caches}
[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
role = "{role}"
enforce-first-as = false
import = ["paths", "accept"]
export = ["reject"]
neighbors = ["{FEED}"]
[[policy.definition.paths.statement]]
name = "leaks"
conditions.aspa = "invalid"
actions.policy-result = "reject"
[[policy.definition.paths.statement]]
conditions.aspa = "valid"
actions.set-local-pref = 200
actions.policy-result = "accept"
"""


def accepted(router):
    return {entry["prefix"]: entry["paths"][0].get("local_pref", 100) for entry in router.show("route")}


def received(router):
    lines = router.text("show", "bgp", "neighbor", FEED, "received", "--json").splitlines()
    return {r["prefix"]: r for r in map(json.loads, lines)}


def records(router):
    lines = router.text("show", "rpki", "aspa", "--json").splitlines()
    return {r["customer"]: set(r["providers"]) for r in map(json.loads, lines)}


def random_records(rng, asns):
    return {customer: set(rng.sample(asns, rng.randrange(1, 4))) if rng.random() < 0.9 else {0}
            for customer in rng.sample(asns, 6)}


def check(host, role, downstream, seed):
    rng = random.Random(seed)
    asns = [FEED_ASN, *range(64500, 64508)]
    aspas = random_records(rng, asns)
    cache = Cache(host, aspas)
    router = Ribtide(host, config(role))
    speaker = Speaker(host, FEED, FEED_ASN)
    paths = {}
    for n in range(150):
        path = [FEED_ASN, *rng.choices(asns, k=rng.randrange(5))]
        if rng.random() < 0.05:
            path[0] = 64500
        paths[f"20.0.{n}.0/24"] = path
        speaker.send(raw_update(b"", block(path, FEED), prefixes([f"20.0.{n}.0/24"])))
    wait_for("all routes", lambda: len(received(router)) == len(paths), alive=[router.process])
    for turn in range(4):
        if turn:
            aspas = random_records(rng, asns)
            cache.update(aspas)
        wait_for("the records", lambda: records(router) == aspas, 30)
        expected = {prefix: state(aspas, path, FEED_ASN, downstream) for prefix, path in paths.items()}
        assert len(set(expected.values())) == 3
        table = {prefix: 200 if state == "valid" else 100 for prefix, state in expected.items() if state != "invalid"}
        wait_for("policy has run again", lambda: accepted(router) == table, 30)
        assert {prefix: r["aspa"] for prefix, r in received(router).items()} == expected
    session = router.session(FEED)
    assert session["messages_sent"]["route_refresh"] == 0
    assert 0 < session["counters"]["evaluated_again"] < 3 * len(paths), "only routes with another state"
    assert router.show("rpki", "caches")["caches"][0]["version"] == 2
    messages = router.explain(next(p for p, s in expected.items() if s == "invalid"))["stages"][0]["messages"]
    assert messages[-1].endswith('paths, statement "leaks": aspa invalid holds; rejected')
    cache.close()


def test_paths_of_a_customer(host):
    check(host, "provider", downstream=False, seed=1)


def test_paths_of_a_provider(host):
    check(host, "customer", downstream=True, seed=2)


def test_versions_are_negotiated_downwards(host):
    """A cache of version 0 gets queries of the versions 2, 1 and 0, and its payloads are used."""
    cache = Cache(host, {FEED_ASN: {0}}, version=0)
    router = Ribtide(host, config("provider"))
    wait_for("the payload", lambda: router.show("rpki", "caches")["payloads"]["ipv4"] == 1, alive=[router.process])
    assert cache.versions[0] == 2 and cache.versions[-1] == 0
    assert router.show("rpki", "caches")["caches"][0]["version"] == 0 and records(router) == {}
    cache.close()


def health(router):
    done = subprocess.run([binary(), "show", "health", "--json", "--socket", router.socket], capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_health_names_a_cache_that_is_away(host):
    """A cache that cannot be reached degrades the router, with what becomes of its records; exit status 1."""
    cache = Cache(host, {FEED_ASN: {64500}})
    router = Ribtide(host, config("provider"))
    wait_for("the record", lambda: records(router), alive=[router.process])
    assert health(router) == (0, {"state": "ok", "stalls": []}, "")
    cache.close()
    wait_for("the loss", lambda: health(router)[0] == 1)
    status, found, sentence = health(router)
    [fault] = found["faults"]
    assert found["state"] == "degraded" and fault["what"] == f"RPKI cache 127.0.0.1:{RTR}"
    assert "its records are used for" in fault["why"]
    assert f"degraded: data is missing of RPKI cache 127.0.0.1:{RTR}" in sentence
    assert f"router: RPKI cache 127.0.0.1:{RTR}: " in subprocess.run(
        [binary(), "show", "health", "--socket", router.socket], capture_output=True, text=True, timeout=60).stdout
    # Without any records the state is another, and a cache that answers again ends it.
    router.process.stop()
    router.start()
    wait_for("nothing is there", lambda: any("no cache has records" in f["why"] for f in health(router)[1].get("faults", [])))
    Cache(host, {FEED_ASN: {64500}})
    wait_for("the router is well", lambda: health(router)[0] == 0, 60)


@pytest.mark.parametrize("protocol", [1, 2])
def test_stayrtr_with_the_pdus_of_former_drafts(host, protocol):
    """StayRTR 0.5 sends an ASPA record for each family, as drafts up to 11 had it."""
    server = Stayrtr(host, [("203.0.0.0/8", 8, 64500)], port=RTR, protocol=protocol, aspas=AUTHORIZATIONS)
    router = Ribtide(host, config("customer"))
    wait_for("the payload", lambda: payloads(router), alive=[router.process])
    expected = {65010: [65001, 65002, 65003], 65011: [65001]} if protocol == 2 else {}

    def records():
        lines = router.text("show", "rpki", "aspa", "--json").splitlines()
        return {record["customer"]: record["providers"] for record in map(json.loads, lines)}

    wait_for("the records of both families", lambda: records() == expected, 20)
    server.aspas = {"ipv4": [], "ipv6": AUTHORIZATIONS["ipv6"]}
    server.update([("203.0.0.0/8", 8, 64500)])
    left = {65010: [65001, 65003]} if protocol == 2 else {}
    wait_for("those that are left", lambda: records() == left, 20)
    assert router.show("rpki", "caches")["caches"][0].get("last_error") is None
