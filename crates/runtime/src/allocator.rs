//! How long the allocator keeps freed pages.
//!
//! mimalloc waits a second before it returns freed pages to the system. A table of a million routes
//! comes within that second. So a router had, at its peak, what it used and what it had just freed:
//! buffers of readers, tables before they grew, attributes of replaced paths.

use std::ffi::c_long;
use std::time::Duration;

/// `mi_option_purge_delay` of mimalloc 3, in milliseconds. The bindings do not name it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Sets how long freed pages stay with this process before the next collection of a thread returns
/// them. A page that is used again after that costs a page fault. `MIMALLOC_PURGE_DELAY` in the
/// environment has precedence.
#[allow(unsafe_code)]
pub fn set_purge_delay(delay: Duration) {
    let milliseconds = c_long::try_from(delay.as_millis()).unwrap_or(c_long::MAX);
    // SAFETY: it stores a number, which threads that read it meanwhile see before or after.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, milliseconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(unsafe_code)]
    fn purge_delay() -> c_long {
        // SAFETY: it reads a number.
        unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) }
    }

    #[test]
    fn purge_delay_is_the_number_of_the_option() {
        // The default of mimalloc 3; no other option has it.
        assert_eq!(purge_delay(), 1000);
        set_purge_delay(Duration::from_millis(10));
        assert_eq!(purge_delay(), 10);
    }
}
