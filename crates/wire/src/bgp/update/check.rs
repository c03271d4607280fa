//! When an attribute is malformed, and what has become of it then. The rules are the table
//! [`registry`](super::super::attribute::registry); this is how they are applied.

use super::super::attribute::registry::{Form, Outcome, Rule, rule};
use super::super::attribute::{Aggregator, Attribute, as_path, flags};
use super::forms::{self, Tunnels};
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

impl Outcome {
    fn of(self, kind: FaultKind) -> Verdict {
        match self {
            Outcome::Withdraw => Verdict::Withdraw(kind),
            Outcome::Discard => Verdict::Discard(kind),
            Outcome::Reset => Verdict::Reset(kind),
        }
    }
}

/// The verdict on one attribute.
#[inline]
pub(super) fn check(attribute: &Attribute<'_>, ctx: &UpdateContext) -> Verdict {
    let Attribute { flags: have, code, value } = *attribute;
    let rule = rule(code);
    if !rule.checked {
        return if have & flags::OPTIONAL != 0 {
            Verdict::Keep
        } else {
            Verdict::Reset(FaultKind::UnknownWellKnown)
        };
    }
    // RFC 7606 section 3 (c): these two bits, and not the partial bit.
    if (have ^ rule.flags) & (flags::OPTIONAL | flags::TRANSITIVE) != 0 {
        return rule.wrong_flags.of(FaultKind::Flags);
    }
    if rule.internal && ctx.external {
        return Verdict::Discard(FaultKind::External);
    }
    let length = |fits: bool| judge(rule, fits, FaultKind::Length);
    let content = |fits: bool| judge(rule, fits, FaultKind::Value);
    match rule.form {
        Form::Origin => match value {
            [0..=2] => Verdict::Keep,
            [_] => content(false),
            _ => length(false),
        },
        Form::AsPath => {
            let width = if ctx.four_octet_as { 4 } else { 2 };
            // RFC 5065 section 5: the segments of a confederation end at its border.
            content(as_path::is_valid(value, width, !ctx.external))
        }
        Form::Word => length(value.len() == 4),
        Form::List(size) => length(!value.is_empty() && value.len().is_multiple_of(usize::from(size))),
        Form::MpReach => Verdict::Reach,
        Form::MpUnreach => Verdict::Unreach,
        Form::Any => Verdict::Keep,
        Form::Empty => length(value.is_empty()),
        Form::Aggregator => {
            let aggregator = if ctx.four_octet_as {
                Aggregator::from_value(value)
            } else {
                Aggregator::from_two_octet(value)
            };
            check_aggregator(rule, aggregator)
        }
        Form::As4Path | Form::As4Aggregator if ctx.four_octet_as => Verdict::Discard(FaultKind::FourOctet),
        // Confederation segments are left out when merging.
        Form::As4Path => content(!value.is_empty() && as_path::is_valid(value, 4, true)),
        Form::As4Aggregator => check_aggregator(rule, Aggregator::from_value(value)),
        Form::AttrSet => length(forms::is_attr_set(value)),
        Form::PmsiTunnel => length(forms::is_pmsi_tunnel(value)),
        Form::PeDistinguisherLabels => length(forms::is_pe_distinguisher_labels(value)),
        Form::TunnelEncapsulation => match forms::tunnels(value) {
            Tunnels::Valid => Verdict::Keep,
            // RFC 9012 section 13: without a valid TLV it is discarded.
            Tunnels::None => Verdict::Discard(FaultKind::Length),
            Tunnels::Malformed => length(false),
        },
        Form::Aigp => length(forms::is_aigp(value)),
        Form::WideTlvs => length(forms::is_wide_tlvs(value)),
        Form::BgpsecPath => length(forms::is_bgpsec_path(value)),
        Form::BfdDiscriminator => length(forms::is_bfd_discriminator(value)),
        Form::PrefixSid => length(forms::is_prefix_sid(value)),
    }
}

#[inline]
fn judge(rule: &Rule, fits: bool, kind: FaultKind) -> Verdict {
    if fits { Verdict::Keep } else { rule.malformed.of(kind) }
}

fn check_aggregator(rule: &Rule, aggregator: Option<Aggregator>) -> Verdict {
    match aggregator {
        None => rule.malformed.of(FaultKind::Length),
        // RFC 7607: zero is nobody's AS number.
        Some(Aggregator { asn: 0, .. }) => rule.malformed.of(FaultKind::Value),
        Some(_) => Verdict::Keep,
    }
}
