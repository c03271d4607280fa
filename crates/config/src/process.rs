//! The `[process]` table: the privileges of the router.

use super::check::Checker;
use super::diagnosis::key;
use super::file::{self, SeccompMode};
use nix::unistd::User;
use ribtide_privileges::Seccomp;

/// The `[process]` table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessConfig {
    /// The user that the router becomes; `None`: it stays the user that started it.
    pub user: Option<User>,
    /// The filter of system calls.
    pub seccomp: Seccomp,
}

impl Checker {
    /// Checks the `[process]` table.
    pub(super) fn process(&mut self, file: &file::Process) -> ProcessConfig {
        let user = file.user.as_ref().and_then(|name| {
            let message = match User::from_name(name) {
                Ok(Some(user)) => return Some(user),
                Ok(None) => format!(
                    "this system has no user \"{name}\"; make it (useradd --system {name}), or write one that `getent passwd` \
                     lists"
                ),
                Err(e) => format!("the system does not say whether there is a user \"{name}\": {e}"),
            };
            self.problem(key!["process", "user"], message);
            None
        });
        let seccomp = match file.seccomp {
            None | Some(file::Seccomp::Switch(true)) => Seccomp::Deny,
            Some(file::Seccomp::Mode(SeccompMode::Log)) => Seccomp::Log,
            Some(file::Seccomp::Switch(false)) => Seccomp::Off,
        };
        ProcessConfig { user, seccomp }
    }
}
