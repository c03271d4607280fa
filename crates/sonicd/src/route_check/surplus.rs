//! Surplus entries: entries that only the switch has, and no key of a database. A walk through the
//! switch finds them, even while routes change.
//!
//! An entry that is in the switch and not in ASIC_DB need not be surplus: rows are written after
//! the switch executed a request, some of them seconds later. So the check registers suspected
//! entries with the switch as a watch. The switch replies with the number of batches due in
//! ASIC_DB. When these are written and ASIC_DB still has no entry, the check asks which watched
//! entries were not changed since. The last row of such an entry was written before ASIC_DB was
//! read, and deleted the entry, or there was none: so it is surplus in any interleaving. Several
//! checks may run at once. If rows are not written for long, or too many checks watch entries, the
//! lap is repeated.

use super::forwarding::Dest;
use super::objects::{self, Objects};
use super::query::{self, QueryClient};
use super::{DaemonsCheck, Difference, Error, Finding, Forwarding, Scene, difference, forwarding_in_switch};
use ribtide_prefix::{Map, Set};
use ribtide_swss::sai::Oid;
use ribtide_vswitch::EntryKey;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Entries of the switch in one check, approximately.
const ENTRIES: usize = 8_000;
/// Entries of one watch; a query has at most 64 KiB.
const WATCHED: usize = 500;
/// Timeout for due rows; later ones are compared in the next lap.
const ROWS_WRITTEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Poll interval for due rows.
const ROWS_WRITTEN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The result of a check.
#[derive(Default)]
pub(super) struct Surplus {
    pub(super) all: Vec<(EntryKey, Difference)>,
    /// Whether some entries could not be decided.
    pub(super) is_open: bool,
}

/// A lap through the switch: the place of the next page; `None` at the end.
#[derive(Clone, Default)]
pub(super) struct SwitchLap(Option<String>);

impl SwitchLap {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_none()
    }
}

impl DaemonsCheck {
    /// Starts a lap through the switch, if it is queried. The lap visits each entry that exists all
    /// the time.
    pub(super) fn begin_switch(&self) -> SwitchLap {
        SwitchLap(self.syncd.as_ref().map(|_| format!("walk {ENTRIES}")))
    }

    /// The next entries of the switch.
    pub(super) fn next_of_switch(&self, lap: &mut SwitchLap) -> Result<Vec<EntryKey>, Error> {
        let Some(path) = self.syncd.as_deref().filter(|_| !lap.is_over()) else { return Ok(Vec::new()) };
        let (mut client, mut found) = (QueryClient::open(path)?, Vec::new());
        // A sparse table has pages with few or no entries.
        while found.len() < ENTRIES
            && let Some(question) = lap.0.take()
        {
            let piece = client.query(&question)?;
            found.extend(entries(&piece));
            lap.0 = piece["next"].as_str().map(|next| format!("walk {ENTRIES} {next}"));
        }
        Ok(found)
    }

    /// The surplus entries among these, with their differences.
    pub(super) fn surplus(&mut self, scene: &Scene, keys: Vec<EntryKey>) -> Result<Surplus, Error> {
        let mut found = Surplus::default();
        let Some(path) = self.syncd.clone() else { return Ok(found) };
        let mut seeming = self.not_in_asic(scene, keys)?;
        seeming.sort_unstable();
        seeming.dedup();
        let (mut client, named) = (QueryClient::open(&path)?, scene.in_switch());
        for keys in seeming.chunks(WATCHED) {
            let words: Vec<String> = keys.iter().map(|key| query::entry_text(*key)).collect();
            let watch = client.query(&format!("watch {}", words.join(" ")))?;
            let (due, unchanged) = (watch["given"].as_u64(), format!("unchanged {}", watch["watch"]));
            let begin = Instant::now();
            while client.query(&unchanged)?["written"].as_u64() < due {
                if begin.elapsed() > ROWS_WRITTEN_TIMEOUT {
                    return Ok(Surplus { is_open: true, ..found });
                }
                std::thread::sleep(ROWS_WRITTEN_POLL_INTERVAL);
            }
            let without: Set<EntryKey> = self.not_in_asic(scene, keys.to_vec())?.into_iter().collect();
            let unchanged = client.query(&unchanged)?;
            found.is_open |= unchanged["entries"].is_null();
            let stay: Vec<EntryKey> = entries(&unchanged).filter(|key| without.contains(key)).collect();
            for (key, forwarding) in
                stay.iter().zip(forwarding_in_switch(&mut client, stay.iter().copied().map(Some))?)
            {
                found
                    .all
                    .push((*key, scene.surplus_difference(*key, named.dest(*key), forwarding.flatten())));
            }
        }
        Ok(found)
    }

    /// Entries without an entry or a virtual router in ASIC_DB.
    fn not_in_asic(&mut self, scene: &Scene, keys: Vec<EntryKey>) -> Result<Vec<EntryKey>, Error> {
        let (named, (mut absent, mut rows)) = (scene.in_switch(), (Vec::new(), Vec::new()));
        let mut known = Vec::new();
        for key in keys {
            match named.dest(key) {
                None => absent.push(key),
                Some(dest) => {
                    let id = objects::id(dest, scene.router_of(dest).unwrap_or_default());
                    rows.push(Objects::key(&self.asic, &id));
                    known.push(key);
                }
            }
        }
        if !absent.is_empty() {
            // Its virtual router may be known now.
            let routers: Set<String> =
                self.asic.query(&["HVALS", "VIDTORID"])?.into_texts().into_iter().collect();
            absent.retain(
                |key| !matches!(key, EntryKey::Route(router, _) if routers.contains(&router.to_string())),
            );
        }
        let there = self.asic.replies("EXISTS", &rows)?;
        let without = known.into_iter().zip(there).filter(|(_, there)| there.as_integer() == Some(0));
        absent.extend(without.map(|(key, _)| key));
        Ok(absent)
    }
}

/// The numbers of VRFs by the id of their virtual router in the switch.
pub(super) struct InSwitch(Map<Oid, u32>);

impl InSwitch {
    /// The destination of an entry; `None` if ASIC_DB does not have its virtual router.
    pub(super) fn dest(&self, key: EntryKey) -> Option<Dest> {
        match key {
            EntryKey::Route(router, prefix) => Some(Dest::Route(*self.0.get(&router)?, prefix)),
            EntryKey::Label(label) => Some(Dest::Label(label)),
        }
    }
}

impl Scene {
    pub(super) fn in_switch(&self) -> InSwitch {
        let routers = self.objects.routers.iter();
        InSwitch(routers.filter_map(|(vid, rid)| Some((*rid, *self.vrfs.get(vid)?))).collect())
    }

    /// The key in the switch; `None` if it has no such VRF.
    pub(super) fn key_in_switch(&self, dest: Dest) -> Option<EntryKey> {
        Some(match dest {
            Dest::Route(_, prefix) => {
                EntryKey::Route(*self.objects.routers.get(&self.router_of(dest)?)?, prefix)
            }
            Dest::Label(label) => EntryKey::Label(label),
        })
    }

    fn surplus_difference(
        &self,
        key: EntryKey,
        dest: Option<Dest>,
        forwarding: Option<Forwarding>,
    ) -> Difference {
        let finding = |message: &str| Finding {
            stage: "chip",
            expected: "not in ASIC_DB".into(),
            found: forwarding.as_ref().map_or_else(|| "it is there".into(), Forwarding::to_string),
            message: message.into(),
            under_way: false,
        };
        let dest = match (dest, key) {
            (Some(dest), _) => dest,
            (None, EntryKey::Label(label)) => Dest::Label(label),
            (None, EntryKey::Route(router, prefix)) => {
                let message = "the switch has it in a virtual router that ASIC_DB does not have";
                return difference(router.to_string(), prefix.to_string(), finding(message));
            }
        };
        self.difference(dest, finding("the switch has it, and ASIC_DB does not"))
    }
}

fn entries(answer: &Value) -> impl Iterator<Item = EntryKey> {
    let entries = answer["entries"].as_array().into_iter().flatten();
    entries.filter_map(|entry| query::entry(entry.as_str()?))
}
