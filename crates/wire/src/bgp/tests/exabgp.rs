//! ExaBGP as a judge of the encodings: for every route that a command of its own names, ribtide writes what ExaBGP
//! writes, and reads it back to the same. The messages are those of ExaBGP's encoding tests, where they are present, and
//! those that `scripts/exabgp-vectors` recorded.

mod command;

use super::vectors::{Vector, files, read_file};
use crate::bgp::attribute::{Attribute, Attributes, code, expected_flags, flags};
use crate::bgp::capability::Capability;
use crate::bgp::message::{MAX_EXTENDED_LEN, MAX_LEN, MessageType, frame};
use crate::bgp::nlri::{Nlri, PathPrefix};
use crate::bgp::open::{Open, OpenBuilder};
use crate::bgp::update::{Disposition, Update, UpdateContext, parse};
use crate::bgp::{NextHop, Notification, build};
use command::Command;
use ribtide_prefix::{FamilySet, Prefix, for_each_bgp_family};

/// How many messages of a file had which outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Outcomes {
    /// The same bytes.
    same: usize,
    /// The same but for the form: order of attributes, shorter length field, one parameter of all capabilities.
    form: usize,
    /// ribtide does not take it.
    refused: usize,
    /// There is nothing to compare.
    left_out: usize,
}

enum Outcome {
    Same,
    Form,
    Refused,
    LeftOut,
}

const fn outcomes(same: usize, form: usize, refused: usize, left_out: usize) -> Outcomes {
    Outcomes { same, form, refused, left_out }
}

const NO_MESSAGES: Outcomes = outcomes(0, 0, 0, 0);
const NO_SUCH_FAMILY: &str = "ribtide does not have the family";

/// Every file of ExaBGP's tests, with the outcomes of its messages, and the reason of those that are not compared. A file
/// that is not here fails the test, and so does another outcome.
const FILES: &[(&str, Outcomes, &str)] = &[
    ("qa_encoding_conf-addpath.ci", outcomes(1, 0, 0, 1), NO_SUCH_FAMILY),
    ("qa_encoding_conf-aggregator.ci", outcomes(1, 0, 0, 0), ""),
    (
        "qa_encoding_conf-attributes.ci",
        outcomes(1, 1, 1, 0),
        "the next hop 255.255.255.255 is no host (RFC 4271 section 6.3)",
    ),
    ("qa_encoding_conf-cap-link-local-nexthop.ci", outcomes(0, 1, 0, 0), ""),
    ("qa_encoding_conf-cap-software-version.ci", outcomes(0, 1, 0, 0), ""),
    ("qa_encoding_conf-ebgp.ci", outcomes(2, 0, 0, 0), ""),
    ("qa_encoding_conf-extended-attributes.ci", outcomes(16, 1, 0, 0), ""),
    ("qa_encoding_conf-flow-redirect.ci", outcomes(0, 0, 0, 8), NO_SUCH_FAMILY),
    ("qa_encoding_conf-flow.ci", outcomes(0, 0, 0, 17), NO_SUCH_FAMILY),
    (
        "qa_encoding_conf-generic-attribute.ci",
        outcomes(1, 0, 2, 0),
        "an unknown attribute without the optional flag is well-known (RFC 4271 section 6.3)",
    ),
    ("qa_encoding_conf-group-limit.ci", outcomes(2, 3, 0, 0), ""),
    ("qa_encoding_conf-group.ci", outcomes(5, 0, 0, 0), ""),
    ("qa_encoding_conf-hostname.ci", outcomes(0, 1, 0, 0), ""),
    ("qa_encoding_conf-ipself4.ci", outcomes(2, 0, 0, 0), ""),
    ("qa_encoding_conf-ipself6.ci", outcomes(0, 2, 0, 0), ""),
    ("qa_encoding_conf-ipv46routes4family.ci", outcomes(1, 0, 0, 0), ""),
    ("qa_encoding_conf-ipv46routes6family.ci", outcomes(0, 2, 0, 0), ""),
    ("qa_encoding_conf-ipv6grouping.ci", outcomes(0, 2, 0, 0), ""),
    ("qa_encoding_conf-l2vpn.ci", outcomes(0, 0, 0, 4), NO_SUCH_FAMILY),
    ("qa_encoding_conf-largecommunity.ci", outcomes(3, 0, 0, 0), ""),
    ("qa_encoding_conf-llnh-lla-only.ci", outcomes(0, 2, 0, 0), ""),
    ("qa_encoding_conf-llnh-update.ci", outcomes(0, 2, 0, 0), ""),
    ("qa_encoding_conf-mvpn.ci", outcomes(0, 0, 0, 4), NO_SUCH_FAMILY),
    ("qa_encoding_conf-name.ci", outcomes(2, 0, 0, 0), ""),
    ("qa_encoding_conf-new-v4.ci", outcomes(6, 0, 0, 0), ""),
    ("qa_encoding_conf-new-v6.ci", outcomes(0, 3, 0, 0), ""),
    ("qa_encoding_conf-no-asn4.ci", outcomes(1, 0, 0, 0), ""),
    ("qa_encoding_conf-parity.ci", outcomes(0, 0, 0, 3), NO_SUCH_FAMILY),
    ("qa_encoding_conf-path-information.ci", outcomes(4, 0, 0, 0), ""),
    ("qa_encoding_conf-prefix-sid.ci", outcomes(0, 0, 0, 2), NO_SUCH_FAMILY),
    ("qa_encoding_conf-split.ci", outcomes(9, 0, 0, 0), ""),
    ("qa_encoding_conf-sr-policy.ci", outcomes(0, 0, 0, 6), NO_SUCH_FAMILY),
    ("qa_encoding_conf-srv6-mup-v3.ci", outcomes(0, 0, 0, 2), NO_SUCH_FAMILY),
    ("qa_encoding_conf-srv6-mup.ci", outcomes(0, 0, 0, 12), NO_SUCH_FAMILY),
    ("qa_encoding_conf-template.ci", outcomes(5, 0, 0, 0), ""),
    ("qa_encoding_conf-unknowncap.ci", outcomes(1, 0, 0, 0), ""),
    ("qa_encoding_conf-vpn.ci", outcomes(0, 0, 0, 4), NO_SUCH_FAMILY),
    ("qa_encoding_conf-watchdog.ci", outcomes(9, 0, 0, 0), ""),
    (
        "qa_encoding_extended-nexthop.ci",
        outcomes(1, 2, 1, 2),
        "IPv6 routes with an IPv4 next hop need a capability that ribtide does not have (RFC 8950 is the other way round); \
         ribtide does not have the family mpls-vpn",
    ),
    ("qa_encoding_skip-large-mp.conf", NO_MESSAGES, "a configuration without messages, of mpls-vpn"),
    ("qa_encoding_skip-large.conf", NO_MESSAGES, "a configuration without messages"),
    ("qa_encoding_unknown-message.ci", outcomes(1, 0, 0, 0), ""),
];

/// What ExaBGP 4.2.21 wrote to `scripts/exabgp-vectors`.
const RECORDED: &[(&str, &str, Outcomes, &str)] = &[
    ("add-path.ci", include_str!("exabgp/add-path.ci"), outcomes(5, 5, 0, 0), ""),
    ("extended-message.ci", include_str!("exabgp/extended-message.ci"), outcomes(3, 2, 0, 0), ""),
    ("four-octet.ci", include_str!("exabgp/four-octet.ci"), outcomes(13, 13, 0, 0), ""),
    ("two-octet.ci", include_str!("exabgp/two-octet.ci"), outcomes(7, 9, 0, 0), ""),
];

/// The session of a vector.
#[derive(Clone, Copy)]
struct Session {
    four_octet_as: bool,
    extended_message: bool,
}

#[test]
fn exabgp_files_have_the_outcomes_of_the_table() {
    let Some(files) = files() else {
        println!(
            "skipped: no ExaBGP vectors; set RIBTIDE_DATA to the directory that has wire/exabgp-encoding"
        );
        return;
    };
    let name = |path: &std::path::PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let listed: Vec<_> = FILES.iter().map(|(name, ..)| name.to_string()).collect();
    assert_eq!(files.iter().map(name).collect::<Vec<_>>(), listed, "each file has a row of the table");
    let mut wrong = Vec::new();
    for (path, (name, expected, reason)) in files.iter().zip(FILES) {
        let session = Session { four_octet_as: !name.contains("no-asn4"), extended_message: false };
        let is_messages = path.extension().is_some_and(|e| e == "ci");
        let content = if is_messages { std::fs::read_to_string(path).unwrap() } else { String::new() };
        check(name, &content, session, *expected, reason, &mut wrong);
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn recorded_messages_have_the_outcomes_of_the_table() {
    let mut wrong = Vec::new();
    for (name, content, expected, reason) in RECORDED {
        let session = Session {
            four_octet_as: !name.contains("two-octet"),
            extended_message: name.contains("extended-message"),
        };
        check(name, content, session, *expected, reason, &mut wrong);
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Compares the messages of a file.
fn check(
    name: &str,
    content: &str,
    session: Session,
    expected: Outcomes,
    reason: &str,
    wrong: &mut Vec<String>,
) {
    let mut found = Outcomes::default();
    for vector in read_file(name, content) {
        match compare(&vector, session) {
            Outcome::Same => found.same += 1,
            Outcome::Form => found.form += 1,
            Outcome::Refused => found.refused += 1,
            Outcome::LeftOut => found.left_out += 1,
        }
    }
    if found != expected {
        wrong.push(format!("{name}: {found:?}"));
    }
    let needs_reason = found.refused + found.left_out > 0 || found == NO_MESSAGES;
    assert_eq!(needs_reason, !reason.is_empty(), "{name}: the reason of what is not compared");
}

/// Compares one message.
///
/// # Panics
/// If ribtide writes or reads something else than ExaBGP.
fn compare(vector: &Vector, session: Session) -> Outcome {
    let Vector { text, message, .. } = vector;
    let max_len = if session.extended_message { MAX_EXTENDED_LEN } else { MAX_LEN };
    let frame = frame(message, max_len).unwrap().expect("a whole message");
    assert_eq!(frame.total_len, message.len(), "{text}");
    match frame.kind {
        MessageType::Open => compare_open(vector, frame.body),
        MessageType::Notification => {
            let mut written = Vec::new();
            Notification::parse(frame.body).write(&mut written);
            same_or_form(text, message, &written)
        }
        MessageType::Update => compare_update(vector, frame.body, session),
        kind => panic!("{text}: {kind:?}"),
    }
}

fn compare_open(vector: &Vector, body: &[u8]) -> Outcome {
    let Vector { text, message, .. } = vector;
    let open = Open::parse(body).unwrap();
    let capabilities: Vec<Capability<'_>> = open.capabilities().collect();
    let mut written = Vec::new();
    let Open { hold_time, router_id, .. } = open;
    OpenBuilder { asn: open.asn(), hold_time, router_id, capabilities: &capabilities }.write(&mut written);
    if written == *message {
        return Outcome::Same;
    }
    // One parameter for each capability, or one for all: RFC 5492 section 4 allows both.
    let again = frame(&written, MAX_LEN).unwrap().unwrap().body;
    assert_eq!(values_of_capabilities(body), values_of_capabilities(again), "{text}");
    assert_eq!(body[..9], again[..9], "{text}");
    assert_eq!(Open::parse(again).unwrap().capabilities().collect::<Vec<_>>(), capabilities, "{text}");
    Outcome::Form
}

/// The capabilities of an OPEN with one-byte lengths, without the headers of their parameters.
fn values_of_capabilities(body: &[u8]) -> Vec<u8> {
    let mut rest = &body[10..];
    let mut values = Vec::new();
    while let [2, len, after @ ..] = rest {
        let (value, after) = after.split_at(usize::from(*len));
        values.extend_from_slice(value);
        rest = after;
    }
    assert_eq!(rest, [0u8; 0]);
    values
}

fn compare_update(vector: &Vector, body: &[u8], session: Session) -> Outcome {
    let Vector { text, message, command, .. } = vector;
    let Some(command) = command.as_deref().and_then(command::parse) else {
        assert!(!is_ours(body), "{text}: there is no command for it");
        return Outcome::LeftOut;
    };
    let Session { four_octet_as, extended_message } = session;
    let has_ids = matches!(&command, Command::Announce(announcement) if announcement.path_id.is_some());
    let path_ids = if has_ids { FamilySet::ALL } else { FamilySet::NONE };
    let ctx = UpdateContext { path_ids, ..UpdateContext::new(four_octet_as, false) };
    let update = match parse(body, &ctx) {
        Ok(update) if update.disposition() == Disposition::Normal => update,
        // The table has the reason.
        Ok(_) | Err(_) => return Outcome::Refused,
    };
    let written = match command {
        Command::Announce(mut announcement) => {
            // ExaBGP adds its link-local address to the next hop of the command.
            let read = next_hop(&update);
            assert_eq!(read.map(NextHop::addr), Some(announcement.next_hop.addr()), "{text}");
            announcement.next_hop = read.unwrap();
            assert!(!announcement.is_ipv6() || matches!(announcement.next_hop, NextHop::V6 { .. }), "{text}");
            Command::Announce(announcement).write(four_octet_as, extended_message)
        }
        Command::EndOfRib(family) => {
            assert_eq!(update.end_of_rib(), Some(family), "{text}");
            Command::EndOfRib(family).write(four_octet_as, extended_message)
        }
        command @ Command::Withdraw(_) => command.write(four_octet_as, extended_message),
    };
    let outcome = same_or_form(text, message, &written);
    read_back(text, &update, message, extended_message);
    outcome
}

/// Whether an UPDATE has a family that ribtide has.
fn is_ours(body: &[u8]) -> bool {
    let (withdrawn, attributes, nlri) = fields(body);
    let unicast = |attribute: Attribute<'_>| match attribute.code {
        code::MP_REACH_NLRI | code::MP_UNREACH_NLRI => matches!(attribute.value, [0, 1 | 2, 1, ..]),
        _ => false,
    };
    let mut mp =
        Attributes::new(attributes).filter(|a| matches!(a.code, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI));
    !withdrawn.is_empty() || !nlri.is_empty() || mp.next().is_none_or(unicast)
}

fn next_hop(update: &Update<'_>) -> Option<NextHop> {
    let mut found = None;
    for_each_bgp_family!(F => found = found.or(update.next_hop::<F>()));
    found
}

/// Asserts that `written` is `message`, but for its form.
fn same_or_form(text: &str, message: &[u8], written: &[u8]) -> Outcome {
    if written == message {
        return Outcome::Same;
    }
    let [left, right] = [message, written].map(|message| {
        let frame = frame(message, MAX_EXTENDED_LEN).unwrap().unwrap();
        assert_eq!(frame.total_len, message.len(), "{text}: one message");
        assert_eq!(frame.kind, MessageType::Update, "{text}");
        in_one_form(frame.body)
    });
    assert_eq!(left, right, "{text}");
    Outcome::Form
}

/// Withdrawn routes, attributes and routes of an UPDATE.
fn fields(body: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let split = |body: &[u8]| {
        let (len, rest) = body.split_first_chunk::<2>().unwrap();
        rest.len().checked_sub(usize::from(u16::from_be_bytes(*len))).map(|after| rest.len() - after).unwrap()
    };
    let withdrawn = split(body);
    let rest = &body[2 + withdrawn..];
    let attributes = split(rest);
    (&body[2..2 + withdrawn], &rest[2..2 + attributes], &rest[2 + attributes..])
}

/// The flags but that of the length, code and value of an attribute.
type Plain = (u8, u8, Vec<u8>);

/// The parts of an UPDATE, in which the length of an attribute has no form (RFC 4271 section 4.3). ribtide orders attributes by
/// their codes (section 5), with MP_REACH_NLRI and MP_UNREACH_NLRI first (RFC 7606 section 5.1). ExaBGP has these last, and
/// AS4_PATH and AS4_AGGREGATOR behind what they belong to. A receiver takes any order.
fn in_one_form(body: &[u8]) -> (Vec<u8>, Vec<Plain>, Vec<u8>) {
    let (withdrawn, attributes, nlri) = fields(body);
    let plain = |a: Attribute<'_>| (a.flags & !flags::EXTENDED_LENGTH, a.code, a.value.to_vec());
    let mut attributes: Vec<Plain> = Attributes::new(attributes).map(plain).collect();
    attributes.sort_by_key(|(_, code, _)| *code);
    (withdrawn.to_vec(), attributes, nlri.to_vec())
}

/// Writes again what was read of `message`, and compares it; then what is kept of the attributes.
fn read_back(text: &str, update: &Update<'_>, message: &[u8], extended_message: bool) {
    let is_route = |code| matches!(code, code::NEXT_HOP | code::MP_REACH_NLRI | code::MP_UNREACH_NLRI);
    let received = Attributes::new(update.raw_attributes()).filter(|a| !is_route(a.code));
    let mut block = Vec::new();
    received.clone().for_each(|a| build::attribute(&mut block, a.flags, a.code, a.value));
    let max_len = if extended_message { MAX_EXTENDED_LEN } else { MAX_LEN };
    let mut out = Vec::new();
    for_each_bgp_family!(F => {
        write::<Prefix<F>>(update, &block, max_len, &mut out);
        write::<PathPrefix<F>>(update, &block, max_len, &mut out);
    });
    if let Some(family) = update.end_of_rib() {
        build::end_of_rib(family, &mut out);
    }
    same_or_form(text, message, &out);
    assert_eq!(update.discarded(), [], "{text}");
    // RFC 4271 section 5: what is not recognized is passed on as partial if it is transitive, and else dropped. AS4_PATH
    // and AS4_AGGREGATOR are merged (RFC 6793 section 4.2.3).
    let kept: Vec<u8> = update.attributes().map(|a| a.code).collect();
    let merged = |code| matches!(code, code::AS4_PATH | code::AS4_AGGREGATOR);
    let passes = |a: &Attribute<'_>| expected_flags(a.code).is_some() || a.flags & flags::TRANSITIVE != 0;
    let expected: Vec<u8> = received.filter(|a| passes(a) && !merged(a.code)).map(|a| a.code).collect();
    assert_eq!(kept, expected, "{text}");
    for attribute in update.attributes().filter(|a| expected_flags(a.code).is_none()) {
        assert_ne!(attribute.flags & flags::PARTIAL, 0, "{text}");
    }
}

fn write<N: Nlri + PartialEq + std::fmt::Debug>(
    update: &Update<'_>,
    attributes: &[u8],
    max_len: usize,
    out: &mut Vec<u8>,
) {
    if let Some(next_hop) = update.next_hop::<N::Family>() {
        let packer = build::UpdatePacker::new(attributes, next_hop, max_len);
        packer.announce(update.announced_nlri::<N>(), out).unwrap();
    }
    build::withdraw(update.withdrawn_nlri::<N>(), max_len, out);
}
