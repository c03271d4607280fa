"""A BGP speaker that sends exactly the bytes of a test, over a socket of its own."""

import ipaddress
import socket
import struct
import time

from .host import wait_for

MARKER = b"\xff" * 16
OPEN, UPDATE, NOTIFICATION, KEEPALIVE, ROUTE_REFRESH = 1, 2, 3, 4, 5
#: How long a router may read nothing, in seconds.
SENT = 600


def message(kind, body=b""):
    return MARKER + struct.pack("!HB", 19 + len(body), kind) + body


def attribute(flags, code, value):
    """A path attribute; the extended length bit is set where it is needed."""
    if len(value) > 255:
        return struct.pack("!BBH", flags | 0x10, code, len(value)) + value
    return struct.pack("!BBB", flags, code, len(value)) + value


def communities(pairs):
    return attribute(0xC0, 8, b"".join(struct.pack("!HH", *pair) for pair in pairs))


def prefixes(texts):
    """NLRI of IPv4 prefixes."""
    out = b""
    for text in texts:
        network = ipaddress.ip_network(text)
        out += bytes([network.prefixlen]) + network.network_address.packed[: (network.prefixlen + 7) // 8]
    return out


def block(as_path, next_hop, *more):
    """The path attributes of an external IPv4 route."""
    path = struct.pack("!BB", 2, len(as_path)) + b"".join(n.to_bytes(4, "big") for n in as_path)
    return attribute(0x40, 1, b"\0") + attribute(0x40, 2, path) \
        + attribute(0x40, 3, ipaddress.ip_address(next_hop).packed) + b"".join(more)


def raw_update(withdrawn=b"", attributes=b"", nlri=b""):
    """An UPDATE with arbitrary parts."""
    body = struct.pack("!H", len(withdrawn)) + withdrawn + struct.pack("!H", len(attributes)) + attributes + nlri
    return message(UPDATE, body)


def update(nlri, as_path, next_hop, *more):
    return raw_update(b"", block(as_path, next_hop, *more), prefixes(nlri))


#: Of IPv4 unicast (RFC 4724).
END_OF_RIB = raw_update()


class Speaker:
    """An established session from a feed of a host to its router. Without a hold time it needs
    no KEEPALIVE. `refresh`: the router may send ROUTE-REFRESH (RFC 2918), which the test reads
    and handles. `more`: capabilities in wire form."""

    def __init__(self, host, source, asn, extended=False, hold=0, refresh=False, more=b""):
        capabilities = bytes([1, 4, 0, 1, 0, 1]) + bytes([65, 4]) + asn.to_bytes(4, "big") + (bytes([6, 0]) if extended else b"") \
            + (bytes([2, 0]) if refresh else b"") + more
        optional = bytes([2, len(capabilities)]) + capabilities
        two = asn if asn < 65536 else 23456
        body = struct.pack("!BHH", 4, two, hold) + socket.inet_aton(source) + bytes([len(optional)]) + optional

        def opened():
            self.socket, self.buffer = host.feeds.connect(host.FEED_SIDE, 179, source), b""
            self.send(message(OPEN, body))
            got = self.read()
            if got and got[0] == OPEN:
                self.open = got[1]
                self.send(message(KEEPALIVE))
                got = self.read()
                if got and got[0] in (KEEPALIVE, UPDATE):
                    if got[0] == UPDATE:
                        # FRR may take its peer's KEEPALIVE for its own turn; what it sends is the reader's.
                        self.buffer = message(*got) + self.buffer
                    return True
            # After an error a router may refuse its peer for a moment (RFC 4271 section 8.1.1, DampPeerOscillations).
            self.close()
            return False

        wait_for(f"{host.FEED_SIDE} takes a session from {source}", opened, 20, 0.1)
        host.sessions.append(self)

    def send(self, data):
        # For all of it, and not what the last message was waited for.
        self.socket.settimeout(SENT)
        self.socket.sendall(data)

    def read(self, timeout=10):
        """The next message as (type, body), or None where the router has closed the session."""
        self.socket.settimeout(timeout)
        while True:
            if len(self.buffer) >= 19:
                size = struct.unpack("!H", self.buffer[16:18])[0]
                if len(self.buffer) >= size:
                    kind, body = self.buffer[18], self.buffer[19:size]
                    self.buffer = self.buffer[size:]
                    return kind, body
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not piece:
                return None
            self.buffer += piece

    def peek(self, timeout=10):
        """The next message, which stays the next one."""
        got = self.read(timeout)
        if got:
            self.buffer = message(*got) + self.buffer
        return got

    def ended(self, within=1.0):
        """Whether the router ends the session within this time: its NOTIFICATION as (code,
        subcode), None if the session stays up, or (0, 0) without a NOTIFICATION."""
        end = time.monotonic() + within
        while (left := end - time.monotonic()) > 0:
            try:
                got = self.read(left)
            except TimeoutError:
                break
            if got is None:
                return (0, 0)
            if got[0] == NOTIFICATION:
                return (got[1][0], got[1][1])
        return None

    def close(self):
        self.socket.close()
