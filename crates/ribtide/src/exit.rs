//! The exit statuses of the program; docs/operations.md has when it ends with each.

use std::process::ExitCode;

/// How the program ends, as its caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// All went well.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The command line is wrong; of `route-check` also: the comparison failed.
    Unusable = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
