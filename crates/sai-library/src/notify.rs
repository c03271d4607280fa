//! Notifications of a library: its own threads call these functions, at any time.
//!
//! SAI's callbacks have no argument for the caller's data, so there is one store for the process. A callback never
//! waits for syncd: link states coalesce by port, and events of the FDB have a bound, beyond which they are counted.

use crate::abi::{sai_attribute_t, sai_fdb_event_notification_data_t, sai_port_oper_status_notification_t};
use crate::convert::plain_value;
use ribtide_sai::{Attribute, Key, ObjectType, Value};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events of the FDB that wait at most: a table of MAC addresses that is learnt at once.
pub const FDB_EVENTS_MAX: usize = 65_536;

/// What wakes the thread that takes notifications.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// An event of the FDB (`sai_fdb_event_notification_data_t`), in object ids of the library.
#[derive(Clone, PartialEq, Debug)]
pub struct FdbEvent {
    /// `sai_fdb_event_t`
    pub event: i32,
    /// The key of the entry.
    pub key: Key,
    /// Its attributes.
    pub attrs: Vec<(Attribute, Value)>,
}

/// What a library reported since the last time.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Notifications {
    /// The latest link state of each port that changed (`sai_port_oper_status_t`).
    pub ports: BTreeMap<u64, i32>,
    /// Events of the FDB, in order.
    pub fdb: Vec<FdbEvent>,
    /// Events of the FDB that were dropped, since [`FDB_EVENTS_MAX`] waited.
    pub dropped: u64,
    /// The latest state of the switch (`sai_switch_oper_status_t`).
    pub switch_state: Option<i32>,
    /// Whether the library asks for a restart of the switch.
    pub shutdown: bool,
}

static WAITING: Mutex<(Option<Wake>, Notifications)> = Mutex::new((
    None,
    Notifications {
        ports: BTreeMap::new(),
        fdb: Vec::new(),
        dropped: 0,
        switch_state: None,
        shutdown: false,
    },
));

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
    let events: Vec<FdbEvent> = items(count, data).iter().map(event).collect();
    notify(|waiting| {
        let room = FDB_EVENTS_MAX.saturating_sub(waiting.fdb.len());
        waiting.dropped += events.len().saturating_sub(room) as u64;
        waiting.fdb.extend(events.into_iter().take(room));
    });
}

fn event(data: &sai_fdb_event_notification_data_t) -> FdbEvent {
    let entry = data.fdb_entry;
    let key = vec![Value::Oid(entry.switch_id), Value::Mac(entry.mac_address), Value::Oid(entry.bv_id)];
    let attrs = items(data.attr_count, data.attr).iter().filter_map(pair).collect();
    FdbEvent { event: data.event_type, key, attrs }
}

/// An attribute of an entry of the FDB; none of them has a list.
fn pair(raw: &sai_attribute_t) -> Option<(Attribute, Value)> {
    let attribute = ObjectType::from_short_name("FDB_ENTRY")?.attribute(raw.id)?;
    Some((attribute, plain_value(attribute.value_type(), &raw.value)?))
}
