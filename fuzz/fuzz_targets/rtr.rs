//! Bytes of an RPKI cache: PDUs that can be read are written as PDUs that read the same, and a session always has a
//! next step. The first byte cuts the bytes into reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_rpki::{Overrides, Session};
use ribtide_wire::rtr::frame;
use std::time::Duration;

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    if let Ok(Some(frame)) = frame(bytes)
        && let Ok(pdu) = frame.parse()
    {
        let mut written = Vec::new();
        pdu.write(frame.version, &mut written);
        let read = ribtide_wire::rtr::frame(&written).ok().flatten().map(|frame| frame.parse());
        assert_eq!(read, Some(Ok(pdu)));
    }
    let mut session = Session::new(Overrides::default(), Duration::ZERO);
    let mut now = Duration::ZERO;
    for part in bytes.chunks(usize::from(*cut).max(1)) {
        session.tick(now);
        if !session.is_connected() {
            session.connected(now);
        }
        session.received(part, now);
        now = now.max(session.due());
    }
});
