//! Codecs: views that read bytes in place, builders that write them.
//!
//! Pure, and no byte from outside can make it panic: unwrap, expect, panic and indexing are denied outside tests.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod bfd;
pub mod bgp;
pub mod bmp;
pub mod fpm;
pub mod mrt;
pub mod ndp;
pub mod netlink;
pub mod rtr;
