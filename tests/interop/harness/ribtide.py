"""ribtide itself: the router, and its tools."""

import json
import os
import pathlib
import subprocess

from .host import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]


def binary():
    """The program under test: `RIBTIDE` in the environment, or the release build."""
    return os.environ.get("RIBTIDE", str(ROOT / "target/release/ribtide"))


def run_tool(host, *args, timeout=180, check=True):
    """Runs `ribtide ARGS` to its end and returns what it prints."""
    return host.run(binary(), *args, timeout=timeout, check=check)


class Ribtide:
    """A running router."""

    def __init__(self, host, config, name="ribtide"):
        self.host, self.name = host, name
        self.socket = host.folder / f"{name}.sock"
        self.config = host.folder / f"{name}.toml"
        self.config.write_text(config + f'\n[api]\nsocket = "{self.socket}"\n')
        self.start()

    def start(self):
        self.process = self.host.start(self.name, binary(), "run", "-c", self.config)
        wait_for(f"{self.name} answers", lambda: self.show("bgp", "summary"), 20, alive=[self.process])

    def show(self, *args):
        """`ribtide show ARGS --json`, parsed."""
        text = subprocess.run([binary(), "show", *map(str, args), "--json", "--socket", self.socket], check=True,
                              capture_output=True, text=True, timeout=300).stdout
        if args[0] in ("route", "fib"):
            return [json.loads(line) for line in text.splitlines()]
        return json.loads(text)

    def explain(self, prefix):
        text = subprocess.run([binary(), "explain", prefix, "--json", "--socket", self.socket], check=True,
                              capture_output=True, text=True, timeout=60).stdout
        return json.loads(text)

    def neighbor(self, address):
        return self.show("bgp", "neighbor", address)

    def wait_established(self, address, timeout=60):
        return wait_for(f"the session with {address} is established",
                        lambda: self.neighbor(address)["state"].lower() == "established", timeout, alive=[self.process])

    def wait_received(self, address, count, timeout=120):
        def received():
            session = self.neighbor(address).get("session")
            total = sum(session["received"].values()) if session else -1
            return total == count or None
        return wait_for(f"{count} paths are held from {address}", received, timeout, 0.3, alive=[self.process])

    def wait_prefixes(self, count, timeout=120):
        def prefixes():
            return sum(self.show("bgp", "summary")["prefixes"].values()) == count
        return wait_for(f"the Loc-RIB holds {count} prefixes", prefixes, timeout, 0.3, alive=[self.process])

    def stop(self):
        self.process.stop()
