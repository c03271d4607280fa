//! What every suite of `ribtide bench` needs and none should write twice: the machine and what else it did, programs
//! under test with their CPU and memory, places to run them in, and figures with their spread.

pub mod machine;
pub mod memory;
pub mod place;
pub mod program;
pub mod spread;
mod tell;

pub use machine::Machine;
pub use place::Place;
pub use program::{Program, Usage};
pub use spread::Spread;
pub use tell::tell;
