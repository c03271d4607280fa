"""Histories: pure data, a function of the seed.

A history is {"seed", "profile", "steps"}; a step is a list of events that happen at once, and after each step everything
settles and is compared. Each event sets something to a value (see `World.apply`), so what is left when events are
taken out is a history again.
"""

import json

from prng import Random
from world import FEEDS, LINKS, OBSERVERS, PROFILES, World, own, subnet

#: Prefixes lie in each other and hold each other's next hops on purpose.
PREFIXES = ("0.0.0.0/0", "20.0.0.0/16", "20.0.1.0/24", "20.0.2.0/24", "30.0.0.0/16", "30.0.0.0/24", "40.0.0.0/24",
            "60.0.0.1/32", "60.0.0.2/32", "60.0.0.0/24", "20.0.1.128/25", "70.0.0.0/24")
#: Next hops behind other prefixes; the last is behind the default route at best.
BEHIND = ("20.0.1.1", "20.0.1.129", "20.0.2.1", "30.0.0.1", "30.0.9.1", "40.0.0.1", "60.0.0.1", "60.0.0.2", "60.0.0.9", "172.16.0.1")


def gateway(random, world, links=LINKS):
    """An address on a link without a host, of a subnet that is there or may come."""
    link = random.choice(links)
    return f"{subnet(link, 1 if random.chance(20) else 0)}.{9 + random.below(3)}"


def next_hop(random, world, recursive):
    what = random.weighted([("gateway", 40), ("peer", 10), ("behind", 60 if recursive else 12), ("own", 4)])
    if what == "gateway":
        return gateway(random, world)
    if what == "peer":
        return random.choice(("10.0.0.2", "10.0.1.2", "10.0.0.3"))
    return random.choice(BEHIND) if what == "behind" else own(random.choice(LINKS))


def static(random, world):
    prefix = random.choice(PREFIXES)
    if prefix in world.statics and random.chance(50):
        return {"do": "static", "prefix": prefix, "routes": []}
    routes = []
    for distance in random.sample((1, 5, 210), 1 + random.chance(25)):
        if random.chance(8):
            routes.append({"distance": distance, "blackhole": True})
            continue
        # staticd has a next hop of a prefix once, with one distance.
        taken = {a for r in routes for a in r.get("via", [])}
        via = sorted({next_hop(random, world, random.chance(50)) for _ in range(random.weighted([(1, 5), (2, 4), (3, 1)]))} - taken)
        if not via:
            continue
        routes.append({"distance": distance, "via": via})
    return {"do": "static", "prefix": prefix, "routes": routes}


def kernel(random, world):
    if world.kernel and random.chance(40):
        return {"do": "kernel", "prefix": random.choice(sorted(world.kernel)), "via": []}
    links = random.sample(LINKS, random.weighted([(1, 6), (2, 4)]))
    return {"do": "kernel", "prefix": random.choice(PREFIXES), "metric": random.weighted([(0, 3), (50, 1)]),
            "via": sorted([f"{subnet(link)}.{9 + random.below(3)}", link] for link in links)}


def announce(random, world):
    peer = random.choice([p for p in FEEDS if world.peers[p.name]] or FEEDS)
    if peer.asn == 65001:
        path = [65300 + random.below(4) for _ in range(1 + random.below(3))]
    else:
        path = [peer.asn] + [65300 + random.below(4) for _ in range(random.below(3))]
    event = {"do": "announce", "peer": peer.name, "prefix": random.choice(PREFIXES), "path": path,
             "next_hop": next_hop(random, world, peer.kind != "single")}
    if peer.kind == "single" and random.chance(50):
        event["next_hop"] = peer.address
    if peer.asn == 65001:
        event["local_pref"] = random.weighted([(100, 6), (200, 1), (50, 1)])
    return event


def withdraw(random, world):
    said = [(name, prefix) for name, routes in world.says.items() for prefix in routes]
    if not said:
        return announce(random, world)
    name, prefix = random.choice(sorted(said))
    return {"do": "withdraw", "peer": name, "prefix": prefix}


def link(random, world):
    down = [(how, name) for how, state in (("admin", world.admin), ("carrier", world.carrier)) for name in LINKS if not state[name]]
    if down and random.chance(60):
        how, name = random.choice(down)
        return {"do": "link", "link": name, "how": how, "up": True}
    return {"do": "link", "link": random.choice(LINKS), "how": random.choice(("admin", "carrier")), "up": False}


def address(random, world):
    name = random.choice(LINKS)
    mine = f"{own(name, random.choice((0, 1, 1)) if name in ('l2', 'l3') else 1)}/24"
    return {"do": "address", "link": name, "address": mine, "present": mine not in world.addresses[name]}


def peer(random, world):
    name = random.choice(FEEDS).name
    return {"do": "peer", "peer": name, "up": not world.peers[name]}


def policy(random, world):
    """Another import policy of a feed or export policy of an observer; half of the time the end of one."""
    changed = sorted(name for name, p in world.policies.items() if p)
    if changed and random.chance(50):
        return {"do": "policy", "peer": random.choice(changed), "policy": {}}
    observer = random.chance(30)
    p = random.choice(OBSERVERS if observer else FEEDS)
    new = {}
    if random.chance(60):
        new["reject"] = sorted(random.sample(PREFIXES, 1 + random.below(4)))
    if random.chance(40) and not (observer and p.kind == "single"):
        new["local_pref"] = random.choice((50, 150, 200))
    if random.chance(30) and not observer:
        new["med"] = random.choice((0, 10, 20))
    if random.chance(30):
        new["prepend"] = 1 + random.below(2)
    return {"do": "policy", "peer": p.name, "policy": new or {"reject": [random.choice(PREFIXES)]}}


EVENTS = ((announce, 36), (withdraw, 12), (static, 20), (kernel, 8), (link, 16), (address, 6), (peer, 4), (policy, 8))


#: How often each profile is played.
PROFILE_WEIGHTS = [(0, 2), (1, 2), (2, 1)]


def generate(seed):
    random, world = Random(seed), World()
    steps = []

    def add(step, event):
        world.apply(event)
        step.append(event)

    first = []
    for p in FEEDS:
        if random.chance(65):
            add(first, {"do": "peer", "peer": p.name, "up": True})
    for make, n in ((static, 1 + random.below(4)), (kernel, random.below(2)), (announce, 4 + random.below(8))):
        for _ in range(n):
            add(first, make(random, world))
    steps.append(first)
    for _ in range(4 + random.below(5)):
        step = []
        for _ in range(random.weighted([(1, 6), (2, 2), (3, 1)])):
            add(step, random.weighted(EVENTS)(random, world))
        steps.append(step)
    return {"seed": seed, "profile": PROFILES[random.weighted(PROFILE_WEIGHTS)], "steps": steps}


def load(path):
    with open(path) as f:
        return json.load(f)


def save(history, path):
    """One event a line, so that a person can read and change it."""
    steps = ",\n  ".join("[" + ",\n   ".join(json.dumps(e) for e in step) + "]" for step in history["steps"])
    head = "".join(f' {json.dumps(key)}: {json.dumps(value)},\n' for key, value in history.items() if key != "steps")
    with open(path, "w") as f:
        f.write("{\n" + head + ' "steps": [\n  ' + steps + "]\n}\n")


def permuted(history, seed):
    """The same events in another order, in one step, where events that commute change places. What happens to one thing
    stays in order, and so do links, addresses and the kernel's routes of others: the kernel removes routes with their
    link, and takes none without it."""
    random = Random(seed)
    queues = {}
    for event in (e for step in history["steps"] for e in step):
        if event["do"] in ("link", "address", "kernel"):
            key = "kernel"
        elif event["do"] in ("announce", "withdraw"):
            key = (event["peer"], event["prefix"])
        else:
            key = (event["do"], event.get("prefix") or event.get("peer"))
        queues.setdefault(key, []).append(event)
    out = []
    queues = [queues[key] for key in queues]
    while queues:
        queue = random.choice(queues)
        out.append(queue.pop(0))
        if not queue:
            queues.remove(queue)
    return dict(history, steps=[out])
