//! The addresses on which BGP sessions are accepted.

use super::check::Checker;
use super::diagnosis::key;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

impl Checker {
    /// The addresses of `bgp.listen`: no two of them may accept the same connections, for the system binds one alone.
    pub(super) fn listen(&mut self, listed: Option<&Vec<SocketAddr>>) -> Vec<SocketAddr> {
        let listen = listed.cloned().unwrap_or_else(|| vec![(Ipv6Addr::UNSPECIFIED, 179).into()]);
        for (i, address) in listen.iter().enumerate() {
            let overlaps = |other: &&SocketAddr| covers(other, address) || covers(address, other);
            if let Some(other) = listen[..i].iter().find(overlaps) {
                let message = format!(
                    "connections to {address} come to {other}, too, which is already listed; remove one of the two"
                );
                self.problem(key!["bgp", "listen", i], message);
            }
        }
        listen
    }
}

/// Whether each connection to `one` comes to a listener on `all`. `[::]` takes no IPv4 where an IPv4 address is listed, too;
/// port 0 is a free one.
fn covers(all: &SocketAddr, one: &SocketAddr) -> bool {
    let any = match all.ip() {
        IpAddr::V4(all) => all.is_unspecified() && one.is_ipv4(),
        IpAddr::V6(all) => all.is_unspecified() && one.is_ipv6(),
    };
    all.port() != 0 && all.port() == one.port() && (any || all.ip() == one.ip())
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn wildcards_cover_addresses_of_their_families_and_port() {
        let covers = |all: &str, one: &str| covers(&all.parse().unwrap(), &one.parse().unwrap());
        for (all, one) in [
            ("0.0.0.0:179", "10.0.0.1:179"),
            ("[::]:179", "[2001:db8::1]:179"),
            ("10.0.0.1:179", "10.0.0.1:179"),
        ] {
            assert!(covers(all, one), "{all} {one}");
        }
        for (all, one) in [
            ("0.0.0.0:179", "10.0.0.1:1179"),
            ("0.0.0.0:179", "[2001:db8::1]:179"),
            ("[::]:179", "0.0.0.0:179"),
            ("10.0.0.1:179", "10.0.0.2:179"),
            ("127.0.0.1:0", "127.0.0.1:0"),
        ] {
            assert!(!covers(all, one), "{all} {one}");
        }
    }
}
