//! Where a ZeroMQ socket is: `tcp://ADDRESS:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

/// A TCP endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// The endpoint of a text; `port` where it names none.
    ///
    /// # Errors
    /// A sentence when it is not one.
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

    /// The same with another port.
    pub fn with_port(self, port: u16) -> Endpoint {
        Endpoint { port, ..self }
    }

    pub(super) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
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
            let says = Endpoint::parse(text, 8100).unwrap_err();
            assert!(says.ends_with("is not a ZeroMQ endpoint such as tcp://127.0.0.1:8100"), "{says}");
        }
    }
}
