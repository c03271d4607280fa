"""What differs between ribtide and its rivals after a step, and what is wrong with ribtide by itself."""

from typing import NamedTuple

import model
import rules
from rules import Change, Difference, allow, explain


class Finding(NamedTuple):
    """Something that no rule explains."""

    step: int
    kind: str  # difference, not convergent, invariant, needless change, ended, not undone, order
    rival: str
    view: str
    prefix: str
    ours: str
    theirs: str

    def key(self):
        """What stays the same while the history is made shorter."""
        return (self.kind, self.rival, self.view)

    def text(self):
        beside = f"; {self.rival}: {self.theirs}" if self.rival else ""
        return f"step {self.step}: {self.kind}: {self.view} {self.prefix}: ribtide: {self.ours}{beside}"


def shown(value):
    """A route for people."""
    if value is None:
        return "none"
    if isinstance(value[1], frozenset):
        return f"{value[0]}: " + ", ".join(f"{gateway} {dev} x{weight}".replace(" x1", "") for gateway, dev, weight in sorted(value[1]))
    return f"path {' '.join(map(str, value[0]))}, next hop {value[1]}, preference {value[2]}"


def differences(ours, theirs, rival):
    alike = {prefix for view in ("external", "internal") for prefix, route in ours[view].items() if theirs[view].get(prefix) == route}
    uninstalled = frozenset(alike - theirs["kernel"].keys())
    for view in ours:
        for prefix in sorted(ours[view].keys() | theirs[view].keys()):
            mine, his = ours[view].get(prefix), theirs[view].get(prefix)
            if mine != his:
                others = all(side["kernel"].get(prefix, ("",))[0] == "others" for side in (ours, theirs))
                yield Difference(rival, view, prefix, mine, his, uninstalled, others)


def judge(step, states, facts):
    """(findings, names of the rules that explained something). The model allows no difference. Beside the rules it counts the routes that were compared with both
    rivals, those that agreed with neither, and those where the rivals agreed with each other."""
    findings, used = invariant(step, states["ribtide"], facts), []
    comparison = model.judge(states["ribtide"], facts.world, facts.profile)
    findings += [Finding(step, "difference", "model", view, prefix, shown(ours), shown(theirs)) for view, prefix, ours, theirs in comparison.wrong]
    for what, count in zip(("routes", "mutual", "excluded"), comparison[1:]):
        used += [f"model-{what}"] * count
    excused = {}
    for rival in states:
        if rival == "ribtide":
            continue
        for d in differences(states["ribtide"], states[rival], rival):
            name = explain(d, facts)
            if name:
                used.append(name)
                excused.setdefault((d.view, d.prefix), []).append(d.theirs)
            else:
                findings.append(Finding(step, "difference", rival, d.view, d.prefix, shown(d.ours), shown(d.theirs)))
    if len(states) == 3:
        for view in states["ribtide"]:
            used += ["routes"] * len({prefix for state in states.values() for prefix in state[view]})
        neither = [theirs for theirs in excused.values() if len(theirs) == 2]
        used += ["routes-agreed-with-neither"] * len(neither)
        used += ["routes-rivals-agree-against"] * sum(a == b for a, b in neither)
    return findings, used


def invariant(step, state, facts):
    """Best and advertised implies resolvable and installed: what an observer holds is in the kernel, by links that are up."""
    findings = []
    up = {link for _, _, link in facts.connected} | {link for link in facts.world.admin if facts.world.up(link)}
    for view in ("external", "internal"):
        for prefix in sorted(state[view]):
            who, hops = state["kernel"].get(prefix, (None, ()))
            if who is None:
                findings.append(Finding(step, "invariant", "", view, prefix, "advertised and not in the kernel", ""))
            elif who == "router" and any(dev and dev not in up for _, dev, _ in hops):
                findings.append(Finding(step, "invariant", "", view, prefix, "advertised, and in the kernel by a link that is down", ""))
    return findings


def mutual(count, facts):
    """Whether so many changes are those of choices that depend on each other: `changes-of-mutual-choices`, of each prefix and view."""
    prefixes = facts.world.prefixes()
    return count <= 3 * rules.MUTUAL * len(prefixes) and any(facts.mutual(prefix) for prefix in prefixes)


def needless(step, event, before, after, routers, facts):
    """(findings, names of the rules that explained something). After one event a prefix changes at most once. By ribtide more often,
    where no rival did so, is an announcement that is taken back or a route that comes and goes, which peers and packets notice. The
    kernel may be told a route twice, and once more where BGP's choice follows what the RIB manager did."""
    findings, used = [], []
    ours, rivals = routers["ribtide"], [r for name, r in routers.items() if name != "ribtide"]

    def check(view, mine, others, free, values, of_prefix={}):
        for prefix, count in sorted(mine.items()):
            old, new = before["ribtide"][view].get(prefix), after["ribtide"][view].get(prefix)
            least = (old != new) + free + of_prefix.get(prefix, 0) + (view == "kernel" and facts.of_bgp(prefix))
            if count > least and all(other[prefix] <= least for other in others):
                if view == "kernel" and count == least + 1 and any(other[prefix] == least for other in others):
                    continue  # A rival went there and back too; to replace a route of another type takes a message more.
                name = allow(Change(view, prefix, old, new, count, values.get(prefix, []), event), facts)
                if name:
                    used.append(name)
                    continue
                most = max((other[prefix] for other in others), default=0)
                findings.append(Finding(step, "needless change", "", view, prefix, f"{count} changes, rivals {most}: {shown(old)} to {shown(new)}, by way of "
                                        + ", ".join(map(shown, values.get(prefix, []))), ""))

    if rivals:
        for view in ours.observers:
            check(view, ours.observers[view].changes, [r.observers[view].changes for r in rivals], 0, ours.observers[view].values)
        # The harness takes a route of others out before it puts another in: these two are seen, and what a router makes of each.
        others = {event["prefix"]: 3} if event["do"] == "kernel" else {}
        check("kernel", ours.monitor.routes, [r.monitor.routes for r in rivals], 1, {}, others)
    return findings, used
