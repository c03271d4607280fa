//! Another configuration of the neighbours, while the others' sessions last.

use super::{Sessions, keys};
use crate::reader::Command;
use ribtide_bgp::fsm::Event;
use ribtide_bgp::peer::PeerId;
use ribtide_config::{BgpConfig, NeighborSettings};
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::notification::cease;
use std::net::IpAddr;

/// What became of the neighbours, each in one list at most. Those in none were not touched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Neighbors {
    /// New ones.
    pub added: Vec<IpAddr>,
    /// Those that are gone.
    pub removed: Vec<IpAddr>,
    /// Their session ended, and starts over with other settings.
    pub reset: Vec<IpAddr>,
    /// Their session lasts, and routes are exchanged again where the policy is another.
    pub refreshed: Vec<IpAddr>,
}

/// What it takes to bring other settings into force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Difference {
    /// They are the same.
    None,
    /// The session lasts.
    Soft {
        /// The peer is asked for its routes again.
        import: bool,
        /// The peer is sent what it lacks now, and loses what it should not have.
        export: bool,
    },
    /// Another session.
    Session,
}

/// Every setting is named here, so that a new one does not compile before its effect on a change is written down.
fn difference(old: &NeighborSettings, new: &NeighborSettings) -> Difference {
    let NeighborSettings {
        group,
        import,
        export,
        peer_asn,
        route_reflector_client,
        passive,
        families,
        hold_time,
        connect_retry,
        local_address,
        port,
        next_hop_self,
        multihop,
        password,
        bfd,
        fast_external_fallover,
        enforce_first_as,
        martians,
        attributes,
    } = new;
    let same_session = *peer_asn == old.peer_asn
        && *route_reflector_client == old.route_reflector_client
        && *passive == old.passive
        && *families == old.families
        && *hold_time == old.hold_time
        && *connect_retry == old.connect_retry
        && *local_address == old.local_address
        && *port == old.port
        && *next_hop_self == old.next_hop_self
        && *multihop == old.multihop
        && *password == old.password;
    let import = *import != old.import
        || *enforce_first_as != old.enforce_first_as
        || *martians != old.martians
        || *attributes != old.attributes;
    let export = *export != old.export;
    if !same_session {
        Difference::Session
    } else if import
        || export
        || *group != old.group
        || *bfd != old.bfd
        || *fast_external_fallover != old.fast_external_fallover
    {
        Difference::Soft { import, export }
    } else {
        Difference::None
    }
}

impl Sessions {
    /// Brings other neighbours and ranges into force.
    ///
    /// # Errors
    /// A sentence, and nothing has changed, when the kernel refuses a password.
    pub fn reconfigure(&mut self, bgp: &BgpConfig) -> Result<Neighbors, String> {
        let wanted = keys::of(bgp);
        keys::change(&self.listeners, &self.keys, &wanted).map_err(|e| e.to_string())?;
        self.keys = wanted;
        self.ranges.clone_from(&bgp.dynamic);
        let mut changed = Neighbors::default();
        let present: Vec<(IpAddr, PeerId)> = self.by_address.iter().map(|(a, id)| (*a, *id)).collect();
        for (address, id) in present {
            self.renew(bgp, address, id, &mut changed);
        }
        for (address, neighbor) in &bgp.neighbors {
            if !self.by_address.contains_key(address) {
                let id = self.configure(neighbor);
                self.event(id, Event::Start);
                if !changed.reset.contains(address) {
                    changed.added.push(*address);
                }
            }
        }
        Ok(changed)
    }

    /// Applies the configuration to a neighbour that is there.
    fn renew(&mut self, bgp: &BgpConfig, address: IpAddr, id: PeerId, changed: &mut Neighbors) {
        let Some(peer) = self.peers.get(&id) else { return };
        let configured = bgp.neighbors.get(&address);
        let ranged = peer.dynamic.then(|| self.range_of(address)).flatten();
        let Some(settings) = configured.map(|neighbor| neighbor.settings.clone()).or(ranged) else {
            self.remove(id, &Notification::cease(cease::PEER_DECONFIGURED));
            return changed.removed.push(address);
        };
        let description = configured.and_then(|neighbor| neighbor.description.clone());
        let renamed = description != peer.description;
        let mut takes = difference(&peer.settings, &settings);
        // Without a refresh the peer's routes come again only with another session.
        let refreshable = peer.fsm.negotiated().is_none_or(|negotiated| negotiated.route_refresh);
        if matches!(takes, Difference::Soft { import: true, .. }) && !refreshable {
            takes = Difference::Session;
        }
        if takes == Difference::Session {
            let stopped = peer.fsm.stopped();
            self.remove(id, &Notification::cease(cease::CONFIG_CHANGE));
            if let Some(neighbor) = configured {
                let id = self.configure(neighbor);
                // One that an operator has shut down stays so.
                if !stopped {
                    self.event(id, Event::Start);
                }
            }
            return changed.reset.push(address);
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.settings = settings;
            peer.description = description;
            peer.dynamic = configured.is_none();
        }
        self.obey(id);
        if let Difference::Soft { import, export } = takes {
            if export {
                self.send_otherwise(id);
            }
            if import {
                self.import_again(id);
            }
        }
        if renamed || takes != Difference::None {
            changed.refreshed.push(address);
        }
    }

    /// What decides about the routes of an established session is something else: the reader hears of it, and then the peer is asked for its
    /// routes again.
    fn import_again(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else { return };
        let Some(up) = &peer.up else { return };
        let (side, reader, families) = (up.side, up.reader, up.info.families);
        let command = Command::Import(id, up.info.session, Box::new(super::link::ingest(&peer.settings)));
        self.outbox.tell_reader(reader, command);
        self.ask_for_routes(id, side, families);
    }

    /// A neighbour goes: its session ends with this, and its number is free when nothing of it is left.
    fn remove(&mut self, id: PeerId, farewell: &Notification) {
        if let Some(peer) = self.peers.get_mut(&id) {
            // One that came from a range goes with its connection, and now so does this.
            peer.dynamic = true;
            self.event(id, Event::Stop(farewell.clone()));
        }
    }
}
