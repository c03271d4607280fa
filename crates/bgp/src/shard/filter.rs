//! Conditions of queries about paths, evaluated where the paths are: a page of a filtered list costs
//! the caller only the paths that fit.

use super::{Core, Path, Shard};
use crate::filter::FilterMemo;
use crate::peer::PeerId;
use crate::shard::paths::Part;
use crate::shard::query::{PathView, RouteView, Standing};
use ribtide_policy::AttributeFilter;
use ribtide_prefix::{BgpFamily, Prefix};
use ribtide_rpki::{Origin, Validity, Vrps};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::code;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Conditions on a path, which all must hold; the default has none.
#[derive(Clone, Debug, Default)]
pub struct PathFilter {
    /// On its attributes.
    pub attributes: AttributeFilter,
    /// The peer that sent it.
    pub peer: Option<PeerId>,
    /// Its state.
    pub state: Option<PathState>,
    /// Its validation state, with the table and the local AS.
    pub validity: Option<(Validity, Arc<Vrps>, u32)>,
    /// The seconds of the router's clock in which it changed, both included. A path whose time is not
    /// known fits none.
    pub changed: Option<(u32, u32)>,
}

/// A state of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// It is the best path.
    Best,
    /// It is usable, and another is best.
    NotBest,
    /// It shares traffic with the best path.
    Multipath,
    /// It is the backup.
    Backup,
    /// Its next hop cannot be reached.
    Hidden,
    /// Its neighbour restarts (RFC 4724).
    Stale,
    /// It is the best path, and waits for confirmation by dataplanes.
    Waiting,
    /// It is the best path, and the FIB does not have it.
    Blocked,
    /// It is the best path, and an aggregate suppresses it.
    Suppressed,
}

impl PathState {
    /// All of them.
    pub const ALL: [PathState; 9] = [
        PathState::Best,
        PathState::NotBest,
        PathState::Multipath,
        PathState::Backup,
        PathState::Hidden,
        PathState::Stale,
        PathState::Waiting,
        PathState::Blocked,
        PathState::Suppressed,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PathState::Best => "best",
            PathState::NotBest => "not-best",
            PathState::Multipath => "multipath",
            PathState::Backup => "backup",
            PathState::Hidden => "hidden",
            PathState::Stale => "stale",
            PathState::Waiting => "waiting",
            PathState::Blocked => "blocked",
            PathState::Suppressed => "suppressed",
        }
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PathState {
    type Err = ();

    fn from_str(text: &str) -> Result<PathState, ()> {
        PathState::ALL.into_iter().find(|state| state.name() == text).ok_or(())
    }
}

impl PathFilter {
    /// Whether there is no condition.
    pub fn is_empty(&self) -> bool {
        let PathFilter { attributes, peer, state, validity, changed } = self;
        attributes.is_empty() && peer.is_none() && state.is_none() && validity.is_none() && changed.is_none()
    }
}

impl Shard {
    /// Those of the paths of exactly this prefix that fit; `None` if none does. The state of each is that among all
    /// paths of the prefix.
    pub fn lookup_filtered<F: BgpFamily>(
        &self,
        prefix: Prefix<F>,
        filter: &PathFilter,
        memo: &mut FilterMemo,
    ) -> Option<RouteView<F>> {
        let route = self.find(prefix)?;
        let core = &self.core;
        let mut fits = |path: &Path, stamp| {
            filter.is_of_time(core.second_of(stamp)) && core.may_fit(*path, filter, memo)
        };
        // Most prefixes of a selective filter end here, without a copy.
        let mut paths = route.paths(&core.paths).iter().zip(route.stamps(&core.paths));
        if !paths.any(|(path, stamp)| fits(path, stamp)) {
            return None;
        }
        let mut view = core.view(route);
        let (standing, suppressed) = (view.standing, !view.suppressed_by.is_empty());
        view.paths.retain(|path| filter.fits(prefix, path, standing, suppressed, memo));
        (!view.paths.is_empty()).then_some(view)
    }
}

impl Core {
    /// Whether a path fits as far as its attributes and its session decide.
    fn may_fit(&self, path: Path, filter: &PathFilter, memo: &mut FilterMemo) -> bool {
        filter.peer.is_none_or(|peer| self.sessions.get(path.session).info.id == peer)
            && memo.fits(&filter.attributes, self.attrs.get(path.attrs))
    }
}

impl PathFilter {
    fn is_of_time(&self, changed: Option<u32>) -> bool {
        self.changed.is_none_or(|(from, to)| changed.is_some_and(|at| (from..=to).contains(&at)))
    }

    fn fits<F: BgpFamily>(
        &self,
        prefix: Prefix<F>,
        path: &PathView,
        standing: Standing,
        suppressed: bool,
        memo: &mut FilterMemo,
    ) -> bool {
        let is_in = |state| match state {
            PathState::Best => path.best,
            PathState::NotBest => !path.best && path.cost.is_ok(),
            PathState::Multipath => path.part == Part::Member,
            PathState::Backup => path.part == Part::Backup,
            PathState::Hidden => path.cost.is_err(),
            PathState::Stale => path.stale,
            PathState::Waiting => path.best && matches!(standing, Standing::Waiting { .. }),
            PathState::Blocked => path.best && standing == Standing::Blocked,
            PathState::Suppressed => path.best && suppressed,
        };
        let is_valid = |(wanted, vrps, local_asn): &(Validity, Arc<Vrps>, u32)| {
            let as_path = AsPath::new(path.attrs.value(code::AS_PATH).unwrap_or_default());
            vrps.validate(prefix.ip(), Origin::of(as_path, *local_asn)) == *wanted
        };
        self.peer.is_none_or(|peer| path.peer.id == peer)
            && self.is_of_time(path.changed)
            && self.state.is_none_or(is_in)
            && memo.fits(&self.attributes, &path.attrs)
            && self.validity.as_ref().is_none_or(is_valid)
    }
}
