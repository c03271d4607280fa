//! The suite's own Redis client: it writes the rows of SONiC's other daemons and counts at the end.
//! Replies are numbers, statuses or one text, so a small part of RESP suffices.

use std::io::{self, BufRead, BufReader, Read, Write};
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

    /// Sends a command; returns its text.
    pub(super) fn text(&mut self, command: &[&str]) -> io::Result<String> {
        let line = self.send(command)?;
        let Some(("$", length)) = line.split_at_checked(1) else { return Err(unexpected(&line, command)) };
        // The server is our own, and INFO is its longest text.
        let length: u64 = length.parse().map_err(io::Error::other)?;
        let mut text = Vec::new();
        (&mut self.0).take(length + 2).read_to_end(&mut text)?;
        text.truncate(text.len().saturating_sub(2));
        String::from_utf8(text).map_err(io::Error::other)
    }

    /// Sends a command; returns its number, or 0 for a status.
    pub(super) fn query(&mut self, command: &[&str]) -> io::Result<u64> {
        let line = self.send(command)?;
        match line.split_at_checked(1) {
            Some((":", number)) => number.parse().map_err(io::Error::other),
            Some(("+", _)) => Ok(0),
            _ => Err(unexpected(&line, command)),
        }
    }

    /// Sends a command; returns the first line of its reply.
    fn send(&mut self, command: &[&str]) -> io::Result<String> {
        let mut text = format!("*{}\r\n", command.len());
        for word in command {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(text.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
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

fn unexpected(line: &str, command: &[&str]) -> io::Error {
    io::Error::other(format!("Redis replies {line:?} to {}", command.join(" ")))
}
