//! Random rows and answers of one route against an orchagent that unites rows, and a client that keeps books as ribtide's FPM
//! client does: nothing is confirmed before the chip has it, and everything is in the end.

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
    Anew,
    /// orchagent takes so many rows as one, carries them out and answers.
    Program(usize),
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
        1 => Just(Act::Anew),
        5 => (1..4usize).prop_map(Act::Program),
        6 => Just(Act::Hear),
        1 => Just(Act::Break),
        1 => Just(Act::Reconnect),
    ];
    prop::collection::vec(act, 1..60)
}

enum Says {
    Answer,
    InChip,
}

struct World {
    bench: Bench,
    /// Rows on their way, by gateway; `None` for a deletion.
    rows: VecDeque<Option<u8>>,
    /// What the chip has.
    chip: Option<u8>,
    said: VecDeque<Says>,
    client: Client,
}

impl World {
    fn say(&mut self, gateway: Option<u8>) {
        self.client.say(gateway, true, &mut self.bench);
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

    fn program(&mut self, count: usize) {
        let count = count.min(self.rows.len());
        if let Some(last) = self.rows.drain(..count).next_back() {
            self.chip = last;
            // Of deletions nobody is told.
            self.said.extend(last.map(|_| Says::Answer));
        }
    }

    fn hear(&mut self) -> bool {
        let at = || std::iter::once(prefix(KEY));
        match self.said.pop_front() {
            Some(Says::Answer) => self.bench.machine.confirm_all(None, "bgp", at(), &mut self.bench.out),
            Some(Says::InChip) => self.bench.machine.in_chip(None, at(), true),
            None => return false,
        }
        self.replies();
        true
    }

    fn replies(&mut self) {
        let is_there = self.chip == self.client.last && self.rows.iter().all(|row| *row == self.client.last);
        self.client.hear(is_there, &mut self.bench);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Announce(gateway) => self.say(Some(gateway)),
            Act::Del => self.say(None),
            Act::Take => self.take(),
            Act::Anew => {
                self.take();
                let mut again = self.bench.machine.all_again();
                let all = super::Says::Anew;
                assert!(!self.bench.machine.some_again(&mut again, all, 9, &mut self.bench.out));
                self.wrote();
            }
            Act::Program(count) => self.program(count),
            Act::Hear => drop(self.hear()),
            Act::Break => {
                self.said.clear();
                self.said.extend(self.chip.map(|_| Says::InChip));
            }
            Act::Reconnect => {
                self.bench.reconnect();
                if self.client.last.is_some() {
                    self.say(self.client.last);
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
            said: VecDeque::new(),
            client: Client::default(),
        };
        acts.into_iter().for_each(|act| world.act(act));
        for _ in 0..2000 {
            world.take();
            world.program(1);
            if world.hear() || !world.rows.is_empty() || world.bench.machine.pending() > 0 {
                continue;
            }
            if !world.client.unsure {
                break;
            }
            // The client asks once more.
            world.say(world.client.last);
        }
        prop_assert!(world.client.has_its_answer(), "never confirmed");
    }
}
