"""The routers under test, each in a namespace of its own with the same links, addresses and peers: ribtide, FRR, BIRD."""

import contextlib
import itertools
import select
import shutil
import socket
import time

from harness import Bird, Frr, Host, Ribtide
from harness.speaker import NOTIFICATION, ROUTE_REFRESH, Speaker, attribute, prefixes, raw_update, block
from kernel import Kernel
from observe import OTHERS, KernelMonitor, Observer, kernel_table
from world import ASN, FENCE, FEEDS, LINKS, OBSERVERS, PEERS, PREPENDED, ROUTER, World, expand, own, subnet


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
        for number, link in enumerate(LINKS, 100):
            host.join(host.feeds, link, number)
            host.address(link, f"{own(link)}/24")
            host.feeds.address(link, *(f"{subnet(link)}.{n}/24" for n in (2, 3)))
        self.world = World()
        #: Sessions; those that were there before this history and are to be used in it; links on which something happened.
        self.speakers, self.spares, self.touched = {}, {}, set()
        self.numbers, self.fence = itertools.count(), None
        #: Peer → policy, as the router has it.
        self.in_force = {}
        self.kernels = {"admin": Kernel(host), "carrier": Kernel(host.feeds)}
        self.start()
        self.monitor = KernelMonitor(host)
        self.speakers[FENCE.name] = self.speaker(FENCE)
        self.observers = {p.name: Observer(self.speaker(p)) for p in OBSERVERS}
        self.poller = select.poll()
        for heard in (self.monitor.socket, *(o.speaker.socket for o in self.observers.values())):
            self.poller.register(heard, select.POLLIN)

    def close(self):
        for speaker in (*getattr(self, "speakers", {}).values(), *getattr(self, "spares", {}).values()):
            speaker.close()
        for observer in getattr(self, "observers", {}).values():
            observer.speaker.close()
        for kernel in getattr(self, "kernels", {}).values():
            kernel.close()
        if hasattr(self, "monitor"):
            self.monitor.close()
        self.host.close()

    # Many histories in one world.

    def begin(self, history):
        """A history begins. A session that is there with nothing said in it stands for the one that its first step begins."""
        world = World()
        for event in history["steps"][0]:
            world.apply(event)
        self.spares, self.touched = {p.name: self.speakers.pop(p.name) for p in FEEDS if p.name in self.speakers}, set()
        for name in [name for name in self.spares if not world.session(name)]:
            self.spares.pop(name).close()
        self.reset_counts()

    def undo(self):
        """Takes back what the history did. Sessions stay, but for those by a link on which something happened."""
        for speaker in self.spares.values():
            speaker.close()
        for peer in FEEDS:
            if peer.link in self.touched and peer.name in self.speakers:
                self.speakers.pop(peer.name).close()
        events = self.world.undo()
        lost = list(self.world.once_lost.values())
        for event in events:
            self.world.apply(event)
            if event["do"] not in ("static", "policy"):
                getattr(self, event["do"])(event)
        for event in lost:
            # zebra takes a route of others for present that went with its link, and the kernel revives one of several next hops. So it
            # comes again, and goes.
            self.kernel(event)
            self.kernel(dict(event, via=[]))
        self.world, self.in_force = World(), {}
        self.configure()
        # Requests for what there is no more.
        for peer in FEEDS:
            if peer.name in self.speakers:
                self.asked(peer, 0.0)

    def empty(self):
        return not any(self.state().values())

    def speaker(self, peer):
        to = own(peer.link) if peer.link else ROUTER
        try:
            return Speaker(Side(self.host, to), peer.address, peer.asn, refresh=not peer.observer)
        except AssertionError as e:
            raise AssertionError(f"{self.name}: {e}") from e

    # Events.

    def apply(self, event):
        self.world.apply(event)
        getattr(self, event["do"])(event)

    def link(self, event):
        self.kernels[event["how"]].link(event["link"], event["up"])
        self.touched.add(event["link"])
        self.sessions()

    def address(self, event):
        self.touched.add(event["link"])
        with contextlib.suppress(OSError):
            self.kernels["admin"].address(event["link"], event["address"], event["present"])

    def kernel(self, event):
        kernel = self.kernels["admin"]
        with contextlib.suppress(OSError):  # There was none.
            kernel.delete_route(event["prefix"], int(OTHERS))
        if event["via"]:
            with contextlib.suppress(OSError):  # The kernel takes none by a link that is down.
                kernel.add_route(event["prefix"], int(OTHERS), event.get("metric", 0), event["via"], event.get("onlink", True))

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
                self.speakers[peer.name] = self.spares.pop(peer.name, None) or self.speaker(peer)
                self.say_all(peer)

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
        self.configure()

    def policy(self, event):
        """A router has a feed say all again when it has another import policy; its speaker does."""
        peer = PEERS[event["peer"]]
        if self.in_force.get(peer.name, {}) == event["policy"]:
            return
        self.in_force[peer.name] = event["policy"]
        self.configure()
        if peer.name in self.speakers and not peer.observer and self.reachable(peer):
            asked = self.asked(peer, 20)
            assert asked, f"{self.name}: {peer.name} was not asked for its routes when its import policy changed"
            self.say_all(peer)

    def asked(self, peer, wait):
        """Whether a feed was asked for its routes, or its session has ended. With several requests one answer is enough."""
        speaker, asked = self.speakers[peer.name], False
        try:
            while got := speaker.read(0.0 if asked else wait):
                asked |= got[0] == ROUTE_REFRESH
                if got[0] == NOTIFICATION:
                    break
        except OSError:  # Nothing more is there.
            return asked
        return asked or bool(wait)

    def say_all(self, peer):
        with contextlib.suppress(OSError):  # The router has ended the session.
            for prefix, said in self.world.says[peer.name].items():
                self.say(peer, [prefix], said)

    def answer(self):
        """Answers requests that come late, by a link that was cut off; whether there was one."""
        asked = [peer for peer in FEEDS if peer.name in self.speakers and self.asked(peer, 0.0)]
        for peer in asked:
            self.say_all(peer)
        return bool(asked)

    def configure(self):
        """Has the router take the statics and policies of the world."""
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
            left = quiet - (time.monotonic() - heard)
            if left <= 0 and self.through():
                if not self.answer():
                    return True
                heard = time.monotonic()
            # The fence is heard by one of these too. An ended observer is always readable.
            time.sleep(0.002)
            self.poller.poll(1000 * (left if left > 0 else quiet))
        return False

    def reset_counts(self):
        self.monitor.reset()
        for observer in self.observers.values():
            observer.reset()

    def state(self):
        """What can be compared: the kernel's table, and what each observer was advertised."""
        return {"kernel": kernel_table(self.kernels["admin"]), **{name: dict(o.table) for name, o in self.observers.items()}}

    def changes(self):
        return {"kernel": self.monitor.count(), **{name: sum(o.changes.values()) for name, o in self.observers.items()}}


class RibtideRouter(Router):
    name = "ribtide"

    def start(self):
        self.process = Ribtide(self.host, self.config())

    def config(self):
        groups = ""
        for p in PEERS.values():
            kind = "internal" if p.asn == ASN else "external"
            groups += self.policy_text(p) + f"""
[bgp.group.{p.name}]
type = "{kind}"
peer-asn = {p.asn}
passive = true
import = [{'"reject"' if p.observer else f'"policy-{p.name}", "accept"'}]
export = [{f'"policy-{p.name}", "accept"' if p.observer else '"reject"'}]
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

    def policy_text(self, peer):
        policy = self.world.policies.get(peer.name, {})
        statement = f"[[policy.definition.policy-{peer.name}.statement]]"
        text = ""
        if "reject" in policy:
            text += f"""
[policy.prefix-set.refused-{peer.name}]
prefixes = [{", ".join(f'"{prefix}"' for prefix in policy["reject"])}]
{statement}
conditions.match-prefix-set = "refused-{peer.name}"
actions.policy-result = "reject"
"""
        text += f"""
{statement}
actions.policy-result = "accept"
"""
        if "local_pref" in policy:
            text += f"actions.set-local-pref = {policy['local_pref']}\n"
        if "med" in policy:
            text += f"actions.set-med = {policy['med']}\n"
        if "prepend" in policy:
            text += f"actions.set-as-path-prepend = {{ asn = {PREPENDED}, repeat-n = {policy['prepend']} }}\n"
        return text

    def configure(self):
        text = self.config()
        for prefix, routes in self.world.statics.items():
            for route in routes:
                what = "blackhole = true" if route.get("blackhole") else "next-hop = [" + ", ".join(f'"{a}"' for a in route["via"]) + "]"
                text += f'\n[[static]]\nprefix = "{prefix}"\ndistance = {route["distance"]}\n{what}\n'
        self.process.config.write_text(text + f'\n[api]\nsocket = "{self.process.socket}"\n')
        self.process.call("POST", "/v1/reload", {})


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
            family.append(f"neighbor {p.address} route-map policy-{p.name} {'out' if p.observer else 'in'}")
            if p.kind == "client":
                family.append(f"neighbor {p.address} route-reflector-client")
        maps = [f"route-map policy-{p.name} permit 10\n" for p in PEERS.values()]
        # Route-maps have an effect when the harness says so, and also on reflected routes.
        text = "bgp route-map delay-timer 0\nip prefix-list none deny any\n" + "".join(maps)
        text += "\n ".join([f"router bgp {ASN}", "bgp deterministic-med", "bgp route-reflector allow-outbound-policy", f"bgp router-id {ROUTER}", "no bgp ebgp-requires-policy",
                           "no bgp network import-check", "bgp bestpath as-path multipath-relax", "bgp bestpath compare-routerid",
                           "coalesce-time 0", *lines, "address-family ipv4 unicast", *family, "exit-address-family"]) + "\n"
        # The harness's host of FRR has its folder made by a process that is not root.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.host.folder / "frr")
        negation = "" if self.profile["resolve_via_default"] else "no "
        self.process = Frr(self.host, bgpd=text, staticd="", zebra=f"{negation}ip nht resolve-via-default\n")
        self.terminals, self.lines, self.told = {}, set(), {}

    def close(self):
        for terminal in getattr(self, "terminals", {}).values():
            terminal.close()
        super().close()

    def tell(self, daemon, *commands):
        """Says commands to a daemon's terminal, as vtysh does: each ends with a zero byte, an answer with three and a status."""
        if daemon not in self.terminals:
            self.terminals[daemon] = socket.socket(socket.AF_UNIX)
            self.terminals[daemon].connect(str(self.process.folder / f"{daemon}.vty"))
            self.terminals[daemon].settimeout(20)
            self.tell(daemon, "enable", "configure terminal")
        terminal = self.terminals[daemon]
        for command in commands:
            terminal.sendall(command.encode() + b"\0")
            answer = b""
            while answer[-4:-1] != bytes(3):
                piece = terminal.recv(4096)
                assert piece, f"{daemon} closed its terminal at {command}"
                answer += piece
            assert answer[-1] == 0, (command, answer)

    def configure(self):
        for name, policy in self.world.policies.items():
            if policy != self.told.get(name, {}):
                self.set_policy(PEERS[name], policy, self.told.get(name, {}))
                self.told[name] = policy
        lines = set()
        for prefix, routes in self.world.statics.items():
            for route in routes:
                for hop in ["blackhole"] if route.get("blackhole") else route["via"]:
                    lines.add(f"ip route {prefix} {hop} {route['distance']}")
        if lines != self.lines:
            self.tell("staticd", *(f"no {line}" for line in sorted(self.lines - lines)), *sorted(lines - self.lines))
        self.lines = lines

    def set_policy(self, peer, policy, before):
        name, direction = f"policy-{peer.name}", "out" if peer.observer else "in"
        commands = []
        if "reject" in before:
            commands += [f"no route-map {name} deny 5", f"no ip prefix-list refused-{peer.name}"]
        if "reject" in policy:
            commands += [f"ip prefix-list refused-{peer.name} permit {prefix}" for prefix in policy["reject"]]
            commands += [f"route-map {name} deny 5", f"match ip address prefix-list refused-{peer.name}", "exit"]
        commands.append(f"route-map {name} permit 10")
        for key, words in (("local_pref", "local-preference"), ("med", "metric"), ("prepend", "as-path prepend")):
            if key in policy:
                value = " ".join([str(PREPENDED)] * policy[key]) if key == "prepend" else policy[key]
                commands.append(f"set {words} {value}")
            elif key in before:
                commands.append(f"no set {words}")
        self.tell("bgpd", *commands, "end", f"clear bgp ipv4 unicast {peer.address} soft {direction}", "configure terminal")


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
    ipv4 {{ import {'none' if p.observer else self.policy_text(p)}; export {self.policy_text(p) if p.observer else 'none'}; igp table master4;
           gateway {'direct' if p.kind == 'single' else 'recursive'}; }};
    {'direct;' if p.kind in ('single',) else ''}
}}
"""
        return text

    def policy_text(self, peer):
        policy = self.world.policies.get(peer.name, {})
        text = "if source != RTS_BGP then reject; if dest = RTD_UNREACHABLE then reject; " if peer.observer else ""
        if "reject" in policy:
            text += f"if net ~ [ {', '.join(policy['reject'])} ] then reject; "
        if "local_pref" in policy:
            text += f"bgp_local_pref = {policy['local_pref']}; "
        if "med" in policy:
            text += f"bgp_med = {policy['med']}; "
        text += f"bgp_path.prepend({PREPENDED}); " * policy.get("prepend", 0)
        return f"filter {{ {text}accept; }}"

    def configure(self):
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
