//! The start: make the switch, learn what it has, and put in the routes that are always there.

use super::requests::Context;
use super::route_table::Table;
use super::{Orch, OrchEvent, OrchOut};
use crate::row::{Change, DefaultRouteRow, Mac, SwitchCapabilityRow};
use crate::sai::{
    Attr, Item, ObjectType, Oid, PacketAction, RouteEntry, SWITCH, SaiCall, SaiReply, Verb, View,
};
use ribtide_prefix::AnyPrefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many groups a chip holds that does not say.
const DEFAULT_GROUPS: u32 = 128;

/// The steps, in order. Each is one or more requests; the next begins when all replies are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    #[default]
    InitView,
    Switch,
    Defaults,
    Groups,
    PortList,
    PortLanes,
    Routes,
    /// Warm: rows are described.
    Restore,
    ApplyView,
    Done,
}

/// How far the start is, and what it learned.
#[derive(Default)]
pub(super) struct Boot {
    step: Step,
    /// The step's requests without a reply; `None` before it began.
    open: Option<usize>,
    pub(super) cpu_port: Oid,
    port_count: u32,
    ports: Vec<Oid>,
    /// It starts warm, and what it describes is not applied.
    warm: bool,
    /// Every row is described.
    described: bool,
}

impl Boot {
    pub(super) fn done(&self) -> bool {
        self.step == Step::Done
    }

    /// Whether the switch is there, so that rows are looked at.
    pub(super) fn takes_rows(&self) -> bool {
        self.done() || self.step == Step::Restore || (self.warm && self.step == Step::ApplyView)
    }

    pub(super) fn start_warm(&mut self) {
        self.warm = true;
    }

    pub(super) fn is_warm(&self) -> bool {
        self.warm
    }

    pub(super) fn described(&mut self) {
        self.described = true;
    }

    /// Whether only [`Boot::apply`] is missing.
    pub(super) fn is_described(&self) -> bool {
        self.step == Step::Restore && self.described
    }

    pub(super) fn apply(&mut self) {
        self.step = Step::ApplyView;
    }
}

/// The default route of each family.
pub(super) fn default_routes() -> [AnyPrefix; 2] {
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
        .map(|addr| AnyPrefix::from_addr(addr, 0).unwrap_or(AnyPrefix::host(addr)))
}

/// What goes to the CPU from the start: all link-local addresses, and the router's own made from its MAC address.
fn link_local(mac: Mac) -> [AnyPrefix; 2] {
    let [a, b, c, d, e, f] = mac.0.map(u16::from);
    let own = Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f);
    let all = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0));
    [AnyPrefix::from_addr(all, 10).unwrap_or(AnyPrefix::host(all)), AnyPrefix::host(own.into())]
}

impl Orch {
    /// Queues the requests of the next step of the start; false when there is nothing to queue now.
    pub(super) fn boot_next(&mut self, out: &mut OrchOut) -> bool {
        if self.boot.done() || self.boot.step == Step::Restore || self.boot.open.is_some() {
            return false;
        }
        let get = |attr| SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs: attr };
        let vr = self.vrfs.default_oid();
        let cpu = self.boot.cpu_port;
        let route = |dest, attrs: &[Attr]| SaiCall::One {
            verb: Verb::Create,
            object: ObjectType::RouteEntry,
            item: Item::new(RouteEntry { switch: SWITCH, vr, dest }, attrs.iter().cloned()),
        };
        let calls: Vec<SaiCall> = match self.boot.step {
            Step::InitView => vec![SaiCall::View(View::Init)],
            Step::Switch => vec![SaiCall::One {
                verb: Verb::Create,
                object: ObjectType::Switch,
                item: Item::new(SWITCH, [Attr::SwitchInit(true), Attr::SwitchSrcMac(self.config.mac)]),
            }],
            Step::Defaults => vec![get(vec![
                Attr::SwitchDefaultVirtualRouter(Oid::NULL),
                Attr::SwitchCpuPort(Oid::NULL),
                Attr::SwitchPortNumber(0),
            ])],
            Step::Groups => vec![get(vec![Attr::SwitchEcmpGroups(0)])],
            Step::PortList => {
                vec![get(vec![Attr::SwitchPortList(vec![Oid::NULL; self.boot.port_count as usize].into())])]
            }
            Step::PortLanes => {
                let lanes = |port: &Oid| SaiCall::Get {
                    object: ObjectType::Port,
                    id: (*port).into(),
                    // Room for the most lanes that a port has.
                    attrs: vec![Attr::PortLanes(Box::new([0; 8]))],
                };
                self.boot.ports.iter().map(lanes).collect()
            }
            Step::Routes => {
                let drop = [Attr::RoutePacketAction(PacketAction::Drop)];
                let to_cpu = [Attr::RoutePacketAction(PacketAction::Forward), Attr::RouteNextHop(cpu)];
                let defaults = default_routes().into_iter().map(|prefix| route(prefix, &drop));
                let own = link_local(self.config.mac).into_iter().map(|prefix| route(prefix, &to_cpu));
                defaults.chain(own).collect()
            }
            Step::ApplyView => vec![SaiCall::View(View::Apply)],
            Step::Restore | Step::Done => vec![],
        };
        if calls.is_empty() {
            self.boot_advance(out);
            return true;
        }
        self.boot.open = Some(calls.len());
        for call in calls {
            let of = match &call {
                SaiCall::Get { object: ObjectType::Port, id, .. } => id.oid(),
                _ => None,
            };
            self.requests.call(call, Context::Boot(of));
        }
        true
    }

    /// Takes in a reply of the start; `port` is whose lanes were asked for.
    pub(super) fn boot_reply(&mut self, port: Option<Oid>, reply: SaiReply, out: &mut OrchOut) {
        let step = self.boot.step;
        // A chip that does not say how many groups it holds, or which lanes a port has, is still of use.
        if !reply.status.is_success() && !matches!(step, Step::Groups | Step::PortLanes) {
            self.requests.broken = true;
            let what = match step {
                Step::InitView => "did not begin a view",
                Step::Switch => "did not make the switch",
                Step::Defaults | Step::PortList => "did not say what the switch has",
                Step::Routes => "did not take the first routes",
                _ => "did not apply the view",
            };
            let status = reply.status.name();
            out.events.push(OrchEvent::Fatal(format!("syncd {what}: {status}; look at syncd's log")));
            return;
        }
        for value in reply.values {
            match value {
                Attr::SwitchDefaultVirtualRouter(oid) => self.vrfs.set_default(oid),
                Attr::SwitchCpuPort(oid) => self.boot.cpu_port = oid,
                Attr::SwitchPortNumber(count) => self.boot.port_count = count,
                Attr::SwitchPortList(ports) => self.boot.ports = ports.into(),
                Attr::SwitchEcmpGroups(count) => self.groups.set_limit(count),
                Attr::PortLanes(lanes) => {
                    if let Some(port) = port {
                        self.ports.found(lanes, port);
                    }
                }
                _ => {}
            }
        }
        self.boot.open = self.boot.open.and_then(|open| open.checked_sub(1)).filter(|open| *open > 0);
        if self.boot.open.is_none() {
            self.boot_advance(out);
        }
    }

    /// Goes to the next step; when the switch is known, tells what was learned.
    fn boot_advance(&mut self, out: &mut OrchOut) {
        self.boot.step = match self.boot.step {
            Step::InitView => Step::Switch,
            Step::Switch => Step::Defaults,
            Step::Defaults => Step::Groups,
            Step::Groups => Step::PortList,
            Step::PortList => Step::PortLanes,
            Step::PortLanes => Step::Routes,
            Step::Routes if self.boot.warm => Step::Restore,
            Step::Routes => Step::ApplyView,
            Step::Restore | Step::ApplyView | Step::Done => Step::Done,
        };
        match (self.boot.warm, self.boot.step) {
            (true, Step::Done) => self.boot.warm = false,
            (true, Step::Restore) | (false, Step::Done) => self.tell_learnt(out),
            _ => {}
        }
    }

    fn tell_learnt(&mut self, out: &mut OrchOut) {
        let limit = self.groups.limit_or(DEFAULT_GROUPS, self.config.group_limit);
        let capability = SwitchCapabilityRow { max_nexthop_groups: Some(limit) };
        out.capability.push(Change::set("switch".into(), capability));
        for prefix in default_routes() {
            out.default_routes.push(Change::set(prefix, DefaultRouteRow { ok: false }));
            self.crm.routes(Table::of(prefix), 1);
        }
        for prefix in link_local(self.config.mac) {
            self.own_from_start(prefix);
        }
    }
}
