//! The exit statuses of the program; docs/operations.md has when it ends with each.

use std::process::ExitCode;

/// How the program ends, as its caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// All went well.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The command line or the configuration is wrong; of `route-check` also: the comparison failed; of `check --diff`: a
    /// reload would change something.
    Unusable = 2,
    /// The system denies a permission.
    Permission = 3,
    /// An address or a socket cannot be listened on.
    Listen = 4,
    /// A database cannot be reached.
    Database = 5,
    /// Another daemon does not answer, or was started again.
    Peer = 6,
    /// The kernel lacks what a dataplane needs.
    #[cfg(feature = "router")]
    Kernel = 7,
    /// The system gives no thread or shows no interfaces.
    System = 8,
}

// The next status is the watchdog's, whose thread ends the process.
const _: () = assert!(ribtide_runtime::watchdog::STALL_EXIT_STATUS == Exit::System as u8 + 1);

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl From<&ribtide_sonicd::Error> for Exit {
    fn from(error: &ribtide_sonicd::Error) -> Exit {
        use ribtide_sonicd::Error;
        match error {
            Error::Configuration(_) => Exit::Unusable,
            Error::Permission(_) => Exit::Permission,
            Error::Listen(_) => Exit::Listen,
            Error::Database(_) => Exit::Database,
            Error::Peer(_) => Exit::Peer,
            Error::System(_) => Exit::System,
            Error::Failed(_) => Exit::Failed,
        }
    }
}

#[cfg(feature = "router")]
impl From<&ribtide_daemon::router::StartError> for Exit {
    fn from(error: &ribtide_daemon::router::StartError) -> Exit {
        use ribtide_daemon::router::{ListenError, StartError};
        use std::io::{Error, ErrorKind};
        let of = |e: &Error, otherwise: Exit| match e.kind() {
            ErrorKind::PermissionDenied => Exit::Permission,
            ErrorKind::InvalidInput => Exit::Unusable,
            // No thread, or no memory for one.
            ErrorKind::WouldBlock | ErrorKind::OutOfMemory => Exit::System,
            _ => otherwise,
        };
        match error {
            StartError::Vrf(_) => Exit::Unusable,
            StartError::Api(ListenError::InUse(_) | ListenError::Occupied(_)) => Exit::Listen,
            StartError::Api(
                ListenError::Unix(_, e) | ListenError::Group(_, _, e) | ListenError::Tcp(_, e),
            ) => of(e, Exit::Listen),
            StartError::Bgp(e) | StartError::Bfd(e) => of(e, Exit::Listen),
            StartError::Kernel(e) => of(e, Exit::Kernel),
            StartError::Asic(error) => Exit::from(error),
            StartError::Thread(_)
            | StartError::Rpki(_)
            | StartError::Monitor(_)
            | StartError::Rib(_)
            | StartError::Busy(_) => Exit::System,
        }
    }
}
