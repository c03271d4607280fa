//! Reading many hashes of a server that has much else to do: a page of keys at a time, over several connections.
//!
//! A busy server comes to each connection once in a round of its work, which may take 50 ms, and then reads 16 KiB of what it is
//! asked and sends 64 KiB of what it answers. So the keys of a page are dealt out to connections, each with what one round reads,
//! and the server looks for the keys of the next page in the same round. No question of them holds it up for long.

use super::Error;
use ribtide_runtime::thread::Stop;
use ribtide_tables::{Connection, Database, Reply, ScanCursor, TableError};

/// Keys that one question is about.
pub(super) const PAGE: usize = 1000;
/// Keys of a page of a look at everything. A server that no other client keeps busy does a page in a row, and others wait as long; a busy one takes a
/// round of its work for each, so that small ones take long.
const SCANNED: usize = 500;
/// Connections that a page is dealt out to: of a thousand keys as long as those of ASIC_DB's routes, 14 KiB each.
const LANES: usize = 12;
/// Fewer keys than this go over one connection: what is asked is short.
const ONE_CONNECTION_THRESHOLD: usize = 50;
/// Keys that the server looks at for a page of which hardly any match.
const SEARCHED: usize = 10_000;

/// Connections to one database.
pub(super) struct Lanes {
    /// For single questions.
    pub(super) one: Connection,
    many: Vec<Connection>,
}

/// What is read of each key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Its name alone.
    Name,
    /// Its fields, too.
    Fields,
}

impl Lanes {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub(super) fn open(database: &Database, stop: &Stop) -> Result<Lanes, TableError> {
        let open = || Connection::open(database, stop);
        Ok(Lanes { one: open()?, many: (0..LANES).map(|_| open()).collect::<Result<_, _>>()? })
    }

    /// The key of a row.
    pub(super) fn key(&self, table: &str, key: &str) -> String {
        self.one.database().key(table, key)
    }

    /// Sends one command and returns its reply.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub(super) fn query(&mut self, command: &[&str]) -> Result<Reply, TableError> {
        self.one.query(command)
    }

    /// Asks a command of each key, at most [`PAGE`] or so: the answers are for [`Lanes::end`], and the server works meanwhile.
    pub(super) fn begin(&mut self, command: &str, keys: &[String]) {
        let each = keys.len().div_ceil(LANES).max(ONE_CONNECTION_THRESHOLD);
        for (n, key) in keys.iter().enumerate() {
            self.many[n / each].queue(&[command, key]);
        }
        self.many.iter_mut().for_each(Connection::push);
    }

    /// The answers, in the order of the keys.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub(super) fn end(&mut self) -> Result<Vec<Reply>, TableError> {
        let mut all = Vec::new();
        for connection in &mut self.many {
            all.append(&mut connection.replies()?);
        }
        Ok(all)
    }

    /// The replies to a command of each key, a page at a time.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub(super) fn replies(&mut self, command: &str, keys: &[String]) -> Result<Vec<Reply>, TableError> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(PAGE) {
            self.begin(command, keys);
            all.append(&mut self.end()?);
        }
        Ok(all)
    }

    /// All keys that match `pattern` and begin with one of `tables`. Hardly any key matches: else see [`Hashes`].
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub(super) fn few(
        &mut self,
        pattern: &str,
        tables: &[String],
        mut each: impl FnMut(&str, &[(String, String)]),
    ) -> Result<(), Error> {
        let mut hashes = Hashes::begin(self, pattern, tables, What::Fields);
        hashes.looked_at = SEARCHED;
        while hashes.step(&mut each)? {}
        Ok(())
    }
}

/// Every hash whose key matches a pattern and begins with one of some words, page by page.
pub(super) struct Hashes<'l> {
    lanes: &'l mut Lanes,
    pattern: String,
    tables: Vec<String>,
    what: What,
    looked_at: usize,
    cursor: ScanCursor,
    /// The keys of the next page are asked for.
    asked: bool,
    /// Keys whose fields are asked for.
    names: Vec<String>,
}

impl<'l> Hashes<'l> {
    /// Asks for the first keys.
    pub(super) fn begin(lanes: &'l mut Lanes, pattern: &str, tables: &[String], what: What) -> Hashes<'l> {
        let cursor = ScanCursor::default();
        lanes.one.begin_scan_page(pattern, SCANNED, &cursor);
        Hashes {
            lanes,
            pattern: pattern.to_owned(),
            tables: tables.to_vec(),
            what,
            looked_at: SCANNED,
            cursor,
            asked: true,
            names: Vec::new(),
        }
    }

    /// Hands out the next page, while the server goes on with the one after; false when it was the last. A key may come twice; one that is
    /// made or goes meanwhile may come or not.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub(super) fn step(
        &mut self,
        mut each: impl FnMut(&str, &[(String, String)]),
    ) -> Result<bool, TableError> {
        let mut names = Vec::new();
        if self.asked {
            names = self.lanes.one.end_scan_page(&mut self.cursor)?;
            names.retain(|name| self.tables.iter().any(|table| name.starts_with(table)));
            self.asked = !self.cursor.is_at_start();
            if self.asked {
                self.lanes.one.begin_scan_page(&self.pattern, self.looked_at, &self.cursor);
            }
        }
        let names = std::mem::replace(&mut self.names, names);
        let fields = match self.what {
            What::Name => Vec::new(),
            What::Fields => {
                let fields = self.lanes.end()?;
                self.lanes.begin("HGETALL", &self.names);
                fields
            }
        };
        let mut fields = fields.into_iter();
        for name in &names {
            let fields = fields.next().map(Reply::into_pairs).unwrap_or_default();
            // One that went meanwhile has no fields.
            if self.what == What::Name || !fields.is_empty() {
                each(name, &fields);
            }
        }
        Ok(self.asked || !self.names.is_empty())
    }
}
