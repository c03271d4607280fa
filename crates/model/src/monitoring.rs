//! BMP stations and MRT files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// `GET /v1/bmp`: the stations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Bmp {
    /// In the order of their names.
    pub stations: Vec<BmpStation>,
}

/// A station.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BmpStation {
    /// Its name.
    pub name: String,
    /// Its address and port.
    pub address: SocketAddr,
    /// The local address, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// What it gets, as in the configuration.
    pub views: Vec<String>,
    /// `waiting`, `connecting`, `dumping` (it gets whole tables) or `up`.
    pub state: String,
    /// Time in a session, or to the end of another state.
    pub state_seconds: u64,
    /// Bytes that wait for it.
    pub queued_bytes: u64,
    /// Bytes that may wait for it.
    pub queue_bytes: u64,
    /// Sessions since the start.
    pub connects: u64,
    /// Sessions that were lost, and attempts that failed.
    pub failures: u64,
    /// Sessions that ended because more would have waited than may.
    pub overflows: u64,
    /// Complete dumps of the tables.
    pub dumps: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// The last failure since the last session began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// `GET /v1/mrt`: the files.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Mrt {
    /// Those that are configured.
    pub series: Vec<MrtSeries>,
}

/// A series of files.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MrtSeries {
    /// `table` or `updates`.
    pub name: String,
    /// The names of its files, with conversions.
    pub file: PathBuf,
    /// The time of a file, or between two dumps.
    pub interval_seconds: u64,
    /// Whether files are compressed with gzip.
    pub gzip: bool,
    /// Whether a file is being written.
    pub writing: bool,
    /// When the next file begins, in seconds since 1970.
    pub next: u64,
    /// Complete files since the start.
    pub files: u64,
    /// Bytes of records in them, before compression.
    pub bytes: u64,
    /// Records: paths of dumps, or messages and states of sessions.
    pub records: u64,
    /// Records, or reads of several messages, that are missing because of an error or a slow disk.
    pub dropped: u64,
    /// Files that failed.
    pub failures: u64,
    /// The last complete file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<PathBuf>,
    /// When it was completed, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_time: Option<u64>,
    /// The error of the last file; absent if it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `GET /v1/mrt/table`: a page of a dump of the table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MrtPage {
    /// MRT records as hexadecimal digits; the pages in order are a file.
    pub records: String,
    /// The part of the table that was read, from 0 to 1.
    pub progress: f64,
    /// Prefixes so far.
    pub prefixes: u64,
    /// Paths so far.
    pub paths: u64,
    /// Paths so far that are left out, because their session began after the dump.
    pub left_out: u64,
    /// The cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
