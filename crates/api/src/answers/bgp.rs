//! `/v1/bgp/summary`, `/v1/bgp/neighbors`, `/v1/bgp/clear`. Sessions come from the session thread,
//! received routes from readers, paths from shards, and sent routes from update threads.

use super::neighbor_counts::{Place, SessionState, received_counts, session_states};
use super::{Changed, Refusal, RouterState, filter, messages, summary, zones};
use crate::request::NeighborQuery;
use ribtide_bgp::egress::Counters;
use ribtide_bgp::fsm::{Obstacle, State};
use ribtide_bgp::ingest::{IngestCounters, LimitAction, Refusal as Refused};
use ribtide_bgp::peer::{self, FamilySet, PeerKind};
use ribtide_bgpd::messages::MessageCounts;
use ribtide_bgpd::recorder::Direction;
use ribtide_bgpd::session::tcp_ao::KeyState;
use ribtide_bgpd::session::{self, NeighborView, RefusedConnections, UpView};
use ribtide_bgpd::{Bgp, OnSessionThread};
use ribtide_config::{AsNumbers, LocalAs, RemovePrivateAs};
use ribtide_model::{
    BgpSummary, Clear, Cleared, GroupTotal, GroupTotals, LastNotification, MaxPrefixes, Messages, Neighbor,
    NeighborPage, PeerRestart, PerFamilyCount, ReceiveCounters, Restart, SendCounters, SentPaths, Session,
    Stale, TcpAo, TcpConnection, Threading, WaitingInterface, WriteQueue, ZonedAddress,
};
use ribtide_prefix::AfiSafi;
use ribtide_wire::bgp::message::MessageType;
use ribtide_wire::bgp::notification::SHUTDOWN_TEXT_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Neighbours in one call to the session thread.
const NEIGHBORS_BATCH_MAX: usize = 256;

pub(super) fn bgp(router: &RouterState) -> Result<Arc<Bgp>, Refusal> {
    let none = || Refusal::Missing("this router runs no BGP; add a [bgp] table to its configuration".into());
    router.bgp.get().ok_or_else(none)
}

/// Totals, and the threads of BGP.
pub(crate) fn bgp_summary(router: &RouterState) -> Result<BgpSummary, Refusal> {
    let bgp = bgp(router)?;
    let routes = summary::bgp_routes(router)?;
    let (totals, waiting) = bgp.sessions.call(|s| (s.totals(), s.waiting_interfaces()))?;
    let mut update_groups = 0;
    for (_, worker) in bgp.workers.running() {
        update_groups += worker.call(|w| w.groups().len())?;
    }
    Ok(BgpSummary {
        router_id: router.config().router_id,
        asn: router.config().asn,
        uptime_seconds: router.clock.now() / 1000,
        threading: threading(&bgp),
        update_groups,
        neighbor_count: totals.neighbors,
        established: totals.established,
        flaps: totals.flaps,
        rejected_connections: totals.refused.total(),
        rejected_by_reason: by_reason(&totals.refused),
        restart: totals.deferral.map(|deferral| Restart {
            awaited: deferral.awaited,
            seconds_left: deferral.left.div_ceil(1000),
        }),
        prefixes: routes.prefixes,
        paths: routes.paths,
        active: routes.active,
        waiting_interfaces: waiting.into_iter().map(waiting_interface).collect(),
        groups: None,
        neighbors: None,
    })
}

/// The neighbours of each configured group together.
pub(crate) fn group_totals(router: &RouterState) -> Result<GroupTotals, Refusal> {
    let bgp = bgp(router)?;
    let mut totals: BTreeMap<String, GroupTotal> = BTreeMap::new();
    for neighbor in neighbors(&bgp, every_neighbor(&bgp)?)? {
        let total = totals.entry(neighbor.group.clone()).or_default();
        total.group = neighbor.group;
        total.neighbors += 1;
        total.flaps += neighbor.flaps;
        if let Some(session) = neighbor.session {
            total.established += 1;
            total.accepted += session.accepted;
            total.active += session.active;
            total.advertised += session.advertised;
            total.messages_received += session.messages_received.total();
            total.messages_sent += session.messages_sent.total();
            total.queued_bytes += session.write_queue.bytes;
        }
    }
    Ok(GroupTotals { groups: totals.into_values().collect() })
}

fn waiting_interface(waiting: ribtide_bgpd::session::WaitingInterface) -> WaitingInterface {
    let ribtide_bgpd::session::WaitingInterface { interface, group, reason } = waiting;
    WaitingInterface { interface, group, reason: reason.into() }
}

/// Whether the selection of routes is deferred, and incoming connections that got no session.
pub(crate) fn deferring_and_refused(router: &RouterState) -> Result<(bool, RefusedConnections), Refusal> {
    Ok(bgp(router)?.sessions.call(|s| (s.is_deferring(), s.refused()))?)
}

fn by_reason(refused: &RefusedConnections) -> BTreeMap<String, u64> {
    refused.by_reason().filter(|(_, n)| *n > 0).map(|(why, n)| (why.name().into(), n)).collect()
}

/// The threads of BGP.
pub(super) fn threading(bgp: &Bgp) -> Threading {
    let OnSessionThread { shards, workers } = bgp.hosted();
    let own = |hosted: bool, count: usize| if hosted { 0 } else { count };
    let shard_threads = own(shards, bgp.owners.read().shards.len());
    let update_threads = own(workers, bgp.workers.count());
    let reader_threads = own(shards, bgp.readers.len());
    Threading {
        mode: mode(shard_threads, reader_threads, update_threads),
        shard_threads,
        update_threads,
        reader_threads,
    }
}

/// The same as text; 0 is off.
fn mode(shards: usize, readers: usize, workers: usize) -> String {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if (shards, workers) == (0, 0) {
        return "RIB sharding off, update threading off: all of BGP on the session thread".into();
    }
    let sharding = match shards {
        0 => "RIB sharding off, on the session thread".into(),
        n => format!("RIB sharding: {}, {}", count(n, "shard thread"), count(readers, "reader")),
    };
    let updates = match workers {
        0 => "update threading off, on the session thread".into(),
        n => format!("update threading: {}", count(n, "update thread")),
    };
    format!("{sharding}; {updates}")
}

/// A page of neighbours.
pub(crate) fn bgp_neighbors(
    router: &RouterState,
    query: &NeighborQuery,
    limit: usize,
) -> Result<NeighborPage, Refusal> {
    let bgp = bgp(router)?;
    let after = match query.cursor.as_deref() {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            Refusal::Bad(format!("\"{text}\" is no cursor; give back the last page's next, or none to begin"))
        })?),
    };
    if let Some(group) = &query.group {
        known_group(router, group)?;
    }
    let worker = query.update_thread.map(|worker| known_worker(&bgp, worker)).transpose()?;
    let state = query.state.as_deref().map(state_filter).transpose()?;
    let group = query.group.clone();
    let selected = move |n: &NeighborView| {
        state.is_none_or(|state| state.has(n.state))
            && group.as_ref().is_none_or(|group| *group == n.group)
            && worker.is_none_or(|worker| n.up.as_ref().is_some_and(|up| up.worker == worker))
    };
    let views = bgp.sessions.call(move |s| s.page(after, limit, selected))?;
    let next = views.last().filter(|_| views.len() == limit).map(|last| last.address.to_string());
    Ok(NeighborPage { neighbors: neighbors(&bgp, views)?, next })
}

/// A condition on the state of a session.
#[derive(Clone, Copy)]
enum StateFilter {
    Is(State),
    /// Any but Established.
    Down,
}

impl StateFilter {
    fn has(self, state: State) -> bool {
        match self {
            StateFilter::Is(one) => one == state,
            StateFilter::Down => state != State::Established,
        }
    }
}

fn state_filter(text: &str) -> Result<StateFilter, Refusal> {
    let states = [
        ("up", StateFilter::Is(State::Established)),
        ("down", StateFilter::Down),
        ("idle", StateFilter::Is(State::Idle)),
        ("connect", StateFilter::Is(State::Connect)),
        ("active", StateFilter::Is(State::Active)),
        ("opensent", StateFilter::Is(State::OpenSent)),
        ("openconfirm", StateFilter::Is(State::OpenConfirm)),
        ("established", StateFilter::Is(State::Established)),
    ];
    filter::named(text, states)
}

/// Everything about one neighbour.
pub(crate) fn bgp_neighbor(router: &RouterState, address: &str) -> Result<Neighbor, Refusal> {
    let bgp = bgp(router)?;
    let view = neighbor_named(&bgp, address)?;
    neighbors(&bgp, vec![view])?.pop().ok_or_else(|| no_neighbor(address))
}

/// The neighbour of this address, or on this interface.
pub(super) fn neighbor_named(bgp: &Bgp, name: &str) -> Result<NeighborView, Refusal> {
    let text = name.to_owned();
    let view = bgp.sessions.call(move |s| s.neighbor_named(&text).and_then(|address| s.neighbor(address)))?;
    let is_address = name.parse::<ZonedAddress>().is_ok();
    view.ok_or_else(|| match is_address {
        true => no_neighbor(name),
        false => Refusal::Bad(format!(
            "\"{name}\" is no address, and no neighbour is on an interface of that name; write one such as 192.0.2.1 or swp1"
        )),
    })
}

/// Ends sessions, or exchanges their routes again.
pub(crate) fn bgp_clear(router: &RouterState, clear: Clear) -> Result<Changed<Cleared>, Refusal> {
    let Clear { address, all, soft, message: text } = clear;
    if soft && !text.is_empty() {
        return Err(Refusal::Bad(
            "soft keeps the session, so no NOTIFICATION carries message; send one of them".into(),
        ));
    }
    if text.len() > SHUTDOWN_TEXT_MAX {
        let len = text.len();
        let message = format!(
            "message has at most {SHUTDOWN_TEXT_MAX} bytes (RFC 9003), and this has {len}; shorten it"
        );
        return Err(Refusal::Bad(message));
    }
    let with = match (&address, all) {
        (Some(address), false) => format!("neighbor {address}"),
        (None, true) => "all neighbors".into(),
        (Some(_), true) => {
            return Err(Refusal::Bad(
                "address names one neighbour and all is true; send one of them, and nothing is cleared until then".into(),
            ));
        }
        (None, false) => {
            return Err(Refusal::Bad(
                "no neighbour is named, so nothing is cleared; send {\"address\": \"192.0.2.1\"} for one, or \
                 {\"all\": true} for all"
                    .into(),
            ));
        }
    };
    let bgp = bgp(router)?;
    let address = address.map(|name| neighbor_named(&bgp, &name).map(|view| view.address)).transpose()?;
    let sessions = &bgp.sessions;
    let neighbors =
        sessions.call(move |s| if soft { s.refresh(address) } else { s.reset(address, &text) })?;
    let did = if soft { "routes are exchanged again" } else { "sessions begin again" };
    let message = format!("{did} with {with}, {neighbors} in number");
    Ok(Changed { answer: Cleared { neighbors }, message, is_change: true })
}

pub(super) fn no_neighbor(name: &str) -> Refusal {
    Refusal::Missing(format!("there is no neighbour {name}; `ribtide show bgp summary` lists all"))
}

/// Every neighbour of the session thread, a page at a time.
pub(super) fn every_neighbor(bgp: &Bgp) -> Result<Vec<NeighborView>, Refusal> {
    let mut all: Vec<NeighborView> = Vec::new();
    loop {
        let after = all.last().map(|last| last.address);
        let page = bgp.sessions.call(move |s| s.page(after, NEIGHBORS_BATCH_MAX, |_| true))?;
        let last = page.len() < NEIGHBORS_BATCH_MAX;
        all.extend(page);
        if last {
            return Ok(all);
        }
    }
}

/// Checks that the configuration has a group of this name.
pub(super) fn known_group(router: &RouterState, name: &str) -> Result<(), Refusal> {
    let config = router.config();
    let Some(bgp) = &config.bgp else { return Ok(()) };
    let neighbors = bgp.neighbors.values().map(|n| &n.settings);
    let groups = neighbors
        .chain(bgp.dynamic.iter().map(|d| &d.settings))
        .chain(bgp.interfaces.iter().map(|n| &n.settings));
    let mut names: Vec<&str> = groups.map(|settings| settings.group.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.contains(&name) {
        return Ok(());
    }
    Err(Refusal::Missing(format!(
        "the configuration has no group \"{name}\" with neighbours; it has {}",
        if names.is_empty() { "none".into() } else { names.join(", ") }
    )))
}

/// Checks that there is an update thread of this number.
pub(super) fn known_worker(bgp: &Bgp, worker: usize) -> Result<usize, Refusal> {
    if bgp.workers.get(worker).is_some() {
        return Ok(worker);
    }
    let count = bgp.workers.count();
    Err(Refusal::Missing(format!("there is no update thread {worker}; there are {count}, numbered from 0")))
}

/// Adds the state of shards, readers and update threads to `views`, with a few calls each.
pub(super) fn neighbors(bgp: &Bgp, views: Vec<NeighborView>) -> Result<Vec<Neighbor>, Refusal> {
    let place = |view: &NeighborView| Place {
        id: view.id,
        has_paths: view.up.is_some() || view.retained.is_some(),
        stages: view.up.as_ref().map(|up| (up.reader, up.worker)),
    };
    let places: Vec<Place> = views.iter().map(place).collect();
    let states = session_states(bgp, &places)?;
    let kept = received_counts(bgp, &places)?;
    let known = states.into_iter().zip(kept).map(|(state, received)| SessionState { received, ..state });
    Ok(views.into_iter().zip(known).map(|(view, known)| neighbor(bgp, view, &known)).collect())
}

fn neighbor(bgp: &Bgp, view: NeighborView, known: &SessionState) -> Neighbor {
    Neighbor {
        address: zones::address(&view),
        session: view.up.as_ref().map(|up| established(bgp, up, known)),
        max_prefixes: max_prefixes(&view, known),
        idle_seconds_left: view.held_for.map(|left| left.div_ceil(1000)),
        stale: view.retained.map(|retained| Stale {
            paths: known.stale,
            long_lived: family_names(retained.long_lived),
            sessions: retained.sessions as u64,
            seconds: retained.age / 1000,
            restart_seconds_left: retained.restart_left.map(|left| left.div_ceil(1000)),
            stale_seconds_left: retained.stale_left.div_ceil(1000),
        }),
        stale_expired: view.stale_expired,
        tcp_ao: view.tcp_ao.map(|(keys, state)| tcp_ao(keys, state.unwrap_or_default())),
        group: view.group,
        description: view.description,
        asn: view.asn,
        kind: kind(view.kind).into(),
        dynamic: view.dynamic,
        state: match (view.shutdown.is_some(), &view.held) {
            (true, _) => "Idle (shut down)".into(),
            (_, Some(Obstacle::Bfd)) => "Idle (BFD down)".into(),
            (_, Some(Obstacle::Interface(_))) => "Idle (interface down)".into(),
            (_, Some(Obstacle::MaxPrefixes(..))) => "Idle (maximum prefixes)".into(),
            (_, Some(Obstacle::MaxPrefixesOut(..))) => "Idle (maximum prefixes out)".into(),
            (_, None) if view.idle_hold.is_some() => "Idle (hold)".into(),
            _ => view.state.name().into(),
        },
        state_seconds: view.state_age / 1000,
        shutdown: view.shutdown,
        role: view.role.map(|role| role.to_string()),
        as_numbers: as_numbers(&view.as_numbers),
        import_missing: view.import_missing,
        export_missing: view.export_missing,
        graceful_shutdown: view.graceful_shutdown,
        idle_hold_seconds: view.idle_hold.map(|(left, _)| left.div_ceil(1000)),
        oscillations: view.idle_hold.map(|(_, oscillations)| oscillations),
        flaps: view.flaps,
        last_error: view.last_error,
        last_error_seconds: view.last_error_age.map(|age| age / 1000),
        last_down: view.last_down,
        last_down_seconds: view.last_down_age.map(|age| age / 1000),
        last_down_by: view.last_down_by.map(|by| match by {
            Direction::Sent => "local".into(),
            Direction::Received => "peer".into(),
        }),
        last_notification: view.last_notification.map(|(age, last)| last_notification(age, &last)),
        configured_hold_time: view.settings.hold_time,
        connect_retry_seconds: (!view.settings.passive).then_some(view.settings.connect_retry),
        import_policy: view.settings.import.name().into(),
        export_policy: view.settings.export.name().into(),
        authentication: match (&view.settings.password, &view.settings.tcp_ao) {
            (Some(_), _) => Some("tcp-md5".into()),
            (None, Some(_)) => Some("tcp-ao".into()),
            (None, None) => None,
        },
        multihop: view.settings.multihop,
        ttl_security: view.settings.ttl_security,
        bfd: view.settings.bfd.is_some(),
    }
}

fn last_notification(age: u64, last: &session::LastNotification) -> LastNotification {
    LastNotification {
        direction: messages::direction(last.direction).into(),
        seconds: age / 1000,
        code: last.notification.code,
        subcode: last.notification.subcode,
        text: messages::notification(&last.notification),
        data: messages::digits(&last.notification.data),
    }
}

/// The TCP connection of a session.
fn tcp(up: &UpView) -> Option<TcpConnection> {
    let tcp = up.tcp?;
    Some(TcpConnection {
        local_port: up.monitored.ports.0,
        remote_port: up.monitored.ports.1,
        send_mss: tcp.send_mss,
        receive_mss: tcp.receive_mss,
        rtt_seconds: tcp.rtt[0].as_secs_f64(),
        rtt_variation_seconds: tcp.rtt[1].as_secs_f64(),
        least_rtt_seconds: tcp.least_rtt.as_secs_f64(),
        congestion_window: tcp.congestion_window,
        unacknowledged: tcp.unacknowledged,
        retransmitted: tcp.retransmitted,
    })
}

/// The name of the kind of a session.
pub(super) fn kind(kind: PeerKind) -> &'static str {
    match kind {
        PeerKind::External => "external",
        PeerKind::RouteServerClient => "rs-client",
        PeerKind::Confederation => "confederation",
        PeerKind::Internal => "internal",
        PeerKind::Client => "client",
        PeerKind::Local(_) => "local",
    }
}

fn tcp_ao(keys: usize, state: KeyState) -> TcpAo {
    let KeyState { current, rnext, good, bad, key_not_found, unsigned } = state;
    TcpAo { keys, current, rnext, good, bad, key_not_found, unsigned }
}

/// The rules of a neighbour for AS numbers, as the configuration has them.
fn as_numbers(rules: &AsNumbers) -> Vec<String> {
    let AsNumbers { local_as, allowas_in, as_override, remove_private_as } = rules;
    let mut all = Vec::new();
    if let Some(LocalAs { asn, prepend, replace, dual }) = local_as {
        all.push(format!("local-as {asn} (prepend {prepend}, replace {replace}, dual {dual})"));
    }
    if *allowas_in > 0 {
        all.push(format!("allowas-in {allowas_in}"));
    }
    if let Some(RemovePrivateAs { all: of_all, replace }) = remove_private_as {
        all.push(format!("remove-private-as (all {of_all}, replace {replace})"));
    }
    if *as_override {
        all.push("as-override".into());
    }
    all
}

/// The limits of a neighbour, with what counts against them.
fn max_prefixes(view: &NeighborView, known: &SessionState) -> Vec<MaxPrefixes> {
    let mut all = Vec::new();
    let member = known.member.as_ref();
    for family in AfiSafi::ALL {
        let received = view.max_prefixes.received.and_then(|max| Some((max.limits[family]?, max.action)));
        if let Some((max, action)) = received {
            all.push(MaxPrefixes {
                family: family.name().into(),
                direction: "received".into(),
                max,
                count: known.limited[family].map(|limited| limited.count.into()),
                action: action.to_string(),
                exceeded: view.exceeded[family],
            });
        }
        if let Some(max) = view.max_prefixes.sent[family] {
            all.push(MaxPrefixes {
                family: family.name().into(),
                direction: "sent".into(),
                max,
                count: member.map(|member| member.advertised[family]),
                action: LimitAction::Restart.to_string(),
                exceeded: view.exceeded_out[family],
            });
        }
    }
    all
}

fn family_names(families: FamilySet) -> Vec<String> {
    families.iter().map(|family| family.name().into()).collect()
}

/// The families in which several paths of a prefix are sent, and which.
pub(super) fn sent_paths(sent: peer::SentPaths) -> Vec<SentPaths> {
    let of = |family: AfiSafi| {
        Some(SentPaths { family: family.name().into(), paths: sent.of(family)?.to_string() })
    };
    AfiSafi::ALL.into_iter().filter_map(of).collect()
}

fn established(bgp: &Bgp, up: &UpView, known: &SessionState) -> Session {
    let member = known.member.as_ref();
    let (mut received, mut sent) = (up.received, by_type(&up.sent));
    received.add(&known.read);
    sent.update = member.map_or(0, |m| m.counters.messages);
    Session {
        local_asn: up.negotiated.local_asn,
        router_id: up.negotiated.router_id,
        local_address: up.local,
        families: family_names(up.negotiated.families),
        hold_time: up.negotiated.hold_time,
        keepalive_seconds: (up.negotiated.hold_time > 0).then_some(up.negotiated.hold_time / 3),
        heard_seconds: up.silent / 1000,
        hold_seconds_left: up.hold_left.map(|left| left / 1000),
        tcp: tcp(up),
        capabilities_sent: messages::capabilities_of(&up.monitored.sent),
        capabilities_received: messages::capabilities_of(&up.monitored.received),
        four_octet_as: up.negotiated.four_octet_as,
        extended_messages: up.negotiated.extended_message,
        route_refresh: up.negotiated.route_refresh,
        enhanced_route_refresh: up.negotiated.enhanced_refresh,
        peer_role: up.negotiated.role.map(|role| role.to_string()),
        graceful_restart: up.negotiated.restart.map(|restart| PeerRestart {
            families: family_names(restart.families),
            seconds: restart.time.into(),
            notification: restart.notification,
        }),
        long_lived_seconds: (up.negotiated.long_lived.unwrap_or_default().times.iter())
            .filter(|(_, time)| **time > 0)
            .map(|(family, time)| (family.name().to_owned(), (*time).into()))
            .collect(),
        retains_ours_seconds: up.own_restart.map(u64::from),
        add_path_receive: family_names(up.negotiated.path_ids),
        extended_next_hop: up.negotiated.extended_next_hop,
        add_path_send: sent_paths(up.info.egress.add_path),
        reader_thread: thread(bgp.hosted().shards, "reader", up.reader),
        update_thread: update_thread(bgp, up.worker),
        update_group: member.map(|m| group_id(up.worker, m.group)),
        received: known.received,
        accepted: known.accepted,
        active: known.active,
        advertised: PerFamilyCount::new(|family| member.map_or(0, |member| member.advertised[family])),
        joining: member.is_some_and(|m| m.joining),
        detached: member.is_some_and(|m| m.detached),
        waiting: member.map_or(0, |m| m.waiting as u64),
        counters: receive_counters(&known.ingest),
        sent: member.map_or_else(SendCounters::default, |m| send_counters(&m.counters)),
        messages_received: by_type(&received),
        messages_sent: sent,
        write_queue: WriteQueue {
            bytes: up.writes.bytes as u64,
            peak_bytes: up.writes.peak as u64,
            bound_bytes: up.writes.bound as u64,
            blocks: up.writes.blocks,
            full: up.writes.full,
            stops: up.writes.stops,
            stopped_seconds: up.writes.stopped as f64 / 1000.0,
            slow_writer: up.writes.slow,
        },
    }
}

/// The name of the thread of an update worker.
pub(super) fn update_thread(bgp: &Bgp, worker: usize) -> String {
    thread(bgp.hosted().workers, "egress", worker)
}

/// The name of the thread of a stage.
pub(super) fn thread(hosted: bool, stage: &str, number: usize) -> String {
    if hosted { "sessions".into() } else { format!("{stage}-{number}") }
}

/// The name of an update group.
pub(super) fn group_id(worker: usize, group: u32) -> String {
    format!("{worker}.{group}")
}

fn by_type(counts: &MessageCounts) -> Messages {
    Messages {
        open: counts.of(MessageType::Open),
        update: counts.of(MessageType::Update),
        notification: counts.of(MessageType::Notification),
        keepalive: counts.of(MessageType::Keepalive),
        route_refresh: counts.of(MessageType::RouteRefresh),
    }
}

pub(super) fn send_counters(c: &Counters) -> SendCounters {
    SendCounters {
        messages: c.messages,
        updates: c.updates,
        announced: c.announced,
        withdrawn: c.withdrawn,
        too_long: c.too_long,
    }
}

fn receive_counters(c: &IngestCounters) -> ReceiveCounters {
    let loops = [Refused::AsLoop, Refused::OriginatorLoop, Refused::ClusterLoop];
    let reasons = [
        c.last_fault.map(|f| format!("treated as a withdrawal: {f}")),
        c.last_discard.map(|f| format!("attribute discarded: {f}")),
        c.last_refusal.map(|r| format!("not used: {r}")),
    ];
    ReceiveCounters {
        updates: c.updates,
        announced: c.announced,
        withdrawn: c.withdrawn,
        ignored: c.ignored,
        treated_as_withdraw: c.treated_as_withdraw,
        discarded_attributes: c.discarded_attributes,
        loops: loops.into_iter().map(|r| c.refused(r)).sum(),
        rejected: c.refused(Refused::ImportPolicy),
        first_as: c.refused(Refused::FirstAs) + c.refused(Refused::MemberAs),
        martians: c.refused(Refused::Martian),
        route_leaks: c.refused(Refused::RouteLeak),
        beyond_max: c.refused(Refused::MaxPrefixes),
        evaluated_again: c.evaluated_again,
        last_reason: reasons.into_iter().flatten().reduce(|a, b| format!("{a}; {b}")),
    }
}

#[cfg(test)]
mod tests {
    use super::mode;

    #[test]
    fn the_threading_mode_is_said_in_words() {
        assert_eq!(
            mode(2, 1, 4),
            "RIB sharding: 2 shard threads, 1 reader; update threading: 4 update threads"
        );
        assert_eq!(
            mode(0, 0, 1),
            "RIB sharding off, on the session thread; update threading: 1 update thread"
        );
        assert_eq!(
            mode(5, 2, 0),
            "RIB sharding: 5 shard threads, 2 readers; update threading off, on the session thread"
        );
        assert_eq!(mode(0, 0, 0), "RIB sharding off, update threading off: all of BGP on the session thread");
    }
}
