//! The rule for each attribute: when it is malformed, and what RFC 7606 section 7 has become of it then.

use super::super::attribute::{Aggregator, Attribute, Attributes, as_path, code, expected_flags, flags};
use super::{FaultKind, UpdateContext};

/// What becomes of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It is well formed.
    Keep,
    /// It is left out, the routes stay.
    Discard(FaultKind),
    /// The routes are treated as withdrawn.
    Withdraw(FaultKind),
    /// The session is reset.
    Reset(FaultKind),
    /// It is an MP_REACH_NLRI, to be parsed.
    Reach,
    /// It is an MP_UNREACH_NLRI, to be parsed.
    Unreach,
}

/// The verdict on one attribute.
#[inline]
pub(super) fn check(attribute: &Attribute<'_>, ctx: &UpdateContext) -> Verdict {
    let Attribute { flags: have, code, value } = *attribute;
    let Some(expected) = expected_flags(code) else {
        return if have & flags::OPTIONAL != 0 {
            Verdict::Keep
        } else {
            Verdict::Reset(FaultKind::UnknownWellKnown)
        };
    };
    if (have ^ expected) & (flags::OPTIONAL | flags::TRANSITIVE) != 0 {
        return match code {
            // RFC 7606 section 5.3: an MP attribute with wrong flags is syntactically incorrect.
            code::MP_REACH_NLRI | code::MP_UNREACH_NLRI => Verdict::Reset(FaultKind::Flags),
            // Section 3 (f).
            code::ATOMIC_AGGREGATE | code::AGGREGATOR => Verdict::Discard(FaultKind::Flags),
            _ => Verdict::Withdraw(FaultKind::Flags),
        };
    }
    match code {
        code::ORIGIN => match value {
            [0..=2] => Verdict::Keep,
            [_] => Verdict::Withdraw(FaultKind::Value),
            _ => Verdict::Withdraw(FaultKind::Length),
        },
        code::AS_PATH => {
            let width = if ctx.four_octet_as { 4 } else { 2 };
            // RFC 5065 section 5: the segments of a confederation end at its border.
            if as_path::is_valid(value, width, !ctx.external) {
                Verdict::Keep
            } else {
                Verdict::Withdraw(FaultKind::Value)
            }
        }
        code::NEXT_HOP | code::MED => withdraw_unless(value.len() == 4),
        code::LOCAL_PREF | code::ORIGINATOR_ID | code::CLUSTER_LIST if ctx.external => {
            Verdict::Discard(FaultKind::External)
        }
        code::LOCAL_PREF | code::ORIGINATOR_ID => withdraw_unless(value.len() == 4),
        code::CLUSTER_LIST | code::COMMUNITIES => withdraw_unless(is_list(value, 4)),
        code::EXTENDED_COMMUNITIES => withdraw_unless(is_list(value, 8)),
        code::LARGE_COMMUNITIES => withdraw_unless(is_list(value, 12)),
        code::IPV6_EXTENDED_COMMUNITIES => withdraw_unless(is_list(value, 20)),
        code::ATTR_SET => withdraw_unless(is_attr_set(value)),
        code::ATOMIC_AGGREGATE => discard_unless(value.is_empty(), FaultKind::Length),
        code::AGGREGATOR => {
            let aggregator = if ctx.four_octet_as {
                Aggregator::from_value(value)
            } else {
                Aggregator::from_two_octet(value)
            };
            check_aggregator(aggregator)
        }
        code::AS4_PATH | code::AS4_AGGREGATOR if ctx.four_octet_as => Verdict::Discard(FaultKind::FourOctet),
        // RFC 6793 section 6: malformed ones are discarded, confederation segments are left out when merging.
        code::AS4_PATH => {
            discard_unless(!value.is_empty() && as_path::is_valid(value, 4, true), FaultKind::Value)
        }
        code::AS4_AGGREGATOR => check_aggregator(Aggregator::from_value(value)),
        code::MP_REACH_NLRI => Verdict::Reach,
        code::MP_UNREACH_NLRI => Verdict::Unreach,
        _ => Verdict::Keep,
    }
}

#[inline]
fn withdraw_unless(fits: bool) -> Verdict {
    if fits { Verdict::Keep } else { Verdict::Withdraw(FaultKind::Length) }
}

#[inline]
fn discard_unless(fits: bool, kind: FaultKind) -> Verdict {
    if fits { Verdict::Keep } else { Verdict::Discard(kind) }
}

fn check_aggregator(aggregator: Option<Aggregator>) -> Verdict {
    match aggregator {
        None => Verdict::Discard(FaultKind::Length),
        // RFC 7607: zero is nobody's AS number.
        Some(Aggregator { asn: 0, .. }) => Verdict::Discard(FaultKind::Value),
        Some(_) => Verdict::Keep,
    }
}

/// One or more items of `size` octets.
#[inline]
fn is_list(value: &[u8], size: usize) -> bool {
    !value.is_empty() && value.len().is_multiple_of(size)
}

/// An AS number and whole attributes (RFC 6368 section 5, RFC 7606 section 7.16).
fn is_attr_set(value: &[u8]) -> bool {
    value.split_first_chunk::<4>().is_some_and(|(_asn, block)| {
        let mut attributes = Attributes::new(block);
        attributes.by_ref().for_each(drop);
        attributes.remainder().is_empty()
    })
}
