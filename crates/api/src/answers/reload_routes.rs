//! The routes of each neighbour that a reload would change: a trial of the new policies.
//!
//! Import policies run over the routes that readers keep, or over accepted ones, on this thread; stages hand over handles.
//! Shards select the best path of a prefix with the results, and workers say what each update group would be sent. So the
//! prediction comes from the code that a reload runs. It takes a page at a time, between two batches of each stage.

use super::bgp::bgp;
use super::routes::{self, Read};
use super::rpki;
use super::zones::Zones;
use super::{Refusal, RouterState};
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::egress::{Advertised, AdvertisedPath};
use ribtide_bgp::ingest::{Ingest, IngestPeer, IngestSettings, KeptPlace};
use ribtide_bgp::message::{BestPath, RankedBatch};
use ribtide_bgp::peer::{EgressSettings, PeerId, PeerInfo};
use ribtide_bgp::shard::{PathOverride, Shard, WhatIf};
use ribtide_bgpd::decision_options;
use ribtide_bgpd::session::prediction::{NeighborChange, Prediction};
use ribtide_config::BgpConfig;
use ribtide_model::{AdvertisedChanges, Basis, NeighborRoutes, ReceivedChanges};
use ribtide_policy::PolicyResult;
use ribtide_prefix::{AfiSafi, AnyPrefix, BgpFamily, Prefix};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Kept routes of a page. Each costs an evaluation of two policies on this thread, and the reader a handle.
const KEPT_PAGE: usize = 8192;
/// Prefixes of a page. Each costs a shard a selection, and a worker two evaluations for each update group.
const PREFIX_PAGE: usize = 1000;

/// A trial under way.
pub(crate) struct RouteTrial {
    members: Vec<Member>,
    groups: Vec<TrialGroup>,
    options: DecisionOptions,
    /// Best paths are selected by other options.
    other_options: bool,
    /// Evaluates the present import policies, and the new ones.
    before: Ingest,
    after: Ingest,
    /// Members whose kept routes are not read yet, and how far the first is read.
    kept: VecDeque<usize>,
    kept_after: Option<KeptPlace>,
    overrides: HashMap<AnyPrefix, Vec<PathOverride>>,
    /// The prefixes that remain; `None`: they are not collected yet.
    prefixes: Option<Read>,
    looked_at: u64,
    total: u64,
    examples: usize,
}

/// A neighbour with a session.
struct Member {
    neighbor: String,
    group: String,
    info: Arc<PeerInfo>,
    reader: usize,
    /// `None`: its import settings stay.
    import: Option<ImportTrial>,
    received: Option<ReceivedChanges>,
    advertised: AdvertisedChanges,
}

struct ImportTrial {
    before: IngestPeer,
    /// `None`: its session ends, and its routes go.
    after: Option<IngestPeer>,
    /// Whether its reader keeps routes.
    kept: bool,
}

/// Members that are sent the same, before and after.
struct TrialGroup {
    worker: usize,
    before: EgressSettings,
    after: EgressSettings,
    members: Vec<usize>,
}

/// A prefix before and after.
struct Row<F: BgpFamily> {
    prefix: Prefix<F>,
    best: Option<BestPath>,
    ranked: RankedBatch,
    /// `None`: it stays.
    after: Option<WhatIf>,
}

impl RouteTrial {
    /// A trial of these changes; `None`: no route can change by policy.
    pub(super) fn new(
        router: &RouterState,
        prediction: Prediction,
        new: &BgpConfig,
        zones: &Zones,
        examples: usize,
    ) -> Result<Option<RouteTrial>, Refusal> {
        let running = bgp(router)?;
        let (options, present) = (decision_options(new), router.config());
        let other_options = present.bgp.as_ref().is_none_or(|bgp| decision_options(bgp) != options);
        let mut members = Vec::new();
        let mut groups: Vec<TrialGroup> = Vec::new();
        let mut total = 0;
        for neighbor in prediction.neighbors {
            let Some(session) = neighbor.session else { continue };
            let ends = matches!(neighbor.change, NeighborChange::Removed | NeighborChange::ShutDown);
            let new_import = session.new_import.filter(|_| !ends);
            let mut member = Member {
                neighbor: zones.named(neighbor.address).to_string(),
                group: neighbor.group,
                info: session.info.clone(),
                reader: session.reader,
                import: None,
                received: None,
                advertised: AdvertisedChanges::default(),
            };
            if new_import.as_ref().is_none_or(|new| !decides_the_same(&session.import, new)) {
                let id = session.info.id;
                let reader = running.readers.get(session.reader);
                let kept = match reader {
                    Some(reader) if new_import.is_some() && session.import.keeps_received() => {
                        reader.call(move |reader| reader.received_len(id))?
                    }
                    _ => None,
                };
                total +=
                    kept.map_or(0, |lens| AfiSafi::ALL.into_iter().map(|family| lens[family] as u64).sum());
                // Routes with GRACEFUL_SHUTDOWN (RFC 8326) aside, which any policy treats alike.
                let is_plain = session.import.import.constant_for(&[]) == Some(PolicyResult::Accept);
                let basis = match kept.is_some() {
                    true => Basis::Received,
                    false if is_plain => Basis::AcceptedUnchanged,
                    false => Basis::Accepted,
                };
                member.received = new_import.is_some().then(|| received(basis));
                let of = |settings| IngestPeer::new(session.info.clone(), settings);
                let (before, after) = (of(session.import), new_import.map(of));
                member.import = Some(ImportTrial { before, after, kept: kept.is_some() });
            }
            let at = members.len();
            if let Some(after) = session.new_egress.filter(|_| !ends) {
                let (worker, before) = (session.worker, &session.info.egress);
                let is = |g: &&mut TrialGroup| g.worker == worker && g.before == *before && g.after == after;
                match groups.iter_mut().find(is) {
                    Some(group) => group.members.push(at),
                    None => {
                        groups.push(TrialGroup { worker, before: before.clone(), after, members: vec![at] });
                    }
                }
            }
            members.push(member);
        }
        let changes = other_options
            || members.iter().any(|m| m.import.is_some())
            || groups.iter().any(TrialGroup::differs);
        if !changes {
            return Ok(None);
        }
        let vrps = rpki::vrps(router)?.unwrap_or_default();
        let (mut before, mut after) = (Ingest::default(), Ingest::default());
        before.set_vrps(vrps.clone());
        after.set_vrps(vrps);
        let keeps = |(at, member): (usize, &Member)| Some(at).filter(|_| member.is_kept());
        let kept = members.iter().enumerate().filter_map(keeps).collect();
        Ok(Some(RouteTrial {
            members,
            groups,
            options,
            other_options,
            before,
            after,
            kept,
            kept_after: None,
            overrides: HashMap::new(),
            prefixes: None,
            looked_at: 0,
            total,
            examples,
        }))
    }

    /// The routes and prefixes looked at, and all that there are.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.looked_at, self.total.max(self.looked_at))
    }

    /// Evaluates another page. Returns whether that was the last one.
    pub(super) fn go_on(&mut self, router: &RouterState) -> Result<bool, Refusal> {
        if let Some(at) = self.kept.front().copied() {
            self.kept_page(router, at)?;
            return Ok(false);
        }
        let mut read = match self.prefixes.take() {
            Some(read) => read,
            None => {
                let read = self.every_prefix(router)?;
                self.total += read.len() as u64;
                read
            }
        };
        let (v4, v6) = read.next(PREFIX_PAGE);
        self.looked_at += (v4.len() + v6.len()) as u64;
        self.prefixes_page(router, v4)?;
        self.prefixes_page(router, v6)?;
        let is_done = read.is_empty();
        self.prefixes = Some(read);
        Ok(is_done)
    }

    /// The routes of each neighbour that change.
    pub(super) fn result(self) -> Vec<NeighborRoutes> {
        let of = |member: Member| {
            let advertised = Some(member.advertised).filter(|a| a.appear + a.vanish + a.changed > 0);
            let received = member.received;
            (received.is_some() || advertised.is_some()).then_some(NeighborRoutes {
                neighbor: member.neighbor,
                group: member.group,
                received,
                advertised,
            })
        };
        self.members.into_iter().filter_map(of).collect()
    }

    /// Evaluates kept routes of a member.
    fn kept_page(&mut self, router: &RouterState, at: usize) -> Result<(), Refusal> {
        let (id, reader, after) = (self.members[at].info.id, self.members[at].reader, self.kept_after);
        let bgp = bgp(router)?;
        let page = match bgp.readers.get(reader) {
            Some(reader) => reader.call(move |reader| reader.kept_page(id, after, KEPT_PAGE))?,
            None => None,
        };
        // Its session has ended meanwhile.
        let page = page.unwrap_or_default();
        self.looked_at += page.len() as u64;
        self.kept_after = page.last().filter(|_| page.len() == KEPT_PAGE).map(|(place, _)| *place);
        if self.kept_after.is_none() {
            self.kept.pop_front();
        }
        for ((_, prefix, path_id), attrs) in page {
            match prefix {
                AnyPrefix::V4(prefix) => self.received(at, prefix, path_id, &attrs, true),
                AnyPrefix::V6(prefix) => self.received(at, prefix, path_id, &attrs, true),
            }
        }
        Ok(())
    }

    /// Evaluates a route of a member: one `as_received`, or an accepted one.
    fn received<F: BgpFamily>(
        &mut self,
        at: usize,
        prefix: Prefix<F>,
        path_id: u32,
        attrs: &AttrSet,
        as_received: bool,
    ) {
        let RouteTrial { members, before, after, overrides, examples, .. } = self;
        let member = &mut members[at];
        let Some(import) = &member.import else { return };
        let now = match as_received {
            true => before.trial(&import.before, prefix, attrs),
            // The shard's own mark of the distance to the next hop is no attribute.
            false => Some(attrs.distance().map_or_else(|| attrs.clone(), |_| attrs.with_distance(None))),
        };
        let then = import
            .after
            .as_ref()
            .and_then(|peer| after.trial(peer, prefix, now_or(&now, attrs, as_received)));
        if let Some(received) = &mut member.received {
            received.routes += 1;
            let (count, names) = match (&now, &then) {
                (None, Some(_)) => (&mut received.accepted, &mut received.accepted_examples),
                (Some(_), None) => (&mut received.refused, &mut received.refused_examples),
                (Some(now), Some(then)) if now != then => {
                    (&mut received.changed, &mut received.changed_examples)
                }
                _ => return,
            };
            note(count, names, *examples, prefix);
        }
        if now != then {
            let then = then.map(|then| match as_received {
                true => then,
                false => then.with_distance(attrs.distance()),
            });
            let entry = PathOverride { peer: member.info.clone(), path_id, attrs: then };
            overrides.entry(prefix.any()).or_default().push(entry);
        }
    }

    /// The prefixes whose routes may change.
    fn every_prefix(&self, router: &RouterState) -> Result<Read, Refusal> {
        let whole = self.other_options
            || self.groups.iter().any(TrialGroup::differs)
            || self.members.iter().any(|member| member.import.is_some() && !member.is_kept());
        let mut read = match whole {
            true => Read::begin(router, None, None)?,
            false => Read::default(),
        };
        read.add(self.overrides.keys().copied());
        Ok(read)
    }

    fn prefixes_page<F: BgpFamily>(
        &mut self,
        router: &RouterState,
        prefixes: Vec<Prefix<F>>,
    ) -> Result<(), Refusal> {
        if prefixes.is_empty() {
            return Ok(());
        }
        self.accepted(router, &prefixes)?;
        let rows = self.rows(router, prefixes)?;
        let bgp = bgp(router)?;
        for group in &self.groups {
            let differs = group.differs();
            let rows: Vec<&Row<F>> = rows.iter().filter(|row| differs || row.after.is_some()).collect();
            // A worker ends with its last session.
            let Some(worker) = bgp.workers.get(group.worker).filter(|_| !rows.is_empty()) else { continue };
            let (before, after) = (group.before.clone(), group.after.clone());
            let sent = |page: Vec<(Prefix<F>, BestPath)>, settings: EgressSettings| {
                let sources: Vec<PeerId> = page.iter().map(|(_, best)| best.source).collect();
                let forms = worker.call(move |w| w.trial::<F>(&settings, &page))?;
                Ok::<_, Refusal>(forms.into_iter().zip(sources).map(alone).collect::<Vec<_>>())
            };
            let ranked = |page: RankedBatch, settings: EgressSettings| {
                Ok::<_, Refusal>(worker.call(move |w| w.trial_ranked::<F>(&settings, &page))?)
            };
            let forms = |settings: EgressSettings, is_after: bool| -> Result<Vec<Sent>, Refusal> {
                if settings.takes_ranked(F::ID) {
                    let mut page = RankedBatch::default();
                    rows.iter().for_each(|row| page.append(row.ranked(is_after)));
                    return ranked(page, settings);
                }
                let page = rows.iter().filter_map(|row| Some((row.prefix, row.best(is_after)?.clone())));
                let mut forms = sent(page.collect(), settings)?.into_iter();
                let of = |row: &&Row<F>| row.best(is_after).and_then(|_| forms.next()).unwrap_or_default();
                Ok(rows.iter().map(of).collect())
            };
            let (now, then) = (forms(before, false)?, forms(after, true)?);
            for at in &group.members {
                let Member { info, advertised, .. } = &mut self.members[*at];
                for ((row, now), then) in rows.iter().zip(&now).zip(&then) {
                    compare(advertised, self.examples, row.prefix, of(now, info.id), of(then, info.id));
                }
            }
        }
        Ok(())
    }

    /// Evaluates the accepted routes of these prefixes, of members whose routes are not kept.
    fn accepted<F: BgpFamily>(
        &mut self,
        router: &RouterState,
        prefixes: &[Prefix<F>],
    ) -> Result<(), Refusal> {
        let unkept = |member: &&Member| member.import.is_some() && !member.is_kept();
        let wanted: BTreeMap<PeerId, usize> = (self.members.iter().enumerate())
            .filter(|(_, member)| unkept(member))
            .map(|(at, member)| (member.info.id, at))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let ids = Arc::new(wanted.clone());
        let paths = move |shard: &Shard, prefix: Prefix<F>| {
            let view = shard.lookup(prefix)?;
            let of = view.paths.into_iter().filter_map(|path| {
                let at = ids.get(&path.peer.id)?;
                Some((*at, path.path_id.unwrap_or(0), path.attrs))
            });
            Some(of.collect::<Vec<_>>())
        };
        for (_, prefix, paths) in routes::each(router, prefixes.iter().copied(), paths)? {
            for (at, path_id, attrs) in paths {
                self.received(at, prefix, path_id, &attrs, false);
            }
        }
        Ok(())
    }

    /// What workers have of these prefixes, and what they would have.
    fn rows<F: BgpFamily>(
        &mut self,
        router: &RouterState,
        prefixes: Vec<Prefix<F>>,
    ) -> Result<Vec<Row<F>>, Refusal> {
        let with_ranked =
            self.groups.iter().any(|g| g.before.takes_ranked(F::ID) || g.after.takes_ranked(F::ID));
        let mut overrides: HashMap<Prefix<F>, Vec<PathOverride>> = HashMap::new();
        for prefix in &prefixes {
            if let Some(of) = self.overrides.remove(&prefix.any()) {
                overrides.insert(*prefix, of);
            }
        }
        let (overrides, options, other_options) = (Arc::new(overrides), self.options, self.other_options);
        let row = move |shard: &Shard, prefix: Prefix<F>| {
            let view = shard.advertised(prefix);
            let of = overrides.get(&prefix);
            let after = (of.is_some() || other_options)
                .then(|| shard.what_if(prefix, of.map_or(&[][..], Vec::as_slice), &options));
            let ranked = if with_ranked { shard.ranked_of(prefix) } else { RankedBatch::default() };
            Some(Row { prefix, best: view.and_then(|view| view.path), ranked, after })
        };
        let found = routes::each(router, prefixes.into_iter(), row)?;
        Ok(found.into_iter().map(|(.., row)| row).collect())
    }
}

/// The attributes that the new policy is evaluated for.
fn now_or<'a>(now: &'a Option<AttrSet>, attrs: &'a AttrSet, as_received: bool) -> &'a AttrSet {
    match (as_received, now) {
        (false, Some(now)) => now,
        _ => attrs,
    }
}

impl Member {
    fn is_kept(&self) -> bool {
        self.import.as_ref().is_some_and(|import| import.kept)
    }
}

impl TrialGroup {
    fn differs(&self) -> bool {
        self.before != self.after
    }
}

impl<F: BgpFamily> Row<F> {
    fn best(&self, is_after: bool) -> Option<&BestPath> {
        match self.after.as_ref().filter(|_| is_after) {
            Some(after) => after.best.as_ref(),
            None => self.best.as_ref(),
        }
    }

    fn ranked(&self, is_after: bool) -> &RankedBatch {
        self.after.as_ref().filter(|_| is_after).map_or(&self.ranked, |after| &after.ranked)
    }
}

/// Whether the same routes are accepted with the same attributes, limits aside.
fn decides_the_same(old: &IngestSettings, new: &IngestSettings) -> bool {
    IngestSettings { max_prefixes: old.max_prefixes, keep_received: old.keep_received, ..new.clone() } == *old
}

fn received(basis: Basis) -> ReceivedChanges {
    ReceivedChanges {
        basis,
        routes: 0,
        accepted: 0,
        refused: 0,
        changed: 0,
        accepted_examples: Vec::new(),
        refused_examples: Vec::new(),
        changed_examples: Vec::new(),
    }
}

/// The paths of a prefix as a group is sent them, each with its source.
type Sent = Vec<(PeerId, AdvertisedPath)>;

/// The only path that is sent, if any.
fn alone((form, source): (Option<Advertised>, PeerId)) -> Sent {
    form.into_iter().map(|form| (source, AdvertisedPath { id: None, form })).collect()
}

/// What this member is sent: not its own paths.
fn of(sent: &Sent, member: PeerId) -> Vec<&AdvertisedPath> {
    sent.iter().filter(|(source, _)| *source != member).map(|(_, path)| path).collect()
}

/// Counts what differs.
fn compare<F: BgpFamily>(
    changes: &mut AdvertisedChanges,
    examples: usize,
    prefix: Prefix<F>,
    now: Vec<&AdvertisedPath>,
    then: Vec<&AdvertisedPath>,
) {
    for path in &now {
        match then.iter().find(|other| other.id == path.id) {
            None => note(&mut changes.vanish, &mut changes.vanish_examples, examples, prefix),
            Some(other) if other.form != path.form => {
                note(&mut changes.changed, &mut changes.changed_examples, examples, prefix);
            }
            Some(_) => {}
        }
    }
    for _ in then.iter().filter(|path| !now.iter().any(|other| other.id == path.id)) {
        note(&mut changes.appear, &mut changes.appear_examples, examples, prefix);
    }
}

fn note<F: BgpFamily>(count: &mut u64, names: &mut Vec<String>, examples: usize, prefix: Prefix<F>) {
    *count += 1;
    let name = prefix.to_string();
    // Several paths of a prefix are neighbours here.
    if names.len() < examples && names.last() != Some(&name) {
        names.push(name);
    }
}
