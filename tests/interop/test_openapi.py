"""The OpenAPI document: its form, and that every endpoint replies as it says."""

import json
import pathlib
import re

import pytest
from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB, stations

pytest.importorskip("jsonschema", reason="python3-jsonschema is missing")
from harness.openapi import ApiError, Client  # noqa: E402
from jsonschema import Draft202012Validator  # noqa: E402

TREE = pathlib.Path(__file__).parents[2]
PREFIX = "203.0.113.0/24"


@pytest.fixture
def router(host, folder):
    """A router with every part that has an endpoint, a session and 100 routes."""
    router = Ribtide(host, HEAD + f"""
shards = 2
update-threads = 2

[bgp.originate]
networks = ["{PREFIX}"]
api = ["accept"]

[[bgp.aggregate]]
prefix = "10.0.0.0/8"

[bgp.group.feeds]
type = "external"
import = ["accept"]
export = ["accept"]
keep-received = true
max-prefixes = {{ ipv4-unicast = 100000, action = "warn" }}
dynamic-neighbors = ["198.19.0.0/24"]

[bgp.group.down]
type = "external"
peer-asn = 65100
bfd = true
neighbors = ["198.19.1.1"]
{stations(folder)}""" + LAB)
    host.feeds.start("blast", binary(), "blast", "--to", f"{Host.FEED_SIDE}:179", "--from", Host.FEEDS[0],
                     "--ipv4", 100, "--quiet")
    wait_for("the table is there", lambda: router.count() >= 100)
    return router


def refs(value):
    """Every reference in a document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = value.values()
    elif not isinstance(value, list):
        return
    for inner in value:
        yield from refs(inner)


def test_document_is_open_api(router):
    document = Client(router.socket).document
    assert document == json.loads((TREE / "contrib/openapi.json").read_text())
    assert document["openapi"].startswith("3.1.")
    schemas = document["components"]["schemas"]
    assert set(refs(document)) <= {f"#/components/schemas/{name}" for name in schemas} and len(schemas) > 80
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    ids = []
    for path, methods in document["paths"].items():
        for operation in methods.values():
            ids.append(operation["operationId"])
            parts = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert parts == set(re.findall(r"\{(\w+)\}", path))
            assert {"200", "default"} <= operation["responses"].keys()
    assert len(ids) == len(set(ids))
    try:
        from openapi_spec_validator import validate
    except ImportError:
        return
    validate(document)


def test_document_has_the_endpoints_of_the_manual(router):
    text = (TREE / "docs/operations.md").read_text()
    described = set(re.findall(r"`(GET|POST) (/[^` ]*)`", text.partition("## The API")[2]))
    listed = {(method.upper(), path.replace("{address}", "ADDRESS"))
              for path, methods in Client(router.socket).document["paths"].items() for method in methods}
    assert described >= listed, listed - described


def test_every_endpoint_replies_as_the_document_says(router):
    api = Client(router.socket)
    feed = Host.FEEDS[0]
    route = api.get_v1_routes(limit=1)
    assert len(route["routes"]) == 1 and route["next"]
    assert api.get_v1_routes(limit=1, cursor=route["next"])["routes"] != route["routes"]
    fields = {
        "get_v1_routes": {"prefix": PREFIX},
        "get_v1_fib": {"limit": 50},
        "get_v1_explain": {"prefix": route["routes"][0]["prefix"], "to": feed},
        "get_v1_rpki_validation": {"prefix": PREFIX, "asn": 65001},
        "get_v1_bgp_neighbors_address": {"address": feed},
        "get_v1_bgp_neighbors_address_messages": {"address": feed},
        "get_v1_bgp_neighbors_address_messages_mrt": {"address": feed},
        "get_v1_bgp_neighbors_address_received": {"address": feed, "limit": 10},
        "get_v1_bgp_neighbors_address_filtered": {"address": feed, "limit": 10},
        "get_v1_bgp_neighbors_address_advertised": {"address": feed, "all": True},
        "get_v1_route_check": {"full": True},
    }
    bodies = {
        "post_v1_bgp_originated": {"owner": "test", "routes": [{"prefix": "198.51.100.0/24", "discard": True}]},
        "post_v1_bgp_originated_withdraw": {"owner": "test", "all": True},
        "post_v1_bgp_clear": {"address": feed, "soft": True},
        "post_v1_bgp_shards": {"shards": 3},
        "post_v1_fib_lookup": {"prefixes": [PREFIX]},
        "post_v1_fib_suppression": {"suppress-fib-pending": True},
        "post_v1_nexthop_cache": {"mode": "epoch"},
        "post_v1_asic": {"set": {"rate": "20000"}},
        "post_v1_asic_faults": {"prefixes": [PREFIX], "refuse": True},
        "post_v1_asic_lookup": {"addresses": ["203.0.113.1"]},
        "post_v1_reload": {},
        "post_v1_reload_check": {"examples": 3},
    }
    other = router.config.read_text().replace("keep-received = true", 'keep-received = true\nimport = ["reject"]').replace(
        'import = ["accept"]\n', "", 1)
    check = api.post_v1_reload_check({"text": other, "file": str(router.config)})
    fields["get_v1_reload_check"] = {"cursor": check["next"]}
    posts = {name for name in api.operations if name.startswith("post_")}
    assert posts == bodies.keys(), posts ^ bodies.keys()
    api.post_v1_bgp_originated(bodies["post_v1_bgp_originated"])
    failed = {}
    # The stream has a test of its own: it has no end.
    for name in sorted(api.operations.keys() - posts - {"get_v1_events"}) + list(bodies):
        try:
            api.call(name, bodies.get(name), fields.get(name, {}))
        except (AssertionError, ApiError) as error:
            failed[name] = str(error)
    assert not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())


def test_refusals_are_as_the_document_says(router):
    api = Client(router.socket)
    with pytest.raises(ApiError) as refused:
        api.get_v1_bgp_neighbors_address(address="203.0.113.77")
    assert refused.value.status == 404 and "203.0.113.77" in refused.value.sentence
    with pytest.raises(ApiError) as refused:
        api.get_v1_routes(limit=100_000)
    assert refused.value.status == 400
