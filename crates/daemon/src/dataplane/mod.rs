//! Where routes are installed: the Linux kernel, an FPM server, the virtual ASIC.
//!
//! Each dataplane is a thread that takes the RIB manager's batches from its own ring, in order, and answers each
//! one with an acknowledgement that names what failed, and says later when it did not stay so. A dataplane that lost its state (an FPM server that came
//! back, a kernel that overran) asks for all of it again with [`RibIn::DataplaneUp`]; what comes then ends with a
//! batch marked `end_of_replay`, and what was not in it is to be removed.
//!
//! Feedback cannot wait for ever: the RIB manager takes it also while it waits for room in a dataplane's ring.

pub(crate) mod announce;
pub mod fpm;
pub mod kernel;
pub(crate) mod verdicts;
mod weight;

use ribtide_rib::{FibBatch, RibIn};
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring;
use ribtide_runtime::thread::Stop;
use std::sync::Arc;
use weight::fit_weight;

/// Batches that may wait at one dataplane.
pub const BATCHES: usize = 64;
/// Answers that may wait at the RIB manager, from all dataplanes.
pub const FEEDBACK: usize = 256;

/// A dataplane's connection to the RIB manager.
#[derive(Debug)]
pub struct Port {
    /// Its number in acknowledgements.
    pub id: u8,
    /// What to install, in order.
    pub batches: ring::Receiver<Arc<FibBatch>>,
    /// Acknowledgements, requests for a replay, and (from the kernel) interfaces.
    pub feedback: ring::Sender<RibIn>,
    /// Its meter: routes written.
    pub meter: Meter,
    /// Ends its thread.
    pub stop: Stop,
}
