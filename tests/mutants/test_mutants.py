"""Every fault still applies: a cheap check that `make test` runs. `make mutants` inserts the faults."""

import re
import shlex

import pytest

from faults import ROOT, read

FAULTS = read()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_applies_exactly_once(fault):
    assert fault.places() == 1, f"update `before` of the fault to {fault.file}, or remove it"
    assert fault.before != fault.after


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_names_its_tests(fault):
    assert fault.breaks.endswith("."), "one sentence"
    assert fault.tests
    for args in fault.tests:
        package = re.match(r"-p (ribtide[a-z-]*)", args).group(1)
        folder = ROOT / "crates" / (package.removeprefix("ribtide-") if package != "ribtide" else package)
        words = shlex.split(args)
        targets = [words[at + 1] for at, word in enumerate(words) if word == "--test"]
        assert targets or "--lib" in words
        for target in targets:
            assert (folder / "tests" / f"{target}.rs").exists() or (folder / "tests" / target).is_dir()


def test_names_are_unique_and_half_of_the_faults_are_in_daemons_and_tables():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60
    daemons = "sonicd tables dataplane bgpd ribd daemon api asic bfdd runtime".split()
    assert 2 * sum(fault.file.split("/")[1] in daemons for fault in FAULTS) >= len(FAULTS)
