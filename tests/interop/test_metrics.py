"""`/metrics`, read by Prometheus's own parser for OpenMetrics."""

import pytest

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB
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


def scrape(router):
    """(name, labels) → value of every sample; fails where the text is not OpenMetrics."""
    connection = UnixHttp(router.socket)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("content-type").startswith("application/openmetrics-text; version=1.0.0")
    families = list(parser.text_string_to_metric_families(answer.read().decode()))
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
