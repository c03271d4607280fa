//! SONiC's state tables over Redis: `ProducerStateTable` and `ConsumerStateTable`.
//!
//! A producer writes a row beside its final place (`_T:key`) and notes the key in `T_KEY_SET`; the consumer moves
//! it to `T:key` and learns of it in the same step. However often a row changes before that, the consumer sees it
//! once, as it is last. A deletion, and a row whose fields are not those it had, also note the key in `T_DEL_SET`:
//! the old fields go before the new ones come.
//!
//! Both sides' scripts are our own. On keys, sets and channels they do what SONiC's do, so either side can stand
//! opposite SONiC's other one; inside one call they handle many rows, which costs the server half as much. `batch`
//! of one gives SONiC's way: one call and, for a key not yet noted, one publication for each row.

use crate::connection::Connection;
use crate::database::{Database, Databases};
use crate::resp::{Command, Reply};
use crate::subscribe::Wake;
use crate::{Consumer, Producer, TableError};
use ribtide_runtime::thread::Stop;
use ribtide_swss::{Change, Row};
use std::collections::BTreeSet;
use std::marker::PhantomData;

/// Notes and writes many rows.
///
/// KEYS: channel, set of changed keys, set of keys to clear first, prefix of unconsumed rows.
/// ARGV: payload, then for each change `S` (set), `D` (delete) or `R` (replace), key, how many texts follow, fields
/// and values. `unpack` has room for some 8,000 values: `MAX_BATCH` keeps the key list below that.
const WRITE: &str = r"
local at, changed, clear = 2, {}, {}
while at <= #ARGV do
  local op, key, n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local row = KEYS[4] .. key
  changed[#changed + 1] = key
  if op ~= 'S' then
    clear[#clear + 1] = key
    redis.call('DEL', row)
  end
  if n > 0 then
    redis.call('HSET', row, unpack(ARGV, at + 3, at + 2 + n))
  end
  at = at + 3 + n
end
if #clear > 0 then
  redis.call('SADD', KEYS[3], unpack(clear))
end
if redis.call('SADD', KEYS[2], unpack(changed)) > 0 then
  redis.call('PUBLISH', KEYS[1], ARGV[1])
end
";

/// Takes rows and moves them to their final place.
///
/// KEYS: set of changed keys, set of keys to clear first, prefix of unconsumed rows, prefix of final rows.
/// ARGV: how many. Returns key, fields and values for each row taken. A row that must not keep any old field takes
/// its place by a change of name, which is cheaper than a copy and ends in the same hash.
const POP: &str = r"
local rows = {}
for _, key in ipairs(redis.call('SPOP', KEYS[1], ARGV[1])) do
  local new, final = KEYS[3] .. key, KEYS[4] .. key
  local clear = redis.call('SREM', KEYS[2], key) == 1
  local fields = redis.call('HGETALL', new)
  if #fields == 0 then
    if clear then redis.call('DEL', final) end
  elseif clear then
    redis.call('RENAME', new, final)
  else
    redis.call('HSET', final, unpack(fields))
    redis.call('DEL', new)
  end
  rows[#rows + 1] = {key, fields}
end
return rows
";

/// The most changes one call may carry.
pub const MAX_BATCH: usize = 4000;

/// How a producer sends its changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pipeline {
    /// Changes that one script call carries, 1 to [`MAX_BATCH`].
    pub batch: usize,
    /// Changes that may wait for a flush; at this many they are flushed at once.
    pub capacity: usize,
}

impl Default for Pipeline {
    /// A thousand a call, where bigger calls stop paying; the pipeline as deep as fpmsyncd's.
    fn default() -> Self {
        Pipeline { batch: 1000, capacity: 50_000 }
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
    call: Command,
    in_call: usize,
    waiting: usize,
    /// Scratch for texts.
    text: String,
    fields: Command,
    row: PhantomData<fn(R)>,
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
        let keys = [
            channel::<R>(database),
            format!("{table}_KEY_SET"),
            format!("{table}_DEL_SET"),
            database.key(&format!("_{table}"), ""),
        ];
        let batch = pipeline.batch.clamp(1, MAX_BATCH);
        Ok(ProducerStateTable {
            connection,
            pipeline: Pipeline { batch, capacity: pipeline.capacity.max(1) },
            script,
            keys,
            call: Command::default(),
            in_call: 0,
            waiting: 0,
            text: String::new(),
            fields: Command::default(),
            row: PhantomData,
        })
    }

    /// Notices a server that went away, and waits until it is back: a producer without changes would not.
    ///
    /// # Errors
    /// What [`Connection::flush`] says.
    pub fn probe(&mut self) -> Result<(), TableError> {
        self.connection.ask(&["PING"]).map(drop)
    }

    /// Every row as a consumer will have it once it has taken what waits: what an earlier producer wrote. Keys and rows
    /// that the table does not know are left out; a row may come twice.
    ///
    /// # Errors
    /// What [`Connection::flush`] says.
    pub fn rows(&mut self, mut each: impl FnMut(R::Key, R)) -> Result<(), TableError> {
        let [_, changed, clear, new] = self.keys.clone();
        let last = self.connection.database().key(R::TABLE, "");
        // What waits is read first: a consumer that takes it meanwhile only moves it to where it counts the same.
        let waiting = self.connection.ask(&["SMEMBERS", &changed])?.into_texts();
        for page in waiting.chunks(1000) {
            let connection = &mut self.connection;
            let mut hashes = |prefix: &str| {
                let names: Vec<String> = page.iter().map(|key| format!("{prefix}{key}")).collect();
                connection.ask_all(names.iter().map(|name| ["HGETALL", name]))
            };
            let (new_rows, last_rows) = (hashes(&new)?, hashes(&last)?);
            let cleared = self.connection.ask_all(page.iter().map(|key| ["SISMEMBER", &clear, key]))?;
            for (((key, new), last), cleared) in page.iter().zip(new_rows).zip(last_rows).zip(cleared) {
                // Later fields replace earlier ones of the same name when the row is read.
                let mut pairs = if cleared == Reply::Integer(1) { Vec::new() } else { last.into_pairs() };
                pairs.extend(new.into_pairs());
                give::<R>(key, &pairs, &mut each);
            }
        }
        let waiting: BTreeSet<String> = waiting.into_iter().collect();
        self.connection.scan(&format!("{last}*"), |connection, names| {
            let hashes = connection.ask_all(names.iter().map(|name| ["HGETALL", name]))?;
            for (name, hash) in names.iter().zip(hashes) {
                if let Some(key) = name.strip_prefix(&last).filter(|key| !waiting.contains(*key)) {
                    give::<R>(key, &hash.into_pairs(), &mut each);
                }
            }
            Ok(())
        })
    }

    fn push(&mut self, change: &Change<R>) {
        if self.in_call == 0 {
            let [channel, changed, clear, prefix] = &self.keys;
            for arg in ["EVALSHA", &self.script, "4", channel, changed, clear, prefix, "G"] {
                self.call.arg(arg);
            }
        }
        let op = match &change.row {
            None => "D",
            Some(_) if change.reshaped => "R",
            Some(_) => "S",
        };
        self.text.clear();
        R::key_text(&change.key, &mut self.text);
        let mut put = |field: &str, value: &str| {
            self.fields.arg(field);
            self.fields.arg(value);
        };
        match &change.row {
            None => {}
            Some(row) if change.reshaped => row.all_fields(&mut put),
            Some(row) => row.fields(&mut put),
        }
        let texts = self.fields.len().to_string();
        for arg in [op, &self.text, &texts] {
            self.call.arg(arg);
        }
        self.call.append(&mut self.fields);
        self.in_call += 1;
        self.waiting += 1;
        if self.in_call == self.pipeline.batch {
            self.finish_call();
        }
    }

    fn finish_call(&mut self) {
        if self.in_call > 0 {
            self.connection.queue_command(&mut self.call);
            self.in_call = 0;
        }
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
        self.finish_call();
        self.waiting = 0;
        self.connection.flush()
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn generation(&self) -> u64 {
        self.connection.generation()
    }
}

/// Hands over a row that its table knows.
pub(crate) fn give<R: Row>(key: &str, pairs: &[(String, String)], each: &mut impl FnMut(R::Key, R)) {
    let mut fields = pairs.iter().map(|(field, value)| (field.as_str(), value.as_str()));
    if !pairs.is_empty()
        && let (Ok(key), Ok(row)) = (R::parse_key(key), R::from_fields(&mut fields))
    {
        each(key, row);
    }
}

/// The channel that says that a table has changed keys. Channels belong to a server, hence the number.
pub fn channel<R: Row>(database: &Database) -> String {
    format!("{}_CHANNEL@{}", R::TABLE, database.id)
}

/// The consuming side of a state table. There must be one only.
#[derive(Debug)]
pub struct ConsumerStateTable<R: Row> {
    connection: Connection,
    script: String,
    /// Changed keys, keys to clear, prefix of unconsumed rows, prefix of final rows.
    keys: [String; 4],
    wake: Wake,
    row: PhantomData<fn() -> R>,
}

impl<R: Row> ConsumerStateTable<R> {
    /// Opens the table; `wake` is what [`crate::wake_ups`] gave for its [`channel`].
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(databases: &Databases, wake: Wake, stop: &Stop) -> Result<Self, TableError> {
        let mut connection = Connection::open(databases.get(R::DB), stop)?;
        let script = connection.load(POP)?;
        let (table, database) = (R::TABLE, connection.database());
        let keys = [
            format!("{table}_KEY_SET"),
            format!("{table}_DEL_SET"),
            database.key(&format!("_{table}"), ""),
            database.key(table, ""),
        ];
        Ok(ConsumerStateTable { connection, script, keys, wake, row: PhantomData })
    }
}

impl<R: Row> Consumer<R> for ConsumerStateTable<R> {
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError> {
        let max = max.clamp(1, MAX_BATCH);
        let [changed, clear, new, last] = &self.keys;
        let count = max.to_string();
        let rows = self
            .connection
            .ask(&["EVALSHA", &self.script, "4", changed, clear, new, last, &count])?
            .into_array();
        let more = rows.len() == max;
        for row in rows {
            match parse::<R>(row) {
                Ok(change) => changes.push(change),
                Err(e) => crate::report(&format!("a row is passed over: {e}")),
            }
        }
        Ok(more)
    }

    fn wake(&self) -> &Wake {
        &self.wake
    }
}

fn parse<R: Row>(row: Reply) -> Result<Change<R>, String> {
    let mut parts = row.into_array().into_iter();
    let key = parts.next().and_then(Reply::into_text).unwrap_or_default();
    let pairs = parts.next().map(Reply::into_pairs).unwrap_or_default();
    let says = |e: ribtide_swss::RowError| e.to_string();
    let key = R::parse_key(&key).map_err(says)?;
    if pairs.is_empty() {
        return Ok(Change::del(key));
    }
    let mut fields = pairs.iter().map(|(field, value)| (field.as_str(), value.as_str()));
    Ok(Change::set(key, R::from_fields(&mut fields).map_err(says)?))
}
