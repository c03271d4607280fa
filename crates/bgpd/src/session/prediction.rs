//! What a configuration would mean for each neighbour, before anything is applied: `ribtide check --diff`.
//!
//! The decisions are those of the reload ([`super::reconfiguration`]); nothing changes here.

use super::Sessions;
use super::reconfiguration::{ChangedIds, ChangedSettings, Difference, Renewal};
use ribtide_bgp::ingest::IngestSettings;
use ribtide_bgp::peer::{EgressSettings, PeerInfo};
use ribtide_config::BgpConfig;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// What a reload does to a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighborChange {
    /// Nothing.
    None,
    /// It is new.
    Added,
    /// It is no longer configured.
    Removed,
    /// Its session begins again.
    Reset,
    /// Its session continues with other settings.
    Refreshed,
    /// It is shut down.
    ShutDown,
    /// It is no longer shut down.
    Started,
}

/// A neighbour, and what a reload would do to it.
#[derive(Clone, Debug)]
pub struct NeighborPrediction {
    /// Its address, with a zone if it is link-local.
    pub address: IpAddr,
    /// Its group in the new configuration, or the present one if it is removed.
    pub group: String,
    /// What happens to it.
    pub change: NeighborChange,
    /// Its changed settings.
    pub settings: ChangedSettings,
    /// Why a session begins again that its own settings would not end.
    pub why: Option<&'static str>,
    /// Its established session, if there is one.
    pub session: Option<SessionPrediction>,
}

/// An established session, and what its routes would go by.
#[derive(Clone, Debug)]
pub struct SessionPrediction {
    /// The session.
    pub info: Arc<PeerInfo>,
    /// The reader that reads it.
    pub reader: usize,
    /// The worker that has its group.
    pub worker: usize,
    /// The import settings now.
    pub import: IngestSettings,
    /// Those by the new configuration; `None`: it has no session then.
    pub new_import: Option<IngestSettings>,
    /// The egress settings by the new configuration; `None`: it has no session then.
    pub new_egress: Option<EgressSettings>,
}

/// All of them, and the number of update groups.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// Neighbours, the present ones first.
    pub neighbors: Vec<NeighborPrediction>,
    /// Update groups now.
    pub update_groups: usize,
    /// Update groups of the present sessions by the new configuration.
    pub new_update_groups: usize,
}

impl Sessions {
    /// What [`Sessions::reconfigure`] would do with this configuration; `None`: BGP ends.
    pub fn predict(&self, bgp: Option<&BgpConfig>) -> Prediction {
        let mut neighbors = Vec::new();
        let confederation = |bgp: &BgpConfig| bgp.confederation.as_ref().map(|ours| ours.identifier);
        for peer in self.by_address.values().filter_map(|id| self.peers.get(id)) {
            let renewal = bgp.and_then(|bgp| {
                let confederation = self.confederation != confederation(bgp);
                let cluster_id = self.cluster_id != bgp.cluster_id;
                self.renewal(bgp, peer, ChangedIds { confederation, cluster_id })
            });
            // A neighbour by interface whose interface is configured no more has no renewal.
            let session = peer.up.as_ref().zip(peer.fsm.negotiated()).map(|(up, negotiated)| {
                let stays = renewal.as_ref().filter(|renewal| renewal.settings.shutdown.is_none());
                let settings = stays.map(|renewal| &renewal.settings);
                SessionPrediction {
                    info: up.info.clone(),
                    reader: up.reader,
                    worker: up.worker,
                    import: self.ingest(&peer.settings, &up.info),
                    new_import: settings.map(|settings| IngestSettings {
                        cluster_id: Some(bgp.map_or(self.cluster_id, |bgp| bgp.cluster_id)),
                        ..self.ingest(settings, &up.info)
                    }),
                    new_egress: settings.map(|settings| EgressSettings {
                        cluster_id: bgp.map_or(self.cluster_id, |bgp| bgp.cluster_id),
                        ..self.egress(peer, settings, negotiated, up.local, &self.interfaces)
                    }),
                }
            });
            let prediction = match renewal {
                None => NeighborPrediction {
                    address: peer.address,
                    group: peer.settings.group.clone(),
                    change: NeighborChange::Removed,
                    settings: ChangedSettings::default(),
                    why: None,
                    session,
                },
                Some(Renewal { settings, changed, takes, why, renamed, .. }) => {
                    let change = match (peer.settings.shutdown.is_some(), settings.shutdown.is_some()) {
                        (false, true) => NeighborChange::ShutDown,
                        (true, false) => NeighborChange::Started,
                        _ if takes == Difference::Session => NeighborChange::Reset,
                        _ if renamed || takes != Difference::None => NeighborChange::Refreshed,
                        _ => NeighborChange::None,
                    };
                    let group = settings.group;
                    NeighborPrediction {
                        address: peer.address,
                        group,
                        change,
                        settings: changed,
                        why,
                        session,
                    }
                }
            };
            neighbors.push(prediction);
        }
        let groups = |settings: &dyn Fn(&SessionPrediction) -> Option<EgressSettings>| -> usize {
            let all = neighbors.iter().filter_map(|neighbor| settings(neighbor.session.as_ref()?));
            all.collect::<std::collections::HashSet<_>>().len()
        };
        let update_groups = groups(&|session| Some(session.info.egress.clone()));
        let new_update_groups = groups(&|session| session.new_egress.clone());
        let present: BTreeSet<IpAddr> = self.by_address.keys().copied().collect();
        let added = bgp.into_iter().flat_map(|bgp| &bgp.neighbors).filter(|(at, _)| !present.contains(at));
        neighbors.extend(added.map(|(address, neighbor)| NeighborPrediction {
            address: *address,
            group: neighbor.settings.group.clone(),
            change: NeighborChange::Added,
            settings: ChangedSettings::default(),
            why: None,
            session: None,
        }));
        Prediction { neighbors, update_groups, new_update_groups }
    }
}
