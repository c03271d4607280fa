"""The state after a stop, in the kernel and at an FPM server, and `ribtide flush`."""

import json
import subprocess

import pytest

from harness import Ribtide, binary, wait_for
from harness.fpm import PORT
from harness.sonic import Sonic

PROTOCOL = 114
RED = 1000

KERNEL = f"""
[router]
asn = 65001
router-id = "10.0.255.254"

[bgp]
listen = ["127.0.0.1:179"]

[fib]
kernel = {{{{ protocol = {PROTOCOL} }}}}
on-stop = "{{}}"

[[static]]
prefix = "198.51.100.0/24"
next-hop = ["193.203.0.7", "193.203.0.8"]

[[static]]
prefix = "203.0.113.0/24"
blackhole = true

[[static]]
prefix = "2001:db8:77::/48"
next-hop = ["fd00:193::7"]

[vrf.red]
table = {RED}
interfaces = ["lan1"]

[[vrf.red.static]]
prefix = "192.0.2.0/24"
next-hop = ["10.2.0.17"]
"""

#: Table → what is installed there.
WANTED = {"main": {"198.51.100.0/24", "203.0.113.0/24", "2001:db8:77::/48"}, str(RED): {"192.0.2.0/24"}}
#: Of another program: in the same table and with an object, of another number.
FOREIGN = "198.51.101.0/24"


@pytest.fixture
def lan(host):
    host.lan("lan0", "193.203.0.250/24", "fd00:193::ff/64")
    host.lan("lan1", "10.2.0.1/24")
    host.ip("nexthop", "add", "id", "7", "via", "193.203.0.9", "dev", "lan0", "proto", "static")
    host.ip("route", "add", FOREIGN, "nhid", "7", "proto", "static")
    return host


def installed(host):
    """The prefixes with ribtide's number in each table of the kernel."""
    found = {}
    for table in WANTED:
        found[table] = set()
        for family in ("-4", "-6"):
            shown = subprocess.run(host.args("ip", "-j", family, "route", "show", "table", table, "proto", str(PROTOCOL)),
                                   capture_output=True, text=True)
            # A table without routes does not exist, which `ip` says in the middle of its list.
            found[table] |= {r["dst"] for r in json.loads(shown.stdout)} if shown.returncode == 0 else set()
    return found


def objects(host):
    """The next-hop objects with ribtide's number."""
    return [n for n in json.loads(host.ip("-j", "-d", "nexthop", "show")) if n.get("protocol") == str(PROTOCOL)]


def start(host, on_stop):
    router = Ribtide(host, KERNEL.format(on_stop))
    wait_for("everything is installed", lambda: installed(host) == WANTED, 20, alive=[router.process])
    return router


def foreign_stays(host):
    return len(json.loads(host.ip("-j", "route", "show", FOREIGN, "proto", "static"))) == 1


def flush(router, *args, check=True):
    return subprocess.run(router.host.args(binary(), "flush", *args), capture_output=True, text=True, check=check, timeout=60)


def test_stop_removes_installed_routes_and_reports_their_number(lan):
    router = start(lan, "remove")
    count = len(objects(lan))
    assert router.stop() == 0
    assert (installed(lan), objects(lan)) == ({table: set() for table in WANTED}, [])
    assert foreign_stays(lan)
    assert f"4 routes of 2 tables and {count} next-hop objects of protocol 114 removed" in router.process.log()


def test_stop_keeps_by_default_and_a_reload_changes_it(lan):
    router = start(lan, "keep")
    assert router.stop() == 0
    assert installed(lan) == WANTED and objects(lan)
    router.start()
    wait_for("it runs", lambda: installed(lan) == WANTED)
    router.config.write_text(router.config.read_text().replace('"keep"', '"remove"'))
    router.text("reload")
    assert router.stop() == 0
    assert (installed(lan), objects(lan)) == ({table: set() for table in WANTED}, [])


def test_flush_removes_what_a_crash_left_and_nothing_else(lan):
    router = start(lan, "remove")
    refused = flush(router, "-c", router.config, check=False)
    assert refused.returncode == 1 and "a router is running" in refused.stderr
    dry = json.loads(flush(router, "-c", router.config, "--dry-run", "--json").stdout)
    assert installed(lan) == WANTED and objects(lan), "a dry run removes nothing"
    router.process.kill()
    assert installed(lan) == WANTED
    groups = sum("group" in n for n in objects(lan))
    singles = len(objects(lan)) - groups
    done = json.loads(flush(router, "-c", router.config, "--json").stdout)
    assert done == dry | {"dry_run": False}
    assert done["tables"] == [
        {"table": 254, "vrf": "default", "ipv4_routes": 2, "ipv6_routes": 1},
        {"table": RED, "vrf": "red", "ipv4_routes": 1, "ipv6_routes": 0}]
    assert (done["next_hop_groups"], done["next_hops"], done["in_use"], done["left"]) == (groups, singles, 0, 0)
    assert (installed(lan), objects(lan)) == ({table: set() for table in WANTED}, [])
    assert foreign_stays(lan)
    text = flush(router, "-c", router.config).stdout
    assert "0 routes of 2 tables and 0 next-hop objects" in text


def test_flush_of_one_table_keeps_the_objects_of_others(lan):
    router = start(lan, "keep")
    router.stop()
    # Four groups and five next hops are used by routes; what the router had of connected ones, by none.
    count = len(objects(lan))
    done = json.loads(flush(router, "--protocol", PROTOCOL, "--table", RED, "--json", "--socket", router.socket).stdout)
    assert installed(lan) == {"main": WANTED["main"], str(RED): set()}
    assert (done["next_hop_groups"] + done["next_hops"], done["in_use"]) == (count - 7, 7)
    assert len(objects(lan)) == 7
    # With force, beside a router that runs: it puts back what it misses.
    router.start()
    wait_for("it runs", lambda: installed(lan) == WANTED, 20, alive=[router.process])
    flush(router, "-c", router.config, "--force")
    wait_for("it is all there again", lambda: installed(lan) == WANTED, 20, alive=[router.process])


def test_flush_without_the_privilege_reports_it(lan):
    router = start(lan, "keep")
    router.stop()
    done = subprocess.run(lan.args("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-all", binary(), "flush", "-c",
                                   router.config), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "CAP_NET_ADMIN" in done.stderr, done
    assert installed(lan) == WANTED


FPM = f"""
[router]
asn = 65001
router-id = "10.0.255.254"

[bgp]
listen = ["127.0.0.1:179"]

[fib]
fpm = ["127.0.0.1:{PORT}"]
fpm-next-hop-groups = true
on-stop = "{{}}"

[[interface]]
name = "Ethernet0"
addresses = ["193.203.0.250/24"]

[[static]]
prefix = "192.0.2.0/24"
next-hop = ["193.203.0.7"]

[[static]]
prefix = "198.51.100.0/24"
next-hop = ["193.203.0.7", "193.203.0.8"]
"""
ROWS = {"192.0.2.0/24", "198.51.100.0/24"}


@pytest.mark.parametrize("on_stop", ["keep", "remove"])
def test_stop_and_an_fpm_server(host, on_stop):
    sonic = Sonic(host)
    router = Ribtide(host, FPM.format(on_stop))

    def rows():
        return ROWS & set(sonic.routes())

    wait_for("the rows are there", lambda: rows() == ROWS, 60, alive=[router.process])
    assert router.stop() == 0
    if on_stop == "keep":
        assert rows() == ROWS
        assert "deleted" not in router.process.log()
    else:
        wait_for("the rows are gone", lambda: rows() == set(), 60, alive=sonic.alive())
        wait_for("the group's too", lambda: not sonic.appl.keys("NEXTHOP_GROUP_TABLE:*"), 60, alive=sonic.alive())
        # Those of the port's subnet too.
        assert router.process.logged(" INFO fpm: the routes are deleted from the FPM server", "routes=4")
