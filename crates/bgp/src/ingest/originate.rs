//! Routes that this router originates, on their way to the shards.
//!
//! A source of such routes is a peer without a session ([`PeerKind::Local`](crate::peer::PeerKind)), so
//! its paths take the way of all paths: policy, shards, decision process, update groups. They begin
//! with an empty AS_PATH and without LOCAL_PREF and MED (RFC 4271 section 5.1); policy may set those.

use super::{Ingest, IngestPeer, ShardBatches};
use crate::attr::AttrSet;
use ribtide_prefix::{Afi, Family, Prefix};
use ribtide_wire::bgp::NextHop;
use ribtide_wire::bgp::attribute::{Attribute, Origin, code, flags};
use std::net::{Ipv4Addr, Ipv6Addr};

impl Ingest {
    /// Appends the routes of a source to `out`: first withdrawals, then announcements with this ORIGIN,
    /// as far as the policy of the source accepts them.
    pub fn originate<F: Family>(
        &mut self,
        peer: &IngestPeer,
        origin: Origin,
        withdrawn: &[Prefix<F>],
        announced: &[Prefix<F>],
        out: &mut ShardBatches,
    ) {
        let IngestPeer { info, settings, .. } = peer;
        out.extend(info, None, withdrawn.iter().copied());
        let Ingest { recent, import, content, .. } = self;
        // It stands for our own address, which egress knows for each session.
        let next_hop = match F::AFI {
            Afi::Ipv4 => NextHop::V4(Ipv4Addr::UNSPECIFIED),
            Afi::Ipv6 => NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: None },
        };
        content.begin(next_hop);
        for (code, value) in [(code::ORIGIN, &[origin as u8][..]), (code::AS_PATH, &[])] {
            content.push(&Attribute { flags: flags::TRANSITIVE, code, value });
        }
        let mut result =
            import.evaluate(&settings.import, info.source(), F::AFI, next_hop, None, content, recent);
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
