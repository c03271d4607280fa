//! Path identifiers on their way to the shards.

use super::*;
use ribtide_prefix::ByFamily;
use ribtide_prefix::Rng;
use ribtide_wire::bgp::nlri::PathPrefix;
use std::collections::BTreeSet;

/// A session with path identifiers in IPv4.
fn session(settings: IngestSettings) -> IngestPeer {
    let info = peer(PeerKind::External, settings.clone()).info().clone();
    let path_ids = FamilySet::IPV4_UNICAST;
    IngestPeer::new(Arc::new(PeerInfo { path_ids, ..(*info).clone() }), settings)
}

fn path(prefix: u32, path_id: u32) -> PathPrefix<V4> {
    PathPrefix { prefix: Prefix::new(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (prefix << 8), 24), path_id }
}

/// The body of an UPDATE that announces these paths, or withdraws them.
fn update(announce: bool, paths: &[PathPrefix<V4>]) -> Vec<u8> {
    let attributes = attributes(&[65001], |_| {});
    let mut out = Vec::new();
    match announce {
        true => {
            let next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 3));
            let packer = UpdatePacker::new(&attributes, next_hop, 4096);
            assert_eq!(packer.announce(paths.iter().copied(), &mut out), Ok(1));
        }
        false => assert_eq!(build::withdraw(paths.iter().copied(), 4096, &mut out), 1),
    }
    out.split_off(HEADER)
}

/// What each thread gets: thread, whether it is announced, and the path.
fn routes(out: &mut ShardBatches) -> Vec<(u16, bool, PathPrefix<V4>)> {
    let mut routes = Vec::new();
    for (thread, batch) in out.drain() {
        let mut prefixes = batch.prefixes.v4.into_iter();
        for op in batch.ops {
            for prefix in prefixes.by_ref().take(op.count as usize) {
                routes.push((thread, op.attrs.is_some(), PathPrefix { prefix, path_id: op.path_id }));
            }
        }
        assert_eq!(prefixes.next(), None, "each prefix has an operation");
    }
    routes
}

#[test]
fn successive_prefixes_with_one_path_identifier_are_one_operation() {
    let (mut ingest, mut peer, mut out) =
        (Ingest::default(), session(settings()), ShardBatches::new([0; 64]));
    let paths = [path(0, 7), path(1, 7), path(0, 0), path(1, u32::MAX), path(2, u32::MAX), path(3, 7)];
    assert_eq!(ingest.update(&mut peer, &update(true, &paths), &mut out), Ok(None));
    let batches: Vec<_> = out.drain().collect();
    let ops: Vec<(u32, u32)> = batches[0].1.ops.iter().map(|op| (op.path_id, op.count)).collect();
    assert_eq!(ops, [(7, 2), (0, 1), (u32::MAX, 2), (7, 1)]);
    assert_eq!((peer.counters.announced, ingest.len()), (6, 1));
    ingest.update(&mut peer, &update(false, &paths[..3]), &mut out).unwrap();
    assert_eq!(routes(&mut out), [(0, false, paths[0]), (0, false, paths[1]), (0, false, paths[2])]);
    assert_eq!(peer.counters.withdrawn, 3);
    // Prefixes without identifiers end such a session (RFC 7911 section 3, RFC 7606 section 5.3).
    let plain = announce_v4(&attributes(&[65001], |_| {}), &["10.0.0.0/8"]);
    assert!(ingest.update(&mut peer, &plain, &mut out).is_err() && out.is_empty());
}

#[test]
fn every_thread_gets_its_paths_in_order_whatever_the_policy_and_the_martians_say() {
    let mut rng = Rng::new(7);
    let map: ShardMap = std::array::from_fn(|logical| logical as u16 % 3);
    for _ in 0..200 {
        let (mut ingest, mut peer, mut out) =
            (Ingest::default(), session(settings()), ShardBatches::new(map));
        let mut expected = Vec::new();
        for _ in 0..4 {
            let announce = rng.one_in(2);
            let paths: Vec<PathPrefix<V4>> = (0..1 + rng.index(40))
                .map(|_| match rng.one_in(10) && announce {
                    true => PathPrefix { prefix: Prefix::new(u32::MAX << 28, 4), path_id: 5 },
                    false => path(rng.index(50) as u32, rng.index(3) as u32),
                })
                .collect();
            ingest.update(&mut peer, &update(announce, &paths), &mut out).unwrap();
            let is_martian = |path: &&PathPrefix<V4>| path.prefix.len() == 4;
            let usable = paths.iter().filter(|path| !is_martian(path)).map(|path| (announce, *path));
            let martians = paths.iter().filter(is_martian).map(|path| (false, *path));
            expected.extend(usable.chain(martians));
        }
        let sent = routes(&mut out);
        for thread in 0..3 {
            let got =
                sent.iter().filter(|(at, ..)| *at == thread).map(|(_, announced, path)| (*announced, *path));
            let own = |(_, path): &&(bool, PathPrefix<V4>)| {
                map[usize::from(ribtide_prefix::logical_shard(path.prefix))] == thread
            };
            assert!(got.eq(expected.iter().filter(own).copied()));
        }
    }
}

#[test]
fn max_prefixes_counts_paths() {
    let limits = ByFamily::only(AfiSafi::Ipv4Unicast, Some(5));
    let max = MaxPrefixes { limits, action: LimitAction::Discard, warning: 100 };
    let mut peer = session(IngestSettings { max_prefixes: Some(max), ..settings() });
    let (mut ingest, mut out) = (Ingest::default(), ShardBatches::new([0; 64]));
    let mut rng = Rng::new(3);
    let mut model = BTreeSet::new();
    for _ in 0..2000 {
        let paths = [path(rng.index(3) as u32, rng.index(3) as u32)];
        let announce = rng.one_in(2);
        ingest.update(&mut peer, &update(announce, &paths), &mut out).unwrap();
        let beyond = announce && !model.contains(&paths[0]) && model.len() == 5;
        match announce && !beyond {
            true => model.insert(paths[0]),
            false => model.remove(&paths[0]),
        };
        assert_eq!(routes(&mut out), [(0, announce && !beyond, paths[0])]);
        assert_eq!(
            peer.prefix_count(AfiSafi::Ipv4Unicast),
            Some(PrefixCount { count: model.len() as u32, max: 5 })
        );
    }
    assert!(peer.counters.refused[Refusal::MaxPrefixes as usize] > 0);
}
