//! The virtual switch.
mod dir24;
