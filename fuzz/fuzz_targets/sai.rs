//! What orchagent and syncd say to each other as text: a request that is read and written again reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_swss::sai::text;

fuzz_target!(|message: &str| {
    if let Ok(request) = text::read_zmq_request(7, message) {
        let again = text::write_request(&request).to_zmq();
        assert_eq!(text::read_zmq_request(7, &again).expect("what we write we read"), request);
    }
    if let Ok(reply) = text::read_zmq_reply(7, message) {
        let again = text::write_reply(&reply, text::ReplyTo::Request).to_zmq();
        let _ = text::read_zmq_reply(7, &again).expect("what we write we read");
    }
    if let Ok((object, id)) = text::read_row_key(message) {
        let mut key = String::new();
        text::write_row_key(object, &id, &mut key);
        assert_eq!(text::read_row_key(&key).expect("what we write we read"), (object, id));
    }
});
