//! The behaviour of the virtual switch: table sizes, failures, and delays. Each is a setting with
//! one name in files, on command lines and at run time.

use crate::profiles::{PROFILES, Profile};
use ribtide_prefix::{Afi, AnyPrefix};
use std::time::Duration;

/// Sizes of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the size of the table in its name")]
pub struct Limits {
    pub ipv4_routes: u32,
    pub ipv6_routes: u32,
    pub ipv4_next_hops: u32,
    pub ipv6_next_hops: u32,
    pub labelled_next_hops: u32,
    pub ipv4_neighbors: u32,
    pub ipv6_neighbors: u32,
    pub groups: u32,
    pub group_members: u32,
    pub labels: u32,
    pub fdb_entries: u32,
    /// IPv4 and IPv6 routes share one table: each size is that of a table without routes of the other
    /// family.
    pub shared_routes: bool,
    /// The same of neighbours.
    pub shared_neighbors: bool,
}

impl Default for Limits {
    /// Room for a full internet table several times over.
    fn default() -> Self {
        Limits {
            ipv4_routes: 4 << 20,
            ipv6_routes: 2 << 20,
            ipv4_next_hops: 64 << 10,
            ipv6_next_hops: 64 << 10,
            labelled_next_hops: 64 << 10,
            ipv4_neighbors: 64 << 10,
            ipv6_neighbors: 64 << 10,
            groups: 16 << 10,
            group_members: 256 << 10,
            // All labels.
            labels: 1 << 20,
            // That of SONiC's virtual switch.
            fdb_entries: 800,
            shared_routes: false,
            shared_neighbors: false,
        }
    }
}

/// The free entries of a family in a table with `size` entries of each, of which `used` are taken.
fn free(afi: Afi, size: [u32; 2], used: [u32; 2], shared: bool) -> u32 {
    let (this, other) = match afi {
        Afi::Ipv4 => (0, 1),
        Afi::Ipv6 => (1, 0),
    };
    if !shared {
        return size[this].saturating_sub(used[this]);
    }
    if size[other] == 0 {
        return if used[other] > 0 { 0 } else { size[this].saturating_sub(used[this]) };
    }
    // What the other family uses of its size is not there for this one; a part of an entry is none.
    let [size, other_size] = [size[this], size[other]].map(u64::from);
    let taken = (u64::from(used[other]) * size).div_ceil(other_size);
    size.saturating_sub(taken).saturating_sub(used[this].into()) as u32
}

impl Limits {
    /// Free entries for routes of a family, of which `used` exist.
    pub(crate) fn free_routes(&self, afi: Afi, used: [u32; 2]) -> u32 {
        free(afi, [self.ipv4_routes, self.ipv6_routes], used, self.shared_routes)
    }

    pub(crate) fn next_hops(&self, afi: Afi) -> u32 {
        match afi {
            Afi::Ipv4 => self.ipv4_next_hops,
            Afi::Ipv6 => self.ipv6_next_hops,
        }
    }

    /// Free entries for neighbours of a family, of which `used` exist.
    pub(crate) fn free_neighbors(&self, afi: Afi, used: [u32; 2]) -> u32 {
        free(afi, [self.ipv4_neighbors, self.ipv6_neighbors], used, self.shared_neighbors)
    }
}

/// The chip's time for a call: [`Latency::call`], plus [`Latency::bulk`] for a call with several
/// entries, plus [`Latency::entry`] for each entry. Zero means no delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "said above")]
pub struct Latency {
    pub call: Duration,
    pub bulk: Duration,
    pub entry: Duration,
}

impl Latency {
    /// The time of a call with so many entries.
    pub(crate) fn of(&self, entries: usize) -> Duration {
        let bulk = if entries > 1 { self.bulk } else { Duration::ZERO };
        self.call + bulk + self.entry * u32::try_from(entries).unwrap_or(u32::MAX)
    }
}

/// Failures on demand. Removal of existing entries always succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Failures {
    /// Of a million destinations, how many have their routes refused: always the same ones.
    pub per_million: u32,
    /// Of each bulk with several entries, the entry that fails, from 1; 0: none.
    pub entry: u32,
}

impl Failures {
    /// Whether routes of this destination are refused.
    pub(crate) fn refuses(&self, dest: AnyPrefix) -> bool {
        let mixed = || {
            let bits = match dest {
                AnyPrefix::V4(p) => u128::from(p.bits()),
                AnyPrefix::V6(p) => u128::from_be_bytes(p.bits()),
            };
            // The finalizer of SplitMix64 over the whole destination.
            let mut x = (bits as u64) ^ ((bits >> 64) as u64).rotate_left(32) ^ (u64::from(dest.len()) << 56);
            for multiplier in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
                x = (x ^ (x >> 30)).wrapping_mul(multiplier);
            }
            (x >> 33) % 1_000_000
        };
        self.per_million > 0 && mixed() < u64::from(self.per_million)
    }

    /// Whether this entry of a bulk, from 0, fails.
    pub(crate) fn strikes(&self, entry: usize, of: usize) -> bool {
        self.entry > 0 && of > 1 && entry + 1 == self.entry as usize
    }
}

/// All settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Behavior {
    /// Sizes of tables.
    pub limits: Limits,
    /// Delays.
    pub latency: Latency,
    /// Failures.
    pub failures: Failures,
}

/// The settings' names.
pub const SETTINGS: [&str; 19] = [
    "ipv4-routes",
    "ipv6-routes",
    "ipv4-next-hops",
    "ipv6-next-hops",
    "labelled-next-hops",
    "ipv4-neighbors",
    "ipv6-neighbors",
    "groups",
    "group-members",
    "labels",
    "fdb-entries",
    "shared-routes",
    "shared-neighbors",
    "call-us",
    "bulk-us",
    "entry-us",
    "rate",
    "fail-rate",
    "fail-entry",
];

impl Behavior {
    fn limit(&mut self, name: &str) -> Option<&mut u32> {
        let limits = &mut self.limits;
        Some(match name {
            "ipv4-routes" => &mut limits.ipv4_routes,
            "ipv6-routes" => &mut limits.ipv6_routes,
            "ipv4-next-hops" => &mut limits.ipv4_next_hops,
            "ipv6-next-hops" => &mut limits.ipv6_next_hops,
            "labelled-next-hops" => &mut limits.labelled_next_hops,
            "ipv4-neighbors" => &mut limits.ipv4_neighbors,
            "ipv6-neighbors" => &mut limits.ipv6_neighbors,
            "groups" => &mut limits.groups,
            "group-members" => &mut limits.group_members,
            "labels" => &mut limits.labels,
            "fdb-entries" => &mut limits.fdb_entries,
            "fail-entry" => &mut self.failures.entry,
            _ => return None,
        })
    }

    fn flag(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "shared-routes" => &mut self.limits.shared_routes,
            "shared-neighbors" => &mut self.limits.shared_neighbors,
            _ => return None,
        })
    }

    fn time(&mut self, name: &str) -> Option<&mut Duration> {
        Some(match name {
            "call-us" => &mut self.latency.call,
            "bulk-us" => &mut self.latency.bulk,
            "entry-us" => &mut self.latency.entry,
            _ => return None,
        })
    }

    /// Sets several, `profile` first, whatever its place.
    ///
    /// # Errors
    /// As [`Behavior::set`].
    pub fn set_all<'a>(&mut self, settings: &[(&'a str, &'a str)]) -> Result<(), String> {
        let (profile, others): (Vec<_>, Vec<_>) = settings.iter().partition(|(name, _)| *name == "profile");
        profile.into_iter().chain(others).try_for_each(|(name, value)| self.set(name, value))
    }

    /// Sets one of [`SETTINGS`]. `rate` is routes a second, 0 for no limit: the inverse of
    /// `entry-us`. `profile` sets all sizes of tables, to those of a [`Profile`].
    ///
    /// # Errors
    /// A sentence, when the setting is unknown or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "profile" {
            let profile = Profile::named(value).ok_or_else(|| {
                let names = PROFILES.map(|profile| profile.name).join(", ");
                format!("profile = {value} is no chip whose sizes are known; write {names}")
            })?;
            self.limits = profile.limits;
            return Ok(());
        }
        if let Some(place) = self.flag(name) {
            *place = value.parse().map_err(|_| format!("{name} = {value} is neither true nor false"))?;
            return Ok(());
        }
        if let Some(place) = self.limit(name) {
            *place = value
                .parse()
                .map_err(|_| format!("{name} = {value} is no number; write one from 0 to {}", u32::MAX))?;
            return Ok(());
        }
        let number = value.parse::<f64>().ok().filter(|number| *number >= 0.0);
        let number = number.ok_or_else(|| format!("{name} = {value} is no number; write 0 or more"));
        if let Some(place) = self.time(name) {
            *place = microseconds(number?).ok_or_else(|| format!("{name} = {value} is more than an hour"))?;
            return Ok(());
        }
        match name {
            "rate" => {
                let rate = number?;
                let each = if rate == 0.0 { 0.0 } else { 1e6 / rate };
                let entry = microseconds(each).filter(|entry| rate == 0.0 || !entry.is_zero());
                self.latency.entry = entry.ok_or_else(|| {
                    format!("rate = {value} is no rate; write routes a second, at most 1000000000")
                })?;
            }
            "fail-rate" => {
                let share = number?;
                if share > 1.0 {
                    return Err(format!("fail-rate = {value} is more than all; write a share such as 0.01"));
                }
                self.failures.per_million = (share * 1e6).round() as u32;
            }
            _ => {
                return Err(format!(
                    "the chip has no setting \"{name}\"; it has profile, {}",
                    SETTINGS.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Every setting with its value, as [`Behavior::set`] takes it.
    pub fn settings(mut self) -> Vec<(&'static str, String)> {
        let value = |name: &str| {
            if let Some(limit) = self.limit(name) {
                return limit.to_string();
            }
            if let Some(flag) = self.flag(name) {
                return flag.to_string();
            }
            if let Some(time) = self.time(name) {
                return short(time.as_nanos() as f64 / 1e3);
            }
            match name {
                "rate" if self.latency.entry.is_zero() => "0".into(),
                "rate" => short((1e9 / self.latency.entry.as_nanos() as f64).round()),
                _ => short(f64::from(self.failures.per_million) / 1e6),
            }
        };
        let values: Vec<String> = SETTINGS.into_iter().map(value).collect();
        SETTINGS.into_iter().zip(values).collect()
    }
}

fn short(number: f64) -> String {
    number.to_string()
}

/// To the nanosecond.
fn microseconds(number: f64) -> Option<Duration> {
    (number <= 3.6e9).then(|| Duration::from_nanos((number * 1e3).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_shown() {
        let mut behavior = Behavior::default();
        for (name, value) in [
            ("ipv4-routes", "1000"),
            ("groups", "3"),
            ("call-us", "12.5"),
            ("rate", "20000"),
            ("fail-rate", "0.01"),
            ("fail-entry", "7"),
        ] {
            behavior.set(name, value).unwrap();
        }
        assert_eq!(behavior.limits, Limits { ipv4_routes: 1000, groups: 3, ..Limits::default() });
        let us = Duration::from_nanos;
        assert_eq!(behavior.latency, Latency { call: us(12_500), bulk: us(0), entry: us(50_000) });
        assert_eq!(behavior.failures, Failures { per_million: 10_000, entry: 7 });
        let mut again = Behavior::default();
        for (name, value) in behavior.settings() {
            again.set(name, &value).unwrap();
        }
        assert_eq!(again, behavior);
        behavior.set("rate", "0").unwrap();
        assert_eq!(behavior.latency.entry, Duration::ZERO);
        for (name, value, message) in [
            ("speed", "3", "no setting \"speed\"; it has profile, ipv4-routes"),
            ("profile", "tomahawk9", "no chip whose sizes are known; write spectrum, tomahawk, trident"),
            ("shared-routes", "1", "neither true nor false"),
            ("groups", "-1", "no number"),
            ("entry-us", "soon", "no number"),
            ("call-us", "4e9", "more than an hour"),
            ("rate", "1e12", "no rate"),
            ("fail-rate", "1.5", "more than all"),
        ] {
            let refused = behavior.set(name, value).unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
    }

    #[test]
    fn profile_is_set_first_and_single_sizes_after_it() {
        let mut behavior = Behavior::default();
        behavior.set_all(&[("groups", "7"), ("profile", "tomahawk"), ("rate", "20000")]).unwrap();
        let expected = Limits { groups: 7, ..Profile::named("tomahawk").unwrap().limits };
        assert_eq!((behavior.limits, behavior.latency.entry), (expected, Duration::from_micros(50)));
        let mut again = Behavior::default();
        for (name, value) in behavior.settings() {
            again.set(name, &value).unwrap();
        }
        assert_eq!(again, behavior);
    }

    #[test]
    fn families_of_a_shared_table_take_room_from_each_other() {
        let limits = Limits { ipv4_routes: 64, ipv6_routes: 8, shared_routes: true, ..Limits::default() };
        let of = |used| [Afi::Ipv4, Afi::Ipv6].map(|afi| limits.free_routes(afi, used));
        assert_eq!(of([0, 0]), [64, 8]);
        assert_eq!(of([1, 0]), [63, 7]);
        assert_eq!(of([8, 0]), [56, 7]);
        assert_eq!(of([8, 7]), [0, 0]);
        assert_eq!(of([0, 1]), [56, 7]);
        assert_eq!(of([64, 0]), [0, 0]);
        // Smaller tables than what is there.
        assert_eq!(of([70, 9]), [0, 0]);
        let alone = Limits { ipv6_routes: 0, ..limits };
        assert_eq!(alone.free_routes(Afi::Ipv4, [3, 0]), 61);
        let apart = Limits { shared_routes: false, ..limits };
        assert_eq!((apart.free_routes(Afi::Ipv4, [1, 8]), apart.free_routes(Afi::Ipv6, [64, 1])), (63, 7));
    }

    #[test]
    fn the_share_of_refused_destinations_is_the_configured_one() {
        let failures = Failures { per_million: 10_000, entry: 0 };
        let dest = |n: u32| AnyPrefix::from_addr(std::net::Ipv4Addr::from_bits(n << 8).into(), 24).unwrap();
        let refused = (0..100_000).filter(|n| failures.refuses(dest(*n))).count();
        assert!((800..1200).contains(&refused), "{refused} of 100,000");
        assert!(!Failures::default().refuses(dest(1)));
        assert!(Failures { per_million: 1_000_000, entry: 0 }.refuses(dest(1)));
    }
}
