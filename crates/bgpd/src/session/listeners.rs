//! The listening sockets of BGP.

use super::{LISTENERS, keys, keys::Keys, socket};
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

/// What a socket listens on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    /// The configured address, whose port may be 0.
    address: SocketAddr,
    /// Whether an IPv6 socket takes IPv4 as well.
    dual_stack: bool,
}

/// The places of these addresses. An IPv6 wildcard takes IPv4 as well unless an IPv4 wildcard is among them.
fn places(addresses: &[SocketAddr]) -> impl Iterator<Item = Place> + '_ {
    addresses.iter().map(|address| {
        let v4_wildcard = |a: &SocketAddr| a.ip() == Ipv4Addr::UNSPECIFIED && a.port() == address.port();
        let dual_stack =
            address.is_ipv6() && address.ip().is_unspecified() && !addresses.iter().any(v4_wildcard);
        Place { address: *address, dual_stack }
    })
}

/// The listening sockets, by a number that is never used again.
#[derive(Default, Debug)]
pub(super) struct Listeners {
    next: usize,
    all: BTreeMap<usize, (Place, TcpListener)>,
}

impl Listeners {
    /// Listens on these addresses.
    ///
    /// # Errors
    /// An address cannot be bound, as a sentence; or the system has no room for another watch.
    pub(super) fn open(addresses: &[SocketAddr], keys: &Keys, poll: &Poll) -> io::Result<Listeners> {
        let mut listeners = Listeners::default();
        places(addresses).try_for_each(|place| listeners.add(place, keys, poll))?;
        Ok(listeners)
    }

    /// Listens on these addresses in place of the present ones. Those that stay lose no connection. Returns whether any
    /// changed.
    ///
    /// # Errors
    /// An address cannot be bound, as a sentence. The present ones stay.
    pub(super) fn change(&mut self, to: &[SocketAddr], keys: &Keys, poll: &Poll) -> io::Result<bool> {
        let wanted: Vec<Place> = places(to).collect();
        let mut gone: Vec<usize> =
            self.all.iter().filter(|(_, (place, _))| !wanted.contains(place)).map(|(at, _)| *at).collect();
        let mut added = Vec::new();
        let mut closed = Vec::new();
        for place in &wanted {
            if self.all.values().any(|(present, _)| present == place) {
                continue;
            }
            let at = self.next;
            let mut outcome = self.add(*place, keys, poll);
            if outcome.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) {
                // A socket that goes anyway may be in the way, as that of all addresses is.
                closed.extend(gone.drain(..).filter_map(|at| self.all.remove(&at)).map(|(place, _)| place));
                outcome = self.add(*place, keys, poll);
            }
            if let Err(e) = outcome {
                added.into_iter().for_each(|at| drop(self.all.remove(&at)));
                // They were bound a moment ago.
                closed.into_iter().try_for_each(|place| self.add(place, keys, poll))?;
                return Err(e);
            }
            added.push(at);
        }
        let changed = !added.is_empty() || !closed.is_empty() || !gone.is_empty();
        gone.into_iter().for_each(|at| drop(self.all.remove(&at)));
        Ok(changed)
    }

    fn add(&mut self, place: Place, keys: &Keys, poll: &Poll) -> io::Result<()> {
        let Place { address, dual_stack } = place;
        let listener = socket::listen(address, dual_stack).map_err(|error| {
            let cure = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run as root, give the binary the capability (setcap cap_net_bind_service+ep), or set bgp.listen to \
                     a port above 1023"
                }
                io::ErrorKind::AddrInUse => {
                    "stop what listens there (`ss -ltnp` names it), or set bgp.listen to another port"
                }
                _ => "set bgp.listen to an address of this machine",
            };
            io::Error::new(error.kind(), format!("BGP cannot listen on {address}: {error}; {cure}"))
        })?;
        keys::change([&listener], &Keys::default(), keys)?;
        let token = Token(LISTENERS + self.next);
        poll.registry().register(&mut SourceFd(&listener.as_raw_fd()), token, Interest::READABLE)?;
        self.all.insert(self.next, (place, listener));
        self.next += 1;
        Ok(())
    }

    /// The socket of a token, counted from [`LISTENERS`].
    pub(super) fn get(&self, at: usize) -> Option<&TcpListener> {
        self.all.get(&at).map(|(_, listener)| listener)
    }

    /// The sockets.
    pub(super) fn sockets(&self) -> Vec<&TcpListener> {
        self.all.values().map(|(_, listener)| listener).collect()
    }

    /// The addresses; a port of 0 in the configuration has become the one that the system chose.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.all.values().filter_map(|(_, listener)| listener.local_addr().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn on(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_stays_keeps_its_socket_and_a_failure_changes_nothing() {
        let poll = Poll::new().unwrap();
        let keys = Keys::default();
        let (one, two) = (on("127.0.0.1:0"), on("127.0.0.2:0"));
        let mut listeners = Listeners::open(&[one], &keys, &poll).unwrap();
        let [first] = listeners.addresses()[..] else { panic!() };
        // A connection that waits to be accepted is not lost.
        let _waits = TcpStream::connect(first).unwrap();
        assert!(!listeners.change(&[one], &keys, &poll).unwrap());
        assert!(listeners.change(&[two, one], &keys, &poll).unwrap());
        assert_eq!((listeners.addresses().len(), listeners.addresses()[0]), (2, first));
        assert!(listeners.get(0).unwrap().accept().is_ok());
        // An address of another machine.
        let before = listeners.addresses();
        let refused = listeners.change(&[on("192.0.2.1:0"), two], &keys, &poll).unwrap_err().to_string();
        assert!(refused.contains("set bgp.listen to an address of this machine"), "{refused}");
        assert_eq!(listeners.addresses(), before);
        assert!(listeners.change(&[two], &keys, &poll).unwrap());
        assert!(listeners.get(0).is_none() && listeners.get(1).is_some());
        assert!(TcpStream::connect(first).is_err());
    }

    #[test]
    fn all_addresses_and_one_of_them_take_turns_at_a_port() {
        let poll = Poll::new().unwrap();
        let keys = Keys::default();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (all, one) = (on(&format!("[::]:{port}")), on(&format!("127.0.0.1:{port}")));
        let mut listeners = Listeners::open(&[all], &keys, &poll).unwrap();
        assert!(listeners.change(&[one], &keys, &poll).unwrap());
        assert_eq!(listeners.addresses(), [one]);
        assert!(listeners.change(&[all], &keys, &poll).unwrap());
        assert!(TcpStream::connect(one).is_ok());
        // The IPv6 wildcard leaves IPv4 to the other.
        let four = on(&format!("0.0.0.0:{port}"));
        assert!(listeners.change(&[all, four], &keys, &poll).unwrap());
        assert_eq!(listeners.addresses().len(), 2);
        assert!(TcpStream::connect(one).is_ok());
    }
}
