"""fpmsyncd, orchagent and syncd at the FPM messages and rows that SONiC's daemons were given, recorded in
`../shared/data/sonic`: after each phase ASIC_DB has the routes, labels, groups, next hops, neighbours and router interfaces
of SONiC's, but for what docs/sonic.md names."""

import json
import socket
import threading
from collections import Counter, defaultdict

import pytest
from harness import fpm, wait_for
from harness.sonic import Port, Sonic, rows
from harness.transcript import FOLDER, recorded, recorded_host

ZMQ = {"orchagent": ["-q", "tcp://127.0.0.1", "--route-zmq", "-z", "zmq_async"], "syncd": ["-z", "zmq_sync"],
       "fpmsyncd": ["-q", "tcp://127.0.0.1"]}
#: What the other daemons wrote before the feed, in the order of SONiC's start.
TABLES = ("VRF_TABLE", "INTF_TABLE", "NEIGH_TABLE")
PORT_FIELDS = ("lanes", "alias", "index", "speed", "admin_status", "mtu")
#: The link-local address of the switch, which is in the default virtual router alone.
OWN = "fe80::ff:fe00:1/128"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is absent")


class Recorded(Sonic):
    """The three daemons with the ports, interfaces and neighbours of the recording."""

    def __init__(self, host, before, flags):
        self.before = before
        names = sorted((key.split(":")[1] for key in before if key.startswith("PORT_TABLE:Ethernet")), key=lambda name: int(name[8:]))
        ports = [Port(name, before[f"PORT_TABLE:{name}"]["lanes"], [], []) for name in names]
        flags = {name: flags.get(name, []) + more for name, more in
                 {"syncd": ["--chip", "groups=512"], "orchagent": [], "fpmsyncd": ["--as-sonic", "all"]}.items()}
        super().__init__(host, flags=flags, ports=ports)

    def everything_else(self, neighbors=True):
        for port in self.ports:
            row = self.before[f"PORT_TABLE:{port.name}"]
            self.set("PORT_TABLE", port.name, **{name: row[name] for name in PORT_FIELDS})
        self.set("PORT_TABLE", "PortConfigDone", count=str(len(self.ports)))
        self.set("PORT_TABLE", "PortInitDone", lanes="0")
        for table in TABLES:
            for key in sorted((key for key in self.before if key.startswith(f"{table}:")), key=lambda key: key.count(":")):
                self.set(table, key.split(":", 1)[1], **self.before[key])


class Content:
    """ASIC_DB by content: no object id is left. A port is its number, since both switches number them alike."""

    def __init__(self, asic):
        self.objects = defaultdict(dict)
        for key, fields in asic.items():
            if key.startswith("ASIC_STATE:"):
                _, kind, name = key.split(":", 2)
                self.objects[kind.removeprefix("SAI_OBJECT_TYPE_")][name] = fields
        routes = {name: json.loads(name) for name in self.objects["ROUTE_ENTRY"]}
        self.default = next((route["vr"] for route in routes.values() if route["dest"] == OWN), None)
        self.rifs = {oid: self.rif(fields) for oid, fields in self.objects["ROUTER_INTERFACE"].items()}
        self.hops = {oid: self.hop(fields) for oid, fields in self.objects["NEXT_HOP"].items()}
        self.members = {oid: [] for oid in self.objects["NEXT_HOP_GROUP"]}
        for fields in self.objects["NEXT_HOP_GROUP_MEMBER"].values():
            member = {name.removeprefix("SAI_NEXT_HOP_GROUP_MEMBER_ATTR_"): value for name, value in fields.items()}
            self.members[member["NEXT_HOP_GROUP_ID"]].append((self.hops[member["NEXT_HOP_ID"]], member.get("WEIGHT")))
        self.routes = {(self.vrf(route["vr"]), route["dest"]): self.target(self.objects["ROUTE_ENTRY"][name], "ROUTE_ENTRY")
                       for name, route in routes.items()}
        self.labels = {json.loads(name)["label"]: (self.target(fields, "INSEG_ENTRY"), fields["SAI_INSEG_ENTRY_ATTR_NUM_OF_POP"])
                       for name, fields in self.objects["INSEG_ENTRY"].items()}
        self.neighbors = {}
        for name, fields in self.objects["NEIGHBOR_ENTRY"].items():
            key = json.loads(name)
            self.neighbors[self.rifs[key["rif"]], key["ip"]] = fields["SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS"]

    def vrf(self, oid):
        return "" if oid == self.default else "Vrf1"

    def rif(self, fields):
        of = {name.removeprefix("SAI_ROUTER_INTERFACE_ATTR_"): value for name, value in fields.items()}
        port = int(of.get("PORT_ID", "oid:0x0").removeprefix("oid:"), 16) & 0xffff
        return (of["TYPE"].removeprefix("SAI_ROUTER_INTERFACE_TYPE_"), port, self.vrf(of["VIRTUAL_ROUTER_ID"]), of.get("SRC_MAC_ADDRESS"),
                of.get("MTU"), of.get("ADMIN_MPLS_STATE"))

    def hop(self, fields):
        of = {name.removeprefix("SAI_NEXT_HOP_ATTR_"): value for name, value in fields.items()}
        return of["TYPE"], of["IP"], self.rifs[of["ROUTER_INTERFACE_ID"]], of.get("OUTSEG_TYPE"), of.get("LABELSTACK")

    def target(self, fields, entry):
        """Where an entry goes: next hops of a group, one next hop, an interface, the CPU or nowhere."""
        if fields.get(f"SAI_{entry}_ATTR_PACKET_ACTION") == "SAI_PACKET_ACTION_DROP":
            return ("drop",)
        oid = fields[f"SAI_{entry}_ATTR_NEXT_HOP_ID"]
        if oid in self.members:
            return ("group", *sorted(self.members[oid], key=str))
        if oid in self.hops:
            return ("hop", self.hops[oid])
        return ("interface", self.rifs[oid]) if oid in self.rifs else ("cpu", int(oid.removeprefix("oid:"), 16) & 0xffff)

    def groups(self):
        """How often there is a group of these members, and how many groups there are of each."""
        return Counter(tuple(sorted(members, key=str)) for members in self.members.values())

    def everything(self):
        return {"routes": self.routes, "labels": self.labels, "groups": self.groups(), "next hops": Counter(self.hops.values()),
                "neighbours": self.neighbors, "router interfaces": Counter(self.rifs.values())}


def of_sonic(content, gone, ours):
    """SONiC's ASIC_DB as ours should be, and the names of the differences that docs/sonic.md allows. `gone`: the neighbours, as
    number of the port and address, whose rows were deleted."""
    theirs, reasons = content.everything(), set()
    is_gone = lambda hop: (hop[2][1], hop[1]) in gone

    def remaining(members):
        if any(is_gone(hop) for hop, _ in members):
            reasons.add("neighbour deleted")
        return tuple(member for member in members if not is_gone(member[0]))

    def target(of):
        return ("group", *remaining(of[1:])) if of[0] == "group" else of

    theirs["routes"] = {key: target(of) for key, of in theirs["routes"].items()}
    theirs["labels"] = {label: (target(of), pop) for label, (of, pop) in theirs["labels"].items()}
    theirs["groups"] = Counter()
    for members, count in content.groups().items():
        theirs["groups"][remaining(members)] += count
    targets = [*theirs["routes"].values(), *(of for of, _ in theirs["labels"].values())]
    used = {hop for members in theirs["groups"] for hop, _ in members} | {of[1] for of in targets if of[0] == "hop"}
    for hop in theirs["next hops"].keys() - used - ours["next hops"].keys():
        if is_gone(hop):
            theirs["next hops"].pop(hop)
            if hop[0] == "SAI_NEXT_HOP_TYPE_IP":
                theirs["neighbours"].pop((hop[2], hop[1]))
        elif hop[0] == "SAI_NEXT_HOP_TYPE_MPLS":
            theirs["next hops"].pop(hop)
            reasons.add("unused MPLS next hop")
    for rif in [rif for rif in theirs["router interfaces"] if rif[0] == "LOOPBACK"]:
        theirs["router interfaces"].pop(rif)
        reasons.add("loopback router interface")
    return theirs, reasons


def differences(ours, theirs):
    """What differs, as text: a few of each kind."""
    lines = []
    for kind in theirs:
        keys = [key for key in ours[kind].keys() | theirs[kind].keys() if ours[kind].get(key) != theirs[kind].get(key)]
        lines += [f"{kind}: {len(keys)} differ"] if keys else []
        lines += [f"  {key}: {ours[kind].get(key)}, SONiC's {theirs[kind].get(key)}" for key in sorted(keys, key=str)[:3]]
    return "\n".join(lines)


@pytest.mark.parametrize("flags", [{}, ZMQ], ids=["redis", "zmq"])
def test_asic_db_is_sonics_after_each_phase(folder, flags):
    phases, frames, gone, reasons = recorded("per-phase-raw"), dict(recorded("feed-frames-hex")), {}, defaultdict(list)
    with recorded_host(folder) as host:
        sonic = Recorded(host, phases[0]["APPL_DB"], flags)
        client = wait_for("fpmsyncd takes a session", lambda: fpm.Client(host), 30, alive=sonic.alive())
        # Replies without a reader would stop fpmsyncd.
        reader = threading.Thread(target=read_all, args=(client.socket,), daemon=True)
        reader.start()
        before = phases[0]["APPL_DB"]
        for phase in phases:
            name, rows_now = phase["phase"], phase["APPL_DB"]
            if name in frames:
                client.send(b"".join(bytes.fromhex(frame) for frame in frames[name]))
            elif name in ("port-DOWN", "port-UP"):
                # The first port of the lane map, Ethernet0.
                sonic.query(f"port eth1 {name.removeprefix('port-').lower()}")
            for key in [key for key in before if key.startswith("NEIGH_TABLE:") and key not in rows_now]:
                sonic.delete("NEIGH_TABLE", key.split(":", 1)[1])
                _, interface, ip = key.split(":", 2)
                # Port 2 is Ethernet0, and a port has four lanes.
                gone[key] = (int(interface[8:]) // 4 + 2, ip)
            for key in [key for key in rows_now if key.startswith("NEIGH_TABLE:") and key not in before]:
                sonic.set("NEIGH_TABLE", key.split(":", 1)[1], **rows_now[key])
                gone.pop(key)
            before = rows_now
            recorded_asic, latest = Content(phase["ASIC_DB"]), []

            def equal(recorded_asic=recorded_asic, latest=latest):
                ours = Content(rows(sonic.asic, "ASIC_STATE:*")).everything()
                latest[:] = [ours, *of_sonic(recorded_asic, set(gone.values()), ours)]
                return ours == latest[1]
            try:
                wait_for(f"ASIC_DB of {name}", equal, 30, 0.2, alive=sonic.alive())
            except AssertionError:
                raise AssertionError(f"after {name}:\n{differences(*latest[:2])}") from None
            for reason in latest[2]:
                reasons[reason].append(name)
        client.socket.shutdown(socket.SHUT_RDWR)
        reader.join(10)
    names = [phase["phase"] for phase in phases]
    # SONiC's keeps a swap to which and from which a label changed; the neighbour that goes is that of the swap.
    assert reasons == {"neighbour deleted": ["neigh-gone"], "loopback router interface": names,
                       "unused MPLS next hop": [name for name in names[names.index("change"):] if name != "neigh-gone"]}, reasons


def read_all(connection):
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass
