"""Inserts faults into a copy of ribtide, one at a time, and runs the tests that must notice each.

    python3 tests/mutants [NAME...]   all faults, or those whose name or file has one of these texts, or that
                                      are in one of these files of faults (such as `pure.toml`)
    SHARD=K/N                         the K-th of N parts, in a copy of its own
    MUTANTS_DIR=FOLDER                where the copies and what they build lie (default: target/mutants)
    MUTANTS_WRAP=COMMAND              a command that runs each build and test, such as `nice`

A named test must pass without a fault first, else its failure would prove nothing. The exit status is 0 only
if every fault was caught, or is one that is known to survive.
"""

import collections
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from faults import ROOT, Fault, TestCommand, read

# Tests that take this much longer with a fault than without, in seconds and as a factor, do not end: the fault is
# caught. A test's own limit, such as for what another thread is to do, is shorter.
MORE_SECONDS, TIMES = 90, 4
BASELINE_SECONDS = 1200
BUILD_FAILED, TEST_FAILED, TEST_HANGS = 90, 91, 92
SCRIPT = """
cargo test {targets} --no-run || exit 90
timeout -k 5 {seconds} cargo test {targets} -- {filters} < /dev/null
case $? in 0) exit 0 ;; 124 | 137) exit 92 ;; *) exit 91 ;; esac
"""
# These only build: without debug information and optimisation each fault costs half as much.
PROFILE = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "0", "CARGO_INCREMENTAL": "1"}


def copy(to: Path) -> None:
    """Copies what git tracks or would track. Files that are equal keep their times, so cargo does not build them again."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, to / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        is_new = not target.exists()
        shutil.copy2(source, target)
        if not is_new:
            os.utime(target)
    for top in ("crates", "xtask"):
        for path in (to / top).rglob("*"):
            if path.is_file() and str(path.relative_to(to)) not in names:
                path.unlink()


def shard(faults: list[Fault], text: str) -> tuple[int, list[Fault]]:
    """The part K/N of the faults: neighbours stay together."""
    part, parts = (int(number) for number in text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError(f"SHARD={text}: the part must be from 1 to {parts}")
    return part, faults[len(faults) * (part - 1) // parts : len(faults) * part // parts]


@dataclass(frozen=True)
class Baseline:
    """The tests of some targets without a fault."""

    status: int
    # Of each test: `ok` or `FAILED`.
    results: dict[str, str]
    # How long they may take with a fault, in seconds.
    limit: float


class Runner:
    """Builds and tests in one copy of the tree."""

    def __init__(self, tree: Path, target: Path, log: Path):
        self.tree, self.log = tree, log
        self.baselines: dict[str, Baseline] = {}
        self.environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_TERM_COLOR": "never"}
        self.environment |= PROFILE
        self.wrap = shlex.split(os.environ.get("MUTANTS_WRAP", ""))

    def test(self, targets: str, filters: set[str], seconds: float) -> tuple[int, str]:
        """Runs one test command, and returns its status and output."""
        words = " ".join(map(shlex.quote, sorted(filters)))
        script = SCRIPT.format(targets=targets, filters=words, seconds=round(seconds))
        done = subprocess.run(
            [*self.wrap, "bash", "-c", script], cwd=self.tree, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        with self.log.open("a") as log:
            log.write(f"=== cargo test {targets} -- {words}: status {done.returncode}\n{done.stdout}\n")
        return done.returncode, done.stdout

    def baseline(self, targets: str, filters: set[str]) -> None:
        """Runs all tests that the faults name of some targets, without a fault: once, since each build takes time."""
        status, output = self.test(targets, filters, BASELINE_SECONDS)
        took = sum(float(n) for n in re.findall(r"^test result: .* finished in ([\d.]+)s", output, re.MULTILINE))
        results = dict(re.findall(r"^test (\S+).* \.\.\. (ok|FAILED)", output, re.MULTILINE))
        self.baselines[targets] = Baseline(status, results, MORE_SECONDS + TIMES * took)

    def wrong(self, test: TestCommand) -> str:
        """What is wrong with a test command without a fault, or nothing."""
        baseline = self.baselines[test.targets]
        named = {name: result for name, result in baseline.results.items() if test.names(name)}
        if failed := [name for name, result in named.items() if result != "ok"]:
            return f"{failed[0]} fails without a fault"
        if not named:
            return f"{test.text}: runs no test without a fault (status {baseline.status})"
        return ""

    def fault(self, fault: Fault) -> tuple[str, str]:
        """The result of one fault, and the test that noticed it."""
        if fault.places(self.tree) != 1:
            return "does not apply", f"{fault.places(self.tree)} places in {fault.file}"
        path = self.tree / fault.file
        before = path.read_text()
        path.write_text(fault.text(self.tree))
        with self.log.open("a") as log:
            log.write(f"\n######## {fault.name}\n")
        try:
            for test in fault.commands():
                status, output = self.test(test.targets, test.filters, self.baselines[test.targets].limit)
                if status == BUILD_FAILED:
                    return "does not build", test.text
                if status == TEST_HANGS:
                    return "caught", "a test that does not end"
                if status:
                    failed = re.findall(r"^test (.*) \.\.\. FAILED", output, re.MULTILINE)
                    return "caught", failed[0] if failed else test.text
            return "survived", "; ".join(fault.tests)
        finally:
            path.write_text(before)


def main() -> int:
    faults = read()
    if bad := [fault for fault in faults if fault.places() != 1]:
        for fault in bad:
            print(f"{fault.name} does not apply: its text is {fault.places()} times in {fault.file}")
        return 1
    names = sys.argv[1:]
    faults = [f for f in faults if not names or any(n in f.name or n in f.file or n == f"{f.group}.toml" for n in names)]
    part = 1
    if text := os.environ.get("SHARD"):
        part, faults = shard(faults, text)
    if not faults:
        print("no fault has such a name")
        return 1
    folder = Path(os.environ.get("MUTANTS_DIR") or ROOT / "target" / "mutants") / str(part)
    tree, target, log = folder / "tree", folder / "target", folder / "log"
    folder.mkdir(parents=True, exist_ok=True)
    copy(tree)
    log.write_text("")
    runner = Runner(tree, target, log)
    sums: collections.Counter[str] = collections.Counter()
    filters: dict[str, list[set[str]]] = collections.defaultdict(list)
    for test in (test for fault in faults for test in fault.commands()):
        filters[test.targets].append(test.filters)
    unexpected = 0
    width = max(len(fault.name) for fault in faults)
    for fault in faults:
        begin = time.monotonic()
        wrong = ""
        for test in fault.commands():
            if test.targets not in runner.baselines:
                named = filters[test.targets]
                runner.baseline(test.targets, set.union(*named) if all(named) else set())
            wrong = wrong or runner.wrong(test)
        result, why = ("no baseline", wrong) if wrong else runner.fault(fault)
        if result == "survived" and fault.survives:
            result, why = "survived, as is known", fault.survives
        elif result != "caught":
            unexpected += 1
        sums[result] += 1
        print(f"{fault.name:{width}}  {result:14}  {time.monotonic() - begin:4.0f} s  {why}", flush=True)
    print(f"{len(faults)} faults: " + ", ".join(f"{count} {result}" for result, count in sums.most_common()))
    if unexpected:
        print(f"the output of every build and test is in {log}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
