//! Keys of the listening sockets: TCP-MD5 (RFC 2385) and TCP-AO (RFC 5925). A client must sign with the key of its address or
//! range.

use super::socket;
use super::tcp_ao::{self, KeySocket};
use ribtide_config::{BgpConfig, LINK_LOCAL, Secret};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, TcpListener};

/// The keys of a configuration.
#[derive(Clone, Default)]
pub(super) struct Keys {
    /// TCP-MD5 keys by address, with the prefix length of a range.
    md5: BTreeMap<(IpAddr, Option<u8>), Secret>,
    ao: tcp_ao::Keys,
}

/// A listening socket.
pub(super) trait ListeningSocket: KeySocket {
    /// Sets the TCP-MD5 key of an address, or of a range of this length. An empty key removes one.
    fn set_md5(&self, address: IpAddr, len: Option<u8>, key: &[u8]) -> io::Result<()>;
}

impl ListeningSocket for TcpListener {
    fn set_md5(&self, address: IpAddr, len: Option<u8>, key: &[u8]) -> io::Result<()> {
        let v6 = self.local_addr()?.is_ipv6();
        // An IPv4 length counts from the first IPv4 bit, mapped or not.
        let address = match address {
            IpAddr::V4(a) if v6 => a.to_ipv6_mapped().into(),
            other => other,
        };
        if address.is_ipv6() != v6 {
            return Ok(());
        }
        socket::set_md5(self, address, len, key)
    }
}

/// The keys of a configuration.
pub(super) fn of(bgp: &BgpConfig) -> Keys {
    let neighbors = bgp.neighbors.iter().map(|(address, n)| ((*address, None), &n.settings.password));
    let ranges = bgp.dynamic.iter().map(|d| ((d.range.addr(), Some(d.range.len())), &d.settings.password));
    // One range for all, since any link may have the same addresses.
    let (address, len) = LINK_LOCAL;
    let interfaces = bgp.interfaces.iter().map(|n| ((address, Some(len)), &n.settings.password));
    let all = neighbors.chain(ranges).chain(interfaces);
    let md5 = all.filter_map(|(of, key)| Some((of, key.clone()?))).collect();
    Keys { md5, ao: tcp_ao::of(bgp) }
}

/// Replaces the keys `old` by `new`. Established sessions keep theirs.
///
/// # Errors
/// The kernel refused a key; nothing has changed.
pub(super) fn change<'s, S: ListeningSocket + 's>(
    listeners: impl IntoIterator<Item = &'s S> + Clone,
    old: &Keys,
    new: &Keys,
) -> io::Result<()> {
    let outcome = listeners.clone().into_iter().try_for_each(|listener| replace(listener, old, new));
    if outcome.is_err() {
        // The kernel accepted these before.
        listeners.into_iter().for_each(|listener| drop(replace(listener, new, old)));
    }
    outcome
}

/// What goes is removed first: the kernel refuses a key of one kind for an address with one of the other, and a TCP-AO key with
/// the ID of another.
fn replace<S: ListeningSocket>(listener: &S, old: &Keys, new: &Keys) -> io::Result<()> {
    for (address, len) in old.md5.keys().filter(|of| !new.md5.contains_key(of)) {
        // The removal of an absent key is no error.
        let _ = listener.set_md5(*address, *len, &[]);
    }
    tcp_ao::remove(listener, old.ao.iter().filter(|key| !new.ao.contains(key)))?;
    for ((address, len), key) in new.md5.iter().filter(|(of, key)| old.md5.get(of) != Some(key)) {
        listener.set_md5(*address, *len, key.bytes()).map_err(|e| {
            io::Error::new(e.kind(), format!("the kernel refuses the password of {address}: {e}"))
        })?;
    }
    tcp_ao::add(listener, new.ao.iter().filter(|key| !old.ao.contains(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tcp_ao::tests::Fake;
    use ribtide_config as config;

    impl ListeningSocket for Fake {
        fn set_md5(&self, address: IpAddr, len: Option<u8>, key: &[u8]) -> io::Result<()> {
            self.set_md5(address, len, key)
        }
    }

    fn keys(group: &str) -> Keys {
        let text = format!(
            "[router]\nasn = 1\nrouter-id = \"10.0.0.1\"\n[bgp.group.up]\ntype = \"internal\"\n{group}"
        );
        of(&config::parse(&text).unwrap().bgp.unwrap())
    }

    const NEIGHBORS: &str = "neighbors = [\"192.0.2.1\", \"2001:db8::1\"]\n";

    fn ao(secret: &str) -> Keys {
        keys(&format!("{NEIGHBORS}tcp-ao = {{ keys = [{{ id = 1, secret = \"{secret}\" }}] }}"))
    }

    #[test]
    fn ranges_have_the_keys_of_the_neighbours_inside() {
        let one = "tcp-ao = { keys = [{ id = 1, secret = \"a\" }] }";
        let all = keys(&format!("{NEIGHBORS}dynamic-neighbors = [\"192.0.2.0/24\"]\n{one}\n"));
        let listener = [Fake::listening()];
        change(&listener, &Keys::default(), &all).unwrap();
        assert_eq!(listener[0].shown(), ["192.0.2.0/24 a", "2001:db8::1/128 a"]);
    }

    #[test]
    fn keys_of_one_kind_replace_those_of_the_other() {
        let listener = [Fake::listening()];
        let md5 = keys(&format!("{NEIGHBORS}password = \"old\""));
        for (old, new, shown) in [
            (Keys::default(), md5.clone(), ["md5 192.0.2.1 old", "md5 2001:db8::1 old"]),
            (md5.clone(), ao("a"), ["192.0.2.1/32 a", "2001:db8::1/128 a"]),
            (ao("a"), ao("b"), ["192.0.2.1/32 b", "2001:db8::1/128 b"]),
            (ao("b"), md5, ["md5 192.0.2.1 old", "md5 2001:db8::1 old"]),
        ] {
            change(&listener, &old, &new).unwrap();
            assert_eq!(listener[0].shown(), shown);
        }
    }

    #[test]
    fn a_refused_key_changes_nothing() {
        let listeners = [Fake::listening(), Fake::refusing("b")];
        change(&listeners, &Keys::default(), &ao("a")).unwrap();
        change(&listeners, &ao("a"), &ao("b")).unwrap_err();
        for listener in &listeners {
            assert_eq!(listener.shown(), ["192.0.2.1/32 a", "2001:db8::1/128 a"]);
        }
    }
}
