"""Comparison of every copy with the senders' truth."""

import json
import subprocess
import time

from harness import CommandFailed, binary
from test_sonic import appl_key


def length(text):
    """A prefix as the truth writes it."""
    if text == "default":
        return "0.0.0.0/0"
    return text if "/" in text else text + ("/128" if ":" in text else "/32")


def kernel(world):
    """Prefix → next hops of the router's table in the kernel."""
    objects = {n["id"]: n for n in json.loads(world.host.ip("-j", "nexthop", "show"))}
    routes = {}
    for family in ("-4", "-6"):
        for route in json.loads(world.host.ip("-j", family, "route", "show", "table", "100") or "[]"):
            if route.get("type") == "blackhole":
                hops = ()
            elif "nhid" in route:
                object = objects.get(route["nhid"], {})
                members = [objects.get(m["id"], {}) for m in object["group"]] if "group" in object else [object]
                hops = () if object.get("blackhole") is None and "blackhole" in object else tuple(sorted(m.get("gateway", "none") for m in members))
            elif "nexthops" in route:
                hops = tuple(sorted(hop.get("gateway", "none") for hop in route["nexthops"]))
            else:
                hops = (route.get("gateway", "none"),)
            routes[length(route["dst"])] = hops
    return routes


def appl_db(world):
    rows = {}
    for key, row in world.sonic.routes().items():
        if row.get("protocol") in ("bgp", "static"):
            hops = () if row.get("blackhole") == "true" else tuple(sorted(row.get("nexthop", "").split(",")))
            rows[key] = hops
        elif row.get("protocol") != "kernel":
            rows[key] = ("no protocol",)
    return rows


def observed(world):
    return {prefix: route.as_path for prefix, route in world.observer.table().items()}


def chip(world, prefixes):
    routes = {}
    for prefix, answer in zip(prefixes, world.sonic.query_all(f"route {prefix}" for prefix in prefixes)):
        if answer:
            hops = tuple(sorted(h["gateway"] for h in answer["hops"] if h["gateway"]))
            routes[prefix] = () if answer["action"] == "drop" else hops or ("interface",)
    return routes


def differences(place, want, have, same=lambda w, h: w == h):
    missing = [p for p in want if p not in have]
    extra = [p for p in have if p not in want]
    other = [p for p in want if p in have and not same(want[p], have[p])]
    if not (missing or extra or other):
        return []
    sample = [(p, sorted(want[p]) if p in want else None, have.get(p)) for p in (missing[:3] + extra[:3] + other[:3])]
    return [{"place": place, "missing": len(missing), "extra": len(extra), "other": len(other), "sample": sample}]


def look(world, until_first=True):
    """The differences now; by default those of the first place that has some."""
    forwards, told = world.expected()
    found = []

    def observer():
        return differences("observer", told, observed(world), lambda w, h: h in w)

    def in_kernel():
        return differences("kernel", forwards, kernel(world))

    def in_appl_db():
        return differences("APPL_DB", {appl_key(p): hops for p, hops in forwards.items()}, appl_db(world))

    whole = {p: hops or ("drop",) for p, hops in forwards.items()} | world.connected() | world.own

    def in_asic_db():
        database = world.sonic.chip()
        unused = database.unused()
        more = [{"place": "ASIC_DB, groups without a route", "missing": 0, "extra": len(unused), "other": 0, "sample": unused[:3]}] if unused else []
        return differences("ASIC_DB", whole, database.routes()) + more

    def in_chip():
        counts = world.sonic.query("counts")
        want = forwards | {p: ("interface",) for p in world.connected()}
        got = differences("chip", want, chip(world, list(want)))
        more = counts["ipv4_routes"] + counts["ipv6_routes"] - len(whole)
        return got or ([{"place": "chip", "missing": max(0, -more), "extra": max(0, more), "other": 0, "sample": []}] if more else [])

    def under_way():
        n = world.sonic.in_flight()
        return [{"place": "rows that orchagent has not taken", "missing": 0, "extra": n, "other": 0, "sample": []}] if n else []

    def unconfirmed():
        if not world.suppress:
            return []
        bgp = json.loads(world.router.text("show", "route", "summary", "--json"))["bgp"]
        n = bgp["waiting"] + bgp["blocked"]
        return [{"place": "routes that wait for a confirmation", "missing": n, "extra": 0, "other": 0, "sample": []}] if n else []

    for step in (in_kernel, observer, in_appl_db, in_asic_db, in_chip, under_way, unconfirmed):
        try:
            found += step()
        except (AssertionError, KeyError, ValueError, OSError, CommandFailed, subprocess.CalledProcessError) as e:
            found.append({"place": step.__name__, "missing": 0, "extra": 0, "other": 0, "error": f"{type(e).__name__}: {e}"[:600]})
        except Exception as e:  # The Redis client's own.
            if not type(e).__module__.startswith("redis"):
                raise
            found.append({"place": step.__name__, "missing": 0, "extra": 0, "other": 0, "error": f"{type(e).__name__}: {e}"[:600]})
        if found and until_first:
            break
    return found


def agree(world, seconds):
    """Waits until nothing differs; the differences that are left after so many seconds."""
    end = time.monotonic() + seconds
    while look(world):
        if time.monotonic() > end:
            return look(world, until_first=False)
        time.sleep(1)
    return []


def route_check(world):
    """What `ribtide route-check` says of the router, and of the daemons with the router."""
    found = []
    for of in (["--socket", world.router.socket],
               ["--sonic", "--database-config", world.sonic.redis.config, "--syncd", world.host.folder / "syncd.sock",
                "--socket", world.router.socket]):
        done = subprocess.run([binary(), "route-check", "--full", "--wait", "60", *map(str, of)], capture_output=True, text=True, timeout=300)
        if done.returncode != 0 or "All agree" not in done.stdout:
            found.append({"place": f"route-check {of[0]}", "missing": 0, "extra": 0, "other": 0, "error": (done.stdout + done.stderr)[:1500]})
    return found
