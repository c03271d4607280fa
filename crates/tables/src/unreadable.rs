//! Keys whose value is none of their table's rows: another type of value, or fields that the
//! table's format does not know.
//!
//! One such key of any program must not stop a daemon. A reader passes it over, as if it were
//! absent, and reads it again when a producer writes it again. A writer of the key replaces it.
//! Either is logged, and counted, once for each key.

use ribtide_runtime::log::target;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

/// Keys that are logged, and distinguished, at most: a table of another format would fill the log.
const KEYS_MAX: usize = 100;

#[derive(Default)]
struct Seen {
    keys: BTreeSet<String>,
    count: usize,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen { keys: BTreeSet::new(), count: 0 });

/// How many keys were passed over or replaced since the start; beyond 100, how often.
pub fn unreadable_keys() -> usize {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).count
}

/// Counts a key of `database`. Returns whether to log it.
fn is_news(database: &str, key: &str) -> bool {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.keys.len() < KEYS_MAX {
        let new = seen.keys.insert(format!("{database} {key}"));
        seen.count += usize::from(new);
        return new;
    }
    seen.count += usize::from(!seen.keys.contains(&format!("{database} {key}")));
    false
}

/// Notes a key that is passed over; `reason`: what is wrong with its value.
pub fn passed_over(database: &str, key: &str, reason: impl Display) {
    if is_news(database, key) {
        tracing::warn!(
            target: target::REDIS,
            database,
            key,
            %reason,
            "the key is no row of its table and is passed over; delete it, or write the row again"
        );
    }
}

/// Notes a key of another type that its writer replaces.
pub(crate) fn replaced(database: &str, key: &str) {
    if is_news(database, key) {
        tracing::warn!(target: target::REDIS, database, key, "the key had another type of value and is replaced");
    }
}
