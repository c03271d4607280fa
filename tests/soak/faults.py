"""The kinds of rounds. A round is a generator: it yields where everything must agree in between, and
is over when all that it broke is as before; it returns counter → how many repairs its changes need."""

import contextlib
import json
import random
import re
import signal
import subprocess
import time

from harness import CommandFailed
from harness.sonic import STATE
from test_sonic import appl_key
from test_sonic_campaign import DAEMONS, Campaign
from test_sonic_refusals import REFUSALS
from world import GATEWAYS

ROUTE = "SAI_OBJECT_TYPE_ROUTE_ENTRY"


def repairs(world):
    """Counter → repairs so far, of the kernel and of SONiC's copies."""
    text = world.router.call("GET", "/metrics")
    found = {f"kernel {kind}": int(float(n)) for kind, n in re.findall(r'^ribtide_kernel_repairs_total\{difference="([\w-]+)"\} (\S+)$', text, re.M)}
    for daemon in ("fpmsyncd", "syncd"):
        for table, counts in world.sonic.redis.db(STATE).hgetall(f"RIBTIDE_RECONCILE|{daemon}").items():
            found[table] = json.loads(counts)["repaired"]
    return found


class Rounds:
    """The rounds' common state. `quiet`: no process is killed, so that its memory can be judged."""

    def __init__(self, world, supervisor):
        self.world, self.supervisor = world, supervisor
        self.random = random.Random()

    # Campaign's fault takes its world from the same names.
    sonic = property(lambda self: self.world.sonic)
    host = property(lambda self: self.world.host)

    def hop(self):
        return self.random.choice(GATEWAYS["Ethernet0" if self.random.random() < 0.8 else "Ethernet4"])

    def path(self, asn, size):
        return tuple(str(n) for n in [asn, *(self.random.randrange(3000, 60000) for _ in range(size))])

    def fresh(self, sender, texts):
        """New attributes for these prefixes, a few of one set."""
        routes = {}
        texts = list(texts)
        while texts:
            some = texts[:self.random.choice((1, 4, 16, 64))]
            texts = texts[len(some):]
            route = (self.path(sender.asn, self.random.choice((2, 3, 4))), self.hop())
            routes.update(dict.fromkeys(some, route))
        return routes

    def begin(self, seed):
        """The senders' first tables: three quarters of the pool each, and as mixed as churn leaves them in
        the end. Tables with larger sets of equal attributes would let memory grow while they get mixed."""
        self.random.seed(f"{seed} begin")
        for sender in (self.world.a, self.world.b):
            texts = self.random.sample(self.world.pool, len(self.world.pool) * 3 // 4)
            sender.routes = self.fresh(sender, texts)
        for _ in range(len(self.world.pool) // 20):
            self.churn(0, 0)

    def churn(self, seconds, pause=0.02):
        """Withdrawals, announcements and changed attributes; as many routes afterwards as before."""
        end = time.monotonic() + seconds
        while True:
            sender = self.random.choice((self.world.a, self.world.b))
            have = list(sender.routes)
            gone = self.random.sample(have, min(self.random.randrange(1, 400), len(have) // 4))
            absent = [p for p in self.world.pool if p not in sender.routes]
            new = self.random.sample(absent, min(len(gone), len(absent)))
            sender.withdraw(gone[:len(new)])
            changed = self.random.sample(list(sender.routes), min(self.random.randrange(1, 800), len(sender.routes)))
            sender.announce(self.fresh(sender, new + changed))
            if time.monotonic() > end:
                return
            time.sleep(pause)

    # Rounds without a fault.

    def bgp_churn(self):
        self.churn(self.random.uniform(2, 6))
        yield
        seeds = list(self.world.tables)
        self.world.start_feed(self.random.choice(seeds))
        self.churn(1)

    def next_hops(self):
        """Every route of a sender moves to another gateway, some times."""
        sender = self.random.choice((self.world.a, self.world.b))
        for _ in range(self.random.randrange(1, 5)):
            moved = {hop: self.hop() for hop in GATEWAYS["Ethernet0"] + GATEWAYS["Ethernet4"]}
            sender.announce({prefix: (path, moved[hop]) for prefix, (path, hop) in list(sender.routes.items())})
            time.sleep(self.random.uniform(0, 1))
        return
        yield

    # Sessions and links.

    def session_flap(self):
        sender = self.random.choice((self.world.a, self.world.b, None))
        for n in range(self.random.randrange(1, 4)):
            if sender is None:
                self.world.stop_feed()
            else:
                sender.close()
            if n == 0:
                yield
            time.sleep(self.random.uniform(0, 1))
            self.world.start_feed() if sender is None else sender.connect()

    def link_flap(self):
        world = self.world
        link = self.random.choice(("Ethernet0-end", "Ethernet4-end", "Ethernet4", "feed0", "eth0"))
        host = world.observer_host if link == "eth0" else host_of(world, link)
        for n in range(self.random.randrange(1, 3)):
            host.ip("link", "set", link, "down")
            if link == "feed0":
                world.a.close(), world.b.close(), world.stop_feed()
            elif link != "eth0":
                world.down.add(link.removesuffix("-end"))
            if n == 0 and link != "eth0":
                yield
            time.sleep(self.random.uniform(0, 2))
            host.ip("link", "set", link, "up")
            if link == "Ethernet4":
                # Linux removes IPv6 addresses with a link that the administrator takes down.
                with contextlib.suppress(CommandFailed):
                    host.ip("addr", "add", "fc00:2::1/64", "dev", link, "nodad")
            if link == "eth0":
                with contextlib.suppress(CommandFailed):
                    host.ip("addr", "add", "fd00:255::2/64", "dev", link, "nodad")
            world.down.clear()
            if link == "feed0":
                with contextlib.suppress(CommandFailed):
                    world.host.ip("link", "set", "feed0", "up")
                world.connect_all()

    # Processes.

    def kill_daemon(self):
        names = self.random.sample(DAEMONS, self.random.choice((1, 1, 1, 2, 3)))
        self.churn(self.random.uniform(0, 1))
        print(f"  kills {names}", flush=True)
        for name in names:
            with self.supervisor.lock:
                process = self.sonic.processes[name]
                process.kill() if self.random.random() < 0.8 else process.stop()
                time.sleep(self.random.choice((0, self.random.uniform(0, 2))))
        self.churn(self.random.uniform(0, 1))
        return
        yield

    def kill_router(self):
        self.churn(self.random.uniform(0, 1))
        self.world.restart_router()
        return
        yield

    def stall(self):
        name = self.random.choice((*DAEMONS, "redis", "ribtide"))
        process = self.world.processes()[name]
        process.popen.send_signal(signal.SIGSTOP)
        # A session's buffers are small beside this: while the router stands still no sender may wait for it.
        self.churn(self.random.uniform(0.5, 3)) if name != "ribtide" else time.sleep(self.random.uniform(0.5, 5))
        process.popen.send_signal(signal.SIGCONT)
        return
        yield

    def disconnect(self):
        for _ in range(self.random.randrange(1, 4)):
            self.churn(0.2)
            self.sonic.appl.execute_command("CLIENT", "KILL", "TYPE", self.random.choice(("normal", "pubsub")))
        with contextlib.suppress(CommandFailed):
            self.host.run("ss", "-K", "dport", "=", "2620")
        self.churn(0.5)
        return
        yield

    # Redis.

    def redis_refuses(self):
        refuse, allow = REFUSALS[self.random.choice(sorted(REFUSALS))]
        self.churn(0.3)
        self.sonic.appl.execute_command(*refuse)
        self.churn(self.random.uniform(0.5, 4))
        self.sonic.appl.execute_command(*allow)
        self.churn(0.3)
        return
        yield

    def redis_restart(self):
        how = self.random.choice(("its data", "its data of before", "nothing"))
        self.churn(0.3)
        Campaign.restart_redis(self, how)
        self.churn(0.3)
        return
        yield

    # Chip.

    def chip(self):
        order, back = self.random.choice((("stall=on", "stall=off"), ("ipv4-routes=300 ipv6-routes=30", "ipv4-routes=4194304 ipv6-routes=2097152")))
        self.sonic.query(f"set {order}")
        self.churn(self.random.uniform(0.5, 3))
        self.sonic.query(f"set {back}")
        return
        yield

    # Configuration.

    def reload(self):
        policy = self.random.choice(("in", "out", "longer", "text", "without b"))
        if policy == "without b":
            self.world.b.close()
        self.world.reload(**{policy: True})
        yield
        self.world.reload()
        if policy == "without b":
            self.world.b.connect()

    def resize(self):
        for _ in range(self.random.randrange(1, 3)):
            self.churn(0.3)
            self.world.router.text("config", "bgp", "shards", self.random.randrange(1, 6))
            self.churn(0.3)
        yield
        self.world.router.text("config", "bgp", "shards", 2)

    # Other programs.

    def installed(self, count):
        """Prefixes of senders, of routes that forward by IPv4."""
        forwards = self.world.expected()[0]
        return self.random.sample(sorted(p for p in forwards if ":" not in p and forwards[p]), count)

    def foreign_kernel(self):
        host, how = self.host, self.random.choice(("del", "change", "add", "flush", "nexthop flush", "nexthop del"))
        some = self.installed(self.random.randrange(1, 300))
        if how in ("flush", "nexthop flush"):
            forwards = self.world.expected()[0]
            with contextlib.suppress(CommandFailed):
                # One round: ip reads the table again, and fails where routes are back by then.
                host.ip(*(("nexthop", "flush") if how == "nexthop flush" else ("-4", "-loops", "1", "route", "flush", "table", "100")))
            # Of all routes: ribtide writes some again before the flush has come to them.
            return {"kernel missing": sum(1 for p in forwards if ":" not in p) // 2} if how == "flush" else {"kernel next-hop-object": 1}
        if how == "nexthop del":
            ids = [n["id"] for n in json.loads(host.ip("-j", "nexthop", "show")) if "gateway" in n]
            some = self.random.sample(ids, min(5, len(ids)))
            batch(host, [f"nexthop del id {n}" for n in some])
            return {"kernel next-hop-object": len(some)}
        if how == "del":
            batch(host, [f"route del {p} table 100" for p in some])
            return {"kernel missing": len(some)}
        if how == "change":
            batch(host, [f"route replace {p} via 193.203.0.99 dev Ethernet0 table 100 proto bgp metric 20" for p in some])
            return {"kernel other-next-hops": len(some)}
        batch(host, [f"route add 20.200.{n}.0/24 via 193.203.0.99 dev Ethernet0 table 100 proto bgp metric 20" for n in range(50)])
        return {"kernel unexpected": 50}
        yield

    def foreign_appl_db(self):
        db, how = self.sonic.appl, self.random.choice(("delete", "change", "fields"))
        some = self.installed(self.random.randrange(1, 200))
        pipe = db.pipeline(transaction=False)
        for prefix in some:
            key = f"ROUTE_TABLE:{appl_key(prefix)}"
            if how == "delete":
                pipe.delete(key)
            elif how == "change":
                pipe.hset(key, "nexthop", "193.203.0.99")
            else:
                pipe.hdel(key, "nexthop")
        pipe.execute()
        return {"APPL_DB ROUTE_TABLE": len(some)}
        yield

    def foreign_asic_db(self):
        db, how = self.sonic.asic, self.random.choice(("delete", "change", "extra", "next hop"))
        names = {json.loads(name)["dest"]: name for name in self.sonic.chip().objects["ROUTE_ENTRY"]}
        some = self.installed(self.random.randrange(1, 200))
        pipe = db.pipeline(transaction=False)
        if how == "next hop":
            hops = list(self.sonic.chip().objects["NEXT_HOP"])
            some = self.random.sample(hops, min(3, len(hops)))
            pipe.delete(*(f"ASIC_STATE:SAI_OBJECT_TYPE_NEXT_HOP:{hop}" for hop in some))
        for n, prefix in enumerate(some if how != "next hop" else ()):
            key = f"ASIC_STATE:{ROUTE}:{names[prefix]}"
            if how == "delete":
                pipe.delete(key)
            elif how == "change":
                pipe.hset(key, "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", "oid:0x4000000009999")
            else:
                pipe.hset(key.replace(f'"{prefix}"', f'"77.0.{n}.0/24"'), "NULL", "NULL")
        pipe.execute()
        return {"ASIC_DB ASIC_STATE": len(some)}
        yield

    def foreign_chip(self):
        how = self.random.choice(("remove", "set", "create"))
        some = self.installed(self.random.randrange(1, 100))
        drops = "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP"
        for n, prefix in enumerate(some):
            dest = f"77.0.{n}.0/24" if how == "create" else prefix
            entry = f'{ROUTE}:{{"dest":"{dest}","switch_id":"oid:0x0","vr":"oid:0x0"}}'
            self.sonic.query(f"alter {how} {entry}{'' if how == 'remove' else ' ' + drops}")
        return {f"chip {ROUTE}": len(some)}
        yield


def host_of(world, link):
    return world.host.feeds if link == "feed0" else world.host


def batch(host, lines):
    subprocess.run(host.args("ip", "-force", "-batch", "-"), input="\n".join(lines) + "\n", text=True, capture_output=True, check=True)


#: Kinds with their frequencies; those that end a process.
KINDS = {"bgp_churn": 3, "next_hops": 2, "session_flap": 3, "link_flap": 3, "stall": 3, "disconnect": 2, "redis_refuses": 3, "redis_restart": 2,
         "chip": 2, "reload": 3, "resize": 3, "foreign_kernel": 4, "foreign_appl_db": 3, "foreign_asic_db": 3, "foreign_chip": 3}
KILLS = {"kill_daemon": 8, "kill_router": 4}
