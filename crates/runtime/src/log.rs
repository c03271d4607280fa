//! The log: lines on standard error, where service managers collect them.

use std::io::Write as _;

/// Writes `who: sentence` as one line. A closed standard error is ignored, where `eprintln!` would
/// panic.
pub fn log(who: &str, sentence: &str) {
    let line = format!("{who}: {sentence}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
