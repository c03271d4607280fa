//! The routes of one session: each prefix with its attributes, equal attributes stored once. For
//! replays, sinks and comparisons.

use ribtide_prefix::{Bits, Families, Family, Map, Prefix, PrefixTable, V4, V6, for_each_family, per_family};
use ribtide_wire::bgp::attribute::{AsPath, Attributes, Origin, code};
use ribtide_wire::bgp::{Attribute, NextHop, Update, build};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// One set of attributes, in a form that compares: four-octet AS numbers, ascending by type, no attribute that
/// carries prefixes or the next hop, and the next hop beside them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PathAttributes {
    /// The next hop of the routes.
    pub next_hop: NextHop,
    /// The attributes as in an UPDATE.
    pub block: Vec<u8>,
}

impl PathAttributes {
    /// The attributes that `update` announces its prefixes of family `F` with; `None` when it announces none.
    pub fn of<F: Family>(update: &Update<'_>) -> Option<PathAttributes> {
        let next_hop = update.next_hop::<F>()?;
        let mut sorted: Vec<Attribute<'_>> = update.attributes().collect();
        sorted.sort_unstable_by_key(|a| a.code);
        let mut block = Vec::new();
        for attribute in sorted {
            build::attribute(&mut block, attribute.flags, attribute.code, attribute.value);
        }
        Some(PathAttributes { next_hop, block })
    }

    /// The attributes in order.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::new(&self.block)
    }

    /// The value of attribute `code`.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.attributes().find(|a| a.code == code).map(|a| a.value)
    }

    /// AS_PATH.
    pub fn as_path(&self) -> AsPath<'_> {
        self.get(code::AS_PATH).map(AsPath::new).unwrap_or_default()
    }

    /// ORIGIN; INCOMPLETE when there is none.
    pub fn origin(&self) -> Origin {
        self.get(code::ORIGIN).and_then(Origin::from_value).unwrap_or(Origin::Incomplete)
    }
}

impl fmt::Debug for PathAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "next hop {}, path {}, {:02x?}", self.next_hop, self.as_path(), self.block)
    }
}

/// Prefixes and their attributes, for both families.
#[derive(Default)]
pub struct Routes {
    /// Each set once. Unused sets stay, so that numbers remain valid.
    sets: Vec<Arc<PathAttributes>>,
    numbers: Map<Arc<PathAttributes>, u32>,
    tables: Families<Tables>,
}

per_family!(struct Tables<F> = PrefixTable<F, u32>);

impl Routes {
    /// The number of a set of attributes, the same for equal sets.
    pub fn intern(&mut self, set: PathAttributes) -> u32 {
        if let Some(number) = self.numbers.get(&set) {
            return *number;
        }
        let set = Arc::new(set);
        let number = self.sets.len() as u32;
        self.sets.push(Arc::clone(&set));
        self.numbers.insert(set, number);
        number
    }

    /// The set of a number that [`Routes::intern`] gave.
    pub fn set(&self, number: u32) -> &PathAttributes {
        &self.sets[number as usize]
    }

    /// Gives `prefix` the attributes of a number that [`Routes::intern`] gave; true when it had none before.
    pub fn insert<F: Family>(&mut self, prefix: Prefix<F>, set: u32) -> bool {
        self.tables.get_mut::<F>().insert(prefix, set).is_none()
    }

    /// Removes `prefix`; true when it had a route.
    pub fn remove<F: Family>(&mut self, prefix: Prefix<F>) -> bool {
        self.tables.get_mut::<F>().remove(prefix).is_some()
    }

    /// Applies an UPDATE.
    pub fn apply(&mut self, update: &Update<'_>) {
        for_each_family!(F => {
            for prefix in update.withdrawn::<F>() {
                self.remove(prefix);
            }
            if let Some(set) = PathAttributes::of::<F>(update) {
                let set = self.intern(set);
                for prefix in update.announced::<F>() {
                    self.insert(prefix, set);
                }
            }
        });
    }

    /// The attributes of `prefix`.
    pub fn get<F: Family>(&self, prefix: Prefix<F>) -> Option<&PathAttributes> {
        self.tables.get::<F>().get(prefix).map(|set| self.set(*set))
    }

    /// How many prefixes of family `F` there are.
    pub fn count<F: Family>(&self) -> usize {
        self.tables.get::<F>().len()
    }

    /// How many prefixes there are.
    pub fn total(&self) -> usize {
        self.count::<V4>() + self.count::<V6>()
    }

    /// Every prefix of family `F` with the number of its set, in order of numbers, then of addresses: what shares
    /// attributes is together, first seen first.
    pub fn in_order<F: Family>(&self) -> Vec<(u32, Prefix<F>)> {
        let mut all: Vec<_> = self.tables.get::<F>().iter().map(|(prefix, set)| (*set, prefix)).collect();
        all.sort_unstable();
        all
    }

    /// A digest that is equal for equal routes, in any order and on any machine.
    pub fn digest(&self) -> u64 {
        // A sum over all routes, independent of their order; each set is hashed once.
        let hash = |item: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            item(&mut hasher);
            hasher.finish()
        };
        let sets: Vec<u64> =
            self.sets.iter().map(|set| hash(&|h| (set.next_hop.to_string(), &set.block).hash(h))).collect();
        let mut sum = 0u64;
        for_each_family!(F => {
            for (prefix, set) in self.tables.get::<F>().iter() {
                let route = (F::AFI as u16, prefix.bits().left(), prefix.len(), sets[*set as usize]);
                sum = sum.wrapping_add(hash(&|h| route.hash(h)));
            }
        });
        sum
    }

    /// What differs from `other`: at most `limit` sentences, none when both are equal.
    pub fn differences(&self, other: &Routes, limit: usize) -> Vec<String> {
        let mut found = Vec::new();
        for_each_family!(F => {
            for (prefix, set) in self.tables.get::<F>().iter() {
                let (ours, theirs) = (self.set(*set), other.get(prefix));
                if found.len() < limit && theirs != Some(ours) {
                    found.push(match theirs {
                        Some(theirs) => format!("{prefix}: {ours:?} here, {theirs:?} there"),
                        None => format!("{prefix} is not there"),
                    });
                }
            }
            for (prefix, _) in other.tables.get::<F>().iter() {
                if found.len() < limit && self.get(prefix).is_none() {
                    found.push(format!("{prefix} is only there"));
                }
            }
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(next_hop: [u8; 4], block: &[u8]) -> PathAttributes {
        PathAttributes { next_hop: NextHop::V4(next_hop.into()), block: block.to_vec() }
    }

    #[test]
    fn the_digest_is_of_the_routes_and_not_of_their_history() {
        let (a, b): (Prefix<V4>, Prefix<V6>) =
            ("10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap());
        let (mut one, mut two) = (Routes::default(), Routes::default());
        let (x, y) = (one.intern(set([1; 4], b"x")), one.intern(set([2; 4], b"y")));
        assert!(one.insert(a, x) && one.insert(b, y));
        let (y, x) = (two.intern(set([2; 4], b"y")), two.intern(set([1; 4], b"x")));
        assert!(two.insert(b, y) && two.insert(a, y) && !two.insert(a, x));
        assert_eq!(one.digest(), two.digest());
        assert_eq!(one.differences(&two, 9), [""; 0]);

        two.insert(a, y);
        assert_ne!(one.digest(), two.digest());
        assert_eq!(one.differences(&two, 9).len(), 1);
        assert!(two.remove(a) && !two.remove(a));
        assert_eq!(one.differences(&two, 9), ["10.0.0.0/8 is not there"]);
        assert_eq!(two.differences(&one, 9), ["10.0.0.0/8 is only there"]);
    }
}
