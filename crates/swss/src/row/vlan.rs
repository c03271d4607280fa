//! `VLAN_TABLE` and `VLAN_MEMBER_TABLE`: VLANs and their ports, as vlanmgrd writes them.

use super::{Db, Mac, MemberKey, Name, Row, RowError, put_values, value_of};

/// A row of `VLAN_TABLE`. The key is `Vlan` and the number. An absent field is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VlanRow {
    /// The administrative state.
    pub admin_up: Option<bool>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// The MAC address of its router interface.
    pub mac: Option<Mac>,
}

impl Row for VlanRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "VLAN_TABLE";
    type Key = Name;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let fields: [(_, Option<Name>); 3] = [
            ("admin_status", self.admin_up.map(|up| if up { "up" } else { "down" }.into())),
            ("mtu", self.mtu.map(|mtu| mtu.to_string().into())),
            ("mac", self.mac.map(|mac| mac.to_string().into())),
        ];
        put_values(fields, put);
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let mut row = VlanRow::default();
        for (field, value) in fields {
            match field {
                "admin_status" => row.admin_up = Some(value == "up"),
                "mtu" if !value.is_empty() => {
                    let bad = |_| RowError::new(Self::TABLE, format!("mtu \"{value}\" is not a number"));
                    row.mtu = Some(value.parse().map_err(bad)?);
                }
                "mac" if !value.is_empty() => row.mac = Some(value.parse()?),
                _ => {}
            }
        }
        Ok(row)
    }

    fn merge(&mut self, newer: Self) {
        *self = VlanRow {
            admin_up: newer.admin_up.or(self.admin_up),
            mtu: newer.mtu.or(self.mtu),
            mac: newer.mac.or(self.mac),
        };
    }
}

/// How a port sends packets of a VLAN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TaggingMode {
    /// Without a tag; packets without a tag that it receives are of this VLAN.
    #[default]
    Untagged,
    /// With a tag.
    Tagged,
    /// With a tag of VLAN 0.
    PriorityTagged,
}

impl TaggingMode {
    const ALL: [TaggingMode; 3] = [TaggingMode::Untagged, TaggingMode::Tagged, TaggingMode::PriorityTagged];

    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            TaggingMode::Untagged => "untagged",
            TaggingMode::Tagged => "tagged",
            TaggingMode::PriorityTagged => "priority_tagged",
        }
    }
}

/// A row of `VLAN_MEMBER_TABLE`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VlanMemberRow {
    /// `tagging_mode`; untagged without the field.
    pub tagging: TaggingMode,
}

impl Row for VlanMemberRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "VLAN_MEMBER_TABLE";
    type Key = MemberKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put("tagging_mode", self.tagging.name());
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let Some(value) = value_of(fields, "tagging_mode") else { return Ok(VlanMemberRow::default()) };
        let tagging = TaggingMode::ALL.into_iter().find(|mode| mode.name() == value);
        let bad = || {
            let what = format!("tagging_mode \"{value}\" is not untagged, tagged or priority_tagged");
            RowError::new(Self::TABLE, what)
        };
        Ok(VlanMemberRow { tagging: tagging.ok_or_else(bad)? })
    }
}
