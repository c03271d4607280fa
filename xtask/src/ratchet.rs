//! Numbers that may only fall: how often the tree has something that it should not have, until it has it nowhere.
//! `xtask/ratchet.txt` has a line `CHECK NUMBER KEY` for each. A higher count is a fault, and so is a lower one, until
//! `cargo xtask lower` has written it down.

use crate::tree::read;
use crate::{Tree, panics, queues, threads, words};
use std::collections::BTreeMap;
use std::fs;

const FILE: &str = "xtask/ratchet.txt";

/// How many places one fault lists.
const PLACES_MAX: usize = 30;

/// What was counted: a key, and a message that says the place.
pub(crate) type Counted = Result<Vec<(String, String)>, String>;

/// A check's counting.
type Count = fn(&Tree) -> Counted;

/// The checks that count.
const COUNTING: &[(&str, Count)] = &[
    ("words", words::count),
    ("panics", panics::count),
    ("queues", queues::count),
    ("threads", threads::count),
];

/// A line of the file that has a number.
struct Entry<'a> {
    check: &'a str,
    most: usize,
    key: &'a str,
}

/// Reads a line; `None` for a comment and an empty line.
fn entry(line: &str) -> Option<Entry<'_>> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let mut parts = line.splitn(3, ' ');
    match (parts.next(), parts.next().and_then(|n| n.parse().ok()), parts.next()) {
        (Some(check), Some(most), Some(key)) => Some(Entry { check, most, key }),
        _ => panic!("{FILE}: this line is not CHECK NUMBER KEY: {line}"),
    }
}

/// Compares what a check counted with what is listed for it.
pub(crate) fn compare(tree: &Tree, check: &str, counted: Counted) -> Vec<String> {
    let counted = match counted {
        Ok(counted) => counted,
        Err(fault) => return vec![fault],
    };
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, message) in counted {
        places.entry(key).or_default().push(message);
    }
    let text = read(&tree.root.join(FILE));
    let listed: BTreeMap<_, _> =
        text.lines().filter_map(entry).filter(|e| e.check == check).map(|e| (e.key, e.most)).collect();
    let mut faults = Vec::new();
    for (key, messages) in &places {
        let most = listed.get(key.as_str()).copied().unwrap_or_default();
        if messages.len() > most {
            let shown =
                messages.iter().take(PLACES_MAX).fold(String::new(), |text, place| text + "\n    " + place);
            let more = messages.len().saturating_sub(PLACES_MAX);
            let more = if more > 0 {
                format!("\n    and {more} more; the diff has the new one")
            } else {
                String::new()
            };
            faults.push(format!("{key}: {} where {FILE} has {most}:{shown}{more}", messages.len()));
        }
    }
    for (key, most) in listed {
        let count = places.get(key).map_or(0, Vec::len);
        if count < most {
            faults.push(format!("{key}: {count} where {FILE} has {most}; lower it: cargo xtask lower"));
        }
    }
    faults
}

/// Writes every number down to what the tree has, and returns a line for each that changed. It raises none.
///
/// # Errors
/// If a check cannot count, or the file cannot be written.
pub fn lower(tree: &Tree) -> Result<Vec<String>, String> {
    let mut counts: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for (check, count) in COUNTING {
        for (key, _) in count(tree)? {
            *counts.entry((check, key)).or_default() += 1;
        }
    }
    let path = tree.root.join(FILE);
    let (mut changed, mut text) = (Vec::new(), String::new());
    for line in read(&path).lines() {
        let lower = entry(line).and_then(|Entry { check, most, key }| {
            let of_check = COUNTING.iter().find(|(name, _)| *name == check)?.0;
            let count = counts.get(&(of_check, key.to_owned())).copied().unwrap_or_default();
            (count < most).then(|| {
                (count, format!("{check} {count} {key}\n"), format!("{check} {key}: {most} to {count}"))
            })
        });
        match lower {
            Some((count, line, change)) => {
                text += if count > 0 { &line } else { "" };
                changed.push(change);
            }
            None => text += &format!("{line}\n"),
        }
    }
    fs::write(&path, text).map_err(|e| format!("{FILE}: {e}"))?;
    Ok(changed)
}
