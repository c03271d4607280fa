//! Where replies go: as text or JSON to standard output.

use super::page_text::PageText;
use super::{Output, query};
use crate::client::Client;
use crate::text::{Table, not_understood, unwritten};
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

    /// Prints a page of a list as rows of `table`.
    pub(super) fn rows<T>(
        &mut self,
        items: &[T],
        table: &mut Table,
        rows: impl Fn(&mut Table, &T),
    ) -> Printed {
        items.iter().for_each(|item| rows(table, item));
        self.text(&table.render())
    }

    /// Prints a list of any length, which is the field `list` of its pages: a line of JSON for each item, or each page as
    /// `print` does, which returns the cursor of the next.
    pub(super) fn list<P: DeserializeOwned>(
        &mut self,
        (path, list): (&str, &str),
        limit: usize,
        only: &str,
        print: impl FnMut(&mut Printer, P) -> Result<Option<String>, Failure>,
    ) -> Printed {
        match self.json {
            true => self.passed_on((path, list), limit, only),
            false => self.paged(path, limit, only, print),
        }
    }

    /// Prints the text of pages, a line for each item.
    fn passed_on(&mut self, (path, list): (&str, &str), limit: usize, only: &str) -> Printed {
        let mut cursor = None;
        loop {
            let text = self.client.bytes_of(&page_path(path, limit, cursor, only))?;
            let page = PageText::new(&text, list).map_err(|e| not_understood(path, &e))?;
            for item in page.items {
                self.text(item.get())?;
                self.text("\n")?;
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
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
            let page = self.client.get(&page_path(path, limit, cursor, only))?;
            cursor = print(self, page)?;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}

/// The page at this cursor.
fn page_path(path: &str, limit: usize, cursor: Option<String>, only: &str) -> String {
    let place = query(&[("limit", Some(limit.to_string())), ("cursor", cursor)]);
    format!("{path}?{place}&{only}")
}
