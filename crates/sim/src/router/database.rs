//! APPL_DB as its producers and consumers see it: tables whose changes wait in a set until
//! orchagent pops them (`ProducerStateTable` and `ConsumerStateTable` of swss-common). Rows go
//! through their text, as in Redis.

use ribtide_prefix::Rng;
use ribtide_swss::{Change, Row};
use std::collections::{BTreeMap, BTreeSet};

type Fields = BTreeMap<String, String>;

/// A change that no consumer popped.
#[derive(Default)]
struct Pending {
    /// The row that consumers saw is deleted first.
    deleted: bool,
    /// The fields set since then.
    fields: Fields,
}

/// A table.
pub(crate) struct Table<R: Row> {
    /// What consumers popped.
    rows: BTreeMap<R::Key, Fields>,
    pending: BTreeMap<R::Key, Pending>,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Table { rows: BTreeMap::new(), pending: BTreeMap::new() }
    }
}

fn parse<R: Row>(fields: &Fields) -> R {
    let mut pairs = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    R::from_fields(&mut pairs).expect("a row of the table's own producer")
}

impl<R: Row> Table<R> {
    /// Writes changes.
    pub(crate) fn write(&mut self, changes: impl IntoIterator<Item = Change<R>>) {
        for Change { key, row, reshaped } in changes {
            let pending = self.pending.entry(key).or_default();
            if row.is_none() || reshaped {
                *pending = Pending { deleted: true, fields: Fields::new() };
            }
            let Some(row) = row else { continue };
            let mut put = |name: &str, value: &str| drop(pending.fields.insert(name.into(), value.into()));
            if reshaped { row.all_fields(&mut put) } else { row.fields(&mut put) }
        }
    }

    /// Writes a change where readers see it (`PlainTable` of `ribtide_tables`).
    pub(crate) fn put(&mut self, change: Change<R>) {
        let Change { key, row, reshaped } = change;
        if row.is_none() || reshaped {
            self.rows.remove(&key);
        }
        if let Some(row) = row {
            let fields = self.rows.entry(key).or_default();
            row.fields(&mut |name, value| drop(fields.insert(name.into(), value.into())));
        }
    }

    /// Takes at most `count` changes in any order.
    pub(crate) fn pop(&mut self, count: usize, rng: &mut Rng) -> Vec<Change<R>> {
        let mut changes = Vec::new();
        while changes.len() < count && !self.pending.is_empty() {
            let at = rng.index(self.pending.len());
            let key = self.pending.keys().nth(at).expect("an index within").clone();
            let Pending { deleted, fields } = self.pending.remove(&key).expect("a key of the set");
            if deleted {
                self.rows.remove(&key);
            }
            if fields.is_empty() {
                changes.push(Change::del(key));
                continue;
            }
            let row: R = parse(&fields);
            let reshaped = !self.rows.contains_key(&key);
            self.rows.entry(key.clone()).or_default().extend(fields);
            changes.push(Change { key, row: Some(row), reshaped });
        }
        changes
    }

    /// The rows that consumers popped.
    pub(crate) fn popped(&self) -> Vec<(R::Key, R)> {
        self.rows.iter().map(|(key, fields)| (key.clone(), parse(fields))).collect()
    }

    /// The keys of these rows, as text.
    pub(crate) fn keys(&self) -> Vec<String> {
        let text = |key: &R::Key| {
            let mut text = String::new();
            R::key_text(key, &mut text);
            text
        };
        self.rows.keys().map(text).collect()
    }

    /// The fields of a row that consumers popped, none without one; `None` while a change of it
    /// waits.
    pub(crate) fn read(&self, key: &R::Key) -> Option<Vec<(String, String)>> {
        let fields = self.rows.get(key).into_iter().flatten();
        (!self.pending.contains_key(key))
            .then(|| fields.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Every row as its producer left it, and whether its last change waits.
    pub(crate) fn rows(&self) -> Vec<(R::Key, R, bool)> {
        let keys: BTreeSet<&R::Key> = self.rows.keys().chain(self.pending.keys()).collect();
        let mut rows = Vec::new();
        for key in keys {
            if let Some(row) = self.row(key) {
                rows.push((key.clone(), row, self.pending.contains_key(key)));
            }
        }
        rows
    }

    /// A row as its producer left it.
    fn row(&self, key: &R::Key) -> Option<R> {
        let pending = self.pending.get(key);
        let mut fields = Fields::new();
        if !pending.is_some_and(|pending| pending.deleted) {
            fields.extend(self.rows.get(key).cloned().unwrap_or_default());
        }
        fields.extend(pending.map(|pending| pending.fields.clone()).unwrap_or_default());
        (!fields.is_empty()).then(|| parse(&fields))
    }

    /// The keys of changes that wait.
    pub(crate) fn pending(&self) -> BTreeSet<R::Key> {
        self.pending.keys().cloned().collect()
    }

    /// Whether no change waits.
    pub(crate) fn is_drained(&self) -> bool {
        self.pending.is_empty()
    }

    /// Sends a row that is there once more.
    pub(crate) fn touch(&mut self, key: &R::Key) {
        if let Some(row) = self.row(key) {
            self.write([Change::set(key.clone(), row)]);
        }
    }

    /// Another program deletes every row, or the server lost all.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.pending.clear();
    }
}
