//! The netdevs of the ports: which there are, and which have a carrier.

use ribtide_prefix::Map;
use ribtide_wire::netlink::Link;

/// What the kernel says of a netdev.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkState {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// `IFF_*`.
    pub(crate) flags: u32,
    /// In bytes; 0: the kernel does not say.
    pub(crate) mtu: u32,
}

impl LinkState {
    pub(crate) fn of(link: &Link<'_>) -> LinkState {
        LinkState { index: link.index, name: link.name.to_owned(), flags: link.flags, mtu: link.mtu }
    }

    /// Whether it is switched on and has a carrier.
    pub(crate) fn is_operative(&self) -> bool {
        Link { flags: self.flags, ..Link::default() }.operative()
    }
}

/// A netdev.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Netdev {
    pub(crate) name: String,
    /// Whether it is switched on and has a carrier.
    pub(crate) up: bool,
}

/// What an event of a netdev changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkChange {
    /// The kernel has what it had.
    None,
    /// Its routes and next hops have left the kernel.
    Lost,
    /// The kernel takes routes and next hops by it again.
    Back,
}

/// All netdevs of the network namespace.
#[derive(Default)]
pub(crate) struct Netdevs {
    by_index: Map<u32, Netdev>,
    by_name: Map<String, u32>,
}

impl Netdevs {
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn is_up(&self, index: u32) -> bool {
        self.by_index.get(&index).is_some_and(|netdev| netdev.up)
    }

    pub(crate) fn name(&self, index: u32) -> Option<&str> {
        self.by_index.get(&index).map(|netdev| &*netdev.name)
    }

    /// Those that `there` has not.
    pub(crate) fn missing(&self, there: impl Fn(u32) -> bool) -> Vec<u32> {
        self.by_index.keys().copied().filter(|index| !there(*index)).collect()
    }

    /// Takes in that a netdev exists, or changed.
    pub(crate) fn set(&mut self, link: &LinkState) -> LinkChange {
        let new = Netdev { name: link.name.clone(), up: link.is_operative() };
        let before = self.by_index.insert(link.index, new.clone());
        if let Some(before) = before.as_ref().filter(|before| before.name != new.name) {
            self.by_name.remove(&before.name);
        }
        self.by_name.insert(new.name, link.index);
        match (before.is_some_and(|before| before.up), new.up) {
            (true, false) => LinkChange::Lost,
            (false, true) => LinkChange::Back,
            _ => LinkChange::None,
        }
    }

    /// Takes in that a netdev is gone, and returns its name.
    pub(crate) fn remove(&mut self, index: u32) -> Option<String> {
        let netdev = self.by_index.remove(&index)?;
        if self.by_name.get(&netdev.name) == Some(&index) {
            self.by_name.remove(&netdev.name);
        }
        Some(netdev.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::netlink::numbers::{IFF_LOWER_UP, IFF_UP};

    fn link(index: u32, name: &str, up: bool) -> LinkState {
        let flags = if up { IFF_UP | IFF_LOWER_UP } else { IFF_UP };
        LinkState { index, name: name.into(), flags, mtu: 1500 }
    }

    #[test]
    fn netdev_that_is_renamed_or_replaced_is_found_by_its_present_name() {
        let mut netdevs = Netdevs::default();
        assert_eq!(netdevs.set(&link(2, "eth1", false)), LinkChange::None);
        assert_eq!(netdevs.set(&link(2, "eth1", true)), LinkChange::Back);
        assert_eq!(netdevs.set(&link(2, "eth9", true)), LinkChange::None);
        assert_eq!((netdevs.index("eth1"), netdevs.index("eth9")), (None, Some(2)));
        // One of the same name comes before the former is known to be gone.
        netdevs.set(&link(3, "eth9", false));
        assert_eq!(netdevs.remove(2).as_deref(), Some("eth9"));
        assert_eq!((netdevs.index("eth9"), netdevs.is_up(2), netdevs.is_up(3)), (Some(3), false, false));
        assert_eq!(netdevs.set(&link(3, "eth9", true)), LinkChange::Back);
        assert_eq!(netdevs.set(&link(3, "eth9", false)), LinkChange::Lost);
    }
}
