//! FRR: bgpd, and zebra for the reachability of next hops. With `bgpd -n` nothing is installed.

use super::super::topology::{ASN, Neighbor};
use super::{Error, Site};
use nix::unistd::{Gid, Uid, User, chown};
use ribtide_prefix::AfiSafi;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

pub(super) fn commands(site: &Site<'_>) -> Result<Vec<Command>, Error> {
    // The daemons drop root, and write sockets and PID files here.
    let user = User::from_name("frr").ok().flatten();
    let (uid, gid) = user.map_or((Uid::current(), Gid::current()), |u| (u.uid, u.gid));
    let own = |path: &Path| {
        chown(path, Some(uid), Some(gid)).map_err(|e| Error::File { path: path.into(), source: e.into() })
    };
    own(site.folder)?;
    let daemons = [("zebra", String::new(), &[][..]), ("bgpd", configuration(site), &["-n"][..])];
    let mut commands = Vec::new();
    for (name, text, arguments) in daemons {
        let path = site.write(&format!("{name}.conf"), &text)?;
        own(&path)?;
        let mut command = site.place.command(&format!("/usr/lib/frr/{name}"));
        command.arg("-f").arg(path).arg("-i").arg(site.folder.join(format!("{name}.pid")));
        command.arg("-z").arg(site.folder.join("zserv.api")).arg("--vty_socket").arg(site.folder);
        command.args(["-P", "0", "--log", "stdout", "--log-level", "warning"]).args(arguments);
        commands.push(command);
    }
    Ok(commands)
}

fn configuration(site: &Site<'_>) -> String {
    let topology = site.topology;
    let mut text = format!(
        "hostname bgpd\nroute-map nothing deny 10\nrouter bgp {ASN}\n bgp router-id {}\n\
         no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n bgp bestpath compare-routerid\n",
        topology.router
    );
    // Writing to a string cannot fail.
    for group in ["senders", "receivers"] {
        let _ = writeln!(text, " neighbor {group} peer-group\n neighbor {group} passive");
    }
    for (group, neighbors) in [("senders", &topology.senders), ("receivers", &topology.receivers)] {
        for Neighbor { address, asn, .. } in neighbors {
            let _ =
                writeln!(text, " neighbor {address} remote-as {asn}\n neighbor {address} peer-group {group}");
        }
    }
    let _ = writeln!(text, " address-family {}", AfiSafi::unicast(topology.family).name().replace('-', " "));
    text += "  maximum-paths 1\n  neighbor senders activate\n  neighbor receivers activate\n  \
             neighbor senders route-map nothing out\n  \
             neighbor receivers route-map nothing in\n";
    text += if topology.reflector {
        "  neighbor senders route-reflector-client\n  neighbor receivers route-reflector-client\n"
    } else {
        "  neighbor receivers next-hop-self\n"
    };
    text + " exit-address-family\n"
}
