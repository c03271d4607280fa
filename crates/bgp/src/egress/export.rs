//! The permission to send a path to a group, and its attributes.

use super::as_path;
use super::paths::Path;
use crate::attr::AttrSet;
use crate::message::UNKNOWN_DISTANCE;
use crate::peer::{EgressSettings, NextHopRule, PeerInfo, PeerKind};
use ribtide_policy::{DEFAULT_LOCAL_PREF, NewNextHop};
use ribtide_prefix::zone::zone_of;
use ribtide_prefix::{Afi, AfiSafi};
use ribtide_wire::bgp::attribute::{Aggregator, Attribute, Community, aigp, code, flags, is_private, number};
use ribtide_wire::bgp::role::Role;
use ribtide_wire::bgp::{AsPath, NextHop, build};

/// The reason why a path from `source` must not be sent to a group's members, independent of their
/// export policy; `None` if it may.
pub(super) fn forbidden(
    settings: &EgressSettings,
    source: &PeerInfo,
    family: AfiSafi,
    attrs: &AttrSet,
) -> Option<&'static str> {
    if !settings.families.has(family) {
        return Some("the session does not carry this family");
    }
    // RFC 4271 section 9.2 and RFC 4456 section 6.
    if (source.kind, settings.kind) == (PeerKind::Internal, PeerKind::Internal) {
        return Some(
            "it came from an internal peer, and neither of the two is a client of a route reflector",
        );
    }
    // RFC 9234 section 5, egress rule 2.
    if settings.role.is_some_and(Role::keeps_marked) && attrs.value(code::OTC).is_some() {
        return Some("it has the attribute OTC, which a provider, a peer and a route server must not get");
    }
    // RFC 9494 section 4.3.
    if !settings.long_lived && !settings.long_lived_partial && is_long_lived_stale(source, attrs) {
        return Some("it is long-lived stale (LLGR_STALE), and the peer has no long-lived graceful restart");
    }
    // A route server does not process communities (RFC 7947 section 2.2.4).
    if is_transparent(settings, source) {
        return None;
    }
    // Well-known communities (RFC 1997). Without a confederation NO_EXPORT_SUBCONFED is NO_EXPORT.
    if attrs.no_advertise() {
        return Some("it has the community no-advertise");
    }
    if !settings.kind.is_inside() && attrs.no_export() {
        return Some("it has the community no-export, and the peer is external");
    }
    if !settings.kind.is_internal() && attrs.no_export_subconfed() {
        return Some("it has the community no-export-subconfed, and the peer is not of our AS");
    }
    None
}

/// A path from `source` as the group's messages have it: appends its attributes, and returns the next hop; `None` without a
/// valid one.
pub(super) fn form(
    settings: &EgressSettings,
    source: &PeerInfo,
    family: AfiSafi,
    path: &Path,
    out: &mut Vec<u8>,
) -> Option<NextHop> {
    attributes(settings, source, path, out);
    next_hop(settings, source, family, path.attrs.next_hop(), path.next_hop)
}

/// The NEXT_HOP of a route from `source`, which the policy may have set; `None` without a valid
/// one.
pub(super) fn next_hop(
    settings: &EgressSettings,
    source: &PeerInfo,
    family: AfiSafi,
    received: NextHop,
    by_policy: Option<NewNextHop>,
) -> Option<NextHop> {
    match by_policy {
        Some(NewNextHop::Address(next_hop)) => kept(settings, family, next_hop),
        _ if sets_own(settings, source, received, by_policy) => own(settings, family),
        // RFC 7947 section 2.2.1. The clients are on one link, so that a link-local address is valid too.
        _ if is_transparent(settings, source) => {
            kept(settings, family, received).map(|kept| if has_zone(received) { kept } else { received })
        }
        _ => kept(settings, family, received),
    }
}

/// Whether the NEXT_HOP of a route from `source` becomes our own address.
pub(super) fn sets_own(
    settings: &EgressSettings,
    source: &PeerInfo,
    received: NextHop,
    by_policy: Option<NewNextHop>,
) -> bool {
    match (by_policy, settings.next_hop) {
        (Some(by_policy), _) => by_policy == NewNextHop::Own,
        (None, _) if is_transparent(settings, source) => false,
        // A reflected route keeps its next hop (RFC 4456 section 10): otherwise its traffic would
        // pass through us.
        (None, NextHopRule::Own { .. }) if !is_reflected(settings, source) => true,
        // A route of a client of the API may have a next hop; of others it is this router.
        (None, _) if source.kind.is_local() && received.addr().is_unspecified() => true,
        // The neighbour with that address is on a link of ours alone, so its traffic passes through us anyway.
        (None, _) => is_on_link(received),
    }
}

/// Our own address: of IPv4 routes the IPv4 one if the rule has one.
fn own(settings: &EgressSettings, family: AfiSafi) -> Option<NextHop> {
    let (NextHopRule::Own { v4, v6 } | NextHopRule::KeepUnlessOwn { v4, v6 }) = settings.next_hop else {
        return None;
    };
    let six = || {
        let link_local = settings.link_local;
        v6.or(link_local).map(|global| NextHop::V6 { global, link_local })
    };
    match family.afi() {
        Afi::Ipv4 => v4.map(NextHop::V4).or_else(|| six().filter(|_| settings.extended_next_hop)),
        Afi::Ipv6 => six(),
    }
}

/// The received next hop, if it is valid beyond its link. A link-local address is not (RFC 2545
/// section 3). IPv6 next hops of IPv4 routes need the capability of the receivers (RFC 8950 section 4): to others such a
/// route is not sent, because our own address would draw its traffic to us.
fn kept(settings: &EgressSettings, family: AfiSafi, received: NextHop) -> Option<NextHop> {
    match (family.afi(), received) {
        (Afi::Ipv4, NextHop::V4(_)) => Some(received),
        (Afi::Ipv4, NextHop::V6 { .. }) if !settings.extended_next_hop => None,
        (Afi::Ipv4 | Afi::Ipv6, NextHop::V6 { global, .. }) if !global.is_unicast_link_local() => {
            Some(NextHop::V6 { global, link_local: None })
        }
        _ => None,
    }
}

/// Whether it is a link-local address of a session's own link, without a global one.
fn is_on_link(next_hop: NextHop) -> bool {
    matches!(next_hop, NextHop::V6 { global, .. } if zone_of(global.into()).is_some())
}

/// Whether its link-local address is that of a session's own link.
fn has_zone(next_hop: NextHop) -> bool {
    matches!(next_hop, NextHop::V6 { link_local: Some(local), .. } if zone_of(local.into()).is_some())
}

/// Whether a route from one client of this route server goes to another (RFC 7947 section 2.2). Its path, next hop, MED and
/// communities stay as they are. A route of any other source is sent to a client as to any external peer.
fn is_transparent(settings: &EgressSettings, source: &PeerInfo) -> bool {
    (source.kind, settings.kind) == (PeerKind::RouteServerClient, PeerKind::RouteServerClient)
}

/// Whether a path is long-lived stale: LLGR_STALE of a source to which the capability is sent.
fn is_long_lived_stale(source: &PeerInfo, attrs: &AttrSet) -> bool {
    source.long_lived && attrs.llgr_stale()
}

fn is_reflected(settings: &EgressSettings, source: &PeerInfo) -> bool {
    settings.kind.is_internal() && source.kind.is_internal()
}

/// Appends the attributes of a path from `source` for the group's members, without the next hop.
///
/// A received MULTI_EXIT_DISC never leaves the AS (RFC 4271 section 5.1.4), but through a route server (RFC 7947
/// section 2.2.3); that of an originated route does.
///
/// Attributes that go out as they are stored are copied together: most routes have one or two that change.
pub(super) fn attributes(settings: &EgressSettings, source: &PeerInfo, path: &Path, out: &mut Vec<u8>) {
    let mut edit = Edit::new(settings, source, path);
    let Codes { edited, mut due } = edit.codes();
    let stored = path.attrs.bytes();
    let (mut rest, mut copied) = (stored, 0);
    while let Some((attribute, after)) = Attribute::split_first(rest) {
        let (start, end) = (stored.len() - rest.len(), stored.len() - after.len());
        rest = after;
        let bit = bit(attribute.code);
        // All lower codes, and of a code without a bit all that have one.
        let before = due & bit.wrapping_sub(1);
        if (before | edited & bit) == 0 {
            continue;
        }
        out.extend_from_slice(&stored[copied..start]);
        copied = start;
        edit.add(before, out);
        due &= !(before | bit);
        if edited & bit != 0 {
            edit.write(attribute.code, Some(attribute), out);
            copied = end;
        }
    }
    out.extend_from_slice(&stored[copied..stored.len() - rest.len()]);
    edit.add(due, out);
}

/// Codes of attributes, a bit each. Those from 64 on have none: they are sent as they are stored.
#[derive(Clone, Copy)]
struct Codes {
    /// They are not sent as they are stored.
    edited: u64,
    /// Of these, they are written also where the path does not have them.
    due: u64,
}

const fn bit(code: u8) -> u64 {
    if code < 64 { 1 << code } else { 0 }
}

/// The changes of a path's attributes on the way to a group's members.
struct Edit<'a> {
    settings: &'a EgressSettings,
    source: &'a PeerInfo,
    path: &'a Path,
    /// The receivers are of our AS or confederation.
    internal: bool,
    reflected: bool,
    transparent: bool,
    /// It is sent long-lived stale, to receivers without the capability (RFC 9494 section 4.6).
    partial: bool,
    /// The AS_PATH and the AGGREGATOR as sent, for AS4_PATH and AS4_AGGREGATOR.
    as_path: Vec<u8>,
    aggregator: Option<Aggregator>,
}

impl<'a> Edit<'a> {
    fn new(settings: &'a EgressSettings, source: &'a PeerInfo, path: &'a Path) -> Edit<'a> {
        Edit {
            settings,
            source,
            path,
            internal: settings.kind.is_inside(),
            reflected: is_reflected(settings, source),
            transparent: is_transparent(settings, source),
            partial: settings.long_lived_partial && is_long_lived_stale(source, &path.attrs),
            as_path: Vec::new(),
            aggregator: None,
        }
    }

    fn codes(&self) -> Codes {
        const DUE: u64 = bit(code::AS_PATH);
        const EDITED: u64 = DUE
            | bit(code::LOCAL_PREF)
            | bit(code::AGGREGATOR)
            | bit(code::ORIGINATOR_ID)
            | bit(code::CLUSTER_LIST)
            | bit(code::EXTENDED_COMMUNITIES)
            | bit(code::IPV6_EXTENDED_COMMUNITIES)
            | bit(code::AIGP);
        let Edit { settings, internal, .. } = *self;
        let only = |wanted: bool, codes: u64| if wanted { codes } else { 0 };
        let keeps_med = internal || self.transparent || self.path.keeps_med || self.source.kind.is_local();
        let due = DUE
            | only(internal, bit(code::LOCAL_PREF))
            | only(self.reflected, bit(code::ORIGINATOR_ID) | bit(code::CLUSTER_LIST))
            | only(!settings.four_octet_as, bit(code::AS4_PATH) | bit(code::AS4_AGGREGATOR))
            // RFC 9234 section 5, egress rule 1.
            | only(settings.role.is_some_and(Role::marks_sent), bit(code::OTC));
        let edited = EDITED
            | due
            | only(!keeps_med, bit(code::MED))
            | only(self.partial && !self.path.attrs.no_export(), bit(code::COMMUNITIES))
            // RFC 9012 section 11 keeps it from external peers.
            | only(!internal, bit(code::TUNNEL_ENCAPSULATION))
            // RFC 8669 section 5 does, but for those inside the SR domain.
            | only(!internal && !settings.prefix_sid, bit(code::PREFIX_SID))
            | only(settings.remove_private_as.is_some(), bit(code::OTC));
        Codes { edited, due }
    }

    /// Appends attributes that the path does not have.
    #[inline]
    fn add(&mut self, mut codes: u64, out: &mut Vec<u8>) {
        while codes != 0 {
            self.write(codes.trailing_zeros() as u8, None, out);
            codes &= codes - 1;
        }
    }

    /// Appends what is sent of one of the edited codes, which the path has or not.
    fn write(&mut self, code: u8, stored: Option<Attribute<'_>>, out: &mut Vec<u8>) {
        let Edit { settings, source, .. } = *self;
        let attrs = &self.path.attrs;
        let value = stored.map(|a| a.value).unwrap_or_default();
        match (code, stored) {
            (code::AS_PATH, _) => self.write_as_path(AsPath::new(value), out),
            (code::LOCAL_PREF, _) if self.internal => {
                // RFC 9494 section 4.6.
                let local_pref =
                    if self.partial { 0 } else { attrs.local_pref().unwrap_or(DEFAULT_LOCAL_PREF) };
                build::local_pref(out, local_pref);
            }
            (code::AGGREGATOR, Some(a)) => {
                let Some(aggregator) = Aggregator::from_value(value) else { return };
                self.aggregator = Some(aggregator);
                match settings.four_octet_as {
                    true => build::aggregator(out, a.flags, aggregator),
                    false => build::aggregator_two_octet(out, a.flags, aggregator),
                }
            }
            (code::COMMUNITIES, Some(a)) => {
                let list = [value, &Community::NO_EXPORT.0.to_be_bytes()].concat();
                build::list(out, a.flags, code, &list);
            }
            (code::ORIGINATOR_ID, _) if self.reflected => {
                build::originator_id(out, attrs.originator_id().unwrap_or(source.router_id));
            }
            (code::CLUSTER_LIST, _) if self.reflected => {
                build::cluster_list(out, settings.cluster_id, value);
            }
            (code::EXTENDED_COMMUNITIES, Some(a)) => {
                build::list(out, a.flags, code, &leaving(value, 8, self.internal || self.transparent));
            }
            (code::AS4_PATH, _) => build::as4_path(out, AsPath::new(&self.as_path)),
            (code::AS4_AGGREGATOR, _) => {
                self.aggregator.into_iter().for_each(|aggregator| build::as4_aggregator(out, aggregator));
            }
            (code::IPV6_EXTENDED_COMMUNITIES, Some(a)) => {
                build::list(out, a.flags, code, &leaving(value, 20, self.internal || self.transparent));
            }
            (code::AIGP, Some(a)) if settings.aigp => self.write_aigp(a, out),
            (code::OTC, Some(a)) => {
                // RFC 9234 section 5: an Internet-facing AS sends no OTC with a private AS number behind it.
                let hides = settings.remove_private_as.is_some() && number(value).is_some_and(is_private);
                let own = settings.local_asn.to_be_bytes();
                build::attribute(out, a.flags, code, if hides { &own } else { value });
            }
            (code::OTC, None) => {
                let flags = flags::OPTIONAL | flags::TRANSITIVE;
                build::attribute(out, flags, code, &settings.local_asn.to_be_bytes());
            }
            _ => {}
        }
    }

    fn write_as_path(&mut self, path: AsPath<'_>, out: &mut Vec<u8>) {
        let settings = self.settings;
        let prepended;
        let path = if settings.kind.is_internal() || self.transparent {
            path
        } else {
            prepended = match settings.kind {
                PeerKind::Confederation => build::prepend_member(path, settings.local_asn),
                _ => as_path::external(settings, path),
            };
            AsPath::new(&prepended)
        };
        if settings.four_octet_as {
            build::as_path(out, path);
        } else {
            build::as_path_two_octet(out, path);
            self.as_path = path.as_bytes().to_vec();
        }
    }

    #[cold]
    fn write_aigp(&self, stored: Attribute<'_>, out: &mut Vec<u8>) {
        let Attribute { flags, code, value } = stored;
        let Path { attrs, next_hop, .. } = self.path;
        let own_next_hop = sets_own(self.settings, self.source, attrs.next_hop(), *next_hop);
        match (attrs.distance(), aigp::metric(value)) {
            // RFC 7311 section 3.4.3: where a route of BGP on the way has no metric, none is passed on.
            (Some(UNKNOWN_DISTANCE), _) if own_next_hop => {}
            (Some(distance), Some(metric)) if own_next_hop => {
                let value = aigp::with_metric(value, with_distance(metric, distance));
                build::attribute(out, flags, code, &value);
            }
            // RFC 7311 section 3.4.1: the next hop alone may have added it.
            (None, _) if !own_next_hop => {}
            _ => build::attribute(out, flags, code, value),
        }
    }
}

/// The accumulated IGP metric of a route of which we become the next hop (RFC 7311 section 3.4.3): it grows by our distance
/// to the former next hop, by at least 1, and at most to the highest metric that a receiver accepts.
fn with_distance(metric: u64, distance: u32) -> u64 {
    metric.saturating_add(u64::from(distance.max(1))).min(u64::MAX - 1)
}

/// The extended communities of `size` bytes that are sent, `all` or those that leave the AS. To external peers go neither those that
/// are not transitive (RFC 4360 section 6, RFC 5701 section 2) nor that of a tunnel (RFC 9012
/// section 11).
fn leaving(list: &[u8], size: usize, all: bool) -> Vec<u8> {
    const NON_TRANSITIVE: u8 = 0x40;
    const ENCAPSULATION: [u8; 2] = [0x03, 0x0c];
    let goes = |community: &&[u8]| {
        let transitive = community.first().is_some_and(|kind| kind & NON_TRANSITIVE == 0);
        all || (transitive && !community.starts_with(&ENCAPSULATION))
    };
    list.chunks_exact(size).filter(goes).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{FamilySet, PeerId, RemovePrivateAs};
    use proptest::prelude::*;
    use ribtide_policy::Policy;
    use ribtide_prefix::{Prefix, V4};
    use ribtide_wire::bgp::attribute::{Attributes, expected_flags};
    use ribtide_wire::bgp::build::UpdatePacker;
    use ribtide_wire::bgp::message::frame;
    use ribtide_wire::bgp::update::{Disposition, UpdateContext, parse};
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::Arc;

    const HOP: NextHop = NextHop::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn peer(kind: PeerKind, four_octet_as: bool) -> PeerInfo {
        let (router_id, families) = (Ipv4Addr::new(10, 0, 0, 9), FamilySet::IPV4_UNICAST);
        let egress = EgressSettings {
            four_octet_as,
            ..EgressSettings::new(kind, 70_000, router_id, families, Arc::new(Policy::accept()))
        };
        let (id, address) = (PeerId(1), Ipv4Addr::new(10, 0, 0, 1).into());
        PeerInfo {
            id,
            session: 1,
            address,
            asn: 70_001,
            router_id,
            kind,
            multihop: false,
            link: None,
            families,
            path_ids: FamilySet::NONE,
            long_lived: false,
            egress,
        }
    }

    /// Well-formed values, of which some come, in this order.
    const VALUES: [(u8, &[u8]); 13] = [
        (1, &[2]),
        (2, &[2, 2, 0, 1, 0x11, 0x71, 0, 0, 0, 9]),
        (4, &[0, 0, 0, 7]),
        (5, &[0, 0, 0, 8]),
        (6, &[]),
        (7, &[0, 1, 0x11, 0x71, 1, 1, 1, 1]),
        (8, &[0, 1, 0, 2]),
        (9, &[1, 1, 1, 1]),
        (10, &[2, 2, 2, 2]),
        (16, &[0x40, 4, 0, 1, 0, 0, 0, 0]),
        (32, &[7; 12]),
        (35, &[0, 0, 0, 1]),
        (99, &[1, 2]),
    ];

    /// The egress rules of RFC 9234 section 5; we are AS 70000.
    #[test]
    fn otc_marks_routes_downwards_and_keeps_marked_ones_from_going_up() {
        use Role::{Customer, Peer, Provider, RouteServer, RouteServerClient};
        let mut plain = Vec::new();
        build::attribute(&mut plain, flags::TRANSITIVE, code::ORIGIN, &[0]);
        build::as_path(&mut plain, AsPath::new(&[]));
        let otc = |asn: u32| [&[0xc0, code::OTC, 4][..], &asn.to_be_bytes()].concat();
        let marked = [plain.clone(), otc(7)].concat();
        let source = peer(PeerKind::Internal, true);
        for (role, of_plain, of_marked) in [
            (None, Some(None), Some(Some(7))),
            (Some(Provider), Some(Some(70_000)), Some(Some(7))),
            (Some(RouteServer), Some(Some(70_000)), Some(Some(7))),
            (Some(Peer), Some(Some(70_000)), None),
            (Some(Customer), Some(None), None),
            (Some(RouteServerClient), Some(None), None),
        ] {
            let settings = EgressSettings { role, ..peer(PeerKind::External, true).egress };
            for (received, expected) in [(&plain, of_plain), (&marked, of_marked)] {
                let attrs = AttrSet::new(received, HOP);
                let refused = forbidden(&settings, &source, AfiSafi::Ipv4Unicast, &attrs);
                assert_eq!(refused.is_none(), expected.is_some(), "{role:?} {refused:?}");
                let Some(expected) = expected else { continue };
                let path = Path { attrs, source: source.id, next_hop: None, keeps_med: true };
                let mut sent = Vec::new();
                attributes(&settings, &source, &path, &mut sent);
                let value = Attributes::new(&sent).find(|a| a.code == code::OTC).map(|a| a.value.to_vec());
                assert_eq!(value, expected.map(|asn: u32| asn.to_be_bytes().to_vec()), "{role:?}");
            }
        }
    }

    /// RFC 7947 section 2.2, of a source of this kind to a receiver of that kind. We are AS 70000.
    #[test]
    fn route_server_passes_routes_of_clients_to_clients_unchanged() {
        let global: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let link_local: Ipv6Addr = "fe80::1".parse().unwrap();
        let hop = NextHop::V6 { global, link_local: Some(link_local) };
        let mut block = Vec::new();
        build::origin(&mut block, ribtide_wire::bgp::attribute::Origin::Igp);
        build::as_path(&mut block, AsPath::new(&[2, 1, 0, 1, 0x11, 0x71]));
        build::med(&mut block, 7);
        let no_export = [0xff, 0xff, 0xff, 0x01, 0xff, 0xff, 0xff, 0x02];
        build::list(&mut block, 0xc0, code::COMMUNITIES, &no_export);
        build::list(&mut block, 0xc0, code::EXTENDED_COMMUNITIES, &[0x40, 4, 0, 1, 0, 0, 0, 0]);
        let attrs = AttrSet::new(&block, hop);
        let mut to_client = peer(PeerKind::RouteServerClient, true).egress;
        let own: Ipv6Addr = "2001:db8::9".parse().unwrap();
        to_client.next_hop = NextHopRule::Own { v4: None, v6: Some(own) };
        to_client.families.set(AfiSafi::Ipv6Unicast, true);
        let client = peer(PeerKind::RouteServerClient, true);
        assert_eq!(forbidden(&to_client, &client, AfiSafi::Ipv6Unicast, &attrs), None);
        assert_eq!(next_hop(&to_client, &client, AfiSafi::Ipv6Unicast, hop, None), Some(hop));
        let by_policy = next_hop(&to_client, &client, AfiSafi::Ipv6Unicast, hop, Some(NewNextHop::Own));
        assert_eq!(by_policy, Some(NextHop::V6 { global: own, link_local: None }));
        let path = Path { attrs: attrs.clone(), source: client.id, next_hop: None, keeps_med: false };
        let sent = |settings: &EgressSettings, source: &PeerInfo| {
            let mut sent = Vec::new();
            attributes(settings, source, &path, &mut sent);
            sent
        };
        assert_eq!(sent(&to_client, &client), block);
        // Neither a route of another source to a client, nor one of a client to others.
        let external = EgressSettings { kind: PeerKind::External, ..to_client.clone() };
        for (settings, source) in [(&to_client, PeerKind::External), (&external, PeerKind::RouteServerClient)]
        {
            let source = peer(source, true);
            assert!(forbidden(settings, &source, AfiSafi::Ipv6Unicast, &attrs).is_some());
            let hop = next_hop(settings, &source, AfiSafi::Ipv6Unicast, hop, None);
            assert_eq!(hop, Some(NextHop::V6 { global: own, link_local: None }));
            let sent = sent(settings, &source);
            let has = |code| Attributes::new(&sent).any(|a| a.code == code);
            assert!(!has(code::MED) && !has(code::EXTENDED_COMMUNITIES));
            let path = Attributes::new(&sent).find(|a| a.code == code::AS_PATH).unwrap().value;
            assert_eq!(AsPath::new(path).to_string(), "70000 70001");
        }
        let otc = AttrSet::new(&[&block[..], &[0xc0, code::OTC, 4, 0, 0, 0, 7]].concat(), hop);
        let to_server = EgressSettings { role: Some(Role::RouteServerClient), ..to_client };
        assert!(forbidden(&to_server, &client, AfiSafi::Ipv6Unicast, &otc).is_some(), "roles hold as ever");
    }

    /// RFC 8950 section 4, RFC 2545 section 3: what each receiver gets of an IPv4 route with an IPv6 next hop.
    #[test]
    fn ipv6_next_hop_of_an_ipv4_route_goes_where_it_was_negotiated() {
        let v6 = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let (global, own, local) = (v6("2001:db8::1"), v6("2001:db8::9"), v6("fe80::9"));
        let from_link = NextHop::from_v6(v6("fe80::1"), None).on_link(4);
        let beyond = NextHop::from_v6(global, Some(v6("fe80::1"))).on_link(4);
        let source = peer(PeerKind::External, true);
        let four = Ipv4Addr::new(10, 0, 0, 9);
        let keeps = |extended_next_hop, v4, link_local| EgressSettings {
            next_hop: NextHopRule::KeepUnlessOwn { v4, v6: Some(own) },
            extended_next_hop,
            link_local,
            ..peer(PeerKind::Internal, true).egress
        };
        let sent =
            |settings: &EgressSettings, family, received| next_hop(settings, &source, family, received, None);
        let alone = |global| Some(NextHop::V6 { global, link_local: None });
        for family in AfiSafi::ALL {
            let with = keeps(true, None, None);
            assert_eq!(sent(&with, family, beyond), alone(global), "it is valid elsewhere");
            assert_eq!(sent(&with, family, from_link), alone(own), "only we reach it");
        }
        let without = keeps(false, Some(four), None);
        assert_eq!(sent(&without, AfiSafi::Ipv4Unicast, beyond), None);
        assert_eq!(sent(&without, AfiSafi::Ipv4Unicast, from_link), Some(NextHop::V4(four)));
        assert_eq!(sent(&keeps(false, None, None), AfiSafi::Ipv4Unicast, from_link), None);
        assert_eq!(
            sent(&keeps(true, Some(four), None), AfiSafi::Ipv4Unicast, HOP),
            Some(HOP),
            "IPv4 stays IPv4"
        );
        assert_eq!(
            sent(
                &EgressSettings { next_hop: NextHopRule::Keep, ..keeps(true, None, None) },
                AfiSafi::Ipv4Unicast,
                from_link
            ),
            None
        );

        // Our own addresses on a link.
        let ours = |extended_next_hop, v4, v6, link_local| EgressSettings {
            next_hop: NextHopRule::Own { v4, v6 },
            extended_next_hop,
            link_local,
            ..peer(PeerKind::External, true).egress
        };
        let both = Some(NextHop::V6 { global: own, link_local: Some(local) });
        let lone = Some(NextHop::V6 { global: local, link_local: Some(local) });
        for (settings, of_v4, of_v6) in [
            (ours(true, None, None, Some(local)), lone, lone),
            (ours(true, Some(four), Some(own), Some(local)), Some(NextHop::V4(four)), both),
            (ours(true, None, Some(own), Some(local)), both, both),
            (ours(false, Some(four), None, Some(local)), Some(NextHop::V4(four)), lone),
            (ours(false, None, None, Some(local)), None, lone),
            (ours(true, Some(four), None, None), Some(NextHop::V4(four)), None),
        ] {
            assert_eq!(
                (sent(&settings, AfiSafi::Ipv4Unicast, HOP), sent(&settings, AfiSafi::Ipv6Unicast, beyond)),
                (of_v4, of_v6)
            );
        }
    }

    /// RFC 5065 sections 4.1 and 5.2, RFC 1997. We are member AS 70000.
    #[test]
    fn confederation_members_get_local_attributes_and_a_member_as() {
        use PeerKind::{Confederation, External, Internal};
        let mut block = Vec::new();
        build::origin(&mut block, ribtide_wire::bgp::attribute::Origin::Igp);
        build::as_path(&mut block, AsPath::new(&[3, 1, 0, 0, 0, 9, 2, 1, 0, 0, 0, 7]));
        build::med(&mut block, 5);
        build::local_pref(&mut block, 200);
        let sent = |from: PeerKind, to: PeerKind| {
            let (source, settings) = (peer(from, true), peer(to, true).egress);
            let attrs = AttrSet::new(&block, HOP);
            let path = Path { attrs, source: source.id, next_hop: None, keeps_med: false };
            let mut sent = Vec::new();
            attributes(&settings, &source, &path, &mut sent);
            let set = AttrSet::new(&sent, HOP);
            let path = AsPath::new(set.value(code::AS_PATH).unwrap()).to_string();
            (path, set.med(), set.local_pref(), set.originator_id().is_some())
        };
        let text = |path: &str, med, local_pref| (path.to_owned(), med, local_pref, false);
        assert_eq!(sent(Internal, Confederation), text("(70000 9) 7", Some(5), Some(200)));
        assert_eq!(sent(External, Confederation), text("(70000 9) 7", Some(5), Some(200)));
        assert_eq!(sent(Confederation, Confederation), text("(70000 9) 7", Some(5), Some(200)));
        assert_eq!(sent(Confederation, Internal), text("(9) 7", Some(5), Some(200)));
        assert_eq!(sent(Confederation, External), text("70000 7", None, None));

        let with = |community: u32| {
            let mut block = block.clone();
            build::list(&mut block, 0xc0, code::COMMUNITIES, &community.to_be_bytes());
            AttrSet::new(&block, HOP)
        };
        let may = |attrs: &AttrSet, to: PeerKind| {
            forbidden(&peer(to, true).egress, &peer(Confederation, true), AfiSafi::Ipv4Unicast, attrs)
                .is_none()
        };
        for (community, to) in [(0xffff_ff01, [true, true, false]), (0xffff_ff03, [true, false, false])] {
            assert_eq!([Internal, Confederation, External].map(|kind| may(&with(community), kind)), to);
        }
        let keep = peer(Confederation, true).egress;
        assert_eq!(next_hop(&keep, &peer(External, true), AfiSafi::Ipv4Unicast, HOP, None), Some(HOP));
    }

    /// RFC 9234 section 5: the OTC of a private AS behind us becomes ours.
    #[test]
    fn otc_of_a_private_as_is_ours_with_remove_private_as() {
        let source = peer(PeerKind::External, true);
        let mut settings = peer(PeerKind::External, true).egress;
        let removal = RemovePrivateAs { all: false, replace: false, peer_asn: 9 };
        for (removal, asn, expected) in
            [(None, 64_512, 64_512), (Some(removal), 64_512, 70_000), (Some(removal), 7, 7)]
        {
            settings.remove_private_as = removal;
            let block =
                [&[0x40, 1, 1, 0, 0x40, 2, 0, 0xc0, code::OTC, 4][..], &u32::to_be_bytes(asn)].concat();
            let attrs = AttrSet::new(&block, HOP);
            let path = Path { attrs, source: source.id, next_hop: None, keeps_med: false };
            let mut sent = Vec::new();
            attributes(&settings, &source, &path, &mut sent);
            let otc = Attributes::new(&sent).find(|a| a.code == code::OTC).and_then(|a| number(a.value));
            assert_eq!(otc, Some(expected));
        }
    }

    proptest! {
        /// A strict peer accepts sent attributes, with any flags that RFC 4271 section 4.3 forbids
        /// and RFC 7606 accepts.
        #[test]
        fn sent_attributes_pass_the_strict_parser(present: u16, partial: u16, internal: bool, marks: bool) {
            let mut block = Vec::new();
            for (at, (code, value)) in VALUES.into_iter().enumerate() {
                if at < 2 || present >> at & 1 != 0 {
                    let expected = expected_flags(code).unwrap_or(flags::OPTIONAL | flags::TRANSITIVE);
                    let noise = if partial >> at & 1 != 0 { flags::PARTIAL } else { 0 };
                    block.extend_from_slice(&[expected | noise, code, value.len() as u8]);
                    block.extend_from_slice(value);
                }
            }
            block.extend_from_slice(&[0x60, 3, 4, 10, 0, 0, 1]);
            let mut body = vec![0, 0];
            body.extend_from_slice(&(block.len() as u16).to_be_bytes());
            body.extend_from_slice(&block);
            body.extend_from_slice(&[8, 10]);
            let context = UpdateContext::new(true, !internal);
            let update = parse(&body, &context).unwrap();
            let mut kept = Vec::new();
            update.attributes().for_each(|a| build::attribute(&mut kept, a.flags, a.code, a.value));
            let attrs = AttrSet::new(&kept, HOP);
            let source = peer(if internal { PeerKind::Internal } else { PeerKind::External }, true);
            for kind in [
                PeerKind::External,
                PeerKind::RouteServerClient,
                PeerKind::Confederation,
                PeerKind::Internal,
                PeerKind::Client,
            ] {
                for four_octet_as in [true, false] {
                    let mut to = peer(kind, four_octet_as);
                    to.egress.role = marks.then_some(Role::Provider);
                    let path = Path { attrs: attrs.clone(), source: source.id, next_hop: None, keeps_med: true };
                    let (mut sent, mut message) = (Vec::new(), Vec::new());
                    attributes(&to.egress, &source, &path, &mut sent);
                    let codes: Vec<u8> = Attributes::new(&sent).map(|a| a.code).collect();
                    prop_assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", codes);
                    prop_assert_eq!(codes.contains(&code::OTC), marks || attrs.value(code::OTC).is_some());
                    // Nothing changes these on any session.
                    for code in [code::ORIGIN, 6, code::COMMUNITIES, code::LARGE_COMMUNITIES, 99] {
                        let of = |block| Attributes::new(block).find(|a| a.code == code);
                        prop_assert_eq!(of(&sent), of(attrs.bytes()));
                    }
                    let prefix: Prefix<V4> = "10.0.0.0/8".parse().unwrap();
                    UpdatePacker::new(&sent, HOP, 4096).announce([prefix], &mut message).unwrap();
                    let body = frame(&message, 4096).unwrap().unwrap().body;
                    let confederation = kind.is_inside();
                    let context =
                        UpdateContext { confederation, ..UpdateContext::new(four_octet_as, !kind.is_inside()) };
                    let again = parse(body, &context).unwrap();
                    prop_assert_eq!((again.disposition(), again.discarded()), (Disposition::Normal, &[][..]));
                    for a in Attributes::new(again.raw_attributes()) {
                        let may = a.flags & 0xc0 == flags::OPTIONAL | flags::TRANSITIVE;
                        prop_assert!(may || a.flags & flags::PARTIAL == 0, "{:?}", a);
                    }
                }
            }
        }
    }
}
