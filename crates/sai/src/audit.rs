//! What who compares asks the switch: which entries it has, a part at a time, and which of some nobody has changed since.

use crate::switch::VirtualSwitch;
use ribtide_prefix::{AnyPrefix, Set};
use ribtide_swss::sai::Oid;

/// What a route or a label is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKey {
    /// A route of a virtual router.
    Route(Oid, AnyPrefix),
    /// A label.
    Label(u32),
}

impl EntryKey {
    /// Which of `parts` it is in: always the same one.
    fn part(self, parts: u64) -> u64 {
        let bits = match self {
            EntryKey::Label(label) => u64::from(label),
            EntryKey::Route(_, prefix) => {
                let (high, low) = match prefix {
                    AnyPrefix::V4(prefix) => (0, u64::from(prefix.bits())),
                    AnyPrefix::V6(prefix) => {
                        let bits = u128::from_be_bytes(prefix.bits());
                        ((bits >> 64) as u64, bits as u64)
                    }
                };
                high.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ low.rotate_left(8) ^ u64::from(prefix.len())
            }
        };
        // Fibonacci hashing: the top bits of the product mix all bits.
        (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % parts
    }
}

impl VirtualSwitch {
    /// Its routes and labels that are in this one of `parts`, in no order. Whatever changes meanwhile, one that is there all the time is in
    /// its part; all are looked at for it, at some nanoseconds each.
    pub fn part(&self, part: u32, parts: u32) -> Vec<EntryKey> {
        let parts = u64::from(parts.max(1));
        let routes = self
            .routers
            .iter()
            .flat_map(|(router, table)| table.iter().map(|(prefix, _)| EntryKey::Route(*router, prefix)));
        let labels = self.labels.keys().map(|label| EntryKey::Label(*label));
        routes.chain(labels).filter(|key| key.part(parts) == u64::from(part)).collect()
    }

    /// Watches these entries, those that it has, and no others any more: the number of this watch.
    pub fn watch(&mut self, keys: impl IntoIterator<Item = EntryKey>) -> u64 {
        let mut watched: Set<EntryKey> = keys.into_iter().collect();
        watched.retain(|key| match key {
            EntryKey::Route(router, prefix) => self.route_at(*router, *prefix).is_some(),
            EntryKey::Label(label) => self.labels.contains_key(label),
        });
        self.watched = watched;
        self.watch += 1;
        self.watch
    }

    /// Which of those of this watch nobody has tried to change since; none where somebody watches others by now.
    pub fn unchanged(&self, watch: u64) -> impl Iterator<Item = EntryKey> {
        self.watched.iter().copied().filter(move |_| watch == self.watch)
    }

    /// Notes that somebody changes it.
    pub(crate) fn touch(&mut self, key: EntryKey) {
        if !self.watched.is_empty() {
            self.watched.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_one_part_and_parts_are_even() {
        let parts = 40;
        let mut sizes = vec![0; parts as usize];
        for n in 0..40_000_u32 {
            let v4: AnyPrefix =
                format!("{}.{}.{}.0/24", 11 + (n >> 16), n >> 8 & 255, n & 255).parse().unwrap();
            let v6: AnyPrefix = format!("2a00:{:x}:{:x}::/48", n >> 8, n & 255).parse().unwrap();
            for key in [EntryKey::Route(Oid::NULL, v4), EntryKey::Route(Oid::NULL, v6), EntryKey::Label(n)] {
                sizes[key.part(parts) as usize] += 1;
            }
        }
        assert!(sizes.iter().all(|size| (2_500..3_500).contains(size)), "{sizes:?}");
    }
}
