//! What only the switch has: entries that no key of a database names, found by a walk through the switch, however much
//! else changes.
//!
//! That one is in the switch and not in ASIC_DB does not say that it is too much: rows are written after the switch did
//! what they say, some of them seconds later. So the switch is told to watch what seems to be too much. It says how many rows ASIC_DB was due
//! then, and, when these are written and ASIC_DB still has no entry, which of the watched entries were not changed since. Of one of those the last row was
//! written before ASIC_DB was asked, and took it away, or there was none: it is too much, and no moment that was caught badly. Several may
//! compare at once. Where rows are not written for long, or too many others have it watch, the lap is gone through once more.

use super::leads::Dest;
use super::objects::{self, Objects};
use super::query::{self, QueryClient};
use super::{DaemonsCheck, Difference, Error, Finding, Leads, Scene, difference, leads_in_switch};
use ribtide_prefix::{Map, Set};
use ribtide_swss::sai::Oid;
use ribtide_vswitch::EntryKey;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Entries of the switch that one look goes through, or some more.
const ENTRIES: usize = 8_000;
/// Entries that are watched at once: the switch reads questions of 64 KiB.
const WATCHED: usize = 500;
/// How long the rows that were due may take; what is not written then is looked at again another time.
const ROWS_WRITTEN_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is asked whether they are written.
const ROWS_WRITTEN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a look found to be too much in the switch.
#[derive(Default)]
pub(super) struct Surplus {
    pub(super) all: Vec<(EntryKey, Difference)>,
    /// Of some it could not be told this time.
    pub(super) is_open: bool,
}

/// A lap through the switch: what is asked next; none when it is over.
#[derive(Clone, Default)]
pub(super) struct SwitchLap(Option<String>);

impl SwitchLap {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_none()
    }
}

impl DaemonsCheck {
    /// A lap through the switch, where it is asked: whatever changes meanwhile, it comes by each entry that is there all the time.
    pub(super) fn begin_switch(&self) -> SwitchLap {
        SwitchLap(self.syncd.as_ref().map(|_| format!("walk {ENTRIES}")))
    }

    /// What comes next in the switch.
    pub(super) fn next_of_switch(&self, lap: &mut SwitchLap) -> Result<Vec<EntryKey>, Error> {
        let Some(path) = self.syncd.as_deref().filter(|_| !lap.is_over()) else { return Ok(Vec::new()) };
        let (mut client, mut found) = (QueryClient::open(path)?, Vec::new());
        // Where there is nothing for long, a piece has few or none.
        while found.len() < ENTRIES
            && let Some(question) = lap.0.take()
        {
            let piece = client.query(&question)?;
            found.extend(entries(&piece));
            lap.0 = piece["next"].as_str().map(|next| format!("walk {ENTRIES} {next}"));
        }
        Ok(found)
    }

    /// Those of what the switch has that are too much, and what is to be told of each.
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
            for (key, leads) in stay.iter().zip(leads_in_switch(&mut client, stay.iter().copied().map(Some))?)
            {
                found.all.push((*key, scene.too_much(*key, named.dest(*key), leads.flatten())));
            }
        }
        Ok(found)
    }

    /// Those of which ASIC_DB has no entry, or not the virtual router.
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
            // It may have come to be known.
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

/// The numbers of VRFs by what the switch calls their virtual routers.
pub(super) struct InSwitch(Map<Oid, u32>);

impl InSwitch {
    /// What ASIC_DB has an entry for; `None`: nothing, as it does not have the virtual router.
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

    /// How the switch calls it; `None`: it has no such VRF.
    pub(super) fn key_in_switch(&self, dest: Dest) -> Option<EntryKey> {
        Some(match dest {
            Dest::Route(_, prefix) => {
                EntryKey::Route(*self.objects.routers.get(&self.router_of(dest)?)?, prefix)
            }
            Dest::Label(label) => EntryKey::Label(label),
        })
    }

    fn too_much(&self, key: EntryKey, dest: Option<Dest>, leads: Option<Leads>) -> Difference {
        let finding = |says: &str| Finding {
            stage: "chip",
            wanted: "not in ASIC_DB".into(),
            found: leads.as_ref().map_or_else(|| "it is there".into(), Leads::to_string),
            says: says.into(),
            under_way: false,
        };
        let dest = match (dest, key) {
            (Some(dest), _) => dest,
            (None, EntryKey::Label(label)) => Dest::Label(label),
            (None, EntryKey::Route(router, prefix)) => {
                let says = "the switch has it in a virtual router that ASIC_DB does not have";
                return difference(router.to_string(), prefix.to_string(), finding(says));
            }
        };
        self.difference(dest, finding("the switch has it, and ASIC_DB does not"))
    }
}

fn entries(answer: &Value) -> impl Iterator<Item = EntryKey> {
    let entries = answer["entries"].as_array().into_iter().flatten();
    entries.filter_map(|entry| query::entry(entry.as_str()?))
}
