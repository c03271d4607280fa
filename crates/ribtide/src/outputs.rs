//! The JSON Schema of what each command prints with `--json`, from the types that are printed. `ribtide schema --outputs`
//! prints it, and contrib/outputs.schema.json is the same.

use crate::check::Difference;
use ribtide_config::PolicyTest;
use ribtide_dataplane::kernel::flush::Flushed;
use ribtide_model as model;
use ribtide_sonicd::config_db::Written;
use ribtide_sonicd::pipeline::DaemonPipeline;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What a command prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// One document.
    Document,
    /// A line for each item.
    Lines,
}

/// A command without its arguments, what it prints, and the schema of the document or of a line.
struct Output {
    command: &'static str,
    form: Form,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn document<T: JsonSchema>(command: &'static str) -> Output {
    Output { command, form: Form::Document, schema: of::<T> }
}

const fn lines<T: JsonSchema>(command: &'static str) -> Output {
    Output { command, form: Form::Lines, schema: of::<T> }
}

/// Every command with `--json`; several forms of one where an option or an argument decides.
const OUTPUTS: &[Output] = &[
    document::<model::BgpSummary>("show bgp summary"),
    document::<model::Neighbor>("show bgp neighbor NEIGHBOR"),
    document::<Vec<model::Neighbor>>("show bgp neighbor"),
    lines::<model::AdvertisedRoute>("show bgp neighbor NEIGHBOR advertised"),
    lines::<model::ReceivedRoute>("show bgp neighbor NEIGHBOR received"),
    lines::<model::ReceivedRoute>("show bgp neighbor NEIGHBOR filtered"),
    document::<model::RecordedMessages>("show bgp neighbor NEIGHBOR messages"),
    lines::<model::Route>("show bgp route"),
    document::<Vec<model::Group>>("show bgp group"),
    document::<model::TrackedNextHops>("show bgp nexthop"),
    document::<model::Aggregates>("show bgp aggregate"),
    lines::<model::Route>("show route"),
    document::<model::RouteSummary>("show route summary"),
    lines::<model::FibRoute>("show route vrf"),
    lines::<model::FailedRoute>("show route failed"),
    document::<model::Sharding>("show route rib-sharding"),
    lines::<model::Route>("show route rib-sharding SHARD"),
    lines::<model::FibRoute>("show route rib-sharding main"),
    lines::<model::FibRoute>("show fib"),
    document::<model::NextHopGroupPage>("show nexthop-group"),
    document::<model::Interfaces>("show interface"),
    document::<model::Vrfs>("show vrf"),
    document::<model::StaticRoutes>("show static"),
    document::<model::Version>("show version"),
    document::<model::Bfd>("show bfd"),
    document::<model::Rpki>("show rpki caches"),
    lines::<model::RpkiPayload>("show rpki table"),
    lines::<model::RpkiAspa>("show rpki aspa"),
    document::<model::RpkiValidation>("show rpki validation"),
    document::<model::Bmp>("show bmp"),
    document::<model::Mrt>("show mrt"),
    document::<model::Fpm>("show fpm"),
    document::<model::AsicState>("show asic"),
    document::<model::AsicLookups>("show asic ADDRESS"),
    document::<model::Pipeline>("show pipeline"),
    document::<Vec<DaemonPipeline>>("show pipeline --sonic"),
    document::<model::Health>("show health"),
    document::<BTreeMap<String, model::Health>>("show health --sonic"),
    document::<model::Threads>("show threads"),
    document::<model::RunningConfiguration>("show configuration"),
    lines::<model::LogEvent>("show log"),
    document::<Vec<model::Performance>>("show performance"),
    lines::<model::PerformanceRecord>("show performance STAGE"),
    document::<Difference>("check --diff"),
    document::<model::Explain>("explain"),
    lines::<model::LogEvent>("monitor"),
    lines::<model::Explain>("watch"),
    lines::<model::RouteCheck>("route-check"),
    document::<model::Cleared>("clear bgp neighbor"),
    document::<model::Resized>("config bgp shards"),
    document::<model::SuppressionSet>("config fib suppress-fib-pending"),
    document::<model::NextHopCacheSet>("config fib nexthop-cache"),
    document::<Written>("config sonic"),
    document::<model::AsicFaults>("config asic refuse"),
    document::<model::AsicFaults>("config asic take"),
    document::<model::AsicState>("config asic set"),
    document::<model::AsicState>("config asic stall"),
    document::<model::AsicState>("config asic resume"),
    document::<model::MrtPage>("dump mrt"),
    document::<model::MrtMessages>("dump messages"),
    document::<model::Reloaded>("reload"),
    document::<model::RoutesChanged>("route add"),
    document::<model::RoutesChanged>("route delete"),
    document::<Vec<model::OwnedRoute>>("route list"),
    document::<Vec<PolicyTest>>("policy test"),
    document::<Flushed>("flush"),
];

/// The document. `outputs` has each command with its form and a schema that refers to `$defs`.
pub(crate) fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut outputs: Map<String, Value> = Map::new();
    for output in OUTPUTS {
        let form = match output.form {
            Form::Document => "document",
            Form::Lines => "lines",
        };
        let schema = (output.schema)(&mut generator).to_value();
        outputs.insert(output.command.into(), json!({ "form": form, "schema": schema }));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What ribtide prints with --json",
        "description": "outputs has, for each command, whether it prints one document or a line for each item, and the \
                        schema of the document or of each line. Times are in seconds, sizes in bytes. A field that does \
                        not apply is absent.",
        "outputs": outputs,
        "$defs": generator.take_definitions(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, CommandFactory};

    /// The commands below `command` that take `--json`, by their words.
    fn with_json(command: &Command, words: &str, inherited: bool, found: &mut Vec<String>) {
        let has = inherited || command.get_arguments().any(|argument| argument.get_long() == Some("json"));
        let below: Vec<&Command> =
            command.get_subcommands().filter(|below| below.get_name() != "help").collect();
        // Those that do something without a subcommand.
        if has && !words.is_empty() && (below.is_empty() || !command.is_subcommand_required_set()) {
            found.push(words.to_owned());
        }
        for below in below {
            with_json(below, format!("{words} {}", below.get_name()).trim(), has, found);
        }
    }

    #[test]
    fn every_command_with_json_has_a_schema() {
        let mut found = Vec::new();
        with_json(&crate::Cli::command(), "", false, &mut found);
        // Reports of load and measurements have the form of their suite.
        found.retain(|words| {
            !["bench", "replay", "blast", "sink", "demo"].contains(&words.split(' ').next().unwrap_or(""))
        });
        assert!(found.len() > 40, "{found:?}");
        let is_described = |words: &String| {
            OUTPUTS
                .iter()
                .any(|output| output.command == *words || output.command.starts_with(&format!("{words} ")))
        };
        let missing: Vec<&String> = found.iter().filter(|words| !is_described(words)).collect();
        assert!(missing.is_empty(), "crates/ribtide/src/outputs.rs lacks {missing:?}");
        // What is described exists: the words before arguments and options are a command.
        let is_word =
            |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with("--");
        for output in OUTPUTS {
            let words: Vec<&str> = output.command.split(' ').take_while(is_word).collect();
            let known = |n: usize| found.contains(&words[..n].join(" "));
            assert!((1..=words.len()).any(known), "there is no {}", output.command);
        }
    }

    #[test]
    fn no_schema_permits_everything() {
        let schema = schema();
        for (command, output) in schema["outputs"].as_object().unwrap() {
            let one = &output["schema"];
            let inner = one.get("items").or(one.get("additionalProperties")).unwrap_or(one);
            let name = inner["$ref"].as_str().unwrap_or_else(|| panic!("{command}: {one}"));
            let definition = schema.pointer(name.trim_start_matches('#')).unwrap();
            assert!(
                definition.get("properties").is_some() || definition.get("oneOf").is_some(),
                "{command}: {definition}"
            );
        }
    }
}
