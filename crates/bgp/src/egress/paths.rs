//! The paths of pending changes, each stored once for all of its prefixes.

use crate::attr::AttrSet;
use crate::message::{BestPath, NONE};
use crate::peer::PeerId;
use hashbrown::HashTable;
use ribtide_policy::NewNextHop;

/// The handle of a path; [`NONE`] is none.
pub(super) type Handle = u32;

/// A best path in a group's form, with the changes of its export policy.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) attrs: AttrSet,
    pub(super) source: PeerId,
    /// The next hop, if the policy set it; else the group's rule decides.
    pub(super) next_hop: Option<NewNextHop>,
    /// Whether the policy set MULTI_EXIT_DISC, which is then sent to another AS too.
    pub(super) keeps_med: bool,
}

impl Path {
    /// The unchanged path.
    pub(super) fn plain(path: &BestPath) -> Path {
        Path { attrs: path.attrs.clone(), source: path.source, next_hop: None, keeps_med: false }
    }
}

/// Paths with reference counts; equal ones share a handle.
#[derive(Default)]
pub(super) struct Paths {
    slots: Vec<Slot>,
    free: Vec<Handle>,
    index: HashTable<Handle>,
}

struct Slot {
    path: Option<Path>,
    holders: u32,
}

impl Paths {
    /// The handle of `path`, with one more reference.
    pub(super) fn intern(&mut self, path: Path) -> Handle {
        let Paths { slots, free, index } = self;
        let hash = hash(&path);
        let equal = |h: &Handle| slots[*h as usize].path.as_ref() == Some(&path);
        if let Some(handle) = index.find(hash, equal) {
            slots[*handle as usize].holders += 1;
            return *handle;
        }
        let slot = Slot { path: Some(path), holders: 1 };
        let handle = match free.pop() {
            Some(handle) => {
                slots[handle as usize] = slot;
                handle
            }
            None => {
                slots.push(slot);
                (slots.len() - 1) as Handle
            }
        };
        index.insert_unique(hash, handle, |h| slots[*h as usize].path.as_ref().map_or(0, self::hash));
        handle
    }

    /// Adds a reference to `handle`.
    pub(super) fn hold(&mut self, handle: Handle) {
        if handle != NONE {
            self.slots[handle as usize].holders += 1;
        }
    }

    /// Removes a reference to `handle`.
    pub(super) fn release(&mut self, handle: Handle) {
        if handle == NONE {
            return;
        }
        let slot = &mut self.slots[handle as usize];
        slot.holders -= 1;
        if slot.holders == 0
            && let Some(path) = slot.path.take()
        {
            if let Ok(entry) = self.index.find_entry(hash(&path), |h| *h == handle) {
                entry.remove();
            }
            self.free.push(handle);
        }
    }

    /// The path of a valid handle.
    pub(super) fn get(&self, handle: Handle) -> Option<&Path> {
        self.slots.get(handle as usize)?.path.as_ref()
    }

    /// Its source.
    pub(super) fn source(&self, handle: Handle) -> Option<PeerId> {
        self.get(handle).map(|path| path.source)
    }

    /// All handles are below this.
    pub(super) fn numbers(&self) -> usize {
        self.slots.len()
    }

    /// Frees its memory when there is no path. A handle stays valid as long as its path.
    pub(super) fn shrink_to_fit(&mut self) {
        if self.index.is_empty() {
            *self = Paths::default();
        }
    }

    /// The number of paths.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }
}

fn hash(path: &Path) -> u64 {
    // The content's hash is even, so the source is spread over all bits first.
    path.attrs.content_hash() ^ u64::from(path.source.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
