//! TCP-MD5 keys (RFC 2385) of the listening sockets. A client must sign with the key of its address
//! or range.

use super::socket;
use ribtide_config::BgpConfig;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, TcpListener};

/// Keys by address, with the prefix length of a range.
pub(super) type Keys = BTreeMap<(IpAddr, Option<u8>), String>;

/// The keys of a configuration.
pub(super) fn of(bgp: &BgpConfig) -> Keys {
    let neighbors = bgp.neighbors.iter().map(|(address, n)| ((*address, None), &n.settings.password));
    let ranges = bgp.dynamic.iter().map(|d| ((d.range.addr(), Some(d.range.len())), &d.settings.password));
    neighbors.chain(ranges).filter_map(|(of, key)| Some((of, key.clone()?))).collect()
}

/// Replaces the keys `old` by `new`. Established sessions keep theirs.
///
/// # Errors
/// The kernel refused a key; nothing has changed.
pub(super) fn change(listeners: &[&TcpListener], old: &Keys, new: &Keys) -> io::Result<()> {
    let outcome = replace(listeners, old, new);
    if outcome.is_err() {
        // The kernel accepted these before.
        let _ = replace(listeners, new, old);
    }
    outcome
}

fn replace(listeners: &[&TcpListener], old: &Keys, new: &Keys) -> io::Result<()> {
    for listener in listeners {
        for ((address, len), key) in new.iter().filter(|(of, key)| old.get(of) != Some(key)) {
            set(listener, *address, *len, key).map_err(|e| {
                io::Error::new(e.kind(), format!("the kernel refuses the password of {address}: {e}"))
            })?;
        }
        for (address, len) in old.keys().filter(|of| !new.contains_key(of)) {
            // An empty key removes one; the removal of an absent key is no error.
            let _ = set(listener, *address, *len, "");
        }
    }
    Ok(())
}

fn set(listener: &TcpListener, address: IpAddr, len: Option<u8>, key: &str) -> io::Result<()> {
    let v6 = listener.local_addr()?.is_ipv6();
    // An IPv4 length counts from the first IPv4 bit, mapped or not.
    let address = match address {
        IpAddr::V4(a) if v6 => a.to_ipv6_mapped().into(),
        other => other,
    };
    if address.is_ipv6() != v6 {
        return Ok(());
    }
    socket::set_md5(listener, address, len, key)
}
