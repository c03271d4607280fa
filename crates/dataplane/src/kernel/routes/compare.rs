//! The continuous comparison of the kernel with the desired state.
//!
//! Notifications may be lost, and the kernel drops some routes without one. So rounds of a
//! comparison read all next-hop objects and all own routes, a page at a time, and repair every
//! difference: next hops and source addresses included.
//!
//! A dump is not read at one moment. The kernel prepares the first buffer of a page at the end of
//! the former page, so that buffer may precede writes of ribtide. Differences in it do not count
//! for routes written since. A route that a round has not seen is added under the condition that it
//! is absent.

use super::{Change, Kernel, WRITE, is_written, source};
use crate::repairs::Difference;
use ribtide_netlink::{Socket, overran};
use ribtide_prefix::{Afi, Family, Prefix, Set, for_each_family};
use ribtide_rib::{FibBatch, VrfId, VrfPrefix};
use ribtide_wire::netlink::numbers::{NLM_F_CREATE, NLM_F_EXCL};
use ribtide_wire::netlink::{Content, NextHops, dump_routes};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Batches noted as written since the former page; after more, no difference in the first buffer
/// counts.
const RECENT_MAX: usize = 64;

/// The comparison: the round under way, and what was written since its last page.
#[derive(Default)]
pub(super) struct Comparison {
    /// The socket of the dumps, with no dump under way.
    idle: Option<Socket>,
    round: Option<Round>,
    /// Batches written since the last page.
    recent: Vec<Arc<FibBatch>>,
    /// Whether other routes were written since the last page.
    tainted: bool,
}

struct Round {
    begin: Instant,
    /// Tables that are not complete yet; the last is read now.
    left: Vec<(VrfId, Afi)>,
    /// The socket whose dump of that table is under way.
    dump: Option<Socket>,
    /// Whether ribtide wrote routes during the dump of an IPv6 table: then the kernel may leave out
    /// routes.
    disturbed: bool,
}

/// A route in a dump.
struct Found<F: Family> {
    prefix: Prefix<F>,
    metric: u32,
    /// Its next-hop object, or 0 without one.
    id: u32,
    source: Option<IpAddr>,
    /// Whether it is in the first buffer of a page.
    early: bool,
}

impl Comparison {
    /// Whether routes of no noted batch were written since the last page.
    pub(super) fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// Notes a written batch. `tainted` is the state before its write.
    pub(super) fn wrote(&mut self, batch: &Arc<FibBatch>, tainted: bool) {
        self.tainted = tainted;
        if self.round.is_none() {
            return;
        }
        if self.recent.len() < RECENT_MAX {
            self.recent.push(batch.clone());
        } else {
            self.tainted = true;
        }
    }

    /// Notes written routes of no batch.
    pub(super) fn wrote_others(&mut self) {
        self.tainted = true;
    }

    /// Ends the round under way: the next one starts at the beginning.
    pub(super) fn restart(&mut self) {
        *self = Comparison { idle: self.idle.take(), ..Comparison::default() };
    }

    /// Removes the changes of routes that ribtide wrote since the last page. It reads the written
    /// routes once: there may be many more of them than changes.
    fn retain_older<F: Family>(&self, vrf: VrfId, changes: &mut Vec<Change<F>>) {
        if self.tainted {
            changes.clear();
        }
        if changes.is_empty() {
            return;
        }
        let mut older: Set<Prefix<F>> = changes.iter().map(|change| change.prefix).collect();
        for batch in self.recent.iter().filter(|batch| batch.vrf.id == vrf) {
            for route in batch.routes.get::<F>() {
                older.remove(&route.prefix);
            }
        }
        changes.retain(|change| older.contains(&change.prefix));
    }
}

impl Kernel {
    /// Compares about `count` routes more, or up to the end of the round: then it returns `true`,
    /// and the next call starts a round. Does nothing during a replay.
    ///
    /// # Errors
    /// A socket has failed.
    pub(crate) fn compare(&mut self, count: usize) -> io::Result<bool> {
        if self.replaying {
            return Ok(true);
        }
        let ended = match self.compare_on(count) {
            // Replies of the writing socket were lost.
            Err(e) if overran(&e) => {
                self.comparison.restart();
                self.repair()?;
                true
            }
            other => other?,
        };
        self.comparison.recent.clear();
        self.comparison.tainted = false;
        Ok(ended)
    }

    fn compare_on(&mut self, count: usize) -> io::Result<bool> {
        let mut round = match self.comparison.round.take() {
            Some(round) => round,
            None => self.begin_round()?,
        };
        if let Some((vrf, afi)) = round.left.last().copied() {
            match afi {
                Afi::Ipv4 => self.compare_page::<ribtide_prefix::V4>(&mut round, vrf, count)?,
                Afi::Ipv6 => self.compare_page::<ribtide_prefix::V6>(&mut round, vrf, count)?,
            }
        }
        if !round.left.is_empty() {
            self.comparison.round = Some(round);
            return Ok(false);
        }
        for vrf in self.ids() {
            for_each_family!(F => self.write_unseen::<F>(vrf, round.disturbed)?);
        }
        self.wanted.table_mut().next_round();
        self.repairs.round(self.system.now().saturating_duration_since(round.begin));
        Ok(true)
    }

    /// Compares next-hop objects.
    fn begin_round(&mut self) -> io::Result<Round> {
        let begin = self.system.now();
        self.doubt = None;
        self.check_objects()?;
        let swept = self.objects.sweep(&mut self.socket)?;
        self.repairs.note(Difference::NextHopObject, swept, None);
        // Those whose deletion the kernel refused.
        self.objects.delete_unused(&mut self.socket)?;
        let tables = self.ids().into_iter().flat_map(|vrf| [(vrf, Afi::Ipv4), (vrf, Afi::Ipv6)]);
        Ok(Round { begin, left: tables.collect(), dump: None, disturbed: false })
    }

    /// Compares the next routes of the table that is read now.
    fn compare_page<F: Family>(&mut self, round: &mut Round, vrf: VrfId, count: usize) -> io::Result<()> {
        let Some(table) = self.vrfs.get(&vrf).map(|known| known.table) else {
            // The VRF is gone, and with it its dump.
            (round.dump, _) = (None, round.left.pop());
            return Ok(());
        };
        let (protocol, first) = (self.config.protocol, round.dump.is_none());
        let mut socket = match round.dump.take() {
            Some(socket) => socket,
            None => {
                let mut socket =
                    self.comparison.idle.take().map_or_else(|| self.system.sockets.open(), Ok)?;
                socket.begin_dump(|out, seq| dump_routes(out, seq, F::AFI, table, protocol))?;
                socket
            }
        };
        round.disturbed |= !first && (self.comparison.tainted || !self.comparison.recent.is_empty());
        let mut page: Vec<Found<F>> = Vec::new();
        let (mut early, mut ended) = (!first, false);
        while !ended && page.len() < count {
            let read = socket.dump_on(|content| {
                let Content::NewRoute(route) = content else { return };
                if route.table != table || !is_written(&route, protocol) {
                    return;
                }
                if let Some(prefix) = Prefix::<F>::from_addr(route.prefix.addr(), route.prefix.len()) {
                    let id = if let NextHops::Id(id) = route.next_hops { id } else { 0 };
                    let metric = route.metric.unwrap_or(0);
                    page.push(Found { prefix, metric, id, source: route.prefsrc, early });
                }
            });
            ended = match read {
                // The kernel has no table without routes.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => true,
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => true,
                other => other?,
            };
            early = false;
        }
        if ended {
            self.comparison.idle = Some(socket);
            round.left.pop();
        } else {
            round.dump = Some(socket);
        }
        self.repairs.compared(page.len());
        self.repair_page(vrf, &page)
    }

    fn repair_page<F: Family>(&mut self, vrf: VrfId, page: &[Found<F>]) -> io::Result<()> {
        let metric = self.config.metric;
        let configured = source::<F>(vrf, &self.config);
        // Of each: those of the first buffer, and the others.
        let [mut differing, mut other_source, mut unexpected]: [[Vec<Change<F>>; 2]; 3] = Default::default();
        let Kernel { wanted, objects, sources, results, comparison, .. } = self;
        let prefixes = page.iter().map(|found| (found.metric == metric).then_some(found.prefix));
        let groups = wanted.table_mut().saw(vrf, prefixes);
        // Neighbouring prefixes often have one group.
        let mut last = (None, None);
        for (found, group) in page.iter().zip(groups) {
            let prefix = found.prefix;
            if last.0 != group {
                last = (group, group.and_then(|group| objects.live_id(group.0)));
            }
            let id = last.1;
            let source = group.and_then(|group| sources.get(&group).copied()).or(configured);
            if id == Some(found.id) && found.source == source {
                // In the first buffer it may precede a deletion whose repair has failed.
                if !found.early {
                    results.installed(VrfPrefix { vrf, prefix: prefix.any() });
                }
            } else {
                let changes = match id {
                    // Without its group a route is deleted.
                    None => &mut unexpected,
                    Some(id) if id == found.id => &mut other_source,
                    Some(_) => &mut differing,
                };
                let change = Change { prefix, metric: found.metric, group };
                changes[usize::from(!found.early)].push(change);
            }
        }
        for changes in [&mut differing, &mut other_source, &mut unexpected] {
            comparison.retain_older(vrf, &mut changes[0]);
        }
        let [differing, other_source, unexpected] =
            [differing, other_source, unexpected].map(|all| all.concat());
        self.repairs.note(Difference::OtherNextHops, differing.len(), example(&differing));
        self.repairs.note(Difference::OtherNextHops, other_source.len(), example(&other_source));
        self.repairs.note(Difference::Unexpected, unexpected.len(), example(&unexpected));
        self.write(vrf, &differing)?;
        self.delete_refused(vrf, &differing)?;
        self.write(vrf, &other_source)?;
        self.write(vrf, &unexpected)
    }

    /// Deletes the routes whose replacement the kernel refused, so that packets do not go where the
    /// RIB does not send them. A route with other next hops would stay as long as the kernel refuses
    /// the right one, for example without its source address.
    fn delete_refused<F: Family>(&mut self, vrf: VrfId, replaced: &[Change<F>]) -> io::Result<()> {
        let failed =
            |change: &&Change<F>| self.results.has_failed(VrfPrefix { vrf, prefix: change.prefix.any() });
        let wrong: Vec<Change<F>> =
            replaced.iter().filter(failed).map(|change| Change { group: None, ..*change }).collect();
        // The refusal stays the result of each.
        self.send(vrf, &wrong, WRITE).map(drop)
    }

    /// Adds routes that the round has not seen. Those that the kernel has all the same are another
    /// program's, which replaced ours; but a dump of IPv6 routes that changed meanwhile may be
    /// incomplete.
    fn write_unseen<F: Family>(&mut self, vrf: VrfId, disturbed: bool) -> io::Result<()> {
        let metric = self.config.metric;
        let Kernel { wanted, objects, results, .. } = self;
        let unseen = wanted.table().unseen::<F>(vrf).filter(|(prefix, group)| {
            // The RIB tries failed routes again.
            objects.live_id(group.0).is_some() && !results.has_failed(VrfPrefix { vrf, prefix: prefix.any() })
        });
        let unseen: Vec<Change<F>> =
            unseen.map(|(prefix, group)| Change { prefix, metric, group: Some(group) }).collect();
        let there = self.write_with(vrf, &unseen, NLM_F_CREATE | NLM_F_EXCL)?;
        self.repairs.note(Difference::Missing, unseen.len() - there.len(), example(&unseen));
        if F::AFI == Afi::Ipv4 || !disturbed {
            self.repairs.note(Difference::OtherNextHops, there.len(), example(&there));
            self.write(vrf, &there)?;
        }
        Ok(())
    }
}

/// The prefix of one change.
fn example<F: Family>(changes: &[Change<F>]) -> Option<ribtide_prefix::AnyPrefix> {
    changes.first().map(|change| change.prefix.any())
}
