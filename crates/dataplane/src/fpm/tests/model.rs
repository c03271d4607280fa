//! The client's books beside a server that coalesces changes, takes its time, fails what it likes, with a word or without, and outlives
//! connections: whatever the order, nothing is confirmed before the chip has it, nothing is surely refused but what was told last, and
//! everything is confirmed in the end.

use crate::announcer::Style;
use crate::fpm::encode::Encoder;
use crate::fpm::replies::{DOUBT, Replies, SILENCE_TIMEOUT};
use crate::fpm::sent_state::{FORGOTTEN, Meaning};
use crate::fpm::*;
use crate::install_results::InstallResults;
use proptest::prelude::*;
use ribtide_prefix::{AnyPrefix, Prefix};
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, Protocol};
use ribtide_wire::netlink::numbers::{RTM_F_OFFLOAD, RTM_F_OFFLOAD_FAILED};
use ribtide_wire::netlink::{NextHops, Route};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const PREFIXES: u32 = 3;
const GROUPS: u32 = 3;

/// What happens. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    /// A prefix gets other next hops, or none.
    Route(u32, Option<u32>),
    /// A group has another content: routes that carry it are sent again.
    Group(u32, u8),
    /// The server hands what it knows of a prefix to the chip.
    Pop(u32),
    /// The chip is done with the oldest of a prefix.
    Done(u32, End),
    /// It takes what it refused of a prefix last, if nothing came since then.
    Relent(u32),
    /// A reply arrives.
    Reply,
    /// The connection breaks and is made again; all routes are told again.
    Reconnect,
    /// Time passes.
    Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// It has it, and says so.
    InPlace,
    Silent,
    Refused,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..PREFIXES, prop::option::weighted(0.8, 0..GROUPS)).prop_map(|(p, g)| Step::Route(p, g)),
        1 => (0..GROUPS, 0..3_u8).prop_map(|(g, c)| Step::Group(g, c)),
        4 => (0..PREFIXES).prop_map(Step::Pop),
        4 => (0..PREFIXES).prop_map(|p| Step::Done(p, End::InPlace)),
        1 => (0..PREFIXES, prop::sample::select(vec![End::Silent, End::Refused]))
            .prop_map(|(p, end)| Step::Done(p, end)),
        1 => (0..PREFIXES).prop_map(Step::Relent),
        6 => Just(Step::Reply),
        1 => Just(Step::Reconnect),
        2 => Just(Step::Time),
    ];
    prop::collection::vec(step, 1..120)
}

/// What a route says, as the server sees it; `None` when it is deleted.
type Said = Option<String>;

/// SONiC's server, database, orchagent and chip.
#[derive(Default)]
struct Server {
    /// SentState and not popped: a later change takes the place of an earlier one.
    waiting: BTreeMap<AnyPrefix, Said>,
    /// Popped, in order.
    working: BTreeMap<AnyPrefix, VecDeque<Said>>,
    chip: BTreeMap<AnyPrefix, Said>,
    /// What the chip refused last.
    refused: BTreeMap<AnyPrefix, Said>,
    /// Under way to the client; with what was refused, if it was.
    replies: VecDeque<(AnyPrefix, Said)>,
    /// What each next-hop object stands for.
    objects: BTreeMap<u32, String>,
}

impl Server {
    fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(f) = frame(rest).unwrap() {
            for message in f.messages() {
                match message.unwrap() {
                    FpmMessage::NewRoute(route) => {
                        let said = self.said(&route);
                        self.waiting.insert(route.prefix, Some(said));
                    }
                    FpmMessage::NewNextHop(object) => {
                        self.objects.insert(object.id, format!("{:?}", object.forward));
                    }
                    FpmMessage::DelRoute(route) => {
                        self.waiting.insert(route.prefix, None);
                    }
                    _ => {}
                }
            }
            rest = &rest[f.len..];
        }
    }

    /// A route that names an object is as the object is now. One that is not sent again after its
    /// object changed keeps what it was: no batch waits for that change.
    fn said(&self, route: &Route<'_>) -> String {
        match route.next_hops {
            NextHops::Inline(hops) => hops
                .map(|hop: ribtide_wire::netlink::Hop| format!("{:?}*{} ", hop.via.gateway, hop.weight))
                .collect(),
            NextHops::Id(id) => format!("by {id}: {:?}", self.objects.get(&id)),
            NextHops::None => "none".into(),
        }
    }

    fn pop(&mut self, prefix: AnyPrefix) {
        if let Some(said) = self.waiting.remove(&prefix) {
            self.working.entry(prefix).or_default().push_back(said);
        }
    }

    fn done(&mut self, prefix: AnyPrefix, end: End) {
        let Some(said) = self.working.get_mut(&prefix).and_then(VecDeque::pop_front) else { return };
        self.refused.remove(&prefix);
        match end {
            End::Silent => {}
            End::Refused if said.is_some() => {
                self.replies.push_back((prefix, said.clone()));
                self.refused.insert(prefix, said);
            }
            End::InPlace | End::Refused => self.has(prefix, said),
        }
    }

    fn has(&mut self, prefix: AnyPrefix, said: Said) {
        if said.is_some() {
            self.replies.push_back((prefix, None));
        }
        self.chip.insert(prefix, said);
    }

    fn relent(&mut self, prefix: AnyPrefix) {
        if self.working.get(&prefix).is_none_or(VecDeque::is_empty)
            && let Some(said) = self.refused.remove(&prefix)
        {
            self.has(prefix, said);
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.working.values().all(VecDeque::is_empty) && self.replies.is_empty()
    }
}

/// The client without its threads and sockets.
struct Client {
    encoder: Encoder,
    replies: Replies,
    now: Instant,
    seq: u64,
    groups: BTreeMap<u32, u8>,
    routes: BTreeMap<u32, u32>,
    /// What the server was told last of a prefix: not known to the client in these words.
    sent: BTreeMap<AnyPrefix, String>,
    /// The batch that changed a prefix last; nothing where a group did since, which no batch waits for.
    changed: BTreeMap<AnyPrefix, u64>,
    /// Prefixes that a dataplane failed and did not take back, as the RIB manager notes them: not before their batch is finished.
    failed: BTreeSet<AnyPrefix>,
    acked: u64,
}

fn prefix(number: u32) -> Prefix<ribtide_prefix::V4> {
    Prefix::new((10 << 24) | (number << 8), 24)
}

impl Client {
    fn new(style: Style) -> Client {
        let now = Instant::now();
        Client {
            encoder: Encoder::new(style, now),
            replies: Replies::new(1, now),
            now,
            seq: 0,
            groups: (0..GROUPS).map(|group| (group, 0)).collect(),
            routes: BTreeMap::new(),
            sent: BTreeMap::new(),
            changed: BTreeMap::new(),
            failed: BTreeSet::new(),
            acked: 0,
        }
    }

    fn op(&self, group: u32) -> GroupOp {
        let gateway = format!("10.0.{}.{}", group + 1, self.groups[&group] + 1).parse().unwrap();
        let hop = FibHop { gateway: Some(gateway), interface: 4, weight: 1, onlink: false };
        GroupOp { id: GroupId(group + 1), content: FibGroup::Hops(vec![hop]), source: None }
    }

    fn route(number: u32, group: Option<u32>) -> FibRoute<ribtide_prefix::V4> {
        let group = group.map(|group| GroupId(group + 1));
        FibRoute { prefix: prefix(number), group, protocol: Protocol::BgpExternal }
    }

    fn write(&mut self, mut batch: FibBatch, server: &mut Server) {
        self.seq += 1;
        batch.seq = self.seq;
        self.encoder.sent_state().tick(self.now);
        self.replies.sent(&batch, true, self.now);
        for route in &batch.routes.v4 {
            self.failed.remove(&route.prefix.any());
            self.changed.insert(route.prefix.any(), self.seq);
        }
        let (mut bytes, mut results) = (Vec::new(), InstallResults::default());
        self.encoder.handle(&batch, &mut results, &mut |out| bytes.append(out));
        self.replies.written(results.ack(1, 0).failed);
        self.said(&bytes, server);
        self.hear();
    }

    fn said(&mut self, bytes: &[u8], server: &mut Server) {
        let mut beside = Server { objects: server.objects.clone(), ..Server::default() };
        beside.read(bytes);
        for (prefix, said) in beside.waiting {
            if self.sent.get(&prefix) != said.as_ref() && self.changed.get(&prefix) != Some(&self.seq) {
                self.changed.remove(&prefix);
            }
            match said {
                Some(said) => self.sent.insert(prefix, said),
                None => self.sent.remove(&prefix),
            };
        }
        server.read(bytes);
    }

    fn replay(&mut self, server: &mut Server) {
        self.replies = Replies::new(1, self.now);
        self.failed.clear();
        let mut batch = FibBatch { start_of_replay: true, end_of_replay: true, ..FibBatch::default() };
        batch.groups = (0..GROUPS).map(|group| self.op(group)).collect();
        batch.routes.v4 = self.routes.iter().map(|(p, g)| Client::route(*p, Some(*g))).collect();
        self.write(batch, server);
    }

    fn hear(&mut self) {
        while let Some(ack) = self.replies.news(self.now) {
            self.acked = self.acked.max(ack.seq);
            for at in ack.installed {
                self.failed.remove(&at.prefix);
            }
            let finished = |prefix: &AnyPrefix| self.changed.get(prefix).is_none_or(|seq| *seq <= self.acked);
            self.failed.extend(ack.failed.into_iter().map(|(at, _)| at.prefix).filter(finished));
        }
    }

    /// What BGP tells others of.
    fn check(&self, server: &Server) {
        for (prefix, seq) in self.changed.iter().filter(|(_, seq)| **seq <= self.acked) {
            let in_place = self.sent.get(prefix) == server.chip.get(prefix).and_then(Option::as_ref);
            let withdrawn = !self.sent.contains_key(prefix);
            assert!(
                in_place || withdrawn || self.failed.contains(prefix),
                "{prefix} of batch {seq} is not in the chip"
            );
        }
    }

    fn reply(&mut self, server: &mut Server) {
        let Some((prefix, refused)) = server.replies.pop_front() else { return };
        let mut reply = Route::new(prefix, 0, 186, NextHops::None);
        reply.flags = if refused.is_some() { RTM_F_OFFLOAD_FAILED } else { RTM_F_OFFLOAD };
        let why = refused.is_some().then_some("no");
        match self.encoder.sent_state().reply(&reply) {
            Meaning::Now(at) if refused.is_some() => {
                assert_eq!(refused.as_ref(), self.sent.get(&prefix), "{prefix} was refused as it was before");
                self.replies.replied(at, why, self.now);
            }
            Meaning::Now(at) => {
                let want = self.sent.get(&prefix);
                // It may have been overtaken by the chip's failure of a later try of the same.
                assert_eq!(server.chip[&prefix].as_ref(), want, "{prefix} is confirmed too early");
                self.replies.replied(at, None, self.now);
            }
            Meaning::Unsure(at) => self.replies.unsure(at, why, self.now),
            Meaning::Nothing => {}
        }
        self.hear();
    }

    fn pass(&mut self, time: Duration, server: &mut Server) {
        self.now += time;
        let again = self.replies.again(self.now);
        let (mut bytes, mut results) = (Vec::new(), InstallResults::default());
        self.encoder.resend(&again, &mut results, &mut |out| bytes.append(out));
        assert!(results.ack(1, 0).failed.is_empty());
        self.said(&bytes, server);
        self.hear();
    }
}

fn step(step: &Step, client: &mut Client, server: &mut Server) {
    match step {
        Step::Route(number, group) => {
            match group {
                Some(group) => client.routes.insert(*number, *group),
                None => client.routes.remove(number),
            };
            let mut batch = FibBatch::default();
            batch.routes.v4.push(Client::route(*number, *group));
            client.write(batch, server);
        }
        Step::Group(group, content) => {
            client.groups.insert(*group, *content);
            let batch = FibBatch { groups: vec![client.op(*group)], ..FibBatch::default() };
            client.write(batch, server);
        }
        Step::Pop(number) => server.pop(prefix(*number).any()),
        Step::Done(number, end) => server.done(prefix(*number).any(), *end),
        Step::Relent(number) => server.relent(prefix(*number).any()),
        Step::Reply => client.reply(server),
        Step::Reconnect => client.replay(server),
        Step::Time => client.pass(DOUBT, server),
    }
}

/// Until nothing is under way and no question is open.
fn settle(client: &mut Client, server: &mut Server) {
    for _ in 0..200 {
        for number in 0..PREFIXES {
            let prefix = prefix(number).any();
            server.pop(prefix);
            while !server.working.get(&prefix).is_none_or(VecDeque::is_empty) {
                server.done(prefix, End::InPlace);
            }
        }
        while !server.replies.is_empty() {
            client.reply(server);
        }
        client.pass(DOUBT, server);
        if server.is_idle() {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_confirmed_before_the_chip_has_it_and_everything_is_then(steps in steps(), objects: bool) {
        let style = if objects { Style::Objects } else { Style::Inline };
        let (mut client, mut server) = (Client::new(style), Server::default());
        client.replay(&mut server);
        for s in &steps {
            step(s, &mut client, &mut server);
            client.check(&server);
        }
        // From now on the server answers everything, and nothing changes.
        settle(&mut client, &mut server);
        prop_assert!(server.is_idle());
        client.pass(SILENCE_TIMEOUT, &mut server);
        prop_assert_eq!(client.acked, client.seq);
        // Only what the chip failed is not confirmed; the RIB manager tries it again.
        for prefix in std::mem::take(&mut client.failed) {
            let fails = steps.iter().any(|s| matches!(s, Step::Done(_, End::Silent | End::Refused)));
            prop_assert!(fails, "{prefix} is in the chip and counts as failed");
        }
        let mut again = FibBatch { again: true, ..FibBatch::default() };
        again.routes.v4 = client.routes.iter().map(|(p, g)| Client::route(*p, Some(*g))).collect();
        client.write(again, &mut server);
        settle(&mut client, &mut server);
        prop_assert_eq!(client.acked, client.seq);
        prop_assert!(client.failed.is_empty());
    }
}

#[test]
fn the_reply_about_a_former_version_confirms_nothing_and_the_server_is_asked_again() {
    let (mut client, mut server) = (Client::new(Style::Inline), Server::default());
    client.replay(&mut server);
    let p = prefix(0).any();
    for group in [0, 1] {
        step(&Step::Route(0, Some(group)), &mut client, &mut server);
    }
    // Both became one before the chip saw any: one reply, which could be the first's.
    server.pop(p);
    server.done(p, End::InPlace);
    client.reply(&mut server);
    assert_eq!((client.acked, client.seq), (2, 3), "what is superseded needs no answer");
    client.pass(DOUBT / 2, &mut server);
    assert!(server.waiting.is_empty());
    client.pass(DOUBT / 2, &mut server);
    assert!(server.waiting.contains_key(&p), "it is asked again");
    client.pass(DOUBT, &mut server);
    server.pop(p);
    server.done(p, End::InPlace);
    client.reply(&mut server);
    assert_eq!(client.acked, 3);
}

#[test]
fn reply_to_a_route_of_before_a_change_of_its_group_confirms_nothing() {
    let (mut client, mut server) = (Client::new(Style::Objects), Server::default());
    client.replay(&mut server);
    let p = prefix(0).any();
    step(&Step::Route(0, Some(0)), &mut client, &mut server);
    server.pop(p);
    step(&Step::Group(0, 1), &mut client, &mut server);
    // The same message once more, as after a failure.
    step(&Step::Route(0, Some(0)), &mut client, &mut server);
    server.done(p, End::InPlace);
    client.reply(&mut server);
    assert_eq!((client.acked, client.seq), (3, 4), "the chip may have it by the former next hops");
    server.pop(p);
    server.done(p, End::InPlace);
    client.reply(&mut server);
    assert_eq!(client.acked, 4);
}

#[test]
fn what_is_gone_is_remembered_while_a_reply_about_it_may_come() {
    let (mut client, mut server) = (Client::new(Style::Inline), Server::default());
    client.replay(&mut server);
    let p = prefix(0).any();
    for group in [Some(0), None, Some(1)] {
        step(&Step::Route(0, group), &mut client, &mut server);
        server.pop(p);
    }
    server.done(p, End::InPlace);
    client.reply(&mut server);
    assert_eq!(client.acked, 3, "the reply about the first is not the third's");
    server.done(p, End::InPlace);
    server.done(p, End::InPlace);
    client.reply(&mut server);
    assert_eq!(client.acked, 4);
    // Without an answer it is forgotten some day: the encoder's clock began a moment after ours.
    let sent = client.encoder.sent_state();
    for number in 0..2_000 {
        step(&Step::Route(number, Some(0)), &mut client, &mut server);
        step(&Step::Route(number, None), &mut client, &mut server);
    }
    assert_eq!(sent.gone(), 2_000);
    client.now += FORGOTTEN + Duration::from_secs(60);
    for number in 2_000..5_000 {
        step(&Step::Route(number, Some(0)), &mut client, &mut server);
        step(&Step::Route(number, None), &mut client, &mut server);
    }
    assert_eq!(sent.gone(), 3_000);
}

#[test]
fn what_is_never_answered_does_not_hold_up_what_comes_after_it() {
    let (mut client, mut server) = (Client::new(Style::Inline), Server::default());
    client.replay(&mut server);
    step(&Step::Route(0, Some(0)), &mut client, &mut server);
    server.pop(prefix(0).any());
    server.done(prefix(0).any(), End::Silent);
    // Something is always answered, so that it is never silent.
    for number in (1..PREFIXES).cycle().take(30) {
        client.pass(Duration::from_secs(1), &mut server);
        step(&Step::Route(number, None), &mut client, &mut server);
        step(&Step::Route(number, Some(1)), &mut client, &mut server);
        server.pop(prefix(number).any());
        server.done(prefix(number).any(), End::InPlace);
        client.reply(&mut server);
    }
    assert_eq!(client.acked, client.seq);
    assert_eq!(client.failed, BTreeSet::from([prefix(0).any()]));
}
