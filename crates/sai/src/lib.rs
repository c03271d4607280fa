//! What stands behind [`ribtide_swss::sai::Sai`]: the virtual switch.
//!
//! It checks what it is told as a vendor's library would (references, duplicates, full tables) and forwards by
//! real longest-prefix-match tables, so that what arrived can be looked up address by address.
#![forbid(unsafe_code)]

mod dir24;
mod forward;
mod objects;
mod router;
mod switch;
mod target;

pub use forward::{Checked, Forward, ForwardHop};
pub use switch::{Counts, Limits, PortSetup, VirtualSwitch};
