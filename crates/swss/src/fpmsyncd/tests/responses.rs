//! Random rows and answers of one route against an orchagent that coalesces rows, a chip that refuses some, perhaps for a while, and a
//! client that keeps books as ribtide's FPM client does: nothing is confirmed before the chip has it, only what was announced last is
//! said to be refused, it is said, and everything is confirmed in the end.

use super::client::{Client, KEY};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Act {
    Announce(u8),
    Del,
    /// What fpmsyncd writes is handed over.
    Take,
    /// Redis was lost: every row is written again.
    Recount,
    /// orchagent takes so many rows as one, carries them out and answers.
    Program(usize),
    /// The same, and the chip refuses.
    Refuse(usize),
    /// The chip takes what it refused last.
    Relent,
    /// fpmsyncd hears what was said first.
    Hear,
    /// What was said and not heard is lost, and what is in the chip is said.
    Break,
    /// A new routing daemon's session; it announces what there is.
    Reconnect,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => (1..4u8).prop_map(Act::Announce),
        1 => Just(Act::Del),
        5 => Just(Act::Take),
        1 => Just(Act::Recount),
        5 => (1..4usize).prop_map(Act::Program),
        2 => (1..4usize).prop_map(Act::Refuse),
        1 => Just(Act::Relent),
        6 => Just(Act::Hear),
        1 => Just(Act::Break),
        1 => Just(Act::Reconnect),
    ];
    prop::collection::vec(act, 1..60)
}

enum Sent {
    Answer,
    InChip,
    Refused(u8),
}

struct World {
    bench: Bench,
    /// Rows on their way, by gateway; `None` for a deletion.
    rows: VecDeque<Option<u8>>,
    /// What the chip has, and what it refused that was asked for last.
    chip: Option<u8>,
    refused: Option<u8>,
    sent: VecDeque<Sent>,
    client: Client,
}

impl World {
    fn announce(&mut self, gateway: Option<u8>) {
        self.client.announce(gateway, true, &mut self.bench);
        self.replies();
    }

    fn wrote(&mut self) {
        for line in self.bench.drain() {
            self.rows.push_back(self.client.last.filter(|_| !line.ends_with("DEL")));
        }
        self.replies();
    }

    fn take(&mut self) {
        self.bench.machine.take(&mut self.bench.out);
        self.wrote();
    }

    fn program(&mut self, count: usize, refuses: bool) {
        let count = count.min(self.rows.len());
        let Some(last) = self.rows.drain(..count).next_back() else { return };
        self.refused = last.filter(|_| refuses && last != self.chip);
        match self.refused {
            Some(gateway) => self.sent.push_back(Sent::Refused(gateway)),
            None => self.has(last),
        }
    }

    fn has(&mut self, row: Option<u8>) {
        self.chip = row;
        // Deletions are not reported.
        self.sent.extend(row.map(|_| Sent::Answer));
    }

    fn relent(&mut self) {
        if let Some(gateway) = self.refused.take() {
            self.has(Some(gateway));
        }
    }

    /// All that is under way arrives. False when nothing was.
    fn go_on(&mut self, refuses: bool) -> bool {
        self.take();
        self.program(1, refuses);
        self.hear() || !self.rows.is_empty() || self.bench.machine.pending() > 0
    }

    fn hear(&mut self) -> bool {
        let at = || std::iter::once(prefix(KEY));
        match self.sent.pop_front() {
            Some(Sent::Answer) => self.bench.machine.confirm_all(None, "bgp", at(), &mut self.bench.out),
            Some(Sent::Refused(gateway)) => {
                let row = (prefix(KEY), bgp_row(&format!("10.0.0.{gateway}")).digest());
                let why = gateway.to_string().into();
                self.bench.machine.refused(None, &why, std::iter::once(row), &mut self.bench.out);
            }
            Some(Sent::InChip) => self.bench.machine.in_chip(None, at(), true),
            None => return false,
        }
        self.replies();
        true
    }

    fn replies(&mut self) {
        assert_eq!(self.bench.machine.awaiting(), self.bench.machine.count_awaiting());
        let is_there = self.chip == self.client.last && self.rows.iter().all(|row| *row == self.client.last);
        self.client.hear(is_there, &mut self.bench);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Announce(gateway) => self.announce(Some(gateway)),
            Act::Del => self.announce(None),
            Act::Take => self.take(),
            Act::Recount => {
                self.take();
                let mut again = self.bench.machine.resend_all();
                let all = super::ResendKind::AsNew;
                assert!(!self.bench.machine.next_resent(&mut again, all, 9, &mut self.bench.out));
                self.wrote();
            }
            Act::Program(count) => self.program(count, false),
            Act::Refuse(count) => self.program(count, true),
            Act::Relent => self.relent(),
            Act::Hear => drop(self.hear()),
            Act::Break => {
                self.sent.clear();
                self.sent.extend(self.chip.map(|_| Sent::InChip));
            }
            Act::Reconnect => {
                self.bench.reconnect();
                if self.client.last.is_some() {
                    self.announce(self.client.last);
                }
                self.bench.machine.end_of_replay(&mut self.bench.out);
            }
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 20000, ..Config::default() })]

    #[test]
    fn no_answer_counts_early_and_everything_is_confirmed_in_the_end(acts in acts()) {
        let mut world = World {
            bench: Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() }),
            rows: VecDeque::new(),
            chip: None,
            refused: None,
            sent: VecDeque::new(),
            client: Client::default(),
        };
        acts.into_iter().for_each(|act| world.act(act));
        // The chip refuses what it does not have; asked again, no route is in doubt for ever.
        world.announce(world.client.last);
        for _ in 0..2000 {
            if !world.go_on(true) {
                if !world.client.unsure {
                    break;
                }
                world.announce(world.client.last);
            }
        }
        prop_assert!(world.client.refused || world.client.has_its_answer(), "its refusal was not reported");
        for _ in 0..2000 {
            if !world.go_on(false) {
                if world.client.has_its_answer() {
                    break;
                }
                // The client asks once more, and tries again what failed.
                world.announce(world.client.last);
            }
        }
        prop_assert!(world.client.has_its_answer(), "never confirmed");
    }
}
