//! Records of received messages, and of starts and ends of sessions (BGP4MP_ET).

use ribtide_bgp::peer::PeerInfo;
use ribtide_bgpd::monitor::{Received, SessionUp};
use ribtide_prefix::{BgpFamily, FamilySet, Prefix, for_each_bgp_family};
use ribtide_wire::bgp::message::{MAX_EXTENDED_LEN, MessageType, frame};
use ribtide_wire::bgp::nlri::PathPrefix;
use ribtide_wire::bgp::update::{self, UpdateContext};
use ribtide_wire::mrt::{self, Bgp4mp, Time};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

/// States of RFC 6396 section 4.4.1.
const IDLE: u16 = 1;
const OPEN_CONFIRM: u16 = 5;
const ESTABLISHED: u16 = 6;

/// The time of a record.
fn time(at: SystemTime) -> Time {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as u32, microseconds: since.subsec_micros() }
}

/// The session of a record. `local`: our address, if it is known.
fn session(info: &PeerInfo, local: Option<IpAddr>) -> Bgp4mp {
    let unspecified = match info.address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let local = local.filter(|local| local.is_ipv4() == info.address.is_ipv4()).unwrap_or(unspecified);
    Bgp4mp { peer_asn: info.asn, local_asn: info.egress.local_asn, interface: 0, peer: info.address, local }
}

/// A session became established, or no longer is.
pub(super) fn state(up: &SessionUp, is_up: bool, at: SystemTime, out: &mut Vec<u8>) {
    let (old, new) = if is_up { (OPEN_CONFIRM, ESTABLISHED) } else { (ESTABLISHED, IDLE) };
    mrt::state_change_et(out, time(at), &session(&up.info, Some(up.local)), old, new);
}

/// Received UPDATEs as they are. Returns their number.
pub(super) fn received(received: &Received, local: Option<IpAddr>, out: &mut Vec<u8>) -> u64 {
    let info = &received.info;
    let (session, time) = (session(info, local), time(received.at));
    let (mut rest, mut count) = (received.messages.as_slice(), 0);
    while let Ok(Some(message)) = frame(rest, MAX_EXTENDED_LEN) {
        let (bytes, after) = rest.split_at(message.total_len);
        if message.kind == MessageType::Update {
            let add_path = has_path_ids(info, message.body);
            mrt::message_et(out, time, &session, (info.egress.four_octet_as, add_path), bytes);
            count += 1;
        }
        rest = after;
    }
    count
}

/// Whether prefixes of an UPDATE have path identifiers. A record has one format for both families (RFC 8050 section
/// 3), and a session may have identifiers in one: then the families of the UPDATE tell.
fn has_path_ids(info: &PeerInfo, body: &[u8]) -> bool {
    if info.path_ids.is_empty() || info.path_ids == info.families {
        return !info.path_ids.is_empty();
    }
    let context = UpdateContext {
        four_octet_as: info.egress.four_octet_as,
        external: !info.kind.is_inside(),
        prefix_sid: false,
        confederation: false,
        path_ids: info.path_ids,
    };
    let Ok(update) = update::parse_filtered(body, &context, None) else { return false };
    let mut families = FamilySet::NONE;
    for_each_bgp_family!(F => {
        let any = match info.path_ids.has(F::ID) {
            true => {
                update.withdrawn_nlri::<PathPrefix<F>>().chain(update.announced_nlri::<PathPrefix<F>>()).count() > 0
            }
            false => update.withdrawn_nlri::<Prefix<F>>().chain(update.announced_nlri::<Prefix<F>>()).count() > 0,
        };
        families = if any { families.with(F::ID) } else { families };
    });
    !families.and(info.path_ids).is_empty()
}
