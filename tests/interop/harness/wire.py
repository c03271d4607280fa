"""What UPDATEs do to a table, for stations and for readers of MRT files."""

import ipaddress
import struct

IPV4, IPV6 = 1, 2
ADD_PATH, FOUR_OCTET_AS = 69, 65


def nlri(data, afi, path_ids):
    """(prefix, path identifier or None) of each route."""
    size = 4 if afi == IPV4 else 16
    while data:
        identifier = None
        if path_ids:
            identifier, data = struct.unpack("!I", data[:4])[0], data[4:]
        length = data[0]
        count = (length + 7) // 8
        address = data[1:1 + count].ljust(size, b"\0")
        assert len(data) > count and length <= 8 * size, data
        yield str(ipaddress.ip_network((address, length), strict=False)), identifier
        data = data[1 + count:]


def attributes(data):
    """Code → value."""
    found = {}
    while data:
        flags, code = data[0], data[1]
        size, at = (struct.unpack("!H", data[2:4])[0], 4) if flags & 0x10 else (data[2], 3)
        assert len(data) >= at + size and code not in found, (code, data)
        found[code], data = data[at:at + size], data[at + size:]
    return found


def wide_path(value):
    """AS_PATH of two octets in the form of four."""
    out = b""
    while value:
        kind, count = value[0], value[1]
        asns = struct.unpack(f"!{count}H", value[2:2 + 2 * count])
        out += bytes([kind, count]) + struct.pack(f"!{count}I", *asns)
        value = value[2 + 2 * count:]
    return out


def decode(body, path_ids=(), two_octet_as=False):
    """The body of an UPDATE as withdrawn routes, announced routes, attributes; and the family of which it is
    End-of-RIB, or None. The next hop is attribute "next-hop". `path_ids`: the families with path identifiers."""
    size = struct.unpack("!H", body[:2])[0]
    withdrawn, rest = body[2:2 + size], body[2 + size:]
    size = struct.unpack("!H", rest[:2])[0]
    at, announced = attributes(rest[2:2 + size]), rest[2 + size:]
    gone = list(nlri(withdrawn, IPV4, IPV4 in path_ids))
    new = list(nlri(announced, IPV4, IPV4 in path_ids))
    end = IPV4 if not withdrawn and not at and not announced else None
    if 3 in at:
        at["next-hop"] = str(ipaddress.ip_address(at.pop(3)))
    if 15 in at:
        value = at.pop(15)
        afi = struct.unpack("!H", value[:2])[0]
        gone += nlri(value[3:], afi, afi in path_ids)
        end = afi if len(value) == 3 and not at and not announced else end
    if 14 in at:
        value = at.pop(14)
        afi, size = struct.unpack("!H", value[:2])[0], value[3]
        at["next-hop"] = str(ipaddress.ip_address(value[4:4 + (size if size == 4 else 16)]))
        new += nlri(value[5 + size:], afi, afi in path_ids)
    if two_octet_as and 2 in at:
        at[2] = wide_path(at[2])
    return gone, new, at, end


def apply(table, body, path_ids=(), two_octet_as=False):
    """Does to a table, (prefix, path identifier) → attributes, what an UPDATE says. Returns the family that it ends."""
    gone, new, at, end = decode(body, path_ids, two_octet_as)
    for route in gone:
        table.pop(route, None)
    for route in new:
        table[route] = at
    return end


def capabilities(open_body):
    """(code, value) of each capability of an OPEN."""
    found, optional = [], open_body[10:10 + open_body[9]]
    while optional:
        kind, size = optional[0], optional[1]
        value, optional = optional[2:2 + size], optional[2 + size:]
        while kind == 2 and value:
            found.append((value[0], value[2:2 + value[1]]))
            value = value[2 + value[1]:]
    return found


def path_id_families(sender, receiver):
    """The families in which the sender of one OPEN has path identifiers towards that of another (RFC 7911 section 4)."""
    def families(body, wanted):
        for code, value in capabilities(body):
            if code == ADD_PATH:
                yield from (struct.unpack("!H", value[at:at + 2])[0] for at in range(0, len(value), 4)
                            if value[at + 3] & wanted)
    return set(families(sender, 2)) & set(families(receiver, 1))


def as_path(value):
    """AS_PATH of four octets as text; a set is in braces."""
    words = []
    while value:
        kind, count = value[0], value[1]
        asns = [str(asn) for asn in struct.unpack(f"!{count}I", value[2:2 + 4 * count])]
        words += ["{" + ",".join(sorted(asns, key=int)) + "}"] if kind == 1 else asns
        value = value[2 + 4 * count:]
    return " ".join(words)
