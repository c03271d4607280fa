//! Peers as the sources and receivers of routes, for shards and egress workers.

use crate::attr::AttrSet;
use crate::message::{BestPath, DumpScope};
use crate::presence::Presence;
use ribtide_policy::{Named, Policy, PrefixRange, PrefixSet, RouteType, Source};
pub use ribtide_prefix::FamilySet;
use ribtide_prefix::{AfiSafi, ByFamily, Prefix, V4, V6};
use ribtide_wire::bgp::role::Role;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

/// A configured or dynamic peer, as a dense number. A number is reused only after every shard and
/// worker has removed its former peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// Peers of a router, at most. Shards number sessions with 16 bits, so each peer has a number for
/// its session and one for its former session during the purge.
pub const MOST_PEERS: usize = 32_767;

/// The relation of a peer to us, which decides what may be sent on (RFC 4271 section 9.2, RFC 4456
/// section 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PeerKind {
    /// Another AS.
    External,
    /// Another AS, a client of this route server: routes between two clients pass unchanged (RFC 7947).
    RouteServerClient,
    /// Another member AS of our confederation (RFC 5065).
    Confederation,
    /// Our AS, an ordinary internal peer.
    Internal,
    /// Our AS, a client of this route reflector.
    Client,
    /// This router: a source of routes that it originates. It has no session and gets no routes.
    Local(LocalSource),
}

/// Why this router originates a route. The first of several sources of a prefix is preferred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LocalSource {
    /// The configuration names the prefix.
    Network,
    /// It is the subnet of an interface.
    Connected,
    /// It has a static route.
    Static,
    /// Another program gave it a route in the kernel.
    Kernel,
    /// A client of the API announced it.
    Api,
    /// A more specific route exists (RFC 4271 section 9.2.2.2).
    Aggregate,
    /// It is a default route for single neighbours, which is in no shard.
    Default,
}

impl LocalSource {
    /// Every source of routes in shards.
    pub const ALL: [LocalSource; 6] = [
        LocalSource::Network,
        LocalSource::Connected,
        LocalSource::Static,
        LocalSource::Kernel,
        LocalSource::Api,
        LocalSource::Aggregate,
    ];

    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            LocalSource::Network => "network",
            LocalSource::Connected => "connected",
            LocalSource::Static => "static",
            LocalSource::Kernel => "kernel",
            LocalSource::Api => "API",
            LocalSource::Aggregate => "aggregate",
            LocalSource::Default => "default-originate",
        }
    }

    /// Whether the RIB manager gets its routes from BGP. Of the others it has a route already, or the
    /// operator wants none.
    pub fn feeds(self) -> bool {
        matches!(self, LocalSource::Api | LocalSource::Aggregate)
    }
}

impl PeerKind {
    /// Whether it stands for routes that this router originates.
    pub fn is_local(self) -> bool {
        matches!(self, PeerKind::Local(_))
    }

    /// Whether the peer is of another AS, outside of our confederation.
    pub fn is_external(self) -> bool {
        matches!(self, PeerKind::External | PeerKind::RouteServerClient)
    }

    /// Whether the peer is of our own AS or confederation, to which LOCAL_PREF, MED and NEXT_HOP go as they are (RFC 5065
    /// section 5.2).
    pub fn is_inside(self) -> bool {
        matches!(self, PeerKind::Internal | PeerKind::Client | PeerKind::Confederation)
    }

    /// Whether the peer is of our own AS.
    pub fn is_internal(self) -> bool {
        matches!(self, PeerKind::Internal | PeerKind::Client)
    }
}

/// A number of prefixes per family; `None`: no limit.
pub type PrefixLimits = ByFamily<Option<u32>>;

/// Which paths of a prefix a peer gets, with path identifiers (RFC 7911). Paths that the group's rules
/// or its export policy refuse do not count, so none hides another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathSelection {
    /// Every path.
    All,
    /// So many, from the best on.
    Best(NonZeroU16),
    /// The best path and those that equal it up to the tie-breaking rules, as multipath members do.
    Ecmp,
    /// The best of each neighbouring AS.
    PerAs,
}

impl fmt::Display for PathSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathSelection::All => f.write_str("all"),
            PathSelection::Best(count) => write!(f, "best {count}"),
            PathSelection::Ecmp => f.write_str("ecmp"),
            PathSelection::PerAs => f.write_str("per-as"),
        }
    }
}

/// A selection of paths per family; `None`: the best path alone, without identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SentPaths(pub ByFamily<Option<PathSelection>>);

impl SentPaths {
    /// The selection of a family.
    #[inline]
    pub fn of(self, family: AfiSafi) -> Option<PathSelection> {
        self.0[family]
    }

    /// The families with a selection.
    pub fn families(self) -> FamilySet {
        AfiSafi::ALL.into_iter().filter(|family| self.of(*family).is_some()).collect()
    }

    /// The selections of these families alone.
    #[must_use]
    pub fn within(self, families: FamilySet) -> SentPaths {
        SentPaths(ByFamily::new(|family| self.of(family).filter(|_| families.has(family))))
    }
}

/// An established session for shards and workers. Immutable for its life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerInfo {
    /// The peer.
    pub id: PeerId,
    /// Counts the sessions of this peer; tells routes of this session from those of an earlier one.
    pub session: u32,
    /// The peer's address: the last tie-break of the decision process.
    pub address: IpAddr,
    /// The peer's AS.
    pub asn: u32,
    /// The peer's BGP identifier.
    pub router_id: Ipv4Addr,
    /// External, internal or client.
    pub kind: PeerKind,
    /// Whether an external peer is more than one hop away; then its next hops need not be on a connected subnet.
    pub multihop: bool,
    /// The zone of the link that its global address is on: a next hop that is a link-local address alone is on that link,
    /// too (RFC 2545 section 3). A session over a link-local address has the zone in `address`.
    pub link: Option<u32>,
    /// The negotiated families.
    pub families: FamilySet,
    /// Those in which it sends path identifiers (RFC 7911).
    pub path_ids: FamilySet,
    /// Whether we send it the capability of long-lived graceful restart. Then its routes with LLGR_STALE are least preferred, and
    /// go only to peers that have it (RFC 9494 section 4.3). It depends on our settings alone, so it is the same in all
    /// sessions of this number.
    pub long_lived: bool,
    /// The settings of routes sent to this peer.
    pub egress: EgressSettings,
}

impl PeerInfo {
    /// This peer as the source of a route in policies.
    pub fn source(&self) -> Source {
        let kind = match self.kind {
            PeerKind::External | PeerKind::RouteServerClient => RouteType::External,
            PeerKind::Confederation | PeerKind::Internal | PeerKind::Client => RouteType::Internal,
            PeerKind::Local(_) => RouteType::Local,
        };
        Source { neighbor: self.address, kind }
    }

    /// The kind of this peer's routes for the RIB manager.
    pub fn feed_kind(&self) -> FeedKind {
        let internal = match self.kind {
            PeerKind::Local(source) => source.feeds(),
            kind => kind.is_inside(),
        };
        FeedKind { internal, recursive: internal || self.multihop, aigp: 0 }
    }
}

/// The kind of a route's peer, for the RIB manager.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FeedKind {
    /// Internal routes and those of this router have administrative distance 200, external ones 20.
    pub internal: bool,
    /// Whether next hops may resolve through routes that are not connected.
    pub recursive: bool,
    /// The accumulated IGP metric of the route, at least 1 and at most 32 bits; 0: it has none. It counts where other next
    /// hops resolve through the route (RFC 7311 section 4.2).
    pub aigp: u32,
}

/// All settings of routes sent to a peer and of their encoding. Peers with equal settings form an
/// update group: this struct *is* the group's key, so a setting outside it cannot influence the
/// output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EgressSettings {
    /// Relation of the receivers.
    pub kind: PeerKind,
    /// Our AS on these sessions: that of our OPEN, but to internal peers the router's. It is the identifier of our
    /// confederation to peers outside of it.
    pub local_asn: u32,
    /// Our own AS or confederation, where the receivers know us by another AS, and paths show both: it is prepended before
    /// `local_asn` (RFC 7705 section 3.1).
    pub hidden_asn: Option<u32>,
    /// The AS of the external receivers, where ours replaces it in paths.
    pub as_override: Option<u32>,
    /// Whether and how private AS numbers in paths do not reach the external receivers.
    pub remove_private_as: Option<RemovePrivateAs>,
    /// Our cluster id as a route reflector (RFC 4456 section 7).
    pub cluster_id: Ipv4Addr,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// Families that these sessions carry.
    pub families: FamilySet,
    /// Whether they support four-octet AS numbers (RFC 6793).
    pub four_octet_as: bool,
    /// Largest message they take, in bytes: 4096, or 65535 with extended messages (RFC 8654).
    pub max_message: u16,
    /// Whether an external receiver gets Prefix-SIDs (RFC 8669 section 5); `false` for internal ones, which always do.
    pub prefix_sid: bool,
    /// Whether the receivers get AIGP (RFC 7311 section 3.3).
    pub aigp: bool,
    /// Our role towards the receivers, which decides about OTC (RFC 9234 section 5).
    pub role: Option<Role>,
    /// Whether they have long-lived graceful restart, as we have towards them, and may get long-lived stale routes (RFC 9494
    /// section 4.3).
    pub long_lived: bool,
    /// Internal receivers without it get long-lived stale routes too, with NO_EXPORT and a LOCAL_PREF of 0: the partial
    /// deployment of RFC 9494 section 4.6. `false` for any others.
    pub long_lived_partial: bool,
    /// The rule for NEXT_HOP.
    pub next_hop: NextHopRule,
    /// Our link-local address on the link that we share with the receivers: it is sent with our own global IPv6 address, or
    /// alone where there is none (RFC 2545 section 3).
    pub link_local: Option<Ipv6Addr>,
    /// IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// A default route of their own, which is in no table.
    pub default_originate: Option<DefaultOriginate>,
    /// The families in which the receivers get several paths of a prefix, and which.
    pub add_path: SentPaths,
    /// The only receiver, where the best path that it gets is that of the paths which it may have, rather than none
    /// where the best of all is refused or its own (RFC 7947 section 2.3.2). `None`: the best of all, or none.
    pub client: Option<PeerId>,
    /// The export policy. Equal ones have equal results.
    pub export: std::sync::Arc<ribtide_policy::Policy>,
    /// The policy for routes that an aggregate suppresses, in the place of the export policy; `None`: the receivers get none of
    /// them.
    pub unsuppress: Option<std::sync::Arc<ribtide_policy::Policy>>,
}

/// A default route that receivers get in place of any in the table. The export policy does not apply to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DefaultOriginate {
    /// Only while a best path is in this set.
    pub condition: Option<Arc<Named<PrefixSet>>>,
    /// Its source, a peer without session.
    pub source: PeerId,
    /// Its attributes in IPv4; `None`: it has none.
    pub v4: Option<AttrSet>,
    /// The same in IPv6.
    pub v6: Option<AttrSet>,
}

impl DefaultOriginate {
    /// Its attributes in a family.
    pub fn of(&self, family: AfiSafi) -> Option<&AttrSet> {
        match family {
            AfiSafi::Ipv4Unicast => self.v4.as_ref(),
            AfiSafi::Ipv6Unicast => self.v6.as_ref(),
        }
    }
}

impl EgressSettings {
    /// Settings of peers with four-octet AS numbers, messages of at most 4096 bytes, no role, and the next
    /// hops as received. The router id is the cluster id as well.
    pub fn new(
        kind: PeerKind,
        local_asn: u32,
        router_id: Ipv4Addr,
        families: FamilySet,
        export: std::sync::Arc<ribtide_policy::Policy>,
    ) -> EgressSettings {
        EgressSettings {
            kind,
            local_asn,
            hidden_asn: None,
            as_override: None,
            remove_private_as: None,
            cluster_id: router_id,
            router_id,
            families,
            four_octet_as: true,
            max_message: 4096,
            prefix_sid: false,
            long_lived: false,
            long_lived_partial: false,
            aigp: false,
            role: None,
            next_hop: NextHopRule::Keep,
            link_local: None,
            extended_next_hop: false,
            default_originate: None,
            add_path: SentPaths::default(),
            client: None,
            export,
            unsuppress: None,
        }
    }

    /// The policy that decides about a path; `None`: the receivers get no such path.
    pub fn policy_for(&self, path: &BestPath) -> Option<&Policy> {
        if path.suppressed { self.unsuppress.as_deref() } else { Some(&self.export) }
    }

    /// The prefix sets whose routes decide about what is sent, each once.
    pub fn presence_sets(&self) -> Vec<Arc<Named<PrefixSet>>> {
        let mut sets = self.export.presence_sets();
        let condition = self.default_originate.iter().filter_map(|default| default.condition.as_ref());
        sets.extend(condition.filter(|set| !self.export.presence_sets().contains(set)).cloned());
        sets
    }

    /// Whether the presence of routes decides about what is sent, or there is a default route of their own.
    pub fn is_conditional(&self) -> bool {
        self.default_originate.is_some() || !self.export.presence_sets().is_empty()
    }

    /// The settings at a presence of routes: without conditions that are not known, and without a
    /// default route whose condition does not hold.
    pub fn resolve(&self, presence: &Presence) -> EgressSettings {
        let holds = |default: &DefaultOriginate| {
            default.condition.as_ref().is_none_or(|set| presence.of(set) == Some(true))
        };
        let default_originate = self.default_originate.clone().filter(holds);
        let export = match self.export.presence_sets().is_empty() {
            true => self.export.clone(),
            false => Arc::new(self.export.resolve(|set| presence.of(set))),
        };
        EgressSettings { default_originate, export, ..self.clone() }
    }

    /// The prefixes that a change of presence may concern.
    pub fn presence_scope(&self) -> DumpScope {
        let Some(mut sets) = self.export.presence_scope() else { return DumpScope::default() };
        if self.default_originate.as_ref().is_some_and(|default| default.condition.is_some()) {
            let defaults = [Prefix::<V4>::default_route().any(), Prefix::<V6>::default_route().any()];
            sets.push(Named::new("default routes", PrefixSet::new(defaults.map(PrefixRange::exact))));
        }
        DumpScope(Some(sets.into()))
    }

    /// Whether the paths for these peers in family `family` depend on others than the best.
    pub fn takes_ranked(&self, family: AfiSafi) -> bool {
        self.client.is_some() || self.add_path.of(family).is_some()
    }
}

/// How private AS numbers (RFC 6996) are removed from the paths of sent routes. Those of the receivers stay, because
/// they show loops, and so do our own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemovePrivateAs {
    /// From every path; else only from paths without a public AS number.
    pub all: bool,
    /// Our own AS takes their place, so that the path keeps its length.
    pub replace: bool,
    /// The AS of the receivers.
    pub peer_asn: u32,
}

/// The rule for NEXT_HOP of sent routes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NextHopRule {
    /// As received; the rule of RFC 4271 section 5.1.3 for internal peers.
    Keep,
    /// Our own addresses on the session's interface; the rule for external peers. A next hop on the shared
    /// subnet may be kept only by [`NextHopRule::Keep`], never here.
    Own {
        /// For IPv4 routes; `None`: IPv4 routes go with the IPv6 address (RFC 8950) or not at all.
        v4: Option<Ipv4Addr>,
        /// For IPv6 routes; `None`: they go with [`EgressSettings::link_local`] or not at all.
        v6: Option<Ipv6Addr>,
    },
    /// As received, except of routes that we originate, where the export policy sets it to our own
    /// address, and where it is valid on another link alone: one of these.
    KeepUnlessOwn {
        /// For IPv4 routes.
        v4: Option<Ipv4Addr>,
        /// For IPv6 routes.
        v6: Option<Ipv6Addr>,
    },
}
