"""The table of docs/interop.md: which feature was tested beside which other program, by the tests that ran.

A test names its feature by `@pytest.mark.feature("…")`; its peers are those of PEERS that its parameters name, or
that `@pytest.mark.peers(…)` names. As a plugin of pytest this writes the outcome of each such test to the file
that FEATURES_LOG names, one JSON object a line. As a program it makes the table of such a file:

    python3 tests/interop/features.py LOG           exits non-zero if docs/interop.md has another table
    python3 tests/interop/features.py LOG --write   writes docs/interop.md

It does neither where a test failed or was skipped.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "interop.md"
#: Name in a test → name in the table, and what prints its version.
PEERS = {
    "bird": ("BIRD", ["bird", "--version"]),
    "frr": ("FRR", ["/usr/lib/frr/bgpd", "--version"]),
    "gobgp": ("GoBGP", ["gobgpd", "--version"]),
    "openbgpd": ("OpenBGPD", ["dpkg-query", "-W", "-f=${Version}", "openbgpd"]),
    "exabgp": ("ExaBGP", ["exabgp", "--version"]),
}


def peers_of(item):
    """The other programs that a test is beside."""
    named = item.get_closest_marker("peers")
    if named:
        return list(named.args)
    words = re.split(r"\W+", item.callspec.id) if hasattr(item, "callspec") else []
    return [peer for peer in PEERS if peer in words]


def pytest_configure(config):
    config.addinivalue_line("markers", "feature(name): a row of docs/interop.md (features.py)")
    config.addinivalue_line("markers", "peers(name, …): the other programs of the test, where its parameters do not name them")


def pytest_collection_modifyitems(items):
    for item in items:
        for marker in item.iter_markers("feature"):
            peers = peers_of(item)
            assert peers and all(peer in PEERS for peer in peers), f"{item.nodeid}: which peers? {peers}"
            item.user_properties.append(("feature", [marker.args[0], peers]))


def pytest_runtest_logreport(report):
    """In the process that distributes the tests, and in one that runs them alone: there each report arrives once."""
    log = os.environ.get("FEATURES_LOG")
    if not log or "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    with open(log, "a") as file:
        for name, value in report.user_properties:
            if name == "feature":
                line = {"feature": value[0], "peers": value[1], "test": report.nodeid, "outcome": report.outcome}
                file.write(json.dumps(line) + "\n")


def results(log):
    """Feature → peer → outcome of each test; the last one counts, because a test may run again alone."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    for line in pathlib.Path(log).read_text().splitlines():
        run = json.loads(line)
        for peer in run["peers"]:
            found[run["feature"]][peer][run["test"].removeprefix("tests/interop/")] = run["outcome"]
    return found


def table(found):
    rows = [["feature", *(name for name, _ in PEERS.values())], ["---", *["---:"] * len(PEERS)]]
    for feature in sorted(found, key=str.lower):
        rows.append([feature, *(str(len(found[feature][peer]) or "–") for peer in PEERS)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def tests(found):
    """Which test stands for which feature."""
    lines = []
    for feature in sorted(found, key=str.lower):
        names = {re.sub(r"\[.*", "", test) for by_test in found[feature].values() for test in by_test}
        lines.append(f"- {feature}:\n" + "".join(f"  - `{name}`\n" for name in sorted(names)))
    return "".join(lines)


def versions():
    shown = []
    for name, command in PEERS.values():
        done = subprocess.run(command, capture_output=True, text=True)
        number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
        shown.append(f"{name} {number[0]}" if number else f"{name} (version unknown)")
    return ", ".join(shown)


HEAD = """# Interoperability

`make interop` ran these tests beside
{versions},
and wrote this page. A number is how many tests of the feature passed beside that program. A cell
with – has no test, which does not mean that it fails. `make test` compares the table with its run.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = results(options.log)
    body = table(found) + "\n## Tests\n\nIn `tests/interop`:\n\n" + tests(found)
    outcomes = {outcome for by_peer in found.values() for by_test in by_peer.values() for outcome in by_test.values()}
    if outcomes != {"passed"}:
        # A failed test is counted as such already, and a machine without a program proves nothing about the table.
        print(f"docs/interop.md is neither compared nor written: of its tests some {' and '.join(sorted(outcomes - {'passed'})) or 'are missing'}")
        return
    if options.write:
        DOCUMENT.write_text(HEAD.format(versions=versions()) + body)
    elif not DOCUMENT.exists() or not DOCUMENT.read_text().endswith(body):
        sys.exit("docs/interop.md has another table than this run: `make interop` writes it")


if __name__ == "__main__":
    main()
