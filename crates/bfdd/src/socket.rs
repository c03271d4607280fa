//! UDP sockets of BFD: a receiving one for each local address and port, and a sending one for each
//! session (RFC 5881 section 4).

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use ribtide_bfd::Origin;
use ribtide_wire::bfd::{FIRST_SOURCE_PORT, MULTIHOP_PORT, SINGLE_HOP_PORT, TTL};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

/// Longer than any valid packet. A longer one is truncated and then refused for its length.
const LONGEST: usize = 256;
/// Class selector 6, as for routing protocols.
const TOS: u32 = 0xc0;

/// A receiving socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: UdpSocket,
    /// The local address, or any.
    pub(super) address: IpAddr,
    pub(super) multihop: bool,
    /// Whether it may be readable.
    pub(super) ready: bool,
    /// The buffer for control messages.
    control: Vec<u8>,
}

/// A received packet.
pub(super) struct Received {
    pub(super) bytes: [u8; LONGEST],
    pub(super) len: usize,
    pub(super) origin: Origin,
}

impl Listener {
    /// Binds.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn bind(address: IpAddr, multihop: bool) -> io::Result<Listener> {
        let port = if multihop { MULTIHOP_PORT } else { SINGLE_HOP_PORT };
        let bound = bind(SocketAddr::new(address, port)).map_err(|error| {
            let cure = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "another BFD daemon runs; stop it (`ss -lunp` names it), or set bfd.listen to other addresses"
                }
                _ => "set bfd.listen to addresses of this machine",
            };
            let sentence = format!("BFD cannot receive on {address} port {port}: {error}; {cure}");
            io::Error::new(error.kind(), sentence)
        })?;
        let control = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo, libc::c_int, libc::c_int);
        Ok(Listener { socket: bound, address, multihop, ready: true, control })
    }

    /// The next packet; `None` without one, or after something that is no packet.
    pub(super) fn receive(&mut self) -> Option<Received> {
        let mut bytes = [0; LONGEST];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let fd = self.socket.as_raw_fd();
        let control = Some(self.control.as_mut_slice());
        let read = recvmsg::<SockaddrStorage>(fd, &mut parts, control, MsgFlags::MSG_DONTWAIT);
        let message = match read {
            Ok(message) => message,
            Err(nix::errno::Errno::EINTR) => return None,
            Err(_) => {
                self.ready = false;
                return None;
            }
        };
        let (mut to, mut interface, mut ttl) = (None, 0, 0);
        for item in message.cmsgs().ok()? {
            match item {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    interface = info.ipi_ifindex as u32;
                    to = Some(IpAddr::from(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))));
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    interface = info.ipi6_ifindex;
                    to = Some(IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                ControlMessageOwned::Ipv4Ttl(value) | ControlMessageOwned::Ipv6HopLimit(value) => {
                    ttl = u8::try_from(value).unwrap_or(0);
                }
                _ => {}
            }
        }
        let from = message.address.as_ref().and_then(|a| match (a.as_sockaddr_in(), a.as_sockaddr_in6()) {
            (Some(a), _) => Some(IpAddr::from(a.ip())),
            (_, Some(a)) => Some(IpAddr::from(a.ip())),
            _ => None,
        });
        let (len, multihop) = (message.bytes, self.multihop);
        let origin = Origin { from: from?, to: to?, interface, ttl, multihop };
        Some(Received { bytes, len, origin })
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A sending socket with the local address `local` and a port of its own: the first free one from
/// `port`, which is advanced behind it.
pub(super) fn sender(local: IpAddr, port: &mut u16) -> io::Result<UdpSocket> {
    let domain = if local.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if local.is_ipv4() {
        socket.set_ttl_v4(u32::from(TTL))?;
        socket.set_tos_v4(TOS)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_unicast_hops_v6(u32::from(TTL))?;
        socket.set_tclass_v6(TOS)?;
    }
    // No peer sends to it.
    socket.set_recv_buffer_size(0)?;
    socket.set_nonblocking(true)?;
    for _ in FIRST_SOURCE_PORT..=u16::MAX {
        let address = SocketAddr::new(local, *port);
        *port = port.checked_add(1).unwrap_or(FIRST_SOURCE_PORT);
        match socket.bind(&address.into()) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound.map(|()| socket.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "every port from 49152 on is in use"))
}

/// The destination of packets to `peer`. `interface`: the index, if its address is link-local.
pub(super) fn destination(peer: IpAddr, interface: Option<u32>, multihop: bool) -> SocketAddr {
    let port = if multihop { MULTIHOP_PORT } else { SINGLE_HOP_PORT };
    match (peer, interface) {
        (IpAddr::V6(peer), Some(interface)) => SocketAddrV6::new(peer, port, 0, interface).into(),
        _ => SocketAddr::new(peer, port),
    }
}

/// The index of the interface `name`, if it exists.
pub(super) fn index_of(name: &str) -> Option<u32> {
    if_nametoindex(name).ok()
}
