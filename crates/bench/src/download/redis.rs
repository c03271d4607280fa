//! What the suite itself says to Redis: the rows of SONiC's other daemons, and questions at the end. Commands whose
//! replies are a number or a word need no more of the protocol than this.

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
        redis.ask(&["SELECT", &database.to_string()])?;
        Ok(redis)
    }

    /// The number that a command answers with; 0 for a word.
    pub(super) fn ask(&mut self, command: &[&str]) -> io::Result<u64> {
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
            _ => Err(io::Error::other(format!("Redis answers {line:?} to {}", command.join(" ")))),
        }
    }

    /// A row, as the producing side of a state table writes it.
    pub(super) fn set(&mut self, table: &str, key: &str, fields: &[&str]) -> io::Result<()> {
        let row = format!("_{table}:{key}");
        self.ask(&[&["HSET", &row], fields].concat())?;
        // Last: a consumer that takes the key at once must find the row.
        self.ask(&["SADD", &format!("{table}_KEY_SET"), key])?;
        self.ask(&["PUBLISH", &format!("{table}_CHANNEL@0"), "G"]).map(drop)
    }

    /// How many keys begin so.
    pub(super) fn count(&mut self, prefix: &str) -> io::Result<u64> {
        self.ask(&["EVAL", "return #redis.call('KEYS', ARGV[1] .. '*')", "0", prefix])
    }
}
