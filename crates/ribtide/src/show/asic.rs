//! The virtual ASIC itself: of the router, or of a syncd that runs as a process.

use crate::text::{Table, number};
use ribtide_model::{ApiError, AsicState};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The reply of the syncd at `path` to a query or a command.
pub(crate) fn of_syncd(path: &Path, line: &str) -> Result<AsicState, String> {
    let failed = |e: std::io::Error| {
        format!("no syncd answers at {}: {e}; start one with --query-socket", path.display())
    };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    writeln!(stream, "{line}").map_err(failed)?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).map_err(failed)?;
    serde_json::from_str(&reply).map_err(|e| match serde_json::from_str::<ApiError>(&reply) {
        Ok(refused) => refused.error,
        Err(_) => format!("the reply of syncd cannot be read ({e}); is it another version?"),
    })
}

/// Its settings, entries and work.
pub(crate) fn state(s: &AsicState) -> String {
    let mut out = match (s.stalled, s.stalled_seconds) {
        (false, _) => String::new(),
        (true, Some(seconds)) => format!("Stalled for {seconds:.1} s more: it does nothing\n"),
        (true, None) => "Stalled until `ribtide config asic resume`: it does nothing\n".into(),
    };
    out += &format!(
        "{} entries in {} calls; {} failed\n",
        number(s.requested),
        number(s.calls),
        number(s.failed)
    );
    if s.busy_seconds > 0.0 {
        let share = 100.0 * s.busy_seconds / (s.busy_seconds + s.idle_seconds);
        out += &format!(
            "Busy for {:.3} s, idle for {:.3} s in between: busy {share:.1}%\n",
            s.busy_seconds, s.idle_seconds
        );
    }
    let mut table = Table::new(&["Setting", ">Value", ">In use"]);
    for (name, value) in &s.settings {
        let used = s.entries.get(name).map_or_else(String::new, u64::to_string);
        table.row([name.clone(), value.clone(), used]);
    }
    out += &table.render();
    if !s.refused.is_empty() {
        out += &format!("Refuses routes of {}\n", s.refused.join(", "));
    }
    if !s.without_link.is_empty() {
        out += &format!("No link at {}\n", s.without_link.join(", "));
    }
    out
}
