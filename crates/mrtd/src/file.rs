//! A file that has another name until it is complete and on the disk.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes that are collected for a write.
const BUFFER: usize = 256 * 1024;
/// Names that are tried before a file is refused.
const NAMES: u32 = 10_000;

/// A file under its temporary name.
pub(super) struct PendingFile {
    path: PathBuf,
    temporary: PathBuf,
    writer: Writer,
    bytes: u64,
}

enum Writer {
    Plain(BufWriter<File>),
    Gzip(BufWriter<GzEncoder<File>>),
}

impl PendingFile {
    /// Creates the file for `path`, in folders that are made where they are missing. With a number behind it where
    /// there is a file of that name: no file is replaced.
    ///
    /// # Errors
    /// It cannot be created. Displays as a sentence with the path.
    pub(super) fn create(path: &Path, gzip: bool) -> io::Result<PendingFile> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| at("the folder", folder, "cannot be made", &e))?;
        }
        for number in 0..NAMES {
            let path = numbered(path, number);
            let temporary = with_suffix(&path, ".tmp");
            if path.exists() {
                continue;
            }
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    let writer = match gzip {
                        false => Writer::Plain(BufWriter::with_capacity(BUFFER, file)),
                        true => {
                            let gzip = GzEncoder::new(file, Compression::default());
                            Writer::Gzip(BufWriter::with_capacity(BUFFER, gzip))
                        }
                    };
                    return Ok(PendingFile { path, temporary, writer, bytes: 0 });
                }
                // Of a process that was killed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(at("", &temporary, "cannot be created", &e)),
            }
        }
        let e = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(at("", path, "cannot be created", &e))
    }

    /// Appends records.
    ///
    /// # Errors
    /// As of the system. Displays as a sentence with the path.
    pub(super) fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.bytes += records.len() as u64;
        let written = match &mut self.writer {
            Writer::Plain(writer) => writer.write_all(records),
            Writer::Gzip(writer) => writer.write_all(records),
        };
        written.map_err(|e| at("", &self.temporary, "cannot be written", &e))
    }

    /// Hands what was collected to the system, so that readers of the temporary file see it.
    ///
    /// # Errors
    /// As of the system. Displays as a sentence with the path.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.writer {
            Writer::Plain(writer) => writer.flush(),
            // A flush in the middle would cost compression.
            Writer::Gzip(_) => Ok(()),
        };
        flushed.map_err(|e| at("", &self.temporary, "cannot be written", &e))
    }

    /// Bytes of records.
    pub(super) fn len(&self) -> u64 {
        self.bytes
    }

    /// Completes the file: its content is on the disk before it has its name. Returns the name.
    ///
    /// # Errors
    /// As of the system; the temporary file is removed. Displays as a sentence with the path.
    pub(super) fn finish(self) -> io::Result<PathBuf> {
        let PendingFile { path, temporary, writer, .. } = self;
        let finish = || {
            let file = match writer {
                Writer::Plain(writer) => writer.into_inner().map_err(io::IntoInnerError::into_error)?,
                Writer::Gzip(writer) => {
                    writer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?
                }
            };
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            // The new name too.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        match finish() {
            Ok(()) => Ok(path),
            Err(e) => {
                let _ = fs::remove_file(&temporary);
                Err(at("", &path, "cannot be completed", &e))
            }
        }
    }

    /// Removes the file.
    pub(super) fn abandon(self) {
        let PendingFile { temporary, writer, .. } = self;
        match writer {
            // The buffer is dropped unwritten.
            Writer::Plain(writer) => drop(writer.into_parts()),
            Writer::Gzip(writer) => drop(writer.into_parts()),
        }
        // Where that is impossible too, the log has the reason of the failure before it.
        let _ = fs::remove_file(temporary);
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 0 { path.to_owned() } else { with_suffix(path, &format!(".{number}")) }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(suffix);
    name.into()
}

fn at(what: &str, path: &Path, failed: &str, e: &io::Error) -> io::Error {
    let space = if what.is_empty() { "" } else { " " };
    io::Error::new(e.kind(), format!("{what}{space}{} {failed}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_file_has_its_name_when_it_is_complete_and_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/rib.mrt");
        let mut file = PendingFile::create(&path, false).unwrap();
        file.write(b"records").unwrap();
        file.flush().unwrap();
        assert!(!path.exists() && folder.path().join("new/rib.mrt.tmp").exists());
        assert_eq!((file.len(), file.finish().unwrap()), (7, path.clone()));
        assert_eq!(fs::read(&path).unwrap(), b"records");
        // Another one of this name, and one of a process that was killed.
        fs::write(folder.path().join("new/rib.mrt.1.tmp"), b"").unwrap();
        let mut file = PendingFile::create(&path, true).unwrap();
        file.write(b"more").unwrap();
        let second = file.finish().unwrap();
        assert_eq!(second, folder.path().join("new/rib.mrt.2"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(second).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "more");
        let file = PendingFile::create(&folder.path().join("gone"), false).unwrap();
        file.abandon();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_fails_is_named_with_its_path() {
        let error = PendingFile::create(Path::new("/proc/nothing/rib.mrt"), false).err().unwrap();
        assert!(error.to_string().starts_with("the folder /proc/nothing cannot be made: "), "{error}");
        // A full disk: the content fits no buffer.
        let mut file = PendingFile {
            path: "/dev/full".into(),
            temporary: "/dev/full".into(),
            writer: Writer::Plain(BufWriter::new(OpenOptions::new().write(true).open("/dev/full").unwrap())),
            bytes: 0,
        };
        let error = file.write(&[0; 65_536]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("/dev/full cannot be written: "), "{error}");
        // No part of it is removed by the test.
        std::mem::forget(file);
    }
}
