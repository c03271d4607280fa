//! Netlink, route family (rtnetlink(7)): the messages of Linux routing, which FPM carries over TCP.
//!
//! [`messages`] walks the messages of one buffer, [`Content::decode`] reads one, and each typed form
//! ([`Route`], [`LabelRoute`], [`NextHop`]) writes itself back. A typed form borrows what is of variable length, so decoding
//! allocates nothing; everything is checked in `decode`, so that the iterators inside cannot fail.
//!
//! Integers are in the machine's byte order and addresses in the network's, as the kernel has it.

mod attr;
mod build;
mod content;
mod hop;
mod label;
mod link;
mod message;
mod neighbor;
mod nexthop;
pub mod numbers;
mod reply;
mod request;
mod route;
mod sonic;
mod weight;

#[cfg(test)]
mod tests;

pub use attr::{Attr, Attrs};
pub use build::TooLong;
pub(crate) use build::patch;
pub use content::Content;
pub use hop::{Hop, Hops, Via};
pub use label::{LABEL_MAX, LabelRoute, Labels};
pub use link::{Address, Link, write_link_change};
pub use message::{Ack, Message, Messages, messages, write_done, write_multipart};
pub use neighbor::Neighbor;
pub use nexthop::{Forward, Member, Members, NextHop, write_next_hop_delete};
pub use reply::NoReply;
pub(crate) use reply::{write_confirmation, write_echo, write_rebuilt};
pub use request::{
    dump_addresses, dump_interface_routes, dump_links, dump_neighbors, dump_next_hops, dump_routes,
    dump_table,
};
pub use route::{NextHops, Route, RouteKind};
pub use sonic::{LocalSid, PicContext, Srv6, Vxlan};
pub use weight::scale_weight;

/// The bytes are not a valid netlink message. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub(crate) &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed netlink message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}
