"""The world that each router stands in: links, addresses and peers, the same for all, and what a history made of them.

A `World` is a pure model: events go in, and it knows which links are up, which statics are configured and what each peer
says. It is what the rules look at and what a peer repeats when its session comes back.
"""

import functools
import ipaddress
from typing import NamedTuple

#: The router's AS, and the stable link to the peers that are not under test: the fence, the observers, internal peers.
ASN, ROUTER = 65001, "198.19.0.1"
#: What policies prepend.
PREPENDED = 65390
#: Links whose state changes. The router is .1; .2 and .3 are peers, .9 to .11 are gateways without a host.
LINKS = ("l0", "l1", "l2", "l3")


def subnet(link, net=0):
    """A subnet of a link; net 0 is there from the beginning, others come and go."""
    return f"10.{net}.{LINKS.index(link)}"


def own(link, net=0):
    return f"{subnet(link, net)}.1"


class Peer(NamedTuple):
    """A BGP peer. `link` is the one that the session needs; None: the stable link."""

    name: str
    address: str
    asn: int
    kind: str  # single: external, one hop; multihop: external, several; internal; client: internal, our reflector client
    link: str = None
    observer: bool = False


FENCE = Peer("fence", "198.19.0.2", 65250, "single")
OBSERVERS = (Peer("external", "198.19.0.3", 65200, "single", observer=True),
             Peer("internal", "198.19.0.4", ASN, "internal", observer=True))
FEEDS = (Peer("e0", "10.0.0.2", 65010, "single", "l0"), Peer("e1", "10.0.1.2", 65011, "single", "l1"),
         Peer("e2", "10.0.0.3", 65012, "single", "l0"), Peer("s0", "198.19.0.5", 65013, "single"),
         Peer("m0", "198.19.0.6", 65020, "multihop"), Peer("i0", "198.19.0.7", ASN, "internal"),
         Peer("c0", "198.19.0.8", ASN, "client"), Peer("c1", "198.19.0.9", ASN, "client"))
PEERS = {p.name: p for p in (FENCE, *OBSERVERS, *FEEDS)}

#: Profiles: what is configured at the start of each daemon and stays.
PROFILES = ({"resolve_via_default": True, "multipath": 1}, {"resolve_via_default": True, "multipath": 4},
            {"resolve_via_default": False, "multipath": 4})


net = functools.lru_cache(4096)(ipaddress.IPv4Network)
ip = functools.lru_cache(4096)(ipaddress.IPv4Address)
interface = functools.lru_cache(4096)(ipaddress.IPv4Interface)


def expand(prefix, count):
    """`count` prefixes of one length, from this one on."""
    if count == 1:
        return [prefix]
    first = net(prefix)
    return [str(ipaddress.IPv4Network((int(first.network_address) + n * first.num_addresses, first.prefixlen)))
            for n in range(count)]


class World:
    """What a history has made so far. Every event sets something to a value, so each part of a history is one too."""

    def __init__(self):
        self.admin = {link: True for link in LINKS}
        self.carrier = {link: True for link in LINKS}
        #: Link → addresses with lengths.
        self.addresses = {link: {f"{own(link)}/24"} for link in LINKS}
        #: Prefix → [{"distance", "via" or "blackhole"}].
        self.statics = {}
        #: Prefix → event: routes that another program put into the kernel, so far as the kernel took them.
        self.kernel = {}
        #: Prefix → (event, links): the same routes as the kernel has them. It keeps a route while one of its next hops is not
        #: dead; those by these links are. A link that is up again, or gets an address, revives them.
        self.installed = {}
        #: Prefixes whose kernel route went with its link or address, and did not come back.
        self.lost = set()
        #: Those of which it did once, or another next hop of it, with the route.
        self.once_lost = {}
        self.peers = {p.name: False for p in FEEDS}
        #: Peer → prefix → announcement.
        self.says = {p.name: {} for p in FEEDS}
        #: Peer → {"reject", "local_pref", "med", "prepend"}: the import policy of a feed, the export policy of an observer.
        self.policies = {p.name: {} for p in (*OBSERVERS, *FEEDS)}

    def copy(self):
        """Events are shared, for nothing changes them."""
        other = World.__new__(World)
        for name, value in vars(self).items():
            setattr(other, name, value.copy())
        other.addresses = {link: addresses.copy() for link, addresses in self.addresses.items()}
        other.says = {name: said.copy() for name, said in self.says.items()}
        return other

    def up(self, link):
        return link is None or (self.admin[link] and self.carrier[link])

    def session(self, name):
        return self.peers[name] and self.up(PEERS[name].link)

    def apply(self, event):
        do = event["do"]
        if do == "link":
            (self.admin if event["how"] == "admin" else self.carrier)[event["link"]] = event["up"]
            if event["up"] and event["how"] == "admin":
                self.revive(event["link"])
            if not event["up"] and event["how"] == "admin":
                # The kernel removes routes of a link that is taken down; of several next hops it keeps the others.
                self.lose(lambda hop: hop[1] == event["link"])
        elif do == "address":
            have = self.addresses[event["link"]]
            (have.add if event["present"] else have.discard)(event["address"])
            if not have:
                # With the last address of a link the kernel removes the routes by it.
                self.lose(lambda hop: hop[1] == event["link"])
            elif event["present"] and self.admin[event["link"]]:
                self.revive(event["link"])
        elif do == "static":
            self.statics.pop(event["prefix"], None)
            if event["routes"]:
                self.statics[event["prefix"]] = event["routes"]
        elif do == "kernel":
            self.kernel.pop(event["prefix"], None)
            self.installed.pop(event["prefix"], None)
            self.lost.discard(event["prefix"])
            if event["via"] and all(self.admin[link] for _, link in event["via"]):
                self.kernel[event["prefix"]] = event
                self.installed[event["prefix"]] = (event, frozenset())
        elif do == "peer":
            self.peers[event["peer"]] = event["up"]
        elif do == "policy":
            self.policies[event["peer"]] = event["policy"]
        elif do == "announce":
            for prefix in expand(event["prefix"], event.get("count", 1)):
                self.says[event["peer"]][prefix] = event
        elif do == "withdraw":
            for prefix in expand(event["prefix"], event.get("count", 1)):
                self.says[event["peer"]].pop(prefix, None)
        else:
            raise ValueError(f"no such event: {event}")

    def lose(self, lost):
        for prefix, event in list(self.kernel.items()):
            left = [hop for hop in event["via"] if not lost(hop)]
            if left != event["via"]:
                self.lost.add(prefix)
                self.once_lost[prefix] = event
            if not left:
                del self.kernel[prefix]
            elif left != event["via"]:
                self.kernel[prefix] = dict(event, via=left)
        for prefix, (event, dead) in list(self.installed.items()):
            dead |= {hop[1] for hop in event["via"] if lost(hop)}
            self.installed[prefix] = (event, dead)
            if all(link in dead for _, link in event["via"]):
                del self.installed[prefix]

    def revive(self, link):
        for prefix, (event, dead) in self.installed.items():
            self.installed[prefix] = (event, dead - {link})

    def undo(self):
        """Events that restore the beginning."""
        events = []
        for name, said in self.says.items():
            events += [{"do": "withdraw", "peer": name, "prefix": prefix} for prefix in said]
        events += [{"do": "static", "prefix": prefix, "routes": []} for prefix in self.statics]
        events += [{"do": "kernel", "prefix": prefix, "via": []} for prefix in self.kernel]
        events += [{"do": "policy", "peer": name, "policy": {}} for name, policy in self.policies.items() if policy]
        for link in LINKS:
            for address in sorted(self.addresses[link] - {f"{own(link)}/24"}):
                events.append({"do": "address", "link": link, "address": address, "present": False})
            if f"{own(link)}/24" not in self.addresses[link]:
                events.append({"do": "address", "link": link, "address": f"{own(link)}/24", "present": True})
        for link in LINKS:
            if not self.carrier[link]:
                events.append({"do": "link", "link": link, "how": "carrier", "up": True})
            if not self.admin[link]:
                events.append({"do": "link", "link": link, "how": "admin", "up": True})
        return events

    # What rules ask.

    def connected(self):
        """Subnets of links that are up: (network, own address, link)."""
        return [(interface(a).network, interface(a).ip, link)
                for link in LINKS if self.up(link) for a in self.addresses[link]] \
            + [(net("198.19.0.0/24"), ip(ROUTER), "feed0")]

    def candidates(self, prefix):
        """What there is for a prefix: (origin, kind, next hops)."""
        found = [("static", "static", route.get("via", [])) for route in self.statics.get(prefix, [])]
        if prefix in self.kernel:
            found.append(("kernel", "kernel", []))
        found += [(name, PEERS[name].kind, [said[prefix]["next_hop"]]) for name, said in self.says.items()
                  if prefix in said and self.session(name) and not self.refuses(name, prefix)]
        return found

    def prefixes(self):
        known = set(self.statics) | set(self.kernel)
        for name, said in self.says.items():
            if self.session(name):
                known |= {prefix for prefix in said if not self.refuses(name, prefix)}
        return known

    def refuses(self, name, prefix):
        """Whether the policy of a peer rejects a prefix."""
        return prefix in self.policies[name].get("reject", ())
