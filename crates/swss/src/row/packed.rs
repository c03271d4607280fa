//! A compact list of changes, for long queues. A route of the default VRF takes six bytes, or ten
//! with a row unlike the previous one.

use super::{Change, Row, RowKey};
use std::borrow::Borrow;

/// The former row had other fields.
const RESHAPED: u8 = 1;
/// The key has no compact encoding: it is the next of `whole`.
const WHOLE: u8 = 2;
/// The row differs from that of the previous change: its index follows, little-endian.
const ANOTHER: u8 = 4;

/// Changes of one table in order.
#[derive(Debug)]
pub struct Packed<R: Row> {
    /// For each change: flags, the index of its row if it differs, and its encoded key.
    bytes: Vec<u8>,
    /// Keys without a compact encoding.
    whole: Vec<R::Key>,
    /// Rows; equal ones are mostly stored once.
    rows: Vec<Option<R>>,
    len: usize,
}

/// The search for an equal row looks at this many of the last rows.
const LATELY: usize = 4;
/// The usual size of a change in bytes.
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
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends the decoded changes.
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
