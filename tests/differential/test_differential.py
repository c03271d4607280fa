"""The part of `make differential` that every run of the tests has: the kept histories, and as many random ones as two
minutes allow. DIFFERENTIAL_HISTORIES, DIFFERENTIAL_SECONDS and DIFFERENTIAL_SEED change how many and which."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

import compare
import history
import model
import observe
import play
import rules
import shrink
from world import FEEDS, PROFILES, World

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = sorted((HERE / "seeds").glob("*.json"))
MODES = ("off", "epoch", "dependency")


def environment(name, default):
    return int(os.environ.get(f"DIFFERENTIAL_{name}", default))


# The library itself.

def test_generate_seed_same_history():
    """A seed is a history for ever: in every version of Python, and of this file until the number below is changed."""
    text = json.dumps([history.generate(seed) for seed in range(50)])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "dc8faf38e3f42ad6"


def test_generate_all_kinds_of_events():
    events = [e["do"] for seed in range(100) for step in history.generate(seed)["steps"] for e in step]
    assert set(events) == {"announce", "withdraw", "static", "kernel", "link", "address", "peer", "policy"}


def test_permuted_same_end():
    """The effect of events does not depend on their order, where they commute."""
    for seed in range(100):
        first, other = World(), World()
        for world, h in ((first, history.generate(seed)), (other, history.permuted(history.generate(seed), 1))):
            for event in (e for step in h["steps"] for e in step):
                world.apply(event)
        assert vars(first) == vars(other), seed


def test_shrink_two_events_left():
    h = history.generate(3)
    all_events = [e for step in h["steps"] for e in step]
    need = [all_events[2], all_events[-1]]

    def fails(shorter):
        events = [e for step in shorter["steps"] for e in step]
        return [compare.Finding(0, "difference", "frr", "kernel", "", "", "")] if all(e in events for e in need) else []

    shorter = shrink.shrink(h, ("difference", "frr", "kernel"), fails, 500)
    assert [e for step in shorter["steps"] for e in step] == need


def test_ways_objects_and_weights():
    objects = {1: {"id": 1, "gateway": "10.0.0.9", "dev": "l0"}, 2: {"id": 2, "gateway": "10.0.1.9", "dev": "l1"},
               3: {"id": 3, "group": [{"id": 1, "weight": 4}, {"id": 2, "weight": 2}]}, 4: {"id": 4, "blackhole": True}}
    assert sorted(observe.next_hops({"nhid": 3}, objects)) == [("10.0.0.9", "l0", 2), ("10.0.1.9", "l1", 1)]
    assert observe.next_hops({"nhid": 4}, objects) == [("blackhole", "", 1)]
    assert observe.next_hops({"nhid": 5}, objects) == [("gone", "", 1)]


def test_judge_unexplained_difference_found():
    """Without a rule that applies, one route more or less is a finding, and so is an advertised route that is not installed."""
    route = ("router", frozenset({("10.0.0.9", "l0", 1)}))
    world = World()
    world.apply({"do": "static", "prefix": "20.0.1.0/24", "routes": [{"distance": 1, "via": ["10.0.0.9"]}]})
    facts = rules.Facts(world, {"resolve_via_default": True, "multipath": 1})
    with_it, without = ({"kernel": kernel, "external": {}, "internal": {}} for kernel in ({"20.0.1.0/24": route}, {}))
    for mine, his in ((with_it, without), (without, with_it)):
        for rival in ("frr", "bird"):
            findings, _ = compare.judge(0, {"ribtide": mine, rival: his}, facts)
            assert {rival} <= {f.rival for f in findings} <= {rival, "model"} and {f.kind for f in findings} == {"difference"}
    advertised = dict(without, external={"20.0.1.0/24": ((65001,), "198.19.0.1", None)})
    assert "invariant" in [f.kind for f in compare.judge(0, {"ribtide": advertised}, facts)[0]]


def test_rules_are_documented():
    """docs/trust.md has every rule, with its source and reason, as `python3 tests/differential --rules` prints them."""
    assert rules.table() in (HERE.parents[1] / "docs/trust.md").read_text()
    assert all(r.source and r.reason for r in rules.RULES)
    assert len({r.name for r in rules.RULES}) == len(rules.RULES)


# The model. The expectation is written by hand from ADR 20.

STATIC = {"do": "static", "prefix": "0.0.0.0/0", "routes": [{"distance": 1, "via": ["10.0.2.9"]}]}


def static(prefix, *via):
    return {"do": "static", "prefix": prefix, "routes": [{"distance": 1, "via": list(via)}]}


def announce(peer, prefix, path, next_hop):
    return {"do": "announce", "peer": peer, "prefix": prefix, "path": path, "next_hop": next_hop}


def modelled(*events, via_default=True):
    world = World()
    for event in [{"do": "peer", "peer": p.name, "up": True} for p in FEEDS] + list(events):
        world.apply(event)
    (state, stable), = model.Model(world, {"resolve_via_default": via_default, "multipath": 1}).states({})
    assert stable
    return state


def kernel(state):
    return {prefix: {f"{gateway} {link}".strip() for gateway, link, _ in hops} for prefix, (_, hops) in state["kernel"].items()}


@pytest.mark.parametrize("name, step, expected", [
    ("row1-statics", 1, {"40.0.0.0/24": {"10.0.1.9 l1"}, "0.0.0.0/0": {"10.0.1.9 l1"}}),
    ("row2", 1, {"0.0.0.0/0": {"10.0.0.9 l0"}, "20.0.1.0/24": {"10.0.0.9 l0"}, "30.0.0.0/24": {"10.0.0.9 l0"}}),
    ("row3", 1, {"0.0.0.0/0": {"10.0.2.9 l2"}, "20.0.1.0/24": {"10.0.0.2 l0"}})])
def test_model_rows(name, step, expected):
    kept = history.load(HERE / f"seeds/{name}.json")
    assert kernel(modelled(*(e for events in kept["steps"][:step + 1] for e in events))) == expected


def test_model_circle_support_from_outside():
    """Section 4, step 1: the member that comes from the group is dropped from it alone."""
    assert kernel(modelled(static("20.0.1.0/24", "10.0.0.9", "30.0.0.1"), static("30.0.0.0/24", "20.0.1.1"))) == {
        "20.0.1.0/24": {"10.0.0.9 l0"}, "30.0.0.0/24": {"10.0.0.9 l0"}}


def test_model_circle_no_support():
    """Step 2: all pass over at once, to the less specific route, or to nothing."""
    circle = static("20.0.1.0/24", "30.0.0.1"), static("30.0.0.0/24", "20.0.1.1")
    assert kernel(modelled(*circle)) == {}
    assert kernel(modelled(*circle, STATIC)) == {prefix: {"10.0.2.9 l2"} for prefix in ("0.0.0.0/0", "20.0.1.0/24", "30.0.0.0/24")}
    assert kernel(modelled(*circle, STATIC, via_default=False)) == {"0.0.0.0/0": {"10.0.2.9 l2"}}


def test_model_own_address_and_blackhole():
    blackhole = {"do": "static", "prefix": "40.0.0.0/24", "routes": [{"distance": 1, "blackhole": True}]}
    assert kernel(modelled(static("20.0.1.0/24", "10.0.0.1"), blackhole, static("30.0.0.0/24", "40.0.0.1"),
                           static("60.0.0.0/24", "40.0.0.1", "10.0.0.9"))) == {
        "40.0.0.0/24": {"blackhole"}, "30.0.0.0/24": {"blackhole"}, "60.0.0.0/24": {"10.0.0.9 l0"}}


def test_model_advertised():
    """RFC 4271 sections 5.1.2, 5.1.3, RFC 4456 section 6: an internal path goes to clients and external peers alone."""
    state = modelled(announce("i0", "20.0.1.0/24", [65300], "10.0.0.9"), announce("c0", "30.0.0.0/24", [65301], "10.0.0.9"))
    assert state["internal"] == {"30.0.0.0/24": ((65301,), "10.0.0.9", 100)}
    assert state["external"] == {"20.0.1.0/24": ((65001, 65300), "198.19.0.1", None), "30.0.0.0/24": ((65001, 65301), "198.19.0.1", None)}


# The routers.

@pytest.mark.parametrize("path", SEEDS, ids=lambda p: p.stem)
def test_seed(path, routers):
    """Histories that failed once, shortened."""
    kept = history.load(path)
    try:
        result = play.play_again(kept, ("ribtide", "frr", "bird"))
        assert not result.findings, "\n".join(f.text() for f in result.findings)
    except AssertionError:
        if "open" not in kept:
            raise
        pytest.xfail(kept["open"])
    # A failure that depends on timing does not come each time.
    assert "open" not in kept or kept.get("sometimes"), "it passes: take `open` out of the file"


def tool(*arguments):
    """Runs `tests/differential` and returns its last line, of counts."""
    done = subprocess.run([sys.executable, str(HERE), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_random_histories(routers):
    """The same histories each time: all of them on two cores of a machine of today. How many fit is printed; half is the least. Kinds
    of findings that a kept history excuses are not looked for while it is open."""
    histories = environment("HISTORIES", 200)
    kept = [history.load(path) for path in SEEDS]
    excused = {kind for h in kept if "open" in h for kind in h["excuses"]}
    counts = tool("--histories", histories, "--seconds", environment("SECONDS", 110), "--seed", environment("SEED", 1), "--shrink", 0,
                  *(("--ignore", *sorted(excused)) if excused else ()))
    print(counts)
    assert counts["histories"] >= histories // 2


def test_stage_undo_empty_and_same_states(routers):
    """A history that is played after others in one stage ends as in a fresh one, and nothing of it is left."""
    names = ("ribtide",)
    first, second = (dict(history.generate(seed), profile=PROFILES[1]) for seed in (3, 4))
    with play.Stage(PROFILES[1], names) as stage:
        for h in (first, second):
            used = play.play(h, names, stage=stage)
            assert stage.undo() == ([], [])
    fresh = play.play(second, names)
    assert not used.findings and used.states == fresh.states


def test_needless_change_found_and_allowed():
    """Two changes where one was needed are a finding, unless the one between them was another path that a peer announces."""
    world = World()
    events = [{"do": "peer", "peer": "s0", "up": True}, {"do": "peer", "peer": "i0", "up": True}]
    events += [{"do": "announce", "peer": "i0", "prefix": "70.0.0.0/24", "path": [65300, 65301], "next_hop": "198.19.0.9"}]
    for event in events:
        world.apply(event)
    facts = rules.Facts(world, PROFILES[0])
    event = {"do": "announce", "peer": "s0", "prefix": "70.0.0.0/24", "path": [65013], "next_hop": "198.19.0.5"}
    told = [((65001, *path), "198.19.0.1", None) for path in ((65013, 65302), (65300, 65301), (65013,))]

    def allowed(between, count=2, new=told[2]):
        return rules.allow(rules.Change("external", "70.0.0.0/24", told[0], new, count, [between, new], event), facts)

    assert allowed(told[1]) == "changes-by-way-of-a-valid-path"
    assert not allowed(((65001, 65399), "198.19.0.1", None)) and not allowed(told[1], 3)
    # The event's announcement is taken back at once.
    assert not allowed(told[2], new=None)
    # Another path, which only ends as the announced one does.
    event = dict(event, path=[65301])
    assert allowed(told[1], new=None) == "changes-by-way-of-a-valid-path"
    world.apply({"do": "withdraw", "peer": "i0", "prefix": "70.0.0.0/24"})
    facts = rules.Facts(world, PROFILES[0])
    assert not allowed(None), "nothing else is there that would have been chosen for a moment"


@pytest.mark.parametrize("mode", MODES)
def test_order_same_state(mode, routers):
    """Confluence: another order of events that commute, at once, ends in the same state in each cache mode."""
    for seed in (1, 500 + MODES.index(mode)):
        findings = play.orders(history.generate(seed), 1, (mode,))
        assert not findings, "\n".join(f.text() for f in findings)


def test_undone_nothing_left(routers):
    """When everything is taken back, each router is where it was."""
    h = history.generate(2)
    world = World()
    for event in (e for step in h["steps"] for e in step):
        world.apply(event)
    down = [{"do": "peer", "peer": p.name, "up": False} for p in FEEDS]
    result = play.play_again(dict(h, steps=[*h["steps"], world.undo() + down]), ("ribtide", "frr", "bird"))
    assert not result.findings, "\n".join(f.text() for f in result.findings)
    assert result.states[-1] == {"kernel": {}, "external": {}, "internal": {}}
