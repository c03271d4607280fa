import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]


@pytest.fixture
def routers():
    """For tests that start routers: what they need is there, and nothing of them is left."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    for program in ("bird", "/usr/lib/frr/zebra"):
        if not (shutil.which(program) or pathlib.Path(program).exists()):
            pytest.skip(f"{program} is not installed (scripts/setup test installs it)")
    yield
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split()
    assert not [name for name in left if name.startswith(f"rt{os.getpid()}-")], left
