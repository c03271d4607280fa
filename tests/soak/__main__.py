"""`make soak`: an hour of faults from a seed beside a router, SONiC's daemons and their peers; README.md."""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import check  # noqa: E402
import faults  # noqa: E402
from test_sonic_campaign import Supervisor  # noqa: E402
from world import World  # noqa: E402

#: Without a kill between these shares of the time: the memory of processes that live so long is judged.
QUIET = (0.25, 0.95)
#: Growth of a process's median between the second and the last quarter of its samples that passes, as a ratio and in MiB. In the
#: first quarter a process meets most kinds of rounds for the first time, and its buffers are filled for the first time.
GROWTH, SLACK = 1.10, 2.0
#: Failed rounds after which the run ends.
FAILURES_MAX = 5


def anonymous(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        values = {line.split(":")[0]: int(line.split()[1]) for line in f if ": " in line and "kB" in line}
    return {"rss": values["Rss"] / 1024, "anonymous": values["Anonymous"] / 1024}


def own_figures(world):
    """Memory that the router says it uses, in MiB."""
    sums = collections.Counter()
    for line in world.router.call("GET", "/metrics").splitlines():
        name = line.split("{")[0].split(" ")[0]
        if "memory" in name and not line.startswith("#"):
            sums[name] += float(line.split()[-1]) / 2**20
    return dict(sums)


class Soak:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(options.out)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for folder in (self.folder, *self.folder.parents):
            if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 1 and folder != pathlib.Path("/root"):
                folder.chmod(folder.stat().st_mode | 0o55)
        self.rounds, self.samples = collections.Counter(), collections.defaultdict(list)
        self.made, self.counted, self.beside = collections.Counter(), collections.Counter(), collections.Counter()
        self.failures, self.checks, self.lost, self.stale, self.restarts = [], 0, 0, 0, 0
        self.figures = open(self.folder / "rounds.jsonl", "w")

    def say(self, *text):
        print(f"{time.strftime('%H:%M:%S')} +{time.monotonic() - self.start:6.0f} s", *text, flush=True)

    def agree(self, where):
        """Compares everything; true if nothing differs in the end."""
        self.checks += 1
        found = check.agree(self.world, self.options.timeout) or check.route_check(self.world)
        if found:
            self.lost += sum(f["missing"] for f in found)
            self.stale += sum(f["extra"] + f["other"] for f in found)
            self.fail(where, found)
        return not found

    def fail(self, where, found):
        self.failures.append((self.number, self.kind, where, found))
        self.say(f"FAILED round {self.number} {self.kind} {where}: {json.dumps(found, default=str)[:3000]}")
        kept = self.folder / f"failed-{self.number}"
        kept.mkdir(exist_ok=True)
        (kept / "differences.json").write_text(json.dumps(found, default=str, indent=1))
        for log in self.world.host.folder.glob("*.log"):
            shutil.copy(log, kept)
        for name, arguments in {"summary": ("show", "bgp", "summary"), "health": ("show", "health"), "pipeline": ("show", "pipeline")}.items():
            try:
                (kept / name).write_text(self.world.router.text(*arguments))
            except Exception as e:
                (kept / name).write_text(f"{type(e).__name__}: {e}")
        try:
            # The requests between orchagent and syncd, and who has to hear of them.
            asic = self.world.sonic.asic
            lists = {key: asic.lrange(key, 0, -1) for key in asic.keys("*_QUEUE") + ["RIBTIDE_REQUESTS_OWED"]}
            marks = {key: asic.exists(key) for key in ("RIBTIDE_ANSWERS", "RIBTIDE_IN_VIEW", "RIBTIDE_SYNCD_RAN")}
            channels = asic.pubsub_numsub("ASIC_STATE_CHANNEL@1", "GETRESPONSE_CHANNEL@1", "ROUTE_TABLE_CHANNEL@0")
            (kept / "redis.json").write_text(json.dumps({"lists": lists, "marks": marks, "channels": channels, "clients": asic.client_list()}, indent=1))
        except Exception as e:
            (kept / "redis.json").write_text(f"{type(e).__name__}: {e}")
        prefixes = [s[0] for f in found for s in f.get("sample", []) if isinstance(s, (tuple, list))]
        for n, prefix in enumerate(dict.fromkeys(prefixes)):
            try:
                (kept / f"explain-{n}").write_text(self.world.router.text("explain", prefix))
            except Exception as e:
                (kept / f"explain-{n}").write_text(f"{prefix}: {type(e).__name__}: {e}")

    def recover(self):
        """Starts everything again after a failed round, so that the next round has no trace of it."""
        with self.supervisor.lock:
            for name in faults.DAEMONS:
                self.world.sonic.processes[name].kill()
        self.world.down.clear()
        self.world.policy = {}
        self.world.write_config()
        self.world.restart_router()
        left = check.agree(self.world, self.options.timeout)
        self.say(f"everything was started again: {'it differs still' if left else 'all agree'}")

    def sample(self):
        # Idle threads free memory after two seconds.
        time.sleep(self.options.rest)
        row = {"round": self.number, "kind": self.kind, "seconds": time.monotonic() - self.start, "own": own_figures(self.world), "processes": {}}
        for name, process in self.world.processes().items():
            figure = anonymous(process.popen.pid)
            row["processes"][name] = figure | {"pid": process.popen.pid}
            self.samples[name, process.popen.pid].append(figure["anonymous"])
        self.figures.write(json.dumps(row) + "\n")
        self.figures.flush()
        return row

    def choose(self, share):
        kinds = dict(faults.KINDS)
        if not QUIET[0] <= share < QUIET[1]:
            kinds |= faults.KILLS
        if self.options.kinds:
            kinds = {k: kinds.get(k, 1) for k in self.options.kinds.split(",")}
        return self.rounds_of.random.choices(list(kinds), kinds.values())[0]

    def round(self, share):
        self.number += 1
        self.rounds_of.random = random.Random(f"{self.options.seed} {self.number}")
        self.kind = self.choose(share)
        begin = time.monotonic()
        before = faults.repairs(self.world)
        made = {}
        script = getattr(self.rounds_of, self.kind)()
        failed = len(self.failures)
        while True:
            try:
                next(script)
            except StopIteration as end:
                made = end.value or {}
                break
            self.agree("in between")
        self.agree("at the end")
        for counter, n in made.items():
            self.made[counter] += n
            # The count may follow the repair by a moment.
            end = time.monotonic() + self.options.timeout
            while (got := faults.repairs(self.world).get(counter, 0) - before.get(counter, 0)) < n and time.monotonic() < end:
                time.sleep(0.5)
            self.counted[counter] += got
            if got < n:
                self.fail("repairs", [{"place": counter, "missing": n - got, "extra": 0, "other": 0, "sample": [], "error": f"{n} changes, {got} repairs counted"}])
        if not made and self.kind not in ("kill_daemon", "kill_router", "redis_restart"):
            for counter, n in faults.repairs(self.world).items():
                if n > before.get(counter, 0):
                    self.beside[f"{self.kind}: {counter}"] += n - before.get(counter, 0)
        self.rounds[self.kind] += 1
        row = self.sample()
        memory = " ".join(f"{name} {figure['anonymous']:.1f}" for name, figure in row["processes"].items())
        self.say(f"{self.number:4} {self.kind:16} {'ok' if len(self.failures) == failed else 'FAILED'} {time.monotonic() - begin:5.1f} s"
                 f"{' repairs ' + json.dumps(made) if made else ''}; MiB: {memory}")

    def run(self):
        o = self.options
        self.start, self.number, self.kind = time.monotonic(), 0, "begin"
        self.world = World(self.folder, o.transport, o.suppress, o.routes, [1, 2])
        self.supervisor = Supervisor(self.world.sonic)
        try:
            self.rounds_of = faults.Rounds(self.world, self.supervisor)
            self.rounds_of.begin(o.seed)
            self.world.connect_all()
            self.say(f"{len(self.world.expected()[0])} routes, transport {o.transport}, suppression {'on' if o.suppress else 'off'}, seed {o.seed}")
            self.agree("at the beginning")
            self.start = time.monotonic()
            seconds, recovered = o.minutes * 60, len(self.failures)
            while (passed := time.monotonic() - self.start) < seconds and (not o.rounds or self.number < o.rounds):
                self.round(passed / seconds)
                failed = len({n for n, *_ in self.failures})
                if failed > recovered:
                    recovered = failed
                    self.recover()
                if failed >= FAILURES_MAX:
                    self.say("too many failures: it ends here")
                    break
        finally:
            self.supervisor.close()
            self.world.close()
        return self.report()

    def report(self):
        lines = [f"seed {self.options.seed}, {self.options.transport}, suppression {'on' if self.options.suppress else 'off'}, "
                 f"{(time.monotonic() - self.start) / 60:.1f} min, {sum(self.rounds.values())} rounds, {self.checks} comparisons", "",
                 "| round | times |", "| --- | --- |", *(f"| {kind} | {n} |" for kind, n in sorted(self.rounds.items())), "",
                 "| repairs of changes by others | changes made | repairs counted |", "| --- | --- | --- |",
                 *(f"| {counter} | {n} | {self.counted[counter]} |" for counter, n in sorted(self.made.items())), "",
                 "| process | samples of the longest life | anonymous MiB, first quarter | second | last |", "| --- | --- | --- | --- | --- |"]
        grown = []
        for name in dict.fromkeys(name for name, _ in self.samples):
            longest = max((s for (n, _), s in self.samples.items() if n == name), key=len)
            quarter = max(1, len(longest) // 4)
            first, second, last = map(statistics.median, (longest[:quarter], longest[quarter : 2 * quarter] or longest, longest[-quarter:]))
            lines.append(f"| {name} | {len(longest)} | {first:.1f} | {second:.1f} | {last:.1f} |")
            if len(longest) >= 12 and last > second * GROWTH and last > second + SLACK and name not in ("redis", "bird"):
                grown.append(name)
        lines += ["", f"repairs in rounds without changes by others: {dict(self.beside) or 'none'}",
                  f"processes that the supervisor started: {self.supervisor.started}",
                  f"lost {self.lost}, stale {self.stale}, failed comparisons {len(self.failures)}, memory grew: {', '.join(grown) or 'none'}"]
        lines += [f"failed: round {n} {kind}, {where}: {found[0]['place']}" for n, kind, where, found in self.failures]
        text = "\n".join(lines)
        (self.folder / "report.md").write_text(text + "\n")
        print(text, flush=True)
        return 1 if self.failures or grown else 0


def main():
    parser = argparse.ArgumentParser(prog="tests/soak")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=0, help="end after so many rounds")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--transport", default="redis-async", help="a combination of test_sonic_campaign.py that keeps both databases")
    parser.add_argument("--no-suppress", dest="suppress", action="store_false", help="without FIB suppression")
    parser.add_argument("--routes", type=int, default=30_000, help="about so many")
    parser.add_argument("--kinds", help="only these kinds of rounds, by comma")
    parser.add_argument("--timeout", type=float, default=150, help="seconds until everything must agree")
    parser.add_argument("--rest", type=float, default=3, help="seconds of idleness before memory is read")
    parser.add_argument("--out", default="/tmp/ribtide-soak", help="folder of logs and figures")
    # Namespaces and processes end with the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(Soak(parser.parse_args()).run())


if __name__ == "__main__":
    main()
