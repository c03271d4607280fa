"""Two leaves, b and c, that announce prefixes to a switch by BIRD: each has 10.N.0.2 and fd0N::2, and the switch .1 and ::1."""

import json

#: What b alone announces, and what b and c do.
B4, B6, BOTH4, BOTH6 = "198.51.100.1", "2001:db8:b::1", "203.0.113.1", "2001:db8:bc::1"

ROUTER = """
[router]
asn = 65001
router-id = "10.1.0.1"

[bgp]
listen = ["[::]:179"]
multipath = 2
multipath-relax = true

[bgp.group.leaves]
type = "external"
import = ["accept"]
export = ["reject"]
connect-retry = 1
neighbor = [
    { address = "10.2.0.2", peer-asn = 65002, families = ["ipv4-unicast"] },
    { address = "fd02::2", peer-asn = 65002, families = ["ipv6-unicast"] },
    { address = "10.3.0.2", peer-asn = 65003, families = ["ipv4-unicast"] },
    { address = "fd03::2", peer-asn = 65003, families = ["ipv6-unicast"] },
]

[fib]
fpm = ["127.0.0.1:2620"]
"""


def router(interfaces):
    """The configuration of the switch's router, with these (name, addresses)."""
    return ROUTER + "".join(f'[[interface]]\nname = "{name}"\naddresses = {json.dumps(addresses)}\n' for name, addresses in interfaces)


def bird(n, four, six):
    """A BIRD that announces these prefixes, by protocols that can be disabled."""
    def routes(prefixes):
        return " ".join(f"route {prefix} blackhole;" for prefix in prefixes)
    return f"""
router id 10.{n}.0.2;
log stderr all;
protocol device {{}}
protocol static four_routes {{ ipv4; {routes(four)} }}
protocol static six_routes {{ ipv6; {routes(six)} }}
template bgp ours {{
    local as {65000 + n};
    connect retry time 1; error wait time 1,2; connect delay time 1;
}}
protocol bgp four from ours {{
    neighbor 10.{n}.0.1 as 65001;
    ipv4 {{ import none; export where source = RTS_STATIC; }};
}}
protocol bgp six from ours {{
    neighbor fd0{n}::1 as 65001;
    ipv6 {{ import none; export where source = RTS_STATIC; }};
}}
"""
