//! Internet-shaped tables from a seed: the same seed and options give the same table on every machine.
//!
//! A [`Table`] is prefixes in groups; a group is one origin's prefixes with one set of attributes.
//! A [`Feed`] is one sender's view of it, with its own order, path lengths and next hops. All
//! senders of one table announce the same prefixes in the same groups, as full feeds of the
//! internet nearly do.

mod feed;
mod prefixes;
mod shape;

pub use feed::{Feed, FeedOptions, Path};
pub use shape::{MAX_PREFIXES, Shape};

use ribtide_prefix::{Families, Family, Prefix, Rng, for_each_family, per_family};

/// The properties of a table.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct TableOptions {
    /// The seed of the table: equal seeds and options give equal tables.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The number of IPv4 prefixes.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(..=MAX_PREFIXES as i64))]
    pub ipv4: u32,
    /// The number of IPv6 prefixes.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=MAX_PREFIXES as i64))]
    pub ipv6: u32,
    /// The average number of IPv4 prefixes in an attribute set.
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = at_least_one)]
    pub ipv4_per_set: f64,
    /// The average number of IPv6 prefixes in an attribute set.
    #[arg(long, value_name = "N", default_value_t = 1.7, value_parser = at_least_one)]
    pub ipv6_per_set: f64,
    /// Consecutive prefixes of one length (from 11.0.0.0/24 and 2a00::/48 on), with one attribute set for
    /// each family.
    #[arg(long, conflicts_with_all = ["ipv4_per_set", "ipv6_per_set"])]
    pub uniform: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        crate::options::defaults()
    }
}

fn at_least_one(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (1.0..=100_000.0).contains(&n) => Ok(n),
        _ => Err("write a number from 1 to 100000".into()),
    }
}

/// Prefixes in groups, for both families.
pub struct Table {
    seed: u64,
    lists: Families<Lists>,
}

per_family!(struct Lists<F> = Groups<F>);

/// The prefixes of one family: group `g` is `prefixes[ends[g - 1]..ends[g]]`.
struct Groups<F: Family> {
    prefixes: Vec<Prefix<F>>,
    ends: Vec<u32>,
}

impl<F: Family> Default for Groups<F> {
    fn default() -> Self {
        Groups { prefixes: Vec::new(), ends: Vec::new() }
    }
}

impl Table {
    /// Makes the table. Counts above [`MAX_PREFIXES`] are reduced to it.
    pub fn new(options: &TableOptions) -> Table {
        let mut table = Table { seed: options.seed, lists: Families::default() };
        let shapes = [(options.ipv4, options.ipv4_per_set), (options.ipv6, options.ipv6_per_set)];
        let mut shapes = shapes.into_iter();
        for_each_family!(F => {
            let (count, per_set) = shapes.next().unwrap_or_default();
            let count = count.min(MAX_PREFIXES);
            *table.lists.get_mut::<F>() = match options.uniform {
                true => Groups { prefixes: prefixes::uniform(count), ends: Vec::from_iter((count > 0).then_some(count)) },
                false => groups::<F>(options.seed, count, per_set),
            };
        });
        table
    }

    /// How many prefixes of family `F` it has.
    pub fn count<F: Family>(&self) -> usize {
        self.lists.get::<F>().prefixes.len()
    }

    /// How many groups of family `F` it has.
    pub fn group_count<F: Family>(&self) -> usize {
        self.lists.get::<F>().ends.len()
    }

    /// The prefixes of group `group`; none when there is no such group.
    pub fn group<F: Family>(&self, group: usize) -> &[Prefix<F>] {
        let list = self.lists.get::<F>();
        let end = |g: usize| list.ends.get(g).map(|e| *e as usize);
        match (group.checked_sub(1).map_or(Some(0), end), end(group)) {
            (Some(from), Some(to)) => &list.prefixes[from..to],
            _ => &[],
        }
    }

    /// Every prefix of family `F`, group by group.
    pub fn prefixes<F: Family>(&self) -> &[Prefix<F>] {
        &self.lists.get::<F>().prefixes
    }

    /// The feed of the sender with these `options`.
    pub fn feed(&self, options: FeedOptions) -> Feed<'_> {
        Feed::new(self, options)
    }
}

/// Groups the prefixes of one family.
///
/// An origin's blocks are mostly neighbours, and it often has several in different places. So the prefixes, in
/// address order, are cut into runs, and runs far from each other are joined to one group.
fn groups<F: Family>(seed: u64, count: u32, per_set: f64) -> Groups<F> {
    let mut sorted = prefixes::generate::<F>(&mut Rng::of_purpose(seed, &[1, F::AFI as u64]), count as usize);
    sorted.sort_unstable();
    let mut rng = Rng::of_purpose(seed, &[2, F::AFI as u64]);
    let runs_per_group = if per_set >= 3.0 { 2 } else { 1 };
    let mut runs = Vec::new();
    let mut rest = sorted.as_slice();
    while !rest.is_empty() {
        let (run, tail) = rest.split_at(rng.geometric(per_set / runs_per_group as f64).min(rest.len()));
        runs.push(run);
        rest = tail;
    }
    let n = runs.len().div_ceil(runs_per_group);
    let mut groups = Groups { prefixes: Vec::with_capacity(sorted.len()), ends: Vec::with_capacity(n) };
    for group in 0..n {
        for run in runs.iter().skip(group).step_by(n) {
            groups.prefixes.extend_from_slice(run);
        }
        groups.ends.push(groups.prefixes.len() as u32);
    }
    groups
}

#[cfg(test)]
mod tests;
