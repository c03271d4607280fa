"""`/metrics`, read by Prometheus's own parsers; the dashboard and the alert rules of contrib, against a scrape."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, stations
from harness.unix_http import UnixHttp

parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="python3-prometheus-client is missing")

CONFIG = HEAD + """
shards = 2
update-threads = 2

[bgp.group.feeds]
type = "external"
import = ["accept"]
export = ["accept"]
dynamic-neighbors = ["198.19.0.0/24"]

[fib]
""" + LAB


CONTRIB = pathlib.Path(__file__).parents[2] / "contrib"
#: What Prometheus 2.42 sends.
ACCEPT = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


def scraped(router, accept=None):
    """Media type and text of a scrape."""
    connection = UnixHttp(router.socket)
    connection.request("GET", "/metrics", headers={"Accept": accept} if accept else {})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.getheader("content-type"), answer.read().decode()


def scrape(router):
    """(name, labels) → value of every sample; fails where the text is not OpenMetrics."""
    kind, text = scraped(router, ACCEPT)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    families = list(parser.text_string_to_metric_families(text))
    assert all(family.name.startswith("ribtide_") and family.documentation for family in families)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_a_scrape_is_open_metrics_and_agrees_with_show(host):
    router = Ribtide(host, CONFIG)
    assert scrape(router)[("ribtide_unanswered_queries", ())] == 0
    host.feeds.start("blast", binary(), "blast", "--to", f"{Host.FEED_SIDE}:179", "--from", Host.FEEDS[0],
                     "--ipv4", 5000, "--quiet")
    wait_for("the table is there", lambda: router.count() == 5000)
    samples = scrape(router)
    of = lambda name: {labels: value for (n, labels), value in samples.items() if n == name}  # noqa: E731
    assert sum(of("ribtide_bgp_shard_prefixes").values()) == 5000
    assert list(of("ribtide_bgp_neighbor_up").values()) == [1]
    bounds, depths = of("ribtide_queue_bound"), of("ribtide_queue_depth")
    pipeline = router.show("pipeline")
    queues = {(("queue", queue["name"]),): queue.get("capacity", queue.get("bound")) for kind in ("rings", "gauges") for queue in pipeline[kind]}
    assert bounds == {queue: bound for queue, bound in queues.items() if bound} and depths.keys() == queues.keys()
    assert {"rows in m_toSync", "requests at the chip"} <= {gauge["name"] for gauge in pipeline["gauges"]}
    again = scrape(router)
    counters = [key for key in samples if key[0].endswith("_total")]
    assert counters and all(again[key] >= samples[key] for key in counters), "a counter went back"


@pytest.mark.parametrize("dataplane", ["chip", "kernel"])
def test_scrape_without_accept_is_the_text_format_that_promtool_reads(host, folder, dataplane):
    text_parser = pytest.importorskip("prometheus_client.parser")
    router = blasted(host, folder, dataplane)
    kind, text = scraped(router)
    assert ("\nribtide_kernel_" in text) == (dataplane == "kernel")
    assert kind.startswith("text/plain; version=0.0.4")
    families = list(text_parser.text_string_to_metric_families(text))
    assert all(family.type in ("counter", "gauge", "histogram") and family.documentation for family in families)
    names = lambda samples: {sample.name for family in samples for sample in family.samples}  # noqa: E731
    open_metrics = parser.text_string_to_metric_families(scraped(router, ACCEPT)[1])
    assert names(families) == names(open_metrics)
    if promtool := shutil.which("promtool"):
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_latency_of_each_queue_and_stage_is_in_histograms(host):
    """Every batch that went through a ring is in its histogram, or was taken before its producer had counted it."""
    router = Ribtide(host, CONFIG)
    host.feeds.start("blast", binary(), "blast", "--to", f"{Host.FEED_SIDE}:179", "--from", Host.FEEDS[0],
                     "--ipv4", 5000, "--quiet")
    wait_for("the table is in the chip", lambda: sum(
        value for (name, labels), value in scrape(router).items()
        if name == "ribtide_stage_routes_total" and ("stage", "syncd") in labels) >= 5000)
    samples = scrape(router)
    value = lambda name, **labels: samples[name, tuple(sorted(labels.items()))]  # noqa: E731
    # From the reader to the chip.
    for queue in ("readers to shard 0", "shards to RIB"):
        batches, waits = value("ribtide_queue_batches_total", queue=queue), value("ribtide_queue_wait_seconds_count", queue=queue)
        assert 0 < waits <= batches, (queue, waits, batches)
        assert 0 < value("ribtide_queue_wait_seconds_sum", queue=queue) < 600
        assert value("ribtide_queue_wait_seconds_bucket", queue=queue, le="+Inf") == waits
    stages = {dict(labels)["stage"] for name, labels in samples if name == "ribtide_stage_batch_seconds_count"}
    for stage in stages:
        assert value("ribtide_stage_batch_seconds_count", stage=stage) == value("ribtide_stage_batches_total", stage=stage)
        assert value("ribtide_stage_batch_seconds_sum", stage=stage) == pytest.approx(
            value("ribtide_stage_busy_seconds_total", stage=stage))


#: The dataplanes that exclude each other.
DATAPLANES = {"chip": LAB, "kernel": "kernel = true\n"}


def every_part(folder, dataplane):
    """A router with a neighbour, BFD, RPKI, BMP, MRT and an FPM client, so that a scrape has every family but another dataplane's."""
    return HEAD + f"""
shards = 2
update-threads = 2

[bgp.group.feeds]
type = "external"
peer-asn = 65100
import = ["accept"]
export = ["accept"]
bfd = true
neighbors = ["{Host.FEEDS[0]}"]

[bgp.group.others]
type = "external"
import = ["accept"]
export = ["accept"]
max-prefixes = {{ ipv4-unicast = 100000, action = "warn" }}
dynamic-neighbors = ["198.19.0.0/24"]
{stations(folder)}""" + DATAPLANES[dataplane]


def blasted(host, folder, dataplane="chip"):
    """Such a router with a session, for the metrics of what it has."""
    router = Ribtide(host, every_part(folder, dataplane))
    host.feeds.start("blast", binary(), "blast", "--to", f"{Host.FEED_SIDE}:179", "--from", Host.FEEDS[1],
                     "--ipv4", 100, "--quiet")
    wait_for("the table is there", lambda: router.count() == 100)
    return router


def named(expression):
    """Names of metrics in an expression, and names of labels that its selectors and aggregations have."""
    quoted = re.sub(r'"[^"]*"', '""', expression)
    metrics = set(re.findall(r"\bribtide_\w+", quoted))
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"\"", quoted))
    for group in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", quoted):
        labels |= {label.strip() for label in group.split(",")}
    return metrics, labels


def test_dashboard_and_alert_rules_name_metrics_and_labels_of_a_scrape(host, folder):
    yaml = pytest.importorskip("yaml", reason="python3-yaml is missing")
    router = blasted(host, folder)
    labels_of = {}
    for name, labels in scrape(router):
        labels_of.setdefault(name, set()).update(label for label, _ in labels)
    # What Prometheus adds to each sample.
    added = {"instance", "job"}
    dashboard = json.loads((CONTRIB / "grafana/ribtide.json").read_text())
    panels = [(target["expr"], target["legendFormat"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    rules = yaml.safe_load((CONTRIB / "prometheus/ribtide.rules.yml").read_text())["groups"][0]["rules"]
    alerts = [(rule["expr"], " ".join(rule["annotations"].values()).replace("$labels.", "")) for rule in rules]
    assert len(panels) > 20 and len(alerts) > 15
    faults = []
    # Shown only where there is something: `ribtide_stalled_seconds` of what is stalled.
    conditional = {"ribtide_stalled_seconds"}
    for expression, text in panels + alerts:
        metrics, labels = named(expression)
        labels |= set(re.findall(r"\{\{\s*(\w+)\s*\}\}", text))
        assert metrics or expression.startswith("up{"), expression
        present = set().union(*(labels_of.get(name, set()) for name in metrics))
        faults += [f"no metric {name}: {expression}" for name in metrics - labels_of.keys() - conditional]
        if not metrics & conditional and metrics:
            faults += [f"no label {label}: {expression}" for label in labels - present - added - {"value", "le"}]
    assert not faults, "\n".join(faults)
    if promtool := shutil.which("promtool"):
        checked = subprocess.run([promtool, "check", "rules", CONTRIB / "prometheus/ribtide.rules.yml"], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
