//! The row cache of a consumer: decoded rows by their encoded bytes. Many keys share few rows, so each is decoded once.

use ribtide_prefix::Map;
use ribtide_swss::Row;

/// Rows in the cache, at most. A full cache is cleared.
const ROW_CACHE_MAX: usize = 4096;

/// Rows by their encoded fields.
#[derive(Debug)]
pub(crate) struct RowCache<R: Row>(Map<Box<[u8]>, R>);

impl<R: Row> Default for RowCache<R> {
    fn default() -> Self {
        RowCache(Map::default())
    }
}

impl<R: Row> RowCache<R> {
    /// The row of `bytes`, from the cache or from `read`.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn row<E>(&mut self, bytes: &[u8], read: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        if let Some(row) = self.0.get(bytes) {
            return Ok(row.clone());
        }
        let row = read()?;
        if self.0.len() >= ROW_CACHE_MAX {
            self.0.clear();
        }
        self.0.insert(bytes.into(), row.clone());
        Ok(row)
    }
}
