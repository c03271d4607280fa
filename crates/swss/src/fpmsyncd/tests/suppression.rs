//! FIB suppression turned on and off.

use super::*;

fn offloaded(bench: &mut Bench) -> Vec<String> {
    let mut offloaded: Vec<String> =
        bench.out.offloads.drain(..).map(|offload| offload.prefix.to_string()).collect();
    offloaded.sort();
    offloaded
}

fn answer(bench: &mut Bench, key: &str) {
    bench.machine.confirm_all(None, "bgp", std::iter::once(prefix(key)), &mut bench.out);
}

#[test]
fn off_tells_who_waits_and_on_has_them_wait_again() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    let keys = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"];
    keys.iter().take(3).for_each(|key| bench.route(key, "10.0.0.1", 7));
    bench.take();
    // One is in the chip, one was refused, one is not answered, and one is not handed over.
    bench.route(keys[3], "10.0.0.1", 7);
    answer(&mut bench, keys[0]);
    let row = (prefix(keys[1]), bgp_row("10.0.0.1").digest());
    bench.machine.refused(None, &"no room".into(), std::iter::once(row), &mut bench.out);
    assert_eq!(offloaded(&mut bench), keys[..2]);

    bench.machine.suppress(false, &mut bench.out);
    assert_eq!(offloaded(&mut bench), keys[1..], "once each, but for those that were offloaded before");
    bench.machine.suppress(false, &mut bench.out);
    bench.take();
    keys.iter().for_each(|key| answer(&mut bench, key));
    assert_eq!(offloaded(&mut bench), [""; 0], "late answers");
    bench.route(keys[0], "10.0.0.2", 7);
    assert_eq!(offloaded(&mut bench), keys[..1]);
    bench.take();

    bench.machine.suppress(true, &mut bench.out);
    bench.route(keys[1], "10.0.0.2", 7);
    bench.machine.recount([]);
    bench.machine.all_said();
    bench.take();
    assert_eq!(offloaded(&mut bench), [""; 0], "an offloaded route stays so, and a new one waits");
    answer(&mut bench, keys[0]);
    assert_eq!(offloaded(&mut bench), [""; 0], "no client waits for that");
    answer(&mut bench, keys[1]);
    assert_eq!(offloaded(&mut bench), keys[1..2]);
}

#[test]
fn who_was_there_before_the_session_does_not_wait() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.take();
    bench.reconnect();
    bench.machine.suppress(false, &mut bench.out);
    assert_eq!(offloaded(&mut bench), [""; 0], "its announcer is gone, and a new one has not said it");
    bench.machine.suppress(true, &mut bench.out);
    bench.machine.session_down();
    bench.machine.suppress(false, &mut bench.out);
    assert_eq!(offloaded(&mut bench), [""; 0]);
}

#[test]
fn who_waits_for_an_object_hears_of_it() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.by_id("10.1.0.0/16", 5);
    bench.by_id("10.2.0.0/16", 6);
    bench.take();
    bench.hop(5, "10.0.0.1", 7);
    bench.take();
    assert_eq!(offloaded(&mut bench), [""; 0]);
    answer(&mut bench, "10.1.0.0/16");
    assert_eq!(offloaded(&mut bench), ["10.1.0.0/16"]);
    bench.machine.suppress(false, &mut bench.out);
    assert_eq!(offloaded(&mut bench), ["10.2.0.0/16"]);
}

#[test]
fn a_client_of_ours_says_whether_it_waits_and_hears_whether_that_is_so() {
    let mut bench = Bench::new();
    assert_eq!((bench.machine.client_waits(), bench.out.in_chip), (None, None), "another's");
    bench.machine.suppress(true, &mut bench.out);
    assert_eq!(bench.out.in_chip, None, "it would not know the message");
    bench.send(Content::Multipart { ack: false });
    assert_eq!((bench.machine.client_waits(), bench.out.in_chip.take()), (Some(false), Some(true)));
    bench.machine.suppress(false, &mut bench.out);
    assert_eq!(bench.out.in_chip.take(), Some(false));
    bench.send(Content::Multipart { ack: true });
    assert_eq!((bench.machine.client_waits(), bench.out.in_chip.take()), (Some(true), Some(false)));
    bench.machine.session_down();
    bench.machine.suppress(true, &mut bench.out);
    assert_eq!((bench.machine.client_waits(), bench.out.in_chip), (None, None));
}
