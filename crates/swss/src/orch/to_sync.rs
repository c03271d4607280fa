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
    /// No field of an earlier row stays.
    pub(super) replaces: bool,
}

impl<R: Row> Pending<R> {
    /// One change; `None` deletes the row. `replaces`: [`Change::reshaped`].
    pub(super) fn new(row: Option<R>, replaces: bool) -> Self {
        Pending { del: row.is_none(), replaces: replaces || row.is_none(), set: row }
    }

    /// Adds a later change. A DEL replaces all earlier changes. A SET coalesces with a pending SET
    /// unless it replaces it, and follows a pending DEL.
    pub(super) fn add(&mut self, row: Option<R>, replaces: bool) {
        match (row, &mut self.set) {
            (None, _) => *self = Pending::new(None, true),
            (Some(row), Some(set)) if !replaces => set.merge(row),
            (Some(row), set) => *set = Some(row),
        }
        self.replaces |= replaces;
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
            Some(pending) => pending.add(change.row, change.reshaped),
            None => drop(self.0.insert(change.key, Pending::new(change.row, change.reshaped))),
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

    /// Whether a key has a pending change.
    pub(super) fn contains(&self, key: &R::Key) -> bool {
        self.0.contains_key(key)
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
        let del = || Pending { del: true, set: None, replaces: true };
        let set = || Pending { del: false, set: Some(old()), replaces: false };
        let del_set = || Pending { set: Some(old()), ..del() };

        assert_eq!(Pending::<RouteRow>::new(None, false), del());
        assert_eq!(Pending::new(Some(old()), false), set());
        for mut pending in [set(), del(), del_set()] {
            pending.add(None, false);
            assert_eq!(pending, del());
        }
        for (mut pending, wanted) in [
            (set(), Pending { set: Some(both()), ..set() }),
            (del(), Pending { set: Some(new()), ..del() }),
            (del_set(), Pending { set: Some(both()), ..del() }),
        ] {
            pending.add(Some(new()), false);
            assert_eq!(pending, wanted);
        }
    }

    /// The deletion between two rows may have been coalesced in Redis, where SONiC would merge the
    /// rows.
    #[test]
    fn pending_row_that_replaces_keeps_no_field_of_an_earlier_row() {
        for old in [Some(row("protocol=bgp blackhole=true")), None] {
            let mut to_sync = ToSync::default();
            let key = RouteRow::parse_key("10.1.0.0/16").unwrap();
            to_sync.add(Change { key: key.clone(), row: old.clone(), reshaped: false });
            let new = row("nexthop=2.2.2.2 ifname=a");
            to_sync.add(Change { key: key.clone(), row: Some(new.clone()), reshaped: true });
            let wanted = Pending { del: old.is_none(), set: Some(new), replaces: true };
            assert_eq!(to_sync.take().remove(&key), Some(wanted));
        }
    }
}
