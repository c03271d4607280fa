//! The `[bgp.originate]` table.

use super::aggregate::{AggregateConfig, AggregateTable};
use super::check::Checker;
use super::diagnosis::{Step, key};
use super::file;
use super::policy::Direction;
use ribtide_bgp::peer::LocalSource;
use ribtide_policy::{GracefulShutdown, Policy};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{Protocol, Redistribution};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The routes that this router originates.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OriginateConfig {
    /// Prefixes of [`LocalSource::Network`].
    pub networks: BTreeSet<AnyPrefix>,
    /// Whether a network needs a route of another protocol.
    pub require_route: bool,
    /// The policy of each source that is configured. Aggregates have policies of their own.
    pub policies: BTreeMap<LocalSource, Arc<Policy>>,
    /// The aggregates.
    pub aggregates: BTreeMap<AnyPrefix, AggregateConfig>,
}

impl OriginateConfig {
    /// The routes of the RIB manager that are needed.
    pub fn redistribution(&self) -> Redistribution {
        let protocols = [
            (LocalSource::Connected, Protocol::Connected),
            (LocalSource::Static, Protocol::Static),
            (LocalSource::Kernel, Protocol::Kernel),
        ];
        let protocols = protocols.into_iter().filter(|(source, _)| self.policies.contains_key(source));
        Redistribution {
            protocols: protocols.map(|(_, protocol)| protocol).collect(),
            // Also where they need no route: it is known then when a reload demands it.
            networks: self.networks.clone(),
        }
    }

    /// Whether a source has a prefix, whose redistributed route is of this protocol.
    pub fn has(&self, source: LocalSource, prefix: AnyPrefix, protocol: Option<Protocol>) -> bool {
        let is_of = |of: Protocol| protocol == Some(of);
        self.policies.contains_key(&source)
            && match source {
                LocalSource::Network => {
                    self.networks.contains(&prefix) && (!self.require_route || protocol.is_some())
                }
                LocalSource::Connected => is_of(Protocol::Connected),
                LocalSource::Static => is_of(Protocol::Static),
                LocalSource::Kernel => is_of(Protocol::Kernel),
                // These do not depend on a prefix of the configuration or the RIB manager alone.
                LocalSource::Api | LocalSource::Aggregate | LocalSource::Default => false,
            }
    }
}

impl Checker {
    /// `rib`: whether there is a `[fib]` table. `kernel`: whether routes are imported from the kernel.
    pub(super) fn originate(
        &mut self,
        file: &file::Originate,
        aggregates: &[AggregateTable],
        rib: bool,
        kernel: bool,
    ) -> OriginateConfig {
        let at: &[Step] = key!["bgp", "originate"];
        let mut config = OriginateConfig { require_route: file.require_route, ..OriginateConfig::default() };
        for (i, text) in file.networks.iter().enumerate() {
            let place = [at, key!["networks", i]].concat();
            match text.parse::<AnyPrefix>() {
                Ok(prefix) if config.networks.insert(prefix) => {}
                Ok(prefix) => self.problem(&place, format!("{prefix} is in the list twice; remove one")),
                Err(error) => self.problem(&place, error.to_string()),
            }
        }
        if file.require_route && !rib {
            self.problem(
                &[at, key!["require-route"]].concat(),
                "without a [fib] table there are no routes that networks could need; add one, or remove this",
            );
        }
        if !file.networks.is_empty() {
            let place = [at, key!["network-policy"]].concat();
            let policy = self.source_policy(file.network_policy.as_deref(), false, &place);
            config.policies.insert(LocalSource::Network, policy);
        }
        let redistributed = [
            (LocalSource::Connected, "connected", &file.connected),
            (LocalSource::Static, "static", &file.statics),
            (LocalSource::Kernel, "kernel", &file.kernel),
        ];
        for (source, name, list) in redistributed {
            let Some(list) = list else { continue };
            let place = [at, key![name]].concat();
            if !rib {
                self.problem(&place, "without a [fib] table there are no routes to redistribute; add one");
            } else if source == LocalSource::Kernel && !kernel {
                self.problem(
                    &place,
                    "no routes are imported from the kernel; write [fib.kernel] without import = false, or remove this",
                );
            }
            let policy = self.source_policy(Some(list), true, &place);
            config.policies.insert(source, policy);
        }
        if let Some(list) = &file.api {
            let policy = self.source_policy(Some(list), true, &[at, key!["api"]].concat());
            config.policies.insert(LocalSource::Api, policy);
        }
        config.aggregates = self.aggregates(aggregates);
        if !config.aggregates.is_empty() {
            config.policies.insert(LocalSource::Aggregate, Arc::new(Policy::accept()));
        }
        config
    }

    /// The policy of a source. `rejects`: what it does with a route that no policy of the list decides on.
    pub(super) fn source_policy(
        &mut self,
        list: Option<&[String]>,
        rejects: bool,
        place: &[Step],
    ) -> Arc<Policy> {
        let policy = self.policy(Direction::Import, list, rejects, GracefulShutdown::Off, place);
        if policy.tests_rpki() {
            self.problem(
                place,
                "a policy of this list tests rpki, which works in import of neighbours only; remove it from this list",
            );
        }
        if policy.changes_next_hop() {
            self.problem(
                place,
                "a policy of this list sets the next hop, which is our own address for originated routes; set it in \
                 export",
            );
        }
        policy
    }
}
