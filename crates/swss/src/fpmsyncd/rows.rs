//! Rows for a caller that itself remembers every route that it announced, as the RIB manager of the
//! same process does: nothing of a route is kept here a second time.
//!
//! Such a caller announces objects before routes that name them, as to a switch. When an object
//! that is not a group changes, it announces the routes and groups that name it once more.

use super::event::Cause;
use super::routes::Copies;
use super::source::{RawHop, State};
use super::vnets::is_vnet;
use super::{Fpmsyncd, Name};
use crate::row::{Change, RouteKey, RouteRow, Via};
use ribtide_prefix::Map;
use ribtide_wire::netlink::numbers::LWTUNNEL_ENCAP_MPLS;
use ribtide_wire::netlink::{NextHops, Route};
use std::sync::Arc;

/// Makes rows of one hand-over, which share what is equal in them.
pub struct Rows<'a> {
    machine: &'a Fpmsyncd,
    copies: Copies,
    objects: Map<u32, State>,
    /// The VRF of the latest look-up, by table.
    vrf: Option<(u32, Option<Name>)>,
}

impl Fpmsyncd {
    /// Makes rows with objects and interfaces as they are now.
    pub fn rows_now(&self) -> Rows<'_> {
        Rows { machine: self, copies: Copies::default(), objects: Map::default(), vrf: None }
    }
}

impl Rows<'_> {
    /// The row of a route, or its deletion when its next hop is on a management interface.
    ///
    /// # Errors
    /// Why the chip cannot have it.
    pub fn announced(&mut self, route: &Route<'_>) -> Result<Change<RouteRow>, Cause> {
        let key = self.key(route, true)?;
        let drops = self.machine.carried(route)?;
        if ![0, LWTUNNEL_ENCAP_MPLS].contains(&route.encap) {
            return Err(Cause::Encapsulated(route.encap));
        }
        let state = match route.next_hops {
            _ if drops => &State::Row(Arc::new(Via::blackhole())),
            NextHops::Id(id) => self.objects.entry(id).or_insert_with(|| self.machine.state_of_object(id)),
            NextHops::Inline(hops) if route.encap != 0 => {
                &self.machine.state_of_pushing(hops, route.prefix.addr().is_ipv4())
            }
            NextHops::Inline(hops) => {
                let ipv4 = route.prefix.addr().is_ipv4();
                let hops: Vec<RawHop> = hops.map(|hop| self.machine.raw_hop(hop, ipv4)).collect();
                &self.machine.state_of_hops(&hops)
            }
            NextHops::None => return Err(Cause::NoNextHops),
        };
        match (state, route.next_hops) {
            (State::Row(via), _) => {
                let name = self.machine.config.protocols.name(route.protocol);
                let row = Some(self.copies.row(via, name, route.protocol));
                // Whatever it had before.
                Ok(Change { key, row, reshaped: true })
            }
            (State::Nothing, _) => Ok(Change::del(key)),
            (State::Waiting, NextHops::Id(id)) => Err(Cause::Waits(id)),
            (State::Waiting, _) => Err(Cause::NoNextHops),
        }
    }

    /// The deletion of a route's row.
    ///
    /// # Errors
    /// Its table is no VRF's.
    pub fn withdrawn(&mut self, route: &Route<'_>) -> Result<Change<RouteRow>, Cause> {
        Ok(Change::del(self.key(route, false)?))
    }

    fn key(&mut self, route: &Route<'_>, present: bool) -> Result<RouteKey, Cause> {
        let vrf = match &self.vrf {
            Some((table, vrf)) if *table == route.table => vrf.clone(),
            _ => {
                let unknown = |why: Option<Cause>| why.unwrap_or(Cause::UnknownVrf(route.table));
                let vrf = self.machine.vrf_name(route.table, present).map_err(unknown)?;
                if vrf.as_deref().is_some_and(is_vnet) {
                    return Err(Cause::Vnet(route.table));
                }
                self.vrf.insert((route.table, vrf)).1.clone()
            }
        };
        Ok(RouteKey::new(vrf, route.prefix))
    }
}
