//! Every row once more, some at a time: for an orchagent that is new, or an APPL_DB that lost some.
//!
//! What takes rows takes a while for a full table. What waits meanwhile are the destinations, packed; a row is looked up when it
//! is its turn, so it is as it is then, and one that changed has gone its own way.

use super::{FpmOut, Fpmsyncd, RouteRef};
use crate::row::{Change, RouteKey, pack_prefix, unpack_prefix};

/// Routes of which the rows are to be said again.
#[derive(Debug)]
pub struct Again {
    /// Of each VRF its number and the destinations.
    vrfs: Vec<(u32, Vec<u8>)>,
    /// How many bytes of the last one's are behind us.
    at: usize,
}

/// What a row that is said again says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    /// What any row says: who takes it answers it.
    New,
    /// To an orchagent of ours: no news, unless it `missed` what it was told before.
    Again {
        /// It did.
        missed: bool,
    },
}

impl Again {
    fn next(&mut self) -> Option<RouteRef> {
        loop {
            let (vrf, bytes) = self.vrfs.last()?;
            let mut rest = bytes.get(self.at..).unwrap_or_default();
            if let Some(prefix) = unpack_prefix(&mut rest) {
                self.at = bytes.len() - rest.len();
                return Some((*vrf, prefix));
            }
            self.vrfs.pop();
            self.at = 0;
        }
    }
}

impl Fpmsyncd {
    /// All routes that there are now.
    pub fn all_again(&self) -> Again {
        let packed = |(vrf, of): (u32, &super::Vrf)| {
            let mut bytes = Vec::new();
            of.routes.for_each(|prefix, _| pack_prefix(prefix, &mut bytes));
            (vrf, bytes)
        };
        Again { vrfs: (0..).zip(&self.vrfs).map(packed).collect(), at: 0 }
    }

    /// Appends the rows of the next routes, `count` of them at most, to be written over whatever is there. False when there are
    /// no more. What changed must have been taken.
    pub fn some_again(&mut self, again: &mut Again, says: Says, count: usize, out: &mut FpmOut) -> bool {
        let before = out.routes.len();
        while out.routes.len() - before < count {
            let Some(at) = again.next() else { return false };
            let Some(entry) = self.entry(at) else { continue };
            let (stage, suppress) = (entry.stage, self.config.suppress);
            let Some(row) = self.row_of(at, entry) else { continue };
            let of = &mut self.vrfs[at.0 as usize];
            // An answer that is awaited may have been missed.
            let key = match says {
                Says::Again { missed } if !(missed && suppress && stage.awaits_answer()) => {
                    RouteKey::Again { vrf: of.name.clone(), prefix: at.1 }
                }
                _ => {
                    if suppress {
                        let next = self.owed.wrote(at, stage, false);
                        of.routes.entry(at.1).stage.set(next, &mut self.awaiting);
                    }
                    RouteKey::new(of.name.clone(), at.1)
                }
            };
            out.routes.push(Change { key, row: Some(self.route_row(row)), reshaped: true });
        }
        true
    }
}
