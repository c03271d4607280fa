//! Which prefix sets have a route among the best paths: what conditional advertisement and conditional
//! default routes depend on.

use ribtide_policy::{Named, PrefixSet};
use std::sync::Arc;

/// The known presence of routes. A set that is not in it is not known.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Presence(Vec<(Arc<Named<PrefixSet>>, bool)>);

impl Presence {
    /// Of these sets, each with whether it has a route.
    pub fn new(sets: Vec<(Arc<Named<PrefixSet>>, bool)>) -> Presence {
        Presence(sets)
    }

    /// Whether a set has a route; `None`: not known.
    pub fn of(&self, set: &Named<PrefixSet>) -> Option<bool> {
        self.0.iter().find(|(known, _)| **known == *set).map(|(_, present)| *present)
    }
}
