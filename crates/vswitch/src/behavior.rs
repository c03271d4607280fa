//! The behaviour of the virtual switch: table sizes, failures, and delays. Each is a setting with
//! one name in files, on command lines and at run time.

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
        }
    }
}

impl Limits {
    fn of(afi: Afi, v4: u32, v6: u32) -> u32 {
        match afi {
            Afi::Ipv4 => v4,
            Afi::Ipv6 => v6,
        }
    }

    pub(crate) fn routes(&self, afi: Afi) -> u32 {
        Limits::of(afi, self.ipv4_routes, self.ipv6_routes)
    }

    pub(crate) fn next_hops(&self, afi: Afi) -> u32 {
        Limits::of(afi, self.ipv4_next_hops, self.ipv6_next_hops)
    }

    pub(crate) fn neighbors(&self, afi: Afi) -> u32 {
        Limits::of(afi, self.ipv4_neighbors, self.ipv6_neighbors)
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
pub const SETTINGS: [&str; 16] = [
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
            "fail-entry" => &mut self.failures.entry,
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

    /// Sets one of [`SETTINGS`]. `rate` is routes a second, 0 for no limit: the inverse of
    /// `entry-us`.
    ///
    /// # Errors
    /// A sentence, when the setting is unknown or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
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
                return Err(format!("the chip has no setting \"{name}\"; it has {}", SETTINGS.join(", ")));
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
            ("speed", "3", "no setting \"speed\"; it has ipv4-routes"),
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
    fn the_share_of_refused_destinations_is_the_configured_one() {
        let failures = Failures { per_million: 10_000, entry: 0 };
        let dest = |n: u32| AnyPrefix::from_addr(std::net::Ipv4Addr::from_bits(n << 8).into(), 24).unwrap();
        let refused = (0..100_000).filter(|n| failures.refuses(dest(*n))).count();
        assert!((800..1200).contains(&refused), "{refused} of 100,000");
        assert!(!Failures::default().refuses(dest(1)));
        assert!(Failures { per_million: 1_000_000, entry: 0 }.refuses(dest(1)));
    }
}
