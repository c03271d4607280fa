"""Histories played to routers: all three beside each other, or ribtide alone in several orders."""

import concurrent.futures
import os
import pathlib
import shutil
import tempfile
from typing import NamedTuple

import compare
import history as histories
from compare import Finding
from routers import ROUTERS
from rules import Facts
from world import World

#: Seconds without news after which a router has settled, the longest that ribtide may take, and that a rival may: FRR chases routes
#: that resolve themselves without end. Where something differs, it may yet take LATE seconds until it does not.
QUIET, LIMIT, RIVAL_LIMIT, LATE = 0.12, 12.0, 5.0, 4.0
#: How many times 0.3 s a router has to forget a history.
UNDO = 20
#: How long two orders are watched where ribtide may delay next hops.
PATIENT = 5.0
#: A router that makes more changes for one event than this many times the most of its rivals, and this many besides for each event.
TIMES, BESIDES = 3, 20


class Result(NamedTuple):
    findings: list
    used: list
    changes: dict
    #: ribtide's state after each step that was compared.
    states: list = ()


class Stage:
    """Routers in their namespaces, all doing the same at the same time, for one history after the other."""

    def __init__(self, profile, names):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="differential-"))
        self.folder.chmod(0o777)
        self.profile, self.made = profile, 0
        self.played = []  # The seeds of its histories.
        self.pool = concurrent.futures.ThreadPoolExecutor(len(names))
        self.routers = {}
        made = {name: self.pool.submit(ROUTERS[name], self.folder, profile) for name in names}
        errors = []
        for name, router in made.items():
            try:
                self.routers[name] = router.result()
            except BaseException as e:
                errors.append(e)
        if errors:
            self.close()
            raise errors[0]

    def renew(self, name):
        """Another router in place of one that keeps something of its past."""
        self.routers[name].close()
        self.made += 1
        self.routers[name] = ROUTERS[name](self.folder / str(self.made), self.profile)

    def undo(self):
        """Takes back what a history did. The names of the rivals that did not come back to the empty state, and were renewed; and a
        finding where ribtide did not."""
        def undo(router):
            router.undo()
            done = router.settle(QUIET, limit(router))
            for _ in range(UNDO):
                if not done or router.empty():
                    break
                done = router.settle(0.3, limit(router))
            return done and router.empty()

        settled = self.each(undo)
        findings = []
        if not settled["ribtide"]:
            state = self.routers["ribtide"].state()
            findings.append(Finding(-1, "not undone", "", "", "", str({view: sorted(routes) for view, routes in state.items()}), ""))
        left = [name for name, done in settled.items() if not done and name != "ribtide"]
        for name in left:
            self.renew(name)
        return left, findings

    def each(self, do):
        """`do` of every router at once: name → what it returned."""
        jobs = {name: self.pool.submit(do, router) for name, router in self.routers.items()}
        return {name: job.result() for name, job in jobs.items()}

    def close(self):
        list(self.pool.map(lambda router: router.close(), self.routers.values()))
        self.pool.shutdown()
        if not os.environ.get("DIFFERENTIAL_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_step(router, events):
    router.reset_counts()
    for event in events:
        router.apply(event)
    return router.settle(QUIET, limit(router))


def limit(router):
    return LIMIT if router.name == "ribtide" else RIVAL_LIMIT


def play(history, names=("ribtide", "frr", "bird"), ignored=(), stage=None):
    """Plays a history and compares after each step, until one has findings. `ignored` are kinds that are not looked for. With a
    stage it is played there, and what it did stays; without, in a fresh one."""
    if stage is None:
        with Stage(history["profile"], names) as fresh:
            return play(history, names, ignored, fresh)
    findings, used, changes, compared = [], [], {name: 0 for name in names}, []
    world, former = World(), []
    stage.each(lambda r: r.begin(history))
    before = stage.each(lambda r: r.state())
    for number, events in enumerate(history["steps"]):
        for event in events:
            former.append(Facts(world.copy(), history["profile"], former))
            world.apply(event)
        settled = stage.each(lambda r: run_step(r, events))
        for name, router in stage.routers.items():
            for process in router.host.processes:
                if process.poll() is not None:
                    findings.append(Finding(number, "ended", name, process.name, "", process.log(400), ""))
        if not settled["ribtide"]:
            total = stage.routers["ribtide"].changes()
            findings.append(Finding(number, "not convergent", "", "", "", f"{total} changes and no end", ""))
        if not settled["ribtide"] and "not convergent" in ignored or findings:
            findings = [f for f in findings if f.kind not in ignored]
            break
        # Before the states are compared: that may settle the routers again, and each time the fence takes the objects of its group along.
        counts = stage.each(lambda r: sum(r.changes().values()))
        kernel = stage.routers["ribtide"].monitor.shown()
        facts = Facts(world, history["profile"], former)
        rivals = [name for name in stage.routers if settled[name]]
        used += [f"{name}-not-convergent" for name in stage.routers if name not in rivals]
        found, rules, states = look(stage, number, facts, rivals)
        used += rules
        compared.append(states["ribtide"])
        if len(events) == 1:
            more, names_of_rules = compare.needless(number, events[0], before, states, {n: stage.routers[n] for n in rivals}, facts)
            found, used = found + more, used + names_of_rules
        for name, count in counts.items():
            changes[name] += count
        most = max([counts[n] for n in rivals if n != "ribtide"], default=0)
        if 1 < len(rivals) == len(stage.routers) and counts["ribtide"] > TIMES * most + BESIDES * len(events) \
                and not compare.mutual(counts["ribtide"], facts):
            log = stage.routers["ribtide"].process.process.log(600)
            shown = f"{counts}, events {events}, kernel: {kernel}, log: {log}"
            found.append(Finding(number, "many changes", "", "", "", shown, ""))
        findings += [f for f in found if f.kind not in ignored]
        before = states
        if findings:
            break
    return Result(findings, used, changes, compared)


#: Stages of this process that a history was played in, by profile and routers.
STAGES = {}


def close_stages():
    while STAGES:
        STAGES.popitem()[1].close()


def play_reused(history, names, ignored=()):
    """As `play_again`, in a stage where other histories were played before. Where that finds something, the history is played again
    in a fresh stage. What is found there counts. What is found in the reused stage alone is the rival's, which keeps something of its
    past, if ribtide's state is the same in both; else it is a finding of its own kind."""
    key = (str(history["profile"]), names)
    try:
        stage = STAGES.pop(key, None) or Stage(history["profile"], names)
        stage.played.append(history.get("seed"))
        try:
            result = play(history, names, ignored, stage)
            if not result.findings:
                renewed, left = stage.undo()
                result = result._replace(used=result.used + [f"{name}-renewed" for name in renewed], findings=left)
                if not left:
                    STAGES[key] = stage
                    return result
        except BaseException:
            stage.close()
            raise
        stage.close()
    except Exception as e:
        result = Result([Finding(-1, "harness", "", type(e).__name__, "", str(e)[:1500], "")], [], {})
    fresh = play_again(history, names, ignored)
    if fresh.findings:
        return fresh
    step = result.findings[0].step
    if all(f.kind == "difference" for f in result.findings) and fresh.states[step] == result.states[step]:
        return fresh._replace(used=fresh.used + sorted({f"{f.rival}-by-past" for f in result.findings}))
    if all(f.kind == "harness" for f in result.findings):
        return fresh._replace(used=fresh.used + ["harness-again"])
    # `tests/differential SEED... --reuse --jobs 1` plays them in one stage again.
    past = " ".join(map(str, stage.played[:-1]))
    found = [f._replace(kind=f"{f.kind}, in a reused stage", ours=f"{f.ours}; played before: {past}") for f in result.findings]
    return fresh._replace(findings=found)


def play_again(history, names, ignored=(), times=2):
    """As `play`. A rival that gives two answers to the same history is no judge of it: where ribtide's state is the same in a
    second run and the difference is gone, it is the rival's, which depends on timing."""
    result = play(history, names, ignored)
    for _ in range(times):
        if not result.findings or any(f.kind != "difference" for f in result.findings):
            break
        again = play(history, names, ignored)
        step = result.findings[0].step
        if len(again.states) <= step or again.states[step] != result.states[step]:
            break
        gone = {(f.rival, f.view, f.prefix) for f in result.findings} - {(f.rival, f.view, f.prefix) for f in again.findings if f.step == step}
        if not gone:
            break
        result = again._replace(used=again.used + [f"{rival}-by-timing" for rival, _, _ in gone])
    if result.findings and all(f.kind == "difference" for f in result.findings):
        return at_pace(history, names, result)
    return result


def at_pace(history, names, result):
    """The same events in the same order, each when the last has settled. Where ribtide's state is the same and a difference is gone, the
    rival has two answers to one order of events, by the time between them, and is no judge."""
    step = result.findings[0].step
    with Stage(history["profile"], names) as stage:
        world, former = World(), []
        for event in (event for events in history["steps"][:step + 1] for event in events):
            former.append(Facts(world.copy(), history["profile"], former))
            world.apply(event)
            settled = stage.each(lambda r: run_step(r, [event]))
        if not all(settled.values()):
            return result
        found, _, states = look(stage, step, Facts(world, history["profile"], former), list(names))
    if states["ribtide"] != result.states[step]:
        return result
    left = {(f.rival, f.view, f.prefix) for f in found}
    stay = [f for f in result.findings if (f.rival, f.view, f.prefix) in left]
    gone = sorted({f.rival for f in result.findings if f not in stay})
    return result._replace(findings=stay, used=result.used + [f"{rival}-by-pace" for rival in gone])


def look(stage, number, facts, rivals):
    """The states that are compared. A difference may need a moment longer."""
    waited = 0.0
    while True:
        states = {**{name: {} for name in stage.routers}, **stage.each(lambda r: r.state())}
        found, used = compare.judge(number, {name: states[name] for name in rivals}, facts)
        if not found or waited >= LATE:
            return found, used, states
        pause = 0.3 if waited < 1 else 1.0
        stage.each(lambda r: r.settle(pause, limit(r)))
        waited += pause


def final(history, mode, quiet=QUIET):
    """Where ribtide alone ends after a history in one mode of its resolution cache, once it was quiet for so long; or a finding."""
    with Stage(dict(history["profile"], cache=mode), ["ribtide"]) as stage:
        router = stage.routers["ribtide"]
        world, former = World(), []
        for number, events in enumerate(history["steps"]):
            for event in events:
                former.append(Facts(world.copy(), history["profile"], former))
                world.apply(event)
            if not run_step(router, events):
                return None, [Finding(number, "not convergent", "", "", mode, f"{router.changes()} changes and no end", "")]
        router.settle(quiet, LIMIT)
        facts = Facts(world, history["profile"], former)
        found, _, states = look(stage, len(history["steps"]) - 1, facts, ["ribtide"])
        return states["ribtide"], found


def orders(history, count, modes=("off", "epoch", "dependency")):
    """Confluence: the same final state for the history step by step and for its events in other orders at once, in each mode."""
    reference, findings = final(history, modes[-1])
    if findings:
        return findings
    for mode in modes:
        for n in range(count):
            other, findings = final(histories.permuted(history, history.get("seed", 0) * 100 + n), mode)
            if findings:
                return findings
            if other != reference:
                # BGP is told of next hops that change often only after a while.
                reference, _ = final(history, modes[-1], PATIENT)
                other, _ = final(histories.permuted(history, history.get("seed", 0) * 100 + n), mode, PATIENT)
            for d in compare.differences(reference, other, ""):
                findings.append(Finding(0, "order", f"order {n}, {mode}", d.view, d.prefix, compare.shown(d.ours), compare.shown(d.theirs)))
            if findings:
                return findings
    return []
