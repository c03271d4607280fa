//! ZeroMQ endpoints: `tcp://ADDRESS:PORT`, or an interface instead of an address
//! (`tcp://eth0-midplane`), as in SONiC's scripts.

use nix::ifaddrs::getifaddrs;
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

/// A TCP endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Parses an endpoint; `port` is the default.
    ///
    /// # Errors
    /// A sentence when the text is no endpoint.
    pub fn parse(text: &str, port: u16) -> Result<Endpoint, String> {
        let wrong = || format!("\"{text}\" is not a ZeroMQ endpoint such as tcp://127.0.0.1:{port}");
        let rest = text.strip_prefix("tcp://").filter(|rest| !rest.is_empty()).ok_or_else(wrong)?;
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, given)) if !host.contains(':') || host.ends_with(']') => {
                (host, given.parse().map_err(|_| wrong())?)
            }
            _ => (rest, port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Endpoint { host: if host == "*" { "0.0.0.0".into() } else { host.into() }, port })
    }

    /// Its addresses in the order of attempts. An interface of this machine precedes a host of the
    /// same name.
    pub(super) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let mut of_interface: Vec<SocketAddr> = getifaddrs()?
            .filter(|entry| entry.interface_name == self.host)
            .filter_map(|entry| {
                let address = entry.address?;
                let v4 = address.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
                v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
            })
            .collect();
        if !of_interface.is_empty() {
            of_interface.iter_mut().for_each(|address| address.set_port(self.port));
            // ZeroMQ uses an interface's IPv4 address first.
            of_interface.sort_by_key(SocketAddr::is_ipv6);
            return Ok(of_interface);
        }
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "tcp://[{}]:{}", self.host, self.port),
            false => write!(f, "tcp://{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_stands_for_its_addresses() {
        let resolve = |text: &str| Endpoint::parse(text, 8100).unwrap().resolve();
        let of_loopback = resolve("tcp://lo").unwrap();
        assert_eq!(of_loopback[0], "127.0.0.1:8100".parse().unwrap());
        assert_eq!(resolve("tcp://lo:5555").unwrap()[0], "127.0.0.1:5555".parse().unwrap());
        assert_eq!(resolve("tcp://192.0.2.1").unwrap(), ["192.0.2.1:8100".parse().unwrap()]);
        assert!(resolve("tcp://no-such-interface.invalid").is_err());
    }

    #[test]
    fn endpoints_are_sonics() {
        for (text, ours) in [
            ("tcp://127.0.0.1", "tcp://127.0.0.1:8100"),
            ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
            ("tcp://localhost:1", "tcp://localhost:1"),
            ("tcp://*:5555", "tcp://0.0.0.0:5555"),
            ("tcp://[::1]:7", "tcp://[::1]:7"),
            ("tcp://[::1]", "tcp://[::1]:8100"),
        ] {
            assert_eq!(Endpoint::parse(text, 8100).unwrap().to_string(), ours);
        }
        for text in ["", "tcp://", "ipc:///tmp/x", "tcp://a:b", "tcp://a:70000"] {
            let message = Endpoint::parse(text, 8100).unwrap_err();
            assert!(message.ends_with("is not a ZeroMQ endpoint such as tcp://127.0.0.1:8100"), "{message}");
        }
    }
}
