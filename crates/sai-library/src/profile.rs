//! The profile that a library reads through callbacks: `KEY=VALUE` lines of syncd's `-p FILE`.
//!
//! SAI's callbacks have no argument for the caller's data, so there is one profile for the process.

use crate::abi::sai_service_method_table_t;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The profile of the process, and the table of its callbacks.
static PROFILE: Mutex<Vec<(CString, CString)>> = Mutex::new(Vec::new());
/// The next pair of an enumeration.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Both functions of the table. SAI may keep the pointer to it.
#[derive(Debug)]
pub(crate) struct Services(sai_service_method_table_t);

// SAFETY: it has two pointers to functions, which are the same on every thread.
#[expect(unsafe_code, reason = "raw pointers to functions")]
unsafe impl Sync for Services {}

pub(crate) static SERVICES: Services = Services(sai_service_method_table_t {
    profile_get_value: get_value as *const c_void,
    profile_get_next_value: get_next_value as *const c_void,
});

impl Services {
    pub(crate) fn as_ptr(&self) -> *const sai_service_method_table_t {
        &raw const self.0
    }
}

/// Sets the profile of the process.
///
/// # Errors
/// A sentence: a pair has a NUL, so C could not read it. The profile stays as it was.
pub(crate) fn set(pairs: &[(String, String)]) -> Result<(), String> {
    let c = |text: &str| CString::new(text).map_err(|_| format!("{text:?} has a NUL, which C cannot read"));
    let pairs = pairs.iter().map(|(key, value)| Ok((c(key)?, c(value)?))).collect::<Result<_, String>>()?;
    // Texts that a library was given stay where they are for as long as it may read them.
    let former = std::mem::replace(&mut *PROFILE.lock().unwrap_or_else(PoisonError::into_inner), pairs);
    std::mem::forget(former);
    NEXT.store(0, Ordering::Relaxed);
    Ok(())
}

/// `sai_profile_get_value_fn`
extern "C" fn get_value(_profile: u32, variable: *const c_char) -> *const c_char {
    if variable.is_null() {
        return std::ptr::null();
    }
    #[expect(unsafe_code, reason = "a text of C")]
    // SAFETY: SAI's caller passes a text that ends with NUL (`sai.h`), and it was checked for null.
    let variable = unsafe { CStr::from_ptr(variable) };
    let profile = PROFILE.lock().unwrap_or_else(PoisonError::into_inner);
    let found = profile.iter().find(|(key, _)| key.as_c_str() == variable);
    found.map_or(std::ptr::null(), |(_, value)| value.as_ptr())
}

/// `sai_profile_get_next_value_fn`: 0 with a pair, -1 after the last. A null for `value` begins again, as in SONiC's
/// `syncd/Syncd.cpp`.
extern "C" fn get_next_value(
    _profile: u32,
    variable: *mut *const c_char,
    value: *mut *const c_char,
) -> c_int {
    if value.is_null() {
        NEXT.store(0, Ordering::Relaxed);
        return 0;
    }
    let profile = PROFILE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((key, text)) = profile.get(NEXT.load(Ordering::Relaxed)) else { return -1 };
    if variable.is_null() {
        return -1;
    }
    NEXT.fetch_add(1, Ordering::Relaxed);
    #[expect(unsafe_code, reason = "results through pointers of C")]
    // SAFETY: both were checked for null, and SAI's caller passes the addresses of two pointers (`sai.h`).
    unsafe {
        variable.write(key.as_ptr());
        value.write(text.as_ptr());
    }
    0
}
