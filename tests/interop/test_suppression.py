"""FIB suppression: a neighbour gets a prefix when packets to it are forwarded, and not before.
It does not get a prefix that a dataplane refuses, until the dataplane accepts it."""

import ipaddress
import json
import struct
import time

from harness import TIMEOUT_FACTOR, Host, Ribtide, wait_for
from harness.config import HEAD, LAB, external
from harness.speaker import UPDATE, Speaker, raw_update, prefixes as nlri, update

SENDER, RECEIVER = Host.FEEDS
CONFIG = (HEAD + "shards = 3\n" + external("sender", 65010, SENDER, 'import = ["accept"]')
          + external("receiver", 65020, RECEIVER, 'export = ["accept"]') + "[fib]\nsuppress-fib-pending = true\n")
ASIC = CONFIG + LAB
KERNEL = CONFIG + "kernel = { table = 254 }\n"
ALL = [f"20.{n // 256}.{n % 256}.0/24" for n in range(2000)]


def networks(data):
    found = []
    while data:
        size = (data[0] + 7) // 8
        address = ipaddress.ip_address(data[1:1 + size].ljust(4, b"\0"))
        found.append(f"{address}/{data[0]}")
        data = data[1 + size:]
    return found


class Receiver:
    """A neighbour that checks the dataplane at each UPDATE."""

    def __init__(self, host, forwarded):
        self.speaker, self.forwarded = Speaker(host, RECEIVER, 65020), forwarded
        self.table, self.ever = set(), set()

    def listen(self, enough, within=60):
        end = time.monotonic() + within * TIMEOUT_FACTOR
        while not enough():
            late = time.monotonic() >= end
            try:
                kind, body = self.speaker.read(0.2)
            except TimeoutError:
                assert not late, f"{len(self.table)} prefixes told, {len(self.ever)} ever"
                continue
            if kind == UPDATE:
                self.take(body)

    def take(self, body):
        cut = struct.unpack("!H", body[:2])[0]
        size = struct.unpack("!H", body[2 + cut:4 + cut])[0]
        told = networks(body[4 + cut + size:])
        early = set(told) - self.forwarded(told) if told else set()
        assert not early, f"told before it is forwarded: {sorted(early)[:5]}"
        self.table -= set(networks(body[2:2 + cut]))
        self.table |= set(told)
        self.ever |= set(told)

    def quiet(self, seconds=1.5):
        """The messages within this time."""
        end = time.monotonic() + seconds
        self.listen(lambda: time.monotonic() >= end)


def announce(sender, texts, next_hop):
    for start in range(0, len(texts), 100):
        sender.send(update(texts[start:start + 100], [65010], next_hop))


def failed(router):
    lines = router.text("show", "route", "failed", "--json").splitlines()
    return {r["prefix"]: r for r in map(json.loads, lines)}


def test_a_route_refused_by_the_chip_is_never_advertised(host):
    router = Ribtide(host, ASIC)

    def in_the_chip(texts):
        addresses = [text.split("/")[0] for text in texts]
        answers = json.loads(router.text("show", "asic", *addresses, "--json"))["lookups"]
        return {a["prefix"] for a in answers if a["action"] == "forward"}

    refused = ALL[::100]
    router.text("config", "asic", "refuse", *refused)
    receiver = Receiver(host, in_the_chip)
    sender = Speaker(host, SENDER, 65010)
    announce(sender, ALL, "10.0.0.5")
    receiver.listen(lambda: len(receiver.table) == len(ALL) - len(refused))
    receiver.quiet()
    assert receiver.ever == set(ALL) - set(refused)

    assert failed(router).keys() == set(refused)
    assert all(r["dataplane"] == "virtual-asic" and r["reason"] for r in failed(router).values())
    explained = router.explain(refused[0])
    assert any("not advertised" in line for line in explained["stages"][0]["messages"]), explained
    assert "virtual-asic" in explained["conclusion"], explained
    summary = json.loads(router.text("show", "route", "summary", "--json"))
    assert (summary["bgp"]["waiting"], summary["bgp"]["blocked"]) == (0, len(refused))

    # Another next hop, which the chip refuses: what was told is taken back, as it is not known where packets go.
    late = ALL[1]
    router.text("config", "asic", "refuse", late)
    sender.send(update([late], [65010], "10.0.0.6"))
    receiver.listen(lambda: late not in receiver.table)
    # Without suppression all is told, and with it again what has failed is taken back.
    watch, receiver.forwarded = receiver.forwarded, set
    router.text("config", "fib", "suppress-fib-pending", "off")
    receiver.listen(lambda: receiver.table == set(ALL))
    router.text("config", "fib", "suppress-fib-pending", "on")
    receiver.listen(lambda: receiver.table == set(ALL) - set(refused) - {late})
    receiver.forwarded = watch
    # The cause clears: it is tried again, and told.
    router.text("config", "asic", "take", late, *refused)
    receiver.listen(lambda: receiver.table == set(ALL), 90)
    assert failed(router) == {}

    # No path any more: nothing to wait for.
    sender.send(raw_update(withdrawn=nlri(ALL[:50])))
    receiver.listen(lambda: receiver.table == set(ALL[50:]))
    # On other threads, routes stay as told.
    router.text("config", "bgp", "shards", "2")
    receiver.quiet()
    assert receiver.table == set(ALL[50:])
    assert router.neighbor(RECEIVER)["flaps"] == 0


def test_one_percent_that_a_slow_chip_fails_is_never_advertised(host):
    # The same 1% of all destinations each time that they are tried.
    chip = "{ fail-rate = 0.01, rate = 5000 }"
    router = Ribtide(host, ASIC.replace("{ lab = true }", f"{{ lab = true, chip = {chip} }}"))
    router.ends_differing("the chip refuses one route in a hundred")
    everything = [f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24" for n in range(10_000)]

    def in_the_chip(texts):
        addresses = [text.split("/")[0] for text in texts]
        answers = json.loads(router.text("show", "asic", *addresses, "--json"))["lookups"]
        return {a["prefix"] for a in answers if a["action"] == "forward"}

    receiver = Receiver(host, in_the_chip)
    sender = Speaker(host, SENDER, 65010)
    announce(sender, everything, "10.0.0.5")
    receiver.listen(lambda: len(receiver.table) >= 9_850, 120)
    receiver.listen(lambda: set(everything) - receiver.table == failed(router).keys(), 60)
    refused = failed(router).keys()
    assert 50 <= len(refused) <= 150, len(refused)
    assert receiver.ever == set(everything) - refused, "one that failed was told"
    # Withdrawn and announced again by the other way while the chip stalls: nothing is told of what it has not confirmed.
    router.text("config", "asic", "stall")
    sender.send(raw_update(withdrawn=nlri(everything[:100])))
    receiver.listen(lambda: not receiver.table & set(everything[:100]))
    announce(sender, everything[:100], "10.0.0.6")
    receiver.quiet()
    assert not receiver.table & set(everything[:100])
    router.text("config", "asic", "resume")
    receiver.listen(lambda: receiver.table == set(everything) - refused)
    state = json.loads(router.text("show", "asic", "--json"))
    assert not state["stalled"] and state["failed"] >= len(refused) and state["busy_seconds"] >= 2.0, state
    assert router.neighbor(RECEIVER)["flaps"] == 0


def test_a_route_refused_by_the_kernel_is_never_advertised(host):
    host.lan("lan0", "10.9.0.1/24")
    router = Ribtide(host, KERNEL)

    def in_the_kernel(_):
        return {r["dst"] for r in json.loads(host.ip("-j", "-4", "route", "show", "table", "254", "proto", "bgp"))}

    receiver = Receiver(host, in_the_kernel)
    sender = Speaker(host, SENDER, 65010)
    # To the RIB manager a neighbour like any other; to the kernel a broadcast address, and no gateway.
    refused = ALL[:20]
    host.ip("route", "add", "broadcast", "10.9.0.77", "dev", "lan0", "table", "local")
    announce(sender, refused, "10.9.0.77")
    announce(sender, ALL[20:], "10.9.0.7")
    receiver.listen(lambda: len(receiver.table) == len(ALL) - len(refused))
    receiver.quiet()
    assert receiver.ever == set(ALL) - set(refused)
    wait_for("they are listed", lambda: failed(router).keys() == set(refused), 20)
    assert {r["dataplane"] for r in failed(router).values()} == {"kernel"}
    # The cause clears without a word: the next try finds out.
    host.ip("route", "del", "broadcast", "10.9.0.77", "dev", "lan0", "table", "local")
    receiver.listen(lambda: receiver.table == set(ALL), 90)
    assert failed(router) == {}
