//! `ribtide dump`: writes what the running router has into a file.

use crate::client::Client;
use crate::show::{Output, escape};
use crate::text;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use ribtide_model::{MrtMessages, MrtPage};
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a dump takes without a display of its progress.
const QUIET: Duration = Duration::from_secs(2);
/// Steps of the display.
const STEPS: u64 = 1000;

/// What to dump.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Dump {
    /// All BGP paths after import policy as an MRT file (TABLE_DUMP_V2, RFC 6396)
    ///
    /// The file has another name until it is complete. `gzip` compresses it; `ribtide replay` plays either.
    Mrt {
        /// The file; one of this name is replaced
        file: PathBuf,
    },
    /// The recorded messages of a neighbour as an MRT file (BGP4MP_ET, RFC 6396), as `ribtide show bgp neighbor NEIGHBOR messages`
    ///
    /// Sent messages are records of the subtypes MESSAGE_LOCAL and MESSAGE_AS4_LOCAL.
    Messages {
        /// Its address, its interface, or both as in fe80::1%swp1
        neighbor: String,
        /// The file; one of this name is replaced
        file: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(what: &Dump, output: &Output) -> Result<(), String> {
    let file = match what {
        Dump::Messages { neighbor, file } => return messages(neighbor, file, output),
        Dump::Mrt { file } => file,
    };
    // A file takes the place of what has the name, and must not take that of a device such as /dev/null.
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(format!("{} is no regular file; write another name", file.display()));
    }
    let mut name = file.clone().into_os_string();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let dumped = table(&Client::of(output)?, &temporary).and_then(|last| {
        fs::rename(&temporary, file).map_err(|e| format!("{} cannot be named: {e}", file.display()))?;
        Ok(last)
    });
    let last = dumped.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    output.print(&last, |last| {
        let left_out = match last.left_out {
            0 => String::new(),
            n => format!("; {} left out, because their session began after the dump", text::count(n, "path")),
        };
        format!(
            "{}: {} prefixes, {} paths{left_out}\n",
            file.display(),
            text::number(last.prefixes),
            text::number(last.paths)
        )
    })
}

/// Writes the recorded messages of a neighbour.
fn messages(neighbor: &str, file: &Path, output: &Output) -> Result<(), String> {
    let path = format!("/v1/bgp/neighbors/{}/messages/mrt", escape(neighbor));
    let mut reply: MrtMessages = Client::of(output)?.get(&path)?;
    let records = bytes_of(&reply.records).ok_or(NO_MRT)?;
    fs::write(file, records).map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
    reply.records = String::new();
    output.print(&reply, |reply| format!("{}: {}\n", file.display(), text::count(reply.messages, "message")))
}

/// What a reply is without MRT records.
const NO_MRT: &str = "the router's reply is no MRT; is it another version?";

/// Writes all pages. Returns the last one without its records.
fn table(client: &Client, file: &Path) -> Result<MrtPage, String> {
    let failed = |e: std::io::Error| format!("{} cannot be written: {e}", file.display());
    let open = OpenOptions::new().write(true).create(true).truncate(true).open(file);
    let mut out = BufWriter::new(open.map_err(failed)?);
    let (begin, mut bar) = (Instant::now(), None);
    let mut path = "/v1/mrt/table".to_owned();
    loop {
        let mut page: MrtPage = client.get(&path)?;
        let records = bytes_of(&page.records).ok_or(NO_MRT)?;
        out.write_all(&records).map_err(failed)?;
        if begin.elapsed() > QUIET {
            let bar = bar.get_or_insert_with(progress);
            bar.set_position((page.progress * STEPS as f64) as u64);
        }
        match page.next.take() {
            Some(cursor) => path = format!("/v1/mrt/table?cursor={cursor}"),
            None => {
                let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
                file.sync_all().map_err(failed)?;
                if let Some(bar) = bar {
                    bar.finish_and_clear();
                }
                page.records = String::new();
                return Ok(page);
            }
        }
    }
}

/// A display of the progress on standard error, if that is a terminal.
fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("dump {wide_bar} {percent}%");
    ProgressBar::new(STEPS).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(value(*pair.first()?)? << 4 | value(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(bytes_of("00ff1a"), Some(vec![0, 255, 26]));
        assert_eq!(bytes_of(""), Some(vec![]));
        assert_eq!((bytes_of("0"), bytes_of("0g")), (None, None));
    }
}
