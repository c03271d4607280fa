//! The OpenAPI document of the API, from the list of endpoints and the types that they take and give. `GET /v1/openapi.json`
//! serves it, and contrib/openapi.json is the same.

use super::endpoints::{Effect, Endpoint, Output, SchemaOf, endpoints};
use super::page;
use ribtide_model::ApiError;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// The document (OpenAPI 3.1, whose schemas are JSON Schema 2020-12).
pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(generate)
}

fn generate() -> Value {
    let settings = |s: &mut SchemaSettings| s.definitions_path = "/components/schemas".into();
    let settings = SchemaSettings::draft2020_12().with(settings);
    // What a client may leave out of a body is not what the router may leave out of a response.
    let mut sent = settings.clone().for_deserialize().into_generator();
    let mut given = settings.for_serialize().into_generator();
    let error = given.subschema_for::<ApiError>().to_value();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints().list {
        let operation = operation(&endpoint, &mut sent, &mut given, &error);
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_ascii_lowercase()] = operation;
    }
    let mut schemas = sent.take_definitions(true);
    // A type of both has the form of the response.
    schemas.extend(given.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ribtide",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of the router ribtide: HTTP and JSON over the Unix socket api.socket, and over TCP with \
                            api.http. Times are in seconds, sizes in bytes. A field that does not apply is absent.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of api.token-file, over TCP only: for changes and for reads. Over the Unix socket its \
                                    permissions decide.",
                },
                "read-token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of api.read-token-file, over TCP only. Reads of the configuration, the log and events \
                                    take one of both tokens; so do all others on another address than a loopback one, unless \
                                    clients show certificates.",
                },
            },
        },
    })
}

/// What the document has about an endpoint.
fn operation(
    endpoint: &Endpoint,
    sent: &mut SchemaGenerator,
    given: &mut SchemaGenerator,
    error: &Value,
) -> Value {
    let input = (endpoint.input)(sent).to_value();
    let content: Map<String, Value> = match endpoint.output {
        Output::Json(output) => {
            [("application/json".into(), json!({ "schema": output(given) }))].into_iter().collect()
        }
        Output::Text(media) => media.iter().map(|kind| ((*kind).into(), json!({}))).collect(),
        Output::Events(_) => [("text/event-stream".into(), json!({}))].into_iter().collect(),
    };
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "responses": {
            "200": { "description": "The reply.", "content": content },
            "default": {
                "description": "What is wrong, where, and what to do.",
                "content": { "application/json": { "schema": error } },
            },
        },
    });
    if let Output::Events(kinds) = endpoint.output {
        // OpenAPI 3.1 has no word for the items of a stream: the data of each kind of event.
        let of = |(kind, data): &(&str, SchemaOf)| ((*kind).to_owned(), data(given).to_value());
        operation["x-events"] = kinds.iter().map(of).collect::<Map<String, Value>>().into();
    }
    let mut parameters = path_parameters(endpoint.path);
    if endpoint.method == "GET" {
        parameters.extend(query_parameters(&input));
    } else {
        let required = input.get("required").is_some();
        operation["requestBody"] =
            json!({ "required": required, "content": { "application/json": { "schema": input } } });
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !page::is_file(endpoint.path) {
        // Or none: over the Unix socket, and for most reads over a loopback address.
        operation["security"] = match endpoint.effect {
            Effect::Change => json!([{ "token": [] }, {}]),
            Effect::Read => json!([{ "token": [] }, { "read-token": [] }, {}]),
        };
    }
    operation
}

/// `get_v1_bgp_summary`.
fn operation_id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let method = endpoint.method.as_str().to_ascii_lowercase();
    words.fold(method, |id, word| format!("{id}_{word}"))
}

/// The variable parts of a path.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter =
        |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    names.map(parameter).collect()
}

/// The fields of a query.
fn query_parameters(input: &Value) -> Vec<Value> {
    let required = input.get("required").and_then(Value::as_array);
    let fields = input.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let required = required.is_some_and(|list| list.iter().any(|one| one == name.as_str()));
        json!({ "name": name, "in": "query", "required": required, "schema": schema })
    };
    fields.into_iter().flatten().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_security_for_all_but_the_files_of_the_page() {
        let paths = document()["paths"].as_object().unwrap();
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().unwrap() {
                let security = operation.get("security").map(|all| all.as_array().unwrap().len());
                let is_change = method == "post" && !path.ends_with("lookup") && path != "/v1/reload/check";
                let expected = match (path.starts_with("/v1/") || path == "/metrics", is_change) {
                    (false, _) => None,
                    (true, true) => Some(2),
                    (true, false) => Some(3),
                };
                assert_eq!(security, expected, "{method} {path}");
            }
        }
    }
}
