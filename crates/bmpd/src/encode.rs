//! From the messages of BGP's stages to BMP messages. Each function returns whole messages of one view.

use super::Router;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::ingest::KeptRoute;
use ribtide_bgp::message::{BestBatch, NONE, UpdateBatch};
use ribtide_bgp::peer::PeerInfo;
use ribtide_bgpd::monitor::{DownCause, Received, SessionUp};
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AfiSafi, BgpFamilies, BgpFamily, FamilySet, Prefix, for_each_bgp_family};
use ribtide_wire::bgp::build::{UpdatePacker, end_of_rib, withdraw};
use ribtide_wire::bgp::capability::Capability;
use ribtide_wire::bgp::message::{MAX_EXTENDED_LEN, MAX_LEN, MessageType, frame};
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use ribtide_wire::bgp::open::OpenBuilder;
use ribtide_wire::bgp::update::{self, UpdateContext};
use ribtide_wire::bmp::build::{self, Session};
use ribtide_wire::bmp::{PeerHeader, PeerType, Reason, Timestamp, flags, information};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

/// The name of the default table (RFC 9069 section 5.2.1).
pub(super) const TABLE_NAME: &str = "global";

/// The time of a header.
pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as u32, microseconds: since.subsec_micros() }
}

/// The header of a neighbour, in a view with these flags.
pub(super) fn peer(info: &PeerInfo, flags: u8, time: Timestamp) -> PeerHeader {
    PeerHeader {
        kind: PeerType::Global,
        flags,
        distinguisher: 0,
        address: split_zone(info.address).0,
        asn: info.asn,
        router_id: info.router_id,
        time,
    }
}

/// The header of the Loc-RIB.
pub(super) fn loc_rib(router: Router, time: Timestamp) -> PeerHeader {
    PeerHeader {
        kind: PeerType::LocRib,
        flags: 0,
        distinguisher: 0,
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        asn: router.asn,
        router_id: router.router_id,
        time,
    }
}

/// A Peer Up of a neighbour.
pub(super) fn peer_up(up: &SessionUp, out: &mut Vec<u8>) {
    let session = Session {
        local: up.local,
        local_port: up.ports.0,
        remote_port: up.ports.1,
        sent: &up.sent,
        received: &up.received,
    };
    build::peer_up(out, &peer(&up.info, as_flag(&up.info), timestamp(up.at)), &session, &[]);
}

/// A Peer Up of the Loc-RIB, with an OPEN that has what its messages need (RFC 9069 section 5.2).
pub(super) fn loc_rib_up(router: Router, time: Timestamp, out: &mut Vec<u8>) {
    let mut capabilities: Vec<Capability<'_>> = AfiSafi::ALL.map(Capability::multiprotocol).into();
    capabilities.extend([Capability::ExtendedMessage, Capability::FourOctetAs(router.asn)]);
    let Router { asn, router_id } = router;
    let mut open = Vec::new();
    OpenBuilder { asn, hold_time: 0, router_id, capabilities: &capabilities }.write(&mut open);
    let local = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let session = Session { local, local_port: 0, remote_port: 0, sent: &open, received: &open };
    let name = [(information::TABLE_NAME, TABLE_NAME.as_bytes())];
    build::peer_up(out, &loc_rib(router, time), &session, &name);
}

/// A Peer Down of a neighbour.
pub(super) fn peer_down(info: &PeerInfo, cause: &DownCause, at: SystemTime, out: &mut Vec<u8>) {
    let reason = match cause {
        DownCause::Local(notification) => Reason::LocalNotification(notification),
        DownCause::LocalEvent(event) => Reason::LocalEvent(*event),
        DownCause::Remote(notification) => Reason::RemoteNotification(notification),
        DownCause::RemoteClosed => Reason::RemoteClose,
    };
    build::peer_down(out, &peer(info, as_flag(info), timestamp(at)), reason);
}

/// Whether UPDATEs of the session have AS numbers of two octets.
fn as_flag(info: &PeerInfo) -> u8 {
    if info.egress.four_octet_as { 0 } else { flags::TWO_OCTET_AS }
}

/// Received UPDATEs as they are. Where routes were treated as withdrawn, a withdrawal stands for the UPDATE.
pub(super) fn received(received: &Received, out: &mut Vec<u8>) {
    let info = &received.info;
    let header = peer(info, as_flag(info), timestamp(received.at));
    let mut at = 0;
    while let Some(rest) = received.messages.get(at..)
        && let Ok(Some(message)) = frame(rest, MAX_EXTENDED_LEN)
    {
        if message.kind == MessageType::Update {
            match received.withdrawn.contains(&at) {
                false => build::route_monitoring(out, &header, &rest[..message.total_len]),
                true => withdrawal(info, &header, message.body, out),
            }
        }
        at += message.total_len;
    }
}

/// What a malformed UPDATE names, as withdrawn (RFC 7606 section 2).
fn withdrawal(info: &PeerInfo, header: &PeerHeader, body: &[u8], out: &mut Vec<u8>) {
    let context = UpdateContext {
        four_octet_as: info.egress.four_octet_as,
        external: !info.kind.is_inside(),
        prefix_sid: false,
        confederation: false,
        path_ids: info.path_ids,
    };
    let Ok(update) = update::parse_filtered(body, &context, None) else { return };
    for_each_bgp_family!(F => match info.path_ids.has(F::ID) {
        false => withdraw_all(header, update.withdrawn_nlri::<Prefix<F>>().chain(update.announced_nlri()), out),
        true => withdraw_all(header, update.withdrawn_nlri::<PathPrefix<F>>().chain(update.announced_nlri()), out),
    });
}

fn withdraw_all<N: Nlri>(header: &PeerHeader, routes: impl Iterator<Item = N>, out: &mut Vec<u8>) {
    let mut updates = Vec::new();
    withdraw(routes, MAX_LEN, &mut updates);
    wrap(header, &updates, out);
}

/// A Route Monitoring message for each UPDATE of `updates`.
pub(super) fn wrap(header: &PeerHeader, updates: &[u8], out: &mut Vec<u8>) {
    let mut rest = updates;
    while let Ok(Some(message)) = frame(rest, MAX_EXTENDED_LEN) {
        let (update, after) = rest.split_at(message.total_len);
        if message.kind == MessageType::Update {
            build::route_monitoring(out, header, update);
        }
        rest = after;
    }
}

/// UPDATEs that announce routes with one attribute set. Those of more than 4,096 bytes have only attributes that fit
/// no shorter one.
fn announce<N: Nlri>(attrs: &AttrSet, routes: impl Iterator<Item = N> + Clone, out: &mut Vec<u8>) {
    let packer = |max_len| UpdatePacker::new(attrs.bytes(), attrs.next_hop(), max_len);
    if packer(MAX_LEN).announce(routes.clone(), out).is_err() {
        // No attributes are longer than those of a received message.
        let _ = packer(MAX_EXTENDED_LEN).announce(routes, out);
    }
}

/// Routes of a session after import policy, in the order of its reader.
pub(super) fn accepted(info: &PeerInfo, batch: &UpdateBatch, time: Timestamp, out: &mut Vec<u8>) {
    let header = peer(info, flags::POST_POLICY, time);
    let (mut taken, mut updates) = (BgpFamilies::<Taken>::default(), Vec::new());
    for op in &batch.ops {
        for_each_bgp_family!(F => if F::ID == op.family {
            let taken = taken.get_mut::<F>();
            let prefixes = batch.prefixes.get::<F>().iter().skip(*taken).take(op.count as usize).copied();
            *taken += op.count as usize;
            let path_id = op.path_id;
            let paths = prefixes.clone().map(|prefix| PathPrefix { prefix, path_id });
            match (&op.attrs, info.path_ids.has(F::ID)) {
                (Some(attrs), false) => announce(attrs, prefixes, &mut updates),
                (Some(attrs), true) => announce(attrs, paths, &mut updates),
                (None, false) => drop(withdraw(prefixes, MAX_LEN, &mut updates)),
                (None, true) => drop(withdraw(paths, MAX_LEN, &mut updates)),
            }
        });
    }
    wrap(&header, &updates, out);
}

/// Prefixes of a family that earlier operations took.
struct Taken;

impl ribtide_prefix::PerBgpFamily for Taken {
    type Of<F: BgpFamily> = usize;
}

/// Changed best paths. Of several changes of a prefix the last one counts.
pub(super) fn best(router: Router, batch: &BestBatch, time: Timestamp, out: &mut Vec<u8>) {
    let mut updates = Vec::new();
    for_each_bgp_family!(F => {
        let mut last: BTreeMap<Prefix<F>, u32> = BTreeMap::new();
        last.extend(batch.changes.get::<F>().iter().map(|change| (change.prefix, change.new)));
        let mut by_path: BTreeMap<u32, Vec<Prefix<F>>> = BTreeMap::new();
        for (prefix, path) in last {
            by_path.entry(path).or_default().push(prefix);
        }
        if let Some(gone) = by_path.remove(&NONE) {
            withdraw(gone, MAX_LEN, &mut updates);
        }
        for (path, prefixes) in by_path {
            if let Some(path) = batch.paths.get(path as usize) {
                announce(&path.attrs, prefixes.into_iter(), &mut updates);
            }
        }
    });
    wrap(&loc_rib(router, time), &updates, out);
}

/// A page of routes before import policy.
pub(super) fn kept(info: &PeerInfo, routes: &[KeptRoute], out: &mut Vec<u8>) {
    // When they were received is not known.
    let header = peer(info, 0, Timestamp::default());
    let mut updates = Vec::new();
    let same = |((a, ..), one): &KeptRoute, ((b, ..), other): &KeptRoute| a == b && one == other;
    for run in routes.chunk_by(same) {
        let Some(((family, ..), attrs)) = run.first() else { continue };
        for_each_bgp_family!(F => if F::ID == *family {
            let route = |((_, prefix, path_id), _): &KeptRoute| {
                Some(PathPrefix { prefix: Prefix::<F>::from_any(*prefix)?, path_id: *path_id })
            };
            let routes = run.iter().filter_map(route);
            match info.path_ids.has(F::ID) {
                false => announce(attrs, routes.map(|route| route.prefix), &mut updates),
                true => announce(attrs, routes, &mut updates),
            }
        });
    }
    wrap(&header, &updates, out);
}

/// Messages that a worker packed for a neighbour.
pub(super) fn sent(info: &PeerInfo, chunk: &[u8], time: Timestamp, out: &mut Vec<u8>) {
    let header = peer(info, flags::POST_POLICY | flags::ADJ_RIB_OUT | as_flag(info), time);
    wrap(&header, chunk, out);
}

/// End-of-RIB of a view, for each of these families.
pub(super) fn end(header: &PeerHeader, families: FamilySet, out: &mut Vec<u8>) {
    for_each_bgp_family!(F => if families.has(F::ID) {
        let mut update = Vec::new();
        end_of_rib(F::ID, &mut update);
        build::route_monitoring(out, header, &update);
    });
}
