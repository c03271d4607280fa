//! Unix sockets whose file permissions are their access control.

use rustix::fs::{Gid, Mode, chmod, chown, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Connections that wait for the thread of the listener; the kernel refuses further ones.
const BACKLOG: i32 = 128;

/// Why a socket cannot be bound.
#[derive(Debug)]
pub enum BindError {
    /// The socket cannot be created at its path, or cannot listen.
    Socket(io::Error),
    /// The group of its file cannot be set.
    Group(io::Error),
}

impl From<io::Error> for BindError {
    fn from(e: io::Error) -> BindError {
        BindError::Socket(e)
    }
}

/// Binds a socket at `path`, which has the permissions `mode` and the group with the id `group`
/// before a client can connect: the file is created without permissions for others, and listens
/// last.
///
/// # Errors
/// The system refuses. The file is gone then.
pub fn bind(path: &Path, mode: u32, group: Option<u32>) -> Result<UnixListener, BindError> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // On Linux the file takes the mode of the socket at bind. Unlike umask, this affects no other
    // thread.
    fchmod(&socket, Mode::from_raw_mode(0o600)).map_err(io::Error::from)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let permit = || {
        if let Some(group) = group {
            chown(path, None, Some(Gid::from_raw(group))).map_err(|e| BindError::Group(e.into()))?;
        }
        chmod(path, Mode::from_raw_mode(mode)).map_err(io::Error::from)?;
        socket.listen(BACKLOG)?;
        Ok(())
    };
    let permitted: Result<(), BindError> = permit();
    if permitted.is_err() {
        // A file that stays is replaced by the next start.
        let _ = std::fs::remove_file(path);
    }
    permitted.map(|()| UnixListener::from(OwnedFd::from(socket)))
}

/// The permissions that octal digits such as `0660` name: nine bits, of which the owner keeps read
/// and write. `None`: the text is something else.
pub fn mode(text: &str) -> Option<u32> {
    let octal = (1..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && mode & !0o777 == 0)?;
    (mode & 0o600 == 0o600).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn socket_has_the_mode_that_was_asked_for() {
        let path = std::env::temp_dir().join(format!("ribtide-unix-socket-{}", std::process::id()));
        for mode in [0o600, 0o660, 0o777] {
            let listener = bind(&path, mode, None).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, mode);
            assert!(UnixStream::connect(&path).is_ok());
            drop(listener);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn mode_is_octal_and_leaves_the_socket_to_its_owner() {
        assert_eq!(["600", "0660", "777"].map(mode), [Some(0o600), Some(0o660), Some(0o777)]);
        for text in ["", "0o600", "060", "1777", "00600", "+600", "rw", "889"] {
            assert_eq!(mode(text), None, "{text}");
        }
    }
}
