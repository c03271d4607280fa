"""What a process of ribtide may do once it has started: its capabilities, its user, no_new_privs and the filter of
system calls; and that routes, reloads and restarts work with that."""

import configparser
import contextlib
import json
import os
import pathlib
import pwd
import shutil
import stat
import subprocess

import pytest
from harness import FEED_ASN, Ribtide, binary, fpm, wait_for
from harness.config import HEAD
from harness.peers import FEEDS
from harness.ribtide import ROOT
from harness.sonic import Sonic
from harness.speaker import Speaker, update

#: Numbers of capabilities (linux/capability.h).
NET_BIND_SERVICE, NET_ADMIN, NET_RAW = 10, 12, 13
ROUTERS = 1 << NET_BIND_SERVICE | 1 << NET_ADMIN | 1 << NET_RAW
#: Modes of `Seccomp` in /proc/PID/status.
NO_FILTER, FILTER = "0", "2"
USER = "daemon"


def config(process=""):
    return HEAD + f"""
[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]
neighbors = ["{FEEDS[0]}"]

[fib]
kernel = true

{process and f"[process]{chr(10)}{process}"}

[[static]]
prefix = "203.0.113.0/24"
blackhole = true
"""


def threads(process):
    """The status of each thread: name → value."""
    for task in pathlib.Path(f"/proc/{process.popen.pid}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = (task / "status").read_text().splitlines()
            yield dict(line.split(":\t", 1) for line in lines)


def assert_reduced(process, capabilities, user="root", seccomp=FILTER):
    """Each thread has these capabilities, which are all that it can ever get, and no others."""
    uid = pwd.getpwnam(user).pw_uid
    found = list(threads(process))
    assert found
    for status in found:
        sets = {name: int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")}
        assert sets == {"CapPrm": capabilities, "CapEff": capabilities, "CapBnd": capabilities, "CapInh": 0, "CapAmb": 0}, status
        assert status["Uid"].split() == [str(uid)] * 4, status
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", seccomp), status


def kernel_routes(host):
    return {line.split()[1] if line.startswith("blackhole") else line.split()[0]
            for line in host.ip("route", "show", "proto", "bgp").splitlines()}


@pytest.mark.parametrize("user", [None, USER])
def test_router_keeps_three_capabilities_and_goes_on(host, user):
    router = Ribtide(host, config(f'user = "{user}"' if user else ""))
    assert_reduced(router.process, ROUTERS, user or "root")
    assert router.socket.stat().st_uid == pwd.getpwnam(user or "root").pw_uid
    speaker = Speaker(host, FEEDS[0], FEED_ASN)
    speaker.send(update(["192.0.2.0/24"], [FEED_ASN], FEEDS[0]))
    wait_for("both routes are in the kernel", lambda: kernel_routes(host) == {"203.0.113.0/24", "192.0.2.0/24"}, 20,
             alive=[router.process])
    # A reload reads the file again, and the kernel takes more routes.
    router.config.write_text(router.config.read_text() + '[[static]]\nprefix = "198.51.100.0/24"\nblackhole = true\n')
    router.text("reload")
    wait_for("the new route is in the kernel", lambda: "198.51.100.0/24" in kernel_routes(host), 20, alive=[router.process])
    speaker.close()
    # A crash leaves the socket behind, and routes.
    router.process.kill()
    router.start()
    assert_reduced(router.process, ROUTERS, user or "root")
    wait_for("the static routes are adopted", lambda: {"203.0.113.0/24", "198.51.100.0/24"} <= kernel_routes(host), 20)


@pytest.mark.parametrize("setting, mode", [("true", FILTER), ('"log"', FILTER), ("false", NO_FILTER)])
def test_seccomp_is_what_the_configuration_says(host, setting, mode):
    router = Ribtide(host, config(f"seccomp = {setting}"))
    assert_reduced(router.process, ROUTERS, seccomp=mode)
    assert router.process.logged("CAP_NET_ADMIN", "seccomp"), router.process.log()


def test_thread_of_bfd_goes_before_all_others_without_the_capability(host):
    router = Ribtide(host, config() + f'[[static]]\nprefix = "198.51.100.0/24"\nnext-hop = ["{FEEDS[1]}"]\nbfd = true\n')
    assert_reduced(router.process, ROUTERS)
    normal = os.getpriority(os.PRIO_PROCESS, 0)

    def niceness():
        tasks = pathlib.Path(f"/proc/{router.process.popen.pid}/task").iterdir()
        return {(task / "comm").read_text().strip(): int((task / "stat").read_text().rsplit(")", 1)[1].split()[16]) for task in tasks}
    wait_for("the threads have their priorities", lambda: niceness()["bfd"] == max(normal - 20, -20), 20, alive=[router.process])
    urgent = ("bfd", "kernel-fib")
    wait_for("all others have the normal one",
             lambda: {nice for name, nice in niceness().items() if name not in urgent} == {normal}, 20, alive=[router.process])


def refusal(host, *args):
    """Status and output of a router that must not start."""
    done = subprocess.run(host.args(*args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_user_that_cannot_read_the_configuration_again_is_refused(host):
    path = host.folder / "secret.toml"
    path.write_text(config(f'user = "{USER}"') + f'[api]\nsocket = "{host.folder}/secret.sock"\n')
    path.chmod(0o600)
    status, output = refusal(host, binary(), "run", "-c", path)
    assert status == 3 and str(path) in output and "could not read its configuration again" in output, output


def test_only_root_becomes_another_user(host):
    path = host.folder / "other.toml"
    path.write_text(config('user = "bin"') + f'[api]\nsocket = "{host.folder}/other.sock"\n')
    status, output = refusal(host, "setpriv", f"--reuid={USER}", "--clear-groups", binary(), "run", "-c", path)
    assert status == 3 and '"bin"' in output and "process.user" in output, output


def test_group_of_the_socket_needs_no_capability_later(host):
    path = host.folder / "group.toml"
    socket = host.folder / "group.sock"
    path.write_text(config(f'user = "{USER}"') + f'[api]\nsocket = "{socket}"\nsocket-group = "bin"\n')
    process = host.start("group", binary(), "run", "-c", path)
    wait_for("the socket is there", lambda: socket.exists() and stat.S_IMODE(socket.stat().st_mode) == 0o660, 20, alive=[process])
    assert socket.group() == "bin" and socket.owner() == USER


@pytest.mark.parametrize("flags, mode", [([], 0o600), (["--query-socket-mode", "0660"], 0o660)])
def test_daemons_of_sonic_keep_no_capability_and_go_on(host, flags, mode):
    sonic = Sonic(host, flags={"syncd": flags})
    client = wait_for("fpmsyncd listens", lambda: fpm.Client(host), 30, alive=sonic.alive())
    port = json.loads(host.ip("-j", "link", "show", "Ethernet4"))[0]["ifindex"]
    client.send(fpm.route(fpm.NEWROUTE, "198.51.100.0/24", "10.2.0.17", port))
    wait_for("the route is in the chip", lambda: sonic.route("198.51.100.0/24"), 60, alive=sonic.alive())
    for name, process in sonic.processes.items():
        assert_reduced(process, 0)
    assert stat.S_IMODE(os.stat(host.folder / "syncd.sock").st_mode) == mode


def test_unit_of_systemd_permits_what_the_router_keeps(folder):
    unit = ROOT / "contrib/ribtide.service"
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str
    parsed.read(unit)
    service = parsed["Service"]
    kept = {"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW"}
    assert set(service["CapabilityBoundingSet"].split()) == kept == set(service["AmbientCapabilities"].split())
    assert service["NoNewPrivileges"] == "yes" and service["User"] == "ribtide"
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    copy = folder / "ribtide.service"
    # What it names exists here.
    copy.write_text(unit.read_text().replace("/usr/bin/ribtide", binary()))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout + done.stderr, done.stdout + done.stderr
