"""The kernel of one namespace over a netlink socket of its own: links, addresses, routes of others, and the main table.

One request costs some 50 µs, where a process (`ip netns exec NAME ip ...`) costs ten milliseconds.
"""

import os
import socket
import struct

# linux/netlink.h, linux/rtnetlink.h, linux/nexthop.h
REQUEST, ACK, DUMP, CREATE, EXCL = 1, 4, 0x300, 0x400, 0x200
ERROR, DONE, DUMP_INTERRUPTED = 2, 3, 0x10
SOL_NETLINK, GET_STRICT_CHECK = 270, 12
NEW_LINK, NEW_ADDRESS, DELETE_ADDRESS, NEW_ROUTE, DELETE_ROUTE, GET_ROUTE, GET_NEXT_HOP = 16, 20, 21, 24, 25, 26, 106
IFF_UP, IFA_ADDRESS, IFA_LOCAL = 1, 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH, RTA_VIA, RTA_NH_ID = 1, 4, 5, 6, 9, 18, 30
NHA_ID, NHA_GROUP, NHA_BLACKHOLE, NHA_OIF, NHA_GATEWAY = 1, 2, 4, 5, 6
MAIN, UNIVERSE, NOWHERE, UNICAST, ONLINK = 254, 0, 255, 1, 4
TYPES = {1: "unicast", 6: "blackhole", 7: "unreachable", 8: "prohibit"}
PROTOCOLS = {2: "kernel"}


def attribute(kind, value):
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data):
    """Type → value; the flags of a type are taken off."""
    found, at = {}, 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("HH", data, at)
        found[kind & 0x3fff] = data[at + 4:at + size]
        at += (max(size, 4) + 3) & ~3
    return found


def number(value):
    return struct.unpack("I", value)[0]


class Kernel:
    """Requests, each answered before it returns. OSError is the kernel's refusal."""

    def __init__(self, host):
        with host.inside():
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            self.links = {name: index for index, name in socket.if_nameindex()}
        self.socket.bind((0, 0))
        self.socket.setsockopt(SOL_NETLINK, GET_STRICT_CHECK, 1)
        self.socket.settimeout(20)
        self.names = {index: name for name, index in self.links.items()}
        self.sequence = 0

    def close(self):
        self.socket.close()

    def send(self, kind, flags, body):
        self.sequence += 1
        self.socket.send(struct.pack("IHHII", 16 + len(body), kind, flags | REQUEST, self.sequence, 0) + body)

    def change(self, kind, flags, body):
        self.send(kind, flags | ACK, body)
        for got, data in self.answers():
            if got == ERROR and (error := struct.unpack_from("i", data)[0]):
                raise OSError(-error, os.strerror(-error))

    def answers(self):
        """Messages of the answer to the last request, to its end."""
        while True:
            data, at = self.socket.recv(1 << 18), 0
            while at + 16 <= len(data):
                length, kind, flags, sequence, _ = struct.unpack_from("IHHII", data, at)
                if sequence == self.sequence:
                    if flags & DUMP_INTERRUPTED:
                        raise InterruptedError
                    if kind == DONE:
                        return
                    yield kind, data[at + 16:at + length]
                    if kind == ERROR:
                        return
                at += (length + 3) & ~3

    def dump(self, kind, body):
        """All messages of a dump; it begins again where the table changed meanwhile."""
        while True:
            self.send(kind, DUMP, body)
            try:
                return list(self.answers())
            except InterruptedError:
                continue

    def link(self, name, up):
        self.change(NEW_LINK, 0, struct.pack("BxHiII", 0, 0, self.links[name], IFF_UP if up else 0, IFF_UP))

    def address(self, link, text, present):
        local, length = text.split("/")
        local = socket.inet_aton(local)
        self.change(NEW_ADDRESS if present else DELETE_ADDRESS, CREATE | EXCL if present else 0,
                    struct.pack("BBBBI", socket.AF_INET, int(length), 0, UNIVERSE, self.links[link])
                    + attribute(IFA_LOCAL, local) + attribute(IFA_ADDRESS, local))

    def add_route(self, prefix, protocol, metric, hops, onlink=True):
        """A route of others, by (gateway, link), each taken for on the link or, without `onlink`, in a subnet of it."""
        packed = b""
        for gateway, link in hops:
            via = attribute(RTA_GATEWAY, socket.inet_aton(gateway))
            packed += struct.pack("HBBi", 8 + len(via), ONLINK if onlink else 0, 0, self.links[link]) + via
        more = attribute(RTA_PRIORITY, struct.pack("I", metric)) if metric else b""
        self.change(NEW_ROUTE, CREATE | EXCL, self.route(prefix, protocol, UNIVERSE, UNICAST) + more + attribute(RTA_MULTIPATH, packed))

    def delete_route(self, prefix, protocol):
        self.change(DELETE_ROUTE, 0, self.route(prefix, protocol, NOWHERE, 0))

    def route(self, prefix, protocol, scope, kind):
        address, length = prefix.split("/")
        return struct.pack("BBBBBBBBI", socket.AF_INET, int(length), 0, 0, MAIN, protocol, scope, kind, 0) \
            + attribute(RTA_DST, socket.inet_aton(address))

    def routes(self):
        """Routes of the main table, in the words of `ip -j route`."""
        found = []
        for kind, data in self.dump(GET_ROUTE, struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, MAIN, 0, 0, 0, 0)):
            if kind != NEW_ROUTE:
                continue
            _, length, _, _, _, protocol, _, what, _ = struct.unpack_from("BBBBBBBBI", data)
            given = attributes(data[12:])
            route = {"dst": f"{socket.inet_ntoa(given.get(RTA_DST, bytes(4)))}/{length}", "type": TYPES.get(what, str(what)),
                     "protocol": PROTOCOLS.get(protocol, str(protocol)), **self.next_hop(given)}
            if RTA_PRIORITY in given:
                route["metric"] = number(given[RTA_PRIORITY])
            if RTA_NH_ID in given:
                route["nhid"] = number(given[RTA_NH_ID])
            if hops := given.get(RTA_MULTIPATH):
                route["nexthops"], at = [], 0
                while at + 8 <= len(hops):
                    size, _, weight, index = struct.unpack_from("HBBi", hops, at)
                    hop = self.next_hop(attributes(hops[at + 8:at + size]))
                    route["nexthops"].append({**hop, "dev": self.names[index], "weight": weight + 1})
                    at += (size + 3) & ~3
            found.append(route)
        return found

    def next_hop(self, given):
        """A gateway and an interface, as far as they are given."""
        found = {}
        if RTA_GATEWAY in given:
            found["gateway"] = socket.inet_ntoa(given[RTA_GATEWAY])
        if RTA_VIA in given:
            found["via"] = {"host": given[RTA_VIA][2:].hex()}
        if RTA_OIF in given:
            found["dev"] = self.names[number(given[RTA_OIF])]
        return found

    def next_hops(self):
        """Next-hop objects by their numbers, in the words of `ip -j nexthop`."""
        found = {}
        for kind, data in self.dump(GET_NEXT_HOP, struct.pack("BBBBI", 0, 0, 0, 0, 0)):
            if kind == ERROR:
                continue
            given = attributes(data[8:])
            thing = {"id": number(given[NHA_ID])}
            if NHA_GROUP in given:
                members = [struct.unpack_from("IB", given[NHA_GROUP], at) for at in range(0, len(given[NHA_GROUP]), 8)]
                thing["group"] = [{"id": member, "weight": weight + 1} for member, weight in members]
            if NHA_BLACKHOLE in given:
                thing["blackhole"] = True
            if NHA_GATEWAY in given:
                thing["gateway"] = socket.inet_ntoa(given[NHA_GATEWAY][:4])
            if NHA_OIF in given:
                thing["dev"] = self.names[number(given[NHA_OIF])]
            found[thing["id"]] = thing
        return found
