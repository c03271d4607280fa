"""Every fault still applies: a cheap check that `make test` runs. `make mutants` inserts the faults."""

import functools
import re
import shlex

import pytest

from faults import ROOT, read

FAULTS = read()


@functools.cache
def text_of(folder):
    """Paths and contents of a crate's Rust files."""
    return "\n".join(f"{path}\n{path.read_text()}" for path in sorted(folder.rglob("*.rs")))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_applies_exactly_once(fault):
    assert fault.places() == 1, f"update `before` of the fault to {fault.file}, or remove it"
    assert fault.before != fault.after


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_names_its_tests(fault):
    assert fault.breaks.endswith("."), "one sentence"
    assert fault.tests
    for command in fault.commands():
        package = re.match(r"-p (ribtide[a-z-]*)", command.text).group(1)
        folder = ROOT / "crates" / (package.removeprefix("ribtide-") if package != "ribtide" else package)
        missing = [part for part in command.filters if part.rsplit("::", 1)[-1] not in text_of(folder)]
        assert not missing, "no test or module has these names"
        words = shlex.split(command.targets)
        targets = [words[at + 1] for at, word in enumerate(words) if word == "--test"]
        assert targets or "--lib" in words
        for target in targets:
            assert (folder / "tests" / f"{target}.rs").exists() or (folder / "tests" / target).is_dir()


def test_names_are_unique_and_half_of_the_faults_are_in_daemons_and_tables():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60
    daemons = "sonicd tables dataplane bgpd ribd daemon api asic bfdd runtime".split()
    assert 2 * sum(fault.file.split("/")[1] in daemons for fault in FAULTS) >= len(FAULTS)
