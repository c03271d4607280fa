//! Where replies go: as text or JSON to standard output.

use super::{Output, query};
use crate::client::Client;
use crate::text::{Table, unwritten};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Why a reply is not printed, or not in full.
pub(super) enum Failure {
    /// There is no reply; why not, as a sentence.
    Reply(String),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<String> for Failure {
    fn from(sentence: String) -> Failure {
        Failure::Reply(sentence)
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Output(e)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Failure {
        Failure::Output(e.into())
    }
}

pub(super) type Printed = Result<(), Failure>;

/// The router, and standard output.
pub(super) struct Printer {
    pub(super) client: Client,
    pub(super) json: bool,
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Prints a reply as JSON, or as `text` puts it.
    pub(crate) fn print<T: Serialize>(
        &self,
        reply: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), String> {
        self.print_by(|to| to.print(reply, text))
    }

    /// Prints what `print` says. Where the reader is gone (`ribtide show route | head`), the process ends.
    pub(super) fn print_by(&self, print: impl FnOnce(&mut Printer) -> Printed) -> Result<(), String> {
        let out = BufWriter::new(io::stdout().lock());
        let mut printer = Printer { client: Client::of(self)?, json: self.json, out };
        match print(&mut printer).and_then(|()| Ok(printer.out.flush()?)) {
            Err(Failure::Reply(sentence)) => Err(sentence),
            Err(Failure::Output(e)) => Err(unwritten(e)),
            Ok(()) => Ok(()),
        }
    }
}

impl Printer {
    /// Prints a reply as JSON, or as `text` puts it.
    pub(super) fn print<T: Serialize>(&mut self, reply: &T, text: impl FnOnce(&T) -> String) -> Printed {
        if self.json { self.json(reply) } else { self.text(&text(reply)) }
    }

    /// Prints the router's reply to `GET path`.
    pub(super) fn get<T: Serialize + DeserializeOwned>(
        &mut self,
        path: &str,
        text: impl FnOnce(&T) -> String,
    ) -> Printed {
        let reply = self.client.get(path)?;
        self.print(&reply, text)
    }

    /// Prints text.
    pub(super) fn text(&mut self, text: &str) -> Printed {
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Writes what is printed so far.
    pub(super) fn flush(&mut self) -> Printed {
        Ok(self.out.flush()?)
    }

    /// Prints a JSON document.
    pub(super) fn json<T: Serialize>(&mut self, reply: &T) -> Printed {
        serde_json::to_writer_pretty(&mut self.out, reply)?;
        self.text("\n")
    }

    /// Prints a line of JSON for each item.
    pub(super) fn json_lines<T: Serialize>(&mut self, items: &[T]) -> Printed {
        for item in items {
            serde_json::to_writer(&mut self.out, item)?;
            self.text("\n")?;
        }
        Ok(())
    }

    /// Prints a page of a list: rows of `table`, or a line of JSON each.
    pub(super) fn lines<T: Serialize>(
        &mut self,
        items: &[T],
        table: &mut Table,
        rows: impl Fn(&mut Table, &T),
    ) -> Printed {
        if self.json {
            return self.json_lines(items);
        }
        items.iter().for_each(|item| rows(table, item));
        self.text(&table.render())
    }

    /// Requests pages of at most `limit` items, filtered by `only`, a part of a URL's query.
    /// `print` takes each, and returns the cursor of the next.
    pub(super) fn paged<P: DeserializeOwned>(
        &mut self,
        path: &str,
        limit: usize,
        only: &str,
        mut print: impl FnMut(&mut Printer, P) -> Result<Option<String>, Failure>,
    ) -> Printed {
        let mut cursor = None;
        loop {
            let place = query(&[("limit", Some(limit.to_string())), ("cursor", cursor)]);
            let page = self.client.get(&format!("{path}?{place}&{only}"))?;
            cursor = print(self, page)?;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}
