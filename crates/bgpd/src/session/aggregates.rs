//! Aggregates: originated while a more specific route is among the best paths of any shard.

use super::Sessions;
use super::origination::READER;
use super::watches::{Purpose, Wanted};
use crate::reader::{Command, Origination};
use ribtide_bgp::ingest::{IngestSettings, OriginatedAttributes};
use ribtide_bgp::message::by_family;
use ribtide_bgp::peer::LocalSource;
use ribtide_bgp::watch::{Presence, Suppression, WatchId, WatchedRoutes};
use ribtide_config::{AggregateConfig, SuppressConfig};
use ribtide_policy::{Named, PrefixRange, PrefixSet};
use ribtide_prefix::{AnyPrefix, BgpFamilies};
use ribtide_wire::bgp::attribute::{Aggregator, Origin};
use std::collections::BTreeMap;

/// The state of an aggregate.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Aggregate {
    /// Its contributors, and so whether it is originated.
    contributors: Presence,
    /// Whether contributors that were advertised before it are suppressed, too.
    covers: bool,
}

/// An aggregate, for the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregateView {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// Whether it has a contributor, and so is originated.
    pub active: bool,
    /// The number of the watch of its contributors in shards.
    pub watch: Option<WatchId>,
    /// Which contributors are suppressed: `none`, `all`, or the names of policies.
    pub suppresses: String,
    /// The names of its own policies.
    pub policy: String,
}

impl Sessions {
    /// The configuration changed from `before`: announces and withdraws aggregates, and watches their
    /// contributors.
    pub(super) fn configure_aggregates(&mut self, before: &BTreeMap<AnyPrefix, AggregateConfig>) {
        let after = self.originated.config.aggregates.clone();
        let mut withdrawn = Vec::new();
        for prefix in before.keys().filter(|prefix| !after.contains_key(prefix)) {
            let state = self.originated.aggregates.remove(prefix);
            withdrawn.extend(state.filter(|state| state.contributors.is_some()).map(|_| *prefix));
        }
        self.send_aggregate(None, &withdrawn, &[]);
        for (prefix, config) in &after {
            let former = before.get(prefix);
            // At the start nothing is advertised yet.
            let covers = !self.is_running || former.is_some_and(|former| former.suppress == config.suppress);
            let state = self.originated.aggregates.entry(*prefix).or_default();
            state.covers = covers && (state.covers || !self.is_running);
            let contributors = state.contributors;
            if former.is_some_and(|former| former.policy != config.policy) && contributors.is_some() {
                self.send_aggregate(contributors, &[], &[*prefix]);
            }
        }
        self.watch_routes();
    }

    /// What is watched for aggregates.
    pub(super) fn watched_for_aggregates(&self) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        for (prefix, config) in &self.originated.config.aggregates {
            let covers = self.originated.aggregates.get(prefix).is_some_and(|state| state.covers);
            let suppression = |policy| Suppression { policy, advertised: covers };
            let suppression = match &config.suppress {
                SuppressConfig::Nothing => None,
                SuppressConfig::All => Some(suppression(None)),
                SuppressConfig::Accepted(policy) => Some(suppression(Some(policy.clone()))),
            };
            if suppression.is_some() && !covers {
                let set = PrefixSet::new([PrefixRange::exact(*prefix)]);
                let routes = WatchedRoutes::In(Named::new(prefix.to_string(), set), None);
                wanted.push(Wanted { purpose: Purpose::Aggregate(*prefix), routes, suppression: None });
            }
            let routes = WatchedRoutes::MoreSpecific(*prefix);
            wanted.push(Wanted { purpose: Purpose::Contributors(*prefix), routes, suppression });
        }
        wanted
    }

    /// An aggregate has its first contributor or lost the last one, or its ORIGIN changed.
    pub(super) fn contributors_changed(&mut self, prefix: AnyPrefix, contributors: Presence) {
        let Some(state) = self.originated.aggregates.get_mut(&prefix) else { return };
        state.contributors = contributors;
        match contributors {
            Some(_) => self.send_aggregate(contributors, &[], &[prefix]),
            None => self.send_aggregate(None, &[prefix], &[]),
        }
    }

    /// The prefix of an aggregate is advertised, or no more. From then on its contributors are not.
    pub(super) fn aggregate_advertised(&mut self, prefix: AnyPrefix, is_advertised: bool) {
        let Some(state) = self.originated.aggregates.get_mut(&prefix) else { return };
        if is_advertised && !state.covers {
            state.covers = true;
            self.watch_routes();
        }
    }

    fn send_aggregate(&mut self, contributors: Presence, withdrawn: &[AnyPrefix], announced: &[AnyPrefix]) {
        let Some(info) = self.originated.sources.get(&LocalSource::Aggregate).cloned() else { return };
        // RFC 5065 section 4: others know us by the identifier of our confederation.
        let asn = self.confederation.unwrap_or(self.asn);
        let aggregator = Aggregator { asn, router_id: self.router_id };
        let attributes = OriginatedAttributes::of_aggregate(contributors.unwrap_or(Origin::Igp), aggregator);
        let mut send = |policy, withdrawn, announced| {
            let (info, settings, attributes) =
                (info.clone(), IngestSettings::new(policy), attributes.clone());
            let routes = Origination { info, settings, attributes, withdrawn, announced };
            self.outbox.send_to_reader(READER, Command::Originate(Box::new(routes)));
        };
        if !withdrawn.is_empty()
            && let Some(policy) = self.originated.config.policies.get(&LocalSource::Aggregate)
        {
            send(policy.clone(), by_family(withdrawn), BgpFamilies::default());
        }
        for prefix in announced {
            if let Some(config) = self.originated.config.aggregates.get(prefix) {
                send(config.policy.clone(), BgpFamilies::default(), by_family(&[*prefix]));
            }
        }
    }

    /// The aggregates, in order.
    pub fn aggregates(&self) -> Vec<AggregateView> {
        let view = |(prefix, config): (&AnyPrefix, &AggregateConfig)| AggregateView {
            prefix: *prefix,
            active: self.originated.aggregates.get(prefix).is_some_and(|state| state.contributors.is_some()),
            watch: self.watches.of(&Purpose::Contributors(*prefix)).map(|(id, _)| id),
            suppresses: match &config.suppress {
                SuppressConfig::Nothing => "none".into(),
                SuppressConfig::All => "all".into(),
                SuppressConfig::Accepted(policy) => policy.name().into(),
            },
            policy: config.policy.name().into(),
        };
        self.originated.config.aggregates.iter().map(view).collect()
    }
}
