//! Reads many hashes of a busy Redis server: a page of keys at a time, over several connections.
//!
//! A busy server serves each connection once in a round of its event loop, which may take 50 ms. In
//! a round it reads up to 16 KiB of requests from a connection and sends up to 64 KiB of replies.
//! So the keys of a page are divided among connections, each with the input of one round, and the
//! server scans for the next page in the same round. No request blocks the server for long.

use super::Error;
use ribtide_runtime::thread::Stop;
use ribtide_tables::{Connection, Database, Reply, ScanCursor, TableError};

/// Keys of a request.
pub(super) const PAGE: usize = 1000;
/// Keys of a page in a full check. An idle server handles a page without interruption, and other
/// clients wait that long. A busy one needs a round for each page, so small pages take long.
const SCANNED: usize = 500;
/// Connections that share a page. A thousand keys of routes in ASIC_DB are 14 KiB for each.
const CONNECTIONS: usize = 12;
/// Fewer keys than this use one connection.
const ONE_CONNECTION_THRESHOLD: usize = 50;
/// Keys that the server visits for a page with hardly any match.
const SEARCHED: usize = 10_000;

/// Connections to one database.
pub(super) struct Connections {
    /// For single requests.
    pub(super) one: Connection,
    many: Vec<Connection>,
}

/// What is read of each key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The key only.
    Name,
    /// The key and its fields.
    Fields,
}

impl Connections {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub(super) fn open(database: &Database, stop: &Stop) -> Result<Connections, TableError> {
        let open = || Connection::open(database, stop);
        Ok(Connections { one: open()?, many: (0..CONNECTIONS).map(|_| open()).collect::<Result<_, _>>()? })
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

    /// Sends a command for each key, about [`PAGE`] at most. [`Connections::end`] returns the
    /// replies.
    pub(super) fn begin(&mut self, command: &str, keys: &[String]) {
        let each = keys.len().div_ceil(CONNECTIONS).max(ONE_CONNECTION_THRESHOLD);
        for (n, key) in keys.iter().enumerate() {
            self.many[n / each].queue(&[command, key]);
        }
        self.many.iter_mut().for_each(Connection::push);
    }

    /// The replies in the order of keys.
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

    /// All keys that match `pattern` and begin with one of `tables`, if hardly any key matches;
    /// else see [`Hashes`].
    pub(super) fn scan_rare(
        &mut self,
        pattern: &str,
        tables: &[String],
        mut each: impl FnMut(&str, &[(String, String)]),
    ) -> Result<(), Error> {
        let mut hashes = Hashes::begin(self, pattern, tables, What::Fields);
        hashes.visited = SEARCHED;
        while hashes.step(&mut each)? {}
        Ok(())
    }
}

/// Every hash whose key matches a pattern and begins with one of some prefixes, page by page.
pub(super) struct Hashes<'l> {
    connections: &'l mut Connections,
    pattern: String,
    tables: Vec<String>,
    what: What,
    visited: usize,
    cursor: ScanCursor,
    /// Whether the next page was requested.
    requested: bool,
    /// Keys whose fields were requested.
    names: Vec<String>,
}

impl<'l> Hashes<'l> {
    /// Requests the first page.
    pub(super) fn begin(
        connections: &'l mut Connections,
        pattern: &str,
        tables: &[String],
        what: What,
    ) -> Hashes<'l> {
        let cursor = ScanCursor::default();
        connections.one.begin_scan_page(pattern, SCANNED, &cursor);
        Hashes {
            connections,
            pattern: pattern.to_owned(),
            tables: tables.to_vec(),
            what,
            visited: SCANNED,
            cursor,
            requested: true,
            names: Vec::new(),
        }
    }

    /// Passes the next page to `each` while the server works on the one after; `false` after the
    /// last. A key may occur twice; one that is created or deleted meanwhile may be missing.
    pub(super) fn step(
        &mut self,
        mut each: impl FnMut(&str, &[(String, String)]),
    ) -> Result<bool, TableError> {
        let mut names = Vec::new();
        if self.requested {
            names = self.connections.one.end_scan_page(&mut self.cursor)?;
            names.retain(|name| self.tables.iter().any(|table| name.starts_with(table)));
            self.requested = !self.cursor.is_at_start();
            if self.requested {
                self.connections.one.begin_scan_page(&self.pattern, self.visited, &self.cursor);
            }
        }
        let names = std::mem::replace(&mut self.names, names);
        let fields = match self.what {
            What::Name => Vec::new(),
            What::Fields => {
                let fields = self.connections.end()?;
                self.connections.begin("HGETALL", &self.names);
                fields
            }
        };
        let mut fields = fields.into_iter();
        for name in &names {
            let fields = fields.next().map(Reply::into_pairs).unwrap_or_default();
            // A key that was deleted meanwhile has no fields.
            if self.what == What::Name || !fields.is_empty() {
                each(name, &fields);
            }
        }
        Ok(self.requested || !self.names.is_empty())
    }
}
