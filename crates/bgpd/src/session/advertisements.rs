//! The socket of Router Advertisements (RFC 4861): routers learn each other's link-local addresses from them.

use super::socket::set_option;
use libc::{IFNAMSIZ, IPPROTO_ICMPV6, SIOCGIFHWADDR};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, setsockopt, sockopt};
use ribtide_wire::ndp::{self, HOP_LIMIT, Message};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Longer than what is read of a message: options that do not fit are cut off, and such a message is discarded.
const LONGEST: usize = 2048;
/// Linux: the socket option with the types that a raw ICMPv6 socket receives.
const ICMPV6_FILTER: libc::c_int = 1;
/// The type of an Ethernet interface, whose link-layer addresses have six bytes.
const ARPHRD_ETHER: u16 = 1;

/// A raw ICMPv6 socket for advertisements and solicitations of all links.
pub(super) struct AdvertisementSocket {
    socket: Socket,
    /// The buffer for control messages.
    control: Vec<u8>,
}

/// A received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Received {
    /// The index of the interface.
    pub(super) interface: u32,
    pub(super) from: Ipv6Addr,
    pub(super) message: Message,
}

impl AdvertisementSocket {
    /// Opens it. It needs CAP_NET_RAW.
    pub(super) fn open() -> io::Result<AdvertisementSocket> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_nonblocking(true)?;
        socket.set_multicast_hops_v6(HOP_LIMIT.into())?;
        socket.set_unicast_hops_v6(HOP_LIMIT.into())?;
        socket.set_multicast_loop_v6(false)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        // A set bit blocks its type.
        let mut filter = [u32::MAX; 8];
        for kind in [ndp::ROUTER_SOLICITATION, ndp::ROUTER_ADVERTISEMENT] {
            filter[usize::from(kind / 32)] &= !(1 << (kind % 32));
        }
        set_option(socket.as_raw_fd(), IPPROTO_ICMPV6, ICMPV6_FILTER, &filter)?;
        let control = nix::cmsg_space!(libc::in6_pktinfo, libc::c_int);
        Ok(AdvertisementSocket { socket, control })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Receives solicitations from this link. Without, advertisements still go out in time.
    pub(super) fn join(&self, interface: u32) {
        let _ = self.socket.join_multicast_v6(&ALL_ROUTERS, interface);
    }

    /// Undoes [`AdvertisementSocket::join`]; the kernel does that for an interface that is gone.
    pub(super) fn leave(&self, interface: u32) {
        let _ = self.socket.leave_multicast_v6(&ALL_ROUTERS, interface);
    }

    /// Sends an advertisement to all nodes of a link.
    pub(super) fn advertise(&self, interface: u32, name: &str) -> io::Result<()> {
        self.send(&ndp::router_advertisement(self.hardware_address(name)), ALL_NODES, interface)
    }

    /// Asks the routers of a link for advertisements.
    pub(super) fn solicit(&self, interface: u32, name: &str) -> io::Result<()> {
        self.send(&ndp::router_solicitation(self.hardware_address(name)), ALL_ROUTERS, interface)
    }

    fn send(&self, message: &[u8], to: Ipv6Addr, interface: u32) -> io::Result<()> {
        let to: SocketAddr = SocketAddrV6::new(to, 0, 0, interface).into();
        self.socket.send_to(message, &to.into()).map(drop)
    }

    /// The next valid message; `Ok(None)` for one that is not. An error ends the reading: there is none, or the socket has
    /// another one.
    pub(super) fn receive(&mut self) -> io::Result<Option<Received>> {
        let mut bytes = [0; LONGEST];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let control = Some(self.control.as_mut_slice());
        let read =
            recvmsg::<SockaddrIn6>(self.socket.as_raw_fd(), &mut parts, control, MsgFlags::MSG_DONTWAIT)?;
        let (mut interface, mut hop_limit) = (0, 0);
        for item in read.cmsgs()? {
            match item {
                ControlMessageOwned::Ipv6PacketInfo(info) => interface = info.ipi6_ifindex,
                ControlMessageOwned::Ipv6HopLimit(value) => hop_limit = value,
                _ => {}
            }
        }
        let (from, len) = (read.address.map(|address| address.ip()), read.bytes);
        let message = bytes.get(..len).and_then(Message::parse);
        let near = hop_limit == i32::from(HOP_LIMIT) && interface != 0;
        Ok(match (from, message) {
            (Some(from), Some(message)) if near => Some(Received { interface, from, message }),
            _ => None,
        })
    }

    /// The link-layer address of an Ethernet interface.
    #[expect(unsafe_code, reason = "neither std nor socket2 nor nix has this request")]
    fn hardware_address(&self, name: &str) -> Option<[u8; 6]> {
        // SAFETY: all-zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = name.as_bytes();
        if name.len() >= IFNAMSIZ {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        // SAFETY: the kernel reads and writes one ifreq.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCGIFHWADDR, &raw mut request) };
        if result != 0 {
            return None;
        }
        // SAFETY: the kernel has written this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        (address.sa_family == ARPHRD_ETHER).then_some(mac)
    }
}
