"""The table of docs/interop.md: which feature was tested beside which other program, by the tests that ran.

A test names its feature by `@pytest.mark.feature("…")`; its peers are those of PEERS that its parameters name, or
that `@pytest.mark.peers(…)` names. LACKS names the features that a program does not have. As a plugin of pytest this
writes the outcome of each such test to the file that FEATURES_LOG names, one JSON object a line. As a program it
makes the table of such a file:

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

GOBGP_SOURCE = "capabilitiesFromConfig in pkg/server/fsm.go of v3.10.0"
EXABGP_SOURCE = "exabgp/bgp/message/open/capability of 4.2.21"
OPENBGPD_MANUAL = "bgpd.conf(5) of 7.7"
BY_ADDRESS = {
    "openbgpd": ("a neighbour of version 7.7 has an address, and IPv4 routes have IPv4 next hops", OPENBGPD_MANUAL),
    "exabgp": ("a neighbour of version 4.2 has an address", "exabgp/configuration/neighbor of 4.2.21"),
}
ZEBRA = {peer: ("the protocol is one of FRR's zebra", "FRR's user guide, FPM") for peer in PEERS if peer != "frr"}
#: Feature → peer → why it is not tested there, and what says so. It holds for the versions that the tests run beside.
LACKS = {
    "2-octet AS numbers (RFC 6793)": {"gobgp": ("version 3.10 always announces 4-octet AS numbers", GOBGP_SOURCE)},
    "AIGP (RFC 7311)": {
        "frr": ("version 8.4 does not know the attribute", "its bgpd has no such command; it came with 8.5 (FRR pull request 13497)"),
        "openbgpd": ("version 7.7 does not know the attribute", OPENBGPD_MANUAL)},
    "BFD (RFC 5880, RFC 5882)": {
        "gobgp": ("version 3.10 has none", "pkg/server and pkg/packet of v3.10.0"),
        "openbgpd": ("version 7.7 has none", OPENBGPD_MANUAL),
        "exabgp": ("version 4.2 has none", "exabgp/configuration/neighbor of 4.2.21")},
    "BMP (RFC 7854, RFC 8671, RFC 9069)": {
        "bird": ("version 2.0.12 has no such protocol", "there is no such word in its program"),
        "openbgpd": ("version 7.7 has none", OPENBGPD_MANUAL),
        "exabgp": ("version 4.2 sends to no station", "exabgp/configuration of 4.2.21")},
    "confederations (RFC 5065)": {
        "openbgpd": ("version 7.7 is no member of one", OPENBGPD_MANUAL),
        "exabgp": ("version 4.2 announces no path with confederation segments", "exabgp/configuration/static/parser.py of 4.2.21")},
    "deployments: unnumbered leaf": BY_ADDRESS,
    "enhanced route refresh (RFC 7313)": {
        "gobgp": ("version 3.10 does not announce the capability", GOBGP_SOURCE),
        "openbgpd": ("version 7.7 refuses the messages of each family that was negotiated", "openbgpd-portable issue 46")},
    "extended messages (RFC 8654)": {
        "gobgp": ("version 3.10 does not announce the capability", GOBGP_SOURCE),
        "openbgpd": ("version 7.7 does not announce the capability", OPENBGPD_MANUAL)},
    "filters of lists of routes": {"exabgp": ("it has no table", "class Exabgp of tests/interop/harness/daemons.py")},
    "FPM from FRR's zebra to SONiC's fpmsyncd": ZEBRA,
    "graceful restart of ribtide (RFC 4724, RFC 8538)": {
        "exabgp": ("it has no table in which routes could stay", "class Exabgp of tests/interop/harness/daemons.py")},
    "graceful restart of the peer (RFC 4724, RFC 8538)": {
        "openbgpd": ("version 7.7 announces the capability for End-of-RIB and as a helper, without families", f"announce restart in {OPENBGPD_MANUAL}")},
    "long-lived graceful restart of the peer (RFC 9494)": {
        "openbgpd": ("version 7.7 does not announce the capability", OPENBGPD_MANUAL),
        "exabgp": ("version 4.2 does not announce the capability", EXABGP_SOURCE)},
    "MRT table dumps (RFC 6396, RFC 8050)": {"exabgp": ("it neither reads nor writes MRT files", "exabgp/configuration of 4.2.21")},
    "MRT updates (RFC 6396)": {"exabgp": ("it neither reads nor writes MRT files", "exabgp/configuration of 4.2.21")},
    "origin validation (RFC 6811)": {
        "frr": ("Debian has the module of 8.4.4 in the package frr-rpki-rtrlib, which is not installed here", "dpkg -L frr"),
        "exabgp": ("version 4.2 has no RTR", "exabgp/configuration of 4.2.21")},
    "policy changes without a reset": {
        "openbgpd": ("version 7.7 refuses a ROUTE-REFRESH for each family that was negotiated", "openbgpd-portable issue 46"),
        "exabgp": ("version 4.2.21 ends its session when a ROUTE-REFRESH comes", "exabgp issue 1237")},
    "roles and OTC (RFC 9234)": {
        "gobgp": ("version 3.10 does not announce the capability", GOBGP_SOURCE),
        "exabgp": ("version 4.2 does not announce the capability", EXABGP_SOURCE)},
    "unnumbered sessions by interface, IPv4 routes with IPv6 next hops (RFC 8950)": BY_ADDRESS,
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
        lacks = LACKS.get(feature, {})
        rows.append([feature, *("no" if peer in lacks else str(len(found[feature][peer]) or "–") for peer in PEERS)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def absent():
    """Why a cell of the table is "no", one row each."""
    rows = [["feature", "program", "why", "source"], ["---"] * 4]
    for feature in sorted(LACKS, key=str.lower):
        rows += [[feature, PEERS[peer][0], why, source] for peer, (why, source) in LACKS[feature].items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def contradictions(found):
    """Features that LACKS names and no test does, and cells of LACKS that have a test."""
    wrong = [f"no test has the feature {feature!r}" for feature in LACKS if feature not in found]
    return wrong + [f"{PEERS[peer][0]} lacks {feature!r} and has tests of it" for feature, lacks in LACKS.items()
                    for peer in lacks if found.get(feature, {}).get(peer)]


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
and wrote this page. A number is how many tests of the feature passed beside that program: each looks
at what the program holds, shows or sends. With "no" this version of the program, as it is installed
here, does not have the feature, or has a fault in it ([why](#what-the-others-lack)). With – there is
no test, which does not mean that it fails. `make test` compares the table with its run.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = results(options.log)
    body = table(found) + "\n## What the others lack\n\n" + absent() + "\n## Tests\n\nIn `tests/interop`:\n\n" + tests(found)
    outcomes = {outcome for by_peer in found.values() for by_test in by_peer.values() for outcome in by_test.values()}
    if outcomes != {"passed"}:
        # A failed test is counted as such already, and a machine without a program proves nothing about the table.
        print(f"docs/interop.md is neither compared nor written: of its tests some {' and '.join(sorted(outcomes - {'passed'})) or 'are missing'}")
        return
    if wrong := contradictions(found):
        sys.exit("LACKS of tests/interop/features.py: " + "; ".join(wrong))
    if options.write:
        DOCUMENT.write_text(HEAD.format(versions=versions()) + body)
    elif not DOCUMENT.exists() or not DOCUMENT.read_text().endswith(body):
        sys.exit("docs/interop.md has another table than this run: `make interop` writes it")


if __name__ == "__main__":
    main()
