"""`ribtide metrics --sonic`: the metrics of SONiC's daemons, read by Prometheus's own parsers."""

import pathlib
import re
import subprocess

import pytest
from harness import binary, wait_for
from harness.daemons import Redis
from harness.sonic import Sonic
from test_sonic import connect_fpm, ifindex
from test_sonic_knobs import ZMQ, frames, queues

openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser", reason="python3-prometheus-client is missing")
classic = pytest.importorskip("prometheus_client.parser", reason="python3-prometheus-client is missing")

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "sonic.md"


def metrics(sonic, *words):
    command = [binary(), "metrics", "--sonic", "--database-config", sonic.redis.config, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def samples(text):
    """(name, labels) → value of every sample; fails where the text is not OpenMetrics."""
    families = list(openmetrics.text_string_to_metric_families(text))
    assert all(family.name.startswith("ribtide_sonic_") and family.documentation for family in families)
    values = lambda families: {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
    found = values(families)
    # node_exporter's textfile collector reads the format before OpenMetrics.
    assert values(classic.text_string_to_metric_families(text)) == found
    return found


def of(found, name, **labels):
    """The samples of a name that have these labels."""
    return [value for (of, has), value in found.items() if of == f"ribtide_sonic_{name}" and labels.items() <= set(has)]


def test_metrics_are_open_metrics_and_those_of_show(host, folder):
    sonic = Sonic(host, flags=ZMQ)
    client = connect_fpm(sonic)
    client.send(frames(ifindex(host, "Ethernet0"), 0, 3000))
    for n in range(3):
        sonic.set("VNET_TABLE", f"Vnet{n}", vni=str(n))
    wait_for("APPL_DB has the routes", lambda: sonic.route_count() == 3000, 60, alive=sonic.alive())
    unhandled = lambda: of(samples(metrics(sonic)), "unhandled_rows", daemon="orchagent", database="APPL_DB", table="VNET_TABLE")
    wait_for("the rows of VNETs are counted", lambda: unhandled() == [3], 90, 0.5, alive=sonic.alive())
    rows = "ROUTE_TABLE to APPL_DB"
    written = lambda: of(samples(metrics(sonic)), "write_behind_age_peak_seconds", daemon="fpmsyncd", rows=rows)
    wait_for("an age is published", lambda: written() and 0 < written()[0], 30, 0.5, alive=sonic.alive())
    found, shown = samples(metrics(sonic)), queues(sonic)
    assert written() == [shown["fpmsyncd", f"age of the oldest row of {rows}, in ms"]["peak"] / 1000]
    assert of(found, "write_behind_age_bound_seconds", daemon="fpmsyncd", rows=rows) == [1]
    for (daemon, name), queue in shown.items():
        if not name.startswith("age of"):
            assert of(found, "queue_peak", daemon=daemon, queue=name), (daemon, name)
            assert of(found, "queue_bound", daemon=daemon, queue=name) == ([queue["bound"]] if "bound" in queue else [])
    client.close()
    # A reader sees the whole file or the one before.
    (folder / "out").mkdir()
    file = folder / "out" / "ribtide.prom"
    for _ in range(2):
        assert metrics(sonic, "--output", file) == ""
        assert of(samples(file.read_text()), "unhandled_rows", database="APPL_DB", table="VNET_TABLE") == [3]
    assert [path.name for path in file.parent.iterdir()] == ["ribtide.prom"]
    # docs/sonic.md names each family.
    table = re.search(r"^## Metrics\n(.*?)^## ", DOCS.read_text(), re.MULTILINE | re.DOTALL)[1]
    families = {family.name for family in openmetrics.text_string_to_metric_families(metrics(sonic))}
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([a-z_]+)`", row)]
    assert {f"ribtide_sonic_{name}" for name in named} == families


def test_metrics_without_a_database_are_a_sentence(host):
    redis, file = Redis(host), host.folder / "no.prom"
    redis.process.kill()
    command = [binary(), "metrics", "--sonic", "--database-config", redis.config, "--output", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and not done.stdout and "Redis" in done.stderr and not file.exists(), done
