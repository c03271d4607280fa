//! Notifications of syncd: what the chip says by itself.
//!
//! Text as in sonic-sairedis (`sai_serialize_port_oper_status_ntf`, `meta/sai_serialize.cpp`): an array of
//! the notification's name and its data, which is JSON in turn. It goes out on the channel
//! `NOTIFICATIONS` of ASIC_DB, and over ZeroMQ as one message.

use super::text::{self, TextError};
use super::{Oid, OperStatus};
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
