//! Redistribution: the routes of other protocols that BGP originates.
//!
//! Only routes that are selected for the FIB are redistributed. Whether the dataplanes have them is the
//! subject of FIB suppression.
//! A route with at least the distance of external BGP routes is not: BGP would advertise it
//! while the RIB manager prefers a route of BGP, and the result would depend on which came first. Of the
//! connected routes subnets are redistributed, and not the single addresses of this router in them.

use crate::message::Protocol;
use crate::resolver::Resolver;
use crate::table::{Candidate, RouteTables};
use ribtide_prefix::{AnyPrefix, Families, Family, Map, Prefix, for_each_family, per_family};
use std::collections::BTreeSet;

/// The routes that BGP originates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Redistribution {
    /// All routes of these protocols. BGP's own are never redistributed.
    pub protocols: BTreeSet<Protocol>,
    /// And routes of any protocol for exactly these prefixes.
    pub networks: BTreeSet<AnyPrefix>,
}

impl Redistribution {
    fn is_off(&self) -> bool {
        self.protocols.is_empty() && self.networks.is_empty()
    }

    fn takes<F: Family>(&self, prefix: Prefix<F>, candidate: &Candidate, resolver: &Resolver) -> bool {
        let before_bgp = candidate.distance < Protocol::BgpExternal.default_distance();
        let own_address = candidate.protocol == Protocol::Connected
            && prefix.len() == F::WIDTH
            && !resolver.is_subnet(prefix.any());
        let of_protocol = self.protocols.contains(&candidate.protocol) && !own_address;
        before_bgp && (of_protocol || self.networks.contains(&prefix.any()))
    }
}

/// What was redistributed, and its changes.
#[derive(Default)]
pub(crate) struct Redistributor {
    wanted: Redistribution,
    sent: Families<Sent>,
    /// Changes that BGP has not got.
    changes: Vec<(AnyPrefix, Option<Protocol>)>,
}

per_family! {
    /// The protocol of each redistributed route.
    struct Sent<F> = Map<Prefix<F>, Protocol>;
}

impl Redistributor {
    /// Sets what is redistributed. Visits every route, except when redistribution stays off.
    pub(crate) fn set(&mut self, wanted: Redistribution, tables: &RouteTables, resolver: &Resolver) {
        let was_off = self.wanted.is_off();
        self.wanted = wanted;
        if was_off && self.wanted.is_off() {
            return;
        }
        for_each_family!(F => for (prefix, route) in tables.get::<F>().routes.iter() {
            self.selected(prefix, route.candidate().filter(|_| route.fib != 0).as_ref(), resolver);
        });
    }

    /// Whether anything is redistributed.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.wanted.is_off()
    }

    /// The installed candidate of a prefix, after its selection.
    pub(crate) fn selected<F: Family>(
        &mut self,
        prefix: Prefix<F>,
        installed: Option<&Candidate>,
        resolver: &Resolver,
    ) {
        let candidate = installed.filter(|candidate| self.wanted.takes(prefix, candidate, resolver));
        let protocol = candidate.map(|candidate| candidate.protocol);
        let sent = self.sent.get_mut::<F>();
        let before = match protocol {
            Some(protocol) => sent.insert(prefix, protocol),
            None => sent.remove(&prefix),
        };
        if before != protocol {
            self.changes.push((prefix.any(), protocol));
        }
    }

    /// Takes the changes, in order: the protocol of a redistributed prefix, or `None`.
    pub(crate) fn take_changes(&mut self) -> Vec<(AnyPrefix, Option<Protocol>)> {
        std::mem::take(&mut self.changes)
    }
}
