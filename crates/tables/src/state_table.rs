//! SONiC's state tables over Redis: `ProducerStateTable` and `ConsumerStateTable`.
//!
//! A producer writes a row to a temporary key (`_T:key`) and adds the key to `T_KEY_SET`. The
//! consumer moves the row to `T:key` and reports it in the same step. It sees a row once, in its
//! last state, however often the row changed before. A deletion, and a row with other fields than
//! before, also add the key to `T_DEL_SET`: the old fields are then removed first.
//!
//! A producer may also write rows to their final key ([`Pipeline::stable`]). Then a key in
//! `T_KEY_SET`, without a temporary row and without an entry in `T_DEL_SET`, has its row there
//! already. Only our consumer supports this.
//!
//! Both sides use scripts of our own. Their effects on keys, sets and channels are SONiC's
//! (sonic-swss-common, `producerstatetable.cpp`, `consumer_state_table_pops.lua`), so each side
//! works with SONiC's other one. One call handles many rows, which costs the server half as much, and
//! a flush of several calls ends with one publication (SONiC's `flushPub`, sonic-swss-common,
//! `redispipeline.h`). A `batch` of one works like SONiC without that: one call per row, and one
//! publication per new key.

use crate::connection::Connection;
use crate::database::{Database, Databases};
use crate::resp::{Command, Items, Raw, Reply};
use crate::row_cache::RowCache;
use crate::unreadable;
use crate::{Consumer, Producer, TableError};
use ribtide_prefix::Map;
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_runtime::watchdog::PeerWait;
use ribtide_swss::{Change, Row, RowError};
use std::collections::BTreeSet;
use std::time::Duration;

/// Adds keys and writes rows.
///
/// KEYS: channel (empty: the caller publishes), set of changed keys, set of keys to clear first
/// (empty: rows are at their final key, and nothing is cleared), prefix of rows. ARGV: payload, number of field lists, number of
/// changes; per list `S` (set), `D` (delete) or `R` (replace), number of texts, fields and values;
/// then the list number of each change; then the key of each change. `unpack` has room for some
/// 8,000 values: `MAX_BATCH` keeps the keys below that.
///
/// Many routes have equal rows. The first row of a list is written field by field; the others are
/// copies of it, which is cheaper. A pending row whose fields must stay is not replaced by a copy.
///
/// A key of another type is replaced. Returns the names of such keys, if there are any.
const WRITE: &str = r"
local call, lists, at = redis.call, {}, 4
for n = 1, tonumber(ARGV[2]) do
  local texts = tonumber(ARGV[at + 1])
  lists[tostring(n)] = {op = ARGV[at], first = at + 2, last = at + 1 + texts, fields = texts / 2}
  at = at + 2 + texts
end
local clear, models, count, bad = {}, {}, tonumber(ARGV[3]), {}
local keys, share = at + count, count > tonumber(ARGV[2])
local function again(reply, key, ...)
  if string.find(reply.err, 'WRONGTYPE', 1, true) then
    bad[#bad + 1] = key
    call('DEL', key)
  end
  return call(...)
end
local function forget(row)
  if models[row] then
    models[row].model, models[row] = nil, nil
  end
end
for n = 0, count - 1 do
  local list, key = lists[ARGV[at + n]], ARGV[keys + n]
  local row = KEYS[4] .. key
  if list.op ~= 'S' then
    clear[#clear + 1] = key
    call('DEL', row)
    forget(row)
  end
  local model = list.model
  if list.op ~= 'D' and not (model and model ~= row and call('COPY', model, row) == 1) then
    forget(row)
    local set = redis.pcall('HSET', row, unpack(ARGV, list.first, list.last))
    if type(set) == 'table' then
      again(set, row, 'HSET', row, unpack(ARGV, list.first, list.last))
    end
    if share and call('HLEN', row) == list.fields then
      list.model, models[row] = row, list
    end
  end
end
if #clear > 0 and KEYS[3] ~= '' then
  local added = redis.pcall('SADD', KEYS[3], unpack(clear))
  if type(added) == 'table' then
    again(added, KEYS[3], 'SADD', KEYS[3], unpack(clear))
  end
end
local added = redis.pcall('SADD', KEYS[2], unpack(ARGV, keys, keys + count - 1))
if type(added) == 'table' then
  added = again(added, KEYS[2], 'SADD', KEYS[2], unpack(ARGV, keys, keys + count - 1))
end
if added > 0 and KEYS[1] ~= '' then
  call('PUBLISH', KEYS[1], ARGV[1])
end
if #bad > 0 then
  return bad
end
";

/// Takes rows and moves them to their final key.
///
/// KEYS: set of changed keys, set of keys to clear first, prefix of pending rows, prefix of final
/// rows. ARGV: number of rows. Returns for each row the key alone when the final row has no other
/// fields, because it is cheaper read there. Such a row replaces every older one of its key: it was
/// deleted in between, or is complete. Otherwise returns an array of the key, fields and values,
/// which are none for a deletion. A row that keeps no old field is moved by RENAME, which is
/// cheaper than a copy with the same result.
///
/// RENAMENX of a missing row is an error, which costs the server more than the rest. So after the first
/// key without a pending row, of a producer that writes final rows, the others are looked up first.
///
/// A set or pending row of another type is deleted, and a final row of another type is replaced.
/// The names of such keys follow an empty text, as the last row.
const POP: &str = r"
local call, rows, bad, stable = redis.call, {}, {''}, false
local function try(key, ...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  elseif not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return call(...)
  end
  bad[#bad + 1] = key
end
local keys = try(KEYS[1], 'SPOP', KEYS[1], ARGV[1])
if not keys then
  call('DEL', KEYS[1])
  keys = {}
end
local clears = call('EXISTS', KEYS[2]) == 1
for n, key in ipairs(keys) do
  local new, final = KEYS[3] .. key, KEYS[4] .. key
  local row, cleared = key, clears and try(KEYS[2], 'SREM', KEYS[2], key)
  if cleared == nil then
    call('DEL', KEYS[2])
    clears = false
  end
  if cleared == 1 then
    if call('EXISTS', new) == 1 then
      call('RENAME', new, final)
    else
      call('DEL', final)
      row = {key}
    end
  elseif stable and call('EXISTS', new) == 0 then
    if call('EXISTS', final) == 0 then
      row = {key}
    end
  else
    local moved = redis.pcall('RENAMENX', new, final)
    if moved == 0 then
      local fields = try(new, 'HGETALL', new)
      if not fields then
        call('DEL', new)
      elseif try(final, 'HSET', final, unpack(fields)) then
        call('DEL', new)
        table.insert(fields, 1, key)
        row = fields
      else
        call('RENAME', new, final)
      end
    elseif moved ~= 1 then
      stable = true
      if call('EXISTS', final) == 0 then
        row = {key}
      end
    end
  end
  rows[n] = row
end
if #bad > 1 then
  rows[#rows + 1] = bad
end
return rows
";

/// Moves pending rows to their final key; their keys stay in the set.
///
/// KEYS: set of keys to clear first, prefix of pending rows, prefix of final rows. ARGV: keys.
const SETTLE: &str = r"
for _, key in ipairs(ARGV) do
  local new, final = KEYS[2] .. key, KEYS[3] .. key
  if redis.pcall('SREM', KEYS[1], key) == 1 or redis.call('TYPE', final).ok ~= 'hash' then
    redis.call('DEL', final)
  end
  if redis.call('TYPE', new).ok == 'hash' then
    redis.call('HSET', final, unpack(redis.call('HGETALL', new)))
  end
  redis.call('DEL', new)
end
";

/// Keys that wait for a running consumer, at most.
pub const BACKLOG: i64 = 10_000;
/// The interval at which the producer checks a backlog: while the consumer takes rows, and while it
/// does not.
const CONSUMER_POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(40));

/// Bytes of lists and keys at which a call is full; few rows with many next hops reach it. Redis
/// reads a call in pieces, in turns with other clients. The last call of a killed producer must end
/// before its successor reads the table (ADR 18, `tests/killed_client.rs`).
const CALL_BYTES_THRESHOLD: usize = 64 << 10;
/// Changes of one call, at most.
pub const MAX_BATCH: usize = 4000;

/// The batching of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pipeline {
    /// Changes that one script call carries, 1 to [`MAX_BATCH`].
    pub batch: usize,
    /// Changes of a flush, at least 1: this many are flushed at once, with one publication.
    pub capacity: usize,
    /// Writes rows to their final key. The consumer must be [`ConsumerStateTable`]: SONiC's would
    /// treat each row as deleted.
    pub stable: bool,
}

impl Default for Pipeline {
    /// A thousand per call, beyond which larger calls gain nothing; the pipeline has fpmsyncd's
    /// depth.
    fn default() -> Self {
        Pipeline { batch: 1000, capacity: 50_000, stable: false }
    }
}

/// The producing side of a state table.
#[derive(Debug)]
pub struct ProducerStateTable<R: Row> {
    connection: Connection,
    pipeline: Pipeline,
    script: String,
    /// Channel, changed keys, keys to clear, prefix.
    keys: [String; 4],
    call: Call<R>,
    waiting: usize,
    /// Calls of this flush did not publish.
    unpublished: bool,
    /// Scratch for a key.
    text: String,
}

/// One call of [`WRITE`] under construction.
#[derive(Debug)]
struct Call<R: Row> {
    changes: usize,
    lists: Command,
    /// The number of each list, by its bytes.
    numbers: Map<Box<[u8]>, usize>,
    /// The last change's row, and its list number as text.
    last: Option<(Option<R>, bool, String)>,
    /// The list number of each change.
    of: Command,
    keys: Command,
    /// Scratch for a list.
    fields: Command,
    list: Command,
}

impl<R: Row> ProducerStateTable<R> {
    /// Opens the table in its database.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(databases: &Databases, pipeline: Pipeline, stop: &Stop) -> Result<Self, TableError> {
        let mut connection = Connection::open(databases.get(R::DB), stop)?;
        let script = connection.load(WRITE)?;
        let (table, database) = (R::TABLE, connection.database());
        let (changed, clear) = (format!("{table}_KEY_SET"), format!("{table}_DEL_SET"));
        let (new, last) = (database.key(&format!("_{table}"), ""), database.key(table, ""));
        let channel = channel::<R>(database);
        let keys = match pipeline.stable {
            false => [channel, changed, clear, new],
            true => {
                settle(&mut connection, &changed, [&clear, &new, &last])?;
                [channel, changed, String::new(), last]
            }
        };
        let batch = pipeline.batch.clamp(1, MAX_BATCH);
        Ok(ProducerStateTable {
            connection,
            pipeline: Pipeline { batch, capacity: pipeline.capacity.max(1), ..pipeline },
            script,
            keys,
            call: Call::default(),
            waiting: 0,
            unpublished: false,
            text: String::new(),
        })
    }

    /// Detects a lost server and waits until it is back: a producer without changes would not
    /// notice.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn probe(&mut self) -> Result<(), TableError> {
        self.connection.query(&["PING"]).map(drop)
    }

    /// The keys of rows that a consumer has not taken. Keys of another format are left out.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn queued(&mut self) -> Result<Vec<R::Key>, TableError> {
        let [_, changed, ..] = &self.keys;
        let keys = self.connection.query(&["SMEMBERS", changed])?.into_texts();
        Ok(keys.iter().filter_map(|key| R::parse_key(key).ok()).collect())
    }

    /// Every row of an earlier producer as a consumer will have it after taking all pending ones,
    /// and whether it is pending. Keys and rows of another format are left out; a row may come
    /// twice.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn rows(&mut self, mut each: impl FnMut(R::Key, R, bool)) -> Result<(), TableError> {
        let [_, changed, clear, new] = self.keys.clone();
        let last = self.connection.database().key(R::TABLE, "");
        // Pending rows are read first: a consumer that takes one meanwhile moves it to its final
        // key, where it is equal.
        let waiting = self.connection.query(&["SMEMBERS", &changed])?.into_texts();
        for page in waiting.chunks(1000) {
            let connection = &mut self.connection;
            let mut hashes = |prefix: &str| {
                let names: Vec<String> = page.iter().map(|key| format!("{prefix}{key}")).collect();
                connection.query_all(names.iter().map(|name| ["HGETALL", name]))
            };
            let (new_rows, last_rows) = (hashes(&new)?, hashes(&last)?);
            let cleared = self.connection.query_all(page.iter().map(|key| ["SISMEMBER", &clear, key]))?;
            for (((key, new), last), cleared) in page.iter().zip(new_rows).zip(last_rows).zip(cleared) {
                // Later fields replace earlier ones of the same name when the row is read.
                let mut pairs = if cleared == Reply::Integer(1) { Vec::new() } else { last.into_pairs() };
                pairs.extend(new.into_pairs());
                parse_row::<R>(key, &pairs, &mut |key, row| each(key, row, true));
            }
        }
        let waiting: BTreeSet<String> = waiting.into_iter().collect();
        // An earlier producer may have ended between its rows and their publication.
        if !waiting.is_empty() {
            self.connection.query(&["PUBLISH", &self.keys[0], "G"])?;
        }
        self.connection.scan(&format!("{last}*"), |connection, names| {
            let hashes = connection.query_all(names.iter().map(|name| ["HGETALL", name]))?;
            for (name, hash) in names.iter().zip(hashes) {
                if let Some(key) = name.strip_prefix(&last).filter(|key| !waiting.contains(*key)) {
                    parse_row::<R>(key, &hash.into_pairs(), &mut |key, row| each(key, row, false));
                }
            }
            Ok(())
        })
    }

    fn push(&mut self, change: &Change<R>) {
        self.text.clear();
        R::key_text(&change.key, &mut self.text);
        self.call.add(&self.text, change);
        self.waiting += 1;
        if self.call.changes == self.pipeline.batch || self.call.len() >= CALL_BYTES_THRESHOLD {
            // More calls may follow before the flush.
            self.finish_call(self.pipeline.batch == 1);
        }
    }

    fn finish_call(&mut self, publishes: bool) {
        if self.call.changes > 0 {
            let mut command = Command::of(&["EVALSHA", &self.script, "4"]);
            let [channel, keys @ ..] = &self.keys;
            command.arg(if publishes { channel } else { "" });
            keys.iter().for_each(|key| command.arg(key));
            command.arg("G");
            self.call.finish(&mut command);
            self.connection.queue_command(&mut command);
            self.unpublished |= !publishes;
        }
    }
}

impl<R: Row> Default for Call<R> {
    fn default() -> Self {
        let [lists, of, keys, fields, list] = std::array::from_fn(|_| Command::default());
        Call { changes: 0, lists, numbers: Map::default(), last: None, of, keys, fields, list }
    }
}

impl<R: Row> Call<R> {
    fn add(&mut self, key: &str, change: &Change<R>) {
        self.keys.arg(key);
        self.changes += 1;
        // Consecutive routes often have equal rows.
        if let Some((row, reshaped, number)) = &self.last
            && (row, *reshaped) == (&change.row, change.reshaped)
        {
            return self.of.arg(number);
        }
        let number = self.number(change).to_string();
        self.of.arg(&number);
        self.last = Some((change.row.clone(), change.reshaped, number));
    }

    /// Its approximate size in bytes.
    fn len(&self) -> usize {
        self.lists.bytes().len() + self.keys.bytes().len()
    }

    /// The list number of a change.
    fn number(&mut self, change: &Change<R>) -> usize {
        let op = match &change.row {
            None => "D",
            Some(_) if change.reshaped => "R",
            Some(_) => "S",
        };
        let mut put = |field: &str, value: &str| {
            self.fields.arg(field);
            self.fields.arg(value);
        };
        match &change.row {
            None => {}
            Some(row) if change.reshaped => row.all_fields(&mut put),
            Some(row) => row.fields(&mut put),
        }
        self.list.arg(op);
        self.list.arg(&self.fields.len().to_string());
        self.list.append(&mut self.fields);
        if let Some(number) = self.numbers.get(self.list.bytes()) {
            self.list.clear();
            return *number;
        }
        let number = self.numbers.len() + 1;
        self.numbers.insert(self.list.bytes().into(), number);
        self.lists.append(&mut self.list);
        number
    }

    /// Moves the arguments to the end of `command`.
    fn finish(&mut self, command: &mut Command) {
        command.arg(&self.numbers.len().to_string());
        command.arg(&self.changes.to_string());
        for args in [&mut self.lists, &mut self.of, &mut self.keys] {
            command.append(args);
        }
        self.numbers.clear();
        (self.changes, self.last) = (0, None);
    }
}

impl<R: Row> Producer<R> for ProducerStateTable<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        for change in changes.drain(..) {
            self.push(&change);
            if self.waiting >= self.pipeline.capacity {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TableError> {
        // A single call publishes only what is new to its consumer.
        self.finish_call(!self.unpublished);
        if std::mem::take(&mut self.unpublished) {
            self.connection.queue(&["PUBLISH", &self.keys[0], "G"]);
        }
        self.waiting = 0;
        for key in self.connection.send()?.iter().flat_map(Raw::items).filter_map(Raw::text) {
            unreadable::replaced(R::DB.name(), key);
        }
        Ok(())
    }

    /// Keys are taken in no order, so a longer backlog delays each key more. A stalled consumer
    /// must block its producer, as a connection would. A missing consumer does not: it starts with
    /// what it finds.
    fn let_through(&mut self, hurried: &dyn Fn() -> bool) -> Result<(), TableError> {
        let [channel, changed, ..] = &self.keys;
        let (mut last, mut pause) = (i64::MAX, CONSUMER_POLL_INTERVALS.0);
        let mut full: Option<PeerWait> = None;
        while !hurried() {
            let depth = self.connection.query(&["SCARD", changed])?.as_integer().unwrap_or(0);
            if depth <= BACKLOG || !has_subscriber(&mut self.connection, channel)? {
                break;
            }
            pause = if depth < last {
                CONSUMER_POLL_INTERVALS.0
            } else {
                CONSUMER_POLL_INTERVALS.1.min(2 * pause)
            };
            last = depth;
            // Until the consumer has made room: it works, or it stands still.
            let room = || PeerWait::new(format!("room for rows at the consumer of {}", R::TABLE));
            full.get_or_insert_with(room).begin();
            std::thread::sleep(pause);
        }
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn generation(&self) -> u64 {
        self.connection.generation()
    }

    fn shrink_to_fit(&mut self) {
        if self.waiting == 0 {
            self.call = Call::default();
            self.connection.shrink_to_fit();
        }
    }
}

/// Moves pending rows of an earlier producer to their final key: they are older than rows that are
/// written there later.
fn settle(connection: &mut Connection, changed: &str, keys: [&str; 3]) -> Result<(), TableError> {
    let script = connection.load(SETTLE)?;
    let [clear, new, last] = keys;
    for page in connection.query(&["SMEMBERS", changed])?.into_texts().chunks(MAX_BATCH) {
        let head = ["EVALSHA", &script, "3", clear, new, last];
        let args: Vec<&str> = head.into_iter().chain(page.iter().map(String::as_str)).collect();
        connection.query(&args)?;
    }
    Ok(())
}

/// Parses a row and passes it on, if it has its table's format.
pub(crate) fn parse_row<R: Row>(key: &str, pairs: &[(String, String)], each: &mut impl FnMut(R::Key, R)) {
    let mut fields = pairs.iter().map(|(field, value)| (field.as_str(), value.as_str()));
    if pairs.is_empty() {
        return;
    }
    match R::parse_key(key).and_then(|key| Ok((key, R::from_fields(&mut fields)?))) {
        Ok((key, row)) => each(key, row),
        Err(reason) => unreadable::passed_over(R::DB.name(), &format!("{}:{key}", R::TABLE), reason),
    }
}

/// The channel of a table with changed keys. Channels belong to a server, hence the number.
pub fn channel<R: Row>(database: &Database) -> String {
    format!("{}_CHANNEL@{}", R::TABLE, database.id)
}

/// Whether a channel has a subscriber, which a running consumer is.
///
/// # Errors
/// As [`Connection::flush`].
pub fn has_subscriber(connection: &mut Connection, channel: &str) -> Result<bool, TableError> {
    let subscribers = connection.query(&["PUBSUB", "NUMSUB", channel])?.into_pairs();
    Ok(subscribers.first().is_some_and(|(_, count)| count != "0"))
}

/// The consuming side of a state table. A table has only one.
#[derive(Debug)]
pub struct ConsumerStateTable<R: Row> {
    connection: Connection,
    script: String,
    /// Changed keys, keys to clear, prefix of pending rows, prefix of final rows.
    keys: [String; 4],
    wake_up: WakeUp,
    row_cache: RowCache<R>,
}

impl<R: Row> ConsumerStateTable<R> {
    /// Opens the table; `wake_up` is the result of [`crate::wake_ups`] for its [`channel`].
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(databases: &Databases, wake_up: WakeUp, stop: &Stop) -> Result<Self, TableError> {
        let mut connection = Connection::open(databases.get(R::DB), stop)?;
        let script = connection.load(POP)?;
        let (table, database) = (R::TABLE, connection.database());
        let keys = [
            format!("{table}_KEY_SET"),
            format!("{table}_DEL_SET"),
            database.key(&format!("_{table}"), ""),
            database.key(table, ""),
        ];
        Ok(ConsumerStateTable { connection, script, keys, wake_up, row_cache: RowCache::default() })
    }

    /// Takes up to `max` rows with one call. Returns their number.
    fn pop_call(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<usize, TableError> {
        let [changed, clear, new, last] = &self.keys;
        let count = max.to_string();
        self.connection.queue(&["EVALSHA", &self.script, "4", changed, clear, new, last, &count]);
        let replies = self.connection.send()?;
        // Each access to an element of a reply scans it, so the elements are found once.
        let mut rows: Vec<Raw<'_>> = replies.iter().flat_map(Raw::items).collect();
        // The last one may have the names of keys of another type.
        if let Some(names) = rows.pop_if(|row| row.items().next().and_then(Raw::text) == Some("")) {
            let keys = names.items().skip(1).filter_map(Raw::text);
            keys.for_each(|key| unreadable::replaced(R::DB.name(), key));
        }
        let mut name = last.clone();
        for key in rows.iter().filter_map(|row| row.text()) {
            name.truncate(last.len());
            name.push_str(key);
            self.connection.queue(&["HGETALL", &name]);
        }
        let moved = self.connection.send()?;
        let mut moved = moved.iter();
        for row in &rows {
            let whole = row.text();
            let (key, fields) = match whole {
                Some(_) => (whole, moved.next().map(Raw::items).unwrap_or_default()),
                None => {
                    let mut items = row.items();
                    (items.next().and_then(Raw::text), items)
                }
            };
            let replaces = whole.is_some();
            // A missing row was lost with its server, and its producer will write it again.
            if replaces && fields.is_empty() {
                continue;
            }
            match change(key.unwrap_or_default(), fields, &mut self.row_cache) {
                Ok(change) => changes.push(Change { reshaped: replaces, ..change }),
                Err(reason) => {
                    let key = format!("{}:{}", R::TABLE, key.unwrap_or_default());
                    unreadable::passed_over(R::DB.name(), &key, reason);
                }
            }
        }
        Ok(rows.len())
    }
}

impl<R: Row> Consumer<R> for ConsumerStateTable<R> {
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError> {
        let max = max.max(1);
        let mut left = max;
        // The server serves other clients between two calls.
        while left > 0 {
            let asked = left.min(MAX_BATCH);
            let popped = self.pop_call(asked, changes)?;
            left -= popped.min(left);
            if popped < asked {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }

    fn shrink_to_fit(&mut self) {
        self.row_cache = RowCache::default();
        self.connection.shrink_to_fit();
    }
}

fn change<R: Row>(key: &str, fields: Items<'_>, row_cache: &mut RowCache<R>) -> Result<Change<R>, RowError> {
    let key = R::parse_key(key)?;
    if fields.is_empty() {
        return Ok(Change::del(key));
    }
    row_cache
        .row(fields.bytes(), || R::from_fields(&mut fields.clone().pairs()))
        .map(|row| Change::set(key, row))
}
