"""Settings of SONiC's daemons: SONiC's command lines, CONFIG_DB and the commands that change it,
and the settings of fpmsyncd's pipeline."""

import json
import subprocess
import time

from harness import Ribtide, binary, blast, fpm, settled, wait_for
from harness.config import HEAD
from harness.sonic import CONFIG, STATE, Sonic
from test_sonic import ROUTER, check, connect_fpm, ifindex, own_routes


def settings(sonic):
    """`ribtide show pipeline --sonic`: daemon → name → setting."""
    shown = subprocess.run([binary(), "show", "pipeline", "--sonic", "--database-config", sonic.redis.config, "--json"],
                           capture_output=True, text=True, check=True)
    return {d["daemon"]: {s["name"]: s for s in d["settings"]} for d in json.loads(shown.stdout)}


def test_stock_command_lines(host):
    """The command lines of orchagent.sh and syncd_init_common.sh on different platforms: the
    daemons start, carry routes, and show why an option has no effect."""
    (host.folder / "context_config.json").write_text(json.dumps({"CONTEXTS": [{
        "guid": 0, "name": "syncd", "dbAsic": "ASIC_DB", "dbState": "STATE_DB", "zmq_enable": True,
        "zmq_endpoint": "tcp://127.0.0.1:5565", "switches": [{"index": 0, "hwinfo": ""}]}]}))
    sonic = Sonic(host, start=())
    sonic.flags["syncd"] = ["--diag", "-u", "-z", "redis_sync", "-x", "{folder}/context_config.json", "-g", "0", "-B", "PORT_STAT_COUNTER",
                            "-t", "fast", "-S", "-w", "1", "-W", "30000000", "-p", "{folder}/sai.profile", "-l", "-b", "/tmp/break_before_make_objects",
                            "-C", "-G", "-a", "--query-socket", "{folder}/syncd.sock"]
    sonic.flags["orchagent"] = ["-d", "{folder}", "-b", "1024", "-k", "1000", "-z", "zmq_sync", "-i", "0", "-f", "swss.asic0.rec", "-j", "sairedis.asic0.rec",
                                "-m", "02:00:00:00:00:01", "-t", "120", "-q", "tcp://127.0.0.1", "-v", "mgmt", "-I", "1000", "-c", "asic_db", "-M", "-r", "7",
                                "--zmq-syncd", "tcp://127.0.0.1:5565"]
    for name in ("syncd", "orchagent", "fpmsyncd"):
        sonic.start(name)
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    check(sonic, router, own)
    said = settings(sonic)
    # The context file says ZeroMQ, whatever -z says.
    assert said["syncd"]["synchronous_mode"]["active"] == "zmq_sync"
    for name in ("-i", "-v", "-c", "-M"):
        assert said["orchagent"][name]["active"] == "none" and said["orchagent"][name]["why"], name
    for name in ("-B", "-b", "-C", "-G", "-a"):
        assert said["syncd"][name]["active"] == "none" and said["syncd"][name]["why"], name
    assert [said[name]["multi-db"]["active"] for name in ("fpmsyncd", "orchagent", "syncd")] == ["disabled"] * 3
    assert said["syncd"]["-t"] == {"name": "-t", "requested": "fast", "active": "cold", "why": said["syncd"]["-t"]["why"]}
    # A watchdog of a microsecond: every request takes longer.
    wait_for("the watchdog logs", lambda: sonic.processes["syncd"].logged(" WARN syncd: the switch took long for a request", "duration_ms="))
    wait_for("orchagent tells supervisord", lambda: sonic.processes["orchagent"].log().count("<!--XSUPERVISOR:BEGIN-->heartbeat<!--XSUPERVISOR:END-->") > 1, 20)
    assert (host.folder / "swss.asic0.rec").stat().st_size and (host.folder / "sairedis.asic0.rec").stat().st_size


def test_contexts_that_are_not_ours(host):
    sonic = Sonic(host, start=())
    (host.folder / "context_config.json").write_text('{"CONTEXTS": [{"guid": 0, "dbAsic": "GB_ASIC_DB"}]}')
    for number, says in (("0", "GB_ASIC_DB"), ("1", "has no context 1")):
        done = subprocess.run(host.args(binary(), "syncd", "-x", host.folder / "context_config.json", "-g", number,
                                        "--database-config", sonic.redis.config), capture_output=True, text=True)
        assert done.returncode != 0 and says in done.stderr, done


def config(sonic, *words):
    return subprocess.run([binary(), "config", "sonic", *words, "--database-config", sonic.redis.config], capture_output=True, text=True)


def test_config_db(host):
    """SONiC's commands write CONFIG_DB, and SONiC's scripts or --config-db apply it to the
    daemons."""
    sonic = Sonic(host, start=())
    for setting, state in (("suppress-fib-pending", "enable"), ("ring_thread_enabled", "enable"), ("async_rec", "enabled"), ("next-hop-group", "enable")):
        done = config(sonic, setting, state)
        assert done.returncode == 0 and ("from now on" if setting == "suppress-fib-pending" else "restart") in done.stdout, done
    refused = config(sonic, "synchronous_mode", "disable")
    assert refused.returncode != 0 and "suppress-fib-pending wants synchronous_mode" in refused.stderr
    db = sonic.redis.db(CONFIG)
    assert db.hgetall("DEVICE_METADATA|localhost") == {"suppress-fib-pending": "enabled", "ring_thread_enabled": "true", "nexthop_group": "enabled"}
    assert db.hgetall("SYSTEM_DEFAULTS|async_rec") == {"status": "enabled"}
    db.hset("DEVICE_METADATA|localhost", "mac", "02:00:00:00:00:01")
    sonic.flags["syncd"] = ["--config-db", "-p", "{folder}/sai.profile", "--query-socket", "{folder}/syncd.sock"]
    sonic.flags["orchagent"] = ["--config-db", "-d", "{folder}"]
    for name in ("syncd", "orchagent", "fpmsyncd"):
        sonic.start(name)
    own = own_routes(sonic)
    said = settings(sonic)["orchagent"]
    active = {name: s["active"] for name, s in said.items()}
    assert active["synchronous_mode"] == "redis_sync" and active["-b"] == "1024"
    assert [active[n] for n in ("ring_thread_enabled", "async_rec", "suppress-fib-pending", "next-hop-group")] == ["enabled"] * 4
    # A group with a single next hop is a group of the chip, and its routes do not notice when it changes.
    sonic.set("NEXTHOP_GROUP_TABLE", "7", nexthop="193.203.0.5", ifname="Ethernet0")
    sonic.set("ROUTE_TABLE", "192.0.2.0/24", protocol="bgp", nexthop_group="7")
    sonic.wait_routes("it is programmed", own | {"192.0.2.0/24": ("193.203.0.5",)})
    [group] = sonic.chip().objects["NEXT_HOP_GROUP"]
    sonic.set("NEXTHOP_GROUP_TABLE", "7", nexthop="193.203.0.6", ifname="Ethernet0")
    sonic.wait_routes("it moved", own | {"192.0.2.0/24": ("193.203.0.6",)})
    assert [group] == list(sonic.chip().objects["NEXT_HOP_GROUP"])
    sonic.delete("ROUTE_TABLE", "192.0.2.0/24")
    sonic.delete("NEXTHOP_GROUP_TABLE", "7")
    sonic.wait_routes("all is gone", own)
    # Without --config-db the options count, and the difference is told.
    assert config(sonic, "suppress-fib-pending", "disable").returncode == 0
    assert config(sonic, "synchronous_mode", "disable").returncode == 0
    sonic.flags["orchagent"] = ["-s", "-d", "{folder}", "-m", "02:00:00:00:00:01"]
    sonic.restart("orchagent")
    wait_for("it says so", lambda: settings(sonic)["orchagent"]["ring_thread_enabled"]["active"] == "disabled", 20, alive=[sonic.processes["orchagent"]])
    said = settings(sonic)["orchagent"]
    assert "--config-db" in said["ring_thread_enabled"]["why"] and said["ring_thread_enabled"]["requested"] == "enabled"
    assert said["synchronous_mode"]["requested"] == "redis_async" and said["synchronous_mode"]["active"] == "redis_sync"


def test_the_pipeline_of_fpmsyncd(host):
    """Changes wait for the timer, unless they are few or the pipeline is full."""
    hour = str(3600 * 1000)
    sonic = Sonic(host, start=["fpmsyncd"], flags={"fpmsyncd": ["--pipeline", "20", "--flush-timer", hour, "--small-traffic", "3"]})
    client = connect_fpm(sonic)
    port = ifindex(host, "Ethernet0")

    def announce(first, last):
        client.send(b"".join(fpm.route(fpm.NEWROUTE, f"10.0.{n}.0/24", "193.203.0.7", port) for n in range(first, last)))

    def written():
        return sonic.appl.scard("ROUTE_TABLE_KEY_SET")

    announce(0, 2)
    wait_for("few are written at once", lambda: written() == 2, 20, alive=sonic.alive())
    announce(2, 12)
    # They would come in an hour.
    time.sleep(1)
    before = written()
    assert before < 12
    announce(12, 60)
    wait_for("the pipeline was full", lambda: written() >= 40, 20, alive=sonic.alive())
    client.close()


def test_rows_straight_to_the_stable_table(host):
    """--stable-table: no row is at a temporary key, whichever daemon restarts."""
    sonic = Sonic(host, flags={"fpmsyncd": ["--quiet", "2"]})
    own = own_routes(sonic)
    router = Ribtide(host, ROUTER)
    feed = blast(host, 3_000, 300)
    wait_for("the table is here", lambda: router.count() == 3_300, 60, alive=[router.process])
    check(sonic, router, own)
    # Rows that an fpmsyncd without it left untaken are older than those of one with it.
    sonic.processes["orchagent"].kill()
    feed.kill()
    wait_for("the table is gone", lambda: router.count() == 0, 60, alive=[router.process])
    wait_for("rows wait", lambda: sonic.in_flight() > 3_300, 20)
    sonic.processes["fpmsyncd"].kill()
    sonic.flags["fpmsyncd"].append("--stable-table")
    sonic.start("fpmsyncd")
    feed = blast(host, 4_000, 400, seed=8)
    wait_for("another table is here", lambda: router.count() == 4_400, 60, alive=[router.process])
    wait_for("it is in its place", lambda: sonic.route_count() > 4_400, 60)
    assert not sonic.appl.exists("ROUTE_TABLE_DEL_SET") and not sonic.appl.keys("_ROUTE_TABLE:*")
    sonic.start("orchagent")
    check(sonic, router, own, "rewritten")
    sonic.restart("fpmsyncd")
    sonic.restart("orchagent")
    feed.kill()
    wait_for("the table is gone again", lambda: router.count() == 0, 60, alive=[router.process])
    check(sonic, router, own, "rewritten")
    assert settings(sonic)["fpmsyncd"]["--stable-table"]["active"] == "true"


def test_warm_restart_enabled_while_nothing_is_kept(host):
    """The daemons log the conflict that their next start would report, and not before it exists."""
    flags = {"orchagent": ["-z", "zmq_async", "-q", "tcp://127.0.0.1", "--route-zmq"], "syncd": ["-z", "zmq_sync", "--asic-db", "off"],
             "fpmsyncd": ["-q", "tcp://127.0.0.1", "--appl-db", "off"]}
    sonic = Sonic(host, flags=flags)
    says = {"fpmsyncd": "--appl-db", "syncd": "--asic-db"}
    would_not = lambda: {name for name in says if sonic.processes[name].logged("the daemon would not start again")}
    time.sleep(1.5)
    assert would_not() == set()
    sonic.redis.db(STATE).hset("WARM_RESTART_ENABLE_TABLE|system", "enable", "true")
    wait_for("both say so", lambda: would_not() == says.keys(), 10, alive=sonic.alive())
    for name, option in says.items():
        [sentence] = sonic.processes[name].logged("the daemon would not start again")
        assert option in sentence and "warm restart" in sentence, sentence
        sonic.processes[name].kill()
        sonic.start(name)
        wait_for("it does not start", lambda: sonic.processes[name].poll() not in (None, 0), 10)
        assert sonic.processes[name].logged(f" ERROR {name}: ", sentence.split("reason=")[1].strip('"'))


def test_routes_sent_over_another_transport_than_orchagent_reads(host):
    """fpmsyncd refuses to start beside an orchagent with another transport, and a running one
    logs the conflict when such an orchagent starts."""
    over_zmq = {"orchagent": ["-q", "tcp://127.0.0.1", "--route-zmq"], "fpmsyncd": ["-q", "tcp://127.0.0.1"]}
    sonic = Sonic(host, start=("syncd",))
    usual = {name: list(sonic.flags[name]) for name in over_zmq}
    cases = [({"orchagent"}, "no daemon takes them; start fpmsyncd with -q and orchagent's endpoint, or"),
             ({"fpmsyncd"}, "no daemon takes them; start orchagent with -q and --route-zmq or")]
    wired = lambda which: sonic.flags.update({name: usual[name] + (over_zmq[name] if name in which else []) for name in over_zmq})
    why = lambda: settings(sonic)["fpmsyncd"]["swss_zmq"].get("why", "")
    for which, sentence in cases:
        wired(which)
        sonic.start("orchagent")
        wait_for("orchagent listens", lambda: sonic.appl.pubsub_numsub("NEXTHOP_GROUP_TABLE_CHANNEL@0")[0][1], 20)
        sonic.start("fpmsyncd")
        fpmsyncd = sonic.processes.pop("fpmsyncd")
        wait_for("fpmsyncd does not start", lambda: fpmsyncd.poll() not in (None, 0), 20)
        assert sentence in fpmsyncd.log()
        # The other way round: fpmsyncd runs, and orchagent comes.
        sonic.processes.pop("orchagent").kill()
        sonic.start("fpmsyncd")
        connect_fpm(sonic).close()
        sonic.start("orchagent")
        wait_for("fpmsyncd says it", lambda: sentence in why(), 20, alive=sonic.alive())
        log = sonic.processes["fpmsyncd"].log().splitlines()
        assert sum("no route reaches orchagent" in line and sentence in line for line in log) == 1
        # As it should be.
        sonic.processes.pop("orchagent").kill()
        wired(which ^ {"orchagent"})
        sonic.start("orchagent")
        wait_for("routes would arrive", lambda: sentence not in why(), 20, alive=sonic.alive())
        for name in over_zmq:
            sonic.processes.pop(name).kill()


def test_a_router_and_fpmsyncd_that_differ_about_suppression(host):
    """Each shows the conflict as long as it lasts, in both directions, over one session."""
    sonic = Sonic(host, start=("fpmsyncd",))
    router = Ribtide(host, HEAD + '[fib]\nsuppress-fib-pending = true\nkernel = { table = 100 }\nfpm = ["127.0.0.1:2620"]\n')

    def differ(active, replies, why, disagreement):
        def look():
            said = settings(sonic)["fpmsyncd"]["suppress-fib-pending"]
            assert said["active"] == active and why in said.get("why", "") and bool(why) == bool(said.get("why")), said
            [client] = router.show("fpm")["clients"]
            assert client.get("replies") == replies, client
            assert disagreement in client.get("disagreement", "") and bool(disagreement) == ("disagreement" in client), client
            assert client["connects"] == 1
        settled(look, 20, 0.2)

    differ("disabled", "at-once", "the router waits for the chip", "replies before the chip has a route")
    said = lambda: "the server's suppress-fib-pending is off" in router.process.log() and "enable suppress-fib-pending" in sonic.processes["fpmsyncd"].log()
    wait_for("both logs have it", said, 20, alive=[router.process, *sonic.alive()])
    assert "Warning" in router.text("show", "fpm")
    assert config(sonic, "suppress-fib-pending", "enable").returncode == 0
    differ("enabled", "in-chip", "", "")
    router.text("config", "fib", "suppress-fib-pending", "off")
    differ("enabled", "in-chip", "the router does not wait for the chip", "this router's fib.suppress-fib-pending is off")
    assert config(sonic, "suppress-fib-pending", "disable").returncode == 0
    differ("disabled", "at-once", "", "")
