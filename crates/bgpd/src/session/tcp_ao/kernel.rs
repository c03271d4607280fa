//! The socket options of TCP-AO: `linux/tcp.h` of Linux 6.7 and later.

use super::{KeySocket, KeyState, Peers};
use crate::session::socket::{set_option, storage_of};
use libc::{c_int, socklen_t};
use ribtide_config::TcpAoKey;
use socket2::{Domain, SockRef, Socket, Type};
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};

const TCP_AO_ADD_KEY: c_int = 38;
const TCP_AO_DEL_KEY: c_int = 39;
const TCP_AO_INFO: c_int = 40;
const TCP_AO_MAXKEYLEN: usize = 80;
/// Bytes of the signature: both algorithms of RFC 5926 have 96 bits.
const MAC_LEN: u8 = 12;

/// Bit fields of the options, in the order of their declaration.
mod flags {
    pub(super) const SET_CURRENT: u32 = bit(0);
    pub(super) const SET_RNEXT: u32 = bit(1);
    /// Of `tcp_ao_info_opt`.
    pub(super) const AO_REQUIRED: u32 = bit(2);

    /// The bit of the field with this number. A big-endian compiler fills the word from the other end.
    const fn bit(number: u32) -> u32 {
        if cfg!(target_endian = "big") { 1 << (31 - number) } else { 1 << number }
    }
}

/// The kernel's `struct tcp_ao_add`.
#[repr(C, align(8))]
struct TcpAoAdd {
    address: libc::sockaddr_storage,
    algorithm: [u8; 64],
    ifindex: i32,
    flags: u32,
    reserved: u16,
    prefix_len: u8,
    send_id: u8,
    recv_id: u8,
    mac_len: u8,
    key_flags: u8,
    key_len: u8,
    key: [u8; TCP_AO_MAXKEYLEN],
}

/// The kernel's `struct tcp_ao_del`.
#[repr(C, align(8))]
struct TcpAoDel {
    address: libc::sockaddr_storage,
    ifindex: i32,
    flags: u32,
    reserved: u16,
    prefix_len: u8,
    send_id: u8,
    recv_id: u8,
    current: u8,
    rnext: u8,
    key_flags: u8,
}

/// The kernel's `struct tcp_ao_info_opt`.
#[repr(C, align(8))]
#[derive(Default)]
struct TcpAoInfo {
    flags: u32,
    reserved: u16,
    current: u8,
    rnext: u8,
    good: u64,
    bad: u64,
    key_not_found: u64,
    unsigned: u64,
    dropped_icmp: u64,
}

// Sizes and places as in Linux 6.7's header, which this machine's compiler may not have.
const _: () = {
    assert!(size_of::<TcpAoAdd>() == 288 && align_of::<TcpAoAdd>() == 8);
    assert!(offset_of!(TcpAoAdd, algorithm) == 128 && offset_of!(TcpAoAdd, ifindex) == 192);
    assert!(offset_of!(TcpAoAdd, flags) == 196 && offset_of!(TcpAoAdd, prefix_len) == 202);
    assert!(offset_of!(TcpAoAdd, send_id) == 203 && offset_of!(TcpAoAdd, recv_id) == 204);
    assert!(offset_of!(TcpAoAdd, mac_len) == 205 && offset_of!(TcpAoAdd, key_flags) == 206);
    assert!(offset_of!(TcpAoAdd, key_len) == 207 && offset_of!(TcpAoAdd, key) == 208);
    assert!(size_of::<TcpAoDel>() == 144 && align_of::<TcpAoDel>() == 8);
    assert!(offset_of!(TcpAoDel, ifindex) == 128 && offset_of!(TcpAoDel, flags) == 132);
    assert!(offset_of!(TcpAoDel, prefix_len) == 138 && offset_of!(TcpAoDel, send_id) == 139);
    assert!(offset_of!(TcpAoDel, recv_id) == 140 && offset_of!(TcpAoDel, current) == 141);
    assert!(offset_of!(TcpAoDel, rnext) == 142 && offset_of!(TcpAoDel, key_flags) == 143);
    assert!(size_of::<TcpAoInfo>() == 48 && align_of::<TcpAoInfo>() == 8);
    assert!(offset_of!(TcpAoInfo, current) == 6 && offset_of!(TcpAoInfo, rnext) == 7);
    assert!(offset_of!(TcpAoInfo, good) == 8 && offset_of!(TcpAoInfo, dropped_icmp) == 40);
};

/// Whether this kernel has TCP-AO.
///
/// # Errors
/// No socket could be made to ask it.
pub fn is_supported() -> io::Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    match info(socket.as_raw_fd()) {
        // ENOENT: the socket has no keys, which a kernel says that knows of them.
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(e) => Err(e),
    }
}

impl<S: AsFd + AsRawFd> KeySocket for S {
    fn add_key(&self, peers: Peers, key: &TcpAoKey, current: bool, rnext: bool) -> io::Result<()> {
        let mut algorithm = [0; 64];
        let name = key.algorithm.kernel_name().as_bytes();
        algorithm[..name.len()].copy_from_slice(name);
        let mut bytes = [0; TCP_AO_MAXKEYLEN];
        let secret = key.secret.bytes();
        let secret = secret.get(..TCP_AO_MAXKEYLEN).unwrap_or(secret);
        bytes[..secret.len()].copy_from_slice(secret);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let Some(address) = address(self, peers)? else { return Ok(()) };
        let option = TcpAoAdd {
            address,
            algorithm,
            ifindex: 0,
            flags: flag(current, flags::SET_CURRENT) | flag(rnext, flags::SET_RNEXT),
            reserved: 0,
            prefix_len: peers.len,
            send_id: key.send_id,
            recv_id: key.recv_id,
            mac_len: MAC_LEN,
            key_flags: 0,
            key_len: secret.len() as u8,
            key: bytes,
        };
        set_option(self.as_raw_fd(), libc::IPPROTO_TCP, TCP_AO_ADD_KEY, &option)
    }

    fn delete_key(&self, peers: Peers, key: &TcpAoKey) -> io::Result<()> {
        let Some(address) = address(self, peers)? else { return Ok(()) };
        let option = TcpAoDel {
            address,
            ifindex: 0,
            flags: 0,
            reserved: 0,
            prefix_len: peers.len,
            send_id: key.send_id,
            recv_id: key.recv_id,
            current: 0,
            rnext: 0,
            key_flags: 0,
        };
        set_option(self.as_raw_fd(), libc::IPPROTO_TCP, TCP_AO_DEL_KEY, &option)
    }

    fn use_keys(&self, current: Option<u8>, rnext: Option<u8>) -> io::Result<()> {
        let flag = |id: Option<u8>, flag: u32| if id.is_some() { flag } else { 0 };
        let option = TcpAoInfo {
            flags: flags::AO_REQUIRED | flag(current, flags::SET_CURRENT) | flag(rnext, flags::SET_RNEXT),
            current: current.unwrap_or_default(),
            rnext: rnext.unwrap_or_default(),
            ..TcpAoInfo::default()
        };
        set_option(self.as_raw_fd(), libc::IPPROTO_TCP, TCP_AO_INFO, &option)
    }

    fn state(&self) -> io::Result<KeyState> {
        let info = info(self.as_raw_fd())?;
        let TcpAoInfo { flags: set, current, rnext, good, bad, key_not_found, unsigned, .. } = info;
        Ok(KeyState {
            current: (set & flags::SET_CURRENT != 0).then_some(current),
            rnext: (set & flags::SET_RNEXT != 0).then_some(rnext),
            good,
            bad,
            key_not_found,
            unsigned,
        })
    }
}

/// The address of the peers, in the form of the socket's family; `None` for peers that the socket never has.
fn address(socket: &impl AsFd, peers: Peers) -> io::Result<Option<libc::sockaddr_storage>> {
    let socket = SockRef::from(socket);
    let v6 = socket.domain()? == Domain::IPV6;
    if v6 && peers.address.is_ipv4() && socket.only_v6()? {
        return Ok(None);
    }
    // An IPv4 length counts from the first IPv4 bit, mapped or not.
    let address = match peers.address {
        IpAddr::V4(a) if v6 => a.to_ipv6_mapped().into(),
        other => other,
    };
    if address.is_ipv6() != v6 {
        return Ok(None);
    }
    Ok(Some(storage_of(SocketAddr::new(address, 0))))
}

/// What the kernel says of a socket's keys.
#[expect(unsafe_code, reason = "neither std nor socket2 has this option")]
fn info(socket: RawFd) -> io::Result<TcpAoInfo> {
    let mut option = TcpAoInfo::default();
    let mut len = size_of::<TcpAoInfo>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which `option` has, and the length; any bytes are a valid `TcpAoInfo`.
    let result = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, TCP_AO_INFO, (&raw mut option).cast(), &raw mut len)
    };
    if result == 0 { Ok(option) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The header of this machine, where it has TCP-AO, has the layout that the constants above assert.
    #[test]
    fn layout_is_that_of_the_header() {
        let folder = std::env::temp_dir().join(format!("ribtide-tcp-ao-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = folder.join("layout.c");
        let fields = [
            ("tcp_ao_add", "alg_name", offset_of!(TcpAoAdd, algorithm)),
            ("tcp_ao_add", "prefix", offset_of!(TcpAoAdd, prefix_len)),
            ("tcp_ao_add", "maclen", offset_of!(TcpAoAdd, mac_len)),
            ("tcp_ao_add", "key", offset_of!(TcpAoAdd, key)),
            ("tcp_ao_del", "sndid", offset_of!(TcpAoDel, send_id)),
            ("tcp_ao_del", "rnext", offset_of!(TcpAoDel, rnext)),
            ("tcp_ao_info_opt", "rnext", offset_of!(TcpAoInfo, rnext)),
            ("tcp_ao_info_opt", "pkt_ao_required", offset_of!(TcpAoInfo, unsigned)),
        ];
        let mut text = String::from(
            "#include <stddef.h>\n#include <linux/tcp.h>\n#ifndef TCP_AO_ADD_KEY\n#error absent\n#endif\n",
        );
        for (structure, field, offset) in fields {
            text +=
                &format!("_Static_assert(offsetof(struct {structure}, {field}) == {offset}, \"{field}\");\n");
        }
        for (structure, size) in [("tcp_ao_add", 288), ("tcp_ao_del", 144), ("tcp_ao_info_opt", 48)] {
            text += &format!("_Static_assert(sizeof(struct {structure}) == {size}, \"{structure}\");\n");
        }
        std::fs::write(&source, text).unwrap();
        let compiled = Command::new("cc").args(["-fsyntax-only"]).arg(&source).output();
        std::fs::remove_dir_all(&folder).unwrap();
        match compiled {
            Err(e) => println!("skipped: no C compiler: {e}"),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                if said.contains("#error absent") || said.contains("No such file") {
                    println!("skipped: linux/tcp.h has no TCP-AO");
                } else {
                    assert!(output.status.success(), "{said}");
                }
            }
        }
    }

    #[test]
    fn bits_are_those_of_the_fields() {
        if cfg!(target_endian = "little") {
            assert_eq!((flags::SET_CURRENT, flags::SET_RNEXT, flags::AO_REQUIRED), (1, 2, 4));
        }
    }
}
