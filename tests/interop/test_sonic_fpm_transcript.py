"""fpmsyncd at the FPM messages that SONiC's fpmsyncd (swss e6b0c5b5) was sent, recorded in `../shared/data/sonic`: APPL_DB is
the same after each phase, byte for byte and field for field, and so are the replies, but for what docs/sonic.md names."""

import struct

import pytest
from harness import binary, fpm, wait_for
from harness.daemons import Redis
from harness.sonic import APPL, rows
from harness.transcript import FOLDER, LINKS, recorded, recorded_host

TABLES = ("ROUTE_TABLE", "LABEL_ROUTE_TABLE", "NEXTHOP_GROUP_TABLE", "PIC_CONTEXT_TABLE", "SRV6_MY_SID_TABLE", "SRV6_SID_LIST_TABLE",
          "VNET_ROUTE_TABLE", "VNET_ROUTE_TUNNEL_TABLE")
#: Routes of the recording that SONiC's drops: one in the kernel's main table, and those that push labels.
MAIN_TABLE = {"50.8.0.0/24"}
MPLS_PUSH = {f"70.0.{n}.0/24" for n in range(4)}

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is absent")


@pytest.fixture
def plain(folder):
    with recorded_host(folder) as host:
        yield host


class Fpmsyncd:
    """fpmsyncd alone. The test takes its rows, as orchagent does."""

    def __init__(self, host, *flags):
        self.host, self.flags, self.redis = host, flags, Redis(host)
        self.appl = self.redis.db(APPL)
        self.start()

    def start(self):
        """Also after a crash."""
        self.process = self.host.start("fpmsyncd", binary(), "fpmsyncd", "--database-config", self.redis.config, *self.flags)
        self.connect()

    def connect(self):
        self.client = wait_for("fpmsyncd takes a session", lambda: fpm.Client(self.host), 30, alive=[self.process])

    def waiting(self):
        """The rows that no consumer has taken."""
        return sum(self.appl.scard(f"{table}_KEY_SET") for table in TABLES)

    def taken(self):
        """Every row, after this consumer has taken what changed (`consumer_state_table_pops.lua` of swss-common)."""
        for table in TABLES:
            for key in self.appl.smembers(f"{table}_KEY_SET"):
                p = self.appl.pipeline(transaction=True)
                p.srem(f"{table}_KEY_SET", key)
                p.srem(f"{table}_DEL_SET", key)
                p.hgetall(f"_{table}:{key}")
                p.delete(f"_{table}:{key}")
                _, deleted, fields, _ = p.execute()
                if deleted:
                    self.appl.delete(f"{table}:{key}")
                if fields:
                    self.appl.hset(f"{table}:{key}", mapping=fields)
        return {key: list(fields.items()) for table in TABLES for key, fields in rows(self.appl, f"{table}:*").items()}


def expected(phase):
    return {key: list(fields.items()) for key, fields in phase["APPL_DB"].items() if key.split(":")[0] in TABLES}


def over(before, ours):
    """The row of ours in a consumer that still has the fields of the row before: SONiC's batch of DEL and SET deletes none. Ours does,
    and names each field then, empty ones too."""
    return list({**dict(before), **{k: v for k, v in ours if v and (k, v) != ("blackhole", "false")}}.items())


def weights(frames, key):
    """`rtnh_hops` of the last route that was announced with this key."""
    found = None
    for frame in frames:
        body = frame[20:]
        if struct.unpack("=H", frame[8:10])[0] != 24 or body[0] == 28:
            continue
        family, length, table = body[0], body[1], body[4]
        attributes = dict(fpm.attributes(body[12:]))
        if fpm.key(family, length, attributes[1], LINKS.get(table, "")) == key:
            found = [hops for hops, _ in fpm.multipath(attributes.get(9, b""))]
    return found


@pytest.mark.parametrize("as_sonic", [False, True], ids=["default", "as-sonic"])
def test_rows_are_those_of_sonic(plain, as_sonic):
    sonic = Fpmsyncd(plain, *(["--as-sonic", "all"] if as_sonic else []))
    phases = {phase["phase"]: expected(phase) for phase in recorded("per-phase-raw")}
    theirs, sent, reasons = phases["before"], [], {}
    assert sonic.taken() == theirs == {}
    for name, frames in recorded("feed-frames-hex"):
        frames = [bytes.fromhex(frame) for frame in frames]
        sonic.client.send(b"".join(frames))
        sent += frames
        before, theirs = theirs, phases[name]
        differs = {}

        def differences():
            ours = sonic.taken()
            differs.clear()
            for key in ours.keys() | theirs.keys():
                if ours.get(key) != theirs.get(key):
                    why = reason(key, ours.get(key), theirs.get(key), before.get(key, []), sent, as_sonic)
                    differs[key] = why or (name, ours.get(key), theirs.get(key))
            return all(isinstance(why, str) for why in differs.values())
        try:
            wait_for(f"the rows of {name}", differences, 20, alive=[sonic.process])
        except AssertionError:
            unexplained = {key: why for key, why in differs.items() if not isinstance(why, str)}
            assert not unexplained, f"{len(unexplained)} rows, {sorted(unexplained.items())[:5]}"
        reasons.update(differs)
    found = {why: sum(other == why for other in reasons.values()) for why in reasons.values()}
    if as_sonic:
        assert set(found) == {"left over"}, found
    else:
        assert set(found) == {"left over", "weights", "main table", "mpls push", "next-hop change"}, found


def reason(key, ours, theirs, before, sent, as_sonic):
    """Which difference of docs/sonic.md this is; None where it is none."""
    if ours and theirs and over(before, ours) == theirs:
        return "left over"
    if as_sonic:
        return None
    name = key.removeprefix("ROUTE_TABLE:")
    if theirs is None and ours:
        return "main table" if name in MAIN_TABLE else "mpls push" if name in MPLS_PUSH else None
    if not ours or not theirs:
        return None
    fields, real = dict(over(before, ours)), dict(theirs)
    if {k: v for k, v in fields.items() if k != "weight"} == {k: v for k, v in real.items() if k != "weight"}:
        hops = weights(sent, name)
        if fields["weight"] == ",".join(str(n + 1) for n in hops) and real["weight"] == ",".join(str(max(n, 1)) for n in hops):
            return "weights"
    # Object 100 has another gateway since then.
    if fields.get("nexthop", "").replace("10.0.0.3", "10.0.0.1") == real.get("nexthop") and fields.get("ifname") == real.get("ifname"):
        return "next-hop change"
    return None


def test_replies_are_those_of_sonic(plain):
    sonic = Fpmsyncd(plain)
    want = [tuple(reply) for reply in recorded("fpm-offload-replies")]
    frames = [bytes.fromhex(frame) for _, frames in recorded("feed-frames-hex") for frame in frames]
    sonic.client.send(b"".join(frames))
    # Ours takes routes of the main table, too.
    got = sonic.client.frames(len(want) + 1)
    main = [frame for frame in got if frame[4 + 16 + 4] == 254]
    assert len(main) == 1
    got.remove(main[0])
    seen = []
    for frame in got:
        family, length, table = frame[20], frame[21], frame[24]
        address = dict(fpm.attributes(frame[32:]))[1]
        flags, = struct.unpack("=I", frame[28:32])
        seen.append((struct.unpack("=H", frame[8:10])[0], family, fpm.destination(family, address), length, table, hex(flags)))
    # Those about labels may come after those about routes that came later.
    for labels in (False, True):
        assert [r for r in seen if (r[1] == fpm.AF_MPLS) == labels] == [r for r in want if (r[1] == fpm.AF_MPLS) == labels]
    # A route of one IPv4 next hop, as nearly all of them.
    assert len(got[0]) == 72
