//! TCP-AO keys (RFC 5925) of sockets: of listening ones, of a connection before it is opened, and their change while a
//! session lasts.
//!
//! A listening socket has the keys of all neighbours and ranges. The kernel takes only signed segments from an address that
//! has keys, and a connection that it accepts has those of its address. [`KeySocket`] is the kernel's side.

mod kernel;

pub use kernel::is_supported;

use ribtide_config::{BgpConfig, DynamicRange, TcpAoConfig, TcpAoKey};
use ribtide_prefix::AnyPrefix;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// What an operator reads where the kernel lacks TCP-AO.
pub const UNSUPPORTED: &str = "the kernel has no TCP-AO (needs Linux 6.7 with CONFIG_TCP_AO)";

/// The peers of a key: all addresses of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Peers {
    /// The prefix's length comes first, so that ranges sort before what is in them.
    len: u8,
    address: IpAddr,
}

impl Peers {
    /// One address.
    pub(super) fn one(address: IpAddr) -> Peers {
        Peers { len: if address.is_ipv4() { 32 } else { 128 }, address }
    }

    fn of_range(range: &DynamicRange) -> Peers {
        Peers { len: range.range.len(), address: range.range.addr() }
    }

    /// The prefix of this length, at most its own.
    fn shortened(self, len: u8) -> Peers {
        let prefix = AnyPrefix::from_addr(self.address, len);
        prefix.map_or(self, |prefix| Peers { len, address: prefix.addr() })
    }

    fn contains(self, other: Peers) -> bool {
        self.len <= other.len && other.shortened(self.len) == self
    }
}

/// A socket of the kernel, as far as TCP-AO concerns it.
pub(super) trait KeySocket {
    /// Adds a key. `current` and `rnext`: it becomes that, which a listening socket does not have.
    fn add_key(&self, peers: Peers, key: &TcpAoKey, current: bool, rnext: bool) -> io::Result<()>;
    /// Removes a key, which must be neither current nor rnext.
    fn delete_key(&self, peers: Peers, key: &TcpAoKey) -> io::Result<()>;
    /// Refuses segments that are not signed, and has the keys of these IDs used. An error if a connection has no keys.
    fn use_keys(&self, current: Option<u8>, rnext: Option<u8>) -> io::Result<()>;
    /// What the connection uses.
    fn state(&self) -> io::Result<KeyState>;
}

/// The TCP-AO state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyState {
    /// The `send_id` of the key that signs; `None`: none is chosen yet.
    pub current: Option<u8>,
    /// The `recv_id` of the key that the peer is asked to sign with.
    pub rnext: Option<u8>,
    /// Received segments with a right signature.
    pub good: u64,
    /// Those with a wrong one.
    pub bad: u64,
    /// Those with the ID of no key.
    pub key_not_found: u64,
    /// Those without a signature.
    pub unsigned: u64,
}

/// Refuses a configuration with TCP-AO keys where the kernel has no TCP-AO.
///
/// # Errors
/// A sentence with the first neighbour or range that has keys.
pub fn check_kernel(bgp: &BgpConfig) -> Result<(), String> {
    let Some((first, _)) = of(bgp).into_iter().next() else { return Ok(()) };
    let why = match is_supported() {
        Ok(true) => return Ok(()),
        Ok(false) => UNSUPPORTED.to_string(),
        Err(e) => format!("the kernel does not say whether it has TCP-AO: {e}"),
    };
    Err(format!("{} has tcp-ao keys, and {why}", first.address))
}

/// What a connection uses; `None` if the kernel does not say.
pub(super) fn state(socket: &impl KeySocket) -> Option<KeyState> {
    socket.state().ok()
}

/// Keys of the listening sockets, ranges first.
pub(super) type Keys = Vec<(Peers, TcpAoKey)>;

/// The keys of a configuration. A key of a range is not listed again for the addresses in it: the
/// kernel would take both for two keys of one ID.
pub(super) fn of(bgp: &BgpConfig) -> Keys {
    let neighbors = bgp.neighbors.values().map(|n| (Peers::one(n.address), &n.settings.tcp_ao));
    let ranges = bgp.dynamic.iter().map(|range| (Peers::of_range(range), &range.settings.tcp_ao));
    let mut all: Vec<_> = neighbors.chain(ranges).filter_map(|(of, ao)| Some((of, ao.as_ref()?))).collect();
    all.sort_by_key(|(of, _)| *of);
    let mut keys = Keys::new();
    for (of, ao) in all {
        for key in &ao.keys {
            if !keys.iter().any(|(outer, there)| outer.contains(of) && there == key) {
                keys.push((of, key.clone()));
            }
        }
    }
    keys
}

/// Removes keys of a listening socket.
///
/// # Errors
/// The kernel refuses it. A key that is not there is none.
pub(super) fn remove<'a>(
    listener: &impl KeySocket,
    keys: impl Iterator<Item = &'a (Peers, TcpAoKey)>,
) -> io::Result<()> {
    for (of, key) in keys {
        match listener.delete_key(*of, key) {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(refused(*of, &e)),
            _ => {}
        }
    }
    Ok(())
}

/// Adds keys to a listening socket.
///
/// # Errors
/// The kernel has no TCP-AO, or refuses a key.
pub(super) fn add<'a>(
    listener: &impl KeySocket,
    mut keys: impl Iterator<Item = &'a (Peers, TcpAoKey)>,
) -> io::Result<()> {
    keys.try_for_each(|(of, key)| listener.add_key(*of, key, false, false).map_err(|e| refused(*of, &e)))
}

fn refused(of: Peers, error: &io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => UNSUPPORTED.to_string(),
        // A mapped address and no length are contradictory to it.
        Some(libc::EINVAL) if of.address == IpAddr::V4(Ipv4Addr::UNSPECIFIED) => format!(
            "{error}; a socket of IPv6 has no key for all of IPv4: write bgp.listen = [\"0.0.0.0:179\"], beside \"[::]:179\" \
             where IPv6 is needed too, or a range that is not 0.0.0.0/0"
        ),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("the kernel refuses a tcp-ao key of {}: {why}", of.address))
}

/// Gives a socket its keys before it connects to `peer`.
///
/// # Errors
/// The kernel has no TCP-AO, or refuses a key; the socket must not connect.
pub(super) fn prepare(socket: &impl KeySocket, peer: IpAddr, ao: &TcpAoConfig) -> io::Result<()> {
    let of = Peers::one(peer);
    for key in &ao.keys {
        let (current, rnext) = (key.send_id == ao.current, key.recv_id == ao.rnext);
        socket.add_key(of, key, current, rnext).map_err(|e| refused(of, &e))?;
    }
    socket.use_keys(None, None).map_err(|e| refused(of, &e))
}

/// Checks that an accepted connection is signed, and asks the peer for the key to sign with.
///
/// # Errors
/// It is not signed, such as one from before the listening socket had keys; it must not be used.
pub(super) fn accepted(socket: &impl KeySocket, ao: &TcpAoConfig) -> Result<(), String> {
    let signed = socket.use_keys(None, Some(ao.rnext));
    signed.map_err(|e| {
        format!("its connection is not signed with TCP-AO, and the neighbour has tcp-ao keys ({e})")
    })
}

/// Replaces the keys of a connection to `peer`, which lasts.
///
/// New keys come first, then the peer is asked for another key where `rnext` is another, and keys that are configured no longer go
/// last. If one of these is in use, the configured one replaces it (RFC 5925 section 7.5.1 leaves that to the operator).
///
/// # Errors
/// The kernel refuses something; the session must end.
pub(super) fn roll(
    socket: &impl KeySocket,
    peer: IpAddr,
    old: &TcpAoConfig,
    new: &TcpAoConfig,
) -> io::Result<()> {
    let host = Peers::one(peer);
    let had = |key: &&TcpAoKey| old.keys.contains(key);
    for key in new.keys.iter().filter(|key| !had(key)) {
        socket.add_key(host, key, false, false).map_err(|e| refused(host, &e))?;
    }
    let removed: Vec<&TcpAoKey> = old.keys.iter().filter(|key| !new.keys.contains(key)).collect();
    let used = socket.state()?;
    let goes = |id: Option<u8>, id_of: fn(&TcpAoKey) -> u8| {
        id.is_some_and(|id| removed.iter().any(|key| id_of(key) == id))
    };
    let current =
        (new.current != old.current || goes(used.current, |key| key.send_id)).then_some(new.current);
    let rnext = (new.rnext != old.rnext || goes(used.rnext, |key| key.recv_id)).then_some(new.rnext);
    if current.is_some() || rnext.is_some() {
        socket.use_keys(current, rnext)?;
    }
    for key in removed {
        delete(socket, host, key)?;
    }
    Ok(())
}

/// Removes a key of a connection. One that came from a range has the range's keys, so each prefix of the address is tried.
fn delete(socket: &impl KeySocket, host: Peers, key: &TcpAoKey) -> io::Result<()> {
    for len in (0..=host.len).rev() {
        match socket.delete_key(host.shortened(len), key) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            outcome => return outcome,
        }
    }
    // It was not there, so that nothing is left to remove.
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
