"""Routes that clients of the API announce, as BIRD gets them and the kernel has them."""

import pytest

from harness import Bird, Pair, Ribtide, wait_for

ROUTER = f"""
[router]
asn = 65001
router-id = "{Pair.A4}"

[fib]
suppress-fib-pending = true
[fib.kernel]

[bgp]
listen = ["[::]:179"]

[bgp.originate]
api = ["accept"]

[bgp.group.peer]
type = "external"
peer-asn = 65002
connect-retry = 1
import = ["accept"]
export = ["accept"]
neighbors = ["{Pair.B4}"]
"""


def bird(pair):
    return Bird(pair.b, f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp ribtide {{
    local {Pair.B4} as 65002;
    neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export none; }};
}}
""")


def gets(peer, *expected):
    wait_for(f"BIRD has {sorted(expected)}", lambda: peer.table().keys() == set(expected), 60)


@pytest.mark.feature("routes by API")
@pytest.mark.peers("bird")
def test_routes_of_clients_are_advertised_installed_and_expire(pair):
    ribtide, peer = Ribtide(pair.a, ROUTER), bird(pair)
    said = ribtide.text("route", "add", "198.51.100.0/24", Pair.B4, "--med", "50", "--community", "65001:7", "--owner", "lab")
    assert "1 announced" in said, said
    ribtide.text("route", "add", "203.0.113.9/32", "--discard")
    gets(peer, "198.51.100.0/24", "203.0.113.9/32")
    route = peer.table()["198.51.100.0/24"]
    assert (route.as_path, route.med, route.origin, route.next_hop) == ("65001", 50, "incomplete", Pair.A4), route
    assert route.communities == {"65001:7"}, route
    kernel = lambda prefix: pair.a.run("ip", "route", "show", prefix)
    assert pair.a.gateways("198.51.100.0/24") == {Pair.B4} and "blackhole" in kernel("203.0.113.9/32"), kernel("203.0.113.9/32")
    ribtide.assert_agrees()
    listed = ribtide.text("route", "list")
    assert "lab" in listed and "cli" in listed and "discard" in listed, listed

    # An owner's whole set at once; another owner's prefix is refused.
    def post(path, body):
        return ribtide.call("POST", path, body)

    for prefix, message in [("203.0.113.9/32", r"routes\[0\].prefix: 203.0.113.9/32 belongs to the owner"), ("203.0.113.0/33", r"routes\[0\].prefix: ")]:
        with pytest.raises(AssertionError, match=message):
            post("/v1/bgp/originated", {"owner": "ddos", "routes": [{"prefix": prefix, "discard": True}]})
    routes = [{"prefix": f"203.0.113.{n}/32", "discard": True} for n in (1, 2)]
    post("/v1/bgp/originated", {"owner": "ddos", "expires": 3600, "routes": routes})
    gets(peer, "198.51.100.0/24", *(f"203.0.113.{n}/32" for n in (1, 2, 9)))
    post("/v1/bgp/originated", {"owner": "ddos", "replace": True, "expires": 4, "routes": routes[1:]})
    gets(peer, "198.51.100.0/24", *(f"203.0.113.{n}/32" for n in (2, 9)))
    # The client does not announce it again.
    gets(peer, "198.51.100.0/24", "203.0.113.9/32")
    wait_for("no blackhole", lambda: "blackhole" not in kernel("203.0.113.2/32"), 30)
    assert "0 routes" in ribtide.text("route", "list", "--owner", "ddos")
    ribtide.text("route", "delete", "--all")
    gets(peer, "198.51.100.0/24")
    assert ribtide.neighbor(Pair.B4)["flaps"] == 0
