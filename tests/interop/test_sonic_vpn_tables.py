"""EVPN, SRv6, VNETs and PIC contexts through fpmsyncd as a process, in front of Redis: the messages of FRR's module
dplane_fpm_sonic (sonic-buildimage 086b03bd), the rows of SONiC's fpmsyncd (sonic-swss e6b0c5b5), read and not recorded."""

import ipaddress
import struct
import time

import pytest
from harness import settled, wait_for
from harness.fpm import attribute, framed, multipath_of
from harness.host import Host
from test_sonic_fpm_transcript import Fpmsyncd

LINKS = {3: "Ethernet0", 5: "Ethernet4", 19: "Vrf1", 300: "Vnet1", 31: "Brvxlan2000", 33: "Vlan100"}


@pytest.fixture
def plain(folder):
    host = Host(folder, "vpns", feeds=False)
    try:
        for index, name in LINKS.items():
            host.ip("link", "add", name, "index", index, "type", "veth", "peer", "name", f"peer{index}", "index", 1000 + index)
        yield host
    finally:
        host.close()


def address(kind, text):
    return attribute(kind, ipaddress.ip_address(text).packed)


def word(kind, value):
    return attribute(kind, struct.pack("=I", value))


def route(kind, table, prefix, attributes=b""):
    network = ipaddress.ip_network(prefix)
    family = 2 if network.version == 4 else 10
    body = struct.pack("=BBBBBBBBI", family, network.prefixlen, 0, 0, table if table < 256 else 0, 186, 0, 1, 0)
    body += attribute(1, network.network_address.packed)
    if table > 255:
        body += word(15, table)
    return framed(kind, body + attributes)


def encapsulated(kind, attributes):
    return attribute(21, struct.pack("=H", kind)) + attribute(22 | 0x8000, attributes)


def vxlan(vni, mac):
    return encapsulated(100, word(0, vni) + attribute(1, bytes.fromhex(mac)))


def local_sid(kind, sid, lengths, attributes=b""):
    body = struct.pack("=BBBBBBBBI", 10, 128, 0, 0, 0, 11, 0, 0, 0) + address(1, sid)
    body += attribute(2 | 0x8000, b"".join(attribute(n + 1, bytes([length])) for n, length in enumerate(lengths)))
    return framed(kind, body + attributes)


def named(kind, id, attributes):
    """A next-hop object or a PIC context."""
    return framed(kind, struct.pack("=BBBBI", 10, 0, 186, 0, 0) + word(1, id) + attributes)


def seg6(sid, source):
    srh = struct.pack("=i", 1) + bytes(64) + ipaddress.ip_address(source).packed + bytes([0, 2, 4, 0, 0, 0, 0, 0])
    srh += ipaddress.ip_address(sid).packed
    return attribute(7, struct.pack("=H", 5)) + attribute(8 | 0x8000, attribute(1, srh))


def members(*ids):
    return attribute(2, b"".join(struct.pack("=IBBH", id, weight - 1, 0, 0) for id, weight in ids))


def vpn(kind, prefix, context, group):
    return route(kind, 19, prefix, encapsulated(101, word(3, context) + word(4, group)))


#: (frame, table and key, fields of the row in SONiC's order; without a key the frame makes no row).
MESSAGES = [
    (route(24, 19, "1.1.1.0/24", address(5, "10.0.0.1") + word(4, 33) + vxlan(1000, "0000000000a1")), "ROUTE_TABLE:Vrf1:1.1.1.0/24",
     {"protocol": "bgp", "nexthop": "10.0.0.1", "ifname": "Vlan100", "vni_label": "1000", "router_mac": "00:00:00:00:00:a1"}),
    (route(24, 19, "1.1.2.0/24", multipath_of([(33, address(5, "10.0.0.1") + vxlan(1000, "0000000000a1")),
                                               (33, address(5, "10.0.0.2") + vxlan(1001, "0000000000a2"))])), "ROUTE_TABLE:Vrf1:1.1.2.0/24",
     {"protocol": "bgp", "nexthop": "10.0.0.1,10.0.0.2", "ifname": "Vlan100,Vlan100", "vni_label": "1000,1001",
      "router_mac": "00:00:00:00:00:a1,00:00:00:00:00:a2"}),
    (route(24, 19, "192.168.1.0/24", encapsulated(101, address(2, "fc00:0:1:1::") + address(1, "fc00:0:2:1::"))),
     "ROUTE_TABLE:Vrf1:192.168.1.0/24", {"segment": "fc00:0:2:1::", "seg_src": "fc00:0:1:1::"}),
    (b"", "SRV6_SID_LIST_TABLE:fc00:0:2:1::", {"path": "fc00:0:2:1::"}),
    (local_sid(1000, "fc00:0:1:64::", (32, 16, 16, 0), word(3, 7) + attribute(4, b"Vrf1\0")), "SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:64::",
     {"action": "end.dt6", "vrf": "Vrf1"}),
    (local_sid(1000, "fc00:0:1:e000::", (32, 16, 16, 0), word(3, 15) + address(5, "fe80::1") + attribute(12, b"Ethernet0\0")),
     "SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:e000::", {"action": "ua", "adj": "fe80::1@Ethernet0"}),
    (route(24, 300, "10.1.0.0/16", address(5, "10.0.0.1") + word(4, 3)), "VNET_ROUTE_TABLE:Vnet1:10.1.0.0/16",
     {"nexthop": "10.0.0.1", "ifname": "Ethernet0"}),
    (route(24, 300, "10.2.0.1/32", address(5, "192.168.200.200") + word(4, 31)), "VNET_ROUTE_TUNNEL_TABLE:Vnet1:10.2.0.1",
     {"endpoint": "192.168.200.200"}),
    (named(104, 10, address(6, "2064:100::1d") + word(5, 3)), None, None),
    (named(104, 11, address(6, "2064:200::1e") + word(5, 5)), None, None),
    (named(104, 20, members((10, 1), (11, 3))), "NEXTHOP_GROUP_TABLE:20",
     {"nexthop": "2064:100::1d,2064:200::1e", "ifname": "Ethernet0,Ethernet4", "weight": "1,3", "seg_src": "fc00::1,fc00::2"}),
    (named(2000, 31, address(6, "2064:100::1d") + word(5, 3) + seg6("fd00::11", "fc00::1")), None, None),
    (named(2000, 32, address(6, "2064:200::1e") + word(5, 5) + seg6("fd00::22", "fc00::2")), None, None),
    (named(2000, 30, members((31, 1), (32, 3))), "PIC_CONTEXT_TABLE:30",
     {"nexthop": "2064:100::1d,2064:200::1e", "ifname": "Ethernet0,Ethernet4", "vpn_sid": "fd00::11,fd00::22",
      "seg_src": "fc00::1,fc00::2", "weight": "1,3"}),
    (vpn(3000, "1.2.3.0/24", 30, 20), "ROUTE_TABLE:Vrf1:1.2.3.0/24",
     {"pic_context_id": "30", "nexthop_group": "20", "nexthop": "", "vpn_sid": "", "seg_src": "", "ifname": ""}),
    (vpn(3000, "1.2.4.0/24", 31, 10), "ROUTE_TABLE:Vrf1:1.2.4.0/24",
     {"nexthop": "2064:100::1d", "vpn_sid": "fd00::11", "seg_src": "fc00::1", "pic_context_id": "", "nexthop_group": "",
      "ifname": "Ethernet0"}),
]
ROWS = {key: list(fields.items()) for _, key, fields in MESSAGES if key}
ALL = b"".join(frame for frame, _, _ in MESSAGES)


def shaped(rows):
    """The fields in their order; those of a group in any."""
    return {key: sorted(row) if key.startswith("NEXTHOP_GROUP_TABLE") else row for key, row in rows.items()}


def holds(sonic, what, rows):
    wait_for(what, lambda: shaped(sonic.taken()) == shaped(rows), 20, alive=[sonic.process])


def same_values(sonic):
    """A row that is written again names every field, empty ones too."""
    def values(rows):
        return {key: {field: value for field, value in row if value not in ("", "false")} for key, row in rows.items()}
    rows, expected = values(sonic.taken()), values(ROWS)
    assert {key: row for key, row in rows.items() if row != expected.get(key)} == {}
    assert expected.keys() - rows.keys() == set()


def test_each_message_makes_its_rows(plain):
    sonic = Fpmsyncd(plain, "--quiet", "2")
    sonic.client.send(ALL)
    holds(sonic, "each row is there", ROWS)
    # Each message of a route has a reply; of SRv6 SONiC's sends none.
    frames = sonic.client.frames(7)
    assert len(frames) == 7 and all(struct.unpack("=H", frame[8:10])[0] == 24 for frame in frames)
    sonic.client.send(route(25, 300, "10.1.0.0/16") + route(25, 300, "10.2.0.1/32") + route(25, 19, "192.168.1.0/24")
                      + local_sid(1001, "fc00:0:1:64::", (32, 16, 16, 0)) + vpn(3001, "1.2.3.0/24", 30, 20) + named(2001, 30, b""))
    gone = ("VNET_", "ROUTE_TABLE:Vrf1:192", "SRV6_SID_LIST", "SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:64::", "ROUTE_TABLE:Vrf1:1.2.3", "PIC_")
    # Its route is gone that gave the group sources of outer headers; the row keeps them until the group changes.
    holds(sonic, "what is withdrawn is gone", {key: row for key, row in ROWS.items() if not key.startswith(gone)})


def test_a_restart_writes_nothing_and_deletes_what_is_stale(plain):
    sonic = Fpmsyncd(plain, "--quiet", "2")
    sonic.client.send(ALL)
    holds(sonic, "each row is there", ROWS)
    sonic.process.kill()
    sonic.client.close()
    sonic.start()
    sonic.client.send(ALL)
    assert len(sonic.client.frames(7)) == 7
    # Longer than the silence that ends the replay.
    time.sleep(4)
    assert sonic.waiting() == 0 and shaped(sonic.taken()) == shaped(ROWS)
    sonic.client.close()
    sonic.connect()
    sonic.client.send(route(24, 300, "10.1.0.0/16", address(5, "10.0.0.1") + word(4, 3)))
    kept = "VNET_ROUTE_TABLE:Vnet1:10.1.0.0/16"
    holds(sonic, "stale rows are gone", {kept: ROWS[kept]})


def test_rows_that_another_program_changed_are_repaired(plain):
    sonic = Fpmsyncd(plain, "--reconcile-interval", "1")
    sonic.client.send(ALL)
    holds(sonic, "each row is there", ROWS)
    for key in ROWS:
        if not key.startswith(("ROUTE_TABLE", "NEXTHOP_GROUP_TABLE")):
            sonic.appl.delete(key)
    sonic.appl.hset("SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:64::", mapping={"action": "end"})

    settled(lambda: same_values(sonic), 20)


def test_rows_are_written_again_when_redis_lost_them(plain):
    sonic = Fpmsyncd(plain)
    sonic.client.send(ALL)
    holds(sonic, "each row is there", ROWS)
    sonic.redis.process.kill()
    sonic.redis.start()
    sonic.appl = sonic.redis.db(0)

    settled(lambda: same_values(sonic), 20)
