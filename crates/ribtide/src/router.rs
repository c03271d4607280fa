//! `ribtide run`, `ribtide check` and `ribtide schema`: the router and its configuration.

use crate::exit::Exit;
use crate::{Failure, start_log, text};
use ribtide_config as config;
use ribtide_daemon::router::Router;
use ribtide_runtime::log::target;
use std::fmt::Display;
use std::path::Path;

/// Starts the router of a configuration and runs it until a signal.
pub(crate) fn run(path: &Path) -> Result<(), Failure> {
    let config = config::load(path).map_err(|e| Failure::new(Exit::Unusable, e))?;
    // Whoever reloads need not be where the router was started.
    let file = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    start_log(&config.log)?;
    for warning in config.warnings() {
        tracing::warn!(target: target::ROUTER, file = %path.display(), "{warning}");
    }
    let failed = |exit: Exit, error: &dyn Display| {
        tracing::error!(target: target::ROUTER, "{error}");
        Failure { exit, sentence: None }
    };
    let router = Router::start(config, Some(file)).map_err(|e| failed(Exit::from(&e), &e))?;
    let socket = router.socket().display();
    tracing::info!(
        target: target::ROUTER,
        version = env!("CARGO_PKG_VERSION"),
        %socket,
        "the router is running; `ribtide show bgp summary --socket {socket}` looks inside"
    );
    router.run_until_signal().map_err(|e| failed(Exit::Failed, &e))
}

/// `ribtide check`: whether a configuration is valid.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let config = config::load(path).map_err(|e| e.to_string())?;
    let neighbors = config.bgp.as_ref().map_or(0, |b| b.neighbors.len());
    let (neighbors, statics) = (
        text::count(neighbors as u64, "neighbour"),
        text::count(config.statics.len() as u64, "static route"),
    );
    config.warnings().iter().for_each(|w| text::write_stderr(&format!("{}: warning: {w}", path.display())));
    text::write_stdout(&format!("{}: valid; AS {}, {neighbors}, {statics}\n", path.display(), config.asn))
}

/// `ribtide schema`: the shape of the configuration.
pub(crate) fn schema() -> Result<(), String> {
    text::write_stdout(&format!("{:#}\n", config::schema()))
}
