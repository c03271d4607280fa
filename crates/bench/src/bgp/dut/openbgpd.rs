//! OpenBGPD.

use super::super::topology::{ASN, Neighbor};
use super::{Error, Site};
use ribtide_prefix::Afi;
use std::process::Command;

pub(super) fn commands(site: &Site<'_>) -> Result<Vec<Command>, Error> {
    let path = site.write("bgpd.conf", &configuration(site))?;
    // It refuses a configuration that others can read or write.
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).map_err(|source| Error::File { path: path.clone(), source })?;
    // Its processes chroot into this folder, which the system's service manager makes elsewhere.
    let jail = std::path::PathBuf::from("/run/openbgpd");
    std::fs::create_dir_all(&jail).map_err(|source| Error::File { path: jail, source })?;
    if let Some(address) = site.topology.router6() {
        // Version 7.7 takes the machine's first IPv6 address for that of the session's interface.
        site.place.ip(&format!("address del ::1/128 dev lo\naddress add {address}/128 dev lo nodad"))?;
    }
    let mut command = site.place.command("/usr/sbin/bgpd");
    command.arg("-d").arg("-f").arg(path);
    Ok(vec![command])
}

fn configuration(site: &Site<'_>) -> String {
    let topology = site.topology;
    let router = topology.router;
    let (client, own_next_hop) = if topology.reflector {
        ("  route-reflector\n", "")
    } else {
        ("", "match to group \"receivers\" set nexthop self\n")
    };
    let family = match topology.family {
        Afi::Ipv4 => "IPv4",
        Afi::Ipv6 => "IPv6",
    };
    let group = |name: &str, more: &str, neighbors: &[Neighbor]| {
        let one = |n: &Neighbor| format!("  neighbor {} {{ remote-as {} }}\n", n.address, n.asn);
        let neighbors: String = neighbors.iter().map(one).collect();
        format!("group \"{name}\" {{\n  passive\n  announce {family} unicast\n{client}{more}{neighbors}}}\n")
    };
    format!(
        "AS {ASN}\nrouter-id {router}\nfib-update no\nlisten on {router}\nsocket \"{}\"\n{}{}\
         allow from group \"senders\"\nallow to group \"receivers\"\n{own_next_hop}",
        site.folder.join("bgpd.sock").display(),
        group("senders", "  export none\n", &topology.senders),
        group("receivers", "", &topology.receivers),
    )
}
