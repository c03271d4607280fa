//! The privileges that a process gives up at its start: capabilities, its user, and system calls
//! (docs/security.md).
//!
//! [`reduce`] runs before the first thread exists, so each thread inherits the result, and nothing
//! works at the start that a later reload could not do.
#![forbid(unsafe_code)]

mod seccomp;

pub use rustix::thread::CapabilitySet;
pub use seccomp::Seccomp;

use nix::unistd::{Gid, Uid, User, getgroups, setgroups, setresgid, setresuid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread;
use std::ffi::CString;
use std::fmt;
use std::io;

/// Capabilities have numbers below this one.
const CAPABILITY_BITS: u32 = 64;

/// The privileges that a process keeps.
#[derive(Clone, Debug)]
pub struct Privileges {
    /// The capabilities, as far as the process has them.
    pub capabilities: CapabilitySet,
    /// The user that it becomes; `None`: it stays who it is.
    pub user: Option<User>,
    /// A group that it needs beside those of its user.
    pub group: Option<Gid>,
    /// Whether it makes packet sockets, which the filter denies otherwise.
    pub packet_sockets: bool,
    /// The filter of system calls.
    pub seccomp: Seccomp,
}

/// The privileges that a process has kept. Displays as in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    capabilities: CapabilitySet,
    user: Uid,
    seccomp: Seccomp,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> =
            self.capabilities.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
        let names = if names.is_empty() { "no capability".into() } else { names.join(", ") };
        write!(f, "the process runs with uid {} and {names}; {}", self.user, self.seccomp.describe())
    }
}

/// Why privileges cannot be reduced. Displays as a sentence.
#[derive(Debug)]
pub enum Error {
    /// Only root becomes another user.
    NotRoot(String, Uid),
    /// A step fails.
    Failed(&'static str, io::Error),
    /// The filter of system calls cannot be installed.
    Seccomp(String),
    /// The process has threads, which would keep their privileges.
    Threads(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotRoot(user, uid) => write!(
                f,
                "the process cannot become the user \"{user}\", because uid {uid} has started it; start it as root or as \
                 that user, or remove process.user"
            ),
            Error::Failed(step, e) => write!(f, "cannot {step}: {e}"),
            Error::Seccomp(e) => write!(
                f,
                "the kernel does not take the filter of system calls: {e}; switch it off (process.seccomp = false, or \
                 --seccomp off)"
            ),
            Error::Threads(n) => write!(f, "privileges are reduced before threads start, and there are {n}"),
        }
    }
}

impl std::error::Error for Error {}

fn failed<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Error {
    move |e| Error::Failed(step, e.into())
}

/// Gives up everything that `privileges` does not name, for good: no_new_privs is set, and the
/// bounding set shrinks. Called on the main thread, before any other exists.
///
/// # Errors
/// The first step that fails. The process must end then, because only some steps are done.
pub fn reduce(privileges: &Privileges) -> Result<Kept, Error> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(Error::Threads(threads));
    }
    raise_limit_of_files();
    let had = thread::capabilities(None).map_err(failed("read the capabilities of the process"))?;
    let kept = had.permitted & privileges.capabilities;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        shrink_bounding_set(privileges.capabilities).map_err(failed("shrink the bounding set"))?;
    }
    change_user(privileges)?;
    let sets =
        thread::CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    thread::set_capabilities(None, sets).map_err(failed("give up capabilities"))?;
    thread::clear_ambient_capability_set().map_err(failed("give up ambient capabilities"))?;
    thread::set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    privileges.seccomp.install(privileges.packet_sockets).map_err(Error::Seccomp)?;
    Ok(Kept { capabilities: kept, user: Uid::effective(), seccomp: privileges.seccomp })
}

/// Raises the number of open files to what the process may have.
fn raise_limit_of_files() {
    let files = getrlimit(Resource::Nofile);
    // Each process may use its hard limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
}

fn shrink_bounding_set(keep: CapabilitySet) -> io::Result<()> {
    for bit in 0..CAPABILITY_BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if keep.contains(capability) {
            continue;
        }
        match thread::capability_is_in_bounding_set(capability) {
            Ok(true) => thread::remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // The kernel knows no capability with this or a higher number.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Changes to the user, with its groups and the extra one.
fn change_user(privileges: &Privileges) -> Result<(), Error> {
    let present = Uid::effective();
    let other = privileges.user.as_ref().filter(|user| user.uid != present);
    let Some(user) = other else {
        // A group needs root, who can change the group of a file by its other privileges only now.
        if let (Some(group), true) = (privileges.group, present.is_root()) {
            let mut groups = getgroups().map_err(failed("read the groups of the process"))?;
            if !groups.contains(&group) {
                groups.push(group);
                setgroups(&groups).map_err(failed("join the group of the API socket"))?;
            }
        }
        return Ok(());
    };
    if !present.is_root() {
        return Err(Error::NotRoot(user.name.clone(), present));
    }
    let step = "change to the user of process.user";
    let name = CString::new(user.name.as_str())
        .map_err(|e| Error::Failed(step, io::Error::new(io::ErrorKind::InvalidInput, e)))?;
    let mut groups = nix::unistd::getgrouplist(&name, user.gid).map_err(failed(step))?;
    groups.extend(privileges.group);
    setgroups(&groups).map_err(failed(step))?;
    setresgid(user.gid, user.gid, user.gid).map_err(failed(step))?;
    thread::set_keep_capabilities(true).map_err(failed(step))?;
    setresuid(user.uid, user.uid, user.uid).map_err(failed(step))
}
