"""Inserts faults into a copy of ribtide, one at a time, and runs the tests that must notice each.

    python3 tests/mutants [NAME...]   all faults, or those whose name or file has one of these texts
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
from pathlib import Path

from faults import ROOT, Fault, read

# A test that takes longer with a fault is taken for a loop that does not end: the fault is caught.
TEST_SECONDS = 120
BUILD_FAILED, TEST_FAILED, TEST_HANGS = 90, 91, 92
SCRIPT = """
cargo test {args} --no-run || exit 90
timeout -k 5 {seconds} cargo test {args} < /dev/null
case $? in 0) exit 0 ;; 124 | 137) exit 92 ;; *) exit 91 ;; esac
"""


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


class Runner:
    """Builds and tests in one copy of the tree."""

    def __init__(self, tree: Path, target: Path, log: Path):
        self.tree, self.log = tree, log
        self.environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_TERM_COLOR": "never"}
        self.wrap = shlex.split(os.environ.get("MUTANTS_WRAP", ""))

    def test(self, args: str) -> tuple[int, str]:
        """Runs one test command, and returns its status and output."""
        script = SCRIPT.format(args=args, seconds=TEST_SECONDS)
        done = subprocess.run(
            [*self.wrap, "bash", "-c", script], cwd=self.tree, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        with self.log.open("a") as log:
            log.write(f"=== cargo test {args}: status {done.returncode}\n{done.stdout}\n")
        return done.returncode, done.stdout

    def baseline(self, args: str) -> str:
        """What is wrong with a test command without a fault, or nothing."""
        status, output = self.test(args)
        if status:
            return f"fails without a fault, with status {status}"
        if not sum(int(n) for n in re.findall(r"test result: ok\. (\d+) passed", output)):
            return "runs no test"
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
            for args in fault.tests:
                status, output = self.test(args)
                if status == BUILD_FAILED:
                    return "does not build", args
                if status == TEST_HANGS:
                    return "caught", "a test that does not end"
                if status:
                    failed = re.findall(r"^test (.*) \.\.\. FAILED", output, re.MULTILINE)
                    return "caught", failed[0] if failed else args
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
    faults = [f for f in faults if not names or any(name in f.name or name in f.file for name in names)]
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
    passed: dict[str, str] = {}
    unexpected = 0
    width = max(len(fault.name) for fault in faults)
    for fault in faults:
        begin = time.monotonic()
        wrong = ""
        for args in fault.tests:
            if args not in passed:
                passed[args] = runner.baseline(args)
            wrong = wrong or (passed[args] and f"{args}: {passed[args]}")
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
