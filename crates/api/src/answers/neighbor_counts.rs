//! What shards, readers and update threads know of neighbours, and the counts of neighbours for metrics.

use super::bgp::{bgp, group_id, update_thread};
use super::{Refusal, RouterState, each_shard, zones};
use ribtide_bgp::egress::{Counters, GroupView, MemberView};
use ribtide_bgp::ingest::{IngestCounters, PrefixCount};
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::Shard;
use ribtide_bgpd::Bgp;
use ribtide_bgpd::messages::MessageCounts;
use ribtide_bgpd::session::{self, WriteQueue};
use ribtide_config::MaxPrefixesConfig;
use ribtide_model::{PerFamilyCount, ZonedAddress};
use ribtide_prefix::{BgpFamily, ByFamily, for_each_bgp_family};
use ribtide_wire::bgp::message::MessageType;
use std::sync::Arc;

/// Neighbours in one call to a stage: at most some hundred microseconds of its thread. A call costs as much as some hundred.
const NEIGHBORS_BATCH_MAX: usize = 1024;

/// Where the state of a neighbour is.
pub(super) struct Place {
    pub(super) id: PeerId,
    /// Whether shards may have paths of it.
    pub(super) has_paths: bool,
    /// The reader and the update thread of its session.
    pub(super) stages: Option<(usize, usize)>,
}

/// State of a neighbour outside of the session thread.
#[derive(Default)]
pub(super) struct SessionState {
    pub(super) accepted: PerFamilyCount,
    pub(super) active: PerFamilyCount,
    pub(super) ingest: IngestCounters,
    pub(super) read: MessageCounts,
    /// Routes before import policy, where they are kept.
    pub(super) received: Option<PerFamilyCount>,
    /// Prefixes against the limits.
    pub(super) limited: ByFamily<Option<PrefixCount>>,
    pub(super) member: Option<MemberView>,
    pub(super) stale: PerFamilyCount,
}

/// The positions and numbers of the neighbours that `wanted` accepts, a batch at a time.
fn batches(places: &[Place], wanted: impl Fn(&Place) -> bool) -> Vec<(Vec<usize>, Arc<[PeerId]>)> {
    let chosen: Vec<usize> = (0..places.len()).filter(|at| wanted(&places[*at])).collect();
    let batch = |at: &[usize]| (at.to_vec(), at.iter().map(|at| places[*at].id).collect());
    chosen.chunks(NEIGHBORS_BATCH_MAX).map(batch).collect()
}

/// The state of each neighbour in shards, readers and update threads, in the order of `places`. Routes before import policy
/// are left out: see [`received_counts`].
pub(super) fn session_states(bgp: &Bgp, places: &[Place]) -> Result<Vec<SessionState>, Refusal> {
    let mut states: Vec<SessionState> = places.iter().map(|_| SessionState::default()).collect();
    for (at, ids) in batches(places, |place| place.has_paths) {
        let count = move |shard: &mut Shard| -> Vec<_> {
            let of = |id: &PeerId| {
                let mut counts = ByFamily::default();
                for_each_bgp_family!(F => counts[F::ID] = (shard.peer_counts::<F>(*id), shard.stale_count::<F>(*id)));
                counts
            };
            ids.iter().map(of).collect()
        };
        for counted in each_shard(&bgp.owners.read(), count)? {
            for (at, counts) in at.iter().zip(counted) {
                let state = &mut states[*at];
                state.stale += PerFamilyCount::new(|family| counts[family].1.into());
                state.accepted += PerFamilyCount::new(|family| counts[family].0.paths.into());
                state.active += PerFamilyCount::new(|family| counts[family].0.best.into());
            }
        }
    }
    // The session thread may know an ended session longer than the others.
    for (index, reader) in bgp.readers.iter().enumerate() {
        for (at, ids) in batches(places, |place| place.stages.is_some_and(|stages| stages.0 == index)) {
            let counted = reader
                .call(move |reader| ids.iter().map(|id| reader.session_counts(*id)).collect::<Vec<_>>())?;
            for (at, counts) in at.into_iter().zip(counted) {
                let Some(counts) = counts else { continue };
                let state = &mut states[at];
                (state.ingest, state.read, state.limited) = (counts.ingest, counts.messages, counts.limited);
            }
        }
    }
    for (index, worker) in bgp.workers.running() {
        for (at, ids) in batches(places, |place| place.stages.is_some_and(|stages| stages.1 == index)) {
            let members =
                worker.call(move |worker| ids.iter().map(|id| worker.member(*id)).collect::<Vec<_>>())?;
            for (at, member) in at.into_iter().zip(members) {
                states[at].member = member;
            }
        }
    }
    Ok(states)
}

/// The routes before import policy of each neighbour, where they are kept, in the order of `places`.
pub(super) fn received_counts(bgp: &Bgp, places: &[Place]) -> Result<Vec<Option<PerFamilyCount>>, Refusal> {
    let mut all = vec![None; places.len()];
    for (index, reader) in bgp.readers.iter().enumerate() {
        for (at, ids) in batches(places, |place| place.stages.is_some_and(|stages| stages.0 == index)) {
            let lens = reader
                .call(move |reader| ids.iter().map(|id| reader.received_len(*id)).collect::<Vec<_>>())?;
            for (at, lens) in at.into_iter().zip(lens) {
                all[at] = lens.map(|lens| PerFamilyCount::new(|family| lens[family] as u64));
            }
        }
    }
    Ok(all)
}

/// What metrics have of a neighbour.
#[derive(Debug)]
pub(crate) struct NeighborCounts {
    pub(crate) address: ZonedAddress,
    /// Its group in the configuration.
    pub(crate) group: String,
    /// Time in its state.
    pub(crate) state_seconds: u64,
    /// Established sessions lost.
    pub(crate) flaps: u64,
    /// Stale paths in use.
    pub(crate) stale: PerFamilyCount,
    /// How often stale paths were removed because it did not come back in time.
    pub(crate) stale_expired: u64,
    pub(crate) max_prefixes: MaxPrefixesConfig,
    /// How often the maximum of received prefixes was exceeded.
    pub(crate) exceeded: ByFamily<u64>,
    /// The same of sent ones.
    pub(crate) exceeded_out: ByFamily<u64>,
    pub(crate) session: Option<SessionCounts>,
}

/// What metrics have of an established session.
#[derive(Debug)]
pub(crate) struct SessionCounts {
    pub(crate) accepted: PerFamilyCount,
    pub(crate) active: PerFamilyCount,
    pub(crate) advertised: PerFamilyCount,
    /// Whether its update thread knows it.
    pub(crate) is_member: bool,
    /// Received prefixes against the limits.
    pub(crate) limited: ByFamily<Option<PrefixCount>>,
    pub(crate) messages_received: MessageCounts,
    pub(crate) messages_sent: MessageCounts,
    pub(crate) ingest: IngestCounters,
    pub(crate) sent: Counters,
    /// Prefixes that wait to be packed.
    pub(crate) waiting: u64,
    pub(crate) writes: WriteQueue,
}

/// What the session thread knows of every neighbour, by address.
pub(super) fn session_counts(bgp: &Bgp) -> Result<Vec<session::NeighborCounts>, Refusal> {
    let page = |after| bgp.sessions.call(move |sessions| sessions.counts(after, NEIGHBORS_BATCH_MAX));
    let mut views = page(None)?;
    let mut is_last = views.len() < NEIGHBORS_BATCH_MAX;
    while !is_last {
        let more = page(views.last().map(|last| last.address))?;
        is_last = more.len() < NEIGHBORS_BATCH_MAX;
        views.extend(more);
    }
    Ok(views)
}

/// What metrics have of every neighbour, by address.
pub(crate) fn neighbor_counts(
    router: &RouterState,
) -> Result<impl ExactSizeIterator<Item = NeighborCounts>, Refusal> {
    let bgp = bgp(router)?;
    let views = session_counts(&bgp)?;
    let place = |view: &session::NeighborCounts| Place {
        id: view.id,
        has_paths: view.up.is_some() || view.has_retained,
        stages: view.up.as_ref().map(|up| (up.reader, up.worker)),
    };
    let places: Vec<Place> = views.iter().map(place).collect();
    let states = session_states(&bgp, &places)?;
    Ok(views.into_iter().zip(states).map(|(view, state)| counts(view, state)))
}

fn counts(view: session::NeighborCounts, state: SessionState) -> NeighborCounts {
    let session = view.up.map(|up| {
        let member = state.member;
        let (mut messages_received, mut messages_sent) = (up.received, up.sent);
        messages_received.add(&state.read);
        messages_sent.set(MessageType::Update, member.as_ref().map_or(0, |member| member.counters.messages));
        SessionCounts {
            accepted: state.accepted,
            active: state.active,
            advertised: PerFamilyCount::new(|family| {
                member.as_ref().map_or(0, |member| member.advertised[family])
            }),
            is_member: member.is_some(),
            limited: state.limited,
            messages_received,
            messages_sent,
            ingest: state.ingest,
            sent: member.as_ref().map(|member| member.counters).unwrap_or_default(),
            waiting: member.as_ref().map_or(0, |member| member.waiting as u64),
            writes: up.writes,
        }
    });
    NeighborCounts {
        address: zones::neighbor(view.address, view.interface),
        group: view.group,
        state_seconds: view.state_age / 1000,
        flaps: view.flaps,
        stale: state.stale,
        stale_expired: view.stale_expired,
        max_prefixes: view.max_prefixes,
        exceeded: view.exceeded,
        exceeded_out: view.exceeded_out,
        session,
    }
}

/// The update groups: name, update thread and state of each.
pub(crate) fn update_groups(router: &RouterState) -> Result<Vec<(String, String, GroupView)>, Refusal> {
    let bgp = bgp(router)?;
    let mut groups = Vec::new();
    for (index, worker) in bgp.workers.running() {
        for view in worker.call(|worker| worker.groups())? {
            groups.push((group_id(index, view.id), update_thread(&bgp, index), view));
        }
    }
    Ok(groups)
}
