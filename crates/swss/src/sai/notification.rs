//! Notifications of syncd: what the chip says by itself.
//!
//! Text as in sonic-sairedis (`sai_serialize_port_oper_status_ntf`, `meta/sai_serialize.cpp`): an array of
//! the notification's name and its data, which is JSON in turn. It goes out on the channel
//! `NOTIFICATIONS` of ASIC_DB, and over ZeroMQ as one message.

use super::text::{self, TextError};
use super::{Attrs, Oid, OperStatus, RawText};
use crate::json;

/// The name of the notification of link states.
pub const PORT_STATE_CHANGE: &str = "port_state_change";
/// The attribute of the switch with which a client of SAI asks for it: a pointer to its handler.
pub const PORT_STATE_CHANGE_NOTIFY: &str = "SAI_SWITCH_ATTR_PORT_STATE_CHANGE_NOTIFY";
/// The attribute with which it asks for the notification that the switch has lost its objects.
pub const SHUTDOWN_REQUEST_NOTIFY: &str = "SAI_SWITCH_ATTR_SWITCH_SHUTDOWN_REQUEST_NOTIFY";

/// The link state of a port (`sai_port_oper_status_notification_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortState {
    /// The port: a VID in a message, a RID at the chip.
    pub port: Oid,
    /// Its link state.
    pub status: OperStatus,
}

/// The name of the notification of changes of the FDB.
pub const FDB_EVENT: &str = "fdb_event";

/// A change of the FDB (`sai_fdb_event_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FdbChange {
    /// A packet of a new address came.
    Learned,
    /// No packet of the address came for the aging time.
    Aged,
    /// A packet of a known address came by another port.
    Moved,
    /// A flush removed it: this entry, or, without an address, those of the event's port, VLAN, or both.
    Flushed,
}

impl FdbChange {
    const ALL: [(FdbChange, i32, &str); 4] = [
        (FdbChange::Learned, 0, "SAI_FDB_EVENT_LEARNED"),
        (FdbChange::Aged, 1, "SAI_FDB_EVENT_AGED"),
        (FdbChange::Moved, 2, "SAI_FDB_EVENT_MOVE"),
        (FdbChange::Flushed, 3, "SAI_FDB_EVENT_FLUSHED"),
    ];

    /// The change with SAI's number; `None` for a number that SAI does not have.
    pub fn from_code(code: i32) -> Option<FdbChange> {
        FdbChange::ALL.iter().find(|(_, of, _)| *of == code).map(|(change, ..)| *change)
    }

    /// SAI's name.
    pub fn name(self) -> &'static str {
        FdbChange::ALL.iter().find(|(change, ..)| *change == self).map_or("", |(.., name)| name)
    }
}

/// A change of the FDB (`sai_fdb_event_notification_data_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FdbEvent {
    /// The change.
    pub change: FdbChange,
    /// The key of the entry, as JSON with its members in the order of sairedis.
    pub key: RawText,
    /// The attributes that the event has: the bridge port, as a rule.
    pub attrs: Attrs,
}

/// The message with these changes of the FDB (`sai_serialize_fdb_event_ntf`).
pub fn write_fdb_event(events: &[FdbEvent]) -> String {
    let mut data = String::from("[");
    for (n, FdbEvent { change, key, attrs }) in events.iter().enumerate() {
        data.push_str(if n == 0 { "{\"fdb_entry\":" } else { ",{\"fdb_entry\":" });
        json::write_string(&key.to_string(), &mut data);
        data.push_str(",\"fdb_event\":\"");
        data.push_str(change.name());
        data.push_str("\",\"list\":[");
        for (n, attr) in attrs.iter().enumerate() {
            data.push_str(if n == 0 { "{\"id\":" } else { ",{\"id\":" });
            json::write_string(attr.name(), &mut data);
            data.push_str(",\"value\":");
            json::write_string(&attr.value(), &mut data);
            data.push('}');
        }
        data.push_str("]}");
    }
    data.push(']');
    let mut message = String::new();
    json::write_strings([FDB_EVENT, &data].into_iter(), &mut message);
    message
}

/// The message with these link states.
pub fn write_port_state_change(states: &[PortState]) -> String {
    let mut message = String::new();
    json::write_strings([PORT_STATE_CHANGE, &port_states_data(states)].into_iter(), &mut message);
    message
}

/// The data of the message, as `sairedis.rec` has it.
pub fn port_states_data(states: &[PortState]) -> String {
    let mut data = String::from("[");
    for (n, PortState { port, status }) in states.iter().enumerate() {
        data.push_str(if n == 0 { "{\"port_id\":\"" } else { ",{\"port_id\":\"" });
        port.format(&mut data);
        data.push_str("\",\"port_state\":\"");
        data.push_str(status.name());
        data.push_str("\",\"port_error_status\":\"SAI_PORT_ERROR_STATUS_CLEAR\"}");
    }
    data.push(']');
    data
}

/// The link states of a message; `None` for another notification. Fields that are not known are
/// ignored.
///
/// # Errors
/// A sentence, when the data of a `port_state_change` is not what SONiC's syncd sends.
pub fn read_port_state_change(message: &str) -> Option<Result<Vec<PortState>, TextError>> {
    let parts = json::read_strings(message)?;
    (parts.first()? == PORT_STATE_CHANGE).then(|| {
        let data = parts.get(1).map_or("", |data| data);
        read_states(data).ok_or_else(|| {
            text::error(format!("{PORT_STATE_CHANGE} has data that is no list of ports and their states"))
        })
    })
}

fn read_states(data: &str) -> Option<Vec<PortState>> {
    let states = json::read_objects(data)?;
    let state = |fields: json::Fields<'_>| {
        let get = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value);
        let port = text::read_oid(get("port_id")?)?;
        Some(PortState { port, status: OperStatus::from_name(get("port_state")?)? })
    };
    states.into_iter().map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of SONiC's syncd when the link of Ethernet0 goes down, as recorded.
    const RECORDED: &str = r#"["port_state_change","[{\"port_id\":\"oid:0x1000000000002\",\"port_state\":\"SAI_PORT_OPER_STATUS_DOWN\",\"port_error_status\":\"SAI_PORT_ERROR_STATUS_CLEAR\"}]"]"#;

    #[test]
    fn port_state_change_is_written_as_recorded_and_read_back() {
        let states = [PortState { port: Oid(0x1000000000002), status: OperStatus::Down }];
        assert_eq!(write_port_state_change(&states), RECORDED);
        assert_eq!(read_port_state_change(RECORDED).unwrap().unwrap(), states);
        let both = [states[0], PortState { port: Oid(0x1000000000003), status: OperStatus::Up }];
        assert_eq!(read_port_state_change(&write_port_state_change(&both)).unwrap().unwrap(), both);
        assert_eq!(read_port_state_change(&write_port_state_change(&[])).unwrap().unwrap(), []);
    }

    /// As `sai_serialize_fdb_event_ntf` writes it: members in the order of their names, and the entry as a string.
    #[test]
    fn fdb_event_is_written_as_sairedis_does() {
        let key =
            r#"{"bvid":"oid:0x26000000000001","mac":"02:00:00:00:00:01","switch_id":"oid:0x21000000000000"}"#;
        let port = super::super::Attr::raw("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", "oid:0x3a000000000002");
        let event = FdbEvent {
            change: FdbChange::Learned,
            key: RawText::read(key),
            attrs: [port].into_iter().collect(),
        };
        let message = write_fdb_event(&[event]);
        let parts = json::read_strings(&message).unwrap();
        assert_eq!(parts[0], "fdb_event");
        assert_eq!(
            parts[1],
            r#"[{"fdb_entry":"{\"bvid\":\"oid:0x26000000000001\",\"mac\":\"02:00:00:00:00:01\",\"switch_id\":\"oid:0x21000000000000\"}","fdb_event":"SAI_FDB_EVENT_LEARNED","list":[{"id":"SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID","value":"oid:0x3a000000000002"}]}]"#
        );
        assert_eq!(write_fdb_event(&[]), r#"["fdb_event","[]"]"#);
        let changes = (0..5).map(|code| FdbChange::from_code(code).map(FdbChange::name));
        assert_eq!(
            changes.collect::<Vec<_>>(),
            [
                Some("SAI_FDB_EVENT_LEARNED"),
                Some("SAI_FDB_EVENT_AGED"),
                Some("SAI_FDB_EVENT_MOVE"),
                Some("SAI_FDB_EVENT_FLUSHED"),
                None
            ]
        );
    }

    #[test]
    fn port_state_change_with_other_data_is_an_error_and_other_notifications_are_none() {
        for message in ["", "[]", "{}", r#"["switch_shutdown_request","{}"]"#, r#"["fdb_event","[]"]"#] {
            assert!(read_port_state_change(message).is_none(), "{message}");
        }
        for data in [
            "",
            "{}",
            "[{}]",
            "[1]",
            r#"[{\"port_id\":\"oid:0x1\"}]"#,
            r#"[{\"port_id\":\"1\",\"port_state\":\"SAI_PORT_OPER_STATUS_UP\"}]"#,
            "[[]]",
        ] {
            let message = format!(r#"["port_state_change","{data}"]"#);
            assert!(read_port_state_change(&message).unwrap().is_err(), "{message}");
        }
    }
}
