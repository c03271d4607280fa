//! Checks an attribute by the table [`registry`](super::super::attribute::registry), and decides
//! the outcome of a malformed one.

use super::super::attribute::registry::{Form, Outcome, Rule, Scope, rule};
use super::super::attribute::{Aggregator, Attribute, Attributes, as_path, code, flags};
use super::forms::{self, PrefixSid};
use super::{FaultKind, UpdateContext};

/// The outcome of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttributeOutcome {
    /// It is well formed.
    Keep,
    /// It is discarded, and the routes stay.
    Discard(FaultKind),
    /// The routes are treated as withdrawn.
    Withdraw(FaultKind),
    /// The routes are treated as withdrawn, and a message without routes is none of it.
    Unexpected(FaultKind),
    /// The session is reset.
    Reset(FaultKind),
    /// It is an MP_REACH_NLRI, to be parsed.
    Reach,
    /// It is an MP_UNREACH_NLRI, to be parsed.
    Unreach,
}

impl Outcome {
    fn of(self, kind: FaultKind) -> AttributeOutcome {
        match self {
            Outcome::Withdraw => AttributeOutcome::Withdraw(kind),
            Outcome::Discard => AttributeOutcome::Discard(kind),
            Outcome::Reset => AttributeOutcome::Reset(kind),
        }
    }
}

/// Checks one attribute. Those of almost every route [need no check here](super::verbatim::is_common).
#[inline(never)]
pub(super) fn check(attribute: &Attribute<'_>, ctx: &UpdateContext) -> AttributeOutcome {
    let Attribute { flags: have, code, value } = *attribute;
    let rule = rule(code);
    if !rule.checked {
        return if have & flags::OPTIONAL != 0 {
            AttributeOutcome::Keep
        } else {
            AttributeOutcome::Reset(FaultKind::UnknownWellKnown)
        };
    }
    // RFC 7606 section 3 (c): these two bits, and not the partial bit.
    let wrong = (have ^ rule.flags) & (flags::OPTIONAL | flags::TRANSITIVE);
    if wrong != 0 {
        // Where an RFC discards for flags, it means the transitive bit alone (RFC 7311 section 3.2).
        let discard = rule.wrong_flags == Outcome::Discard && wrong != flags::TRANSITIVE;
        return if discard { Outcome::Withdraw } else { rule.wrong_flags }.of(FaultKind::Flags);
    }
    let in_scope = match rule.scope {
        Scope::Any => true,
        Scope::Internal => !ctx.external,
        Scope::SrDomain => !ctx.external || ctx.prefix_sid,
        Scope::AigpDomain => ctx.aigp,
    };
    if !in_scope {
        return AttributeOutcome::Discard(FaultKind::External);
    }
    // RFC 7606 section 4: only AS_PATH and ATOMIC_AGGREGATE may be empty.
    if value.is_empty() && !may_be_empty(rule.form) {
        return rule.malformed.of(FaultKind::Length);
    }
    let length = |fits: bool| outcome_of(rule, fits, FaultKind::Length);
    let content = |fits: bool| outcome_of(rule, fits, FaultKind::Value);
    match rule.form {
        Form::Origin => match value {
            [0..=2] => AttributeOutcome::Keep,
            [_] => content(false),
            _ => length(false),
        },
        Form::AsPath => {
            let width = if ctx.four_octet_as { 4 } else { 2 };
            // RFC 5065 section 5: the segments of a confederation end at its border.
            content(as_path::is_valid(value, width, ctx.confederation))
        }
        Form::Word => length(value.len() == 4),
        Form::Any => AttributeOutcome::Keep,
        Form::List(size) => length(value.len().is_multiple_of(usize::from(size))),
        Form::MpReach => AttributeOutcome::Reach,
        Form::MpUnreach => AttributeOutcome::Unreach,
        Form::Empty => length(value.is_empty()),
        Form::Aggregator => {
            let aggregator = if ctx.four_octet_as {
                Aggregator::from_value(value)
            } else {
                Aggregator::from_two_octet(value)
            };
            check_aggregator(rule, aggregator)
        }
        Form::As4Path | Form::As4Aggregator if ctx.four_octet_as => {
            AttributeOutcome::Discard(FaultKind::FourOctet)
        }
        // Confederation segments are left out when merging.
        Form::As4Path => content(!value.is_empty() && as_path::is_valid(value, 4, true)),
        Form::As4Aggregator => check_aggregator(rule, Aggregator::from_value(value)),
        Form::AttrSet => match split_attr_set(value) {
            Some(block) => content(is_attr_set(block, ATTR_SET_DEPTH)),
            None => length(false),
        },
        Form::PmsiTunnel => length(forms::is_pmsi_tunnel(value)),
        Form::PeDistinguisherLabels => length(forms::is_pe_distinguisher_labels(value)),
        Form::TunnelEncapsulation => length(forms::is_tunnels(value)),
        Form::TrafficEngineering => length(value.len() >= 36),
        Form::Sfp => length(forms::is_sfp(value)),
        Form::Aigp if forms::has_greatest_metric(value) => content(false),
        Form::Aigp => length(forms::is_aigp(value)),
        Form::WideTlvs => length(forms::is_wide_tlvs(value)),
        Form::BgpsecPath => length(forms::is_bgpsec_path(value)),
        Form::DomainPath if forms::is_domain_path(value) => AttributeOutcome::Unexpected(FaultKind::Family),
        Form::DomainPath => length(false),
        Form::BfdDiscriminator => length(forms::is_bfd_discriminator(value)),
        Form::PrefixSid => match forms::prefix_sid(value) {
            PrefixSid::Valid => AttributeOutcome::Keep,
            PrefixSid::Malformed => length(false),
            PrefixSid::MalformedService => AttributeOutcome::Withdraw(FaultKind::Length),
        },
    }
}

/// Whether an empty value is right, or its own arm has the outcome for it.
fn may_be_empty(form: Form) -> bool {
    use Form::{As4Aggregator, As4Path, AsPath, Empty, MpReach, MpUnreach};
    matches!(form, AsPath | Empty | MpReach | MpUnreach | As4Path | As4Aggregator)
}

#[inline]
fn outcome_of(rule: &Rule, fits: bool, kind: FaultKind) -> AttributeOutcome {
    if fits { AttributeOutcome::Keep } else { rule.malformed.of(kind) }
}

fn check_aggregator(rule: &Rule, aggregator: Option<Aggregator>) -> AttributeOutcome {
    match aggregator {
        None => rule.malformed.of(FaultKind::Length),
        // RFC 7607: zero is no AS number.
        Some(Aggregator { asn: 0, .. }) => rule.malformed.of(FaultKind::Value),
        Some(_) => AttributeOutcome::Keep,
    }
}

/// Nested ATTR_SETs, at most: each level is a VPN that carries another. Deeper ones are malformed,
/// so a sender cannot choose the depth of a check.
const ATTR_SET_DEPTH: u8 = 8;

/// The attributes after the origin AS.
fn split_attr_set(value: &[u8]) -> Option<&[u8]> {
    value.split_first_chunk::<4>().map(|(_asn, block)| block)
}

/// Whether `block` can be in an ATTR_SET: whole attributes of an internal route, with four-octet AS numbers, no
/// MP_REACH_NLRI or MP_UNREACH_NLRI, and none "malformed themselves"; NEXT_HOP is ignored (RFC 6368 section 5).
fn is_attr_set(block: &[u8], depth: u8) -> bool {
    const INSIDE: UpdateContext = UpdateContext { confederation: true, ..UpdateContext::new(true, false) };
    let mut attributes = Attributes::new(block);
    let fine = attributes.by_ref().all(|attribute| match attribute.code {
        code::NEXT_HOP => true,
        code::ATTR_SET => {
            attribute.flags & (flags::OPTIONAL | flags::TRANSITIVE) == flags::OPTIONAL | flags::TRANSITIVE
                && depth > 1
                && split_attr_set(attribute.value).is_some_and(|block| is_attr_set(block, depth - 1))
        }
        _ => matches!(
            check(&attribute, &INSIDE),
            AttributeOutcome::Keep
                | AttributeOutcome::Discard(FaultKind::FourOctet)
                | AttributeOutcome::Unexpected(_)
        ),
    });
    fine && attributes.remainder().is_empty()
}
