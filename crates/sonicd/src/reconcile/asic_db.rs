//! The rows of ASIC_DB: the truth is what orchagent requested of this syncd and the chip took.

use super::mirror::{Found, KeyOf, Mirror, Reader, Scanned, WantedRow, difference};
use crate::Error;
use crate::syncd_stage::SyncdStage;
use ribtide_swss::sai::{Attr, Audit, ObjectId, ObjectType, text};
use ribtide_swss::syncd::{AsicRow, Difference, RowCursor, SyncdOut};
use ribtide_tables::{Connection, Database, Reply};
use ribtide_vswitch::VirtualSwitch;

const ASIC_STATE: &str = "ASIC_STATE";
/// The keys that a syncd with rows has beside them.
const BESIDE_ROWS: [&str; 3] = ["EXISTS", "VIDTORID", "RIDTOVID"];

/// A row by its type and id.
type Key = (ObjectType, ObjectId);

/// A row of ASIC_STATE.
pub(crate) struct Wanted(pub(super) AsicRow);

impl WantedRow for Wanted {
    type Key = Key;

    fn key(&self) -> &Key {
        &self.0.0
    }

    fn is(&self, found: &[(&str, &str)]) -> bool {
        is(&self.0.1, found)
    }

    fn compares_as(&self, other: &Wanted) -> bool {
        self.0.1 == other.0.1
    }
}

/// Whether the fields are those of a row with these attributes, in any order.
fn is<T: AsRef<str>>(attrs: &[Attr], found: &[(T, T)]) -> bool {
    // A row that once had no attributes keeps its filler.
    let filler = |(name, _): &&(T, T)| name.as_ref() == "NULL";
    let (mut fields, mut same, mut value) = (0, !found.is_empty(), String::new());
    for attr in attrs {
        fields += 1;
        value.clear();
        attr.write_value(&mut value);
        same &= found.iter().any(|(field, text)| field.as_ref() == attr.name() && text.as_ref() == value);
    }
    same && fields == found.iter().filter(|field| !filler(field)).count()
}

/// How the rows are read. `others`: a connection for the keys beside them.
pub(crate) fn reader(connection: Connection, mut others: Connection) -> Reader<Key, bool> {
    let write_name = |database: &Database, (object, id): &Key, out: &mut String| {
        database.write_key_prefix(ASIC_STATE, out);
        text::write_row_key(*object, id, out);
    };
    let prefix = connection.database().key(ASIC_STATE, "");
    Reader {
        table: |_| "ASIC_DB ASIC_STATE",
        connection,
        write_name,
        queue: None,
        scanned: Some(Scanned {
            pattern: format!("{prefix}*"),
            tables: vec![(ASIC_STATE, prefix)],
            is_other_format: |_, _| false,
        }),
        why: Difference::why,
        producer: Box::new(move |_| Ok(others.query(&BESIDE_ROWS)? == Reply::Integer(2))),
    }
}

impl Mirror for SyncdStage {
    type Row = Wanted;
    type Cursor = RowCursor<<VirtualSwitch as Audit>::Cursor>;
    /// Whether syncd's keys beside the rows are there.
    type Producer = bool;

    fn page(&mut self, from: Self::Cursor, count: usize) -> Option<(Vec<Wanted>, Option<Self::Cursor>)> {
        let (rows, next) = self.syncd.rows(from, count)?;
        Some((rows.into_iter().map(Wanted).collect(), next))
    }

    fn unmatched(&mut self, _: &'static str, names: Vec<String>) -> Vec<Key> {
        if self.syncd.in_view() {
            return Vec::new();
        }
        // A key that is no object is not syncd's.
        let keys = names.iter().filter_map(|name| text::read_row_key(name).ok());
        keys.filter(|(object, id)| self.syncd.attrs(*object, id).is_none()).collect()
    }

    fn watch(&mut self, keys: &mut Vec<Key>) -> u64 {
        self.syncd.watch(keys.iter().map(|(_, id)| *id));
        self.rows().0
    }

    fn is_written(&mut self, fence: u64) -> Result<bool, Error> {
        Ok(self.rows().1 >= fence)
    }

    fn repair(
        &mut self,
        found: Vec<(KeyOf<Self>, Found)>,
        has_others: bool,
    ) -> Result<Vec<(Key, Difference)>, Error> {
        // Another program emptied the database: rows alone are not what is missing.
        if !has_others {
            self.note_emptied();
        }
        let (mut out, mut repaired) = (SyncdOut::default(), Vec::new());
        for ((object, id), found) in found {
            let wanted = self.syncd.attrs(object, &id);
            let differs = wanted.map_or(!found.is_empty(), |attrs| !is(attrs, &found));
            let wanted = wanted.is_some();
            if !differs || !self.syncd.is_watched(&id) || self.syncd.in_view() {
                continue;
            }
            self.syncd.row_again(object, id, &mut out);
            repaired.push(((object, id), difference(wanted, &found)));
        }
        self.write_rows(out)?;
        Ok(repaired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::sai::PacketAction;

    #[test]
    fn row_without_attributes_is_missing_where_no_field_is_found() {
        let bare = [];
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert!(!is::<&str>(&bare, &[]));
        assert!(is(&bare, &[pair("NULL", "NULL")]));
        assert!(!is(&bare, &[pair("NULL", "NULL"), pair("SAI_X", "1")]));
        let drops = Attr::RoutePacketAction(PacketAction::Drop);
        let (name, mut value) = (drops.name().to_string(), String::new());
        drops.write_value(&mut value);
        let row = [drops];
        assert!(is(&row, &[pair("NULL", "NULL"), pair(&name, &value)]));
        assert!(!is(&row, &[pair(&name, "SAI_PACKET_ACTION_FORWARD")]));
        assert!(!is::<&str>(&row, &[]));
    }
}
