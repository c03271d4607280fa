"""Makes a failing history shorter: delta debugging (Zeller's ddmin) over its events, which keeps the kind of finding."""


def flat(history):
    return [(n, event) for n, step in enumerate(history["steps"]) for event in step]


def built(history, events):
    steps = {}
    for n, event in events:
        steps.setdefault(n, []).append(event)
    return dict(history, steps=[steps[n] for n in sorted(steps)])


def shrink(history, key, fails, budget=60):
    """The shortest history found in `budget` runs for which `fails(history)` still holds a finding with this key."""
    left = [budget]

    def bad(events):
        if left[0] <= 0:
            return False
        left[0] -= 1
        return any(f.key() == key for f in fails(built(history, events)))

    events = flat(history)
    parts = 2
    while len(events) >= 2 and left[0] > 0:
        size = max(1, len(events) // parts)
        for at in range(0, len(events), size):
            rest = events[:at] + events[at + size:]
            if rest and bad(rest):
                events, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(events), parts * 2)
    return built(history, events)
