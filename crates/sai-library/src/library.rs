//! A loaded library: its functions, called with values of the table.

use crate::abi::*;
use crate::convert::{Attributes, RawKeys};
use crate::profile;
use ribtide_sai::{Api, Attribute, Function, Key, ObjectType, Value};
use std::ffi::c_void;
use std::fmt;
use std::path::Path;

/// `SAI_STATUS_SUCCESS`
const SUCCESS: i32 = 0;
/// `SAI_STATUS_NOT_SUPPORTED`
pub(crate) const NOT_SUPPORTED: i32 = -2;
/// `SAI_STATUS_INVALID_PARAMETER`
pub(crate) const INVALID_PARAMETER: i32 = -5;
/// `SAI_STATUS_BUFFER_OVERFLOW`
pub(crate) const BUFFER_OVERFLOW: i32 = -8;
/// `SAI_STATUS_NOT_IMPLEMENTED`
pub(crate) const NOT_IMPLEMENTED: i32 = -15;
/// `SAI_STATS_MODE_READ_AND_CLEAR`
const READ_AND_CLEAR: i32 = 2;
/// `SAI_STATUS_NOT_EXECUTED`
pub(crate) const NOT_EXECUTED: i32 = -23;
/// Items of a list without a placeholder; a longer one is read again.
const LIST_ROOM: u32 = 128;

/// Why a library cannot be used. Displays as a sentence with the library, what is wrong, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadError(String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// The status of a call that failed (`saistatus.h`).
pub type Failed = i32;

/// An object of a call.
#[derive(Clone, Copy, Debug)]
pub enum Id<'a> {
    /// An object id of the library.
    Oid(u64),
    /// The values of its key.
    Key(&'a Key),
}

/// An attribute with a value.
pub type Pair = (Attribute, Value);

type Initialize = unsafe extern "C" fn(u64, *const sai_service_method_table_t) -> i32;
type Query = unsafe extern "C" fn(u32, *mut *mut c_void) -> i32;
type Uninitialize = unsafe extern "C" fn() -> i32;
type QueryVersion = unsafe extern "C" fn(*mut u64) -> i32;
type LogSet = unsafe extern "C" fn(u32, i32) -> i32;
type TypeQuery = unsafe extern "C" fn(u64) -> u32;
type Availability = unsafe extern "C" fn(u64, u32, u32, *const sai_attribute_t, *mut u64) -> i32;
type Capability = unsafe extern "C" fn(u64, u32, u32, *mut sai_attr_capability_t) -> i32;
type EnumCapability = unsafe extern "C" fn(u64, u32, u32, *mut sai_object_list_t) -> i32;
type StatsCapability = unsafe extern "C" fn(u64, u32, *mut sai_object_list_t) -> i32;

type CreateSwitch = unsafe extern "C" fn(*mut u64, u32, *const sai_attribute_t) -> i32;
type CreateObject = unsafe extern "C" fn(*mut u64, u64, u32, *const sai_attribute_t) -> i32;
type CreateEntry = unsafe extern "C" fn(*const c_void, u32, *const sai_attribute_t) -> i32;
type RemoveObject = unsafe extern "C" fn(u64) -> i32;
type RemoveEntry = unsafe extern "C" fn(*const c_void) -> i32;
type SetObject = unsafe extern "C" fn(u64, *const sai_attribute_t) -> i32;
type SetEntry = unsafe extern "C" fn(*const c_void, *const sai_attribute_t) -> i32;
type GetObject = unsafe extern "C" fn(u64, u32, *mut sai_attribute_t) -> i32;
type GetEntry = unsafe extern "C" fn(*const c_void, u32, *mut sai_attribute_t) -> i32;
type BulkCreateObjects =
    unsafe extern "C" fn(u64, u32, *const u32, *const *const sai_attribute_t, i32, *mut u64, *mut i32) -> i32;
type BulkCreateEntries =
    unsafe extern "C" fn(u32, *const c_void, *const u32, *const *const sai_attribute_t, i32, *mut i32) -> i32;
/// Object ids or keys: both are an array behind a pointer.
type BulkRemove = unsafe extern "C" fn(u32, *const c_void, i32, *mut i32) -> i32;
type BulkSet = unsafe extern "C" fn(u32, *const c_void, *const sai_attribute_t, i32, *mut i32) -> i32;
type Stats = unsafe extern "C" fn(u64, u32, *const u32, *mut u64) -> i32;
type StatsExt = unsafe extern "C" fn(u64, u32, *const u32, i32, *mut u64) -> i32;
type ClearStats = unsafe extern "C" fn(u64, u32, *const u32) -> i32;
type Flush = unsafe extern "C" fn(u64, u32, *const sai_attribute_t) -> i32;

/// The functions that a library exports by name.
#[derive(Debug)]
struct Exports {
    uninitialize: Uninitialize,
    log_set: LogSet,
    type_query: TypeQuery,
    availability: Availability,
    capability: Capability,
    enum_capability: EnumCapability,
    stats_capability: StatsCapability,
}

/// A method table of an API: pointers to functions, in the order of [`Api::functions`].
#[derive(Clone, Copy, Debug)]
struct Methods(*const *const c_void);

/// A library that was initialized. Dropping it uninitializes it.
///
/// One thread calls it. Its own threads call the callbacks, which only lock the profile or send a notification.
#[derive(Debug)]
pub struct Library {
    name: String,
    exports: Exports,
    /// By the place of the API in the table; `None` for one that the library does not have.
    methods: Vec<Option<Methods>>,
    version: [u64; 3],
    /// Keeps the code in memory.
    _code: libloading::Library,
}

// SAFETY: the pointers are to code and tables of the library, which any thread may use (SAI has no thread affinity);
// `&mut self` lets one thread at a time call it.
#[expect(unsafe_code, reason = "raw pointers to functions")]
unsafe impl Send for Library {}

/// `major.minor.revision` of a number of `sai_query_api_version`.
fn version_of(number: u64) -> [u64; 3] {
    [number / 10_000, number / 100 % 100, number % 100]
}

fn dotted(version: [u64; 3]) -> String {
    version.map(|part| part.to_string()).join(".")
}

impl Library {
    /// Loads `path`, as dlopen(3) finds it: a name without a slash is looked for in the system's folders. Then
    /// initializes it with the profile.
    ///
    /// The version must be that of the table in major and minor, or a later minor: method tables only grow, so those of
    /// an earlier one may end before a function that is called.
    ///
    /// # Errors
    /// A sentence: the file is missing or no library, a function is missing, the version is another, the profile has a
    /// NUL, or it refuses to initialize.
    pub fn open(path: &Path, profile: &[(String, String)]) -> Result<Library, LoadError> {
        let name = path.display().to_string();
        let fail = |what: String| LoadError(format!("the SAI library {name} {what}"));
        #[expect(unsafe_code, reason = "dlopen runs the constructors of the library")]
        // SAFETY: the operator named this library as the chip's driver, so its constructors run like the rest of it.
        let code = unsafe { libloading::Library::new(path.as_os_str()) };
        let code =
            code.map_err(|e| fail(format!("cannot be loaded: {}; --sai-library names the file", cause(&e))))?;
        let missing = |symbol: &str| {
            fail(format!("has no function {symbol}, so it is no SAI library, or one of before SAI 1.9"))
        };
        macro_rules! symbol {
            ($name:literal, $type:ty) => {{
                #[expect(unsafe_code, reason = "the type of a function of C")]
                // SAFETY: the type is that of this function in SAI's headers (`sai.h`, `saiobject.h`, `saiversion.h`).
                let symbol = unsafe { code.get::<$type>($name) };
                *symbol.map_err(|_| missing($name))?
            }};
        }
        let initialize = symbol!("sai_api_initialize", Initialize);
        let query = symbol!("sai_api_query", Query);
        let query_version = symbol!("sai_query_api_version", QueryVersion);
        let exports = Exports {
            uninitialize: symbol!("sai_api_uninitialize", Uninitialize),
            log_set: symbol!("sai_log_set", LogSet),
            type_query: symbol!("sai_object_type_query", TypeQuery),
            availability: symbol!("sai_object_type_get_availability", Availability),
            capability: symbol!("sai_query_attribute_capability", Capability),
            enum_capability: symbol!("sai_query_attribute_enum_values_capability", EnumCapability),
            stats_capability: symbol!("sai_query_stats_capability", StatsCapability),
        };
        let mut number = 0;
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: the pointer is to a u64, which `sai_api_version_t` is. SAI allows this call before the initialization.
        let status = unsafe { query_version(&raw mut number) };
        if status != SUCCESS {
            return Err(fail(format!("does not say its version: {}", status_text(status))));
        }
        let version = version_of(number);
        let known = ribtide_sai::version().map(u64::from);
        if version[0] != known[0] || version[1] < known[1] {
            return Err(fail(format!(
                "implements SAI {}, and ribtide calls libraries of SAI {}.{} and later minor versions; use one of these",
                dotted(version),
                known[0],
                known[1]
            )));
        }
        profile::set(profile)
            .map_err(|why| fail(format!("cannot be given its profile, the file of -p: {why}")))?;
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: the table of services is static, as are its functions.
        let status = unsafe { initialize(0, profile::SERVICES.as_ptr()) };
        if status != SUCCESS {
            return Err(fail(format!(
                "refuses to initialize: sai_api_initialize returns {}; its log, and the profile of -p, may say why",
                status_text(status)
            )));
        }
        let table = |api: Api| {
            let mut methods = std::ptr::null_mut();
            #[expect(unsafe_code, reason = "a function of C")]
            // SAFETY: the pointer is to a pointer, into which the library writes that of its method table.
            let status = unsafe { query(api.number(), &raw mut methods) };
            (status == SUCCESS && !methods.is_null()).then_some(Methods(methods.cast_const().cast()))
        };
        let methods = Api::all().map(table).collect();
        Ok(Library { name, exports, methods, version, _code: code })
    }

    /// The path or name that it was loaded by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of SAI that it implements.
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// The APIs that it has no method table for.
    pub fn missing_apis(&self) -> impl Iterator<Item = &'static str> {
        Api::all().zip(&self.methods).filter(|(_, methods)| methods.is_none()).map(|(api, _)| api.name())
    }

    /// Sets the level of its log (`sai_log_level_t`: 0 debug to 5 critical) for every API that it has.
    pub fn set_log_level(&mut self, level: i32) {
        for (api, _) in Api::all().zip(&self.methods).filter(|(_, methods)| methods.is_some()) {
            #[expect(unsafe_code, reason = "a function of C")]
            // SAFETY: both are numbers.
            unsafe {
                (self.exports.log_set)(api.number(), level);
            }
        }
    }

    /// The function of an object type.
    fn method(&self, object: ObjectType, function: Function) -> Result<*const c_void, Failed> {
        let (api, place) = object.api().zip(object.function(function)).ok_or(NOT_SUPPORTED)?;
        let at = Api::all().position(|other| other == api).ok_or(NOT_SUPPORTED)?;
        let methods = self.methods.get(at).copied().flatten().ok_or(NOT_IMPLEMENTED)?;
        #[expect(unsafe_code, reason = "a table of C")]
        // SAFETY: the library has the table's version or a later one, and method tables only grow, so the table has this
        // place.
        let method = unsafe { methods.0.add(place).read() };
        // A library leaves functions that it does not have null.
        if method.is_null() { Err(NOT_IMPLEMENTED) } else { Ok(method) }
    }

    /// Creates an object. `switch` is ignored for a switch and for an object with a key.
    ///
    /// # Errors
    /// The status of the library.
    pub fn create(
        &mut self,
        object: ObjectType,
        id: Id<'_>,
        switch: u64,
        attrs: &Attributes,
    ) -> Result<u64, Failed> {
        let method = self.method(object, Function::Create)?;
        let (count, list) = (attrs.len() as u32, attrs.as_ptr());
        let mut oid = 0;
        #[expect(unsafe_code, reason = "a function of C")]
        let status = match id {
            // SAFETY: the place of the table has a function of this type: every `sai_create_x_fn` of an object with a
            // key takes a pointer to it. Keys and attributes outlive the call.
            Id::Key(key) => unsafe {
                let key = raw_key(object, key)?;
                std::mem::transmute::<*const c_void, CreateEntry>(method)(key.as_ptr(), count, list)
            },
            // SAFETY: `sai_create_switch_fn` alone has no switch.
            Id::Oid(_) if object.short_name() == "SWITCH" => unsafe {
                std::mem::transmute::<*const c_void, CreateSwitch>(method)(&raw mut oid, count, list)
            },
            // SAFETY: every other `sai_create_x_fn` takes the switch.
            Id::Oid(_) => unsafe {
                std::mem::transmute::<*const c_void, CreateObject>(method)(&raw mut oid, switch, count, list)
            },
        };
        done(status).map(|()| oid)
    }

    /// Removes an object.
    ///
    /// # Errors
    /// The status of the library.
    pub fn remove(&mut self, object: ObjectType, id: Id<'_>) -> Result<(), Failed> {
        let method = self.method(object, Function::Remove)?;
        #[expect(unsafe_code, reason = "a function of C")]
        let status = match id {
            // SAFETY: every `sai_remove_x_fn` of an object with a key takes a pointer to it.
            Id::Key(key) => unsafe {
                let key = raw_key(object, key)?;
                std::mem::transmute::<*const c_void, RemoveEntry>(method)(key.as_ptr())
            },
            // SAFETY: every other takes the object id.
            Id::Oid(oid) => unsafe { std::mem::transmute::<*const c_void, RemoveObject>(method)(oid) },
        };
        done(status)
    }

    /// Sets the first of the attributes, which should be the only one.
    ///
    /// # Errors
    /// The status of the library.
    pub fn set(&mut self, object: ObjectType, id: Id<'_>, attrs: &Attributes) -> Result<(), Failed> {
        if attrs.is_empty() {
            return Err(INVALID_PARAMETER);
        }
        let method = self.method(object, Function::Set)?;
        #[expect(unsafe_code, reason = "a function of C")]
        let status = match id {
            // SAFETY: as in `remove`; there is an attribute to point to.
            Id::Key(key) => unsafe {
                let key = raw_key(object, key)?;
                std::mem::transmute::<*const c_void, SetEntry>(method)(key.as_ptr(), attrs.as_ptr())
            },
            // SAFETY: as in `remove`; there is an attribute to point to.
            Id::Oid(oid) => unsafe {
                std::mem::transmute::<*const c_void, SetObject>(method)(oid, attrs.as_ptr())
            },
        };
        done(status)
    }

    /// Reads attributes into their rooms.
    ///
    /// # Errors
    /// The status of the library; with `SAI_STATUS_BUFFER_OVERFLOW` the counts of `attrs` are those of the lists.
    pub fn get(&mut self, object: ObjectType, id: Id<'_>, attrs: &mut Attributes) -> Result<(), Failed> {
        let method = self.method(object, Function::Get)?;
        let (count, list) = (attrs.len() as u32, attrs.as_mut_ptr());
        #[expect(unsafe_code, reason = "a function of C")]
        let status = match id {
            // SAFETY: as in `remove`; the library writes at most as many items as each list has room for.
            Id::Key(key) => unsafe {
                let key = raw_key(object, key)?;
                std::mem::transmute::<*const c_void, GetEntry>(method)(key.as_ptr(), count, list)
            },
            // SAFETY: as above.
            Id::Oid(oid) => unsafe {
                std::mem::transmute::<*const c_void, GetObject>(method)(oid, count, list)
            },
        };
        done(status)
    }

    /// Reads one attribute of any length: a list that needs more room is read again.
    ///
    /// # Errors
    /// The status of the library.
    pub fn read(&mut self, object: ObjectType, id: Id<'_>, attribute: Attribute) -> Result<Value, Failed> {
        let mut room = LIST_ROOM;
        loop {
            let mut attrs = Attributes::default();
            attrs.push_room(attribute, &Value::Room(room)).map_err(|_| NOT_SUPPORTED)?;
            match self.get(object, id, &mut attrs) {
                Ok(()) => return attrs.value(0, attribute).ok_or(NOT_SUPPORTED),
                Err(BUFFER_OVERFLOW) => {
                    // A library that asks for less than it was given would be asked for ever.
                    room = attrs.count(0, attribute).filter(|count| *count > room).ok_or(BUFFER_OVERFLOW)?;
                }
                Err(status) => return Err(status),
            }
        }
    }

    /// Creates several objects and returns an object id and a status for each. A library without the bulk function
    /// creates them one by one.
    pub fn bulk_create(
        &mut self,
        object: ObjectType,
        ids: &[Id<'_>],
        switch: u64,
        attrs: &[Attributes],
        stop_on_error: bool,
    ) -> Vec<(u64, i32)> {
        let count = ids.len().min(attrs.len());
        let counts: Vec<u32> = attrs.iter().map(|attrs| attrs.len() as u32).collect();
        let lists: Vec<*const sai_attribute_t> = attrs.iter().map(Attributes::as_ptr).collect();
        let mut statuses = vec![NOT_EXECUTED; count];
        let mut oids = vec![0; count];
        let (mode, len) = (i32::from(!stop_on_error), count as u32);
        match (self.method(object, Function::BulkCreate), raw_keys(object, ids)) {
            (Ok(method), Ok(Some(keys))) => {
                #[expect(unsafe_code, reason = "a function of C")]
                // SAFETY: every `sai_bulk_create_x_fn` of an object with a key has this type. Every array has `count`
                // items and outlives the call.
                let status = unsafe {
                    let method = std::mem::transmute::<*const c_void, BulkCreateEntries>(method);
                    method(len, keys.as_ptr(), counts.as_ptr(), lists.as_ptr(), mode, statuses.as_mut_ptr())
                };
                agree(status, &mut statuses);
            }
            (Ok(method), Ok(None)) => {
                #[expect(unsafe_code, reason = "a function of C")]
                // SAFETY: `sai_bulk_object_create_fn`, with arrays of `count` items that outlive the call.
                let status = unsafe {
                    let method = std::mem::transmute::<*const c_void, BulkCreateObjects>(method);
                    let (oids, statuses) = (oids.as_mut_ptr(), statuses.as_mut_ptr());
                    method(switch, len, counts.as_ptr(), lists.as_ptr(), mode, oids, statuses)
                };
                agree(status, &mut statuses);
            }
            (_, Err(status)) => statuses.fill(status),
            (Err(_), _) => each(&mut statuses, stop_on_error, |n| {
                oids[n] = self.create(object, ids[n], switch, &attrs[n])?;
                Ok(())
            }),
        }
        oids.into_iter().zip(statuses).collect()
    }

    /// Removes several objects and returns a status for each. A library without the bulk function removes them one by
    /// one.
    pub fn bulk_remove(&mut self, object: ObjectType, ids: &[Id<'_>], stop_on_error: bool) -> Vec<i32> {
        let mut statuses = vec![NOT_EXECUTED; ids.len()];
        match (self.method(object, Function::BulkRemove), raw_ids(object, ids)) {
            (Ok(method), Ok(raw)) => {
                #[expect(unsafe_code, reason = "a function of C")]
                // SAFETY: `sai_bulk_object_remove_fn`, or the same with keys; arrays of as many items outlive the call.
                let status = unsafe {
                    let method = std::mem::transmute::<*const c_void, BulkRemove>(method);
                    method(ids.len() as u32, raw.as_ptr(), i32::from(!stop_on_error), statuses.as_mut_ptr())
                };
                agree(status, &mut statuses);
            }
            (_, Err(status)) => statuses.fill(status),
            (Err(_), _) => each(&mut statuses, stop_on_error, |n| self.remove(object, ids[n])),
        }
        statuses
    }

    /// Sets the only attribute of each object and returns a status for each. A library without the bulk function sets
    /// them one by one.
    pub fn bulk_set(
        &mut self,
        object: ObjectType,
        ids: &[Id<'_>],
        attrs: &[Attributes],
        stop_on_error: bool,
    ) -> Vec<i32> {
        let mut statuses = vec![NOT_EXECUTED; ids.len()];
        if attrs.len() != ids.len() || attrs.iter().any(Attributes::is_empty) {
            statuses.fill(INVALID_PARAMETER);
            return statuses;
        }
        match (self.method(object, Function::BulkSet), raw_ids(object, ids)) {
            (Ok(method), Ok(raw)) => {
                let list: Vec<sai_attribute_t> = attrs.iter().filter_map(Attributes::first).collect();
                #[expect(unsafe_code, reason = "a function of C")]
                // SAFETY: `sai_bulk_object_set_attribute_fn`, or the same with keys; arrays of as many items outlive the
                // call, and so do the lists of the attributes.
                let status = unsafe {
                    let method = std::mem::transmute::<*const c_void, BulkSet>(method);
                    let (len, mode) = (ids.len() as u32, i32::from(!stop_on_error));
                    method(len, raw.as_ptr(), list.as_ptr(), mode, statuses.as_mut_ptr())
                };
                agree(status, &mut statuses);
            }
            (_, Err(status)) => statuses.fill(status),
            (Err(_), _) => each(&mut statuses, stop_on_error, |n| self.set(object, ids[n], &attrs[n])),
        }
        statuses
    }

    /// Free entries of a type (`sai_object_type_get_availability`).
    ///
    /// # Errors
    /// The status of the library.
    pub fn available(&mut self, switch: u64, object: ObjectType, attrs: &Attributes) -> Result<u64, Failed> {
        let mut count = 0;
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: attributes and the result outlive the call.
        let status = unsafe {
            let (len, list) = (attrs.len() as u32, attrs.as_ptr());
            (self.exports.availability)(switch, object.number(), len, list, &raw mut count)
        };
        done(status).map(|()| count)
    }

    /// The type of an object; `None` for `SAI_OBJECT_TYPE_NULL`.
    pub fn object_type(&mut self, oid: u64) -> Option<ObjectType> {
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: a number; the library knows its own.
        let number = unsafe { (self.exports.type_query)(oid) };
        ObjectType::from_number(number)
    }

    /// Whether an attribute can be created, set and read (`sai_query_attribute_capability`).
    ///
    /// # Errors
    /// The status of the library.
    pub fn capability(&mut self, switch: u64, attribute: Attribute) -> Result<[bool; 3], Failed> {
        let mut raw = sai_attr_capability_t { create_implemented: 0, set_implemented: 0, get_implemented: 0 };
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: the result outlives the call.
        let status = unsafe {
            let object = attribute.object_type().number();
            (self.exports.capability)(switch, object, attribute.number(), &raw mut raw)
        };
        let sai_attr_capability_t { create_implemented, set_implemented, get_implemented } = raw;
        done(status).map(|()| [create_implemented, set_implemented, get_implemented].map(|flag| flag != 0))
    }

    /// The values of an enumeration that an attribute can have, if they are at most `room`.
    ///
    /// # Errors
    /// The status of the library, and the number of values with `SAI_STATUS_BUFFER_OVERFLOW`.
    pub fn enum_values(
        &mut self,
        switch: u64,
        attribute: Attribute,
        room: u32,
    ) -> Result<Vec<i32>, (Failed, u32)> {
        let mut values = vec![0i32; room as usize];
        let mut list = sai_object_list_t { count: room, list: values.as_mut_ptr().cast() };
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: the list has room for as many values as it says, and outlives the call.
        let status = unsafe {
            let object = attribute.object_type().number();
            (self.exports.enum_capability)(switch, object, attribute.number(), &raw mut list)
        };
        if status != SUCCESS {
            return Err((status, list.count));
        }
        values.truncate(list.count as usize);
        Ok(values)
    }

    /// The counters of a type, with the modes in which they can be read (`sai_query_stats_capability`).
    ///
    /// # Errors
    /// As [`Library::enum_values`].
    pub fn stats_capability(
        &mut self,
        switch: u64,
        object: ObjectType,
        room: u32,
    ) -> Result<Vec<(u32, u32)>, (Failed, u32)> {
        let mut stats = vec![sai_stat_capability_t { stat_enum: 0, stat_modes: 0 }; room as usize];
        let mut list = sai_object_list_t { count: room, list: stats.as_mut_ptr().cast() };
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: the list has room for as many counters as it says, and outlives the call.
        let status = unsafe { (self.exports.stats_capability)(switch, object.number(), &raw mut list) };
        if status != SUCCESS {
            return Err((status, list.count));
        }
        stats.truncate(list.count as usize);
        Ok(stats.iter().map(|stat| (stat.stat_enum, stat.stat_modes)).collect())
    }

    /// The values of counters (`sai_stat_id_t`) of an object with an id.
    ///
    /// # Errors
    /// The status of the library.
    pub fn stats(&mut self, object: ObjectType, oid: u64, counters: &[u32]) -> Result<Vec<u64>, Failed> {
        let method = self.method(object, Function::Stats)?;
        if object.is_entry() {
            return Err(NOT_SUPPORTED);
        }
        let mut values = vec![0; counters.len()];
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: every `sai_get_x_stats_fn` of an object with an id has this type; both arrays have as many items.
        let status = unsafe {
            let method = std::mem::transmute::<*const c_void, Stats>(method);
            method(oid, counters.len() as u32, counters.as_ptr(), values.as_mut_ptr())
        };
        done(status).map(|()| values)
    }

    /// The values of counters of an object with an id, which are zero then. Of a library that has no such mode they are
    /// read and then cleared, and what is counted between is lost.
    ///
    /// # Errors
    /// The status of the library.
    pub fn take_stats(&mut self, object: ObjectType, oid: u64, counters: &[u32]) -> Result<Vec<u64>, Failed> {
        match self.stats_ext(object, oid, counters, READ_AND_CLEAR) {
            Err(NOT_SUPPORTED | NOT_IMPLEMENTED) => {
                let values = self.stats(object, oid, counters)?;
                self.clear_stats(object, oid, counters).map(|()| values)
            }
            taken => taken,
        }
    }

    fn stats_ext(
        &mut self,
        object: ObjectType,
        oid: u64,
        counters: &[u32],
        mode: i32,
    ) -> Result<Vec<u64>, Failed> {
        let method = self.method(object, Function::StatsExt)?;
        if object.is_entry() {
            return Err(NOT_SUPPORTED);
        }
        let mut values = vec![0; counters.len()];
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: every `sai_get_x_stats_ext_fn` of an object with an id has this type; both arrays have as many items.
        let status = unsafe {
            let method = std::mem::transmute::<*const c_void, StatsExt>(method);
            method(oid, counters.len() as u32, counters.as_ptr(), mode, values.as_mut_ptr())
        };
        done(status).map(|()| values)
    }

    /// Sets counters of an object with an id to zero.
    ///
    /// # Errors
    /// The status of the library.
    pub fn clear_stats(&mut self, object: ObjectType, oid: u64, counters: &[u32]) -> Result<(), Failed> {
        let method = self.method(object, Function::ClearStats)?;
        if object.is_entry() {
            return Err(NOT_SUPPORTED);
        }
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: every `sai_clear_x_stats_fn` of an object with an id has this type; the array has as many items.
        let status = unsafe {
            let method = std::mem::transmute::<*const c_void, ClearStats>(method);
            method(oid, counters.len() as u32, counters.as_ptr())
        };
        done(status)
    }

    /// Removes the entries of the FDB that have these attributes (`SAI_FDB_FLUSH_ATTR_…`).
    ///
    /// # Errors
    /// The status of the library.
    pub fn flush_fdb(&mut self, switch: u64, attrs: &Attributes) -> Result<(), Failed> {
        let fdb = ObjectType::from_short_name("FDB_ENTRY").ok_or(NOT_SUPPORTED)?;
        let method = self.method(fdb, Function::Flush)?;
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: `sai_flush_fdb_entries_fn`; the attributes outlive the call.
        let status = unsafe {
            let method = std::mem::transmute::<*const c_void, Flush>(method);
            method(switch, attrs.len() as u32, attrs.as_ptr())
        };
        done(status)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a function of C")]
        // SAFETY: it was initialized, and nothing calls it any more.
        unsafe {
            (self.exports.uninitialize)();
        }
    }
}

/// The name of a status, or its number.
pub fn status_text(status: i32) -> String {
    ribtide_sai::status_name(status).map_or_else(|| status.to_string(), str::to_owned)
}

/// The reason of dlopen(3), without the words of the crate around it.
fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn done(status: i32) -> Result<(), Failed> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

/// A bulk that failed before its first object, and says so in its own status only: its objects get this status.
fn agree(status: i32, statuses: &mut [i32]) {
    if status != SUCCESS && statuses.iter().all(|status| *status == NOT_EXECUTED) {
        statuses.fill(status);
    }
}

/// Executes a bulk one by one.
fn each(statuses: &mut [i32], stop_on_error: bool, mut one: impl FnMut(usize) -> Result<(), Failed>) {
    for (n, status) in statuses.iter_mut().enumerate() {
        *status = one(n).err().unwrap_or(SUCCESS);
        if stop_on_error && *status != SUCCESS {
            break;
        }
    }
}

fn raw_key(object: ObjectType, key: &Key) -> Result<RawKeys, Failed> {
    RawKeys::new(object, [key]).map_err(|_| INVALID_PARAMETER)
}

/// The keys of objects that have one; `None` for objects with ids.
fn raw_keys(object: ObjectType, ids: &[Id<'_>]) -> Result<Option<RawKeys>, Failed> {
    if !object.is_entry() {
        return Ok(None);
    }
    let keys = ids.iter().map(|id| match id {
        Id::Key(key) => Ok(*key),
        Id::Oid(_) => Err(INVALID_PARAMETER),
    });
    let keys: Vec<&Key> = keys.collect::<Result<_, _>>()?;
    RawKeys::new(object, keys).map(Some).map_err(|_| INVALID_PARAMETER)
}

/// An array of object ids or of keys.
enum RawIds {
    Oids(Vec<u64>),
    Keys(RawKeys),
}

impl RawIds {
    fn as_ptr(&self) -> *const c_void {
        match self {
            RawIds::Oids(oids) => oids.as_ptr().cast(),
            RawIds::Keys(keys) => keys.as_ptr(),
        }
    }
}

fn raw_ids(object: ObjectType, ids: &[Id<'_>]) -> Result<RawIds, Failed> {
    if let Some(keys) = raw_keys(object, ids)? {
        return Ok(RawIds::Keys(keys));
    }
    let oids = ids.iter().map(|id| match id {
        Id::Oid(oid) => Ok(*oid),
        Id::Key(_) => Err(INVALID_PARAMETER),
    });
    oids.collect::<Result<_, _>>().map(RawIds::Oids)
}
