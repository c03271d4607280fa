//! The pending changes of a table by key: `m_toSync` of `orchagent/orch.h`, at most a DEL and then
//! a SET for each key.

use crate::row::{Change, Row};
use std::collections::BTreeMap;

/// The pending change of one key.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Pending<R> {
    /// Delete the present row first.
    pub(super) del: bool,
    /// Then set this row.
    pub(super) set: Option<R>,
}

impl<R: Row> Pending<R> {
    /// One change; `None` deletes the row.
    pub(super) fn new(row: Option<R>) -> Self {
        Pending { del: row.is_none(), set: row }
    }

    /// Adds a later change. A DEL replaces all earlier changes. A SET coalesces with a pending SET,
    /// and follows a pending DEL.
    pub(super) fn add(&mut self, row: Option<R>) {
        match (row, &mut self.set) {
            (None, _) => *self = Pending { del: true, set: None },
            (Some(row), Some(set)) => set.merge(row),
            (Some(row), none) => *none = Some(row),
        }
    }
}

/// The pending changes of one table, in key order, so that equal input has equal results.
pub(super) struct ToSync<R: Row>(BTreeMap<R::Key, Pending<R>>);

impl<R: Row> Default for ToSync<R> {
    fn default() -> Self {
        ToSync(BTreeMap::new())
    }
}

impl<R: Row> ToSync<R> {
    /// Adds a change.
    pub(super) fn add(&mut self, change: Change<R>) {
        match self.0.get_mut(&change.key) {
            Some(pending) => pending.add(change.row),
            None => drop(self.0.insert(change.key, Pending::new(change.row))),
        }
    }

    /// Takes all changes.
    pub(super) fn take(&mut self) -> BTreeMap<R::Key, Pending<R>> {
        std::mem::take(&mut self.0)
    }

    /// Every key with its pending change.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&R::Key, &Pending<R>)> {
        self.0.iter()
    }

    /// How many keys have a pending change.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::RouteRow;

    fn row(text: &str) -> RouteRow {
        RouteRow::from_fields(&mut text.split(' ').filter_map(|pair| pair.split_once('='))).unwrap()
    }

    /// SONiC's `Consumer::addToSync` (`orchagent/orch.cpp`), case by case: SET or DEL on each
    /// pending change.
    #[test]
    fn pending_add_coalesces_as_add_to_sync() {
        let old = || row("nexthop=1.1.1.1 ifname=a");
        let new = || row("nexthop=2.2.2.2 protocol=bgp");
        let both = || row("nexthop=2.2.2.2 ifname=a protocol=bgp");
        let del = || Pending { del: true, set: None };
        let set = || Pending { del: false, set: Some(old()) };
        let del_set = || Pending { del: true, set: Some(old()) };

        assert_eq!(Pending::<RouteRow>::new(None), del());
        assert_eq!(Pending::new(Some(old())), set());
        for mut pending in [set(), del(), del_set()] {
            pending.add(None);
            assert_eq!(pending, del());
        }
        for (mut pending, wanted) in [
            (set(), Pending { del: false, set: Some(both()) }),
            (del(), Pending { del: true, set: Some(new()) }),
            (del_set(), Pending { del: true, set: Some(both()) }),
        ] {
            pending.add(Some(new()));
            assert_eq!(pending, wanted);
        }
    }
}
