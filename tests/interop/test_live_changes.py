"""Settings of the whole router change by reload: sessions that are not concerned last, and routes stay in the kernel."""

import json
import pathlib
import re
import socket
import subprocess

import pytest

from harness import Bird, Host, Pair, Ribtide, binary, wait_for
from harness.speaker import ROUTE_REFRESH, Speaker, attribute, block, prefixes, raw_update

FIRST, SECOND = Host.FEEDS
THIRD = "198.19.0.9"
RTR = 8282


def config(router="", bgp="", tables="", fib="kernel = { table = 254 }\n", link=""):
    return f"""
[router]
asn = 65001
router-id = "{Pair.A4}"
{router}
[bgp]
listen = ["[::]:179"]
{bgp}
[bgp.group.feeds]
type = "external"
passive = true
import = ["accept"]
export = ["reject"]
neighbor = [
    {{ address = "{FIRST}", peer-asn = 65010 }},
    {{ address = "{SECOND}", peer-asn = 65011 }},
]
[bgp.group.link]
type = "internal"
peer-asn = 65001
connect-retry = 1
families = ["ipv4-unicast"]
{link}
neighbors = ["{Pair.B4}"]
[fib]
{fib}
{tables}
"""


BIRD = f"""
router id {Pair.B4};
log stderr all;
protocol device {{}}
protocol bgp up {{
    local {Pair.B4} as 65001;
    neighbor {Pair.A4} as 65001;
    connect retry time 1; error wait time 1,2; connect delay time 1;
    ipv4 {{ import all; export none; gateway recursive; }};
}}
"""


class Bench:
    """A router with two feeds, BIRD as an internal neighbour, and routes in the kernel."""

    def __init__(self, pair, **parts):
        self.host, self.more = pair.a, ""
        self.router = Ribtide(pair.a, config(**parts))
        self.bird = Bird(pair.b, BIRD)
        self.feeds = [Speaker(pair.a, FIRST, 65010), Speaker(pair.a, SECOND, 65011)]
        wait_for("the session is established", lambda: self.router.established(Pair.B4), 60, alive=[self.router.process])

    def announce(self, feed, texts, path, *more):
        source = (FIRST, SECOND)[feed]
        self.feeds[feed].send(raw_update(b"", block(path, source, *more), prefixes(texts)))

    def reload(self, socket=None, **parts):
        """Reloads; returns what the answer says."""
        self.router.config.write_text(config(**parts) + f'\n[api]\nsocket = "{socket or self.router.socket}"\n{self.more}')
        answer = self.router.text("reload")
        if socket:
            self.router.socket = socket
        return answer

    def refused(self, **parts):
        before = self.router.config.read_text()
        self.router.config.write_text(config(**parts) + f'\n[api]\nsocket = "{self.router.socket}"\n{self.more}')
        done = subprocess.run([binary(), "reload", "--socket", self.router.socket], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        self.router.config.write_text(before)
        return done.stderr

    def kernel(self, prefix=None):
        """The kernel's routes of BGP; the gateways of one."""
        if prefix:
            return self.host.gateways(prefix)
        return {route["dst"] for route in json.loads(self.host.ip("-j", "route", "show", "proto", "bgp") or "[]")}

    def last(self, *addresses):
        """These sessions have lasted since the start."""
        for address in addresses or (FIRST, SECOND, Pair.B4):
            assert self.router.neighbor(address)["flaps"] == 0, address


def best(router):
    return {entry["prefix"]: entry["paths"][0]["neighbor"] for entry in router.show("route")}


def test_options_of_the_decision_process(pair):
    """Another rule selects other best paths, multipath gives the kernel more next hops, and nothing of a session changes."""
    bench = Bench(pair)
    med = lambda n: attribute(0x80, 4, n.to_bytes(4, "big"))  # noqa: E731
    bench.announce(0, ["20.1.0.0/16", "20.3.0.0/16"], [65010, 7], med(50))
    bench.announce(1, ["20.1.0.0/16", "20.2.0.0/16"], [65011, 7], med(10))
    wait_for("the kernel has all", lambda: len(bench.kernel()) == 3, alive=[bench.router.process])
    wait_for("BIRD has all", lambda: len(bench.bird.table()) == 3)
    first = best(bench.router)["20.1.0.0/16"]
    assert first == FIRST
    answer = bench.reload(bgp="always-compare-med = true")
    assert "settings: bgp.always-compare-med" in answer
    wait_for("the lower MED wins", lambda: best(bench.router)["20.1.0.0/16"] == SECOND)
    wait_for("in the kernel", lambda: bench.kernel("20.1.0.0/16") == {SECOND})
    wait_for("at BIRD", lambda: bench.bird.table()["20.1.0.0/16"].next_hop == SECOND)
    bench.reload(bgp="multipath = 4\nmultipath-relax = true")
    wait_for("two next hops", lambda: bench.kernel("20.1.0.0/16") == {FIRST, SECOND})
    bench.reload(bgp="backup-path = true")
    wait_for("one, and a backup", lambda: bench.kernel("20.1.0.0/16") == {FIRST})
    route = bench.router.show("route", "20.1.0.0/16")[0]
    assert [p.get("forwarding") for p in route["paths"]] == [None, "backup"]
    bench.reload()
    wait_for("no backup", lambda: [p.get("forwarding") for p in bench.router.show("route", "20.1.0.0/16")[0]["paths"]] == [None, None])
    assert len(bench.kernel()) == 3
    assert "nothing has changed" in bench.reload()
    bench.last()


def test_resolution_of_next_hops(pair):
    """max-ecmp and resolve-via-default act on the present routes."""
    bench = Bench(pair, bgp="multipath = 4\nmultipath-relax = true")
    bench.announce(0, ["20.1.0.0/16"], [65010, 7])
    bench.announce(1, ["20.1.0.0/16"], [65011, 7])
    wait_for("two next hops", lambda: bench.kernel("20.1.0.0/16") == {FIRST, SECOND}, alive=[bench.router.process])
    parts = dict(bgp="multipath = 4\nmultipath-relax = true", fib="kernel = { table = 254 }\nmax-ecmp = 1\n")
    bench.reload(**parts)
    wait_for("one is left", lambda: len(bench.kernel("20.1.0.0/16")) == 1)
    static = f'[[static]]\nprefix = "0.0.0.0/0"\nnext-hop = ["{FIRST}"]\n[[static]]\nprefix = "30.0.0.0/8"\nnext-hop = ["9.9.9.9"]\n'
    bench.reload(tables=static)
    wait_for("it resolves through the default route", lambda: "30.0.0.0/8" in bench.host.ip("route", "show"))
    bench.reload(tables=static, fib="kernel = { table = 254 }\nresolve-via-default = false\n")
    wait_for("it does not any more", lambda: "30.0.0.0/8" not in bench.host.ip("route", "show"))
    assert "20.1.0.0/16" in bench.kernel()
    bench.last()


def test_listening_addresses(pair):
    """Another port takes connections, and the former one does not; sessions last, also where a change is refused."""
    bench = Bench(pair)
    bench.announce(0, ["20.1.0.0/16"], [65010])
    wait_for("the route", lambda: bench.kernel(), alive=[bench.router.process])
    text = bench.router.config.read_text()
    bench.router.config.write_text(text.replace('listen = ["[::]:179"]', 'listen = ["0.0.0.0:1179"]'))
    assert "settings: bgp.listen" in bench.router.text("reload")
    def listens(port):
        return f":{port} " in bench.host.run("ss", "-ltn")
    assert listens(1179) and not listens(179)
    bench.router.config.write_text(text.replace('listen = ["[::]:179"]', 'listen = ["192.0.2.99:179"]'))
    done = subprocess.run([binary(), "reload", "--socket", bench.router.socket], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "set bgp.listen to an address of this machine" in done.stderr
    assert listens(1179)
    bench.router.config.write_text(text)
    bench.router.text("reload")
    assert listens(179) and not listens(1179)
    bench.last()
    assert bench.kernel() == {"20.1.0.0/16"}
    # A new session is taken where it listens now.
    bench.feeds[1].close()
    wait_for("the loss", lambda: not bench.router.established(SECOND))
    bench.feeds[1] = Speaker(bench.host, SECOND, 65011)
    bench.last(FIRST, Pair.B4)


def test_api(pair):
    """Socket, mode and HTTP address change; the answer to the reload comes over the former socket."""
    bench = Bench(pair)
    folder = bench.router.socket.parent
    former, other = bench.router.socket, folder / "other.sock"
    bench.reload(socket=other)
    assert other.exists() and not former.exists()
    bench.last()
    bench.more = 'socket-mode = "0600"\nhttp = "127.0.0.1:8080"\n'
    bench.reload()
    assert other.stat().st_mode & 0o777 == 0o600
    assert "127.0.0.1:8080" in bench.host.run("ss", "-ltn")
    bench.more = 'http = "127.0.0.2:8080"\n'
    bench.reload()
    assert "127.0.0.2:8080" in bench.host.run("ss", "-ltn") and "127.0.0.1:8080" not in bench.host.run("ss", "-ltn")
    bench.more = 'http = "0.0.0.0:8080"\n'
    assert "is not a loopback address" in bench.refused()
    with bench.host.inside():
        taken = socket.create_server(("127.0.0.3", 8080))
    with taken:
        bench.more = 'http = "127.0.0.3:8080"\n'
        assert "set api.http to a free address" in bench.refused()
    assert "127.0.0.2:8080" in bench.host.run("ss", "-ltn")
    bench.more = ""
    bench.reload()
    assert ":8080" not in bench.host.run("ss", "-ltn")
    bench.last()


def test_cluster_id_changes_in_present_sessions(pair):
    """Internal peers get reflected routes with the new id, and a route with it is a loop. BIRD's session lasts."""
    bench = Bench(pair, link="route-reflector-client = true")
    # A client whose routes go on to BIRD; the router may send it ROUTE-REFRESH.
    client = '[bgp.group.clients]\ntype = "internal"\npeer-asn = 65001\nroute-reflector-client = true\npassive = true\n' \
        f'import = ["accept"]\nexport = ["reject"]\nneighbors = ["{THIRD}"]\n'
    bench.host.feeds.address("feed0", f"{THIRD}/24")
    bench.reload(link="route-reflector-client = true", tables=client)
    speaker = Speaker(bench.host, THIRD, 65001, refresh=True)
    own = lambda cluster: attribute(0x80, 9, bytes([10, 1, 1, 1])) + attribute(0x80, 10, bytes(cluster))  # noqa: E731
    local_pref = attribute(0x40, 5, (100).to_bytes(4, "big"))
    head = attribute(0x40, 1, b"\0") + attribute(0x40, 2, b"") + attribute(0x40, 3, bytes(map(int, THIRD.split("."))))
    announced = raw_update(b"", head + local_pref + own([10, 8, 8, 8]), prefixes(["20.1.0.0/16"])) \
        + raw_update(b"", head + local_pref + own([10, 9, 9, 9]), prefixes(["20.2.0.0/16"]))
    speaker.send(announced)
    wait_for("both routes", lambda: set(bench.bird.table()) == {"20.1.0.0/16", "20.2.0.0/16"}, alive=[bench.router.process])
    assert Pair.A4 in bench.bird.query("show route 20.1.0.0/16 all").split("cluster_list:")[1].splitlines()[0]
    answer = bench.reload(bgp='cluster-id = "10.9.9.9"', link="route-reflector-client = true", tables=client)
    assert "reset" not in answer and "settings: bgp.cluster-id" in answer
    wait_for("the new id is sent", lambda: "10.9.9.9" in bench.bird.query("show route 20.1.0.0/16 all"))
    # The client's routes are asked for, and sent again.
    while speaker.read()[0] != ROUTE_REFRESH:
        pass
    speaker.send(announced)
    wait_for("the loop is refused", lambda: set(bench.bird.table()) == {"20.1.0.0/16"})
    bench.last(FIRST, SECOND, THIRD, Pair.B4)


def test_next_hop_self_and_settings_of_connections(pair):
    """They change for a session that lasts: what is sent has another next hop, and the session of BIRD is none of them new."""
    bench = Bench(pair)
    bench.announce(0, ["20.1.0.0/16"], [65010])
    wait_for("the route", lambda: bench.bird.table(), alive=[bench.router.process])
    assert bench.bird.table()["20.1.0.0/16"].next_hop == FIRST
    assert "reset" not in bench.reload(link="next-hop-self = true\npassive = true\nport = 1790")
    wait_for("our own next hop", lambda: bench.bird.table()["20.1.0.0/16"].next_hop == Pair.A4)
    bench.reload()
    wait_for("the former one", lambda: bench.bird.table()["20.1.0.0/16"].next_hop == FIRST)
    bench.last()
    # The next connection obeys them: the other side opens it.
    bench.reload(link="passive = true")
    bench.router.text("clear", "bgp", "neighbor", Pair.B4)
    wait_for("a session that BIRD began", lambda: bench.router.established(Pair.B4), 60)
    bench.last(FIRST, SECOND)


@pytest.mark.parametrize("first", ["", 'shards = "off"\nupdate-threads = "off"'])
def test_threads_go_off_and_come_again(pair, first):
    """Readers, shards and update threads move to the session thread and back while routes flow; sessions last."""
    bench = Bench(pair, bgp=first)
    bench.announce(0, ["20.1.0.0/16"], [65010])
    wait_for("the route", lambda: bench.bird.table(), alive=[bench.router.process])
    def threads():
        # The last one moves sessions off a former update thread, for as long as these last.
        names = {t["name"] for t in bench.router.show("threads")["threads"]} - {"egress-drain"}
        return {name for name in names if name.split("-")[0] in ("reader", "shard", "egress")}

    def others():
        # Writers come with update threads, threads for queries with queries; one that awaits the initial routes ends.
        moving = {"reader", "shard", "egress", "writer", "api", "bgp"}
        return sorted(t["name"] for t in bench.router.show("threads")["threads"] if t["name"].split("-")[0] not in moving)
    steady = others()
    # It has its sockets and timers, and its queries, without a session too.
    assert steady.count("bfd") == 1
    number = 0
    for shards, workers in [('"off"', "2"), ("3", "2"), ("2", '"off"'), ('"off"', '"off"'), ("1", "1"), ('"off"', '"off"'), ("2", "2")]:
        bench.reload(bgp=f"shards = {shards}\nupdate-threads = {workers}")
        expected = {f"shard-{n}" for n in range(0 if shards == '"off"' else int(shards))}
        expected |= {f"egress-{n}" for n in range(0 if workers == '"off"' else int(workers))}
        # A session stays with its update thread, which so may be one more than is asked for.
        kept = {"egress-0", "egress-1"} if workers != '"off"' else set()
        wait_for("the threads", lambda: expected <= {t for t in threads() if not t.startswith("reader")} <= expected | kept)
        assert any(t.startswith("reader") for t in threads()) == (shards != '"off"')
        assert others() == steady
        number += 1
        more = [f"21.{number}.{n}.0/24" for n in range(50)]
        bench.announce(number % 2, more, [(65010, 65011)[number % 2]])
        wait_for("more routes at BIRD", lambda: set(more) <= set(bench.bird.table()), alive=[bench.router.process])
        wait_for("in the kernel", lambda: set(more) <= bench.kernel())
    for n in range(1, number + 1):
        bench.feeds[n % 2].send(raw_update(withdrawn=prefixes([f"21.{n}.{i}.0/24" for i in range(50)])))
    wait_for("they go again", lambda: set(bench.bird.table()) == {"20.1.0.0/16"} == bench.kernel())
    bench.last()
    assert "shard threads" in bench.router.text("config", "bgp", "shards", "off")
    assert "egress-0" in threads() and "shard-0" not in threads()
    bench.last()


def test_rpki_comes_and_goes(pair):
    """[rpki] as a whole; without it nothing is validated."""
    bench = Bench(pair)
    bench.announce(0, ["20.1.0.0/16"], [65010])
    wait_for("the route", lambda: bench.kernel(), alive=[bench.router.process])
    slurm = bench.host.folder / "slurm.json"
    slurm.write_text(json.dumps({
        "slurmVersion": 1, "validationOutputFilters": {"prefixFilters": [], "bgpsecFilters": []},
        "locallyAddedAssertions": {"prefixAssertions": [{"asn": 1, "prefix": "20.0.0.0/8"}], "bgpsecAssertions": []}}))
    assert "settings: rpki" in bench.reload(tables='[rpki]\nslurm = "slurm.json"\n')
    validation = lambda: bench.router.show("route", "20.1.0.0/16")[0]["paths"][0].get("validation")  # noqa: E731
    wait_for("it is validated", lambda: validation() == "invalid")
    bench.reload()
    assert validation() is None
    assert "rpki" not in bench.router.text("show", "threads")
    bench.reload(tables='[rpki]\nslurm = "slurm.json"\n')
    wait_for("it is validated again", lambda: validation() == "invalid")
    bench.last()
    assert bench.kernel() == {"20.1.0.0/16"}


def test_what_takes_a_restart_is_named(pair):
    bench = Bench(pair)
    sentence = bench.refused(bgp="multipath = 2", tables='[process]\nseccomp = false\n')
    assert "nothing is reloaded, because process.seccomp to a weaker filter cannot change while the router runs" in sentence
    assert "nothing has changed" in bench.router.text("reload")
    bench.reload(router="stall-timeout = 5\nstall-exit = 60")
    bench.last()


def test_the_filter_of_system_calls_gets_stricter(pair):
    """Every thread has it, those that begin later too, and the router goes on."""
    bench = Bench(pair, tables="[process]\nseccomp = false\n")
    pid = bench.router.process.popen.pid
    def filters():
        tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
        return {int(re.search(r"^Seccomp:\t(\d)", (task / "status").read_text(), re.MULTILINE)[1]) for task in tasks}
    assert filters() == {0}
    assert "settings: process.seccomp" in bench.reload(tables="[process]\nseccomp = true\n")
    assert filters() == {2}
    bench.reload(bgp="shards = 3\nupdate-threads = 3", tables="[process]\nseccomp = true\n")
    assert filters() == {2}
    bench.announce(0, ["20.1.0.0/16"], [65010])
    wait_for("a route", lambda: bench.bird.table() and bench.kernel(), alive=[bench.router.process])
    assert "process.seccomp to a weaker filter" in bench.refused(tables='[process]\nseccomp = "log"\n')
    bench.last()
