//! Two routers and the path between them, in simulated time.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use ribtide_bfd::*;
use ribtide_wire::bfd::{Control, State};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub const MS: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

pub fn timers(tx_ms: u32, rx_ms: u32, multiplier: u8) -> Timers {
    Timers { min_tx: tx_ms * 1_000, min_rx: rx_ms * 1_000, multiplier }
}

pub fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, side as u8 + 1])
}

/// One router: its only session, the packets that it sent, and its changes of state.
pub struct Side {
    pub sessions: Sessions,
    pub id: Discriminator,
    pub sent: Vec<(Micros, Control)>,
    pub changes: Vec<(Micros, State)>,
}

/// The path of packets from one side.
#[derive(Clone, Copy)]
pub struct Path {
    /// Their delay.
    pub delay: Micros,
    /// Additional random delay, at most.
    pub spread: Micros,
    /// Loss in percent.
    pub loss: u64,
    /// Whether all packets are lost.
    pub cut: bool,
}

impl Default for Path {
    fn default() -> Self {
        Path { delay: MS, spread: 0, loss: 0, cut: false }
    }
}

pub struct Network {
    pub now: Micros,
    pub sides: [Side; 2],
    pub paths: [Path; 2],
    /// By time and a number: the receiver and the bytes.
    packets: BTreeMap<(Micros, u64), (usize, Vec<u8>)>,
    numbers: u64,
    random: u64,
}

impl Network {
    pub fn new(timers: [Timers; 2], seed: u64) -> Network {
        let side = |n: usize| {
            let mut sessions = Sessions::new(seed * 2 + n as u64);
            let id = sessions.add(place(n), timers[n], 0);
            Side { sessions, id, sent: Vec::new(), changes: Vec::new() }
        };
        Network {
            now: 0,
            sides: [side(0), side(1)],
            paths: [Path::default(); 2],
            packets: BTreeMap::new(),
            numbers: 0,
            random: seed,
        }
    }

    pub fn session(&self, side: usize) -> &Session {
        &self.sides[side].sessions.get(self.sides[side].id).unwrap().session
    }

    pub fn states(&self) -> [State; 2] {
        [self.session(0).state(), self.session(1).state()]
    }

    /// Restarts a side without its state.
    pub fn restart(&mut self, side: usize, timers: Timers) {
        self.random = self.random.wrapping_add(77);
        let mut sessions = Sessions::new(self.random);
        self.sides[side].id = sessions.add(place(side), timers, self.now);
        self.sides[side].sessions = sessions;
    }

    pub fn event(&mut self, side: usize, event: Event<'_>) {
        let mut out = Vec::new();
        let id = self.sides[side].id;
        self.sides[side].sessions.event(id, event, self.now, &mut out);
        self.take(side, out);
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below.max(1)
    }

    fn take(&mut self, side: usize, effects: Vec<(Discriminator, Effect)>) {
        for (_, effect) in effects {
            match effect {
                Effect::Changed(_, to) => self.sides[side].changes.push((self.now, to)),
                Effect::Send(control) => {
                    self.sides[side].sent.push((self.now, control));
                    let path = self.paths[side];
                    if path.cut || self.random(100) < path.loss {
                        continue;
                    }
                    let at = self.now + path.delay + self.random(path.spread + 1);
                    self.numbers += 1;
                    self.packets.insert((at, self.numbers), (1 - side, control.to_bytes().to_vec()));
                }
            }
        }
    }

    /// Advances the time.
    pub fn run(&mut self, time: Micros) {
        let end = self.now + time;
        loop {
            let timers = self.sides.iter().filter_map(|s| s.sessions.deadline());
            let packet = self.packets.keys().next().map(|(at, _)| *at);
            let Some(next) = timers.chain(packet).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            if packet.is_some_and(|at| at <= self.now) {
                let (_, (to, bytes)) = self.packets.pop_first().unwrap();
                let mut out = Vec::new();
                let origin = origin(to);
                let _ = self.sides[to].sessions.packet(&bytes, &origin, self.now, &mut out);
                self.take(to, out);
            }
            for side in 0..2 {
                let mut out = Vec::new();
                self.sides[side].sessions.tick(self.now, &mut out);
                self.take(side, out);
            }
        }
        self.now = end;
    }
}

pub fn place(side: usize) -> Place {
    Place { peer: address(1 - side), local: None, interface: None, reach: Reach::Link }
}

/// The reception of a packet for `side`.
pub fn origin(side: usize) -> Origin {
    Origin { from: address(1 - side), to: address(side), interface: 2, ttl: 255, multihop: false }
}
