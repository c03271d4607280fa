//! Dumps: one buffer at a time, and what changes in between.
//!
//! A dump of IPv4 routes goes on behind the last prefix. One of IPv6 routes goes on behind so many
//! routes, so it may leave out a route when another one went meanwhile. One of objects is marked as
//! inconsistent after a change.

use super::{Kernel, State, encode};
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_wire::netlink::numbers::{
    AF_INET, AF_INET6, NLM_F_DUMP_INTR, NLM_F_MULTI, RT_TABLE_MAIN, RTA_TABLE, RTM_GETADDR, RTM_GETLINK,
    RTM_GETNEXTHOP, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEXTHOP, RTM_NEWROUTE, RTPROT_KERNEL,
};
use ribtide_wire::netlink::{Attrs, Message};

/// Messages of one buffer, where the simulation sets no other number.
const PAGE: usize = 100;

/// A dump under way.
pub(super) struct Dump {
    what: What,
    seq: u32,
    /// Messages so far.
    count: usize,
    /// The last IPv4 route: its prefix, and how many routes of it are done.
    last: Option<(AnyPrefix, usize)>,
    /// The version of the objects at the last buffer.
    version: Option<u64>,
    /// A fault: it is marked as inconsistent.
    interrupted: bool,
}

enum What {
    Links,
    Addresses,
    Objects,
    Routes { afi: Afi, table: u32, protocol: u8 },
}

impl Dump {
    /// The dump of a request; `None` if it is none.
    pub(super) fn of(message: &Message<'_>) -> Option<Dump> {
        let what = match message.kind {
            RTM_GETLINK => What::Links,
            RTM_GETADDR => What::Addresses,
            RTM_GETNEXTHOP => What::Objects,
            RTM_GETROUTE => {
                let (fixed, attrs) = message.body.split_at_checked(12)?;
                let afi = match fixed[0] {
                    AF_INET => Afi::Ipv4,
                    AF_INET6 => Afi::Ipv6,
                    _ => return None,
                };
                let mut table = u32::from(fixed[4]);
                for attr in Attrs::new(attrs).flatten().filter(|attr| attr.kind == RTA_TABLE) {
                    table = attr.value.try_into().map(u32::from_ne_bytes).ok()?;
                }
                What::Routes { afi, table, protocol: fixed[5] }
            }
            _ => return None,
        };
        Some(Dump { what, seq: message.seq, count: 0, last: None, version: None, interrupted: false })
    }
}

impl State {
    /// The next buffer of a dump of the socket with this port id, and whether it is the last.
    pub(super) fn dump_on(&mut self, dump: &mut Dump, port: u32) -> (Vec<u8>, bool) {
        if let Some(errno) = self.faults.refused_dump() {
            return (encode::done(errno, 0, dump.seq, port), true);
        }
        if let What::Routes { afi, protocol: RTPROT_KERNEL, .. } = dump.what {
            let routes = self.connected_routes(afi);
            let messages = routes.iter().map(|(prefix, entry)| {
                let route = (*prefix, u32::from(RT_TABLE_MAIN), entry);
                encode::route(self, route, RTM_NEWROUTE, NLM_F_MULTI, dump.seq, port)
            });
            let bytes = messages.flatten().chain(encode::done(0, 0, dump.seq, port)).collect();
            return (bytes, true);
        }
        if let What::Routes { afi, table, .. } = dump.what
            && table != 0
            && !self.tables.contains_key(&(afi, table))
        {
            return (encode::done(libc::ENOENT, 0, dump.seq, port), true);
        }
        let page = if self.faults.page == 0 { PAGE } else { self.faults.page };
        let mut flags = NLM_F_MULTI;
        if matches!(dump.what, What::Objects) {
            let changed = dump.version.is_some_and(|version| version != self.objects_version);
            dump.version = Some(self.objects_version);
            dump.interrupted |= changed;
        }
        dump.interrupted |= self.faults.interrupted_dump();
        if dump.interrupted {
            flags |= NLM_F_DUMP_INTR;
        }
        let messages = self.dumped(dump, page, flags, port);
        let ended = messages.len() < page;
        dump.count += messages.len();
        let mut bytes = messages.concat();
        if ended {
            bytes.extend(encode::done(0, flags & NLM_F_DUMP_INTR, dump.seq, port));
        }
        (bytes, ended)
    }

    fn dumped(&self, dump: &mut Dump, page: usize, flags: u16, port: u32) -> Vec<Vec<u8>> {
        let Dump { seq, count, .. } = *dump;
        match dump.what {
            What::Links => {
                let links = self.links.iter().skip(count).take(page);
                links.map(|(index, link)| encode::link(*index, link, RTM_NEWLINK, flags, seq, port)).collect()
            }
            What::Addresses => {
                let all = self.links.iter().flat_map(|(index, link)| {
                    link.addresses.iter().map(move |(address, len)| (*index, *address, *len))
                });
                let some = all.skip(count).take(page);
                some.map(|(index, address, len)| {
                    encode::address(index, address, len, RTM_NEWADDR, flags, seq, port)
                })
                .collect()
            }
            What::Objects => {
                let objects = self.objects.iter().skip(count).take(page);
                objects
                    .map(|(id, object)| encode::object(*id, object, RTM_NEWNEXTHOP, flags, seq, port))
                    .collect()
            }
            What::Routes { afi, table, protocol } => {
                let tables = self
                    .tables
                    .iter()
                    .filter(|((of, number), _)| *of == afi && (table == 0 || table == *number));
                let all = tables.flat_map(|((_, number), routes)| {
                    routes.iter().map(move |(prefix, entry)| (prefix, *number, entry))
                });
                let mine = all.filter(|(_, _, entry)| protocol == 0 || entry.protocol == protocol);
                let some: Vec<_> = match (afi, dump.last) {
                    (Afi::Ipv4, Some((last, done))) => {
                        let rest = mine.skip_while(|(prefix, ..)| *prefix < last);
                        let mut seen = 0;
                        rest.filter(|(prefix, ..)| {
                            let again = *prefix == last && seen < done;
                            seen += usize::from(again);
                            !again
                        })
                        .take(page)
                        .collect()
                    }
                    (Afi::Ipv4, None) => mine.take(page).collect(),
                    (Afi::Ipv6, _) => mine.skip(count).take(page).collect(),
                };
                for (prefix, ..) in &some {
                    dump.last = match dump.last {
                        Some((last, done)) if last == *prefix => Some((last, done + 1)),
                        _ => Some((*prefix, 1)),
                    };
                }
                some.into_iter()
                    .map(|route| encode::route(self, route, RTM_NEWROUTE, flags, seq, port))
                    .collect()
            }
        }
    }
}

impl Kernel {
    /// Messages of each buffer of a dump.
    pub fn set_page(&self, page: usize) {
        self.state().faults.page = page;
    }
}
