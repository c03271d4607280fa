//! Maximum prefixes: what is accepted and reported, against a plain model of it.

use super::*;
use ribtide_prefix::ByFamily;
use ribtide_prefix::Rng;
use std::collections::BTreeSet;

fn limited(ipv4: u32, action: LimitAction) -> IngestSettings {
    let limits = ByFamily::only(AfiSafi::Ipv4Unicast, Some(ipv4));
    IngestSettings { max_prefixes: Some(MaxPrefixes { limits, action, warning: 80 }), ..settings() }
}

fn prefix(n: u32) -> Prefix<V4> {
    Prefix::new(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (n << 8), 24)
}

fn announcement(prefixes: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let attributes = attributes(&[65001], |_| {});
    let prefixes: Vec<Prefix<V4>> = prefixes.into_iter().map(prefix).collect();
    let mut out = Vec::new();
    let next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 3));
    UpdatePacker::new(&attributes, next_hop, 4096).announce(prefixes, &mut out).unwrap();
    out.split_off(HEADER)
}

fn withdrawal(prefixes: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut nlri = Vec::new();
    for n in prefixes {
        nlri.extend([24, 10, (n >> 8) as u8, n as u8]);
    }
    [&(nlri.len() as u16).to_be_bytes()[..], &nlri, &[0, 0]].concat()
}

/// A session with its shards, which hold what they are sent.
struct Session {
    ingest: Ingest,
    peer: IngestPeer,
    out: ShardBatches,
    table: BTreeSet<Prefix<V4>>,
}

impl Session {
    fn new(settings: IngestSettings) -> Session {
        Session::with_shards(settings, [0; 64])
    }

    fn with_shards(settings: IngestSettings, map: ShardMap) -> Session {
        Session {
            ingest: Ingest::default(),
            peer: peer(PeerKind::External, settings),
            out: ShardBatches::new(map),
            table: BTreeSet::new(),
        }
    }

    /// Handles an UPDATE; returns what was reported.
    fn update(&mut self, update: &[u8]) -> Vec<LimitEvent> {
        self.ingest.update(&mut self.peer, update, &mut self.out).unwrap();
        for (_, batch) in self.out.drain() {
            let mut prefixes = batch.prefixes.v4.into_iter();
            for op in batch.ops {
                for prefix in prefixes.by_ref().take(op.count as usize) {
                    match op.attrs {
                        Some(_) => self.table.insert(prefix),
                        None => self.table.remove(&prefix),
                    };
                }
            }
        }
        self.peer.take_limit_events().unwrap_or_default()
    }

    fn has(&self, numbers: impl IntoIterator<Item = u32>) -> bool {
        self.table == numbers.into_iter().map(prefix).collect()
    }

    fn count(&self) -> u32 {
        let count = self.peer.prefix_count(AfiSafi::Ipv4Unicast).unwrap().count;
        assert_eq!(count as usize, self.table.len(), "the shards have what is counted");
        count
    }

    fn beyond(&self) -> u64 {
        self.peer.counters.refused(Refusal::MaxPrefixes)
    }
}

fn event(crossed: LimitCrossed, count: u32, max: u32) -> LimitEvent {
    LimitEvent { family: AfiSafi::Ipv4Unicast, crossed, count, max }
}

#[test]
fn restart_is_reported_at_the_first_prefix_beyond_the_limit_and_not_before() {
    let mut session = Session::new(limited(10, LimitAction::Restart));
    assert_eq!(session.update(&announcement(0..7)), []);
    assert_eq!(session.update(&announcement(7..8)), [event(LimitCrossed::Warning, 8, 10)]);
    assert_eq!(session.update(&announcement(8..10)), [], "the limit itself is permitted");
    assert_eq!(session.update(&announcement(0..10)), [], "a replaced route counts once");
    let exceeded = event(LimitCrossed::Limit(LimitAction::Restart), 10, 10);
    let reported = session.update(&announcement(9..11));
    assert_eq!(reported, [exceeded]);
    assert!(exceeded.ends_session());
    assert_eq!((session.count(), session.beyond()), (10, 1));
}

#[test]
fn restart_after_withdrawals_counts_what_is_left() {
    let mut session = Session::new(limited(10, LimitAction::Restart));
    for round in 0..20 {
        assert!(session.update(&announcement(round * 10..round * 10 + 10)).iter().all(|e| !e.is_exceeded()));
        assert_eq!(session.count(), 10);
        session.update(&withdrawal(round * 10..round * 10 + 10));
        // One that is not there is no withdrawal.
        session.update(&withdrawal([9999, round * 10]));
        assert_eq!(session.count(), 0);
    }
}

#[test]
fn discard_keeps_what_is_there_and_uses_room_of_a_withdrawal() {
    let mut session = Session::new(limited(4, LimitAction::Discard));
    let limit = event(LimitCrossed::Limit(LimitAction::Discard), 4, 4);
    assert_eq!(session.update(&announcement(0..10)), [event(LimitCrossed::Warning, 4, 4), limit]);
    assert!(session.has(0..4));
    assert_eq!(session.beyond(), 6);
    assert_eq!(session.update(&announcement(0..10)), [], "reported once");
    assert!(session.has(0..4), "those that are there may change");
    session.update(&withdrawal([1]));
    assert_eq!(session.update(&announcement([20, 21])).len(), 2, "both again: it fell below the limits");
    assert!(session.has([0, 2, 3, 20]));
    // One UPDATE both makes room and uses it.
    let mut both = withdrawal([0, 2]);
    both.truncate(both.len() - 2);
    both.extend_from_slice(&announcement([30, 31, 32])[2..]);
    session.update(&both);
    assert!(session.has([3, 20, 30, 31]));
    assert_eq!(session.count(), 4);
}

#[test]
fn discarded_prefixes_leave_no_attribute_sets() {
    let mut session = Session::new(limited(1, LimitAction::Discard));
    session.update(&announcement([0]));
    for origin in 1..200 {
        let attributes = attributes(&[65001, origin], |_| {});
        let prefix = prefix(origin).to_string();
        assert_eq!(session.update(&announce_v4(&attributes, &[&prefix])).len(), usize::from(origin == 1));
    }
    assert!(session.has([0]));
    assert!(session.ingest.len() <= 1, "the last one alone: {}", session.ingest.len());
}

#[test]
fn warn_accepts_everything_and_reports_each_crossing_once() {
    let mut session = Session::new(limited(100, LimitAction::Warn));
    let (warning, limit) = (LimitCrossed::Warning, LimitCrossed::Limit(LimitAction::Warn));
    assert_eq!(session.update(&announcement(0..100)), [event(warning, 100, 100)]);
    assert_eq!(session.update(&announcement(100..102)), [event(limit, 102, 100)]);
    assert_eq!(session.update(&announcement(102..110)), []);
    assert!(session.has(0..110));
    // A count around the limit is one crossing.
    for _ in 0..10 {
        session.update(&withdrawal(95..110));
        assert_eq!(session.update(&announcement(95..110)), []);
    }
    session.update(&withdrawal(94..110));
    assert_eq!(session.update(&announcement(94..110)), [event(limit, 110, 100)]);
    session.update(&withdrawal(74..110));
    assert_eq!(
        session.update(&announcement(74..110)),
        [event(warning, 110, 100), event(limit, 110, 100)],
        "both fell a twentieth of the limit below"
    );
    assert_eq!(session.beyond(), 0);
}

#[test]
fn refused_routes_are_not_counted_and_an_accepted_one_that_is_refused_later_is_withdrawn() {
    let mut session = Session::new(limited(3, LimitAction::Restart));
    // Martians, and malformed attributes (RFC 7606).
    let attrs = attributes(&[65001], |_| {});
    session.update(&announce_v4(&attrs, &["127.0.0.0/8", "10.0.0.0/24", "10.0.1.0/24"]));
    assert_eq!(session.count(), 2);
    let bad = attributes(&[65001], |out| build::attribute(out, 0x80, code::MED, &[1]));
    assert_eq!(session.update(&announce_v4(&bad, &["10.0.1.0/24", "10.0.9.0/24"])), []);
    assert_eq!(session.count(), 1, "treated as withdrawn");
    // A loop.
    session.update(&announce_v4(&attributes(&[65001, 65000], |_| {}), &["10.0.0.0/24"]));
    assert_eq!(session.count(), 0);
    // Policies that decide by prefix, and another one.
    session.peer.set(IngestSettings { import: two_statements(), ..limited(3, LimitAction::Restart) });
    session.update(&announcement(0..3));
    assert_eq!(session.count(), session.table.len() as u32);
    session.peer.set(IngestSettings {
        import: Arc::new(Policy::new(vec![], true)),
        ..limited(3, LimitAction::Restart)
    });
    session.update(&announcement(0..3));
    assert_eq!(session.count(), 0);
}

#[test]
fn limit_of_a_live_session_counts_the_routes_that_come_again() {
    let mut session = Session::new(settings());
    session.update(&announcement(0..10));
    assert_eq!(session.peer.prefix_count(AfiSafi::Ipv4Unicast), None);
    // The peer sends its routes again: those beyond the limit are withdrawn from the shards.
    session.peer.set(limited(4, LimitAction::Discard));
    session.update(&withdrawal([9]));
    session.update(&announcement(0..9));
    assert!(session.has(0..4));
    assert_eq!(session.count(), 4);
    // Raised, lowered, and lifted.
    for (max, left) in [(6, 6), (2, 2)] {
        session.peer.set(limited(max, LimitAction::Discard));
        session.update(&announcement(0..9));
        assert!(session.has(0..left));
    }
    session.peer.set(settings());
    session.update(&announcement(0..9));
    assert!(session.has(0..9));
    // Another policy counts again, too: it may accept other routes than before, as many as the limit.
    session.peer.set(limited(9, LimitAction::Restart));
    session.update(&announcement(0..9));
    session.peer.set(IngestSettings { enforce_first_as: false, ..limited(9, LimitAction::Restart) });
    assert_eq!(session.update(&announcement(20..29)).len(), 1, "the warning alone");
    assert!(session.update(&announcement([9])).iter().any(LimitEvent::ends_session));
}

#[test]
fn each_family_has_its_own_limit() {
    let limits = ByFamily::only(AfiSafi::Ipv6Unicast, Some(1));
    let max_prefixes = Some(MaxPrefixes { limits, action: LimitAction::Restart, warning: 100 });
    let mut session = Session::new(IngestSettings { max_prefixes, ..settings() });
    assert_eq!(session.update(&announcement(0..50)), []);
    let info = PeerInfo { families: FamilySet::UNICAST, ..PeerInfo::clone(session.peer.info()) };
    session.peer = IngestPeer::new(Arc::new(info), IngestSettings { max_prefixes, ..settings() });
    let next_hop = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
    let six = |prefixes: &[&str]| announce::<V6>(&attributes(&[65001], |_| {}), next_hop, prefixes);
    let event = |crossed| LimitEvent { family: AfiSafi::Ipv6Unicast, crossed, count: 1, max: 1 };
    assert_eq!(session.update(&six(&["2620::/32"])), [event(LimitCrossed::Warning)]);
    let limit = event(LimitCrossed::Limit(LimitAction::Restart));
    assert_eq!(session.update(&six(&["2620:1::/32"])), [limit]);
}

/// What must hold of any history, for any number of shards: the model is the sentence of the
/// documentation, one prefix at a time.
#[test]
fn discard_and_restart_do_as_the_model_for_any_number_of_shards() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let max = 1 + rng.index(12) as u32;
        let maps: [ShardMap; 3] =
            [[0; 64], std::array::from_fn(|n| (n % 2) as u16), std::array::from_fn(|n| (n % 7) as u16)];
        let mut sessions = maps.map(|map| Session::with_shards(limited(max, LimitAction::Discard), map));
        let mut model: BTreeSet<u32> = BTreeSet::new();
        let mut refused = 0;
        for _ in 0..60 {
            let some: Vec<u32> = (0..1 + rng.index(8)).map(|_| rng.index(24) as u32).collect();
            let update = if rng.index(3) == 0 {
                model.retain(|n| !some.contains(n));
                withdrawal(some)
            } else {
                for n in &some {
                    if (model.len() as u32) < max {
                        model.insert(*n);
                    }
                    refused += u64::from(!model.contains(n));
                }
                announcement(some)
            };
            let reported = sessions.each_mut().map(|session| session.update(&update));
            assert!(reported.iter().all(|events| *events == reported[0]));
            for session in &sessions {
                assert!(session.has(model.iter().copied()), "seed {seed}");
                assert_eq!((session.count(), session.beyond()), (model.len() as u32, refused));
            }
        }
    }
}
