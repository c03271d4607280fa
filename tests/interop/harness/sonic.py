"""SONiC's route path as three processes over Redis, with its tables as a plain Redis client
reads and writes them."""

import ipaddress
import itertools
import json
import socket
from collections import defaultdict

from .daemons import Redis
from .host import CommandFailed, wait_for
from .ribtide import binary

APPL, ASIC, CONFIG, STATE = 0, 1, 4, 6
#: What SONiC's scripts start each daemon with, in the order in which SONiC starts them.
FLAGS = {
    "syncd": ["--diag", "-u", "-s", "-l", "-p", "{folder}/sai.profile", "--query-socket", "{folder}/syncd.sock"],
    "orchagent": ["-d", "{folder}", "-b", "1024", "-s", "-m", "02:00:00:00:00:01"],
    "fpmsyncd": [],
}
#: SONiC's daemons look for this file, and only here.
DATABASES = "/run/redis/sonic-db/database_config.json"
#: Gives a process a view of DATABASES of its own; `ip netns exec` has made its mounts private.
WITH_DATABASES = f"""mkdir -p /run/redis && mount -t tmpfs none /run/redis && mkdir /run/redis/sonic-db &&
    cp "$1" {DATABASES} && shift && exec "$@" """


class Port:
    """A port: a kernel interface of this name, its addresses, and the neighbours behind it."""

    def __init__(self, name, lanes, addresses, neighbors):
        self.name, self.lanes, self.addresses, self.neighbors = name, lanes, addresses, neighbors


#: Recorded next hops are on Ethernet0 (the exchange point of the recorded table), others on Ethernet4.
PORTS = [
    Port("Ethernet0", "25,26,27,28", ["193.203.0.250/24", "fd00:193::ff/64"],
         [f"193.203.0.{n}" for n in range(1, 101)] + [f"fd00:193::{n:x}" for n in range(1, 17)]),
    Port("Ethernet4", "29,30,31,32", ["10.2.0.1/24", "fc00:2::1/64"], ["10.2.0.17", "10.2.0.18", "fc00:2::11"]),
]

#: Networks of the ports: routers announce them, and a switch sends them to the interface.
CONNECTED = {str(ipaddress.ip_interface(a).network): ("interface",) for p in PORTS for a in p.addresses}


class Sonic:
    """Redis and the three daemons, or those of `start`, in a host whose ports are up. `config` is for CONFIG_DB; `flags`
    are given to a daemon beside SONiC's. `packets`: the switch forwards them; the host has the netdevs eth1, eth2, … of the ports, and
    their host interfaces come from the switch. `vrfs` names the VRF of ports that are not in the default one; `redis` is the address that
    the databases have beside their socket; `state`: STATE_DB and COUNTERS_DB are on another server. `kernel`: the chip is the kernel of the
    host, which has the netdevs of the ports already. `ports`: those of the switch; one without addresses gets no netdev."""

    def __init__(self, host, neighbors=True, suppress=False, config=None, flags=None, start=tuple(FLAGS), vrfs=None, redis="127.0.0.1",
                 state=False, packets=False, kernel=False, ports=None):
        self.host = host
        self.own_ports, ports = ports, ports or PORTS
        self.vrfs = vrfs or {}
        self.redis = Redis(host, address=redis, state=state)
        self.flags = {name: [*usual, *(flags or {}).get(name, [])] for name, usual in FLAGS.items()}
        if kernel:
            at = self.flags["syncd"].index("--query-socket")
            self.flags["syncd"][at:at + 2] = ["--kernel-chip"]
        self.config = dict(config or {})
        if suppress:
            # SONiC's script gives orchagent its flag for the same setting.
            self.config["DEVICE_METADATA|localhost"] = self.config.get("DEVICE_METADATA|localhost", {}) | {"suppress-fib-pending": "enabled"}
            self.flags["orchagent"].append("-F")
        self.configure()
        self.appl, self.asic = self.redis.db(APPL), self.redis.db(ASIC)
        self.processes = {}
        (host.folder / "sai.profile").write_text(f"SAI_VS_INTERFACE_LANE_MAP_FILE={host.folder}/lanemap.ini\n"
                                                 f"SAI_VS_HOSTIF_USE_TAP_DEVICE={str(packets).lower()}\n")
        names = [p.name if kernel else f"eth{n + 1}" for n, p in enumerate(ports)]
        (host.folder / "lanemap.ini").write_text("".join(f"{name}:{p.lanes}\n" for name, p in zip(names, ports)))
        for port in [p for p in ports if p.addresses] if not packets and not kernel else []:
            host.lan(port.name, *port.addresses)
        for name in FLAGS:
            (host.folder / name).symlink_to(binary())
        for name in start:
            self.start(name)
        self.everything_else(neighbors)

    def configure(self):
        """Writes CONFIG_DB as an operator does."""
        for key, fields in self.config.items():
            self.redis.db(CONFIG).hset(key, mapping=fields)

    #: The ports of this switch, where they are others than those of all tests.
    own_ports = None

    @property
    def ports(self):
        # A test may have set other ports in the module.
        return self.own_ports or PORTS

    def everything_else(self, neighbors=True):
        """Writes the rows of SONiC's other daemons at their start."""
        self.ports_and_interfaces()
        for port in self.ports if neighbors else []:
            for address in port.neighbors:
                self.neighbor(port.name, address)

    def start(self, name):
        flags = [flag.format(folder=self.host.folder) for flag in self.flags[name]]
        self.processes[name] = self.host.start(name, "sh", "-c", WITH_DATABASES, "sh", self.redis.config,
                                               self.host.folder / name, *flags, cwd=self.host.folder)

    def alive(self):
        return list(self.processes.values())

    def restart(self, name):
        """As after a crash."""
        self.processes[name].kill()
        self.start(name)

    # What SONiC's other daemons write.

    def set(self, table, key, **fields):
        """ProducerStateTable's set."""
        p = self.appl.pipeline(transaction=True)
        p.sadd(f"{table}_KEY_SET", key)
        p.hset(f"_{table}:{key}", mapping=fields or {"NULL": "NULL"})
        p.publish(f"{table}_CHANNEL@{APPL}", "G")
        p.execute()

    def delete(self, table, key):
        """ProducerStateTable's del."""
        p = self.appl.pipeline(transaction=True)
        p.sadd(f"{table}_KEY_SET", key)
        p.sadd(f"{table}_DEL_SET", key)
        p.delete(f"_{table}:{key}")
        p.publish(f"{table}_CHANNEL@{APPL}", "G")
        p.execute()

    def ports_and_interfaces(self):
        """portsyncd, vrfmgrd and intfmgrd."""
        for index, port in enumerate(self.ports):
            self.set("PORT_TABLE", port.name, lanes=port.lanes, speed="40000", alias=f"fortyGigE0/{index}", index=str(index),
                     mtu="9100", admin_status="up")
        self.set("PORT_TABLE", "PortConfigDone", count=str(len(self.ports)))
        self.set("PORT_TABLE", "PortInitDone", lanes="0")
        for vrf in set(self.vrfs.values()):
            self.set("VRF_TABLE", vrf)
        for port in self.ports:
            self.set("INTF_TABLE", port.name, **({"vrf_name": self.vrfs[port.name]} if port.name in self.vrfs else {}))
            for address in port.addresses:
                self.set("INTF_TABLE", f"{port.name}:{address}", scope="global", family="IPv6" if ":" in address else "IPv4")

    def neighbor(self, interface, address):
        """neighsyncd."""
        self.set("NEIGH_TABLE", f"{interface}:{address}", neigh=mac(address), family="IPv6" if ":" in address else "IPv4")

    # What there is.

    def setting(self, daemon, name):
        """A setting of a daemon."""
        return json.loads(self.redis.db(STATE).hget(f"RIBTIDE_PIPELINE|{daemon}", name) or '{"active": ""}')

    def routes(self):
        """ROUTE_TABLE: key as it is written → fields."""
        return {key.removeprefix("ROUTE_TABLE:"): fields for key, fields in rows(self.appl, "ROUTE_TABLE:*").items()}

    def groups(self):
        """NEXTHOP_GROUP_TABLE: key → fields."""
        found = rows(self.appl, "NEXTHOP_GROUP_TABLE:*")
        return {key.removeprefix("NEXTHOP_GROUP_TABLE:"): fields for key, fields in found.items()}

    def route_count(self):
        """How many rows ROUTE_TABLE has."""
        return count(self.appl, "ROUTE_TABLE:*")

    def in_flight(self):
        """Rows and keys that no consumer has taken."""
        return count(self.appl, "_ROUTE_TABLE:*") + self.appl.scard("ROUTE_TABLE_KEY_SET") + self.appl.scard("ROUTE_TABLE_DEL_SET")

    def chip_routes(self):
        """Number of routes in ASIC_DB."""
        return count(self.asic, "ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:*")

    def chip(self):
        return Chip(self.asic)

    def lookup(self, address):
        """The forwarding of a packet in the virtual switch."""
        return self.query(f"lookup {address}")

    def route(self, prefix):
        """The entry of this prefix in the virtual switch."""
        return self.query(f"route {prefix}")

    def query(self, command):
        [answer] = self.query_all([command])
        return answer

    def query_all(self, commands):
        """The replies of syncd to each command. It fails without a switch, and when syncd is too
        busy."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.host.folder / "syncd.sock"))
            answers = s.makefile()
            commands, found = iter(commands), []
            # So many at once as fit into the socket with their answers.
            while some := "".join(f"{command}\n" for command in itertools.islice(commands, 100)):
                s.sendall(some.encode())
                found += [json.loads(answers.readline()) for _ in range(some.count("\n"))]
            for answer in found:
                if isinstance(answer, dict) and "error" in answer:
                    raise CommandFailed(f"syncd says: {answer['error']}")
            return found

    def wait_routes(self, what, routes, timeout=60):
        """Waits until ASIC_DB holds exactly these, and no group that none of them uses."""
        def holds():
            # They are counted first: to read them all takes a second of a processor for some thousands.
            if self.chip_routes() != len(routes):
                return False
            try:
                chip = self.chip()
            except (AssertionError, KeyError):
                return False  # A moment in the middle of a change; the last look, below, is not forgiven.
            return chip.routes() == routes and not chip.unused()
        try:
            wait_for(what, holds, timeout, alive=self.alive())
        except AssertionError:
            assert self.chip().routes() == routes
            raise

    def wait_chip(self, number, timeout=120):
        wait_for(f"ASIC_DB has {number} routes", lambda: self.chip_routes() == number, timeout, 0.3, alive=self.alive())


class Chip:
    """ASIC_DB at a moment, checked: every name is in the one format that SONiC's readers know, and every object that
    is named exists."""

    def __init__(self, db):
        self.objects = defaultdict(dict)
        named = set()
        p = db.pipeline(transaction=True)
        p.eval(ALL, 0, "ASIC_STATE:*")
        p.hgetall("VIDTORID")
        p.hgetall("RIDTOVID")
        objects, self.vids, rids = p.execute()
        for key, fields in hashes(objects).items():
            _, kind, name = key.split(":", 2)
            assert kind.startswith("SAI_OBJECT_TYPE_"), key
            self.objects[kind.removeprefix("SAI_OBJECT_TYPE_")][name] = fields
            if name.startswith("{"):
                parts = json.loads(name)
                assert json.dumps(parts, separators=(",", ":")) == name and list(parts) == sorted(parts), name
                named |= {v for v in parts.values() if v.startswith("oid:")}
            else:
                named.add(name)
            named |= {v for v in fields.values() if v.startswith("oid:")}
        assert {rid: vid for vid, rid in self.vids.items()} == rids
        assert named - {"oid:0x0"} <= self.vids.keys(), sorted(named - {"oid:0x0"} - self.vids.keys())[:5]
        (self.switch,) = self.objects["SWITCH"]
        assert self.switch == "oid:0x21000000000000"
        self.members = defaultdict(list)
        for fields in self.objects["NEXT_HOP_GROUP_MEMBER"].values():
            assert fields["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID"] in self.objects["NEXT_HOP_GROUP"], fields
            self.members[fields["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID"]].append(fields)

    def hop(self, oid):
        """The address of a next hop, after a check of its objects; labels precede it as
        `push100/101@`."""
        hop = self.objects["NEXT_HOP"][oid]
        labels = ""
        if hop["SAI_NEXT_HOP_ATTR_TYPE"] == "SAI_NEXT_HOP_TYPE_MPLS":
            number, stack = hop["SAI_NEXT_HOP_ATTR_LABELSTACK"].split(":")
            assert int(number) == len(stack.split(",")), hop
            labels = hop["SAI_NEXT_HOP_ATTR_OUTSEG_TYPE"].removeprefix("SAI_OUTSEG_TYPE_").lower() + stack.replace(",", "/") + "@"
        else:
            assert hop["SAI_NEXT_HOP_ATTR_TYPE"] == "SAI_NEXT_HOP_TYPE_IP" and "SAI_NEXT_HOP_ATTR_LABELSTACK" not in hop, hop
        interface, address = hop["SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID"], hop["SAI_NEXT_HOP_ATTR_IP"]
        assert interface in self.objects["ROUTER_INTERFACE"], hop
        neighbor = json.dumps({"ip": address, "rif": interface, "switch_id": self.switch}, separators=(",", ":"))
        assert self.objects["NEIGHBOR_ENTRY"][neighbor]["SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS"] == mac(address), neighbor
        return labels + address

    def target(self, fields, entry="ROUTE_ENTRY"):
        """The forwarding of a route: addresses of its next hops, ("drop",) or ("cpu",)."""
        if fields.get(f"SAI_{entry}_ATTR_PACKET_ACTION") == "SAI_PACKET_ACTION_DROP":
            return ("drop",)
        oid = fields[f"SAI_{entry}_ATTR_NEXT_HOP_ID"]
        kind = (int(oid.removeprefix("oid:"), 16) >> 48) & 0xFF
        if kind == 5:
            group = self.objects["NEXT_HOP_GROUP"][oid]
            assert group["SAI_NEXT_HOP_GROUP_ATTR_TYPE"] == "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP", group
            return tuple(sorted(self.hop(m["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID"]) for m in self.members[oid]))
        return (self.hop(oid),) if kind == 4 else {1: ("cpu",), 6: ("interface",)}[kind]

    def routes(self, of=None):
        """Prefix → where to, of the virtual router `of`; without it, of the only one."""
        routes, targets = {}, {}
        for name, fields in self.objects["ROUTE_ENTRY"].items():
            parts = json.loads(name)
            if of not in (None, parts["vr"]):
                continue
            assert list(parts) == ["dest", "switch_id", "vr"] and "/" in parts["dest"], name
            assert int(parts["vr"].removeprefix("oid:"), 16) >> 48 & 0xFF == 3, name
            key = tuple(sorted(fields.items()))
            if key not in targets:
                targets[key] = self.target(fields)
            routes[parts["dest"]] = targets[key]
        return routes

    def routers(self):
        """Virtual routers, the default one first: the one that the switch's port 0 is in."""
        own = PORTS[0].addresses[0].split("/")[0] + "/32"
        routes = [json.loads(name) for name in self.objects["ROUTE_ENTRY"]]
        default = [route["vr"] for route in routes if route["dest"] == own]
        return sorted({route["vr"] for route in routes}, key=lambda vr: ([vr] != default, vr))

    def labels(self):
        """Label → where to, and how many labels are taken off."""
        entries = {}
        for name, fields in self.objects["INSEG_ENTRY"].items():
            parts = json.loads(name)
            assert list(parts) == ["label", "switch_id"] and parts["switch_id"] == self.switch, name
            entries[int(parts["label"])] = (self.target(fields, "INSEG_ENTRY"), fields["SAI_INSEG_ENTRY_ATTR_NUM_OF_POP"])
        return entries

    def unused(self):
        """Next-hop groups that no route and no label uses."""
        used = {f.get(f"SAI_{entry}_ATTR_NEXT_HOP_ID") for entry in ("ROUTE_ENTRY", "INSEG_ENTRY") for f in self.objects[entry].values()}
        return sorted(self.objects["NEXT_HOP_GROUP"].keys() - used)


#: Every hash whose name matches, in one answer.
ALL = """local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do out[#out + 1] = key; out[#out + 1] = redis.call('HGETALL', key) end
return out"""


def rows(db, pattern):
    return hashes(db.eval(ALL, 0, pattern))


def hashes(flat):
    return {key: dict(zip(fields[::2], fields[1::2])) for key, fields in zip(flat[::2], flat[1::2])}


def count(db, pattern):
    return db.eval("return #redis.call('KEYS', ARGV[1])", 0, pattern)


def mac(address):
    """A MAC address for a neighbour's address, in SONiC's format."""
    last = int(ipaddress.ip_address(address)) & 0xFFFFFF
    return ":".join(f"{b:02X}" for b in (2, 0, 0, *last.to_bytes(3, "big")))
