"""Each setting of the rows' way, by what Redis was asked to do under load: INFO commandstats and the
daemons' own counts, not rates. And the age of rows in write-behind."""

import json
import signal
import socket
import subprocess
import threading
import time

import pytest
from harness import TIMEOUT_FACTOR, binary, fpm, wait_for, zmq
from harness.sonic import PORTS, Sonic
from test_sonic import connect_fpm, ifindex, own_routes
from test_sonic_queues import prefix, read

ROWS = 20_000
#: A feed of so many routes in a second, in pieces.
STEADY, PIECE = 10_000, 100
ZMQ = {"orchagent": ["-q", "tcp://127.0.0.1", "--route-zmq", "-z", "zmq_async", "-r", "0"],
       "syncd": ["-z", "zmq_sync", "-R"], "fpmsyncd": ["-q", "tcp://127.0.0.1"]}
#: Routes of the switch itself.
OWN = 4 + sum(len(port.addresses) for port in PORTS)
AGE = "age of the oldest row of "


def calls(sonic, *names):
    """How often Redis has executed each command since its start."""
    stats = sonic.redis.db(0).info("commandstats")
    return [stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names]


def frames(port, first, last, gateway="193.203.0.7"):
    return b"".join(fpm.route(fpm.NEWROUTE, prefix(n), gateway, port) for n in range(first, last))


def queues(sonic):
    """Each queue of each daemon."""
    shown = subprocess.run([binary(), "show", "pipeline", "--sonic", "--database-config", sonic.redis.config, "--json"],
                           capture_output=True, text=True, check=True).stdout
    return {(daemon["daemon"], queue["name"]): queue for daemon in json.loads(shown) for queue in daemon["queues"]}


def ages(sonic):
    """Daemon and table: the gauge of its oldest row."""
    return {(daemon, name.removeprefix(AGE).removesuffix(", in ms")): queue
            for (daemon, name), queue in queues(sonic).items() if name.startswith(AGE)}


def written(host, flags, feed):
    """Calls of the script that writes rows, publications and seconds that fpmsyncd alone needed for a
    feed of ROWS routes."""
    sonic = Sonic(host, start=["fpmsyncd"], flags={"fpmsyncd": flags}, neighbors=False)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    end = reading(client)
    client.send(frames(port, 0, 1))
    wait_for("a row is there", lambda: sonic.appl.scard("ROUTE_TABLE_KEY_SET") == 1, 20, alive=sonic.alive())
    before, begin = calls(sonic, "evalsha", "publish"), time.monotonic()
    feed(client, port)
    wait_for("all rows are there", lambda: sonic.appl.scard("ROUTE_TABLE_KEY_SET") == ROWS + 1, 60, 0.02, alive=sonic.alive())
    took = time.monotonic() - begin
    time.sleep(0.3)
    after = calls(sonic, "evalsha", "publish")
    end()
    return *(late - early for late, early in zip(after, before)), took


def reading(client):
    """Reads the replies; a client that does not would block fpmsyncd. Call the result to end the session."""
    reader = threading.Thread(target=read, args=(client.socket,), daemon=True)
    reader.start()

    def end():
        # The reader first: a closed number is soon that of another file.
        client.socket.shutdown(socket.SHUT_RDWR)
        reader.join(10)
        client.close()
    return end


def burst(client, port):
    client.send(frames(port, 1, ROWS + 1))


def steadily(client, port):
    begin = time.monotonic()
    for first in range(1, ROWS + 1, PIECE):
        client.send(frames(port, first, first + PIECE))
        time.sleep(max(0.0, begin + first / STEADY - time.monotonic()))


@pytest.mark.parametrize("pipeline", [128, 2000])
def test_pipeline_bounds_the_rows_of_a_flush(host, pipeline):
    """A full pipeline is flushed, with one publication, whatever the timer."""
    hour = str(3600 * 1000)
    # Routes left below the pipeline would wait for an hour.
    _, published, _ = written(host, ["--pipeline", str(pipeline), "--flush-timer", hour, "--small-traffic", str(pipeline)], burst)
    assert ROWS / pipeline <= published <= 2 * ROWS / pipeline + 10, published


def test_flush_timer_paces_flushes_under_load(host):
    """A pipeline that is never full is flushed once in each period."""
    flags = ["--pipeline", "50000", "--small-traffic", "0", "--flush-timer"]
    _, published, took = written(host, [*flags, "250"], steadily)
    assert published <= took / 0.25 + 2, (published, took)
    assert published >= 3


def test_small_traffic_is_flushed_at_once(host):
    """Fewer routes than that are not delayed by a timer: each piece of a steady feed is a flush."""
    flags = ["--pipeline", "50000", "--flush-timer", "250", "--small-traffic"]
    _, many, took = written(host, [*flags, "50000"], steadily)
    assert many > 3 * (took / 0.25 + 2), (many, took)


def test_a_flush_of_many_calls_publishes_once(host):
    """SONiC's publications are one for each route; here the calls of a flush share one."""
    flags = ["--pipeline", "50000", "--small-traffic", "0", "--flush-timer", "250", "--rows-per-call"]
    called, published, took = written(host, [*flags, "100"], burst)
    assert called >= ROWS / 100
    assert published <= took / 0.25 + 2, (published, took)


def test_a_call_of_one_row_publishes_it_as_sonic_does(host):
    called, published, _ = written(host, ["--rows-per-call", "1"], burst)
    assert called >= ROWS and published == ROWS, (called, published)


@pytest.mark.parametrize("batch", [500, 10_000])
def test_orchagent_takes_so_many_rows_at_once(host, batch):
    """-b, which may be more than one script call takes."""
    sonic = Sonic(host, start=["fpmsyncd"])
    usual = sonic.flags["orchagent"]
    usual[usual.index("-b") + 1] = str(batch)
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    client.send(frames(port, 0, ROWS))
    wait_for("they wait", lambda: sonic.appl.scard("ROUTE_TABLE_KEY_SET") == ROWS, 60, alive=sonic.alive())
    sonic.start("syncd")
    sonic.start("orchagent")
    sonic.wait_chip(ROWS + OWN)

    def popped():
        shown = subprocess.run([binary(), "show", "performance", "orchagent/POPS", "--sonic", "--json", "--database-config", sonic.redis.config],
                               capture_output=True, text=True)
        return shown.returncode == 0 and [json.loads(line) for line in shown.stdout.splitlines()]
    records = wait_for("the timer has a record", popped, 20)
    assert max(n for record in records for n in record["m_incs"]) == batch
    client.close()


def test_stable_table_saves_redis_a_move_of_each_row(host):
    """--stable-table: rows are written where readers find them, so taking one moves nothing, and no command fails."""
    spent = {}
    for stable in (False, True):
        name = "stable" if stable else "usual"
        sonic = Sonic(host, start=["fpmsyncd"], flags={"fpmsyncd": ["--stable-table"] * stable}) if not spent else sonic
        if spent:
            for process in sonic.processes.values():
                process.kill()
            sonic.redis.db(0).flushall()
            sonic.configure()
            sonic.flags["fpmsyncd"].append("--stable-table")
            sonic.processes = {}
            sonic.start("fpmsyncd")
            sonic.everything_else()
        client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
        sonic.redis.db(0).config_resetstat()
        client.send(frames(port, 0, ROWS))
        wait_for("they wait", lambda: sonic.appl.scard("ROUTE_TABLE_KEY_SET") == ROWS, 60, alive=sonic.alive())
        sonic.start("syncd")
        sonic.start("orchagent")
        sonic.wait_chip(ROWS + OWN)
        client.close()
        stats = sonic.redis.db(0).info("commandstats")
        spent[name] = {command: (stats.get(f"cmdstat_{command}", {}).get("calls", 0), stats.get(f"cmdstat_{command}", {}).get("failed_calls", 0))
                       for command in ("rename", "renamenx", "exists", "hset", "copy")}
    assert spent["usual"]["renamenx"][0] >= ROWS
    # One of a call's rows shows that nothing is to be moved.
    assert spent["stable"]["renamenx"][0] + spent["stable"]["rename"][0] < ROWS / 100, spent


def test_settings_of_the_pipeline_over_zeromq(host):
    """The timer paces messages, as it paces flushes."""
    def messages(flags):
        with zmq.stock(host, "PULL", bind=zmq.TABLES) as pulled:
            client, got, keys = connect_fpm(sonic), 0, set()
            wait_for("fpmsyncd is connected", lambda: sonic.setting("fpmsyncd", "swss_zmq")["active"] == "not acknowledged", 20)
            port = ifindex(host, "Ethernet0")
            end = reading(client)
            begin = time.monotonic()
            feed = threading.Thread(target=steadily, args=(client, port), daemon=True)
            feed.start()
            while len(keys) < ROWS:
                got += 1
                keys.update(key for key, _ in zmq.parse(pulled.recv())[2])
            feed.join()
            end()
            return got, time.monotonic() - begin
    flags = ["-q", "tcp://127.0.0.1", "--pipeline", "50000", "--small-traffic", "0", "--flush-timer"]
    sonic = Sonic(host, start=["fpmsyncd"], flags={"fpmsyncd": [*flags, "250"]}, neighbors=False)
    got, took = messages(flags)
    # A message has at most a thousand routes.
    assert got <= ROWS / 1000 + 2 * (took / 0.25 + 2), (got, took)


# Databases in write-behind.

def test_rows_in_write_behind_stay_young_at_a_steady_30000_routes(host):
    """Everything on, over ZeroMQ: while routes come more slowly than Redis writes, no row becomes older than
    --write-behind-max-age, by the daemons' own counts; and in the end the databases are complete."""
    sonic = Sonic(host, flags=ZMQ, suppress=True)
    own = len(own_routes(sonic))
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    end = reading(client)
    rate, seconds = 30_000, 4
    pieces = [frames(port, first, first + 300) for first in range(0, rate * seconds, 300)]
    begin, seen = time.monotonic(), []
    for n, piece in enumerate(pieces):
        client.send(piece)
        time.sleep(max(0.0, begin + n * 300 / rate - time.monotonic()))
        if n % 100 == 99:
            seen.append(ages(sonic))
    wait_for("the chip has all", lambda: sonic.query("counts")["ipv4_routes"] >= rate * seconds, 120, alive=sonic.alive())
    wait_for("ASIC_DB has all", lambda: sonic.chip_routes() == own + rate * seconds, 60, alive=sonic.alive())
    wait_for("APPL_DB has all", lambda: sonic.route_count() == rate * seconds, 20)
    wait_for("they are seen to be idle", lambda: not any(age["depth"] for age in ages(sonic).values()), 20)
    tables = {("fpmsyncd", "ROUTE_TABLE to APPL_DB"), ("orchagent", "ROUTE_TABLE to APPL_STATE_DB"), ("syncd", "ASIC_DB")}
    last = ages(sonic)
    assert tables <= set(last)
    for table in tables:
        # It was behind, and written seldom: rows wait for each other. TIMEOUT_FACTOR: a machine that does not run the writer.
        assert last[table]["bound"] == 1000 and 0 < last[table]["peak"] <= 1000 * TIMEOUT_FACTOR, (table, last, seen)
    # Many rows to a command, and the same row copied: not a command and a round trip for each.
    assert all(sonic.setting(daemon, "--write-behind-max-age")["active"] == "1000" for daemon in ("fpmsyncd", "orchagent", "syncd"))
    end()


@pytest.mark.parametrize("age, more", [("500", ["--write-behind-wait"]), ("0", []), ("0", ["--write-behind-max", "20000"])],
                         ids=["wait", "go-on", "max"])
def test_a_redis_that_stands_still_delays_routes_with_a_bound_of_write_behind_alone(host, age, more):
    """With --write-behind-wait the daemons wait: the chip gets no route while the rows of earlier ones are old. Without it the chip
    does, up to --write-behind-max rows. Nothing is lost either way."""
    flags = {name: [*words, "--write-behind-max-age", age, *more] for name, words in ZMQ.items()}
    sonic = Sonic(host, flags=flags, state=True)
    own = len(own_routes(sonic))
    client, port = connect_fpm(sonic), ifindex(host, "Ethernet0")
    end = reading(client)
    in_chip = lambda: sonic.query("counts")["ipv4_routes"]
    before, most, total = in_chip(), 200_000, 300_000
    sender = threading.Thread(target=client.send, args=(frames(port, 0, total),), daemon=True)
    sender.start()
    wait_for("they flow", lambda: in_chip() > before + 5_000, 60, 0.005, alive=sonic.alive())
    sonic.redis.process.popen.send_signal(signal.SIGSTOP)
    if not more:
        # Not all: every 5 s fpmsyncd asks Redis itself.
        wait_for("the chip gets most, without Redis", lambda: in_chip() > before + most, 60, alive=sonic.alive())
    elif age == "0":
        # Twenty batches of a thousand rows; syncd waits with the twenty-first and answers nothing.
        level = lambda: queues(sonic)[("syncd", "rows to ASIC_DB (write-behind)")]
        wait_for("syncd is at the bound", lambda: level()["depth"] == level()["bound"] == 20, 60, alive=sonic.alive())
    else:
        def stands():
            first = in_chip()
            time.sleep(2)
            return in_chip() == first
        wait_for("the daemons wait", stands, 60, alive=sonic.alive())
        assert in_chip() < before + most
        # The first change after a pause is written up to 8 s late.
        old = lambda: [gauge for gauge in ages(sonic).values() if gauge["depth"] >= gauge["bound"] == 500]
        wait_for("the age is shown", old, 20, alive=sonic.alive())
    sonic.redis.process.popen.send_signal(signal.SIGCONT)
    wait_for("the chip has all", lambda: in_chip() >= before + total, 120, alive=sonic.alive())
    wait_for("ASIC_DB has all", lambda: sonic.chip_routes() == own + total, 120, 0.5, alive=sonic.alive())
    wait_for("APPL_DB has all", lambda: sonic.route_count() == total, 60, 0.5)
    end()
