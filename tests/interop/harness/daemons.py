"""The programs that ribtide talks to, each with just what the tests ask of it."""

import json
import os
import pathlib
import re
import shutil
import subprocess

from .host import Process, wait_for
from .table import Route

WELL_KNOWN = {"no-export": "65535:65281", "no-advertise": "65535:65282", "local-AS": "65535:65283",
              "noExport": "65535:65281"}


class Bird:
    """BIRD 2."""

    def __init__(self, host, config):
        self.host = host
        self.socket = host.folder / "bird.ctl"
        self.config = host.folder / "bird.conf"
        self.config.write_text(config)
        self.process = host.start("bird", "bird", "-f", "-c", self.config, "-s", self.socket, "-P", host.folder / "bird.pid")
        wait_for("BIRD answers", lambda: self.ask("show status"), 20, alive=[self.process])

    def ask(self, command):
        return self.host.run("birdc", "-s", self.socket, *command.split(), timeout=300)

    def established(self, protocol):
        return "Established" in self.ask(f"show protocols {protocol}")

    def count(self, protocol):
        match = re.search(r"(\d+) of \d+ routes", self.ask(f"show route protocol {protocol} count"))
        return int(match.group(1)) if match else 0

    def table(self, protocol):
        """Prefix → Route of everything learnt from `protocol`."""
        routes, prefix, at = {}, None, None
        for line in self.ask(f"show route protocol {protocol} all").splitlines():
            head = re.match(r"^([0-9a-fA-F.:]+/\d+)\s", line)
            if head:
                prefix, at = head.group(1), {"BGP.as_path": "", "BGP.origin": "", "BGP.community": ""}
            elif ":" in line and at is not None:
                key, _, value = line.strip().partition(":")
                at[key] = value.strip()
                path = at["BGP.as_path"].replace("{", "{").replace(" }", "}").replace("{ ", "{")
                path = re.sub(r"\{([^}]*)\}", lambda m: "{" + ",".join(m.group(1).split()) + "}", path)
                communities = frozenset(":".join(c.split(",")) for c in at["BGP.community"].strip("()").split(") (") if c)
                routes[prefix] = Route(path, at["BGP.origin"].lower(), communities)
        return routes


class Frr:
    """FRR: zebra and bgpd (or zebra alone), from Debian's package, in folders of their own."""

    def __init__(self, host, zebra="", bgpd=None, staticd=False, zebra_args=()):
        self.host = host
        self.folder = host.folder / "frr"
        self.folder.mkdir()
        shutil.chown(self.folder, "frr", "frr")
        names = ["zebra"] + (["staticd"] if staticd else []) + (["bgpd"] if bgpd is not None else [])
        texts = {"zebra": zebra, "bgpd": bgpd or "", "staticd": ""}
        self.processes = []
        for name in names:
            config = self.folder / f"{name}.conf"
            config.write_text(texts[name])
            shutil.chown(config, "frr", "frr")
            extra = list(zebra_args) if name == "zebra" else []
            process = host.start(name, f"/usr/lib/frr/{name}", "-f", config, "-i", self.folder / f"{name}.pid",
                                 "-z", self.folder / "zserv.api", "--vty_socket", self.folder, "-P", "0", *extra)
            self.processes.append(process)
            wait_for(f"{name} answers", lambda: self.ask("show version", name), 20, alive=[process])

    def ask(self, command, daemon=None):
        one = ["-d", daemon] if daemon else []
        return self.host.run("vtysh", "--vty_socket", self.folder, *one, "-c", command, timeout=300)

    def bgp_table(self, afi, neighbor=None):
        """Prefix → Route of what bgpd holds."""
        answer = json.loads(self.ask(f"show bgp {afi} unicast detail json"))
        routes = {}
        for prefix, paths in answer.get("routes", {}).items():
            paths = paths if isinstance(paths, list) else paths.get("paths", [])
            for path in paths:
                text = path.get("aspath", {}).get("string", "")
                text = "" if text == "Local" else text
                communities = frozenset(WELL_KNOWN.get(c, c) for c in path.get("community", {}).get("list", []))
                routes[prefix] = Route(text, path.get("origin", "").lower(), communities)
        return routes

    def stop(self):
        for process in self.processes:
            process.stop()


class Gobgp:
    """GoBGP."""

    def __init__(self, host, config):
        self.host = host
        path = host.folder / "gobgpd.toml"
        path.write_text(config)
        self.process = host.start("gobgpd", "gobgpd", "-f", path, "--api-hosts", "127.0.0.1:50051", "--log-level=warn",
                                  "--pprof-disable")
        wait_for("gobgpd answers", lambda: self.ask("global"), 20, alive=[self.process])

    def ask(self, *command):
        return self.host.run("gobgp", "-p", "50051", *command, timeout=300)

    def established(self, neighbor):
        state = json.loads(self.ask("neighbor", neighbor, "-j")).get("state", {})
        return state.get("session_state") == 6 or state.get("session-state") == 6

    def table(self, family="ipv4"):
        """Prefix → Route of the best paths of the global table."""
        routes = {}
        text = self.ask("global", "rib", "-a", family, "-j")
        for prefix, paths in json.loads(text or "{}").items():
            attrs = {a["type"]: a for a in paths[0]["attrs"]}
            segments = []
            for segment in attrs.get(2, {}).get("as_paths", []):
                numbers = [str(n) for n in segment["asns"]]
                segments.append("{" + ",".join(numbers) + "}" if segment["segment_type"] == 1 else " ".join(numbers))
            origin = ["igp", "egp", "incomplete"][attrs.get(1, {}).get("value", 0)]
            communities = frozenset(f"{c >> 16}:{c & 0xffff}" for c in attrs.get(8, {}).get("communities", []))
            routes[prefix] = Route(" ".join(segments), origin, communities)
        return routes


class Redis:
    """A Redis server of our own, on a Unix socket and a port of loopback."""

    def __init__(self, host, port=6379):
        self.host, self.port = host, port
        self.socket = host.folder / "redis.sock"
        self.start()

    def start(self):
        self.process = self.host.start("redis", "redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                                       "--unixsocket", self.socket, "--save", "", "--appendonly", "no",
                                       "--notify-keyspace-events", "AKE", "--dir", self.host.folder)
        wait_for("Redis answers", lambda: self.db(0).ping(), 10, alive=[self.process])
        instances = {"redis": {"hostname": "127.0.0.1", "port": self.port, "unix_socket_path": str(self.socket),
                               "persistence_for_warm_boot": "yes"}}
        databases = {name: {"id": n, "separator": s, "instance": "redis"} for name, n, s in [
            ("APPL_DB", 0, ":"), ("ASIC_DB", 1, ":"), ("COUNTERS_DB", 2, ":"), ("LOGLEVEL_DB", 3, ":"),
            ("CONFIG_DB", 4, "|"), ("STATE_DB", 6, "|"), ("APPL_STATE_DB", 14, ":")]}
        self.config = self.host.folder / "database_config.json"
        self.config.write_text(json.dumps({"INSTANCES": instances, "DATABASES": databases, "VERSION": "1.0"}))

    def db(self, number):
        """A plain client."""
        import redis
        return redis.Redis(unix_socket_path=str(self.socket), db=number, decode_responses=True)
