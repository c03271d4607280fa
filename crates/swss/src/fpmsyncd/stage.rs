//! How far a route's last change is, and which answers of orchagent may still come.
//!
//! Only FIB suppression uses it. orchagent answers each row at most once, in their order, and sends
//! no answer for a row that it coalesced with the next one. An answer does not name its row, so
//! fpmsyncd counts answers against the rows that were handed over: the k-th is about the k-th row
//! *or a later one*.
//!
//! The client is notified of answers that count for announced rows, at most once for each. It is
//! not notified of a row that fpmsyncd wrote of its own accord: after Redis was lost, or because a
//! next-hop object changed. Such an answer may also have been for an announced row, when the two
//! coalesced. No other answer would come then, so the row is written once more ([`Owed`] decides
//! when).

use super::RouteRef;
use ribtide_prefix::{Map, shrink_if_sparse};

/// How far a route's last change is, in one byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stage(u8);

impl Stage {
    /// Rows that were handed over and not answered. The most that fit stand for any number from
    /// there on.
    const UNANSWERED: u8 = 0b111;
    /// It changed, and the row is not handed over yet.
    const CHANGED: u8 = 1 << 3;
    /// A client announced that change, and is to be notified of it.
    const ANNOUNCED: u8 = 1 << 4;
    /// The chip has the row that was handed over last; or the one before the change.
    const CONFIRMED: u8 = 1 << 5;
    /// A row of our own accord is unanswered.
    const OWN: u8 = 1 << 6;
    /// The row is one of before the start, and an answer to it may be under way.
    const KNOWN: u8 = 1 << 7;

    /// Of a route of which nothing is known.
    pub(super) const NEW: Stage = Stage(0);
    /// Of a route whose row is there from before the start.
    pub(super) const FOUND: Stage = Stage(Stage::KNOWN | Stage::OWN | 1);

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn with(self, flag: u8, on: bool) -> Stage {
        Stage(if on { self.0 | flag } else { self.0 & !flag })
    }

    fn unanswered(self) -> u8 {
        self.0 & Stage::UNANSWERED
    }

    /// It changes, because it was announced or withdrawn (`announced`), or of our own accord.
    pub(super) fn changed(self, announced: bool) -> Stage {
        self.with(Stage::CONFIRMED, false).with(Stage::CHANGED, true).announced(announced)
    }

    /// Its change is not handed over yet.
    pub(super) fn is_changed(self) -> bool {
        self.has(Stage::CHANGED)
    }

    /// The client that announced the change waits for its outcome, too, if `announced`.
    pub(super) fn announced(self, announced: bool) -> Stage {
        self.with(Stage::ANNOUNCED, announced || self.is_announced())
    }

    /// Whether a client waits for the outcome of the change.
    pub(super) fn is_announced(self) -> bool {
        self.has(Stage::ANNOUNCED)
    }

    /// There is nothing to hand over of its change.
    pub(super) fn unchanged(self) -> Stage {
        self.with(Stage::CHANGED | Stage::ANNOUNCED, false)
    }

    /// The chip has it as it was handed over last.
    pub(super) fn is_confirmed(self) -> bool {
        self.has(Stage::CONFIRMED) && !self.is_changed()
    }

    /// The chip has it as it was before the change that is not handed over yet.
    pub(super) fn was_confirmed(self) -> bool {
        self.has(Stage::CONFIRMED)
    }

    /// The stage in which another row is to be handed over, whatever the chip has.
    pub(super) fn unconfirmed(self) -> Stage {
        self.with(Stage::CONFIRMED, false)
    }

    /// A row was handed over since the start, and no answer confirmed it yet.
    pub(super) fn awaits_answer(self) -> bool {
        self.unanswered() > 0 && !self.has(Stage::CHANGED | Stage::CONFIRMED | Stage::KNOWN)
    }

    /// It is `next` from now on. `awaiting` counts the stages of which [`Stage::awaits_answer`] is
    /// true.
    pub(super) fn set(&mut self, next: Stage, awaiting: &mut usize) {
        *awaiting += usize::from(next.awaits_answer());
        *awaiting -= usize::from(self.awaits_answer());
        *self = next;
    }

    /// The row that was handed over last is the only one that is unanswered.
    pub(super) fn awaits_one_answer(self) -> bool {
        self.awaits_answer() && self.unanswered() == 1
    }

    /// The chip has the last row, as it is the one of before the start or no answer is under way;
    /// `None`: there may be another.
    pub(super) fn found_in_chip(self) -> Option<Stage> {
        let confirmed = self.with(Stage::UNANSWERED | Stage::OWN | Stage::KNOWN, false);
        (self.has(Stage::KNOWN) || !self.is_unanswered()).then(|| confirmed.with(Stage::CONFIRMED, true))
    }

    /// No answer comes to a row of before the start.
    pub(super) fn all_said(self) -> Stage {
        if self.has(Stage::KNOWN) {
            self.with(Stage::UNANSWERED | Stage::OWN | Stage::KNOWN, false)
        } else {
            self
        }
    }

    /// How many rows are unanswered, and whether they may be more, as no more are counted.
    pub(super) fn count_unanswered(self) -> (u8, bool) {
        (self.unanswered(), self.unanswered() == Stage::UNANSWERED)
    }

    /// An answer may come.
    pub(super) fn is_unanswered(self) -> bool {
        self.unanswered() > 0
    }

    /// This, after the client that waits for the change was notified.
    pub(super) fn notified(self) -> Stage {
        self.with(Stage::ANNOUNCED, false)
    }

    /// This stage with the change of another that is not handed over yet, and whether a client
    /// waits for its outcome.
    pub(super) fn with_change_of(self, other: Stage) -> Stage {
        let change = Stage::CHANGED | Stage::ANNOUNCED;
        Stage(self.0 & !change | other.0 & change)
    }

    /// The unanswered rows as far as the stage counts them: rows of our own accord count as the
    /// oldest.
    fn writes(self) -> Writes {
        let own = self.has(Stage::OWN) && self.unanswered() > 0;
        (0..self.unanswered()).fold(Writes::NONE, |writes, n| writes.and(n > 0 || !own))
    }

    fn set_writes(self, writes: Writes) -> Stage {
        let count = writes.len().min(u32::from(Stage::UNANSWERED)) as u8;
        let own = writes.has_own();
        Stage(self.with(Stage::UNANSWERED, false).0 | count).with(Stage::OWN, own)
    }
}

/// Rows that were handed over and not answered, the oldest in the lowest bit: 1 for one that was
/// announced, 0 for one of our own accord; and above them a 1. It holds 63; of more the oldest is
/// left out.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Writes(u64);

impl Writes {
    const NONE: Writes = Writes(1);

    fn len(self) -> u32 {
        63 - self.0.leading_zeros()
    }

    fn and(self, announced: bool) -> Writes {
        let kept = if self.0.leading_zeros() == 0 { Writes(self.0 >> 1) } else { self };
        let end = 1 << kept.len();
        Writes(kept.0 & !end | u64::from(announced) << kept.len() | end << 1)
    }

    /// Without the oldest, and whether that was announced.
    fn answered(self) -> (Writes, bool) {
        (Writes(self.0 >> 1), self.0 & 1 == 1)
    }

    fn announced(self) -> u32 {
        self.0.count_ones() - 1
    }

    fn has_own(self) -> bool {
        self.announced() < self.len()
    }
}

/// What an answer counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// None was to come.
    Nothing,
    /// The answer to a row that was announced.
    Announced,
    /// The answer to one of our own accord.
    Own {
        /// It may have been that to an announced one too, and the last.
        again: bool,
    },
}

/// An answer that takes longer than this does not come any more, in seconds.
const FORGOTTEN: u32 = 600;
/// The fewest routes that are worth looking through.
const CROWD: usize = 1024;

/// Routes with several unanswered rows, some of which are of our own accord: their order. A single
/// one is in the [`Stage`]. A deleted route has its state here alone, since its answers may come to
/// the route that replaces it.
pub(super) struct Owed {
    routes: Map<RouteRef, (Writes, u32)>,
    /// At so many, they are looked through for those that are forgotten.
    crowd: usize,
    /// Seconds.
    now: u32,
}

impl Default for Owed {
    fn default() -> Self {
        Owed { routes: Map::default(), crowd: CROWD, now: 0 }
    }
}

impl Owed {
    pub(super) fn tick(&mut self, now_ms: u64) {
        self.now = (now_ms / 1000) as u32;
    }

    /// A row of a route is handed over: one that was announced (`announced`), or of our own accord.
    pub(super) fn wrote(&mut self, at: RouteRef, stage: Stage, announced: bool) -> Stage {
        let writes = self.take(at).unwrap_or_else(|| stage.writes()).and(announced);
        self.put(at, writes, stage.unchanged().with(Stage::KNOWN, false))
    }

    /// An answer about a route came.
    pub(super) fn answered(&mut self, at: RouteRef, stage: Stage) -> (Stage, Answered) {
        if stage.unanswered() == 0 {
            return (stage, Answered::Nothing);
        }
        if !stage.has(Stage::OWN) {
            // The most that can be counted are never fewer.
            let left = stage.unanswered() - u8::from(stage.unanswered() < Stage::UNANSWERED);
            let stage = Stage(stage.0 & !Stage::UNANSWERED | left);
            return (if left == 0 { stage.with(Stage::CONFIRMED, true) } else { stage }, Answered::Announced);
        }
        let (writes, announced) = self.take(at).unwrap_or_else(|| stage.writes()).answered();
        let stage = self.put(at, writes, stage.with(Stage::KNOWN, false));
        let none = writes == Writes::NONE;
        let stage = if none { stage.with(Stage::CONFIRMED, true) } else { stage };
        (stage, if announced { Answered::Announced } else { Answered::Own { again: writes.announced() > 0 } })
    }

    /// The route is deleted, and its deletion handed over.
    pub(super) fn deleted(&mut self, at: RouteRef, stage: Stage) {
        if stage.unanswered() == 0 || self.routes.contains_key(&at) {
            return;
        }
        if self.routes.len() >= self.crowd {
            self.routes.retain(|_, (_, at)| self.now.saturating_sub(*at) < FORGOTTEN);
            shrink_if_sparse(&mut self.routes);
            self.crowd = CROWD.max(2 * self.routes.len());
        }
        self.routes.insert(at, (stage.writes(), self.now));
    }

    /// What an answer to a deleted route changes.
    pub(super) fn answered_deleted(&mut self, at: RouteRef) {
        if let Some(writes) = self.take(at) {
            let (left, _) = writes.answered();
            if left != Writes::NONE {
                self.routes.insert(at, (left, self.now));
            }
        }
    }

    /// How far a route is that comes, and may have been there before.
    pub(super) fn came(&mut self, at: RouteRef) -> Stage {
        self.take(at).map_or(Stage::NEW, |writes| self.put(at, writes, Stage::NEW))
    }

    /// How many rows that were announced are unanswered.
    pub(super) fn announced(&self, at: RouteRef, stage: Stage) -> u32 {
        self.routes.get(&at).map_or_else(|| stage.writes(), |(writes, _)| *writes).announced()
    }

    fn take(&mut self, at: RouteRef) -> Option<Writes> {
        if self.routes.is_empty() {
            return None;
        }
        let taken = self.routes.remove(&at).map(|(writes, _)| writes);
        shrink_if_sparse(&mut self.routes);
        taken
    }

    fn put(&mut self, at: RouteRef, writes: Writes, stage: Stage) -> Stage {
        if writes.has_own() && writes.len() > 1 {
            self.routes.insert(at, (writes, self.now));
        }
        stage.set_writes(writes)
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stage({:#010b})", self.0)
    }
}
