//! The content of a message by its type.

use super::numbers::*;
use super::{
    Ack, Address, LabelRoute, Link, LocalSid, Malformed, Message, Neighbor, NextHop, PicContext, Route,
};

/// A decoded message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// The result of a request (`NLMSG_ERROR`; errno 0 is an acknowledgement).
    Ack(Ack<'a>),
    /// An empty message of a series (`NLMSG_NOOP` with `NLM_F_MULTI`).
    Multipart {
        /// The series is acknowledged (`NLM_F_ACK`).
        ack: bool,
    },
    /// The end of a dump.
    Done(Ack<'a>),
    /// Adds or replaces a route.
    NewRoute(Route<'a>),
    /// Deletes a route.
    DelRoute(Route<'a>),
    /// Adds or replaces the route of a label.
    NewLabelRoute(LabelRoute<'a>),
    /// Deletes the route of a label.
    DelLabelRoute(LabelRoute<'a>),
    /// Adds or replaces a next-hop object.
    NewNextHop(NextHop<'a>),
    /// Deletes the next-hop object with this id.
    DelNextHop(u32),
    /// Adds or replaces a local SID of SRv6.
    NewLocalSid(LocalSid<'a>),
    /// Deletes a local SID.
    DelLocalSid(LocalSid<'a>),
    /// Adds or replaces a PIC context.
    NewPicContext(PicContext<'a>),
    /// Deletes the PIC context with this id.
    DelPicContext(u32),
    /// Adds or replaces a route of an SRv6 VPN: its encapsulation names a PIC context and a next-hop object.
    NewVpnRoute(Route<'a>),
    /// Deletes a route of an SRv6 VPN.
    DelVpnRoute(Route<'a>),
    /// An interface appeared or changed.
    NewLink(Link<'a>),
    /// An interface is gone.
    DelLink(Link<'a>),
    /// An address was added or changed.
    NewAddress(Address),
    /// An address is gone.
    DelAddress(Address),
    /// A neighbour was added or changed.
    NewNeighbor(Neighbor),
    /// A neighbour is gone.
    DelNeighbor(Neighbor),
    /// A message that is not decoded: of another type, or of another family.
    Other(u16),
}

impl<'a> Content<'a> {
    /// Reads a message. An error concerns this message only; the next one in the buffer is still good.
    pub fn decode(message: &Message<'a>) -> Result<Self, Malformed> {
        let other = Content::Other(message.kind);
        Ok(match message.kind {
            NLMSG_ERROR => Content::Ack(Ack::decode_error(message)?),
            NLMSG_NOOP if message.flags & NLM_F_MULTI != 0 => {
                Content::Multipart { ack: message.flags & NLM_F_ACK != 0 }
            }
            NLMSG_DONE => Content::Done(Ack::decode_done(message)?),
            RTM_NEWROUTE => match Route::decode(message)? {
                Some(route) => Content::NewRoute(route),
                None => LabelRoute::decode(message)?.map_or(other, Content::NewLabelRoute),
            },
            RTM_DELROUTE => match Route::decode(message)? {
                Some(route) => Content::DelRoute(route),
                None => LabelRoute::decode(message)?.map_or(other, Content::DelLabelRoute),
            },
            RTM_NEWNEXTHOP => Content::NewNextHop(NextHop::decode(message)?),
            RTM_DELNEXTHOP => Content::DelNextHop(NextHop::decode(message)?.id),
            RTM_NEWSRV6LOCALSID => Content::NewLocalSid(LocalSid::decode(message)?),
            RTM_DELSRV6LOCALSID => Content::DelLocalSid(LocalSid::decode(message)?),
            RTM_NEWPICCONTEXT => Content::NewPicContext(PicContext::decode(message)?),
            RTM_DELPICCONTEXT => Content::DelPicContext(NextHop::decode(message)?.id),
            RTM_NEWSRV6VPNROUTE => Route::decode(message)?.map_or(other, Content::NewVpnRoute),
            RTM_DELSRV6VPNROUTE => Route::decode(message)?.map_or(other, Content::DelVpnRoute),
            RTM_NEWLINK => Link::decode(message)?.map_or(other, Content::NewLink),
            RTM_DELLINK => Link::decode(message)?.map_or(other, Content::DelLink),
            RTM_NEWADDR => Address::decode(message)?.map_or(other, Content::NewAddress),
            RTM_DELADDR => Address::decode(message)?.map_or(other, Content::DelAddress),
            RTM_NEWNEIGH => Neighbor::decode(message)?.map_or(other, Content::NewNeighbor),
            RTM_DELNEIGH => Neighbor::decode(message)?.map_or(other, Content::DelNeighbor),
            _ => other,
        })
    }
}
