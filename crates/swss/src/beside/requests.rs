//! Requests of ribtide's orchagent: those about stand-ins end here, the others go to syncd with the
//! object ids of the view.

use super::own::{Entry, GroupMember, LabelledNextHop, Own, StandsFor};
use super::{Beside, BesideOut, Sent};
use crate::orch::items_of;
use crate::sai::text::{self, Message};
use crate::sai::{
    Attr, Attrs, Item, NextHopType, ObjectId, ObjectType, Oid, SaiCall, SaiReply, SaiRequest, Status, Verb,
};

/// A request at syncd: how its reply is read.
#[derive(Debug)]
pub(super) struct SentOwn {
    request: SaiRequest,
    /// Of a bulk: the status of each object that was not passed on; none when all were.
    here: Vec<Option<Status>>,
}

/// What becomes of one object of a request.
enum Decision {
    /// It ends here, with this status.
    Here(Status),
    /// It goes to syncd like this.
    Pass(Item),
}

/// The status of an object that needs another which is not there now: ribtide's orchagent tries
/// again.
const NOT_THERE: Status = Status::Failure;

impl Beside {
    /// Handles a request of ribtide's orchagent.
    pub(super) fn own_request(&mut self, request: SaiRequest, out: &mut BesideOut) {
        let highest = super::created_ids(&request).map(Oid::index).max().unwrap_or(0);
        self.highest_id = self.highest_id.max(highest);
        let SaiRequest { id, call } = request;
        let (verb, object, items, mode) = match call {
            // The view is the client's.
            SaiCall::View(view) => {
                self.started |= view == crate::sai::View::Apply;
                return out.replies.push(SaiReply::one(id, Status::Success));
            }
            SaiCall::Get { object: ObjectType::Switch, .. } | SaiCall::Available { .. } => {
                return self.send_own(
                    SentOwn { request: SaiRequest { id, call }, here: Vec::new() },
                    None,
                    out,
                );
            }
            SaiCall::BulkGet { object, items } => return self.read_own(id, object, items, out),
            // orchagent makes no other.
            SaiCall::Get { .. } | SaiCall::Entries { .. } | SaiCall::GetEntry { .. } | SaiCall::Query(_) => {
                return out.replies.push(SaiReply::one(id, Status::NotSupported));
            }
            SaiCall::One { verb, object, item } => (verb, object, vec![item], None),
            SaiCall::Bulk { verb, object, items, mode } => (verb, object, items, Some(mode)),
        };
        let mut here = Vec::new();
        let mut pass = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            match self.decide(verb, object, item, out) {
                Decision::Pass(item) => {
                    pass.push(item);
                    if !here.is_empty() {
                        here.push(None);
                    }
                }
                Decision::Here(status) => {
                    here.resize(n, None);
                    here.push(Some(status));
                }
            }
        }
        if pass.is_empty() {
            let statuses: Vec<Status> = here.into_iter().map(|status| status.unwrap_or(NOT_THERE)).collect();
            return out.replies.push(match mode {
                Some(_) => SaiReply::bulk(id, statuses),
                None => SaiReply::one(id, statuses.first().copied().unwrap_or(NOT_THERE)),
            });
        }
        let passed = match (mode, pass.pop()) {
            (None, Some(item)) => SaiCall::One { verb, object, item },
            (Some(mode), last) => {
                pass.extend(last);
                SaiCall::Bulk { verb, object, items: pass, mode }
            }
            (None, None) => return,
        };
        let message = text::write_request(&SaiRequest { id, call: passed });
        let call = match mode {
            None => match items.into_iter().next() {
                Some(item) => SaiCall::One { verb, object, item },
                None => return,
            },
            Some(mode) => SaiCall::Bulk { verb, object, items, mode },
        };
        self.send_own(SentOwn { request: SaiRequest { id, call }, here }, Some(message), out);
    }

    /// Reads what syncd has of objects of ribtide, by the ids of the view. The placeholders are what
    /// orchagent requested. Other objects are the client's, and as requested.
    fn read_own(
        &mut self,
        id: u64,
        object: ObjectType,
        items: Vec<(ObjectId, Vec<Attr>)>,
        out: &mut BesideOut,
    ) {
        let (mut passed, mut here) = (Vec::new(), Vec::with_capacity(items.len()));
        for (of, attrs) in &items {
            let read = self.is_at_syncd(*of).then(|| self.translated(&Item::new(*of, attrs.iter().cloned())));
            match read {
                Some(Decision::Pass(item)) => {
                    passed.push((item.id, item.attrs.to_vec()));
                    here.push(None);
                }
                _ => here.push(Some(Status::Success)),
            }
        }
        let message =
            text::write_request(&SaiRequest { id, call: SaiCall::BulkGet { object, items: passed } });
        let sent = SentOwn { request: SaiRequest { id, call: SaiCall::BulkGet { object, items } }, here };
        if sent.here.iter().all(Option::is_some) {
            let nothing = SaiReply::one(id, Status::Success);
            return self.own_read(sent, &nothing, out);
        }
        self.send_own(sent, Some(message), out);
    }

    /// Whether syncd should have an object of ribtide.
    fn is_at_syncd(&self, id: ObjectId) -> bool {
        let own = &self.own;
        match id {
            ObjectId::Route(key) => own.routes.get(&key).is_some_and(|entry| !entry.suspended),
            ObjectId::Inseg(key) => own.labels.get(&key.label).is_some_and(|entry| !entry.suspended),
            ObjectId::Oid(oid) if own.is_absent(oid) => false,
            ObjectId::Oid(oid) => {
                own.groups.contains_key(&oid)
                    || own.labelled.contains_key(&oid)
                    || own.members.get(&oid).is_some_and(|member| !member.dead)
            }
            ObjectId::Neighbor(_) => false,
        }
    }

    /// Takes in the reply to [`Beside::read_own`]: what is as in the view is as orchagent requested.
    fn own_read(&mut self, sent: SentOwn, reply: &SaiReply, out: &mut BesideOut) {
        let SentOwn { request: SaiRequest { id, call }, here } = sent;
        let SaiCall::BulkGet { items, .. } = call else { return };
        let mut theirs = items_of(reply);
        let mut values = Vec::with_capacity(items.len());
        for ((of, wanted), here) in items.into_iter().zip(here) {
            let (status, found) = match here {
                Some(status) => (status, None),
                None => theirs.next().map_or((NOT_THERE, None), |(status, found)| (status, Some(found))),
            };
            let attrs: Vec<Attr> = match (found, self.translated(&Item::new(of, wanted.iter().cloned()))) {
                (Some(found), Decision::Pass(item)) => {
                    let pairs = wanted.into_iter().zip(item.attrs);
                    let is = |(_, at_syncd): &(Attr, Attr)| found.contains(at_syncd);
                    pairs.filter(is).map(|(wanted, _)| wanted).collect()
                }
                // The view changed meanwhile.
                _ => wanted,
            };
            let attrs = if status.is_success() { text::join(&attrs) } else { String::new() };
            values.push(Attr::raw(&status.name(), &attrs));
        }
        out.replies.push(SaiReply { values, ..SaiReply::one(id, Status::Success) });
    }

    fn send_own(&mut self, sent: SentOwn, message: Option<Message>, out: &mut BesideOut) {
        out.requests.push(message.unwrap_or_else(|| text::write_request(&sent.request)));
        self.sent.push_back(Sent::Own(sent));
    }

    fn decide(&mut self, verb: Verb, object: ObjectType, item: &Item, out: &mut BesideOut) -> Decision {
        let oid = item.id.oid().unwrap_or_default();
        match object {
            ObjectType::Switch | ObjectType::NeighborEntry => Decision::Here(Status::Success),
            // Only its description changes.
            ObjectType::NextHop | ObjectType::NextHopGroup | ObjectType::NextHopGroupMember
                if verb != Verb::Create && self.own.is_absent(oid) =>
            {
                self.note(verb, object, item, Status::Success);
                Decision::Here(Status::Success)
            }
            ObjectType::Port | ObjectType::VirtualRouter | ObjectType::RouterInterface => {
                self.stand_in_request(verb, object, oid, &item.attrs, out)
            }
            ObjectType::NextHop => match verb {
                Verb::Remove if self.own.stand_in(oid).is_some() => {
                    self.release(oid);
                    Decision::Here(Status::Success)
                }
                Verb::Create if !item.attrs.contains(&Attr::NextHopKind(NextHopType::Mpls)) => {
                    self.next_hop_request(oid, &item.attrs)
                }
                _ => self.translated(item),
            },
            ObjectType::NextHopGroup | ObjectType::NextHopGroupMember => self.translated(item),
            ObjectType::RouteEntry => self.route_request(verb, item, out),
            ObjectType::InsegEntry => self.label_request(verb, item, out),
            // Its orchagent requests no others here.
            _ => Decision::Here(Status::NotSupported),
        }
    }

    /// A port, virtual router or router interface: the client has it.
    fn stand_in_request(
        &mut self,
        verb: Verb,
        object: ObjectType,
        oid: Oid,
        attrs: &Attrs,
        out: &mut BesideOut,
    ) -> Decision {
        let done = Decision::Here(Status::Success);
        match verb {
            Verb::Set => return done,
            Verb::Remove => {
                self.release(oid);
                return done;
            }
            Verb::Create => {}
        }
        let what = match object {
            ObjectType::Port => attrs.iter().find_map(|attr| match attr {
                Attr::PortLanes(lanes) => {
                    lanes.first().and_then(|lane| self.announced.interface_of_lane(*lane))
                }
                _ => None,
            }),
            ObjectType::VirtualRouter => {
                let name = self.announced.next_vrf.take();
                self.announce_next_vrf(out);
                let Some(name) = name else { return Decision::Here(NOT_THERE) };
                let real = self.learned.router(&Some(name.clone()));
                self.own.add(oid, StandsFor::Router(name), real);
                return done;
            }
            _ => {
                let port = attrs.iter().find_map(|attr| match attr {
                    Attr::RifPort(port) => Some(*port),
                    _ => None,
                });
                let lower = port.and_then(|port| self.own.stand_in(port)).map(|port| port.what.clone());
                let Some(StandsFor::Lower(name)) = lower else { return Decision::Here(NOT_THERE) };
                let Some(real) = self.learned.interface(&name) else { return Decision::Here(NOT_THERE) };
                self.own.add(oid, StandsFor::Interface(name), Some(real));
                return done;
            }
        };
        match what {
            Some(name) => {
                self.own.add(oid, StandsFor::Lower(name), None);
                done
            }
            None => Decision::Here(NOT_THERE),
        }
    }

    fn next_hop_request(&mut self, oid: Oid, attrs: &Attrs) -> Decision {
        let (mut interface, mut ip) = (None, None);
        for attr in attrs {
            match attr {
                Attr::NextHopRif(rif) => interface = self.own.stand_in(*rif).map(|rif| rif.what.clone()),
                Attr::NextHopIp(address) => ip = Some(*address),
                _ => {}
            }
        }
        let (Some(StandsFor::Interface(name)), Some(ip)) = (interface, ip) else {
            return Decision::Here(NOT_THERE);
        };
        let real = self.learned.interface(&name).and_then(|interface| self.learned.next_hop(interface, ip));
        if real.is_none() {
            return Decision::Here(NOT_THERE);
        }
        self.own.add(oid, StandsFor::NextHop(name, ip), real);
        Decision::Here(Status::Success)
    }

    /// Removes a stand-in: nothing of ribtide uses the object any more.
    fn release(&mut self, oid: Oid) {
        self.refused.remove(&oid);
        let Some(gone) = self.own.remove(oid) else { return };
        if let Some(real) = gone.real {
            self.remove_carried(real);
        }
    }

    /// An object of ribtide with the ids of the view; it waits while another object is not there.
    fn translated(&mut self, item: &Item) -> Decision {
        let mut item = item.clone();
        let there = |oid: &mut Oid| match self.own.translate(*oid) {
            Some(real) => {
                *oid = real;
                true
            }
            None => false,
        };
        let all = item.id.oids_mut().all(there);
        let all = all && item.attrs.iter_mut().all(|attr| attr.oids_mut().iter_mut().all(there));
        match all {
            true => Decision::Pass(item),
            false => Decision::Here(NOT_THERE),
        }
    }

    fn route_request(&mut self, verb: Verb, item: &Item, out: &mut BesideOut) -> Decision {
        let ObjectId::Route(key) = item.id else { return Decision::Here(Status::InvalidParameter) };
        // The routes of the start are made by the constructor of RouteOrch (`orchagent/routeorch.cpp`).
        if !self.started {
            return Decision::Here(Status::Success);
        }
        let router = self.own.translate(key.vr);
        let is_own = router.is_some_and(|router| self.learned.is_own(router, key.dest));
        if is_own || self.is_of_routeorch(router, key) {
            return Decision::Here(Status::Success);
        }
        let entry = self.own.routes.get_mut(&key);
        if let Some(status) = suspended_request(verb, &item.attrs, entry, &mut self.own.suspended) {
            if verb == Verb::Remove {
                self.own.routes.remove(&key);
            }
            if self.own.routes.get(&key).is_some_and(|entry| self.own.translate(entry.target).is_some()) {
                self.put_again(out);
            }
            return Decision::Here(status);
        }
        self.translated(item)
    }

    fn label_request(&mut self, verb: Verb, item: &Item, out: &mut BesideOut) -> Decision {
        let ObjectId::Inseg(key) = item.id else { return Decision::Here(Status::InvalidParameter) };
        if self.routeorch_labels.contains(&key.label) && !self.own.labels.contains_key(&key.label) {
            return Decision::Here(Status::Success);
        }
        let entry = self.own.labels.get_mut(&key.label);
        if let Some(status) = suspended_request(verb, &item.attrs, entry, &mut self.own.suspended) {
            if verb == Verb::Remove {
                self.own.labels.remove(&key.label);
            }
            if self.own.labels.get(&key.label).is_some_and(|entry| self.own.translate(entry.target).is_some())
            {
                self.put_again(out);
            }
            return Decision::Here(status);
        }
        self.translated(item)
    }

    /// Whether SONiC's RouteOrch makes the route, and ribtide does not have it in the chip.
    fn is_of_routeorch(&self, router: Option<Oid>, key: crate::sai::RouteEntry) -> bool {
        if self.routeorch_routes.is_empty() || self.own.routes.contains_key(&key) {
            return false;
        }
        let vrf = router.and_then(|router| self.learned.vrf(router));
        vrf.is_some_and(|vrf| self.routeorch_routes.contains(&(vrf, key.dest)))
    }

    /// Takes in the reply to a request of ribtide's orchagent.
    pub(super) fn own_reply(&mut self, sent: SentOwn, reply: &Message, out: &mut BesideOut) {
        if let SaiCall::BulkGet { .. } = sent.request.call {
            let read = text::read_reply(sent.request.id, &reply.key, &reply.value, &reply.op)
                .unwrap_or_else(|_| SaiReply::one(sent.request.id, Status::Failure));
            return self.own_read(sent, &read, out);
        }
        let SentOwn { request: SaiRequest { id, call }, here } = sent;
        match call {
            SaiCall::Get { .. } | SaiCall::Available { .. } => {
                let mut read = text::read_reply(id, &reply.key, &reply.value, &reply.op)
                    .unwrap_or_else(|_| SaiReply::one(id, Status::Failure));
                for value in &mut read.values {
                    match value {
                        Attr::SwitchDefaultVirtualRouter(oid) => self.learned.default_router = *oid,
                        Attr::SwitchCpuPort(oid) => self.learned.cpu_port = *oid,
                        // Ports are the client's; those of rows are stand-ins.
                        Attr::SwitchPortNumber(count) => *count = 0,
                        _ => {}
                    }
                }
                out.replies.push(read);
            }
            SaiCall::One { verb, object, item } => {
                let status = super::message::statuses(reply, 1).first().copied().unwrap_or(NOT_THERE);
                self.note(verb, object, &item, status);
                out.replies.push(SaiReply::one(id, status));
            }
            SaiCall::Bulk { verb, object, items, .. } => {
                let passed = match here.is_empty() {
                    true => items.len(),
                    false => items.len() - here.iter().flatten().count(),
                };
                let mut theirs = super::message::statuses(reply, passed).into_iter();
                let mut statuses = Vec::with_capacity(items.len());
                for (n, item) in items.iter().enumerate() {
                    let status = match here.get(n).copied().flatten() {
                        Some(status) => status,
                        None => {
                            let status = theirs.next().unwrap_or(NOT_THERE);
                            self.note(verb, object, item, status);
                            status
                        }
                    };
                    statuses.push(status);
                }
                out.replies.push(SaiReply::bulk(id, statuses));
            }
            // None of these went to syncd.
            SaiCall::View(_)
            | SaiCall::BulkGet { .. }
            | SaiCall::Entries { .. }
            | SaiCall::GetEntry { .. }
            | SaiCall::Query(_) => {}
        }
    }

    /// Notes what the chip has after a request with this status.
    fn note(&mut self, verb: Verb, object: ObjectType, item: &Item, status: Status) {
        let gone = verb == Verb::Remove
            && matches!(
                status,
                Status::Success | Status::ItemNotFound | Status::AddrNotFound | Status::InvalidObjectId
            );
        if !status.is_success() && !gone {
            return;
        }
        // An entry whose request failed stays a leftover, so that the next view has it.
        let mut id = item.id;
        if id.oids_mut().all(|oid| self.own.translate(*oid).map(|real| *oid = real).is_some()) {
            self.leftovers.claim(&id);
        }
        let own = &mut self.own;
        match (object, item.id) {
            (ObjectType::RouteEntry, ObjectId::Route(key)) => match verb {
                Verb::Create => drop(own.routes.insert(key, Own::entry(&item.attrs))),
                Verb::Set => {
                    // A route that the chip had already, of an earlier run or of RouteOrch.
                    let entry = own.routes.entry(key).or_insert_with(|| Own::entry(&[]));
                    Own::apply(entry, &item.attrs);
                }
                Verb::Remove => drop(own.routes.remove(&key)),
            },
            (ObjectType::InsegEntry, ObjectId::Inseg(key)) => match verb {
                Verb::Create => drop(own.labels.insert(key.label, Own::entry(&item.attrs))),
                Verb::Set => {
                    let entry = own.labels.entry(key.label).or_insert_with(|| Own::entry(&[]));
                    Own::apply(entry, &item.attrs);
                }
                Verb::Remove => drop(own.labels.remove(&key.label)),
            },
            (ObjectType::NextHopGroup, ObjectId::Oid(oid)) => match verb {
                Verb::Create => drop(own.groups.insert(oid, item.attrs.clone())),
                Verb::Set => {}
                Verb::Remove => {
                    own.groups.remove(&oid);
                    own.forget_name(oid);
                }
            },
            (ObjectType::NextHopGroupMember, ObjectId::Oid(oid)) => match verb {
                Verb::Create => {
                    let (mut group, mut next_hop) = (Oid::NULL, Oid::NULL);
                    let mut attrs = Attrs::new();
                    for attr in &item.attrs {
                        match attr {
                            Attr::MemberGroup(oid) => group = *oid,
                            Attr::MemberNextHop(oid) => next_hop = *oid,
                            attr => attrs.push(attr.clone()),
                        }
                    }
                    own.members.insert(oid, GroupMember { group, next_hop, attrs, dead: false });
                }
                Verb::Set => {
                    if let Some(member) = own.members.get_mut(&oid) {
                        for attr in &item.attrs {
                            member.attrs.retain(|known| !known.same_kind(attr));
                            member.attrs.push(attr.clone());
                        }
                    }
                }
                Verb::Remove => {
                    own.members.remove(&oid);
                    own.forget_name(oid);
                }
            },
            (ObjectType::NextHop, ObjectId::Oid(oid)) => match verb {
                Verb::Create => {
                    let interface = item.attrs.iter().find_map(|attr| match attr {
                        Attr::NextHopRif(oid) => Some(*oid),
                        _ => None,
                    });
                    let hop = LabelledNextHop {
                        interface: interface.unwrap_or_default(),
                        attrs: item.attrs.clone(),
                    };
                    own.labelled.insert(oid, hop);
                }
                Verb::Set => {}
                Verb::Remove => {
                    own.labelled.remove(&oid);
                    own.forget_name(oid);
                }
            },
            _ => {}
        }
    }
}

/// A request about an entry that is suspended: only its description changes.
fn suspended_request(
    verb: Verb,
    attrs: &Attrs,
    entry: Option<&mut Entry>,
    suspended: &mut usize,
) -> Option<Status> {
    let entry = entry.filter(|entry| entry.suspended)?;
    match verb {
        Verb::Set => Own::apply(entry, attrs),
        Verb::Create => *entry = Entry { suspended: true, ..Own::entry(attrs) },
        Verb::Remove => Own::suspend(suspended, entry, false),
    }
    Some(Status::Success)
}
