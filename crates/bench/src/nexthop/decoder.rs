//! Decodes routes in FPM's form (netlink messages with inline next hops) into batches for the RIB
//! manager.

use ribtide_prefix::{AnyPrefix, Families, Map};
use ribtide_rib::{CacheMode, NONE, NextHops, Protocol, ReceivedHop, RouteBatch, RouteSet, Source, VrfId};
use ribtide_wire::netlink::numbers::RTM_DELROUTE;
use ribtide_wire::netlink::{self, Hops, Malformed, Route, Via, messages};

/// An encoded list of next hops.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Encoded<'a> {
    List(&'a [u8]),
    One(Via),
}

/// Decoded lists of a batch, with the set of each.
#[derive(Default)]
struct Memo<'a> {
    /// The last list, which is often equal to the next.
    last: Option<(Encoded<'a>, u32)>,
    all: Map<Encoded<'a>, u32>,
}

impl<'a> Memo<'a> {
    fn get(&mut self, list: Encoded<'a>) -> Option<u32> {
        if let Some((_, set)) = self.last.filter(|(last, _)| *last == list) {
            return Some(set);
        }
        let set = *self.all.get(&list)?;
        self.last = Some((list, set));
        Some(set)
    }

    fn put(&mut self, list: Encoded<'a>, set: u32) {
        self.all.insert(list, set);
        self.last = Some((list, set));
    }
}

/// Decodes `bytes` as routes of internal BGP.
///
/// With `dependency`, a list of next hops is decoded once per batch, and routes with equal bytes
/// share the set. In the other modes each route has a list of its own, as in zebra.
///
/// # Errors
/// The fault of the bytes.
pub(super) fn batch(bytes: &[u8], mode: CacheMode) -> Result<RouteBatch, Malformed> {
    let mut batch = RouteBatch {
        vrf: VrfId::DEFAULT,
        source: Source::Bgp,
        sets: Vec::new(),
        changes: Families::default(),
    };
    let mut memo = (mode == CacheMode::Dependency).then(Memo::default);
    for message in messages(bytes) {
        let message = message?;
        let mut known = None;
        let route = Route::decode_knowing(&message, |list| {
            known = memo.as_mut().and_then(|memo| memo.get(Encoded::List(list)));
            known.is_some()
        })?;
        let Some(route) = route else { continue };
        let set = match (message.kind, route.next_hops) {
            (RTM_DELROUTE, _) => NONE,
            (_, netlink::NextHops::Inline(hops)) => {
                let encoded = hops.bytes().map_or_else(|| one(hops), |bytes| Some(Encoded::List(bytes)));
                if let (None, Some(memo), Some(encoded @ Encoded::One(_))) = (known, &mut memo, encoded) {
                    known = memo.get(encoded);
                }
                known.unwrap_or_else(|| {
                    batch.sets.push(route_set(NextHops::Via(hops.map(received).collect()), route.metric));
                    let set = batch.sets.len() as u32 - 1;
                    if let (Some(memo), Some(encoded)) = (&mut memo, encoded) {
                        memo.put(encoded, set);
                    }
                    set
                })
            }
            _ => {
                batch.sets.push(route_set(NextHops::Blackhole, route.metric));
                batch.sets.len() as u32 - 1
            }
        };
        match route.prefix {
            AnyPrefix::V4(prefix) => batch.changes.v4.push((prefix, set)),
            AnyPrefix::V6(prefix) => batch.changes.v6.push((prefix, set)),
        }
    }
    Ok(batch)
}

/// The only next hop of a route without a list.
fn one<'a>(mut hops: Hops<'_>) -> Option<Encoded<'a>> {
    hops.next().map(|hop| Encoded::One(hop.via))
}

fn received(hop: netlink::Hop) -> ReceivedHop {
    let Via { gateway, ifindex, onlink } = hop.via;
    ReceivedHop { gateway, interface: (ifindex != 0).then_some(ifindex), weight: hop.weight, onlink }
}

/// The set of an internal BGP route with these next hops.
pub(super) fn route_set(next_hops: NextHops, metric: Option<u32>) -> RouteSet {
    let protocol = Protocol::BgpInternal;
    let distance = protocol.default_distance();
    RouteSet {
        next_hops,
        backup: Vec::new(),
        backup_recursion: false,
        track: None,
        distance,
        metric: metric.unwrap_or(0),
        allow_recursion: true,
        protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::netlink::Hop;

    fn hops(last: u8, count: u8) -> Vec<Hop> {
        let hop = |n| Hop {
            via: Via { gateway: Some([10, 0, n, last].into()), ifindex: 0, onlink: false },
            weight: 1,
        };
        (0..count).map(hop).collect()
    }

    #[test]
    fn equal_lists_are_read_once_with_dependency_and_each_time_without() {
        let mut bytes = Vec::new();
        let lists = [hops(1, 3), hops(2, 3), hops(1, 3), hops(1, 1), hops(2, 1), hops(1, 1)];
        for (n, list) in lists.iter().enumerate() {
            let prefix = AnyPrefix::from_addr([20, n as u8, 0, 0].into(), 16).unwrap();
            let route = Route::new(prefix, 254, 186, netlink::NextHops::Inline(list[..].into()));
            route.write_new(&mut bytes, 0, 0).unwrap();
        }
        let numbers = |mode| {
            let batch = batch(&bytes, mode).unwrap();
            let numbers: Vec<u32> = batch.changes.v4.iter().map(|(_, set)| *set).collect();
            for (list, set) in lists.iter().zip(&numbers) {
                let want = NextHops::Via(list.iter().copied().map(received).collect());
                assert_eq!(batch.sets[*set as usize].next_hops, want);
            }
            numbers
        };
        assert_eq!(numbers(CacheMode::Dependency), [0, 1, 0, 2, 3, 2]);
        for mode in [CacheMode::Off, CacheMode::Epoch] {
            assert_eq!(numbers(mode), [0, 1, 2, 3, 4, 5]);
        }
        assert!(batch(&bytes[..bytes.len() - 1], CacheMode::Dependency).is_err());
    }
}
