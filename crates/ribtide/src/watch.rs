//! `ribtide watch`: a prefix in each stage, again after each change.

use crate::client::Client;
use crate::show::{Output, explain_query, explain_text};
use crate::text::{end_of_reader, is_reader_gone, write_stdout};
use ribtide_model::Explain;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Prints what `ribtide explain` says of a prefix, and again when that changes, until the output or the router ends. With
/// `changes`, ends after so many.
pub(crate) fn run(
    prefix: &str,
    vrf: Option<&str>,
    neighbor: Option<IpAddr>,
    interval: f64,
    changes: Option<u64>,
    output: &Output,
) -> Result<(), String> {
    let (client, began) = (Client::of(output)?, Instant::now());
    let path = format!("/v1/explain?{}", explain_query(prefix, vrf, neighbor));
    let mut last: Option<String> = None;
    let mut left = changes;
    loop {
        let mut reply: Explain = client.get(&path)?;
        // Times go on without a change.
        reply.stages.iter_mut().for_each(|stage| stage.seconds = None);
        let text = match output.json {
            true => serde_json::to_string(&reply).map_err(|e| e.to_string())? + "\n",
            false => explain_text(&reply),
        };
        if last.as_ref() != Some(&text) {
            let head = match output.json {
                true => String::new(),
                false => format!("{:.1} s\n", began.elapsed().as_secs_f64()),
            };
            write_stdout(&format!("{head}{text}"))?;
            // The first output is the present state, and no change.
            if last.replace(text).is_some()
                && let Some(n) = &mut left
            {
                *n = n.saturating_sub(1);
            }
        }
        if left == Some(0) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs_f64(interval));
        // `| head`: without a change nothing would be written, and so nothing notice.
        if is_reader_gone() {
            end_of_reader();
        }
    }
}

/// The value of `--interval`: seconds.
pub(crate) fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds from 0.1 to 3600".into())
}
