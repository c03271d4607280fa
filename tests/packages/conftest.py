"""The Debian package of this tree, with a binary without optimisation, and a Debian system of its own."""

import os
import pathlib
import shutil
import subprocess

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]


def run(*command, check=True, **more):
    """The finished process; fails with its output unless it exits 0."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """The path of the package."""
    if shutil.which("cargo-deb") is None:
        pytest.skip("cargo-deb is missing; scripts/setup packages")
    if path := os.environ.get("RIBTIDE_DEB"):
        return pathlib.Path(path)
    out = tmp_path_factory.mktemp("deb")
    run(TREE / "scripts/package", env={**os.environ, "DEBUG": "1", "DEB_OUTPUT": str(out)})
    [path] = out.glob("*.deb")
    return path


@pytest.fixture(scope="session")
def contents(package, tmp_path_factory):
    """A folder with the files of the package."""
    folder = tmp_path_factory.mktemp("contents")
    run("dpkg-deb", "-x", package, folder)
    return folder


@pytest.fixture(scope="session")
def debian(tmp_path_factory):
    """The folder of a Debian system with what the package depends on."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("this needs root and mmdebstrap")
    folder = tmp_path_factory.mktemp("debian") / "root"
    done = run("mmdebstrap", "--variant=apt", "--include=systemd-standalone-sysusers", "bookworm", folder, check=False)
    if done.returncode != 0:
        pytest.skip(f"mmdebstrap makes no Debian system: {done.stderr[-300:]}")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
