//! `ribtide run`, `ribtide check` and `ribtide schema`: the router and its configuration.

use crate::text;
use ribtide_config as config;
use ribtide_daemon::router::Router;
use std::path::Path;

/// Starts the router of a configuration and runs it until a signal.
pub(crate) fn run(path: &Path) -> Result<(), String> {
    let config = config::load(path).map_err(|e| e.to_string())?;
    // Whoever reloads need not be where the router was started.
    let file = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    warn(path, &config);
    let router = Router::start(config, Some(file)).map_err(|e| e.to_string())?;
    let at = router.socket().display();
    text::write_stderr(&format!("running; `ribtide show bgp summary --socket {at}` looks inside"));
    router.run_until_signal().map_err(|e| e.to_string())
}

/// Prints the warnings of a valid configuration.
fn warn(path: &Path, config: &config::Config) {
    for warning in config.warnings() {
        text::write_stderr(&format!("{}: warning: {warning}", path.display()));
    }
}

/// `ribtide check`: whether a configuration is valid.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let config = config::load(path).map_err(|e| e.to_string())?;
    let neighbors = config.bgp.as_ref().map_or(0, |b| b.neighbors.len());
    let (neighbors, statics) = (
        text::count(neighbors as u64, "neighbour"),
        text::count(config.statics.len() as u64, "static route"),
    );
    warn(path, &config);
    text::write_stdout(&format!("{}: valid; AS {}, {neighbors}, {statics}\n", path.display(), config.asn))
}

/// `ribtide schema`: the shape of the configuration.
pub(crate) fn schema() -> Result<(), String> {
    text::write_stdout(&format!("{:#}\n", config::schema()))
}
