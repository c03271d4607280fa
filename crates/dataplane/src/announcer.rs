//! FIB batches as typed FPM messages: next-hop objects and routes.
//!
//! The FPM client encodes them; the virtual ASIC passes them to fpmsyncd without encoding.
//!
//! There are two styles. Inline, each route carries its next hops, and a changed group means that
//! all of its routes are sent again. With objects, a group is an object over single objects, one
//! for each gateway and interface, and a changed group is one message.
//!
//! SONiC's server never removes or changes a single object, over all connections. So an id must
//! always have the same content, also after a restart of either side. It is a hash of the content,
//! and keeps its first content after a collision.
//!
//! The table of a route is the index of the device of its VRF, and 0 is the default VRF, because
//! SONiC takes the number for an interface index. A route carries the protocol number that zebra
//! sends, because `fpmsyncd` shows its name.

use ribtide_prefix::{Family, Map, Set};
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, IfIndex, Protocol};
use ribtide_wire::netlink::numbers::{RTPROT_BGP, RTPROT_KERNEL, RTPROT_STATIC};
use ribtide_wire::netlink::{
    Content, Forward, Hop, Hops, Member, Members, NextHop, NextHops, Route, RouteKind, Via, scale_weight,
};
use std::net::IpAddr;

/// Ids of single objects have this bit. Groups have the ids of the RIB manager, which count from 1.
const SINGLE: u32 = 1 << 31;

/// How routes refer to next hops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Inline next hops, the default of SONiC.
    Inline,
    /// The id of a next-hop object.
    Objects,
}

/// The announced groups and objects.
#[derive(Debug)]
pub struct Announcer {
    style: Style,
    groups: Map<GroupId, Announced>,
    /// Source addresses of groups, from a policy.
    sources: Map<GroupId, IpAddr>,
    /// The number of members with each content. The object exists while there is one.
    singles: Map<Via, Single>,
    /// The content of each id of a single object, ever: as many as there were neighbours.
    meanings: Map<u32, Via>,
    /// Objects announced before [`Announcer::begin_again`] and not since.
    stale: Set<u32>,
    /// Objects without a route after the routes of changed groups are sent again.
    retired: Set<u32>,
    // Kept for their allocation.
    hops: Vec<Hop>,
    members: Vec<Member>,
}

/// An announced group.
#[derive(Debug)]
struct Announced {
    content: FibGroup,
    /// [`Announcer::variant`].
    variant: u32,
}

#[derive(Debug)]
struct Single {
    id: u32,
    users: u32,
}

impl Announcer {
    /// An announcer that has sent nothing.
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

    /// Refers to next hops in another way from the next replay on.
    pub fn set_style(&mut self, style: Style) {
        if self.style != style {
            self.begin_again();
            self.style = style;
        }
    }

    /// Starts a replay. Earlier objects stay at the listener until [`Announcer::delete_stale`].
    pub fn begin_again(&mut self) {
        for (id, Announced { content, .. }) in self.groups.drain() {
            if self.style == Style::Objects && has_object(&content) {
                self.stale.insert(id.0);
            }
        }
        self.stale.extend(self.singles.drain().map(|(_, single)| single.id));
    }

    /// Announces the groups that `batch` creates or changes. Returns groups that routes referred to
    /// differently before: their routes must be sent again, and the former objects stay until
    /// [`Announcer::retire`].
    pub fn groups(&mut self, batch: &FibBatch, send: &mut dyn FnMut(&Content<'_>)) -> Set<GroupId> {
        let mut turned = Set::default();
        // FPM has no message for an unresolved group. The listener keeps its state until the routes
        // are withdrawn, one by one.
        let known = |op: &&GroupOp| op.content != FibGroup::Unresolved || !self.groups.contains_key(&op.id);
        let ops: Vec<&GroupOp> = batch.groups.iter().filter(known).collect();
        for op in ops {
            let by_group = |content| self.style == Style::Objects && has_object(content);
            let before = self.groups.get(&op.id).map(|group| &group.content);
            if before.is_some_and(|old| *old != op.content && !(by_group(old) && by_group(&op.content))) {
                turned.insert(op.id);
            }
            if self.style == Style::Objects {
                self.send_objects(op.id, &op.content, send);
            }
            match op.source {
                Some(source) => self.sources.insert(op.id, source),
                None => self.sources.remove(&op.id),
            };
            let group = Announced { content: op.content.clone(), variant: variant_of_group(&op.content) };
            if let Some(Announced { content: old, .. }) = self.groups.insert(op.id, group) {
                if has_object(&old) && !has_object(&op.content) {
                    self.retired.insert(op.id.0);
                }
                self.release(&old);
            }
        }
        turned
    }

    /// The message for a route of the VRF with this device, or an error as a sentence.
    pub fn route<F: Family>(
        &mut self,
        device: IfIndex,
        route: &FibRoute<F>,
    ) -> Result<Content<'_>, &'static str> {
        let number = protocol_number(route.protocol);
        let mut message = Route::new(route.prefix.any(), device, number, NextHops::None);
        let Some(id) = route.group else { return Ok(Content::DelRoute(message)) };
        let Announced { content, .. } =
            self.groups.get(&id).ok_or("its next-hop group was never announced")?;
        message.prefsrc = if self.sources.is_empty() { None } else { self.sources.get(&id).copied() };
        match content {
            // The group became unresolved before its first announcement. The route is retried like
            // a failed one.
            FibGroup::Unresolved => return Err("its next-hop group is unresolved at the moment"),
            FibGroup::Blackhole => message.kind = RouteKind::Blackhole,
            FibGroup::Hops(hops) if self.style == Style::Inline => {
                let largest = largest_weight(hops);
                let fit = |hop: &FibHop| Hop { via: via(hop), weight: scale_weight(hop.weight, largest) };
                self.hops.clear();
                self.hops.extend(hops.iter().map(fit));
                message.next_hops = NextHops::Inline(Hops::from(&self.hops[..]));
            }
            FibGroup::Hops(hops) => {
                let direct = hops.first().filter(|_| !has_object(content));
                let direct = direct.and_then(|hop| self.singles.get(&via(hop)));
                message.next_hops = NextHops::Id(direct.map_or(id.0, |single| single.id));
            }
        }
        Ok(Content::NewRoute(message))
    }

    /// A hash of what a group stands for now, equal for equal next hops in any order: a route that
    /// names it by id has the same message when the group changes. 0 for an unknown group.
    pub fn variant(&self, group: GroupId) -> u32 {
        self.groups.get(&group).map_or(0, |group| group.variant)
    }

    /// The ids of the objects that the listener has.
    pub fn objects(&self) -> impl Iterator<Item = u32> {
        let is_object = |group: &Announced| self.style == Style::Objects && has_object(&group.content);
        let groups = self.groups.iter().filter(move |(_, group)| is_object(group)).map(|(id, _)| id.0);
        groups.chain(self.singles.values().map(|single| single.id))
    }

    /// Passes the message for an object to `send`, if the listener has it.
    pub fn object(&self, id: u32, send: &mut dyn FnMut(&NextHop<'_>)) {
        if let Some(via) = self.meanings.get(&id)
            && self.singles.get(via).is_some_and(|single| single.id == id)
        {
            return send(&NextHop { id, protocol: RTPROT_BGP, forward: Forward::via(*via) });
        }
        let Some(Announced { content: content @ FibGroup::Hops(hops), .. }) = self.groups.get(&GroupId(id))
        else {
            return;
        };
        if self.style == Style::Inline || !has_object(content) {
            return;
        }
        let largest = largest_weight(hops);
        let member = |hop: &FibHop| {
            let single = self.singles.get(&via(hop))?;
            Some(Member { id: single.id, weight: scale_weight(hop.weight, largest) })
        };
        let members: Vec<Member> = hops.iter().filter_map(member).collect();
        let forward = Forward::Group(Members::from(&members[..]));
        send(&NextHop { id, protocol: RTPROT_BGP, forward });
    }

    /// Announces the groups that `batch` deletes.
    pub fn delete_groups(&mut self, batch: &FibBatch, send: &mut dyn FnMut(&Content<'_>)) {
        for id in &batch.after {
            let Some(Announced { content, .. }) = self.groups.remove(id) else { continue };
            self.sources.remove(id);
            if self.style == Style::Objects && has_object(&content) {
                // The group goes before its members, which are retired.
                send(&Content::DelNextHop(id.0));
            }
            self.release(&content);
        }
    }

    /// Announces the deletion of retired objects: every route of a changed group was sent again.
    pub fn retire(&mut self, send: &mut dyn FnMut(&Content<'_>)) {
        delete(&mut self.retired, send);
    }

    /// Announces the deletion of objects that the replay did not announce.
    pub fn delete_stale(&mut self, send: &mut dyn FnMut(&Content<'_>)) {
        delete(&mut self.stale, send);
    }

    /// Announces the object of a group, if it has one, after its new single objects.
    fn send_objects(&mut self, group: GroupId, content: &FibGroup, send: &mut dyn FnMut(&Content<'_>)) {
        let FibGroup::Hops(hops) = content else { return };
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        let largest = largest_weight(hops);
        for hop in hops {
            let id = self.use_single(via(hop), send);
            members.push(Member { id, weight: scale_weight(hop.weight, largest) });
        }
        if has_object(content) {
            self.stale.remove(&group.0);
            self.retired.remove(&group.0);
            let forward = Forward::Group(Members::from(&members[..]));
            send(&Content::NewNextHop(NextHop { id: group.0, protocol: RTPROT_BGP, forward }));
        }
        self.members = members;
    }

    /// The id of the single object with this content; announces it if it is new.
    fn use_single(&mut self, via: Via, send: &mut dyn FnMut(&Content<'_>)) -> u32 {
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
        send(&Content::NewNextHop(NextHop { id, protocol: RTPROT_BGP, forward: Forward::via(via) }));
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

/// Announces deletions: groups, which have lower ids, before their members.
fn delete(objects: &mut Set<u32>, send: &mut dyn FnMut(&Content<'_>)) {
    let mut ids: Vec<u32> = objects.drain().collect();
    ids.sort_unstable();
    ids.into_iter().for_each(|id| send(&Content::DelNextHop(id)));
}

fn via(hop: &FibHop) -> Via {
    Via { gateway: hop.gateway, ifindex: hop.interface, onlink: hop.onlink }
}

fn largest_weight(hops: &[FibHop]) -> u16 {
    hops.iter().map(|hop| hop.weight).max().unwrap_or(1)
}

/// Whether a group is an object of its own. A blackhole is part of its routes, and an interface
/// without gateway is a single object: SONiC makes no group of it.
fn has_object(content: &FibGroup) -> bool {
    match content {
        FibGroup::Blackhole | FibGroup::Unresolved => false,
        FibGroup::Hops(hops) => !matches!(&hops[..], [FibHop { gateway: None, .. }]),
    }
}

/// A hash of the next hops of a route, equal for equal ones in any order; 0 stands for none.
pub fn destination(next_hops: &NextHops<'_>) -> u32 {
    match next_hops {
        NextHops::None => 0,
        NextHops::Id(id) => *id,
        NextHops::Inline(hops) => {
            let sum = hops.fold(0_u32, |sum, hop| {
                // Replies may leave out the onlink flag and weights.
                sum.wrapping_add(fingerprint(&Via { onlink: false, ..hop.via }))
            });
            sum.max(1)
        }
    }
}

/// A hash of [`destination`], weights, and other properties of the next hops. Equal for equal ones.
pub fn variant(route: &Route<'_>) -> u32 {
    let weights = match &route.next_hops {
        NextHops::Inline(hops) => variant_of_hops(hops.map(|hop| (hop.via, u32::from(hop.weight)))),
        NextHops::None | NextHops::Id(_) => 0,
    };
    let source = Via { gateway: route.prefsrc, ifindex: 0, onlink: false };
    destination(&route.next_hops).wrapping_add(weights).wrapping_add(fingerprint(&source).rotate_left(7))
}

fn variant_of_group(content: &FibGroup) -> u32 {
    match content {
        FibGroup::Unresolved | FibGroup::Blackhole => 0,
        FibGroup::Hops(hops) => variant_of_hops(hops.iter().map(|hop| (via(hop), u32::from(hop.weight)))),
    }
}

/// A hash of next hops with their weights, equal for equal ones in any order.
fn variant_of_hops(hops: impl Iterator<Item = (Via, u32)>) -> u32 {
    hops.fold(0_u32, |sum, (via, weight)| sum.wrapping_add(fingerprint(&via).wrapping_mul(2 * weight + 1)))
}

/// A hash of the content, equal in every run (FNV-1a).
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

/// The protocol number of `rt_protos`.
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

    /// A listener that receives everything, and identifies objects by content.
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
            let mut send = |content: &Content<'_>| lines.push(self.line(content));
            announcer.groups(batch, &mut send);
            for route in &batch.routes.v4 {
                send(&announcer.route(0, route).unwrap());
            }
            announcer.delete_groups(batch, &mut send);
            announcer.retire(&mut send);
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
    fn announcer_changed_group_keeps_its_object_until_its_routes_are_sent_again() {
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
    fn object_that_one_group_releases_and_another_uses_in_the_same_batch_stays() {
        let (mut announcer, mut listener) = (Announcer::new(Style::Objects), Listener::default());
        let of = |id, hops: [&str; 2]| group(id, FibGroup::Hops(hops.map(|gateway| hop(gateway, 1)).into()));
        let batch = |groups| FibBatch { groups, ..FibBatch::default() };
        listener.hear(&mut announcer, &batch(vec![of(1, ["10.0.0.1", "10.0.0.2"])]));
        let both = vec![of(1, ["10.0.0.2", "10.0.0.3"]), of(2, ["10.0.0.1", "10.0.0.3"])];
        let lines = listener.hear(&mut announcer, &batch(both));
        assert!(!lines.iter().any(|line| line.starts_with("delete")), "{lines:?}");
        let after = FibBatch { after: vec![GroupId(2)], ..FibBatch::default() };
        assert_eq!(listener.hear(&mut announcer, &after), ["delete 2", "delete 10.0.0.1"]);
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
