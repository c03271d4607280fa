//! Counters that orchagent wants polled (SONiC's flex counters): which, how often, and their values.
//!
//! orchagent sets groups (`set_counter_group`: the interval, and whether counters are cleared) and
//! their objects (`start_poll`: the names of counters). The caller has the clock and the databases.

use super::Syncd;
use crate::row::Name;
use crate::sai::text::read_oid;
use crate::sai::{Attr, CounterOp, CountersMode, ObjectType, Oid, Query, QueryReply, Sai, Status};
use std::collections::BTreeMap;

/// The end of the names of fields that list counters, such as `PORT_COUNTER_ID_LIST`.
const LIST: &str = "_COUNTER_ID_LIST";
/// The end of the names of fields that list scripts of Redis, such as `PORT_PLUGIN_LIST`.
const SCRIPTS: &str = "_PLUGIN_LIST";

/// A script of Redis that runs after a poll, over the polled objects: SONiC computes rates so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterScript {
    /// Its SHA-1, by which Redis knows it (EVALSHA).
    pub sha: Name,
    /// The objects.
    pub objects: Vec<Oid>,
    /// The interval of the group, in milliseconds.
    pub interval_ms: u64,
}

/// What a poll gives.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Polled {
    /// The values of counters of objects, for COUNTERS_DB.
    pub rows: Vec<(Oid, Vec<(Name, Name)>)>,
    /// The scripts of groups that were polled to their end, after their rows.
    pub scripts: Vec<CounterScript>,
}

impl Polled {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.scripts.is_empty()
    }
}

/// A change of what is polled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollChange {
    /// A new orchagent begins: nothing is polled.
    Reset,
    /// A request of orchagent that succeeded.
    Request {
        /// The operation.
        op: CounterOp,
        /// The group; of objects `GROUP:OBJECT`, with commas between several objects.
        key: Name,
        /// Settings of the group, or the lists of counters of the objects.
        fields: Vec<(Name, Name)>,
    },
}

/// A member of a group.
#[derive(Debug)]
struct Member {
    counters: Vec<Name>,
    /// Whether the chip has read all of them at once: else those that it does not have are left out.
    read: bool,
}

/// A group of counters.
#[derive(Default, Debug)]
struct Group {
    fields: BTreeMap<Name, Name>,
    members: BTreeMap<Oid, Member>,
    /// When it is polled next, and the member to go on with.
    due_ms: u64,
    next: Option<Oid>,
}

impl Group {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| &**value)
    }

    /// The interval in milliseconds; `None` while the group is not polled.
    fn interval_ms(&self) -> Option<u64> {
        let enabled = self.field("FLEX_COUNTER_STATUS") == Some("enable") && !self.members.is_empty();
        let interval = self.field("POLL_INTERVAL").and_then(|interval| interval.parse().ok());
        interval.filter(|interval| enabled && *interval > 0)
    }

    fn scripts(&self, interval_ms: u64) -> impl Iterator<Item = CounterScript> + '_ {
        let lists = self.fields.iter().filter(|(name, _)| name.ends_with(SCRIPTS));
        let shas = lists.flat_map(|(_, list)| list.split(',')).filter(|sha| !sha.is_empty());
        let objects: Vec<Oid> = self.members.keys().copied().collect();
        shas.map(move |sha| CounterScript { sha: sha.into(), objects: objects.clone(), interval_ms })
    }
}

/// The groups.
#[derive(Default, Debug)]
pub(super) struct Polls(BTreeMap<Name, Group>);

impl Polls {
    /// Takes in a change. The status is the reply to its request.
    pub(super) fn change(&mut self, change: &PollChange) -> Status {
        let (op, key, fields) = match change {
            PollChange::Reset => {
                self.0.clear();
                return Status::Success;
            }
            PollChange::Request { op, key, fields } => (*op, key, fields),
        };
        match op {
            CounterOp::SetGroup => {
                self.0.entry(key.clone()).or_default().fields.extend(fields.iter().cloned());
            }
            CounterOp::DelGroup => drop(self.0.remove(key)),
            CounterOp::StartPoll | CounterOp::StopPoll => {
                let Some((group, id)) = key.split_once(':') else { return Status::InvalidParameter };
                let group = self.0.entry(group.into()).or_default();
                // sairedis sends the settings of many objects in one request.
                for id in id.split(',') {
                    let Some(oid) = read_oid(id) else { return Status::InvalidParameter };
                    if op == CounterOp::StopPoll {
                        group.members.remove(&oid);
                        continue;
                    }
                    let lists = fields.iter().filter(|(name, _)| name.ends_with(LIST));
                    let counters =
                        lists.flat_map(|(_, list)| list.split(',')).filter(|name| !name.is_empty());
                    let counters: Vec<Name> = counters.map(Into::into).collect();
                    if !counters.is_empty() {
                        group.members.insert(oid, Member { counters, read: false });
                    }
                }
            }
        }
        Status::Success
    }
}

impl<S: Sai> Syncd<S> {
    /// Takes in a setting that an earlier syncd kept.
    pub fn restore_poll(&mut self, change: &PollChange) {
        self.polls.change(change);
    }

    /// Polls counters of at most `max` objects whose groups are due at `now_ms`. Returns when to call it
    /// again; `None`: not before the settings change.
    pub fn poll_counters(&mut self, now_ms: u64, max: usize, out: &mut Polled) -> Option<u64> {
        let mut polls = std::mem::take(&mut self.polls);
        let (mut left, mut again) = (max, None::<u64>);
        for group in polls.0.values_mut() {
            let Some(interval_ms) = group.interval_ms() else { continue };
            if group.due_ms <= now_ms && left > 0 {
                left -= self.poll_group(group, left, out);
                if group.next.is_none() {
                    out.scripts.extend(group.scripts(interval_ms));
                    group.due_ms = now_ms + interval_ms;
                }
            }
            again = Some(again.map_or(group.due_ms, |again| again.min(group.due_ms)));
        }
        self.polls = polls;
        again
    }

    /// Polls at most `max` members of a group. Returns how many.
    fn poll_group(&mut self, group: &mut Group, max: usize, out: &mut Polled) -> usize {
        let mode = match group.field("STATS_MODE") {
            Some("STATS_MODE_READ_AND_CLEAR") => CountersMode::ReadAndClear,
            _ => CountersMode::Read,
        };
        let from = group.next.unwrap_or(Oid::NULL);
        let oids: Vec<Oid> = group.members.range(from..).map(|(oid, _)| *oid).take(max + 1).collect();
        group.next = oids.get(max).copied();
        let mut count = 0;
        for vid in oids.into_iter().take(max) {
            count += 1;
            // An object that is not there yet, or no longer, has no row.
            let (Some(rid), Some(object)) = (self.rid(vid), vid.object_type()) else { continue };
            let Some(member) = group.members.get_mut(&vid) else { continue };
            let values = self.read_counters(object, rid, member, mode);
            if !values.is_empty() {
                out.rows.push((vid, values));
            }
        }
        count
    }

    /// Reads counters of an object. Those that the chip does not have are left out from then on.
    fn read_counters(
        &mut self,
        object: ObjectType,
        id: Oid,
        member: &mut Member,
        mode: CountersMode,
    ) -> Vec<(Name, Name)> {
        let reply = self.counters(object, id, member.counters.clone(), mode);
        if reply.status.is_success() || member.read {
            member.read |= reply.status.is_success();
            return values(&reply);
        }
        let chip_has = |name: &Name| {
            self.counters(object, id, vec![name.clone()], CountersMode::Read).status.is_success()
        };
        let counters: Vec<Name> = member.counters.drain(..).filter(chip_has).collect();
        member.counters = counters;
        member.read = true;
        match member.counters.is_empty() {
            true => Vec::new(),
            false => values(&self.counters(object, id, member.counters.clone(), mode)),
        }
    }

    fn counters(
        &mut self,
        object: ObjectType,
        id: Oid,
        counters: Vec<Name>,
        mode: CountersMode,
    ) -> QueryReply {
        self.chip.query(&Query::Counters { object, id, counters, mode })
    }
}

fn values(reply: &QueryReply) -> Vec<(Name, Name)> {
    let value = |attr: &Attr| (attr.name().into(), attr.value().into());
    match reply.status.is_success() {
        true => reply.fields.iter().map(value).collect(),
        false => Vec::new(),
    }
}
