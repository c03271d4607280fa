"""ribtide is killed and started again many times, and both ends connect at the same instant: BIRD, FRR and GoBGP are held (SIGSTOP)
while it starts, so its connections wait at their ports, and their own timers are due when they go on. No session ends again, and no
route that they retain is withdrawn (RFC 4271 section 6.8, RFC 4724).

RESTARTS is the number of restarts. With `-s` the test prints what it counted, for docs/trust.md."""

import collections
import json
import os
import random
import signal
import socket
import struct
import threading
import time

import pytest
from harness import FEED_ASN, Host, Ribtide, wait_for
from harness.speaker import Speaker
from test_graceful_restart import capability
from test_restart_load import FEED, Observer, all_prefixes, config, messages, wire, world

__all__ = ["world"]
RESTARTS = int(os.environ.get("RESTARTS", "4"))
#: A Cease for the collision of connections, from its marker on: RFC 4271 section 4.5, RFC 4486.
COLLISION = b"\xff" * 16 + struct.pack("!HBBB", 21, 3, 6, 7)


class Collisions(threading.Thread):
    """Counts NOTIFICATIONs for a collision, and connections that begin, on the links of a host: `sent` and `received` by interface."""

    def __init__(self, host, interfaces):
        super().__init__(daemon=True)
        self.counts, self.running = collections.Counter(), True
        with host.inside():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
        self.socket.settimeout(0.1)
        self.interfaces = interfaces
        self.start()

    def run(self):
        while self.running:
            try:
                data, (interface, protocol, direction, _, _) = self.socket.recvfrom(1 << 16)
            except TimeoutError:
                continue
            if interface in self.interfaces and protocol == 0x0800 and data[9] == socket.IPPROTO_TCP:
                # PACKET_OUTGOING
                way = "sent" if direction == 4 else "received"
                self.counts[self.interfaces[interface], way] += data.count(COLLISION)
                head = (data[0] & 15) * 4
                self.counts[self.interfaces[interface], f"SYN {way}"] += data[head + 13] & 0x12 == 0x02

    def stop(self):
        self.running = False
        self.join()


@pytest.mark.alone
@pytest.mark.feature("connection collisions (RFC 4271 section 6.8)")
@pytest.mark.peers("bird", "frr", "gobgp")
def test_both_ends_connect_at_the_same_instant(world):
    host, receivers = world
    prefixes = [wire(text) for text in all_prefixes(300)]
    everything = set(prefixes)
    router = Ribtide(host, config(receivers, False))

    def feed():
        speaker = Speaker(host, FEED, FEED_ASN, more=capability(120, forwarding=True))
        speaker.send(messages(prefixes))
        return speaker

    speaker = feed()
    observers = {r.kind: Observer(r.host) for r in receivers}
    has_all = lambda: all(everything <= observer.table for observer in observers.values())
    wait_for("the observers have all", has_all, 60, alive=[router.process])
    wait_for("initial routes are over", lambda: (host.folder / "ribtide.run").exists(), 60)
    for observer in observers.values():
        observer.mark()
    kinds, daemons = {r.four: r.kind for r in receivers}, []
    for r in receivers:
        processes = getattr(r.daemon, "processes", None)
        daemons.append(processes["bgpd"] if processes else r.daemon.process)
    collisions = Collisions(host, {f"eth{r.number}": r.kind for r in receivers})
    numbers, flaps, slowest = random.Random(os.environ.get("SEED", "1")), collections.Counter(), collections.Counter()
    for n in range(1, RESTARTS + 1):
        router.process.kill()
        time.sleep(numbers.uniform(0.1, 1.3))
        for daemon in daemons:
            daemon.popen.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            router.start()
            # Longer than their pauses between two attempts.
            time.sleep(max(0, began + 1.3 + numbers.uniform(0, 0.3) - time.monotonic()))
        finally:
            for daemon in daemons:
                daemon.popen.send_signal(signal.SIGCONT)
        speaker, on = feed(), time.monotonic()
        waiting = set(kinds)
        def sessions():
            for four in [four for four in waiting if router.established(four)]:
                waiting.discard(four)
                slowest[kinds[four]] = max(slowest[kinds[four]], round(time.monotonic() - on, 2))
            return not waiting
        wait_for("all are back", sessions, 60, 0.05, alive=[router.process])
        wait_for("the restart is over", lambda: len(router.process.logged("the restart is over")) >= n, 60, alive=[router.process])
        # A collision ends a session within milliseconds.
        time.sleep(0.5)
        wait_for("all are still back", lambda: all(map(router.established, kinds)), 60)
        for four, kind in kinds.items():
            flaps[kind] += router.neighbor(four)["flaps"]
    time.sleep(1)
    collisions.stop()
    withdrawn = {}
    for kind, observer in observers.items():
        observer.stop()
        assert observer.error is None, (kind, observer.error)
        withdrawn[kind] = sum(observer.withdrawn[prefix] for prefix in everything)
    counts = {f"{kind}: {what}": count for (kind, what), count in sorted(collisions.counts.items())}
    print(json.dumps({"restarts": RESTARTS, "flaps": flaps, "withdrawn": withdrawn, "longest until a session, s": slowest, **counts}, indent=1))
    ends = router.process.logged("the session is down")
    assert not any(withdrawn.values()), (withdrawn, flaps, counts, ends)
    assert not any(flaps.values()), (flaps, counts, ends)
    assert speaker
    assert all(everything <= observer.table for observer in observers.values())
