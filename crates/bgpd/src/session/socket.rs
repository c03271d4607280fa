//! Sockets: listen, connect, options, and the addresses of an interface.

use super::tcp_ao;
use super::ttl::{self, TTL_MAX};
use super::unnumbered::Link;
use ribtide_config::{InterfaceConfig, NeighborSettings};
use ribtide_runtime::connect;
use ribtide_wire::netlink::{Content, dump_addresses, messages};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

/// Backlog of a listening socket.
const BACKLOG: i32 = 1024;

/// Listens on `address`; with `dual_stack`, an IPv6 one takes IPv4 as well.
pub(super) fn listen(address: SocketAddr, dual_stack: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!dual_stack)?;
    }
    ttl::prepare_listener(&SockRef::from(&socket), dual_stack)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Begins to connect. The socket becomes writable with the outcome.
pub(super) fn connect(to: SocketAddr, settings: &NeighborSettings, external: bool) -> io::Result<TcpStream> {
    connect::begin(to, settings.local_address, |socket| {
        if let Some(password) = &settings.password {
            set_md5(socket, to.ip(), None, password.bytes())?;
        }
        if let Some(ao) = &settings.tcp_ao {
            tcp_ao::prepare(socket, to.ip(), ao)?;
        }
        set_options(socket, settings, external)
    })
}

/// The socket options of a session.
pub(super) fn set_options(socket: &impl AsFd, settings: &NeighborSettings, external: bool) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    let is_ipv4 = |local: SocketAddr| local.ip().to_canonical().is_ipv4();
    let dual_stack =
        socket.domain()? == Domain::IPV6 && socket.local_addr()?.as_socket().is_some_and(is_ipv4);
    if let Some(least) = settings.least_ttl() {
        ttl::set(&socket, TTL_MAX, dual_stack)?;
        ttl::set_least(&socket, least, dual_stack)?;
    } else if external {
        // An external peer is on the link unless multihop gives a distance.
        ttl::set(&socket, settings.multihop.unwrap_or(1), dual_stack)?;
    }
    Ok(())
}

/// Sets an option whose value the kernel reads as a `T`.
#[expect(unsafe_code, reason = "neither std nor socket2 has every option")]
pub(super) fn set_option<T>(
    socket: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (at, len) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads at most `len` bytes at `at`, which are those of `value`.
    let result = unsafe { libc::setsockopt(socket, level, name, at, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's `struct tcp_md5sig`.
#[repr(C)]
struct TcpMd5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_len: u8,
    key_len: u16,
    ifindex: i32,
    key: [u8; 80],
}

const TCP_MD5SIG: libc::c_int = 14;
const TCP_MD5SIG_EXT: libc::c_int = 32;
const TCP_MD5SIG_FLAG_PREFIX: u8 = 1;

/// Sets the TCP-MD5 key of `peer`, or of its prefix of `prefix_len` (RFC 2385).
pub(crate) fn set_md5(
    socket: &impl AsRawFd,
    peer: IpAddr,
    prefix_len: Option<u8>,
    password: &[u8],
) -> io::Result<()> {
    let mut key = [0; 80];
    let bytes = password.get(..80).unwrap_or(password);
    key[..bytes.len()].copy_from_slice(bytes);
    let option = TcpMd5Sig {
        address: storage_of(SocketAddr::new(peer, 0)),
        flags: if prefix_len.is_some() { TCP_MD5SIG_FLAG_PREFIX } else { 0 },
        prefix_len: prefix_len.unwrap_or(0),
        key_len: bytes.len() as u16,
        ifindex: 0,
        key,
    };
    let name = if prefix_len.is_some() { TCP_MD5SIG_EXT } else { TCP_MD5SIG };
    set_option(socket.as_raw_fd(), libc::IPPROTO_TCP, name, &option)
}

/// Whether this kernel has TCP-MD5.
///
/// # Errors
/// No socket could be made to ask it, or it answers neither yes nor no.
pub fn has_tcp_md5() -> io::Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Removal of a key that is not there.
    match set_md5(&socket, Ipv4Addr::LOCALHOST.into(), None, &[]) {
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(e) if e.raw_os_error() != Some(libc::ENOENT) => Err(e),
        _ => Ok(true),
    }
}

/// An address as the kernel's options have it.
#[expect(unsafe_code, reason = "socket2 keeps the storage of an address to itself")]
pub(super) fn storage_of(address: SocketAddr) -> libc::sockaddr_storage {
    let address = socket2::SockAddr::from(address);
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: the address is at most as long as a sockaddr_storage.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            address.len() as usize,
        );
    }
    storage
}

/// The addresses of the interface that has `local`: it, and one of the other family if any. A link-local `local` may be on
/// several interfaces, so that of `link` is meant.
pub(super) fn own_addresses(
    local: IpAddr,
    link: Option<&Link>,
    configured: &[InterfaceConfig],
) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let of_config = configured
        .iter()
        .map(|i| (&i.name, i.addresses.iter().map(|(a, _)| *a).collect::<Vec<_>>()))
        .find(|(name, addresses)| link.map_or_else(|| addresses.contains(&local), |link| link.name == **name))
        .map(|(_, addresses)| addresses);
    // Without a reply the other family has no local next hop, and its routes are not sent.
    let addresses = of_config.or_else(|| kernel_addresses(local, link).ok()).unwrap_or_default();
    let mut own = (None, None);
    for address in std::iter::once(local).chain(addresses) {
        match address {
            IpAddr::V4(a) => own.0 = own.0.or(Some(a)),
            IpAddr::V6(a) if a.is_unicast_link_local() => {}
            IpAddr::V6(a) => own.1 = own.1.or(Some(a)),
        }
    }
    own
}

/// All addresses of the kernel's interface that has `local`, or is `link`.
fn kernel_addresses(local: IpAddr, link: Option<&Link>) -> io::Result<Vec<IpAddr>> {
    let socket =
        Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(Protocol::from(libc::NETLINK_ROUTE)))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut question = Vec::new();
    dump_addresses(&mut question, 1);
    socket.send(&question)?;
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    'answer: loop {
        let read = (&socket).read(&mut buffer)?;
        for message in messages(&buffer[..read]) {
            let content = message.and_then(|m| Content::decode(&m));
            match content {
                Ok(Content::NewAddress(address)) if address.usable() => all.push(address),
                Ok(Content::Done(_) | Content::Ack(_)) => break 'answer,
                _ => {}
            }
        }
    }
    let of_local = || all.iter().find(|a| a.local == local).map(|a| a.ifindex);
    let interface = link.map(|link| link.index).or_else(of_local);
    Ok(all.iter().filter(|a| Some(a.ifindex) == interface).map(|a| a.local).collect())
}
