//! The filter of system calls (seccomp(2)).
//!
//! It denies what neither the router nor a daemon of SONiC ever does, and what an intruder would do
//! next: start a program, trace a process, mount, load code into the kernel, enter a namespace,
//! change its user. A list of all permitted calls would be shorter for the kernel, and would break
//! with a new version of the C library or the allocator; docs/security.md has the reasons.

use libc::{AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, CLONE_THREAD, ENOSYS, EPERM, TIOCSTI, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Numbers of the x32 ABI are those of x86-64 with this bit.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// System calls that fail with EPERM, whatever their arguments.
const DENIED: &[c_long] = &[
    // Other programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts, roots and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    // Code in the kernel, and its large attack surfaces.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_kexec_load,
    // Keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    // Users and capabilities: they are final.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
];

/// Those of this architecture alone.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[c_long] = &[libc::SYS_kexec_file_load];

/// What happens on a denied system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Seccomp {
    /// It fails with EPERM.
    #[default]
    Deny,
    /// The kernel's audit log gets a line, and the call goes on.
    Log,
    /// There is no filter.
    Off,
}

impl Seccomp {
    /// Its name in configuration files and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Seccomp::Deny => "on",
            Seccomp::Log => "log",
            Seccomp::Off => "off",
        }
    }

    /// What it does, for the log.
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Seccomp::Deny => "system calls that it never makes fail (seccomp)",
            Seccomp::Log => "system calls that it should not make are in the kernel's audit log (seccomp)",
            Seccomp::Off => "system calls are not filtered (seccomp)",
        }
    }

    /// Whether a process with this filter can have `other` as well: the kernel adds filters, and removes none.
    pub fn can_become(self, other: Seccomp) -> bool {
        let strictness = |mode| match mode {
            Seccomp::Off => 0,
            Seccomp::Log => 1,
            Seccomp::Deny => 2,
        };
        strictness(self) <= strictness(other)
    }

    /// Adds the filter to all threads of a router that runs.
    ///
    /// # Errors
    /// The kernel refuses it, with its reason.
    pub fn add(self) -> Result<(), String> {
        self.install(false)
    }

    /// Installs the filter on all threads of the process, for good.
    pub(super) fn install(self, packet_sockets: bool) -> Result<(), String> {
        for program in self.programs(packet_sockets)? {
            seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn programs(self, packet_sockets: bool) -> Result<Vec<BpfProgram>, String> {
        match self {
            Seccomp::Deny => {
                // The flags of clone3 are in memory, where no filter sees them. Without it the C
                // library starts its threads with clone.
                let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
                let deny = SeccompAction::Errno(EPERM.cast_unsigned());
                Ok(vec![
                    program(clone3, SeccompAction::Errno(ENOSYS.cast_unsigned()))?,
                    program(denied(packet_sockets)?, deny)?,
                ])
            }
            Seccomp::Log => Ok(vec![program(denied(packet_sockets)?, SeccompAction::Log)?]),
            Seccomp::Off => Ok(Vec::new()),
        }
    }
}

impl fmt::Display for Seccomp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Seccomp {
    type Err = String;

    fn from_str(text: &str) -> Result<Seccomp, String> {
        let known = [Seccomp::Deny, Seccomp::Log, Seccomp::Off];
        let found = known.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| format!("\"{text}\" is no mode of seccomp; write on, log or off"))
    }
}

/// The denied system calls, with the arguments with which they are.
fn denied(packet_sockets: bool) -> Result<BTreeMap<i64, Vec<SeccompRule>>, String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.iter().chain(DENIED_HERE).map(|number| (*number, Vec::new())).collect();
    let argument = |index, operator, value: i64| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value.cast_unsigned())
            .map_err(|e| e.to_string())
    };
    let rule = |conditions| SeccompRule::new(conditions).map_err(|e| e.to_string());
    // A thread is started, a process is not.
    let thread = i64::from(CLONE_THREAD);
    let process = argument(0, SeccompCmpOp::MaskedEq(thread.cast_unsigned()), 0)?;
    rules.insert(libc::SYS_clone, vec![rule(vec![process])?]);
    // Sockets of other families need modules that are seldom audited (packet, alg, vsock, …).
    let packet = packet_sockets.then_some(AF_PACKET);
    let others = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK]
        .into_iter()
        .chain(packet)
        .map(|family| argument(0, SeccompCmpOp::Ne, i64::from(family)));
    rules.insert(libc::SYS_socket, vec![rule(others.collect::<Result<_, _>>()?)?]);
    // Input to the terminal of the user that started the process.
    let input = argument(1, SeccompCmpOp::Eq, i64::try_from(TIOCSTI).unwrap_or_default())?;
    rules.insert(libc::SYS_ioctl, vec![rule(vec![input])?]);
    #[cfg(target_arch = "x86_64")]
    for (number, conditions) in rules.clone() {
        rules.insert(number | X32, conditions);
    }
    Ok(rules)
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, action: SeccompAction) -> Result<BpfProgram, String> {
    let here = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| e.to_string())?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, here).map_err(|e| e.to_string())?;
    filter.try_into().map_err(|e: seccompiler::BackendError| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::sched::{CloneFlags, setns, unshare};
    use std::io::ErrorKind::PermissionDenied;
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;

    /// Runs `body` on a thread of its own under the filter: the other tests go on without it.
    fn filtered(mode: Seccomp, body: impl FnOnce() + Send + 'static) {
        filtered_with(mode, false, body);
    }

    /// The same, with or without packet sockets.
    fn filtered_with(mode: Seccomp, packet_sockets: bool, body: impl FnOnce() + Send + 'static) {
        let run = move || {
            for program in mode.programs(packet_sockets).unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            body();
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn denied_system_calls_fail_with_a_permission_error() {
        filtered(Seccomp::Deny, || {
            assert_eq!(Command::new("/bin/true").status().unwrap_err().kind(), PermissionDenied);
            assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(Errno::EPERM));
            let own = std::fs::File::open("/proc/self/ns/net").unwrap();
            assert_eq!(setns(own, CloneFlags::CLONE_NEWNET), Err(Errno::EPERM));
            let packets = datagram_socket(libc::AF_PACKET);
            assert_eq!(packets, Err(Errno::EPERM));
            assert_eq!(datagram_socket(libc::AF_ALG), Err(Errno::EPERM));
        });
    }

    /// A datagram socket of a family.
    fn datagram_socket(family: i32) -> Result<(), Errno> {
        use rustix::net::{AddressFamily, SocketType, socket};
        let family = AddressFamily::from_raw(u16::try_from(family).unwrap());
        socket(family, SocketType::DGRAM, None).map(drop).map_err(|e| Errno::from_raw(e.raw_os_error()))
    }

    #[test]
    fn threads_sockets_and_files_work_under_the_filter() {
        filtered(Seccomp::Deny, || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let client = std::thread::spawn(move || TcpStream::connect(address).unwrap());
            listener.accept().unwrap();
            client.join().unwrap();
            datagram_socket(libc::AF_NETLINK).unwrap();
            assert!(std::fs::read_to_string("/proc/thread-self/status").unwrap().contains("Seccomp:\t2"));
        });
    }

    #[test]
    fn packet_sockets_are_the_only_further_family() {
        filtered_with(Seccomp::Deny, true, || {
            // Without CAP_NET_RAW the kernel denies the socket itself.
            let raw = rustix::thread::capabilities(None).unwrap().effective;
            let expected =
                if raw.contains(rustix::thread::CapabilitySet::NET_RAW) { Ok(()) } else { Err(Errno::EPERM) };
            assert_eq!(datagram_socket(libc::AF_PACKET), expected);
            assert_eq!(datagram_socket(libc::AF_ALG), Err(Errno::EPERM));
            assert_eq!(datagram_socket(libc::AF_VSOCK), Err(Errno::EPERM));
        });
    }

    #[test]
    fn log_denies_nothing() {
        filtered(Seccomp::Log, || assert!(Command::new("/bin/true").status().unwrap().success()));
        filtered(Seccomp::Off, || assert!(Command::new("/bin/true").status().unwrap().success()));
    }

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in [Seccomp::Deny, Seccomp::Log, Seccomp::Off] {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("true".parse::<Seccomp>().is_err());
    }
}
