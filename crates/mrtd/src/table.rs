//! A dump of all paths after import policy (TABLE_DUMP_V2), a page of a shard at a time.
//!
//! A prefix is as it is when its page is read; the dump as a whole is not of one moment. The index of peers is the
//! first record, so it has the sessions at the begin, and paths of sessions of other peers that begin later are left
//! out.

use super::Collector;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::shard::{PrefixPaths, StoredPath};
use ribtide_bgpd::Stages;
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix, BgpFamily, LOGICAL_SHARDS, for_each_bgp_family};
use ribtide_runtime::call::NoReply;
use ribtide_wire::bgp::attribute::{Attribute, code};
use ribtide_wire::mrt::{self, Peer};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Slots of a shard's table in a page: about a millisecond of its work.
const PAGE_SLOTS: usize = 2048;

/// A dump under way.
pub struct TableDump {
    stages: Stages,
    collector: Collector,
    seconds: u32,
    /// The index of each peer; 0 is this router.
    peers: BTreeMap<IpAddr, u16>,
    /// The next page: family, logical shard, hash; `None`: all is written.
    next: Option<(AfiSafi, u8, u32)>,
    totals: Totals,
    /// The number of the next record, modulo 2^32.
    sequence: u32,
    /// Scratch memory.
    attributes: Vec<u8>,
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Prefixes.
    pub prefixes: u64,
    /// Paths.
    pub paths: u64,
    /// Paths that were left out, because their session began after the dump.
    pub left_out: u64,
}

impl TableDump {
    /// Begins a dump at this time, in seconds since 1970, and writes the index of peers to `out`.
    ///
    /// # Errors
    /// A stage does not reply.
    pub fn new(
        stages: Stages,
        collector: Collector,
        seconds: u32,
        out: &mut Vec<u8>,
    ) -> Result<TableDump, NoReply> {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let Collector { asn, router_id } = collector;
        let mut table = vec![Peer { router_id, address: unspecified, asn }];
        let mut peers = BTreeMap::from([(unspecified, 0)]);
        let shards = stages.owners.read().shards.clone();
        for shard in shards {
            for info in shard.call(|shard| shard.sources())? {
                let index = table.len() as u16;
                if !info.kind.is_local() && !peers.contains_key(&info.address) {
                    peers.insert(info.address, index);
                    table.push(Peer { router_id: info.router_id, address: info.address, asn: info.asn });
                }
            }
        }
        mrt::peer_index_table(out, seconds, router_id, &table);
        let next = Some((AfiSafi::Ipv4Unicast, 0, 0));
        let totals = Totals::default();
        Ok(TableDump { stages, collector, seconds, peers, next, totals, sequence: 0, attributes: Vec::new() })
    }

    /// What was written so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The part of the table that was read, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let all = AfiSafi::COUNT as f64 * f64::from(LOGICAL_SHARDS);
        match self.next {
            None => 1.0,
            Some((family, logical, _)) => {
                let before = f64::from(family as u8) * f64::from(LOGICAL_SHARDS);
                (before + f64::from(logical)) / all
            }
        }
    }

    /// Writes the records of the next page to `out`. Returns whether there may be more.
    ///
    /// # Errors
    /// A shard does not reply.
    pub fn page(&mut self, out: &mut Vec<u8>) -> Result<bool, NoReply> {
        let Some((family, logical, from)) = self.next else { return Ok(false) };
        let mut next = None;
        for_each_bgp_family!(F => if F::ID == family {
            next = self.page_of::<F>(logical, from, out)?;
        });
        self.next = match (next, logical + 1) {
            (Some(from), _) => Some((family, logical, from)),
            (None, LOGICAL_SHARDS) => family.next().map(|family| (family, 0, 0)),
            (None, logical) => Some((family, logical, 0)),
        };
        Ok(self.next.is_some())
    }

    fn page_of<F: BgpFamily>(
        &mut self,
        logical: u8,
        from: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<u32>, NoReply> {
        let mut routes: Vec<PrefixPaths<F>> = Vec::new();
        let mut next = None;
        {
            // No part of a logical shard moves between the pages of its owners.
            let owners = self.stages.owners.read();
            let mut ends = Vec::new();
            for (_, shard) in owners.having(logical) {
                let page = shard.call(move |shard| shard.paths_page::<F>(logical, from, PAGE_SLOTS))?;
                routes.extend(page.0);
                ends.push(page.1);
            }
            // Of two parts that move apart, the one that is behind decides. Prefixes after its end come
            // again.
            if let Some(end) = ends.into_iter().flatten().min() {
                next = Some(end);
            }
        }
        routes.sort_unstable_by_key(|(prefix, _)| *prefix);
        for (prefix, paths) in routes {
            self.write(prefix.any(), &paths, out);
        }
        Ok(next)
    }

    fn write(&mut self, prefix: AnyPrefix, paths: &[StoredPath], out: &mut Vec<u8>) {
        let TableDump { peers, seconds, totals, sequence, attributes, .. } = self;
        attributes.clear();
        // Path identifier, peer, and the end of the attributes.
        let mut entries: Vec<(Option<u32>, u16, usize)> = Vec::new();
        for path in paths {
            let address = match path.peer.kind.is_local() {
                true => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                false => path.peer.address,
            };
            let Some(peer) = peers.get(&address) else {
                totals.left_out += 1;
                continue;
            };
            entry_attributes(&path.attrs, prefix.afi(), attributes);
            entries.push((path.path_id, *peer, attributes.len()));
        }
        let starts = std::iter::once(0).chain(entries.iter().map(|(_, _, end)| *end));
        let all: Vec<_> = entries
            .iter()
            .zip(starts)
            .filter_map(|((path_id, peer, end), start)| Some((*path_id, *peer, attributes.get(start..*end)?)))
            .collect();
        // When a path was received is not stored. Its time is that of the dump.
        let plain: Vec<_> =
            all.iter().filter(|e| e.0.is_none()).map(|(_, peer, bytes)| (*peer, *seconds, *bytes)).collect();
        let with_id =
            |(path_id, peer, bytes): &(Option<u32>, u16, _)| Some((*peer, *seconds, (*path_id)?, *bytes));
        let with_ids: Vec<_> = all.iter().filter_map(with_id).collect();
        if !plain.is_empty() {
            mrt::rib(out, *seconds, *sequence, prefix, &plain);
            *sequence = sequence.wrapping_add(1);
        }
        if !with_ids.is_empty() {
            mrt::rib_add_path(out, *seconds, *sequence, prefix, &with_ids);
            *sequence = sequence.wrapping_add(1);
        }
        self.totals.prefixes += u64::from(!all.is_empty());
        self.totals.paths += all.len() as u64;
    }

    /// The router that dumps.
    pub fn collector(&self) -> Collector {
        self.collector
    }
}

/// Appends the attributes of a table entry: those of a set, and the next hop, in the order of their codes.
fn entry_attributes(attrs: &AttrSet, afi: Afi, out: &mut Vec<u8>) {
    let mut next_hop = Vec::new();
    mrt::entry_next_hop(&mut next_hop, afi, attrs.next_hop());
    let own = Attribute::split_first(&next_hop).map_or(code::NEXT_HOP, |(attribute, _)| attribute.code);
    let mut after = attrs.bytes();
    while let Some((attribute, rest)) = Attribute::split_first(after)
        && attribute.code < own
    {
        after = rest;
    }
    let before = attrs.bytes().len() - after.len();
    out.extend_from_slice(attrs.bytes().get(..before).unwrap_or_default());
    out.extend_from_slice(&next_hop);
    out.extend_from_slice(after);
}
