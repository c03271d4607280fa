//! GTSM (RFC 5082): the TTL of sent packets, and the least TTL of received ones. IPv6 calls it hop limit.

use super::socket::set_option;
use libc::{IP_MINTTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_MINHOPCOUNT, TCP_SAVE_SYN, TCP_SAVED_SYN};
use socket2::{Domain, SockRef};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// The TTL of packets that no router has forwarded.
pub(super) const TTL_MAX: u8 = 255;

/// Sets the TTL of sent packets. A dual-stack socket carries IPv4 with a TTL of its own.
pub(super) fn set(socket: &SockRef<'_>, ttl: u8, dual_stack: bool) -> io::Result<()> {
    let v6 = socket.domain()? == Domain::IPV6;
    if v6 {
        socket.set_unicast_hops_v6(ttl.into())?;
    }
    if !v6 || dual_stack {
        socket.set_ttl_v4(ttl.into())?;
    }
    Ok(())
}

/// Lets the kernel discard received packets with a TTL below `least` (RFC 5082 section 3).
pub(super) fn set_least(socket: &SockRef<'_>, least: u8, dual_stack: bool) -> io::Result<()> {
    let v6 = socket.domain()? == Domain::IPV6;
    if v6 {
        set_option(socket.as_raw_fd(), IPPROTO_IPV6, IPV6_MINHOPCOUNT, &i32::from(least))?;
    }
    if !v6 || dual_stack {
        set_option(socket.as_raw_fd(), IPPROTO_IP, IP_MINTTL, &i32::from(least))?;
    }
    Ok(())
}

/// Prepares a listening socket: its SYN-ACK must have the TTL that a neighbour with GTSM demands, and the kernel
/// keeps the headers of each SYN for [`syn_ttl`].
pub(super) fn prepare_listener(socket: &SockRef<'_>, dual_stack: bool) -> io::Result<()> {
    set(socket, TTL_MAX, dual_stack)?;
    set_option(socket.as_raw_fd(), IPPROTO_TCP, TCP_SAVE_SYN, &1_i32)
}

/// The TTL of the SYN of an accepted connection. [`set_least`] acts only on packets that arrive after it, so the caller
/// checks the SYN itself. `None` where the kernel has kept no SYN, because it answered with a SYN cookie.
pub(super) fn syn_ttl(stream: &TcpStream) -> io::Result<Option<u8>> {
    let mut headers = [0; 128];
    let len = saved_syn(stream, &mut headers)?;
    let headers = headers.get(..len).unwrap_or_default();
    // The TTL's place in the header, by the version of IP.
    let place = match headers.first().map(|byte| byte >> 4) {
        Some(4) => 8,
        Some(6) => 7,
        _ => return Ok(None),
    };
    Ok(headers.get(place).copied())
}

/// Reads the IP and TCP headers of a connection's SYN. Returns their length.
#[expect(unsafe_code, reason = "neither std nor socket2 has this option")]
fn saved_syn(stream: &TcpStream, headers: &mut [u8]) -> io::Result<usize> {
    let mut len = headers.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which `headers` has, and the length.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            IPPROTO_TCP,
            TCP_SAVED_SYN,
            headers.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

/// Why GTSM refuses an accepted connection by the TTL of its SYN, if it does.
pub(super) fn low_syn_ttl(stream: &TcpStream, least: u8) -> Option<String> {
    match syn_ttl(stream) {
        Ok(Some(ttl)) if ttl < least => {
            Some(format!("its SYN came with TTL {ttl}, and ttl-security demands {least} and more"))
        }
        Ok(Some(_)) => None,
        // The kernel accepted packets of any TTL until the socket had its least TTL.
        Ok(None) => Some("the kernel answered its SYN with a SYN cookie, so the TTL is not known".into()),
        Err(error) => Some(format!("the TTL of its SYN is not known: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};

    fn accepted(listen: &str, connect: &str, ttl: u8) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).unwrap();
        prepare_listener(&SockRef::from(&listener), listen.contains("[::]")).unwrap();
        let to = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
        let client = socket2::Socket::new(Domain::for_address(to), socket2::Type::STREAM, None).unwrap();
        set(&SockRef::from(&client), ttl, false).unwrap();
        client.connect(&to.into()).unwrap();
        (client.into(), listener.accept().unwrap().0)
    }

    #[test]
    fn syn_ttl_is_the_clients_of_either_family() {
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
            for ttl in [64, TTL_MAX] {
                let (_client, server) = accepted(listen, connect, ttl);
                assert_eq!(syn_ttl(&server).unwrap(), Some(ttl), "{listen} {connect}");
            }
        }
    }

    #[test]
    fn packets_below_the_least_ttl_do_not_arrive() {
        use std::io::{ErrorKind, Read, Write};
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let (mut client, mut server) = accepted(listen, connect, TTL_MAX);
            let mapped = listen.contains("[::]") && connect.contains('.');
            set_least(&SockRef::from(&server), 254, mapped).unwrap();
            let mut read = || {
                server.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
                let mut buffer = [0; 8];
                server.read(&mut buffer).map_err(|e| e.kind())
            };
            client.write_all(b"near").unwrap();
            assert_eq!(read(), Ok(4), "{listen} {connect}");
            set(&SockRef::from(&client), 253, false).unwrap();
            client.write_all(b"far").unwrap();
            assert_eq!(read(), Err(ErrorKind::WouldBlock), "{listen} {connect}");
        }
    }
}
