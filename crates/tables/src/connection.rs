//! A connection to one database: commands are queued into one buffer and sent together.
//!
//! The loss of a server stops only the stage that needs it. Queued commands are kept, the
//! connection is made again with growing pauses, and the queue is sent again. Every queued command
//! may therefore run twice; the tables queue only commands for which that is harmless. A server may
//! come back without its data: [`Connection::generation`] then rises, and the owner writes its rows
//! again.

use crate::TableError;
use crate::database::{Address, Database};
use crate::resp::{self, Command, Decoder, EncodedCommand, Raw, Replies, Reply};
use crate::unreadable;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use ribtide_runtime::liveness::{self, Watched};
use ribtide_runtime::log::target;
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_runtime::watchdog::PeerWait;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest wait for a reply: SONiC's pop scripts may block the server for five seconds and
/// more.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The position of a scan of a database.
#[derive(Clone, Debug)]
pub struct ScanCursor(String);

impl Default for ScanCursor {
    fn default() -> Self {
        ScanCursor("0".to_owned())
    }
}

impl ScanCursor {
    /// Whether the scan has not begun, or has ended.
    pub fn is_at_start(&self) -> bool {
        self.0 == "0"
    }
}

/// Hashes that were read, in the order of their keys.
#[derive(Debug)]
pub struct Hashes(Replies);

impl Hashes {
    /// Each hash; one without fields where there is no such hash.
    pub fn iter(&self) -> impl Iterator<Item = Hash<'_>> {
        self.0.iter().map(Hash)
    }
}

/// A hash as the server encoded it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hash<'a>(Raw<'a>);

impl<'a> Hash<'a> {
    /// Decodes the reply to HGETALL. Bytes that are no whole reply are a hash without fields.
    pub fn of(bytes: &'a [u8]) -> Hash<'a> {
        Hash(Raw::of(bytes))
    }

    /// Its encoding. Hashes with equal encodings are equal; the order of fields may differ in equal
    /// hashes.
    pub fn bytes(self) -> &'a [u8] {
        self.0.bytes()
    }

    /// Whether it has no field: there is no such hash.
    pub fn is_empty(self) -> bool {
        self.0.items().is_empty()
    }

    /// Its fields with their values. One that is not UTF-8 comes as `\u{fffd}`.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.items().pairs()
    }
}

/// The interval at which a waiting caller checks for a timeout, and for a host that is gone.
pub(crate) const SERVER_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What a server needs for a small hash, about; and the pause after the commands for a page of hashes:
/// its smallest page, and its length at most.
const HGETALL_TIME: Duration = Duration::from_nanos(1500);
const PAGE_PAUSE_MIN: usize = 200;
const PAGE_PAUSE_MAX: Duration = Duration::from_millis(5);
/// Keys that a server visits for a page of a scan.
const SCAN_COUNT: usize = 1000;
/// The shortest and longest pause between attempts to connect, or to send what was refused.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// Error codes by which a server that works refuses a command for the time being (Redis,
/// `src/server.c`): it runs a script, has no memory left, cannot write to its disk, loads its data,
/// or is a replica. The last is the code of a transaction with such a command.
const TEMPORARY: [&str; 9] =
    ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "EXECABORT"];

/// Commands that may run twice: what they leave, or return to the last, is the same.
const REPEATABLE: [&[u8]; 12] = [
    b"COPY", b"DEL", b"EXISTS", b"GET", b"HDEL", b"HGET", b"HGETALL", b"HSET", b"PING", b"PUBLISH", b"SCARD",
    b"UNLINK",
];

/// Commands that treat a key of another type as an absent one.
const PASSING_OVER: [&[u8]; 7] =
    [b"HDEL", b"HGET", b"HGETALL", b"LRANGE", b"SCARD", b"SISMEMBER", b"SMEMBERS"];

/// Commands of the only writer of a key, or of the only reader of a queue: a key of another type is
/// deleted first.
const REPLACING: [&[u8]; 3] = [b"HSET", b"LPUSH", b"RPOP"];

/// A connection to one database.
#[derive(Debug)]
pub struct Connection {
    database: Database,
    stop: Stop,
    stream: Stream,
    decoder: Decoder,
    /// Commands that were queued and not yet all answered, and how much of that the server was sent.
    out: Vec<u8>,
    sent: usize,
    queued: usize,
    /// Empty between two commands.
    command: Command,
    /// Scripts that the server must have before `out` is sent.
    scripts: Vec<&'static str>,
    generation: u64,
    /// The replies to the commands of `out`, or of the batch before.
    replies: Replies,
    /// For the watchdog.
    peer: PeerWait,
}

impl Connection {
    /// Frees its buffers. No command may be queued, and no reply in use.
    pub fn shrink_to_fit(&mut self) {
        if self.queued == 0 {
            (self.out, self.command, self.replies) = Default::default();
            self.decoder.shrink_to_fit();
        }
    }

    /// Connects and selects the database. `stop` ends the wait for a lost server.
    ///
    /// # Errors
    /// [`TableError::Unreachable`], or [`TableError::Refused`] when the server has no such database number.
    pub fn open(database: &Database, stop: &Stop) -> Result<Connection, TableError> {
        let stream = Stream::connect(database)?;
        let mut connection = Connection {
            database: database.clone(),
            stop: stop.clone(),
            stream,
            decoder: Decoder::default(),
            out: Vec::new(),
            sent: 0,
            queued: 0,
            command: Command::default(),
            scripts: Vec::new(),
            generation: 0,
            replies: Replies::default(),
            peer: PeerWait::new(format!("Redis for {} at {}", database.db.name(), database.address)),
        };
        connection.greet()?;
        Ok(connection)
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Rises when the server was lost and found again, or refused a part of a batch for a time.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Waits, while no reply is due, until the server closes the connection, for a wake-up, the stop,
    /// or `timeout`. Returns whether it may be lost: the next query shows that.
    pub fn wait_for_loss(&self, wait: &WaitFd, timeout: Duration) -> bool {
        wait.wait(&self.stream, timeout).unwrap_or(true)
    }

    /// Connects again if the server closed the connection while no command was queued, and returns whether
    /// it did. So no later command was sent to the server of before. Without that, the next flush connects
    /// again, and no one knows which of its commands that server still took.
    ///
    /// # Errors
    /// [`TableError::Lost`] only when the process stops.
    pub fn renew(&mut self) -> Result<bool, TableError> {
        let Err(cause) = self.stream.idle() else { return Ok(false) };
        self.recover(lost(&self.database, &cause))?;
        Ok(true)
    }

    /// A number of the server's process: another one after each start of the server. `None` when the
    /// server does not say.
    ///
    /// # Errors
    /// [`TableError::Lost`] only when the process stops.
    pub fn server_process(&mut self) -> Result<Option<u64>, TableError> {
        let info = match self.query(&["INFO", "server"]) {
            Err(TableError::Refused { .. }) => return Ok(None),
            info => info?.into_text().unwrap_or_default(),
        };
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        Ok(run.and_then(|run| u64::from_str_radix(run.get(..16)?, 16).ok()))
    }

    /// Queues a command; its reply is read, and dropped, at the next flush.
    pub fn queue(&mut self, args: &[&str]) {
        self.queue_with(|command| args.iter().for_each(|arg| command.arg(arg)));
    }

    /// Queues a command that was assembled by argument, and empties it.
    pub fn queue_command(&mut self, command: &mut Command) {
        command.finish(&mut self.out);
        self.queued += 1;
    }

    /// Queues a command of the arguments that `args` adds.
    pub fn queue_with(&mut self, args: impl FnOnce(&mut Command)) {
        args(&mut self.command);
        self.command.finish(&mut self.out);
        self.queued += 1;
    }

    /// Sends the queued commands, so that the server works while more are queued. A lost server is
    /// reported by the next flush.
    pub fn push(&mut self) {
        if self.stream.write_all(&self.out[self.sent..]).is_ok() {
            self.sent = self.out.len();
        }
    }

    /// Sends the queued commands and waits for all replies, through losses of the server, and
    /// through times in which it refuses commands, for example because its memory is full.
    ///
    /// # Errors
    /// [`TableError::Refused`] with the first error reply, after all commands were tried;
    /// [`TableError::Lost`], or a refusal that may pass, only when the process stops.
    pub fn flush(&mut self) -> Result<(), TableError> {
        self.send().map(drop)
    }

    /// Sends the queued commands and one more, and returns its reply. The command may run twice
    /// when the server is lost.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn query(&mut self, args: &[&str]) -> Result<Reply, TableError> {
        self.queue(args);
        self.send()?.last().map_or(Ok(Reply::Nil), |reply| self.read(reply))
    }

    /// Sends the queued commands and `commands`, and returns a reply for each of the latter.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn query_all<'a, const N: usize>(
        &mut self,
        commands: impl Iterator<Item = [&'a str; N]>,
    ) -> Result<Vec<Reply>, TableError> {
        self.flush()?;
        commands.for_each(|command| self.queue(&command));
        self.replies()
    }

    /// Reads the hashes of these rows, whose keys `write_key` appends. Sends the queued commands
    /// before. Many hashes take some time more, so that their replies need less CPU time here.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn read_hashes<R>(
        &mut self,
        rows: impl Iterator<Item = R>,
        mut write_key: impl FnMut(&Database, R, &mut String),
    ) -> Result<Hashes, TableError> {
        self.flush()?;
        let mut key = String::new();
        for row in rows {
            key.clear();
            write_key(&self.database, row, &mut key);
            resp::write_hgetall(&key, &mut self.out);
            self.queued += 1;
        }
        // The server answers every 16 KiB of commands with one write, and each would wake this thread.
        if self.queued >= PAGE_PAUSE_MIN {
            self.push();
            let commands = u32::try_from(self.queued).unwrap_or(u32::MAX);
            self.stop.sleep((HGETALL_TIME * commands).min(PAGE_PAUSE_MAX));
        }
        self.send().map(Hashes)
    }

    /// Takes the buffer of hashes for the next replies.
    pub fn recycle(&mut self, hashes: Hashes) {
        self.replies = hashes.0;
    }

    /// Sends the rest of the queued commands, and returns a reply for each queued command.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn replies(&mut self) -> Result<Vec<Reply>, TableError> {
        let replies = self.send()?;
        replies.iter().map(|reply| self.read(reply)).collect()
    }

    /// Passes the keys that match `pattern` to `each`, in pages, so that the server serves other
    /// clients in between. A key may come twice; one that is created or deleted meanwhile may be
    /// missing.
    ///
    /// # Errors
    /// As [`Connection::flush`], or those of `each`.
    pub fn scan(
        &mut self,
        pattern: &str,
        mut each: impl FnMut(&mut Connection, &[String]) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let mut cursor = ScanCursor::default();
        loop {
            self.flush()?;
            self.begin_scan_page(pattern, SCAN_COUNT, &cursor);
            let names = self.end_scan_page(&mut cursor)?;
            each(self, &names)?;
            if cursor.is_at_start() {
                return Ok(());
            }
        }
    }

    /// Passes the keys of the next page of a [`Connection::scan`] to `each`, without a copy. A key
    /// that is not UTF-8 comes as `\u{fffd}`.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn scan_names(
        &mut self,
        pattern: &str,
        cursor: &mut ScanCursor,
        each: impl FnMut(&str),
    ) -> Result<(), TableError> {
        self.flush()?;
        self.begin_scan_page(pattern, SCAN_COUNT, cursor);
        let replies = self.send()?;
        let mut page = replies.last().map(Raw::items).unwrap_or_default();
        let next = page.next().and_then(Raw::text).filter(|next| !next.is_empty());
        *cursor = next.map_or_else(ScanCursor::default, |next| ScanCursor(next.to_owned()));
        page.next().map(Raw::items).unwrap_or_default().texts().flatten().for_each(each);
        self.replies = replies;
        Ok(())
    }

    /// Requests the next page of a [`Connection::scan`], for which the server visits about `count`
    /// keys. No other command may be queued until [`Connection::end_scan_page`].
    pub fn begin_scan_page(&mut self, pattern: &str, count: usize, cursor: &ScanCursor) {
        self.queue(&["SCAN", &cursor.0, "MATCH", pattern, "COUNT", itoa::Buffer::new().format(count)]);
        self.push();
    }

    /// The requested page.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn end_scan_page(&mut self, cursor: &mut ScanCursor) -> Result<Vec<String>, TableError> {
        let mut page = self.replies()?.pop().map(Reply::into_array).unwrap_or_default();
        let names = page.pop().map(Reply::into_texts).unwrap_or_default();
        let next = page.pop().and_then(Reply::into_text).filter(|next| !next.is_empty());
        *cursor = next.map_or_else(ScanCursor::default, ScanCursor);
        Ok(names)
    }

    /// Loads `script` into the server and returns its hash for `EVALSHA`.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub(crate) fn load(&mut self, script: &'static str) -> Result<String, TableError> {
        self.scripts.push(script);
        Ok(self.query(&["SCRIPT", "LOAD", script])?.into_text().unwrap_or_default())
    }

    /// Runs the queued commands and returns all replies.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub(crate) fn send(&mut self) -> Result<Replies, TableError> {
        self.replies.clear();
        if self.queued == 0 {
            return Ok(Replies::default());
        }
        self.peer.begin();
        let sent = self.send_queued();
        self.peer.end();
        sent
    }

    fn send_queued(&mut self) -> Result<Replies, TableError> {
        let (mut pause, mut refused) = (RETRY_BACKOFF.0, String::new());
        let refusal = loop {
            match self.exchange() {
                Ok(Some(message)) if is_temporary(&message) && !self.stop.stopped() => {
                    self.keep_accepted(is_temporary);
                    if refused != message {
                        let database = self.database.db.name();
                        tracing::warn!(
                            target: target::REDIS,
                            database,
                            refusal = message,
                            "Redis refuses commands; trying again until it does not"
                        );
                        refused = message;
                    }
                    self.stop.sleep(pause);
                    pause = RETRY_BACKOFF.1.min(pause * 2);
                }
                Ok(Some(message)) if is_wrong_type(&message) && !self.stop.stopped() => {
                    match self.replace_wrong_type() {
                        Ok(true) => {}
                        Ok(false) => break Some(message),
                        Err(e) => self.recover(e)?,
                    }
                }
                // Another client flushed the scripts; commands that ran may run again.
                Ok(Some(message)) if message.starts_with("NOSCRIPT") => {
                    (self.sent, self.replies) = Default::default();
                    if let Err(e) = self.load_scripts() {
                        self.recover(e)?;
                    }
                }
                Ok(refusal) => break refusal,
                Err(e) => self.recover(e)?,
            }
        };
        if !refused.is_empty() {
            tracing::info!(target: target::REDIS, database = self.database.db.name(), "Redis takes commands again");
        }
        let refusal =
            refusal.map(|message| if is_wrong_type(&message) { self.wrong_type(message) } else { message });
        self.out.clear();
        (self.queued, self.sent) = (0, 0);
        match refusal {
            None => Ok(std::mem::take(&mut self.replies)),
            Some(message) => Err(self.refused(message)),
        }
    }

    /// One attempt: sends the commands without a reply, and reads their replies. Returns the first
    /// error reply.
    fn exchange(&mut self) -> Result<Option<String>, TableError> {
        let lost = |cause: &io::Error| lost(&self.database, cause);
        let unsent = &self.out[self.sent..];
        self.stream.write_all(unsent).map_err(|e| lost(&e))?;
        self.sent = self.out.len();
        let mut is_refused = false;
        while self.replies.len() < self.queued {
            let reply = receive(&mut self.stream, &mut self.decoder, REPLY_TIMEOUT).map_err(|e| lost(&e))?;
            is_refused |= reply.is_refusal();
            self.replies.push(reply);
        }
        Ok(if is_refused { self.first_refusal() } else { None })
    }

    /// The first error reply that counts.
    fn first_refusal(&self) -> Option<String> {
        self.replies.iter().zip(resp::commands(&self.out)).find_map(|(reply, command)| {
            let message = reply.refusal()?;
            if !(is_wrong_type(&message) && PASSING_OVER.contains(&command.name)) {
                return Some(message);
            }
            let key = String::from_utf8_lossy(command.key);
            unreadable::passed_over(self.database.db.name(), &key, "another type of value");
            None
        })
    }

    /// Makes the next attempt begin with the first command that was refused for such a reason, or
    /// with its transaction. Those after it run again. Where that is not harmless,
    /// [`Connection::generation`] rises, as after a loss.
    fn keep_accepted(&mut self, reason: fn(&str) -> bool) {
        let commands = resp::commands(&self.out);
        let is_refused = |reply: &Raw<'_>| reply.refusal().is_some_and(|refusal| reason(&refusal));
        let refused = self.replies.iter().position(|reply| is_refused(&reply)).unwrap_or(0);
        let transaction =
            commands[..refused].iter().rposition(|command| matches!(command.name, b"MULTI" | b"EXEC"));
        let first = transaction.filter(|at| commands[*at].name == b"MULTI").unwrap_or(refused);
        let ran = |(reply, command): (Raw<'_>, &EncodedCommand<'_>)| {
            let waits = command.name == b"MULTI" || reply.text() == Some("QUEUED");
            !waits && !reply.is_refusal() && !REPEATABLE.contains(&command.name)
        };
        self.generation += u64::from(self.replies.iter().zip(&commands).skip(first).any(ran));
        self.sent = commands.get(first).map_or(0, |command| command.at);
        self.replies.truncate(first);
    }

    /// Deletes the keys of another type that commands of their only user met, so that these run
    /// again. Returns whether there was one.
    fn replace_wrong_type(&mut self) -> Result<bool, TableError> {
        let wrong = |(reply, command): (Raw<'_>, EncodedCommand<'_>)| {
            let is_wrong =
                REPLACING.contains(&command.name) && reply.refusal().is_some_and(|m| is_wrong_type(&m));
            is_wrong.then(|| String::from_utf8_lossy(command.key).into_owned())
        };
        let keys: BTreeSet<String> =
            self.replies.iter().zip(resp::commands(&self.out)).filter_map(wrong).collect();
        for key in &keys {
            unreadable::replaced(self.database.db.name(), key);
            self.control(&["DEL", key])?;
        }
        if !keys.is_empty() {
            self.keep_accepted(is_wrong_type);
        }
        Ok(!keys.is_empty())
    }

    /// What to do about a refusal of another type of value.
    fn wrong_type(&self, message: String) -> String {
        let commands = resp::commands(&self.out);
        let refused = |reply: &Raw<'_>| reply.refusal().as_ref() == Some(&message);
        let place = self.replies.iter().position(|reply| refused(&reply));
        match place.and_then(|place| commands.get(place)).filter(|command| command.name != b"EVALSHA") {
            Some(command) => {
                let (id, key) = (self.database.id, String::from_utf8_lossy(command.key));
                format!("{message} (key {key}); delete it: redis-cli -n {id} DEL '{key}'")
            }
            None => message,
        }
    }

    /// Connects again until it succeeds or the process stops.
    fn recover(&mut self, error: TableError) -> Result<(), TableError> {
        let database = self.database.db.name();
        tracing::warn!(target: target::REDIS, database, "{error}; waiting for it to come back");
        let mut pause = RETRY_BACKOFF.0;
        loop {
            if self.stop.stopped() {
                return Err(error);
            }
            self.stop.sleep(pause);
            pause = RETRY_BACKOFF.1.min(pause * 2);
            let Ok(stream) = Stream::connect(&self.database) else { continue };
            (self.stream, self.decoder) = (stream, Decoder::default());
            (self.sent, self.replies) = Default::default();
            if self.greet().and_then(|()| self.load_scripts()).is_ok() {
                break;
            }
        }
        self.generation += 1;
        tracing::info!(target: target::REDIS, database, "Redis is back");
        Ok(())
    }

    fn load_scripts(&mut self) -> Result<(), TableError> {
        for script in self.scripts.clone() {
            self.control(&["SCRIPT", "LOAD", script])?;
        }
        Ok(())
    }

    fn greet(&mut self) -> Result<(), TableError> {
        let id = self.database.id.to_string();
        self.control(&["SELECT", &id])?;
        match self.database.client.clone() {
            Some(name) => self.control(&["CLIENT", "SETNAME", &name]),
            None => Ok(()),
        }
    }

    /// One command outside the queue, on a connection without commands in flight.
    fn control(&mut self, args: &[&str]) -> Result<(), TableError> {
        let mut bytes = Vec::new();
        Command::of(args).finish(&mut bytes);
        let sent = self.stream.write_all(&bytes);
        let sent = sent.and_then(|()| receive(&mut self.stream, &mut self.decoder, REPLY_TIMEOUT));
        match sent.map_err(|e| lost(&self.database, &e))?.refusal() {
            Some(message) => Err(self.refused(message)),
            None => Ok(()),
        }
    }

    fn read(&self, reply: Raw<'_>) -> Result<Reply, TableError> {
        reply.reply().map_err(|_| lost(&self.database, &not_redis()))
    }

    fn refused(&self, message: String) -> TableError {
        TableError::Refused { database: self.database.db.name().into(), message }
    }
}

/// Whether a refusal may pass without a change of the command. Before version 7, the code of an
/// error inside of a script is not at the beginning.
fn is_temporary(refusal: &str) -> bool {
    let code = |text: &str| TEMPORARY.contains(&text.split(' ').next().unwrap_or_default());
    let inner = refusal.strip_prefix("ERR Error running script").and_then(|text| text.split(": -").nth(1));
    code(refusal) || inner.is_some_and(code)
}

/// Whether a command met a key whose value has another type.
fn is_wrong_type(refusal: &str) -> bool {
    refusal.starts_with("WRONGTYPE")
}

pub(crate) fn lost(database: &Database, cause: &io::Error) -> TableError {
    TableError::Lost {
        database: database.db.name().into(),
        address: database.address.to_string(),
        cause: cause.to_string(),
    }
}

/// Reads until one reply is complete. [`ErrorKind::WouldBlock`] after `timeout` without data.
pub(crate) fn receive<'d>(
    stream: &mut Stream,
    decoder: &'d mut Decoder,
    timeout: Duration,
) -> io::Result<Raw<'d>> {
    let mut waited = Duration::ZERO;
    while !decoder.advance().map_err(|_| not_redis())? {
        match decoder.fill(|room| stream.read(room)) {
            Ok(0) => return Err(io::Error::other("the server closed it")),
            Ok(_) => waited = Duration::ZERO,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                waited += SERVER_POLL_INTERVAL;
                if waited >= timeout {
                    return Err(io::Error::new(ErrorKind::WouldBlock, "no reply in time"));
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(decoder.current())
}

pub(crate) fn not_redis() -> io::Error {
    io::Error::other("the server there is not Redis")
}

/// A socket to a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(Watched<TcpStream>),
}

impl Stream {
    pub(crate) fn connect(database: &Database) -> Result<Stream, TableError> {
        let connect = || {
            Ok(match &database.address {
                Address::Unix(path) => {
                    let stream = UnixStream::connect(path)?;
                    stream.set_read_timeout(Some(SERVER_POLL_INTERVAL))?;
                    Stream::Unix(stream)
                }
                Address::Tcp(host, port) => {
                    let stream = reach(host, *port)?;
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(SERVER_POLL_INTERVAL))?;
                    stream.set_write_timeout(Some(SERVER_POLL_INTERVAL))?;
                    liveness::probe(&stream)?;
                    Stream::Tcp(Watched(stream))
                }
            })
        };
        connect().map_err(|e: io::Error| TableError::Unreachable {
            database: database.db.name().into(),
            address: database.address.to_string(),
            cause: e.to_string(),
        })
    }

    /// Fails when the server has closed the connection, on which no reply is due. Never blocks.
    fn idle(&self) -> io::Result<()> {
        match recv(self.as_fd().as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
            Ok(0) => Err(io::Error::other("the server closed it")),
            // Nothing was asked.
            Ok(_) => Err(not_redis()),
        }
    }
}

fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("its name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
        }
    }
}

/// A read returns after [`SERVER_POLL_INTERVAL`]; a write waits as long as the server's host is
/// reachable.
impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(buf),
            Stream::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(buf),
            Stream::Tcp(s) => loop {
                match s.write(buf) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    done => return done,
                }
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
