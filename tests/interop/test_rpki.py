"""Origin validation beside StayRTR, an RTR server, and BIRD, which validates the same routes against
the same payloads from the same server."""

import ipaddress
import json
import random
import re
import signal

import pytest
from harness import FEED_ASN, Bird, Gobgp, Host, Openbgpd, Ribtide, need, settled, wait_for
from harness.peers import LEFT, RIGHT, gobgp, openbgpd, ribtide, wait_count
from harness.speaker import Speaker, attribute, prefixes, raw_update
from test_api_tls import Authority

RTR = 8282
FEED = Host.FEEDS[0]
#: In the order of BIRD's numbers.
STATES = ["not-found", "valid", "invalid"]


class Stayrtr:
    """StayRTR with payloads from a file, which it reads again on SIGHUP."""

    def __init__(self, host, vrps, port=RTR, protocol=1, tls=None, aspas=None):
        need("stayrtr")
        self.host, self.port, self.protocol, self.starts, self.aspas = host, port, protocol, 0, aspas
        self.bind = ["-bind", f":{port}"]
        if tls:
            certificate, key = tls
            self.bind = ["-bind", "", "-tls.bind", f":{port}", "-tls.cert", certificate, "-tls.key", key]
        self.file = host.folder / f"vrps-{port}.json"
        self.write(vrps)
        self.start()

    def write(self, vrps):
        roas = [{"prefix": prefix, "maxLength": length, "asn": f"AS{asn}", "ta": "test"} for prefix, length, asn in vrps]
        content = {"metadata": {"buildtime": "2026-01-01T00:00:00Z"}, "roas": roas}
        if self.aspas:
            content["provider_authorizations"] = self.aspas
        self.file.write_text(json.dumps(content))

    def start(self):
        self.starts += 1
        self.process = self.host.start(
            f"stayrtr-{self.port}-{self.starts}", "stayrtr", *self.bind, "-cache", self.file, "-checktime=false", "-refresh", 3600,
            "-protocol", self.protocol, "-metrics.addr", f"127.0.0.1:{self.port + 1000}", "-loglevel", "debug")

    def update(self, vrps):
        self.write(vrps)
        self.process.popen.send_signal(signal.SIGHUP)


def config(policy, caches="", more="", neighbor=""):
    caches = caches or f'[[rpki.cache]]\naddress = "127.0.0.1"\nport = {RTR}\n'
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
import = {json.dumps(policy)}
export = ["reject"]
neighbors = ["{FEED}"]
{neighbor}
[[policy.definition.rov.statement]]
name = "invalid"
conditions.rpki = "invalid"
actions.policy-result = "reject"
[[policy.definition.rov.statement]]
conditions.rpki = "valid"
actions.set-local-pref = 200
actions.policy-result = "accept"
{more}
"""


def bird(port=RTR):
    """BIRD as a judge: it gets the payloads and has no routes."""
    return f"""
router id 10.255.0.2;
log stderr all;
protocol device {{}}
roa4 table r4;
roa6 table r6;
protocol rpki cache {{
    roa4 {{ table r4; }};
    roa6 {{ table r6; }};
    remote 127.0.0.1 port {port};
    retry keep 1; refresh keep 3600; expire keep 7200;
}}
"""


def judged(judge, prefix, asn):
    """BIRD's state; an origin NONE is 0 for BIRD, which matches nothing either."""
    table = "r6" if ":" in prefix else "r4"
    text = judge.query(f"eval roa_check({table}, {prefix}, {asn or 0})")
    # BIRD 2.0 prints the number of ROA_UNKNOWN, ROA_VALID or ROA_INVALID.
    return STATES[int(re.search(r"\(enum \w+\)(\d)", text)[1])]


def payloads_of(judge):
    """The payloads that BIRD has, as (prefix, max length, AS)."""
    text = "".join(judge.query(f"show route table {table}") for table in ("r4", "r6"))
    return {(p, int(length), int(asn)) for p, length, asn in re.findall(r"^(\S+/\d+)-(\d+) +AS(\d+)", text, re.MULTILINE)}


def payloads(router):
    lines = router.text("show", "rpki", "table", "--json").splitlines()
    return {(p["prefix"], p["max_length"], p["asn"]) for p in map(json.loads, lines)}


def random_prefix(rng, family, lengths):
    """A prefix of a small part of the address space, so that many cover others."""
    if family == 4:
        return str(ipaddress.ip_network((rng.getrandbits(8) << 16 | 10 << 24, rng.choice(lengths)), strict=False))
    return str(ipaddress.ip_network((0x20010db8 << 96 | rng.getrandbits(8) << 80, rng.choice(lengths) + 24), strict=False))


def random_vrps(rng, count):
    vrps = set()
    for _ in range(count):
        prefix = random_prefix(rng, rng.choice([4, 6]), range(8, 17))
        length = int(prefix.split("/")[1])
        vrps.add((prefix, length + rng.choice([0, 0, 1, 4]), rng.choice([0, *range(64500, 64504)])))
    return sorted(vrps)


def route(prefix, asn):
    """An UPDATE with this origin; None: the path ends in an AS_SET."""
    path = bytes([2, 1]) + FEED_ASN.to_bytes(4, "big")
    path = bytes([2, 2]) + path[2:] + asn.to_bytes(4, "big") if asn else path + bytes([1, 1]) + (64500).to_bytes(4, "big")
    attributes = attribute(0x40, 1, b"\0") + attribute(0x40, 2, path) + attribute(0x40, 3, ipaddress.ip_address(FEED).packed)
    return raw_update(b"", attributes, prefixes([prefix]))


def received(router):
    lines = router.text("show", "bgp", "neighbor", FEED, "received", "--json").splitlines()
    return {r["prefix"]: r for r in map(json.loads, lines)}


def cache(router, at=0):
    return router.show("rpki", "caches")["caches"][at]


def accepted(router):
    return {entry["prefix"]: entry["paths"][0].get("local_pref", 100) for entry in router.show("route")}


@pytest.mark.long
@pytest.mark.feature("origin validation (RFC 6811)")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("protocol", [0, 1])
def test_states_are_those_of_bird(host, protocol):
    """400 routes against 300 payloads, and against other payloads four times: every state is BIRD's, and the
    table has exactly what policy makes of that, without any message of the peer."""
    rng = random.Random(protocol + 1)
    vrps = random_vrps(rng, 300)
    server = Stayrtr(host, vrps, protocol=protocol)
    router = Ribtide(host, config(["rov", "accept"]))
    judge = Bird(host, bird())
    speaker = Speaker(host, FEED, FEED_ASN)
    routes = {random_prefix(rng, 4, range(7, 19)): rng.choice([None, *range(64500, 64504)]) for _ in range(400)}
    speaker.send(b"".join(route(prefix, asn) for prefix, asn in routes.items()))
    wait_for("all routes", lambda: len(received(router)) == len(routes))
    for turn in range(5):
        if turn:
            vrps = sorted(set(rng.sample(vrps, len(vrps) * 4 // 5)) | set(random_vrps(rng, 60)))
            server.update(vrps)
        wait_for("the payloads", lambda: payloads(router) == set(vrps) == payloads_of(judge), 30)
        expected = {prefix: judged(judge, prefix, asn) for prefix, asn in routes.items()}
        assert len(set(expected.values())) == 3
        table = {prefix: 200 if state == "valid" else 100 for prefix, state in expected.items() if state != "invalid"}
        wait_for("policy has run again", lambda: accepted(router) == table, 30)
        found = received(router)
        assert {prefix: r["validation"] for prefix, r in found.items()} == expected
        assert all(r["accepted"] == (r["validation"] != "invalid") for r in found.values())
        states = {entry["prefix"]: entry["paths"][0]["validation"] for entry in router.show("route")}
        assert states == {prefix: expected[prefix] for prefix in table}
        # Both families, also where there is no route.
        for _ in range(100):
            prefix, asn = random_prefix(rng, rng.choice([4, 6]), range(7, 19)), rng.choice([0, *range(64500, 64505)])
            state = router.show("rpki", "validation", prefix, asn)["state"]
            assert state == judged(judge, prefix, asn), (prefix, asn)
    session = router.session(FEED)
    assert session["messages_sent"]["route_refresh"] == 0 and session["counters"]["announced"] <= len(routes)
    assert session["counters"]["evaluated_again"] > 0
    assert cache(router)["version"] == protocol and cache(router)["serial"] is not None


#: The cache as a daemon's setting.
CACHES = {"gobgp": f'[[rpki-servers]]\n  [rpki-servers.config]\n    address = "{LEFT.four}"\n    port = {RTR}\n',
          "openbgpd": f"rtr {LEFT.four} {{\n  port {RTR}\n}}\n"}


@pytest.mark.feature("origin validation (RFC 6811)")
@pytest.mark.parametrize("kind", CACHES)
def test_states_are_those_of_a_neighbour(pair, kind):
    """GoBGP and OpenBGPD get our routes and validate them against the same cache, before and after its payloads change."""
    rng = random.Random(kind)
    vrps = random_vrps(rng, 100)
    server = Stayrtr(pair.a, vrps)
    ours = Ribtide(pair.a, ribtide(LEFT) + f'[[rpki.cache]]\naddress = "127.0.0.1"\nport = {RTR}\n')
    if kind == "gobgp":
        other = Gobgp(pair.b, gobgp(RIGHT) + CACHES[kind])
    else:
        other = Openbgpd(pair.b, CACHES[kind] + openbgpd(RIGHT))
    routes = {random_prefix(rng, 4, range(7, 19)): rng.choice(range(64500, 64504)) for _ in range(200)}
    speaker = Speaker(pair.a, FEED, FEED_ASN)
    speaker.send(b"".join(route(prefix, asn) for prefix, asn in routes.items()))
    wait_count(other, len(routes))

    def theirs():
        if kind == "openbgpd":
            return {at["prefix"]: at["ovs"] for at in json.loads(other.query("-j", "show", "rib", "detail"))["rib"]}
        names = {"V": "valid", "I": "invalid", "N": "not-found"}
        return {prefix: names[state] for state, prefix in re.findall(r"^([VIN])\*>\s*(\S+)", other.query("global", "rib", "-a", "ipv4"), re.MULTILINE)}

    def same():
        mine = {entry["prefix"]: entry["paths"][0]["validation"] for entry in ours.show("route")}
        assert set(mine.values()) == set(STATES) and theirs() == mine
        return mine
    before = settled(same, 20)
    server.update(sorted(set(rng.sample(vrps, 80)) | set(random_vrps(rng, 20))))
    wait_for("states change", lambda: {e["prefix"]: e["paths"][0]["validation"] for e in ours.show("route")} != before, 20)
    settled(same, 20)


def test_explain_names_the_state_and_the_statement(host):
    Stayrtr(host, [("10.0.0.0/8", 8, 64500)])
    router = Ribtide(host, config(["rov", "accept"]))
    wait_for("the payload", lambda: payloads(router))
    speaker = Speaker(host, FEED, FEED_ASN)
    speaker.send(route("10.0.0.0/8", 64500) + route("10.1.0.0/16", 64500))
    wait_for("the routes", lambda: len(received(router)) == 2)
    wait_for("the valid one", lambda: accepted(router) == {"10.0.0.0/8": 200})
    assert "its origin is valid (RPKI)" in router.explain("10.0.0.0/8")["stages"][0]["messages"]
    [message] = router.explain("10.1.0.0/16")["stages"][0]["messages"]
    assert message == f'{FEED} announces it (invalid), and import policy rejects it: rov, statement "invalid": rpki invalid holds; rejected'
    text = router.text("show", "rpki", "validation", "10.1.0.0/16", "7")
    assert "does not match: the prefix is longer than 8, the origin is AS 7" in text


def test_a_lost_cache_and_a_restarted_one(host):
    """Records stay while the cache is away, and a restarted one, which knows nothing of the serial number before, replaces
    them when its answer is complete."""
    server = Stayrtr(host, [("10.0.0.0/8", 8, 64500)])
    router = Ribtide(host, config(["rov", "accept"]))
    wait_for("a payload", lambda: len(payloads(router)) == 1)
    server.update([("10.0.0.0/8", 8, 64500), ("11.0.0.0/8", 8, 64500)])
    wait_for("the payloads", lambda: len(payloads(router)) == 2)
    speaker = Speaker(host, FEED, FEED_ASN)
    speaker.send(route("10.0.0.0/8", 64501) + route("11.0.0.0/8", 64500))
    wait_for("one route", lambda: accepted(router) == {"11.0.0.0/8": 200})
    assert cache(router)["serial"] == 1
    server.process.kill()
    wait_for("the loss", lambda: cache(router).get("last_error"))
    assert (cache(router)["in_use"], accepted(router)) == (True, {"11.0.0.0/8": 200})
    assert not router.show("rpki", "caches")["degraded"]
    server.write([("10.0.0.0/8", 8, 64501)])
    server.start()
    wait_for("the new records", lambda: payloads(router) == {("10.0.0.0/8", 8, 64501)}, 20)
    wait_for("the routes", lambda: accepted(router) == {"10.0.0.0/8": 200, "11.0.0.0/8": 100})
    assert cache(router)["serial"] == 0
    metrics = router.call("GET", "/metrics")
    assert f'ribtide_rpki_cache_up{{cache="127.0.0.1:{RTR}"}} 1' in metrics
    assert 'ribtide_rpki_payloads{family="ipv4"} 1' in metrics and "ribtide_rpki_degraded 0" in metrics


def test_reload_of_caches_exceptions_and_policy(host):
    """Preference, SLURM and another policy by reload; none of them sends a ROUTE-REFRESH."""
    Stayrtr(host, [("10.0.0.0/8", 8, 64500)])
    Stayrtr(host, [("11.0.0.0/8", 8, 64500)], port=RTR + 1)
    both = "".join(f'[[rpki.cache]]\naddress = "127.0.0.1"\nport = {RTR + n}\npreference = {{}}\n' for n in (0, 1))
    slurm = host.folder / "slurm.json"
    router = Ribtide(host, config(["rov", "accept"], both.format(1, 2)))
    wait_for("both caches", lambda: all(c["records"]["ipv4"] == 1 for c in router.show("rpki", "caches")["caches"]))
    speaker = Speaker(host, FEED, FEED_ASN)
    speaker.send(route("10.0.0.0/8", 1) + route("11.0.0.0/8", 1) + route("12.0.0.0/8", 1))
    wait_for("all but one", lambda: set(accepted(router)) == {"11.0.0.0/8", "12.0.0.0/8"})

    def reload(*args, **more):
        router.config.write_text(config(*args, **more) + f'\n[api]\nsocket = "{router.socket}"\n')
        return router.text("reload")

    assert "other RPKI caches or local exceptions" in reload(["rov", "accept"], both.format(1, 1))
    wait_for("joined", lambda: set(accepted(router)) == {"12.0.0.0/8"})
    slurm.write_text(json.dumps({
        "slurmVersion": 1,
        "validationOutputFilters": {"prefixFilters": [{"prefix": "10.0.0.0/8"}], "bgpsecFilters": []},
        "locallyAddedAssertions": {"prefixAssertions": [{"asn": 1, "prefix": "12.0.0.0/8"}], "bgpsecAssertions": []}}))
    reload(["rov", "accept"], '[rpki]\nslurm = "slurm.json"\n' + both.format(1, 1))
    wait_for("the exceptions", lambda: accepted(router) == {"10.0.0.0/8": 100, "12.0.0.0/8": 200})
    assert router.show("rpki", "caches")["assertions"] == 1
    # Another policy for routes that are kept, and back.
    reload(["accept"], both.format(1, 1), neighbor="keep-received = true")
    wait_for("every route", lambda: set(accepted(router).values()) == {100} and len(accepted(router)) == 3)
    assert router.established(FEED) and router.session(FEED)["messages_sent"]["route_refresh"] == 0
    assert router.neighbor(FEED)["flaps"] == 0


def tls_cache(more, port=RTR):
    return f'[[rpki.cache]]\naddress = "127.0.0.1"\nport = {port}\n{more}\n'


def test_rtr_over_tls(host):
    """The cache is used if a CA of ours issued its certificate for its name, and not otherwise. Other TLS settings begin
    another connection, and the records last."""
    authority, other = Authority(host.folder, "authority"), Authority(host.folder, "other")
    server = Stayrtr(host, [("10.0.0.0/8", 8, 64500)], tls=authority.issue("cache", "IP:127.0.0.1,DNS:rtr.example"))
    router = Ribtide(host, config(["rov", "accept"], tls_cache(f'tls-ca = "{other.ca}"')))
    wait_for("the certificate is of no CA of ours", lambda: "UnknownIssuer" in (cache(router).get("last_error") or ""))
    assert not payloads(router) and cache(router)["tls"] and not cache(router)["in_use"]

    def reload(more):
        router.config.write_text(config(["rov", "accept"], tls_cache(more)) + f'\n[api]\nsocket = "{router.socket}"\n')
        return router.text("reload")

    reload(f'tls-ca = "{authority.ca}"\ntls-name = "rtr2.example"')
    wait_for("the name is another", lambda: "not valid for name" in (cache(router).get("last_error") or ""))
    assert not payloads(router)
    reload(f'tls-ca = "{authority.ca}"\ntls-name = "rtr.example"')
    wait_for("the payload", lambda: payloads(router) == {("10.0.0.0/8", 8, 64500)})
    assert "TLS" in router.text("show", "rpki", "caches")
    server.update([("10.0.0.0/8", 8, 64500), ("11.0.0.0/8", 8, 64500)])
    wait_for("a change", lambda: len(payloads(router)) == 2)
    # By address, and with a certificate of ours, which StayRTR does not ask for.
    certificate, key = authority.issue("router", "DNS:router.example")
    key.chmod(0o600)
    before = cache(router)["connects"]
    reload(f'tls-ca = "{authority.ca}"\ntls-certificate = "{certificate}"\ntls-key = "{key}"')
    assert len(payloads(router)) == 2
    wait_for("another connection", lambda: cache(router)["connects"] == before + 1 and cache(router)["state"] == "idle")
    assert len(payloads(router)) == 2 and cache(router)["serial"] == 1
    # A cache without TLS: the handshake fails, and the records stay in use.
    server.process.kill()
    server.bind = ["-bind", f":{RTR}"]
    server.start()
    wait_for("a failure", lambda: cache(router).get("last_error"))
    assert len(payloads(router)) == 2 and cache(router)["in_use"]
    reload("")
    wait_for("without TLS", lambda: cache(router)["state"] == "idle" and not cache(router)["tls"], 60)


def test_rtr_over_tls_with_a_certificate_of_the_router(host):
    """A cache that authenticates routers, as section 9.2 has it: openssl asks for a certificate of its CA."""
    authority = Authority(host.folder, "authority")
    certificate, key = authority.issue("cache", "IP:127.0.0.1")
    openssl = host.start("openssl", "openssl", "s_server", "-accept", str(RTR), "-cert", certificate, "-key", key, "-CAfile", authority.ca,
                         "-Verify", "1", "-verify_return_error", "-naccept", "100", "-quiet", "-rev")
    router = Ribtide(host, config(["rov", "accept"], tls_cache(f'tls-ca = "{authority.ca}"')))
    wait_for("the cache wants a certificate", lambda: "alert" in (cache(router).get("last_error") or "").lower()
             or "closed" in (cache(router).get("last_error") or ""), alive=[openssl])
    assert cache(router)["state"] != "querying"
    certificate, key = authority.issue("router", "DNS:router.example")
    key.chmod(0o600)
    more = f'tls-ca = "{authority.ca}"\ntls-certificate = "{certificate}"\ntls-key = "{key}"'
    router.config.write_text(config(["rov", "accept"], tls_cache(more)) + f'\n[api]\nsocket = "{router.socket}"\n')
    router.text("reload")
    wait_for("it takes ours, and the query is sent", lambda: cache(router)["state"] == "querying", alive=[openssl])
