"""SONiC's route path with the Linux kernel as its chip: BIRD announces, ribtide, fpmsyncd, orchagent and syncd carry the routes to the
kernel, and hosts in namespaces of their own ping through it. The kernel is asked by `ip`, and its tables are held against ASIC_DB."""

import json
import subprocess

import pytest
from harness import Host, Ribtide, settled, wait_for
from harness import sonic as sonic_module
from harness.daemons import Bird
from harness.leaves import B4, B6, BOTH4, BOTH6, bird, router
from harness.sonic import Port, Sonic
from harness.traffic import ask, echo, ping

#: Behind each port is one host.
HOSTS = {"a": 1, "b": 2, "c": 3}
PORTS = [Port(f"Ethernet{4 * n - 4}", ",".join(str(21 + 4 * n + lane) for lane in range(4)), [f"10.{n}.0.1/24", f"fd0{n}::1/64"],
              [f"10.{n}.0.2", f"fd0{n}::2"]) for n in HOSTS.values()]

#: The networks of IPv6 that the kernel has as connected ones.
CONNECTED = {f"fd0{n}::/64" for n in HOSTS.values()}


def host_mac(address):
    """The MAC address of the host that has the address."""
    n = int(address.split(".")[1]) if "." in address else int(address[3])
    return f"02:00:00:00:0{n}:02".upper()


class Network:
    """The switch, whose kernel forwards, with three hosts."""

    def __init__(self, folder):
        self.hosts = []
        try:
            self.make(folder)
        except BaseException:
            self.close()
            raise

    def make(self, folder):
        self.switch = self.host(folder, "switch")
        self.switch.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.fib_multipath_hash_policy=1",
                        "net.ipv6.fib_multipath_hash_policy=1")
        for (name, n), port in zip(HOSTS.items(), PORTS):
            host = self.host(folder, name)
            setattr(self, name, host)
            self.switch.ip("link", "add", port.name, "type", "veth", "peer", "name", "eth0", "address", f"02:00:00:00:0{n}:02", "netns", host.name)
            self.switch.address(port.name, *port.addresses)
            host.address("eth0", f"10.{n}.0.2/24", f"fd0{n}::2/64")
            host.ip("route", "add", "default", "via", f"10.{n}.0.1")
            host.ip("-6", "route", "add", "default", "via", f"fd0{n}::1")
        for host, addresses in ((self.b, (B4, B6, BOTH4, BOTH6)), (self.c, (BOTH4, BOTH6))):
            for address in addresses:
                host.ip("addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
        self.sonic = Sonic(self.switch, kernel=True)
        self.router = Ribtide(self.switch, router((port.name, port.addresses) for port in PORTS))
        self.birds = {"b": Bird(self.b, bird(2, (f"{B4}/32", f"{BOTH4}/32"), (f"{B6}/128", f"{BOTH6}/128"))),
                      "c": Bird(self.c, bird(3, (f"{BOTH4}/32",), (f"{BOTH6}/128",)))}
        for speaker in self.birds.values():
            wait_for("BGP is established", lambda: all(speaker.established(p) for p in ("four", "six")), 60, alive=self.sonic.alive())

    def host(self, folder, name):
        host = Host(folder, name, feeds=False)
        self.hosts.append(host)
        return host

    def close(self):
        for host in reversed(self.hosts):
            host.close()

    def kernel(self):
        """The chip's routes in the kernel, in the form of [`sonic_module.Chip.routes`]."""
        objects = {n["id"]: n for n in json.loads(self.switch.ip("-j", "-N", "nexthop", "show"))}
        found = {}
        for family, size in (("-4", 32), ("-6", 128)):
            # `ip` leaves local routes of IPv6 out where it is asked for one table.
            text = self.switch.ip("-j", "-N", family, "route", "show", "table", "all", "proto", "115")
            for route in json.loads(text or "[]"):
                dest = {"default": "0.0.0.0/0" if size == 32 else "::/0"}.get(route["dst"], route["dst"])
                dest = dest if "/" in dest else f"{dest}/{size}"
                # Behind the kernel's own route of a connected IPv6 network.
                metric = 266 if dest in CONNECTED else 10
                assert route.get("table", "254") in ("254", "main") and route["metric"] == metric, route
                if "nhid" in route:
                    hops = [objects[member["id"]] for member in objects[route["nhid"]]["group"]]
                    found[dest] = ("drop",) if "blackhole" in hops[0] else tuple(sorted(hop.get("gateway", "interface") for hop in hops))
                else:
                    found[dest] = {"2": ("cpu",), "local": ("cpu",), "6": ("drop",), "blackhole": ("drop",)}[route["type"]]
        return found

    def check(self):
        """The kernel has what ASIC_DB says, and no object beside; a default route that drops is none in the kernel."""
        wanted = {dest: hops for dest, hops in self.sonic.chip().routes().items() if not (dest.endswith("/0") and hops == ("drop",))}
        assert self.kernel() == wanted
        groups = {n["id"] for n in json.loads(self.switch.ip("-j", "nexthop", "show")) if "group" in n}
        chip = self.sonic.chip().objects
        assert len(groups) == len(chip["NEXT_HOP"]) + len(chip["NEXT_HOP_GROUP"]) + len(chip["ROUTER_INTERFACE"])
        neighbors = {entry["dst"]: entry for entry in json.loads(self.switch.ip("-j", "-N", "neigh", "show", "nud", "permanent"))
                     if str(entry.get("protocol")) == "115"}
        wanted = {json.loads(name)["ip"]: fields["SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS"] for name, fields in chip["NEIGHBOR_ENTRY"].items()}
        assert {ip: entry["lladdr"].upper() for ip, entry in neighbors.items()} == wanted
        return self.kernel()


@pytest.fixture
def network(folder, monkeypatch):
    monkeypatch.setattr(sonic_module, "PORTS", PORTS)
    monkeypatch.setattr(sonic_module, "mac", host_mac)
    network = Network(folder)
    yield network
    network.close()


def reached(host, addresses, count=20):
    def look():
        assert {address: ping(host, address, count) for address in addresses} == {address: count for address in addresses}
    settled(look, 60)


@pytest.mark.feature("kernel as the chip behind SONiC's daemons")
@pytest.mark.peers("bird")
def test_hosts_ping_through_the_kernel_by_routes_of_bgp(network):
    sonic, switch, a = network.sonic, network.switch, network.a

    def whole():
        routes = network.check()
        assert {dest: routes[dest] for dest in (f"{B4}/32", f"{BOTH4}/32", f"{B6}/128", f"{BOTH6}/128")} == {
            f"{B4}/32": ("10.2.0.2",), f"{BOTH4}/32": ("10.2.0.2", "10.3.0.2"), f"{B6}/128": ("fd02::2",), f"{BOTH6}/128": ("fd02::2", "fd03::2")}
        return routes
    routes = settled(whole, 60)
    reached(a, (B4, B6), 200)
    with echo(network.b, "b", BOTH4), echo(network.c, "c", BOTH4), echo(network.b, "b", BOTH6), echo(network.c, "c", BOTH6):
        # Flows spread over both next hops, and each keeps its own.
        for address in (BOTH4, BOTH6):
            names = ask(a, address, 30000, 100)
            assert min(names.count("b"), names.count("c")) >= 20 and ask(a, address, 30000, 100) == names, names
        # A link is lost: orchagent hears it from the chip, and all flows go to the other.
        network.c.ip("link", "set", "eth0", "down")
        status = lambda: sonic.appl.hgetall("PORT_TABLE:Ethernet8").get("oper_status")
        wait_for("orchagent hears that the link is lost", lambda: status() == "down", 30, alive=sonic.alive())

        def only_b():
            kernel = network.kernel()
            assert (kernel[f"{BOTH4}/32"], kernel[f"{BOTH6}/128"]) == (("10.2.0.2",), ("fd02::2",))
            # The network of the lost link drops, and no other route gets its packets.
            assert kernel["10.3.0.0/24"] == ("drop",)
            assert ask(a, BOTH4, 30000, 30) == ["b"] * 30 and ask(a, BOTH6, 30000, 30) == ["b"] * 30
        settled(only_b, 30)
        network.c.ip("link", "set", "eth0", "up")
        # The host's own routes went with its link.
        network.c.address("eth0", "fd03::2/64")
        network.c.ip("route", "replace", "default", "via", "10.3.0.1")
        network.c.ip("-6", "route", "replace", "default", "via", "fd03::1")
        assert settled(whole, 60) == routes

    # Another program deletes routes and next hops.
    group = json.loads(switch.ip("-j", "route", "show", f"{BOTH4}/32"))[0]["nhid"]
    for command in (["route", "del", f"{B4}/32", "metric", "10"], ["nexthop", "del", "id", group], ["-6", "route", "del", f"{B6}/128"],
                    ["neigh", "del", "10.2.0.2", "dev", "Ethernet4"], ["nexthop", "flush"]):
        switch.ip(*command)
        assert settled(whole, 30) == routes, command
    reached(a, (B4, B6))

    # Without syncd the kernel goes on, and the next syncd deletes nothing.
    sonic.processes["syncd"].kill()
    assert ping(a, B4, 20) == 20
    with switch.inside(), subprocess.Popen(["ip", "monitor", "route"], stdout=subprocess.PIPE, text=True) as monitor:
        sonic.start("syncd")
        wait_for("syncd has taken over", lambda: len(sonic.processes["syncd"].logged("syncd has started")) == 2, 60, alive=sonic.alive())
        assert settled(whole, 60) == routes
        monitor.terminate()
        deleted = [line for line in monitor.stdout if line.startswith("Deleted") and ("proto 115" in line or "nhid" in line)]
    assert deleted == []
    reached(a, (B4, B6))

    # A route that is withdrawn while syncd is away.
    sonic.processes["syncd"].kill()
    network.birds["b"].query("disable four_routes")
    sonic.start("syncd")

    def withdrawn():
        kernel = network.check()
        assert f"{B4}/32" not in kernel and kernel[f"{BOTH4}/32"] == ("10.3.0.2",)
    settled(withdrawn, 60)
    # What `explain` says of a route by a next hop without a link.
    network.c.ip("link", "set", "eth0", "down")

    def dropped():
        text = switch.run(sonic_module.binary(), "explain", "10.3.0.0/24", "--sonic", "--database-config", sonic.redis.config)
        assert "has a link, so it drops packets" in text, text
    settled(dropped, 30)
