//! Where a route is in fpmsyncd: its row, and what its last change waits for.

use super::{Cause, Fpmsyncd};
use crate::row::RouteRow;
use ribtide_prefix::AnyPrefix;

/// What fpmsyncd knows of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteState {
    /// The row that APPL_DB is to have of it; `None` when it is to have none.
    pub row: Option<RouteRow>,
    /// What it waits for; `None` when fpmsyncd has nothing more to do.
    pub waiting: Option<Waiting>,
    /// With FIB suppression: orchagent confirmed that the chip has that row.
    pub confirmed: bool,
}

/// What a route waits for. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// The next-hop object of this number.
    Object(u32),
    /// The name of the interface of this index.
    Interface(u32),
    /// To be handed over: its turn, or room for it.
    Turn,
    /// With FIB suppression: an answer of orchagent to each row that was handed over; to so many
    /// none came, or, where `more` is true, to more. One that was refused has none, nor has one
    /// that orchagent coalesced with a later one.
    Answer {
        /// How many.
        rows: u8,
        /// That is as far as they are counted.
        more: bool,
    },
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiting::Object(id) => write!(f, "next-hop object {id}, which it resolves to, was not announced"),
            Waiting::Interface(ifindex) => {
                write!(f, "interface {ifindex}, which a next hop of it leaves by, has no name yet")
            }
            Waiting::Turn => f.write_str("its change is not handed over yet"),
            Waiting::Answer { rows, more } => {
                let has = match (rows, more) {
                    (1, false) => "one of the rows handed over has no answer: it is".into(),
                    (rows, more) => {
                        let or_more = if *more { " or more" } else { "" };
                        format!("{rows}{or_more} of the rows handed over have no answer: each is")
                    }
                };
                write!(f, "{has} still to come, or was refused or coalesced with a later one, and gets none")
            }
        }
    }
}

impl Fpmsyncd {
    /// What is known of a route; `None` when no client announces it and nothing of it is left to be
    /// handed over. `vrf`: `None` is the default one.
    pub fn explain(&self, vrf: Option<&str>, prefix: AnyPrefix) -> Option<RouteState> {
        let at = (self.find_vrf(vrf)?, prefix);
        let entry = self.entry(at)?;
        let awaited = entry.source.and_then(|source| self.awaited(source));
        let waiting = match awaited {
            Some(Cause::WaitsForInterface(ifindex)) => Some(Waiting::Interface(ifindex)),
            Some(Cause::Waits(id)) => Some(Waiting::Object(id)),
            _ if entry.stage.is_changed() => Some(Waiting::Turn),
            _ if self.suppresses_in(at.0) && entry.stage.awaits_answer() => {
                let (rows, more) = entry.stage.count_unanswered();
                Some(Waiting::Answer { rows, more })
            }
            _ => None,
        };
        let row = self.row_of(at, entry).map(|row| self.route_row(row));
        Some(RouteState { row, waiting, confirmed: self.config.suppress && entry.stage.is_confirmed() })
    }
}
