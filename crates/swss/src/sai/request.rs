//! What orchagent asks of syncd and of the chip, and what they answer.

use super::{Attr, Attrs, ObjectId, ObjectType};
use smallvec::SmallVec;

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// The outcome of one operation on one object, with SAI's number.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i32)]
        pub enum Status {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Status {
            /// SAI's name, such as `SAI_STATUS_TABLE_FULL`.
            pub fn name(self) -> &'static str {
                match self { $(Status::$variant => $name,)* }
            }

            /// The status of a SAI name; a name that is not known is [`Status::Failure`].
            pub fn from_name(name: &str) -> Status {
                match name { $($name => Status::$variant,)* _ => Status::Failure }
            }

            /// The status of SAI's number; a number that is not known is [`Status::Failure`].
            pub fn from_code(code: i32) -> Status {
                match code { $($code => Status::$variant,)* _ => Status::Failure }
            }
        }
    };
}

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
    /// No room in the table.
    TableFull = -13, "SAI_STATUS_TABLE_FULL";
    /// An attribute is missing that a create needs.
    MandatoryAttributeMissing = -14, "SAI_STATUS_MANDATORY_ATTRIBUTE_MISSING";
    /// The library does not do this yet.
    NotImplemented = -15, "SAI_STATUS_NOT_IMPLEMENTED";
    /// An address that is not known.
    AddrNotFound = -16, "SAI_STATUS_ADDR_NOT_FOUND";
    /// A remove of what others refer to.
    ObjectInUse = -17, "SAI_STATUS_OBJECT_IN_USE";
    /// An object of another type than the operation's.
    InvalidObjectType = -18, "SAI_STATUS_INVALID_OBJECT_TYPE";
    /// A number that names no object.
    InvalidObjectId = -19, "SAI_STATUS_INVALID_OBJECT_ID";
    /// Out of permanent storage.
    NvStorageFull = -21, "SAI_STATUS_NV_STORAGE_FULL";
    /// Left out of a bulk, because an earlier entry failed.
    NotExecuted = -23, "SAI_STATUS_NOT_EXECUTED";
}

impl Status {
    /// SAI's number.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Whether it was done.
    pub fn is_success(self) -> bool {
        self == Status::Success
    }
}

/// What to do with objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// Make them, with these attributes.
    Create,
    /// Change one attribute of each. An object that stands several times changes several attributes.
    Set,
    /// Remove them. Attributes are empty.
    Remove,
}

/// What a bulk does after an entry failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorMode {
    /// The entries after it are [`Status::NotExecuted`].
    StopOnError,
    /// The others are done all the same.
    IgnoreError,
}

/// One object of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Which object.
    pub id: ObjectId,
    /// Its attributes: all for a create, one for a set, none for a remove.
    pub attrs: Attrs,
}

impl Item {
    /// An object with attributes.
    pub fn new(id: impl Into<ObjectId>, attrs: impl IntoIterator<Item = Attr>) -> Item {
        Item { id: id.into(), attrs: attrs.into_iter().collect() }
    }

    /// An object alone.
    pub fn bare(id: impl Into<ObjectId>) -> Item {
        Item { id: id.into(), attrs: Attrs::new() }
    }
}

/// Which steps of a start orchagent is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    /// What follows describes all that should be in the chip.
    Init,
    /// The description is complete: make it so.
    Apply,
}

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SaiCall {
    /// One object.
    One {
        /// What to do.
        verb: Verb,
        /// The object's type.
        object: ObjectType,
        /// The object.
        item: Item,
    },
    /// Many objects of one type, with a status for each. Over a queue the mode is not carried: syncd decides.
    Bulk {
        /// What to do.
        verb: Verb,
        /// The objects' type.
        object: ObjectType,
        /// The objects.
        items: Vec<Item>,
        /// What a failure stops.
        mode: ErrorMode,
    },
    /// Read attributes.
    Get {
        /// The object's type.
        object: ObjectType,
        /// The object.
        id: ObjectId,
        /// Which attributes; the values are placeholders, a list's length the room for the answer.
        attrs: Vec<Attr>,
    },
    /// How many more objects of a type fit.
    Available {
        /// The type.
        object: ObjectType,
        /// Which of that type, where the chip has several tables of them.
        attrs: Attrs,
    },
    /// A step of a start.
    View(View),
}

/// A request, numbered by who sends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaiRequest {
    /// The number, which the reply repeats. SONiC's queue does not carry it: there, replies come in order.
    pub id: u64,
    /// What is asked.
    pub call: SaiCall,
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaiReply {
    /// The request's number.
    pub id: u64,
    /// The outcome. Of a bulk: success if all succeeded.
    pub status: Status,
    /// Of a bulk: the outcome of each object, in order. Else empty.
    pub statuses: Vec<Status>,
    /// Of a get that succeeded: the attributes with their values. Of a question what still fits: [`Attr::ObjectCount`].
    pub values: Vec<Attr>,
}

impl SaiReply {
    /// The reply to what has one outcome and no values.
    pub fn one(id: u64, status: Status) -> SaiReply {
        SaiReply { id, status, statuses: Vec::new(), values: Vec::new() }
    }

    /// The reply to a bulk.
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

/// A chip. All object numbers here are the chip's own (RIDs).
pub trait Sai {
    /// Does `verb` to each of `items`, in order, and appends one status for each to `statuses`.
    ///
    /// A create of a numbered object writes the number that the chip gave into the item's id. The switch is created
    /// like any object, with [`Attr::SwitchInit`]; its removal leaves a chip that holds nothing. A bulk of one is a
    /// single call. On the items of a create, ids of numbered objects are null.
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    );

    /// Fills in the values of `attrs` of one object. Of a switch: the objects that it has of its own (default
    /// virtual router, CPU port, ports) and what still fits.
    ///
    /// # Errors
    /// The chip's status; [`Status::BufferOverflow`] when a list needs more room than its placeholder has.
    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status>;

    /// How many more objects of a type fit, of those that have these attributes.
    ///
    /// # Errors
    /// [`Status::NotSupported`] when the chip does not say.
    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        let _ = (object, attrs);
        Err(Status::NotSupported)
    }

    /// One object; see [`Sai::bulk`].
    fn one(&mut self, verb: Verb, object: ObjectType, item: &mut Item) -> Status {
        let mut statuses = Vec::with_capacity(1);
        self.bulk(verb, object, std::slice::from_mut(item), ErrorMode::StopOnError, &mut statuses);
        statuses.pop().unwrap_or(Status::Failure)
    }
}

const _: () = assert!(size_of::<SmallVec<[Attr; 2]>>() <= 64);
