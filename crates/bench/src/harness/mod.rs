//! Shared parts of all suites: the machine and its other load, programs under test with CPU and
//! memory, places to run them in, and figures with their spread.

pub mod machine;
pub mod memory;
pub mod place;
pub mod program;
pub mod spread;
mod write_report;

pub use machine::Machine;
pub use place::Place;
pub use program::{Program, Usage};
pub use spread::Spread;
pub use write_report::write_report;
