"""MRT files (RFC 6396, RFC 8050): the table that GoBGP and a second ribtide make of a dump is the router's; files of updates
have the bytes that neighbours sent, and the records of FRR's bgpd of the same feed; a full disk stops nothing."""

import gzip
import json
import pathlib
import re
import subprocess

import pytest
from harness import FEED_ASN, NOT_SHOWN, Bird, Frr, Gobgp, Host, Openbgpd, Ribtide, Route, agree, binary, blast, feed_options, need, wait_for
from harness import mrt, wire
from harness.peers import LEFT, RIGHT, bird, openbgpd, ribtide, start, wait_count
from harness.table import as_path
from harness.speaker import END_OF_RIB, NOTIFICATION, Speaker, attribute, block, communities, message, prefixes, raw_update, update

ASN = 65001
FIRST, SECOND = "198.19.0.11", "198.19.0.12"
ASNS = {FIRST: 65101, SECOND: 4_200_000_001}


def config(more="", neighbor_more="", families=("ipv4-unicast",)):
    groups = "".join(f"""
[bgp.group.g{n}]
type = "external"
peer-asn = {asn}
passive = true
families = {json.dumps(families)}
import = ["accept"]
export = ["reject"]
neighbors = ["{address}"]
{neighbor_more}
""" for n, (address, asn) in enumerate(ASNS.items()))
    return f"""
[router]
asn = {ASN}
router-id = "{Host.FEED_SIDE}"
[bgp]
listen = ["{Host.FEED_SIDE}:179"]
shards = 3
{groups}
{more}
"""


def addresses(host):
    for address in ASNS:
        host.feeds.address("feed0", f"{address}/24")


def files(folder, name):
    """Complete files, in order."""
    return sorted(path for path in pathlib.Path(folder).glob(f"{name}*") if path.suffix != ".tmp")


@pytest.mark.feature("MRT table dumps (RFC 6396, RFC 8050)")
@pytest.mark.peers("gobgp")
def test_a_dump_is_the_table_in_gobgp_and_in_a_second_router(host, folder):
    """A made-up table of both families: GoBGP and ribtide that read the dump have the router's best paths. GoBGP reads
    IPv4 only: it takes the short MP_REACH_NLRI of RFC 6396 section 4.3.4, which FRR writes too, for the long one."""
    text = f"""
[router]
asn = {ASN}
router-id = "{Host.FEED_SIDE}"
[bgp]
listen = ["{Host.FEED_SIDE}:179"]
[bgp.group.feeds]
type = "external"
peer-asn = 1853
passive = true
import = ["accept"]
export = ["reject"]
neighbors = ["{Host.FEEDS[1]}"]
"""
    router = Ribtide(host, text)
    blast(host, ipv4=3000, ipv6=1000)
    wait_for("the table is there", lambda: router.count() == 4000)
    path = folder / "dump.mrt"
    assert re.fullmatch(rf"{path}: 4,000 prefixes, 4,000 paths\n", router.text("dump", "mrt", path))
    assert json.loads(router.text("dump", "mrt", path, "--json"))["paths"] == 4000
    peers, tables = mrt.table(path)
    assert peers == [(Host.FEED_SIDE, "0.0.0.0", ASN), (Host.FEEDS[1], Host.FEEDS[1], 1853)]
    assert {prefix for prefix, _ in tables[Host.FEEDS[1]]} == router.table().keys()
    gobgp = Gobgp(host, f'[global.config]\n  as = {ASN}\n  router-id = "10.9.9.9"\n  port = -1\n')
    def injected():
        # Its command may end before all was sent, each time at another place.
        gobgp.query("mrt", "inject", "global", path, "--no-ipv6")
        return 0 < gobgp.count() <= 3000
    wait_for("GoBGP reads the dump", injected)
    four = {prefix: route for prefix, route in router.table().items() if ":" not in prefix}
    read = gobgp.table()
    agree({prefix: route._replace(aggregator="", atomic=False) for prefix, route in read.items()},
          {prefix: route for prefix, route in four.items() if prefix in read})
    # Our own player of MRT files.
    second = Ribtide(host.feeds, text.replace(Host.FEED_SIDE, Host.FEEDS[0]).replace(Host.FEEDS[1], Host.FEED_SIDE), "second")
    host.start("replay", binary(), "replay", path, "--to", f"{Host.FEEDS[0]}:179", "--from", Host.FEED_SIDE, "--asn", 1853,
               "--wait", 30, "--quiet", "--router-id", Host.FEEDS[1])
    wait_for("the second router has all", lambda: second.count() == 4000)
    agree(second.table(), router.table())


@pytest.mark.feature("MRT table dumps (RFC 6396, RFC 8050)")
@pytest.mark.peers("openbgpd")
def test_a_dump_is_the_table_for_bgpctl(host, folder):
    """OpenBGPD's bgpctl reads the dump, of both families."""
    need("bgpctl")
    router = Ribtide(host, config(families=("ipv4-unicast", "ipv6-unicast")).replace(FIRST, Host.FEEDS[1]).replace(
        f"peer-asn = {ASNS[FIRST]}", "peer-asn = 1853"))
    blast(host, ipv4=500, ipv6=200)
    wait_for("the table is there", lambda: router.count() == 700)
    path = folder / "dump.mrt"
    router.text("dump", "mrt", path)
    read = {}
    for entry in host.run("bgpctl", "show", "mrt", "detail", "file", path).split("BGP routing table entry for ")[1:]:
        prefix, route = entry.split("\n", 1)
        hop, neighbor = re.search(r"Nexthop (\S+) .* Neighbor (\S+)", route).groups()
        origin, metric = re.search(r"Origin (\w+), metric (\d+)", route).groups()
        marks = {name: found.split() for name, found in re.findall(r"^    ([\w ]*Communities): (.*)", route, re.MULTILINE)}
        assert neighbor == Host.FEEDS[1]
        read[prefix] = Route(as_path(route.splitlines()[0]), origin.lower(), hop, int(metric), 100,
                             frozenset(Openbgpd.KNOWN.get(c, c) for c in marks.get("Communities", [])),
                             frozenset(marks.get("Large Communities", [])))
    agree(read, router.table(), NOT_SHOWN)


@pytest.mark.feature("MRT table dumps (RFC 6396, RFC 8050)")
@pytest.mark.parametrize("kind", ["bird", "frr"])
def test_a_dump_of_another_is_replayed(pair, folder, kind):
    """BIRD's and FRR's dumps of a feed's table, of both families, played into ribtide."""
    other = start(kind, pair.b, RIGHT)
    blast(pair.b, ipv4=500, ipv6=200)
    wait_count(other, 700)
    if kind == "bird":
        paths = [folder / f"{table}.mrt" for table in ("master4", "master6")]
        for path in paths:
            other.query(f'mrt dump table "{path.stem}" to "{path}"')
    else:
        paths = [folder / "dump.mrt"]
        other.configure(f"dump bgp routes-mrt {paths[0]}")
    # It appears when it is begun.
    complete = lambda: sum(len(table) for path in paths for table in mrt.table(path)[1].values()) == 700  # noqa: E731
    wait_for("the dump is there", complete, 20)
    # Without a session with the other.
    router = Ribtide(pair.a, ribtide(LEFT).split("[bgp.group.link]")[0])
    for number, path in enumerate(paths):
        pair.a.feeds.start(f"replay{number}", binary(), "replay", path, *feed_options(number))
    wait_count(router, 700)
    agree(other.table(), router.table(), NOT_SHOWN)


def test_a_dump_has_all_paths_with_their_identifiers_and_originated_routes(host, folder):
    """Two neighbours, one with path identifiers, and a network of the router's own; dumps on schedule, compressed."""
    addresses(host)
    pattern = folder / "new" / "rib.%Y%m%d.%H%M%S.gz"
    router = Ribtide(host, config(
        f'[bgp.originate]\nnetworks = ["203.0.113.0/24"]\n[mrt.table]\nfile = "{pattern}"\ninterval = 3\ncompression = "gzip"\n',
        "add-path = { receive = true }"))
    plain = Speaker(host, FIRST, ASNS[FIRST])
    several = Speaker(host, SECOND, ASNS[SECOND], more=bytes([69, 4, 0, 1, 1, 2]))
    expected = {FIRST: {}, SECOND: {}, "0.0.0.0": None}
    def send(speaker, address, route, med):
        prefix, identifier = route
        at = block([ASNS[address], 64512], address, attribute(0x80, 4, med.to_bytes(4, "big")), communities([(65000, med)]))
        one = (b"" if identifier is None else identifier.to_bytes(4, "big")) + prefixes([prefix])
        speaker.send(raw_update(b"", at, one))
        expected[address][route] = wire.decode(raw_update(b"", at, one)[19:], {1} if identifier is not None else ())[2]
    for n in range(30):
        send(plain, FIRST, (f"10.{n}.0.0/16", None), n)
        for identifier in range(n % 4):
            send(several, SECOND, (f"10.{n}.0.0/16", identifier), n)
    def look():
        for path in reversed(files(folder / "new", "rib.")):
            peers, tables = mrt.table(path)
            originated = tables.get("0.0.0.0", {}).keys() == {("203.0.113.0/24", None)}
            if originated and all(tables.get(address) == table for address, table in expected.items() if table is not None):
                return peers, tables
        return None
    peers, tables = wait_for("a dump has all paths", look)
    assert {(peer[1], peer[2]) for peer in peers} == {("0.0.0.0", ASN), *ASNS.items()}
    [series] = router.show("mrt")["series"]
    assert series["name"] == "table" and series["files"] >= 1 and series["failures"] == 0 and "error" not in series
    # gzip reads the written bytes.
    assert gzip.open(series["last"]).read(4)


@pytest.mark.feature("MRT updates (RFC 6396)")
@pytest.mark.peers("frr")
def test_updates_are_what_neighbours_sent_and_what_frr_records(pair, folder):
    """Each UPDATE byte by byte in the order in which it came, in files of one second; sessions begin and end; FRR's
    bgpd records the same of the same feed."""
    for host in (pair.a, pair.b):
        addresses(host)
    pattern = folder / "updates.%s"
    router = Ribtide(pair.a, config(f'[mrt.updates]\nfile = "{pattern}"\ninterval = 1\n'))
    log = folder / "frr"
    log.mkdir()
    log.chmod(0o777)
    neighbors = "".join(f" neighbor {a} remote-as {asn}\n neighbor {a} passive\n" for a, asn in ASNS.items())
    Frr(pair.b, bgpd=f"hostname bgpd\ndump bgp all-et {log}/updates\nrouter bgp {ASN}\n bgp router-id {Host.FEED_SIDE}\n"
                     f" no bgp ebgp-requires-policy\n{neighbors}")
    sent = {}
    for address, asn in ASNS.items():
        speakers = [Speaker(host, address, asn) for host in (pair.a, pair.b)]
        updates = [update([f"10.{n}.0.0/16", f"10.{n}.128.0/17"], [asn], address) for n in range(50)]
        updates += [raw_update(withdrawn=prefixes(["10.1.0.0/16"])), END_OF_RIB]
        # A malformed one is recorded as it came: ORIGIN has a wrong length. FRR would end the session.
        malformed = raw_update(b"", attribute(0x40, 1, b"\0\0") + block([asn], address)[4:], prefixes(["10.0.0.0/16"]))
        for speaker, first in zip(speakers, ([malformed], [])):
            speaker.send(b"".join(first + updates))
        sent[address] = [malformed, *updates]
        if address == SECOND:
            for speaker in speakers:
                speaker.send(message(NOTIFICATION, bytes([6, 2])))
    def recorded(paths):
        """Peer → messages, and peer → states."""
        messages, states = {}, {}
        times = {}
        for path in paths:
            for time, (peer, asn), (local, ours), what in mrt.updates(path):
                # FRR writes no local address of a session that is not up, and 16 bits of AS numbers then.
                assert ours == ASN and asn in (ASNS[peer], ASNS[peer] & 0xFFFF) and local in (Host.FEED_SIDE, "0.0.0.0")
                times.setdefault(peer, []).append(time)
                (states if isinstance(what, tuple) else messages).setdefault(peer, []).append(what)
        assert all(of_peer == sorted(of_peer) for of_peer in times.values())
        return messages, states
    expected_states = {FIRST: [(5, 6)], SECOND: [(5, 6), (6, 1)]}
    wait_for("all are in complete files", lambda: recorded(files(folder, "updates.")) == (sent, expected_states))
    assert len(files(folder, "updates.")) >= 1
    def of_frr():
        messages, states = recorded(files(log, "updates"))
        # FRR records OPENs and KEEPALIVEs too, and every state.
        of_kind = {peer: [m for m in ms if m[18] == 2] for peer, ms in messages.items()}
        return of_kind, {peer: [s for s in ss if 6 in s] for peer, ss in states.items()}
    found, states = wait_for("FRR has recorded all", lambda: of_frr()[0] == {peer: ms[1:] for peer, ms in sent.items()} and of_frr())
    assert {peer: len(s) for peer, s in states.items()} == {peer: len(s) for peer, s in expected_states.items()}
    assert router.stop() == 0
    # The last file is complete after the stop.
    assert not list(folder.glob("*.tmp"))


#: What makes a daemon write all UPDATEs of its neighbours.
RECORDERS = {
    "bird": lambda path: f'mrtdump "{path}";\nmrtdump protocols {{ messages, states }};\n',
    "openbgpd": lambda path: f'dump all in "{path}"\n',
}


@pytest.mark.feature("MRT updates (RFC 6396)")
@pytest.mark.parametrize("kind", RECORDERS)
def test_updates_are_what_others_record(pair, folder, kind):
    """BIRD and OpenBGPD record the same UPDATEs of the same feed as ribtide, byte by byte."""
    folder.chmod(0o777)
    path, source = folder / "other.mrt", Host.FEEDS[0]
    if kind == "bird":
        Bird(pair.b, RECORDERS[kind](path) + bird(RIGHT))
    else:
        Openbgpd(pair.b, f"listen on {Host.FEED_SIDE}\n" + RECORDERS[kind](path) + openbgpd(RIGHT))
    router = Ribtide(pair.a, ribtide(LEFT).split("[bgp.group.link]")[0] + f'[mrt.updates]\nfile = "{folder}/updates.%s"\ninterval = 1\n')
    sent = [update([f"10.{n}.0.0/16", f"10.{n}.128.0/17"], [FEED_ASN, 4_200_000_001], source) for n in range(20)]
    sent += [raw_update(withdrawn=prefixes(["10.1.0.0/16"])), END_OF_RIB]
    speakers = [Speaker(host, source, FEED_ASN) for host in (pair.a, pair.b)]
    for speaker in speakers:
        speaker.send(b"".join(sent))

    def recorded(paths):
        return [what for one in paths for _, (peer, asn), _, what in mrt.updates(one)
                if peer == source and asn == FEED_ASN and not isinstance(what, tuple) and what[18] == 2]
    wait_for("ours has all", lambda: recorded(files(folder, "updates.")) == sent, 30)
    wait_for("the other has all", lambda: recorded([path]) == sent, 30)
    assert router.established(source)


def test_files_begin_and_end_by_reload(host, folder):
    """An [mrt] table comes and goes while sessions last: what neighbours send meanwhile is in complete files, with sessions that
    begin; before and after nothing is written."""
    addresses(host)
    router = Ribtide(host, config())
    early = Speaker(host, FIRST, ASNS[FIRST])
    early.send(update(["10.0.0.0/16"], [ASNS[FIRST]], FIRST) + END_OF_RIB)
    wait_for("the first route", lambda: router.count() == 1)
    def reload(more):
        router.config.write_text(config(more) + f'\n[api]\nsocket = "{router.socket}"\n')
        return router.text("reload")
    assert "settings: mrt" in reload(f'[mrt.updates]\nfile = "{folder}/updates.%s"\ninterval = 3600\n')
    wait_for("a file has begun", lambda: router.show("mrt")["series"][0]["writing"])
    late = Speaker(host, SECOND, ASNS[SECOND])
    sent = {FIRST: [update(["10.1.0.0/16"], [ASNS[FIRST]], FIRST)],
            SECOND: [update(["10.2.0.0/16"], [ASNS[SECOND]], SECOND), END_OF_RIB]}
    for speaker, address in ((early, FIRST), (late, SECOND)):
        speaker.send(b"".join(sent[address]))
    wait_for("all routes", lambda: router.count() == 3)
    assert "settings: mrt" in reload("")
    [path] = wait_for("the file is complete", lambda: not list(folder.glob("*.tmp")) and files(folder, "updates."))
    messages, states = {}, {}
    for _, (peer, _), _, what in mrt.updates(path):
        (states if isinstance(what, tuple) else messages).setdefault(peer, []).append(what)
    assert messages == sent and states == {SECOND: [(5, 6)]}
    early.send(update(["10.3.0.0/16"], [ASNS[FIRST]], FIRST))
    wait_for("another route", lambda: router.count() == 4)
    assert files(folder, "updates.") == [path] and not list(folder.glob("*.tmp"))
    assert all(router.neighbor(address)["flaps"] == 0 for address in ASNS)
    assert "mrt" not in {thread["name"] for thread in router.show("threads")["threads"]}
    assert router.stop() == 0


def test_a_full_disk_stops_nothing_and_is_reported(host, folder):
    """A file system of 64 KiB: routes arrive all the same, `show health` and the metrics say what does not work, and when
    there is room again the files are written."""
    addresses(host)
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs", small], check=True)
    try:
        router = Ribtide(host, config(f'[mrt.updates]\nfile = "{small}/updates.%s"\ninterval = 1\n'))
        speaker = Speaker(host, FIRST, ASNS[FIRST])
        for n in range(40):
            speaker.send(b"".join(update([f"10.{n}.{m}.0/24"], [ASNS[FIRST]] * 20, FIRST) for m in range(256)))
        wait_for("all routes", lambda: router.count() == 40 * 256)
        def fault():
            health = json.loads(router.call("GET", "/v1/health"))
            return health["state"] == "degraded" and health["faults"][0]
        found = wait_for("it is reported", fault)
        assert found["what"] == "MRT files of updates" and "No space left on device" in found["why"]
        done = subprocess.run([binary(), "show", "health", "--socket", router.socket], capture_output=True, text=True)
        assert done.returncode != 0 and "data is missing of MRT files of updates" in done.stderr and "No space left" in done.stdout
        assert 'ribtide_mrt_failing{series="updates"} 1' in router.call("GET", "/metrics")
        assert router.process.logged("an MRT file could not be written")
        for path in small.iterdir():
            path.unlink(missing_ok=True)
        def works():
            speaker.send(update(["20.0.0.0/8"], [ASNS[FIRST]], FIRST))
            [series] = router.show("mrt")["series"]
            return "error" not in series and series
        # A failed file is tried again after 30 s at the latest.
        series = wait_for("files are written again", works, 60, every=1)
        assert series["failures"] >= 1 and series["dropped"] >= 1
        assert json.loads(router.call("GET", "/v1/health"))["state"] == "ok"
        router.stop()
    finally:
        subprocess.run(["umount", "-l", small], check=True)
