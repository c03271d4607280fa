"""Frames to fpmsyncd are lost or altered on the way: the router finds what fpmsyncd has, and sends it
again. Other programs get none of the messages of the comparison."""

import socket
import struct
import threading

import pytest
from harness import FEED_ASN, Ribtide, fpm, settled, wait_for
from harness.peers import FEEDS
from harness.sonic import Sonic
from harness.speaker import Speaker, prefixes, raw_update, update
from test_sonic import ROUTER, check, own_routes

#: Where the proxy listens.
PORT = 2621
NEWNEXTHOP = 104
#: Messages of the comparison: the offer, a query, a reply.
PRIVATE = {0x7262, 0x7263, 0x7264}
ROUTES = [f"20.0.{n}.0/24" for n in range(40)]


def frames(data):
    """The whole frames at the start, each with the types of its messages, and the rest."""
    found = []
    while len(data) >= 4 and len(data) >= (size := struct.unpack("!H", data[2:4])[0]):
        frame, data = data[:size], data[size:]
        kinds, at = [], 4
        while at + 6 <= size:
            length, kind = struct.unpack("=IH", frame[at:at + 6])
            kinds.append(kind)
            at += max((length + 3) & ~3, 16)
        found.append((frame, kinds))
    return found, data


class Proxy:
    """Between the router and fpmsyncd."""

    def __init__(self, host):
        self.host = host
        #: What becomes of a frame to fpmsyncd: other bytes, or None where it is lost.
        self.change = lambda frame, kinds: frame
        #: How many frames were changed or lost.
        self.changed = 0
        #: The types of messages to fpmsyncd, and from it.
        self.kinds = (set(), set())
        with host.inside():
            self.listener = socket.create_server(("127.0.0.1", PORT))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = wait_for("fpmsyncd listens", lambda: self.host.connect("127.0.0.1", fpm.PORT), 30)
            server.settimeout(None)
            threading.Thread(target=self.pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, False), daemon=True).start()

    def pump(self, source, sink, to_server):
        rest = b""
        try:
            while data := source.recv(65536):
                whole, rest = frames(rest + data)
                out = b""
                for frame, kinds in whole:
                    self.kinds[not to_server].update(kinds)
                    passed = self.change(frame, kinds) if to_server else frame
                    self.changed += passed != frame
                    out += passed or b""
                sink.sendall(out)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def lose(self, wanted, count=1):
        """The next so many frames are lost that `wanted` accepts."""
        left = [count]

        def change(frame, kinds):
            if left[0] == 0 or not wanted(frame, kinds):
                return frame
            left[0] -= 1
            return None
        self.changed, self.change = 0, change


def of(prefix, kind):
    """Accepts frames of this type about this prefix."""
    destination = fpm.attribute(1, socket.inet_aton(prefix.split("/")[0]))
    return lambda frame, kinds: kind in kinds and destination in frame


@pytest.mark.parametrize("suppress", [False, True], ids=["", "suppressed"])
@pytest.mark.parametrize("groups", [False, True], ids=["inline", "groups"])
def test_lost_and_altered_frames_are_found_and_repaired(host, groups, suppress):
    sonic = Sonic(host, suppress=suppress)
    own = own_routes(sonic)
    proxy = Proxy(host)
    settings = f'fpm = ["127.0.0.1:{PORT}"]\nfpm-reconcile-interval = 1\nfpm-next-hop-groups = {str(groups).lower()}\n'
    settings += f"suppress-fib-pending = {str(suppress).lower()}\n"
    router = Ribtide(host, ROUTER.replace(f'fpm = ["127.0.0.1:{fpm.PORT}"]\n', settings))
    speaker = Speaker(host, FEEDS[1], FEED_ASN)
    speaker.send(update(ROUTES, [FEED_ASN, 7], "193.203.0.33"))

    def client():
        [found] = router.show("fpm")["clients"]
        return found

    def compared():
        """Two rounds that began from now on have ended."""
        rounds = client()["compare_rounds"]
        wait_for("another round", lambda: client()["compare_rounds"] >= rounds + 3, 60, alive=[router.process])

    def agrees(wanted):
        """fpmsyncd has what the router has, and exactly these were repaired."""
        settled(lambda: check(sonic, router, own, "rewritten"), 60)
        compared()
        assert {kind: n for kind, n in client()["repairs"].items() if n} == wanted
        assert client()["repairs_failed"] == 0

    wait_for("the table is here", lambda: router.count() == len(ROUTES), 60, alive=[router.process])
    agrees({})
    assert client()["is_compared"] and client()["compared_routes"] > len(ROUTES)

    # A new route, a change of one, and a withdrawal.
    proxy.lose(of("20.1.0.0/24", fpm.NEWROUTE))
    speaker.send(update(["20.1.0.0/24"], [FEED_ASN, 7], "193.203.0.33"))
    wait_for("it is lost", lambda: proxy.changed == 1, 30)
    agrees({"missing": 1})
    proxy.lose(of(ROUTES[0], fpm.NEWROUTE))
    speaker.send(update([ROUTES[0]], [FEED_ASN, 7], "193.203.0.34"))
    wait_for("it is lost", lambda: proxy.changed == 1, 30)
    agrees({"missing": 1, "other-next-hops": 1})
    proxy.lose(of(ROUTES[1], fpm.DELROUTE))
    speaker.send(raw_update(prefixes([ROUTES[1]])))
    wait_for("it is lost", lambda: proxy.changed == 1, 30)
    agrees({"missing": 1, "other-next-hops": 1, "unexpected": 1})

    # One that arrives as another.
    def alter(frame, kinds):
        wrong = frame.replace(socket.inet_aton("20.2.0.0"), socket.inet_aton("20.3.0.0"))
        proxy.change = (lambda frame, kinds: frame) if wrong != frame else alter
        return wrong
    proxy.changed, proxy.change = 0, alter
    speaker.send(update(["20.2.0.0/24"], [FEED_ASN, 7], "193.203.0.33"))
    wait_for("it is altered", lambda: proxy.changed == 1, 30)
    wanted = {"missing": 2, "other-next-hops": 1, "unexpected": 2}
    agrees(wanted)

    if groups:
        proxy.lose(lambda frame, kinds: NEWNEXTHOP in kinds, 2)
        speaker.send(update(["20.4.0.0/24"], [FEED_ASN, 7], "193.203.0.35"))
        wait_for("both objects are lost", lambda: proxy.changed == 2, 30)
        agrees(wanted | {"next-hop-object": 2})
    assert router.process.logged("at the FPM server were not as ribtide sent them; repaired", "prefix=20.1.0.0/24")


def test_a_server_that_does_not_offer_it_gets_no_message_of_the_comparison(host):
    sonic = Sonic(host, flags={"fpmsyncd": ["--as-sonic", "weights"]})
    own_routes(sonic)
    proxy = Proxy(host)
    settings = f'fpm = ["127.0.0.1:{PORT}"]\nfpm-reconcile-interval = 1\n'
    router = Ribtide(host, ROUTER.replace(f'fpm = ["127.0.0.1:{fpm.PORT}"]\n', settings))
    wait_for("it is connected", lambda: router.show("fpm")["clients"][0]["offloaded"] > 0, 60, alive=[router.process])
    assert not router.show("fpm")["clients"][0]["is_compared"]
    to_server, to_client = proxy.kinds
    assert fpm.NEWROUTE in to_server and not PRIVATE & (to_server | to_client)
