//! The invariants of a parsed [`Update`], for tests and the fuzzer; it panics on a violation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::attribute::{code, flags};
use super::message::{MAX_EXTENDED_LEN, frame};
use super::nlri::{Nlri, PathPrefix};
use super::update::{Disposition, Update, UpdateContext, parse};
use super::{NextHop, build};
use ribtide_prefix::{BgpFamily, Prefix, for_each_bgp_family};

/// Checks the invariants of a parsed [`Update`].
pub fn check(update: &Update<'_>, ctx: &UpdateContext) {
    let withdrawn = matches!(update.disposition(), Disposition::TreatAsWithdraw { .. });
    for_each_bgp_family!(F => {
        let announced = update.announced::<F>().count() + update.announced_nlri::<PathPrefix<F>>().count();
        let gone = update.withdrawn::<F>().count() + update.withdrawn_nlri::<PathPrefix<F>>().count();
        assert!(announced == 0 || update.next_hop::<F>().is_some_and(NextHop::is_host));
        assert!(!withdrawn || announced == 0);
        assert!(update.end_of_rib().is_none() || announced + gone == 0);
    });
    let mut codes = std::collections::HashSet::new();
    for attribute in update.attributes() {
        assert!(!withdrawn);
        assert!(codes.insert(attribute.code), "each attribute once");
        assert!(![code::NEXT_HOP, code::MP_REACH_NLRI, code::MP_UNREACH_NLRI].contains(&attribute.code));
        assert_eq!(attribute.flags & 0x1f, 0);
        let partial = attribute.flags & flags::PARTIAL != 0;
        assert!(
            !partial || attribute.flags & 0xc0 == 0xc0,
            "partial only if optional transitive (RFC 4271 4.3)"
        );
    }
    let key: usize = update.attribute_key().iter().map(|piece| piece.len()).sum();
    assert!(key <= update.raw_attributes().len());
    for discarded in update.discarded() {
        assert!(!discarded.fault.to_string().is_empty());
    }
    for_each_bgp_family!(F => match ctx.path_ids.has(F::ID) {
        true => rebuild::<PathPrefix<F>>(update, ctx),
        false => rebuild::<Prefix<F>>(update, ctx),
    });
}

/// Writes a parsed UPDATE again for a four-octet peer, and checks that it reads equal.
fn rebuild<N: Nlri + Eq>(update: &Update<'_>, ctx: &UpdateContext) {
    let four_octet = UpdateContext { four_octet_as: true, ..*ctx };
    let mut out = Vec::new();
    build::withdraw(update.withdrawn_nlri::<N>(), MAX_EXTENDED_LEN, &mut out);
    let mut withdrawn = Vec::new();
    let mut stream = out.as_slice();
    while let Some(message) = frame(stream, MAX_EXTENDED_LEN).unwrap() {
        withdrawn.extend(parse(message.body, &four_octet).unwrap().withdrawn_nlri::<N>());
        stream = &stream[message.total_len..];
    }
    assert!(withdrawn.into_iter().eq(update.withdrawn_nlri::<N>()));
    let Some(next_hop) =
        update.next_hop::<N::Family>().filter(|_| update.announced_nlri::<N>().next().is_some())
    else {
        return;
    };
    let mut attributes = Vec::new();
    for attribute in update.attributes() {
        build::attribute(&mut attributes, attribute.flags, attribute.code, attribute.value);
    }
    out.clear();
    let packer = build::UpdatePacker::new(&attributes, next_hop, MAX_EXTENDED_LEN);
    if packer.announce(update.announced_nlri::<N>(), &mut out).is_err() {
        return;
    }
    let mut announced = Vec::new();
    let mut stream = out.as_slice();
    while let Some(message) = frame(stream, MAX_EXTENDED_LEN).unwrap() {
        let again = parse(message.body, &four_octet).unwrap();
        assert_eq!((again.disposition(), again.discarded()), (Disposition::Normal, &[][..]));
        assert!(again.attributes().eq(update.attributes()));
        assert_eq!(again.next_hop::<N::Family>(), Some(next_hop));
        announced.extend(again.announced_nlri::<N>());
        stream = &stream[message.total_len..];
    }
    assert!(announced.into_iter().eq(update.announced_nlri::<N>()));
}
