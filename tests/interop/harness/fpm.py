"""An FPM client, byte by byte: the messages of zebra."""

import contextlib
import ipaddress
import socket
import struct
import threading

PORT = 2620
#: A server that stands still reads nothing meanwhile.
SENT = 600
NEWROUTE, DELROUTE = 24, 25
#: RTN_UNICAST and RTN_BLACKHOLE of rtnetlink.
UNICAST, BLACKHOLE = 1, 6
AF_MPLS = 28
OFFLOAD = 0x4000


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def attributes(data):
    """(number, value) of each attribute."""
    while len(data) >= 4:
        size, kind = struct.unpack("=HH", data[:4])
        yield kind & 0x3fff, data[4:size]
        data = data[(size + 3) & ~3:]


def multipath(data):
    """(rtnh_hops, interface) of each next hop of a list."""
    while data:
        size, _, hops, ifindex = struct.unpack("=HBBI", data[:8])
        yield hops, ifindex
        data = data[(size + 3) & ~3:]


def multipath_of(hops):
    """A list of next hops: (interface, attributes) of each."""
    return attribute(9, b"".join(struct.pack("=HBBI", 8 + len(of), 0, 0, ifindex) + of for ifindex, of in hops))


def destination(family, value):
    """The text of a destination; that of a label as its four bytes."""
    return str(ipaddress.ip_address(value)) if family != AF_MPLS else ".".join(map(str, value))


def key(family, length, value, vrf=""):
    """The key of a route in ROUTE_TABLE."""
    bits = "" if length == 8 * len(value) else f"/{length}"
    return (f"{vrf}:" if vrf else "") + destination(family, value) + bits


def labels(stack):
    """Label stack entries, outermost first."""
    return b"".join(struct.pack("!I", label << 12 | (0x100 if n + 1 == len(stack) else 0)) for n, label in enumerate(stack))


def via(gateway):
    address = ipaddress.ip_address(gateway)
    return attribute(18, struct.pack("=H", 2 if address.version == 4 else 10) + address.packed)


def pushed(stack):
    """Labels as an IP route has them: an encapsulation, whose flag "nested" is set."""
    return attribute(21, struct.pack("=H", 1)) + attribute(22 | 0x8000, attribute(1, labels(stack))) if stack else b""


def next_hops(hops, way):
    """(gateway, interface, labels) of each; one alone stands in the route itself."""
    if len(hops) == 1:
        [(gateway, ifindex, stack)] = hops
        return way(gateway, stack) + attribute(4, struct.pack("=I", ifindex))
    listed = b""
    for gateway, ifindex, stack in hops:
        attributes = way(gateway, stack)
        listed += struct.pack("=HBBI", 8 + len(attributes), 0, 0, ifindex) + attributes
    return attribute(9, listed) if hops else b""


def framed(kind, body, flags=0x505):
    message = struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body
    return struct.pack("!BBH", 1, 1, 4 + len(message)) + message


#: What only ribtide's client says: that it will say when everything is announced, and that it is.
BEGIN, END = framed(1, b"", flags=2), framed(3, bytes(4))


def label_route(message, label, hops=(), kind=1, protocol=186):
    """A frame with the route of a label, as FRR sends it. `hops`: (gateway, interface, labels in its place)."""
    body = struct.pack("=BBBBBBBBI", 28, 20, 0, 0, 0, protocol, 0, kind, 0) + attribute(1, labels([label]))
    return framed(message, body + next_hops(hops, lambda gateway, stack: (attribute(19, labels(stack)) if stack else b"") + via(gateway)))


def route(kind, prefix, gateway=None, ifindex=0, table=254, protocol=186, hops=(), action=UNICAST):
    """A frame with one message. `hops`, instead of a gateway: (gateway, interface, labels to put on)."""
    network = ipaddress.ip_network(prefix)
    family = 2 if network.version == 4 else 10
    body = struct.pack("=BBBBBBBBI", family, network.prefixlen, 0, 0, table, protocol, 0, action, 0)
    body += attribute(1, network.network_address.packed)
    if gateway:
        body += attribute(5, ipaddress.ip_address(gateway).packed) + attribute(4, struct.pack("=I", ifindex))
    body += next_hops(hops, lambda gateway, stack: pushed(stack) + attribute(5, ipaddress.ip_address(gateway).packed))
    return framed(kind, body)


class Client:
    """zebra's end of a session with fpmsyncd."""

    def __init__(self, host):
        self.socket = host.connect("127.0.0.1", PORT)
        self.buffer = b""

    def send(self, data):
        # For all of it, and not what the last reply was waited for.
        self.socket.settimeout(SENT)
        self.socket.sendall(data)

    def frames(self, count, timeout=30):
        """The next frames; fewer when no more come in time."""
        got = []
        self.socket.settimeout(timeout)
        while len(got) < count:
            while len(self.buffer) < 4 or len(self.buffer) < struct.unpack("!H", self.buffer[2:4])[0]:
                try:
                    piece = self.socket.recv(65536)
                except TimeoutError:
                    return got
                assert piece, "fpmsyncd closed the session"
                self.buffer += piece
            size = struct.unpack("!H", self.buffer[2:4])[0]
            got.append(self.buffer[:size])
            self.buffer = self.buffer[size:]
        return got

    def replies(self, count, timeout=30):
        """The next replies as (prefix or label, table, protocol, whether offloaded); fewer when no more come in time."""
        got = []
        for frame in self.frames(count, timeout):
            frame = frame[4:]
            _, kind, flags = struct.unpack("=IHH", frame[:8])
            # zebra takes only what says that it is a request.
            assert kind == NEWROUTE and flags & 1, frame
            family, bits, _, _, table, protocol, _, _, route_flags = struct.unpack("=BBBBBBBBI", frame[16:28])
            said = dict(attributes(frame[28:]))
            table = struct.unpack("=I", said[15])[0] if 15 in said else table
            if family == AF_MPLS:
                entry, = struct.unpack("!I", said[1])
                got.append((entry >> 12, table, protocol, bool(route_flags & OFFLOAD)))
            else:
                got.append((f"{ipaddress.ip_address(said[1])}/{bits}", table, protocol, bool(route_flags & OFFLOAD)))
        return got

    def close(self):
        self.socket.close()


class Server:
    """An FPM server that keeps what it is sent, and replies to nothing. It takes one connection after the other, and keeps its routes
    over them, as SONiC's does."""

    def __init__(self, host, port=PORT):
        with host.inside():
            self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen()
        #: Prefix → id of its next-hop object, or None where the route has its next hops itself.
        self.routes, self.connections, self.error = {}, 0, None
        #: Prefixes of deletions, in order.
        self.deleted = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                try:
                    self.serve(connection)
                except ConnectionError:
                    pass
                except Exception as e:  # noqa: BLE001: a test reads it
                    self.error = e
                    raise

    def serve(self, connection):
        buffer = b""
        with connection:
            while piece := connection.recv(1 << 20):
                buffer += piece
                while len(buffer) >= 4 and len(buffer) >= (size := struct.unpack("!H", buffer[2:4])[0]):
                    self.frame(buffer[4:size])
                    buffer = buffer[size:]

    def frame(self, data):
        while len(data) >= 16:
            length, kind = struct.unpack_from("=IH", data)
            if kind in (NEWROUTE, DELROUTE):
                self.route(kind, data[16:length])
            data = data[(length + 3) & ~3:]

    def route(self, kind, body):
        family, bits = body[:2]
        attributes, at = {}, 12
        while at + 4 <= len(body):
            length, code = struct.unpack_from("=HH", body, at)
            attributes[code] = body[at + 4:at + length]
            at += (length + 3) & ~3
        address = ipaddress.ip_address(attributes.get(1, bytes(4 if family == 2 else 16)))
        prefix = f"{address}/{bits}"
        if kind == NEWROUTE:
            self.routes[prefix] = struct.unpack("=I", attributes[30])[0] if 30 in attributes else None
        else:
            del self.routes[prefix]
            self.deleted.append(prefix)

    def close(self):
        self.listener.close()
