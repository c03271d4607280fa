//! Threads that are bound to other CPUs while sessions last.

use super::*;
use ribtide_runtime::cpu::Cpus;

fn with_cpus(line: &str) -> BgpConfig {
    let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{line}\n{CLIENTS}");
    config::parse(&text).unwrap().bgp.unwrap()
}

/// Where each stage runs.
fn places(router: &Router) -> Vec<Cpus> {
    let bgp = router.bgp();
    let place = || Cpus::allowed().unwrap();
    let readers = bgp.readers.iter().map(|reader| reader.call(move |_| place()).unwrap());
    let shards =
        bgp.owners.read().shards.clone().into_iter().map(|shard| shard.call(move |_| place()).unwrap());
    let workers = bgp.workers.running().into_iter().map(|(_, worker)| worker.call(move |_| place()).unwrap());
    let sessions = bgp.sessions.call(move |_| place()).unwrap();
    readers.chain(shards).chain(workers).chain([sessions]).collect()
}

#[test]
fn set_cpus_binds_every_thread_and_later_shards_and_lets_them_go_again() {
    for threads in THREADS {
        let router = Router::with(threads, CLIENTS);
        let (bgp, any) = (router.bgp(), Cpus::allowed().unwrap());
        let mut a = Peer::up(&router, "127.0.0.11", 65001);
        let mut b = Peer::up(&router, "127.0.0.12", 65001);
        let last = any.one(any.len() - 1);
        let one = with_cpus(&format!("cpus = \"{last}\""));
        assert!(bgp.set_cpus(&one).unwrap() && !bgp.set_cpus(&one).unwrap());
        assert!(places(&router).iter().all(|place| *place == last), "{threads}: {:?}", places(&router));
        if !bgp.hosted().shards {
            bgp.resize(Threads::Number(5), None).unwrap();
            assert!(places(&router).iter().all(|place| *place == last), "{threads}: later shards");
        }
        a.announce(&p4(0, 100));
        b.until("routes flow", |p| p.routes.len() == 100);
        assert!(bgp.set_cpus(&with_cpus("")).unwrap());
        assert!(places(&router).iter().all(|place| *place == any), "{threads}: anywhere");
        a.withdraw(&p4(0, 100));
        b.until("routes flow", |p| p.routes.is_empty());
        assert_eq!(router.neighbor("127.0.0.12").unwrap().flaps, 0);
    }
    assert!(
        check_cpus(&with_cpus("cpus = \"1000\"").cpus).unwrap_err().contains("bgp.cpus cannot be obeyed")
    );
}
