//! Routes that this router originates, on their way to the shards.
//!
//! A source of such routes is a peer without a session ([`PeerKind::Local`](crate::peer::PeerKind)), so
//! its paths take the way of all paths: policy, shards, decision process, update groups. They begin
//! with an empty AS_PATH (RFC 4271 section 5.1); policy may change everything else.

use super::{Ingest, IngestPeer, ShardBatches};
use crate::attr::AttrSet;
use ribtide_policy::{Actions, Definition, Policy, Route, RouteType, Source, Statement, Then};
use ribtide_prefix::{Afi, AfiSafi, BgpFamily, Prefix, V4};
use ribtide_wire::bgp::attribute::{Aggregator, Attributes, Origin, code, expected_flags};
use ribtide_wire::bgp::{AsPath, NextHop, build};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// What originated routes have before policy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OriginatedAttributes {
    /// In canonical wire form; see [`AttrSet::new`].
    bytes: Arc<[u8]>,
    /// `None`: this router. Its own address goes to peers, which egress knows for each session.
    next_hop: Option<IpAddr>,
}

impl OriginatedAttributes {
    /// An empty AS_PATH and this ORIGIN.
    pub fn new(origin: Origin) -> OriginatedAttributes {
        let mut bytes = Vec::new();
        build::origin(&mut bytes, origin);
        build::as_path(&mut bytes, AsPath::new(&[]));
        OriginatedAttributes { bytes: bytes.into(), next_hop: None }
    }

    /// Those of an aggregate, of contributors with this ORIGIN at most. It has the path of none of them,
    /// so ATOMIC_AGGREGATE says that the path is not the whole one (RFC 4271 sections 5.1.6, 9.1.4).
    pub fn of_aggregate(origin: Origin, aggregator: Aggregator) -> OriginatedAttributes {
        let mut bytes = OriginatedAttributes::new(origin).bytes.to_vec();
        let code = code::ATOMIC_AGGREGATE;
        build::attribute(&mut bytes, expected_flags(code).unwrap_or_default(), code, &[]);
        build::aggregator(&mut bytes, 0, aggregator);
        OriginatedAttributes { bytes: bytes.into(), next_hop: None }
    }

    /// The attributes in canonical wire form.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The next hop of routes of a family; unspecified for this router.
    pub fn next_hop<F: BgpFamily>(&self) -> NextHop {
        match (self.next_hop, F::AFI) {
            (Some(IpAddr::V4(address)), _) => NextHop::V4(address),
            (Some(IpAddr::V6(address)), _) => NextHop::from_v6(address, None),
            (None, Afi::Ipv4) => NextHop::V4(Ipv4Addr::UNSPECIFIED),
            (None, Afi::Ipv6) => NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: None },
        }
    }

    /// The same after some actions, and with this next hop.
    pub fn changed(
        self,
        actions: Actions,
        next_hop: Option<IpAddr>,
        family: AfiSafi,
    ) -> OriginatedAttributes {
        let statement = Statement { actions, then: Then::Accept, ..Statement::default() };
        let definition = Definition { name: String::new(), statements: vec![statement] };
        let source = Source { neighbor: Ipv4Addr::UNSPECIFIED.into(), kind: RouteType::Local };
        let of_family = NextHop::V4(Ipv4Addr::UNSPECIFIED);
        let route = Route { attributes: &self.bytes, next_hop: of_family, family, source, validation: None };
        let policy = Policy::new(vec![Arc::new(definition)], false);
        let mut bytes = Vec::new();
        // The statement holds for every prefix.
        if let Some(changes) = policy.evaluate(&route, Prefix::<V4>::default_route()) {
            changes.write(&self.bytes, &mut bytes);
        }
        OriginatedAttributes { bytes: bytes.into(), next_hop }
    }
}

impl Ingest {
    /// Appends the routes of a source to `out`: first withdrawals, then announcements with these
    /// attributes, as far as the policy of the source accepts them.
    pub fn originate<F: BgpFamily>(
        &mut self,
        peer: &IngestPeer,
        attributes: &OriginatedAttributes,
        withdrawn: &[Prefix<F>],
        announced: &[Prefix<F>],
        out: &mut ShardBatches,
    ) {
        let IngestPeer { info, settings, .. } = peer;
        out.extend(info, None, withdrawn.iter().copied());
        let Ingest { recent, import, content, .. } = self;
        let next_hop = attributes.next_hop::<F>();
        content.begin(next_hop);
        Attributes::new(&attributes.bytes).for_each(|attribute| content.push(&attribute));
        let mut result =
            import.evaluate(&settings.import, info.source(), F::ID, next_hop, None, content, recent);
        if let Some(attrs) = result.settled().map(Option::<&AttrSet>::cloned) {
            out.extend(info, attrs.as_ref(), announced.iter().copied());
            return;
        }
        for prefix in announced {
            let attrs = result.on(*prefix).cloned();
            out.extend(info, attrs.as_ref(), std::iter::once(*prefix));
        }
    }
}
