//! `LAG_TABLE` and `LAG_MEMBER_TABLE`: port channels and their ports, as teammgrd and teamsyncd write
//! them.

use super::{Db, Name, Row, RowError, RowKey, put_values, value_of};

/// A row of `LAG_TABLE`. The key is the name, such as `PortChannel1`. An absent field is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LagRow {
    /// The administrative state.
    pub admin_up: Option<bool>,
    /// The state that the team device has.
    pub oper_up: Option<bool>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// The tag protocol of its VLAN tags.
    pub tpid: Option<u16>,
}

impl Row for LagRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "LAG_TABLE";
    type Key = Name;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let state = |up: Option<bool>| up.map(|up| if up { "up" } else { "down" }.into());
        let fields: [(_, Option<Name>); 4] = [
            ("admin_status", state(self.admin_up)),
            ("oper_status", state(self.oper_up)),
            ("mtu", self.mtu.map(|mtu| mtu.to_string().into())),
            ("tpid", self.tpid.map(|tpid| format!("{tpid:#06x}").into())),
        ];
        put_values(fields, put);
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let mut row = LagRow::default();
        for (field, value) in fields {
            let bad = |what: &str| RowError::new(Self::TABLE, format!("{field} \"{value}\" is not {what}"));
            match field {
                "admin_status" => row.admin_up = Some(value == "up"),
                "oper_status" => row.oper_up = Some(value == "up"),
                "mtu" if !value.is_empty() => {
                    row.mtu = Some(value.parse().map_err(|_| bad("a number"))?);
                }
                "tpid" if !value.is_empty() => {
                    let digits = value.strip_prefix("0x").map(|digits| u16::from_str_radix(digits, 16));
                    let tpid = digits.and_then(Result::ok);
                    row.tpid = Some(tpid.ok_or_else(|| bad("a hexadecimal number such as 0x8100"))?);
                }
                _ => {}
            }
        }
        Ok(row)
    }

    fn merge(&mut self, newer: Self) {
        *self = LagRow {
            admin_up: newer.admin_up.or(self.admin_up),
            oper_up: newer.oper_up.or(self.oper_up),
            mtu: newer.mtu.or(self.mtu),
            tpid: newer.tpid.or(self.tpid),
        };
    }
}

/// An object and one of its members: the key of `LAG_MEMBER_TABLE` and `VLAN_MEMBER_TABLE`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberKey {
    /// The LAG or VLAN.
    pub group: Name,
    /// The port, or for a VLAN also a LAG.
    pub member: Name,
}

impl RowKey for MemberKey {
    fn write(&self, out: &mut String) {
        out.push_str(&self.group);
        out.push(':');
        out.push_str(&self.member);
    }

    fn parse(text: &str) -> Result<MemberKey, String> {
        let parts = text.split_once(':').filter(|(group, member)| !group.is_empty() && !member.is_empty());
        let (group, member) = parts.ok_or_else(|| format!("key \"{text}\" is not NAME:MEMBER"))?;
        Ok(MemberKey { group: group.into(), member: member.into() })
    }
}

/// A row of `LAG_MEMBER_TABLE`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LagMemberRow {
    /// Whether LACP selected the port: `status` is `enabled`. Without the field it is not.
    pub enabled: bool,
}

impl Row for LagMemberRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "LAG_MEMBER_TABLE";
    type Key = MemberKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put("status", if self.enabled { "enabled" } else { "disabled" });
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        Ok(LagMemberRow { enabled: value_of(fields, "status") == Some("enabled") })
    }
}
