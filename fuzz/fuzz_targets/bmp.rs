//! A router's messages to a BMP station.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_wire::bmp::{Message, read_message};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    loop {
        match read_message(rest) {
            Ok(Some((message, taken))) => {
                assert!(taken > 0 && taken <= rest.len());
                rest = &rest[taken..];
                match message {
                    Message::Statistics(_, statistics) => statistics.for_each(drop),
                    Message::Initiation(tlvs) | Message::Termination(tlvs) => tlvs.for_each(drop),
                    Message::PeerUp { information, .. } => information.for_each(drop),
                    _ => {}
                }
            }
            Ok(None) => return,
            Err(why) => return assert!(!why.to_string().is_empty()),
        }
    }
});
