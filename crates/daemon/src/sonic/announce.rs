//! The RIB manager's batches as next-hop objects and routes: what zebra would say over FPM.
//!
//! A next-hop group becomes a group object over single objects, one for each gateway and interface in use, so that
//! a group that changes is one message whatever the number of its routes.

use ribtide_prefix::{Families, Family, Map, for_each_family};
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoutes, GroupId, IfIndex, Protocol};
use ribtide_wire::netlink::numbers::{RTPROT_BGP, RTPROT_KERNEL, RTPROT_STATIC};
use ribtide_wire::netlink::{Content, Forward, Member, NextHop, NextHops, Route, RouteKind, Via};
use std::net::IpAddr;

/// Ids of single objects begin here; those of groups are the RIB manager's own, which count from 1.
const FIRST_SINGLE: u32 = 1 << 31;

/// A way out, without its share.
type Single = (Option<IpAddr>, IfIndex, bool);

/// What was announced.
#[derive(Debug)]
pub(crate) struct Announcer {
    groups: Map<GroupId, Announced>,
    /// Id and number of groups that use it.
    singles: Map<Single, (u32, u32)>,
    free: Vec<u32>,
    next: u32,
}

impl Default for Announcer {
    fn default() -> Self {
        Announcer { groups: Map::default(), singles: Map::default(), free: Vec::new(), next: FIRST_SINGLE }
    }
}

#[derive(Default, Debug)]
struct Announced {
    form: Form,
    /// The members of the group object, if there is one.
    members: Option<Vec<Single>>,
    /// The single object that routes name directly, if they do.
    direct: Option<Single>,
}

/// How routes say where they lead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Form {
    /// They drop. No object can say that for them, so each says it itself.
    #[default]
    Drop,
    /// By a single object: an interface without a gateway, of which no group is made.
    Direct(u32),
    /// By the group object, which has the group's number.
    Group,
}

impl Announcer {
    /// Tells everything that `batch` changes, in an order in which whatever is named exists.
    ///
    /// True when a group that routes use is to be named in another form (it began or ceased to drop, say): these routes
    /// must be announced anew, and only the RIB manager knows them.
    pub(crate) fn announce(&mut self, batch: &FibBatch, tell: &mut dyn FnMut(&Content<'_>)) -> bool {
        let mut again = false;
        for group in &batch.groups {
            again |= self.group(group.id, &group.content, tell);
        }
        for_each_family!(F => self.routes::<F>(&batch.routes, tell));
        for id in &batch.after {
            let Some(group) = self.groups.remove(id) else { continue };
            if let Some(members) = group.members {
                tell(&Content::DelNextHop(id.0));
                self.release(&members, tell);
            }
            self.release(group.direct.as_slice(), tell);
        }
        again
    }

    /// Tells a group's content; true when it was known in another form. What its routes named before stays until
    /// the group goes, or has that form again.
    fn group(&mut self, id: GroupId, content: &FibGroup, tell: &mut dyn FnMut(&Content<'_>)) -> bool {
        let known = self.groups.remove(&id);
        let before = known.as_ref().map(|group| group.form);
        let mut group = known.unwrap_or_default();
        group.form = match content {
            FibGroup::Blackhole => Form::Drop,
            FibGroup::Hops(hops) => match hops.as_slice() {
                [hop] if hop.gateway.is_none() => {
                    let object = self.member(hop, tell).id;
                    if let Some(old) = group.direct.replace(single(hop)) {
                        self.release(&[old], tell);
                    }
                    Form::Direct(object)
                }
                hops => {
                    let members: Vec<Member> = hops.iter().map(|hop| self.member(hop, tell)).collect();
                    let forward = Forward::Group(members.as_slice().into());
                    tell(&Content::NewNextHop(NextHop { id: id.0, protocol: RTPROT_BGP, forward }));
                    if let Some(old) = group.members.replace(hops.iter().map(single).collect()) {
                        self.release(&old, tell);
                    }
                    Form::Group
                }
            },
        };
        let turned = before.is_some_and(|before| before != group.form);
        self.groups.insert(id, group);
        turned
    }

    /// The member for `hop`, whose single object is announced when it is new.
    fn member(&mut self, hop: &FibHop, tell: &mut dyn FnMut(&Content<'_>)) -> Member {
        let (id, users) = self.singles.entry(single(hop)).or_insert_with(|| {
            let id = self.free.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            let via = Via { gateway: hop.gateway, ifindex: hop.interface, onlink: hop.onlink };
            tell(&Content::NewNextHop(NextHop { id, protocol: RTPROT_BGP, forward: Forward::via(via) }));
            (id, 0)
        });
        *users += 1;
        Member { id: *id, weight: hop.weight }
    }

    fn release(&mut self, hops: &[Single], tell: &mut dyn FnMut(&Content<'_>)) {
        for hop in hops {
            let Some((id, users)) = self.singles.get_mut(hop) else { continue };
            *users -= 1;
            if *users == 0 {
                tell(&Content::DelNextHop(*id));
                self.free.push(*id);
                self.singles.remove(hop);
            }
        }
    }

    fn routes<F: Family>(&self, routes: &Families<FibRoutes>, tell: &mut dyn FnMut(&Content<'_>)) {
        for route in routes.get::<F>() {
            let (prefix, protocol) = (route.prefix.any(), protocol_number(route.protocol));
            let new = |next_hops| Route::new(prefix, 0, protocol, next_hops);
            let form = |id| self.groups.get(&id).map_or(Form::Group, |group| group.form);
            match route.group.map(|id| (id, form(id))) {
                None => tell(&Content::DelRoute(new(NextHops::None))),
                Some((_, Form::Drop)) => {
                    tell(&Content::NewRoute(Route { kind: RouteKind::Blackhole, ..new(NextHops::None) }));
                }
                Some((_, Form::Direct(object))) => tell(&Content::NewRoute(new(NextHops::Id(object)))),
                Some((id, Form::Group)) => tell(&Content::NewRoute(new(NextHops::Id(id.0)))),
            }
        }
    }
}

fn single(hop: &FibHop) -> Single {
    (hop.gateway, hop.interface, hop.onlink)
}

/// The number that `rt_protos` has for a protocol.
pub(crate) fn protocol_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Connected | Protocol::Kernel => RTPROT_KERNEL,
        Protocol::Static => RTPROT_STATIC,
        Protocol::BgpExternal | Protocol::BgpInternal => RTPROT_BGP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_rib::{FibRoute, GroupOp};

    fn hop(gateway: &str, weight: u16) -> FibHop {
        FibHop { gateway: Some(gateway.parse().unwrap()), interface: 7, weight, onlink: false }
    }

    fn told(announcer: &mut Announcer, batch: &FibBatch) -> Vec<String> {
        let mut lines = Vec::new();
        announcer.announce(batch, &mut |content| {
            lines.push(match content {
                Content::NewNextHop(NextHop { id, forward: Forward::Via(_, via), .. }) => {
                    let gateway = via.gateway.map_or("nothing".into(), |g| g.to_string());
                    format!("single {id:x} via {gateway} dev {}", via.ifindex)
                }
                Content::NewNextHop(NextHop { id, forward: Forward::Group(members), .. }) => {
                    let members: Vec<String> = members.map(|m| format!("{:x}*{}", m.id, m.weight)).collect();
                    format!("group {id} {}", members.join(" "))
                }
                Content::DelNextHop(id) => format!("delete {id:x}"),
                Content::NewRoute(r) => format!("{} {:?} {:?}", r.prefix, r.kind, r.next_hops),
                Content::DelRoute(r) => format!("{} gone", r.prefix),
                other => panic!("{other:?}"),
            });
        });
        lines
    }

    #[test]
    fn what_is_named_exists_and_what_is_unused_goes() {
        let mut announcer = Announcer::default();
        let group = |id, content| GroupOp { id: GroupId(id), content };
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
            told(&mut announcer, &batch),
            [
                "single 80000000 via 10.0.0.1 dev 7",
                "single 80000001 via 10.0.0.2 dev 7",
                "group 1 80000000*1 80000001*3",
                "10.1.0.0/16 Unicast Id(1)",
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
            told(&mut announcer, &batch),
            ["single 80000002 via 10.0.0.3 dev 7", "group 1 80000001*1 80000002*1", "delete 80000000"]
        );
        let batch = FibBatch { after: vec![GroupId(1), GroupId(2)], ..FibBatch::default() };
        assert_eq!(told(&mut announcer, &batch), ["delete 1", "delete 80000001", "delete 80000002"]);
        assert!(announcer.singles.is_empty() && announcer.groups.is_empty());

        // A connected route names its interface's object, of which no group is made.
        let link = FibHop { gateway: None, ..hop("10.0.0.1", 1) };
        let mut batch =
            FibBatch { groups: vec![group(4, FibGroup::Hops(vec![link]))], ..FibBatch::default() };
        batch.routes.v4 = vec![route("10.0.0.0/24", Some(4))];
        assert_eq!(told(&mut announcer, &batch)[1], "10.0.0.0/24 Unicast Id(2147483650)");
        let batch = FibBatch { after: vec![GroupId(4)], ..FibBatch::default() };
        assert_eq!(told(&mut announcer, &batch), ["delete 80000002"]);

        // A group that begins to drop: its routes must be told anew, and the object stays until the group goes.
        let content = |content| FibBatch { groups: vec![group(3, content)], ..FibBatch::default() };
        assert!(!announcer.announce(&content(FibGroup::Hops(vec![hop("10.0.0.1", 1)])), &mut |_| {}));
        assert!(announcer.announce(&content(FibGroup::Blackhole), &mut |_| {}));
        let batch = FibBatch { after: vec![GroupId(3)], ..FibBatch::default() };
        assert_eq!(told(&mut announcer, &batch)[0], "delete 3");
        assert!(announcer.singles.is_empty() && announcer.groups.is_empty());
    }
}
