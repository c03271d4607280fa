//! Maximum prefixes of a session, per family: the prefixes that import accepted, counted against a
//! limit.
//!
//! The reader keeps the accepted prefixes of a limited family as a set, so that a route that
//! replaces another counts once. A reader has all routes of a session, in order, so neither the
//! number of shards nor their speed changes a decision. With actions other than
//! [`LimitAction::Warn`] the limit bounds the set. A family without a limit has no set.
//!
//! In a session with add-path each path counts, as in FRR and BIRD: it is paths that take memory.
//!
//! Routes beyond the limit count as withdrawn, as other refused routes do: a session whose limit is
//! new may have sent the same prefixes before.

use super::{SessionNlri, ShardBatches};
use crate::attr::AttrSet;
use crate::peer::{PeerInfo, PrefixLimits};
use ribtide_prefix::{AfiSafi, BgpFamily, Prefix, Set, per_bgp_family, with_spare};
use ribtide_wire::bgp::nlri::PathPrefix;
use std::fmt;

/// The limits of the accepted prefixes of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxPrefixes {
    /// The limit of each family.
    pub limits: PrefixLimits,
    /// What happens beyond it.
    pub action: LimitAction,
    /// The percentage of the limit at which [`LimitCrossed::Warning`] is reported, 1 to 100.
    pub warning: u8,
}

/// What happens to routes beyond a limit. Displays as in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitAction {
    /// They are accepted.
    Warn,
    /// The session ends.
    Restart,
    /// They are not used.
    Discard,
}

impl fmt::Display for LimitAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitAction::Warn => "warn",
            LimitAction::Restart => "restart",
            LimitAction::Discard => "discard",
        })
    }
}

/// A limit was reached. Reported once, until the count has fallen a twentieth of the limit below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitEvent {
    /// The family.
    pub family: AfiSafi,
    /// Which limit.
    pub crossed: LimitCrossed,
    /// Accepted prefixes.
    pub count: u32,
    /// The limit.
    pub max: u32,
}

/// What was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitCrossed {
    /// The percentage that is to be reported.
    Warning,
    /// More prefixes came than the limit allows.
    Limit(LimitAction),
}

impl LimitEvent {
    /// Whether more prefixes came than the limit.
    pub fn is_exceeded(&self) -> bool {
        matches!(self.crossed, LimitCrossed::Limit(_))
    }

    /// Whether the session must end.
    pub fn ends_session(&self) -> bool {
        self.crossed == LimitCrossed::Limit(LimitAction::Restart)
    }
}

/// The prefixes of a family against its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixCount {
    /// Accepted prefixes.
    pub count: u32,
    /// The limit.
    pub max: u32,
}

/// The accepted prefixes of a family with a limit.
#[derive(Debug)]
pub(super) struct Accepted<F: BgpFamily> {
    prefixes: Set<Prefix<F>>,
    /// Instead of them, where the session has path identifiers.
    paths: Set<PathPrefix<F>>,
    max: usize,
    action: LimitAction,
    /// The count at which a warning is due.
    warn_at: usize,
    /// How far the count must fall below a limit until that is reported again.
    hysteresis: usize,
    /// Whether the warning was reported.
    warned: bool,
    /// Whether the limit was reported.
    exceeded: bool,
    /// Not yet taken by [`Accepted::take_events`].
    events: Vec<LimitEvent>,
}

per_bgp_family! {
    /// The accepted prefixes, where the family has a limit.
    #[derive(Debug)]
    pub(super) struct AcceptedPrefixes<F> = Option<Accepted<F>>;
}

impl<F: BgpFamily> Accepted<F> {
    /// No prefix yet; `None` if `settings` has no limit of this family.
    pub(super) fn new(settings: Option<MaxPrefixes>) -> Option<Accepted<F>> {
        let MaxPrefixes { limits, action, warning } = settings?;
        let max = limits[F::ID]?;
        let warn_at = (u64::from(max) * u64::from(warning)).div_ceil(100);
        Some(Accepted {
            prefixes: Set::default(),
            paths: Set::default(),
            max: max as usize,
            action,
            warn_at: warn_at as usize,
            hysteresis: max as usize / 20,
            warned: false,
            exceeded: false,
            events: Vec::new(),
        })
    }

    pub(super) fn count(&self) -> PrefixCount {
        PrefixCount { count: self.len() as u32, max: self.max as u32 }
    }

    fn len(&self) -> usize {
        self.prefixes.len() + self.paths.len()
    }

    /// The set of a session without path identifiers.
    pub(super) fn prefixes(&mut self) -> &mut Set<Prefix<F>> {
        &mut self.prefixes
    }

    /// The set of a session with them.
    pub(super) fn paths(&mut self) -> &mut Set<PathPrefix<F>> {
        &mut self.paths
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn take_events(&mut self) -> Vec<LimitEvent> {
        std::mem::take(&mut self.events)
    }

    /// Shrinks the set to its contents. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        self.prefixes.shrink_to(with_spare(self.prefixes.len()));
        self.paths.shrink_to(with_spare(self.paths.len()));
    }

    /// Counts a route; returns whether the limit permits it.
    fn admit<N: SessionNlri<Family = F>>(&mut self, route: N) -> bool {
        let any = self.action == LimitAction::Warn;
        let max = self.max;
        let routes = N::accepted(self);
        if any || routes.len() < max {
            routes.insert(route);
            return true;
        }
        routes.contains(&route)
    }

    /// Notes what a run of announcements reached; `beyond` of its prefixes had no room.
    fn rose(&mut self, beyond: usize) {
        let count = self.len();
        if count >= self.warn_at && !std::mem::replace(&mut self.warned, true) {
            self.report(LimitCrossed::Warning);
        }
        if (beyond > 0 || count > self.max) && !std::mem::replace(&mut self.exceeded, true) {
            self.report(LimitCrossed::Limit(self.action));
        }
    }

    /// Notes withdrawals.
    fn fell(&mut self) {
        let count = self.len() + self.hysteresis;
        self.warned &= count >= self.warn_at;
        self.exceeded &= count >= self.max;
    }

    fn report(&mut self, crossed: LimitCrossed) {
        let PrefixCount { count, max } = self.count();
        self.events.push(LimitEvent { family: F::ID, crossed, count, max });
    }
}

/// The routes of a session on their way to the shards, within the limit of the family.
pub(super) struct Admission<'a, N: SessionNlri> {
    pub(super) info: &'a PeerInfo,
    pub(super) accepted: Option<&'a mut Accepted<N::Family>>,
    pub(super) out: &'a mut ShardBatches,
}

impl<N: SessionNlri> Admission<'_, N> {
    /// Adds withdrawn prefixes. Returns their number.
    #[inline(always)]
    pub(super) fn withdraw(&mut self, prefixes: impl Iterator<Item = N>) -> u64 {
        match &mut self.accepted {
            None => self.out.extend(self.info, None, prefixes),
            Some(accepted) => accepted.withdraw(self.info, prefixes, self.out),
        }
    }

    /// Adds withdrawn prefixes, often none. Returns their number.
    #[inline(always)]
    pub(super) fn withdraw_all(&mut self, prefixes: Vec<N>) -> u64 {
        if prefixes.is_empty() { 0 } else { self.withdraw(prefixes.into_iter()) }
    }

    /// Adds prefixes that were announced with `attrs`. Returns how many the limit permits, and how
    /// many it does not; these count as withdrawn.
    #[inline(always)]
    pub(super) fn announce(&mut self, attrs: &AttrSet, prefixes: impl Iterator<Item = N>) -> (u64, u64) {
        match &mut self.accepted {
            None => (self.out.extend(self.info, Some(attrs), prefixes), 0),
            Some(accepted) => accepted.announce(self.info, attrs, prefixes, self.out),
        }
    }
}

/// The same for a family with a limit; apart, so that families without one stay as fast.
impl<F: BgpFamily> Accepted<F> {
    #[inline(never)]
    fn withdraw<N: SessionNlri<Family = F>>(
        &mut self,
        info: &PeerInfo,
        prefixes: impl Iterator<Item = N>,
        out: &mut ShardBatches,
    ) -> u64 {
        let accepted = N::accepted(self);
        let uncounted = prefixes.inspect(|prefix| {
            accepted.remove(prefix);
        });
        let count = out.extend(info, None, uncounted);
        self.fell();
        count
    }

    #[inline(never)]
    fn announce<N: SessionNlri<Family = F>>(
        &mut self,
        info: &PeerInfo,
        attrs: &AttrSet,
        prefixes: impl Iterator<Item = N>,
        out: &mut ShardBatches,
    ) -> (u64, u64) {
        let mut beyond = Vec::new();
        let admitted = prefixes.filter(|prefix| {
            let admitted = self.admit(*prefix);
            if !admitted {
                beyond.push(*prefix);
            }
            admitted
        });
        let count = out.extend(info, Some(attrs), admitted);
        self.rose(beyond.len());
        let beyond = if beyond.is_empty() { 0 } else { out.extend(info, None, beyond.into_iter()) };
        (count, beyond)
    }
}
