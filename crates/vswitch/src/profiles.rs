//! Table sizes of real chips, by name (`profile=tomahawk`). docs/sonic.md has the sources.
//!
//! The figures are those that a network operating system reports for its default profile, so they are
//! what a user of such a switch has, and less than a data sheet says. A number without a public source
//! is computed from one that has: next hops are as many as neighbours, and groups as many as have two
//! members each.

use crate::behavior::Limits;

/// The sizes of one chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// The sizes.
    pub limits: Limits,
}

const K: u32 = 1024;

/// Sizes of a chip of one vendor's two: IPv4 and IPv6 share its tables of routes and of neighbours.
const fn shared(ipv4_routes: u32, ipv6_routes: u32, neighbors: u32, members: u32, fdb: u32) -> Limits {
    Limits {
        ipv4_routes,
        ipv6_routes,
        ipv4_next_hops: neighbors,
        ipv6_next_hops: neighbors,
        labelled_next_hops: neighbors,
        ipv4_neighbors: neighbors,
        // An entry of IPv6 takes the room of two.
        ipv6_neighbors: neighbors / 2,
        groups: members / 2,
        group_members: members,
        labels: 1 << 20,
        fdb_entries: fdb,
        shared_routes: true,
        shared_neighbors: true,
    }
}

/// Every profile.
pub const PROFILES: [Profile; 3] = [
    Profile {
        name: "spectrum",
        limits: Limits {
            ipv4_routes: 64 * K,
            ipv6_routes: 28 * K,
            ipv4_next_hops: 32 * K,
            ipv6_next_hops: 16 * K,
            labelled_next_hops: 32 * K,
            ipv4_neighbors: 32 * K,
            ipv6_neighbors: 16 * K,
            groups: 4101 / 2,
            group_members: 4101,
            labels: 1 << 20,
            fdb_entries: 40 * K,
            shared_routes: false,
            shared_neighbors: false,
        },
    },
    Profile { name: "tomahawk", limits: shared(64 * K, 8 * K, 40 * K, 16_327, 40 * K) },
    Profile { name: "trident", limits: shared(128 * K, 20 * K, 16 * K, 16_346, 32 * K) },
];

impl Profile {
    /// The profile of this name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}
