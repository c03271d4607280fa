//! Rounds of comparisons: a database of a stage that a test scripts, the rows of ASIC_DB, and the chip.

use super::mirror::{Found, KeyOf, Mirror, Queue, Reader, Reconciler, Scanned, WantedRow, difference};
use super::*;
use crate::redis_server::Server;
use ribtide_runtime::call;
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_swss::syncd::Difference;
use ribtide_tables::Hash;

/// A row with one field.
struct Wanted(String);

impl WantedRow for Wanted {
    type Key = String;

    fn key(&self) -> &String {
        &self.0
    }

    fn is(&self, found: &[(&str, &str)]) -> bool {
        found == [("field", "value")]
    }
}

/// A stage with some rows, of which each page has two. It writes a row late if a test says so.
struct Scripted {
    rows: Vec<&'static str>,
    connection: Connection,
    /// A row that the stage writes when it is asked for the second time whether the fence is past.
    late: Option<&'static str>,
    asked: usize,
    repaired: Vec<(String, Difference)>,
}

impl Mirror for Scripted {
    type Row = Wanted;
    type Cursor = usize;
    type Producer = ();

    fn page(&mut self, from: usize, _: usize) -> Option<(Vec<Wanted>, Option<usize>)> {
        let page = self.rows[from..].iter().take(2).map(|key| Wanted((*key).to_owned())).collect();
        Some((page, Some(from + 2).filter(|next| *next < self.rows.len())))
    }

    fn unmatched(&mut self, _: &'static str, names: Vec<String>) -> Vec<String> {
        names.into_iter().filter(|name| !self.rows.contains(&name.as_str())).collect()
    }

    fn watch(&mut self, _: &mut Vec<String>) -> u64 {
        self.asked = 0;
        0
    }

    fn is_written(&mut self, _: u64) -> Result<bool, crate::Error> {
        self.asked += 1;
        if self.asked == 2
            && let Some(key) = self.late
        {
            self.connection.query(&["HSET", &format!("TABLE:{key}"), "field", "value"])?;
        }
        Ok(self.late.is_none() || self.asked >= 2)
    }

    fn repair(
        &mut self,
        found: Vec<(KeyOf<Self>, Found)>,
        (): (),
    ) -> Result<Vec<(String, Difference)>, crate::Error> {
        let differs = |(key, found): (String, Found)| {
            let wanted = self.rows.contains(&key.as_str());
            let fields: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let differs = if wanted { !Wanted(key.clone()).is(&fields) } else { !found.is_empty() };
            differs.then(|| (key, difference(wanted, &found)))
        };
        let repaired: Vec<_> = found.into_iter().filter_map(differs).collect();
        self.repaired.extend(repaired.clone());
        Ok(repaired)
    }
}

fn reader(server: &Server) -> Reader<String, ()> {
    Reader {
        table: |_| "TABLE",
        connection: Connection::open(server.databases.get(Db::Appl), &server.stop).unwrap(),
        write_name: |_, key, out| out.extend(["TABLE:", key]),
        queue: None,
        scanned: Some(Scanned {
            pattern: "TABLE:*".into(),
            tables: vec![("TABLE", "TABLE:".into())],
            is_other_format: |_, key| key.starts_with("raw-"),
        }),
        why: Difference::why,
        producer: Box::new(|_| Ok(())),
    }
}

/// One round over these rows of the stage. Returns the repairs and the number of rows compared.
fn round(
    server: &Server,
    rows: &[&'static str],
    late: Option<&'static str>,
) -> (Vec<(String, Difference)>, u64) {
    let connection = Connection::open(server.databases.get(Db::Appl), &server.stop).unwrap();
    let mut stage = Scripted { rows: rows.to_vec(), connection, late, asked: 0, repaired: Vec::new() };
    let (handle, calls) = call::pair("test");
    let stop = Stop::default();
    let (reader, tally, its) = (reader(server), Tally::default(), stop.clone());
    let log = RoundLog::new("test", tally.clone());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rounds = Reconciler::new(handle, reader, Duration::ZERO, log, &its);
            let result = rounds.round();
            rounds.log.end();
            its.stop();
            assert!(result.is_ok());
        });
        let signal = stop.signal();
        while !stop.stopped() {
            calls.serve(&mut stage);
            let mut select = crossbeam_channel::Select::new();
            signal.watch(&mut select);
            calls.watch(&mut select);
            select.ready();
        }
    });
    (stage.repaired, tally.counts()["TABLE"].compared)
}

#[test]
fn row_that_the_consumer_has_not_taken_is_under_way() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    client.query("HSET TABLE:a field value");
    client.query("SADD TABLE_KEY_SET b");
    let mut reader =
        Reader { queue: Some(Queue { table: |_| "TABLE", key: String::clone }), ..reader(&server) };
    let keys = ["a", "b", "c"].map(str::to_owned);
    let read = reader.read(&keys.iter().collect::<Vec<_>>(), |_| ()).unwrap();
    let fields = |(n, row): (usize, Hash<'_>)| (n, row.fields().map(|(field, _)| field.to_owned()).collect());
    let found: Vec<(usize, Vec<String>)> = read.settled().map(fields).collect();
    assert_eq!(found, [(0, vec!["field".to_owned()]), (2, vec![])]);
}

#[test]
fn round_repairs_missing_changed_and_surplus_rows_of_every_page() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    for (key, value) in [("a", "value"), ("c", "value"), ("d", "other"), ("raw-a", "value"), ("x", "value")] {
        client.query(&format!("HSET TABLE:{key} field {value}"));
    }
    let (repaired, compared) = round(&server, &["a", "b", "c", "d", "e"], None);
    assert_eq!(compared, 5);
    let named = |key: &str, difference| (key.to_owned(), difference);
    assert_eq!(
        repaired,
        [
            // A key in another format is passed before the pages, other keys after them.
            named("raw-a", Difference::Surplus),
            named("b", Difference::Missing),
            named("d", Difference::Changed),
            named("e", Difference::Missing),
            named("x", Difference::Surplus)
        ]
    );
}

/// As many keys as rows, and the same number of fields.
#[test]
fn round_finds_a_key_in_the_place_of_another() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    ["a", "x"].iter().for_each(|key| drop(client.query(&format!("HSET TABLE:{key} field value"))));
    let (repaired, _) = round(&server, &["a", "b"], None);
    let named = |key: &str, difference| (key.to_owned(), difference);
    assert_eq!(repaired, [named("b", Difference::Missing), named("x", Difference::Surplus)]);
}

/// The names of the pages make those of the first scan even.
#[test]
fn round_without_a_difference_scans_once() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    let rows = ["a", "b", "c", "d", "e"];
    rows.iter().for_each(|key| drop(client.query(&format!("HSET TABLE:{key} field value"))));
    let mut scans = |rows| {
        client.query("CONFIG RESETSTAT");
        round(&server, rows, None);
        let stats = client.query("INFO commandstats").into_text().unwrap();
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_scan:calls=")).unwrap();
        calls.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(scans(&rows), 1);
    assert_eq!(scans(&rows[..4]), 2);
}

#[test]
fn row_whose_write_is_under_way_is_not_repaired() {
    let Some(server) = Server::start() else { return };
    assert_eq!(round(&server, &["a"], Some("a")), (Vec::new(), 1));
}

#[test]
fn round_log_names_the_first_repairs_and_counts_all() {
    let tally = Tally::default();
    let mut log = RoundLog::new("syncd", tally.clone());
    log.compared("ASIC_DB ASIC_STATE", 100);
    assert!(tally.counts().is_empty(), "published at the end, or with a repair");
    for n in 0..LOGGED_MAX + 5 {
        log.repaired("ASIC_DB ASIC_STATE", &n.to_string(), Difference::Missing.why(), None);
    }
    log.repaired("ASIC_DB ASIC_STATE", "last", Difference::Changed.why(), Some("SAI_STATUS_FAILURE"));
    assert_eq!((log.logged, log.more), (LOGGED_MAX, 6));
    log.end();
    assert_eq!((log.logged, log.more), (0, 0));
    log.compared("ASIC_DB ASIC_STATE", 20);
    log.end();
    let count = ReconcileCount { compared: 120, repaired: LOGGED_MAX as u64 + 5, failed: 1 };
    assert_eq!(tally.counts(), BTreeMap::from([("ASIC_DB ASIC_STATE".into(), count)]));
}
