//! The RIB manager's batches as FPM says them: next-hop objects and routes, as typed messages.
//!
//! The FPM client writes them as bytes; the SONiC path in this process hands them to fpmsyncd as they are.
//!
//! Two styles. Inline, each route carries its next hops, and a group that changes is told by telling its routes
//! again. With objects, a group is an object over single objects, one for each gateway and interface in use, and a
//! group that changes is one message whatever the number of its routes.
//!
//! SONiC's server never forgets a single object and never changes it, over all connections: so an id must always mean
//! the same way, also after a restart of either side. It is made from the way itself, and what once had it keeps it.
//!
//! A route's table is the number of its VRF's device, and 0 the default VRF: SONiC takes the number for an interface
//! index, not for a kernel table. A route
//! carries the protocol's own number as zebra sends it, since `fpmsyncd` shows it by name.

use super::fit_weight;
use ribtide_prefix::{Family, Map, Set};
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, IfIndex, Protocol};
use ribtide_wire::netlink::numbers::{RTPROT_BGP, RTPROT_KERNEL, RTPROT_STATIC};
use ribtide_wire::netlink::{
    Content, Forward, Hop, Hops, Member, Members, NextHop, NextHops, Route, RouteKind, Via,
};
use std::net::IpAddr;

/// Ids of single objects have this bit; groups have the RIB manager's numbers, which count from 1.
const SINGLE: u32 = 1 << 31;

/// How routes say where they lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Each by itself, as SONiC's default is.
    Inline,
    /// By the id of a next-hop object.
    Objects,
}

/// What was told of groups.
#[derive(Debug)]
pub struct Announcer {
    style: Style,
    groups: Map<GroupId, FibGroup>,
    /// The source addresses of groups that a policy gave one.
    sources: Map<GroupId, IpAddr>,
    /// How many members of groups are this way; its object is there while there is one.
    singles: Map<Via, Single>,
    /// What each id of a single object ever meant: as many as there were neighbours.
    meanings: Map<u32, Via>,
    /// Objects told before [`Announcer::begin_again`] and not since.
    stale: Set<u32>,
    /// Objects that no route names once the routes of groups that turned are sent again.
    retired: Set<u32>,
    // Kept for their allocation.
    hops: Vec<Hop>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Single {
    id: u32,
    users: u32,
}

impl Announcer {
    /// One that told nothing.
    pub fn new(style: Style) -> Self {
        Announcer {
            style,
            groups: Map::default(),
            sources: Map::default(),
            singles: Map::default(),
            meanings: Map::default(),
            stale: Set::default(),
            retired: Set::default(),
            hops: Vec::new(),
            members: Vec::new(),
        }
    }

    /// Everything will be told again. What was told stays with the listener until [`Announcer::delete_stale`].
    pub fn begin_again(&mut self) {
        for (id, content) in self.groups.drain() {
            if self.style == Style::Objects && has_object(&content) {
                self.stale.insert(id.0);
            }
        }
        self.stale.extend(self.singles.drain().map(|(_, single)| single.id));
    }

    /// Tells the groups that `batch` makes or changes. Returns those that routes named in another way before: these
    /// routes must be sent again, and until [`Announcer::retire`] what they named stays.
    pub fn groups(&mut self, batch: &FibBatch, tell: &mut dyn FnMut(&Content<'_>)) -> Set<GroupId> {
        let mut turned = Set::default();
        // FPM has no message for an unresolved group. What the listener has stays as it is until its routes go, one by one.
        let known = |op: &&GroupOp| op.content != FibGroup::Unresolved || !self.groups.contains_key(&op.id);
        let ops: Vec<&GroupOp> = batch.groups.iter().filter(known).collect();
        for op in ops {
            let by_group = |content| self.style == Style::Objects && has_object(content);
            let before = self.groups.get(&op.id);
            if before.is_some_and(|old| *old != op.content && !(by_group(old) && by_group(&op.content))) {
                turned.insert(op.id);
            }
            if self.style == Style::Objects {
                self.tell_objects(op.id, &op.content, tell);
            }
            match op.source {
                Some(source) => self.sources.insert(op.id, source),
                None => self.sources.remove(&op.id),
            };
            if let Some(old) = self.groups.insert(op.id, op.content.clone()) {
                if has_object(&old) && !has_object(&op.content) {
                    self.retired.insert(op.id.0);
                }
                self.release(&old);
            }
        }
        turned
    }

    /// What to tell of a route of the VRF with this device. The error is a sentence.
    pub fn route<F: Family>(
        &mut self,
        device: IfIndex,
        route: &FibRoute<F>,
    ) -> Result<Content<'_>, &'static str> {
        let number = protocol_number(route.protocol);
        let mut told = Route::new(route.prefix.any(), device, number, NextHops::None);
        let Some(id) = route.group else { return Ok(Content::DelRoute(told)) };
        let content = self.groups.get(&id).ok_or("its next-hop group was never announced")?;
        told.prefsrc = if self.sources.is_empty() { None } else { self.sources.get(&id).copied() };
        match content {
            // It was overtaken before it was ever told. Like all that failed it is tried again.
            FibGroup::Unresolved => return Err("its next-hop group is unresolved at the moment"),
            FibGroup::Blackhole => told.kind = RouteKind::Blackhole,
            FibGroup::Hops(hops) if self.style == Style::Inline => {
                let largest = largest_weight(hops);
                let fit = |hop: &FibHop| Hop { via: via(hop), weight: fit_weight(hop.weight, largest) };
                self.hops.clear();
                self.hops.extend(hops.iter().map(fit));
                told.next_hops = NextHops::Inline(Hops::from(&self.hops[..]));
            }
            FibGroup::Hops(hops) => {
                let direct = hops.first().filter(|_| !has_object(content));
                let direct = direct.and_then(|hop| self.singles.get(&via(hop)));
                told.next_hops = NextHops::Id(direct.map_or(id.0, |single| single.id));
            }
        }
        Ok(Content::NewRoute(told))
    }

    /// Tells that the groups are gone that `batch` deletes.
    pub fn delete_groups(&mut self, batch: &FibBatch, tell: &mut dyn FnMut(&Content<'_>)) {
        for id in &batch.after {
            let Some(content) = self.groups.remove(id) else { continue };
            self.sources.remove(id);
            if self.style == Style::Objects && has_object(&content) {
                // Before its members, which are retired.
                tell(&Content::DelNextHop(id.0));
            }
            self.release(&content);
        }
    }

    /// Tells that the objects are gone that nothing names any more: every route of a group that turned was sent again.
    pub fn retire(&mut self, tell: &mut dyn FnMut(&Content<'_>)) {
        delete(&mut self.retired, tell);
    }

    /// Tells that the objects are gone that were told before [`Announcer::begin_again`] and not since.
    pub fn delete_stale(&mut self, tell: &mut dyn FnMut(&Content<'_>)) {
        delete(&mut self.stale, tell);
    }

    /// Tells the object of a group, if it is to have one, and new single objects before it.
    fn tell_objects(&mut self, group: GroupId, content: &FibGroup, tell: &mut dyn FnMut(&Content<'_>)) {
        let FibGroup::Hops(hops) = content else { return };
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        let largest = largest_weight(hops);
        for hop in hops {
            let id = self.use_single(via(hop), tell);
            members.push(Member { id, weight: fit_weight(hop.weight, largest) });
        }
        if has_object(content) {
            self.stale.remove(&group.0);
            self.retired.remove(&group.0);
            let forward = Forward::Group(Members::from(&members[..]));
            tell(&Content::NewNextHop(NextHop { id: group.0, protocol: RTPROT_BGP, forward }));
        }
        self.members = members;
    }

    /// The id of the single object for this way, which is told now unless it was.
    fn use_single(&mut self, via: Via, tell: &mut dyn FnMut(&Content<'_>)) -> u32 {
        if let Some(single) = self.singles.get_mut(&via) {
            single.users += 1;
            return single.id;
        }
        let mut id = SINGLE | fingerprint(&via);
        while *self.meanings.entry(id).or_insert(via) != via {
            id = SINGLE | id.wrapping_add(1);
        }
        self.stale.remove(&id);
        self.retired.remove(&id);
        tell(&Content::NewNextHop(NextHop { id, protocol: RTPROT_BGP, forward: Forward::via(via) }));
        self.singles.insert(via, Single { id, users: 1 });
        id
    }

    fn release(&mut self, content: &FibGroup) {
        let FibGroup::Hops(hops) = content else { return };
        for hop in hops {
            let via = via(hop);
            let Some(single) = self.singles.get_mut(&via) else { continue };
            single.users -= 1;
            if single.users == 0 {
                self.retired.insert(single.id);
                self.singles.remove(&via);
            }
        }
    }
}

/// Tells that objects are gone: groups, whose numbers are the lower ones, before their members.
fn delete(objects: &mut Set<u32>, tell: &mut dyn FnMut(&Content<'_>)) {
    let mut ids: Vec<u32> = objects.drain().collect();
    ids.sort_unstable();
    ids.into_iter().for_each(|id| tell(&Content::DelNextHop(id)));
}

fn via(hop: &FibHop) -> Via {
    Via { gateway: hop.gateway, ifindex: hop.interface, onlink: hop.onlink }
}

fn largest_weight(hops: &[FibHop]) -> u16 {
    hops.iter().map(|hop| hop.weight).max().unwrap_or(1)
}

/// Whether a group is an object of its own. A blackhole is written into its routes, and an interface without a
/// gateway is named by its single object: SONiC makes no group of it.
fn has_object(content: &FibGroup) -> bool {
    match content {
        FibGroup::Blackhole | FibGroup::Unresolved => false,
        FibGroup::Hops(hops) => !matches!(&hops[..], [FibHop { gateway: None, .. }]),
    }
}

/// A number for where a route leads: equal for equal next hops in any order, and rarely for others. 0 stands for none.
pub fn destination(next_hops: &NextHops<'_>) -> u32 {
    match next_hops {
        NextHops::None => 0,
        NextHops::Id(id) => *id,
        NextHops::Inline(hops) => {
            let sum = hops.fold(0_u32, |sum, hop| {
                // Replies need not say that a gateway is on the link, nor how much of the traffic it has.
                sum.wrapping_add(fingerprint(&Via { onlink: false, ..hop.via }))
            });
            sum.max(1)
        }
    }
}

/// A number for all that a route says of its way: that of [`destination`], weights, and whatever else may differ. Equal for equal
/// ones, and rarely for others.
pub fn variant(route: &Route<'_>) -> u32 {
    let weights = match &route.next_hops {
        NextHops::Inline(hops) => hops.fold(0_u32, |sum, hop| {
            sum.wrapping_add(fingerprint(&hop.via).wrapping_mul(2 * u32::from(hop.weight) + 1))
        }),
        NextHops::None | NextHops::Id(_) => 0,
    };
    let source = Via { gateway: route.prefsrc, ifindex: 0, onlink: false };
    destination(&route.next_hops).wrapping_add(weights).wrapping_add(fingerprint(&source).rotate_left(7))
}

/// A number that depends on the way alone, equal in every run (FNV-1a).
fn fingerprint(via: &Via) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    match via.gateway {
        Some(IpAddr::V4(a)) => add(&a.octets()),
        Some(IpAddr::V6(a)) => add(&a.octets()),
        None => {}
    }
    add(&via.ifindex.to_be_bytes());
    add(&[u8::from(via.onlink)]);
    hash
}

/// The number that `rt_protos` has for a protocol.
pub fn protocol_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Connected | Protocol::Kernel => RTPROT_KERNEL,
        Protocol::Static => RTPROT_STATIC,
        Protocol::BgpExternal | Protocol::BgpInternal => RTPROT_BGP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn hop(gateway: &str, weight: u16) -> FibHop {
        FibHop { gateway: Some(gateway.parse().unwrap()), interface: 7, weight, onlink: false }
    }

    fn group(id: u32, content: FibGroup) -> GroupOp {
        GroupOp { id: GroupId(id), content, source: None }
    }

    /// Who hears it all, and knows objects by what they are.
    #[derive(Default)]
    struct Listener(BTreeMap<u32, String>);

    impl Listener {
        fn line(&mut self, content: &Content<'_>) -> String {
            let name = |id: u32| self.0.get(&id).cloned().unwrap_or(id.to_string());
            match content {
                Content::NewNextHop(NextHop { id, forward: Forward::Via(_, via), .. }) => {
                    let gateway = via.gateway.map_or("link".into(), |g| g.to_string());
                    let meant = self.0.entry(*id).or_insert(gateway.clone());
                    assert_eq!(*meant, gateway, "an id means something else");
                    format!("single {gateway} dev {}", via.ifindex)
                }
                Content::NewNextHop(NextHop { id, forward: Forward::Group(members), .. }) => {
                    let members: Vec<String> =
                        members.map(|m| format!("{}*{}", name(m.id), m.weight)).collect();
                    format!("group {id} {}", members.join(" "))
                }
                Content::DelNextHop(id) => format!("delete {}", name(*id)),
                Content::NewRoute(Route { prefix, next_hops: NextHops::Id(id), .. }) => {
                    format!("{prefix} by {}", name(*id))
                }
                Content::NewRoute(r) => format!("{} {:?} {:?}", r.prefix, r.kind, r.next_hops),
                Content::DelRoute(r) => format!("{} gone", r.prefix),
                other => panic!("{other:?}"),
            }
        }

        fn hear(&mut self, announcer: &mut Announcer, batch: &FibBatch) -> Vec<String> {
            let mut lines = Vec::new();
            let mut tell = |content: &Content<'_>| lines.push(self.line(content));
            announcer.groups(batch, &mut tell);
            for route in &batch.routes.v4 {
                tell(&announcer.route(0, route).unwrap());
            }
            announcer.delete_groups(batch, &mut tell);
            announcer.retire(&mut tell);
            lines
        }
    }

    #[test]
    fn what_is_named_exists_and_what_is_unused_goes() {
        let (mut announcer, mut listener) = (Announcer::new(Style::Objects), Listener::default());
        let route = |text: &str, group: Option<u32>| FibRoute {
            prefix: text.parse().unwrap(),
            group: group.map(GroupId),
            protocol: Protocol::BgpExternal,
        };
        let mut batch = FibBatch {
            groups: vec![
                group(1, FibGroup::Hops(vec![hop("10.0.0.1", 1), hop("10.0.0.2", 3)])),
                group(2, FibGroup::Blackhole),
            ],
            ..FibBatch::default()
        };
        batch.routes.v4 =
            vec![route("10.1.0.0/16", Some(1)), route("10.2.0.0/16", Some(2)), route("10.3.0.0/16", None)];
        assert_eq!(
            listener.hear(&mut announcer, &batch),
            [
                "single 10.0.0.1 dev 7",
                "single 10.0.0.2 dev 7",
                "group 1 10.0.0.1*1 10.0.0.2*3",
                "10.1.0.0/16 by 1",
                "10.2.0.0/16 Blackhole None",
                "10.3.0.0/16 gone",
            ]
        );
        // A member that goes and one that comes: the group in between, and no route.
        let batch = FibBatch {
            groups: vec![group(1, FibGroup::Hops(vec![hop("10.0.0.2", 1), hop("10.0.0.3", 1)]))],
            ..FibBatch::default()
        };
        assert_eq!(
            listener.hear(&mut announcer, &batch),
            ["single 10.0.0.3 dev 7", "group 1 10.0.0.2*1 10.0.0.3*1", "delete 10.0.0.1"]
        );
        let batch = FibBatch { after: vec![GroupId(1), GroupId(2)], ..FibBatch::default() };
        let mut lines = listener.hear(&mut announcer, &batch);
        lines[1..].sort();
        assert_eq!(lines, ["delete 1", "delete 10.0.0.2", "delete 10.0.0.3"]);
        assert!(announcer.singles.is_empty() && announcer.groups.is_empty());

        // A connected route names its interface's object, of which no group is made.
        let link = FibHop { gateway: None, ..hop("10.0.0.1", 1) };
        let mut batch =
            FibBatch { groups: vec![group(4, FibGroup::Hops(vec![link]))], ..FibBatch::default() };
        batch.routes.v4 = vec![route("10.0.0.0/24", Some(4))];
        assert_eq!(listener.hear(&mut announcer, &batch)[1], "10.0.0.0/24 by link");
        let batch = FibBatch { after: vec![GroupId(4)], ..FibBatch::default() };
        assert_eq!(listener.hear(&mut announcer, &batch), ["delete link"]);
        assert_eq!(
            announcer.route(0, &route("10.0.0.0/24", Some(4))),
            Err("its next-hop group was never announced")
        );
    }

    #[test]
    fn a_group_that_turns_keeps_its_object_until_its_routes_are_told_anew() {
        let (mut announcer, mut listener) = (Announcer::new(Style::Objects), Listener::default());
        let content = |content| FibBatch { groups: vec![group(3, content)], ..FibBatch::default() };
        let mut turns = |batch: &FibBatch| {
            let mut lines = Vec::new();
            let turned = announcer.groups(batch, &mut |content| lines.push(listener.line(content)));
            (turned.contains(&GroupId(3)), lines.len())
        };
        assert_eq!(turns(&content(FibGroup::Hops(vec![hop("10.0.0.1", 1)]))), (false, 2));
        assert_eq!(turns(&content(FibGroup::Hops(vec![hop("10.0.0.2", 1)]))), (false, 2));
        assert_eq!(turns(&content(FibGroup::Blackhole)), (true, 0));
        assert_eq!(turns(&content(FibGroup::Blackhole)), (false, 0));
        let batch = FibBatch { after: vec![GroupId(3)], ..FibBatch::default() };
        let mut lines = listener.hear(&mut announcer, &batch);
        assert_eq!(lines.remove(0), "delete 3");
        lines.sort();
        assert_eq!(lines, ["delete 10.0.0.1", "delete 10.0.0.2"]);
        assert!(announcer.singles.is_empty() && announcer.groups.is_empty());
    }

    #[test]
    fn unresolved_group_stays_as_it_was_sent() {
        for style in [Style::Inline, Style::Objects] {
            let (mut announcer, mut listener) = (Announcer::new(style), Listener::default());
            let route = |group: Option<u32>| FibRoute::<ribtide_prefix::V4> {
                prefix: "10.1.0.0/16".parse().unwrap(),
                group: group.map(GroupId),
                protocol: Protocol::BgpExternal,
            };
            let batch = |content: FibGroup, routes: &[Option<u32>]| {
                let mut batch = FibBatch { groups: vec![group(1, content)], ..FibBatch::default() };
                batch.routes.v4 = routes.iter().map(|id| route(*id)).collect();
                batch
            };
            let hops = || FibGroup::Hops(vec![hop("10.0.0.1", 1)]);
            // It goes before it was ever told.
            assert_eq!(listener.hear(&mut announcer, &batch(FibGroup::Unresolved, &[])), [""; 0]);
            assert!(announcer.route(0, &route(Some(1))).is_err());
            let turned = announcer.groups(&batch(hops(), &[]), &mut |_| {});
            assert!(turned.contains(&GroupId(1)), "its routes are to be sent again");
            // It goes later: nothing is said until its route goes.
            assert_eq!(listener.hear(&mut announcer, &batch(FibGroup::Unresolved, &[])), [""; 0]);
            let turned = announcer.groups(&batch(hops(), &[]), &mut |_| {});
            assert!(turned.is_empty(), "back as it was");
            let lines = listener.hear(&mut announcer, &batch(FibGroup::Unresolved, &[None]));
            assert_eq!(lines, ["10.1.0.0/16 gone"]);
        }
    }

    #[test]
    fn an_id_means_one_way_for_ever() {
        let at = |n: u32| Via { gateway: Some(IpAddr::V4(n.into())), ifindex: 7, onlink: false };
        let mut seen = Map::default();
        let addresses = (0u32..).map(|n| n.wrapping_mul(0x9e37_79b1));
        let (first, second) = addresses
            .take(1 << 20)
            .find_map(|n| Some((seen.insert(SINGLE | fingerprint(&at(n)), n)?, n)))
            .expect("among so many ways two have one fingerprint");
        let hops = |n: u32| FibGroup::Hops(vec![hop(&IpAddr::V4(n.into()).to_string(), 1)]);
        let (mut announcer, mut listener) = (Announcer::new(Style::Objects), Listener::default());
        // Two ways of one fingerprint come and go in every order; the listener sees to it.
        for n in [first, second, first, second, second, first] {
            let batch = FibBatch { groups: vec![group(1, hops(n))], ..FibBatch::default() };
            listener.hear(&mut announcer, &batch);
        }
        assert_eq!(listener.0.len(), 2);
    }
}
