//! Shared parts of all suites: the machine and its other load, programs under test with CPU and
//! memory, places to run them in, and figures with their spread.

pub mod machine;
pub mod memory;
pub mod place;
pub mod program;
pub mod report;
pub mod spread;

pub use machine::Machine;
pub use place::Place;
pub use program::{Program, Usage};
pub use report::{Call, write_report};
pub use spread::Spread;
