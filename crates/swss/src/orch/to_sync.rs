//! The pending changes of a table by key: `m_toSync` of `orchagent/orch.h`, at most a DEL and then a SET for each key.

use crate::row::{Change, Row};
use std::collections::BTreeMap;

/// What is wanted of one key.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Pending<R> {
    /// Delete what is there first.
    pub(super) del: bool,
    /// Then set this.
    pub(super) set: Option<R>,
}

impl<R: Row> Pending<R> {
    pub(super) fn new(row: Option<R>) -> Self {
        Pending { del: row.is_none(), set: row }
    }

    /// Takes in a later change. A DEL makes all before it void. A SET coalesces with a SET that waits, and stands
    /// after a DEL that waits.
    pub(super) fn add(&mut self, row: Option<R>) {
        match (row, &mut self.set) {
            (None, _) => *self = Pending { del: true, set: None },
            (Some(row), Some(set)) => set.merge(row),
            (Some(row), none) => *none = Some(row),
        }
    }
}

/// The keys of one table that changed and were not looked at yet. In key order, so that equal input has equal
/// results.
pub(super) struct ToSync<R: Row>(BTreeMap<R::Key, Pending<R>>);

impl<R: Row> Default for ToSync<R> {
    fn default() -> Self {
        ToSync(BTreeMap::new())
    }
}

impl<R: Row> ToSync<R> {
    pub(super) fn add(&mut self, change: Change<R>) {
        match self.0.get_mut(&change.key) {
            Some(pending) => pending.add(change.row),
            None => drop(self.0.insert(change.key, Pending::new(change.row))),
        }
    }

    pub(super) fn take(&mut self) -> BTreeMap<R::Key, Pending<R>> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&R::Key, &Pending<R>)> {
        self.0.iter()
    }

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

    /// The table of SONiC's `addToSync`, case by case: incoming SET or DEL on each thing that can be pending.
    #[test]
    fn what_waits_and_what_comes() {
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
