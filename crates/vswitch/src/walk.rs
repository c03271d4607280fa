//! A walk through the switch's routes and labels in pieces, while the tables change. A complete
//! walk meets every entry that exists throughout.
//!
//! Its position is a place of the tables: a /24 of IPv4, a part of the IPv6 routes, a label. No
//! table that grows or shrinks moves an entry to another place.

use crate::audit::EntryKey;
use crate::switch::VirtualSwitch;
use ribtide_prefix::AnyPrefix;
use ribtide_swss::sai::Oid;

/// Empty places of one piece, at most: about a millisecond.
const STEPS: usize = 1 << 18;

/// The position of a walk: a place of a virtual router (or of the next one, if that is removed), or
/// a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the type says it")]
pub enum Cursor {
    Route(Oid, usize),
    Label(u32),
}

impl Default for Cursor {
    /// The beginning.
    fn default() -> Self {
        Cursor::Route(Oid::NULL, 0)
    }
}

/// One piece of a walk.
pub(crate) struct Walk {
    router: Oid,
    pub(crate) met: Vec<EntryKey>,
    enough: usize,
    steps: usize,
}

impl Walk {
    pub(crate) fn new(enough: usize) -> Walk {
        Walk { router: Oid::NULL, met: Vec::new(), enough: enough.max(1), steps: 0 }
    }

    /// Whether the piece may continue; checked before each step.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.steps += 1;
        self.met.len() < self.enough && self.steps <= STEPS
    }

    /// Adds a route of the current virtual router.
    pub(crate) fn meets(&mut self, prefix: AnyPrefix) {
        self.met.push(EntryKey::Route(self.router, prefix));
    }
}

impl VirtualSwitch {
    /// The routes and labels from a position on, about `enough`, and the next position; fewer after
    /// many empty places.
    pub fn walk(&self, from: Cursor, enough: usize) -> (Vec<EntryKey>, Option<Cursor>) {
        let mut walk = Walk::new(enough);
        let label = match from {
            Cursor::Label(label) => label,
            Cursor::Route(router, place) => {
                let mut routers: Vec<_> = self.routers.iter().filter(|(oid, _)| **oid >= router).collect();
                routers.sort_unstable_by_key(|(oid, _)| **oid);
                for (oid, table) in routers {
                    walk.router = *oid;
                    if let Some(place) = table.walk(if *oid == router { place } else { 0 }, &mut walk) {
                        return (walk.met, Some(Cursor::Route(*oid, place)));
                    }
                }
                0
            }
        };
        for label in self.labels.range(label..).map(|(label, _)| *label) {
            if !walk.goes_on() {
                return (walk.met, Some(Cursor::Label(label)));
            }
            walk.met.push(EntryKey::Label(label));
        }
        (walk.met, None)
    }
}
