//! SONiC's recordings (`lib/recorder.cpp` of sonic-swss, `lib/Recorder.cpp` of sonic-sairedis): each row that orchagent
//! read (`swss.rec`) and each exchange with syncd (`sairedis.rec`), a line each.
//!
//! Times are UTC. A hang-up signal makes the files be opened again, which is how log rotation works there. With `-A` a
//! thread of its own writes the file.

use super::Error;
use ribtide_runtime::date::date;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread;
use ribtide_swss::sai::notification::{PORT_STATE_CHANGE, PortState, port_states_data};
use ribtide_swss::sai::text::{row_fields, write_id, write_request};
use ribtide_swss::sai::{Attr, Item, ObjectType, SWITCH, SaiCall, SaiReply, SaiRequest, Verb, View};
use ribtide_swss::{Change, Row};
use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Chunks in the queue of the writing thread at most.
const CHUNKS_MAX: usize = 64;
/// The size of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// The name of an availability query in SONiC.
const AVAILABILITY: &str = "object_type_get_availability";

/// One recording.
pub struct Recording {
    out: Out,
    line: String,
}

/// The destination of lines.
enum Out {
    /// Into the file.
    Here(Log),
    /// A thread that writes the file, a chunk at a time.
    Thread(ring::Sender<Vec<u8>>, Vec<u8>),
}

/// The file.
struct Log {
    path: PathBuf,
    /// `None` after a failure, until the next hang-up signal: a full disk stops the recording, not
    /// the routes.
    file: Option<BufWriter<File>>,
    reopen: Arc<AtomicBool>,
}

impl Log {
    fn open(path: PathBuf) -> Result<Log, Error> {
        let file = append(&path)?;
        let reopen = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGHUP, reopen.clone())
            .map_err(|e| Error::new(format!("cannot prepare for log rotation: {e}")))?;
        Ok(Log { path, file: Some(file), reopen })
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(file) = &mut self.file
            && let Err(e) = file.write_all(bytes)
        {
            self.give_up(&format!("cannot write to {}: {e}", self.path.display()));
        }
    }

    fn flush(&mut self) {
        if let Some(Err(e)) = self.file.as_mut().map(BufWriter::flush) {
            self.give_up(&format!("cannot write to {}: {e}", self.path.display()));
        }
        if self.reopen.swap(false, Relaxed) {
            match append(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(e) => self.give_up(&e.to_string()),
            }
        }
    }

    fn give_up(&mut self, why: &str) {
        tracing::error!(target: target::ORCHAGENT, error = why, "the recording ends until the signal SIGHUP");
        self.file = None;
    }
}

impl Recording {
    /// Opens the file to append.
    pub(super) fn open(path: PathBuf) -> Result<Recording, Error> {
        Ok(Recording { out: Out::Here(Log::open(path)?), line: String::new() })
    }

    /// Opens the file to append, on a thread.
    pub(super) fn on_thread(path: PathBuf, rings: &Rings) -> Result<Recording, Error> {
        let mut log = Log::open(path)?;
        let (chunks, waiting) = rings.bounded::<Vec<u8>>(format!("to {}", log.path.display()), CHUNKS_MAX);
        let body = move || -> Result<Infallible, Closed> {
            loop {
                log.write(&waiting.recv()?);
                if waiting.is_empty() {
                    log.flush();
                }
            }
        };
        thread::spawn("recorder", body).map_err(Error::no_thread("to record on"))?;
        Ok(Recording { out: Out::Thread(chunks, Vec::with_capacity(CHUNK_BYTES)), line: String::new() })
    }

    /// Records a row: `TABLE:key|SET|field:value` or `|DEL`.
    pub(super) fn change<R: Row>(&mut self, change: &Change<R>) {
        self.begin();
        let line = &mut self.line;
        line.push_str(R::TABLE);
        line.push(R::DB.separator());
        R::key_text(&change.key, line);
        match &change.row {
            None => line.push_str("|DEL"),
            Some(row) => {
                line.push_str("|SET");
                row.fields(&mut |field, value| {
                    for text in ["|", field, ":", value] {
                        line.push_str(text);
                    }
                });
            }
        }
        self.end();
    }

    /// Records a request to syncd.
    pub(super) fn request(&mut self, request: &SaiRequest) {
        self.begin();
        let line = &mut self.line;
        match &request.call {
            SaiCall::One { verb, object, item } => {
                line.push_str(letter(*verb, false));
                line.push('|');
                line.push_str(object.name());
                line.push(':');
                describe(item, line);
            }
            SaiCall::Bulk { verb, object, items, .. } => {
                line.push_str(letter(*verb, true));
                line.push('|');
                line.push_str(object.name());
                for item in items {
                    line.push_str("||");
                    describe(item, line);
                }
            }
            SaiCall::Get { object, id, attrs } => {
                line.push_str("g|");
                line.push_str(object.name());
                line.push(':');
                describe(&Item { id: *id, attrs: attrs.iter().cloned().collect() }, line);
            }
            SaiCall::Available { object, attrs } => {
                line.push_str(&format!("q|{AVAILABILITY}|{}:{SWITCH}|", ObjectType::Switch.name()));
                attrs.iter().for_each(|attr| line.push_str(&format!("{attr}|")));
                line.push_str(&format!("OBJECT_TYPE={}", object.name()));
            }
            // orchagent makes but the first of these, after a restart of syncd.
            SaiCall::BulkGet { .. }
            | SaiCall::Entries { .. }
            | SaiCall::GetEntry { .. }
            | SaiCall::Query(_) => {
                let message = write_request(request);
                let op = message.op.get(1..).unwrap_or_default();
                line.push_str(&format!("q|{op}|{}|{}", message.key, message.value));
            }
            SaiCall::View(view) => line.push_str(match view {
                View::Init => "a|INIT_VIEW",
                View::Apply => "a|APPLY_VIEW",
            }),
        }
        self.end();
    }

    /// Records a reply with values or a failure.
    pub(super) fn reply(&mut self, reply: &SaiReply) {
        if reply.status.is_success() && reply.values.is_empty() {
            return;
        }
        self.begin();
        let line = &mut self.line;
        match reply.values.first() {
            None => line.push_str("E|"),
            Some(Attr::ObjectCount(_)) => line.push_str(&format!("Q|{AVAILABILITY}|")),
            Some(_) => line.push_str("G|"),
        }
        line.push_str(&reply.status.name());
        for attr in &reply.values {
            line.push_str(&format!("|{attr}"));
        }
        self.end();
    }

    /// Records link states that syncd reported.
    pub(super) fn port_states(&mut self, states: &[PortState]) {
        if !states.is_empty() {
            self.begin();
            self.line.push_str(&format!("n|{PORT_STATE_CHANGE}|{}|", port_states_data(states)));
            self.end();
        }
    }

    /// Writes everything to the file.
    pub(super) fn flush(&mut self) {
        match &mut self.out {
            Out::Here(log) => log.flush(),
            // An empty chunk, too: the thread may have to open the file again.
            Out::Thread(chunks, chunk) => drop(chunks.send(std::mem::take(chunk))),
        }
    }

    fn begin(&mut self) {
        self.line.clear();
        timestamp(SystemTime::now(), &mut self.line);
        self.line.push('|');
    }

    fn end(&mut self) {
        self.line.push('\n');
        let line = self.line.as_bytes();
        match &mut self.out {
            Out::Here(log) => log.write(line),
            Out::Thread(chunks, chunk) => {
                chunk.extend_from_slice(line);
                if chunk.len() >= CHUNK_BYTES {
                    // The thread ends only with this sender.
                    let _ = chunks.send(std::mem::replace(chunk, Vec::with_capacity(CHUNK_BYTES)));
                }
            }
        }
    }
}

fn append(path: &PathBuf) -> Result<BufWriter<File>, Error> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.map_err(|e| {
        Error::Configuration(format!(
            "cannot record to {}: {e}; name a directory with -d, or record nothing with -r 0",
            path.display()
        ))
    })?;
    Ok(BufWriter::with_capacity(256 << 10, file))
}

fn letter(verb: Verb, bulk: bool) -> &'static str {
    match (verb, bulk) {
        (Verb::Create, false) => "c",
        (Verb::Set, false) => "s",
        (Verb::Remove, false) => "r",
        (Verb::Create, true) => "C",
        (Verb::Set, true) => "S",
        (Verb::Remove, true) => "R",
    }
}

/// An object and its attributes, `|` between.
fn describe(item: &Item, line: &mut String) {
    write_id(&item.id, line);
    if !item.attrs.is_empty() {
        row_fields(&item.attrs, &mut |field, value| {
            for text in ["|", field, "=", value] {
                line.push_str(text);
            }
        });
    }
}

/// `YYYY-MM-DD.HH:MM:SS.uuuuuu`.
fn timestamp(at: SystemTime, out: &mut String) {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    out.push_str(&format!(
        "{year:04}-{month:02}-{day:02}.{hour:02}:{minute:02}:{:02}.{micros:06}",
        second % 60
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::RouteRow;
    use ribtide_swss::sai::{ErrorMode, NextHopType, Oid, RouteEntry, Status};
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01.00:00:00.000007"),
            (951_782_399, "2000-02-28.23:59:59.000007"),
            (951_782_400, "2000-02-29.00:00:00.000007"),
            (1_709_251_199, "2024-02-29.23:59:59.000007"),
            (1_764_547_200, "2025-12-01.00:00:00.000007"),
            (4_107_542_400, "2100-03-01.00:00:00.000007"),
        ] {
            let mut out = String::new();
            timestamp(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(7), &mut out);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn recorder_full_disk_stops_until_the_file_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = Recording::open("/dev/full".into()).unwrap();
        let reply = SaiReply::one(2, Status::ObjectInUse);
        recording.reply(&reply);
        recording.flush();
        recording.reply(&reply);
        recording.flush();
        let Out::Here(file) = &mut recording.out else { panic!() };
        assert!(file.file.is_none());
        file.path = dir.path().join("sairedis.rec");
        let path = file.path.clone();
        file.reopen.store(true, Relaxed);
        recording.flush();
        recording.reply(&reply);
        recording.flush();
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_thread_writes_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sairedis.rec");
        let mut recording = Recording::on_thread(path.clone(), &Rings::default()).unwrap();
        (0..5000).for_each(|id| recording.reply(&SaiReply::one(id, Status::ObjectInUse)));
        recording.flush();
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        let begin = std::time::Instant::now();
        while lines() < 5000 && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(lines(), 5000);
    }

    #[test]
    fn lines_are_sonics() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("swss.rec");
        let mut recording = Recording::open(path.clone()).unwrap();
        let key = RouteRow::parse_key("10.1.0.0/16").unwrap();
        let fields = [("protocol", "bgp"), ("nexthop", "10.0.0.1"), ("ifname", "Ethernet0")];
        let row = RouteRow::from_fields(&mut fields.into_iter()).unwrap();
        recording.change(&Change::set(key.clone(), row));
        recording.change(&Change::<RouteRow>::del(key));
        let entry =
            |dest: &str| RouteEntry { switch: SWITCH, vr: Oid(0x3000000000022), dest: dest.parse().unwrap() };
        let items = ["10.1.0.0/16", "10.2.0.0/16"].map(|d| Item::new(entry(d), [Attr::RouteNextHop(Oid(5))]));
        let bulk = SaiCall::Bulk {
            verb: Verb::Create,
            object: ObjectType::RouteEntry,
            items: items.into(),
            mode: ErrorMode::IgnoreError,
        };
        recording.request(&SaiRequest { id: 1, call: bulk });
        let one = SaiCall::One { verb: Verb::Remove, object: ObjectType::NextHop, item: Item::bare(Oid(5)) };
        recording.request(&SaiRequest { id: 2, call: one });
        recording.reply(&SaiReply::one(2, Status::ObjectInUse));
        let attrs = [Attr::NextHopKind(NextHopType::Mpls)].into_iter().collect();
        let call = SaiCall::Available { object: ObjectType::NextHop, attrs };
        recording.request(&SaiRequest { id: 3, call });
        let values = vec![Attr::ObjectCount(9)];
        recording.reply(&SaiReply { values, ..SaiReply::one(3, Status::Success) });
        recording.flush();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once('|').unwrap().1).collect();
        assert_eq!(
            lines,
            [
                "ROUTE_TABLE:10.1.0.0/16|SET|protocol:bgp|nexthop:10.0.0.1|ifname:Ethernet0",
                "ROUTE_TABLE:10.1.0.0/16|DEL",
                "C|SAI_OBJECT_TYPE_ROUTE_ENTRY||{\"dest\":\"10.1.0.0/16\",\"switch_id\":\"oid:0x21000000000000\",\
                 \"vr\":\"oid:0x3000000000022\"}|SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=oid:0x5||{\"dest\":\"10.2.0.0/16\",\
                 \"switch_id\":\"oid:0x21000000000000\",\"vr\":\"oid:0x3000000000022\"}|\
                 SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=oid:0x5",
                "r|SAI_OBJECT_TYPE_NEXT_HOP:oid:0x5",
                "E|SAI_STATUS_OBJECT_IN_USE",
                "q|object_type_get_availability|SAI_OBJECT_TYPE_SWITCH:oid:0x21000000000000|\
                 SAI_NEXT_HOP_ATTR_TYPE=SAI_NEXT_HOP_TYPE_MPLS|OBJECT_TYPE=SAI_OBJECT_TYPE_NEXT_HOP",
                "Q|object_type_get_availability|SAI_STATUS_SUCCESS|OBJECT_COUNT=9",
            ]
        );
    }
}
