//! A dump of the tables for a station, a page at a time.

use ribtide_bgp::ingest::KeptPlace;
use ribtide_bgp::peer::PeerId;
use ribtide_bgpd::Stages;
use ribtide_bgpd::monitor::SessionUp;
use ribtide_bgpd::shard::PageRequest;
use ribtide_config::BmpViews;
use ribtide_prefix::{AfiSafi, LOGICAL_SHARDS, LogicalShard};
use std::collections::VecDeque;
use std::sync::Arc;

/// Slots of a shard's table in a page: about a millisecond of its work.
const PAGE_SLOTS: usize = 2048;
/// Routes of a reader in a page.
const PAGE_ROUTES: usize = 2048;

/// The rest of a dump.
pub(super) struct Dump {
    steps: VecDeque<Step>,
    /// The token of the page that was requested, and how many messages of it are missing.
    waiting: Option<(u64, usize)>,
    /// Messages to send when that page is there.
    end: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Routes of a session before import policy, after this one.
    Kept(Arc<SessionUp>, Option<KeptPlace>),
    /// A logical shard from this hash on.
    Shard(AfiSafi, LogicalShard, u32),
}

/// What became of a step.
pub(super) enum Progress {
    /// A page is on its way, or it is to be tried again.
    Waiting,
    /// All routes before import policy of a session are there.
    KeptEnd(Arc<SessionUp>),
    /// Everything is there.
    End,
}

impl Dump {
    /// A dump of these views.
    pub(super) fn new<'a>(views: BmpViews, sessions: impl Iterator<Item = &'a Arc<SessionUp>>) -> Dump {
        let mut steps = VecDeque::new();
        if views.pre_policy {
            steps.extend(sessions.map(|up| Step::Kept(up.clone(), None)));
        }
        if views.post_policy || views.adj_rib_out || views.loc_rib {
            for family in AfiSafi::ALL {
                steps.extend((0..LOGICAL_SHARDS).map(|logical| Step::Shard(family, logical, 0)));
            }
        }
        Dump { steps, waiting: None, end: Vec::new() }
    }

    /// Takes a message of the requested page: then one fewer is missing. Returns what is to be sent after it; `None`:
    /// it is of another page.
    pub(super) fn take(&mut self, token: u64) -> Option<Vec<u8>> {
        let (_, missing) = self.waiting.as_mut().filter(|(wanted, _)| *wanted == token)?;
        *missing -= 1;
        if *missing > 0 {
            return Some(Vec::new());
        }
        self.waiting = None;
        Some(std::mem::take(&mut self.end))
    }

    /// Sends these messages after the page that is on its way.
    pub(super) fn end_with(&mut self, messages: Vec<u8>) {
        self.end = messages;
    }

    /// Whether a page is on its way.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Requests the next page. `token` must be new.
    pub(super) fn go_on(&mut self, stages: &Stages, views: BmpViews, token: u64) -> Progress {
        match self.steps.pop_front() {
            None => Progress::End,
            Some(Step::Kept(up, after)) => self.kept(stages, up, after, token),
            Some(Step::Shard(family, logical, from)) => {
                self.shard(stages, views, (family, logical, from), token)
            }
        }
    }

    fn kept(
        &mut self,
        stages: &Stages,
        up: Arc<SessionUp>,
        after: Option<KeptPlace>,
        token: u64,
    ) -> Progress {
        let (peer, session): (PeerId, u32) = (up.info.id, up.info.session);
        // One reader has the session.
        for reader in &stages.readers {
            let page =
                reader.wait(move |reader| reader.monitor_page(peer, session, after, PAGE_ROUTES, token));
            if let Ok(Some(next)) = page {
                self.waiting = Some((token, 1));
                if next.is_some() {
                    self.steps.push_front(Step::Kept(up, next));
                    return Progress::Waiting;
                }
                return Progress::KeptEnd(up);
            }
        }
        // It ended, or its routes are not kept: the station has no such view of it.
        Progress::Waiting
    }

    fn shard(
        &mut self,
        stages: &Stages,
        views: BmpViews,
        (family, logical, from): (AfiSafi, LogicalShard, u32),
        token: u64,
    ) -> Progress {
        // No part of a logical shard moves between the pages of its owners. While one moves, the thread does not wait:
        // the shards must become idle for that, and so this thread must empty their queue.
        let Some(owners) = stages.owners.try_read() else {
            self.steps.push_front(Step::Shard(family, logical, from));
            return Progress::Waiting;
        };
        let request = PageRequest {
            token,
            logical,
            family,
            from,
            budget: PAGE_SLOTS,
            accepted: views.post_policy,
            best: views.loc_rib,
            mirror: views.adj_rib_out,
        };
        let (mut messages, mut next) = (0, None);
        for (_, shard) in owners.having(logical) {
            // A stage that has stopped ends the process.
            let Ok(page) = shard.monitor_page(request) else { continue };
            messages += 1 + page.workers;
            // Of two parts that move apart, the one that is behind decides: some routes come twice.
            next = [next, page.next].into_iter().flatten().min();
        }
        self.waiting = (messages > 0).then_some((token, messages));
        if let Some(from) = next {
            self.steps.push_front(Step::Shard(family, logical, from));
        }
        Progress::Waiting
    }
}
