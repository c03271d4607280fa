//! Changes that may wait long, in few octets: a route of the default VRF takes some nine, beside a row that it mostly
//! shares with others.

use super::{Change, Row};

/// The row had other fields before.
const RESHAPED: u8 = 1;
/// The key did not pack: it is the next of `whole`.
const WHOLE: u8 = 2;

/// Changes of one table, in their order.
#[derive(Debug)]
pub struct Packed<R: Row> {
    /// Of each change a mark, and its key's octets where it packs.
    keys: Vec<u8>,
    /// Keys that do not.
    whole: Vec<R::Key>,
    /// Rows, of equal ones mostly one.
    rows: Vec<Option<R>>,
    /// Of each change, which row.
    of: Vec<u32>,
}

/// So many rows are looked through for an equal one, those that came last first.
const LATELY: usize = 4;

impl<R: Row> From<&[Change<R>]> for Packed<R> {
    fn from(changes: &[Change<R>]) -> Self {
        let mut packed = Packed {
            keys: Vec::with_capacity(changes.len() * 6),
            whole: Vec::new(),
            rows: Vec::new(),
            of: Vec::with_capacity(changes.len()),
        };
        for change in changes {
            let at = packed.keys.len();
            packed.keys.push(if change.reshaped { RESHAPED } else { 0 });
            if !R::pack(&change.key, &mut packed.keys) {
                packed.keys.truncate(at + 1);
                packed.keys[at] |= WHOLE;
                packed.whole.push(change.key.clone());
            }
            let lately = packed.rows.len().saturating_sub(LATELY);
            let equal = packed.rows[lately..].iter().rposition(|row| *row == change.row);
            packed.of.push(equal.map_or(packed.rows.len(), |at| lately + at) as u32);
            if equal.is_none() {
                packed.rows.push(change.row.clone());
            }
        }
        packed
    }
}

impl<R: Row> Packed<R> {
    /// Appends them as they were.
    pub fn unpack(self, changes: &mut Vec<Change<R>>) {
        let (mut octets, mut whole) = (self.keys.as_slice(), self.whole.into_iter());
        changes.reserve(self.of.len());
        for of in self.of {
            let Some(row) = self.rows.get(of as usize).cloned() else { return };
            let Some((&mark, rest)) = octets.split_first() else { return };
            octets = rest;
            let key = if mark & WHOLE == 0 { R::unpack(&mut octets) } else { whole.next() };
            let Some(key) = key else { return };
            changes.push(Change { key, row, reshaped: mark & RESHAPED != 0 });
        }
    }
}
