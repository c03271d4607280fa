//! A device of packets: the netdev of a port (a packet socket), or the netdev of the CPU for a port (a
//! tap device).
//!
//! Both carry a header for what a network card would do (`struct virtio_net_hdr`): a checksum that is
//! not complete yet, or the size of segments that are not cut yet. So hosts need no change of their
//! offloads.

use ribtide_vswitch::checksum;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of the header before each frame.
const HEADER: usize = 10;
/// Bytes of a VLAN's tag.
const TAG: usize = 4;
/// Bytes of both addresses of a frame.
const ADDRESSES: usize = 12;
/// The greatest frame: an IP packet before it is cut into segments, with its Ethernet header and tags.
const FRAME_MAX: usize = 65_536 + 32;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`, a flag beside the types.
const ECN: u8 = 0x80;
/// `VIRTIO_NET_HDR_GSO_TCPV4` and `…_TCPV6`.
const TCP: [u8; 2] = [1, 4];
const ETHERNET_DEVICE: u16 = 1;

/// What is left to do for the frames of a packet that is not cut into segments yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segments {
    kind: u8,
    /// Bytes of data in each.
    size: u16,
    /// Where TCP or UDP begins, and its checksum behind that.
    checksum_start: u16,
    checksum_offset: u16,
}

impl Segments {
    /// Bytes of the longest frame.
    pub(super) fn longest(&self, frame: &[u8]) -> usize {
        let start = usize::from(self.checksum_start);
        start + self.transport_header(frame) + usize::from(self.size)
    }

    fn transport_header(&self, frame: &[u8]) -> usize {
        match TCP.contains(&(self.kind & !ECN)) {
            true => {
                let offset = frame.get(usize::from(self.checksum_start) + 12);
                offset.map_or(20, |offset| usize::from(offset >> 4) * 4)
            }
            false => 8,
        }
    }

    /// The same after the frame has grown or shrunk by its header.
    pub(super) fn moved(self, before: usize, after: usize) -> Option<Segments> {
        let start = (usize::from(self.checksum_start) + after).checked_sub(before)?;
        Some(Segments { checksum_start: u16::try_from(start).ok()?, ..self })
    }

    fn header(&self, frame: &[u8]) -> [u8; HEADER] {
        let length = usize::from(self.checksum_start) + self.transport_header(frame);
        let mut header = [0; HEADER];
        (header[0], header[1]) = (NEEDS_CHECKSUM, self.kind);
        let fields = [length as u16, self.size, self.checksum_start, self.checksum_offset];
        for (place, field) in header[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        header
    }
}

/// Takes in the header of a frame: completes a checksum, or gives the segments to be cut.
fn finish(header: [u8; HEADER], tagged: bool, frame: &mut [u8]) -> Option<Segments> {
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    if header[0] & NEEDS_CHECKSUM == 0 {
        return None;
    }
    let shift = if tagged { TAG as u16 } else { 0 };
    let (start, offset) = (field(6).saturating_add(shift), field(8));
    if header[1] != 0 {
        return Some(Segments {
            kind: header[1],
            size: field(4),
            checksum_start: start,
            checksum_offset: offset,
        });
    }
    // The place has the sum of the pseudo header already.
    let at = usize::from(start) + usize::from(offset);
    let sum = checksum(frame.get(usize::from(start)..)?);
    // In UDP 0 means: none.
    let sum = if sum == 0 { 0xffff } else { sum };
    frame.get_mut(at..at + 2)?.copy_from_slice(&sum.to_be_bytes());
    None
}

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    fd: OwnedFd,
    is_tap: bool,
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A buffer for [`Device::receive`].
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    pub(super) fn new() -> Buffer {
        Buffer(vec![0; TAG + FRAME_MAX])
    }
}

impl Device {
    /// All frames of an interface, also those to other MAC addresses, without those that this host sends.
    ///
    /// # Errors
    /// The system's: no permission (CAP_NET_RAW), no such interface.
    pub(super) fn port(index: u32) -> io::Result<Device> {
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        let fd: OwnedFd = socket.into();
        for option in [libc::PACKET_AUXDATA, libc::PACKET_VNET_HDR, libc::PACKET_IGNORE_OUTGOING] {
            set_option(&fd, option, &1i32)?;
        }
        bind(&fd, index)?;
        let all = libc::packet_mreq {
            mr_ifindex: index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(&fd, libc::PACKET_ADD_MEMBERSHIP, &all)?;
        Ok(Device { fd, is_tap: false })
    }

    /// A new netdev of this name, which ends with the value.
    ///
    /// # Errors
    /// The system's: no permission (CAP_NET_ADMIN, or /dev/net/tun), or the name is taken.
    pub(super) fn tap(name: &str, mac: [u8; 6]) -> io::Result<Device> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let mut request = request_for(name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
        ioctl(&fd, libc::TUNSETIFF as libc::c_ulong, &mut request)?;
        let mut request = request_for(name)?;
        let mut address = libc::sockaddr { sa_family: ETHERNET_DEVICE, sa_data: [0; 14] };
        for (place, byte) in address.sa_data.iter_mut().zip(mac) {
            *place = byte.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_hwaddr = address;
        ioctl(&fd, libc::SIOCSIFHWADDR as libc::c_ulong, &mut request)?;
        Ok(Device { fd, is_tap: true })
    }

    /// Gives the netdev of a tap a carrier, or takes it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn set_carrier(&self, up: bool) -> io::Result<()> {
        ioctl(&self.fd, libc::TUNSETCARRIER as libc::c_ulong, &mut i32::from(up))
    }

    /// The next frame that waits, with what is left to do for it.
    ///
    /// # Errors
    /// `WouldBlock` without one; else the system's.
    pub(super) fn receive<'b>(&self, buffer: &'b mut Buffer) -> io::Result<(&'b [u8], Option<Segments>)> {
        let (room, mut header) = (&mut buffer.0, [0; HEADER]);
        let (length, tag) = match self.is_tap {
            true => {
                let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut room[TAG..])];
                (rustix::io::readv(&self.fd, &mut parts)?, None)
            }
            false => receive_with_tag(&self.fd, &mut header, &mut room[TAG..])?,
        };
        let length = length.saturating_sub(HEADER);
        let frame = match tag.filter(|_| length >= ADDRESSES) {
            None => &mut room[TAG..TAG + length],
            // The kernel keeps the tag beside the frame.
            Some(tag) => {
                room.copy_within(TAG..TAG + ADDRESSES, 0);
                room[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
                &mut room[..TAG + length]
            }
        };
        let segments = finish(header, tag.is_some(), frame);
        Ok((frame, segments))
    }

    /// Sends a frame; the kernel cuts it into segments.
    ///
    /// # Errors
    /// The system's: the frame is lost, as on a wire.
    pub(super) fn send(&self, frame: &[u8], segments: Option<Segments>) -> io::Result<()> {
        let header = segments.map_or([0; HEADER], |segments| segments.header(frame));
        rustix::io::writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(frame)])?;
        Ok(())
    }
}

/// A request about the interface `name`.
fn request_for(name: &str) -> io::Result<libc::ifreq> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: 0 },
    };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(Errno::NAMETOOLONG.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed() as libc::c_char;
    }
    Ok(request)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[expect(unsafe_code, reason = "neither std nor socket2 nor rustix has these options")]
fn set_option<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, size) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `size` bytes of a value that outlives the call.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, value, size) })
}

#[expect(unsafe_code, reason = "neither std nor socket2 nor rustix has this address")]
fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of an address that outlives the call.
    checked(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) })
}

#[expect(unsafe_code, reason = "rustix has no requests of tap devices")]
fn ioctl<T>(fd: &OwnedFd, request: libc::c_ulong, value: &mut T) -> io::Result<()> {
    // SAFETY: each caller passes the type that its request reads and writes, and it outlives the call.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, std::ptr::from_mut(value)) })
}

/// Receives a frame in two parts, and its tag, which the kernel takes out of it. The length is that of both.
#[expect(unsafe_code, reason = "rustix and nix do not have this control message")]
fn receive_with_tag(
    fd: &OwnedFd,
    header: &mut [u8; HEADER],
    frame: &mut [u8],
) -> io::Result<(usize, Option<[u8; TAG]>)> {
    let mut parts = [
        libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
        libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() },
    ];
    let mut control = [0u64; 16];
    // SAFETY: the structure has numbers and pointers only, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the kernel writes at most the lengths given, into buffers that outlive the call.
    let length = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has set the length of the control buffer to what it wrote, and the macros stay inside of it.
    // The buffer is aligned for the header, and the data is read wherever it begins.
    let tag = unsafe {
        let mut tag = None;
        let mut next = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(part) = next.as_ref() {
            let size = libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) as usize;
            if (part.cmsg_level, part.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                && part.cmsg_len >= size
            {
                let data: libc::tpacket_auxdata =
                    libc::CMSG_DATA(part).cast::<libc::tpacket_auxdata>().read_unaligned();
                if data.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    let protocol = match data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
                        0 => 0x8100,
                        _ => data.tp_vlan_tpid,
                    };
                    let ([a, b], [c, d]) = (protocol.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
                    tag = Some([a, b, c, d]);
                }
            }
            next = libc::CMSG_NXTHDR(&raw const message, part);
        }
        tag
    };
    Ok((length, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_completed_and_segments_are_kept() {
        // UDP without data at 14, whose place has the sum of the pseudo header.
        let mut frame = [vec![0; 14], vec![0x30, 0x39, 0, 9, 0, 8, 0x12, 0x34]].concat();
        let mut header = [0; HEADER];
        header[0] = NEEDS_CHECKSUM;
        header[6..8].copy_from_slice(&14u16.to_ne_bytes());
        header[8..10].copy_from_slice(&6u16.to_ne_bytes());
        assert_eq!(finish(header, false, &mut frame), None);
        // 0x3039 + 9 + 8 + 0x1234 = 0x427e
        assert_eq!(frame[20..], [0xbd, 0x81]);
        assert_eq!(finish([0; HEADER], false, &mut frame), None);
        // It says more than there is.
        header[6..8].copy_from_slice(&60_000u16.to_ne_bytes());
        let before = frame.clone();
        assert_eq!((finish(header, true, &mut frame), frame), (None, before));

        let mut tcp = [vec![0; 34], vec![0; 12], vec![0x80], vec![0; 7 + 12], vec![7; 3000]].concat();
        header[1] = TCP[0];
        header[4..6].copy_from_slice(&1000u16.to_ne_bytes());
        header[6..8].copy_from_slice(&34u16.to_ne_bytes());
        header[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let segments = finish(header, false, &mut tcp).unwrap();
        assert_eq!(segments.longest(&tcp), 34 + 32 + 1000);
        header[2..4].copy_from_slice(&66u16.to_ne_bytes());
        assert_eq!(segments.header(&tcp), header);
        // A tag is pushed.
        let moved = segments.moved(tcp.len(), tcp.len() + 4).unwrap();
        assert_eq!((moved.checksum_start, moved.size), (38, 1000));
        assert_eq!(segments.moved(1000, 900), None);
    }
}
