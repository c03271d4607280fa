//! Reload of the neighbours, while other sessions continue.

use super::peer::Peer;
use super::{Sessions, keys, tcp_ao};
use crate::reader::Command;
use ribtide_bgp::fsm::Event;
use ribtide_bgp::peer::PeerId;
use ribtide_config::{
    AsNumbers, BgpConfig, DynamicRange, InterfaceConfig, NeighborConfig, NeighborSettings, TcpAoConfig,
};
use ribtide_prefix::zone::split_zone;
use ribtide_runtime::log::target;
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::notification::cease;
use std::net::IpAddr;

/// The neighbours that a reload touched, each in one list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Neighbors {
    /// Added neighbours.
    pub added: Vec<IpAddr>,
    /// Removed neighbours.
    pub removed: Vec<IpAddr>,
    /// Their session was reset for the new settings.
    pub reset: Vec<IpAddr>,
    /// Their session continues, and routes are exchanged again if a policy changed.
    pub refreshed: Vec<IpAddr>,
    /// They are shut down from now.
    pub shut_down: Vec<IpAddr>,
    /// They are no longer shut down.
    pub started: Vec<IpAddr>,
}

/// What a change of settings requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Difference {
    /// No difference.
    None,
    /// The session continues.
    Soft {
        /// Evaluate import again: with the routes that the reader keeps, or with a route refresh.
        import: bool,
        /// Send the difference to the peer.
        export: bool,
    },
    /// A new session.
    Session,
}

/// The changed settings of a neighbour, by their names in the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangedSettings {
    /// Those that only a new session has.
    pub session: Vec<&'static str>,
    /// Those of received routes.
    pub import: Vec<&'static str>,
    /// Those of sent routes.
    pub export: Vec<&'static str>,
    /// Others, which the present session obeys.
    pub other: Vec<&'static str>,
}

impl ChangedSettings {
    /// Every setting is listed, so that a new one does not compile without a decision.
    fn between(old: &NeighborSettings, new: &NeighborSettings) -> ChangedSettings {
        let NeighborSettings {
            group,
            import,
            export,
            unsuppress,
            peer_asn,
            kind,
            as_numbers,
            // A session ends or begins for it, whatever the difference is.
            shutdown: _,
            // The policies contain what it changes.
            graceful_shutdown: _,
            passive,
            families,
            hold_time,
            connect_retry,
            local_address,
            port,
            next_hop_self,
            multihop,
            ttl_security,
            role,
            role_strict,
            password,
            tcp_ao,
            bfd,
            fast_external_fallover,
            enforce_first_as,
            prefix_sid,
            aigp,
            keep_received,
            martians,
            attributes,
            max_prefixes,
            graceful_restart,
            add_path,
            best_path_per_client,
            extended_next_hop,
            default_originate,
        } = new;
        let AsNumbers { local_as, allowas_in, as_override, remove_private_as } = *as_numbers;
        let was = &old.as_numbers;
        let restart = &old.graceful_restart;
        let changed = |rows: &[(&'static str, bool)]| -> Vec<&'static str> {
            let mut names: Vec<_> = rows.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect();
            names.dedup();
            names
        };
        ChangedSettings {
            session: changed(&[
                ("peer-asn", *peer_asn == old.peer_asn),
                ("type", *kind == old.kind),
                ("local-as", local_as == was.local_as),
                ("families", *families == old.families),
                ("hold-time", *hold_time == old.hold_time),
                ("local-address", *local_address == old.local_address),
                ("multihop", *multihop == old.multihop),
                ("ttl-security", *ttl_security == old.ttl_security),
                ("role", *role == old.role),
                // Present sessions without a role end by it.
                ("role-strict", !*role_strict || old.role_strict),
                (
                    "add-path",
                    add_path.receive == old.add_path.receive
                        && add_path.send.families() == old.add_path.send.families(),
                ),
                ("extended-next-hop", *extended_next_hop == old.extended_next_hop),
                ("password", *password == old.password),
                ("tcp-ao", keeps_keys(old.tcp_ao.as_deref(), tcp_ao.as_deref())),
                (
                    "graceful-restart",
                    graceful_restart.helper == restart.helper
                        && graceful_restart.restart_time.is_some() == restart.restart_time.is_some()
                        && graceful_restart.long_lived_time == restart.long_lived_time,
                ),
            ]),
            import: changed(&[
                ("import", *import == old.import),
                ("allowas-in", allowas_in == was.allowas_in),
                ("enforce-first-as", *enforce_first_as == old.enforce_first_as),
                ("prefix-sid", *prefix_sid == old.prefix_sid),
                ("aigp", *aigp == old.aigp),
                ("martians", *martians == old.martians),
                ("attributes", *attributes == old.attributes),
                ("keep-received", *keep_received == old.keep_received),
                ("max-prefixes", max_prefixes.received == old.max_prefixes.received),
            ]),
            export: changed(&[
                ("export", *export == old.export),
                ("unsuppress", *unsuppress == old.unsuppress),
                ("default-originate", *default_originate == old.default_originate),
                ("graceful-restart", graceful_restart.long_lived_partial == restart.long_lived_partial),
                ("prefix-sid", *prefix_sid == old.prefix_sid),
                ("aigp", *aigp == old.aigp),
                ("as-override", as_override == was.as_override),
                ("remove-private-as", remove_private_as == was.remove_private_as),
                ("add-path", add_path.send == old.add_path.send),
                ("next-hop-self", *next_hop_self == old.next_hop_self),
                ("best-path-per-client", *best_path_per_client == old.best_path_per_client),
            ]),
            other: changed(&[
                ("group", *group == old.group),
                ("passive", *passive == old.passive),
                ("connect-retry", *connect_retry == old.connect_retry),
                ("port", *port == old.port),
                ("role-strict", *role_strict == old.role_strict),
                ("bfd", *bfd == old.bfd),
                ("fast-external-fallover", *fast_external_fallover == old.fast_external_fallover),
                ("max-prefixes", *max_prefixes == old.max_prefixes),
                ("graceful-restart", *graceful_restart == *restart),
                ("tcp-ao", *tcp_ao == old.tcp_ao),
            ]),
        }
    }

    fn takes(&self) -> Difference {
        let ChangedSettings { session, import, export, other } = self;
        match (session.is_empty(), import.is_empty() && export.is_empty() && other.is_empty()) {
            (false, _) => Difference::Session,
            (true, false) => Difference::Soft { import: !import.is_empty(), export: !export.is_empty() },
            (true, true) => Difference::None,
        }
    }

    /// All of them, each once.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for name in [&self.session, &self.import, &self.export, &self.other].into_iter().flatten() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names
    }
}

/// What a configuration means for a present neighbour, before anything is applied.
pub(super) struct Renewal {
    /// The neighbour in the new configuration, unless it is one of a range.
    pub(super) configured: Option<NeighborConfig>,
    /// Its new settings.
    pub(super) settings: NeighborSettings,
    /// Which settings changed.
    pub(super) changed: ChangedSettings,
    /// What they take.
    pub(super) takes: Difference,
    /// Why a session begins again that its own settings would not end; `None`: no such reason.
    pub(super) why: Option<&'static str>,
    /// Whether the description is another.
    pub(super) renamed: bool,
    /// Whether the reader keeps the routes before import policy, and they stay the same.
    pub(super) kept: bool,
}

/// Whether a connection with the TCP-AO keys `old` can have `new`: one without keys never gets any, and the other way round.
fn keeps_keys(old: Option<&TcpAoConfig>, new: Option<&TcpAoConfig>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old.is_live_change(new),
        (old, new) => old.is_none() && new.is_none(),
    }
}

/// The settings of a neighbour at this address by the most specific of these ranges.
pub(super) fn settings_of_range(ranges: &[DynamicRange], address: IpAddr) -> Option<NeighborSettings> {
    let ranges = ranges.iter().filter(|d| d.range.contains(address));
    let range = ranges.max_by_key(|d| d.range.len())?;
    Some(NeighborSettings { passive: true, ..range.settings.clone() })
}

/// The identifiers of the whole router that changed. They are in rules for received routes and in attributes of sent ones.
#[derive(Clone, Copy)]
pub(super) struct ChangedIds {
    /// That of the confederation, which is in OPENs, too: every session begins again.
    pub(super) confederation: bool,
    /// The cluster id: internal peers get the difference, and their routes are checked again.
    pub(super) cluster_id: bool,
}

impl Sessions {
    /// Changes the keys and addresses of the listening sockets.
    ///
    /// # Errors
    /// A sentence when the kernel refuses a key or an address. Nothing has changed.
    pub fn listen(&mut self, bgp: &BgpConfig) -> Result<(), String> {
        tcp_ao::check_kernel(bgp)?;
        let wanted = keys::of(bgp);
        keys::change(self.listeners.sockets(), &self.keys, &wanted).map_err(|e| e.to_string())?;
        if let Err(error) = self.listeners.change(&bgp.listen, &wanted, &self.poll) {
            // The kernel accepted these before.
            drop(keys::change(self.listeners.sockets(), &wanted, &self.keys));
            return Err(error.to_string());
        }
        self.keys = wanted;
        Ok(())
    }

    /// Applies other neighbours and ranges.
    ///
    /// # Errors
    /// A sentence when the kernel refuses a key or an address to listen on. Nothing has changed.
    pub fn reconfigure(&mut self, bgp: &BgpConfig) -> Result<Neighbors, String> {
        self.listen(bgp)?;
        let cluster_id = self.cluster_id != bgp.cluster_id;
        let identifier = bgp.confederation.as_ref().map(|ours| ours.identifier);
        let confederation = std::mem::replace(&mut self.confederation, identifier) != identifier;
        let ids = ChangedIds { confederation, cluster_id };
        self.cluster_id = bgp.cluster_id;
        self.ranges.clone_from(&bgp.dynamic);
        self.set_recorder_bytes(bgp.recorder_bytes);
        let present: Vec<(IpAddr, PeerId)> = self.by_address.iter().map(|(a, id)| (*a, *id)).collect();
        let own_addresses = self.sends_own_addresses();
        self.originate(&bgp.originate);
        self.configure_interfaces(&bgp.interfaces);
        if own_addresses != self.sends_own_addresses() {
            // Internal peers get our own address in NEXT_HOP of originated routes, and of those from a link alone.
            let ids: Vec<PeerId> = self.peers.keys().copied().collect();
            ids.into_iter().for_each(|id| self.send_otherwise(id));
        }
        let ranges = bgp.dynamic.iter().map(|range| &range.settings);
        let interfaces = bgp.interfaces.iter().map(|neighbor| &neighbor.settings);
        let neighbors = bgp.neighbors.values().map(|neighbor| &neighbor.settings);
        self.begin_default_routes(neighbors.chain(ranges).chain(interfaces));
        let mut changed = Neighbors::default();
        for (address, id) in present {
            // An interface that is no longer configured has no neighbour any more.
            if self.by_address.get(&address) == Some(&id) {
                self.renew(bgp, id, ids, &mut changed);
            } else {
                changed.removed.push(split_zone(address).0);
            }
        }
        for (address, neighbor) in &bgp.neighbors {
            if !self.by_address.contains_key(address) {
                let id = self.configure(neighbor);
                self.start(id);
                if !changed.reset.contains(address) {
                    changed.added.push(*address);
                }
            }
        }
        self.watch_routes();
        Ok(changed)
    }

    /// Sets the `[[interface]]` tables: their addresses may be next hops that are sent, and a neighbour by interface is known
    /// by the number of its table.
    pub fn set_interfaces(&mut self, interfaces: &[InterfaceConfig]) {
        if self.interfaces == interfaces {
            return;
        }
        self.interfaces = interfaces.to_vec();
        self.renumber_links();
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        ids.into_iter().for_each(|id| self.send_otherwise(id));
    }

    /// What a configuration with these changed identifiers means for a present neighbour; `None`: it has it no more.
    pub(super) fn renewal(&self, bgp: &BgpConfig, peer: &Peer, ids: ChangedIds) -> Option<Renewal> {
        let address = peer.address;
        let by_interface =
            peer.link.as_ref().and_then(|link| bgp.interface_neighbor(&link.name)).map(|neighbor| {
                let (description, settings) = (neighbor.description.clone(), neighbor.settings.clone());
                NeighborConfig { address, description, settings }
            });
        let configured = bgp.neighbors.get(&address).cloned().or(by_interface);
        let ranged = || settings_of_range(&bgp.dynamic, address);
        let ranged = peer.dynamic.then(ranged).flatten();
        let settings = configured.as_ref().map(|neighbor| neighbor.settings.clone()).or(ranged)?;
        let description = configured.as_ref().and_then(|neighbor| neighbor.description.clone());
        let changed = ChangedSettings::between(&peer.settings, &settings);
        let mut why = ids.confederation.then_some("bgp.confederation changes");
        let mut takes = if why.is_some() { Difference::Session } else { changed.takes() };
        let reflects = ids.cluster_id && settings.kind.is_internal();
        if reflects && takes != Difference::Session {
            takes = Difference::Soft { import: true, export: true };
        }
        let kept = peer.up.as_ref().is_some_and(|up| {
            let is_local =
                self.ingest(&peer.settings, &up.info).is_local_change(&self.ingest(&settings, &up.info));
            is_local && !reflects
        });
        // Without route refresh, only a new session brings the routes again.
        let refreshable = peer.fsm.negotiated().is_none_or(|negotiated| negotiated.route_refresh);
        if matches!(takes, Difference::Soft { import: true, .. }) && !refreshable && !kept {
            takes = Difference::Session;
            why = Some("the peer has no route refresh (RFC 2918), and its routes are not kept");
        }
        Some(Renewal {
            renamed: description != peer.description,
            configured,
            settings,
            changed,
            takes,
            why,
            kept,
        })
    }

    /// Applies a configuration with these changed identifiers to an existing neighbour.
    fn renew(&mut self, bgp: &BgpConfig, id: PeerId, ids: ChangedIds, changed: &mut Neighbors) {
        let Some(peer) = self.peers.get(&id) else { return };
        let link = peer.link.clone();
        let named = split_zone(peer.address).0;
        let Some(renewal) = self.renewal(bgp, peer, ids) else {
            self.remove(id, &Notification::cease(cease::PEER_DECONFIGURED));
            return changed.removed.push(named);
        };
        let Renewal { configured, settings, mut takes, renamed, kept, .. } = renewal;
        let description = configured.as_ref().and_then(|neighbor| neighbor.description.clone());
        let rolled = takes == Difference::Session || Self::roll_keys(peer, &settings);
        if !rolled {
            takes = Difference::Session;
        }
        let shuts_down = settings.shutdown.clone().filter(|_| peer.settings.shutdown.is_none());
        let starts = peer.settings.shutdown.is_some() && settings.shutdown.is_none();
        // Before all else, so that the peer gets this reason, and no other change finds a session.
        if let Some(text) = &shuts_down {
            if let Some(peer) = self.peers.get_mut(&id) {
                // The operator decides when there is a session again.
                peer.limits.end_wait();
            }
            self.event(id, Event::Stop(Notification::cease_with_text(cease::ADMIN_SHUTDOWN, text)));
        }
        if takes == Difference::Session {
            self.remove(id, &Notification::cease(cease::CONFIG_CHANGE));
            if let Some(neighbor) = &configured {
                let id = self.configure_on(neighbor, link);
                self.start(id);
            }
        } else {
            if let Some(peer) = self.peers.get_mut(&id) {
                if settings.max_prefixes != peer.settings.max_prefixes {
                    // The session may be within the new limit.
                    peer.limits.end_wait();
                }
                peer.fsm.set_connecting(settings.passive, settings.connect_retry, settings.role_strict);
                peer.settings = settings;
                peer.description = description;
                self.unnumbered.unshared();
                peer.dynamic = configured.is_none();
            }
            self.announce_restarts(id);
            self.obey(id);
            self.limit_sent(id);
            self.start(id);
            if let Difference::Soft { import, export } = takes {
                if export {
                    self.send_otherwise(id);
                }
                if import {
                    // The former settings accepted them, and no peer sends them again.
                    self.end_retention(id);
                    self.import_again(id, kept);
                }
                self.settle(id);
            }
        }
        if shuts_down.is_some() {
            changed.shut_down.push(named);
        } else if starts {
            changed.started.push(named);
        } else if takes == Difference::Session {
            changed.reset.push(named);
        } else if renamed || takes != Difference::None {
            changed.refreshed.push(named);
        }
    }

    /// Gives the connections of a neighbour the TCP-AO keys of its new settings. `false`: one cannot have them, and must end.
    fn roll_keys(peer: &Peer, new: &NeighborSettings) -> bool {
        let (Some(old), Some(ao)) = (&peer.settings.tcp_ao, &new.tcp_ao) else { return true };
        if old == ao {
            return true;
        }
        let outcome = peer
            .connections()
            .try_for_each(|connection| tcp_ao::roll(&connection.stream, peer.address, old, ao));
        if let Err(error) = &outcome {
            let neighbor = peer.address;
            tracing::warn!(target: target::BGP_SESSION, %neighbor, %error, "the session ends: its TCP-AO keys cannot be replaced");
        }
        outcome.is_ok()
    }

    /// Sends the new import settings of an established session to its reader, and then requests a
    /// route refresh, unless the reader has `kept` the routes.
    fn import_again(&mut self, id: PeerId, kept: bool) {
        let Some(peer) = self.peers.get(&id) else { return };
        let Some(up) = &peer.up else { return };
        let (side, reader, families) = (up.side, up.reader, up.info.families);
        let settings = self.ingest(&peer.settings, &up.info);
        let command = Command::Import(id, up.info.session, Box::new(settings));
        self.outbox.send_to_reader(reader, command);
        if !kept {
            self.request_routes(id, side, families);
        }
    }

    /// Removes a neighbour and its session. Its number is free when no trace is left.
    pub(super) fn remove(&mut self, id: PeerId, farewell: &Notification) {
        if let Some(peer) = self.peers.get_mut(&id) {
            // A neighbour of a range ends with its connection; this one does now.
            peer.dynamic = true;
            peer.limits.end_wait();
            self.event(id, Event::Stop(farewell.clone()));
        }
    }
}
