//! Prefetching: many look-ups wait for memory at the same time.
//!
//! A look-up in a table that is larger than the cache waits for memory. A core overlaps several
//! such waits when the look-ups are independent. So a stage takes [`PREFETCH_BATCH`] items, first
//! reads the memory that they need, and then handles them from the cache.

use std::hint::black_box;

/// Items that are prefetched together before the first of them is handled.
pub const PREFETCH_BATCH: usize = 32;

/// Performs the reads that `value` depends on; the compiler may not remove them. Unlike a prefetch
/// instruction, a read follows pointers, so the address need not be known in advance.
#[inline(always)]
pub fn prefetch<T>(value: T) {
    black_box(value);
}
