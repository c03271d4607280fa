//! Two connections at once (RFC 4271 section 6.8): single steps; two machines, and a machine with models of other
//! implementations, in every order of their messages.

use super::*;
use std::collections::VecDeque;

/// Ours in OpenSent, and theirs, which waits for it.
fn colliding() -> Bench {
    let mut bench = Bench::new(false);
    assert_eq!(kind(&bench.event(Event::Connected)[0]), Some(MessageType::Open));
    assert_eq!(bench.event(Event::Accepted), [], "our OPEN goes out on one connection at a time");
    bench
}

const COLLISION: Option<(u8, u8)> = Some((6, 7));

#[test]
fn open_on_the_waiting_connection_decides_by_the_greater_identifier() {
    // The peer's 10.0.0.2 is greater than our 10.0.0.1: theirs stays.
    let mut bench = colliding();
    let out = bench.open(Side::Theirs, 2);
    assert_eq!((notified(&out[0]), &out[1]), (COLLISION, &Action::Close(Side::Ours)));
    let kinds: Vec<_> = out[2..].iter().map(kind).collect();
    assert_eq!(kinds, [Some(MessageType::Open), Some(MessageType::Keepalive)]);
    assert!(bench.peer.last_error().is_none(), "the loser of a collision is no error");
    assert!(matches!(bench.keepalive(Side::Theirs)[..], [Action::Up(Side::Theirs, _)]));

    // 10.0.0.0 is smaller: ours stays, and theirs ends with the session.
    let mut bench = colliding();
    assert_eq!(bench.open(Side::Theirs, 0), []);
    assert_eq!(kind(&bench.open(Side::Ours, 0)[0]), Some(MessageType::Keepalive));
    assert_eq!(bench.tick_at(bench.now + 60_000).len(), 1, "it waits no more: a KEEPALIVE is due");
    let out = bench.keepalive(Side::Ours);
    assert_eq!((notified(&out[0]), &out[1]), (COLLISION, &Action::Close(Side::Theirs)));
    assert!(matches!(out[2], Action::Up(Side::Ours, _)));
    assert!(bench.peer.last_error().is_none());
}

#[test]
fn equal_identifiers_of_two_as_are_ordered_by_as() {
    for (asn, stays) in [(65002, Side::Theirs), (64999, Side::Ours)] {
        let mut bench = colliding();
        bench.peer.settings.peer_asn = None;
        let open = Settings { local_asn: asn, ..settings(1, false) }.first_open();
        let out = bench.event(Event::Message(Side::Theirs, MessageType::Open, &open[HEADER_LEN..])).to_vec();
        assert_eq!(out.contains(&Action::Close(Side::Ours)), stays == Side::Theirs);
    }
}

/// A KEEPALIVE of ours may have established the connection at the peer, which would drop retained routes with it (RFC 4724).
#[test]
fn connection_in_open_confirm_stays_whatever_the_identifiers() {
    for id in [0, 2] {
        let mut bench = colliding();
        bench.open(Side::Ours, id);
        let due = bench.now + KEEPALIVE_DELAY;
        assert_eq!(kind(&bench.tick_at(due)[0]), Some(MessageType::Keepalive));
        assert_eq!(bench.open(Side::Theirs, id), []);
        let out = bench.keepalive(Side::Ours);
        assert_eq!((notified(&out[0]), &out[1]), (COLLISION, &Action::Close(Side::Theirs)));
        assert!(matches!(out[2], Action::Up(Side::Ours, _)));
        let refusal = [Action::Refuse(Notification::cease(cease::COLLISION))];
        assert_eq!(bench.event(Event::Accepted), refusal);
    }
}

/// FRR ends a session that is established while its own connection is not open on its side yet. Its OPEN there shows that it
/// is.
#[test]
fn keepalive_waits_for_the_open_on_the_other_connection() {
    type Ending = fn(&mut Bench) -> Vec<Action>;
    let endings: [Ending; 3] = [
        |bench| bench.open(Side::Theirs, 2),
        |bench| bench.event(Event::Closed(Side::Theirs, "reset".into())).to_vec(),
        |bench| bench.tick_at(bench.now + KEEPALIVE_DELAY).to_vec(),
    ];
    for (at, ending) in endings.into_iter().enumerate() {
        for is_confirmed in [false, true] {
            let mut bench = colliding();
            assert_eq!(bench.open(Side::Ours, 2), []);
            assert_eq!(bench.peer.next_deadline(), Some(bench.now + KEEPALIVE_DELAY));
            if is_confirmed {
                assert_eq!(bench.keepalive(Side::Ours), []);
            }
            assert_eq!(bench.state(), State::OpenConfirm);
            let mut out = ending(&mut bench);
            out.retain(|action| *action != Action::Close(Side::Theirs));
            assert_eq!(kind(&out[0]), Some(MessageType::Keepalive), "ending {at}");
            if !is_confirmed {
                assert_eq!(out.len(), 1);
                out = bench.keepalive(Side::Ours);
            }
            assert!(matches!(out.last(), Some(Action::Up(Side::Ours, _))), "ending {at}");
        }
    }
}

/// RFC 4724 section 5: a connection that comes to a peer in state Established would end that session.
#[test]
fn attempt_to_connect_ends_before_our_keepalive() {
    let mut bench = Bench::new(false);
    bench.event(Event::Accepted);
    let out = bench.open(Side::Theirs, 2);
    assert_eq!((&out[0], kind(&out[1])), (&Action::Close(Side::Ours), Some(MessageType::Keepalive)));
    assert!(matches!(bench.keepalive(Side::Theirs)[..], [Action::Up(Side::Theirs, _)]));
    // By our greater identifier the peer may end this one, and stay with ours.
    let mut bench = Bench::new(false);
    bench.event(Event::Accepted);
    assert_eq!(bench.open(Side::Theirs, 0).len(), 1);
    assert_eq!(bench.event(Event::Connected), []);
    let out = bench.event(Event::Message(Side::Theirs, MessageType::Notification, &[6, 7]));
    assert_eq!((&out[0], kind(&out[1])), (&Action::Close(Side::Theirs), Some(MessageType::Open)));
}

#[test]
fn waiting_connection_goes_on_when_the_other_one_ends() {
    type Ending = fn(&mut Bench) -> Vec<Action>;
    let endings: [Ending; 3] = [
        |bench| bench.event(Event::Closed(Side::Ours, "reset".into())).to_vec(),
        |bench| bench.event(Event::Message(Side::Ours, MessageType::Notification, &[6, 7])).to_vec(),
        |bench| bench.event(Event::Message(Side::Ours, MessageType::Open, &[0; 10]))[1..].to_vec(),
    ];
    for ending in endings {
        // Before the peer's OPEN there.
        let mut bench = colliding();
        let out = ending(&mut bench);
        assert_eq!(
            (&out[0], kind(&out[1]), out.len()),
            (&Action::Close(Side::Ours), Some(MessageType::Open), 2)
        );
        assert_eq!(kind(&bench.open(Side::Theirs, 0)[0]), Some(MessageType::Keepalive));
        assert!(matches!(bench.keepalive(Side::Theirs)[..], [Action::Up(Side::Theirs, _)]));
        // After it.
        let mut bench = colliding();
        bench.open(Side::Theirs, 0);
        let out = ending(&mut bench);
        let kinds: Vec<_> = out[1..].iter().map(kind).collect();
        assert_eq!(kinds, [Some(MessageType::Open), Some(MessageType::Keepalive)]);
        assert!(matches!(bench.keepalive(Side::Theirs)[..], [Action::Up(Side::Theirs, _)]));
    }
}

/// A connection on which the peer says nothing, as one that it has forgotten, does not keep another one for long.
#[test]
fn silent_connection_gives_way() {
    for (delay, open) in [(OPEN_DELAY, false), (OPEN_DELAY_AFTER_THEIRS, true)] {
        let mut bench = colliding();
        if open {
            bench.open(Side::Theirs, 0);
        }
        let due = bench.now + delay;
        assert_eq!(bench.peer.next_deadline(), Some(due));
        assert_eq!(bench.tick_at(due - 1), []);
        let out = bench.tick_at(due).to_vec();
        assert_eq!((notified(&out[0]), &out[1]), (COLLISION, &Action::Close(Side::Ours)));
        assert_eq!(kind(&out[2]), Some(MessageType::Open));
        assert_eq!(out.len(), 3 + usize::from(open), "KEEPALIVE follows where the peer's OPEN is here");
        // One that it answers does.
        let mut bench = colliding();
        bench.open(Side::Ours, 0);
        if open {
            bench.open(Side::Theirs, 0);
        }
        assert_eq!(bench.tick_at(due).iter().filter(|action| matches!(action, Action::Close(_))).count(), 0);
    }
}

#[test]
fn end_of_both_sends_no_open_on_the_one_that_waited() {
    for event in [
        Event::Stop(Notification::cease(cease::ADMIN_SHUTDOWN)),
        Event::Reset(Notification::cease(cease::ADMIN_RESET)),
        Event::Hold(Obstacle::Bfd),
    ] {
        for first in [Side::Ours, Side::Theirs] {
            let mut bench = Bench::new(false);
            for side in [first, first.other()] {
                bench.event(if side == Side::Ours { Event::Connected } else { Event::Accepted });
            }
            let opened = bench.open(first, 2);
            assert_eq!(opened, []);
            bench.keepalive(first);
            let out = bench.event(event.clone()).to_vec();
            assert!(!out.iter().any(|action| matches!(action, Action::Up(..))));
            assert!(out.iter().all(|action| kind_of(action) != Some(MessageType::Open)), "{out:?}");
            let closed = |side| out.contains(&Action::Close(side));
            assert!(closed(Side::Ours) && closed(Side::Theirs));
        }
    }
}

/// The kind of a sent message.
fn kind_of(action: &Action) -> Option<MessageType> {
    matches!(action, Action::Send(..)).then(|| kind(action)).flatten()
}

/// How another implementation resolves a collision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// RFC 4271 section 6.8 to the letter: at OPEN it compares with a connection in OpenConfirm.
    OpenConfirm,
    /// As FRR and BIRD: with one in OpenSent too, whose identifier it knows by the OPEN that has come.
    OpenSent,
}

/// The phase of a connection of [`Model`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    OpenSent,
    OpenConfirm,
    Established,
}

/// Another implementation. It sends OPEN at once on every connection; an established session stays.
#[derive(Clone, Debug)]
struct Model {
    rule: Rule,
    id: u8,
    other_id: u8,
    /// By the opener: the machine, the model.
    connections: [Option<At>; 2],
    /// Sessions that ended.
    lost: u32,
}

/// A message between the two, on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Sent {
    Accepted,
    Connected,
    Bytes(Vec<u8>),
    Closed,
}

impl Model {
    fn open(&mut self, connection: usize, out: &mut Vec<(usize, Sent)>) {
        if self.connections.contains(&Some(At::Established)) {
            self.connections[connection] = Some(At::OpenSent);
            return self.cease(connection, out);
        }
        self.connections[connection] = Some(At::OpenSent);
        out.push((connection, Sent::Bytes(settings(self.id, false).first_open())));
    }

    fn cease(&mut self, connection: usize, out: &mut Vec<(usize, Sent)>) {
        let mut message = Vec::new();
        Notification::cease(cease::COLLISION).write(&mut message);
        out.push((connection, Sent::Bytes(message)));
        self.close(connection, out);
    }

    fn close(&mut self, connection: usize, out: &mut Vec<(usize, Sent)>) {
        self.lost += u32::from(self.connections[connection].take() == Some(At::Established));
        out.push((connection, Sent::Closed));
    }

    fn handle(&mut self, connection: usize, sent: Sent, out: &mut Vec<(usize, Sent)>) {
        let Sent::Bytes(bytes) = sent else {
            match sent {
                Sent::Accepted | Sent::Connected => self.open(connection, out),
                Sent::Closed => {
                    self.lost += u32::from(self.connections[connection].take() == Some(At::Established));
                }
                Sent::Bytes(_) => unreachable!(),
            }
            return;
        };
        let Some(at) = self.connections[connection] else { return };
        let other = 1 - connection;
        let mut keepalive = Vec::new();
        write_keepalive(&mut keepalive);
        match (at, frame(&bytes, MAX_LEN).unwrap().unwrap().kind) {
            (At::OpenSent, MessageType::Open) => {
                let rival = match self.connections[other] {
                    Some(At::Established) => return self.cease(connection, out),
                    Some(At::OpenConfirm) => true,
                    Some(At::OpenSent) => self.rule == Rule::OpenSent,
                    None => false,
                };
                let stays = usize::from(self.id > self.other_id);
                if rival && stays == other {
                    return self.cease(connection, out);
                } else if rival {
                    self.cease(other, out);
                }
                self.connections[connection] = Some(At::OpenConfirm);
                out.push((connection, Sent::Bytes(keepalive)));
            }
            (At::OpenConfirm, MessageType::Keepalive) => {
                self.connections[connection] = Some(At::Established);
                if self.connections[other].is_some() {
                    self.cease(other, out);
                }
            }
            (_, MessageType::Notification) => self.close(connection, out),
            (At::Established, MessageType::Keepalive) => {}
            (at, kind) => panic!("{kind:?} in {at:?}"),
        }
    }
}

/// One end of the two connections.
#[derive(Clone, Debug)]
enum End {
    Machine(Box<Peer>),
    Model(Model),
}

/// Two ends that both connect once at the same instant, and what is on its way: to each end, on each connection (that of its
/// opener).
#[derive(Clone)]
struct Pair {
    ends: [End; 2],
    queues: [[VecDeque<Sent>; 2]; 2],
    /// Whether a connection is closed at an end.
    closed: [[bool; 2]; 2],
    /// Sessions that ended at a machine.
    lost: u32,
    now: Millis,
}

impl Pair {
    fn new(ends: [End; 2]) -> Pair {
        let mut queues: [[VecDeque<Sent>; 2]; 2] = Default::default();
        for (opener, queue) in [(0, 1), (1, 0)] {
            queues[opener][opener].push_back(Sent::Connected);
            queues[queue][opener].push_back(Sent::Accepted);
        }
        let mut pair = Pair { ends, queues, closed: [[false; 2]; 2], lost: 0, now: 0 };
        for end in &mut pair.ends {
            if let End::Machine(peer) = end {
                let mut out = Vec::new();
                peer.handle(Event::Start, 0, &mut out);
                assert_eq!(out, [Action::Connect]);
            }
        }
        pair
    }

    fn machine(id: u8) -> End {
        End::Machine(Box::new(Peer::new(settings(id, false), u64::from(id))))
    }

    fn ready(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..4).map(|n| (n / 2, n % 2)).filter(|(end, connection)| !self.queues[*end][*connection].is_empty())
    }

    fn tick(&mut self, end: usize) {
        let mut actions = Vec::new();
        if let End::Machine(peer) = &mut self.ends[end] {
            peer.handle(Event::Tick, self.now, &mut actions);
        }
        let out = self.of_machine(end, actions);
        self.send(end, out);
    }

    /// Delivers the next message on a connection to an end.
    fn step(&mut self, end: usize, connection: usize) {
        let sent = self.queues[end][connection].pop_front().expect("a message");
        if sent == Sent::Closed && std::mem::replace(&mut self.closed[end][connection], true) {
            return;
        }
        let mut out = Vec::new();
        match &mut self.ends[end] {
            End::Model(model) => model.handle(connection, sent, &mut out),
            End::Machine(peer) => {
                let side = if connection == end { Side::Ours } else { Side::Theirs };
                let mut actions = Vec::new();
                let event = match &sent {
                    Sent::Accepted => Event::Accepted,
                    Sent::Connected => Event::Connected,
                    Sent::Closed => Event::Closed(side, "closed".into()),
                    Sent::Bytes(bytes) => {
                        let frame = frame(bytes, MAX_LEN).unwrap().unwrap();
                        Event::Message(side, frame.kind, frame.body)
                    }
                };
                peer.handle(event, self.now, &mut actions);
                out = self.of_machine(end, actions);
            }
        }
        self.send(end, out);
    }

    /// What a machine sends by these actions.
    fn of_machine(&mut self, end: usize, actions: Vec<Action>) -> Vec<(usize, Sent)> {
        let mut out = Vec::new();
        for action in actions {
            let of = |side| if side == Side::Ours { end } else { 1 - end };
            match action {
                Action::Send(side, bytes) => out.push((of(side), Sent::Bytes(bytes))),
                Action::Close(side) => out.push((of(side), Sent::Closed)),
                Action::Refuse(_) => out.push((1 - end, Sent::Closed)),
                Action::Down(_) => self.lost += 1,
                Action::Up(..) => {}
                Action::Connect => panic!("both connections have ended"),
            }
        }
        out
    }

    fn send(&mut self, end: usize, out: Vec<(usize, Sent)>) {
        for (connection, sent) in out {
            if sent == Sent::Closed {
                self.queues[end][connection].clear();
                self.closed[end][connection] = true;
            }
            if !self.closed[1 - end][connection] {
                self.queues[1 - end][connection].push_back(sent);
            }
        }
    }

    /// The established connection of an end.
    fn session(&self, end: usize) -> Option<usize> {
        match &self.ends[end] {
            End::Machine(peer) => {
                peer.established_side().map(|side| if side == Side::Ours { end } else { 1 - end })
            }
            End::Model(model) => model.connections.iter().position(|at| *at == Some(At::Established)),
        }
    }

    /// At rest: both have the same session, and it is their first.
    fn check(&self, path: &[(usize, usize)]) {
        let sessions = [self.session(0), self.session(1)];
        assert!(sessions[0].is_some() && sessions[0] == sessions[1], "{sessions:?} after {path:?}");
        let lost = self.ends.iter().map(|end| if let End::Model(model) = end { model.lost } else { 0 });
        assert_eq!(self.lost + lost.sum::<u32>(), 0, "a session was lost after {path:?}");
    }

    /// Every order of deliveries from here on; the number of ends of such orders.
    fn all(&self, path: &mut Vec<(usize, usize)>) -> u32 {
        let ready: Vec<_> = self.ready().collect();
        if ready.is_empty() && self.now == 0 && self.session(0).is_none() {
            // Two machines may wait for an OPEN on a connection on which neither sends one.
            let mut later = self.clone();
            later.now = KEEPALIVE_DELAY;
            (0..2).for_each(|end| later.tick(end));
            return later.all(path);
        }
        if ready.is_empty() {
            self.check(path);
            return 1;
        }
        let mut count = 0;
        for (end, connection) in ready {
            let mut next = self.clone();
            path.push((end, connection));
            next.step(end, connection);
            count += next.all(path);
            path.pop();
        }
        count
    }
}

/// Neither end connects again, no session is lost, and no timer is longer than [`KEEPALIVE_DELAY`].
#[test]
fn both_connections_at_the_same_instant_give_one_session_in_every_order() {
    for (ours, theirs) in [(1, 2), (2, 1)] {
        let mut ends = vec![[Pair::machine(ours), Pair::machine(theirs)]];
        for rule in [Rule::OpenConfirm, Rule::OpenSent] {
            let model = Model { rule, id: theirs, other_id: ours, connections: [None; 2], lost: 0 };
            ends.push([Pair::machine(ours), End::Model(model)]);
        }
        for ends in ends {
            let name = format!("{ends:?}");
            let orders = Pair::new(ends).all(&mut Vec::new());
            assert!(orders > 100, "{orders} orders with {name}");
        }
    }
}
