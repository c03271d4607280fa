//! Prefetching: the waits of many look-ups for memory overlap.
//!
//! A look-up in a table that is larger than the cache waits for memory. A core has several such waits under way at once
//! when none needs another's answer. So a stage takes [`PREFETCH_BATCH`] items, reads first what each of them needs, and
//! handles them afterwards, out of the cache.

use std::hint::black_box;

/// Items that are prefetched together before the first of them is handled.
pub const PREFETCH_BATCH: usize = 32;

/// Performs the reads that `value` depends on now, although their result is not used: the compiler may not leave them out.
/// A read works where an instruction for prefetching would not: it follows pointers, so that it needs no address in advance.
#[inline(always)]
pub fn prefetch<T>(value: T) {
    black_box(value);
}
