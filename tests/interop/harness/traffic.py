"""Packets between hosts: echo requests, datagrams and connections, whose ends are the kernels of the hosts."""

import contextlib
import os
import select
import socket
import struct
import threading

#: The port of [`echo`].
ECHO = 7777


def ping(host, address, count, timeout=5.0):
    """How many of `count` echo requests are answered, by the right one and with what was sent. A few are under way at a
    time, because the queues of the switch drop when they are full; it ends when none is answered for `timeout`."""
    six = ":" in address
    family, protocol, request, reply = (socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129) if six else (socket.AF_INET, socket.IPPROTO_ICMP, 8, 0)
    with host.inside(), socket.socket(family, socket.SOCK_RAW, protocol) as s:
        ident = os.getpid() & 0xffff
        sent, answered = 0, set()
        while len(answered) < count:
            while sent < count and sent - len(answered) < 16:
                packet = struct.pack("!BBHHH", request, 0, 0, ident, sent) + b"ribtide" * 8
                if not six:
                    # The kernel does it for ICMPv6 alone.
                    packet = packet[:2] + struct.pack("!H", internet_checksum(packet)) + packet[4:]
                s.sendto(packet, (address, 0))
                sent += 1
            if not select.select([s], [], [], timeout)[0]:
                break
            data, (source, *_) = s.recvfrom(2048)
            data = data if six else data[(data[0] & 15) * 4:]
            kind, _, _, its, n = struct.unpack("!BBHHH", data[:8])
            if (kind, its, source, data[8:]) == (reply, ident, address, b"ribtide" * 8):
                answered.add(n)
        return len(answered)


def internet_checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


@contextlib.contextmanager
def echo(host, name, address):
    """A service that says its name to each datagram, and returns all that a connection sends."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with host.inside():
        datagrams, listener = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_STREAM)
    with datagrams, listener:
        datagrams.bind((address, ECHO))
        listener.bind((address, ECHO))
        listener.listen()
        stop = threading.Event()

        def serve():
            while not stop.is_set():
                ready, _, _ = select.select([datagrams, listener], [], [], 0.1)
                if datagrams in ready:
                    _, source = datagrams.recvfrom(2048)
                    datagrams.sendto(name.encode(), source)
                if listener in ready:
                    connection, _ = listener.accept()
                    with connection:
                        while data := connection.recv(1 << 16):
                            connection.sendall(data)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def ask(host, address, first, count):
    """The names of those that answer a datagram from each of `count` ports."""
    family, names = (socket.AF_INET6 if ":" in address else socket.AF_INET), []
    for port in range(first, first + count):
        with host.inside(), socket.socket(family, socket.SOCK_DGRAM) as s:
            s.settimeout(5)
            s.bind(("", port))
            s.sendto(b"who", (address, ECHO))
            names.append(s.recv(64).decode())
    return names
