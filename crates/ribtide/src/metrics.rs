//! `ribtide metrics`: the metrics of SONiC's daemons, which serve no HTTP.

use crate::text;
use clap::Args;
use ribtide_sonicd::metrics;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Of SONiC's daemons, from STATE_DB; of every ASIC, unless NAMESPACE_ID names one. The router serves
    /// its own at /metrics
    #[arg(long, required = true)]
    sonic: bool,
    /// SONiC's database_config.json, if not in its usual place
    #[arg(long, value_name = "FILE")]
    database_config: Option<PathBuf>,
    /// Replace this file in one step instead of printing, so that its reader never sees a part
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Prints the metrics, or replaces the file.
///
/// # Errors
/// A sentence when the databases cannot be read, or the file cannot be written.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let text = metrics::of_daemons(options.database_config.as_deref()).map_err(|e| e.to_string())?;
    match &options.output {
        Some(path) => replace(path, &text).map_err(|e| format!("{}: {e}", path.display())),
        None => text::write_stdout(&text),
    }
}

/// node_exporter reads each `*.prom` of its folder, so the temporary file has another ending.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
