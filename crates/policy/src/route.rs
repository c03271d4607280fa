//! A route as a policy sees it, and the changes of a policy.

use crate::community::Kind;
use crate::statement::{Actions, Med, SetNextHop};
use ribtide_prefix::{Afi, AfiSafi, BgpFamily, Prefix};
use ribtide_rpki::{Origin as OriginAs, PathState, Validity, Vrps};
use ribtide_wire::bgp::attribute::{
    AsPath, Attribute, Attributes, Origin, aigp, code, expected_flags, flags, number,
};
use ribtide_wire::bgp::{NextHop, build};
use std::net::IpAddr;

/// LOCAL_PREF of a route without one, as in other implementations.
pub const DEFAULT_LOCAL_PREF: u32 = 100;

/// Everything of a route that a policy tests, but its prefix.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// The attributes in canonical wire form: AS numbers of four bytes, each type once in ascending order, without
    /// NEXT_HOP, MP_REACH_NLRI and MP_UNREACH_NLRI.
    pub attributes: &'a [u8],
    /// The next hop.
    pub next_hop: NextHop,
    /// The family.
    pub family: AfiSafi,
    /// The neighbour that advertised it.
    pub source: Source,
    /// How to validate it, where the policy [tests that](crate::Policy::tests_validity).
    pub validation: Option<Validation<'a>>,
}

/// The origin of a route, and the table it is validated against.
#[derive(Clone, Copy, Debug)]
pub struct Validation<'a> {
    /// The table.
    pub vrps: &'a Vrps,
    /// The origin of the route as received.
    pub origin: OriginAs,
    /// The verification state of its path as received, of a neighbour whose paths are verified.
    pub path: Option<PathState>,
}

impl Route<'_> {
    /// The validation state for a prefix; not found without a table.
    pub(crate) fn validity<F: BgpFamily>(&self, prefix: Prefix<F>) -> Validity {
        self.validation
            .map_or(Validity::NotFound, |Validation { vrps, origin, .. }| vrps.validate(prefix.ip(), origin))
    }

    /// The verification state of the path; `None`: it is not verified.
    pub(crate) fn path_state(&self) -> Option<PathState> {
        self.validation.and_then(|validation| validation.path)
    }
}

/// The neighbour that a route was learnt from, at import and at export alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// Its address; unspecified for an originated route.
    pub neighbor: IpAddr,
    /// Its kind.
    pub kind: RouteType,
}

/// Where a route comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RouteType {
    /// A neighbour of another AS.
    External,
    /// A neighbour of our own AS.
    Internal,
    /// This router, which originates it.
    Local,
}

impl RouteType {
    /// Its name in the configuration and in output.
    pub fn name(self) -> &'static str {
        match self {
            RouteType::External => "external",
            RouteType::Internal => "internal",
            RouteType::Local => "local",
        }
    }
}

/// The changes of an accepted route.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Changes {
    origin: Option<Origin>,
    as_path: Option<Vec<u8>>,
    med: Option<u32>,
    local_pref: Option<u32>,
    aigp: Option<u64>,
    /// By [`Kind`].
    communities: [Option<Vec<u8>>; 3],
    next_hop: Option<NewNextHop>,
    source: Option<IpAddr>,
}

/// A next hop that a policy sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NewNextHop {
    /// Our own address on the session that the route is sent on.
    Own,
    /// This one, of the route's family.
    Address(NextHop),
}

impl Changes {
    /// Whether the route stays as it is.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// MULTI_EXIT_DISC, where the policy set it: it is then sent to every peer, also in another AS.
    pub fn med(&self) -> Option<u32> {
        self.med
    }

    /// The accumulated IGP metric, where the policy set it.
    pub fn aigp(&self) -> Option<u64> {
        self.aigp
    }

    /// The others.
    pub fn without_aigp(&self) -> Changes {
        Changes { aigp: None, ..self.clone() }
    }

    /// The next hop, where the policy set it.
    pub fn next_hop(&self) -> Option<NewNextHop> {
        self.next_hop
    }

    /// The source address, where the policy set one for the route's family.
    pub fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Appends `attributes`, in canonical form, with the changes; the result is canonical too. It
    /// excludes the next hop.
    pub fn write(&self, attributes: &[u8], out: &mut Vec<u8>) {
        let origin = self.origin.map(|origin| [origin as u8]);
        let (med, local_pref) = (self.med.map(u32::to_be_bytes), self.local_pref.map(u32::to_be_bytes));
        let aigp = self.aigp.map(aigp::value);
        let mut changed: [(u8, Option<&[u8]>); 8] = [
            (code::ORIGIN, origin.as_ref().map(|v| v.as_slice())),
            (code::AS_PATH, self.as_path.as_deref()),
            (code::MED, med.as_ref().map(|v| v.as_slice())),
            (code::LOCAL_PREF, local_pref.as_ref().map(|v| v.as_slice())),
            (code::AIGP, aigp.as_ref().map(|v| v.as_slice())),
            (0, None),
            (0, None),
            (0, None),
        ];
        for (kind, place) in Kind::ALL.into_iter().zip(&mut changed[5..]) {
            *place = (kind.code(), self.communities[kind as usize].as_deref());
        }
        changed.sort_unstable_by_key(|(code, _)| *code);
        let mut changed = changed.into_iter().filter_map(|(code, value)| Some((code, value?))).peekable();
        let fresh = |(code, value): (u8, &[u8]), have: Option<u8>, out: &mut Vec<u8>| {
            // An empty list of communities is malformed; an empty AS_PATH is not.
            if !value.is_empty() || code == code::AS_PATH {
                let flags = have.unwrap_or(expected_flags(code).unwrap_or(flags::OPTIONAL));
                build::attribute(out, flags, code, value);
            }
        };
        for Attribute { flags, code, value } in Attributes::new(attributes) {
            while let Some(new) = changed.next_if(|(new, _)| *new < code) {
                fresh(new, None, out);
            }
            match changed.next_if(|(new, _)| *new == code) {
                Some(new) => fresh(new, Some(flags), out),
                None => build::attribute(out, flags, code, value),
            }
        }
        changed.for_each(|new| fresh(new, None, out));
    }
}

/// A route during evaluation, with the changes so far, which later statements see.
pub(crate) struct Draft<'a> {
    route: &'a Route<'a>,
    origin: Origin,
    as_path: &'a [u8],
    med: Option<u32>,
    local_pref: Option<u32>,
    communities: [&'a [u8]; 3],
    pub(crate) changes: Changes,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(route: &'a Route<'a>) -> Draft<'a> {
        let mut draft = Draft {
            route,
            origin: Origin::Incomplete,
            as_path: &[],
            med: None,
            local_pref: None,
            communities: [&[]; 3],
            changes: Changes::default(),
        };
        for Attribute { code, value, .. } in Attributes::new(route.attributes) {
            match code {
                code::ORIGIN => draft.origin = Origin::from_value(value).unwrap_or(Origin::Incomplete),
                code::AS_PATH => draft.as_path = value,
                code::MED => draft.med = number(value),
                code::LOCAL_PREF => draft.local_pref = number(value),
                _ => {
                    if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.code() == code) {
                        draft.communities[kind as usize] = value;
                    }
                }
            }
        }
        draft
    }

    pub(crate) fn family(&self) -> AfiSafi {
        self.route.family
    }

    pub(crate) fn source(&self) -> Source {
        self.route.source
    }

    pub(crate) fn origin(&self) -> Origin {
        self.changes.origin.unwrap_or(self.origin)
    }

    pub(crate) fn as_path(&self) -> AsPath<'_> {
        AsPath::new(self.changes.as_path.as_deref().unwrap_or(self.as_path))
    }

    /// 0 when there is none.
    pub(crate) fn med(&self) -> u32 {
        self.changes.med.or(self.med).unwrap_or(0)
    }

    pub(crate) fn local_pref(&self) -> u32 {
        self.changes.local_pref.or(self.local_pref).unwrap_or(DEFAULT_LOCAL_PREF)
    }

    pub(crate) fn communities(&self, kind: Kind) -> &[u8] {
        self.changes.communities[kind as usize].as_deref().unwrap_or(self.communities[kind as usize])
    }

    /// The address that packets are sent to, if known: our own address is not.
    pub(crate) fn next_hop(&self) -> IpAddr {
        match self.changes.next_hop {
            Some(NewNextHop::Address(next_hop)) => next_hop.first_addr(),
            Some(NewNextHop::Own) | None => self.route.next_hop.first_addr(),
        }
    }

    pub(crate) fn apply(&mut self, actions: &Actions) {
        let Actions { origin, local_pref, med, aigp, next_hop, prepend, communities, source } = actions;
        self.changes.origin = origin.or(self.changes.origin);
        self.changes.local_pref = local_pref.or(self.changes.local_pref);
        self.changes.aigp = aigp.or(self.changes.aigp);
        self.changes.source = source.of(self.route.family.afi()).or(self.changes.source);
        match med {
            None => {}
            Some(Med::Set(n)) => self.changes.med = Some(*n),
            Some(Med::Add(n)) => self.changes.med = Some(self.med().saturating_add(*n)),
            Some(Med::Subtract(n)) => self.changes.med = Some(self.med().saturating_sub(*n)),
        }
        match next_hop {
            None => {}
            Some(SetNextHop::Own) => self.changes.next_hop = Some(NewNextHop::Own),
            Some(SetNextHop::Peer) => self.set_next_hop(self.route.source.neighbor),
            Some(SetNextHop::Address(address)) => self.set_next_hop(*address),
        }
        if let Some(prepend) = prepend {
            self.changes.as_path = Some(build::prepend(self.as_path(), prepend.asn, prepend.count));
        }
        if !communities.is_empty() {
            for kind in Kind::ALL {
                let have = self.communities(kind);
                let new = communities.change(kind, have);
                if new != have {
                    self.changes.communities[kind as usize] = Some(new);
                }
            }
        }
    }

    /// An address of the other family leaves the route as it is. An IPv4-mapped one is of IPv4.
    fn set_next_hop(&mut self, address: IpAddr) {
        let next_hop = match (self.route.family.afi(), address.to_canonical()) {
            (Afi::Ipv4, IpAddr::V4(a)) => NextHop::V4(a),
            (Afi::Ipv6, IpAddr::V6(_)) => NextHop::from(address),
            _ => return,
        };
        self.changes.next_hop = Some(NewNextHop::Address(next_hop));
    }
}
