//! Notifications of a library: its own threads call these functions, at any time.
//!
//! SAI's callbacks have no argument for the caller's data, so there is one store for the process. A callback never
//! waits for syncd: link states coalesce by port, and changes of the FDB by address ([`FdbQueue`]).

use crate::abi::{sai_attribute_t, sai_fdb_event_notification_data_t, sai_port_oper_status_notification_t};
use crate::convert::plain_value;
use ribtide_sai::{Attribute, ObjectType, Value};
use ribtide_swss::sai::notification::{FdbChange, FdbEvent};
use ribtide_swss::sai::{Attr, Attrs, FdbQueue, RawText};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// What wakes the thread that takes notifications.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What a library reported since the last time.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Notifications {
    /// The latest link state of each port that changed (`sai_port_oper_status_t`).
    pub ports: BTreeMap<u64, i32>,
    /// Changes of the FDB (`sai_fdb_event_notification_data_t`), in object ids of the library.
    pub fdb: FdbQueue,
    /// A number that is no `sai_fdb_event_t`, of the latest event with such a number.
    pub unknown_fdb_event: Option<i32>,
    /// The latest state of the switch (`sai_switch_oper_status_t`).
    pub switch_state: Option<i32>,
    /// Whether the library asks for a restart of the switch.
    pub shutdown: bool,
}

static WAITING: LazyLock<Mutex<(Option<Wake>, Notifications)>> = LazyLock::new(Mutex::default);

fn waiting() -> MutexGuard<'static, (Option<Wake>, Notifications)> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes what waits.
pub fn take() -> Notifications {
    std::mem::take(&mut waiting().1)
}

/// Sets what is called after each notification, and forgets those that wait.
pub fn wake_with(wake: Option<Wake>) {
    *waiting() = (wake, Notifications::default());
}

fn notify(note: impl FnOnce(&mut Notifications)) {
    let wake = {
        let mut waiting = waiting();
        note(&mut waiting.1);
        waiting.0.clone()
    };
    if let Some(wake) = wake {
        wake();
    }
}

/// Our function for an attribute of the switch that takes one; `None` for those without.
pub(crate) fn handler(attribute: Attribute) -> Option<*const c_void> {
    Some(match attribute.function()? {
        "sai_port_state_change_notification_fn" => port_state_change as *const c_void,
        "sai_fdb_event_notification_fn" => fdb_event as *const c_void,
        "sai_switch_state_change_notification_fn" => switch_state_change as *const c_void,
        "sai_switch_shutdown_request_notification_fn" => shutdown_request as *const c_void,
        _ => return None,
    })
}

/// An array of C; empty for a null pointer.
fn items<'a, T>(count: u32, data: *const T) -> &'a [T] {
    if data.is_null() {
        return &[];
    }
    #[expect(unsafe_code, reason = "an array of C")]
    // SAFETY: SAI's caller passes the address of so many structures, which stay as they are until the callback returns;
    // every pattern of bits is one. The slice is used inside of the callback only.
    unsafe {
        std::slice::from_raw_parts(data, count as usize)
    }
}

/// `sai_port_state_change_notification_fn`
extern "C" fn port_state_change(count: u32, data: *const sai_port_oper_status_notification_t) {
    let states = items(count, data).iter().map(|state| (state.port_id, state.port_state));
    notify(|waiting| waiting.ports.extend(states));
}

/// `sai_switch_state_change_notification_fn`
extern "C" fn switch_state_change(_switch: u64, state: i32) {
    notify(|waiting| waiting.switch_state = Some(state));
}

/// `sai_switch_shutdown_request_notification_fn`
extern "C" fn shutdown_request(_switch: u64) {
    notify(|waiting| waiting.shutdown = true);
}

/// `sai_fdb_event_notification_fn`
extern "C" fn fdb_event(count: u32, data: *const sai_fdb_event_notification_data_t) {
    let events: Vec<Result<FdbEvent, i32>> = items(count, data).iter().map(event).collect();
    notify(|waiting| {
        for event in events {
            match event {
                Ok(event) => waiting.fdb.push(event),
                Err(code) => waiting.unknown_fdb_event = Some(code),
            }
        }
    });
}

/// An event as text; the number of one that SAI does not have.
fn event(data: &sai_fdb_event_notification_data_t) -> Result<FdbEvent, i32> {
    let change = FdbChange::from_code(data.event_type).ok_or(data.event_type)?;
    let entry = data.fdb_entry;
    let key = vec![Value::Oid(entry.switch_id), Value::Mac(entry.mac_address), Value::Oid(entry.bv_id)];
    let mut text = String::new();
    if let Some(object) = ObjectType::from_short_name("FDB_ENTRY") {
        object.write_key(&key, &mut text);
    }
    let key = RawText::read(&text);
    let mut attrs = Attrs::new();
    for (attribute, value) in items(data.attr_count, data.attr).iter().filter_map(pair) {
        text.clear();
        attribute.write_value(&value, &mut text);
        attrs.extend(Attr::read(attribute.name(), &text));
    }
    Ok(FdbEvent { change, key, attrs })
}

/// An attribute of an entry of the FDB; none of them has a list.
fn pair(raw: &sai_attribute_t) -> Option<(Attribute, Value)> {
    let attribute = ObjectType::from_short_name("FDB_ENTRY")?.attribute(raw.id)?;
    Some((attribute, plain_value(attribute.value_type(), &raw.value)?))
}
