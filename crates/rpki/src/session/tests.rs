//! The exchanges of RFC 8210 section 8, and what a cache may do wrong.

use super::*;
use crate::records::Records;
use proptest::prelude::*;
use ribtide_prefix::{V4, V6};
use ribtide_wire::rtr::Payload;

const DAY: Duration = Duration::from_secs(86_400);

fn bytes(version: u8, pdus: &[Pdu<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pdus.iter().for_each(|pdu| pdu.write(version, &mut bytes));
    bytes
}

fn record(announce: bool, prefix: &str, asn: u32) -> Pdu<'static> {
    let prefix: ribtide_prefix::AnyPrefix = prefix.parse().unwrap();
    Pdu::Prefix { announce, payload: Payload { prefix, max_len: prefix.len(), asn } }
}

const INTERVALS: Intervals = Intervals { refresh: 100, retry: 50, expire: 700 };

fn end(session: u16, serial: u32) -> Pdu<'static> {
    Pdu::EndOfData { session, serial, intervals: Some(INTERVALS) }
}

fn at(seconds: u64) -> Duration {
    DAY + Duration::from_secs(seconds)
}

fn sent(version: u8, pdu: Pdu<'_>) -> Effect {
    Effect::Send(bytes(version, &[pdu]))
}

/// The codes of the Error Reports among the effects.
fn reports(effects: &[Effect]) -> Vec<u16> {
    let code = |effect: &Effect| match effect {
        Effect::Send(bytes) if bytes[1] == 10 => Some(u16::from_be_bytes([bytes[2], bytes[3]])),
        _ => None,
    };
    effects.iter().filter_map(code).collect()
}

/// A session with a connection and an open Reset Query.
fn connected(version: u8) -> Session {
    let mut session = Session::new(Overrides::default(), at(0));
    session.version = version;
    assert_eq!(session.tick(at(0)), [Effect::Connect]);
    assert_eq!(session.connected(at(0)), [sent(version, Pdu::ResetQuery)]);
    session
}

/// A session with the records 10.0.0.0/8 and 2001:db8::/32 of serial number 1.
fn synchronized() -> Session {
    let mut session = connected(1);
    let answer = [
        Pdu::CacheResponse { session: 7 },
        record(true, "10.0.0.0/8", 1),
        record(true, "2001:db8::/32", 1),
        Pdu::RouterKey,
        end(7, 1),
    ];
    assert_eq!(session.received(&bytes(1, &answer), at(0)), [Effect::Changed]);
    session
}

fn counts(records: &Records) -> (usize, usize) {
    (records.get::<V4>().len(), records.get::<V6>().len())
}

/// Section 8.1, and 8.2 with a Serial Notify and after the Refresh Interval.
#[test]
fn start_and_refresh() {
    let mut session = synchronized();
    assert_eq!((counts(session.records()), session.id(), session.version()), ((1, 1), Some((7, 1)), Some(1)));
    assert_eq!((session.complete(), session.intervals(), session.due()), (Some(at(0)), INTERVALS, at(100)));
    // The serial number that it has, then another.
    let notify = |serial| bytes(1, &[Pdu::SerialNotify { session: 7, serial }]);
    assert_eq!(session.received(&notify(1), at(10)), []);
    let query = |serial| sent(1, Pdu::SerialQuery { session: 7, serial });
    assert_eq!(session.received(&notify(2), at(10)), [query(1)]);
    // Nothing of an answer is used before its end, and one notification during it causes one query.
    let response = Pdu::CacheResponse { session: 7 };
    let part = bytes(1, &[response, record(true, "11.0.0.0/8", 1), record(false, "10.0.0.0/8", 1)]);
    for byte in &part {
        assert_eq!(session.received(&[*byte], at(11)), []);
    }
    assert_eq!(session.received(&notify(3), at(11)), []);
    assert_eq!(counts(session.records()), (1, 1));
    assert_eq!(session.received(&bytes(1, &[end(7, 2)]), at(12)), [Effect::Changed, query(2)]);
    assert_eq!(session.records().get::<V4>()[0].prefix.to_string(), "11.0.0.0/8");
    // An empty answer changes nothing.
    assert_eq!(session.received(&bytes(1, &[response, end(7, 3)]), at(13)), []);
    assert_eq!(session.tick(at(112)), []);
    assert_eq!(session.tick(at(113)), [query(3)]);
}

/// A restarted cache may close the connection before its Error Report is out: who asked again would never learn of the other
/// Session ID.
#[test]
fn a_serial_query_without_an_answer_is_followed_by_a_reset_query() {
    let mut session = synchronized();
    session.closed("closed by the cache", at(10));
    assert_eq!(session.tick(at(11)), [Effect::Connect]);
    assert_eq!(session.connected(at(11)), [sent(1, Pdu::SerialQuery { session: 7, serial: 1 })]);
    session.closed("closed by the cache", at(11));
    assert_eq!((counts(session.records()), session.complete()), ((1, 1), Some(at(0))));
    session.tick(at(13));
    assert_eq!(session.connected(at(13)), [sent(1, Pdu::ResetQuery)]);
    let answer = [Pdu::CacheResponse { session: 9 }, record(true, "10.0.0.0/8", 1), end(9, 0)];
    assert_eq!(session.received(&bytes(1, &answer), at(13)), [Effect::Changed]);
    assert_eq!((counts(session.records()), session.id()), ((1, 0), Some((9, 0))));
}

/// Other TLS settings begin another connection, and the records stay.
#[test]
fn reconnect_keeps_the_records() {
    let mut session = synchronized();
    session.reconnect(at(5));
    assert_eq!((session.tick(at(5)), session.last_error()), (vec![Effect::Connect], None));
    assert_eq!(session.connected(at(5)), [sent(1, Pdu::SerialQuery { session: 7, serial: 1 })]);
    assert_eq!(counts(session.records()), (1, 1));
}

/// Section 8.3: a Cache Reset keeps the records until the new ones are complete.
#[test]
fn cache_reset_keeps_the_records_until_the_answer() {
    let mut session = synchronized();
    session.tick(at(100));
    let effects = session.received(&bytes(1, &[Pdu::CacheReset]), at(100));
    assert_eq!((effects, counts(session.records())), (vec![sent(1, Pdu::ResetQuery)], (1, 1)));
    // Another Session ID is no mismatch here.
    let answer = [Pdu::CacheResponse { session: 9 }, record(true, "10.0.0.0/8", 1), end(9, 5)];
    assert_eq!(session.received(&bytes(1, &answer), at(101)), [Effect::Changed]);
    assert_eq!((counts(session.records()), session.id()), ((1, 0), Some((9, 5))));
}

/// Section 5.1.
#[test]
fn another_session_id_discards_the_records() {
    type Wrong<'a> = &'a dyn Fn(&mut Session) -> Vec<Effect>;
    let wrong: [Wrong<'_>; 3] = [
        &|session| session.received(&bytes(1, &[Pdu::SerialNotify { session: 8, serial: 2 }]), at(1)),
        &|session| {
            session.tick(at(100));
            session.received(&bytes(1, &[Pdu::CacheResponse { session: 8 }]), at(100))
        },
        &|session| {
            session.tick(at(100));
            session.received(&bytes(1, &[Pdu::CacheResponse { session: 7 }, end(8, 2)]), at(100))
        },
    ];
    for (i, wrong) in wrong.into_iter().enumerate() {
        let mut session = synchronized();
        let effects = wrong(&mut session);
        assert_eq!((effects[0].clone(), reports(&effects)), (Effect::Changed, vec![0]), "{i}");
        assert_eq!(effects.last(), Some(&Effect::Close));
        assert_eq!((counts(session.records()), session.id(), session.complete()), ((0, 0), None, None));
    }
}

/// A lost connection keeps the records until the Expire Interval; the new one asks for changes.
#[test]
fn a_lost_connection_keeps_the_records_until_they_expire() {
    let mut session = synchronized();
    session.closed("reset", at(20));
    assert_eq!((session.state(), counts(session.records())), (State::Waiting { until: at(21) }, (1, 1)));
    assert_eq!(session.tick(at(21)), [Effect::Connect]);
    assert_eq!(session.connected(at(21)), [sent(1, Pdu::SerialQuery { session: 7, serial: 1 })]);
    let mut waits = Vec::new();
    let mut now = at(21);
    while now < at(600) {
        session.closed("refused", now);
        let State::Waiting { until } = session.state() else { panic!() };
        waits.push((until - now).as_secs());
        now = until;
        assert_eq!(session.tick(now), [Effect::Connect]);
    }
    assert!(waits.starts_with(&[2, 4, 8, 16, 32, 50, 50]), "{waits:?}");
    session.closed("refused", at(690));
    assert_eq!((session.tick(at(699)), counts(session.records())), (vec![], (1, 1)));
    assert_eq!(session.tick(at(700)), [Effect::Changed]);
    assert_eq!((counts(session.records()), session.complete()), ((0, 0), None));
    assert!(session.last_error().unwrap().contains("expired"));
    // After that a Reset Query.
    let State::Waiting { until } = session.state() else { panic!() };
    session.tick(until);
    assert_eq!(session.connected(until), [sent(1, Pdu::ResetQuery)]);
}

/// Section 8.4: no data yet is no failure of the session.
#[test]
fn no_data_available_waits_for_the_retry_interval() {
    let mut session = connected(1);
    let report = Pdu::ErrorReport { code: ErrorCode::NO_DATA_AVAILABLE, pdu: &[], text: b"starting\n" };
    assert_eq!(session.received(&bytes(1, &[report]), at(1)), []);
    assert_eq!(session.state(), State::Idle { until: at(601) });
    assert_eq!(session.last_error(), Some("the cache reports: No Data Available (starting)"));
    assert_eq!(session.tick(at(601)), [sent(1, Pdu::ResetQuery)]);

    // After a Serial Query too, and the records stay until the answer (section 8.4).
    let mut session = synchronized();
    assert_eq!(session.tick(at(100)), [sent(1, Pdu::SerialQuery { session: 7, serial: 1 })]);
    assert_eq!(session.received(&bytes(1, &[report]), at(101)), []);
    assert_eq!(session.tick(at(151)), [sent(1, Pdu::ResetQuery)]);
    assert_eq!(counts(session.records()), (1, 1));
    let answer = [Pdu::CacheResponse { session: 9 }, record(true, "10.0.0.0/8", 1), end(9, 5)];
    assert_eq!(session.received(&bytes(1, &answer), at(152)), [Effect::Changed]);
    assert_eq!((counts(session.records()), session.id()), ((1, 0), Some((9, 5))));
}

/// A Cache Reset answers a Serial Query (section 5.9). A cache that has nothing else to say gets no second Reset Query.
#[test]
fn a_cache_reset_of_a_reset_query_ends_the_session() {
    let mut session = connected(1);
    let effects = session.received(&bytes(1, &[Pdu::CacheReset]), at(1));
    assert_eq!(reports(&effects), [0]);
    assert_eq!(effects.last(), Some(&Effect::Close));
}

/// Section 7: an older cache reports an error and closes, or answers in its version.
#[test]
fn versions_are_negotiated_downwards() {
    let report = Pdu::ErrorReport { code: ErrorCode::UNSUPPORTED_VERSION, pdu: &[], text: b"" };
    let mut session = connected(1);
    assert_eq!(session.received(&bytes(0, &[report]), at(1)), [Effect::Close]);
    assert_eq!(session.tick(at(1)), [Effect::Connect]);
    assert_eq!(session.connected(at(1)), [sent(0, Pdu::ResetQuery)]);
    // Below 0 there is nothing.
    assert_eq!(session.received(&bytes(0, &[report]), at(2)), [Effect::Close]);
    assert_eq!(session.tick(at(2)), []);

    let mut session = connected(1);
    let notify = Pdu::SerialNotify { session: 3, serial: 3 };
    // Section 7: whatever version they have.
    for version in [0, 1, 2, 255] {
        assert_eq!(session.received(&bytes(version, &[notify]), at(1)), [], "not before the answer");
    }
    let answer = [Pdu::CacheResponse { session: 7 }, record(true, "10.0.0.0/8", 1), end(7, 1)];
    assert_eq!(session.received(&bytes(0, &answer), at(1)), [Effect::Changed]);
    assert_eq!((session.version(), session.intervals()), (Some(0), Intervals::default()));
    let effects = session.received(&bytes(1, &[Pdu::CacheReset]), at(2));
    assert_eq!(reports(&effects), [8]);
    assert_eq!(counts(session.records()), (1, 0));

    let mut session = connected(0);
    assert_eq!(reports(&session.received(&bytes(1, &answer), at(1))), [8]);
    let mut session = connected(1);
    assert_eq!(reports(&session.received(&[9, 3, 0, 1, 0, 0, 0, 8], at(1))), [4]);
}

/// draft-ietf-sidrops-8210bis section 7: from version 2 a step at a time, or at once to the version of an answer.
#[test]
fn version_2_goes_down_to_what_the_cache_has() {
    let report = Pdu::ErrorReport { code: ErrorCode::UNSUPPORTED_VERSION, pdu: &[], text: b"" };
    let mut session = Session::new(Overrides::default(), at(0));
    for (of_cache, next) in [(1, 1), (1, 0)] {
        assert_eq!(session.tick(at(0)), [Effect::Connect]);
        assert_eq!(session.connected(at(0)), [sent(next + 1, Pdu::ResetQuery)]);
        assert_eq!(session.received(&bytes(of_cache, &[report]), at(0)), [Effect::Close]);
        assert_eq!(session.version, next);
    }
    // A cache of version 0 says so.
    let mut session = connected(VERSION);
    session.received(&bytes(0, &[report]), at(0));
    assert_eq!(session.version, 0);
    let mut session = connected(VERSION);
    let answer = [Pdu::CacheResponse { session: 7 }, end(7, 1)];
    session.received(&bytes(1, &answer), at(0));
    assert_eq!(session.version(), Some(1));
}

/// draft-ietf-sidrops-8210bis section 5.12.
#[test]
fn aspa_records_come_in_version_2_alone() {
    let providers = [[0, 0, 0, 5], [0, 0, 0, 9]];
    let aspa = |announce, customer| Pdu::Aspa {
        announce,
        families: rtr::AspaFamilies::Both,
        customer,
        providers: rtr::Providers::new(if announce { &providers } else { &[] }),
    };
    let mut session = connected(2);
    let answer = [Pdu::CacheResponse { session: 7 }, aspa(true, 1), aspa(true, 2), end(7, 1)];
    assert_eq!(session.received(&bytes(2, &answer), at(0)), [Effect::Changed]);
    let all =
        |session: &Session| session.records().aspas().map(|(c, of)| (c, of.to_vec())).collect::<Vec<_>>();
    assert_eq!(all(&session), [(1, vec![5, 9]), (2, vec![5, 9])]);
    session.tick(at(100));
    let answer = [Pdu::CacheResponse { session: 7 }, aspa(false, 1), end(7, 2)];
    assert_eq!(session.received(&bytes(2, &answer), at(100)), [Effect::Changed]);
    assert_eq!(all(&session), [(2, vec![5, 9])]);
    // One that is not there, and one outside of an answer.
    session.tick(at(200));
    let answer = [Pdu::CacheResponse { session: 7 }, aspa(false, 1), end(7, 3)];
    assert_eq!(reports(&session.received(&bytes(2, &answer), at(200))), [6]);
    let mut session = connected(2);
    assert_eq!(reports(&session.received(&bytes(2, &[aspa(true, 1)]), at(0))), [0]);
    let mut session = connected(1);
    let answer = [bytes(1, &[Pdu::CacheResponse { session: 7 }]), bytes(1, &[aspa(true, 1)])].concat();
    assert_eq!(reports(&session.received(&answer, at(0))), [5], "version 1 does not have it");
}

/// Section 5.11: each ends the session with its code, and an Error Report never replies to one.
#[test]
fn wrong_pdus_end_the_session_with_their_code() {
    let response = Pdu::CacheResponse { session: 7 };
    let twice = record(true, "10.0.0.0/8", 1);
    for (pdus, codes) in [
        (vec![Pdu::ResetQuery], vec![0]),
        (vec![end(7, 1)], vec![0]),
        (vec![twice], vec![0]),
        (vec![response, response], vec![0]),
        (vec![response, twice, twice, end(7, 1)], vec![7]),
        (vec![response, record(false, "10.0.0.0/8", 1), end(7, 1)], vec![6]),
        (vec![Pdu::ErrorReport { code: ErrorCode(1), pdu: &[], text: b"" }], vec![]),
    ] {
        let mut session = connected(1);
        let effects = session.received(&bytes(1, &pdus), at(1));
        assert_eq!(reports(&effects), codes, "{pdus:?}");
        assert_eq!(effects.last(), Some(&Effect::Close));
        assert_eq!(session.state(), State::Waiting { until: at(2) });
        assert_eq!(session.received(&bytes(1, &[response]), at(2)), [], "closed");
    }
    let mut session = connected(1);
    let effects = session.received(&[1, 4, 0, 0, 0, 0, 0, 21], at(1));
    assert_eq!(reports(&effects), [0]);
    // An answer that does not fit what we have: the next query is a Reset Query.
    let mut session = synchronized();
    session.tick(at(100));
    let effects = session.received(&bytes(1, &[response, twice, end(7, 2)]), at(100));
    assert_eq!((reports(&effects), session.id(), counts(session.records())), (vec![7], None, (1, 1)));
}

/// A restarted cache refuses the Session ID of its former life with Corrupt Data (section 5.1), as StayRTR does.
#[test]
fn a_refused_serial_query_is_followed_by_a_reset_query() {
    let mut session = synchronized();
    session.closed("reset", at(20));
    session.tick(at(21));
    assert_eq!(session.connected(at(21)), [sent(1, Pdu::SerialQuery { session: 7, serial: 1 })]);
    let report = Pdu::ErrorReport { code: ErrorCode::CORRUPT_DATA, pdu: &[], text: b"Session ID mismatch" };
    assert_eq!(session.received(&bytes(1, &[report]), at(21)), [Effect::Close]);
    assert_eq!(counts(session.records()), (1, 1), "until the answer");
    session.tick(at(23));
    assert_eq!(session.connected(at(23)), [sent(1, Pdu::ResetQuery)]);
}

#[test]
fn silence_ends_a_query_and_an_attempt() {
    let mut session = Session::new(Overrides::default(), at(0));
    session.tick(at(0));
    assert_eq!(session.tick(at(20)), [Effect::Close]);
    let mut session = connected(1);
    session.received(&bytes(1, &[Pdu::CacheResponse { session: 7 }]), at(30));
    assert_eq!((session.tick(at(89)), session.tick(at(90))), (vec![], vec![Effect::Close]));
}

#[test]
fn intervals_have_bounds_and_overrides() {
    let mut session = connected(1);
    let intervals = Some(Intervals { refresh: 0, retry: u32::MAX, expire: 1 });
    let answer = [Pdu::CacheResponse { session: 7 }, Pdu::EndOfData { session: 7, serial: 1, intervals }];
    session.received(&bytes(1, &answer), at(1));
    assert_eq!(session.intervals(), Intervals { refresh: 1, retry: 7200, expire: 600 });
    session.set_overrides(Overrides { refresh: Some(30), retry: None, expire: Some(900) });
    assert_eq!(session.intervals(), Intervals { refresh: 30, retry: 7200, expire: 900 });
}

fn any_pdu() -> impl Strategy<Value = Pdu<'static>> {
    let prefix = prop_oneof![Just("10.0.0.0/8"), Just("11.0.0.0/8"), Just("2001:db8::/32")];
    prop_oneof![
        (7u16..9, 0u32..3).prop_map(|(session, serial)| Pdu::SerialNotify { session, serial }),
        (7u16..9).prop_map(|session| Pdu::CacheResponse { session }),
        (any::<bool>(), prefix, 1u32..3).prop_map(|(announce, prefix, asn)| record(announce, prefix, asn)),
        (7u16..9, 0u32..3).prop_map(|(session, serial)| end(session, serial)),
        Just(Pdu::CacheReset),
        Just(Pdu::ResetQuery),
        (any::<bool>(), 1u32..3).prop_map(|(announce, customer)| {
            const ONE: [[u8; 4]; 1] = [[0, 0, 0, 9]];
            let providers = rtr::Providers::new(if announce { &ONE } else { &[] });
            Pdu::Aspa { announce, families: rtr::AspaFamilies::Both, customer, providers }
        }),
        (0u16..9).prop_map(|code| Pdu::ErrorReport { code: ErrorCode(code), pdu: &[], text: b"x" }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever a cache sends, whenever: there is always a time for the next step, a closed connection is
    /// tried again, and the records are those of complete answers.
    #[test]
    fn no_cache_stops_a_session(
        steps in prop::collection::vec((any_pdu(), 0u8..3, 0u64..200, 0u8..6), 0..60), bytes_after in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut session = Session::new(Overrides::default(), at(0));
        let mut now = at(0);
        for (pdu, version, wait, what) in steps {
            now += Duration::from_secs(wait);
            let mut effects = session.tick(now);
            if effects.contains(&Effect::Connect) {
                effects.extend(match what {
                    0 => { session.closed("refused", now); Vec::new() }
                    _ => session.connected(now),
                });
            }
            effects.extend(session.received(&bytes(version, &[pdu]), now));
            let closed = effects.iter().rposition(|effect| *effect == Effect::Close);
            let waits = matches!(session.state(), State::Waiting { .. });
            prop_assert!(closed.is_none() || waits);
            prop_assert!(session.complete().is_some() || counts(session.records()) == (0, 0));
        }
        session.received(&bytes_after, now);
        now = session.due().max(now);
        let before = session.due();
        session.tick(now);
        prop_assert!(session.due() != before || session.due() > now);
    }
}
