//! A VRF: a device of the kernel to which a routing table and interfaces belong.

use super::socket::Socket;
use ribtide_rib::IfIndex;
use ribtide_wire::netlink::{Content, Link, dump_links};

/// What the kernel knows under a name.
#[derive(Default)]
enum Found {
    #[default]
    Nothing,
    OtherDevice,
    Vrf(IfIndex, u32),
}

/// The number and the table of the VRF device `name`.
///
/// # Errors
/// A sentence: there is none, or this kernel cannot have any.
pub(super) fn find(name: &str) -> Result<(IfIndex, u32), String> {
    let links = |found: &mut Found, content: Content<'_>| {
        if let Content::NewLink(link) = content
            && link.name == name
        {
            *found = what(&link);
        }
    };
    let found = Socket::open().and_then(|mut socket| socket.dump(dump_links, links));
    match found.map_err(|e| format!("the kernel's interfaces cannot be read: {e}"))? {
        Found::Vrf(ifindex, table) => Ok((ifindex, table)),
        Found::OtherDevice => Err(format!(
            "fib.kernel.vrf: {name} is an interface, but not a VRF; name a device of `ip link show type vrf`"
        )),
        Found::Nothing => Err(format!(
            "fib.kernel.vrf: there is no VRF device {name} in this network namespace; `ip link add {name} type vrf table 100` \
             makes one, if the kernel was built with VRFs (CONFIG_NET_VRF). Without them, fib.kernel.table = 100 installs \
             into that table all the same, and `ip rule` says which packets use it"
        )),
    }
}

fn what(link: &Link<'_>) -> Found {
    match link.vrf_table.filter(|_| link.kind == Some("vrf")) {
        Some(table) => Found::Vrf(link.index, table),
        None => Found::OtherDevice,
    }
}
