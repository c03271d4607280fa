//! Monitors that begin and end while sessions last.

use super::*;
use crate::monitor::{Feed, MonitorIn, SessionNews, Tap, Wanted};
use ribtide_bgp::peer::PeerId;

/// The kinds of the messages that have come, each once.
fn kinds(feed: &Feed) -> BTreeSet<&'static str> {
    std::iter::from_fn(|| feed.data.try_recv())
        .map(|message| match message {
            MonitorIn::Received(_) => "received",
            MonitorIn::Accepted(_) => "accepted",
            MonitorIn::Best(_) => "best",
            MonitorIn::Sent(_) => "sent",
            _ => "another",
        })
        .collect()
}

/// The peers whose sessions have begun.
fn begun(feed: &Feed) -> Vec<PeerId> {
    let news = std::iter::from_fn(|| feed.sessions.try_recv());
    news.filter_map(|news| if let SessionNews::Up(up) = news { Some(up.info.id) } else { None }).collect()
}

#[test]
fn set_bmp_every_stage_sends_from_then_on_and_none_keeps_the_queue() {
    for threads in THREADS {
        let keeps = CLIENTS.replace("passive = true", "passive = true\nkeep-received = true");
        let router = Router::with(threads, &keeps);
        let bgp = router.bgp();
        let mut a = Peer::up(&router, "127.0.0.11", 65001);
        a.announce(&p4(0, 10));
        let rings = Rings::default();
        for round in 0..2 {
            let (tap, feed) = Tap::new("BMP", &rings, None);
            feed.want(
                [Wanted::RECEIVED, Wanted::ACCEPTED, Wanted::BEST, Wanted::SENT]
                    .into_iter()
                    .fold(Wanted::default(), Wanted::and),
            );
            bgp.set_bmp(Some(&tap)).unwrap();
            drop(tap);
            let mut b = Peer::up(&router, "127.0.0.12", 65001);
            let id = router.neighbor("127.0.0.12").unwrap().id;
            a.announce(&p4(100 * (round + 1), 10));
            b.until("the routes", |p| p.routes.len() == 10 * (round as usize + 2));
            let mut all = BTreeSet::new();
            until("a message of each stage", || {
                all.append(&mut kinds(&feed));
                all.is_superset(&BTreeSet::from(["received", "accepted", "best", "sent"]))
            });
            assert_eq!(begun(&feed), [id], "{threads}");
            bgp.set_bmp(None).unwrap();
            // Every producer is gone.
            until("nothing is left", || feed.data.next_now().is_err() && feed.sessions.next_now().is_err());
            a.announce(&p4(500 + 100 * round, 1));
            drop(b);
            until("the end of the session", || router.neighbor("127.0.0.12").is_some_and(|n| n.up.is_none()));
            a.withdraw(&p4(500 + 100 * round, 1));
        }
        assert_eq!(router.neighbor("127.0.0.11").unwrap().flaps, 0);
    }
}

#[test]
fn set_bmp_shards_of_a_later_resize_send_to_it() {
    let router = Router::with("shards = 1\nupdate-threads = 2", CLIENTS);
    let bgp = router.bgp();
    let mut a = Peer::up(&router, "127.0.0.11", 65001);
    let (tap, feed) = Tap::new("BMP", &Rings::default(), None);
    feed.want(Wanted::BEST);
    bgp.set_bmp(Some(&tap)).unwrap();
    drop(tap);
    bgp.resize(Threads::Number(4), None).unwrap();
    a.announce(&p4(0, 500));
    let mut best = 0;
    until("the best paths of all shards", || {
        best += std::iter::from_fn(|| feed.data.try_recv())
            .map(|message| if let MonitorIn::Best(batch) = message { batch.changes.v4.len() } else { 0 })
            .sum::<usize>();
        best == 500
    });
    bgp.resize(Threads::Number(2), None).unwrap();
    bgp.set_bmp(None).unwrap();
    until("retired shards have none either", || feed.data.next_now().is_err());
}

#[test]
fn set_mrt_readers_send_from_then_on_and_none_keeps_the_queue() {
    let router = Router::start(CLIENTS);
    let bgp = router.bgp();
    let mut a = Peer::up(&router, "127.0.0.11", 65001);
    let (tap, feed) = Tap::lossy("MRT", &Rings::default(), None);
    feed.want(Wanted::ALL_RECEIVED);
    bgp.set_mrt(Some(&tap)).unwrap();
    drop(tap);
    a.announce(&p4(0, 10));
    until("what was received", || kinds(&feed) == BTreeSet::from(["received"]));
    let _b = Peer::up(&router, "127.0.0.12", 65001);
    assert_eq!(begun(&feed), [router.neighbor("127.0.0.12").unwrap().id]);
    bgp.set_mrt(None).unwrap();
    until("nothing is left", || feed.data.next_now().is_err() && feed.sessions.next_now().is_err());
}
