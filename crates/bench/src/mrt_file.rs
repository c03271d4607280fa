//! MRT files as they are published: plain, gzip or bzip2, told apart by their first bytes; in one or several
//! compressed streams; whole, or cut by an interrupted download.

use crate::Error;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use ribtide_wire::mrt::{self, Record};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// An MRT file that is read record by record.
pub struct MrtFile {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    buf: Vec<u8>,
    /// The part of `buf` that is read and not yet returned.
    unread: std::ops::Range<usize>,
    records: u64,
    offset: u64,
    cut: Option<Cut>,
}

/// The place of an incomplete last record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Cut {
    /// Number of the record that is cut; the first of the file is 1.
    pub record: u64,
    /// Where that record begins, in bytes of the decompressed file.
    pub byte: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file ends in the middle of record {} at byte {}", self.record, self.byte)
    }
}

/// Bytes of one read from the decompressor.
const READ: usize = 1 << 18;

impl MrtFile {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open(path: &Path) -> Result<MrtFile, Error> {
        let failed = |source| Error::File { path: path.into(), source };
        let mut file = BufReader::with_capacity(READ, File::open(path).map_err(failed)?);
        let magic = file.fill_buf().map_err(failed)?;
        let reader: Box<dyn Read + Send> = if magic.starts_with(&[0x1f, 0x8b]) {
            Box::new(MultiGzDecoder::new(file))
        } else if magic.starts_with(b"BZh") {
            Box::new(MultiBzDecoder::new(file))
        } else {
            Box::new(file)
        };
        Ok(MrtFile {
            path: path.into(),
            reader,
            buf: Vec::new(),
            unread: 0..0,
            records: 0,
            offset: 0,
            cut: None,
        })
    }

    /// The next record, or `None` at the end. A cut file ends before the incomplete record, and
    /// [`MrtFile::cut`] reports it.
    ///
    /// # Errors
    /// [`Error::File`], and [`Error::Record`] when what follows is not a record.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        let len = loop {
            match mrt::read_record(&self.buf[self.unread.clone()]) {
                Ok(Some((_, len))) => break len,
                Ok(None) => {}
                Err(source) => return Err(self.record_error(self.records + 1, self.offset, source)),
            }
            if !self.fill()? {
                if !self.unread.is_empty() {
                    self.cut = Some(Cut { record: self.records + 1, byte: self.offset });
                }
                return Ok(None);
            }
        };
        let record = self.unread.start..self.unread.start + len;
        self.unread.start = record.end;
        self.records += 1;
        self.offset += len as u64;
        // Read a second time, and with success: a borrow cannot leave a loop that also changes the buffer.
        Ok(mrt::read_record(&self.buf[record]).ok().flatten().map(|(record, _)| record))
    }

    /// The place of the cut, after the last complete record.
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// The number of returned records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of all returned records, decompressed.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// The error for the contents of the record given out last, which began `len` bytes before the place reached.
    pub(crate) fn record_error(&self, record: u64, byte: u64, source: mrt::Error) -> Error {
        Error::Record { path: self.path.clone(), record, byte, source }
    }

    /// Reads more; false at the end. A broken compressed stream ends the file after its decoded
    /// part.
    fn fill(&mut self) -> Result<bool, Error> {
        self.buf.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        self.buf.resize(self.unread.end + READ, 0);
        loop {
            match self.reader.read(&mut self.buf[self.unread.end..]) {
                Ok(0) => return Ok(false),
                Ok(n) => {
                    self.unread.end += n;
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    self.cut = Some(Cut { record: self.records + 1, byte: self.offset });
                    return Ok(false);
                }
                Err(source) => return Err(Error::File { path: self.path.clone(), source }),
            }
        }
    }
}
