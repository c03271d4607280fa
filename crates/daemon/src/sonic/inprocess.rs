//! TEMP: replaced by the real one.
#![allow(missing_docs)]
use crate::api::model::{AsicAnswer, ExplainStage};
use crate::config::{InterfaceConfig, VirtualAsicConfig};
use crate::dataplane::Port;
use ribtide_runtime::{ask::NoAnswer, meter::Meters, ring::Rings, thread::Stop};
pub struct Asic;
impl Asic {
    pub fn lookup(&self, _a: Vec<std::net::IpAddr>) -> Result<Vec<AsicAnswer>, NoAnswer> { Ok(vec![]) }
    pub fn explain(&self, _p: ribtide_prefix::AnyPrefix) -> Result<Vec<ExplainStage>, NoAnswer> { Ok(vec![]) }
    pub fn route_count(&self) -> Result<u64, NoAnswer> { Ok(0) }
}
pub fn start(_v: VirtualAsicConfig, _i: &[InterfaceConfig], _p: Port, _r: &Rings, _m: &Meters, _s: &Stop) -> Result<Asic, String> {
    Err("the virtual ASIC is being wired".into())
}
