//! Tests that need a whole router.

mod api;
mod route_check;
