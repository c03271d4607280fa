//! VNETs: routes whose table is an interface `Vnet…` are rows of `VNET_ROUTE_TABLE`, or of `VNET_ROUTE_TUNNEL_TABLE` where they leave
//! by a VXLAN interface.
//!
//! A VNET's routes are kept as those of a VRF, and only their rows differ. orchagent sends no response to these rows, so clients are
//! answered at once, as by SONiC's fpmsyncd. That one leaves a row in the other table where a route becomes a tunnel, and writes an
//! empty row for a route that names a next-hop object; here the former row goes, and the route is refused.

use super::source::{RawHop, SourceId, State, What};
use super::{Cause, Fpmsyncd, RouteRef};
use crate::row::{Field, Name, RouteKey, RowKey, Via, VpnChange, VpnRow, VpnTable};
use ribtide_prefix::AnyPrefix;
use ribtide_wire::netlink::{NextHops, Route, RouteKind};
use std::net::IpAddr;
use std::sync::Arc;

/// The beginning of the names of a VNET's interfaces.
pub(super) const VNET: &str = "Vnet";
/// The beginning of the names of VXLAN interfaces.
const VXLAN: &str = "Brvxlan";

/// Whether a name is that of a VNET.
pub(super) fn is_vnet(name: &str) -> bool {
    name.starts_with(VNET)
}

/// The key of a row: the VNET and the prefix.
fn key(vnet: &str, prefix: AnyPrefix) -> Name {
    let mut text = format!("{vnet}:");
    RouteKey::new(None, prefix).write(&mut text);
    text.into()
}

fn parse_key(key: &str) -> Option<(Name, AnyPrefix)> {
    let (vnet, prefix) = key.split_once(':').filter(|(vnet, _)| is_vnet(vnet))?;
    match RouteKey::parse(prefix).ok()? {
        RouteKey::Route { vrf: None, prefix, raw_key: None } => Some((vnet.into(), prefix)),
        _ => None,
    }
}

/// The row of a route's next hops.
fn row(via: &Via) -> VpnRow {
    match via.get(Field::Ifname) {
        "" => VpnRow::new(VpnTable::VnetTunnel, &[via.get(Field::Nexthop)]),
        ifname => VpnRow::new(VpnTable::VnetRoute, &[via.get(Field::Nexthop), ifname]),
    }
}

impl Fpmsyncd {
    /// Why a route of a VNET is not carried.
    pub(super) fn vnet_refusal(route: &Route<'_>) -> Option<Cause> {
        let is_local = match route.prefix.addr() {
            IpAddr::V6(addr) => addr.is_unicast_link_local() || addr.is_multicast(),
            IpAddr::V4(_) => false,
        };
        match (route.kind, route.next_hops) {
            _ if is_local => Some(Cause::VnetLocal),
            (RouteKind::Blackhole, _) => Some(Cause::VnetBlackhole),
            (_, NextHops::Id(id)) => Some(Cause::VnetObject(id)),
            (_, NextHops::None) => Some(Cause::NoNextHops),
            (_, NextHops::Inline(_)) => None,
        }
    }

    /// The source of the next hops of a VNET's route.
    pub(super) fn vnet_source(&mut self, route: &Route<'_>) -> Result<SourceId, Cause> {
        if let Some(why) = Self::vnet_refusal(route) {
            return Err(why);
        }
        self.carried(route)?;
        let NextHops::Inline(hops) = route.next_hops else { return Err(Cause::NoNextHops) };
        let ipv4 = route.prefix.addr().is_ipv4();
        // A weight is no part of the row.
        let hops = hops.map(|hop| RawHop { weight: 1, ..self.raw_hop(hop, ipv4) }).collect();
        Ok(self.other_source(What::Vnet(hops)))
    }

    /// The row of a VNET's next hops, as next hops of a route.
    pub(super) fn state_of_vnet(&self, hops: &[RawHop]) -> State {
        let gateways: Vec<String> = hops.iter().map(|hop| hop.gateway.to_string()).collect();
        let ifnames: Vec<&str> = hops.iter().map(|hop| self.ifname(hop.ifindex)).collect();
        let is_tunnel = ifnames.first().is_some_and(|name| name.starts_with(VXLAN));
        let ifnames = ifnames.join(",");
        State::Row(Arc::new(Via::vnet(&gateways.join(","), (!is_tunnel).then_some(&*ifnames))))
    }

    /// The changes of APPL_DB of a VNET's route: what goes, and what comes.
    pub(super) fn vnet_changes(
        vnet: &str,
        prefix: AnyPrefix,
        old: Option<&Via>,
        new: Option<&Via>,
    ) -> (Option<VpnChange>, Option<VpnChange>) {
        let key = key(vnet, prefix);
        let (old, new) = (old.map(row), new.map(row));
        let gone = old.as_ref().filter(|old| new.as_ref().is_none_or(|new| new.table != old.table));
        let gone =
            gone.map(|old| VpnChange { table: old.table, key: key.clone(), row: None, reshaped: false });
        let reshaped =
            |new: &VpnRow| old.as_ref().is_some_and(|old| old.table == new.table && !old.same_shape(new));
        let new =
            new.map(|new| VpnChange { table: new.table, key, reshaped: reshaped(&new), row: Some(new) });
        (gone, new)
    }

    /// Appends the rows of all VNETs.
    pub(super) fn vnet_rows(&self, out: &mut Vec<VpnChange>) {
        for (vrf, of) in (0..).zip(&self.vrfs) {
            let Some(vnet) = of.name.as_ref().filter(|_| of.is_vnet) else { continue };
            of.routes.for_each(|prefix, entry| {
                if let Some(written) = self.row_of((vrf, prefix), entry) {
                    let row = row(&written.via);
                    let key = key(vnet, prefix);
                    out.push(VpnChange { table: row.table, key, row: Some(row), reshaped: true });
                }
            });
        }
    }

    /// The key and the row of a VNET's route.
    pub(super) fn vnet_row(vnet: &str, prefix: AnyPrefix, via: &Via) -> (Name, VpnRow) {
        (key(vnet, prefix), row(via))
    }

    /// The row that APPL_DB should have of this key. `settled`: only one that was announced since the start and is handed over.
    pub(super) fn wanted_vnet_row(&self, table: VpnTable, key: &Name, settled: bool) -> Option<VpnRow> {
        let (vnet, prefix) = parse_key(key)?;
        let at: RouteRef = (self.find_vrf(Some(&*vnet))?, prefix);
        let entry = self.entry(at)?;
        if settled && (entry.stage.is_changed() || entry.epoch == 0) {
            return None;
        }
        let row = row(&self.row_of(at, entry)?.via);
        (row.table == table).then_some(row)
    }

    /// Takes in a row of a VNET that APPL_DB has from before.
    pub(super) fn known_vnet_row(&mut self, text: &Name, row: &VpnRow) {
        let Some((vnet, prefix)) = parse_key(text) else { return };
        let vrf = self.vrf_named(&vnet);
        if self.vrfs[vrf as usize].routes.get(prefix).is_some() {
            return;
        }
        let via = match row.table {
            VpnTable::VnetTunnel => Via::vnet(row.get("endpoint"), None),
            _ => Via::vnet(row.get("nexthop"), Some(row.get("ifname"))),
        };
        let source = self.sources.fixed(&Arc::new(via));
        self.sources.join(source, (vrf, prefix), None);
        self.vrfs[vrf as usize].routes.entry(prefix).source = Some(source);
    }
}
