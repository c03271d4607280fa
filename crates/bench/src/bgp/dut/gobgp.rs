//! GoBGP.

use super::super::topology::{ASN, Neighbor};
use super::{Error, Site};
use ribtide_prefix::AfiSafi;
use std::process::Command;

pub(super) fn commands(site: &Site<'_>) -> Result<Vec<Command>, Error> {
    let path = site.write("gobgpd.toml", &configuration(site))?;
    let mut command = site.place.command("gobgpd");
    command.arg("-f").arg(path);
    command.args(["--api-hosts", "127.0.0.1:50051", "--log-level=warn", "--pprof-disable"]);
    Ok(vec![command])
}

fn configuration(site: &Site<'_>) -> String {
    let topology = site.topology;
    let router = topology.router;
    let client = if topology.reflector {
        format!(
            "  [neighbors.route-reflector.config]\n    route-reflector-client = true\n    \
             route-reflector-cluster-id = \"{router}\"\n"
        )
    } else {
        String::new()
    };
    let neighbor = |n: &Neighbor| {
        format!(
            "[[neighbors]]\n  [neighbors.config]\n    neighbor-address = \"{}\"\n    peer-as = {}\n  \
             [neighbors.transport.config]\n    passive-mode = true\n    local-address = \"{router}\"\n  \
             [neighbors.timers.config]\n    idle-hold-time-after-reset = 1\n{client}  \
             [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n      afi-safi-name = \"{}\"\n",
            n.address,
            n.asn,
            AfiSafi::unicast(topology.family).name()
        )
    };
    // Without this, its own next hop is the address of the session, which is IPv4.
    let (policy, own_next_hop) = match topology.router6().filter(|_| !topology.reflector) {
        None => ("", String::new()),
        Some(address) => (
            ", \"own-next-hop\"",
            format!(
                "[[policy-definitions]]\n  name = \"own-next-hop\"\n  [[policy-definitions.statements]]\n    \
                 name = \"set\"\n    [policy-definitions.statements.actions.bgp-actions]\n      \
                 set-next-hop = \"{address}\"\n"
            ),
        ),
    };
    let senders: Vec<String> = topology.senders.iter().map(|n| format!("\"{}\"", n.address)).collect();
    let neighbors: String = topology.neighbors().map(neighbor).collect();
    format!(
        "[global.config]\n  as = {ASN}\n  router-id = \"{router}\"\n  local-address-list = [\"{router}\"]\n\
         [global.route-selection-options.config]\n  external-compare-router-id = true\n\
         [global.apply-policy.config]\n  export-policy-list = [\"nothing-to-senders\"{policy}]\n  \
         default-export-policy = \"accept-route\"\n\
         [[defined-sets.neighbor-sets]]\n  neighbor-set-name = \"senders\"\n  neighbor-info-list = [{}]\n\
         [[policy-definitions]]\n  name = \"nothing-to-senders\"\n  [[policy-definitions.statements]]\n    \
         name = \"reject\"\n    [policy-definitions.statements.conditions.match-neighbor-set]\n      \
         neighbor-set = \"senders\"\n    [policy-definitions.statements.actions]\n      \
         route-disposition = \"reject-route\"\n{own_next_hop}{neighbors}",
        senders.join(", ")
    )
}
