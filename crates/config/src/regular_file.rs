//! Texts of regular files alone, of a bounded size. A pipe may never end, a device neither, and the name of a file may come
//! from a client of the API.

use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Why a file is not read.
pub(super) enum Unread {
    TooLong,
    Failed(io::Error),
}

/// Opens a regular file. Never waits: opening a pipe would wait for its writer.
///
/// # Errors
/// As of the system, or that it is no regular file.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    // Of the open file, because its name may refer to another one by now.
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

/// Reads a text of at most `max` bytes.
pub(super) fn read(path: &Path, max: u64) -> Result<String, Unread> {
    let mut text = String::new();
    let read = open(path).and_then(|file| file.take(max + 1).read_to_string(&mut text));
    read.map_err(Unread::Failed)?;
    if text.len() as u64 > max { Err(Unread::TooLong) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn pipes_devices_and_folders_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
            let error = crate::load(path).unwrap_err().to_string();
            assert!(error.contains("it is no regular file"), "{}: {error}", path.display());
            assert!(crate::read(path).is_err());
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).ok().as_deref(), Some("0123456789"));
        assert!(matches!(read(&path, 9), Err(Unread::TooLong)));
        assert!(matches!(read(&folder.path().join("none"), 9), Err(Unread::Failed(_))));
    }
}
