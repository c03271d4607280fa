//! Batches that are written together, piece by piece.

use super::*;

/// The writer, one step at a time, and the other ends of its rings.
struct Steps {
    writer: Writer,
    batches: ring::Sender<Arc<FibBatch>>,
    urgent: ring::Sender<Vec<UrgentOp>>,
    said: ring::Receiver<RibIn>,
    notes: ring::Sender<Note>,
}

impl Steps {
    fn new() -> Steps {
        let rings = Rings::default();
        let (feedback, said) = rings.bounded("feedback", FEEDBACK);
        let rib = ToRib { failures: feedback.clone(), feedback, confirms: Arc::default() };
        let (stop, meter) = (Stop::default(), Meters::default().meter("kernel"));
        let (port, Outlet { batches, urgent }) = Port::new(0, "kernel", &rings, rib, meter, stop);
        let (notes, noted) = rings.bounded("notes", NOTES);
        let writer = Writer {
            kernel: open(),
            config: config(),
            listed: Listed::default(),
            port,
            noted,
            writing_port: Arc::default(),
            replayed: false,
            window: None,
        };
        Steps { writer, batches, urgent, said, notes }
    }

    fn send(&self, seq: u64, batch: Batch) {
        self.batches.send(Arc::new(FibBatch { seq, ..batch.0 })).unwrap();
    }

    fn step(&mut self) {
        self.writer.step().unwrap().unwrap();
    }

    fn acks(&self) -> Vec<FibAck> {
        let ack = |message| match message {
            RibIn::Ack(ack) => ack,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| self.said.try_recv()).map(ack).collect()
    }
}

#[test]
fn what_overtakes_comes_between_pieces_and_each_route_is_told_of_once() {
    in_namespace("pieces::what_overtakes_comes_between_pieces_and_each_route_is_told_of_once", || {
        let mut steps = Steps::new();
        let (left, right) = (hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", 1));
        let impossible = hop("99.9.9.9", "v0", 1);
        let start = Batch::start().group(1, &[left]).group(2, &[right]).group(9, &[impossible]);
        steps.send(1, start.route("192.0.2.0/24", Some(1)).end());
        steps.step();
        steps.step();
        assert_eq!(steps.acks(), [FibAck { dataplane: 0, seq: 1, failed: vec![], installed: vec![] }]);

        // Three batches are one window, and the order of their changes counts: of the first 1,000 prefixes some come and
        // go again, and others turn to the other group.
        let prefix = |n: usize| format!("20.{}.{}.0/24", n / 256, n % 256);
        let some = |batch: Batch, numbers: std::ops::Range<usize>, group| {
            numbers.fold(batch, |batch, n| batch.route(&prefix(n), group))
        };
        let refused = "9.0.0.0/24";
        steps.send(2, some(Batch::default().route(refused, Some(1)), 0..2000, Some(1)));
        let turned = some(Batch::default().route(refused, None), 0..500, None);
        steps.send(3, some(turned, 500..1000, Some(2)));
        steps.send(4, some(Batch::default().route(refused, Some(9)), 2000..5000, Some(1)));
        steps.send(5, some(Batch::default().after(2), 500..1000, Some(1)));
        steps.step();
        steps.step();
        let there = |prefix: &str| try_ip(&format!("route show table 1000 {prefix}")).unwrap();
        assert!(!there(&prefix(2000)).is_empty() && there(&prefix(2100)).is_empty(), "a piece is written");
        assert_eq!(there(&prefix(100)), "");
        assert_eq!(there(refused), "");

        // Neither what overtakes nor a look at everything tells of routes whose batch is not done.
        let op = Batch::default().group(1, &[right]).0.groups.remove(0);
        steps.urgent.send(vec![UrgentOp { after: 5, made: 1, op }]).unwrap();
        steps.step();
        assert!(there(&prefix(2000)).contains("10.0.1.2") && there(&prefix(2100)).is_empty());
        steps.notes.send(Note::Lost).unwrap();
        steps.step();
        assert!(!there(&prefix(2100)).is_empty());
        assert_eq!(steps.acks(), []);

        while steps.writer.window.is_some() {
            steps.step();
        }
        let acks = steps.acks();
        let [FibAck { seq: 5, failed, installed, .. }] = &acks[..] else { panic!("{acks:?}") };
        assert_eq!(failed.iter().map(|(route, _)| route.prefix.to_string()).collect::<Vec<_>>(), [refused]);
        assert_eq!(*installed, []);
        let table = table();
        assert_eq!(table.len(), 1 + 4500);
        assert!(table.values().all(|hops| hops[0].contains("10.0.1.2")), "the newest content of their group");
    });
}
