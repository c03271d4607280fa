//! Rows by the bytes that they came in: many keys share few rows, and each is made once.

use ribtide_prefix::Map;
use ribtide_swss::Row;

/// Different rows that are remembered.
const REMEMBERED: usize = 4096;

/// The rows that came last.
#[derive(Debug)]
pub(crate) struct Remembered<R: Row>(Map<Box<[u8]>, R>);

impl<R: Row> Default for Remembered<R> {
    fn default() -> Self {
        Remembered(Map::default())
    }
}

impl<R: Row> Remembered<R> {
    /// The row of `bytes`, which `read` makes of them unless it is remembered.
    pub(crate) fn row<E>(&mut self, bytes: &[u8], read: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        if let Some(row) = self.0.get(bytes) {
            return Ok(row.clone());
        }
        let row = read()?;
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(bytes.into(), row.clone());
        Ok(row)
    }
}
