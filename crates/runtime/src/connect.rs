//! Outgoing TCP connections of threads that never wait in a connect.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

/// Begins to connect to `to`, from `local` where that is given, on a non-blocking socket that `prepare` may set options
/// of first. The socket becomes writable with the outcome; see [`is_established`].
///
/// # Errors
/// The system refuses at once, or `prepare` does.
pub fn begin(
    to: SocketAddr,
    local: Option<IpAddr>,
    prepare: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    prepare(&socket)?;
    if let Some(local) = local {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(socket.into()),
    }
}

/// Whether the other end accepted what [`begin`] began.
///
/// # Errors
/// The attempt failed.
pub fn is_established(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    fn outcome(stream: &TcpStream) -> io::Result<bool> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match is_established(stream) {
                Ok(false) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn connection_is_from_the_local_address_and_never_blocks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = "127.0.0.9".parse().unwrap();
        let stream = begin(listener.local_addr().unwrap(), Some(local), |s| s.set_tcp_nodelay(true)).unwrap();
        assert!(outcome(&stream).unwrap());
        let (_accepted, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), local);
        assert!(stream.nodelay().unwrap());
        assert_eq!((&stream).read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn refusals_are_errors_and_not_attempts_without_an_end() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The kernel may refuse at once or later.
        let refused = begin(free, None, |_| Ok(())).and_then(|stream| outcome(&stream));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let error = begin(free, Some("203.0.113.1".parse().unwrap()), |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        let error = begin(free, None, |_| Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
