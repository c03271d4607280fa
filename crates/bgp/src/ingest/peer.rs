//! A session in its reader: the settings of its routes, and counters.

use super::Martians;
use super::max_prefixes::{Accepted, AcceptedPrefixes, LimitEvent, MaxPrefixes, PrefixCount};
use super::received::Received;
use super::refresh::Refreshed;
use crate::peer::{PeerInfo, PeerKind};
use ribtide_policy::Policy;
use ribtide_prefix::zone::zone_of;
use ribtide_prefix::{AfiSafi, BgpFamilies, BgpFamily, any_bgp_family, for_each_bgp_family};
use ribtide_rpki::{Direction, PathRule};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::{Attribute, code, number, router_ids};
use ribtide_wire::bgp::role::Role;
use ribtide_wire::bgp::update::{AttributeFilter, Fault, UpdateContext};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Settings of the routes that a peer sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestSettings {
    /// The import policy.
    pub import: Arc<Policy>,
    /// How often each AS of ours may be in a path before the path counts as a loop; 0 is the rule of
    /// RFC 4271 section 9.1.2.
    pub allow_own_as: u8,
    /// Our AS numbers beside that of the session, which show loops too; 0: none.
    pub other_own_as: [u32; 2],
    /// We are a member of a confederation (RFC 5065).
    pub confederation: bool,
    /// Our AS on the session, where it is prepended to received paths (RFC 7705 section 3.1).
    pub prepended_as: Option<u32>,
    /// Refuse paths of an external peer that do not begin with its AS (RFC 4271 section 6.3).
    pub enforce_first_as: bool,
    /// Accept the Prefix-SID of an external peer (RFC 8669 section 4).
    pub prefix_sid: bool,
    /// Accept AIGP (RFC 7311 section 3.3).
    pub aigp: bool,
    /// Our cluster id: a path that has it is a loop (RFC 4456 section 8). `None`: that with which the session began.
    pub cluster_id: Option<Ipv4Addr>,
    /// Our role towards it, which decides about OTC (RFC 9234 section 5).
    pub role: Option<Role>,
    /// Prefixes to refuse from any peer.
    pub martians: Arc<Martians>,
    /// Attributes that are ignored from this peer.
    pub attributes: AttributeFilter,
    /// Limits of accepted prefixes.
    pub max_prefixes: Option<MaxPrefixes>,
    /// Keep the routes before import policy. They are kept in any case where the policy tests the validation state.
    pub keep_received: bool,
}

impl IngestSettings {
    /// The import policy alone decides: no martians, no limits, and any first AS.
    pub fn new(import: Arc<Policy>) -> IngestSettings {
        IngestSettings {
            import,
            allow_own_as: 0,
            other_own_as: [0; 2],
            confederation: false,
            prepended_as: None,
            enforce_first_as: false,
            prefix_sid: false,
            aigp: false,
            cluster_id: None,
            role: None,
            martians: Arc::new(Martians::none()),
            attributes: AttributeFilter::default(),
            max_prefixes: None,
            keep_received: false,
        }
    }

    /// Whether routes before import policy are kept.
    pub fn keeps_received(&self) -> bool {
        self.keep_received || self.import.tests_rpki()
    }

    /// Whether a change from these settings to `new` needs nothing from the peer: the routes before import
    /// policy are kept, and the same ones.
    pub fn is_local_change(&self, new: &IngestSettings) -> bool {
        let same_before_policy = IngestSettings {
            import: self.import.clone(),
            max_prefixes: self.max_prefixes,
            keep_received: self.keep_received,
            ..new.clone()
        } == *self;
        same_before_policy && self.keeps_received() && new.keeps_received()
    }
}

/// A session in its reader.
#[derive(Debug)]
pub struct IngestPeer {
    pub(super) info: Arc<PeerInfo>,
    pub(super) settings: IngestSettings,
    pub(super) context: Context,
    /// Counters since the session was established.
    pub counters: IngestCounters,
    /// The accepted prefixes of families with a limit.
    pub(super) accepted: BgpFamilies<AcceptedPrefixes>,
    /// The routes before import policy, where they are kept.
    pub(super) received: Option<Box<Received>>,
    /// Route refreshes under way.
    pub(super) refreshed: BgpFamilies<Refreshed>,
}

/// What decides beside the import policy whether routes are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Context {
    pub(super) update: UpdateContext,
    /// `None` if it changes nothing.
    pub(super) filter: Option<AttributeFilter>,
    local_asn: u32,
    /// 0: none.
    other_own_as: [u32; 2],
    router_id: Ipv4Addr,
    cluster_id: Ipv4Addr,
    allow_own_as: u8,
    prepended_as: Option<u32>,
    /// The member AS of the peer, with which paths must begin; 0: any.
    first_member_as: u32,
    /// The AS that paths must begin with; 0: any.
    first_as: u32,
    /// Our role, and the peer's AS.
    role: Option<(Role, u32)>,
    /// The link of a session over link-local addresses: that of its next hops.
    pub(super) zone: Option<u32>,
    /// That of next hops which are a link-local address alone, in another session.
    pub(super) link: Option<u32>,
    /// Whether the peer is of another AS, outside of our confederation.
    is_external: bool,
}

impl IngestPeer {
    /// A newly established session.
    pub fn new(info: Arc<PeerInfo>, settings: IngestSettings) -> IngestPeer {
        let context = Context::new(&info, &settings);
        let accepted = accepted(&settings);
        let received = settings.keeps_received().then(Box::default);
        let counters = IngestCounters::default();
        IngestPeer {
            info,
            settings,
            context,
            counters,
            accepted,
            received,
            refreshed: BgpFamilies::default(),
        }
    }

    /// Changes the settings of later routes. Kept routes are evaluated again
    /// ([`Ingest::evaluate_again`](super::Ingest::evaluate_again)). Other routes stay until the peer sends
    /// them again: the caller requests that (RFC 2918), unless the change is
    /// [local](IngestSettings::is_local_change). Limits count from nothing, with the routes that follow.
    pub fn set(&mut self, settings: IngestSettings) {
        self.context = Context::new(&self.info, &settings);
        self.accepted = accepted(&settings);
        match &mut self.received {
            Some(received) if settings.keeps_received() => received.evaluate_all(),
            received => *received = settings.keeps_received().then(Box::default),
        }
        self.settings = settings;
    }

    /// The session.
    pub fn info(&self) -> &Arc<PeerInfo> {
        &self.info
    }

    /// The prefixes of a family against its limit, if it has one.
    pub fn prefix_count(&self, family: AfiSafi) -> Option<PrefixCount> {
        let mut count = None;
        for_each_bgp_family!(F => if F::ID == family {
            count = self.accepted.get::<F>().as_ref().map(Accepted::count);
        });
        count
    }

    /// The limits that were reached since the last call. If one [ends the
    /// session](LimitEvent::ends_session), the caller reads no further UPDATE.
    #[inline]
    pub fn take_limit_events(&mut self) -> Option<Vec<LimitEvent>> {
        if !any_bgp_family!(F => self.accepted.get::<F>().as_ref().is_some_and(Accepted::has_events)) {
            return None;
        }
        let mut events = Vec::new();
        for_each_bgp_family!(F => events.extend(self.accepted.get_mut::<F>().iter_mut().flat_map(Accepted::take_events)));
        Some(events)
    }

    /// Shrinks its tables to their contents. O(capacity): call it only when the reader is idle.
    pub fn shrink_to_fit(&mut self) {
        for_each_bgp_family!(F => self.accepted.get_mut::<F>().iter_mut().for_each(Accepted::shrink_to_fit));
        if let Some(received) = &mut self.received {
            received.shrink_to_fit();
        }
    }
}

/// No accepted prefix yet, where `settings` has a limit.
fn accepted(settings: &IngestSettings) -> BgpFamilies<AcceptedPrefixes> {
    let mut accepted = BgpFamilies::default();
    for_each_bgp_family!(F => *accepted.get_mut::<F>() = Accepted::new(settings.max_prefixes));
    accepted
}

impl Context {
    fn new(info: &PeerInfo, settings: &IngestSettings) -> Context {
        let external = !info.kind.is_inside();
        Context {
            update: UpdateContext {
                four_octet_as: info.egress.four_octet_as,
                external,
                prefix_sid: settings.prefix_sid,
                aigp: settings.aigp,
                confederation: settings.confederation && !external,
                path_ids: info.path_ids,
            },
            filter: Some(settings.attributes).filter(|filter| !filter.is_empty()),
            local_asn: info.egress.local_asn,
            other_own_as: settings.other_own_as,
            prepended_as: settings.prepended_as,
            router_id: info.egress.router_id,
            cluster_id: settings.cluster_id.unwrap_or(info.egress.cluster_id),
            allow_own_as: settings.allow_own_as,
            role: settings.role.map(|role| (role, info.asn)),
            is_external: info.kind.is_external(),
            first_member_as: if info.kind == PeerKind::Confederation { info.asn } else { 0 },
            first_as: if settings.enforce_first_as && external { info.asn } else { 0 },
            zone: zone_of(info.address),
            link: info.link,
        }
    }

    /// Checks whether an attribute forbids the routes; it seldom does.
    #[inline]
    pub(super) fn check(&self, attribute: &Attribute<'_>) -> Result<(), Refusal> {
        let value = attribute.value;
        match attribute.code {
            code::AS_PATH => return self.check_path(AsPath::new(value)),
            code::ORIGINATOR_ID if router_ids(value).any(|id| id == self.router_id) => {
                return Err(Refusal::OriginatorLoop);
            }
            code::CLUSTER_LIST if router_ids(value).any(|id| id == self.cluster_id) => {
                return Err(Refusal::ClusterLoop);
            }
            code::OTC if self.role.is_some_and(|(role, asn)| role.leaks(number(value), asn)) => {
                return Err(Refusal::RouteLeak);
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks whether AS_PATH forbids the routes.
    #[inline]
    pub(super) fn check_path(&self, path: AsPath<'_>) -> Result<(), Refusal> {
        let loops = |own| path.asns().filter(|asn| *asn == own).count() > usize::from(self.allow_own_as);
        if loops(self.local_asn) || (self.other_own_as != [0; 2] && self.other_own_as.into_iter().any(loops))
        {
            return Err(Refusal::AsLoop);
        }
        if self.first_as != 0 && path.neighbor_as() != Some(self.first_as) {
            return Err(Refusal::FirstAs);
        }
        if self.first_member_as != 0 && !path.begins_with_member(self.first_member_as) {
            return Err(Refusal::MemberAs);
        }
        Ok(())
    }

    /// Whether the attributes of routes are stored as they came.
    #[inline]
    pub(super) fn changes_nothing(&self) -> bool {
        self.prepended_as.is_none() && self.received_otc().is_none()
    }

    /// How paths of the peer are verified (draft-ietf-sidrops-aspa-verification section 6): an external one towards which
    /// we have a role, which tells the direction.
    pub(super) fn path_rule(&self) -> Option<PathRule> {
        let (role, asn) = self.role.filter(|_| self.is_external)?;
        let (direction, first_as) = match role {
            Role::Customer => (Direction::Downstream, Some(asn)),
            Role::Provider | Role::Peer | Role::RouteServer => (Direction::Upstream, Some(asn)),
            // A route server does not add itself (RFC 7947 section 2.2.2.1).
            Role::RouteServerClient => (Direction::Upstream, None),
        };
        Some(PathRule { direction, first_as, prepended: self.prepended_as })
    }

    /// The AS that is prepended to received paths.
    pub(super) fn prepended_as(&self) -> Option<u32> {
        self.prepended_as
    }

    /// The value of OTC for routes without one (RFC 9234 section 5, ingress rule 3).
    pub(super) fn received_otc(&self) -> Option<u32> {
        self.role.filter(|(role, _)| role.marks_received()).map(|(_, asn)| asn)
    }
}

/// Counters of a session.
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
    pub(super) refused: [u64; Refusal::ALL.len()],
    /// Kept routes whose import policy ran again.
    pub evaluated_again: u64,
    /// The reason of the last refused prefixes.
    pub last_refusal: Option<Refusal>,
}

impl IngestCounters {
    /// Announced prefixes that were refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    /// Announced prefixes that were refused, for any reason.
    pub fn all_refused(&self) -> u64 {
        self.refused.iter().sum()
    }
}

/// Why well-formed routes are not used. An earlier route of the prefix counts as withdrawn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The local AS is in AS_PATH (RFC 4271 section 9.1.2).
    AsLoop,
    /// ORIGINATOR_ID is the local router id (RFC 4456 section 8).
    OriginatorLoop,
    /// CLUSTER_LIST has the local cluster id (RFC 4456 section 8).
    ClusterLoop,
    /// AS_PATH does not begin with the AS of the peer (RFC 4271 section 6.3).
    FirstAs,
    /// AS_PATH does not begin with the member AS of the peer in an AS_CONFED_SEQUENCE (RFC 5065 section 5).
    MemberAs,
    /// The import policy rejected it.
    ImportPolicy,
    /// The prefix is a martian (RFC 4271 section 6.3), or the next hop is a loopback address.
    Martian,
    /// OTC shows a route leak (RFC 9234 section 5).
    RouteLeak,
    /// It is beyond the maximum number of prefixes.
    MaxPrefixes,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 9] = [
        Refusal::AsLoop,
        Refusal::OriginatorLoop,
        Refusal::ClusterLoop,
        Refusal::FirstAs,
        Refusal::MemberAs,
        Refusal::ImportPolicy,
        Refusal::Martian,
        Refusal::RouteLeak,
        Refusal::MaxPrefixes,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::AsLoop => "own AS in the path",
            Refusal::OriginatorLoop => "own router id is the originator",
            Refusal::ClusterLoop => "own cluster in the cluster list",
            Refusal::FirstAs => "path does not begin with the peer's AS",
            Refusal::MemberAs => "path does not begin with the peer's member AS in an AS_CONFED_SEQUENCE",
            Refusal::ImportPolicy => "import policy",
            Refusal::Martian => "the prefix is a martian (bgp.martians), or the next hop a loopback address",
            Refusal::RouteLeak => "a route leak: the attribute OTC does not agree with the role",
            Refusal::MaxPrefixes => "beyond the maximum number of prefixes (max-prefixes)",
        })
    }
}
