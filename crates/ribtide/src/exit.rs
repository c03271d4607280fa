//! The exit statuses of the program, one list for the code and for docs/operations.md.

use std::process::ExitCode;

/// How the program ends, as its caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
// SONiC's daemons alone print no reference.
#[cfg_attr(not(feature = "router"), allow(dead_code))]
pub(crate) enum Exit {
    /// All went well.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The command line is wrong; of `route-check` also: the comparison failed.
    Unusable = 2,
    /// A thread failed.
    Aborted = 134,
}

impl Exit {
    /// All statuses, in the order of their numbers.
    #[cfg(feature = "router")]
    pub(crate) const ALL: [Exit; 4] = [Exit::Done, Exit::Failed, Exit::Unusable, Exit::Aborted];

    /// When the program ends so: a sentence for the reference, in Markdown.
    #[cfg(feature = "router")]
    pub(crate) const fn when(self) -> &'static str {
        match self {
            Exit::Done => {
                "The command did what it says. `run`: stopped by SIGTERM or SIGINT. \
                 `route-check`: all agree"
            }
            Exit::Failed => {
                "The command failed: a configuration with errors, a router that cannot start or be reached, a change that was \
                 refused. The last lines on standard error have what is wrong, where, and what to do. `route-check`: routes \
                 differ. `flush`: routes or objects are left"
            }
            Exit::Unusable => {
                "The command line is wrong; standard error has the usage. `route-check`: the comparison failed"
            }
            Exit::Aborted => {
                "SIGABRT: a thread failed, and the process with it, so that no route is silently lost. Standard error names \
                 the thread; the supervisor starts the program again"
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
