"""Counts of the kernel's notifications about routes and next-hop objects."""

import collections
import contextlib
import socket
import struct
import threading
import time

# linux/rtnetlink.h, linux/netlink.h
GROUPS = {"IPv4 routes": 7, "IPv6 routes": 11, "next hops": 32}
NAMES = {24: "new route", 25: "deleted route", 104: "new next hop", 105: "deleted next hop"}
SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, SO_RCVBUFFORCE = 270, 1, 33


class Messages:
    """Counts notifications until `stop`: `counts` by kind, `prefixes` by IPv4 route (as its
    address). `order` has the kinds of the first notifications, and the address of an IPv4 route."""

    def __init__(self, host):
        self.counts, self.prefixes, self.order = collections.Counter(), collections.Counter(), []
        with host.inside():
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self.socket.bind((0, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 512 << 20)
        for group in GROUPS.values():
            self.socket.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
        self.socket.settimeout(0.1)
        self.running, self.heard = True, time.monotonic()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.running:
            with contextlib.suppress(TimeoutError):
                # An overrun raises: a count with gaps is none.
                self.take(self.socket.recv(1 << 20))

    def take(self, data):
        self.heard = time.monotonic()
        at = 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("IH", data, at)
            self.counts[NAMES.get(kind, str(kind))] += 1
            prefix = None
            if kind in (24, 25) and data[at + 16] == socket.AF_INET:
                prefix = destination(data[at + 28:at + length])
                self.prefixes[prefix] += 1
            if len(self.order) < 100:
                self.order.append((NAMES.get(kind, str(kind)), prefix))
            at += (length + 3) & ~3

    def total(self):
        return sum(self.counts.values())

    def stop(self, quiet=1.0):
        """The counts, after `quiet` seconds without a notification."""
        while time.monotonic() - self.heard < quiet:
            assert self.thread.is_alive(), "messages were lost"
            time.sleep(0.05)
        self.running = False
        self.thread.join()
        self.socket.close()
        return dict(self.counts)


def destination(attributes):
    """RTA_DST as text; a default route has none."""
    at = 0
    while at + 4 <= len(attributes):
        length, kind = struct.unpack_from("HH", attributes, at)
        if kind == 1:
            return socket.inet_ntoa(attributes[at + 4:at + 8])
        at += (max(length, 4) + 3) & ~3
    return "default"
