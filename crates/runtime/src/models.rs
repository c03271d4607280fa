//! Models of what threads share here. loom runs each in every order of its threads, up to a number of
//! preemptions, and with every value that a load may return. `scripts/loom` runs them; docs/trust.md
//! lists what each shows.
//!
//! A thread that nothing wakes is a deadlock, which loom reports. So a model whose threads only end
//! shows that no wake-up is lost.

use crate::activity::Activity;
use crate::call;
use crate::handover::{PollPace, WriterProgress};
use crate::ring::{Closed, Rings, TrySend};
use crate::stop::Stop;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::channel::{Select, bounded};
use crate::wake_up;
use crate::watchdog::PeerWait;
use loom::thread::spawn;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of a sleep that only a wake-up ends.
const LONG: Duration = Duration::MAX;

#[test]
fn ring_keeps_all_batches_their_order_and_its_bound() {
    loom::model(|| {
        let rings = Rings::default();
        let (tx, rx) = rings.bounded("readers to shard 0", 1);
        let producer = spawn(move || (0..3).for_each(|batch| tx.send(batch).unwrap()));
        let mut batches = Vec::new();
        while let Ok(batch) = rx.recv() {
            assert!(rx.len() <= 1);
            batches.push(batch);
        }
        assert_eq!(batches, [0, 1, 2]);
        producer.join().unwrap();
        let reading = &rings.read()[0];
        assert_eq!((reading.depth, reading.sent), (0, 3));
        assert!(reading.peak <= 1);
    });
}

#[test]
fn ring_depth_is_never_0_while_a_sent_batch_waits() {
    loom::model(|| {
        let rings = Rings::default();
        let (tx, rx) = rings.bounded("readers to shard 0", 2);
        tx.send(0).unwrap();
        // One always waits.
        let stage = spawn(move || {
            tx.send(1).unwrap();
            assert_eq!(rx.recv(), Ok(0));
            (tx, rx)
        });
        assert!(rings.read()[0].depth > 0);
        assert!(rings.progress()[0].depth > 0);
        let (_tx, rx) = stage.join().unwrap();
        assert_eq!((rings.read()[0].depth, rings.progress()[0].depth, rx.len()), (1, 1, 1));
    });
}

#[test]
fn ring_closed_by_one_side_ends_the_other() {
    loom::model(|| {
        let (tx, rx) = Rings::default().bounded("readers to shard 0", 1);
        tx.send(0).unwrap();
        // It blocks, until there is room or no consumer.
        let producer = spawn(move || tx.send(1));
        let first = rx.try_recv();
        drop(rx);
        assert_eq!(first, Some(0));
        let sent = producer.join().unwrap();
        assert!(matches!(sent, Ok(()) | Err(Closed)));
    });
    loom::model(|| {
        let (tx, rx) = Rings::default().bounded::<u8>("readers to shard 0", 1);
        let consumer = spawn(move || rx.recv());
        drop(tx);
        assert_eq!(consumer.join().unwrap(), Err(Closed));
    });
}

#[test]
fn ring_in_a_select_wakes_for_each_batch_and_sleeps_once_closed() {
    loom::model(|| {
        let rings = Rings::default();
        let (tx, rx) = rings.bounded("dataplanes to RIB", 1);
        let (last_tx, last) = rings.bounded("shards to RIB", 1);
        let producer = spawn(move || {
            tx.send(1).unwrap();
            drop(tx);
            last_tx.send(2).unwrap();
        });
        let mut batches = Vec::new();
        // Without the sleep after the close, this turns without an end.
        while !batches.contains(&2) {
            let mut select = Select::new();
            rx.watch(&mut select);
            last.watch(&mut select);
            select.ready();
            while let Ok(Some(batch)) = rx.next_now() {
                batches.push(batch);
            }
            batches.extend(last.try_recv());
        }
        assert_eq!(batches, [1, 2]);
        producer.join().unwrap();
    });
}

#[test]
fn ring_with_room_again_wakes_a_producer_that_watches_it() {
    loom::model(|| {
        let (tx, rx) = Rings::default().bounded("RIB to kernel", 1);
        tx.send(1).unwrap();
        let consumer = spawn(move || [rx.recv(), rx.recv()]);
        let mut batch = 2;
        while let Err(TrySend::Full(back)) = tx.try_send(batch) {
            batch = back;
            let mut select = Select::new();
            tx.watch_room(&mut select);
            select.ready();
        }
        assert_eq!(consumer.join().unwrap(), [Ok(1), Ok(2)]);
    });
}

#[test]
fn ring_wakes_a_consumer_that_sleeps_elsewhere_after_the_batch_is_in() {
    loom::model(|| {
        let (tx, rx) = Rings::default().bounded("workers to sessions", 1);
        let (waker, poll) = wake_up::pair();
        let tx = tx.with_wake(Some(Arc::new(move || waker.wake())));
        let producer = spawn(move || tx.send(1).unwrap());
        let batch = loop {
            assert!(poll.wait_timeout(LONG));
            if let Some(batch) = rx.try_recv() {
                break batch;
            }
        };
        assert_eq!(batch, 1);
        producer.join().unwrap();
    });
}

#[test]
fn wake_up_that_is_taken_before_the_check_loses_no_change() {
    loom::model(|| {
        let (waker, wake_up) = wake_up::pair();
        let changes = Arc::new(AtomicUsize::new(0));
        let (its_waker, its_changes) = (waker.clone(), changes.clone());
        let thread = spawn(move || {
            for change in 1..=2 {
                its_changes.store(change, Relaxed);
                its_waker.wake();
            }
        });
        // The other waker lives on, so the end of the thread is no wake-up.
        while changes.load(Relaxed) < 2 {
            let mut select = Select::new();
            wake_up.watch(&mut select);
            select.ready();
            assert_eq!(wake_up.take(), Ok(true));
        }
        thread.join().unwrap();
        drop(waker);
    });
}

#[test]
fn call_has_a_result_or_finds_the_stage_stopped() {
    loom::model(|| {
        let (handle, calls) = call::pair::<u32>("shard");
        let stage = spawn(move || {
            // It ends with or without having seen the call.
            calls.serve(&mut 7);
        });
        let result = handle.start(|state| *state).and_then(|pending| pending.wait());
        assert!(result.is_err() || result == Ok(7));
        stage.join().unwrap();
        assert!(handle.wait(|state| *state).is_err());
    });
}

#[test]
fn call_wakes_a_stage_that_sleeps() {
    loom::model(|| {
        let (handle, calls) = call::pair::<u32>("shard");
        let stage = spawn(move || {
            let mut select = Select::new();
            calls.watch(&mut select);
            select.ready();
            calls.serve(&mut 7);
        });
        assert_eq!(handle.wait(|state| *state), Ok(7));
        stage.join().unwrap();
    });
    loom::model(|| {
        let (handle, calls) = call::pair::<u32>("sessions");
        let (waker, poll) = wake_up::pair();
        let handle = handle.with_wake(Some(Arc::new(move || waker.wake())));
        let stage = spawn(move || {
            assert!(poll.wait_timeout(LONG));
            calls.serve(&mut 7);
        });
        assert_eq!(handle.wait(|state| *state), Ok(7));
        stage.join().unwrap();
    });
}

#[test]
fn stop_calls_a_hook_once_whenever_it_is_registered() {
    loom::model(|| {
        let (stop, calls) = (Stop::default(), Arc::new(AtomicUsize::new(0)));
        let (its_stop, its_calls) = (stop.clone(), calls.clone());
        let registers = spawn(move || its_stop.on_stop(move || _ = its_calls.fetch_add(1, Relaxed)));
        stop.stop();
        let hook = registers.join().unwrap();
        assert_eq!(calls.load(Relaxed), 1);
        drop(hook);
    });
}

#[test]
fn stop_wakes_a_thread_that_begins_to_sleep_meanwhile() {
    loom::model(|| {
        let stop = Stop::default();
        let its_stop = stop.clone();
        let sleeper = spawn(move || assert!(its_stop.signal().sleep(LONG)));
        stop.stop();
        sleeper.join().unwrap();
    });
    loom::model(|| {
        let stop = Stop::default();
        let its_stop = stop.clone();
        let sleeper = spawn(move || {
            let signal = its_stop.signal();
            let mut select = Select::new();
            signal.watch(&mut select);
            select.ready();
            assert!(its_stop.stopped());
        });
        stop.stop();
        sleeper.join().unwrap();
    });
}

#[test]
fn stop_does_not_call_a_hook_twice_when_it_is_dropped_or_stopped_again() {
    loom::model(|| {
        let (stop, calls) = (Stop::default(), Arc::new(AtomicUsize::new(0)));
        let its_calls = calls.clone();
        let hook = stop.on_stop(move || _ = its_calls.fetch_add(1, Relaxed));
        let other = stop.clone();
        let stops = spawn(move || other.stop_and_remove());
        drop(hook);
        stop.stop();
        let removes = stop.removes();
        stops.join().unwrap();
        assert!(calls.load(Relaxed) <= 1);
        assert_eq!((stop.stopped(), stop.removes()), (true, removes), "the first stop wins");
    });
}

#[test]
fn activity_is_not_idle_before_the_last_batch_and_is_with_it() {
    loom::model(|| {
        let activity = Activity::default();
        let mut watch = activity.watch();
        assert!(watch.idle());
        let (tx, rx) = bounded(1);
        let (taken, go_on) = bounded(1);
        let stage = spawn(move || {
            // A stage may start after the first look of the watch.
            let mut busy = activity.stage();
            busy.set(true);
            tx.send(1).unwrap();
            go_on.recv().unwrap();
            busy.set(false);
            tx.send(2).unwrap();
            busy
        });
        assert_eq!(rx.recv(), Ok(1));
        assert!(!watch.idle(), "another batch follows");
        taken.send(()).unwrap();
        assert_eq!(rx.recv(), Ok(2));
        assert!(watch.idle(), "it was the last batch");
        drop(stage.join().unwrap());
        assert!(watch.idle());
    });
}

#[test]
fn activity_of_stages_that_start_at_the_same_time_is_seen() {
    loom::model(|| {
        let activity = Activity::default();
        let mut watch = activity.watch();
        let (tx, rx) = bounded(2);
        let stages = [(); 2].map(|()| {
            let (activity, tx) = (activity.clone(), tx.clone());
            spawn(move || {
                let mut busy = activity.stage();
                busy.set(true);
                tx.send(()).unwrap();
                busy
            })
        });
        // It may look while a stage starts, and must look again then.
        watch.idle();
        rx.recv().unwrap();
        assert!(!watch.idle());
        rx.recv().unwrap();
        let [first, second] = stages.map(|stage| stage.join().unwrap());
        drop(first);
        assert!(!watch.idle(), "the other one is busy");
        drop(second);
        assert!(watch.idle());
    });
}

#[test]
fn peer_wait_that_is_seen_names_its_thread() {
    loom::model(|| {
        let wait = PeerWait::new("the peer of a model".into());
        let seen = wait.clone();
        // The other way round loom 0.7 leaves out the orders that matter: `begin` loads first.
        let watchdog = spawn(move || {
            if seen.lasted(Instant::now()).is_some() {
                assert_ne!(seen.thread(), 0, "a stall of its queue would seem to be its own");
            }
        });
        wait.begin();
        watchdog.join().unwrap();
        assert!(wait.lasted(Instant::now()).is_some());
        wait.end();
        assert!(wait.lasted(Instant::now()).is_none());
    });
}

#[test]
fn writer_progress_shows_a_loss_with_what_was_written_after_it() {
    loom::model(|| {
        let progress = Arc::new(WriterProgress::new(0));
        let writes = progress.clone();
        let writer = spawn(move || {
            writes.note(1, 0);
            // The database is lost, and is back without the first entry.
            writes.note(2, 1);
        });
        let done = progress.done();
        let generation = progress.generation();
        assert!(done < 2 || generation == 1, "the reader would take the first entry for kept");
        writer.join().unwrap();
        assert_eq!((progress.done(), progress.generation()), (2, 1));
    });
}

#[test]
fn poll_pace_hurry_is_never_undone_by_a_slow_down() {
    loom::model(|| {
        let (pace, news) = (Arc::new(PollPace::default()), Arc::new(AtomicUsize::new(0)));
        let (waker, woken) = wake_up::pair();
        let (its_pace, its_news) = (pace.clone(), news.clone());
        let thread = spawn(move || {
            // The thread polls, and sleeps until a wake-up where it may.
            loop {
                its_pace.begin_round();
                if its_news.load(Relaxed) == 1 {
                    return;
                }
                if its_pace.slow_down() {
                    assert!(woken.wait_timeout(LONG));
                }
            }
        });
        news.store(1, Relaxed);
        if pace.hurry() {
            waker.wake();
        }
        thread.join().unwrap();
    });
}
