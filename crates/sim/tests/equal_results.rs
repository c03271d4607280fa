//! The number of shards, the sizes of batches and the order in which stages move change no result.
//!
//! `RIBTIDE_SEEDS=100000` runs more, `RIBTIDE_SEED=17` one seed, named by the failure.

use ribtide_prefix::Rng;
use ribtide_sim::history::{History, options};
use ribtide_sim::run::Run;

const SHARDS: [u16; 4] = [1, 2, 7, 64];

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs the histories of many seeds; a panic names the seed.
fn histories(ordered: bool) {
    let seeds = match number("RIBTIDE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RIBTIDE_SEEDS").unwrap_or(1000),
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| {
            let mut rng = Rng::new(seed);
            let options = options(&mut rng, ordered);
            let length = 10 + rng.index(200);
            let history = History::new(&mut rng, options, length);
            let shards = SHARDS[seed as usize % SHARDS.len()];
            let workers = 1 + rng.index(3) as u16;
            Run::new(&history, shards, workers, ordered, rng).finish();
        });
        if let Err(panic) = result {
            eprintln!("repeat with RIBTIDE_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn in_any_order_of_arrival() {
    histories(false);
}

#[test]
fn where_the_order_of_arrival_counts() {
    histories(true);
}
