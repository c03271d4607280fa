"""The routers under test, each in a namespace of its own with the same links, addresses and peers: ribtide, FRR, BIRD."""

import contextlib
import itertools
import shutil
import socket
import subprocess
import time

from harness import Bird, Frr, Host, Ribtide, binary, wait_for
from harness.speaker import Speaker, attribute, prefixes, raw_update, block
from observe import OTHERS, KernelMonitor, Observer, kernel_table
from world import ASN, FENCE, FEEDS, LINKS, OBSERVERS, PEERS, ROUTER, World, expand, net, own, subnet


class Side:
    """What the harness's speaker wants of a host: who connects, and where to."""

    def __init__(self, host, to):
        self.feeds, self.FEED_SIDE, self.sessions = host.feeds, to, []


class Router:
    """A router in its world. `apply` makes an event happen, `settle` waits until nothing happens any more."""

    name = None

    def __init__(self, folder, profile):
        self.profile = profile
        self.host = Host(folder, self.name)
        try:
            self.build()
        except BaseException:
            self.close()
            raise

    def build(self):
        host = self.host
        host.feeds.address("feed0", *(f"{p.address}/24" for p in PEERS.values()
                                      if p.link is None and p.address not in Host.FEEDS))
        for link in LINKS:
            host.join(host.feeds, link)
            host.address(link, f"{own(link)}/24")
            host.feeds.address(link, *(f"{subnet(link)}.{n}/24" for n in (2, 3)))
        self.world = World()
        self.speakers, self.numbers, self.fence = {}, itertools.count(), None
        self.start()
        self.monitor = KernelMonitor(host)
        self.speakers[FENCE.name] = self.speaker(FENCE)
        self.observers = {p.name: Observer(self.speaker(p)) for p in OBSERVERS}

    def close(self):
        for speaker in getattr(self, "speakers", {}).values():
            speaker.close()
        for observer in getattr(self, "observers", {}).values():
            observer.speaker.close()
        self.host.close()

    def alive(self):
        return all(process.poll() is None for process in self.host.processes)

    def speaker(self, peer):
        to = own(peer.link) if peer.link else ROUTER
        try:
            return Speaker(Side(self.host, to), peer.address, peer.asn)
        except AssertionError as e:
            raise AssertionError(f"{self.name}: {e}") from e

    # Events.

    def apply(self, event):
        self.world.apply(event)
        getattr(self, event["do"])(event)

    def link(self, event):
        host = self.host if event["how"] == "admin" else self.host.feeds
        host.ip("link", "set", event["link"], "up" if event["up"] else "down")
        self.sessions()

    def address(self, event):
        with contextlib.suppress(AssertionError):
            self.host.ip("addr", "add" if event["present"] else "del", event["address"], "dev", event["link"])

    def kernel(self, event):
        with contextlib.suppress(AssertionError):  # There was none.
            self.host.ip("route", "del", event["prefix"], "proto", OTHERS)
        ways = [word for gateway, link in event["via"] for word in ("nexthop", "via", gateway, "dev", link, "onlink")]
        if ways:
            metric = ["metric", event["metric"]] if event.get("metric") else []
            with contextlib.suppress(AssertionError):  # The kernel takes none by a link that is down.
                self.host.ip("route", "add", event["prefix"], "proto", OTHERS, *metric, *ways)

    def peer(self, event):
        self.sessions()

    def sessions(self):
        """Sessions are there whose peers are and whose links are up, and a new one says all that its peer has to say."""
        for peer in FEEDS:
            speaker = self.speakers.get(peer.name)
            if speaker and not self.world.session(peer.name):
                speaker.close()
                del self.speakers[peer.name]
            elif not speaker and self.world.session(peer.name) and self.reachable(peer):
                self.speakers[peer.name] = self.speaker(peer)
                for prefix, said in self.world.says[peer.name].items():
                    self.say(peer, [prefix], said)

    def reachable(self, peer):
        return peer.link is None or f"{own(peer.link)}/24" in self.world.addresses[peer.link]

    def say(self, peer, what, said):
        more = [attribute(0x40, 5, said["local_pref"].to_bytes(4, "big"))] if "local_pref" in said else []
        for n in range(0, len(what), 500):
            self.speakers[peer.name].send(raw_update(b"", block(said["path"], said["next_hop"], *more), prefixes(what[n:n + 500])))

    def announce(self, event):
        if event["peer"] in self.speakers:
            self.say(PEERS[event["peer"]], expand(event["prefix"], event.get("count", 1)), event)

    def withdraw(self, event):
        if event["peer"] in self.speakers:
            what = expand(event["prefix"], event.get("count", 1))
            for n in range(0, len(what), 500):
                self.speakers[event["peer"]].send(raw_update(prefixes(what[n:n + 500])))

    def static(self, event):
        raise NotImplementedError

    # Settling.

    def raise_fence(self):
        """Announces one more fence and withdraws the last: once it is through, so is all that was said before it."""
        speaker = self.speakers[FENCE.name]
        old, self.fence = self.fence, f"99.0.{(n := next(self.numbers)) // 250 % 250}.{n % 250}/32"
        if old:
            speaker.send(raw_update(prefixes([old])))
        speaker.send(raw_update(b"", block([FENCE.asn], FENCE.address), prefixes([self.fence])))

    def poll(self):
        """Whether anything was heard."""
        heard = self.monitor.poll()
        for observer in self.observers.values():
            heard |= observer.poll()
        return heard

    def through(self):
        return self.fence in self.monitor.fences and all(self.fence in o.fences for o in self.observers.values())

    def settle(self, quiet, limit):
        """Waits until the fence is through and nothing was heard for `quiet` seconds; False if that takes longer than
        `limit`: it does not converge."""
        self.raise_fence()
        end = time.monotonic() + limit
        heard = time.monotonic()
        while time.monotonic() < end:
            if self.poll():
                heard = time.monotonic()
                if self.monitor.flood:
                    return False
            elif self.through() and time.monotonic() - heard >= quiet:
                return True
            time.sleep(0.01)
        return False

    def reset_counts(self):
        self.monitor.reset()
        for observer in self.observers.values():
            observer.reset()

    def state(self):
        """What can be compared: the kernel's table, and what each observer was advertised."""
        return {"kernel": kernel_table(self.host), **{name: dict(o.table) for name, o in self.observers.items()}}

    def changes(self):
        return {"kernel": self.monitor.count(), **{name: sum(o.changes.values()) for name, o in self.observers.items()}}


def peers_of(kind):
    return [p for p in PEERS.values() if p.kind == kind and not p.observer]


class RibtideRouter(Router):
    name = "ribtide"

    def start(self):
        self.process = Ribtide(self.host, self.config())

    def config(self):
        groups = ""
        for p in PEERS.values():
            kind = "internal" if p.asn == ASN else "external"
            groups += f"""
[bgp.group.{p.name}]
type = "{kind}"
peer-asn = {p.asn}
passive = true
import = ["{'reject' if p.observer else 'accept'}"]
export = ["{'accept' if p.observer else 'reject'}"]
neighbors = ["{p.address}"]
{'multihop = 5' if p.kind == 'multihop' else ''}
{'route-reflector-client = true' if p.kind == 'client' else ''}
"""
        return f"""
[router]
asn = {ASN}
router-id = "{ROUTER}"

[bgp]
listen = ["0.0.0.0:179"]
shards = 2
multipath = {self.profile["multipath"]}
multipath-relax = true

[fib]
kernel = true
resolve-via-default = {str(self.profile["resolve_via_default"]).lower()}
nexthop-cache = "{self.profile.get("cache", "dependency")}"
{groups}"""

    def static(self, event):
        text = self.config()
        for prefix, routes in self.world.statics.items():
            for route in routes:
                what = "blackhole = true" if route.get("blackhole") else "next-hop = [" + ", ".join(f'"{a}"' for a in route["via"]) + "]"
                text += f'\n[[static]]\nprefix = "{prefix}"\ndistance = {route["distance"]}\n{what}\n'
        self.process.config.write_text(text + f'\n[api]\nsocket = "{self.process.socket}"\n')
        self.process.text("reload")


class FrrRouter(Router):
    name = "frr"

    def start(self):
        lines = []
        for p in PEERS.values():
            lines += [f"neighbor {p.address} remote-as {p.asn}", f"neighbor {p.address} passive"]
            if p.kind == "multihop":
                lines.append(f"neighbor {p.address} ebgp-multihop 5")
        family = [f"maximum-paths {self.profile['multipath']}", f"maximum-paths ibgp {self.profile['multipath']}"]
        for p in PEERS.values():
            family.append(f"neighbor {p.address} prefix-list none {'in' if p.observer else 'out'}")
            if p.kind == "client":
                family.append(f"neighbor {p.address} route-reflector-client")
        text = "\n ".join([f"ip prefix-list none deny any\nrouter bgp {ASN}", f"bgp router-id {ROUTER}", "no bgp ebgp-requires-policy",
                           "no bgp network import-check", "bgp bestpath as-path multipath-relax", "bgp bestpath compare-routerid",
                           "coalesce-time 0", *lines, "address-family ipv4 unicast", *family, "exit-address-family"]) + "\n"
        # The harness's host of FRR has its folder made by a process that is not root.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.host.folder / "frr")
        way = "" if self.profile["resolve_via_default"] else "no "
        self.process = Frr(self.host, bgpd=text, staticd="", zebra=f"{way}ip nht resolve-via-default\n")
        self.terminal, self.lines = None, set()

    def tell(self, *commands):
        """Says commands to staticd's terminal, as vtysh does: each ends with a zero octet, an answer with three and a status."""
        if self.terminal is None:
            self.terminal = socket.socket(socket.AF_UNIX)
            self.terminal.connect(str(self.process.folder / "staticd.vty"))
            self.terminal.settimeout(20)
            self.tell("enable", "configure terminal")
        for command in commands:
            self.terminal.sendall(command.encode() + b"\0")
            answer = b""
            while answer[-4:-1] != bytes(3):
                piece = self.terminal.recv(4096)
                assert piece, f"staticd closed its terminal at {command}"
                answer += piece
            assert answer[-1] == 0, (command, answer)

    def static(self, event):
        lines = set()
        for prefix, routes in self.world.statics.items():
            for route in routes:
                for way in ["blackhole"] if route.get("blackhole") else route["via"]:
                    lines.add(f"ip route {prefix} {way} {route['distance']}")
        self.tell(*(f"no {line}" for line in sorted(self.lines - lines)), *sorted(lines - self.lines))
        self.lines = lines


class BirdRouter(Router):
    name = "bird"
    #: One protocol for each distance, for one has a prefix once. BGP's preference is 100.
    PREFERENCE = {1: 220, 5: 210, 210: 50}

    def start(self):
        self.process = Bird(self.host, self.config())

    def config(self):
        limit = self.profile["multipath"]
        text = f"""
router id {ROUTER};
log stderr {{ warning, error, fatal, bug }};
protocol device {{ scan time 2; }}
protocol direct {{ ipv4; check link yes; }}
protocol kernel {{
    learn yes; scan time 2; metric 20; {f'merge paths on limit {limit};' if limit > 1 else ''}
    ipv4 {{ preference 250; import all; export filter {{ if source = RTS_DEVICE then reject; if dest = RTD_UNREACHABLE then reject; accept; }}; }};
}}
template bgp ours {{
    local as {ASN}; passive; enforce first as off;
    connect retry time 1; error wait time 1,1; connect delay time 1; error forget time 1;
}}
filter observed {{ if source != RTS_BGP then reject; if dest = RTD_UNREACHABLE then reject; accept; }}
"""
        for distance, preference in self.PREFERENCE.items():
            text += f"protocol static s{distance} {{ check link yes; ipv4 {{ preference {preference}; }};\n"
            for prefix, routes in self.world.statics.items():
                for route in routes:
                    if route["distance"] == distance:
                        text += f"    route {prefix} {bird_ways(route)};\n"
            text += "}\n"
        for p in PEERS.values():
            text += f"""
protocol bgp peer_{p.name} from ours {{
    neighbor {p.address} as {p.asn}; {'multihop 5;' if p.kind == 'multihop' else ''}
    {'rr client;' if p.kind == 'client' else ''}
    ipv4 {{ import {'none' if p.observer else 'all'}; export {'filter observed' if p.observer else 'none'}; igp table master4;
           gateway {'direct' if p.kind == 'single' else 'recursive'}; }};
    {'direct;' if p.kind in ('single',) else ''}
}}
"""
        return text

    def static(self, event):
        (self.host.folder / "bird.conf").write_text(self.config())
        with socket.socket(socket.AF_UNIX) as terminal:
            terminal.settimeout(20)
            terminal.connect(str(self.process.socket))
            terminal.sendall(b"configure\n")
            answer = b""
            while b"\n0003 " not in answer and b"\n0004 " not in answer:
                piece = terminal.recv(4096)
                assert piece and b"\n8" not in answer and b"\n9" not in answer, answer
                answer += piece


def bird_ways(route):
    """BIRD's `via` is a neighbour on a link, and `recursive` one address anywhere; no route has both, nor several of these."""
    if route.get("blackhole"):
        return "blackhole"
    links = [a for a in route["via"] if a.startswith("10.")]
    return " ".join(f"via {a}" for a in links) if links else f"recursive {route['via'][0]}"


ROUTERS = {cls.name: cls for cls in (RibtideRouter, FrrRouter, BirdRouter)}
