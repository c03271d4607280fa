//! What may be sent to a group, and with which attributes.

use super::paths::Path;
use crate::attr::AttrSet;
use crate::peer::{EgressSettings, NextHopRule, PeerInfo, PeerKind};
use ribtide_policy::{DEFAULT_LOCAL_PREF, NewNextHop};
use ribtide_prefix::Afi;
use ribtide_wire::bgp::attribute::{Aggregator, Attribute, ExtendedCommunities, code};
use ribtide_wire::bgp::{AsPath, NextHop, build};

/// Why a path learnt from `source` may not be sent to the members of a group at all, whatever their export policy says;
/// `None`: it may.
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
    None
}

/// What stands in NEXT_HOP of a route from `source`, which the policy may have set; `None` when there is nothing that
/// could.
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
        // A reflected route keeps its next hop whatever the rule says (RFC 4456 section 10): we would draw traffic to us
        // that we need not see.
        (None, rule @ NextHopRule::Own { .. }) if !is_reflected(settings, source) => own(rule, afi),
        (None, _) => kept(afi, received),
    }
}

/// Our own address.
fn own(rule: NextHopRule, afi: Afi) -> Option<NextHop> {
    let (NextHopRule::Own { v4, v6 } | NextHopRule::KeepUnlessPolicy { v4, v6 }) = rule else { return None };
    match afi {
        Afi::Ipv4 => v4.map(NextHop::V4),
        Afi::Ipv6 => v6.map(|global| NextHop::V6 { global, link_local: None }),
    }
}

/// The next hop as received, as far as it means anything beyond the link: a link-local address does not
/// (RFC 2545 section 3), and IPv4 routes over IPv6 were not negotiated (RFC 8950).
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

/// Appends the attributes that the group's members get with a path from `source`, all but the next hop.
///
/// MULTI_EXIT_DISC that was received never leaves the AS: it was meant for us (RFC 4271 section 5.1.4).
pub(super) fn attributes(settings: &EgressSettings, source: &PeerInfo, path: &Path, out: &mut Vec<u8>) {
    let (attrs, keeps_med) = (&path.attrs, path.keeps_med);
    let internal = settings.kind.is_internal();
    let reflected = is_reflected(settings, source);
    let mut rest = attrs.attributes().peekable();
    // The set is in ascending order of codes, and so is what is sent: take what is rewritten, copy what lies between.
    let mut copy_below = |code: u8, out: &mut Vec<u8>, wanted: u8| -> Option<Attribute<'_>> {
        while let Some(a) = rest.next_if(|a| a.code < code) {
            build::attribute(out, a.flags, a.code, a.value);
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
        && (internal || keeps_med)
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
        let leaving: Vec<u8> = match internal {
            true => a.value.to_vec(),
            // What is not transitive stays in the AS (RFC 4360 section 6).
            false => ExtendedCommunities::new(a.value)
                .iter()
                .filter(|c| c.is_transitive())
                .flat_map(|c| c.0)
                .collect(),
        };
        build::list(out, a.flags, a.code, &leaving);
    }

    if !settings.four_octet_as {
        copy_below(code::AS4_PATH, out, code::AS4_PATH);
        build::as4_path(out, path);
        copy_below(code::AS4_AGGREGATOR, out, code::AS4_AGGREGATOR);
        if let Some((_, aggregator)) = aggregator {
            build::as4_aggregator(out, aggregator);
        }
    }
    copy_below(u8::MAX, out, u8::MAX);
}
