//! SRv6: routes that steer to a segment, local SIDs, and routes of VPNs with PIC contexts (`onSrv6SteerRouteMsg`, `onSrv6MySidMsg`,
//! `onPicContextMsg` and `onSrv6VpnRouteMsg` of `fpmsyncd/routesync.cpp`).
//!
//! SONiC's fpmsyncd drops a route of a VPN whose PIC context or next-hop object it does not know, counts a segment's routes up at each
//! announcement, and leaves the rows of PIC contexts and of their groups. Here a route waits for its objects, a segment list lasts as
//! long as a route uses it, and rows go with their objects.

use super::objects::Filler;
use super::source::{SourceId, State, What};
use super::{Cause, FpmEvent, FpmOut, Fpmsyncd};
use crate::row::{Field, Via, VpnRow, VpnTable};
use ribtide_prefix::Map;
use ribtide_wire::netlink::{Forward, LocalSid, Member, PicContext, Route, Srv6};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// A PIC context.
#[derive(Clone, PartialEq, Debug)]
enum Context {
    Single {
        gateway: IpAddr,
        ifindex: u32,
        /// The segment, and the source of the outer header.
        segment: Option<(Ipv6Addr, Ipv6Addr)>,
    },
    Group(Vec<Member>),
}

/// The PIC contexts of the session.
#[derive(Default, Debug)]
pub(super) struct PicContexts(Map<u32, Context>);

impl PicContexts {
    /// Ids mean something else from now on.
    pub(super) fn new_session(&mut self) {
        self.0.clear();
    }
}

/// The behaviour of a local SID by its number (`srv6_localsid_action`), and what it needs.
fn behaviour(action: u32) -> Option<(&'static str, Needs)> {
    Some(match action {
        1 => ("end", Needs::Nothing),
        2 => ("end.x", Needs::Adjacency),
        3 => ("end.t", Needs::Vrf),
        5 => ("end.dx6", Needs::Adjacency),
        6 => ("end.dx4", Needs::Adjacency),
        7 => ("end.dt6", Needs::Vrf),
        8 => ("end.dt4", Needs::Vrf),
        9 => ("end.dt46", Needs::Vrf),
        14 => ("un", Needs::Nothing),
        15 => ("ua", Needs::Adjacency),
        17 => ("udx6", Needs::Nothing),
        18 => ("udx4", Needs::Nothing),
        19 => ("udt6", Needs::Vrf),
        20 => ("udt4", Needs::Vrf),
        21 => ("udt46", Needs::Vrf),
        _ => return None,
    })
}

/// What a behaviour needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    Nothing,
    Vrf,
    Adjacency,
}

/// The key of a local SID's row.
fn sid_key(sid: &LocalSid<'_>) -> String {
    let [block, node, function, argument] = sid.format;
    format!("{block}:{node}:{function}:{argument}:{}", sid.sid)
}

/// The row of a local SID, or why there is none.
fn sid_row(sid: &LocalSid<'_>) -> Result<VpnRow, Cause> {
    let (action, needs) = behaviour(sid.action).ok_or(Cause::SidAction(sid.action))?;
    let mut adjacency = sid.adjacency.map(|addr| addr.to_string()).unwrap_or_default();
    match needs {
        Needs::Vrf if sid.vrf.is_empty() => return Err(Cause::SidVrf(action)),
        Needs::Adjacency if adjacency.is_empty() => return Err(Cause::SidAdjacency(action)),
        _ => {}
    }
    if !adjacency.is_empty() && !sid.ifname.is_empty() {
        adjacency.push('@');
        adjacency.push_str(sid.ifname);
    }
    Ok(VpnRow::new(VpnTable::MySid, &[action, sid.vrf, &adjacency]))
}

impl Fpmsyncd {
    pub(super) fn new_local_sid(&mut self, sid: &LocalSid<'_>, out: &mut FpmOut) {
        self.counters.objects += 1;
        let row = sid_row(sid);
        if let Err(why) = &row {
            self.counters.refused += 1;
            if self.logged.insert(why.clone()) {
                out.events.push(FpmEvent::LocalSid(sid.sid, why.clone()));
            }
        }
        // A refused one replaces what the SID had.
        self.want_vpn_row(VpnTable::MySid, &sid_key(sid), row.ok());
    }

    pub(super) fn del_local_sid(&mut self, sid: &LocalSid<'_>) {
        self.counters.objects += 1;
        self.want_vpn_row(VpnTable::MySid, &sid_key(sid), None);
    }

    /// The source of a route with an SRv6 encapsulation: it steers to a segment, or names the objects of a VPN.
    pub(super) fn srv6_source(&mut self, route: &Route<'_>) -> Result<SourceId, Cause> {
        if let ribtide_wire::netlink::NextHops::Inline(hops) = route.next_hops
            && hops.bytes().is_some()
        {
            return Err(Cause::Srv6("it has several next hops"));
        }
        let srv6 =
            Srv6::decode(route.encapsulation).map_err(|_| Cause::Srv6("its encapsulation is malformed"))?;
        if srv6.pic_context.is_some() || srv6.next_hop.is_some() {
            return self.vpn_source(srv6);
        }
        let sid = srv6.vpn_sid.ok_or(Cause::Srv6("it has no segment"))?;
        Ok(self.other_source(What::Segment(sid, srv6.source)))
    }

    /// The row of such a route: the name of the segment list is the segment.
    pub(super) fn state_of_segment(sid: &Ipv6Addr, source: Option<Ipv6Addr>) -> State {
        let source = source.map(|source| source.to_string()).unwrap_or_default();
        State::Row(Arc::new(Via::segment(&sid.to_string(), &source)))
    }

    /// The source of a route of an SRv6 VPN.
    fn vpn_source(&mut self, srv6: Srv6) -> Result<SourceId, Cause> {
        let (Some(pic_context), Some(next_hop)) = (srv6.pic_context, srv6.next_hop) else {
            return Err(Cause::Srv6("it names no PIC context or no next-hop object"));
        };
        let what = What::Vpn(pic_context, next_hop);
        let is_new = self.sources.find_other(&what).is_none();
        let source = self.other_source(what);
        // A group of next hops gets the sources of outer headers that its PIC contexts have.
        if is_new {
            self.write_group(next_hop);
        }
        Ok(source)
    }

    pub(super) fn new_pic_context(&mut self, context: &PicContext<'_>, out: &mut FpmOut) {
        self.counters.objects += 1;
        let id = context.object.id;
        let new = match context.object.forward {
            Forward::Via(_, via) if self.is_management(via.ifindex) => return self.remove_pic_context(id),
            Forward::Via(afi, via) => Context::Single {
                gateway: via.gateway.unwrap_or(super::routes::no_gateway(afi == ribtide_prefix::Afi::Ipv4)),
                ifindex: via.ifindex,
                segment: context.segment,
            },
            Forward::Group(members) => Context::Group(members.collect()),
            Forward::Blackhole(_) | Forward::Other => {
                self.counters.refused += 1;
                self.remove_pic_context(id);
                return out.events.push(FpmEvent::Object(id, Cause::Unknown));
            }
        };
        if self.pic_contexts.0.get(&id) != Some(&new) {
            self.pic_contexts.0.insert(id, new);
            self.pic_context_changed(id);
        }
    }

    pub(super) fn del_pic_context(&mut self, id: u32) {
        self.counters.objects += 1;
        self.remove_pic_context(id);
    }

    fn remove_pic_context(&mut self, id: u32) {
        if self.pic_contexts.0.remove(&id).is_some() {
            self.sources.detach(id);
        }
        self.want_vpn_row(VpnTable::PicContext, &id.to_string(), None);
    }

    /// Brings rows in line with a PIC context, with the contexts that it is a member of, and with routes and groups that use them.
    fn pic_context_changed(&mut self, id: u32) {
        let is_member = |context: &Context| match context {
            Context::Group(members) => members.iter().any(|member| member.id == id),
            Context::Single { .. } => false,
        };
        let mut changed: Vec<u32> =
            self.pic_contexts.0.iter().filter(|(_, context)| is_member(context)).map(|(id, _)| *id).collect();
        changed.push(id);
        changed.sort_unstable();
        for id in changed {
            // Only groups have rows of their own.
            if let Some(Context::Group(_)) = self.pic_contexts.0.get(&id)
                && let Some(row) = self.pic_row(id)
            {
                self.want_vpn_row(VpnTable::PicContext, &id.to_string(), Some(row));
            }
            self.vpn_object_changed(id);
        }
    }

    /// The interface of PIC contexts has another name.
    pub(super) fn pic_contexts_follow(&mut self, ifindex: u32) {
        let by = |context: &Context| matches!(context, Context::Single { ifindex: by, .. } if *by == ifindex);
        let mut found: Vec<u32> =
            self.pic_contexts.0.iter().filter(|(_, context)| by(context)).map(|(id, _)| *id).collect();
        found.sort_unstable();
        found.into_iter().for_each(|id| self.pic_context_changed(id));
    }

    /// Brings the routes of VPNs, and their groups, in line with an object or a PIC context.
    pub(super) fn vpn_object_changed(&mut self, id: u32) {
        let mut states = Vec::new();
        for source in self.sources.vpns_of(id) {
            let What::Vpn(pic_context, next_hop) = *self.sources.what(source) else { continue };
            if next_hop != id {
                self.write_group(next_hop);
            }
            states.push((source, self.state_of_vpn(pic_context, next_hop)));
        }
        states.retain(|(_, state)| *state != State::Waiting);
        self.replace(states);
    }

    /// The row of a PIC context, if it and its members are known.
    fn pic_row(&self, id: u32) -> Option<VpnRow> {
        let single = |id: u32, weight: Option<u16>| match self.pic_contexts.0.get(&id) {
            Some(Context::Single { gateway, ifindex, segment }) => {
                let text = |addr: fn(&(Ipv6Addr, Ipv6Addr)) -> Ipv6Addr| {
                    segment.as_ref().map(|segment| addr(segment).to_string()).unwrap_or_default()
                };
                Some([
                    gateway.to_string(),
                    if *ifindex == 0 { String::new() } else { self.ifname(*ifindex).to_owned() },
                    text(|(sid, _)| *sid),
                    text(|(_, source)| *source),
                    weight.map(|weight| weight.to_string()).unwrap_or_default(),
                ])
            }
            _ => None,
        };
        let values = match self.pic_contexts.0.get(&id)? {
            Context::Single { .. } => single(id, None)?,
            Context::Group(members) => {
                let members: Option<Vec<_>> =
                    members.iter().map(|member| single(member.id, Some(member.weight))).collect();
                let members = members.filter(|members| !members.is_empty())?;
                std::array::from_fn(|field| {
                    let of_all: Vec<&str> = members.iter().map(|values| &*values[field]).collect();
                    of_all.join(",")
                })
            }
        };
        Some(VpnRow::new(VpnTable::PicContext, &values.each_ref().map(String::as_str)))
    }

    /// The sources of outer headers that a group of next hops gets from the PIC contexts of its routes; of several the last one's,
    /// by their ids.
    pub(super) fn segment_sources(&self, next_hop: u32) -> Option<String> {
        let contexts =
            self.sources.vpns_of(next_hop).into_iter().filter_map(|source| match self.sources.what(source) {
                What::Vpn(pic_context, of) if *of == next_hop => Some(*pic_context),
                _ => None,
            });
        let row = self.pic_row(contexts.max()?)?;
        Some(row.get("seg_src").to_owned()).filter(|sources| !sources.is_empty())
    }

    /// The row of a route of an SRv6 VPN, once both objects are known.
    pub(super) fn state_of_vpn(&self, pic_context: u32, next_hop: u32) -> State {
        let Some(row) = self.pic_row(pic_context) else { return State::Waiting };
        let (pic_context, group) = (pic_context.to_string(), next_hop.to_string());
        let fields = match self.object_filler(next_hop) {
            Filler::Unknown => return State::Waiting,
            Filler::Blackhole => return State::Row(Arc::new(Via::blackhole())),
            Filler::Management => return State::Nothing,
            Filler::Group => [
                (Field::PicContextId, &*pic_context),
                (Field::NexthopGroup, &*group),
                (Field::Nexthop, ""),
                (Field::VpnSid, ""),
                (Field::SegSrc, ""),
                (Field::Ifname, ""),
            ],
            Filler::Interface(ifname) => {
                return State::Row(Arc::new(Via::vpn([
                    (Field::Nexthop, row.get("nexthop")),
                    (Field::VpnSid, row.get("vpn_sid")),
                    (Field::SegSrc, row.get("seg_src")),
                    (Field::PicContextId, ""),
                    (Field::NexthopGroup, ""),
                    (Field::Ifname, ifname),
                ])));
            }
        };
        State::Row(Arc::new(Via::vpn(fields)))
    }

    /// What a route of an SRv6 VPN waits for.
    pub(super) fn missing_object(&self, pic_context: u32, next_hop: u32) -> u32 {
        if self.pic_row(pic_context).is_none() { pic_context } else { next_hop }
    }
}
