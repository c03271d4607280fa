//! `PORT_TABLE`: the ports, and two marker keys that announce that the table is complete.

use super::{Db, Name, Row, RowError, RowKey, put_values};

/// A port, or a marker key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortKey {
    /// `PortConfigDone`: all ports were announced; the row has their number.
    ConfigDone,
    /// `PortInitDone`: all host interfaces exist.
    InitDone,
    /// A port.
    Port(Name),
}

impl RowKey for PortKey {
    fn write(&self, out: &mut String) {
        out.push_str(match self {
            PortKey::ConfigDone => "PortConfigDone",
            PortKey::InitDone => "PortInitDone",
            PortKey::Port(name) => name,
        });
    }

    fn parse(text: &str) -> Result<PortKey, String> {
        Ok(match text {
            "PortConfigDone" => PortKey::ConfigDone,
            "PortInitDone" => PortKey::InitDone,
            name => PortKey::Port(name.into()),
        })
    }
}

/// A row of `PORT_TABLE`. An absent field is `None`. Values stay text where only the chip reads
/// them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortRow {
    /// `PortConfigDone` only: the number of ports.
    pub count: Option<u32>,
    /// Lanes of the chip, separated by commas. `PortInitDone` has `0`.
    pub lanes: Option<Name>,
    /// Megabits per second.
    pub speed: Option<u32>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// The administrative state.
    pub admin_up: Option<bool>,
    /// The link state, which orchagent writes back.
    pub oper_up: Option<bool>,
    /// The name on the front panel.
    pub alias: Option<Name>,
    /// The number on the front panel.
    pub index: Option<u32>,
    /// How often the link state has changed; orchagent writes it.
    pub flap_count: Option<u64>,
}

impl PortRow {
    /// The row of a port whose link is up, with these lanes of the chip, as SONiC's portsyncd writes it.
    pub fn up(lanes: &[u32], speed: u32) -> PortRow {
        let lanes = lanes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        PortRow {
            lanes: Some(lanes.into()),
            speed: Some(speed),
            admin_up: Some(true),
            oper_up: Some(true),
            ..PortRow::default()
        }
    }
}

impl Row for PortRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "PORT_TABLE";
    type Key = PortKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let number = |n: Option<u32>| n.map(|n| n.to_string().into());
        let state = |up: Option<bool>| up.map(|up| if up { "up" } else { "down" }.into());
        let fields: [(_, Option<Name>); 9] = [
            ("count", number(self.count)),
            ("lanes", self.lanes.clone()),
            ("speed", number(self.speed)),
            ("alias", self.alias.clone()),
            ("index", number(self.index)),
            ("mtu", number(self.mtu)),
            ("admin_status", state(self.admin_up)),
            ("oper_status", state(self.oper_up)),
            ("flap_count", self.flap_count.map(|count| count.to_string().into())),
        ];
        put_values(fields, put);
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
                // Only orchagent writes it; another value counts as none.
                "flap_count" => row.flap_count = value.parse().ok(),
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
            flap_count: newer.flap_count.or(older.flap_count),
        };
    }
}
