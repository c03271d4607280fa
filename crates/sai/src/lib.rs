//! What stands behind [`ribtide_swss::sai::Sai`]: the virtual switch.
//!
//! It checks what it is told as a vendor's library would (references, duplicates, full tables) and forwards by
//! real longest-prefix-match tables, so that what arrived can be looked up address by address. It misbehaves on demand:
//! small tables, failures, stalls, and time that things take.
#![forbid(unsafe_code)]

mod audit;
mod behavior;
mod dir24;
mod forward;
mod labels;
mod objects;
mod pace;
mod parts;
mod router;
mod switch;
mod target;
mod walk;

pub use audit::EntryKey;
pub use behavior::{Behavior, Failures, Latency, Limits, SETTINGS};
pub use forward::{Checked, Forward, ForwardHop};
pub use labels::LabelForward;
pub use pace::Work;
pub use switch::{Counts, PortSetup, VirtualSwitch};
pub use walk::Cursor;
