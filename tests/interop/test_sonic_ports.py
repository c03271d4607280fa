"""Links, LAGs, VLANs and sub-interfaces, with orchagent and syncd as processes. The links are those of the virtual switch: no test writes
a row about one, so whatever is noticed came by the notification of syncd, or by a read."""

import json
import subprocess
import time

import pytest
from harness import binary, settled, wait_for
from harness import sonic as sonic_module
from harness.sonic import ASIC, STATE, Port, Sonic, rows

TRANSPORTS = {
    "redis_sync": {},
    "redis_async": {"syncd": ["-z", "redis_async"], "orchagent": ["-z", "redis_async"]},
    "zmq": {"syncd": ["-z", "zmq_sync"], "orchagent": ["-z", "zmq_sync"]},
}
#: Next hops of the two ports; the lane map names the switch's ports eth1 and eth2.
FIRST, SECOND = "193.203.0.1", "10.2.0.17"
ROUTES = 40


def explain(sonic, prefix):
    command = [binary(), "explain", prefix, "--sonic", "--database-config", sonic.redis.config, "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {stage["stage"]: " ".join(stage["messages"]) for stage in said["stages"]}


def hops(sonic, prefix):
    entry = sonic.route(prefix)
    return sorted((hop["gateway"], hop["port"]) for hop in entry["hops"]) if entry else []


def port(sonic, name):
    return sonic.appl.hgetall(f"PORT_TABLE:{name}")


def ecmp(host, transport, **kw):
    sonic = Sonic(host, flags=TRANSPORTS[transport], start=("syncd", "orchagent"), **kw)
    for n in range(ROUTES):
        sonic.set("ROUTE_TABLE", f"20.0.{n}.0/24", nexthop=f"{FIRST},{SECOND}", ifname="Ethernet0,Ethernet4")
    both = [(SECOND, "eth2"), (FIRST, "eth1")]
    wait_for("the routes have both next hops", lambda: hops(sonic, f"20.0.{ROUTES - 1}.0/24") == both, 60, alive=sonic.alive())
    return sonic, both


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_link_lost_at_the_switch_leaves_the_group(host, transport):
    sonic, both = ecmp(host, transport)
    prefix = "20.0.7.0/24"

    def is_down():
        assert hops(sonic, prefix) == [(FIRST, "eth1")]
        row = port(sonic, "Ethernet4")
        assert row["oper_status"] == "down" and row["last_down_time"]
        assert f"the link of next hop {SECOND}, Ethernet4, is down" in explain(sonic, prefix)["orchagent"]

    def is_up():
        assert hops(sonic, prefix) == both
        assert port(sonic, "Ethernet4")["oper_status"] == "up"
        assert sonic.redis.db(STATE).hgetall("PORT_TABLE|Ethernet4") == {"speed": "40000", "fec": "N/A"}
    settled(is_up, 20, 0.1)
    flaps = int(port(sonic, "Ethernet4")["flap_count"])
    operations = lambda: sonic.query("counts")["operations"]
    before = operations()
    ports = sonic.query("port eth2 down")
    assert ports["eth2"] == {"admin_up": True, "link": False, "up": False} and ports["eth1"]["up"]
    settled(is_down, 20, 0.05)
    shown = subprocess.run([binary(), "show", "asic", "--syncd", f"{host.folder}/syncd.sock"], capture_output=True, text=True).stdout
    assert "No link at eth2\n" in shown, shown
    # One group, whatever the number of routes.
    assert operations() - before == 1
    sonic.query("port eth2 up")
    settled(is_up, 20, 0.05)
    assert int(port(sonic, "Ethernet4")["flap_count"]) == flaps + 2

    # No client hears it: orchagent is away, and reads it when it is back. Its supervisor starts it again.
    sonic.processes["orchagent"].kill()
    sonic.query("port eth2 down")
    time.sleep(0.5)
    sonic.start("orchagent")
    settled(is_down, 60, 0.2)
    # The other way round, and with syncd started again, whose switch comes back with all links.
    sonic.restart("syncd")
    settled(is_up, 60, 0.2)
    # The subscription is broken while the link is lost.
    sonic.redis.db(ASIC).execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    sonic.query("port eth2 down")
    settled(is_down, 30, 0.1)
    assert [process.poll() for process in sonic.alive()] == [None, None]
    recorded = (host.folder / "sairedis.rec").read_text()
    assert "|n|port_state_change|[{\"port_id\":\"oid:0x" in recorded


def test_link_that_was_never_there(host):
    """orchagent starts when a link is down already, and PORT_TABLE has an old state."""
    sonic = Sonic(host, start=("syncd",))
    sonic.appl.hset("PORT_TABLE:Ethernet4", mapping={"oper_status": "up", "flap_count": "7"})
    wait_for("syncd answers", lambda: host.folder.joinpath("syncd.sock").exists(), 20)
    sonic.query("port eth2 down")
    sonic.start("orchagent")
    sonic.set("ROUTE_TABLE", "20.0.0.0/24", nexthop=f"{FIRST},{SECOND}", ifname="Ethernet0,Ethernet4")

    def looks():
        assert hops(sonic, "20.0.0.0/24") == [(FIRST, "eth1")]
        assert {name: port(sonic, "Ethernet4")[name] for name in ("oper_status", "flap_count")} == {"oper_status": "down", "flap_count": "8"}
    settled(looks, 60, 0.2)


MORE = [Port(f"Ethernet{8 + 4 * n}", ",".join(str(33 + 4 * n + lane) for lane in range(4)), [], []) for n in range(4)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_lags_vlans_and_sub_interfaces(host, transport, monkeypatch):
    monkeypatch.setattr(sonic_module, "PORTS", sonic_module.PORTS + MORE)
    sonic = Sonic(host, flags=TRANSPORTS[transport], start=("syncd", "orchagent"))
    # eth3 and eth4 are in PortChannel1, eth5 in Vlan10; eth6 has a sub-interface.
    for name in ("Ethernet8", "Ethernet12", "Ethernet16", "Ethernet20"):
        sonic.delete("INTF_TABLE", name)
    sonic.set("INTF_TABLE", "PortChannel1", mac_addr="00:00:00:00:00:00")
    sonic.set("LAG_MEMBER_TABLE", "PortChannel1:Ethernet8", status="enabled")
    sonic.set("LAG_TABLE", "PortChannel1", admin_status="up", oper_status="up", mtu="9100", tpid="0x8100")
    sonic.set("LAG_MEMBER_TABLE", "PortChannel1:Ethernet12", status="enabled")
    sonic.set("VLAN_MEMBER_TABLE", "Vlan10:Ethernet16", tagging_mode="untagged")
    sonic.set("VLAN_TABLE", "Vlan10", admin_status="up", mtu="9100", mac="02:00:00:00:00:10")
    sonic.set("INTF_TABLE", "Vlan10")
    sonic.set("INTF_TABLE", "Ethernet20.30", vlan="30", admin_status="up")
    sonic.set("INTF_TABLE", "Po1.40", vlan="40", admin_status="up")
    through = {"PortChannel1": "10.8.0.2", "Vlan10": "10.9.0.2", "Ethernet20.30": "10.10.0.2", "Po1.40": "10.11.0.2"}
    for name, address in through.items():
        sonic.neighbor(name, address)
    sonic.set("ROUTE_TABLE", "30.0.0.0/24", nexthop=f"{FIRST},10.8.0.2", ifname="Ethernet0,PortChannel1")
    sonic.set("ROUTE_TABLE", "30.1.0.0/24", nexthop=",".join(through.values()), ifname=",".join(through))
    all_of = [("10.10.0.2", "eth6.30"), ("10.11.0.2", "eth3+eth4.40"), ("10.8.0.2", "eth3+eth4"), ("10.9.0.2", "Vlan10")]

    def forwards(prefix, wanted):
        def look():
            assert hops(sonic, prefix) == sorted(wanted)
        settled(look, 60, 0.1)
    forwards("30.0.0.0/24", [(FIRST, "eth1"), ("10.8.0.2", "eth3+eth4")])
    forwards("30.1.0.0/24", all_of)
    # ASIC_DB, checked: every object that is named exists. The switch has VLAN 1 with all ports, and a bridge port of each, itself.
    chip = sonic.chip()
    kinds = ("LAG", "LAG_MEMBER", "VLAN", "VLAN_MEMBER", "BRIDGE_PORT")
    its_own = [0, 0, 1, 6, 6]
    assert [len(chip.objects[kind]) for kind in kinds] == [sum(both) for both in zip(its_own, [1, 2, 1, 1, 1])]
    [vlan] = [name for name, fields in chip.objects["VLAN"].items() if fields.get("SAI_VLAN_ATTR_VLAN_ID") == "10"]
    [member] = [fields for fields in chip.objects["VLAN_MEMBER"].values() if fields.get("SAI_VLAN_MEMBER_ATTR_VLAN_ID") == vlan]
    assert member["SAI_VLAN_MEMBER_ATTR_VLAN_TAGGING_MODE"] == "SAI_VLAN_TAGGING_MODE_UNTAGGED"
    check = [binary(), "route-check", "--sonic", "--database-config", sonic.redis.config, "--syncd", f"{host.folder}/syncd.sock"]

    def agrees():
        said = subprocess.run(check, capture_output=True, text=True)
        assert said.returncode == 0, said.stdout + said.stderr
    settled(agrees, 60, 1)

    # A LAG is up as long as one of its members has a link: the row, which the team device would change later, is not needed.
    sonic.query("port eth3 down")
    forwards("30.0.0.0/24", [(FIRST, "eth1"), ("10.8.0.2", "eth4")])
    sonic.query("port eth4 down")
    forwards("30.0.0.0/24", [(FIRST, "eth1")])
    forwards("30.1.0.0/24", [("10.10.0.2", "eth6.30"), ("10.9.0.2", "Vlan10")])
    assert "the link of next hop 10.8.0.2, PortChannel1, is down" in explain(sonic, "30.0.0.0/24")["orchagent"]
    sonic.query("port eth3 up")
    sonic.query("port eth4 up")
    forwards("30.1.0.0/24", all_of)

    # Both start again, one after the other: nothing moves but the ids.
    sonic.restart("orchagent")
    forwards("30.1.0.0/24", all_of)
    sonic.restart("syncd")
    forwards("30.1.0.0/24", all_of)
    settled(agrees, 60, 1)

    # Rows go in the worst order.
    for key in ("LAG_TABLE:PortChannel1", "VLAN_TABLE:Vlan10", "LAG_MEMBER_TABLE:PortChannel1:Ethernet8", "LAG_MEMBER_TABLE:PortChannel1:Ethernet12",
                "VLAN_MEMBER_TABLE:Vlan10:Ethernet16", *(f"INTF_TABLE:{name}" for name in through),
                *(f"NEIGH_TABLE:{name}:{address}" for name, address in through.items()), "ROUTE_TABLE:30.0.0.0/24", "ROUTE_TABLE:30.1.0.0/24"):
        sonic.delete(*key.split(":", 1))

    def nothing_left():
        objects = sonic.chip().objects
        assert [len(objects[kind]) for kind in kinds] == its_own
        # Those of the two ports of the harness.
        assert len(objects["ROUTER_INTERFACE"]) == 2
    settled(nothing_left, 60, 0.5)


def test_rows_that_are_not_programmed_are_reported_once_and_left(host):
    sonic = Sonic(host, start=("syncd",))
    sonic.set("VNET_TABLE", "Vnet1", vxlan_tunnel="tunnel", vni="1000")
    sonic.redis.db(4).hset("ACL_TABLE|DATA", mapping={"type": "L3"})
    sonic.start("orchagent")

    def shown():
        command = [binary(), "show", "pipeline", "--sonic", "--json", "--database-config", sonic.redis.config]
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        [orchagent] = [daemon for daemon in said if daemon["daemon"] == "orchagent"]
        return {name: (table["rows"], table["example"]) for name, table in orchagent["unhandled"].items()}
    wanted = {"APPL_DB VNET_TABLE": (1, "Vnet1"), "CONFIG_DB ACL_TABLE": (1, "DATA")}

    def is_shown():
        assert shown() == wanted
    settled(is_shown, 30, 0.5)
    # While it runs, and rows of a handled table that cannot be programmed.
    sonic.set("FDB_TABLE", "Vlan10:00-11-22-33-44-55", port="Ethernet0", type="static")
    sonic.set("VNET_ROUTE_TUNNEL_TABLE", "Vnet1:40.0.0.0/24", endpoint="10.0.0.9")
    sonic.set("INTF_TABLE", "Vlan100.5", vlan="5", admin_status="up")
    sonic.set("ROUTE_TABLE", "40.1.0.0/24", nexthop=f"{FIRST},10.8.0.2", ifname="Ethernet0,Vlan100.5")
    wanted |= {"APPL_DB FDB_TABLE": (1, "Vlan10:00-11-22-33-44-55"), "APPL_DB VNET_ROUTE_TUNNEL_TABLE": (1, "Vnet1:40.0.0.0/24"),
               "APPL_DB INTF_TABLE": (1, "Vlan100.5")}
    settled(is_shown, 30, 0.5)
    log = sonic.processes["orchagent"].log()
    for table in ("VNET_TABLE", "ACL_TABLE", "FDB_TABLE", "VNET_ROUTE_TUNNEL_TABLE", "INTF_TABLE"):
        assert log.count(f'rows of a table are not programmed database={"CONFIG" if table == "ACL_TABLE" else "APPL"}_DB table={table} ') == 1, log
    # They are where they were.
    assert sonic.appl.smembers("VNET_TABLE_KEY_SET") == {"Vnet1"} and sonic.appl.exists("_VNET_TABLE:Vnet1")
    # A route by such an interface says so, and so does one of a VNET.
    assert "interface Vlan100.5 is not programmed: sub-interfaces of VLANs are not programmed" in explain(sonic, "40.1.0.0/24")["orchagent"]
    command = [binary(), "explain", "40.0.0.0/24", "--vrf", "Vnet1", "--sonic", "--database-config", sonic.redis.config]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    assert "VNET_ROUTE_TUNNEL_TABLE:Vnet1:40.0.0.0/24 is a route of a VNET" in said, said
    # Their removal ends the report.
    sonic.appl.delete("FDB_TABLE_KEY_SET", "_FDB_TABLE:Vlan10:00-11-22-33-44-55")
    sonic.set("VNET_TABLE", "Vnet2", vni="2000")

    def one_less():
        now = shown()
        assert "APPL_DB FDB_TABLE" not in now and now["APPL_DB VNET_TABLE"][0] == 2
    settled(one_less, 30, 0.5)
    assert rows(sonic.appl, "_VNET_TABLE:*").keys() == {"_VNET_TABLE:Vnet1", "_VNET_TABLE:Vnet2"}
