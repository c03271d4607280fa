//! From the UPDATEs of a session to batches of routes for the shards: what a reader thread does.
//!
//! Attributes are interned where they are read, by their bytes as received: an UPDATE whose attributes were seen
//! before costs one hash and one comparison, and what goes on to a shard is one shared set per UPDATE. Each reader
//! remembers on its own, so nothing here is shared or locked.

use crate::attr::AttrSet;
use crate::message::{RouteBatch, RouteOp};
use crate::peer::{PeerId, PeerInfo};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use ribtide_policy::{Policy, Verdict};
use ribtide_prefix::{
    Afi, Families, Family, HashBuilder, LOGICAL_SHARDS, Prefix, for_each_family, logical_shard,
};
use ribtide_wire::bgp::attribute::{Attribute, code, router_ids};
use ribtide_wire::bgp::update::{self, Disposition, Fault, Update, UpdateContext};
use ribtide_wire::bgp::{AsPath, NextHop, Notification, build};
use std::fmt;
use std::hash::BuildHasher;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What an operator may choose about the routes taken in from a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestSettings {
    /// The import policy.
    pub import: Arc<Policy>,
    /// How often our own AS number may be in a path before it counts as a loop; 0 is the rule of RFC 4271
    /// section 9.1.2.
    pub allow_own_as: u8,
    /// Refuse paths of an external peer that do not begin with its AS (RFC 4271 section 6.3).
    pub enforce_first_as: bool,
}

/// A session as its reader sees it.
#[derive(Debug)]
pub struct IngestPeer {
    info: Arc<PeerInfo>,
    settings: IngestSettings,
    /// All that decides what becomes of attribute bytes, but the bytes.
    context: Context,
    /// What has come in since the session was established.
    pub counters: IngestCounters,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Context {
    update: UpdateContext,
    local_asn: u32,
    router_id: Ipv4Addr,
    cluster_id: Ipv4Addr,
    allow_own_as: u8,
    /// The AS that paths must begin with; 0: any.
    first_as: u32,
}

impl IngestPeer {
    /// A session that was just established.
    pub fn new(info: Arc<PeerInfo>, settings: IngestSettings) -> IngestPeer {
        let external = !info.kind.is_internal();
        let context = Context {
            update: UpdateContext { four_octet_as: info.egress.four_octet_as, external },
            local_asn: info.egress.local_asn,
            router_id: info.egress.router_id,
            cluster_id: info.egress.cluster_id,
            allow_own_as: settings.allow_own_as,
            first_as: if settings.enforce_first_as && external { info.asn } else { 0 },
        };
        IngestPeer { info, settings, context, counters: IngestCounters::default() }
    }

    /// The session.
    pub fn info(&self) -> &Arc<PeerInfo> {
        &self.info
    }
}

/// Counts of what a session brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IngestCounters {
    /// UPDATE messages.
    pub updates: u64,
    /// Prefixes announced and accepted.
    pub announced: u64,
    /// Prefixes withdrawn by the peer.
    pub withdrawn: u64,
    /// Prefixes of families that the session does not carry.
    pub ignored: u64,
    /// UPDATEs whose routes were treated as withdrawn because an attribute was malformed (RFC 7606).
    pub treated_as_withdraw: u64,
    /// The last such fault.
    pub last_fault: Option<Fault>,
    /// Attributes discarded because of a fault while the routes were kept.
    pub discarded_attributes: u64,
    /// The last such fault.
    pub last_discard: Option<Fault>,
    refused: [u64; 5],
    /// Why prefixes were refused last.
    pub last_refusal: Option<Refusal>,
}

impl IngestCounters {
    /// How many prefixes were announced but refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }
}

/// Why well-formed routes are not used. A former route of the same prefix goes as if withdrawn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// Our own AS is in AS_PATH.
    AsLoop,
    /// ORIGINATOR_ID is our own identifier (RFC 4456 section 8).
    OriginatorLoop,
    /// Our own cluster is in CLUSTER_LIST (RFC 4456 section 8).
    ClusterLoop,
    /// AS_PATH does not begin with the peer's AS.
    FirstAs,
    /// The import policy.
    ImportPolicy,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 5] = [
        Refusal::AsLoop,
        Refusal::OriginatorLoop,
        Refusal::ClusterLoop,
        Refusal::FirstAs,
        Refusal::ImportPolicy,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::AsLoop => "own AS in the path",
            Refusal::OriginatorLoop => "own router id is the originator",
            Refusal::ClusterLoop => "own cluster in the cluster list",
            Refusal::FirstAs => "path does not begin with the peer's AS",
            Refusal::ImportPolicy => "import policy",
        })
    }
}

/// Reads UPDATEs and remembers the attributes it has seen.
#[derive(Default)]
pub struct Ingest {
    memo: HashTable<Memo>,
    hasher: HashBuilder,
    /// Scratch for the key of the attributes at hand.
    key: Vec<u8>,
    /// The memo is swept when it has more entries than this.
    sweep_at: usize,
}

/// Attributes seen before.
struct Memo {
    hash: u64,
    /// Context, next hop and attributes as received.
    key: Box<[u8]>,
    outcome: Outcome,
}

/// What becomes of routes with some attributes.
type Outcome = Result<AttrSet, Refusal>;

impl Ingest {
    /// Below this many entries a sweep is not worth while.
    const SWEEP_MIN: usize = 1024;

    /// Reads the body of an UPDATE, appends its routes to `out`, and returns the family whose initial routes are
    /// complete, if it says that (RFC 4724 section 2).
    ///
    /// # Errors
    /// The NOTIFICATION to close the session with; nothing was appended then.
    pub fn update(
        &mut self,
        peer: &mut IngestPeer,
        body: &[u8],
        out: &mut ShardBatches,
    ) -> Result<Option<Afi>, Notification> {
        let update = update::parse(body, &peer.context.update)?;
        peer.counters.updates += 1;
        peer.counters.discarded_attributes += update.discarded().len() as u64;
        if let Some(last) = update.discarded().last() {
            peer.counters.last_discard = Some(last.fault);
        }
        if let Disposition::TreatAsWithdraw { reason } = update.disposition() {
            peer.counters.treated_as_withdraw += 1;
            peer.counters.last_fault = Some(reason);
        }
        for_each_family!(F => self.routes::<F>(peer, &update, out));
        Ok(update.end_of_rib())
    }

    fn routes<F: Family>(&mut self, peer: &mut IngestPeer, update: &Update<'_>, out: &mut ShardBatches) {
        let IngestPeer { info, settings, context, counters } = peer;
        if !info.families.has(F::AFI) {
            counters.ignored += (update.withdrawn::<F>().count() + update.announced::<F>().count()) as u64;
            return;
        }
        for prefix in update.withdrawn::<F>() {
            counters.withdrawn += 1;
            out.push(info, None, prefix);
        }
        let Some(next_hop) = update.next_hop::<F>() else { return };
        if matches!(update.disposition(), Disposition::TreatAsWithdraw { .. }) {
            return;
        }
        let outcome = match settings.import.verdict() {
            Verdict::Accept => self.intern(context, update, next_hop),
            Verdict::Reject => &Err(Refusal::ImportPolicy),
        };
        let mut count = 0;
        for prefix in update.announced::<F>() {
            count += 1;
            out.push(info, outcome.as_ref().ok(), prefix);
        }
        match outcome {
            Ok(_) => counters.announced += count,
            Err(why) => {
                counters.refused[*why as usize] += count;
                counters.last_refusal = Some(*why);
            }
        }
    }

    /// What becomes of routes with the attributes of `update`.
    fn intern(&mut self, context: &Context, update: &Update<'_>, next_hop: NextHop) -> &Outcome {
        if self.memo.len() > self.sweep_at {
            self.sweep();
        }
        self.key.clear();
        context.write(&mut self.key);
        write_next_hop(next_hop, &mut self.key);
        for piece in update.attribute_key() {
            self.key.extend_from_slice(piece);
        }
        let key = self.key.as_slice();
        let hash = self.hasher.hash_one(key);
        match self.memo.entry(hash, |memo| memo.hash == hash && *memo.key == *key, |memo| memo.hash) {
            Entry::Occupied(known) => &known.into_mut().outcome,
            Entry::Vacant(vacant) => {
                let outcome = judge(context, update, next_hop);
                &vacant.insert(Memo { hash, key: key.into(), outcome }).into_mut().outcome
            }
        }
    }

    /// Forgets attributes that no path uses any more. Happens by itself whenever the memo has doubled; a reader
    /// may call it when a session has ended.
    pub fn sweep(&mut self) {
        self.memo.retain(|memo| memo.outcome.as_ref().is_ok_and(|attrs| attrs.handles() > 1));
        self.sweep_at = (2 * self.memo.len()).max(Ingest::SWEEP_MIN);
        self.memo.shrink_to(self.sweep_at, |memo| memo.hash);
    }

    /// How many attribute sets it remembers.
    pub fn len(&self) -> usize {
        self.memo.len()
    }

    /// Whether it remembers nothing.
    pub fn is_empty(&self) -> bool {
        self.memo.is_empty()
    }
}

/// Makes the set that the router keeps, and looks for loops.
fn judge(context: &Context, update: &Update<'_>, next_hop: NextHop) -> Outcome {
    let mut attributes: Vec<Attribute<'_>> = update.attributes().collect();
    attributes.sort_by_key(|attribute| attribute.code);
    for Attribute { code, value, .. } in &attributes {
        match *code {
            code::AS_PATH => {
                let own = AsPath::new(value).asns().filter(|asn| *asn == context.local_asn).count();
                if own > usize::from(context.allow_own_as) {
                    return Err(Refusal::AsLoop);
                }
            }
            code::ORIGINATOR_ID if router_ids(value).any(|id| id == context.router_id) => {
                return Err(Refusal::OriginatorLoop);
            }
            code::CLUSTER_LIST if router_ids(value).any(|id| id == context.cluster_id) => {
                return Err(Refusal::ClusterLoop);
            }
            _ => {}
        }
    }
    let mut bytes = Vec::new();
    for Attribute { flags, code, value } in attributes {
        build::attribute(&mut bytes, flags, code, value);
    }
    let attrs = AttrSet::new(&bytes, next_hop);
    if context.first_as != 0 && attrs.neighbor_as() != context.first_as {
        return Err(Refusal::FirstAs);
    }
    Ok(attrs)
}

impl Context {
    fn write(&self, out: &mut Vec<u8>) {
        let UpdateContext { four_octet_as, external } = self.update;
        out.extend_from_slice(&[u8::from(four_octet_as), u8::from(external), self.allow_own_as]);
        out.extend_from_slice(&self.local_asn.to_be_bytes());
        out.extend_from_slice(&self.router_id.octets());
        out.extend_from_slice(&self.cluster_id.octets());
        out.extend_from_slice(&self.first_as.to_be_bytes());
    }
}

fn write_next_hop(next_hop: NextHop, out: &mut Vec<u8>) {
    match next_hop {
        NextHop::V4(addr) => {
            out.push(0);
            out.extend_from_slice(&addr.octets());
        }
        NextHop::V6 { global, link_local } => {
            out.push(1 + u8::from(link_local.is_some()));
            out.extend_from_slice(&global.octets());
            if let Some(local) = link_local {
                out.extend_from_slice(&local.octets());
            }
        }
    }
}

/// Which thread runs each logical shard.
pub type ShardMap = [u16; LOGICAL_SHARDS as usize];

/// Routes on their way to the shards, one growing batch per thread and session.
pub struct ShardBatches {
    map: ShardMap,
    threads: Vec<Vec<RouteBatch>>,
    len: usize,
}

impl ShardBatches {
    /// Empty batches for the threads that `map` names.
    pub fn new(map: ShardMap) -> ShardBatches {
        let threads = map.iter().max().map_or(0, |last| usize::from(*last) + 1);
        ShardBatches { map, threads: (0..threads).map(|_| Vec::new()).collect(), len: 0 }
    }

    /// How many prefixes wait in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hands over the batches, each with the thread it is for. Those of one thread are in the order received.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, RouteBatch)> + '_ {
        self.len = 0;
        let numbered = self.threads.iter_mut().enumerate();
        numbered.flat_map(|(thread, batches)| batches.drain(..).map(move |batch| (thread as u16, batch)))
    }

    /// Adds one prefix: announced with `attrs`, or withdrawn.
    pub fn push<F: Family>(&mut self, peer: &PeerInfo, attrs: Option<&AttrSet>, prefix: Prefix<F>) {
        self.len += 1;
        let thread = usize::from(self.map[usize::from(logical_shard(prefix))]);
        let batch = open_batch(&mut self.threads[thread], peer.id, peer.session);
        batch.prefixes.get_mut::<F>().push(prefix);
        match batch.ops.last_mut() {
            Some(op) if op.afi == F::AFI && same(op.attrs.as_ref(), attrs) => op.count += 1,
            _ => batch.ops.push(RouteOp { attrs: attrs.cloned(), afi: F::AFI, count: 1 }),
        }
    }
}

/// The batch that takes routes of this session: the last, or a new one.
fn open_batch(batches: &mut Vec<RouteBatch>, peer: PeerId, session: u32) -> &mut RouteBatch {
    let open = batches.last().is_some_and(|batch| batch.peer == peer && batch.session == session);
    if !open {
        batches.push(RouteBatch { peer, session, ops: Vec::new(), prefixes: Families::default() });
    }
    let last = batches.len() - 1;
    &mut batches[last]
}

fn same(a: Option<&AttrSet>, b: Option<&AttrSet>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => AttrSet::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{EgressSettings, FamilySet, NextHopRule, PeerKind};
    use proptest::prelude::*;
    use ribtide_prefix::{V4, V6};
    use ribtide_wire::bgp::attribute::Origin;
    use ribtide_wire::bgp::build::UpdatePacker;

    const HEADER: usize = 19;

    fn peer(kind: PeerKind, settings: IngestSettings) -> IngestPeer {
        let families = FamilySet { ipv4: true, ipv6: false };
        let info = PeerInfo {
            id: PeerId(3),
            session: 1,
            address: Ipv4Addr::new(192, 0, 2, 3).into(),
            asn: if kind.is_internal() { 65000 } else { 65001 },
            router_id: Ipv4Addr::new(10, 0, 0, 3),
            kind,
            multihop: false,
            families,
            egress: EgressSettings {
                kind,
                local_asn: 65000,
                cluster_id: Ipv4Addr::new(10, 0, 0, 99),
                router_id: Ipv4Addr::new(10, 0, 0, 1),
                families,
                four_octet_as: true,
                max_message: 4096,
                next_hop: NextHopRule::Keep,
                export: Arc::new(Policy::default_for(false)),
            },
        };
        IngestPeer::new(Arc::new(info), settings)
    }

    fn settings() -> IngestSettings {
        let import = Arc::new(Policy::compile(&["accept"]).unwrap());
        IngestSettings { import, allow_own_as: 0, enforce_first_as: true }
    }

    fn path(asns: &[u32]) -> Vec<u8> {
        let mut value = vec![2, asns.len() as u8];
        asns.iter().for_each(|asn| value.extend_from_slice(&asn.to_be_bytes()));
        value
    }

    /// ORIGIN and AS_PATH, then whatever `more` appends.
    fn attributes(asns: &[u32], more: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        build::origin(&mut out, Origin::Igp);
        build::as_path(&mut out, AsPath::new(&path(asns)));
        more(&mut out);
        out
    }

    fn announce<F: Family>(attributes: &[u8], next_hop: NextHop, prefixes: &[&str]) -> Vec<u8> {
        let prefixes: Vec<Prefix<F>> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
        let mut out = Vec::new();
        UpdatePacker::new(attributes, next_hop, 4096).announce(prefixes, &mut out).unwrap();
        out.split_off(HEADER)
    }

    fn announce_v4(attributes: &[u8], prefixes: &[&str]) -> Vec<u8> {
        announce::<V4>(attributes, NextHop::V4(Ipv4Addr::new(192, 0, 2, 3)), prefixes)
    }

    /// What one thread gets, each operation as the attribute bytes and the number of prefixes.
    fn ops(out: &mut ShardBatches) -> Vec<(Option<Vec<u8>>, u32)> {
        let op = |op: RouteOp| (op.attrs.map(|attrs| attrs.bytes().to_vec()), op.count);
        out.drain().flat_map(|(_, batch)| batch.ops).map(op).collect()
    }

    #[test]
    fn equal_attributes_are_one_set_until_nobody_uses_it() {
        let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
        let mut out = ShardBatches::new([0; 64]);
        let attrs = attributes(&[65001, 9], |_| {});
        for prefixes in [&["10.0.0.0/8", "10.1.0.0/16"][..], &["10.2.0.0/16"]] {
            assert_eq!(ingest.update(&mut peer, &announce_v4(&attrs, prefixes), &mut out), Ok(None));
        }
        assert_eq!((out.len(), ingest.len()), (3, 1));
        assert_eq!(peer.counters.announced, 3);
        ingest.sweep();
        assert_eq!(ingest.len(), 1, "a batch uses it");
        assert_eq!(ops(&mut out), [(Some(attrs), 3)], "one operation for both UPDATEs");
        ingest.sweep();
        assert!(ingest.is_empty());
    }

    #[test]
    fn attributes_are_kept_in_order_without_what_only_concerns_this_session() {
        let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
        let mut out = ShardBatches::new([0; 64]);
        let mut backwards = vec![0, 0, 0, 0];
        build::local_pref(&mut backwards, 200);
        build::med(&mut backwards, 5);
        build::next_hop(&mut backwards, Ipv4Addr::new(192, 0, 2, 3));
        build::as_path(&mut backwards, AsPath::new(&path(&[65001])));
        build::origin(&mut backwards, Origin::Igp);
        let len = (backwards.len() - 4) as u16;
        backwards[2..4].copy_from_slice(&len.to_be_bytes());
        backwards.extend_from_slice(&[8, 10]);
        ingest.update(&mut peer, &backwards, &mut out).unwrap();
        let kept = attributes(&[65001], |out| build::med(out, 5));
        assert_eq!(ops(&mut out), [(Some(kept), 1)]);
        assert_eq!(peer.counters.discarded_attributes, 1, "LOCAL_PREF from an external peer");
    }

    #[test]
    fn what_is_refused_goes_as_if_withdrawn() {
        let own = Ipv4Addr::new(10, 0, 0, 1);
        type Case = (&'static [u32], Refusal, fn(&mut Vec<u8>));
        let loops: [Case; 3] = [
            (&[65001, 65000], Refusal::AsLoop, |_| {}),
            (&[65001], Refusal::OriginatorLoop, |out| build::originator_id(out, Ipv4Addr::new(10, 0, 0, 1))),
            (&[65001], Refusal::ClusterLoop, |out| {
                build::cluster_list(out, Ipv4Addr::new(10, 0, 0, 99), &[])
            }),
        ];
        let mut ingest = Ingest::default();
        let mut out = ShardBatches::new([0; 64]);
        let mut internal = peer(PeerKind::Internal, settings());
        assert_eq!(internal.info().egress.router_id, own);
        for (asns, why, more) in loops {
            ingest
                .update(&mut internal, &announce_v4(&attributes(asns, more), &["10.0.0.0/8"]), &mut out)
                .unwrap();
            assert_eq!(ops(&mut out), [(None, 1)], "{why}");
            assert_eq!((internal.counters.refused(why), internal.counters.last_refusal), (1, Some(why)));
        }
        assert_eq!(internal.counters.announced, 0);

        let foreign = announce_v4(&attributes(&[7], |_| {}), &["10.0.0.0/8"]);
        let mut external = peer(PeerKind::External, settings());
        ingest.update(&mut external, &foreign, &mut out).unwrap();
        assert_eq!(external.counters.refused(Refusal::FirstAs), 1);
        let mut lenient = peer(PeerKind::External, IngestSettings { enforce_first_as: false, ..settings() });
        ingest.update(&mut lenient, &foreign, &mut out).unwrap();
        assert_eq!(lenient.counters.announced, 1, "the same bytes, another context");

        let import = Arc::new(Policy::default_for(true));
        let mut closed = peer(PeerKind::External, IngestSettings { import, ..settings() });
        ingest
            .update(&mut closed, &announce_v4(&attributes(&[65001], |_| {}), &["10.0.0.0/8"]), &mut out)
            .unwrap();
        assert_eq!(closed.counters.refused(Refusal::ImportPolicy), 1);

        let looped = announce_v4(&attributes(&[65001, 65000], |_| {}), &["10.0.0.0/8"]);
        let mut tolerant = peer(PeerKind::External, IngestSettings { allow_own_as: 1, ..settings() });
        ingest.update(&mut tolerant, &looped, &mut out).unwrap();
        assert_eq!(tolerant.counters.announced, 1);
    }

    #[test]
    fn a_malformed_update_withdraws_and_an_unreadable_one_ends_the_session() {
        let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
        let mut out = ShardBatches::new([0; 64]);
        let mut bad = announce_v4(&attributes(&[65001], |_| {}), &["10.0.0.0/8", "10.1.0.0/16"]);
        bad[7] = 9; // ORIGIN
        ingest.update(&mut peer, &bad, &mut out).unwrap();
        assert_eq!(ops(&mut out), [(None, 2)]);
        assert_eq!(peer.counters.treated_as_withdraw, 1);
        assert_eq!(peer.counters.last_fault.unwrap().to_string(), "ORIGIN has an invalid value");
        assert!(ingest.update(&mut peer, &[0, 0], &mut out).is_err());
        assert!(out.is_empty() && ingest.is_empty());
    }

    #[test]
    fn families_that_were_not_negotiated_are_ignored_and_end_of_rib_is_told() {
        let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
        let mut out = ShardBatches::new([0; 64]);
        let next_hop = NextHop::from_v6("2001:db8::1".parse().unwrap(), None);
        let update = announce::<V6>(&attributes(&[65001], |_| {}), next_hop, &["2001:db8::/32"]);
        assert_eq!(ingest.update(&mut peer, &update, &mut out), Ok(None));
        assert!(out.is_empty());
        assert_eq!((peer.counters.ignored, peer.counters.announced), (1, 0));
        assert_eq!(ingest.update(&mut peer, &[0, 0, 0, 0], &mut out), Ok(Some(Afi::Ipv4)));
    }

    proptest! {
        // Every route reaches the thread of its shard, and nothing overtakes on the way.
        #[test]
        fn batches_are_the_routes_in_order(
            routes in prop::collection::vec((any::<u32>(), 0..3usize), 0..200),
            threads in 1..8u16,
        ) {
            let set = |n: u8| {
                AttrSet::new(&[0x40, 1, 1, n], NextHop::V4(Ipv4Addr::new(192, 0, 2, 3)))
            };
            let choices = [None, Some(set(0)), Some(set(1))];
            let map: ShardMap = std::array::from_fn(|shard| shard as u16 % threads);
            let (mut out, peer) = (ShardBatches::new(map), peer(PeerKind::Internal, settings()));
            let routes: Vec<(Prefix<V4>, usize)> =
                routes.into_iter().map(|(bits, choice)| (Prefix::new(bits, 24), choice)).collect();
            for (prefix, choice) in &routes {
                out.push(peer.info(), choices[*choice].as_ref(), *prefix);
            }
            let mut seen: Vec<Vec<(Prefix<V4>, usize)>> = vec![Vec::new(); usize::from(threads)];
            for (thread, batch) in out.drain() {
                let mut prefixes = batch.prefixes.v4.into_iter();
                for op in batch.ops {
                    let choice = choices.iter().position(|attrs| *attrs == op.attrs).unwrap();
                    seen[usize::from(thread)].extend(prefixes.by_ref().take(op.count as usize).map(|p| (p, choice)));
                }
                prop_assert!(prefixes.next().is_none());
            }
            for (thread, seen) in seen.into_iter().enumerate() {
                let expected: Vec<_> = routes
                    .iter()
                    .filter(|(prefix, _)| usize::from(map[usize::from(logical_shard(*prefix))]) == thread)
                    .copied()
                    .collect();
                prop_assert_eq!(seen, expected);
            }
        }
    }
}
