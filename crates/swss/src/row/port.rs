//! `PORT_TABLE`: the ports, and the two marker keys that say that all of them are there.

use super::{Db, FILLER, Name, Row, RowError};

/// A port, or a marker key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortKey {
    /// All ports were announced; the row says how many.
    ConfigDone,
    /// All host interfaces exist.
    InitDone,
    /// A port.
    Port(Name),
}

/// A port as APPL_DB has it. What a row does not say is `None`; values stay text where only the chip reads them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortRow {
    /// `PortConfigDone` only: how many ports there are.
    pub count: Option<u32>,
    /// Lanes of the chip, comma separated. `PortInitDone` carries `0`.
    pub lanes: Option<Name>,
    /// Megabits per second.
    pub speed: Option<u32>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// Whether the operator wants it up.
    pub admin_up: Option<bool>,
    /// Whether the link is up. Written back by orchagent.
    pub oper_up: Option<bool>,
    /// The front panel's name.
    pub alias: Option<Name>,
    /// The front panel's number.
    pub index: Option<u32>,
}

impl Row for PortRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "PORT_TABLE";
    type Key = PortKey;

    fn key_text(key: &PortKey, out: &mut String) {
        out.push_str(match key {
            PortKey::ConfigDone => "PortConfigDone",
            PortKey::InitDone => "PortInitDone",
            PortKey::Port(name) => name,
        });
    }

    fn parse_key(text: &str) -> Result<PortKey, RowError> {
        Ok(match text {
            "PortConfigDone" => PortKey::ConfigDone,
            "PortInitDone" => PortKey::InitDone,
            name => PortKey::Port(name.into()),
        })
    }

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let mut wrote = false;
        let mut text = |field: &str, value: Option<&str>| {
            if let Some(value) = value {
                wrote = true;
                put(field, value);
            }
        };
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let state = |up: Option<bool>| up.map(|up| if up { "up" } else { "down" });
        text("count", number(self.count).as_deref());
        text("lanes", self.lanes.as_deref());
        text("speed", number(self.speed).as_deref());
        text("alias", self.alias.as_deref());
        text("index", number(self.index).as_deref());
        text("mtu", number(self.mtu).as_deref());
        text("admin_status", state(self.admin_up));
        text("oper_status", state(self.oper_up));
        if !wrote {
            put(FILLER.0, FILLER.1);
        }
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let number = |field: &str, value: &str| {
            let bad = |_| RowError::new(Self::TABLE, format!("{field} \"{value}\" is not a number"));
            value.parse::<u32>().map(Some).map_err(bad)
        };
        let mut row = PortRow::default();
        for (field, value) in fields {
            match field {
                "count" => row.count = number(field, value)?,
                "lanes" => row.lanes = Some(value.into()),
                "speed" => row.speed = number(field, value)?,
                "alias" => row.alias = Some(value.into()),
                "index" => row.index = number(field, value)?,
                "mtu" => row.mtu = number(field, value)?,
                "admin_status" => row.admin_up = Some(value == "up"),
                "oper_status" => row.oper_up = Some(value == "up"),
                _ => {}
            }
        }
        Ok(row)
    }

    fn merge(&mut self, newer: Self) {
        let older = std::mem::take(self);
        *self = PortRow {
            count: newer.count.or(older.count),
            lanes: newer.lanes.or(older.lanes),
            speed: newer.speed.or(older.speed),
            mtu: newer.mtu.or(older.mtu),
            admin_up: newer.admin_up.or(older.admin_up),
            oper_up: newer.oper_up.or(older.oper_up),
            alias: newer.alias.or(older.alias),
            index: newer.index.or(older.index),
        };
    }
}
