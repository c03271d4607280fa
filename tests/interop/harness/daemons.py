"""The other daemons, each with the interface that the tests need."""

import json
import pathlib
import re
import shutil

import pytest

from .host import wait_for
from .table import Route, as_path


def need(program):
    """Skips the test where a program is not installed."""
    if not (shutil.which(program) or pathlib.Path(program).exists()):
        pytest.skip(f"{program} is not installed (scripts/setup test installs it)")


class Bird:
    """BIRD 2. `recovers`: it starts as after a crash, with graceful restart."""

    def __init__(self, host, config, recovers=False):
        need("bird")
        self.host = host
        self.socket = host.folder / "bird.ctl"
        config_file = host.folder / "bird.conf"
        config_file.write_text(config)
        self.process = host.start("bird", "bird", "-f", *["-R"] * recovers, "-c", config_file, "-s", self.socket,
                                  "-P", host.folder / "bird.pid")
        wait_for("BIRD answers", lambda: self.query("show status"), 20, alive=[self.process])

    def query(self, command):
        return self.host.run("birdc", "-s", self.socket, *command.split(), timeout=300)

    def kill(self):
        self.process.kill()

    def established(self, protocol):
        return "Established" in self.query(f"show protocols {protocol}")

    def count(self):
        """How many prefixes it has from BGP."""
        # One line for each table, then one for all.
        return int(re.findall(r"routes for (\d+) networks", self.query("show route where source = RTS_BGP count"))[-1])

    def table(self):
        """Prefix → Route of the best routes from BGP."""
        routes = {}
        text = self.query("show route primary where source = RTS_BGP all")
        for entry in re.split(r"\n(?=[0-9a-f]+[.:])", text):
            lines = entry.splitlines()
            # The header ("BIRD 2.0.12 ready.") and the table's name come before the first prefix.
            if not lines or "/" not in lines[0].split(" ")[0]:
                continue
            at = dict(line[1:].split(": ", 1) for line in lines if line.startswith("\tBGP.") and ": " in line)
            path = re.sub(r"\{([^}]*)\}", lambda m: "{" + ",".join(m[1].split()) + "}", at.get("BGP.as_path", ""))
            listed = {key: re.findall(r"\(([^)]*)\)", at.get(key, "")) for key in ("BGP.community", "BGP.large_community")}
            routes[lines[0].split()[0]] = Route(
                as_path(path), at["BGP.origin"].lower(), at["BGP.next_hop"].split()[0], int(at.get("BGP.med", 0)),
                int(at.get("BGP.local_pref", 100)),
                frozenset(c.replace(",", ":") for c in listed["BGP.community"]),
                frozenset(c.replace(", ", ":") for c in listed["BGP.large_community"]),
                " ".join(reversed(at["BGP.aggregator"].split(" AS"))) if "BGP.aggregator" in at else "",
                any(line.startswith("\tBGP.atomic_aggr") for line in lines),
                at.get("BGP.originator_id", ""), at.get("BGP.cluster_list", "").strip())
        return routes


class Frr:
    """FRR's zebra and, where configured, bgpd, staticd and bfdd, from Debian's package, in a folder of their own."""

    #: FRR's names of well-known communities.
    KNOWN = {"no-export": "65535:65281", "noExport": "65535:65281", "no-advertise": "65535:65282",
             "noAdvertise": "65535:65282", "local-AS": "65535:65283", "localAs": "65535:65283", "blackhole": "65535:666",
             "graceful-shutdown": "65535:0", "gracefulShutdown": "65535:0"}

    def __init__(self, host, bgpd=None, staticd=None, zebra="", zebra_args=(), bgpd_args=(), bfdd=None):
        need("/usr/lib/frr/zebra")
        self.host = host
        self.folder = host.folder / "frr"
        self.folder.mkdir()
        shutil.chown(self.folder, "frr", "frr")
        self.arguments = {"zebra": zebra_args, "bgpd": bgpd_args, "bfdd": ("--bfdctl", self.folder / "bfdd.sock")}
        self.processes = {}
        self.texts = {name: text for name, text in [("zebra", zebra), ("bfdd", bfdd), ("staticd", staticd), ("bgpd", bgpd)]
                      if text is not None}
        for name in self.texts:
            self.start(name)

    def start(self, name):
        config = self.folder / f"{name}.conf"
        config.write_text(self.texts[name])
        shutil.chown(config, "frr", "frr")
        process = self.host.start(name, f"/usr/lib/frr/{name}", "-f", config, "-i", self.folder / f"{name}.pid",
                                  "-z", self.folder / "zserv.api", "--vty_socket", self.folder, "-P", "0",
                                  "--log", "stdout", *self.arguments.get(name, ()))
        self.processes[name] = process
        wait_for(f"{name} answers", lambda: self.query("show version", name), 20, alive=[process])

    def query(self, command, daemon=None):
        one = ["-d", daemon] if daemon else []
        return self.host.run("vtysh", "--vty_socket", self.folder, *one, "-c", command, timeout=300)

    def kill(self):
        self.processes["bgpd"].kill()

    def configure(self, *lines):
        commands = [word for line in ("configure terminal", *lines) for word in ("-c", line)]
        return self.host.run("vtysh", "--vty_socket", self.folder, *commands)

    def established(self, neighbor):
        return json.loads(self.query(f"show bgp neighbors {neighbor} json", "bgpd"))[neighbor]["bgpState"] == "Established"

    def count(self):
        """How many prefixes bgpd has."""
        total = 0
        for afi in ("ipv4", "ipv6"):
            total += json.loads(self.query(f"show bgp {afi} unicast statistics json", "bgpd"))[f"{afi}Unicast"][0]["totalPrefixes"]
        return total

    def table(self):
        """Prefix → Route of bgpd's best paths."""
        routes = {}
        for afi in ("ipv4", "ipv6"):
            answer = json.loads(self.query(f"show bgp {afi} unicast json detail", "bgpd"))
            for prefix, paths in answer.get("routes", {}).items():
                path = next((p for p in paths if p.get("bestpath", {}).get("overall")), None)
                if path is None:
                    continue
                # IPv6 hops have a scope, and the link-local one comes second.
                hop = next(h["ip"] for h in path["nexthops"] if h.get("scope") != "link-local")
                at = path.get("aspath", {}).get("string", "")
                aggregator = f"{path['aggregatorAs']} {path['aggregatorId']}" if "aggregatorAs" in path else ""
                routes[prefix] = Route(
                    as_path("" if at == "Local" else at), path["origin"].lower(), hop,
                    path.get("metric", 0), path.get("locPrf", 100),
                    frozenset(self.KNOWN.get(c, c) for c in path.get("community", {}).get("list", [])),
                    frozenset(path.get("largeCommunity", {}).get("list", [])), aggregator, path.get("atomicAggregate", False),
                    path.get("originatorId", ""), " ".join(path.get("clusterList", {}).get("list", [])))
        return routes


class Openbgpd:
    """OpenBGPD. It installs no routes."""

    #: OpenBGPD's names of well-known communities.
    KNOWN = {"GRACEFUL_SHUTDOWN": "65535:0", "NO_EXPORT": "65535:65281", "NO_ADVERTISE": "65535:65282"}

    def __init__(self, host, config):
        # FRR's daemon of the same name is no program of the path.
        need("bgpctl")
        self.host = host
        self.socket = host.folder / "openbgpd.sock"
        path = host.folder / "openbgpd.conf"
        path.write_text(f'socket "{self.socket}"\n{config}')
        # It refuses a configuration that others may write.
        path.chmod(0o600)
        # Its processes shut themselves in here; elsewhere the system's service manager makes it.
        pathlib.Path("/run/openbgpd").mkdir(exist_ok=True)
        self.process = host.start("openbgpd", "/usr/sbin/bgpd", "-d", "-f", path)
        wait_for("OpenBGPD answers", lambda: self.query("show"), 20, alive=[self.process])

    def query(self, *command):
        return self.host.run("bgpctl", "-s", self.socket, *command, timeout=300)

    def kill(self):
        self.process.kill()

    def established(self, neighbor):
        return json.loads(self.query("-j", "show", "neighbor", neighbor))["neighbors"][0]["state"] == "Established"

    def count(self):
        """How many prefixes it has from neighbors."""
        return len(self.table())

    def table(self):
        """Prefix → Route of the best paths from neighbors."""
        answer = json.loads(self.query("-j", "show", "rib", "selected", "detail"))
        routes = {}
        for at in answer.get("rib", []):
            if at["neighbor"].get("description") == "LOCAL":
                continue
            more = {attribute["type"]: attribute for attribute in at.get("attributes", [])}
            aggregator = more.get("Aggregator")
            routes[at["prefix"]] = Route(
                as_path(at["aspath"]), at["origin"].lower(), at["exit_nexthop"], at["metric"], at["localpref"],
                frozenset(self.KNOWN.get(c, c) for c in at.get("communities", [])), frozenset(at.get("large_communities", [])),
                f"{aggregator['AS']} {aggregator['router_id']}" if aggregator else "", "Atomic Aggregate" in more,
                more.get("Originator Id", {}).get("originator", ""), " ".join(more.get("Cluster Id List", {}).get("cluster_list", [])))
        return routes


class Gobgp:
    """GoBGP."""

    def __init__(self, host, config):
        need("gobgpd")
        self.host = host
        path = host.folder / "gobgpd.toml"
        path.write_text(config)
        self.process = host.start("gobgpd", "gobgpd", "-f", path, "--api-hosts", "127.0.0.1:50051", "--log-level=warn",
                                  "--pprof-disable")
        wait_for("gobgpd answers", lambda: self.query("global"), 20, alive=[self.process])

    def query(self, *command):
        return self.host.run("gobgp", "-p", "50051", *command, timeout=300)

    def kill(self):
        self.process.kill()

    def established(self, neighbor):
        return json.loads(self.query("neighbor", neighbor, "-j"))["state"].get("session_state") == 6

    def count(self):
        """How many prefixes it has."""
        lines = [self.query("global", "rib", "summary", "-a", family) for family in ("ipv4", "ipv6")]
        return sum(int(re.search(r"Destination: (\d+)", line)[1]) for line in lines)

    def table(self):
        """Prefix → Route of the best paths of the global table."""
        routes = {}
        for family in ("ipv4", "ipv6"):
            for prefix, paths in json.loads(self.query("global", "rib", "-a", family, "-j") or "{}").items():
                at = {a["type"]: a for a in paths[0]["attrs"]}
                path = " ".join(self.segment(s) for s in at.get(2, {}).get("as_paths", []))
                hop = at[3]["nexthop"] if 3 in at else at[14]["nexthop"]
                aggregator = f"{at[7]['as']} {at[7]['address']}" if 7 in at else ""
                routes[prefix] = Route(
                    as_path(path), ["igp", "egp", "incomplete"][at[1].get("value", 0)], hop, at.get(4, {}).get("metric", 0),
                    at.get(5, {}).get("value", 100),
                    frozenset(f"{c >> 16}:{c & 0xffff}" for c in at.get(8, {}).get("communities", [])),
                    frozenset(f"{c['ASN']}:{c['LocalData1']}:{c['LocalData2']}" for c in at.get(32, {}).get("value", [])),
                    aggregator, 6 in at, at.get(9, {}).get("value", ""), " ".join(at.get(10, {}).get("value", [])))
        return routes

    @staticmethod
    def segment(segment):
        numbers = [str(n) for n in segment["asns"]]
        opens, between, closes = {1: ("{", ",", "}"), 3: ("(", " ", ")"), 4: ("[", ",", "]")}.get(segment["segment_type"], ("", " ", ""))
        return opens + between.join(numbers) + closes


class Exabgp:
    """ExaBGP. It has no table of its own: it prints what it receives, which this class adds up."""

    def __init__(self, host, config):
        need("exabgp")
        self.host = host
        self.received = host.folder / "exabgp.json"
        self.commands = host.folder / "exabgp-commands"
        self.commands.touch()
        script = host.folder / "exabgp-write"
        # The shell stays, and so does the standard output that ExaBGP reads commands from.
        script.write_text(f'#!/bin/sh\ntail -s 0.1 -f "{self.commands}" &\ncat >> "{self.received}"\nexit\n')
        script.chmod(0o755)
        path = host.folder / "exabgp.conf"
        path.write_text(f"process write {{ run {script}; encoder json; }}\n{config}")
        settings = {"exabgp.daemon.user": "root", "exabgp.daemon.drop": "false", "exabgp.api.cli": "false",
                    "exabgp.api.ack": "false"}
        self.process = host.start("exabgp", "env", *(f"{k}={v}" for k, v in settings.items()), "exabgp", path)
        wait_for("ExaBGP has connected", self.received.exists, 20, alive=[self.process])

    def kill(self):
        self.process.kill()

    def lines(self):
        """The lines that it printed, without one that it is still writing."""
        return self.received.read_text(errors="replace").split("\n")[:-1]

    def messages(self):
        """What it printed. The data of a NOTIFICATION comes as it is."""
        return [json.loads(line, strict=False) for line in self.lines() if line and '"type": "refresh"' not in line]

    def refreshes(self):
        """The subtypes of the ROUTE-REFRESHes that it got; version 4.2 prints them with too many quotation marks for JSON."""
        return [re.search(r'"subtype": "+(\w+)"', line)[1] for line in self.lines() if '"type": "refresh"' in line]

    def established(self, neighbor):
        states = [m["neighbor"]["state"] for m in self.messages()
                  if m["type"] == "state" and m["neighbor"]["address"]["peer"] == neighbor]
        return bool(states) and states[-1] == "up"

    def command(self, text):
        """Gives it a command of its API."""
        with open(self.commands, "a") as file:
            file.write(f"{text}\n")

    def count(self):
        """How many prefixes it has."""
        return len(self.table())

    def table(self):
        """Prefix → Route of what all neighbors announced and did not withdraw."""
        return {prefix: route for (_, prefix, _), route in self.paths().items()}

    def paths(self):
        """(Neighbor, prefix, path identifier or None) → Route of what all neighbors announced and did not withdraw."""
        routes = {}
        for message in self.messages():
            if message["type"] == "state" and message["neighbor"]["state"] == "down":
                gone = message["neighbor"]["address"]["peer"]
                routes = {key: route for key, route in routes.items() if key[0] != gone}
            if message["type"] != "update":
                continue
            peer = message["neighbor"]["address"]["peer"]
            parts = message["neighbor"]["message"].get("update", {})
            at = parts.get("attribute", {})
            for withdrawn in parts.get("withdraw", {}).values():
                for nlri in withdrawn:
                    routes.pop((peer, nlri["nlri"], nlri.get("path-information")), None)
            for announced in parts.get("announce", {}).values():
                for hop, prefixes in announced.items():
                    for nlri in prefixes:
                        routes[peer, nlri["nlri"], nlri.get("path-information")] = Route(
                            as_path(" ".join(map(str, at.get("as-path", [])))), at["origin"].lower(), hop, at.get("med", 0),
                            at.get("local-preference", 100), frozenset(f"{a}:{b}" for a, b in at.get("community", [])),
                            frozenset(f"{a}:{b}:{c}" for a, b, c in at.get("large-community", [])),
                            at.get("aggregator", "").replace(":", " "), at.get("atomic-aggregate", False),
                            at.get("originator-id", ""), " ".join(at.get("cluster-list", [])))
        return routes


class Redis:
    """A Redis server for the test, on a Unix socket and on a port of the host's loopback or
    another of its addresses. `state`: STATE_DB and COUNTERS_DB are on a server of their own."""

    def __init__(self, host, port=6379, address="127.0.0.1", state=False):
        need("redis-server")
        pytest.importorskip("redis", reason="the Python module redis is not installed (scripts/setup test installs it)")
        self.host, self.port, self.address = host, port, address
        self.socket = self.state_socket = host.folder / "redis.sock"
        self.start()
        if state:
            self.state_socket = host.folder / "redis-state.sock"
            self.serve("redis-state", port + 1, self.state_socket)
            wait_for("the other Redis answers", lambda: self.ping(6), 10)
            self.configure()

    def serve(self, name, port, socket, append=False):
        return self.host.start(name, "redis-server", "--port", str(port), "--bind", self.address, "--protected-mode", "no",
                               "--unixsocket", socket, "--save", "", "--appendonly", "yes" if append else "no",
                               "--notify-keyspace-events", "AKE", "--lua-time-limit", "0", "--dir", self.host.folder)

    def start(self, append=False):
        """`append`: from its file of every write, which it also keeps."""
        self.process = self.serve("redis", self.port, self.socket, append)
        wait_for("Redis answers", self.ping, 10, alive=[self.process])
        self.configure()

    def configure(self):
        def server(port, socket):
            return {"hostname": self.address, "port": port, "unix_socket_path": str(socket), "persistence_for_warm_boot": "yes"}
        state = "redis" if self.state_socket == self.socket else "redis-state"
        instances = {"redis": server(self.port, self.socket), state: server(self.port + (state != "redis"), self.state_socket)}
        databases = {name: {"id": n, "separator": s, "instance": on} for name, n, s, on in [
            ("APPL_DB", 0, ":", "redis"), ("ASIC_DB", 1, ":", "redis"), ("COUNTERS_DB", 2, ":", state), ("LOGLEVEL_DB", 3, ":", "redis"),
            ("CONFIG_DB", 4, "|", "redis"), ("STATE_DB", 6, "|", state), ("APPL_STATE_DB", 14, ":", "redis")]}
        self.config = self.host.folder / "database_config.json"
        self.config.write_text(json.dumps({"INSTANCES": instances, "DATABASES": databases, "VERSION": "1.0"}))

    def ping(self, number=0):
        import redis
        try:
            return self.db(number).ping()
        except redis.ConnectionError:
            return False

    def db(self, number):
        """A plain client."""
        import redis
        socket = self.state_socket if number in (2, 6) else self.socket
        return redis.Redis(unix_socket_path=str(socket), db=number, decode_responses=True)
