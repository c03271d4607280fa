//! `/v1/bgp/neighbors/ADDRESS/messages`: the flight recorder of a neighbour, cut into messages and decoded.

use super::bgp::{bgp, neighbor_named, no_neighbor};
use super::{Refusal, RouterState, zones};
use ribtide_bgp::peer::{FamilySet, PeerKind};
use ribtide_bgpd::monitor::SessionUp;
use ribtide_bgpd::recorder::{Direction, Recorded};
use ribtide_bgpd::session::{NeighborView, RecordedView};
use ribtide_model::{LostMessages, MrtMessages, RecordedMessage, RecordedMessages, RecordedSession};
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{BgpFamily, for_each_bgp_family};
use ribtide_runtime::clock::Millis;
use ribtide_runtime::date::rfc3339;
use ribtide_wire::bgp::attribute::code;
use ribtide_wire::bgp::capability::Capability;
use ribtide_wire::bgp::message::{HEADER_LEN, MessageType, RefreshKind, RouteRefresh};
use ribtide_wire::bgp::nlri::PathPrefix;
use ribtide_wire::bgp::open::Open;
use ribtide_wire::bgp::role::Role;
use ribtide_wire::bgp::update::{self, Disposition, UpdateContext};
use ribtide_wire::bgp::{AsPath, Notification};
use ribtide_wire::mrt::{self, Bgp4mp, Time};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prefixes of a message that its summary names.
const PREFIXES_NAMED: usize = 2;

/// What the session thread and the reader of the session have recorded of the neighbour of this name, in the order of time.
fn recorded(router: &RouterState, name: &str) -> Result<(NeighborView, RecordedView), Refusal> {
    let bgp = bgp(router)?;
    let neighbor = neighbor_named(&bgp, name)?;
    let address = neighbor.address;
    let view = bgp.sessions.call(move |sessions| sessions.recorded(address))?;
    let mut view = view.ok_or_else(|| no_neighbor(name))?;
    if let Some((up, reader)) = &view.up
        && let Some(reader) = bgp.readers.get(*reader)
    {
        let (id, session) = (view.id, up.info.session);
        view.recorded.extend(reader.call(move |reader| reader.recorded(id, session))?);
    }
    // Each ring is in order. Of the same millisecond, an answer comes after what was received.
    for all in
        [Some(&mut view.recorded), view.lost.as_mut().map(|lost| &mut lost.recorded)].into_iter().flatten()
    {
        all.sort_by_key(|recorded| (recorded.at, recorded.direction));
    }
    Ok((neighbor, view))
}

/// What is recorded of the neighbour of this name.
pub(crate) fn messages(router: &RouterState, name: &str) -> Result<RecordedMessages, Refusal> {
    let (neighbor, view) = recorded(router, name)?;
    let (now, wall) = (router.clock.now(), SystemTime::now());
    let time = |at: Millis| rfc3339(wall - Duration::from_millis(now.saturating_sub(at)));
    let up = view.up.as_ref().map(|(up, _)| &**up);
    Ok(RecordedMessages {
        address: zones::address(&neighbor),
        recorder_bytes: view.bound as u64,
        session: up.map(session),
        messages: decoded(&view.recorded, up, &time),
        lost: view.lost.map(|lost| LostMessages {
            session: session(&lost.up),
            ended: time(lost.at),
            seconds: now.saturating_sub(lost.at) / 1000,
            messages: decoded(&lost.recorded, Some(&*lost.up), &time),
        }),
    })
}

fn session(up: &SessionUp) -> RecordedSession {
    RecordedSession {
        established: rfc3339(up.at),
        peer_asn: up.info.asn,
        local_asn: up.info.egress.local_asn,
        router_id: up.info.router_id,
        local_address: up.local,
        four_octet_as: up.info.egress.four_octet_as,
    }
}

/// The same as MRT records.
pub(crate) fn mrt_messages(router: &RouterState, name: &str) -> Result<MrtMessages, Refusal> {
    let (neighbor, view) = recorded(router, name)?;
    let (now, wall) = (router.clock.now(), SystemTime::now());
    let mut mrt = Mrt {
        time: &|at: Millis| since_epoch(wall - Duration::from_millis(now.saturating_sub(at))),
        none: Bgp4mp {
            peer_asn: neighbor.asn.unwrap_or(0),
            local_asn: router.config().asn,
            interface: 0,
            peer: split_zone(neighbor.address).0,
            local: match neighbor.address.is_ipv4() {
                true => Ipv4Addr::UNSPECIFIED.into(),
                false => Ipv6Addr::UNSPECIFIED.into(),
            },
        },
        out: Vec::new(),
        messages: 0,
    };
    if let Some(lost) = &view.lost {
        mrt.add(&lost.recorded, Some(&*lost.up));
        let session = mrt.session(Some(&*lost.up));
        mrt::state_change_et(&mut mrt.out, (mrt.time)(lost.at), &session, ESTABLISHED, IDLE);
    }
    mrt.add(&view.recorded, view.up.as_ref().map(|(up, _)| &**up));
    Ok(MrtMessages { messages: mrt.messages, records: digits(&mrt.out) })
}

/// Numbers of states (RFC 6396 section 4.4.1).
const IDLE: u16 = 1;
const OPEN_CONFIRM: u16 = 5;
const ESTABLISHED: u16 = 6;

fn since_epoch(time: SystemTime) -> Time {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as u32, microseconds: since.subsec_micros() }
}

/// MRT records under way.
struct Mrt<'a> {
    time: &'a dyn Fn(Millis) -> Time,
    /// The session of messages without an established one.
    none: Bgp4mp,
    out: Vec<u8>,
    messages: u64,
}

impl Mrt<'_> {
    fn session(&self, up: Option<&SessionUp>) -> Bgp4mp {
        let Some(up) = up else { return self.none };
        let (peer_asn, local_asn) = (up.info.asn, up.info.egress.local_asn);
        Bgp4mp { peer_asn, local_asn, local: split_zone(up.local).0, ..self.none }
    }

    fn add(&mut self, recorded: &[Recorded], up: Option<&SessionUp>) {
        let session = self.session(up);
        let four_octet_as = up.is_none_or(|up| up.info.egress.four_octet_as);
        // Before the first message after the session was established.
        let mut begin = up.map(|up| since_epoch(up.at));
        for recorded in recorded {
            let time = (self.time)(recorded.at);
            if let Some(at) =
                begin.take_if(|at| (at.seconds, at.microseconds) <= (time.seconds, time.microseconds))
            {
                mrt::state_change_et(&mut self.out, at, &session, OPEN_CONFIRM, ESTABLISHED);
            }
            let add_path = !path_ids(up, recorded.direction).is_empty();
            for (kind, message) in recorded.messages().filter(|(kind, _)| *kind != MessageType::Keepalive) {
                let form = (four_octet_as, add_path && kind == MessageType::Update);
                match recorded.direction {
                    Direction::Received => mrt::message_et(&mut self.out, time, &session, form, message),
                    Direction::Sent => mrt::local_message_et(&mut self.out, time, &session, form, message),
                }
                self.messages += 1;
            }
        }
        if let Some(at) = begin {
            mrt::state_change_et(&mut self.out, at, &session, OPEN_CONFIRM, ESTABLISHED);
        }
    }
}

/// The families whose prefixes have path identifiers in this direction.
fn path_ids(up: Option<&SessionUp>, direction: Direction) -> FamilySet {
    match (up, direction) {
        (None, _) => FamilySet::NONE,
        (Some(up), Direction::Received) => up.info.path_ids,
        (Some(up), Direction::Sent) => up.info.egress.add_path.families(),
    }
}

/// The name of a direction.
pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Received => "received",
        Direction::Sent => "sent",
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn decoded(
    recorded: &[Recorded],
    up: Option<&SessionUp>,
    time: &impl Fn(Millis) -> String,
) -> Vec<RecordedMessage> {
    let mut messages = Vec::new();
    for recorded in recorded {
        let path_ids = path_ids(up, recorded.direction);
        let context = up.map_or_else(|| UpdateContext::new(true, true), |up| context(up, path_ids));
        for (kind, message) in recorded.messages().filter(|(kind, _)| *kind != MessageType::Keepalive) {
            messages.push(RecordedMessage {
                timestamp: time(recorded.at),
                direction: direction(recorded.direction).into(),
                kind: kind_name(kind).into(),
                length: message.len() as u64,
                summary: summary(kind, message.get(HEADER_LEN..).unwrap_or_default(), &context),
                path_ids: kind == MessageType::Update && !path_ids.is_empty(),
                bytes: digits(message),
            });
        }
    }
    messages
}

fn context(up: &SessionUp, path_ids: FamilySet) -> UpdateContext {
    let kind = up.info.kind;
    UpdateContext {
        prefix_sid: true,
        aigp: true,
        confederation: kind == PeerKind::Confederation || kind.is_internal(),
        path_ids,
        ..UpdateContext::new(up.info.egress.four_octet_as, kind.is_external())
    }
}

fn kind_name(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Open => "OPEN",
        MessageType::Update => "UPDATE",
        MessageType::Notification => "NOTIFICATION",
        MessageType::Keepalive => "KEEPALIVE",
        MessageType::RouteRefresh => "ROUTE-REFRESH",
    }
}

/// What a message says.
fn summary(kind: MessageType, body: &[u8], context: &UpdateContext) -> String {
    match kind {
        MessageType::Open => open(body),
        MessageType::Update => update(body, context),
        MessageType::Notification => notification(&Notification::parse(body)),
        MessageType::Keepalive => String::new(),
        MessageType::RouteRefresh => refresh(body),
    }
}

/// A NOTIFICATION with its data, where that is not part of the sentence.
pub(super) fn notification(notification: &Notification) -> String {
    match notification.data_text() {
        Some(data) => format!("{notification}; {data}"),
        None => notification.to_string(),
    }
}

fn open(body: &[u8]) -> String {
    match Open::parse(body) {
        Err(fault) => format!("malformed: {fault}"),
        Ok(open) => format!(
            "AS {}, hold time {}, router id {}; {}",
            open.asn(),
            open.hold_time,
            open.router_id,
            match capabilities(&open) {
                all if all.is_empty() => "no capabilities".into(),
                all => all.join(", "),
            }
        ),
    }
}

/// The capabilities of a whole OPEN message, as text; none where there is no OPEN.
pub(super) fn capabilities_of(message: &[u8]) -> Vec<String> {
    let open = message.get(HEADER_LEN..).and_then(|body| Open::parse(body).ok());
    open.map_or_else(Vec::new, |open| capabilities(&open))
}

fn capabilities(open: &Open<'_>) -> Vec<String> {
    open.capabilities().map(capability).collect()
}

fn family(afi: u16, safi: u8) -> String {
    let known = ribtide_prefix::AfiSafi::from_codes(afi, safi);
    known.map_or_else(|| format!("AFI {afi} SAFI {safi}"), |family| family.name().into())
}

fn capability(capability: Capability<'_>) -> String {
    match capability {
        Capability::Multiprotocol { afi, safi } => family(afi, safi),
        Capability::RouteRefresh => "route refresh".into(),
        Capability::ExtendedNextHop(next_hops) => {
            let of = |(afi, safi, by): (u16, u16, u16)| {
                let family = u8::try_from(safi)
                    .map_or_else(|_| format!("AFI {afi} SAFI {safi}"), |safi| family(afi, safi));
                let by = match by {
                    1 => "IPv4".into(),
                    2 => "IPv6".into(),
                    by => format!("AFI {by}"),
                };
                format!("{family} by {by}")
            };
            format!("extended next hop ({})", next_hops.families().map(of).collect::<Vec<_>>().join(", "))
        }
        Capability::EnhancedRouteRefresh => "enhanced route refresh".into(),
        Capability::ExtendedMessage => "extended messages".into(),
        Capability::Role(role) => match Role::from_u8(role) {
            Some(role) => format!("role {role}"),
            None => format!("role {role}"),
        },
        Capability::GracefulRestart(restart) => {
            let families: Vec<String> = (restart.families.iter())
                .map(|(afi, safi, kept)| format!("{}{}", family(afi, safi), if kept { " kept" } else { "" }))
                .collect();
            format!(
                "graceful restart ({} s{}{}{})",
                restart.time,
                if restart.restarting { ", restarted" } else { "" },
                if restart.notification { ", after NOTIFICATION" } else { "" },
                if families.is_empty() { String::new() } else { format!(": {}", families.join(", ")) }
            )
        }
        Capability::LongLivedRestart(families) => {
            let of = |f: ribtide_wire::bgp::capability::LongLivedFamily| {
                format!("{} {} s", family(f.afi, f.safi), f.time)
            };
            format!(
                "long-lived graceful restart ({})",
                families.iter().map(of).collect::<Vec<_>>().join(", ")
            )
        }
        Capability::FourOctetAs(asn) => format!("4-octet AS {asn}"),
        Capability::AddPath(families) => {
            let of = |f: ribtide_wire::bgp::capability::AddPathFamily| {
                let does = match (f.receive, f.send) {
                    (true, true) => "both ways",
                    (true, false) => "receives",
                    _ => "sends",
                };
                format!("{} {does}", family(f.afi, f.safi))
            };
            format!("add-path ({})", families.families().map(of).collect::<Vec<_>>().join(", "))
        }
        Capability::Unknown { code, .. } => format!("capability {code}"),
    }
}

fn update(body: &[u8], context: &UpdateContext) -> String {
    let update = match update::parse(body, context) {
        Ok(update) => update,
        Err(fault) => return format!("malformed: {}", notification(&fault)),
    };
    if let Some(family) = update.end_of_rib() {
        return format!("End-of-RIB of {family}");
    }
    let mut parts = Vec::new();
    let mut is_announcing = false;
    for_each_bgp_family!(F => {
        let next_hop = update.next_hop::<F>().map_or_else(String::new, |hop| format!(" by {hop}"));
        let announced = (update.announced::<F>().map(|prefix| prefix.to_string()))
            .chain(update.announced_nlri::<PathPrefix<F>>().map(with_path_id));
        let withdrawn = (update.withdrawn::<F>().map(|prefix| prefix.to_string()))
            .chain(update.withdrawn_nlri::<PathPrefix<F>>().map(with_path_id));
        if let Some(prefixes) = named(announced) {
            is_announcing = true;
            parts.push(format!("announces {prefixes}{next_hop}"));
        }
        if let Some(prefixes) = named(withdrawn) {
            parts.push(format!("withdraws {prefixes}"));
        }
    });
    if is_announcing && let Some(path) = update.attributes().find(|one| one.code == code::AS_PATH) {
        let path = AsPath::new(path.value).to_string();
        parts.push(if path.is_empty() { "empty AS path".into() } else { format!("AS path {path}") });
    }
    if let Disposition::TreatAsWithdraw { reason } = update.disposition() {
        parts.push(format!("treated as a withdrawal: {reason}"));
    }
    if parts.is_empty() { "of other families".into() } else { parts.join(", ") }
}

fn with_path_id<F: BgpFamily>(nlri: PathPrefix<F>) -> String {
    format!("{} (path {})", nlri.prefix, nlri.path_id)
}

/// The first of some prefixes, and how many more there are; `None`: there are none.
fn named(prefixes: impl Iterator<Item = String>) -> Option<String> {
    let (mut first, mut more) = (Vec::new(), 0);
    for prefix in prefixes {
        if first.len() < PREFIXES_NAMED { first.push(prefix) } else { more += 1 }
    }
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!first.is_empty()).then(|| format!("{}{more}", first.join(" ")))
}

fn refresh(body: &[u8]) -> String {
    let Ok(refresh) = RouteRefresh::parse(body) else { return "malformed".into() };
    let family = family(refresh.afi, refresh.safi);
    match refresh.kind {
        RefreshKind::Request => format!("request for {family}"),
        RefreshKind::Begin => format!("begin of {family}"),
        RefreshKind::End => format!("end of {family}"),
        RefreshKind::Unknown(kind) => format!("subtype {kind} of {family}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::message::write;

    fn recorded(at: Millis, direction: Direction, messages: &[(MessageType, &[u8])]) -> Recorded {
        let mut bytes = Vec::new();
        messages.iter().for_each(|(kind, body)| write(&mut bytes, *kind, body));
        Recorded { at, direction, bytes: bytes.into() }
    }

    #[test]
    fn messages_are_in_order_decoded_and_without_keepalives() {
        // 10.0.0.0/8 by 192.0.2.1, path 65010 64900, with 4-octet AS numbers; 10.1.0.0/16 is withdrawn.
        let update = [
            &[0, 3, 16, 10, 1, 0, 24][..],
            &[0x40, 1, 1, 0, 0x40, 2, 10, 2, 2, 0, 0, 253, 242, 0, 0, 253, 132][..],
            &[0x40, 3, 4, 192, 0, 2, 1, 8, 10],
        ]
        .concat();
        let all = vec![
            recorded(1, Direction::Sent, &[(MessageType::Open, &[4, 253, 233, 0, 90, 192, 0, 2, 9, 0])]),
            recorded(
                4,
                Direction::Received,
                &[
                    (MessageType::Keepalive, &[]),
                    (MessageType::Update, &update),
                    (MessageType::Update, &[0, 0, 0, 0]),
                ],
            ),
            recorded(5, Direction::Received, &[(MessageType::RouteRefresh, &[0, 2, 0, 1])]),
            recorded(5, Direction::Sent, &[(MessageType::Notification, &[3, 6, 0x40, 1, 1, 9])]),
        ];
        let messages = decoded(&all, None, &|at| at.to_string());
        let shown: Vec<String> = messages
            .iter()
            .map(|m| format!("{} {} {} {}: {}", m.timestamp, m.direction, m.kind, m.length, m.summary))
            .collect();
        assert_eq!(
            shown,
            [
                "1 sent OPEN 29: AS 65001, hold time 90, router id 192.0.2.9; no capabilities",
                "4 received UPDATE 52: announces 10.0.0.0/8 by 192.0.2.1, withdraws 10.1.0.0/16, AS path 65010 64900",
                "4 received UPDATE 23: End-of-RIB of ipv4-unicast",
                "5 received ROUTE-REFRESH 23: request for ipv6-unicast",
                "5 sent NOTIFICATION 25: UPDATE message error: invalid ORIGIN; ORIGIN with flags 40 and value 09",
            ]
        );
        assert!(messages[2].bytes.ends_with("00170200000000") && messages[2].bytes.len() == 46);
    }
}
