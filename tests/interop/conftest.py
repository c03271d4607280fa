import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import Host, Pair, binary  # noqa: E402


def pytest_collection_modifyitems(items):
    missing = [p for p in ("ip", "bird", "gobgpd", "redis-server") if not shutil.which(p)]
    missing += [] if pathlib.Path("/usr/lib/frr/bgpd").exists() else ["frr"]
    if os.geteuid() != 0:
        reason = "network namespaces need root"
    elif missing:
        reason = f"not installed: {', '.join(missing)} (scripts/setup test installs them)"
    else:
        return
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def program():
    assert pathlib.Path(binary()).exists(), f"{binary()} is not built; run make test, or cargo build --release"


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
