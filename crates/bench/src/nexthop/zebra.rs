//! FRR's zebra with the same workloads. Routes are sent over its socket as bgpd sends them; the
//! cost is its CPU time until it is idle, with the kernel's share, into which it installs them.
//!
//! zebra tracks next hops and notifies protocols, which send their routes again. So after a change
//! of a link all routes are sent again here, as bgpd would. Its packages take at most 256 next hops
//! per route, and install 255.

use super::report::Figures;
use super::workload::{CHURN, INSTALL, LINK_DOWN, LINK_UP, NexthopWorkload, Scale, WITHDRAW};
use crate::Error;
use crate::harness::{Place, Program};
use crate::kernel::Kernel;
use nix::unistd::{Gid, Uid, User, chown};
use ribtide_prefix::{Prefix, V4};
use ribtide_wire::netlink::numbers::RTPROT_BGP;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Debian's package supports 256, but counts a group's members in a byte: a route with 256 next
/// hops is selected and never installed. Two links share these evenly.
const MOST_HOPS: u16 = 254;
const ZEBRA: &str = "/usr/lib/frr/zebra";
/// Bytes of one send: it reads without a bound, and stores unprocessed routes several times.
const PIECE: usize = 1 << 21;
/// The next send waits until it used no CPU time for this long.
const IDLE_BEFORE_SEND: Duration = Duration::from_millis(60);
/// Its memory limit: many times its need, and safe for the machine.
const MEMORY: &str = "--as=6442450944";
/// It is idle when it used no CPU time for this long.
const IDLE_TIME: Duration = Duration::from_millis(500);
/// The time limit of its start, and of its work without idle time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);

/// The reason why it cannot be measured here.
pub(super) fn missing() -> Option<String> {
    if !Path::new(ZEBRA).exists() {
        return Some(format!(
            "zebra: no {ZEBRA}; `scripts/setup bench` or `apt-get install frr` installs it"
        ));
    }
    Place::may_make_namespaces().err().map(|e| format!("zebra: {e}"))
}

/// The differences of its figures.
pub(super) fn remark(scale: &Scale) -> Option<String> {
    let hops = scale.hops.min(MOST_HOPS);
    (hops < scale.hops).then(|| {
        format!(
            "zebra: with {hops} next hops instead of {}, the most that it installs of an even number",
            scale.hops
        )
    })
}

/// Runs a workload.
///
/// # Errors
/// zebra does not start, ends, or does not become idle.
pub(super) fn run(scale: Scale) -> Result<Vec<Figures>, Error> {
    let scale = Scale { hops: scale.hops.min(MOST_HOPS), ..scale };
    let folder = tempfile::Builder::new().prefix("ribtide-bench-").tempdir().map_err(Error::System)?;
    let place = Place::namespaces(Ipv4Addr::new(10, 1, 0, 1), &[Ipv4Addr::new(10, 1, 255, 254)], 16)?;
    place.ip(&format!(
        "link add {OTHER_LINK} type veth peer name other\naddress add 10.2.0.1/16 dev {OTHER_LINK}\n\
         link set {OTHER_LINK} up\nlink set other up\n"
    ))?;
    let mut zebra = Zebra::start(&place, folder.path())?;
    if scale.work == NexthopWorkload::Single {
        zebra.send(&fixed(&scale))?;
        zebra.wait_idle()?;
    }
    let all = |zebra: &mut Zebra, version: u16| {
        if scale.work == NexthopWorkload::Single {
            zebra.send(&fixed(&scale))?;
        }
        zebra.send(&routes(&scale, Some(version)))
    };
    let mut phases = Vec::new();
    let mut phase =
        |name: &str, zebra: &mut Zebra, installed, act: &dyn Fn(&mut Zebra) -> Result<(), Error>| {
            let (cpu, resident) = (zebra.program.cpu(), zebra.program.resident());
            act(zebra)?;
            zebra.wait_idle()?;
            let in_kernel = place.inside_program(|| Kernel::open()?.routes_of(RTPROT_BGP))?;
            phases.push(Figures {
                phase: name.into(),
                cpu_s: (zebra.program.cpu() - cpu).as_secs_f64(),
                routes: scale.routes,
                grown_bytes: zebra.program.resident().saturating_sub(resident),
                wrong: (in_kernel != installed)
                    .then(|| format!("the kernel has {in_kernel} routes of {installed}")),
                ..Figures::default()
            });
            Ok::<(), Error>(())
        };
    let whole = u64::from(scale.routes);
    phase(INSTALL, &mut zebra, whole, &|z| all(z, 0))?;
    if scale.work == NexthopWorkload::Ecmp {
        phase(CHURN, &mut zebra, whole, &|z| all(z, 1))?;
    }
    phase(LINK_DOWN, &mut zebra, whole, &|z| {
        place.ip(&format!("link set {LINK} down"))?;
        all(z, 1)
    })?;
    phase(LINK_UP, &mut zebra, whole, &|z| {
        place.ip(&format!("link set {LINK} up"))?;
        all(z, 1)
    })?;
    phase(WITHDRAW, &mut zebra, 0, &|z| z.send(&routes(&scale, None)))?;
    Ok(phases)
}

/// The link that goes down; the other one stays.
const LINK: &str = "program";
const OTHER_LINK: &str = "second";

struct Zebra {
    program: Program,
    socket: UnixStream,
}

impl Zebra {
    fn start(place: &Place, folder: &Path) -> Result<Zebra, Error> {
        // It drops root, and writes its socket and PID file here.
        let user = User::from_name("frr").ok().flatten();
        let (uid, gid) = user.map_or((Uid::current(), Gid::current()), |u| (u.uid, u.gid));
        let config = folder.join("zebra.conf");
        std::fs::write(&config, "hostname zebra\n").map_err(Error::System)?;
        for path in [folder, &config] {
            chown(path, Some(uid), Some(gid)).map_err(|e| Error::System(e.into()))?;
        }
        let api = folder.join("zserv.api");
        let mut command = place.command("prlimit");
        command
            .args([MEMORY, ZEBRA])
            .arg("-f")
            .arg(&config)
            .arg("-i")
            .arg(folder.join("zebra.pid"))
            .arg("-z")
            .arg(&api);
        command.arg("--vty_socket").arg(folder).args([
            "-P",
            "0",
            "--log",
            "stdout",
            "--log-level",
            "warning",
        ]);
        let mut program = Program::start("zebra", vec![command], folder)?;
        let begin = Instant::now();
        let mut socket = loop {
            program.check()?;
            match UnixStream::connect(&api) {
                Ok(socket) => break socket,
                Err(e) if begin.elapsed() > Duration::from_secs(20) => return Err(Error::System(e)),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        // Protocol, instance, session, and that it need not report the outcome of each route.
        let hello = [&[BGP][..], &0u16.to_be_bytes(), &0u32.to_be_bytes(), &[0, 0]].concat();
        socket.write_all(&message(HELLO, &hello)).map_err(Error::System)?;
        socket.set_nonblocking(true).map_err(Error::System)?;
        let mut zebra = Zebra { program, socket };
        zebra.wait_idle()?;
        Ok(zebra)
    }

    /// Writes as it reads, and reads its messages meanwhile.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut progress = Instant::now();
        let (mut left, mut piece) = (bytes, PIECE);
        while !left.is_empty() {
            if piece == 0 {
                self.idle(IDLE_BEFORE_SEND)?;
                piece = PIECE;
            }
            match self.socket.write(&left[..left.len().min(piece)]) {
                Ok(written) => {
                    (left, piece) = (&left[written..], piece - written);
                    progress = Instant::now();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock && progress.elapsed() < IDLE_TIMEOUT => {
                    self.drain()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => return Err(Error::Options(format!("zebra takes no more routes: {e}"))),
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Error> {
        self.program.check()?;
        let mut reply = [0; 65536];
        loop {
            match self.socket.read(&mut reply) {
                Ok(0) => return Err(Error::Options("zebra closed its socket".into())),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(Error::System(e)),
            }
        }
    }

    /// Waits until it has finished.
    fn wait_idle(&mut self) -> Result<(), Error> {
        self.idle(IDLE_TIME)
    }

    /// Waits until it has been idle for `long`.
    fn idle(&mut self, long: Duration) -> Result<(), Error> {
        let begin = Instant::now();
        let (mut cpu, mut since) = (self.program.cpu(), Instant::now());
        while since.elapsed() < long {
            if begin.elapsed() > IDLE_TIMEOUT {
                return Err(Error::Options(format!("zebra is not idle after {} s", IDLE_TIMEOUT.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
            self.drain()?;
            let now = self.program.cpu();
            // Periodic timers are not work.
            if now - cpu > Duration::from_millis(2) || self.program.usage().runnable {
                (cpu, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

// ZAPI version 6, as zebra 8 and later 8.x speak it.

const HELLO: u16 = 18;
const ROUTE_ADD: u16 = 8;
const ROUTE_DELETE: u16 = 9;
const STATIC: u8 = 3;
const BGP: u8 = 9;
/// The route's next hops may recurse, and it is of internal BGP.
const FLAGS: u32 = 0x01 | 0x04;
/// The message has next hops and a distance.
const PARTS: u32 = 0x01 | 0x02;

fn message(command: u16, body: &[u8]) -> Vec<u8> {
    let len = (body.len() + 10) as u16;
    [&len.to_be_bytes()[..], &[254, 6], &0u32.to_be_bytes(), &command.to_be_bytes(), body].concat()
}

/// A route, or with no next hops its withdrawal.
fn route(protocol: u8, distance: u8, prefix: Prefix<V4>, hops: &[u8], out: &mut Vec<u8>) {
    let count = (hops.len() / HOP) as u16;
    let IpAddr::V4(address) = prefix.addr() else { return };
    let used = usize::from(prefix.len()).div_ceil(8);
    let body = [
        &[protocol][..],
        &0u16.to_be_bytes(),
        &FLAGS.to_be_bytes(),
        &PARTS.to_be_bytes(),
        // Unicast, IPv4.
        &[1, 2, prefix.len()],
        &address.octets()[..used],
        &count.to_be_bytes(),
        hops,
        &[distance],
    ]
    .concat();
    out.extend(message(if count == 0 { ROUTE_DELETE } else { ROUTE_ADD }, &body));
}

/// Bytes of an encoded next hop.
const HOP: usize = 14;

/// A gateway of the default VRF, without interface.
fn hop(gateway: Ipv4Addr) -> [u8; HOP] {
    let [a, b, c, d] = gateway.octets();
    [0, 0, 0, 0, 2, 0, a, b, c, d, 0, 0, 0, 0]
}

/// All routes of a workload, announced with this version of their next hops, or withdrawn.
fn routes(scale: &Scale, version: Option<u16>) -> Vec<u8> {
    let hops: Vec<u8> =
        version.into_iter().flat_map(|v| (0..scale.hops).flat_map(move |n| hop(scale.hop(n, v)))).collect();
    let mut out = Vec::new();
    (0..scale.routes).for_each(|n| route(BGP, 200, scale.prefix(n), &hops, &mut out));
    out
}

/// The static route of [`NexthopWorkload::Single`].
fn fixed(scale: &Scale) -> Vec<u8> {
    let (prefix, neighbors) = scale.far();
    let hops: Vec<u8> = neighbors.into_iter().flat_map(hop).collect();
    let mut out = Vec::new();
    route(STATIC, 1, prefix, &hops, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of staticd 8.4.4, captured.
    #[test]
    fn routes_are_encoded_as_frr_does_it() {
        let mut out = Vec::new();
        let prefix: Prefix<V4> = "100.64.0.7/32".parse().unwrap();
        route(STATIC, 1, prefix, &hop([10, 1, 1, 2].into()), &mut out);
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        let seen =
            "002dfe0600000000000803000000000041000000030102206440000700010000000002000a0101020000000001";
        // It also has the flag that the distance distinguishes routes.
        assert_eq!(hex, seen.replace("00000041", "00000005"));
        out.clear();
        route(STATIC, 1, prefix, &[], &mut out);
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "001ffe06000000000009030000000000410000000301022064400007000001".replace("00000041", "00000005")
        );
    }
}
