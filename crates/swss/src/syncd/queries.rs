//! Requests that change no object: most are the chip's to answer, and the counters that are polled
//! are syncd's.

use super::fdb::Flush;
use super::{PollChange, Syncd, SyncdOut};
use crate::sai::{Query, QueryReply, Sai, SaiReply, Status};

impl<S: Sai> Syncd<S> {
    /// Answers a query.
    pub(super) fn query(&mut self, id: u64, query: Query, out: &mut SyncdOut) -> SaiReply {
        let reply = match query {
            Query::Poll { op, key, fields } => {
                let change = PollChange::Request { op, key, fields };
                let status = self.polls.change(&change);
                if status.is_success() {
                    out.polls.push(change);
                }
                QueryReply::of(status)
            }
            Query::Counters { object, id: vid, counters, mode } => match self.rid(vid) {
                Some(id) => self.chip.query(&Query::Counters { object, id, counters, mode }),
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
