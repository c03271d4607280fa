//! Requests to syncd that change no object: what the chip can do, counters, and the flush of the FDB
//! (`lib/sairediscommon.h` of sonic-sairedis).

use super::{Attr, Attrs, ObjectType, Oid, Status};
use crate::row::Name;

/// A change of the counters that syncd polls (`syncd/FlexCounterManager.cpp`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CounterOp {
    /// Poll these counters of an object.
    StartPoll,
    /// Poll no counter of an object any more.
    StopPoll,
    /// Set how a group of counters is polled.
    SetGroup,
    /// Remove a group.
    DelGroup,
}

/// A request that changes no object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    /// Whether an attribute can be created, set and read (`sai_query_attribute_capability`).
    AttributeCapability {
        /// The type.
        object: ObjectType,
        /// SAI's name of the attribute.
        attr: Name,
    },
    /// The values that an enumeration can have (`sai_query_attribute_enum_values_capability`).
    EnumValues {
        /// The type.
        object: ObjectType,
        /// SAI's name of the attribute.
        attr: Name,
        /// For how many values the caller has room.
        room: u32,
    },
    /// The counters of a type (`sai_query_stats_capability`).
    Stats {
        /// The type.
        object: ObjectType,
        /// For how many counters the caller has room.
        room: u32,
        /// Whether the reply has the least interval of polling, too.
        streamed: bool,
    },
    /// The values of counters of an object (`get_*_stats`), or their reset (`clear_*_stats`).
    Counters {
        /// The type.
        object: ObjectType,
        /// The object.
        id: Oid,
        /// SAI's names of the counters.
        counters: Vec<Name>,
        /// What is done with them.
        mode: CountersMode,
    },
    /// Removes entries of the FDB (`flush_fdb_entries`).
    FlushFdb {
        /// Which: `SAI_FDB_FLUSH_ATTR_…`.
        attrs: Attrs,
    },
    /// Counters that syncd polls. They belong to syncd, not to the chip.
    Poll {
        /// The operation.
        op: CounterOp,
        /// The group, for objects with the object's key.
        key: Name,
        /// Fields of the group, or of the object's counters.
        fields: Vec<(Name, Name)>,
    },
}

/// What a query does with counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountersMode {
    /// Reads them.
    Read,
    /// Sets them to zero, without a reply of values.
    Clear,
    /// Both at once, so that nothing is counted between (`SAI_STATS_MODE_READ_AND_CLEAR`).
    ReadAndClear,
}

/// The reply to a [`Query`]: its status, and fields in the form of sairedis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryReply {
    /// The outcome.
    pub status: Status,
    /// Fields with values.
    pub fields: Vec<Attr>,
}

impl QueryReply {
    /// A reply without fields.
    pub fn of(status: Status) -> QueryReply {
        QueryReply { status, fields: Vec::new() }
    }

    /// Whether an attribute can be created, set and read.
    pub fn capability(create: bool, set: bool, get: bool) -> QueryReply {
        let field = |name: &str, able: bool| Attr::raw(name, if able { "true" } else { "false" });
        QueryReply {
            status: Status::Success,
            fields: vec![
                field("CREATE_IMPLEMENTED", create),
                field("SET_IMPLEMENTED", set),
                field("GET_IMPLEMENTED", get),
            ],
        }
    }

    /// The numbers of an enumeration's values, if `room` is enough for them.
    pub fn enum_values(values: &[i32], room: u32) -> QueryReply {
        let count = Attr::raw("ENUM_COUNT", &values.len().to_string());
        match room as usize >= values.len() {
            true => QueryReply {
                status: Status::Success,
                fields: vec![Attr::raw("ENUM_CAPABILITIES", &list(values)), count],
            },
            false => QueryReply { status: Status::BufferOverflow, fields: vec![count] },
        }
    }

    /// The numbers of counters, if `room` is enough for them. Each can be read, and read and
    /// cleared (`SAI_STATS_MODE_READ | SAI_STATS_MODE_READ_AND_CLEAR`).
    pub fn stats(counters: &[i32], room: u32) -> QueryReply {
        const MODES: i32 = 3;
        let count = Attr::raw("STAT_COUNT", &counters.len().to_string());
        match room as usize >= counters.len() {
            true => QueryReply {
                status: Status::Success,
                fields: vec![
                    Attr::raw("STAT_ENUM", &list(counters)),
                    Attr::raw("STAT_MODES", &list(&vec![MODES; counters.len()])),
                    count,
                ],
            },
            false => QueryReply { status: Status::BufferOverflow, fields: vec![count] },
        }
    }
}

/// Numbers as sairedis lists them: each with a comma behind it.
fn list(numbers: &[i32]) -> String {
    numbers.iter().map(|number| format!("{number},")).collect()
}
