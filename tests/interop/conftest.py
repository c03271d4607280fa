import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import Host, Pair, binary  # noqa: E402


def pytest_collection_modifyitems(items):
    if os.geteuid() == 0 and shutil.which("ip"):
        return
    for item in items:
        item.add_marker(pytest.mark.skip(reason="network namespaces need root and iproute2"))


@pytest.fixture(scope="session", autouse=True)
def program():
    assert pathlib.Path(binary()).exists(), f"{binary()} is not built; run make test, or cargo build --release"


@pytest.fixture(scope="session", autouse=True)
def nothing_left():
    """No namespace outlives the run, and with it no process."""
    yield
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split()
    assert not [name for name in left if name.startswith(f"rt{os.getpid()}-")], left


@pytest.fixture
def pair(tmp_path):
    """Two hosts on one link."""
    os.chmod(tmp_path, 0o777)
    for folder in tmp_path.parents:
        if str(folder).startswith("/tmp/pytest"):
            os.chmod(folder, 0o755)
    pair = Pair(tmp_path)
    yield pair
    pair.close()


@pytest.fixture
def host(tmp_path):
    """A host alone."""
    os.chmod(tmp_path, 0o777)
    host = Host(tmp_path, "h")
    yield host
    host.close()
