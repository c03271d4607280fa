//! A virtual router's forwarding tables.

use crate::dir24::{Dir24, Target};
use crate::ipv6_routes::Parts;
use crate::walk::Walk;
use ribtide_prefix::{Afi, AnyPrefix, Prefix, V4, prefetch};
use std::net::IpAddr;

/// One table for each family: direct look-up for IPv4, one hash probe for each length for IPv6.
#[derive(Default)]
pub(crate) struct Router {
    v4: Dir24,
    v6: Parts,
}

impl Router {
    pub(crate) fn len(&self, afi: Afi) -> usize {
        match afi {
            Afi::Ipv4 => self.v4.len(),
            Afi::Ipv6 => self.v6.len(),
        }
    }

    pub(crate) fn get(&self, prefix: AnyPrefix) -> Option<Target> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.get(p),
            AnyPrefix::V6(p) => self.v6.get(p),
        }
    }

    /// Prefetches a route.
    pub(crate) fn prefetch(&self, prefix: AnyPrefix) {
        if let AnyPrefix::V4(p) = prefix {
            self.v4.prefetch(p);
        }
        prefetch(self.get(prefix));
    }

    pub(crate) fn insert(&mut self, prefix: AnyPrefix, target: Target) -> Option<Target> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.insert(p, target),
            AnyPrefix::V6(p) => self.v6.insert(p, target),
        }
    }

    pub(crate) fn remove(&mut self, prefix: AnyPrefix) -> Option<Target> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.remove(p),
            AnyPrefix::V6(p) => self.v6.remove(p),
        }
    }

    /// The longest route that holds `addr`, from the tables that forward packets.
    pub(crate) fn lookup(&self, addr: IpAddr) -> Option<(AnyPrefix, Target)> {
        match addr {
            IpAddr::V4(a) => {
                let (len, target) = self.v4.lookup(a.into())?;
                Some((Prefix::<V4>::new(a.into(), len).any(), target))
            }
            IpAddr::V6(_) => self.v6.lookup(addr).map(|(prefix, target)| (prefix.any(), target)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AnyPrefix, Target)> {
        let v4 = self.v4.iter().map(|(prefix, target)| (prefix.any(), target));
        v4.chain(self.v6.iter().map(|(prefix, target)| (prefix.any(), target)))
    }

    /// Continues a walk at a place, IPv4 first; returns the next place, if there is one.
    pub(crate) fn walk(&self, mut place: usize, walk: &mut Walk) -> Option<usize> {
        if place < Dir24::PLACES {
            place = self.v4.walk(place, walk);
        }
        if place >= Dir24::PLACES {
            place = Dir24::PLACES + self.v6.walk(place - Dir24::PLACES, walk);
        }
        (place < Dir24::PLACES + Parts::PLACES).then_some(place)
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(crate) fn shrink_to_fit(&mut self) {
        self.v4.shrink_to_fit();
        self.v6.shrink_to_fit();
    }

    pub(crate) fn allocation_size(&self) -> usize {
        self.v4.allocation_size() + self.v6.allocation_size()
    }
}
