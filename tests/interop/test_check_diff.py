"""`ribtide check --diff`: what it says that a reload would change, compared with what the reload then changes. BIRD holds
what the neighbour is sent, before and after."""

import json
import random
import re
import subprocess
import threading

import pytest

from harness import Bird, Host, Pair, Ribtide, binary, settled, wait_for
from harness.config import external
from harness.peers import wait_count
from harness.speaker import ROUTE_REFRESH, Speaker, attribute, communities, update

FIRST, SECOND, THIRD = *Host.FEEDS, "198.19.0.4"
PEER = 65002

#: The policies in force, and others.
POLICIES = """
[policy.community-set.secret]
members = ["64500:666"]
[policy.prefix-set.seven]
prefixes = ["20.7.0.0/16 16..32"]
[policy.prefix-set.one]
prefixes = ["20.1.0.0/16 16..32"]

[[policy.definition.in.statement]]
conditions.match-prefix-set = "seven"
actions.policy-result = "reject"
[[policy.definition.in.statement]]
conditions.match-prefix-set = "one"
actions.set-local-pref = 90
actions.policy-result = "accept"
[[policy.definition.in.statement]]
actions.policy-result = "accept"

[[policy.definition.other-in.statement]]
name = "secret"
conditions.match-community-set = "secret"
actions.policy-result = "reject"
[[policy.definition.other-in.statement]]
conditions.match-prefix-set = "one"
actions.set-local-pref = 300
actions.policy-result = "accept"
[[policy.definition.other-in.statement]]
actions.policy-result = "accept"

[[policy.definition.out.statement]]
conditions.match-community-set = "secret"
actions.policy-result = "reject"
[[policy.definition.out.statement]]
actions.policy-result = "accept"

[[policy.definition.other-out.statement]]
conditions.match-prefix-set = "one"
actions.set-med = 77
actions.policy-result = "accept"
[[policy.definition.other-out.statement]]
conditions.match-prefix-set = "seven"
actions.policy-result = "reject"
[[policy.definition.other-out.statement]]
actions.policy-result = "accept"
"""


def config(socket=None, first="in", second="accept", third="", out="out", bgp="", hold=""):
    """`third`: settings of a group that is there only with some."""
    text = f"""
[router]
asn = 65001
router-id = "{Pair.A4}"
[bgp]
listen = ["[::]:179"]
shards = 3
{bgp}
{external("first", 65010, FIRST, f'keep-received = true{chr(10)}import = ["{first}"]')}
{external("second", 65011, SECOND, f'import = ["{second}"]')}
{external("third", 65012, THIRD, third) if third else ""}
[bgp.group.link]
type = "external"
peer-asn = {PEER}
connect-retry = 1
{hold}
families = ["ipv4-unicast"]
import = ["accept"]
export = ["{out}"]
neighbors = ["{Pair.B4}"]
{POLICIES}
"""
    return text if socket is None else text + f'\n[api]\nsocket = "{socket}"\n'


BIRD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp up {{
    local {Pair.B4} as {PEER};
    neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    enforce first as off; interpret communities off;
    ipv4 {{ import all; export none; gateway recursive; }};
}}
"""


class Feed:
    """A neighbour that sends its routes again when it is asked to (RFC 2918)."""

    def __init__(self, host, source, asn, seed):
        rng = random.Random(seed)
        self.messages = b""
        for n in range(120):
            path = [asn, *(rng.choice([64900, 64901]) for _ in range(rng.randrange(3)))]
            more = [attribute(0x80, 4, rng.randrange(9).to_bytes(4, "big"))] if rng.random() < 0.5 else []
            if rng.random() < 0.4:
                more.append(communities([(64500, rng.choice([1, 666]))]))
            if rng.random() < 0.7:
                self.messages += update([f"20.{n % 9}.{n}.0/24"], path, source, *more)
        self.speaker = Speaker(host, source, asn, refresh=True)
        self.speaker.send(self.messages)
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self):
        try:
            while (got := self.speaker.read(None)) is not None:
                if got[0] == ROUTE_REFRESH:
                    self.speaker.send(self.messages)
        except OSError:
            pass


def check(router, path, *args):
    """The exit status, and the output of `ribtide check --diff`."""
    done = subprocess.run([binary(), "check", "--diff", path, "--socket", router.socket, *args], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode in (0, 2), done.stderr
    return done.returncode, done.stdout


def predicted(router, text, folder):
    path = folder / "other.toml"
    path.write_text(text)
    status, out = check(router, path, "--json", "--examples", "1000")
    return status, json.loads(out)


def changes(before, after):
    """Of two tables: the prefixes that appear, vanish and change."""
    both = before.keys() & after.keys()
    return after.keys() - before.keys(), before.keys() - after.keys(), {p for p in both if before[p] != after[p]}


def received(router, address):
    """Prefix → whether it is accepted, of the kept routes."""
    lines = router.text("show", "bgp", "neighbor", address, "received", "--json").splitlines()
    return {route["prefix"]: route["accepted"] for route in map(json.loads, lines)}


#: What is another in the file, and how the router evaluates the routes of which feed.
VARIANTS = {
    "import of kept routes": ({"first": "other-in"}, {FIRST: "received"}),
    "import of routes that are not kept": ({"second": "other-in"}, {SECOND: "accepted-unchanged"}),
    "export": ({"out": "other-out"}, {}),
    "selection": ({"bgp": "always-compare-med = true"}, {}),
    "all": ({"first": "other-in", "second": "in", "out": "other-out", "bgp": "always-compare-med = true"},
            {FIRST: "received", SECOND: "accepted-unchanged"}),
    "a neighbour goes": ({"third": ""}, {}),
}


@pytest.mark.feature("what a reload would change, before it does")
@pytest.mark.peers("bird")
@pytest.mark.parametrize("what", VARIANTS)
def test_prediction_is_what_the_reload_does(pair, what):
    more, bases = VARIANTS[what]
    present = {"third": 'import = ["accept"]'}
    pair.a.feeds.address("feed0", f"{THIRD}/24")
    router = Ribtide(pair.a, config(**present))
    bird = Bird(pair.b, BIRD)
    for source, asn in [(FIRST, 65010), (SECOND, 65011), (THIRD, 65012)]:
        Feed(pair.a, source, asn, f"{what} {source}")
    wait_for("the session is established", lambda: router.established(Pair.B4), 60, alive=[router.process])

    def at_rest():
        sent = [json.loads(line) for line in router.text("show", "bgp", "neighbor", Pair.B4, "advertised", "--json").splitlines()]
        table = bird.table()
        assert table.keys() == {route["prefix"] for route in sent} and len(table) > 50
        return table
    before = settled(at_rest, 60)
    same, nothing = predicted(router, router.config.read_text(), pair.a.folder)
    assert same == 0 and not nothing["settings"] and not nothing["routes"], nothing
    kept = received(router, FIRST)

    wanted = config(router.socket, **{**present, **more})
    status, prediction = predicted(router, wanted, pair.a.folder)
    assert status == 2
    # It changed nothing.
    assert settled(at_rest, 30) == before and received(router, FIRST) == kept
    assert predicted(router, wanted, pair.a.folder) == (status, prediction)

    router.config.write_text(wanted)
    reloaded = json.loads(router.text("reload", "--json"))
    by_change = {change: sorted(n["neighbor"] for n in prediction["neighbors"] if n["change"] == change)
                 for change in ("added", "removed", "reset", "refreshed", "shut-down", "started")}
    assert by_change == {change: sorted(reloaded.get(change.replace("-", "_"), [])) for change in by_change}
    rows = {row["neighbor"]: row for row in prediction["routes"]}
    assert {n: row["received"]["basis"] for n, row in rows.items() if "received" in row} == bases
    sent = rows.get(Pair.B4, {}).get("advertised", {})
    names = [set(sent.get(f"{change}_examples", [])) for change in ("appear", "vanish", "changed")]
    assert [len(one) for one in names] == [sent.get(change, 0) for change in ("appear", "vanish", "changed")]
    assert any(names) or what == "selection", prediction

    def as_predicted():
        after = at_rest()
        assert list(map(sorted, changes(before, after))) == list(map(sorted, names)), what
    settled(as_predicted, 60)
    if FIRST in bases:
        now, row = received(router, FIRST), rows[FIRST]["received"]
        assert row["routes"] == len(kept)
        assert sorted(row["accepted_examples"]) == sorted(p for p, accepted in now.items() if accepted and not kept[p])
        assert sorted(row["refused_examples"]) == sorted(p for p, accepted in now.items() if not accepted and kept[p])
        assert row["accepted"] and row["refused"] and row["changed"]
    status, rest = predicted(router, wanted, pair.a.folder)
    assert status == 0 and not rest["neighbors"] and not rest["routes"], rest


def test_the_output_names_settings_sessions_and_why(pair):
    """Secrets only as changed, what a reload refuses, and what is not computed; a file with an error has its place."""
    router = Ribtide(pair.a, config(hold='password = "hunter2"\nhold-time = 90'))
    path = pair.a.folder / "other.toml"
    other = config(router.socket, second="in", out="other-out", hold='password = "hunter3"\nhold-time = 30',
                   third='import = ["accept"]')
    path.write_text(other)
    status, out = check(router, path)
    assert status == 2
    assert "hunter" not in out
    assert re.search(r"bgp\.group\.link\.hold-time +90 +30$", out, re.MULTILINE), out
    assert re.search(r"bgp\.group\.link\.password +\*+ +changed$", out, re.MULTILINE), out
    assert re.search(rf"^{re.escape(Pair.B4)} +link +- +reset +hold-time, password$", out, re.MULTILINE), out
    assert re.search(rf"^{re.escape(THIRD)} +third +- +added", out, re.MULTILINE), out
    assert "New groups: third\n" in out and f"  {THIRD}: its routes, since it has no session yet\n" in out
    # The present neighbour has no session: nothing of its routes is known.
    assert "Sent to" not in out
    path.write_text(other.replace("asn = 65001", "asn = 65009", 1))
    status, out = check(router, path)
    assert status == 2 and "a reload would be refused, because router.asn cannot change" in out
    # The router stays as it is, whatever is checked.
    status, out = check(router, router.config)
    assert (status, out) == (0, f"{router.config}: a reload would change nothing\n")
    path.write_text("[router]\nasn = banana\n")
    done = subprocess.run([binary(), "check", "--diff", path, "--socket", router.socket], capture_output=True, text=True)
    assert done.returncode == 1 and f"{path}:2:7" in done.stderr, done.stderr
