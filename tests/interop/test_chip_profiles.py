"""A virtual switch with the table sizes of a real chip, through SONiC's daemons: what does not fit is refused, CRM's rows say so, and
`explain` names the reason; with room it comes in."""

import pytest
from harness import fpm, settled
from harness.sonic import Sonic
from test_sonic import connect_fpm, ifindex, own_routes
from test_sonic_explain import Explained
from test_sonic_warm import COMBINATIONS

#: Routes of IPv4 and IPv6 of the profile `tomahawk`, which share a table.
IPV4, IPV6 = 65_536, 8_192
BEYOND = 100


@pytest.mark.parametrize("combination", ["redis_sync", "zmq"])
def test_table_of_a_real_chip_is_full_at_its_size(host, combination):
    flags = {name: list(more) for name, more in COMBINATIONS[combination].items()}
    flags["syncd"] = [*flags.get("syncd", []), "--chip", "profile=tomahawk"]
    sonic = Sonic(host, flags=flags)
    own = own_routes(sonic)
    own6 = sum(":" in prefix for prefix in own)
    own4 = len(own) - own6
    # An IPv6 route takes the room of eight.
    room = IPV4 - own4 - IPV4 // IPV6 * own6
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    prefixes = [f"{20 + (n >> 16)}.{(n >> 8) & 255}.{n & 255}.0/24" for n in range(room + BEYOND)]

    def send(kind, some):
        for start in range(0, len(some), 1000):
            client.send(b"".join(fpm.route(kind, prefix, "193.203.0.1", port) for prefix in some[start:start + 1000]))

    def crm():
        stats = sonic.redis.db(2).hgetall("CRM:STATS")
        return {name: tuple(int(stats[f"crm_stats_{name}_{of}"]) for of in ("used", "available")) for name in ("ipv4_route", "ipv6_route")}

    def full(used):
        def look():
            assert crm() == {"ipv4_route": (used, 0), "ipv6_route": (own6, 0)}
            assert sonic.chip_routes() == used + own6
        return look

    def empty():
        assert crm() == {"ipv4_route": (own4, room), "ipv6_route": (own6, room // (IPV4 // IPV6))}
    settled(empty, 30)
    send(fpm.NEWROUTE, prefixes)
    settled(full(own4 + room), 120)
    # Which ones are refused is a matter of their order.
    there = {prefix for prefix, target in sonic.chip().routes().items() if target == ("193.203.0.1",)}
    refused = [prefix for prefix in prefixes if prefix not in there]
    assert len(there) == room and len(refused) == BEYOND

    def explained():
        now = Explained(sonic, refused[0])
        assert now.messages["orchagent"][-1] == "the chip's table of ipv4-unicast routes is full", now.messages
    settled(explained, 30)
    # Room for half of them.
    send(fpm.DELROUTE, sorted(there)[:BEYOND // 2])
    settled(full(own4 + room), 120)
    assert all(process.poll() is None for process in sonic.alive())
