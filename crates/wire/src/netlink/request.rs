//! Dump requests. The reply is a series of messages that ends with `NLMSG_DONE`.
//!
//! The filters work on a socket with strict checking (`NETLINK_GET_STRICT_CHK`); without it the kernel sends all,
//! so readers compare table and protocol in any case.

use super::build::Builder;
use super::numbers::*;
use super::route::family;
use ribtide_prefix::Afi;

const DUMP: u16 = NLM_F_REQUEST | NLM_F_DUMP;

/// Appends a request for all interfaces.
pub fn dump_links(out: &mut Vec<u8>, seq: u32) {
    Builder::new(out, RTM_GETLINK, DUMP, seq, &[0; 16]).finish_short();
}

/// Appends a request for all addresses of both families.
pub fn dump_addresses(out: &mut Vec<u8>, seq: u32) {
    Builder::new(out, RTM_GETADDR, DUMP, seq, &[0; 8]).finish_short();
}

/// Appends a request for all neighbours of both families; the kernel has no filter by protocol.
pub fn dump_neighbors(out: &mut Vec<u8>, seq: u32) {
    Builder::new(out, RTM_GETNEIGH, DUMP, seq, &[0; 12]).finish_short();
}

/// Appends a request for the routes of one family that `protocol` put into `table`.
pub fn dump_routes(out: &mut Vec<u8>, seq: u32, afi: Afi, table: u32, protocol: u8) {
    let fixed = [family(afi), 0, 0, 0, RT_TABLE_COMPAT, protocol, 0, 0, 0, 0, 0, 0];
    let mut b = Builder::new(out, RTM_GETROUTE, DUMP, seq, &fixed);
    b.attr_u32(RTA_TABLE, table);
    b.finish_short();
}

/// Appends a request for the unicast routes of one family by an interface, in every table.
pub fn dump_interface_routes(out: &mut Vec<u8>, seq: u32, afi: Afi, ifindex: u32) {
    let fixed = [family(afi), 0, 0, 0, 0, 0, 0, RTN_UNICAST, 0, 0, 0, 0];
    let mut b = Builder::new(out, RTM_GETROUTE, DUMP, seq, &fixed);
    b.attr_u32(RTA_OIF, ifindex);
    b.finish_short();
}

/// Appends a request for all routes of one family in `table`, of any program.
pub fn dump_table(out: &mut Vec<u8>, seq: u32, afi: Afi, table: u32) {
    dump_routes(out, seq, afi, table, 0);
}

/// Appends a request for all next-hop objects; the kernel has no filter by protocol.
pub fn dump_next_hops(out: &mut Vec<u8>, seq: u32) {
    Builder::new(out, RTM_GETNEXTHOP, DUMP, seq, &[0; 8]).finish_short();
}
