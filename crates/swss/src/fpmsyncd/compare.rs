//! The comparison with ribtide's client: what this machine has of its messages, a page at a time.
//!
//! The client compares, and sends again what differs; see `ribtide_wire::fpm::compare`. What is compared
//! is the table of routes and next-hop objects that rows are made of. Rows are compared with APPL_DB
//! ([`super::reconcile`]).

use super::source::{SourceId, What};
use super::table::Entry as RouteEntry;
use super::{FpmOut, Fpmsyncd};
use crate::row::Via;
use ribtide_prefix::Map;
use ribtide_wire::fpm::compare::{self, Entry, KEYS_MAX, Key, PAGE_MAX, Query, Reply};

/// A position among the entries of a page: next-hop objects by id, then routes by VRF, family and place.
/// As a number 0 is the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cursor {
    /// Objects from this id on.
    Objects(u32),
    Routes {
        vrf: u32,
        ipv6: bool,
        at: u32,
    },
}

impl Cursor {
    const ROUTES: u64 = 1 << 63;
    const IPV6: u64 = 1 << 32;
    const VRF_SHIFT: u32 = 33;

    fn from_number(number: u64) -> Cursor {
        if number & Cursor::ROUTES == 0 {
            return Cursor::Objects(number as u32);
        }
        let vrf = ((number & !Cursor::ROUTES) >> Cursor::VRF_SHIFT) as u32;
        Cursor::Routes { vrf, ipv6: number & Cursor::IPV6 != 0, at: number as u32 }
    }

    fn number(self) -> u64 {
        match self {
            Cursor::Objects(id) => u64::from(id),
            Cursor::Routes { vrf, ipv6, at } => {
                let ipv6 = if ipv6 { Cursor::IPV6 } else { 0 };
                Cursor::ROUTES | u64::from(vrf) << Cursor::VRF_SHIFT | ipv6 | u64::from(at)
            }
        }
    }
}

/// Fingerprints of the next hops of sources, computed once in a page.
#[derive(Default)]
struct Fingerprints {
    last: Option<(SourceId, u64)>,
    all: Map<SourceId, u64>,
}

/// The entries of a page.
#[derive(Default)]
struct Page {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Page {
    /// Adds an entry; false if it has no room.
    fn push(&mut self, key: Key, content: Option<u64>) -> bool {
        if self.bytes + key.entry_len() > PAGE_MAX {
            return false;
        }
        self.bytes += key.entry_len();
        self.entries.push(Entry { key, content });
        true
    }
}

impl Fpmsyncd {
    /// Whether it has what clients send: not where it deliberately keeps something else.
    pub(super) fn is_comparable(&self) -> bool {
        !self.config.as_sonic.weights && !self.config.as_sonic.next_hop_change
    }

    /// Takes in a query of ribtide's client.
    pub(super) fn compare_query(&self, seq: u32, query: &Query, out: &mut FpmOut) {
        let mut reply = Reply { seq, ready: self.is_replayed(), next: None, entries: Vec::new() };
        if reply.ready {
            let mut fingerprints = Fingerprints::default();
            match query {
                Query::Page(from) => {
                    let mut page = Page::default();
                    let next = self.fill(Cursor::from_number(*from), &mut page, &mut fingerprints);
                    reply.next = next.map(Cursor::number);
                    reply.entries = page.entries;
                }
                Query::Keys(keys) => {
                    let keys = keys.iter().take(KEYS_MAX);
                    let entry =
                        |key: &Key| Some(Entry { key: *key, content: self.held(*key, &mut fingerprints)? });
                    reply.entries = keys.filter_map(entry).collect();
                }
            }
        }
        compare::write_reply(&mut out.comparison, &reply);
    }

    /// Fills a page from a position on. Returns the next position.
    fn fill(&self, from: Cursor, page: &mut Page, fingerprints: &mut Fingerprints) -> Option<Cursor> {
        let (mut vrf, mut ipv6, mut at) = match from {
            Cursor::Routes { vrf, ipv6, at } => (vrf, ipv6, at),
            Cursor::Objects(from) => {
                for (id, content) in self.objects.fingerprints_from(from) {
                    if !page.push(Key::Object(id), Some(content)) {
                        return Some(Cursor::Objects(id));
                    }
                }
                (0, false, 0)
            }
        };
        loop {
            let of = self.vrfs.get(vrf as usize)?;
            while let Some((prefix, entry)) = of.routes.at(ipv6, at) {
                if let Some(content) = self.content(of.is_vnet, entry, fingerprints)
                    && !page.push(Key::Route(of.table, prefix), content)
                {
                    return Some(Cursor::Routes { vrf, ipv6, at });
                }
                at += 1;
            }
            (vrf, ipv6, at) = if ipv6 { (vrf + 1, false, 0) } else { (vrf, true, 0) };
        }
    }

    /// The content of an entry that this machine has; `None` within: it is not compared.
    fn held(&self, key: Key, fingerprints: &mut Fingerprints) -> Option<Option<u64>> {
        let (table, prefix) = match key {
            Key::Object(id) => return self.objects.fingerprint(id).map(Some),
            Key::Route(table, prefix) => (table, prefix),
        };
        if self.numbers.is_held(table, prefix) {
            // It waits for the name of its VRF.
            return Some(None);
        }
        match self.vrf_name(table, false) {
            // The management's routes are not carried, nor are those of one without a name.
            Err(None) => Some(None),
            Err(Some(_)) => None,
            Ok(name) => {
                let vrf = self.find_vrf(name.as_deref())?;
                let of = &self.vrfs[vrf as usize];
                self.content(of.is_vnet, of.routes.get(prefix)?, fingerprints)
            }
        }
    }

    /// The content of a route; the outer `None`: it is withdrawn, the inner one: it is not compared.
    fn content(
        &self,
        is_vnet: bool,
        entry: &RouteEntry,
        fingerprints: &mut Fingerprints,
    ) -> Option<Option<u64>> {
        let source = entry.source?;
        // VNETs have no weights.
        Some(
            (!is_vnet)
                .then(|| compare::route(entry.protocol, fingerprints.of(source, self.sources.what(source)))),
        )
    }
}

impl Fingerprints {
    fn of(&mut self, source: SourceId, what: &What) -> u64 {
        if let Some((last, content)) = self.last
            && last == source
        {
            return content;
        }
        let content = *self.all.entry(source).or_insert_with(|| next_hops(what));
        self.last = Some((source, content));
        content
    }
}

/// The fingerprint of the next hops of a source, as ribtide's client may have sent them.
fn next_hops(what: &What) -> u64 {
    match what {
        What::Fixed(via) if **via == Via::blackhole() => compare::BLACKHOLE,
        What::Hops(hops) => compare::next_hops(hops.iter().map(|hop| (hop.gateway, hop.ifindex, hop.weight))),
        What::Object(id) => compare::named_object(*id),
        // Rows from before the start, and what ribtide's client does not send.
        What::Fixed(_)
        | What::Labelled(_)
        | What::Overlay(_)
        | What::Segment(..)
        | What::Vpn(..)
        | What::Vnet(_) => compare::FOREIGN,
    }
}
