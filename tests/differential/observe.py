"""What a router does, seen from outside: the kernel's table, what it advertises, and how many changes that took."""

import collections
import socket
import struct
import time

from harness.speaker import NOTIFICATION, UPDATE

SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, SO_RCVBUFFORCE = 270, 1, 33
#: linux/rtnetlink.h: groups of IPv4 routes and next-hop objects; messages.
GROUPS, NEW_ROUTE, DELETED_ROUTE, NEW_NEXT_HOP, DELETED_NEXT_HOP = (7, 32), 24, 25, 104, 105
MAIN, RTA_DST = 254, 1
#: More messages than this in one step are no answer to any event of a history.
FLOOD = 20_000


def is_fence(prefix):
    """Fences are single addresses from 99.0.0.0/16; nothing else is."""
    return prefix.startswith("99.0.")


class KernelMonitor:
    """Counts the kernel's messages about IPv4 routes of the main table and next-hop objects. It reads when it is asked;
    what comes meanwhile waits in its socket, and an overrun is a flood."""

    def __init__(self, host):
        with host.inside():
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self.socket.bind((0, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        for group in GROUPS:
            self.socket.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
        self.socket.setblocking(False)
        self.fences = set()
        self.reset()

    def reset(self):
        self.routes, self.objects, self.flood = collections.Counter(), [], False

    def poll(self):
        """Reads what has come; whether anything that counts came."""
        before = self.count()
        while self.count() - before < FLOOD:
            try:
                self.take(self.socket.recv(1 << 20))
            except BlockingIOError:
                break
            except OSError:  # ENOBUFS
                self.flood = True
                break
        self.flood |= self.count() > FLOOD
        return self.count() != before or self.flood

    def count(self):
        return sum(self.routes.values()) + len(self.objects)

    def take(self, data):
        at = 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("IH", data, at)
            if kind in (NEW_ROUTE, DELETED_ROUTE) and data[at + 16] == socket.AF_INET and data[at + 20] == MAIN:
                prefix = destination(data[at + 28:at + length], data[at + 17])
                if is_fence(prefix):
                    (self.fences.add if kind == NEW_ROUTE else self.fences.discard)(prefix)
                else:
                    self.routes[prefix] += 1
            elif kind in (NEW_NEXT_HOP, DELETED_NEXT_HOP):
                self.objects.append(("new" if kind == NEW_NEXT_HOP else "deleted", identifier(data[at + 24:at + length])))
            at += (length + 3) & ~3

    def shown(self):
        """What the messages were about, of next-hop objects in their order."""
        objects = " ".join(f"{what} {number:#x}" for what, number in self.objects)
        return f"routes {dict(self.routes)}; {len(self.objects)} of next-hop objects: {objects}"

    def close(self):
        self.socket.close()


def identifier(attributes):
    """The id of a next-hop object, by the attributes of its message, the first of which it is."""
    return struct.unpack_from("I", attributes, 4)[0]


def destination(attributes, length):
    at = 0
    while at + 4 <= len(attributes):
        size, kind = struct.unpack_from("HH", attributes, at)
        if kind == RTA_DST:
            return f"{socket.inet_ntoa(attributes[at + 4:at + 8])}/{length}"
        at += (max(size, 4) + 3) & ~3
    return "0.0.0.0/0"


def kernel_table(kernel):
    """The table of `read_table`, read again while a route names an object that was made after its list."""
    for _ in range(10):
        table = read_table(kernel)
        if not any(hop[0] == "gone" for _, hops in table.values() for hop in hops):
            break
        time.sleep(0.05)
    return table


def read_table(kernel):
    """Prefix → (who, hops): the route that forwards, which is the one of the lowest metric. `who` is "others" for those
    that no routing daemon made, else "router"; hops are (gateway, interface, weight), a blackhole ("blackhole", "", 1)."""
    routes = kernel.routes()
    # The kernel says the hops of most routes itself, also of those by objects.
    objects = kernel.next_hops() if any("nhid" in r and not r.keys() & {"nexthops", "dev"} for r in routes) else {}
    best = {}
    for route in routes:
        prefix = route["dst"]
        if is_fence(prefix) or route.get("protocol") == "kernel":
            continue
        who = "others" if route.get("protocol") == OTHERS else "router"
        metric = route.get("metric", 0)
        if prefix not in best or metric < best[prefix][0]:
            best[prefix] = (metric, (who, frozenset(next_hops(route, objects))))
    return {prefix: value for prefix, (_, value) in best.items()}


#: The protocol number of routes that another program put into the kernel.
OTHERS = "77"


def next_hops(route, objects, weight=1):
    kind = route.get("type", "unicast")
    if kind in ("blackhole", "unreachable", "prohibit"):
        return [(kind, "", 1)]
    if "nexthops" in route:
        parts = [(h.get("via", {}).get("host") or h.get("gateway", ""), h["dev"], h.get("weight", 1)) for h in route["nexthops"]]
    elif "gateway" in route or "dev" in route:
        parts = [(route.get("via", {}).get("host") or route.get("gateway", ""), route["dev"], weight)]
    elif "nhid" in route:
        return named(route["nhid"], objects)
    else:
        raise ValueError(f"a route that is unresolved: {route}")
    return even(parts)


def named(number, objects, weight=1):
    thing = objects.get(number)
    if thing is None:
        return [("gone", "", 1)]
    if "group" in thing:
        return even([(hop[0], hop[1], member.get("weight", 1)) for member in thing["group"] for hop in named(member["id"], objects)])
    if thing.get("blackhole") or "blackhole" in thing.get("flags", []):
        return [("blackhole", "", 1)]
    return [(thing.get("gateway", ""), thing.get("dev", ""), weight)]


def even(parts):
    """Weights by their ratio: routers differ in what they multiply them with. A next hop that is there twice counts twice."""
    total = collections.Counter()
    for gateway, dev, weight in parts:
        total[(gateway, dev)] += weight
    least = min(total.values(), default=1)
    return [(gateway, dev, weight // least if weight % least == 0 else round(weight / least, 2))
            for (gateway, dev), weight in total.items()]


class Observer:
    """A BGP peer that only listens: the final table, and how often each prefix was announced or withdrawn."""

    def __init__(self, speaker):
        self.speaker, self.table, self.fences = speaker, {}, set()
        self.ended = None
        self.reset()

    def reset(self):
        self.changes, self.values = collections.Counter(), collections.defaultdict(list)

    def poll(self):
        before = sum(self.changes.values())
        while self.ended is None:
            try:
                got = self.speaker.read(0.0)
            except (TimeoutError, BlockingIOError):
                break
            if got is None or got[0] == NOTIFICATION:
                self.ended = got or "closed"
            elif got[0] == UPDATE:
                self.take(got[1])
        return sum(self.changes.values()) != before

    def take(self, body):
        size = struct.unpack_from("!H", body)[0]
        for prefix in nlri(body[2:2 + size]):
            if is_fence(prefix):
                self.fences.discard(prefix)
            else:
                self.table.pop(prefix, None)
                self.changed(prefix, None)
        length = struct.unpack_from("!H", body, 2 + size)[0]
        route = attributes(body[4 + size:4 + size + length])
        for prefix in nlri(body[4 + size + length:]):
            if is_fence(prefix):
                self.fences.add(prefix)
            else:
                self.table[prefix] = route
                self.changed(prefix, route)

    def changed(self, prefix, route):
        self.changes[prefix] += 1
        self.values[prefix].append(route)


def nlri(data):
    found, at = [], 0
    while at < len(data):
        length = data[at]
        size = (length + 7) // 8
        found.append(f"{socket.inet_ntoa(data[at + 1:at + 1 + size].ljust(4, bytes(1)))}/{length}")
        at += 1 + size
    return found


def attributes(data):
    """(AS path, next hop, LOCAL_PREF): what says which path was chosen."""
    path, next_hop, preference = (), None, None
    at = 0
    while at < len(data):
        flags, code = data[at], data[at + 1]
        wide = flags & 0x10
        size = struct.unpack_from("!H", data, at + 2)[0] if wide else data[at + 2]
        at += 4 if wide else 3
        value = data[at:at + size]
        at += size
        if code == 2:
            path, inner = [], 0
            while inner < len(value):
                number = value[inner + 1]
                path += struct.unpack_from(f"!{number}I", value, inner + 2)
                inner += 2 + 4 * number
            path = tuple(path)
        elif code == 3:
            next_hop = socket.inet_ntoa(value)
        elif code == 5:
            preference = struct.unpack("!I", value)[0]
    return (path, next_hop, preference)
