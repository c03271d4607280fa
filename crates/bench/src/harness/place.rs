//! Where a program under test and its load run: in two network namespaces on one cable, or on the loopback addresses
//! of this machine, which needs no rights.

use crate::Error;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A place. Drop removes what it created.
#[derive(Debug)]
pub enum Place {
    /// A namespace for the program, one for the load, and a cable (veth) of MTU 9000 between them.
    Namespaces {
        /// Where the program runs.
        program: String,
        /// Where the load runs.
        load: String,
    },
    /// Loopback addresses.
    Loopback,
}

/// Names of namespaces are this, the number of the process that made them, and more.
const PREFIX: &str = "ribtide-bench-";
/// The program's end of the cable.
pub const PROGRAM_LINK: &str = "program";
const LOAD_LINK: &str = "load";
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Place {
    /// Two namespaces: the program has `program`, its load has `load`, all on one network of this length.
    ///
    /// # Errors
    /// This is not root, or `ip` refuses.
    pub fn namespaces(program: Ipv4Addr, load: &[Ipv4Addr], length: u8) -> Result<Place, Error> {
        Place::may_make_namespaces()?;
        remove_stale();
        let n = NUMBER.fetch_add(1, Relaxed);
        let name = |end: &str| format!("{PREFIX}{}-{n}-{end}", std::process::id());
        // Drop removes what is created below.
        let place = Place::Namespaces { program: name(PROGRAM_LINK), load: name(LOAD_LINK) };
        let Place::Namespaces { program: outer, load: inner } = &place else { return Ok(place) };
        batch(
            None,
            &format!(
                "netns add {outer}\nnetns add {inner}\n\
             link add {PROGRAM_LINK} netns {outer} mtu 9000 type veth peer name {LOAD_LINK} netns {inner} mtu 9000\n"
            ),
        )?;
        let up = |link: &str, addresses: &mut dyn Iterator<Item = &Ipv4Addr>| {
            let addresses: String =
                addresses.map(|a| format!("address add {a}/{length} dev {link}\n")).collect();
            format!("link set lo up\n{addresses}link set {link} up\n")
        };
        place.ip(&up(PROGRAM_LINK, &mut std::iter::once(&program)))?;
        batch(Some(inner), &up(LOAD_LINK, &mut load.iter()))?;
        Ok(place)
    }

    /// Whether this user may make namespaces.
    ///
    /// # Errors
    /// A sentence for a user who may not.
    pub fn may_make_namespaces() -> Result<(), Error> {
        if nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        Err(Error::Options(
            "network namespaces need root; as another user, measure ribtide over loopback addresses: --loopback"
                .into(),
        ))
    }

    /// A command that runs in the program's half.
    pub fn command(&self, program: &str) -> Command {
        match self {
            Place::Namespaces { program: namespace, .. } => command_in(namespace, program),
            Place::Loopback => Command::new(program),
        }
    }

    /// A command that runs in the load's half.
    pub fn load_command(&self, program: &str) -> Command {
        match self {
            Place::Namespaces { load: namespace, .. } => command_in(namespace, program),
            Place::Loopback => Command::new(program),
        }
    }

    /// Runs lines of `ip` commands in the program's half; loopback stays as it is.
    ///
    /// # Errors
    /// `ip` refuses one of them.
    pub fn ip(&self, lines: &str) -> Result<(), Error> {
        let Place::Namespaces { program, .. } = self else { return Ok(()) };
        batch(Some(program), lines)
    }

    /// Moves this thread into the load's half; sockets that it makes from now on belong there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn enter_load(&self) -> Result<(), Error> {
        let Place::Namespaces { load, .. } = self else { return Ok(()) };
        enter(load)
    }

    /// Moves this thread into the program's half.
    ///
    /// # Errors
    /// The system refuses.
    pub fn enter_program(&self) -> Result<(), Error> {
        let Place::Namespaces { program, .. } = self else { return Ok(()) };
        enter(program)
    }

    /// Runs `what` on a thread of its own in the program's half.
    ///
    /// # Errors
    /// The system refuses, or the error of `what`.
    pub fn inside_program<R: Send>(
        &self,
        what: impl FnOnce() -> std::io::Result<R> + Send,
    ) -> Result<R, Error> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter_program()?;
                what().map_err(Error::System)
            });
            thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }
}

fn command_in(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

fn enter(namespace: &str) -> Result<(), Error> {
    let path = std::path::PathBuf::from(format!("/run/netns/{namespace}"));
    let file = File::open(&path).map_err(|source| Error::File { path, source })?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(|e| Error::System(e.into()))
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::Namespaces { program, load } = self {
            for name in [program, load] {
                let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
            }
        }
    }
}

/// The address `n` after `first`.
pub fn nth(first: Ipv4Addr, n: u32) -> Ipv4Addr {
    match crate::options::nth(IpAddr::V4(first), n) {
        IpAddr::V4(a) => a,
        IpAddr::V6(_) => first,
    }
}

/// Runs lines of `ip` commands.
fn batch(namespace: Option<&str>, lines: &str) -> Result<(), Error> {
    let failed = |what: String| Error::Options(format!("cannot set up the network: {what}"));
    let mut command = Command::new("ip");
    command.args(namespace.iter().flat_map(|n| ["-netns", n])).args(["-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|e| failed(format!("`ip` (package iproute2) does not start: {e}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes()).map_err(|e| failed(e.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string()));
    }
    Ok(())
}

/// Removes namespaces of killed processes.
fn remove_stale() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(PREFIX).and_then(|n| n.split('-').next()?.parse::<u32>().ok());
        let Some(maker) = maker.filter(|m| !std::path::Path::new(&format!("/proc/{m}")).exists()) else {
            continue;
        };
        let pids = Command::new("ip").args(["netns", "pids", &name]).output();
        let pids = pids.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        for pid in pids.split_whitespace().filter_map(|p| p.parse::<i32>().ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL);
        }
        let _ = (maker, Command::new("ip").args(["netns", "del", &name]).status());
    }
}
