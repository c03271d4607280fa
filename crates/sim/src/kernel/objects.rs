//! Next-hop objects (`net/ipv4/nexthop.c`).

use super::routes::RouteForward;
use super::{OTHERS, State, encode, links};
use ribtide_prefix::Afi;
use ribtide_wire::netlink::numbers::{
    NLM_F_CREATE, NLM_F_REPLACE, RTM_DELNEXTHOP, RTM_NEWNEXTHOP, RTNLGRP_NEXTHOP,
};
use ribtide_wire::netlink::{Forward, Member, NextHop, Via};

/// A next-hop object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Who made it.
    pub protocol: u8,
    /// What it does.
    pub content: ObjectContent,
}

/// What a next-hop object does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectContent {
    /// Drops packets.
    Blackhole(Afi),
    /// Sends them to a next hop.
    Via(Afi, Via),
    /// Shares them among others.
    Group(Vec<Member>),
}

impl ObjectContent {
    fn of(forward: &Forward<'_>) -> Option<ObjectContent> {
        Some(match forward {
            Forward::Blackhole(afi) => ObjectContent::Blackhole(*afi),
            Forward::Via(afi, via) => ObjectContent::Via(*afi, *via),
            Forward::Group(members) => ObjectContent::Group(members.collect()),
            Forward::Other => return None,
        })
    }
}

impl State {
    /// `RTM_NEWNEXTHOP`.
    pub(super) fn new_object(&mut self, object: &NextHop<'_>, flags: u16, port: u32) -> Result<(), i32> {
        let content = ObjectContent::of(&object.forward).ok_or(libc::EINVAL)?;
        self.check_content(&content)?;
        let (replace, create) = (flags & NLM_F_REPLACE != 0, flags & NLM_F_CREATE != 0);
        match self.objects.get(&object.id) {
            Some(_) if !replace => return Err(libc::EEXIST),
            Some(before) => self.check_replacement(object.id, before, &content)?,
            None if replace && !create => return Err(libc::ENOENT),
            None => {}
        }
        // A group that is replaced stays that of the program that made it.
        let former = self.objects.get(&object.id).filter(|_| matches!(content, ObjectContent::Group(_)));
        let protocol = former.map_or(object.protocol, |former| former.protocol);
        self.objects.insert(object.id, Object { protocol, content });
        self.notify_object(object.id, if replace { NLM_F_REPLACE } else { 0 }, port);
        Ok(())
    }

    /// Whether the kernel would make an object of this next hop now.
    pub fn accepts(&self, via: &Via) -> bool {
        let afi = if via.gateway.is_some_and(|gateway| gateway.is_ipv4()) { Afi::Ipv4 } else { Afi::Ipv6 };
        self.check_content(&ObjectContent::Via(afi, *via)).is_ok()
    }

    fn check_content(&self, content: &ObjectContent) -> Result<(), i32> {
        match content {
            ObjectContent::Blackhole(_) => Ok(()),
            ObjectContent::Via(_, via) if via.ifindex == 0 => Err(libc::EINVAL),
            ObjectContent::Via(afi, via) => links::check_via(self, via, *afi, true),
            ObjectContent::Group(members) => {
                let twice = |(n, member): (usize, &Member)| members[..n].iter().any(|m| m.id == member.id);
                if members.is_empty() || members.iter().enumerate().any(twice) {
                    return Err(libc::EINVAL);
                }
                for member in members {
                    match self.objects.get(&member.id).map(|object| &object.content) {
                        Some(ObjectContent::Via(..)) => {}
                        Some(ObjectContent::Blackhole(_)) if members.len() == 1 => {}
                        _ => return Err(libc::EINVAL),
                    }
                }
                Ok(())
            }
        }
    }

    fn check_replacement(&self, id: u32, before: &Object, content: &ObjectContent) -> Result<(), i32> {
        let is_group = |content: &ObjectContent| matches!(content, ObjectContent::Group(_));
        if is_group(&before.content) != is_group(content) {
            return Err(libc::EINVAL);
        }
        let has_ipv4 = self.has_ipv4(content);
        if has_ipv4 && self.has_ipv6_routes(id) {
            return Err(libc::EINVAL);
        }
        for group in self.groups_of(id) {
            let ObjectContent::Group(members) = &self.objects[&group].content else { continue };
            let blackhole = matches!(content, ObjectContent::Blackhole(_));
            if (blackhole && members.len() > 1) || (has_ipv4 && self.has_ipv6_routes(group)) {
                return Err(libc::EINVAL);
            }
        }
        Ok(())
    }

    /// Whether IPv6 routes cannot use it.
    pub(super) fn has_ipv4(&self, content: &ObjectContent) -> bool {
        match content {
            ObjectContent::Blackhole(afi) | ObjectContent::Via(afi, _) => *afi == Afi::Ipv4,
            ObjectContent::Group(members) => {
                members.iter().any(|m| self.objects.get(&m.id).is_some_and(|o| self.has_ipv4(&o.content)))
            }
        }
    }

    /// Whether the routes of an object drop packets.
    pub fn drops(&self, id: u32) -> bool {
        match self.objects.get(&id).map(|object| &object.content) {
            Some(ObjectContent::Blackhole(_)) => true,
            Some(ObjectContent::Group(members)) => match &members[..] {
                [only] => self.drops(only.id),
                _ => false,
            },
            _ => false,
        }
    }

    fn has_ipv6_routes(&self, id: u32) -> bool {
        let uses = |entry: &super::RouteEntry| entry.forward == RouteForward::Object(id);
        let tables = self.tables.iter().filter(|((afi, _), _)| *afi == Afi::Ipv6);
        tables.flat_map(|(_, routes)| routes.iter()).any(|(_, entry)| uses(entry))
    }

    /// The groups that have this member.
    fn groups_of(&self, id: u32) -> Vec<u32> {
        let has = |object: &Object| matches!(&object.content, ObjectContent::Group(members) if members.iter().any(|m| m.id == id));
        self.objects.iter().filter(|(_, object)| has(object)).map(|(group, _)| *group).collect()
    }

    /// `RTM_DELNEXTHOP`.
    pub(super) fn delete_object(&mut self, id: u32, port: u32) -> Result<(), i32> {
        if !self.objects.contains_key(&id) {
            return Err(libc::ENOENT);
        }
        if port != OTHERS && self.objects[&id].protocol != self.own_protocol {
            self.foreign_changes.push(format!("next-hop object {id} {:?} is deleted", self.objects[&id]));
        }
        self.remove_object(id, Some(port));
        Ok(())
    }

    /// Removes an object from its groups and with its routes. `port`: of the request, which has
    /// notifications.
    fn remove_object(&mut self, id: u32, port: Option<u32>) {
        if let Some(port) = port {
            let bytes = encode::object(id, &self.objects[&id], RTM_DELNEXTHOP, 0, 0, port);
            self.notify(RTNLGRP_NEXTHOP, port, &bytes);
        }
        self.flush_routes_by(id, port);
        for group in self.groups_of(id) {
            let Some(Object { content: ObjectContent::Group(members), .. }) = self.objects.get_mut(&group)
            else {
                continue;
            };
            if members.len() == 1 {
                self.remove_object(group, port);
                continue;
            }
            members.retain(|member| member.id != id);
            if let Some(port) = port {
                self.notify_object(group, 0, port);
            }
        }
        self.objects.remove(&id);
        self.objects_version += 1;
    }

    /// The link carries no packets: its objects go without a notification.
    pub(super) fn flush_objects_of(&mut self, ifindex: u32) {
        let on =
            |object: &Object| matches!(&object.content, ObjectContent::Via(_, via) if via.ifindex == ifindex);
        let lost: Vec<u32> =
            self.objects.iter().filter(|(_, object)| on(object)).map(|(id, _)| *id).collect();
        for id in lost {
            self.remove_object(id, None);
        }
    }

    fn notify_object(&mut self, id: u32, flags: u16, port: u32) {
        self.objects_version += 1;
        let bytes = encode::object(id, &self.objects[&id], RTM_NEWNEXTHOP, flags, 0, port);
        self.notify(RTNLGRP_NEXTHOP, port, &bytes);
    }
}
