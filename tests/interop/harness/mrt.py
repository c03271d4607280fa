"""A reader of MRT files, by RFC 6396 and RFC 8050."""

import gzip
import ipaddress
import struct

from . import wire

TABLE_DUMP_V2, BGP4MP, BGP4MP_ET = 13, 16, 17


def records(path):
    """(time, type, subtype, body) of each record; the time has a fraction in "ET" types."""
    data = open(path, "rb").read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    while data:
        seconds, kind, subtype, size = struct.unpack("!IHHI", data[:12])
        body, data = data[12:12 + size], data[12 + size:]
        assert len(body) == size, "the file ends inside a record"
        time = seconds
        if kind == BGP4MP_ET:
            time, body = seconds + struct.unpack("!I", body[:4])[0] / 1e6, body[4:]
        yield time, kind, subtype, body


def table(path):
    """The peers of a dump, as (router id, address, AS); and peer's address → (prefix, path identifier) → attributes."""
    peers, tables, sequences = None, {}, []
    for _, kind, subtype, body in records(path):
        assert kind == TABLE_DUMP_V2, kind
        if subtype == 1:
            assert peers is None
            size = struct.unpack("!H", body[4:6])[0]
            count, rest = struct.unpack("!H", body[6 + size:8 + size])[0], body[8 + size:]
            peers = []
            for _ in range(count):
                width = 16 if rest[0] & 1 else 4
                asn = 4 if rest[0] & 2 else 2
                address = ipaddress.ip_address(rest[5:5 + width])
                peers.append((str(ipaddress.ip_address(rest[1:5])), str(address),
                              int.from_bytes(rest[5 + width:5 + width + asn], "big")))
                rest = rest[5 + width + asn:]
            assert not rest
            continue
        afi, path_ids = {2: (1, False), 4: (2, False), 8: (1, True), 10: (2, True)}[subtype]
        sequences.append(struct.unpack("!I", body[:4])[0])
        size = 1 + (body[4] + 7) // 8
        [(prefix, _)] = wire.nlri(body[4:4 + size], afi, False)
        count, rest = struct.unpack("!H", body[4 + size:6 + size])[0], body[6 + size:]
        for _ in range(count):
            peer, _, rest = *struct.unpack("!HI", rest[:6]), rest[6:]
            identifier = None
            if path_ids:
                identifier, rest = struct.unpack("!I", rest[:4])[0], rest[4:]
            size = struct.unpack("!H", rest[:2])[0]
            at, rest = wire.attributes(rest[2:2 + size]), rest[2 + size:]
            hop = at.pop(3) if 3 in at else at.pop(14)[1:17]
            at["next-hop"] = str(ipaddress.ip_address(hop))
            of_peer = tables.setdefault(peers[peer][1], {})
            assert (prefix, identifier) not in of_peer
            of_peer[prefix, identifier] = at
        assert not rest
    assert len(set(sequences)) == len(sequences)
    return peers, tables


def updates(path):
    """(time, peer, local, what) of each record: a whole BGP message, or (old, new) states. Peers are (address, AS)."""
    for time, kind, subtype, body in records(path):
        assert kind in (BGP4MP, BGP4MP_ET), kind
        wide = subtype in (4, 5, 7, 9, 11)
        asns = struct.unpack("!II" if wide else "!HH", body[:8 if wide else 4])
        body = body[8 if wide else 4:]
        width = 4 if struct.unpack("!HH", body[:4])[1] == 1 else 16
        peer, local = (str(ipaddress.ip_address(body[at:at + width])) for at in (4, 4 + width))
        rest = body[4 + 2 * width:]
        what = struct.unpack("!HH", rest) if subtype in (0, 5) else rest
        yield time, (peer, asns[0]), (local, asns[1]), what
