//! The suite's own Redis client: it writes the rows of SONiC's other daemons and counts at the end.
//! Replies are numbers or statuses, so a small part of RESP suffices.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to one database.
pub(super) struct Redis(BufReader<UnixStream>);

impl Redis {
    pub(super) fn open(socket: &Path, database: u32) -> io::Result<Redis> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut redis = Redis(BufReader::new(stream));
        redis.query(&["SELECT", &database.to_string()])?;
        Ok(redis)
    }

    /// Sends a command; returns its number, or 0 for a status.
    pub(super) fn query(&mut self, command: &[&str]) -> io::Result<u64> {
        let mut text = format!("*{}\r\n", command.len());
        for word in command {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(text.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.trim_end().split_at_checked(1) {
            Some((":", number)) => number.parse().map_err(io::Error::other),
            Some(("+", _)) => Ok(0),
            _ => Err(io::Error::other(format!("Redis replies {line:?} to {}", command.join(" ")))),
        }
    }

    /// A row, as the producing side of a state table writes it.
    pub(super) fn set(&mut self, table: &str, key: &str, fields: &[&str]) -> io::Result<()> {
        let row = format!("_{table}:{key}");
        self.query(&[&["HSET", &row], fields].concat())?;
        // Last, because a consumer that takes the key at once must find the row.
        self.query(&["SADD", &format!("{table}_KEY_SET"), key])?;
        self.query(&["PUBLISH", &format!("{table}_CHANNEL@0"), "G"]).map(drop)
    }

    /// The number of keys with a prefix.
    pub(super) fn count(&mut self, prefix: &str) -> io::Result<u64> {
        self.query(&["EVAL", "return #redis.call('KEYS', ARGV[1] .. '*')", "0", prefix])
    }
}
