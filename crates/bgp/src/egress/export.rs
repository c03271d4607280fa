//! The permission to send a path to a group, and its attributes.

use super::paths::Path;
use crate::attr::AttrSet;
use crate::peer::{EgressSettings, NextHopRule, PeerInfo, PeerKind};
use ribtide_policy::{DEFAULT_LOCAL_PREF, NewNextHop};
use ribtide_prefix::Afi;
use ribtide_wire::bgp::attribute::{Aggregator, Attribute, code, flags};
use ribtide_wire::bgp::role::Role;
use ribtide_wire::bgp::{AsPath, NextHop, build};

/// The reason why a path from `source` must not be sent to a group's members, independent of their
/// export policy; `None` if it may.
pub(super) fn forbidden(
    settings: &EgressSettings,
    source: &PeerInfo,
    afi: Afi,
    attrs: &AttrSet,
) -> Option<&'static str> {
    if !settings.families.has(afi) {
        return Some("the session does not carry this family");
    }
    // RFC 4271 section 9.2 and RFC 4456 section 6.
    if (source.kind, settings.kind) == (PeerKind::Internal, PeerKind::Internal) {
        return Some(
            "it came from an internal peer, and neither of the two is a client of a route reflector",
        );
    }
    // Well-known communities (RFC 1997). There are no confederations here, so that NO_EXPORT_SUBCONFED is NO_EXPORT.
    if attrs.no_advertise() {
        return Some("it has the community no-advertise");
    }
    if !settings.kind.is_internal() && (attrs.no_export() || attrs.no_export_subconfed()) {
        return Some("it has the community no-export, and the peer is external");
    }
    // RFC 9234 section 5, egress rule 2.
    if settings.role.is_some_and(Role::keeps_marked) && attrs.value(code::OTC).is_some() {
        return Some("it has the attribute OTC, which a provider, a peer and a route server must not get");
    }
    None
}

/// The NEXT_HOP of a route from `source`, which the policy may have set; `None` without a valid
/// one.
pub(super) fn next_hop(
    settings: &EgressSettings,
    source: &PeerInfo,
    afi: Afi,
    received: NextHop,
    by_policy: Option<NewNextHop>,
) -> Option<NextHop> {
    match (by_policy, settings.next_hop) {
        (Some(NewNextHop::Address(next_hop)), _) => kept(afi, next_hop),
        (Some(NewNextHop::Own), rule) => own(rule, afi),
        // A reflected route keeps its next hop (RFC 4456 section 10): otherwise its traffic would
        // pass through us.
        (None, rule @ NextHopRule::Own { .. }) if !is_reflected(settings, source) => own(rule, afi),
        (None, rule) if source.kind.is_local() => own(rule, afi),
        (None, _) => kept(afi, received),
    }
}

/// Our own address.
fn own(rule: NextHopRule, afi: Afi) -> Option<NextHop> {
    let (NextHopRule::Own { v4, v6 } | NextHopRule::KeepUnlessOwn { v4, v6 }) = rule else { return None };
    match afi {
        Afi::Ipv4 => v4.map(NextHop::V4),
        Afi::Ipv6 => v6.map(|global| NextHop::V6 { global, link_local: None }),
    }
}

/// The received next hop, if it is valid beyond its link. A link-local address is not (RFC 2545
/// section 3), and IPv6 next hops of IPv4 routes were not negotiated (RFC 8950).
fn kept(afi: Afi, received: NextHop) -> Option<NextHop> {
    match (afi, received) {
        (Afi::Ipv4, NextHop::V4(_)) => Some(received),
        (Afi::Ipv6, NextHop::V6 { global, .. }) if !global.is_unicast_link_local() => {
            Some(NextHop::V6 { global, link_local: None })
        }
        _ => None,
    }
}

fn is_reflected(settings: &EgressSettings, source: &PeerInfo) -> bool {
    settings.kind.is_internal() && source.kind.is_internal()
}

/// Appends the attributes of a path from `source` for the group's members, without the next hop.
///
/// A received MULTI_EXIT_DISC never leaves the AS (RFC 4271 section 5.1.4); that of an originated
/// route does.
pub(super) fn attributes(settings: &EgressSettings, source: &PeerInfo, path: &Path, out: &mut Vec<u8>) {
    let (attrs, keeps_med) = (&path.attrs, path.keeps_med);
    let internal = settings.kind.is_internal();
    let reflected = is_reflected(settings, source);
    let mut rest = attrs.attributes().peekable();
    // Both sets are sorted by code: rewrite some, and copy those between.
    let mut copy_below = |code: u8, out: &mut Vec<u8>, wanted: u8| -> Option<Attribute<'_>> {
        while let Some(a) = rest.next_if(|a| a.code < code) {
            let sent = match a.code {
                // RFC 9012 section 11 keeps it from external peers.
                code::TUNNEL_ENCAPSULATION => internal,
                // RFC 8669 section 5 does, but for those inside the SR domain.
                code::PREFIX_SID => internal || settings.prefix_sid,
                _ => true,
            };
            if sent {
                build::attribute(out, a.flags, a.code, a.value);
            }
        }
        rest.next_if(|a| a.code == wanted)
    };

    let path = copy_below(code::AS_PATH, out, code::AS_PATH).map(|a| a.value).unwrap_or_default();
    let prepended;
    let path = if internal {
        AsPath::new(path)
    } else {
        prepended = build::prepend(AsPath::new(path), settings.local_asn, 1);
        AsPath::new(&prepended)
    };
    if settings.four_octet_as {
        build::as_path(out, path);
    } else {
        build::as_path_two_octet(out, path);
    }

    if let Some(med) = copy_below(code::MED, out, code::MED)
        && (internal || keeps_med || source.kind.is_local())
    {
        build::attribute(out, med.flags, med.code, med.value);
    }
    copy_below(code::LOCAL_PREF, out, code::LOCAL_PREF);
    if internal {
        build::local_pref(out, attrs.local_pref().unwrap_or(DEFAULT_LOCAL_PREF));
    }

    let aggregator = copy_below(code::AGGREGATOR, out, code::AGGREGATOR);
    let aggregator = aggregator.and_then(|a| Some((a.flags, Aggregator::from_value(a.value)?)));
    if let Some((flags, aggregator)) = aggregator {
        if settings.four_octet_as {
            build::aggregator(out, flags, aggregator);
        } else {
            build::aggregator_two_octet(out, flags, aggregator);
        }
    }

    copy_below(code::ORIGINATOR_ID, out, code::ORIGINATOR_ID);
    let clusters = copy_below(code::CLUSTER_LIST, out, code::CLUSTER_LIST).map(|a| a.value);
    if reflected {
        build::originator_id(out, attrs.originator_id().unwrap_or(source.router_id));
        build::cluster_list(out, settings.cluster_id, clusters.unwrap_or_default());
    }

    if let Some(a) = copy_below(code::EXTENDED_COMMUNITIES, out, code::EXTENDED_COMMUNITIES) {
        build::list(out, a.flags, a.code, &leaving(a.value, 8, internal));
    }

    if !settings.four_octet_as {
        copy_below(code::AS4_PATH, out, code::AS4_PATH);
        build::as4_path(out, path);
        copy_below(code::AS4_AGGREGATOR, out, code::AS4_AGGREGATOR);
        if let Some((_, aggregator)) = aggregator {
            build::as4_aggregator(out, aggregator);
        }
    }
    if let Some(a) = copy_below(code::IPV6_EXTENDED_COMMUNITIES, out, code::IPV6_EXTENDED_COMMUNITIES) {
        build::list(out, a.flags, a.code, &leaving(a.value, 20, internal));
    }
    match (copy_below(code::OTC, out, code::OTC), settings.role) {
        (Some(a), _) => build::attribute(out, a.flags, a.code, a.value),
        // RFC 9234 section 5, egress rule 1.
        (None, Some(role)) if role.marks_sent() => {
            let flags = flags::OPTIONAL | flags::TRANSITIVE;
            build::attribute(out, flags, code::OTC, &settings.local_asn.to_be_bytes());
        }
        (None, _) => {}
    }
    copy_below(u8::MAX, out, u8::MAX);
}

/// The extended communities of `size` bytes that are sent. To external peers go neither those that
/// are not transitive (RFC 4360 section 6, RFC 5701 section 2) nor that of a tunnel (RFC 9012
/// section 11).
fn leaving(list: &[u8], size: usize, internal: bool) -> Vec<u8> {
    const NON_TRANSITIVE: u8 = 0x40;
    const ENCAPSULATION: [u8; 2] = [0x03, 0x0c];
    let goes = |community: &&[u8]| {
        let transitive = community.first().is_some_and(|kind| kind & NON_TRANSITIVE == 0);
        internal || (transitive && !community.starts_with(&ENCAPSULATION))
    };
    list.chunks_exact(size).filter(goes).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{FamilySet, PeerId};
    use proptest::prelude::*;
    use ribtide_policy::Policy;
    use ribtide_prefix::{Prefix, V4};
    use ribtide_wire::bgp::attribute::{Attributes, expected_flags};
    use ribtide_wire::bgp::build::UpdatePacker;
    use ribtide_wire::bgp::message::frame;
    use ribtide_wire::bgp::update::{Disposition, UpdateContext, parse};
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    const HOP: NextHop = NextHop::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn peer(kind: PeerKind, four_octet_as: bool) -> PeerInfo {
        let (router_id, families) = (Ipv4Addr::new(10, 0, 0, 9), FamilySet { ipv4: true, ipv6: false });
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
            families,
            path_ids: FamilySet::default(),
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
                let refused = forbidden(&settings, &source, Afi::Ipv4, &attrs);
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

    proptest! {
        /// A strict peer accepts sent attributes, with any flags that RFC 4271 section 4.3 forbids
        /// and RFC 7606 accepts.
        #[test]
        fn sent_attributes_pass_the_strict_parser(present: u16, partial: u16, internal: bool) {
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
            for kind in [PeerKind::External, PeerKind::Internal, PeerKind::Client] {
                for four_octet_as in [true, false] {
                    let to = peer(kind, four_octet_as);
                    let path = Path { attrs: attrs.clone(), source: source.id, next_hop: None, keeps_med: true };
                    let (mut sent, mut message) = (Vec::new(), Vec::new());
                    attributes(&to.egress, &source, &path, &mut sent);
                    let prefix: Prefix<V4> = "10.0.0.0/8".parse().unwrap();
                    UpdatePacker::new(&sent, HOP, 4096).announce([prefix], &mut message).unwrap();
                    let body = frame(&message, 4096).unwrap().unwrap().body;
                    let context = UpdateContext::new(four_octet_as, !kind.is_internal());
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
