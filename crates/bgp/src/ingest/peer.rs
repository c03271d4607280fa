//! A session as its reader sees it: what may be taken in from it, and counts of what was.

use super::Martians;
use crate::peer::PeerInfo;
use ribtide_policy::Policy;
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::{Attribute, code, router_ids};
use ribtide_wire::bgp::update::{AttributeFilter, Fault, UpdateContext};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What an operator may choose about the routes taken in from a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestSettings {
    /// The import policy.
    pub import: Arc<Policy>,
    /// How often our own AS number may be in a path before it counts as a loop; 0 is the rule of RFC 4271
    /// section 9.1.2.
    pub allow_own_as: u8,
    /// Refuse paths of an external peer that do not begin with its AS (RFC 4271 section 6.3).
    pub enforce_first_as: bool,
    /// Prefixes to refuse from any peer.
    pub martians: Arc<Martians>,
    /// Attributes that are not wanted from this peer.
    pub attributes: AttributeFilter,
}

/// A session as its reader sees it.
#[derive(Debug)]
pub struct IngestPeer {
    pub(super) info: Arc<PeerInfo>,
    pub(super) settings: IngestSettings,
    pub(super) context: Context,
    /// What has come in since the session was established.
    pub counters: IngestCounters,
}

/// What decides whether a session's routes may be used, beside the import policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Context {
    pub(super) update: UpdateContext,
    /// None where it changes nothing.
    pub(super) filter: Option<AttributeFilter>,
    local_asn: u32,
    router_id: Ipv4Addr,
    cluster_id: Ipv4Addr,
    allow_own_as: u8,
    /// The AS that paths must begin with; 0: any.
    first_as: u32,
}

impl IngestPeer {
    /// A session that was just established.
    pub fn new(info: Arc<PeerInfo>, settings: IngestSettings) -> IngestPeer {
        let context = Context::new(&info, &settings);
        IngestPeer { info, settings, context, counters: IngestCounters::default() }
    }

    /// Takes routes by other settings from now on. Routes taken before stay as they are until the peer sends them
    /// again: ask it to (RFC 2918).
    pub fn set(&mut self, settings: IngestSettings) {
        self.context = Context::new(&self.info, &settings);
        self.settings = settings;
    }

    /// The session.
    pub fn info(&self) -> &Arc<PeerInfo> {
        &self.info
    }
}

impl Context {
    fn new(info: &PeerInfo, settings: &IngestSettings) -> Context {
        let external = !info.kind.is_internal();
        Context {
            update: UpdateContext { four_octet_as: info.egress.four_octet_as, external },
            filter: Some(settings.attributes).filter(|filter| !filter.is_empty()),
            local_asn: info.egress.local_asn,
            router_id: info.egress.router_id,
            cluster_id: info.egress.cluster_id,
            allow_own_as: settings.allow_own_as,
            first_as: if settings.enforce_first_as && external { info.asn } else { 0 },
        }
    }

    /// Looks for what forbids to use routes with this attribute: most often nothing.
    #[inline]
    pub(super) fn check(&self, attribute: &Attribute<'_>) -> Result<(), Refusal> {
        let value = attribute.value;
        match attribute.code {
            code::AS_PATH => {
                let path = AsPath::new(value);
                let own = path.asns().filter(|asn| *asn == self.local_asn).count();
                if own > usize::from(self.allow_own_as) {
                    return Err(Refusal::AsLoop);
                }
                if self.first_as != 0 && path.neighbor_as() != Some(self.first_as) {
                    return Err(Refusal::FirstAs);
                }
            }
            code::ORIGINATOR_ID if router_ids(value).any(|id| id == self.router_id) => {
                return Err(Refusal::OriginatorLoop);
            }
            code::CLUSTER_LIST if router_ids(value).any(|id| id == self.cluster_id) => {
                return Err(Refusal::ClusterLoop);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Counts of what a session brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IngestCounters {
    /// UPDATE messages.
    pub updates: u64,
    /// Prefixes announced and accepted.
    pub announced: u64,
    /// Prefixes withdrawn by the peer.
    pub withdrawn: u64,
    /// Prefixes of families that the session does not carry.
    pub ignored: u64,
    /// UPDATEs whose routes were treated as withdrawn because an attribute was malformed (RFC 7606).
    pub treated_as_withdraw: u64,
    /// The last such fault.
    pub last_fault: Option<Fault>,
    /// Attributes discarded because of a fault while the routes were kept.
    pub discarded_attributes: u64,
    /// The last such fault.
    pub last_discard: Option<Fault>,
    pub(super) refused: [u64; 6],
    /// Why prefixes were refused last.
    pub last_refusal: Option<Refusal>,
}

impl IngestCounters {
    /// How many prefixes were announced but refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }
}

/// Why well-formed routes are not used. A former route of the same prefix goes as if withdrawn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// Our own AS is in AS_PATH.
    AsLoop,
    /// ORIGINATOR_ID is our own identifier (RFC 4456 section 8).
    OriginatorLoop,
    /// Our own cluster is in CLUSTER_LIST (RFC 4456 section 8).
    ClusterLoop,
    /// AS_PATH does not begin with the peer's AS.
    FirstAs,
    /// The import policy.
    ImportPolicy,
    /// The prefix is a martian (RFC 4271 section 6.3), or the next hop is a loopback address.
    Martian,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 6] = [
        Refusal::AsLoop,
        Refusal::OriginatorLoop,
        Refusal::ClusterLoop,
        Refusal::FirstAs,
        Refusal::ImportPolicy,
        Refusal::Martian,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::AsLoop => "own AS in the path",
            Refusal::OriginatorLoop => "own router id is the originator",
            Refusal::ClusterLoop => "own cluster in the cluster list",
            Refusal::FirstAs => "path does not begin with the peer's AS",
            Refusal::ImportPolicy => "import policy",
            Refusal::Martian => "the prefix is a martian (bgp.martians), or the next hop a loopback address",
        })
    }
}
