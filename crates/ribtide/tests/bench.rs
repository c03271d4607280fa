//! `ribtide bench` on small tables: every workload runs, and a wrong router is detected. The
//! figures have no meaning.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const RIBTIDE: &str = env!("CARGO_BIN_EXE_ribtide");

fn bench(dut: &str, json: &Path, more: &[&str]) -> (Output, Value) {
    let mut command = Command::new(RIBTIDE);
    command.args([
        "bench",
        "run",
        "bgp",
        "--loopback",
        "--runs",
        "1",
        "--prefixes",
        "0.002",
        "--receivers",
        "0.1",
    ]);
    command.args(["--dut", dut, "--json"]).arg(json).args(more);
    let output = command.output().unwrap();
    let report = fs::read_to_string(json).unwrap_or_else(|e| panic!("no report: {e}; {output:?}"));
    (output, serde_json::from_str(&report).unwrap())
}

fn phases(report: &Value) -> impl Iterator<Item = &Value> {
    report["scenarios"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|scenario| scenario["runs"].as_array().into_iter().flatten())
        .flat_map(|run| run["phases"].as_array().into_iter().flatten())
}

#[test]
fn every_workload_runs_and_ends_right() {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = bench("ribtide:shards=2", &folder.path().join("report.json"), &[]);
    assert!(output.status.success(), "{output:?}");
    let names: Vec<&str> = phases(&report).map(|phase| phase["phase"].as_str().unwrap()).collect();
    let wanted = [
        "learn",
        "withdraw",
        "late joiner",
        "reflect",
        "flap",
        "late joiner",
        "single",
        "late joiner",
        "scale",
        "late joiner",
        "churn: learn",
        "churn: 20% change",
        "churn: 20% withdrawn",
        "churn: announced again",
        "churn: sender leaves",
        "late joiner",
        "receivers",
        "late joiner",
    ];
    assert_eq!(names, wanted);
    for phase in phases(&report) {
        assert!(phase["wrong"].is_null() && phase["wall_s"].is_f64(), "{phase}");
        assert!(phase["cpu_s"].as_f64() > Some(0.0) && phase["peak_bytes"].as_u64() > Some(0), "{phase}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ribtide:shards=2") && text.contains("threads, CPU s: learn"), "{text}");
}

/// The workloads that add, replace and remove routes.
#[test]
fn ipv6_routes_end_correct_as_ipv4_routes_do() {
    let folder = tempfile::tempdir().unwrap();
    let workloads = ["--work", "withdraw,flap,churn", "--family", "ipv6"];
    let (output, report) = bench("ribtide:shards=2", &folder.path().join("report.json"), &workloads);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(phases(&report).count(), 2 + 1 + 2 + 1 + 5 + 1);
    for phase in phases(&report) {
        assert!(phase["wrong"].is_null() && phase["wall_s"].is_f64(), "{phase}");
    }
    for scenario in report["scenarios"].as_array().unwrap() {
        assert_eq!(scenario["family"], "ipv6-unicast");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("x 200 prefixes of ipv6-unicast"), "{output:?}");
}

/// Each mode of the next-hop cache ends with the same correct FIB; else the suite reports it.
#[test]
fn every_mode_of_the_next_hop_cache_ends_correct() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let mut command = Command::new(RIBTIDE);
    command.args(["bench", "run", "nexthop-cache", "--runs", "1", "--routes", "0.01"]);
    command.args(["--dut", "off,epoch,dependency", "--json"]).arg(&json);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let workloads = report["works"].as_array().unwrap();
    assert_eq!([&workloads[0]["routes"], &workloads[1]["routes"]], [100, 10_000]);
    for workload in workloads {
        for run in workload["runs"].as_array().unwrap() {
            for phase in run["phases"].as_array().unwrap() {
                assert!(phase["wrong"].is_null() && phase["cpu_s"].as_f64() > Some(0.0), "{phase}");
            }
            let install = &run["phases"][0];
            let each = if run["subject"] == "off" { workload["routes"].as_u64() } else { Some(1) };
            assert_eq!(install["resolutions"].as_u64(), each, "{install}");
        }
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ecmp: 100 routes") && text.contains("link down"), "{text}");
}

/// A router that advertises nothing: ribtide with another configuration.
#[test]
fn a_wrong_router_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let liar = folder.path().join("liar");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = run ] && sed -i 's/^export = .*/export = [\"reject\"]/' \"$3\"\nexec {RIBTIDE} \"$@\"\n"
    );
    fs::write(&liar, script).unwrap();
    fs::set_permissions(&liar, fs::Permissions::from_mode(0o755)).unwrap();
    let dut = format!("ribtide:binary={}", liar.display());
    let (output, report) = bench(
        &dut,
        &folder.path().join("report.json"),
        &["--work", "learn", "--stall-timeout", "1", "--family", "ipv4,ipv6"],
    );
    assert!(!output.status.success());
    let wrong: Vec<&str> = phases(&report).filter_map(|phase| phase["wrong"].as_str()).collect();
    // Each family's receivers, and its late joiner.
    assert_eq!(wrong.len(), 4, "{report}");
    for wrong in wrong {
        assert!(wrong.starts_with("200 of 200 prefixes") && wrong.contains("is not there"), "{wrong}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("0 of 1 right") && text.contains("ipv4-unicast") && text.contains("ipv6-unicast"),
        "{text}"
    );
}
