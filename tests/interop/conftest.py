import functools
import gc
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

# Tables of a hundred thousand routes are read over and over, without cycles between them: to look for some after every
# 700 new objects took half of the time.
gc.set_threshold(1_000_000)

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import Host, Pair, Ribtide, binary  # noqa: E402

pytest_plugins = ["features"]


def agreeing(test):
    """Runs the test; at its end `route-check` must find no difference in each router that
    installs routes."""
    @functools.wraps(test)
    def run(*args, **named):
        test(*args, **named)
        for router in Ribtide.started:
            router.assert_agrees()
    return run


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    Ribtide.started.clear()


def pytest_collection_modifyitems(items):
    for item in items:
        item.obj = agreeing(item.obj)
    # Of the processes that run tests none is to begin a long one when the others have ended.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if os.geteuid() == 0 and shutil.which("ip"):
        return
    for item in items:
        item.add_marker(pytest.mark.skip(reason="network namespaces need root and iproute2"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScheduling

    class InTurn(LoadScheduling):
        """Each process has the test that it runs and one more. xdist's own scheduler gives the first of them all the long tests."""

        def schedule(self):
            if self.collection is None and self._check_nodes_have_same_collection():
                self.collection = next(iter(self.node2collection.values()))
                self.pending[:] = range(len(self.collection))
            # A second one to each after a first to all.
            for count in (1, 2):
                for node in self.nodes:
                    self.fill(node, count)

        def check_schedule(self, node, duration=0):
            self.fill(node, 2)

        def fill(self, node, count):
            if self.pending and not node.shutting_down:
                self._send_tests(node, max(count - len(self.node2pending[node]), 0))
            elif not node.shutting_down:
                node.shutdown()

    return InTurn(config, log)


@pytest.fixture(scope="session", autouse=True)
def program():
    assert pathlib.Path(binary()).exists(), f"{binary()} is not built; run make test, or cargo build --release"


@pytest.fixture(scope="session", autouse=True)
def nothing_left():
    """Removes all namespaces, and with them all processes, at the end of the run."""
    yield
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split()
    assert not [name for name in left if name.startswith(f"rt{os.getpid()}-")], left


@pytest.fixture
def folder(tmp_path):
    """A folder that FRR, which is not root, can read and write."""
    for parent in tmp_path.parents:
        if parent.owner() == tmp_path.owner() and parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o755)
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture
def pair(folder):
    """Two hosts on one link."""
    pair = Pair(folder)
    yield pair
    pair.close()


@pytest.fixture
def host(folder):
    """A host alone."""
    host = Host(folder, "h")
    yield host
    host.close()
