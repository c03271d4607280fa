//! The virtual switch: an implementation of [`ribtide_swss::sai::Sai`] in memory, in the place of a vendor's SAI library.
//!
//! It refuses what a vendor's library refuses (unknown references, duplicates, full tables), with the status codes of
//! SAI's `saistatus.h`. It forwards by longest-prefix-match tables, so that a test can look up any address. Settings
//! make it misbehave: small tables, failures, stalls, and a delay for each operation.
#![forbid(unsafe_code)]

mod answers;
mod audit;
mod behavior;
mod dir24;
mod entries;
mod forwarding;
mod ipv6_routes;
mod labels;
mod objects;
mod own;
mod pace;
mod packets;
mod ports;
mod profiles;
mod router;
mod switch;
mod target;
mod walk;

pub use audit::EntryKey;
pub use behavior::{Behavior, Failures, Latency, Limits, SETTINGS};
pub use forwarding::{Checked, Forward, ForwardHop};
pub use labels::LabelForward;
pub use pace::ChipTime;
pub use packets::{Drop, Frame, HostInterface, Interface, PacketCounters, checksum};
pub use ports::PortLink;
pub use profiles::{PROFILES, Profile};
pub use switch::{Counts, PortSetup, VirtualSwitch};
pub use walk::Cursor;
