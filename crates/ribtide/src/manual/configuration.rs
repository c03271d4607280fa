//! ribtide.toml(5): every table and key of the configuration, from its JSON Schema.

use super::MANUAL;
use super::schema::{Default, default, description, object, properties, requires};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use ribtide_config as config;
use serde_json::Value;
use std::ptr;

/// The page.
pub(super) fn page() -> String {
    let schema = config::schema();
    let mut roff = Roff::new();
    let source = format!("ribtide {}", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["RIBTIDE.TOML", "5", "", &source, MANUAL]);
    roff.control("SH", ["NAME"]).text([roman("ribtide.toml - configuration of the router ribtide")]);
    roff.control("SH", ["SYNOPSIS"]).text([italic("/etc/ribtide/ribtide.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([
        roman("The file is TOML. "),
        bold("ribtide check"),
        roman(" prints every error with line, column and correction, "),
        bold("ribtide reload"),
        roman(" applies a changed file to the running router. A key that is not listed here is refused. NAME stands for a name of your own."),
    ]);
    roff.control("SH", ["TABLES"]);
    table(&schema, &schema, String::new(), &mut Vec::new(), &mut roff);
    roff.control("SH", ["FILES"]);
    roff.control("TP", []).text([italic("/etc/ribtide/ribtide.toml")]);
    roff.text([roman("The configuration. Its reader is the user of the router.")]);
    roff.control("TP", []).text([italic("/usr/share/doc/ribtide")]);
    roff.text([roman("The documents: configuration.md explains each table, deployments.md has examples.")]);
    roff.control("SH", ["SEE ALSO"]).text([
        bold("ribtide"),
        roman("(1), "),
        bold("ribtide-check"),
        roman("(1)"),
    ]);
    roff.render()
}

/// The keys of a table, then the tables inside of it. `outer` has the tables around it: a table inside of itself ends there.
fn table<'a>(schema: &'a Value, at: &'a Value, path: String, outer: &mut Vec<&'a Value>, roff: &mut Roff) {
    let Some(keys) = properties(at) else { return };
    if outer.iter().any(|table| ptr::eq(*table, at)) {
        return;
    }
    outer.push(at);
    for (name, key) in keys.iter().filter(|_| !path.is_empty()) {
        roff.control("TP", []).text(head(at, name, key));
        let text = description(key);
        roff.text([roman(if text.is_empty() { "A table, see below." } else { text.as_str() })]);
    }
    for (name, key) in keys {
        let Some(inner) = object(schema, key) else { continue };
        let dot = if path.is_empty() { "" } else { "." };
        let by_name = has(schema, key, "additionalProperties");
        let inner_path = format!("{path}{dot}{name}{}", if by_name { ".NAME" } else { "" });
        // A table inside of a list is written in the list's brackets.
        let shown =
            if has(schema, key, "items") { format!("[[{inner_path}]]") } else { format!("[{inner_path}]") };
        roff.control("SS", [shown.as_str()]);
        let text = description(key);
        if path.is_empty() && !text.is_empty() {
            roff.text([roman(text)]);
        }
        table(schema, inner, inner_path, outer, roff);
    }
    outer.pop();
}

/// The first line of a key: its name and its default.
fn head(table: &Value, name: &str, key: &Value) -> Vec<Inline> {
    let mut line = vec![bold(name)];
    if requires(table, name) {
        line.push(roman(" (required)"));
    } else {
        match default(key) {
            None => {}
            Some(Default::Text(text)) => line.push(roman(format!(" (default: {text})"))),
            Some(Default::Value(value)) => line.extend([roman(" (default: "), italic(value), roman(")")]),
        }
    }
    line
}

/// Whether the schema of a key, or one of its alternatives, has a list of tables (`items`) or tables by name
/// (`additionalProperties`).
fn has(schema: &Value, key: &Value, inside: &str) -> bool {
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|of| key.get(of)?.as_array()).flatten();
    [key]
        .into_iter()
        .chain(alternatives)
        .any(|one| one.get(inside).is_some_and(|inner| object(schema, inner).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_tables_keys_and_defaults() {
        let page = page();
        for table in
            ["[router]", "[bgp.group.NAME]", "[[bgp.group.NAME.neighbor]]", "[[static]]", "[fib.kernel]"]
        {
            assert!(page.contains(&format!(".SS {table}\n")), "{table}");
        }
        let (_, router) = page.split_once(".SS [router]\n").unwrap();
        assert!(router.split_once(".SS").unwrap().0.contains("\\fBasn\\fR (required)"), "{router}");
        let (_, api) = page.split_once(".SS [api]\n").unwrap();
        assert!(api.contains("/run/ribtide/ribtide.sock"));
    }
}
