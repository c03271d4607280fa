//! The virtual switch behind a seam in which requests fail.

use ribtide_swss::sai::notification::PortState;
use ribtide_swss::sai::{
    Attr, Attrs, Audit, ErrorMode, Item, ObjectId, ObjectType, Oid, Query, QueryReply, RawText, Sai, Status,
    Verb,
};
use ribtide_vswitch::VirtualSwitch;

/// A refusal of the next requests of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Of which objects.
    pub object: ObjectType,
    /// Which operation.
    pub verb: Verb,
    /// The status.
    pub status: Status,
    /// How many are refused.
    pub count: u32,
}

/// The chip.
pub struct Chip {
    pub(crate) switch: VirtualSwitch,
    refusals: Vec<Refusal>,
    /// A deliberate fault: removals of routes succeed and change nothing.
    pub(crate) keeps_routes: bool,
    /// A deliberate fault: changes of routes succeed and change nothing.
    pub(crate) keeps_next_hops: bool,
    /// A deliberate fault: refusals of routes are reported as successes.
    pub(crate) lies: bool,
}

impl Chip {
    /// A chip that refuses nothing.
    pub fn new(switch: VirtualSwitch) -> Chip {
        Chip { switch, refusals: Vec::new(), keeps_routes: false, keeps_next_hops: false, lies: false }
    }

    /// Another chip, with the same deliberate faults.
    pub(crate) fn another(&self, switch: VirtualSwitch) -> Chip {
        Chip { switch, refusals: Vec::new(), ..*self }
    }

    /// Refuses the next requests of one kind.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.refusals.push(refusal);
    }

    /// Ends all refusals.
    pub(crate) fn accept_all(&mut self) {
        self.refusals.clear();
    }

    fn refusal(&mut self, object: ObjectType, verb: Verb) -> Option<Status> {
        let at = self.refusals.iter().position(|r| (r.object, r.verb) == (object, verb))?;
        let refusal = &mut self.refusals[at];
        let status = refusal.status;
        refusal.count -= 1;
        if refusal.count == 0 {
            self.refusals.remove(at);
        }
        Some(if self.lies && object == ObjectType::RouteEntry { Status::Success } else { status })
    }
}

impl Sai for Chip {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        let ignored =
            (self.keeps_routes && verb == Verb::Remove) || (self.keeps_next_hops && verb == Verb::Set);
        if ignored && object == ObjectType::RouteEntry {
            statuses.resize(statuses.len() + items.len(), Status::Success);
            return;
        }
        if !self.refusals.iter().any(|r| (r.object, r.verb) == (object, verb)) {
            return self.switch.bulk(verb, object, items, mode, statuses);
        }
        let mut stopped = false;
        for item in items {
            let status = match stopped {
                true => Status::NotExecuted,
                false => self.refusal(object, verb).unwrap_or_else(|| self.switch.one(verb, object, item)),
            };
            stopped |= mode == ErrorMode::StopOnError && !status.is_success();
            statuses.push(status);
        }
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        self.switch.get(object, id, attrs)
    }

    fn port_states(&mut self) -> Vec<PortState> {
        self.switch.port_states()
    }

    fn report_all_ports(&mut self) {
        self.switch.report_all_ports();
    }

    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        self.switch.available(object, attrs)
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        self.switch.entry(verb, object, key, attrs)
    }

    fn get_entry(&mut self, object: ObjectType, key: &RawText, attrs: &mut [Attr]) -> Result<(), Status> {
        self.switch.get_entry(object, key, attrs)
    }

    fn query(&mut self, query: &Query) -> QueryReply {
        self.switch.query(query)
    }

    fn own_objects(&mut self, switch: Oid) -> Vec<(ObjectType, Oid)> {
        self.switch.own_objects(switch)
    }

    fn object_type(&mut self, rid: Oid) -> Option<ObjectType> {
        self.switch.object_type(rid)
    }
}

impl Audit for Chip {
    type Cursor = <VirtualSwitch as Audit>::Cursor;

    fn read(&self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        self.switch.read(object, id, attrs)
    }

    fn objects(&self) -> Vec<(ObjectType, ObjectId)> {
        self.switch.objects()
    }

    fn raw_entries(&self) -> Vec<(ObjectType, RawText, Attrs)> {
        self.switch.raw_entries()
    }

    fn entries(&self, from: Self::Cursor, count: usize) -> (Vec<ObjectId>, Option<Self::Cursor>) {
        self.switch.entries(from, count)
    }

    fn route_count(&self) -> usize {
        self.switch.route_count()
    }

    fn changes(&self) -> u64 {
        self.switch.changes()
    }
}
