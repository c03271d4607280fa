//! The kernel's error numbers as SAI's statuses.

use ribtide_netlink::Refusal;
use ribtide_swss::sai::Status;
use std::io;

/// The status of a request that the kernel refused.
pub(crate) fn of_errno(errno: i32) -> Status {
    match errno {
        // Another program has it. To clients of SAI an item that exists already is one that the chip has
        // as they want it, so the status is no other than a failure.
        libc::EEXIST => Status::Failure,
        libc::ENOENT | libc::ESRCH | libc::ENODEV => Status::ItemNotFound,
        libc::ENOSPC => Status::TableFull,
        libc::ENOMEM | libc::ENOBUFS => Status::NoMemory,
        libc::EOPNOTSUPP | libc::EAFNOSUPPORT => Status::NotSupported,
        libc::EINVAL | libc::ERANGE => Status::InvalidParameter,
        libc::EBUSY => Status::ObjectInUse,
        _ => Status::Failure,
    }
}

/// The status of a refusal.
pub(crate) fn of_refusal(refusal: &Refusal) -> Status {
    of_errno(refusal.errno)
}

/// The status of a request whose outcome is not known.
pub(crate) fn of_error(error: &io::Error) -> Status {
    error.raw_os_error().map_or(Status::Failure, of_errno)
}

/// Whether the kernel has nothing to delete.
pub(crate) fn is_gone(refusal: &Refusal) -> bool {
    matches!(refusal.errno, libc::ESRCH | libc::ENOENT | libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_have_sais_statuses() {
        for (errno, status) in [
            (libc::EEXIST, Status::Failure),
            (libc::ESRCH, Status::ItemNotFound),
            (libc::ENOSPC, Status::TableFull),
            (libc::ENOMEM, Status::NoMemory),
            (libc::EINVAL, Status::InvalidParameter),
            (libc::EPERM, Status::Failure),
        ] {
            assert_eq!(of_errno(errno), status, "{errno}");
        }
    }
}
