"""A client of the API that is made from its OpenAPI document, and checks every response against it."""

import copy
import json
import urllib.parse

from jsonschema import Draft202012Validator

from .unix_http import UnixHttp


def strict(schema):
    """The schema, with every object closed: a field that the document does not have is a fault."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    combined = {"allOf", "anyOf", "oneOf", "$ref"} & schema.keys()
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed.setdefault("unevaluatedProperties" if combined else "additionalProperties", False)
    return closed


class Client:
    """A method for each operation of the document: `client.get_v1_routes(limit=2)`; a body is `body`."""

    def __init__(self, socket):
        self.socket = socket
        self.document = json.loads(self.request("GET", "/v1/openapi.json")[1])
        components = copy.deepcopy(self.document["components"])
        # Parts of a flattened object are not closed by themselves.
        flattened = {ref["$ref"] for schema in components["schemas"].values() if "$ref" in schema and "properties" in schema for ref in [schema]}
        flattened |= {one["$ref"] for schema in components["schemas"].values() for one in schema.get("allOf", []) if "$ref" in one}
        self.components = {"schemas": {
            name: schema if f"#/components/schemas/{name}" in flattened else strict(schema)
            for name, schema in components["schemas"].items()}}
        self.operations = {operation["operationId"]: (method, path, operation)
                           for path, methods in self.document["paths"].items() for method, operation in methods.items()}

    def request(self, method, path, body=None):
        """Status and text."""
        connection = UnixHttp(self.socket)
        sent = (json.dumps(body), {"Content-Type": "application/json"}) if body is not None else ()
        connection.request(method, path, *sent)
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text

    def events(self, last=None, within=30, **fields):
        """The events of `/v1/events` from now on, or after the id `last`, each as (kind, id, data); a client from the
        document checks the data. Ends where the router sends nothing for `within` seconds."""
        kinds = self.operations["get_v1_events"][2]["x-events"]
        connection = UnixHttp(self.socket)
        connection.timeout = within
        connection.request("GET", "/v1/events?" + urllib.parse.urlencode(fields), headers={"Last-Event-ID": last} if last else {})
        reply = connection.getresponse()
        if reply.status != 200:
            raise ApiError(reply.status, json.loads(reply.read())["error"])
        assert reply.headers["Content-Type"] == "text/event-stream"
        event = {}
        try:
            while line := reply.readline().decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if line != "\n":
                    event[name] = value
                    continue
                if "data" in event:
                    data = json.loads(event["data"])
                    self.check(kinds[event["event"]], data)
                    yield event["event"], event["id"], data
                elif "id" in event:
                    yield None, event["id"], None
                event = {}
        except TimeoutError:
            return
        finally:
            connection.close()

    def __getattr__(self, name):
        if name not in self.operations:
            raise AttributeError(f"the document has no operation {name}")
        return lambda body=None, **fields: self.call(name, body, fields)

    def call(self, name, body, fields):
        """The response of an operation; fails where it is not as the document says."""
        method, path, operation = self.operations[name]
        known = {parameter["name"]: parameter for parameter in operation.get("parameters", [])}
        fields = {field.replace("_", "-") if field not in known else field: value for field, value in fields.items()}
        assert fields.keys() <= known.keys(), f"{name} has no {fields.keys() - known.keys()}"
        assert {p["name"] for p in known.values() if p["required"]} <= fields.keys()
        query = {}
        for field, value in fields.items():
            self.check(known[field]["schema"], value)
            if known[field]["in"] == "path":
                path = path.replace("{" + field + "}", urllib.parse.quote(str(value)))
            else:
                query[field] = json.dumps(value) if isinstance(value, bool) else value
        if query:
            path += "?" + urllib.parse.urlencode(query)
        if method == "post":
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            self.check(schema, body or {})
        status, text = self.request(method.upper(), path, body or {} if method == "post" else None)
        response = operation["responses"]["200" if status == 200 else "default"]
        content = response["content"]
        if "application/json" not in content:
            return text
        value = json.loads(text)
        self.check(content["application/json"].get("schema", {}), value)
        if status != 200:
            raise ApiError(status, value["error"])
        return value

    def check(self, schema, value):
        """Fails unless `value` is as the schema says."""
        whole = {"components": self.components, **strict(schema)}
        errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in Draft202012Validator(whole).iter_errors(value)]
        assert not errors, "\n".join(errors)


class ApiError(Exception):
    """A response with another status than 200."""

    def __init__(self, status, sentence):
        super().__init__(f"{status}: {sentence}")
        self.status, self.sentence = status, sentence
