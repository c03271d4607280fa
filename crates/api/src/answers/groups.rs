//! `/v1/bgp/groups`: the update groups.

use super::bgp::{
    bgp, every_neighbor, group_id, known_group, known_worker, send_counters, sent_paths, update_thread,
};
use super::{Refusal, RouterState, zones};
use ribtide_bgp::egress::GroupView;
use ribtide_bgp::peer::{EgressSettings, NextHopRule, PeerId, PeerKind, RemovePrivateAs};
use ribtide_model::{Group, GroupMember, Groups, SentPaths, ZonedAddress};
use ribtide_prefix::AfiSafi;
use std::collections::{BTreeMap, BTreeSet};

/// The update groups with members of the configured group `name`, or the update group of that name,
/// of one thread or all.
pub(crate) fn bgp_groups(
    router: &RouterState,
    name: Option<&str>,
    thread: Option<usize>,
) -> Result<Groups, Refusal> {
    let bgp = bgp(router)?;
    let only = thread.map(|thread| known_worker(&bgp, thread)).transpose()?;
    let neighbors: BTreeMap<PeerId, (ZonedAddress, String)> =
        every_neighbor(&bgp)?.into_iter().map(|n| (n.id, (zones::address(&n), n.group))).collect();
    let mut groups = Vec::new();
    let workers = bgp.workers.running();
    for (index, worker) in workers.into_iter().filter(|(i, _)| only.is_none_or(|only| only == *i)) {
        let views = worker.call(|w| w.groups())?;
        groups
            .extend(views.into_iter().map(|view| group(index, update_thread(&bgp, index), view, &neighbors)));
    }
    if let Some(name) = name {
        groups.retain(|g| g.id == name || g.configured.iter().any(|configured| configured == name));
        if groups.is_empty() {
            // A configured group may have no session.
            known_group(router, name)?;
        }
    }
    Ok(Groups { groups })
}

fn group(
    worker: usize,
    update_thread: String,
    view: GroupView,
    neighbors: &BTreeMap<PeerId, (ZonedAddress, String)>,
) -> Group {
    let member = |id: &PeerId| {
        // The update thread may know an ended session longer.
        let (address, group) = neighbors.get(id)?.clone();
        Some(GroupMember {
            address,
            group,
            full: view.blocked.contains(id),
            detached: view.detached.contains(id),
            joining: view.joining.contains(id),
        })
    };
    let mut members: Vec<GroupMember> = view.members.iter().filter_map(member).collect();
    members.sort_unstable_by(|a, b| a.address.cmp(&b.address));
    let configured: BTreeSet<String> = members.iter().map(|m| m.group.clone()).collect();
    let sent = send_counters(&view.counters);
    Group {
        id: group_id(worker, view.id),
        update_thread,
        configured: configured.into_iter().collect(),
        settings: settings(&view.settings),
        members,
        positions: view.cohorts,
        waiting: view.waiting as u64,
        stops: view.blocks,
        prefixes_per_update: sent.prefixes_per_update(),
        sent,
    }
}

/// The settings of an update group as text. It covers every field of `EgressSettings`, which is the
/// key of the group.
fn settings(s: &EgressSettings) -> Vec<String> {
    let EgressSettings {
        kind,
        local_asn,
        hidden_asn,
        as_override,
        remove_private_as,
        cluster_id,
        router_id,
        families,
        four_octet_as,
        max_message,
        prefix_sid,
        aigp,
        role,
        long_lived,
        long_lived_partial,
        next_hop,
        link_local,
        extended_next_hop,
        default_originate,
        add_path,
        client,
        export,
        unsuppress,
    } = s;
    let to = match kind {
        PeerKind::External if *prefix_sid => "to external peers inside the SR domain (prefix-sid)".to_owned(),
        PeerKind::External => "to external peers".to_owned(),
        PeerKind::RouteServerClient if *prefix_sid => {
            "to route server clients inside the SR domain (prefix-sid)".to_owned()
        }
        PeerKind::RouteServerClient => "to route server clients".to_owned(),
        PeerKind::Confederation => "to members of the confederation".to_owned(),
        PeerKind::Internal => "to internal peers".to_owned(),
        PeerKind::Client => format!("to route reflector clients of cluster {cluster_id}"),
        PeerKind::Local(_) => "to no peer".to_owned(),
    };
    let families: Vec<&str> = families.iter().map(AfiSafi::name).collect();
    let own = |a: Option<String>| a.unwrap_or_else(|| "none".into());
    let to = match role {
        Some(role) => format!("{to}, our role {role}"),
        None => to,
    };
    let mut settings = vec![to, format!("from AS {local_asn}, router id {router_id}")];
    if let Some(asn) = hidden_asn {
        settings.push(format!("AS {asn} in paths behind AS {local_asn}"));
    }
    if let Some(RemovePrivateAs { all, replace, peer_asn }) = remove_private_as {
        let what = if *replace { "replaced" } else { "removed" };
        let which = if *all { "from all paths" } else { "from paths without a public one" };
        settings.push(format!("private AS numbers but {peer_asn} {what} {which}"));
    }
    if let Some(asn) = as_override {
        settings.push(format!("AS {asn} in paths overridden"));
    }
    if *long_lived {
        settings.push("long-lived stale routes too".to_owned());
    }
    if *long_lived_partial {
        settings
            .push("long-lived stale routes with no-export and LOCAL_PREF 0 (RFC 9494 section 4.6)".into());
    }
    settings.extend([
        families.join(" "),
        format!("{}-octet AS numbers", if *four_octet_as { 4 } else { 2 }),
        format!("messages of up to {max_message} bytes"),
        match next_hop {
            NextHopRule::Keep => "next hop as received".into(),
            NextHopRule::Own { v4, v6 } => format!(
                "next hop ours: {} for IPv4, {} for IPv6",
                own(v4.map(|a| a.to_string())),
                own(v6.map(|a| a.to_string()))
            ),
            NextHopRule::KeepUnlessOwn { v4, v6 } => format!(
                "next hop as received, ours where the policy says so: {} for IPv4, {} for IPv6",
                own(v4.map(|a| a.to_string())),
                own(v6.map(|a| a.to_string()))
            ),
        },
        format!("export policy {}", export.name()),
    ]);
    settings.extend(unsuppress.as_ref().map(|policy| format!("unsuppress policy {}", policy.name())));
    if *aigp {
        settings.push("AIGP (RFC 7311)".into());
    }
    if let Some(address) = link_local {
        settings.push(format!("our link-local address {address}"));
    }
    if *extended_next_hop {
        settings.push("IPv6 next hops of IPv4 routes (RFC 8950)".into());
    }
    settings.extend(default_originate.as_ref().map(|_| "a default route of its own".into()));
    for condition in export.presence_conditions() {
        let is_so = if condition.holds() { "holds" } else { "does not hold" };
        settings.push(format!("{condition} {is_so}"));
    }
    settings.extend(
        sent_paths(*add_path)
            .into_iter()
            .map(|SentPaths { family, paths }| format!("add-path in {family}: {paths}")),
    );
    if client.is_some() {
        settings.push("the best path for this client alone (best-path-per-client)".into());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_bgp::egress::Counters;
    use ribtide_bgp::peer::{self, FamilySet};
    use ribtide_policy::Policy;

    #[test]
    fn a_group_is_told_in_words_with_the_groups_of_its_members() {
        let view = GroupView {
            worker: 1,
            id: 3,
            settings: EgressSettings {
                kind: PeerKind::Client,
                local_asn: 65001,
                hidden_asn: Some(65009),
                as_override: Some(65020),
                remove_private_as: Some(RemovePrivateAs { all: true, replace: false, peer_asn: 65020 }),
                cluster_id: [10, 0, 0, 9].into(),
                router_id: [10, 0, 0, 1].into(),
                families: FamilySet::UNICAST,
                four_octet_as: true,
                max_message: 65535,
                prefix_sid: false,
                long_lived: false,
                long_lived_partial: false,
                aigp: false,
                role: None,
                default_originate: None,
                next_hop: NextHopRule::Own { v4: Some([192, 0, 2, 1].into()), v6: None },
                link_local: None,
                extended_next_hop: false,
                add_path: peer::SentPaths(ribtide_prefix::ByFamily::only(
                    AfiSafi::Ipv4Unicast,
                    Some(peer::PathSelection::All),
                )),
                client: Some(PeerId(7)),
                export: Policy::accept().into(),
                unsuppress: Some(Policy::accept().into()),
            },
            members: vec![PeerId(1), PeerId(2), PeerId(7)],
            blocked: vec![PeerId(2)],
            detached: vec![PeerId(2)],
            joining: vec![PeerId(1)],
            cohorts: 3,
            waiting: 12,
            blocks: 4,
            counters: Counters { messages: 6, updates: 4, announced: 9, withdrawn: 1, ..Counters::default() },
        };
        let neighbors = BTreeMap::from([
            (PeerId(1), ([192, 0, 2, 1].into(), "b".to_owned())),
            (PeerId(2), ([192, 0, 2, 2].into(), "a".to_owned())),
        ]);
        let group = group(1, "egress-1".into(), view, &neighbors);
        assert_eq!((group.id.as_str(), group.update_thread.as_str()), ("1.3", "egress-1"));
        assert_eq!(group.configured, ["a", "b"]);
        let flags = |m: &GroupMember| [m.full, m.detached, m.joining];
        let members: Vec<_> = group.members.iter().map(flags).collect();
        assert_eq!(members, [[false, false, true], [true, true, false]]);
        assert_eq!((group.positions, group.stops), (3, 4));
        assert_eq!((group.waiting, group.prefixes_per_update), (12, Some(2.5)));
        let as_numbers = ", AS 65009 in paths behind AS 65001, private AS numbers but 65020 removed from all paths, \
                          AS 65020 in paths overridden";
        let settings = group.settings.join(", ");
        assert!(settings.contains(as_numbers), "{settings}");
        assert_eq!(
            settings.replace(as_numbers, ""),
            "to route reflector clients of cluster 10.0.0.9, from AS 65001, router id 10.0.0.1, ipv4-unicast \
             ipv6-unicast, 4-octet AS numbers, messages of up to 65535 bytes, next hop ours: 192.0.2.1 for IPv4, none \
             for IPv6, export policy accept, unsuppress policy accept, add-path in ipv4-unicast: all, the best path for this client alone \
             (best-path-per-client)"
        );
    }
}
