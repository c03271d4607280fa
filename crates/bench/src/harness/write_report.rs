//! Output of reports, as text and JSON.

use crate::Error;
use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;

/// Prints a report, and writes it to a file as JSON where one is named.
///
/// # Errors
/// The file could not be written.
pub fn write_report(report: &(impl Display + serde::Serialize), json: Option<&Path>) -> Result<(), Error> {
    // A closed pipe wants no report.
    let _ = write!(std::io::stdout(), "{report}");
    let Some(path) = json else { return Ok(()) };
    let failed = |source| Error::File { path: path.to_owned(), source };
    let text = serde_json::to_string_pretty(report).map_err(|e| failed(e.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}
