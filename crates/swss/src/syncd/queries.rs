//! Requests that change no object: most are the chip's to answer, and the counters that are polled
//! are syncd's.

use super::fdb::Flush;
use super::{Syncd, SyncdOut};
use crate::row::Name;
use crate::sai::{CounterOp, Query, QueryReply, Sai, SaiReply, Status};
use std::collections::{BTreeMap, BTreeSet};

/// The counters that orchagent wants polled: groups with their settings, and their members. The
/// virtual switch counts no packets, so nothing is polled.
#[derive(Default, Debug)]
pub(super) struct Polls {
    groups: BTreeMap<Name, BTreeMap<Name, Name>>,
    /// The keys of members, `GROUP:OBJECT`.
    members: BTreeSet<Name>,
}

impl<S: Sai> Syncd<S> {
    /// Answers a query.
    pub(super) fn query(&mut self, id: u64, query: Query, out: &mut SyncdOut) -> SaiReply {
        let reply = match query {
            Query::Poll { op, key, fields } => QueryReply::of(self.polls.change(op, key, fields)),
            Query::Counters { object, id: vid, counters, clear } => match self.rid(vid) {
                Some(id) => self.chip.query(&Query::Counters { object, id, counters, clear }),
                None => QueryReply::of(Status::InvalidObjectId),
            },
            Query::FlushFdb { attrs } => match super::view::translated(&attrs, &|vid| self.rid(vid)) {
                Some(in_chip) => {
                    let reply = self.chip.query(&Query::FlushFdb { attrs: in_chip });
                    if reply.status.is_success() {
                        self.forget_flushed(&Flush::of_request(&attrs), out);
                    }
                    reply
                }
                None => QueryReply::of(Status::InvalidObjectId),
            },
            query => self.chip.query(&query),
        };
        SaiReply { values: reply.fields, ..SaiReply::one(id, reply.status) }
    }
}

impl Polls {
    fn change(&mut self, op: CounterOp, key: Name, fields: Vec<(Name, Name)>) -> Status {
        match op {
            CounterOp::SetGroup => self.groups.entry(key).or_default().extend(fields),
            CounterOp::DelGroup => drop(self.groups.remove(&key)),
            CounterOp::StartPoll => drop(self.members.insert(key)),
            CounterOp::StopPoll => drop(self.members.remove(&key)),
        }
        Status::Success
    }
}
