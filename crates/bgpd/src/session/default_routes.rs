//! Default routes of single neighbours. They are in no table: egress sends them to their group alone.

use super::Sessions;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::ingest::OriginatedAttributes;
use ribtide_bgp::message::EgressIn;
use ribtide_bgp::peer::{DefaultOriginate, LocalSource};
use ribtide_config::{DefaultOriginateConfig, NeighborSettings};
use ribtide_policy::{Policy, Route, RouteType, Source};
use ribtide_prefix::{BgpFamily, Prefix, V4, V6};
use ribtide_wire::bgp::attribute::Origin;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

impl Sessions {
    /// Begins the source of default routes, if one of these neighbours has one. It stays.
    pub(super) fn begin_default_routes<'a>(
        &mut self,
        mut settings: impl Iterator<Item = &'a NeighborSettings>,
    ) {
        let is_configured = settings.any(|settings| settings.default_originate.is_some());
        if self.originated.default_source.is_some() || !is_configured {
            return;
        }
        let info = self.source_info(LocalSource::Default, &Arc::new(Policy::accept()));
        self.originated.default_source = Some(info.id);
        for worker in 0..self.outbox.workers() {
            self.outbox.send_to_worker(worker, EgressIn::SourceUp(info.clone()));
        }
    }

    /// The default route of a neighbour.
    pub(super) fn default_route(&self, config: Option<&DefaultOriginateConfig>) -> Option<DefaultOriginate> {
        let DefaultOriginateConfig { condition, policy } = config?;
        Some(DefaultOriginate {
            condition: condition.clone(),
            source: self.originated.default_source?,
            v4: attributes::<V4>(policy),
            v6: attributes::<V6>(policy),
        })
    }
}

/// The attributes of a default route, if the policy accepts it.
fn attributes<F: BgpFamily>(policy: &Policy) -> Option<AttrSet> {
    let plain = OriginatedAttributes::new(Origin::Igp);
    let source = Source { neighbor: IpAddr::V4(Ipv4Addr::UNSPECIFIED), kind: RouteType::Local };
    let next_hop = plain.next_hop::<F>();
    let route = Route { attributes: plain.bytes(), next_hop, family: F::ID, source, validation: None };
    let changes = policy.evaluate(&route, Prefix::<F>::default_route())?;
    let mut bytes = Vec::new();
    changes.write(plain.bytes(), &mut bytes);
    Some(AttrSet::new(&bytes, next_hop))
}
