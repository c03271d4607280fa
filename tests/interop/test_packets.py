"""Packets through the virtual switch: hosts in namespaces of their own, behind its ports. The kernels of the hosts are the judges: they
drop what has a wrong checksum or address, and count what comes."""

import json
import os
import socket
import threading

import pytest
from harness import Host, Ribtide, settled, wait_for
from harness import sonic as sonic_module
from harness.daemons import Bird
from harness.leaves import B4, B6, BOTH4, BOTH6, bird, router
from harness.sonic import Port, Sonic
from harness.traffic import ECHO, ask, echo, ping

#: Host a is behind Ethernet0; b behind PortChannel1 of Ethernet4 and Ethernet8; c behind Ethernet12.
PORTS = [Port(f"Ethernet{4 * n}", ",".join(str(25 + 4 * n + lane) for lane in range(4)), [], []) for n in range(4)]
#: The switch's interfaces, with the address of the host there.
ADDRESSES = {"Ethernet0": ("10.1.0.1/24", "fd01::1/64"), "PortChannel1": ("10.2.0.1/24", "fd02::1/64"),
             "Ethernet12": ("10.3.0.1/24", "fd03::1/64")}


class Network:
    """The switch with three hosts."""

    def __init__(self, folder):
        self.hosts = []
        try:
            self.make(folder)
        except BaseException:
            self.close()
            raise

    def make(self, folder):
        self.switch = self.host(folder, "switch")
        self.a, self.b, self.c = (self.host(folder, name) for name in "abc")
        # The names of the switch's netdevs are those of SONiC's lane map.
        for host, name, index in ((self.a, "eth0", 1), (self.b, "member1", 2), (self.b, "member2", 3), (self.c, "eth0", 4)):
            self.switch.ip("link", "add", f"eth{index}", "type", "veth", "peer", "name", name, "netns", host.name)
            self.switch.ip("link", "set", f"eth{index}", "up")
        # This kernel may have no bonding. A bridge whose ports do not see each other is the other end of a LAG: it sends by the port
        # behind which it saw the switch last, and by the other one when that has no link.
        self.b.ip("link", "add", "bond0", "address", "02:00:00:00:0b:00", "type", "bridge", "mcast_snooping", "0")
        for member in ("member1", "member2"):
            self.b.ip("link", "set", member, "master", "bond0")
            self.b.ip("link", "set", member, "type", "bridge_slave", "isolated", "on")
            self.b.ip("link", "set", member, "up")
        for host, interface, n in ((self.a, "eth0", 1), (self.b, "bond0", 2), (self.c, "eth0", 3)):
            host.address(interface, f"10.{n}.0.2/24", f"fd0{n}::2/64")
            host.ip("route", "add", "default", "via", f"10.{n}.0.1")
            host.ip("-6", "route", "add", "default", "via", f"fd0{n}::1")
        for host, addresses in ((self.b, (B4, B6, BOTH4, BOTH6)), (self.c, (BOTH4, BOTH6))):
            for address in addresses:
                host.ip("addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))

    def host(self, folder, name):
        host = Host(folder, name, feeds=False)
        self.hosts.append(host)
        return host

    def close(self):
        for host in reversed(self.hosts):
            host.close()

    def start(self):
        """SONiC's daemons, the router, and what the rest of SONiC does."""
        flags = {"orchagent": ["--host-interfaces"]}
        self.sonic = sonic = Sonic(self.switch, flags=flags, neighbors=False, packets=True)
        for port in ("Ethernet4", "Ethernet8"):
            sonic.delete("INTF_TABLE", port)
            sonic.set("LAG_MEMBER_TABLE", f"PortChannel1:{port}", status="enabled")
        sonic.set("LAG_TABLE", "PortChannel1", admin_status="up", oper_status="up", mtu="9100")
        for name, addresses in ADDRESSES.items():
            sonic.set("INTF_TABLE", name)
            for address in addresses:
                sonic.set("INTF_TABLE", f"{name}:{address}", scope="global", family="IPv6" if ":" in address else "IPv4")
        # What intfmgrd does once portsyncd, or teamd, has seen the netdev.
        for name, addresses in ADDRESSES.items():
            wait_for(f"the switch made {name}", lambda: self.switch.ip("link", "show", name), 60, alive=sonic.alive())
            self.switch.address(name, *addresses)
        # The kernel of the switch would route, too.
        assert self.switch.run("cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding").split() == ["0", "0"]
        self.router = Ribtide(self.switch, router((name, list(addresses)) for name, addresses in ADDRESSES.items()))
        self.birds = {"b": Bird(self.b, bird(2, (f"{B4}/32", f"{BOTH4}/32"), (f"{B6}/128", f"{BOTH6}/128"))),
                      "c": Bird(self.c, bird(3, (f"{BOTH4}/32",), (f"{BOTH6}/128",)))}
        for host in (self.a, self.b, self.c):
            # The first packet of a host makes the kernel of the switch know it.
            n = "abc".index(host.name[-1]) + 1
            for address in (f"10.{n}.0.1", f"fd0{n}::1"):
                wait_for(f"{host.name} reaches {address}", lambda: ping(host, address, 1) == 1, 60, alive=sonic.alive())
        settled(self.neighsyncd, 30)
        for speaker in self.birds.values():
            wait_for("BGP is established", lambda: all(speaker.established(p) for p in ("four", "six")), 60, alive=sonic.alive())

    def neighsyncd(self):
        """Writes what the kernel knows about its neighbours to NEIGH_TABLE, and wants each host by both families."""
        found = set()
        for entry in json.loads(self.switch.ip("-j", "neigh", "show")):
            if entry["dev"] in ADDRESSES and "lladdr" in entry:
                found.add(entry["dst"])
                family = "IPv6" if ":" in entry["dst"] else "IPv4"
                self.sonic.set("NEIGH_TABLE", f"{entry['dev']}:{entry['dst']}", neigh=entry["lladdr"], family=family)
        assert found >= {f"10.{n}.0.2" for n in (1, 2, 3)} | {f"fd0{n}::2" for n in (1, 2, 3)}

    def members(self):
        """How many packets the kernel of b had from each member of its LAG."""
        links = json.loads(self.b.ip("-j", "-s", "link", "show"))
        return [link["stats64"]["rx"]["packets"] for name in ("member1", "member2") for link in links if link["ifname"] == name]


@pytest.fixture
def network(folder, monkeypatch):
    monkeypatch.setattr(sonic_module, "PORTS", PORTS)
    network = Network(folder)
    yield network
    network.close()


@pytest.mark.feature("packets through SONiC's virtual switch, by its routes")
@pytest.mark.peers("bird")
def test_hosts_ping_by_routes_of_bgp_over_a_lag_that_loses_a_member(network):
    network.start()
    a, sonic = network.a, network.sonic

    def reached(*addresses, count=20):
        def look():
            assert {address: ping(a, address, count) for address in addresses} == {address: count for address in addresses}
        settled(look, 30)
    reached(B4, B6)
    # By the switch, and not by its kernel, whose netdev of host a saw none of these.
    seen = lambda: json.loads(network.switch.ip("-j", "-s", "link", "show", "Ethernet0"))[0]["stats64"]["rx"]["packets"]
    before = seen()
    assert ping(a, B4, 200) == 200
    assert seen() - before < 100

    with echo(network.b, "b", B4), echo(network.b, "b", B6):
        # Flows spread over the members.
        before = network.members()
        assert ask(a, B4, 20000, 100) == ["b"] * 100
        first, second = (now - then for now, then in zip(network.members(), before))
        assert first >= 20 and second >= 20, (first, second)
        # Segments that a network card would cut, and checksums that it would fill in.
        for address in (B4, B6):
            with a.connect(address, ECHO) as connection:
                data = os.urandom(1 << 20)
                sender = threading.Thread(target=lambda: (connection.sendall(data), connection.shutdown(socket.SHUT_WR)))
                sender.start()
                received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
                sender.join()
                assert received == data

        # A member loses its link.
        network.b.ip("link", "set", "member1", "down")
        status = lambda: sonic.appl.hgetall("PORT_TABLE:Ethernet4").get("oper_status")
        wait_for("orchagent hears that the link is lost", lambda: status() == "down", 30, alive=sonic.alive())
        reached(B4, B6)
        before = network.members()
        assert ask(a, B4, 20000, 100) == ["b"] * 100
        first, second = (now - then for now, then in zip(network.members(), before))
        assert first == 0 and second >= 100, (first, second)
        assert network.birds["b"].established("four")
        # It comes back.
        network.b.ip("link", "set", "member1", "up")
        wait_for("orchagent hears that the link is back", lambda: status() == "up", 30, alive=sonic.alive())

        def spread():
            before = network.members()
            assert ask(a, B4, 20000, 100) == ["b"] * 100
            assert all(now - then >= 20 for now, then in zip(network.members(), before))
        settled(spread, 30)

    # The route goes, and comes back.
    for protocol, address in (("four_routes", B4), ("six_routes", B6)):
        network.birds["b"].query(f"disable {protocol}")

        def lost():
            assert ping(a, address, 3, 0.5) == 0
        settled(lost, 30)
        network.birds["b"].query(f"enable {protocol}")
        reached(address)
    counted = sonic.query("packets")
    assert counted["ports"]["eth1"]["in"] >= 400 and counted["ports"]["eth3"]["out"] >= 100, counted
    assert counted["drops"].get("malformed", 0) == 0, counted


@pytest.mark.feature("packets through SONiC's virtual switch, by its routes")
@pytest.mark.peers("bird")
def test_flows_spread_over_two_next_hops(network):
    network.start()
    a = network.a
    with echo(network.b, "b", BOTH4), echo(network.c, "c", BOTH4), echo(network.b, "b", BOTH6), echo(network.c, "c", BOTH6):
        for address in (BOTH4, BOTH6):
            def both():
                names = ask(a, address, 30000, 100)
                assert min(names.count("b"), names.count("c")) >= 20, names
                return names
            # Each flow keeps its next hop.
            assert settled(both, 60) == ask(a, address, 30000, 100)
        # The link of one of them is lost: all flows go to the other.
        network.c.ip("link", "set", "eth0", "down")

        def only_b():
            assert ask(a, BOTH4, 30000, 30) == ["b"] * 30
            assert ask(a, BOTH6, 30000, 30) == ["b"] * 30
        settled(only_b, 30)
