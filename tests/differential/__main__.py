"""`python3 tests/differential`: histories into ribtide, FRR and BIRD; --help lists the options."""

import argparse
import collections
import contextlib
import json
import multiprocessing
import multiprocessing.util
import os
import pathlib
import resource
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import history as histories  # noqa: E402
import play  # noqa: E402
import rules  # noqa: E402
import shrink  # noqa: E402
from world import PROFILES  # noqa: E402


def one(task):
    """Plays one history; (name, findings, rules used, changes of each router, shortened history or None, seconds)."""
    options, name, history = task
    start = time.monotonic()
    try:
        if options.mode == "order":
            run = lambda h: play.orders(h, options.orders)  # noqa: E731
            result = play.Result(run(history), [], {})
        else:
            names = ("ribtide",) if options.mode == "invariant" else tuple(options.routers.split(","))
            run = lambda h: play.play(h, names, options.ignore).findings  # noqa: E731
            again = play.play_reused if options.reuse else play.play_again
            result = again(history, names, options.ignore)
    except Exception as e:  # The harness itself failed; say so, and go on with the others.
        if "harness" in options.ignore:
            return name, [], ["harness-failed"], {}, None, 0
        return name, [play.Finding(-1, "harness", "", type(e).__name__, "", str(e)[:1500], "")], [], {}, None, 0
    shorter = None
    if result.findings and options.shrink:
        try:
            shorter = shrink.shrink(history, result.findings[0].key(), run, options.shrink)
        except Exception as e:
            print(f"{name}: not shortened: {e}", file=sys.stderr)
    return name, result.findings, result.used, result.changes, shorter, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(prog="tests/differential")
    parser.add_argument("files", nargs="*", help="histories to replay, as files or seeds; without, random ones")
    parser.add_argument("--mode", choices=("differential", "order", "invariant"), default="differential")
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next has the next")
    parser.add_argument("--jobs", type=int, default=5 * (os.cpu_count() or 1), help="histories at once")
    parser.add_argument("--fresh", dest="reuse", action="store_false", default=None, help="each history in namespaces and daemons of its own; named ones are")
    parser.add_argument("--reuse", action="store_true", default=None, help="named histories too in the same ones, as random ones; with --jobs 1 one after the other")
    parser.add_argument("--seconds", type=float, help="start no history after this time")
    parser.add_argument("--routers", default="ribtide,frr,bird")
    parser.add_argument("--orders", type=int, default=2, help="orders in each cache mode")
    parser.add_argument("--shrink", type=int, default=40, help="runs to spend on shortening a failure; 0: none")
    parser.add_argument("--ignore", nargs="*", default=(), help="kinds of findings not to look for")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "seeds", help="where shortened histories go")
    parser.add_argument("--rules", action="store_true", help="print the rules as docs/trust.md has them")
    options = parser.parse_args()

    if options.rules:
        print(rules.table(), end="")
        return 0
    named = [(f, histories.generate(int(f))) if f.isdigit() else (pathlib.Path(f).stem, histories.load(f)) for f in options.files]
    started = time.monotonic()

    def tasks():
        for name, history in named or ((str(s), histories.generate(s)) for s in range(options.seed, options.seed + options.histories)):
            if options.seconds and time.monotonic() - started > options.seconds:
                return
            yield options, name, history

    done = 0
    failed, used, changes = [], collections.Counter(), collections.Counter()
    options.reuse = options.mode != "order" and (options.reuse if options.reuse is not None else not named)
    with pools(options) as run:
        for name, findings, explained, counts, shorter, took in lazily(run, tasks(), 2 * options.jobs):
            done += 1
            used.update(explained)
            changes.update(counts)
            if sys.stderr.isatty():
                total = len(named) or options.histories
                print(f"\r{done} of {total} histories, {len(failed)} to be played again, {time.monotonic() - started:.0f} s ",
                      end="", file=sys.stderr, flush=True)
            if findings:
                show(options, name, findings, shorter, took)
                failed.append(name)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    # The load of many histories at once is no event of a history. One that fails by itself too has failed.
    alone = []
    options.reuse, options.shrink = False, 0
    for name in failed if options.jobs > 1 else ():
        history = histories.generate(int(name)) if name.isdigit() else dict(named)[name]
        _, findings, _, _, _, took = one((options, name, history))
        if findings:
            show(options, f"{name} alone", findings, None, took)
        else:
            print(f"history {name} alone ({took:.0f} s): passed", flush=True)
            alone.append(name)
    bad = len(failed) - len(alone)
    cpu = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    print(json.dumps({"histories": done, "failed": bad, "passed-alone": alone, "seconds": round(time.monotonic() - started), "cpu": round(cpu), "seed": options.seed,
                      "changes": changes, "rules": dict(used.most_common())}))
    return 1 if bad else 0


def show(options, name, findings, shorter, took):
    """Prints what failed, and keeps the shortened history."""
    print(f"history {name} ({took:.0f} s):", flush=True)
    for finding in findings[:8]:
        print(f"    {finding.text()[:1500]}", flush=True)
    if shorter:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"found-{options.mode}-{name}.json"
        histories.save(dict(shorter, finding=findings[0].text()[:300]), path)
        print(f"    shortened to {sum(map(len, shorter['steps']))} events: {path}", flush=True)


@contextlib.contextmanager
def pools(options):
    """Runs tasks in processes. Each process plays histories of one profile, so that it needs one stage."""
    share = options.jobs / sum(weight for _, weight in histories.PROFILE_WEIGHTS)
    numbers = [max(1, round(weight * share)) for _, weight in histories.PROFILE_WEIGHTS] if options.reuse else [options.jobs]
    made = [multiprocessing.Pool(n, starting) for n in numbers]
    try:
        yield lambda task: made[PROFILES.index(task[2]["profile"]) if options.reuse else 0].apply_async(one, (task,))
    finally:
        for pool in made:
            pool.close()
        for pool in made:
            pool.join()


def starting():
    """In a process that plays: its stages end with it."""
    multiprocessing.util.Finalize(None, play.close_stages, exitpriority=10)


def lazily(run, tasks, most):
    """Results as they come; tasks are taken when fewer than `most` are waiting."""
    waiting = []
    for task in tasks:
        waiting.append(run(task))
        while len(waiting) >= most:
            time.sleep(0.02)
            for r in [r for r in waiting if r.ready()]:
                waiting.remove(r)
                yield r.get()
    for r in waiting:
        yield r.get()


if __name__ == "__main__":
    sys.exit(main())
