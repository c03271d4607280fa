//! The routes that this router originates: configured networks, and redistributed routes of the RIB
//! manager. [`aggregates`](super::aggregates) has those of aggregates, and [`injected`](super::injected)
//! those of clients of the API.
//!
//! A source of such routes is a peer without a session ([`PeerKind::Local`]). Reader 0 sends its routes
//! to the shards like those of a peer, through the policy of the source.

use super::Sessions;
use super::aggregates::Aggregate;
use super::injected::Injected;
use crate::reader::{Command, Origination};
use ribtide_bgp::ingest::{IngestSettings, OriginatedAttributes};
use ribtide_bgp::message::{EgressIn, by_family};
use ribtide_bgp::peer::{EgressSettings, FamilySet, LocalSource, PeerId, PeerInfo, PeerKind};
use ribtide_config::OriginateConfig;
use ribtide_policy::Policy;
use ribtide_prefix::{AnyPrefix, BgpFamilies, Map};
use ribtide_rib::Protocol;
use ribtide_wire::bgp::attribute::Origin;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The reader of all sources.
pub(super) const READER: usize = 0;
/// Prefixes of one message to the reader at most.
const BATCH: usize = 4096;

/// What is originated.
#[derive(Default)]
pub(super) struct Originated {
    pub(super) config: OriginateConfig,
    /// The redistributed routes of the RIB manager.
    routes: Map<AnyPrefix, Protocol>,
    /// The sources that are configured.
    pub(super) sources: BTreeMap<LocalSource, Arc<PeerInfo>>,
    /// The configured aggregates.
    pub(super) aggregates: BTreeMap<AnyPrefix, Aggregate>,
    /// Routes of clients of the API.
    pub(super) injected: Injected,
    /// The source of default routes of single neighbours, once there is one.
    pub(super) default_source: Option<PeerId>,
}

impl Originated {
    /// Whether anything may be originated.
    pub(super) fn is_configured(&self) -> bool {
        !self.config.policies.is_empty()
    }
}

impl Sessions {
    /// Applies another configuration.
    pub(super) fn originate(&mut self, config: &OriginateConfig) {
        if *config == self.originated.config {
            return;
        }
        let before = std::mem::replace(&mut self.originated.config, config.clone());
        for source in LocalSource::ALL {
            match (before.policies.get(&source), config.policies.get(&source)) {
                (None, None) => {}
                (Some(_), None) => self.end_source(source),
                (former, Some(policy)) => {
                    if former.is_none() {
                        self.begin_source(source, policy);
                    }
                    let all = former != Some(policy);
                    let (withdrawn, announced) = self.difference(source, &before, all);
                    self.send_routes(source, &withdrawn, &announced);
                    if all && source == LocalSource::Api {
                        self.inject_again();
                    }
                }
            }
        }
        if before.aggregates != config.aggregates {
            self.configure_aggregates(&before.aggregates);
        }
    }

    /// The withdrawn and the announced prefixes of a source with another configuration than `before`.
    /// `all`: every prefix is announced, because the policy is another.
    fn difference(
        &self,
        source: LocalSource,
        before: &OriginateConfig,
        all: bool,
    ) -> (Vec<AnyPrefix>, Vec<AnyPrefix>) {
        let Originated { config, routes, .. } = &self.originated;
        let networks = before.networks.union(&config.networks).map(|prefix| (prefix, routes.get(prefix)));
        let is_network = |prefix| before.networks.contains(prefix) || config.networks.contains(prefix);
        let others = routes.iter().filter(|(prefix, _)| !is_network(prefix));
        let others = others.map(|(prefix, protocol)| (prefix, Some(protocol)));
        let (mut withdrawn, mut announced) = (Vec::new(), Vec::new());
        for (prefix, protocol) in networks.chain(others) {
            let (prefix, protocol) = (*prefix, protocol.copied());
            let [had, has] = [before, config].map(|config| config.has(source, prefix, protocol));
            if has && (all || !had) {
                announced.push(prefix);
            } else if had && !has {
                withdrawn.push(prefix);
            }
        }
        (withdrawn, announced)
    }

    /// Redistributed routes changed.
    pub(super) fn redistribute(&mut self, changes: Vec<(AnyPrefix, Option<Protocol>)>) {
        let mut of_sources: BTreeMap<LocalSource, (Vec<AnyPrefix>, Vec<AnyPrefix>)> = BTreeMap::new();
        let Originated { config, routes, .. } = &mut self.originated;
        for (prefix, protocol) in changes {
            let before = match protocol {
                Some(protocol) => routes.insert(prefix, protocol),
                None => routes.remove(&prefix),
            };
            for source in config.policies.keys() {
                let [had, has] = [before, protocol].map(|protocol| config.has(*source, prefix, protocol));
                if had != has {
                    let (withdrawn, announced) = of_sources.entry(*source).or_default();
                    if has { announced.push(prefix) } else { withdrawn.push(prefix) }
                }
            }
        }
        for (source, (withdrawn, announced)) in of_sources {
            self.send_routes(source, &withdrawn, &announced);
        }
    }

    /// Withdraws all redistributed routes. Called when the RIB manager is about to end and sends no
    /// further change.
    pub fn forget_redistributed(&mut self) {
        while let Some(changes) = self.redistributed.try_recv() {
            self.redistribute(changes);
        }
        let all = self.originated.routes.keys().map(|prefix| (*prefix, None)).collect();
        self.redistribute(all);
        self.originated.routes = Map::default();
    }

    fn send_routes(&mut self, source: LocalSource, withdrawn: &[AnyPrefix], announced: &[AnyPrefix]) {
        let Originated { config, sources, .. } = &self.originated;
        let (Some(info), Some(policy)) = (sources.get(&source), config.policies.get(&source)) else { return };
        let settings = IngestSettings::new(policy.clone());
        // RFC 4271 section 5.1.1: a configured network is of our AS; a redistributed route is not known to be.
        let origin = match source {
            LocalSource::Network => Origin::Igp,
            LocalSource::Connected | LocalSource::Static | LocalSource::Kernel => Origin::Incomplete,
            // Their routes have attributes of their own.
            LocalSource::Api | LocalSource::Aggregate | LocalSource::Default => return,
        };
        let attributes = OriginatedAttributes::new(origin);
        let withdrawn = withdrawn.chunks(BATCH).map(|prefixes| (by_family(prefixes), BgpFamilies::default()));
        let announced = announced.chunks(BATCH).map(|prefixes| (BgpFamilies::default(), by_family(prefixes)));
        for (withdrawn, announced) in withdrawn.chain(announced) {
            let (info, settings) = (info.clone(), settings.clone());
            let attributes = attributes.clone();
            let routes = Origination { info, settings, attributes, withdrawn, announced };
            self.outbox.send_to_reader(READER, Command::Originate(Box::new(routes)));
        }
    }

    /// Begins a source without routes, which the workers know.
    fn begin_source(&mut self, source: LocalSource, policy: &Arc<Policy>) {
        let info = self.source_info(source, policy);
        for worker in 0..self.outbox.workers() {
            self.outbox.send_to_worker(worker, EgressIn::SourceUp(info.clone()));
        }
        self.originated.sources.insert(source, info.clone());
        // The reader and the shards know it from now on, also if it never has a route.
        let (withdrawn, announced) = Default::default();
        let settings = IngestSettings::new(policy.clone());
        let attributes = OriginatedAttributes::new(Origin::Igp);
        let routes = Origination { info, settings, attributes, withdrawn, announced };
        self.outbox.send_to_reader(READER, Command::Originate(Box::new(routes)));
    }

    /// A source as a peer with another session.
    pub(super) fn source_info(&mut self, source: LocalSource, policy: &Arc<Policy>) -> Arc<PeerInfo> {
        let kind = PeerKind::Local(source);
        let id = self.ids.take(kind);
        let families = FamilySet::UNICAST;
        Arc::new(PeerInfo {
            id,
            session: self.ids.next_session(id),
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            asn: self.asn,
            router_id: self.router_id,
            kind,
            multihop: false,
            link: None,
            families,
            path_ids: FamilySet::NONE,
            long_lived: false,
            // Nothing is sent to it.
            egress: EgressSettings {
                cluster_id: self.cluster_id,
                ..EgressSettings::new(kind, self.asn, self.router_id, families, policy.clone())
            },
        })
    }

    /// Ends a source and withdraws its routes.
    fn end_source(&mut self, source: LocalSource) {
        let Some(info) = self.originated.sources.remove(&source) else { return };
        self.ids.ended(info.id, info.session);
        self.ids.retire(info.id, info.kind);
        self.outbox.send_to_reader(READER, Command::EndOrigination(info.id, info.session));
    }
}
