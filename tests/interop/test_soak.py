"""Some rounds of the soak (`make soak`, tests/soak): after each, every copy is what the senders sent."""

import pathlib
import subprocess
import sys

import pytest

SOAK = pathlib.Path(__file__).resolve().parents[1] / "soak"


@pytest.mark.long
def test_some_rounds(folder):
    done = subprocess.run([sys.executable, SOAK, "--rounds", "3", "--routes", "3000", "--seed", "1", "--out", folder / "soak"],
                          capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "lost 0, stale 0, failed comparisons 0" in done.stdout
