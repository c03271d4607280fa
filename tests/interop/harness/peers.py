"""One BGP speaker of each kind in one form: an external session over IPv4 for IPv4, one over
IPv6 for IPv6, and passive sessions with its feeds."""

from typing import NamedTuple

from .daemons import Bird, Exabgp, Frr, Gobgp, Openbgpd
from .host import Host, Pair, wait_for
from .table import FEED_ASN

FEEDS = Host.FEEDS


class Side(NamedTuple):
    """A speaker and its neighbour."""

    asn: int
    four: str
    six: str
    peer_asn: int
    peer_four: str
    peer_six: str

    def other(self):
        return Side(self.peer_asn, self.peer_four, self.peer_six, self.asn, self.four, self.six)


#: 4200000001 needs 4-octet AS numbers (RFC 6793).
LEFT = Side(65001, Pair.A4, Pair.A6, 4200000001, Pair.B4, Pair.B6)
RIGHT = LEFT.other()


def bird(s):
    feeds = "".join(f"""
protocol bgp feed{n} {{
    local as {s.asn};
    neighbor {feed} as {FEED_ASN};
    passive;
    ipv4 {{ import all; export none; }};
    ipv6 {{ import all; export none; }};
}}
""" for n, feed in enumerate(FEEDS))
    return f"""
router id {s.four};
log stderr all;
protocol device {{}}
template bgp ours {{
    local as {s.asn};
    connect retry time 1; error wait time 1,2; connect delay time 1;
    enable extended messages;
}}
protocol bgp four from ours {{
    neighbor {s.peer_four} as {s.peer_asn};
    ipv4 {{ import all; export all; }};
}}
protocol bgp six from ours {{
    neighbor {s.peer_six} as {s.peer_asn};
    ipv6 {{ import all; export all; }};
}}
{feeds}
"""


def frr(s):
    both = [(s.peer_four, "ipv4"), (s.peer_six, "ipv6")] + [(feed, afi) for feed in FEEDS for afi in ("ipv4", "ipv6")]
    families = "".join(f" address-family {afi} unicast\n"
                       + "".join(f"  neighbor {n} activate\n" for n, a in both if a == afi)
                       # A feed is no client: it need not get what it sent, nor what others sent.
                       + "".join(f"  neighbor {n} prefix-list none out\n" for n in FEEDS)
                       + " exit-address-family\n" for afi in ("ipv4", "ipv6"))
    feeds = "".join(f" neighbor {n} remote-as {FEED_ASN}\n neighbor {n} passive\n" for n in FEEDS)
    peers = "".join(f" neighbor {n} remote-as {s.peer_asn}\n neighbor {n} timers connect 1\n"
                    for n in (s.peer_four, s.peer_six))
    return f"""hostname bgpd
ip prefix-list none deny any
ipv6 prefix-list none deny any
router bgp {s.asn}
 bgp router-id {s.four}
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp network import-check
{peers}{feeds}{families}"""


def gobgp(s):
    def neighbor(address, asn, families, feed):
        return f"""
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {asn}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.transport.config]
    passive-mode = {feed}
""" + "".join(f"""  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "{afi}-unicast"
""" for afi in families)

    return f"""
[global.config]
  as = {s.asn}
  router-id = "{s.four}"
[global.apply-policy.config]
  export-policy-list = ["not-to-feeds"]
  default-export-policy = "accept-route"
[[defined-sets.neighbor-sets]]
  neighbor-set-name = "feeds"
  neighbor-info-list = [{", ".join(f'"{f}"' for f in FEEDS)}]
[[policy-definitions]]
  name = "not-to-feeds"
  [[policy-definitions.statements]]
    name = "reject"
    [policy-definitions.statements.conditions.match-neighbor-set]
      neighbor-set = "feeds"
    [policy-definitions.statements.actions]
      route-disposition = "reject-route"
""" + neighbor(s.peer_four, s.peer_asn, ["ipv4"], "false") + neighbor(s.peer_six, s.peer_asn, ["ipv6"], "false") + "".join(
        neighbor(f, FEED_ASN, ["ipv4", "ipv6"], "true") for f in FEEDS)


def openbgpd(s, more="", networks=""):
    """`more` belongs to the neighbor."""
    feeds = "".join(f"  neighbor {feed} {{ remote-as {FEED_ASN} }}\n" for feed in FEEDS)
    # Version 7.7 takes the machine's first IPv6 address for that of the session's interface, so IPv4 alone.
    return f"""
AS {s.asn}
router-id {s.four}
fib-update no
listen on {s.four}
connect-retry 1
neighbor {s.peer_four} {{
  remote-as {s.peer_asn}
  announce IPv4 unicast
  {more}
}}
group "feeds" {{
  passive
  export none
{feeds}}}
allow from any
allow to {s.peer_four}
{networks}
"""


def exabgp(s, four="", six=""):
    """`four` and `six` belong to the neighbors, such as a `static` part. Without feeds: it sends what its file names."""
    def neighbor(local, peer, afi, more):
        return f"""
neighbor {peer} {{
    router-id {s.four};
    local-address {local};
    local-as {s.asn};
    peer-as {s.peer_asn};
    family {{ {afi} unicast; }}
    api {{ processes [ write ]; neighbor-changes; receive {{ parsed; update; refresh; }} }}
    {more}
}}"""
    return neighbor(s.four, s.peer_four, "ipv4", four) + neighbor(s.six, s.peer_six, "ipv6", six)


#: Every kind of speaker.
KINDS = ["bird", "frr", "gobgp", "openbgpd", "exabgp"]


def start(kind, host, side):
    """Starts a speaker of that kind."""
    if kind == "exabgp":
        return Exabgp(host, exabgp(side))
    if kind == "openbgpd":
        return Openbgpd(host, openbgpd(side))
    if kind == "bird":
        return Bird(host, bird(side))
    if kind == "frr":
        return Frr(host, bgpd=frr(side))
    return Gobgp(host, gobgp(side))


def configured(kind, host, side, setting="", routes=None):
    """A speaker of that kind whose neighbours have this setting, in the kind's own words. It announces `routes`, IPv4
    prefix → communities, large ones too."""
    routes = routes or {}
    if kind == "bird":
        def one(prefix, marks):
            adds = "".join(f"bgp_{'large_' * (mark.count(':') == 2)}community.add(({mark.replace(':', ',')})); " for mark in marks)
            return f"    route {prefix} blackhole {{ {adds}}};\n"
        static = "".join(one(*route) for route in routes.items())
        text = bird(side).replace("enable extended", f"{setting} enable extended")
        return Bird(host, f"{text}protocol static {{\n    ipv4;\n{static}}}\n")
    if kind == "frr":
        last = f" neighbor {side.peer_six} timers connect 1\n"
        lines = "".join(f" neighbor {n} {line}\n" for n in (side.peer_four, side.peer_six) for line in setting.splitlines())
        text = frr(side).replace(last, last + lines)
        networks = "".join(f"  network {prefix} route-map r{n}\n" for n, prefix in enumerate(routes))
        text = text.replace(" address-family ipv4 unicast\n", f" address-family ipv4 unicast\n{networks}", 1)
        def marked(n, marks):
            sets = [(name, [mark for mark in marks if mark.count(":") == colons]) for name, colons in (("community", 1), ("large-community", 2))]
            return f"route-map r{n} permit 10\n" + "".join(f" set {name} {' '.join(of)}\n" for name, of in sets if of)
        return Frr(host, bgpd=text + "".join(marked(*one) for one in enumerate(routes.values())))
    if kind == "gobgp":
        text = gobgp(side).replace("  [neighbors.timers.config]", f"{setting}\n  [neighbors.timers.config]")
        speaker = Gobgp(host, text)
        for prefix, marks in routes.items():
            plain, large = ([mark for mark in marks if mark.count(":") == n] for n in (1, 2))
            more = [word for name, of in (("community", plain), ("large-community", large)) if of for word in (name, ",".join(of))]
            speaker.query("global", "rib", "add", "-a", "ipv4", prefix, *more)
        return speaker
    if kind == "openbgpd":
        def network(prefix, marks):
            sets = "".join(f"{'large-' * (mark.count(':') == 2)}community {mark} " for mark in marks)
            return f"network {prefix}" + (f" set {{ {sets}}}" if marks else "") + "\n"
        return Openbgpd(host, openbgpd(side, setting, "".join(network(*route) for route in routes.items())))
    def announced(prefix, marks):
        plain, large = (" ".join(mark for mark in marks if mark.count(":") == n) for n in (1, 2))
        return (f"    route {prefix} next-hop self" + f" community [ {plain} ]" * bool(plain)
                + f" large-community [ {large} ]" * bool(large) + ";\n")
    static = f"static {{\n{''.join(announced(*route) for route in routes.items())}}}" if routes else ""
    return Exabgp(host, exabgp(side, setting + static, setting))


def wait_count(speaker, count, timeout=120):
    """Waits until a speaker has that many prefixes from BGP."""
    wait_for(f"{type(speaker).__name__} has {count} prefixes", lambda: speaker.count() == count, timeout, 0.5)


def ribtide(s, more=""):
    """The same for ribtide; `more` belongs to the group of the neighbour."""
    return f"""
[router]
asn = {s.asn}
router-id = "{s.four}"

[bgp]
listen = ["[::]:179"]

[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
export = ["reject"]
neighbors = ["{'", "'.join(FEEDS)}"]

[bgp.group.link]
type = "external"
peer-asn = {s.peer_asn}
import = ["accept"]
export = ["accept"]
connect-retry = 1
hold-time = 6
{more}
neighbor = [
    {{ address = "{s.peer_four}", families = ["ipv4-unicast"] }},
    {{ address = "{s.peer_six}", families = ["ipv6-unicast"] }},
]
"""
