//! Changes that may wait long, in few bytes: a route of the default VRF takes six, beside a row that it mostly shares
//! with the one before it, or ten.

use super::{Change, Row, RowKey};
use std::borrow::Borrow;

/// The row had other fields before.
const RESHAPED: u8 = 1;
/// The key did not pack: it is the next of `whole`.
const WHOLE: u8 = 2;
/// The row is another than that of the change before: its number, least significant byte first, follows.
const ANOTHER: u8 = 4;

/// Changes of one table, in their order.
#[derive(Debug)]
pub struct Packed<R: Row> {
    /// Of each change its flags, which row, and its key's bytes where it packs.
    bytes: Vec<u8>,
    /// Keys that do not.
    whole: Vec<R::Key>,
    /// Rows, of equal ones mostly one.
    rows: Vec<Option<R>>,
    len: usize,
}

/// So many rows are looked through for an equal one, those that came last first.
const LATELY: usize = 4;
/// What a change usually takes.
const USUAL: usize = 6;

impl<R: Row, C: Borrow<Change<R>>> FromIterator<C> for Packed<R> {
    fn from_iter<I: IntoIterator<Item = C>>(changes: I) -> Self {
        let changes = changes.into_iter();
        let mut bytes = Vec::with_capacity(changes.size_hint().0 * USUAL);
        let (mut whole, mut rows) = (Vec::new(), Vec::<Option<R>>::new());
        let (mut len, mut before) = (0, 0);
        for change in changes {
            let change = change.borrow();
            len += 1;
            let head = bytes.len();
            bytes.push(if change.reshaped { RESHAPED } else { 0 });
            let lately = rows.len().saturating_sub(LATELY);
            let equal = rows[lately..].iter().rposition(|row| *row == change.row);
            let row = equal.map_or(rows.len(), |at| lately + at) as u32;
            if equal.is_none() {
                rows.push(change.row.clone());
            }
            if row != before {
                before = row;
                bytes[head] |= ANOTHER;
                bytes.extend_from_slice(&row.to_le_bytes());
            }
            let key = bytes.len();
            if !change.key.pack(&mut bytes) {
                bytes.truncate(key);
                bytes[head] |= WHOLE;
                whole.push(change.key.clone());
            }
        }
        Packed { bytes, whole, rows, len }
    }
}

impl<R: Row> Packed<R> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends them as they were.
    pub fn unpack(self, changes: &mut Vec<Change<R>>) {
        let (mut bytes, mut whole) = (self.bytes.as_slice(), self.whole.into_iter());
        let mut row = 0;
        changes.reserve(self.len);
        while let Some((&flags, rest)) = bytes.split_first() {
            bytes = rest;
            if flags & ANOTHER != 0 {
                let Some((number, rest)) = bytes.split_first_chunk() else { return };
                (row, bytes) = (u32::from_le_bytes(*number) as usize, rest);
            }
            let key = if flags & WHOLE == 0 { R::Key::unpack(&mut bytes) } else { whole.next() };
            let (Some(key), Some(row)) = (key, self.rows.get(row).cloned()) else { return };
            changes.push(Change { key, row, reshaped: flags & RESHAPED != 0 });
        }
    }
}
