//! The kernel dataplane against the simulated kernel, one fault at a time.

use ribtide_config::KernelConfig;
use ribtide_dataplane::kernel::machine::KernelMachine;
use ribtide_dataplane::kernel::{SimulatedClock, System};
use ribtide_dataplane::{DataplaneSink, FEEDBACK, RibChannel, ToRib};
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, Protocol, RibIn};
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Receiver, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_sim::kernel::Kernel;
use ribtide_sim::kernel::faults::{Refusal, Request};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Clock(Instant, Kernel);

impl SimulatedClock for Clock {
    fn now(&self) -> Instant {
        self.0 + Duration::from_millis(self.1.state().now_ms())
    }

    fn sleep(&self, time: Duration) {
        self.1.state().pass(time.as_millis() as u64);
    }
}

struct Running {
    kernel: Kernel,
    machine: KernelMachine,
    sink: DataplaneSink,
    feedback: Receiver<RibIn>,
    seq: u64,
}

impl Running {
    fn start() -> Running {
        let kernel = Kernel::new();
        kernel.state().add_link(1, "eth1", &[([10, 0, 1, 1].into(), 24)]);
        let clock = Clock(Instant::now(), kernel.clone());
        let system = System::simulated(kernel.sockets(), Arc::new(clock));
        let rings = Rings::default();
        let (to, feedback) = rings.bounded("feedback", FEEDBACK);
        let rib = ToRib { failures: to.clone(), feedback: to, confirms: Arc::default() };
        let meter = Meters::default().meter("kernel");
        let (channel, sink) = RibChannel::new(0, "kernel", &rings, rib, meter, Stop::default());
        let config = KernelConfig { compat_mode: true, import: false, ..KernelConfig::default() };
        let machine = KernelMachine::open(&system, config, channel, &rings).expect("a kernel");
        Running { kernel, machine, sink, feedback, seq: 0 }
    }

    /// Writes a batch. Returns how many routes failed.
    fn write(&mut self, batch: FibBatch) -> usize {
        self.seq += 1;
        let sent = self.sink.batches.try_send(Arc::new(FibBatch { seq: self.seq, ..batch }));
        assert!(sent.is_ok(), "there is room");
        self.turn().0
    }

    /// The writer works. Returns how many routes failed, and how many do no longer.
    fn turn(&mut self) -> (usize, usize) {
        while self.machine.write().expect("the RIB manager runs") {}
        let (mut failed, mut installed) = (0, 0);
        while let Some(message) = self.feedback.try_recv() {
            if let RibIn::Ack(ack) = message {
                (failed, installed) = (failed + ack.failed.len(), installed + ack.installed.len());
            }
        }
        (failed, installed)
    }
}

/// The route `192.0.2.0/24` by a new group with this gateway. `after`: the group to delete.
fn route(group: u32, gateway: u8, after: Option<u32>) -> FibBatch {
    let gateway = Some([10, 0, 1, gateway].into());
    let hops = vec![FibHop { gateway, interface: 1, weight: 1, onlink: false }];
    let (id, prefix) = (GroupId(group), "192.0.2.0/24".parse().expect("a prefix"));
    let mut batch = FibBatch::default();
    batch.groups.push(GroupOp { id, content: FibGroup::Hops(hops), source: None });
    batch.routes.v4.push(FibRoute { prefix, group: Some(id), protocol: Protocol::BgpExternal });
    batch.after.extend(after.map(GroupId));
    batch
}

#[test]
fn refused_deletion_of_objects_keeps_their_ids_and_is_repeated() {
    let mut router = Running::start();
    let first = FibBatch { start_of_replay: true, end_of_replay: true, ..route(1, 2, None) };
    assert_eq!(router.write(first), 0);
    let refusal = Refusal { request: Request::DeleteObject, errno: libc::ENOMEM, after: 0, count: 2 };
    router.kernel.state().faults.refuse(refusal);
    // The group and the single object of the former next hop stay, so their ids are not free.
    assert_eq!(router.write(route(2, 3, Some(1))), 0);
    assert_eq!(router.kernel.state().objects().len(), 4);
    assert_eq!(router.write(route(3, 4, Some(2))), 0);
    assert_eq!(router.kernel.state().objects().len(), 2, "the deletions are repeated");

    // Without another batch, the comparison repeats them.
    router.kernel.state().faults.refuse(Refusal { count: 2, ..refusal });
    assert_eq!(router.write(route(4, 5, Some(3))), 0);
    assert_eq!(router.kernel.state().objects().len(), 4);
    router.kernel.state().pass(20_000);
    while router.machine.write().expect("the RIB manager runs") {}
    assert_eq!(router.kernel.state().objects().len(), 2);
}

#[test]
fn routes_of_a_group_whose_change_is_refused_have_failed() {
    let mut router = Running::start();
    let first = FibBatch { start_of_replay: true, end_of_replay: true, ..route(1, 2, None) };
    assert_eq!(router.write(first), 0);
    let refusal = Refusal { request: Request::NewObject, errno: libc::ENOMEM, after: 1, count: 2 };
    router.kernel.state().faults.refuse(refusal);
    // Only the group changes: no batch names its route.
    let FibBatch { groups, .. } = route(1, 3, None);
    assert_eq!(router.write(FibBatch { groups, ..FibBatch::default() }), 1);
    router.kernel.state().pass(20_000);
    assert_eq!(router.turn(), (0, 1), "the comparison writes the group again");
}
