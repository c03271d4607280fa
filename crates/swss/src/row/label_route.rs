//! `LABEL_ROUTE_TABLE`: routes of packets with an incoming MPLS label.

use super::{Db, Field, LABEL_MAX, Name, Row, RowError, RowKey, Via};
use crate::format;
use std::sync::Arc;

/// A key of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LabelKey {
    /// Not a label: begin (SET) and end (DEL) of a resync of labels. orchagent holds changes
    /// between the two and then applies the merged result.
    Resync,
    /// A label.
    Label(u32),
}

impl RowKey for LabelKey {
    fn write(&self, out: &mut String) {
        match self {
            LabelKey::Resync => out.push_str("resync"),
            LabelKey::Label(label) => format::decimal((*label).into(), out),
        }
    }

    fn parse(text: &str) -> Result<LabelKey, String> {
        if text == "resync" {
            return Ok(LabelKey::Resync);
        }
        let bad = |why: &str| format!("key \"{text}\" {why}");
        if text.starts_with("Vrf") {
            return Err(bad("is of a VRF, and labels are the switch's: a chip has one table of them"));
        }
        let label = Some(text).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let label = label.and_then(|text| text.parse().ok()).filter(|label| *label <= LABEL_MAX);
        label.map(LabelKey::Label).ok_or_else(|| bad("is not a label from 0 to 1048575"))
    }
}

/// A row of `LABEL_ROUTE_TABLE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelRouteRow {
    /// The routing protocol, which orchagent only echoes. `None` if absent.
    pub protocol: Option<Name>,
    /// The next hops, and the number of labels to pop ([`Field::MplsPop`]).
    pub via: Arc<Via>,
}

/// The fields that SONiC's fpmsyncd puts into each message, beside `protocol` and `mpls_pop`.
const FIELDS: [Field; 4] = [Field::Blackhole, Field::Nexthop, Field::Ifname, Field::MplsNh];

impl Row for LabelRouteRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "LABEL_ROUTE_TABLE";
    type Key = LabelKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        self.via.write_fields(self.protocol.as_deref(), put);
    }

    /// The six fields of SONiC's fpmsyncd, without an empty `mpls_pop`: SONiC's orchagent exits when it reads one. Other fields
    /// follow where the row has them, or had them in the row before (then they are empty).
    fn all_fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put("protocol", self.protocol.as_deref().unwrap_or(""));
        for field in FIELDS {
            let value = self.via.get(field);
            put(field.name(), if field == Field::Blackhole && value.is_empty() { "false" } else { value });
        }
        let pop = self.via.get(Field::MplsPop);
        if !pop.is_empty() {
            put(Field::MplsPop.name(), pop);
        }
        let others =
            self.via.named().filter(|(field, _)| !FIELDS.contains(field) && *field != Field::MplsPop);
        others.for_each(|(field, value)| put(field.name(), value));
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let (protocol, via) = Via::read_fields(fields, Some(Field::MplsPop));
        Ok(LabelRouteRow { protocol, via: Arc::new(via) })
    }

    fn merge(&mut self, newer: Self) {
        self.via = Via::merged(&self.via, newer.via);
        self.protocol = newer.protocol.or(self.protocol.take());
    }
}
