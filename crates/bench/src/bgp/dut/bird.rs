//! BIRD.

use super::super::topology::ASN;
use super::{Error, Site};
use ribtide_prefix::Afi;
use std::process::Command;

pub(super) fn commands(site: &Site<'_>) -> Result<Vec<Command>, Error> {
    let path = site.write("bird.conf", &configuration(site))?;
    let mut command = site.place.command("bird");
    command.arg("-f").arg("-c").arg(path);
    command.arg("-s").arg(site.folder.join("bird.ctl")).arg("-P").arg(site.folder.join("bird.pid"));
    Ok(vec![command])
}

fn configuration(site: &Site<'_>) -> String {
    let topology = site.topology;
    let router = topology.router;
    let (client, own_next_hop) =
        if topology.reflector { ("rr client; ", "") } else { ("", " next hop self;") };
    let neighbors = |template: &str, neighbors: &[super::super::topology::Neighbor]| {
        let one = |(i, n): (usize, &super::super::topology::Neighbor)| {
            format!("protocol bgp {template}{i} from {template} {{ neighbor {} as {}; }}\n", n.address, n.asn)
        };
        neighbors.iter().enumerate().map(one).collect::<String>()
    };
    let channel = match topology.family {
        Afi::Ipv4 => "ipv4",
        Afi::Ipv6 => "ipv6",
    };
    let template = format!("local {router} as {ASN}; direct; passive; error wait time 1,1; {client}");
    format!(
        "router id {router};\nlog stderr {{ warning, error, fatal, bug }};\nprotocol device {{}}\n\
         template bgp sender {{ {template} {channel} {{ import all; export none; }}; }}\n\
         template bgp receiver {{ {template} {channel} {{ import none; export all;{own_next_hop} }}; }}\n{}{}",
        neighbors("sender", &topology.senders),
        neighbors("receiver", &topology.receivers),
    )
}
