"""A BMP station, by RFC 7854, RFC 8671 and RFC 9069: it listens and keeps the tables that routers send it."""

import collections
import contextlib
import ipaddress
import socket
import struct
import threading

from . import wire
from .speaker import OPEN, UPDATE

ROUTES, STATISTICS, DOWN, UP, INITIATION, TERMINATION = range(6)
#: Flags of the per-peer header.
V6, POST, TWO_OCTET, OUT = 0x80, 0x40, 0x20, 0x10
LOC_RIB = 3


class Session:
    """One connection of a router, and what it sent."""

    def __init__(self):
        self.information, self.termination = {}, None
        #: View → address → (prefix, path identifier) → attributes. The Loc-RIB's address is "".
        self.tables = collections.defaultdict(lambda: collections.defaultdict(dict))
        #: Address → Peer Up: local address, ports, OPENs, information.
        self.up = {}
        #: Peer Downs: address, reason, data.
        self.down = []
        #: (view, address, family) of each End-of-RIB, in order.
        self.ends = []
        #: Address → type → value.
        self.statistics = {}
        #: All messages, as (type, header flags or None, address or None, body).
        self.messages = []
        self.bytes = 0
        self.over = False

    def table(self, view, address=""):
        # A copy, which the reader of the connection does not change while one looks.
        return dict(self.tables[view][address])


class Station:
    """Listens inside a host. `strict`: a Peer Down follows a Peer Up, which not every router obeys: FRR's bgpd sends
    one of each neighbour that has no session."""

    def __init__(self, host, port, address="127.0.0.1", keep_messages=True, strict=True):
        self.port, self.sessions, self.keep, self.strict = port, [], keep_messages, strict
        self.reading = threading.Event()
        self.reading.set()
        with host.inside():
            self.listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Of the connections too.
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            self.listener.bind((address, port))
            self.listener.listen()
        self.error = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def session(self):
        """The last one."""
        if self.error:
            raise AssertionError(f"the station cannot read the router: {self.error!r}") from self.error
        return self.sessions[-1] if self.sessions else Session()

    def ended(self, view, address=""):
        """Whether the initial table of a view is complete."""
        return any((view, address, afi) in self.session.ends for afi in (1, 2))

    def pause(self):
        self.reading.clear()

    def resume(self):
        self.reading.set()

    def close(self):
        """No connection any more, and no new one."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(getattr(self, "connections", [])):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        self.connections = []
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.connections.append(connection)
            session = Session()
            self.sessions.append(session)
            threading.Thread(target=self._read, args=(connection, session), daemon=True).start()

    def _read(self, connection, session):
        buffer = b""
        try:
            while True:
                self.reading.wait()
                try:
                    piece = connection.recv(1 << 16)
                except OSError:
                    piece = b""
                if not piece:
                    return
                buffer += piece
                session.bytes += len(piece)
                at = 0
                while len(buffer) - at >= 6:
                    version, size, kind = struct.unpack("!BIB", buffer[at:at + 6])
                    assert version == 3 and size >= 6, (version, size)
                    if len(buffer) - at < size:
                        break
                    self._message(session, kind, buffer[at + 6:at + size])
                    at += size
                buffer = buffer[at:]
        except Exception as e:
            self.error = e
        finally:
            session.over = True
            connection.close()

    def _message(self, session, kind, body):
        assert session.information or kind == INITIATION, "the first message is an Initiation"
        assert session.termination is None, "nothing comes after a Termination"
        flags = address = None
        if kind in (ROUTES, STATISTICS, DOWN, UP):
            peer_type, flags = body[0], body[1]
            assert body[2:10] == bytes(8), "the default table has no distinguisher"
            address = "" if peer_type == LOC_RIB else self._address(flags, body[10:26])
            rest = body[42:]
        if self.keep:
            session.messages.append((kind, flags, address, body))
        if kind == INITIATION:
            session.information = dict(self._tlvs(body))
        elif kind == TERMINATION:
            session.termination = dict(self._tlvs(body))
        elif kind == UP:
            self._up(session, peer_type, flags, address, rest)
        elif kind == DOWN:
            if session.up.pop(address, None) is None:
                assert not self.strict, f"a Peer Down of {address} without a Peer Up"
                return
            session.down.append((address, rest[0], rest[1:]))
            for view in session.tables.values():
                view.pop(address, None)
        elif kind == STATISTICS:
            self._statistics(session, address, rest)
        elif kind == ROUTES:
            self._routes(session, peer_type, flags, address, rest)

    @staticmethod
    def _address(flags, data):
        return str(ipaddress.ip_address(data if flags & V6 else data[12:]))

    @staticmethod
    def _tlvs(data):
        while data:
            kind, size = struct.unpack("!HH", data[:4])
            assert len(data) >= 4 + size
            yield kind, data[4:4 + size]
            data = data[4 + size:]

    def _up(self, session, peer_type, flags, address, rest):
        assert address not in session.up, f"two Peer Ups of {address}"
        local, ports, rest = rest[:16], struct.unpack("!HH", rest[16:20]), rest[20:]
        opens = []
        for _ in range(2):
            assert rest[:16] == b"\xff" * 16 and rest[18] == OPEN
            size = struct.unpack("!H", rest[16:18])[0]
            opens.append(rest[19:size])
            rest = rest[size:]
        session.up[address] = {"type": peer_type, "local": self._address(flags, local), "ports": ports, "sent": opens[0],
                               "received": opens[1], "information": dict(self._tlvs(rest))}

    @staticmethod
    def _statistics(session, address, rest):
        count, rest = struct.unpack("!I", rest[:4])[0], rest[4:]
        found = list(Station._tlvs(rest))
        assert len(found) == count
        values = session.statistics[address] = {}
        for kind, value in found:
            key = (kind, *struct.unpack("!HB", value[:3])) if len(value) == 11 else kind
            values[key] = int.from_bytes(value[3:] if len(value) == 11 else value, "big")

    @staticmethod
    def _routes(session, peer_type, flags, address, rest):
        up = session.up.get(address)
        assert up is not None, f"routes of {address} without a Peer Up"
        assert rest[:16] == b"\xff" * 16 and rest[18] == UPDATE and struct.unpack("!H", rest[16:18])[0] == len(rest)
        if peer_type == LOC_RIB:
            view, path_ids = "loc-rib", set()
        elif flags & OUT:
            view = "out-post" if flags & POST else "out-pre"
            path_ids = wire.path_id_families(up["sent"], up["received"])
        else:
            view = "post" if flags & POST else "pre"
            path_ids = wire.path_id_families(up["received"], up["sent"])
        two = peer_type != LOC_RIB and bool(flags & TWO_OCTET)
        end = wire.apply(session.table(view, address), rest[19:], path_ids, two)
        if end is not None:
            session.ends.append((view, address, end))
