//! The kernel's table: written by the ceiling, and read for the comparison.

use super::run::{GATEWAYS, LINK, Phase};
use ribtide_prefix::{Afi, Prefix, V4};
use ribtide_wire::netlink::numbers::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, RT_TABLE_MAIN};
use ribtide_wire::netlink::{
    Content, Forward, NextHop, NextHops, Route, Via, dump_links, dump_next_hops, dump_table, messages,
};
use socket2::{Domain, Protocol, Type};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::time::Instant;

/// Messages of one system call: more are not faster.
const CHUNK: usize = 256;
/// The ceiling's protocol number, which no other program uses.
const MARK: u8 = 250;
const MAIN: u32 = RT_TABLE_MAIN as u32;
/// Ids of the ceiling's next-hop objects begin here, in the order of gateways.
const OBJECTS: u32 = 1;

/// A netlink socket in the namespace of the calling thread.
pub(crate) struct Kernel {
    socket: socket2::Socket,
    read: Vec<u8>,
    seq: u32,
}

impl Kernel {
    pub(crate) fn open() -> io::Result<Kernel> {
        let protocol = Some(Protocol::from(nix::libc::NETLINK_ROUTE));
        let socket = socket2::Socket::new(Domain::from(nix::libc::AF_NETLINK), Type::RAW, protocol)?;
        socket.set_recv_buffer_size(1 << 20)?;
        Ok(Kernel { socket, read: vec![0; 256 << 10], seq: 0 })
    }

    /// Makes the next-hop objects of the ceiling's routes.
    pub(super) fn make_objects(&mut self) -> io::Result<()> {
        let mut link = 0;
        self.dump(dump_links, |content| {
            if let Content::NewLink(l) = content
                && l.name == LINK
            {
                link = l.index;
            }
        })?;
        for (id, gateway) in (OBJECTS..).zip(GATEWAYS) {
            let via = Via { gateway: Some(IpAddr::V4(gateway)), ifindex: link, onlink: false };
            let object = NextHop { id, protocol: MARK, forward: Forward::via(via) };
            let mut out = Vec::new();
            let flags = NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
            object.write_new(&mut out, flags, self.seq + 1).map_err(io::Error::other)?;
            self.seq += 1;
            self.send(&out)?;
        }
        Ok(())
    }

    /// The messages of a phase, in chunks that end with an acknowledged one.
    pub(super) fn prepare(
        &mut self,
        phase: Phase,
        prefixes: impl Iterator<Item = Prefix<V4>>,
    ) -> io::Result<Vec<(Vec<u8>, u32)>> {
        let all: Vec<Prefix<V4>> = prefixes.collect();
        let mut chunks = Vec::new();
        for some in all.chunks(CHUNK) {
            let mut out = Vec::with_capacity(CHUNK * 64);
            for (i, prefix) in some.iter().enumerate() {
                self.seq += 1;
                let ack = if i + 1 == some.len() { NLM_F_ACK } else { 0 };
                let next_hops = phase.gateway().map_or(NextHops::None, |n| NextHops::Id(OBJECTS + n as u32));
                let route = Route::new(prefix.any(), MAIN, MARK, next_hops);
                let written = match phase {
                    Phase::Delete => route.write_delete(&mut out, ack, self.seq),
                    Phase::Add | Phase::Replace => {
                        route.write_new(&mut out, NLM_F_CREATE | NLM_F_REPLACE | ack, self.seq)
                    }
                };
                written.map_err(io::Error::other)?;
            }
            chunks.push((out, self.seq));
        }
        Ok(chunks)
    }

    /// Sends the chunks, each after the acknowledgement of the one before. Returns the seconds.
    pub(super) fn write(&mut self, chunks: &[(Vec<u8>, u32)]) -> io::Result<f64> {
        let begin = Instant::now();
        for (chunk, last) in chunks {
            self.seq = *last;
            self.send(chunk)?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Sends, and reads until the last message is acknowledged.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.send(bytes)?;
        loop {
            let n = self.socket.read(&mut self.read)?;
            for message in messages(&self.read[..n]) {
                let message = message.map_err(io::Error::other)?;
                if let Content::Ack(ack) = Content::decode(&message).map_err(io::Error::other)? {
                    if ack.errno != 0 {
                        return Err(io::Error::from_raw_os_error(ack.errno));
                    }
                    if message.seq == self.seq {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn dump(
        &mut self,
        write: impl Fn(&mut Vec<u8>, u32),
        mut each: impl FnMut(Content<'_>),
    ) -> io::Result<()> {
        self.seq += 1;
        let mut out = Vec::new();
        write(&mut out, self.seq);
        self.socket.send(&out)?;
        loop {
            let n = self.socket.read(&mut self.read)?;
            for message in messages(&self.read[..n]) {
                match Content::decode(&message.map_err(io::Error::other)?).map_err(io::Error::other)? {
                    Content::Done(_) => return Ok(()),
                    Content::Ack(ack) if ack.errno != 0 => {
                        return Err(io::Error::from_raw_os_error(ack.errno));
                    }
                    content => each(content),
                }
            }
        }
    }

    /// The number of a protocol's IPv4 routes in the main table.
    pub(crate) fn routes_of(&mut self, protocol: u8) -> io::Result<u64> {
        let mut count = 0;
        self.dump(
            |out, seq| dump_table(out, seq, Afi::Ipv4, MAIN),
            |content| {
                if let Content::NewRoute(route) = content {
                    count += u64::from(route.table == MAIN && route.protocol == protocol);
                }
            },
        )?;
        Ok(count)
    }

    /// IPv4 routes of the main table per gateway; those without one are left out.
    pub(super) fn routes_by_gateway(&mut self) -> io::Result<HashMap<IpAddr, usize>> {
        let mut singles: HashMap<u32, IpAddr> = HashMap::new();
        let mut groups: HashMap<u32, u32> = HashMap::new();
        self.dump(dump_next_hops, |content| {
            let Content::NewNextHop(object) = content else { return };
            match object.forward {
                Forward::Via(_, Via { gateway: Some(gateway), .. }) => {
                    singles.insert(object.id, gateway);
                }
                Forward::Group(mut members) => {
                    groups.extend(members.next().map(|member| (object.id, member.id)));
                }
                _ => {}
            }
        })?;
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        self.dump(
            |out, seq| dump_table(out, seq, Afi::Ipv4, MAIN),
            |content| {
                let Content::NewRoute(route) = content else { return };
                let gateway = match route.next_hops {
                    NextHops::Id(id) => singles.get(groups.get(&id).unwrap_or(&id)).copied(),
                    NextHops::Inline(mut hops) => hops.next().and_then(|hop| hop.via.gateway),
                    NextHops::None => None,
                };
                if let Some(gateway) = gateway.filter(|_| route.table == MAIN) {
                    *counts.entry(gateway).or_default() += 1;
                }
            },
        )?;
        Ok(counts)
    }
}
