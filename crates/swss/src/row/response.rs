//! Responses of orchagent to route changes (sonic-swss `response_publisher.cpp`): a message on a
//! channel of APPL_STATE_DB, and a row there.

use super::{Change, Db, Name, RouteKey, RouteRow, Row, RowError, put_values, value_of};
use crate::json;

/// The channel of [`RouteResponse`] messages.
pub const ROUTE_RESPONSE_CHANNEL: &str = "APPL_DB_ROUTE_TABLE_RESPONSE_CHANNEL";

/// The status of a programmed route.
const SUCCESS: &str = "SWSS_RC_SUCCESS";

/// The outcome of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteStatus {
    /// The chip has the change: `SWSS_RC_SUCCESS`.
    Success,
    /// The chip does not have it; the name of the status is the reason.
    Failed(Name),
}

impl RouteStatus {
    fn name(&self) -> &str {
        match self {
            RouteStatus::Success => SUCCESS,
            RouteStatus::Failed(name) => name,
        }
    }

    fn of(name: &str) -> RouteStatus {
        if name == SUCCESS { RouteStatus::Success } else { RouteStatus::Failed(name.into()) }
    }
}

/// The response to a change of one route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteResponse {
    /// The route; the message echoes its raw key.
    pub key: RouteKey,
    /// The outcome.
    pub status: RouteStatus,
    /// The protocol of the row; `None` for a deletion.
    pub protocol: Option<Name>,
}

impl RouteResponse {
    /// The response to a confirmed change.
    pub fn success(key: RouteKey, protocol: Option<Name>) -> Self {
        RouteResponse { key, status: RouteStatus::Success, protocol }
    }

    /// The response that accompanies a row of APPL_STATE_DB.
    pub fn of(confirmed: &Change<RouteStateRow>) -> Self {
        let protocol = confirmed.row.as_ref().and_then(|row| row.protocol.clone());
        RouteResponse::success(confirmed.key.clone(), protocol)
    }

    /// Whether the chip has the change.
    pub fn is_success(&self) -> bool {
        self.status == RouteStatus::Success
    }

    /// The message text for the channel.
    pub fn message(&self) -> String {
        let mut key = String::new();
        RouteRow::key_text(&self.key, &mut key);
        let status = self.status.name();
        let mut items = vec![status, &key, "err_str", status];
        if let Some(protocol) = &self.protocol {
            items.extend(["protocol", &**protocol]);
        }
        let mut out = String::new();
        json::write_strings(items.into_iter(), &mut out);
        out
    }

    /// Parses a message.
    ///
    /// # Errors
    /// A sentence when the message is not an array of strings with a status and a route.
    pub fn parse(message: &str) -> Result<RouteResponse, RowError> {
        let bad = |what: &str| RowError::new(ROUTE_RESPONSE_CHANNEL, format!("{what}: {message}"));
        let items = json::read_strings(message).ok_or_else(|| bad("not an array of strings"))?;
        let [_, key, fields @ ..] = items.as_slice() else { return Err(bad("no status and key")) };
        let mut status = None;
        let mut protocol = None;
        for pair in fields.chunks_exact(2) {
            match &*pair[0] {
                "err_str" => status = Some(RouteStatus::of(&pair[1])),
                "protocol" => protocol = Some((&*pair[1]).into()),
                _ => {}
            }
        }
        let status = status.ok_or_else(|| bad("no err_str"))?;
        Ok(RouteResponse { key: RouteRow::parse_key(key)?, status, protocol })
    }
}

/// A row of `ROUTE_TABLE` in APPL_STATE_DB: a programmed route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteStateRow {
    /// The protocol of the route.
    pub protocol: Option<Name>,
}

impl RouteStateRow {
    /// The change of APPL_STATE_DB for a confirmed route: a row with `protocol`, or a deletion
    /// without.
    pub fn confirmed(key: RouteKey, protocol: Option<Name>) -> Change<RouteStateRow> {
        let row = protocol.map(|protocol| RouteStateRow { protocol: Some(protocol) });
        Change { key, row, reshaped: false }
    }
}

impl Row for RouteStateRow {
    const DB: Db = Db::ApplState;
    const TABLE: &'static str = "ROUTE_TABLE";
    type Key = RouteKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put_values([("protocol", self.protocol.as_deref())], put);
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        Ok(RouteStateRow { protocol: value_of(fields, "protocol").map(Name::from) })
    }
}
