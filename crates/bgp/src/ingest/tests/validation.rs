//! Origin validation: whatever changes in which order, the shards have what the last policy says of the
//! last routes with the last table of payloads.

use super::*;
use ribtide_policy::{PathCondition, Route, ValidityCondition};
use ribtide_rpki::{Aspas, Direction, Origin as OriginAs, PathRule, PathState, Validity, Vrp, Vrps};
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use ribtide_wire::bgp::role::Role;
use std::collections::BTreeMap;

/// What a policy of these tests does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Rejects invalid routes, prefers valid ones, and accepts the others.
    Prefers,
    /// Rejects invalid paths, and accepts valid routes, and those with a valid path.
    Strict,
    /// Rejects invalid routes, and accepts the others as they are.
    Rejects,
    /// Rejects routes whose path ends in a set, also valid ones, then invalid ones; accepts the others.
    RejectsMore,
}

fn policy(kind: Kind) -> Arc<Policy> {
    let statement = |validity, local_pref, then| Statement {
        validity: Some(ValidityCondition(validity)),
        actions: Actions { local_pref, ..Actions::default() },
        then,
        ..Statement::default()
    };
    let of_path = |state, local_pref, then| Statement {
        path: Some(PathCondition(state)),
        actions: Actions { local_pref, ..Actions::default() },
        then,
        ..Statement::default()
    };
    let accept = Statement { then: Then::Accept, ..Statement::default() };
    let statements = match kind {
        Kind::Prefers => vec![
            statement(Validity::Invalid, None, Then::Reject),
            statement(Validity::Valid, Some(200), Then::Accept),
            accept,
        ],
        Kind::Strict => vec![
            of_path(PathState::Invalid, None, Then::Reject),
            statement(Validity::Valid, None, Then::Accept),
            of_path(PathState::Valid, Some(300), Then::Accept),
        ],
        Kind::Rejects => vec![statement(Validity::Invalid, None, Then::Reject), accept],
        Kind::RejectsMore => vec![
            Statement {
                conditions: vec![Condition::OriginEq(Origin::Incomplete)],
                then: Then::Reject,
                ..Statement::default()
            },
            statement(Validity::Invalid, None, Then::Reject),
            accept,
        ],
    };
    Arc::new(Policy::new(vec![Arc::new(Definition { name: "rpki".into(), statements })], true))
}

fn vrps(list: &[(&str, u8, u32)]) -> Arc<Vrps> {
    Arc::new(table(list))
}

fn table(list: &[(&str, u8, u32)]) -> Vrps {
    let vrp = |(prefix, max_len, asn): &(&str, u8, u32)| Vrp {
        prefix: prefix.parse().unwrap(),
        max_len: *max_len,
        asn: *asn,
    };
    Vrps::new(ribtide_prefix::Families { v4: list.iter().map(vrp).collect(), v6: Vec::new() })
}

/// A session, and the routes that its shards have: attributes by prefix and path identifier (0 without).
struct Session {
    ingest: Ingest,
    peer: IngestPeer,
    out: ShardBatches,
    table: BTreeMap<PathPrefix<V4>, Vec<u8>>,
    vrps: Arc<Vrps>,
}

impl Session {
    fn new(settings: IngestSettings) -> Session {
        Session {
            ingest: Ingest::default(),
            peer: peer(PeerKind::External, settings),
            out: ShardBatches::new([0; 64]),
            table: BTreeMap::new(),
            vrps: Arc::default(),
        }
    }

    /// A session with path identifiers in IPv4.
    fn with_path_ids(settings: IngestSettings) -> Session {
        let mut session = Session::new(settings.clone());
        let path_ids = FamilySet::IPV4_UNICAST;
        let info = PeerInfo { path_ids, ..(**session.peer.info()).clone() };
        session.peer = IngestPeer::new(Arc::new(info), settings);
        session
    }

    fn update(&mut self, update: &[u8]) {
        // As the reader does.
        if self.peer.validates() {
            self.ingest.note_ahead(&self.peer, update);
            self.ingest.prefetch();
        }
        self.ingest.update(&mut self.peer, update, &mut self.out).unwrap();
        self.hand_on();
    }

    /// Returns the number of operations.
    fn hand_on(&mut self) -> usize {
        let mut count = 0;
        for (_, batch) in self.out.drain() {
            let mut prefixes = batch.prefixes.v4.into_iter();
            for op in batch.ops {
                for prefix in prefixes.by_ref().take(op.count as usize) {
                    count += 1;
                    let prefix = PathPrefix { prefix, path_id: op.path_id };
                    match &op.attrs {
                        Some(attrs) => drop(self.table.insert(prefix, attrs.bytes().to_vec())),
                        None => drop(self.table.remove(&prefix)),
                    }
                }
            }
        }
        count
    }

    /// The table of these payloads, and of the present ASPA records or of `aspas`.
    fn set_table(&mut self, vrps: Vrps, aspas: Option<Aspas>) {
        let aspas = aspas.unwrap_or_else(|| self.vrps.aspas().clone());
        let vrps = vrps.with_aspas(aspas).sharing_aspas(&self.vrps);
        self.set_vrps(Arc::new(vrps));
    }

    fn set_vrps(&mut self, vrps: Arc<Vrps>) {
        self.vrps = vrps.clone();
        let before = self.ingest.set_vrps(vrps.clone());
        self.peer.validate_again(&before, &vrps, &Arc::new(vrps.changes_from(&before)));
    }

    /// Evaluates all again that is pending; returns the number of sent routes.
    fn settle(&mut self) -> usize {
        while !self.ingest.evaluate_again(&mut self.peer, &mut self.out, 7) {}
        self.hand_on()
    }

    fn has(&self, prefix: &str) -> Option<u32> {
        self.has_path(prefix, 0)
    }

    fn has_path(&self, prefix: &str, path_id: u32) -> Option<u32> {
        let attrs = self.table.get(&PathPrefix { prefix: prefix.parse().unwrap(), path_id })?;
        Some(AttrSet::new(attrs, NextHop::V4(Ipv4Addr::LOCALHOST)).local_pref().unwrap_or(100))
    }
}

#[test]
fn another_table_sends_only_routes_with_another_result() {
    let mut session = Session::new(IngestSettings { import: policy(Kind::Prefers), ..settings() });
    let all = ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "11.0.0.0/8"];
    session.update(&announce_v4(&attributes(&[65001, 9], |_| {}), &all));
    assert_eq!(all.map(|prefix| session.has(prefix)), [Some(100); 4], "nothing is known");
    // 10.0.0.0/8 is valid, what is below is too long.
    session.set_vrps(vrps(&[("10.0.0.0/8", 8, 9)]));
    assert!(session.peer.is_pending());
    assert_eq!(session.settle(), 3);
    assert_eq!(all.map(|prefix| session.has(prefix)), [Some(200), None, None, Some(100)]);
    // The rejected one comes back without any message of the peer.
    session.set_vrps(vrps(&[("10.0.0.0/8", 8, 9), ("10.1.0.0/16", 16, 9)]));
    assert_eq!((session.settle(), session.peer.counters.evaluated_again), (1, 4));
    assert_eq!(all.map(|prefix| session.has(prefix)), [Some(200), Some(200), None, Some(100)]);
    // Another payload that changes no state sends nothing.
    session.set_vrps(vrps(&[("10.0.0.0/8", 8, 9), ("10.0.0.0/8", 8, 10), ("10.1.0.0/16", 16, 9)]));
    assert_eq!(session.settle(), 0);
    session.set_vrps(Arc::default());
    assert_eq!(session.settle(), 3);
    assert_eq!(all.map(|prefix| session.has(prefix)), [Some(100); 4]);
    // The counters are those of what the peer sent.
    let counters = session.peer.counters;
    assert_eq!((counters.announced, counters.refused(Refusal::ImportPolicy)), (4, 0));
}

#[test]
fn other_aspa_records_send_only_routes_with_another_path_state() {
    let import = policy(Kind::Strict);
    let mut session =
        Session::new(IngestSettings { import: import.clone(), role: Some(Role::Provider), ..settings() });
    session.update(&announce_v4(&attributes(&[65001, 9], |_| {}), &["10.0.0.0/8", "11.0.0.0/8"]));
    session.update(&announce_v4(&attributes(&[65001], |_| {}), &["12.0.0.0/8"]));
    let all = ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"];
    let has = |session: &Session| all.map(|prefix| session.has(prefix));
    assert_eq!(has(&session), [None, None, Some(300)], "the first path is unknown");
    session.set_table(table(&[]), Some(Aspas::new([(9, [65001])])));
    assert_eq!((session.settle(), session.peer.counters.evaluated_again), (2, 2));
    assert_eq!(has(&session), [Some(300); 3]);
    // Records of others change nothing, and payloads change nothing of paths.
    session.set_table(table(&[]), Some(Aspas::new([(9, [65001]), (8, [7])])));
    assert_eq!(session.settle(), 0);
    session.set_table(table(&[("10.0.0.0/8", 8, 9)]), None);
    assert_eq!(session.settle(), 1);
    assert_eq!(has(&session), [Some(100), Some(300), Some(300)]);
    session.set_table(table(&[("10.0.0.0/8", 8, 9)]), Some(Aspas::new([(9, [0])])));
    session.settle();
    assert_eq!(has(&session), [None, None, Some(300)], "AS 9 has no provider");
    let view = &session.ingest.view_received(&mut session.peer, "10.0.0.0/8".parse().unwrap())[0];
    assert_eq!((view.path, view.accepted), (Some(PathState::Invalid), false));
    // Without a role, and from an internal peer, paths have no state, so no condition holds.
    let mut session = Session::new(IngestSettings { import, ..settings() });
    session.update(&announce_v4(&attributes(&[65001, 9], |_| {}), &["10.0.0.0/8"]));
    session.set_table(table(&[]), Some(Aspas::new([(9, [0])])));
    session.settle();
    assert_eq!(session.has("10.0.0.0/8"), None);
    assert_eq!(session.ingest.view_received(&mut session.peer, "10.0.0.0/8".parse().unwrap())[0].path, None);
}

/// The body of an UPDATE that announces routes with these attributes, or withdraws them.
fn body<N: Nlri>(attributes: Option<&[u8]>, routes: impl IntoIterator<Item = N>) -> Vec<u8> {
    let mut out = Vec::new();
    match attributes {
        Some(attributes) => {
            let next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 3));
            let packer = UpdatePacker::new(attributes, next_hop, 4096);
            assert_eq!(packer.announce(routes, &mut out), Ok(1));
        }
        None => assert_eq!(build::withdraw(routes, 4096, &mut out), 1),
    }
    out.split_off(HEADER)
}

#[test]
fn paths_of_a_prefix_are_kept_and_evaluated_apart() {
    let mut session = Session::with_path_ids(IngestSettings { import: policy(Kind::Prefers), ..settings() });
    let (prefix, other) = ("10.0.0.0/8".parse().unwrap(), "10.1.0.0/16".parse().unwrap());
    let path = |path_id| PathPrefix::<V4> { prefix, path_id };
    session.update(&body(Some(&attributes(&[65001, 9], |_| {})), [path(0), path(7)]));
    session.update(&body(Some(&attributes(&[65001, 8], |_| {})), [path(u32::MAX)]));
    session.update(&body(
        Some(&attributes(&[65001, 8], |_| {})),
        [PathPrefix::<V4> { prefix: other, path_id: 7 }],
    ));
    let of = |session: &Session| [0, 7, u32::MAX].map(|id| session.has_path("10.0.0.0/8", id)).to_vec();
    session.set_vrps(vrps(&[("10.0.0.0/8", 8, 9)]));
    assert_eq!(session.settle(), 4);
    assert_eq!(of(&session), [Some(200), Some(200), None], "the origin of each path counts");
    assert_eq!(session.has_path("10.1.0.0/16", 7), None);
    session.set_vrps(vrps(&[("10.0.0.0/8", 8, 8)]));
    session.settle();
    assert_eq!(of(&session), [None, None, Some(200)]);
    // A withdrawal takes one path, and the next change has the others alone.
    session.update(&body(None, [path(7)]));
    session.set_vrps(Arc::default());
    assert_eq!(session.settle(), 3);
    assert_eq!(of(&session), [Some(100), None, Some(100)]);
    // Pages go on after a path.
    let seen = |views: Vec<ReceivedView>| -> Vec<(String, Option<u32>)> {
        views.iter().map(|view| (view.prefix.to_string(), view.path_id)).collect()
    };
    let row = |prefix: &str, id| (prefix.to_string(), Some(id));
    let mut page = |after, limit| {
        let all = KeptFilter::default();
        seen(session.ingest.view_page(&mut session.peer, after, (limit, usize::MAX), &all).unwrap().0)
    };
    assert_eq!(page(None, 2), [row("10.0.0.0/8", 0), row("10.0.0.0/8", u32::MAX)]);
    assert_eq!(page(Some((AfiSafi::Ipv4Unicast, prefix.any(), 0)), 1), [row("10.0.0.0/8", u32::MAX)]);
    assert_eq!(page(Some((AfiSafi::Ipv4Unicast, prefix.any(), u32::MAX)), 9), [row("10.1.0.0/16", 7)]);
    let of_prefix = session.ingest.view_received(&mut session.peer, prefix.any());
    assert_eq!(seen(of_prefix), [row("10.0.0.0/8", 0), row("10.0.0.0/8", u32::MAX)]);
    assert_eq!(session.peer.received_len::<V4>(), 3);
    // All paths of the last address below a changed prefix.
    let host = |path_id| PathPrefix::<V4> { prefix: "12.0.0.1/32".parse().unwrap(), path_id };
    session.update(&body(Some(&attributes(&[65001, 9], |_| {})), [host(0), host(5)]));
    session.set_vrps(vrps(&[("12.0.0.1/32", 32, 8)]));
    assert_eq!(session.settle(), 2);
    assert_eq!([0, 5].map(|id| session.has_path("12.0.0.1/32", id)), [None; 2]);
}

#[test]
fn only_sessions_that_need_it_keep_routes() {
    let update = announce_v4(&attributes(&[65001, 9], |_| {}), &["10.0.0.0/8", "11.0.0.0/8"]);
    let mut session = Session::new(settings());
    session.update(&update);
    session.set_vrps(vrps(&[("10.0.0.0/8", 8, 9)]));
    assert!(!session.peer.keeps_received() && !session.peer.is_pending());
    // By option, also what a policy rejects that needs no attributes.
    let reject = IngestSettings { import: Arc::new(Policy::reject()), keep_received: true, ..settings() };
    let mut session = Session::new(reject.clone());
    session.update(&update);
    assert_eq!((session.peer.received_len::<V4>(), session.table.len()), (2, 0));
    session.set_vrps(vrps(&[("10.0.0.0/8", 8, 9)]));
    assert!(!session.peer.is_pending(), "the policy does not test it");
    // Another policy needs no message of the peer; settings before policy do.
    let accept = IngestSettings { keep_received: true, ..settings() };
    assert!(reject.is_local_change(&accept) && !reject.is_local_change(&settings()));
    assert!(!reject.is_local_change(&IngestSettings { enforce_first_as: false, ..accept.clone() }));
    session.peer.set(accept);
    assert_eq!((session.settle(), session.table.len()), (2, 2));
    session.peer.set(settings());
    assert_eq!((session.peer.received_len::<V4>(), session.table.len()), (0, 2));
}

#[test]
fn kept_routes_are_those_that_policy_may_accept() {
    let mut session = Session::new(IngestSettings { import: policy(Kind::Prefers), ..settings() });
    let kept = |session: &mut Session| -> Vec<String> {
        session
            .ingest
            .view_page(&mut session.peer, None, (9, usize::MAX), &KeptFilter::default())
            .unwrap()
            .0
            .iter()
            .map(|view| view.prefix.to_string())
            .collect()
    };
    let plain = attributes(&[65001, 9], |_| {});
    session.update(&announce_v4(&plain, &["10.0.0.0/8", "127.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"]));
    assert_eq!(kept(&mut session), ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"]);
    // A loop, and a withdrawal.
    session.update(&announce_v4(&attributes(&[65001, 65000], |_| {}), &["10.0.0.0/8"]));
    session.update(&[0, 2, 8, 11, 0, 0]);
    assert_eq!(kept(&mut session), ["12.0.0.0/8"]);
    session.set_vrps(vrps(&[("10.0.0.0/7", 8, 9)]));
    assert_eq!((session.settle(), session.table.len()), (0, 1));
    // RFC 7606: treated as withdrawn.
    let malformed = attributes(&[65001, 9], |out| out.extend([0xc0, code::COMMUNITIES, 3, 1, 2, 3]));
    session.update(&announce_v4(&malformed, &["12.0.0.0/8"]));
    assert_eq!((kept(&mut session).len(), session.table.len()), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    /// Prefixes, their path identifier, and the attributes.
    Announce(Vec<usize>, u32, usize),
    Withdraw(usize, u32),
    Vrps(Vec<(usize, u8, u32)>),
    /// Records: a customer and a provider each.
    Aspas(Vec<(u32, u32)>),
    Evaluate(usize),
    Policy(Kind),
    Forget,
}

const PREFIXES: [&str; 8] = [
    "10.0.0.0/8",
    "10.0.0.0/16",
    "10.0.1.0/24",
    "10.128.0.0/9",
    "10.255.255.255/32",
    "11.0.0.0/8",
    "0.0.0.0/0",
    "127.0.0.0/8",
];

/// The paths of announcements: two origins, one that ends in a set, one with our own AS.
fn paths() -> [Vec<u8>; 4] {
    let set =
        |out: &mut Vec<u8>| build::as_path(out, AsPath::new(&[2, 1, 0, 0, 0xfd, 0xe9, 1, 1, 0, 0, 0, 2]));
    let mut with_set = Vec::new();
    build::origin(&mut with_set, Origin::Incomplete);
    set(&mut with_set);
    [
        attributes(&[65001, 1], |_| {}),
        attributes(&[65001, 2], |_| {}),
        with_set,
        attributes(&[65001, 65000], |_| {}),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(&[Kind::Prefers, Kind::Strict, Kind::Rejects, Kind::RejectsMore][..])
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = 0..PREFIXES.len();
    let step = prop_oneof![
        4 => (prop::collection::vec(n.clone(), 1..5), 0..3u32, 0..4usize)
            .prop_map(|(prefixes, id, path)| Step::Announce(prefixes, id, path)),
        2 => (n.clone(), 0..3u32).prop_map(|(n, id)| Step::Withdraw(n, id)),
        3 => prop::collection::vec((n, 0..9u8, 0..3u32), 0..5).prop_map(Step::Vrps),
        2 => prop::collection::vec((0..3u32, prop::sample::select(&[0, 1, 65001][..])), 0..3).prop_map(Step::Aspas),
        3 => (0..6usize).prop_map(Step::Evaluate),
        1 => kind().prop_map(Step::Policy),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn results_are_those_of_the_last_routes_policy_and_table(steps in steps(), path_ids in any::<bool>(), first in kind()) {
        let mut last = first;
        let role = Some(Role::Provider);
        let with = |kind| IngestSettings { import: policy(kind), role, ..settings() };
        let mut session = match path_ids {
            true => Session::with_path_ids(with(last)),
            false => Session::new(with(last)),
        };
        let send = |session: &mut Session, attributes: Option<&[u8]>, routes: &[PathPrefix<V4>]| {
            let routes = routes.iter().copied();
            session.update(&match path_ids {
                true => body(attributes, routes),
                false => body(attributes, routes.map(|route| route.prefix)),
            });
        };
        let route = |n: usize, id| {
            PathPrefix::<V4> { prefix: PREFIXES[n].parse().unwrap(), path_id: if path_ids { id } else { 0 } }
        };
        let paths = paths();
        let mut routes: BTreeMap<PathPrefix<V4>, usize> = BTreeMap::new();
        let mut present: Vec<(&str, u8, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Announce(prefixes, id, path) => {
                    // Often one twice.
                    let announced: Vec<_> = prefixes.into_iter().map(|n| route(n, id)).collect();
                    routes.extend(announced.iter().map(|route| (*route, path)));
                    send(&mut session, Some(&paths[path]), &announced);
                }
                Step::Withdraw(n, id) => {
                    routes.remove(&route(n, id));
                    send(&mut session, None, &[route(n, id)]);
                }
                Step::Vrps(list) => {
                    let list: Vec<(&str, u8, u32)> = list
                        .into_iter()
                        .map(|(n, more, asn)| {
                            let len = PREFIXES[n].parse::<Prefix<V4>>().unwrap().len();
                            (PREFIXES[n], (len + more).min(32), asn)
                        })
                        .collect();
                    present = list.iter().map(|(prefix, len, asn)| (*prefix, *len, *asn)).collect();
                    session.set_table(table(&list), None);
                }
                Step::Aspas(records) => {
                    let records = records.into_iter().map(|(customer, provider)| (customer, [provider]));
                    session.set_table(table(&present), Some(Aspas::new(records)));
                }
                Step::Evaluate(budget) => {
                    session.ingest.evaluate_again(&mut session.peer, &mut session.out, budget);
                    session.hand_on();
                }
                Step::Policy(kind) => {
                    last = kind;
                    session.peer.set(with(last));
                }
                Step::Forget => session.ingest.forget(),
            }
        }
        session.settle();
        let policy = policy(last);
        let mut expected = BTreeMap::new();
        for (key, path) in routes {
            let prefix = key.prefix;
            // Refused before policy: the loop and the martian.
            if path == 3 || prefix.to_string() == "127.0.0.0/8" {
                continue;
            }
            let attributes = &paths[path];
            let origin = OriginAs([Some(1), Some(2), None][path]);
            let rule = PathRule { direction: Direction::Upstream, first_as: Some(65001), prepended: None };
            let as_path = Attributes::new(attributes).find(|a| a.code == code::AS_PATH).unwrap().value;
            let path = Some(session.vrps.aspas().verify(AsPath::new(as_path), &rule));
            let route = Route {
                attributes,
                next_hop: NextHop::V4(Ipv4Addr::new(192, 0, 2, 3)),
                family: AfiSafi::Ipv4Unicast,
                source: session.peer.info().source(),
                validation: Some(Validation { vrps: &session.vrps, origin, path }),
            };
            if let Some(changes) = policy.evaluate(&route, prefix) {
                let mut out = Vec::new();
                changes.write(attributes, &mut out);
                expected.insert(key, out);
            }
        }
        prop_assert_eq!(session.table, expected);
    }
}
