"""ZeroMQ as SONiC's own programs use it: libzmq's sockets, and table messages taken apart and put together by hand."""

import contextlib
import struct

import pytest

#: SONiC's port for tables to orchagent, and the one for requests to syncd.
TABLES, REQUESTS = 8100, 5555
#: The fields of a complete route row, in fpmsyncd's order.
FIELDS = ["protocol", "blackhole", "nexthop", "ifname", "nexthop_group", "mpls_nh", "weight", "vni_label", "router_mac", "segment",
          "seg_src"]


@contextlib.contextmanager
def stock(host, kind, bind=None, connect=None):
    """A socket of libzmq inside a host. `kind` is PUSH, PULL, REQ or REP."""
    zmq = pytest.importorskip("zmq", reason="the Python module zmq is not installed (scripts/setup test installs it)")
    context = zmq.Context()
    with host.inside():  # The library's threads are where they were made.
        s = context.socket(getattr(zmq, kind))
        s.setsockopt(zmq.LINGER, 0)
        s.setsockopt(zmq.RCVTIMEO, 20_000)
        s.setsockopt(zmq.SNDTIMEO, 20_000)
        if bind:
            s.bind(f"tcp://127.0.0.1:{bind}")
        else:
            s.connect(f"tcp://127.0.0.1:{connect}")
    try:
        yield s
    finally:
        context.destroy(0)


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def message(table, *changes, db="APPL_DB"):
    """A table message; a change is (key, {field: value}), and no fields delete."""
    pairs = [(db, table)]
    for key, fields in changes:
        pairs += [(key, str(len(fields))), *fields.items()]
    return struct.pack("<Q", len(pairs)) + b"".join(text(a) + text(b) for a, b in pairs)


def parse(data):
    """(database, table, [(key, [(field, value)])]) of a message, which must be in the layout to the last byte."""
    at = 8
    pairs = []
    for _ in range(struct.unpack_from("<Q", data)[0]):
        pair = []
        for _ in range(2):
            size, = struct.unpack_from("<Q", data, at)
            pair.append(data[at + 8:at + 8 + size].decode())
            at += 8 + size
        pairs.append(tuple(pair))
    assert at == len(data)
    (db, table), rest, changes = pairs[0], pairs[1:], []
    while rest:
        (key, count), rest = rest[0], rest[1:]
        changes.append((key, rest[:int(count)]))
        rest = rest[int(count):]
    return db, table, changes


def row(**fields):
    """The fields of a route as SONiC's fpmsyncd sends them over ZeroMQ: all of them."""
    return {name: fields.get(name, "false" if name == "blackhole" else "") for name in FIELDS}
