//! A BFD packet: what is read, written and read again is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_wire::bfd::Control;

fuzz_target!(|bytes: &[u8]| {
    // What we write has no authentication section.
    if let Ok(control) = Control::parse(bytes).map(|control| Control { authenticated: false, ..control }) {
        assert_eq!(Control::parse(&control.to_bytes()), Ok(control));
    }
});
