//! `ribtide run` and `ribtide schema`: the router and its configuration.

use crate::exit::Exit;
use crate::{Failure, start_log, text};
use ribtide_config::{self as config, Config, ProcessConfig};
use ribtide_daemon::router::Router;
use ribtide_privileges::{self as privileges, CapabilitySet, Kept, Privileges};
use ribtide_runtime::log::target;
use ribtide_runtime::{allocator, code_pages, thread};
use std::fmt::Display;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;

/// How long the allocator keeps freed pages. With a second a table takes up to a third more at its
/// peak. With less than this a router has more page faults and no less memory that matters
/// (docs/perf/2026-11-bgp.md).
const PURGE_DELAY: Duration = Duration::from_millis(25);

/// Starts the router of a configuration and runs it until a signal.
pub(crate) fn run(path: &Path) -> Result<(), Failure> {
    allocator::set_purge_delay(PURGE_DELAY);
    let config = config::load(path).map_err(|e| Failure::new(Exit::Unusable, e))?;
    thread::hold_priority();
    let kept = reduce_privileges(&config)?;
    // A reload will have only the permissions that were kept.
    config::check_readable(path, &config).map_err(|e| {
        Failure::new(
            Exit::Permission,
            format!("{e}\n{kept}, and could not read its configuration again to reload it"),
        )
    })?;
    // A reload may come from another working directory than the start.
    let file = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    start_log(&config.log)?;
    for warning in config.warnings() {
        let line = warning.place.map(|(line, _)| line);
        tracing::warn!(target: target::ROUTER, file = %path.display(), line, "{warning}");
    }
    let failed = |exit: Exit, error: &dyn Display| {
        tracing::error!(target: target::ROUTER, "{error}");
        Failure { exit, sentence: None }
    };
    // Each of the two halves of the start has code that nothing uses afterwards.
    code_pages::unmap_start();
    let router = Router::start(config, Some(file), crate::COMMIT).map_err(|e| failed(Exit::from(&e), &e))?;
    thread::release_priority();
    let socket = router.socket();
    let socket = socket.display();
    tracing::info!(
        target: target::ROUTER,
        version = env!("CARGO_PKG_VERSION"),
        %socket,
        "the router is running; `ribtide show bgp summary --socket {socket}` looks inside"
    );
    tracing::info!(target: target::PROCESS, "{kept}");
    code_pages::unmap_start();
    router.run_until_signal().map_err(|e| failed(Exit::Failed, &e))
}

/// Gives up the privileges of root that a router does not use. The folder of the API socket is
/// created before, for the user that the router becomes.
fn reduce_privileges(config: &Config) -> Result<Kept, Failure> {
    let ProcessConfig { user, seccomp } = &config.process;
    if let (Some(user), Some(folder)) = (user, config.api.socket.parent())
        && !folder.exists()
    {
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        let made = std::fs::create_dir_all(folder).and_then(|()| chown(folder, Some(uid), Some(gid)));
        made.map_err(|e| {
            let folder = folder.display();
            let user = &user.name;
            let sentence = format!(
                "cannot create {folder} for the user \"{user}\": {e}; create it and give it to that user, or set \
                 api.socket to a path in another folder"
            );
            Failure::new(Exit::Permission, sentence)
        })?;
    }
    let privileges = Privileges {
        // Routes, TCP-MD5 and interfaces; ports below 1024; binding of sockets to interfaces.
        capabilities: CapabilitySet::NET_ADMIN | CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_RAW,
        user: user.clone(),
        group: config.api.socket_group.as_ref().map(|group| group.id),
        packet_sockets: false,
        seccomp: *seccomp,
    };
    privileges::reduce(&privileges).map_err(|e| Failure::new(Exit::Permission, e))
}

/// `ribtide schema`: the shape of the configuration.
pub(crate) fn schema() -> Result<(), String> {
    text::write_stdout(&format!("{:#}\n", config::schema()))
}
