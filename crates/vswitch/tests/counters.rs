//! Polled counters: by the settings of orchagent, from the packets of the virtual switch.

use ribtide_swss::Name;
use ribtide_swss::sai::{
    Attr, CounterOp, Item, ObjectType, Oid, Query, SWITCH, SaiCall, SaiRequest, Status, Verb, VidCounter,
    View,
};
use ribtide_swss::syncd::{PollChange, Polled, Syncd, SyncdOut};
use ribtide_vswitch::{Behavior, Frame, Interface, PortSetup, VirtualSwitch};

const GROUP: &str = "PORT_STAT_COUNTER";
const OCTETS: &str = "SAI_PORT_STAT_IF_IN_OCTETS";
const PACKETS: &str = "SAI_PORT_STAT_IF_IN_UCAST_PKTS";

struct Bench {
    syncd: Syncd<VirtualSwitch>,
    /// Ports, by VID.
    ports: Vec<Oid>,
    changes: Vec<PollChange>,
}

impl Bench {
    fn new() -> Bench {
        let chip = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
        let mut bench = Bench {
            syncd: Syncd::new(chip, Box::new(VidCounter::default())),
            ports: Vec::new(),
            changes: Vec::new(),
        };
        bench.call(SaiCall::View(View::Init));
        let item = Item::new(SWITCH, [Attr::SwitchInit(true)]);
        bench.call(SaiCall::One { verb: Verb::Create, object: ObjectType::Switch, item });
        let ports = Attr::SwitchPortList(vec![Oid::NULL; 32].into());
        let get = SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs: vec![ports] };
        let values = bench.call(get);
        let [Attr::SwitchPortList(ports)] = &values[..] else { panic!("{values:?}") };
        bench.ports = ports.to_vec();
        for port in bench.ports.clone() {
            let item = Item::new(port, [Attr::PortAdminState(true)]);
            bench.call(SaiCall::One { verb: Verb::Set, object: ObjectType::Port, item });
        }
        bench.call(SaiCall::View(View::Apply));
        bench
    }

    fn call(&mut self, call: SaiCall) -> Vec<Attr> {
        let mut out = SyncdOut::default();
        self.syncd.handle(SaiRequest { id: 1, call }, &mut out);
        self.changes.append(&mut out.polls);
        let reply = out.replies.pop().unwrap();
        assert_eq!(reply.status, Status::Success);
        reply.values
    }

    fn request(&mut self, op: CounterOp, key: &str, fields: &[(&str, &str)]) {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        self.call(SaiCall::Query(Query::Poll { op, key: key.into(), fields }));
    }

    fn set(&mut self, fields: &[(&str, &str)]) {
        self.request(CounterOp::SetGroup, GROUP, fields);
    }

    fn start(&mut self, port: usize) {
        let key = format!("{GROUP}:{}", self.ports[port]);
        self.request(CounterOp::StartPoll, &key, &[("PORT_COUNTER_ID_LIST", &format!("{OCTETS},{PACKETS}"))]);
    }

    /// A frame of so many bytes to a port.
    fn arrives(&mut self, port: usize, bytes: usize) {
        let switch = self.syncd.chip_mut();
        let (number, _) = switch.front_panel()[port];
        let frame = vec![2; bytes];
        switch.packet(Interface::Port(number), Frame::from(&frame[..]), &mut |_, _| {});
    }

    /// The rows of a poll, and when to poll again.
    fn poll(&mut self, now_ms: u64, max: usize) -> (Vec<(Oid, String)>, Option<u64>) {
        let mut polled = Polled::default();
        let again = self.syncd.poll_counters(now_ms, max, &mut polled);
        let text = |fields: &[(Name, Name)]| {
            fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        (polled.rows.iter().map(|(oid, fields)| (*oid, text(fields))).collect(), again)
    }
}

fn row(octets: u64, packets: u64) -> String {
    format!("{OCTETS}={octets} {PACKETS}={packets}")
}

#[test]
fn counters_of_ports_are_polled_as_their_group_says() {
    let mut bench = Bench::new();
    assert_eq!(bench.poll(0, 8), (vec![], None));
    // As SONiC's orchagent sets it at its start, disabled.
    bench.set(&[
        ("POLL_INTERVAL", "1000"),
        ("STATS_MODE", "STATS_MODE_READ"),
        ("FLEX_COUNTER_STATUS", "disable"),
    ]);
    bench.start(0);
    bench.start(1);
    bench.arrives(1, 100);
    assert_eq!(bench.poll(10, 8), (vec![], None));
    bench.set(&[("FLEX_COUNTER_STATUS", "enable")]);
    let (first, second) = (bench.ports[0], bench.ports[1]);
    assert_eq!(bench.poll(10, 8), (vec![(first, row(0, 0)), (second, row(100, 1))], Some(1010)));
    bench.arrives(1, 60);
    assert_eq!(bench.poll(1009, 8), (vec![], Some(1010)));
    assert_eq!(bench.poll(1010, 8).0[1], (second, row(160, 2)));
    // With cleared counters each row counts from the previous poll.
    bench.set(&[("STATS_MODE", "STATS_MODE_READ_AND_CLEAR"), ("POLL_INTERVAL", "100")]);
    assert_eq!(bench.poll(3000, 8), (vec![(first, row(0, 0)), (second, row(160, 2))], Some(3100)));
    assert_eq!(bench.poll(3100, 8).0[1], (second, row(0, 0)));
    bench.request(CounterOp::StopPoll, &format!("{GROUP}:{second}"), &[]);
    assert_eq!(bench.poll(4000, 8).0, [(first, row(0, 0))]);
    bench.request(CounterOp::DelGroup, GROUP, &[]);
    assert_eq!(bench.poll(9000, 8), (vec![], None));
}

#[test]
fn a_group_is_polled_in_turns_and_then_its_scripts_run() {
    let mut bench = Bench::new();
    (0..32).for_each(|port| bench.start(port));
    bench.set(&[
        ("POLL_INTERVAL", "1000"),
        ("FLEX_COUNTER_STATUS", "enable"),
        ("PORT_PLUGIN_LIST", "c08c,5672"),
    ]);
    let mut polled = Polled::default();
    let mut turns = 0;
    while bench.syncd.poll_counters(50, 5, &mut polled) == Some(0) {
        turns += 1;
        assert!(polled.rows.len() == turns * 5 && polled.scripts.is_empty());
    }
    assert_eq!((turns, polled.rows.len()), (6, 32));
    let mut oids: Vec<Oid> = polled.rows.iter().map(|(oid, _)| *oid).collect();
    oids.dedup();
    assert_eq!(oids.len(), 32);
    let scripts: Vec<_> =
        polled.scripts.iter().map(|of| (&*of.sha, of.objects.len(), of.interval_ms)).collect();
    assert_eq!(scripts, [("c08c", 32, 1000), ("5672", 32, 1000)]);
}

#[test]
fn settings_of_an_earlier_syncd_are_restored_and_a_new_orchagent_resets_them() {
    let mut bench = Bench::new();
    bench.set(&[("POLL_INTERVAL", "1000"), ("FLEX_COUNTER_STATUS", "enable")]);
    bench.start(3);
    let kept = std::mem::take(&mut bench.changes);
    assert_eq!(kept.first(), Some(&PollChange::Reset));
    let mut next = Bench::new();
    kept.iter().for_each(|change| next.syncd.restore_poll(change));
    assert_eq!(next.poll(5, 8), (vec![(next.ports[3], row(0, 0))], Some(1005)));
    // INIT_VIEW on a running chip.
    next.call(SaiCall::View(View::Init));
    assert_eq!(next.poll(5000, 8), (vec![], None));
}
