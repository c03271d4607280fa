"""What commands print with --json is as contrib/outputs.schema.json says: real outputs of a router with every part."""

import json
import pathlib
import subprocess

import pytest
from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, stations
from harness.speaker import Speaker, communities, update

pytest.importorskip("jsonschema", reason="python3-jsonschema is missing")
from jsonschema import Draft202012Validator  # noqa: E402

SCHEMA = pathlib.Path(__file__).parents[2] / "contrib" / "outputs.schema.json"
FIRST, SECOND = Host.FEEDS
PREFIX = "20.1.0.0/16"


@pytest.fixture
def router(host, folder):
    """A router with every part that has an output, and a session with routes."""
    router = Ribtide(host, HEAD + f"""
shards = 2
update-threads = 2
[bgp.originate]
networks = ["203.0.113.0/24"]
api = ["accept"]
[[bgp.aggregate]]
prefix = "20.0.0.0/8"
[bgp.group.feeds]
type = "external"
peer-asn = 65010
import = ["accept"]
export = ["accept"]
keep-received = true
max-prefixes = {{ ipv4-unicast = 100000, action = "warn" }}
neighbors = ["{FIRST}"]
[bgp.group.down]
type = "external"
peer-asn = 65100
bfd = true
neighbors = ["198.19.1.1"]
{stations(folder)}suppress-fib-pending = false
{LAB.removeprefix("[fib]")}
[[static]]
prefix = "20.9.0.0/16"
next-hop = ["10.0.0.77"]
""")
    speaker = Speaker(host, FIRST, 65010)
    speaker.send(update([PREFIX, "20.2.0.0/16"], [65010, 64900], "10.0.0.5", communities([(64500, 7)])))
    wait_for("the routes are there", lambda: len(router.show("route", "--neighbor", FIRST)) == 2, 60)
    return router


def printed(router, *args, fails=False):
    done = subprocess.run([binary(), *map(str, args), "--json", "--socket", router.socket], capture_output=True, text=True, timeout=120)
    assert fails or done.returncode == 0, (args, done.stderr)
    return done.stdout


#: Each output of the schema, and a command that prints it. `None`: its parts are of SONiC's daemons, or it goes on for ever.
COMMANDS = {
    "show bgp neighbor NEIGHBOR": ("show", "bgp", "neighbor", FIRST),
    "show bgp neighbor NEIGHBOR advertised": ("show", "bgp", "neighbor", FIRST, "advertised", "--all"),
    "show bgp neighbor NEIGHBOR received": ("show", "bgp", "neighbor", FIRST, "received"),
    "show bgp neighbor NEIGHBOR filtered": ("show", "bgp", "neighbor", FIRST, "filtered"),
    "show bgp neighbor NEIGHBOR messages": ("show", "bgp", "neighbor", FIRST, "messages"),
    "show route": ("show", "route", "--detail"),
    "show route vrf": ("show", "route", "vrf", "default"),
    "show route rib-sharding SHARD": ("show", "route", "rib-sharding", "0"),
    "show rpki validation": ("show", "rpki", "validation", PREFIX, "64900"),
    "show asic ADDRESS": ("show", "asic", "20.1.2.3"),
    "show performance STAGE": None,
    "show pipeline --sonic": None,
    "show health --sonic": None,
    "explain": ("explain", PREFIX),
    "monitor": None,
    "watch": None,
    "clear bgp neighbor": ("clear", "bgp", "neighbor", FIRST, "soft"),
    "config bgp shards": ("config", "bgp", "shards", "3"),
    "config fib suppress-fib-pending": ("config", "fib", "suppress-fib-pending", "on"),
    "config fib nexthop-cache": ("config", "fib", "nexthop-cache", "epoch"),
    "config sonic": None,
    "config asic refuse": ("config", "asic", "refuse", "20.77.0.0/16"),
    "config asic take": ("config", "asic", "take", "20.77.0.0/16"),
    "config asic set": ("config", "asic", "set", "call-us=0"),
    "config asic stall": ("config", "asic", "stall", "0.1"),
    "config asic resume": ("config", "asic", "resume"),
    "route add": ("route", "add", "203.0.113.128/25", "--discard"),
    "route delete": ("route", "delete", "203.0.113.128/25"),
    "policy test": None,
    "flush": None,
}


def test_outputs_are_what_the_schema_says(router, folder):
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    checked = set()
    for output, described in schema["outputs"].items():
        args = COMMANDS.get(output, tuple(output.split()))
        if output == "dump mrt":
            args = ("dump", "mrt", f"{folder}/table.mrt")
        if output == "dump messages":
            args = ("dump", "messages", FIRST, f"{folder}/messages.mrt")
        if output == "check --diff":
            other = folder / "other.toml"
            other.write_text(router.config.read_text() + '[[static]]\nprefix = "198.18.5.0/24"\nblackhole = true\n')
            args = ("check", "--diff", other)
        if output == "policy test":
            text = subprocess.run([binary(), "policy", "test", router.config, PREFIX, "--json"], check=True, capture_output=True, text=True).stdout
        elif args is None:
            continue
        else:
            # A station and a cache that are not there are faults of `show health`; some routes may differ, and the files do.
            text = printed(router, *args, fails=output in ("show health", "route-check", "check --diff"))
        validator = Draft202012Validator(described["schema"] | {"$defs": schema["$defs"]})
        documents = [json.loads(line) for line in text.splitlines()] if described["form"] == "lines" else [json.loads(text)]
        for document in documents:
            errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
            assert not errors, (output, errors[:3])
        checked.add(output)
    unchecked = {name for name, args in COMMANDS.items() if args is None} - {"policy test"}
    assert checked == set(schema["outputs"]) - unchecked and len(checked) > 45
    # The schema can be broken: a name that a type does not have, or a text in the place of a number.
    route = json.loads(printed(router, "show", "route", PREFIX).splitlines()[0])
    validator = Draft202012Validator(schema["outputs"]["show route"]["schema"] | {"$defs": schema["$defs"]})
    assert validator.is_valid(route)
    del route["paths"][0]["as_path"]
    assert not validator.is_valid(route)
