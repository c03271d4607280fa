"""`make run` from a clone on a bare system: a Debian without a compiler, and a system that has neither apt nor dpkg, whose
commands are BusyBox's and whose compiler and Rust came with it. Each has its own mounts and processes.

It builds the whole program twice, so it runs only with BARE=1 in the environment: `BARE=1 make packages`. CARGO_PROFILE_* of
the environment count inside, so `CARGO_PROFILE_RELEASE_LTO=off` makes it quicker.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import TREE, run

PREFIXES = 20_000
#: A process with its own mounts: $1 is the root, the rest a command in it.
INTO = """
root=$1; shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
exec chroot "$root" "$@"
"""
#: The packages of Debian that the second system's files come from, beside its compiler's.
OTHER = "busybox,bash,make,gcc,libc6-dev"


@pytest.fixture(scope="module")
def toolchain():
    """The folder of the Rust toolchain in use."""
    if not os.environ.get("BARE"):
        pytest.skip("it builds the program twice, in a quarter of an hour; BARE=1 runs it")
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("this needs root and mmdebstrap")
    return pathlib.Path(run("rustc", "--print", "sysroot").stdout.strip())


def system(folder, packages, toolchain):
    """A Debian in `folder` with a clone of the repository and Rust, as a user would put them there."""
    done = run("mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", folder, check=False)
    if done.returncode != 0:
        pytest.skip(f"mmdebstrap makes no Debian system: {done.stderr[-300:]}")
    run("git", "clone", "--quiet", TREE, folder / "root/ribtide")
    for part in ("bin", "lib"):
        shutil.copytree(toolchain / part, folder / "root/.cargo" / part, symlinks=True)
    registry = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo")) / "registry"
    if registry.exists():
        shutil.copytree(registry, folder / "root/.cargo/registry")
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    return folder


def make_run(root):
    """The output of `make run` in that system."""
    env = {"HOME": "/root", "PATH": "/root/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "dumb", "ONCE": "1",
           "PREFIXES": str(PREFIXES)} | {k: v for k, v in os.environ.items() if k.startswith("CARGO_PROFILE_")}
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", INTO, "-", root, "make", "-C",
                           "/root/ribtide", "run"], env=env, capture_output=True, text=True)


def check(done):
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(rf"\b{PREFIXES:,}\b", done.stdout), done.stdout[-3000:]


def test_debian_without_a_compiler(toolchain, tmp_path):
    root = system(tmp_path / "root", "ca-certificates,make", toolchain)
    assert not (root / "usr/bin/cc").exists()
    done = make_run(root)
    check(done)
    assert "setup: installing gcc libc6-dev" in done.stdout


def test_system_without_apt_whose_commands_are_those_of_busybox(toolchain, tmp_path):
    root = system(tmp_path / "root", f"ca-certificates,{OTHER}", toolchain)
    to_other(root)
    done = make_run(root)
    check(done)
    assert "setup:" not in done.stdout + done.stderr


def to_other(root):
    """Takes what makes it a Debian: apt, dpkg and their data, GNU's commands, the name."""
    busybox = root / "bin/busybox"
    for applet in run("chroot", root, "/bin/busybox", "--list").stdout.split():
        for folder in ("bin", "sbin", "usr/bin", "usr/sbin"):
            path = root / folder / applet
            if path.name not in ("busybox", "bash", "make", "ar", "ld", "strings") and (path.is_file() or path.is_symlink()):
                path.unlink()
                path.symlink_to("/bin/busybox")
    for pattern in ("usr/bin/apt*", "usr/bin/dpkg*", "usr/lib/apt", "usr/lib/dpkg", "var/lib/dpkg", "var/lib/apt", "etc/apt", "etc/debian_version"):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (root / "etc/os-release", root / "usr/lib/os-release"):
        path.unlink(missing_ok=True)
    (root / "etc/os-release").write_text("ID=handmade\n")
    assert busybox.exists()
