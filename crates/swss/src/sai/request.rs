//! What orchagent asks of syncd and of the chip, and what they answer.

use super::notification::{FdbEvent, PortState};
use super::{Attr, Attrs, ObjectId, ObjectType, Oid, Query, QueryReply, RawText, model};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        #[expect(non_upper_case_globals, reason = "the statuses are matched like variants of an enum")]
        impl Status {
            $($(#[$doc])* pub const $variant: Status = Status($code);)*

            /// SAI's name, such as `SAI_STATUS_TABLE_FULL`. A number without a name is its own, as in
            /// sairedis: `-327681`.
            pub fn name(self) -> Cow<'static, str> {
                match self.0 {
                    $($code => Cow::Borrowed($name),)*
                    code => model::status_name(code).map_or_else(|| code.to_string().into(), Cow::Borrowed),
                }
            }

            /// The status of a SAI name, or of the text of a number; another text is [`Status::Failure`].
            pub fn from_name(name: &str) -> Status {
                match name {
                    $($name => Status::$variant,)*
                    _ => {
                        let code = model::status_number(name).or_else(|| name.parse().ok());
                        code.map_or(Status::Failure, Status::from_code)
                    }
                }
            }
        }
    };
}

/// The outcome of one operation on one object: SAI's number (`sai_status_t`), of the headers or of a vendor.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(i32);

statuses! {
    /// Done.
    Success = 0, "SAI_STATUS_SUCCESS";
    /// Not done, for no named reason.
    Failure = -1, "SAI_STATUS_FAILURE";
    /// The chip cannot do this.
    NotSupported = -2, "SAI_STATUS_NOT_SUPPORTED";
    /// Out of memory.
    NoMemory = -3, "SAI_STATUS_NO_MEMORY";
    /// Out of something in the chip.
    InsufficientResources = -4, "SAI_STATUS_INSUFFICIENT_RESOURCES";
    /// A value that makes no sense.
    InvalidParameter = -5, "SAI_STATUS_INVALID_PARAMETER";
    /// A create of what is there.
    ItemAlreadyExists = -6, "SAI_STATUS_ITEM_ALREADY_EXISTS";
    /// A set or remove of what is not there.
    ItemNotFound = -7, "SAI_STATUS_ITEM_NOT_FOUND";
    /// The room given for an answer was too small.
    BufferOverflow = -8, "SAI_STATUS_BUFFER_OVERFLOW";
    /// The chip was not started.
    Uninitialized = -12, "SAI_STATUS_UNINITIALIZED";
    /// The table is full.
    TableFull = -13, "SAI_STATUS_TABLE_FULL";
    /// A mandatory attribute is missing.
    MandatoryAttributeMissing = -14, "SAI_STATUS_MANDATORY_ATTRIBUTE_MISSING";
    /// Not implemented by the SAI library.
    NotImplemented = -15, "SAI_STATUS_NOT_IMPLEMENTED";
    /// Unknown address.
    AddrNotFound = -16, "SAI_STATUS_ADDR_NOT_FOUND";
    /// The object is referenced.
    ObjectInUse = -17, "SAI_STATUS_OBJECT_IN_USE";
    /// The object type does not fit the operation.
    InvalidObjectType = -18, "SAI_STATUS_INVALID_OBJECT_TYPE";
    /// Unknown object id.
    InvalidObjectId = -19, "SAI_STATUS_INVALID_OBJECT_ID";
    /// Out of permanent storage.
    NvStorageFull = -21, "SAI_STATUS_NV_STORAGE_FULL";
    /// Not executed, because an earlier entry of the bulk failed.
    NotExecuted = -23, "SAI_STATUS_NOT_EXECUTED";
}

/// The numbers of statuses that say which attribute of a request they are about are
/// `SAI_STATUS_INVALID_ATTRIBUTE_0` and the numbers below, and in four other such ranges (`saistatus.h`).
const ATTRIBUTE_RANGES: [i32; 5] = [-0x10000, -0x20000, -0x30000, -0x40000, -0x50000];
/// The length of a range: it ends with `SAI_STATUS_INVALID_ATTRIBUTE_MAX`.
const ATTRIBUTE_RANGE: i32 = 0x10000;

impl Status {
    /// The status with SAI's number. Numbers are 0 and below (`saistatus.h`).
    pub const fn from_code(code: i32) -> Status {
        Status(code)
    }

    /// The number of SAI (`saistatus.h`).
    pub const fn code(self) -> i32 {
        self.0
    }

    /// Whether it is success.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// The place of the attribute that it is about: 1 for `SAI_STATUS_ATTR_NOT_SUPPORTED_0 - 1`.
    pub fn attribute(self) -> Option<usize> {
        let within = |first: &&i32| self.0 <= **first && self.0 > **first - ATTRIBUTE_RANGE;
        ATTRIBUTE_RANGES.iter().find(within).map(|first| (first - self.0) as usize)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// The operation on objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// Create them with these attributes.
    Create,
    /// Set one attribute of each. An object may occur several times with different attributes.
    Set,
    /// Remove them. Attributes are empty.
    Remove,
}

/// The error mode of a bulk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorMode {
    /// Later entries get [`Status::NotExecuted`].
    StopOnError,
    /// Later entries are executed.
    IgnoreError,
}

/// One object of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The object.
    pub id: ObjectId,
    /// Attributes: all for a create, one for a set, none for a remove.
    pub attrs: Attrs,
}

impl Item {
    /// An object with attributes.
    pub fn new(id: impl Into<ObjectId>, attrs: impl IntoIterator<Item = Attr>) -> Item {
        Item { id: id.into(), attrs: attrs.into_iter().collect() }
    }

    /// An object without attributes.
    pub fn bare(id: impl Into<ObjectId>) -> Item {
        Item { id: id.into(), attrs: Attrs::new() }
    }
}

/// An entry of a request whose key is not typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryItem {
    /// The key, as JSON with its members in the order of sairedis.
    pub key: RawText,
    /// Attributes: as those of [`Item`].
    pub attrs: Attrs,
}

/// A step of the start of orchagent (INIT_VIEW and APPLY_VIEW of sairedis).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    /// Later requests describe the whole desired state of the chip.
    Init,
    /// The description is complete: program the difference.
    Apply,
}

/// The call of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SaiCall {
    /// One object.
    One {
        /// The operation.
        verb: Verb,
        /// The object's type.
        object: ObjectType,
        /// The object.
        item: Item,
    },
    /// Many objects of one type, with a status for each. The queue to syncd does not carry the
    /// mode: syncd decides.
    Bulk {
        /// The operation.
        verb: Verb,
        /// The objects' type.
        object: ObjectType,
        /// The objects.
        items: Vec<Item>,
        /// The error mode.
        mode: ErrorMode,
    },
    /// Read attributes.
    Get {
        /// The object's type.
        object: ObjectType,
        /// The object.
        id: ObjectId,
        /// The attributes with placeholder values. The length of a list is the capacity for the
        /// reply.
        attrs: Vec<Attr>,
    },
    /// Read attributes of many objects of one type.
    BulkGet {
        /// The objects' type.
        object: ObjectType,
        /// The objects, each with its attributes as those of [`SaiCall::Get`].
        items: Vec<(ObjectId, Vec<Attr>)>,
    },
    /// Entries whose key is not typed, such as those of the FDB.
    Entries {
        /// The operation.
        verb: Verb,
        /// The entries' type.
        object: ObjectType,
        /// The entries.
        items: Vec<EntryItem>,
        /// Whether the request is a bulk, whose reply has a status for each.
        bulk: bool,
    },
    /// Read attributes of such an entry.
    GetEntry {
        /// The entry's type.
        object: ObjectType,
        /// The key.
        key: RawText,
        /// The attributes as those of [`SaiCall::Get`].
        attrs: Vec<Attr>,
    },
    /// A request that changes no object.
    Query(Query),
    /// Query for free entries of a type.
    Available {
        /// The type.
        object: ObjectType,
        /// Selects the table, where the chip has several for the type.
        attrs: Attrs,
    },
    /// A step of a start.
    View(View),
}

/// A request with the number of its sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaiRequest {
    /// The number, which the reply repeats. SONiC's queue does not carry it: replies come in order.
    pub id: u64,
    /// The call.
    pub call: SaiCall,
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaiReply {
    /// The request's number.
    pub id: u64,
    /// The outcome. For a bulk: success if all entries succeeded.
    pub status: Status,
    /// For a bulk: the outcome of each object in order. Else empty. As text, a bulk of gets without any
    /// attribute is no other than a bulk.
    pub statuses: Vec<Status>,
    /// For a get: the attributes with values; lists that found too little room with their length
    /// instead. For an availability query: [`Attr::ObjectCount`]. For a bulk of gets, a field for each
    /// object: its status, with the joined attributes. For a [`Query`]: the fields of the reply.
    pub values: Vec<Attr>,
}

impl SaiReply {
    /// A reply with one outcome and no values.
    pub fn one(id: u64, status: Status) -> SaiReply {
        SaiReply { id, status, statuses: Vec::new(), values: Vec::new() }
    }

    /// A reply to a bulk.
    pub fn bulk(id: u64, statuses: Vec<Status>) -> SaiReply {
        let all = statuses.iter().all(|status| status.is_success());
        SaiReply {
            id,
            status: if all { Status::Success } else { Status::Failure },
            statuses,
            values: Vec::new(),
        }
    }
}

/// A chip. Object ids here are those of the chip (RIDs).
pub trait Sai {
    /// Executes `verb` on each of `items` in order, and appends a status for each to `statuses`.
    ///
    /// A create writes the RID into the id of a numbered object, which is null before. The switch
    /// is created like any object, with [`Attr::SwitchInit`]; its removal empties the chip. A bulk
    /// of one entry is a single call.
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    );

    /// Reads `attrs` of one object. For the switch: its built-in objects (default virtual router,
    /// CPU port, ports) and free table entries.
    ///
    /// # Errors
    /// The status of the chip; [`Status::BufferOverflow`] when a list needs more room than its
    /// placeholder has.
    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status>;

    /// The link states that changed since the last call, in RIDs, once each: only with
    /// [`PORT_STATE_CHANGE_NOTIFY`](super::notification::PORT_STATE_CHANGE_NOTIFY) at the switch. It is
    /// called after each other call, so a chip that has none answers at once.
    fn port_states(&mut self) -> Vec<PortState> {
        Vec::new()
    }

    /// Makes the next [`Sai::port_states`] return all ports.
    fn report_all_ports(&mut self) {}

    /// The changes of the FDB that the chip made by itself since the last call, in RIDs and in order. As
    /// [`Sai::port_states`] it answers at once.
    fn fdb_events(&mut self) -> Vec<FdbEvent> {
        Vec::new()
    }

    /// Free entries of a type with these attributes.
    ///
    /// # Errors
    /// [`Status::NotSupported`] when the chip does not report it.
    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        let _ = (object, attrs);
        Err(Status::NotSupported)
    }

    /// Executes `verb` on an entry whose key is not typed.
    ///
    /// # Errors
    /// The status of the chip; [`Status::NotSupported`] without such entries.
    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        let _ = (verb, object, key, attrs);
        Err(Status::NotSupported)
    }

    /// Reads attributes of an entry whose key is not typed, as [`Sai::get`].
    ///
    /// # Errors
    /// As [`Sai::get`].
    fn get_entry(&mut self, object: ObjectType, key: &RawText, attrs: &mut [Attr]) -> Result<(), Status> {
        let _ = (object, key, attrs);
        Err(Status::NotSupported)
    }

    /// Answers a query; [`Query::Poll`] is never one.
    fn query(&mut self, query: &Query) -> QueryReply {
        let _ = query;
        QueryReply::of(Status::NotSupported)
    }

    /// The objects that the chip has of its own while there is a switch, in the order in which they
    /// get their VIDs: by type, and in that by RID.
    fn own_objects(&mut self, switch: Oid) -> Vec<(ObjectType, Oid)> {
        let switch = ObjectId::Oid(switch);
        let mut count = [Attr::SwitchPortNumber(0)];
        let ports = match (self.get(ObjectType::Switch, &switch, &mut count), &count) {
            (Ok(()), [Attr::SwitchPortNumber(ports)]) => *ports as usize,
            _ => 0,
        };
        let mut own = Vec::new();
        for (object, attr) in [
            (ObjectType::Port, Attr::SwitchCpuPort(Oid::NULL)),
            (ObjectType::Port, Attr::SwitchPortList(vec![Oid::NULL; ports].into())),
            (ObjectType::VirtualRouter, Attr::SwitchDefaultVirtualRouter(Oid::NULL)),
        ] {
            let mut value = [attr];
            if self.get(ObjectType::Switch, &switch, &mut value).is_ok() {
                let oids = value[0].oids_mut().iter().filter(|oid| !oid.is_null());
                own.extend(oids.map(|oid| (object, *oid)));
            }
        }
        own
    }

    /// The type of an object of the chip.
    fn object_type(&mut self, rid: Oid) -> Option<ObjectType> {
        let _ = rid;
        None
    }

    /// Executes `verb` on one object; see [`Sai::bulk`].
    fn one(&mut self, verb: Verb, object: ObjectType, item: &mut Item) -> Status {
        let mut statuses = Vec::with_capacity(1);
        self.bulk(verb, object, std::slice::from_mut(item), ErrorMode::StopOnError, &mut statuses);
        statuses.pop().unwrap_or(Status::Failure)
    }
}

/// A chip whose contents can be compared with what was requested of it. Reads change nothing.
pub trait Audit: Sai {
    /// A position among the entries of routes and labels; the default is the beginning.
    type Cursor: Copy + Default + Send + 'static;

    /// Reads `attrs` of one object, as [`Sai::get`].
    ///
    /// # Errors
    /// As [`Sai::get`]; [`Status::ItemNotFound`] when there is no such object.
    fn read(&self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status>;

    /// Every numbered object and every neighbour, in no order.
    fn objects(&self) -> Vec<(ObjectType, ObjectId)>;

    /// Every entry whose key is not typed, with its attributes, in no order.
    fn raw_entries(&self) -> Vec<(ObjectType, RawText, Attrs)> {
        Vec::new()
    }

    /// About `count` entries of routes and labels from a position on, and the next position; fewer
    /// where the tables are sparse. The entries that exist throughout are met, whatever others come
    /// and go.
    fn entries(&self, from: Self::Cursor, count: usize) -> (Vec<ObjectId>, Option<Self::Cursor>);

    /// How many routes it has.
    fn route_count(&self) -> usize;

    /// A number that another value follows after any change, by any program.
    fn changes(&self) -> u64;
}

const _: () = assert!(size_of::<SmallVec<[Attr; 2]>>() <= 64);
