//! The start of orchagent (`orchagent/main.cpp`, `OrchDaemon::init`): create the switch, read what
//! it has, and create the routes that are always there.

use super::bulker::{Bulker, Context};
use crate::row::Mac;
use crate::sai::notification::{PORT_STATE_CHANGE_NOTIFY, SHUTDOWN_REQUEST_NOTIFY};
use crate::sai::{
    Attr, Item, ObjectType, Oid, PacketAction, RouteEntry, SWITCH, SaiCall, SaiReply, Verb, View,
};
use ribtide_prefix::AnyPrefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The pointer to the handler of a notification. syncd replaces it by its own, and asks only whether
/// it is null.
const HANDLER: &str = "0x1";

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
    /// Warm start: rows fill the view.
    Restore,
    ApplyView,
    Done,
}

/// The steps of a start, and what its replies contained.
pub(super) struct Boot {
    step: Step,
    mac: Mac,
    /// The step's requests without a reply; `None` before it began.
    open: Option<usize>,
    virtual_router: Oid,
    cpu_port: Oid,
    port_count: u32,
    ports: Vec<Oid>,
    /// It is a warm start whose view is not applied.
    warm: bool,
    /// A warm start has taken in every row.
    rows_complete: bool,
    /// The switch became known, and [`Boot::take_switch_ready`] did not report it yet.
    switch_ready: bool,
}

impl Boot {
    /// A start that has sent nothing. `mac` is the router's MAC address.
    pub(super) fn new(mac: Mac) -> Boot {
        Boot {
            step: Step::default(),
            mac,
            open: None,
            virtual_router: Oid::NULL,
            cpu_port: Oid::NULL,
            port_count: 0,
            ports: Vec::new(),
            warm: false,
            rows_complete: false,
            switch_ready: false,
        }
    }

    /// Whether the start is over.
    pub(super) fn done(&self) -> bool {
        self.step == Step::Done
    }

    /// Whether the switch is known, so that orchagent handles rows.
    pub(super) fn takes_rows(&self) -> bool {
        self.done() || self.step == Step::Restore || (self.warm && self.step == Step::ApplyView)
    }

    /// Makes it a warm start. Call it before the first step.
    pub(super) fn start_warm(&mut self) {
        self.warm = true;
    }

    /// Whether it is a warm start whose view is not applied.
    pub(super) fn is_warm(&self) -> bool {
        self.warm
    }

    /// Takes in that a warm start has every row.
    pub(super) fn set_rows_complete(&mut self) {
        self.rows_complete = true;
    }

    /// Whether a warm start has every row, and did not begin to apply its view.
    pub(super) fn may_apply(&self) -> bool {
        self.step == Step::Restore && self.rows_complete
    }

    /// Begins to apply the view of a warm start.
    pub(super) fn apply(&mut self) {
        self.step = Step::ApplyView;
    }

    /// Whether the switch became known since the last call.
    pub(super) fn take_switch_ready(&mut self) -> bool {
        std::mem::take(&mut self.switch_ready)
    }

    /// Enqueues the requests of the next step; false when there is none to enqueue now.
    pub(super) fn next(&mut self, bulker: &mut Bulker) -> bool {
        if self.done() || self.step == Step::Restore || self.open.is_some() {
            return false;
        }
        let calls = self.calls();
        if calls.is_empty() {
            self.advance();
            return true;
        }
        self.open = Some(calls.len());
        for call in calls {
            let port = match &call {
                SaiCall::Get { object: ObjectType::Port, id, .. } => id.oid(),
                _ => None,
            };
            bulker.call(call, Context::Boot(port));
        }
        true
    }

    fn calls(&self) -> Vec<SaiCall> {
        let get = |attrs| SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs };
        let vr = self.virtual_router;
        let route = |dest, attrs: &[Attr]| SaiCall::One {
            verb: Verb::Create,
            object: ObjectType::RouteEntry,
            item: Item::new(RouteEntry { switch: SWITCH, vr, dest }, attrs.iter().cloned()),
        };
        match self.step {
            Step::InitView => vec![SaiCall::View(View::Init)],
            Step::Switch => vec![SaiCall::One {
                verb: Verb::Create,
                object: ObjectType::Switch,
                // In the order of SONiC's orchagent.
                item: Item::new(
                    SWITCH,
                    [
                        Attr::SwitchInit(true),
                        Attr::raw(PORT_STATE_CHANGE_NOTIFY, HANDLER),
                        Attr::raw(SHUTDOWN_REQUEST_NOTIFY, HANDLER),
                        Attr::SwitchSrcMac(self.mac),
                    ],
                ),
            }],
            Step::Defaults => vec![get(vec![
                Attr::SwitchDefaultVirtualRouter(Oid::NULL),
                Attr::SwitchCpuPort(Oid::NULL),
                Attr::SwitchPortNumber(0),
            ])],
            Step::Groups => vec![get(vec![Attr::SwitchEcmpGroups(0)])],
            Step::PortList => {
                vec![get(vec![Attr::SwitchPortList(vec![Oid::NULL; self.port_count as usize].into())])]
            }
            Step::PortLanes => {
                let lanes = |port: &Oid| SaiCall::Get {
                    object: ObjectType::Port,
                    id: (*port).into(),
                    // A port has at most 8 lanes.
                    attrs: vec![Attr::PortLanes(Box::new([0; 8]))],
                };
                self.ports.iter().map(lanes).collect()
            }
            Step::Routes => {
                let drop = [Attr::RoutePacketAction(PacketAction::Drop)];
                let to_cpu =
                    [Attr::RoutePacketAction(PacketAction::Forward), Attr::RouteNextHop(self.cpu_port)];
                let defaults = default_routes().into_iter().map(|prefix| route(prefix, &drop));
                let own = link_local(self.mac).into_iter().map(|prefix| route(prefix, &to_cpu));
                defaults.chain(own).collect()
            }
            Step::ApplyView => vec![SaiCall::View(View::Apply)],
            Step::Restore | Step::Done => vec![],
        }
    }

    /// Takes in a reply of the start, and goes to the next step when it is the last one.
    ///
    /// # Errors
    /// A sentence when the start cannot go on.
    pub(super) fn reply(&mut self, reply: &SaiReply) -> Result<(), String> {
        let step = self.step;
        // The start goes on without a chip's count of groups, or a port's lanes.
        if !reply.status.is_success() && !matches!(step, Step::Groups | Step::PortLanes) {
            let what = match step {
                Step::InitView => "did not begin a view",
                Step::Switch => "did not make the switch",
                Step::Defaults | Step::PortList => "did not say what the switch has",
                Step::Routes => "did not take the first routes",
                _ => "did not apply the view",
            };
            return Err(format!("syncd {what}: {}; look at syncd's log", reply.status.name()));
        }
        if step == Step::Defaults && !reply.values.iter().any(|v| matches!(v, Attr::SwitchPortNumber(_))) {
            return Err(format!(
                "syncd did not say how many ports the switch has: its reply has no {}",
                Attr::SwitchPortNumber(0).name()
            ));
        }
        for value in &reply.values {
            match value {
                Attr::SwitchDefaultVirtualRouter(oid) => self.virtual_router = *oid,
                Attr::SwitchCpuPort(oid) => self.cpu_port = *oid,
                Attr::SwitchPortNumber(count) => self.port_count = *count,
                Attr::SwitchPortList(ports) => self.ports = ports.to_vec(),
                _ => {}
            }
        }
        self.open = self.open.and_then(|open| open.checked_sub(1)).filter(|open| *open > 0);
        if self.open.is_none() {
            self.advance();
        }
        Ok(())
    }

    fn advance(&mut self) {
        self.step = match self.step {
            Step::InitView => Step::Switch,
            Step::Switch => Step::Defaults,
            Step::Defaults => Step::Groups,
            // SONiC's syncd does not survive a query of a list without room.
            Step::Groups if self.port_count == 0 => Step::Routes,
            Step::Groups => Step::PortList,
            Step::PortList => Step::PortLanes,
            Step::PortLanes => Step::Routes,
            Step::Routes if self.warm => Step::Restore,
            Step::Routes => Step::ApplyView,
            Step::Restore | Step::ApplyView | Step::Done => Step::Done,
        };
        match (self.warm, self.step) {
            (true, Step::Done) => self.warm = false,
            (true, Step::Restore) | (false, Step::Done) => self.switch_ready = true,
            _ => {}
        }
    }
}

/// The default route of each family.
pub(super) fn default_routes() -> [AnyPrefix; 2] {
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
        .map(|addr| AnyPrefix::from_addr(addr, 0).unwrap_or(AnyPrefix::host(addr)))
}

/// The routes to the CPU that the start creates: all link-local addresses, and the router's own
/// link-local address (RFC 4291, 2.5.6 and appendix A).
pub(super) fn link_local(mac: Mac) -> [AnyPrefix; 2] {
    let [a, b, c, d, e, f] = mac.0.map(u16::from);
    let own = Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f);
    [link_local_subnet(), AnyPrefix::host(own.into())]
}

/// All link-local addresses (RFC 4291, 2.5.6): `fe80::/10`.
pub(super) fn link_local_subnet() -> AnyPrefix {
    let all = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0));
    AnyPrefix::from_addr(all, 10).unwrap_or(AnyPrefix::host(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sai::Status;

    /// A chip with one port, whose replies have `status`; the names of all attributes that it was asked for.
    fn answered(boot: &mut Boot, bulker: &mut Bulker, status: Status) -> Result<Vec<String>, String> {
        answered_with(
            boot,
            bulker,
            status,
            &[Attr::SwitchPortNumber(1), Attr::SwitchPortList(Box::new([Oid(2)]))],
        )
    }

    fn answered_with(
        boot: &mut Boot,
        bulker: &mut Bulker,
        status: Status,
        values: &[Attr],
    ) -> Result<Vec<String>, String> {
        let mut asked = vec![];
        while boot.next(bulker) {
            while let Some(request) = bulker.next(1) {
                bulker.replied(request.id);
                let mut reply = SaiReply::one(request.id, status);
                if let SaiCall::Get { attrs, .. } = &request.call {
                    asked.extend(attrs.iter().map(|attr| attr.name().to_owned()));
                    let is_asked = |value: &&Attr| attrs.iter().any(|attr| attr.same_kind(value));
                    reply.values = values.iter().filter(is_asked).cloned().collect();
                }
                boot.reply(&reply)?;
            }
        }
        Ok(asked)
    }

    #[test]
    fn boot_asks_for_the_ports_by_the_name_of_sais_metadata() {
        let (mut boot, mut bulker) = (Boot::new(Mac::default()), Bulker::default());
        let asked = answered(&mut boot, &mut bulker, Status::Success).unwrap();
        assert!(asked.iter().any(|name| name == "SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS"), "{asked:?}");
        assert!(asked.iter().any(|name| name == "SAI_SWITCH_ATTR_PORT_LIST"), "{asked:?}");
    }

    #[test]
    fn boot_without_a_count_of_ports_is_an_error() {
        let (mut boot, mut bulker) = (Boot::new(Mac::default()), Bulker::default());
        let why = answered_with(&mut boot, &mut bulker, Status::Success, &[]).unwrap_err();
        assert!(why.contains("SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS"), "{why}");
    }

    #[test]
    fn boot_of_a_switch_without_ports_asks_for_no_list() {
        let (mut boot, mut bulker) = (Boot::new(Mac::default()), Bulker::default());
        let asked =
            answered_with(&mut boot, &mut bulker, Status::Success, &[Attr::SwitchPortNumber(0)]).unwrap();
        assert!(boot.done() && !asked.iter().any(|name| name == "SAI_SWITCH_ATTR_PORT_LIST"), "{asked:?}");
    }

    #[test]
    fn boot_all_replies_success_reports_the_switch_once() {
        let (mut boot, mut bulker) = (Boot::new(Mac::default()), Bulker::default());
        assert!(!boot.takes_rows());
        answered(&mut boot, &mut bulker, Status::Success).unwrap();
        assert!(boot.done() && boot.takes_rows() && boot.take_switch_ready() && !boot.take_switch_ready());
    }

    #[test]
    fn boot_failed_switch_is_an_error() {
        let (mut boot, mut bulker) = (Boot::new(Mac::default()), Bulker::default());
        let why = answered(&mut boot, &mut bulker, Status::Failure).unwrap_err();
        assert!(why.contains("did not begin a view"), "{why}");
    }

    #[test]
    fn boot_warm_waits_for_rows_before_it_applies_the_view() {
        let (mut boot, mut bulker) = (Boot::new(Mac::default()), Bulker::default());
        boot.start_warm();
        answered(&mut boot, &mut bulker, Status::Success).unwrap();
        assert!(boot.takes_rows() && boot.is_warm() && !boot.may_apply() && !boot.done());
        boot.set_rows_complete();
        assert!(boot.may_apply());
        boot.apply();
        answered(&mut boot, &mut bulker, Status::Success).unwrap();
        assert!(boot.done() && !boot.is_warm());
    }
}
