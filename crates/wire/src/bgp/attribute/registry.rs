//! IANA's registry "BGP Path Attributes" as one table: the flags of each attribute, the form of its
//! value, and the outcome of a malformed one. Attributes with error handling in their RFC are rows
//! even if ribtide does not use them: a malformed one that is passed on would reset a peer's
//! session or lose its routes.
//!
//! The outcome is that of the attribute's own RFC; where that has none, or demands a session reset, it is RFC 7606's
//! (section 7 by attribute, else section 2's treat-as-withdraw). Wrong flags are treated as withdrawal (section 3 (c))
//! unless the attribute's own RFC says otherwise.

use super::{code, flags};

/// The outcome of a malformed attribute (RFC 7606 section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// "Treat-as-withdraw".
    Withdraw,
    /// "Attribute discard".
    Discard,
    /// "Session reset".
    Reset,
}

/// The form of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Anything.
    Any,
    /// Nothing.
    Empty,
    /// Four bytes.
    Word,
    /// One or more items of so many bytes.
    List(u8),
    /// 0, 1 or 2 (RFC 4271 section 5.1.1).
    Origin,
    /// Segments with the session's size of AS numbers.
    AsPath,
    /// An AS number of the session's size, and an address.
    Aggregator,
    /// Segments with four-octet AS numbers, only from a two-octet speaker.
    As4Path,
    /// A four-octet AS number and an address, only from a two-octet speaker.
    As4Aggregator,
    /// Parsed separately.
    MpReach,
    /// Parsed separately.
    MpUnreach,
    /// Flags, tunnel type, label, and a tunnel identifier.
    PmsiTunnel,
    /// Addresses of one family with a label each.
    PeDistinguisherLabels,
    /// Tunnel TLVs of whole sub-TLVs.
    TunnelEncapsulation,
    /// TLVs whose length counts type and length.
    Aigp,
    /// TLVs with two bytes of type and two of length.
    WideTlvs,
    /// An Interface Switching Capability Descriptor.
    TrafficEngineering,
    /// Secure_Path and Signature_Blocks.
    BgpsecPath,
    /// Association TLVs and Hop TLVs.
    Sfp,
    /// Mode, discriminator, TLVs.
    BfdDiscriminator,
    /// Segments of domains, which no unicast route may have.
    DomainPath,
    /// TLVs with one byte of type and two of length.
    PrefixSid,
    /// An AS number and attributes.
    AttrSet,
}

/// The use of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// ribtide uses it, and sends it as its RFC requires.
    Ours,
    /// The same, but only from the own AS; from another AS it is discarded.
    Internal,
    /// Other programs use it: checked, then passed on or dropped as unrecognized (RFC 4271 section
    /// 5).
    Others,
    /// The same within one administration: discarded from external peers.
    Scoped,
    /// The same within one Segment Routing domain: discarded from external peers outside it.
    SrDomain,
    /// ribtide uses it within one AIGP administrative domain. From peers outside, it is an unrecognized attribute.
    AigpDomain,
    /// No RFC, or only a draft: not checked.
    Unknown,
}

struct Row {
    code: u8,
    name: &'static str,
    flags: u8,
    form: Form,
    malformed: Outcome,
    wrong_flags: Outcome,
    of: Use,
}

const WELL_KNOWN: u8 = flags::TRANSITIVE;
const LINK: u8 = flags::OPTIONAL;
const TRANSITIVE: u8 = flags::OPTIONAL | flags::TRANSITIVE;

const fn row(
    code: u8,
    name: &'static str,
    flags: u8,
    form: Form,
    (malformed, wrong_flags): (Outcome, Outcome),
    of: Use,
) -> Row {
    Row { code, name, flags, form, malformed, wrong_flags, of }
}

/// Deprecated, reserved or a draft's: only its name is known.
const fn unknown(code: u8, name: &'static str) -> Row {
    row(code, name, 0, Form::Any, WITHDRAW, Use::Unknown)
}

const WITHDRAW: (Outcome, Outcome) = (Outcome::Withdraw, Outcome::Withdraw);
/// The RFC discards both a malformed value and a set transitive flag.
const DISCARD: (Outcome, Outcome) = (Outcome::Discard, Outcome::Discard);
const RESET: (Outcome, Outcome) = (Outcome::Reset, Outcome::Reset);
/// The RFC discards a malformed value and does not mention flags.
const DISCARD_VALUE: (Outcome, Outcome) = (Outcome::Discard, Outcome::Withdraw);

/// The registry. Codes that are not here are unassigned, or deprecated without a name (RFC 8093: 30, 31, 129,
/// 241 to 243).
#[rustfmt::skip]
const ROWS: &[Row] = &[
    // RFC 7606 sections 7.1 to 7.7 for these seven.
    row(code::ORIGIN, "ORIGIN", WELL_KNOWN, Form::Origin, WITHDRAW, Use::Ours),
    row(code::AS_PATH, "AS_PATH", WELL_KNOWN, Form::AsPath, WITHDRAW, Use::Ours),
    row(code::NEXT_HOP, "NEXT_HOP", WELL_KNOWN, Form::Word, WITHDRAW, Use::Ours),
    row(code::MED, "MULTI_EXIT_DISC", LINK, Form::Word, WITHDRAW, Use::Ours),
    row(code::LOCAL_PREF, "LOCAL_PREF", WELL_KNOWN, Form::Word, WITHDRAW, Use::Internal),
    row(code::ATOMIC_AGGREGATE, "ATOMIC_AGGREGATE", WELL_KNOWN, Form::Empty, DISCARD_VALUE, Use::Ours),
    row(code::AGGREGATOR, "AGGREGATOR", TRANSITIVE, Form::Aggregator, DISCARD_VALUE, Use::Ours),
    // RFC 1997; RFC 7606 section 7.8.
    row(code::COMMUNITIES, "COMMUNITIES", TRANSITIVE, Form::List(4), WITHDRAW, Use::Ours),
    // RFC 4456 section 8; RFC 7606 sections 7.9 and 7.10.
    row(code::ORIGINATOR_ID, "ORIGINATOR_ID", LINK, Form::Word, WITHDRAW, Use::Internal),
    row(code::CLUSTER_LIST, "CLUSTER_LIST", LINK, Form::List(4), WITHDRAW, Use::Internal),
    // RFC 6938.
    unknown(11, "DPA"),
    unknown(12, "ADVERTISER"),
    unknown(13, "RCID_PATH"),
    // RFC 4760; RFC 7606 sections 5.3, 7.11 and 7.12.
    row(code::MP_REACH_NLRI, "MP_REACH_NLRI", LINK, Form::MpReach, RESET, Use::Ours),
    row(code::MP_UNREACH_NLRI, "MP_UNREACH_NLRI", LINK, Form::MpUnreach, RESET, Use::Ours),
    // RFC 4360; RFC 7606 section 7.14.
    row(code::EXTENDED_COMMUNITIES, "EXTENDED_COMMUNITIES", TRANSITIVE, Form::List(8), WITHDRAW, Use::Ours),
    // RFC 6793 section 6.
    row(code::AS4_PATH, "AS4_PATH", TRANSITIVE, Form::As4Path, DISCARD_VALUE, Use::Ours),
    row(code::AS4_AGGREGATOR, "AS4_AGGREGATOR", TRANSITIVE, Form::As4Aggregator, DISCARD_VALUE, Use::Ours),
    unknown(19, "SSA"),
    // RFC 6037, historic.
    unknown(20, "CONNECTOR"),
    unknown(21, "AS_PATHLIMIT"),
    // RFC 6514 section 5.
    row(22, "PMSI_TUNNEL", TRANSITIVE, Form::PmsiTunnel, WITHDRAW, Use::Others),
    // RFC 9012 section 13, for flags too; section 11 filters it in both directions of external sessions.
    row(code::TUNNEL_ENCAPSULATION, "TUNNEL_ENCAPSULATION", TRANSITIVE, Form::TunnelEncapsulation, WITHDRAW, Use::Scoped),
    // RFC 5543 section 3; RFC 7606 section 7.13.
    row(24, "TRAFFIC_ENGINEERING", LINK, Form::TrafficEngineering, WITHDRAW, Use::Others),
    // RFC 5701; RFC 7606 section 7.15.
    row(code::IPV6_EXTENDED_COMMUNITIES, "IPV6_EXTENDED_COMMUNITIES", TRANSITIVE, Form::List(20), WITHDRAW, Use::Ours),
    // RFC 7311 section 3.2: malformed, and with the transitive flag, it is ignored and not passed on. Section 3.3 does the
    // same with a well-formed one, on sessions without AIGP.
    row(code::AIGP, "AIGP", LINK, Form::Aigp, DISCARD, Use::AigpDomain),
    // RFC 6514 section 8.
    row(27, "PE_DISTINGUISHER_LABELS", TRANSITIVE, Form::PeDistinguisherLabels, WITHDRAW, Use::Others),
    // RFC 7447: must not be evaluated.
    unknown(28, "ENTROPY_LABEL_CAPABILITY"),
    // RFC 9552 section 8.2.2.
    row(29, "BGP_LS", LINK, Form::WideTlvs, DISCARD_VALUE, Use::Others),
    // RFC 8092 section 6.
    row(code::LARGE_COMMUNITIES, "LARGE_COMMUNITIES", TRANSITIVE, Form::List(12), WITHDRAW, Use::Ours),
    // RFC 8205 section 5.2.
    row(33, "BGPSEC_PATH", LINK, Form::BgpsecPath, WITHDRAW, Use::Others),
    unknown(34, "COMMUNITY_CONTAINER"),
    // RFC 9234 section 5.
    row(code::OTC, "OTC", TRANSITIVE, Form::Word, WITHDRAW, Use::Ours),
    // RFC 10039 section 4: malformed, and with routes of any SAFI but 70 and 128.
    row(36, "D_PATH", TRANSITIVE, Form::DomainPath, WITHDRAW, Use::Others),
    // RFC 9015 section 3.2.1.
    row(37, "SFP", TRANSITIVE, Form::Sfp, WITHDRAW, Use::Others),
    // RFC 9026 section 3.1.6.
    row(38, "BFD_DISCRIMINATOR", TRANSITIVE, Form::BfdDiscriminator, DISCARD_VALUE, Use::Others),
    unknown(39, "NEXT_HOP_CHARACTERISTICS"),
    // RFC 8669 section 6; RFC 9252 section 7 withdraws for its own TLVs. RFC 8669 sections 4 and 5 filter it in both
    // directions of external sessions, unless the peer is configured to be inside the SR domain.
    row(code::PREFIX_SID, "PREFIX_SID", TRANSITIVE, Form::PrefixSid, DISCARD_VALUE, Use::SrDomain),
    // RFC 9793 section 3. It has no effect on the selection of unicast routes (RFC 7606 section 2).
    row(41, "BIER", TRANSITIVE, Form::WideTlvs, DISCARD_VALUE, Use::Others),
    // RFC 6368 section 5; RFC 7606 section 7.16.
    row(code::ATTR_SET, "ATTR_SET", TRANSITIVE, Form::AttrSet, WITHDRAW, Use::Ours),
    // RFC 2042.
    unknown(255, "DEVELOPMENT"),
];

/// The peers whose attribute is used; from others it is discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// All.
    Any,
    /// Those of the own AS.
    Internal,
    /// Those of the own AS, and external ones inside the Segment Routing domain.
    SrDomain,
    /// Those inside the AIGP administrative domain.
    AigpDomain,
}

/// The parser's rule for a code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// The optional and transitive flags that it must have.
    pub(crate) flags: u8,
    pub(crate) form: Form,
    pub(crate) malformed: Outcome,
    pub(crate) wrong_flags: Outcome,
    /// Whether its errors are known: else it is an unrecognized attribute.
    pub(crate) checked: bool,
    /// Whether it is kept as a recognized attribute.
    pub(crate) ours: bool,
    /// The peers whose attribute is used.
    pub(crate) scope: Scope,
    /// The flags that a kept one may have. RFC 4271 section 4.3: the partial bit of a well-known or of an optional
    /// non-transitive attribute must be 0. RFC 7606 section 3 (c) makes only the optional and transitive bits a fault,
    /// so such a bit is cleared, and neither costs the route here nor a session behind us.
    pub(crate) sent_flags: u8,
}

static RULES: [Rule; 256] = rules();
const UNKNOWN: Rule = Rule {
    flags: 0,
    form: Form::Any,
    malformed: Outcome::Withdraw,
    wrong_flags: Outcome::Withdraw,
    checked: false,
    ours: false,
    scope: Scope::Any,
    sent_flags: flags::OPTIONAL | flags::TRANSITIVE | flags::PARTIAL,
};

#[allow(clippy::indexing_slicing, reason = "evaluated while compiling")]
const fn rules() -> [Rule; 256] {
    let mut rules = [UNKNOWN; 256];
    let mut at = 0;
    while at < ROWS.len() {
        let row = &ROWS[at];
        if !matches!(row.of, Use::Unknown) {
            let partial = if row.flags == TRANSITIVE { flags::PARTIAL } else { 0 };
            rules[row.code as usize] = Rule {
                flags: row.flags,
                form: row.form,
                malformed: row.malformed,
                wrong_flags: row.wrong_flags,
                checked: true,
                ours: matches!(row.of, Use::Ours | Use::Internal | Use::AigpDomain),
                scope: match row.of {
                    Use::Internal | Use::Scoped => Scope::Internal,
                    Use::SrDomain => Scope::SrDomain,
                    Use::AigpDomain => Scope::AigpDomain,
                    Use::Ours | Use::Others | Use::Unknown => Scope::Any,
                },
                sent_flags: row.flags | partial,
            };
        }
        at += 1;
    }
    rules
}

/// The rule for a code.
#[inline]
pub(crate) fn rule(code: u8) -> &'static Rule {
    RULES.get(usize::from(code)).unwrap_or(&UNKNOWN)
}

/// The optional and transitive flags that an attribute which ribtide recognizes must have, or `None` for any other.
#[inline]
pub fn expected_flags(code: u8) -> Option<u8> {
    let rule = rule(code);
    rule.ours.then_some(rule.flags)
}

/// The name of an attribute, as RFCs write it.
pub fn name(code: u8) -> Option<&'static str> {
    ROWS.iter().find(|row| row.code == code).map(|row| row.name)
}

/// The code of an attribute by its name, in any case, with dashes or underscores: `large-communities`.
pub fn code_of(name: &str) -> Option<u8> {
    let same = |c: char| if c == '-' { '_' } else { c.to_ascii_uppercase() };
    ROWS.iter().find(|row| name.chars().map(same).eq(row.name.chars())).map(|row| row.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ascend_and_have_names_that_are_found_again() {
        assert!(ROWS.is_sorted_by(|a, b| a.code < b.code));
        for row in ROWS {
            assert_eq!((name(row.code), code_of(row.name)), (Some(row.name), Some(row.code)));
        }
        assert_eq!(code_of("large-communities"), Some(code::LARGE_COMMUNITIES));
        assert_eq!(code_of("Prefix_SID"), Some(40));
        assert_eq!((code_of("nothing"), name(99)), (None, None));
    }

    #[test]
    fn only_optional_transitive_attributes_may_be_partial() {
        for code in 0..=255 {
            let rule = rule(code);
            let may = rule.sent_flags & flags::PARTIAL != 0;
            assert_eq!(may, !rule.checked || rule.flags == TRANSITIVE, "{code}");
        }
        assert_eq!(expected_flags(37), None, "checked, and still not recognized");
        assert_eq!(expected_flags(code::MED), Some(flags::OPTIONAL));
    }
}
