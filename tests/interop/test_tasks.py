"""The tasks of docs/tasks.md: the test plays the commands of the document against a router, and compares their outputs.

RECORD=1 writes the outputs into the document instead."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB
from harness.speaker import Speaker, communities, update

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tasks.md"
FIRST, SECOND = Host.FEEDS

CONFIG = HEAD + f"""shards = 2
[bgp.group.upstream]
type = "external"
peer-asn = 65010
passive = true
keep-received = true
import = ["from-upstream"]
neighbors = ["{FIRST}"]
[bgp.group.customer]
type = "external"
peer-asn = 65011
passive = true
import = ["accept"]
export = ["to-customer"]
neighbors = ["{SECOND}"]
[policy.prefix-set.own]
prefixes = ["20.7.0.0/16 16..32"]
[policy.community-set.internal]
members = ["65001:666"]
[[policy.definition.from-upstream.statement]]
name = "own prefixes"
conditions.match-prefix-set = "own"
actions.policy-result = "reject"
[[policy.definition.from-upstream.statement]]
name = "rest"
actions.set-local-pref = 150
actions.policy-result = "accept"
[[policy.definition.to-customer.statement]]
name = "internal"
conditions.match-community-set = "internal"
actions.policy-result = "reject"
[[policy.definition.to-customer.statement]]
actions.policy-result = "accept"
[fib]
""" + LAB

#: What differs from run to run.
MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"), "2026-11-30T14:02:11.000000Z"),
    (re.compile(r"pid \d+"), "pid 4242"),
    (re.compile(r"uptime_s=\d+"), "uptime_s=61"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:41000"),
    # The ages of routes.
    (re.compile(r"(?<= )[ \d]\ds(?= )"), " 3s"),
    (re.compile(r"\(for \d+s\)"), "(for 3s)"),
]


def masked(text, router):
    text = text.replace(str(next_file(router)), "/etc/ribtide/next.toml").replace(str(router.config), "/etc/ribtide/ribtide.toml").replace(str(router.socket), "/run/ribtide/ribtide.sock")
    for pattern, by in MASKS:
        text = pattern.sub(by, text)
    return text


def next_file(router):
    """The file of the document with a change."""
    return router.config.with_name("next.toml")


def play(router, command):
    """The output of a command of the document."""
    command = command.replace("/etc/ribtide/next.toml", str(next_file(router)))
    command = command.replace("/etc/ribtide/ribtide.toml", str(router.config)).replace("/run/ribtide/ribtide.sock", str(router.socket))
    words = shlex.split(command)
    if words[0] == "python3":
        run = [sys.executable, *words[1:]]
    else:
        assert words[0] == "ribtide", command
        at_socket = [] if words[1] in ("check", "policy", "schema") and "--diff" not in words else ["--socket", str(router.socket)]
        run = [binary(), *words[1:], *at_socket]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    return masked(done.stdout + done.stderr, router)


def test_the_tasks_of_the_document_have_these_outputs(host):
    router = Ribtide(host, CONFIG)
    more = '["20.7.0.0/16 16..32", "20.2.0.0/16"]'
    next_file(router).write_text(router.config.read_text().replace('["20.7.0.0/16 16..32"]', more))
    first = Speaker(host, FIRST, 65010)
    wait_for("the first session is established", lambda: router.established(FIRST), 60, alive=[router.process])
    second = Speaker(host, SECOND, 65011)
    first.send(update(["20.1.0.0/16", "20.7.0.0/16"], [65010, 64900], "10.0.0.5"))
    first.send(update(["20.2.0.0/16"], [65010], "10.0.0.5", communities([(65001, 666)])))
    second.send(update(["20.1.0.0/16"], [65011, 64800, 64900], "10.0.0.6"))
    wait_for("all routes are in the chip", lambda: {r["prefix"] for r in router.show("fib", "--state", "installed")} >= {"20.1.0.0/16", "20.2.0.0/16"}, 60)
    wait_for("both paths", lambda: len(router.show("route", "20.1.0.0/16")[0]["paths"]) == 2, 60)
    wait_for("nothing waits for the customer", lambda: router.session(SECOND)["waiting"] == 0, 60)
    text = DOCUMENT.read_text()
    blocks = re.compile(r"```console\n\$ (.*)\n((?:(?!```).*\n)*)```\n")
    assert len(blocks.findall(text)) >= 8

    def record(block):
        return f"```console\n$ {block[1]}\n{play(router, block[1])}```\n"
    if os.environ.get("RECORD"):
        DOCUMENT.write_text(blocks.sub(record, text))
        return
    for block in blocks.finditer(text):
        assert record(block) == block[0]
