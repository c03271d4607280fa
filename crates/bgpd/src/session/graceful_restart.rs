//! Graceful restart of neighbours: what of a lost session's routes is retained, and how long (RFC 4724 section 4.2,
//! RFC 8538 section 4), and what is long-lived stale after that (RFC 9494 section 4.2). The neighbour's reader and the shards
//! have the routes.
//!
//! When a session is lost again before its End-of-RIB, the routes that it had not announced again stay, too (RFC 8538 section
//! 4.1). They keep the times of their own session: `stale-time` counts from its loss, and a Long-Lived Stale Time that runs
//! goes on.

use super::Sessions;
use super::log::{News, Who};
use crate::reader::Command;
use ribtide_bgp::fsm::{Event, Millis, Negotiated, Retention};
use ribtide_bgp::peer::{FamilySet, PeerId};
use ribtide_config::NeighborSettings;
use ribtide_prefix::{AfiSafi, ByFamily};

/// Lost sessions of a neighbour with retained routes, at most: a shard looks for a path of each. Of more restarts in a row the
/// routes of the oldest session go. Idle holds make so many take minutes.
const SESSIONS_MAX: usize = if cfg!(test) { 2 } else { 8 };

/// The retained routes of a session of a neighbour that was lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retained {
    /// The number of that session.
    session: u32,
    /// The reader that has to sweep them.
    pub(super) reader: usize,
    families: FamilySet,
    /// When it was lost.
    since: Millis,
    /// When a next session must be there; `None`: it is.
    restart_by: Option<Millis>,
    /// How long routes may be long-lived stale.
    long_lived: ByFamily<Millis>,
    /// Families that are long-lived stale at once.
    at_once: FamilySet,
    /// Until when those that are stay so.
    long_lived_until: ByFamily<Option<Millis>>,
}

/// The retained routes of a neighbour, as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetainedView {
    /// Their families.
    pub families: FamilySet,
    /// Those with routes that are long-lived stale.
    pub long_lived: FamilySet,
    /// The number of lost sessions that they are of: more than one after consecutive restarts.
    pub sessions: usize,
    /// Milliseconds since the first of these was lost.
    pub age: Millis,
    /// Milliseconds in which the neighbour must have a session again; `None`: it has one, and its End-of-RIB is awaited.
    pub restart_left: Option<Millis>,
    /// Milliseconds after which the first are removed, or become long-lived stale, in any case.
    pub stale_left: Millis,
}

impl RetainedView {
    /// The routes of these sessions; `None` without any.
    pub(super) fn of(list: &[Retained], settings: &NeighborSettings, now: Millis) -> Option<RetainedView> {
        let views = list.iter().map(|retained| retained.view(settings, now));
        views.reduce(|a, b| RetainedView {
            families: a.families.or(b.families),
            long_lived: a.long_lived.or(b.long_lived),
            sessions: a.sessions + b.sessions,
            age: a.age.max(b.age),
            restart_left: a.restart_left.into_iter().chain(b.restart_left).min(),
            stale_left: a.stale_left.min(b.stale_left),
        })
    }
}

impl Retained {
    /// Those of a session that ended.
    pub(super) fn new(retention: Retention, session: u32, reader: usize, now: Millis) -> Retained {
        let Retention { families, time, long_lived_only, long_lived } = retention;
        Retained {
            session,
            reader,
            families,
            since: now,
            restart_by: Some(now + time),
            long_lived,
            at_once: long_lived_only,
            long_lived_until: ByFamily::default(),
        }
    }

    fn stale_until(&self, settings: &NeighborSettings) -> Millis {
        self.since + settings.graceful_restart.stale_time.as_millis() as Millis
    }

    /// The families that are long-lived stale.
    fn are_long_lived(&self) -> FamilySet {
        self.families.iter().filter(|family| self.long_lived_until[*family].is_some()).collect()
    }

    /// When families that are not long-lived stale have been retained for long enough.
    fn short_until(&self, settings: &NeighborSettings) -> Option<Millis> {
        let any = !self.families.but(self.are_long_lived()).is_empty();
        any.then(|| self.stale_until(settings).min(self.restart_by.unwrap_or(Millis::MAX)))
    }

    /// When some are removed or become long-lived stale, unless the neighbour ends that.
    pub(super) fn deadline(&self, settings: &NeighborSettings) -> Millis {
        let long = self.families.iter().filter_map(|family| self.long_lived_until[family]);
        long.chain(self.short_until(settings)).min().unwrap_or(Millis::MAX)
    }

    fn view(&self, settings: &NeighborSettings, now: Millis) -> RetainedView {
        let left = |at: Millis| at.saturating_sub(now);
        let short = self.short_until(settings);
        let restart_left = self.restart_by.map(|by| match short {
            Some(_) => left(by),
            None => left(self.deadline(settings)),
        });
        RetainedView {
            families: self.families,
            long_lived: self.are_long_lived(),
            sessions: 1,
            age: now.saturating_sub(self.since),
            restart_left,
            stale_left: left(match short {
                Some(_) => self.stale_until(settings),
                None => self.deadline(settings),
            }),
        }
    }

    /// The families that wait for End-of-RIB of a new session: those whose forwarding the neighbour has kept, as F of the
    /// capability says that they are retained by. Long-lived stale ones of a family that the neighbour has in both
    /// capabilities need both F (RFC 9494 sections 4.2 and 5).
    fn kept(&self, negotiated: &Negotiated) -> FamilySet {
        let (short, lost) = negotiated.restart.map_or((FamilySet::NONE, FamilySet::NONE), |restart| {
            (restart.forwarding, restart.families.but(restart.forwarding))
        });
        let long = negotiated.long_lived.unwrap_or_default();
        let are_long = self.are_long_lived();
        self.families.and(short.but(are_long).or(long.forwarding.and(are_long).but(lost)))
    }

    /// The families that stay when the next session is lost before its End-of-RIB: those of that one's capability, and those
    /// whose Long-Lived Stale Time runs, which nothing but its end ends (RFC 9494 section 4.2).
    fn kept_again(&self, retention: &Retention) -> FamilySet {
        self.families.and(retention.families.or(self.are_long_lived()))
    }

    /// Families whose time is over, families that become long-lived stale now, and why.
    fn overdue(&self, settings: &NeighborSettings, now: Millis) -> (FamilySet, FamilySet, &'static str) {
        let are_long = self.are_long_lived();
        let is_over = |family: &AfiSafi| self.long_lived_until[*family].is_some_and(|at| at <= now);
        let over: FamilySet = are_long.iter().filter(is_over).collect();
        if self.short_until(settings).is_none_or(|at| at > now) {
            return (over, FamilySet::NONE, "long-lived-stale-time is over");
        }
        let short = self.families.but(are_long);
        let may_begin = |family: &AfiSafi| self.long_lived[*family] > 0 && self.restart_by.is_some();
        let begin: FamilySet = short.iter().filter(may_begin).collect();
        let why = match self.restart_by {
            Some(at) if at <= now => "it has no session again within its restart time",
            _ => "stale-time is over",
        };
        (over.or(short.but(begin)), begin, why)
    }
}

/// Whether an event ends retention, beside the session.
pub(super) fn ends_retention(event: &Event<'_>) -> bool {
    matches!(event, Event::Stop(_) | Event::Reset(_) | Event::Hold(_))
}

impl Sessions {
    /// A neighbour with retained routes has a session again: those of families whose forwarding it has lost are removed.
    pub(super) fn restarted(&mut self, id: PeerId, negotiated: &Negotiated) {
        self.keep(id, |retained| retained.kept(negotiated));
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.retained.iter_mut().for_each(|retained| retained.restart_by = None);
    }

    /// The session of a neighbour is lost. Routes of earlier ones that it has not announced again stay, if those of this one
    /// do (RFC 8538 section 4.1).
    pub(super) fn end_earlier_retention(&mut self, id: PeerId, retention: Option<Retention>, now: Millis) {
        let Some(retention) = retention else { return self.end_retention(id) };
        self.keep(id, |retained| retained.kept_again(&retention));
        let Some(peer) = self.peers.get_mut(&id) else { return };
        for retained in &mut peer.retained {
            retained.restart_by = Some(now + retention.time);
            for family in
                AfiSafi::ALL.into_iter().filter(|family| retained.long_lived_until[*family].is_none())
            {
                retained.long_lived[family] = retention.long_lived[family];
            }
        }
        if let Some(oldest) = peer.retained.first().filter(|_| peer.retained.len() >= SESSIONS_MAX) {
            let oldest = oldest.session;
            self.keep(
                id,
                |retained| {
                    if retained.session == oldest { FamilySet::NONE } else { retained.families }
                },
            );
        }
    }

    /// Routes of a lost session are retained; their reader knows of its end.
    pub(super) fn retain(&mut self, id: PeerId, retained: Retained, now: Millis) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.retained.push(retained);
        self.begin_long_lived(id, retained.session, retained.at_once, now);
    }

    /// A neighbour has sent all its routes of a family; its reader has swept the stale ones.
    pub(super) fn refreshed(&mut self, id: PeerId, family: AfiSafi) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.retained.iter_mut().for_each(|retained| retained.families = retained.families.without(family));
        peer.retained.retain(|retained| !retained.families.is_empty());
    }

    /// Removes retained routes of a neighbour, but those of the families that `kept` says of each session.
    fn keep(&mut self, id: PeerId, kept: impl Fn(&Retained) -> FamilySet) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        for retained in &mut peer.retained {
            let gone = retained.families.but(kept(retained));
            retained.families = retained.families.but(gone);
            if !gone.is_empty() {
                let sweep = Command::Sweep(id, retained.session, gone);
                self.outbox.send_to_reader(retained.reader, sweep);
            }
        }
        peer.retained.retain(|retained| !retained.families.is_empty());
    }

    /// Retained routes of these families of a lost session are long-lived stale from now on. Their time is what is left of that
    /// of an earlier session: nothing but End-of-RIB makes it longer (RFC 9494 section 4.2).
    fn begin_long_lived(&mut self, id: PeerId, session: u32, families: FamilySet, now: Millis) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let runs = ByFamily::new(|family| {
            let with = peer.retained.iter().filter(|retained| retained.families.has(family));
            with.filter_map(|retained| retained.long_lived_until[family]).min()
        });
        let mut list = peer.retained.iter_mut();
        let Some(retained) = list.find(|retained| retained.session == session) else { return };
        let families = families.and(retained.families);
        if families.is_empty() {
            return;
        }
        for family in families.iter() {
            let until = runs[family].unwrap_or(now + retained.long_lived[family]);
            retained.long_lived_until[family] = Some(until);
        }
        let reader = retained.reader;
        self.outbox.send_to_reader(reader, Command::LongLived(id, session, families));
    }

    /// Ends the retention of routes of a neighbour whose time is over, or makes them long-lived stale.
    pub(super) fn end_overdue_retention(&mut self, id: PeerId, now: Millis) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let list = peer.retained.iter().filter(|retained| retained.deadline(&peer.settings) <= now);
        let overdue: Vec<_> =
            list.map(|retained| (retained.session, retained.overdue(&peer.settings, now))).collect();
        let swept = overdue.iter().find(|(_, (over, ..))| !over.is_empty());
        peer.stale_expired += u64::from(swept.is_some());
        let who = Who::of(peer);
        if let Some((_, (_, _, why))) = swept {
            self.log.neighbor(now, &who, &News::Swept(why));
        }
        if let Some((_, (_, _, why))) = overdue.iter().find(|(_, (_, begin, _))| !begin.is_empty()) {
            self.log.neighbor(now, &who, &News::LongLived(why));
        }
        self.keep(id, |retained| {
            let found = overdue.iter().find(|(session, _)| *session == retained.session);
            retained.families.but(found.map_or(FamilySet::NONE, |(_, (over, ..))| *over))
        });
        for (session, (_, begin, _)) in overdue {
            self.begin_long_lived(id, session, begin, now);
        }
    }

    /// Removes the retained routes of a neighbour, if it has any.
    pub(super) fn end_retention(&mut self, id: PeerId) {
        self.keep(id, |_| FamilySet::NONE);
    }
}
