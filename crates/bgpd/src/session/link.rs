//! Start and end of a session: messages to readers, workers and, through readers, shards.

use super::connection::message_len;
use super::graceful_restart::Retained;
use super::peer::{Peer, Up};
use super::write_queue::Backlog;
use super::{Sessions, socket};
use crate::monitor::{DownCause, SessionNews, SessionUp, Tap};
use crate::reader::{Attach, Command, Marks};
use mio::Interest;
use mio::unix::SourceFd;
use ribtide_bgp::fsm::{Event, Negotiated, Retention, Side};
use ribtide_bgp::ingest::IngestSettings;
use ribtide_bgp::message::EgressIn;
use ribtide_bgp::peer::{
    EgressSettings, FamilySet, NextHopRule, PeerId, PeerInfo, PrefixLimits, RemovePrivateAs,
};
use ribtide_config::{InterfaceConfig, NeighborSettings};
use ribtide_policy::SetNextHop;
use ribtide_prefix::ByFamily;
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::Sender;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

/// The import settings of a neighbour for its session. `other_own_as`: the AS numbers of ours beside that of the session.
fn ingest(
    settings: &NeighborSettings,
    info: &PeerInfo,
    other_own_as: [u32; 2],
    confederation: bool,
    cluster_id: Ipv4Addr,
) -> IngestSettings {
    let local_as = settings.as_numbers.local_as.filter(|_| info.kind.is_external());
    IngestSettings {
        import: settings.import.clone(),
        allow_own_as: settings.as_numbers.allowas_in,
        other_own_as,
        confederation,
        prepended_as: local_as.filter(|l| l.prepend && l.asn == info.egress.local_asn).map(|l| l.asn),
        enforce_first_as: settings.enforce_first_as,
        prefix_sid: settings.prefix_sid,
        aigp: settings.aigp,
        cluster_id: Some(cluster_id),
        role: settings.role,
        martians: settings.martians.clone(),
        attributes: settings.attributes,
        max_prefixes: settings.max_prefixes.received,
        keep_received: settings.keep_received,
    }
}

impl Sessions {
    /// The import settings of a neighbour for its session.
    pub(super) fn ingest(&self, settings: &NeighborSettings, info: &PeerInfo) -> IngestSettings {
        let local_as = settings.as_numbers.local_as.filter(|_| info.kind.is_external());
        let ours = [Some(self.asn), self.confederation, local_as.map(|local_as| local_as.asn)];
        let mut others = ours.into_iter().flatten().filter(|asn| *asn != info.egress.local_asn);
        let mut other = || others.next().unwrap_or(0);
        ingest(settings, info, [other(), other()], self.confederation.is_some(), self.cluster_id)
    }

    /// The session of a peer is established on the connection of `side`.
    pub(super) fn up(&mut self, id: PeerId, side: Side, negotiated: &Negotiated) {
        if let Err(why) = self.hand_over(id, side, negotiated) {
            self.event(id, Event::Closed(side, why));
        }
    }

    fn hand_over(&mut self, id: PeerId, side: Side, negotiated: &Negotiated) -> Result<(), String> {
        let interfaces = std::mem::take(&mut self.interfaces);
        let described = self.describe(id, side, negotiated, &interfaces);
        self.interfaces = interfaces;
        let (info, local) = described?;
        let worker = self.worker_for(&info.egress);
        // The reader of the sessions before has the retained routes.
        let retained = self.peers.get(&id).and_then(|peer| peer.retained.first());
        let reader = retained.map_or_else(|| self.least_loaded_reader(), |retained| retained.reader);

        let Some(peer) = self.peers.get(&id) else { return Ok(()) };
        let settings = self.ingest(&peer.settings, &info);
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(()) };
        let Some(connection) = peer.slot(side).as_mut() else { return Ok(()) };
        let fd = connection.stream.as_raw_fd();
        // The reader reads from now; only writability matters here.
        let stream = self
            .poll
            .registry()
            .reregister(&mut SourceFd(&fd), super::token_of(id, side), Interest::WRITABLE)
            .and_then(|()| connection.stream.try_clone())
            .map_err(|error| format!("the connection cannot be given to a reader: {error}"))?;
        let port = |address: std::io::Result<SocketAddr>| address.map_or(0, |address| address.port());
        let monitored = Arc::new(SessionUp {
            info: info.clone(),
            at: SystemTime::now(),
            local,
            ports: (port(connection.stream.local_addr()), port(connection.stream.peer_addr())),
            sent: connection.sent_open.clone(),
            received: connection.received_open.clone(),
        });
        let unread = std::mem::take(&mut connection.input);
        let heard = Arc::new(AtomicU64::new(self.clock.now()));
        let peer_info = info.clone();
        let marks = Marks {
            understood: negotiated.enhanced_refresh,
            after_end_of_rib: negotiated.restart.is_some(),
            ..Marks::default()
        };
        let record = self.recorder_bytes;
        let attach =
            Attach { stream, unread, info: peer_info, settings, heard: heard.clone(), marks, record };
        let up = Up {
            info: info.clone(),
            side,
            worker,
            reader,
            local,
            monitored: monitored.clone(),
            heard,
            backlog: Backlog::default(),
            initial_done: FamilySet::NONE,
            limits: PrefixLimits::default(),
            refresh_until: ByFamily::default(),
        };
        peer.up = Some(up);
        self.restarted(id, negotiated);

        self.outbox.send_to_monitors(&SessionNews::Up(monitored));
        // Workers learn of a source before its reader can send the first route.
        for at in 0..self.outbox.workers() {
            let info = info.clone();
            let message = if at == worker { EgressIn::MemberUp(info) } else { EgressIn::SourceUp(info) };
            self.outbox.send_to_worker(at, message);
        }
        self.limit_sent(id);
        self.join_group(&info.egress, worker);
        self.load[reader] += 1;
        self.outbox.send_to_reader(reader, Command::Attach(Box::new(attach)));
        Ok(())
    }

    /// Ends the session of a peer, whose routes may be retained.
    pub(super) fn down(&mut self, id: PeerId, retention: Option<Retention>) {
        let now = self.clock.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.stalled = None;
        if let Some(connection) = peer.connection() {
            connection.output.cut(message_len);
        }
        let Some(up) = peer.up.take() else { return };
        let cause = std::mem::replace(&mut self.down_cause, DownCause::LocalEvent(0));
        let families = retention.map_or_else(FamilySet::default, |retention| retention.families);
        peer.recorder.lose(up.monitored.clone(), &cause, now);
        let at = SystemTime::now();
        self.outbox.send_to_monitors(&SessionNews::Down { up: up.monitored.clone(), cause, at });
        self.outbox.send_to_worker(up.worker, EgressIn::MemberDown(id));
        self.ids.ended(id, up.info.session);
        self.end_earlier_retention(id, retention, now);
        self.outbox.send_to_reader(up.reader, Command::Detach(id, up.info.session, families));
        self.load[up.reader] -= 1;
        self.leave_group(&up.info.egress, up.worker);
        if let Some(retention) = retention {
            self.retain(id, Retained::new(retention, up.info.session, up.reader, now), now);
        }
        self.announce_restarts(id);
    }

    /// The established sessions, for a monitor that begins. News that the session thread sent before this call are
    /// part of it.
    pub fn monitored(&self) -> Vec<Arc<SessionUp>> {
        self.peers.values().filter_map(|peer| Some(peer.up.as_ref()?.monitored.clone())).collect()
    }

    /// A worker is to know every source from now on, and gets no member yet. Returns whether no message for other workers waits
    /// any more; call it again otherwise.
    pub(crate) fn add_worker(&mut self, at: usize, control: Sender<EgressIn>) -> bool {
        let is_settled = self.outbox.set_worker(at, control);
        self.send_presence_to(at);
        is_settled
    }

    /// Gives new sessions to so many workers, of those that were added.
    pub(crate) fn set_update_threads(&mut self, threads: usize) {
        self.outbox.update_threads = threads;
    }

    /// The workers that have members.
    pub(crate) fn used_workers(&self) -> BTreeSet<usize> {
        self.groups.values().flatten().map(|(worker, _)| *worker).collect()
    }

    /// Starts other threads that write beside this one, one for each of `cpus`. The present ones end; no connection is lent out
    /// now.
    pub(crate) fn set_writers(&mut self, cpus: Vec<Option<Cpus>>) {
        if let Err(error) = self.writers.restart(cpus) {
            tracing::warn!(
                target: target::BGP,
                %error,
                "the threads that write stay where they are: the system gives no others"
            );
        }
    }

    /// Sets the BMP monitor. Each session that begins from now on is news for it.
    pub fn set_bmp(&mut self, tap: Option<Tap>) {
        self.outbox.set_bmp(tap);
    }

    /// Sets the MRT monitor, as [`Sessions::set_bmp`].
    pub fn set_mrt(&mut self, tap: Option<Tap>) {
        self.outbox.set_mrt(tap);
    }

    /// Changes the egress settings of an established session. Its worker stays and takes over the
    /// new group, because it knows what was sent and what waits.
    pub(super) fn send_otherwise(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else { return };
        let (Some(up), Some(negotiated)) = (&peer.up, peer.fsm.negotiated()) else { return };
        let egress = self.egress(peer, &peer.settings, negotiated, up.local, &self.interfaces);
        let (former, worker) = (up.info.clone(), up.worker);
        if egress == former.egress {
            return;
        }
        let info = Arc::new(PeerInfo { egress, ..(*former).clone() });
        self.leave_group(&former.egress, worker);
        self.join_group(&info.egress, worker);
        if let Some(up) = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut()) {
            up.info = info.clone();
        }
        self.outbox.send_to_worker(worker, EgressIn::MemberChanged(info));
    }

    fn join_group(&mut self, settings: &EgressSettings, worker: usize) {
        let places = self.groups.entry(settings.clone()).or_default();
        match places.iter_mut().find(|(at, _)| *at == worker) {
            Some((_, members)) => *members += 1,
            None => places.push((worker, 1)),
        }
    }

    fn leave_group(&mut self, settings: &EgressSettings, worker: usize) {
        let Some(places) = self.groups.get_mut(settings) else { return };
        places.iter_mut().filter(|(at, _)| *at == worker).for_each(|(_, members)| *members -= 1);
        places.retain(|(_, members)| *members > 0);
        if places.is_empty() {
            self.groups.remove(settings);
        }
    }

    /// The facts of the session for shards and workers, and the local address.
    fn describe(
        &mut self,
        id: PeerId,
        side: Side,
        negotiated: &Negotiated,
        interfaces: &[InterfaceConfig],
    ) -> Result<(Arc<PeerInfo>, IpAddr), String> {
        let session = self.ids.next_session(id);
        let gone = || "the connection ended: it is gone".to_owned();
        let peer = self.peers.get_mut(&id).ok_or_else(gone)?;
        let stream = &peer.slot(side).as_ref().ok_or_else(gone)?.stream;
        let local = stream.local_addr().map_err(|e| e.to_string())?.ip().to_canonical();
        let peer = self.peers.get(&id).ok_or_else(gone)?;
        let info = PeerInfo {
            id,
            session,
            address: peer.address,
            asn: negotiated.asn,
            router_id: negotiated.router_id,
            kind: peer.kind,
            multihop: peer.settings.is_multihop(),
            link: self
                .links
                .link_to(peer.address)
                .filter(|_| !peer.settings.is_multihop())
                .map(|(index, name)| super::unnumbered::zone(interfaces, index, name)),
            families: negotiated.families,
            path_ids: negotiated.path_ids,
            long_lived: peer.settings.graceful_restart.long_lived_time.is_some(),
            egress: self.egress(peer, &peer.settings, negotiated, local, interfaces),
        };
        Ok((Arc::new(info), local))
    }

    /// Whether internal peers may get routes with our own address, whatever their settings are.
    pub(super) fn sends_own_addresses(&self) -> bool {
        self.originated.is_configured() || self.unnumbered.is_configured()
    }

    /// The egress settings of a session with these settings of its neighbour.
    pub(super) fn egress(
        &self,
        peer: &Peer,
        settings: &NeighborSettings,
        negotiated: &Negotiated,
        local: IpAddr,
        interfaces: &[InterfaceConfig],
    ) -> EgressSettings {
        // RFC 2545 section 3: the receivers are on the link of a link-local address.
        let link_local = match local {
            IpAddr::V6(local) if local.is_unicast_link_local() => Some(local),
            _ => None,
        };
        let own = || {
            let (v4, v6) = socket::own_addresses(local, peer.link.as_ref(), interfaces);
            // A session over IPv6 needs no IPv4 address on the link, nor that it is on the same subnet.
            (v4.filter(|_| local.is_ipv4() || !negotiated.extended_next_hop), v6)
        };
        let next_hop = if peer.kind.is_external() || settings.next_hop_self {
            let (v4, v6) = own();
            NextHopRule::Own { v4, v6 }
        } else if self.sends_own_addresses()
            || settings.default_originate.is_some()
            || settings.export.sets_next_hop(SetNextHop::Own)
            || settings.unsuppress.as_ref().is_some_and(|policy| policy.sets_next_hop(SetNextHop::Own))
        {
            let (v4, v6) = own();
            NextHopRule::KeepUnlessOwn { v4, v6 }
        } else {
            NextHopRule::Keep
        };
        let as_numbers = &settings.as_numbers;
        let external = peer.kind.is_external();
        let local_asn = if external { negotiated.local_asn } else { self.asn };
        let asn = self.asn_for(peer.kind);
        let hides = local_asn != asn && as_numbers.local_as.is_some_and(|local_as| !local_as.replace);
        EgressSettings {
            kind: peer.kind,
            local_asn,
            hidden_asn: hides.then_some(asn),
            as_override: (external && as_numbers.as_override).then_some(negotiated.asn),
            remove_private_as: as_numbers.remove_private_as.filter(|_| external).map(|remove| {
                RemovePrivateAs { all: remove.all, replace: remove.replace, peer_asn: negotiated.asn }
            }),
            cluster_id: self.cluster_id,
            router_id: self.router_id,
            families: negotiated.families,
            four_octet_as: negotiated.four_octet_as,
            max_message: if negotiated.extended_message { u16::MAX } else { 4096 },
            prefix_sid: settings.prefix_sid,
            long_lived: negotiated.long_lived.is_some(),
            long_lived_partial: negotiated.long_lived.is_none()
                && settings.graceful_restart.long_lived_partial
                && peer.kind.is_inside(),
            aigp: settings.aigp,
            role: settings.role,
            next_hop,
            link_local,
            extended_next_hop: negotiated.extended_next_hop,
            default_originate: self.default_route(settings.default_originate.as_ref()),
            add_path: settings.add_path.send.within(negotiated.sent_path_ids),
            client: settings.best_path_per_client.then_some(peer.id),
            export: settings.export.clone(),
            unsuppress: settings.unsuppress.clone(),
        }
    }

    /// The worker of the group of these settings. A new group goes to the worker with the least
    /// load, and stays there.
    fn worker_for(&self, settings: &EgressSettings) -> usize {
        let takes_members = |place: &&(usize, usize)| place.0 < self.outbox.update_threads;
        let places = self.groups.get(settings);
        if let Some((worker, _)) = places.and_then(|places| places.iter().find(takes_members)) {
            return *worker;
        }
        let load = |worker: &usize| -> u64 {
            let places =
                self.groups.iter().flat_map(|(settings, places)| places.iter().map(move |p| (settings, p)));
            places
                .filter(|(_, (at, _))| at == worker)
                .map(|(settings, (_, members))| load(settings, *members))
                .sum()
        };
        (0..self.outbox.update_threads).min_by_key(load).unwrap_or(0)
    }

    fn least_loaded_reader(&self) -> usize {
        (0..self.load.len()).min_by_key(|reader| self.load[*reader]).unwrap_or(0)
    }
}

/// The load of a group: each family is packed once, and every chunk goes to every member.
fn load(settings: &EgressSettings, members: usize) -> u64 {
    /// The members whose load equals that of packing.
    const PACKING: u64 = 16;
    let families = settings.families.iter().count() as u64;
    families * (PACKING + members as u64)
}
