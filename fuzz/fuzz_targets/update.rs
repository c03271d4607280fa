//! The body of an UPDATE, in each of the contexts that a session can give it: what is read keeps every promise of
//! [`Update`], and written again it reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_prefix::FamilySet;
use ribtide_wire::bgp::update::parse;
use ribtide_wire::bgp::{UpdateContext, invariants};

fuzz_target!(|input: (bool, bool, &[u8])| {
    let (four_octet_as, external, body) = input;
    let path_ids = [FamilySet::NONE, FamilySet::ALL, FamilySet::IPV4_UNICAST];
    for (also, path_ids) in [false, true].into_iter().flat_map(|also| path_ids.map(|ids| (also, ids))) {
        let (prefix_sid, confederation) = (also, also && !external);
        let ctx = UpdateContext { four_octet_as, external, prefix_sid, confederation, path_ids };
        if let Ok(update) = parse(body, &ctx) {
            invariants::check(&update, &ctx);
        }
    }
});
