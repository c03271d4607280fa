//! `LABEL_ROUTE_TABLE`: what becomes of packets that arrive with an MPLS label.

use super::{Db, Field, LABEL_MAX, Name, Row, RowError, RowKey, Via};
use crate::format;
use std::sync::Arc;

/// Which label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LabelKey {
    /// Not a label: asks orchagent to hold work on labels (SET) and to apply the merged result (DEL).
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

/// A label's route as APPL_DB has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelRouteRow {
    /// Who made it. Only echoed. `None` when the row does not say.
    pub protocol: Option<Name>,
    /// Where it leads, and how many labels are taken off ([`Field::MplsPop`]).
    pub via: Arc<Via>,
}

/// What a row names when it names everything. Never an empty `mpls_pop`: SONiC's orchagent ends when it reads one.
const FIELDS: [Field; 6] =
    [Field::Blackhole, Field::Nexthop, Field::Ifname, Field::NexthopGroup, Field::MplsNh, Field::Weight];

impl Row for LabelRouteRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "LABEL_ROUTE_TABLE";
    type Key = LabelKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        self.via.write_fields(self.protocol.as_deref(), put);
    }

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
