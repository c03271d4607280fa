//! Resends every row in bounded turns, to a new orchagent or to an APPL_DB that may have lost rows.
//!
//! A resend keeps only the packed destinations. Each turn looks up the current rows, so a row that changed meanwhile is
//! sent as it is now.

use super::{FpmOut, Fpmsyncd, RouteRef};
use crate::row::{Change, RouteKey, pack_prefix, unpack_prefix};

/// The destinations whose rows are still to be sent.
#[derive(Debug)]
pub struct Resend {
    /// Of each VRF its number and its packed destinations.
    vrfs: Vec<(u32, Vec<u8>)>,
    /// How many bytes of the last one's are behind us.
    at: usize,
}

/// What a resent row means to orchagent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResendKind {
    /// The same as a changed row: orchagent sends a response.
    AsNew,
    /// To ribtide's orchagent only: the row has not changed ([`RouteKey::Resent`]).
    Unchanged {
        /// orchagent may have missed rows, so a row whose response is awaited is sent as new.
        missed: bool,
    },
}

impl Resend {
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
    /// A resend of all current routes.
    pub fn resend_all(&self) -> Resend {
        let packed = |(vrf, of): (u32, &super::Vrf)| {
            let mut bytes = Vec::new();
            of.routes.for_each(|prefix, _| pack_prefix(prefix, &mut bytes));
            (vrf, bytes)
        };
        // Rows of VNETs go through Redis, with those of the other tables.
        let vrfs = (0..).zip(&self.vrfs).filter(|(_, of)| !of.is_vnet);
        Resend { vrfs: vrfs.map(packed).collect(), at: 0 }
    }

    /// Appends the rows of the next routes, at most `count`, each of which replaces the row that is there. Returns false
    /// after the last one. The caller must have taken all changes.
    pub fn next_resent(
        &mut self,
        resend: &mut Resend,
        kind: ResendKind,
        count: usize,
        out: &mut FpmOut,
    ) -> bool {
        let before = out.routes.len();
        while out.routes.len() - before < count {
            let Some(at) = resend.next() else { return false };
            let Some(entry) = self.entry(at) else { continue };
            let (stage, suppress) = (entry.stage, self.config.suppress);
            let Some(row) = self.row_of(at, entry) else { continue };
            let of = &mut self.vrfs[at.0 as usize];
            // An answer that is awaited may have been missed.
            let key = match kind {
                ResendKind::Unchanged { missed } if !(missed && suppress && stage.awaits_answer()) => {
                    RouteKey::Resent { vrf: of.name.clone(), prefix: at.1 }
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
