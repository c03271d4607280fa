//! Requests of SONiC's orchagent that do not simply pass.

use super::learned::{Learned, Lesson, route_key};
use super::message::{self, NOTIFY_OP};
use super::own::StandsFor;
use super::view::Effect;
use super::{Beside, BesideEvent, BesideOut, Sent, Step, ViewRecord};
use crate::sai::text::{Message, read_oid};
use crate::sai::{Oid, RouteEntry, SWITCH, Status};
use ribtide_prefix::AnyPrefix;

/// The time in which routes and groups may release an object, before its removal is refused, or,
/// of an interface or virtual router, its routes are withdrawn.
const RELEASE_TIMEOUT_MS: u64 = 500;
/// After this time without another try, the client has given up a removal that was refused: SONiC's
/// orchagent tries each second.
const REMOVAL_ABANDONED_MS: u64 = 5000;

/// A request of the client in progress.
#[derive(Debug)]
pub(super) struct Client {
    number: u64,
    message: Message,
    state: State,
    /// The objects of a bulk that are passed on, where they are not all; the others succeed here.
    passed: Option<Passed>,
}

#[derive(Debug)]
enum State {
    /// It is sent as soon as the program is done.
    Queued,
    /// Stand-ins that ribtide's orchagent must release first.
    Release {
        stand_ins: Vec<Oid>,
        since_ms: u64,
    },
    AtSyncd,
}

#[derive(Debug)]
struct Passed {
    places: Vec<usize>,
    count: usize,
    part: Message,
}

impl Client {
    /// Whether it waits for ribtide's orchagent, so that its requests go first.
    pub(super) fn waits_for_release(&self) -> bool {
        matches!(self.state, State::Release { .. })
    }
}

impl Beside {
    /// Goes on with the client's request; false when nothing can be done.
    pub(super) fn advance_client(&mut self, out: &mut BesideOut) -> bool {
        let Some(client) = &mut self.client else {
            let Some((number, message)) = self.waiting.pop_front() else { return false };
            self.begin_client(number, message, out);
            return true;
        };
        match &client.state {
            State::AtSyncd => false,
            State::Queued => {
                client.state = State::AtSyncd;
                let message = client.passed.as_ref().map_or(&client.message, |passed| &passed.part);
                out.requests.push(message.clone());
                self.sent.push_back(Sent::Client);
                true
            }
            State::Release { stand_ins, .. } => {
                let released = stand_ins.iter().all(|oid| self.own.stand_in(*oid).is_none());
                if released {
                    client.state = State::Queued;
                }
                released
            }
        }
    }

    fn begin_client(&mut self, number: u64, message: Message, out: &mut BesideOut) {
        let mut client = Client { number, message, state: State::Queued, passed: None };
        let message = &client.message;
        if message.op == NOTIFY_OP {
            match message.key.as_str() {
                "INIT_VIEW" => {
                    self.view = Some(self.learned.next_view());
                    let Learned { default_router, cpu_port, .. } = self.learned;
                    out.view.push(ViewRecord::Begun { default_router, cpu_port });
                }
                "APPLY_VIEW" => self.put_into_view(out),
                _ => {}
            }
        } else if let Some((object, _)) = message::object_of(message) {
            let op = message::operation(message);
            match (object, op) {
                ("ROUTE_ENTRY" | "INSEG_ENTRY", "bulkcreate" | "bulkset" | "bulkremove") => {
                    match self.routeorch_part(message) {
                        None => {
                            let count = message::fields(message).len();
                            let reply = message::reply(message, &vec![Status::Success; count]);
                            return out.to_client.push((number, reply));
                        }
                        Some(passed) => client.passed = passed,
                    }
                }
                ("ROUTE_ENTRY", "create") => self.yield_to(message),
                ("NEXT_HOP" | "ROUTER_INTERFACE" | "VIRTUAL_ROUTER", "remove" | "bulkremove")
                    if self.view.is_none() =>
                {
                    let stand_ins = self.stand_ins_of(message, out);
                    if self.refuses_again(&stand_ins) {
                        return self.refuse(&client, &stand_ins, out);
                    }
                    if !stand_ins.is_empty() {
                        client.state = State::Release { stand_ins, since_ms: self.now_ms };
                    }
                }
                _ => {}
            }
        }
        self.client = Some(client);
    }

    /// Takes in the reply to the client's request at syncd.
    pub(super) fn client_reply(&mut self, reply: Message, out: &mut BesideOut) {
        let Some(Client { number, message, passed, .. }) = self.client.take() else { return };
        let succeeded = reply.key == Status::Success.name();
        if message.op == NOTIFY_OP {
            match message.key.as_str() {
                "INIT_VIEW" if !succeeded => {
                    self.view = None;
                    out.view.push(ViewRecord::Ended);
                }
                "APPLY_VIEW" => {
                    self.end_view(succeeded, out);
                    out.view.push(ViewRecord::Ended);
                }
                _ => {}
            }
        } else if Learned::concerns(&message) {
            let mut lessons = Vec::new();
            match &mut self.view {
                Some(view) => {
                    view.learn(&message, &reply, &mut lessons);
                    out.view.push(ViewRecord::Passed(message.clone(), reply.clone()));
                    // The others are learned when the view is applied.
                    lessons.retain(|lesson| matches!(lesson, Lesson::Link(..)));
                    self.take_lessons(lessons, out);
                }
                None => {
                    self.learned.learn(&message, &reply, &mut lessons);
                    self.take_lessons(lessons, out);
                }
            }
        }
        let reply = match passed {
            None => reply,
            Some(Passed { places, count, .. }) => {
                let mut statuses = vec![Status::Success; count];
                for (place, status) in places.iter().zip(message::statuses(&reply, places.len())) {
                    statuses[*place] = status;
                }
                message::reply(&message, &statuses)
            }
        };
        out.to_client.push((number, reply));
    }

    /// The part of a bulk of routes or labels that passes: those that only SONiC's RouteOrch makes.
    /// `None`: nothing of it, `Some(None)`: all. Of routes that ribtide has in the chip, it takes
    /// them out first.
    fn routeorch_part(&mut self, message: &Message) -> Option<Option<Passed>> {
        let items = message::fields(message);
        let is_of_routeorch = |id: &str| match message::object_of(message) {
            Some(("INSEG_ENTRY", _)) => {
                label_of(id).is_some_and(|label| self.routeorch_labels.contains(&label))
            }
            _ => {
                let learned = self.view.as_ref().unwrap_or(&self.learned);
                let vrf = route_key(id).and_then(|(router, prefix)| Some((learned.vrf(router)?, prefix)));
                vrf.is_some_and(|key| self.routeorch_routes.contains(&key))
            }
        };
        let places: Vec<usize> = items
            .iter()
            .enumerate()
            .filter(|(_, (id, _))| is_of_routeorch(id))
            .map(|(place, _)| place)
            .collect();
        if places.is_empty() {
            return None;
        }
        if message::operation(message) == "bulkcreate" && self.view.is_none() {
            for (id, _) in places.iter().filter_map(|place| items.get(*place)) {
                if let Some((router, prefix)) = route_key(id) {
                    self.take_out(router, prefix);
                } else if let Some(label) = label_of(id) {
                    self.take_out_label(label);
                }
            }
        }
        if places.len() == items.len() {
            return Some(None);
        }
        let part: Vec<_> = places.iter().filter_map(|place| items.get(*place)).cloned().collect();
        let object = message::object_of(message).map_or("", |(object, _)| object);
        let mut part = message::bulk("Sbulkcreate", object, &part);
        part.op = message.op.clone();
        Some(Some(Passed { places, count: items.len(), part }))
    }

    /// An own address goes before a route of ribtide: the chip would reply that the entry exists,
    /// and SONiC's orchagent would take that for success.
    fn yield_to(&mut self, message: &Message) {
        let Some((_, id)) = message::object_of(message) else { return };
        let fields = message::fields(message);
        let target = message::oid(&fields, "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID");
        let to_cpu = target.is_some_and(|oid| oid == self.learned.cpu_port);
        if let (true, None, Some((router, prefix))) = (to_cpu, &self.view, route_key(id)) {
            self.take_out(router, prefix);
        }
    }

    /// Removes an entry of ribtide from the chip.
    fn take_out(&mut self, router: Oid, dest: AnyPrefix) {
        let Some(vr) = self.own_router(router) else { return };
        let key = RouteEntry { switch: SWITCH, vr, dest };
        let Some(mut entry) = self.own.routes.remove(&key) else { return };
        if entry.suspended {
            return super::own::Own::suspend(&mut self.own.suspended, &mut entry, false);
        }
        let id = RouteEntry { vr: router, ..key };
        let mut text = String::new();
        crate::sai::text::write_id(&id.into(), &mut text);
        let message = message::request("Dremove", "ROUTE_ENTRY", &text, &Vec::new());
        self.program.push_back(Step { message, effect: Effect::Nothing });
    }

    fn take_out_label(&mut self, label: u32) {
        let Some(mut entry) = self.own.labels.remove(&label) else { return };
        if entry.suspended {
            return super::own::Own::suspend(&mut self.own.suspended, &mut entry, false);
        }
        let id = crate::sai::InsegEntry { switch: SWITCH, label };
        let mut text = String::new();
        crate::sai::text::write_id(&id.into(), &mut text);
        let message = message::request("Dremove", "INSEG_ENTRY", &text, &Vec::new());
        self.program.push_back(Step { message, effect: Effect::Nothing });
    }

    /// The id that ribtide's orchagent uses for a virtual router.
    pub(super) fn own_router(&self, router: Oid) -> Option<Oid> {
        match self.learned.vrf(router)? {
            None => Some(router),
            Some(vrf) => self.own.find(&StandsFor::Router(vrf)),
        }
    }

    /// The stand-ins of objects that the client removes. Takes back their rows, so that ribtide's
    /// orchagent releases it of them.
    fn stand_ins_of(&mut self, message: &Message, out: &mut BesideOut) -> Vec<Oid> {
        let object = message::object_of(message).map_or("", |(object, _)| object).to_owned();
        let mut stand_ins = Vec::new();
        for (id, _) in message::objects(message) {
            let Some(oid) = read_oid(&id) else { continue };
            let what = match object.as_str() {
                "NEXT_HOP" => self.learned.next_hop_name(oid).map(|(name, ip)| StandsFor::NextHop(name, ip)),
                "ROUTER_INTERFACE" => self.learned.interface_name(oid).map(StandsFor::Interface),
                _ => self.learned.vrf(oid).flatten().map(StandsFor::Router),
            };
            let Some(what) = what else { continue };
            match &what {
                StandsFor::NextHop(name, ip) => self.retract_next_hop(name, *ip, out),
                StandsFor::Interface(name) => self.retract_interface(name, out),
                StandsFor::Router(name) => self.retract_vrf(name, out),
                StandsFor::Lower(_) => {}
            }
            let stand_in = self.own.find(&what);
            let is_it = |stand_in: &Oid| self.own.stand_in(*stand_in).is_some_and(|s| s.real == Some(oid));
            stand_ins.extend(stand_in.filter(is_it));
        }
        stand_ins
    }

    /// Whether a removal was refused before and nothing has changed since.
    fn refuses_again(&self, stand_ins: &[Oid]) -> bool {
        stand_ins.iter().any(|oid| self.refused.contains_key(oid))
    }

    fn refuse(&mut self, client: &Client, stand_ins: &[Oid], out: &mut BesideOut) {
        for oid in stand_ins {
            if self.refused.insert(*oid, self.now_ms).is_none()
                && let Some(stand_in) = self.own.stand_in(*oid)
            {
                out.events.push(BesideEvent::InUse(name_of(&stand_in.what)));
            }
        }
        let count = message::objects(&client.message).len();
        let reply = message::reply(&client.message, &vec![Status::ObjectInUse; count]);
        out.to_client.push((client.number, reply));
    }

    /// Ends waits for a release that take too long, and removals that the client gave up.
    pub(super) fn look_at_refusals(&mut self, out: &mut BesideOut) {
        let gone: Vec<Oid> =
            self.refused.keys().copied().filter(|oid| self.own.stand_in(*oid).is_none()).collect();
        for oid in gone {
            self.refused.remove(&oid);
        }
        let now_ms = self.now_ms;
        let abandoned = |(_, tried_ms): &(&Oid, &u64)| **tried_ms + REMOVAL_ABANDONED_MS <= now_ms;
        let abandoned: Vec<Oid> = self.refused.iter().filter(abandoned).map(|(oid, _)| *oid).collect();
        for oid in abandoned {
            self.refused.remove(&oid);
            if let Some(what) = self.own.stand_in(oid).map(|stand_in| stand_in.what.clone()) {
                self.announce_again(&what, out);
            }
        }
        let Some(client) = self.client.take() else { return };
        let State::Release { stand_ins, since_ms } = &client.state else {
            self.client = Some(client);
            return;
        };
        if since_ms + RELEASE_TIMEOUT_MS > now_ms {
            self.client = Some(client);
            return;
        }
        let left: Vec<Oid> =
            stand_ins.iter().copied().filter(|oid| self.own.stand_in(*oid).is_some()).collect();
        let is_next_hop = |oid: &Oid| {
            self.own.stand_in(*oid).is_some_and(|stand_in| matches!(stand_in.what, StandsFor::NextHop(..)))
        };
        // A route without its next hop would lose packets that SONiC alone forwards: it keeps a next
        // hop as long as routes use it. An interface goes, because IntfsOrch throws otherwise
        // (`orchagent/intfsorch.cpp`, removeRouterIntfs), and rows behind it wait.
        if left.iter().any(is_next_hop) || !self.withdraw(&left) {
            self.refuse(&client, &left, out);
        } else {
            self.client = Some(Client { state: State::Queued, ..client });
        }
    }
}

/// The label of the text of a key.
pub(super) fn label_of(id: &str) -> Option<u32> {
    let fields = crate::json::read_object(id)?;
    fields.iter().find(|(name, _)| name == "label")?.1.parse().ok()
}

/// What a stand-in is, for the log.
fn name_of(what: &StandsFor) -> String {
    match what {
        StandsFor::Lower(name) => format!("port {name}"),
        StandsFor::Router(name) => format!("the virtual router of {name}"),
        StandsFor::Interface(name) => format!("the router interface of {name}"),
        StandsFor::NextHop(name, ip) => format!("next hop {ip} on {name}"),
    }
}
