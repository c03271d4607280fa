"""Network namespaces as hosts, and processes inside them."""

import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import subprocess
import time

_numbers = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
#: A machine that others use too takes longer. No event is waited for any longer than it takes.
TIMEOUT_FACTOR = 3


def wait_for(what, condition, timeout=60.0, every=0.1, alive=()):
    """Returns the first true value of `condition()`. Fails, saying `what` did not happen, after `timeout` seconds of a
    machine of one's own, or as soon as one of the processes `alive` has ended."""
    timeout *= TIMEOUT_FACTOR
    end = time.monotonic() + timeout
    last = None
    late = False
    while not late:
        # When time is up one looks once more: who waits may have stood still himself.
        late = time.monotonic() >= end
        for process in alive:
            if process.poll() is not None:
                raise AssertionError(f"{process.name} ended while waiting until {what}:\n{process.log()}")
        try:
            last = condition()
            if last:
                return last
        except (subprocess.CalledProcessError, CommandFailed, OSError) as e:
            last = e
        time.sleep(every)
    logs = "".join(f"\n{process.name}: {process.log()}" for process in alive)
    raise AssertionError(f"within {timeout:.0f} s it did not happen that {what}; last seen: {str(last)[:2000]}{logs}")


def settled(look, timeout=60.0, every=0.5):
    """`look` finds nothing wrong in the end, and what it returns; its last finding is the error. `timeout` as for
    [`wait_for`]."""
    end = time.monotonic() + timeout * TIMEOUT_FACTOR
    while True:
        try:
            return look()
        except (AssertionError, KeyError, ValueError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(every)


class CommandFailed(AssertionError):
    """A command that should have worked did not."""


class Process:
    """A program in the background, with its output in a file."""

    def __init__(self, name, args, log, **kw):
        self.name = name
        self.path = log
        with open(log, "ab") as out:
            self.popen = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **kw)

    def poll(self):
        return self.popen.poll()

    def logged(self, *parts):
        """The lines of its whole log that have all of these parts."""
        return [line for line in self.log(1 << 24).splitlines() if all(part in line for part in parts)]

    def log(self, size=3000):
        """The end of what it printed."""
        with open(self.path, errors="replace") as f:
            return f.read()[-size:]

    def kill(self):
        """As a crash: no chance to say goodbye."""
        self.popen.kill()
        self.popen.wait()

    def stop(self, timeout=10):
        """SIGTERM, and its exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.popen.returncode


class Host:
    """A network namespace. Unless it is one itself, it has a neighbour in which feeds run, on a link of its own."""

    #: The host's address on the link to its feeds, and theirs.
    FEED_SIDE, FEEDS = "198.19.0.1", ("198.19.0.2", "198.19.0.3")

    def __init__(self, folder, name, feeds=True):
        self.name = f"rt{os.getpid()}-{next(_numbers)}{name}"
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chmod(self.folder, 0o777)
        self.processes = []
        #: Sessions of the test's own, which last until it is looked whether all agree, after the test.
        self.sessions = []
        self.feeds = None
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        try:
            commands = ["link set lo up"]
            if feeds:
                self.feeds = Host(folder, f"{name}-feeds", feeds=False)
                commands += [_veth("feed0", self.feeds), *_addresses("feed0", [f"{self.FEED_SIDE}/24"])]
            self.ip_all(*commands)
            if feeds:
                self.feeds.address("feed0", *(f"{a}/24" for a in self.FEEDS))
        except BaseException:
            self.close()
            raise

    def args(self, *args):
        return ["ip", "netns", "exec", self.name, *map(str, args)]

    def ip(self, *args):
        """`ip ARGS` inside, its output as text."""
        return self.run("ip", *args)

    def ip_all(self, *commands):
        """`ip COMMAND` for each of them, in one process: what is set up for a test are dozens."""
        self.run("ip", "-batch", "-", given="".join(f"{command}\n" for command in commands))

    def gateways(self, prefix):
        """The gateways of a route in the kernel, those of its next-hop object too; empty where there is no route."""
        # The route first: its object is there before it. If it has gone since, the route has the next hops itself.
        routes = json.loads(self.ip("-j", "route", "show", prefix))
        objects = {n["id"]: n for n in json.loads(self.ip("-j", "nexthop", "show"))}
        found = set()
        for route in routes:
            hop = objects.get(route.get("nhid"), route)
            members = [objects[member["id"]] for member in hop.get("group", []) if member["id"] in objects]
            hops = members or route.get("nexthops", [hop])
            found |= {hop["gateway"] for hop in hops if "gateway" in hop}
        return found

    def join(self, other, interface, number=None):
        """A link to another host, of this name at both ends, and with this number here. The kernel tells of a carrier up to a second late
        where both ends have the same number (net/core/link_watch.c, linkwatch_urgent_event)."""
        self.ip_all(_veth(interface, other, number))

    def lan(self, interface, *addresses):
        """A network in which next hops can be, though no host is there: its cable ends in the same host."""
        end = f"{interface}-end"[-15:]
        self.ip_all(f"link add {interface} type veth peer name {end}", f"link set {end} up", *_addresses(interface, addresses))

    def address(self, interface, *addresses):
        """Addresses for an interface, which is up then."""
        self.ip_all(*_addresses(interface, addresses))

    def small_sockets(self):
        """TCP sockets made from now on, also those of its feeds, hold 256 KiB in each direction. Otherwise it is megabytes: who does not
        read is noticed after a million changes, and they are to be gone through when he reads again."""
        for host in filter(None, (self, self.feeds)):
            host.run("sysctl", "-qw", *(f"net.ipv4.tcp_{way}mem=4096 65536 {256 << 10}" for way in "rw"))

    def run(self, *args, timeout=120, given="", mounts=False):
        """Runs a program inside to its end, which must be a good one, and returns what it prints. `given` is its standard input;
        with `mounts` it sees /sys of the namespace, and its own mounts are private."""
        # Without `ip netns exec`, which costs more than most of these programs: it is a process that mounts /sys first.
        with contextlib.nullcontext() if mounts else self.inside():
            done = subprocess.run(self.args(*args) if mounts else [*map(str, args)], input=given, capture_output=True, text=True,
                                  timeout=timeout)
        if done.returncode != 0:
            raise CommandFailed(f"{' '.join(map(str, args))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name, *args, **kw):
        """Starts a program inside; it ends with the host at the latest."""
        process = Process(name, self.args(*args), self.folder / f"{name}.log", **kw)
        self.processes.append(process)
        return process

    @contextlib.contextmanager
    def inside(self):
        """Sockets that this thread makes meanwhile belong to the host, also afterwards."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.name}") as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)

    def connect(self, to, port, source=None, timeout=10):
        """A TCP connection from inside."""
        with self.inside():
            return socket.create_connection((to, port), timeout, (source, 0) if source else None)

    def close(self):
        if self.feeds is not None:
            self.feeds.close()
        # Their own ends take up to seconds, one after the other, and no test looks at them any more.
        for process in self.processes:
            process.popen.kill()
        for process in self.processes:
            process.popen.wait()
        # What daemons left behind on their own.
        for pid in subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


def _veth(interface, other, number=None):
    """`ip`'s command for a link to another host, of this name at both ends, and with this number here."""
    index = "" if number is None else f"index {number} "
    return f"link add {interface} {index}type veth peer name {interface} netns {other.name}"


def _addresses(interface, addresses):
    """`ip`'s commands for the addresses of an interface, which is up then."""
    # Without duplicate address detection an IPv6 address can be used at once.
    return [*(f"addr add {address} dev {interface}{' nodad' if ':' in address else ''}" for address in addresses),
            f"link set {interface} up"]


def _enter(namespace):
    if _libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Pair:
    """Two hosts on one link, each with a network of its own in which next hops are:
    the exchange point of the recorded table, and an IPv6 one."""

    A4, B4, A6, B6 = "10.255.0.1", "10.255.0.2", "fd00:255::1", "fd00:255::2"

    def __init__(self, folder):
        self.a, self.b = Host(folder, "a"), Host(folder, "b")
        self.a.join(self.b, "eth0")
        for host, four, six in ((self.a, self.A4, self.A6), (self.b, self.B4, self.B6)):
            host.address("eth0", f"{four}/24", f"{six}/64")
            host.lan("lan0", "193.203.0.250/24", "fd00:193::ff/64")

    def close(self):
        self.a.close()
        self.b.close()
