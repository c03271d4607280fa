//! A network namespace for the calling thread.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The netdevs of the ports; the other end of each veth is `peerN`.
pub(crate) const PORTS: [&str; 4] = ["Ethernet0", "Ethernet4", "Ethernet8", "Ethernet12"];

/// Moves the calling thread into a namespace with the netdevs of [`PORTS`], all with a carrier, and runs `body`. Without
/// root it prints that it skips.
pub(crate) fn in_namespace(body: impl FnOnce()) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    struct Namespace(String);
    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
        }
    }
    let namespace = Namespace(format!("ribtide-chip-{}-{count}", std::process::id()));
    match Command::new("ip").args(["netns", "add", &namespace.0]).output() {
        Ok(out) if out.status.success() => {}
        _ => {
            println!("skipped: network namespaces need root and the command ip");
            return;
        }
    }
    let file = std::fs::File::open(format!("/run/netns/{}", namespace.0)).unwrap();
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).unwrap();
    ip("link set lo up");
    for (n, port) in PORTS.iter().enumerate() {
        ip(&format!("link add {port} type veth peer name peer{n}"));
        ip(&format!("link set peer{n} up"));
        ip(&format!("link set {port} up"));
    }
    body();
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &str) -> String {
    try_ip(arguments).unwrap_or_else(|e| panic!("ip {arguments}: {e}"))
}

/// Runs `ip`; the error is its message.
pub(crate) fn try_ip(arguments: &str) -> Result<String, String> {
    let out = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if out.status.success() { Ok(text(out.stdout)) } else { Err(text(out.stderr)) }
}
