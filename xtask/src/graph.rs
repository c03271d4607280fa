//! The invariant "arrows point down only", for this workspace's crates and for those of others. Cargo says what each
//! crate depends on, however its manifest writes it.

use crate::Tree;
use crate::clippy::PURE;
use crate::tree::read;
use serde_json::Value;
use std::collections::BTreeSet;

/// A crate's row of the graph.
struct Row {
    name: &'static str,
    /// The crates of this workspace that its code may use.
    uses: &'static [&'static str],
    /// The crates of this workspace that its tests may use beside those.
    tests_use: &'static [&'static str],
}

const fn row(name: &'static str, uses: &'static [&'static str], tests_use: &'static [&'static str]) -> Row {
    Row { name, uses, tests_use }
}

/// What each crate may depend on. The folders are the architecture: arrows point down only.
const GRAPH: &[Row] = &[
    row("prefix", &[], &[]),
    row("wire", &["prefix"], &[]),
    row("rpki", &["prefix", "wire"], &[]),
    row("policy", &["prefix", "wire", "rpki"], &[]),
    row("bgp", &["prefix", "wire", "rpki", "policy"], &[]),
    row("bfd", &["prefix", "wire"], &[]),
    row("rib", &["prefix"], &[]),
    row("sai", &[], &[]),
    row("swss", &["prefix", "wire", "sai"], &[]),
    row("runtime", &[], &[]),
    row("vswitch", &["prefix", "sai", "swss"], &[]),
    row("sai-library", &["prefix", "sai", "swss"], &[]),
    row("tables", &["prefix", "swss", "runtime"], &[]),
    row("text", &[], &[]),
    row("privileges", &[], &[]),
    row("settings", &[], &[]),
    row("model", &["prefix", "runtime"], &[]),
    row("netlink", &["prefix", "wire", "runtime"], &[]),
    row("kernel-chip", &["prefix", "wire", "swss", "runtime", "vswitch", "netlink"], &["sai"]),
    row(
        "sonicd",
        &[
            "prefix",
            "wire",
            "sai",
            "swss",
            "runtime",
            "vswitch",
            "sai-library",
            "tables",
            "settings",
            "privileges",
            "model",
            "netlink",
            "kernel-chip",
        ],
        &[],
    ),
    row(
        "config",
        &["prefix", "wire", "policy", "rpki", "bgp", "rib", "runtime", "vswitch", "settings", "privileges"],
        &[],
    ),
    row("dataplane", &["prefix", "wire", "rib", "runtime", "netlink", "config"], &[]),
    row(
        "asic",
        &[
            "prefix",
            "wire",
            "rib",
            "swss",
            "runtime",
            "vswitch",
            "tables",
            "model",
            "sonicd",
            "config",
            "dataplane",
        ],
        &["ribd"],
    ),
    row("bfdd", &["prefix", "wire", "bfd", "rib", "runtime", "config"], &[]),
    row("rpkid", &["prefix", "wire", "rpki", "runtime", "config"], &[]),
    row("ribd", &["prefix", "wire", "policy", "bgp", "rib", "runtime", "config", "dataplane"], &[]),
    row(
        "bgpd",
        &[
            "prefix",
            "wire",
            "rpki",
            "policy",
            "bgp",
            "bfd",
            "rib",
            "runtime",
            "config",
            "dataplane",
            "bfdd",
            "ribd",
        ],
        &[],
    ),
    row("bmpd", &["prefix", "wire", "bgp", "runtime", "config", "bgpd"], &["policy"]),
    row("mrtd", &["prefix", "wire", "bgp", "runtime", "config", "bgpd"], &[]),
    row(
        "api",
        &[
            "prefix",
            "wire",
            "rpki",
            "policy",
            "bgp",
            "rib",
            "swss",
            "runtime",
            "vswitch",
            "model",
            "sonicd",
            "config",
            "dataplane",
            "asic",
            "bfdd",
            "rpkid",
            "ribd",
            "bgpd",
            "bmpd",
            "mrtd",
        ],
        &[],
    ),
    row(
        "daemon",
        &[
            "prefix",
            "rib",
            "runtime",
            "model",
            "config",
            "dataplane",
            "asic",
            "bfdd",
            "rpkid",
            "ribd",
            "bgpd",
            "bmpd",
            "mrtd",
            "api",
        ],
        &["wire", "policy", "bgp"],
    ),
    row("bench", &["prefix", "wire", "rib", "swss", "runtime", "tables", "text"], &["bgp", "policy"]),
    row(
        "sim",
        &[
            "prefix",
            "wire",
            "policy",
            "bgp",
            "rib",
            "swss",
            "tables",
            "runtime",
            "vswitch",
            "netlink",
            "config",
            "dataplane",
        ],
        &["sai"],
    ),
    row(
        "ribtide",
        &[
            "prefix",
            "runtime",
            "text",
            "settings",
            "privileges",
            "model",
            "sonicd",
            "config",
            "dataplane",
            "daemon",
            "bench",
        ],
        &[],
    ),
];

/// What the code of pure crates may use of other projects: data structures, without threads, clocks or sockets.
const EXTERNAL: &[(&str, &[&str])] = &[
    ("prefix", &["foldhash", "hashbrown"]),
    ("wire", &[]),
    ("policy", &[]),
    ("bgp", &["foldhash", "hashbrown", "smallvec", "triomphe"]),
    ("bfd", &[]),
    ("rib", &["foldhash", "hashbrown"]),
    ("sai", &["serde_json"]),
    ("swss", &["foldhash", "hashbrown", "itoa", "smallvec"]),
];

/// What `ribtide` without its default features is built without: SONiC's daemons need neither BGP nor an HTTP server.
const NOT_FOR_SONIC: &[&str] = &["ribtide-bgp", "ribtide-api", "axum", "hyper", "tokio"];

/// Every dependency that the graph does not have, and those of SONiC's daemons that their build may not have.
pub fn check(tree: &Tree) -> Vec<String> {
    let output = tree.cargo().args(["metadata", "--no-deps", "--format-version=1"]).output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            return vec![format!(
                "cargo metadata failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )];
        }
        Err(e) => return vec![format!("cargo metadata cannot be run: {e}")],
    };
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let mut faults = Vec::new();
    for package in packages {
        let full = package["name"].as_str().expect("a package has a name");
        let name = full.strip_prefix("ribtide-").unwrap_or(full);
        if name == "xtask" {
            continue;
        }
        let Some(row) = GRAPH.iter().find(|row| row.name == name) else {
            faults.push(format!("{name}: not in the crate graph of xtask/src/graph.rs and ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("cargo lists dependencies") {
            let used = dependency["name"].as_str().expect("a dependency has a name");
            // Cargo's kinds: null for code, "build" for what builds it, "dev" for its tests.
            let tests = dependency["kind"] == "dev";
            let kind = dependency["kind"].as_str().map(|kind| format!(" ({kind})")).unwrap_or_default();
            let fault = if dependency["path"].is_string() {
                let own = used.strip_prefix("ribtide-").unwrap_or(used);
                let allowed = row.uses.contains(&own) || tests && row.tests_use.contains(&own);
                (!allowed).then(|| format!("may not depend on {own}{kind}; arrows point down only"))
            } else {
                let allowed = EXTERNAL.iter().find(|(n, _)| *n == name).map(|(_, allowed)| allowed);
                let allowed = tests || allowed.is_none_or(|allowed| allowed.contains(&used));
                (!allowed).then(|| format!("is pure and may not depend on {used}{kind}; see EXTERNAL there"))
            };
            faults.extend(fault.map(|fault| format!("crates/{name}/Cargo.toml: {name} {fault}")));
        }
        for target in package["targets"].as_array().expect("cargo lists targets") {
            let builds =
                target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "custom-build"));
            if builds && PURE.contains(&name) {
                faults.push(format!("crates/{name}: {name} is pure and may not have a build script"));
            }
        }
        // Cargo does not say whose lints a crate has.
        let manifest = package["manifest_path"].as_str().expect("a package has a manifest");
        if !read(manifest.as_ref()).contains("\n[lints]\nworkspace = true\n") {
            faults
                .push(format!("crates/{name}/Cargo.toml: lacks the lines `[lints]` and `workspace = true`"));
        }
    }
    // Only a graph that holds is looked into further: each fault is told once.
    if faults.is_empty() {
        faults = sonic_build(tree);
    }
    faults
}

/// What `cargo build -p ribtide --no-default-features` would build and may not.
fn sonic_build(tree: &Tree) -> Vec<String> {
    let arguments = ["-p", "ribtide", "--no-default-features", "--edges=normal,build"];
    let output = tree.cargo().arg("tree").args(arguments).args(["--prefix=none", "--format={p}"]).output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            return vec![format!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr).trim())];
        }
        Err(e) => return vec![format!("cargo tree cannot be run: {e}")],
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let built: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let unwanted = NOT_FOR_SONIC.iter().filter(|name| built.contains(**name));
    unwanted
        .map(|name| {
            format!(
                "ribtide without its default features depends on {name}, which SONiC's daemons do without; \
                 `cargo tree -p ribtide --no-default-features -i {name}` shows through what"
            )
        })
        .collect()
}
