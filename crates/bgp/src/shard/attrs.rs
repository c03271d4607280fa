//! The attribute sets and next hops that a shard's paths use, by small numbers, counted.
//!
//! Readers intern on their own and may hand in equal sets twice; here they become one, found by content. Only
//! this shard touches these counters: no path costs an atomic operation.

use crate::attr::AttrSet;
use crate::decision::{DecisionOptions, Rank, Reason};
use crate::message::NextHopState;
use hashbrown::HashTable;
use ribtide_prefix::Map;
use std::net::IpAddr;

/// Attribute sets in use, numbered.
#[derive(Default)]
pub(super) struct AttrTable {
    entries: Vec<Entry>,
    unused: Vec<u32>,
    by_content: HashTable<u32>,
    pub(super) hops: NextHops,
    memory: usize,
}

struct Entry {
    /// `None` while the number is unused.
    attrs: Option<AttrSet>,
    rank: Rank,
    hop: u32,
    refs: u32,
}

impl AttrTable {
    /// The number of `attrs`, with one more reference to it.
    pub(super) fn acquire(&mut self, attrs: &AttrSet, options: &DecisionOptions) -> u32 {
        let hash = attrs.content_hash();
        let entries = &self.entries;
        let same = |id: &u32| entries[*id as usize].attrs.as_ref() == Some(attrs);
        if let Some(id) = self.by_content.find(hash, same) {
            self.entries[*id as usize].refs += 1;
            return *id;
        }
        let entry = Entry {
            attrs: Some(attrs.clone()),
            rank: Rank::new(attrs, options),
            hop: self.hops.acquire(attrs.next_hop().addr()),
            refs: 1,
        };
        self.memory += attrs.memory();
        let id = match self.unused.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let entries = &self.entries;
        self.by_content.insert_unique(hash, id, |id| {
            entries[*id as usize].attrs.as_ref().map_or(0, |attrs| attrs.content_hash())
        });
        id
    }

    /// One more reference to a set in use.
    pub(super) fn retain(&mut self, id: u32) {
        self.entries[id as usize].refs += 1;
    }

    /// One reference less; the last takes the set away.
    pub(super) fn release(&mut self, id: u32) {
        let entry = &mut self.entries[id as usize];
        entry.refs -= 1;
        if entry.refs > 0 {
            return;
        }
        let hop = entry.hop;
        if let Some(attrs) = entry.attrs.take() {
            self.memory -= attrs.memory();
            if let Ok(found) = self.by_content.find_entry(attrs.content_hash(), |other| *other == id) {
                found.remove();
            }
        }
        self.hops.release(hop);
        self.unused.push(id);
    }

    /// The set of a number in use.
    pub(super) fn get(&self, id: u32) -> &AttrSet {
        self.entries[id as usize].attrs.as_ref().expect("a path's attribute set is in use")
    }

    /// The rank of a set in use.
    pub(super) fn rank(&self, id: u32) -> &Rank {
        &self.entries[id as usize].rank
    }

    /// Interior cost to the next hop of a set in use.
    pub(super) fn cost(&self, id: u32) -> Result<u32, Reason> {
        match self.hops.entries[self.entries[id as usize].hop as usize].state {
            NextHopState::Reachable { cost } => Ok(cost),
            NextHopState::Unreachable => Err(Reason::NextHopUnreachable),
        }
    }

    /// The next hop of a set in use and what is known of it.
    pub(super) fn hop_of(&self, id: u32) -> (IpAddr, NextHopState) {
        let hop = &self.hops.entries[self.entries[id as usize].hop as usize];
        (hop.addr, hop.state)
    }

    /// Whether two sets in use have one next hop.
    pub(super) fn same_next_hop(&self, a: u32, b: u32) -> bool {
        let (hop, other) = (self.entries[a as usize].hop, self.entries[b as usize].hop);
        // An IPv6 next hop may differ in its link-local address alone.
        hop == other
            && (self.hops.entries[hop as usize].addr.is_ipv4()
                || self.get(a).next_hop() == self.get(b).next_hop())
    }

    /// How many sets are in use.
    pub(super) fn len(&self) -> usize {
        self.by_content.len()
    }

    /// Bytes of memory held, shared sets included.
    pub(super) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.unused.capacity() * 4
            + self.by_content.allocation_size()
            + self.memory
    }
}

/// Next hops, numbered: those that attribute sets use and those of which something was said.
#[derive(Default)]
pub(super) struct NextHops {
    entries: Vec<Hop>,
    unused: Vec<u32>,
    by_addr: Map<IpAddr, u32>,
    /// Next hops that came into use (`true`) or went out of it, in order.
    pub(super) uses: Vec<(IpAddr, bool)>,
}

struct Hop {
    addr: IpAddr,
    state: NextHopState,
    refs: u32,
}

impl NextHops {
    const UNKNOWN: NextHopState = NextHopState::Reachable { cost: 0 };

    /// Takes in what is now known of `addr`. Returns whether that changes the standing of any path.
    pub(super) fn tell(&mut self, addr: IpAddr, state: NextHopState) -> bool {
        if state == NextHops::UNKNOWN && !self.by_addr.contains_key(&addr) {
            return false;
        }
        let id = self.find(addr);
        let hop = &mut self.entries[id as usize];
        let changed = std::mem::replace(&mut hop.state, state) != state && hop.refs > 0;
        self.forget_if_idle(id);
        changed
    }

    /// Takes in what another shard knew of `addr`, unless it is in use or known here: then that counts, for who says
    /// what next hops are says it to all shards. Returns whether the two agree.
    pub(super) fn learn(&mut self, addr: IpAddr, state: NextHopState) -> bool {
        match self.by_addr.get(&addr) {
            Some(id) => self.entries[*id as usize].state == state,
            None => {
                self.tell(addr, state);
                true
            }
        }
    }

    /// How many next hops are in use.
    pub(super) fn in_use(&self) -> usize {
        self.entries.iter().filter(|hop| hop.refs > 0).count()
    }

    fn acquire(&mut self, addr: IpAddr) -> u32 {
        let id = self.find(addr);
        let hop = &mut self.entries[id as usize];
        hop.refs += 1;
        if hop.refs == 1 {
            self.uses.push((addr, true));
        }
        id
    }

    fn release(&mut self, id: u32) {
        let hop = &mut self.entries[id as usize];
        hop.refs -= 1;
        if hop.refs == 0 {
            self.uses.push((hop.addr, false));
            self.forget_if_idle(id);
        }
    }

    fn find(&mut self, addr: IpAddr) -> u32 {
        *self.by_addr.entry(addr).or_insert_with(|| {
            let hop = Hop { addr, state: NextHops::UNKNOWN, refs: 0 };
            if let Some(id) = self.unused.pop() {
                self.entries[id as usize] = hop;
                return id;
            }
            self.entries.push(hop);
            (self.entries.len() - 1) as u32
        })
    }

    /// A next hop that nobody uses is kept only while something is known of it.
    fn forget_if_idle(&mut self, id: u32) {
        let hop = &self.entries[id as usize];
        if hop.refs == 0 && hop.state == NextHops::UNKNOWN {
            self.by_addr.remove(&hop.addr);
            self.unused.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::NextHop;

    fn set(origin: u8, hop: &str) -> AttrSet {
        AttrSet::new(&[0x40, 1, 1, origin], NextHop::V4(hop.parse().unwrap()))
    }

    #[test]
    fn equal_sets_are_one_and_the_last_reference_takes_it_away() {
        let (mut table, options) = (AttrTable::default(), DecisionOptions::default());
        let a = table.acquire(&set(0, "10.0.0.1"), &options);
        assert_eq!(table.acquire(&set(0, "10.0.0.1"), &options), a);
        let b = table.acquire(&set(1, "10.0.0.1"), &options);
        assert_ne!(a, b);
        assert_eq!((table.len(), table.hops.in_use()), (2, 1));
        table.release(a);
        table.release(a);
        assert_eq!((table.len(), table.hops.in_use()), (1, 1));
        assert_eq!(table.acquire(&set(2, "10.0.0.2"), &options), a, "numbers are used again");
        assert!(!table.same_next_hop(a, b));
        table.release(a);
        table.release(b);
        assert_eq!((table.len(), table.hops.in_use(), table.memory), (0, 0, 0));
        let hop = |text: &str| text.parse().unwrap();
        let uses = [
            (hop("10.0.0.1"), true),
            (hop("10.0.0.2"), true),
            (hop("10.0.0.2"), false),
            (hop("10.0.0.1"), false),
        ];
        assert_eq!(table.hops.uses, uses);
    }

    #[test]
    fn what_is_known_of_a_next_hop_outlives_its_use() {
        let (mut table, options) = (AttrTable::default(), DecisionOptions::default());
        let addr = "10.0.0.1".parse().unwrap();
        assert!(!table.hops.tell(addr, NextHopState::Unreachable), "nobody uses it yet");
        let a = table.acquire(&set(0, "10.0.0.1"), &options);
        assert_eq!(table.cost(a), Err(Reason::NextHopUnreachable));
        assert!(table.hops.tell(addr, NextHopState::Reachable { cost: 7 }));
        assert!(!table.hops.tell(addr, NextHopState::Reachable { cost: 7 }));
        table.release(a);
        let a = table.acquire(&set(0, "10.0.0.1"), &options);
        assert_eq!(table.cost(a), Ok(7));
        assert!(table.hops.tell(addr, NextHopState::Reachable { cost: 0 }));
        table.release(a);
        assert!(table.hops.by_addr.is_empty());
    }
}
