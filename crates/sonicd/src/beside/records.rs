//! What outlives ribtide's orchagent, in ASIC_DB: the object ids that it took, and the view of
//! SONiC's orchagent in progress. syncd reads neither out.

use crate::orchagent::RedisVids;
use crate::{Daemon, Error};
use ribtide_prefix::Set;
use ribtide_swss::Db;
use ribtide_swss::beside::{Beside, ViewRecord};
use ribtide_swss::json;
use ribtide_swss::orch::VidSource;
use ribtide_swss::sai::text::{Message, read_oid};
use ribtide_tables::Connection;
use std::ops::Range;

/// The list of the object ids that ribtide took: `FIRST-LAST`, both counted.
const VIDS: &str = "RIBTIDE_VIDS";
/// The list of [`ViewRecord`]s, each an array of strings.
const VIEW: &str = "RIBTIDE_VIEW";
const BEGUN: &str = "INIT_VIEW";
/// The interval of looks for ranges whose objects are gone.
const VIDS_INTERVAL_MS: u64 = 60_000;
/// Ranges that stay without a look.
const VIDS_KEPT: i64 = 16;

/// Object ids that are noted in ASIC_DB, so that the next run knows which objects are ribtide's.
pub(crate) struct RecordedVids {
    vids: RedisVids,
    record: Connection,
}

impl RecordedVids {
    pub(crate) fn open(daemon: &Daemon) -> Result<RecordedVids, Error> {
        Ok(RecordedVids { vids: RedisVids::open(daemon)?, record: daemon.connect(Db::Asic)? })
    }
}

impl VidSource for RecordedVids {
    fn take(&mut self, count: u64) -> Result<Range<u64>, String> {
        let range = self.vids.take(count)?;
        let text = format!("{}-{}", range.start, range.end.saturating_sub(1));
        // Before an object has one of them.
        self.record.query(&["RPUSH", VIDS, &text]).map_err(|e| e.to_string())?;
        Ok(range)
    }

    fn pass(&mut self, last: u64) -> Result<(), String> {
        self.vids.pass(last)
    }
}

/// A range of the list; an empty one for a text that ribtide does not write.
fn range(text: &str) -> Range<u64> {
    let parse = || {
        let (first, last) = text.split_once('-')?;
        Some(first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?)
    };
    parse().unwrap_or(0..0)
}

/// The records.
pub(super) struct Records {
    asic: Connection,
    /// The ranges of the last look: a younger one may be of objects that are not requested yet.
    known: Set<String>,
    next_look: u64,
}

impl Records {
    /// Opens the records, with the object ids that earlier runs took.
    pub(super) fn open(daemon: &Daemon) -> Result<(Records, Vec<Range<u64>>), Error> {
        let mut asic = daemon.connect(Db::Asic)?;
        let known: Set<String> = asic.query(&["LRANGE", VIDS, "0", "-1"])?.into_texts().into_iter().collect();
        let former = known.iter().map(|text| range(text)).filter(|range| !range.is_empty()).collect();
        Ok((Records { asic, known, next_look: 0 }, former))
    }

    /// The view that was in progress when the last run ended.
    pub(super) fn view(&mut self) -> Result<Vec<ViewRecord>, Error> {
        let texts = self.asic.query(&["LRANGE", VIEW, "0", "-1"])?.into_texts();
        Ok(texts.iter().filter_map(|text| read(text)).collect())
    }

    /// Writes records of a view. Call it before the requests and replies of the same output are sent:
    /// then no request is in a view that a later run does not know of, and SONiC's orchagent knows of
    /// the end of none that a later run waits for.
    pub(super) fn write(&mut self, records: &mut Vec<ViewRecord>) -> Result<(), Error> {
        for record in records.drain(..) {
            if !matches!(record, ViewRecord::Passed(..)) {
                self.asic.query(&["DEL", VIEW])?;
            }
            if let Some(text) = write(&record) {
                self.asic.query(&["RPUSH", VIEW, &text])?;
            }
        }
        Ok(())
    }

    /// Removes the ranges of ids that no object has any more, so that the list does not outgrow the
    /// objects. Once a minute, and at the start.
    pub(super) fn trim(&mut self, beside: &Beside, now_ms: u64) -> Result<(), Error> {
        if now_ms < self.next_look {
            return Ok(());
        }
        self.next_look = now_ms + VIDS_INTERVAL_MS;
        if self.asic.query(&["LLEN", VIDS])?.as_integer().is_none_or(|count| count <= VIDS_KEPT) {
            return Ok(());
        }
        let list = self.asic.query(&["LRANGE", VIDS, "0", "-1"])?.into_texts();
        let gone = unused(&mut self.known, list, |ranges| beside.unused_ids(ranges));
        self.asic.query_all(gone.iter().map(|text| ["LREM", VIDS, "1", text]))?;
        Ok(())
    }
}

/// Ranges of the list that go: those of the last look without an object. The others are `known` at
/// the next look.
fn unused(
    known: &mut Set<String>,
    list: Vec<String>,
    unused: impl FnOnce(&[Range<u64>]) -> Vec<bool>,
) -> Vec<String> {
    let ranges: Vec<Range<u64>> = list.iter().map(|text| range(text)).collect();
    let unused = unused(&ranges);
    let former = std::mem::take(known);
    let mut gone = Vec::new();
    for (text, unused) in list.into_iter().zip(unused) {
        if unused && former.contains(&text) {
            gone.push(text);
        } else {
            known.insert(text);
        }
    }
    gone
}

fn write(record: &ViewRecord) -> Option<String> {
    let mut text = String::new();
    match record {
        ViewRecord::Begun { default_router, cpu_port } => {
            let oids = [default_router.to_string(), cpu_port.to_string()];
            json::write_strings([BEGUN, &*oids[0], &*oids[1]].into_iter(), &mut text);
        }
        ViewRecord::Passed(request, reply) => {
            let strings = [request, reply].map(|message| [&*message.key, &*message.value, &*message.op]);
            json::write_strings(strings.into_iter().flatten(), &mut text);
        }
        ViewRecord::Ended => return None,
    }
    Some(text)
}

fn read(text: &str) -> Option<ViewRecord> {
    let strings = json::read_strings(text)?;
    let message = |strings: &[std::borrow::Cow<'_, str>]| match strings {
        [key, value, op] => {
            Some(Message { key: key.to_string(), value: value.to_string(), op: op.to_string().into() })
        }
        _ => None,
    };
    match strings.as_slice() {
        [begun, router, port] if begun == BEGUN => {
            Some(ViewRecord::Begun { default_router: read_oid(router)?, cpu_port: read_oid(port)? })
        }
        [request @ .., _, _, _] if request.len() == 3 => {
            Some(ViewRecord::Passed(message(request)?, message(strings.get(3..)?)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::sai::{ObjectType, Oid};

    #[test]
    fn view_records_are_read_as_they_were_written() {
        let message = |key: &str, value: &str, op: &'static str| Message {
            key: key.into(),
            value: value.into(),
            op: op.into(),
        };
        let records = [
            ViewRecord::Begun { default_router: Oid::vid(ObjectType::VirtualRouter, 3), cpu_port: Oid::NULL },
            ViewRecord::Passed(
                message(
                    "SAI_OBJECT_TYPE_VLAN:oid:0x26000000000901",
                    r#"["SAI_VLAN_ATTR_VLAN_ID","100"]"#,
                    "Screate",
                ),
                message("SAI_STATUS_SUCCESS", r#"["a \"quoted\" text"]"#, "Sgetresponse"),
            ),
        ];
        for record in records {
            assert_eq!(read(&write(&record).unwrap()), Some(record));
        }
        assert_eq!(write(&ViewRecord::Ended), None);
        for text in ["", "[]", r#"["INIT_VIEW"]"#, r#"["a","b","c","d"]"#, "{}"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn ranges_without_an_object_go_at_the_second_look() {
        let list = || ["1-4", "5-8", "9-9", "text"].map(str::to_owned).to_vec();
        let has = |ranges: &[Range<u64>]| ranges.iter().map(|range| !range.contains(&6)).collect();
        let mut known = Set::default();
        assert!(unused(&mut known, list(), has).is_empty(), "they may be of objects to come");
        assert_eq!(unused(&mut known, list(), has), ["1-4", "9-9", "text"]);
        let rest = vec!["5-8".to_owned(), "10-1033".to_owned()];
        assert!(unused(&mut known, rest.clone(), has).is_empty());
        let none = |ranges: &[Range<u64>]| vec![true; ranges.len()];
        assert_eq!(unused(&mut known, rest, none), ["5-8", "10-1033"]);
    }
}
