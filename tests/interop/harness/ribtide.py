"""ribtide: the router and its tools."""

import json
import os
import pathlib
import re
import subprocess

from .host import Host, wait_for
from .table import FEED_ASN, GENERATED4, GENERATED6, MRT, Route, as_path
from .unix_http import UnixHttp

ROOT = pathlib.Path(__file__).resolve().parents[3]


def binary():
    """The program under test: `RIBTIDE` in the environment, or the release build."""
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return os.environ.get("RIBTIDE", str(pathlib.Path(target) / "release/ribtide"))


def full_table(host):
    """Plays the full IPv4 table into a session and stays: a real one, or one made up where that is absent."""
    table = ["replay", MRT] if MRT.exists() else ["blast", "--ipv4", GENERATED4, "--seed", 7, "--next-hops4", "193.203.0.0/25"]
    return host.feeds.start("full-table", binary(), *table, *feed_options(0))


def blast(host, ipv4=0, ipv6=GENERATED6, seed=7):
    """Sends a made-up table, most of it with communities, and stays."""
    table = ["blast", "--ipv4", ipv4, "--ipv6", ipv6, "--seed", seed, "--next-hops4", "193.203.0.0/25", "--next-hops6", "fd00:193::/120"]
    return host.feeds.start("blast", binary(), *table, *feed_options(1))


def feed_options(number):
    """What makes a tool a feed of its host."""
    return ["--to", f"{Host.FEED_SIDE}:179", "--from", Host.FEEDS[number], "--asn", FEED_ASN, "--wait", 30, "--quiet",
            "--router-id", Host.FEEDS[number]]


class Ribtide:
    """A running router."""

    #: Those that the test at hand has started.
    started = []

    def __init__(self, host, config, name="ribtide"):
        self.host, self.name = host, name
        self.differs = None
        self.socket = host.folder / f"{name}.sock"
        self.config = host.folder / f"{name}.toml"
        self.config.write_text(config + f'\n[api]\nsocket = "{self.socket}"\n')
        self.start()
        Ribtide.started.append(self)

    def start(self):
        self.process = self.host.start(self.name, binary(), "run", "-c", self.config)
        wait_for(f"{self.name} answers", lambda: self.show("bgp", "summary"), 20, alive=[self.process])

    def text(self, *args):
        """What `ribtide ARGS` prints about this router."""
        return subprocess.run([binary(), *map(str, args), "--socket", self.socket], check=True, capture_output=True,
                              text=True, timeout=300).stdout

    def call(self, method, path, body=None):
        """The text that the API replies with; `body` is sent as JSON. Fails unless the status is 200."""
        connection = UnixHttp(self.socket)
        connection.request(method, path, *((json.dumps(body), {"Content-Type": "application/json"}) if body is not None else ()))
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        assert reply.status == 200, text
        return text

    def show(self, *args):
        """`ribtide show ARGS --json`, parsed."""
        text = self.text("show", *args, "--json")
        if args[0] in ("route", "fib"):
            return [json.loads(line) for line in text.splitlines()]
        return json.loads(text)

    def explain(self, prefix):
        return json.loads(self.text("explain", prefix, "--json"))

    def ends_differing(self, why):
        """Skips the comparison at the end of the test, because the test leaves differences, for
        this reason."""
        assert why
        self.differs = why

    def assert_agrees(self, wait=60):
        """`ribtide route-check` finds no difference between BGP, RIB manager, kernel and chip,
        after `wait` seconds at most. It is skipped for a router that has ended or installs
        nothing."""
        if self.process.poll() is not None or self.differs or not re.search(r"^\[fib[].]", self.config.read_text(), re.MULTILINE):
            return
        done = subprocess.run([binary(), "route-check", "--full", "--wait", str(wait), "--socket", self.socket], capture_output=True,
                              text=True, timeout=wait + 300)
        assert done.returncode == 0, f"at the end of the test the parts of {self.name} do not agree:\n{done.stdout[:3000]}{done.stderr[:3000]}"

    def neighbor(self, address):
        return self.show("bgp", "neighbor", address)

    def session(self, address):
        """The session with a neighbour, or None where none is established."""
        return self.neighbor(address).get("session")

    def established(self, address):
        return self.session(address) is not None

    def count(self):
        """How many prefixes the Loc-RIB holds."""
        return sum(self.show("bgp", "summary")["prefixes"].values())

    def table(self):
        """Prefix → Route of the best paths."""
        routes = {}
        for entry in self.show("route"):
            best = [p for p in entry["paths"] if p["best"]]
            assert len(best) == 1, entry
            routes[entry["prefix"]] = shown(best[0])
        return routes

    def stop(self):
        return self.process.stop()


def shown(path):
    """A path of `ribtide show route` as a Route."""
    return Route(as_path(path["as_path"]), path["origin"], path["next_hop"], path.get("med", 0), path.get("local_pref", 100),
                 frozenset(path.get("communities", [])), frozenset(path.get("large_communities", [])))
