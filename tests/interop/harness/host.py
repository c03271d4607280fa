"""Network namespaces as hosts, and processes inside them."""

import itertools
import os
import signal
import subprocess
import time

_numbers = itertools.count()


def wait_for(what, condition, timeout=60.0, every=0.1, alive=()):
    """Returns the first true value of `condition()`. Fails, saying `what` did not happen, after `timeout` seconds or
    as soon as one of the processes `alive` has ended."""
    end = time.monotonic() + timeout
    last = None
    while time.monotonic() < end:
        for process in alive:
            if process.poll() is not None:
                raise AssertionError(f"{process.name} ended while waiting until {what}:\n{process.log()}")
        try:
            last = condition()
            if last:
                return last
        except (subprocess.CalledProcessError, ConnectionError, FileNotFoundError) as e:
            last = e
        time.sleep(every)
    raise AssertionError(f"within {timeout:.0f} s it did not happen that {what}; last seen: {str(last)[:2000]}")


class Process:
    """A program in the background, with its output in a file."""

    def __init__(self, name, args, log, **kw):
        self.name = name
        self.path = log
        self.out = open(log, "ab")
        self.popen = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out, **kw)

    def poll(self):
        return self.popen.poll()

    def log(self):
        self.out.flush()
        with open(self.path, errors="replace") as f:
            return f.read()[-4000:]

    def signal(self, number):
        self.popen.send_signal(number)

    def kill(self):
        """As a crash: no chance to say goodbye."""
        self.popen.kill()
        self.popen.wait()

    def stop(self, timeout=10):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self.out.close()


class Host:
    """A network namespace."""

    def __init__(self, folder, name):
        self.name = f"rt{os.getpid()}-{next(_numbers)}{name}"
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chmod(self.folder, 0o777)
        self.processes = []
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self.ip("link", "set", "lo", "up")

    def args(self, *args):
        return ["ip", "netns", "exec", self.name, *map(str, args)]

    def ip(self, *args):
        """`ip ARGS` inside, its output as text."""
        return self.run("ip", *args)

    def run(self, *args, timeout=120, check=True):
        done = subprocess.run(self.args(*args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, args))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name, *args, **kw):
        process = Process(name, self.args(*args), self.folder / f"{name}.log", **kw)
        self.processes.append(process)
        return process

    def close(self):
        for process in reversed(self.processes):
            process.stop()
        subprocess.run(["ip", "netns", "del", self.name], check=False)


class Pair:
    """Two hosts on one link: `a` has 10.255.0.1 and fd00:255::1, `b` has 10.255.0.2 and fd00:255::2."""

    A4, B4, A6, B6 = "10.255.0.1", "10.255.0.2", "fd00:255::1", "fd00:255::2"

    def __init__(self, folder):
        self.a, self.b = Host(folder, "a"), Host(folder, "b")
        self.a.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.b.name)
        for host, four, six in ((self.a, self.A4, self.A6), (self.b, self.B4, self.B6)):
            host.ip("addr", "add", f"{four}/24", "dev", "eth0")
            # Without duplicate address detection an address can be used at once.
            host.ip("-6", "addr", "add", f"{six}/64", "dev", "eth0", "nodad")
            host.ip("link", "set", "eth0", "up")

    def close(self):
        self.a.close()
        self.b.close()
