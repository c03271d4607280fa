//! Statistics Reports (RFC 7854 section 4.8): the counters that the stages have.

use super::{Router, encode};
use ribtide_bgp::egress::MemberView;
use ribtide_bgp::ingest::{IngestCounters, Refusal};
use ribtide_bgp::peer::{PeerId, PeerInfo};
use ribtide_bgpd::Stages;
use ribtide_bgpd::monitor::SessionUp;
use ribtide_config::BmpViews;
use ribtide_prefix::{AfiSafi, BgpFamily, ByFamily, FamilySet, for_each_bgp_family};
use ribtide_runtime::clock::Millis;
use ribtide_wire::bmp::{Statistic, build, statistic};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// When the next report is due.
pub(super) fn next(interval: Duration, now: Millis) -> Option<Millis> {
    (!interval.is_zero()).then(|| now + interval.as_millis() as Millis)
}

/// The counts of a session.
#[derive(Default)]
struct Counts {
    ingest: Option<IngestCounters>,
    /// Routes before import policy, where they are kept.
    kept: Option<ByFamily<usize>>,
    /// Routes after it.
    accepted: ByFamily<u64>,
    sent: Option<MemberView>,
}

/// A report of each session, and of the Loc-RIB. A stage that is too busy to reply leaves its counters out.
pub(super) fn reports<'a>(
    stages: &Stages,
    router: Router,
    sessions: impl Iterator<Item = &'a Arc<SessionUp>> + Clone,
    views: BmpViews,
) -> Vec<u8> {
    let time = encode::timestamp(SystemTime::now());
    let mut out = Vec::new();
    let ids: Arc<[PeerId]> = sessions.clone().map(|up| up.info.id).collect();
    let has_peers = views.pre_policy || views.post_policy || views.adj_rib_out;
    let counts = if has_peers { counts(stages, &ids) } else { BTreeMap::new() };
    for up in sessions {
        let Some(counts) = counts.get(&up.info.id) else { continue };
        build::statistics(&mut out, &encode::peer(&up.info, 0, time), &of_session(&up.info, counts));
    }
    if views.loc_rib
        && let Some(best) = best(stages)
    {
        let mut statistics = Vec::new();
        gauges(&mut statistics, (statistic::LOC_RIB, statistic::FAMILY_LOC_RIB), FamilySet::ALL, best);
        build::statistics(&mut out, &encode::loc_rib(router, time), &statistics);
    }
    out
}

/// A gauge of the sum, and one of each of these families.
fn gauges(
    out: &mut Vec<Statistic>,
    (all, of_family): (u16, u16),
    families: FamilySet,
    values: ByFamily<u64>,
) {
    out.push(Statistic::Gauge(all, values.iter().map(|(_, value)| value).sum()));
    let of = |family: AfiSafi| Statistic::FamilyGauge(of_family, family.codes(), values[family]);
    out.extend(families.iter().map(of));
}

fn counts(stages: &Stages, ids: &Arc<[PeerId]>) -> BTreeMap<PeerId, Counts> {
    let mut counts: BTreeMap<PeerId, Counts> = ids.iter().map(|id| (*id, Counts::default())).collect();
    for reader in &stages.readers {
        let ids = ids.clone();
        let of = reader.call(move |reader| {
            let of = |id: &PeerId| Some((*id, reader.counters(*id)?, reader.received_len(*id)));
            ids.iter().filter_map(of).collect::<Vec<_>>()
        });
        for (id, ingest, kept) in of.into_iter().flatten() {
            let counts = counts.entry(id).or_default();
            (counts.ingest, counts.kept) = (Some(ingest), kept);
        }
    }
    // Where routes move, the counts of a moment are not exact in any case.
    let shards = stages.owners.try_read().map(|owners| owners.shards.clone()).unwrap_or_default();
    for shard in shards {
        let peers = ids.clone();
        let of = shard.call(move |shard| {
            let of = |id: &PeerId| {
                let mut paths = ByFamily::<u64>::default();
                for_each_bgp_family!(F => paths[F::ID] = shard.peer_counts::<F>(*id).paths.into());
                paths
            };
            peers.iter().map(of).collect::<Vec<_>>()
        });
        for (id, paths) in ids.iter().zip(of.into_iter().flatten()) {
            let accepted = &mut counts.entry(*id).or_default().accepted;
            paths.iter().for_each(|(family, paths)| accepted[family] += paths);
        }
    }
    for (_, worker) in stages.workers.running() {
        let ids = ids.clone();
        let of = worker.call(move |worker| {
            ids.iter().filter_map(|id| Some((*id, worker.member(*id)?))).collect::<Vec<_>>()
        });
        for (id, member) in of.into_iter().flatten() {
            counts.entry(id).or_default().sent = Some(member);
        }
    }
    counts
}

fn best(stages: &Stages) -> Option<ByFamily<u64>> {
    let shards = stages.owners.try_read()?.shards.clone();
    let mut best = ByFamily::default();
    for shard in shards {
        let counts = shard.call(|shard| shard.counts()).ok()?;
        counts.families.iter().for_each(|(family, counts)| best[family] += counts.best as u64);
    }
    Some(best)
}

fn of_session(info: &PeerInfo, counts: &Counts) -> Vec<Statistic> {
    let mut statistics = Vec::new();
    if let Some(ingest) = &counts.ingest {
        // They have 32 bits and wrap.
        let mut counter = |kind, value: u64| statistics.push(Statistic::Counter(kind, value as u32));
        counter(statistic::REJECTED, ingest.refused(Refusal::ImportPolicy));
        counter(statistic::CLUSTER_LOOP, ingest.refused(Refusal::ClusterLoop));
        counter(statistic::AS_LOOP, ingest.refused(Refusal::AsLoop));
        counter(statistic::ORIGINATOR_LOOP, ingest.refused(Refusal::OriginatorLoop));
        counter(statistic::TREATED_AS_WITHDRAW, ingest.treated_as_withdraw);
    }
    let kept = |kept: ByFamily<usize>| ByFamily::new(|family| kept[family] as u64);
    let received = counts.kept.map_or(counts.accepted, kept);
    let kinds = (statistic::ADJ_RIB_IN, statistic::FAMILY_ADJ_RIB_IN);
    gauges(&mut statistics, kinds, info.families, received);
    if let Some(sent) = &counts.sent {
        let kinds = (statistic::ADJ_RIB_OUT_POST, statistic::FAMILY_ADJ_RIB_OUT_POST);
        gauges(&mut statistics, kinds, info.families, sent.advertised);
    }
    statistics
}
