//! What may go wrong with the calls of ribtide.

use ribtide_wire::netlink::Message;
use ribtide_wire::netlink::numbers::{RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWNEXTHOP, RTM_NEWROUTE};
use std::collections::BTreeMap;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Request {
    /// `RTM_NEWROUTE`.
    NewRoute,
    /// `RTM_DELROUTE`.
    DeleteRoute,
    /// `RTM_NEWNEXTHOP`.
    NewObject,
    /// `RTM_DELNEXTHOP`.
    DeleteObject,
    /// `RTM_NEWNEXTHOP` of an object that is there.
    ReplaceObject,
}

impl Request {
    /// All that may be refused.
    pub const ALL: [Request; 4] =
        [Request::NewRoute, Request::DeleteRoute, Request::NewObject, Request::DeleteObject];

    fn of(message: &Message<'_>) -> Option<Request> {
        Some(match message.kind {
            RTM_NEWROUTE => Request::NewRoute,
            RTM_DELROUTE => Request::DeleteRoute,
            RTM_NEWNEXTHOP => Request::NewObject,
            RTM_DELNEXTHOP => Request::DeleteObject,
            _ => return None,
        })
    }
}

/// The next requests of one kind are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Which kind.
    pub request: Request,
    /// The error, positive.
    pub errno: i32,
    /// How many pass before.
    pub after: u32,
    /// How many are refused.
    pub count: u32,
}

/// The faults that are due.
#[derive(Default, Debug)]
pub struct Faults {
    refusals: Vec<Refusal>,
    /// System calls with requests whose replies are lost, all but some.
    pub lost_replies: u32,
    /// System calls with requests that fail.
    pub refused_sends: u32,
    /// Dumps that are marked as inconsistent.
    pub interrupted_dumps: u32,
    /// Dumps that end with an error.
    pub refused_dumps: u32,
    /// System calls that fail with an error that no caller knows.
    pub broken_sockets: u32,
    /// Deliberate: requests of this kind succeed and change nothing.
    pub ignored: Option<Request>,
    /// Deliberate: notifications of other programs' changes are lost, and no reader learns of it.
    pub silent: bool,
    /// Messages of each buffer of a dump; 0 for many.
    pub page: usize,
    /// How often each took effect.
    pub effects: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// Refuses requests to come.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.refusals.push(refusal);
    }

    /// Ends all faults but deliberate ones.
    pub fn end(&mut self) {
        let Faults { ignored, silent, page, ref mut effects, .. } = *self;
        let effects = std::mem::take(effects);
        *self = Faults { ignored, silent, page, effects, ..Faults::default() };
    }

    /// Notes that a fault took effect.
    pub fn took_effect(&mut self, kind: &'static str) {
        *self.effects.entry(kind).or_default() += 1;
    }

    /// The error of a request, if it is refused.
    pub(super) fn refused(&mut self, message: &Message<'_>) -> Option<i32> {
        let request = Request::of(message)?;
        let at = self.refusals.iter().position(|refusal| refusal.request == request)?;
        let refusal = &mut self.refusals[at];
        if refusal.after > 0 {
            refusal.after -= 1;
            return None;
        }
        refusal.count -= 1;
        let errno = refusal.errno;
        if refusal.count == 0 {
            self.refusals.remove(at);
        }
        self.took_effect(match (request, errno) {
            (Request::NewRoute, libc::EINVAL) => "route refused: EINVAL",
            (Request::NewRoute, libc::EBUSY) => "route refused: EBUSY",
            (Request::NewRoute, _) => "route refused: no memory",
            (Request::DeleteRoute, _) => "deletion of a route refused",
            (Request::NewObject, libc::EINVAL) => "next-hop object refused: EINVAL",
            (Request::NewObject, libc::EBUSY) => "next-hop object refused: EBUSY",
            (Request::NewObject | Request::ReplaceObject, _) => "next-hop object refused: no memory",
            (Request::DeleteObject, _) => "deletion of a next-hop object refused",
        });
        Some(errno)
    }

    /// Whether a request is ignored. `replaces`: it is one of an object that is there.
    pub(super) fn is_ignored(&self, message: &Message<'_>, replaces: bool) -> bool {
        let request = if replaces { Some(Request::ReplaceObject) } else { Request::of(message) };
        self.ignored.is_some() && request == self.ignored
    }

    /// How many faults took effect.
    pub fn total(&self) -> u64 {
        self.effects.values().sum()
    }

    pub(super) fn interrupted_dump(&mut self) -> bool {
        self.due("dump inconsistent", |faults| &mut faults.interrupted_dumps)
    }

    pub(super) fn refused_dump(&mut self) -> Option<i32> {
        self.due("dump refused", |faults| &mut faults.refused_dumps).then_some(libc::EBUSY)
    }

    pub(super) fn lost_reply(&mut self) -> bool {
        self.due("replies lost", |faults| &mut faults.lost_replies)
    }

    /// The error of a system call that sends.
    pub(super) fn refused_send(&mut self) -> Option<i32> {
        if self.due("request not sent", |faults| &mut faults.refused_sends) {
            return Some(libc::ENOBUFS);
        }
        self.due("socket fails", |faults| &mut faults.broken_sockets).then_some(libc::EIO)
    }

    fn due(&mut self, kind: &'static str, count: impl Fn(&mut Faults) -> &mut u32) -> bool {
        let left = count(self);
        if *left == 0 {
            return false;
        }
        *left -= 1;
        self.took_effect(kind);
        true
    }
}
